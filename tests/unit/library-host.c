/* See library-host.h. */
#include "library-host.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TIMEOUT_S 60 /* of what comes at once on a machine that does nothing else */

static void host_set_irq(void *opaque, unsigned pin, bool level)
{
    Host *host = opaque;

    host->irq_level = level;
    host->irq_pin = pin;
    host->irq_changes++;
}

static void host_send_msi(void *opaque, unsigned vector, uint64_t addr, uint32_t data)
{
    Host *host = opaque;
    uint32_t *word = guest_ram_pointer(host->ram, addr, sizeof(data));

    g_assert_nonnull(word);
    __atomic_fetch_add(&host->messages, 1, __ATOMIC_RELAXED);
    if (!pthread_equal(pthread_self(), host->main_thread)) {
        __atomic_fetch_add(&host->messages_elsewhere, 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(word, data, __ATOMIC_RELEASE);
}

static void host_bar_mapped(void *opaque, unsigned bar, uint64_t addr)
{
    Host *host = opaque;

    g_assert_cmpuint(host->bars[bar], ==, UINT64_MAX);
    host->bars[bar] = addr;
    host->mapped++;
}

static void host_bar_unmapped(void *opaque, unsigned bar, uint64_t addr)
{
    Host *host = opaque;

    g_assert_cmpuint(host->bars[bar], ==, addr);
    host->bars[bar] = UINT64_MAX;
    host->unmapped++;
}

const SwnicDeviceOps host_ops = {
    .version = SWNIC_DEVICE_OPS_VERSION,
    .set_irq = host_set_irq,
    .send_msi = host_send_msi,
    .bar_mapped = host_bar_mapped,
    .bar_unmapped = host_bar_unmapped,
};

static uint32_t op_config_read(GuestPciBus *bus, uint8_t number, uint8_t devfn, unsigned width,
                               uint8_t offset)
{
    Host *host = bus->opaque;

    return number || devfn ? UINT32_MAX >> (32 - 8 * width)
                           : swnic_config_read(host->nic, offset, width);
}

static void op_config_write(GuestPciBus *bus, uint8_t number, uint8_t devfn, unsigned width,
                            uint8_t offset, uint32_t value)
{
    swnic_config_write(((Host *)bus->opaque)->nic, offset, value, width);
}

static uint64_t op_bar_read(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset)
{
    return swnic_bar_read(((Host *)device->bus->opaque)->nic, bar, offset, width);
}

static void op_bar_write(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                         uint64_t value)
{
    swnic_bar_write(((Host *)device->bus->opaque)->nic, bar, offset, value, width);
}

static bool op_check(GuestPciBus *bus, GError **errp)
{
    return true;
}

static bool op_is_broken(GuestPciBus *bus)
{
    return false;
}

const GuestPciOps host_pci_ops = {
    .config_read = op_config_read,
    .config_write = op_config_write,
    .bar_read = op_bar_read,
    .bar_write = op_bar_write,
    .bar_post = op_bar_write,
    .check = op_check,
    .is_broken = op_is_broken,
};

void host_set_ram(Swnic *swnic, const GuestRam *ram)
{
    const SwnicMemory memory = {.size = ram->size, .host = ram->host, .fd = ram->fd};
    GError *err = NULL;

    swnic_set_memory(swnic, &memory, 1, &err);
    g_assert_no_error(err);
}

void host_prepare(Host *host, Swnic *swnic)
{
    GError *err = NULL;

    memset(host, 0, sizeof(*host));
    memset(host->bars, 0xff, sizeof(host->bars));
    host->main_thread = pthread_self();
    host->swnic = swnic;
    host->peer = -1;
    host->ram = guest_ram_new(HOST_RAM_SIZE, &err);
    g_assert_no_error(err);
    guest_pci_bus_init_ops(&host->bus, &host_pci_ops, host);
}

/* A device with more @properties on @swnic, on a socket whose other end is host->peer. */
void host_add_device(Host *host, Swnic *swnic, const char *id, const char *properties)
{
    int sockets[2];
    GError *err = NULL;

    host_prepare(host, swnic);
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets), ==, 0);
    host->peer = sockets[1];
    g_autofree char *netdev =
        g_strdup_printf("dgram,id=%s-net,local.type=fd,local.str=%d", id, sockets[0]);
    g_autofree char *device =
        g_strdup_printf("virtio-net-pci,id=%s,netdev=%s-net,%s", id, id, properties);
    swnic_netdev_add(swnic, netdev, &err);
    g_assert_no_error(err);
    host->nic = swnic_device_add(swnic, device, &host_ops, host, &err);
    g_assert_no_error(err);
}

void host_open(Host *host, const char *properties)
{
    GError *err = NULL;
    Swnic *swnic = swnic_new(NULL, &err);

    g_assert_no_error(err);
    host_add_device(host, swnic, "nic0", properties);
    host_set_ram(swnic, host->ram);
    swnic_start(swnic);
}

void host_start_driver(Host *host)
{
    const NetDriverConfig config = {.features = NET_DRIVER_PLAIN_FEATURES};
    GError *err = NULL;

    host->pci = guest_pci_device_open(&host->bus, 0, &err);
    g_assert_no_error(err);
    host->driver = net_driver_new(host->pci, host->ram, &config, &err);
    g_assert_no_error(err);
}

void host_stop_driver(Host *host)
{
    g_clear_pointer(&host->driver, net_driver_free);
    g_clear_pointer(&host->pci, g_free);
}

void host_close(Host *host)
{
    host_stop_driver(host);
    swnic_free(host->swnic);
    g_assert_cmpuint(host->mapped, ==, host->unmapped);
    guest_ram_free(host->ram);
    if (host->peer >= 0) {
        close(host->peer);
    }
}

static gboolean too_late(gpointer opaque)
{
    g_error("nothing came in time");
    return G_SOURCE_REMOVE;
}

/* Runs the main loop until @done says so. */
void host_run_until(bool (*done)(void *opaque), void *opaque)
{
    guint watchdog = g_timeout_add_seconds(TIMEOUT_S, too_late, NULL);

    while (!done(opaque)) { /* an iothread wakes nobody here: no sleeping */
        if (!g_main_context_iteration(NULL, FALSE)) {
            g_thread_yield();
        }
    }
    g_source_remove(watchdog);
}

/* Everything that is ready has run. */
void host_settle(void)
{
    while (g_main_context_iteration(NULL, FALSE)) {
    }
}

void host_frame_make(uint8_t *frame, unsigned number)
{
    memset(frame, 0xff, 6);
    for (unsigned i = 6; i < HOST_FRAME_SIZE; i++) {
        frame[i] = (uint8_t)(number * 7 + i);
    }
    frame[6] &= 0xfe;
    frame[12] = 0x88;
    frame[13] = 0xb5;
}

static void frame_received(void *opaque, const NetDriverFrame *frame)
{
    Host *host = opaque;
    uint8_t expected[HOST_FRAME_SIZE];

    host_frame_make(expected, host->received++);
    g_assert_cmpuint(frame->iovcnt, ==, 1);
    g_assert_cmpmem(frame->iov[0].iov_base, frame->iov[0].iov_len, expected, HOST_FRAME_SIZE);
}

bool host_has_received(void *opaque)
{
    Host *host = opaque;

    net_driver_receive(host->driver, HOST_BURST, frame_received, host);
    return host->received == host->expected;
}

void host_expect_receive(Host *host)
{
    uint8_t frame[HOST_FRAME_SIZE];

    host->received = 0;
    for (unsigned i = 0; i < HOST_BURST; i++) {
        host_frame_make(frame, i);
        g_assert_cmpint(send(host->peer, frame, sizeof(frame), MSG_DONTWAIT), ==, sizeof(frame));
        if (i % 8 == 7) { /* a datagram socket takes about ten */
            host->expected = i + 1;
            host_run_until(host_has_received, host);
        }
    }
}

void host_send_frame(Host *host, unsigned number)
{
    uint8_t frame[HOST_FRAME_SIZE];
    struct iovec iov = {frame, sizeof(frame)};

    host_frame_make(frame, number);
    g_assert_true(net_driver_send(host->driver, NULL, &iov, 1));
    net_driver_flush(host->driver);
}

bool host_peer_has_frame(void *opaque)
{
    uint8_t byte;

    return recv(((Host *)opaque)->peer, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
}

void host_expect_at_peer(Host *host, unsigned number)
{
    uint8_t expected[HOST_FRAME_SIZE], got[HOST_FRAME_SIZE + 1];

    host_run_until(host_peer_has_frame, host);
    host_frame_make(expected, number);
    ssize_t size = recv(host->peer, got, sizeof(got), MSG_DONTWAIT);
    g_assert_cmpmem(got, size, expected, HOST_FRAME_SIZE);
}

void host_expect_traffic(Host *host)
{
    for (unsigned i = 0; i < HOST_BURST; i++) {
        host_send_frame(host, i);
        host_expect_at_peer(host, i);
    }
    host_expect_receive(host);
}
