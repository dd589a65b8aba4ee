/* The pc machine: configuration ports, BARs in its spaces, PIRQ routes, fw_cfg, hotplug. */
#include "tests/unit/pci-test-device.h"

#include "hw/i386/pc.h"
#include "util/event-loop.h"

#define DEV_ADDR 0x80002000u /* 00:04.0 */
#define ISA_ADDR 0x80000800u /* 00:01.0 */

typedef struct Fixture {
    MachineState *machine;
    PCIDevice *dev;
    int raised[PC_IRQ_LINES], lowered[PC_IRQ_LINES];
} Fixture;

static void on_irq(void *opaque, int line, int level)
{
    Fixture *f = opaque;

    (level ? f->raised : f->lowered)[line]++;
}

static DeviceState *add(const char *json, GError **errp)
{
    json_object *options = json_tokener_parse(json);
    DeviceState *dev = device_add(options, errp);

    json_object_put(options);
    return dev;
}

static void setup(Fixture *f, gconstpointer data)
{
    GError *err = NULL;
    MachineClass *mc = machine_class_find("pc", &err);

    g_assert_no_error(err);
    f->machine = machine_new(mc);
    g_assert_true(machine_init(f->machine, &err));
    f->machine->irq_intercept = on_irq;
    f->machine->irq_intercept_opaque = f;
    f->dev = PCI_DEVICE(add("{\"driver\":\"test-pci\",\"id\":\"t0\",\"addr\":\"04.0\"}", &err));
    g_assert_no_error(err);
    device_set_machine_ready(true);
    machine_reset_devices();
}

static void teardown(Fixture *f, gconstpointer data)
{
    device_set_machine_ready(false);
    machine_free(f->machine);
}

static void out(Fixture *f, uint16_t port, uint32_t value, unsigned size)
{
    io_space_write(&f->machine->ports, port, value, size);
}

static uint32_t in(Fixture *f, uint16_t port, unsigned size)
{
    uint64_t value = 0;

    io_space_read(&f->machine->ports, port, &value, size);
    return (uint32_t)value;
}

static uint32_t config_in(Fixture *f, uint32_t addr, unsigned size)
{
    out(f, 0xcf8, addr, 4);
    return in(f, 0xcfc, size);
}

static void config_out(Fixture *f, uint32_t addr, uint32_t value, unsigned size)
{
    out(f, 0xcf8, addr, 4);
    out(f, 0xcfc, value, size);
}

static void test_class(Fixture *f, gconstpointer data)
{
    MachineClass *mc = MACHINE_GET_CLASS(f->machine);

    g_assert_cmpstr(mc->name, ==, PC_MACHINE_DEFAULT);
    g_assert_cmpstr(mc->alias, ==, "pc");
    g_assert_true(machine_class_default() == mc);
    g_assert_nonnull(machine_class_find("pc-i440fx-11.1", NULL));
    g_assert_true(mc->irq_intercept_in(f->machine, "ioapic"));
    g_assert_false(mc->irq_intercept_in(f->machine, "nothing"));
}

static void test_config_bridges(Fixture *f, gconstpointer data)
{
    g_assert_cmphex(config_in(f, 0x80000000, 4), ==, 0x12378086);
    g_assert_cmphex(config_in(f, ISA_ADDR, 4), ==, 0x70008086);
    g_assert_cmphex(config_in(f, ISA_ADDR + 10, 2), ==, 0x0601);
    g_assert_cmphex(config_in(f, ISA_ADDR + 14, 1), ==, 0x80);
    g_assert_cmphex(config_in(f, 0x80001000, 4), ==, 0xffffffff);
    g_assert_cmphex(config_in(f, 0x80010000, 4), ==, 0xffffffff); /* bus 1 */
}

static void test_config_ports(Fixture *f, gconstpointer data)
{
    g_assert_cmphex(config_in(f, DEV_ADDR, 4), ==, TEST_DEVICE << 16 | TEST_VENDOR);
    g_assert_cmphex(in(f, 0xcfe, 2), ==, TEST_DEVICE);
    g_assert_cmphex(config_in(f, DEV_ADDR + 2, 2), ==, TEST_DEVICE); /* offset in CF8 */
    g_assert_cmphex(in(f, 0xcf8, 4), ==, DEV_ADDR + 2);
    out(f, 0xcf8, 0x80000000, 2); /* not a whole write */
    out(f, 0xcf8, 0x80, 1);
    g_assert_cmphex(in(f, 0xcf8, 4), ==, DEV_ADDR + 2);
    g_assert_cmphex(config_in(f, DEV_ADDR & ~(1u << 31), 4), ==, 0xffffffff);
    config_out(f, DEV_ADDR + PCI_INTERRUPT_LINE, 0x5c, 1);
    g_assert_cmphex(config_in(f, DEV_ADDR + PCI_INTERRUPT_LINE, 1), ==, 0x5c);
}

static void test_bars_in_spaces(Fixture *f, gconstpointer data)
{
    uint64_t value = 0;
    uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};

    config_out(f, DEV_ADDR + PCI_BASE_ADDRESS_0, 0xc020, 4);
    config_out(f, DEV_ADDR + PCI_BASE_ADDRESS_2, 0xe0000000, 4);
    config_out(f, DEV_ADDR + PCI_COMMAND, PCI_COMMAND_IO | PCI_COMMAND_MEMORY, 2);
    out(f, 0xc024, 0x99, 1);
    g_assert_cmphex(test_pci(f->dev)->last_offset, ==, 4);
    g_assert_cmphex(test_pci(f->dev)->last_value, ==, 0x99);
    machine_write(f->machine, 0xe0000010, bytes, 8);
    g_assert_cmpuint(test_pci(f->dev)->last_size, ==, 8);
    g_assert_cmphex(test_pci(f->dev)->last_value, ==, 0x0807060504030201ull);
    machine_read(f->machine, 0xe0000000, &value, 8);
    g_assert_cmphex(value, ==, 0x1122334455667788ull);
    config_out(f, DEV_ADDR + PCI_COMMAND, 0, 2);
    g_assert_cmphex(in(f, 0xc020, 4), ==, 0xffffffff);
}

static void test_bus_master_and_msi(Fixture *f, gconstpointer data)
{
    uint32_t word = 0;

    config_out(f, DEV_ADDR + TEST_MSIX_CAP + 2, PCI_MSIX_FLAGS_ENABLE, 2);
    io_region_write(&f->dev->msix.bar, 0, 0x100000, 8);
    io_region_write(&f->dev->msix.bar, 8, 0xabcd, 4);
    io_region_write(&f->dev->msix.bar, 12, 0, 4);
    msix_notify(f->dev, 0); /* no Bus Master: lost, as a bridge would lose it */
    machine_read(f->machine, 0x100000, &word, 4);
    g_assert_cmphex(word, ==, 0);
    config_out(f, DEV_ADDR + PCI_COMMAND, PCI_COMMAND_MASTER, 2);
    msix_notify(f->dev, 0);
    machine_read(f->machine, 0x100000, &word, 4);
    g_assert_cmphex(word, ==, 0xabcd);
    io_region_write(&f->dev->msix.bar, 0, 0xfee00000, 8); /* local APIC: nobody */
    msix_notify(f->dev, 0);
    io_region_write(&f->dev->msix.bar, 0, 0xfffffffffffffffeull, 8);
    msix_notify(f->dev, 0);
}

static void test_dma_to_mmio(Fixture *f, gconstpointer data)
{
    uint8_t bytes[4] = {0x11, 0x22, 0x33, 0x44};

    config_out(f, DEV_ADDR + PCI_BASE_ADDRESS_2, 0xe0000000, 4);
    config_out(f, DEV_ADDR + PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 2);
    g_assert_true(dma_write(&f->dev->dma, 0xe0000020, bytes, 4));
    g_assert_cmphex(test_pci(f->dev)->last_offset, ==, 0x20);
    g_assert_cmphex(test_pci(f->dev)->last_value, ==, 0x44332211);
}

static void test_pirq_routes(Fixture *f, gconstpointer data)
{
    pci_set_irq(f->dev, true); /* slot 4, pin A: PIRQ (4-1+0)&3 = 3; routed nowhere */
    g_assert_cmpint(f->raised[11], ==, 0);
    config_out(f, ISA_ADDR + 0x63, 11, 1);
    g_assert_cmpint(f->raised[11], ==, 1);
    config_out(f, ISA_ADDR + 0x63, 10, 1);
    g_assert_cmpint(f->lowered[11], ==, 1);
    g_assert_cmpint(f->raised[10], ==, 1);
    pci_set_irq(f->dev, false);
    g_assert_cmpint(f->lowered[10], ==, 1);
    pci_set_irq(f->dev, true);
    config_out(f, ISA_ADDR + 0x63, 0x8a, 1);
    g_assert_cmpint(f->lowered[10], ==, 2);
    config_out(f, ISA_ADDR + 0x60, 0xffffffff, 4);
    pci_set_irq(f->dev, false);
}

static void test_pirq_lines_are_shared(Fixture *f, gconstpointer data)
{
    GError *err = NULL;
    PCIDevice *other =
        PCI_DEVICE(add("{\"driver\":\"test-pci\",\"id\":\"t1\",\"addr\":\"5\"}", &err));

    g_assert_no_error(err);
    config_out(f, ISA_ADDR + 0x63, 11, 1);
    config_out(f, ISA_ADDR + 0x60, 11, 1);
    pci_set_irq(f->dev, true);
    pci_set_irq(other, true);
    g_assert_cmpint(f->raised[11], ==, 1);
    pci_set_irq(f->dev, false);
    g_assert_cmpint(f->lowered[11], ==, 0);
    pci_set_irq(other, false);
    g_assert_cmpint(f->lowered[11], ==, 1);
}

static void assert_from_thread(void *opaque)
{
    pci_set_irq(opaque, true);
}

static void test_pirq_from_another_thread(Fixture *f, gconstpointer data)
{
    GError *err = NULL;
    EventLoop *loop = event_loop_new_thread("irq", &err);

    g_assert_no_error(err);
    config_out(f, ISA_ADDR + 0x63, 11, 1);
    event_loop_run_sync(loop, assert_from_thread, f->dev);
    while (!f->raised[11]) {
        event_loop_run_once(event_loop_main(), true);
    }
    event_loop_free(loop);
    pci_set_irq(f->dev, false);
    g_assert_cmpint(f->lowered[11], ==, 1);
}

static void test_reset_routes_nowhere(Fixture *f, gconstpointer data)
{
    config_out(f, ISA_ADDR + 0x63, 11, 1);
    pci_set_irq(f->dev, true);
    machine_reset_devices();
    g_assert_cmpint(f->lowered[11], ==, 1);
    g_assert_cmphex(config_in(f, ISA_ADDR + 0x60, 4), ==, 0x80808080);
    g_assert_cmphex(config_in(f, ISA_ADDR + PCI_COMMAND, 2), ==, 7);
}

static uint64_t fw_cfg_item(Fixture *f, uint16_t key, unsigned bytes)
{
    uint64_t value = 0;

    out(f, 0x510, key, 2);
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)in(f, 0x511, 1) << (8 * i);
    }
    return value;
}

static void test_fw_cfg(Fixture *f, gconstpointer data)
{
    g_assert_cmphex(fw_cfg_item(f, 0, 4), ==, 0x554d4551); /* "QEMU" */
    g_assert_cmphex(fw_cfg_item(f, 1, 4), ==, 1);
    g_assert_cmphex(fw_cfg_item(f, 3, 8), ==, f->machine->ram_size);
    g_assert_cmphex(in(f, 0x511, 1), ==, 0); /* past the end */
    g_assert_cmphex(fw_cfg_item(f, 0x7777, 8), ==, 0);
    out(f, 0x510, 0, 1); /* not 16 bits wide: selects nothing */
    out(f, 0x511, 0xff, 1);
    g_assert_cmphex(fw_cfg_item(f, 0, 1), ==, 'Q');
}

static unsigned deleted;

static void on_deleted(const char *id, const char *path)
{
    deleted++;
}

static void test_hotplug_up_and_removable(Fixture *f, gconstpointer data)
{
    GError *err = NULL;

    g_assert_cmphex(in(f, 0xae00, 4), ==, 0); /* there at start: not hotplugged */
    g_assert_cmphex(in(f, 0xae0c, 4), ==, 0xfffffffc);
    add("{\"driver\":\"test-pci\",\"id\":\"t7\",\"addr\":\"7\"}", &err);
    g_assert_no_error(err);
    g_assert_cmphex(in(f, 0xae00, 4), ==, 1 << 7);
    g_assert_cmphex(in(f, 0xae00, 4), ==, 0);
    out(f, 0xae10, 1, 4);
    g_assert_cmphex(in(f, 0xae0c, 4), ==, 0);
    g_assert_cmphex(in(f, 0xae10, 4), ==, 1);
}

static void test_hotplug_eject_completes(Fixture *f, gconstpointer data)
{
    GError *err = NULL;

    deleted = 0;
    device_deleted_hook = on_deleted;
    g_assert_true(device_del("t0", &err));
    g_assert_cmphex(in(f, 0xae04, 4), ==, 1 << 4);
    g_assert_cmpuint(deleted, ==, 0);
    g_assert_false(device_del("t0", &err));
    g_assert_cmpstr(err->message, ==, "Device t0 is already in the process of unplug");
    g_clear_error(&err);
    out(f, 0xae10, 1, 4); /* another bus: nothing */
    out(f, 0xae08, 1 << 4, 4);
    g_assert_cmpuint(deleted, ==, 0);
    out(f, 0xae10, 0, 4);
    out(f, 0xae08, 3, 4); /* the bridges stay */
    out(f, 0xae08, 1 << 4, 4);
    g_assert_cmpuint(deleted, ==, 1);
    g_assert_cmphex(in(f, 0xae04, 4), ==, 0);
    g_assert_cmphex(config_in(f, DEV_ADDR, 4), ==, 0xffffffff);
    g_assert_cmphex(config_in(f, ISA_ADDR, 4), ==, 0x70008086);
    out(f, 0xae08, 0xffffffff, 4);
    device_deleted_hook = NULL;
    add("{\"driver\":\"test-pci\",\"id\":\"t0\",\"addr\":\"4\"}", &err);
    g_assert_no_error(err);
}

static void test_hotplug_reset_completes(Fixture *f, gconstpointer data)
{
    GError *err = NULL;

    deleted = 0;
    device_deleted_hook = on_deleted;
    g_assert_true(device_del("t0", &err));
    machine_reset_devices();
    while (!deleted) {
        event_loop_run_once(event_loop_main(), true);
    }
    g_assert_cmphex(in(f, 0xae04, 4), ==, 0);
    g_assert_null(device_find("t0", &err));
    g_clear_error(&err);
    device_deleted_hook = NULL;
}

static void test_random_ports(Fixture *f, gconstpointer data)
{
    static const uint16_t bases[] = {0xcf8, 0xcfc, 0x510, 0xae00, 0xc000};
    GRand *rand = g_rand_new_with_seed(99);

    for (unsigned i = 0; i < 200000; i++) {
        uint16_t port = (uint16_t)(bases[g_rand_int(rand) % 5] + g_rand_int(rand) % 32);
        unsigned size = 1u << (g_rand_int(rand) % 3);

        if (port >= 0xae00 && port < 0xae20) {
            in(f, port, size); /* an eject would take the device away */
        } else if (g_rand_boolean(rand)) {
            out(f, port, g_rand_int(rand) | (i & 1 ? 0x80002000u : 0), size);
        } else {
            in(f, port, size);
        }
    }
    g_rand_free(rand);
    g_assert_cmphex(config_in(f, DEV_ADDR, 4), ==, TEST_DEVICE << 16 | TEST_VENDOR);
}

#define ADD(path, fn) g_test_add("/pc/" path, Fixture, NULL, setup, fn, teardown)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    test_register_types();
    hw_i386_register_types();
    ADD("class", test_class);
    ADD("config/bridges", test_config_bridges);
    ADD("config/ports", test_config_ports);
    ADD("bars-in-spaces", test_bars_in_spaces);
    ADD("bus-master-and-msi", test_bus_master_and_msi);
    ADD("dma-to-mmio", test_dma_to_mmio);
    ADD("pirq/routes", test_pirq_routes);
    ADD("pirq/lines-are-shared", test_pirq_lines_are_shared);
    ADD("pirq/from-another-thread", test_pirq_from_another_thread);
    ADD("pirq/reset-routes-nowhere", test_reset_routes_nowhere);
    ADD("fw-cfg", test_fw_cfg);
    ADD("hotplug/up-and-removable", test_hotplug_up_and_removable);
    ADD("hotplug/eject-completes", test_hotplug_eject_completes);
    ADD("hotplug/reset-completes", test_hotplug_reset_completes);
    ADD("random-ports-break-nothing", test_random_ports);
    return g_test_run();
}
