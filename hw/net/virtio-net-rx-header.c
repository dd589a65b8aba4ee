/*
 * The header in front of a received frame: from what the peer says to what the driver may see
 * (virtio 1.4, 5.1.6.4).
 *
 * A peer was told which offloads the driver takes, but a frame may have been on its way when they
 * changed, or the peer may not care.  A checksum that the driver would not complete is completed
 * here, over the peer's memory, and written where the frame ends up; a frame that waits for a
 * segmentation which the driver does not take goes to virtio-net-rx-split.c.  Without GUEST_CSUM a
 * driver sees no flags at all.
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/iov.h"

#define VLAN_TAG_LEN 4
#define TUNNEL_TYPES (VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6)

static uint16_t get_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void put_le16(uint8_t *p, unsigned value)
{
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
}

void virtio_net_put_hash(uint8_t *hdr, uint32_t hash, unsigned report)
{
    put_le16(hdr + 12, hash & 0xffff);
    put_le16(hdr + 14, hash >> 16);
    put_le16(hdr + 16, report);
    put_le16(hdr + 18, 0);
}

static bool gso_is_taken(const NetOffloads *o, uint8_t gso_type)
{
    bool ecn = gso_type & VIRTIO_NET_HDR_GSO_ECN;
    bool tunnel = gso_type & TUNNEL_TYPES;

    if ((ecn && !o->ecn) || (tunnel && !o->tunnel)) {
        return false;
    }
    switch (gso_type & 0x1f) {
    case VIRTIO_NET_HDR_GSO_TCPV4:
        return o->tso4;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        return o->tso6;
    case VIRTIO_NET_HDR_GSO_UDP:
        return o->ufo;
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        return o->uso4 || o->uso6;
    default:
        return false;
    }
}

/* Completes a partial checksum: what is at csum_offset already is the pseudo-header's sum. */
static bool complete_checksum(RxFrame *frame, size_t start, size_t offset)
{
    uint16_t sum;

    if (start + offset + 2 > frame->size) {
        return false;
    }
    sum = (uint16_t)~csum_fold(csum_add_iov(0, frame->pkt->iov, frame->pkt->iovcnt,
                                            frame->skip + start, frame->size - start));
    frame->csum_at = (uint16_t)(start + offset);
    frame_put16(frame->csum, sum ? sum : 0xffff); /* 0 means "none" in UDP */
    return true;
}

/* A frame longer than the MTU that was advised must not be passed on (virtio 1.4, 5.1.4.1). */
static bool exceeds_mtu(const VirtIONet *n, const RxFrame *frame)
{
    size_t limit = n->rx_mtu + FRAME_ETH_LEN;

    if (!n->rx_mtu || frame->size <= limit) {
        return false;
    }
    for (size_t at = 2 * FRAME_MAC_LEN; at + 2 <= RX_FILTER_HEAD_SIZE; at += VLAN_TAG_LEN) {
        uint16_t type = frame_get16(frame->head + at);

        if (type != 0x8100 && type != 0x88a8) {
            break;
        }
        limit += VLAN_TAG_LEN;
    }
    return frame->size > limit;
}

static bool header_drop(VirtIONetQueue *q, NetDropReason reason)
{
    virtio_net_rx_drop(q, reason);
    return false;
}

static void count_csum(VirtIONetQueue *q, uint8_t flags)
{
    if (flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
        q->rx_csum.needs++;
    } else if (flags & VIRTIO_NET_HDR_F_DATA_VALID) {
        q->rx_csum.valid++;
    } else {
        q->rx_csum.none++;
    }
}

/* With RSC_EXT every GSO frame says how many segments it is made of, instead of where its checksum
 * goes. */
static void put_rsc_info(RxFrame *frame)
{
    unsigned hdr_len = get_le16(frame->hdr + 2), gso_size = get_le16(frame->hdr + 4);
    size_t payload = frame->size > hdr_len ? frame->size - hdr_len : 0;

    frame->hdr[0] |= VIRTIO_NET_HDR_F_RSC_INFO;
    put_le16(frame->hdr + 6, gso_size ? (unsigned)((payload + gso_size - 1) / gso_size) : 1);
    put_le16(frame->hdr + 8, 0);
}

bool virtio_net_rx_header(VirtIONetQueue *q, RxFrame *frame)
{
    VirtIONet *n = q->n;
    const NetOffloads *taken = &n->rx_offloads;
    uint8_t peer[VIRTIO_NET_HDR_LEN_MAX] = {0};
    uint8_t flags, gso_type;

    iov_to_buf(frame->pkt->iov, frame->pkt->iovcnt, 0, peer, MIN(frame->skip, sizeof(peer)));
    flags = peer[0] & (VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID |
                       (taken->tunnel_csum ? VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM : 0));
    gso_type = peer[1];
    if (gso_type == VIRTIO_NET_HDR_GSO_NONE && exceeds_mtu(n, frame)) {
        return header_drop(q, NET_DROP_TOO_LONG);
    }
    if (gso_type != VIRTIO_NET_HDR_GSO_NONE && !gso_is_taken(taken, gso_type)) {
        frame->split = true;
        return true;
    }
    count_csum(q, flags);
    if (!taken->csum) {
        return !(flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) ||
               complete_checksum(frame, get_le16(peer + 6), get_le16(peer + 8)) ||
               header_drop(q, NET_DROP_BAD_HEADER);
    }
    memcpy(frame->hdr, peer, VIRTIO_NET_HDR_LEN_SHORT);
    frame->hdr[0] = flags;
    if (gso_type != VIRTIO_NET_HDR_GSO_NONE) {
        q->rx_gso.packets++;
        q->rx_gso.bytes += frame->size;
        if (n->rsc_ext && !(gso_type & TUNNEL_TYPES)) {
            put_rsc_info(frame);
        }
    }
    if (n->guest_hdr_len == VIRTIO_NET_HDR_LEN_TUNNEL) {
        memcpy(frame->hdr + 20, peer + 20, 4); /* outer_th_offset, inner_nh_offset */
    }
    return true;
}
