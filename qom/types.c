/*
 * The table of types: QOM names to GTypes, and what can be said of a type without an instance.
 *
 * Only names in this table reach GObject.  GObject's own lookup would also find "gint", folds
 * '_' to '-', and ends the process for an abstract type.
 */
#include <string.h>

#include "internal.h"
#include "util/json.h"

static GHashTable *types_by_name; /* const char * (of the class) → GType */

unsigned qom_class_chain(gpointer klass, ObjectClass *chain[QOM_CHAIN_MAX])
{
    unsigned n = 0;
    GType type = G_TYPE_FROM_CLASS(klass);
    for (gpointer k = klass; k && g_type_is_a(type, TYPE_OBJECT);) {
        g_assert(n < QOM_CHAIN_MAX);
        chain[n++] = k;
        if (type == TYPE_OBJECT) {
            break;
        }
        k = g_type_class_peek_parent(k);
        type = G_TYPE_FROM_CLASS(k);
    }
    return n;
}

const Property *qom_class_own_props(ObjectClass *klass)
{
    if (G_TYPE_FROM_CLASS(klass) == TYPE_OBJECT) {
        return klass->props;
    }
    ObjectClass *parent = g_type_class_peek_parent(klass);
    /* Class structures start as copies of the parent's: the same pointer is the parent's table. */
    return klass->props != parent->props ? klass->props : NULL;
}

void qom_class_set_props(gpointer klass, const Property *props)
{
    ((ObjectClass *)klass)->props = props;
}

const Property *qom_class_find_own_chain(gpointer klass, const char *name)
{
    ObjectClass *chain[QOM_CHAIN_MAX];
    unsigned n = qom_class_chain(klass, chain);
    for (unsigned i = 0; i < n; i++) {
        for (const Property *p = qom_class_own_props(chain[i]); p && p->name; p++) {
            if (!strcmp(p->name, name)) {
                return p;
            }
        }
    }
    return NULL;
}

/* The class of what @klass's alias child will be; NULL: it has none. */
static gpointer alias_class(gpointer klass)
{
    const ObjectClass *oc = klass;
    /* Classes of types in the table live forever, so the reference need not be kept. */
    gpointer alias = oc->alias_child && oc->alias_type ? g_type_class_ref(oc->alias_type) : NULL;
    if (alias) {
        g_type_class_unref(alias);
    }
    return alias;
}

static const Property *class_find_property(gpointer klass, const char *name)
{
    const Property *prop = NULL;
    for (; klass && !prop; klass = alias_class(klass)) {
        prop = qom_class_find_own_chain(klass, name);
    }
    return prop;
}

const Property *qom_class_find_property(GType type, const char *name)
{
    return class_find_property(g_type_class_peek(type), name);
}

void qom_class_foreach_property(GType type,
                                void (*fn)(const Property *prop, GType owner, void *opaque),
                                void *opaque)
{
    gpointer top = g_type_class_peek(type);
    for (gpointer klass = top; klass; klass = alias_class(klass)) {
        ObjectClass *chain[QOM_CHAIN_MAX];
        unsigned n = qom_class_chain(klass, chain);
        for (unsigned i = n; i-- > 0;) {
            for (const Property *p = qom_class_own_props(chain[i]); p && p->name; p++) {
                if (class_find_property(top, p->name) == p) {
                    fn(p, G_TYPE_FROM_CLASS(chain[i]), opaque);
                }
            }
        }
    }
}

void qom_register_type(GType type)
{
    if (!types_by_name) {
        types_by_name = g_hash_table_new(g_str_hash, g_str_equal);
    }
    /* The reference is never dropped: tables and names point into the class. */
    ObjectClass *klass = g_type_class_ref(type);
    g_assert(klass->qom_name);
    gpointer have = g_hash_table_lookup(types_by_name, klass->qom_name);
    g_assert(!have || have == GSIZE_TO_POINTER(type));
    g_hash_table_insert(types_by_name, (gpointer)klass->qom_name, GSIZE_TO_POINTER(type));
}

GType qom_type_by_name(const char *name)
{
    gpointer type = types_by_name ? g_hash_table_lookup(types_by_name, name) : NULL;
    return type ? (GType)GPOINTER_TO_SIZE(type) : G_TYPE_INVALID;
}

const char *qom_type_name(GType type)
{
    ObjectClass *klass = g_type_is_a(type, TYPE_OBJECT) ? g_type_class_peek(type) : NULL;
    return klass ? klass->qom_name : g_type_name(type);
}

static int type_compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(qom_type_name(*(const GType *)a), qom_type_name(*(const GType *)b));
}

void qom_foreach_type(GType implements, bool include_abstract, void (*fn)(GType type, void *opaque),
                      void *opaque)
{
    if (!types_by_name) {
        return;
    }
    g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(GType));
    GHashTableIter it;
    gpointer value;
    g_hash_table_iter_init(&it, types_by_name);
    while (g_hash_table_iter_next(&it, NULL, &value)) {
        GType type = (GType)GPOINTER_TO_SIZE(value);
        if (g_type_is_a(type, implements) && (include_abstract || !G_TYPE_IS_ABSTRACT(type))) {
            g_array_append_val(found, type);
        }
    }
    g_array_sort(found, type_compare_names);
    for (unsigned i = 0; i < found->len; i++) {
        fn(g_array_index(found, GType, i), opaque);
    }
}

static void help_collect(const Property *prop, GType owner, void *opaque)
{
    if (!(prop->flags & (PROP_F_HIDDEN | PROP_F_READONLY))) {
        g_ptr_array_add(opaque, (gpointer)prop);
    }
}

static int help_compare(gconstpointer a, gconstpointer b)
{
    return strcmp((*(const Property *const *)a)->name, (*(const Property *const *)b)->name);
}

char *qom_type_help(GType type)
{
    g_autoptr(GPtrArray) props = g_ptr_array_new();
    qom_class_foreach_property(type, help_collect, props);
    g_ptr_array_sort(props, help_compare);
    GString *out = g_string_new(NULL);
    for (unsigned i = 0; i < props->len; i++) {
        const Property *prop = props->pdata[i];
        g_autofree char *value_type = property_type_string(prop);
        g_autofree char *head = g_strdup_printf("%s=<%s>", prop->name, value_type);
        g_string_append_printf(out, "  %-30s", head);
        if (prop->description) {
            g_string_append_printf(out, " - %s", prop->description);
        }
        json_object *value = property_default_value(prop);
        if (value) {
            g_autofree char *text = json_to_string(value);
            g_string_append_printf(out, " (default: %s)", text);
            json_object_put(value);
        }
        g_string_append_c(out, '\n');
    }
    return g_string_free(out, FALSE);
}
