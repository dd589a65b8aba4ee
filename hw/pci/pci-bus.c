/*
 * The PCI bus: which device sits in which slot and function.
 *
 * A device asks for a place by its `addr` property or takes the first free slot.  plug_check()
 * reserves the place before the device is realized, so that two devices never fight for one; the
 * machine's PciHost is told of both comings and goings.  Not here: configuration space (pci.c).
 */
#include <string.h>

#include "hw/pci/pcie.h"

typedef struct PcieBus {
    PCIBus parent_obj;
} PcieBus;
typedef struct PcieBusClass {
    PCIBusClass parent_class;
} PcieBusClass;

GType pcie_bus_get_type(void);
G_DEFINE_TYPE(PCIBus, pci_bus, TYPE_BUS)
G_DEFINE_TYPE(PcieBus, pcie_bus, TYPE_PCI_BUS)

#define SLOT_MAX 31
#define FUNC_MAX 7

/* --- the `addr` property --- */

/* "SLOT[.FUNC]" in hexadecimal, each with or without 0x. */
static bool devfn_parse(const char *text, int32_t *devfn)
{
    char *end;
    guint64 slot, func = 0;

    if (!g_ascii_isxdigit(*text)) {
        return false;
    }
    slot = g_ascii_strtoull(text, &end, 16);
    if (*end == '.') {
        text = end + 1;
        if (!g_ascii_isxdigit(*text)) {
            return false;
        }
        func = g_ascii_strtoull(text, &end, 16);
    }
    if (*end || slot > SLOT_MAX || func > FUNC_MAX) {
        return false;
    }
    *devfn = (int32_t)PCI_DEVFN(slot, func);
    return true;
}

static gboolean devfn_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    int32_t *field = PROP_FIELD(obj, prop, int32_t);
    const char *text = property_value_text(value);
    int64_t number;

    if (text && devfn_parse(text, field)) {
        return TRUE;
    }
    if (json_object_get_type(value) == json_type_int) {
        number = json_object_get_int64(value);
        if (number >= -1 && number <= PCI_DEVFN(SLOT_MAX, FUNC_MAX)) {
            *field = (int32_t)number;
            return TRUE;
        }
    }
    return property_error_value(obj, prop, value, errp,
                                "SLOT[.FUNCTION] in hexadecimal, slot 0 to 1f, function 0 to 7; as "
                                "a number: slot * 8 + function");
}

static json_object *devfn_get(Object *obj, const Property *prop)
{
    return json_object_new_int(*PROP_FIELD(obj, prop, int32_t));
}

static void devfn_set_default(Object *obj, const Property *prop)
{
    *PROP_FIELD(obj, prop, int32_t) = (int32_t)prop->defval.i;
}

static json_object *devfn_default(const Property *prop)
{
    return json_object_new_int((int32_t)prop->defval.i);
}

const PropertyInfo prop_info_pci_devfn = {
    .type = "int32",
    .set = devfn_set,
    .get = devfn_get,
    .set_default = devfn_set_default,
    .default_value = devfn_default,
};

/* --- places --- */

static bool place_find(PCIBus *bus, PCIDevice *dev, GError **errp)
{
    unsigned end = bus->express ? 1 : G_N_ELEMENTS(bus->devices); /* a link has one slot */

    for (unsigned devfn = bus->devfn_min; devfn < end; devfn += 8) {
        if (!bus->devices[devfn]) {
            dev->devfn = (int32_t)devfn;
            return true;
        }
    }
    return error_set(errp, "PCI: no slot/function available for %s, all in use or reserved",
                     object_type_name((Object *)dev));
}

static bool place_check(PCIBus *bus, PCIDevice *dev, GError **errp)
{
    unsigned devfn = (unsigned)dev->devfn;
    unsigned slot = PCI_SLOT(devfn), func = PCI_FUNC(devfn);
    PCIDevice *other = bus->devices[devfn];
    PCIDevice *first = bus->devices[PCI_DEVFN(slot, 0)];

    if (bus->express && slot) {
        return error_set(errp,
                         "PCI: slot %u is not valid for %s, parent device only allows plugging "
                         "into slot 0",
                         slot, device_name(&dev->parent_obj));
    }
    if (other) {
        return error_set(errp, "PCI: slot %u function %u not available for %s, in use by %s,id=%s",
                         slot, func, object_type_name((Object *)dev),
                         object_type_name((Object *)other),
                         other->parent_obj.id ? other->parent_obj.id : "");
    }
    if (func && first && !first->multifunction) {
        return error_set(errp, "PCI: single function device can't be populated in function %x.%x",
                         slot, func);
    }
    if (func && first && dev->parent_obj.hotplugged) {
        return error_set(errp,
                         "PCI: slot %u function 0 already occupied by %s, new func %s cannot be "
                         "exposed to guest",
                         slot, device_name(&first->parent_obj), device_name(&dev->parent_obj));
    }
    if (func || dev->multifunction) {
        return true;
    }
    for (unsigned i = 1; i <= FUNC_MAX; i++) {
        if (bus->devices[PCI_DEVFN(slot, i)]) {
            return error_set(errp,
                             "PCI: %x.0 indicates single function, but %x.%x is already populated",
                             slot, slot, i);
        }
    }
    return true;
}

static bool acpi_index_check(PCIBus *bus, PCIDevice *dev, GError **errp)
{
    for (unsigned i = 0; dev->acpi_index && i < G_N_ELEMENTS(bus->devices); i++) {
        if (bus->devices[i] && bus->devices[i]->acpi_index == dev->acpi_index) {
            return error_set(errp, "a PCI device with acpi-index = %u already exist",
                             dev->acpi_index);
        }
    }
    return true;
}

static gboolean pci_bus_plug_check(BusState *state, DeviceState *child, GError **errp)
{
    PCIBus *bus = PCI_BUS(state);
    PCIDevice *dev = PCI_DEVICE(child);

    if (child->hotplugged && bus->no_hotplug) {
        return error_set(errp, "Bus '%s' does not support hotplugging", state->bus_name);
    }
    if (bus->hotplug && bus->hotplug->plug_check && !bus->hotplug->plug_check(bus, dev, errp)) {
        return FALSE;
    }
    if (dev->devfn < 0 ? !place_find(bus, dev, errp) : !place_check(bus, dev, errp)) {
        return FALSE;
    }
    if (!acpi_index_check(bus, dev, errp)) {
        return FALSE;
    }
    bus->devices[dev->devfn] = dev;
    dev->bus = bus;
    return TRUE;
}

static void pci_bus_plugged(BusState *state, DeviceState *child)
{
    PCIBus *bus = PCI_BUS(state);
    PciHost *host = bus->host;

    if (bus->hotplug) {
        bus->hotplug->plugged(bus, PCI_DEVICE(child));
    } else if (host->ops->plugged) {
        host->ops->plugged(host, PCI_DEVICE(child));
    }
}

/* Also called for a device that never got its place: then there is nothing to give back. */
static void pci_bus_unplugged(BusState *state, DeviceState *child)
{
    PCIBus *bus = PCI_BUS(state);
    PCIDevice *dev = PCI_DEVICE(child);

    if (dev->bus != bus) {
        return;
    }
    bus->devices[dev->devfn] = NULL;
    if (bus->hotplug) {
        bus->hotplug->unplugged(bus, dev);
    } else if (bus->host->ops->unplugged) {
        bus->host->ops->unplugged(bus->host, dev);
    }
    dev->bus = NULL;
}

static gboolean pci_bus_unplug_request(BusState *state, DeviceState *child, GError **errp)
{
    PCIBus *bus = PCI_BUS(state);
    PCIDevice *dev = PCI_DEVICE(child);

    if (bus->no_hotplug) {
        return error_set(errp, "Bus '%s' does not support hotplugging", state->bus_name);
    }
    if (!bus->hotplug && !bus->host->ops->unplug_request) {
        return FALSE;
    }
    if (child->pending_deleted_event) {
        return error_set(errp, "Device %s is already in the process of unplug", device_name(child));
    }
    child->pending_deleted_event = bus->hotplug
                                       ? bus->hotplug->unplug_request(bus, dev, errp)
                                       : bus->host->ops->unplug_request(bus->host, dev, errp);
    return child->pending_deleted_event;
}

PCIDevice *pci_bus_bridge(const PCIBus *bus)
{
    DeviceState *owner = bus->parent_obj.owner;

    return owner && IS_PCI_DEVICE(owner) ? PCI_DEVICE(owner) : NULL;
}

/* --- names and listings --- */

char *pci_device_address(const PCIDevice *dev)
{
    unsigned devfn = (unsigned)dev->devfn;

    return g_strdup_printf("%02x:%02x.%x", dev->bus ? dev->bus->number : 0, PCI_SLOT(devfn),
                           PCI_FUNC(devfn));
}

/* "0000:00:02.0:00.0": the root bus, then slot and function at each level, so that the path does
 * not depend on how firmware numbers buses. */
static char *pci_bus_device_path(DeviceState *child)
{
    PCIDevice *dev = PCI_DEVICE(child);
    g_autofree char *below = g_strdup("");

    for (;;) {
        unsigned devfn = (unsigned)dev->devfn;
        PCIDevice *bridge = dev->bus ? pci_bus_bridge(dev->bus) : NULL;
        char *path = g_strdup_printf(":%02x.%x%s", PCI_SLOT(devfn), PCI_FUNC(devfn), below);
        g_free(below);
        below = path;
        if (!bridge) {
            break;
        }
        dev = bridge;
    }
    return g_strdup_printf("0000:%02x%s", dev->bus ? dev->bus->number : 0, below);
}

static const char *class_description(uint16_t class_id)
{
    switch (class_id) {
    case 0x0200:
        return "Ethernet controller";
    case 0x0600:
        return "Host bridge";
    case 0x0601:
        return "ISA bridge";
    case 0x0604:
        return "PCI bridge";
    default:
        return NULL;
    }
}

static void print_bar(PCIDevice *dev, unsigned n, GString *out, int indent)
{
    const PciBar *bar = &dev->bars[n];
    bool is_io = bar->type & PCI_BASE_ADDRESS_SPACE_IO;
    uint64_t last = bar->mapped_at == UINT64_MAX ? bar->size - 2 : bar->mapped_at + bar->size - 1;

    g_string_append_printf(out, "%*sbar %u: %s at 0x%" PRIx64 " [0x%" PRIx64 "]\r\n", indent, "", n,
                           is_io ? "i/o" : "mem", bar->mapped_at, last);
}

static void pci_bus_print_device(DeviceState *child, GString *out, int indent)
{
    PCIDevice *dev = PCI_DEVICE(child);
    g_autofree char *address = NULL;
    const char *description;
    uint16_t class_id;

    if (!dev->bus || !dev->config) {
        return;
    }
    address = pci_device_address(dev);
    class_id = pci_get_word(dev->config + PCI_CLASS_DEVICE);
    description = class_description(class_id);
    g_string_append_printf(out, "%*sclass ", indent, "");
    if (description) {
        g_string_append(out, description);
    } else {
        g_string_append_printf(out, "%04x", class_id);
    }
    g_string_append_printf(out, ", addr %s, pci id %04x:%04x (sub %04x:%04x)\r\n", address,
                           pci_get_word(dev->config + PCI_VENDOR_ID),
                           pci_get_word(dev->config + PCI_DEVICE_ID),
                           pci_get_word(dev->config + PCI_SUBSYSTEM_VENDOR_ID),
                           pci_get_word(dev->config + PCI_SUBSYSTEM_ID));
    for (unsigned n = 0; n < PCI_NUM_BARS; n++) {
        if (dev->bars[n].region) {
            print_bar(dev, n, out, indent);
        }
    }
}

/* --- the bus class --- */

static PCIBus *pci_bus_new_type(GType type, DeviceState *owner, const char *name, PciHost *host,
                                unsigned devfn_min)
{
    PCIBus *bus = PCI_BUS(bus_new(type, owner, name));

    bus->host = host;
    bus->devfn_min = devfn_min;
    return bus;
}

PCIBus *pci_bus_new(DeviceState *owner, const char *name, PciHost *host, unsigned devfn_min)
{
    return pci_bus_new_type(TYPE_PCI_BUS, owner, name, host, devfn_min);
}

PCIBus *pcie_bus_new(DeviceState *owner, const char *name, PciHost *host, unsigned devfn_min)
{
    return pci_bus_new_type(pcie_bus_get_type(), owner, name, host, devfn_min);
}

bool pcie_bus_is_root(const PCIBus *bus)
{
    return g_type_is_a(G_OBJECT_TYPE(bus), pcie_bus_get_type()) && !pci_bus_bridge(bus);
}

static void bus_set_memory(PCIBus *bus, MemoryMap *map)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        PCIDevice *dev = bus->devices[i];
        /* A place is taken before its device is realized; it gets the map then. */
        if (!dev || !dev->config) {
            continue;
        }
        dma_space_set_map(&dev->dma, map);
        for (unsigned j = 0; j < dev->parent_obj.child_buses->len; j++) {
            BusState *below = dev->parent_obj.child_buses->pdata[j];
            if (IS_PCI_BUS(below)) {
                bus_set_memory(PCI_BUS(below), map);
            }
        }
    }
}

void pci_host_set_memory(PciHost *host, PCIBus *bus, MemoryMap *map)
{
    MemoryMap *old = host->memory;

    host->memory = memory_map_ref(map);
    if (bus) {
        bus_set_memory(bus, map);
    }
    if (old) {
        memory_map_unref(old);
    }
}

static void pci_bus_init(PCIBus *bus) {}

static void pci_bus_class_init(PCIBusClass *klass)
{
    BusClass *bus_class = &klass->parent_class;

    bus_class->parent_class.qom_name = "PCI";
    bus_class->plug_check = pci_bus_plug_check;
    bus_class->plugged = pci_bus_plugged;
    bus_class->unplugged = pci_bus_unplugged;
    bus_class->unplug_request = pci_bus_unplug_request;
    bus_class->device_path = pci_bus_device_path;
    bus_class->print_device = pci_bus_print_device;
}

static void pcie_bus_init(PcieBus *bus) {}

static void pcie_bus_class_init(PcieBusClass *klass)
{
    ((ObjectClass *)klass)->qom_name = "PCIE";
}

void pci_bus_register_types(void)
{
    qom_register_type(TYPE_PCI_BUS);
    qom_register_type(pcie_bus_get_type());
}
