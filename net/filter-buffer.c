/*
 * -object filter-buffer: holds frames and lets them go together, each time an interval of guest
 * time has passed.
 *
 * What the receiver does not take then stays first in line and goes as soon as it can; frames that
 * come meanwhile wait for the next interval.  A full buffer takes no more, so the sender waits:
 * nothing is lost.  Switched off or deleted, it lets go of everything; only what the receiver
 * does not take when the filter is deleted is dropped and counted.
 */
#include "net/filter.h"
#include "util/event-loop.h"
#include "util/iov.h"

#define FRAMES_MAX 10000 /* each direction */
#define NS_PER_US  1000

typedef struct HeldFrame {
    size_t size;
    uint8_t data[];
} HeldFrame;

typedef struct FilterBuffer {
    NetFilter parent_obj;
    uint32_t interval; /* µs */
    Timer timer;
    GQueue held[NET_FILTER__MAX];   /* of HeldFrame, by direction */
    unsigned free[NET_FILTER__MAX]; /* how many from the head may go */
    bool flushing, closing;
} FilterBuffer;
typedef struct FilterBufferClass {
    NetFilterClass parent_class;
} FilterBufferClass;

QOM_DECLARE_TYPE(FilterBuffer, FilterBufferClass, filter_buffer, FILTER_BUFFER)
G_DEFINE_TYPE(FilterBuffer, filter_buffer, TYPE_NETFILTER)

/* Sends what may go, as far as the receiver takes it. */
static void flush(FilterBuffer *b, NetFilterQueue dir)
{
    GQueue *q = &b->held[dir];
    bool was_full = q->length >= FRAMES_MAX;
    if (b->flushing) {
        return;
    }
    b->flushing = true;
    while (b->free[dir] > 0) {
        HeldFrame *frame = g_queue_peek_head(q);
        struct iovec iov = {frame->data, frame->size};
        NetPacket pkt = {&iov, 1, frame->size};
        if (net_filter_send(&b->parent_obj, dir, &pkt, 1) == 0) {
            break;
        }
        g_free(g_queue_pop_head(q));
        b->free[dir]--;
    }
    b->flushing = false;
    if (was_full && !b->closing && q->length < FRAMES_MAX) {
        net_filter_writable(&b->parent_obj, dir);
    }
    if (b->parent_obj.draining && b->held[NET_FILTER_RX].length == 0 &&
        b->held[NET_FILTER_TX].length == 0) {
        b->parent_obj.draining = false;
    }
}

static void release_all(FilterBuffer *b)
{
    for (unsigned dir = NET_FILTER_RX; dir <= NET_FILTER_TX; dir++) {
        b->free[dir] = b->held[dir].length;
        flush(b, dir);
    }
}

static void arm(FilterBuffer *b)
{
    timer_mod_ns(&b->timer, clock_get_ns(CLOCK_VIRTUAL) + (int64_t)b->interval * NS_PER_US);
}

static void interval_passed(void *opaque)
{
    FilterBuffer *b = opaque;
    release_all(b);
    arm(b);
}

static unsigned buffer_receive(NetFilter *nf, NetFilterQueue dir, NetPacket *pkts, unsigned n)
{
    FilterBuffer *b = FILTER_BUFFER(nf);
    unsigned i;
    for (i = 0; i < n && b->held[dir].length < FRAMES_MAX; i++) {
        HeldFrame *frame = g_malloc(sizeof(*frame) + pkts[i].size);
        frame->size = iov_to_buf(pkts[i].iov, pkts[i].iovcnt, 0, frame->data, pkts[i].size);
        g_queue_push_tail(&b->held[dir], frame);
        b->free[dir] += nf->draining;
    }
    return i;
}

static void buffer_resume(NetFilter *nf, NetFilterQueue dir)
{
    flush(FILTER_BUFFER(nf), dir);
}

static void buffer_status_changed(NetFilter *nf)
{
    FilterBuffer *b = FILTER_BUFFER(nf);
    if (net_filter_is_on(nf)) {
        nf->draining = false;
        arm(b);
        return;
    }
    timer_del(&b->timer);
    nf->draining = true;
    release_all(b);
}

static gboolean buffer_setup(NetFilter *nf, GError **errp)
{
    FilterBuffer *b = FILTER_BUFFER(nf);
    if (b->interval == 0) {
        return error_set(errp, "Parameter 'interval' expects a non-zero interval");
    }
    if (net_filter_is_on(nf)) {
        arm(b);
    }
    return TRUE;
}

static void buffer_cleanup(NetFilter *nf)
{
    FilterBuffer *b = FILTER_BUFFER(nf);
    timer_del(&b->timer);
    b->closing = true;
    release_all(b);
    for (unsigned dir = NET_FILTER_RX; dir <= NET_FILTER_TX; dir++) {
        net_count_drop(nf->nc, NET_DROP_FILTERED, b->held[dir].length);
        g_queue_clear_full(&b->held[dir], g_free);
        b->free[dir] = 0;
    }
}

static const Property filter_buffer_props[] = {
    PROP_UINT32("interval", FilterBuffer, interval, 0, "Time between releases, µs of guest time",
                .min = 1, .max = G_MAXUINT32),
    PROP_END,
};

static void filter_buffer_class_init(FilterBufferClass *klass)
{
    NetFilterClass *nfc = &klass->parent_class;
    nfc->parent_class.qom_name = "filter-buffer";
    nfc->parent_class.description = "Holds a netdev's frames and releases them at intervals";
    nfc->parent_class.user_creatable = true;
    nfc->setup = buffer_setup;
    nfc->cleanup = buffer_cleanup;
    nfc->receive = buffer_receive;
    nfc->resume = buffer_resume;
    nfc->status_changed = buffer_status_changed;
    qom_class_set_props(klass, filter_buffer_props);
}

static void filter_buffer_init(FilterBuffer *b)
{
    timer_init(&b->timer, event_loop_main(), CLOCK_VIRTUAL, interval_passed, b);
    for (unsigned dir = 0; dir < NET_FILTER__MAX; dir++) {
        g_queue_init(&b->held[dir]);
    }
}
