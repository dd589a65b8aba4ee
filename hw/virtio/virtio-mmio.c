/*
 * virtio-mmio: a virtio device behind 512 bytes of registers (virtio 1.2, section 4.2), legacy
 * (version 1, force-legacy=on) or modern (version 2).
 *
 * A slot exists from the start, at the address and interrupt line that its machine gave it; a
 * device is plugged into its bus "virtio-mmio-bus.N", or the slot shows device id 0.  The slot is
 * the device's transport: it turns register accesses into the calls of virtio.h, and interrupts
 * into the level of its line, which is up while the interrupt status is not 0.
 *
 * Control registers are 32 bits wide and only accessed so; device configuration begins at 0x100.
 * Main thread, except the interrupt path.  Notifications for queues of other threads travel as
 * bottom halves (virtio_queue_notify), so there are no ioeventfds here.
 */
#include "hw/virtio/virtio-mmio.h"

#include <linux/virtio_mmio.h>
#include <pthread.h>

#include "hw/virtio/virtio-internal.h"
#include "hw/virtio/virtio-mmio-internal.h"
#include "hw/virtio/virtio-vmstate.h"
#include "util/log.h"

#define MAGIC          0x74726976u /* "virt" */
#define VERSION_LEGACY 1
#define VERSION_MODERN 2
#define VENDOR         0x554d4551u /* "QEMU", what drivers know */
#define CONFIG_OFFSET  0x100

#ifndef VIRTIO_MMIO_QUEUE_RESET
#define VIRTIO_MMIO_QUEUE_RESET 0x0c0 /* virtio 1.2, 4.2.2 */
#endif

#define FEATURE_WORDS 4

G_DEFINE_TYPE(VirtioMmio, virtio_mmio, TYPE_DEVICE)

typedef struct VirtioMmioBus {
    VirtioBus parent_obj;
} VirtioMmioBus;
typedef struct VirtioMmioBusClass {
    VirtioBusClass parent_class;
} VirtioMmioBusClass;

static GType virtio_mmio_bus_get_type(void);
G_DEFINE_TYPE(VirtioMmioBus, virtio_mmio_bus, TYPE_VIRTIO_BUS)

/* --- interrupts --- */

/* Two threads may change the status at once: the line follows what it is in the end. */
void virtio_mmio_update_irq(VirtioMmio *slot)
{
    pthread_mutex_lock(&slot->irq_lock);
    slot->set_irq(slot->irq_opaque, slot->irq, virtio_isr_peek(slot->vdev) != 0);
    pthread_mutex_unlock(&slot->irq_lock);
}

static void mmio_notify(void *opaque, uint16_t vector)
{
    (void)vector; /* there is one line */
    virtio_mmio_update_irq(opaque);
}

static VirtioFeatures mmio_features(void *opaque)
{
    VirtioMmio *slot = opaque;

    return slot->force_legacy ? VIRTIO_FEATURE(VIRTIO_F_BAD_FEATURE)
                              : VIRTIO_FEATURE(VIRTIO_F_VERSION_1);
}

static const VirtioTransportOps transport_ops = {
    .notify = mmio_notify,
    .features = mmio_features,
    .saved = &virtio_mmio_saved_ops,
};

/* --- registers; every function is called with a device plugged --- */

static VirtioQueue *selected(VirtioMmio *slot)
{
    return virtio_queue(slot->vdev, slot->vdev->queue_sel);
}

static uint32_t device_id_read(VirtioMmio *slot)
{
    return slot->vdev->device_id;
}

static uint32_t device_features_read(VirtioMmio *slot)
{
    VirtioFeatures offered = virtio_offered_features(slot->vdev, slot->force_legacy);

    return slot->device_features_sel < FEATURE_WORDS
               ? (uint32_t)(offered >> (32 * slot->device_features_sel))
               : 0;
}

static void device_features_sel_write(VirtioMmio *slot, uint32_t value)
{
    slot->device_features_sel = value;
}

static void driver_features_write(VirtioMmio *slot, uint32_t value)
{
    VirtioFeatures features = 0;

    slot->vdev->legacy_driver = slot->force_legacy;
    if (slot->driver_features_sel >= (slot->force_legacy ? 1 : FEATURE_WORDS)) {
        slot->vdev->bad_features |= value && !slot->force_legacy;
        return;
    }
    slot->driver_features[slot->driver_features_sel] = value;
    for (unsigned i = 0; i < FEATURE_WORDS; i++) {
        features |= (VirtioFeatures)slot->driver_features[i] << (32 * i);
    }
    virtio_set_features(slot->vdev, features);
}

static void driver_features_sel_write(VirtioMmio *slot, uint32_t value)
{
    slot->driver_features_sel = value;
}

static void queue_sel_write(VirtioMmio *slot, uint32_t value)
{
    if (value < VIRTIO_QUEUE_MAX) {
        slot->vdev->queue_sel = (uint16_t)value;
    }
}

static uint32_t queue_num_max_read(VirtioMmio *slot)
{
    VirtioQueue *queue = selected(slot);

    return queue ? queue->max_num : 0;
}

static void queue_num_write(VirtioMmio *slot, uint32_t value)
{
    virtio_queue_set_num(slot->vdev, slot->vdev->queue_sel, value);
}

static void queue_notify_write(VirtioMmio *slot, uint32_t value)
{
    /* NOTIFICATION_DATA puts the ring's position above the queue's index. */
    if (virtio_has_feature(slot->vdev, VIRTIO_F_NOTIFICATION_DATA)) {
        value &= 0xffff;
    }
    virtio_queue_notify(slot->vdev, value);
}

static uint32_t interrupt_status_read(VirtioMmio *slot)
{
    return virtio_isr_peek(slot->vdev);
}

static void interrupt_ack_write(VirtioMmio *slot, uint32_t value)
{
    virtio_isr_clear(slot->vdev, (uint8_t)value);
    virtio_mmio_update_irq(slot);
}

static uint32_t status_read(VirtioMmio *slot)
{
    return slot->vdev->status;
}

void virtio_mmio_reset_slot(VirtioMmio *slot)
{
    slot->device_features_sel = slot->driver_features_sel = 0;
    slot->page_size = 0;
    memset(slot->driver_features, 0, sizeof(slot->driver_features));
    memset(slot->queue_align, 0, sizeof(slot->queue_align));
    if (slot->vdev && DEVICE(slot->vdev)->realized) {
        virtio_reset(slot->vdev);
        virtio_mmio_update_irq(slot);
    }
}

static void status_write(VirtioMmio *slot, uint32_t value)
{
    if ((value & 0xff) == 0) {
        virtio_mmio_reset_slot(slot);
        return;
    }
    slot->vdev->legacy_driver = slot->force_legacy;
    virtio_set_status(slot->vdev, (uint8_t)value);
}

static uint32_t generation_read(VirtioMmio *slot)
{
    return slot->vdev->generation;
}

static uint32_t all_ones_read(VirtioMmio *slot)
{
    (void)slot;
    return UINT32_MAX; /* there are no shared memory regions */
}

/* --- legacy: a queue is a page number --- */

static bool is_power_of_two(uint32_t value)
{
    return value && !(value & (value - 1));
}

static void page_size_write(VirtioMmio *slot, uint32_t value)
{
    if (!is_power_of_two(value)) {
        guest_error("virtio-mmio: page size %u, a power of two is allowed", value);
        return;
    }
    slot->page_size = value;
}

static void queue_align_write(VirtioMmio *slot, uint32_t value)
{
    if (!is_power_of_two(value)) {
        guest_error("virtio-mmio: queue alignment %u, a power of two is allowed", value);
        return;
    }
    slot->queue_align[slot->vdev->queue_sel] = value;
}

static uint32_t queue_page_read(VirtioMmio *slot)
{
    VirtioQueue *queue = selected(slot);

    return queue && slot->page_size ? (uint32_t)(queue->desc / slot->page_size) : 0;
}

static void queue_page_write(VirtioMmio *slot, uint32_t value)
{
    uint32_t align = slot->queue_align[slot->vdev->queue_sel];

    slot->vdev->legacy_driver = true;
    if (value && !slot->page_size) {
        guest_error("virtio-mmio: a queue page before the page size");
        return;
    }
    virtio_queue_set_legacy_address(slot->vdev, slot->vdev->queue_sel,
                                    (uint64_t)value * slot->page_size,
                                    align ? align : slot->page_size);
}

/* --- modern: a queue is three addresses --- */

static uint32_t queue_ready_read(VirtioMmio *slot)
{
    VirtioQueue *queue = selected(slot);

    return queue && queue->enabled;
}

static void queue_ready_write(VirtioMmio *slot, uint32_t value)
{
    if (value) {
        virtio_queue_enable(slot->vdev, slot->vdev->queue_sel);
    } else {
        virtio_queue_disable(slot->vdev, slot->vdev->queue_sel);
    }
}

static void queue_reset_write(VirtioMmio *slot, uint32_t value)
{
    if (value == 1) {
        virtio_queue_reset(slot->vdev, slot->vdev->queue_sel); /* done: it reads 0 */
    }
}

#define ADDRESS_REGISTER(name, half)                                                               \
    static void name##_write(VirtioMmio *slot, uint32_t value)                                     \
    {                                                                                              \
        virtio_queue_set_address(slot->vdev, slot->vdev->queue_sel, half, value);                  \
    }

ADDRESS_REGISTER(desc_low, VIRTIO_QUEUE_DESC_LOW)
ADDRESS_REGISTER(desc_high, VIRTIO_QUEUE_DESC_HIGH)
ADDRESS_REGISTER(avail_low, VIRTIO_QUEUE_AVAIL_LOW)
ADDRESS_REGISTER(avail_high, VIRTIO_QUEUE_AVAIL_HIGH)
ADDRESS_REGISTER(used_low, VIRTIO_QUEUE_USED_LOW)
ADDRESS_REGISTER(used_high, VIRTIO_QUEUE_USED_HIGH)

/* --- the table --- */

typedef struct MmioReg {
    uint16_t offset;
    uint8_t versions; /* which have it */
    uint32_t (*read)(VirtioMmio *slot);
    void (*write)(VirtioMmio *slot, uint32_t value);
} MmioReg;

#define V1  (1 << VERSION_LEGACY)
#define V2  (1 << VERSION_MODERN)
#define V12 (V1 | V2)

static const MmioReg regs[] = {
    {VIRTIO_MMIO_DEVICE_ID, V12, device_id_read, NULL},
    {VIRTIO_MMIO_DEVICE_FEATURES, V12, device_features_read, NULL},
    {VIRTIO_MMIO_DEVICE_FEATURES_SEL, V12, NULL, device_features_sel_write},
    {VIRTIO_MMIO_DRIVER_FEATURES, V12, NULL, driver_features_write},
    {VIRTIO_MMIO_DRIVER_FEATURES_SEL, V12, NULL, driver_features_sel_write},
    {VIRTIO_MMIO_GUEST_PAGE_SIZE, V1, NULL, page_size_write},
    {VIRTIO_MMIO_QUEUE_SEL, V12, NULL, queue_sel_write},
    {VIRTIO_MMIO_QUEUE_NUM_MAX, V12, queue_num_max_read, NULL},
    {VIRTIO_MMIO_QUEUE_NUM, V12, NULL, queue_num_write},
    {VIRTIO_MMIO_QUEUE_ALIGN, V1, NULL, queue_align_write},
    {VIRTIO_MMIO_QUEUE_PFN, V1, queue_page_read, queue_page_write},
    {VIRTIO_MMIO_QUEUE_READY, V2, queue_ready_read, queue_ready_write},
    {VIRTIO_MMIO_QUEUE_NOTIFY, V12, NULL, queue_notify_write},
    {VIRTIO_MMIO_INTERRUPT_STATUS, V12, interrupt_status_read, NULL},
    {VIRTIO_MMIO_INTERRUPT_ACK, V12, NULL, interrupt_ack_write},
    {VIRTIO_MMIO_STATUS, V12, status_read, status_write},
    {VIRTIO_MMIO_QUEUE_DESC_LOW, V2, NULL, desc_low_write},
    {VIRTIO_MMIO_QUEUE_DESC_HIGH, V2, NULL, desc_high_write},
    {VIRTIO_MMIO_QUEUE_AVAIL_LOW, V2, NULL, avail_low_write},
    {VIRTIO_MMIO_QUEUE_AVAIL_HIGH, V2, NULL, avail_high_write},
    {VIRTIO_MMIO_QUEUE_USED_LOW, V2, NULL, used_low_write},
    {VIRTIO_MMIO_QUEUE_USED_HIGH, V2, NULL, used_high_write},
    {VIRTIO_MMIO_SHM_LEN_LOW, V2, all_ones_read, NULL},
    {VIRTIO_MMIO_SHM_LEN_HIGH, V2, all_ones_read, NULL},
    {VIRTIO_MMIO_SHM_BASE_LOW, V2, all_ones_read, NULL},
    {VIRTIO_MMIO_SHM_BASE_HIGH, V2, all_ones_read, NULL},
    {VIRTIO_MMIO_QUEUE_RESET, V2, NULL, queue_reset_write},
    {VIRTIO_MMIO_CONFIG_GENERATION, V2, generation_read, NULL},
};

static unsigned slot_version(const VirtioMmio *slot)
{
    return slot->force_legacy ? VERSION_LEGACY : VERSION_MODERN;
}

static const MmioReg *reg_find(const VirtioMmio *slot, uint64_t offset, unsigned size)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(regs) && size == 4; i++) {
        if (regs[i].offset == offset) {
            return regs[i].versions & (1 << slot_version(slot)) ? &regs[i] : NULL;
        }
    }
    return NULL;
}

static uint64_t mmio_read(void *opaque, uint64_t offset, unsigned size)
{
    VirtioMmio *slot = opaque;
    const MmioReg *reg;

    if (size == 4 && offset == VIRTIO_MMIO_MAGIC_VALUE) {
        return MAGIC;
    }
    if (size == 4 && offset == VIRTIO_MMIO_VERSION) {
        return slot_version(slot);
    }
    if (size == 4 && offset == VIRTIO_MMIO_VENDOR_ID) {
        return VENDOR;
    }
    if (!slot->vdev) {
        return 0;
    }
    if (offset >= CONFIG_OFFSET) {
        return virtio_config_read(slot->vdev, (unsigned)offset - CONFIG_OFFSET, size);
    }
    reg = reg_find(slot, offset, size);
    return reg && reg->read ? reg->read(slot) : 0;
}

static void mmio_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    VirtioMmio *slot = opaque;
    const MmioReg *reg;

    if (!slot->vdev || virtio_access_is_nested()) {
        return;
    }
    if (offset >= CONFIG_OFFSET) {
        virtio_config_write(slot->vdev, (unsigned)offset - CONFIG_OFFSET, (uint32_t)value, size);
        return;
    }
    reg = reg_find(slot, offset, size);
    if (reg && reg->write) {
        reg->write(slot, (uint32_t)value);
    }
}

static const IoOps mmio_ops = {.read = mmio_read, .write = mmio_write};

/* --- the bus --- */

static gboolean mmio_bus_plug_check(BusState *bus, DeviceState *dev, GError **errp)
{
    VirtioMmio *slot = VIRTIO_MMIO(bus->owner);
    BusClass *parent = virtio_mmio_bus_parent_class;

    if (dev->hotplugged) {
        return error_set(errp, "Bus '%s' does not support hotplugging", bus->bus_name);
    }
    if (!parent->plug_check(bus, dev, errp)) {
        return FALSE;
    }
    virtio_attach_transport(VIRTIO_DEVICE(dev), &transport_ops, slot, slot->dma);
    return TRUE;
}

static void mmio_bus_plugged(BusState *bus, DeviceState *dev)
{
    VIRTIO_MMIO(bus->owner)->vdev = VIRTIO_DEVICE(dev);
}

static void mmio_bus_unplugged(BusState *bus, DeviceState *dev)
{
    VirtioMmio *slot = VIRTIO_MMIO(bus->owner);

    (void)dev;
    slot->vdev = NULL;
    if (slot->set_irq) {
        slot->set_irq(slot->irq_opaque, slot->irq, false);
    }
}

static gboolean mmio_bus_unplug_request(BusState *bus, DeviceState *dev, GError **errp)
{
    (void)dev;
    return error_set(errp, "Bus '%s' does not support hotplugging", bus->bus_name);
}

static char *mmio_bus_device_path(DeviceState *dev)
{
    VirtioMmio *slot = VIRTIO_MMIO(dev->parent_bus->owner);

    return g_strdup_printf("virtio-mmio@%016" G_GINT64_MODIFIER "x", slot->addr);
}

static void virtio_mmio_bus_init(VirtioMmioBus *bus)
{
    (void)bus;
}

static void virtio_mmio_bus_class_init(VirtioMmioBusClass *klass)
{
    BusClass *bus_class = (BusClass *)klass;

    ((ObjectClass *)klass)->qom_name = "virtio-mmio-bus";
    bus_class->plug_check = mmio_bus_plug_check;
    bus_class->plugged = mmio_bus_plugged;
    bus_class->unplugged = mmio_bus_unplugged;
    bus_class->unplug_request = mmio_bus_unplug_request;
    bus_class->device_path = mmio_bus_device_path;
}

/* --- the slot --- */

VirtioMmio *virtio_mmio_new(IoSpace *space, DmaSpace *dma, uint64_t addr, unsigned index,
                            unsigned irq, VirtioMmioSetIrq *set_irq, void *irq_opaque,
                            GError **errp)
{
    Object *obj = object_try_new(TYPE_VIRTIO_MMIO, errp);
    VirtioMmio *slot;

    if (!obj) {
        return NULL;
    }
    slot = VIRTIO_MMIO(obj);
    slot->space = space;
    slot->dma = dma;
    slot->addr = addr;
    slot->index = index;
    slot->irq = irq;
    slot->set_irq = set_irq;
    slot->irq_opaque = irq_opaque;
    return device_realize(DEVICE(slot), NULL, errp) ? slot : NULL;
}

static gboolean virtio_mmio_realize(DeviceState *dev, GError **errp)
{
    VirtioMmio *slot = VIRTIO_MMIO(dev);
    g_autofree char *name = g_strdup_printf("virtio-mmio-bus.%u", slot->index);

    if (!slot->space) {
        return error_set(errp, "virtio-mmio: no machine has made this slot");
    }
    io_region_init(&slot->region, "virtio-mmio", VIRTIO_MMIO_SIZE, &mmio_ops, slot);
    io_space_map(slot->space, slot->addr, &slot->region, 0);
    slot->bus = bus_new(virtio_mmio_bus_get_type(), dev, name);
    return TRUE;
}

static void virtio_mmio_unrealize(DeviceState *dev)
{
    VirtioMmio *slot = VIRTIO_MMIO(dev);

    io_space_unmap(slot->space, &slot->region);
    io_region_cleanup(&slot->region);
}

static void virtio_mmio_reset(DeviceState *dev)
{
    virtio_mmio_reset_slot(VIRTIO_MMIO(dev));
}

static const Property virtio_mmio_props[] = {
    PROP_BOOL("force-legacy", VirtioMmio, force_legacy, true,
              "Legacy registers (version 1), for drivers before virtio 1.0"),
    PROP_END,
};

static void virtio_mmio_init(VirtioMmio *slot)
{
    pthread_mutex_init(&slot->irq_lock, NULL);
}

static void virtio_mmio_finalize(GObject *obj)
{
    pthread_mutex_destroy(&VIRTIO_MMIO(obj)->irq_lock);
    G_OBJECT_CLASS(virtio_mmio_parent_class)->finalize(obj);
}

static void virtio_mmio_class_init(VirtioMmioClass *klass)
{
    DeviceClass *device_class = &klass->parent_class;

    ((ObjectClass *)klass)->qom_name = "virtio-mmio";
    ((ObjectClass *)klass)->description = "Memory-mapped slot for a virtio device";
    G_OBJECT_CLASS(klass)->finalize = virtio_mmio_finalize;
    qom_class_set_props(klass, virtio_mmio_props);
    device_class->user_creatable_device = false;
    device_class->hotpluggable = false;
    device_class->realize = virtio_mmio_realize;
    device_class->unrealize = virtio_mmio_unrealize;
    device_class->reset = virtio_mmio_reset;
}

void virtio_mmio_register_types(void)
{
    qom_register_type(virtio_mmio_bus_get_type());
    qom_register_type(TYPE_VIRTIO_MMIO);
}
