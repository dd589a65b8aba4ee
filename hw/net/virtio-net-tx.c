/*
 * The transmit engine: from descriptor chains to the peer.
 *
 * A flush pops a batch of chains into the queue's hand, lays a NetPacket over the guest memory of
 * each (nothing is copied or allocated), offers the batch to the peer, and returns what the peer
 * took with one used-index store and one interrupt decision.  What it did not take stays in the
 * hand, in order, and is offered first next time: so nothing is lost, sent twice or overtaken.
 *
 * In front of each frame the driver puts a header of guest_hdr_len bytes.  The peer may want none,
 * one of the same length, or (old kernels) one of another length; the first two cost nothing, the
 * third goes through the bounce buffer, as do chains of more buffers than a system call takes.
 * Frames with offloads that the peer does not do take the way of virtio-net-tx-soft.c.
 *
 * When to flush is the policy's business (virtio-net-txpolicy.c).
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/iov.h"
#include "util/log.h"
#include "util/trace.h"

/* Buffers of one packet: IOV_MAX, less room for what a back end puts in front. */
#define TX_IOV_MAX (IOV_MAX - 8)

/* After so many frames a flush looks for more for so long (longer than a driver takes to fill as
 * many descriptors again), reading the clock once in so many looks. */
#define TX_LINGER_MIN     16
#define TX_LINGER_NS      5000
#define TX_LINGER_LOOKS   8
#define TX_LINGER_BACKOFF 63 /* waits left out at most after one in vain */

/* Takes @bytes off the front of the readable buffers, in place (their guest addresses too: the
 * packet may have to be translated again).  Returns the first buffer that is left. */
static unsigned element_skip(VirtQueueElement *elem, size_t bytes)
{
    unsigned i = 0;

    while (i < elem->out_num && bytes >= elem->sg[i].iov_len) {
        bytes -= elem->sg[i++].iov_len;
    }
    if (bytes) {
        elem->sg[i].iov_base = (uint8_t *)elem->sg[i].iov_base + bytes;
        elem->sg[i].iov_len -= bytes;
        elem->gpa[i] += bytes;
    }
    return i;
}

static TxKind tx_reject(VirtIONetQueue *q, NetDropReason reason, size_t size)
{
    guest_error("virtio-net: queue %u: frame of %zu bytes with its header %s", q->index, size,
                reason == NET_DROP_TOO_LONG ? "is too long" : "is too short");
    virtio_net_tx_drop(q, reason);
    return TX_BAD;
}

/* Reads what the header of slot @i asks for.  True: the device must do it. */
static bool tx_look(VirtIONetQueue *q, unsigned i)
{
    TxHand *hand = &q->tx_hand;
    uint8_t hdr[2];

    iov_to_buf(hand->elems[i]->sg, hand->elems[i]->out_num, 0, hdr, sizeof(hdr));
    hand->flags[i] = hdr[0];
    hand->gso[i] = hdr[1];
    return virtio_net_tx_is_soft(q->n, hdr[0], hdr[1]);
}

/* Looks at slot @i's chain and lays the packet over it. */
static TxKind tx_prepare(VirtIONetQueue *q, unsigned i)
{
    TxHand *hand = &q->tx_hand;
    VirtQueueElement *elem = hand->elems[i];
    NetPacket *pkt = &hand->pkts[i];
    unsigned hdr = q->n->guest_hdr_len, peer_hdr = q->nc->vnet_hdr_len;
    unsigned first = 0;

    if (elem->out_size <= hdr) {
        return tx_reject(q, NET_DROP_BAD_HEADER, elem->out_size);
    }
    if (elem->out_size > NET_MAX_FRAME) {
        return tx_reject(q, NET_DROP_TOO_LONG, elem->out_size);
    }
    hand->sizes[i] = (uint32_t)(elem->out_size - hdr);
    if (q->n->tx_look && tx_look(q, i)) {
        virtio_net_tx_soft_alloc(q);
        return TX_SOFT;
    }
    if (elem->out_num > TX_IOV_MAX || (peer_hdr && peer_hdr != hdr)) {
        return TX_COPY;
    }
    pkt->size = elem->out_size;
    if (!peer_hdr) {
        first = element_skip(elem, hdr);
        pkt->size -= hdr;
    }
    pkt->iov = elem->sg + first;
    pkt->iovcnt = elem->out_num - first;
    return TX_DIRECT;
}

/* Pops up to @max chains into the empty hand. */
static void tx_take(VirtIONetQueue *q, unsigned max)
{
    TxHand *hand = &q->tx_hand;

    hand->count = virtqueue_pop_batch(q->tx_vq, hand->elems, max);
    hand->generation = q->n->parent_obj.dma->generation;
    for (unsigned i = 0; i < hand->count; i++) {
        hand->kinds[i] = (uint8_t)tx_prepare(q, i);
    }
}

/* Host addresses of the chain's buffers from @first on, again.  False: one is no longer there. */
static bool element_retranslate(DmaSpace *dma, VirtQueueElement *elem, unsigned first)
{
    for (unsigned i = first; i < elem->out_num; i++) {
        uint64_t len = elem->sg[i].iov_len;
        void *host = dma_translate(dma, elem->gpa[i], &len, false);

        if (!host || len < elem->sg[i].iov_len) {
            return false;
        }
        elem->sg[i].iov_base = host;
    }
    return true;
}

/* The memory map changed while chains were in the hand. */
static void tx_retranslate(VirtIONetQueue *q)
{
    TxHand *hand = &q->tx_hand;
    DmaSpace *dma = q->n->parent_obj.dma;

    if (hand->generation == dma->generation) {
        return;
    }
    hand->generation = dma->generation;
    for (unsigned i = 0; i < hand->count; i++) {
        VirtQueueElement *elem = hand->elems[i];
        unsigned first = hand->kinds[i] == TX_DIRECT ? hand->pkts[i].iov - elem->sg : 0;

        if (hand->kinds[i] != TX_BAD && !element_retranslate(dma, elem, first)) {
            virtio_net_tx_drop(q, NET_DROP_BAD_HEADER);
            hand->kinds[i] = TX_BAD;
        }
    }
}

/* Sends slot @i's chain from the bounce buffer, with the header that the peer expects. */
static unsigned tx_send_copy(VirtIONetQueue *q, unsigned i)
{
    VirtQueueElement *elem = q->tx_hand.elems[i];
    unsigned hdr = q->n->guest_hdr_len, peer_hdr = q->nc->vnet_hdr_len;
    size_t frame = q->tx_hand.sizes[i];

    if (peer_hdr + frame > NET_MAX_FRAME) {
        virtio_net_tx_drop(q, NET_DROP_TOO_LONG);
        return 1;
    }
    memset(q->tx_bounce, 0, peer_hdr);
    iov_to_buf(elem->sg, elem->out_num, 0, q->tx_bounce, MIN(hdr, peer_hdr));
    iov_to_buf(elem->sg, elem->out_num, hdr, q->tx_bounce + peer_hdr, frame);

    struct iovec iov = {q->tx_bounce, peer_hdr + frame};
    NetPacket pkt = {&iov, 1, peer_hdr + frame};
    unsigned taken = net_send_batch(q->nc, &pkt, 1);

    q->tx_stats.linearised += taken;
    return taken;
}

/* Slots of one kind from @at on. */
static unsigned tx_run_length(const TxHand *hand, unsigned at)
{
    unsigned end = at + 1;

    while (end < hand->count && hand->kinds[end] == hand->kinds[at]) {
        end++;
    }
    return end - at;
}

/* Offers slots [at, at + run) of one kind; returns how many are finished with. */
static unsigned tx_offer(VirtIONetQueue *q, unsigned at, unsigned run)
{
    unsigned done = 0;

    switch (q->tx_hand.kinds[at]) {
    case TX_BAD:
        return run;
    case TX_SOFT:
        return virtio_net_tx_send_soft(q, at, run);
    case TX_COPY:
        while (done < run && tx_send_copy(q, at + done)) {
            done++;
        }
        return done;
    default:
        return net_send_batch(q->nc, &q->tx_hand.pkts[at], run);
    }
}

/* Drops the first @done slots. */
static void tx_hand_advance(TxHand *hand, unsigned done)
{
    unsigned left = hand->count - done;

    if (left) {
        memmove(hand->elems, hand->elems + done, left * sizeof(hand->elems[0]));
        memmove(hand->pkts, hand->pkts + done, left * sizeof(hand->pkts[0]));
        memmove(hand->sizes, hand->sizes + done, left * sizeof(hand->sizes[0]));
        memmove(hand->kinds, hand->kinds + done, left * sizeof(hand->kinds[0]));
        memmove(hand->flags, hand->flags + done, left * sizeof(hand->flags[0]));
        memmove(hand->gso, hand->gso + done, left * sizeof(hand->gso[0]));
    }
    hand->count = left;
}

/* Counts slot @i, which is finished with. */
static void tx_count(VirtIONetQueue *q, unsigned i)
{
    const TxHand *hand = &q->tx_hand;

    if (hand->kinds[i] == TX_BAD) {
        return;
    }
    q->tx_stats.packets++;
    q->tx_stats.bytes += hand->sizes[i];
    if (!q->n->tx_count) {
        return;
    }
    if (hand->flags[i] & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
        q->tx_csum.needs++;
    } else {
        q->tx_csum.none++;
    }
    if (hand->kinds[i] != TX_SOFT && hand->gso[i] != VIRTIO_NET_HDR_GSO_NONE) {
        q->tx_gso.packets++;
        q->tx_gso.bytes += hand->sizes[i];
        q->tx_gso.packets_noseg++;
        q->tx_gso.bytes_noseg += hand->sizes[i];
    }
}

/* Offers what is in the hand, which came into sight at *@now at the latest, and returns to the
 * driver what is done; *@now is then the time after that.  @told: a notification told of them.
 * Returns how many. */
static unsigned tx_send_hand(VirtIONetQueue *q, bool told, int64_t *now)
{
    TxHand *hand = &q->tx_hand;
    unsigned at = 0, run, done;

    if (hand->kinds[0] != TX_SOFT) {
        virtio_net_tx_soft_forget(q);
    }
    do {
        run = tx_run_length(hand, at);
        done = tx_offer(q, at, run);
        for (unsigned i = at; i < at + done; i++) {
            virtqueue_fill(q->tx_vq, hand->elems[i], 0, i);
            tx_count(q, i);
        }
        at += done;
    } while (done == run && at < hand->count);
    if (at) {
        virtqueue_flush(q->tx_vq, at);
        q->tx_stats.batches++;

        int64_t seen_ns = *now;

        *now = clock_get_ns(CLOCK_VIRTUAL);
        if (tx_looks_leave(&q->tx_looks, &q->tx_stats, at, seen_ns, *now) && !told) {
            q->tx_stats.suppressed++;
        }
        virtio_net_coal_used(&q->tx_coal, at);
    }
    tx_hand_advance(hand, at);
    return at;
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* Looks for more frames for a moment; true: there are some. */
static bool tx_await_frames(VirtIONetQueue *q)
{
    int64_t end = clock_get_ns(CLOCK_HOST) + TX_LINGER_NS;

    do {
        for (unsigned i = 0; i < TX_LINGER_LOOKS; i++) {
            if (!virtqueue_empty(q->tx_vq)) {
                return true;
            }
            cpu_relax();
        }
    } while (clock_get_ns(CLOCK_HOST) < end);
    return false;
}

/* A driver that has just published many frames is about to publish more.  To sleep now would cost
 * both a notification and, on a host whose idle CPUs halt, tens of microseconds until we run
 * again; so wait for it a moment.  Where that is in vain (the driver is done, or waits for our
 * CPU) it is tried ever more seldom.  True: there is more. */
static bool tx_linger(VirtIONetQueue *q)
{
    TxLinger *linger = &q->tx_linger;

    if (linger->frames < TX_LINGER_MIN) {
        return false;
    }
    linger->frames = 0;
    if (linger->skip) {
        linger->skip--;
        return false;
    }
    if (tx_await_frames(q)) {
        linger->backoff = 0;
        return true;
    }
    linger->backoff = MIN(linger->backoff * 2 + 1, TX_LINGER_BACKOFF);
    linger->skip = linger->backoff;
    return false;
}

/* Ends the account of a flush that sent @done packets. */
static void tx_count_flush(VirtIONetQueue *q, unsigned done)
{
    if (done) {
        q->tx_stats.flush_sizes[tx_batch_bucket(done)]++;
    }
}

static int tx_flush_burst(VirtIONetQueue *q)
{
    unsigned burst = (unsigned)q->tx.set.burst, done = 0, got;
    bool told = q->tx_looks.notified, timed = told;
    int64_t now = q->tx_looks.notified_ns;

    q->tx_looks.notified = false;
    tx_retranslate(q);
    while (q->running && done < burst) {
        if (!q->tx_hand.count) {
            tx_take(q, MIN(burst - done, TX_BATCH));
            if (!q->tx_hand.count) {
                if (!tx_linger(q)) {
                    break;
                }
                continue;
            }
        }
        /* The end of one batch is the first look at the next. */
        now = timed ? now : clock_get_ns(CLOCK_VIRTUAL);
        timed = true;
        got = tx_send_hand(q, told, &now);
        told = false;
        done += got;
        q->tx_linger.frames += got;
        if (q->tx_hand.count) {
            q->tx_stats.stalls++;
            tx_looks_note(&q->tx_looks, q->tx_hand.count, now);
            tx_count_flush(q, done);
            return -EBUSY;
        }
    }
    q->tx_stats.bursts += done >= burst;
    tx_count_flush(q, done);
    return (int)done;
}

/* The peer takes nothing between a flush that says so and the next one that does not. */
static void tx_count_stall(VirtIONetQueue *q, bool stalled)
{
    TxLooks *looks = &q->tx_looks;
    int64_t now;

    if (stalled == (looks->stalled_ns != 0)) {
        return;
    }
    now = clock_get_ns(CLOCK_VIRTUAL);
    if (stalled) {
        looks->stalled_ns = MAX(now, 1);
        return;
    }
    q->tx_stats.stall_ns += (uint64_t)(now - looks->stalled_ns);
    q->tx_stats.stall_max_ns = MAX(q->tx_stats.stall_max_ns, (uint64_t)(now - looks->stalled_ns));
    looks->stalled_ns = 0;
}

static int tx_flush(void *opaque, TxFlushCause cause)
{
    VirtIONetQueue *q = opaque;
    uint64_t before = q->tx_looks.done;
    bool told = q->tx_looks.notified;
    int done = tx_flush_burst(q);

    q->tx_stats.empty += told && done == 0;
    q->tx_stats.flushes[cause] += q->tx_looks.done != before;
    tx_count_stall(q, done < 0);
    trace_virtio_net_tx_flush(q->n, q->index, (int)cause, done);
    return done;
}

static bool tx_enable_notify(void *opaque)
{
    VirtIONetQueue *q = opaque;

    return virtqueue_enable_notify(q->tx_vq);
}

static void tx_disable_notify(void *opaque)
{
    VirtIONetQueue *q = opaque;

    virtqueue_disable_notify(q->tx_vq);
}

static const TxEngineOps tx_engine = {tx_flush, tx_enable_notify, tx_disable_notify};

/* What came will be looked at no sooner than a timer runs: note how much it is. */
static void tx_note_held(VirtIONetQueue *q)
{
    TxLooks *looks = &q->tx_looks;
    unsigned available = q->tx_hand.count + virtqueue_available(q->tx_vq);

    tx_looks_note(looks, available, looks->notified_ns);
    q->tx_stats.empty += available == 0;
    looks->notified = false;
}

static void tx_notified(void *opaque)
{
    VirtIONetQueue *q = opaque;

    q->tx_stats.notifications++;
    if (q->running) {
        q->tx_looks.notified = true;
        q->tx_looks.notified_ns = clock_get_ns(CLOCK_VIRTUAL);
    }
    if (!tx_scheduler_notified(&q->tx)) {
        q->tx_stats.spurious++;
    }
    if (q->tx_looks.notified && (!q->tx.waiting || q->tx.cause == TX_FLUSH_TIMER)) {
        tx_note_held(q);
    }
}

void virtio_net_tx_handler(VirtIODevice *vdev, VirtQueue *vq)
{
    VirtIONet *n = VIRTIO_NET(vdev);
    VirtIONetQueue *q = &n->queues[virtqueue_index(vq) / 2];

    if (event_loop_is_current(n->loop)) {
        tx_notified(q);
    } else {
        bh_schedule(q->tx_bh);
    }
}

static void tx_writable(void *opaque)
{
    VirtIONetQueue *q = opaque;

    tx_scheduler_writable(&q->tx);
}

void virtio_net_tx_writable(NetClient *nc)
{
    VirtIONetQueue *q = ((VirtIONetClient *)nc)->q;

    /* A peer that is deleted or loses its link says so from the main thread. */
    if (event_loop_is_current(q->n->loop)) {
        tx_writable(q);
    } else {
        bh_schedule(q->writable_bh);
    }
}

static TxSettings tx_settings(const VirtIONet *n)
{
    return (TxSettings){
        .policy = tx_policy_find(n->conf.tx),
        .burst = n->conf.tx_burst,
        .timer_ns = n->conf.tx_timer_ns,
        .latency_ns = n->conf.tx_latency_ns,
    };
}

static void tx_configure(void *opaque)
{
    VirtIONet *n = opaque;
    TxSettings set = tx_settings(n);

    for (unsigned i = 0; i < n->queue_pairs; i++) {
        tx_scheduler_configure(&n->queues[i].tx, &set);
    }
}

void virtio_net_tx_configure(VirtIONet *n)
{
    event_loop_run_sync(n->loop, tx_configure, n);
}

void virtio_net_tx_init(VirtIONetQueue *q)
{
    TxSettings set = tx_settings(q->n);

    q->tx_bounce = g_malloc(NET_MAX_FRAME);
    virtio_net_coal_init(&q->tx_coal, q->n, q->tx_vq, &q->tx_stats.interrupts,
                         &q->tx_stats.interrupts_coalesced);
    q->tx_bh = bh_new(q->n->loop, tx_notified, q);
    q->writable_bh = bh_new(q->n->loop, tx_writable, q);
    tx_scheduler_init(&q->tx, q->n->loop, &set, &tx_engine, q);
}

void virtio_net_tx_cleanup(VirtIONetQueue *q)
{
    tx_scheduler_cleanup(&q->tx);
    virtio_net_coal_reset(&q->tx_coal);
    bh_delete(q->tx_bh);
    bh_delete(q->writable_bh);
    g_free(q->tx_bounce);
    g_clear_pointer(&q->tx_soft, g_free);
}

void virtio_net_tx_start(VirtIONetQueue *q)
{
    if (virtqueue_ready(q->tx_vq)) {
        q->tx.ring_size = virtqueue_num(q->tx_vq);
        tx_scheduler_start(&q->tx, q->tx_hand.count || !virtqueue_empty(q->tx_vq));
    }
}

void virtio_net_tx_stop(VirtIONetQueue *q)
{
    tx_scheduler_stop(&q->tx);
    virtio_net_coal_stop(&q->tx_coal);
}

void virtio_net_tx_reset(VirtIONetQueue *q)
{
    tx_scheduler_reset(&q->tx);
    virtio_net_coal_reset(&q->tx_coal);
    bh_cancel(q->tx_bh);
    virtio_net_tx_soft_forget(q);
    net_forget_unsent(q->nc);
    q->tx_hand.count = 0;
    q->tx_looks.upto = q->tx_looks.done;
    q->tx_looks.count = 0;
    q->tx_looks.notified = false;
    q->tx_looks.stalled_ns = 0;
}
