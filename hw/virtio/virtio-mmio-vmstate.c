/*
 * virtio-mmio's part of a migration section: the selectors, what a legacy driver says of pages, and
 * the modern queue registers.  It is in the section of the slot's device; an empty slot has no
 * state.
 */
#include <strings.h>

#include "hw/virtio/virtio-mmio-internal.h"
#include "hw/virtio/virtio-vmstate.h"

static void mmio_prepare(VirtioSaved *s, void *opaque)
{
    (void)opaque;
    s->mmio = true;
}

static void mmio_fill(VirtioSaved *s, void *opaque)
{
    const VirtioMmio *slot = opaque;

    s->dfselect = slot->device_features_sel;
    s->gfselect = slot->driver_features_sel;
    s->page_shift = slot->page_size ? (uint32_t)ffs((int)slot->page_size) - 1 : 0;
    for (unsigned i = 0; i < s->num_queues; i++) {
        uint32_t align = slot->queue_align[i] ? slot->queue_align[i] : slot->page_size;

        s->queues[i].align = align ? align : s->queues[i].align;
    }
    s->modern_features[0] = slot->driver_features[0];
    s->modern_features[1] = slot->driver_features[1];
    s->has_modern = !slot->force_legacy;
}

static gboolean mmio_check(const VirtioSaved *s, void *opaque, GError **errp)
{
    const VirtioMmio *slot = opaque;

    return s->has_modern == !slot->force_legacy ||
           error_set(errp, "the saved slot has force-legacy=%s, this one %s",
                     s->has_modern ? "off" : "on", slot->force_legacy ? "on" : "off");
}

static void mmio_reset(const VirtioSaved *s, void *opaque)
{
    (void)s;
    virtio_mmio_reset_slot(opaque);
}

static void mmio_apply(const VirtioSaved *s, void *opaque)
{
    VirtioMmio *slot = opaque;

    slot->device_features_sel = s->dfselect;
    slot->driver_features_sel = s->gfselect;
    slot->page_size = s->page_shift ? 1u << s->page_shift : 0;
    for (unsigned i = 0; i < s->num_queues; i++) {
        slot->queue_align[i] = s->queues[i].align;
    }
    if (s->has_modern) {
        slot->driver_features[0] = s->modern_features[0];
        slot->driver_features[1] = s->modern_features[1];
        slot->driver_features[2] = (uint32_t)s->features128;
        slot->driver_features[3] = (uint32_t)(s->features128 >> 32);
    } else {
        slot->driver_features[0] = s->guest_features;
    }
    virtio_mmio_update_irq(slot);
}

const VirtioSavedOps virtio_mmio_saved_ops = {
    .prepare = mmio_prepare,
    .fill = mmio_fill,
    .check = mmio_check,
    .reset = mmio_reset,
    .apply = mmio_apply,
};
