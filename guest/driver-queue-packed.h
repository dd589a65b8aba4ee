/* The packed half of driver-queue.h, which calls it; nobody else does. */
#ifndef GUEST_DRIVER_QUEUE_PACKED_H
#define GUEST_DRIVER_QUEUE_PACKED_H

#include "guest/driver-queue.h"

/* What a packed ring has and a split one has not. */
struct DriverPackedRing {
    struct vring_packed_desc *desc;
    struct vring_packed_desc_event *driver_event, *device_event;
    uint16_t *ids; /* stack of buffer ids that are not in flight */
    uint16_t id_count;
    uint16_t next, used, checked; /* slots: to fill, to look at, judged for a notification */
    bool next_wrap, used_wrap, checked_wrap;
    bool pending; /* the first chain that is not published waits for its flags */
    uint16_t pending_slot, pending_flags;
};

bool driver_packed_init(DriverQueue *queue);
void driver_packed_free(DriverQueue *queue);
int driver_packed_add(DriverQueue *queue, const DriverSegment *segments, unsigned out, unsigned in,
                      void *token);
bool driver_packed_publish(DriverQueue *queue);
bool driver_packed_has_used(const DriverQueue *queue);
void *driver_packed_take(DriverQueue *queue, uint32_t *len);
void driver_packed_disable_interrupts(DriverQueue *queue);
bool driver_packed_enable_interrupts(DriverQueue *queue, uint16_t ahead);

#endif
