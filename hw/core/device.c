/*
 * Devices: realize, unrealize, reset, drain.
 *
 * device_realize() is the one place where a device comes to be: it reserves a place on the bus,
 * runs the class's realize, and undoes all of it when that fails.  device_unrealize() is its
 * mirror.  Users' devices come through hotplug.c, which calls both.
 *
 * What hangs on a device's buses follows it: reset and unrealize take children first, drain takes
 * the device first, so that nothing new comes down while its children come to rest.
 */
#include "hw/core/device.h"

#include <string.h>

#include "internal.h"

typedef DeviceClass DeviceStateClass; /* the name that the macro expects */
G_DEFINE_ABSTRACT_TYPE(DeviceState, device, TYPE_OBJECT)

/* --- properties that describe the device's place --- */

static Object *parent_bus_target(Object *obj, const Property *prop)
{
    BusState *bus = DEVICE(obj)->parent_bus;
    return bus ? OBJECT(bus) : NULL;
}

static json_object *parent_bus_get(Object *obj, const Property *prop)
{
    Object *bus = parent_bus_target(obj, prop);
    g_autofree char *path = bus ? object_canonical_path(bus) : NULL;
    return json_object_new_string(path ? path : "");
}

static const PropertyInfo parent_bus_info = {
    .type = "link",
    .get = parent_bus_get,
    .link = parent_bus_target,
};

static json_object *hotpluggable_get(Object *obj, const Property *prop)
{
    return json_object_new_boolean(DEVICE_GET_CLASS(obj)->hotpluggable);
}

static const PropertyInfo hotpluggable_info = {
    .type = "bool",
    .get = hotpluggable_get,
};

#define PLACE_FLAGS .flags = PROP_F_READONLY | PROP_F_HIDDEN
static const Property device_props[] = {
    PROP_BOOL("realized", DeviceState, realized, false, NULL, PLACE_FLAGS),
    PROP_BOOL("hotplugged", DeviceState, hotplugged, false, NULL, PLACE_FLAGS),
    {.name = "hotpluggable", .info = &hotpluggable_info, PLACE_FLAGS},
    {.name = "parent_bus", .info = &parent_bus_info, .arg = "bus", PLACE_FLAGS},
    PROP_END,
};

/* --- class --- */

static bool device_is_frozen(Object *obj)
{
    return DEVICE(obj)->realized;
}

static void device_frozen_error(Object *obj, const char *name, GError **errp)
{
    DeviceState *dev = DEVICE(obj);
    if (dev->id) {
        error_set(errp,
                  "Attempt to set property '%s' on device '%s' (type '%s') after it was realized",
                  name, dev->id, object_type_name(obj));
    } else {
        error_set(errp,
                  "Attempt to set property '%s' on anonymous device (type '%s') after it was "
                  "realized",
                  name, object_type_name(obj));
    }
}

static void device_unparent(Object *obj)
{
    device_unrealize(DEVICE(obj));
}

static void device_dispose(GObject *obj)
{
    device_unrealize(DEVICE(obj));
    G_OBJECT_CLASS(device_parent_class)->dispose(obj);
}

static void device_finalize(GObject *obj)
{
    DeviceState *dev = DEVICE(obj);
    g_free(dev->id);
    g_ptr_array_unref(dev->child_buses);
    G_OBJECT_CLASS(device_parent_class)->finalize(obj);
}

static void device_class_init(DeviceClass *klass)
{
    ObjectClass *oc = &klass->parent_class;
    oc->qom_name = "device";
    oc->is_frozen = device_is_frozen;
    oc->frozen_error = device_frozen_error;
    oc->unparent = device_unparent;
    qom_class_set_props(klass, device_props);
    klass->category = CATEGORY_MISC;
    klass->hotpluggable = true;
    G_OBJECT_CLASS(klass)->dispose = device_dispose;
    G_OBJECT_CLASS(klass)->finalize = device_finalize;
}

static void device_init(DeviceState *dev)
{
    dev->child_buses = g_ptr_array_new();
}

void device_register_types(void)
{
    qom_register_type(TYPE_DEVICE);
    qom_register_type(TYPE_BUS);
}

/* --- realize and unrealize --- */

/* Puts a device that nobody owns yet under @container as "device[N]", N the lowest free. */
void device_add_numbered(DeviceState *dev, const char *container)
{
    Object *parent = qom_container(container);
    for (unsigned n = 0;; n++) {
        g_autofree char *name = g_strdup_printf("device[%u]", n);
        if (!object_child(parent, name)) {
            object_add_child(parent, name, OBJECT(dev));
            return;
        }
    }
}

/* Does @bus fit the class of @dev? */
static gboolean bus_fits(DeviceState *dev, BusState *bus, GError **errp)
{
    const char *want = DEVICE_GET_CLASS(dev)->bus_type;
    const char *driver = object_type_name(OBJECT(dev));
    if (!bus) {
        return !want || error_set(errp, "No '%s' bus found for device '%s'", want, driver);
    }
    if (!want || !g_type_is_a(G_OBJECT_TYPE(bus), qom_type_by_name(want))) {
        return error_set(errp, "Device '%s' can't go on %s bus", driver,
                         object_type_name(OBJECT(bus)));
    }
    return TRUE;
}

static void device_leave_bus(DeviceState *dev)
{
    BusState *bus = dev->parent_bus;
    if (!bus) {
        return;
    }
    if (BUS_GET_CLASS(bus)->unplugged) {
        BUS_GET_CLASS(bus)->unplugged(bus, dev);
    }
    g_ptr_array_remove(bus->devices, dev);
    dev->parent_bus = NULL;
}

static gboolean device_join_bus(DeviceState *dev, BusState *bus, GError **errp)
{
    dev->parent_bus = bus;
    if (BUS_GET_CLASS(bus)->plug_check && !BUS_GET_CLASS(bus)->plug_check(bus, dev, errp)) {
        dev->parent_bus = NULL;
        return FALSE;
    }
    g_ptr_array_add(bus->devices, dev);
    return TRUE;
}

static gboolean device_realize_on(DeviceState *dev, BusState *bus, GError **errp)
{
    DeviceClass *klass = DEVICE_GET_CLASS(dev);
    if (!bus_fits(dev, bus, errp) || (bus && !device_join_bus(dev, bus, errp))) {
        return FALSE;
    }
    if (klass->realize && !klass->realize(dev, errp)) {
        device_leave_bus(dev);
        return FALSE;
    }
    dev->realized = true;
    /* Plugged below a drained device, or drained before it was realized: it stays still too. */
    dev->drain_count += bus && bus->owner ? bus->owner->drain_count : 0;
    if (dev->drain_count && klass->drain_begin) {
        klass->drain_begin(dev);
    }
    if (bus && BUS_GET_CLASS(bus)->plugged) {
        BUS_GET_CLASS(bus)->plugged(bus, dev);
    }
    return TRUE;
}

gboolean device_realize(DeviceState *dev, BusState *bus, GError **errp)
{
    if (dev->realized) {
        return error_set(errp, "Device '%s' is realized already", device_name(dev));
    }
    bool adopt = !OBJECT(dev)->parent;
    if (adopt) {
        device_add_numbered(dev, "/machine/unattached");
    }
    if (!device_realize_on(dev, bus, errp)) {
        if (adopt) {
            object_unparent(OBJECT(dev));
        }
        return FALSE;
    }
    /* Cold-plugged devices are reset with the machine, before it runs. */
    if (dev->hotplugged) {
        device_reset(dev);
    }
    return TRUE;
}

/* The devices on @dev's buses, each with a reference, so that they may go while one walks. */
GPtrArray *device_bus_children(DeviceState *dev)
{
    GPtrArray *all = g_ptr_array_new_with_free_func(g_object_unref);
    for (unsigned i = 0; i < dev->child_buses->len; i++) {
        BusState *bus = dev->child_buses->pdata[i];
        for (unsigned j = 0; j < bus->devices->len; j++) {
            g_ptr_array_add(all, g_object_ref(bus->devices->pdata[j]));
        }
    }
    return all;
}

void device_unrealize(DeviceState *dev)
{
    if (!dev->realized) {
        return;
    }
    device_drain_begin(dev);
    g_autoptr(GPtrArray) below = device_bus_children(dev);
    for (unsigned i = below->len; i-- > 0;) {
        device_unrealize(below->pdata[i]);
    }
    DeviceClass *klass = DEVICE_GET_CLASS(dev);
    if (klass->unrealize) {
        klass->unrealize(dev);
    }
    dev->realized = false;
    device_leave_bus(dev);
    /* Nothing is left that could be let loose again. */
    dev->drain_count = 0;
}

/* --- reset and drain --- */

static void device_reset_drained(DeviceState *dev)
{
    g_autoptr(GPtrArray) below = device_bus_children(dev);
    for (unsigned i = 0; i < below->len; i++) {
        device_reset_drained(below->pdata[i]);
    }
    DeviceClass *klass = DEVICE_GET_CLASS(dev);
    if (dev->realized && klass->reset) {
        klass->reset(dev);
    }
}

void device_reset(DeviceState *dev)
{
    g_object_ref(dev);
    device_drain_begin(dev);
    device_reset_drained(dev);
    device_drain_end(dev);
    g_object_unref(dev);
}

/* Resets what hangs on no other device: those reach the rest through their buses. */
static void reset_walk(Object *obj)
{
    if (IS_DEVICE(obj)) {
        DeviceState *dev = DEVICE(obj);
        if (dev->realized && (!dev->parent_bus || !dev->parent_bus->owner)) {
            device_reset(dev);
        }
    }
    g_autoptr(GPtrArray) children = g_ptr_array_new_with_free_func(g_object_unref);
    for (unsigned i = 0; i < obj->children->len; i++) {
        g_ptr_array_add(children, g_object_ref(obj->children->pdata[i]));
    }
    for (unsigned i = 0; i < children->len; i++) {
        reset_walk(children->pdata[i]);
    }
}

void machine_reset_devices(void)
{
    reset_walk(qom_container("/machine"));
}

void device_drain_begin(DeviceState *dev)
{
    DeviceClass *klass = DEVICE_GET_CLASS(dev);
    if (dev->drain_count++ == 0 && dev->realized && klass->drain_begin) {
        klass->drain_begin(dev);
    }
    g_autoptr(GPtrArray) below = device_bus_children(dev);
    for (unsigned i = 0; i < below->len; i++) {
        device_drain_begin(below->pdata[i]);
    }
}

void device_drain_end(DeviceState *dev)
{
    g_autoptr(GPtrArray) below = device_bus_children(dev);
    for (unsigned i = below->len; i-- > 0;) {
        device_drain_end(below->pdata[i]);
    }
    DeviceClass *klass = DEVICE_GET_CLASS(dev);
    /* 0: it was unrealized since the begin. */
    if (dev->drain_count == 0) {
        return;
    }
    if (--dev->drain_count == 0 && dev->realized && klass->drain_end) {
        klass->drain_end(dev);
    }
}

/* --- names --- */

char *device_path(DeviceState *dev)
{
    BusState *bus = dev->parent_bus;
    if (!bus) {
        return NULL;
    }
    char *path = BUS_GET_CLASS(bus)->device_path ? BUS_GET_CLASS(bus)->device_path(dev) : NULL;
    /* A virtio-backend goes by the path of its transport. */
    return path || !bus->owner ? path : device_path(bus->owner);
}

const char *device_name(DeviceState *dev)
{
    return dev->id ? dev->id : object_type_name(OBJECT(dev));
}
