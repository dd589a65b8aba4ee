/*
 * Objects: construction, properties and the composition tree.
 *
 * An object's life: object_new() sets the defaults of its tables, a parent takes it with
 * object_add_child(), object_unparent() or the parent's end drops it.  The parent's reference is
 * the only one that counts for being in the tree; links hold references of their own.
 *
 * Setting a property: found by exact spelling along the class chain, else in the alias child
 * (virtio-net-pci shows what its virtio-backend has); refused when frozen unless it is a runtime
 * property; a runtime property whose `changed` refuses gets its old value back.
 */
#include <string.h>

#include "internal.h"
#include "util/json.h"

/* --- construction --- */

static gpointer object_parent_class;

static unsigned construct_depth; /* object_new() inside of an instance init */
static GError *construct_error;  /* the first -global refused since depth 0 */

/* Runs before the instance init of any derived class, so that those see the defaults. */
static void object_instance_init(GTypeInstance *instance, gpointer klass)
{
    Object *obj = (Object *)instance;
    obj->children = g_ptr_array_new();
    obj->opt_set = g_ptr_array_new_with_free_func(g_free);
    ObjectClass *chain[QOM_CHAIN_MAX];
    for (unsigned i = qom_class_chain(klass, chain); i-- > 0;) {
        for (const Property *p = qom_class_own_props(chain[i]); p && p->name; p++) {
            if (p->info->set_default) {
                p->info->set_default(obj, p);
            }
        }
    }
}

static void object_dispose(GObject *gobj)
{
    Object *obj = OBJECT(gobj);
    while (obj->children->len) {
        object_unparent(obj->children->pdata[obj->children->len - 1]);
    }
    G_OBJECT_CLASS(object_parent_class)->dispose(gobj);
}

static void object_finalize(GObject *gobj)
{
    Object *obj = OBJECT(gobj);
    ObjectClass *chain[QOM_CHAIN_MAX];
    unsigned n = qom_class_chain(OBJECT_GET_CLASS(obj), chain);
    for (unsigned i = 0; i < n; i++) {
        for (const Property *p = qom_class_own_props(chain[i]); p && p->name; p++) {
            if (p->info->release) {
                p->info->release(obj, p);
            }
        }
    }
    g_ptr_array_unref(obj->children);
    g_ptr_array_unref(obj->opt_set);
    g_free(obj->name);
    G_OBJECT_CLASS(object_parent_class)->finalize(gobj);
}

static bool object_is_completed(Object *obj)
{
    return obj->completed;
}

static void object_frozen_error(Object *obj, const char *name, GError **errp)
{
    error_set(errp, "Property '%s.%s' cannot be changed any more: '%s' is in use",
              object_type_name(obj), name, obj->name ? obj->name : "the object");
}

static void object_class_init(gpointer klass, gpointer data)
{
    object_parent_class = g_type_class_peek_parent(klass);
    ObjectClass *oc = klass;
    oc->qom_name = "object";
    oc->is_frozen = object_is_completed;
    oc->frozen_error = object_frozen_error;
    G_OBJECT_CLASS(klass)->dispose = object_dispose;
    G_OBJECT_CLASS(klass)->finalize = object_finalize;
}

/* Not G_DEFINE_TYPE: that hides the init function's second argument, the class of the object
 * being made, without which defaults could not be set before derived init functions. */
GType object_get_type(void)
{
    static gsize type;
    if (g_once_init_enter(&type)) {
        static const GTypeInfo info = {
            .class_size = sizeof(ObjectClass),
            .class_init = object_class_init,
            .instance_size = sizeof(Object),
            .instance_init = object_instance_init,
        };
        GType t = g_type_register_static(G_TYPE_OBJECT, "Object", &info, G_TYPE_FLAG_ABSTRACT);
        g_once_init_leave(&type, t);
    }
    return type;
}

static Object *object_construct(GType type)
{
    construct_depth++;
    Object *obj = g_object_new(type, NULL);
    qom_globals_apply(obj, construct_error ? NULL : &construct_error);
    construct_depth--;
    return obj;
}

Object *object_new(GType type)
{
    Object *obj = object_construct(type);
    if (construct_depth == 0 && construct_error) {
        warn_report("%s", construct_error->message);
        g_clear_error(&construct_error);
    }
    return obj;
}

Object *object_try_new(GType type, GError **errp)
{
    Object *obj = object_construct(type);
    if (construct_depth == 0 && construct_error) {
        g_propagate_error(errp, g_steal_pointer(&construct_error));
        g_object_unref(obj);
        return NULL;
    }
    return obj;
}

const char *object_type_name(Object *obj)
{
    return OBJECT_GET_CLASS(obj)->qom_name;
}

/* --- composition tree --- */

typedef struct Container {
    Object parent_obj;
} Container;
typedef struct ContainerClass {
    ObjectClass parent_class;
} ContainerClass;

static GType container_get_type(void);
G_DEFINE_TYPE(Container, container, TYPE_OBJECT)

static void container_class_init(ContainerClass *klass)
{
    klass->parent_class.qom_name = "container";
    klass->parent_class.description = "Holds other objects";
}

static void container_init(Container *container) {}

void qom_register_core_types(void)
{
    qom_register_type(TYPE_OBJECT);
    qom_register_type(container_get_type());
}

Object *qom_root(void)
{
    static Object *root;
    if (!root) {
        root = object_new(container_get_type());
    }
    return root;
}

Object *qom_container(const char *path)
{
    Object *obj = qom_root();
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    for (char **part = parts; *part; part++) {
        if (!**part) {
            continue;
        }
        Object *child = object_child(obj, *part);
        if (!child) {
            child = object_new(container_get_type());
            object_add_child(obj, *part, child);
        }
        obj = child;
    }
    return obj;
}

void object_add_child(Object *parent, const char *name, Object *child)
{
    g_assert(!child->parent && !object_child(parent, name));
    g_free(child->name);
    child->name = g_strdup(name);
    child->parent = parent;
    g_ptr_array_add(parent->children, child);
}

void object_unparent(Object *obj)
{
    if (!obj->parent) {
        return;
    }
    g_object_ref(obj);
    ObjectClass *klass = OBJECT_GET_CLASS(obj);
    if (klass->unparent) {
        klass->unparent(obj);
    }
    /* The hook may have taken it out already. */
    if (obj->parent) {
        g_ptr_array_remove(obj->parent->children, obj);
        obj->parent = NULL;
        g_clear_pointer(&obj->name, g_free);
        g_object_unref(obj);
    }
    g_object_unref(obj);
}

Object *object_child(Object *parent, const char *name)
{
    for (unsigned i = 0; i < parent->children->len; i++) {
        Object *child = parent->children->pdata[i];
        if (!strcmp(child->name, name)) {
            return child;
        }
    }
    return NULL;
}

char *object_canonical_path(Object *obj)
{
    if (obj == qom_root()) {
        return g_strdup("/");
    }
    GString *path = g_string_new(NULL);
    Object *o = obj;
    for (; o->parent; o = o->parent) {
        g_string_prepend(path, o->name);
        g_string_prepend_c(path, '/');
    }
    return g_string_free(path, o != qom_root());
}

/* One step down from @obj: a child, or what a link property names. */
static Object *path_step(Object *obj, const char *name)
{
    Object *child = object_child(obj, name);
    if (child) {
        return child;
    }
    Object *owner;
    const Property *prop = object_find_property(obj, name, &owner);
    return prop && owner && prop->info->link ? prop->info->link(owner, prop) : NULL;
}

static Object *path_walk(Object *obj, char **parts)
{
    for (; obj && *parts; parts++) {
        if (**parts) {
            obj = path_step(obj, *parts);
        }
    }
    return obj;
}

/* Looks for @parts below @obj and everything under it.  *ambiguous ends the search. */
static Object *path_search(Object *obj, char **parts, bool *ambiguous)
{
    Object *found = path_walk(obj, parts);
    for (unsigned i = 0; i < obj->children->len && !*ambiguous; i++) {
        Object *other = path_search(obj->children->pdata[i], parts, ambiguous);
        if (other && found && other != found) {
            *ambiguous = true;
        }
        found = other ? other : found;
    }
    return *ambiguous ? NULL : found;
}

Object *qom_resolve_path(const char *path, bool *ambiguous)
{
    bool several = false;
    Object *obj = NULL;
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    if (path[0] == '/') {
        obj = path_walk(qom_root(), parts);
    } else if (path[0]) {
        obj = path_search(qom_root(), parts, &several);
    }
    if (ambiguous) {
        *ambiguous = several;
    }
    return obj;
}

/* --- properties --- */

const Property *object_find_property(Object *obj, const char *name, Object **owner)
{
    ObjectClass *klass = OBJECT_GET_CLASS(obj);
    const Property *prop = qom_class_find_own_chain(klass, name);
    Object *holder = obj;
    if (!prop && klass->alias_child) {
        Object *child = object_child(obj, klass->alias_child);
        if (child) {
            return object_find_property(child, name, owner);
        }
        holder = NULL;
        prop = qom_class_find_property(G_OBJECT_TYPE(obj), name);
    }
    if (owner) {
        *owner = prop ? holder : NULL;
    }
    return prop;
}

static gboolean property_not_found(Object *obj, const char *name, GError **errp)
{
    return error_set(errp, "Property '%s.%s' not found", object_type_name(obj), name);
}

/* Sets a property that is in use already: `changed` has the last word. */
static gboolean property_change(Object *owner, const Property *prop, json_object *value,
                                GError **errp)
{
    bool was_empty = prop->info->release && !*PROP_FIELD(owner, prop, void *);
    json_object *old = prop->info->get ? prop->info->get(owner, prop) : NULL;
    gboolean ok = prop->info->set(owner, prop, value, errp);
    if (ok && !prop->changed(owner, prop, errp)) {
        if (was_empty) {
            prop->info->release(owner, prop);
        } else if (old) {
            prop->info->set(owner, prop, old, NULL);
        }
        ok = FALSE;
    }
    json_object_put(old);
    return ok;
}

gboolean object_set_property(Object *obj, const char *name, json_object *value, GError **errp)
{
    Object *owner;
    const Property *prop = object_find_property(obj, name, &owner);
    if (!prop && !object_child(obj, name) && strcmp(name, "type")) {
        return property_not_found(obj, name, errp);
    }
    if (!prop || (prop->flags & PROP_F_READONLY) || !prop->info->set) {
        return error_set(errp, "Property '%s.%s' is not writable", object_type_name(obj), name);
    }
    if (!owner) {
        return error_set(errp, "Property '%s.%s' cannot be set before its '%s' exists",
                         object_type_name(obj), name, OBJECT_GET_CLASS(obj)->alias_child);
    }
    ObjectClass *klass = OBJECT_GET_CLASS(owner);
    if (!klass->is_frozen || !klass->is_frozen(owner)) {
        return prop->info->set(owner, prop, value, errp);
    }
    if (!(prop->flags & PROP_F_RUNTIME)) {
        OBJECT_GET_CLASS(obj)->frozen_error(obj, name, errp);
        return FALSE;
    }
    return prop->changed ? property_change(owner, prop, value, errp)
                         : prop->info->set(owner, prop, value, errp);
}

json_object *object_get_property(Object *obj, const char *name, GError **errp)
{
    Object *owner;
    const Property *prop = object_find_property(obj, name, &owner);
    if (prop && owner && prop->info->get) {
        return prop->info->get(owner, prop);
    }
    if (prop) {
        error_set(errp, "Property '%s.%s' is not readable", object_type_name(obj), name);
        return NULL;
    }
    if (!strcmp(name, "type")) {
        return json_object_new_string(object_type_name(obj));
    }
    Object *child = object_child(obj, name);
    if (child) {
        g_autofree char *path = object_canonical_path(child);
        return json_object_new_string(path ? path : "");
    }
    property_not_found(obj, name, errp);
    return NULL;
}

bool property_was_set(Object *obj, const char *name)
{
    Object *owner;
    if (!object_find_property(obj, name, &owner) || !owner) {
        return false;
    }
    return g_ptr_array_find_with_equal_func(owner->opt_set, name, g_str_equal, NULL);
}

gboolean object_set_user_property(Object *obj, const char *name, json_object *value, GError **errp)
{
    if (!object_set_property(obj, name, value, errp)) {
        return FALSE;
    }
    Object *owner;
    object_find_property(obj, name, &owner);
    if (!property_was_set(obj, name)) {
        g_ptr_array_add(owner->opt_set, g_strdup(name));
    }
    return TRUE;
}

gboolean object_set_properties(Object *obj, json_object *props, const char *const *skip,
                               GError **errp)
{
    struct json_object_iterator it = json_object_iter_begin(props);
    struct json_object_iterator end = json_object_iter_end(props);
    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        if (skip && g_strv_contains(skip, name)) {
            continue;
        }
        if (!object_set_user_property(obj, name, json_object_iter_peek_value(&it), errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

typedef struct InfoWalk {
    void (*fn)(const char *name, const char *type, const char *description,
               json_object *default_value, void *opaque);
    void *opaque;
} InfoWalk;

static void info_walk_property(const Property *prop, GType owner, void *opaque)
{
    const InfoWalk *walk = opaque;
    g_autofree char *type = property_type_string(prop);
    json_object *value = property_default_value(prop);
    walk->fn(prop->name, type, prop->description, value, walk->opaque);
    json_object_put(value);
}

void object_foreach_property_info(Object *obj,
                                  void (*fn)(const char *name, const char *type,
                                             const char *description, json_object *default_value,
                                             void *opaque),
                                  void *opaque)
{
    InfoWalk walk = {fn, opaque};
    fn("type", "string", NULL, NULL, opaque);
    qom_class_foreach_property(G_OBJECT_TYPE(obj), info_walk_property, &walk);
    for (unsigned i = 0; i < obj->children->len; i++) {
        Object *child = obj->children->pdata[i];
        g_autofree char *type = g_strdup_printf("child<%s>", object_type_name(child));
        fn(child->name, type, NULL, NULL, opaque);
    }
}
