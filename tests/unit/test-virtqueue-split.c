/*
 * Split rings: each rule of virtio 1.2 section 2.7 and of the design, and a measurement.  What
 * drivers do wrong: test-virtqueue-bad.c.
 */
#include "util/clock.h"
#include "virtqueue-rig.h"

#define N VRING_DESC_F_NEXT
#define W VRING_DESC_F_WRITE
#define I VRING_DESC_F_INDIRECT

static const VirtQueueRules plain = {.indirect = true};
static const VirtQueueRules events = {.indirect = true, .event_idx = true};

/* --- popping --- */

static void test_pop_chain(void)
{
    Rig *rig = rig_new(8, plain);
    VirtQueueElement *elem;

    g_assert_null(rig_pop(rig));
    rig_set_desc(rig_desc(rig, 3), RIG_BUFFER, 10, N, 5);
    rig_set_desc(rig_desc(rig, 5), RIG_BUFFER + 0x1000, 20, N, 0);
    rig_set_desc(rig_desc(rig, 0), RIG_BUFFER + 0x2000, 30, N | W, 7);
    rig_set_desc(rig_desc(rig, 7), RIG_BUFFER + 0x3000, 40, W, 3);
    rig_offer(rig, 3);
    elem = rig_pop(rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->head, ==, 3);
    g_assert_cmpuint(elem->out_num, ==, 2);
    g_assert_cmpuint(elem->in_num, ==, 2);
    g_assert_cmpuint(elem->out_size, ==, 30);
    g_assert_cmpuint(elem->in_size, ==, 70);
    g_assert_true(virtqueue_out_sg(elem)[1].iov_base == rig_at(rig, RIG_BUFFER + 0x1000));
    g_assert_true(virtqueue_in_sg(elem)[1].iov_base == rig_at(rig, RIG_BUFFER + 0x3000));
    g_assert_cmpuint(elem->gpa[2], ==, RIG_BUFFER + 0x2000);
    g_assert_null(elem->owner_data);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 1);
    rig_push(rig, elem, 33);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 0);
    rig_assert_used(rig, 3, 33);
    g_assert_null(rig_pop(rig));
    rig_free(rig);
}

static void test_pop_batch(void)
{
    Rig *rig = rig_new(8, plain);
    VirtQueueElement *elems[8];

    for (unsigned i = 0; i < 8; i++) {
        rig_offer_simple(rig, i);
    }
    g_assert_cmpuint(virtqueue_available(rig->vq), ==, 8);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 3), ==, 3);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems + 3, 8), ==, 5);
    g_assert_true(virtqueue_empty(rig->vq));
    for (unsigned i = 0; i < 8; i++) {
        g_assert_cmpuint(elems[i]->head, ==, i);
        virtqueue_fill(rig->vq, elems[7 - i], 10 + i, i);
        g_assert_cmpuint(rig_used(rig)->idx, ==, 0);
    }
    virtqueue_flush(rig->vq, 8);
    for (unsigned i = 0; i < 8; i++) {
        rig_assert_used(rig, 7 - i, 10 + i);
    }
    g_assert_cmpuint(virtqueue_stats(rig->vq)->used_flushes, ==, 1);
    rig_free(rig);
}

static void test_indirect(void)
{
    Rig *rig = rig_new(8, plain);
    struct vring_desc *table = rig_at(rig, RIG_TABLE);
    VirtQueueElement *elem;

    /* A table alone; its WRITE flag means nothing (2.7.5.3.2). */
    rig_set_desc(&table[0], RIG_BUFFER, 1, N, 2);
    rig_set_desc(&table[2], RIG_BUFFER + 64, 2, W, 0);
    rig_set_desc(rig_desc(rig, 1), RIG_TABLE, 3 * 16, I | W, 0);
    rig_offer(rig, 1);
    elem = rig_pop(rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->out_size, ==, 1);
    g_assert_cmpuint(elem->in_size, ==, 2);
    rig_push(rig, elem, 2);
    rig_assert_used(rig, 1, 2);

    /* A table behind buffers, and not aligned. */
    memmove((uint8_t *)table + 8, table, 48);
    rig_set_desc(rig_desc(rig, 2), RIG_BUFFER, 5, N, 3);
    rig_set_desc(rig_desc(rig, 3), RIG_TABLE + 8, 3 * 16, I, 0);
    rig_offer(rig, 2);
    elem = rig_pop(rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->out_num, ==, 2);
    g_assert_cmpuint(elem->out_size, ==, 6);
    rig_push(rig, elem, 0);
    rig_free(rig);
}

static void test_longest_chain(void)
{
    Rig *rig = rig_new(4, plain);
    struct vring_desc *table = rig_at(rig, RIG_PIECE); /* the second piece: 512 KiB of table */
    VirtQueueElement *elem;
    uint16_t capacity;

    for (unsigned i = 0; i < VIRTQUEUE_MAX_CHAIN; i++) {
        rig_set_desc(&table[i], RIG_BUFFER + i, 2, i + 1 < VIRTQUEUE_MAX_CHAIN ? N : 0,
                     (uint16_t)(i + 1));
    }
    rig_set_desc(rig_desc(rig, 0), RIG_PIECE, VIRTQUEUE_MAX_CHAIN * 16, I, 0);
    rig_offer(rig, 0);
    elem = rig_pop(rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->out_num, ==, VIRTQUEUE_MAX_CHAIN);
    g_assert_cmpuint(elem->out_size, ==, 2 * VIRTQUEUE_MAX_CHAIN);
    g_assert_true(elem->sg[32767].iov_base == rig_at(rig, RIG_BUFFER + 32767));
    capacity = elem->sg_capacity;
    rig_push(rig, elem, 0);
    g_assert_cmpuint(elem->sg_capacity, <, capacity); /* the big array went back */
    rig_offer_simple(rig, 1);
    g_assert_nonnull(rig_pop(rig));
    rig_free(rig);
}

static void test_pieces(void)
{
    Rig *rig = rig_new(8, plain);
    struct vring_desc table[4];
    VirtQueueElement *elem;

    /* A buffer across the border of two pieces of RAM becomes two entries. */
    rig_set_desc(rig_desc(rig, 0), RIG_PIECE - 16, 48, W, 0);
    rig_offer(rig, 0);
    elem = rig_pop(rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->in_num, ==, 2);
    g_assert_cmpuint(elem->in_size, ==, 48);
    g_assert_true(elem->sg[0].iov_base == rig->ram[0] + RIG_PIECE - 16);
    g_assert_cmpuint(elem->sg[0].iov_len, ==, 16);
    g_assert_true(elem->sg[1].iov_base == rig->ram[1]);
    g_assert_cmpuint(elem->gpa[1], ==, RIG_PIECE);
    rig_push(rig, elem, 0);

    /* So does a table, one descriptor of which is itself cut. */
    rig_set_desc(&table[0], RIG_BUFFER, 1, N, 1);
    rig_set_desc(&table[1], RIG_BUFFER, 2, N, 2);
    rig_set_desc(&table[2], RIG_PIECE + 0x100, 3, N, 3);
    rig_set_desc(&table[3], RIG_BUFFER, 4, 0, 0);
    memcpy(rig->ram[0] + RIG_PIECE - 24, table, 24);
    memcpy(rig->ram[1], (uint8_t *)table + 24, 40);
    rig_set_desc(rig_desc(rig, 1), RIG_PIECE - 24, 64, I, 0);
    rig_offer(rig, 1);
    elem = rig_pop(rig);
    g_assert_nonnull(elem);
    g_assert_cmpuint(elem->out_num, ==, 4);
    g_assert_cmpuint(elem->out_size, ==, 10);
    rig_push(rig, elem, 0);

    /* Reading from read-only memory is fine. */
    rig_set_desc(rig_desc(rig, 2), RIG_ROM, 32, 0, 0);
    rig_offer(rig, 2);
    g_assert_nonnull(rig_pop(rig));
    rig_free(rig);
}

static void test_unpop(void)
{
    Rig *rig = rig_new(4, plain);
    VirtQueueElement *elems[4];

    for (unsigned i = 0; i < 3; i++) {
        rig_offer_simple(rig, i);
    }
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 4), ==, 3);
    virtqueue_unpop(rig->vq, elems[2]);
    virtqueue_unpop(rig->vq, elems[1]);
    g_assert_cmpuint(virtqueue_last_avail_idx(rig->vq), ==, 1);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 1);
    g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems + 1, 4), ==, 2);
    g_assert_cmpuint(elems[1]->head, ==, 1);
    g_assert_cmpuint(elems[2]->head, ==, 2);
    virtqueue_detach(rig->vq, elems[1]);
    g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 2);
    rig_free(rig);
}

/* A bad chain between unpopped good ones goes back once, not once a pop. */
static void test_unpop_over_bad(void)
{
    Rig *rig = rig_new(4, plain);
    VirtQueueElement *elems[4];

    for (unsigned turn = 0; turn < 10; turn++) {
        rig_offer_simple(rig, 0);
        rig_set_desc(rig_desc(rig, 1), RIG_BUFFER, 0, 0, 0);
        rig_offer(rig, 1);
        rig_offer_simple(rig, 2);
        g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 4), ==, 2);
        virtqueue_unpop(rig->vq, elems[1]);
        virtqueue_unpop(rig->vq, elems[0]);
        g_assert_cmpuint(virtqueue_inuse(rig->vq), ==, 1); /* it waits */
        g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 4), ==, 2);
        g_assert_cmpuint(elems[0]->head, ==, 0);
        g_assert_cmpuint(elems[1]->head, ==, 2);
        g_assert_cmpuint(virtqueue_stats(rig->vq)->bad_chains, ==, turn + 1);
        virtqueue_fill(rig->vq, elems[0], 1, 0);
        virtqueue_fill(rig->vq, elems[1], 2, 1);
        virtqueue_flush(rig->vq, 2);
        rig_assert_used(rig, 0, 1);
        rig_assert_used(rig, 2, 2);
        rig_assert_used(rig, 1, 0);
    }
    g_assert_cmpuint(rig->broken, ==, 0);
    rig_free(rig);
}

/* --- notifications and interrupts --- */

static void test_flags(void)
{
    Rig *rig = rig_new(4, plain);

    g_assert_null(rig_pop(rig));
    virtqueue_disable_notify(rig->vq);
    g_assert_cmpuint(rig_used(rig)->flags, ==, VRING_USED_F_NO_NOTIFY);
    g_assert_false(virtqueue_enable_notify(rig->vq));
    g_assert_cmpuint(rig_used(rig)->flags, ==, 0);
    rig_offer_simple(rig, 0);
    virtqueue_disable_notify(rig->vq);
    g_assert_true(virtqueue_enable_notify(rig->vq));
    rig_push(rig, rig_pop(rig), 0);
    g_assert_true(virtqueue_should_interrupt(rig->vq));
    g_assert_false(virtqueue_should_interrupt(rig->vq)); /* nothing new */
    rig_avail(rig)->flags = VRING_AVAIL_F_NO_INTERRUPT;
    rig_offer_simple(rig, 0);
    rig_push(rig, rig_pop(rig), 0);
    g_assert_false(virtqueue_should_interrupt(rig->vq));
    g_assert_cmpuint(virtqueue_stats(rig->vq)->interrupts_suppressed, ==, 1);
    rig_free(rig);
}

/* Notifications turned off before the ring could be reached are off once it can. */
static void test_flags_while_unmapped(void)
{
    Rig *rig = rig_new(4, plain);

    dma_space_set_enabled(&rig->dma, false);
    virtqueue_disable_notify(rig->vq);
    rig_offer_simple(rig, 0);
    g_assert_null(rig_pop(rig));
    g_assert_cmpuint(rig->broken, ==, 0);
    dma_space_set_enabled(&rig->dma, true);
    g_assert_nonnull(rig_pop(rig));
    g_assert_cmpuint(rig_used(rig)->flags, ==, VRING_USED_F_NO_NOTIFY);
    rig_free(rig);
}

static void test_notify_on_empty(void)
{
    VirtQueueRules rules = {.notify_on_empty = true, .legacy = true};
    Rig *rig = rig_new(4, rules);
    VirtQueueElement *a, *b;

    rig_avail(rig)->flags = VRING_AVAIL_F_NO_INTERRUPT;
    rig_offer_simple(rig, 0);
    rig_offer_simple(rig, 1);
    a = rig_pop(rig);
    rig_push(rig, a, 0);
    g_assert_false(virtqueue_should_interrupt(rig->vq)); /* one is available */
    a = rig_pop(rig);
    rig_offer_simple(rig, 2);
    b = rig_pop(rig);
    rig_push(rig, a, 0);
    g_assert_false(virtqueue_should_interrupt(rig->vq)); /* one is in flight */
    rig_push(rig, b, 0);
    g_assert_true(virtqueue_should_interrupt(rig->vq));
    rig_free(rig);
}

/* For every event around the index, at every distance, the specification's formula decides. */
static void test_used_event(void)
{
    static const uint16_t starts[] = {0, 1, 100, 32767, 32768, 65530, 65534, 65535};

    for (unsigned s = 0; s < G_N_ELEMENTS(starts); s++) {
        for (unsigned batch = 1; batch <= 4; batch++) {
            for (int delta = -6; delta <= 6; delta++) {
                Rig *rig = rig_new(8, events);
                uint16_t old = starts[s], new = (uint16_t)(old + batch);
                uint16_t event = (uint16_t)(old + delta);
                VirtQueueElement *elems[4];

                virtqueue_set_indices(rig->vq, old, old);
                rig->avail_idx = old;
                virtqueue_should_interrupt(rig->vq); /* the one for what is not known */
                for (unsigned i = 0; i < batch; i++) {
                    rig_offer_simple(rig, i);
                }
                *rig_used_event(rig) = event;
                g_assert_cmpuint(virtqueue_pop_batch(rig->vq, elems, 4), ==, batch);
                for (unsigned i = 0; i < batch; i++) {
                    virtqueue_fill(rig->vq, elems[i], 0, i);
                }
                virtqueue_flush(rig->vq, batch);
                g_assert_cmpint(virtqueue_should_interrupt(rig->vq), ==,
                                (uint16_t)(new - event - 1) < (uint16_t)(new - old));
                rig_free(rig);
            }
        }
    }
}

/* Not asked for a whole turn of the index: the event was passed. */
static void test_used_event_whole_turn(void)
{
    Rig *rig = rig_new(4, events);

    *rig_used_event(rig) = 60000;
    for (unsigned i = 0; i < 65536 + 10; i++) {
        rig_offer_simple(rig, i % 4);
        rig_push(rig, rig_pop(rig), 0);
    }
    g_assert_true(virtqueue_should_interrupt(rig->vq));
    g_assert_false(virtqueue_should_interrupt(rig->vq));
    rig_free(rig);
}

static bool driver_would_notify(Rig *rig, uint16_t old)
{
    return vring_need_event(*rig_avail_event(rig), rig->avail_idx, old);
}

static void test_avail_event(void)
{
    Rig *rig = rig_new(8, events);
    uint16_t old;

    virtqueue_set_indices(rig->vq, 65533, 65533);
    rig->avail_idx = rig->used_seen = 65533;
    rig_avail(rig)->idx = 65533;
    for (unsigned i = 0; i < 40; i++) {
        virtqueue_disable_notify(rig->vq);
        g_assert_false(virtqueue_enable_notify(rig->vq));
        g_assert_cmpuint(rig_used(rig)->flags, ==, 0);
        old = rig->avail_idx;
        rig_offer_simple(rig, i % 8);
        g_assert_true(driver_would_notify(rig, old));
        virtqueue_disable_notify(rig->vq);
        old = rig->avail_idx;
        rig_offer_simple(rig, (i + 1) % 8);
        g_assert_false(driver_would_notify(rig, old)); /* the first one did */
        g_assert_true(virtqueue_enable_notify(rig->vq));
        rig_push(rig, rig_pop(rig), 0);
        rig_push(rig, rig_pop(rig), 0);
    }
    rig_free(rig);
}

/* With notifications on all the time, a ring found empty has told the driver to notify. */
static void test_avail_event_empty(void)
{
    Rig *rig = rig_new(8, events);

    for (unsigned i = 0; i < 70000; i++) {
        uint16_t old = rig->avail_idx;

        g_assert_true(virtqueue_empty(rig->vq));
        rig_offer_simple(rig, i % 8);
        g_assert_true(driver_would_notify(rig, old));
        rig_push(rig, rig_pop(rig), 0);
    }
    rig_free(rig);
}

/* A device that waits for more buffers than are there is notified of the next. */
static void test_avail_event_more(void)
{
    Rig *rig = rig_new(8, events);
    uint16_t old;

    rig_offer_simple(rig, 0);
    g_assert_true(virtqueue_enable_notify(rig->vq));
    old = rig->avail_idx;
    rig_offer_simple(rig, 1);
    g_assert_true(driver_would_notify(rig, old));
    g_assert_cmpuint(virtqueue_available(rig->vq), ==, 2);
    rig_free(rig);
}

/* --- the rest --- */

static void test_index_wrap(void)
{
    Rig *rig = rig_new(4, plain);

    virtqueue_set_indices(rig->vq, 65500, 65500);
    rig->avail_idx = rig->used_seen = 65500;
    rig_avail(rig)->idx = rig_used(rig)->idx = 65500;
    for (unsigned i = 0; i < 200; i++) {
        rig_offer_simple(rig, i % 4);
        g_assert_cmpuint(virtqueue_available(rig->vq), ==, 1);
        rig_push(rig, rig_pop(rig), i);
        rig_assert_used(rig, i % 4, i);
    }
    g_assert_cmpuint(virtqueue_last_avail_idx(rig->vq), ==, (uint16_t)(65500 + 200));
    g_assert_cmpuint(virtqueue_used_idx(rig->vq), ==, (uint16_t)(65500 + 200));
    rig_free(rig);
}

static void test_remap(void)
{
    Rig *rig = rig_new(4, plain);
    uint8_t *moved = aligned_alloc(4096, RIG_PIECE);
    uint8_t *old = rig->ram[0];
    MemoryMap *map;

    rig_offer_simple(rig, 0);
    rig_push(rig, rig_pop(rig), 1);
    memcpy(moved, old, RIG_PIECE);
    memset(old, 0xee, RIG_PIECE);
    rig->ram[0] = moved;
    map = rig_map(rig);
    dma_space_set_map(&rig->dma, map);
    memory_map_unref(map);
    rig_offer_simple(rig, 1);
    rig_push(rig, rig_pop(rig), 2);
    rig_assert_used(rig, 0, 1);
    rig_assert_used(rig, 1, 2);
    free(old);
    rig_free(rig);
}

static void test_dirty_log(void)
{
    Rig *rig = rig_new(8, events);
    uint8_t log[0x200] = {0};

    rig->dma.dirty_log = log;
    rig->dma.dirty_pages = sizeof(log);
    rig_set_desc(rig_desc(rig, 0), RIG_BUFFER, 100, N, 1);
    rig_set_desc(rig_desc(rig, 1), RIG_BUFFER + 0x1000, 0x1000, N | W, 2);
    rig_set_desc(rig_desc(rig, 2), RIG_BUFFER + 0x2000, 0x3000, W, 0);
    rig_offer(rig, 0);
    rig_push(rig, rig_pop(rig), 0x1000 + 0x1001);
    for (unsigned page = 0; page < sizeof(log); page++) {
        bool written = page == RIG_USED >> 12 ||
                       (page >= (RIG_BUFFER >> 12) + 1 && page <= (RIG_BUFFER >> 12) + 3);

        g_assert_cmpuint(log[page], ==, written);
    }
    rig->dma.dirty_log = NULL;
    rig_free(rig);
}

/* --- speed: single-descriptor chains, popped, filled and flushed in bursts --- */

static void test_speed(void)
{
    enum { NUM = 256, BURST = 64, ROUNDS = 20000 };
    Rig *rig = rig_new(NUM, events);
    VirtQueueElement *elems[BURST];
    int64_t best = INT64_MAX;

    for (unsigned i = 0; i < NUM; i++) {
        rig_set_desc(rig_desc(rig, i), RIG_BUFFER + i * 64, 64, W, 0);
        rig_avail(rig)->ring[i] = (uint16_t)i;
    }
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        int64_t start = clock_get_ns(CLOCK_HOST);

        for (unsigned round = 0; round < ROUNDS; round++) {
            unsigned n;

            rig->avail_idx = (uint16_t)(rig->avail_idx + BURST);
            rig_avail(rig)->idx = rig->avail_idx;
            n = virtqueue_pop_batch(rig->vq, elems, BURST);
            for (unsigned i = 0; i < n; i++) {
                virtqueue_fill(rig->vq, elems[i], 64, i);
            }
            virtqueue_flush(rig->vq, n);
            virtqueue_should_interrupt(rig->vq);
        }
        best = MIN(best, clock_get_ns(CLOCK_HOST) - start);
    }
    g_test_message("%.1f million chains/s", 1e3 * BURST * ROUNDS / (double)best);
    g_assert_cmpuint(virtqueue_used_idx(rig->vq), ==, rig->avail_idx);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtqueue/split/pop/chain", test_pop_chain);
    g_test_add_func("/virtqueue/split/pop/batch", test_pop_batch);
    g_test_add_func("/virtqueue/split/pop/indirect", test_indirect);
    g_test_add_func("/virtqueue/split/pop/longest-chain", test_longest_chain);
    g_test_add_func("/virtqueue/split/pop/across-pieces-of-ram", test_pieces);
    g_test_add_func("/virtqueue/split/unpop/comes-again", test_unpop);
    g_test_add_func("/virtqueue/split/unpop/bad-chain-goes-back-once", test_unpop_over_bad);
    g_test_add_func("/virtqueue/split/notify/flags", test_flags);
    g_test_add_func("/virtqueue/split/notify/flags-while-unreachable", test_flags_while_unmapped);
    g_test_add_func("/virtqueue/split/notify/on-empty", test_notify_on_empty);
    g_test_add_func("/virtqueue/split/event-idx/used-event", test_used_event);
    g_test_add_func("/virtqueue/split/event-idx/whole-turn", test_used_event_whole_turn);
    g_test_add_func("/virtqueue/split/event-idx/avail-event", test_avail_event);
    g_test_add_func("/virtqueue/split/event-idx/found-empty", test_avail_event_empty);
    g_test_add_func("/virtqueue/split/event-idx/waits-for-more", test_avail_event_more);
    g_test_add_func("/virtqueue/split/index-wrap", test_index_wrap);
    g_test_add_func("/virtqueue/split/remap", test_remap);
    g_test_add_func("/virtqueue/split/dirty-log", test_dirty_log);
    g_test_add_func("/virtqueue/split/speed", test_speed);
    return g_test_run();
}
