/*
 * QMP commands about objects and types: looking, setting, making and deleting.  What they show
 * comes from the property tables; nothing is known of single types here.
 */
#include "hw/core/device.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "qom/object.h"
#include "util/error.h"
#include "util/json.h"

static Object *resolve(const char *path, GError **errp)
{
    bool ambiguous = false;
    Object *obj = qom_resolve_path(path, &ambiguous);

    if (ambiguous) {
        error_set(errp, "Path '%s' is ambiguous", path);
        return NULL;
    }
    if (!obj) {
        error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", path);
    }
    return obj;
}

static ObjectPropertyInfo *property_info(const char *name, const char *type,
                                         const char *description, json_object *default_value)
{
    ObjectPropertyInfo *info = g_new0(ObjectPropertyInfo, 1);

    info->name = g_strdup(name);
    info->type = g_strdup(type);
    info->description = g_strdup(description);
    info->default_value = json_object_get(default_value);
    return info;
}

static void add_object_property(const char *name, const char *type, const char *description,
                                json_object *default_value, void *opaque)
{
    ObjectPropertyInfoList ***tail = opaque;

    QAPI_LIST_APPEND(*tail, property_info(name, type, description, default_value));
}

ObjectPropertyInfoList *qmp_qom_list(const char *path, GError **errp)
{
    ObjectPropertyInfoList *list = NULL, **tail = &list;
    Object *obj = resolve(path, errp);

    if (obj) {
        object_foreach_property_info(obj, add_object_property, &tail);
    }
    return list;
}

typedef struct ValueWalk {
    Object *obj;
    ObjectPropertyValueList **tail;
} ValueWalk;

static void add_property_value(const char *name, const char *type, const char *description,
                               json_object *default_value, void *opaque)
{
    ValueWalk *walk = opaque;
    ObjectPropertyValue *info = g_new0(ObjectPropertyValue, 1);

    info->name = g_strdup(name);
    info->type = g_strdup(type);
    info->value = object_get_property(walk->obj, name, NULL);
    QAPI_LIST_APPEND(walk->tail, info);
}

ObjectPropertiesValuesList *qmp_qom_list_get(strList *paths, GError **errp)
{
    ObjectPropertiesValuesList *list = NULL, **tail = &list;

    for (; paths; paths = paths->next) {
        Object *obj = resolve(paths->value, errp);
        if (!obj) {
            qapi_free_ObjectPropertiesValuesList(list);
            return NULL;
        }
        ObjectPropertiesValues *values = g_new0(ObjectPropertiesValues, 1);
        ValueWalk walk = {obj, &values->properties};
        object_foreach_property_info(obj, add_property_value, &walk);
        QAPI_LIST_APPEND(tail, values);
    }
    return list;
}

json_object *qmp_qom_get(const char *path, const char *property, GError **errp)
{
    Object *obj = resolve(path, errp);

    return obj ? object_get_property(obj, property, errp) : NULL;
}

void qmp_qom_set(const char *path, const char *property, json_object *value, GError **errp)
{
    Object *obj = resolve(path, errp);

    if (obj) {
        object_set_property(obj, property, value, errp);
    }
}

static void add_type(GType type, void *opaque)
{
    ObjectTypeInfoList ***tail = opaque;
    ObjectTypeInfo *info = g_new0(ObjectTypeInfo, 1);

    info->name = g_strdup(qom_type_name(type));
    info->has_abstract = info->abstract = G_TYPE_IS_ABSTRACT(type);
    info->parent = g_strdup(qom_type_name(g_type_parent(type)));
    QAPI_LIST_APPEND(*tail, info);
}

ObjectTypeInfoList *qmp_qom_list_types(const char *implements, bool has_abstract, bool abstract,
                                       GError **errp)
{
    ObjectTypeInfoList *list = NULL, **tail = &list;
    GType type = implements ? qom_type_by_name(implements) : TYPE_OBJECT;

    /* An unknown type has no refinements: not an error. */
    if (type != G_TYPE_INVALID) {
        qom_foreach_type(type, has_abstract && abstract, add_type, &tail);
    }
    return list;
}

typedef struct PropertyWalk {
    ObjectPropertyInfoList **tail;
    bool for_devices;
} PropertyWalk;

static void add_type_property(const Property *prop, GType owner, void *opaque)
{
    PropertyWalk *walk = opaque;
    json_object *value = property_default_value(prop);
    g_autofree char *type = property_type_string(prop);

    if (!walk->for_devices || !(prop->flags & PROP_F_HIDDEN)) {
        QAPI_LIST_APPEND(walk->tail,
                         property_info(prop->name, type, prop->description, value));
    }
    json_object_put(value);
}

ObjectPropertyInfoList *qmp_qom_list_properties(const char *typename, GError **errp)
{
    ObjectPropertyInfoList *list = NULL;
    PropertyWalk walk = {.tail = &list};
    GType type = qom_type_by_name(typename);

    if (type == G_TYPE_INVALID) {
        error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Class '%s' not found", typename);
        return NULL;
    }
    qom_class_foreach_property(type, add_type_property, &walk);
    return list;
}

ObjectPropertyInfoList *qmp_device_list_properties(const char *typename, GError **errp)
{
    ObjectPropertyInfoList *list = NULL;
    PropertyWalk walk = {.tail = &list, .for_devices = true};
    GType type = qom_type_by_name(device_resolve_alias(typename));

    if (type == G_TYPE_INVALID) {
        error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", typename);
        return NULL;
    }
    if (!g_type_is_a(type, TYPE_DEVICE) || G_TYPE_IS_ABSTRACT(type)) {
        error_set(errp, "Parameter 'typename' expects a non-abstract device type, not '%s'",
                  typename);
        return NULL;
    }
    qom_class_foreach_property(type, add_type_property, &walk);
    return list;
}

void qmp_object_add(json_object *args, json_object **ret, GError **errp)
{
    user_object_add(args, errp);
}

void qmp_object_del(const char *id, GError **errp)
{
    user_object_del(id, errp);
}

void qmp_device_add(json_object *args, json_object **ret, GError **errp)
{
    device_add(args, errp);
}

void qmp_device_del(const char *id, GError **errp)
{
    device_del(id, errp);
}
