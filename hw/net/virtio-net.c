/*
 * virtio-net: the device as a whole.  Realize and unrealize, configuration space, reset, start and
 * stop, link state, and the types that users name.
 *
 * Queues are receive (2i) and transmit (2i + 1) of each pair, then the control queue
 * (virtio-net-mq.c).  The pairs belong to one event loop (iothread=, else the main loop); the
 * control queue, configuration and everything in this file to the main thread, which reaches into
 * the pairs' loop with event_loop_run_sync().
 *
 * Not here: packets (-tx.c, -rx.c), who moves them (-vhost.c), when to send (-txpolicy.c), commands
 * (-ctrl.c), features (-offload.c), properties (-props.c), counters (-stats.c), which queues there
 * are (-mq.c).
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "hw/virtio/virtio-pci.h"
#include "util/error.h"

#define PCI_DEVICE_ID_VIRTIO_NET 0x1000 /* virtio 1.2, 4.1.2: transitional */
#define CLASS_NETWORK_ETHERNET   0x0200 /* PCI code and ID assignment, network controller */

G_DEFINE_TYPE(VirtIONet, virtio_net, TYPE_VIRTIO_DEVICE)

static const NetClientOps virtio_net_client_ops;
static void net_unrealize(VirtIODevice *vdev);

/* --- configuration space --- */

static uint16_t net_status(const VirtIONet *n)
{
    return (n->nc->link_down ? 0 : VIRTIO_NET_S_LINK_UP) |
           (n->ctrl.announce ? VIRTIO_NET_S_ANNOUNCE : 0);
}

static void net_get_config(VirtIODevice *vdev, uint8_t *config)
{
    VirtIONet *n = VIRTIO_NET(vdev);
    VirtIONetConfigLayout c = {
        .base =
            {
                .status = GUINT16_TO_LE(net_status(n)),
                .max_virtqueue_pairs = GUINT16_TO_LE(n->queue_pairs),
                .mtu = GUINT16_TO_LE(n->conf.mtu),
                .speed = GUINT32_TO_LE((uint32_t)n->conf.speed),
                .duplex = n->duplex,
                .rss_max_key_size = VIRTIO_NET_RSS_KEY_MAX,
                .rss_max_indirection_table_length = GUINT16_TO_LE(
                    virtio_host_has_feature(vdev, VIRTIO_NET_F_RSS) ? VIRTIO_NET_RSS_TABLE_MAX : 1),
                .supported_hash_types = GUINT32_TO_LE(virtio_net_hash_types(n)),
            },
        .supported_tunnel_types = GUINT32_TO_LE(VIRTIO_NET_HASH_TUNNELS),
    };

    memcpy(c.base.mac, n->ctrl.filter.mac, ETH_MAC_LEN);
    memcpy(config, &c, MIN(vdev->config_len, sizeof(c)));
}

/* Drivers before virtio 1.0 without the command may write the MAC address. */
static void net_set_config(VirtIODevice *vdev, const uint8_t *config)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    if (virtio_has_feature(vdev, VIRTIO_F_VERSION_1) ||
        virtio_has_feature(vdev, VIRTIO_NET_F_CTRL_MAC_ADDR) ||
        !memcmp(config, n->ctrl.filter.mac, ETH_MAC_LEN)) {
        return;
    }
    memcpy(n->ctrl.filter.mac, config, ETH_MAC_LEN);
    virtio_net_install_filter(n);
    virtio_net_update_info(n);
}

/* --- start, stop, reset: each runs in the pairs' loop, called from the main thread --- */

static void net_set_running(VirtIODevice *vdev, bool running)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    n->running = running;
    if (running) {
        virtio_net_path_start(n);
        virtio_net_ctrl_start(n);
    } else {
        virtio_net_path_stop(n);
    }
}

static void pairs_reset(void *opaque)
{
    VirtIONet *n = opaque;

    for (unsigned i = 0; i < n->queue_pairs; i++) {
        virtio_net_tx_reset(&n->queues[i]);
        virtio_net_rx_reset(&n->queues[i]);
    }
    virtio_net_apply_features(n, 0);
}

static void net_reset(VirtIODevice *vdev)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    if (!n->queues) {
        return; /* not realized yet */
    }
    bh_cancel(n->ctrl_bh);
    n->ctrl.announce = false;
    rx_filter_reset(&n->ctrl.filter, n->conf.mac);
    rx_filter_set_all_vlans(&n->ctrl.filter, true); /* until CTRL_VLAN is negotiated */
    virtio_net_install_filter(n);
    virtio_net_update_info(n);
    virtio_net_vhost_reset(n);
    event_loop_run_sync(n->loop, pairs_reset, n);
    virtio_net_reset_coalescing(n);
    virtio_net_reset_steering(n);
    virtio_net_arrange_queues(n, 0);
}

typedef struct FeatureChange {
    VirtIONet *n;
    VirtioFeatures features;
} FeatureChange;

static void pairs_set_features(void *opaque)
{
    FeatureChange *change = opaque;

    virtio_net_apply_features(change->n, change->features);
}

static void net_set_features(VirtIODevice *vdev, VirtioFeatures features)
{
    VirtIONet *n = VIRTIO_NET(vdev);
    bool vlan_filtering = features & VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_VLAN);

    rx_filter_set_all_vlans(&n->ctrl.filter, !vlan_filtering);
    virtio_net_install_filter(n);
    virtio_net_arrange_queues(n, features);
    event_loop_run_sync(n->loop, pairs_set_features, &(FeatureChange){n, features});
    virtio_net_failover_features(n, features);
}

/* One queue of a running device is reset or enabled (virtio 1.2, 2.6.1). */
typedef struct QueueChange {
    VirtIONet *n;
    unsigned index;
} QueueChange;

static void queue_reset(void *opaque)
{
    QueueChange *change = opaque;
    VirtIONetQueue *q = &change->n->queues[change->index / 2];

    if (change->index % 2) {
        virtio_net_tx_stop(q);
        virtio_net_tx_reset(q);
    } else {
        virtio_net_rx_reset(q);
    }
}

static void net_queue_reset(VirtIODevice *vdev, unsigned index)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    if (n->queues && index < 2 * n->present_pairs) {
        if (!virtio_net_vhost_queue_reset(n, index)) {
            event_loop_run_sync(n->loop, queue_reset, &(QueueChange){n, index});
        }
        virtio_net_coal_queue_reset(n, index);
    }
}

static void queue_enabled(void *opaque)
{
    QueueChange *change = opaque;
    VirtIONetQueue *q = &change->n->queues[change->index / 2];

    if (!q->running) {
        return;
    }
    if (change->index % 2) {
        if (q->enabled) {
            virtio_net_tx_start(q);
        }
    } else {
        virtio_net_rx_start(q);
    }
}

static void net_queue_enabled(VirtIODevice *vdev, unsigned index)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    if (n->queues && index < 2 * n->present_pairs && !virtio_net_vhost_queue_enabled(n, index)) {
        event_loop_run_sync(n->loop, queue_enabled, &(QueueChange){n, index});
    }
}

static EventLoop *net_queue_loop(VirtIODevice *vdev, unsigned index)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    return index < 2 * n->present_pairs ? n->loop : event_loop_main();
}

/* --- the NIC as its peer and the monitor see it --- */

static void nic_link_changed(NetClient *nc)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;
    VirtIONet *n = q->n;

    if (q->index == 0 && n->link_was_down != nc->link_down) {
        n->link_was_down = nc->link_down;
        virtio_notify_config(&n->parent_obj);
    }
    virtio_net_path_changed(n);
    /* Without a link or a peer nobody else will say that what stalled can go on. */
    virtio_net_tx_writable(nc);
}

static json_object *nic_query_rx_filter(NetClient *nc)
{
    VirtIONet *n = ((VirtIONetClient *)nc)->q->n;

    n->rx_filter_event = true;
    return rx_filter_info(&n->ctrl.filter, nc->name,
                          virtio_has_feature(&n->parent_obj, VIRTIO_NET_F_CTRL_VLAN));
}

static void nic_announce(NetClient *nc)
{
    VirtIONet *n = ((VirtIONetClient *)nc)->q->n;
    VirtIODevice *vdev = &n->parent_obj;

    if (virtio_has_feature(vdev, VIRTIO_NET_F_GUEST_ANNOUNCE) &&
        virtio_has_feature(vdev, VIRTIO_NET_F_CTRL_VQ)) {
        n->ctrl.announce = true;
        virtio_notify_config(vdev);
    }
}

static const NetClientOps virtio_net_client_ops = {
    .type = "nic",
    .instance_size = sizeof(VirtIONetClient),
    .receive_batch = virtio_net_receive_batch,
    .lend_buffers = virtio_net_lend_buffers,
    .receive_lent = virtio_net_receive_lent,
    .end_lending = virtio_net_end_lending,
    .can_receive = virtio_net_can_receive,
    .peer_writable = virtio_net_tx_writable,
    .link_changed = nic_link_changed,
    .query_rx_filter = nic_query_rx_filter,
    .announce = nic_announce,
};

void virtio_net_update_info(VirtIONet *n)
{
    const uint8_t *mac = n->ctrl.filter.mac;

    net_set_info(n->nc, "model=%s,macaddr=%02x:%02x:%02x:%02x:%02x:%02x", n->nc->model, mac[0],
                 mac[1], mac[2], mac[3], mac[4], mac[5]);
}

/* --- realize --- */

/* The queues of the netdev named by the user; *count stays 0 without one. */
static gboolean find_peers(VirtIONet *n, NetClient **peers, unsigned *count, GError **errp)
{
    NetClient *found[VIRTIO_NET_MAX_QUEUE_PAIRS + 1];
    const char *id = n->conf.netdev;

    *count = 0;
    if (!id) {
        return true;
    }

    unsigned queues = net_client_find_queues(id, found, G_N_ELEMENTS(found));

    if (!queues) {
        return error_set(errp, "Property 'virtio-net-device.netdev' can't find value '%s'", id);
    }
    if (queues > VIRTIO_NET_MAX_QUEUE_PAIRS) {
        return error_set(errp, "netdev '%s' has more than %u queues, which virtio-net cannot use",
                         id, VIRTIO_NET_MAX_QUEUE_PAIRS);
    }
    for (unsigned i = 0; i < queues; i++) {
        if (found[i]->peer) {
            return error_set(errp,
                             "Property 'virtio-net-device.netdev' can't take value '%s', "
                             "it's in use",
                             id);
        }
        peers[i] = found[i];
    }
    *count = queues;
    return true;
}

/* Moves the peers into the queues' loop, all or none. */
static gboolean move_peers(VirtIONet *n, NetClient **peers, unsigned count, GError **errp)
{
    for (unsigned i = 0; i < count; i++) {
        if (!net_client_set_loop(peers[i], n->loop, errp)) {
            while (i-- > 0) {
                net_client_set_loop(peers[i], event_loop_main(), NULL);
            }
            return false;
        }
    }
    return true;
}

/* The transport in whose name users know the device, or the device itself. */
static Object *net_front(VirtIONet *n)
{
    Object *parent = OBJECT(n)->parent;

    return parent && IS_DEVICE(parent) ? parent : OBJECT(n);
}

static void create_nic(VirtIONet *n, NetClient **peers, unsigned count)
{
    Object *front = net_front(n);
    NetClient *all[VIRTIO_NET_MAX_QUEUE_PAIRS] = {NULL};

    memcpy(all, peers, count * sizeof(*peers));
    n->nc = net_nic_new(&virtio_net_client_ops, all, n->queue_pairs, object_type_name(front),
                        DEVICE(front)->id);
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        NetClient *nc = net_client_queue(n->nc, i);

        ((VirtIONetClient *)nc)->q = &n->queues[i];
        n->queues[i].nc = nc;
        net_client_set_loop(nc, n->loop, NULL);
    }
    n->link_was_down = n->nc->link_down;
}

static void create_queues(VirtIONet *n)
{
    VirtIODevice *vdev = &n->parent_obj;

    n->queues = g_new0(VirtIONetQueue, n->queue_pairs);
    n->steering = g_new0(VirtIONetSteering, 1);
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        VirtIONetQueue *q = &n->queues[i];

        q->n = n;
        q->index = i;
        q->enabled = true; /* back ends start attached */
        q->rx_vq = virtio_add_queue(vdev, n->conf.rx_queue_size, virtio_net_rx_handler);
        q->tx_vq = virtio_add_queue(vdev, n->conf.tx_queue_size, virtio_net_tx_handler);
        virtio_net_rx_init(q);
        virtio_net_tx_init(q);
    }
    virtio_add_queue(vdev, VIRTIO_NET_CTRL_QUEUE_SIZE, virtio_net_ctrl_handler);
    virtio_net_ctrl_init(n);
}

static gboolean net_realize(VirtIODevice *vdev, GError **errp)
{
    VirtIONet *n = VIRTIO_NET(vdev);
    VirtIONetConf *conf = &n->conf;
    NetClient *peers[VIRTIO_NET_MAX_QUEUE_PAIRS] = {NULL};
    unsigned count;

    if (!virtio_net_check_conf(n, errp) || !find_peers(n, peers, &count, errp)) {
        return false;
    }
    n->loop = conf->iothread ? conf->iothread->loop : event_loop_main();
    if (!move_peers(n, peers, count, errp)) {
        return false;
    }
    if (conf->iothread) {
        conf->iothread->users++;
    }
    net_default_mac(conf->mac);
    n->queue_pairs = MAX(count, 1);
    vdev->config_len = virtio_net_config_length((VirtioFeatures)vdev->wanted_features[1] << 64 |
                                                vdev->wanted_features[0]);
    create_queues(n);
    create_nic(n, peers, count);
    virtio_net_failover_init(n);
    if (!virtio_net_vhost_init(n, errp)) {
        net_unrealize(vdev);
        return false;
    }
    net_reset(vdev);
    return true;
}

static void net_unrealize(VirtIODevice *vdev)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    virtio_net_failover_cleanup(n);
    virtio_net_vhost_cleanup(n);
    /* All queues of the back end are attached, as the next user expects. */
    n->ctrl.queue_pairs = (uint16_t)n->queue_pairs;
    virtio_net_install_steering(n);
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        NetClient *peer = n->queues[i].nc->peer;

        if (peer) {
            net_client_set_loop(peer, event_loop_main(), NULL);
        }
    }
    net_client_delete(n->nc);
    n->nc = NULL;
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        virtio_net_tx_cleanup(&n->queues[i]);
        virtio_net_rx_cleanup(&n->queues[i]);
    }
    bh_delete(n->ctrl_bh);
    for (unsigned i = 2 * n->queue_pairs + 1; i-- > 0;) {
        virtio_del_queue(vdev, i);
    }
    g_clear_pointer(&n->queues, g_free);
    g_clear_pointer(&n->steering, g_free);
    net_release_mac(n->conf.mac);
    if (n->conf.iothread) {
        n->conf.iothread->users--;
    }
}

/* --- types --- */

static void virtio_net_init(VirtIONet *n) {}

static void virtio_net_class_init(VirtIONetClass *klass)
{
    ObjectClass *oc = (ObjectClass *)klass;
    DeviceClass *dc = (DeviceClass *)klass;
    VirtIODeviceClass *vdc = &klass->parent_class;

    oc->qom_name = "virtio-net-device";
    oc->description = "Virtio network device";
    qom_class_set_props(klass, virtio_net_props);
    dc->category = CATEGORY_NETWORK;
    dc->vmsd = &vmstate_virtio_net;
    vdc->device_id = VIRTIO_ID_NET;
    vdc->legacy_features = VIRTIO_FEATURE(VIRTIO_NET_F_GSO);
    /* Drivers that accept everything, offered or not, predate all but these. */
    vdc->bad_driver_features =
        VIRTIO_FEATURE(VIRTIO_NET_F_MAC) | VIRTIO_FEATURE(VIRTIO_NET_F_CSUM) |
        VIRTIO_FEATURE(VIRTIO_NET_F_HOST_TSO4) | VIRTIO_FEATURE(VIRTIO_NET_F_HOST_TSO6) |
        VIRTIO_FEATURE(VIRTIO_NET_F_HOST_ECN);
    vdc->realize = net_realize;
    vdc->unrealize = net_unrealize;
    vdc->get_features = virtio_net_get_features;
    vdc->set_features = net_set_features;
    vdc->get_config = net_get_config;
    vdc->set_config = net_set_config;
    vdc->reset = net_reset;
    vdc->set_running = net_set_running;
    vdc->queue_reset = net_queue_reset;
    vdc->queue_enabled = net_queue_enabled;
    vdc->queue_loop = net_queue_loop;
    vdc->feature_names = virtio_net_feature_names;
}

static unsigned net_default_vectors(VirtIODevice *vdev)
{
    NetClient *queues[VIRTIO_NET_MAX_QUEUE_PAIRS];
    const char *id = VIRTIO_NET(vdev)->conf.netdev;
    unsigned pairs = id ? net_client_find_queues(id, queues, G_N_ELEMENTS(queues)) : 1;

    /* One for each queue of a pair, the control queue, and configuration. */
    return 2 * MAX(pairs, 1) + 2;
}

void virtio_net_register_types(void)
{
    static const VirtIOPCITypeInfo pci_info = {
        .base_name = "virtio-net-pci",
        .transitional_name = "virtio-net-pci-transitional",
        .non_transitional_name = "virtio-net-pci-non-transitional",
        .backend_type = virtio_net_get_type,
        .legacy_device_id = PCI_DEVICE_ID_VIRTIO_NET,
        .class_id = CLASS_NETWORK_ETHERNET,
        .category = CATEGORY_NETWORK,
        .description = "Virtio network card",
        .default_vectors = net_default_vectors,
    };

    qom_register_type(TYPE_VIRTIO_NET);
    virtio_pci_register_types(&pci_info);
    device_add_alias("virtio-net", "virtio-net-pci");
}
