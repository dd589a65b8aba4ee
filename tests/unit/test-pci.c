/*
 * Configuration space, BARs, Bus Master Enable, INTx and places on the bus, on a device and a
 * host of the test's own.
 */
#include "tests/unit/pci-test-device.h"

#include <unistd.h>

#define CMD_MEM (PCI_COMMAND_MEMORY)

typedef struct Fixture {
    TestHost host;
    PCIDevice *dev;
} Fixture;

static void setup(Fixture *f, gconstpointer data)
{
    test_host_init(&f->host);
    f->dev = test_device_new(&f->host, "4.0");
    device_reset(&f->dev->parent_obj);
}

static void teardown(Fixture *f, gconstpointer data)
{
    if (f->dev) {
        device_remove(&f->dev->parent_obj);
    }
    test_host_cleanup(&f->host);
}

static uint32_t rd(Fixture *f, unsigned offset, unsigned size)
{
    return pci_config_read(f->dev, offset, size);
}

static void wr(Fixture *f, unsigned offset, uint32_t value, unsigned size)
{
    pci_config_write(f->dev, offset, value, size);
}

static uint64_t mapped(Fixture *f, unsigned bar)
{
    return f->dev->bars[bar].mapped_at;
}

static void test_config_identity(Fixture *f, gconstpointer data)
{
    g_assert_cmphex(rd(f, PCI_VENDOR_ID, 4), ==, TEST_DEVICE << 16 | TEST_VENDOR);
    g_assert_cmphex(rd(f, PCI_REVISION_ID, 1), ==, 1);
    g_assert_cmphex(rd(f, PCI_CLASS_DEVICE, 2), ==, 0x0200);
    g_assert_cmphex(rd(f, PCI_SUBSYSTEM_VENDOR_ID, 4), ==, 0x11001af4);
    g_assert_cmphex(rd(f, PCI_HEADER_TYPE, 1), ==, 0);
    g_assert_cmphex(rd(f, PCI_INTERRUPT_PIN, 1), ==, 1);
}

static void test_config_read_only_bytes_stay(Fixture *f, gconstpointer data)
{
    static const unsigned offsets[] = {
        PCI_VENDOR_ID,           PCI_REVISION_ID,     PCI_HEADER_TYPE,   PCI_ROM_ADDRESS,
        PCI_SUBSYSTEM_VENDOR_ID, PCI_CAPABILITY_LIST, PCI_INTERRUPT_PIN, TEST_CAP,
        TEST_MSIX_CAP + 4};

    for (unsigned i = 0; i < G_N_ELEMENTS(offsets); i++) {
        uint32_t before = rd(f, offsets[i], 1);

        wr(f, offsets[i], ~before, 1);
        g_assert_cmphex(rd(f, offsets[i], 1), ==, before);
    }
    wr(f, PCI_INTERRUPT_LINE, 0xab, 1);
    g_assert_cmphex(rd(f, PCI_INTERRUPT_LINE, 1), ==, 0xab);
    wr(f, PCI_COMMAND, 0xffff, 2);
    g_assert_cmphex(rd(f, PCI_COMMAND, 2), ==, 0x0507);
}

static void test_config_status_clears_by_writing_one(Fixture *f, gconstpointer data)
{
    f->dev->config[PCI_STATUS + 1] |= PCI_STATUS_SIG_SYSTEM_ERROR >> 8;
    wr(f, PCI_STATUS, 0, 2);
    g_assert_cmphex(rd(f, PCI_STATUS, 2) & PCI_STATUS_SIG_SYSTEM_ERROR, !=, 0);
    wr(f, PCI_STATUS, PCI_STATUS_SIG_SYSTEM_ERROR, 2);
    g_assert_cmphex(rd(f, PCI_STATUS, 2), ==, PCI_STATUS_CAP_LIST);
}

static void test_config_beyond_the_end(Fixture *f, gconstpointer data)
{
    g_assert_cmphex(rd(f, 256, 4), ==, 0xffffffff);
    g_assert_cmphex(rd(f, UINT32_MAX - 1, 4), ==, 0xffffffff);
    g_assert_cmphex(rd(f, 254, 4) & 0xffff0000, ==, 0xffff0000);
    wr(f, 254, 0xffffffff, 4);
    wr(f, UINT32_MAX, 0xffffffff, 4);
    wr(f, 4096, 0xffffffff, 4);
    g_assert_cmpuint(test_pci(f->dev)->config_writes, ==, 1);
    g_assert_cmpuint(test_pci(f->dev)->config_reads, ==, 1);
}

static void test_config_capabilities(Fixture *f, gconstpointer data)
{
    g_assert_cmphex(rd(f, PCI_CAPABILITY_LIST, 1), ==, TEST_MSIX_CAP);
    g_assert_cmphex(rd(f, TEST_MSIX_CAP, 2), ==, TEST_CAP << 8 | PCI_CAP_ID_MSIX);
    g_assert_cmphex(rd(f, TEST_MSIX_CAP + 2, 2), ==, TEST_VECTORS - 1);
    g_assert_cmphex(rd(f, TEST_MSIX_CAP + 4, 4), ==, TEST_BAR_MSIX);
    g_assert_cmphex(rd(f, TEST_MSIX_CAP + 8, 4), ==, 0x800 | TEST_BAR_MSIX);
    g_assert_cmphex(rd(f, TEST_CAP, 2), ==, PCI_CAP_ID_VNDR);
}

static uint32_t size_bar(Fixture *f, unsigned offset)
{
    wr(f, offset, 0xffffffff, 4);
    return rd(f, offset, 4);
}

static void test_bar_sizing(Fixture *f, gconstpointer data)
{
    g_assert_cmphex(size_bar(f, PCI_BASE_ADDRESS_0), ==, 0xffffffe1);
    g_assert_cmphex(size_bar(f, PCI_BASE_ADDRESS_1), ==, 0xfffff000);
    g_assert_cmphex(size_bar(f, PCI_BASE_ADDRESS_2), ==, 0xfffff000);
    g_assert_cmphex(size_bar(f, PCI_BASE_ADDRESS_3), ==, 0);
    g_assert_cmphex(size_bar(f, PCI_BASE_ADDRESS_4), ==, 0xffffc00c);
    g_assert_cmphex(size_bar(f, PCI_BASE_ADDRESS_5), ==, 0xffffffff);
    g_assert_cmphex(size_bar(f, PCI_ROM_ADDRESS), ==, 0);
    /* With decoding on, what sizing leaves behind is heard nowhere. */
    wr(f, PCI_COMMAND, PCI_COMMAND_IO | PCI_COMMAND_MEMORY, 2);
    g_assert_cmpuint(f->host.maps, ==, 0);
}

static void test_bar_decodes_and_moves(Fixture *f, gconstpointer data)
{
    wr(f, PCI_BASE_ADDRESS_0, 0xc000, 4);
    wr(f, PCI_BASE_ADDRESS_2, 0xe0001000, 4);
    wr(f, PCI_BASE_ADDRESS_4, 0x00004000, 4);
    wr(f, PCI_BASE_ADDRESS_5, 0x00000001, 4);
    g_assert_cmphex(mapped(f, TEST_BAR_IO), ==, UINT64_MAX);
    wr(f, PCI_COMMAND, PCI_COMMAND_IO, 2);
    g_assert_cmphex(mapped(f, TEST_BAR_IO), ==, 0xc000);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM), ==, UINT64_MAX);
    wr(f, PCI_COMMAND, PCI_COMMAND_IO | CMD_MEM, 2);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM), ==, 0xe0001000);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM64), ==, 0x100004000);
    /* One byte of the register is enough to move it. */
    wr(f, PCI_BASE_ADDRESS_2 + 2, 0x10, 1);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM), ==, 0xe0101000);
    wr(f, PCI_COMMAND, 0, 2);
    g_assert_cmphex(mapped(f, TEST_BAR_IO), ==, UINT64_MAX);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM64), ==, UINT64_MAX);
    g_assert_cmpuint(f->host.maps, ==, f->host.unmaps);
}

static void test_bar_bad_addresses_do_not_decode(Fixture *f, gconstpointer data)
{
    wr(f, PCI_COMMAND, PCI_COMMAND_IO | CMD_MEM, 2);
    wr(f, PCI_BASE_ADDRESS_0, 0x10000, 4); /* beyond 64 K of ports */
    g_assert_cmphex(mapped(f, TEST_BAR_IO), ==, UINT64_MAX);
    wr(f, PCI_BASE_ADDRESS_0, 0xffe0, 4);
    g_assert_cmphex(mapped(f, TEST_BAR_IO), ==, 0xffe0);
    wr(f, PCI_BASE_ADDRESS_2, 0xfffff000, 4);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM), ==, UINT64_MAX);
    wr(f, PCI_BASE_ADDRESS_4, 0xffffc000, 4);
    wr(f, PCI_BASE_ADDRESS_5, 0xffffffff, 4);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM64), ==, UINT64_MAX);
}

static void test_bar_reset_unmaps(Fixture *f, gconstpointer data)
{
    wr(f, PCI_BASE_ADDRESS_2, 0xe0001000, 4);
    wr(f, PCI_COMMAND, CMD_MEM | PCI_COMMAND_MASTER, 2);
    device_reset(&f->dev->parent_obj);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM), ==, UINT64_MAX);
    g_assert_cmphex(rd(f, PCI_BASE_ADDRESS_2, 4), ==, 0);
    g_assert_cmphex(rd(f, PCI_BASE_ADDRESS_4, 4), ==, 0xc);
    g_assert_cmphex(rd(f, PCI_COMMAND, 2), ==, 0);
    g_assert_false(f->dev->dma.enabled);
}

static void test_bar_unplug_unmaps(Fixture *f, gconstpointer data)
{
    wr(f, PCI_BASE_ADDRESS_2, 0xe0001000, 4);
    wr(f, PCI_COMMAND, CMD_MEM, 2);
    pci_set_irq(f->dev, true);
    g_assert_cmpint(f->host.irq[0], ==, 1);
    device_remove(&f->dev->parent_obj);
    f->dev = NULL;
    g_assert_cmpuint(f->host.unmaps, ==, 1);
    g_assert_cmpint(f->host.irq[0], ==, 0);
    g_assert_null(f->host.bus->devices[PCI_DEVFN(4, 0)]);
}

static void test_bus_master_gates_dma(Fixture *f, gconstpointer data)
{
    g_autofree uint8_t *ram = g_malloc0(8192);
    MemoryRange range = {.addr = 0x1000, .size = 8192, .host = ram, .fd = -1};
    MemoryMap *map = memory_map_new(&range, 1, NULL);
    uint8_t byte = 0x5a;

    pci_host_set_memory(&f->host.pci, f->host.bus, map);
    g_assert_false(dma_write(&f->dev->dma, 0x1000, &byte, 1));
    wr(f, PCI_COMMAND, PCI_COMMAND_MASTER, 2);
    g_assert_true(dma_write(&f->dev->dma, 0x1000, &byte, 1));
    g_assert_cmphex(ram[0], ==, 0x5a);
    wr(f, PCI_COMMAND, 0, 2);
    g_assert_false(dma_read(&f->dev->dma, 0x1000, &byte, 1));
    device_remove(&f->dev->parent_obj);
    f->dev = NULL;
    memory_map_unref(f->host.pci.memory);
    memory_map_unref(map);
}

static void test_intx_status_and_disable(Fixture *f, gconstpointer data)
{
    pci_set_irq(f->dev, true);
    pci_set_irq(f->dev, true);
    g_assert_cmpint(f->host.irq[0], ==, 1);
    g_assert_cmphex(rd(f, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT, !=, 0);
    wr(f, PCI_COMMAND, PCI_COMMAND_INTX_DISABLE, 2);
    g_assert_cmpint(f->host.irq[0], ==, 0);
    /* The status bit shows what the device wants, whatever the disable bit says. */
    g_assert_cmphex(rd(f, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT, !=, 0);
    wr(f, PCI_COMMAND, 0, 2);
    g_assert_cmpint(f->host.irq[0], ==, 1);
    pci_set_irq(f->dev, false);
    g_assert_cmpint(f->host.irq[0], ==, 0);
    g_assert_cmphex(rd(f, PCI_STATUS, 2) & PCI_STATUS_INTERRUPT, ==, 0);
}

static void test_config_loaded_derives_all(Fixture *f, gconstpointer data)
{
    pci_set_long(f->dev->config + PCI_BASE_ADDRESS_2, 0xe0002000);
    pci_set_word(f->dev->config + PCI_COMMAND, CMD_MEM | PCI_COMMAND_MASTER);
    pci_set_word(f->dev->config + TEST_MSIX_CAP + 2, PCI_MSIX_FLAGS_ENABLE | (TEST_VECTORS - 1));
    pci_config_loaded(f->dev);
    g_assert_cmphex(mapped(f, TEST_BAR_MEM), ==, 0xe0002000);
    g_assert_true(f->dev->dma.enabled);
    g_assert_true(msix_enabled(f->dev));
}

/* Whatever is written where, read-only bytes stay, the list can be walked, nothing breaks. */
static void test_config_random_writes(Fixture *f, gconstpointer data)
{
    GRand *rand = g_rand_new_with_seed(20081);

    for (unsigned i = 0; i < 200000; i++) {
        unsigned offset = g_rand_int(rand) % 300, size = 1 + g_rand_int(rand) % 4;

        wr(f, offset, g_rand_int(rand), size);
        rd(f, g_rand_int(rand) % 300, 1 + g_rand_int(rand) % 4);
        if (i % 100 == 0) {
            pci_set_irq(f->dev, g_rand_boolean(rand));
            msix_notify(f->dev, g_rand_int(rand) % 8);
        }
    }
    g_rand_free(rand);
    device_reset(&f->dev->parent_obj);
    test_config_capabilities(f, data);
    test_config_identity(f, data);
    g_assert_cmpuint(f->host.maps, ==, f->host.unmaps);
    pci_set_irq(f->dev, false);
    g_assert_cmpint(f->host.irq[0], ==, 0);
}

/* --- places --- */

static void expect_error(GError *err, const char *text)
{
    g_assert_nonnull(err);
    if (!strstr(err->message, text)) {
        g_test_message("got: %s", err->message);
        g_assert_cmpstr(err->message, ==, text);
    }
    g_error_free(err);
}

static void place_fails(TestHost *host, const char *addr, const char *text)
{
    GError *err = NULL;

    g_assert_null(test_device_try(host, addr, 1, &err));
    expect_error(err, text);
}

static void test_place_addr_spellings(void)
{
    static const struct {
        const char *text;
        int devfn;
    } good[] = {{"04.0", 0x20}, {"4", 0x20},    {"0x4", 0x20},
                {"10", 0x80},   {"1f.7", 0xff}, {"0x06.0x3", 0x33}};
    static const char *const bad[] = {
        "",   "20", "4.8", "4.", ".1",  "4.0.0", "zz",
        "-1", " 4", "4 ",  "0x", "4:0", "+4",    "99999999999999999999999"};
    TestHost host;

    test_host_init(&host);
    for (unsigned i = 0; i < G_N_ELEMENTS(good); i++) {
        GError *err = NULL;
        PCIDevice *dev = test_device_try(&host, good[i].text, 1, &err);

        g_assert_no_error(err);
        g_assert_cmpint(dev->devfn, ==, good[i].devfn);
        device_remove(&dev->parent_obj);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        place_fails(&host, bad[i], "test-pci.addr");
    }
    test_host_cleanup(&host);
}

static void test_place_addr_json_is_devfn(void)
{
    PCIDevice *dev = PCI_DEVICE(object_new(test_pci_get_type()));
    json_object *value = json_object_new_int(10);
    GError *err = NULL;

    g_assert_true(object_set_property((Object *)dev, "addr", value, &err));
    g_assert_cmpint(dev->devfn, ==, 10);
    json_object_put(value);
    value = json_object_new_int(256);
    g_assert_false(object_set_property((Object *)dev, "addr", value, &err));
    expect_error(err, "256");
    g_assert_cmpint(dev->devfn, ==, 10);
    json_object_put(value);
    value = object_get_property((Object *)dev, "addr", NULL);
    g_assert_cmpint(json_object_get_int(value), ==, 10);
    json_object_put(value);
    g_object_unref(dev);
}

static void test_place_conflict_and_first_free(void)
{
    TestHost host;
    PCIDevice *devs[30];

    test_host_init(&host);
    for (unsigned i = 0; i < G_N_ELEMENTS(devs); i++) {
        devs[i] = test_device_new(&host, NULL);
        g_assert_cmpint(devs[i]->devfn, ==, (int)PCI_DEVFN(i + 2, 0));
    }
    place_fails(&host, NULL, "PCI: no slot/function available for test-pci, all in use");
    place_fails(&host, "5",
                "PCI: slot 5 function 0 not available for test-pci, in use by test-pci");
    device_remove(&devs[7]->parent_obj);
    devs[7] = test_device_new(&host, NULL);
    g_assert_cmpint(devs[7]->devfn, ==, (int)PCI_DEVFN(9, 0));
    for (unsigned i = 0; i < G_N_ELEMENTS(devs); i++) {
        device_remove(&devs[i]->parent_obj);
    }
    test_host_cleanup(&host);
}

static void test_place_multifunction(void)
{
    TestHost host;
    PCIDevice *f0, *f1;
    GError *err = NULL;

    test_host_init(&host);
    f0 = test_device_new(&host, "4.0");
    place_fails(&host, "4.1", "single function device can't be populated in function 4.1");
    device_remove(&f0->parent_obj);

    f1 = test_device_new(&host, "4.1");
    place_fails(&host, "4.0", "4.0 indicates single function, but 4.1 is already populated");
    f0 = PCI_DEVICE(object_new(test_pci_get_type()));
    f0->multifunction = true;
    f0->devfn = PCI_DEVFN(4, 0);
    g_assert_true(device_realize(&f0->parent_obj, &host.bus->parent_obj, &err));
    g_assert_cmphex(pci_config_read(f0, PCI_HEADER_TYPE, 1), ==, 0x80);
    device_remove(&f1->parent_obj);
    device_remove(&f0->parent_obj);
    test_host_cleanup(&host);
}

static void test_place_given_back_when_realize_fails(void)
{
    TestHost host;
    PCIDevice *dev;
    GError *err = NULL;

    test_host_init(&host);
    dev = PCI_DEVICE(object_new(test_pci_get_type()));
    test_pci(dev)->fail = true;
    g_assert_false(device_realize(&dev->parent_obj, &host.bus->parent_obj, &err));
    expect_error(err, "fails as asked");
    g_assert_null(host.bus->devices[PCI_DEVFN(2, 0)]);
    dev = test_device_new(&host, NULL);
    g_assert_cmpint(dev->devfn, ==, (int)PCI_DEVFN(2, 0));
    device_remove(&dev->parent_obj);
    test_host_cleanup(&host);
}

static void test_place_path_and_listing(void)
{
    TestHost host;
    PCIDevice *dev;
    g_autofree char *path = NULL;
    GString *out = g_string_new(NULL);

    test_host_init(&host);
    dev = test_device_new(&host, "4.0");
    path = device_path(&dev->parent_obj);
    g_assert_cmpstr(path, ==, "0000:00:04.0");
    BUS_GET_CLASS(host.bus)->print_device(&dev->parent_obj, out, 2);
    g_assert_nonnull(strstr(out->str, "class Ethernet controller, addr 00:04.0, pci id 1af4:10f0"));
    g_assert_nonnull(strstr(out->str, "bar 0: i/o at"));
    g_string_free(out, TRUE);
    device_remove(&dev->parent_obj);
    test_host_cleanup(&host);
}

static void test_rom_empty_and_missing(void)
{
    TestHost host;
    PCIDevice *dev;
    GError *err = NULL;

    test_host_init(&host);
    dev = PCI_DEVICE(object_new(test_pci_get_type()));
    dev->romfile = g_strdup("");
    g_assert_true(device_realize(&dev->parent_obj, &host.bus->parent_obj, &err));
    g_assert_null(dev->bars[6].region);
    device_remove(&dev->parent_obj);

    dev = PCI_DEVICE(object_new(test_pci_get_type()));
    dev->romfile = g_strdup("/nonexistent/x.rom");
    g_assert_false(device_realize(&dev->parent_obj, &host.bus->parent_obj, &err));
    expect_error(err, "/nonexistent/x.rom");
    test_host_cleanup(&host);
}

static void test_rom_is_read_only_memory(void)
{
    TestHost host;
    PCIDevice *dev;
    GError *err = NULL;
    g_autofree char *path = NULL;
    int fd = g_file_open_tmp("test-rom-XXXXXX", &path, NULL);
    char bytes[3000];

    g_assert_cmpint(fd, >=, 0);
    memset(bytes, 0x77, sizeof(bytes));
    g_assert_true(g_file_set_contents(path, bytes, sizeof(bytes), NULL));
    close(fd);
    test_host_init(&host);
    dev = PCI_DEVICE(object_new(test_pci_get_type()));
    dev->romfile = g_strdup(path);
    g_assert_true(device_realize(&dev->parent_obj, &host.bus->parent_obj, &err));
    pci_config_write(dev, PCI_ROM_ADDRESS, 0xffffffff, 4);
    g_assert_cmphex(pci_config_read(dev, PCI_ROM_ADDRESS, 4), ==, 0xfffff001);
    pci_config_write(dev, PCI_COMMAND, CMD_MEM, 2);
    pci_config_write(dev, PCI_ROM_ADDRESS, 0xe0100000, 4);
    g_assert_cmphex(dev->bars[6].mapped_at, ==, UINT64_MAX);
    pci_config_write(dev, PCI_ROM_ADDRESS, 0xe0100001, 4);
    g_assert_cmphex(dev->bars[6].mapped_at, ==, 0xe0100000);
    g_assert_cmphex(io_region_read(&dev->rom_region, 2998, 4), ==, 0x7777);
    device_remove(&dev->parent_obj);
    test_host_cleanup(&host);
    unlink(path);
}

#define ADD(path, fn) g_test_add("/pci/" path, Fixture, NULL, setup, fn, teardown)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    test_register_types();
    ADD("config/identity", test_config_identity);
    ADD("config/read-only-bytes-stay", test_config_read_only_bytes_stay);
    ADD("config/status-clears-by-writing-one", test_config_status_clears_by_writing_one);
    ADD("config/beyond-the-end-is-ones", test_config_beyond_the_end);
    ADD("config/capabilities-last-added-is-first", test_config_capabilities);
    ADD("config/random-writes-break-nothing", test_config_random_writes);
    ADD("config/loaded-state-derives-all", test_config_loaded_derives_all);
    ADD("bar/sizing-io-32-64", test_bar_sizing);
    ADD("bar/decodes-and-moves", test_bar_decodes_and_moves);
    ADD("bar/bad-addresses-do-not-decode", test_bar_bad_addresses_do_not_decode);
    ADD("bar/reset-unmaps", test_bar_reset_unmaps);
    ADD("bar/unplug-unmaps-and-lowers-intx", test_bar_unplug_unmaps);
    ADD("bus-master/gates-dma", test_bus_master_gates_dma);
    ADD("intx/status-and-disable", test_intx_status_and_disable);
    g_test_add_func("/pci/place/addr-spellings", test_place_addr_spellings);
    g_test_add_func("/pci/place/addr-json-is-devfn", test_place_addr_json_is_devfn);
    g_test_add_func("/pci/place/conflict-and-first-free", test_place_conflict_and_first_free);
    g_test_add_func("/pci/place/multifunction", test_place_multifunction);
    g_test_add_func("/pci/place/given-back-when-realize-fails",
                    test_place_given_back_when_realize_fails);
    g_test_add_func("/pci/place/path-and-listing", test_place_path_and_listing);
    g_test_add_func("/pci/rom/empty-and-missing", test_rom_empty_and_missing);
    g_test_add_func("/pci/rom/is-read-only-memory", test_rom_is_read_only_memory);
    return g_test_run();
}
