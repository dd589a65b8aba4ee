/*
 * Virtqueue: the rings of a virtio device.  It knows no device and no transport.
 *
 * Used from one thread at a time.  The whole loop of a device that consumes buffers:
 *
 *     virtqueue_disable_notify(vq);
 *     do {
 *         while ((n = virtqueue_pop_batch(vq, elems, MAX)) > 0) {
 *             for (i = 0; i < n; i++)
 *                 virtqueue_fill(vq, elems[i], written, i);
 *             virtqueue_flush(vq, n);
 *             if (virtqueue_should_interrupt(vq))
 *                 …interrupt…
 *         }
 *     } while (virtqueue_enable_notify(vq));
 *
 * A bad chain costs that chain: virtqueue_pop_batch() counts it, returns it used with length 0 (at
 * once, or when the chains popped before it are used) and goes on.  What leaves no head to return breaks the queue (vq->broken, and @broken is called
 * once); pop then returns nothing until reset.
 */
#ifndef HW_VIRTIO_VIRTQUEUE_H
#define HW_VIRTIO_VIRTQUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "hw/core/memory-map.h"

#define VIRTQUEUE_MAX_SIZE 1024
#define VIRTQUEUE_MAX_CHAIN                                                                        \
    32768 /* split ring, 1.2 section 2.7.5: a chain is no longer than 2^15 */

typedef struct VirtQueue VirtQueue;

/* A chain of descriptors: readable buffers first, then writable ones.  From the queue's pool;
 * it is the device's from pop until fill (+flush) or unpop. */
typedef struct VirtQueueElement {
    uint16_t head;            /* split: index in the table; packed: buffer id */
    uint16_t ndescs;          /* descriptors taken in the ring (packed: slots) */
    uint16_t out_num;         /* readable entries: sg[0 .. out_num) */
    uint16_t in_num;          /* writable entries: sg[out_num .. out_num + in_num) */
    size_t out_size, in_size; /* bytes */
    uint32_t len;             /* set by fill */
    bool in_order_done;       /* IN_ORDER: filled, waits for older ones */
    uint16_t sg_capacity;
    struct iovec *sg;
    uint64_t *gpa;     /* guest address of each entry (for the dirty log and inspection) */
    void *owner_data;  /* the device's, NULL at pop */
    int64_t popped_ns; /* the device's, 0 at pop */
} VirtQueueElement;

static inline struct iovec *virtqueue_out_sg(VirtQueueElement *e)
{
    return e->sg;
}
static inline struct iovec *virtqueue_in_sg(VirtQueueElement *e)
{
    return e->sg + e->out_num;
}

/* Which ring rules are in force: from negotiated features. */
typedef struct VirtQueueRules {
    bool packed, event_idx, indirect, in_order;
    bool notify_on_empty; /* legacy */
    bool legacy;          /* pre-1.0: layout from one page number, no feature check */
} VirtQueueRules;

typedef struct VirtQueueStats {
    uint64_t popped, used_flushes, bad_chains;
    uint64_t interrupts_suppressed;
} VirtQueueStats;

VirtQueue *virtqueue_new(unsigned index, DmaSpace *dma,
                         void (*broken)(VirtQueue *vq, void *opaque, const char *why),
                         void *opaque);
void virtqueue_free(VirtQueue *vq);
/* @returned is called at the end of a pop that gave bad chains back, so that the driver gets its
 * interrupt for them even when nothing good came. */
void virtqueue_set_returned_hook(VirtQueue *vq, void (*returned)(VirtQueue *vq, void *opaque));

/* Set-up, queue stopped.  @num entries: 1..1024, split: a power of two.  Each ring area must lie
 * in one piece of RAM, aligned as virtio 1.2 section 2.7 says (desc 16, avail 2, used 4); this is
 * found out at the first look at the ring, and breaks the queue. */
void virtqueue_set_num(VirtQueue *vq, unsigned num);
void virtqueue_set_addresses(VirtQueue *vq, uint64_t desc, uint64_t avail, uint64_t used);
void virtqueue_set_rules(VirtQueue *vq, const VirtQueueRules *rules);
void virtqueue_reset(
    VirtQueue *vq); /* indices, flags, broken; addresses 0; elements out are forgotten */

unsigned virtqueue_index(const VirtQueue *vq);
unsigned virtqueue_num(const VirtQueue *vq);
bool virtqueue_ready(const VirtQueue *vq); /* has addresses */
bool virtqueue_is_broken(const VirtQueue *vq);
void virtqueue_get_addresses(const VirtQueue *vq, uint64_t *desc, uint64_t *avail, uint64_t *used);

/* Indices, for migration, vhost and inspection.  Packed: bit 15 is the wrap counter. */
uint16_t virtqueue_last_avail_idx(const VirtQueue *vq);
uint16_t virtqueue_used_idx(const VirtQueue *vq);
void virtqueue_set_indices(VirtQueue *vq, uint16_t last_avail_idx, uint16_t used_idx);
unsigned virtqueue_inuse(const VirtQueue *vq); /* popped, not yet used */
/* The same in ring entries: in a packed ring a chain takes as many as it has descriptors. */
unsigned virtqueue_inuse_slots(const VirtQueue *vq);
const VirtQueueStats *virtqueue_stats(const VirtQueue *vq);

/* Takes up to @max available chains, in order. */
unsigned virtqueue_pop_batch(VirtQueue *vq, VirtQueueElement **elems, unsigned max);
/* Gives back the element popped last (several: last first), its buffers as they came, so that it
 * will be popped again. */
void virtqueue_unpop(VirtQueue *vq, VirtQueueElement *elem);
/* Forgets @elem without marking it used (reset with buffers in flight). */
void virtqueue_detach(VirtQueue *vq, VirtQueueElement *elem);

/* Puts @elem into used slot @idx of the coming flush (0, 1, …) with @len bytes written.  The
 * driver sees nothing before the flush. */
void virtqueue_fill(VirtQueue *vq, VirtQueueElement *elem, uint32_t len, unsigned idx);
/* Publishes @count filled elements with one index store; frees them.  With IN_ORDER those that
 * older ones are still out for wait for them, and several may share a used entry. */
void virtqueue_flush(VirtQueue *vq, unsigned count);

/*
 * From now on the driver notifies.  True: chains are available (they arrived meanwhile, or were
 * left), look again.  With EVENT_IDX the driver notifies for the first chain after what was
 * available at this moment; a device that waits for more than is there (virtqueue_available())
 * calls this again after each look, for the event moves only here and when the ring runs empty.
 */
bool virtqueue_enable_notify(VirtQueue *vq);
void virtqueue_disable_notify(VirtQueue *vq);
bool virtqueue_notify_enabled(const VirtQueue *vq);
/* After flush: does the driver want an interrupt for what was used since this was last asked?
 * Remembers, so ask once a flush or batch. */
bool virtqueue_should_interrupt(VirtQueue *vq);

/* Anything available? (A look at the ring, nothing is taken.) */
bool virtqueue_empty(VirtQueue *vq);
/* Available chains not popped; 0 when broken. */
unsigned virtqueue_available(VirtQueue *vq);

#endif
