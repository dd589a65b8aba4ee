/*
 * virtio-net on vhost: which way packets go, the device's own (-tx.c, -rx.c) or a vhost back end's,
 * and changing from one to the other.
 *
 * A back end is used while the device runs, its link is up, all its connections are there, and the
 * driver uses MSI-X (or force).  Otherwise the device's own engines run, except where the peer has
 * no way of its own (vhost-user): then the rings wait, and the driver sees the link down.  What
 * decides can change at any time (link, connection, netdev deleted); update_path() knows no
 * history and brings the device to where it should be, from a bottom half in the main loop.
 *
 * The control queue always is the device's.  Receive filters are not applied on this path: the back
 * end's switch knows the guest's address.
 */
#include <linux/vhost_types.h>

#include "hw/net/virtio-net-internal.h"
#include "util/error.h"

/* A feature that a back end must have, or it is not offered. */
typedef struct VhostFeature {
    unsigned bit;
    const char *property; /* NULL: nobody asks for it by name */
    bool of_frames;       /* only where the back end, not a tap below, makes and takes frames */
} VhostFeature;

static const VhostFeature vhost_features[] = {
    {VIRTIO_F_NOTIFY_ON_EMPTY, NULL},
    {VIRTIO_F_ANY_LAYOUT, NULL, true},
    {VIRTIO_RING_F_INDIRECT_DESC, "indirect_desc"},
    {VIRTIO_RING_F_EVENT_IDX, "event_idx"},
    {VIRTIO_F_VERSION_1, NULL},
    {VIRTIO_F_RING_PACKED, "packed"},
    {VIRTIO_F_IN_ORDER, "in_order"},
    {VIRTIO_F_NOTIFICATION_DATA, "notification_data"},
    {VIRTIO_F_RING_RESET, "queue_reset"},
    {VIRTIO_NET_F_MRG_RXBUF, "mrg_rxbuf"},
    {VIRTIO_NET_F_HASH_REPORT, "hash"},
    {VIRTIO_NET_F_RSS, "rss"},
    {VIRTIO_NET_F_RSC_EXT, "guest_rsc_ext"},
    {VIRTIO_NET_F_NOTF_COAL, "notf_coal"},
    {VIRTIO_NET_F_VQ_NOTF_COAL, "vq_notf_coal"},
    {VIRTIO_NET_F_DEVICE_STATS, "device_stats"},
    {VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO, "host_tunnel"},
    {VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM, "host_tunnel_csum"},
    {VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO, "guest_tunnel"},
    {VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM, "guest_tunnel_csum"},
    {VIRTIO_NET_F_MTU, NULL},
    {VIRTIO_NET_F_CSUM, "csum", true},
    {VIRTIO_NET_F_GUEST_CSUM, "guest_csum", true},
    {VIRTIO_NET_F_GSO, "gso", true},
    {VIRTIO_NET_F_GUEST_TSO4, "guest_tso4", true},
    {VIRTIO_NET_F_GUEST_TSO6, "guest_tso6", true},
    {VIRTIO_NET_F_GUEST_ECN, "guest_ecn", true},
    {VIRTIO_NET_F_GUEST_UFO, "guest_ufo", true},
    {VIRTIO_NET_F_GUEST_USO4, "guest_uso4", true},
    {VIRTIO_NET_F_GUEST_USO6, "guest_uso6", true},
    {VIRTIO_NET_F_HOST_TSO4, "host_tso4", true},
    {VIRTIO_NET_F_HOST_TSO6, "host_tso6", true},
    {VIRTIO_NET_F_HOST_ECN, "host_ecn", true},
    {VIRTIO_NET_F_HOST_UFO, "host_ufo", true},
    {VIRTIO_NET_F_HOST_USO, "host_uso", true},
    {VIRTIO_NET_F_MQ, "mq", true},
    /* Also says that the front end need not ask for RARP frames. */
    {VIRTIO_NET_F_GUEST_ANNOUNCE, "guest_announce", true},
};

static VhostBackend *peer_backend(VirtIONetQueue *q)
{
    NetClient *peer = q->nc->peer;

    return peer && peer->ops->get_vhost ? peer->ops->get_vhost(peer) : NULL;
}

/* No other way leads to the peer. */
static bool vhost_only(const VirtIONet *n)
{
    return n->num_vhosts && vhost_dev_backend(n->vhosts[0])->ops->handles_frames;
}

/* --- features --- */

VirtioFeatures virtio_net_vhost_features(VirtIONet *n, VirtioFeatures features, GError **errp)
{
    VirtioFeatures offered = features;
    uint64_t required = 0;

    if (!n->num_vhosts) {
        return features;
    }

    VhostBackend *b = vhost_dev_backend(n->vhosts[0]);

    for (unsigned i = 0; i < G_N_ELEMENTS(vhost_features); i++) {
        const VhostFeature *f = &vhost_features[i];
        VirtioFeatures bit = VIRTIO_FEATURE(f->bit);

        if ((f->of_frames && !b->ops->handles_frames) || !(offered & bit) ||
            (f->bit == VIRTIO_NET_F_MTU && n->conf.mtu_bypass_backend)) {
            continue;
        }
        if (b->features & (uint64_t)bit) {
            required |= (uint64_t)bit;
            continue;
        }
        if (f->property && property_was_set(OBJECT(n), f->property)) {
            error_set(errp, "%s=on is not possible: the %s back end of netdev '%s' lacks it",
                      f->property, b->ops->kind, b->name);
            return offered;
        }
        offered &= ~bit;
    }
    for (unsigned i = 0; i < n->num_vhosts; i++) {
        vhost_dev_backend(n->vhosts[i])->required = required;
    }
    /* Without VERSION_1 there are no bits past 31. */
    return offered & VIRTIO_FEATURE(VIRTIO_F_VERSION_1) ? offered : offered & UINT32_MAX;
}

/* --- starting and stopping either way --- */

static void pairs_start(void *opaque)
{
    VirtIONet *n = opaque;

    /* All run before the first receives: a frame may go to any of them. */
    for (unsigned i = 0; i < n->present_pairs; i++) {
        n->queues[i].running = true;
    }
    for (unsigned i = 0; i < n->present_pairs; i++) {
        if (n->queues[i].enabled) {
            virtio_net_tx_start(&n->queues[i]);
        }
        virtio_net_rx_start(&n->queues[i]);
    }
}

static void pairs_stop(void *opaque)
{
    VirtIONet *n = opaque;

    for (unsigned i = 0; i < n->present_pairs; i++) {
        if (n->queues[i].rsc && virtqueue_ready(n->queues[i].rx_vq)) {
            virtio_net_rsc_resume(&n->queues[i]); /* what is not kept cannot be lost */
        }
    }
    for (unsigned i = 0; i < n->present_pairs; i++) {
        n->queues[i].running = false;
        virtio_net_tx_stop(&n->queues[i]);
        virtio_net_rx_stop(&n->queues[i]);
    }
}

/* What the engines hold is still available to whoever comes next. */
static void pairs_forget(void *opaque)
{
    VirtIONet *n = opaque;

    for (unsigned i = 0; i < n->queue_pairs; i++) {
        virtio_net_tx_reset(&n->queues[i]);
        virtio_net_rx_reset(&n->queues[i]);
    }
}

static bool connected(const VirtIONet *n)
{
    for (unsigned i = 0; i < n->num_vhosts; i++) {
        if (!vhost_dev_backend(n->vhosts[i])->connected) {
            return false;
        }
    }
    return n->num_vhosts > 0;
}

static bool interrupts_suit(const VirtIONet *n)
{
    const VirtioTransportOps *transport = n->parent_obj.transport;

    return vhost_dev_backend(n->vhosts[0])->force || !transport->has_msix ||
           transport->has_msix(n->parent_obj.transport_opaque);
}

static bool wants_vhost(const VirtIONet *n)
{
    return n->running && !n->vhost_failed && !n->nc->link_down && connected(n) &&
           interrupts_suit(n);
}

static bool lost(const VirtIONet *n)
{
    for (unsigned i = 0; i < n->num_vhosts; i++) {
        if (vhost_dev_lost(n->vhosts[i])) {
            return true;
        }
    }
    return false;
}

static void vhosts_stop(VirtIONet *n)
{
    for (unsigned i = 0; i < n->num_vhosts; i++) {
        vhost_dev_stop(n->vhosts[i]);
    }
}

/* GUEST_* bits that the driver has switched off since it accepted them.  (Offloads of more than 64
 * bits have other places, but are never offered here.) */
static uint64_t offloads_off(const VirtIONet *n)
{
    return virtio_net_guest_offloads(n->parent_obj.guest_features) & ~n->ctrl.guest_offloads;
}

static gboolean vhosts_start(VirtIONet *n, GError **errp)
{
    NetCaps caps;

    net_peer_caps(n->nc, &caps);
    for (unsigned i = 0; i < n->num_vhosts; i++) {
        VhostDev *dev = n->vhosts[i];

        vhost_dev_set_features(dev, caps.vnet_hdr ? 0 : UINT64_C(1) << VHOST_NET_F_VIRTIO_NET_HDR,
                               offloads_off(n));
        vhost_dev_set_mtu(dev,
                          virtio_has_feature(&n->parent_obj, VIRTIO_NET_F_MTU) ? n->conf.mtu : 0);
        vhost_dev_set_limit(dev, 2 * n->present_pairs);
        vhost_dev_enable_pairs(dev, n->ctrl.queue_pairs, NULL);
        if (!vhost_dev_start(dev, errp)) {
            vhosts_stop(n);
            return false;
        }
    }
    return true;
}

void virtio_net_path_start(VirtIONet *n)
{
    g_autoptr(GError) err = NULL;

    if (wants_vhost(n)) {
        event_loop_run_sync(n->loop, pairs_forget, n);
        if (vhosts_start(n, &err)) {
            n->path = VIRTIO_NET_PATH_VHOST;
            n->vhost_used = true;
            return;
        }
        /* Until something changes: another connection, another driver. */
        n->vhost_failed = true;
        warn_report("%s; %s", err->message,
                    vhost_only(n) ? "no packets move" : "falling back to the device's own way");
    }
    if (!vhost_only(n)) {
        n->path = VIRTIO_NET_PATH_OWN;
        event_loop_run_sync(n->loop, pairs_start, n);
    }
}

void virtio_net_path_stop(VirtIONet *n)
{
    if (n->path == VIRTIO_NET_PATH_OWN) {
        event_loop_run_sync(n->loop, pairs_stop, n);
    } else if (n->path == VIRTIO_NET_PATH_VHOST) {
        vhosts_stop(n);
    }
    n->path = VIRTIO_NET_PATH_NONE;
}

static void path_restart(VirtIONet *n)
{
    virtio_pause_notifications(&n->parent_obj);
    virtio_net_path_stop(n);
    virtio_net_path_start(n);
    virtio_resume_notifications(&n->parent_obj);
}

static void update_path(void *opaque)
{
    VirtIONet *n = opaque;
    bool on_vhost = n->path == VIRTIO_NET_PATH_VHOST;
    bool waits = n->path == VIRTIO_NET_PATH_NONE && !vhost_only(n);

    if (n->running && (on_vhost ? lost(n) || !wants_vhost(n) : wants_vhost(n) || waits)) {
        path_restart(n);
    }
}

void virtio_net_path_changed(VirtIONet *n)
{
    if (n->path_bh) {
        bh_schedule(n->path_bh);
    }
}

void virtio_net_vhost_offloads_changed(VirtIONet *n)
{
    if (n->path == VIRTIO_NET_PATH_VHOST && vhost_only(n)) {
        path_restart(n); /* back ends take new features only when they stand still */
    }
}

bool virtio_net_vhost_enable_pairs(VirtIONet *n)
{
    g_autoptr(GError) err = NULL;

    for (unsigned i = 0; i < n->num_vhosts; i++) {
        if (!vhost_dev_enable_pairs(n->vhosts[i], n->ctrl.queue_pairs, &err)) {
            warn_report("%s", err->message);
            return false;
        }
    }
    return true;
}

void virtio_net_vhost_reset(VirtIONet *n)
{
    n->vhost_failed = false;
    for (unsigned i = 0; n->vhost_used && i < n->num_vhosts; i++) {
        vhost_dev_reset(n->vhosts[i]);
    }
    n->vhost_used = false;
}

bool virtio_net_vhost_queue_reset(VirtIONet *n, unsigned index)
{
    for (unsigned i = 0; n->path == VIRTIO_NET_PATH_VHOST && i < n->num_vhosts; i++) {
        vhost_dev_stop_queue(n->vhosts[i], index);
    }
    return n->path == VIRTIO_NET_PATH_VHOST;
}

bool virtio_net_vhost_queue_enabled(VirtIONet *n, unsigned index)
{
    g_autoptr(GError) err = NULL;

    for (unsigned i = 0; n->path == VIRTIO_NET_PATH_VHOST && i < n->num_vhosts; i++) {
        if (!vhost_dev_start_queue(n->vhosts[i], index, &err)) {
            warn_report("%s; queue %u does not run", err->message, index);
            break;
        }
    }
    return n->path == VIRTIO_NET_PATH_VHOST;
}

/* --- life --- */

static void backend_changed(void *opaque)
{
    VirtIONet *n = opaque;

    n->vhost_failed = false;
    virtio_net_path_changed(n);
}

static void forget_vhosts(VirtIONet *n)
{
    for (unsigned i = 0; i < n->num_vhosts; i++) {
        vhost_backend_set_listener(vhost_dev_backend(n->vhosts[i]), NULL);
        vhost_dev_free(n->vhosts[i]);
    }
    n->num_vhosts = 0;
}

/* The netdev is being deleted. */
static void backend_gone(void *opaque)
{
    VirtIONet *n = opaque;

    if (n->path == VIRTIO_NET_PATH_VHOST) {
        virtio_pause_notifications(&n->parent_obj);
        virtio_net_path_stop(n);
        virtio_resume_notifications(&n->parent_obj);
    }
    forget_vhosts(n);
    virtio_net_path_changed(n); /* when it is gone: without a peer, by the device's own way */
}

/* Memory that nobody else can map is a mistake of the user's, better told before the guest runs. */
static gboolean check_memory(VirtIONet *n, const VhostBackend *b, GError **errp)
{
    const MemoryMap *map = n->parent_obj.dma->map;

    if (!b->ops->needs_shared_memory || !map->count) {
        return true;
    }
    for (unsigned i = 0; i < map->count; i++) {
        if (map->ranges[i].fd >= 0) {
            return true;
        }
    }
    return error_set(errp,
                     "netdev '%s': %s needs guest memory that can be shared: use -object "
                     "memory-backend-memfd,id=m,size=SIZE,share=on and -machine memory-backend=m",
                     b->name, b->ops->kind);
}

gboolean virtio_net_vhost_init(VirtIONet *n, GError **errp)
{
    VhostListener listener = {.changed = backend_changed, .gone = backend_gone, .opaque = n};
    VhostBackend *last = NULL;

    n->path_bh = bh_new(event_loop_main(), update_path, n);
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        VhostBackend *b = peer_backend(&n->queues[i]);

        if (!b || b == last) {
            continue;
        }
        last = b;
        if (!check_memory(n, b, errp)) {
            virtio_net_vhost_cleanup(n);
            return false;
        }
        vhost_backend_set_listener(b, &listener);
        n->vhosts[n->num_vhosts++] = vhost_dev_new(&n->parent_obj, b, 2 * i);
    }
    return true;
}

void virtio_net_vhost_cleanup(VirtIONet *n)
{
    for (unsigned i = 0; i < n->num_vhosts; i++) {
        vhost_dev_backend(n->vhosts[i])->required = 0;
    }
    forget_vhosts(n);
    g_clear_pointer(&n->path_bh, bh_delete);
}
