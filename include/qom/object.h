/*
 * Objects: QEMU's object model on GObject.
 *
 * GObject gives types, reference counts and class structures.  Here are the three things it does
 * not have: QOM names (a GType name may not hold dots or be shorter than 3 characters, so the
 * name users know is a field of the class, and a table maps names to GTypes), property tables
 * looked up by exact spelling, and the composition tree (/machine/peripheral/<id>, /objects/<id>).
 *
 * A class sets its own fields in class_init:  qom_name, and qom_class_set_props() for its table.
 * A child in the tree is owned by its parent; object_unparent() drops it.  Main thread only.
 */
#ifndef QOM_OBJECT_H
#define QOM_OBJECT_H

#include <glib-object.h>
#include <json-c/json.h>
#include <stdbool.h>

#include "qom/property.h"
#include "util/error.h"

typedef struct Object Object;
typedef struct ObjectClass ObjectClass;

struct Object {
    GObject parent_instance;
    Object *parent;      /* in the composition tree; NULL: not in it */
    char *name;          /* under @parent */
    GPtrArray *children; /* Object*, in order of adding */
    GPtrArray *opt_set;  /* names of properties that a user set, see property_was_set() */
    bool completed;      /* user-creatable: complete() has succeeded */
};

struct ObjectClass {
    GObjectClass parent_class;
    const char *qom_name;    /* "virtio-net-pci"; every class sets its own */
    const char *description; /* one line for help */
    const Property *props;   /* own table, ended by name NULL; see qom_class_set_props() */
    const char *alias_child; /* properties of this child are visible as our own, or NULL */
    GType alias_type;        /* the type that child will have (for tables before it exists) */
    bool user_creatable;     /* by -object and object-add */

    /* User-creatable: called once all properties are set.  Failing frees the object. */
    gboolean (*complete)(Object *obj, GError **errp);
    /* May it be deleted by object-del?  NULL: yes. */
    bool (*can_be_deleted)(Object *obj);
    /* True once properties without PROP_F_RUNTIME may not be set any more (realized).  The base
     * class's answer is obj->completed. */
    bool (*is_frozen)(Object *obj);
    /* Words the error for setting @name then. */
    void (*frozen_error)(Object *obj, const char *name, GError **errp);
    /* Called by object_unparent() while @obj is still in the tree; NULL: nothing. */
    void (*unparent)(Object *obj);
};

/* Declares TYPE_get_type() and checked casts NAME() and NAME_GET_CLASS().  For use with
 * G_DEFINE_TYPE(Struct, module, TYPE_PARENT), whose class structure is StructClass. */
#define QOM_DECLARE_TYPE(Struct, StructClass, module, NAME)                                        \
    GType module##_get_type(void);                                                                 \
    static inline Struct *NAME(gconstpointer obj)                                                  \
    {                                                                                              \
        return G_TYPE_CHECK_INSTANCE_CAST((gpointer)obj, module##_get_type(), Struct);             \
    }                                                                                              \
    static inline bool IS_##NAME(gconstpointer obj)                                                \
    {                                                                                              \
        return G_TYPE_CHECK_INSTANCE_TYPE((gpointer)obj, module##_get_type());                     \
    }                                                                                              \
    static inline StructClass *NAME##_GET_CLASS(gconstpointer obj)                                 \
    {                                                                                              \
        return G_TYPE_INSTANCE_GET_CLASS((gpointer)obj, module##_get_type(), StructClass);         \
    }

QOM_DECLARE_TYPE(Object, ObjectClass, object, OBJECT)
#define TYPE_OBJECT (object_get_type())

/* Sets the class's own property table.  @props ends with a NULL name and lives forever. */
void qom_class_set_props(gpointer klass, const Property *props);

/* The table of types.  Register every concrete and abstract type once, at start. */
void qom_register_type(GType type);
GType qom_type_by_name(const char *name); /* G_TYPE_INVALID if not in the table */
const char *qom_type_name(GType type);
void qom_foreach_type(GType implements, bool include_abstract, void (*fn)(GType type, void *opaque),
                      void *opaque); /* sorted by name; the @implements type itself included */

/*
 * New instance of a concrete type in the table: property defaults are set before any instance
 * init function runs, -global values after all of them.  Strings and links that properties hold
 * are freed with the object (do not free them in a finalize of your own).  A -global value that
 * the property refuses is a warning from object_new(), and NULL with error from object_try_new(),
 * also when it hit a child that the instance init made.
 */
Object *object_new(GType type);
Object *object_try_new(GType type, GError **errp);
const char *object_type_name(Object *obj);

/* Composition tree.  add_child takes the caller's reference. */
Object *qom_root(void);
Object *qom_container(const char *path); /* "/machine/peripheral": made when missing */
void object_add_child(Object *parent, const char *name, Object *child);
void object_unparent(Object *obj);
Object *object_child(Object *parent, const char *name); /* borrowed */
char *object_canonical_path(Object *obj);               /* g_free */
/* An absolute path, or a partial one ("fbuf0", "nic0/virtio-backend"); *ambiguous (may be NULL)
 * says when several match a partial path.  Links are followed.  Borrowed. */
Object *qom_resolve_path(const char *path, bool *ambiguous);

/* Properties of an object, by exact spelling.  *owner (may be NULL) is the object that holds the
 * field: @obj or its alias child, NULL when that child does not exist yet. */
const Property *object_find_property(Object *obj, const char *name, Object **owner);
gboolean object_set_property(Object *obj, const char *name, json_object *value, GError **errp);
json_object *object_get_property(Object *obj, const char *name, GError **errp);
/* Sets every member of @props (strings are parsed as the command line spells them), remembering
 * them as set by the user.  Members named in @skip (NULL-ended, may be NULL) are left out. */
gboolean object_set_properties(Object *obj, json_object *props, const char *const *skip,
                               GError **errp);
bool property_was_set(Object *obj, const char *name);
/* Walks tables from base class to most derived, then the alias child's.  Of two rows with one
 * name only the one that object_find_property() finds is shown. */
void qom_class_foreach_property(GType type,
                                void (*fn)(const Property *prop, GType owner, void *opaque),
                                void *opaque);
const Property *qom_class_find_property(GType type, const char *name);

/* What qom-list shows: "type", the tables' rows, then children as "child<their type>".
 * @description and @default_value may be NULL; everything is borrowed. */
void object_foreach_property_info(Object *obj,
                                  void (*fn)(const char *name, const char *type,
                                             const char *description, json_object *default_value,
                                             void *opaque),
                                  void *opaque);
/* "  name=<type>  - description (default: …)" lines, sorted by name; g_free it. */
char *qom_type_help(GType type);

/* -object / object-add / object-del: options have "qom-type" and "id". */
Object *user_object_add(json_object *options, GError **errp);
gboolean user_object_del(const char *id, GError **errp);

/* -global driver.property=value: applied by object_new() to matching types, counted as set by the
 * user.  A driver nobody knows is a warning (as in QEMU), a property it does not have an error. */
gboolean qom_add_global(const char *driver, const char *property, const char *value, GError **errp);

/* [A-Za-z][A-Za-z0-9-._]* ; the message says what is allowed. */
gboolean id_wellformed(const char *id, GError **errp);

/* "object" and "container".  Once, before any other type. */
void qom_register_core_types(void);

#endif
