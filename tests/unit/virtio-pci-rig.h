/*
 * The dummy virtio device on a PCI bus of the test's own, and a driver for it: registers of both
 * interfaces, negotiation, rings.
 */
#ifndef TESTS_UNIT_VIRTIO_PCI_RIG_H
#define TESTS_UNIT_VIRTIO_PCI_RIG_H

#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>

#include "tests/unit/pci-test-device.h"
#include "tests/unit/virtio-dummy.h"
#include "util/runstate.h"

#define RAM_SIZE   0x100000
#define RING(n)    (0x10000u * ((n) + 1))
#define AVAIL(n)   (RING(n) + 0x1000)
#define USED(n)    (RING(n) + 0x2000)
#define BUFFER     0x80000
#define COMMON     0
#define ISR        0x1000
#define DEVICE_CFG 0x2000
#define NOTIFY     0x3000
#define S_ACK      VIRTIO_CONFIG_S_ACKNOWLEDGE
#define S_DRIVER   VIRTIO_CONFIG_S_DRIVER
#define S_OK       VIRTIO_CONFIG_S_DRIVER_OK
#define S_FEATURES VIRTIO_CONFIG_S_FEATURES_OK
#define CFG_CAP    0x84

typedef struct Rig {
    TestHost host;
    uint8_t *ram;
    VirtIOPCIProxy *proxy;
    PCIDevice *pci;
    VirtIODevice *vdev;
    Dummy *dummy;
    uint16_t avail[DUMMY_QUEUES];
} Rig;

static inline VirtIOPCIProxy *device_try(Rig *rig, const char *type, const char *options,
                                         GError **errp)
{
    Object *obj = object_new(qom_type_by_name(type));
    json_object *props = json_tokener_parse(options);
    bool ok;

    g_assert_nonnull(props);
    ok = object_set_properties(obj, props, NULL, errp);
    json_object_put(props);
    if (!ok) {
        g_object_unref(obj);
        return NULL;
    }
    return device_realize(DEVICE(obj), &rig->host.bus->parent_obj, errp) ? VIRTIO_PCI(obj) : NULL;
}

static inline Rig *rig_empty(void)
{
    Rig *rig = g_new0(Rig, 1);
    MemoryRange range = {.addr = 0, .size = RAM_SIZE, .fd = -1};

    rig->ram = aligned_alloc(4096, RAM_SIZE);
    memset(rig->ram, 0, RAM_SIZE);
    range.host = rig->ram;
    test_host_init(&rig->host);
    rig->host.pci.memory = memory_map_new(&range, 1, NULL);
    return rig;
}

static inline Rig *rig_new(const char *type, const char *options)
{
    Rig *rig = rig_empty();
    GError *err = NULL;

    rig->proxy = device_try(rig, type, options, &err);
    g_assert_no_error(err);
    rig->pci = &rig->proxy->pci;
    rig->vdev = rig->proxy->vdev;
    rig->dummy = (Dummy *)rig->vdev;
    return rig;
}

static inline void rig_free(Rig *rig)
{
    if (rig->proxy) {
        device_remove(DEVICE(rig->proxy));
    }
    test_host_cleanup(&rig->host);
    memory_map_unref(rig->host.pci.memory);
    free(rig->ram);
    g_free(rig);
}

static inline uint32_t rd(Rig *rig, unsigned offset, unsigned size)
{
    return (uint32_t)io_region_read(&rig->proxy->modern_bar, offset, size);
}

static inline void wr(Rig *rig, unsigned offset, uint64_t value, unsigned size)
{
    io_region_write(&rig->proxy->modern_bar, offset, value, size);
}

static inline uint32_t lrd(Rig *rig, unsigned offset, unsigned size)
{
    return (uint32_t)io_region_read(&rig->proxy->legacy_bar, offset, size);
}

static inline void lwr(Rig *rig, unsigned offset, uint32_t value, unsigned size)
{
    io_region_write(&rig->proxy->legacy_bar, offset, value, size);
}

static inline void spin(unsigned times)
{
    while (times-- > 0) {
        event_loop_run_once(event_loop_main(), false);
    }
}

/* --- a driver --- */

static inline void set_bus_master(Rig *rig, bool on)
{
    pci_config_write(rig->pci, PCI_COMMAND, PCI_COMMAND_MEMORY | (on ? PCI_COMMAND_MASTER : 0), 2);
}

static inline uint64_t offered(Rig *rig)
{
    uint64_t features;

    wr(rig, VIRTIO_PCI_COMMON_DFSELECT, 0, 4);
    features = rd(rig, VIRTIO_PCI_COMMON_DF, 4);
    wr(rig, VIRTIO_PCI_COMMON_DFSELECT, 1, 4);
    return features | (uint64_t)rd(rig, VIRTIO_PCI_COMMON_DF, 4) << 32;
}

static inline uint32_t negotiate(Rig *rig, uint64_t features)
{
    wr(rig, VIRTIO_PCI_COMMON_STATUS, 0, 1);
    wr(rig, VIRTIO_PCI_COMMON_STATUS, S_ACK, 1);
    wr(rig, VIRTIO_PCI_COMMON_STATUS, S_ACK | S_DRIVER, 1);
    wr(rig, VIRTIO_PCI_COMMON_GFSELECT, 0, 4);
    wr(rig, VIRTIO_PCI_COMMON_GF, (uint32_t)features, 4);
    wr(rig, VIRTIO_PCI_COMMON_GFSELECT, 1, 4);
    wr(rig, VIRTIO_PCI_COMMON_GF, features >> 32, 4);
    wr(rig, VIRTIO_PCI_COMMON_STATUS, S_ACK | S_DRIVER | S_FEATURES, 1);
    return rd(rig, VIRTIO_PCI_COMMON_STATUS, 1);
}

static inline void queue_setup(Rig *rig, unsigned n)
{
    memset(rig->ram + RING(n), 0, 0x10000);
    rig->avail[n] = 0;
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, n, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_DESCLO, RING(n), 8);
    wr(rig, VIRTIO_PCI_COMMON_Q_AVAILLO, AVAIL(n), 4);
    wr(rig, VIRTIO_PCI_COMMON_Q_AVAILHI, 0, 4);
    wr(rig, VIRTIO_PCI_COMMON_Q_USEDLO, USED(n), 8);
    wr(rig, VIRTIO_PCI_COMMON_Q_ENABLE, 1, 2);
}

#define BASIC (VIRTIO_FEATURE(VIRTIO_F_VERSION_1) | VIRTIO_FEATURE(VIRTIO_F_RING_RESET))

static inline void drive(Rig *rig, uint64_t features)
{
    set_bus_master(rig, true);
    g_assert_cmphex(negotiate(rig, features) & S_FEATURES, ==, S_FEATURES);
    for (unsigned i = 0; i < DUMMY_QUEUES; i++) {
        queue_setup(rig, i);
    }
    wr(rig, VIRTIO_PCI_COMMON_STATUS, S_ACK | S_DRIVER | S_FEATURES | S_OK, 1);
}

static inline void offer(Rig *rig, unsigned n)
{
    struct vring_desc *desc = (struct vring_desc *)(rig->ram + RING(n));
    struct vring_avail *avail = (struct vring_avail *)(rig->ram + AVAIL(n));

    desc[0] = (struct vring_desc){.addr = BUFFER, .len = 16, .flags = VRING_DESC_F_WRITE};
    avail->ring[rig->avail[n] % DUMMY_QUEUE_SIZE] = 0;
    __atomic_store_n(&avail->idx, ++rig->avail[n], __ATOMIC_RELEASE);
}

static inline void kick(Rig *rig, unsigned n)
{
    wr(rig, NOTIFY + 4 * n, n, 2);
}

static inline void enable_msix(Rig *rig)
{
    pci_config_write(rig->pci, rig->pci->msix.cap + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE, 2);
    for (unsigned i = 0; i < rig->pci->msix.vectors; i++) {
        io_region_write(&rig->pci->msix.bar, i * 16 + PCI_MSIX_ENTRY_LOWER_ADDR, 0xfee00000, 4);
        io_region_write(&rig->pci->msix.bar, i * 16 + PCI_MSIX_ENTRY_DATA, 0x40 + i, 4);
        io_region_write(&rig->pci->msix.bar, i * 16 + PCI_MSIX_ENTRY_VECTOR_CTRL, 0, 4);
    }
}

static inline void rig_register_types(void)
{
    test_register_types();
    hw_virtio_register_types();
    qom_register_type(dummy_get_type());
    virtio_pci_register_types(&dummy_info);
    vm_start();
}

#endif
