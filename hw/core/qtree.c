/*
 * Devices as text: "info qtree" of the monitor and "-device help".
 */
#include <string.h>

#include "internal.h"
#include "util/json.h"

static void print_bus(BusState *bus, GString *out, int indent);

static void print_line(GString *out, int indent, const char *fmt, ...) G_GNUC_PRINTF(3, 4);
static void print_line(GString *out, int indent, const char *fmt, ...)
{
    va_list ap;
    g_string_append_printf(out, "%*s", indent, "");
    va_start(ap, fmt);
    g_string_append_vprintf(out, fmt, ap);
    va_end(ap);
    g_string_append(out, "\r\n");
}

typedef struct PrintProps {
    DeviceState *dev;
    GString *out;
    int indent;
} PrintProps;

/* The device's own rows; those of an alias child are printed with that child. */
static void print_property(const Property *prop, GType owner, void *opaque)
{
    PrintProps *print = opaque;
    if ((prop->flags & PROP_F_HIDDEN) || !prop->info->get ||
        !g_type_is_a(G_OBJECT_TYPE(print->dev), owner)) {
        return;
    }
    json_object *value = prop->info->get(OBJECT(print->dev), prop);
    g_autofree char *text = json_to_string(value);
    json_object_put(value);
    print_line(print->out, print->indent, "%s = %s", prop->name, text);
}

static void print_device(DeviceState *dev, GString *out, int indent)
{
    print_line(out, indent, "dev: %s, id \"%s\"", object_type_name(OBJECT(dev)),
               dev->id ? dev->id : "");
    indent += 2;
    PrintProps print = {dev, out, indent};
    qom_class_foreach_property(G_OBJECT_TYPE(dev), print_property, &print);
    if (dev->parent_bus && BUS_GET_CLASS(dev->parent_bus)->print_device) {
        BUS_GET_CLASS(dev->parent_bus)->print_device(dev, out, indent);
    }
    for (unsigned i = 0; i < dev->child_buses->len; i++) {
        print_bus(dev->child_buses->pdata[i], out, indent);
    }
}

static void print_bus(BusState *bus, GString *out, int indent)
{
    print_line(out, indent, "bus: %s", bus->bus_name);
    indent += 2;
    print_line(out, indent, "type %s", object_type_name(OBJECT(bus)));
    for (unsigned i = 0; i < bus->devices->len; i++) {
        print_device(bus->devices->pdata[i], out, indent);
    }
}

/* Prints what hangs on no bus: buses without owner, devices without bus (with theirs below). */
static void print_roots(Object *obj, GString *out)
{
    if (IS_BUS(obj) && !BUS(obj)->owner) {
        print_bus(BUS(obj), out, 0);
    } else if (IS_DEVICE(obj) && !DEVICE(obj)->parent_bus) {
        print_device(DEVICE(obj), out, 0);
    }
    for (unsigned i = 0; i < obj->children->len; i++) {
        print_roots(obj->children->pdata[i], out);
    }
}

void device_print_qtree(GString *out)
{
    print_roots(qom_container("/machine"), out);
}

/* --- -device help --- */

typedef struct HelpList {
    DeviceCategory category;
    GString *out;
    bool started;
} HelpList;

static const char *const category_titles[] = {
    [CATEGORY_NETWORK] = "Network devices",
    [CATEGORY_BRIDGE] = "Controller/Bridge/Hub devices",
    [CATEGORY_MISC] = "Misc devices",
};

static void help_add_type(GType type, void *opaque)
{
    HelpList *help = opaque;
    DeviceClass *klass = g_type_class_peek(type);
    if (!klass->user_creatable_device || klass->category != help->category) {
        return;
    }
    if (!help->started) {
        g_string_append_printf(help->out, "%s%s:\n", help->out->len ? "\n" : "",
                               category_titles[help->category]);
        help->started = true;
    }
    g_string_append_printf(help->out, "name \"%s\"", klass->parent_class.qom_name);
    if (klass->bus_type) {
        g_string_append_printf(help->out, ", bus %s", klass->bus_type);
    }
    if (klass->parent_class.description) {
        g_string_append_printf(help->out, ", desc \"%s\"", klass->parent_class.description);
    }
    g_string_append_c(help->out, '\n');
}

char *device_list_help(void)
{
    GString *out = g_string_new(NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(category_titles); i++) {
        HelpList help = {(DeviceCategory)i, out, false};
        qom_foreach_type(TYPE_DEVICE, false, help_add_type, &help);
    }
    return g_string_free(out, FALSE);
}
