/*
 * Split virtqueue, driver's side, and the door to the packed one: see driver-queue.h.
 *
 * Free descriptors form a list through their `next` fields, which the device never writes; the
 * length of each chain in flight is kept in private memory, so that nothing the device does to
 * shared memory changes what we free.  Names and rules: virtio 1.2, section 2.7.
 */
#include "guest/driver-queue.h"
#include "guest/driver-queue-packed.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <linux/virtio_config.h>

#define TABLE_SIZE (DRIVER_QUEUE_INDIRECT_MAX * sizeof(struct vring_desc))

static uint16_t load16(const uint16_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void store16(uint16_t *word, uint16_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Places the three rings and one indirect table a descriptor; false: out of RAM. */
static bool allocate_rings(DriverQueue *queue)
{
    size_t n = queue->size;
    queue->desc_addr = guest_ram_alloc(queue->ram, n * sizeof(struct vring_desc), 16);
    queue->avail_addr = guest_ram_alloc(queue->ram, 6 + 2 * n, 2);
    queue->used_addr = guest_ram_alloc(queue->ram, 6 + n * sizeof(struct vring_used_elem), 4);
    if (!queue->desc_addr || !queue->avail_addr || !queue->used_addr) {
        return false;
    }
    queue->desc = guest_ram_pointer(queue->ram, queue->desc_addr, n * sizeof(struct vring_desc));
    queue->avail = guest_ram_pointer(queue->ram, queue->avail_addr, 6 + 2 * n);
    queue->used =
        guest_ram_pointer(queue->ram, queue->used_addr, 6 + n * sizeof(struct vring_used_elem));
    queue->used_event = &queue->avail->ring[n];
    queue->avail_event = (uint16_t *)&queue->used->ring[n];
    if (!queue->use_indirect) {
        return true;
    }
    queue->indirect_addr = g_new0(uint64_t, n);
    for (size_t i = 0; i < n; i++) {
        queue->indirect_addr[i] = guest_ram_alloc(queue->ram, TABLE_SIZE, 16);
        if (!queue->indirect_addr[i]) {
            return false;
        }
    }
    return true;
}

static DriverQueue *queue_new(GuestRam *ram, uint16_t index, uint16_t size, bool event_idx)
{
    DriverQueue *queue = g_new0(DriverQueue, 1);
    queue->ram = ram;
    queue->index = index;
    queue->size = size;
    queue->event_idx = event_idx;
    queue->chain_length = g_new0(uint16_t, size);
    queue->tokens = g_new0(void *, size);
    queue->free_count = size;
    return queue;
}

static DriverQueue *give_up(DriverQueue *queue, GError **errp)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NO_SPACE,
                "queue %u: guest RAM of %zu bytes is used up", queue->index, queue->ram->size);
    driver_queue_free(queue);
    return NULL;
}

DriverQueue *driver_queue_new(GuestRam *ram, uint16_t index, uint16_t size, bool event_idx,
                              bool use_indirect, GError **errp)
{
    if (size == 0 || size > 32768 || (size & (size - 1)) != 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "queue %u: size %u: a split ring's is a power of two up to 32768", index, size);
        return NULL;
    }
    DriverQueue *queue = queue_new(ram, index, size, event_idx);
    queue->use_indirect = use_indirect;
    if (!allocate_rings(queue)) {
        return give_up(queue, errp);
    }
    for (uint16_t i = 0; i < size; i++) {
        queue->desc[i].next = i + 1;
    }
    return queue;
}

DriverQueue *driver_queue_new_packed(GuestRam *ram, uint16_t index, uint16_t size, bool event_idx,
                                     GError **errp)
{
    if (size == 0 || size > 32768) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "queue %u: size %u: a packed ring's is 1 to 32768", index, size);
        return NULL;
    }
    DriverQueue *queue = queue_new(ram, index, size, event_idx);
    return driver_packed_init(queue) ? queue : give_up(queue, errp);
}

void driver_queue_free(DriverQueue *queue)
{
    if (!queue) {
        return;
    }
    driver_packed_free(queue);
    g_free(queue->chain_length);
    g_free(queue->tokens);
    g_free(queue->indirect_addr);
    g_free(queue);
}

static void fill_descriptor(struct vring_desc *desc, const DriverSegment *segment, bool writable,
                            bool more)
{
    desc->addr = segment->addr;
    desc->len = segment->len;
    desc->flags = (writable ? VRING_DESC_F_WRITE : 0) | (more ? VRING_DESC_F_NEXT : 0);
}

/* A chain of several segments behind one ring descriptor. */
static void fill_indirect(DriverQueue *queue, uint16_t head, const DriverSegment *segments,
                          unsigned out, unsigned total)
{
    struct vring_desc *table =
        guest_ram_pointer(queue->ram, queue->indirect_addr[head], TABLE_SIZE);
    for (unsigned i = 0; i < total; i++) {
        fill_descriptor(&table[i], &segments[i], i >= out, i + 1 < total);
        table[i].next = (uint16_t)(i + 1);
    }
    queue->desc[head].addr = queue->indirect_addr[head];
    queue->desc[head].len = total * (uint32_t)sizeof(*table);
    queue->desc[head].flags = VRING_DESC_F_INDIRECT;
}

int driver_queue_add(DriverQueue *queue, const DriverSegment *segments, unsigned out, unsigned in,
                     void *token)
{
    if (queue->packed) {
        return driver_packed_add(queue, segments, out, in, token);
    }
    unsigned total = out + in;
    bool indirect = queue->use_indirect && total > 1 && total <= DRIVER_QUEUE_INDIRECT_MAX;
    unsigned needed = indirect ? 1 : total;
    if (total == 0 || needed > queue->free_count || queue->broken) {
        return -1;
    }
    uint16_t head = queue->free_head, last = head;
    if (indirect) {
        fill_indirect(queue, head, segments, out, total);
    } else {
        for (unsigned i = 0; i < total; i++) {
            last = i == 0 ? head : queue->desc[last].next;
            fill_descriptor(&queue->desc[last], &segments[i], i >= out, i + 1 < total);
        }
    }
    queue->free_head = queue->desc[last].next;
    queue->free_count -= (uint16_t)needed;
    queue->chain_length[head] = (uint16_t)needed;
    queue->tokens[head] = token;
    store16(&queue->avail->ring[queue->avail_next & (queue->size - 1)], head);
    queue->avail_next++;
    return head;
}

bool driver_queue_publish(DriverQueue *queue)
{
    if (queue->packed) {
        return driver_packed_publish(queue);
    }
    uint16_t old = queue->avail_published, now = queue->avail_next;
    if (old == now) {
        return false;
    }
    /* Descriptors and ring entries before the index: pairs with the device's acquire load. */
    __atomic_store_n(&queue->avail->idx, now, __ATOMIC_RELEASE);
    queue->avail_published = now;
    /* Our index before our look at the device's wish; the device does the reverse: it states its
     * wish, then looks at the index.  One of the two sees the other's store. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (queue->event_idx) {
        return vring_need_event(load16(queue->avail_event), now, old);
    }
    return !(load16(&queue->used->flags) & VRING_USED_F_NO_NOTIFY);
}

bool driver_queue_has_used(const DriverQueue *queue)
{
    if (queue->packed) {
        return driver_packed_has_used(queue);
    }
    /* Acquire: the entries behind this index are complete when we read them. */
    return !queue->broken &&
           __atomic_load_n(&queue->used->idx, __ATOMIC_ACQUIRE) != queue->used_next;
}

/* Gives a chain's descriptors back to the free list. */
static void free_chain(DriverQueue *queue, uint16_t head)
{
    uint16_t last = head;
    for (uint16_t i = 1; i < queue->chain_length[head]; i++) {
        last = queue->desc[last].next;
    }
    queue->desc[last].next = queue->free_head;
    queue->free_head = head;
    queue->free_count += queue->chain_length[head];
    queue->chain_length[head] = 0;
}

void *driver_queue_take(DriverQueue *queue, uint32_t *len)
{
    if (queue->packed) {
        return driver_packed_take(queue, len);
    }
    if (!driver_queue_has_used(queue)) {
        return NULL;
    }
    struct vring_used_elem *entry = &queue->used->ring[queue->used_next & (queue->size - 1)];
    uint32_t id = __atomic_load_n(&entry->id, __ATOMIC_RELAXED);
    *len = __atomic_load_n(&entry->len, __ATOMIC_RELAXED);
    if (id >= queue->size || queue->chain_length[id] == 0) {
        queue->broken = true;
        return NULL;
    }
    queue->used_next++;
    free_chain(queue, (uint16_t)id);
    return queue->tokens[id];
}

void driver_queue_disable_interrupts(DriverQueue *queue)
{
    if (queue->packed) {
        driver_packed_disable_interrupts(queue);
        return;
    }
    if (queue->event_idx) {
        /* Just behind what was taken: the index passes it again only 65,535 entries later. */
        store16(queue->used_event, (uint16_t)(queue->used_next - 1));
    } else {
        store16(&queue->avail->flags, VRING_AVAIL_F_NO_INTERRUPT);
    }
}

bool driver_queue_enable_interrupts(DriverQueue *queue)
{
    return driver_queue_enable_interrupts_after(queue, 0);
}

bool driver_queue_enable_interrupts_after(DriverQueue *queue, uint16_t count)
{
    if (queue->packed) {
        return driver_packed_enable_interrupts(queue, count);
    }
    if (queue->event_idx) {
        store16(queue->used_event, (uint16_t)(queue->used_next + count));
    } else {
        store16(&queue->avail->flags, 0);
    }
    /* Our wish before our look at the used index; pairs with the device's fence between its
     * used index and its look at our wish. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint16_t waiting = __atomic_load_n(&queue->used->idx, __ATOMIC_ACQUIRE) - queue->used_next;
    return !queue->broken && waiting > count;
}
