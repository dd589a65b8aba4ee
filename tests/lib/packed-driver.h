/*
 * The driver's side of a packed virtqueue in shared guest RAM (virtio 1.2, section 2.8), chain by
 * chain, for tests that say exactly what the device sees.
 */
#ifndef TESTS_LIB_PACKED_DRIVER_H
#define TESTS_LIB_PACKED_DRIVER_H

#include "tests/lib/rig.h"

typedef struct PackedQueue {
    GuestRam *ram;
    uint16_t index, size;
    uint64_t desc_addr, driver_addr, device_addr;
    struct vring_packed_desc *desc;
    struct vring_packed_desc_event *driver, *device;
    uint16_t next, used; /* slots */
    bool wrap, used_wrap;
    uint16_t checked; /* what was made available since then has not been notified */
    bool checked_wrap;
    uint16_t *slots; /* by id: length of the chain in flight */
} PackedQueue;

PackedQueue *packed_queue_new(GuestRam *ram, uint16_t index, uint16_t size);
void packed_queue_free(PackedQueue *queue);
/* Tells the device of it, and enables it. */
void packed_queue_enable(VirtioDriver *driver, const PackedQueue *queue, uint16_t vector);

/* Makes a chain available; @id, below size, comes back with it. */
void packed_queue_add(PackedQueue *queue, const RingPart *parts, unsigned count, uint16_t id);
/* Whether the device wants to be notified of what was added since this was last asked. */
bool packed_queue_wants_notification(PackedQueue *queue);
/* The next used descriptor; false: there is none. */
bool packed_queue_take(PackedQueue *queue, uint16_t *id, uint32_t *len);
/* With IN_ORDER: it stands for the oldest chain, @first_id, up to the one that it names.  Ids must
 * have been given in order. */
bool packed_queue_take_in_order(PackedQueue *queue, uint16_t first_id, uint16_t *id, uint32_t *len);
/* Waits for one. */
void packed_queue_wait(PackedQueue *queue, uint16_t *id, uint32_t *len);
/* Interrupt when the descriptor @ahead slots after the next used one is used. */
void packed_queue_set_event(PackedQueue *queue, unsigned ahead);

#endif
