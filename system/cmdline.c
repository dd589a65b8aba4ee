/*
 * The command line's first half: which options there are in argv, in what order they count.
 *
 * cmdline_parse() only looks options up and notes them with their values; their handlers run
 * later, phase by phase.  So `-device …,netdev=n0 -netdev …,id=n0` works in this order.
 */
#include <stdio.h>
#include <string.h>

#include "system.h"
#include "util/error.h"
#include "util/json.h"

#define HELP_COLUMN 34

typedef struct GivenOption {
    const CmdlineOption *option;
    char *spelling; /* as given, for messages: "-netdev" */
    char *value;
} GivenOption;

static GPtrArray *given; /* GivenOption* */

static void given_free(gpointer data)
{
    GivenOption *g = data;

    g_free(g->spelling);
    g_free(g->value);
    g_free(g);
}

static const CmdlineOption *option_find(const char *name)
{
    for (const CmdlineOption *option = cmdline_options; option->name; option++) {
        if (!strcmp(option->name, name)) {
            return option;
        }
    }
    return NULL;
}

static gboolean note(const CmdlineOption *option, const char *value, GError **errp)
{
    GivenOption *g;

    if (option->refusal) {
        return error_set(errp, "-%s: not available: %s", option->name, option->refusal);
    }
    g = g_new0(GivenOption, 1);
    g->option = option;
    g->value = g_strdup(value);
    g->spelling = value ? g_strdup_printf("-%s %s", option->name, value)
                        : g_strdup_printf("-%s", option->name);
    if (!given) {
        given = g_ptr_array_new_with_free_func(given_free);
    }
    g_ptr_array_add(given, g);
    return TRUE;
}

gboolean cmdline_parse(int argc, char **argv, GError **errp)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const char *value = NULL;

        if (word[0] != '-' || !word[1]) {
            return error_set(errp,
                             "%s: there are no disks to take this as an image; options "
                             "begin with '-' (-help lists them)",
                             word);
        }
        const CmdlineOption *option = option_find(word[1] == '-' ? word + 2 : word + 1);
        if (!option) {
            return error_set(errp, "%s: invalid option (-help lists the options)", word);
        }
        if (option->arg) {
            if (i + 1 == argc && !option->refusal) {
                return error_set(errp, "%s: requires an argument: %s", word, option->arg);
            }
            value = ++i < argc ? argv[i] : "";
        }
        if (!note(option, value, errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

gboolean cmdline_add(const char *name, const char *value, GError **errp)
{
    const CmdlineOption *option = option_find(name);

    if (!option || !option->arg) {
        return error_set(errp, "there is no option group '%s'", name);
    }
    return note(option, value, errp);
}

gboolean cmdline_run_phase(Phase phase, GError **errp)
{
    /* -readconfig adds to the list while it is walked. */
    for (unsigned i = 0; given && i < given->len; i++) {
        GivenOption *g = g_ptr_array_index(given, i);
        for (const CmdlineStep *step = g->option->steps; step->handle; step++) {
            GError *err = NULL;
            if (step->phase == phase && !step->handle(g->value, &err)) {
                g_propagate_prefixed_error(errp, err, "%s: ", g->spelling);
                return FALSE;
            }
        }
    }
    return TRUE;
}

/* The given option of @group whose value has id=@id; NULL if there is none. */
static GivenOption *given_find(const char *group, const char *id)
{
    /* Whatever a first word without a key means: only "id" is looked at. */
    static const KeyvalOptions opts = {.implied_key = "first", .allow_flags = true, .flat = true};

    for (unsigned i = 0; given && i < given->len; i++) {
        GivenOption *g = g_ptr_array_index(given, i);
        if (strcmp(g->option->name, group) || !g->value || *g->value == '{') {
            continue;
        }
        json_object *options = keyval_parse(g->value, &opts, NULL, NULL);
        const char *found = options ? json_member_string(options, "id") : NULL;
        bool same = found && !strcmp(found, id);
        json_object_put(options);
        if (same) {
            return g;
        }
    }
    return NULL;
}

gboolean cmdline_set(const char *text, GError **errp)
{
    const char *equals = strchr(text, '=');
    g_autofree char *path = g_strndup(text, equals ? (size_t)(equals - text) : strlen(text));
    g_auto(GStrv) parts = g_strsplit(path, ".", 3);

    if (!equals || g_strv_length(parts) != 3) {
        return error_set(errp, "-set expects GROUP.ID.ARG=VALUE, such as device.n0.mac=…");
    }
    GivenOption *g = given_find(parts[0], parts[1]);
    if (!g) {
        return error_set(errp, "there is no %s \"%s\" defined", parts[0], parts[1]);
    }
    GString *value = g_string_new(g->value);
    g_string_append_printf(value, ",%s=", parts[2]);
    for (const char *p = equals + 1; *p; p++) {
        g_string_append(value, *p == ',' ? ",," : (char[]){*p, '\0'});
    }
    g_free(g->value);
    g->value = g_string_free(value, FALSE);
    return TRUE;
}

/* Groups that -readconfig takes, and what their first word without a key means. */
static const struct {
    const char *option, *group, *first;
} config_groups[] = {
    {"machine", "machine", "type"},   {"M", "machine", "type"},
    {"object", "object", "qom-type"}, {"chardev", "chardev", "backend"},
    {"netdev", "netdev", "type"},     {"device", "device", "driver"},
    {"mon", "mon", "chardev"},        {"m", "memory", "size"},
    {"name", "name", "guest"},        {"accel", "accel", "accel"},
    {"global", "global", "driver"},
};

/* `[group "id"]` and a line a member.  A value with a quote in it has no spelling there. */
static void config_section(GString *out, const char *group, json_object *options)
{
    const char *id = json_member_string(options, "id");

    g_string_append_printf(out, id ? "[%s \"%s\"]\n" : "[%s]\n", group, id);
    json_object_object_foreach(options, key, value)
    {
        if (strcmp(key, "id")) {
            g_string_append_printf(out, "  %s = \"%s\"\n", key, json_object_get_string(value));
        }
    }
    g_string_append_c(out, '\n');
}

char *cmdline_to_config(void)
{
    GString *out = g_string_new("# swnic configuration, for -readconfig\n\n");

    for (unsigned i = 0; given && i < given->len; i++) {
        GivenOption *g = g_ptr_array_index(given, i);
        for (unsigned j = 0; j < G_N_ELEMENTS(config_groups); j++) {
            KeyvalOptions opts = {
                .implied_key = config_groups[j].first, .allow_flags = true, .flat = true};
            json_object *options = strcmp(g->option->name, config_groups[j].option)
                                       ? NULL
                                       : keyval_parse(g->value, &opts, NULL, NULL);
            if (options) {
                config_section(out, config_groups[j].group, options);
                json_object_put(options);
            }
        }
    }
    return g_string_free(out, FALSE);
}

void cmdline_print_help(void)
{
    printf(
        "usage: swnic-system-x86_64 [options]\n\n"
        "A PC without a CPU around a virtio-net-pci device, driven by qtest and QMP.\n"
        "Options may begin with one or two dashes; a comma in a value is doubled; \"help\" as a\n"
        "value lists what is possible, as in -device help or -device virtio-net-pci,help.\n\n");
    for (const CmdlineOption *option = cmdline_options; option->name; option++) {
        if (option->refusal || !option->help) {
            continue;
        }
        g_autofree char *left = g_strdup_printf("-%s%s%s", option->name, option->arg ? " " : "",
                                                option->arg ? option->arg : "");
        if (strlen(left) >= HELP_COLUMN) {
            printf("%s\n%*s%s\n", left, HELP_COLUMN, "", option->help);
        } else {
            printf("%-*s%s\n", HELP_COLUMN, left, option->help);
        }
    }
}

void cmdline_cleanup(void)
{
    g_clear_pointer(&given, g_ptr_array_unref);
}
