/*
 * failover=on: virtio-net as the standby of a primary, a device whose failover_pair_id names this
 * one.
 *
 * The primary's options are kept, and the device is made only when the driver has accepted STANDBY:
 * until then a guest that does not know of pairs would see two NICs of one address.  A migration
 * takes it out (as device_del does, with the guest's consent), since it may be tied to this host; a
 * migration that fails brings it back.
 *
 *   hidden -> plugged   STANDBY is accepted
 *   plugged -> leaving  a migration begins: the guest is asked
 *   leaving -> hidden   the guest lets go; the migration goes on
 *   leaving -> plugged  the migration has failed: at once if it is still there when the guest
 *                       refuses, else made anew when the guest has let go
 *
 * On the destination STANDBY is accepted when the saved state is loaded.
 */
#include "hw/core/failover.h"
#include "hw/net/virtio-net-internal.h"
#include "qapi/qapi-events.h"
#include "util/error.h"
#include "util/json.h"

static DeviceState *primary(const VirtIONet *n)
{
    const char *id = n->primary_options ? json_member_string(n->primary_options, "id") : NULL;

    return id ? device_find(id, NULL) : NULL;
}

static bool standby_hide(void *opaque, json_object *options, GError **errp)
{
    VirtIONet *n = opaque;
    const char *id = json_member_string(options, "id");

    if (g_strcmp0(json_member_string(options, "failover_pair_id"), n->nc->name)) {
        return false;
    }
    if (n->primary_options && g_strcmp0(json_member_string(n->primary_options, "id"), id)) {
        error_set(errp, "Cannot attach more than one primary device to '%s': '%s' and '%s'",
                  n->nc->name, json_member_string(n->primary_options, "id"), id);
        return false;
    }
    if (n->primary_options != options) {
        json_object_put(n->primary_options);
        n->primary_options = json_deep_copy(options);
    }
    return n->primary_hidden;
}

static void plug(void *opaque)
{
    VirtIONet *n = opaque;
    g_autoptr(GError) err = NULL;

    /* During a migration nothing comes; its end asks again. */
    if (n->primary_hidden || !n->primary_options || primary(n) || device_changes_are_locked()) {
        return;
    }
    if (!device_add(n->primary_options, &err) && err) {
        warn_report("%s: the primary device could not be added: %s", n->nc->name, err->message);
    }
}

static void standby_unplug(void *opaque)
{
    VirtIONet *n = opaque;
    DeviceState *dev = primary(n);
    g_autoptr(GError) err = NULL;

    bh_cancel(n->failover_bh);
    if (!dev) {
        return;
    }
    /* A second press of the button would take the first one back. */
    n->primary_hidden = n->primary_leaving = true;
    if (!dev->pending_deleted_event && !device_unplug(dev, &err)) {
        n->primary_hidden = n->primary_leaving = false;
        warn_report("%s: couldn't unplug primary device: %s", n->nc->name, err->message);
        return;
    }
    qapi_event_send_unplug_primary(json_member_string(n->primary_options, "id"));
}

static bool standby_unplugging(void *opaque, GError **errp)
{
    VirtIONet *n = opaque;
    DeviceState *dev = primary(n);

    if (dev && !dev->pending_deleted_event) {
        error_set(errp, "the primary device '%s' of '%s' was not given up by the guest", dev->id,
                  n->nc->name);
        return false;
    }
    return dev;
}

static bool is_primary(const VirtIONet *n, const char *id)
{
    return n->primary_options && !g_strcmp0(json_member_string(n->primary_options, "id"), id);
}

/* What leaves late, after the migration that it was to leave for has failed, comes back. */
static void standby_removed(void *opaque, const char *id)
{
    VirtIONet *n = opaque;

    if (n->primary_leaving && is_primary(n, id)) {
        n->primary_leaving = false;
        bh_schedule(n->failover_bh);
    }
}

static void standby_refused(void *opaque, const char *id)
{
    VirtIONet *n = opaque;

    if (is_primary(n, id)) {
        n->primary_leaving = false;
    }
}

static void standby_replug(void *opaque)
{
    VirtIONet *n = opaque;

    if (virtio_has_feature(&n->parent_obj, VIRTIO_NET_F_STANDBY)) {
        n->primary_hidden = false;
        bh_schedule(n->failover_bh);
    }
}

static const FailoverOps standby_ops = {
    .hide = standby_hide,
    .unplug = standby_unplug,
    .unplugging = standby_unplugging,
    .removed = standby_removed,
    .refused = standby_refused,
    .replug = standby_replug,
};

void virtio_net_failover_features(VirtIONet *n, VirtioFeatures features)
{
    if (!(features & VIRTIO_FEATURE(VIRTIO_NET_F_STANDBY))) {
        return;
    }
    qapi_event_send_failover_negotiated(n->nc->name);
    n->primary_hidden = false;
    bh_schedule(n->failover_bh); /* not from the middle of a register write */
}

void virtio_net_failover_init(VirtIONet *n)
{
    if (n->conf.failover) {
        n->primary_hidden = true;
        n->failover_bh = bh_new(event_loop_main(), plug, n);
        failover_add_standby(&standby_ops, n);
    }
}

void virtio_net_failover_cleanup(VirtIONet *n)
{
    failover_remove_standby(n);
    g_clear_pointer(&n->failover_bh, bh_delete);
    g_clear_pointer(&n->primary_options, json_object_put);
}
