/* MSI-X: table, masks, pending bits, and notifications from other threads. */
#include <pthread.h>

#include "tests/unit/pci-test-device.h"

typedef struct Fixture {
    TestHost host;
    PCIDevice *dev;
} Fixture;

static void setup(Fixture *f, gconstpointer data)
{
    test_host_init(&f->host);
    f->dev = test_device_new(&f->host, NULL);
    for (unsigned i = 0; i < TEST_VECTORS; i++) {
        g_assert_true(msix_vector_use(f->dev, i));
    }
}

static void teardown(Fixture *f, gconstpointer data)
{
    device_remove(&f->dev->parent_obj);
    test_host_cleanup(&f->host);
}

static void control_set(Fixture *f, uint16_t bits)
{
    pci_config_write(f->dev, TEST_MSIX_CAP + 2, bits, 2);
}

static uint64_t table_rd(Fixture *f, uint64_t offset, unsigned size)
{
    return io_region_read(&f->dev->msix.bar, offset, size);
}

static void table_wr(Fixture *f, uint64_t offset, uint64_t value, unsigned size)
{
    io_region_write(&f->dev->msix.bar, offset, value, size);
}

static void vector_set(Fixture *f, unsigned vector, uint64_t addr, uint32_t data, bool masked)
{
    table_wr(f, vector * 16, (uint32_t)addr, 4);
    table_wr(f, vector * 16 + 4, addr >> 32, 4);
    table_wr(f, vector * 16 + 8, data, 4);
    table_wr(f, vector * 16 + 12, masked, 4);
}

static uint64_t pba(Fixture *f)
{
    return table_rd(f, 0x800, 8);
}

static void test_reset_masks_all(Fixture *f, gconstpointer data)
{
    for (unsigned i = 0; i < TEST_VECTORS; i++) {
        g_assert_cmphex(table_rd(f, i * 16 + 12, 4), ==, 1);
    }
    vector_set(f, 0, 0x1000, 1, false);
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    device_reset(&f->dev->parent_obj);
    g_assert_false(msix_enabled(f->dev));
    g_assert_cmphex(table_rd(f, 12, 4), ==, 1);
    g_assert_cmphex(table_rd(f, 0, 8), ==, 0);
}

static void test_disabled_sends_nothing(Fixture *f, gconstpointer data)
{
    vector_set(f, 0, 0x1000, 1, false);
    msix_notify(f->dev, 0);
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    g_assert_cmpuint(f->host.messages, ==, 0);
    g_assert_cmphex(pba(f), ==, 0);
}

static void test_message_is_as_written(Fixture *f, gconstpointer data)
{
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    vector_set(f, 2, 0x123456789abcdef0ull, 0xcafe0002, false);
    msix_notify(f->dev, 2);
    g_assert_cmpuint(f->host.messages, ==, 1);
    g_assert_cmpuint(f->host.last_vector, ==, 2);
    g_assert_cmphex(f->host.last_addr, ==, 0x123456789abcdef0ull);
    g_assert_cmphex(f->host.last_data, ==, 0xcafe0002);
    msix_notify(f->dev, TEST_VECTORS);
    msix_notify(f->dev, 0xffff);
    g_assert_cmpuint(f->host.messages, ==, 1);
}

static void test_masked_pends_and_fires_on_unmask(Fixture *f, gconstpointer data)
{
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    vector_set(f, 1, 0x2000, 7, true);
    msix_notify(f->dev, 1);
    msix_notify(f->dev, 1);
    g_assert_cmpuint(f->host.messages, ==, 0);
    g_assert_cmphex(pba(f), ==, 2);
    table_wr(f, 16 + 12, 0, 4);
    g_assert_cmpuint(f->host.messages, ==, 1);
    g_assert_cmpuint(f->host.last_vector, ==, 1);
    g_assert_cmphex(pba(f), ==, 0);
    table_wr(f, 16 + 12, 1, 4);
    table_wr(f, 16 + 12, 0, 4);
    g_assert_cmpuint(f->host.messages, ==, 1);
}

static void test_function_mask(Fixture *f, gconstpointer data)
{
    control_set(f, PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
    vector_set(f, 0, 0x1000, 1, false);
    vector_set(f, 3, 0x1000, 1, true);
    msix_notify(f->dev, 0);
    msix_notify(f->dev, 3);
    g_assert_cmpuint(f->host.messages, ==, 0);
    g_assert_cmphex(pba(f), ==, 9);
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    g_assert_cmpuint(f->host.messages, ==, 1);
    g_assert_cmphex(pba(f), ==, 8);
}

static void test_pending_fires_when_enabled_again(Fixture *f, gconstpointer data)
{
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    vector_set(f, 0, 0x1000, 1, true);
    msix_notify(f->dev, 0);
    control_set(f, 0);
    table_wr(f, 12, 0, 4);
    g_assert_cmpuint(f->host.messages, ==, 0);
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    g_assert_cmpuint(f->host.messages, ==, 1);
}

static void test_unused_vector_loses_pending(Fixture *f, gconstpointer data)
{
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    msix_notify(f->dev, 0);
    g_assert_cmphex(pba(f), ==, 1);
    msix_vector_unuse(f->dev, 0);
    g_assert_cmphex(pba(f), ==, 0);
    msix_notify(f->dev, 0);
    g_assert_cmphex(pba(f), ==, 0);
    msix_vector_unuse(f->dev, 0);
    msix_vector_unuse(f->dev, 99);
    g_assert_false(msix_vector_use(f->dev, TEST_VECTORS));
}

static void test_pba_is_read_only(Fixture *f, gconstpointer data)
{
    table_wr(f, 0x800, ~0ull, 8);
    g_assert_cmphex(pba(f), ==, 0);
}

static void test_bar_edges(Fixture *f, gconstpointer data)
{
    GRand *rand = g_rand_new_with_seed(7);

    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    for (unsigned i = 0; i < 100000; i++) {
        table_wr(f, g_rand_int(rand) % 5000, g_rand_int(rand), 1u << (g_rand_int(rand) % 4));
        table_rd(f, g_rand_int(rand) % 5000, 1u << (g_rand_int(rand) % 4));
        msix_notify(f->dev, g_rand_int(rand) % 6);
    }
    g_rand_free(rand);
}

static void test_vector_counts(void)
{
    static const struct {
        unsigned vectors;
        uint64_t bar, pba;
    } rows[] = {{1, 4096, 0x800},
                {128, 4096, 0x800},
                {129, 4096, 0x810},
                {256, 8192, 0x1000},
                {2048, 65536, 0x8000}};
    GError *err = NULL;
    TestHost host;

    test_host_init(&host);
    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        PCIDevice *dev = test_device_try(&host, NULL, rows[i].vectors, &err);

        g_assert_no_error(err);
        g_assert_cmpuint(dev->bars[TEST_BAR_MSIX].size, ==, rows[i].bar);
        g_assert_cmphex(pci_config_read(dev, TEST_MSIX_CAP + 8, 4) & ~7u, ==, rows[i].pba);
        g_assert_cmphex(pci_config_read(dev, TEST_MSIX_CAP + 2, 2), ==, rows[i].vectors - 1);
        device_remove(&dev->parent_obj);
    }
    g_assert_null(test_device_try(&host, NULL, 2049, &err));
    g_assert_nonnull(strstr(err->message, "2049"));
    g_error_free(err);
    test_host_cleanup(&host);
}

#define THREAD_NOTIFICATIONS 20000

static void *notifier(void *opaque)
{
    for (unsigned i = 0; i < THREAD_NOTIFICATIONS; i++) {
        msix_notify(opaque, i % TEST_VECTORS);
    }
    return NULL;
}

/* Two threads notify while this one masks and unmasks: at the end nothing is left waiting. */
static void test_threads(Fixture *f, gconstpointer data)
{
    pthread_t threads[2];

    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    for (unsigned i = 0; i < TEST_VECTORS; i++) {
        vector_set(f, i, 0x1000, i, false);
    }
    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpint(pthread_create(&threads[i], NULL, notifier, f->dev), ==, 0);
    }
    for (unsigned i = 0; i < 2000; i++) {
        table_wr(f, 12, i & 1, 4);
        control_set(f, PCI_MSIX_FLAGS_ENABLE | (i & 2 ? PCI_MSIX_FLAGS_MASKALL : 0));
    }
    table_wr(f, 12, 0, 4);
    control_set(f, PCI_MSIX_FLAGS_ENABLE);
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    g_assert_cmphex(pba(f), ==, 0);
    g_assert_cmpuint(f->host.messages, >, 0);
    g_assert_cmpuint(f->host.messages, <=, 2 * THREAD_NOTIFICATIONS);
}

#define ADD(path, fn) g_test_add("/msix/" path, Fixture, NULL, setup, fn, teardown)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    test_register_types();
    ADD("reset-masks-all", test_reset_masks_all);
    ADD("disabled-sends-nothing", test_disabled_sends_nothing);
    ADD("message-is-as-written", test_message_is_as_written);
    ADD("masked-pends-and-fires-on-unmask", test_masked_pends_and_fires_on_unmask);
    ADD("function-mask", test_function_mask);
    ADD("pending-fires-when-enabled-again", test_pending_fires_when_enabled_again);
    ADD("unused-vector-loses-pending", test_unused_vector_loses_pending);
    ADD("pba-is-read-only", test_pba_is_read_only);
    ADD("bar-edges", test_bar_edges);
    ADD("threads", test_threads);
    g_test_add_func("/msix/vector-counts", test_vector_counts);
    return g_test_run();
}
