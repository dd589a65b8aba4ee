/*
 * The part of a migration section that every virtio device has, in QEMU's form: before the
 * device's own fields (vmstate_virtio_head) and behind them (vmstate_virtio).  A device's state
 * begins with a VirtioSaved.  What carries the device fills its part of it by VirtioSavedOps.
 */
#ifndef HW_VIRTIO_VIRTIO_VMSTATE_H
#define HW_VIRTIO_VIRTIO_VMSTATE_H

#include "hw/pci/pci-vmstate.h"
#include "hw/virtio/virtio.h"

/* One queue.  The stream has it in five places, one for each generation of the format. */
typedef struct VirtioQueueSaved {
    bool has_vector, has_align; /* not in the stream */
    uint32_t num;
    uint32_t align; /* of a legacy used ring; in the stream with mmio only */
    uint64_t desc, avail, used;
    uint16_t last_avail_idx;
    uint16_t vector;
    uint32_t num_default;
    /* packed rings */
    uint16_t packed_last_avail, packed_used;
    bool last_avail_wrap, used_wrap;
    uint32_t inuse;
    /* the modern interface's registers */
    uint16_t modern_num;
    bool modern_enabled;
    uint32_t modern_desc[2], modern_avail[2], modern_used[2];
} VirtioQueueSaved;

typedef struct VirtioSaved {
    bool mmio; /* what carries it; not in the stream, like all has_ below */
    PciSaved pci;
    MsixSaved msix;
    bool has_msix;
    unsigned possible_vectors; /* not in the stream */
    uint16_t config_vector;
    uint8_t status, isr;
    uint16_t queue_sel;
    uint32_t guest_features;
    uint32_t config_len;
    uint8_t config[VIRTIO_CONFIG_MAX];
    uint32_t num_queues;
    /* What a driver with the saved features can have; a device whose queues follow from features
     * sets them before virtio_saved_check().  Not in the stream. */
    unsigned possible_queues;
    uint16_t possible_num[VIRTIO_QUEUE_MAX];
    VirtioQueueSaved queues[VIRTIO_QUEUE_MAX];

    uint64_t features64, features128; /* bits 0..63, 64..127 */
    uint8_t device_endian;
    bool broken, started, disabled;
    uint32_t dfselect, gfselect, modern_features[2], modern_features128[2];
    uint32_t page_shift; /* mmio */
    bool has_features64, has_features128, has_virtqueues, has_ringsize, has_packed, has_modern,
        has_modern128;
} VirtioSaved;

/* What a transport puts into a section.  All are called by the functions below. */
typedef struct VirtioSavedOps {
    /* What is possible here. */
    void (*prepare)(VirtioSaved *s, void *opaque);
    void (*fill)(VirtioSaved *s, void *opaque);
    gboolean (*check)(const VirtioSaved *s, void *opaque, GError **errp); /* may be NULL */
    /* The device as after reset, before it gets features and queues. */
    void (*reset)(const VirtioSaved *s, void *opaque);
    /* It has them, and its interrupt status. */
    void (*apply)(const VirtioSaved *s, void *opaque);
} VirtioSavedOps;

extern const VirtioSavedOps virtio_pci_saved_ops, virtio_mmio_saved_ops;

extern const VMStateDescription vmstate_virtio_head, vmstate_virtio; /* over a VirtioSaved */

void virtio_saved_prepare(VirtioSaved *s, VirtIODevice *vdev);
void virtio_saved_fill(VirtioSaved *s, VirtIODevice *vdev);
gboolean virtio_saved_check(VirtioSaved *s, VirtIODevice *vdev, GError **errp);
/* Device reset before; queues, features and status in place after.  Nothing runs: the VM stands. */
void virtio_saved_apply(const VirtioSaved *s, VirtIODevice *vdev);
VirtioFeatures virtio_saved_features(const VirtioSaved *s);

#endif
