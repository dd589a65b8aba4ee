/*
 * Guest RAM that this process and the emulator both map.
 *
 * The memory is a memfd: the emulator opens it through /proc/self/fd/N as a
 * memory-backend-file,share=on, so that nothing has to be removed from a file system, however
 * the two processes end.  A bump allocator hands out guest-physical addresses for rings,
 * buffers and MSI-X messages; nothing is ever given back one by one.
 */
#ifndef GUEST_RAM_H
#define GUEST_RAM_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct GuestRam {
    uint8_t *host; /* our mapping of guest-physical address 0 */
    size_t size;   /* bytes */
    int fd;        /* memfd, close-on-exec */
    uint64_t next; /* first address not handed out yet */
} GuestRam;

/* @size bytes, a multiple of the page size and at least 2 MiB.  NULL with error. */
GuestRam *guest_ram_new(size_t size, GError **errp);
/* NULL is fine. */
void guest_ram_free(GuestRam *ram);

/* Maps @other's memory, of the same size, where @ram's is mapped now, and frees @other: pointers
 * into @ram stay good and show @other's bytes.  False with error: nothing has changed. */
bool guest_ram_replace(GuestRam *ram, GuestRam *other, GError **errp);

/* A zeroed guest-physical range; @align is a power of two.  0 when the RAM is used up. */
uint64_t guest_ram_alloc(GuestRam *ram, size_t size, size_t align);
/* Forget all allocations: the next one starts at 1 MiB again. */
void guest_ram_reset(GuestRam *ram);
/* Our pointer to [@addr, @addr + @size); NULL when any of it lies outside. */
void *guest_ram_pointer(const GuestRam *ram, uint64_t addr, size_t size);

#endif
