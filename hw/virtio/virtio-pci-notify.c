/*
 * ioeventfds of virtio-pci: where a driver's notification wakes an event loop instead of being
 * handled by whoever received the register write.
 *
 * A direct call is cheaper and is what a queue of the main loop gets.  A queue gets an eventfd
 * while the device runs if its loop is another thread, or if the host asked because it can take
 * the eventfd over (virtio_pci_set_host_notifiers), or if vhost handles the queue: then nobody here
 * watches it.  The eventfd is registered with the IoRegion
 * of every address at which this queue can be notified, and the queue's loop watches it.
 *
 * An event that arrives while the device is stopped stays in the eventfd; reset clears it.
 */
#include "hw/virtio/virtio-pci-internal.h"

typedef struct NotifyAddress {
    IoRegion *region;
    IoEventfd eventfd;
} NotifyAddress;

#define NOTIFY_ADDRESSES 3

/* The addresses at which queue @n can be notified; returns how many. */
static unsigned notify_addresses(VirtIOPCIProxy *proxy, unsigned n, NotifyAddress *out)
{
    EventNotifier *notifier = &proxy->notifiers[n];
    unsigned count = 0;

    if (proxy->modern) {
        out[count++] = (NotifyAddress){
            &proxy->notify,
            {.offset = (uint64_t)n * virtio_pci_notify_mult(proxy), .notifier = notifier},
        };
    }
    /* With NOTIFICATION_DATA the port is written 32 bits that are never twice the same. */
    if (proxy->modern && proxy->modern_pio_notify &&
        !virtio_has_feature(proxy->vdev, VIRTIO_F_NOTIFICATION_DATA)) {
        out[count++] = (NotifyAddress){
            &proxy->pio_notify_bar,
            {.offset = 0, .size = 2, .match = true, .data = n, .notifier = notifier},
        };
    }
    if (proxy->legacy) {
        out[count++] = (NotifyAddress){
            &proxy->legacy_bar,
            {.offset = VIRTIO_PCI_QUEUE_NOTIFY,
             .size = 2,
             .match = true,
             .data = n,
             .notifier = notifier},
        };
    }
    return count;
}

static EventNotifier *notifier_of(VirtioQueue *queue)
{
    VirtIOPCIProxy *proxy = queue->vdev->transport_opaque;

    return &proxy->notifiers[queue - queue->vdev->queues];
}

static void notifier_ready(void *opaque)
{
    VirtioQueue *queue = opaque;

    if (event_notifier_test_and_clear(notifier_of(queue))) {
        virtio_queue_run(queue->vdev, (unsigned)(queue - queue->vdev->queues));
    }
}

static void watch(void *opaque)
{
    VirtioQueue *queue = opaque;

    event_loop_set_fd_handler(queue->loop, notifier_of(queue)->fd, notifier_ready, NULL, queue);
}

static void unwatch(void *opaque)
{
    VirtioQueue *queue = opaque;

    event_loop_set_fd_handler(queue->loop, notifier_of(queue)->fd, NULL, NULL, NULL);
}

static bool wanted(const VirtIOPCIProxy *proxy, const VirtioQueue *queue)
{
    return proxy->ioeventfd && queue->handler &&
           (proxy->host_notifiers || queue->outside || queue->loop != event_loop_main());
}

static void notifiers_alloc(VirtIOPCIProxy *proxy)
{
    if (proxy->notifiers) {
        return;
    }
    proxy->notifiers = g_new0(EventNotifier, proxy->vdev->num_queues);
    proxy->num_notifiers = proxy->vdev->num_queues;
    proxy->notifiers_in_use = g_new0(bool, proxy->num_notifiers);
    for (unsigned i = 0; i < proxy->num_notifiers; i++) {
        proxy->notifiers[i].fd = -1;
    }
}

/* Makes the eventfd of queue @n; false: out of file descriptors. */
static bool notifier_open(VirtIOPCIProxy *proxy, unsigned n)
{
    return proxy->notifiers[n].fd >= 0 || event_notifier_init(&proxy->notifiers[n], NULL);
}

static void attach(VirtIOPCIProxy *proxy, unsigned n)
{
    VirtioQueue *queue = &proxy->vdev->queues[n];
    NotifyAddress addresses[NOTIFY_ADDRESSES];
    unsigned count;

    /* Out of file descriptors: the direct way works too, only slower. */
    if (!notifier_open(proxy, n)) {
        warn_report("%s: no eventfd for queue %u, notifying it directly",
                    device_name(DEVICE(proxy)), n);
        return;
    }
    if (!queue->outside) {
        event_loop_run_sync(queue->loop, watch, queue);
    }
    count = notify_addresses(proxy, n, addresses);
    for (unsigned i = 0; i < count; i++) {
        io_region_add_eventfd(addresses[i].region, &addresses[i].eventfd);
    }
    proxy->notifiers_in_use[n] = true;
}

static void detach(VirtIOPCIProxy *proxy, unsigned n)
{
    VirtioQueue *queue = &proxy->vdev->queues[n];
    NotifyAddress addresses[NOTIFY_ADDRESSES];
    unsigned count;

    if (!proxy->notifiers_in_use[n]) {
        return;
    }
    count = notify_addresses(proxy, n, addresses);
    for (unsigned i = 0; i < count; i++) {
        io_region_remove_eventfd(addresses[i].region, &addresses[i].eventfd);
    }
    event_loop_run_sync(queue->loop, unwatch, queue);
    proxy->notifiers_in_use[n] = false;
}

EventNotifier *virtio_pci_notifier(void *opaque, unsigned index)
{
    VirtIOPCIProxy *proxy = opaque;

    if (!proxy->ioeventfd) {
        return NULL;
    }
    notifiers_alloc(proxy);
    return index < proxy->num_notifiers && notifier_open(proxy, index) ? &proxy->notifiers[index]
                                                                       : NULL;
}

void virtio_pci_started(void *opaque, bool started)
{
    VirtIOPCIProxy *proxy = opaque;

    if (started) {
        notifiers_alloc(proxy);
    }
    for (unsigned i = 0; i < proxy->num_notifiers; i++) {
        if (!started) {
            detach(proxy, i);
        } else if (wanted(proxy, &proxy->vdev->queues[i])) {
            attach(proxy, i);
        }
    }
}

void virtio_pci_set_host_notifiers(VirtIOPCIProxy *proxy, bool enable)
{
    bool running = proxy->vdev->started;

    if (proxy->host_notifiers == enable) {
        return;
    }
    if (running) {
        virtio_pci_started(proxy, false);
    }
    proxy->host_notifiers = enable;
    if (running) {
        virtio_pci_started(proxy, true);
    }
}

void virtio_pci_foreach_host_notifier(VirtIOPCIProxy *proxy,
                                      void (*fn)(IoRegion *region, const IoEventfd *eventfd,
                                                 void *opaque),
                                      void *opaque)
{
    if (!proxy->ioeventfd) {
        return;
    }
    virtio_pci_set_host_notifiers(proxy, true);
    notifiers_alloc(proxy);
    for (unsigned i = 0; i < proxy->num_notifiers; i++) {
        NotifyAddress addresses[NOTIFY_ADDRESSES];
        bool there = proxy->vdev->queues[i].handler && notifier_open(proxy, i);
        unsigned count = there ? notify_addresses(proxy, i, addresses) : 0;

        for (unsigned a = 0; a < count; a++) {
            fn(addresses[a].region, &addresses[a].eventfd, opaque);
        }
    }
}

void virtio_pci_notifiers_clear(VirtIOPCIProxy *proxy)
{
    for (unsigned i = 0; i < proxy->num_notifiers; i++) {
        if (proxy->notifiers[i].fd >= 0) {
            event_notifier_test_and_clear(&proxy->notifiers[i]);
        }
    }
}

void virtio_pci_notifiers_cleanup(VirtIOPCIProxy *proxy)
{
    for (unsigned i = 0; i < proxy->num_notifiers; i++) {
        if (proxy->notifiers[i].fd >= 0) {
            event_notifier_cleanup(&proxy->notifiers[i]);
        }
    }
    g_clear_pointer(&proxy->notifiers, g_free);
    g_clear_pointer(&proxy->notifiers_in_use, g_free);
    proxy->num_notifiers = 0;
}
