/*
 * The Q35/ICH9 side of the PCI Express root bus: interrupts, ECAM, and the two bridges on the
 * board.
 *
 *   PCIEXBAR (60h of 00:00.0) -> configuration space in memory, 4 KiB a function
 *   INTx of slots 0 to 24     -> PIRQ E + (slot + pin) & 3; of the board's own slots 25 to 31,
 *                                PIRQ A + pin, as the chipset's registers are after reset
 *   PIRQ A to H               -> lines 16 to 23, and the line in its route register (60h to 63h,
 *                                68h to 6Bh of 00:1f.0) unless that is off
 *
 * What the two chipsets share is in x86-pci-host.c.
 */
#include <string.h>

#include "hw/i386/q35.h"
#include "hw/pci/pcie.h"

#define MCH_PCIEXBAR     0x60
#define PCIEXBAR_ENABLE  0x1
#define PCIEXBAR_SIZE    0x6 /* 0: 256 buses, 2: 128, 4: 64 */
#define ECAM_SIZE        (256u << 20)
#define ISA_SLOT         0x1f
#define PIRQ_ROUTE_LOW   0x60
#define PIRQ_ROUTE_HIGH  0x68
#define PIRQ_DISABLED    0x80
#define FIRST_BOARD_SLOT 25

G_DEFINE_TYPE(Q35Host, q35_host, TYPE_X86_PCI_HOST)

typedef struct Mch {
    PCIDevice parent_obj;
} Mch;
typedef struct MchClass {
    PCIDeviceClass parent_class;
} MchClass;
typedef struct Ich9 {
    PCIDevice parent_obj;
} Ich9;
typedef struct Ich9Class {
    PCIDeviceClass parent_class;
} Ich9Class;

GType mch_get_type(void);
GType ich9_get_type(void);
G_DEFINE_TYPE(Mch, mch, TYPE_PCI_DEVICE)
G_DEFINE_TYPE(Ich9, ich9, TYPE_PCI_DEVICE)

static Q35Host *host_of(PciHost *pci)
{
    return Q35_HOST(x86_pci_host_of(pci));
}

/* --- interrupts --- */

static unsigned route_offset(unsigned pirq)
{
    return pirq < 4 ? PIRQ_ROUTE_LOW + pirq : PIRQ_ROUTE_HIGH + pirq - 4;
}

static unsigned q35_pirq(unsigned slot, unsigned pin)
{
    return slot < FIRST_BOARD_SLOT ? 4 + ((slot + pin) & 3) : pin;
}

static uint32_t q35_pirq_lines(const uint8_t *config, unsigned pirq)
{
    unsigned route = config[route_offset(pirq)];
    uint32_t direct = 1u << (16 + pirq);

    return route & PIRQ_DISABLED ? direct : direct | 1u << (route & 0xf);
}

static const PciHostOps host_ops = {
    .set_irq = x86_pci_host_set_irq,
    .msi_notify = x86_pci_host_msi_notify,
    .bar_mapped = x86_pci_host_bar_mapped,
    .msix_table_is_ours = true,
};

/* --- configuration space in memory --- */

/* Offset: bus in bits 27..20, device and function in 19..12, register in 11..0. */
static uint64_t ecam_read(void *opaque, uint64_t offset, unsigned size)
{
    Q35Host *host = opaque;
    PCIDevice *dev =
        pci_bus_find_device(host->parent_obj.bus, (offset >> 20) & 0xff, (offset >> 12) & 0xff);

    return dev ? pci_config_read(dev, offset & 0xfff, size) : UINT64_MAX;
}

static void ecam_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    Q35Host *host = opaque;
    PCIDevice *dev =
        pci_bus_find_device(host->parent_obj.bus, (offset >> 20) & 0xff, (offset >> 12) & 0xff);

    if (dev) {
        pci_config_write(dev, offset & 0xfff, (uint32_t)value, size);
    }
}

static const IoOps ecam_ops = {.read = ecam_read, .write = ecam_write, .max_access = 4};

static void ecam_update(Q35Host *host)
{
    const uint8_t *config = host->mch ? host->mch->config : NULL;
    IoSpace *mmio = &host->parent_obj.machine->mmio;
    uint32_t low = config ? pci_get_long(config + MCH_PCIEXBAR) : 0;
    unsigned shift = (low & PCIEXBAR_SIZE) >> 1;
    bool enable = (low & PCIEXBAR_ENABLE) && shift < 3;
    uint64_t size = (uint64_t)ECAM_SIZE >> (shift & 3);
    uint64_t base = 0;

    if (enable) {
        base = ((uint64_t)pci_get_long(config + MCH_PCIEXBAR + 4) << 32 | low) & ~(size - 1);
    }
    if (host->ecam_mapped) {
        io_space_unmap(mmio, &host->ecam);
        host->ecam_mapped = false;
    }
    if (base) {
        host->ecam.size = size;
        io_space_map(mmio, base, &host->ecam, 1);
        host->ecam_mapped = true;
    }
}

/* --- the bridges' classes --- */

static gboolean mch_realize(PCIDevice *dev, GError **errp)
{
    /* Bits 35..26 are the base, 2..0 size and enable (Q35 datasheet, section 5.1.15). */
    pci_set_long(dev->wmask + MCH_PCIEXBAR, 0xfc000007);
    pci_set_long(dev->wmask + MCH_PCIEXBAR + 4, 0xf);
    pci_set_long(dev->config + MCH_PCIEXBAR, 0xb0000000);
    return TRUE;
}

static void mch_config_written(PCIDevice *dev, unsigned offset, unsigned size)
{
    if (offset < MCH_PCIEXBAR + 8 && offset + size > MCH_PCIEXBAR) {
        ecam_update(host_of(dev->bus->host));
    }
}

static void mch_reset(DeviceState *state)
{
    PCIDevice *dev = PCI_DEVICE(state);

    ((DeviceClass *)mch_parent_class)->reset(state);
    pci_set_long(dev->config + MCH_PCIEXBAR, 0xb0000000);
    pci_set_long(dev->config + MCH_PCIEXBAR + 4, 0);
    ecam_update(host_of(dev->bus->host));
}

static void mch_init(Mch *mch) {}

static void mch_class_init(MchClass *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;

    x86_bridge_class_init(pci_class, "mch", "Host bridge");
    pci_class->parent_class.reset = mch_reset;
    pci_class->parent_class.vmsd = &vmstate_mch;
    pci_class->realize = mch_realize;
    pci_class->config_written = mch_config_written;
    pci_class->device_id = 0x29c0;
    pci_class->revision = 2;
    pci_class->class_id = 0x0600;
}

static void routes_reset(PCIDevice *dev)
{
    memset(dev->config + PIRQ_ROUTE_LOW, PIRQ_DISABLED, 4);
    memset(dev->config + PIRQ_ROUTE_HIGH, PIRQ_DISABLED, 4);
}

static gboolean ich9_realize(PCIDevice *dev, GError **errp)
{
    memset(dev->wmask + PIRQ_ROUTE_LOW, 0x8f, 4);
    memset(dev->wmask + PIRQ_ROUTE_HIGH, 0x8f, 4);
    routes_reset(dev);
    return TRUE;
}

static void ich9_config_written(PCIDevice *dev, unsigned offset, unsigned size)
{
    if (offset < PIRQ_ROUTE_HIGH + 4 && offset + size > PIRQ_ROUTE_LOW) {
        x86_pci_host_update_irq_lines(x86_pci_host_of(dev->bus->host));
    }
}

static void ich9_reset(DeviceState *state)
{
    PCIDevice *dev = PCI_DEVICE(state);

    ((DeviceClass *)ich9_parent_class)->reset(state);
    x86_isa_bridge_reset(dev);
    routes_reset(dev);
    x86_pci_host_update_irq_lines(x86_pci_host_of(dev->bus->host));
}

static void ich9_init(Ich9 *isa)
{
    isa->parent_obj.multifunction = true;
}

static void ich9_class_init(Ich9Class *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;

    x86_bridge_class_init(pci_class, "ICH9-LPC", "ISA bridge with the PCI interrupt routes");
    pci_class->parent_class.reset = ich9_reset;
    pci_class->parent_class.vmsd = &vmstate_ich9;
    pci_class->realize = ich9_realize;
    pci_class->config_written = ich9_config_written;
    pci_class->device_id = 0x2918;
    pci_class->revision = 2;
    pci_class->class_id = 0x0601;
}

/* --- the host --- */

static void host_unrealize(DeviceState *state)
{
    Q35Host *host = Q35_HOST(state);
    MachineState *machine = host->parent_obj.machine;

    x86_pci_host_stop(&host->parent_obj);
    if (host->ecam_mapped) {
        io_space_unmap(&machine->mmio, &host->ecam);
    }
    io_region_cleanup(&host->ecam);
}

static gboolean host_realize(DeviceState *state, GError **errp)
{
    Q35Host *host = Q35_HOST(state);
    X86PciHost *x86 = &host->parent_obj;

    x86_pci_host_prepare(x86, &host_ops);
    io_region_init(&host->ecam, "pcie-mmcfg", ECAM_SIZE, &ecam_ops, host);
    PCIBus *bus = pcie_bus_new(state, "pcie.0", &x86->pci, PCI_DEVFN(1, 0));
    bus->no_hotplug = true; /* the slots are those of root ports */
    x86_pci_host_start(x86, bus);
    return TRUE;
}

gboolean q35_host_new(MachineState *machine, GError **errp)
{
    X86PciHost *host = x86_pci_host_new(TYPE_Q35_HOST, machine, "q35", errp);
    PCIDevice *mch = host ? x86_pci_host_add(host, mch_get_type(), PCI_DEVFN(0, 0), errp) : NULL;

    if (!mch) {
        return FALSE;
    }
    Q35_HOST(host)->mch = mch;
    host->isa = x86_pci_host_add(host, ich9_get_type(), PCI_DEVFN(ISA_SLOT, 0), errp);
    return host->isa != NULL;
}

static void q35_host_init(Q35Host *host) {}

static void q35_host_class_init(Q35HostClass *klass)
{
    X86PciHostClass *x86_class = &klass->parent_class;
    DeviceClass *device_class = &x86_class->parent_class;

    x86_class->pirq = q35_pirq;
    x86_class->pirq_lines = q35_pirq_lines;
    device_class->parent_class.qom_name = "q35-pcihost";
    device_class->parent_class.description = "Q35 host: configuration space and interrupts";
    device_class->realize = host_realize;
    device_class->unrealize = host_unrealize;
    device_class->vmsd = &vmstate_q35_host;
}

void q35_host_register_types(void)
{
    qom_register_type(TYPE_Q35_HOST);
    qom_register_type(mch_get_type());
    qom_register_type(ich9_get_type());
}
