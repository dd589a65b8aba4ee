/*
 * Packed rings: each rule of virtio 1.2 section 2.8, and a measurement.  Section numbers in
 * comments are that text's.  What drivers do wrong: test-virtqueue-packed-bad.c.
 */
#include "util/clock.h"
#include "virtqueue-packed-rig.h"

#define W VRING_DESC_F_WRITE
#define I VRING_DESC_F_INDIRECT

static const VirtQueueRules plain = {.indirect = true};
static const VirtQueueRules events = {.indirect = true, .event_idx = true};

/* --- whose a descriptor is (2.8.1) --- */

static void test_flags(void)
{
    static const struct {
        uint16_t flags;
        bool wrap, available;
    } rows[] = {
        {0, true, false},                 /* the ring begins zeroed */
        {P_AVAIL, true, true},            /* made available in the first lap */
        {P_USED, true, false},            /* … left from a lap with the counter 0 */
        {P_AVAIL | P_USED, true, false},  /* used in the first lap */
        {0, false, false},                /* used in the second lap */
        {P_AVAIL, false, false},          /* not yet used of the first lap */
        {P_USED, false, true},            /* made available in the second lap */
        {P_AVAIL | P_USED, false, false}, /* used in the first lap */
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        Packed *p = packed_new(4, plain);
        VirtQueue *vq = p->rig->vq;

        virtqueue_set_indices(vq, rows[i].wrap ? 0x8000 : 0, rows[i].wrap ? 0x8000 : 0);
        *packed_desc(p, 0) = (struct vring_packed_desc){
            .addr = RIG_BUFFER, .len = 8, .id = 3, .flags = rows[i].flags};
        g_assert_cmpint(virtqueue_empty(vq), ==, !rows[i].available);
        g_assert_cmpuint(virtqueue_available(vq), ==, rows[i].available);
        g_assert_cmpint(rig_pop(p->rig) != NULL, ==, rows[i].available);
        packed_free(p);
    }
}

/* --- popping and using --- */

static void test_chain(void)
{
    static const Part parts[] = {{RIG_BUFFER, 10, 0},
                                 {RIG_BUFFER + 0x1000, 20, 0},
                                 {RIG_BUFFER + 0x2000, 30, W},
                                 {RIG_BUFFER + 0x3000, 40, W}};
    Packed *p = packed_new(5, plain);
    VirtQueueElement *elem;

    /* The second chain crosses the end of the ring. */
    for (unsigned lap = 0; lap < 6; lap++) {
        packed_offer(p, parts, 4, (uint16_t)(100 + lap));
        g_assert_cmpuint(virtqueue_available(p->rig->vq), ==, 1);
        elem = rig_pop(p->rig);
        g_assert_nonnull(elem);
        g_assert_cmpuint(elem->head, ==, 100 + lap);
        g_assert_cmpuint(elem->ndescs, ==, 4);
        g_assert_cmpuint(elem->out_num, ==, 2);
        g_assert_cmpuint(elem->in_num, ==, 2);
        g_assert_cmpuint(elem->out_size, ==, 30);
        g_assert_cmpuint(elem->in_size, ==, 70);
        g_assert_true(virtqueue_in_sg(elem)[1].iov_base == rig_at(p->rig, RIG_BUFFER + 0x3000));
        g_assert_cmpuint(virtqueue_inuse(p->rig->vq), ==, 1);
        g_assert_cmpuint(virtqueue_inuse_slots(p->rig->vq), ==, 4);
        packed_assert_none(p);
        rig_push(p->rig, elem, 55);
        packed_assert_used(p, 4, (uint16_t)(100 + lap), 55);
        packed_assert_none(p);
        g_assert_null(rig_pop(p->rig));
        g_assert_cmpuint(virtqueue_inuse_slots(p->rig->vq), ==, 0);
    }
    packed_free(p);
}

/* 2.8.5: used descriptors are written in the order of completion, each over the place where the
 * next used one belongs; WRITE says that something was written. */
static void test_out_of_order(void)
{
    static const Part parts[] = {{RIG_BUFFER, 8, 0}, {RIG_BUFFER, 8, W}, {RIG_BUFFER, 8, W}};
    Packed *p = packed_new(8, plain);
    VirtQueueElement *elems[3];

    packed_offer(p, parts, 3, 0);
    packed_offer(p, parts, 1, 1);
    packed_offer(p, parts, 2, 2);
    g_assert_cmpuint(virtqueue_pop_batch(p->rig->vq, elems, 8), ==, 3);
    virtqueue_fill(p->rig->vq, elems[2], 7, 0);
    virtqueue_fill(p->rig->vq, elems[0], 9, 1);
    virtqueue_flush(p->rig->vq, 2);
    virtqueue_fill(p->rig->vq, elems[1], 0, 0);
    virtqueue_flush(p->rig->vq, 1);
    g_assert_cmphex(packed_desc(p, 0)->flags, ==, P_AVAIL | P_USED | W);
    g_assert_cmphex(packed_desc(p, 2)->flags, ==, P_AVAIL | P_USED | W);
    g_assert_cmphex(packed_desc(p, 5)->flags, ==, P_AVAIL | P_USED);
    packed_assert_used(p, 2, 2, 7);
    packed_assert_used(p, 3, 0, 9);
    packed_assert_used(p, 1, 1, 0);
    packed_free(p);
}

/* Nothing of a batch is visible before its first descriptor. */
static void test_batch(void)
{
    Packed *p = packed_new(7, plain);
    VirtQueueElement *elems[7];

    for (unsigned turn = 0; turn < 20; turn++) {
        unsigned n = 1 + turn % 7;

        for (unsigned i = 0; i < n; i++) {
            packed_offer_simple(p, (uint16_t)i);
        }
        g_assert_cmpuint(virtqueue_available(p->rig->vq), ==, n);
        g_assert_cmpuint(virtqueue_pop_batch(p->rig->vq, elems, 7), ==, n);
        for (unsigned i = 0; i < n; i++) {
            virtqueue_fill(p->rig->vq, elems[i], i + 1, i);
        }
        packed_assert_none(p);
        virtqueue_flush(p->rig->vq, n);
        for (unsigned i = 0; i < n; i++) {
            packed_assert_used(p, 1, (uint16_t)i, i + 1);
        }
        packed_assert_none(p);
    }
    packed_free(p);
}

/* 2.8.7: all of the table in order; only WRITE means anything there. */
static void test_indirect(void)
{
    Packed *p = packed_new(4, plain);
    struct vring_packed_desc *table = rig_at(p->rig, RIG_TABLE);
    Part part = {RIG_TABLE, 3 * 16, I | W};
    VirtQueueElement *elem;

    table[0] = (struct vring_packed_desc){.addr = RIG_BUFFER, .len = 1, .id = 77};
    table[1] = (struct vring_packed_desc){
        .addr = RIG_BUFFER + 64, .len = 2, .flags = VRING_DESC_F_NEXT | I | P_USED};
    table[2] = (struct vring_packed_desc){.addr = RIG_BUFFER + 128, .len = 4, .flags = W};
    packed_offer(p, &part, 1, 3);
    elem = rig_pop(p->rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->head, ==, 3);
    g_assert_cmpuint(elem->ndescs, ==, 1);
    g_assert_cmpuint(elem->out_num, ==, 2);
    g_assert_cmpuint(elem->out_size, ==, 3);
    g_assert_cmpuint(elem->in_size, ==, 4);
    rig_push(p->rig, elem, 4);
    packed_assert_used(p, 1, 3, 4);

    /* A table over the border of two pieces of RAM, one descriptor cut. */
    part.addr = RIG_PIECE - 24;
    memcpy(p->rig->ram[0] + RIG_PIECE - 24, table, 24);
    memcpy(p->rig->ram[1], (uint8_t *)table + 24, 24);
    packed_offer(p, &part, 1, 2);
    elem = rig_pop(p->rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->out_size, ==, 3);
    g_assert_cmpuint(elem->in_size, ==, 4);
    packed_free(p);
}

/* Every size, power of two or not, many laps, random lengths, batches and orders. */
static void test_soak(void)
{
    static const unsigned sizes[] = {1, 2, 3, 5, 8, 13, 64, 100, 256, 1000, 1024};
    GRand *rand = g_rand_new_with_seed(34);

    for (unsigned s = 0; s < G_N_ELEMENTS(sizes); s++) {
        unsigned num = sizes[s], room = num, out = 0;
        Packed *p = packed_new(num, s % 2 ? events : plain);
        g_autofree uint16_t *length = g_new0(uint16_t, num);
        g_autofree VirtQueueElement **hand = g_new0(VirtQueueElement *, num);
        g_autofree uint32_t *seq = g_new0(uint32_t, num);
        uint32_t offered = 0, taken = 0;

        for (unsigned turn = 0; turn < 4000; turn++) {
            uint16_t id;
            uint32_t len;

            while (room && g_rand_boolean(rand)) {
                unsigned n = (unsigned)g_rand_int_range(rand, 1, (gint32)MIN(room, 4) + 1);
                Part parts[4];

                for (id = 0; length[id]; id++) {
                }
                for (unsigned i = 0; i < n; i++) {
                    parts[i] = (Part){RIG_BUFFER + id * 64u, 1 + i, i >= n / 2 ? W : 0};
                }
                length[id] = (uint16_t)n;
                seq[id] = offered++;
                room -= n;
                packed_offer(p, parts, n, id);
            }
            out += virtqueue_pop_batch(p->rig->vq, hand + out, num - out);
            if (out && g_rand_boolean(rand)) {
                unsigned n = (unsigned)g_rand_int_range(rand, 1, (gint32)out + 1);

                for (unsigned i = 0; i < n; i++) {
                    unsigned k = (unsigned)g_rand_int_range(rand, 0, (gint32)(out - i));

                    g_assert_cmpuint(hand[k]->ndescs, ==, length[hand[k]->head]);
                    virtqueue_fill(p->rig->vq, hand[k], seq[hand[k]->head], i);
                    hand[k] = hand[out - i - 1];
                }
                out -= n;
                virtqueue_flush(p->rig->vq, n);
            }
            while (packed_take(p, 0, &id, &len)) {
                g_assert_cmpuint(id, <, num);
                g_assert_cmpuint(length[id], >, 0);
                g_assert_cmpuint(len, ==, seq[id]);
                packed_advance(p, &p->used, &p->used_wrap, length[id]);
                room += length[id];
                length[id] = 0;
                taken++;
            }
        }
        g_assert_cmpuint(taken + out + virtqueue_available(p->rig->vq), ==, offered);
        g_assert_cmpuint(p->rig->broken, ==, 0);
        packed_free(p);
    }
    g_rand_free(rand);
}

/* --- giving back --- */

static void test_unpop(void)
{
    Packed *p = packed_new(6, plain);
    VirtQueue *vq = p->rig->vq;
    VirtQueueElement *elems[6];
    Part bad = {RIG_BUFFER, 0, 0};

    for (unsigned turn = 0; turn < 10; turn++) {
        uint16_t before = virtqueue_last_avail_idx(vq);

        packed_offer_simple(p, 0);
        packed_offer(p, &bad, 1, 1);
        packed_offer_simple(p, 2);
        packed_offer_simple(p, 3);
        g_assert_cmpuint(virtqueue_pop_batch(vq, elems, 3), ==, 3);
        packed_assert_none(p);
        virtqueue_unpop(vq, elems[2]);
        virtqueue_unpop(vq, elems[1]);
        virtqueue_unpop(vq, elems[0]);
        g_assert_cmpuint(virtqueue_inuse(vq), ==, 1); /* the bad one waits */
        g_assert_cmpuint(virtqueue_last_avail_idx(vq), ==, before);
        g_assert_false(virtqueue_empty(vq));
        g_assert_cmpuint(virtqueue_available(vq), ==, 3);
        g_assert_cmpuint(virtqueue_pop_batch(vq, elems, 2), ==, 2);
        g_assert_cmpuint(elems[0]->head, ==, 0);
        g_assert_cmpuint(elems[1]->head, ==, 2);
        g_assert_cmpuint(virtqueue_pop_batch(vq, elems + 2, 4), ==, 1);
        g_assert_cmpuint(elems[2]->head, ==, 3);
        g_assert_cmpuint(virtqueue_stats(vq)->bad_chains, ==, turn + 1);
        for (unsigned i = 0; i < 3; i++) {
            virtqueue_fill(vq, elems[i], i, i);
        }
        virtqueue_flush(vq, 3);
        packed_assert_used(p, 1, 0, 0);
        packed_assert_used(p, 1, 2, 1);
        packed_assert_used(p, 1, 3, 2);
        packed_assert_used(p, 1, 1, 0);
        g_assert_cmpuint(virtqueue_inuse(vq), ==, 0);
    }
    packed_free(p);
}

/* What was given back before the memory map changed lies in the new map when it comes again. */
static void test_unpop_remap(void)
{
    Packed *p = packed_new(4, plain);
    Rig *rig = p->rig;
    uint8_t *moved = aligned_alloc(4096, RIG_PIECE), *old = rig->ram[0];
    Part far = {RIG_PIECE + 64, 64, W};
    VirtQueueElement *elems[2];
    MemoryRange range = {.addr = 0, .size = RIG_PIECE, .host = moved, .fd = -1};
    MemoryMap *map;

    packed_offer_simple(p, 0);
    packed_offer(p, &far, 1, 1);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 2), ==, 2);
    virtqueue_unpop(rig->vq, elems[1]);
    virtqueue_unpop(rig->vq, elems[0]);
    memcpy(moved, old, RIG_PIECE);
    rig->ram[0] = moved;
    map = memory_map_new(&range, 1, NULL); /* the second piece has gone */
    dma_space_set_map(&rig->dma, map);
    memory_map_unref(map);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 2), ==, 1);
    g_assert_true(elems[0]->sg[0].iov_base == moved + RIG_BUFFER);
    packed_assert_used(p, 1, 1, 0);
    free(old);
    packed_free(p);
}

/* --- event suppression (2.8.10) --- */

static void use_one(Packed *p)
{
    packed_offer_simple(p, 0);
    rig_push(p->rig, rig_pop(p->rig), 0);
    packed_assert_used(p, 1, 0, 0);
}

static void test_driver_event_flags(void)
{
    static const struct {
        unsigned flags;
        bool event_idx, interrupt;
    } rows[] = {
        {VRING_PACKED_EVENT_FLAG_ENABLE, false, true},
        {VRING_PACKED_EVENT_FLAG_DISABLE, false, false},
        {VRING_PACKED_EVENT_FLAG_DESC, false, true}, /* not valid without EVENT_IDX */
        {3, false, true},                            /* reserved: better one too many */
        {VRING_PACKED_EVENT_FLAG_ENABLE, true, true},
        {VRING_PACKED_EVENT_FLAG_DISABLE, true, false},
        {VRING_PACKED_EVENT_FLAG_DESC, true, false}, /* slot 3, passed by nothing here */
        {3, true, true},
        {0xfffc | VRING_PACKED_EVENT_FLAG_DISABLE, true, false}, /* reserved bits */
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        Packed *p = packed_new(8, rows[i].event_idx ? events : plain);

        packed_driver_event(p)->off_wrap = 3 | P_WRAP;
        packed_driver_event(p)->flags = (uint16_t)rows[i].flags;
        use_one(p);
        g_assert_cmpint(virtqueue_should_interrupt(p->rig->vq), ==, rows[i].interrupt);
        g_assert_false(virtqueue_should_interrupt(p->rig->vq)); /* nothing new */
        packed_free(p);
    }
}

/* Every descriptor as event, in each lap, against every batch from every place. */
static void test_driver_event_descriptor(void)
{
    enum { NUM = 5 };
    static const Part two[] = {{RIG_BUFFER, 8, 0}, {RIG_BUFFER, 8, 0}};

    for (unsigned start = 0; start < 2 * NUM; start++) {
        for (unsigned chains = 1; chains <= 3; chains++) {
            for (unsigned event = 0; event < 2 * NUM; event++) {
                Packed *p = packed_new(NUM, events);
                VirtQueueElement *elems[3];
                unsigned slots = chains == 3 ? 4 : chains;
                bool hit = false;

                for (unsigned i = 0; i < start; i++) {
                    use_one(p);
                }
                virtqueue_should_interrupt(p->rig->vq);
                for (unsigned i = 0; i < chains; i++) {
                    packed_offer(p, two, i == 2 ? 2 : 1, (uint16_t)i);
                }
                packed_driver_event(p)->flags = VRING_PACKED_EVENT_FLAG_DESC;
                packed_driver_event(p)->off_wrap =
                    (uint16_t)(event % NUM | (event < NUM ? P_WRAP : 0));
                g_assert_cmpuint(virtqueue_pop_batch(p->rig->vq, elems, 3), ==, chains);
                for (unsigned i = 0; i < chains; i++) {
                    virtqueue_fill(p->rig->vq, elems[i], 0, i);
                }
                virtqueue_flush(p->rig->vq, chains);
                for (unsigned i = start; i < start + slots; i++) {
                    hit |= i % (2 * NUM) == event;
                }
                g_assert_cmpint(virtqueue_should_interrupt(p->rig->vq), ==, hit);
                packed_free(p);
            }
        }
    }
}

static void test_driver_event_whole_lap(void)
{
    Packed *p = packed_new(4, events);

    packed_driver_event(p)->flags = VRING_PACKED_EVENT_FLAG_DESC;
    packed_driver_event(p)->off_wrap = 2; /* of the second lap */
    for (unsigned i = 0; i < 4; i++) {
        use_one(p);
    }
    g_assert_true(virtqueue_should_interrupt(p->rig->vq));
    packed_free(p);
}

static void test_device_event_flags(void)
{
    Packed *p = packed_new(4, plain);
    VirtQueue *vq = p->rig->vq;

    g_assert_null(rig_pop(p->rig));
    g_assert_cmpuint(packed_device_event(p)->flags, ==, VRING_PACKED_EVENT_FLAG_ENABLE);
    virtqueue_disable_notify(vq);
    g_assert_cmpuint(packed_device_event(p)->flags, ==, VRING_PACKED_EVENT_FLAG_DISABLE);
    g_assert_false(virtqueue_enable_notify(vq));
    g_assert_cmpuint(packed_device_event(p)->flags, ==, VRING_PACKED_EVENT_FLAG_ENABLE);
    packed_offer_simple(p, 0);
    virtqueue_disable_notify(vq);
    g_assert_true(virtqueue_enable_notify(vq));
    packed_free(p);
}

/* A driver that sees the event notifies for exactly the first chain after what is available. */
static void test_device_event_descriptor(void)
{
    Packed *p = packed_new(5, events);
    VirtQueue *vq = p->rig->vq;

    for (unsigned i = 0; i < 60; i++) {
        unsigned before = i % 4;
        uint16_t old;
        bool old_wrap;

        for (unsigned n = 0; n < before; n++) {
            packed_offer_simple(p, (uint16_t)n);
        }
        virtqueue_disable_notify(vq);
        g_assert_cmpint(virtqueue_enable_notify(vq), ==, before > 0);
        g_assert_cmpuint(packed_device_event(p)->flags, ==, VRING_PACKED_EVENT_FLAG_DESC);
        old = p->next;
        old_wrap = p->wrap;
        packed_offer_simple(p, (uint16_t)before);
        g_assert_true(packed_would_notify(p, old, old_wrap));
        g_assert_cmpuint(virtqueue_available(vq), ==, before + 1);
        for (unsigned n = 0; n <= before; n++) {
            rig_push(p->rig, rig_pop(p->rig), n);
            packed_assert_used(p, 1, (uint16_t)n, n);
        }
        g_assert_null(rig_pop(p->rig));
    }
    packed_free(p);
}

/* Notifications on all the time: a ring found empty has told the driver where to notify. */
static void test_device_event_empty(void)
{
    for (unsigned how = 0; how < 3; how++) {
        Packed *p = packed_new(6, events);
        VirtQueueElement *elem;

        for (unsigned i = 0; i < 100; i++) {
            uint16_t old = p->next;
            bool old_wrap = p->wrap;

            if (how == 0) {
                g_assert_true(virtqueue_empty(p->rig->vq));
            } else if (how == 1) {
                g_assert_cmpuint(virtqueue_available(p->rig->vq), ==, 0);
            } else {
                g_assert_cmpuint(virtqueue_pop_batch(p->rig->vq, &elem, 1), ==, 0);
            }
            packed_offer_simple(p, 0);
            g_assert_true(packed_would_notify(p, old, old_wrap));
            rig_push(p->rig, rig_pop(p->rig), 0);
            packed_assert_used(p, 1, 0, 0);
        }
        packed_free(p);
    }
}

static void test_event_while_unmapped(void)
{
    Packed *p = packed_new(4, plain);

    dma_space_set_enabled(&p->rig->dma, false);
    virtqueue_disable_notify(p->rig->vq);
    packed_offer_simple(p, 0);
    g_assert_null(rig_pop(p->rig));
    dma_space_set_enabled(&p->rig->dma, true);
    g_assert_nonnull(rig_pop(p->rig));
    g_assert_cmpuint(packed_device_event(p)->flags, ==, VRING_PACKED_EVENT_FLAG_DISABLE);
    packed_free(p);
}

/* --- saved and loaded --- */

static void test_indices(void)
{
    Packed *p = packed_new(3, plain);
    VirtQueue *vq = p->rig->vq;
    uint16_t avail, used;

    g_assert_cmphex(virtqueue_last_avail_idx(vq), ==, 0x8000);
    use_one(p);
    use_one(p);
    packed_offer_simple(p, 1);
    packed_offer_simple(p, 2);
    g_assert_nonnull(rig_pop(p->rig));
    virtqueue_disable_notify(vq);
    avail = virtqueue_last_avail_idx(vq);
    used = virtqueue_used_idx(vq);
    g_assert_cmphex(avail, ==, 0);
    g_assert_cmphex(used, ==, 2 | 0x8000);

    /* Another process takes the ring over, notifications on; the popped one counts as new. */
    virtqueue_reset(vq);
    virtqueue_set_rules(vq, &p->rig->rules);
    virtqueue_set_addresses(vq, RIG_DESC, RIG_AVAIL, RIG_USED);
    virtqueue_set_indices(vq, used, used);
    g_assert_cmpuint(virtqueue_available(vq), ==, 2);
    g_assert_cmpuint(packed_device_event(p)->flags, ==, VRING_PACKED_EVENT_FLAG_ENABLE);
    rig_push(p->rig, rig_pop(p->rig), 0);
    g_assert_true(virtqueue_should_interrupt(vq));
    packed_assert_used(p, 1, 1, 0);
    virtqueue_set_indices(vq, 0x7fff, 0xffff); /* a bad stream's: inside the ring, whatever */
    (void)rig_pop(p->rig);
    packed_free(p);
}

static void test_dirty_log(void)
{
    Packed *p = packed_new(512, events);
    uint8_t log[0x200] = {0};
    VirtQueueElement *elem;

    p->rig->dma.dirty_log = log;
    p->rig->dma.dirty_pages = sizeof(log);
    for (unsigned i = 0; i < 300; i++) { /* into the ring's second page */
        packed_offer_simple(p, 0);
        elem = rig_pop(p->rig);
        rig_push(p->rig, elem, 64);
        packed_assert_used(p, 1, 0, 64);
    }
    virtqueue_disable_notify(p->rig->vq);
    for (unsigned page = 0; page < sizeof(log); page++) {
        bool written = page == RIG_DESC >> 12 || page == (RIG_DESC >> 12) + 1 ||
                       page == RIG_USED >> 12 || page == RIG_BUFFER >> 12;

        g_assert_cmpuint(log[page], ==, written);
    }
    p->rig->dma.dirty_log = NULL;
    packed_free(p);
}

/* --- speed --- */

static void test_speed(void)
{
    enum { NUM = 256, BURST = 64, ROUNDS = 20000 };
    Packed *p = packed_new(NUM, events);
    VirtQueueElement *elems[BURST];
    int64_t best = INT64_MAX;

    packed_driver_event(p)->flags = VRING_PACKED_EVENT_FLAG_DISABLE;
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        int64_t spent = 0;

        for (unsigned round = 0; round < ROUNDS; round++) {
            unsigned n;
            int64_t start;

            for (unsigned i = 0; i < BURST; i++) {
                packed_offer_simple(p, (uint16_t)i);
            }
            start = clock_get_ns(CLOCK_HOST);
            n = virtqueue_pop_batch(p->rig->vq, elems, BURST);
            for (unsigned i = 0; i < n; i++) {
                virtqueue_fill(p->rig->vq, elems[i], 64, i);
            }
            virtqueue_flush(p->rig->vq, n);
            virtqueue_should_interrupt(p->rig->vq);
            spent += clock_get_ns(CLOCK_HOST) - start;
        }
        best = MIN(best, spent);
    }
    g_test_message("%.1f million chains/s", 1e3 * BURST * ROUNDS / (double)best);
    packed_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtqueue/packed/flags", test_flags);
    g_test_add_func("/virtqueue/packed/chain", test_chain);
    g_test_add_func("/virtqueue/packed/out-of-order", test_out_of_order);
    g_test_add_func("/virtqueue/packed/batch", test_batch);
    g_test_add_func("/virtqueue/packed/indirect", test_indirect);
    g_test_add_func("/virtqueue/packed/soak", test_soak);
    g_test_add_func("/virtqueue/packed/unpop/over-bad-chain", test_unpop);
    g_test_add_func("/virtqueue/packed/unpop/remap", test_unpop_remap);
    g_test_add_func("/virtqueue/packed/driver-event/flags", test_driver_event_flags);
    g_test_add_func("/virtqueue/packed/driver-event/descriptor", test_driver_event_descriptor);
    g_test_add_func("/virtqueue/packed/driver-event/whole-lap", test_driver_event_whole_lap);
    g_test_add_func("/virtqueue/packed/device-event/flags", test_device_event_flags);
    g_test_add_func("/virtqueue/packed/device-event/descriptor", test_device_event_descriptor);
    g_test_add_func("/virtqueue/packed/device-event/found-empty", test_device_event_empty);
    g_test_add_func("/virtqueue/packed/device-event/while-unreachable", test_event_while_unmapped);
    g_test_add_func("/virtqueue/packed/indices", test_indices);
    g_test_add_func("/virtqueue/packed/dirty-log", test_dirty_log);
    g_test_add_func("/virtqueue/packed/speed", test_speed);
    return g_test_run();
}
