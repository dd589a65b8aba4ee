/*
 * Software segmentation, to the byte as the Linux kernel's.
 *
 *   IPv4   total length, identification counted up, header checksum
 *   IPv6   payload length; extension headers are copied
 *   TCP    sequence number; FIN and PSH in the last segment only, CWR in the first only
 *   UDP    (USO) each segment is a datagram: length, checksum
 *
 * A frame whose payload fits in one segment is not segmented, as if the driver had not asked.  UFO
 * (fragments) is not done here.
 */
#include "hw/net/segment.h"

#include <netinet/in.h>
#include <string.h>

#include "hw/net/virtio-net-uapi.h"
#include "util/iov.h"

#define TCP_SEQ   4
#define TCP_FLAGS 13
#define TCP_CHECK 16
#define TCP_FIN   0x01
#define TCP_PSH   0x08
#define TCP_CWR   0x80
#define UDP_CHECK 6
#define IPV6_LEN  40

static uint16_t get_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* The transport that @gso_type is for; 0: none that we segment. */
static uint8_t gso_protocol(uint8_t gso_type, uint8_t *ip_version)
{
    switch (gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_TCPV4:
        *ip_version = 4;
        return IPPROTO_TCP;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        *ip_version = 6;
        return IPPROTO_TCP;
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        *ip_version = 0; /* either */
        return IPPROTO_UDP;
    default:
        return 0;
    }
}

static unsigned check_offset(const SegmentPlan *plan)
{
    return plan->info.protocol == IPPROTO_TCP ? TCP_CHECK : UDP_CHECK;
}

/* Takes the headers apart; false: they are not what the virtio_net_hdr says. */
static bool plan_headers(SegmentPlan *plan, const uint8_t hdr[10], size_t head_size, size_t size)
{
    uint8_t ip_version, protocol = gso_protocol(hdr[1], &ip_version);
    size_t transport;

    plan->gso_size = get_le16(hdr + 4);
    if (!protocol || !plan->gso_size || !frame_parse(plan->head, head_size, &plan->info) ||
        !plan->info.l4 || plan->info.protocol != protocol ||
        (ip_version && plan->info.ip_version != ip_version)) {
        return false;
    }
    transport = frame_transport_len(plan->head, head_size, &plan->info);
    if (!transport) {
        return false;
    }
    if (hdr[0] & VIRTIO_NET_HDR_F_NEEDS_CSUM &&
        (plan->csum_start != plan->info.l4 || plan->csum_offset != check_offset(plan))) {
        return false;
    }
    plan->head_len = (unsigned)(plan->info.l4 + transport);
    plan->payload = size - plan->head_len;
    plan->segments = (unsigned)((plan->payload + plan->gso_size - 1) / plan->gso_size);
    return true;
}

void segment_plan(SegmentPlan *plan, const uint8_t hdr[10], const struct iovec *iov, unsigned cnt,
                  size_t skip, size_t size)
{
    bool csum = hdr[0] & VIRTIO_NET_HDR_F_NEEDS_CSUM;
    size_t head_size = size < FRAME_HEAD_SIZE ? size : FRAME_HEAD_SIZE;

    plan->kind = SEGMENT_BAD;
    plan->csum_start = get_le16(hdr + 6);
    plan->csum_offset = get_le16(hdr + 8);
    if (csum && (size_t)plan->csum_start + plan->csum_offset + 2 > size) {
        return;
    }
    if (hdr[1] != VIRTIO_NET_HDR_GSO_NONE) {
        iov_to_buf(iov, cnt, skip, plan->head, head_size);
        if (!plan_headers(plan, hdr, head_size, size)) {
            return;
        }
        if (plan->segments > 1) {
            plan->kind = SEGMENT_GSO;
            return;
        }
    }
    plan->kind = csum ? SEGMENT_CSUM : SEGMENT_PLAIN;
}

static void put_ip_lengths(const SegmentPlan *plan, unsigned i, size_t total, uint8_t *ip)
{
    if (plan->info.ip_version == 6) {
        frame_put16(ip + 4, (unsigned)(total - IPV6_LEN));
        return;
    }
    frame_put16(ip + 2, (unsigned)total);
    frame_put16(ip + 4, frame_get16(ip + 4) + i);
    frame_put16(ip + 10, 0);
    frame_put16(ip + 10, (uint16_t)~csum_fold(csum_add(0, ip, (size_t)(ip[0] & 15) * 4, false)));
}

static void put_transport(const SegmentPlan *plan, unsigned i, size_t len, uint8_t *l4)
{
    if (plan->info.protocol == IPPROTO_UDP) {
        frame_put16(l4 + 4, (unsigned)len);
        return;
    }
    frame_put32(l4 + TCP_SEQ, frame_get32(l4 + TCP_SEQ) + i * plan->gso_size);
    if (i > 0) {
        l4[TCP_FLAGS] &= (uint8_t)~TCP_CWR;
    }
    if (i + 1 < plan->segments) {
        l4[TCP_FLAGS] &= (uint8_t) ~(TCP_FIN | TCP_PSH);
    }
}

void segment_head(const SegmentPlan *plan, unsigned i, uint64_t payload_sum, uint8_t *head)
{
    const FrameInfo *info = &plan->info;
    size_t payload = segment_payload(plan, i), transport = plan->head_len - info->l4;
    uint8_t *l4 = head + info->l4, *check = l4 + check_offset(plan);
    uint64_t sum;
    uint16_t folded;

    memcpy(head, plan->head, plan->head_len);
    put_ip_lengths(plan, i, plan->head_len - info->l3 + payload, head + info->l3);
    put_transport(plan, i, transport + payload, l4);
    frame_put16(check, 0);
    sum = payload_sum + csum_add_pseudo(head, info, (uint32_t)(transport + payload));
    folded = (uint16_t)~csum_fold(csum_add(sum, l4, transport, false));
    if (!folded && info->protocol == IPPROTO_UDP) {
        folded = 0xffff; /* 0 would mean that there is none (RFC 768) */
    }
    frame_put16(check, folded);
}

uint16_t segment_checksum(const SegmentPlan *plan, const struct iovec *iov, unsigned cnt,
                          size_t skip, size_t size)
{
    uint16_t sum = (uint16_t)~csum_fold(
        csum_add_iov(0, iov, cnt, skip + plan->csum_start, size - plan->csum_start));

    return sum ? sum : 0xffff;
}
