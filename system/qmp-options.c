/*
 * query-command-line-options: what the options of the command line take.
 *
 * Options that name a type (-device, -netdev, -object) have parameters that depend on it and
 * list none, as in QEMU; -machine has those of all machines, -chardev those of all kinds.
 */
#include <string.h>

#include "chardev/chardev.h"
#include "hw/core/machine.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "system.h"
#include "util/error.h"
#include "util/json.h"

typedef struct Parameter {
    const char *name;
    CommandLineParameterType type;
    const char *help;
} Parameter;

#define STRING  COMMAND_LINE_PARAMETER_TYPE_STRING
#define BOOLEAN COMMAND_LINE_PARAMETER_TYPE_BOOLEAN
#define NUMBER  COMMAND_LINE_PARAMETER_TYPE_NUMBER
#define SIZE    COMMAND_LINE_PARAMETER_TYPE_SIZE

static const struct {
    const char *option; /* QEMU's name of the group: "memory" is -m */
    Parameter parameters[8];
} fixed[] = {
    {"accel", {{"accel", STRING, "qtest or tcg"}}},
    {"add-fd",
     {{"fd", NUMBER, "number of an inherited file descriptor"},
      {"set", NUMBER, "number of the set it is added to"},
      {"opaque", STRING, "what is to be remembered about it"}}},
    {"global",
     {{"driver", STRING, "type of devices"},
      {"property", STRING, "property of them"},
      {"value", STRING, "its default from now on"}}},
    {"memory", {{"size", SIZE, "size of RAM"}}},
    {"mon",
     {{"chardev", STRING, "character device it is on"},
      {"mode", STRING, "control or readline"},
      {"pretty", BOOLEAN, "answers are indented"}}},
    {"msg",
     {{"timestamp", BOOLEAN, "messages begin with the time"},
      {"guest-name", BOOLEAN, "messages begin with the guest's name"}}},
    {"name",
     {{"guest", STRING, "name of the guest"},
      {"process", STRING, "name of the process"},
      {"debug-threads", BOOLEAN, "threads have names"}}},
    {"numa", {{"type", STRING, "node"}, {"memdev", STRING, "memory back end of the node"}}},
    {"run-with",
     {{"exit-with-parent", BOOLEAN, "ends when the process that started it ends"},
      {"async-teardown", BOOLEAN, "accepted for compatibility"}}},
    {"sandbox",
     {{"enable", BOOLEAN, "filters system calls"},
      {"obsolete", STRING, "allow or deny"},
      {"spawn", STRING, "allow or deny"},
      {"elevateprivileges", STRING, "allow or deny"},
      {"resourcecontrol", STRING, "allow or deny"}}},
    {"trace",
     {{"enable", STRING, "pattern of trace events"},
      {"events", STRING, "file with one pattern a line"},
      {"file", STRING, "file they are written to"}}},
    {"device", {}},
    {"netdev", {}},
    {"object", {}},
};

static void add_parameter(CommandLineParameterInfoList ***tail, const char *name,
                          CommandLineParameterType type, const char *help)
{
    CommandLineParameterInfo *info = g_new0(CommandLineParameterInfo, 1);

    info->name = g_strdup(name);
    info->type = type;
    info->help = g_strdup(help);
    QAPI_LIST_APPEND(*tail, info);
}

static bool has_parameter(const CommandLineParameterInfoList *list, const char *name)
{
    for (; list; list = list->next) {
        if (!strcmp(list->value->name, name)) {
            return true;
        }
    }
    return false;
}

typedef struct Collect {
    CommandLineParameterInfoList *list, **tail;
} Collect;

static CommandLineParameterType property_type(const char *type)
{
    if (!strcmp(type, "bool")) {
        return BOOLEAN;
    }
    if (!strcmp(type, "size")) {
        return SIZE;
    }
    return g_str_has_prefix(type, "int") || g_str_has_prefix(type, "uint") ? NUMBER : STRING;
}

static void collect_property(const Property *prop, GType owner, void *opaque)
{
    Collect *collect = opaque;

    if (!(prop->flags & (PROP_F_READONLY | PROP_F_HIDDEN)) &&
        !has_parameter(collect->list, prop->name)) {
        add_parameter(&collect->tail, prop->name, property_type(prop->info->type),
                      prop->description);
    }
}

static void collect_machine(GType type, void *opaque)
{
    qom_class_foreach_property(type, collect_property, opaque);
}

static CommandLineParameterInfoList *machine_parameters(void)
{
    Collect collect = {.tail = &collect.list};

    add_parameter(&collect.tail, "type", STRING, "the machine");
    add_parameter(&collect.tail, "accel", STRING, "as -accel");
    qom_foreach_type(TYPE_MACHINE, false, collect_machine, &collect);
    return collect.list;
}

static void collect_chardev(const char *type, const char *const *keys, void *opaque)
{
    static const char *const booleans[] = {"server", "wait",    "ipv4", "ipv6",   "delay",
                                           "append", "nodelay", "mux",  "telnet", "abstract",
                                           "tight",  "signal",  NULL};
    static const char *const numbers[] = {"reconnect", "reconnect-ms", "to", NULL};
    Collect *collect = opaque;

    for (; *keys; keys++) {
        CommandLineParameterType what = !strcmp(*keys, "size")             ? SIZE
                                        : g_strv_contains(booleans, *keys) ? BOOLEAN
                                        : g_strv_contains(numbers, *keys)  ? NUMBER
                                                                           : STRING;
        if (!has_parameter(collect->list, *keys)) {
            add_parameter(&collect->tail, *keys, what, NULL);
        }
    }
}

static CommandLineParameterInfoList *chardev_parameters(void)
{
    Collect collect = {.tail = &collect.list};

    add_parameter(&collect.tail, "backend", STRING, "its kind");
    add_parameter(&collect.tail, "id", STRING, "its name");
    chardev_foreach_type(collect_chardev, &collect);
    return collect.list;
}

static CommandLineParameterInfoList *fixed_parameters(const Parameter *parameters)
{
    CommandLineParameterInfoList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < G_N_ELEMENTS(fixed[0].parameters) && parameters[i].name; i++) {
        add_parameter(&tail, parameters[i].name, parameters[i].type, parameters[i].help);
    }
    return list;
}

CommandLineOptionInfoList *qmp_query_command_line_options(const char *option, GError **errp)
{
    CommandLineOptionInfoList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < G_N_ELEMENTS(fixed) + 2; i++) {
        const char *name = i == 0 ? "machine" : i == 1 ? "chardev" : fixed[i - 2].option;
        if (option && strcmp(option, name)) {
            continue;
        }
        CommandLineOptionInfo *info = g_new0(CommandLineOptionInfo, 1);
        info->option = g_strdup(name);
        info->parameters = i == 0   ? machine_parameters()
                           : i == 1 ? chardev_parameters()
                                    : fixed_parameters(fixed[i - 2].parameters);
        QAPI_LIST_APPEND(tail, info);
    }
    if (!list) {
        error_set(errp, "invalid option name: %s", option);
    }
    return list;
}
