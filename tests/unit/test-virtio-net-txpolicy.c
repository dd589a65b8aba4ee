/*
 * TX policies under a stepped clock, with an engine that only counts: when is a flush asked for,
 * and are notifications on or off meanwhile?
 */
#include <errno.h>

#include "hw/net/virtio-net-internal.h"
#include "util/clock.h"

#define BURST 4
#define TIMER 150000
#define LATENCY 50000

typedef struct Engine {
    TxScheduler s;
    int queued;  /* packets in the ring */
    int late;    /* published just before notifications go on */
    bool full;   /* the peer takes nothing */
    bool notify; /* notifications on */
    int flushes;
    int sent;
} Engine;

static int engine_flush(void *opaque, TxFlushCause cause)
{
    Engine *e = opaque;
    int n = MIN(e->queued, BURST);

    e->flushes++;
    if (e->full && e->queued) {
        return -EBUSY;
    }
    e->queued -= n;
    e->sent += n;
    return n;
}

static bool engine_enable(void *opaque)
{
    Engine *e = opaque;

    e->notify = true;
    e->queued += e->late;
    e->late = 0;
    return e->queued > 0;
}

static void engine_disable(void *opaque)
{
    ((Engine *)opaque)->notify = false;
}

static const TxEngineOps engine_ops = {engine_flush, engine_enable, engine_disable};

static void engine_init(Engine *e, const char *policy)
{
    *e = (Engine){.notify = true};
    TxSettings set = {tx_policy_find(policy), BURST, TIMER, LATENCY};

    tx_scheduler_init(&e->s, event_loop_main(), &set, &engine_ops, e);
    tx_scheduler_start(&e->s, false);
}

static void run_loop(void)
{
    while (event_loop_run_once(event_loop_main(), false)) {
    }
}

static void step(int64_t ns)
{
    clock_step_virtual(clock_get_ns(CLOCK_VIRTUAL) + ns);
}

static void publish(Engine *e, int packets)
{
    e->queued += packets;
    tx_scheduler_notified(&e->s);
}

static void test_names(void)
{
    g_assert_cmpstr(tx_policy_name(tx_policy_find(NULL)), ==, "bh");
    g_assert_cmpstr(tx_policy_name(tx_policy_find("")), ==, "bh");
    g_assert_cmpstr(tx_policy_name(tx_policy_find("timer")), ==, "timer");
    g_assert_cmpstr(tx_policy_name(tx_policy_find("flush-first")), ==, "flush-first");
    g_assert_null(tx_policy_find("foo"));
    g_assert_null(tx_policy_find("BH"));
}

static void test_bh_flushes_in_bottom_half(void)
{
    Engine e;

    engine_init(&e, "bh");
    publish(&e, 2);
    g_assert_false(e.notify);
    g_assert_cmpint(e.flushes, ==, 0);
    g_assert_false(tx_scheduler_notified(&e.s)); /* a second one changes nothing */
    run_loop();
    g_assert_cmpint(e.sent, ==, 2);
    g_assert_cmpint(e.flushes, ==, 1);
    g_assert_true(e.notify);
    tx_scheduler_cleanup(&e.s);
}

static void test_bh_full_burst_reschedules(void)
{
    Engine e;

    engine_init(&e, "bh");
    publish(&e, 2 * BURST + 1);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(e.sent, ==, BURST);
    g_assert_false(e.notify);
    run_loop();
    g_assert_cmpint(e.sent, ==, 2 * BURST + 1);
    g_assert_cmpint(e.flushes, ==, 3);
    g_assert_true(e.notify);
    tx_scheduler_cleanup(&e.s);
}

static void test_bh_looks_once_more(void)
{
    Engine e;

    engine_init(&e, "bh");
    e.late = 1;
    publish(&e, 1);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(e.sent, ==, 2);
    g_assert_false(e.notify); /* the driver is busy */
    run_loop();
    g_assert_true(e.notify);
    g_assert_cmpint(e.flushes, ==, 3);
    tx_scheduler_cleanup(&e.s);
}

static void test_timer_expires(void)
{
    Engine e;

    engine_init(&e, "timer");
    publish(&e, 1);
    g_assert_false(e.notify);
    run_loop();
    step(TIMER - 1);
    g_assert_cmpint(e.sent, ==, 0);
    step(1);
    g_assert_cmpint(e.sent, ==, 1);
    g_assert_true(e.notify);
    tx_scheduler_cleanup(&e.s);
}

static void test_timer_second_notify_flushes_at_once(void)
{
    Engine e;

    engine_init(&e, "timer");
    publish(&e, 1);
    step(TIMER / 2);
    publish(&e, 1);
    g_assert_cmpint(e.sent, ==, 2);
    g_assert_true(e.notify);
    step(2 * TIMER);
    g_assert_cmpint(e.flushes, ==, 1); /* the timer was cancelled */
    tx_scheduler_cleanup(&e.s);
}

static void test_timer_full_burst_reschedules(void)
{
    Engine e;

    engine_init(&e, "timer");
    publish(&e, BURST + 1);
    step(TIMER);
    g_assert_cmpint(e.sent, ==, BURST);
    g_assert_false(e.notify);
    step(TIMER);
    g_assert_cmpint(e.sent, ==, BURST + 1);
    g_assert_true(e.notify);
    tx_scheduler_cleanup(&e.s);
}

static void test_flush_first(void)
{
    Engine e;

    engine_init(&e, "flush-first");
    publish(&e, 1);
    g_assert_cmpint(e.sent, ==, 1); /* at once */
    g_assert_false(e.notify);
    publish(&e, 1); /* held off */
    run_loop();
    g_assert_cmpint(e.sent, ==, 1);
    step(TIMER);
    g_assert_cmpint(e.sent, ==, 2);
    g_assert_true(e.notify);
    publish(&e, 1);
    g_assert_cmpint(e.sent, ==, 3);
    tx_scheduler_cleanup(&e.s);
}

static void test_stall(gconstpointer policy)
{
    Engine e;

    engine_init(&e, policy);
    e.full = true;
    publish(&e, 2);
    run_loop();
    step(TIMER);
    run_loop();
    g_assert_cmpint(e.flushes, ==, 1);
    g_assert_false(e.notify);
    publish(&e, 1); /* nothing can be done about it now */
    step(4 * TIMER);
    run_loop();
    g_assert_cmpint(e.flushes, ==, 1);
    e.full = false;
    tx_scheduler_writable(&e.s);
    g_assert_cmpint(e.sent, ==, 3);
    g_assert_true(e.notify);
    tx_scheduler_writable(&e.s); /* uninvited */
    g_assert_cmpint(e.flushes, ==, 2);
    tx_scheduler_cleanup(&e.s);
}

static void test_stop_keeps_and_start_continues(gconstpointer policy)
{
    Engine e;

    engine_init(&e, policy);
    e.full = true; /* so that flush-first waits too */
    publish(&e, 1);
    tx_scheduler_stop(&e.s);
    step(4 * TIMER);
    run_loop();
    g_assert_cmpint(e.sent, ==, 0);
    e.full = false;
    tx_scheduler_start(&e.s, true);
    step(TIMER);
    run_loop();
    g_assert_cmpint(e.sent, ==, 1);
    g_assert_true(e.notify);
    tx_scheduler_cleanup(&e.s);
}

static void test_reset_drops(gconstpointer policy)
{
    Engine e;

    engine_init(&e, policy);
    publish(&e, 1);
    tx_scheduler_stop(&e.s);
    tx_scheduler_reset(&e.s);
    e.queued = 0;
    e.flushes = 0;
    tx_scheduler_start(&e.s, false);
    g_assert_true(e.notify);
    step(4 * TIMER);
    run_loop();
    g_assert_cmpint(e.flushes, ==, 0); /* an empty queue does not count as notified */
    tx_scheduler_cleanup(&e.s);
}

static void test_start_serves_what_is_there(gconstpointer policy)
{
    Engine e;

    engine_init(&e, policy);
    tx_scheduler_stop(&e.s);
    e.queued = 1;
    tx_scheduler_start(&e.s, true);
    step(TIMER);
    run_loop();
    g_assert_cmpint(e.sent, ==, 1);
    tx_scheduler_cleanup(&e.s);
}

int main(int argc, char **argv)
{
    static const char *const policies[] = {"bh", "timer", "flush-first", "adaptive"};
    static const struct {
        const char *name;
        GTestDataFunc fn;
    } all[] = {
        {"stalled-waits-for-writable", test_stall},
        {"stopped-keeps-what-waits", test_stop_keeps_and_start_continues},
        {"reset-drops-what-waits", test_reset_drops},
        {"start-serves-what-is-there", test_start_serves_what_is_there},
    };

    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    clock_virtual_enable(true);
    g_test_add_func("/tx/names", test_names);
    g_test_add_func("/tx/bh/flushes-in-bottom-half", test_bh_flushes_in_bottom_half);
    g_test_add_func("/tx/bh/full-burst-reschedules", test_bh_full_burst_reschedules);
    g_test_add_func("/tx/bh/looks-once-more", test_bh_looks_once_more);
    g_test_add_func("/tx/timer/fires-at-x-txtimer", test_timer_expires);
    g_test_add_func("/tx/timer/second-kick-flushes-at-once",
                    test_timer_second_notify_flushes_at_once);
    g_test_add_func("/tx/timer/full-burst-reschedules", test_timer_full_burst_reschedules);
    g_test_add_func("/tx/flush-first/flushes-at-once-then-holds-off", test_flush_first);
    for (unsigned p = 0; p < G_N_ELEMENTS(policies); p++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(all); i++) {
            g_autofree char *path = g_strdup_printf("/tx/%s/%s", policies[p], all[i].name);

            g_test_add_data_func(path, policies[p], all[i].fn);
        }
    }
    return g_test_run();
}
