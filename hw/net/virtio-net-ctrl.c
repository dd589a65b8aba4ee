/*
 * The control queue (virtio 1.2, 5.1.6.5): one handler a kind of command, found in a table by
 * class and command.
 *
 * A command works on a copy of what it may change; the copy replaces the original only if the
 * command is good, so a bad class, command, length or value is VIRTIO_NET_ERR and changes nothing.
 * The command's bytes are guest memory: each is read once, into a local.
 *
 * virtio_net_ctrl_execute() is pure; what a change means for the device (installing the filter
 * where frames are received, telling the peer, the QMP event) follows in the second half.  Runs in
 * the main thread.
 */
#include <stddef.h>
#include <string.h>

#include "hw/net/virtio-net-ctrl.h"
#include "util/iov.h"
#include "util/log.h"
#include "util/trace.h"

bool ctrl_read(CtrlData *data, void *buf, size_t bytes)
{
    if (data->left < bytes ||
        iov_to_buf(data->iov, data->iovcnt, data->offset, buf, bytes) != bytes) {
        return false;
    }
    data->offset += bytes;
    data->left -= bytes;
    return true;
}

bool ctrl_read_le16(CtrlData *data, uint16_t *value)
{
    if (!ctrl_read(data, value, sizeof(*value))) {
        return false;
    }
    *value = GUINT16_FROM_LE(*value);
    return true;
}

bool ctrl_read_le32(CtrlData *data, uint32_t *value)
{
    if (!ctrl_read(data, value, sizeof(*value))) {
        return false;
    }
    *value = GUINT32_FROM_LE(*value);
    return true;
}

bool ctrl_read_le64(CtrlData *data, uint64_t *value)
{
    if (!ctrl_read(data, value, sizeof(*value))) {
        return false;
    }
    *value = GUINT64_FROM_LE(*value);
    return true;
}

void virtio_net_ctrl_reply(VirtIONetCtrlReply *reply, const void *buf, size_t bytes)
{
    reply->offset += iov_from_buf(reply->iov, reply->iovcnt, reply->offset, buf, bytes);
}

static bool ctrl_rx_mode(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    uint8_t on;

    if (!ctrl_read(data, &on, 1) || on > 1) {
        return false;
    }
    *(bool *)((char *)&state->filter + command->field) = on;
    return true;
}

/* One list of addresses: {le32 entries, entries × 6 bytes}.  Its entries go behind those already
 * in the table; if they do not all fit, none does and *overflow is set. */
static bool ctrl_read_macs(RxFilter *filter, CtrlData *data, bool *overflow)
{
    uint32_t entries;

    if (!ctrl_read_le32(data, &entries) || entries > data->left / ETH_MAC_LEN) {
        return false;
    }
    *overflow = entries > RX_FILTER_MACS - filter->in_use;
    if (*overflow) {
        data->offset += (size_t)entries * ETH_MAC_LEN;
        data->left -= (size_t)entries * ETH_MAC_LEN;
        return true;
    }
    if (!ctrl_read(data, filter->macs[filter->in_use], (size_t)entries * ETH_MAC_LEN)) {
        return false;
    }
    filter->in_use += entries;
    return true;
}

static bool ctrl_mac_table(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    RxFilter *filter = &state->filter;

    filter->in_use = 0;
    memset(filter->macs, 0, sizeof(filter->macs));
    if (!ctrl_read_macs(filter, data, &filter->uni_overflow)) {
        return false;
    }
    filter->first_multi = filter->in_use;
    return ctrl_read_macs(filter, data, &filter->multi_overflow) && !data->left;
}

static bool ctrl_mac_addr(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    return ctrl_read(data, state->filter.mac, ETH_MAC_LEN);
}

static bool ctrl_vlan(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    uint16_t vid;

    if (!ctrl_read_le16(data, &vid) || vid >= RX_FILTER_VLANS) {
        return false;
    }
    rx_filter_set_vlan(&state->filter, vid, command->cmd == VIRTIO_NET_CTRL_VLAN_ADD);
    return true;
}

static bool ctrl_announce_ack(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    if (!state->announce) {
        return false;
    }
    state->announce = false;
    return true;
}

static bool ctrl_guest_offloads(VirtIONetCtrlState *state, const CtrlCommand *command,
                                CtrlData *data)
{
    uint64_t offloads;

    if (!ctrl_read_le64(data, &offloads) ||
        (offloads & ~virtio_net_guest_offloads(data->context->features))) {
        return false;
    }
    state->guest_offloads = offloads;
    return true;
}

#define CTRL_RX_MODE(NAME, member, needs)                                                          \
    {                                                                                              \
        .class = VIRTIO_NET_CTRL_RX, .cmd = VIRTIO_NET_CTRL_RX_##NAME,                             \
        .feature = VIRTIO_NET_F_CTRL_##needs, .length = 1, .run = ctrl_rx_mode,                    \
        .field = offsetof(RxFilter, member), .changes = VIRTIO_NET_CTRL_CHANGED_FILTER,            \
    }

static const CtrlCommand ctrl_commands[] = {
    CTRL_RX_MODE(PROMISC, promisc, RX),
    CTRL_RX_MODE(ALLMULTI, allmulti, RX),
    CTRL_RX_MODE(ALLUNI, alluni, RX_EXTRA),
    CTRL_RX_MODE(NOMULTI, nomulti, RX_EXTRA),
    CTRL_RX_MODE(NOUNI, nouni, RX_EXTRA),
    CTRL_RX_MODE(NOBCAST, nobcast, RX_EXTRA),
    {
        .class = VIRTIO_NET_CTRL_MAC,
        .cmd = VIRTIO_NET_CTRL_MAC_TABLE_SET,
        .feature = VIRTIO_NET_F_CTRL_RX,
        .any_length = true,
        .run = ctrl_mac_table,
        .changes = VIRTIO_NET_CTRL_CHANGED_FILTER,
    },
    {
        .class = VIRTIO_NET_CTRL_MAC,
        .cmd = VIRTIO_NET_CTRL_MAC_ADDR_SET,
        .feature = VIRTIO_NET_F_CTRL_MAC_ADDR,
        .length = ETH_MAC_LEN,
        .run = ctrl_mac_addr,
        .changes = VIRTIO_NET_CTRL_CHANGED_FILTER | VIRTIO_NET_CTRL_CHANGED_MAC,
    },
    {
        .class = VIRTIO_NET_CTRL_VLAN,
        .cmd = VIRTIO_NET_CTRL_VLAN_ADD,
        .feature = VIRTIO_NET_F_CTRL_VLAN,
        .length = 2,
        .run = ctrl_vlan,
        .changes = VIRTIO_NET_CTRL_CHANGED_FILTER,
    },
    {
        .class = VIRTIO_NET_CTRL_VLAN,
        .cmd = VIRTIO_NET_CTRL_VLAN_DEL,
        .feature = VIRTIO_NET_F_CTRL_VLAN,
        .length = 2,
        .run = ctrl_vlan,
        .changes = VIRTIO_NET_CTRL_CHANGED_FILTER,
    },
    {
        .class = VIRTIO_NET_CTRL_ANNOUNCE,
        .cmd = VIRTIO_NET_CTRL_ANNOUNCE_ACK,
        .feature = VIRTIO_NET_F_GUEST_ANNOUNCE,
        .run = ctrl_announce_ack,
        .changes = VIRTIO_NET_CTRL_CHANGED_ANNOUNCE,
    },
    {
        .class = VIRTIO_NET_CTRL_GUEST_OFFLOADS,
        .cmd = VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET,
        .feature = VIRTIO_NET_F_CTRL_GUEST_OFFLOADS,
        .length = 8,
        .run = ctrl_guest_offloads,
        .changes = VIRTIO_NET_CTRL_CHANGED_OFFLOADS,
    },
    {
        .class = VIRTIO_NET_CTRL_MQ,
        .cmd = VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
        .feature = VIRTIO_NET_F_MQ,
        .length = 2,
        .run = ctrl_mq_pairs,
        .changes = VIRTIO_NET_CTRL_CHANGED_STEERING,
    },
    {
        .class = VIRTIO_NET_CTRL_MQ,
        .cmd = VIRTIO_NET_CTRL_MQ_RSS_CONFIG,
        .feature = VIRTIO_NET_F_RSS,
        .any_length = true,
        .run = ctrl_mq_rss,
        .changes = VIRTIO_NET_CTRL_CHANGED_STEERING,
    },
    {
        .class = VIRTIO_NET_CTRL_MQ,
        .cmd = VIRTIO_NET_CTRL_MQ_HASH_CONFIG,
        .feature = VIRTIO_NET_F_HASH_REPORT,
        .any_length = true,
        .run = ctrl_mq_hash,
        .changes = VIRTIO_NET_CTRL_CHANGED_STEERING,
    },
    {
        .class = VIRTIO_NET_CTRL_HASH_TUNNEL,
        .cmd = VIRTIO_NET_CTRL_HASH_TUNNEL_SET,
        .feature = VIRTIO_NET_F_HASH_TUNNEL,
        .length = 4,
        .run = ctrl_hash_tunnel,
        .changes = VIRTIO_NET_CTRL_CHANGED_STEERING,
    },
    {
        .class = VIRTIO_NET_CTRL_NOTF_COAL,
        .cmd = VIRTIO_NET_CTRL_NOTF_COAL_TX_SET,
        .feature = VIRTIO_NET_F_NOTF_COAL,
        .length = 8,
        .run = ctrl_coal_all,
        .changes = VIRTIO_NET_CTRL_CHANGED_COALESCING,
    },
    {
        .class = VIRTIO_NET_CTRL_NOTF_COAL,
        .cmd = VIRTIO_NET_CTRL_NOTF_COAL_RX_SET,
        .feature = VIRTIO_NET_F_NOTF_COAL,
        .length = 8,
        .run = ctrl_coal_all,
        .changes = VIRTIO_NET_CTRL_CHANGED_COALESCING,
    },
    {
        .class = VIRTIO_NET_CTRL_NOTF_COAL,
        .cmd = VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET,
        .feature = VIRTIO_NET_F_VQ_NOTF_COAL,
        .length = 12,
        .run = ctrl_coal_vq_set,
        .changes = VIRTIO_NET_CTRL_CHANGED_COALESCING,
    },
    {
        .class = VIRTIO_NET_CTRL_NOTF_COAL,
        .cmd = VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET,
        .feature = VIRTIO_NET_F_VQ_NOTF_COAL,
        .length = 4,
        .answer = 8,
        .run = ctrl_coal_vq_get,
    },
    {
        .class = VIRTIO_NET_CTRL_STATS,
        .cmd = VIRTIO_NET_CTRL_STATS_QUERY,
        .feature = VIRTIO_NET_F_DEVICE_STATS,
        .run = ctrl_stats_query,
    },
    {
        .class = VIRTIO_NET_CTRL_STATS,
        .cmd = VIRTIO_NET_CTRL_STATS_GET,
        .feature = VIRTIO_NET_F_DEVICE_STATS,
        .any_length = true,
        .run = ctrl_stats_get,
    },
};

static const CtrlCommand *ctrl_find(const struct virtio_net_ctrl_hdr *hdr, VirtioFeatures features)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(ctrl_commands); i++) {
        const CtrlCommand *command = &ctrl_commands[i];

        if (command->class == hdr->class && command->cmd == hdr->cmd) {
            return features & VIRTIO_FEATURE(command->feature) ? command : NULL;
        }
    }
    return NULL;
}

uint8_t virtio_net_ctrl_execute(VirtIONetCtrlState *state, const VirtIONetCtrlContext *context,
                                const struct iovec *iov, unsigned iovcnt, VirtIONetCtrlReply *reply,
                                unsigned *changed)
{
    CtrlData data = {iov, iovcnt, 0, iov_size(iov, iovcnt), context, reply};
    struct virtio_net_ctrl_hdr hdr;
    VirtIONetCtrlState next = *state;

    *changed = 0;
    reply->ack_at = 0;
    reply->end = 1;
    if (!ctrl_read(&data, &hdr, sizeof(hdr))) {
        return VIRTIO_NET_ERR;
    }

    const CtrlCommand *command = ctrl_find(&hdr, context->features);

    if (!command) {
        return VIRTIO_NET_ERR;
    }
    reply->ack_at = MIN(command->answer, reply->size - 1);
    reply->offset = command->answer ? 0 : 1;
    reply->end = reply->ack_at + 1;
    if (reply->size <= command->answer || (!command->any_length && data.left != command->length) ||
        !command->run(&next, command, &data)) {
        return VIRTIO_NET_ERR;
    }
    *state = next;
    reply->end = MAX(reply->end, reply->offset);
    *changed = command->changes;
    return VIRTIO_NET_OK;
}

/* --- what follows from a command --- */

void (*virtio_net_rx_filter_changed_hook)(const char *name, const char *path);

static void install_filter(void *opaque)
{
    VirtIONet *n = opaque;

    n->rx_filter = n->ctrl.filter;
}

void virtio_net_install_filter(VirtIONet *n)
{
    event_loop_run_sync(n->loop, install_filter, n);
}

/* The device's own id, or that of the transport which carries it. */
static const char *device_user_id(VirtIONet *n)
{
    Object *parent = OBJECT(n)->parent;
    const char *id = DEVICE(n)->id;

    return id || !parent || !IS_DEVICE(parent) ? id : DEVICE(parent)->id;
}

/* Tells that the filter changed, once until somebody has read it: a guest that changes it in a
 * loop does not flood anyone. */
static void send_rx_filter_event(VirtIONet *n)
{
    if (!n->rx_filter_event || !virtio_net_rx_filter_changed_hook) {
        return;
    }
    n->rx_filter_event = false;

    g_autofree char *path = object_canonical_path(OBJECT(n));

    virtio_net_rx_filter_changed_hook(device_user_id(n), path);
}

static void apply_offloads(void *opaque)
{
    VirtIONet *n = opaque;

    /* Large frames that were made for the driver go before it stops taking any. */
    for (unsigned i = 0; i < n->present_pairs; i++) {
        VirtIONetQueue *q = &n->queues[i];

        if (q->rsc && q->running && virtqueue_ready(q->rx_vq)) {
            virtio_net_rsc_resume(q);
        }
    }
    virtio_net_apply_offloads(n);
}

/* Makes the device do what n->ctrl says.  False: it cannot. */
static bool ctrl_apply(VirtIONet *n, unsigned changed)
{
    if ((changed & VIRTIO_NET_CTRL_CHANGED_STEERING) && !virtio_net_install_steering(n)) {
        return false;
    }
    if (changed & VIRTIO_NET_CTRL_CHANGED_FILTER) {
        virtio_net_install_filter(n);
        send_rx_filter_event(n);
    }
    if (changed & VIRTIO_NET_CTRL_CHANGED_MAC) {
        virtio_net_update_info(n);
    }
    if (changed & VIRTIO_NET_CTRL_CHANGED_OFFLOADS) {
        event_loop_run_sync(n->loop, apply_offloads, n);
        virtio_net_vhost_offloads_changed(n);
    }
    if (changed & VIRTIO_NET_CTRL_CHANGED_COALESCING) {
        virtio_net_install_coalescing(n);
    }
    return true;
}

/* Executes and applies; a command that cannot be applied leaves things as they were. */
static uint8_t ctrl_do(VirtIONet *n, const struct iovec *iov, unsigned iovcnt,
                       VirtIONetCtrlReply *reply)
{
    VirtIONetCtrlContext context;
    VirtIONetCtrlState before = n->ctrl;
    unsigned changed;
    uint8_t ack;

    virtio_net_ctrl_context(n, &context);
    ack = virtio_net_ctrl_execute(&n->ctrl, &context, iov, iovcnt, reply, &changed);
    if (ack == VIRTIO_NET_OK && !ctrl_apply(n, changed)) {
        n->ctrl = before;
        ctrl_apply(n, changed);
        ack = VIRTIO_NET_ERR;
    }
    struct virtio_net_ctrl_hdr hdr = {0};
    iov_to_buf(iov, iovcnt, 0, &hdr, sizeof(hdr));
    trace_virtio_net_ctrl(hdr.class, hdr.cmd, ack);
    return ack;
}

/* Runs one chain's command; returns the bytes written for the driver. */
static uint32_t ctrl_run(VirtIONet *n, VirtQueueElement *elem)
{
    VirtIONetCtrlReply reply = {
        .iov = virtqueue_in_sg(elem), .iovcnt = elem->in_num, .size = elem->in_size};
    uint8_t ack;

    n->ctrl_commands++;
    if (!reply.size) {
        guest_error("virtio-net: control command has no room for its answer");
        n->ctrl_errors++;
        return 0;
    }
    ack = ctrl_do(n, elem->sg, elem->out_num, &reply);
    n->ctrl_errors += ack != VIRTIO_NET_OK;
    iov_from_buf(reply.iov, reply.iovcnt, reply.ack_at, &ack, sizeof(ack));
    return (uint32_t)reply.end;
}

static void ctrl_run_all(void *opaque)
{
    VirtIONet *n = opaque;
    VirtQueueElement *elem;

    if (!n->running || !virtqueue_ready(n->ctrl_vq)) {
        return;
    }
    virtqueue_disable_notify(n->ctrl_vq);
    do {
        while (n->running && virtqueue_pop_batch(n->ctrl_vq, &elem, 1)) {
            virtqueue_fill(n->ctrl_vq, elem, ctrl_run(n, elem), 0);
            virtqueue_flush(n->ctrl_vq, 1);
            virtio_notify(&n->parent_obj, n->ctrl_vq);
        }
    } while (n->running && virtqueue_enable_notify(n->ctrl_vq));
}

void virtio_net_ctrl_handler(VirtIODevice *vdev, VirtQueue *vq)
{
    VirtIONet *n = VIRTIO_NET(vdev);

    n->ctrl_notifications++;
    ctrl_run_all(n);
}

void virtio_net_ctrl_start(VirtIONet *n)
{
    /* Commands published while the device stood still; not from within the start itself. */
    bh_schedule(n->ctrl_bh);
}

void virtio_net_ctrl_init(VirtIONet *n)
{
    n->ctrl_bh = bh_new(event_loop_main(), ctrl_run_all, n);
}
