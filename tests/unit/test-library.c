/*
 * libswnic as a program sees it: linked to the shared library, through swnic/swnic.h alone, with
 * an emulator of a test's (library-host.h) around it.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "library-host.h"
#include "tests/lib/vhost-user-backend.h"

/* --- life --- */

static void test_one_at_a_time(void)
{
    GError *err = NULL;
    Swnic *first = swnic_new(NULL, &err);

    g_assert_no_error(err);
    g_assert_null(swnic_new(NULL, &err));
    g_assert_cmpstr(err->message, ==, "there is an instance already, one a process is possible");
    g_clear_error(&err);
    swnic_free(first);
    first = swnic_new(NULL, &err);
    g_assert_no_error(err);
    swnic_free(first);
    swnic_free(NULL);
}

static void *new_in_thread(void *opaque)
{
    return swnic_new(NULL, opaque);
}

static void test_other_thread(void)
{
    GError *err = NULL;
    pthread_t thread;
    void *made;

    swnic_free(swnic_new(NULL, NULL));
    g_assert_cmpint(pthread_create(&thread, NULL, new_in_thread, &err), ==, 0);
    pthread_join(thread, &made);
    g_assert_null(made);
    g_assert_nonnull(strstr(err->message, "it is the main thread"));
    g_clear_error(&err);
}

static void test_versions(void)
{
    const SwnicConfig config = {.version = SWNIC_CONFIG_VERSION + 1};
    const SwnicDeviceOps ops = {.version = 0};
    GError *err = NULL;

    g_assert_null(swnic_new(&config, &err));
    g_assert_cmpstr(err->message, ==, "SwnicConfig has version 2, this library knows 1");
    g_clear_error(&err);
    Swnic *swnic = swnic_new(NULL, NULL);
    g_assert_null(swnic_device_add(swnic, "virtio-net-pci", &ops, NULL, &err));
    g_assert_cmpstr(err->message, ==, "SwnicDeviceOps has version 0, this library knows 1");
    g_clear_error(&err);
    swnic_free(swnic);
}

/* --- options --- */

typedef bool AddFunc(Swnic *swnic, const char *options, GError **error);

static bool device_add_any(Swnic *swnic, const char *options, GError **error)
{
    return swnic_device_add(swnic, options, &host_ops, NULL, error);
}

static void test_refused_options(void)
{
    static const struct {
        AddFunc *add;
        const char *options, *message;
    } rows[] = {
        {device_add_any, "virtio-net-pci,mac=x", "virtio-net-pci.mac"},
        {device_add_any, "virtio-net-pci,nosuch=1", "nosuch"},
        {device_add_any, "virtio-net-pci,netdev=nobody", "nobody"},
        {device_add_any, "virtio-net-pci,bus=pci.0", "Parameter 'bus' is unexpected"},
        {device_add_any, "virtio-net-device", "is not a PCI device"},
        {device_add_any, "pcie-root-port", "is a bridge"},
        {device_add_any, "e1000", "'e1000' is not a valid device model name"},
        {device_add_any, "virtio-net-pci,help", "asks for help"},
        {device_add_any, "id=a", "Parameter 'driver' is missing"},
        {device_add_any, "{\"driver\"", "JSON"},
        {swnic_netdev_add, "dgram,id=a,local.type=fd", "'local.str'"},
        {swnic_netdev_add, "nosuch,id=a", "'nosuch'"},
        {swnic_netdev_add, "user", "'id'"},
        {swnic_netdev_del, "nobody", "Device 'nobody' not found"},
        {swnic_object_add, "iothread", "'id'"},
        {swnic_object_add, "vfio-user-server,id=a", "'vfio-user-server'"},
        {swnic_object_del, "nobody", "object 'nobody' not found"},
        {swnic_chardev_add, "socket,id=a", "socket"},
        {swnic_chardev_add, "help", "asks for help"},
        {swnic_chardev_del, "nobody", "nobody"},
    };
    Swnic *swnic = swnic_new(NULL, NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        GError *err = NULL;

        g_test_message("%s", rows[i].options);
        g_assert_false(rows[i].add(swnic, rows[i].options, &err));
        g_assert_nonnull(err);
        g_test_message("%s", err->message);
        g_assert_nonnull(strstr(err->message, rows[i].message));
        g_assert_null(strchr(err->message, '\n'));
        g_clear_error(&err);
        g_assert_false(rows[i].add(swnic, rows[i].options, NULL));
    }
    g_autofree char *info = swnic_info_network(swnic);
    g_assert_cmpstr(info, ==, ""); /* nothing is left of them */
    swnic_free(swnic);
}

static void test_back_ends(void)
{
    Swnic *swnic = swnic_new(NULL, NULL);
    GError *err = NULL;

    g_assert_true(swnic_chardev_add(swnic, "ringbuf,id=c0,size=4096", &err));
    g_assert_true(
        swnic_netdev_add(swnic, "{\"type\": \"hubport\", \"id\": \"h0\", \"hubid\": 0}", &err));
    g_assert_true(
        swnic_object_add(swnic, "filter-mirror,id=f0,netdev=h0,queue=rx,outdev=c0", &err));
    g_assert_no_error(err);
    g_assert_false(swnic_chardev_del(swnic, "c0", &err));
    g_assert_nonnull(strstr(err->message, "c0"));
    g_clear_error(&err);
    g_autofree char *info = swnic_info_network(swnic);
    g_assert_cmpstr(info, ==, "hub 0\r\n \\ h0\r\n");
    g_assert_true(swnic_object_del(swnic, "f0", &err));
    g_assert_true(swnic_chardev_del(swnic, "c0", &err));
    g_assert_true(swnic_netdev_del(swnic, "h0", &err));
    g_assert_no_error(err);
    swnic_free(swnic);
}

/* --- a device --- */

static void test_properties(void)
{
    Host host;
    GError *err = NULL;

    host_open(&host, "mac=52:54:00:00:00:07,x-txburst=17");
    g_autofree char *mac = swnic_device_get(host.nic, "mac", &err);
    g_assert_cmpstr(mac, ==, "\"52:54:00:00:00:07\"");
    g_autofree char *burst = swnic_device_get(host.nic, "x-txburst", &err);
    g_assert_cmpstr(burst, ==, "17");
    g_assert_null(swnic_device_get(host.nic, "nosuch", &err));
    g_assert_nonnull(strstr(err->message, "nosuch"));
    g_clear_error(&err);
    g_assert_true(swnic_device_set(host.nic, "x-txburst", "18", &err));
    g_autofree char *after = swnic_device_get(host.nic, "x-txburst", &err);
    g_assert_cmpstr(after, ==, "18");
    g_assert_false(swnic_device_set(host.nic, "mac", "52:54:00:00:00:08", &err));
    g_assert_nonnull(strstr(err->message, "after it was realized"));
    g_clear_error(&err);
    host_close(&host);
}

static void test_bars(void)
{
    Host host;
    SwnicBarInfo info;

    host_open(&host, "disable-legacy=on");
    g_assert_cmpuint(swnic_config_read(host.nic, 0, 4), ==, 0x10411af4);
    g_assert_true(swnic_bar_info(host.nic, 4, &info));
    g_assert_cmpuint(info.size, ==, 0x4000);
    g_assert_cmpuint(info.flags, ==, SWNIC_BAR_64BIT | SWNIC_BAR_PREFETCH);
    g_assert_cmpuint(info.addr, ==, UINT64_MAX);
    g_assert_false(swnic_bar_info(host.nic, 0, &info)); /* no legacy interface */
    g_assert_false(swnic_bar_info(host.nic, SWNIC_BARS, &info));

    swnic_config_write(host.nic, 0x20, 0x80000000, 4);
    swnic_config_write(host.nic, 0x24, 0x1, 4);
    g_assert_cmpuint(host.mapped, ==, 0);
    swnic_config_write(host.nic, 0x04, 0x2, 2); /* memory */
    g_assert_cmpuint(host.bars[4], ==, 0x180000000);
    g_assert_true(swnic_bar_info(host.nic, 4, &info));
    g_assert_cmpuint(info.addr, ==, 0x180000000);
    swnic_config_write(host.nic, 0x24, 0x2, 4); /* moves */
    g_assert_cmpuint(host.bars[4], ==, 0x280000000);
    g_assert_cmpuint(host.unmapped, ==, 1);
    swnic_device_reset(host.nic);
    g_assert_cmpuint(host.bars[4], ==, UINT64_MAX);

    /* num_queues: no MQ, a control queue */
    g_assert_cmpuint(swnic_bar_read(host.nic, 4, 0x12, 2), ==, 3);
    g_assert_cmpuint(swnic_bar_read(host.nic, 4, 0x3fff, 2), ==, 0xffff);
    g_assert_cmpuint(swnic_bar_read(host.nic, 4, UINT64_MAX, 8), ==, UINT64_MAX);
    g_assert_cmpuint(swnic_bar_read(host.nic, 4, 0, 3), ==, 0xffffff);
    g_assert_cmpuint(swnic_bar_read(host.nic, 0, 0, 1), ==, 0xff);
    g_assert_cmpuint(swnic_bar_read(host.nic, 99, 0, 4), ==, UINT32_MAX);
    swnic_bar_write(host.nic, 99, 0, 0, 4);
    swnic_bar_write(host.nic, 4, UINT64_MAX, 0, 8);
    g_assert_cmpuint(swnic_config_read(host.nic, 0x1000, 4), ==, UINT32_MAX);
    swnic_config_write(host.nic, UINT32_MAX, 0, 4);
    host_close(&host);
}

static void test_traffic(void)
{
    Host host;

    host_open(&host, "mac=52:54:00:00:00:01");
    host_start_driver(&host);
    host_expect_traffic(&host);
    g_assert_cmpuint(host.messages, >, 0);
    g_assert_cmpuint(host.messages_elsewhere, ==, 0);
    host_close(&host);
}

static void test_iothread(void)
{
    Host host;
    Swnic *swnic = swnic_new(NULL, NULL);
    GError *err = NULL;

    g_assert_true(swnic_object_add(swnic, "iothread,id=io0", &err));
    host_add_device(&host, swnic, "nic0", "iothread=io0");
    host_set_ram(swnic, host.ram);
    swnic_start(swnic);
    host_start_driver(&host);
    host_expect_traffic(&host);
    g_assert_false(swnic_object_del(swnic, "io0", &err));
    g_assert_nonnull(strstr(err->message, "in use"));
    g_clear_error(&err);
    host_stop_driver(&host);
    swnic_device_remove(host.nic);
    g_assert_cmpuint(host.messages_elsewhere, >, 0);
    g_assert_true(swnic_object_del(swnic, "io0", &err));
    host_close(&host);
}

/* Writing a queue's eventfd is all that a notification needs. */
typedef struct TxNotifier {
    unsigned rows;
    int fd;
    uint64_t offset;
} TxNotifier;

static void find_tx_notifier(const SwnicNotifier *notifier, void *opaque)
{
    TxNotifier *tx = opaque;

    tx->rows++;
    g_assert_cmpuint(notifier->bar, ==, 4);
    if (notifier->offset == 0x3000 + 4 * 1) { /* NOTIFY is at 0x3000, its multiplier 4 */
        tx->fd = notifier->fd;
        g_assert_false(notifier->match);
    }
}

static void swallow_write(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                          uint64_t value)
{
    ((Host *)device->bus->opaque)->received++;
}

static void test_notifiers(void)
{
    GuestPciOps silent = host_pci_ops;
    TxNotifier tx = {.fd = -1}, again = {.fd = -1};
    Host host;
    uint64_t one = 1;

    host_open(&host, "disable-legacy=on");
    swnic_foreach_notifier(host.nic, find_tx_notifier, &tx);
    g_assert_cmpuint(tx.rows, ==, 3); /* RX, TX, control */
    g_assert_cmpint(tx.fd, >=, 0);
    host_start_driver(&host);
    host_expect_traffic(&host); /* by BAR writes */
    swnic_foreach_notifier(host.nic, find_tx_notifier, &again);
    g_assert_cmpint(again.fd, ==, tx.fd);

    silent.bar_post = swallow_write;
    host.bus.ops = &silent;
    host.received = 0;
    host_send_frame(&host, 5);
    g_assert_cmpuint(host.received, ==, 1); /* the notification went nowhere */
    host_settle();
    g_assert_false(host_peer_has_frame(&host));
    g_assert_cmpint(write(tx.fd, &one, sizeof(one)), ==, sizeof(one));
    host_expect_at_peer(&host, 5);
    host.bus.ops = &host_pci_ops;
    host_close(&host);

    host_open(&host, "ioeventfd=off");
    tx = (TxNotifier){.fd = -1};
    swnic_foreach_notifier(host.nic, find_tx_notifier, &tx);
    g_assert_cmpuint(tx.rows, ==, 0);
    host_close(&host);
}

/* The emulator's memory, mapped by another party that moves the packets. */
static void test_vhost_user(void)
{
    g_autofree char *dir = g_dir_make_tmp("swnic-library-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(dir, "vu", NULL);
    g_autofree char *chardev = g_strdup_printf("socket,id=c0,path=%s", path);
    VuBackend *vu = vu_backend_new(path, &(VuConfig){0});
    uint8_t frame[HOST_FRAME_SIZE], got[HOST_FRAME_SIZE];
    Host host;
    GError *err = NULL;
    Swnic *swnic = swnic_new(NULL, &err);

    swnic_chardev_add(swnic, chardev, &err);
    g_assert_no_error(err);
    swnic_netdev_add(swnic, "vhost-user,id=net0,chardev=c0", &err);
    g_assert_no_error(err);
    host_prepare(&host, swnic);
    host.nic = swnic_device_add(swnic, "virtio-net-pci,netdev=net0", &host_ops, &host, &err);
    g_assert_no_error(err);
    host_set_ram(swnic, host.ram);
    swnic_start(swnic);
    host_start_driver(&host);

    host_send_frame(&host, 3);
    host_frame_make(frame, 3);
    g_assert_cmpuint(vu_receive(vu, got, sizeof(got), VU_TIMEOUT_MS), ==, HOST_FRAME_SIZE);
    g_assert_cmpmem(got, HOST_FRAME_SIZE, frame, HOST_FRAME_SIZE);
    host_frame_make(frame, 0);
    g_assert_true(vu_send(vu, 0, frame, sizeof(frame)));
    host.expected = 1;
    host_run_until(host_has_received, &host);
    g_assert_cmpuint(vu_lock(vu)->frames, ==, 1);
    vu_unlock(vu);
    host_close(&host);
    vu_backend_free(vu);
    rmdir(dir);
}

/* An fd named in options is taken over by what succeeds. */
static void test_fd_ownership(void)
{
    Swnic *swnic = swnic_new(NULL, NULL);
    int sockets[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets), ==, 0);
    for (unsigned i = 0; i < 2; i++) {
        g_autofree char *netdev =
            g_strdup_printf("dgram,id=net0,local.type=fd,local.str=%d", sockets[i]);
        g_assert_cmpint(swnic_netdev_add(swnic, netdev, NULL), ==, i == 0); /* the id is taken */
    }
    g_assert_cmpint(fcntl(sockets[0], F_GETFD), >=, 0);
    g_assert_cmpint(fcntl(sockets[1], F_GETFD), >=, 0);
    g_assert_true(swnic_netdev_del(swnic, "net0", NULL));
    g_assert_cmpint(fcntl(sockets[0], F_GETFD), <, 0);
    close(sockets[1]);
    swnic_free(swnic);
}

static void test_intx(void)
{
    Host host;
    GuestPciDevice *pci;
    VirtioDriver *virtio;
    GError *err = NULL;

    host_open(&host, "vectors=0");
    pci = guest_pci_device_open(&host.bus, 0, &err);
    virtio = virtio_driver_new(pci, host.ram, &err);
    g_assert_no_error(err);
    g_assert_true(virtio_driver_negotiate(virtio, 1u << VIRTIO_NET_F_STATUS, &err));
    g_assert_true(virtio_driver_start(virtio, &err));
    g_assert_false(host.irq_level);
    g_assert_true(swnic_set_link(host.swnic, "nic0", false, &err));
    g_assert_true(host.irq_level); /* configuration changed */
    g_assert_cmpuint(host.irq_pin, ==, 0);
    g_assert_cmpuint(virtio_driver_read_isr(virtio), ==, 2);
    g_assert_false(host.irq_level);
    g_assert_cmpuint(host.irq_changes, ==, 2);
    g_assert_cmpuint(host.messages, ==, 0);
    g_assert_false(swnic_set_link(host.swnic, "nobody", false, &err));
    g_assert_nonnull(strstr(err->message, "nobody"));
    g_clear_error(&err);
    virtio_driver_free(virtio);
    g_free(pci);
    host_close(&host);
}

static void test_stopped(void)
{
    Host host;

    host_open(&host, "tx=bh");
    host_start_driver(&host);
    swnic_stop(host.swnic);
    swnic_stop(host.swnic);
    host_send_frame(&host, 1);
    host_settle();
    g_assert_false(host_peer_has_frame(&host));
    g_assert_cmpuint(swnic_bar_read(host.nic, 4, 0x14, 1), ==, 0xf); /* registers still answer */
    swnic_start(host.swnic);
    host_expect_at_peer(&host, 1);
    host_expect_receive(&host);
    host_close(&host);
}

/* Two devices of one instance know nothing of each other. */
static void test_two_devices(void)
{
    Host a, b;
    Swnic *swnic = swnic_new(NULL, NULL);
    GError *err = NULL;

    host_add_device(&a, swnic, "a", "mac=52:54:00:00:00:0a");
    host_add_device(&b, swnic, "b", "mac=52:54:00:00:00:0b");
    host_set_ram(swnic, a.ram);
    guest_ram_free(b.ram);
    b.ram = a.ram; /* one guest */
    swnic_start(swnic);
    host_start_driver(&a);
    host_start_driver(&b);
    host_expect_traffic(&a);
    unsigned messages = a.messages;
    host_expect_traffic(&b);
    g_assert_cmpuint(a.messages, ==, messages);
    g_assert_null(swnic_device_add(swnic, "virtio-net-pci,id=a", &host_ops, NULL, &err));
    g_assert_cmpstr(err->message, ==, "Duplicate device ID 'a'");
    g_clear_error(&err);
    host_stop_driver(&a);
    swnic_device_remove(a.nic);
    g_assert_cmpuint(a.mapped, ==, a.unmapped);
    g_assert_true(swnic_netdev_del(swnic, "a-net", &err));
    host_expect_traffic(&b);
    close(a.peer);
    host_close(&b);
}

static void event_seen(void *opaque, const char *name, const char *json)
{
    g_string_append_printf(opaque, "%s %s\n", name, json);
}

static void test_events(void)
{
    GString *events = g_string_new(NULL);
    const SwnicConfig config = {
        .version = SWNIC_CONFIG_VERSION, .event = event_seen, .opaque = events};
    Host host;
    Swnic *swnic = swnic_new(&config, NULL);

    host_add_device(&host, swnic, "nic0", "romfile=");
    swnic_device_remove(host.nic);
    g_assert_nonnull(strstr(events->str, "DEVICE_DELETED {"));
    g_assert_nonnull(strstr(events->str, "\"device\":\"nic0\""));
    host_close(&host);
    g_string_free(events, TRUE);
}

/* --- memory --- */

static void test_memory_refused(void)
{
    static uint8_t bytes[8192];
    const SwnicMemory overlap[] = {{0x1000, 4096, bytes, -1}, {0x1800, 4096, bytes, -1}};
    const SwnicMemory empty[] = {{0x1000, 0, bytes, -1}};
    const SwnicMemory wraps[] = {{UINT64_MAX - 100, 4096, bytes, -1}};
    Host host;

    host_open(&host, "romfile=");
    host_start_driver(&host);
    g_assert_false(swnic_set_memory(host.swnic, overlap, 2, NULL));
    g_assert_false(swnic_set_memory(host.swnic, empty, 1, NULL));
    GError *err = NULL;
    g_assert_false(swnic_set_memory(host.swnic, wraps, 1, &err));
    g_assert_nonnull(err);
    g_clear_error(&err);
    host_expect_traffic(&host); /* the old map is in force */
    host_close(&host);
}

/* The same contents elsewhere: once set_memory() is back, the old place may go. */
static void test_memory_moves(void)
{
    Host host;
    Swnic *swnic = swnic_new(NULL, NULL);

    g_assert_true(swnic_object_add(swnic, "iothread,id=io0", NULL));
    host_add_device(&host, swnic, "nic0", "iothread=io0");
    host_set_ram(swnic, host.ram);
    swnic_start(swnic);
    host_start_driver(&host);
    for (unsigned i = 0; i < 20; i++) {
        host_expect_traffic(&host);
        /* A second mapping of the same memory, used from now on. */
        void *other =
            mmap(NULL, host.ram->size, PROT_READ | PROT_WRITE, MAP_SHARED, host.ram->fd, 0);
        g_assert_true(other != MAP_FAILED);
        const SwnicMemory memory = {.size = host.ram->size, .host = other, .fd = host.ram->fd};
        g_assert_true(swnic_set_memory(swnic, &memory, 1, NULL));
        host_expect_traffic(&host);
        host_set_ram(swnic, host.ram);
        munmap(other, host.ram->size);
    }
    host_close(&host);
}

/* Without memory the device gives up its queues, and the guest can start it again. */
static void test_no_memory(void)
{
    Host host;

    host_open(&host, "romfile=");
    host_start_driver(&host);
    host_expect_traffic(&host);
    g_assert_true(swnic_set_memory(host.swnic, NULL, 0, NULL));
    host_send_frame(&host, 1);
    host_settle();
    g_assert_false(host_peer_has_frame(&host));
    host_set_ram(host.swnic, host.ram);
    host_stop_driver(&host);
    host_start_driver(&host);
    host_expect_traffic(&host);
    host_close(&host);
}

static void test_log(void)
{
    g_autofree char *path = g_build_filename(g_get_tmp_dir(), "swnic-library-XXXXXX", NULL);
    int fd = g_mkstemp(path);
    g_autofree char *text = NULL;
    Host host;
    GError *err = NULL;

    host_open(&host, "romfile=");
    g_assert_false(swnic_set_log(host.swnic, "nosuch", NULL, &err));
    g_assert_nonnull(strstr(err->message, "nosuch"));
    g_clear_error(&err);
    g_assert_true(swnic_set_log(host.swnic, "trace:virtio_set_status", path, &err));
    host_start_driver(&host);
    g_assert_true(swnic_set_log(host.swnic, "trace:-virtio_set_status", NULL, &err));
    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_nonnull(strstr(text, "virtio_set_status vdev"));
    g_assert_nonnull(strstr(text, "status 0x0f"));
    host_close(&host);
    close(fd);
    unlink(path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/library/life/one-at-a-time", test_one_at_a_time);
    g_test_add_func("/library/life/another-thread-is-refused", test_other_thread);
    g_test_add_func("/library/life/unknown-versions-are-refused", test_versions);
    g_test_add_func("/library/options/errors-name-what-is-wrong", test_refused_options);
    g_test_add_func("/library/options/chardevs-netdevs-and-objects", test_back_ends);
    g_test_add_func("/library/device/properties", test_properties);
    g_test_add_func("/library/device/bars", test_bars);
    g_test_add_func("/library/device/traffic", test_traffic);
    g_test_add_func("/library/device/traffic-in-an-iothread", test_iothread);
    g_test_add_func("/library/device/notifiers", test_notifiers);
    g_test_add_func("/library/device/vhost-user", test_vhost_user);
    g_test_add_func("/library/options/fds-are-taken-over", test_fd_ownership);
    g_test_add_func("/library/device/intx", test_intx);
    g_test_add_func("/library/device/stopped", test_stopped);
    g_test_add_func("/library/device/two", test_two_devices);
    g_test_add_func("/library/device/events", test_events);
    g_test_add_func("/library/memory/bad-maps-are-refused", test_memory_refused);
    g_test_add_func("/library/memory/moves-under-traffic", test_memory_moves);
    g_test_add_func("/library/memory/none", test_no_memory);
    g_test_add_func("/library/log", test_log);
    return g_test_run();
}
