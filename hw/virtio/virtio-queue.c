/*
 * Queues of a VirtIODevice: set-up by the driver through a transport, and which thread runs their
 * handlers.
 *
 * A queue belongs to one event loop while the device runs (the class's queue_loop(), by default
 * the main loop).  A notification from the loop's own thread calls the handler at once; from
 * another thread, or from within the delivery of an interrupt, it schedules a bottom half there.
 * Stopping waits for that loop, so that no handler is halfway through a ring afterwards.
 *
 * Indices, sizes and addresses come from the driver; what is not allowed is ignored, and ring
 * addresses are checked where rings are first touched (virtqueue.c).
 */
#include "hw/virtio/virtio-internal.h"
#include "util/log.h"
#include "util/trace.h"

VirtioQueue *virtio_queue(VirtIODevice *vdev, unsigned index)
{
    if (index >= VIRTIO_QUEUE_MAX || !vdev->queues || !vdev->queues[index].handler) {
        return NULL;
    }
    return &vdev->queues[index];
}

/* --- making --- */

static void queue_broken(VirtQueue *vq, void *opaque, const char *why)
{
    (void)vq;
    (void)why; /* logged already */
    virtio_device_break(opaque);
}

static void queue_returned_bad(VirtQueue *vq, void *opaque)
{
    virtio_notify(opaque, vq);
}

void virtio_queues_init(VirtIODevice *vdev)
{
    vdev->queues = g_new0(VirtioQueue, VIRTIO_QUEUE_MAX);
    vdev->num_queues = 0;
    for (unsigned i = 0; i < VIRTIO_QUEUE_MAX; i++) {
        vdev->queues[i].vdev = vdev;
        vdev->queues[i].vector = VIRTIO_NO_VECTOR;
    }
}

void virtio_queues_cleanup(VirtIODevice *vdev)
{
    for (unsigned i = 0; i < VIRTIO_QUEUE_MAX; i++) {
        virtqueue_free(vdev->queues[i].vq);
    }
    g_clear_pointer(&vdev->queues, g_free);
    vdev->num_queues = 0;
}

VirtQueue *virtio_add_queue(VirtIODevice *vdev, unsigned num, VirtioQueueHandler *handler)
{
    unsigned index = 0;
    VirtioQueue *queue;

    while (vdev->queues[index].handler) {
        index++;
        g_assert(index < VIRTIO_QUEUE_MAX);
    }
    queue = &vdev->queues[index];
    queue->handler = handler;
    queue->max_num = (uint16_t)num;
    queue->vq = virtqueue_new(index, vdev->dma, queue_broken, vdev);
    virtqueue_set_returned_hook(queue->vq, queue_returned_bad);
    virtqueue_set_num(queue->vq, num);
    vdev->num_queues = MAX(vdev->num_queues, index + 1);
    return queue->vq;
}

void virtio_del_queue(VirtIODevice *vdev, unsigned index)
{
    VirtioQueue *queue = virtio_queue(vdev, index);

    if (!queue) {
        return;
    }
    virtqueue_free(queue->vq);
    *queue = (VirtioQueue){.vdev = vdev, .vector = VIRTIO_NO_VECTOR};
    while (vdev->num_queues > 0 && !vdev->queues[vdev->num_queues - 1].handler) {
        vdev->num_queues--;
    }
}

/* --- handlers and their threads --- */

static void handler_run(VirtioQueue *queue)
{
    if (__atomic_load_n(&queue->active, __ATOMIC_ACQUIRE) && !queue->outside &&
        !__atomic_load_n(&queue->vdev->broken, __ATOMIC_ACQUIRE) && virtqueue_ready(queue->vq)) {
        queue->handler(queue->vdev, queue->vq);
    }
}

static void kick_bottom_half(void *opaque)
{
    handler_run(opaque);
}

void virtio_queue_run(VirtIODevice *vdev, unsigned index)
{
    VirtioQueue *queue = virtio_queue(vdev, index);

    if (queue) {
        handler_run(queue);
    }
}

void virtio_queue_notify(VirtIODevice *vdev, unsigned index)
{
    VirtioQueue *queue = virtio_queue(vdev, index);

    trace_virtio_queue_notify(vdev, index);
    if (!queue || !queue->active) {
        return;
    }
    if (queue->outside) {
        event_notifier_set(queue->outside);
        return;
    }
    if (virtio_access_is_nested() || !event_loop_is_current(queue->loop)) {
        bh_schedule(queue->kick);
    } else {
        handler_run(queue);
    }
}

static void queue_attach(void *opaque)
{
    VirtioQueue *queue = opaque;

    queue->kick = bh_new(queue->loop, kick_bottom_half, queue);
}

static void queue_detach(void *opaque)
{
    VirtioQueue *queue = opaque;

    g_clear_pointer(&queue->kick, bh_delete);
}

static void queue_start(VirtIODevice *vdev, unsigned index)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    VirtioQueue *queue = &vdev->queues[index];

    queue->loop = klass->queue_loop ? klass->queue_loop(vdev, index) : NULL;
    if (!queue->loop) {
        queue->loop = event_loop_main();
    }
    event_loop_run_sync(queue->loop, queue_attach, queue);
    __atomic_store_n(&queue->active, true, __ATOMIC_RELEASE);
}

static void queue_stop(VirtioQueue *queue)
{
    if (!queue->active) {
        return;
    }
    /* A handler that began before sees this no more; the loop's answer says that it is done. */
    __atomic_store_n(&queue->active, false, __ATOMIC_RELEASE);
    event_loop_run_sync(queue->loop, queue_detach, queue);
}

void virtio_queues_start(VirtIODevice *vdev)
{
    for (unsigned i = 0; i < vdev->num_queues; i++) {
        if (vdev->queues[i].handler) {
            queue_start(vdev, i);
        }
    }
}

void virtio_queues_stop(VirtIODevice *vdev)
{
    for (unsigned i = 0; i < vdev->num_queues; i++) {
        queue_stop(&vdev->queues[i]);
    }
}

/* --- set-up by the driver --- */

static void apply_rules(VirtIODevice *vdev, VirtQueue *vq)
{
    bool modern = virtio_is_modern(vdev);

    virtqueue_set_rules(
        vq, &(VirtQueueRules){
                .packed = virtio_has_feature(vdev, VIRTIO_F_RING_PACKED),
                .event_idx = virtio_has_feature(vdev, VIRTIO_RING_F_EVENT_IDX),
                .indirect = virtio_has_feature(vdev, VIRTIO_RING_F_INDIRECT_DESC),
                .in_order = virtio_has_feature(vdev, VIRTIO_F_IN_ORDER),
                .notify_on_empty = !modern && virtio_has_feature(vdev, VIRTIO_F_NOTIFY_ON_EMPTY),
                .legacy = !modern,
            });
}

void virtio_queues_apply_rules(VirtIODevice *vdev)
{
    for (unsigned i = 0; i < vdev->num_queues; i++) {
        if (vdev->queues[i].vq) {
            apply_rules(vdev, vdev->queues[i].vq);
        }
    }
}

static void queue_reset_state(VirtioQueue *queue)
{
    virtqueue_reset(queue->vq);
    virtqueue_set_num(queue->vq, queue->max_num);
    queue->enabled = false;
    queue->desc = queue->avail = queue->used = 0;
    queue->vector = VIRTIO_NO_VECTOR;
}

void virtio_queues_reset(VirtIODevice *vdev)
{
    for (unsigned i = 0; i < vdev->num_queues; i++) {
        if (vdev->queues[i].vq) {
            queue_reset_state(&vdev->queues[i]);
        }
    }
}

void virtio_set_queue_role(VirtIODevice *vdev, unsigned index, unsigned num,
                           VirtioQueueHandler *handler)
{
    VirtioQueue *queue = &vdev->queues[index];

    if (queue->handler == handler && (!handler || queue->max_num == num)) {
        return;
    }
    queue_stop(queue);
    queue->handler = handler;
    if (handler) {
        queue->max_num = (uint16_t)num;
    }
    queue_reset_state(queue);
}

void virtio_queue_set_num(VirtIODevice *vdev, unsigned index, unsigned num)
{
    VirtioQueue *queue = virtio_queue(vdev, index);
    bool any = virtio_has_feature(vdev, VIRTIO_F_RING_PACKED);

    if (!queue || queue->enabled) {
        return;
    }
    if (num == 0 || num > queue->max_num || (!any && (num & (num - 1)))) {
        guest_error("%s: queue %u: size %u is not allowed, at most %u%s",
                    device_name(&vdev->parent_obj), index, num, queue->max_num,
                    any ? "" : " and a power of two");
        return;
    }
    virtqueue_set_num(queue->vq, num);
}

/* The address that @half is half of, and how far up in it. */
static uint64_t *half_address(VirtioQueue *queue, VirtioQueueHalf half, unsigned *shift)
{
    uint64_t *const addresses[] = {&queue->desc, &queue->avail, &queue->used};

    *shift = 32 * (half % 2);
    return addresses[half / 2];
}

uint32_t virtio_queue_address(VirtIODevice *vdev, unsigned index, VirtioQueueHalf half)
{
    VirtioQueue *queue = virtio_queue(vdev, index);
    unsigned shift;

    if (!queue) {
        return 0;
    }
    uint64_t address = *half_address(queue, half, &shift);
    return (uint32_t)(address >> shift);
}

void virtio_queue_set_address(VirtIODevice *vdev, unsigned index, VirtioQueueHalf half,
                              uint32_t value)
{
    VirtioQueue *queue = virtio_queue(vdev, index);
    unsigned shift;

    if (queue) {
        uint64_t *address = half_address(queue, half, &shift);

        *address = (*address & ~((uint64_t)UINT32_MAX << shift)) | (uint64_t)value << shift;
    }
}

void virtio_queue_enable(VirtIODevice *vdev, unsigned index)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    VirtioQueue *queue = virtio_queue(vdev, index);

    if (!queue || queue->enabled) {
        return;
    }
    queue_stop(queue); /* nobody looks while the addresses change */
    queue->enabled = true;
    virtqueue_set_addresses(queue->vq, queue->desc, queue->avail, queue->used);
    apply_rules(vdev, queue->vq);
    if (!vdev->started) {
        return;
    }
    /* One queue comes back while the others run. */
    queue_start(vdev, index);
    if (klass->queue_enabled) {
        klass->queue_enabled(vdev, index);
    }
}

void virtio_queue_reset(VirtIODevice *vdev, unsigned index)
{
    if (virtio_has_feature(vdev, VIRTIO_F_RING_RESET)) {
        virtio_queue_disable(vdev, index);
    }
}

void virtio_queue_disable(VirtIODevice *vdev, unsigned index)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    VirtioQueue *queue = virtio_queue(vdev, index);

    if (!queue) {
        return;
    }
    queue_stop(queue);
    if (klass->queue_reset) {
        klass->queue_reset(vdev, index);
    }
    queue_reset_state(queue);
}

void virtio_queue_set_legacy_address(VirtIODevice *vdev, unsigned index, uint64_t address,
                                     uint64_t align)
{
    VirtioQueue *queue = virtio_queue(vdev, index);
    uint64_t num, end;

    if (!queue) {
        return;
    }
    if (address == 0) {
        queue->desc = queue->avail = queue->used = 0;
        virtqueue_set_addresses(queue->vq, 0, 0, 0);
        queue->enabled = false;
        return;
    }
    /* virtio 1.2, section 2.7.2: the used ring begins at the next multiple of @align. */
    num = virtqueue_num(queue->vq);
    queue->desc = address;
    queue->avail = queue->desc + num * sizeof(struct vring_desc);
    end = queue->avail + sizeof(uint16_t) * (3 + num);
    queue->used = (end + align - 1) & ~(align - 1);
    queue->enabled = false;
    virtio_queue_enable(vdev, index);
}
