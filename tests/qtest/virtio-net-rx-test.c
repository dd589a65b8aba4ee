/*
 * When virtio-net asks for receive buffers and when it interrupts: notifications off while buffers
 * remain, on exactly when they run out; NOTIFY_ON_EMPTY for legacy drivers.
 */
#include <string.h>

#include "tests/lib/rig.h"

#define FRAME_SIZE 200
#define BUF_SIZE   1600
#define RX_VECTOR  1

static void post(Rig *rig, unsigned count, uint64_t addr)
{
    for (unsigned i = 0; i < count; i++) {
        uint16_t at = rig->rx->avail_next % rig->rx->size;

        ring_set(rig->rx, at, addr + (uint64_t)at * BUF_SIZE, BUF_SIZE, VRING_DESC_F_WRITE, 0);
        ring_offer(rig->rx, at);
    }
    ring_publish(rig->rx);
}

static void notify(Rig *rig)
{
    virtio_driver_notify_sync(rig->virtio, RIG_RX);
    rig_settle(rig);
}

/* Does the device want to hear of the next buffer? */
static bool notifications_on(Rig *rig)
{
    if (rig->rx->event_idx) {
        return *rig->rx->avail_event == rig->rx->avail_published;
    }
    return !(rig->rx->used->flags & VRING_USED_F_NO_NOTIFY);
}

static void peer_send(Rig *rig, unsigned seed)
{
    uint8_t frame[FRAME_SIZE];

    frame_fill(frame, sizeof(frame), seed);
    rig_peer_send(rig, frame, sizeof(frame));
}

/* Used buffers [0, count) hold frames @seed, @seed + 1, …, in order. */
static void expect_frames(Rig *rig, unsigned count, unsigned seed, uint64_t addr)
{
    uint8_t frame[FRAME_SIZE];

    for (unsigned i = 0; i < count; i++) {
        struct vring_used_elem used = ring_take(rig, rig->rx);

        frame_fill(frame, sizeof(frame), seed + i);
        g_assert_cmpuint(used.len, ==, RIG_HDR + FRAME_SIZE);
        g_assert_cmpmem(rig_at(rig, addr + used.id * (uint64_t)BUF_SIZE + RIG_HDR, FRAME_SIZE),
                        FRAME_SIZE, frame, FRAME_SIZE);
    }
}

static void test_notifications(gconstpointer features)
{
    Rig *rig = rig_new(&(RigConfig){.features = (uint64_t)(uintptr_t)features});
    uint64_t addr = rig_alloc(rig, (size_t)rig->rx->size * BUF_SIZE);

    rig_settle(rig);
    g_assert_true(notifications_on(rig)); /* none posted yet */
    for (unsigned round = 0; round < 20; round++) {
        post(rig, 4, addr);
        notify(rig);
        g_assert_false(notifications_on(rig));
        for (unsigned i = 0; i < 3; i++) {
            peer_send(rig, 4 * round + i);
            expect_frames(rig, 1, 4 * round + i, addr);
            rig_settle(rig);
            g_assert_false(notifications_on(rig));
        }
        peer_send(rig, 4 * round + 3);
        expect_frames(rig, 1, 4 * round + 3, addr);
        rig_settle(rig);
        g_assert_true(notifications_on(rig));
    }
    rig_free(rig);
}

/* The ring index passes 65,535 twice; nothing is lost and no notification is missed. */
static void test_index_wraps(void)
{
    Rig *rig =
        rig_new(&(RigConfig){.features = RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX), .rx_size = 256});
    uint64_t addr = rig_alloc(rig, 256 * BUF_SIZE);
    unsigned seed = 0;

    while (seed < 2 * 65536 + 100) {
        for (unsigned i = 0; i < 96; i++) {
            peer_send(rig, seed + i);
        }
        post(rig, 96, addr);
        virtio_driver_notify_sync(rig->virtio, RIG_RX);
        expect_frames(rig, 96, seed, addr);
        seed += 96;
    }
    rig_free(rig);
}

/* A frame that needs more buffers than there are waits whole, and notifications are on. */
static void test_partial_frame(gconstpointer features)
{
    Rig *rig = rig_new(&(RigConfig){.features = (uint64_t)(uintptr_t)features});
    uint64_t addr = rig_alloc(rig, (size_t)rig->rx->size * BUF_SIZE);
    uint8_t frame[4000], *got;
    unsigned at = 0;

    frame_fill(frame, sizeof(frame), 1);
    post(rig, 2, addr);
    notify(rig);
    rig_peer_send(rig, frame, sizeof(frame));
    g_assert_false(ring_wait_used(rig, rig->rx, 1, RIG_QUIET_MS));
    rig_settle(rig);
    g_assert_true(notifications_on(rig));
    post(rig, 2, addr);
    notify(rig);
    got = g_malloc(4 * BUF_SIZE);
    g_assert_true(ring_wait_used(rig, rig->rx, 3, RIG_TIMEOUT_MS));
    g_assert_cmpuint(ring_used_count(rig->rx), ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        struct vring_used_elem used = ring_take(rig, rig->rx);

        memcpy(got + at, rig_at(rig, addr + used.id * (uint64_t)BUF_SIZE, used.len), used.len);
        at += used.len;
    }
    g_assert_cmpmem(got + RIG_HDR, at - RIG_HDR, frame, sizeof(frame));
    g_assert_cmpuint(got[10], ==, 3); /* num_buffers */
    g_free(got);
    rig_free(rig);
}

static void test_interrupt_flag(void)
{
    Rig *rig = rig_new(NULL);
    uint64_t addr = rig_alloc(rig, (size_t)rig->rx->size * BUF_SIZE);

    post(rig, 8, addr);
    notify(rig);
    virtio_driver_take_interrupt(rig->virtio, RX_VECTOR);
    peer_send(rig, 0);
    expect_frames(rig, 1, 0, addr);
    rig_settle(rig);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, RX_VECTOR));
    rig->rx->avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
    peer_send(rig, 1);
    expect_frames(rig, 1, 1, addr);
    rig_settle(rig);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, RX_VECTOR));
    rig_free(rig);
}

/* --- legacy --- */

/* Registers of the legacy interface (virtio 1.2, 4.1.4.10). */
enum {
    LEGACY_GUEST_FEATURES = 4,
    LEGACY_QUEUE_PFN = 8,
    LEGACY_QUEUE_NUM = 12,
    LEGACY_QUEUE_SEL = 14,
    LEGACY_QUEUE_NOTIFY = 16,
    LEGACY_STATUS = 18,
    LEGACY_ISR = 19,
};

/* Queue @index of a legacy driver, over the modern one's DriverQueue. */
static void legacy_queue(Rig *rig, DriverQueue *queue, uint16_t index)
{
    uint64_t page, avail, used;
    size_t size;

    guest_pci_bar_write(rig->pci, 0, 2, LEGACY_QUEUE_SEL, index);
    queue->size = (uint16_t)guest_pci_bar_read(rig->pci, 0, 2, LEGACY_QUEUE_NUM);
    size = queue->size;
    page =
        (rig_alloc(rig, 4096 + 16 * size + 2 * (3 + size) + 4096 + 8 * size + 6) + 4095) & ~4095ull;
    avail = page + 16 * size;
    used = (avail + 2 * (3 + size) + 4095) & ~4095ull;
    queue->desc = rig_at(rig, page, 16 * size);
    queue->avail = rig_at(rig, avail, 2 * (3 + size));
    queue->used = rig_at(rig, used, 8 * size + 6);
    queue->avail_next = queue->avail_published = queue->used_next = 0;
    guest_pci_bar_write(rig->pci, 0, 4, LEGACY_QUEUE_PFN, page >> 12);
}

/* NOTIFY_ON_EMPTY: an interrupt when the ring is empty and nothing is in flight, although the
 * driver asked for none. */
static void test_notify_on_empty(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "tx=timer,x-txburst=2", .intx = true});
    uint64_t addr = rig_alloc(rig, 128);

    guest_pci_bar_write(rig->pci, 0, 1, LEGACY_STATUS, 0);
    guest_pci_bar_write(rig->pci, 0, 1, LEGACY_STATUS, 3);
    guest_pci_bar_write(rig->pci, 0, 4, LEGACY_GUEST_FEATURES, 1u << 24);
    legacy_queue(rig, rig->tx, RIG_TX);
    guest_pci_bar_write(rig->pci, 0, 1, LEGACY_STATUS, 7);
    rig->tx->avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
    for (uint16_t i = 0; i < 3; i++) {
        ring_set(rig->tx, i, addr, 10 + 60, 0, 0);
        ring_offer(rig->tx, i);
    }
    ring_publish(rig->tx);
    guest_pci_bar_write(rig->pci, 0, 2, LEGACY_QUEUE_NOTIFY, RIG_TX);
    rig_settle(rig);
    guest_pci_bar_read(rig->pci, 0, 1, LEGACY_ISR);
    qtest_client_clock_step(rig->qtest, 150000);
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 2);
    g_assert_cmphex(guest_pci_bar_read(rig->pci, 0, 1, LEGACY_ISR), ==, 0);
    qtest_client_clock_step(rig->qtest, 150000);
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 3);
    g_assert_cmphex(guest_pci_bar_read(rig->pci, 0, 1, LEGACY_ISR), ==, 1);
    rig_free(rig);
}

#define BITS(b) GUINT_TO_POINTER((guint)(b))

int main(int argc, char **argv)
{
    const uint64_t event_idx = RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX);
    const uint64_t mergeable = RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF);

    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/virtio-net-rx/notify/on-when-buffers-run-out", BITS(0),
                         test_notifications);
    g_test_add_data_func("/virtio-net-rx/notify/on-when-buffers-run-out-event-index",
                         BITS(event_idx), test_notifications);
    g_test_add_func("/virtio-net-rx/notify/event-index-wraps", test_index_wraps);
    g_test_add_data_func("/virtio-net-rx/mergeable/partial-frame-waits", BITS(mergeable),
                         test_partial_frame);
    g_test_add_data_func("/virtio-net-rx/mergeable/partial-frame-waits-event-index",
                         BITS(mergeable | event_idx), test_partial_frame);
    g_test_add_func("/virtio-net-rx/interrupt/no-interrupt-flag", test_interrupt_flag);
    g_test_add_func("/virtio-net-rx/interrupt/notify-on-empty-legacy", test_notify_on_empty);
    return g_test_run();
}
