/*
 * tx=adaptive under a stepped clock, with an engine that notes how long each packet waited; and
 * the histograms and looks that waits are counted with.
 */
#include <errno.h>
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/clock.h"

#define BURST   64
#define LATENCY 50000
#define RING    256
#define QUEUED  4096

typedef struct Engine {
    TxScheduler s;
    int64_t since[QUEUED]; /* when each packet in the ring became available */
    int queued, sent, flushes;
    int64_t longest; /* wait of any packet */
    bool notify, full;
    int per_cause[TX_FLUSH__MAX];
} Engine;

static int64_t now(void)
{
    return clock_get_ns(CLOCK_VIRTUAL);
}

static int engine_flush(void *opaque, TxFlushCause cause)
{
    Engine *e = opaque;
    int n = MIN(e->queued, BURST);

    e->flushes++;
    if (e->full && n) {
        return -EBUSY;
    }
    for (int i = 0; i < n; i++) {
        e->longest = MAX(e->longest, now() - e->since[i]);
    }
    memmove(e->since, e->since + n, (size_t)(e->queued - n) * sizeof(e->since[0]));
    e->queued -= n;
    e->sent += n;
    e->per_cause[cause] += n > 0;
    return n;
}

static bool engine_enable(void *opaque)
{
    ((Engine *)opaque)->notify = true;
    return ((Engine *)opaque)->queued > 0;
}

static void engine_disable(void *opaque)
{
    ((Engine *)opaque)->notify = false;
}

static const TxEngineOps engine_ops = {engine_flush, engine_enable, engine_disable};

static void engine_init_latency(Engine *e, uint32_t latency)
{
    TxSettings set = {tx_policy_find("adaptive"), BURST, 150000, latency};

    memset(e, 0, sizeof(*e));
    e->notify = true;
    tx_scheduler_init(&e->s, event_loop_main(), &set, &engine_ops, e);
    e->s.ring_size = RING;
    tx_scheduler_start(&e->s, false);
}

static void engine_init(Engine *e)
{
    engine_init_latency(e, LATENCY);
}

static void run_loop(void)
{
    for (int i = 0; i < 100 && event_loop_run_once(event_loop_main(), false); i++) {
    }
}

static void step(int64_t ns)
{
    clock_step_virtual(now() + ns);
    run_loop();
}

/* The driver adds packets and notifies if it is asked to; true: it did. */
static bool publish(Engine *e, int packets)
{
    bool told = e->notify;

    for (int i = 0; i < packets; i++) {
        e->since[e->queued++] = now();
    }
    if (told) {
        tx_scheduler_notified(&e->s);
        run_loop();
    }
    return told;
}

/* @n packets, one each @gap ns; how many were notified. */
static int stream(Engine *e, int n, int64_t gap)
{
    int told = 0;

    for (int i = 0; i < n; i++) {
        told += publish(e, 1);
        step(gap);
    }
    return told;
}

static void test_idle_at_once(void)
{
    Engine e;

    engine_init(&e);
    for (int i = 0; i < 20; i++) {
        publish(&e, 1);
        g_assert_cmpint(e.sent, ==, i + 1); /* in the notification itself */
        g_assert_true(e.notify);
        step(1000000);
    }
    g_assert_cmpint(e.longest, ==, 0);
    g_assert_cmpint(e.per_cause[TX_FLUSH_NOTIFY], ==, 20);
    tx_scheduler_cleanup(&e.s);
}

/* One packet at a time, each after the answer to the last: a request and its response. */
static void test_request_response(void)
{
    Engine e;

    engine_init(&e);
    g_assert_cmpint(stream(&e, 500, 30000), ==, 500);
    g_assert_cmpint(e.longest, ==, 0);
    tx_scheduler_cleanup(&e.s);
}

static void test_busy_is_held(void)
{
    Engine e;
    int told;

    engine_init(&e);
    stream(&e, 100, 2000);
    e.flushes = 0;
    told = stream(&e, 1000, 2000);
    g_assert_cmpint(told, <, 100);
    g_assert_cmpint(e.flushes, <, 100);
    step(LATENCY);
    g_assert_cmpint(e.sent, ==, 1100);
    g_assert_cmpint(e.longest, <=, LATENCY);
    tx_scheduler_cleanup(&e.s);
}

/* When the stream ends, the last hold finds little, and the next packet goes at once again. */
static void test_busy_then_idle(void)
{
    Engine e;

    engine_init(&e);
    stream(&e, 200, 2000);
    step(10 * LATENCY);
    g_assert_true(e.notify);
    g_assert_false(e.s.waiting);
    publish(&e, 1);
    step(LATENCY);
    g_assert_cmpint(e.queued, ==, 0);
    e.longest = 0;
    for (int i = 0; i < 3; i++) {
        step(1000000);
        publish(&e, 1);
        g_assert_cmpint(e.queued, ==, 0);
    }
    g_assert_cmpint(e.longest, ==, 0);
    tx_scheduler_cleanup(&e.s);
}

static void test_bound(gconstpointer latency)
{
    static const int64_t gaps[] = {100, 900, 3000, 7000, 12000, 16000, 21000, 45000, 90000};
    Engine e;

    engine_init_latency(&e, GPOINTER_TO_UINT(latency));
    for (unsigned seed = 1; seed < 200; seed++) {
        int64_t gap = gaps[seed * 7 % G_N_ELEMENTS(gaps)];

        stream(&e, (int)(seed * 13 % 40), gap);
    }
    g_assert_cmpint(e.longest, <=, (int64_t)GPOINTER_TO_UINT(latency));
    tx_scheduler_cleanup(&e.s);
}

/* A sleep that ends late is begun the earlier, and not at all where nothing is left of it. */
static void test_lateness_shortens(void)
{
    Engine e;

    engine_init(&e);
    stream(&e, 200, 1000);
    e.s.adaptive.lateness_ns = 20000;
    publish(&e, 1);
    step(LATENCY);
    stream(&e, 20, 1000);
    if (e.s.adaptive.holding) {
        g_assert_cmpint(e.s.adaptive.due_ns - now(), <=, LATENCY - 15000);
    }
    e.s.adaptive.lateness_ns = LATENCY + 20000;
    step(LATENCY);
    e.s.adaptive.lateness_ns = LATENCY + 20000;
    publish(&e, 1);
    g_assert_false(e.s.adaptive.holding);
    tx_scheduler_cleanup(&e.s);
}

/* Where a sleep is worse than the bound, a busy queue is polled: for as long as a sleep takes. */
static void test_poll(void)
{
    Engine e;

    engine_init(&e);
    e.s.adaptive.lateness_ns = LATENCY + 20000;
    e.s.adaptive.gap_ns = 2000;
    e.s.adaptive.last_ns = now();
    step(2000);
    publish(&e, 1);
    g_assert_true(e.s.adaptive.polling);
    g_assert_false(e.notify);
    e.since[e.queued++] = now();
    run_loop();
    g_assert_cmpint(e.queued, ==, 0); /* nobody told */
    g_assert_cmpint(e.per_cause[TX_FLUSH_POLL], ==, 1);
    g_assert_true(e.s.adaptive.polling);
    step(LATENCY + 1);
    g_assert_false(e.s.adaptive.polling);
    g_assert_true(e.notify);
    /* It was in vain at last: the next chance is passed over. */
    e.s.adaptive.gap_ns = 2000;
    e.s.adaptive.last_ns = now();
    step(1000);
    publish(&e, 1);
    g_assert_false(e.s.adaptive.polling);
    g_assert_true(e.notify);
    tx_scheduler_cleanup(&e.s);
}

/* However rare the packets are, no time is lost with the ring full: a hold fills part of it. */
static void test_ring_not_filled(void)
{
    Engine e;

    engine_init_latency(&e, 10000000);
    stream(&e, 2000, 1000);
    for (int i = 0; i < 3000; i++) {
        publish(&e, 1);
        g_assert_cmpint(e.queued, <=, RING / 2);
        step(1000);
    }
    tx_scheduler_cleanup(&e.s);
}

static void test_full_burst_goes_on(void)
{
    Engine e;

    engine_init(&e);
    publish(&e, 3 * BURST + 1);
    g_assert_cmpint(e.sent, ==, 3 * BURST + 1);
    g_assert_cmpint(e.longest, ==, 0);
    tx_scheduler_cleanup(&e.s);
}

static void test_uninvited_ends_hold(void)
{
    Engine e;

    engine_init(&e);
    stream(&e, 201, 2000);
    while (!e.s.adaptive.holding) {
        publish(&e, 1);
    }
    e.since[e.queued++] = now();
    g_assert_false(tx_scheduler_notified(&e.s));
    g_assert_cmpint(e.queued, ==, 0);
    tx_scheduler_cleanup(&e.s);
}

static void test_configure(void)
{
    static const char *const names[] = {"bh", "timer", "flush-first", "adaptive", "timer", "bh"};
    Engine e;

    engine_init(&e);
    for (unsigned round = 0; round < 60; round++) {
        TxSettings set = {tx_policy_find(names[round % G_N_ELEMENTS(names)]), BURST, 100000,
                          10000 + 1000 * round};

        stream(&e, 50, 1500);
        tx_scheduler_configure(&e.s, &set);
        run_loop();
    }
    step(1000000);
    g_assert_cmpint(e.queued, ==, 0);
    g_assert_true(e.notify);
    g_assert_cmpint(e.sent, ==, 60 * 50);
    tx_scheduler_cleanup(&e.s);
}

/* --- what is counted --- */

static void test_buckets(void)
{
    for (unsigned n = 1; n < 2000; n++) {
        unsigned b = tx_batch_bucket(n);

        g_assert_cmpuint(n, <=, tx_batch_bucket_limit(b));
        g_assert_true(b == 0 || n > tx_batch_bucket_limit(b - 1));
    }
    for (uint64_t ns = 0; ns < UINT64_C(1) << 40; ns = ns * 33 / 32 + 1) {
        unsigned b = tx_wait_bucket(ns);

        g_assert_cmpuint(b, <, TX_WAIT_BUCKETS);
        g_assert_cmpuint(ns, <=, tx_wait_bucket_limit(b));
        g_assert_true(b == 0 || ns > tx_wait_bucket_limit(b - 1));
    }
    g_assert_cmpuint(tx_wait_bucket(UINT64_MAX), ==, TX_WAIT_BUCKETS - 1);
}

static uint64_t counted(const VirtIONetTxStats *stats)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < TX_WAIT_BUCKETS; i++) {
        n += stats->waits[i];
    }
    return n;
}

static void test_looks(void)
{
    VirtIONetTxStats stats = {0};
    TxLooks looks = {0};

    tx_looks_note(&looks, 3, 1000);
    tx_looks_note(&looks, 3, 1500); /* nothing new */
    tx_looks_note(&looks, 5, 2000);
    g_assert_cmpuint(tx_looks_leave(&looks, &stats, 4, 9000, 11000), ==, 0);
    g_assert_cmpuint(stats.wait_ns, ==, 3 * 10000 + 9000);
    g_assert_cmpuint(stats.wait_max_ns, ==, 10000);
    /* one seen, two that were not */
    g_assert_cmpuint(tx_looks_leave(&looks, &stats, 3, 11000, 12000), ==, 2);
    g_assert_cmpuint(stats.wait_ns, ==, 39000 + 10000 + 2 * 1000);
    g_assert_cmpuint(counted(&stats), ==, 7);
    g_assert_cmpuint(looks.count, ==, 0);
}

/* Whatever is seen and leaves, each packet that leaves is counted once. */
static void test_looks_any(void)
{
    VirtIONetTxStats stats = {0};
    TxLooks looks = {0};
    unsigned available = 0, left = 0;
    GRand *random = g_rand_new_with_seed(1);

    for (int64_t t = 1; t < 20000; t++) {
        unsigned n = (unsigned)g_rand_int_range(random, 0, 6);

        switch (g_rand_int_range(random, 0, 4)) {
        case 0:
            available += n;
            break;
        case 1: /* bad chains vanish */
            available -= MIN(n / 4, available);
            break;
        case 2:
            tx_looks_note(&looks, available, t);
            break;
        default:
            n = MIN(n, available);
            available -= n;
            left += n;
            tx_looks_leave(&looks, &stats, n, t, t);
        }
        g_assert_cmpuint(looks.count, <=, TX_LOOKS);
        g_assert_cmpuint(looks.done, ==, left);
    }
    g_assert_cmpuint(counted(&stats), ==, left);
    g_rand_free(random);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    clock_virtual_enable(true);
    g_test_add_func("/tx/adaptive/idle-flushes-at-once", test_idle_at_once);
    g_test_add_func("/tx/adaptive/request-response-never-waits", test_request_response);
    g_test_add_func("/tx/adaptive/busy-is-held", test_busy_is_held);
    g_test_add_func("/tx/adaptive/busy-then-idle", test_busy_then_idle);
    g_test_add_data_func("/tx/adaptive/bound-50us", GUINT_TO_POINTER(50000), test_bound);
    g_test_add_data_func("/tx/adaptive/bound-5us", GUINT_TO_POINTER(5000), test_bound);
    g_test_add_data_func("/tx/adaptive/bound-1ms", GUINT_TO_POINTER(1000000), test_bound);
    g_test_add_data_func("/tx/adaptive/bound-0", GUINT_TO_POINTER(0), test_bound);
    g_test_add_func("/tx/adaptive/lateness-shortens-a-hold", test_lateness_shortens);
    g_test_add_func("/tx/adaptive/polls-where-sleep-is-too-long", test_poll);
    g_test_add_func("/tx/adaptive/ring-is-not-filled", test_ring_not_filled);
    g_test_add_func("/tx/adaptive/full-burst-goes-on", test_full_burst_goes_on);
    g_test_add_func("/tx/adaptive/uninvited-ends-hold", test_uninvited_ends_hold);
    g_test_add_func("/tx/adaptive/settings-change-under-traffic", test_configure);
    g_test_add_func("/tx/stats/buckets", test_buckets);
    g_test_add_func("/tx/stats/looks", test_looks);
    g_test_add_func("/tx/stats/every-packet-once", test_looks_any);
    return g_test_run();
}
