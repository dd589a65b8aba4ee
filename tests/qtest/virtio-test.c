/* Modern virtio-pci: status, features, configuration space, queues, MSI-X and INTx. */
#include <linux/pci_regs.h>
#include <linux/virtio_pci.h>
#include <string.h>

#include "tests/lib/rig.h"

#define STATUS_DRIVER       (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER)
#define NO_VECTOR           0xffff
#define COMMON_Q_RESET      58 /* virtio 1.2, section 4.1.4.3 */
#define F_IN_ORDER          35
#define F_NOTIFICATION_DATA 38
#define F_RING_RESET        40
#define F_PACKED            34
#define F_HASH_REPORT       57
#define IRQ                 11

static uint32_t common_rd(Rig *rig, unsigned width, uint32_t offset)
{
    return (uint32_t)guest_pci_bar_read(rig->pci, 4, width, offset);
}

static void common_wr(Rig *rig, unsigned width, uint32_t offset, uint32_t value)
{
    guest_pci_bar_write(rig->pci, 4, width, offset, value);
}

static uint64_t offered(Rig *rig)
{
    uint64_t low;

    common_wr(rig, 4, VIRTIO_PCI_COMMON_DFSELECT, 0);
    low = common_rd(rig, 4, VIRTIO_PCI_COMMON_DF);
    common_wr(rig, 4, VIRTIO_PCI_COMMON_DFSELECT, 1);
    return low | (uint64_t)common_rd(rig, 4, VIRTIO_PCI_COMMON_DF) << 32;
}

static void set_link(Rig *rig, bool up)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(rig->qmp, "set_link", &err,
                                        "{\"name\": \"nic0\", \"up\": %s}", up ? "true" : "false"));
    g_assert_no_error(err);
}

/* One frame into the TX ring and through it; the interrupt it may cause is the caller's. */
static void transmit_one(Rig *rig)
{
    uint8_t frame[60];
    uint64_t addr = rig_alloc(rig, 128);

    frame_fill(frame, sizeof(frame), 0);
    memcpy(rig_at(rig, addr + RIG_HDR, 60), frame, 60);
    ring_set(rig->tx, 0, addr, RIG_HDR + 60, 0, 0);
    ring_send(rig, rig->tx, 0);
    ring_take(rig, rig->tx);
    if (rig->peer >= 0) {
        rig_peer_expect(rig, frame, sizeof(frame));
    }
    rig_settle(rig);
}

/* --- features --- */

static void test_features_offered(void)
{
    static const unsigned must[] = {VIRTIO_NET_F_MAC,
                                    VIRTIO_NET_F_STATUS,
                                    VIRTIO_NET_F_MRG_RXBUF,
                                    VIRTIO_NET_F_CTRL_VQ,
                                    VIRTIO_NET_F_CTRL_RX,
                                    VIRTIO_RING_F_EVENT_IDX,
                                    VIRTIO_RING_F_INDIRECT_DESC,
                                    VIRTIO_F_VERSION_1};
    static const unsigned must_not[] = {F_PACKED,      F_IN_ORDER,      F_NOTIFICATION_DATA,
                                        F_HASH_REPORT, VIRTIO_NET_F_MQ, VIRTIO_NET_F_MTU};
    Rig *rig = rig_open(NULL);
    uint64_t features = offered(rig);

    for (unsigned i = 0; i < G_N_ELEMENTS(must); i++) {
        g_assert_cmphex(features & RIG_FEATURE(must[i]), !=, 0);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(must_not); i++) {
        g_assert_cmphex(features & RIG_FEATURE(must_not[i]), ==, 0);
    }
    common_wr(rig, 4, VIRTIO_PCI_COMMON_DFSELECT, 77);
    g_assert_cmphex(common_rd(rig, 4, VIRTIO_PCI_COMMON_DF), ==, 0);
    rig_free(rig);
}

static void test_features_by_property(void)
{
    Rig *rig = rig_open(&(RigConfig){
        .device = "mrg_rxbuf=off,event_idx=off,indirect_desc=off,status=off,host_mtu=1400"});
    uint64_t features = offered(rig);

    g_assert_cmphex(features & RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF), ==, 0);
    g_assert_cmphex(features & RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX), ==, 0);
    g_assert_cmphex(features & RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC), ==, 0);
    g_assert_cmphex(features & RIG_FEATURE(VIRTIO_NET_F_STATUS), ==, 0);
    g_assert_cmphex(features & RIG_FEATURE(VIRTIO_NET_F_MTU), !=, 0);
    rig_start(rig);
    g_assert_cmpuint(virtio_driver_config_read(rig->virtio, 2, 10), ==, 1400);
    rig_free(rig);
}

static uint8_t accept_features(Rig *rig, uint64_t features)
{
    for (uint32_t i = 0; i < 2; i++) {
        common_wr(rig, 4, VIRTIO_PCI_COMMON_GFSELECT, i);
        common_wr(rig, 4, VIRTIO_PCI_COMMON_GF, (uint32_t)(features >> (32 * i)));
    }
    virtio_driver_set_status(rig->virtio, STATUS_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK);
    return virtio_driver_status(rig->virtio);
}

/* FEATURES_OK says no to bits that were not offered (1.2, section 2.2.2). */
static void test_features_not_offered_are_refused(void)
{
    Rig *rig = rig_open(NULL);
    uint64_t all = offered(rig);
    GError *err = NULL;

    for (unsigned bit = 0; bit < 64; bit++) {
        if (!rig->is_swnic || all & RIG_FEATURE(bit)) {
            continue; /* QEMU masks them silently */
        }
        g_assert_cmphex(accept_features(rig, all | RIG_FEATURE(bit)), ==, STATUS_DRIVER);
    }
    virtio_driver_reset(rig->virtio, &err);
    g_assert_no_error(err);
    virtio_driver_set_status(rig->virtio, STATUS_DRIVER);
    g_assert_cmphex(accept_features(rig, all), ==, STATUS_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK);
    rig_restart(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_status_reset(void)
{
    Rig *rig = rig_new(NULL);

    rig_expect_working(rig);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
    virtio_driver_set_status(rig->virtio, 0);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0);
    for (uint16_t i = 0; i < RIG_QUEUES; i++) {
        common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, i);
        g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_ENABLE), ==, 0);
        g_assert_cmphex(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_MSIX), ==, NO_VECTOR);
        g_assert_cmphex(common_rd(rig, 4, VIRTIO_PCI_COMMON_Q_DESCLO), ==, 0);
    }
    g_assert_cmphex(common_rd(rig, 2, VIRTIO_PCI_COMMON_MSIX), ==, NO_VECTOR);
    virtio_driver_set_status(rig->virtio, STATUS_DRIVER);
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_status_system_reset(void)
{
    Rig *rig = rig_new(NULL);
    GError *err = NULL;

    json_object_put(qmp_client_execute(rig->qmp, "system_reset", NULL, &err));
    g_assert_no_error(err);
    json_object_put(qmp_client_wait_event(rig->qmp, "RESET", RIG_TIMEOUT_MS, &err));
    g_assert_no_error(err);
    virtio_driver_free(rig->virtio);
    guest_pci_bus_init(&rig->bus, rig->qtest);
    rig->virtio = virtio_driver_new(rig->pci, rig->ram, &err);
    g_assert_no_error(err);
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

/* --- queues --- */

static void test_queue_registers(void)
{
    Rig *rig = rig_open(&(RigConfig){.device = "rx_queue_size=512"});

    g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_NUMQ), ==, 3);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, 0);
    g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE), ==, 512);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, 1);
    g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE), ==, 256);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE, 64);
    g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE), ==, 64);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, 3);
    g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE), ==, 0);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, 0xffff);
    g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE), ==, 0);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_ENABLE, 1);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE, 256);
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

/* Sizes that a split ring cannot have are not taken. */
static void test_queue_bad_sizes(void)
{
    static const uint16_t bad[] = {0, 3, 100, 257, 512, 1024, 0x8000, 0xffff};
    Rig *rig = rig_open(NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, 1);
        common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE, bad[i]);
        if (rig->is_swnic) {
            g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_SIZE), ==, 256);
        }
    }
    rig_restart(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_queue_small_rings(void)
{
    for (uint16_t size = 2; size <= 256; size *= 2) {
        Rig *rig = rig_new(&(RigConfig){.rx_size = size, .tx_size = size});

        for (unsigned i = 0; i < 10; i++) {
            rig_expect_working(rig);
        }
        rig_free(rig);
    }
}

static void test_queue_large_rings(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "rx_queue_size=1024,tx_queue_size=256"});

    g_assert_cmpuint(rig->rx->size, ==, 1024);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_queue_reset(void)
{
    Rig *rig = rig_new(&(RigConfig){.features = RIG_FEATURE(F_RING_RESET)});
    GError *err = NULL;

    g_assert_true(virtio_driver_has_feature(rig->virtio, F_RING_RESET));
    rig_expect_working(rig);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, RIG_TX);
    common_wr(rig, 2, COMMON_Q_RESET, 1);
    g_assert_cmpuint(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_ENABLE), ==, 0);
    driver_queue_free(rig->tx);
    rig->queues[RIG_TX] = rig->tx = virtio_driver_setup_queue(rig->virtio, RIG_TX, 128, 2, &err);
    g_assert_no_error(err);
    rig_expect_working(rig);
    rig_free(rig);
}

/* --- configuration space --- */

static void test_config_mac(void)
{
    static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
    Rig *rig = rig_new(NULL);

    for (uint32_t i = 0; i < 6; i++) {
        g_assert_cmphex(virtio_driver_config_read(rig->virtio, 1, i), ==, mac[i]);
    }
    g_assert_cmphex(virtio_driver_config_read(rig->virtio, 4, 0), ==, 0x12005452);
    g_assert_cmphex(virtio_driver_config_read(rig->virtio, 2, 4), ==, 0x5634);
    /* With VERSION_1 it is the control queue that changes it. */
    virtio_driver_config_write(rig->virtio, 1, 0, 0xff);
    g_assert_cmphex(virtio_driver_config_read(rig->virtio, 1, 0), ==, 0x52);
    for (uint32_t i = 0; i < 0x1000; i += 7) {
        virtio_driver_config_read(rig->virtio, 4, i);
        virtio_driver_config_write(rig->virtio, 4, i, 0xffffffff);
    }
    g_assert_cmphex(virtio_driver_config_read(rig->virtio, 4, 0), ==, 0x12005452);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_config_link(void)
{
    Rig *rig = rig_new(NULL);
    uint32_t generation = common_rd(rig, 1, VIRTIO_PCI_COMMON_CFGGENERATION);

    g_assert_cmpuint(virtio_driver_config_read(rig->virtio, 2, 6), ==, VIRTIO_NET_S_LINK_UP);
    virtio_driver_take_interrupt(rig->virtio, 0);
    set_link(rig, false);
    rig_settle(rig);
    g_assert_cmpuint(virtio_driver_config_read(rig->virtio, 2, 6), ==, 0);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 0));
    g_assert_cmpuint(common_rd(rig, 1, VIRTIO_PCI_COMMON_CFGGENERATION), !=, generation);
    set_link(rig, false); /* as it was: nothing to tell */
    rig_settle(rig);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 0));
    set_link(rig, true);
    rig_settle(rig);
    g_assert_cmpuint(virtio_driver_config_read(rig->virtio, 2, 6), ==, VIRTIO_NET_S_LINK_UP);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 0));
    rig_expect_working(rig);
    rig_free(rig);
}

/* --- MSI-X --- */

static void test_msix_vector_per_queue(void)
{
    Rig *rig = rig_new(NULL);

    for (unsigned i = 0; i < 4; i++) {
        virtio_driver_take_interrupt(rig->virtio, i);
    }
    transmit_one(rig);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 2));
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 0));
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 1));
    rig_post_buffer(rig, 0, 2048);
    rig_peer_send(rig, "0123456789abcdef", 16);
    ring_take(rig, rig->rx);
    rig_settle(rig);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 1));
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 2));
    rig_free(rig);
}

static void test_msix_vector_out_of_range(void)
{
    Rig *rig = rig_new(NULL);

    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, RIG_TX);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_MSIX, 4);
    g_assert_cmphex(common_rd(rig, 2, VIRTIO_PCI_COMMON_Q_MSIX), ==, NO_VECTOR);
    common_wr(rig, 2, VIRTIO_PCI_COMMON_MSIX, 0x1234);
    g_assert_cmphex(common_rd(rig, 2, VIRTIO_PCI_COMMON_MSIX), ==, NO_VECTOR);
    virtio_driver_take_interrupt(rig->virtio, 2);
    transmit_one(rig);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 2));
    set_link(rig, false);
    set_link(rig, true);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_msix_two_queues_one_vector(void)
{
    Rig *rig = rig_new(NULL);

    for (uint16_t i = 0; i < 2; i++) {
        common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_SELECT, i);
        common_wr(rig, 2, VIRTIO_PCI_COMMON_Q_MSIX, 3);
    }
    virtio_driver_take_interrupt(rig->virtio, 3);
    transmit_one(rig);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 3));
    rig_free(rig);
}

static void test_msix_masks_and_pending(void)
{
    Rig *rig = rig_new(NULL);

    virtio_driver_take_interrupt(rig->virtio, 2);
    guest_pci_msix_set_mask(rig->pci, 2, true);
    transmit_one(rig);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 2));
    g_assert_true(guest_pci_msix_is_pending(rig->pci, 2));
    g_assert_false(guest_pci_msix_is_pending(rig->pci, 1));
    guest_pci_msix_set_mask(rig->pci, 2, false);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 2));
    g_assert_false(guest_pci_msix_is_pending(rig->pci, 2));

    guest_pci_msix_set_function_mask(rig->pci, true);
    transmit_one(rig);
    g_assert_false(virtio_driver_take_interrupt(rig->virtio, 2));
    g_assert_true(guest_pci_msix_is_pending(rig->pci, 2));
    guest_pci_msix_set_function_mask(rig->pci, false);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 2));
    rig_free(rig);
}

/* --- when a used buffer interrupts --- */

static void test_no_interrupt_flag(void)
{
    Rig *rig = rig_new(NULL);

    for (unsigned i = 0; i < 3; i++) {
        rig->tx->avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
        virtio_driver_take_interrupt(rig->virtio, 2);
        transmit_one(rig);
        g_assert_false(virtio_driver_take_interrupt(rig->virtio, 2));
        rig->tx->avail->flags = 0;
        transmit_one(rig);
        g_assert_true(virtio_driver_take_interrupt(rig->virtio, 2));
    }
    rig_free(rig);
}

/* The interrupt comes when the used index passes used_event, and for no other entry. */
static void test_event_idx(void)
{
    Rig *rig =
        rig_new(&(RigConfig){.no_peer = true, .features = RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX)});

    /* Up to the wrap of the index in big steps, then over it one by one. */
    while (rig->tx->used_next < 65536 - 300) {
        for (unsigned i = 0; i < rig->tx->size; i++) {
            ring_set(rig->tx, (uint16_t)i, 0x10000, 72, 0, 0);
            ring_offer(rig->tx, (uint16_t)i);
        }
        ring_publish(rig->tx);
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        g_assert_true(ring_wait_used(rig, rig->tx, rig->tx->size, RIG_TIMEOUT_MS));
        rig->tx->used_next += rig->tx->size;
    }
    for (unsigned i = 0; i < 120; i++) {
        uint16_t now = rig->tx->used_next;

        *rig->tx->used_event = (uint16_t)(now + 3);
        for (unsigned k = 0; k < 6; k++) {
            virtio_driver_take_interrupt(rig->virtio, 2);
            transmit_one(rig);
            g_assert_cmpint(virtio_driver_take_interrupt(rig->virtio, 2), ==, k == 3);
        }
    }
    rig_free(rig);
}

/* --- INTx --- */

static Rig *intx_rig(const char *device)
{
    Rig *rig = rig_new(&(RigConfig){.intx = true, .device = device});
    GError *err = NULL;

    /* Slot 4, pin A is PIRQ D. */
    guest_pci_bus_write(&rig->bus, 0, 0x08, 1, 0x63, IRQ);
    qtest_client_irq_intercept_in(rig->qtest, "ioapic", &err);
    g_assert_no_error(err);
    return rig;
}

static void test_intx(gconstpointer device)
{
    Rig *rig = intx_rig(device);

    for (unsigned i = 0; i < 3; i++) {
        transmit_one(rig);
        g_assert_true(qtest_client_irq_wait(rig->qtest, IRQ, true, RIG_TIMEOUT_MS));
        g_assert_cmphex(guest_pci_config_read(rig->pci, 2, PCI_STATUS) & PCI_STATUS_INTERRUPT, !=,
                        0);
        g_assert_cmphex(virtio_driver_read_isr(rig->virtio), ==, 1);
        g_assert_true(qtest_client_irq_wait(rig->qtest, IRQ, false, RIG_TIMEOUT_MS));
        g_assert_cmphex(virtio_driver_read_isr(rig->virtio), ==, 0);
    }
    set_link(rig, false);
    g_assert_true(qtest_client_irq_wait(rig->qtest, IRQ, true, RIG_TIMEOUT_MS));
    g_assert_cmphex(virtio_driver_read_isr(rig->virtio) & 2, ==, 2);
    g_assert_true(qtest_client_irq_wait(rig->qtest, IRQ, false, RIG_TIMEOUT_MS));
    rig_free(rig);
}

static void test_intx_disable(void)
{
    Rig *rig = intx_rig(NULL);

    guest_pci_config_write(rig->pci, 2, PCI_COMMAND, 0x7 | PCI_COMMAND_INTX_DISABLE);
    transmit_one(rig);
    g_assert_false(qtest_client_irq_level(rig->qtest, IRQ));
    g_assert_cmphex(guest_pci_config_read(rig->pci, 2, PCI_STATUS) & PCI_STATUS_INTERRUPT, !=, 0);
    guest_pci_config_write(rig->pci, 2, PCI_COMMAND, 0x7);
    g_assert_true(qtest_client_irq_wait(rig->qtest, IRQ, true, RIG_TIMEOUT_MS));
    virtio_driver_set_status(rig->virtio, 0); /* a reset lowers it */
    g_assert_true(qtest_client_irq_wait(rig->qtest, IRQ, false, RIG_TIMEOUT_MS));
    rig_free(rig);
}

static void test_intx_unrouted_is_silent(void)
{
    Rig *rig = intx_rig(NULL);

    guest_pci_bus_write(&rig->bus, 0, 0x08, 1, 0x63, 0x80);
    transmit_one(rig);
    g_assert_cmpuint(qtest_client_irq_raises(rig->qtest, IRQ), ==, 0);
    guest_pci_bus_write(&rig->bus, 0, 0x08, 1, 0x63, IRQ);
    g_assert_true(qtest_client_irq_wait(rig->qtest, IRQ, true, RIG_TIMEOUT_MS));
    rig_free(rig);
}

/* --- anything, anywhere --- */

static void test_random_accesses(void)
{
    Rig *rig = rig_new(NULL);
    GRand *rand = g_rand_new_with_seed(4711);

    for (unsigned i = 0; i < 5000; i++) {
        static const unsigned bars[] = {4, 4, 4, 0, 1};
        unsigned bar = bars[g_rand_int(rand) % 5];
        unsigned width = 1u << (g_rand_int(rand) % (bar ? 4 : 3));
        uint64_t size = rig->pci->bars[bar].size;
        uint64_t offset = g_rand_int(rand) % (bar == 4 && g_rand_boolean(rand) ? 64 : size);

        if (offset + width > size) {
            continue;
        }
        if (g_rand_boolean(rand)) {
            guest_pci_bar_read(rig->pci, bar, width, offset);
        } else {
            guest_pci_bar_write(rig->pci, bar, width, offset,
                                g_rand_boolean(rand) ? g_rand_int(rand) : g_rand_int(rand) % 4);
        }
        if (i % 500 == 0) {
            rig_check(rig);
        }
    }
    g_rand_free(rand);
    rig_restart(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtio/features/offered", test_features_offered);
    g_test_add_func("/virtio/features/by-property", test_features_by_property);
    g_test_add_func("/virtio/features/not-offered-are-refused",
                    test_features_not_offered_are_refused);
    g_test_add_func("/virtio/status/reset", test_status_reset);
    g_test_add_func("/virtio/status/system-reset", test_status_system_reset);
    g_test_add_func("/virtio/queue/registers", test_queue_registers);
    g_test_add_func("/virtio/queue/bad-sizes-are-not-taken", test_queue_bad_sizes);
    g_test_add_func("/virtio/queue/rings-from-2-entries", test_queue_small_rings);
    g_test_add_func("/virtio/queue/rings-of-1024-entries", test_queue_large_rings);
    g_test_add_func("/virtio/queue/reset-of-one", test_queue_reset);
    g_test_add_func("/virtio/config/mac", test_config_mac);
    g_test_add_func("/virtio/config/link-status", test_config_link);
    g_test_add_func("/virtio/msix/one-vector-a-queue", test_msix_vector_per_queue);
    g_test_add_func("/virtio/msix/vector-out-of-range", test_msix_vector_out_of_range);
    g_test_add_func("/virtio/msix/two-queues-one-vector", test_msix_two_queues_one_vector);
    g_test_add_func("/virtio/msix/masks-and-pending", test_msix_masks_and_pending);
    g_test_add_func("/virtio/interrupt/no-interrupt-flag", test_no_interrupt_flag);
    g_test_add_func("/virtio/interrupt/event-idx", test_event_idx);
    g_test_add_data_func("/virtio/intx/raise-and-acknowledge", NULL, test_intx);
    g_test_add_data_func("/virtio/intx/vectors-0", "vectors=0", test_intx);
    g_test_add_func("/virtio/intx/disable-bit", test_intx_disable);
    g_test_add_func("/virtio/intx/unrouted-is-silent", test_intx_unrouted_is_silent);
    g_test_add_func("/virtio/random-accesses-then-reset-works", test_random_accesses);
    return g_test_run();
}
