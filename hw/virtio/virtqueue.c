/*
 * Virtqueue, the part that does not depend on the ring's layout: set-up, the pool of elements,
 * cached ring translation, breaking, and the entry points, which check that the queue can be
 * touched at all and hand on to the layout's table (virtqueue-split.c, virtqueue-packed.c).
 *
 * Ring addresses are translated at the first look and again when dma->generation says that the
 * memory map or Bus Master Enable changed; between such changes an entry point costs one compare.
 * While bus mastering is off the queue looks empty and notes nothing wrong.
 *
 * Not here: who is told of interrupts and notifications (virtio.c), what a chain means (devices).
 */
#include <stdlib.h>

#include "hw/virtio/virtqueue-internal.h"
#include "util/log.h"

VirtQueue *virtqueue_new(unsigned index, DmaSpace *dma,
                         void (*broken)(VirtQueue *vq, void *opaque, const char *why), void *opaque)
{
    VirtQueue *vq = g_new0(VirtQueue, 1);

    vq->index = index;
    vq->dma = dma;
    vq->on_broken = broken;
    vq->opaque = opaque;
    vq->ops = &virtqueue_split_ops;
    virtqueue_reset(vq);
    return vq;
}

void virtqueue_set_returned_hook(VirtQueue *vq, void (*returned)(VirtQueue *vq, void *opaque))
{
    vq->on_returned = returned;
}

/* --- pool --- */

static void pool_free(VirtQueue *vq)
{
    for (unsigned i = 0; i < vq->pool_num; i++) {
        virtqueue_element_shrink(&vq->slots[i].elem);
    }
    virtqueue_bounce_free(vq);
    free(vq->slots);
    g_free(vq->free);
    g_free(vq->filled);
    g_free(vq->unpopped);
    g_free(vq->kept);
    g_free(vq->marks);
    g_free(vq->held);
    g_free(vq->order);
    vq->slots = NULL;
    vq->free = vq->filled = vq->kept = vq->order = NULL;
    vq->unpopped = NULL;
    vq->marks = NULL;
    vq->held = NULL;
    vq->pool_num = vq->free_count = vq->unpopped_count = vq->held_count = 0;
}

static void pool_refill(VirtQueue *vq)
{
    for (unsigned i = 0; i < vq->pool_num; i++) {
        virtqueue_element_shrink(&vq->slots[i].elem);
        vq->free[i] = &vq->slots[vq->pool_num - 1 - i].elem;
    }
    virtqueue_bounce_free(vq);
    vq->free_count = vq->pool_num;
    vq->unpopped_count = vq->held_count = 0;
    vq->order_first = vq->order_count = 0;
    vq->slots_out = 0;
}

/* An element for each ring entry: no more can be in flight. */
static void pool_new(VirtQueue *vq)
{
    pool_free(vq);
    vq->slots = aligned_alloc(64, vq->num * sizeof(VirtQueueSlot));
    if (!vq->slots) {
        g_error("out of memory for a virtqueue of %u entries", vq->num);
    }
    memset(vq->slots, 0, vq->num * sizeof(VirtQueueSlot));
    vq->free = g_new0(VirtQueueElement *, vq->num);
    vq->filled = g_new0(VirtQueueElement *, vq->num);
    vq->unpopped = g_new0(uint16_t, vq->num);
    vq->kept = g_new0(VirtQueueElement *, vq->num);
    vq->marks = g_new0(VirtQueueMark, vq->num);
    vq->held = g_new0(VirtQueueHeld, vq->num);
    vq->order = g_new0(VirtQueueElement *, 2 * vq->num);
    vq->pool_num = vq->num;
    for (unsigned i = 0; i < vq->pool_num; i++) {
        VirtQueueSlot *slot = &vq->slots[i];

        slot->elem.sg = slot->sg;
        slot->elem.gpa = slot->gpa;
        slot->elem.sg_capacity = VIRTQUEUE_INLINE_SG;
    }
    pool_refill(vq);
}

void virtqueue_free(VirtQueue *vq)
{
    if (!vq) {
        return;
    }
    pool_free(vq);
    g_free(vq);
}

/* --- set-up --- */

void virtqueue_set_num(VirtQueue *vq, unsigned num)
{
    if (num == 0 || num > VIRTQUEUE_MAX_SIZE) {
        return;
    }
    vq->num = (uint16_t)num;
    vq->mask = (uint16_t)(num - 1);
    vq->mapped = false;
}

void virtqueue_set_addresses(VirtQueue *vq, uint64_t desc, uint64_t avail, uint64_t used)
{
    vq->desc_addr = desc;
    vq->avail_addr = avail;
    vq->used_addr = used;
    vq->has_addresses = desc || avail || used;
    vq->mapped = false;
}

void virtqueue_set_rules(VirtQueue *vq, const VirtQueueRules *rules)
{
    vq->rules = *rules;
    vq->ops = rules->packed ? &virtqueue_packed_ops : &virtqueue_split_ops;
    vq->mapped = false;
}

void virtqueue_reset(VirtQueue *vq)
{
    vq->mapped = false;
    vq->broken = false;
    vq->returned_bad = false;
    vq->notify_enabled = true;
    vq->last_avail = vq->shadow_avail = vq->used_idx = 0;
    vq->used_flags = 0;
    vq->avail_event_valid = false;
    vq->avail_wrap = vq->used_wrap = true;
    vq->unsignalled = 0;
    vq->range = (VirtQueueRange){0};
    vq->has_addresses = false;
    vq->desc_addr = vq->avail_addr = vq->used_addr = 0;
    vq->rules = (VirtQueueRules){0};
    vq->ops = &virtqueue_split_ops;
    pool_refill(vq);
}

unsigned virtqueue_index(const VirtQueue *vq)
{
    return vq->index;
}

unsigned virtqueue_num(const VirtQueue *vq)
{
    return vq->num;
}

bool virtqueue_ready(const VirtQueue *vq)
{
    return vq->has_addresses && vq->num > 0;
}

bool virtqueue_is_broken(const VirtQueue *vq)
{
    return vq->broken;
}

void virtqueue_get_addresses(const VirtQueue *vq, uint64_t *desc, uint64_t *avail, uint64_t *used)
{
    *desc = vq->desc_addr;
    *avail = vq->avail_addr;
    *used = vq->used_addr;
}

uint16_t virtqueue_last_avail_idx(const VirtQueue *vq)
{
    if (vq->rules.packed && vq->unpopped_count) {
        return virtqueue_mark(vq, vq->kept[vq->unpopped_count - 1])->position;
    }
    if (vq->rules.packed) {
        return (uint16_t)(vq->last_avail | vq->avail_wrap << 15);
    }
    return (uint16_t)(vq->last_avail - vq->unpopped_count);
}

uint16_t virtqueue_used_idx(const VirtQueue *vq)
{
    return vq->rules.packed ? (uint16_t)(vq->used_idx | vq->used_wrap << 15) : vq->used_idx;
}

void virtqueue_set_indices(VirtQueue *vq, uint16_t last_avail_idx, uint16_t used_idx)
{
    if (vq->rules.packed) {
        vq->avail_wrap = last_avail_idx >> 15;
        vq->used_wrap = used_idx >> 15;
        last_avail_idx &= 0x7fff;
        used_idx &= 0x7fff;
        /* Outside the ring only from a bad stream; the set-up before us refuses that. */
        last_avail_idx = vq->num ? last_avail_idx % vq->num : 0;
        used_idx = vq->num ? used_idx % vq->num : 0;
    }
    vq->last_avail = vq->shadow_avail = last_avail_idx;
    vq->used_idx = used_idx;
    vq->avail_event_valid = false;
    vq->used_flags = VIRTQUEUE_FLAGS_UNKNOWN;
    vq->mapped = false;
    /* What was signalled before is unknown: one interrupt too many rather than one too few. */
    vq->unsignalled = UINT16_MAX + 1u;
    pool_refill(vq);
}

unsigned virtqueue_inuse(const VirtQueue *vq)
{
    return virtqueue_in_flight(vq);
}

unsigned virtqueue_inuse_slots(const VirtQueue *vq)
{
    return vq->rules.packed ? vq->slots_out : virtqueue_in_flight(vq);
}

const VirtQueueStats *virtqueue_stats(const VirtQueue *vq)
{
    return &vq->stats;
}

/* --- breaking, mapping, logging --- */

void virtqueue_break(VirtQueue *vq, const char *why)
{
    if (vq->broken) {
        return;
    }
    vq->broken = true;
    guest_error("virtqueue %u: %s; broken until reset", vq->index, why);
    if (vq->on_broken) {
        vq->on_broken(vq, vq->opaque, why);
    }
}

void virtqueue_publish(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count)
{
    if (G_UNLIKELY(vq->bounce)) {
        virtqueue_bounce_store(vq, elems, count);
    }
    vq->unsignalled += vq->ops->flush(vq, elems, count);
    for (unsigned i = 0; i < count; i++) {
        virtqueue_pool_put(vq, elems[i]);
    }
    if (G_UNLIKELY(vq->held_count)) {
        virtqueue_held_advance(vq, count);
        virtqueue_held_publish(vq);
    }
}

static void bad_note(VirtQueue *vq, VirtQueueElement *elem, const char *why)
{
    vq->stats.bad_chains++;
    guest_error("virtqueue %u: chain %u: %s; returned with length 0", vq->index, elem->head, why);
    elem->len = 0;
}

static void return_now(VirtQueue *vq, VirtQueueElement *elem)
{
    vq->returned_bad = true;
    if (vq->rules.in_order) {
        elem->in_size = 1; /* not written whole: it has a used entry of its own */
        elem->in_order_done = true;
        virtqueue_order_publish(vq);
    } else {
        virtqueue_publish(vq, &elem, 1);
    }
}

void virtqueue_return_bad(VirtQueue *vq, VirtQueueElement *elem, const char *why)
{
    unsigned older = virtqueue_in_flight(vq) - 1; /* those held among them */

    bad_note(vq, elem, why);
    if (older && !vq->rules.in_order) {
        vq->held[vq->held_count++] = (VirtQueueHeld){elem, older};
    } else {
        return_now(vq, elem);
    }
}

void virtqueue_return_bad_again(VirtQueue *vq, VirtQueueElement *elem, const char *why)
{
    bad_note(vq, elem, why);
    return_now(vq, elem);
}

uint8_t *virtqueue_map_area(VirtQueue *vq, uint64_t addr, uint64_t size, unsigned align,
                            bool writing)
{
    uint64_t len = size;
    uint8_t *host;

    if (addr & (align - 1)) {
        return NULL;
    }
    host = dma_translate(vq->dma, addr, &len, writing);
    if (!host || len < size) {
        return virtqueue_bounce_area(vq, addr, size, writing);
    }
    return ((uintptr_t)host & (align - 1)) == 0 ? host : NULL;
}

static bool map_slow(VirtQueue *vq)
{
    const char *why;

    vq->mapped = false;
    vq->range = (VirtQueueRange){0};
    virtqueue_bounce_unmap(vq);
    if (!virtqueue_ready(vq) || !vq->dma->enabled) {
        return false;
    }
    if (vq->pool_num != vq->num) {
        pool_new(vq);
    }
    why = vq->ops->map(vq);
    if (why) {
        virtqueue_break(vq, why);
        return false;
    }
    virtqueue_bounce_mapped(vq);
    vq->map_generation = vq->dma->generation;
    vq->mapped = true;
    return true;
}

/* Whether ring memory may be touched now. */
static inline bool usable(VirtQueue *vq)
{
    if (G_UNLIKELY(vq->broken)) {
        return false;
    }
    if (G_LIKELY(vq->mapped && vq->map_generation == vq->dma->generation)) {
        return true;
    }
    return map_slow(vq);
}

void virtqueue_mark_dirty_slow(VirtQueue *vq, uint64_t addr, uint64_t len)
{
    DmaSpace *dma = vq->dma;

    if (len == 0) {
        return;
    }
    for (uint64_t page = addr >> 12; page <= (addr + len - 1) >> 12; page++) {
        if (page >= dma->dirty_pages) {
            return;
        }
        __atomic_store_n(&dma->dirty_log[page], 1, __ATOMIC_RELEASE);
    }
}

/* --- entry points --- */

unsigned virtqueue_pop_batch(VirtQueue *vq, VirtQueueElement **elems, unsigned max)
{
    unsigned n;

    if (!usable(vq)) {
        return 0;
    }
    if (G_UNLIKELY(vq->held_count)) {
        virtqueue_held_publish(vq); /* the ring may have been out of reach when it was time */
    }
    n = vq->ops->pop_batch(vq, elems, max);
    vq->stats.popped += n;
    if (G_UNLIKELY(vq->returned_bad)) {
        vq->returned_bad = false;
        if (vq->on_returned) {
            vq->on_returned(vq, vq->opaque);
        }
    }
    return n;
}

void virtqueue_unpop(VirtQueue *vq, VirtQueueElement *elem)
{
    if (virtqueue_keeps(vq)) {
        vq->kept[vq->unpopped_count++] = elem;
    } else {
        vq->unpopped[vq->unpopped_count++] = elem->head;
        virtqueue_pool_put(vq, elem);
    }
    vq->stats.popped--;
}

void virtqueue_detach(VirtQueue *vq, VirtQueueElement *elem)
{
    if (vq->rules.in_order) {
        virtqueue_order_remove(vq, elem);
    }
    virtqueue_held_advance(vq, 1);
    virtqueue_pool_put(vq, elem);
}

/* The pages of the first @len writable bytes. */
static void mark_element_dirty(VirtQueue *vq, const VirtQueueElement *elem, uint64_t len)
{
    for (unsigned i = elem->out_num; len && i < (unsigned)elem->out_num + elem->in_num; i++) {
        uint64_t n = MIN(len, elem->sg[i].iov_len);

        virtqueue_mark_dirty_slow(vq, elem->gpa[i], n);
        len -= n;
    }
}

void virtqueue_fill(VirtQueue *vq, VirtQueueElement *elem, uint32_t len, unsigned idx)
{
    elem->len = len;
    vq->filled[idx] = elem;
    if (G_UNLIKELY(vq->dma->dirty_log)) {
        mark_element_dirty(vq, elem, len);
    }
}

void virtqueue_flush(VirtQueue *vq, unsigned count)
{
    if (count == 0) {
        return;
    }
    /* Without the ring (broken, or bus mastering off) the driver sees nothing more of them. */
    if (G_UNLIKELY(!usable(vq))) {
        for (unsigned i = 0; i < count; i++) {
            virtqueue_detach(vq, vq->filled[i]);
        }
        return;
    }
    vq->stats.used_flushes++;
    if (G_LIKELY(!vq->rules.in_order)) {
        virtqueue_publish(vq, vq->filled, count);
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        vq->filled[i]->in_order_done = true;
    }
    virtqueue_order_publish(vq);
}

bool virtqueue_enable_notify(VirtQueue *vq)
{
    vq->notify_enabled = true;
    return usable(vq) && vq->ops->enable_notify(vq);
}

void virtqueue_disable_notify(VirtQueue *vq)
{
    if (!vq->notify_enabled) {
        return;
    }
    vq->notify_enabled = false;
    if (usable(vq)) {
        vq->ops->disable_notify(vq);
    }
}

bool virtqueue_notify_enabled(const VirtQueue *vq)
{
    return vq->notify_enabled;
}

bool virtqueue_should_interrupt(VirtQueue *vq)
{
    bool wanted;

    if (vq->unsignalled == 0 || !usable(vq)) {
        return false;
    }
    wanted = vq->ops->should_interrupt(vq);
    vq->unsignalled = 0;
    if (!wanted) {
        vq->stats.interrupts_suppressed++;
    }
    return wanted;
}

unsigned virtqueue_available(VirtQueue *vq)
{
    return usable(vq) ? vq->ops->available(vq) : 0;
}

bool virtqueue_empty(VirtQueue *vq)
{
    return !usable(vq) || vq->ops->empty(vq);
}
