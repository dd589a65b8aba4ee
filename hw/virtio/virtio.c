/*
 * VirtIODevice: the device behind every transport (virtio 1.2, chapters 2 and 3).
 *
 * A transport turns register accesses into the calls of the second half of virtio.h; this file
 * keeps the status byte, negotiates features, and decides one thing again after every event:
 * whether the device may run (DRIVER_OK, VM running, bus mastering on, not broken, not drained,
 * memory map not being replaced).  run_state_update() brings the device there and knows no
 * history, so events may come in any order.
 *
 * Everything here runs in the main thread, except virtio_notify*() and virtio_error().  Queues,
 * and in which thread their handlers run: virtio-queue.c.
 */
#include <string.h>

#include "hw/virtio/virtio-internal.h"
#include "util/log.h"
#include "util/runstate.h"
#include "util/trace.h"

G_DEFINE_ABSTRACT_TYPE(VirtIODevice, virtio_device, TYPE_DEVICE)

#define LEGACY_FEATURES                                                                            \
    (VIRTIO_FEATURE(VIRTIO_F_NOTIFY_ON_EMPTY) | VIRTIO_FEATURE(VIRTIO_F_ANY_LAYOUT))
#define LEGACY_MASK ((VirtioFeatures)UINT32_MAX) /* the legacy interface has 32 bits */

static _Thread_local unsigned interrupts_in_delivery;

bool virtio_access_is_nested(void)
{
    return interrupts_in_delivery > 0;
}

/* --- features --- */

bool virtio_has_feature(const VirtIODevice *vdev, unsigned bit)
{
    return vdev->guest_features & VIRTIO_FEATURE(bit);
}

bool virtio_host_has_feature(const VirtIODevice *vdev, unsigned bit)
{
    return vdev->host_features & VIRTIO_FEATURE(bit);
}

bool virtio_is_modern(const VirtIODevice *vdev)
{
    return virtio_has_feature(vdev, VIRTIO_F_VERSION_1);
}

VirtioFeatures virtio_offered_features(VirtIODevice *vdev, bool legacy)
{
    if (legacy) {
        return vdev->host_features & LEGACY_MASK;
    }
    return vdev->host_features &
           ~(LEGACY_FEATURES | VIRTIO_DEVICE_GET_CLASS(vdev)->legacy_features);
}

void virtio_set_features(VirtIODevice *vdev, VirtioFeatures features)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    VirtioFeatures offered = virtio_offered_features(vdev, vdev->legacy_driver);

    /* A legacy driver has no FEATURES_OK: what it accepts is settled when it begins to drive. */
    if (vdev->status & (VIRTIO_CONFIG_S_FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK)) {
        guest_error("%s: features written after %s", device_name(&vdev->parent_obj),
                    vdev->status & VIRTIO_CONFIG_S_FEATURES_OK ? "FEATURES_OK" : "DRIVER_OK");
        return;
    }
    if (vdev->legacy_driver && (features & VIRTIO_FEATURE(VIRTIO_F_BAD_FEATURE))) {
        features = klass->bad_driver_features;
    }
    vdev->bad_features = (features & ~offered) != 0;
    features &= offered & ~VIRTIO_FEATURE(VIRTIO_F_BAD_FEATURE);
    if (features == vdev->guest_features) {
        return;
    }
    vdev->guest_features = features;
    if (klass->set_features) {
        klass->set_features(vdev, features);
    }
}

/* Whether FEATURES_OK may be set (virtio 1.2, section 2.2.2). */
static bool features_acceptable(VirtIODevice *vdev)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    if (vdev->bad_features) {
        guest_error("%s: the driver accepted features that are not offered",
                    device_name(&vdev->parent_obj));
        return false;
    }
    if (virtio_host_has_feature(vdev, VIRTIO_F_ACCESS_PLATFORM) &&
        !virtio_has_feature(vdev, VIRTIO_F_ACCESS_PLATFORM)) {
        guest_error("%s: the driver must accept ACCESS_PLATFORM", device_name(&vdev->parent_obj));
        return false;
    }
    return !klass->validate_features || klass->validate_features(vdev, vdev->guest_features);
}

/* --- running --- */

static bool may_run(const VirtIODevice *vdev)
{
    return (vdev->status & VIRTIO_CONFIG_S_DRIVER_OK) && vdev->vm_running && vdev->dma->enabled &&
           !vdev->dma_changing && vdev->drains == 0 &&
           !__atomic_load_n(&vdev->broken, __ATOMIC_ACQUIRE);
}

static void run(VirtIODevice *vdev)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    virtio_queues_apply_rules(vdev);
    vdev->started = true;
    if (klass->set_running) {
        klass->set_running(vdev, true);
    }
    virtio_queues_start(vdev);
    if (vdev->transport->started) {
        vdev->transport->started(vdev->transport_opaque, true);
    }
}

static void halt(VirtIODevice *vdev)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    if (vdev->transport->started) {
        vdev->transport->started(vdev->transport_opaque, false);
    }
    virtio_queues_stop(vdev);
    vdev->started = false;
    if (klass->set_running) {
        klass->set_running(vdev, false);
    }
}

void virtio_pause_notifications(VirtIODevice *vdev)
{
    if (vdev->started && vdev->transport->started) {
        vdev->transport->started(vdev->transport_opaque, false);
    }
}

void virtio_resume_notifications(VirtIODevice *vdev)
{
    if (vdev->started && vdev->transport->started) {
        vdev->transport->started(vdev->transport_opaque, true);
    }
}

static void run_state_update(VirtIODevice *vdev)
{
    bool wanted = may_run(vdev);

    if (wanted == vdev->started) {
        return;
    }
    if (wanted) {
        run(vdev);
    } else {
        halt(vdev);
    }
}

static void vm_state_changed(void *opaque, bool running)
{
    VirtIODevice *vdev = opaque;

    vdev->vm_running = running;
    run_state_update(vdev);
}

static VirtIODevice *from_dma_listener(DmaListener *listener)
{
    return (VirtIODevice *)((char *)listener - offsetof(VirtIODevice, dma_listener));
}

static void dma_change_begin(DmaListener *listener)
{
    VirtIODevice *vdev = from_dma_listener(listener);

    vdev->dma_changing = true;
    run_state_update(vdev);
}

static void dma_change_end(DmaListener *listener)
{
    VirtIODevice *vdev = from_dma_listener(listener);

    vdev->dma_changing = false;
    run_state_update(vdev);
}

static void virtio_device_drain_begin(DeviceState *dev)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);

    vdev->drains++;
    if (vdev->dma) {
        run_state_update(vdev);
    }
}

static void virtio_device_drain_end(DeviceState *dev)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);

    if (vdev->drains > 0) {
        vdev->drains--;
    }
    if (vdev->dma && vdev->parent_obj.realized) {
        run_state_update(vdev);
    }
}

/* --- interrupts --- */

static void interrupt(VirtIODevice *vdev, uint8_t isr, uint16_t vector)
{
    if ((__atomic_load_n(&vdev->isr, __ATOMIC_RELAXED) & isr) != isr) {
        __atomic_fetch_or(&vdev->isr, isr, __ATOMIC_SEQ_CST);
    }
    interrupts_in_delivery++;
    vdev->transport->notify(vdev->transport_opaque, vector);
    interrupts_in_delivery--;
}

void virtio_notify_now(VirtIODevice *vdev, VirtQueue *vq)
{
    unsigned queue = virtqueue_index(vq);
    uint16_t vector = __atomic_load_n(&vdev->queues[queue].vector, __ATOMIC_RELAXED);

    trace_virtio_notify(vdev, queue, vector);
    interrupt(vdev, VIRTIO_ISR_QUEUE, vector);
}

void virtio_notify(VirtIODevice *vdev, VirtQueue *vq)
{
    if (virtqueue_should_interrupt(vq)) {
        virtio_notify_now(vdev, vq);
    }
}

void virtio_notify_config(VirtIODevice *vdev)
{
    vdev->generation++;
    if (vdev->status & VIRTIO_CONFIG_S_DRIVER_OK) {
        interrupt(vdev, VIRTIO_ISR_CONFIG, vdev->config_vector);
    }
}

uint8_t virtio_isr_take(VirtIODevice *vdev)
{
    return __atomic_exchange_n(&vdev->isr, 0, __ATOMIC_SEQ_CST);
}

void virtio_isr_clear(VirtIODevice *vdev, uint8_t bits)
{
    __atomic_fetch_and(&vdev->isr, (uint8_t)~bits, __ATOMIC_SEQ_CST);
}

uint8_t virtio_isr_peek(const VirtIODevice *vdev)
{
    return __atomic_load_n(&vdev->isr, __ATOMIC_SEQ_CST);
}

/* --- a broken device --- */

/* A legacy driver knows no NEEDS_RESET: it just meets a silent device. */
static void tell_needs_reset(VirtIODevice *vdev)
{
    if (vdev->needs_reset_told) {
        return;
    }
    vdev->needs_reset_told = true;
    if (virtio_is_modern(vdev)) {
        vdev->status |= VIRTIO_CONFIG_S_NEEDS_RESET;
        virtio_notify_config(vdev);
    }
}

static void broken_bottom_half(void *opaque)
{
    VirtIODevice *vdev = opaque;

    if (__atomic_load_n(&vdev->broken, __ATOMIC_ACQUIRE)) {
        tell_needs_reset(vdev);
        run_state_update(vdev);
    }
}

void virtio_device_break(VirtIODevice *vdev)
{
    if (__atomic_exchange_n(&vdev->broken, true, __ATOMIC_SEQ_CST)) {
        return;
    }
    /* The device is perhaps in the middle of something: it is stopped from a bottom half. */
    if (event_loop_is_current(event_loop_main())) {
        tell_needs_reset(vdev);
    }
    bh_schedule(vdev->broken_bh);
}

void virtio_error(VirtIODevice *vdev, const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, fmt);
    text = g_strdup_vprintf(fmt, args);
    va_end(args);
    guest_error("%s: %s; broken until reset", device_name(&vdev->parent_obj), text);
    virtio_device_break(vdev);
}

/* --- status and reset --- */

void virtio_reset(VirtIODevice *vdev)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    trace_virtio_set_status(vdev, 0);
    vdev->status = 0;
    run_state_update(vdev);
    bh_cancel(vdev->broken_bh);
    __atomic_store_n(&vdev->broken, false, __ATOMIC_SEQ_CST);
    vdev->needs_reset_told = false;
    vdev->bad_features = false;
    vdev->legacy_driver = false;
    vdev->queue_sel = 0;
    vdev->config_vector = VIRTIO_NO_VECTOR;
    __atomic_store_n(&vdev->isr, 0, __ATOMIC_SEQ_CST);
    virtio_set_features(vdev, 0);
    if (klass->reset) {
        klass->reset(vdev);
    }
    virtio_queues_reset(vdev);
    vdev->disabled = false;
    if (klass->status_changed) {
        klass->status_changed(vdev, 0);
    }
}

void virtio_set_status(VirtIODevice *vdev, uint8_t status)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    uint8_t old = vdev->status;

    if (status == 0) {
        virtio_reset(vdev);
        return;
    }
    trace_virtio_set_status(vdev, status);
    /* NEEDS_RESET is ours to set. */
    status =
        (uint8_t)((status & ~VIRTIO_CONFIG_S_NEEDS_RESET) | (old & VIRTIO_CONFIG_S_NEEDS_RESET));
    if ((status & ~old & VIRTIO_CONFIG_S_FEATURES_OK) && !features_acceptable(vdev)) {
        status &= (uint8_t)~VIRTIO_CONFIG_S_FEATURES_OK;
    }
    vdev->status = status;
    if (klass->status_changed) {
        klass->status_changed(vdev, status);
    }
    run_state_update(vdev);
}

/* --- device configuration --- */

uint32_t virtio_config_read(VirtIODevice *vdev, unsigned offset, unsigned size)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    uint8_t config[VIRTIO_CONFIG_MAX] = {0};
    uint32_t value = 0;

    if (size > 4 || offset > vdev->config_len || size > vdev->config_len - offset) {
        return UINT32_MAX;
    }
    if (klass->get_config) {
        klass->get_config(vdev, config);
    }
    for (unsigned i = 0; i < size; i++) {
        value |= (uint32_t)config[offset + i] << (8 * i);
    }
    return value;
}

void virtio_config_write(VirtIODevice *vdev, unsigned offset, uint32_t value, unsigned size)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    uint8_t config[VIRTIO_CONFIG_MAX] = {0};

    if (size > 4 || offset > vdev->config_len || size > vdev->config_len - offset ||
        !klass->set_config) {
        return;
    }
    if (klass->get_config) {
        klass->get_config(vdev, config);
    }
    for (unsigned i = 0; i < size; i++) {
        config[offset + i] = (uint8_t)(value >> (8 * i));
    }
    klass->set_config(vdev, config);
}

/* --- life --- */

void virtio_attach_transport(VirtIODevice *vdev, const VirtioTransportOps *ops, void *opaque,
                             DmaSpace *dma)
{
    vdev->transport = ops;
    vdev->transport_opaque = opaque;
    vdev->dma = dma;
}

static gboolean negotiate_offer(VirtIODevice *vdev, GError **errp)
{
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);
    VirtioFeatures wanted = vdev->wanted_features[0] | (VirtioFeatures)vdev->wanted_features[1]
                                                           << 64;
    GError *err = NULL;

    if (vdev->transport->features) {
        wanted |= vdev->transport->features(vdev->transport_opaque);
    }
    /* Bits past 31 exist for drivers that know VERSION_1 only. */
    if (!(wanted & VIRTIO_FEATURE(VIRTIO_F_VERSION_1))) {
        wanted &= LEGACY_MASK;
    }
    if (klass->get_features) {
        wanted = klass->get_features(vdev, wanted, &err);
    }
    if (err) {
        g_propagate_error(errp, err);
        return FALSE;
    }
    vdev->host_features = wanted;
    return TRUE;
}

static gboolean virtio_device_realize(DeviceState *dev, GError **errp)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    if (!vdev->transport) {
        return error_set(errp, "%s: no transport carries this device, create its PCI form instead",
                         object_type_name(&dev->parent_obj));
    }
    vdev->device_id = klass->device_id;
    vdev->drains = 0;
    vdev->config_vector = VIRTIO_NO_VECTOR;
    virtio_queues_init(vdev);
    if (klass->realize && !klass->realize(vdev, errp)) {
        virtio_queues_cleanup(vdev);
        return FALSE;
    }
    if (!negotiate_offer(vdev, errp)) {
        if (klass->unrealize) {
            klass->unrealize(vdev);
        }
        virtio_queues_cleanup(vdev);
        return FALSE;
    }
    vdev->vm_running = vm_is_running();
    vdev->broken_bh = bh_new(event_loop_main(), broken_bottom_half, vdev);
    vdev->vmstate = vm_state_add_notifier(0, vm_state_changed, vdev);
    vdev->dma_listener = (DmaListener){.begin = dma_change_begin, .end = dma_change_end};
    dma_space_add_listener(vdev->dma, &vdev->dma_listener);
    return TRUE;
}

static void virtio_device_unrealize(DeviceState *dev)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);
    VirtIODeviceClass *klass = VIRTIO_DEVICE_GET_CLASS(vdev);

    virtio_reset(vdev);
    dma_space_remove_listener(vdev->dma, &vdev->dma_listener);
    vm_state_remove_notifier(vdev->vmstate);
    vdev->vmstate = NULL;
    if (klass->unrealize) {
        klass->unrealize(vdev);
    }
    virtio_queues_cleanup(vdev);
    g_clear_pointer(&vdev->broken_bh, bh_delete);
}

static void virtio_device_reset(DeviceState *dev)
{
    virtio_reset(VIRTIO_DEVICE(dev));
}

static const Property virtio_device_props[] = {
    PROP_BIT64("indirect_desc", VirtIODevice, wanted_features[0], VIRTIO_RING_F_INDIRECT_DESC, true,
               "Indirect descriptor tables"),
    PROP_BIT64("event_idx", VirtIODevice, wanted_features[0], VIRTIO_RING_F_EVENT_IDX, true,
               "Event indices: fewer notifications and interrupts"),
    PROP_BIT64("notify_on_empty", VirtIODevice, wanted_features[0], VIRTIO_F_NOTIFY_ON_EMPTY, true,
               "Interrupt a legacy driver when a queue runs empty"),
    PROP_BIT64("any_layout", VirtIODevice, wanted_features[0], VIRTIO_F_ANY_LAYOUT, true,
               "Legacy drivers may lay out frames and headers in any way"),
    PROP_BIT64("iommu_platform", VirtIODevice, wanted_features[0], VIRTIO_F_ACCESS_PLATFORM, false,
               "The driver must use the platform's DMA addresses"),
    PROP_BIT64("packed", VirtIODevice, wanted_features[0], VIRTIO_F_RING_PACKED, false,
               "Packed rings"),
    PROP_BIT64("in_order", VirtIODevice, wanted_features[0], VIRTIO_F_IN_ORDER, false,
               "Buffers are used in the order in which they were made available"),
    PROP_BIT64("notification_data", VirtIODevice, wanted_features[0], VIRTIO_F_NOTIFICATION_DATA,
               false, "The driver's notifications say how far it is"),
    PROP_BIT64("queue_reset", VirtIODevice, wanted_features[0], VIRTIO_F_RING_RESET, true,
               "The driver may reset a single queue"),
    PROP_BOOL("use-started", VirtIODevice, use_started, true,
              "Whether DRIVER_OK was reached is in the migration stream"),
    PROP_BOOL("use-disabled-flag", VirtIODevice, use_disabled_flag, true,
              "Whether queues are disabled is in the migration stream"),
    PROP_END,
};

static void virtio_device_init(VirtIODevice *vdev)
{
    vdev->config_vector = VIRTIO_NO_VECTOR;
}

static void virtio_device_class_init(VirtIODeviceClass *klass)
{
    ObjectClass *object_class = &klass->parent_class.parent_class;
    DeviceClass *device_class = &klass->parent_class;

    object_class->qom_name = "virtio-device";
    qom_class_set_props(klass, virtio_device_props);
    device_class->bus_type = "virtio-bus";
    device_class->user_creatable_device = true;
    device_class->realize = virtio_device_realize;
    device_class->unrealize = virtio_device_unrealize;
    device_class->reset = virtio_device_reset;
    device_class->drain_begin = virtio_device_drain_begin;
    device_class->drain_end = virtio_device_drain_end;
}
