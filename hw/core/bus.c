/*
 * Buses: what devices are plugged into, and how they are found.
 *
 * Two trees meet here.  In the composition tree a bus is a child of the device that provides it.
 * In the bus tree, device → bus → device, the order of searching is the user's: first the
 * machine's own buses, then those behind bridges, so "-device X" without bus= lands on pci.0.
 */
#include <string.h>

#include "internal.h"

typedef BusClass BusStateClass; /* the name that the macro expects */
G_DEFINE_ABSTRACT_TYPE(BusState, bus, TYPE_OBJECT)

static void bus_dispose(GObject *obj)
{
    BusState *bus = BUS(obj);
    if (bus->owner) {
        g_ptr_array_remove(bus->owner->child_buses, bus);
        bus->owner = NULL;
    }
    /* Devices of a bus without owner: nobody has unrealized them. */
    while (bus->devices->len) {
        device_unrealize(bus->devices->pdata[bus->devices->len - 1]);
    }
    G_OBJECT_CLASS(bus_parent_class)->dispose(obj);
}

static void bus_finalize(GObject *obj)
{
    BusState *bus = BUS(obj);
    g_ptr_array_unref(bus->devices);
    g_free(bus->bus_name);
    G_OBJECT_CLASS(bus_parent_class)->finalize(obj);
}

static void bus_class_init(BusClass *klass)
{
    klass->parent_class.qom_name = "bus";
    G_OBJECT_CLASS(klass)->dispose = bus_dispose;
    G_OBJECT_CLASS(klass)->finalize = bus_finalize;
}

static void bus_init(BusState *bus)
{
    bus->devices = g_ptr_array_new();
}

/* A name that no other bus has: "<id>.N" or "<type>.N". */
static char *bus_auto_name(GType type, const DeviceState *owner)
{
    g_autofree char *stem =
        owner && owner->id ? g_strdup(owner->id) : g_ascii_strdown(qom_type_name(type), -1);
    for (unsigned n = 0;; n++) {
        char *name = g_strdup_printf("%s.%u", stem, n);
        if (!bus_find(name)) {
            return name;
        }
        g_free(name);
    }
}

BusState *bus_new(GType type, DeviceState *owner, const char *name)
{
    char *bus_name = name ? g_strdup(name) : bus_auto_name(type, owner);
    BusState *bus = BUS(object_new(type));
    bus->bus_name = bus_name;
    bus->owner = owner;
    Object *parent = owner ? OBJECT(owner) : qom_container("/machine/unattached");
    object_add_child(parent, bus_name, OBJECT(bus));
    if (owner) {
        g_ptr_array_add(owner->child_buses, bus);
    }
    return bus;
}

/* --- walking --- */

typedef bool BusFunc(BusState *bus, void *opaque);

static bool bus_walk_below(BusState *bus, BusFunc *fn, void *opaque)
{
    if (fn(bus, opaque)) {
        return true;
    }
    for (unsigned i = 0; i < bus->devices->len; i++) {
        DeviceState *dev = bus->devices->pdata[i];
        for (unsigned j = 0; j < dev->child_buses->len; j++) {
            if (bus_walk_below(dev->child_buses->pdata[j], fn, opaque)) {
                return true;
            }
        }
    }
    return false;
}

/* Finds root buses in the composition tree under @obj. */
static bool bus_walk_roots(Object *obj, BusFunc *fn, void *opaque)
{
    if (IS_BUS(obj)) {
        BusState *bus = BUS(obj);
        if ((!bus->owner || !bus->owner->parent_bus) && bus_walk_below(bus, fn, opaque)) {
            return true;
        }
    }
    for (unsigned i = 0; i < obj->children->len; i++) {
        if (bus_walk_roots(obj->children->pdata[i], fn, opaque)) {
            return true;
        }
    }
    return false;
}

bool bus_foreach(BusFunc *fn, void *opaque)
{
    return bus_walk_roots(qom_container("/machine"), fn, opaque);
}

typedef struct BusQuery {
    const char *name;
    GType type;
    BusState *found;
} BusQuery;

static bool bus_match_name(BusState *bus, void *opaque)
{
    BusQuery *query = opaque;
    query->found = strcmp(bus->bus_name, query->name) ? NULL : bus;
    return query->found != NULL;
}

static bool bus_match_type(BusState *bus, void *opaque)
{
    BusQuery *query = opaque;
    unsigned max = BUS_GET_CLASS(bus)->max_devices;
    if (!g_type_is_a(G_OBJECT_TYPE(bus), query->type)) {
        return false;
    }
    if (!query->found || !max || bus->devices->len < max) {
        query->found = bus;
    }
    return !max || bus->devices->len < max;
}

BusState *bus_find(const char *name)
{
    if (name[0] == '/') {
        Object *obj = qom_resolve_path(name, NULL);
        return obj && IS_BUS(obj) ? BUS(obj) : NULL;
    }
    BusQuery query = {.name = name};
    bus_foreach(bus_match_name, &query);
    return query.found;
}

BusState *bus_find_by_type(const char *qom_name)
{
    BusQuery query = {.type = qom_type_by_name(qom_name)};
    if (query.type != G_TYPE_INVALID) {
        bus_foreach(bus_match_type, &query);
    }
    return query.found;
}
