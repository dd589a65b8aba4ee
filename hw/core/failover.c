/* The standbys there are: see failover.h. */
#include "hw/core/failover.h"

#include "util/error.h"
#include "util/json.h"

typedef struct Standby {
    const FailoverOps *ops;
    void *opaque;
} Standby;

static GArray *standbys;

void failover_add_standby(const FailoverOps *ops, void *opaque)
{
    if (!standbys) {
        standbys = g_array_new(FALSE, FALSE, sizeof(Standby));
    }
    g_array_append_val(standbys, ((Standby){ops, opaque}));
}

static Standby *standby_at(unsigned i)
{
    return standbys && i < standbys->len ? &g_array_index(standbys, Standby, i) : NULL;
}

void failover_remove_standby(void *opaque)
{
    for (unsigned i = 0; standby_at(i); i++) {
        if (standby_at(i)->opaque == opaque) {
            g_array_remove_index(standbys, i);
            break;
        }
    }
    if (standbys && !standbys->len) {
        g_clear_pointer(&standbys, g_array_unref);
    }
}

bool failover_hides(json_object *options, GError **errp)
{
    GError *err = NULL;

    if (!json_member(options, "failover_pair_id")) {
        return false;
    }
    if (!json_member(options, "id")) {
        error_set(errp, "Device with failover_pair_id needs to have id");
        return false;
    }
    for (unsigned i = 0; standby_at(i); i++) {
        bool hidden = standby_at(i)->ops->hide(standby_at(i)->opaque, options, &err);

        if (err) {
            g_propagate_error(errp, err);
            return false;
        }
        if (hidden) {
            return true;
        }
    }
    return false;
}

void failover_unplug_primaries(void)
{
    for (unsigned i = 0; standby_at(i); i++) {
        standby_at(i)->ops->unplug(standby_at(i)->opaque);
    }
}

bool failover_is_unplugging(GError **errp)
{
    bool any = false;

    for (unsigned i = 0; standby_at(i); i++) {
        GError *err = NULL;

        any |= standby_at(i)->ops->unplugging(standby_at(i)->opaque, &err);
        if (err) {
            g_propagate_error(errp, err);
            return false;
        }
    }
    return any;
}

void failover_device_removed(const char *id)
{
    for (unsigned i = 0; id && standby_at(i); i++) {
        standby_at(i)->ops->removed(standby_at(i)->opaque, id);
    }
}

void failover_device_refused(const char *id)
{
    for (unsigned i = 0; id && standby_at(i); i++) {
        standby_at(i)->ops->refused(standby_at(i)->opaque, id);
    }
}

void failover_replug_primaries(void)
{
    for (unsigned i = 0; standby_at(i); i++) {
        standby_at(i)->ops->replug(standby_at(i)->opaque);
    }
}
