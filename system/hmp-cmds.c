/* HMP commands that need the whole emulator; those that only call QMP are in qapi/. */
#include <string.h>

#include "hw/core/device.h"
#include "qapi/monitor.h"
#include "qom/object.h"
#include "system.h"
#include "util/error.h"
#include "util/keyval.h"

static void print_error(GString *out, GError *err)
{
    g_string_append_printf(out, "Error: %s\r\n", err->message);
    g_error_free(err);
}

static void hmp_info_qtree(const char *args, GString *out)
{
    device_print_qtree(out);
}

static void print_tree(Object *obj, const char *label, unsigned indent, GString *out)
{
    g_string_append_printf(out, "%*s/%s (%s)\r\n", indent, "", label, object_type_name(obj));
    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        Object *child = g_ptr_array_index(obj->children, i);
        print_tree(child, child->name, indent + 2, out);
    }
}

static void hmp_info_qom_tree(const char *args, GString *out)
{
    bool ambiguous = false;
    Object *obj = qom_resolve_path(*args ? args : "/machine", &ambiguous);

    if (ambiguous) {
        g_string_append_printf(out, "Path '%s' is ambiguous.\r\n", args);
    } else if (!obj) {
        g_string_append_printf(out, "Path '%s' could not be resolved.\r\n", args);
    } else {
        print_tree(obj, obj->name ? obj->name : "", 0, out);
    }
}

static void hmp_device_add(const char *args, GString *out)
{
    static const KeyvalOptions opts = {.implied_key = "driver", .allow_flags = true, .flat = true};
    GError *err = NULL;
    bool help;
    json_object *options = keyval_parse(args, &opts, &help, &err);

    if (options && help) {
        g_autofree char *text = device_list_help();
        g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
        for (char **line = lines; *line && (**line || line[1]); line++) {
            g_string_append_printf(out, "%s\r\n", *line);
        }
    } else if (options) {
        device_add(options, &err);
    }
    if (err) {
        print_error(out, err);
    }
    json_object_put(options);
}

static void hmp_object_add(const char *args, GString *out)
{
    GError *err = NULL;
    json_object *options = keyval_parse(args, &object_keyval, NULL, &err);

    if (options) {
        user_object_add(options, &err);
    }
    if (err) {
        print_error(out, err);
    }
    json_object_put(options);
}

static void hmp_device_del(const char *args, GString *out)
{
    GError *err = NULL;

    if (!device_del(args, &err)) {
        print_error(out, err);
    }
}

static void hmp_object_del(const char *args, GString *out)
{
    GError *err = NULL;

    if (!user_object_del(args, &err)) {
        print_error(out, err);
    }
}

void system_register_hmp(void)
{
    static const HmpCommand commands[] = {
        {"info qtree", "", "show the device tree", hmp_info_qtree},
        {"info qom-tree", "[path]", "show the composition tree", hmp_info_qom_tree},
        {"info mtree", "", "show the address spaces", hmp_info_mtree},
        {"info pci", "", "show what is on the PCI buses", hmp_info_pci},
        {"info stats", "", "show the counters of the devices", hmp_info_stats},
        {"info virtio", "", "list the virtio devices", hmp_info_virtio},
        {"info virtio-queue-element", "path queue [index]", "show a chain of a virtio queue",
         hmp_info_virtio_queue_element},
        {"info virtio-queue-status", "path queue", "show the state of a virtio queue",
         hmp_info_virtio_queue_status},
        {"info virtio-status", "path", "show the state of a virtio device", hmp_info_virtio_status},
        {"device_add", "driver[,prop=value][,...]", "plug a device", hmp_device_add,
         hmp_complete_device_add},
        {"device_del", "device", "ask for a device to be unplugged", hmp_device_del,
         hmp_complete_device_id},
        {"object_add", "[qom-type=]type,id=str[,prop=value][,...]", "make an object",
         hmp_object_add, hmp_complete_object_add},
        {"object_del", "id", "delete an object", hmp_object_del, hmp_complete_object_id},
        {NULL},
    };

    hmp_complete_path_hook = hmp_complete_qom;
    hmp_register(commands);
}
