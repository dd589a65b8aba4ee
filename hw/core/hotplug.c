/*
 * Devices that users add and remove: -device, device_add, device_del.
 *
 * Adding: options → type, bus, a place under /machine/peripheral (or -anon) → properties →
 * realize.  Whatever fails, the device leaves the tree again and is freed.  Removing: the bus
 * says whether a guest must agree first; if so device_remove() comes later, from the bus.
 */
#include <string.h>

#include "hw/core/device.h"
#include "hw/core/failover.h"
#include "internal.h"
#include "util/json.h"

#define PERIPHERAL      "/machine/peripheral"
#define PERIPHERAL_ANON "/machine/peripheral-anon"

void (*device_deleted_hook)(const char *id, const char *path);

static bool machine_ready;

void device_set_machine_ready(bool ready)
{
    machine_ready = ready;
}

bool device_machine_is_ready(void)
{
    return machine_ready;
}

/* --- aliases --- */

static GHashTable *device_aliases; /* alias → driver, both owned; filled at start */

void device_add_alias(const char *alias, const char *driver)
{
    if (!device_aliases) {
        device_aliases = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    }
    g_hash_table_replace(device_aliases, g_strdup(alias), g_strdup(driver));
}

const char *device_resolve_alias(const char *name)
{
    const char *driver = device_aliases ? g_hash_table_lookup(device_aliases, name) : NULL;
    return driver ? driver : name;
}

/* --- adding --- */

/* Text of an optional member: FALSE when it is there and no string; *text NULL when absent. */
static gboolean optional_string(json_object *options, const char *key, const char **text,
                                GError **errp)
{
    json_object *value = NULL;
    bool present = json_object_object_get_ex(options, key, &value);
    *text = value ? property_value_text(value) : NULL;
    if (present && !*text) { /* null is a value too, and no string */
        return error_set(errp, "Invalid parameter type for '%s', expected: string", key);
    }
    return TRUE;
}

/* The type of a driver that users may add; G_TYPE_INVALID with error. */
static GType device_type_find(const char *driver, GError **errp)
{
    GType type = qom_type_by_name(device_resolve_alias(driver));
    if (type == G_TYPE_INVALID || !g_type_is_a(type, TYPE_DEVICE)) {
        error_set(errp, "'%s' is not a valid device model name", driver);
        return G_TYPE_INVALID;
    }
    if (G_TYPE_IS_ABSTRACT(type)) {
        error_set(errp, "Parameter 'driver' expects a non-abstract device type, not '%s'", driver);
        return G_TYPE_INVALID;
    }
    DeviceClass *klass = g_type_class_peek(type);
    if (!klass->user_creatable_device) {
        error_set(errp, "Parameter 'driver' expects a pluggable device type, not '%s'", driver);
        return G_TYPE_INVALID;
    }
    if (machine_ready && !klass->hotpluggable) {
        error_set(errp, "Device '%s' does not support hotplugging", driver);
        return G_TYPE_INVALID;
    }
    return type;
}

/* The bus for a device of @type; *bus NULL when the type needs none. */
static gboolean device_bus_find(GType type, const char *bus_name, BusState **bus, GError **errp)
{
    const char *want = ((DeviceClass *)g_type_class_peek(type))->bus_type;
    *bus = NULL;
    if (bus_name) {
        *bus = bus_find(bus_name);
        if (!*bus) {
            return error_set(errp, "Bus '%s' not found", bus_name);
        }
        if (!want || !g_type_is_a(G_OBJECT_TYPE(*bus), qom_type_by_name(want))) {
            return error_set(errp, "Device '%s' can't go on %s bus", qom_type_name(type),
                             object_type_name(OBJECT(*bus)));
        }
    } else if (want) {
        *bus = bus_find_by_type(want);
        if (!*bus) {
            return error_set(errp, "No '%s' bus found for device '%s'", want, qom_type_name(type));
        }
    }
    return TRUE;
}

/* Gives a new device its id and its place in the tree, which takes the reference. */
static void device_place(DeviceState *dev, const char *id)
{
    static unsigned anonymous; /* never used twice, as in QEMU: paths in events stay unambiguous */
    dev->id = g_strdup(id);
    if (id) {
        object_add_child(qom_container(PERIPHERAL), id, OBJECT(dev));
        return;
    }
    g_autofree char *name = g_strdup_printf("device[%u]", anonymous++);
    object_add_child(qom_container(PERIPHERAL_ANON), name, OBJECT(dev));
}

static bool changes_locked;

void device_lock_changes(bool locked)
{
    changes_locked = locked;
}

bool device_changes_are_locked(void)
{
    return changes_locked;
}

static bool only_migratable;

void device_set_only_migratable(void)
{
    only_migratable = true;
}

/* Whether @obj and its parts have migration tables.  A device made of another one, as a transport
 * of a virtio device is, is saved by that one's. */
static bool is_migratable(Object *obj)
{
    bool has_part = false;

    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        Object *child = g_ptr_array_index(obj->children, i);
        if (!is_migratable(child)) {
            return false;
        }
        has_part |= IS_DEVICE(child);
    }
    return !IS_DEVICE(obj) || has_part || DEVICE_GET_CLASS(obj)->vmsd;
}

static gboolean migratable_check(DeviceState *dev, GError **errp)
{
    return !only_migratable || is_migratable(OBJECT(dev)) ||
           error_set(errp, "Device '%s' (%s) is not migratable, but -only-migratable was given",
                     device_name(dev), object_type_name(OBJECT(dev)));
}

DeviceState *device_add(json_object *options, GError **errp)
{
    static const char *const skip[] = {"driver", "id", "bus", NULL};
    const char *driver, *id, *bus_name;
    if (changes_locked) {
        error_set(errp, "device_add not allowed while migrating");
        return NULL;
    }
    if (!optional_string(options, "driver", &driver, errp) ||
        !optional_string(options, "id", &id, errp) ||
        !optional_string(options, "bus", &bus_name, errp)) {
        return NULL;
    }
    if (!driver) {
        error_set(errp, "Parameter 'driver' is missing");
        return NULL;
    }
    GType type = device_type_find(driver, errp);
    if (type == G_TYPE_INVALID || (id && !id_wellformed(id, errp))) {
        return NULL;
    }
    BusState *bus;
    if (!device_bus_find(type, bus_name, &bus, errp)) {
        return NULL;
    }
    if (id && object_child(qom_container(PERIPHERAL), id)) {
        error_set(errp, "Duplicate device ID '%s'", id);
        return NULL;
    }
    GError *err = NULL;
    if (failover_hides(options, &err)) {
        return NULL;
    }
    if (err) {
        g_propagate_error(errp, err);
        return NULL;
    }
    Object *obj = object_try_new(type, errp);
    if (!obj) {
        return NULL;
    }
    DeviceState *dev = DEVICE(obj);
    dev->hotplugged = machine_ready;
    device_place(dev, id);
    if (!object_set_properties(obj, options, skip, errp) || !migratable_check(dev, errp) ||
        !device_realize(dev, bus, errp)) {
        object_unparent(obj);
        return NULL;
    }
    return dev;
}

/* --- finding and removing --- */

DeviceState *device_find(const char *id_or_path, GError **errp)
{
    Object *obj = id_or_path[0] == '/' ? qom_resolve_path(id_or_path, NULL)
                                       : object_child(qom_container(PERIPHERAL), id_or_path);
    if (!obj) {
        error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", id_or_path);
        return NULL;
    }
    if (!IS_DEVICE(obj)) {
        error_set(errp, "%s is not a hotpluggable device", id_or_path);
        return NULL;
    }
    return DEVICE(obj);
}

gboolean device_del(const char *id_or_path, GError **errp)
{
    DeviceState *dev = device_find(id_or_path, errp);
    if (!dev) {
        return FALSE;
    }
    if (changes_locked) {
        return error_set(errp, "device_del not allowed while migrating");
    }
    /* Parts of a device or of the machine are not the user's to remove. */
    Object *place = OBJECT(dev)->parent;
    if (!dev->realized || !DEVICE_GET_CLASS(dev)->hotpluggable ||
        (place != qom_container(PERIPHERAL) && place != qom_container(PERIPHERAL_ANON))) {
        return error_set(errp, "Device '%s' does not support hotplugging",
                         object_type_name(OBJECT(dev)));
    }
    if (dev->pending_deleted_event) {
        return error_set(errp, "Device %s is already in the process of unplug", id_or_path);
    }
    return device_unplug(dev, errp);
}

gboolean device_unplug(DeviceState *dev, GError **errp)
{
    BusClass *bus_class = dev->parent_bus ? BUS_GET_CLASS(dev->parent_bus) : NULL;
    if (bus_class && bus_class->unplug_request) {
        GError *err = NULL;
        bool pending = bus_class->unplug_request(dev->parent_bus, dev, &err);
        if (err) {
            g_propagate_error(errp, err);
            return FALSE;
        }
        if (pending) {
            dev->pending_deleted_event = true;
            return TRUE;
        }
    }
    device_remove(dev);
    return TRUE;
}

typedef struct Removed {
    char *id, *path;
} Removed;

static void removed_clear(gpointer item)
{
    Removed *removed = item;
    g_free(removed->id);
    g_free(removed->path);
}

/* Notes the realized devices at and under @obj, parts before the whole. */
static void removed_collect(Object *obj, GArray *list)
{
    for (unsigned i = 0; i < obj->children->len; i++) {
        removed_collect(obj->children->pdata[i], list);
    }
    if (IS_DEVICE(obj) && DEVICE(obj)->realized) {
        Removed removed = {g_strdup(DEVICE(obj)->id), object_canonical_path(obj)};
        g_array_append_val(list, removed);
    }
}

static bool object_is_under(Object *obj, Object *ancestor)
{
    while (obj && obj != ancestor) {
        obj = obj->parent;
    }
    return obj != NULL;
}

void device_remove(DeviceState *dev)
{
    Object *obj = OBJECT(dev);
    g_object_ref(dev);
    /* Devices behind a bridge go first; its own parts go with it. */
    g_autoptr(GPtrArray) below = device_bus_children(dev);
    for (unsigned i = below->len; i-- > 0;) {
        if (!object_is_under(below->pdata[i], obj)) {
            device_remove(below->pdata[i]);
        }
    }
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(Removed));
    g_array_set_clear_func(list, removed_clear);
    removed_collect(obj, list);
    device_unrealize(dev);
    dev->pending_deleted_event = false;
    object_unparent(obj);
    /* Told last: who hears of it may use the id again. */
    for (unsigned i = 0; device_deleted_hook && i < list->len; i++) {
        const Removed *removed = &g_array_index(list, Removed, i);
        device_deleted_hook(removed->id, removed->path);
    }
    failover_device_removed(dev->id);
    g_object_unref(dev);
}
