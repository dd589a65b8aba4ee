/*
 * Receiving: from the peer into the buffers that the driver posted.
 *
 * The peer offers a batch; each frame is filtered, hashed and steered to a queue pair by a private
 * copy of its first bytes, and its header and data are spread over one buffer (plain) or as many as
 * it needs (mergeable).  A batch ends with one used-index store and one interrupt decision for each
 * queue that got something.
 *
 * Buffers popped and not used yet are in the queue's hand.  What a batch leaves over goes back to
 * the ring, except when a frame needs more than there are: then its buffers stay in the hand, the
 * ring is empty, and the next buffer that the driver adds is sure to be notified.
 *
 * A back end that expects a large frame may read it straight into mergeable buffers, which it
 * borrows from the hand: the header it reads is as long as the driver's, so header and data lie
 * where they belong, and all that is left is to look at the frame, as at any, and to put the header
 * right.
 *
 * Notifications are off while buffers remain and on from when they run out; the peer is refused
 * frames then, and is told (net_peer_writable) when the driver has notified.  A frame is dropped
 * only where waiting could not help: unwanted, too long, larger than the buffers can ever be, or
 * for a queue that is not there (reset, or not in use).
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/iov.h"
#include "util/log.h"
#include "util/trace.h"

#define RX_PREFETCH 64

typedef enum RxResult { RX_TAKEN, RX_NO_BUFFERS } RxResult;

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
    virtio_net_coal_used(&q->rx_coal, q->rx_unflushed);
    q->rx_unflushed = 0;
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

/* Writes the completed checksum where it belongs, as far as it lies in the @bytes of the frame from
 * @done on that were put into @elem at @offset. */
static void rx_patch(const RxFrame *frame, VirtQueueElement *elem, size_t offset, size_t done,
                     size_t bytes)
{
    for (unsigned i = 0; frame->csum_at && i < sizeof(frame->csum); i++) {
        size_t at = (size_t)frame->csum_at + i;

        if (at >= done && at < done + bytes) {
            iov_from_buf(virtqueue_in_sg(elem), elem->in_num, offset + at - done, &frame->csum[i],
                         1);
        }
    }
}

/* Writes the frame into the first @count buffers of the hand and marks them used. */
static void rx_write(VirtIONetQueue *q, RxFrame *frame, unsigned count)
{
    unsigned hdr_len = q->n->guest_hdr_len;
    size_t offset = hdr_len, done = 0;

    if (hdr_len >= VIRTIO_NET_HDR_LEN_FULL) {
        frame->hdr[10] = (uint8_t)count; /* num_buffers, little-endian */
        frame->hdr[11] = (uint8_t)(count >> 8);
    }
    iov_from_buf(virtqueue_in_sg(*rx_slot(q, 0)), (*rx_slot(q, 0))->in_num, 0, frame->hdr, hdr_len);
    for (unsigned i = 0; i < count; i++) {
        VirtQueueElement *elem = *rx_slot(q, 0);
        size_t bytes = MIN(elem->in_size - offset, frame->size - done);

        if (!frame->in_place) {
            iov_copy(virtqueue_in_sg(elem), elem->in_num, offset, frame->pkt->iov,
                     frame->pkt->iovcnt, frame->skip + done, bytes);
        }
        rx_patch(frame, elem, offset, done, bytes);
        done += bytes;
        rx_use(q, offset + bytes);
        offset = 0;
    }
    q->rx_unflushed++;
    q->rx_stats.packets++;
    q->rx_stats.bytes += frame->size;
    q->rx_stats.buffers += count;
}

static RxResult rx_drop(VirtIONetQueue *q, NetDropReason reason)
{
    virtio_net_rx_drop(q, reason);
    return RX_TAKEN;
}

/* Looks at a packet that came to @q.  False: it is not wanted, and counted. */
static bool rx_open(VirtIONetQueue *q, const NetPacket *pkt, RxFrame *frame)
{
    unsigned peer_hdr = q->nc->vnet_hdr_len;

    frame->pkt = pkt;
    frame->skip = peer_hdr;
    frame->csum_at = 0;
    frame->split = frame->in_place = false;
    memset(frame->hdr, 0, sizeof(frame->hdr));
    if (pkt->size > NET_MAX_FRAME) {
        virtio_net_rx_drop(q, NET_DROP_TOO_LONG);
        return false;
    }
    if (pkt->size < peer_hdr) {
        virtio_net_rx_drop(q, NET_DROP_BAD_HEADER);
        return false;
    }
    frame->size = pkt->size - peer_hdr;
    /* The sender's memory may be another guest's: look at a copy, and no more of it than needed. */
    frame->head_len = (unsigned)MIN(frame->size, q->n->rx_look);
    iov_to_buf(pkt->iov, pkt->iovcnt, peer_hdr, frame->head, frame->head_len);
    if (frame->head_len < RX_FILTER_HEAD_SIZE) {
        memset(frame->head + frame->head_len, 0, RX_FILTER_HEAD_SIZE - frame->head_len);
    }
    if (!rx_filter_match(&q->n->rx_filter, frame->head)) {
        virtio_net_rx_drop(q, NET_DROP_FILTERED);
        return false;
    }
    return virtio_net_rx_header(q, frame);
}

/* The queue for a frame; NULL: it is dropped, and counted. */
static VirtIONetQueue *rx_target(VirtIONetQueue *q, RxFrame *frame)
{
    VirtIONet *n = q->n;
    VirtIONetQueue *target = q;

    if (n->steering->rss.hash_types || n->steering->rss.redirect) {
        uint32_t hash;
        unsigned report;

        target = virtio_net_steer(q, frame->head, frame->head_len, &hash, &report);
        if (n->hash_report) {
            virtio_net_put_hash(frame->hdr, hash, report);
        }
    }
    if (!target->running || !virtqueue_ready(target->rx_vq)) {
        virtio_net_rx_drop(target, NET_DROP_NOT_READY);
        return NULL;
    }
    return target;
}

/* Puts a frame into the driver's buffers, or drops it, which is counted, if there are any.
 * @want: frames that are left in the batch, this one included. */
static RxResult rx_store(VirtIONetQueue *q, RxFrame *frame, unsigned want)
{
    VirtIONet *n = q->n;
    size_t need = n->guest_hdr_len + frame->size;
    unsigned count;
    RxResult result = n->mergeable ? rx_gather_mergeable(q, need, want, &count)
                                   : rx_gather_plain(q, need, want, &count);

    if (result != RX_TAKEN) {
        return result;
    }
    if (!count) {
        guest_error("virtio-net: queue %u: frame of %zu bytes is larger than the receive buffers",
                    q->index, frame->size);
        return rx_drop(q, NET_DROP_TOO_LONG);
    }
    rx_write(q, frame, count);
    return RX_TAKEN;
}

/* The hand's buffers lie in a memory map that has been replaced: have them popped again. */
static void rx_check_generation(VirtIONetQueue *q)
{
    if (q->rx_hand.count && q->rx_hand.generation != q->n->parent_obj.dma->generation) {
        rx_give_back(q);
    }
}

/* The same, waiting for buffers as long as the driver adds some.  False: there are none. */
bool virtio_net_rx_deliver(VirtIONetQueue *q, RxFrame *frame, unsigned want)
{
    rx_check_generation(q);
    while (q->running) {
        if (rx_store(q, frame, want) == RX_TAKEN) {
            return true;
        }
        /* Publish before waiting: the driver can only refill what it got back. */
        rx_flush(q);
        if (rx_await_buffers(q)) {
            q->rx_stats.stalls++;
            return false;
        }
    }
    return false;
}

/* The end of a batch for one queue. */
void virtio_net_rx_finish(VirtIONetQueue *q)
{
    if (!q->running) {
        return;
    }
    rx_give_back(q);
    rx_flush(q);
    rx_await_buffers(q);
}

/* One packet of a batch; *target: the queue it went to.  False: it has to wait for that one. */
static bool rx_packet(VirtIONetQueue *q, const NetPacket *pkt, unsigned want,
                      VirtIONetQueue **target)
{
    RxFrame frame;

    *target = NULL;
    if (!rx_open(q, pkt, &frame)) {
        return true;
    }
    *target = rx_target(q, &frame);
    if (q->n->steering->rss.redirect) {
        want = 1 + want / q->n->present_pairs;
    }
    if (!*target) {
        return true;
    }
    if (frame.split) {
        return virtio_net_rx_split(q, *target, &frame);
    }
    if ((*target)->rsc) {
        RscResult result = virtio_net_rsc_receive(*target, &frame);

        if (result != RSC_PASS) {
            return result == RSC_TAKEN;
        }
    }
    return virtio_net_rx_deliver(*target, &frame, want);
}

unsigned virtio_net_receive_batch(NetClient *nc, NetPacket *pkts, unsigned n)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;
    VirtIONet *net = q->n;
    uint64_t touched = 0; /* queue pairs */
    unsigned taken = 0;

    if (!virtio_net_can_take(q)) {
        return 0;
    }
    while (taken < n) {
        VirtIONetQueue *target;
        bool ok = rx_packet(q, &pkts[taken], n - taken, &target);

        if (target) {
            touched |= UINT64_C(1) << target->index;
        }
        if (!ok) {
            /* Its buffers stay in its hand, for that frame. */
            touched &= ~(UINT64_C(1) << target->index);
            q->rx_waits_for = target->running ? target : NULL;
            break;
        }
        taken++;
        if (target && target->rx_unflushed >= (unsigned)net->conf.rx_burst) {
            rx_flush(target);
        }
    }
    while (touched) {
        unsigned index = (unsigned)__builtin_ctzll(touched);

        touched &= touched - 1;
        virtio_net_rx_finish(&net->queues[index]);
    }
    trace_virtio_net_rx_batch(net, q->index, n, taken);
    return taken;
}

/* --- reading in place --- */

/* Is every frame of @q's back end one of @q's, and laid out as the driver has it? */
static bool rx_can_lend(VirtIONetQueue *q)
{
    const VirtIONet *n = q->n;

    return virtio_net_can_take(q) && !n->steering->rss.redirect && !q->rsc && n->mergeable &&
           q->nc->vnet_hdr_len == n->guest_hdr_len;
}

unsigned virtio_net_lend_buffers(NetClient *nc, struct iovec *iov, unsigned max)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;
    unsigned count, pieces = 0;

    if (!rx_can_lend(q)) {
        return 0;
    }
    rx_check_generation(q);
    if (rx_gather_mergeable(q, NET_MAX_FRAME, RX_PREFETCH, &count) != RX_TAKEN) {
        count = 0;
    }
    for (unsigned i = 0; i < count; i++) {
        VirtQueueElement *elem = *rx_slot(q, i);

        if (pieces + elem->in_num > max) {
            pieces = 0;
            break;
        }
        memcpy(iov + pieces, virtqueue_in_sg(elem), elem->in_num * sizeof(*iov));
        pieces += elem->in_num;
    }
    if (!pieces) {
        virtio_net_rx_finish(q); /* the frame will come by the other way, or none */
    }
    return pieces;
}

/* A frame that the driver cannot take as it is: its segments need the buffers that it lies in. */
static void rx_split_lent(VirtIONetQueue *q, RxFrame *frame)
{
    g_autofree uint8_t *copy = g_malloc(frame->pkt->size);
    struct iovec iov = {copy, frame->pkt->size};
    NetPacket pkt = {&iov, 1, frame->pkt->size};

    iov_to_buf(frame->pkt->iov, frame->pkt->iovcnt, 0, copy, pkt.size);
    frame->pkt = &pkt;
    frame->in_place = false;
    if (!virtio_net_rx_split(q, q, frame)) {
        q->rx_split_done = 0;
        virtio_net_rx_drop(q, NET_DROP_NO_BUFFER); /* nobody has it any more */
    }
}

void virtio_net_receive_lent(NetClient *nc, const NetPacket *pkt)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;
    RxFrame frame;

    if (!rx_open(q, pkt, &frame) || !rx_target(q, &frame)) {
        return;
    }
    frame.in_place = true;
    if (frame.split) {
        rx_split_lent(q, &frame);
    } else {
        rx_store(q, &frame, 1); /* its buffers are in the hand */
    }
    if (q->rx_unflushed >= (unsigned)q->n->conf.rx_burst) {
        rx_flush(q);
    }
}

void virtio_net_end_lending(NetClient *nc)
{
    virtio_net_rx_finish(((VirtIONetClient *)nc)->q);
}

bool virtio_net_can_take(VirtIONetQueue *q)
{
    if (!q->running) {
        return false;
    }
    return q->n->steering->rss.redirect || (q->enabled && virtqueue_ready(q->rx_vq));
}

bool virtio_net_can_receive(NetClient *nc)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;

    if (!virtio_net_can_take(q)) {
        return false;
    }
    /* Where the next frame goes is not known before it is seen. */
    return q->n->steering->rss.redirect || !rx_await_buffers(q);
}

/* Buffers are there: back ends that wait for them go on. */
static void rx_resume(VirtIONetQueue *q)
{
    VirtIONet *n = q->n;

    if (q->rsc_stalled && !virtio_net_rsc_resume(q)) {
        return;
    }
    for (unsigned i = 0; n->steering->rss.redirect && i < n->present_pairs; i++) {
        VirtIONetQueue *other = &n->queues[i];

        if (other != q && other->rx_waits_for == q) {
            other->rx_waits_for = NULL;
            net_peer_writable(other->nc);
        }
    }
    q->rx_waits_for = NULL;
    net_peer_writable(q->nc);
}

static void rx_notified(void *opaque)
{
    VirtIONetQueue *q = opaque;

    q->rx_stats.notifications++;
    if (q->running && virtqueue_ready(q->rx_vq) && !rx_await_buffers(q)) {
        rx_resume(q);
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
    virtio_net_coal_init(&q->rx_coal, q->n, q->rx_vq, &q->rx_stats.interrupts,
                         &q->rx_stats.interrupts_coalesced);
}

void virtio_net_rx_cleanup(VirtIONetQueue *q)
{
    virtio_net_coal_reset(&q->rx_coal);
    virtio_net_rsc_enable(q, false);
    bh_delete(q->rx_bh);
}

void virtio_net_rx_start(VirtIONetQueue *q)
{
    if (virtqueue_ready(q->rx_vq) && !rx_await_buffers(q)) {
        rx_resume(q);
    } else if (q->n->steering->rss.redirect) {
        net_peer_writable(q->nc); /* frames of its back end may be for others */
    }
}

void virtio_net_rx_stop(VirtIONetQueue *q)
{
    rx_give_back(q);
    virtio_net_coal_stop(&q->rx_coal);
}

void virtio_net_rx_reset(VirtIONetQueue *q)
{
    bh_cancel(q->rx_bh);
    virtio_net_coal_reset(&q->rx_coal);
    virtio_net_rsc_reset(q);
    q->rx_split_done = 0;
    q->rx_hand.count = 0;
    q->rx_filled = q->rx_unflushed = 0;
    q->rx_waits_for = NULL;
}
