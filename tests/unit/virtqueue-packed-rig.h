/*
 * The driver's side of a packed ring, on top of virtqueue-rig.h: as little as it can, descriptor
 * by descriptor, so that tests can do it wrong.
 */
#ifndef TESTS_UNIT_VIRTQUEUE_PACKED_RIG_H
#define TESTS_UNIT_VIRTQUEUE_PACKED_RIG_H

#include "virtqueue-rig.h"

#define P_AVAIL (1u << VRING_PACKED_DESC_F_AVAIL)
#define P_USED  (1u << VRING_PACKED_DESC_F_USED)
#define P_WRAP  (1u << VRING_PACKED_EVENT_F_WRAP_CTR)

typedef struct Packed {
    Rig *rig;
    uint16_t next, used; /* slots */
    bool wrap, used_wrap;
} Packed;

static inline struct vring_packed_desc *packed_desc(Packed *p, unsigned slot)
{
    return (struct vring_packed_desc *)rig_at(p->rig, RIG_DESC) + slot;
}

static inline struct vring_packed_desc_event *packed_driver_event(Packed *p)
{
    return rig_at(p->rig, RIG_AVAIL);
}

static inline struct vring_packed_desc_event *packed_device_event(Packed *p)
{
    return rig_at(p->rig, RIG_USED);
}

static inline void packed_restart(Packed *p)
{
    memset(rig_at(p->rig, RIG_DESC), 0, p->rig->num * 16);
    rig_restart(p->rig);
    p->next = p->used = 0;
    p->wrap = p->used_wrap = true;
}

static inline Packed *packed_new(unsigned num, VirtQueueRules rules)
{
    Packed *p = g_new0(Packed, 1);

    rules.packed = true;
    p->rig = rig_new(num, rules);
    packed_restart(p);
    return p;
}

static inline void packed_free(Packed *p)
{
    rig_free(p->rig);
    g_free(p);
}

static inline void packed_advance(Packed *p, uint16_t *slot, bool *wrap, unsigned slots)
{
    *slot = (uint16_t)(*slot + slots);
    if (*slot >= p->rig->num) {
        *slot = (uint16_t)(*slot - p->rig->num);
        *wrap = !*wrap;
    }
}

typedef struct Part {
    uint64_t addr;
    uint32_t len;
    uint16_t flags; /* WRITE, INDIRECT; NEXT is added */
} Part;

/* A chain as 2.8.13's example writes it: the first descriptor's flags last, the id in the last. */
static inline void packed_offer(Packed *p, const Part *parts, unsigned count, uint16_t id)
{
    uint16_t first = p->next, first_flags = 0;

    for (unsigned i = 0; i < count; i++) {
        struct vring_packed_desc *desc = packed_desc(p, p->next);
        uint16_t flags = (uint16_t)(parts[i].flags | (i + 1 < count ? VRING_DESC_F_NEXT : 0) |
                                    (p->wrap ? P_AVAIL : P_USED));

        desc->addr = parts[i].addr;
        desc->len = parts[i].len;
        desc->id = i + 1 < count ? 0xdead : id;
        if (i == 0) {
            first_flags = flags;
        } else {
            desc->flags = flags;
        }
        packed_advance(p, &p->next, &p->wrap, 1);
    }
    __atomic_store_n(&packed_desc(p, first)->flags, first_flags, __ATOMIC_RELEASE);
}

/* A lone writable buffer of 64 bytes. */
static inline void packed_offer_simple(Packed *p, uint16_t id)
{
    Part part = {RIG_BUFFER + id * 64u, 64, VRING_DESC_F_WRITE};

    packed_offer(p, &part, 1, id);
}

/* The used descriptor at the driver's place; false: there is none. */
static inline bool packed_take(Packed *p, unsigned slots, uint16_t *id, uint32_t *len)
{
    const struct vring_packed_desc *desc = packed_desc(p, p->used);
    uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE) & (P_AVAIL | P_USED);

    if (flags != (p->used_wrap ? P_AVAIL | P_USED : 0)) {
        return false;
    }
    *id = desc->id;
    *len = desc->len;
    packed_advance(p, &p->used, &p->used_wrap, slots);
    return true;
}

static inline void packed_assert_used(Packed *p, unsigned slots, uint16_t id, uint32_t len)
{
    uint16_t got_id = 0;
    uint32_t got_len = 0;

    g_assert_true(packed_take(p, slots, &got_id, &got_len));
    g_assert_cmpuint(got_id, ==, id);
    g_assert_cmpuint(got_len, ==, len);
}

static inline void packed_assert_none(Packed *p)
{
    uint16_t id;
    uint32_t len;

    g_assert_false(packed_take(p, 0, &id, &len));
}

/* Whether a driver that has made the slots from @old on available would notify (2.8.10). */
static inline bool packed_would_notify(Packed *p, uint16_t old, bool old_wrap)
{
    const struct vring_packed_desc_event *event = packed_device_event(p);
    unsigned num = p->rig->num;
    unsigned flags = event->flags & 3;

    if (flags != VRING_PACKED_EVENT_FLAG_DESC) {
        return flags != VRING_PACKED_EVENT_FLAG_DISABLE;
    }
    while (old != p->next || old_wrap != p->wrap) {
        if (event->off_wrap == (old | (old_wrap ? P_WRAP : 0))) {
            return true;
        }
        if (++old == num) {
            old = 0;
            old_wrap = !old_wrap;
        }
    }
    return false;
}

#endif
