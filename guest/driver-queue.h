/*
 * The driver's side of a virtqueue in shared guest RAM: a split one, or a packed one
 * (driver-queue-packed.c) behind the same functions.
 *
 * Chains are added to the descriptor table, published in one store of the available index, and
 * taken back from the used ring.  Whether the device wants a notification, or we an interrupt,
 * follows EVENT_IDX where it was negotiated and the flags words where not.  The queue knows
 * nothing of PCI: virtio-driver.h sends the notifications.  Used entries of a broken device
 * (ids that are not in flight) set `broken` and are never used as an index.
 *
 * A queue is used by one thread at a time.
 */
#ifndef GUEST_DRIVER_QUEUE_H
#define GUEST_DRIVER_QUEUE_H

#include "guest/ram.h"
#include <linux/virtio_ring.h>

/* One piece of a chain, guest-physical. */
typedef struct DriverSegment {
    uint64_t addr;
    uint32_t len;
} DriverSegment;

typedef struct DriverPackedRing DriverPackedRing;

typedef struct DriverQueue {
    GuestRam *ram;
    uint16_t index, size;
    bool event_idx, use_indirect;
    bool broken;              /* the device returned what it was never given */
    DriverPackedRing *packed; /* NULL: split, and what follows up to free_head is its own */
    uint64_t desc_addr, avail_addr, used_addr; /* packed: the latter two are event areas */
    struct vring_desc *desc;
    struct vring_avail *avail;
    struct vring_used *used;
    uint16_t *avail_event; /* written by the device: when it wants a notification */
    uint16_t *used_event;  /* written by us: when we want an interrupt */
    uint16_t avail_next;   /* available index including what is not published */
    uint16_t avail_published;
    uint16_t used_next; /* next used entry to look at */
    uint16_t free_head, free_count;
    uint16_t *chain_length;  /* by head or packed id: descriptors in flight, 0: none */
    void **tokens;           /* by the same */
    uint64_t *indirect_addr; /* by head: a table of DRIVER_QUEUE_INDIRECT_MAX entries */
} DriverQueue;

#define DRIVER_QUEUE_INDIRECT_MAX 32

/* Allocates and clears the rings; @size is a power of two up to 32,768.  NULL with error. */
DriverQueue *driver_queue_new(GuestRam *ram, uint16_t index, uint16_t size, bool event_idx,
                              bool use_indirect, GError **errp);
/* The same, packed; @size up to 32,768, without indirect tables. */
DriverQueue *driver_queue_new_packed(GuestRam *ram, uint16_t index, uint16_t size, bool event_idx,
                                     GError **errp);
/* NULL is fine.  Ring memory stays allocated: see guest_ram_reset(). */
void driver_queue_free(DriverQueue *queue);

/*
 * Adds a chain of @out device-readable then @in device-writable segments.  @token (not NULL)
 * comes back from driver_queue_take().  The head's index, or -1 when there is no room.  Not
 * visible to the device before driver_queue_publish().
 */
int driver_queue_add(DriverQueue *queue, const DriverSegment *segments, unsigned out, unsigned in,
                     void *token);
/* Shows the device what was added; true: it wants a notification. */
bool driver_queue_publish(DriverQueue *queue);

/* The next used chain's token and written length; NULL when there is none. */
void *driver_queue_take(DriverQueue *queue, uint32_t *len);
/* Whether a used chain waits. */
bool driver_queue_has_used(const DriverQueue *queue);

/* Asks for no interrupts (a hint, as the specification says). */
void driver_queue_disable_interrupts(DriverQueue *queue);
/* Asks for an interrupt at the next used chain; true: one waits already, look again. */
bool driver_queue_enable_interrupts(DriverQueue *queue);
/* Asks for one only when @count more chains are used (EVENT_IDX; else as enable). */
bool driver_queue_enable_interrupts_after(DriverQueue *queue, uint16_t count);

#endif
