/*
 * The i440FX/PIIX3 side of the PCI bus: its interrupts, and the two bridges on the board.
 *
 *   INTx                -> PIRQ (slot - 1 + pin) & 3 -> line by registers 0x60..0x63 of the PIIX3
 *
 * Interrupt levels may change in any thread.  A PIRQ counts who asserts it; the lines are made
 * from counts and routes, in the main thread, each time something changed.
 */
#include <string.h>

#include "hw/i386/pc.h"
#include "hw/pci/pcie.h"

#define PIIX3_PIRQ_ROUTE    0x60
#define PIIX3_PIRQ_DISABLED 0x80
#define DEVICES_DEVFN_MIN   PCI_DEVFN(2, 0) /* below are the bridges */

G_DEFINE_TYPE(PcHost, pc_host, TYPE_X86_PCI_HOST)

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
    return PC_HOST(x86_pci_host_of(pci));
}

/* --- interrupts --- */

static void irq_lines_update(void *opaque)
{
    PcHost *host = opaque;
    MachineState *machine = host->parent_obj.machine;
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
    unsigned slot, root_pin = pci_root_pin(dev, pin, &slot);
    unsigned pirq = (slot - 1 + root_pin) & 3;

    __atomic_add_fetch(&host->pirq_count[pirq], level ? 1 : -1, __ATOMIC_ACQ_REL);
    if (event_loop_current() == event_loop_main()) {
        irq_lines_update(host);
    } else {
        bh_schedule(host->irq_bh);
    }
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
    .msi_notify = x86_pci_host_msi_notify,
    .bar_mapped = x86_pci_host_bar_mapped,
    .msix_table_is_ours = true,
    .plugged = host_plugged,
    .unplug_request = host_unplug_request,
    .unplugged = host_unplugged,
};

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
    pci_class->parent_class.vmsd = &vmstate_i440fx;
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
    pci_class->parent_class.vmsd = &vmstate_piix3;
    pci_class->realize = piix3_realize;
    pci_class->config_written = piix3_config_written;
    pci_class->vendor_id = 0x8086;
    pci_class->device_id = 0x7000;
    pci_class->class_id = 0x0601;
}

/* --- the host --- */

static void host_unrealize(DeviceState *state)
{
    PcHost *host = PC_HOST(state);
    IoSpace *ports = &host->parent_obj.machine->ports;

    x86_pci_host_stop(&host->parent_obj);
    fw_cfg_cleanup(&host->fw_cfg, ports);
    pc_pci_hotplug_cleanup(&host->hotplug, ports);
    g_clear_pointer(&host->irq_bh, bh_delete);
}

static gboolean host_realize(DeviceState *state, GError **errp)
{
    PcHost *host = PC_HOST(state);
    X86PciHost *x86 = &host->parent_obj;
    IoSpace *ports = &x86->machine->ports;

    x86_pci_host_prepare(x86, &host_ops);
    host->irq_bh = bh_new(event_loop_main(), irq_lines_update, host);
    fw_cfg_init(&host->fw_cfg, ports);
    pc_pci_hotplug_init(&host->hotplug, host, ports);
    x86_pci_host_start(x86, pci_bus_new(state, "pci.0", &x86->pci, DEVICES_DEVFN_MIN));
    return TRUE;
}

static void host_reset(DeviceState *state)
{
    PcHost *host = PC_HOST(state);

    host->parent_obj.config_address = 0;
    pc_pci_hotplug_reset(&host->hotplug);
}

PcHost *pc_host_new(MachineState *machine, GError **errp)
{
    PcHost *host = PC_HOST(object_new(TYPE_PC_HOST));
    X86PciHost *x86 = &host->parent_obj;

    x86->machine = machine;
    object_add_child((Object *)machine, "i440fx", (Object *)host);
    if (!device_realize(&x86->parent_obj, NULL, errp)) {
        object_unparent((Object *)host);
        return NULL;
    }
    if (!x86_pci_host_add(x86, i440fx_get_type(), PCI_DEVFN(0, 0), errp)) {
        return NULL;
    }
    host->isa = x86_pci_host_add(x86, piix3_get_type(), PCI_DEVFN(1, 0), errp);
    return host->isa ? host : NULL;
}

static void pc_host_init(PcHost *host) {}

static void pc_host_class_init(PcHostClass *klass)
{
    DeviceClass *device_class = &klass->parent_class.parent_class;

    device_class->parent_class.qom_name = "i440FX-pcihost";
    device_class->parent_class.description = "PC host: PCI configuration ports and interrupts";
    device_class->realize = host_realize;
    device_class->unrealize = host_unrealize;
    device_class->reset = host_reset;
    device_class->vmsd = &vmstate_pc_host;
}

void pc_host_register_types(void)
{
    qom_register_type(TYPE_X86_PCI_HOST);
    qom_register_type(TYPE_PC_HOST);
    qom_register_type(i440fx_get_type());
    qom_register_type(piix3_get_type());
}
