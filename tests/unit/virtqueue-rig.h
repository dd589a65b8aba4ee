/*
 * A virtqueue with a driver beside it, in memory of the test's own: two adjacent pieces of RAM at
 * guest 0 (1 MiB each, apart in our address space), and a read-only piece at 16 MiB.
 *
 * The driver half does as little as it can: tests place descriptors where they like.
 */
#ifndef TESTS_UNIT_VIRTQUEUE_RIG_H
#define TESTS_UNIT_VIRTQUEUE_RIG_H

#include <glib.h>
#include <linux/virtio_ring.h>
#include <string.h>

#include "hw/virtio/virtqueue.h"

#define RIG_PIECE    0x100000u
#define RIG_ROM      0x1000000u
#define RIG_ROM_SIZE 0x10000u
#define RIG_DESC     0x1000u
#define RIG_AVAIL    0x8000u
#define RIG_USED     0x10000u
#define RIG_TABLE    0x20000u /* indirect tables */
#define RIG_BUFFER   0xc0000u

typedef struct Rig {
    DmaSpace dma;
    uint8_t *ram[2], *rom;
    VirtQueue *vq;
    VirtQueueRules rules;
    unsigned num;
    uint16_t avail_idx; /* the driver's */
    uint16_t used_seen;
    unsigned broken, returned;
    const char *why;
} Rig;

static inline void *rig_at(Rig *rig, uint64_t addr)
{
    return rig->ram[addr / RIG_PIECE] + addr % RIG_PIECE;
}

static inline struct vring_desc *rig_desc(Rig *rig, unsigned i)
{
    return (struct vring_desc *)rig_at(rig, RIG_DESC) + i;
}

static inline struct vring_avail *rig_avail(Rig *rig)
{
    return rig_at(rig, RIG_AVAIL);
}

static inline struct vring_used *rig_used(Rig *rig)
{
    return rig_at(rig, RIG_USED);
}

static inline uint16_t *rig_used_event(Rig *rig)
{
    return &rig_avail(rig)->ring[rig->num];
}

static inline uint16_t *rig_avail_event(Rig *rig)
{
    return (uint16_t *)&rig_used(rig)->ring[rig->num];
}

static inline void rig_on_broken(VirtQueue *vq, void *opaque, const char *why)
{
    Rig *rig = opaque;

    (void)vq;
    rig->broken++;
    rig->why = why;
}

static inline void rig_on_returned(VirtQueue *vq, void *opaque)
{
    (void)vq;
    ((Rig *)opaque)->returned++;
}

/* The queue as after its enable; ring memory zeroed. */
static inline void rig_restart(Rig *rig)
{
    memset(rig_at(rig, RIG_AVAIL), 0, 0x2000);
    memset(rig_at(rig, RIG_USED), 0, 0x4000);
    rig->avail_idx = rig->used_seen = 0;
    virtqueue_reset(rig->vq);
    virtqueue_set_num(rig->vq, rig->num);
    virtqueue_set_rules(rig->vq, &rig->rules);
    virtqueue_set_addresses(rig->vq, RIG_DESC, RIG_AVAIL, RIG_USED);
}

static inline MemoryMap *rig_map(Rig *rig)
{
    MemoryRange ranges[] = {
        {.addr = 0, .size = RIG_PIECE, .host = rig->ram[0], .fd = -1},
        {.addr = RIG_PIECE, .size = RIG_PIECE, .host = rig->ram[1], .fd = -1},
        {.addr = RIG_ROM,
         .size = RIG_ROM_SIZE,
         .host = rig->rom,
         .fd = -1,
         .flags = MEMORY_READONLY},
    };
    MemoryMap *map = memory_map_new(ranges, G_N_ELEMENTS(ranges), NULL);

    g_assert_nonnull(map);
    return map;
}

static inline Rig *rig_new(unsigned num, VirtQueueRules rules)
{
    Rig *rig = g_new0(Rig, 1);
    MemoryMap *map;

    rig->ram[0] = aligned_alloc(4096, RIG_PIECE);
    rig->ram[1] = aligned_alloc(4096, RIG_PIECE);
    rig->rom = aligned_alloc(4096, RIG_ROM_SIZE);
    memset(rig->ram[0], 0, RIG_PIECE);
    memset(rig->ram[1], 0, RIG_PIECE);
    memset(rig->rom, 0, RIG_ROM_SIZE);
    dma_space_init(&rig->dma, NULL, NULL);
    map = rig_map(rig);
    dma_space_set_map(&rig->dma, map);
    memory_map_unref(map);
    rig->num = num;
    rig->rules = rules;
    rig->vq = virtqueue_new(0, &rig->dma, rig_on_broken, rig);
    virtqueue_set_returned_hook(rig->vq, rig_on_returned);
    rig_restart(rig);
    return rig;
}

static inline void rig_free(Rig *rig)
{
    virtqueue_free(rig->vq);
    dma_space_cleanup(&rig->dma);
    free(rig->ram[0]);
    free(rig->ram[1]);
    free(rig->rom);
    g_free(rig);
}

static inline void rig_set_desc(struct vring_desc *desc, uint64_t addr, uint32_t len,
                                uint16_t flags, uint16_t next)
{
    *desc = (struct vring_desc){.addr = addr, .len = len, .flags = flags, .next = next};
}

/* Makes @head available: the entry, then the index. */
static inline void rig_offer(Rig *rig, uint16_t head)
{
    rig_avail(rig)->ring[rig->avail_idx % rig->num] = head;
    __atomic_store_n(&rig_avail(rig)->idx, ++rig->avail_idx, __ATOMIC_RELEASE);
}

/* A lone writable buffer of 64 bytes in descriptor @i, made available. */
static inline void rig_offer_simple(Rig *rig, unsigned i)
{
    rig_set_desc(rig_desc(rig, i), RIG_BUFFER + i * 64, 64, VRING_DESC_F_WRITE, 0);
    rig_offer(rig, (uint16_t)i);
}

/* The next used entry; false: there is none. */
static inline bool rig_take_used(Rig *rig, struct vring_used_elem *out)
{
    if (rig_used(rig)->idx == rig->used_seen) {
        return false;
    }
    *out = rig_used(rig)->ring[rig->used_seen++ % rig->num];
    return true;
}

static inline void rig_assert_used(Rig *rig, uint32_t id, uint32_t len)
{
    struct vring_used_elem used = {0};

    g_assert_true(rig_take_used(rig, &used));
    g_assert_cmpuint(used.id, ==, id);
    g_assert_cmpuint(used.len, ==, len);
}

static inline VirtQueueElement *rig_pop(Rig *rig)
{
    VirtQueueElement *elem = NULL;

    return virtqueue_pop_batch(rig->vq, &elem, 1) ? elem : NULL;
}

static inline void rig_push(Rig *rig, VirtQueueElement *elem, uint32_t len)
{
    virtqueue_fill(rig->vq, elem, len, 0);
    virtqueue_flush(rig->vq, 1);
}

#endif
