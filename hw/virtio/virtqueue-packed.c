/*
 * Packed rings (virtio 1.2, section 2.8): one ring of descriptors that both sides write, and two
 * words in which each side says when it wants to be notified.
 *
 * A descriptor's AVAIL and USED flags say whose it is: the driver's chain when they differ and
 * AVAIL equals the lap's parity (avail_wrap), ours given back when both equal used_wrap.
 *
 * Pop: the next slot's flags are looked at, then the chain is read, slot after slot.  It goes on
 * for as many slots as it has descriptors; the last one holds the buffer id.
 * Flush: a used descriptor lies at the place where the oldest chain began, and the next one as
 * many slots further as its chain was long.  The first of a batch is published last: the driver
 * looks at nothing behind it before.
 * Bad chains go back at once, like everything in the order in which it is finished.  One that
 * never ends has no id to return, and breaks the queue.
 *
 * Positions are a slot and a lap's parity; parities are in bit 15 where the ring has them so.
 */
#include "hw/virtio/virtqueue-internal.h"

#define DESC_LEN   8
#define DESC_ID    12
#define DESC_FLAGS 14

#define F_AVAIL (1u << VRING_PACKED_DESC_F_AVAIL)
#define F_USED  (1u << VRING_PACKED_DESC_F_USED)

#define POSITION_WRAP (1u << VRING_PACKED_EVENT_F_WRAP_CTR)
#define EVENT_FLAGS   3u /* of struct vring_packed_desc_event; the other bits are reserved */

static uint8_t *desc_at(const VirtQueue *vq, unsigned slot)
{
    return vq->desc + slot * RING_DESC_SIZE;
}

static void advance(const VirtQueue *vq, uint16_t *slot, bool *wrap, unsigned slots)
{
    unsigned next = *slot + slots;

    if (next >= vq->num) {
        next -= vq->num;
        *wrap = !*wrap;
    }
    *slot = (uint16_t)next;
}

static uint16_t position(uint16_t slot, bool wrap)
{
    return (uint16_t)(slot | (wrap ? POSITION_WRAP : 0));
}

/* Our wish for notifications: one store, so that the driver never sees half of it. */
static void store_event(VirtQueue *vq, uint16_t where, uint16_t flags)
{
    ring_store32(vq->used, (uint32_t)flags << 16 | where);
    vq->used_flags = flags;
    vq->avail_event = where;
    vq->avail_event_valid = flags == VRING_PACKED_EVENT_FLAG_DESC;
    virtqueue_mark_dirty(vq, vq->used_addr, 4);
}

static const char *packed_map(VirtQueue *vq)
{
    vq->desc = virtqueue_map_area(vq, vq->desc_addr, vq->num * RING_DESC_SIZE, 16, true);
    if (!vq->desc) {
        return "descriptor ring is not in RAM or not aligned to 16";
    }
    vq->avail = virtqueue_map_area(vq, vq->avail_addr, 4, 4, false);
    if (!vq->avail) {
        return "driver event suppression is not in RAM or not aligned to 4";
    }
    vq->used = virtqueue_map_area(vq, vq->used_addr, 4, 4, true);
    if (!vq->used) {
        return "device event suppression is not in RAM or not aligned to 4";
    }
    /* What was decided while the ring was out of reach, or in another process. */
    if (!vq->notify_enabled && vq->used_flags != VRING_PACKED_EVENT_FLAG_DISABLE) {
        store_event(vq, 0, VRING_PACKED_EVENT_FLAG_DISABLE);
    } else if (vq->used_flags == VIRTQUEUE_FLAGS_UNKNOWN ||
               (vq->notify_enabled && vq->used_flags == VRING_PACKED_EVENT_FLAG_DISABLE)) {
        store_event(vq, 0, VRING_PACKED_EVENT_FLAG_ENABLE);
    }
    return NULL;
}

/* --- what is available --- */

static inline bool is_available(uint16_t flags, bool wrap)
{
    return (flags & (F_AVAIL | F_USED)) == (wrap ? F_AVAIL : F_USED);
}

/* Whether there is something; who takes it (take_chain) orders what is read after. */
static bool any_available(const VirtQueue *vq)
{
    return is_available(ring_load16(desc_at(vq, vq->last_avail) + DESC_FLAGS), vq->avail_wrap);
}

/* Walks over the available chains from *slot on, to the first slot that is not; counts them. */
static unsigned skip_available(const VirtQueue *vq, uint16_t *slot, bool *wrap)
{
    unsigned chains = 0, slots = 0;

    while (slots < vq->num) {
        uint16_t flags = ring_load16_available(desc_at(vq, *slot) + DESC_FLAGS);

        if (!is_available(flags, *wrap)) {
            break;
        }
        advance(vq, slot, wrap, 1);
        while (++slots < vq->num && (flags & VRING_DESC_F_NEXT)) {
            flags = ring_load16(desc_at(vq, *slot) + DESC_FLAGS);
            advance(vq, slot, wrap, 1);
        }
        chains++;
    }
    return chains;
}

/*
 * The ring was found empty.  With notifications on, the driver must be told for which descriptor
 * to notify before that may be believed.  True: it has just been told, look again.
 */
static bool arm_when_empty(VirtQueue *vq)
{
    uint16_t here = position(vq->last_avail, vq->avail_wrap);

    if (!vq->rules.event_idx || !vq->notify_enabled ||
        (vq->avail_event_valid && vq->avail_event == here)) {
        return false;
    }
    store_event(vq, here, VRING_PACKED_EVENT_FLAG_DESC);
    ring_barrier_notify_enabled();
    return true;
}

static bool packed_empty(VirtQueue *vq)
{
    return vq->unpopped_count == 0 && !any_available(vq) &&
           !(arm_when_empty(vq) && any_available(vq));
}

static unsigned packed_available(VirtQueue *vq)
{
    uint16_t slot = vq->last_avail;
    bool wrap = vq->avail_wrap;

    return packed_empty(vq) ? 0 : vq->unpopped_count + skip_available(vq, &slot, &wrap);
}

/* --- chains --- */

/* Every descriptor of the table counts, in order; NEXT means nothing there (2.8.7). */
static const char *read_table(VirtQueue *vq, VirtQueueElement *elem, const RingDesc *table)
{
    const char *why = virtqueue_check_indirect(vq, table);
    unsigned count = table->len / RING_DESC_SIZE;
    const uint8_t *host = virtqueue_translate(vq, table->addr, table->len, false);

    for (unsigned i = 0; !why && i < count; i++) {
        RingDesc desc;

        if (host) {
            ring_load_desc(host + i * RING_DESC_SIZE, &desc);
        } else if (!virtqueue_read_table(vq, table->addr, i, &desc)) {
            return "indirect table outside RAM";
        }
        why = virtqueue_add_buffer(vq, elem, desc.addr, desc.len,
                                   desc.packed_flags & VRING_DESC_F_WRITE);
    }
    return why;
}

/*
 * A chain that begins with @desc, where that is not a lone buffer.  Sets the element's id and its
 * length in slots, for bad chains too; the length is 0 for one without an end.
 */
static const char *read_long_chain(VirtQueue *vq, VirtQueueElement *elem, RingDesc desc)
{
    uint16_t slot = vq->last_avail;
    const char *why = NULL;
    bool wrap = false;

    for (unsigned seen = 1;; seen++) {
        bool indirect = desc.packed_flags & VRING_DESC_F_INDIRECT;
        bool more = desc.packed_flags & VRING_DESC_F_NEXT;

        if (!why && indirect) {
            why = more || seen > 1 ? "indirect descriptor in a chain of several"
                                   : read_table(vq, elem, &desc);
        } else if (!why) {
            why = virtqueue_add_buffer(vq, elem, desc.addr, desc.len,
                                       desc.packed_flags & VRING_DESC_F_WRITE);
        }
        if (!more) {
            elem->head = desc.id;
            elem->ndescs = (uint16_t)seen;
            return why;
        }
        if (seen == vq->num) {
            elem->ndescs = 0;
            return "chain longer than the ring";
        }
        advance(vq, &slot, &wrap, 1);
        ring_load_desc(desc_at(vq, slot), &desc);
    }
}

static inline const char *read_chain(VirtQueue *vq, VirtQueueElement *elem, const RingDesc *desc)
{
    if (G_LIKELY(!(desc->packed_flags & (VRING_DESC_F_NEXT | VRING_DESC_F_INDIRECT)))) {
        return virtqueue_add_buffer(vq, elem, desc->addr, desc->len,
                                    desc->packed_flags & VRING_DESC_F_WRITE);
    }
    return read_long_chain(vq, elem, *desc);
}

/* The chain at the next slot, taken; NULL: there is none, or the queue broke.  *why: it is bad. */
static VirtQueueElement *take_chain(VirtQueue *vq, const char **why)
{
    VirtQueueElement *elem;
    VirtQueueMark *mark;
    RingDesc desc;

    ring_load_desc_available(desc_at(vq, vq->last_avail), &desc);
    if (!is_available(desc.packed_flags, vq->avail_wrap)) {
        return NULL;
    }
    if (G_UNLIKELY(vq->free_count == 0)) {
        virtqueue_break(vq, "more chains in flight than the queue size");
        return NULL;
    }
    elem = virtqueue_pool_peek(vq, desc.id);
    *why = read_chain(vq, elem, &desc);
    if (G_UNLIKELY(elem->ndescs == 0 || vq->slots_out + elem->ndescs > vq->num)) {
        virtqueue_break(vq, elem->ndescs ? "more descriptors in flight than the queue size" : *why);
        return NULL;
    }
    vq->free_count--;
    mark = virtqueue_mark(vq, elem);
    mark->map_generation = vq->map_generation;
    mark->position = position(vq->last_avail, vq->avail_wrap);
    vq->slots_out += elem->ndescs;
    advance(vq, &vq->last_avail, &vq->avail_wrap, elem->ndescs);
    return elem;
}

static unsigned packed_pop_batch(VirtQueue *vq, VirtQueueElement **elems, unsigned max)
{
    unsigned n = virtqueue_take_kept(vq, elems, max), ordered = n;
    bool found = n > 0;

    while (n < max) {
        const char *why = NULL;
        VirtQueueElement *elem = take_chain(vq, &why);

        if (!elem) {
            if (found || vq->broken || !arm_when_empty(vq)) {
                break;
            }
            continue;
        }
        found = true;
        if (G_LIKELY(!why)) {
            elems[n++] = elem;
            continue;
        }
        if (vq->rules.in_order) {
            virtqueue_order_push(vq, elems + ordered, n - ordered);
            virtqueue_order_push(vq, &elem, 1);
            ordered = n;
        }
        virtqueue_return_bad(vq, elem, why);
    }
    if (vq->rules.in_order) {
        virtqueue_order_push(vq, elems + ordered, n - ordered);
    }
    return n;
}

/* --- using --- */

static uint16_t used_flags(const VirtQueue *vq, const VirtQueueElement *elem)
{
    return (uint16_t)((vq->used_wrap ? F_AVAIL | F_USED : 0) |
                      (elem->len ? VRING_DESC_F_WRITE : 0));
}

/* How many of @elems the next used descriptor stands for; *slots: of their chains. */
static unsigned used_run(const VirtQueue *vq, VirtQueueElement *const *elems, unsigned count,
                         unsigned *slots)
{
    unsigned run = vq->rules.in_order ? virtqueue_order_run(elems, count) : 1;

    *slots = 0;
    for (unsigned i = 0; i < run; i++) {
        *slots += elems[i]->ndescs;
    }
    return run;
}

static void mark_slot_dirty(VirtQueue *vq, unsigned slot)
{
    virtqueue_mark_dirty(vq, vq->desc_addr + slot * RING_DESC_SIZE, RING_DESC_SIZE);
}

static unsigned packed_flush(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count)
{
    unsigned slots, total, run = used_run(vq, elems, count, &total);
    const VirtQueueElement *first = elems[run - 1];
    uint8_t *place = desc_at(vq, vq->used_idx);
    uint16_t flags = used_flags(vq, first);

    unsigned place_slot = vq->used_idx;

    advance(vq, &vq->used_idx, &vq->used_wrap, total);
    for (unsigned i = run; i < count; i += run) {
        const VirtQueueElement *elem;

        run = used_run(vq, elems + i, count - i, &slots);
        elem = elems[i + run - 1];
        ring_store64(desc_at(vq, vq->used_idx) + DESC_LEN,
                     (uint64_t)used_flags(vq, elem) << 48 | (uint64_t)elem->head << 32 | elem->len);
        mark_slot_dirty(vq, vq->used_idx);
        advance(vq, &vq->used_idx, &vq->used_wrap, slots);
        total += slots;
    }
    ring_store32(place + DESC_LEN, first->len);
    ring_store16(place + DESC_ID, first->head);
    ring_store16_used(place + DESC_FLAGS, flags);
    mark_slot_dirty(vq, place_slot); /* after the writes: see migration/ram.c */
    vq->slots_out = (uint16_t)(vq->slots_out - total);
    return total;
}

/* --- notifications and interrupts --- */

static bool packed_enable_notify(VirtQueue *vq)
{
    if (vq->rules.event_idx) {
        uint16_t slot = vq->last_avail;
        bool wrap = vq->avail_wrap;

        skip_available(vq, &slot, &wrap);
        store_event(vq, position(slot, wrap), VRING_PACKED_EVENT_FLAG_DESC);
    } else if (vq->used_flags != VRING_PACKED_EVENT_FLAG_ENABLE) {
        store_event(vq, 0, VRING_PACKED_EVENT_FLAG_ENABLE);
    }
    ring_barrier_notify_enabled();
    return vq->unpopped_count || any_available(vq);
}

static void packed_disable_notify(VirtQueue *vq)
{
    store_event(vq, 0, VRING_PACKED_EVENT_FLAG_DISABLE);
}

static bool packed_should_interrupt(VirtQueue *vq)
{
    uint32_t event;
    uint16_t flags, slot;

    ring_barrier_used_published();
    event = ring_load32(vq->avail);
    flags = event >> 16 & EVENT_FLAGS;
    if (flags == VRING_PACKED_EVENT_FLAG_DISABLE) {
        return false;
    }
    /* A whole lap or more: the descriptor was passed, whichever it is. */
    if (flags != VRING_PACKED_EVENT_FLAG_DESC || !vq->rules.event_idx ||
        vq->unsignalled >= vq->num) {
        return true;
    }
    slot = event & (POSITION_WRAP - 1);
    /* On a line that began with this lap; the lap before lies below 0. */
    if (!(event & POSITION_WRAP) == vq->used_wrap) {
        slot = (uint16_t)(slot - vq->num);
    }
    return vring_need_event(slot, vq->used_idx, (uint16_t)(vq->used_idx - vq->unsignalled));
}

const VirtQueueOps virtqueue_packed_ops = {
    .name = "packed",
    .map = packed_map,
    .pop_batch = packed_pop_batch,
    .flush = packed_flush,
    .enable_notify = packed_enable_notify,
    .disable_notify = packed_disable_notify,
    .should_interrupt = packed_should_interrupt,
    .available = packed_available,
    .empty = packed_empty,
};
