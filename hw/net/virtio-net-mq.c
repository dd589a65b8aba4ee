/*
 * Queue pairs: which there are for the driver, which are in use, and to which a received frame
 * goes.
 *
 * A device has as many pairs as its back end has queues.  Without MQ or RSS the driver sees one,
 * and queue 2 is the control queue; with one of them it sees all, and the control queue is the
 * last.  Of those it sees, the first ctrl.queue_pairs are in use: their back ends are attached.
 *
 * A frame arrives at the pair of the back end's queue that it came from (a tap's kernel queues
 * learn flows from what is sent).  With RSS the indirection table then decides
 * (virtio-net-rx.c asks virtio_net_steer()).
 *
 * Changes come from the control queue, in the main thread; packets read copies of their own, which
 * are replaced in the queues' loop.
 */
#include "hw/net/virtio-net-internal.h"
#include "util/error.h"

#define ALL_HASH_TYPES 0x1ffu /* VIRTIO_NET_RSS_HASH_TYPE_* */

static bool is_multiqueue(VirtioFeatures features)
{
    return features & (VIRTIO_FEATURE(VIRTIO_NET_F_MQ) | VIRTIO_FEATURE(VIRTIO_NET_F_RSS));
}

void virtio_net_arrange_queues(VirtIONet *n, VirtioFeatures features)
{
    VirtIODevice *vdev = &n->parent_obj;
    unsigned ctrl, last = 2 * n->queue_pairs;

    n->present_pairs = is_multiqueue(features) ? n->queue_pairs : 1;
    ctrl = 2 * n->present_pairs;
    for (unsigned i = 2; i <= last; i++) {
        if (i == ctrl) {
            virtio_set_queue_role(vdev, i, VIRTIO_NET_CTRL_QUEUE_SIZE, virtio_net_ctrl_handler);
        } else if (i > ctrl) {
            virtio_set_queue_role(vdev, i, 0, NULL);
        } else if (i % 2) {
            virtio_set_queue_role(vdev, i, n->conf.tx_queue_size, virtio_net_tx_handler);
        } else {
            virtio_set_queue_role(vdev, i, n->conf.rx_queue_size, virtio_net_rx_handler);
        }
    }
    n->ctrl_vq = virtio_queue(vdev, ctrl)->vq;
}

VirtIONetQueueRole virtio_net_queue_role(const VirtIONet *n, unsigned index)
{
    if (index < 2 * n->present_pairs) {
        return index % 2 ? VIRTIO_NET_QUEUE_TX : VIRTIO_NET_QUEUE_RX;
    }
    return index == 2 * n->present_pairs ? VIRTIO_NET_QUEUE_CTRL : VIRTIO_NET_QUEUE_NONE;
}

uint32_t virtio_net_hash_types(const VirtIONet *n)
{
    uint32_t types = ALL_HASH_TYPES;

    for (unsigned i = 0; i < G_N_ELEMENTS(n->conf.hash); i++) {
        if (n->conf.hash[i] == ON_OFF_AUTO_OFF) {
            types &= ~(1u << i);
        }
    }
    return types;
}

/* --- which pairs are in use --- */

static bool attach_peer(VirtIONetQueue *q, bool enabled)
{
    NetClient *peer = q->nc->peer;
    GError *err = NULL;

    if (q->enabled == enabled) {
        return true;
    }
    if (peer && peer->ops->set_enabled && !peer->ops->set_enabled(peer, enabled, &err)) {
        warn_report("virtio-net: queue pair %u: %s", q->index,
                    err ? err->message : "the back end refuses");
        g_clear_error(&err);
        return false;
    }
    q->enabled = enabled;
    return true;
}

/* Attaches the first @pairs back ends, all or none. */
static bool attach_peers(VirtIONet *n, unsigned pairs)
{
    bool before[VIRTIO_NET_MAX_QUEUE_PAIRS];

    for (unsigned i = 0; i < n->queue_pairs; i++) {
        before[i] = n->queues[i].enabled;
        if (!attach_peer(&n->queues[i], i < pairs)) {
            while (i-- > 0) {
                attach_peer(&n->queues[i], before[i]);
            }
            return false;
        }
    }
    return true;
}

/* After a change: pairs begin to send or stop, and whoever waits looks again. */
static void update_pairs(VirtIONet *n)
{
    for (unsigned i = 0; i < n->present_pairs; i++) {
        VirtIONetQueue *q = &n->queues[i];

        q->rx_waits_for = NULL;
        if (!q->running) {
            continue;
        }
        if (!q->enabled) {
            virtio_net_tx_stop(q);
        } else if (!q->tx.running) {
            virtio_net_tx_start(q);
        }
        virtio_net_rx_start(q);
    }
}

typedef struct SteeringChange {
    VirtIONet *n;
    bool always; /* also if back ends stay attached that should not be */
    bool ok;
} SteeringChange;

static void install_steering(void *opaque)
{
    SteeringChange *change = opaque;
    VirtIONet *n = change->n;
    VirtIONetSteering *steering = n->steering;

    change->ok = attach_peers(n, n->ctrl.queue_pairs);
    if (!change->ok && !change->always) {
        return;
    }
    steering->rss = n->ctrl.rss;
    steering->hash_tunnels = n->ctrl.hash_tunnels;
    toeplitz_init(&steering->toeplitz, steering->rss.key, steering->rss.key_len);
    update_pairs(n);
}

bool virtio_net_install_steering(VirtIONet *n)
{
    SteeringChange change = {.n = n};

    event_loop_run_sync(n->loop, install_steering, &change);
    return change.ok && virtio_net_vhost_enable_pairs(n);
}

void virtio_net_reset_steering(VirtIONet *n)
{
    n->ctrl.queue_pairs = 1;
    n->ctrl.rss = (VirtIONetRss){0};
    n->ctrl.hash_tunnels = 0;
    event_loop_run_sync(n->loop, install_steering, &(SteeringChange){.n = n, .always = true});
}

/* --- where a frame goes --- */

VirtIONetQueue *virtio_net_steer(VirtIONetQueue *q, const uint8_t *head, size_t size,
                                 uint32_t *hash, unsigned *report)
{
    VirtIONet *n = q->n;
    const VirtIONetSteering *steering = n->steering;
    const VirtIONetRss *rss = &steering->rss;

    *hash = 0;
    *report = VIRTIO_NET_HASH_REPORT_NONE;
    if (rss->hash_types) {
        *report = frame_hash(&steering->toeplitz, rss->hash_types, steering->hash_tunnels, head,
                             size, hash);
    }
    if (!rss->redirect) {
        return q;
    }
    if (*report == VIRTIO_NET_HASH_REPORT_NONE) {
        return &n->queues[rss->unclassified];
    }
    return &n->queues[rss->table[*hash & (rss->table_len - 1u)]];
}

/* --- what commands may know --- */

static bool queue_enabled(void *opaque, unsigned index)
{
    VirtIONet *n = opaque;
    VirtIONetQueueRole role = virtio_net_queue_role(n, index);
    VirtioQueue *queue = virtio_queue(&n->parent_obj, index);

    return (role == VIRTIO_NET_QUEUE_RX || role == VIRTIO_NET_QUEUE_TX) && queue && queue->enabled;
}

static VirtIONetQueueRole queue_role(void *opaque, unsigned index)
{
    return virtio_net_queue_role(opaque, index);
}

static void queue_counters(void *opaque, unsigned index, unsigned type, uint64_t *counters)
{
    virtio_net_device_stats(opaque, index, type, counters);
}

void virtio_net_ctrl_context(VirtIONet *n, VirtIONetCtrlContext *context)
{
    *context = (VirtIONetCtrlContext){
        .features = n->parent_obj.guest_features,
        .max_pairs = n->present_pairs,
        .hash_types = virtio_net_hash_types(n),
        .queue_enabled = queue_enabled,
        .queue_role = queue_role,
        .queue_counters = queue_counters,
        .opaque = n,
    };
}
