/*
 * What a driver can do wrong with a split ring: chains that go back used with length 0 while the
 * queue works on, and mistakes that break the queue until reset; then a random driver, one chain
 * in eight bad, against the device half.
 */
#include "virtqueue-rig.h"

#define N VRING_DESC_F_NEXT
#define W VRING_DESC_F_WRITE
#define I VRING_DESC_F_INDIRECT

static const VirtQueueRules plain = {.indirect = true};
static const VirtQueueRules events = {.indirect = true, .event_idx = true};

/* A bad chain waits for those before it, filled as they may be, and is behind what they are flushed
 * with. */
static void test_bad_between_fills(void)
{
    Rig *rig = rig_new(8, plain);
    VirtQueueElement *a, *b;

    rig_offer_simple(rig, 0);
    a = rig_pop(rig);
    virtqueue_fill(rig->vq, a, 11, 0);
    rig_set_desc(rig_desc(rig, 1), RIG_BUFFER, 0, 0, 0);
    rig_offer(rig, 1);
    rig_offer_simple(rig, 2);
    b = rig_pop(rig);
    g_assert_cmpuint(b->head, ==, 2);
    virtqueue_fill(rig->vq, b, 22, 1);
    virtqueue_flush(rig->vq, 2);
    rig_assert_used(rig, 0, 11);
    rig_assert_used(rig, 2, 22);
    rig_assert_used(rig, 1, 0);
    rig_free(rig);
}

static void offer_bad(Rig *rig, uint16_t head)
{
    rig_set_desc(rig_desc(rig, head), RIG_BUFFER, 0, 0, 0);
    rig_offer(rig, head);
}

/* What is used is always the oldest there is: a device that begins behind it (a migration) loses
 * nothing, and returns nothing twice. */
static void test_bad_behind_one_that_is_out(void)
{
    Rig *rig = rig_new(8, plain);
    VirtQueueElement *elems[8];

    rig_offer_simple(rig, 0);
    offer_bad(rig, 1);
    offer_bad(rig, 2);
    rig_offer_simple(rig, 3);
    offer_bad(rig, 4);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 8), ==, 2);
    g_assert_cmpuint(virtqueue_used_idx(rig->vq), ==, 0);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 5);
    g_assert_cmpuint(rig->returned, ==, 0);
    /* Another device goes on from there. */
    virtqueue_set_indices(rig->vq, virtqueue_used_idx(rig->vq), virtqueue_used_idx(rig->vq));
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 8), ==, 2);
    g_assert_cmpuint(elems[0]->head, ==, 0);
    g_assert_cmpuint(elems[1]->head, ==, 3);
    virtqueue_fill(rig->vq, elems[0], 7, 0);
    virtqueue_flush(rig->vq, 1);
    rig_assert_used(rig, 0, 7);
    rig_assert_used(rig, 1, 0);
    rig_assert_used(rig, 2, 0);
    g_assert_true(virtqueue_should_interrupt(rig->vq));
    g_assert_cmpuint(virtqueue_used_idx(rig->vq), ==, 3);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 2);
    virtqueue_set_indices(rig->vq, 3, 3);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 8), ==, 1);
    g_assert_cmpuint(elems[0]->head, ==, 3);
    virtqueue_fill(rig->vq, elems[0], 8, 0);
    virtqueue_flush(rig->vq, 1);
    rig_assert_used(rig, 3, 8);
    rig_assert_used(rig, 4, 0);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 0);
    rig_free(rig);
}

/* Where the one before it is never used, it goes back with the next look. */
static void test_bad_behind_one_that_is_forgotten(void)
{
    Rig *rig = rig_new(8, plain);
    VirtQueueElement *a;

    rig_offer_simple(rig, 0);
    offer_bad(rig, 1);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, &a, 1), ==, 1);
    g_assert_null(rig_pop(rig));
    g_assert_cmpuint(virtqueue_used_idx(rig->vq), ==, 0);
    virtqueue_fill(rig->vq, a, 0, 0);
    dma_space_set_enabled(&rig->dma, false);
    virtqueue_flush(rig->vq, 1);
    g_assert_cmpuint(rig_used(rig)->idx, ==, 0);
    dma_space_set_enabled(&rig->dma, true);
    g_assert_null(rig_pop(rig));
    rig_assert_used(rig, 1, 0);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 0);
    rig_free(rig);
}

/* A chain that was good and is bad when it is popped again does not wait for younger ones. */
static void test_bad_when_popped_again(void)
{
    Rig *rig = rig_new(8, plain);
    VirtQueueElement *elems[2];

    rig_offer_simple(rig, 0);
    offer_bad(rig, 1);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 2), ==, 1);
    virtqueue_unpop(rig->vq, elems[0]);
    rig_set_desc(rig_desc(rig, 0), RIG_BUFFER, 0, 0, 0);
    g_assert_null(rig_pop(rig));
    rig_assert_used(rig, 0, 0);
    rig_assert_used(rig, 1, 0);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 0);
    rig_free(rig);
}

/* --- bad chains --- */

typedef struct BadChain {
    const char *name;
    struct vring_desc direct[4], table[4];
    bool no_indirect;
} BadChain;

static const BadChain bad_chains[] = {
    {"zero-length", {{RIG_BUFFER, 0, 0, 0}}},
    {"zero-length-second", {{RIG_BUFFER, 4, N, 1}, {RIG_BUFFER, 0, W, 0}}},
    {"outside-ram", {{0x40000000, 4, 0, 0}}},
    {"end-outside-ram", {{2 * RIG_PIECE - 4, 8, 0, 0}}},
    {"wraps-address-space", {{UINT64_MAX - 3, 8, 0, 0}}},
    {"writable-in-rom", {{RIG_ROM, 8, W, 0}}},
    {"writable-before-readable", {{RIG_BUFFER, 4, N | W, 1}, {RIG_BUFFER, 4, 0, 0}}},
    {"next-outside-table", {{RIG_BUFFER, 4, N, 4}}},
    {"loop-to-self", {{RIG_BUFFER, 4, N, 0}}},
    {"loop-of-two", {{RIG_BUFFER, 4, N, 1}, {RIG_BUFFER, 4, N, 0}}},
    {"indirect-not-negotiated", {{RIG_TABLE, 16, I, 0}}, {{RIG_BUFFER, 4, 0, 0}}, true},
    {"indirect-empty", {{RIG_TABLE, 0, I, 0}}},
    {"indirect-odd-length", {{RIG_TABLE, 24, I, 0}}, {{RIG_BUFFER, 4, 0, 0}}},
    {"indirect-too-long", {{RIG_TABLE, 16 * 32769, I, 0}}, {{RIG_BUFFER, 4, 0, 0}}},
    {"indirect-outside-ram", {{0x40000000, 16, I, 0}}},
    {"indirect-end-outside-ram", {{2 * RIG_PIECE - 16, 32, I, 0}}},
    {"indirect-with-next", {{RIG_TABLE, 16, I | N, 1}}, {{RIG_BUFFER, 4, 0, 0}}},
    {"indirect-nested", {{RIG_TABLE, 16, I, 0}}, {{RIG_TABLE, 16, I, 0}}},
    {"indirect-next-outside", {{RIG_TABLE, 32, I, 0}}, {{RIG_BUFFER, 4, N, 2}}},
    {"indirect-loop", {{RIG_TABLE, 32, I, 0}}, {{RIG_BUFFER, 4, N, 1}, {RIG_BUFFER, 4, N, 0}}},
    {"indirect-zero-length", {{RIG_TABLE, 16, I, 0}}, {{RIG_BUFFER, 0, 0, 0}}},
    {"indirect-order", {{RIG_BUFFER, 4, W | N, 1}, {RIG_TABLE, 16, I, 0}}, {{RIG_BUFFER, 4, 0, 0}}},
};

static void test_bad_chain(gconstpointer data)
{
    const BadChain *bad = data;
    VirtQueueRules rules = {.indirect = !bad->no_indirect};
    Rig *rig = rig_new(4, rules);
    struct vring_desc good = {RIG_BUFFER + 512, 8, W, 0};
    VirtQueueElement *elem;

    /* The end of RAM holds a descriptor that leads on, so that the table's reader gets there. */
    rig_set_desc(rig_at(rig, 2 * RIG_PIECE - 16), RIG_BUFFER, 4, N, 1);
    memcpy(rig_desc(rig, 0), bad->direct, sizeof(bad->direct));
    memcpy(rig_at(rig, RIG_TABLE), bad->table, sizeof(bad->table));
    *rig_desc(rig, 3) = good;
    rig_offer(rig, 0);
    rig_offer(rig, 3);
    elem = rig_pop(rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->head, ==, 3);
    g_assert_cmpuint(rig->returned, ==, 1);
    g_assert_cmpuint(rig->broken, ==, 0);
    g_assert_cmpuint(virtqueue_stats(rig->vq)->bad_chains, ==, 1);
    rig_assert_used(rig, 0, 0);
    rig_push(rig, elem, 8);
    rig_assert_used(rig, 3, 8);
    /* Alone it asks for an interrupt too. */
    virtqueue_should_interrupt(rig->vq);
    memcpy(rig_desc(rig, 0), bad->direct, sizeof(bad->direct));
    rig_offer(rig, 0);
    g_assert_null(rig_pop(rig));
    g_assert_cmpuint(rig->returned, ==, 2);
    g_assert_true(virtqueue_should_interrupt(rig->vq));
    rig_free(rig);
}

/* --- what breaks a queue --- */

static void break_index(Rig *rig)
{
    rig_avail(rig)->idx = (uint16_t)(rig->num + 1);
}

static void break_index_back(Rig *rig)
{
    rig_avail(rig)->idx = UINT16_MAX;
}

static void break_head(Rig *rig)
{
    rig_offer(rig, (uint16_t)rig->num);
}

static void break_desc_address(Rig *rig)
{
    virtqueue_set_addresses(rig->vq, 0x40000000, RIG_AVAIL, RIG_USED);
}

static void break_avail_address(Rig *rig)
{
    virtqueue_set_addresses(rig->vq, RIG_DESC, 2 * RIG_PIECE - 4, RIG_USED);
}

static void break_used_in_rom(Rig *rig)
{
    virtqueue_set_addresses(rig->vq, RIG_DESC, RIG_AVAIL, RIG_ROM);
}

static void break_alignment(Rig *rig)
{
    virtqueue_set_addresses(rig->vq, RIG_DESC + 8, RIG_AVAIL, RIG_USED);
}

static void break_wrapping_address(Rig *rig)
{
    virtqueue_set_addresses(rig->vq, RIG_DESC, RIG_AVAIL, UINT64_MAX - 3);
}

static const struct {
    const char *name;
    void (*act)(Rig *rig);
} breakages[] = {
    {"index-ahead", break_index},
    {"index-behind", break_index_back},
    {"head-outside", break_head},
    {"desc-outside-ram", break_desc_address},
    {"avail-outside-ram", break_avail_address},
    {"used-in-rom", break_used_in_rom},
    {"misaligned", break_alignment},
    {"used-wraps", break_wrapping_address},
};

static void test_breakage(gconstpointer data)
{
    void (*act)(Rig * rig) = *(void (*const *)(Rig *))data;
    Rig *rig = rig_new(4, events);

    act(rig);
    g_assert_null(rig_pop(rig));
    g_assert_cmpuint(rig->broken, ==, 1);
    g_assert_true(virtqueue_is_broken(rig->vq));
    g_assert_cmpuint(virtqueue_available(rig->vq), ==, 0);
    g_assert_false(virtqueue_enable_notify(rig->vq));
    g_assert_false(virtqueue_should_interrupt(rig->vq));
    virtqueue_disable_notify(rig->vq);
    g_assert_null(rig_pop(rig));
    g_assert_cmpuint(rig->broken, ==, 1);
    rig_restart(rig);
    rig_offer_simple(rig, 0);
    g_assert_nonnull(rig_pop(rig));
    rig_free(rig);
}

static void test_too_many_in_flight(void)
{
    Rig *rig = rig_new(4, plain);
    VirtQueueElement *elems[8];

    for (unsigned i = 0; i < 4; i++) {
        rig_offer_simple(rig, i);
    }
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 8), ==, 4);
    rig_offer_simple(rig, 0); /* not used yet */
    g_assert_null(rig_pop(rig));
    g_assert_cmpuint(rig->broken, ==, 1);
    virtqueue_fill(rig->vq, elems[0], 0, 0);
    virtqueue_flush(rig->vq, 1);
    g_assert_cmpuint(rig_used(rig)->idx, ==, 0);
    rig_free(rig);
}

/*
 * A random driver against the device half: chains of random shape (one in eight bad), random
 * batches, unpops and out-of-order use.  Every head comes back once, with the length it was given.
 */
typedef struct Posted {
    bool out, bad;
    unsigned size;
} Posted;

static unsigned post_random(Rig *rig, GRand *rand, unsigned head, Posted *posted)
{
    struct vring_desc *table = rig_at(rig, RIG_TABLE + head * 0x100);
    unsigned count = (unsigned)g_rand_int_range(rand, 1, 12);
    unsigned readable = (unsigned)g_rand_int_range(rand, 0, (int)count + 1);
    bool indirect = count > 1 || g_rand_boolean(rand);
    struct vring_desc *first = indirect ? table : rig_desc(rig, head);

    *posted = (Posted){.out = true, .bad = g_rand_int_range(rand, 0, 8) == 0};
    for (unsigned i = 0; i < count; i++) {
        uint32_t len = (uint32_t)g_rand_int_range(rand, 1, 5000);
        uint64_t addr = (uint64_t)g_rand_int_range(rand, RIG_BUFFER, 2 * RIG_PIECE - 5000);

        posted->size += len;
        rig_set_desc(&first[i], addr, len,
                     (uint16_t)((i + 1 < count ? N : 0) | (i >= readable ? W : 0)),
                     (uint16_t)(i + 1));
    }
    if (posted->bad) {
        first[count - 1].len = 0;
    }
    if (indirect) {
        rig_set_desc(rig_desc(rig, head), RIG_TABLE + head * 0x100, count * 16, I, 0);
    }
    rig_offer(rig, (uint16_t)head);
    return 1;
}

static void random_collect(Rig *rig, Posted *posted, const uint32_t *expected, unsigned *done)
{
    struct vring_used_elem used;

    while (rig_take_used(rig, &used)) {
        g_assert_cmpuint(used.id, <, rig->num);
        g_assert_true(posted[used.id].out);
        g_assert_cmpuint(used.len, ==, posted[used.id].bad ? 0 : expected[used.id]);
        posted[used.id].out = false;
        ++*done;
    }
}

static void random_run(unsigned num, VirtQueueRules rules, uint32_t seed)
{
    Rig *rig = rig_new(num, rules);
    GRand *rand = g_rand_new_with_seed(seed);
    g_autofree Posted *posted = g_new0(Posted, num);
    g_autofree uint32_t *expected = g_new0(uint32_t, num);
    g_autofree VirtQueueElement **held = g_new0(VirtQueueElement *, num);
    unsigned nheld = 0, sent = 0, done = 0;

    virtqueue_set_indices(rig->vq, (uint16_t)seed, (uint16_t)seed);
    rig->avail_idx = rig->used_seen = (uint16_t)seed;
    rig_avail(rig)->idx = rig_used(rig)->idx = (uint16_t)seed;
    while (done < 30000) {
        unsigned head = (unsigned)g_rand_int_range(rand, 0, (int)num);
        unsigned n;

        if (!posted[head].out && sent < 30000) {
            sent += post_random(rig, rand, head, &posted[head]);
        }
        n = virtqueue_pop_batch(rig->vq, held + nheld, (unsigned)g_rand_int_range(rand, 0, 4));
        for (unsigned i = 0; i < n; i++) {
            g_assert_false(posted[held[nheld + i]->head].bad);
            g_assert_cmpuint(held[nheld + i]->out_size + held[nheld + i]->in_size, ==,
                             posted[held[nheld + i]->head].size);
        }
        nheld += n;
        while (n > 0 && g_rand_int_range(rand, 0, 4) == 0) {
            virtqueue_unpop(rig->vq, held[--nheld]);
            n--;
        }
        n = 0;
        while (nheld > 0 && (g_rand_boolean(rand) || sent == 30000)) {
            unsigned pick = (unsigned)g_rand_int_range(rand, 0, (int)nheld);

            expected[held[pick]->head] = g_rand_int(rand);
            virtqueue_fill(rig->vq, held[pick], expected[held[pick]->head], n++);
            held[pick] = held[--nheld];
        }
        virtqueue_flush(rig->vq, n);
        random_collect(rig, posted, expected, &done);
    }
    g_assert_cmpuint(rig->broken, ==, 0);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 0);
    g_rand_free(rand);
    rig_free(rig);
}

static void test_random(void)
{
    for (uint32_t seed = 65000; seed < 65008; seed++) {
        random_run(1u << (seed % 5 + 1), seed % 2 ? events : plain, seed);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtqueue/split/bad/between-fills", test_bad_between_fills);
    g_test_add_func("/virtqueue/split/bad/behind-one-that-is-out", test_bad_behind_one_that_is_out);
    g_test_add_func("/virtqueue/split/bad/behind-one-that-is-forgotten",
                    test_bad_behind_one_that_is_forgotten);
    g_test_add_func("/virtqueue/split/bad/when-popped-again", test_bad_when_popped_again);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad_chains); i++) {
        g_autofree char *path = g_strdup_printf("/virtqueue/split/bad/%s", bad_chains[i].name);

        g_test_add_data_func(path, &bad_chains[i], test_bad_chain);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(breakages); i++) {
        g_autofree char *path = g_strdup_printf("/virtqueue/split/break/%s", breakages[i].name);

        g_test_add_data_func(path, &breakages[i].act, test_breakage);
    }
    g_test_add_func("/virtqueue/split/break/too-many-in-flight", test_too_many_in_flight);
    g_test_add_func("/virtqueue/split/random-driver", test_random);
    return g_test_run();
}
