/*
 * virtio-net receives: plain and mergeable buffers, running out of them, what cannot be delivered.
 */
#include <string.h>

#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"
#include "util/runstate.h"

static void test_rx_plain(gconstpointer legacy)
{
    unsigned hdr = legacy ? 10 : 12, head, len;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, legacy ? 0 : RIG_MODERN, 256);
    memset(rig.ram + RIG_DATA, 0xcc, 0x10000);
    rig_post(&rig, 8, 2000);
    rig_notify(&rig, RIG_RX);
    g_assert_false(rig_wants_notify(&rig, RIG_RX));
    g_assert_cmpint(rig_receive(&rig, 3, 100), ==, 3);
    g_assert_cmpint(rig.interrupts[RIG_RX], ==, 1);
    for (unsigned i = 0; i < 3; i++) {
        const uint8_t *buf = rig.ram + RIG_DATA + i * 0x1000;

        g_assert_true(rig_used(&rig, RIG_RX, &head, &len));
        g_assert_cmpint(head, ==, i);
        g_assert_cmpint(len, ==, hdr + 100);
        rig_assert_filled(buf, 10, 0);
        if (!legacy) {
            g_assert_cmpint(buf[10], ==, 1); /* num_buffers */
            g_assert_cmpint(buf[11], ==, 0);
        }
        rig_assert_filled(buf + hdr, 100, (uint8_t)i);
        rig_assert_filled(buf + hdr + 100, 100, 0xcc);
    }
    g_assert_false(rig_wants_notify(&rig, RIG_RX));
    rig_cleanup(&rig);
}

static void test_rx_plain_too_small(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    rig_post(&rig, 2, 100);
    g_assert_cmpint(rig_receive(&rig, 1, 89), ==, 1); /* one byte too many: not truncated */
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 0), ==, 0);
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_TOO_LONG], ==, 1);
    g_assert_cmpint(rig_receive(&rig, 2, 88), ==, 2);
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 100), ==, 2);
    rig_cleanup(&rig);
}

static void test_rx_bad_buffer_returned(void)
{
    unsigned head, len;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | RIG_MRG, 256);
    RigPart tiny = {RIG_DATA, 11, true};
    rig_add(&rig, RIG_RX, &tiny, 1, 0);
    rig_post(&rig, 2, 2000);
    g_assert_cmpint(rig_receive(&rig, 1, 100), ==, 1);
    g_assert_true(rig_used(&rig, RIG_RX, &head, &len));
    g_assert_cmpint(len, ==, 0);
    g_assert_true(rig_used(&rig, RIG_RX, &head, &len));
    g_assert_cmpint(len, ==, 112);
    g_assert_false(rig_used(&rig, RIG_RX, &head, &len));
    rig_cleanup(&rig);
}

/* Buffers for one and a half frames: the second one waits. */
static void test_rx_mergeable(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | RIG_MRG, 256);
    rig_post(&rig, 64, 1500);
    g_assert_cmpint(rig_receive(&rig, 2, 60000), ==, 1);
    g_assert_cmpint(rig.interrupts[RIG_RX], ==, 1);
    g_assert_cmpint(rig.n->queues[0].rx_stats.packets, ==, 1);
    g_assert_true(rig_wants_notify(&rig, RIG_RX));
    rig_cleanup(&rig);
}

/* A frame over many buffers: exact count, header in the first, data continuous. */
static void test_rx_mergeable_split(void)
{
    unsigned head, len, at = 0, n = 0;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | RIG_MRG, 256);
    rig_post(&rig, 64, 1500);
    g_assert_cmpint(rig_receive(&rig, 1, 60000), ==, 1);
    while (rig_used(&rig, RIG_RX, &head, &len)) {
        unsigned skip = n ? 0 : 12;

        g_assert_cmpint(head, ==, n);
        rig_assert_filled(rig.ram + RIG_DATA + n * 0x1000 + skip, len - skip, 0);
        at += len - skip;
        n++;
    }
    g_assert_cmpint(at, ==, 60000);
    g_assert_cmpint(n, ==, (60012 + 1499) / 1500);
    g_assert_cmpint(rig.ram[RIG_DATA + 10], ==, n);
    /* What was not needed is still there for the next one. */
    g_assert_cmpint(rig_receive(&rig, 64 - n, 1000), ==, 64 - n);
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 1012), ==, 64 - n);
    g_assert_true(rig_wants_notify(&rig, RIG_RX));
    rig_cleanup(&rig);
}

static void test_rx_no_buffers(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    g_assert_true(rig_wants_notify(&rig, RIG_RX));
    g_assert_false(net_can_send(rig.peer));
    g_assert_cmpint(rig_receive(&rig, 2, 60), ==, 0);
    rig_post(&rig, 1, 2000);
    rig.writable = 0;
    rig_notify(&rig, RIG_RX);
    g_assert_cmpint(rig.writable, ==, 1);
    g_assert_true(net_can_send(rig.peer));
    g_assert_false(rig_wants_notify(&rig, RIG_RX));
    g_assert_cmpint(rig_receive(&rig, 2, 60), ==, 1);
    g_assert_true(rig_wants_notify(&rig, RIG_RX)); /* exactly when they ran out */
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 72), ==, 1);
    rig_cleanup(&rig);
}

static void test_rx_partial_waits(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | RIG_MRG, 256);
    rig_post(&rig, 3, 1500);
    g_assert_cmpint(rig_receive(&rig, 1, 5000), ==, 0);
    g_assert_true(rig_wants_notify(&rig, RIG_RX));
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 0), ==, 0);
    /* Stop and go: the buffers are not lost. */
    vm_stop(VM_PAUSED);
    g_assert_cmpint(virtqueue_inuse(rig.n->queues[0].rx_vq), ==, 0);
    vm_start();
    g_assert_cmpint(rig_receive(&rig, 1, 5000), ==, 0);
    rig_post(&rig, 1, 1500);
    rig_notify(&rig, RIG_RX);
    g_assert_cmpint(rig_receive(&rig, 1, 5000), ==, 1);
    g_assert_cmpint(rig.n->queues[0].rx_stats.buffers, ==, 4);
    g_assert_cmpint(rig.ram[RIG_DATA + 10], ==, 4);
    rig_cleanup(&rig);
}

static void test_rx_never_fits(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | RIG_MRG, 64);
    rig_post(&rig, 64, 100);
    g_assert_cmpint(rig_receive(&rig, 1, 6400), ==, 1); /* waiting could not help */
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_TOO_LONG], ==, 1);
    g_assert_cmpint(rig_receive(&rig, 1, 6388), ==, 1);
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 100), ==, 64);
    rig_cleanup(&rig);
}

static void test_rx_peer_header(void)
{
    Rig rig;

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true, .offloads.csum = true};
    rig_start(&rig, NULL, RIG_MODERN | RIG_MRG | VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_CSUM), 256);
    g_assert_true(rig.offloads.csum && !rig.offloads.tso4);
    rig_post(&rig, 2, 1500);
    uint8_t bytes[12 + 60];
    struct iovec iov = {bytes, sizeof(bytes)};
    NetPacket pkt = {&iov, 1, sizeof(bytes)};
    memset(bytes, 0x5a, sizeof(bytes));
    bytes[0] = 0xff; /* flags that the driver knows are left */
    bytes[1] = VIRTIO_NET_HDR_GSO_NONE;
    g_assert_cmpint(net_send_batch(rig.peer, &pkt, 1), ==, 1);
    g_assert_cmphex(rig.ram[RIG_DATA], ==,
                    VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID);
    g_assert_cmphex(rig.ram[RIG_DATA + 1], ==, VIRTIO_NET_HDR_GSO_NONE);
    rig_assert_filled(rig.ram + RIG_DATA + 2, 8, 0x5a);
    g_assert_cmpint(rig.ram[RIG_DATA + 10], ==, 1);
    g_assert_cmpint(rig.ram[RIG_DATA + 11], ==, 0);
    rig_assert_filled(rig.ram + RIG_DATA + 12, 60, 0x5a);
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 72), ==, 1);
    pkt.size = iov.iov_len = 11; /* less than its header */
    g_assert_cmpint(net_send_batch(rig.peer, &pkt, 1), ==, 1);
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_BAD_HEADER], ==, 1);
    rig_cleanup(&rig);
}

static void test_rx_only_when_running(void)
{
    Rig rig;

    rig_init(&rig);
    g_assert_true(rig_realize(&rig, "netdev=n0", NULL));
    g_assert_cmpint(rig_receive(&rig, 1, 60), ==, 0);
    g_assert_false(net_can_send(rig.peer));
    rig_drive(&rig, RIG_MODERN, 256);
    rig_post(&rig, 4, 1500);
    vm_stop(VM_PAUSED);
    g_assert_cmpint(rig_receive(&rig, 1, 60), ==, 0);
    rig.writable = 0;
    vm_start();
    g_assert_cmpint(rig.writable, ==, 1);
    g_assert_cmpint(rig_receive(&rig, 1, 60), ==, 1);
    virtio_set_status(rig.vdev, 0);
    g_assert_cmpint(rig_receive(&rig, 1, 60), ==, 0);
    rig_cleanup(&rig);
}

static void test_rx_burst_limit(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,x-rxburst=4", RIG_MODERN, 256);
    rig_post(&rig, 20, 1500);
    g_assert_cmpint(rig_receive(&rig, 10, 60), ==, 10);
    g_assert_cmpint(rig.n->queues[0].rx_stats.batches, ==, 3);
    g_assert_cmpint(rig.interrupts[RIG_RX], ==, 3);
    rig_cleanup(&rig);
}

static void test_rx_event_idx(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | RIG_MRG | VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX), 64);
    RigRing *ring = &rig.rings[RIG_RX];
    const uint16_t *avail_event = (uint16_t *)(rig.ram + ring->used + 4 + 8 * ring->num);
    for (unsigned round = 0; round < 3000; round++) { /* past 2^16 / 64 times the ring */
        rig_post(&rig, 33, 1500);
        g_assert_cmpint(rig_receive(&rig, 40, 60), ==, 33);
        g_assert_cmpint(*avail_event, ==, ring->avail_idx);
        g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 72), ==, 33);
    }
    rig_cleanup(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_data_func("/rx/plain", NULL, test_rx_plain);
    g_test_add_data_func("/rx/plain-legacy", "legacy", test_rx_plain);
    g_test_add_func("/rx/plain-too-small-is-dropped", test_rx_plain_too_small);
    g_test_add_func("/rx/bad-buffer-returned", test_rx_bad_buffer_returned);
    g_test_add_func("/rx/mergeable-waits-for-second-frame", test_rx_mergeable);
    g_test_add_func("/rx/mergeable-split", test_rx_mergeable_split);
    g_test_add_func("/rx/notifications-on-when-buffers-run-out", test_rx_no_buffers);
    g_test_add_func("/rx/partial-frame-waits", test_rx_partial_waits);
    g_test_add_func("/rx/never-fits-is-dropped", test_rx_never_fits);
    g_test_add_func("/rx/peer-header", test_rx_peer_header);
    g_test_add_func("/rx/only-when-running", test_rx_only_when_running);
    g_test_add_func("/rx/burst-limit", test_rx_burst_limit);
    g_test_add_func("/rx/event-index-wraps", test_rx_event_idx);
    return g_test_run();
}
