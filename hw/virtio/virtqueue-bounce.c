/*
 * Rings and buffers in guest memory that is not mapped here, but reached by copying
 * (DmaSpaceOps.reachable): the memory of a vfio-user client that shares no file for it.
 *
 * A ring area there gets a shadow.  The queue's layout works on shadows as on RAM; the ops table
 * here stands in front of the layout's, fetches what the driver may have written before each look,
 * and stores what the layout wrote after it.  A buffer there is bounced: readable ones are fetched
 * when the chain is popped, writable ones stored when it is flushed, before the used index is.
 *
 * Nothing of this costs a queue in RAM anything: it begins where a translation has failed.  It is
 * slow, and for split rings only; a packed ring there counts as outside RAM.
 */
#include "hw/virtio/virtqueue-internal.h"

/* Bytes of one chain in such memory: a frame of 64 KiB, its header, and room. */
#define BOUNCE_MAX 131072
#define AREAS      3
#define HEAD       4 /* bytes of flags and index in front of a ring's entries */
#define LOOKS      3 /* how often a look is repeated because it moved the event */

typedef struct Shadow {
    uint64_t addr, size;
    uint8_t *bytes;
    uint8_t *stored; /* what the guest has; NULL: an area that only the driver writes */
} Shadow;

typedef struct BounceBuffer {
    unsigned sg; /* which entry of the element */
    uint8_t *bytes;
} BounceBuffer;

struct VirtQueueBounce {
    const VirtQueueOps *layout; /* behind virtqueue_bounce_ops */
    Shadow shadows[AREAS];
    unsigned count;
    GHashTable *buffers; /* VirtQueueElement → GArray of BounceBuffer */
};

static const VirtQueueOps bounce_ops;

bool virtqueue_bounce_reachable(const VirtQueue *vq, uint64_t addr, uint64_t size, bool writing)
{
    const DmaSpaceOps *ops = vq->dma->ops;

    return ops && ops->reachable && size && addr <= UINT64_MAX - (size - 1) &&
           ops->reachable(vq->dma->opaque, addr, size, writing);
}

static VirtQueueBounce *bounce_get(VirtQueue *vq)
{
    if (!vq->bounce) {
        vq->bounce = g_new0(VirtQueueBounce, 1);
        vq->bounce->buffers = g_hash_table_new(NULL, NULL);
    }
    return vq->bounce;
}

/* --- shadows of ring areas --- */

/* An area may lie partly in RAM: dma_read() and dma_write() know. */
static bool area_reachable(const VirtQueue *vq, uint64_t addr, uint64_t size, bool writing)
{
    while (size) {
        const MemoryRange *range = memory_map_find(vq->dma->map, addr);
        uint64_t piece =
            range ? range->addr + range->size - addr : memory_map_gap(vq->dma->map, addr);

        piece = MIN(piece, size);
        if (range ? writing && (range->flags & MEMORY_READONLY)
                  : !virtqueue_bounce_reachable(vq, addr, piece, writing)) {
            return false;
        }
        addr += piece;
        size -= piece;
    }
    return true;
}

uint8_t *virtqueue_bounce_area(VirtQueue *vq, uint64_t addr, uint64_t size, bool writing)
{
    VirtQueueBounce *bounce;
    Shadow *shadow;

    if (vq->rules.packed || !vq->dma->ops || !vq->dma->ops->reachable ||
        addr > UINT64_MAX - (size - 1) || !area_reachable(vq, addr, size, writing)) {
        return NULL;
    }
    bounce = bounce_get(vq);
    if (bounce->count == AREAS) {
        return NULL;
    }
    shadow = &bounce->shadows[bounce->count++];
    *shadow = (Shadow){.addr = addr, .size = size, .bytes = g_malloc0(size)};
    /* A ring that the driver let us only write begins as zeros. */
    dma_read(vq->dma, addr, shadow->bytes, size);
    if (writing) {
        shadow->stored = g_memdup2(shadow->bytes, size);
    }
    return shadow->bytes;
}

void virtqueue_bounce_unmap(VirtQueue *vq)
{
    VirtQueueBounce *bounce = vq->bounce;

    if (!bounce) {
        return;
    }
    for (unsigned i = 0; i < bounce->count; i++) {
        g_free(bounce->shadows[i].bytes);
        g_free(bounce->shadows[i].stored);
    }
    bounce->count = 0;
    if (vq->ops == &bounce_ops) {
        vq->ops = bounce->layout;
    }
}

static Shadow *find_shadow(VirtQueue *vq, const uint8_t *bytes)
{
    for (unsigned i = 0; i < vq->bounce->count; i++) {
        if (vq->bounce->shadows[i].bytes == bytes) {
            return &vq->bounce->shadows[i];
        }
    }
    return NULL;
}

/*
 * Fetches the areas that the driver writes.  It goes on writing meanwhile, so the available index
 * comes first, and by itself: what it stands for is then complete in what is fetched after it.
 */
static bool fetch(VirtQueue *vq)
{
    Shadow *avail = find_shadow(vq, vq->avail);

    if (avail && !dma_read(vq->dma, avail->addr, avail->bytes, HEAD)) {
        return false;
    }
    for (unsigned i = 0; i < vq->bounce->count; i++) {
        Shadow *shadow = &vq->bounce->shadows[i];
        uint64_t done = shadow == avail ? HEAD : 0;

        if (!shadow->stored &&
            !dma_read(vq->dma, shadow->addr + done, shadow->bytes + done, shadow->size - done)) {
            return false;
        }
    }
    return true;
}

/* Stores what changed in [@from, @to) of @shadow; true if anything had. */
static bool store_part(VirtQueue *vq, Shadow *shadow, uint64_t from, uint64_t to)
{
    while (from < to && shadow->bytes[from] == shadow->stored[from]) {
        from++;
    }
    while (to > from && shadow->bytes[to - 1] == shadow->stored[to - 1]) {
        to--;
    }
    if (from == to) {
        return false;
    }
    memcpy(shadow->stored + from, shadow->bytes + from, to - from);
    dma_write(vq->dma, shadow->addr + from, shadow->bytes + from, to - from);
    return true;
}

/* Stores what the layout wrote: used entries first, then the flags and index in front of them. */
static bool store(VirtQueue *vq)
{
    bool changed = false;

    for (unsigned i = 0; i < vq->bounce->count; i++) {
        Shadow *shadow = &vq->bounce->shadows[i];

        if (shadow->stored) {
            changed |= store_part(vq, shadow, HEAD, shadow->size);
            changed |= store_part(vq, shadow, 0, HEAD);
        }
    }
    return changed;
}

void virtqueue_bounce_mapped(VirtQueue *vq)
{
    if (!vq->bounce || !vq->bounce->count) {
        return;
    }
    /* An available ring in RAM would show an index ahead of descriptors fetched before. */
    if (!find_shadow(vq, vq->avail)) {
        uint8_t *avail =
            virtqueue_bounce_area(vq, vq->avail_addr, virtqueue_split_avail_size(vq), false);

        vq->avail = avail ? avail : vq->avail;
    }
    vq->bounce->layout = vq->ops;
    vq->ops = &bounce_ops;
    store(vq);
}

/* --- the ops --- */

/* A look that found nothing may have told the driver to notify from now on; what came before it
 * read that is only seen by looking again. */
static unsigned bounce_pop_batch(VirtQueue *vq, VirtQueueElement **elems, unsigned max)
{
    unsigned n = 0;

    for (unsigned i = 0; i < LOOKS && n == 0 && fetch(vq); i++) {
        n = vq->bounce->layout->pop_batch(vq, elems, max);
        if (!store(vq)) {
            break;
        }
    }
    return n;
}

static unsigned bounce_available(VirtQueue *vq)
{
    unsigned n = 0;

    for (unsigned i = 0; i < LOOKS && n == 0 && fetch(vq); i++) {
        n = vq->bounce->layout->available(vq);
        if (!store(vq)) {
            break;
        }
    }
    return n;
}

static bool bounce_empty(VirtQueue *vq)
{
    return bounce_available(vq) == 0;
}

static unsigned bounce_flush(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count)
{
    unsigned moved = vq->bounce->layout->flush(vq, elems, count);

    store(vq);
    return moved;
}

static bool bounce_enable_notify(VirtQueue *vq)
{
    if (!fetch(vq)) {
        return false;
    }
    vq->bounce->layout->enable_notify(vq);
    store(vq);
    return bounce_available(vq) > 0;
}

static void bounce_disable_notify(VirtQueue *vq)
{
    vq->bounce->layout->disable_notify(vq);
    store(vq);
}

static bool bounce_should_interrupt(VirtQueue *vq)
{
    bool wanted = fetch(vq) && vq->bounce->layout->should_interrupt(vq);

    store(vq);
    return wanted;
}

static const VirtQueueOps bounce_ops = {
    .name = "bounce",
    .pop_batch = bounce_pop_batch,
    .flush = bounce_flush,
    .enable_notify = bounce_enable_notify,
    .disable_notify = bounce_disable_notify,
    .should_interrupt = bounce_should_interrupt,
    .available = bounce_available,
    .empty = bounce_empty,
};

/* --- buffers --- */

static GArray *element_buffers(VirtQueue *vq, VirtQueueElement *elem)
{
    GArray *buffers = g_hash_table_lookup(vq->bounce->buffers, elem);

    if (!buffers) {
        buffers = g_array_new(FALSE, FALSE, sizeof(BounceBuffer));
        g_hash_table_insert(vq->bounce->buffers, elem, buffers);
    }
    return buffers;
}

static size_t bounced_bytes(const VirtQueueElement *elem, const GArray *buffers)
{
    size_t bytes = 0;

    for (guint i = 0; i < buffers->len; i++) {
        bytes += elem->sg[g_array_index(buffers, BounceBuffer, i).sg].iov_len;
    }
    return bytes;
}

const char *virtqueue_bounce_buffer(VirtQueue *vq, VirtQueueElement *elem, uint64_t addr,
                                    uint32_t len, bool writable)
{
    BounceBuffer buffer = {.sg = elem->out_num + elem->in_num};
    GArray *buffers;

    if (!virtqueue_bounce_reachable(vq, addr, len, writable)) {
        return "buffer outside RAM";
    }
    bounce_get(vq);
    buffers = element_buffers(vq, elem);
    if (len > BOUNCE_MAX - MIN(bounced_bytes(elem, buffers), BOUNCE_MAX)) {
        return "more bytes than are copied from memory that is not shared";
    }
    buffer.bytes = g_malloc0(len);
    g_array_append_val(buffers, buffer);
    virtqueue_element_append(elem, buffer.bytes, addr, len, writable);
    if (!writable && !dma_read(vq->dma, addr, buffer.bytes, len)) {
        return "buffer that cannot be read";
    }
    return NULL;
}

/* The first elem->len writable bytes, as far as they were bounced. */
static void element_store(VirtQueue *vq, VirtQueueElement *elem, const GArray *buffers)
{
    uint64_t left = elem->len;
    guint next = 0;

    for (unsigned i = elem->out_num; left && i < (unsigned)elem->out_num + elem->in_num; i++) {
        uint64_t n = MIN(left, elem->sg[i].iov_len);

        while (next < buffers->len && g_array_index(buffers, BounceBuffer, next).sg < i) {
            next++;
        }
        if (next < buffers->len && g_array_index(buffers, BounceBuffer, next).sg == i) {
            dma_write(vq->dma, elem->gpa[i], elem->sg[i].iov_base, n);
        }
        left -= n;
    }
}

void virtqueue_bounce_store(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        GArray *buffers = g_hash_table_lookup(vq->bounce->buffers, elems[i]);

        if (buffers) {
            element_store(vq, elems[i], buffers);
        }
    }
}

bool virtqueue_bounce_holds(const VirtQueue *vq, const VirtQueueElement *elem, unsigned i)
{
    const GArray *buffers = vq->bounce ? g_hash_table_lookup(vq->bounce->buffers, elem) : NULL;

    for (guint n = 0; buffers && n < buffers->len; n++) {
        if (g_array_index(buffers, BounceBuffer, n).sg == i) {
            return true;
        }
    }
    return false;
}

void virtqueue_bounce_drop(VirtQueue *vq, VirtQueueElement *elem)
{
    GArray *buffers = g_hash_table_lookup(vq->bounce->buffers, elem);

    if (!buffers) {
        return;
    }
    for (guint i = 0; i < buffers->len; i++) {
        g_free(g_array_index(buffers, BounceBuffer, i).bytes);
    }
    g_array_unref(buffers);
    g_hash_table_remove(vq->bounce->buffers, elem);
}

void virtqueue_bounce_free(VirtQueue *vq)
{
    if (!vq->bounce) {
        return;
    }
    virtqueue_bounce_unmap(vq);
    g_hash_table_unref(vq->bounce->buffers);
    g_clear_pointer(&vq->bounce, g_free);
}
