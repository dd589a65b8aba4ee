/*
 * Feature and offload negotiation: between what the user wants, what the peer can take, and what
 * the driver accepts.
 *
 * One table says of each feature what it needs of the peer and which other features it makes no
 * sense without (virtio 1.2, 5.1.3.1).  A feature that is on by default is masked where it cannot
 * be had; one that the user asked for by name is an error then.  From the driver's answer follow
 * the length of the header in front of frames and what the peer may send: both are told to the
 * peer.  A peer without such a header never sees one; what the driver may ask for nevertheless is
 * done by the device (virtio-net-tx-soft.c, -rx-header.c), unless x-soft-offloads=off.
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/error.h"
#include "util/log.h"

/* What a peer can take, a bit each. */
enum {
    CAP_CSUM = 1 << 0,
    CAP_TSO4 = 1 << 1,
    CAP_TSO6 = 1 << 2,
    CAP_ECN = 1 << 3,
    CAP_UFO = 1 << 4,
    CAP_USO4 = 1 << 5,
    CAP_USO6 = 1 << 6,
    CAP_TUNNEL = 1 << 7,
    CAP_TUNNEL_CSUM = 1 << 8,
};

typedef struct NetFeature {
    unsigned bit;
    const char *property; /* NULL: follows from other properties */
    unsigned caps;        /* all of them */
    VirtioFeatures needs; /* any of them; 0: none */
    const char *needs_property;
    bool soft; /* the device can do it for a peer that cannot (x-soft-offloads) */
    bool rsc;  /* the same, with guest_rsc_ext=on: large frames are made by the device */
} NetFeature;

#define F(name)          VIRTIO_FEATURE(VIRTIO_NET_F_##name)
#define NEEDS_CSUM       F(CSUM), "csum"
#define NEEDS_GUEST_CSUM F(GUEST_CSUM), "guest_csum"
#define NEEDS_CTRL_VQ    F(CTRL_VQ), "ctrl_vq"

/* In an order in which every feature comes after those it needs. */
static const NetFeature net_features[] = {
    {VIRTIO_NET_F_CSUM, "csum", CAP_CSUM, .soft = true},
    {VIRTIO_NET_F_GUEST_CSUM, "guest_csum", CAP_CSUM, .rsc = true},
    {VIRTIO_NET_F_GSO, "gso", CAP_TSO4 | CAP_TSO6 | CAP_ECN, NEEDS_CSUM, .soft = true},
    {VIRTIO_NET_F_HOST_TSO4, "host_tso4", CAP_TSO4, NEEDS_CSUM, .soft = true},
    {VIRTIO_NET_F_HOST_TSO6, "host_tso6", CAP_TSO6, NEEDS_CSUM, .soft = true},
    {VIRTIO_NET_F_HOST_ECN, "host_ecn", CAP_ECN, F(HOST_TSO4) | F(HOST_TSO6), "host_tso4",
     .soft = true},
    {VIRTIO_NET_F_HOST_UFO, "host_ufo", CAP_UFO, NEEDS_CSUM},
    {VIRTIO_NET_F_HOST_USO, "host_uso", CAP_USO4 | CAP_USO6, NEEDS_CSUM, .soft = true},
    {VIRTIO_NET_F_GUEST_TSO4, "guest_tso4", CAP_TSO4, NEEDS_GUEST_CSUM, .rsc = true},
    {VIRTIO_NET_F_GUEST_TSO6, "guest_tso6", CAP_TSO6, NEEDS_GUEST_CSUM, .rsc = true},
    {VIRTIO_NET_F_GUEST_ECN, "guest_ecn", CAP_ECN, F(GUEST_TSO4) | F(GUEST_TSO6), "guest_tso4"},
    {VIRTIO_NET_F_GUEST_UFO, "guest_ufo", CAP_UFO, NEEDS_GUEST_CSUM},
    {VIRTIO_NET_F_GUEST_USO4, "guest_uso4", CAP_USO4, NEEDS_GUEST_CSUM},
    {VIRTIO_NET_F_GUEST_USO6, "guest_uso6", CAP_USO6, NEEDS_GUEST_CSUM},
    {VIRTIO_NET_F_CTRL_RX, "ctrl_rx", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_CTRL_VLAN, "ctrl_vlan", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_CTRL_RX_EXTRA, "ctrl_rx_extra", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_CTRL_MAC_ADDR, "ctrl_mac_addr", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, "ctrl_guest_offloads", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_GUEST_ANNOUNCE, "guest_announce", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_MQ, "mq", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_RSS, "rss", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_HASH_REPORT, "hash", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_HASH_TUNNEL, "hash_tunnel", 0, F(RSS) | F(HASH_REPORT), "rss"},
    {VIRTIO_NET_F_NOTF_COAL, "notf_coal", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_VQ_NOTF_COAL, "vq_notf_coal", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_DEVICE_STATS, "device_stats", 0, NEEDS_CTRL_VQ},
    {VIRTIO_NET_F_GUEST_HDRLEN, "guest_hdrlen", 0,
     F(HOST_TSO4) | F(HOST_TSO6) | F(HOST_UFO) | F(HOST_USO), "host_tso4"},
    {VIRTIO_NET_F_RSC_EXT, "guest_rsc_ext", 0, F(GUEST_TSO4) | F(GUEST_TSO6), "guest_tso4"},
    {VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO, "guest_tunnel", CAP_TUNNEL, F(GUEST_TSO4) | F(GUEST_TSO6),
     "guest_tso4"},
    {VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM, "guest_tunnel_csum", CAP_TUNNEL_CSUM,
     F(GUEST_UDP_TUNNEL_GSO), "guest_tunnel"},
    {VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO, "host_tunnel", CAP_TUNNEL, F(HOST_TSO4) | F(HOST_TSO6),
     "host_tso4"},
    {VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM, "host_tunnel_csum", CAP_TUNNEL_CSUM,
     F(HOST_UDP_TUNNEL_GSO), "host_tunnel"},
};

#define NAME(name) [VIRTIO_NET_F_##name] = "VIRTIO_NET_F_" #name
const char *const virtio_net_feature_names[128] = {
    NAME(CSUM),
    NAME(GUEST_CSUM),
    NAME(CTRL_GUEST_OFFLOADS),
    NAME(MTU),
    NAME(MAC),
    NAME(GSO),
    NAME(GUEST_TSO4),
    NAME(GUEST_TSO6),
    NAME(GUEST_ECN),
    NAME(GUEST_UFO),
    NAME(HOST_TSO4),
    NAME(HOST_TSO6),
    NAME(HOST_ECN),
    NAME(HOST_UFO),
    NAME(MRG_RXBUF),
    NAME(STATUS),
    NAME(CTRL_VQ),
    NAME(CTRL_RX),
    NAME(CTRL_VLAN),
    NAME(CTRL_RX_EXTRA),
    NAME(GUEST_ANNOUNCE),
    NAME(MQ),
    NAME(CTRL_MAC_ADDR),
    NAME(DEVICE_STATS),
    NAME(HASH_TUNNEL),
    NAME(VQ_NOTF_COAL),
    NAME(NOTF_COAL),
    NAME(GUEST_USO4),
    NAME(GUEST_USO6),
    NAME(HOST_USO),
    NAME(HASH_REPORT),
    NAME(GUEST_HDRLEN),
    NAME(RSS),
    NAME(RSC_EXT),
    NAME(STANDBY),
    NAME(SPEED_DUPLEX),
    NAME(GUEST_UDP_TUNNEL_GSO),
    NAME(GUEST_UDP_TUNNEL_GSO_CSUM),
    NAME(HOST_UDP_TUNNEL_GSO),
    NAME(HOST_UDP_TUNNEL_GSO_CSUM),
};

size_t virtio_net_config_length(VirtioFeatures features)
{
    static const struct {
        VirtioFeatures features;
        size_t end;
    } fields[] = {
        {F(HASH_TUNNEL), 28},          /* up to supported_tunnel_types */
        {F(RSS) | F(HASH_REPORT), 24}, /* up to supported_hash_types */
        {F(SPEED_DUPLEX), 17},         {F(MTU), 12}, {F(MQ), 10}, {F(STATUS), 8},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(fields); i++) {
        if (features & fields[i].features) {
            return fields[i].end;
        }
    }
    return ETH_MAC_LEN;
}

static unsigned caps_to_bits(const NetCaps *caps)
{
    const NetOffloads *o = &caps->offloads;

    if (!caps->vnet_hdr) {
        return 0;
    }
    return (o->csum ? CAP_CSUM : 0) | (o->tso4 ? CAP_TSO4 : 0) | (o->tso6 ? CAP_TSO6 : 0) |
           (o->ecn ? CAP_ECN : 0) | (o->ufo ? CAP_UFO : 0) | (o->uso4 ? CAP_USO4 : 0) |
           (o->uso6 ? CAP_USO6 : 0) | (o->tunnel ? CAP_TUNNEL : 0) |
           (o->tunnel_csum ? CAP_TUNNEL_CSUM : 0);
}

/* Can a peer that has @have, or the device for it, do what the feature promises? */
static bool feature_is_possible(const NetFeature *f, VirtioFeatures wanted, unsigned have,
                                bool soft)
{
    return !(f->caps & ~have) || (soft && (f->soft || (f->rsc && wanted & F(RSC_EXT))));
}

VirtioFeatures virtio_net_mask_features(VirtioFeatures wanted, const NetCaps *caps, bool soft)
{
    unsigned have = caps_to_bits(caps);

    for (unsigned i = 0; i < G_N_ELEMENTS(net_features); i++) {
        const NetFeature *f = &net_features[i];

        if (!feature_is_possible(f, wanted, have, soft) || (f->needs && !(wanted & f->needs))) {
            wanted &= ~VIRTIO_FEATURE(f->bit);
        }
    }
    return wanted;
}

/* Why feature @f, asked for by name, cannot be had. */
static gboolean feature_error(VirtIONet *n, const NetFeature *f, bool possible, GError **errp)
{
    NetClient *peer = n->nc ? n->nc->peer : NULL;

    if (possible) {
        return error_set(errp, "%s=on is not possible without %s=on", f->property,
                         f->needs_property);
    }
    if (!peer) {
        return error_set(errp, "%s=on is not possible without a netdev that can take it (off is)",
                         f->property);
    }
    return error_set(errp, "%s=on is not possible with netdev '%s' of type %s (off is)",
                     f->property, peer->name, peer->ops->type);
}

VirtioFeatures virtio_net_get_features(VirtIODevice *vdev, VirtioFeatures wanted, GError **errp)
{
    VirtIONet *n = VIRTIO_NET(vdev);
    NetCaps caps = {0};

    if (n->nc) {
        net_peer_caps(n->nc, &caps);
    }

    /* What a vhost back end cannot do nobody does: packets do not come this way. */
    bool soft = n->conf.soft_offloads && !n->num_vhosts;
    VirtioFeatures offered = virtio_net_mask_features(wanted, &caps, soft);

    for (unsigned i = 0; i < G_N_ELEMENTS(net_features); i++) {
        const NetFeature *f = &net_features[i];

        if (f->property && (wanted & ~offered & VIRTIO_FEATURE(f->bit)) &&
            property_was_set(OBJECT(n), f->property)) {
            feature_error(
                n, f, feature_is_possible(f, wanted, caps_to_bits(&caps), soft),
                errp);
            return offered;
        }
    }
    return virtio_net_vhost_features(n, offered, errp);
}

/* The offloads beyond bit 63 have other places in the 64 bits of GUEST_OFFLOADS_SET. */
static const struct {
    unsigned feature, mapped;
} mapped_offloads[] = {
    {VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED},
    {VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM, VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED},
};

uint64_t virtio_net_guest_offloads(VirtioFeatures features)
{
    uint64_t offloads =
        (uint64_t)(features & (F(GUEST_CSUM) | F(GUEST_TSO4) | F(GUEST_TSO6) | F(GUEST_ECN) |
                               F(GUEST_UFO) | F(GUEST_USO4) | F(GUEST_USO6)));

    for (unsigned i = 0; i < G_N_ELEMENTS(mapped_offloads); i++) {
        if (features & VIRTIO_FEATURE(mapped_offloads[i].feature)) {
            offloads |= UINT64_C(1) << mapped_offloads[i].mapped;
        }
    }
    return offloads;
}

void virtio_net_offloads_to_peer(uint64_t guest, NetOffloads *offloads)
{
    bool csum = guest & (uint64_t)F(GUEST_CSUM);

    /* Segments have partial checksums: without the one a guest cannot have the other, whatever
     * GUEST_OFFLOADS_SET leaves on. */
    *offloads = (NetOffloads){
        .csum = csum,
        .tso4 = csum && guest & (uint64_t)F(GUEST_TSO4),
        .tso6 = csum && guest & (uint64_t)F(GUEST_TSO6),
        .ufo = csum && guest & (uint64_t)F(GUEST_UFO),
        .uso4 = csum && guest & (uint64_t)F(GUEST_USO4),
        .uso6 = csum && guest & (uint64_t)F(GUEST_USO6),
        .tunnel = csum && guest >> VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED & 1,
        .tunnel_csum = csum && guest >> VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED & 1,
    };
    offloads->ecn = (offloads->tso4 || offloads->tso6) && guest & (uint64_t)F(GUEST_ECN);
    offloads->tunnel_csum = offloads->tunnel_csum && offloads->tunnel;
}

void virtio_net_apply_offloads(VirtIONet *n)
{
    virtio_net_offloads_to_peer(n->ctrl.guest_offloads, &n->rx_offloads);
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        NetClient *nc = n->queues[i].nc;

        if (nc && nc->vnet_hdr_len && !net_peer_set_offloads(nc, &n->rx_offloads)) {
            log_printf("virtio-net: %s: the back end does not take the driver's offloads",
                       nc->name);
        }
    }
}

/* Frames to and from the peer have a header of the guest's length if the peer can, else of the
 * length that every kernel knows, else none. */
static void apply_header(NetClient *nc, unsigned guest_hdr_len)
{
    NetCaps caps = {0};

    if (!nc || !nc->peer) {
        return;
    }
    net_peer_caps(nc, &caps);
    if (caps.vnet_hdr && (net_peer_set_vnet_hdr_len(nc, guest_hdr_len) ||
                          net_peer_set_vnet_hdr_len(nc, VIRTIO_NET_HDR_LEN_SHORT))) {
        return;
    }
    net_peer_set_vnet_hdr_len(nc, 0);
}

/* Length of the header (virtio 1.4, 5.1.6): tunnel fields lie behind those of the hash. */
static unsigned header_length(VirtioFeatures features)
{
    if (features & (F(GUEST_UDP_TUNNEL_GSO) | F(HOST_UDP_TUNNEL_GSO))) {
        return VIRTIO_NET_HDR_LEN_TUNNEL;
    }
    if (features & F(HASH_REPORT)) {
        return VIRTIO_NET_HDR_LEN_HASH;
    }
    return features & (VIRTIO_FEATURE(VIRTIO_F_VERSION_1) | F(MRG_RXBUF))
               ? VIRTIO_NET_HDR_LEN_FULL
               : VIRTIO_NET_HDR_LEN_SHORT;
}

/* What is left to the device of what a driver of @features may ask for. */
static void apply_soft(VirtIONet *n, VirtioFeatures features)
{
    static const struct {
        VirtioFeatures feature;
        unsigned caps;
    } host[] = {
        {F(CSUM), CAP_CSUM},
        {F(HOST_TSO4) | F(GSO), CAP_TSO4},
        {F(HOST_TSO6) | F(GSO), CAP_TSO6},
        {F(HOST_ECN) | F(GSO), CAP_ECN},
        {F(HOST_USO), CAP_USO4 | CAP_USO6},
    };
    NetCaps caps = {0};
    unsigned have;

    if (n->nc && n->nc->vnet_hdr_len) {
        net_peer_caps(n->nc, &caps);
    }
    have = caps_to_bits(&caps);
    n->tx_native = have ? caps.offloads : (NetOffloads){0};
    n->tx_soft = false;
    for (unsigned i = 0; i < G_N_ELEMENTS(host) && n->conf.soft_offloads; i++) {
        n->tx_soft |= features & F(CSUM) && features & host[i].feature && (host[i].caps & ~have);
    }
    n->tx_count = features & F(DEVICE_STATS);
    n->tx_look = n->tx_soft || n->tx_count;
}

void virtio_net_apply_features(VirtIONet *n, VirtioFeatures features)
{
    n->mergeable = features & F(MRG_RXBUF);
    n->hash_report = features & F(HASH_REPORT);
    n->rsc_ext = features & F(RSC_EXT);
    n->guest_hdr_len = header_length(features);
    n->rx_mtu = features & F(MTU) ? n->conf.mtu : 0;
    n->rx_look =
        features & (F(RSS) | F(HASH_REPORT) | F(RSC_EXT)) ? FRAME_HEAD_SIZE : RX_FILTER_HEAD_SIZE;
    n->ctrl.guest_offloads = virtio_net_guest_offloads(features);
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        apply_header(n->queues[i].nc, n->guest_hdr_len);
        virtio_net_rsc_enable(&n->queues[i],
                              n->rsc_ext && features & (F(GUEST_TSO4) | F(GUEST_TSO6)));
    }
    apply_soft(n, features);
    virtio_net_apply_offloads(n);
}
