/* The device as PCI sees it: identity, layout, BARs, Bus Master Enable, places on the bus. */
#include <linux/pci_regs.h>
#include <linux/virtio_pci.h>
#include <string.h>

#include "tests/lib/rig.h"

static uint32_t rd(Rig *rig, unsigned width, uint8_t offset)
{
    return guest_pci_config_read(rig->pci, width, offset);
}

static void wr(Rig *rig, unsigned width, uint8_t offset, uint32_t value)
{
    guest_pci_config_write(rig->pci, width, offset, value);
}

static void test_identity_transitional(void)
{
    Rig *rig = rig_open(NULL);

    g_assert_cmphex(rd(rig, 4, PCI_VENDOR_ID), ==, 0x10001af4);
    g_assert_cmphex(rd(rig, 4, PCI_REVISION_ID), ==, 0x02000000);
    g_assert_cmphex(rd(rig, 4, PCI_SUBSYSTEM_VENDOR_ID), ==, 0x00011af4);
    g_assert_cmphex(rd(rig, 1, PCI_HEADER_TYPE), ==, 0);
    g_assert_cmphex(rd(rig, 1, PCI_INTERRUPT_PIN), ==, 1);
    g_assert_cmphex(rd(rig, 2, PCI_STATUS) & PCI_STATUS_CAP_LIST, !=, 0);
    rig_free(rig);
}

static void test_identity_modern(void)
{
    Rig *rig = rig_open(&(RigConfig){.device = "disable-legacy=on"});

    g_assert_cmphex(rd(rig, 4, PCI_VENDOR_ID), ==, 0x10411af4);
    g_assert_cmphex(rd(rig, 4, PCI_REVISION_ID), ==, 0x02000001);
    g_assert_cmphex(rd(rig, 4, PCI_SUBSYSTEM_VENDOR_ID), ==, 0x11001af4);
    g_assert_cmphex(rig->pci->bars[0].size, ==, 0);
    rig_free(rig);
}

/* A saved device loads elsewhere only if these bytes are the same. */
static void test_layout_capabilities(void)
{
    static const struct {
        uint8_t at, next, type, bar, length;
        uint32_t offset, size;
    } caps[] = {
        {0x84, 0x70, VIRTIO_PCI_CAP_PCI_CFG, 0, 20, 0, 0},
        {0x70, 0x60, VIRTIO_PCI_CAP_NOTIFY_CFG, 4, 20, 0x3000, 0x1000},
        {0x60, 0x50, VIRTIO_PCI_CAP_DEVICE_CFG, 4, 16, 0x2000, 0x1000},
        {0x50, 0x40, VIRTIO_PCI_CAP_ISR_CFG, 4, 16, 0x1000, 0x1000},
        {0x40, 0x00, VIRTIO_PCI_CAP_COMMON_CFG, 4, 16, 0x0000, 0x1000},
    };
    Rig *rig = rig_open(NULL);

    g_assert_cmphex(rd(rig, 1, PCI_CAPABILITY_LIST), ==, 0x98);
    g_assert_cmphex(rd(rig, 2, 0x98), ==, 0x8411);
    g_assert_cmphex(rd(rig, 2, 0x9a), ==, 3); /* four vectors */
    g_assert_cmphex(rd(rig, 4, 0x9c), ==, 1);
    g_assert_cmphex(rd(rig, 4, 0xa0), ==, 0x801);
    for (unsigned i = 0; i < G_N_ELEMENTS(caps); i++) {
        uint8_t at = caps[i].at;

        g_assert_cmphex(rd(rig, 1, at), ==, PCI_CAP_ID_VNDR);
        g_assert_cmphex(rd(rig, 1, at + VIRTIO_PCI_CAP_NEXT), ==, caps[i].next);
        g_assert_cmphex(rd(rig, 1, at + VIRTIO_PCI_CAP_LEN), ==, caps[i].length);
        g_assert_cmphex(rd(rig, 1, at + VIRTIO_PCI_CAP_CFG_TYPE), ==, caps[i].type);
        g_assert_cmphex(rd(rig, 1, at + VIRTIO_PCI_CAP_BAR), ==, caps[i].bar);
        g_assert_cmphex(rd(rig, 4, at + VIRTIO_PCI_CAP_OFFSET), ==, caps[i].offset);
        g_assert_cmphex(rd(rig, 4, at + VIRTIO_PCI_CAP_LENGTH), ==, caps[i].size);
    }
    g_assert_cmphex(rd(rig, 4, 0x70 + VIRTIO_PCI_NOTIFY_CAP_MULT), ==, 4);
    rig_free(rig);
}

static void test_layout_bars(void)
{
    Rig *rig = rig_open(NULL);
    const GuestPciBar *bars = rig->pci->bars;

    g_assert_true(bars[0].is_io);
    g_assert_cmpuint(bars[0].size, ==, 32);
    g_assert_false(bars[1].is_io || bars[1].is_64bit || bars[1].is_prefetchable);
    g_assert_cmpuint(bars[1].size, ==, 4096);
    g_assert_cmpuint(bars[2].size + bars[3].size + bars[5].size, ==, 0);
    g_assert_true(bars[4].is_64bit && bars[4].is_prefetchable);
    g_assert_cmpuint(bars[4].size, ==, 16384);
    rig_free(rig);
}

static void test_layout_page_per_vq(void)
{
    Rig *rig = rig_open(&(RigConfig){.device = "page-per-vq=on"});

    g_assert_cmpuint(rig->pci->bars[4].size, ==, 8 << 20);
    g_assert_cmphex(rd(rig, 4, 0x70 + VIRTIO_PCI_NOTIFY_CAP_MULT), ==, 0x1000);
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_layout_vectors_zero(void)
{
    Rig *rig = rig_open(&(RigConfig){.device = "vectors=0"});

    g_assert_cmphex(rd(rig, 1, PCI_CAPABILITY_LIST), ==, 0x84);
    g_assert_cmpuint(rig->pci->msix_vectors, ==, 0);
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_config_read_only(void)
{
    static const uint8_t offsets[] = {0x00, 0x02, 0x06, 0x08, 0x0a, 0x0e, 0x2c, 0x2e,
                                      0x34, 0x3d, 0x40, 0x44, 0x48, 0x98, 0x9c, 0xa0};
    Rig *rig = rig_open(NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(offsets); i++) {
        uint32_t before = rd(rig, 1, offsets[i]);

        wr(rig, 1, offsets[i], ~before & 0xff);
        g_assert_cmphex(rd(rig, 1, offsets[i]), ==, before);
    }
    rig_free(rig);
}

/* Any write anywhere in configuration space: the device can be opened and used afterwards. */
static void test_config_random_writes(void)
{
    Rig *rig = rig_open(NULL);
    GRand *rand = g_rand_new_with_seed(1);

    for (unsigned i = 0; i < 2000; i++) {
        unsigned width = 1u << (g_rand_int(rand) % 3);

        wr(rig, width, (uint8_t)(g_rand_int(rand) % (257 - width)), g_rand_int(rand));
    }
    g_rand_free(rand);
    rig_check(rig);
    qtest_client_command(rig->qtest, NULL, NULL, "outl 0xcf8 0x80002004");
    json_object_put(qmp_client_execute(rig->qmp, "system_reset", NULL, NULL));
    json_object_put(qmp_client_wait_event(rig->qmp, "RESET", RIG_TIMEOUT_MS, NULL));
    virtio_driver_free(rig->virtio);
    g_free(rig->pci);
    guest_pci_bus_init(&rig->bus, rig->qtest);
    rig->pci = guest_pci_device_open(&rig->bus, RIG_DEVFN, NULL);
    g_assert_nonnull(rig->pci);
    rig->virtio = virtio_driver_new(rig->pci, rig->ram, NULL);
    g_assert_nonnull(rig->virtio);
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_bar_move(void)
{
    Rig *rig = rig_new(NULL);
    uint64_t old = rig->pci->bars[4].addr;
    uint64_t fresh = 0xf0000000;

    rig_expect_working(rig);
    wr(rig, 4, PCI_BASE_ADDRESS_4, (uint32_t)fresh);
    g_assert_cmphex(qtest_client_load(rig->qtest, 1, old + VIRTIO_PCI_COMMON_STATUS), !=, 0xf);
    rig->pci->bars[4].addr = fresh;
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
    rig_expect_working(rig);
    /* Above 4 GiB, and back by switching memory decoding off in between. */
    wr(rig, 2, PCI_COMMAND, PCI_COMMAND_MASTER);
    wr(rig, 4, PCI_BASE_ADDRESS_5, 2);
    wr(rig, 2, PCI_COMMAND, PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY);
    rig->pci->bars[4].addr = fresh | 2ull << 32;
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_bar_decoding_off(void)
{
    Rig *rig = rig_new(NULL);

    wr(rig, 2, PCI_COMMAND, PCI_COMMAND_MASTER);
    g_assert_cmphex(virtio_driver_status(rig->virtio), !=, 0xf);
    wr(rig, 2, PCI_COMMAND, PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_bus_master_off_moves_nothing(void)
{
    Rig *rig = rig_new(NULL);
    uint8_t frame[60];
    uint64_t addr = rig_alloc(rig, RIG_HDR + sizeof(frame));
    struct vring_used_elem used;

    rig_post_buffer(rig, 0, 2048);
    rig_settle(rig);
    guest_pci_set_bus_master(rig->pci, false);
    frame_fill(frame, sizeof(frame), 1);
    memcpy(rig_at(rig, addr + RIG_HDR, sizeof(frame)), frame, sizeof(frame));
    ring_set(rig->tx, 0, addr, RIG_HDR + sizeof(frame), 0, 0);
    ring_send(rig, rig->tx, 0);
    rig_peer_send(rig, frame, sizeof(frame));
    rig_peer_expect_nothing(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
    g_assert_cmpuint(ring_used_count(rig->rx), ==, 0);
    /* On again: the device goes on with what waits (QEMU wants DRIVER_OK again). */
    guest_pci_set_bus_master(rig->pci, true);
    virtio_driver_set_status(rig->virtio, 0xf);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, 0);
    rig_peer_expect(rig, frame, sizeof(frame));
    rig_free(rig);
}

/* The window in configuration space reaches the structures in the BARs. */
static void test_pci_cfg_window(void)
{
    Rig *rig = rig_open(NULL);
    uint8_t at = 0x84;

    wr(rig, 1, at + VIRTIO_PCI_CAP_BAR, 4);
    wr(rig, 4, at + VIRTIO_PCI_CAP_OFFSET, VIRTIO_PCI_COMMON_STATUS);
    wr(rig, 4, at + VIRTIO_PCI_CAP_LENGTH, 1);
    g_assert_cmphex(rd(rig, 1, at + 16), ==, 3); /* ACKNOWLEDGE | DRIVER */
    wr(rig, 1, at + 16, 0);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0);
    wr(rig, 1, at + 16, 1);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 1);
    wr(rig, 4, at + VIRTIO_PCI_CAP_OFFSET, 0x2000);
    wr(rig, 4, at + VIRTIO_PCI_CAP_LENGTH, 4);
    g_assert_cmphex(rd(rig, 4, at + 16), ==, 0x12005452); /* MAC 52:54:00:12 */
    /* Lengths, BARs and offsets that are not there read and write nothing. */
    for (uint32_t i = 0; i < 256; i++) {
        wr(rig, 1, at + VIRTIO_PCI_CAP_BAR, i);
        wr(rig, 4, at + VIRTIO_PCI_CAP_LENGTH, i % 9);
        wr(rig, 4, at + VIRTIO_PCI_CAP_OFFSET, i & 1 ? 0xfffffffe : 0x4000 + i);
        rd(rig, 4, at + 16);
        wr(rig, 4, at + 16, 0xffffffff);
    }
    rig_restart(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void expect_device_at(const char *device, uint8_t devfn)
{
    const char *args[] = {"-device", device, NULL};
    Rig *rig = rig_open(&(RigConfig){.args = args});
    GError *err = NULL;
    GuestPciDevice *dev = guest_pci_device_open(&rig->bus, devfn, &err);

    g_assert_no_error(err);
    g_assert_cmphex(dev->vendor_id, ==, 0x1af4);
    g_free(dev);
    rig_free(rig);
}

static void test_place_addr(void)
{
    expect_device_at("virtio-net-pci,romfile=,addr=10", 0x80);
    expect_device_at("virtio-net-pci,romfile=,addr=1f.7", 0xff);
    expect_device_at("{\"driver\":\"virtio-net-pci\",\"romfile\":\"\",\"addr\":\"0x06\"}", 0x30);
}

/* Nothing but the bridges is below: slot 2 with -nodefaults. */
static void test_place_first_free(void)
{
    expect_device_at("virtio-net-pci,romfile=", 0x10);
}

static void test_bridges(void)
{
    Rig *rig = rig_open(NULL);

    g_assert_cmphex(guest_pci_bus_read(&rig->bus, 0, 0x00, 4, 0), ==, 0x12378086);
    g_assert_cmphex(guest_pci_bus_read(&rig->bus, 0, 0x08, 4, 0), ==, 0x70008086);
    g_assert_cmphex(guest_pci_bus_read(&rig->bus, 0, 0x08, 2, 0x0a), ==, 0x0601);
    g_assert_cmphex(guest_pci_bus_read(&rig->bus, 0, 0x08, 4, 0x60), ==, 0x80808080);
    g_assert_cmphex(guest_pci_bus_read(&rig->bus, 0, 0xf8, 4, 0), ==, 0xffffffff);
    rig_free(rig);
}

/* --- hotplug --- */

static void plug(Rig *rig)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(
        rig->qmp, "device_add", &err,
        "{\"driver\": \"virtio-net-pci\", \"id\": \"hot\", \"addr\": \"7\", \"romfile\": \"\"}"));
    g_assert_no_error(err);
    g_assert_cmphex(guest_pci_bus_read(&rig->bus, 0, 0x38, 2, 0), ==, 0x1af4);
}

static void expect_deleted(Rig *rig, const char *id, const char *path)
{
    GError *err = NULL;
    json_object *event = qmp_client_wait_event(rig->qmp, "DEVICE_DELETED", RIG_TIMEOUT_MS, &err);
    json_object *data, *value;

    g_assert_no_error(err);
    data = json_object_object_get(event, "data");
    g_assert_cmpstr(json_object_get_string(json_object_object_get(data, "path")), ==, path);
    value = json_object_object_get(data, "device");
    g_assert_cmpstr(value ? json_object_get_string(value) : NULL, ==, id);
    json_object_put(event);
}

static void ask_unplug(Rig *rig)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(rig->qmp, "device_del", &err, "{\"id\": \"hot\"}"));
    g_assert_no_error(err);
    g_assert_cmphex(qtest_client_in(rig->qtest, 4, 0xae04), ==, 1 << 7);
    if (!rig->is_swnic) {
        return; /* QEMU 7.2 takes the request again, newer ones do not */
    }
    json_object_put(qmp_client_executef(rig->qmp, "device_del", &err, "{\"id\": \"hot\"}"));
    g_assert_nonnull(err);
    g_assert_nonnull(strstr(err->message, "Device hot is already in the process of unplug"));
    g_clear_error(&err);
}

static void expect_gone(Rig *rig)
{
    expect_deleted(rig, NULL, "/machine/peripheral/hot/virtio-backend");
    expect_deleted(rig, "hot", "/machine/peripheral/hot");
    g_assert_cmphex(guest_pci_bus_read(&rig->bus, 0, 0x38, 2, 0), ==, 0xffff);
}

static void test_hotplug_eject(void)
{
    Rig *rig = rig_new(NULL);

    for (unsigned i = 0; i < 3; i++) {
        plug(rig);
        ask_unplug(rig);
        qtest_client_out(rig->qtest, 4, 0xae08, 1 << 7);
        expect_gone(rig);
    }
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_hotplug_reset(void)
{
    Rig *rig = rig_open(NULL);
    GError *err = NULL;

    plug(rig);
    ask_unplug(rig);
    json_object_put(qmp_client_execute(rig->qmp, "system_reset", NULL, &err));
    g_assert_no_error(err);
    expect_gone(rig);
    json_object_put(qmp_client_wait_event(rig->qmp, "RESET", RIG_TIMEOUT_MS, &err));
    g_assert_no_error(err);
    rig_free(rig);
}

static void test_hotplug_errors(void)
{
    static const struct {
        const char *args, *text;
    } rows[] = {
        {"{\"driver\": \"virtio-net-pci\", \"id\": \"nic0\"}", "nic0"},
        {"{\"driver\": \"virtio-net-pci\", \"id\": \"x\", \"addr\": \"4\"}", "slot 4 function 0"},
        {"{\"driver\": \"virtio-net-pci\", \"id\": \"x\", \"addr\": \"20\"}", "20"},
        {"{\"driver\": \"virtio-net-pci\", \"id\": \"x\", \"netdev\": \"n0\"}", "n0"},
        {"{\"driver\": \"virtio-net-pci\", \"id\": \"x\", \"netdev\": \"nope\"}", "nope"},
        {"{\"driver\": \"virtio-net-pci\", \"id\": \"x\", \"nothing\": \"1\"}", "nothing"},
        {"{\"driver\": \"virtio-net-pci\", \"id\": \"x\", \"bus\": \"pci.9\"}", "pci.9"},
        {"{\"driver\": \"nothing\", \"id\": \"x\"}", "nothing"},
    };
    Rig *rig = rig_new(NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        GError *err = NULL;

        json_object_put(qmp_client_executef(rig->qmp, "device_add", &err, "%s", rows[i].args));
        g_assert_nonnull(err);
        if (!strstr(err->message, rows[i].text)) {
            g_error("device_add %s: '%s' does not name %s", rows[i].args, err->message,
                    rows[i].text);
        }
        g_clear_error(&err);
        json_object_put(qmp_client_executef(rig->qmp, "device_del", &err, "{\"id\": \"x\"}"));
        g_assert_nonnull(err);
        g_clear_error(&err);
    }
    rig_expect_working(rig);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pci/identity/transitional", test_identity_transitional);
    g_test_add_func("/pci/identity/modern", test_identity_modern);
    g_test_add_func("/pci/layout/capabilities", test_layout_capabilities);
    g_test_add_func("/pci/layout/bars", test_layout_bars);
    g_test_add_func("/pci/layout/page-per-vq", test_layout_page_per_vq);
    g_test_add_func("/pci/layout/vectors-0-has-no-msix", test_layout_vectors_zero);
    g_test_add_func("/pci/config/read-only-bytes-stay", test_config_read_only);
    g_test_add_func("/pci/config/random-writes-then-reset-works", test_config_random_writes);
    g_test_add_func("/pci/config/window-reaches-structures", test_pci_cfg_window);
    g_test_add_func("/pci/bar/moves-while-running", test_bar_move);
    g_test_add_func("/pci/bar/decoding-off-and-on", test_bar_decoding_off);
    g_test_add_func("/pci/bus-master/off-moves-nothing", test_bus_master_off_moves_nothing);
    g_test_add_func("/pci/place/addr-is-hexadecimal", test_place_addr);
    g_test_add_func("/pci/place/first-free-slot-is-2", test_place_first_free);
    g_test_add_func("/pci/bridges", test_bridges);
    g_test_add_func("/pci/hotplug/eject-completes-device-del", test_hotplug_eject);
    g_test_add_func("/pci/hotplug/reset-completes-device-del", test_hotplug_reset);
    g_test_add_func("/pci/hotplug/errors-change-nothing", test_hotplug_errors);
    return g_test_run();
}
