/*
 * Guest memory: translation at every edge, accesses across ranges, overflow, listeners, and a
 * random comparison with a byte-wise model.
 */
#include <glib.h>
#include <string.h>

#include "hw/core/memory-map.h"
#include "util/error.h"

#define PAGE 4096u

static uint8_t ram_a[2 * PAGE], ram_b[PAGE], ram_c[PAGE];

/* [0, 2 pages) A, [2, 3) B (adjacent), hole, [8, 9) C read-only. */
static MemoryMap *test_map(void)
{
    MemoryRange ranges[] = {
        {.addr = 8 * PAGE, .size = PAGE, .host = ram_c, .fd = -1, .flags = MEMORY_READONLY},
        {.addr = 0, .size = 2 * PAGE, .host = ram_a, .fd = -1},
        {.addr = 2 * PAGE, .size = PAGE, .host = ram_b, .fd = -1},
    };
    GError *err = NULL;
    MemoryMap *map = memory_map_new(ranges, 3, &err);
    g_assert_no_error(err);
    g_assert_cmpuint(map->ranges[0].addr, ==, 0);
    g_assert_cmpuint(map->ranges[2].addr, ==, 8 * PAGE);
    return map;
}

static void space_setup(DmaSpace *space, const DmaSpaceOps *ops, void *opaque)
{
    dma_space_init(space, ops, opaque);
    MemoryMap *map = test_map();
    dma_space_set_map(space, map);
    memory_map_unref(map);
}

static void check_refused(const MemoryRange *ranges, unsigned count, const char *message)
{
    GError *err = NULL;
    g_assert_null(memory_map_new(ranges, count, &err));
    if (!strstr(err->message, message)) {
        g_error("'%s' does not contain '%s'", err->message, message);
    }
    g_error_free(err);
    g_assert_null(memory_map_new(ranges, count, NULL));
}

static void test_bad_maps(void)
{
    MemoryRange overlap[] = {{.addr = 0, .size = 10}, {.addr = 9, .size = 1}};
    check_refused(overlap, 2, "overlaps");
    MemoryRange same[] = {{.addr = 5, .size = 1}, {.addr = 5, .size = 1}};
    check_refused(same, 2, "overlaps");
    MemoryRange empty[] = {{.addr = 5, .size = 0}};
    check_refused(empty, 1, "size 0x0");
    MemoryRange wrap[] = {{.addr = UINT64_MAX - 1, .size = 2}};
    check_refused(wrap, 1, "allowed: 1 to 0x1");
    MemoryRange huge[] = {{.addr = 1, .size = UINT64_MAX}};
    check_refused(huge, 1, "allowed");
    MemoryRange full[] = {{.addr = 0, .size = UINT64_MAX}};
    MemoryMap *map = memory_map_new(full, 1, NULL);
    g_assert_nonnull(memory_map_find(map, UINT64_MAX - 1));
    g_assert_null(memory_map_find(map, UINT64_MAX));
    memory_map_unref(map);
    map = memory_map_new(NULL, 0, NULL);
    g_assert_null(memory_map_find(map, 0));
    g_assert_cmpuint(memory_map_gap(map, 7), ==, UINT64_MAX);
    memory_map_unref(memory_map_ref(map));
    memory_map_unref(map);
    memory_map_unref(NULL);
}

static void check_translate(DmaSpace *space, uint64_t addr, uint64_t len, bool writing,
                            const void *host, uint64_t expected_len)
{
    g_assert_true(dma_translate(space, addr, &len, writing) == host);
    if (host) {
        g_assert_cmpuint(len, ==, expected_len);
    }
}

static void test_translate(void)
{
    DmaSpace space;
    space_setup(&space, NULL, NULL);
    check_translate(&space, 0, 1, true, ram_a, 1);
    check_translate(&space, 0, UINT64_MAX, true, ram_a, 2 * PAGE);
    check_translate(&space, 2 * PAGE - 1, 2, true, ram_a + 2 * PAGE - 1, 1);
    check_translate(&space, 2 * PAGE, 2, true, ram_b, 2);
    check_translate(&space, 3 * PAGE - 1, 5, true, ram_b + PAGE - 1, 1);
    check_translate(&space, 3 * PAGE, 1, true, NULL, 0);
    check_translate(&space, 8 * PAGE - 1, 1, false, NULL, 0);
    check_translate(&space, 8 * PAGE, 1, false, ram_c, 1);
    check_translate(&space, 8 * PAGE, 1, true, NULL, 0);
    check_translate(&space, 9 * PAGE, 1, false, NULL, 0);
    check_translate(&space, UINT64_MAX, 1, false, NULL, 0);
    check_translate(&space, UINT64_MAX, UINT64_MAX, true, NULL, 0);
    dma_space_set_enabled(&space, false);
    check_translate(&space, 0, 1, false, NULL, 0);
    dma_space_set_enabled(&space, true);
    /* A hint left over from a larger map must not be followed. */
    check_translate(&space, 8 * PAGE, 1, false, ram_c, 1);
    MemoryMap *none = memory_map_new(NULL, 0, NULL);
    dma_space_set_map(&space, none);
    memory_map_unref(none);
    check_translate(&space, 8 * PAGE, 1, false, NULL, 0);
    dma_space_cleanup(&space);
}

static void test_accesses(void)
{
    DmaSpace space;
    uint8_t buf[4 * PAGE], back[4 * PAGE];
    space_setup(&space, NULL, NULL);
    for (unsigned i = 0; i < sizeof(buf); i++) {
        buf[i] = (uint8_t)(i * 7 + 1);
    }
    g_assert_true(dma_write(&space, 0, buf, 3 * PAGE));
    g_assert_cmpmem(ram_b, PAGE, buf + 2 * PAGE, PAGE);
    g_assert_true(dma_read(&space, 100, back, 3 * PAGE - 100));
    g_assert_cmpmem(back, 3 * PAGE - 100, buf + 100, 3 * PAGE - 100);
    g_assert_false(dma_write(&space, 3 * PAGE - 4, buf, 5));
    g_assert_false(dma_read(&space, 3 * PAGE - 4, back, 5));
    g_assert_false(dma_read(&space, 3 * PAGE, back, 1));
    g_assert_false(dma_write(&space, 8 * PAGE, buf, 1));
    g_assert_true(dma_read(&space, 8 * PAGE, back, PAGE));
    g_assert_false(dma_read(&space, UINT64_MAX, back, 2));
    g_assert_false(dma_write(&space, UINT64_MAX - 3, buf, 5));
    g_assert_true(dma_read(&space, UINT64_MAX, back, 0));
    g_assert_true(dma_write(&space, 3 * PAGE, buf, 0));
    dma_space_set_enabled(&space, false);
    g_assert_false(dma_read(&space, 0, back, 1));
    g_assert_false(dma_write(&space, 0, buf, 1));
    dma_space_cleanup(&space);
}

typedef struct Outside {
    GString *log;
    uint64_t limit; /* nothing is there from here on */
} Outside;

static bool outside_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    Outside *outside = opaque;
    g_string_append_printf(outside->log, "r%" G_GINT64_MODIFIER "x+%zx ", addr, size);
    memset(buf, 0xcc, size);
    return addr + size <= outside->limit;
}

static bool outside_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    Outside *outside = opaque;
    g_string_append_printf(outside->log, "w%" G_GINT64_MODIFIER "x+%zx ", addr, size);
    return addr + size <= outside->limit;
}

static void test_outside(void)
{
    const DmaSpaceOps ops = {outside_read, outside_write};
    Outside outside = {g_string_new(NULL), 9 * PAGE + 16};
    DmaSpace space;
    uint8_t buf[8 * PAGE];
    space_setup(&space, &ops, &outside);
    memset(ram_c, 0x11, sizeof(ram_c));
    g_assert_true(dma_read(&space, 3 * PAGE - 1, buf, 5 * PAGE + 1 + 2));
    g_assert_cmpstr(outside.log->str, ==, "r3000+5000 ");
    g_assert_cmphex(buf[1], ==, 0xcc);
    g_assert_cmphex(buf[5 * PAGE + 1], ==, 0x11);
    g_string_truncate(outside.log, 0);
    g_assert_true(dma_write(&space, 9 * PAGE, buf, 4));
    g_assert_false(dma_write(&space, 9 * PAGE + 14, buf, 4));
    /* Stops at the first bad byte: what lies behind the read-only page is not touched. */
    g_assert_false(dma_write(&space, 8 * PAGE, buf, 2 * PAGE));
    g_assert_cmpstr(outside.log->str, ==, "w9000+4 w900e+4 ");
    dma_space_cleanup(&space);
    g_string_free(outside.log, TRUE);
}

typedef struct Listener {
    DmaListener listener;
    DmaSpace *space;
    MemoryMap *seen_begin, *seen_end;
    unsigned begins, ends;
    bool leave;
} Listener;

static void on_begin(DmaListener *listener)
{
    Listener *l = (Listener *)listener;
    l->begins++;
    l->seen_begin = l->space->map;
    g_assert_cmpuint(l->begins, ==, l->ends + 1);
}

static void on_end(DmaListener *listener)
{
    Listener *l = (Listener *)listener;
    l->ends++;
    l->seen_end = l->space->map;
    if (l->leave) {
        dma_space_remove_listener(l->space, listener);
    }
}

static void test_listeners(void)
{
    DmaSpace space;
    space_setup(&space, NULL, NULL);
    Listener a = {{on_begin, on_end, NULL}, &space}, b = {{on_begin, on_end, NULL}, &space};
    DmaListener deaf = {NULL, NULL, NULL};
    dma_space_add_listener(&space, &a.listener);
    dma_space_add_listener(&space, &deaf);
    dma_space_add_listener(&space, &b.listener);
    MemoryMap *old = space.map, *map = test_map();
    uint32_t generation = space.generation;
    dma_space_set_map(&space, map);
    g_assert_cmpuint(map->refs, ==, 2);
    memory_map_unref(map);
    g_assert_true(a.seen_begin == old && a.seen_end == map && b.seen_end == map);
    g_assert_cmpuint(space.generation, !=, generation);
    generation = space.generation;
    dma_space_set_enabled(&space, true); /* as it is */
    g_assert_cmpuint(a.begins, ==, 1);
    g_assert_cmpuint(space.generation, ==, generation);
    a.leave = true;
    dma_space_set_enabled(&space, false);
    g_assert_cmpuint(space.generation, !=, generation);
    g_assert_cmpuint(b.ends, ==, 2);
    dma_space_set_enabled(&space, true);
    g_assert_cmpuint(a.ends, ==, 2);
    g_assert_cmpuint(b.ends, ==, 3);
    dma_space_remove_listener(&space, &a.listener); /* not there: nothing happens */
    /* The same map again is a change too: what it points to may have been remapped. */
    dma_space_set_map(&space, space.map);
    g_assert_cmpuint(b.ends, ==, 4);
    g_assert_cmpuint(space.map->refs, ==, 1);
    dma_space_cleanup(&space);
}

static void test_dirty(void)
{
    DmaSpace space;
    uint8_t log[3] = {0}, buf[PAGE] = {0};
    space_setup(&space, NULL, NULL);
    space.dirty_log = log;
    space.dirty_pages = 3;
    g_assert_true(dma_write(&space, PAGE - 1, buf, 2));
    g_assert_true(log[0] && log[1] && !log[2]);
    memset(log, 0, sizeof(log));
    g_assert_true(dma_write(&space, 2 * PAGE, buf, PAGE));
    g_assert_true(!log[0] && !log[1] && log[2]);
    dma_mark_dirty(&space, 0, 0);
    dma_mark_dirty(&space, 8 * PAGE, PAGE); /* beyond the log */
    dma_mark_dirty(&space, UINT64_MAX, 1);
    g_assert_true(!log[0] && !log[1]);
    dma_space_cleanup(&space);
}

/* Random maps of small ranges against a table that says, byte by byte, what is where. */
static void test_random(void)
{
    enum { SPACE = 512, ROUNDS = 300, ACCESSES = 200 };
    static uint8_t memory[SPACE];
    uint64_t base = UINT64_MAX - SPACE; /* the top of the address space, where sums wrap */
    for (unsigned round = 0; round < ROUNDS; round++) {
        MemoryRange ranges[64];
        bool is_ram[SPACE] = {false}, is_rom[SPACE] = {false};
        unsigned count = 0;
        for (unsigned at = 0; at < SPACE && count < 64;) {
            unsigned size = (unsigned)g_test_rand_int_range(1, 40);
            size = MIN(size, SPACE - at);
            if (g_test_rand_bit()) {
                bool rom = g_test_rand_int_range(0, 4) == 0;
                ranges[count++] = (MemoryRange){.addr = base + at,
                                                .size = size,
                                                .host = memory + at,
                                                .fd = -1,
                                                .flags = rom ? MEMORY_READONLY : 0};
                memset(is_ram + at, true, size);
                memset(is_rom + at, rom, size);
            }
            at += size;
        }
        DmaSpace space;
        dma_space_init(&space, NULL, NULL);
        MemoryMap *map = memory_map_new(ranges, count, NULL);
        g_assert_nonnull(map);
        dma_space_set_map(&space, map);
        memory_map_unref(map);
        for (unsigned i = 0; i < ACCESSES; i++) {
            unsigned at = (unsigned)g_test_rand_int_range(0, SPACE);
            unsigned size = (unsigned)g_test_rand_int_range(1, 60);
            bool writing = g_test_rand_bit(), expected = at + size <= SPACE;
            for (unsigned b = at; b < at + size && b < SPACE; b++) {
                expected &= is_ram[b] && !(writing && is_rom[b]);
            }
            uint8_t buf[64] = {0};
            g_assert_true((writing ? dma_write(&space, base + at, buf, size)
                                   : dma_read(&space, base + at, buf, size)) == expected);
            uint64_t len = size;
            void *host = dma_translate(&space, base + at, &len, writing);
            g_assert_true(host == (is_ram[at] && !(writing && is_rom[at]) ? memory + at : NULL));
            g_assert_cmpuint(len, <=, size);
        }
        dma_space_cleanup(&space);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/memory-map/refuses-overlap-wrap-empty", test_bad_maps);
    g_test_add_func("/memory-map/translate-at-edges", test_translate);
    g_test_add_func("/memory-map/access-across-ranges", test_accesses);
    g_test_add_func("/memory-map/outside-ram-goes-to-ops", test_outside);
    g_test_add_func("/memory-map/listeners-around-change", test_listeners);
    g_test_add_func("/memory-map/dirty-log", test_dirty);
    g_test_add_func("/memory-map/random-against-model", test_random);
    return g_test_run();
}
