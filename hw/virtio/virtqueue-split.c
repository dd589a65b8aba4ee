/*
 * Split rings (virtio 1.2, section 2.7): a descriptor table, an available ring the driver writes,
 * a used ring the device writes.
 *
 * Pop: the available index is loaded once a batch, then heads and chains one after the other.  A
 * bad chain goes to the used ring with length 0 as soon as nothing older is out (elements being
 * filled have no place before their flush).
 * Flush: used entries are written, then one store of the used index.  With IN_ORDER one entry, at
 * the place of the first, stands for a run of chains and names the last (2.7.9).
 * Notifications: without EVENT_IDX a flag each way; with it, the driver notifies when the index
 * passes our available event, and wants an interrupt when ours passes its used event.
 *
 * All indices are 16 bits and wrap; only differences of them are compared.
 */
#include "hw/virtio/virtqueue-internal.h"

/* Where things are (struct vring_avail, vring_used): flags 0, index 2, ring 4, event behind it. */
#define RING_FLAGS   0
#define RING_INDEX   2
#define RING_ENTRIES 4
#define AVAIL_ENTRY  2
#define USED_ENTRY   8

static const void *desc_at(const VirtQueue *vq, unsigned i)
{
    return vq->desc + i * RING_DESC_SIZE;
}

static void *used_event(const VirtQueue *vq)
{
    return vq->avail + RING_ENTRIES + vq->num * AVAIL_ENTRY;
}

static void *avail_event(const VirtQueue *vq)
{
    return vq->used + RING_ENTRIES + vq->num * USED_ENTRY;
}

static void store_used_flags(VirtQueue *vq, uint16_t flags)
{
    ring_store16(vq->used + RING_FLAGS, flags);
    vq->used_flags = flags;
    virtqueue_mark_dirty(vq, vq->used_addr, 2);
}

static void store_avail_event(VirtQueue *vq, uint16_t event)
{
    ring_store16(avail_event(vq), event);
    vq->avail_event = event;
    vq->avail_event_valid = true;
    virtqueue_mark_dirty(vq, vq->used_addr + RING_ENTRIES + vq->num * USED_ENTRY, 2);
}

uint64_t virtqueue_split_avail_size(const VirtQueue *vq)
{
    return RING_ENTRIES + vq->num * AVAIL_ENTRY + (vq->rules.event_idx ? 2 : 0);
}

static const char *split_map(VirtQueue *vq)
{
    unsigned event = vq->rules.event_idx ? 2 : 0;

    if (vq->num & (vq->num - 1)) {
        return "size of a split ring is not a power of two";
    }
    vq->desc = virtqueue_map_area(vq, vq->desc_addr, vq->num * RING_DESC_SIZE, 16, false);
    if (!vq->desc) {
        return "descriptor table is not in RAM or not aligned to 16";
    }
    vq->avail = virtqueue_map_area(vq, vq->avail_addr, virtqueue_split_avail_size(vq), 2, false);
    if (!vq->avail) {
        return "available ring is not in RAM or not aligned to 2";
    }
    vq->used =
        virtqueue_map_area(vq, vq->used_addr, RING_ENTRIES + vq->num * USED_ENTRY + event, 4, true);
    if (!vq->used) {
        return "used ring is not in RAM or not aligned to 4";
    }
    /* What was decided while the ring was out of reach, or in another process. */
    if (!vq->rules.event_idx || vq->used_flags == VIRTQUEUE_FLAGS_UNKNOWN) {
        uint16_t flags = vq->notify_enabled || vq->rules.event_idx ? 0 : VRING_USED_F_NO_NOTIFY;

        if (flags != vq->used_flags) {
            store_used_flags(vq, flags);
        }
    }
    return NULL;
}

/* Loads the available index into the shadow.  False: it is mad, and the queue broken. */
static bool load_avail_index(VirtQueue *vq)
{
    uint16_t idx = ring_load16_available(vq->avail + RING_INDEX);

    if (G_UNLIKELY((uint16_t)(idx - vq->last_avail) > vq->num)) {
        virtqueue_break(vq, "available index is ahead by more than the queue size");
        return false;
    }
    vq->shadow_avail = idx;
    return true;
}

/* Chains available, as far as was seen. */
static inline unsigned seen_available(const VirtQueue *vq)
{
    return (uint16_t)(vq->shadow_avail - vq->last_avail) + vq->unpopped_count;
}

/*
 * Chains available now, freshly looked.  When the ring has run empty with notifications on, the
 * driver must be told for which index to notify before we may believe that it is empty.
 */
static unsigned split_available(VirtQueue *vq)
{
    if (!load_avail_index(vq)) {
        return 0;
    }
    if (vq->shadow_avail == vq->last_avail && vq->rules.event_idx && vq->notify_enabled &&
        !(vq->avail_event_valid && vq->avail_event == vq->last_avail)) {
        store_avail_event(vq, vq->last_avail);
        ring_barrier_notify_enabled();
        if (!load_avail_index(vq)) {
            return 0;
        }
    }
    return seen_available(vq);
}

static bool split_empty(VirtQueue *vq)
{
    return split_available(vq) == 0;
}

/* --- chains --- */

static const char *read_indirect(VirtQueue *vq, VirtQueueElement *elem, const RingDesc *table)
{
    unsigned count = table->len / RING_DESC_SIZE;
    const uint8_t *host = virtqueue_translate(vq, table->addr, table->len, false);
    unsigned i = 0;

    for (unsigned seen = 0; seen < count; seen++) {
        RingDesc desc;
        const char *why;

        if (host) {
            ring_load_desc(host + i * RING_DESC_SIZE, &desc);
        } else if (!virtqueue_read_table(vq, table->addr, i, &desc)) {
            return "indirect table outside RAM";
        }
        if (desc.flags & VRING_DESC_F_INDIRECT) {
            return "indirect descriptor in an indirect table";
        }
        why = virtqueue_add_buffer(vq, elem, desc.addr, desc.len, desc.flags & VRING_DESC_F_WRITE);
        if (why || !(desc.flags & VRING_DESC_F_NEXT)) {
            return why;
        }
        i = desc.next;
        if (i >= count) {
            return "next descriptor outside the indirect table";
        }
    }
    return "loop in an indirect table";
}

/* The rest of a chain that begins with @desc, where that is not a lone buffer. */
static const char *read_long_chain(VirtQueue *vq, VirtQueueElement *elem, RingDesc desc)
{
    for (unsigned seen = 1; seen <= vq->num; seen++) {
        const char *why;

        if (desc.flags & VRING_DESC_F_INDIRECT) {
            if (desc.flags & VRING_DESC_F_NEXT) {
                return "indirect descriptor with a next one";
            }
            why = virtqueue_check_indirect(vq, &desc);
            return why ? why : read_indirect(vq, elem, &desc);
        }
        why = virtqueue_add_buffer(vq, elem, desc.addr, desc.len, desc.flags & VRING_DESC_F_WRITE);
        if (why || !(desc.flags & VRING_DESC_F_NEXT)) {
            return why;
        }
        if (desc.next >= vq->num) {
            return "next descriptor outside the table";
        }
        elem->ndescs++;
        ring_load_desc(desc_at(vq, desc.next), &desc);
    }
    return "loop, or a chain longer than the queue";
}

static inline const char *read_chain(VirtQueue *vq, VirtQueueElement *elem)
{
    RingDesc desc;

    ring_load_desc(desc_at(vq, elem->head), &desc);
    if (G_LIKELY(!(desc.flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT)))) {
        return virtqueue_add_buffer(vq, elem, desc.addr, desc.len, desc.flags & VRING_DESC_F_WRITE);
    }
    return read_long_chain(vq, elem, desc);
}

static inline void store_used(VirtQueue *vq, uint16_t idx, uint16_t head, uint32_t len)
{
    uint8_t *entry = vq->used + RING_ENTRIES + (idx & vq->mask) * USED_ENTRY;

    ring_store32(entry, head); /* two stores: entries are aligned to 4 */
    ring_store32(entry + 4, len);
}

static void mark_used_dirty(VirtQueue *vq, uint16_t from, unsigned count)
{
    uint64_t ring = vq->used_addr + RING_ENTRIES;
    unsigned first = from & vq->mask;
    unsigned straight = MIN(count, vq->num - first);

    virtqueue_mark_dirty(vq, vq->used_addr, RING_ENTRIES);
    virtqueue_mark_dirty(vq, ring + first * USED_ENTRY, straight * USED_ENTRY);
    virtqueue_mark_dirty(vq, ring, (count - straight) * USED_ENTRY);
}

static void publish_used(VirtQueue *vq, unsigned count)
{
    uint16_t from = vq->used_idx;

    vq->used_idx = (uint16_t)(vq->used_idx + count);
    ring_store16_used(vq->used + RING_INDEX, vq->used_idx);
    mark_used_dirty(vq, from, count); /* after the writes: see migration/ram.c */
}

/* The next head, taken; false: there is none, or the queue broke. */
static inline bool next_head(VirtQueue *vq, uint16_t *head)
{
    if (G_UNLIKELY(vq->unpopped_count && !vq->rules.in_order)) {
        *head = vq->unpopped[--vq->unpopped_count];
        return true;
    }
    if (vq->last_avail == vq->shadow_avail) {
        return false;
    }
    *head = ring_load16(vq->avail + RING_ENTRIES + (vq->last_avail & vq->mask) * AVAIL_ENTRY);
    if (G_UNLIKELY(*head >= vq->num)) {
        virtqueue_break(vq, "head outside the descriptor table");
        return false;
    }
    if (G_UNLIKELY(vq->free_count == 0)) {
        virtqueue_break(vq, "more chains in flight than the queue size");
        return false;
    }
    vq->last_avail++;
    return true;
}

/* Puts @elems, popped just now, into the order. */
static void remember_order(VirtQueue *vq, VirtQueueElement **elems, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        virtqueue_mark(vq, elems[i])->map_generation = vq->map_generation;
    }
    virtqueue_order_push(vq, elems, count);
}

static unsigned split_pop_batch(VirtQueue *vq, VirtQueueElement **elems, unsigned max)
{
    unsigned n = 0, bad = 0, ordered;
    unsigned given_back = vq->rules.in_order ? 0 : vq->unpopped_count; /* they come first */
    uint16_t head;

    if (seen_available(vq) < max && split_available(vq) == 0) {
        return 0;
    }
    if (G_UNLIKELY(vq->rules.in_order)) {
        n = virtqueue_take_kept(vq, elems, max);
    }
    ordered = n;
    while (n < max && next_head(vq, &head)) {
        VirtQueueElement *elem = virtqueue_pool_peek(vq, head);
        const char *why = read_chain(vq, elem);

        vq->free_count--;
        if (G_LIKELY(!why)) {
            elems[n++] = elem;
            continue;
        }
        if (vq->rules.in_order) {
            remember_order(vq, elems + ordered, n - ordered);
            remember_order(vq, &elem, 1);
            ordered = n;
        }
        if (n + bad++ < given_back) {
            virtqueue_return_bad_again(vq, elem, why);
        } else {
            virtqueue_return_bad(vq, elem, why);
        }
    }
    if (G_UNLIKELY(vq->rules.in_order)) {
        remember_order(vq, elems + ordered, n - ordered);
    }
    return n;
}

/* One entry a run of chains. */
static void store_used_runs(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count)
{
    unsigned run;

    for (unsigned i = 0; i < count; i += run) {
        run = virtqueue_order_run(elems + i, count - i);
        store_used(vq, (uint16_t)(vq->used_idx + i), elems[i + run - 1]->head,
                   elems[i + run - 1]->len);
    }
}

static unsigned split_flush(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count)
{
    if (G_UNLIKELY(vq->rules.in_order)) {
        store_used_runs(vq, elems, count);
    } else {
        for (unsigned i = 0; i < count; i++) {
            store_used(vq, (uint16_t)(vq->used_idx + i), elems[i]->head, elems[i]->len);
        }
    }
    publish_used(vq, count);
    return count;
}

/* --- notifications and interrupts --- */

static bool split_enable_notify(VirtQueue *vq)
{
    if (vq->rules.event_idx) {
        if (!load_avail_index(vq)) {
            return false;
        }
        store_avail_event(vq, vq->shadow_avail);
    } else if (vq->used_flags) {
        store_used_flags(vq, 0);
    }
    ring_barrier_notify_enabled();
    return load_avail_index(vq) && seen_available(vq) > 0;
}

static void split_disable_notify(VirtQueue *vq)
{
    /* With EVENT_IDX the event just stays behind: the driver's index has passed it. */
    if (!vq->rules.event_idx) {
        store_used_flags(vq, VRING_USED_F_NO_NOTIFY);
    }
}

static bool split_should_interrupt(VirtQueue *vq)
{
    ring_barrier_used_published();
    if (vq->rules.notify_on_empty && virtqueue_in_flight(vq) == 0 && split_available(vq) == 0) {
        return true;
    }
    if (!vq->rules.event_idx) {
        return !(ring_load16(vq->avail + RING_FLAGS) & VRING_AVAIL_F_NO_INTERRUPT);
    }
    /* A whole turn of the 16-bit index or more: the event was passed, whatever it is. */
    if (vq->unsignalled > UINT16_MAX) {
        return true;
    }
    return vring_need_event(ring_load16(used_event(vq)), vq->used_idx,
                            (uint16_t)(vq->used_idx - vq->unsignalled));
}

const VirtQueueOps virtqueue_split_ops = {
    .name = "split",
    .map = split_map,
    .pop_batch = split_pop_batch,
    .flush = split_flush,
    .enable_notify = split_enable_notify,
    .disable_notify = split_disable_notify,
    .should_interrupt = split_should_interrupt,
    .available = split_available,
    .empty = split_empty,
};
