/*
 * I/O dispatch: from an address to the function of a device.
 *
 * An access enters an IoSpace (ports, or memory that is not RAM), is handed to the mapping of
 * highest priority there, and goes down through containers to a leaf, which sees an offset of its
 * own and a width it can take.  An access that no single mapping, child or width can take whole
 * is cut in parts, low addresses first.  At each level a matching eventfd ends a write: whoever
 * registered it wants to be woken, not called.
 *
 * Addresses, widths and values are the guest's; everything is answered, nothing ends the process.
 */
#include "hw/core/io.h"

#include <string.h>

/* Value of the low @size bytes. */
static uint64_t value_mask(unsigned size)
{
    return size >= 8 ? UINT64_MAX : (UINT64_C(1) << (8 * size)) - 1;
}

/* Width of the first part of a cut access: half, or a byte where there is no half. */
static unsigned part_size(unsigned size)
{
    return size == 2 || size == 4 || size == 8 ? size / 2 : 1;
}

/* --- regions --- */

void io_region_init(IoRegion *region, const char *name, uint64_t size, const IoOps *ops,
                    void *opaque)
{
    *region = (IoRegion){.name = name, .size = size, .ops = ops, .opaque = opaque};
}

void io_region_cleanup(IoRegion *region)
{
    g_clear_pointer(&region->children, g_array_unref);
    g_clear_pointer(&region->eventfds, g_array_unref);
}

void io_region_add_child(IoRegion *region, uint64_t offset, IoRegion *child)
{
    g_assert(offset <= region->size && child->size <= region->size - offset);
    if (!region->children) {
        region->children = g_array_new(FALSE, FALSE, sizeof(IoChild));
    }
    unsigned i = 0;
    while (i < region->children->len &&
           g_array_index(region->children, IoChild, i).offset < offset) {
        i++;
    }
    IoChild item = {offset, child};
    g_array_insert_val(region->children, i, item);
}

/* The child that holds @offset, or NULL. */
static const IoChild *region_child(const IoRegion *region, uint64_t offset)
{
    for (unsigned i = 0; region->children && i < region->children->len; i++) {
        const IoChild *child = &g_array_index(region->children, IoChild, i);
        if (offset >= child->offset && offset - child->offset < child->region->size) {
            return child;
        }
    }
    return NULL;
}

/* Does a child begin inside the access, behind its first byte? */
static bool child_begins_inside(const IoRegion *region, uint64_t offset, unsigned size)
{
    for (unsigned i = 0; region->children && i < region->children->len; i++) {
        uint64_t at = g_array_index(region->children, IoChild, i).offset;
        if (at > offset && at - offset < size) {
            return true;
        }
    }
    return false;
}

typedef enum RegionTarget {
    TARGET_NOTHING, /* reads 0, ignores writes */
    TARGET_OPS,
    TARGET_CHILD,
    TARGET_SPLIT,
} RegionTarget;

/* Who takes an access of @size at @offset as a whole?  @child is set for TARGET_CHILD. */
static RegionTarget region_target(const IoRegion *region, uint64_t offset, unsigned size,
                                  const IoChild **child)
{
    if (offset >= region->size || size == 0) {
        return TARGET_NOTHING;
    }
    bool odd = size != 1 && size != 2 && size != 4 && size != 8;
    if (odd || size > region->size - offset) {
        return TARGET_SPLIT;
    }
    *child = region_child(region, offset);
    if (*child) {
        uint64_t rest = (*child)->region->size - (offset - (*child)->offset);
        return size <= rest ? TARGET_CHILD : TARGET_SPLIT;
    }
    if (child_begins_inside(region, offset, size)) {
        return TARGET_SPLIT;
    }
    if (!region->ops) {
        return TARGET_NOTHING;
    }
    unsigned max = region->ops->max_access ? region->ops->max_access : 4;
    return size <= max ? TARGET_OPS : TARGET_SPLIT;
}

uint64_t io_region_read(IoRegion *region, uint64_t offset, unsigned size)
{
    const IoChild *child = NULL;
    size = MIN(size, 8);
    switch (region_target(region, offset, size, &child)) {
    case TARGET_NOTHING:
        return 0;
    case TARGET_CHILD:
        return io_region_read(child->region, offset - child->offset, size);
    case TARGET_OPS:
        return region->ops->read
                   ? region->ops->read(region->opaque, offset, size) & value_mask(size)
                   : 0;
    case TARGET_SPLIT:
        break;
    }
    uint64_t value = 0;
    unsigned part = part_size(size);
    for (unsigned at = 0; at < size; at += part) {
        /* offset + at may wrap only beyond the region's end, where nothing is. */
        if (at < region->size - offset) {
            value |= io_region_read(region, offset + at, part) << (8 * at);
        }
    }
    return value;
}

/* Wakes whoever waits for exactly this write; false if nobody does. */
static bool region_signal_eventfds(const IoRegion *region, uint64_t offset, uint64_t value,
                                   unsigned size)
{
    bool found = false;
    for (unsigned i = 0; region->eventfds && i < region->eventfds->len; i++) {
        const IoEventfd *e = &g_array_index(region->eventfds, IoEventfd, i);
        if (e->offset == offset && (e->size == 0 || e->size == size) &&
            (!e->match || (e->data & value_mask(size)) == value)) {
            event_notifier_set(e->notifier);
            found = true;
        }
    }
    return found;
}

void io_region_write(IoRegion *region, uint64_t offset, uint64_t value, unsigned size)
{
    const IoChild *child = NULL;
    size = MIN(size, 8);
    value &= value_mask(size);
    if (region_signal_eventfds(region, offset, value, size)) {
        return;
    }
    switch (region_target(region, offset, size, &child)) {
    case TARGET_NOTHING:
        return;
    case TARGET_CHILD:
        io_region_write(child->region, offset - child->offset, value, size);
        return;
    case TARGET_OPS:
        if (region->ops->write) {
            region->ops->write(region->opaque, offset, value, size);
        }
        return;
    case TARGET_SPLIT:
        break;
    }
    unsigned part = part_size(size);
    for (unsigned at = 0; at < size; at += part) {
        if (at < region->size - offset) {
            io_region_write(region, offset + at, value >> (8 * at), part);
        }
    }
}

void io_region_add_eventfd(IoRegion *region, const IoEventfd *eventfd)
{
    if (!region->eventfds) {
        region->eventfds = g_array_new(FALSE, FALSE, sizeof(IoEventfd));
    }
    g_array_append_vals(region->eventfds, eventfd, 1);
}

void io_region_remove_eventfd(IoRegion *region, const IoEventfd *eventfd)
{
    for (unsigned i = 0; region->eventfds && i < region->eventfds->len; i++) {
        const IoEventfd *e = &g_array_index(region->eventfds, IoEventfd, i);
        if (e->offset == eventfd->offset && e->size == eventfd->size &&
            e->match == eventfd->match && e->data == eventfd->data &&
            e->notifier == eventfd->notifier) {
            g_array_remove_index(region->eventfds, i);
            return;
        }
    }
}

/* --- spaces --- */

void io_space_init(IoSpace *space, const char *name)
{
    *space = (IoSpace){
        .name = name,
        .unassigned = UINT64_MAX,
        .mappings = g_array_new(FALSE, FALSE, sizeof(IoMapping)),
    };
}

void io_space_cleanup(IoSpace *space)
{
    g_clear_pointer(&space->mappings, g_array_unref);
}

void io_space_map(IoSpace *space, uint64_t base, IoRegion *region, int priority)
{
    unsigned i = 0;
    while (i < space->mappings->len && g_array_index(space->mappings, IoMapping, i).base <= base) {
        i++;
    }
    IoMapping mapping = {base, region, priority};
    g_array_insert_val(space->mappings, i, mapping);
}

void io_space_unmap(IoSpace *space, IoRegion *region)
{
    for (unsigned i = space->mappings->len; i-- > 0;) {
        if (g_array_index(space->mappings, IoMapping, i).region == region) {
            g_array_remove_index(space->mappings, i);
        }
    }
}

/* The mapping that answers at @addr: highest priority, of equals the one with the lowest base. */
static const IoMapping *space_find(const IoSpace *space, uint64_t addr)
{
    const IoMapping *best = NULL;
    for (unsigned i = 0; i < space->mappings->len; i++) {
        const IoMapping *m = &g_array_index(space->mappings, IoMapping, i);
        if (m->base > addr) {
            break;
        }
        if (addr - m->base < m->region->size && (!best || m->priority > best->priority)) {
            best = m;
        }
    }
    return best;
}

/* Does one mapping (or nothing at all) answer for every byte of the access?  It does, when no
 * mapping begins or ends inside it. */
static bool space_is_uniform(const IoSpace *space, uint64_t addr, unsigned size)
{
    for (unsigned i = 0; i < space->mappings->len; i++) {
        const IoMapping *m = &g_array_index(space->mappings, IoMapping, i);
        if (m->base > addr) {
            return m->base - addr >= size;
        }
        uint64_t into = addr - m->base;
        if (into < m->region->size && m->region->size - into < size) {
            return false;
        }
    }
    return true;
}

bool io_space_read(IoSpace *space, uint64_t addr, uint64_t *value, unsigned size)
{
    size = MIN(size, 8);
    if (size > 1 && !space_is_uniform(space, addr, size)) {
        bool any = false;
        *value = 0;
        for (unsigned i = 0; i < size; i++) {
            uint64_t byte;
            any |= io_space_read(space, addr + i, &byte, 1);
            *value |= byte << (8 * i);
        }
        return any;
    }
    const IoMapping *m = space_find(space, addr);
    *value =
        m ? io_region_read(m->region, addr - m->base, size) : space->unassigned & value_mask(size);
    return m != NULL;
}

bool io_space_write(IoSpace *space, uint64_t addr, uint64_t value, unsigned size)
{
    size = MIN(size, 8);
    if (size > 1 && !space_is_uniform(space, addr, size)) {
        bool any = false;
        for (unsigned i = 0; i < size; i++) {
            any |= io_space_write(space, addr + i, value >> (8 * i) & 0xff, 1);
        }
        return any;
    }
    const IoMapping *m = space_find(space, addr);
    if (m) {
        io_region_write(m->region, addr - m->base, value, size);
    }
    return m != NULL;
}
