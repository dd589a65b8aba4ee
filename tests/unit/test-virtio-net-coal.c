/*
 * Interrupt coalescing by commands (virtio 1.4, 5.1.6.5.8): for all queues of a kind and for one,
 * by count and by time on a stepped clock, and a table of commands that are wrong in one way and
 * must change nothing.
 */
#include <string.h>

#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"
#include "util/runstate.h"

#define F(name) VIRTIO_FEATURE(VIRTIO_NET_F_##name)
#define MQ      (RIG_MODERN | F(CTRL_VQ) | F(MQ))
#define OK      VIRTIO_NET_OK
#define ERR     VIRTIO_NET_ERR

#define COAL (F(NOTF_COAL) | F(VQ_NOTF_COAL))

static uint8_t coal_all(Rig *rig, bool rx, uint8_t packets, uint8_t usecs)
{
    return RIG_RUN(rig, 6, rx, packets, 0, 0, 0, usecs, 0, 0, 0);
}

static uint8_t coal_vq(Rig *rig, uint8_t queue, uint8_t packets, uint8_t usecs)
{
    return RIG_RUN(rig, 6, 2, queue, 0, 0xff, 0xff, packets, 0, 0, 0, usecs, 0, 0, 0);
}

static void expect_coal(Rig *rig, uint8_t queue, uint32_t packets, uint32_t usecs)
{
    const uint8_t get[] = {6, 3, queue, 0, 0, 0};
    uint8_t answer[16];
    uint32_t written, got[2];

    rig_command_answer(rig, get, sizeof(get), answer, 9, &written);
    g_assert_cmpint(written, ==, 9);
    g_assert_cmpint(answer[8], ==, OK);
    memcpy(got, answer, sizeof(got));
    g_assert_cmpint(got[0], ==, packets);
    g_assert_cmpint(got[1], ==, usecs);
}

static void step_us(unsigned us)
{
    clock_step_virtual(clock_get_ns(CLOCK_VIRTUAL) + us * 1000ll);
    rig_loop();
}

static void start_coal(Rig *rig)
{
    rig_start_pairs(rig, 2, "netdev=n0,mq=on,notf_coal=on,vq_notf_coal=on,queue_reset=on",
                    MQ | COAL | RIG_MRG | VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
    g_assert_cmpint(RIG_RUN(rig, 4, 0, 2, 0), ==, OK);
    rig_post_to(rig, 0, 100, 1500);
    rig_post_to(rig, 2, 100, 1500);
}

/* The specification's example of six commands. */
static void test_coal_commands(void)
{
    Rig rig;

    start_coal(&rig);
    expect_coal(&rig, 3, 0, 0);
    g_assert_cmpint(coal_all(&rig, true, 15, 10), ==, OK);
    expect_coal(&rig, 0, 15, 10);
    expect_coal(&rig, 2, 15, 10);
    expect_coal(&rig, 1, 0, 0);
    g_assert_cmpint(coal_vq(&rig, 0, 7, 70), ==, OK);
    expect_coal(&rig, 0, 7, 70);
    expect_coal(&rig, 2, 15, 10);
    g_assert_cmpint(coal_vq(&rig, 1, 8, 80), ==, OK);
    expect_coal(&rig, 3, 0, 0);
    g_assert_cmpint(coal_all(&rig, false, 9, 90), ==, OK);
    expect_coal(&rig, 1, 9, 90);
    expect_coal(&rig, 3, 9, 90);
    expect_coal(&rig, 0, 7, 70);

    /* Disabled and enabled again: what all were told last. */
    virtio_queue_reset(rig.vdev, 0);
    const uint8_t get[] = {6, 3, 0, 0, 0, 0};
    uint8_t answer[9];
    uint32_t written;
    rig_command_answer(&rig, get, sizeof(get), answer, 9, &written);
    g_assert_cmpint(answer[8], ==, ERR);
    g_assert_cmpint(written, ==, 9);
    virtio_queue(rig.vdev, 0)->desc = rig.rings[0].desc;
    virtio_queue(rig.vdev, 0)->avail = rig.rings[0].avail;
    virtio_queue(rig.vdev, 0)->used = rig.rings[0].used;
    virtio_queue_enable(rig.vdev, 0);
    expect_coal(&rig, 0, 15, 10);
    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, MQ | COAL, 256);
    expect_coal(&rig, 0, 0, 0);
    rig_cleanup(&rig);
}

static void test_coal_bad(void)
{
    static const struct {
        uint8_t bytes[16];
        unsigned size;
    } bad[] = {
        {{6, 0, 1, 0, 0, 0, 1, 0, 0}, 9},
        {{6, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, 11},
        {{6, 1}, 2},
        {{6, 4, 1, 0, 0, 0, 1, 0, 0, 0}, 10},
        {{6, 2, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 14}, /* the control queue */
        {{6, 2, 5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 14}, /* no queue */
        {{6, 2, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 14},
        {{6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0}, 13},
        {{6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, 15},
        {{6, 3, 0, 0, 0}, 5},
        {{6, 3, 0, 0, 0, 0}, 6}, /* no room for the answer */
    };
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_all(&rig, true, 15, 10), ==, OK);

    VirtIONetCtrlState before = rig.n->ctrl;
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_cmpint(rig_command(&rig, bad[i].bytes, bad[i].size), ==, ERR);
        g_assert_cmpmem(&before, sizeof(before), &rig.n->ctrl, sizeof(before));
    }
    rig_cleanup(&rig);

    rig_start_pairs(&rig, 1, "netdev=n0,notf_coal=on,vq_notf_coal=on", RIG_MODERN | F(CTRL_VQ));
    g_assert_cmpint(coal_all(&rig, true, 15, 10), ==, ERR); /* not negotiated */
    g_assert_cmpint(coal_vq(&rig, 0, 15, 10), ==, ERR);
    rig_cleanup(&rig);
}

static void test_coal_rx(void)
{
    uint8_t frame[60] = {0};
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_all(&rig, true, 3, 100), ==, OK);
    for (unsigned i = 1; i <= 7; i++) {
        g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
        g_assert_cmpint(rig.interrupts[0], ==, i / 3); /* by count */
    }
    step_us(99);
    g_assert_cmpint(rig.interrupts[0], ==, 2);
    step_us(1); /* the seventh, by time */
    g_assert_cmpint(rig.interrupts[0], ==, 3);
    step_us(1000);
    g_assert_cmpint(rig.interrupts[0], ==, 3);
    g_assert_cmpint(rig_count_used(&rig, 0), ==, 7); /* never late in the ring */
    g_assert_true(rig_receive_frame(&rig, 1, frame, sizeof(frame)));
    g_assert_cmpint(rig.interrupts[2], ==, 0); /* queues count by themselves */
    g_assert_cmpint(rig.n->queues[0].rx_stats.interrupts, ==, 3);
    g_assert_cmpint(rig.n->queues[0].rx_stats.interrupts_coalesced, ==, 5); /* 1 2, 4 5, 7 */
    rig_cleanup(&rig);
}

static void test_coal_tx(void)
{
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_vq(&rig, 1, 2, 50), ==, OK);
    rig_send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 0);
    g_assert_cmpint(rig_count_used(&rig, 1), ==, 1);
    rig_send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 1);
    rig_send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 1);
    step_us(50);
    g_assert_cmpint(rig.interrupts[1], ==, 2);
    rig_send_from(&rig, 1, 1); /* the other queue has no parameters */
    g_assert_cmpint(rig.interrupts[3], ==, 1);
    g_assert_cmpint(coal_vq(&rig, 1, 2, 0), ==, OK); /* half of them are none */
    rig_send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 3);
    g_assert_cmpint(coal_vq(&rig, 1, 0, 50), ==, OK);
    rig_send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 4);
    rig_cleanup(&rig);
}

static void test_coal_change(void)
{
    uint8_t frame[60] = {0};
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_all(&rig, true, 15, 200), ==, OK);
    for (unsigned i = 0; i < 10; i++) {
        rig_receive_frame(&rig, 0, frame, sizeof(frame));
    }
    g_assert_cmpint(coal_all(&rig, true, 12, 200), ==, OK);
    g_assert_cmpint(rig.interrupts[0], ==, 0);
    g_assert_cmpint(coal_all(&rig, true, 8, 200), ==, OK); /* met already */
    g_assert_cmpint(rig.interrupts[0], ==, 1);
    rig_receive_frame(&rig, 0, frame, sizeof(frame));
    g_assert_cmpint(coal_all(&rig, true, 8, 20), ==, OK); /* a shorter time holds at once */
    step_us(20);
    g_assert_cmpint(rig.interrupts[0], ==, 2);
    rig_receive_frame(&rig, 0, frame, sizeof(frame));
    g_assert_cmpint(coal_all(&rig, true, 0, 0), ==, OK); /* off: now */
    g_assert_cmpint(rig.interrupts[0], ==, 3);
    g_assert_cmpint(coal_all(&rig, true, 15, 200), ==, OK);
    rig_receive_frame(&rig, 0, frame, sizeof(frame));
    vm_stop(VM_PAUSED); /* nothing is held over a stop */
    g_assert_cmpint(rig.interrupts[0], ==, 4);
    vm_start();
    step_us(1000);
    g_assert_cmpint(rig.interrupts[0], ==, 4);

    /* Suppressed by the driver: the condition is met, and nobody is interrupted. */
    *(uint16_t *)(rig.ram + rig.rings[0].avail) = VRING_AVAIL_F_NO_INTERRUPT;
    for (unsigned i = 0; i < 15; i++) {
        rig_receive_frame(&rig, 0, frame, sizeof(frame));
    }
    step_us(1000);
    g_assert_cmpint(rig.interrupts[0], ==, 4);
    rig_cleanup(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_func("/coalescing/commands", test_coal_commands);
    g_test_add_func("/coalescing/bad-commands-change-nothing", test_coal_bad);
    g_test_add_func("/coalescing/rx-by-count-and-time", test_coal_rx);
    g_test_add_func("/coalescing/tx-by-count-and-time", test_coal_tx);
    g_test_add_func("/coalescing/changes-hold-at-once", test_coal_change);
    return g_test_run();
}
