/* Between the files of virtio-mmio: the slot (virtio-mmio.c) and its saved state. */
#ifndef HW_VIRTIO_VIRTIO_MMIO_INTERNAL_H
#define HW_VIRTIO_VIRTIO_MMIO_INTERNAL_H

#include "hw/virtio/virtio-mmio.h"

/* The slot's registers and its device as they are after reset. */
void virtio_mmio_reset_slot(VirtioMmio *slot);
/* The line follows the interrupt status. */
void virtio_mmio_update_irq(VirtioMmio *slot);

#endif
