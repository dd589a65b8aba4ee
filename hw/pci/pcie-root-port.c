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
 */
#include <string.h>

#include "hw/pci/pcie.h"
#include "util/event-loop.h"

/* Identification: QEMU's generic root port. */
#define VENDOR_ID 0x1b36
#define DEVICE_ID 0x000c

/* Layout of configuration space. */
#define MSIX_OFFSET 0x48
#define EXP_OFFSET  0x54
#define EXP_SIZE    0x3c
#define LINK_16GT   0x4
#define LINK_X32    0x20

#define SLOT_EVENTS                                                                                \
    (PCI_EXP_SLTSTA_ABP | PCI_EXP_SLTSTA_PFD | PCI_EXP_SLTSTA_MRLSC | PCI_EXP_SLTSTA_PDC |         \
     PCI_EXP_SLTSTA_CC | PCI_EXP_SLTSTA_DLLSC)
#define SLOT_CONTROLS                                                                              \
    (PCI_EXP_SLTCTL_ABPE | PCI_EXP_SLTCTL_PDCE | PCI_EXP_SLTCTL_CCIE | PCI_EXP_SLTCTL_HPIE |       \
     PCI_EXP_SLTCTL_AIC | PCI_EXP_SLTCTL_PIC | PCI_EXP_SLTCTL_PCC | PCI_EXP_SLTCTL_DLLSCE)

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

/* An interrupt for each rise of "some enabled event is set" (section 6.7.3.4). */
static void events_update(RootPort *port)
{
    static const struct {
        uint16_t status, enable;
    } pairs[] = {
        {PCI_EXP_SLTSTA_ABP, PCI_EXP_SLTCTL_ABPE},
        {PCI_EXP_SLTSTA_PDC, PCI_EXP_SLTCTL_PDCE},
        {PCI_EXP_SLTSTA_CC, PCI_EXP_SLTCTL_CCIE},
        {PCI_EXP_SLTSTA_DLLSC, PCI_EXP_SLTCTL_DLLSCE},
    };
    uint16_t control = slot_control(port), status = slot_status(port);
    bool level = false;

    for (unsigned i = 0; i < G_N_ELEMENTS(pairs); i++) {
        level |= (status & pairs[i].status) && (control & pairs[i].enable);
    }
    level = level && (control & PCI_EXP_SLTCTL_HPIE);
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
        status_change(
            port,
            PCI_EXP_SLTSTA_PDS | PCI_EXP_SLTSTA_PDC | PCI_EXP_SLTSTA_DLLSC | PCI_EXP_SLTSTA_ABP, 0);
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
    status_change(port, PCI_EXP_SLTSTA_PDC | PCI_EXP_SLTSTA_DLLSC, PCI_EXP_SLTSTA_PDS);
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

static void express_init(RootPort *port)
{
    PCIDevice *dev = &port->parent_obj;
    uint8_t *exp = pci_add_capability(dev, PCI_CAP_ID_EXP, EXP_OFFSET, EXP_SIZE);
    uint8_t *wmask = dev->wmask + EXP_OFFSET;
    uint32_t capability = (uint32_t)port->slot << 19;

    pci_set_word(exp + PCI_EXP_FLAGS, PCI_EXP_TYPE_ROOT_PORT << 4 | 2 | PCI_EXP_FLAGS_SLOT);
    pci_set_long(exp + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER);
    pci_set_word(wmask + PCI_EXP_DEVCTL, 0xf);
    pci_set_word(dev->w1cmask + EXP_OFFSET + PCI_EXP_DEVSTA, 0xf);
    pci_set_long(exp + PCI_EXP_LNKCAP,
                 LINK_16GT | LINK_X32 << 4 | PCI_EXP_LNKCAP_DLLLARC | (uint32_t)port->port << 24);
    pci_set_word(exp + PCI_EXP_LNKSTA, 0x11);
    if (port->hotplug) {
        capability |= PCI_EXP_SLTCAP_ABP | PCI_EXP_SLTCAP_AIP | PCI_EXP_SLTCAP_PIP |
                      PCI_EXP_SLTCAP_HPS | PCI_EXP_SLTCAP_HPC |
                      (port->power_controller ? PCI_EXP_SLTCAP_PCP : 0);
        pci_set_word(wmask + PCI_EXP_SLTCTL, SLOT_CONTROLS);
        pci_set_word(dev->w1cmask + EXP_OFFSET + PCI_EXP_SLTSTA, SLOT_EVENTS);
    }
    pci_set_long(exp + PCI_EXP_SLTCAP, capability);
    pci_set_word(wmask + PCI_EXP_RTCTL, 0xf);
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
    pci_set_word(exp_register(port, PCI_EXP_DEVCTL), 0);
    if (port->hotplug) {
        control |= empty && port->power_controller ? PCI_EXP_SLTCTL_PCC : 0;
        pci_set_word(exp_register(port, PCI_EXP_SLTCTL), control);
        port->control = control;
    }
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
    express_init(port);
    if (!msix_init(dev, 1, 0, MSIX_OFFSET, errp)) {
        return FALSE;
    }
    msix_vector_use(dev, 0);
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
