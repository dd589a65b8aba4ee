/*
 * I/O dispatch: widths, containers, eventfds, priorities, and accesses that no single region
 * can take whole, at the ends of the address space too.
 */
#include <glib.h>
#include <string.h>

#include "hw/core/io.h"

/* A region of bytes that logs how it is accessed. */
typedef struct Dev {
    uint8_t bytes[64];
    GString *log;
} Dev;

static uint64_t dev_read(void *opaque, uint64_t offset, unsigned size)
{
    Dev *dev = opaque;
    uint64_t value = UINT64_MAX; /* high bytes are not ours to clear */
    g_assert_cmpuint(offset + size, <=, sizeof(dev->bytes));
    g_string_append_printf(dev->log, "r%u@%u ", size, (unsigned)offset);
    memcpy(&value, dev->bytes + offset, size);
    return value;
}

static void dev_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    Dev *dev = opaque;
    g_assert_cmpuint(offset + size, <=, sizeof(dev->bytes));
    g_assert_true(size == 8 || value >> (8 * size) == 0);
    g_string_append_printf(dev->log, "w%u@%u ", size, (unsigned)offset);
    memcpy(dev->bytes + offset, &value, size);
}

static const IoOps ops4 = {dev_read, dev_write, 0};
static const IoOps ops8 = {dev_read, dev_write, 8};
static const IoOps ops1 = {dev_read, dev_write, 1};
static const IoOps ops_none = {NULL, NULL, 0};

static void dev_init(Dev *dev)
{
    dev->log = g_string_new(NULL);
    for (unsigned i = 0; i < sizeof(dev->bytes); i++) {
        dev->bytes[i] = (uint8_t)(0x80 + i);
    }
}

static void dev_expect(Dev *dev, const char *log)
{
    g_assert_cmpstr(dev->log->str, ==, log);
    g_string_truncate(dev->log, 0);
}

static void test_widths(void)
{
    Dev dev;
    IoRegion region;
    dev_init(&dev);
    io_region_init(&region, "r", 64, &ops4, &dev);
    g_assert_cmphex(io_region_read(&region, 0, 4), ==, 0x83828180);
    g_assert_cmphex(io_region_read(&region, 0, 8), ==, UINT64_C(0x8786858483828180));
    g_assert_cmphex(io_region_read(&region, 1, 2), ==, 0x8281);
    dev_expect(&dev, "r4@0 r4@0 r4@4 r2@1 ");
    io_region_write(&region, 8, UINT64_C(0x1122334455667788), 8);
    dev_expect(&dev, "w4@8 w4@12 ");
    g_assert_cmphex(io_region_read(&region, 8, 8), ==, UINT64_C(0x1122334455667788));
    io_region_write(&region, 0, UINT64_MAX, 1); /* more value than width */
    dev_expect(&dev, "r4@8 r4@12 w1@0 ");
    g_assert_cmphex(dev.bytes[1], ==, 0x81);

    region.ops = &ops8;
    io_region_read(&region, 0, 8);
    region.ops = &ops1;
    io_region_read(&region, 0, 4);
    dev_expect(&dev, "r8@0 r1@0 r1@1 r1@2 r1@3 ");

    /* Odd widths go by bytes, none at all and too many do no harm. */
    region.ops = &ops4;
    g_assert_cmphex(io_region_read(&region, 1, 3), ==, 0x838281);
    g_assert_cmphex(io_region_read(&region, 0, 0), ==, 0);
    io_region_write(&region, 0, 5, 0);
    dev_expect(&dev, "r1@1 r1@2 r1@3 ");
    io_region_read(&region, 0, 4000000000u);
    dev_expect(&dev, "r4@0 r4@4 ");

    /* Past the end: nothing is there. */
    g_assert_cmphex(io_region_read(&region, 62, 4), ==, 0xbfbe);
    dev_expect(&dev, "r2@62 ");
    g_assert_cmphex(io_region_read(&region, 63, 8), ==, 0xbf);
    dev_expect(&dev, "r1@63 ");
    g_assert_cmphex(io_region_read(&region, 64, 1), ==, 0);
    g_assert_cmphex(io_region_read(&region, UINT64_MAX, 8), ==, 0);
    io_region_write(&region, UINT64_MAX - 1, 1, 4);
    io_region_write(&region, 63, 0xffff, 2);
    dev_expect(&dev, "w1@63 ");

    region.ops = &ops_none;
    g_assert_cmphex(io_region_read(&region, 0, 4), ==, 0);
    io_region_write(&region, 0, 1, 4);
    region.ops = NULL;
    g_assert_cmphex(io_region_read(&region, 0, 4), ==, 0);
    io_region_write(&region, 0, 1, 4);
    io_region_cleanup(&region);
    g_string_free(dev.log, TRUE);
}

static void test_containers(void)
{
    Dev a, b;
    IoRegion bar, inner, leaf_a, leaf_b;
    dev_init(&a);
    dev_init(&b);
    io_region_init(&leaf_a, "a", 6, &ops4, &a);
    io_region_init(&leaf_b, "b", 64, &ops4, &b);
    io_region_init(&inner, "inner", 0x20, NULL, NULL);
    io_region_init(&bar, "bar", 0x1000, NULL, NULL);
    io_region_add_child(&inner, 4, &leaf_a);
    io_region_add_child(&bar, 0x200, &leaf_b);
    io_region_add_child(&bar, 0x100, &inner);
    g_assert_cmphex(io_region_read(&bar, 0x104, 4), ==, 0x83828180);
    dev_expect(&a, "r4@0 ");
    g_assert_cmphex(io_region_read(&bar, 0x108, 4), ==, 0x8584); /* the leaf ends inside */
    dev_expect(&a, "r2@4 ");
    g_assert_cmphex(io_region_read(&bar, 0x102, 4), ==, 0x81800000); /* and begins inside */
    dev_expect(&a, "r2@0 ");
    g_assert_cmphex(io_region_read(&bar, 0, 8), ==, 0);
    io_region_write(&bar, 0x11c, 5, 4);
    io_region_write(&bar, 0x200, 5, 4);
    dev_expect(&a, "");
    dev_expect(&b, "w4@0 ");
    g_assert_cmphex(io_region_read(&bar, 0xfff, 8), ==, 0);
    io_region_cleanup(&inner);
    io_region_cleanup(&bar);
    g_string_free(a.log, TRUE);
    g_string_free(b.log, TRUE);
}

static void test_eventfds(void)
{
    Dev dev;
    IoRegion bar, leaf;
    EventNotifier any, two, match;
    dev_init(&dev);
    g_assert_true(event_notifier_init(&any, NULL) && event_notifier_init(&two, NULL) &&
                  event_notifier_init(&match, NULL));
    io_region_init(&leaf, "notify", 64, &ops4, &dev);
    io_region_init(&bar, "bar", 0x100, NULL, NULL);
    io_region_add_child(&bar, 0x10, &leaf);
    const IoEventfd e_any = {.offset = 0, .notifier = &any};
    const IoEventfd e_two = {.offset = 4, .size = 2, .notifier = &two};
    const IoEventfd e_match = {
        .offset = 8, .size = 2, .match = true, .data = 3, .notifier = &match};
    const IoEventfd outer = {.offset = 0x18, .size = 2, .match = true, .data = 9, .notifier = &any};
    io_region_add_eventfd(&leaf, &e_any);
    io_region_add_eventfd(&leaf, &e_two);
    io_region_add_eventfd(&leaf, &e_match);
    io_region_add_eventfd(&bar, &outer);

    io_region_write(&bar, 0x10, 1, 1);
    g_assert_true(event_notifier_test_and_clear(&any));
    io_region_write(&bar, 0x10, 1, 4);
    g_assert_true(event_notifier_test_and_clear(&any));
    dev_expect(&dev, "");
    io_region_write(&bar, 0x14, 1, 4); /* wrong width */
    dev_expect(&dev, "w4@4 ");
    io_region_write(&bar, 0x14, 1, 2);
    g_assert_true(event_notifier_test_and_clear(&two));
    io_region_write(&bar, 0x18, 4, 2); /* wrong value */
    dev_expect(&dev, "w2@8 ");
    g_assert_false(event_notifier_test_and_clear(&match));
    io_region_write(&bar, 0x18, 0x10003, 2); /* only the width's bits count */
    g_assert_true(event_notifier_test_and_clear(&match));
    io_region_write(&bar, 0x18, 9, 2);
    g_assert_true(event_notifier_test_and_clear(&any));
    io_region_read(&bar, 0x14, 2); /* reads are the device's */
    dev_expect(&dev, "r2@4 ");
    io_region_remove_eventfd(&leaf, &e_two);
    io_region_remove_eventfd(&leaf, &e_two);
    io_region_write(&bar, 0x14, 1, 2);
    dev_expect(&dev, "w2@4 ");
    g_assert_false(event_notifier_test_and_clear(&two));

    event_notifier_cleanup(&any);
    event_notifier_cleanup(&two);
    event_notifier_cleanup(&match);
    io_region_cleanup(&leaf);
    io_region_cleanup(&bar);
    g_string_free(dev.log, TRUE);
}

static void check_read(IoSpace *space, uint64_t addr, unsigned size, uint64_t value, bool found)
{
    uint64_t got;
    g_assert_true(io_space_read(space, addr, &got, size) == found);
    g_assert_cmphex(got, ==, value);
}

static void test_space(void)
{
    Dev low, high;
    IoRegion region_low, region_high;
    IoSpace space;
    dev_init(&low);
    dev_init(&high);
    memset(high.bytes, 0x11, sizeof(high.bytes));
    io_space_init(&space, "memory");
    check_read(&space, 0, 1, 0xff, false);
    check_read(&space, UINT64_MAX - 7, 8, UINT64_MAX, false);
    g_assert_false(io_space_write(&space, 0x1000, 1, 4));
    io_region_init(&region_low, "low", 64, &ops4, &low);
    io_region_init(&region_high, "high", 8, &ops4, &high);
    io_space_map(&space, 0x1000, &region_low, 0);
    check_read(&space, 0x1000, 4, 0x83828180, true);
    check_read(&space, 0xffe, 4, 0x8180ffff, true);
    check_read(&space, 0x103e, 4, 0xffffbfbe, true);
    check_read(&space, 0x1040, 2, 0xffff, false);
    check_read(&space, 0xffc, 4, 0xffffffff, false);
    g_string_truncate(low.log, 0);

    /* What has the higher priority answers, the other shows through around it. */
    io_space_map(&space, 0x1008, &region_high, 1);
    check_read(&space, 0x1008, 4, 0x11111111, true);
    check_read(&space, 0x1006, 4, 0x11118786, true);
    check_read(&space, 0x100e, 4, 0x91901111, true);
    check_read(&space, 0x1000, 8, UINT64_C(0x8786858483828180), true);
    g_assert_true(io_space_write(&space, 0x1006, 0xaabbccdd, 4));
    g_assert_cmphex(low.bytes[7], ==, 0xcc);
    g_assert_cmphex(high.bytes[0], ==, 0xbb);
    io_space_unmap(&space, &region_high);
    check_read(&space, 0x1008, 4, 0x8b8a8988, true);

    /* A region moved to the very end of the space. */
    io_space_unmap(&space, &region_low);
    check_read(&space, 0x1000, 4, 0xffffffff, false);
    io_space_map(&space, UINT64_MAX - 31, &region_low, 0);
    check_read(&space, UINT64_MAX - 3, 4, 0x9f9e9d9c, true);
    check_read(&space, UINT64_MAX - 32, 2, 0x80ff, true);
    io_space_unmap(&space, &region_low);
    io_space_unmap(&space, &region_low);
    io_space_cleanup(&space);
    g_string_free(low.log, TRUE);
    g_string_free(high.log, TRUE);
}

/* Random overlapping mappings against a byte-wise model; only values are compared. */
static void test_random(void)
{
    enum { SPACE = 256, REGIONS = 8 };
    for (unsigned round = 0; round < 200; round++) {
        Dev devs[REGIONS];
        IoRegion regions[REGIONS];
        int owner[SPACE], priority[SPACE];
        unsigned bases[REGIONS];
        IoSpace space;
        io_space_init(&space, "io");
        for (unsigned i = 0; i < SPACE; i++) {
            owner[i] = -1;
            priority[i] = -1;
        }
        for (unsigned r = 0; r < REGIONS; r++) {
            dev_init(&devs[r]);
            for (unsigned i = 0; i < 64; i++) {
                devs[r].bytes[i] = (uint8_t)g_test_rand_int();
            }
            unsigned size = (unsigned)g_test_rand_int_range(1, 65);
            bases[r] = (unsigned)g_test_rand_int_range(0, (int)(SPACE - size + 1));
            const IoOps *const kinds[] = {&ops1, &ops4, &ops8};
            io_region_init(&regions[r], "r", size, kinds[r % 3], &devs[r]);
            /* Every priority once, so that the model need not know what ties do. */
            io_space_map(&space, bases[r], &regions[r], (int)r);
            for (unsigned i = bases[r]; i < bases[r] + size; i++) {
                if ((int)r > priority[i]) {
                    owner[i] = (int)r;
                    priority[i] = (int)r;
                }
            }
        }
        for (unsigned n = 0; n < 200; n++) {
            unsigned size = 1u << g_test_rand_int_range(0, 4);
            unsigned at = (unsigned)g_test_rand_int_range(0, (int)(SPACE - size + 1));
            uint64_t expected = 0, got;
            bool found = false;
            for (unsigned i = 0; i < size; i++) {
                int o = owner[at + i];
                uint64_t byte = o < 0 ? 0xff : devs[o].bytes[at + i - bases[o]];
                found |= o >= 0;
                expected |= byte << (8 * i);
            }
            g_assert_true(io_space_read(&space, at, &got, size) == found);
            g_assert_cmphex(got, ==, expected);
            uint64_t value = (uint64_t)g_test_rand_int() << 32 | (uint32_t)g_test_rand_int();
            g_assert_true(io_space_write(&space, at, value, size) == found);
            io_space_read(&space, at, &got, size);
            for (unsigned i = 0; i < size; i++) {
                uint64_t byte = owner[at + i] < 0 ? 0xff : value >> (8 * i) & 0xff;
                g_assert_cmphex(got >> (8 * i) & 0xff, ==, byte);
            }
        }
        io_space_cleanup(&space);
        for (unsigned r = 0; r < REGIONS; r++) {
            g_string_free(devs[r].log, TRUE);
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/io/region/widths-and-ends", test_widths);
    g_test_add_func("/io/region/containers-split-at-borders", test_containers);
    g_test_add_func("/io/region/eventfd-instead-of-call", test_eventfds);
    g_test_add_func("/io/space/priorities-and-unassigned", test_space);
    g_test_add_func("/io/space/random-against-model", test_random);
    return g_test_run();
}
