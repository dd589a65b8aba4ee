/*
 * Inside of a virtqueue: what the common part (virtqueue.c), the chain reader
 * (virtqueue-chain.c), IN_ORDER (virtqueue-order.c) and the ring layouts (virtqueue-split.c,
 * virtqueue-packed.c) share.  A layout is a table of operations.  Devices and transports do not
 * include this.
 */
#ifndef HW_VIRTIO_VIRTQUEUE_INTERNAL_H
#define HW_VIRTIO_VIRTQUEUE_INTERNAL_H

#include <glib.h>
#include <linux/virtio_ring.h>

#include "hw/virtio/ring-access.h"
#include "hw/virtio/virtqueue.h"

/* Buffers that fit an element without an allocation: a virtio-net header and a few pieces. */
#define VIRTQUEUE_INLINE_SG 8
/* Larger arrays than this go back to the allocator with the element, so that a guest's giant
 * chains do not stay in our memory. */
#define VIRTQUEUE_KEEP_SG 64
/* Entries of one element; above VIRTQUEUE_MAX_CHAIN because a buffer may straddle RAM pieces. */
#define VIRTQUEUE_MAX_SG 65535

/* One ring layout.  Every function is called with the ring mapped and the queue not broken. */
typedef struct VirtQueueOps {
    const char *name;
    /* Translates the ring areas; NULL, or why that cannot be. */
    const char *(*map)(VirtQueue *vq);
    unsigned (*pop_batch)(VirtQueue *vq, VirtQueueElement **elems, unsigned max);
    /* Publishes elements; returns by how much the used index went on (packed: slots). */
    unsigned (*flush)(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count);
    bool (*enable_notify)(VirtQueue *vq);
    void (*disable_notify)(VirtQueue *vq);
    bool (*should_interrupt)(VirtQueue *vq);
    unsigned (*available)(VirtQueue *vq);
    bool (*empty)(VirtQueue *vq);
} VirtQueueOps;

extern const VirtQueueOps virtqueue_split_ops, virtqueue_packed_ops;

/* VirtQueue.used_flags after a state was loaded: what the ring says is not known. */
#define VIRTQUEUE_FLAGS_UNKNOWN 0xffff

/* An element and its usual buffers, side by side: an element of few buffers is four cache lines. */
typedef struct VirtQueueSlot {
    VirtQueueElement elem;
    struct iovec sg[VIRTQUEUE_INLINE_SG];
    uint64_t gpa[VIRTQUEUE_INLINE_SG];
} __attribute__((aligned(64))) VirtQueueSlot;

/* Of an element that may be kept, see VirtQueue.kept. */
typedef struct VirtQueueMark {
    uint32_t map_generation; /* when it was translated */
    uint16_t position;       /* packed: its first slot; bit 15 is the wrap counter */
} VirtQueueMark;

/* A bad chain that was popped while @older ones were out, and waits until they are used. */
typedef struct VirtQueueHeld {
    VirtQueueElement *elem;
    unsigned older;
} VirtQueueHeld;

/* The piece of RAM that the last buffer was in; the next one is nearly always there too. */
typedef struct VirtQueueRange {
    uint64_t addr, size; /* size 0: none */
    uint8_t *host;
    bool readonly;
} VirtQueueRange;

typedef struct VirtQueueBounce VirtQueueBounce;

struct VirtQueue {
    const VirtQueueOps *ops;
    DmaSpace *dma;
    uint32_t map_generation; /* of dma when the pointers below were made */
    bool mapped;
    bool broken;
    bool notify_enabled;
    bool returned_bad; /* a bad chain went back since the hook was told */
    VirtQueueRules rules;
    uint16_t num, mask;
    uint16_t last_avail;   /* next entry to pop; packed: slot in the ring */
    uint16_t shadow_avail; /* split: available index when last loaded */
    uint16_t used_idx;
    uint16_t used_flags;  /* our copy of used->flags; packed: of the device event's flags */
    uint16_t avail_event; /* as stored in the ring, when avail_event_valid */
    bool avail_event_valid;
    bool avail_wrap, used_wrap; /* packed */
    uint16_t slots_out;         /* packed: slots of chains popped and not used */
    uint64_t unsignalled;       /* used since should_interrupt() was last asked */
    VirtQueueRange range;

    /* Ring areas as host pointers.  Split: descriptor table, available ring, used ring; packed:
     * descriptor ring, driver event suppression, device event suppression. */
    uint8_t *desc, *avail, *used;

    /* The pool: a stack, so that a lightly used queue stays within few cache lines. */
    VirtQueueElement **free;
    unsigned free_count, pool_num;
    VirtQueueElement **filled; /* by slot of the coming flush */
    VirtQueueSlot *slots;

    /* Chains that were popped and given back, last popped first.  They are remembered, not read
     * again: a driver may have reused their ring entries since, when a bad chain behind them
     * went back.  A split ring's descriptor table still has them, so their heads are enough.
     * In a packed ring the bad chain's used descriptor may lie over them, and with IN_ORDER they
     * have a place in the order: then the elements are kept as they are, out of the pool. */
    uint16_t *unpopped;
    VirtQueueElement **kept;
    unsigned unpopped_count;
    VirtQueueMark *marks; /* by slot of the pool */

    /* Bad chains that wait, in the order they were popped: see virtqueue-order.c. */
    VirtQueueHeld *held;
    unsigned held_count;

    /* IN_ORDER: elements popped and not published, oldest first, from order_first on.  Room for
     * twice pool_num, so that they seldom have to move. */
    VirtQueueElement **order;
    unsigned order_first, order_count;

    unsigned index;
    uint64_t desc_addr, avail_addr, used_addr;
    bool has_addresses;
    VirtQueueStats stats;
    VirtQueueBounce *bounce; /* NULL as long as rings and buffers are in RAM */
    void (*on_broken)(VirtQueue *vq, void *opaque, const char *why);
    void (*on_returned)(VirtQueue *vq, void *opaque);
    void *opaque;
};

/* Breaks the queue: logs, tells the owner, once.  Nothing more is popped until reset. */
void virtqueue_break(VirtQueue *vq, const char *why);

/* Host pointer of a ring area of @size bytes in one piece of RAM, aligned to @align; NULL: no. */
uint8_t *virtqueue_map_area(VirtQueue *vq, uint64_t addr, uint64_t size, unsigned align,
                            bool writing);

/* Shows the driver @elems as used, in this order, and puts them back into the pool. */
void virtqueue_publish(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count);
/* A chain that is no good, popped: counts and logs it, and returns it used with length 0, when all
 * that were popped before it are used. */
void virtqueue_return_bad(VirtQueue *vq, VirtQueueElement *elem, const char *why);
/* The same for one that was given back and popped again: younger ones may be out. */
void virtqueue_return_bad_again(VirtQueue *vq, VirtQueueElement *elem, const char *why);

/* Takes up to @max of the elements that were given back; those that a new memory map has made
 * bad are returned. */
unsigned virtqueue_take_kept(VirtQueue *vq, VirtQueueElement **elems, unsigned max);

/* Bad chains that wait: @used elements more are done; publish those that wait no longer. */
void virtqueue_held_advance(VirtQueue *vq, unsigned used);
void virtqueue_held_publish(VirtQueue *vq);

/* IN_ORDER.  @elems were popped, in this order. */
void virtqueue_order_push(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count);
/* Publishes from the oldest on as far as they are done. */
void virtqueue_order_publish(VirtQueue *vq);
void virtqueue_order_remove(VirtQueue *vq, const VirtQueueElement *elem);
/* How many of @elems (at least one) a single used entry stands for: all but the last were written
 * whole, which is what drivers take for granted of those without an entry. */
unsigned virtqueue_order_run(VirtQueueElement *const *elems, unsigned count);

/* Takes a bigger array for @elem's buffers; false: it may not grow. */
bool virtqueue_element_grow(VirtQueueElement *elem);
void virtqueue_element_shrink(VirtQueueElement *elem);
/* Adds one entry; there is room. */
static inline void virtqueue_element_append(VirtQueueElement *elem, void *host, uint64_t addr,
                                            uint64_t len, bool writable)
{
    unsigned n = elem->out_num + elem->in_num;

    elem->sg[n].iov_base = host;
    elem->sg[n].iov_len = len;
    elem->gpa[n] = addr;
    if (writable) {
        elem->in_num++;
        elem->in_size += len;
    } else {
        elem->out_num++;
        elem->out_size += len;
    }
}

/* Adds a buffer that is not wholly in vq->range; NULL, or why it is bad. */
const char *virtqueue_add_buffer_slow(VirtQueue *vq, VirtQueueElement *elem, uint64_t addr,
                                      uint32_t len, bool writable);
/* Entry @i of an indirect table that lies in more than one piece of RAM. */
bool virtqueue_read_table(VirtQueue *vq, uint64_t table, unsigned i, RingDesc *desc);
/* Checks an indirect descriptor; NULL, or why it is bad. */
const char *virtqueue_check_indirect(const VirtQueue *vq, const RingDesc *desc);

/* virtqueue-split.c: bytes of the available ring. */
uint64_t virtqueue_split_avail_size(const VirtQueue *vq);

/* virtqueue-bounce.c: guest memory that is reached by copying.  An area or buffer there; NULL (or
 * why) when it is not reachable either. */
bool virtqueue_bounce_reachable(const VirtQueue *vq, uint64_t addr, uint64_t size, bool writing);
uint8_t *virtqueue_bounce_area(VirtQueue *vq, uint64_t addr, uint64_t size, bool writing);
const char *virtqueue_bounce_buffer(VirtQueue *vq, VirtQueueElement *elem, uint64_t addr,
                                    uint32_t len, bool writable);
void virtqueue_bounce_unmap(VirtQueue *vq);  /* before the layout maps its areas anew */
void virtqueue_bounce_mapped(VirtQueue *vq); /* after it has */
/* Writes what @elems' buffers were given back to the guest. */
void virtqueue_bounce_store(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count);
/* Whether entry @i of @elem is a copy. */
bool virtqueue_bounce_holds(const VirtQueue *vq, const VirtQueueElement *elem, unsigned i);
void virtqueue_bounce_drop(VirtQueue *vq, VirtQueueElement *elem); /* it goes back to the pool */
void virtqueue_bounce_free(VirtQueue *vq);

void virtqueue_mark_dirty_slow(VirtQueue *vq, uint64_t addr, uint64_t len);

static inline void virtqueue_mark_dirty(VirtQueue *vq, uint64_t addr, uint64_t len)
{
    if (G_UNLIKELY(vq->dma->dirty_log)) {
        virtqueue_mark_dirty_slow(vq, addr, len);
    }
}

static inline void *virtqueue_translate(VirtQueue *vq, uint64_t addr, uint64_t len, bool writing)
{
    uint64_t offset = addr - vq->range.addr;

    if (G_LIKELY(offset < vq->range.size && len <= vq->range.size - offset &&
                 !(writing && vq->range.readonly))) {
        return vq->range.host + offset;
    }
    return NULL;
}

/* Adds one buffer, already read into locals, behind those that @elem has. */
static inline const char *virtqueue_add_buffer(VirtQueue *vq, VirtQueueElement *elem, uint64_t addr,
                                               uint32_t len, bool writable)
{
    unsigned n = elem->out_num + elem->in_num;
    void *host = virtqueue_translate(vq, addr, len, writable);

    if (G_UNLIKELY(!host || len == 0 || n == elem->sg_capacity || (!writable && elem->in_num))) {
        return virtqueue_add_buffer_slow(vq, elem, addr, len, writable);
    }
    virtqueue_element_append(elem, host, addr, len, writable);
    return NULL;
}

/* The top of the pool, clean, still in the pool.  The pool must not be empty. */
static inline VirtQueueElement *virtqueue_pool_peek(VirtQueue *vq, uint16_t head)
{
    VirtQueueElement *elem = vq->free[vq->free_count - 1];

    elem->head = head;
    elem->ndescs = 1;
    elem->out_num = elem->in_num = 0;
    elem->out_size = elem->in_size = 0;
    elem->len = 0;
    elem->in_order_done = false;
    elem->owner_data = NULL;
    elem->popped_ns = 0;
    return elem;
}

static inline void virtqueue_pool_put(VirtQueue *vq, VirtQueueElement *elem)
{
    if (G_UNLIKELY(elem->sg_capacity > VIRTQUEUE_KEEP_SG)) {
        virtqueue_element_shrink(elem);
    }
    if (G_UNLIKELY(vq->bounce)) {
        virtqueue_bounce_drop(vq, elem);
    }
    vq->free[vq->free_count++] = elem;
}

/* Whether elements that are given back are kept, not read again. */
static inline bool virtqueue_keeps(const VirtQueue *vq)
{
    return vq->rules.packed || vq->rules.in_order;
}

static inline VirtQueueMark *virtqueue_mark(const VirtQueue *vq, const VirtQueueElement *elem)
{
    return &vq->marks[(const VirtQueueSlot *)elem - vq->slots];
}

static inline unsigned virtqueue_in_flight(const VirtQueue *vq)
{
    return vq->pool_num - vq->free_count - (virtqueue_keeps(vq) ? vq->unpopped_count : 0);
}

#endif
