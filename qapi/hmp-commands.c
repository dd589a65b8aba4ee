/*
 * HMP commands that are a QMP command in other words: they call it by name and print its answer,
 * so that both monitors behave alike and this layer need not know who implements it.
 */
#include "qapi/monitor-priv.h"

#include <string.h>

#include "util/json.h"

/* Prints "Error: …" and frees @err; false if there is one. */
static bool report_error(GString *out, GError *err)
{
    if (err) {
        g_string_append_printf(out, "Error: %s\r\n", err->message);
        g_error_free(err);
        return false;
    }
    return true;
}

/* Runs the QMP command @name with @args (taken).  The answer; NULL when an error was printed. */
static json_object *query(const char *name, json_object *args, GString *out)
{
    GError *err = NULL;
    json_object *ret = qmp_call(name, args, &err);

    json_object_put(args);
    return report_error(out, err) ? ret : NULL;
}

/* The same where the answer says nothing. */
static void command(const char *name, json_object *args, GString *out)
{
    json_object_put(query(name, args, out));
}

static json_object *one_argument(const char *key, const char *value)
{
    json_object *args = json_object_new_object();

    json_put_string(args, key, value);
    return args;
}

/* The next word of *text, moved past; NULL when none is left.  g_free it. */
static char *next_word(const char **text)
{
    size_t len;
    char *word;

    *text += strspn(*text, " ");
    len = strcspn(*text, " ");
    word = len ? g_strndup(*text, len) : NULL;
    *text += len;
    return word;
}

static void hmp_quit(const char *args, GString *out)
{
    (void)args;
    command("quit", NULL, out);
}

static void hmp_stop(const char *args, GString *out)
{
    (void)args;
    command("stop", NULL, out);
}

static void hmp_cont(const char *args, GString *out)
{
    (void)args;
    command("cont", NULL, out);
}

static void hmp_system_reset(const char *args, GString *out)
{
    (void)args;
    command("system_reset", NULL, out);
}

static void hmp_set_link(const char *args, GString *out)
{
    char *name = next_word(&args), *state = next_word(&args);
    json_object *json;

    if (!name || !state || (strcmp(state, "on") != 0 && strcmp(state, "off") != 0)) {
        g_string_append(out, "set_link: usage: set_link NAME on|off\r\n");
    } else {
        json = one_argument("name", name);
        json_put_bool(json, "up", strcmp(state, "on") == 0);
        command("set_link", json, out);
    }
    g_free(name);
    g_free(state);
}

static void hmp_device_del(const char *args, GString *out)
{
    command("device_del", one_argument("id", args), out);
}

static void hmp_netdev_del(const char *args, GString *out)
{
    command("netdev_del", one_argument("id", args), out);
}

static void hmp_object_del(const char *args, GString *out)
{
    command("object-del", one_argument("id", args), out);
}

/* Options as -chardev has them, parsed; NULL when an error was printed. */
static json_object *chardev_options(const char *text, GString *out)
{
    GError *err = NULL;
    json_object *options = chardev_parse_options(text, NULL, &err);

    return report_error(out, err) ? options : NULL;
}

static void hmp_chardev_add(const char *args, GString *out)
{
    GError *err = NULL;
    json_object *options = chardev_options(args, out);

    if (options) {
        chardev_new(options, &err);
        report_error(out, err);
        json_object_put(options);
    }
}

static void hmp_chardev_change(const char *args, GString *out)
{
    g_autofree char *id = next_word(&args);
    GError *err = NULL;
    json_object *options = id ? chardev_options(args + strspn(args, " "), out) : NULL;

    if (!id) {
        g_string_append(out,
                        "chardev-change: usage: chardev-change ID TYPE[,prop=value][,...]\r\n");
    } else if (options && json_member(options, "id")) {
        g_string_append(out, "Error: Unexpected 'id' parameter\r\n");
    } else if (options) {
        monitor_change_chardev(id, options, &err);
        report_error(out, err);
    }
    json_object_put(options);
}

static void hmp_chardev_remove(const char *args, GString *out)
{
    command("chardev-remove", one_argument("id", args), out);
}

static void hmp_qom_list(const char *args, GString *out)
{
    json_object *list = query("qom-list", one_argument("path", args), out);

    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        json_object *item = json_object_array_get_idx(list, i);

        g_string_append_printf(out, "%s (%s)\r\n", json_member_string(item, "name"),
                               json_member_string(item, "type"));
    }
    json_object_put(list);
}

static void hmp_qom_get(const char *args, GString *out)
{
    char *path = next_word(&args), *property = next_word(&args), *text;
    json_object *json = one_argument("path", path ? path : ""), *value;
    GError *err = NULL;

    json_put_string(json, "property", property ? property : "");
    value = qmp_call("qom-get", json, &err);
    if (report_error(out, err)) {
        text = json_to_pretty(value);
        g_string_append_printf(out, "%s\r\n", text);
        g_free(text);
    }
    json_object_put(value);
    json_object_put(json);
    g_free(path);
    g_free(property);
}

/* The value is JSON where it reads as such, else a string. */
static void hmp_qom_set(const char *args, GString *out)
{
    char *path = next_word(&args), *property = next_word(&args);
    const char *text = args + strspn(args, " ");
    GError *err = NULL;
    json_object *json, *value = json_parse(text, &err);

    if (err) {
        g_clear_error(&err);
        value = json_object_new_string(text);
    }
    json = one_argument("path", path ? path : "");
    json_put_string(json, "property", property ? property : "");
    json_object_object_add(json, "value", value);
    command("qom-set", json, out);
    g_free(path);
    g_free(property);
}

static void hmp_info_version(const char *args, GString *out)
{
    json_object *info = query("query-version", NULL, out), *qemu = json_member(info, "qemu");

    (void)args;
    if (info) {
        g_string_append_printf(
            out, "%d.%d.%d (%s)\r\n", json_object_get_int(json_member(qemu, "major")),
            json_object_get_int(json_member(qemu, "minor")),
            json_object_get_int(json_member(qemu, "micro")), json_member_string(info, "package"));
    }
    json_object_put(info);
}

static void hmp_info_status(const char *args, GString *out)
{
    json_object *info = query("query-status", NULL, out);
    const char *status = json_member_string(info, "status");

    (void)args;
    if (info && json_object_get_boolean(json_member(info, "running"))) {
        g_string_append(out, "VM status: running\r\n");
    } else if (info && strcmp(status, "paused") == 0) {
        g_string_append(out, "VM status: paused\r\n");
    } else if (info) {
        g_string_append_printf(out, "VM status: paused (%s)\r\n", status);
    }
    json_object_put(info);
}

static void hmp_info_name(const char *args, GString *out)
{
    json_object *info = query("query-name", NULL, out);
    const char *name = json_member_string(info, "name");

    (void)args;
    if (name) {
        g_string_append_printf(out, "%s\r\n", name);
    }
    json_object_put(info);
}

static void hmp_info_uuid(const char *args, GString *out)
{
    json_object *info = query("query-uuid", NULL, out);

    (void)args;
    if (info) {
        g_string_append_printf(out, "%s\r\n", json_member_string(info, "UUID"));
    }
    json_object_put(info);
}

static void hmp_info_chardev(const char *args, GString *out)
{
    json_object *list = query("query-chardev", NULL, out);

    (void)args;
    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        json_object *item = json_object_array_get_idx(list, i);

        g_string_append_printf(out, "%s: filename=%s\r\n", json_member_string(item, "label"),
                               json_member_string(item, "filename"));
    }
    json_object_put(list);
}

static void hmp_info_iothreads(const char *args, GString *out)
{
    json_object *list = query("query-iothreads", NULL, out);

    (void)args;
    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        json_object *item = json_object_array_get_idx(list, i);

        g_string_append_printf(out, "%s:\r\n  thread_id=%d\r\n", json_member_string(item, "id"),
                               json_object_get_int(json_member(item, "thread-id")));
    }
    json_object_put(list);
}

void (*hmp_complete_path_hook)(const char *args, GPtrArray *words);

static void complete_path(const char *args, GPtrArray *words)
{
    if (hmp_complete_path_hook) {
        hmp_complete_path_hook(args, words);
    }
}

const HmpCommand hmp_builtin_commands[] = {
    {"chardev-add", "TYPE,id=str[,prop=value][,...]", "add a character device", hmp_chardev_add},
    {"chardev-change", "id TYPE[,prop=value][,...]", "put another character device in its place",
     hmp_chardev_change},
    {"chardev-remove", "id", "remove a character device", hmp_chardev_remove},
    {"c|cont", "", "let the virtual machine run", hmp_cont},
    {"device_del", "device", "ask for a device to be unplugged", hmp_device_del},
    {"info chardev", "", "show the character devices", hmp_info_chardev},
    {"info iothreads", "", "show the threads that drive queues", hmp_info_iothreads},
    {"info name", "", "show the guest's name", hmp_info_name},
    {"info status", "", "show whether the virtual machine runs", hmp_info_status},
    {"info uuid", "", "show the guest's UUID", hmp_info_uuid},
    {"info version", "", "show the emulator's version", hmp_info_version},
    {"netdev_del", "id", "delete a network back end", hmp_netdev_del},
    {"object_del", "id", "delete an object", hmp_object_del},
    {"q|quit", "", "end the emulator", hmp_quit},
    {"qom-get", "path property", "show a property's value", hmp_qom_get, complete_path},
    {"qom-list", "path", "show an object's children and properties", hmp_qom_list, complete_path},
    {"qom-set", "path property value", "set a property", hmp_qom_set, complete_path},
    {"set_link", "name on|off", "plug or unplug a network cable", hmp_set_link},
    {"s|stop", "", "stop the virtual machine", hmp_stop},
    {"system_reset", "", "reset the virtual machine", hmp_system_reset},
    {NULL},
};
