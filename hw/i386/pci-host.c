/*
 * The i440FX/PIIX3 side of the PCI bus: its interrupts, and the two bridges on the board.
 *
 *   INTx                -> PIRQ (slot - 1 + pin) & 3 -> line by registers 0x60..0x63 of the PIIX3
 *
 * How PIRQs become lines, and all else that is not this chipset's, is in x86-pci-host.c.
 */
#include <string.h>

#include "hw/i386/pc.h"
#include "hw/pci/pcie.h"

#define PIRQS               4
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

static unsigned pc_pirq(unsigned slot, unsigned pin)
{
    return (slot - 1 + pin) % PIRQS;
}

static uint32_t pc_pirq_lines(const uint8_t *config, unsigned pirq)
{
    unsigned route = config[PIIX3_PIRQ_ROUTE + pirq];

    return route < PC_IRQ_LINES ? 1u << route : 0;
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
    .set_irq = x86_pci_host_set_irq,
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

    x86_bridge_class_init(pci_class, "i440FX", "Host bridge");
    pci_class->parent_class.vmsd = &vmstate_i440fx;
    pci_class->device_id = 0x1237;
    pci_class->revision = 2;
    pci_class->class_id = 0x0600;
}

static gboolean piix3_realize(PCIDevice *dev, GError **errp)
{
    memset(dev->wmask + PIIX3_PIRQ_ROUTE, 0xff, PIRQS);
    memset(dev->config + PIIX3_PIRQ_ROUTE, PIIX3_PIRQ_DISABLED, PIRQS);
    return TRUE;
}

static void piix3_config_written(PCIDevice *dev, unsigned offset, unsigned size)
{
    if (offset < PIIX3_PIRQ_ROUTE + PIRQS && offset + size > PIIX3_PIRQ_ROUTE) {
        x86_pci_host_update_irq_lines(x86_pci_host_of(dev->bus->host));
    }
}

static void piix3_reset(DeviceState *state)
{
    PCIDevice *dev = PCI_DEVICE(state);

    ((DeviceClass *)piix3_parent_class)->reset(state);
    x86_isa_bridge_reset(dev);
    memset(dev->config + PIIX3_PIRQ_ROUTE, PIIX3_PIRQ_DISABLED, PIRQS);
    x86_pci_host_update_irq_lines(x86_pci_host_of(dev->bus->host));
}

static void piix3_init(Piix3 *isa)
{
    isa->parent_obj.multifunction = true;
}

static void piix3_class_init(Piix3Class *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;

    x86_bridge_class_init(pci_class, "PIIX3", "ISA bridge with the PCI interrupt routes");
    pci_class->parent_class.reset = piix3_reset;
    pci_class->parent_class.vmsd = &vmstate_piix3;
    pci_class->realize = piix3_realize;
    pci_class->config_written = piix3_config_written;
    pci_class->device_id = 0x7000;
    pci_class->class_id = 0x0601;
}

/* --- the host --- */

static void host_unrealize(DeviceState *state)
{
    PcHost *host = PC_HOST(state);

    x86_pci_host_stop(&host->parent_obj);
    pc_pci_hotplug_cleanup(&host->hotplug, &host->parent_obj.machine->ports);
}

static gboolean host_realize(DeviceState *state, GError **errp)
{
    PcHost *host = PC_HOST(state);
    X86PciHost *x86 = &host->parent_obj;

    x86_pci_host_prepare(x86, &host_ops);
    pc_pci_hotplug_init(&host->hotplug, host, &x86->machine->ports);
    x86_pci_host_start(x86, pci_bus_new(state, "pci.0", &x86->pci, DEVICES_DEVFN_MIN));
    return TRUE;
}

static void host_reset(DeviceState *state)
{
    ((DeviceClass *)pc_host_parent_class)->reset(state);
    pc_pci_hotplug_reset(&PC_HOST(state)->hotplug);
}

gboolean pc_host_new(MachineState *machine, GError **errp)
{
    X86PciHost *host = x86_pci_host_new(TYPE_PC_HOST, machine, "i440fx", errp);

    if (!host || !x86_pci_host_add(host, i440fx_get_type(), PCI_DEVFN(0, 0), errp)) {
        return FALSE;
    }
    host->isa = x86_pci_host_add(host, piix3_get_type(), PCI_DEVFN(1, 0), errp);
    return host->isa != NULL;
}

static void pc_host_init(PcHost *host) {}

static void pc_host_class_init(PcHostClass *klass)
{
    X86PciHostClass *x86_class = &klass->parent_class;
    DeviceClass *device_class = &x86_class->parent_class;

    x86_class->pirq = pc_pirq;
    x86_class->pirq_lines = pc_pirq_lines;
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
