/*
 * Chains: the unusual half of turning descriptors into an element.  A buffer that is not in the
 * piece of RAM used last, one that straddles pieces, an element that outgrows its array, an
 * indirect table that has to be checked or read piecewise.  The usual half is inline in
 * virtqueue-internal.h.
 *
 * Functions that find fault return why, as the end of a log line, and leave the element to be
 * thrown away; NULL means good.
 */
#include "hw/virtio/virtqueue-internal.h"

static void element_resize(VirtQueueElement *elem, unsigned capacity)
{
    VirtQueueSlot *slot = (VirtQueueSlot *)elem; /* elem is its first member */
    bool was_inline = elem->sg == slot->sg;
    struct iovec *sg = g_new(struct iovec, capacity);
    uint64_t *gpa = g_new(uint64_t, capacity);

    memcpy(sg, elem->sg, elem->sg_capacity * sizeof(*sg));
    memcpy(gpa, elem->gpa, elem->sg_capacity * sizeof(*gpa));
    if (!was_inline) {
        g_free(elem->sg);
        g_free(elem->gpa);
    }
    elem->sg = sg;
    elem->gpa = gpa;
    elem->sg_capacity = (uint16_t)capacity;
}

bool virtqueue_element_grow(VirtQueueElement *elem)
{
    if (elem->sg_capacity == VIRTQUEUE_MAX_SG) {
        return false;
    }
    element_resize(elem, MIN(elem->sg_capacity * 2u, VIRTQUEUE_MAX_SG));
    return true;
}

void virtqueue_element_shrink(VirtQueueElement *elem)
{
    VirtQueueSlot *slot = (VirtQueueSlot *)elem;

    if (elem->sg == slot->sg) {
        return;
    }
    g_free(elem->sg);
    g_free(elem->gpa);
    elem->sg = slot->sg;
    elem->gpa = slot->gpa;
    elem->sg_capacity = VIRTQUEUE_INLINE_SG;
}

/* Makes vq->range the piece of RAM that holds @addr. */
static bool find_range(VirtQueue *vq, uint64_t addr)
{
    const MemoryRange *range = memory_map_find(vq->dma->map, addr);

    if (!range) {
        return false;
    }
    vq->range = (VirtQueueRange){
        .addr = range->addr,
        .size = range->size,
        .host = range->host,
        .readonly = range->flags & MEMORY_READONLY,
    };
    return true;
}

const char *virtqueue_add_buffer_slow(VirtQueue *vq, VirtQueueElement *elem, uint64_t addr,
                                      uint32_t len, bool writable)
{
    if (len == 0) {
        return "buffer of length 0";
    }
    if (!writable && elem->in_num) {
        return "readable buffer after a writable one";
    }
    while (len > 0) {
        uint64_t piece;
        bool in_ram = find_range(vq, addr);

        if (in_ram && writable && vq->range.readonly) {
            return "writable buffer in read-only memory";
        }
        if (elem->out_num + elem->in_num == elem->sg_capacity && !virtqueue_element_grow(elem)) {
            return "too many buffers";
        }
        piece = MIN(len, in_ram ? vq->range.addr + vq->range.size - addr
                                : memory_map_gap(vq->dma->map, addr));
        if (in_ram) {
            uint8_t *host = vq->range.host + (addr - vq->range.addr);

            virtqueue_element_append(elem, host, addr, piece, writable);
        } else {
            const char *why = virtqueue_bounce_buffer(vq, elem, addr, (uint32_t)piece, writable);

            if (why) {
                return why;
            }
        }
        addr += piece;
        len -= (uint32_t)piece;
    }
    return NULL;
}

const char *virtqueue_check_indirect(const VirtQueue *vq, const RingDesc *desc)
{
    if (!vq->rules.indirect) {
        return "indirect table without INDIRECT_DESC";
    }
    if (desc->len == 0 || desc->len % RING_DESC_SIZE) {
        return "indirect table whose length is not a multiple of 16";
    }
    if (desc->len / RING_DESC_SIZE > VIRTQUEUE_MAX_CHAIN) {
        return "indirect table longer than 32768 descriptors";
    }
    return NULL;
}

bool virtqueue_read_table(VirtQueue *vq, uint64_t table, unsigned i, RingDesc *desc)
{
    uint8_t bytes[RING_DESC_SIZE] __attribute__((aligned(8)));
    uint64_t addr = table + (uint64_t)i * RING_DESC_SIZE;
    unsigned have = 0;

    if (virtqueue_bounce_reachable(vq, addr, sizeof(bytes), false)) {
        if (!dma_read(vq->dma, addr, bytes, sizeof(bytes))) {
            return false;
        }
        have = sizeof(bytes);
    }
    while (have < sizeof(bytes)) {
        uint64_t piece;

        if (!find_range(vq, addr + have)) {
            return false;
        }
        piece = MIN(sizeof(bytes) - have, vq->range.addr + vq->range.size - (addr + have));
        memcpy(bytes + have, vq->range.host + (addr + have - vq->range.addr), piece);
        have += (unsigned)piece;
    }
    ring_load_desc(bytes, desc);
    return true;
}
