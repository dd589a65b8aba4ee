/*
 * Notification coalescing (virtio 1.4, 5.1.6.5.9): when the driver is interrupted for packets that
 * were received or sent.
 *
 * With max_packets and max_usecs both set, the first packet starts a count and a timer; the
 * interrupt comes with the packet that reaches max_packets or when the timer ends, and the next
 * packet starts anew.  Without, each flush of the ring decides.  Whether the driver wants to be
 * interrupted at all is the ring's to say, and it is asked only when an interrupt is due: it then
 * answers for everything used since it was asked last.
 *
 * The timer runs in virtual time, in the queue's loop.  Nothing is held over a stop: what is due
 * later is decided then.
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"

static void coal_interrupt(VirtIONetCoal *c)
{
    c->pending = 0;
    timer_del(&c->timer);
    if (virtqueue_should_interrupt(c->vq)) {
        ++*c->interrupts;
        virtio_notify_now(c->vdev, c->vq);
    }
}

static void coal_expired(void *opaque)
{
    VirtIONetCoal *c = opaque;

    if (c->pending) {
        coal_interrupt(c);
    }
}

static bool coal_is_on(const VirtIONetCoal *c)
{
    return c->params.max_packets && c->params.max_usecs;
}

void virtio_net_coal_used(VirtIONetCoal *c, unsigned packets)
{
    if (!coal_is_on(c)) {
        coal_interrupt(c);
        return;
    }
    if (!c->pending) {
        timer_mod_ns(&c->timer, clock_get_ns(CLOCK_VIRTUAL) + (int64_t)c->params.max_usecs * 1000);
    }
    c->pending += MAX(packets, 1);
    if (c->pending >= c->params.max_packets) {
        coal_interrupt(c);
    } else {
        ++*c->coalesced;
    }
}

void virtio_net_coal_init(VirtIONetCoal *c, VirtIONet *n, VirtQueue *vq, uint64_t *interrupts,
                          uint64_t *coalesced)
{
    c->vdev = &n->parent_obj;
    c->vq = vq;
    c->interrupts = interrupts;
    c->coalesced = coalesced;
    timer_init(&c->timer, n->loop, CLOCK_VIRTUAL, coal_expired, c);
}

void virtio_net_coal_stop(VirtIONetCoal *c)
{
    if (c->pending) {
        coal_interrupt(c);
    }
}

void virtio_net_coal_reset(VirtIONetCoal *c)
{
    timer_del(&c->timer);
    c->pending = 0;
}

/* New parameters; what is already there may be enough for them. */
static void coal_configure(VirtIONetCoal *c, const VirtIONetCoalescing *params)
{
    bool shorter = params->max_usecs < c->params.max_usecs;

    c->params = *params;
    if (!c->pending) {
        return;
    }
    if (!coal_is_on(c) || c->pending >= params->max_packets) {
        coal_interrupt(c);
    } else if (shorter) {
        int64_t limit = clock_get_ns(CLOCK_VIRTUAL) + (int64_t)params->max_usecs * 1000;

        timer_mod_ns(&c->timer, MIN(c->timer.deadline_ns, limit));
    }
}

static void install_coalescing(void *opaque)
{
    VirtIONet *n = opaque;

    for (unsigned i = 0; i < n->present_pairs; i++) {
        coal_configure(&n->queues[i].rx_coal, &n->ctrl.coal[2 * i]);
        coal_configure(&n->queues[i].tx_coal, &n->ctrl.coal[2 * i + 1]);
    }
}

void virtio_net_install_coalescing(VirtIONet *n)
{
    event_loop_run_sync(n->loop, install_coalescing, n);
}

void virtio_net_reset_coalescing(VirtIONet *n)
{
    memset(&n->ctrl.coal_rx, 0, sizeof(n->ctrl.coal_rx));
    memset(&n->ctrl.coal_tx, 0, sizeof(n->ctrl.coal_tx));
    memset(n->ctrl.coal, 0, sizeof(n->ctrl.coal));
    virtio_net_install_coalescing(n);
}

void virtio_net_coal_queue_reset(VirtIONet *n, unsigned index)
{
    n->ctrl.coal[index] = index % 2 ? n->ctrl.coal_tx : n->ctrl.coal_rx;
    virtio_net_install_coalescing(n);
}
