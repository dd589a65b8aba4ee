/*
 * What PCI host bridges of PCs share: configuration cycles through ports 0xCF8 and 0xCFC, BARs in
 * the machine's ports and memory, interrupts, what a bus master reaches, and fw_cfg.
 *
 *   port 0xCF8, 0xCFC   -> configuration space (mechanism #1), of buses behind bridges too
 *   BAR decodes         -> mapped into the machine's ports or memory
 *   MSI-X message       -> a write to RAM by the device; other targets have no CPU behind them
 *   bus master          -> RAM directly, anything else through the machine
 *   INTx                -> PIRQ by the slot -> lines by the routes in the ISA bridge
 *
 * Interrupt levels may change in any thread.  A PIRQ counts who asserts it; the lines are made
 * from counts and routes, in the main thread, each time something changed.
 *
 * Not here: which pin is which PIRQ, and the bridges on the board (pci-host.c, q35-host.c).
 */
#include "hw/i386/pc.h"
#include "hw/pci/pcie.h"

#define CONFIG_ADDRESS_PORT   0xcf8
#define CONFIG_DATA_PORT      0xcfc
#define CONFIG_ADDRESS_ENABLE (1u << 31)

G_DEFINE_ABSTRACT_TYPE(X86PciHost, x86_pci_host, TYPE_DEVICE)

/* --- interrupts --- */

void x86_pci_host_update_irq_lines(X86PciHost *host)
{
    X86PciHostClass *klass = X86_PCI_HOST_GET_CLASS(host);
    uint32_t lines = 0;

    if (!host->isa || !host->isa->config) {
        return;
    }
    for (unsigned i = 0; i < X86_PIRQS; i++) {
        if (__atomic_load_n(&host->pirq_count[i], __ATOMIC_ACQUIRE) > 0) {
            lines |= klass->pirq_lines(host->isa->config, i);
        }
    }
    machine_set_irq_lines(host->machine, lines);
}

static void irq_lines_changed(void *opaque)
{
    x86_pci_host_update_irq_lines(opaque);
}

void x86_pci_host_set_irq(PciHost *pci, PCIDevice *dev, unsigned pin, bool level)
{
    X86PciHost *host = x86_pci_host_of(pci);
    unsigned slot, root_pin = pci_root_pin(dev, pin, &slot);
    unsigned pirq = X86_PCI_HOST_GET_CLASS(host)->pirq(slot, root_pin);

    __atomic_add_fetch(&host->pirq_count[pirq], level ? 1 : -1, __ATOMIC_ACQ_REL);
    if (event_loop_is_current(event_loop_main())) {
        x86_pci_host_update_irq_lines(host);
    } else {
        bh_schedule(host->irq_bh);
    }
}

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
    host->irq_bh = bh_new(event_loop_main(), irq_lines_changed, host);
    fw_cfg_init(&host->fw_cfg, &host->machine->ports);
}

void x86_pci_host_stop(X86PciHost *host)
{
    IoSpace *ports = &host->machine->ports;

    io_space_unmap(ports, &host->address_port);
    io_space_unmap(ports, &host->data_port);
    io_region_cleanup(&host->address_port);
    io_region_cleanup(&host->data_port);
    g_clear_pointer(&host->pci.memory, memory_map_unref);
    fw_cfg_cleanup(&host->fw_cfg, ports);
    g_clear_pointer(&host->irq_bh, bh_delete);
}

X86PciHost *x86_pci_host_new(GType type, MachineState *machine, const char *name, GError **errp)
{
    X86PciHost *host = X86_PCI_HOST(object_new(type));

    host->machine = machine;
    object_add_child((Object *)machine, name, (Object *)host);
    if (!device_realize(&host->parent_obj, NULL, errp)) {
        object_unparent((Object *)host);
        return NULL;
    }
    fw_cfg_add_machine(&host->fw_cfg, machine);
    return host;
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

/* --- bridges on the board --- */

void x86_bridge_class_init(PCIDeviceClass *pci_class, const char *name, const char *description)
{
    pci_class->parent_class.parent_class.qom_name = name;
    pci_class->parent_class.parent_class.description = description;
    pci_class->parent_class.category = CATEGORY_BRIDGE;
    pci_class->parent_class.user_creatable_device = false;
    pci_class->parent_class.hotpluggable = false;
    pci_class->vendor_id = 0x8086;
}

void x86_isa_bridge_reset(PCIDevice *isa)
{
    /* QEMU's shows all three as set after reset. */
    pci_set_word(isa->config + PCI_COMMAND,
                 PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    pci_set_word(isa->config + PCI_STATUS, PCI_STATUS_DEVSEL_MEDIUM);
}

/* --- the class --- */

static void x86_pci_host_reset(DeviceState *state)
{
    X86_PCI_HOST(state)->config_address = 0;
}

static void x86_pci_host_init(X86PciHost *host) {}

static void x86_pci_host_class_init(X86PciHostClass *klass)
{
    DeviceClass *device_class = &klass->parent_class;

    device_class->parent_class.qom_name = "x86-pci-host";
    device_class->category = CATEGORY_BRIDGE;
    device_class->reset = x86_pci_host_reset;
    device_class->user_creatable_device = false;
    device_class->hotpluggable = false;
}
