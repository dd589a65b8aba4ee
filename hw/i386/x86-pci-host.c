/*
 * What PCI host bridges of PCs share: configuration cycles through ports 0xCF8 and 0xCFC, BARs in
 * the machine's ports and memory, messages, and what a bus master reaches.
 *
 *   port 0xCF8, 0xCFC   -> configuration space (mechanism #1), of buses behind bridges too
 *   BAR decodes         -> mapped into the machine's ports or memory
 *   MSI-X message       -> a write to RAM by the device; other targets have no CPU behind them
 *   bus master          -> RAM directly, anything else through the machine
 *
 * Not here: interrupt pins and what is plugged on the board (pci-host.c, q35-host.c).
 */
#include "hw/i386/pc.h"
#include "hw/pci/pcie.h"

#define CONFIG_ADDRESS_PORT   0xcf8
#define CONFIG_DATA_PORT      0xcfc
#define CONFIG_ADDRESS_ENABLE (1u << 31)

G_DEFINE_ABSTRACT_TYPE(X86PciHost, x86_pci_host, TYPE_DEVICE)

/* RAM only: a message may come from any thread, where MMIO must not be entered.  Nothing else
 * could take one: there is no local APIC. */
void x86_pci_host_msi_notify(PciHost *pci, PCIDevice *dev, unsigned vector, uint64_t addr,
                             uint32_t data)
{
    uint8_t bytes[4];
    uint64_t len = sizeof(bytes);

    if (!dma_translate(&dev->dma, addr, &len, true) || len < sizeof(bytes)) {
        return;
    }
    pci_set_long(bytes, data);
    dma_write(&dev->dma, addr, bytes, sizeof(bytes));
}

/* --- BARs and bus masters --- */

void x86_pci_host_bar_mapped(PciHost *pci, PCIDevice *dev, unsigned n, uint64_t addr, bool enabled)
{
    MachineState *machine = x86_pci_host_of(pci)->machine;
    const PciBar *bar = &dev->bars[n];
    IoSpace *space = bar->type & PCI_BASE_ADDRESS_SPACE_IO ? &machine->ports : &machine->mmio;

    if (enabled) {
        io_space_map(space, addr, bar->region, 0);
    } else {
        io_space_unmap(space, bar->region);
    }
}

/* A device that reaches another one (or itself) through MMIO may not do so from within such an
 * access: a guest could nest them without end. */
static bool host_dma_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    X86PciHost *host = opaque;

    if (host->in_dma) {
        return false;
    }
    host->in_dma = true;
    machine_read(host->machine, addr, buf, size);
    host->in_dma = false;
    return true;
}

static bool host_dma_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    X86PciHost *host = opaque;

    if (host->in_dma) {
        return false;
    }
    host->in_dma = true;
    machine_write(host->machine, addr, buf, size);
    host->in_dma = false;
    return true;
}

/* --- configuration cycles --- */

/* Only a whole 32-bit write to 0xCF8 is the address; everything else there is ignored. */
static void address_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    X86PciHost *host = opaque;

    if (offset == 0 && size == 4) {
        host->config_address = (uint32_t)value;
    }
}

static uint64_t address_read(void *opaque, uint64_t offset, unsigned size)
{
    X86PciHost *host = opaque;

    return (uint64_t)host->config_address >> (8 * (offset & 3));
}

static PCIDevice *addressed_device(X86PciHost *host)
{
    uint32_t address = host->config_address;

    return address & CONFIG_ADDRESS_ENABLE
               ? pci_bus_find_device(host->bus, (address >> 16) & 0xff, (address >> 8) & 0xff)
               : NULL;
}

static unsigned addressed_offset(const X86PciHost *host, uint64_t port)
{
    return (host->config_address & 0xff) | (port & 3);
}

static uint64_t data_read(void *opaque, uint64_t offset, unsigned size)
{
    X86PciHost *host = opaque;
    PCIDevice *dev = addressed_device(host);

    if (!dev) {
        return UINT64_MAX;
    }
    return pci_config_read(dev, addressed_offset(host, offset), size);
}

static void data_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    X86PciHost *host = opaque;
    PCIDevice *dev = addressed_device(host);

    if (dev) {
        pci_config_write(dev, addressed_offset(host, offset), (uint32_t)value, size);
    }
}

static const IoOps address_ops = {.read = address_read, .write = address_write, .max_access = 4};
static const IoOps data_ops = {.read = data_read, .write = data_write, .max_access = 4};

/* --- making and unmaking --- */

void x86_pci_host_start(X86PciHost *host, PCIBus *bus)
{
    IoSpace *ports = &host->machine->ports;

    host->bus = bus;
    io_region_init(&host->address_port, "pci-conf-idx", 4, &address_ops, host);
    io_region_init(&host->data_port, "pci-conf-data", 4, &data_ops, host);
    io_space_map(ports, CONFIG_ADDRESS_PORT, &host->address_port, 0);
    io_space_map(ports, CONFIG_DATA_PORT, &host->data_port, 0);
    pci_host_set_memory(&host->pci, host->bus, host->machine->memory);
}

void x86_pci_host_prepare(X86PciHost *host, const PciHostOps *ops)
{
    host->pci = (PciHost){
        .ops = ops,
        .dma_ops = {.read = host_dma_read, .write = host_dma_write},
        .dma_opaque = host,
    };
}

void x86_pci_host_stop(X86PciHost *host)
{
    IoSpace *ports = &host->machine->ports;

    io_space_unmap(ports, &host->address_port);
    io_space_unmap(ports, &host->data_port);
    io_region_cleanup(&host->address_port);
    io_region_cleanup(&host->data_port);
    g_clear_pointer(&host->pci.memory, memory_map_unref);
}

PCIDevice *x86_pci_host_add(X86PciHost *host, GType type, unsigned devfn, GError **errp)
{
    PCIDevice *dev = PCI_DEVICE(object_new(type));

    dev->devfn = (int32_t)devfn;
    if (!device_realize(&dev->parent_obj, &host->bus->parent_obj, errp)) {
        return NULL;
    }
    device_reset(&dev->parent_obj);
    return dev;
}

static void x86_pci_host_init(X86PciHost *host) {}

static void x86_pci_host_class_init(X86PciHostClass *klass)
{
    DeviceClass *device_class = &klass->parent_class;

    device_class->parent_class.qom_name = "x86-pci-host";
    device_class->category = CATEGORY_BRIDGE;
    device_class->user_creatable_device = false;
    device_class->hotpluggable = false;
}
