/*
 * virtio-pci's modern interface register by register: layout, negotiation, queues, vectors, ISR,
 * the PCI_CFG window, and what stops a device.
 */
#include "tests/unit/virtio-pci-rig.h"

/* --- layout --- */

typedef struct Cap {
    unsigned at, type, length, bar;
    uint32_t offset, size;
} Cap;

static void assert_caps(Rig *rig, const Cap *caps, unsigned count)
{
    unsigned at = rig->pci->config[PCI_CAPABILITY_LIST];

    for (unsigned i = 0; i < count; i++) {
        const uint8_t *p = rig->pci->config + at;

        g_assert_cmphex(at, ==, caps[i].at);
        if (caps[i].type == 0) {
            g_assert_cmpuint(p[0], ==, PCI_CAP_ID_MSIX);
        } else {
            g_assert_cmpuint(p[0], ==, PCI_CAP_ID_VNDR);
            g_assert_cmpuint(p[VIRTIO_PCI_CAP_CFG_TYPE], ==, caps[i].type);
            g_assert_cmpuint(p[VIRTIO_PCI_CAP_LEN], ==, caps[i].length);
            g_assert_cmpuint(p[VIRTIO_PCI_CAP_BAR], ==, caps[i].bar);
            g_assert_cmphex(pci_get_long(p + VIRTIO_PCI_CAP_OFFSET), ==, caps[i].offset);
            g_assert_cmphex(pci_get_long(p + VIRTIO_PCI_CAP_LENGTH), ==, caps[i].size);
        }
        at = p[PCI_CAP_LIST_NEXT];
    }
    g_assert_cmphex(at, ==, 0);
}

static void assert_ids(Rig *rig, uint16_t device, uint8_t revision, uint16_t subsystem)
{
    g_assert_cmphex(pci_config_read(rig->pci, PCI_VENDOR_ID, 2), ==, 0x1af4);
    g_assert_cmphex(pci_config_read(rig->pci, PCI_DEVICE_ID, 2), ==, device);
    g_assert_cmphex(pci_config_read(rig->pci, PCI_REVISION_ID, 1), ==, revision);
    g_assert_cmphex(pci_config_read(rig->pci, PCI_SUBSYSTEM_VENDOR_ID, 2), ==, 0x1af4);
    g_assert_cmphex(pci_config_read(rig->pci, PCI_SUBSYSTEM_ID, 2), ==, subsystem);
    g_assert_cmphex(pci_config_read(rig->pci, PCI_INTERRUPT_PIN, 1), ==, 1);
}

static void test_layout(void)
{
    static const Cap caps[] = {
        {0x98, 0, 0, 0, 0, 0},
        {0x84, VIRTIO_PCI_CAP_PCI_CFG, 20, 0, 0, 0},
        {0x70, VIRTIO_PCI_CAP_NOTIFY_CFG, 20, 4, 0x3000, 0x1000},
        {0x60, VIRTIO_PCI_CAP_DEVICE_CFG, 16, 4, 0x2000, 0x1000},
        {0x50, VIRTIO_PCI_CAP_ISR_CFG, 16, 4, 0x1000, 0x1000},
        {0x40, VIRTIO_PCI_CAP_COMMON_CFG, 16, 4, 0, 0x1000},
    };
    Rig *rig = rig_new("dummy-pci", "{}");

    assert_ids(rig, 0x1000, 0, VIRTIO_ID_NET);
    assert_caps(rig, caps, G_N_ELEMENTS(caps));
    g_assert_cmphex(pci_get_long(rig->pci->config + 0x70 + VIRTIO_PCI_NOTIFY_CAP_MULT), ==, 4);
    g_assert_cmphex(pci_get_word(rig->pci->config + 0x98 + PCI_MSIX_FLAGS), ==, 3);
    g_assert_cmphex(rig->pci->bars[0].size, ==, 32);
    g_assert_cmphex(rig->pci->bars[0].type, ==, PCI_BASE_ADDRESS_SPACE_IO);
    g_assert_cmphex(rig->pci->bars[1].size, ==, 4096);
    g_assert_cmphex(rig->pci->bars[4].size, ==, 0x4000);
    g_assert_cmphex(rig->pci->bars[4].type, ==,
                    PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH);
    rig_free(rig);
}

static void test_variants(void)
{
    static const Cap legacy_only[] = {{0x40, 0, 0, 0, 0, 0}};
    Rig *rig = rig_new("dummy-pci-transitional", "{}");

    assert_ids(rig, 0x1000, 0, VIRTIO_ID_NET);
    g_assert_nonnull(rig->pci->bars[0].region);
    g_assert_nonnull(rig->pci->bars[4].region);
    rig_free(rig);

    rig = rig_new("dummy-pci-non-transitional", "{}");
    assert_ids(rig, 0x1041, 1, 0x1100);
    g_assert_null(rig->pci->bars[0].region);
    rig_free(rig);

    rig = rig_new("dummy-pci", "{'disable-legacy': 'on'}");
    assert_ids(rig, 0x1041, 1, 0x1100);
    rig_free(rig);

    rig = rig_new("dummy-pci", "{'disable-modern': true}");
    assert_ids(rig, 0x1000, 0, VIRTIO_ID_NET);
    assert_caps(rig, legacy_only, 1);
    g_assert_null(rig->pci->bars[4].region);
    g_assert_cmphex(lrd(rig, VIRTIO_PCI_HOST_FEATURES, 4) >> 30 & 1, ==, 1);
    g_assert_true((rig->vdev->host_features >> 32) == 0);
    rig_free(rig);
}

static void test_layout_options(void)
{
    static const Cap pio[] = {
        {0xac, 0, 0, 0, 0, 0},
        {0x98, VIRTIO_PCI_CAP_PCI_CFG, 20, 0, 0, 0},
        {0x84, VIRTIO_PCI_CAP_NOTIFY_CFG, 20, 2, 0, 4},
        {0x70, VIRTIO_PCI_CAP_NOTIFY_CFG, 20, 4, 0x3000, 0x400000},
        {0x60, VIRTIO_PCI_CAP_DEVICE_CFG, 16, 4, 0x2000, 0x1000},
        {0x50, VIRTIO_PCI_CAP_ISR_CFG, 16, 4, 0x1000, 0x1000},
        {0x40, VIRTIO_PCI_CAP_COMMON_CFG, 16, 4, 0, 0x1000},
    };
    Rig *rig = rig_new("dummy-pci", "{'page-per-vq': true, 'modern-pio-notify': true}");

    assert_caps(rig, pio, G_N_ELEMENTS(pio));
    g_assert_cmphex(rig->pci->bars[4].size, ==, 0x800000);
    g_assert_cmphex(pci_get_long(rig->pci->config + 0x70 + VIRTIO_PCI_NOTIFY_CAP_MULT), ==, 0x1000);
    g_assert_cmphex(pci_get_long(rig->pci->config + 0x84 + VIRTIO_PCI_NOTIFY_CAP_MULT), ==, 0);
    drive(rig, BASIC);
    wr(rig, NOTIFY + 0x1000, 1, 2);
    g_assert_cmpuint(rig->dummy->handled[1], ==, 1);
    io_region_write(&rig->proxy->pio_notify_bar, 0, 1, 2);
    g_assert_cmpuint(rig->dummy->handled[1], ==, 2);
    io_region_write(&rig->proxy->pio_notify_bar, 0, 0xffff, 2);
    rig_free(rig);

    rig = rig_new("dummy-pci", "{'vectors': 0}");
    g_assert_cmphex(rig->pci->config[PCI_CAPABILITY_LIST], ==, 0x84);
    g_assert_false(msix_present(rig->pci));
    rig_free(rig);
}

static void test_refused_options(void)
{
    static const struct {
        const char *options, *word;
    } rows[] = {
        {"{'disable-modern': true, 'disable-legacy': 'on'}", "disable-modern"},
        {"{'iommu_platform': true}", "iommu_platform"},
        {"{'vectors': 2049}", "vectors"},
        {"{'fail': true}", "dummy fails"},
        {"{'nonsense': 1}", "nonsense"},
    };
    Rig *rig = rig_empty();

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) err = NULL;

        g_assert_null(device_try(rig, "dummy-pci", rows[i].options, &err));
        g_assert_nonnull(err);
        g_assert_nonnull(strstr(err->message, rows[i].word));
        g_assert_null(strchr(err->message, '\n'));
    }
    rig_free(rig);
}

/* --- negotiation --- */

static void test_features(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");
    uint64_t features = offered(rig);

    g_assert_true(features & VIRTIO_FEATURE(VIRTIO_F_VERSION_1));
    g_assert_true(features & VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX));
    g_assert_true(features & VIRTIO_FEATURE(VIRTIO_RING_F_INDIRECT_DESC));
    g_assert_true(features & VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
    g_assert_true(features & VIRTIO_FEATURE(DUMMY_NEW));
    g_assert_false(features & VIRTIO_FEATURE(DUMMY_GSO));
    g_assert_false(features & VIRTIO_FEATURE(VIRTIO_F_NOTIFY_ON_EMPTY));
    g_assert_false(features & VIRTIO_FEATURE(VIRTIO_F_ANY_LAYOUT));
    g_assert_false(features & VIRTIO_FEATURE(VIRTIO_F_RING_PACKED));
    g_assert_false(features & VIRTIO_FEATURE(VIRTIO_F_IN_ORDER));
    g_assert_false(features & VIRTIO_FEATURE(VIRTIO_F_NOTIFICATION_DATA));
    wr(rig, VIRTIO_PCI_COMMON_DFSELECT, 4, 4);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_DF, 4), ==, 0);

    g_assert_cmphex(negotiate(rig, BASIC), ==, S_ACK | S_DRIVER | S_FEATURES);
    g_assert_true(rig->vdev->guest_features == BASIC);
    /* Too late. */
    wr(rig, VIRTIO_PCI_COMMON_GF, 0, 4);
    g_assert_true(rig->vdev->guest_features == BASIC);
    /* Not offered, in words that exist and in words that do not. */
    g_assert_cmphex(negotiate(rig, BASIC | VIRTIO_FEATURE(1)), ==, S_ACK | S_DRIVER);
    g_assert_cmphex(negotiate(rig, BASIC | VIRTIO_FEATURE(DUMMY_GSO)), ==, S_ACK | S_DRIVER);
    wr(rig, VIRTIO_PCI_COMMON_GFSELECT, 0, 4);
    wr(rig, VIRTIO_PCI_COMMON_GF, 0, 4);
    wr(rig, VIRTIO_PCI_COMMON_STATUS, S_ACK | S_DRIVER | S_FEATURES, 1);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_STATUS, 1), ==, S_ACK | S_DRIVER | S_FEATURES);
    /* The device's own reasons. */
    rig->dummy->refuse = true;
    g_assert_cmphex(negotiate(rig, BASIC), ==, S_ACK | S_DRIVER);
    rig_free(rig);
}

static void test_iommu_platform(void)
{
    Rig *rig = rig_new("dummy-pci", "{'iommu_platform': true, 'disable-legacy': 'on'}");

    g_assert_cmphex(negotiate(rig, BASIC), ==, S_ACK | S_DRIVER);
    g_assert_cmphex(negotiate(rig, BASIC | VIRTIO_FEATURE(VIRTIO_F_ACCESS_PLATFORM)), ==,
                    S_ACK | S_DRIVER | S_FEATURES);
    rig_free(rig);
}

/* --- registers --- */

static void test_widths(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");

    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 1, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_DESCLO, 0x1122334455667788ull, 8);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_DESCLO, 4), ==, 0x55667788);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_DESCHI, 4), ==, 0x11223344);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_DESCHI, 2), ==, 0x3344);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_DESCHI + 1, 1), ==, 0x33);
    g_assert_true(io_region_read(&rig->proxy->modern_bar, VIRTIO_PCI_COMMON_Q_DESCLO, 8) ==
                  0x1122334455667788ull);
    /* Select and size in one. */
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_SELECT, 4), ==, DUMMY_QUEUE_SIZE << 16 | 1);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 8 << 16 | 2, 4);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_SELECT, 4), ==, 8 << 16 | 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_NUMQ, 2), ==, DUMMY_QUEUES);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_NOFF, 2), ==, 2);
    /* Sizes that are not allowed; queues that do not exist; nothing behind the registers. */
    wr(rig, VIRTIO_PCI_COMMON_Q_SIZE, 12, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_SIZE, 32, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_SIZE, 0, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_SIZE, 2), ==, 8);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 3, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_SIZE, 2), ==, 0);
    wr(rig, VIRTIO_PCI_COMMON_Q_ENABLE, 1, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_ENABLE, 2), ==, 0);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 0xffff, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_SELECT, 2), ==, 3);
    for (unsigned offset = 0; offset < 0x4000; offset += offset < 0x80 ? 1 : 61) {
        for (unsigned size = 1; size <= 8; size *= 2) {
            (void)rd(rig, offset, size);
        }
    }
    rig_free(rig);
}

/* Any write anywhere ends in no crash. */
static void test_random_writes(void)
{
    Rig *rig = rig_new("dummy-pci", "{'modern-pio-notify': true}");
    GRand *rand = g_rand_new_with_seed(7);

    rig->dummy->push = true;
    for (unsigned i = 0; i < 200000; i++) {
        unsigned size = 1u << g_rand_int_range(rand, 0, 4);
        uint64_t value = g_rand_boolean(rand) ? (uint64_t)g_rand_int_range(rand, 0, 16)
                                              : (uint64_t)g_rand_int(rand) << 32 | g_rand_int(rand);

        switch (g_rand_int_range(rand, 0, 4)) {
        case 0:
            wr(rig, (unsigned)g_rand_int_range(rand, 0, 0x40), value, size);
            break;
        case 1:
            wr(rig, (unsigned)g_rand_int_range(rand, 0, 0x4000), value, size);
            break;
        case 2:
            lwr(rig, (unsigned)g_rand_int_range(rand, 0, 32), (uint32_t)value, MIN(size, 4));
            break;
        default:
            pci_config_write(rig->pci, (unsigned)g_rand_int_range(rand, 0, 256), (uint32_t)value,
                             MIN(size, 4));
        }
        if (i % 64 == 0) {
            spin(1);
        }
    }
    g_rand_free(rand);
    rig_free(rig);
}

static void test_device_config(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");
    uint32_t generation = rd(rig, VIRTIO_PCI_COMMON_CFGGENERATION, 1);

    memcpy(rig->dummy->config, "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
    g_assert_cmphex(rd(rig, DEVICE_CFG, 4), ==, 0x04030201);
    g_assert_cmphex(rd(rig, DEVICE_CFG + 5, 2), ==, 0x0706);
    g_assert_cmphex(rd(rig, DEVICE_CFG + 7, 1), ==, 8);
    g_assert_cmphex(rd(rig, DEVICE_CFG + 7, 2), ==, 0xffff);
    g_assert_cmphex(rd(rig, DEVICE_CFG + 8, 4), ==, 0xffffffff);
    wr(rig, DEVICE_CFG + 2, 0xbbaa, 2);
    wr(rig, DEVICE_CFG + 7, 0xffff, 2);
    g_assert_cmphex(rd(rig, DEVICE_CFG, 4), ==, 0xbbaa0201);
    g_assert_cmphex(rd(rig, DEVICE_CFG + 7, 1), ==, 8);
    drive(rig, BASIC);
    virtio_notify_config(rig->vdev);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_CFGGENERATION, 1), !=, generation);
    g_assert_cmphex(rd(rig, ISR, 1), ==, VIRTIO_ISR_CONFIG);
    rig_free(rig);
}

/* --- queues and interrupts --- */

static void test_queue_runs(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");

    rig->dummy->push = true;
    drive(rig, BASIC);
    g_assert_true(rig->dummy->running);
    offer(rig, 1);
    kick(rig, 1);
    g_assert_cmpuint(rig->dummy->handled[1], ==, 1);
    g_assert_cmpuint(((struct vring_used *)(rig->ram + USED(1)))->idx, ==, 1);
    /* INTx rises, and reading the ISR lowers it. */
    g_assert_cmpint(rig->host.irq[0], ==, 1);
    g_assert_cmphex(rd(rig, ISR, 1), ==, VIRTIO_ISR_QUEUE);
    g_assert_cmpint(rig->host.irq[0], ==, 0);
    g_assert_cmphex(rd(rig, ISR, 1), ==, 0);
    /* Any width notifies; queues that do not exist do not. */
    wr(rig, NOTIFY, 0, 4);
    wr(rig, NOTIFY, 0, 1);
    wr(rig, NOTIFY, 0, 8);
    g_assert_cmpuint(rig->dummy->handled[0], ==, 3);
    wr(rig, NOTIFY + 4 * DUMMY_QUEUES, 0, 2);
    wr(rig, NOTIFY + 0xffc, 0, 2);
    /* The line falls with a reset too. */
    offer(rig, 1);
    kick(rig, 1);
    g_assert_cmpint(rig->host.irq[0], ==, 1);
    wr(rig, VIRTIO_PCI_COMMON_STATUS, 0, 1);
    g_assert_cmpint(rig->host.irq[0], ==, 0);
    g_assert_false(rig->dummy->running);
    kick(rig, 1);
    g_assert_cmpuint(rig->dummy->handled[1], ==, 2);
    rig_free(rig);
}

static void test_vectors(void)
{
    Rig *rig = rig_new("dummy-pci", "{'vectors': 2}");

    rig->dummy->push = true;
    drive(rig, BASIC);
    enable_msix(rig);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_MSIX, 2), ==, VIRTIO_NO_VECTOR);
    wr(rig, VIRTIO_PCI_COMMON_MSIX, 0, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_MSIX, 2), ==, 0);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 0, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_MSIX, 1, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_MSIX, 2), ==, 1);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 1, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_MSIX, 2, 2); /* one too many */
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_MSIX, 2), ==, VIRTIO_NO_VECTOR);
    g_assert_cmpuint(rig->pci->msix.users[1], ==, 1);

    offer(rig, 0);
    kick(rig, 0);
    g_assert_cmpuint(rig->host.messages, ==, 1);
    g_assert_cmpuint(rig->host.last_vector, ==, 1);
    g_assert_cmphex(rig->host.last_data, ==, 0x41);
    g_assert_cmpint(rig->host.irq[0], ==, 0);
    offer(rig, 1);
    kick(rig, 1);
    g_assert_cmpuint(rig->host.messages, ==, 1); /* without a vector: silent */
    virtio_notify_config(rig->vdev);
    g_assert_cmpuint(rig->host.messages, ==, 2);
    g_assert_cmpuint(rig->host.last_vector, ==, 0);

    wr(rig, VIRTIO_PCI_COMMON_STATUS, 0, 1);
    g_assert_cmpuint(rig->pci->msix.users[1], ==, 0);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_MSIX, 2), ==, VIRTIO_NO_VECTOR);
    rig_free(rig);
}

/* Two queues and one vector: each sends its message. */
static void test_vectors_shared(void)
{
    Rig *rig = rig_new("dummy-pci", "{'vectors': 2}");
    unsigned messages;

    rig->dummy->push = true;
    drive(rig, BASIC);
    enable_msix(rig);
    for (unsigned i = 0; i < DUMMY_QUEUES; i++) {
        wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, i, 2);
        wr(rig, VIRTIO_PCI_COMMON_Q_MSIX, 1, 2);
        g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_MSIX, 2), ==, 1);
    }
    wr(rig, VIRTIO_PCI_COMMON_MSIX, 1, 2);
    for (unsigned i = 0; i < DUMMY_QUEUES; i++) {
        messages = rig->host.messages;
        offer(rig, i);
        kick(rig, i);
        g_assert_cmpuint(rig->host.messages, ==, messages + 1);
        g_assert_cmpuint(rig->host.last_vector, ==, 1);
    }
    /* One leaves it; the others still have it. */
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 0, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_MSIX, VIRTIO_NO_VECTOR, 2);
    messages = rig->host.messages;
    offer(rig, 0);
    kick(rig, 0);
    g_assert_cmpuint(rig->host.messages, ==, messages);
    offer(rig, 2);
    kick(rig, 2);
    virtio_notify_config(rig->vdev);
    g_assert_cmpuint(rig->host.messages, ==, messages + 2);
    rig_free(rig);
}

/* 64 queue pairs and a control queue, each with its address, vector and handler. */
static void test_many_queues(void)
{
    static const char *const options[] = {
        "{'queues': 129, 'vectors': 130}",
        "{'queues': 129, 'vectors': 130, 'page-per-vq': true, 'modern-pio-notify': true}"};

    for (unsigned i = 0; i < G_N_ELEMENTS(options); i++) {
        Rig *rig = rig_new("dummy-pci", options[i]);
        unsigned mult = i ? 0x1000 : 4;

        drive(rig, BASIC);
        enable_msix(rig);
        g_assert_cmpuint(rd(rig, VIRTIO_PCI_COMMON_NUMQ, 2), ==, 129);
        for (unsigned n = DUMMY_QUEUES; n < 129; n++) {
            wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, n, 2);
            g_assert_cmpuint(rd(rig, VIRTIO_PCI_COMMON_Q_NOFF, 2), ==, n);
            wr(rig, VIRTIO_PCI_COMMON_Q_MSIX, n + 1, 2);
            g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_MSIX, 2), ==, n + 1);
            wr(rig, VIRTIO_PCI_COMMON_Q_DESCLO, RING(0), 8);
            wr(rig, VIRTIO_PCI_COMMON_Q_AVAILLO, AVAIL(0), 8);
            wr(rig, VIRTIO_PCI_COMMON_Q_USEDLO, USED(0), 8);
            wr(rig, VIRTIO_PCI_COMMON_Q_ENABLE, 1, 2);
            wr(rig, NOTIFY + mult * n, n, 2);
            g_assert_cmpuint(rig->dummy->handled[n], ==, 1);
        }
        virtio_notify_now(rig->vdev, virtio_queue(rig->vdev, 128)->vq);
        g_assert_cmpuint(rig->host.last_vector, ==, 129);
        wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 129, 2);
        g_assert_cmpuint(rd(rig, VIRTIO_PCI_COMMON_Q_SIZE, 2), ==, 0);
        virtio_pci_set_host_notifiers(rig->proxy, true);
        g_assert_cmpuint(rig->proxy->notify.eventfds->len, ==, 129);
        rig_free(rig);
    }
}

/* 32 bits whose lower half is the queue, at each notification address (4.1.5.2). */
static void test_notification_data(void)
{
    Rig *rig = rig_new("dummy-pci", "{'notification_data': true, 'modern-pio-notify': true}");
    uint64_t features = BASIC | VIRTIO_FEATURE(VIRTIO_F_NOTIFICATION_DATA);

    g_assert_true(offered(rig) & VIRTIO_FEATURE(VIRTIO_F_NOTIFICATION_DATA));
    drive(rig, features);
    wr(rig, NOTIFY + 4 * 2, 0x8001u << 16 | 2, 4);
    g_assert_cmpuint(rig->dummy->handled[2], ==, 1);
    io_region_write(&rig->proxy->pio_notify_bar, 0, 0x1234 << 16 | 2, 4);
    g_assert_cmpuint(rig->dummy->handled[2], ==, 2);
    /* As eventfds: the port has none, for its value always changes. */
    virtio_pci_set_host_notifiers(rig->proxy, true);
    g_assert_cmpuint(rig->proxy->notify.eventfds->len, ==, DUMMY_QUEUES);
    g_assert_true(!rig->proxy->pio_notify_bar.eventfds ||
                  rig->proxy->pio_notify_bar.eventfds->len == 0);
    wr(rig, NOTIFY + 4 * 2, 0x8002u << 16 | 2, 4);
    spin(3);
    g_assert_cmpuint(rig->dummy->handled[2], ==, 3);
    io_region_write(&rig->proxy->pio_notify_bar, 0, 0x4321 << 16 | 2, 4);
    g_assert_cmpuint(rig->dummy->handled[2], ==, 4);
    rig_free(rig);
}

/* Sizes that are no power of two, once packed rings are accepted. */
static void test_packed_sizes(void)
{
    Rig *rig = rig_new("dummy-pci", "{'packed': true, 'in_order': true}");
    uint64_t features = BASIC | VIRTIO_FEATURE(VIRTIO_F_RING_PACKED);

    g_assert_true(offered(rig) & VIRTIO_FEATURE(VIRTIO_F_IN_ORDER));
    g_assert_cmphex(negotiate(rig, BASIC), ==, S_ACK | S_DRIVER | S_FEATURES);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 1, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_SIZE, 7, 2);
    g_assert_cmpuint(rd(rig, VIRTIO_PCI_COMMON_Q_SIZE, 2), ==, DUMMY_QUEUE_SIZE);
    g_assert_cmphex(negotiate(rig, features), ==, S_ACK | S_DRIVER | S_FEATURES);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 1, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_SIZE, 7, 2);
    g_assert_cmpuint(rd(rig, VIRTIO_PCI_COMMON_Q_SIZE, 2), ==, 7);
    wr(rig, VIRTIO_PCI_COMMON_Q_SIZE, DUMMY_QUEUE_SIZE + 1, 2);
    g_assert_cmpuint(rd(rig, VIRTIO_PCI_COMMON_Q_SIZE, 2), ==, 7);
    rig_free(rig);
}

static void test_queue_reset(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");

    rig->dummy->push = true;
    drive(rig, BASIC);
    offer(rig, 1);
    kick(rig, 1);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 1, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_ENABLE, 2), ==, 1);
    wr(rig, VIRTIO_PCI_COMMON_Q_RESET, 1, 2);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_RESET, 2), ==, 0);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_Q_ENABLE, 2), ==, 0);
    g_assert_cmpuint(rig->dummy->queue_resets, ==, 1);
    kick(rig, 1);
    g_assert_cmpuint(rig->dummy->handled[1], ==, 1);
    kick(rig, 0);
    g_assert_cmpuint(rig->dummy->handled[0], ==, 1);
    queue_setup(rig, 1);
    g_assert_cmpuint(rig->dummy->queue_enables, ==, 1);
    offer(rig, 1);
    kick(rig, 1);
    g_assert_cmpuint(rig->dummy->handled[1], ==, 2);
    g_assert_cmpuint(((struct vring_used *)(rig->ram + USED(1)))->idx, ==, 1);
    g_assert_cmpuint(rig->dummy->stops, ==, 0);
    rig_free(rig);
}

static void test_broken(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");
    struct vring_avail *avail = (struct vring_avail *)(rig->ram + AVAIL(0));

    rig->dummy->push = true;
    for (unsigned turn = 0; turn < 2; turn++) {
        drive(rig, BASIC);
        avail->idx = 0x8000;
        kick(rig, 0);
        g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_STATUS, 1) & VIRTIO_CONFIG_S_NEEDS_RESET, ==,
                        VIRTIO_CONFIG_S_NEEDS_RESET);
        g_assert_cmphex(rd(rig, ISR, 1), ==, VIRTIO_ISR_CONFIG);
        spin(2);
        g_assert_false(rig->dummy->running);
        kick(rig, 1);
        g_assert_cmpuint(rig->dummy->handled[1], ==, turn);
        /* Only a reset helps. */
        wr(rig, VIRTIO_PCI_COMMON_STATUS, S_ACK | S_DRIVER | S_FEATURES | S_OK, 1);
        g_assert_false(rig->dummy->running);
        g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_STATUS, 1) & VIRTIO_CONFIG_S_NEEDS_RESET, !=, 0);
        drive(rig, BASIC);
        g_assert_true(rig->dummy->running);
        offer(rig, 1);
        kick(rig, 1);
        g_assert_cmpuint(rig->dummy->handled[1], ==, turn + 1);
    }
    rig_free(rig);
}

static void test_stops(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");
    MemoryMap *map;

    drive(rig, BASIC);
    g_assert_true(rig->dummy->running);
    set_bus_master(rig, false);
    g_assert_false(rig->dummy->running);
    set_bus_master(rig, true);
    g_assert_true(rig->dummy->running);
    vm_stop(VM_PAUSED);
    g_assert_false(rig->dummy->running);
    kick(rig, 0);
    g_assert_cmpuint(rig->dummy->handled[0], ==, 0);
    vm_start();
    g_assert_true(rig->dummy->running);
    device_drain_begin(DEVICE(rig->proxy));
    device_drain_begin(DEVICE(rig->proxy));
    g_assert_false(rig->dummy->running);
    device_drain_end(DEVICE(rig->proxy));
    g_assert_false(rig->dummy->running);
    device_drain_end(DEVICE(rig->proxy));
    g_assert_true(rig->dummy->running);
    g_assert_cmpuint(rig->dummy->stops, ==, 3);
    /* A new memory map: stopped while it changes. */
    map = memory_map_ref(rig->host.pci.memory);
    dma_space_set_map(&rig->pci->dma, map);
    memory_map_unref(map);
    g_assert_cmpuint(rig->dummy->stops, ==, 4);
    g_assert_true(rig->dummy->running);
    /* A reset of the machine. */
    device_reset(DEVICE(rig->proxy));
    g_assert_false(rig->dummy->running);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_STATUS, 1), ==, 0);
    g_assert_cmphex(pci_config_read(rig->pci, PCI_COMMAND, 2), ==, 0);
    rig_free(rig);
}

/* --- the PCI_CFG window --- */

static void window(Rig *rig, unsigned bar, uint32_t offset, uint32_t length)
{
    pci_config_write(rig->pci, CFG_CAP + VIRTIO_PCI_CAP_BAR, bar, 1);
    pci_config_write(rig->pci, CFG_CAP + VIRTIO_PCI_CAP_OFFSET, offset, 4);
    pci_config_write(rig->pci, CFG_CAP + VIRTIO_PCI_CAP_LENGTH, length, 4);
}

static void test_window(void)
{
    static const struct {
        unsigned bar;
        uint32_t offset, length;
    } wrong[] = {{4, 0x4000, 1},
                 {4, 0x3fff, 2},
                 {4, 1, 2},
                 {4, 0, 3},
                 {4, 0, 8},
                 {4, 0, 0},
                 {1, 0, 4},
                 {3, 0, 4},
                 {5, 0, 4},
                 {6, 0, 4},
                 {255, 0, 4},
                 {4, UINT32_MAX, 1},
                 {4, UINT32_MAX - 3, 4},
                 {2, 0, 2}};
    Rig *rig = rig_new("dummy-pci", "{}");

    window(rig, 4, VIRTIO_PCI_COMMON_STATUS, 1);
    pci_config_write(rig->pci, CFG_CAP + 16, S_ACK, 4);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_STATUS, 1), ==, S_ACK);
    wr(rig, VIRTIO_PCI_COMMON_STATUS, S_ACK | S_DRIVER, 1);
    g_assert_cmphex(pci_config_read(rig->pci, CFG_CAP + 16, 1), ==, S_ACK | S_DRIVER);
    window(rig, 4, VIRTIO_PCI_COMMON_NUMQ, 2);
    g_assert_cmphex(pci_config_read(rig->pci, CFG_CAP + 16, 2), ==, DUMMY_QUEUES);
    window(rig, 0, VIRTIO_PCI_STATUS, 1);
    g_assert_cmphex(pci_config_read(rig->pci, CFG_CAP + 16, 1), ==, S_ACK | S_DRIVER);
    for (unsigned i = 0; i < G_N_ELEMENTS(wrong); i++) {
        window(rig, wrong[i].bar, wrong[i].offset, wrong[i].length);
        pci_config_write(rig->pci, CFG_CAP + 16, 0, 4);
        g_assert_cmphex(pci_config_read(rig->pci, CFG_CAP + 16, 4), ==, 0);
    }
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_STATUS, 1), ==, S_ACK | S_DRIVER);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    rig_register_types();
    g_test_add_func("/virtio-pci/layout/default", test_layout);
    g_test_add_func("/virtio-pci/layout/variants", test_variants);
    g_test_add_func("/virtio-pci/layout/options", test_layout_options);
    g_test_add_func("/virtio-pci/layout/refused", test_refused_options);
    g_test_add_func("/virtio-pci/features/negotiation", test_features);
    g_test_add_func("/virtio-pci/features/iommu-platform", test_iommu_platform);
    g_test_add_func("/virtio-pci/registers/widths", test_widths);
    g_test_add_func("/virtio-pci/registers/random-writes", test_random_writes);
    g_test_add_func("/virtio-pci/registers/device-config", test_device_config);
    g_test_add_func("/virtio-pci/queue/runs-and-interrupts", test_queue_runs);
    g_test_add_func("/virtio-pci/queue/reset", test_queue_reset);
    g_test_add_func("/virtio-pci/vectors/too-few", test_vectors);
    g_test_add_func("/virtio-pci/vectors/shared", test_vectors_shared);
    g_test_add_func("/virtio-pci/queues/64-pairs-and-control", test_many_queues);
    g_test_add_func("/virtio-pci/queues/packed-sizes", test_packed_sizes);
    g_test_add_func("/virtio-pci/notification-data", test_notification_data);
    g_test_add_func("/virtio-pci/broken/needs-reset", test_broken);
    g_test_add_func("/virtio-pci/stops", test_stops);
    g_test_add_func("/virtio-pci/window", test_window);
    return g_test_run();
}
