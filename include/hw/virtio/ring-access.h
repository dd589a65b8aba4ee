/*
 * Every load and store of ring memory, and every ordering between them, is here.
 *
 * The other side of a ring (the driver) runs at the same time and changes ring memory while we
 * look.  So each field is loaded once, as a whole, into a local value, and the compiler may
 * neither tear nor repeat the access: relaxed atomics.  Rings are little-endian (virtio 1.2,
 * section 2.7; legacy rings are guest-endian, which is the same for every guest we serve).
 *
 * Four orderings matter; each is named after what it publishes, and says what pairs with it.
 *
 * A test that compiles the queue code with -DRING_ACCESS_MODEL brings definitions of its own in
 * a file "ring-access-model.h" (a memory model with store buffers, a recorder, …).
 *
 * This file knows no queue state, no addresses and no rules.
 */
#ifndef HW_VIRTIO_RING_ACCESS_H
#define HW_VIRTIO_RING_ACCESS_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* A descriptor in host byte order: struct vring_desc, or struct vring_packed_desc. */
typedef struct RingDesc {
    uint64_t addr;
    uint32_t len;
    union {
        uint16_t flags;
        uint16_t id; /* packed */
    };
    union {
        uint16_t next;
        uint16_t packed_flags;
    };
} RingDesc;

#define RING_DESC_SIZE 16

/* @halves: the two words of a descriptor, little-endian. */
static inline void ring_desc_decode(const uint64_t halves[2], RingDesc *desc)
{
    uint64_t second = le64toh(halves[1]);

    desc->addr = le64toh(halves[0]);
    desc->len = (uint32_t)second;
    desc->flags = (uint16_t)(second >> 32);
    desc->next = (uint16_t)(second >> 48);
}

#ifdef RING_ACCESS_MODEL
#include "ring-access-model.h"
#else

static inline uint16_t ring_load16(const void *p)
{
    return le16toh(__atomic_load_n((const uint16_t *)p, __ATOMIC_RELAXED));
}

static inline void ring_store16(void *p, uint16_t value)
{
    __atomic_store_n((uint16_t *)p, htole16(value), __ATOMIC_RELAXED);
}

static inline void ring_store32(void *p, uint32_t value)
{
    __atomic_store_n((uint32_t *)p, htole32(value), __ATOMIC_RELAXED);
}

static inline uint32_t ring_load32(const void *p)
{
    return le32toh(__atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED));
}

static inline void ring_store64(void *p, uint64_t value)
{
    __atomic_store_n((uint64_t *)p, htole64(value), __ATOMIC_RELAXED);
}

/* A whole descriptor.  Ring tables are aligned (the queue checks it); indirect tables may lie
 * anywhere, and then the halves may be torn, which costs only the driver that did it. */
static inline void ring_load_desc(const void *p, RingDesc *desc)
{
    uint64_t halves[2];

    if (__builtin_expect(((uintptr_t)p & 7) == 0, 1)) {
        halves[0] = __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
        halves[1] = __atomic_load_n((const uint64_t *)p + 1, __ATOMIC_RELAXED);
    } else {
        memcpy(halves, p, sizeof(halves));
        __asm__ volatile("" : "+m"(halves)); /* the copy is made here and only here */
    }
    ring_desc_decode(halves, desc);
}

/*
 * 1. What the driver made available.  The driver fills descriptors and ring entries, then stores
 * the available index (packed: the head's flags) behind a write barrier; this load, and what is
 * loaded after it, pairs with that barrier: whoever sees the index sees the entries.
 */
static inline uint16_t ring_load16_available(const void *p)
{
    return le16toh(__atomic_load_n((const uint16_t *)p, __ATOMIC_ACQUIRE));
}

/* The same for a packed descriptor, taken whole: its flags are in the second word, which is loaded
 * first. */
static inline void ring_load_desc_available(const void *p, RingDesc *desc)
{
    uint64_t halves[2];

    halves[1] = __atomic_load_n((const uint64_t *)p + 1, __ATOMIC_ACQUIRE);
    halves[0] = __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
    ring_desc_decode(halves, desc);
}

/*
 * 2. What the device used.  Data in the buffers and used entries become visible no later than
 * the used index (packed: the first entry's flags).  Pairs with the driver's read barrier
 * between its load of the index and its loads of entries and data.
 */
static inline void ring_store16_used(void *p, uint16_t value)
{
    __atomic_store_n((uint16_t *)p, htole16(value), __ATOMIC_RELEASE);
}

/*
 * 3. "Notify me" before the last look.  The store that turns notifications on (flags, available
 * event) is visible before the available index is loaded once more.  Pairs with the driver's
 * full barrier between storing the available index and loading our flags: of the two, at least
 * one sees the other's store, so a chain is never left without notification and unseen.
 */
static inline void ring_barrier_notify_enabled(void)
{
    __sync_synchronize();
}

/*
 * 4. Used index before the interrupt decision.  The used index is visible before the driver's
 * flags or used event are loaded.  Pairs with the driver's full barrier between enabling
 * interrupts and its last look at the used index: an interrupt is never lost.
 */
static inline void ring_barrier_used_published(void)
{
    __sync_synchronize();
}

#endif /* RING_ACCESS_MODEL */

#endif
