/*
 * virtio-net sends: frames in every layout, bad ones, back-pressure, stop and reset.
 */
#include <string.h>

#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"
#include "util/runstate.h"

static void test_tx_header_stripped(void)
{
    static const uint32_t layouts[][4] = {{12, 60}, {72},        {5, 7, 60},
                                          {20, 52}, {12, 1, 59}, {1, 11, 10, 50}};
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    for (unsigned l = 0; l < G_N_ELEMENTS(layouts); l++) {
        RigPart parts[4];
        unsigned n = 0, at = RIG_DATA;

        memset(rig.ram + at, 0xee, 12);
        for (unsigned i = 0; i < 60; i++) {
            rig.ram[at + 12 + i] = (uint8_t)i;
        }
        for (; n < 4 && layouts[l][n]; at += layouts[l][n++]) {
            parts[n] = (RigPart){at, layouts[l][n], false};
        }
        rig_add(&rig, RIG_TX, parts, n, 0);
        rig_notify(&rig, RIG_TX);
        rig_loop();
        g_assert_cmpint(rig.count, ==, 1);
        g_assert_cmpint(rig.frames[0].size, ==, 60);
        g_assert_cmpmem(rig.frames[0].bytes, 60, rig.ram + RIG_DATA + 12, 60);
        g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 1);
        rig_forget_frames(&rig);
    }
    rig_cleanup(&rig);
}

static void test_tx_header_passed(gconstpointer legacy)
{
    unsigned hdr = legacy ? 10 : 12;
    Rig rig;

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true, .offloads.csum = true};
    rig_start(&rig, NULL, legacy ? 0 : RIG_MODERN, 256);
    RigPart part = {RIG_DATA, hdr + 60, false};
    memset(rig.ram + RIG_DATA, 0xab, hdr + 60);
    rig_add(&rig, RIG_TX, &part, 1, 0);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 1);
    g_assert_cmpint(rig.frames[0].size, ==, hdr + 60);
    rig_assert_filled(rig.frames[0].bytes, hdr + 60, 0xab);
    rig_cleanup(&rig);
}

static void test_tx_peer_header_shorter(void)
{
    Rig rig;

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true, .offloads.csum = true};
    rig.longest_hdr = 10;
    rig_start(&rig, NULL, RIG_MODERN, 256);
    g_assert_cmpint(rig.n->nc->vnet_hdr_len, ==, 10);
    RigPart part = {RIG_DATA, 72, false};
    memset(rig.ram + RIG_DATA, 1, 10);
    memset(rig.ram + RIG_DATA + 10, 2, 2); /* num_buffers, not the peer's */
    memset(rig.ram + RIG_DATA + 12, 3, 60);
    rig_add(&rig, RIG_TX, &part, 1, 0);
    rig_send(&rig, RIG_DATA + 0x1000, 61, 4);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 2);
    g_assert_cmpint(rig.frames[0].size, ==, 70);
    rig_assert_filled(rig.frames[0].bytes, 10, 1);
    rig_assert_filled(rig.frames[0].bytes + 10, 60, 3);
    g_assert_cmpint(rig.frames[1].size, ==, 71);
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 2);
    rig_cleanup(&rig);
}

static void test_tx_bad_frames_returned(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    RigPart shorter = {RIG_DATA, 11, false}, empty = {RIG_DATA, 12, false},
            longer = {RIG_DATA, NET_MAX_FRAME + 1, false}, receive = {RIG_DATA, 100, true};
    rig_send(&rig, RIG_DATA + 0x20000, 60, 1);
    rig_add(&rig, RIG_TX, &shorter, 1, 0);
    rig_add(&rig, RIG_TX, &empty, 1, 0);
    rig_send(&rig, RIG_DATA + 0x21000, 60, 2);
    rig_add(&rig, RIG_TX, &longer, 1, 0);
    rig_add(&rig, RIG_TX, &receive, 1, 0);
    rig_send(&rig, RIG_DATA + 0x22000, NET_MAX_FRAME - 12, 3);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 7);
    g_assert_cmpint(rig.count, ==, 3);
    rig_assert_filled(rig.frames[1].bytes, 60, 2);
    g_assert_cmpint(rig.n->queues[0].tx_stats.drops[NET_DROP_BAD_HEADER], ==, 3);
    g_assert_cmpint(rig.n->queues[0].tx_stats.drops[NET_DROP_TOO_LONG], ==, 1);
    g_assert_cmpint(rig.n->queues[0].tx_stats.packets, ==, 3);
    rig_cleanup(&rig);
}

static void test_tx_one_interrupt_a_batch(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    for (unsigned i = 0; i < 100; i++) {
        rig_send(&rig, RIG_DATA + i * 0x100, 60, (uint8_t)i);
    }
    rig_notify(&rig, RIG_TX);
    g_assert_false(rig_wants_notify(&rig, RIG_TX));
    rig_loop();
    g_assert_cmpint(rig.count, ==, 100);
    g_assert_cmpint(rig.batches, ==, 1);
    g_assert_cmpint(rig.interrupts[RIG_TX], ==, 1);
    g_assert_true(rig_wants_notify(&rig, RIG_TX));
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 100);
    rig_cleanup(&rig);
}

static void test_tx_burst_limit(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,x-txburst=4", RIG_MODERN, 256);
    for (unsigned i = 0; i < 10; i++) {
        rig_send(&rig, RIG_DATA + i * 0x100, 60, (uint8_t)i);
    }
    rig_notify(&rig, RIG_TX);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(rig.count, ==, 4);
    g_assert_false(rig_wants_notify(&rig, RIG_TX));
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(rig.count, ==, 8);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 10);
    g_assert_true(rig_wants_notify(&rig, RIG_TX));
    rig_cleanup(&rig);
}

/* Ten frames of which the peer takes three: the rest must come in order, once. */
static void stall(Rig *rig, const char *props)
{
    rig_init(rig);
    rig_start(rig, props, RIG_MODERN, 256);
    rig->room = 3;
    for (unsigned i = 0; i < 10; i++) {
        rig_send(rig, RIG_DATA + i * 0x100, 60, (uint8_t)i);
    }
    rig_notify(rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig->count, ==, 3);
    g_assert_cmpint(rig_drain_used(rig, RIG_TX, 0), ==, 3);
    g_assert_false(rig_wants_notify(rig, RIG_TX));
}

static void assert_in_order(Rig *rig, unsigned n)
{
    g_assert_cmpint(rig->count, ==, n);
    for (unsigned i = 0; i < n; i++) {
        rig_assert_filled(rig->frames[i].bytes, 60, (uint8_t)i);
    }
}

static void test_tx_stall_and_resume(void)
{
    Rig rig;

    stall(&rig, NULL);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 3);
    rig.room = 2;
    net_peer_writable(rig.peer);
    g_assert_cmpint(rig.count, ==, 5);
    rig.room = UINT32_MAX;
    net_peer_writable(rig.peer);
    rig_loop();
    assert_in_order(&rig, 10);
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 7);
    g_assert_true(rig_wants_notify(&rig, RIG_TX));
    g_assert_cmpint(rig.n->queues[0].tx_stats.stalls, ==, 2);
    rig_cleanup(&rig);
}

static void test_tx_stalled_over_stop_and_new_memory(void)
{
    uint8_t *old, *moved = g_malloc0(RIG_RAM_SIZE);
    Rig rig;

    stall(&rig, NULL);
    vm_stop(VM_PAUSED);
    rig.room = UINT32_MAX;
    net_peer_writable(rig.peer);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 3); /* nothing moves while stopped */
    old = rig.ram;
    memcpy(moved, old, RIG_RAM_SIZE);
    rig_set_memory(&rig, moved);
    memset(old, 0x77, RIG_RAM_SIZE);
    g_free(old);
    vm_start();
    rig_loop();
    assert_in_order(&rig, 10);
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 7);
    rig_cleanup(&rig);
}

static void test_tx_reset_drops(void)
{
    Rig rig;

    stall(&rig, NULL);
    virtio_set_status(rig.vdev, 0);
    rig.room = UINT32_MAX;
    net_peer_writable(rig.peer);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 3);
    rig_forget_frames(&rig);
    rig_drive(&rig, RIG_MODERN, 256);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 0);
    rig_send(&rig, RIG_DATA, 60, 0);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    assert_in_order(&rig, 1);
    rig_cleanup(&rig);
}

static void test_tx_peer_deleted(void)
{
    Rig rig;

    stall(&rig, NULL);
    net_client_delete(rig.peer);
    rig.peer = NULL;
    rig_loop();
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 7);
    rig_send(&rig, RIG_DATA, 60, 0);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 1);
    rig_cleanup(&rig);
}

static void test_tx_long_chain_linearised(void)
{
    enum { PARTS = 3000 };
    g_autofree RigPart *parts = g_new0(RigPart, PARTS);
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | VIRTIO_FEATURE(VIRTIO_RING_F_INDIRECT_DESC), 256);
    rig_send(&rig, RIG_DATA + 0x100000, 60, 1);
    for (unsigned i = 0; i < PARTS; i++) {
        parts[i] = (RigPart){RIG_DATA + i * 7, 7, false};
        memset(rig.ram + RIG_DATA + i * 7, (int)i, 7);
    }
    rig_add(&rig, RIG_TX, parts, PARTS, 0x400000);
    rig_send(&rig, RIG_DATA + 0x101000, 60, 2);
    rig.room = 1;
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 1);
    rig.room = UINT32_MAX;
    net_peer_writable(rig.peer);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 3);
    g_assert_cmpint(rig.frames[1].size, ==, PARTS * 7 - 12);
    g_assert_cmpmem(rig.frames[1].bytes, PARTS * 7 - 12, rig.ram + RIG_DATA + 12, PARTS * 7 - 12);
    rig_assert_filled(rig.frames[2].bytes, 60, 2);
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 3);
    rig_cleanup(&rig);
}

static void test_tx_served_at_driver_ok(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    rig_loop();
    g_assert_cmpint(rig.n->queues[0].tx_stats.batches, ==, 0);
    vm_stop(VM_PAUSED);
    rig_send(&rig, RIG_DATA, 60, 0);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 0);
    vm_start();
    rig_loop();
    assert_in_order(&rig, 1);
    rig_cleanup(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_func("/tx/header-stripped-in-any-layout", test_tx_header_stripped);
    g_test_add_data_func("/tx/header-passed", NULL, test_tx_header_passed);
    g_test_add_data_func("/tx/header-passed-legacy", "legacy", test_tx_header_passed);
    g_test_add_func("/tx/peer-header-shorter", test_tx_peer_header_shorter);
    g_test_add_func("/tx/bad-frames-returned-and-queue-goes-on", test_tx_bad_frames_returned);
    g_test_add_func("/tx/one-interrupt-a-batch", test_tx_one_interrupt_a_batch);
    g_test_add_func("/tx/burst-limit", test_tx_burst_limit);
    g_test_add_func("/tx/stall-and-resume-in-order", test_tx_stall_and_resume);
    g_test_add_func("/tx/stalled-over-stop-and-new-memory-map",
                    test_tx_stalled_over_stop_and_new_memory);
    g_test_add_func("/tx/reset-drops", test_tx_reset_drops);
    g_test_add_func("/tx/peer-deleted-while-stalled", test_tx_peer_deleted);
    g_test_add_func("/tx/long-chain-linearised", test_tx_long_chain_linearised);
    g_test_add_func("/tx/stopped-vm-continues", test_tx_served_at_driver_ok);
    return g_test_run();
}
