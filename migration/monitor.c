/*
 * query-migrate, and the commands for people.
 */
#include <string.h>

#include "internal.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "util/json.h"

MigrationInfo *qmp_query_migrate(GError **errp)
{
    MigrationInfo *info = g_new0(MigrationInfo, 1);
    GError *err = NULL;

    outgoing_query(info);
    if (!info->has_status) {
        incoming_query(info);
    }
    if (migration_host && !migration_host->check(&err)) {
        strList **tail = &info->blocked_reasons;

        QAPI_LIST_APPEND(tail, g_strdup(err->message));
        g_error_free(err);
    }
    return info;
}

void migration_cleanup(void)
{
    outgoing_cleanup();
    incoming_cleanup();
}

/* --- HMP --- */

static void print_error(GString *out, GError *err)
{
    if (err) {
        g_string_append_printf(out, "Error: %s\r\n", err->message);
        g_error_free(err);
    }
}

static void hmp_migrate(const char *args, GString *out)
{
    GError *err = NULL;

    while (*args == '-') {
        args += strcspn(args, " ");
        args += strspn(args, " ");
    }
    if (!*args) {
        g_string_append(out, "migrate: a URI is needed\r\n");
        return;
    }
    qmp_migrate(args, false, false, false, false, &err);
    print_error(out, err);
}

static void hmp_migrate_cancel(const char *args, GString *out)
{
    qmp_migrate_cancel(NULL);
}

static void hmp_migrate_incoming(const char *args, GString *out)
{
    GError *err = NULL;

    qmp_migrate_incoming(args, false, false, &err);
    print_error(out, err);
}

/* Two words, as arguments of a QMP command that takes one object. */
static char **two_words(const char *args, GString *out, const char *usage)
{
    char **words = g_strsplit_set(args, " \t", 2);

    if (g_strv_length(words) != 2) {
        g_string_append_printf(out, "usage: %s\r\n", usage);
        g_strfreev(words);
        return NULL;
    }
    g_strstrip(words[1]);
    return words;
}

static void hmp_migrate_continue(const char *args, GString *out)
{
    GError *err = NULL;
    int state = qapi_enum_find(MigrationStatus_names, args);

    if (state < 0) {
        g_string_append_printf(out, "Error: invalid parameter value: %s\r\n", args);
        return;
    }
    qmp_migrate_continue((MigrationStatus)state, &err);
    print_error(out, err);
}

static void hmp_set_capability(const char *args, GString *out)
{
    g_auto(GStrv) words = two_words(args, out, "migrate_set_capability NAME on|off");
    MigrationCapabilityStatus status = {0};
    MigrationCapabilityStatusList list = {NULL, &status};
    GError *err = NULL;

    if (!words) {
        return;
    }
    int capability = qapi_enum_find(MigrationCapability_names, words[0]);
    if (capability < 0) {
        g_string_append_printf(out, "Error: invalid parameter value: %s\r\n", words[0]);
        return;
    }
    status.capability = (MigrationCapability)capability;
    status.state = !strcmp(words[1], "on");
    if (!status.state && strcmp(words[1], "off")) {
        g_string_append(out, "Error: expecting on or off\r\n");
        return;
    }
    qmp_migrate_set_capabilities(&list, &err);
    print_error(out, err);
}

static void hmp_set_parameter(const char *args, GString *out)
{
    g_auto(GStrv) words = two_words(args, out, "migrate_set_parameter NAME VALUE");
    GError *err = NULL;

    if (!words) {
        return;
    }
    json_object *object = json_object_new_object();
    json_put_string(object, words[0], words[1]);
    MigrationParameters *p = qapi_parse_MigrationParameters(object, QAPI_INPUT_KEYVAL, &err);
    if (p) {
        qmp_migrate_set_parameters(p, &err);
        qapi_free_MigrationParameters(p);
    }
    json_object_put(object);
    print_error(out, err);
}

static void print_ram(GString *out, const MigrationStats *ram)
{
    g_string_append_printf(out,
                           "transferred ram: %" PRIi64 " kbytes\r\n"
                           "throughput: %0.2f mbps\r\n"
                           "remaining ram: %" PRIi64 " kbytes\r\n"
                           "total ram: %" PRIi64 " kbytes\r\n"
                           "duplicate: %" PRIi64 " pages\r\n"
                           "normal: %" PRIi64 " pages\r\n"
                           "normal bytes: %" PRIi64 " kbytes\r\n"
                           "dirty sync count: %" PRIi64 "\r\n"
                           "page size: %" PRIi64 " kbytes\r\n"
                           "pages-per-second: %" PRIu64 "\r\n"
                           "dirty pages rate: %" PRIi64 " pages\r\n"
                           "precopy ram: %" PRIu64 " kbytes\r\n"
                           "downtime ram: %" PRIu64 " kbytes\r\n",
                           ram->transferred >> 10, ram->mbps, ram->remaining >> 10,
                           ram->total >> 10, ram->duplicate, ram->normal, ram->normal_bytes >> 10,
                           ram->dirty_sync_count, ram->page_size >> 10, ram->pages_per_second,
                           ram->dirty_pages_rate, ram->precopy_bytes >> 10,
                           ram->downtime_bytes >> 10);
}

static void hmp_info_migrate(const char *args, GString *out)
{
    MigrationInfo *info = qmp_query_migrate(NULL);

    if (info->has_status) {
        g_string_append_printf(out, "Migration status: %s\r\n", MigrationStatus_str(info->status));
    }
    if (info->error_desc) {
        g_string_append_printf(out, "error: %s\r\n", info->error_desc);
    }
    if (info->has_total_time) {
        g_string_append_printf(out, "total time: %" PRIi64 " ms\r\n", info->total_time);
    }
    if (info->has_expected_downtime) {
        g_string_append_printf(out, "expected downtime: %" PRIi64 " ms\r\n",
                               info->expected_downtime);
    }
    if (info->has_downtime) {
        g_string_append_printf(out, "downtime: %" PRIi64 " ms\r\n", info->downtime);
    }
    if (info->has_setup_time) {
        g_string_append_printf(out, "setup: %" PRIi64 " ms\r\n", info->setup_time);
    }
    if (info->ram) {
        print_ram(out, info->ram);
    }
    qapi_free_MigrationInfo(info);
}

static void hmp_info_capabilities(const char *args, GString *out)
{
    MigrationCapabilityStatusList *list = qmp_query_migrate_capabilities(NULL);

    for (MigrationCapabilityStatusList *c = list; c; c = c->next) {
        g_string_append_printf(out, "%s: %s\r\n", MigrationCapability_str(c->value->capability),
                               c->value->state ? "on" : "off");
    }
    qapi_free_MigrationCapabilityStatusList(list);
}

static void hmp_info_parameters(const char *args, GString *out)
{
    MigrationParameters *p = qmp_query_migrate_parameters(NULL);

    g_string_append_printf(out,
                           "announce-initial: %" PRIu64 " ms\r\n"
                           "announce-max: %" PRIu64 " ms\r\n"
                           "announce-rounds: %" PRIu64 "\r\n"
                           "announce-step: %" PRIu64 " ms\r\n"
                           "max-bandwidth: %" PRIu64 " bytes/second\r\n"
                           "avail-switchover-bandwidth: %" PRIu64 " bytes/second\r\n"
                           "downtime-limit: %" PRIu64 " ms\r\n",
                           p->announce_initial, p->announce_max, p->announce_rounds,
                           p->announce_step, p->max_bandwidth, p->avail_switchover_bandwidth,
                           p->downtime_limit);
    qapi_free_MigrationParameters(p);
}

void migration_register_hmp(void)
{
    static const HmpCommand commands[] = {
        {"migrate", "[-d] uri", "migrate to uri; goes on in the background", hmp_migrate},
        {"migrate_cancel", "", "cancel the migration going on", hmp_migrate_cancel},
        {"migrate_continue", "state", "continue a migration that waits", hmp_migrate_continue},
        {"migrate_incoming", "uri", "begin the incoming migration of -incoming defer",
         hmp_migrate_incoming},
        {"migrate_set_capability", "capability state", "switch a capability on or off",
         hmp_set_capability},
        {"migrate_set_parameter", "parameter value", "set a parameter", hmp_set_parameter},
        {"info migrate", "", "show the migration's progress", hmp_info_migrate},
        {"info migrate_capabilities", "", "show capabilities", hmp_info_capabilities},
        {"info migrate_parameters", "", "show parameters", hmp_info_parameters},
        {NULL},
    };

    hmp_register(commands);
}
