/*
 * Guest memory: the map of RAM and a bus master's view of it.
 *
 * A map never changes; a DmaSpace points to the one in force.  Replacing it (or switching bus
 * mastering) first stops the space's users through their listeners, so an access needs neither
 * lock nor reference: who holds a host pointer across such a change is a listener that did not
 * stop.  Accesses are cut at the borders of ranges; what no range holds goes to the space's ops.
 *
 * Does not know what lies outside RAM, and does not keep the memory: back ends own it.
 */
#include "hw/core/memory-map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"

#define DIRTY_PAGE_SHIFT 12

/* --- maps --- */

static int range_compare(const void *a, const void *b)
{
    const MemoryRange *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Sorted ranges must not wrap, be empty or overlap. */
static gboolean ranges_check(const MemoryRange *ranges, unsigned count, GError **errp)
{
    for (unsigned i = 0; i < count; i++) {
        const MemoryRange *r = &ranges[i];
        if (r->size == 0 || r->addr + r->size < r->addr) {
            return error_set(errp,
                             "Memory range at 0x%" PRIx64 " has size 0x%" PRIx64
                             " (allowed: 1 to 0x%" PRIx64 ")",
                             r->addr, r->size, UINT64_MAX - r->addr);
        }
        if (i && ranges[i - 1].addr + ranges[i - 1].size > r->addr) {
            return error_set(errp,
                             "Memory range at 0x%" PRIx64 " overlaps the one at 0x%" PRIx64
                             " of size 0x%" PRIx64,
                             r->addr, ranges[i - 1].addr, ranges[i - 1].size);
        }
    }
    return TRUE;
}

MemoryMap *memory_map_new(const MemoryRange *ranges, unsigned count, GError **errp)
{
    MemoryMap *map = g_malloc(sizeof(*map) + count * sizeof(MemoryRange));
    map->refs = 1;
    map->count = count;
    if (count) {
        memcpy(map->ranges, ranges, count * sizeof(MemoryRange));
        qsort(map->ranges, count, sizeof(MemoryRange), range_compare);
    }
    if (!ranges_check(map->ranges, count, errp)) {
        g_free(map);
        return NULL;
    }
    return map;
}

MemoryMap *memory_map_ref(MemoryMap *map)
{
    __atomic_add_fetch(&map->refs, 1, __ATOMIC_RELAXED);
    return map;
}

void memory_map_unref(MemoryMap *map)
{
    /* Release what this user did with the map; the last one acquires all of it, then frees. */
    if (map && __atomic_sub_fetch(&map->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        g_free(map);
    }
}

/* Index of the first range that ends beyond @addr; map->count if there is none. */
static unsigned map_search(const MemoryMap *map, uint64_t addr)
{
    unsigned low = 0, high = map->count;
    while (low < high) {
        unsigned mid = low + (high - low) / 2;
        if (addr - map->ranges[mid].addr < map->ranges[mid].size) {
            return mid;
        }
        if (map->ranges[mid].addr > addr) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return low;
}

static bool range_holds(const MemoryRange *range, uint64_t addr)
{
    return addr - range->addr < range->size;
}

const MemoryRange *memory_map_find(const MemoryMap *map, uint64_t addr)
{
    unsigned i = map_search(map, addr);
    return i < map->count && range_holds(&map->ranges[i], addr) ? &map->ranges[i] : NULL;
}

uint64_t memory_map_gap(const MemoryMap *map, uint64_t addr)
{
    unsigned i = map_search(map, addr);
    return i < map->count ? map->ranges[i].addr - addr : UINT64_MAX;
}

/* --- views --- */

void dma_space_init(DmaSpace *space, const DmaSpaceOps *ops, void *opaque)
{
    *space = (DmaSpace){
        .map = memory_map_new(NULL, 0, NULL),
        .enabled = true,
        .ops = ops,
        .opaque = opaque,
    };
}

void dma_space_cleanup(DmaSpace *space)
{
    g_clear_pointer(&space->map, memory_map_unref);
    space->listeners = NULL;
}

/* Both walks allow a listener to remove itself. */
static void listeners_begin(DmaSpace *space)
{
    for (DmaListener *l = space->listeners, *next; l; l = next) {
        next = l->next;
        if (l->begin) {
            l->begin(l);
        }
    }
}

static void listeners_end(DmaSpace *space)
{
    for (DmaListener *l = space->listeners, *next; l; l = next) {
        next = l->next;
        if (l->end) {
            l->end(l);
        }
    }
}

void dma_space_set_map(DmaSpace *space, MemoryMap *map)
{
    MemoryMap *old = space->map;
    memory_map_ref(map);
    listeners_begin(space);
    space->map = map;
    space->generation++;
    listeners_end(space);
    memory_map_unref(old);
}

void dma_space_set_enabled(DmaSpace *space, bool enabled)
{
    if (space->enabled == enabled) {
        return;
    }
    listeners_begin(space);
    space->enabled = enabled;
    space->generation++;
    listeners_end(space);
}

void dma_space_add_listener(DmaSpace *space, DmaListener *listener)
{
    DmaListener **link = &space->listeners;
    while (*link) {
        link = &(*link)->next;
    }
    listener->next = NULL;
    *link = listener;
}

void dma_space_remove_listener(DmaSpace *space, DmaListener *listener)
{
    for (DmaListener **link = &space->listeners; *link; link = &(*link)->next) {
        if (*link == listener) {
            *link = listener->next;
            return;
        }
    }
}

/* --- accesses --- */

/*
 * The range of RAM that holds @addr.  The hint is shared by threads without order: whatever it
 * is, it is checked against the map, so a stale one only costs a search.
 */
static const MemoryRange *space_find(DmaSpace *space, uint64_t addr)
{
    const MemoryMap *map = space->map;
    unsigned hint = __atomic_load_n(&space->hint, __ATOMIC_RELAXED);
    if (hint < map->count && range_holds(&map->ranges[hint], addr)) {
        return &map->ranges[hint];
    }
    const MemoryRange *range = memory_map_find(map, addr);
    if (range) {
        __atomic_store_n(&space->hint, (unsigned)(range - map->ranges), __ATOMIC_RELAXED);
    }
    return range;
}

void *dma_translate(DmaSpace *space, uint64_t addr, uint64_t *len, bool writing)
{
    const MemoryRange *range = space->enabled ? space_find(space, addr) : NULL;
    if (!range || (writing && (range->flags & MEMORY_READONLY))) {
        return NULL;
    }
    uint64_t in_range = addr - range->addr;
    *len = MIN(*len, range->size - in_range);
    return range->host + in_range;
}

void dma_mark_dirty(DmaSpace *space, uint64_t addr, uint64_t len)
{
    if (!space->dirty_log || len == 0) {
        return;
    }
    uint64_t page = addr >> DIRTY_PAGE_SHIFT;
    uint64_t last = (addr + len - 1) >> DIRTY_PAGE_SHIFT;
    for (; page <= last && page < space->dirty_pages; page++) {
        /* Release: who takes the mark away sees what was written before. */
        __atomic_store_n(&space->dirty_log[page], 1, __ATOMIC_RELEASE);
    }
}

/* Is [@addr, @addr+@size) inside 64 bits, and may the space be used? */
static bool access_allowed(const DmaSpace *space, uint64_t addr, size_t size)
{
    return space->enabled && addr <= UINT64_MAX - (size - 1);
}

/* How much of an access of @size at @addr, where no RAM is, stays outside RAM. */
static size_t outside_len(const DmaSpace *space, uint64_t addr, size_t size)
{
    return (size_t)MIN((uint64_t)size, memory_map_gap(space->map, addr));
}

bool dma_read(DmaSpace *space, uint64_t addr, void *buf, size_t size)
{
    if (size && !access_allowed(space, addr, size)) {
        return false;
    }
    for (uint8_t *p = buf; size;) {
        uint64_t len = size;
        const void *host = dma_translate(space, addr, &len, false);
        if (host) {
            memcpy(p, host, len);
        } else {
            len = outside_len(space, addr, size);
            if (!space->ops || !space->ops->read ||
                !space->ops->read(space->opaque, addr, p, len)) {
                return false;
            }
        }
        addr += len;
        p += len;
        size -= len;
    }
    return true;
}

bool dma_write(DmaSpace *space, uint64_t addr, const void *buf, size_t size)
{
    if (size && !access_allowed(space, addr, size)) {
        return false;
    }
    for (const uint8_t *p = buf; size;) {
        uint64_t len = size;
        const MemoryRange *range = space_find(space, addr);
        if (range) {
            void *host = dma_translate(space, addr, &len, true);
            if (!host) {
                return false;
            }
            memcpy(host, p, len);
            dma_mark_dirty(space, addr, len);
        } else {
            len = outside_len(space, addr, size);
            if (!space->ops || !space->ops->write ||
                !space->ops->write(space->opaque, addr, p, len)) {
                return false;
            }
        }
        addr += len;
        p += len;
        size -= len;
    }
    return true;
}
