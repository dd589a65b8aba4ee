/*
 * The guest driver's packed queue against a device played here, slot by slot (virtio 1.2, 2.8):
 * flags and wrap counters, batches that become visible at once, ids that come back in any order,
 * events both ways, and a device that returns what it was never given.
 */
#include <glib.h>
#include <string.h>

#include "guest/driver-queue-packed.h"

#define RAM_SIZE (4u << 20)
#define F_AVAIL  (1u << VRING_PACKED_DESC_F_AVAIL)
#define F_USED   (1u << VRING_PACKED_DESC_F_USED)
#define F_BOTH   (F_AVAIL | F_USED)
#define F_WRAP   (1u << VRING_PACKED_EVENT_F_WRAP_CTR)

static const DriverSegment segments[3] = {{0x200000, 12}, {0x201000, 100}, {0x202000, 200}};

typedef struct Fixture {
    GuestRam *ram;
    DriverQueue *queue;
    struct vring_packed_desc *desc;
    struct vring_packed_desc_event *driver_event, *device_event;
    uint16_t avail, used; /* the device's slots: to look at, to return into */
    bool avail_wrap, used_wrap;
} Fixture;

/* A chain that the device has seen. */
typedef struct Chain {
    uint16_t id, slots, writable;
    uint64_t addr;
} Chain;

static void set_up(Fixture *f, uint16_t size, bool event_idx)
{
    *f = (Fixture){.ram = guest_ram_new(RAM_SIZE, NULL), .avail_wrap = true, .used_wrap = true};
    g_assert_nonnull(f->ram);
    f->queue = driver_queue_new_packed(f->ram, 0, size, event_idx, NULL);
    g_assert_nonnull(f->queue);
    f->desc = guest_ram_pointer(f->ram, f->queue->desc_addr, size * sizeof(*f->desc));
    f->driver_event = guest_ram_pointer(f->ram, f->queue->avail_addr, sizeof(*f->driver_event));
    f->device_event = guest_ram_pointer(f->ram, f->queue->used_addr, sizeof(*f->device_event));
}

static void tear_down(Fixture *f)
{
    driver_queue_free(f->queue);
    guest_ram_free(f->ram);
}

static void advance(const Fixture *f, uint16_t *slot, bool *wrap)
{
    if (++*slot == f->queue->size) {
        *slot = 0;
        *wrap = !*wrap;
    }
}

static bool device_sees_one(const Fixture *f)
{
    return (f->desc[f->avail].flags & F_BOTH) == (f->avail_wrap ? F_AVAIL : F_USED);
}

static bool device_pop(Fixture *f, Chain *chain)
{
    uint16_t flags;

    if (!device_sees_one(f)) {
        return false;
    }
    *chain = (Chain){.addr = f->desc[f->avail].addr};
    do {
        g_assert_true(device_sees_one(f)); /* a chain is there as a whole */
        flags = f->desc[f->avail].flags;
        chain->id = f->desc[f->avail].id; /* the last one's counts */
        chain->slots++;
        chain->writable += !!(flags & VRING_DESC_F_WRITE);
        advance(f, &f->avail, &f->avail_wrap);
    } while (flags & VRING_DESC_F_NEXT);
    return true;
}

static void device_push(Fixture *f, const Chain *chain, uint32_t len)
{
    struct vring_packed_desc *desc = &f->desc[f->used];

    desc->id = chain->id;
    desc->len = len;
    desc->flags = f->used_wrap ? F_BOTH : 0;
    for (unsigned i = 0; i < chain->slots; i++) {
        advance(f, &f->used, &f->used_wrap);
    }
}

static void test_round_trip(void)
{
    int token;
    uint32_t len;
    Chain chain;
    Fixture f;

    set_up(&f, 4, false);
    int id = driver_queue_add(f.queue, segments, 2, 1, &token);
    g_assert_cmpint(id, >=, 0);
    g_assert_cmpuint(f.queue->free_count, ==, 1);
    g_assert_false(device_pop(&f, &chain)); /* not published yet */
    g_assert_true(driver_queue_publish(f.queue));
    g_assert_false(driver_queue_publish(f.queue)); /* nothing new */
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmphex(f.desc[i].addr, ==, segments[i].addr);
        g_assert_cmpuint(f.desc[i].len, ==, segments[i].len);
        g_assert_cmpuint(f.desc[i].id, ==, id);
        g_assert_cmphex(f.desc[i].flags, ==,
                        F_AVAIL | (i < 2 ? VRING_DESC_F_NEXT : 0) |
                            (i == 2 ? VRING_DESC_F_WRITE : 0));
    }
    g_assert_true(device_pop(&f, &chain));
    g_assert_cmpuint(chain.slots, ==, 3);
    g_assert_false(driver_queue_has_used(f.queue));
    g_assert_null(driver_queue_take(f.queue, &len));
    device_push(&f, &chain, 77);
    g_assert_true(driver_queue_has_used(f.queue));
    g_assert_true(driver_queue_take(f.queue, &len) == &token);
    g_assert_cmpuint(len, ==, 77);
    g_assert_false(driver_queue_has_used(f.queue));
    g_assert_cmpuint(f.queue->free_count, ==, 4);
    tear_down(&f);
}

/* Nothing of a batch is there before its first chain is. */
static void test_batch(void)
{
    int tokens[3];
    Chain chain;
    Fixture f;

    set_up(&f, 8, false);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmpint(driver_queue_add(f.queue, segments, 1, i ? 1 : 0, &tokens[i]), >=, 0);
        g_assert_cmphex(f.desc[0].flags, ==, 0);
        g_assert_false(device_sees_one(&f));
    }
    driver_queue_publish(f.queue);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_true(device_pop(&f, &chain));
        g_assert_cmpuint(chain.slots, ==, i ? 2 : 1);
        g_assert_cmpuint(chain.writable, ==, i ? 1 : 0);
    }
    g_assert_false(device_pop(&f, &chain));
    tear_down(&f);
}

static void test_full(void)
{
    int token;
    Chain chain;
    uint32_t len;
    Fixture f;

    set_up(&f, 5, false);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 0, 0, &token), ==, -1);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 3, 0, &token), >=, 0);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 3, 0, &token), ==, -1);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 1, 1, &token), >=, 0);
    g_assert_cmpuint(f.queue->free_count, ==, 0);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 1, 0, &token), ==, -1);
    driver_queue_publish(f.queue);
    g_assert_true(device_pop(&f, &chain));
    device_push(&f, &chain, 0);
    g_assert_nonnull(driver_queue_take(f.queue, &len));
    g_assert_cmpint(driver_queue_add(f.queue, segments, 3, 0, &token), >=, 0);
    tear_down(&f);
}

/* Sizes that are no powers of two, chains that lie over the ring's end, ids in any order. */
static void test_wraps_in_any_order(void)
{
    static const uint16_t sizes[] = {1, 3, 7, 64};

    for (unsigned s = 0; s < G_N_ELEMENTS(sizes); s++) {
        unsigned most = MIN(3, sizes[s]);
        char tokens[4096];
        Fixture f;

        set_up(&f, sizes[s], false);
        for (unsigned round = 0, next = 0; round < 600; round++) {
            Chain seen[64], chain;
            const void *expected[64];
            unsigned count = 0, first = next;
            uint32_t len;

            while (driver_queue_add(f.queue, segments, 1 + next % most, 0,
                                    &tokens[next % sizeof(tokens)]) >= 0) {
                next++;
            }
            driver_queue_publish(f.queue);
            while (device_pop(&f, &chain)) {
                g_assert_cmpuint(chain.slots, ==, 1 + (first + count) % most);
                expected[count] = &tokens[(first + count) % sizeof(tokens)];
                seen[count++] = chain;
            }
            g_assert_cmpuint(count, ==, next - first);
            for (unsigned i = 0; i < count; i++) { /* the last one first, in odd rounds */
                device_push(&f, &seen[round % 2 ? count - 1 - i : i], round + i);
            }
            for (unsigned i = 0; i < count; i++) {
                g_assert_true(driver_queue_take(f.queue, &len) ==
                              expected[round % 2 ? count - 1 - i : i]);
                g_assert_cmpuint(len, ==, round + i);
            }
            g_assert_false(driver_queue_has_used(f.queue));
            g_assert_cmpuint(f.queue->free_count, ==, sizes[s]);
        }
        tear_down(&f);
    }
}

/* The device's wish: flags, and with DESC the one slot that it waits for. */
static void test_notifications(void)
{
    int token;
    Fixture f;

    set_up(&f, 6, true);
    for (unsigned i = 0, slot = 0; i < 60; i++, slot = (slot + 2) % 6) {
        bool wrap = i / 3 % 2 == 0;
        unsigned kind = i % 7;
        Chain chain;
        uint32_t len;
        bool wanted;

        f.device_event->flags = kind == 0   ? VRING_PACKED_EVENT_FLAG_DISABLE
                                : kind == 1 ? VRING_PACKED_EVENT_FLAG_ENABLE
                                            : VRING_PACKED_EVENT_FLAG_DESC;
        /* The batch has slots @slot and @slot + 1; the slot after it, and the same of a round later
         * are not in it. */
        unsigned offset = kind == 2 || kind == 5 ? slot : kind == 3 ? slot + 1 : (slot + 2) % 6;
        bool at_wrap = kind == 4 && slot == 4 ? !wrap : kind == 5 ? !wrap : wrap;
        f.device_event->off_wrap = (uint16_t)(offset | (at_wrap ? F_WRAP : 0));
        wanted = kind >= 1 && kind <= 3;
        g_test_message("slot %u, kind %u", slot, kind);
        if (kind == 6) { /* all of it at once: two chains */
            f.device_event->off_wrap = (uint16_t)((slot + 1) | (wrap ? F_WRAP : 0));
            wanted = true;
            driver_queue_add(f.queue, segments, 1, 0, &token);
            driver_queue_add(f.queue, segments, 1, 0, &token);
        } else {
            driver_queue_add(f.queue, segments, 1, 1, &token);
        }
        g_assert_true(driver_queue_publish(f.queue) == wanted);
        while (device_pop(&f, &chain)) {
            device_push(&f, &chain, 0);
        }
        while (driver_queue_take(f.queue, &len)) {
        }
        g_assert_cmpuint(f.queue->free_count, ==, 6);
    }
    tear_down(&f);
}

/* Our wish: flags without EVENT_IDX, the slot of the next used chain with it. */
static void test_interrupts(void)
{
    int token;
    Chain chain[4];
    uint32_t len;

    for (unsigned event_idx = 0; event_idx < 2; event_idx++) {
        uint16_t on = event_idx ? VRING_PACKED_EVENT_FLAG_DESC : VRING_PACKED_EVENT_FLAG_ENABLE;
        Fixture f;

        set_up(&f, 4, event_idx);
        driver_queue_disable_interrupts(f.queue);
        g_assert_cmpuint(f.driver_event->flags, ==, VRING_PACKED_EVENT_FLAG_DISABLE);
        g_assert_false(driver_queue_enable_interrupts(f.queue));
        g_assert_cmpuint(f.driver_event->flags, ==, on);
        g_assert_cmphex(f.driver_event->off_wrap, ==, event_idx ? F_WRAP : 0);
        for (unsigned i = 0; i < 3; i++) {
            driver_queue_add(f.queue, segments, 1, 0, &token);
        }
        driver_queue_publish(f.queue);
        for (unsigned i = 0; i < 3; i++) {
            g_assert_true(device_pop(&f, &chain[i]));
        }
        device_push(&f, &chain[0], 0);
        g_assert_true(driver_queue_enable_interrupts(f.queue)); /* one waits already */
        g_assert_false(driver_queue_enable_interrupts_after(f.queue, 1));
        g_assert_cmphex(f.driver_event->off_wrap, ==, event_idx ? F_WRAP | 1 : 0);
        device_push(&f, &chain[1], 0);
        g_assert_true(driver_queue_enable_interrupts_after(f.queue, 1));
        device_push(&f, &chain[2], 0);
        for (unsigned i = 0; i < 3; i++) {
            g_assert_nonnull(driver_queue_take(f.queue, &len));
        }
        /* Slot 3, and one further on: the ring's beginning, the other way round. */
        g_assert_false(driver_queue_enable_interrupts(f.queue));
        g_assert_cmphex(f.driver_event->off_wrap, ==, event_idx ? F_WRAP | 3 : 0);
        g_assert_false(driver_queue_enable_interrupts_after(f.queue, 1));
        g_assert_cmphex(f.driver_event->off_wrap, ==, 0);
        tear_down(&f);
    }
}

/* Whatever a broken device says is never used as an index, and ends the queue. */
static void test_broken_device(void)
{
    static const uint16_t ids[] = {4, 0xffff, 1};

    for (unsigned i = 0; i < G_N_ELEMENTS(ids); i++) {
        int token;
        Chain chain;
        uint32_t len;
        Fixture f;

        set_up(&f, 4, true);
        g_assert_cmpint(driver_queue_add(f.queue, segments, 1, 0, &token), ==, 0);
        driver_queue_publish(f.queue);
        g_assert_true(device_pop(&f, &chain));
        chain.id = ids[i]; /* too large, or not in flight */
        device_push(&f, &chain, 0);
        g_assert_null(driver_queue_take(f.queue, &len));
        g_assert_true(f.queue->broken);
        g_assert_false(driver_queue_has_used(f.queue));
        g_assert_false(driver_queue_enable_interrupts(f.queue));
        g_assert_cmpint(driver_queue_add(f.queue, segments, 1, 0, &token), ==, -1);
        tear_down(&f);
    }
}

static void test_returned_twice(void)
{
    int token;
    Chain first, second;
    uint32_t len;
    Fixture f;

    set_up(&f, 4, false);
    driver_queue_add(f.queue, segments, 1, 0, &token);
    driver_queue_add(f.queue, segments, 1, 0, &token);
    driver_queue_publish(f.queue);
    g_assert_true(device_pop(&f, &first) && device_pop(&f, &second));
    device_push(&f, &first, 0);
    device_push(&f, &first, 0);
    g_assert_nonnull(driver_queue_take(f.queue, &len));
    g_assert_false(f.queue->broken);
    g_assert_null(driver_queue_take(f.queue, &len));
    g_assert_true(f.queue->broken);
    tear_down(&f);
}

static void test_bad_sizes(void)
{
    static const uint16_t sizes[] = {0, 32769};
    GuestRam *ram = guest_ram_new(2u << 20, NULL);
    g_autoptr(GError) full = NULL;

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autoptr(GError) err = NULL;

        g_assert_null(driver_queue_new_packed(ram, 0, sizes[i], false, &err));
        g_assert_nonnull(strstr(err->message, "1 to 32768"));
    }
    g_assert_nonnull((void *)(uintptr_t)guest_ram_alloc(ram, (1u << 20) - 4096, 16));
    g_assert_null(driver_queue_new_packed(ram, 0, 1024, false, &full));
    g_assert_nonnull(strstr(full->message, "used up"));
    guest_ram_free(ram);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/driver-queue-packed/round-trip", test_round_trip);
    g_test_add_func("/driver-queue-packed/batch-appears-at-once", test_batch);
    g_test_add_func("/driver-queue-packed/full", test_full);
    g_test_add_func("/driver-queue-packed/wraps-in-any-order", test_wraps_in_any_order);
    g_test_add_func("/driver-queue-packed/notifications", test_notifications);
    g_test_add_func("/driver-queue-packed/interrupts", test_interrupts);
    g_test_add_func("/driver-queue-packed/broken-device-stops-the-queue", test_broken_device);
    g_test_add_func("/driver-queue-packed/returned-twice-is-broken", test_returned_twice);
    g_test_add_func("/driver-queue-packed/bad-sizes", test_bad_sizes);
    return g_test_run();
}
