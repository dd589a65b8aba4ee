/*
 * Migration of virtio-net: section "virtio-net", version 11, as QEMU reads and writes it.
 *
 * The section is what all virtio devices have, then the fields here ("virtio-net-device"), then the
 * subsections of "virtio".  What the receive filter, the offloads and the transmit policies make of
 * it is put in place in their own thread.  tx_waiting says that a flush is due: whatever policy
 * this device has arms what it flushes by, from now on, when it starts.
 */
#include <inttypes.h>
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "hw/virtio/virtio-vmstate.h"
#include "util/error.h"

#define SAVED_VERSION   11
#define SAVED_PAIRS_MAX (VIRTIO_QUEUE_MAX / 2)
#define MACS_LIMIT      4096 /* a larger table than ours is skipped; one like this is nonsense */

typedef struct VirtIONetSaved {
    VirtioSaved virtio;
    uint8_t mac[ETH_MAC_LEN];
    uint32_t tx_waiting[SAVED_PAIRS_MAX];
    uint32_t mergeable_rx_bufs;
    uint16_t status;
    uint8_t promisc, allmulti;
    uint32_t in_use;
    uint8_t macs[RX_FILTER_MACS][ETH_MAC_LEN];
    uint8_t vlans[RX_FILTER_VLANS / 8];
    uint32_t has_vnet_hdr;
    uint8_t multi_overflow, uni_overflow, alluni, nomulti, nouni, nobcast;
    uint8_t has_ufo;
    uint16_t max_queue_pairs, curr_queue_pairs;
    uint64_t curr_guest_offloads;
    VirtIONetRss rss;
    bool rss_enabled, populate_hash;
    uint32_t supported_hash_types;
    uint32_t hash_tunnels;
    VirtIONetCoalescing coal_rx, coal_tx, coal[2 * VIRTIO_NET_MAX_QUEUE_PAIRS];
    bool has_extras; /* not in the stream */
} VirtIONetSaved;

/* --- the other pairs' tx_waiting: as many as there are current pairs, less one --- */

typedef struct TxWaitingView {
    uint32_t count; /* not in the stream */
    uint32_t tx_waiting[SAVED_PAIRS_MAX - 1];
} TxWaitingView;

static void tx_waiting_prepare(void *state, void *parent)
{
    TxWaitingView *view = state;
    const VirtIONetSaved *s = parent;

    view->count = s->curr_queue_pairs ? s->curr_queue_pairs - 1u : 0;
}

static void tx_waiting_fill(void *state, void *parent)
{
    TxWaitingView *view = state;
    const VirtIONetSaved *s = parent;

    tx_waiting_prepare(state, parent);
    memcpy(view->tx_waiting, s->tx_waiting + 1, sizeof(view->tx_waiting));
}

static gboolean tx_waiting_check(void *state, void *parent, GError **errp)
{
    const VirtIONetSaved *s = parent;

    if (s->curr_queue_pairs < 1 || s->curr_queue_pairs > s->max_queue_pairs) {
        return error_set(errp, "curr_queue_pairs %u, 1 to %u are possible", s->curr_queue_pairs,
                         s->max_queue_pairs);
    }
    return TRUE;
}

static void tx_waiting_apply(void *state, void *parent)
{
    const TxWaitingView *view = state;
    VirtIONetSaved *s = parent;

    memcpy(s->tx_waiting + 1, view->tx_waiting, sizeof(view->tx_waiting));
}

static const VMStateDescription vmstate_tx_waiting = {
    .name = "virtio-net-tx_waiting",
    .version = 0,
    .state_size = sizeof(TxWaitingView),
    .prepare = tx_waiting_prepare,
    .fill = tx_waiting_fill,
    .check = tx_waiting_check,
    .apply = tx_waiting_apply,
    .fields =
        (const VMStateField[]){
            VMS_ARRAY(TxWaitingView, tx_waiting, uint32, VMS_COUNTED(TxWaitingView, count)),
            VMS_END,
        },
};

/* --- the section --- */

static bool is_multiqueue(const void *state)
{
    return ((const VirtIONetSaved *)state)->max_queue_pairs > 1;
}

static bool has_guest_offloads(const void *state)
{
    const VirtIONetSaved *s = state;

    return s->virtio.guest_features & (1u << VIRTIO_NET_F_CTRL_GUEST_OFFLOADS);
}

static bool rss_needed(const void *state)
{
    return ((const VirtIONetSaved *)state)->rss_enabled;
}

static bool extras_needed(const void *state)
{
    return ((const VirtIONetSaved *)state)->has_extras;
}

#define NAMED(text, S, member, kind, ...)                                                          \
    {                                                                                              \
        .name = text, .info = &vmstate_info_##kind, .offset = offsetof(S, member),                 \
        .size = sizeof(((S *)0)->member), __VA_ARGS__                                              \
    }

/* The table, as long as its length in front of it says. */
typedef struct IndirectionsView {
    uint32_t indirections_len;
    uint16_t table[VIRTIO_NET_RSS_TABLE_MAX];
} IndirectionsView;

static void indirections_prepare(void *state, void *parent)
{
    ((IndirectionsView *)state)->indirections_len = ((const VirtIONetSaved *)parent)->rss.table_len;
}

static void indirections_fill(void *state, void *parent)
{
    indirections_prepare(state, parent);
    memcpy(((IndirectionsView *)state)->table, ((const VirtIONetSaved *)parent)->rss.table,
           sizeof(((IndirectionsView *)state)->table));
}

static void indirections_apply(void *state, void *parent)
{
    memcpy(((VirtIONetSaved *)parent)->rss.table, ((IndirectionsView *)state)->table,
           sizeof(((IndirectionsView *)state)->table));
}

static const VMStateDescription vmstate_indirections = {
    .name = "rss-indirections",
    .state_size = sizeof(IndirectionsView),
    .prepare = indirections_prepare,
    .fill = indirections_fill,
    .apply = indirections_apply,
    .fields =
        (const VMStateField[]){
            VMS_ARRAY(IndirectionsView, table, uint16,
                      VMS_COUNTED(IndirectionsView, indirections_len)),
            VMS_END,
        },
};

static const VMStateDescription sub_rss = {
    .name = "virtio-net-device/rss",
    .version = 2,
    .minimum_version = 1,
    .save_version = 1, /* QEMU before 10 knows no other */
    .needed = rss_needed,
    .fields =
        (const VMStateField[]){
            NAMED("rss_data.enabled", VirtIONetSaved, rss_enabled, bool),
            NAMED("rss_data.redirect", VirtIONetSaved, rss.redirect, bool),
            NAMED("rss_data.populate_hash", VirtIONetSaved, populate_hash, bool),
            NAMED("rss_data.hash_types", VirtIONetSaved, rss.hash_types, uint32),
            NAMED("rss_data.supported_hash_types", VirtIONetSaved, supported_hash_types, uint32,
                  .version = 2),
            NAMED("rss_data.indirections_len", VirtIONetSaved, rss.table_len, uint16,
                  .max = VIRTIO_NET_RSS_TABLE_MAX),
            NAMED("rss_data.default_queue", VirtIONetSaved, rss.unclassified, uint16),
            NAMED("rss_data.key", VirtIONetSaved, rss.key, buffer),
            VMS_PART("rss_data.indirections_table", vmstate_indirections),
            VMS_END,
        },
};

static const VMStateDescription vmstate_coalescing = {
    .name = "coalescing",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(VirtIONetCoalescing, max_packets),
            VMS_UINT32(VirtIONetCoalescing, max_usecs),
            VMS_END,
        },
};

#define COALESCING(member)                                                                         \
    {                                                                                              \
        .name = #member, .vmsd = &vmstate_coalescing, .offset = offsetof(VirtIONetSaved, member),  \
        .size = sizeof(VirtIONetCoalescing)                                                        \
    }

/* What QEMU's device does not have, and so cannot be asked to load. */
static const VMStateDescription sub_extras = {
    .name = "virtio-net-device/swnic",
    .version = 1,
    .minimum_version = 1,
    .needed = extras_needed,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(VirtIONetSaved, hash_tunnels),
            COALESCING(coal_rx),
            COALESCING(coal_tx),
            VMS_STRUCT_ARRAY(VirtIONetSaved, coal, vmstate_coalescing),
            VMS_END,
        },
};

static const VMStateDescription vmstate_virtio_net_device = {
    .name = "virtio-net-device",
    .version = SAVED_VERSION,
    .minimum_version = SAVED_VERSION,
    .fields =
        (const VMStateField[]){
            VMS_BUFFER(VirtIONetSaved, mac),
            NAMED("tx_waiting", VirtIONetSaved, tx_waiting[0], uint32, .max = 1),
            VMS_UINT32(VirtIONetSaved, mergeable_rx_bufs),
            VMS_UINT16(VirtIONetSaved, status),
            VMS_UINT8(VirtIONetSaved, promisc),
            VMS_UINT8(VirtIONetSaved, allmulti),
            NAMED("mac_table.in_use", VirtIONetSaved, in_use, uint32),
            {.name = "mac_table.macs",
             .info = &vmstate_info_buffer,
             .offset = offsetof(VirtIONetSaved, macs),
             .size = ETH_MAC_LEN,
             .capacity = RX_FILTER_MACS,
             .limit = MACS_LIMIT,
             VMS_COUNTED(VirtIONetSaved, in_use)},
            VMS_BUFFER(VirtIONetSaved, vlans),
            VMS_UINT32(VirtIONetSaved, has_vnet_hdr),
            NAMED("mac_table.multi_overflow", VirtIONetSaved, multi_overflow, uint8),
            NAMED("mac_table.uni_overflow", VirtIONetSaved, uni_overflow, uint8),
            VMS_UINT8(VirtIONetSaved, alluni),
            VMS_UINT8(VirtIONetSaved, nomulti),
            VMS_UINT8(VirtIONetSaved, nouni),
            VMS_UINT8(VirtIONetSaved, nobcast),
            VMS_UINT8(VirtIONetSaved, has_ufo),
            VMS_EQUAL(VirtIONetSaved, max_queue_pairs, uint16, .exists = is_multiqueue),
            VMS_UINT16(VirtIONetSaved, curr_queue_pairs, .exists = is_multiqueue),
            VMS_PART("tx_waiting", vmstate_tx_waiting, .exists = is_multiqueue),
            VMS_UINT64(VirtIONetSaved, curr_guest_offloads, .exists = has_guest_offloads),
            VMS_END,
        },
    .subsections = (const VMStateDescription *const[]){&sub_rss, &sub_extras, NULL},
};

/* --- saving --- */

static bool peer_takes_header(const VirtIONet *n, NetCaps *caps)
{
    *caps = (NetCaps){0};
    if (n->nc->peer) {
        net_peer_caps(n->nc, caps);
    }
    return caps->vnet_hdr;
}

static void filter_fill(VirtIONetSaved *s, const RxFilter *filter)
{
    memcpy(s->mac, filter->mac, ETH_MAC_LEN);
    s->promisc = filter->promisc;
    s->allmulti = filter->allmulti;
    s->alluni = filter->alluni;
    s->nomulti = filter->nomulti;
    s->nouni = filter->nouni;
    s->nobcast = filter->nobcast;
    s->uni_overflow = filter->uni_overflow;
    s->multi_overflow = filter->multi_overflow;
    s->in_use = filter->in_use;
    memcpy(s->macs, filter->macs, sizeof(s->macs));
    for (unsigned i = 0; i < G_N_ELEMENTS(filter->vlans); i++) {
        pci_set_long(s->vlans + 4 * i, filter->vlans[i]);
    }
}

static void pairs_fill(VirtIONetSaved *s, const VirtIONet *n)
{
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        const VirtIONetQueue *q = &n->queues[i];

        /* What a slow peer has parked is as good as waiting: it was taken back into the ring. */
        s->tx_waiting[i] = q->tx.waiting || q->tx.stalled || q->tx_hand.count;
    }
}

static void steering_fill(VirtIONetSaved *s, const VirtIONet *n)
{
    static const VirtIONetCoalescing none[2 * VIRTIO_NET_MAX_QUEUE_PAIRS];

    s->rss = n->ctrl.rss;
    s->rss_enabled = s->rss.table_len || s->rss.hash_types;
    s->rss.table_len = s->rss_enabled ? MAX(s->rss.table_len, 1) : 0;
    s->populate_hash = n->hash_report;
    s->supported_hash_types = virtio_net_hash_types(n);
    s->hash_tunnels = n->ctrl.hash_tunnels;
    s->coal_rx = n->ctrl.coal_rx;
    s->coal_tx = n->ctrl.coal_tx;
    memcpy(s->coal, n->ctrl.coal, sizeof(s->coal));
    s->has_extras = s->hash_tunnels || memcmp(s->coal, none, sizeof(none)) ||
                    memcmp(&s->coal_rx, none, sizeof(s->coal_rx)) ||
                    memcmp(&s->coal_tx, none, sizeof(s->coal_tx));
}

static void net_saved_prepare(void *state, void *opaque)
{
    VirtIONetSaved *s = state;
    VirtIONet *n = opaque;

    virtio_saved_prepare(&s->virtio, &n->parent_obj);
    s->max_queue_pairs = (uint16_t)n->queue_pairs;
    s->curr_queue_pairs = 1;
}

static void net_saved_fill(void *state, void *opaque)
{
    VirtIONetSaved *s = state;
    VirtIONet *n = opaque;
    NetCaps caps;

    net_saved_prepare(state, opaque);
    virtio_saved_fill(&s->virtio, &n->parent_obj);
    filter_fill(s, &n->ctrl.filter);
    pairs_fill(s, n);
    s->mergeable_rx_bufs = n->mergeable;
    s->status = (n->nc->link_down ? 0 : VIRTIO_NET_S_LINK_UP) |
                (n->ctrl.announce ? VIRTIO_NET_S_ANNOUNCE : 0);
    s->has_vnet_hdr = peer_takes_header(n, &caps);
    s->has_ufo = caps.vnet_hdr && caps.offloads.ufo;
    s->curr_guest_offloads = n->ctrl.guest_offloads;
    s->curr_queue_pairs = MAX(n->ctrl.queue_pairs, 1);
    steering_fill(s, n);
}

/* --- loading --- */

/* A driver that knows no queue pairs sees one; queue 2 is the control queue then. */
static void possible_queues(VirtIONetSaved *s, const VirtIONet *n)
{
    VirtioFeatures multiqueue = VIRTIO_FEATURE(VIRTIO_NET_F_MQ) | VIRTIO_FEATURE(VIRTIO_NET_F_RSS);
    bool all = virtio_saved_features(&s->virtio) & multiqueue;
    unsigned ctrl = 2 * (all ? n->queue_pairs : 1);

    s->virtio.possible_queues = ctrl + 1;
    for (unsigned i = 0; i < ctrl; i++) {
        s->virtio.possible_num[i] = i % 2 ? n->conf.tx_queue_size : n->conf.rx_queue_size;
    }
    s->virtio.possible_num[ctrl] = VIRTIO_NET_CTRL_QUEUE_SIZE;
}

static gboolean check_rss(const VirtIONetSaved *s, const VirtIONet *n, GError **errp)
{
    const VirtIONetRss *rss = &s->rss;

    if (s->curr_queue_pairs < 1 || s->curr_queue_pairs > n->queue_pairs) {
        return error_set(errp, "curr_queue_pairs %u, 1 to %u are possible", s->curr_queue_pairs,
                         n->queue_pairs);
    }
    if (!s->rss_enabled) {
        return TRUE;
    }
    if (rss->table_len & (rss->table_len - 1) || !rss->table_len) {
        return error_set(errp, "rss_data.indirections_len %u is not a power of two",
                         rss->table_len);
    }
    if (rss->hash_types & ~virtio_net_hash_types(n)) {
        return error_set(errp, "rss_data.hash_types 0x%x, 0x%x are possible here", rss->hash_types,
                         virtio_net_hash_types(n));
    }
    if (rss->unclassified >= n->queue_pairs) {
        return error_set(errp, "rss_data.default_queue %u >= %u", rss->unclassified,
                         n->queue_pairs);
    }
    for (unsigned i = 0; i < rss->table_len; i++) {
        if (rss->table[i] >= n->queue_pairs) {
            return error_set(errp, "rss_data.indirections_table[%u] %u >= %u", i, rss->table[i],
                             n->queue_pairs);
        }
    }
    return TRUE;
}

static gboolean net_saved_check(void *state, void *opaque, GError **errp)
{
    VirtIONetSaved *s = state;
    VirtIONet *n = opaque;
    NetCaps caps;
    bool header = peer_takes_header(n, &caps);
    uint64_t offloads = virtio_net_guest_offloads(virtio_saved_features(&s->virtio));

    possible_queues(s, n);
    if (!virtio_saved_check(&s->virtio, &n->parent_obj, errp) || !check_rss(s, n, errp)) {
        return FALSE;
    }
    if (s->has_vnet_hdr && !header) {
        return error_set(errp, "has_vnet_hdr 1: the saved device's peer took a virtio-net header, "
                               "this one's does not (vnet_hdr=on)");
    }
    if (s->has_ufo && !caps.offloads.ufo) {
        return error_set(errp, "has_ufo 1: the saved device's peer took UFO, this one's does not");
    }
    if (has_guest_offloads(s) && (s->curr_guest_offloads & ~offloads)) {
        return error_set(errp,
                         "curr_guest_offloads 0x%" PRIx64 ", the driver negotiated 0x%" PRIx64,
                         s->curr_guest_offloads, offloads);
    }
    return TRUE;
}

static unsigned first_multicast(const RxFilter *filter)
{
    unsigned i = 0;

    while (i < filter->in_use && !(filter->macs[i][0] & 1)) {
        i++;
    }
    return i;
}

static void filter_apply(const VirtIONetSaved *s, RxFilter *filter)
{
    memcpy(filter->mac, s->mac, ETH_MAC_LEN);
    filter->promisc = s->promisc;
    filter->allmulti = s->allmulti;
    filter->alluni = s->alluni;
    filter->nomulti = s->nomulti;
    filter->nouni = s->nouni;
    filter->nobcast = s->nobcast;
    filter->uni_overflow = s->uni_overflow;
    filter->multi_overflow = s->multi_overflow;
    filter->in_use = s->in_use;
    memcpy(filter->macs, s->macs, sizeof(filter->macs));
    if (s->in_use > RX_FILTER_MACS) {
        /* A table that does not fit: take what it may have let through. */
        filter->in_use = 0;
        filter->uni_overflow = filter->multi_overflow = true;
    }
    filter->first_multi = first_multicast(filter);
    for (unsigned i = 0; i < G_N_ELEMENTS(filter->vlans); i++) {
        filter->vlans[i] = pci_get_long(s->vlans + 4 * i);
    }
}

typedef struct PairsApply {
    VirtIONet *n;
    const VirtIONetSaved *saved;
} PairsApply;

static void pairs_apply(void *opaque)
{
    PairsApply *apply = opaque;
    VirtIONet *n = apply->n;

    for (unsigned i = 0; i < n->queue_pairs; i++) {
        n->queues[i].tx.waiting = apply->saved->tx_waiting[i];
    }
    virtio_net_apply_offloads(n);
}

static void steering_apply(const VirtIONetSaved *s, VirtIONet *n)
{
    n->ctrl.queue_pairs = s->curr_queue_pairs;
    if (s->rss_enabled) {
        n->ctrl.rss = s->rss;
        n->ctrl.rss.key_len = VIRTIO_NET_RSS_KEY_MAX;
    }
    n->ctrl.hash_tunnels = s->hash_tunnels;
    if (!virtio_net_install_steering(n)) {
        warn_report("virtio-net: %s: the back end does not attach %u queues", n->nc->name,
                    s->curr_queue_pairs);
    }
    n->ctrl.coal_rx = s->coal_rx;
    n->ctrl.coal_tx = s->coal_tx;
    memcpy(n->ctrl.coal, s->coal, sizeof(n->ctrl.coal));
    virtio_net_install_coalescing(n);
}

static void net_saved_apply(void *state, void *opaque)
{
    VirtIONetSaved *s = state;
    VirtIONet *n = opaque;

    virtio_saved_apply(&s->virtio, &n->parent_obj);
    filter_apply(s, &n->ctrl.filter);
    n->ctrl.announce = s->status & VIRTIO_NET_S_ANNOUNCE;
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        n->queues[i].nc->link_down = !(s->status & VIRTIO_NET_S_LINK_UP);
    }
    n->link_was_down = n->nc->link_down;
    if (has_guest_offloads(s)) {
        n->ctrl.guest_offloads = s->curr_guest_offloads;
    }
    steering_apply(s, n);
    virtio_net_install_filter(n);
    virtio_net_update_info(n);
    event_loop_run_sync(n->loop, pairs_apply, &(PairsApply){n, s});
}

const VMStateDescription vmstate_virtio_net = {
    .name = "virtio-net",
    .version = SAVED_VERSION,
    .minimum_version = SAVED_VERSION,
    .state_size = sizeof(VirtIONetSaved),
    .prepare = net_saved_prepare,
    .fill = net_saved_fill,
    .check = net_saved_check,
    .apply = net_saved_apply,
    .fields =
        (const VMStateField[]){
            VMS_PART("virtio-head", vmstate_virtio_head),
            VMS_PART("virtio-net-device", vmstate_virtio_net_device),
            VMS_PART("virtio", vmstate_virtio),
            VMS_END,
        },
};
