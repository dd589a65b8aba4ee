/*
 * The i440FX/PIIX3 side of the PCI bus: how configuration cycles, BARs, interrupts and bus
 * masters meet the machine.
 *
 *   port 0xCF8, 0xCFC   -> configuration space (mechanism #1)
 *   BAR decodes         -> mapped into the machine's ports or memory
 *   INTx                -> PIRQ (slot - 1 + pin) & 3 -> line by registers 0x60..0x63 of the PIIX3
 *   MSI-X message       -> a write to RAM by the device; other targets have no CPU behind them
 *   bus master          -> RAM directly, anything else through the machine
 *
 * Interrupt levels may change in any thread.  A PIRQ counts who asserts it; the lines are made
 * from counts and routes, in the main thread, each time something changed.
 */
#include <string.h>

#include "hw/i386/pc.h"

#define CONFIG_ADDRESS_PORT   0xcf8
#define CONFIG_DATA_PORT      0xcfc
#define CONFIG_ADDRESS_ENABLE (1u << 31)
#define PIIX3_PIRQ_ROUTE      0x60
#define PIIX3_PIRQ_DISABLED   0x80
#define DEVICES_DEVFN_MIN     PCI_DEVFN(2, 0) /* below are the bridges */

G_DEFINE_TYPE(PcHost, pc_host, TYPE_DEVICE)

/* --- the two bridges that are devices on the bus --- */

typedef struct I440FX {
    PCIDevice parent_obj;
} I440FX;
typedef struct I440FXClass {
    PCIDeviceClass parent_class;
} I440FXClass;
typedef struct Piix3 {
    PCIDevice parent_obj;
} Piix3;
typedef struct Piix3Class {
    PCIDeviceClass parent_class;
} Piix3Class;

GType i440fx_get_type(void);
GType piix3_get_type(void);
G_DEFINE_TYPE(I440FX, i440fx, TYPE_PCI_DEVICE)
G_DEFINE_TYPE(Piix3, piix3, TYPE_PCI_DEVICE)

static PcHost *host_of(PciHost *pci)
{
    return (PcHost *)((char *)pci - offsetof(PcHost, pci));
}

/* --- interrupts --- */

static void irq_lines_update(void *opaque)
{
    PcHost *host = opaque;
    MachineState *machine = host->machine;
    uint32_t lines = 0, changed;

    if (!host->isa || !host->isa->config) {
        return;
    }
    for (unsigned i = 0; i < PC_PIRQS; i++) {
        unsigned route = host->isa->config[PIIX3_PIRQ_ROUTE + i];

        if (route < PC_IRQ_LINES && __atomic_load_n(&host->pirq_count[i], __ATOMIC_ACQUIRE) > 0) {
            lines |= 1u << route;
        }
    }
    changed = lines ^ host->irq_lines;
    host->irq_lines = lines;
    for (int i = 0; machine->irq_intercept && i < PC_IRQ_LINES; i++) {
        if (changed & (1u << i)) {
            machine->irq_intercept(machine->irq_intercept_opaque, i, (lines >> i) & 1);
        }
    }
}

static void host_set_irq(PciHost *pci, PCIDevice *dev, unsigned pin, bool level)
{
    PcHost *host = host_of(pci);
    unsigned pirq = (PCI_SLOT((unsigned)dev->devfn) - 1 + pin) & 3;

    __atomic_add_fetch(&host->pirq_count[pirq], level ? 1 : -1, __ATOMIC_ACQ_REL);
    if (event_loop_current() == event_loop_main()) {
        irq_lines_update(host);
    } else {
        bh_schedule(host->irq_bh);
    }
}

/* RAM only: a message may come from any thread, where MMIO must not be entered.  Nothing else
 * could take one: there is no local APIC. */
static void host_msi_notify(PciHost *pci, PCIDevice *dev, unsigned vector, uint64_t addr,
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

static void host_bar_mapped(PciHost *pci, PCIDevice *dev, unsigned n, uint64_t addr, bool enabled)
{
    MachineState *machine = host_of(pci)->machine;
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
    PcHost *host = opaque;

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
    PcHost *host = opaque;

    if (host->in_dma) {
        return false;
    }
    host->in_dma = true;
    machine_write(host->machine, addr, buf, size);
    host->in_dma = false;
    return true;
}

/* --- hotplug --- */

static void host_plugged(PciHost *pci, PCIDevice *dev)
{
    pc_pci_hotplug_plugged(&host_of(pci)->hotplug, dev);
}

static gboolean host_unplug_request(PciHost *pci, PCIDevice *dev, GError **errp)
{
    if (!PCI_DEVICE_GET_CLASS(dev)->parent_class.hotpluggable) {
        return error_set(errp, "Device '%s' does not support hotplugging",
                         device_name(&dev->parent_obj));
    }
    pc_pci_hotplug_unplug_request(&host_of(pci)->hotplug, dev);
    return TRUE;
}

static void host_unplugged(PciHost *pci, PCIDevice *dev)
{
    pc_pci_hotplug_unplugged(&host_of(pci)->hotplug, dev);
}

static const PciHostOps host_ops = {
    .set_irq = host_set_irq,
    .msi_notify = host_msi_notify,
    .bar_mapped = host_bar_mapped,
    .msix_table_is_ours = true,
    .plugged = host_plugged,
    .unplug_request = host_unplug_request,
    .unplugged = host_unplugged,
};

/* --- configuration cycles --- */

/* Only a whole 32-bit write to 0xCF8 is the address; everything else there is ignored. */
static void address_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    PcHost *host = opaque;

    if (offset == 0 && size == 4) {
        host->config_address = (uint32_t)value;
    }
}

static uint64_t address_read(void *opaque, uint64_t offset, unsigned size)
{
    PcHost *host = opaque;

    return (uint64_t)host->config_address >> (8 * (offset & 3));
}

static PCIDevice *addressed_device(PcHost *host)
{
    uint32_t address = host->config_address;
    PCIDevice *dev = host->bus->devices[(address >> 8) & 0xff];

    if (!(address & CONFIG_ADDRESS_ENABLE) || ((address >> 16) & 0xff) != host->bus->number) {
        return NULL;
    }
    return dev && dev->parent_obj.realized ? dev : NULL;
}

static unsigned addressed_offset(const PcHost *host, uint64_t port)
{
    return (host->config_address & 0xff) | (port & 3);
}

static uint64_t data_read(void *opaque, uint64_t offset, unsigned size)
{
    PcHost *host = opaque;
    PCIDevice *dev = addressed_device(host);

    if (!dev) {
        return UINT64_MAX;
    }
    return pci_config_read(dev, addressed_offset(host, offset), size);
}

static void data_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    PcHost *host = opaque;
    PCIDevice *dev = addressed_device(host);

    if (dev) {
        pci_config_write(dev, addressed_offset(host, offset), (uint32_t)value, size);
    }
}

static const IoOps address_ops = {.read = address_read, .write = address_write, .max_access = 4};
static const IoOps data_ops = {.read = data_read, .write = data_write, .max_access = 4};

/* --- the bridges' classes --- */

static void i440fx_init(I440FX *bridge) {}

static void i440fx_class_init(I440FXClass *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;

    pci_class->parent_class.parent_class.qom_name = "i440FX";
    pci_class->parent_class.parent_class.description = "Host bridge";
    pci_class->parent_class.category = CATEGORY_BRIDGE;
    pci_class->parent_class.user_creatable_device = false;
    pci_class->parent_class.hotpluggable = false;
    pci_class->vendor_id = 0x8086;
    pci_class->device_id = 0x1237;
    pci_class->revision = 2;
    pci_class->class_id = 0x0600;
}

static gboolean piix3_realize(PCIDevice *dev, GError **errp)
{
    memset(dev->wmask + PIIX3_PIRQ_ROUTE, 0xff, PC_PIRQS);
    memset(dev->config + PIIX3_PIRQ_ROUTE, PIIX3_PIRQ_DISABLED, PC_PIRQS);
    return TRUE;
}

static void piix3_config_written(PCIDevice *dev, unsigned offset, unsigned size)
{
    if (offset < PIIX3_PIRQ_ROUTE + PC_PIRQS && offset + size > PIIX3_PIRQ_ROUTE) {
        irq_lines_update(host_of(dev->bus->host));
    }
}

static void piix3_reset(DeviceState *state)
{
    PCIDevice *dev = PCI_DEVICE(state);

    ((DeviceClass *)piix3_parent_class)->reset(state);
    /* An ISA bridge cannot be switched off: QEMU's shows all three as set after reset. */
    pci_set_word(dev->config + PCI_COMMAND,
                 PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    pci_set_word(dev->config + PCI_STATUS, PCI_STATUS_DEVSEL_MEDIUM);
    memset(dev->config + PIIX3_PIRQ_ROUTE, PIIX3_PIRQ_DISABLED, PC_PIRQS);
    irq_lines_update(host_of(dev->bus->host));
}

static void piix3_init(Piix3 *isa)
{
    isa->parent_obj.multifunction = true;
}

static void piix3_class_init(Piix3Class *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;

    pci_class->parent_class.parent_class.qom_name = "PIIX3";
    pci_class->parent_class.parent_class.description = "ISA bridge with the PCI interrupt routes";
    pci_class->parent_class.category = CATEGORY_BRIDGE;
    pci_class->parent_class.user_creatable_device = false;
    pci_class->parent_class.hotpluggable = false;
    pci_class->parent_class.reset = piix3_reset;
    pci_class->realize = piix3_realize;
    pci_class->config_written = piix3_config_written;
    pci_class->vendor_id = 0x8086;
    pci_class->device_id = 0x7000;
    pci_class->class_id = 0x0601;
}

/* --- the host --- */

static PCIDevice *bridge_add(PcHost *host, GType type, unsigned slot, GError **errp)
{
    PCIDevice *dev = PCI_DEVICE(object_new(type));

    dev->devfn = PCI_DEVFN(slot, 0);
    if (!device_realize(&dev->parent_obj, &host->bus->parent_obj, errp)) {
        return NULL;
    }
    device_reset(&dev->parent_obj);
    return dev;
}

static void host_unrealize(DeviceState *state)
{
    PcHost *host = PC_HOST(state);
    IoSpace *ports = &host->machine->ports;

    io_space_unmap(ports, &host->address_port);
    io_space_unmap(ports, &host->data_port);
    io_region_cleanup(&host->address_port);
    io_region_cleanup(&host->data_port);
    fw_cfg_cleanup(&host->fw_cfg, ports);
    pc_pci_hotplug_cleanup(&host->hotplug, ports);
    g_clear_pointer(&host->irq_bh, bh_delete);
    g_clear_pointer(&host->pci.memory, memory_map_unref);
}

static gboolean host_realize(DeviceState *state, GError **errp)
{
    PcHost *host = PC_HOST(state);
    MachineState *machine = host->machine;
    IoSpace *ports = &machine->ports;

    host->pci = (PciHost){
        .ops = &host_ops,
        .dma_ops = {.read = host_dma_read, .write = host_dma_write},
        .dma_opaque = host,
    };
    host->irq_bh = bh_new(event_loop_main(), irq_lines_update, host);
    io_region_init(&host->address_port, "pci-conf-idx", 4, &address_ops, host);
    io_region_init(&host->data_port, "pci-conf-data", 4, &data_ops, host);
    io_space_map(ports, CONFIG_ADDRESS_PORT, &host->address_port, 0);
    io_space_map(ports, CONFIG_DATA_PORT, &host->data_port, 0);
    fw_cfg_init(&host->fw_cfg, ports);
    pc_pci_hotplug_init(&host->hotplug, host, ports);
    host->bus = pci_bus_new(state, "pci.0", &host->pci, DEVICES_DEVFN_MIN);
    pci_host_set_memory(&host->pci, host->bus, machine->memory);
    return TRUE;
}

static void host_reset(DeviceState *state)
{
    PcHost *host = PC_HOST(state);

    host->config_address = 0;
    pc_pci_hotplug_reset(&host->hotplug);
}

PcHost *pc_host_new(MachineState *machine, GError **errp)
{
    PcHost *host = PC_HOST(object_new(TYPE_PC_HOST));

    host->machine = machine;
    object_add_child((Object *)machine, "i440fx", (Object *)host);
    if (!device_realize(&host->parent_obj, NULL, errp)) {
        object_unparent((Object *)host);
        return NULL;
    }
    if (!bridge_add(host, i440fx_get_type(), 0, errp)) {
        return NULL;
    }
    host->isa = bridge_add(host, piix3_get_type(), 1, errp);
    return host->isa ? host : NULL;
}

static void pc_host_init(PcHost *host) {}

static void pc_host_class_init(PcHostClass *klass)
{
    DeviceClass *device_class = &klass->parent_class;

    device_class->parent_class.qom_name = "i440FX-pcihost";
    device_class->parent_class.description = "PC host: PCI configuration ports and interrupts";
    device_class->category = CATEGORY_BRIDGE;
    device_class->user_creatable_device = false;
    device_class->hotpluggable = false;
    device_class->realize = host_realize;
    device_class->unrealize = host_unrealize;
    device_class->reset = host_reset;
}

void pc_host_register_types(void)
{
    qom_register_type(TYPE_PC_HOST);
    qom_register_type(i440fx_get_type());
    qom_register_type(piix3_get_type());
}
