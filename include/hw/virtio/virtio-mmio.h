/*
 * virtio-mmio: slots for virtio devices on machines without PCI (virtio 1.2, section 4.2).
 *
 * A machine makes its slots with virtio_mmio_new(); users plug devices into their buses:
 * `-device virtio-net-device,bus=virtio-mmio-bus.0`.
 */
#ifndef HW_VIRTIO_VIRTIO_MMIO_H
#define HW_VIRTIO_VIRTIO_MMIO_H

#include <pthread.h>

#include "hw/core/io.h"
#include "hw/virtio/virtio.h"

#define VIRTIO_MMIO_SIZE 0x200 /* bytes of a slot */

/* The level of interrupt line @irq has become @level.  Any thread. */
typedef void VirtioMmioSetIrq(void *opaque, unsigned irq, bool level);

typedef struct VirtioMmio {
    DeviceState parent_obj;
    bool force_legacy;
    /* where it is */
    IoSpace *space;
    DmaSpace *dma;
    uint64_t addr;
    unsigned index, irq;
    VirtioMmioSetIrq *set_irq;
    void *irq_opaque;
    pthread_mutex_t irq_lock; /* status and line change together */
    /* state */
    IoRegion region;
    BusState *bus;
    VirtIODevice *vdev; /* NULL: an empty slot */
    uint32_t device_features_sel, driver_features_sel;
    uint32_t driver_features[4];
    uint32_t page_size;                     /* legacy */
    uint32_t queue_align[VIRTIO_QUEUE_MAX]; /* legacy */
} VirtioMmio;

typedef struct VirtioMmioClass {
    DeviceClass parent_class;
} VirtioMmioClass;

QOM_DECLARE_TYPE(VirtioMmio, VirtioMmioClass, virtio_mmio, VIRTIO_MMIO)
#define TYPE_VIRTIO_MMIO (virtio_mmio_get_type())

/* Slot @index at @addr of @space, whose devices master @dma.  Borrowed: the tree owns it. */
VirtioMmio *virtio_mmio_new(IoSpace *space, DmaSpace *dma, uint64_t addr, unsigned index,
                            unsigned irq, VirtioMmioSetIrq *set_irq, void *irq_opaque,
                            GError **errp);

void virtio_mmio_register_types(void);

#endif
