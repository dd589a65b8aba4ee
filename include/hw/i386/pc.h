/*
 * The `pc` machine: a PC without a CPU.  An i440FX host bridge with PCI bus "pci.0", a PIIX3 with
 * the PIRQ routes, fw_cfg, and the ACPI PCI hotplug registers.  qtest plays the CPU.
 */
#ifndef HW_I386_PC_H
#define HW_I386_PC_H

#include "hw/core/machine.h"
#include "hw/pci/pci.h"
#include "util/event-loop.h"

#define PC_MACHINE_DEFAULT "pc-i440fx-7.2" /* known to every QEMU from 7.2 to 11.1 */
#define PC_IRQ_LINES       16 /* that the route registers reach */
#define IOAPIC_INPUTS      24

typedef struct PcHost PcHost;

/* fw_cfg: items that firmware reads through two ports.  Item numbers and formats are QEMU's. */
typedef struct FwCfg {
    IoRegion region;
    GArray *items;       /* FwCfgItem */
    uint16_t selected;
    uint32_t offset;     /* of the next byte read */
} FwCfg;

void fw_cfg_init(FwCfg *fw_cfg, IoSpace *ports);
void fw_cfg_cleanup(FwCfg *fw_cfg, IoSpace *ports);
/* Copies @size bytes as item @key, replacing an earlier one. */
void fw_cfg_add(FwCfg *fw_cfg, uint16_t key, const void *data, size_t size);
/* What firmware asks of every machine: the signature, RAM size, CPUs, no files. */
void fw_cfg_add_machine(FwCfg *fw_cfg, const MachineState *machine);

/* ACPI PCI hotplug registers: one bit a slot of bus 0. */
typedef struct PcPciHotplug {
    IoRegion region;
    PcHost *host;
    uint32_t up;         /* came; cleared by reading */
    uint32_t down;       /* asked to go */
    uint32_t bus_select;
    BottomHalf *reset_bh;
} PcPciHotplug;

void pc_pci_hotplug_init(PcPciHotplug *hotplug, PcHost *host, IoSpace *ports);
void pc_pci_hotplug_cleanup(PcPciHotplug *hotplug, IoSpace *ports);
void pc_pci_hotplug_plugged(PcPciHotplug *hotplug, PCIDevice *dev);
void pc_pci_hotplug_unplug_request(PcPciHotplug *hotplug, PCIDevice *dev);
void pc_pci_hotplug_unplugged(PcPciHotplug *hotplug, PCIDevice *dev);
/* A reset completes what was asked: the guest that should have answered is gone. */
void pc_pci_hotplug_reset(PcPciHotplug *hotplug);

#define X86_PIRQS 8 /* at most */

/* What the host bridges of PCs share (x86-pci-host.c). */
typedef struct X86PciHost {
    DeviceState parent_obj;
    PciHost pci;
    MachineState *machine;
    PCIBus *bus;
    IoRegion address_port, data_port;
    uint32_t config_address; /* as written to 0xCF8 */
    bool in_dma;
    FwCfg fw_cfg;
    PCIDevice *isa; /* the bridge with the PIRQ route registers; NULL until it is on the board */
    int pirq_count[X86_PIRQS]; /* devices that assert it; atomic */
    BottomHalf *irq_bh;        /* for interrupts from other threads */
} X86PciHost;
typedef struct X86PciHostClass {
    DeviceClass parent_class;
    /* The PIRQ that @pin (0 to 3: A to D) of @slot of the root bus asserts. */
    unsigned (*pirq)(unsigned slot, unsigned pin);
    /* The lines that @pirq raises, a bit each, by the registers in @config of the ISA bridge. */
    uint32_t (*pirq_lines)(const uint8_t *config, unsigned pirq);
} X86PciHostClass;

QOM_DECLARE_TYPE(X86PciHost, X86PciHostClass, x86_pci_host, X86_PCI_HOST)
#define TYPE_X86_PCI_HOST (x86_pci_host_get_type())

static inline X86PciHost *x86_pci_host_of(PciHost *pci)
{
    return (X86PciHost *)((char *)pci - offsetof(X86PciHost, pci));
}

/* A host of @type, realized, as child @name of @machine; NULL with error. */
X86PciHost *x86_pci_host_new(GType type, MachineState *machine, const char *name, GError **errp);
/* In this order while realizing: prepare, make the bus with &host->pci, start. */
void x86_pci_host_prepare(X86PciHost *host, const PciHostOps *ops);
void x86_pci_host_start(X86PciHost *host, PCIBus *bus);
void x86_pci_host_stop(X86PciHost *host);
/* A device of the board, realized and reset; NULL with error. */
PCIDevice *x86_pci_host_add(X86PciHost *host, GType type, unsigned devfn, GError **errp);
/* What every bridge on the board is: Intel's, and there from the start. */
void x86_bridge_class_init(PCIDeviceClass *pci_class, const char *name, const char *description);
/* After the reset of its PCI part: it cannot be switched off. */
void x86_isa_bridge_reset(PCIDevice *isa);
/* Routes changed: tells the lines that changed.  Main thread. */
void x86_pci_host_update_irq_lines(X86PciHost *host);
/* For PciHostOps. */
void x86_pci_host_set_irq(PciHost *pci, PCIDevice *dev, unsigned pin, bool level);
void x86_pci_host_msi_notify(PciHost *pci, PCIDevice *dev, unsigned vector, uint64_t addr,
                             uint32_t data);
void x86_pci_host_bar_mapped(PciHost *pci, PCIDevice *dev, unsigned n, uint64_t addr,
                             bool enabled);

/* The i440FX: its hotplug registers. */
struct PcHost {
    X86PciHost parent_obj;
    PcPciHotplug hotplug;
};
typedef struct PcHostClass {
    X86PciHostClass parent_class;
} PcHostClass;

QOM_DECLARE_TYPE(PcHost, PcHostClass, pc_host, PC_HOST)
#define TYPE_PC_HOST (pc_host_get_type())

/* Bridge, bus and what sits on the board. */
gboolean pc_host_new(MachineState *machine, GError **errp);

/* A machine whose versions differ in nothing but their name. */
typedef struct X86MachineVersion {
    const char *name;       /* "pc-i440fx-7.2" */
    const char *qom_name;   /* "pc-i440fx-7.2-machine" */
    const char *gtype_name; /* without dots */
    const char *alias;      /* or NULL */
    bool is_default;        /* of all machines */
} X86MachineVersion;
#define X86_MACHINE_VERSION(text, gtype, ...)                                                      \
    {                                                                                              \
        .name = text, .qom_name = text "-machine", .gtype_name = gtype, ##__VA_ARGS__              \
    }
/* Registers one type derived from @parent for each row; @versions lives forever. */
void x86_machine_register_versions(GType parent, const X86MachineVersion *versions, unsigned n);

/* pc-vmstate.c */
extern const struct VMStateDescription vmstate_i440fx, vmstate_piix3, vmstate_pc_host;
extern const struct VMStateDescription vmstate_mch, vmstate_ich9, vmstate_q35_host;

/* Makes the machine known to migration (x86-migration.c). */
void x86_register_migration(void);

/* Register the host bridges' types (pci-host.c, q35-host.c) and the q35 machines. */
void pc_host_register_types(void);
/* The machine without PCI (microvm.c). */
void microvm_register_types(void);
void q35_host_register_types(void);
void q35_register_types(void);
/* Registers the machines and all of hw/i386. */
void hw_i386_register_types(void);

#endif
