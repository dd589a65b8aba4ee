/*
 * Objects that users make: -object, object-add, object-del.
 *
 * A user-creatable object gets its properties, goes to /objects/<id>, and is then completed by
 * its class.  What fails on the way is taken apart again; only a completed object stays.  Links
 * from devices keep a deleted object's memory alive, but a class that must not lose its object
 * while in use says so with can_be_deleted.
 */
#include <string.h>

#include "qom/object.h"
#include "util/json.h"

#define OBJECTS_PATH "/objects"

gboolean id_wellformed(const char *id, GError **errp)
{
    bool ok = g_ascii_isalpha(id[0]);
    for (const char *p = id; ok && *p; p++) {
        ok = g_ascii_isalnum(*p) || strchr("-._", *p);
    }
    if (!ok) {
        g_autofree char *head = g_strndup(id, 80);
        g_autofree char *shown = g_strescape(head, NULL);
        return error_set(errp,
                         "Parameter 'id' expects an identifier, not '%s' (allowed: a letter, then "
                         "letters, digits, '-', '.', '_')",
                         shown);
    }
    return TRUE;
}

/* The text of member @key; NULL with error when it is missing or no string. */
static const char *required_string(json_object *options, const char *key, GError **errp)
{
    json_object *value = json_member(options, key);
    if (!value) {
        error_set(errp, "Parameter '%s' is missing", key);
        return NULL;
    }
    const char *text = property_value_text(value);
    if (!text) {
        error_set(errp, "Invalid parameter type for '%s', expected: string", key);
    }
    return text;
}

static void creatable_collect(GType type, void *opaque)
{
    ObjectClass *klass = g_type_class_peek(type);
    if (klass->user_creatable) {
        GString *names = opaque;
        g_string_append_printf(names, "%s%s", names->len ? ", " : "", klass->qom_name);
    }
}

/* The type named @name, if users may make objects of it. */
static GType creatable_type(const char *name, GError **errp)
{
    GType type = qom_type_by_name(name);
    if (type != G_TYPE_INVALID && !G_TYPE_IS_ABSTRACT(type) &&
        ((ObjectClass *)g_type_class_peek(type))->user_creatable) {
        return type;
    }
    GString *names = g_string_new(NULL);
    qom_foreach_type(TYPE_OBJECT, false, creatable_collect, names);
    error_set(errp, "Parameter 'qom-type' does not accept value '%s' (allowed: %s)", name,
              names->str);
    g_string_free(names, TRUE);
    return G_TYPE_INVALID;
}

Object *user_object_add(json_object *options, GError **errp)
{
    static const char *const skip[] = {"qom-type", "id", NULL};
    const char *type_name = required_string(options, "qom-type", errp);
    if (!type_name) {
        return NULL;
    }
    const char *id = required_string(options, "id", errp);
    if (!id || !id_wellformed(id, errp)) {
        return NULL;
    }
    GType type = creatable_type(type_name, errp);
    if (type == G_TYPE_INVALID) {
        return NULL;
    }
    Object *objects = qom_container(OBJECTS_PATH);
    if (object_child(objects, id)) {
        error_set(errp, "Duplicate ID '%s' for object", id);
        return NULL;
    }
    Object *obj = object_try_new(type, errp);
    if (!obj) {
        return NULL;
    }
    object_add_child(objects, id, obj);
    ObjectClass *klass = OBJECT_GET_CLASS(obj);
    if (!object_set_properties(obj, options, skip, errp) ||
        (klass->complete && !klass->complete(obj, errp))) {
        object_unparent(obj);
        return NULL;
    }
    obj->completed = true;
    return obj;
}

gboolean user_object_del(const char *id, GError **errp)
{
    Object *obj = object_child(qom_container(OBJECTS_PATH), id);
    if (!obj) {
        return error_set(errp, "object '%s' not found", id);
    }
    ObjectClass *klass = OBJECT_GET_CLASS(obj);
    if (klass->can_be_deleted && !klass->can_be_deleted(obj)) {
        return error_set(errp, "object '%s' is in use, can not be deleted", id);
    }
    object_unparent(obj);
    return TRUE;
}
