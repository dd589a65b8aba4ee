/*
 * What linux/virtio_net.h of the oldest supported machine does not have, each with its section of
 * the virtio specification (1.4).  A kernel header that has it wins.
 */
#ifndef HW_NET_VIRTIO_NET_UAPI_H
#define HW_NET_VIRTIO_NET_UAPI_H

#include <linux/types.h>
#include <linux/virtio_net.h>

/* --- feature bits (5.1.3) --- */
#ifndef VIRTIO_NET_F_DEVICE_STATS
#define VIRTIO_NET_F_DEVICE_STATS 50
#endif
#ifndef VIRTIO_NET_F_HASH_TUNNEL
#define VIRTIO_NET_F_HASH_TUNNEL 51
#endif
#ifndef VIRTIO_NET_F_VQ_NOTF_COAL
#define VIRTIO_NET_F_VQ_NOTF_COAL 52
#endif
#ifndef VIRTIO_NET_F_GUEST_USO4
#define VIRTIO_NET_F_GUEST_USO4 54
#define VIRTIO_NET_F_GUEST_USO6 55
#define VIRTIO_NET_F_HOST_USO   56
#endif
#ifndef VIRTIO_NET_F_GUEST_HDRLEN
#define VIRTIO_NET_F_GUEST_HDRLEN 59
#endif
#ifndef VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO      65
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM 66
#define VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO       67
#define VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM  68
#endif
/* GUEST_OFFLOADS_SET has 64 bits: where the two GUEST bits beyond 63 are in it (5.1.6.5.8). */
#ifndef VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED      46
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED 47
#endif

/* --- the header in front of frames (5.1.6) --- */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4
#define VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 0x20
#define VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6 0x40
#endif
#ifndef VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM
#define VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM 8
#endif

/* --- control commands (5.1.6.5) --- */
#ifndef VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET
#define VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET 2
#define VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET 3
#endif
#ifndef VIRTIO_NET_CTRL_HASH_TUNNEL
#define VIRTIO_NET_CTRL_HASH_TUNNEL     7
#define VIRTIO_NET_CTRL_HASH_TUNNEL_SET 0
#endif
#ifndef VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_2784
#define VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_2784  (1 << 0)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_2890  (1 << 1)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_7676  (1 << 2)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_UDP   (1 << 3)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_VXLAN     (1 << 4)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_VXLAN_GPE (1 << 5)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_GENEVE    (1 << 6)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_IPIP      (1 << 7)
#define VIRTIO_NET_HASH_TUNNEL_TYPE_NVGRE     (1 << 8)
#endif
#ifndef VIRTIO_NET_CTRL_STATS
#define VIRTIO_NET_CTRL_STATS                8
#define VIRTIO_NET_CTRL_STATS_QUERY          0
#define VIRTIO_NET_CTRL_STATS_GET            1
#define VIRTIO_NET_STATS_TYPE_REPLY_RX_BASIC 0
#define VIRTIO_NET_STATS_TYPE_REPLY_RX_CSUM  1
#define VIRTIO_NET_STATS_TYPE_REPLY_RX_GSO   2
#define VIRTIO_NET_STATS_TYPE_REPLY_RX_SPEED 3
#define VIRTIO_NET_STATS_TYPE_REPLY_TX_BASIC 16
#define VIRTIO_NET_STATS_TYPE_REPLY_TX_CSUM  17
#define VIRTIO_NET_STATS_TYPE_REPLY_TX_GSO   18
#define VIRTIO_NET_STATS_TYPE_REPLY_TX_SPEED 19
#define VIRTIO_NET_STATS_TYPE_REPLY_CVQ      32
#endif

/* The device configuration as 1.4 has it; older headers end before the last field. */
typedef struct VirtIONetConfigLayout {
    struct virtio_net_config base;
    __le32 supported_tunnel_types;
} __attribute__((packed)) VirtIONetConfigLayout;

#endif
