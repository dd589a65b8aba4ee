/*
 * Migration of PCs (`pc` and `q35`): the sections of their boards.  What else migration asks of a
 * machine is in x86-migration.c.
 */
#include "hw/i386/q35.h"
#include "hw/pci/pci-vmstate.h"

#define PIRQS 4

/* --- bridges: a PCI device and nothing else --- */

typedef struct BridgeSaved {
    PciSaved pci;
    uint8_t smm;               /* i440FX: no SMM here */
    int32_t irq_levels[PIRQS]; /* PIIX3: they follow from the devices */
} BridgeSaved;

static void bridge_prepare(void *state, void *opaque)
{
    pci_saved_prepare(&((BridgeSaved *)state)->pci, PCI_DEVICE(opaque));
}

static void bridge_fill(void *state, void *opaque)
{
    pci_saved_fill(&((BridgeSaved *)state)->pci, PCI_DEVICE(opaque));
}

/* What follows from the board's own registers (interrupt routes, the ECAM window) is made as if the
 * guest had written them. */
static void bridge_apply(void *state, void *opaque)
{
    PCIDevice *dev = PCI_DEVICE(opaque);
    PCIDeviceClass *klass = PCI_DEVICE_GET_CLASS(dev);

    pci_saved_apply(&((BridgeSaved *)state)->pci, dev);
    if (klass->config_written) {
        klass->config_written(dev, 0, dev->config_size);
    }
}

#define PCI_PART                                                                                   \
    {                                                                                              \
        .name = "parent_obj", .vmsd = &vmstate_pci_device, .offset = offsetof(BridgeSaved, pci),   \
        .size = sizeof(PciSaved)                                                                   \
    }

#define BRIDGE(var, text, newest, oldest, ...)                                                     \
    const VMStateDescription var = {                                                               \
        .name = text,                                                                              \
        .version = newest,                                                                         \
        .minimum_version = oldest,                                                                 \
        .state_size = sizeof(BridgeSaved),                                                         \
        .prepare = bridge_prepare,                                                                 \
        .fill = bridge_fill,                                                                       \
        .apply = bridge_apply,                                                                     \
        .fields = (const VMStateField[]){PCI_PART, __VA_ARGS__, VMS_END},                          \
    }

BRIDGE(vmstate_i440fx, "I440FX", 3, 3, VMS_UINT8(BridgeSaved, smm));
BRIDGE(vmstate_piix3, "PIIX3", 3, 2,
       VMS_ARRAY(BridgeSaved, irq_levels, int32, .version = 3, .max = 1));
BRIDGE(vmstate_mch, "mch", 1, 1, VMS_UINT8(BridgeSaved, smm));
BRIDGE(vmstate_ich9, "ICH9LPC", 1, 1, VMS_UNUSED(1));

/* --- the host: ports --- */

typedef struct HostSaved {
    uint32_t config_address;
    uint16_t fw_cfg_item;
    uint32_t fw_cfg_offset;
    uint32_t hotplug_up, hotplug_down, hotplug_select;
} HostSaved;

static void x86_host_fill(void *state, void *opaque)
{
    HostSaved *s = state;
    X86PciHost *host = X86_PCI_HOST(opaque);

    s->config_address = host->config_address;
    s->fw_cfg_item = host->fw_cfg.selected;
    s->fw_cfg_offset = host->fw_cfg.offset;
}

static void x86_host_apply(void *state, void *opaque)
{
    const HostSaved *s = state;
    X86PciHost *host = X86_PCI_HOST(opaque);

    host->config_address = s->config_address;
    host->fw_cfg.selected = s->fw_cfg_item;
    host->fw_cfg.offset = s->fw_cfg_offset;
}

static void pc_host_fill(void *state, void *opaque)
{
    HostSaved *s = state;
    PcHost *host = opaque;

    x86_host_fill(state, opaque);
    s->hotplug_up = host->hotplug.up;
    s->hotplug_down = host->hotplug.down;
    s->hotplug_select = host->hotplug.bus_select;
}

static void pc_host_apply(void *state, void *opaque)
{
    const HostSaved *s = state;
    PcHost *host = opaque;

    x86_host_apply(state, opaque);
    host->hotplug.up = s->hotplug_up;
    host->hotplug.down = s->hotplug_down;
    host->hotplug.bus_select = s->hotplug_select;
}

#define HOST(var, text, take, put)                                                                 \
    const VMStateDescription var = {                                                               \
        .name = text,                                                                              \
        .version = 1,                                                                              \
        .minimum_version = 1,                                                                      \
        .state_size = sizeof(HostSaved),                                                           \
        .fill = take,                                                                              \
        .apply = put,                                                                              \
        .fields =                                                                                  \
            (const VMStateField[]){                                                                \
                VMS_UINT32(HostSaved, config_address),                                             \
                VMS_UINT16(HostSaved, fw_cfg_item),                                                \
                VMS_UINT32(HostSaved, fw_cfg_offset),                                              \
                VMS_UINT32(HostSaved, hotplug_up),                                                 \
                VMS_UINT32(HostSaved, hotplug_down),                                               \
                VMS_UINT32(HostSaved, hotplug_select),                                             \
                VMS_END,                                                                           \
            },                                                                                     \
    }

HOST(vmstate_pc_host, "pc-host", pc_host_fill, pc_host_apply);
HOST(vmstate_q35_host, "q35-host", x86_host_fill, x86_host_apply);
