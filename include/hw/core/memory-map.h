/*
 * Guest memory as devices see it.
 *
 * MemoryMap is an immutable sorted array of RAM pieces.  A DmaSpace is one bus master's view:
 * the map in force, whether the device may master the bus at all, and where accesses outside RAM
 * go.  A map is replaced whole, with the space's users drained in between, so that readers take
 * no lock and hold no reference: dma_space_set_map() returns when nobody can touch the old one.
 *
 * Every address and length from the guest is checked here or in the virtqueue, nowhere else.
 */
#ifndef HW_CORE_MEMORY_MAP_H
#define HW_CORE_MEMORY_MAP_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_READONLY (1u << 0)

typedef struct MemoryRange {
    uint64_t addr; /* guest physical */
    uint64_t size; /* bytes, > 0; addr + size does not wrap */
    uint8_t *host;
    int fd;          /* another process can map it from here; -1: private; borrowed */
    uint64_t offset; /* in @fd */
    uint32_t flags;
} MemoryRange;

typedef struct MemoryMap {
    unsigned refs;
    unsigned count;
    MemoryRange ranges[]; /* sorted by addr, not overlapping */
} MemoryMap;

/* Copies and sorts @ranges; NULL with error if two overlap or one wraps. */
MemoryMap *memory_map_new(const MemoryRange *ranges, unsigned count, GError **errp);
MemoryMap *memory_map_ref(MemoryMap *map);
void memory_map_unref(MemoryMap *map);

/* The range that holds @addr, or NULL. */
const MemoryRange *memory_map_find(const MemoryMap *map, uint64_t addr);
/* Bytes from @addr, which no range holds, to the next range; UINT64_MAX when none follows. */
uint64_t memory_map_gap(const MemoryMap *map, uint64_t addr);

typedef struct DmaSpace DmaSpace;

/* What is not RAM: MMIO and MSI targets on `pc`, messages on vfio-user.  May be NULL (then such
 * accesses fail).  Return false if nothing is there. */
typedef struct DmaSpaceOps {
    bool (*read)(void *opaque, uint64_t addr, void *buf, size_t size);
    bool (*write)(void *opaque, uint64_t addr, const void *buf, size_t size);
    /* Whether all of it is memory of the guest that this thread reaches through the two above:
     * then rings and buffers may lie there too.  NULL: what is not RAM is not memory. */
    bool (*reachable)(void *opaque, uint64_t addr, uint64_t size, bool writing);
} DmaSpaceOps;

typedef struct DmaListener {
    /* begin: stop touching guest memory before returning; end: the new map is in force. */
    void (*begin)(struct DmaListener *listener);
    void (*end)(struct DmaListener *listener);
    struct DmaListener *next;
} DmaListener;

struct DmaSpace {
    MemoryMap *map;      /* never NULL */
    uint32_t generation; /* changes with @map or @enabled: cached translations are stale */
    bool enabled;        /* Bus Master Enable */
    const DmaSpaceOps *ops;
    void *opaque;
    DmaListener *listeners;
    uint8_t *dirty_log; /* one byte a 4 KiB page by address >> 12 (below dirty_pages), or NULL */
    uint64_t dirty_pages;
    unsigned hint; /* index of the last range found; any thread, relaxed, only a hint */
};

void dma_space_init(DmaSpace *space, const DmaSpaceOps *ops, void *opaque); /* empty map, enabled */
void dma_space_cleanup(DmaSpace *space);
/* Main thread.  Takes its own reference. */
void dma_space_set_map(DmaSpace *space, MemoryMap *map);
void dma_space_set_enabled(DmaSpace *space, bool enabled);
void dma_space_add_listener(DmaSpace *space, DmaListener *listener);
void dma_space_remove_listener(DmaSpace *space, DmaListener *listener);

/*
 * Host address of guest [@addr, @addr+*@len) in RAM.  Lowers *@len to what is contiguous in
 * one range.  NULL when the address is not RAM, the range is read-only and @writing, or the
 * space is disabled.  Any thread that the listeners stop.
 */
void *dma_translate(DmaSpace *space, uint64_t addr, uint64_t *len, bool writing);

/* Marks the pages of RAM [@addr, @addr+@len) in the dirty log, if one is kept.  dma_write() does
 * it by itself; who writes through dma_translate() calls this.  Any thread. */
void dma_mark_dirty(DmaSpace *space, uint64_t addr, uint64_t len);

/* Whole-range accesses, RAM or not.  False (and nothing more is done) at the first bad byte. */
bool dma_read(DmaSpace *space, uint64_t addr, void *buf, size_t size);
bool dma_write(DmaSpace *space, uint64_t addr, const void *buf, size_t size);

#endif
