/*
 * When virtio-net sends: the policies of tx= under a stepped clock, and when it interrupts.
 */
#include <string.h>

#include "tests/lib/rig.h"

#define TIMER_NS   150000 /* x-txtimer's default */
#define FRAME_SIZE 100
#define TX_VECTOR  2

/* Frame @seed as descriptor @seed of the ring, shown to the device without a notification. */
static void publish(Rig *rig, unsigned seed)
{
    uint64_t addr = rig_alloc(rig, RIG_HDR + FRAME_SIZE);
    uint16_t at = (uint16_t)(seed % rig->tx->size);

    frame_fill(rig_at(rig, addr + RIG_HDR, FRAME_SIZE), FRAME_SIZE, seed);
    ring_set(rig->tx, at, addr, RIG_HDR + FRAME_SIZE, 0, 0);
    ring_offer(rig->tx, at);
    ring_publish(rig->tx);
}

static void notify(Rig *rig)
{
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    rig_settle(rig);
}

static void step(Rig *rig, int64_t ns)
{
    qtest_client_clock_step(rig->qtest, ns);
    rig_settle(rig);
}

static unsigned sent(Rig *rig)
{
    return ring_used_count(rig->tx);
}

static void expect_frames(Rig *rig, unsigned first, unsigned count)
{
    uint8_t frame[FRAME_SIZE];

    for (unsigned i = first; i < first + count; i++) {
        frame_fill(frame, sizeof(frame), i);
        rig_peer_expect(rig, frame, sizeof(frame));
    }
}

static bool notifications_on(Rig *rig)
{
    return !(rig->tx->used->flags & VRING_USED_F_NO_NOTIFY);
}

static Rig *open_policy(const char *device, uint64_t features)
{
    return rig_new(&(RigConfig){.device = device, .features = features});
}

static void qmp(Rig *rig, const char *command)
{
    GError *err = NULL;

    json_object_put(qmp_client_execute(rig->qmp, command, NULL, &err));
    g_assert_no_error(err);
}

/* --- bh --- */

static void test_bh(void)
{
    Rig *rig = open_policy("tx=bh", 0);

    for (unsigned i = 0; i < 3; i++) {
        publish(rig, i);
    }
    g_assert_true(notifications_on(rig));
    notify(rig);
    g_assert_cmpuint(sent(rig), ==, 3); /* the clock stands still */
    g_assert_true(notifications_on(rig));
    expect_frames(rig, 0, 3);
    rig_free(rig);
}

static void test_bh_bursts(void)
{
    Rig *rig = open_policy("tx=bh,x-txburst=4", 0);

    for (unsigned i = 0; i < 101; i++) {
        publish(rig, i);
    }
    notify(rig);
    g_assert_true(ring_wait_used(rig, rig->tx, 101, RIG_TIMEOUT_MS));
    expect_frames(rig, 0, 101);
    rig_settle(rig);
    g_assert_true(notifications_on(rig));
    rig_free(rig);
}

/* --- timer --- */

static void test_timer_fires(gconstpointer ns)
{
    int64_t timer = GPOINTER_TO_INT(ns);
    g_autofree char *device = g_strdup_printf("tx=timer,x-txtimer=%d", (int)timer);
    Rig *rig = open_policy(device, 0);

    for (unsigned round = 0; round < 3; round++) {
        publish(rig, round);
        notify(rig);
        g_assert_false(notifications_on(rig));
        step(rig, timer - 1);
        g_assert_cmpuint(sent(rig), ==, round);
        step(rig, 1);
        g_assert_cmpuint(sent(rig), ==, round + 1);
        g_assert_true(notifications_on(rig));
    }
    expect_frames(rig, 0, 3);
    rig_free(rig);
}

static void test_timer_second_kick(void)
{
    Rig *rig = open_policy("tx=timer", 0);

    publish(rig, 0);
    notify(rig);
    step(rig, TIMER_NS / 2);
    publish(rig, 1);
    notify(rig);
    g_assert_cmpuint(sent(rig), ==, 2);
    g_assert_true(notifications_on(rig));
    /* The timer of the first one is gone: the next starts a whole one. */
    publish(rig, 2);
    notify(rig);
    step(rig, TIMER_NS - 1);
    g_assert_cmpuint(sent(rig), ==, 2);
    step(rig, 1);
    g_assert_cmpuint(sent(rig), ==, 3);
    expect_frames(rig, 0, 3);
    rig_free(rig);
}

static void test_timer_full_burst(void)
{
    Rig *rig = open_policy("tx=timer,x-txburst=3", 0);

    for (unsigned i = 0; i < 7; i++) {
        publish(rig, i);
    }
    notify(rig);
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 3);
    g_assert_false(notifications_on(rig));
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 6);
    g_assert_false(notifications_on(rig));
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 7);
    g_assert_true(notifications_on(rig));
    expect_frames(rig, 0, 7);
    rig_free(rig);
}

/* A second kick that flushes a full burst leaves the rest to the timer, not to chance. */
static void test_timer_second_kick_full_burst(void)
{
    Rig *rig = open_policy("tx=timer,x-txburst=3", 0);

    for (unsigned i = 0; i < 5; i++) {
        publish(rig, i);
    }
    notify(rig);
    notify(rig);
    g_assert_cmpuint(sent(rig), ==, 3);
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 5);
    rig_free(rig);
}

/* --- flush-first --- */

static void test_flush_first(void)
{
    Rig *rig = open_policy("tx=flush-first", 0);

    publish(rig, 0);
    notify(rig);
    g_assert_cmpuint(sent(rig), ==, 1);
    g_assert_false(notifications_on(rig));
    publish(rig, 1);
    notify(rig);
    step(rig, TIMER_NS - 1);
    g_assert_cmpuint(sent(rig), ==, 1);
    step(rig, 1);
    g_assert_cmpuint(sent(rig), ==, 2);
    g_assert_true(notifications_on(rig));
    publish(rig, 2);
    notify(rig);
    g_assert_cmpuint(sent(rig), ==, 3);
    expect_frames(rig, 0, 3);
    rig_free(rig);
}

/* --- start, stop, reset --- */

/* Had DRIVER_OK counted as a notification, the first kick would be a second one. */
static void test_driver_ok_empty(void)
{
    Rig *rig = open_policy("tx=timer", 0);

    step(rig, TIMER_NS);
    publish(rig, 0);
    notify(rig);
    g_assert_cmpuint(sent(rig), ==, 0);
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 1);
    rig_free(rig);
}

static void test_driver_ok_served(gconstpointer device)
{
    Rig *rig = open_policy(device, 0);

    virtio_driver_set_status(rig->virtio, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER |
                                              VIRTIO_CONFIG_S_FEATURES_OK);
    publish(rig, 0);
    rig_settle(rig);
    g_assert_cmpuint(sent(rig), ==, 0);
    virtio_driver_set_status(rig->virtio, 0xf);
    rig_settle(rig);
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 1); /* though nobody notified */
    expect_frames(rig, 0, 1);
    rig_free(rig);
}

static void test_stopped_keeps(gconstpointer device)
{
    Rig *rig = open_policy(device, 0);

    qmp(rig, "stop");
    publish(rig, 0);
    notify(rig);
    g_assert_cmpuint(sent(rig), ==, 0);
    qmp(rig, "cont");
    rig_settle(rig);
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 1);
    expect_frames(rig, 0, 1);
    rig_free(rig);
}

/* Notified first, then stopped: the flush that was due still is. */
static void test_stopped_while_due(void)
{
    Rig *rig = open_policy("tx=timer", 0);

    publish(rig, 0);
    notify(rig);
    step(rig, TIMER_NS / 2);
    qmp(rig, "stop");
    rig_settle(rig);
    qmp(rig, "cont");
    rig_settle(rig);
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 1);
    rig_free(rig);
}

static void test_reset_drops(gconstpointer device)
{
    Rig *rig = open_policy(device, 0);

    virtio_driver_set_status(rig->virtio, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER |
                                              VIRTIO_CONFIG_S_FEATURES_OK);
    publish(rig, 0);
    notify(rig);
    rig_restart(rig);
    step(rig, 2 * TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 0);
    rig_peer_expect_nothing(rig);
    rig_free(rig);
}

/* --- a peer that does not read --- */

static void test_back_pressure(gconstpointer device)
{
    enum { FRAMES = 200 };
    Rig *rig = rig_new(&(RigConfig){.device = device, .sndbuf = 4096});
    unsigned taken, order = 0;

    for (unsigned i = 0; i < FRAMES; i++) {
        publish(rig, i);
    }
    notify(rig);
    step(rig, TIMER_NS);
    taken = sent(rig);
    g_test_message("%u of %d frames fit the socket", taken, FRAMES);
    g_assert_cmpuint(taken, <, FRAMES);
    g_assert_false(notifications_on(rig));
    notify(rig); /* no use: nothing more can go */
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, taken);
    for (unsigned i = 0; i < FRAMES; i++) {
        expect_frames(rig, i, 1);
        step(rig, TIMER_NS);
    }
    rig_peer_expect_nothing(rig);
    g_assert_true(ring_wait_used(rig, rig->tx, FRAMES, RIG_TIMEOUT_MS));
    while (sent(rig)) {
        g_assert_cmpuint(ring_take(rig, rig->tx).id, ==, order++);
    }
    step(rig, TIMER_NS);
    g_assert_true(notifications_on(rig));
    rig_free(rig);
}

static void test_back_pressure_stop_and_reset(void)
{
    Rig *rig = rig_new(&(RigConfig){.sndbuf = 4096});
    unsigned taken;

    for (unsigned i = 0; i < 200; i++) {
        publish(rig, i);
    }
    notify(rig);
    qmp(rig, "stop");
    rig_settle(rig);
    taken = sent(rig);
    expect_frames(rig, 0, 10);
    rig_settle(rig);
    g_assert_cmpuint(sent(rig), ==, taken); /* room, but the VM is stopped */
    qmp(rig, "cont");
    expect_frames(rig, 10, 190);
    g_assert_true(ring_wait_used(rig, rig->tx, 200, RIG_TIMEOUT_MS));
    rig_free(rig);
}

/* --- queues in a thread of their own --- */

static const char *const iothread_args[] = {"-object", "iothread,id=io0", NULL};

/* Both ways at once, stopped and started under load, and reset: nothing lost, doubled or mixed. */
static void test_iothread(gconstpointer tx)
{
    g_autofree char *device = g_strdup_printf("iothread=io0,x-txtimer=1000,%s", (char *)tx);
    Rig *rig = rig_new(&(RigConfig){.device = device, .args = iothread_args});

    for (unsigned round = 0; round < 40; round++) {
        publish(rig, round);
        notify(rig);
        if (round % 8 == 3) {
            qmp(rig, "stop");
            qmp(rig, "cont");
        }
        while (!ring_wait_used(rig, rig->tx, 1, 5)) {
            step(rig, 1000);
        }
        ring_take(rig, rig->tx);
        expect_frames(rig, round, 1);
    }
    rig_restart(rig);
    publish(rig, 40);
    notify(rig);
    while (!ring_wait_used(rig, rig->tx, 1, 5)) {
        step(rig, 1000);
    }
    expect_frames(rig, 40, 1);
    rig_free(rig);
}

static void test_iothread_receives(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "iothread=io0", .args = iothread_args});
    uint8_t frame[FRAME_SIZE];

    for (uint16_t i = 0; i < 200; i++) {
        uint64_t addr = rig_post_buffer(rig, i % rig->rx->size, 2048);

        frame_fill(frame, sizeof(frame), i);
        rig_peer_send(rig, frame, sizeof(frame));
        if (i % 50 == 20) {
            qmp(rig, "stop");
            qmp(rig, "cont");
        }
        g_assert_cmpuint(ring_take(rig, rig->rx).len, ==, RIG_HDR + FRAME_SIZE);
        g_assert_cmpmem(rig_at(rig, addr + RIG_HDR, FRAME_SIZE), FRAME_SIZE, frame, FRAME_SIZE);
    }
    rig_free(rig);
}

/* --- interrupts --- */

static void test_interrupt_one_a_batch(void)
{
    Rig *rig = open_policy("tx=timer", 0);

    virtio_driver_take_interrupt(rig->virtio, TX_VECTOR);
    for (unsigned i = 0; i < 5; i++) {
        publish(rig, i);
    }
    notify(rig);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, TX_VECTOR));
    step(rig, TIMER_NS);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, TX_VECTOR));
    /* The driver wants none. */
    rig->tx->avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
    publish(rig, 5);
    notify(rig);
    step(rig, TIMER_NS);
    g_assert_cmpuint(sent(rig), ==, 6);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, TX_VECTOR));
    rig_free(rig);
}

static void test_interrupt_event_idx(void)
{
    Rig *rig = open_policy("tx=bh", RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX));
    uint64_t addr = rig_alloc(rig, RIG_HDR + FRAME_SIZE);
    unsigned size = rig->tx->size;

    /* The driver wants to hear when seven more are used; past the wrap of the index. */
    for (unsigned total = 0; total < 3 * 65536; total += 7) {
        *rig->tx->used_event = (uint16_t)(total + 6);
        virtio_driver_take_interrupt(rig->virtio, TX_VECTOR);
        for (unsigned i = 0; i < 7; i++) {
            uint16_t at = (uint16_t)((total + i) % size);

            ring_set(rig->tx, at, addr, RIG_HDR + FRAME_SIZE, 0, 0);
            ring_offer(rig->tx, at);
            if (i == 5 && total % (7 * 64) == 0) {
                ring_publish(rig->tx);
                notify(rig);
                g_assert_false(virtio_driver_take_interrupt(rig->virtio, TX_VECTOR));
            }
        }
        ring_publish(rig->tx);
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        g_assert_true(ring_wait_used(rig, rig->tx, 7, RIG_TIMEOUT_MS));
        rig_settle(rig);
        g_assert_true(virtio_driver_take_interrupt(rig->virtio, TX_VECTOR));
        rig->tx->used_next += 7;
        for (unsigned i = 0; i < 7; i++) {
            uint8_t frame[FRAME_SIZE];

            g_assert_cmpuint(rig_peer_recv(rig, frame, sizeof(frame), RIG_TIMEOUT_MS), ==,
                             FRAME_SIZE);
        }
    }
    rig_free(rig);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name, *device;
    } policies[] = {{"bh", "tx=bh"},
                    {"timer", "tx=timer"},
                    {"flush-first", "tx=flush-first"},
                    {"adaptive", "tx=adaptive"}};
    static const struct {
        const char *name;
        GTestDataFunc fn;
    } all[] = {{"driver-ok-serves-what-is-there", test_driver_ok_served},
               {"stopped-vm-keeps-what-waits", test_stopped_keeps},
               {"reset-drops-what-waits", test_reset_drops},
               {"back-pressure-keeps-order", test_back_pressure}};

    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtio-net-tx/bh/flushes-without-the-clock", test_bh);
    g_test_add_func("/virtio-net-tx/bh/bursts-follow-each-other", test_bh_bursts);
    g_test_add_data_func("/virtio-net-tx/timer/fires-at-default", GINT_TO_POINTER(TIMER_NS),
                         test_timer_fires);
    g_test_add_data_func("/virtio-net-tx/timer/fires-at-x-txtimer", GINT_TO_POINTER(1000000),
                         test_timer_fires);
    g_test_add_func("/virtio-net-tx/timer/second-kick-flushes-at-once", test_timer_second_kick);
    g_test_add_func("/virtio-net-tx/timer/full-burst-reschedules", test_timer_full_burst);
    g_test_add_func("/virtio-net-tx/timer/second-kick-with-a-full-burst",
                    test_timer_second_kick_full_burst);
    g_test_add_func("/virtio-net-tx/flush-first/flushes-then-holds-off", test_flush_first);
    g_test_add_func("/virtio-net-tx/timer/driver-ok-is-no-kick", test_driver_ok_empty);
    g_test_add_func("/virtio-net-tx/timer/stopped-while-due", test_stopped_while_due);
    g_test_add_func("/virtio-net-tx/bh/back-pressure-over-stop", test_back_pressure_stop_and_reset);
    g_test_add_func("/virtio-net-tx/iothread/receives-too", test_iothread_receives);
    g_test_add_func("/virtio-net-tx/interrupt/one-a-batch", test_interrupt_one_a_batch);
    g_test_add_func("/virtio-net-tx/interrupt/event-index", test_interrupt_event_idx);
    for (unsigned p = 0; p < G_N_ELEMENTS(policies); p++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(all); i++) {
            g_autofree char *path =
                g_strdup_printf("/virtio-net-tx/%s/%s", policies[p].name, all[i].name);

            g_test_add_data_func(path, policies[p].device, all[i].fn);
        }

        g_autofree char *path =
            g_strdup_printf("/virtio-net-tx/%s/in-an-iothread", policies[p].name);

        g_test_add_data_func(path, policies[p].device, test_iothread);
    }
    return g_test_run();
}
