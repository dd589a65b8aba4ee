/*
 * pcie-root-port: a bridge from pcie.0 to one slot, whose device comes and goes while the machine
 * runs (native PCI Express hotplug, base specification 5.0, section 6.7).
 *
 * A device that comes sets Presence Detect and presses the attention button; the guest's driver
 * turns the slot's power on and finds it.  device_del presses the button too: the guest stops its
 * driver and turns the power off with the power indicator off, and then the device is removed.  A
 * guest that refuses turns the indicator back from blinking to on; DEVICE_UNPLUG_GUEST_ERROR
 * tells so.  A slot without power needs no guest, and a machine reset completes what was asked.
 *
 * Interrupts for slot events leave by MSI-X where the guest enabled that, else by INTA.
 *
 * Registers, masks and the migration section are those of QEMU's port with native hotplug.
 */
#include <string.h>

#include "hw/core/failover.h"
#include "hw/pci/pci-vmstate.h"
#include "hw/pci/pcie.h"
#include "util/event-loop.h"

/* Identification: QEMU's generic root port. */
#define VENDOR_ID 0x1b36
#define DEVICE_ID 0x000c

/* Layout of configuration space. */
#define SSVID_OFFSET 0x40
#define SSVID_SIZE   8
#define MSIX_OFFSET  0x48
#define EXP_OFFSET   0x54
#define EXP_SIZE     0x3c
#define LINK_16GT    0x4
#define LINK_X32     0x20
#define LINK_SPEEDS  0x1e       /* 2.5 to 16 GT/s */
#define PREFIXES     0x00300000 /* DEVCAP2: extended format field, end-to-end TLP prefix */
#define PREFIX_BLOCK 0x8000     /* DEVCTL2: end-to-end TLP prefix blocking */

#define SLOT_EVENTS (PCI_EXP_SLTSTA_ABP | PCI_EXP_SLTSTA_PDC | PCI_EXP_SLTSTA_CC)
#define SLOT_CONTROLS                                                                              \
    (PCI_EXP_SLTCTL_ABPE | PCI_EXP_SLTCTL_PDCE | PCI_EXP_SLTCTL_CCIE | PCI_EXP_SLTCTL_HPIE |       \
     PCI_EXP_SLTCTL_AIC | PCI_EXP_SLTCTL_PIC | PCI_EXP_SLTCTL_PCC | PCI_EXP_SLTCTL_EIC)

typedef struct RootPort {
    PCIDevice parent_obj;
    /* properties */
    uint8_t port, chassis;
    uint16_t slot;
    bool hotplug, power_controller;
    /* state */
    PCIBus *secondary;
    BottomHalf *reset_bh;
    bool event_level; /* a slot event wants an interrupt */
    uint16_t control; /* slot control as last acted upon */
} RootPort;
typedef struct RootPortClass {
    PCIDeviceClass parent_class;
} RootPortClass;

GType root_port_get_type(void);
G_DEFINE_TYPE(RootPort, root_port, TYPE_PCI_DEVICE)

void (*pcie_unplug_refused_hook)(const char *id, const char *path);

static RootPort *port_of_bus(PCIBus *bus)
{
    return (RootPort *)bus->parent_obj.owner;
}

static uint8_t *exp_register(RootPort *port, unsigned offset)
{
    return port->parent_obj.config + EXP_OFFSET + offset;
}

static uint16_t slot_control(RootPort *port)
{
    return pci_get_word(exp_register(port, PCI_EXP_SLTCTL));
}

static uint16_t slot_status(RootPort *port)
{
    return pci_get_word(exp_register(port, PCI_EXP_SLTSTA));
}

/* --- events --- */

/* Some enabled event is set: each rise of that is an interrupt (section 6.7.3.4). */
static bool events_pending(RootPort *port)
{
    static const struct {
        uint16_t status, enable;
    } pairs[] = {
        {PCI_EXP_SLTSTA_ABP, PCI_EXP_SLTCTL_ABPE},
        {PCI_EXP_SLTSTA_PDC, PCI_EXP_SLTCTL_PDCE},
        {PCI_EXP_SLTSTA_CC, PCI_EXP_SLTCTL_CCIE},
    };
    uint16_t control = slot_control(port), status = slot_status(port);
    bool level = false;

    for (unsigned i = 0; i < G_N_ELEMENTS(pairs); i++) {
        level |= (status & pairs[i].status) && (control & pairs[i].enable);
    }
    return level && (control & PCI_EXP_SLTCTL_HPIE);
}

static void events_update(RootPort *port)
{
    bool level = events_pending(port);

    if (msix_enabled(&port->parent_obj)) {
        pci_set_irq(&port->parent_obj, false);
        if (level && !port->event_level) {
            msix_notify(&port->parent_obj, 0);
        }
    } else {
        pci_set_irq(&port->parent_obj, level);
    }
    port->event_level = level;
}

static void status_change(RootPort *port, uint16_t set, uint16_t clear)
{
    uint16_t status = slot_status(port);

    pci_set_word(exp_register(port, PCI_EXP_SLTSTA), (uint16_t)((status | set) & ~clear));
    events_update(port);
}

static void link_set_up(RootPort *port, bool up)
{
    uint8_t *link = exp_register(port, PCI_EXP_LNKSTA);
    uint16_t value = pci_get_word(link);

    pci_set_word(link,
                 (uint16_t)(up ? value | PCI_EXP_LNKSTA_DLLLA : value & ~PCI_EXP_LNKSTA_DLLLA));
}

/* --- the slot --- */

static bool control_is_off(uint16_t control)
{
    return (control & PCI_EXP_SLTCTL_PCC) &&
           (control & PCI_EXP_SLTCTL_PIC) == PCI_EXP_SLTCTL_PWR_IND_OFF;
}

static bool bus_is_empty(const PCIBus *bus)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        if (bus->devices[i]) {
            return false;
        }
    }
    return true;
}

/* Everything in the slot goes; function 0 last, it makes the others visible. */
static void slot_empty(RootPort *port)
{
    PCIBus *bus = port->secondary;

    for (unsigned i = G_N_ELEMENTS(bus->devices); i-- > 0;) {
        if (bus->devices[i] && bus->devices[i]->parent_obj.realized) {
            device_remove(&bus->devices[i]->parent_obj);
        }
    }
}

static bool removal_is_pending(const PCIBus *bus)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        if (bus->devices[i] && bus->devices[i]->parent_obj.pending_deleted_event) {
            return true;
        }
    }
    return false;
}

/* The guest keeps what it was asked to give. */
static void removal_refused(PCIBus *bus)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        DeviceState *dev = bus->devices[i] ? &bus->devices[i]->parent_obj : NULL;
        if (!dev || !dev->pending_deleted_event) {
            continue;
        }
        dev->pending_deleted_event = false;
        failover_device_refused(dev->id);
        if (pcie_unplug_refused_hook) {
            g_autofree char *path = object_canonical_path((Object *)dev);
            pcie_unplug_refused_hook(dev->id, path);
        }
    }
}

static gboolean slot_plug_check(PCIBus *bus, PCIDevice *dev, GError **errp)
{
    RootPort *port = port_of_bus(bus);

    if (dev->parent_obj.hotplugged && !port->hotplug) {
        return error_set(errp, "Hot-plug failed: unsupported by the port device '%s'",
                         device_name(&port->parent_obj.parent_obj));
    }
    return TRUE;
}

static void slot_plugged(PCIBus *bus, PCIDevice *dev)
{
    RootPort *port = port_of_bus(bus);

    if (!port->parent_obj.config) {
        return;
    }
    /* Only with function 0 is there something to see. */
    if (!bus->devices[0]) {
        return;
    }
    link_set_up(port, true);
    if (dev->parent_obj.hotplugged) {
        status_change(port, PCI_EXP_SLTSTA_PDS | PCI_EXP_SLTSTA_PDC | PCI_EXP_SLTSTA_ABP, 0);
    } else {
        status_change(port, PCI_EXP_SLTSTA_PDS, 0);
    }
}

static gboolean slot_unplug_request(PCIBus *bus, PCIDevice *dev, GError **errp)
{
    RootPort *port = port_of_bus(bus);
    uint16_t control = slot_control(port);

    if (!port->hotplug) {
        return error_set(errp, "Hot-unplug failed: unsupported by the port device '%s'",
                         device_name(&port->parent_obj.parent_obj));
    }
    if ((control & PCI_EXP_SLTCTL_PIC) == PCI_EXP_SLTCTL_PWR_IND_BLINK) {
        return error_set(errp, "Hot-unplug failed: guest is busy (power indicator blinking)");
    }
    if (control_is_off(control) || !bus->devices[0]) {
        return FALSE; /* the guest does not see it: at once */
    }
    status_change(port, PCI_EXP_SLTSTA_ABP, 0);
    return TRUE;
}

static void slot_unplugged(PCIBus *bus, PCIDevice *dev)
{
    RootPort *port = port_of_bus(bus);

    if (!port->parent_obj.config || !port->parent_obj.parent_obj.realized || !bus_is_empty(bus)) {
        return;
    }
    link_set_up(port, false);
    status_change(port, PCI_EXP_SLTSTA_PDC, PCI_EXP_SLTSTA_PDS);
}

static const PciBusHotplugOps slot_ops = {
    .plug_check = slot_plug_check,
    .plugged = slot_plugged,
    .unplug_request = slot_unplug_request,
    .unplugged = slot_unplugged,
};

/* --- configuration space --- */

static bool overlaps(unsigned offset, unsigned size, unsigned at, unsigned at_size)
{
    return offset < at + at_size && at < offset + size;
}

static void control_written(RootPort *port, uint16_t old)
{
    uint16_t control = slot_control(port);

    if (control & PCI_EXP_SLTCTL_EIC) { /* reads as 0: each 1 turns the interlock over */
        port->control = control &= (uint16_t)~PCI_EXP_SLTCTL_EIC;
        pci_set_word(exp_register(port, PCI_EXP_SLTCTL), control);
        pci_set_word(exp_register(port, PCI_EXP_SLTSTA), slot_status(port) ^ PCI_EXP_SLTSTA_EIS);
    }
    if (!port->hotplug) {
        status_change(port, PCI_EXP_SLTSTA_CC, 0);
        return;
    }
    if (control_is_off(control) && !control_is_off(old) &&
        (slot_status(port) & PCI_EXP_SLTSTA_PDS)) {
        slot_empty(port);
    } else if ((old & PCI_EXP_SLTCTL_PIC) == PCI_EXP_SLTCTL_PWR_IND_BLINK &&
               (control & PCI_EXP_SLTCTL_PIC) == PCI_EXP_SLTCTL_PWR_IND_ON &&
               removal_is_pending(port->secondary)) {
        removal_refused(port->secondary);
    }
    status_change(port, PCI_EXP_SLTSTA_CC, 0);
}

static void root_port_config_written(PCIDevice *dev, unsigned offset, unsigned size)
{
    RootPort *port = (RootPort *)dev;

    pci_bridge_config_written(dev, port->secondary, offset, size);
    if (overlaps(offset, size, EXP_OFFSET + PCI_EXP_SLTCTL, 2)) {
        uint16_t old = port->control;
        port->control = slot_control(port);
        control_written(port, old);
    } else if (overlaps(offset, size, EXP_OFFSET + PCI_EXP_SLTSTA, 2) ||
               overlaps(offset, size, MSIX_OFFSET, PCI_CAP_MSIX_SIZEOF)) {
        events_update(port);
    }
}

static uint32_t slot_capability(const RootPort *port)
{
    return (uint32_t)port->slot << 19 | PCI_EXP_SLTCAP_EIP | PCI_EXP_SLTCAP_ABP |
           PCI_EXP_SLTCAP_AIP | PCI_EXP_SLTCAP_PIP |
           (port->hotplug ? PCI_EXP_SLTCAP_HPS | PCI_EXP_SLTCAP_HPC : 0) |
           (port->power_controller ? PCI_EXP_SLTCAP_PCP : 0);
}

static void express_init(RootPort *port)
{
    PCIDevice *dev = &port->parent_obj;
    uint8_t *exp = pci_add_capability(dev, PCI_CAP_ID_EXP, EXP_OFFSET, EXP_SIZE);
    uint8_t *wmask = dev->wmask + EXP_OFFSET, *w1cmask = dev->w1cmask + EXP_OFFSET;

    pci_set_word(exp + PCI_EXP_FLAGS, PCI_EXP_TYPE_ROOT_PORT << 4 | 2 | PCI_EXP_FLAGS_SLOT);
    pci_set_long(exp + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER);
    pci_set_word(wmask + PCI_EXP_DEVCTL, 0xf);
    pci_set_word(w1cmask + PCI_EXP_DEVSTA, 0xf);
    pci_set_long(exp + PCI_EXP_LNKCAP, LINK_16GT | LINK_X32 << 4 | PCI_EXP_LNKCAP_ASPM_L0S |
                                           PCI_EXP_LNKCAP_DLLLARC | PCI_EXP_LNKCAP_LBNC |
                                           (uint32_t)port->port << 24);
    pci_set_word(exp + PCI_EXP_LNKSTA, 0x11);
    pci_set_long(exp + PCI_EXP_SLTCAP, slot_capability(port));
    pci_set_word(wmask + PCI_EXP_SLTCTL, SLOT_CONTROLS);
    pci_set_word(w1cmask + PCI_EXP_SLTSTA, SLOT_EVENTS);
    pci_set_word(wmask + PCI_EXP_RTCTL, 0x7);
    pci_set_long(exp + PCI_EXP_DEVCAP2, PCI_EXP_DEVCAP2_ARI | PREFIXES);
    pci_set_word(wmask + PCI_EXP_DEVCTL2, PCI_EXP_DEVCTL2_ARI | PREFIX_BLOCK);
    pci_set_long(exp + PCI_EXP_LNKCAP2, LINK_SPEEDS);
    pci_set_word(exp + PCI_EXP_LNKCTL2, LINK_16GT);
    /* What the slot and the link are like is seen here, not taken from a saved state. */
    pci_set_word(dev->cmask + EXP_OFFSET + PCI_EXP_LNKSTA, 0);
    pci_set_word(dev->cmask + EXP_OFFSET + PCI_EXP_SLTSTA, 0);
}

static void ssvid_init(PCIDevice *dev)
{
    uint8_t *ssvid = pci_add_capability(dev, PCI_CAP_ID_SSVID, SSVID_OFFSET, SSVID_SIZE);

    pci_set_word(ssvid + PCI_SSVID_VENDOR_ID, VENDOR_ID);
}

static void reset_removals(void *opaque)
{
    RootPort *port = opaque;

    if (removal_is_pending(port->secondary)) {
        slot_empty(port);
    }
}

/* The guest that should have answered is gone; what was asked happens once the reset has walked
 * all devices.  A device in the slot is there from the start now, with its power on. */
static void root_port_reset(DeviceState *state)
{
    RootPort *port = (RootPort *)state;
    PCIDevice *dev = &port->parent_obj;
    bool empty = bus_is_empty(port->secondary);
    uint16_t control = PCI_EXP_SLTCTL_ATTN_IND_OFF |
                       (empty ? PCI_EXP_SLTCTL_PWR_IND_OFF : PCI_EXP_SLTCTL_PWR_IND_ON);

    ((DeviceClass *)root_port_parent_class)->reset(state);
    pci_bridge_reset_config(dev, port->secondary);
    pcie_port_extended_reset(dev);
    pci_set_word(exp_register(port, PCI_EXP_DEVCTL), 0);
    pci_set_word(exp_register(port, PCI_EXP_RTCTL), 0);
    pci_set_word(exp_register(port, PCI_EXP_DEVCTL2), 0);
    control |= empty && port->power_controller ? PCI_EXP_SLTCTL_PCC : 0;
    pci_set_word(exp_register(port, PCI_EXP_SLTCTL), control);
    port->control = control;
    link_set_up(port, !empty);
    pci_set_word(exp_register(port, PCI_EXP_SLTSTA), empty ? 0 : PCI_EXP_SLTSTA_PDS);
    events_update(port);
    if (removal_is_pending(port->secondary)) {
        bh_schedule(port->reset_bh);
    }
}

static gboolean root_port_realize(PCIDevice *dev, GError **errp)
{
    RootPort *port = (RootPort *)dev;

    if (!pcie_bus_is_root(dev->bus)) {
        return error_set(errp, "%s needs a PCI Express root bus (machine q35)",
                         device_name(&dev->parent_obj));
    }
    pci_bridge_init_config(dev);
    dev->config[PCI_INTERRUPT_PIN] = 1;
    ssvid_init(dev);
    if (!msix_init(dev, 1, 0, MSIX_OFFSET, errp)) {
        return FALSE;
    }
    msix_vector_use(dev, 0);
    express_init(port);
    pcie_port_extended_init(dev);
    port->reset_bh = bh_new(event_loop_main(), reset_removals, port);
    if (!port->secondary) {
        port->secondary =
            pcie_bus_new(&dev->parent_obj, dev->parent_obj.id, dev->bus->host, PCI_DEVFN(0, 0));
        port->secondary->express = true;
        port->secondary->hotplug = &slot_ops;
    }
    return TRUE;
}

static void root_port_exit(PCIDevice *dev)
{
    RootPort *port = (RootPort *)dev;

    g_clear_pointer(&port->reset_bh, bh_delete);
    msix_uninit(dev);
}

/* --- migration --- */

/* Errors that QEMU logged, in case there are any: nothing here ever reads them. */
#define AER_LOG_MAX 8

typedef struct AerError {
    uint32_t status;
    uint16_t source_id, flags;
    uint32_t header[4], prefix[4];
} AerError;

typedef struct AerLogView {
    uint32_t count; /* not in the stream */
    AerError log[AER_LOG_MAX];
} AerLogView;

typedef struct RootPortSaved {
    PciSaved pci;
    uint16_t log_num, log_max;
    MsixSaved msix;
} RootPortSaved;

static void aer_log_prepare(void *state, void *parent)
{
    ((AerLogView *)state)->count = ((const RootPortSaved *)parent)->log_num;
}

static const VMStateDescription vmstate_aer_error = {
    .name = "PCIE_AER_ERROR",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(AerError, status),
            VMS_UINT16(AerError, source_id),
            VMS_UINT16(AerError, flags),
            VMS_ARRAY(AerError, header, uint32),
            VMS_ARRAY(AerError, prefix, uint32),
            VMS_END,
        },
};

static const VMStateDescription vmstate_aer_log_errors = {
    .name = "errors",
    .state_size = sizeof(AerLogView),
    .prepare = aer_log_prepare,
    .fields =
        (const VMStateField[]){
            VMS_STRUCT_ARRAY(AerLogView, log, vmstate_aer_error, VMS_COUNTED(AerLogView, count)),
            VMS_END,
        },
};

static const VMStateDescription vmstate_aer_log = {
    .name = "PCIE_AER_ERROR_LOG",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT16(RootPortSaved, log_num, .max = AER_LOG_MAX),
            VMS_EQUAL(RootPortSaved, log_max, uint16),
            VMS_PART("log", vmstate_aer_log_errors),
            VMS_END,
        },
};

static void root_port_saved_prepare(void *state, void *opaque)
{
    RootPortSaved *s = state;

    pci_saved_prepare(&s->pci, opaque);
    msix_saved_prepare(&s->msix, opaque);
    s->log_max = AER_LOG_MAX;
}

static void root_port_saved_fill(void *state, void *opaque)
{
    RootPortSaved *s = state;

    pci_saved_fill(&s->pci, opaque);
    msix_saved_fill(&s->msix, opaque);
    s->log_max = AER_LOG_MAX;
}

/* What the slot holds and whether an interrupt was sent is what it is here and now. */
static void root_port_saved_apply(void *state, void *opaque)
{
    const RootPortSaved *s = state;
    RootPort *port = opaque;
    PCIDevice *dev = &port->parent_obj;
    bool empty = bus_is_empty(port->secondary);
    uint16_t status;

    msix_saved_apply(&s->msix, dev);
    pci_saved_apply(&s->pci, dev);
    pci_bridge_config_loaded(dev, port->secondary);
    status = slot_status(port) & (uint16_t)~PCI_EXP_SLTSTA_PDS;
    pci_set_word(exp_register(port, PCI_EXP_SLTSTA), status | (empty ? 0 : PCI_EXP_SLTSTA_PDS));
    link_set_up(port, !empty);
    port->control = slot_control(port);
    port->event_level = events_pending(port);
    pci_set_irq(dev, port->event_level && !msix_enabled(dev));
}

static const VMStateDescription vmstate_root_port = {
    .name = "pcie-root-port",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(RootPortSaved),
    .prepare = root_port_saved_prepare,
    .fill = root_port_saved_fill,
    .apply = root_port_saved_apply,
    .fields =
        (const VMStateField[]){
            {.name = "pci",
             .vmsd = &vmstate_pci_device,
             .offset = offsetof(RootPortSaved, pci),
             .size = sizeof(PciSaved)},
            VMS_PART("aer_log", vmstate_aer_log),
            {.name = "msix",
             .vmsd = &vmstate_msix,
             .offset = offsetof(RootPortSaved, msix),
             .size = sizeof(MsixSaved)},
            VMS_END,
        },
};

/* --- the class --- */

static const Property root_port_props[] = {
    PROP_UINT8("port", RootPort, port, 0, "Number of the port"),
    PROP_UINT8("chassis", RootPort, chassis, 0, "Number of the chassis that the slot is in"),
    PROP_UINT16("slot", RootPort, slot, 0, "Number of the slot"),
    PROP_BOOL("hotplug", RootPort, hotplug, true, "The slot's device may come and go"),
    PROP_BOOL("power_controller_present", RootPort, power_controller, true,
              "The guest can turn the slot's power off"),
    PROP_END,
};

static void root_port_init(RootPort *port) {}

static void root_port_class_init(RootPortClass *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;
    DeviceClass *device_class = &pci_class->parent_class;

    device_class->parent_class.qom_name = "pcie-root-port";
    device_class->parent_class.description = "PCI Express Root Port";
    qom_class_set_props(klass, root_port_props);
    device_class->category = CATEGORY_BRIDGE;
    device_class->user_creatable_device = true;
    device_class->hotpluggable = false;
    device_class->reset = root_port_reset;
    device_class->vmsd = &vmstate_root_port;
    pci_class->realize = root_port_realize;
    pci_class->exit = root_port_exit;
    pci_class->config_written = root_port_config_written;
    pci_class->vendor_id = VENDOR_ID;
    pci_class->device_id = DEVICE_ID;
    pci_class->class_id = 0x0604;
    pci_class->is_bridge = true;
    pci_class->is_express = true;
}

void pcie_root_port_register_types(void)
{
    qom_register_type(root_port_get_type());
}
