/*
 * IN_ORDER over both ring layouts (virtio 1.2, sections 2.7.9 and 2.8.10): chains are shown as
 * used in the order in which they came, a run of them by one entry, whatever the device does.
 */
#include "virtqueue-packed-rig.h"

#define W VRING_DESC_F_WRITE

typedef struct Ring {
    Packed *packed; /* NULL: split */
    Rig *rig;
    uint16_t split_next; /* the table is used in order, too */
} Ring;

static Ring ring_new(bool packed, unsigned num)
{
    VirtQueueRules rules = {.indirect = true, .in_order = true};
    Packed *p = packed ? packed_new(num, rules) : NULL;

    return (Ring){.packed = p, .rig = p ? p->rig : rig_new(num, rules)};
}

static void ring_free(Ring *ring)
{
    if (ring->packed) {
        packed_free(ring->packed);
    } else {
        rig_free(ring->rig);
    }
}

/* A lone buffer; returns the id that its used entry would have. */
static uint16_t ring_offer(Ring *ring, uint32_t len, uint16_t flags)
{
    uint16_t id = ring->split_next;
    uint64_t addr = len ? RIG_BUFFER + id * 64u : RIG_BUFFER;

    ring->split_next = (uint16_t)((id + 1) % ring->rig->num);
    if (ring->packed) {
        packed_offer(ring->packed, &(Part){addr, len, flags}, 1, id);
    } else {
        rig_set_desc(rig_desc(ring->rig, id), addr, len, flags, 0);
        rig_offer(ring->rig, id);
    }
    return id;
}

/* The next used entry stands for @run chains. */
static void ring_assert_used(Ring *ring, unsigned run, uint16_t id, uint32_t len)
{
    if (ring->packed) {
        packed_assert_used(ring->packed, run, id, len);
    } else {
        Rig *rig = ring->rig;
        const struct vring_used_elem *used = &rig_used(rig)->ring[rig->used_seen % rig->num];

        g_assert_cmpuint((uint16_t)(rig_used(rig)->idx - rig->used_seen), >=, run);
        g_assert_cmpuint(used->id, ==, id);
        g_assert_cmpuint(used->len, ==, len);
        rig->used_seen = (uint16_t)(rig->used_seen + run);
    }
}

static void ring_assert_none(Ring *ring)
{
    if (ring->packed) {
        packed_assert_none(ring->packed);
    } else {
        g_assert_cmpuint(rig_used(ring->rig)->idx, ==, ring->rig->used_seen);
    }
}

static void fill_and_flush(Ring *ring, VirtQueueElement **elems, const unsigned *which,
                           const uint32_t *lens, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        virtqueue_fill(ring->rig->vq, elems[which[i]], lens ? lens[i] : 0, i);
    }
    virtqueue_flush(ring->rig->vq, count);
}

/* Frames sent: one entry, naming the last. */
static void test_batch(gconstpointer packed)
{
    Ring ring = ring_new(packed != NULL, 8);
    VirtQueueElement *elems[8];
    static const unsigned all[] = {0, 1, 2, 3, 4};
    uint16_t last = 0;

    for (unsigned turn = 0; turn < 20; turn++) {
        for (unsigned i = 0; i < 5; i++) {
            last = ring_offer(&ring, 60, 0);
        }
        g_assert_cmpuint(virtqueue_pop_batch(ring.rig->vq, elems, 8), ==, 5);
        fill_and_flush(&ring, elems, all, NULL, 5);
        ring_assert_used(&ring, 5, last, 0);
        ring_assert_none(&ring);
        g_assert_true(virtqueue_should_interrupt(ring.rig->vq));
        g_assert_cmpuint(virtqueue_inuse(ring.rig->vq), ==, 0);
    }
    ring_free(&ring);
}

/* A chain without an entry counts as written whole, so one that is not has its own. */
static void test_lengths(gconstpointer packed)
{
    static const unsigned all[] = {0, 1, 2, 3, 4, 5};
    static const uint32_t lens[] = {64, 64, 10, 64, 0, 20};
    Ring ring = ring_new(packed != NULL, 8);
    VirtQueueElement *elems[8];
    uint16_t ids[6];

    for (unsigned turn = 0; turn < 20; turn++) {
        for (unsigned i = 0; i < 6; i++) {
            ids[i] = ring_offer(&ring, 64, W);
        }
        g_assert_cmpuint(virtqueue_pop_batch(ring.rig->vq, elems, 8), ==, 6);
        fill_and_flush(&ring, elems, all, lens, 6);
        ring_assert_used(&ring, 3, ids[2], 10);
        ring_assert_used(&ring, 2, ids[4], 0);
        ring_assert_used(&ring, 1, ids[5], 20);
        ring_assert_none(&ring);
    }
    ring_free(&ring);
}

/* What is finished early waits for what is older. */
static void test_waits(gconstpointer packed)
{
    static const unsigned young[] = {3, 1}, oldest[] = {0}, rest[] = {2};
    Ring ring = ring_new(packed != NULL, 8);
    VirtQueueElement *elems[8];
    uint16_t ids[4];

    for (unsigned turn = 0; turn < 20; turn++) {
        for (unsigned i = 0; i < 4; i++) {
            ids[i] = ring_offer(&ring, 60, 0);
        }
        g_assert_cmpuint(virtqueue_pop_batch(ring.rig->vq, elems, 8), ==, 4);
        fill_and_flush(&ring, elems, young, NULL, 2);
        ring_assert_none(&ring);
        g_assert_false(virtqueue_should_interrupt(ring.rig->vq));
        g_assert_cmpuint(virtqueue_inuse(ring.rig->vq), ==, 4);
        fill_and_flush(&ring, elems, oldest, NULL, 1);
        ring_assert_used(&ring, 2, ids[1], 0);
        ring_assert_none(&ring);
        fill_and_flush(&ring, elems, rest, NULL, 1);
        ring_assert_used(&ring, 2, ids[3], 0);
        ring_assert_none(&ring);
        g_assert_true(virtqueue_should_interrupt(ring.rig->vq));
    }
    ring_free(&ring);
}

/* So does a bad chain, also when the ones before it are given back. */
static void test_bad_chain(gconstpointer packed)
{
    static const unsigned both[] = {0, 1};
    Ring ring = ring_new(packed != NULL, 8);
    VirtQueue *vq = ring.rig->vq;
    VirtQueueElement *elems[8];
    uint16_t ids[4];

    for (unsigned turn = 0; turn < 20; turn++) {
        ids[0] = ring_offer(&ring, 64, W);
        ids[1] = ring_offer(&ring, 0, W);
        ids[2] = ring_offer(&ring, 0, W);
        ids[3] = ring_offer(&ring, 60, 0);
        g_assert_cmpuint(virtqueue_pop_batch(vq, elems, 8), ==, 2);
        ring_assert_none(&ring);
        virtqueue_unpop(vq, elems[1]);
        virtqueue_unpop(vq, elems[0]);
        g_assert_cmpuint(virtqueue_available(vq), ==, 2);
        g_assert_cmpuint(virtqueue_pop_batch(vq, elems, 8), ==, 2);
        fill_and_flush(&ring, elems, both, (uint32_t[]){64, 0}, 2);
        ring_assert_used(&ring, 2, ids[1], 0);
        ring_assert_used(&ring, 1, ids[2], 0);
        ring_assert_used(&ring, 1, ids[3], 0);
        ring_assert_none(&ring);
        g_assert_cmpuint(virtqueue_stats(vq)->bad_chains, ==, 2 * (turn + 1));
    }
    /* Nothing older is out: at once. */
    ids[0] = ring_offer(&ring, 0, 0);
    g_assert_null(rig_pop(ring.rig));
    ring_assert_used(&ring, 1, ids[0], 0);
    ring_free(&ring);
}

static void test_detach(gconstpointer packed)
{
    static const unsigned last[] = {2};
    Ring ring = ring_new(packed != NULL, 8);
    VirtQueueElement *elems[8];

    for (unsigned i = 0; i < 3; i++) {
        ring_offer(&ring, 60, 0);
    }
    g_assert_cmpuint(virtqueue_pop_batch(ring.rig->vq, elems, 8), ==, 3);
    virtqueue_detach(ring.rig->vq, elems[0]);
    virtqueue_detach(ring.rig->vq, elems[1]);
    fill_and_flush(&ring, elems, last, NULL, 1);
    g_assert_cmpuint(virtqueue_inuse(ring.rig->vq), ==, 0);
    ring_free(&ring);
}

/* Random orders: the driver gets every chain once, in order. */
static void test_soak(gconstpointer packed)
{
    enum { NUM = 16 };
    Ring ring = ring_new(packed != NULL, NUM);
    VirtQueue *vq = ring.rig->vq;
    GRand *rand = g_rand_new_with_seed(35);
    VirtQueueElement *hand[NUM];
    uint32_t want_len[NUM];
    unsigned out = 0, room = NUM, queued[NUM], first = 0, count = 0;

    for (unsigned turn = 0; turn < 20000; turn++) {
        while (room && g_rand_boolean(rand)) {
            bool tx = g_rand_boolean(rand);
            uint16_t id = ring_offer(&ring, 64, tx ? 0 : W);

            want_len[id] = tx ? 0 : g_rand_boolean(rand) ? 64 : 7;
            queued[(first + count++) % NUM] = id;
            room--;
        }
        out += virtqueue_pop_batch(vq, hand + out, NUM - out);
        if (out && g_rand_boolean(rand)) {
            unsigned n = (unsigned)g_rand_int_range(rand, 1, (gint32)out + 1);

            for (unsigned i = 0; i < n; i++) {
                unsigned k = (unsigned)g_rand_int_range(rand, 0, (gint32)(out - i));

                virtqueue_fill(vq, hand[k], want_len[hand[k]->head], i);
                hand[k] = hand[out - i - 1];
            }
            out -= n;
            virtqueue_flush(vq, n);
        }
        for (;;) {
            uint16_t id;
            uint32_t len;
            unsigned run = 1;

            if (ring.packed ? !packed_take(ring.packed, 0, &id, &len)
                            : rig_used(ring.rig)->idx == ring.rig->used_seen) {
                break;
            }
            if (!ring.packed) {
                id = (uint16_t)rig_used(ring.rig)->ring[ring.rig->used_seen % NUM].id;
                len = rig_used(ring.rig)->ring[ring.rig->used_seen % NUM].len;
            }
            while (queued[first] != id) {
                /* Skipped, so written whole. */
                g_assert_cmpuint(want_len[queued[first]], !=, 7);
                first = (first + 1) % NUM;
                g_assert_cmpuint(++run, <=, count);
            }
            first = (first + 1) % NUM;
            g_assert_cmpuint(len, ==, want_len[id]);
            count -= run;
            room += run;
            if (ring.packed) {
                packed_advance(ring.packed, &ring.packed->used, &ring.packed->used_wrap, run);
            } else {
                ring.rig->used_seen = (uint16_t)(ring.rig->used_seen + run);
            }
        }
    }
    g_assert_cmpuint(ring.rig->broken, ==, 0);
    g_rand_free(rand);
    ring_free(&ring);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        GTestDataFunc fn;
    } tests[] = {
        {"one-entry-a-batch", test_batch},
        {"lengths-are-not-lost", test_lengths},
        {"younger-waits-for-older", test_waits},
        {"bad-chain-waits", test_bad_chain},
        {"detach", test_detach},
        {"soak", test_soak},
    };

    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        for (unsigned packed = 0; packed < 2; packed++) {
            g_autofree char *path = g_strdup_printf("/virtqueue/in-order/%s/%s",
                                                    packed ? "packed" : "split", tests[i].name);

            g_test_add_data_func(path, packed ? "packed" : NULL, tests[i].fn);
        }
    }
    return g_test_run();
}
