/*
 * The x-query-virtio commands, and "info virtio…": a virtio device as its driver sees it.
 *
 * Everything is read where it lives: a queue's numbers in the queue's own loop, rings through the
 * device's view of guest memory.  Nothing moves, so asking does not disturb the device.
 */
#include <string.h>

#include "hw/pci/pci.h"
#include "hw/virtio/virtio.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "system.h"
#include "util/error.h"
#include "util/json.h"

/* A chain longer than this is not followed (as many as the largest ring has). */
#define MAX_DESCRIPTORS 1024

typedef struct BitName {
    unsigned bit;
    const char *name;
} BitName;

/* Bits 24 to 41 and the like belong to ring and transport (virtio 1.2, section 6), whatever the
 * device; 24, 27 and 30 are of the legacy interface (6.3). */
static const BitName transport_bits[] = {
    {24, "VIRTIO_F_NOTIFY_ON_EMPTY"},
    {27, "VIRTIO_F_ANY_LAYOUT"},
    {28, "VIRTIO_RING_F_INDIRECT_DESC"},
    {29, "VIRTIO_RING_F_EVENT_IDX"},
    {30, "VIRTIO_F_BAD_FEATURE"},
    {32, "VIRTIO_F_VERSION_1"},
    {33, "VIRTIO_F_IOMMU_PLATFORM"},
    {34, "VIRTIO_F_RING_PACKED"},
    {35, "VIRTIO_F_IN_ORDER"},
    {36, "VIRTIO_F_ORDER_PLATFORM"},
    {37, "VIRTIO_F_SR_IOV"},
    {38, "VIRTIO_F_NOTIFICATION_DATA"},
    {39, "VIRTIO_F_NOTIF_CONFIG_DATA"},
    {40, "VIRTIO_F_RING_RESET"},
    {41, "VIRTIO_F_ADMIN_VQ"},
};

static const BitName status_bits[] = {
    {0, "VIRTIO_CONFIG_S_ACKNOWLEDGE"}, {1, "VIRTIO_CONFIG_S_DRIVER"},
    {2, "VIRTIO_CONFIG_S_DRIVER_OK"},   {3, "VIRTIO_CONFIG_S_FEATURES_OK"},
    {6, "VIRTIO_CONFIG_S_NEEDS_RESET"}, {7, "VIRTIO_CONFIG_S_FAILED"},
};

static const char *device_kind(const VirtIODevice *vdev)
{
    return vdev->device_id == VIRTIO_ID_NET ? "virtio-net" : object_type_name(OBJECT(vdev));
}

static void foreach_device(Object *obj, void (*fn)(VirtIODevice *vdev, void *opaque), void *opaque)
{
    if (IS_VIRTIO_DEVICE(obj) && DEVICE(obj)->realized) {
        fn(VIRTIO_DEVICE(obj), opaque);
    }
    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        foreach_device(g_ptr_array_index(obj->children, i), fn, opaque);
    }
}

static void add_device(VirtIODevice *vdev, void *opaque)
{
    VirtioInfoList ***tail = opaque;
    VirtioInfo *info = g_new0(VirtioInfo, 1);

    info->path = object_canonical_path(OBJECT(vdev));
    info->name = g_strdup(device_kind(vdev));
    QAPI_LIST_APPEND(*tail, info);
}

VirtioInfoList *qmp_x_query_virtio(GError **errp)
{
    VirtioInfoList *list = NULL, **tail = &list;

    foreach_device(qom_container("/machine"), add_device, &tail);
    return list;
}

/* The device at @path, also by the path or id of the PCI function that carries it. */
static VirtIODevice *find_device(const char *path, GError **errp)
{
    Object *obj = qom_resolve_path(path, NULL);

    if (obj && !IS_VIRTIO_DEVICE(obj)) {
        obj = object_child(obj, "virtio-backend");
    }
    if (!obj || !IS_VIRTIO_DEVICE(obj) || !DEVICE(obj)->realized) {
        error_set(errp, "Path %s is not a realized VirtIODevice", path);
        return NULL;
    }
    return VIRTIO_DEVICE(obj);
}

/* ---- status ---- */

static const char *bit_name(const BitName *names, unsigned count, unsigned bit)
{
    for (unsigned i = 0; i < count; i++) {
        if (names[i].bit == bit) {
            return names[i].name;
        }
    }
    return NULL;
}

static VirtioDeviceStatus *decode_status(uint8_t status)
{
    VirtioDeviceStatus *info = g_new0(VirtioDeviceStatus, 1);
    strList **tail = &info->statuses;
    uint8_t unknown = 0;

    for (unsigned bit = 0; bit < 8; bit++) {
        if (status & (1u << bit)) {
            const char *name = bit_name(status_bits, G_N_ELEMENTS(status_bits), bit);
            if (name) {
                QAPI_LIST_APPEND(tail, g_strdup(name));
            } else {
                unknown |= (uint8_t)(1u << bit);
            }
        }
    }
    info->has_unknown_statuses = unknown != 0;
    info->unknown_statuses = unknown;
    return info;
}

static VirtioDeviceFeatures *decode_features(VirtIODevice *vdev, VirtioFeatures features)
{
    VirtioDeviceFeatures *info = g_new0(VirtioDeviceFeatures, 1);
    const char *const *names = VIRTIO_DEVICE_GET_CLASS(vdev)->feature_names;
    strList **transports = &info->transports, **own = &info->dev_features;

    for (unsigned bit = 0; bit < 128; bit++) {
        const char *name = bit_name(transport_bits, G_N_ELEMENTS(transport_bits), bit);
        if (!(features & VIRTIO_FEATURE(bit))) {
            continue;
        }
        if (name) {
            QAPI_LIST_APPEND(transports, g_strdup(name));
        } else if (names && names[bit]) {
            QAPI_LIST_APPEND(own, g_strdup(names[bit]));
        } else if (bit < 64) {
            info->has_unknown_dev_features = true;
            info->unknown_dev_features |= UINT64_C(1) << bit;
        } else {
            info->has_unknown_dev_features2 = true;
            info->unknown_dev_features2 |= UINT64_C(1) << (bit - 64);
        }
    }
    return info;
}

static unsigned count_queues(VirtIODevice *vdev)
{
    unsigned count = 0;

    for (unsigned i = 0; i < vdev->num_queues; i++) {
        count += virtio_queue(vdev, i) != NULL;
    }
    return count;
}

VirtioStatus *qmp_x_query_virtio_status(const char *path, GError **errp)
{
    VirtIODevice *vdev = find_device(path, errp);

    if (!vdev) {
        return NULL;
    }
    VirtioStatus *info = g_new0(VirtioStatus, 1);
    BusState *bus = DEVICE(vdev)->parent_bus;
    VirtioFeatures offered = virtio_offered_features(vdev, vdev->legacy_driver);
    info->name = g_strdup(device_kind(vdev));
    info->device_id = vdev->device_id;
    info->device_endian = g_strdup("little");
    info->guest_features = decode_features(vdev, vdev->guest_features);
    info->host_features = decode_features(vdev, offered);
    info->backend_features = decode_features(vdev, vdev->host_features);
    info->num_vqs = count_queues(vdev);
    info->status = decode_status(vdev->status);
    info->isr = virtio_isr_peek(vdev);
    info->queue_sel = vdev->queue_sel;
    info->vm_running = vdev->vm_running;
    info->broken = __atomic_load_n(&vdev->broken, __ATOMIC_RELAXED);
    info->disabled = vdev->disabled;
    info->use_started = vdev->use_started;
    info->started = vdev->started;
    info->bus_name = g_strdup(bus && bus->bus_name ? bus->bus_name : "");
    info->use_guest_notifier_mask = true;
    return info;
}

/* ---- queues ---- */

static VirtioQueue *find_queue(VirtIODevice *vdev, uint16_t index, GError **errp)
{
    VirtioQueue *queue = index < vdev->num_queues ? virtio_queue(vdev, index) : NULL;

    if (!queue) {
        error_set(errp, "Invalid virtqueue number %u, the device has %u", index,
                  count_queues(vdev));
    }
    return queue;
}

/* Runs @fn where the queue's numbers may be read: in its loop while the device runs. */
static void in_queue_loop(VirtioQueue *queue, BottomHalfFunc *fn, void *opaque)
{
    if (queue->loop && queue->loop != event_loop_main()) {
        event_loop_run_sync(queue->loop, fn, opaque);
    } else {
        fn(opaque);
    }
}

typedef struct QueueLook {
    VirtioQueue *queue;
    VirtQueueStatus *status;
} QueueLook;

static void look_at_queue(void *opaque)
{
    QueueLook *look = opaque;
    VirtQueue *vq = look->queue->vq;
    VirtQueueStatus *status = look->status;

    status->queue_index = (uint16_t)virtqueue_index(vq);
    status->inuse = virtqueue_inuse(vq);
    status->vring_num = virtqueue_num(vq);
    virtqueue_get_addresses(vq, &status->vring_desc, &status->vring_avail, &status->vring_used);
    status->has_last_avail_idx = status->has_shadow_avail_idx = true;
    status->last_avail_idx = virtqueue_last_avail_idx(vq);
    status->shadow_avail_idx = status->last_avail_idx;
    status->used_idx = virtqueue_used_idx(vq);
    status->signalled_used = status->used_idx;
}

VirtQueueStatus *qmp_x_query_virtio_queue_status(const char *path, uint16_t queue, GError **errp)
{
    VirtIODevice *vdev = find_device(path, errp);
    VirtioQueue *vq = vdev ? find_queue(vdev, queue, errp) : NULL;

    if (!vq) {
        return NULL;
    }
    QueueLook look = {vq, g_new0(VirtQueueStatus, 1)};
    look.status->name = g_strdup(device_kind(vdev));
    look.status->vring_num_default = vq->max_num;
    look.status->vring_align = 4096; /* virtio 1.2, section 2.7.2 */
    in_queue_loop(vq, look_at_queue, &look);
    return look.status;
}

typedef struct RawDescriptor {
    uint64_t addr;
    uint32_t len;
    uint16_t flags, next;
} RawDescriptor;

static bool read_descriptor(VirtIODevice *vdev, uint64_t table, unsigned index,
                            RawDescriptor *descriptor)
{
    uint8_t bytes[16];

    if (!dma_read(vdev->dma, table + index * sizeof(bytes), bytes, sizeof(bytes))) {
        return false;
    }
    descriptor->addr = (uint64_t)pci_get_long(bytes) | (uint64_t)pci_get_long(bytes + 4) << 32;
    descriptor->len = pci_get_long(bytes + 8);
    descriptor->flags = pci_get_word(bytes + 12);
    descriptor->next = pci_get_word(bytes + 14);
    return true;
}

static void add_descriptor(VirtioRingDescList ***tail, const RawDescriptor *descriptor)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{1, "next"}, {2, "write"}, {4, "indirect"}};
    VirtioRingDesc *info = g_new0(VirtioRingDesc, 1);
    strList **flags = &info->flags;

    info->addr = descriptor->addr;
    info->len = descriptor->len;
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        if (descriptor->flags & names[i].bit) {
            QAPI_LIST_APPEND(flags, g_strdup(names[i].name));
        }
    }
    QAPI_LIST_APPEND(*tail, info);
}

/* The chain that begins at @head; what is wrong with it ends it. */
static VirtioRingDescList *read_chain(VirtIODevice *vdev, uint64_t table, unsigned size,
                                      unsigned head)
{
    VirtioRingDescList *list = NULL, **tail = &list;
    RawDescriptor descriptor;

    for (unsigned n = 0, i = head; n < MAX_DESCRIPTORS && i < size; n++, i = descriptor.next) {
        if (!read_descriptor(vdev, table, i, &descriptor)) {
            break;
        }
        add_descriptor(&tail, &descriptor);
        if (descriptor.flags & 4) { /* the chain goes on in its own table, from entry 0 */
            table = descriptor.addr;
            size = MIN(descriptor.len / 16, MAX_DESCRIPTORS);
            descriptor.next = 0;
        } else if (!(descriptor.flags & 1)) {
            break;
        }
    }
    return list;
}

/* A 16-bit field of a ring. */
static bool read_ring(VirtIODevice *vdev, uint64_t addr, uint16_t *value)
{
    uint8_t bytes[2];

    if (!dma_read(vdev->dma, addr, bytes, sizeof(bytes))) {
        return false;
    }
    *value = pci_get_word(bytes);
    return true;
}

VirtioQueueElement *qmp_x_query_virtio_queue_element(const char *path, uint16_t queue,
                                                     bool has_index, uint16_t index, GError **errp)
{
    VirtIODevice *vdev = find_device(path, errp);
    VirtioQueue *vq = vdev ? find_queue(vdev, queue, errp) : NULL;
    uint16_t position;

    if (!vq) {
        return NULL;
    }
    if (virtio_has_feature(vdev, VIRTIO_F_RING_PACKED)) {
        error_set(errp, "Packed ring not supported");
        return NULL;
    }
    QueueLook look = {vq, g_new0(VirtQueueStatus, 1)};
    in_queue_loop(vq, look_at_queue, &look);
    VirtQueueStatus status = *look.status;
    g_free(look.status);
    if (!status.vring_desc || !status.vring_num) {
        error_set(errp, "virtqueue %u has no ring yet", queue);
        return NULL;
    }
    VirtioQueueElement *element = g_new0(VirtioQueueElement, 1);
    element->avail = g_new0(VirtioRingAvail, 1);
    element->used = g_new0(VirtioRingUsed, 1);
    position = (uint16_t)((has_index ? index : status.last_avail_idx) % status.vring_num);
    bool ok =
        read_ring(vdev, status.vring_avail, &element->avail->flags) &&
        read_ring(vdev, status.vring_avail + 2, &element->avail->idx) &&
        read_ring(vdev, status.vring_avail + 4 + 2 * (uint64_t)position, &element->avail->ring) &&
        read_ring(vdev, status.vring_used, &element->used->flags) &&
        read_ring(vdev, status.vring_used + 2, &element->used->idx);
    if (!ok) {
        error_set(errp, "virtqueue %u: its ring is not in the guest's memory", queue);
        qapi_free_VirtioQueueElement(element);
        return NULL;
    }
    element->name = g_strdup(device_kind(vdev));
    element->index = element->avail->ring;
    element->descs = read_chain(vdev, status.vring_desc, status.vring_num, element->avail->ring);
    return element;
}

/* ---- the human monitor ---- */

static bool print_error(GString *out, GError *err)
{
    if (err) {
        g_string_append_printf(out, "Error: %s\r\n", err->message);
        g_error_free(err);
    }
    return err != NULL;
}

void hmp_info_virtio(const char *args, GString *out)
{
    VirtioInfoList *list = qmp_x_query_virtio(NULL);

    if (!list) {
        g_string_append(out, "No VirtIO devices\r\n");
    }
    for (VirtioInfoList *l = list; l; l = l->next) {
        g_string_append_printf(out, "%s [%s]\r\n", l->value->path, l->value->name);
    }
    qapi_free_VirtioInfoList(list);
}

static void print_names(GString *out, const char *title, const strList *names)
{
    g_string_append_printf(out, "  %s:\r\n", title);
    for (; names; names = names->next) {
        g_string_append_printf(out, "    %s\r\n", names->value);
    }
}

static void print_features(GString *out, const char *title, const VirtioDeviceFeatures *features)
{
    print_names(out, title, features->transports);
    for (const strList *l = features->dev_features; l; l = l->next) {
        g_string_append_printf(out, "    %s\r\n", l->value);
    }
    if (features->has_unknown_dev_features) {
        g_string_append_printf(out, "    unknown: 0x%016" PRIx64 "\r\n",
                               features->unknown_dev_features);
    }
}

static void print_flag(GString *out, const char *name, bool value)
{
    g_string_append_printf(out, "  %s: %s\r\n", name, value ? "true" : "false");
}

void hmp_info_virtio_status(const char *args, GString *out)
{
    GError *err = NULL;
    VirtioStatus *status = qmp_x_query_virtio_status(args, &err);

    if (print_error(out, err)) {
        return;
    }
    g_string_append_printf(out, "%s:\r\n  device_name: %s\r\n", args, status->name);
    print_flag(out, "vm_running", status->vm_running);
    print_flag(out, "broken", status->broken);
    print_flag(out, "disabled", status->disabled);
    print_flag(out, "started", status->started);
    g_string_append_printf(out, "  isr: %u\r\n  num_vqs: %" PRId64 "\r\n  queue_sel: %u\r\n",
                           status->isr, status->num_vqs, status->queue_sel);
    print_names(out, "status", status->status->statuses);
    print_features(out, "Guest features", status->guest_features);
    print_features(out, "Host features", status->host_features);
    qapi_free_VirtioStatus(status);
}

/* "PATH QUEUE [INDEX]"; false: something else was written, and said so. */
static bool parse_queue(const char *args, char **path, uint16_t *queue, int *index, GString *out)
{
    g_auto(GStrv) words = g_strsplit(args, " ", -1);
    unsigned count = g_strv_length(words);
    guint64 number = 0, at = 0;

    if (count < 2 || count > (index ? 3u : 2u) ||
        !g_ascii_string_to_unsigned(words[1], 10, 0, UINT16_MAX, &number, NULL) ||
        (count == 3 && !g_ascii_string_to_unsigned(words[2], 10, 0, UINT16_MAX, &at, NULL))) {
        g_string_append_printf(out, "expected: PATH QUEUE%s\r\n", index ? " [INDEX]" : "");
        return false;
    }
    *path = g_strdup(words[0]);
    *queue = (uint16_t)number;
    if (index) {
        *index = count == 3 ? (int)at : -1;
    }
    return true;
}

void hmp_info_virtio_queue_status(const char *args, GString *out)
{
    g_autofree char *path = NULL;
    GError *err = NULL;
    uint16_t queue;

    if (!parse_queue(args, &path, &queue, NULL, out)) {
        return;
    }
    VirtQueueStatus *s = qmp_x_query_virtio_queue_status(path, queue, &err);
    if (print_error(out, err)) {
        return;
    }
    g_string_append_printf(out,
                           "%s:\r\n  device_name: %s\r\n  queue_index: %u\r\n  inuse: %u\r\n"
                           "  used_idx: %u\r\n  last_avail_idx: %u\r\n  VRing:\r\n"
                           "    num: %u\r\n    num_default: %u\r\n    desc: 0x%016" PRIx64
                           "\r\n    avail: 0x%016" PRIx64 "\r\n    used: 0x%016" PRIx64 "\r\n",
                           path, s->name, s->queue_index, s->inuse, s->used_idx, s->last_avail_idx,
                           s->vring_num, s->vring_num_default, s->vring_desc, s->vring_avail,
                           s->vring_used);
    qapi_free_VirtQueueStatus(s);
}

void hmp_info_virtio_queue_element(const char *args, GString *out)
{
    g_autofree char *path = NULL;
    GError *err = NULL;
    uint16_t queue;
    int index;

    if (!parse_queue(args, &path, &queue, &index, out)) {
        return;
    }
    VirtioQueueElement *e =
        qmp_x_query_virtio_queue_element(path, queue, index >= 0, (uint16_t)MAX(index, 0), &err);
    if (print_error(out, err)) {
        return;
    }
    g_string_append_printf(out, "%s:\r\n  device_name: %s\r\n  index: %u\r\n  desc:\r\n", path,
                           e->name, e->index);
    for (VirtioRingDescList *l = e->descs; l; l = l->next) {
        g_string_append_printf(out, "    addr 0x%" PRIx64 " len %u", l->value->addr, l->value->len);
        for (strList *f = l->value->flags; f; f = f->next) {
            g_string_append_printf(out, " %s", f->value);
        }
        g_string_append(out, "\r\n");
    }
    g_string_append_printf(out,
                           "  avail:\r\n    flags: %u\r\n    idx: %u\r\n    ring: %u\r\n"
                           "  used:\r\n    flags: %u\r\n    idx: %u\r\n",
                           e->avail->flags, e->avail->idx, e->avail->ring, e->used->flags,
                           e->used->idx);
    qapi_free_VirtioQueueElement(e);
}
