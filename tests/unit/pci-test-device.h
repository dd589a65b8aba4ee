/*
 * A PCI device and a host for tests: the device has one BAR of each kind, MSI-X and a capability;
 * the host writes down what it is told.  Included by one .c file a program.
 */
#ifndef TESTS_UNIT_PCI_TEST_DEVICE_H
#define TESTS_UNIT_PCI_TEST_DEVICE_H

#include <string.h>

#include "hw/pci/pci.h"

#define TEST_VENDOR    0x1af4
#define TEST_DEVICE    0x10f0
#define TEST_BAR_IO    0
#define TEST_BAR_MSIX  1
#define TEST_BAR_MEM   2
#define TEST_BAR_MEM64 4
#define TEST_VECTORS   4
#define TEST_CAP       0x40
#define TEST_MSIX_CAP  0x98

typedef struct TestPci {
    PCIDevice parent_obj;
    uint32_t vectors;
    bool fail;
    IoRegion io, mem, mem64;
    uint64_t last_offset, last_value;
    unsigned last_size, config_reads, config_writes;
} TestPci;
typedef struct TestPciClass {
    PCIDeviceClass parent_class;
} TestPciClass;

GType test_pci_get_type(void);
G_DEFINE_TYPE(TestPci, test_pci, TYPE_PCI_DEVICE)

static inline TestPci *test_pci(PCIDevice *dev)
{
    return (TestPci *)dev;
}

static uint64_t test_bar_read(void *opaque, uint64_t offset, unsigned size)
{
    return 0x1122334455667788ull + offset;
}

static void test_bar_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    TestPci *test = opaque;

    test->last_offset = offset;
    test->last_value = value;
    test->last_size = size;
}

static const IoOps test_bar_ops = {.read = test_bar_read, .write = test_bar_write, .max_access = 8};

static gboolean test_pci_realize(PCIDevice *dev, GError **errp)
{
    TestPci *test = test_pci(dev);

    if (test->fail) {
        return error_set(errp, "test device fails as asked");
    }
    io_region_init(&test->io, "test-io", 32, &test_bar_ops, dev);
    io_region_init(&test->mem, "test-mem", 4096, &test_bar_ops, dev);
    io_region_init(&test->mem64, "test-mem64", 16384, &test_bar_ops, dev);
    pci_register_bar(dev, TEST_BAR_IO, PCI_BASE_ADDRESS_SPACE_IO, &test->io);
    pci_register_bar(dev, TEST_BAR_MEM, 0, &test->mem);
    pci_register_bar(dev, TEST_BAR_MEM64,
                     PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH, &test->mem64);
    dev->config[PCI_INTERRUPT_PIN] = 1;
    pci_add_capability(dev, PCI_CAP_ID_VNDR, TEST_CAP, 16);
    return !test->vectors || msix_init(dev, test->vectors, TEST_BAR_MSIX, TEST_MSIX_CAP, errp);
}

static void test_pci_exit(PCIDevice *dev)
{
    TestPci *test = test_pci(dev);

    msix_uninit(dev);
    io_region_cleanup(&test->io);
    io_region_cleanup(&test->mem);
    io_region_cleanup(&test->mem64);
}

static void test_pci_config_read(PCIDevice *dev, unsigned offset, unsigned size)
{
    test_pci(dev)->config_reads++;
}

static void test_pci_config_written(PCIDevice *dev, unsigned offset, unsigned size)
{
    test_pci(dev)->config_writes++;
}

static const Property test_pci_props[] = {
    PROP_UINT32("vectors", TestPci, vectors, TEST_VECTORS, "MSI-X vectors"),
    PROP_BOOL("fail", TestPci, fail, false, "Refuse to realize"),
    PROP_END,
};

static void test_pci_init(TestPci *test) {}

static void test_pci_class_init(TestPciClass *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;

    pci_class->parent_class.parent_class.qom_name = "test-pci";
    qom_class_set_props(klass, test_pci_props);
    pci_class->parent_class.user_creatable_device = true;
    pci_class->vendor_id = TEST_VENDOR;
    pci_class->device_id = TEST_DEVICE;
    pci_class->class_id = 0x0200;
    pci_class->revision = 1;
    pci_class->realize = test_pci_realize;
    pci_class->exit = test_pci_exit;
    pci_class->config_read = test_pci_config_read;
    pci_class->config_written = test_pci_config_written;
}

/* --- a host that writes down --- */

typedef struct TestHost {
    PciHost pci;
    PCIBus *bus;
    int irq[4]; /* how many assert pin A..D */
    unsigned messages;
    unsigned last_vector;
    uint64_t last_addr;
    uint32_t last_data;
    unsigned maps, unmaps;
} TestHost;

static inline void test_host_set_irq(PciHost *host, PCIDevice *dev, unsigned pin, bool level)
{
    ((TestHost *)host)->irq[pin] += level ? 1 : -1;
}

static inline void test_host_msi(PciHost *host, PCIDevice *dev, unsigned vector, uint64_t addr,
                                 uint32_t data)
{
    TestHost *test = (TestHost *)host;

    /* Messages leave from any thread; a test that looks at the last one sends one at a time. */
    __atomic_store_n(&test->last_vector, vector, __ATOMIC_RELAXED);
    __atomic_store_n(&test->last_addr, addr, __ATOMIC_RELAXED);
    __atomic_store_n(&test->last_data, data, __ATOMIC_RELAXED);
    __atomic_add_fetch(&test->messages, 1, __ATOMIC_RELAXED);
}

static inline void test_host_bar_mapped(PciHost *host, PCIDevice *dev, unsigned bar, uint64_t addr,
                                        bool enabled)
{
    TestHost *test = (TestHost *)host;

    test->maps += enabled;
    test->unmaps += !enabled;
}

static const PciHostOps test_host_ops = {
    .set_irq = test_host_set_irq,
    .msi_notify = test_host_msi,
    .bar_mapped = test_host_bar_mapped,
    .msix_table_is_ours = true,
};

static inline void test_host_init(TestHost *host)
{
    memset(host, 0, sizeof(*host));
    host->pci.ops = &test_host_ops;
    host->bus = pci_bus_new(NULL, "pci.0", &host->pci, PCI_DEVFN(2, 0));
}

static inline void test_host_cleanup(TestHost *host)
{
    object_unparent((Object *)host->bus);
}

/* A device with @addr ("4.0"; NULL: first free), or NULL with error. */
static inline PCIDevice *test_device_try(TestHost *host, const char *addr, uint32_t vectors,
                                         GError **errp)
{
    PCIDevice *dev = PCI_DEVICE(object_new(test_pci_get_type()));
    json_object *value;

    test_pci(dev)->vectors = vectors;
    if (addr) {
        value = json_object_new_string(addr);
        if (!object_set_property((Object *)dev, "addr", value, errp)) {
            json_object_put(value);
            g_object_unref(dev);
            return NULL;
        }
        json_object_put(value);
    }
    if (!device_realize(&dev->parent_obj, &host->bus->parent_obj, errp)) {
        return NULL; /* freed by it */
    }
    return dev;
}

static inline PCIDevice *test_device_new(TestHost *host, const char *addr)
{
    GError *err = NULL;
    PCIDevice *dev = test_device_try(host, addr, TEST_VECTORS, &err);

    g_assert_no_error(err);
    return dev;
}

static inline void test_register_types(void)
{
    hw_core_register_types();
    hw_pci_register_types();
    qom_register_type(test_pci_get_type());
}

#endif
