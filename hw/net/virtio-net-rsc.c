/*
 * Receive-side coalescing (RSC_EXT; virtio 1.4, 5.1.6.4): TCP segments of one flow that arrive one
 * behind the other are given to the driver as one large frame, with the number of segments and of
 * duplicate acknowledgements in its header.
 *
 * A flow's first segment is copied into a buffer of the queue's; those that continue it exactly
 * (next sequence number, same options, no flag but ACK and PSH, a good checksum) are added behind
 * it.  The frame is passed on when a segment is short or has PSH, when it is full, when anything
 * else of that flow comes (which is passed on after it, so that order is kept), and at the latest
 * rsc_interval after the first of all flows that wait.  A frame that the driver has no buffer for
 * waits, and the back end with it.
 *
 * The timer runs in virtual time, in the queue's loop.
 */
#include <netinet/in.h>
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/iov.h"

#define RSC_FLOWS  16
#define RSC_IP_MAX 65535 /* bytes of an IP packet */
#define TCP_SEQ    4
#define TCP_ACK    8
#define TCP_FLAGS  13
#define TCP_WINDOW 14
#define TCP_CHECK  16
#define TCP_FIXED  20
#define FLAG_ACK   0x10
#define FLAG_PSH   0x08
#define IPV4_LEN   20
#define IPV6_LEN   40

/* What a TCP segment says. */
typedef struct RscSegment {
    FrameInfo info;
    unsigned head_len; /* of all headers */
    uint32_t seq, ack;
    uint16_t window;
    uint8_t flags;
    size_t payload;
} RscSegment;

typedef struct RscFlow {
    bool used;
    RscSegment first;
    uint8_t hdr[VIRTIO_NET_HDR_LEN_MAX]; /* of the first segment */
    uint8_t csum[2];
    uint16_t csum_at;
    uint32_t next_seq, ack;
    uint16_t window;
    bool push;
    unsigned segments, dup_acks;
    uint64_t order; /* of beginning */
    size_t size;
    uint8_t bytes[NET_MAX_FRAME];
} RscFlow;

struct VirtIONetRsc {
    Timer timer;
    unsigned count; /* flows in use */
    uint64_t next_order;
    RscFlow flow[RSC_FLOWS];
};

static void put_le16(uint8_t *p, unsigned value)
{
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
}

/* --- looking at segments --- */

/* Addresses and ports in one piece each: IPv4's lie before the transport header, IPv6's too. */
static const uint8_t *flow_addresses(const uint8_t *head, const RscSegment *s, size_t *len)
{
    *len = s->info.ip_version == 4 ? 8 : 32;
    return head + s->info.l3 + (s->info.ip_version == 4 ? 12 : 8);
}

static bool same_flow(const RscFlow *flow, const uint8_t *head, const RscSegment *s)
{
    size_t len;
    const uint8_t *a = flow_addresses(head, s, &len);

    if (flow->first.info.ip_version != s->info.ip_version || flow->first.info.l4 != s->info.l4) {
        return false;
    }
    return !memcmp(a, flow_addresses(flow->bytes, &flow->first, &len), len) &&
           !memcmp(head + s->info.l4, flow->bytes + flow->first.info.l4, 4);
}

/* Takes a TCP segment apart; false: it is none that we know our way in. */
static bool parse_segment(const RxFrame *frame, RscSegment *s)
{
    const uint8_t *l4;
    size_t len;

    if (!frame_parse(frame->head, frame->head_len, &s->info) || !s->info.l4 ||
        s->info.protocol != IPPROTO_TCP || s->info.tags || s->info.extensions) {
        return false;
    }
    len = frame_transport_len(frame->head, frame->head_len, &s->info);
    if (!len || s->info.l4 + len > frame->size) {
        return false;
    }
    l4 = frame->head + s->info.l4;
    s->head_len = (unsigned)(s->info.l4 + len);
    s->seq = frame_get32(l4 + TCP_SEQ);
    s->ack = frame_get32(l4 + TCP_ACK);
    s->flags = l4[TCP_FLAGS];
    s->window = frame_get16(l4 + TCP_WINDOW);
    s->payload = frame->size - s->head_len;
    return true;
}

/* Its IP header: plain, and about this frame to its last byte? */
static bool ip_is_plain(const RxFrame *frame, const RscSegment *s)
{
    const uint8_t *ip = frame->head + s->info.l3;
    size_t size = frame->size - s->info.l3;

    if (s->info.ip_version == 6) {
        return frame_get16(ip + 4) + (size_t)IPV6_LEN == size;
    }
    return (ip[0] & 15u) * 4 == IPV4_LEN && frame_get16(ip + 2) == size &&
           csum_fold(csum_add(0, ip, IPV4_LEN, false)) == 0xffff;
}

/* Only a segment that is right may vanish in a larger one, whose checksum is made anew. */
static bool checksum_is_good(const RxFrame *frame, const RscSegment *s)
{
    size_t len = frame->size - s->info.l4;
    uint64_t sum = csum_add_pseudo(frame->head, &s->info, (uint32_t)len);

    if (frame->hdr[0] & (VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID)) {
        return true;
    }
    return csum_fold(csum_add_iov(sum, frame->pkt->iov, frame->pkt->iovcnt,
                                  frame->skip + s->info.l4, len)) == 0xffff;
}

static bool may_coalesce(const VirtIONetQueue *q, const RxFrame *frame, const RscSegment *s)
{
    const NetOffloads *taken = &q->n->rx_offloads;

    return (s->info.ip_version == 4 ? taken->tso4 : taken->tso6) && !frame->csum_at &&
           frame->hdr[1] == VIRTIO_NET_HDR_GSO_NONE && (s->flags & FLAG_ACK) &&
           !(s->flags & (uint8_t) ~(FLAG_ACK | FLAG_PSH)) && ip_is_plain(frame, s) &&
           checksum_is_good(frame, s);
}

/* Class, hop limit, fragmentation and the like, and TCP's options: they can be told once only. */
static bool same_options(const RscFlow *flow, const RxFrame *frame, const RscSegment *s)
{
    const uint8_t *old = flow->bytes + s->info.l3, *new = frame->head + s->info.l3;
    size_t from = s->info.l4 + TCP_FIXED;
    bool same_ip = s->info.ip_version == 4
                       ? old[1] == new[1] && old[8] == new[8] && !memcmp(old + 6, new + 6, 2)
                       : old[7] == new[7] && !memcmp(old, new, 4);

    return same_ip && flow->first.head_len == s->head_len &&
           !memcmp(flow->bytes + from, frame->head + from, s->head_len - from);
}

/* --- passing on --- */

/* Makes the flow's headers those of one large segment. */
static void finish_headers(VirtIONetQueue *q, RscFlow *flow)
{
    const RscSegment *first = &flow->first;
    uint8_t *ip = flow->bytes + first->info.l3, *l4 = flow->bytes + first->info.l4;
    uint32_t transport = (uint32_t)(flow->size - first->info.l4);

    if (first->info.ip_version == 6) {
        frame_put16(ip + 4, (unsigned)(flow->size - first->info.l3 - IPV6_LEN));
    } else {
        frame_put16(ip + 2, (unsigned)(flow->size - first->info.l3));
        frame_put16(ip + 10, 0);
        frame_put16(ip + 10, (uint16_t)~csum_fold(csum_add(0, ip, IPV4_LEN, false)));
    }
    frame_put32(l4 + TCP_ACK, flow->ack);
    frame_put16(l4 + TCP_WINDOW, flow->window);
    l4[TCP_FLAGS] |= flow->push ? FLAG_PSH : 0;
    frame_put16(l4 + TCP_CHECK, csum_fold(csum_add_pseudo(flow->bytes, &first->info, transport)));

    flow->hdr[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_RSC_INFO;
    flow->hdr[1] =
        first->info.ip_version == 4 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
    put_le16(flow->hdr + 2, first->head_len);
    put_le16(flow->hdr + 4, (unsigned)first->payload);
    put_le16(flow->hdr + 6, flow->segments);
    put_le16(flow->hdr + 8, flow->dup_acks);
    q->rx_gso.packets++;
    q->rx_gso.bytes += flow->size;
    q->rx_gso.coalesced_packets++;
    q->rx_gso.coalesced_bytes += flow->size;
}

/* False: there are no buffers; the flow waits as it is. */
static bool flow_pass(VirtIONetQueue *q, RscFlow *flow)
{
    struct iovec iov = {flow->bytes, flow->size};
    NetPacket pkt = {&iov, 1, flow->size};
    RxFrame frame = {.pkt = &pkt, .size = flow->size};

    if ((flow->segments > 1 || flow->dup_acks) && !(flow->hdr[0] & VIRTIO_NET_HDR_F_RSC_INFO)) {
        finish_headers(q, flow);
    }
    memcpy(frame.hdr, flow->hdr, sizeof(frame.hdr));
    if (!virtio_net_rx_deliver(q, &frame, 1)) {
        return false;
    }
    flow->used = false;
    if (--q->rsc->count == 0) {
        timer_del(&q->rsc->timer);
    }
    return true;
}

/* The frame that is finished already, or is full, takes no more. */
static bool flow_is_closed(const RscFlow *flow)
{
    return flow->hdr[0] & VIRTIO_NET_HDR_F_RSC_INFO;
}

static RscFlow *oldest_flow(VirtIONetRsc *rsc)
{
    RscFlow *oldest = NULL;

    for (unsigned i = 0; i < RSC_FLOWS; i++) {
        RscFlow *flow = &rsc->flow[i];

        if (flow->used && (!oldest || flow->order < oldest->order)) {
            oldest = flow;
        }
    }
    return oldest;
}

/* Passes all flows on; false: there are no buffers. */
static bool rsc_flush(VirtIONetQueue *q)
{
    while (q->rsc && q->rsc->count) {
        if (!flow_pass(q, oldest_flow(q->rsc))) {
            return false;
        }
    }
    return true;
}

bool virtio_net_rsc_resume(VirtIONetQueue *q)
{
    q->rsc_stalled = !rsc_flush(q);
    if (q->rsc_stalled) {
        return false;
    }
    virtio_net_rx_finish(q);
    return true;
}

static void rsc_expired(void *opaque)
{
    VirtIONetQueue *q = opaque;

    if (q->running && virtqueue_ready(q->rx_vq)) {
        virtio_net_rsc_resume(q);
    }
}

/* --- collecting --- */

static bool flow_begin(VirtIONetQueue *q, const RxFrame *frame, const RscSegment *s)
{
    VirtIONetRsc *rsc = q->rsc;
    RscFlow *flow = rsc->flow;

    if (rsc->count == RSC_FLOWS && !flow_pass(q, oldest_flow(rsc))) {
        return false;
    }
    while (flow->used) {
        flow++;
    }
    flow->used = true;
    flow->first = *s;
    memcpy(flow->hdr, frame->hdr, sizeof(flow->hdr));
    iov_to_buf(frame->pkt->iov, frame->pkt->iovcnt, frame->skip, flow->bytes, frame->size);
    memcpy(flow->bytes, frame->head, s->head_len); /* the headers that were looked at */
    flow->size = frame->size;
    flow->next_seq = s->seq + (uint32_t)s->payload;
    flow->ack = s->ack;
    flow->window = s->window;
    flow->push = false;
    flow->segments = 1;
    flow->dup_acks = 0;
    flow->order = rsc->next_order++;
    if (rsc->count++ == 0) {
        timer_mod_ns(&rsc->timer,
                     clock_get_ns(CLOCK_VIRTUAL) + (int64_t)q->n->conf.rsc_interval_ns);
    }
    return true;
}

static bool flow_fits(const RscFlow *flow, const RscSegment *s)
{
    return flow->size - flow->first.info.l3 + s->payload <= RSC_IP_MAX &&
           flow->size + s->payload <= NET_MAX_FRAME - VIRTIO_NET_HDR_LEN_MAX;
}

static void flow_add(RscFlow *flow, const RxFrame *frame, const RscSegment *s)
{
    iov_to_buf(frame->pkt->iov, frame->pkt->iovcnt, frame->skip + s->head_len,
               flow->bytes + flow->size, s->payload);
    flow->size += s->payload;
    flow->next_seq += (uint32_t)s->payload;
    flow->ack = s->ack;
    flow->window = s->window;
    flow->push |= (s->flags & FLAG_PSH) != 0;
    flow->segments++;
}

/* Adds what continues the flow; false: the segment has to come behind it. */
static bool flow_continue(RscFlow *flow, const RxFrame *frame, const RscSegment *s)
{
    bool newer = (int32_t)(s->ack - flow->ack) >= 0;

    if (flow_is_closed(flow) || s->seq != flow->next_seq || !newer ||
        !same_options(flow, frame, s)) {
        return false;
    }
    if (!s->payload) {
        /* The same acknowledgement again, and nothing else in it. */
        if (s->ack != flow->ack || s->window != flow->window || flow->dup_acks == UINT16_MAX) {
            return false;
        }
        flow->dup_acks++;
        return true;
    }
    if (s->payload > flow->first.payload || !flow_fits(flow, s)) {
        return false;
    }
    flow_add(flow, frame, s);
    return true;
}

/* Is the frame complete with this segment? */
static bool flow_ends(const RscFlow *flow, const RscSegment *s)
{
    return s->flags & FLAG_PSH || s->payload < flow->first.payload ||
           !flow_fits(flow, &flow->first);
}

static RscFlow *find_flow(VirtIONetRsc *rsc, const RxFrame *frame, const RscSegment *s)
{
    for (unsigned i = 0; i < RSC_FLOWS && rsc->count; i++) {
        if (rsc->flow[i].used && same_flow(&rsc->flow[i], frame->head, s)) {
            return &rsc->flow[i];
        }
    }
    return NULL;
}

RscResult virtio_net_rsc_receive(VirtIONetQueue *q, const RxFrame *frame)
{
    VirtIONetRsc *rsc = q->rsc;
    RscSegment s;
    RscFlow *flow;
    bool good;

    if (!parse_segment(frame, &s)) {
        return RSC_PASS;
    }
    flow = find_flow(rsc, frame, &s);
    good = may_coalesce(q, frame, &s);
    if (flow && good && flow_continue(flow, frame, &s)) {
        /* A frame that cannot be passed on yet goes with the timer, or when there are buffers. */
        if (s.payload && flow_ends(flow, &s) && !flow_pass(q, flow)) {
            q->rsc_stalled = true;
        }
        return RSC_TAKEN;
    }
    if (flow && !flow_pass(q, flow)) {
        return RSC_WAIT;
    }
    if (!good || !s.payload || s.flags & FLAG_PSH) {
        return RSC_PASS;
    }
    return flow_begin(q, frame, &s) ? RSC_TAKEN : RSC_WAIT;
}

/* --- life --- */

void virtio_net_rsc_enable(VirtIONetQueue *q, bool on)
{
    if (on && !q->rsc) {
        q->rsc = g_new0(VirtIONetRsc, 1);
        timer_init(&q->rsc->timer, q->n->loop, CLOCK_VIRTUAL, rsc_expired, q);
    } else if (!on && q->rsc) {
        virtio_net_rsc_reset(q);
        g_clear_pointer(&q->rsc, g_free);
    }
}

void virtio_net_rsc_reset(VirtIONetQueue *q)
{
    q->rsc_stalled = false;
    if (!q->rsc) {
        return;
    }
    timer_del(&q->rsc->timer);
    for (unsigned i = 0; i < RSC_FLOWS; i++) {
        if (q->rsc->flow[i].used) {
            q->rsc->flow[i].used = false;
            virtio_net_rx_drop(q, NET_DROP_NOT_READY);
        }
    }
    q->rsc->count = 0;
}
