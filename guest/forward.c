/*
 * `swnic-guest forward`: the guest of the lab.  It has no TCP/IP stack: what it reads from a tap it
 * puts into its transmit ring, what it receives it writes to the tap.  So a kernel behind the tap
 * talks through the device with all its offloads, as if the tap were the driver's own interface.
 *
 *   kernel A ── tap (--tap-fd) ── rings ── device ── its back end ── kernel B
 *
 * Two threads, as a guest of two processors would have: one sends, one receives.  The sender
 * publishes and notifies for each packet, as a kernel's driver does, or coalesces (--kick-packets,
 * --kick-us).  The device is a vfio-user server's (--vfio-user: eventfds both ways, nobody polls)
 * or an emulator's that is started here (--emulator: qtest; interrupts are then words of RAM, so
 * the receiver has to look for them).
 *
 * Standard input is the control line: "stats" is answered by one line of JSON; its end ends all.
 */
#include "guest/commands.h"
#include "guest/emulator.h"
#include "guest/guard.h"
#include "guest/net-driver.h"
#include "guest/vfio-user-pci.h"
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define RAM_SIZE      (512u << 20)
#define MAX_FRAME     65562
#define RECEIVE_BURST 64
#define IDLE_US       100000
#define RING_FULL_NS  20000
#define FEATURE(bit)  (1ull << (bit))
#define GSO_FEATURES                                                                               \
    (FEATURE(VIRTIO_NET_F_CSUM) | FEATURE(VIRTIO_NET_F_HOST_TSO4) |                                \
     FEATURE(VIRTIO_NET_F_HOST_TSO6) | FEATURE(VIRTIO_NET_F_GUEST_CSUM) |                          \
     FEATURE(VIRTIO_NET_F_GUEST_TSO4) | FEATURE(VIRTIO_NET_F_GUEST_TSO6))

#define COAL_FEATURES (FEATURE(VIRTIO_NET_F_CTRL_VQ) | FEATURE(VIRTIO_NET_F_NOTF_COAL))

typedef struct ForwardOptions {
    char *vfio_user, *emulator, *device;
    int tap_fd, peer_fd, reconnect_ms, ring, rx_buffer, kick_packets, kick_us, coal_packets,
        coal_us;
    gboolean no_gso, no_event_idx, no_mergeable, eager;
} ForwardOptions;

typedef struct Forward {
    ForwardOptions options;
    Emulator *emulator;
    VfioUserPci *vfio_user;
    GuestRam *ram; /* shared with the vfio-user server */
    GuestPciBus qtest_bus;
    GuestPciDevice *pci;
    NetDriver *driver;
    bool stop;              /* atomic */
    uint64_t ring_full;     /* packets that had to wait; atomic */
    uint64_t receive_drops; /* the tap did not take them; atomic */
    pthread_t sender, receiver;
} Forward;

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static bool stopping(Forward *forward)
{
    return __atomic_load_n(&forward->stop, __ATOMIC_RELAXED);
}

/* --- from the tap into the ring --- */

static void send_frame(Forward *forward, uint8_t *data, size_t size)
{
    struct virtio_net_hdr_v1 header;
    struct iovec iov = {data + sizeof(header), size - sizeof(header)};
    memcpy(&header, data, sizeof(header));
    header.num_buffers = 0;
    if (net_driver_send(forward->driver, &header, &iov, 1)) {
        return;
    }
    __atomic_fetch_add(&forward->ring_full, 1, __ATOMIC_RELAXED);
    net_driver_flush(forward->driver);
    do {
        nanosleep(&(struct timespec){0, RING_FULL_NS}, NULL);
    } while (!stopping(forward) && !net_driver_send(forward->driver, &header, &iov, 1));
}

/* Sleeps until the tap is readable or what is held back is due. */
static void wait_tap(Forward *forward, unsigned held, int64_t due)
{
    struct pollfd pfd = {.fd = forward->options.tap_fd, .events = POLLIN};
    int64_t ns = held ? MAX(due - now_ns(), 0) : IDLE_US * 1000ll;
    struct timespec timeout = {ns / 1000000000, ns % 1000000000};
    ppoll(&pfd, 1, &timeout, NULL);
}

static void *send_all(void *opaque)
{
    Forward *forward = opaque;
    const ForwardOptions *options = &forward->options;
    uint8_t *data = g_malloc(MAX_FRAME + sizeof(struct virtio_net_hdr_v1));
    unsigned held = 0;
    int64_t due = 0;
    prctl(PR_SET_TIMERSLACK, 1ul);
    while (!stopping(forward)) {
        ssize_t n = read(options->tap_fd, data, MAX_FRAME + sizeof(struct virtio_net_hdr_v1));
        if (n > (ssize_t)sizeof(struct virtio_net_hdr_v1)) {
            send_frame(forward, data, (size_t)n);
            due = held++ ? due : now_ns() + options->kick_us * 1000ll;
        } else {
            wait_tap(forward, held, due);
        }
        if (held && (held >= (unsigned)options->kick_packets || now_ns() >= due)) {
            net_driver_flush(forward->driver);
            held = 0;
            if (options->eager) {
                net_driver_tx_in_flight(forward->driver); /* takes back what is used */
            }
        }
    }
    g_free(data);
    return NULL;
}

/* --- from the ring to the tap --- */

static void receive_frame(void *opaque, const NetDriverFrame *frame)
{
    Forward *forward = opaque;
    struct iovec iov[NET_DRIVER_MAX_BUFFERS + 1];
    iov[0] = (struct iovec){(void *)&frame->header, sizeof(frame->header)};
    memcpy(iov + 1, frame->iov, frame->iovcnt * sizeof(iov[0]));
    if (writev(forward->options.tap_fd, iov, (int)frame->iovcnt + 1) < 0) {
        __atomic_fetch_add(&forward->receive_drops, 1, __ATOMIC_RELAXED);
    }
}

static void *receive_all(void *opaque)
{
    Forward *forward = opaque;
    prctl(PR_SET_TIMERSLACK, 1ul);
    while (!stopping(forward)) {
        if (net_driver_wait(forward->driver, IDLE_US)) {
            while (net_driver_receive(forward->driver, RECEIVE_BURST, receive_frame, forward)) {
            }
        }
    }
    return NULL;
}

/* --- the device --- */

static bool start_emulator(Forward *forward, GError **errp)
{
    const ForwardOptions *options = &forward->options;
    bool is_swnic = emulator_command_is_swnic(options->emulator, NULL);
    int fds[] = {options->peer_fd, -1};
    g_autofree char *netdev = g_strdup_printf("tap,id=n0,fd=%d", options->peer_fd);
    g_autofree char *device = g_strconcat("virtio-net-pci,romfile=,id=nic0,netdev=n0",
                                          options->device ? "," : "", options->device, NULL);
    const char *arguments[] = {"-nodefaults", "-netdev", netdev, "-device", device, NULL};
    EmulatorOptions start = {
        .command = options->emulator,
        .arguments = arguments,
        .ram_size = RAM_SIZE,
        .accel = is_swnic ? NULL : "tcg",
        .halt_bios = !is_swnic,
        .inherit_fds = fds,
    };
    forward->emulator = emulator_start(&start, errp);
    return forward->emulator != NULL;
}

/* Asks for coalesced receive interrupts (virtio 1.4, 5.1.6.5.9). */
static bool set_coalescing(Forward *forward, GError **errp)
{
    struct virtio_net_ctrl_coal_rx coal = {
        .rx_max_packets = GUINT32_TO_LE((uint32_t)forward->options.coal_packets),
        .rx_usecs = GUINT32_TO_LE((uint32_t)forward->options.coal_us),
    };
    if (!virtio_driver_has_feature(net_driver_virtio(forward->driver), VIRTIO_NET_F_NOTF_COAL)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
                    "--coal-packets: the device does not coalesce interrupts (notf_coal=on?)");
        return false;
    }
    return net_control_command(net_driver_control(forward->driver), VIRTIO_NET_CTRL_NOTF_COAL,
                               VIRTIO_NET_CTRL_NOTF_COAL_RX_SET, &coal, sizeof(coal), errp);
}

static bool start_driver(Forward *forward, GError **errp)
{
    const ForwardOptions *options = &forward->options;
    GuestPciBus *bus =
        forward->vfio_user ? vfio_user_pci_bus(forward->vfio_user) : &forward->qtest_bus;
    NetDriverConfig config = {
        .features = FEATURE(VIRTIO_NET_F_MAC) | FEATURE(VIRTIO_NET_F_STATUS) |
                    (options->no_mergeable ? 0 : FEATURE(VIRTIO_NET_F_MRG_RXBUF)) |
                    (options->no_event_idx ? 0 : FEATURE(VIRTIO_RING_F_EVENT_IDX)) |
                    (options->no_gso ? 0 : GSO_FEATURES) |
                    (options->coal_packets ? COAL_FEATURES : 0),
        .rx_size = (uint16_t)options->ring,
        .tx_size = (uint16_t)options->ring,
        .rx_buffer_size = (uint32_t)options->rx_buffer,
        .tx_buffer_size = options->no_gso ? 0 : MAX_FRAME + 12,
        .keep_partial_checksums = true,
    };
    if (!forward->vfio_user) {
        guest_pci_bus_init(bus, forward->emulator->qtest);
    }
    forward->pci = guest_pci_device_find(bus, guest_pci_match_virtio_net, NULL, 0, errp);
    forward->driver =
        forward->pci ? net_driver_new(forward->pci,
                                      forward->vfio_user ? forward->ram : forward->emulator->ram,
                                      &config, errp)
                     : NULL;
    return forward->driver && (!options->coal_packets || set_coalescing(forward, errp));
}

static bool set_up_tap(const ForwardOptions *options, GError **errp)
{
    int header = sizeof(struct virtio_net_hdr_v1);
    unsigned long offloads = options->no_gso ? 0 : TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    if (ioctl(options->tap_fd, TUNSETVNETHDRSZ, &header) < 0 ||
        ioctl(options->tap_fd, TUNSETOFFLOAD, offloads) < 0 ||
        fcntl(options->tap_fd, F_SETFL, O_NONBLOCK) < 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "tap of --tap-fd %d: %s", options->tap_fd,
                    g_strerror(errno));
        return false;
    }
    return true;
}

static bool start(Forward *forward, GError **errp)
{
    if (!set_up_tap(&forward->options, errp)) {
        return false;
    }
    if (forward->options.vfio_user) {
        const VfioUserPciOptions options = {.reconnect_ms =
                                                (unsigned)forward->options.reconnect_ms};
        forward->ram = guest_ram_new(RAM_SIZE, errp);
        forward->vfio_user = forward->ram ? vfio_user_pci_connect(forward->options.vfio_user,
                                                                  forward->ram, &options, errp)
                                          : NULL;
        if (!forward->vfio_user) {
            return false;
        }
    } else if (!start_emulator(forward, errp)) {
        return false;
    }
    return start_driver(forward, errp);
}

/* --- control --- */

static void print_stats(Forward *forward)
{
    NetDriverStats stats;
    g_autofree char *features =
        virtio_driver_features_text(net_driver_virtio(forward->driver)->features);
    net_driver_get_stats(forward->driver, &stats);
    printf("{\"rx_packets\": %" PRIu64 ", \"tx_packets\": %" PRIu64 ", \"rx_bytes\": %" PRIu64
           ", \"tx_bytes\": %" PRIu64 ", \"rx_notifications\": %" PRIu64
           ", \"tx_notifications\": %" PRIu64 ", \"rx_interrupts\": %" PRIu64
           ", \"rx_bad\": %" PRIu64 ", \"ring_full\": %" PRIu64 ", \"receive_drops\": %" PRIu64
           ", \"emulator_pid\": %d, \"reconnects\": %u, \"features\": \"%s\"}\n",
           stats.rx_packets, stats.tx_packets, stats.rx_bytes, stats.tx_bytes,
           stats.rx_notifications, stats.tx_notifications, stats.rx_interrupts, stats.rx_bad,
           __atomic_load_n(&forward->ring_full, __ATOMIC_RELAXED),
           __atomic_load_n(&forward->receive_drops, __ATOMIC_RELAXED),
           forward->emulator ? (int)forward->emulator->pid : 0,
           forward->vfio_user ? vfio_user_pci_reconnects(forward->vfio_user) : 0, features);
    fflush(stdout);
}

static bool control(Forward *forward, GError **errp)
{
    char line[64];
    print_stats(forward);
    while (fgets(line, sizeof(line), stdin)) {
        if (!net_driver_check(forward->driver, errp)) {
            return false;
        }
        if (strcmp(line, "stats\n") == 0) {
            print_stats(forward);
        }
    }
    return true;
}

static void finish(Forward *forward)
{
    net_driver_free(forward->driver);
    g_free(forward->pci);
    vfio_user_pci_free(forward->vfio_user);
    guest_ram_free(forward->ram);
    if (forward->emulator) {
        emulator_stop(forward->emulator, NULL);
    }
}

static bool run(Forward *forward, GError **errp)
{
    bool ok = start(forward, errp);
    if (ok) {
        pthread_create(&forward->sender, NULL, send_all, forward);
        pthread_create(&forward->receiver, NULL, receive_all, forward);
        ok = control(forward, errp);
        __atomic_store_n(&forward->stop, true, __ATOMIC_RELAXED);
        pthread_join(forward->sender, NULL);
        pthread_join(forward->receiver, NULL);
    }
    finish(forward);
    return ok;
}

int forward_main(int argc, char **argv)
{
    Forward forward = {.options = {.tap_fd = -1, .peer_fd = -1, .kick_packets = 1}};
    ForwardOptions *o = &forward.options;
    const GOptionEntry entries[] = {
        {"tap-fd", 0, 0, G_OPTION_ARG_INT, &o->tap_fd, "the guest's tap, with vnet header", "FD"},
        {"vfio-user", 0, 0, G_OPTION_ARG_STRING, &o->vfio_user, "socket of the server", "PATH"},
        {"reconnect-ms", 0, 0, G_OPTION_ARG_INT, &o->reconnect_ms,
         "look so long for the server that replaces it (0: not)", "MS"},
        {"emulator", 'e', 0, G_OPTION_ARG_STRING, &o->emulator, "start this one", "COMMAND"},
        {"device", 'd', 0, G_OPTION_ARG_STRING, &o->device, "more properties", "PROP=VALUE,..."},
        {"peer-fd", 0, 0, G_OPTION_ARG_INT, &o->peer_fd, "the emulator's tap", "FD"},
        {"ring", 0, 0, G_OPTION_ARG_INT, &o->ring, "entries of each ring (as offered)", "N"},
        {"rx-buffer", 0, 0, G_OPTION_ARG_INT, &o->rx_buffer, "bytes a receive buffer", "BYTES"},
        {"kick-packets", 0, 0, G_OPTION_ARG_INT, &o->kick_packets, "packets published together (1)",
         "N"},
        {"kick-us", 0, 0, G_OPTION_ARG_INT, &o->kick_us, "or after this time (0)", "US"},
        {"coal-packets", 0, 0, G_OPTION_ARG_INT, &o->coal_packets, "received packets an interrupt",
         "N"},
        {"coal-us", 0, 0, G_OPTION_ARG_INT, &o->coal_us, "or after this time", "US"},
        {"no-gso", 0, 0, G_OPTION_ARG_NONE, &o->no_gso, "no checksum and segment offload", NULL},
        {"no-event-idx", 0, 0, G_OPTION_ARG_NONE, &o->no_event_idx, "no event index", NULL},
        {"no-mergeable", 0, 0, G_OPTION_ARG_NONE, &o->no_mergeable, "no mergeable buffers", NULL},
        {"eager", 0, 0, G_OPTION_ARG_NONE, &o->eager, "take used buffers back at once", NULL},
        {NULL}};
    g_autoptr(GOptionContext) context =
        g_option_context_new("- forward between a tap and a device");
    g_autoptr(GError) err = NULL;
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &err)) {
        fprintf(stderr, "swnic-guest forward: %s\n", err->message);
        return 1;
    }
    if (o->tap_fd < 0 || !o->vfio_user == !o->emulator || (o->emulator && o->peer_fd < 0) ||
        o->kick_packets < 1 || o->ring < 0 || o->ring > 1024 || o->rx_buffer < 0 ||
        o->kick_us < 0 || o->reconnect_ms < 0) {
        fprintf(stderr, "swnic-guest forward: --tap-fd and either --vfio-user or --emulator with "
                        "--peer-fd are needed\n");
        return 1;
    }
    guest_guard_start(0);
    if (!run(&forward, &err)) {
        fprintf(stderr, "swnic-guest forward: %s\n", err->message);
        return 1;
    }
    return 0;
}
