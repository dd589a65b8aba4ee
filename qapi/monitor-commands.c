/* QMP commands about the monitor itself. */
#include "qapi/monitor-priv.h"

#include "qapi/qapi-commands.h"
#include "qapi/qapi-events.h"
#include "qapi/qapi-introspect.h"
#include "qapi/qapi-visit.h"
#include "util/error.h"
#include "util/json.h"

/* The QEMU release whose interfaces these are: clients decide by it what they may ask for. */
enum { QEMU_MAJOR = 10, QEMU_MINOR = 2, QEMU_MICRO = 0 };

void qmp_qmp_capabilities(QMPCapabilityList *enable, GError **errp)
{
    bool oob = false;

    for (; enable; enable = enable->next) {
        oob |= enable->value == QMP_CAPABILITY_OOB;
    }
    if (!qmp_session_negotiate(monitor_current(), oob)) {
        error_set_class(errp, ERROR_COMMAND_NOT_FOUND,
                        "Capabilities negotiation is already complete, command ignored");
    }
}

VersionInfo *qmp_query_version(GError **errp)
{
    VersionInfo *info = g_new0(VersionInfo, 1);

    (void)errp;
    info->qemu = g_new0(VersionTriple, 1);
    info->qemu->major = QEMU_MAJOR;
    info->qemu->minor = QEMU_MINOR;
    info->qemu->micro = QEMU_MICRO;
    info->package = g_strdup("swnic " SWNIC_VERSION);
    return info;
}

json_object *qmp_version(void)
{
    VersionInfo *info = qmp_query_version(NULL);
    json_object *version = qapi_build_VersionInfo(info);

    qapi_free_VersionInfo(info);
    return version;
}

CommandInfoList *qmp_query_commands(GError **errp)
{
    CommandInfoList *list = NULL, **tail = &list;

    (void)errp;
    for (const QmpCommand *command = qmp_commands; command->name; command++) {
        CommandInfo *info = g_new0(CommandInfo, 1);

        info->name = g_strdup(command->name);
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

EventInfoList *qmp_query_events(GError **errp)
{
    EventInfoList *list = NULL, **tail = &list;

    (void)errp;
    for (const char *const *name = qapi_event_names; *name; name++) {
        EventInfo *info = g_new0(EventInfo, 1);

        info->name = g_strdup(*name);
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

void qmp_query_qmp_schema(json_object *args, json_object **ret, GError **errp)
{
    json_object_object_foreach(args, key, value)
    {
        (void)value;
        error_set(errp, "Parameter '%s' is unexpected", key);
        return;
    }
    *ret = json_parse(qapi_schema_json, errp);
}

char *qmp_human_monitor_command(const char *command_line, bool has_cpu_index, int64_t cpu_index,
                                GError **errp)
{
    if (has_cpu_index) {
        error_set(errp,
                  "Parameter 'cpu-index' does not accept value '%" G_GINT64_FORMAT
                  "', allowed: none (the machine has no CPU)",
                  cpu_index);
        return NULL;
    }
    return hmp_execute(command_line);
}
