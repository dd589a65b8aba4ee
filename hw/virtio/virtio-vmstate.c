/*
 * Migration of what all virtio devices share: the tables.  What they mean to a device:
 * virtio-vmstate-apply.c.
 *
 * The format is QEMU's, and grew: queues are in the head with what virtio 0.9 needed, and each
 * later generation added a subsection with arrays for all queues there could ever be (1024).
 */
#include <linux/virtio_net.h>

#include "hw/virtio/virtio-vmstate.h"

#define CONFIG_LEN_MAX 65536u /* more than any device's; what is beyond ours is skipped */

static bool has_msix(const void *state)
{
    return ((const VirtioSaved *)state)->has_msix;
}

static bool is_pci(const void *state)
{
    return !((const VirtioSaved *)state)->mmio;
}

static bool is_mmio(const void *state)
{
    return ((const VirtioSaved *)state)->mmio;
}

static bool has_align(const void *state)
{
    return ((const VirtioQueueSaved *)state)->has_align;
}

static bool has_vector(const void *state)
{
    return ((const VirtioQueueSaved *)state)->has_vector;
}

static const VMStateDescription vmstate_queue = {
    .name = "virtqueue",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(VirtioQueueSaved, num, .max = VIRTQUEUE_MAX_SIZE),
            VMS_UINT32(VirtioQueueSaved, align, .exists = has_align),
            VMS_UINT64(VirtioQueueSaved, desc),
            VMS_UINT16(VirtioQueueSaved, last_avail_idx),
            VMS_UINT16(VirtioQueueSaved, vector, .exists = has_vector),
            VMS_END,
        },
};

const VMStateDescription vmstate_virtio_head = {
    .name = "virtio-head",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            {.name = "pci",
             .vmsd = &vmstate_pci_device,
             .offset = offsetof(VirtioSaved, pci),
             .size = sizeof(PciSaved),
             .exists = is_pci},
            {.name = "msix",
             .vmsd = &vmstate_msix,
             .offset = offsetof(VirtioSaved, msix),
             .size = sizeof(MsixSaved),
             .exists = has_msix},
            VMS_UINT16(VirtioSaved, config_vector, .exists = has_msix),
            VMS_UINT32(VirtioSaved, dfselect, .exists = is_mmio),
            VMS_UINT32(VirtioSaved, gfselect, .exists = is_mmio),
            VMS_UINT32(VirtioSaved, page_shift, .exists = is_mmio, .max = 31),
            VMS_UINT8(VirtioSaved, status),
            VMS_UINT8(VirtioSaved, isr),
            VMS_UINT16(VirtioSaved, queue_sel, .max = VIRTIO_QUEUE_MAX - 1),
            VMS_UINT32(VirtioSaved, guest_features),
            VMS_UINT32(VirtioSaved, config_len),
            VMS_ARRAY(VirtioSaved, config, buffer, VMS_COUNTED(VirtioSaved, config_len),
                      .limit = CONFIG_LEN_MAX),
            VMS_UINT32(VirtioSaved, num_queues),
            VMS_STRUCT_ARRAY(VirtioSaved, queues, vmstate_queue,
                             VMS_COUNTED(VirtioSaved, num_queues)),
            VMS_END,
        },
};

/* --- subsections --- */

#define HAS_FIELD(field, has)                                                                      \
    static bool field##_needed(const void *state)                                                  \
    {                                                                                              \
        return ((const VirtioSaved *)state)->has;                                                  \
    }                                                                                              \
    static void field##_loaded(void *state)                                                        \
    {                                                                                              \
        ((VirtioSaved *)state)->has = true;                                                        \
    }

HAS_FIELD(features64, has_features64)
HAS_FIELD(features128, has_features128)
HAS_FIELD(virtqueues, has_virtqueues)
HAS_FIELD(ringsize, has_ringsize)
HAS_FIELD(packed, has_packed)
HAS_FIELD(modern, has_modern)
HAS_FIELD(modern128, has_modern128)

static bool broken_needed(const void *state)
{
    return ((const VirtioSaved *)state)->broken;
}

static bool started_needed(const void *state)
{
    return ((const VirtioSaved *)state)->started;
}

static bool disabled_needed(const void *state)
{
    return ((const VirtioSaved *)state)->disabled;
}

/* Guests of ours are little-endian, like every device since virtio 1.0. */
static bool endian_needed(const void *state)
{
    return false;
}

#define SUBSECTION(var, text, needs, was_loaded, ...)                                              \
    static const VMStateDescription var = {                                                        \
        .name = text,                                                                              \
        .version = 1,                                                                              \
        .minimum_version = 1,                                                                      \
        .needed = needs,                                                                           \
        .loaded = was_loaded,                                                                      \
        .fields = (const VMStateField[]){__VA_ARGS__, VMS_END},                                    \
    }

SUBSECTION(sub_device_endian, "virtio/device_endian", endian_needed, NULL,
           VMS_UINT8(VirtioSaved, device_endian));
SUBSECTION(sub_features128, "virtio/128bit_features", features128_needed, features128_loaded,
           VMS_UINT64(VirtioSaved, features128));
SUBSECTION(sub_features64, "virtio/64bit_features", features64_needed, features64_loaded,
           VMS_UINT64(VirtioSaved, features64));
SUBSECTION(sub_broken, "virtio/broken", broken_needed, NULL, VMS_BOOL(VirtioSaved, broken));
SUBSECTION(sub_started, "virtio/started", started_needed, NULL, VMS_BOOL(VirtioSaved, started));
SUBSECTION(sub_disabled, "virtio/disabled", disabled_needed, NULL, VMS_BOOL(VirtioSaved, disabled));

static const VMStateDescription vmstate_queue_addresses = {
    .name = "virtqueue_state",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT64(VirtioQueueSaved, avail),
            VMS_UINT64(VirtioQueueSaved, used),
            VMS_END,
        },
};

SUBSECTION(sub_virtqueues, "virtio/virtqueues", virtqueues_needed, virtqueues_loaded,
           VMS_STRUCT_ARRAY(VirtioSaved, queues, vmstate_queue_addresses));

static const VMStateDescription vmstate_queue_ringsize = {
    .name = "ringsize_state",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(VirtioQueueSaved, num_default, .max = VIRTQUEUE_MAX_SIZE),
            VMS_END,
        },
};

SUBSECTION(sub_ringsize, "virtio/ringsize", ringsize_needed, ringsize_loaded,
           VMS_STRUCT_ARRAY(VirtioSaved, queues, vmstate_queue_ringsize));

static const VMStateDescription vmstate_queue_packed = {
    .name = "packed_virtqueue_state",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT16(VirtioQueueSaved, packed_last_avail),
            VMS_BOOL(VirtioQueueSaved, last_avail_wrap),
            VMS_UINT16(VirtioQueueSaved, packed_used),
            VMS_BOOL(VirtioQueueSaved, used_wrap),
            VMS_UINT32(VirtioQueueSaved, inuse),
            VMS_END,
        },
};

SUBSECTION(sub_packed, "virtio/packed_virtqueues", packed_needed, packed_loaded,
           VMS_STRUCT_ARRAY(VirtioSaved, queues, vmstate_queue_packed));

static const VMStateDescription vmstate_queue_modern = {
    .name = "virtio_pci/modern_queue_state",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT16(VirtioQueueSaved, modern_num),
            VMS_UNUSED(1), /* "enabled" was 16 bits wide once */
            VMS_BOOL(VirtioQueueSaved, modern_enabled),
            VMS_ARRAY(VirtioQueueSaved, modern_desc, uint32),
            VMS_ARRAY(VirtioQueueSaved, modern_avail, uint32),
            VMS_ARRAY(VirtioQueueSaved, modern_used, uint32),
            VMS_END,
        },
};

SUBSECTION(sub_modern128, "virtio_pci/modern_state/features128", modern128_needed, modern128_loaded,
           VMS_ARRAY(VirtioSaved, modern_features128, uint32));

static const VMStateDescription sub_modern = {
    .name = "virtio_pci/modern_state",
    .version = 1,
    .minimum_version = 1,
    .needed = modern_needed,
    .loaded = modern_loaded,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(VirtioSaved, dfselect),
            VMS_UINT32(VirtioSaved, gfselect),
            VMS_ARRAY(VirtioSaved, modern_features, uint32),
            VMS_STRUCT_ARRAY(VirtioSaved, queues, vmstate_queue_modern),
            VMS_END,
        },
    .subsections = (const VMStateDescription *const[]){&sub_modern128, NULL},
};

/* What the transport adds: nothing but subsections. */
static const VMStateDescription vmstate_virtio_pci = {
    .name = "virtio_pci",
    .version = 1,
    .minimum_version = 1,
    .subsections = (const VMStateDescription *const[]){&sub_modern, NULL},
};

static const VMStateDescription vmstate_queue_modern_mmio = {
    .name = "virtio_mmio/queue_state",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT16(VirtioQueueSaved, modern_num),
            VMS_BOOL(VirtioQueueSaved, modern_enabled),
            VMS_ARRAY(VirtioQueueSaved, modern_desc, uint32),
            VMS_ARRAY(VirtioQueueSaved, modern_avail, uint32),
            VMS_ARRAY(VirtioQueueSaved, modern_used, uint32),
            VMS_END,
        },
};

SUBSECTION(sub_modern_mmio, "virtio_mmio/state", modern_needed, modern_loaded,
           VMS_ARRAY(VirtioSaved, modern_features, uint32),
           VMS_STRUCT_ARRAY(VirtioSaved, queues, vmstate_queue_modern_mmio));

static const VMStateDescription vmstate_virtio_mmio = {
    .name = "virtio_mmio",
    .version = 1,
    .minimum_version = 1,
    .subsections = (const VMStateDescription *const[]){&sub_modern_mmio, NULL},
};

static bool extra_state_needed(const void *state)
{
    return is_pci(state) || modern_needed(state);
}

SUBSECTION(sub_extra_state, "virtio/extra_state", extra_state_needed, NULL,
           VMS_PART("extra_state", vmstate_virtio_pci, .exists = is_pci),
           VMS_PART("extra_state", vmstate_virtio_mmio, .exists = is_mmio));

const VMStateDescription vmstate_virtio = {
    .name = "virtio",
    .version = 1,
    .minimum_version = 1,
    .subsections =
        (const VMStateDescription *const[]){
            &sub_device_endian, &sub_features128, &sub_features64, &sub_virtqueues, &sub_ringsize,
            &sub_broken, &sub_extra_state, &sub_started, &sub_packed, &sub_disabled, NULL},
};
