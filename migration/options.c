/*
 * Capabilities and parameters of migrations, and their commands.
 */
#include "internal.h"
#include "qapi/qapi-commands.h"
#include "util/error.h"

static bool is_available(MigrationCapability capability)
{
    switch (capability) {
    case MIGRATION_CAPABILITY_EVENTS:
    case MIGRATION_CAPABILITY_RETURN_PATH:
    case MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER:
    case MIGRATION_CAPABILITY_X_IGNORE_SHARED:
    case MIGRATION_CAPABILITY_AUTO_CONVERGE:
    case MIGRATION_CAPABILITY_ZERO_BLOCKS:
    case MIGRATION_CAPABILITY_LATE_BLOCK_ACTIVATE:
        return true;
    default:
        return false;
    }
}

void qmp_migrate_set_capabilities(MigrationCapabilityStatusList *capabilities, GError **errp)
{
    if (outgoing_is_active()) {
        error_set(errp, "There's a migration process in progress");
        return;
    }
    for (MigrationCapabilityStatusList *c = capabilities; c; c = c->next) {
        if (c->value->state && !is_available(c->value->capability)) {
            error_set(errp, "Migration capability '%s' is not available here",
                      MigrationCapability_str(c->value->capability));
            return;
        }
    }
    for (MigrationCapabilityStatusList *c = capabilities; c; c = c->next) {
        migration_options.capabilities[c->value->capability] = c->value->state;
    }
}

MigrationCapabilityStatusList *qmp_query_migrate_capabilities(GError **errp)
{
    MigrationCapabilityStatusList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < MIGRATION_CAPABILITY__MAX; i++) {
        MigrationCapabilityStatus *status = g_new0(MigrationCapabilityStatus, 1);

        status->capability = (MigrationCapability)i;
        status->state = migration_options.capabilities[i];
        QAPI_LIST_APPEND(tail, status);
    }
    return list;
}

#define DOWNTIME_LIMIT_MAX 2000000u /* ms, as QEMU's */

static gboolean check_parameters(const MigrationParameters *p, GError **errp)
{
    if (p->has_downtime_limit && p->downtime_limit > DOWNTIME_LIMIT_MAX) {
        return error_set(errp, "Parameter 'downtime-limit' expects 0 to %u milliseconds",
                         DOWNTIME_LIMIT_MAX);
    }
    if ((p->has_announce_initial && p->announce_initial > 100000) ||
        (p->has_announce_max && p->announce_max > 100000)) {
        return error_set(errp,
                         "Parameters 'announce-initial' and 'announce-max' expect 0 to 100000 "
                         "milliseconds");
    }
    if (p->has_announce_rounds && p->announce_rounds > 1000) {
        return error_set(errp, "Parameter 'announce-rounds' expects 0 to 1000");
    }
    if (p->has_announce_step && (p->announce_step < 1 || p->announce_step > 10000)) {
        return error_set(errp, "Parameter 'announce-step' expects 1 to 10000 milliseconds");
    }
    return TRUE;
}

void qmp_migrate_set_parameters(MigrationParameters *p, GError **errp)
{
    MigrationOptions *o = &migration_options;

    if (!check_parameters(p, errp)) {
        return;
    }
    o->announce_initial = p->has_announce_initial ? p->announce_initial : o->announce_initial;
    o->announce_max = p->has_announce_max ? p->announce_max : o->announce_max;
    o->announce_rounds = p->has_announce_rounds ? p->announce_rounds : o->announce_rounds;
    o->announce_step = p->has_announce_step ? p->announce_step : o->announce_step;
    /* A migration that is going on looks at these from its thread. */
    if (p->has_max_bandwidth) {
        __atomic_store_n(&o->max_bandwidth, p->max_bandwidth, __ATOMIC_RELAXED);
    }
    if (p->has_avail_switchover_bandwidth) {
        __atomic_store_n(&o->avail_switchover_bandwidth, p->avail_switchover_bandwidth,
                         __ATOMIC_RELAXED);
    }
    if (p->has_downtime_limit) {
        __atomic_store_n(&o->downtime_limit, p->downtime_limit, __ATOMIC_RELAXED);
    }
}

MigrationParameters *qmp_query_migrate_parameters(GError **errp)
{
    MigrationParameters *p = g_new0(MigrationParameters, 1);
    const MigrationOptions *o = &migration_options;

    p->has_announce_initial = p->has_announce_max = p->has_announce_rounds = true;
    p->has_announce_step = p->has_max_bandwidth = p->has_avail_switchover_bandwidth = true;
    p->has_downtime_limit = true;
    p->announce_initial = o->announce_initial;
    p->announce_max = o->announce_max;
    p->announce_rounds = o->announce_rounds;
    p->announce_step = o->announce_step;
    p->max_bandwidth = o->max_bandwidth;
    p->avail_switchover_bandwidth = o->avail_switchover_bandwidth;
    p->downtime_limit = o->downtime_limit;
    return p;
}
