/*
 * The legacy interface, driven as a driver before virtio 1.0 drives it: through the I/O BAR alone
 * (virtio 1.2, 4.1.4.10 and 5.1.6.2); and which device types and options have which interfaces.
 */
#include <linux/pci_regs.h>
#include <string.h>

#include "tests/lib/rig.h"

enum {
    REG_HOST_FEATURES = 0,
    REG_GUEST_FEATURES = 4,
    REG_QUEUE_PFN = 8,
    REG_QUEUE_NUM = 12,
    REG_QUEUE_SEL = 14,
    REG_QUEUE_NOTIFY = 16,
    REG_STATUS = 18,
    REG_ISR = 19,
    REG_CONFIG_VECTOR = 20, /* the next two only while MSI-X is on; configuration follows */
    REG_QUEUE_VECTOR = 22,
};

#define BAR               0
#define PAGE              4096u
#define NO_VECTOR         0xFFFFu
#define F_NOTIFY_ON_EMPTY 24
#define F_ANY_LAYOUT      27
#define BIT32(n)          (1u << (n))

typedef struct LegacyDriver {
    Rig *rig;
    uint32_t features;
    uint32_t header; /* bytes in front of a frame */
    uint32_t config; /* offset of device configuration */
} LegacyDriver;

static uint32_t get(LegacyDriver *d, unsigned width, unsigned reg)
{
    return (uint32_t)guest_pci_bar_read(d->rig->pci, BAR, width, reg);
}

static void put(LegacyDriver *d, unsigned width, unsigned reg, uint32_t value)
{
    guest_pci_bar_write(d->rig->pci, BAR, width, reg, value);
}

static LegacyDriver *legacy_open(const char *device)
{
    LegacyDriver *d = g_new0(LegacyDriver, 1);

    d->rig = rig_open(&(RigConfig){.device = device, .raw = true});
    d->config = 20;
    put(d, 1, REG_STATUS, 0);
    put(d, 1, REG_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE);
    put(d, 1, REG_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
    return d;
}

/* Rings as section 2.7.2 lays them out: one page-aligned block, the used ring on its own page. */
static void setup_queue(LegacyDriver *d, uint16_t index)
{
    Rig *rig = d->rig;
    DriverQueue *queue = g_new0(DriverQueue, 1);
    uint64_t page, avail, used;
    size_t size;

    put(d, 2, REG_QUEUE_SEL, index);
    size = get(d, 2, REG_QUEUE_NUM);
    g_assert_cmpuint(size, >, 0);
    g_assert_cmphex(get(d, 4, REG_QUEUE_PFN), ==, 0);
    page = (rig_alloc(rig, 16 * size + 2 * (3 + size) + 8 * size + 6 + 2 * PAGE) + PAGE - 1) &
           ~(PAGE - 1ull);
    avail = page + 16 * size;
    used = (avail + 2 * (3 + size) + PAGE - 1) & ~(PAGE - 1ull);
    *queue = (DriverQueue){
        .ram = rig->ram,
        .index = index,
        .size = (uint16_t)size,
        .desc = rig_at(rig, page, 16 * size),
        .avail = rig_at(rig, avail, 2 * (3 + size)),
        .used = rig_at(rig, used, 8 * size + 6),
    };
    driver_queue_free(rig->queues[index]);
    rig->queues[index] = queue;
    put(d, 4, REG_QUEUE_PFN, (uint32_t)(page / PAGE));
    g_assert_cmphex(get(d, 4, REG_QUEUE_PFN), ==, page / PAGE);
}

static void start(LegacyDriver *d, uint32_t features)
{
    uint32_t offered = get(d, 4, REG_HOST_FEATURES);

    d->features = features & offered;
    g_assert_cmphex(d->features, ==, features);
    put(d, 4, REG_GUEST_FEATURES, features);
    g_assert_cmphex(get(d, 4, REG_GUEST_FEATURES), ==, features);
    d->header = features & BIT32(VIRTIO_NET_F_MRG_RXBUF) ? 12 : 10;
    setup_queue(d, RIG_RX);
    setup_queue(d, RIG_TX);
    d->rig->rx = d->rig->queues[RIG_RX];
    d->rig->tx = d->rig->queues[RIG_TX];
    put(d, 1, REG_STATUS,
        VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_DRIVER_OK);
}

static LegacyDriver *legacy_new(const char *device, uint32_t features)
{
    LegacyDriver *d = legacy_open(device);

    start(d, features);
    return d;
}

static void legacy_free(LegacyDriver *d)
{
    put(d, 1, REG_STATUS, 0);
    rig_free(d->rig);
    g_free(d);
}

static void kick(LegacyDriver *d, uint16_t index)
{
    put(d, 2, REG_QUEUE_NOTIFY, index);
    rig_settle(d->rig);
}

static void offer(LegacyDriver *d, DriverQueue *queue, uint16_t head)
{
    ring_offer(queue, head);
    ring_publish(queue);
    kick(d, queue->index);
}

static void send_frame(LegacyDriver *d, uint16_t at, const uint8_t *frame, size_t size)
{
    uint64_t addr = rig_alloc(d->rig, d->header + size);
    struct vring_used_elem used;

    memcpy(rig_at(d->rig, addr + d->header, size), frame, size);
    /* Before ANY_LAYOUT the header had a descriptor of its own. */
    ring_chain(d->rig->tx, at,
               (RingPart[]){{addr, d->header, 0}, {addr + d->header, (uint32_t)size, 0}}, 2);
    offer(d, d->rig->tx, at);
    used = ring_take(d->rig, d->rig->tx);
    g_assert_cmpuint(used.id, ==, at);
}

static void expect_both_ways(LegacyDriver *d, uint32_t seed)
{
    static const uint8_t no_offloads[10];
    Rig *rig = d->rig;
    uint8_t frame[1514];
    uint64_t addr = rig_alloc(rig, 2048);
    uint8_t *buffer = rig_at(rig, addr, 2048);
    struct vring_used_elem used;

    for (size_t size = 60; size <= sizeof(frame); size += 727) {
        frame_fill(frame, size, seed);
        send_frame(d, 2, frame, size);
        rig_peer_expect(rig, frame, size);

        memset(buffer, 0xEE, 2048);
        ring_chain(rig->rx, 4,
                   (RingPart[]){{addr, d->header, VRING_DESC_F_WRITE},
                                {addr + d->header, 2048 - d->header, VRING_DESC_F_WRITE}},
                   2);
        offer(d, rig->rx, 4);
        frame_fill(frame, size, seed + 1);
        rig_peer_send(rig, frame, size);
        used = ring_take(rig, rig->rx);
        g_assert_cmpuint(used.id, ==, 4);
        g_assert_cmpuint(used.len, ==, d->header + size);
        g_assert_cmpmem(buffer, 10, no_offloads, 10);
        if (d->header == 12) {
            g_assert_cmpuint(buffer[10] | buffer[11] << 8, ==, 1); /* num_buffers */
        }
        g_assert_cmpmem(buffer + d->header, size, frame, size);
        g_assert_cmphex(buffer[d->header + size], ==, 0xEE);
    }
}

/* --- the interface --- */

static void test_features(void)
{
    LegacyDriver *d = legacy_open(NULL);
    uint32_t offered = get(d, 4, REG_HOST_FEATURES);
    const unsigned must[] = {VIRTIO_NET_F_MAC,        VIRTIO_NET_F_STATUS,
                             VIRTIO_NET_F_CTRL_VQ,    VIRTIO_NET_F_MRG_RXBUF,
                             F_NOTIFY_ON_EMPTY,       F_ANY_LAYOUT,
                             VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

    for (unsigned i = 0; i < G_N_ELEMENTS(must); i++) {
        g_test_message("bit %u", must[i]);
        g_assert_true(offered & BIT32(must[i]));
    }
    g_assert_true(offered & BIT32(30)); /* drivers that take it are known to take anything */
    legacy_free(d);

    d = legacy_open("notify_on_empty=off,any_layout=off,event_idx=off,mrg_rxbuf=off");
    offered = get(d, 4, REG_HOST_FEATURES);
    g_assert_false(offered & (BIT32(F_NOTIFY_ON_EMPTY) | BIT32(F_ANY_LAYOUT) |
                              BIT32(VIRTIO_RING_F_EVENT_IDX) | BIT32(VIRTIO_NET_F_MRG_RXBUF)));
    legacy_free(d);
}

static void test_short_header(void)
{
    LegacyDriver *d = legacy_new(NULL, BIT32(VIRTIO_NET_F_MAC));

    g_assert_cmpuint(d->header, ==, 10);
    expect_both_ways(d, 1);
    legacy_free(d);
}

static void test_long_header(void)
{
    LegacyDriver *d = legacy_new(NULL, BIT32(VIRTIO_NET_F_MAC) | BIT32(VIRTIO_NET_F_MRG_RXBUF));

    g_assert_cmpuint(d->header, ==, 12);
    expect_both_ways(d, 2);
    legacy_free(d);
}

/* A frame over several mergeable buffers. */
static void test_mergeable(void)
{
    LegacyDriver *d = legacy_new(NULL, BIT32(VIRTIO_NET_F_MRG_RXBUF));
    Rig *rig = d->rig;
    uint64_t addr = rig_alloc(rig, 4 * 512);
    uint8_t frame[1514], got[1514], *buffer = rig_at(rig, addr, 4 * 512);
    size_t done = 0;

    for (uint16_t i = 0; i < 4; i++) {
        ring_set(rig->rx, i, addr + 512 * i, 512, VRING_DESC_F_WRITE, 0);
        ring_offer(rig->rx, i);
    }
    ring_publish(rig->rx);
    kick(d, RIG_RX);
    frame_fill(frame, sizeof(frame), 5);
    rig_peer_send(rig, frame, sizeof(frame));
    g_assert_true(ring_wait_used(rig, rig->rx, 3, RIG_TIMEOUT_MS));
    g_assert_cmpuint(buffer[10] | buffer[11] << 8, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        struct vring_used_elem used = ring_take(rig, rig->rx);
        size_t skip = i == 0 ? 12 : 0;

        memcpy(got + done, buffer + 512 * used.id + skip, used.len - skip);
        done += used.len - skip;
    }
    g_assert_cmpmem(got, done, frame, sizeof(frame));
    legacy_free(d);
}

static void test_queue_registers(void)
{
    LegacyDriver *d = legacy_new("rx_queue_size=1024,tx_queue_size=64", 0);

    put(d, 2, REG_QUEUE_SEL, RIG_RX);
    g_assert_cmpuint(get(d, 2, REG_QUEUE_NUM), ==, 1024);
    put(d, 2, REG_QUEUE_SEL, RIG_TX);
    g_assert_cmpuint(get(d, 2, REG_QUEUE_NUM), ==, 64);
    put(d, 2, REG_QUEUE_SEL, RIG_CTRL);
    g_assert_cmpuint(get(d, 2, REG_QUEUE_NUM), ==, 64);
    g_assert_cmphex(get(d, 4, REG_QUEUE_PFN), ==, 0);
    put(d, 2, REG_QUEUE_SEL, 3);
    g_assert_cmpuint(get(d, 2, REG_QUEUE_NUM), ==, 0);
    expect_both_ways(d, 3);

    /* Page number 0 resets the device. */
    put(d, 2, REG_QUEUE_SEL, RIG_TX);
    put(d, 4, REG_QUEUE_PFN, 0);
    g_assert_cmphex(get(d, 1, REG_STATUS), ==, 0);
    g_assert_cmphex(get(d, 4, REG_GUEST_FEATURES), ==, 0);
    put(d, 2, REG_QUEUE_SEL, RIG_RX);
    g_assert_cmphex(get(d, 4, REG_QUEUE_PFN), ==, 0);
    start(d, 0);
    expect_both_ways(d, 4);

    /* A page outside RAM costs no more than the device. */
    put(d, 1, REG_STATUS, 0);
    put(d, 2, REG_QUEUE_SEL, RIG_TX);
    put(d, 4, REG_QUEUE_PFN, 0xFFFFFFFF);
    put(d, 1, REG_STATUS, 7);
    kick(d, RIG_TX);
    put(d, 1, REG_STATUS, 0);
    start(d, 0);
    expect_both_ways(d, 5);
    legacy_free(d);
}

static void test_configuration(void)
{
    LegacyDriver *d = legacy_new(NULL, BIT32(VIRTIO_NET_F_MAC) | BIT32(VIRTIO_NET_F_STATUS));
    static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

    for (unsigned i = 0; i < 6; i++) {
        g_assert_cmphex(get(d, 1, d->config + i), ==, mac[i]);
    }
    g_assert_cmphex(get(d, 2, d->config + 6) & VIRTIO_NET_S_LINK_UP, ==, VIRTIO_NET_S_LINK_UP);
    /* Before CTRL_MAC_ADDR a driver set its address here. */
    for (unsigned i = 0; i < 6; i++) {
        put(d, 1, d->config + i, mac[i] ^ 0x10);
    }
    for (unsigned i = 0; i < 6; i++) {
        g_assert_cmphex(get(d, 1, d->config + i), ==, mac[i] ^ 0x10);
    }
    legacy_free(d);
}

static void test_isr(void)
{
    LegacyDriver *d = legacy_new(NULL, 0);
    uint8_t frame[60];

    frame_fill(frame, sizeof(frame), 1);
    g_assert_cmphex(get(d, 1, REG_ISR), ==, 0);
    send_frame(d, 0, frame, sizeof(frame));
    rig_peer_expect(d->rig, frame, sizeof(frame));
    g_assert_cmphex(get(d, 1, REG_ISR), ==, 1);
    g_assert_cmphex(get(d, 1, REG_ISR), ==, 0); /* reading clears it */
    d->rig->tx->avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
    send_frame(d, 0, frame, sizeof(frame));
    g_assert_cmphex(get(d, 1, REG_ISR), ==, 0);
    legacy_free(d);
}

/* NOTIFY_ON_EMPTY on the receive ring: with NO_INTERRUPT set, the last buffer interrupts. */
static void test_notify_on_empty_rx(void)
{
    LegacyDriver *d = legacy_new(NULL, BIT32(F_NOTIFY_ON_EMPTY));
    Rig *rig = d->rig;
    uint64_t addr = rig_alloc(rig, 1024);
    uint8_t frame[60];

    frame_fill(frame, sizeof(frame), 1);
    rig->rx->avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
    for (uint16_t i = 0; i < 2; i++) {
        ring_set(rig->rx, i, addr + 512 * i, 512, VRING_DESC_F_WRITE, 0);
        ring_offer(rig->rx, i);
    }
    ring_publish(rig->rx);
    kick(d, RIG_RX);
    for (unsigned i = 0; i < 2; i++) {
        rig_peer_send(rig, frame, sizeof(frame));
        ring_take(rig, rig->rx);
        rig_settle(rig);
        g_assert_cmphex(get(d, 1, REG_ISR), ==, i);
    }
    legacy_free(d);
}

/* With MSI-X on, two vector registers appear and configuration moves behind them. */
static void test_msix(void)
{
    LegacyDriver *d = legacy_open(NULL);
    Rig *rig = d->rig;
    uint64_t word = rig_alloc(rig, 64);
    uint32_t *at = rig_at(rig, word, 4);
    uint8_t frame[60];
    g_autoptr(GError) err = NULL;

    frame_fill(frame, sizeof(frame), 9);
    g_assert_cmphex(get(d, 1, 20), ==, 0x52); /* MAC */
    guest_pci_msix_set_vector(rig->pci, 1, word, 0xABCD, &err);
    g_assert_no_error(err);
    guest_pci_msix_set_enabled(rig->pci, true);
    d->config = 24;
    g_assert_cmphex(get(d, 1, d->config), ==, 0x52);
    g_assert_cmphex(get(d, 2, REG_CONFIG_VECTOR), ==, NO_VECTOR);
    start(d, BIT32(VIRTIO_NET_F_MAC));
    put(d, 2, REG_QUEUE_SEL, RIG_TX);
    g_assert_cmphex(get(d, 2, REG_QUEUE_VECTOR), ==, NO_VECTOR);
    put(d, 2, REG_QUEUE_VECTOR, 77); /* there is none: refused */
    g_assert_cmphex(get(d, 2, REG_QUEUE_VECTOR), ==, NO_VECTOR);
    put(d, 2, REG_QUEUE_VECTOR, 1);
    g_assert_cmphex(get(d, 2, REG_QUEUE_VECTOR), ==, 1);
    send_frame(d, 0, frame, sizeof(frame));
    rig_settle(rig);
    g_assert_cmphex(*at, ==, 0xABCD);
    guest_pci_msix_set_enabled(rig->pci, false);
    g_assert_cmphex(get(d, 1, 20), ==, 0x52);
    legacy_free(d);
}

/* The same device under a legacy and then a modern driver, and back. */
static void test_change_of_drivers(void)
{
    LegacyDriver *d = legacy_new(NULL, BIT32(VIRTIO_NET_F_MRG_RXBUF));
    Rig *rig = d->rig;
    g_autoptr(GError) err = NULL;

    expect_both_ways(d, 1);
    rig->virtio = virtio_driver_new(rig->pci, rig->ram, &err);
    g_assert_no_error(err);
    rig_start(rig);
    rig_expect_working(rig);
    put(d, 1, REG_STATUS, 0);
    put(d, 1, REG_STATUS, 1);
    put(d, 1, REG_STATUS, 3);
    start(d, 0);
    expect_both_ways(d, 2);
    legacy_free(d);
}

/* --- types and options --- */

static bool has_modern(Rig *rig)
{
    return guest_pci_find_capability(rig->pci, PCI_CAP_ID_VNDR, 0) != 0;
}

static bool has_legacy(Rig *rig)
{
    return rig->pci->bars[BAR].size > 0 && rig->pci->bars[BAR].is_io;
}

static void test_options(void)
{
    static const struct {
        const char *device;
        bool legacy, modern;
        uint16_t id;
    } rows[] = {
        {NULL, true, true, 0x1000},
        {"disable-legacy=off", true, true, 0x1000},
        {"disable-legacy=on", false, true, 0x1041},
        {"disable-modern=on", true, false, 0x1000},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        Rig *rig = rig_open(&(RigConfig){.device = rows[i].device, .raw = true});

        g_test_message("%s", rows[i].device ? rows[i].device : "(none)");
        g_assert_cmphex(rig->pci->device_id, ==, rows[i].id);
        g_assert_cmpint(has_legacy(rig), ==, rows[i].legacy);
        g_assert_cmpint(has_modern(rig), ==, rows[i].modern);
        rig_free(rig);
    }
}

static void test_types(void)
{
    static const struct {
        const char *type;
        bool legacy;
        uint16_t id;
    } rows[] = {
        {"virtio-net-pci-transitional", true, 0x1000},
        {"virtio-net-pci-non-transitional", false, 0x1041},
        {"virtio-net", true, 0x1000},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *device = g_strdup_printf("%s,id=nic1,addr=06.0,romfile=", rows[i].type);
        const char *args[] = {"-device", device, NULL};
        Rig *rig = rig_open(&(RigConfig){.args = args, .raw = true});
        g_autoptr(GError) err = NULL;

        g_free(rig->pci);
        rig->pci = guest_pci_device_open(&rig->bus, 0x30, &err);
        g_assert_no_error(err);
        guest_pci_device_enable(rig->pci, &err);
        g_assert_no_error(err);
        g_test_message("%s", rows[i].type);
        g_assert_cmphex(rig->pci->device_id, ==, rows[i].id);
        g_assert_cmpint(has_legacy(rig), ==, rows[i].legacy);
        g_assert_true(has_modern(rig));
        rig_free(rig);
    }
}

static void test_without_modern(void)
{
    LegacyDriver *d = legacy_new("disable-modern=on", BIT32(VIRTIO_NET_F_MRG_RXBUF));

    expect_both_ways(d, 6);
    legacy_free(d);
}

static void test_ioeventfd(gconstpointer device)
{
    LegacyDriver *d = legacy_new(device, 0);

    expect_both_ways(d, 7);
    legacy_free(d);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtio-legacy/features", test_features);
    g_test_add_func("/virtio-legacy/header/10-bytes", test_short_header);
    g_test_add_func("/virtio-legacy/header/12-bytes-with-mergeable", test_long_header);
    g_test_add_func("/virtio-legacy/mergeable-over-3-buffers", test_mergeable);
    g_test_add_func("/virtio-legacy/queue-registers", test_queue_registers);
    g_test_add_func("/virtio-legacy/configuration", test_configuration);
    g_test_add_func("/virtio-legacy/isr", test_isr);
    g_test_add_func("/virtio-legacy/notify-on-empty/last-rx-buffer", test_notify_on_empty_rx);
    g_test_add_func("/virtio-legacy/msix-moves-configuration", test_msix);
    g_test_add_func("/virtio-legacy/modern-driver-after-legacy", test_change_of_drivers);
    g_test_add_data_func("/virtio-legacy/notify/ioeventfd-on", "ioeventfd=on", test_ioeventfd);
    g_test_add_data_func("/virtio-legacy/notify/ioeventfd-off", "ioeventfd=off", test_ioeventfd);
    g_test_add_data_func("/virtio-legacy/notify/burst-1", "x-txburst=1", test_ioeventfd);
    g_test_add_func("/virtio-legacy/options", test_options);
    g_test_add_func("/virtio-legacy/types", test_types);
    g_test_add_func("/virtio-legacy/disable-modern-works", test_without_modern);
    return g_test_run();
}
