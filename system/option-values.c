/* Handlers of options that only set something; what they mean is said in the table of options. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hw/core/machine.h"
#include "system.h"
#include "util/error.h"
#include "util/fdset.h"
#include "util/json.h"
#include "util/log.h"
#include "util/trace.h"

Settings settings;

static void replace(char **place, const char *value)
{
    g_free(*place);
    *place = g_strdup(value);
}

static bool is_help(const char *value)
{
    return !strcmp(value, "help") || !strcmp(value, "?");
}

static void add_machine_line(GType type, void *opaque)
{
    MachineClass *mc = g_type_class_ref(type);
    const char *desc = mc->desc ? mc->desc : "";

    if (mc->alias) {
        g_string_append_printf(opaque, "%-20s %s (alias of %s)\n", mc->alias, desc, mc->name);
    }
    g_string_append_printf(opaque, "%-20s %s%s\n", mc->name, desc,
                           mc->is_default ? " (default)" : "");
    g_type_class_unref(mc);
}

static gboolean machine_help_and_exit(const char *type, GError **errp)
{
    GString *out = g_string_new(NULL);

    if (type) {
        MachineClass *mc = machine_class_find(type, errp);
        if (!mc) {
            g_string_free(out, TRUE);
            return FALSE;
        }
        g_autofree char *text = qom_type_help(G_TYPE_FROM_CLASS(mc));
        g_string_printf(out, "%s options:\n%s", mc->name, text);
    } else {
        g_string_append(out, "Supported machines are:\n");
        qom_foreach_type(TYPE_MACHINE, false, add_machine_line, out);
    }
    print_help_and_exit(out->str);
}

/* Several -machine options add up; the last type counts. */
gboolean opt_machine(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "type", .flat = true};
    bool help;
    json_object *options = keyval_parse(value, &opts, &help, errp);
    gboolean ok = TRUE;

    if (!options) {
        return FALSE;
    }
    if (help && !machine_help_and_exit(json_member_string(options, "type"), errp)) {
        json_object_put(options);
        return FALSE;
    }
    json_object_object_foreach(options, key, member)
    {
        if (!strcmp(key, "type")) {
            replace(&settings.machine, json_object_get_string(member));
        } else if (!strcmp(key, "accel")) {
            ok = ok && opt_accel(json_object_get_string(member), errp);
        } else {
            json_object_object_add(settings.machine_options, key, json_object_get(member));
        }
    }
    json_object_put(options);
    return ok;
}

/* Of several accelerators ("kvm:tcg", or -accel twice) the first that exists counts. */
gboolean opt_accel(const char *value, GError **errp)
{
    size_t len = strcspn(value, ",");
    g_autofree char *first = g_strndup(value, len);
    g_auto(GStrv) names = g_strsplit(first, ":", -1);

    if (is_help(first)) {
        print_help_and_exit("Accelerators supported in swnic-system-x86_64:\nqtest\ntcg\n");
    }
    for (char **name = names; *name && !settings.accel; name++) {
        if (!strcmp(*name, "qtest") || !strcmp(*name, "tcg")) {
            settings.accel = g_strdup(*name);
        } else {
            g_free(settings.accel_error);
            settings.accel_error = g_strdup_printf(
                "-accel %s: invalid accelerator %s, it is qtest or tcg", value, *name);
        }
    }
    return TRUE;
}

gboolean opt_memory(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "size", .flat = true};
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    gboolean ok = options != NULL;

    if (!ok) {
        return FALSE;
    }
    json_object_object_foreach(options, key, member)
    {
        const char *text = json_object_get_string(member);
        bool bare = *text && g_ascii_isdigit(text[strlen(text) - 1]);
        g_autofree char *size = g_strdup_printf("%s%s", text, bare ? "M" : "");
        if (!ok) {
            break;
        }
        if (strcmp(key, "size")) {
            ok = error_set(errp, "Parameter '%s' is unexpected: RAM does not grow", key);
        } else {
            ok = parse_size("size", size, &settings.ram_size, errp);
        }
    }
    json_object_put(options);
    return ok;
}

gboolean opt_name(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "guest", .allow_flags = true, .flat = true};
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    const char *name = options ? json_member_string(options, "guest") : NULL;

    if (name) {
        replace(&settings.name, name);
        error_set_guest(name);
    }
    json_object_put(options);
    return options != NULL;
}

gboolean opt_uuid(const char *value, GError **errp)
{
    if (!g_uuid_string_is_valid(value)) {
        return error_set(errp, "failed to parse UUID, it looks like "
                               "01234567-89ab-cdef-0123-456789abcdef");
    }
    g_free(settings.uuid);
    settings.uuid = g_ascii_strdown(value, -1);
    return TRUE;
}

static gboolean only_none(const char *what, const char *value, GError **errp)
{
    g_autofree char *first = g_strndup(value, strcspn(value, ","));

    if (is_help(first)) {
        print_help_and_exit("none");
    }
    return !strcmp(first, "none") ||
           error_set(errp, "%s '%s' is not available, only none", what, first);
}

gboolean opt_display(const char *value, GError **errp)
{
    return only_none("display", value, errp);
}

gboolean opt_audio(const char *value, GError **errp)
{
    return only_none("audio back end", value, errp);
}

gboolean opt_vga(const char *value, GError **errp)
{
    return only_none("vga card", value, errp);
}

gboolean opt_no_device(const char *value, GError **errp)
{
    return !strcmp(value, "null") || only_none("port", value, errp);
}

gboolean opt_run_with(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.allow_flags = true, .flat = true};
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    gboolean ok = options != NULL;

    if (!ok) {
        return FALSE;
    }
    json_object_object_foreach(options, key, member)
    {
        const char *text = json_object_get_string(member);
        bool on = false;
        if (!strcmp(key, "exit-with-parent")) {
            ok = ok && parse_bool(key, text, &settings.exit_with_parent, errp);
        } else if (!strcmp(key, "async-teardown")) {
            /* There is no guest memory so large that freeing it would be noticed. */
            ok = ok && parse_bool(key, text, &on, errp);
        } else if (ok) {
            ok = error_set(errp, "Parameter '%s' is unexpected, it is exit-with-parent", key);
        }
    }
    json_object_put(options);
    return ok;
}

/* A switch of @options: off when it is not there. */
static gboolean take_switch(json_object *options, const char *key, bool *on, GError **errp)
{
    const char *text = json_member_string(options, key);

    *on = false;
    return !text || parse_bool(key, text, on, errp);
}

/* As in QEMU each -msg says all: what it does not name is off. */
gboolean opt_msg(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.allow_flags = true, .flat = true};
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    bool timestamps, guest_name;
    gboolean ok = options != NULL;

    if (!ok) {
        return FALSE;
    }
    json_object_object_foreach(options, key, member)
    {
        (void)member;
        if (ok && strcmp(key, "timestamp") && strcmp(key, "guest-name")) {
            ok = error_set(errp, "Parameter '%s' is unexpected, use timestamp=on|off or "
                                 "guest-name=on|off",
                           key);
        }
    }
    ok = ok && take_switch(options, "timestamp", &timestamps, errp) &&
         take_switch(options, "guest-name", &guest_name, errp);
    if (ok) {
        error_set_timestamps(timestamps);
        error_set_guest_names(guest_name);
    }
    json_object_put(options);
    return ok;
}

gboolean opt_log_items(const char *value, GError **errp)
{
    if (is_help(value)) {
        g_autofree char *text = log_items_help();
        print_help_and_exit(text);
    }
    return log_set_items(value, errp);
}

gboolean opt_log_file(const char *value, GError **errp)
{
    return log_set_file(value, errp);
}

gboolean opt_trace(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "enable", .flat = true};

    if (is_help(value)) {
        g_autofree char *text = trace_help();
        print_help_and_exit(text);
    }
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    gboolean ok = options != NULL;
    if (!ok) {
        return FALSE;
    }
    json_object_object_foreach(options, key, member)
    {
        const char *text = json_object_get_string(member);
        if (!ok) {
            break;
        }
        ok = !strcmp(key, "enable")   ? trace_switch(text, errp)
             : !strcmp(key, "events") ? trace_switch_from_file(text, errp)
             : !strcmp(key, "file")   ? log_set_file(text, errp)
                                      : error_set(errp, "Parameter '%s' is unexpected", key);
    }
    log_mask |= LOG_TRACE;
    json_object_put(options);
    return ok;
}

gboolean opt_sandbox(const char *value, GError **errp)
{
    replace(&settings.sandbox, value);
    return sandbox_check(value, errp);
}

gboolean opt_set(const char *value, GError **errp)
{
    return cmdline_set(value, errp);
}

/* Appends ",key=value" with the commas in @value doubled. */
static void append_keyval(GString *out, const char *key, const char *value)
{
    g_string_append_printf(out, "%s%s=", out->len ? "," : "", key);
    for (; *value; value++) {
        g_string_append_c(out, *value);
        if (*value == ',') {
            g_string_append_c(out, ',');
        }
    }
}

/* A section `[group "id"]` or `[group]` opens; *group and *id are new strings, *id may be NULL. */
static bool parse_section(const char *line, char **group, char **id)
{
    const char *end = strchr(line, ']');
    const char *quote = strchr(line, '"');
    size_t len = strcspn(line + 1, " \t\"]");

    if (*line != '[' || !end || !len) {
        return false;
    }
    *group = g_strndup(line + 1, len);
    *id = NULL;
    if (quote && quote < end) {
        const char *close = strchr(quote + 1, '"');
        if (!close || close > end) {
            g_clear_pointer(group, g_free);
            return false;
        }
        *id = g_strndup(quote + 1, close - quote - 1);
    }
    return true;
}

/* `key = "value"` into @out. */
static bool parse_assignment(const char *line, GString *out)
{
    const char *equals = strchr(line, '=');
    const char *open = equals ? strchr(equals, '"') : NULL;
    const char *close = open ? strrchr(open + 1, '"') : NULL;

    if (!close || equals == line) {
        return false;
    }
    g_autofree char *key = g_strstrip(g_strndup(line, equals - line));
    g_autofree char *value = g_strndup(open + 1, close - open - 1);
    append_keyval(out, key, value);
    return *key != '\0';
}

static gboolean section_done(char **group, GString *text, GError **errp)
{
    gboolean ok = TRUE;

    if (*group) {
        ok = cmdline_add(!strcmp(*group, "memory") ? "m" : *group, text->str, errp);
    }
    g_clear_pointer(group, g_free);
    g_string_truncate(text, 0);
    return ok;
}

/* The lines of file @path, NULL-ended; NULL with error. */
static char **read_lines(const char *path, GError **errp)
{
    GPtrArray *lines = g_ptr_array_new();
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;

    if (!file) {
        g_ptr_array_free(lines, TRUE);
        error_set_errno(errp, errno, "cannot read '%s'", path);
        return NULL;
    }
    while (getline(&line, &size, file) >= 0) {
        g_ptr_array_add(lines, g_strdup(line));
    }
    free(line);
    fclose(file);
    g_ptr_array_add(lines, NULL);
    return (char **)g_ptr_array_free(lines, FALSE);
}

gboolean opt_readconfig(const char *value, GError **errp)
{
    g_autofree char *group = NULL;
    g_auto(GStrv) lines = read_lines(value, errp);

    if (!lines) {
        return FALSE;
    }
    GString *text = g_string_new(NULL);
    gboolean ok = TRUE;
    for (unsigned i = 0; ok && lines[i]; i++) {
        g_autofree char *id = NULL;
        const char *line = g_strstrip(lines[i]);
        if (!*line || *line == '#') {
            continue;
        }
        if (*line == '[') {
            ok = section_done(&group, text, errp);
            if (ok && !parse_section(line, &group, &id)) {
                ok = error_set(errp, "line %u: expected [group] or [group \"id\"]", i + 1);
            } else if (id) {
                append_keyval(text, "id", id);
            }
        } else if (!group) {
            ok = error_set(errp, "line %u: no group defined", i + 1);
        } else if (!parse_assignment(line, text)) {
            ok = error_set(errp, "line %u: expected key = \"value\"", i + 1);
        }
    }
    ok = ok && section_done(&group, text, errp);
    g_string_free(text, TRUE);
    return ok;
}

gboolean opt_writeconfig(const char *value, GError **errp)
{
    FILE *file = !strcmp(value, "-") ? stdout : fopen(value, "we");

    if (!file) {
        return error_set_errno(errp, errno, "cannot write '%s'", value);
    }
    g_autofree char *text = cmdline_to_config();
    bool ok = fputs(text, file) >= 0 && fflush(file) == 0;
    if (file != stdout) {
        ok = fclose(file) == 0 && ok;
    }
    return ok || error_set_errno(errp, errno, "cannot write '%s'", value);
}

gboolean opt_add_fd(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "fd", .flat = true};
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    const char *fd_text = json_member_string(options, "fd");
    const char *set_text = json_member_string(options, "set");
    uint64_t fd, set;
    gboolean ok = options != NULL;

    if (ok && (!fd_text || !set_text)) {
        ok = error_set(errp, "expected fd=N,set=ID");
    }
    ok = ok && parse_uint64("fd", fd_text, INT32_MAX, &fd, errp) &&
         parse_uint64("set", set_text, INT32_MAX, &set, errp);
    if (ok && (fd <= STDERR_FILENO || fcntl((int)fd, F_GETFD) < 0)) {
        ok = error_set(errp, "fd '%s' is not open in this process, or a standard one", fd_text);
    }
    if (ok) {
        /* A duplicate, so that two options may give the same one. */
        int64_t id = (int64_t)set;
        int copy = fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
        ok = copy >= 0 ? fdset_add(&id, copy, json_member_string(options, "opaque"), errp)
                       : error_set_errno(errp, errno, "cannot duplicate fd '%s'", fd_text);
    }
    json_object_put(options);
    return ok;
}
