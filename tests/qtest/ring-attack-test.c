/*
 * Rings written by somebody hostile.
 *
 * What costs one chain: it comes back used with length 0, the good chain behind it is served, and
 * the device never says NEEDS_RESET.  What leaves no head to return: NEEDS_RESET with a
 * configuration interrupt, and a device that works after a reset.  In every case the process is
 * healthy.  QEMU breaks the device for all of them: there it is only the last that is tested.
 */
#include <linux/virtio_pci.h>
#include <string.h>

#include "tests/lib/rig.h"

#define BAD  0   /* head of the bad chain */
#define GOOD 200 /* head of the good one behind it */
#define ALL_FEATURES                                                                               \
    (RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC) | RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF))

typedef struct Attack {
    Rig *rig;
    DriverQueue *queue;
    uint16_t dir;    /* VRING_DESC_F_WRITE on the RX queue */
    uint64_t memory; /* 64 KiB of guest memory to point at */
} Attack;

typedef void AttackFunc(Attack *a);

static void one(Attack *a, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next)
{
    ring_set(a->queue, BAD, addr, len, flags, next);
}

/* --- chains --- */

static void loop_to_itself(Attack *a)
{
    one(a, a->memory, 64, a->dir | VRING_DESC_F_NEXT, BAD);
}

static void loop_of_three(Attack *a)
{
    for (uint16_t i = 0; i < 3; i++) {
        ring_set(a->queue, BAD + i, a->memory, 64, a->dir | VRING_DESC_F_NEXT, BAD + (i + 1) % 3);
    }
}

static void loop_behind_good_descriptors(Attack *a)
{
    for (uint16_t i = 0; i < 100; i++) {
        ring_set(a->queue, BAD + i, a->memory, 1, a->dir | VRING_DESC_F_NEXT, BAD + i + 1);
    }
    a->queue->desc[BAD + 99].next = BAD + 50;
}

static void next_outside_the_table(Attack *a)
{
    one(a, a->memory, 64, a->dir | VRING_DESC_F_NEXT, a->queue->size);
}

static void next_far_outside_the_table(Attack *a)
{
    one(a, a->memory, 64, a->dir | VRING_DESC_F_NEXT, 0xffff);
}

static struct vring_desc *table_at(Attack *a, uint64_t offset)
{
    return rig_at(a->rig, a->memory + offset, 4096);
}

/* A table of @count descriptors at a->memory + 4096, linked, behind the bad head. */
static struct vring_desc *table_of(Attack *a, unsigned count)
{
    RingPart parts[16];

    for (unsigned i = 0; i < count; i++) {
        parts[i] = (RingPart){.addr = a->memory + 8192, .len = 256, .flags = a->dir};
    }
    ring_indirect(a->queue, BAD, a->memory + 4096, parts, count);
    return table_at(a, 4096);
}

static void indirect_of_indirect(Attack *a)
{
    struct vring_desc *table = table_of(a, 2);

    table[1].flags |= VRING_DESC_F_INDIRECT;
    table[1].addr = a->memory + 4096;
    table[1].len = 32;
}

static void indirect_of_indirect_first(Attack *a)
{
    struct vring_desc *table = table_of(a, 1);

    table[0].flags = VRING_DESC_F_INDIRECT;
    table[0].addr = a->memory + 4096;
    table[0].len = 16;
}

static void indirect_with_next(Attack *a)
{
    table_of(a, 2);
    a->queue->desc[BAD].flags |= VRING_DESC_F_NEXT;
    a->queue->desc[BAD].next = BAD + 1;
    ring_set(a->queue, BAD + 1, a->memory, 64, a->dir, 0);
}

static void indirect_loop(Attack *a)
{
    struct vring_desc *table = table_of(a, 3);

    table[2].flags |= VRING_DESC_F_NEXT;
    table[2].next = 1;
}

static void indirect_next_outside(Attack *a)
{
    table_of(a, 3)[1].next = 3;
}

static void indirect_empty(Attack *a)
{
    table_of(a, 1);
    a->queue->desc[BAD].len = 0;
}

static void indirect_odd_length(Attack *a)
{
    table_of(a, 2);
    a->queue->desc[BAD].len = 31;
}

static void indirect_shorter_than_one(Attack *a)
{
    table_of(a, 1);
    a->queue->desc[BAD].len = 15;
}

static void indirect_outside_ram(Attack *a)
{
    table_of(a, 2);
    a->queue->desc[BAD].addr = 0xe0000000;
}

static void indirect_across_the_end_of_ram(Attack *a)
{
    table_of(a, 4);
    a->queue->desc[BAD].addr = RIG_RAM_SIZE - 32;
}

static void indirect_at_the_end_of_addresses(Attack *a)
{
    table_of(a, 4);
    a->queue->desc[BAD].addr = UINT64_MAX - 15;
}

static void out_of_ram(Attack *a)
{
    one(a, RIG_RAM_SIZE, 256, a->dir, 0);
}

static void across_the_end_of_ram(Attack *a)
{
    one(a, RIG_RAM_SIZE - 128, 256, a->dir, 0);
}

static void in_mmio(Attack *a)
{
    one(a, a->rig->pci->bars[4].addr, 256, a->dir, 0);
}

static void address_wraps(Attack *a)
{
    one(a, UINT64_MAX - 127, 256, a->dir, 0);
}

static void length_of_4_gib(Attack *a)
{
    one(a, a->memory, UINT32_MAX, a->dir, 0);
}

static void second_is_out_of_ram(Attack *a)
{
    ring_set(a->queue, BAD, a->memory, 64, a->dir | VRING_DESC_F_NEXT, BAD + 1);
    ring_set(a->queue, BAD + 1, 1ull << 40, 64, a->dir, 0);
}

static void writable_before_readable(Attack *a)
{
    ring_set(a->queue, BAD, a->memory, 64, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, BAD + 1);
    ring_set(a->queue, BAD + 1, a->memory, 64, 0, 0);
}

static void zero_length(Attack *a)
{
    one(a, a->memory, 0, a->dir, 0);
}

static void zero_length_outside_ram(Attack *a)
{
    one(a, UINT64_MAX, 0, a->dir, 0);
}

static void wrong_direction(Attack *a)
{
    one(a, a->memory, 256, a->dir ^ VRING_DESC_F_WRITE, 0);
}

static void shorter_than_the_header(Attack *a)
{
    one(a, a->memory, RIG_HDR - 1, a->dir, 0);
}

/* A table longer than any chain may be (1.2, section 2.7.5.3.1). */
static void too_many_descriptors(Attack *a)
{
    unsigned count = 65535;
    uint64_t addr = rig_alloc(a->rig, count * sizeof(struct vring_desc));
    struct vring_desc *table = rig_at(a->rig, addr, count * sizeof(*table));

    for (unsigned i = 0; i < count; i++) {
        table[i] = (struct vring_desc){.addr = a->memory + i % 4096,
                                       .len = 1,
                                       .flags = a->dir | VRING_DESC_F_NEXT,
                                       .next = (uint16_t)(i + 1)};
    }
    table[count - 1].flags = a->dir;
    ring_set(a->queue, BAD, addr, count * (uint32_t)sizeof(*table), VRING_DESC_F_INDIRECT, 0);
}

static const struct {
    const char *name;
    AttackFunc *fn;
} chain_attacks[] = {
    {"loop-to-itself", loop_to_itself},
    {"loop-of-three", loop_of_three},
    {"loop-behind-good-descriptors", loop_behind_good_descriptors},
    {"next-outside-the-table", next_outside_the_table},
    {"next-far-outside-the-table", next_far_outside_the_table},
    {"indirect-of-indirect", indirect_of_indirect},
    {"indirect-of-indirect-first", indirect_of_indirect_first},
    {"indirect-with-next", indirect_with_next},
    {"indirect-loop", indirect_loop},
    {"indirect-next-outside", indirect_next_outside},
    {"indirect-empty", indirect_empty},
    {"indirect-odd-length", indirect_odd_length},
    {"indirect-shorter-than-one", indirect_shorter_than_one},
    {"indirect-outside-ram", indirect_outside_ram},
    {"indirect-across-the-end-of-ram", indirect_across_the_end_of_ram},
    {"indirect-at-the-end-of-addresses", indirect_at_the_end_of_addresses},
    {"out-of-ram", out_of_ram},
    {"across-the-end-of-ram", across_the_end_of_ram},
    {"in-mmio", in_mmio},
    {"address-wraps", address_wraps},
    {"length-of-4-gib", length_of_4_gib},
    {"second-is-out-of-ram", second_is_out_of_ram},
    {"writable-before-readable", writable_before_readable},
    {"zero-length", zero_length},
    {"zero-length-outside-ram", zero_length_outside_ram},
    {"wrong-direction", wrong_direction},
    {"shorter-than-the-header", shorter_than_the_header},
    {"too-many-descriptors", too_many_descriptors},
};

static void attack_init(Attack *a, Rig *rig, uint16_t index)
{
    *a = (Attack){.rig = rig,
                  .queue = rig->queues[index],
                  .dir = index == RIG_RX ? VRING_DESC_F_WRITE : 0,
                  .memory = rig_alloc(rig, 65536)};
}

/* Bad and good chain, published together; on RX a frame comes for the good one. */
static void attack_run(Attack *a, AttackFunc *fn, const uint8_t *frame, uint64_t *good)
{
    *good = rig_alloc(a->rig, 2048);
    fn(a);
    if (a->dir) {
        ring_set(a->queue, GOOD, *good, 2048, VRING_DESC_F_WRITE, 0);
    } else {
        memcpy(rig_at(a->rig, *good + RIG_HDR, 60), frame, 60);
        ring_set(a->queue, GOOD, *good, RIG_HDR + 60, 0, 0);
    }
    ring_offer(a->queue, BAD);
    ring_offer(a->queue, GOOD);
    ring_publish(a->queue);
    virtio_driver_notify_sync(a->rig->virtio, a->queue->index);
    if (a->dir) {
        rig_peer_send(a->rig, frame, 60);
    }
}

static void expect_chain_returned(Attack *a, const uint8_t *frame, uint64_t good)
{
    Rig *rig = a->rig;
    struct vring_used_elem used = ring_take(rig, a->queue);

    g_assert_cmpuint(used.id, ==, BAD);
    g_assert_cmpuint(used.len, ==, 0);
    used = ring_take(rig, a->queue);
    g_assert_cmpuint(used.id, ==, GOOD);
    g_assert_cmpuint(used.len, ==, a->dir ? RIG_HDR + 60 : 0);
    if (a->dir) {
        g_assert_cmpmem(rig_at(rig, good + RIG_HDR, 60), 60, frame, 60);
    } else {
        rig_peer_expect(rig, frame, 60);
    }
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 0));
}

static void run_chain_attacks(uint16_t index, uint64_t features)
{
    Rig *rig = rig_new(&(RigConfig){.features = features});
    uint8_t frame[60];

    for (uint32_t i = 0; i < G_N_ELEMENTS(chain_attacks); i++) {
        Attack a;
        uint64_t good;

        if (!rig->is_swnic && chain_attacks[i].fn == shorter_than_the_header) {
            continue; /* QEMU 7.2 ends */
        }
        g_test_message("%s", chain_attacks[i].name);
        frame_fill(frame, sizeof(frame), i);
        attack_init(&a, rig, index);
        attack_run(&a, chain_attacks[i].fn, frame, &good);
        if (rig->is_swnic) {
            expect_chain_returned(&a, frame, good);
        } else {
            rig_expect_recovery(rig);
        }
    }
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_chains_tx(void)
{
    run_chain_attacks(RIG_TX, ALL_FEATURES | RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX));
}

static void test_chains_rx_mergeable(void)
{
    run_chain_attacks(RIG_RX, ALL_FEATURES);
}

static void test_chains_rx_plain(void)
{
    run_chain_attacks(RIG_RX, RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC));
}

/* An indirect table although the feature was not negotiated. */
static void test_indirect_not_negotiated(void)
{
    Rig *rig = rig_new(NULL);
    Attack a;
    struct vring_used_elem used;

    attack_init(&a, rig, RIG_TX);
    table_of(&a, 1);
    ring_send(rig, rig->tx, BAD);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, BAD);
    rig_expect_recovery(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

/* 32,768 descriptors are the most a chain may have: one byte each, sent or refused as a whole. */
static void test_32768_descriptors(void)
{
    Rig *rig = rig_new(&(RigConfig){.features = RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC)});
    unsigned count = 32768;
    g_autofree uint8_t *bytes = g_malloc0(count);
    uint64_t data = rig_alloc(rig, count), addr = rig_alloc(rig, count * 16);
    struct vring_desc *table = rig_at(rig, addr, count * 16);
    struct vring_used_elem used;

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU breaks the device for it");
        return;
    }
    frame_fill(bytes + RIG_HDR, count - RIG_HDR, 9);
    memcpy(rig_at(rig, data, count), bytes, count);
    for (unsigned i = 0; i < count; i++) {
        table[i] = (struct vring_desc){.addr = data + i,
                                       .len = 1,
                                       .flags = i + 1 < count ? VRING_DESC_F_NEXT : 0,
                                       .next = (uint16_t)(i + 1)};
    }
    ring_set(rig->tx, 0, addr, count * 16, VRING_DESC_F_INDIRECT, 0);
    ring_send(rig, rig->tx, 0);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, 0);
    g_assert_cmpuint(used.len, ==, 0);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
    {
        g_autofree uint8_t *got = g_malloc(count);
        size_t size = rig_peer_recv(rig, got, count, 500);

        g_test_message("%s", size ? "sent" : "refused");
        if (size) {
            g_assert_cmpmem(got, size, bytes + RIG_HDR, count - RIG_HDR);
        }
    }
    rig_expect_working(rig);
    rig_free(rig);
}

/* --- what leaves no head to return --- */

static void index_jumps_by_more_than_the_ring(Attack *a)
{
    a->queue->avail_next += a->queue->size + 1;
    ring_publish(a->queue);
}

static void index_goes_back(Attack *a)
{
    a->queue->avail_next -= 1;
    ring_publish(a->queue);
}

static void index_jumps_by_32768(Attack *a)
{
    a->queue->avail_next += 32768;
    ring_publish(a->queue);
}

static void head_outside_the_table(Attack *a)
{
    ring_offer(a->queue, a->queue->size);
    ring_publish(a->queue);
}

static void head_far_outside_the_table(Attack *a)
{
    ring_offer(a->queue, 0xffff);
    ring_publish(a->queue);
}

static const struct {
    const char *name;
    AttackFunc *fn;
} device_attacks[] = {
    {"index-jumps-by-more-than-the-ring", index_jumps_by_more_than_the_ring},
    {"index-goes-back", index_goes_back},
    {"index-jumps-by-32768", index_jumps_by_32768},
    {"head-outside-the-table", head_outside_the_table},
    {"head-far-outside-the-table", head_far_outside_the_table},
};

static void expect_needs_reset(Rig *rig)
{
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;

    while (!(virtio_driver_status(rig->virtio) & VIRTIO_CONFIG_S_NEEDS_RESET)) {
        g_assert_cmpint(g_get_monotonic_time(), <, deadline);
    }
    rig_settle(rig);
}

static void run_device_attacks(uint16_t index)
{
    Rig *rig = rig_new(&(RigConfig){.features = ALL_FEATURES});
    uint8_t frame[60];

    frame_fill(frame, sizeof(frame), 1);
    for (unsigned i = 0; i < G_N_ELEMENTS(device_attacks); i++) {
        Attack a;
        uint16_t used;

        g_test_message("%s", device_attacks[i].name);
        rig_expect_working(rig);
        virtio_driver_take_interrupt(rig->virtio, 0);
        attack_init(&a, rig, index);
        device_attacks[i].fn(&a);
        used = ring_used_count(a.queue);
        virtio_driver_notify_sync(rig->virtio, index);
        if (index == RIG_RX) {
            rig_peer_send(rig, frame, sizeof(frame));
        }
        expect_needs_reset(rig);
        g_assert_true(virtio_driver_take_interrupt(rig->virtio, 0));
        /* Stopped: neither queue touches memory any more. */
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        virtio_driver_notify_sync(rig->virtio, RIG_RX);
        rig_settle(rig);
        g_assert_cmpuint(ring_used_count(a.queue), ==, used);
        rig_expect_recovery(rig);
    }
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_device_tx(void)
{
    run_device_attacks(RIG_TX);
}

static void test_device_rx(void)
{
    run_device_attacks(RIG_RX);
}

static void common_write64(Rig *rig, uint32_t offset, uint64_t value)
{
    guest_pci_bar_write(rig->pci, 4, 4, offset, (uint32_t)value);
    guest_pci_bar_write(rig->pci, 4, 4, offset + 4, value >> 32);
}

/* Ring addresses where no RAM is: the device breaks, and works after a reset. */
static void test_rings_outside_ram(void)
{
    static const uint64_t addrs[] = {RIG_RAM_SIZE, RIG_RAM_SIZE - 16, 0xe0000000, 1ull << 40,
                                     UINT64_MAX - 4095};
    static const uint32_t offsets[] = {VIRTIO_PCI_COMMON_Q_DESCLO, VIRTIO_PCI_COMMON_Q_AVAILLO,
                                       VIRTIO_PCI_COMMON_Q_USEDLO};
    Rig *rig = rig_open(NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(addrs) * G_N_ELEMENTS(offsets); i++) {
        GError *err = NULL;
        uint8_t status;

        virtio_driver_negotiate(rig->virtio, 0, &err);
        g_assert_no_error(err);
        guest_pci_bar_write(rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_SELECT, RIG_TX);
        for (unsigned k = 0; k < G_N_ELEMENTS(offsets); k++) {
            common_write64(rig, offsets[k], rig_alloc(rig, 8192));
        }
        common_write64(rig, offsets[i % G_N_ELEMENTS(offsets)], addrs[i / G_N_ELEMENTS(offsets)]);
        guest_pci_bar_write(rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_ENABLE, 1);
        virtio_driver_start(rig->virtio, &err);
        g_assert_no_error(err);
        guest_pci_bar_write(rig->pci, 4, 2, 0x3000 + 4 * RIG_TX, RIG_TX);
        rig_settle(rig);
        status = virtio_driver_status(rig->virtio);
        if (rig->is_swnic) {
            g_assert_cmphex(status & VIRTIO_CONFIG_S_NEEDS_RESET, !=, 0);
        }
        virtio_driver_reset(rig->virtio, &err);
        g_assert_no_error(err);
        virtio_driver_set_status(rig->virtio, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
    }
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

/* All three rings at one place: nonsense, but in RAM. */
static void test_rings_over_each_other(void)
{
    Rig *rig = rig_open(NULL);
    uint64_t addr = rig_alloc(rig, 8192);
    GError *err = NULL;

    virtio_driver_negotiate(rig->virtio, 0, &err);
    g_assert_no_error(err);
    memset(rig_at(rig, addr, 8192), 0x01, 8192);
    for (uint32_t q = 0; q < RIG_QUEUES; q++) {
        guest_pci_bar_write(rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_SELECT, q);
        common_write64(rig, VIRTIO_PCI_COMMON_Q_DESCLO, addr);
        common_write64(rig, VIRTIO_PCI_COMMON_Q_AVAILLO, addr);
        common_write64(rig, VIRTIO_PCI_COMMON_Q_USEDLO, addr);
        guest_pci_bar_write(rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_ENABLE, 1);
    }
    virtio_driver_start(rig->virtio, &err);
    for (uint32_t i = 0; i < 200; i++) {
        guest_pci_bar_write(rig->pci, 4, 2, 0x3000 + 4 * (i % RIG_QUEUES), i % RIG_QUEUES);
    }
    rig_expect_recovery(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/attack/chain/tx-returned-and-next-sent", test_chains_tx);
    g_test_add_func("/attack/chain/rx-plain-returned-and-next-filled", test_chains_rx_plain);
    g_test_add_func("/attack/chain/rx-mergeable-returned-and-next-filled",
                    test_chains_rx_mergeable);
    g_test_add_func("/attack/chain/indirect-not-negotiated", test_indirect_not_negotiated);
    g_test_add_func("/attack/chain/32768-descriptors", test_32768_descriptors);
    g_test_add_func("/attack/device/tx-needs-reset-and-works-after", test_device_tx);
    g_test_add_func("/attack/device/rx-needs-reset-and-works-after", test_device_rx);
    g_test_add_func("/attack/device/rings-outside-ram", test_rings_outside_ram);
    g_test_add_func("/attack/device/rings-over-each-other", test_rings_over_each_other);
    return g_test_run();
}
