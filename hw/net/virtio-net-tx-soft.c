/*
 * Transmit offloads that the peer does not do: checksums are completed and large frames cut into
 * segments on their way to it (x-soft-offloads).
 *
 * Frames of the hand that need it are turned into packets in an arena of the queue: a private
 * head, with the checksum in it, and behind it the payload where it lies in guest memory.  The
 * arena is filled with as many packets as a batch takes, of several frames if they are small, and
 * offered in one go.  A frame is finished when the peer has taken its last segment; what it did
 * not take is built anew next time, from the segment where it stopped.  Nothing is allocated
 * after the first such frame of a queue.
 *
 * The driver may change its memory meanwhile: then it sends garbage, from its own memory only.
 */
#include <string.h>

#include "hw/net/segment.h"
#include "hw/net/virtio-net-internal.h"
#include "util/iov.h"
#include "util/log.h"

/* Pieces of all packets of a batch: heads, and payload of one frame of the most pieces there are,
 * cut once more by each segment. */
#define SOFT_IOVS   2048
#define SOFT_PIECES 1000 /* of a frame: what a system call takes; more is copied into one */
#define SOFT_HEAD   (VIRTIO_NET_HDR_LEN_MAX + FRAME_HEAD_SIZE)

/* What became of one slot of the hand. */
typedef struct SoftSlot {
    unsigned packets;      /* of the batch, up to and with this slot's */
    unsigned first;        /* segment that its first packet is */
    bool complete, is_gso; /* complete: its last segment is in the batch */
} SoftSlot;

struct TxSoft {
    unsigned resume; /* segments of the hand's first frame that the peer has */
    unsigned packets, iovs, slots;
    bool bounce_used;
    SegmentPlan plan;
    SoftSlot slot[TX_BATCH];
    NetPacket pkts[TX_BATCH];
    struct iovec iov[SOFT_IOVS];
    uint8_t heads[TX_BATCH][SOFT_HEAD];
};

/* Where a frame lies. */
typedef struct SoftSource {
    const struct iovec *iov;
    unsigned cnt;
    size_t skip, size;
    bool linear; /* in the bounce buffer */
} SoftSource;

bool virtio_net_tx_is_soft(const VirtIONet *n, uint8_t flags, uint8_t gso_type)
{
    const NetOffloads *native = &n->tx_native;

    if (!n->tx_soft) {
        return false;
    }
    if ((flags & VIRTIO_NET_HDR_F_NEEDS_CSUM && !native->csum) ||
        (gso_type & VIRTIO_NET_HDR_GSO_ECN && !native->ecn)) {
        return true;
    }
    switch (gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_NONE:
        return false;
    case VIRTIO_NET_HDR_GSO_TCPV4:
        return !native->tso4;
    case VIRTIO_NET_HDR_GSO_TCPV6:
        return !native->tso6;
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        return !native->uso4 || !native->uso6;
    case VIRTIO_NET_HDR_GSO_UDP:
        return !native->ufo;
    default:
        /* The kernel judges what it is given; nobody else would. */
        return !native->csum;
    }
}

static void soft_linearise(VirtIONetQueue *q, SoftSource *src)
{
    static const size_t room = NET_MAX_FRAME;
    TxSoft *soft = q->tx_soft;

    iov_to_buf(src->iov, src->cnt, src->skip, q->tx_bounce, MIN(src->size, room));
    q->tx_bounce_iov = (struct iovec){q->tx_bounce, src->size};
    *src = (SoftSource){&q->tx_bounce_iov, 1, 0, src->size, true};
    soft->bounce_used = true;
}

/* Begins a packet: a head of @bytes behind the header that the peer expects.  Returns the head. */
static uint8_t *soft_packet(VirtIONetQueue *q, unsigned bytes)
{
    TxSoft *soft = q->tx_soft;
    unsigned peer_hdr = q->nc->vnet_hdr_len;
    uint8_t *head = soft->heads[soft->packets];
    NetPacket *pkt = &soft->pkts[soft->packets++];

    memset(head, 0, peer_hdr);
    *pkt = (NetPacket){.iov = &soft->iov[soft->iovs], .size = peer_hdr + bytes};
    if (peer_hdr + bytes) {
        pkt->iov[pkt->iovcnt++] = (struct iovec){head, peer_hdr + bytes};
    }
    soft->iovs += pkt->iovcnt;
    return head + peer_hdr;
}

/* Adds the @bytes of the frame from @offset on to the last packet. */
static void soft_payload(TxSoft *soft, const SoftSource *src, size_t offset, size_t bytes)
{
    NetPacket *pkt = &soft->pkts[soft->packets - 1];
    unsigned got = iov_slice(&soft->iov[soft->iovs], SOFT_IOVS - soft->iovs, src->iov, src->cnt,
                             src->skip + offset, bytes);

    pkt->iovcnt += got;
    pkt->size += bytes;
    soft->iovs += got;
}

/* The whole frame, with a new checksum in its head if @plan says so. */
static void build_one(VirtIONetQueue *q, SoftSource *src)
{
    TxSoft *soft = q->tx_soft;
    const SegmentPlan *plan = &soft->plan;
    unsigned at = plan->csum_start + plan->csum_offset, bytes = 0;
    uint16_t sum;
    uint8_t *head;

    if (plan->kind == SEGMENT_CSUM) {
        sum = segment_checksum(plan, src->iov, src->cnt, src->skip, src->size);
        bytes = at + 2;
        if (bytes > FRAME_HEAD_SIZE) {
            /* Headers longer than any head: the frame is copied, and the sum put into the copy. */
            if (!src->linear) {
                soft_linearise(q, src);
            }
            frame_put16(q->tx_bounce + at, sum);
            bytes = 0;
        }
    }
    head = soft_packet(q, bytes);
    if (bytes) {
        iov_to_buf(src->iov, src->cnt, src->skip, head, bytes);
        frame_put16(head + at, sum);
    }
    soft_payload(soft, src, bytes, src->size - bytes);
}

/* A place in a list of buffers. */
typedef struct Cursor {
    const struct iovec *iov;
    size_t offset;
} Cursor;

static void cursor_skip(Cursor *c, size_t bytes)
{
    bytes += c->offset;
    while (bytes && bytes >= c->iov->iov_len) {
        bytes -= c->iov->iov_len;
        c->iov++;
    }
    c->offset = bytes;
}

/* Adds @bytes at the cursor to the last packet; returns their sum. */
static uint64_t cursor_payload(TxSoft *soft, Cursor *c, size_t bytes)
{
    NetPacket *pkt = &soft->pkts[soft->packets - 1];
    uint64_t sum = 0;
    bool odd = false;

    pkt->size += bytes;
    while (bytes) {
        size_t len = MIN(c->iov->iov_len - c->offset, bytes);
        uint8_t *data = (uint8_t *)c->iov->iov_base + c->offset;

        if (len) {
            soft->iov[soft->iovs++] = (struct iovec){data, len};
            pkt->iovcnt++;
            sum = csum_add(sum, data, len, odd);
            odd ^= len & 1;
        }
        bytes -= len;
        c->offset += len;
        if (c->offset == c->iov->iov_len) {
            c->iov++;
            c->offset = 0;
        }
    }
    return sum;
}

/* Segments from @first on, as far as there is room.  Returns how many. */
static unsigned build_segments(VirtIONetQueue *q, const SoftSource *src, unsigned first)
{
    TxSoft *soft = q->tx_soft;
    const SegmentPlan *plan = &soft->plan;
    Cursor cursor = {src->iov, 0};
    unsigned i = first;

    cursor_skip(&cursor, src->skip + plan->head_len + (size_t)first * plan->gso_size);
    while (i < plan->segments && soft->packets < TX_BATCH &&
           soft->iovs + src->cnt + 2 <= SOFT_IOVS) {
        uint8_t *head = soft_packet(q, plan->head_len);

        segment_head(plan, i, cursor_payload(soft, &cursor, segment_payload(plan, i)), head);
        i++;
    }
    return i - first;
}

static void soft_reject(VirtIONetQueue *q, unsigned at, NetDropReason reason)
{
    guest_error("virtio-net: queue %u: offloads asked for do not fit the frame of %u bytes",
                q->index, q->tx_hand.sizes[at]);
    virtio_net_tx_drop(q, reason);
    q->tx_hand.kinds[at] = TX_BAD;
}

/* Puts slot @at's packets into the arena.  False: there is no room for more. */
static bool soft_build(VirtIONetQueue *q, unsigned at, unsigned first)
{
    TxSoft *soft = q->tx_soft;
    VirtQueueElement *elem = q->tx_hand.elems[at];
    SoftSlot *slot = &soft->slot[soft->slots];
    unsigned hdr_len = q->n->guest_hdr_len, peer_hdr = q->nc->vnet_hdr_len;
    SoftSource src = {elem->sg, elem->out_num, hdr_len, q->tx_hand.sizes[at], false};
    uint8_t hdr[VIRTIO_NET_HDR_LEN_SHORT];

    if (soft->bounce_used || soft->packets == TX_BATCH ||
        (soft->packets && soft->iovs + MIN(src.cnt, SOFT_PIECES) + 2 > SOFT_IOVS)) {
        return false;
    }
    *slot = (SoftSlot){.packets = soft->packets, .first = first, .complete = true};
    soft->slots++;
    iov_to_buf(elem->sg, elem->out_num, 0, hdr, sizeof(hdr));
    if (peer_hdr + src.size > NET_MAX_FRAME) {
        soft_reject(q, at, NET_DROP_TOO_LONG);
        return true;
    }
    if (src.cnt > SOFT_PIECES) {
        soft_linearise(q, &src);
    }
    segment_plan(&soft->plan, hdr, src.iov, src.cnt, src.skip, src.size);
    switch (soft->plan.kind) {
    case SEGMENT_BAD:
        soft_reject(q, at, NET_DROP_BAD_HEADER);
        break;
    case SEGMENT_GSO:
        slot->is_gso = true;
        first += build_segments(q, &src, first);
        slot->complete = first >= soft->plan.segments;
        break;
    default:
        /* With @first set it was large once, and most of it has left. */
        if (!first) {
            build_one(q, &src);
        }
    }
    slot->packets = soft->packets;
    return slot->complete;
}

/* Counts what the peer took; returns how many slots are finished. */
static unsigned soft_account(VirtIONetQueue *q, unsigned at, unsigned taken)
{
    TxSoft *soft = q->tx_soft;
    VirtIONetTxGso *gso = &q->tx_gso;
    unsigned done = 0, packet = 0;

    while (done < soft->slots) {
        SoftSlot *slot = &soft->slot[done];
        unsigned from = packet;

        for (; packet < MIN(slot->packets, taken); packet++) {
            if (slot->is_gso) {
                gso->segments++;
                gso->segments_bytes += soft->pkts[packet].size - q->nc->vnet_hdr_len;
            }
        }
        if (!slot->complete || slot->packets > taken) {
            soft->resume = slot->first + (packet - from);
            return done;
        }
        soft->resume = 0;
        if (slot->is_gso) {
            gso->packets++;
            gso->bytes += q->tx_hand.sizes[at + done];
        }
        done++;
    }
    return done;
}

unsigned virtio_net_tx_send_soft(VirtIONetQueue *q, unsigned at, unsigned run)
{
    TxSoft *soft = q->tx_soft;
    unsigned done = 0;

    while (done < run) {
        unsigned next = done, first = soft->resume, taken;

        soft->packets = soft->iovs = soft->slots = 0;
        soft->bounce_used = false;
        while (next < run && soft_build(q, at + next, first)) {
            next++;
            first = 0;
        }
        taken = soft->packets ? net_send_batch(q->nc, soft->pkts, soft->packets) : 0;
        done += soft_account(q, at + done, taken);
        if (taken < soft->packets) {
            break;
        }
    }
    return done;
}

void virtio_net_tx_soft_alloc(VirtIONetQueue *q)
{
    if (!q->tx_soft) {
        q->tx_soft = g_new0(TxSoft, 1);
    }
}

void virtio_net_tx_soft_forget(VirtIONetQueue *q)
{
    if (q->tx_soft) {
        q->tx_soft->resume = 0;
    }
}
