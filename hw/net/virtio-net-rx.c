/*
 * Receiving: from the peer into the buffers that the driver posted.
 *
 * The peer offers a batch; each frame is filtered by a private copy of its first bytes, and its
 * header and data are spread over one buffer (plain) or as many as it needs (mergeable).  A batch
 * ends with one used-index store and one interrupt decision.
 *
 * Buffers popped and not used yet are in the queue's hand.  What a batch leaves over goes back to
 * the ring, except when a frame needs more than there are: then its buffers stay in the hand, the
 * ring is empty, and the next buffer that the driver adds is sure to be notified.
 *
 * Notifications are off while buffers remain and on from when they run out; the peer is refused
 * frames then, and is told (net_peer_writable) when the driver has notified.  A frame is dropped
 * only where waiting could not help: unwanted, too long, or larger than the buffers can ever be.
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/iov.h"
#include "util/log.h"

#define RX_PREFETCH 64

typedef enum RxResult { RX_TAKEN, RX_NO_BUFFERS } RxResult;

/* A frame on its way. */
typedef struct RxFrame {
    const NetPacket *pkt;
    size_t skip;                          /* the peer's header */
    size_t size;                          /* without it */
    uint8_t hdr[VIRTIO_NET_HDR_LEN_FULL]; /* as the driver will see it */
} RxFrame;

static VirtQueueElement **rx_slot(VirtIONetQueue *q, unsigned i)
{
    return &q->rx_hand.elems[(q->rx_hand.first + i) % VIRTQUEUE_MAX_SIZE];
}

/* Buffer @i of the hand, popped when it is not there yet; @want more will be needed soon. */
static VirtQueueElement *rx_peek(VirtIONetQueue *q, unsigned i, unsigned want)
{
    RxHand *hand = &q->rx_hand;

    if (i >= hand->count) {
        VirtQueueElement *more[RX_PREFETCH];
        unsigned room = MIN(VIRTQUEUE_MAX_SIZE - hand->count, RX_PREFETCH);
        unsigned got = room ? virtqueue_pop_batch(q->rx_vq, more, CLAMP(want, 1, room)) : 0;

        if (!hand->count) {
            hand->generation = q->n->parent_obj.dma->generation;
        }
        for (unsigned j = 0; j < got; j++) {
            *rx_slot(q, hand->count++) = more[j];
        }
    }
    return i < hand->count ? *rx_slot(q, i) : NULL;
}

/* Marks the first buffer of the hand used. */
static void rx_use(VirtIONetQueue *q, size_t len)
{
    virtqueue_fill(q->rx_vq, *rx_slot(q, 0), (uint32_t)len, q->rx_filled++);
    q->rx_hand.first = (q->rx_hand.first + 1) % VIRTQUEUE_MAX_SIZE;
    q->rx_hand.count--;
}

/* Returns buffer @i of the hand unused: nothing can be put into it. */
static void rx_reject(VirtIONetQueue *q, unsigned i)
{
    VirtQueueElement *bad = *rx_slot(q, i);

    guest_error("virtio-net: queue %u: receive buffer of %zu bytes has no room for the header",
                q->index, bad->in_size);
    q->rx_stats.bad_buffers++;
    while (i > 0) {
        *rx_slot(q, i) = *rx_slot(q, i - 1);
        i--;
    }
    *rx_slot(q, 0) = bad;
    rx_use(q, 0);
}

/* Gives the whole hand back to the ring. */
static void rx_give_back(VirtIONetQueue *q)
{
    RxHand *hand = &q->rx_hand;

    while (hand->count) {
        virtqueue_unpop(q->rx_vq, *rx_slot(q, --hand->count));
    }
}

/* Publishes what is filled; one interrupt decision. */
static void rx_flush(VirtIONetQueue *q)
{
    if (!q->rx_filled) {
        return;
    }
    virtqueue_flush(q->rx_vq, q->rx_filled);
    q->rx_filled = 0;
    q->rx_stats.batches++;
    if (virtqueue_should_interrupt(q->rx_vq)) {
        q->rx_stats.interrupts++;
        virtio_notify_now(&q->n->parent_obj, q->rx_vq);
    }
}

/* Notifications as the ring asks for: on if it is empty.  False: buffers are there after all. */
static bool rx_await_buffers(VirtIONetQueue *q)
{
    if (virtqueue_empty(q->rx_vq) && !virtqueue_enable_notify(q->rx_vq)) {
        return true;
    }
    virtqueue_disable_notify(q->rx_vq);
    return false;
}

/* Can buffers 0 … @count of the hand never be enough?  The driver has no descriptor left to add
 * another one with. */
static bool rx_exhausted(VirtIONetQueue *q, unsigned count)
{
    unsigned descs = 0;

    for (unsigned i = 0; i < count; i++) {
        descs += (*rx_slot(q, i))->ndescs;
    }
    return descs >= virtqueue_num(q->rx_vq);
}

/* The buffer for a frame of @need bytes, header included. */
static RxResult rx_gather_plain(VirtIONetQueue *q, size_t need, unsigned want, unsigned *count)
{
    VirtQueueElement *elem;

    *count = 0;
    while ((elem = rx_peek(q, 0, want)) && elem->in_size < q->n->guest_hdr_len) {
        rx_reject(q, 0);
    }
    if (!elem) {
        return RX_NO_BUFFERS;
    }
    *count = elem->in_size >= need;
    return RX_TAKEN;
}

/* As many buffers as @need bytes take.  *count is 0 when they can never be enough. */
static RxResult rx_gather_mergeable(VirtIONetQueue *q, size_t need, unsigned want, unsigned *count)
{
    size_t room = 0;

    *count = 0;
    while (room < need) {
        VirtQueueElement *elem = rx_peek(q, *count, want);

        if (!elem) {
            if (!rx_exhausted(q, *count)) {
                return RX_NO_BUFFERS;
            }
            *count = 0;
            return RX_TAKEN;
        }
        if (elem->in_size < (*count ? 1 : q->n->guest_hdr_len)) {
            rx_reject(q, *count);
            continue;
        }
        room += elem->in_size;
        ++*count;
    }
    return RX_TAKEN;
}

/* Writes the frame into the first @count buffers of the hand and marks them used. */
static void rx_write(VirtIONetQueue *q, RxFrame *frame, unsigned count)
{
    unsigned hdr_len = q->n->guest_hdr_len;
    size_t offset = hdr_len, done = 0;

    if (hdr_len == VIRTIO_NET_HDR_LEN_FULL) {
        frame->hdr[10] = (uint8_t)count; /* num_buffers, little-endian */
        frame->hdr[11] = (uint8_t)(count >> 8);
    }
    iov_from_buf(virtqueue_in_sg(*rx_slot(q, 0)), (*rx_slot(q, 0))->in_num, 0, frame->hdr, hdr_len);
    for (unsigned i = 0; i < count; i++) {
        VirtQueueElement *elem = *rx_slot(q, 0);
        size_t bytes = MIN(elem->in_size - offset, frame->size - done);

        iov_copy(virtqueue_in_sg(elem), elem->in_num, offset, frame->pkt->iov, frame->pkt->iovcnt,
                 frame->skip + done, bytes);
        done += bytes;
        rx_use(q, offset + bytes);
        offset = 0;
    }
    q->rx_stats.packets++;
    q->rx_stats.bytes += frame->size;
    q->rx_stats.buffers += count;
}

static RxResult rx_drop(VirtIONetQueue *q, NetDropReason reason)
{
    virtio_net_rx_drop(q, reason);
    return RX_TAKEN;
}

/* Takes one frame (or drops it, which is counted) if there are buffers.  @want: frames that are
 * left in the batch, this one included. */
static RxResult rx_packet(VirtIONetQueue *q, const NetPacket *pkt, unsigned want)
{
    VirtIONet *n = q->n;
    uint8_t head[32 + RX_FILTER_HEAD_SIZE] = {0};
    unsigned peer_hdr = q->nc->vnet_hdr_len, count;
    RxFrame frame = {.pkt = pkt, .skip = peer_hdr};

    if (pkt->size > NET_MAX_FRAME) {
        return rx_drop(q, NET_DROP_TOO_LONG);
    }
    if (pkt->size < peer_hdr || peer_hdr > 32) {
        return rx_drop(q, NET_DROP_BAD_HEADER);
    }
    frame.size = pkt->size - peer_hdr;
    /* The sender's memory may be another guest's: look at a copy. */
    iov_to_buf(pkt->iov, pkt->iovcnt, 0, head, peer_hdr + RX_FILTER_HEAD_SIZE);
    if (!rx_filter_match(&n->rx_filter, head + peer_hdr)) {
        return rx_drop(q, NET_DROP_FILTERED);
    }
    memcpy(frame.hdr, head, MIN(peer_hdr, VIRTIO_NET_HDR_LEN_SHORT));

    size_t need = n->guest_hdr_len + frame.size;
    RxResult result = n->mergeable ? rx_gather_mergeable(q, need, want, &count)
                                   : rx_gather_plain(q, need, want, &count);

    if (result != RX_TAKEN) {
        return result;
    }
    if (!count) {
        guest_error("virtio-net: queue %u: frame of %zu bytes is larger than the receive buffers",
                    q->index, frame.size);
        return rx_drop(q, NET_DROP_TOO_LONG);
    }
    rx_write(q, &frame, count);
    return RX_TAKEN;
}

/* Up to x-rxburst frames; returns how many were taken. */
static unsigned rx_burst(VirtIONetQueue *q, NetPacket *pkts, unsigned n)
{
    unsigned taken = 0;

    while (taken < n && q->running) {
        if (rx_packet(q, &pkts[taken], n - taken) == RX_TAKEN) {
            taken++;
            continue;
        }
        /* Publish before waiting: the driver can only refill what it got back. */
        rx_flush(q);
        if (rx_await_buffers(q)) {
            q->rx_stats.stalls++;
            return taken;
        }
    }
    rx_give_back(q);
    rx_flush(q);
    rx_await_buffers(q);
    return taken;
}

/* The hand's buffers lie in a memory map that has been replaced: have them popped again. */
static void rx_check_generation(VirtIONetQueue *q)
{
    if (q->rx_hand.count && q->rx_hand.generation != q->n->parent_obj.dma->generation) {
        rx_give_back(q);
    }
}

unsigned virtio_net_receive_batch(NetClient *nc, NetPacket *pkts, unsigned n)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;
    unsigned taken = 0;

    if (!q->running || !virtqueue_ready(q->rx_vq)) {
        return 0;
    }
    rx_check_generation(q);
    while (taken < n) {
        unsigned burst = MIN(n - taken, (unsigned)q->n->conf.rx_burst);
        unsigned got = rx_burst(q, pkts + taken, burst);

        taken += got;
        if (got < burst) {
            break;
        }
    }
    return taken;
}

bool virtio_net_can_receive(NetClient *nc)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;

    return q->running && virtqueue_ready(q->rx_vq) && !rx_await_buffers(q);
}

static void rx_notified(void *opaque)
{
    VirtIONetQueue *q = opaque;

    q->rx_stats.notifications++;
    if (q->running && virtqueue_ready(q->rx_vq) && !rx_await_buffers(q)) {
        net_peer_writable(q->nc);
    }
}

void virtio_net_rx_handler(VirtIODevice *vdev, VirtQueue *vq)
{
    VirtIONet *n = VIRTIO_NET(vdev);
    VirtIONetQueue *q = &n->queues[virtqueue_index(vq) / 2];

    if (event_loop_is_current(n->loop)) {
        rx_notified(q);
    } else {
        bh_schedule(q->rx_bh);
    }
}

void virtio_net_rx_init(VirtIONetQueue *q)
{
    q->rx_bh = bh_new(q->n->loop, rx_notified, q);
}

void virtio_net_rx_cleanup(VirtIONetQueue *q)
{
    bh_delete(q->rx_bh);
}

void virtio_net_rx_start(VirtIONetQueue *q)
{
    if (virtqueue_ready(q->rx_vq) && !rx_await_buffers(q)) {
        net_peer_writable(q->nc);
    }
}

void virtio_net_rx_stop(VirtIONetQueue *q)
{
    rx_give_back(q);
}

void virtio_net_rx_reset(VirtIONetQueue *q)
{
    bh_cancel(q->rx_bh);
    q->rx_hand.count = 0;
    q->rx_filled = 0;
}
