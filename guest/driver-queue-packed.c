/*
 * Packed virtqueue, driver's side, behind the same functions as the split one: driver-queue.h.
 *
 * A batch becomes visible at once: the flags of its first chain are stored last, by publish(), and
 * the device stops at a slot that is not available.  How many slots an id covers is kept in
 * private memory.  No indirect tables.  Names and rules: virtio 1.2, section 2.8.
 */
#include "guest/driver-queue-packed.h"
#include <glib.h>

#define F_AVAIL (1u << VRING_PACKED_DESC_F_AVAIL)
#define F_USED  (1u << VRING_PACKED_DESC_F_USED)
#define F_WRAP  (1u << VRING_PACKED_EVENT_F_WRAP_CTR)

static void advance(const DriverQueue *queue, uint16_t *slot, bool *wrap, unsigned slots)
{
    unsigned to = *slot + slots;
    while (to >= queue->size) {
        to -= queue->size;
        *wrap = !*wrap;
    }
    *slot = (uint16_t)to;
}

bool driver_packed_init(DriverQueue *queue)
{
    DriverPackedRing *ring = queue->packed = g_new0(DriverPackedRing, 1);
    size_t size = queue->size * sizeof(*ring->desc), event = sizeof(*ring->driver_event);
    queue->desc_addr = guest_ram_alloc(queue->ram, size, 16);
    queue->avail_addr = guest_ram_alloc(queue->ram, event, 4);
    queue->used_addr = guest_ram_alloc(queue->ram, event, 4);
    if (!queue->desc_addr || !queue->avail_addr || !queue->used_addr) {
        return false;
    }
    ring->desc = guest_ram_pointer(queue->ram, queue->desc_addr, size);
    ring->driver_event = guest_ram_pointer(queue->ram, queue->avail_addr, event);
    ring->device_event = guest_ram_pointer(queue->ram, queue->used_addr, event);
    ring->next_wrap = ring->used_wrap = ring->checked_wrap = true;
    ring->ids = g_new(uint16_t, queue->size);
    for (unsigned id = queue->size; id-- > 0;) {
        ring->ids[ring->id_count++] = (uint16_t)id;
    }
    return true;
}

void driver_packed_free(DriverQueue *queue)
{
    if (queue->packed) {
        g_free(queue->packed->ids);
        g_free(queue->packed);
    }
}

int driver_packed_add(DriverQueue *queue, const DriverSegment *segments, unsigned out, unsigned in,
                      void *token)
{
    DriverPackedRing *ring = queue->packed;
    unsigned total = out + in;
    if (total == 0 || total > queue->free_count || queue->broken) {
        return -1;
    }
    uint16_t id = ring->ids[--ring->id_count], first = ring->next, first_flags = 0;
    for (unsigned i = 0; i < total; i++) {
        struct vring_packed_desc *desc = &ring->desc[ring->next];
        uint16_t flags = (uint16_t)((i >= out ? VRING_DESC_F_WRITE : 0) |
                                    (i + 1 < total ? VRING_DESC_F_NEXT : 0) |
                                    (ring->next_wrap ? F_AVAIL : F_USED));
        desc->addr = segments[i].addr;
        desc->len = segments[i].len;
        desc->id = id;
        if (i == 0) {
            first_flags = flags;
        } else {
            desc->flags = flags;
        }
        advance(queue, &ring->next, &ring->next_wrap, 1);
    }
    if (ring->pending) {
        /* The device reads on to this slot only after the batch's first, stored with release. */
        __atomic_store_n(&ring->desc[first].flags, first_flags, __ATOMIC_RELEASE);
    } else {
        ring->pending = true;
        ring->pending_slot = first;
        ring->pending_flags = first_flags;
    }
    queue->free_count -= (uint16_t)total;
    queue->chain_length[id] = (uint16_t)total;
    queue->tokens[id] = token;
    return id;
}

bool driver_packed_publish(DriverQueue *queue)
{
    DriverPackedRing *ring = queue->packed;
    if (!ring->pending) {
        return false;
    }
    ring->pending = false;
    __atomic_store_n(&ring->desc[ring->pending_slot].flags, ring->pending_flags, __ATOMIC_RELEASE);
    uint16_t slot = ring->checked;
    bool wrap = ring->checked_wrap;
    ring->checked = ring->next;
    ring->checked_wrap = ring->next_wrap;
    /* Our descriptors before our look at the device's wish, as for split rings. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint16_t flags = __atomic_load_n(&ring->device_event->flags, __ATOMIC_ACQUIRE);
    if (flags != VRING_PACKED_EVENT_FLAG_DESC) {
        return flags == VRING_PACKED_EVENT_FLAG_ENABLE;
    }
    uint16_t at = __atomic_load_n(&ring->device_event->off_wrap, __ATOMIC_RELAXED);
    while (slot != ring->next || wrap != ring->next_wrap) {
        if (at == (slot | (wrap ? F_WRAP : 0))) {
            return true;
        }
        advance(queue, &slot, &wrap, 1);
    }
    return false;
}

static bool slot_is_used(const DriverQueue *queue, uint16_t slot, bool wrap)
{
    /* Acquire: id and length behind these flags are complete when we read them. */
    uint16_t flags = __atomic_load_n(&queue->packed->desc[slot].flags, __ATOMIC_ACQUIRE);
    return (flags & (F_AVAIL | F_USED)) == (wrap ? F_AVAIL | F_USED : 0);
}

bool driver_packed_has_used(const DriverQueue *queue)
{
    return !queue->broken && slot_is_used(queue, queue->packed->used, queue->packed->used_wrap);
}

void *driver_packed_take(DriverQueue *queue, uint32_t *len)
{
    DriverPackedRing *ring = queue->packed;
    if (!driver_packed_has_used(queue)) {
        return NULL;
    }
    uint16_t id = ring->desc[ring->used].id;
    *len = ring->desc[ring->used].len;
    if (id >= queue->size || queue->chain_length[id] == 0) {
        queue->broken = true;
        return NULL;
    }
    advance(queue, &ring->used, &ring->used_wrap, queue->chain_length[id]);
    queue->free_count += queue->chain_length[id];
    queue->chain_length[id] = 0;
    ring->ids[ring->id_count++] = id;
    return queue->tokens[id];
}

void driver_packed_disable_interrupts(DriverQueue *queue)
{
    __atomic_store_n(&queue->packed->driver_event->flags, VRING_PACKED_EVENT_FLAG_DISABLE,
                     __ATOMIC_RELAXED);
}

/* @ahead counts slots, which is chains where every chain is one descriptor. */
bool driver_packed_enable_interrupts(DriverQueue *queue, uint16_t ahead)
{
    DriverPackedRing *ring = queue->packed;
    uint16_t slot = ring->used, flags = VRING_PACKED_EVENT_FLAG_ENABLE;
    bool wrap = ring->used_wrap;
    advance(queue, &slot, &wrap, ahead);
    if (queue->event_idx) {
        __atomic_store_n(&ring->driver_event->off_wrap, (uint16_t)(slot | (wrap ? F_WRAP : 0)),
                         __ATOMIC_RELAXED);
        flags = VRING_PACKED_EVENT_FLAG_DESC;
    }
    __atomic_store_n(&ring->driver_event->flags, flags, __ATOMIC_RELEASE);
    /* Our wish before our look; pairs with the device's fence. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return !queue->broken && slot_is_used(queue, slot, wrap);
}
