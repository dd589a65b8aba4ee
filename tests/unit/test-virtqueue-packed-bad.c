/*
 * Packed rings that drivers have filled wrongly: a bad chain costs that chain, what leaves no
 * buffer id to return costs the queue.
 */
#include "virtqueue-packed-rig.h"

#define W VRING_DESC_F_WRITE
#define I VRING_DESC_F_INDIRECT

static const VirtQueueRules plain = {.indirect = true};

static void test_bad_chains(void)
{
    static const struct {
        Part parts[3];
        unsigned count;
        bool no_indirect;
        const char *why;
    } rows[] = {
        {{{RIG_BUFFER, 0, 0}}, 1, false, "zero length"},
        {{{0x5000000, 8, 0}}, 1, false, "outside RAM"},
        {{{RIG_ROM, 8, W}}, 1, false, "writable in ROM"},
        {{{RIG_BUFFER, 8, W}, {RIG_BUFFER, 8, 0}}, 2, false, "readable after writable"},
        {{{UINT64_MAX - 3, 8, 0}}, 1, false, "wraps"},
        {{{RIG_TABLE, 16, I}}, 1, true, "not negotiated"},
        {{{RIG_TABLE, 0, I}}, 1, false, "empty table"},
        {{{RIG_TABLE, 17, I}}, 1, false, "odd table"},
        {{{RIG_TABLE, 32768 * 16 + 16, I}}, 1, false, "too long a table"},
        {{{0x5000000, 16, I}}, 1, false, "table outside RAM"},
        {{{RIG_TABLE, 16, I}}, 1, false, "a table of zeros"},
        {{{RIG_TABLE, 16, I}, {RIG_BUFFER, 8, 0}}, 2, false, "table with a next one"},
        {{{RIG_BUFFER, 8, 0}, {RIG_TABLE, 16, I}}, 2, false, "table behind a buffer"},
        {{{0x5000000, 8, 0}, {RIG_BUFFER, 8, 0}, {RIG_BUFFER, 8, W}}, 3, false, "first of three"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        Packed *p = packed_new(5, rows[i].no_indirect ? (VirtQueueRules){0} : plain);
        VirtQueueElement *elem;

        g_test_message("%s", rows[i].why);
        for (unsigned turn = 0; turn < 4; turn++) {
            packed_offer(p, rows[i].parts, rows[i].count, 9);
            packed_offer_simple(p, 1);
            elem = rig_pop(p->rig);
            g_assert_nonnull(elem);
            g_assert_cmpuint(elem->head, ==, 1);
            packed_assert_used(p, rows[i].count, 9, 0);
            rig_push(p->rig, elem, 5);
            packed_assert_used(p, 1, 1, 5);
        }
        g_assert_cmpuint(p->rig->returned, ==, 4);
        g_assert_cmpuint(p->rig->broken, ==, 0);
        g_assert_cmpuint(virtqueue_stats(p->rig->vq)->bad_chains, ==, 4);
        packed_free(p);
    }
}

static void assert_broken(Packed *p)
{
    VirtQueueElement *elem;

    g_assert_cmpuint(virtqueue_pop_batch(p->rig->vq, &elem, 1), ==, 0);
    g_assert_cmpuint(p->rig->broken, ==, 1);
    g_assert_true(virtqueue_is_broken(p->rig->vq));
    g_assert_cmpuint(virtqueue_available(p->rig->vq), ==, 0);
    g_assert_false(virtqueue_enable_notify(p->rig->vq));
    packed_restart(p);
    packed_offer_simple(p, 1);
    g_assert_nonnull(rig_pop(p->rig));
    packed_free(p);
}

static void test_endless_chain(void)
{
    Packed *p = packed_new(5, plain);

    for (unsigned i = 0; i < 5; i++) {
        *packed_desc(p, i) = (struct vring_packed_desc){
            .addr = RIG_BUFFER, .len = 8, .flags = VRING_DESC_F_NEXT | P_AVAIL};
    }
    assert_broken(p);
}

/* The driver makes descriptors available that it has not been given back. */
static void test_lapped(void)
{
    Packed *p = packed_new(4, plain);
    static const Part two[] = {{RIG_BUFFER, 8, 0}, {RIG_BUFFER, 8, 0}};

    for (unsigned i = 0; i < 4; i++) {
        packed_offer_simple(p, (uint16_t)i);
        g_assert_nonnull(rig_pop(p->rig));
    }
    packed_offer_simple(p, 0);
    assert_broken(p);

    p = packed_new(4, plain);
    packed_offer(p, two, 2, 0);
    g_assert_nonnull(rig_pop(p->rig));
    packed_offer_simple(p, 1);
    g_assert_nonnull(rig_pop(p->rig));
    packed_offer(p, two, 2, 2);
    assert_broken(p);
}

static void test_bad_areas(void)
{
    static const struct {
        uint64_t desc, driver, device;
        const char *word;
    } rows[] = {
        {RIG_DESC + 8, RIG_AVAIL, RIG_USED, "descriptor ring"},
        {RIG_PIECE - 16, RIG_AVAIL, RIG_USED, "descriptor ring"},
        {RIG_ROM, RIG_AVAIL, RIG_USED, "descriptor ring"},
        {RIG_DESC, RIG_AVAIL + 2, RIG_USED, "driver event"},
        {RIG_DESC, 0x5000000, RIG_USED, "driver event"},
        {RIG_DESC, RIG_AVAIL, RIG_USED + 2, "device event"},
        {RIG_DESC, RIG_AVAIL, RIG_ROM, "device event"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        Packed *p = packed_new(4, plain);

        virtqueue_set_addresses(p->rig->vq, rows[i].desc, rows[i].driver, rows[i].device);
        g_assert_null(rig_pop(p->rig));
        g_assert_cmpuint(p->rig->broken, ==, 1);
        g_assert_nonnull(strstr(p->rig->why, rows[i].word));
        packed_free(p);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtqueue/packed/bad/chains", test_bad_chains);
    g_test_add_func("/virtqueue/packed/bad/endless-chain", test_endless_chain);
    g_test_add_func("/virtqueue/packed/bad/lapped", test_lapped);
    g_test_add_func("/virtqueue/packed/bad/areas", test_bad_areas);
    return g_test_run();
}
