/*
 * -global driver.property=value: other defaults for a type and everything derived from it.
 * Kept in the order given, applied to each new object; the last one wins.
 */
#include <string.h>

#include "internal.h"

typedef struct GlobalProperty {
    GType type;
    char *driver, *property, *value;
} GlobalProperty;

static GArray *globals; /* lives as long as the process, as what it describes does */

gboolean qom_add_global(const char *driver, const char *property, const char *value, GError **errp)
{
    GType type = qom_type_by_name(driver);
    if (type == G_TYPE_INVALID) {
        warn_report("global %s.%s has invalid class name", driver, property);
        return TRUE;
    }
    if (!qom_class_find_property(type, property)) {
        return error_set(errp, "can't apply global %s.%s=%s: Property '%s.%s' not found", driver,
                         property, value, driver, property);
    }
    if (!globals) {
        globals = g_array_new(FALSE, FALSE, sizeof(GlobalProperty));
    }
    GlobalProperty global = {type, g_strdup(driver), g_strdup(property), g_strdup(value)};
    g_array_append_val(globals, global);
    return TRUE;
}

gboolean qom_globals_apply(Object *obj, GError **errp)
{
    for (unsigned i = 0; globals && i < globals->len; i++) {
        const GlobalProperty *global = &g_array_index(globals, GlobalProperty, i);
        if (!g_type_is_a(G_OBJECT_TYPE(obj), global->type)) {
            continue;
        }
        json_object *value = json_object_new_string(global->value);
        gboolean ok = object_set_user_property(obj, global->property, value, errp);
        json_object_put(value);
        if (!ok) {
            g_prefix_error(errp, "can't apply global %s.%s=%s: ", global->driver, global->property,
                           global->value);
            return FALSE;
        }
    }
    return TRUE;
}
