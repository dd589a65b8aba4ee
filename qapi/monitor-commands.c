/*
 * QMP commands about the monitor itself, its character devices and what it was handed.
 */
#include "qapi/monitor-priv.h"

#include <unistd.h>

#include "chardev/chardev.h"
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

void qmp_getfd(const char *fdname, GError **errp)
{
    Monitor *mon = monitor_current();
    int fd = mon ? chardev_take_fd(mon->chr) : -1;

    if (fd < 0) {
        error_set(errp, "No file descriptor supplied via SCM_RIGHTS");
        return;
    }
    if (g_ascii_isdigit(fdname[0])) { /* "fd=5" must stay a number */
        close(fd);
        error_set(errp,
                  "Parameter 'fdname' does not accept value '%s', allowed: a name that does "
                  "not begin with a digit",
                  fdname);
        return;
    }
    g_hash_table_replace(mon->fds, g_strdup(fdname), GINT_TO_POINTER(fd));
}

void qmp_closefd(const char *fdname, GError **errp)
{
    Monitor *mon = monitor_current();

    if (!mon || !g_hash_table_remove(mon->fds, fdname)) {
        error_set(errp, "File descriptor named '%s' not found", fdname);
    }
}

static void append_chardev(Chardev *chr, void *opaque)
{
    ChardevInfoList ***tail = opaque;
    ChardevInfo *info = g_new0(ChardevInfo, 1);

    info->label = g_strdup(chardev_id(chr));
    info->filename = chardev_filename(chr);
    info->frontend_open = chardev_in_use(chr);
    QAPI_LIST_APPEND(*tail, info);
}

ChardevInfoList *qmp_query_chardev(GError **errp)
{
    ChardevInfoList *list = NULL, **tail = &list;

    (void)errp;
    chardev_foreach(append_chardev, &tail);
    return list;
}

void qmp_chardev_remove(const char *id, GError **errp)
{
    chardev_remove(id, errp);
}
