/* The driver's side of packed rings: see packed-driver.h. */
#include "tests/lib/packed-driver.h"

#define F_AVAIL (1u << VRING_PACKED_DESC_F_AVAIL)
#define F_USED  (1u << VRING_PACKED_DESC_F_USED)
#define F_WRAP  (1u << VRING_PACKED_EVENT_F_WRAP_CTR)

static void *area(GuestRam *ram, uint64_t *addr, size_t size, size_t align)
{
    *addr = guest_ram_alloc(ram, size, align);
    if (!*addr) {
        g_error("guest RAM is used up");
    }
    return guest_ram_pointer(ram, *addr, size);
}

PackedQueue *packed_queue_new(GuestRam *ram, uint16_t index, uint16_t size)
{
    PackedQueue *queue = g_new0(PackedQueue, 1);

    queue->ram = ram;
    queue->index = index;
    queue->size = size;
    queue->desc = area(ram, &queue->desc_addr, size * sizeof(*queue->desc), 16);
    queue->driver = area(ram, &queue->driver_addr, sizeof(*queue->driver), 4);
    queue->device = area(ram, &queue->device_addr, sizeof(*queue->device), 4);
    queue->wrap = queue->used_wrap = queue->checked_wrap = true;
    queue->slots = g_new0(uint16_t, size);
    return queue;
}

void packed_queue_free(PackedQueue *queue)
{
    if (queue) {
        g_free(queue->slots);
        g_free(queue);
    }
}

static void common_write(VirtioDriver *driver, unsigned width, unsigned reg, uint64_t value)
{
    guest_pci_bar_write(driver->pci, driver->common.bar, width, driver->common.offset + reg, value);
}

static void write_address(VirtioDriver *driver, unsigned reg, uint64_t addr)
{
    common_write(driver, 4, reg, (uint32_t)addr);
    common_write(driver, 4, reg + 4, addr >> 32);
}

void packed_queue_enable(VirtioDriver *driver, const PackedQueue *queue, uint16_t vector)
{
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_SELECT, queue->index);
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_SIZE, queue->size);
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_MSIX, vector);
    write_address(driver, VIRTIO_PCI_COMMON_Q_DESCLO, queue->desc_addr);
    write_address(driver, VIRTIO_PCI_COMMON_Q_AVAILLO, queue->driver_addr);
    write_address(driver, VIRTIO_PCI_COMMON_Q_USEDLO, queue->device_addr);
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_ENABLE, 1);
    driver->notify_addrs[queue->index] =
        driver->notify.offset +
        guest_pci_bar_read(driver->pci, driver->common.bar, 2,
                           driver->common.offset + VIRTIO_PCI_COMMON_Q_NOFF) *
            (uint64_t)driver->notify_multiplier;
}

static void advance(const PackedQueue *queue, uint16_t *slot, bool *wrap, unsigned slots)
{
    *slot = (uint16_t)(*slot + slots);
    while (*slot >= queue->size) {
        *slot = (uint16_t)(*slot - queue->size);
        *wrap = !*wrap;
    }
}

void packed_queue_add(PackedQueue *queue, const RingPart *parts, unsigned count, uint16_t id)
{
    uint16_t first = queue->next, first_flags = 0;

    g_assert_cmpuint(queue->slots[id], ==, 0);
    queue->slots[id] = (uint16_t)count;
    for (unsigned i = 0; i < count; i++) {
        struct vring_packed_desc *desc = &queue->desc[queue->next];
        uint16_t flags = (uint16_t)(parts[i].flags | (i + 1 < count ? VRING_DESC_F_NEXT : 0) |
                                    (queue->wrap ? F_AVAIL : F_USED));

        desc->addr = parts[i].addr;
        desc->len = parts[i].len;
        desc->id = id;
        if (i) {
            desc->flags = flags;
        } else {
            first_flags = flags;
        }
        advance(queue, &queue->next, &queue->wrap, 1);
    }
    __atomic_store_n(&queue->desc[first].flags, first_flags, __ATOMIC_RELEASE);
}

bool packed_queue_wants_notification(PackedQueue *queue)
{
    uint16_t slot = queue->checked;
    bool wrap = queue->checked_wrap;
    uint32_t event;

    queue->checked = queue->next;
    queue->checked_wrap = queue->wrap;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    event = __atomic_load_n((uint32_t *)(void *)queue->device, __ATOMIC_RELAXED);
    if (event >> 16 != VRING_PACKED_EVENT_FLAG_DESC) {
        return event >> 16 == VRING_PACKED_EVENT_FLAG_ENABLE;
    }
    while (slot != queue->next || wrap != queue->wrap) {
        if ((event & 0xffff) == (slot | (wrap ? F_WRAP : 0))) {
            return true;
        }
        advance(queue, &slot, &wrap, 1);
    }
    return false;
}

static bool peek(const PackedQueue *queue, uint16_t *id, uint32_t *len)
{
    const struct vring_packed_desc *desc = &queue->desc[queue->used];
    uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE) & (F_AVAIL | F_USED);

    if (flags != (queue->used_wrap ? F_AVAIL | F_USED : 0)) {
        return false;
    }
    *id = desc->id;
    *len = desc->len;
    g_assert_cmpuint(*id, <, queue->size);
    g_assert_cmpuint(queue->slots[*id], >, 0);
    return true;
}

static void skip(PackedQueue *queue, uint16_t id)
{
    advance(queue, &queue->used, &queue->used_wrap, queue->slots[id]);
    queue->slots[id] = 0;
}

bool packed_queue_take(PackedQueue *queue, uint16_t *id, uint32_t *len)
{
    if (!peek(queue, id, len)) {
        return false;
    }
    skip(queue, *id);
    return true;
}

bool packed_queue_take_in_order(PackedQueue *queue, uint16_t first_id, uint16_t *id, uint32_t *len)
{
    if (!peek(queue, id, len)) {
        return false;
    }
    while (first_id != *id) {
        skip(queue, first_id);
        first_id = (uint16_t)((first_id + 1) % queue->size);
    }
    skip(queue, *id);
    return true;
}

void packed_queue_wait(PackedQueue *queue, uint16_t *id, uint32_t *len)
{
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;

    while (!packed_queue_take(queue, id, len)) {
        if (g_get_monotonic_time() > deadline) {
            g_error("queue %u: nothing was used within %d ms (next %u, used %u, device event %#x)",
                    queue->index, RIG_TIMEOUT_MS, queue->next, queue->used,
                    *(uint32_t *)(void *)queue->device);
        }
        g_usleep(50);
    }
}

void packed_queue_set_event(PackedQueue *queue, unsigned ahead)
{
    uint16_t slot = queue->used;
    bool wrap = queue->used_wrap;

    advance(queue, &slot, &wrap, ahead);
    __atomic_store_n((uint32_t *)(void *)queue->driver,
                     (uint32_t)VRING_PACKED_EVENT_FLAG_DESC << 16 | slot | (wrap ? F_WRAP : 0),
                     __ATOMIC_SEQ_CST);
}
