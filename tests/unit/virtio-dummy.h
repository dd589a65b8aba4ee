/*
 * A virtio device that does nothing but note what it is told, and its PCI forms "dummy-pci",
 * "dummy-pci-transitional" and "dummy-pci-non-transitional", for tests of the transport.
 */
#ifndef TESTS_UNIT_VIRTIO_DUMMY_H
#define TESTS_UNIT_VIRTIO_DUMMY_H

#include "hw/virtio/virtio-pci.h"
#include "hw/virtio/virtio.h"

#define DUMMY_QUEUES     3 /* by default */
#define DUMMY_QUEUES_MAX 129
#define DUMMY_QUEUE_SIZE 16
#define DUMMY_CONFIG     8
#define DUMMY_GSO        6 /* a feature of the legacy interface */
#define DUMMY_OLD        0 /* one of every interface */
#define DUMMY_NEW        60

typedef struct Dummy {
    VirtIODevice parent_obj;
    uint8_t config[DUMMY_CONFIG];
    bool running, refuse, push, fail;
    unsigned starts, stops, resets, feature_calls, queue_resets, queue_enables;
    uint32_t queues;
    unsigned handled[DUMMY_QUEUES_MAX]; /* atomic */
    EventLoop *loop;                    /* of queue 2 */
    EventLoop *handler_loop;            /* where the last handler ran */
    unsigned depth, max_depth;
} Dummy;

typedef struct DummyClass {
    VirtIODeviceClass parent_class;
} DummyClass;

GType dummy_get_type(void);
G_DEFINE_TYPE(Dummy, dummy, TYPE_VIRTIO_DEVICE)

static void dummy_handler(VirtIODevice *vdev, VirtQueue *vq)
{
    Dummy *dummy = (Dummy *)vdev;
    VirtQueueElement *elem;
    unsigned n;

    dummy->depth++;
    dummy->max_depth = MAX(dummy->max_depth, dummy->depth);
    dummy->handler_loop = event_loop_current();
    /* With @push: every chain is used at once, an interrupt each. */
    while (dummy->push && (n = virtqueue_pop_batch(vq, &elem, 1)) > 0) {
        virtqueue_fill(vq, elem, 0, 0);
        virtqueue_flush(vq, n);
        virtio_notify(vdev, vq);
    }
    __atomic_add_fetch(&dummy->handled[virtqueue_index(vq)], 1, __ATOMIC_SEQ_CST);
    dummy->depth--;
}

static gboolean dummy_realize(VirtIODevice *vdev, GError **errp)
{
    if (((Dummy *)vdev)->fail) {
        return error_set(errp, "dummy fails as asked");
    }
    vdev->config_len = DUMMY_CONFIG;
    for (unsigned i = 0; i < ((Dummy *)vdev)->queues; i++) {
        virtio_add_queue(vdev, DUMMY_QUEUE_SIZE, dummy_handler);
    }
    return TRUE;
}

static VirtioFeatures dummy_get_features(VirtIODevice *vdev, VirtioFeatures wanted, GError **errp)
{
    (void)vdev;
    (void)errp;
    wanted |= VIRTIO_FEATURE(DUMMY_OLD) | VIRTIO_FEATURE(DUMMY_GSO);
    if (wanted & VIRTIO_FEATURE(VIRTIO_F_VERSION_1)) {
        wanted |= VIRTIO_FEATURE(DUMMY_NEW);
    }
    return wanted;
}

static void dummy_set_features(VirtIODevice *vdev, VirtioFeatures features)
{
    (void)features;
    ((Dummy *)vdev)->feature_calls++;
}

static bool dummy_validate(VirtIODevice *vdev, VirtioFeatures features)
{
    (void)features;
    return !((Dummy *)vdev)->refuse;
}

static void dummy_get_config(VirtIODevice *vdev, uint8_t *config)
{
    memcpy(config, ((Dummy *)vdev)->config, DUMMY_CONFIG);
}

static void dummy_set_config(VirtIODevice *vdev, const uint8_t *config)
{
    memcpy(((Dummy *)vdev)->config, config, DUMMY_CONFIG);
}

static void dummy_reset(VirtIODevice *vdev)
{
    g_assert_false(((Dummy *)vdev)->running);
    ((Dummy *)vdev)->resets++;
}

static void dummy_set_running(VirtIODevice *vdev, bool running)
{
    Dummy *dummy = (Dummy *)vdev;

    g_assert_true(dummy->running != running);
    dummy->running = running;
    dummy->starts += running;
    dummy->stops += !running;
}

static void dummy_queue_reset(VirtIODevice *vdev, unsigned index)
{
    (void)index;
    ((Dummy *)vdev)->queue_resets++;
}

static void dummy_queue_enabled(VirtIODevice *vdev, unsigned index)
{
    (void)index;
    ((Dummy *)vdev)->queue_enables++;
}

/* Which loop queue 2 of the next device has. */
static EventLoop *dummy_next_loop;

static EventLoop *dummy_queue_loop(VirtIODevice *vdev, unsigned index)
{
    return index == 2 ? ((Dummy *)vdev)->loop : NULL;
}

static const Property dummy_props[] = {
    PROP_BOOL("fail", Dummy, fail, false, "Refuse to realize"),
    PROP_UINT32("queues", Dummy, queues, DUMMY_QUEUES, "How many"),
    PROP_END,
};

static void dummy_init(Dummy *dummy)
{
    dummy->loop = dummy_next_loop;
}

static void dummy_class_init(DummyClass *klass)
{
    VirtIODeviceClass *virtio_class = &klass->parent_class;

    ((ObjectClass *)klass)->qom_name = "dummy-device";
    qom_class_set_props(klass, dummy_props);
    virtio_class->device_id = VIRTIO_ID_NET;
    virtio_class->legacy_features = VIRTIO_FEATURE(DUMMY_GSO);
    virtio_class->bad_driver_features = VIRTIO_FEATURE(DUMMY_OLD);
    virtio_class->realize = dummy_realize;
    virtio_class->get_features = dummy_get_features;
    virtio_class->set_features = dummy_set_features;
    virtio_class->validate_features = dummy_validate;
    virtio_class->get_config = dummy_get_config;
    virtio_class->set_config = dummy_set_config;
    virtio_class->reset = dummy_reset;
    virtio_class->set_running = dummy_set_running;
    virtio_class->queue_reset = dummy_queue_reset;
    virtio_class->queue_enabled = dummy_queue_enabled;
    virtio_class->queue_loop = dummy_queue_loop;
}

static unsigned dummy_default_vectors(VirtIODevice *vdev)
{
    (void)vdev;
    return 4;
}

static const VirtIOPCITypeInfo dummy_info = {
    .base_name = "dummy-pci",
    .transitional_name = "dummy-pci-transitional",
    .non_transitional_name = "dummy-pci-non-transitional",
    .backend_type = dummy_get_type,
    .legacy_device_id = 0x1000,
    .class_id = 0x0200,
    .category = CATEGORY_NETWORK,
    .description = "Dummy",
    .default_vectors = dummy_default_vectors,
};

#endif
