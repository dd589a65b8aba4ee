/*
 * Migration of what all virtio devices share: from the device into a VirtioSaved, and back.
 *
 * Chains that the device has popped and not used are not in the stream.  They are saved as not yet
 * popped, and so the next device takes them again: nothing is lost, and nothing sent twice, because
 * what is not used was not sent.
 */
#include <inttypes.h>
#include <linux/virtio_pci.h>
#include <string.h>

#include "hw/virtio/virtio-internal.h"
#include "hw/virtio/virtio-vmstate.h"

#define DEVICE_ENDIAN_LITTLE 1

VirtioFeatures virtio_saved_features(const VirtioSaved *s)
{
    uint64_t low = s->has_features64 ? s->features64 : s->guest_features;

    return (VirtioFeatures)s->features128 << 64 | low;
}

void virtio_saved_prepare(VirtioSaved *s, VirtIODevice *vdev)
{
    s->config_vector = VIRTIO_NO_VECTOR;
    s->device_endian = DEVICE_ENDIAN_LITTLE;
    while (virtio_queue(vdev, s->possible_queues)) {
        s->possible_num[s->possible_queues] = vdev->queues[s->possible_queues].max_num;
        s->possible_queues++;
    }
    vdev->transport->saved->prepare(s, vdev->transport_opaque);
    for (unsigned i = 0; i < VIRTIO_QUEUE_MAX; i++) {
        s->queues[i].has_vector = s->has_msix;
        s->queues[i].has_align = s->mmio;
        s->queues[i].align = VIRTIO_PCI_VRING_ALIGN;
        s->queues[i].vector = VIRTIO_NO_VECTOR;
        s->queues[i].last_avail_wrap = s->queues[i].used_wrap = true; /* as after reset */
    }
}

/* --- saving --- */

static void split64(uint32_t halves[2], uint64_t value)
{
    halves[0] = (uint32_t)value;
    halves[1] = (uint32_t)(value >> 32);
}

static uint64_t join64(const uint32_t halves[2])
{
    return (uint64_t)halves[1] << 32 | halves[0];
}

static void queue_fill(VirtioQueueSaved *q, const VirtIODevice *vdev, const VirtioQueue *queue)
{
    /* Where the oldest chain that is not used begins. */
    uint16_t used = virtqueue_used_idx(queue->vq);
    bool packed = virtio_has_feature(vdev, VIRTIO_F_RING_PACKED);

    q->num = virtqueue_num(queue->vq);
    q->num_default = queue->max_num;
    q->vector = queue->vector;
    virtqueue_get_addresses(queue->vq, &q->desc, &q->avail, &q->used);
    q->last_avail_idx = packed ? used & 0x7fff : used;
    q->packed_last_avail = q->packed_used = packed ? used & 0x7fff : used;
    q->last_avail_wrap = q->used_wrap = packed ? used >> 15 : true;
    if (!vdev->legacy_driver) {
        bool touched = queue->enabled || q->num != q->num_default;

        q->modern_num = touched ? (uint16_t)q->num : 0;
        q->modern_enabled = queue->enabled;
        split64(q->modern_desc, queue->desc);
        split64(q->modern_avail, queue->avail);
        split64(q->modern_used, queue->used);
    }
}

void virtio_saved_fill(VirtioSaved *s, VirtIODevice *vdev)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    virtio_saved_prepare(s, vdev);
    s->config_vector = vdev->config_vector;
    s->status = vdev->status;
    s->isr = virtio_isr_peek(vdev);
    s->queue_sel = vdev->queue_sel;
    s->features64 = (uint64_t)vdev->guest_features;
    s->features128 = (uint64_t)(vdev->guest_features >> 64);
    s->guest_features = (uint32_t)vdev->guest_features;
    s->config_len = (uint32_t)vdev->config_len;
    if (klass->get_config) {
        klass->get_config(vdev, s->config);
    }
    s->num_queues = s->possible_queues;
    for (unsigned i = 0; i < s->num_queues; i++) {
        queue_fill(&s->queues[i], vdev, &vdev->queues[i]);
        s->has_ringsize |= s->queues[i].num != s->queues[i].num_default;
    }
    s->broken = vdev->broken;
    s->started = vdev->use_started && (vdev->status & VIRTIO_CONFIG_S_DRIVER_OK);
    s->disabled = vdev->use_disabled_flag && vdev->disabled;
    vdev->transport->saved->fill(s, vdev->transport_opaque);
    s->has_features64 = (uint64_t)vdev->host_features >> 32;
    /* Only where they say something: QEMU before 10.2 does not know them. */
    s->has_features128 = s->features128 || s->modern_features128[0] || s->modern_features128[1];
    s->has_virtqueues = virtio_host_has_feature(vdev, VIRTIO_F_VERSION_1);
    s->has_packed = virtio_host_has_feature(vdev, VIRTIO_F_RING_PACKED);
    s->has_modern128 = s->has_features128;
}

/* --- checking --- */

/* The used index that the ring itself has; false: it is not in RAM, which breaks the device as
 * soon as it runs. */
static bool read_used_idx(const VirtIODevice *vdev, uint64_t used, uint16_t *idx)
{
    uint64_t addr = used + offsetof(struct vring_used, idx);
    const MemoryRange *range = memory_map_find(vdev->dma->map, addr);

    if (!range || addr - range->addr > range->size - sizeof(*idx)) {
        return false;
    }
    *idx = pci_get_word(range->host + (addr - range->addr));
    return true;
}

static bool is_power_of_two(uint32_t num)
{
    return num && !(num & (num - 1));
}

static gboolean check_split(VirtioQueueSaved *q, unsigned i, const VirtIODevice *vdev,
                            GError **errp)
{
    uint16_t used = q->last_avail_idx, inuse;

    if (!is_power_of_two(q->num)) {
        return error_set(errp, "queues[%u].num %u is not a power of two", i, q->num);
    }
    if (read_used_idx(vdev, q->used, &used)) {
        inuse = (uint16_t)(q->last_avail_idx - used);
        if (inuse > q->num) {
            return error_set(errp,
                             "queues[%u]: last_avail_idx 0x%x - used index 0x%x in the ring is "
                             "more than its size 0x%x",
                             i, q->last_avail_idx, used, q->num);
        }
    }
    q->last_avail_idx = used;
    return TRUE;
}

static gboolean check_packed(VirtioQueueSaved *q, unsigned i, GError **errp)
{
    if (q->packed_last_avail >= q->num) {
        return error_set(errp, "queues[%u].packed_last_avail %u >= its size %u", i,
                         q->packed_last_avail, q->num);
    }
    if (q->packed_used >= q->num) {
        return error_set(errp, "queues[%u].packed_used %u >= its size %u", i, q->packed_used,
                         q->num);
    }
    if (q->inuse > q->num) {
        return error_set(errp, "queues[%u].inuse %u > its size %u", i, q->inuse, q->num);
    }
    return TRUE;
}

static gboolean check_vector(const VirtioSaved *s, const char *what, unsigned i, uint16_t vector,
                             GError **errp)
{
    if (vector != VIRTIO_NO_VECTOR && vector >= s->possible_vectors) {
        return error_set(errp, "%s[%u].vector %u >= %u", what, i, vector, s->possible_vectors);
    }
    return TRUE;
}

/* A legacy driver knows one address; where the rest is follows (virtio 1.2, 2.7.2). */
static void legacy_addresses(VirtioQueueSaved *q)
{
    uint64_t end;

    q->avail = q->desc + q->num * sizeof(struct vring_desc);
    end = q->avail + sizeof(uint16_t) * (3 + (uint64_t)q->num);
    q->used = (end + q->align - 1) & ~(uint64_t)(q->align - 1);
}

static gboolean check_queue(VirtioSaved *s, unsigned i, const VirtIODevice *vdev, GError **errp)
{
    VirtioQueueSaved *q = &s->queues[i];
    bool packed = virtio_saved_features(s) & VIRTIO_FEATURE(VIRTIO_F_RING_PACKED);

    if (q->num == 0 || q->num > s->possible_num[i]) {
        return error_set(errp, "queues[%u].num %u, 1 to %u are possible here", i, q->num,
                         s->possible_num[i]);
    }
    if (s->has_ringsize && (q->num_default < q->num || q->num_default > s->possible_num[i])) {
        return error_set(errp, "queues[%u].num_default %u, %u to %u are possible here", i,
                         q->num_default, q->num, s->possible_num[i]);
    }
    if (!check_vector(s, "queues", i, q->vector, errp)) {
        return FALSE;
    }
    if (!is_power_of_two(q->align)) {
        return error_set(errp, "queues[%u].align %u is not a power of two", i, q->align);
    }
    if (!s->has_virtqueues && q->desc) {
        legacy_addresses(q);
    }
    if (!q->desc && !q->avail && !q->used) {
        return !q->last_avail_idx || packed ||
               error_set(errp, "queues[%u]: last_avail_idx 0x%x without an address", i,
                         q->last_avail_idx);
    }
    return packed ? check_packed(q, i, errp) : check_split(q, i, vdev, errp);
}

gboolean virtio_saved_check(VirtioSaved *s, VirtIODevice *vdev, GError **errp)
{
    VirtioFeatures features = virtio_saved_features(s);
    VirtioFeatures lacking = features & ~vdev->host_features;

    if (s->device_endian != DEVICE_ENDIAN_LITTLE) {
        return error_set(errp, "device_endian %u, only little-endian (%u) is possible here",
                         s->device_endian, DEVICE_ENDIAN_LITTLE);
    }
    if (lacking) {
        return error_set(errp,
                         "Features 0x%" PRIx64 "%016" PRIx64 " unsupported. Allowed features: "
                         "0x%" PRIx64 "%016" PRIx64,
                         (uint64_t)(features >> 64), (uint64_t)features,
                         (uint64_t)(vdev->host_features >> 64), (uint64_t)vdev->host_features);
    }
    if (s->num_queues != s->possible_queues) {
        return error_set(errp, "num_queues %u, this device has %u", s->num_queues,
                         s->possible_queues);
    }
    if ((features & VIRTIO_FEATURE(VIRTIO_F_RING_PACKED)) && !s->has_packed) {
        return error_set(errp,
                         "packed rings are in use, and 'virtio/packed_virtqueues' is missing");
    }
    if (!check_vector(s, "config", 0, s->config_vector, errp)) {
        return FALSE;
    }
    if (vdev->transport->saved->check &&
        !vdev->transport->saved->check(s, vdev->transport_opaque, errp)) {
        return FALSE;
    }
    for (unsigned i = 0; i < s->num_queues; i++) {
        if (!check_queue(s, i, vdev, errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

/* --- applying --- */

static void queue_apply(const VirtioSaved *s, unsigned i, VirtIODevice *vdev)
{
    const VirtioQueueSaved *q = &s->queues[i];
    VirtioQueue *queue = &vdev->queues[i];
    bool in_use = q->desc || q->avail || q->used;

    virtqueue_set_num(queue->vq, q->num);
    virtqueue_set_addresses(queue->vq, q->desc, q->avail, q->used);
    queue->enabled = in_use || (s->has_modern && q->modern_enabled);
    queue->desc = in_use ? q->desc : join64(q->modern_desc);
    queue->avail = in_use ? q->avail : join64(q->modern_avail);
    queue->used = in_use ? q->used : join64(q->modern_used);
}

static void queue_apply_indices(const VirtioSaved *s, unsigned i, VirtIODevice *vdev)
{
    const VirtioQueueSaved *q = &s->queues[i];
    uint16_t at = q->last_avail_idx;

    if (virtio_has_feature(vdev, VIRTIO_F_RING_PACKED)) {
        at = (uint16_t)(q->packed_used | (q->used_wrap ? 0x8000 : 0));
    }
    if (virtqueue_ready(vdev->queues[i].vq)) {
        virtqueue_set_indices(vdev->queues[i].vq, at, at);
    }
}

void virtio_saved_apply(const VirtioSaved *s, VirtIODevice *vdev)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    vdev->transport->saved->reset(s, vdev->transport_opaque);
    vdev->guest_features = virtio_saved_features(s);
    if (klass->set_features) {
        klass->set_features(vdev, vdev->guest_features);
    }
    vdev->legacy_driver = !virtio_is_modern(vdev) && (s->status & VIRTIO_CONFIG_S_DRIVER) != 0;
    for (unsigned i = 0; i < s->num_queues; i++) {
        if (vdev->queues[i].vq) {
            queue_apply(s, i, vdev);
        }
    }
    virtio_queues_apply_rules(vdev);
    for (unsigned i = 0; i < s->num_queues; i++) {
        if (vdev->queues[i].vq) {
            queue_apply_indices(s, i, vdev);
        }
    }
    __atomic_store_n(&vdev->isr, s->isr, __ATOMIC_SEQ_CST);
    vdev->queue_sel = s->queue_sel;
    vdev->disabled = s->disabled;
    vdev->needs_reset_told = s->status & VIRTIO_CONFIG_S_NEEDS_RESET;
    __atomic_store_n(&vdev->broken, s->broken || vdev->needs_reset_told, __ATOMIC_SEQ_CST);
    vdev->transport->saved->apply(s, vdev->transport_opaque);
    vdev->status = s->status;
    if (klass->status_changed) {
        klass->status_changed(vdev, s->status);
    }
}
