/*
 * Queues of a virtio device in the hands of a vhost back end.
 *
 * Start: features, the memory table (RAM only: rings and buffers elsewhere are refused by the back
 * end), then each ring: size, indices, host addresses, kick and call eventfds.  Stop: the back end
 * says where it stopped; if it is gone, the used ring in guest memory says it.
 *
 * A new memory map stops the device and starts it again (virtio.c), so the table always is the map
 * in force.
 *
 * The log for migration is at the end; which virtio device and which back end it is does not matter
 * here.
 */
#include "hw/virtio/vhost.h"

#include <errno.h>
#include <linux/vhost_types.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hw/virtio/virtio-internal.h"
#include "util/error.h"
#include "util/log.h"

#define LOG_PAGE 4096 /* bytes a bit (VHOST_PAGE_SIZE of the kernel, and of the protocol) */

typedef struct VhostQueue {
    VhostDev *dev;
    unsigned index; /* of the device's queue */
    bool started;
    EventNotifier kick; /* ours, where the transport has none; fd -1: not made */
    EventNotifier call, err;
    VhostVring vring;
} VhostQueue;

struct VhostDev {
    VirtIODevice *vdev;
    VhostBackend *backend;
    unsigned first, count;
    VhostQueue *queues;
    uint64_t extra_features, features_off;
    unsigned limit;
    uint16_t mtu;
    unsigned enabled_pairs;
    bool started;
    unsigned connection; /* on which it was started */
    VhostLog log;        /* bits NULL: none */
};

static GPtrArray *devices; /* every VhostDev, for the log */
static bool logging;

static VirtQueue *ring_of(const VhostQueue *q)
{
    return q->dev->vdev->queues[q->index].vq;
}

static bool is_packed(const VhostDev *dev)
{
    return virtio_has_feature(dev->vdev, VIRTIO_F_RING_PACKED);
}

bool vhost_dev_lost(const VhostDev *dev)
{
    return dev->started &&
           (!dev->backend->connected || dev->connection != dev->backend->connection);
}

/* --- what the back end is told of the device --- */

static gboolean set_features(VhostDev *dev, GError **errp)
{
    uint64_t features = (uint64_t)dev->vdev->guest_features & dev->backend->features;

    /* The platform's DMA addresses are physical ones: nobody has to be asked for translations. */
    features &= ~(UINT64_C(1) << VIRTIO_F_ACCESS_PLATFORM);
    features &= ~(UINT64_C(1) << VHOST_F_LOG_ALL);
    features &= ~dev->features_off;
    features |= dev->extra_features & dev->backend->features;
    features |= dev->log.bits ? UINT64_C(1) << VHOST_F_LOG_ALL : 0;
    return dev->backend->ops->set_features(dev->backend, features, errp);
}

static gboolean set_memory(VhostDev *dev, GError **errp)
{
    const MemoryMap *map = dev->vdev->dma->map;
    g_autofree VhostRegion *regions = g_new(VhostRegion, map->count + 1);
    unsigned n = 0;

    for (unsigned i = 0; i < map->count; i++) {
        const MemoryRange *range = &map->ranges[i];

        if (range->host && !(range->flags & MEMORY_READONLY)) {
            regions[n++] = (VhostRegion){
                .addr = range->addr,
                .size = range->size,
                .host = (uintptr_t)range->host,
                .fd = range->fd,
                .offset = range->offset,
            };
        }
    }
    return dev->backend->ops->set_memory(dev->backend, regions, n, errp);
}

/* --- the log --- */

static uint64_t memory_end(const VhostDev *dev)
{
    const MemoryMap *map = dev->vdev->dma->map;
    const MemoryRange *last = map->count ? &map->ranges[map->count - 1] : NULL;

    return last ? last->addr + last->size : 0;
}

static void log_free(VhostDev *dev)
{
    if (dev->log.bits) {
        munmap(dev->log.bits, dev->log.size);
        close(dev->log.fd);
    }
    dev->log = (VhostLog){.fd = -1};
}

static gboolean log_alloc(VhostDev *dev, GError **errp)
{
    const uint64_t bytes_a_word = LOG_PAGE * 64;
    uint64_t words = memory_end(dev) / bytes_a_word + 1;
    VhostLog log = {.fd = memfd_create("vhost-log", MFD_CLOEXEC), .size = words * sizeof(uint64_t)};

    if (log.fd < 0 || ftruncate(log.fd, (off_t)log.size) < 0) {
        error_set_errno(errp, errno, "%s: cannot make a log for vhost", dev->backend->name);
        if (log.fd >= 0) {
            close(log.fd);
        }
        return FALSE;
    }
    log.bits = mmap(NULL, log.size, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd, 0);
    if (log.bits == MAP_FAILED) {
        error_set_errno(errp, errno, "%s: cannot map the log for vhost", dev->backend->name);
        close(log.fd);
        return FALSE;
    }
    dev->log = log;
    return TRUE;
}

static void log_sync(VhostDev *dev)
{
    uint64_t words = dev->log.bits ? dev->log.size / sizeof(uint64_t) : 0;

    for (uint64_t word = 0; word < words; word++) {
        uint64_t bits;

        if (!__atomic_load_n(&dev->log.bits[word], __ATOMIC_RELAXED)) {
            continue;
        }
        /* Taken before the pages are read: what is written later sets its bit again. */
        bits = __atomic_exchange_n(&dev->log.bits[word], 0, __ATOMIC_SEQ_CST);
        while (bits) {
            unsigned bit = (unsigned)__builtin_ctzll(bits);

            dma_mark_dirty(dev->vdev->dma, (word * 64 + bit) * LOG_PAGE, LOG_PAGE);
            bits &= bits - 1;
        }
    }
}

/* Before the rings are started. */
static gboolean dev_log_start(VhostDev *dev, GError **errp)
{
    g_autoptr(GError) err = NULL;

    if (!log_alloc(dev, errp)) {
        return FALSE;
    }
    if (dev->backend->ops->set_log(dev->backend, &dev->log, &err) && set_features(dev, &err)) {
        return TRUE;
    }
    log_free(dev);
    if (dev->backend->ops->needs_shared_memory && dev->backend->connected) {
        return set_features(dev, errp); /* without a log: see vhost_set_logging() */
    }
    g_propagate_error(errp, g_steal_pointer(&err));
    return FALSE;
}

/* After the rings are stopped. */
static void dev_log_stop(VhostDev *dev)
{
    log_sync(dev);
    log_free(dev);
}

void vhost_set_logging(bool on)
{
    logging = on;
}

void vhost_log_sync(void)
{
    for (unsigned i = 0; devices && i < devices->len; i++) {
        log_sync(devices->pdata[i]);
    }
}

/* --- a ring --- */

/* Host address of a ring area; 0 with error where it is not RAM in one piece. */
static uint64_t ring_area(VhostQueue *q, uint64_t addr, uint64_t size, GError **errp)
{
    uint64_t len = size;
    void *host = dma_translate(q->dev->vdev->dma, addr, &len, true);

    if (!host || len < size) {
        error_set(errp, "%s: queue %u: its ring at 0x%" G_GINT64_MODIFIER "x is not in RAM",
                  q->dev->backend->name, q->index, addr);
        return 0;
    }
    return (uintptr_t)host;
}

static gboolean find_areas(VhostQueue *q, GError **errp)
{
    VirtQueue *vq = ring_of(q);
    uint64_t desc, avail, used, num = virtqueue_num(vq);
    bool packed = is_packed(q->dev);
    uint64_t event = sizeof(struct vring_packed_desc_event);

    virtqueue_get_addresses(vq, &desc, &avail, &used);
    q->vring.num = (unsigned)num;
    q->vring.used_guest = used;
    q->vring.desc = ring_area(q, desc, num * sizeof(struct vring_desc), errp);
    q->vring.avail = q->vring.desc ? ring_area(q, avail, packed ? event : 6 + 2 * num, errp) : 0;
    q->vring.used = q->vring.avail ? ring_area(q, used, packed ? event : 6 + 8 * num, errp) : 0;
    return q->vring.used != 0;
}

/* Where the back end goes on.  What the device had taken and not used is taken back. */
static uint32_t ring_base(VhostQueue *q)
{
    VirtQueue *vq = ring_of(q);

    if (virtqueue_inuse(vq)) {
        virtqueue_set_indices(vq, virtqueue_used_idx(vq), virtqueue_used_idx(vq));
    }
    return is_packed(q->dev) ? virtqueue_last_avail_idx(vq) | (uint32_t)virtqueue_used_idx(vq) << 16
                             : virtqueue_last_avail_idx(vq);
}

static void take_back(VhostQueue *q, uint32_t base)
{
    VirtQueue *vq = ring_of(q);

    if (is_packed(q->dev)) {
        uint16_t avail = (uint16_t)base, used = (uint16_t)(base >> 16);

        /* Back ends of old say the first only: all that they took they have used. */
        virtqueue_set_indices(vq, avail, used ? used : avail);
    } else {
        uint16_t used =
            __atomic_load_n((uint16_t *)(uintptr_t)(q->vring.used + 2), __ATOMIC_ACQUIRE);

        virtqueue_set_indices(vq, (uint16_t)base, used);
    }
}

/* The back end is gone: what is used is done, what is not will be done again. */
static void take_back_lost(VhostQueue *q)
{
    if (is_packed(q->dev)) {
        /* The ring itself does not say it; where it was handed over is the best that is known. */
        take_back(q, q->vring.base);
    } else {
        uint16_t used =
            __atomic_load_n((uint16_t *)(uintptr_t)(q->vring.used + 2), __ATOMIC_ACQUIRE);

        virtqueue_set_indices(ring_of(q), used, used);
    }
}

static void call_ready(void *opaque)
{
    VhostQueue *q = opaque;

    if (event_notifier_test_and_clear(&q->call)) {
        virtio_notify_now(q->dev->vdev, ring_of(q));
    }
}

static void err_ready(void *opaque)
{
    VhostQueue *q = opaque;

    if (event_notifier_test_and_clear(&q->err)) {
        virtio_error(q->dev->vdev, "queue %u: %s says that it is broken", q->index,
                     q->dev->backend->ops->kind);
    }
}

static gboolean notifiers_open(VhostQueue *q, GError **errp)
{
    return (q->call.fd >= 0 || event_notifier_init(&q->call, errp)) &&
           (q->err.fd >= 0 || event_notifier_init(&q->err, errp));
}

static EventNotifier *kick_of(VhostQueue *q, GError **errp)
{
    VirtIODevice *vdev = q->dev->vdev;
    EventNotifier *notifier = vdev->transport->notifier
                                  ? vdev->transport->notifier(vdev->transport_opaque, q->index)
                                  : NULL;

    if (notifier) {
        return notifier;
    }
    return q->kick.fd >= 0 || event_notifier_init(&q->kick, errp) ? &q->kick : NULL;
}

static void watch(VhostQueue *q, bool on)
{
    event_loop_set_fd_handler(event_loop_main(), q->call.fd, on ? call_ready : NULL, NULL, q);
    event_loop_set_fd_handler(event_loop_main(), q->err.fd, on ? err_ready : NULL, NULL, q);
}

static gboolean queue_start(VhostQueue *q, GError **errp)
{
    VhostDev *dev = q->dev;
    EventNotifier *kick = notifiers_open(q, errp) ? kick_of(q, errp) : NULL;

    if (!kick || !find_areas(q, errp)) {
        return FALSE;
    }
    q->vring.base = ring_base(q);
    q->vring.kick = kick->fd;
    q->vring.call = q->call.fd;
    q->vring.err = q->err.fd;
    q->vring.log = dev->log.bits != NULL;
    if (!dev->backend->ops->vring_start(dev->backend, q->index - dev->first, &q->vring, errp)) {
        return FALSE;
    }
    q->started = true;
    dev->vdev->queues[q->index].outside = kick;
    watch(q, true);
    /* The driver may have notified before: the back end looks at the ring once for nothing. */
    event_notifier_set(kick);
    return TRUE;
}

static void queue_stop(VhostQueue *q)
{
    VhostDev *dev = q->dev;
    g_autoptr(GError) err = NULL;
    uint32_t base;

    if (!q->started) {
        return;
    }
    q->started = false;
    dev->vdev->queues[q->index].outside = NULL;
    if (vhost_dev_lost(dev)) {
        take_back_lost(q);
    } else if (dev->backend->ops->vring_stop(dev->backend, q->index - dev->first, &base, &err)) {
        take_back(q, base);
    } else {
        warn_report("%s", err->message);
        take_back_lost(q);
    }
    watch(q, false);
    call_ready(q);
}

static bool queue_exists(const VhostQueue *q)
{
    VirtioQueue *queue = virtio_queue(q->dev->vdev, q->index);

    return q->index < q->dev->limit && queue && queue->enabled && virtqueue_ready(queue->vq);
}

static gboolean enable(VhostDev *dev, const VhostQueue *q, GError **errp)
{
    unsigned i = q->index - dev->first;

    return !q->started || !dev->backend->ops->vring_enable ||
           dev->backend->ops->vring_enable(dev->backend, i, i / 2 < dev->enabled_pairs, errp);
}

gboolean vhost_dev_start_queue(VhostDev *dev, unsigned index, GError **errp)
{
    VhostQueue *q;

    if (!dev->started || index < dev->first || index >= MIN(dev->first + dev->count, dev->limit)) {
        return TRUE;
    }
    q = &dev->queues[index - dev->first];
    return q->started || (queue_start(q, errp) && enable(dev, q, errp));
}

void vhost_dev_stop_queue(VhostDev *dev, unsigned index)
{
    if (index >= dev->first && index < dev->first + dev->count) {
        queue_stop(&dev->queues[index - dev->first]);
    }
}

gboolean vhost_dev_enable_pairs(VhostDev *dev, unsigned pairs, GError **errp)
{
    dev->enabled_pairs = pairs;
    if (!dev->started || vhost_dev_lost(dev)) {
        return TRUE;
    }
    for (unsigned i = 0; i < dev->count; i++) {
        if (!enable(dev, &dev->queues[i], errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

/* --- the device --- */

static unsigned longest_ring(const VhostDev *dev)
{
    unsigned num = 0;

    for (unsigned i = 0; i < dev->count; i++) {
        if (queue_exists(&dev->queues[i])) {
            num = MAX(num, virtqueue_num(ring_of(&dev->queues[i])));
        }
    }
    return num;
}

static gboolean start_queues(VhostDev *dev, GError **errp)
{
    for (unsigned i = 0; i < dev->count; i++) {
        if (queue_exists(&dev->queues[i]) && !queue_start(&dev->queues[i], errp)) {
            return FALSE;
        }
    }
    for (unsigned i = 0; i < dev->count; i++) {
        if (!enable(dev, &dev->queues[i], errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean start(VhostDev *dev, GError **errp)
{
    VhostBackend *b = dev->backend;
    unsigned num = longest_ring(dev);

    return set_features(dev, errp) && set_memory(dev, errp) &&
           (!num || b->ops->prepare(b, num, errp)) && (!logging || dev_log_start(dev, errp)) &&
           (!dev->mtu || !b->ops->set_mtu || b->ops->set_mtu(b, dev->mtu, errp)) &&
           start_queues(dev, errp) && b->ops->run(b, errp);
}

gboolean vhost_dev_start(VhostDev *dev, GError **errp)
{
    if (dev->started) {
        return TRUE;
    }
    if (!dev->backend->connected) {
        return error_set(errp, "netdev '%s': %s is not connected", dev->backend->name,
                         dev->backend->ops->kind);
    }
    dev->started = true;
    dev->connection = dev->backend->connection;
    if (start(dev, errp)) {
        return TRUE;
    }
    vhost_dev_stop(dev);
    return FALSE;
}

void vhost_dev_stop(VhostDev *dev)
{
    if (!dev->started) {
        return;
    }
    for (unsigned i = 0; i < dev->count; i++) {
        queue_stop(&dev->queues[i]);
    }
    dev_log_stop(dev);
    dev->started = false;
}

bool vhost_dev_is_started(const VhostDev *dev)
{
    return dev->started;
}

void vhost_dev_reset(VhostDev *dev)
{
    if (dev->backend->ops->reset) {
        dev->backend->ops->reset(dev->backend);
    }
}

VhostBackend *vhost_dev_backend(const VhostDev *dev)
{
    return dev->backend;
}

void vhost_dev_set_features(VhostDev *dev, uint64_t extra, uint64_t off)
{
    dev->extra_features = extra;
    dev->features_off = off;
}

void vhost_dev_set_limit(VhostDev *dev, unsigned limit)
{
    dev->limit = limit;
}

void vhost_dev_set_mtu(VhostDev *dev, uint16_t mtu)
{
    dev->mtu = mtu;
}

VhostDev *vhost_dev_new(VirtIODevice *vdev, VhostBackend *backend, unsigned first)
{
    VhostDev *dev = g_new0(VhostDev, 1);

    dev->vdev = vdev;
    dev->backend = backend;
    dev->first = first;
    dev->count = backend->vrings;
    dev->enabled_pairs = 1;
    dev->log.fd = -1;
    dev->queues = g_new0(VhostQueue, dev->count);
    for (unsigned i = 0; i < dev->count; i++) {
        dev->queues[i] = (VhostQueue){.dev = dev, .index = first + i};
        dev->queues[i].kick.fd = dev->queues[i].call.fd = dev->queues[i].err.fd = -1;
    }
    if (!devices) {
        devices = g_ptr_array_new();
    }
    g_ptr_array_add(devices, dev);
    return dev;
}

static void notifier_close(EventNotifier *notifier)
{
    if (notifier->fd >= 0) {
        event_notifier_cleanup(notifier);
    }
}

void vhost_dev_free(VhostDev *dev)
{
    if (!dev) {
        return;
    }
    vhost_dev_stop(dev);
    g_ptr_array_remove(devices, dev);
    if (!devices->len) {
        g_clear_pointer(&devices, g_ptr_array_unref);
    }
    for (unsigned i = 0; i < dev->count; i++) {
        notifier_close(&dev->queues[i].kick);
        notifier_close(&dev->queues[i].call);
        notifier_close(&dev->queues[i].err);
    }
    g_free(dev->queues);
    g_free(dev);
}
