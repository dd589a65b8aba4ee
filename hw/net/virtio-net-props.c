/*
 * Properties: the one table from which the command line, device_add, help and qom-get read, and
 * the checks that need more than one value.
 *
 * Ring features (packed, event_idx, …) are the virtio base class's, PCI's are the transport's.
 */
#include <linux/ethtool.h>
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/error.h"

static json_object *stats_get(Object *obj, const Property *prop)
{
    return virtio_net_query_stats(VIRTIO_NET(obj));
}

static const PropertyInfo prop_info_stats = {.type = "struct", .get = stats_get};

/* Settings that work while packets flow. */
static gboolean tx_changed(Object *obj, const Property *prop, GError **errp);
#define TX_RUNTIME .flags = PROP_F_RUNTIME, .changed = tx_changed

#define FEATURE(name, bit, on, desc)                                                               \
    PROP_BIT64(name, VirtIONet, parent_obj.wanted_features[0], bit, on, desc)
#define FEATURE_HIGH(name, bit, on, desc)                                                          \
    PROP_BIT64(name, VirtIONet, parent_obj.wanted_features[1], (bit)-64, on, desc)
#define HASH(name, type, desc)                                                                     \
    PROP_ON_OFF_AUTO(name, VirtIONet, conf.hash[type], ON_OFF_AUTO_AUTO, desc)

const Property virtio_net_props[] = {
    PROP_MACADDR("mac", VirtIONet, conf.mac, "MAC address (default 52:54:00:12:34:56 upwards)"),
    PROP_STRING("netdev", VirtIONet, conf.netdev, "Back end: id of a -netdev"),
    PROP_INT32("bootindex", VirtIONet, conf.bootindex, -1, "Place in the boot order", .min = -1,
               .max = INT32_MAX),

    PROP_STRING("tx", VirtIONet, conf.tx,
                "When to send: bh (default), timer, flush-first or adaptive", TX_RUNTIME),
    PROP_UINT32("x-txtimer", VirtIONet, conf.tx_timer_ns, VIRTIO_NET_TX_TIMER_DEFAULT_NS,
                "Timer of tx=timer and tx=flush-first, ns", TX_RUNTIME),
    PROP_INT32("x-txburst", VirtIONet, conf.tx_burst, VIRTIO_NET_TX_BURST_DEFAULT,
               "Packets sent in one go, at most", .min = 1, .max = INT32_MAX, TX_RUNTIME),
    PROP_UINT32("x-txlatency", VirtIONet, conf.tx_latency_ns, VIRTIO_NET_TX_LATENCY_DEFAULT_NS,
                "Longest that tx=adaptive makes a packet wait, ns", TX_RUNTIME),
    PROP_INT32("x-rxburst", VirtIONet, conf.rx_burst, VIRTIO_NET_RX_BURST_DEFAULT,
               "Packets received in one go, at most", .min = 1, .max = INT32_MAX),
    PROP_UINT16("rx_queue_size", VirtIONet, conf.rx_queue_size, VIRTIO_NET_QUEUE_SIZE_DEFAULT,
                "Entries of the receive queue: a power of two from 64 to 1024"),
    PROP_UINT16("tx_queue_size", VirtIONet, conf.tx_queue_size, VIRTIO_NET_QUEUE_SIZE_DEFAULT,
                "Entries of the transmit queue: a power of two from 64 to 1024"),
    PROP_LINK("iothread", VirtIONet, conf.iothread, "iothread",
              "Thread that runs the queues (default: the main loop)"),

    PROP_UINT16("host_mtu", VirtIONet, conf.mtu, 0, "MTU advised to the driver (0: none)"),
    PROP_INT32("speed", VirtIONet, conf.speed, -1, "Link speed told to the driver, Mbit/s",
               .min = -1, .max = INT32_MAX),
    PROP_STRING("duplex", VirtIONet, conf.duplex, "Duplex told to the driver: half or full"),
    PROP_BOOL("failover", VirtIONet, conf.failover, false,
              "Standby of the device whose failover_pair_id names this one"),
    PROP_BOOL("x-mtu-bypass-backend", VirtIONet, conf.mtu_bypass_backend, true,
              "host_mtu is advised whatever the back end says"),
    PROP_BOOL("x-soft-offloads", VirtIONet, conf.soft_offloads, true,
              "The device does transmit offloads that the back end cannot"),
    PROP_UINT32("rsc_interval", VirtIONet, conf.rsc_interval_ns, VIRTIO_NET_RSC_INTERVAL_DEFAULT,
                "Longest that receive coalescing (guest_rsc_ext) keeps a segment, ns"),

    FEATURE("csum", VIRTIO_NET_F_CSUM, true, "Transmit checksum offload"),
    FEATURE("guest_csum", VIRTIO_NET_F_GUEST_CSUM, true, "Receive checksum offload"),
    FEATURE("gso", VIRTIO_NET_F_GSO, true, "Any transmit segmentation (legacy drivers)"),
    FEATURE("guest_tso4", VIRTIO_NET_F_GUEST_TSO4, true, "Guest takes TSOv4"),
    FEATURE("guest_tso6", VIRTIO_NET_F_GUEST_TSO6, true, "Guest takes TSOv6"),
    FEATURE("guest_ecn", VIRTIO_NET_F_GUEST_ECN, true, "Guest takes TSO with ECN"),
    FEATURE("guest_ufo", VIRTIO_NET_F_GUEST_UFO, true, "Guest takes UFO"),
    FEATURE("guest_uso4", VIRTIO_NET_F_GUEST_USO4, true, "Guest takes USOv4"),
    FEATURE("guest_uso6", VIRTIO_NET_F_GUEST_USO6, true, "Guest takes USOv6"),
    FEATURE("guest_announce", VIRTIO_NET_F_GUEST_ANNOUNCE, true, "Guest announces itself"),
    FEATURE("host_tso4", VIRTIO_NET_F_HOST_TSO4, true, "Host takes TSOv4"),
    FEATURE("host_tso6", VIRTIO_NET_F_HOST_TSO6, true, "Host takes TSOv6"),
    FEATURE("host_ecn", VIRTIO_NET_F_HOST_ECN, true, "Host takes TSO with ECN"),
    FEATURE("host_ufo", VIRTIO_NET_F_HOST_UFO, true, "Host takes UFO"),
    FEATURE("host_uso", VIRTIO_NET_F_HOST_USO, true, "Host takes USO"),
    FEATURE("mrg_rxbuf", VIRTIO_NET_F_MRG_RXBUF, true, "Frames over several receive buffers"),
    FEATURE("status", VIRTIO_NET_F_STATUS, true, "Link status"),
    FEATURE("ctrl_vq", VIRTIO_NET_F_CTRL_VQ, true, "Control queue"),
    FEATURE("ctrl_rx", VIRTIO_NET_F_CTRL_RX, true, "Receive modes and MAC table"),
    FEATURE("ctrl_vlan", VIRTIO_NET_F_CTRL_VLAN, true, "VLAN filter"),
    FEATURE("ctrl_rx_extra", VIRTIO_NET_F_CTRL_RX_EXTRA, true, "Extra receive modes"),
    FEATURE("ctrl_mac_addr", VIRTIO_NET_F_CTRL_MAC_ADDR, true, "MAC address by command"),
    FEATURE("ctrl_guest_offloads", VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, true,
            "Receive offloads changed at run time"),
    FEATURE("mq", VIRTIO_NET_F_MQ, false, "Several queue pairs, as the netdev has queues"),
    FEATURE("rss", VIRTIO_NET_F_RSS, false, "Receive-side scaling"),
    FEATURE("hash", VIRTIO_NET_F_HASH_REPORT, false, "Hash of each received frame in its header"),
    FEATURE("hash_tunnel", VIRTIO_NET_F_HASH_TUNNEL, false, "Hash of what is in tunnels"),
    FEATURE("notf_coal", VIRTIO_NET_F_NOTF_COAL, false, "Interrupt coalescing"),
    FEATURE("vq_notf_coal", VIRTIO_NET_F_VQ_NOTF_COAL, false, "Interrupt coalescing by queue"),
    FEATURE("device_stats", VIRTIO_NET_F_DEVICE_STATS, false, "Counters for the driver"),
    FEATURE("guest_hdrlen", VIRTIO_NET_F_GUEST_HDRLEN, false,
            "Driver says how long the headers of large frames are"),
    FEATURE("guest_rsc_ext", VIRTIO_NET_F_RSC_EXT, false,
            "The device coalesces TCP segments and says so"),
    FEATURE_HIGH("host_tunnel", VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO, true,
                 "Host takes GSO in UDP tunnels"),
    FEATURE_HIGH("host_tunnel_csum", VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM, true,
                 "Host takes GSO in UDP tunnels with outer checksums"),
    FEATURE_HIGH("guest_tunnel", VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO, true,
                 "Guest takes GSO in UDP tunnels"),
    FEATURE_HIGH("guest_tunnel_csum", VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM, true,
                 "Guest takes GSO in UDP tunnels with outer checksums"),
    HASH("hash-ipv4", 0, "Hash over IPv4 addresses"),
    HASH("hash-tcp4", 1, "Hash over TCPv4 flows"),
    HASH("hash-udp4", 2, "Hash over UDPv4 flows"),
    HASH("hash-ipv6", 3, "Hash over IPv6 addresses"),
    HASH("hash-tcp6", 4, "Hash over TCPv6 flows"),
    HASH("hash-udp6", 5, "Hash over UDPv6 flows"),
    HASH("hash-ipv6ex", 6, "Hash over IPv6 extension headers' addresses"),
    HASH("hash-tcp6ex", 7, "Hash over TCPv6 flows with extension headers"),
    HASH("hash-udp6ex", 8, "Hash over UDPv6 flows with extension headers"),

    {.name = "x-queue-stats",
     .info = &prop_info_stats,
     .flags = PROP_F_READONLY | PROP_F_HIDDEN,
     .description = "Counters of each queue pair"},
    PROP_END,
};

/* "Property 'virtio-net-pci.NAME' doesn't take value '…' (allowed: …)" */
static gboolean value_error(VirtIONet *n, const char *name, GError **errp, const char *allowed)
{
    Object *owner;
    const Property *prop = object_find_property(OBJECT(n), name, &owner);
    json_object *value = prop->info->get(owner, prop);

    property_error_value(owner, prop, value, errp, "%s", allowed);
    json_object_put(value);
    return false;
}

static gboolean check_queue_size(VirtIONet *n, const char *name, unsigned size, GError **errp)
{
    bool packed = n->parent_obj.wanted_features[0] >> VIRTIO_F_RING_PACKED & 1;

    if (size >= VIRTIO_NET_QUEUE_SIZE_MIN && size <= VIRTIO_NET_QUEUE_SIZE_MAX &&
        (packed || !(size & (size - 1)))) {
        return true;
    }
    return value_error(n, name, errp, packed ? "64 to 1024" : "a power of two from 64 to 1024");
}

static gboolean check_duplex(VirtIONet *n, GError **errp)
{
    const char *duplex = n->conf.duplex;

    n->duplex = DUPLEX_UNKNOWN;
    if (!duplex) {
        return true;
    }
    if (strcmp(duplex, "half") && strcmp(duplex, "full")) {
        return value_error(n, "duplex", errp, "half, full");
    }
    n->duplex = duplex[0] == 'h' ? DUPLEX_HALF : DUPLEX_FULL;
    return true;
}

static gboolean check_tx(VirtIONet *n, GError **errp)
{
    return tx_policy_find(n->conf.tx) || value_error(n, "tx", errp, TX_POLICY_NAMES);
}

static gboolean tx_changed(Object *obj, const Property *prop, GError **errp)
{
    VirtIONet *n = VIRTIO_NET(obj);

    if (!check_tx(n, errp)) {
        return false;
    }
    virtio_net_tx_configure(n);
    return true;
}

static gboolean check_mtu(VirtIONet *n, GError **errp)
{
    /* virtio 1.2, 5.1.4.1: "The device MUST set mtu to between 68 and 65535 inclusive". */
    return n->conf.mtu == 0 || n->conf.mtu >= 68 ||
           value_error(n, "host_mtu", errp, "0 for none, 68 to 65535");
}

gboolean virtio_net_check_conf(VirtIONet *n, GError **errp)
{
    VirtIONetConf *conf = &n->conf;
    uint64_t *wanted = &n->parent_obj.wanted_features[0];

    if (!check_queue_size(n, "rx_queue_size", conf->rx_queue_size, errp) ||
        !check_queue_size(n, "tx_queue_size", conf->tx_queue_size, errp) || !check_tx(n, errp) ||
        !check_duplex(n, errp) || !check_mtu(n, errp)) {
        return false;
    }
    *wanted |= UINT64_C(1) << VIRTIO_NET_F_MAC;
    if (conf->failover) {
        *wanted |= UINT64_C(1) << VIRTIO_NET_F_STANDBY;
    }
    if (conf->mtu) {
        *wanted |= UINT64_C(1) << VIRTIO_NET_F_MTU;
    }
    if (conf->speed >= 0 || conf->duplex) {
        *wanted |= UINT64_C(1) << VIRTIO_NET_F_SPEED_DUPLEX;
    }
    return true;
}
