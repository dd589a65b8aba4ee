/*
 * I/O dispatch: who answers an access to a port or to memory that is not RAM.
 *
 * A device describes an IoRegion (size and ops); a region may be a container of others at fixed
 * offsets (a BAR with capabilities).  An IoSpace is a bus of them, sorted by address.  Values are
 * little-endian numbers of @size bytes (1, 2, 4, 8).
 *
 * Regions are their owners', who unmap them before they go; a space only points at them.  Main
 * thread.
 */
#ifndef HW_CORE_IO_H
#define HW_CORE_IO_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/event-notifier.h"

typedef struct IoOps {
    uint64_t (*read)(void *opaque, uint64_t offset, unsigned size);
    void (*write)(void *opaque, uint64_t offset, uint64_t value, unsigned size);
    unsigned max_access; /* bytes; wider accesses are split, low half first. 0: 4 */
} IoOps;

/* A write that only wakes somebody: the transport registers it, a host takes it over. */
typedef struct IoEventfd {
    uint64_t offset;
    unsigned size; /* 0: any width */
    bool match;    /* only when the value is @data */
    uint64_t data;
    EventNotifier *notifier;
} IoEventfd;

typedef struct IoRegion IoRegion;
struct IoRegion {
    const char *name;
    uint64_t size;
    const IoOps *ops; /* NULL: reads 0 (container gaps too), writes are ignored */
    void *opaque;
    GArray *children; /* IoChild, sorted by offset; NULL for a leaf */
    GArray *eventfds; /* IoEventfd; offsets within this region */
};
typedef struct IoChild {
    uint64_t offset;
    IoRegion *region;
} IoChild;

void io_region_init(IoRegion *region, const char *name, uint64_t size, const IoOps *ops,
                    void *opaque);
void io_region_add_child(IoRegion *region, uint64_t offset, IoRegion *child);
void io_region_cleanup(IoRegion *region);
uint64_t io_region_read(IoRegion *region, uint64_t offset, unsigned size);
void io_region_write(IoRegion *region, uint64_t offset, uint64_t value, unsigned size);
void io_region_add_eventfd(IoRegion *region, const IoEventfd *eventfd);
void io_region_remove_eventfd(IoRegion *region, const IoEventfd *eventfd);

typedef struct IoSpace {
    const char *name;    /* "io", "memory" */
    uint64_t unassigned; /* what reads of nothing return, all ones as on hardware */
    GArray *mappings;    /* IoMapping, sorted by base */
} IoSpace;
typedef struct IoMapping {
    uint64_t base;
    IoRegion *region;
    int priority; /* of two that overlap, the higher answers */
} IoMapping;

void io_space_init(IoSpace *space, const char *name);
void io_space_cleanup(IoSpace *space);
void io_space_map(IoSpace *space, uint64_t base, IoRegion *region, int priority);
void io_space_unmap(IoSpace *space, IoRegion *region);
/* False when nothing is mapped there (*value is then all ones). */
bool io_space_read(IoSpace *space, uint64_t addr, uint64_t *value, unsigned size);
bool io_space_write(IoSpace *space, uint64_t addr, uint64_t value, unsigned size);

#endif
