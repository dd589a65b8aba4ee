/*
 * virtio-mmio on the machine `microvm`, legacy and modern: registers, virtio-net, and virtio-rng,
 * which comes over PCI too.
 */
#include <fcntl.h>
#include <linux/virtio_ids.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/launch.h"
#include "tests/lib/mmio-driver.h"
#include "tests/lib/rig.h"

#define FRAME  200
#define BUFFER 2048

typedef struct Vm {
    Emulator *emulator;
    QtestClient *qtest;
    GuestRam *ram;
    int peer;
} Vm;

/* @args: more arguments, NULL-ended.  A netdev n0 is our socket. */
static Vm vm_start(const char *machine, bool modern, const char *const *args)
{
    GError *err = NULL;
    int fds[2];
    g_autofree char *netdev = NULL;
    g_autoptr(GPtrArray) all = g_ptr_array_new();
    Vm vm = {.peer = -1};

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
    netdev = g_strdup_printf("socket,fd=%d,id=n0", fds[1]);
    g_ptr_array_add(all, (char *)"-machine");
    g_ptr_array_add(all, (char *)machine);
    g_ptr_array_add(all, (char *)"-netdev");
    g_ptr_array_add(all, netdev);
    if (modern) {
        g_ptr_array_add(all, (char *)"-global");
        g_ptr_array_add(all, (char *)"virtio-mmio.force-legacy=false");
    }
    for (; args && *args; args++) {
        g_ptr_array_add(all, (char *)*args);
    }
    g_ptr_array_add(all, NULL);
    vm.emulator = emulator_start(&(EmulatorOptions){.command = rig_binary(),
                                                    .ram_size = RIG_RAM_SIZE,
                                                    .accel = "qtest",
                                                    .inherit_fds = (int[]){fds[1], -1},
                                                    .arguments = (const char *const *)all->pdata},
                                 &err);
    g_assert_no_error(err);
    close(fds[1]);
    vm.peer = fds[0];
    vm.qtest = vm.emulator->qtest;
    vm.ram = vm.emulator->ram;
    guest_ram_reset(vm.ram);
    return vm;
}

static void vm_stop(Vm *vm)
{
    GError *err = NULL;

    g_assert_true(qtest_client_check(vm->qtest, &err));
    emulator_stop(vm->emulator, &err);
    g_assert_no_error(err);
    close(vm->peer);
}

static const char *const net_args[] = {"-device",
                                       "virtio-net-device,netdev=n0,id=nic0,mac="
                                       "52:54:00:12:34:56,bus=virtio-mmio-bus.2",
                                       NULL};

/* --- slots --- */

static void test_slots(gconstpointer modern)
{
    static const char *const args[] = {"-device", "virtio-net-device,netdev=n0",
                                       "-device", "virtio-rng-device",
                                       "-device", "virtio-rng-device,bus=virtio-mmio-bus.0",
                                       NULL};
    static const uint32_t ids[MMIO_SLOTS] = {
        [0] = VIRTIO_ID_RNG, [6] = VIRTIO_ID_RNG, [7] = VIRTIO_ID_NET};
    Vm vm = vm_start("microvm", modern, args);

    for (unsigned i = 0; i < MMIO_SLOTS; i++) {
        MmioDriver slot = mmio_driver_open(vm.qtest, vm.ram, i);

        g_assert_cmpuint(slot.version, ==, modern ? 2 : 1);
        g_assert_cmpuint(slot.device_id, ==, ids[i]);
        g_assert_cmphex(mmio_read(&slot, VIRTIO_MMIO_VENDOR_ID), ==, 0x554d4551);
        /* An empty slot is nothing more; no access does anything to anybody. */
        for (unsigned reg = 0; reg < MMIO_SLOT_SIZE; reg += 4) {
            if (!ids[i]) {
                mmio_write(&slot, reg, 0xffffffff);
                g_assert_true(reg < 16 || mmio_read(&slot, reg) == 0);
            }
            qtest_client_load(vm.qtest, 1, slot.base + reg);
            qtest_client_load(vm.qtest, 2, slot.base + reg);
            qtest_client_load(vm.qtest, 8, slot.base + (reg & ~7u));
            qtest_client_store(vm.qtest, 1, slot.base + reg + 1, 0xff);
            qtest_client_store(vm.qtest, 8, slot.base + (reg & ~7u), 0);
        }
    }
    /* Nothing lies beyond, and there is no PCI. */
    g_assert_cmphex(qtest_client_load(vm.qtest, 4, MMIO_BASE + MMIO_SLOTS * MMIO_SLOT_SIZE), ==,
                    0xffffffff);
    qtest_client_out(vm.qtest, 4, 0xcf8, 0x80000000);
    g_assert_cmphex(qtest_client_in(vm.qtest, 4, 0xcfc), ==, 0xffffffff);
    vm_stop(&vm);
}

/* --- virtio-net --- */

static void send_frame(Vm *vm, MmioDriver *driver, DriverQueue *tx, unsigned hdr, uint32_t seed)
{
    uint64_t addr = guest_ram_alloc(vm->ram, hdr + FRAME, 16);
    uint8_t *host = guest_ram_pointer(vm->ram, addr, hdr + FRAME), frame[4 + FRAME];
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;
    uint32_t len;

    frame_fill(host + hdr, FRAME, seed);
    g_assert_cmpint(driver_queue_add(tx, &(DriverSegment){addr, hdr + FRAME}, 1, 0, host), >=, 0);
    if (driver_queue_publish(tx)) {
        mmio_driver_notify(driver, 1);
    }
    g_assert_cmpint(recv(vm->peer, frame, sizeof(frame), MSG_WAITALL), ==, sizeof(frame));
    g_assert_cmpmem(frame + 4, FRAME, host + hdr, FRAME);
    while (driver_queue_take(tx, &len) != host) {
        g_assert_cmpint(g_get_monotonic_time(), <, deadline);
    }
}

static void receive_frame(Vm *vm, MmioDriver *driver, DriverQueue *rx, unsigned hdr, uint32_t seed)
{
    uint64_t addr = guest_ram_alloc(vm->ram, BUFFER, 16);
    uint8_t *host = guest_ram_pointer(vm->ram, addr, BUFFER), bytes[4 + FRAME] = {0, 0, 0, FRAME};
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;
    uint32_t len = 0;

    frame_fill(bytes + 4, FRAME, seed);
    g_assert_cmpint(driver_queue_add(rx, &(DriverSegment){addr, BUFFER}, 0, 1, host), >=, 0);
    if (driver_queue_publish(rx)) {
        mmio_driver_notify(driver, 0);
    }
    g_assert_cmpint(send(vm->peer, bytes, sizeof(bytes), 0), ==, sizeof(bytes));
    while (driver_queue_take(rx, &len) != host) {
        g_assert_cmpint(g_get_monotonic_time(), <, deadline);
    }
    g_assert_cmpuint(len, ==, hdr + FRAME);
    g_assert_cmpmem(host + hdr, FRAME, bytes + 4, FRAME);
}

static void set_link(Vm *vm, bool up)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(vm->emulator->qmp, "set_link", &err,
                                        "{\"name\": \"nic0\", \"up\": %s}", up ? "true" : "false"));
    g_assert_no_error(err);
}

static void run_net(bool modern, const char *const *args)
{
    Vm vm = vm_start("microvm", modern, args);
    MmioDriver driver = mmio_driver_open(vm.qtest, vm.ram, 2);
    unsigned hdr = modern ? 12 : 10;
    DriverQueue *rx, *tx;
    GError *err = NULL;

    g_assert_cmpuint(driver.device_id, ==, VIRTIO_ID_NET);
    g_assert_cmpint(mmio_offered(&driver) >> VIRTIO_F_VERSION_1 & 1, ==, modern);
    qtest_client_irq_intercept_in(vm.qtest, "ioapic", &err);
    g_assert_no_error(err);
    for (unsigned turn = 0; turn < 3; turn++) {
        mmio_driver_negotiate(&driver, 1ull << VIRTIO_NET_F_MAC | 1ull << VIRTIO_NET_F_STATUS |
                                           (turn & 1 ? 1ull << VIRTIO_RING_F_EVENT_IDX : 0));
        rx = mmio_driver_setup_queue(&driver, 0, 64);
        tx = mmio_driver_setup_queue(&driver, 1, 0);
        mmio_driver_start(&driver);
        g_assert_cmphex(qtest_client_load(vm.qtest, 1, driver.base + 0x105), ==, 0x56);
        g_assert_cmphex(qtest_client_load(vm.qtest, 2, driver.base + 0x106), ==,
                        VIRTIO_NET_S_LINK_UP);
        for (unsigned i = 0; i < 200; i++) {
            send_frame(&vm, &driver, tx, hdr, i);
            receive_frame(&vm, &driver, rx, hdr, i);
        }
        /* The line is up until what caused it is acknowledged. */
        driver_queue_enable_interrupts(rx);
        g_usleep(20000); /* another thread's last interrupt */
        mmio_driver_take_interrupt(&driver);
        g_assert_false(qtest_client_irq_level(vm.qtest, driver.irq));
        receive_frame(&vm, &driver, rx, hdr, 1);
        g_assert_true(qtest_client_irq_wait(vm.qtest, driver.irq, true, RIG_TIMEOUT_MS));
        g_assert_cmphex(mmio_driver_take_interrupt(&driver), ==, 1);
        g_assert_false(qtest_client_irq_level(vm.qtest, driver.irq));
        g_assert_cmphex(mmio_driver_take_interrupt(&driver), ==, 0);
        set_link(&vm, turn % 2 != 0);
        set_link(&vm, true);
        g_assert_cmphex(mmio_driver_take_interrupt(&driver) & 2, ==, turn % 2 == 0 ? 2 : 0);
        driver_queue_free(rx);
        driver_queue_free(tx);
    }
    mmio_write(&driver, VIRTIO_MMIO_STATUS, 0);
    g_assert_false(qtest_client_irq_level(vm.qtest, driver.irq));
    vm_stop(&vm);
}

static void test_net(gconstpointer modern)
{
    run_net(modern != NULL, net_args);
}

/* The queues in a thread of their own: notifications go there, and interrupts come from there. */
static void test_net_iothread(void)
{
    static const char *const args[] = {
        "-object", "iothread,id=t0", "-device",
        "virtio-net-device,netdev=n0,id=nic0,mac=52:54:00:12:34:56,bus=virtio-mmio-bus.2,"
        "iothread=t0",
        NULL};

    run_net(true, args);
}

/* QueueReady = 0 and QueueReset take a queue away; it comes back with another size. */
static void test_queue_ready(void)
{
    Vm vm = vm_start("microvm", true, net_args);
    MmioDriver driver = mmio_driver_open(vm.qtest, vm.ram, 2);
    DriverQueue *tx, *rx;

    mmio_driver_negotiate(&driver, 1ull << VIRTIO_NET_F_MAC | 1ull << 40);
    rx = mmio_driver_setup_queue(&driver, 0, 0);
    tx = mmio_driver_setup_queue(&driver, 1, 0);
    mmio_driver_start(&driver);
    for (unsigned i = 0; i < 20; i++) {
        send_frame(&vm, &driver, tx, 12, i);
        receive_frame(&vm, &driver, rx, 12, i);
        driver_queue_free(tx);
        mmio_write(&driver, VIRTIO_MMIO_QUEUE_SEL, 1);
        mmio_write(&driver, i & 1 ? VIRTIO_MMIO_QUEUE_READY : 0x0c0, i & 1 ? 0 : 1);
        g_assert_cmphex(mmio_read(&driver, VIRTIO_MMIO_QUEUE_READY), ==, 0);
        g_assert_cmphex(mmio_read(&driver, 0x0c0), ==, 0);
        tx = mmio_driver_setup_queue(&driver, 1, (uint16_t)(8u << i % 5));
    }
    send_frame(&vm, &driver, tx, 12, 99);
    driver_queue_free(rx);
    driver_queue_free(tx);
    vm_stop(&vm);
}

/* Any value in any register of any slot. */
static void test_random_writes(gconstpointer modern)
{
    Vm vm = vm_start("microvm", modern, net_args);
    GRand *rand = g_rand_new_with_seed(2);
    MmioDriver driver = mmio_driver_open(vm.qtest, vm.ram, 2);
    DriverQueue *tx;

    for (unsigned i = 0; i < 20000; i++) {
        uint32_t value =
            g_rand_boolean(rand) ? (uint32_t)g_rand_int_range(rand, 0, 300) : g_rand_int(rand);

        mmio_write(&driver, 4 * (unsigned)g_rand_int_range(rand, 0, 0x44), value);
    }
    g_rand_free(rand);
    mmio_driver_negotiate(&driver, 1ull << VIRTIO_NET_F_MAC);
    tx = mmio_driver_setup_queue(&driver, 1, 16);
    mmio_driver_start(&driver);
    send_frame(&vm, &driver, tx, modern ? 12 : 10, 5);
    driver_queue_free(tx);
    vm_stop(&vm);
}

/* --- what is refused --- */

static void assert_refused(Vm *vm, const char *command, const char *arguments, const char *why)
{
    GError *err = NULL;

    g_assert_null(qmp_client_executef(vm->emulator->qmp, command, &err, "%s", arguments));
    g_assert_nonnull(strstr(err->message, why));
    g_clear_error(&err);
}

static void test_hotplug_refused(void)
{
    Vm vm = vm_start("microvm", true, net_args);

    assert_refused(&vm, "device_add", "{\"driver\": \"virtio-rng-device\"}",
                   "does not support hotplugging");
    assert_refused(&vm, "device_del", "{\"id\": \"nic0\"}", "does not support hotplugging");
    vm_stop(&vm);
}

/* --- virtio-rng --- */

static void check_random(const uint8_t *bytes, size_t size)
{
    unsigned different = 0;

    for (size_t i = 1; i < size; i++) {
        different += bytes[i] != bytes[0];
    }
    g_assert_true(size < 8 || different > 0);
}

static void draw(Vm *vm, DriverQueue *queue, void (*kick)(void *), void *opaque, uint32_t size,
                 uint32_t expect)
{
    uint64_t addr = guest_ram_alloc(vm->ram, size, 16);
    uint8_t *host = guest_ram_pointer(vm->ram, addr, size);
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;
    uint32_t len = 0;

    memset(host, 0, size);
    g_assert_cmpint(driver_queue_add(queue, &(DriverSegment){addr, size}, 0, 1, host), >=, 0);
    driver_queue_publish(queue);
    kick(opaque);
    while (driver_queue_take(queue, &len) != host) {
        g_assert_cmpint(g_get_monotonic_time(), <, deadline);
    }
    if (expect) {
        g_assert_cmpuint(len, ==, expect);
    }
    g_assert_cmpuint(len, >, 0);
    check_random(host, len);
}

static void kick_mmio(void *driver)
{
    mmio_driver_notify(driver, 0);
}

static void test_rng_mmio(gconstpointer modern)
{
    static const char *const args[] = {"-object", "rng-random,id=r0", "-device",
                                       "virtio-rng-device,rng=r0,bus=virtio-mmio-bus.0", NULL};
    Vm vm = vm_start("microvm", modern, args);
    MmioDriver driver = mmio_driver_open(vm.qtest, vm.ram, 0);
    DriverQueue *queue;

    g_assert_cmpuint(driver.device_id, ==, VIRTIO_ID_RNG);
    mmio_driver_negotiate(&driver, 0);
    queue = mmio_driver_setup_queue(&driver, 0, 0);
    g_assert_cmpuint(queue->size, ==, 8);
    mmio_driver_start(&driver);
    for (unsigned i = 0; i < 100; i++) {
        draw(&vm, queue, kick_mmio, &driver, 1 + i * 7, 1 + i * 7);
    }
    draw(&vm, queue, kick_mmio, &driver, 100000, 0);
    driver_queue_free(queue);
    vm_stop(&vm);
}

static void kick_pci(void *driver)
{
    virtio_driver_notify_sync(driver, 0);
}

static void test_rng_pci(void)
{
    static const char *const args[] = {
        "-device", "virtio-rng-pci,addr=4,id=rng0,max-bytes=64,period=1000", NULL};
    Vm vm = vm_start("pc", false, args);
    GuestPciBus bus;
    GError *err = NULL;
    GuestPciDevice *pci;
    VirtioDriver *driver;
    DriverQueue *queue;
    uint64_t addr;
    uint8_t *host;
    uint32_t len;

    guest_pci_bus_init(&bus, vm.qtest);
    pci = guest_pci_device_open(&bus, RIG_DEVFN, &err);
    g_assert_no_error(err);
    g_assert_cmphex(guest_pci_config_read(pci, 4, 0), ==, 0x10051af4);
    driver = virtio_driver_new(pci, vm.ram, &err);
    g_assert_no_error(err);
    virtio_driver_negotiate(driver, 0, &err);
    g_assert_no_error(err);
    queue = virtio_driver_setup_queue(driver, 0, 0, 0xffff, &err);
    g_assert_no_error(err);
    virtio_driver_start(driver, &err);
    g_assert_no_error(err);
    /* 64 bytes a second: the rest comes when the period is over. */
    draw(&vm, queue, kick_pci, driver, 40, 40);
    draw(&vm, queue, kick_pci, driver, 40, 24);
    addr = guest_ram_alloc(vm.ram, 40, 16);
    host = guest_ram_pointer(vm.ram, addr, 40);
    driver_queue_add(queue, &(DriverSegment){addr, 40}, 0, 1, host);
    driver_queue_publish(queue);
    kick_pci(driver);
    qtest_client_clock_step(vm.qtest, 990000000);
    g_assert_null(driver_queue_take(queue, &len));
    qtest_client_clock_step(vm.qtest, 20000000);
    g_assert_true(driver_queue_take(queue, &len) == host);
    g_assert_cmpuint(len, ==, 40);
    virtio_driver_free(driver);
    driver_queue_free(queue);
    g_free(pci);
    vm_stop(&vm);
}

/* A file that has nothing yet: the buffer waits for it. */
static void test_rng_waits(void)
{
    g_autofree char *dir = g_dir_make_tmp("swnic-rng-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(dir, "fifo", NULL);
    g_autofree char *object = g_strdup_printf("rng-random,id=r0,filename=%s", path);
    const char *args[] = {"-object", object, "-device",
                          "virtio-rng-device,rng=r0,bus=virtio-mmio-bus.0", NULL};
    MmioDriver driver;
    DriverQueue *queue;
    uint64_t addr;
    uint8_t *host;
    uint32_t len;
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;
    int fd;
    Vm vm;

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    g_assert_cmpint(fd, >=, 0);
    vm = vm_start("microvm", true, args);
    driver = mmio_driver_open(vm.qtest, vm.ram, 0);
    mmio_driver_negotiate(&driver, 0);
    queue = mmio_driver_setup_queue(&driver, 0, 0);
    mmio_driver_start(&driver);
    addr = guest_ram_alloc(vm.ram, 64, 16);
    host = guest_ram_pointer(vm.ram, addr, 64);
    driver_queue_add(queue, &(DriverSegment){addr, 64}, 0, 1, host);
    driver_queue_publish(queue);
    mmio_driver_notify(&driver, 0);
    g_assert_null(driver_queue_take(queue, &len));
    assert_refused(&vm, "object-del", "{\"id\": \"r0\"}", "in use");
    g_assert_cmpint(write(fd, "entropy!", 8), ==, 8);
    while (driver_queue_take(queue, &len) != host) {
        g_assert_cmpint(g_get_monotonic_time(), <, deadline);
    }
    g_assert_cmpmem(host, len, "entropy!", 8);
    driver_queue_free(queue);
    vm_stop(&vm);
    close(fd);
    unlink(path);
    rmdir(dir);
}

/* One line that names what is wrong. */
static void test_refused(void)
{
    static const struct {
        const char *line, *words;
    } rows[] = {
        {"-M microvm -device virtio-net-pci", "No 'PCI' bus"},
        {"-M pc -device virtio-rng-device", "No 'virtio-bus' bus"},
        {"-M microvm -device virtio-rng-device,bus=virtio-mmio-bus.8", "virtio-mmio-bus.8"},
        {"-M microvm -device virtio-mmio", "pluggable"},
        {"-M microvm -device virtio-rng-device,bus=virtio-mmio-bus.1 "
         "-device virtio-rng-device,bus=virtio-mmio-bus.1",
         "Bus 'virtio-mmio-bus.1' is full"},
        {"-M microvm -device virtio-rng-device,period=0", "period"},
        {"-M microvm -device virtio-rng-device,max-bytes=9223372036854775808", "max-bytes"},
        {"-M microvm -device virtio-rng-device,rng=nobody", "nobody"},
        {"-M microvm -object iothread,id=t0 -device virtio-rng-device,rng=t0", "rng"},
        {"-M microvm -object rng-random,id=r0,filename=/nowhere/at/all", "/nowhere/at/all"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = launch_refused("%s", rows[i].line);

        g_test_message("%s", text);
        g_assert_nonnull(strstr(text, rows[i].words));
    }
}

/* A ninth device finds no slot. */
static void test_slots_are_full(void)
{
    g_autoptr(GString) line = g_string_new("-M microvm");
    g_autofree char *text = NULL;

    for (unsigned i = 0; i < MMIO_SLOTS + 1; i++) {
        g_string_append(line, " -device virtio-rng-device");
    }
    text = launch_refused("%s", line->str);
    g_assert_nonnull(strstr(text, "is full"));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/virtio-mmio/slots/legacy", NULL, test_slots);
    g_test_add_data_func("/virtio-mmio/slots/modern", "modern", test_slots);
    g_test_add_data_func("/virtio-mmio/net/legacy", NULL, test_net);
    g_test_add_data_func("/virtio-mmio/net/modern", "modern", test_net);
    g_test_add_func("/virtio-mmio/net/iothread", test_net_iothread);
    g_test_add_func("/virtio-mmio/queue-ready", test_queue_ready);
    g_test_add_data_func("/virtio-mmio/random-writes/legacy", NULL, test_random_writes);
    g_test_add_data_func("/virtio-mmio/random-writes/modern", "modern", test_random_writes);
    g_test_add_func("/virtio-mmio/hotplug-is-refused", test_hotplug_refused);
    g_test_add_func("/virtio-mmio/refused", test_refused);
    g_test_add_func("/virtio-mmio/slots-are-full", test_slots_are_full);
    g_test_add_data_func("/virtio-rng/mmio/legacy", NULL, test_rng_mmio);
    g_test_add_data_func("/virtio-rng/mmio/modern", "modern", test_rng_mmio);
    g_test_add_func("/virtio-rng/pci/max-bytes", test_rng_pci);
    g_test_add_func("/virtio-rng/waits-for-the-file", test_rng_waits);
    return g_test_run();
}
