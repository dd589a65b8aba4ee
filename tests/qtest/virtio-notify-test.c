/*
 * Notification addresses, vectors and ring sizes: the same frames through every variant.
 */
#include <linux/virtio_pci.h>
#include <string.h>

#include "tests/lib/rig.h"

#define FRAME 60

static void expect_sent(Rig *rig, uint32_t seed)
{
    uint8_t frame[FRAME];

    frame_fill(frame, sizeof(frame), seed);
    rig_send_frame(rig, 0, frame, sizeof(frame));
    rig_peer_expect(rig, frame, sizeof(frame));
}

static void expect_received(Rig *rig, uint32_t seed)
{
    uint8_t frame[FRAME];
    uint64_t addr = rig_post_buffer(rig, 0, 256);
    struct vring_used_elem used;

    frame_fill(frame, sizeof(frame), seed);
    rig_peer_send(rig, frame, sizeof(frame));
    used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.len, ==, RIG_HDR + FRAME);
    g_assert_cmpmem(rig_at(rig, addr + RIG_HDR, FRAME), FRAME, frame, FRAME);
}

/* --- where a driver notifies --- */

static void test_notify(gconstpointer device)
{
    Rig *rig = rig_new(&(RigConfig){.device = device});

    for (uint32_t i = 0; i < 20; i++) {
        expect_sent(rig, i);
        expect_received(rig, 100 + i);
    }
    rig_free(rig);
}

static void test_notify_in_iothread(void)
{
    static const char *const args[] = {"-object", "iothread,id=io0", NULL};
    Rig *rig = rig_new(&(RigConfig){.device = "iothread=io0", .args = args});

    for (uint32_t i = 0; i < 20; i++) {
        expect_sent(rig, i);
        expect_received(rig, 100 + i);
    }
    rig_free(rig);
}

/* The notification structure in I/O space beside the one in memory. */
static void test_notify_pio(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "modern-pio-notify=on"});
    uint8_t frame[FRAME];
    uint8_t cap = 0, bar = 0xFF;
    uint32_t offset = 0, multiplier = 0;

    while ((cap = guest_pci_find_capability(rig->pci, 9, cap)) != 0) {
        if (guest_pci_config_read(rig->pci, 1, cap + 3) == VIRTIO_PCI_CAP_NOTIFY_CFG) {
            uint8_t index = (uint8_t)guest_pci_config_read(rig->pci, 1, cap + 4);

            if (rig->pci->bars[index].is_io) {
                bar = index;
                offset = guest_pci_config_read(rig->pci, 4, cap + 8);
                multiplier = guest_pci_config_read(rig->pci, 4, cap + 16);
            }
        }
    }
    g_assert_cmpuint(bar, !=, 0xFF);
    g_assert_cmpuint(multiplier, ==, 0); /* every queue notifies at one port */
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t addr = rig_alloc(rig, RIG_HDR + FRAME);

        frame_fill(frame, sizeof(frame), i);
        memcpy(rig_at(rig, addr + RIG_HDR, FRAME), frame, FRAME);
        ring_set(rig->tx, 1, addr, RIG_HDR + FRAME, 0, 0);
        ring_offer(rig->tx, 1);
        ring_publish(rig->tx);
        guest_pci_bar_write(rig->pci, bar, 2, offset, RIG_TX);
        ring_take(rig, rig->tx);
        rig_peer_expect(rig, frame, sizeof(frame));
        expect_sent(rig, 50 + i); /* in memory too */
    }
    rig_free(rig);
}

/* A queue that is not there, at every address. */
static void test_notify_nobody(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "page-per-vq=on"});
    VirtioRegion *notify = &rig->virtio->notify;

    for (uint32_t at = 0; at < notify->length; at += notify->length / 512) {
        guest_pci_bar_write(rig->pci, notify->bar, 2, notify->offset + at, 0xFFFF);
    }
    expect_sent(rig, 1);
    rig_free(rig);
}

/* --- too few vectors --- */

static void test_few_vectors(void)
{
    for (unsigned vectors = 0; vectors <= 4; vectors++) {
        g_autofree char *device = g_strdup_printf("vectors=%u", vectors);
        Rig *rig = rig_new(&(RigConfig){.device = device, .intx = vectors == 0});

        g_assert_cmpuint(rig->pci->msix_vectors, ==, vectors);
        expect_sent(rig, vectors);
        expect_received(rig, vectors);
        rig_settle(rig);
        /* The rig gives queue i vector i + 1 where there is one. */
        for (unsigned queue = 0; vectors && queue < 2; queue++) {
            bool has_vector = queue + 1 < vectors;

            g_assert_cmpint(virtio_driver_take_interrupt(rig->virtio, queue + 1), ==, has_vector);
        }
        rig_free(rig);
    }
}

/* --- ring sizes --- */

/* A whole ring of frames, published at once, each way. */
static void fill_rings(Rig *rig)
{
    unsigned n = rig->tx->size, m = rig->rx->size;
    uint64_t tx = rig_alloc(rig, (size_t)n * 128), rx = rig_alloc(rig, (size_t)m * 128);
    uint8_t frame[FRAME];

    for (uint16_t i = 0; i < n; i++) {
        frame_fill(rig_at(rig, tx + 128ull * i + RIG_HDR, FRAME), FRAME, i);
        ring_set(rig->tx, i, tx + 128ull * i, RIG_HDR + FRAME, 0, 0);
        ring_offer(rig->tx, i);
    }
    for (uint16_t i = 0; i < m; i++) {
        ring_set(rig->rx, i, rx + 128ull * i, 128, VRING_DESC_F_WRITE, 0);
        ring_offer(rig->rx, i);
    }
    ring_publish(rig->rx);
    virtio_driver_notify_sync(rig->virtio, RIG_RX);
    ring_publish(rig->tx);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    for (unsigned i = 0; i < n; i++) {
        frame_fill(frame, FRAME, i);
        g_assert_cmpuint(ring_take(rig, rig->tx).id, ==, i);
        rig_peer_expect(rig, frame, FRAME);
    }
    for (unsigned i = 0; i < m; i++) {
        frame_fill(frame, FRAME, i);
        rig_peer_send(rig, frame, FRAME);
        g_assert_cmpuint(ring_take(rig, rig->rx).id, ==, i);
        g_assert_cmpmem(rig_at(rig, rx + 128ull * i + RIG_HDR, FRAME), FRAME, frame, FRAME);
    }
}

static void test_ring_sizes(void)
{
    for (unsigned rx = 64; rx <= 1024; rx *= 2) {
        unsigned tx = 65536 / rx; /* 1024 … 64 */
        g_autofree char *device =
            g_strdup_printf("rx_queue_size=%u,tx_queue_size=%u,x-txburst=100", rx, tx);
        Rig *rig = rig_open(&(RigConfig){.device = device});

        g_assert_cmpuint(virtio_driver_queue_max(rig->virtio, RIG_RX), ==, rx);
        g_assert_cmpuint(virtio_driver_queue_max(rig->virtio, RIG_TX), ==, tx);
        g_assert_cmpuint(virtio_driver_queue_max(rig->virtio, RIG_CTRL), ==, 64);
        rig_start(rig);
        g_assert_cmpuint(rig->rx->size, ==, rx);
        g_assert_cmpuint(rig->tx->size, ==, tx);
        fill_rings(rig);
        fill_rings(rig);
        rig_free(rig);
    }
}

/* --- what waits is dropped by reset --- */

static void test_reset_drops(gconstpointer device)
{
    Rig *rig = rig_new(&(RigConfig){.device = device});
    uint8_t frame[FRAME];

    for (uint16_t i = 0; i < 2; i++) {
        uint64_t addr = rig_alloc(rig, RIG_HDR + FRAME);

        frame_fill(rig_at(rig, addr + RIG_HDR, FRAME), FRAME, i);
        ring_set(rig->tx, i, addr, RIG_HDR + FRAME, 0, 0);
        ring_offer(rig->tx, i);
    }
    /* flush-first sends the first one at once and holds the second; timer holds both. */
    rig->tx->avail->idx = 1;
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    rig_settle(rig);
    ring_publish(rig->tx);
    if (strstr(device, "flush-first")) {
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        frame_fill(frame, FRAME, 0);
        rig_peer_expect(rig, frame, FRAME);
    }
    rig_restart(rig);
    qtest_client_clock_step(rig->qtest, 1000000);
    rig_peer_expect_nothing(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);

    /* And the next frame is served as if nothing had been. */
    expect_received(rig, 7);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/virtio-notify/memory", NULL, test_notify);
    g_test_add_data_func("/virtio-notify/ioeventfd-off", "ioeventfd=off", test_notify);
    g_test_add_data_func("/virtio-notify/page-per-vq", "page-per-vq=on", test_notify);
    g_test_add_data_func("/virtio-notify/page-per-vq-ioeventfd-off", "page-per-vq=on,ioeventfd=off",
                         test_notify);
    g_test_add_func("/virtio-notify/iothread", test_notify_in_iothread);
    g_test_add_func("/virtio-notify/io-port", test_notify_pio);
    g_test_add_func("/virtio-notify/queue-that-is-not-there", test_notify_nobody);
    g_test_add_func("/virtio-notify/too-few-vectors", test_few_vectors);
    g_test_add_func("/virtio-notify/ring-sizes-64-to-1024", test_ring_sizes);
    g_test_add_data_func("/virtio-notify/reset-drops-what-waits/timer", "tx=timer",
                         test_reset_drops);
    g_test_add_data_func("/virtio-notify/reset-drops-what-waits/flush-first", "tx=flush-first",
                         test_reset_drops);
    return g_test_run();
}
