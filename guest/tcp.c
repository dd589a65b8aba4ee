/*
 * `swnic-guest tcp`: the guest's end of a TCP connection over any back end.
 *
 * A test gives the -netdev and the addresses, and has the other end.  Standard output gets one
 * line "ready" when the guest can be reached, and at the end one JSON object: bytes and SHA-256
 * of each direction, and how many frames were only possible with offloads.
 *
 *   sink PORT               accepts one connection and reads it to its end
 *   echo PORT               the same, and sends everything back
 *   source HOST:PORT BYTES  connects and sends
 *
 * With --udp-echo every datagram to that port goes back where it came from, all the while.
 *
 * With --migrate N the emulator is replaced N times while that goes on (mover.h), between two back
 * ends (--netdev and --migrate-netdev) and among the policies of --migrate-tx.
 *
 * With --vfio-user no emulator is started: the device is that of a server, which may be replaced by
 * another process meanwhile (--reconnect-ms).
 */
#include "guest/commands.h"
#include "guest/emulator.h"
#include "guest/guard.h"
#include "guest/lwip-netif.h"
#include "guest/mover.h"
#include "guest/vfio-user-pci.h"
#include <arpa/inet.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <lwip/api.h>
#include <lwip/tcpip.h>
#include <lwip/udp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAM_SIZE   (128u << 20) /* for each queue pair */
#define PIECE      32768
#define TIMEOUT_MS 20000
#define MOVE_BYTES (1u << 20) /* received between two migrations */
#define UDP_TRIES  2000
#define OFFLOADS                                                                                   \
    ((1ull << VIRTIO_NET_F_CSUM) | (1ull << VIRTIO_NET_F_HOST_TSO4) |                              \
     (1ull << VIRTIO_NET_F_GUEST_CSUM) | (1ull << VIRTIO_NET_F_GUEST_TSO4))

typedef struct TcpOptions {
    char *emulator, *netdev, *device, *address, *vfio_user;
    gboolean offloads, packed;
    char *migrate_netdev, *migrate_tx; /* tx= of each round, separated by commas */
    int timeout, udp_echo, pairs, migrate, reconnect_ms;
} TcpOptions;

typedef struct TcpCommand {
    bool sends, echoes;
    uint32_t host;
    uint16_t port;
    uint64_t bytes;
} TcpCommand;

typedef struct TcpRun {
    const TcpOptions *options;
    const TcpCommand *command;
    pthread_t carrier; /* with --migrate: carries the streams while @carries */
    bool carries;
    GError *carry_error;
    Mover mover;            /* has the emulator that runs now, if it is ours, and the RAM */
    VfioUserPci *vfio_user; /* with --vfio-user */
    unsigned reconnects;    /* servers that came later */
    GuestPciBus bus;
    GuestPciDevice *pci;
    NetDriver *driver;
    bool stack_runs;
    struct udp_pcb *udp;
    bool packed;    /* was negotiated */
    GString *pairs; /* JSON: what each queue pair carried */
    uint64_t sent, received;
    GChecksum *sent_sum, *received_sum;
} TcpRun;

static bool fail(GError **errp, const char *what, err_t err)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", what, guest_netif_strerror(err));
    return false;
}

/* --- what travels --- */

/* Pieces of a fixed stream, the same for both ends: byte i is a function of i alone. */
static void fill(uint8_t *piece, size_t size, uint64_t at)
{
    for (size_t i = 0; i < size; i++) {
        uint64_t word = (at + i) / 8 * 0x9E3779B97F4A7C15ull;
        piece[i] = (uint8_t)(word >> (32 + (at + i) % 4 * 8));
    }
}

static bool send_all(TcpRun *run, struct netconn *conn, const void *data, size_t size,
                     GError **errp)
{
    err_t err = netconn_write(conn, data, size, NETCONN_COPY);
    if (err != ERR_OK) {
        return fail(errp, "send", err);
    }
    run->sent += size;
    g_checksum_update(run->sent_sum, data, (gssize)size);
    return true;
}

/* Reads to the end; with @echo, sends everything back. */
static bool receive_all(TcpRun *run, struct netconn *conn, bool echo, GError **errp)
{
    struct pbuf *p;
    err_t err;
    while ((err = netconn_recv_tcp_pbuf(conn, &p)) == ERR_OK) {
        bool ok = true;
        for (struct pbuf *q = p; q && ok; q = q->next) {
            __atomic_store_n(&run->received, run->received + q->len, __ATOMIC_RELAXED);
            g_checksum_update(run->received_sum, q->payload, q->len);
            ok = !echo || send_all(run, conn, q->payload, q->len, errp);
        }
        pbuf_free(p);
        if (!ok) {
            return false;
        }
    }
    return err == ERR_CLSD || fail(errp, "receive", err);
}

static void say_ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static bool serve(TcpRun *run, uint16_t port, bool echo, GError **errp)
{
    struct netconn *listener = netconn_new(NETCONN_TCP), *conn = NULL;
    err_t err = listener ? netconn_bind(listener, IP_ADDR_ANY, port) : ERR_MEM;
    if (err == ERR_OK) {
        err = netconn_listen(listener);
    }
    if (err == ERR_OK) {
        netconn_set_recvtimeout(listener, TIMEOUT_MS);
        say_ready();
        err = netconn_accept(listener, &conn);
    }
    bool ok = err == ERR_OK || fail(errp, "listen", err);
    if (ok) {
        netconn_set_recvtimeout(conn, TIMEOUT_MS);
        ok = receive_all(run, conn, echo, errp);
        netconn_close(conn);
        netconn_delete(conn);
    }
    if (listener) {
        netconn_delete(listener);
    }
    return ok;
}

static bool send_to(TcpRun *run, uint32_t host, uint16_t port, uint64_t bytes, GError **errp)
{
    struct netconn *conn = netconn_new(NETCONN_TCP);
    ip_addr_t to = IPADDR4_INIT(lwip_htonl(host));
    g_autofree uint8_t *piece = g_malloc(PIECE);
    err_t err = conn ? ERR_OK : ERR_MEM;
    if (err == ERR_OK) {
        netconn_set_recvtimeout(conn, TIMEOUT_MS);
        say_ready();
        err = netconn_connect(conn, &to, port);
    }
    bool ok = err == ERR_OK || fail(errp, "connect", err);
    while (ok && run->sent < bytes) {
        size_t size = MIN(bytes - run->sent, PIECE);
        fill(piece, size, run->sent);
        ok = send_all(run, conn, piece, size, errp);
    }
    if (ok) {
        /* The other end closes when it has everything. */
        err = netconn_shutdown(conn, 0, 1);
        ok = (err == ERR_OK || fail(errp, "shutdown", err)) && receive_all(run, conn, false, errp);
    }
    if (conn) {
        netconn_delete(conn);
    }
    return ok;
}

/* --- UDP --- */

static void echo_datagram(void *opaque, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from,
                          u16_t port)
{
    err_t err = ERR_MEM;
    /* A full ring, as with tx=timer, is no reason to lose it: the device empties it alone. */
    for (unsigned i = 0; err == ERR_MEM && i < UDP_TRIES; i++) {
        struct pbuf *copy = pbuf_clone(PBUF_TRANSPORT, PBUF_RAM, p); /* gets headers put before */
        if (copy) {
            err = udp_sendto(pcb, copy, from, port);
            pbuf_free(copy);
        }
        if (err == ERR_MEM) {
            g_usleep(100);
        }
    }
    if (err != ERR_OK) {
        fprintf(stderr, "swnic-guest: a datagram is lost: %s\n", guest_netif_strerror(err));
    }
    pbuf_free(p);
    (void)opaque;
}

static bool start_udp(TcpRun *run, uint16_t port, GError **errp)
{
    LOCK_TCPIP_CORE();
    run->udp = udp_new();
    err_t err = run->udp ? udp_bind(run->udp, IP_ADDR_ANY, port) : ERR_MEM;
    if (err == ERR_OK) {
        udp_recv(run->udp, echo_datagram, NULL);
    }
    UNLOCK_TCPIP_CORE();
    return err == ERR_OK || fail(errp, "UDP", err);
}

static void stop_udp(TcpRun *run)
{
    if (run->udp) {
        LOCK_TCPIP_CORE();
        udp_remove(run->udp);
        UNLOCK_TCPIP_CORE();
    }
}

/* --- the guest --- */

/* "10.9.0.2/24"; the router is the network's first address. */
static bool parse_address(const char *text, GuestDhcpLease *lease, GError **errp)
{
    g_auto(GStrv) parts = g_strsplit(text, "/", 2);
    struct in_addr address;
    int bits = parts[0] && parts[1] ? atoi(parts[1]) : 0;
    if (bits < 8 || bits > 30 || inet_pton(AF_INET, parts[0], &address) != 1) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--address '%s': an address and a prefix length from 8 to 30, as in "
                    "10.9.0.2/24",
                    text);
        return false;
    }
    lease->address = ntohl(address.s_addr);
    lease->netmask = 0xFFFFFFFFu << (32 - bits);
    lease->router = (lease->address & lease->netmask) + 1;
    return true;
}

/* MoverStartFunc */
static Emulator *start_emulator(void *opaque, unsigned round, GuestRam *ram,
                                const char *const *more, GError **errp)
{
    const TcpOptions *o = ((TcpRun *)opaque)->options;
    g_autofree char *own = o->emulator ? NULL : emulator_default_command();
    const char *command = own ? own : o->emulator;
    bool is_swnic = emulator_command_is_swnic(command, NULL);
    g_auto(GStrv) policies = g_strsplit(o->migrate_tx ? o->migrate_tx : "", ",", -1);
    guint policy_count = g_strv_length(policies);
    g_autofree char *netdev =
        g_strconcat(round % 2 ? o->migrate_netdev : o->netdev, ",id=n0", NULL);
    g_autoptr(GString) device = g_string_new("virtio-net-pci,netdev=n0,romfile=");
    if (o->device) {
        g_string_append_printf(device, ",%s", o->device);
    }
    if (policy_count) {
        g_string_append_printf(device, ",tx=%s", policies[round % policy_count]);
    }
    const char *arguments[16] = {"-nodefaults", "-netdev", netdev, "-device", device->str};
    for (unsigned i = 5; more && *more && i + 1 < G_N_ELEMENTS(arguments); i++) {
        arguments[i] = *more++;
    }
    EmulatorOptions options = {
        .command = command,
        .arguments = arguments,
        .ram = ram,
        .accel = is_swnic ? NULL : "tcg",
        .halt_bios = !is_swnic,
    };
    return emulator_start(&options, errp);
}

static bool connect_vfio_user(TcpRun *run, GError **errp)
{
    const VfioUserPciOptions options = {.reconnect_ms = (unsigned)run->options->reconnect_ms};
    run->vfio_user = vfio_user_pci_connect(run->options->vfio_user, run->mover.ram, &options, errp);
    return run->vfio_user != NULL;
}

/* The bus that has the device. */
static GuestPciBus *find_bus(TcpRun *run, GError **errp)
{
    Mover *mover = &run->mover;
    if (run->options->vfio_user) {
        return connect_vfio_user(run, errp) ? vfio_user_pci_bus(run->vfio_user) : NULL;
    }
    mover->emulator = start_emulator(run, 0, mover->ram, NULL, errp);
    if (!mover->emulator) {
        return NULL;
    }
    guest_pci_bus_init(&run->bus, mover->emulator->qtest);
    return &run->bus;
}

static bool start(TcpRun *run, const GuestDhcpLease *lease, GError **errp)
{
    const TcpOptions *o = run->options;
    NetDriverConfig config = {
        .features = NET_DRIVER_PLAIN_FEATURES | (o->offloads ? OFFLOADS : 0) |
                    (o->packed ? 1ull << VIRTIO_F_RING_PACKED : 0),
        .tx_buffer_size = o->offloads ? 65562 : 0,
        .pairs = (unsigned)o->pairs,
    };
    Mover *mover = &run->mover;
    mover->ram = guest_ram_new((size_t)RAM_SIZE * (unsigned)MAX(o->pairs, 1), errp);
    GuestPciBus *bus = mover->ram ? find_bus(run, errp) : NULL;
    if (!bus) {
        return false;
    }
    run->pci = guest_pci_device_find(bus, guest_pci_match_virtio_net, NULL, 0, errp);
    run->driver = run->pci ? net_driver_new(run->pci, mover->ram, &config, errp) : NULL;
    run->packed = run->driver &&
                  virtio_driver_has_feature(net_driver_virtio(run->driver), VIRTIO_F_RING_PACKED);
    run->stack_runs = run->driver && guest_netif_start(run->driver, lease, errp);
    return run->stack_runs && (!o->udp_echo || start_udp(run, (uint16_t)o->udp_echo, errp));
}

static bool carry(TcpRun *run, const TcpCommand *command, GError **errp)
{
    return command->sends ? send_to(run, command->host, command->port, command->bytes, errp)
                          : serve(run, command->port, command->echoes, errp);
}

static void *carry_thread(void *opaque)
{
    TcpRun *run = opaque;
    return GINT_TO_POINTER(carry(run, run->command, &run->carry_error));
}

/* Waits for the end of carry_thread(), and has its result. */
static bool join_carrier(TcpRun *run, GError **errp)
{
    void *carried = NULL;
    run->carries = false;
    pthread_join(run->carrier, &carried);
    if (!carried) {
        g_propagate_error(errp, run->carry_error);
    }
    return carried;
}

static void note_pairs(TcpRun *run)
{
    NetDriver *pair;
    for (unsigned i = 0; (pair = net_driver_pair(run->driver, i)); i++) {
        NetDriverStats stats;
        net_driver_get_stats(pair, &stats);
        g_string_append_printf(run->pairs,
                               "%s{\"rx-packets\": %" PRIu64 ", \"tx-packets\": %" PRIu64 "}",
                               i ? ", " : "", stats.rx_packets, stats.tx_packets);
    }
}

static bool stop(TcpRun *run, bool so_far, GError **errp)
{
    if (run->stack_runs) {
        stop_udp(run);
        if (so_far && !guest_netif_drain(TIMEOUT_MS)) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_TIMED_OUT,
                        "the peer does not acknowledge the end of the connection");
            so_far = false;
        }
        guest_netif_stop();
        if (run->carries) {
            join_carrier(run, NULL); /* without the interface its connection is over */
        }
        so_far = so_far && net_driver_check(run->driver, errp);
    }
    note_pairs(run);
    net_driver_free(run->driver);
    g_free(run->pci);
    if (run->vfio_user) {
        run->reconnects = vfio_user_pci_reconnects(run->vfio_user);
        vfio_user_pci_free(run->vfio_user);
    } else if (!so_far) {
        emulator_kill(run->mover.emulator);
    } else {
        so_far = emulator_stop(run->mover.emulator, errp);
    }
    guest_ram_free(run->mover.ram);
    return so_far;
}

static void print_pauses(const char *name, const GArray *pauses)
{
    printf("\"%s\": [", name);
    for (guint i = 0; i < pauses->len; i++) {
        printf("%s%.3f", i ? ", " : "", g_array_index(pauses, double, i));
    }
    printf("], ");
}

static void report(TcpRun *run)
{
    GuestNetifStats stats;
    guest_netif_get_stats(&stats);
    printf("{");
    print_pauses("pauses-ms-copied", run->mover.pauses[false]);
    print_pauses("pauses-ms-handed-over", run->mover.pauses[true]);
    printf("\"packed\": %s, \"sent\": %" PRIu64 ", \"sent-sha256\": \"%s\", \"received\": %" PRIu64
           ", \"received-sha256\": \"%s\", \"tso-frames\": %" PRIu64 ", \"large-frames\": %" PRIu64
           ", \"reconnects\": %u, \"pairs\": [%s]}\n",
           run->packed ? "true" : "false", run->sent, g_checksum_get_string(run->sent_sum),
           run->received, g_checksum_get_string(run->received_sum), stats.tso_frames,
           stats.large_frames, run->reconnects, run->pairs->str);
}

/* --- the command line --- */

static bool parse_port(const char *text, uint16_t *port)
{
    guint64 value;
    if (!g_ascii_string_to_unsigned(text, 10, 1, 65535, &value, NULL)) {
        return false;
    }
    *port = (uint16_t)value;
    return true;
}

static bool parse_command(int argc, char **argv, TcpCommand *command, GError **errp)
{
    bool ok = false;
    if (argc == 3 && (strcmp(argv[1], "sink") == 0 || strcmp(argv[1], "echo") == 0)) {
        command->echoes = strcmp(argv[1], "echo") == 0;
        ok = parse_port(argv[2], &command->port);
    } else if (argc == 4 && strcmp(argv[1], "source") == 0) {
        g_auto(GStrv) parts = g_strsplit(argv[2], ":", 2);
        struct in_addr host;
        command->sends = true;
        ok = parts[0] && parts[1] && inet_pton(AF_INET, parts[0], &host) == 1 &&
             parse_port(parts[1], &command->port) &&
             g_ascii_string_to_unsigned(argv[3], 10, 1, UINT64_MAX, &command->bytes, NULL);
        command->host = ok ? ntohl(host.s_addr) : 0;
    }
    if (!ok) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "what to do? sink PORT, echo PORT, or source HOST:PORT BYTES");
    }
    return ok;
}

static bool parse_options(int *argc, char ***argv, TcpOptions *options, GError **errp)
{
    const GOptionEntry entries[] = {
        {"netdev", 'n', 0, G_OPTION_ARG_STRING, &options->netdev,
         "The emulator's -netdev, without id=", "NETDEV"},
        {"address", 'a', 0, G_OPTION_ARG_STRING, &options->address,
         "The guest's; default 10.9.0.2/24", "ADDRESS/BITS"},
        {"offloads", 'o', 0, G_OPTION_ARG_NONE, &options->offloads,
         "Negotiate checksum and TCP segmentation offload, both ways", NULL},
        {"packed", 'p', 0, G_OPTION_ARG_NONE, &options->packed, "Negotiate packed rings", NULL},
        {"pairs", 0, 0, G_OPTION_ARG_INT, &options->pairs, "Queue pairs to use; default 1", "N"},
        {"udp-echo", 'u', 0, G_OPTION_ARG_INT, &options->udp_echo, "Send datagrams back", "PORT"},
        {"emulator", 'e', 0, G_OPTION_ARG_STRING, &options->emulator,
         "Emulator to run; default: swnic-system-x86_64 beside this program", "COMMAND"},
        {"device", 'd', 0, G_OPTION_ARG_STRING, &options->device,
         "More properties for -device virtio-net-pci", "PROPS"},
        {"migrate", 0, 0, G_OPTION_ARG_INT, &options->migrate,
         "Replace the emulator N times by live migration", "N"},
        {"migrate-netdev", 0, 0, G_OPTION_ARG_STRING, &options->migrate_netdev,
         "The -netdev of every second emulator", "NETDEV"},
        {"migrate-tx", 0, 0, G_OPTION_ARG_STRING, &options->migrate_tx,
         "tx= of the emulators, in turn", "POLICY,..."},
        {"vfio-user", 'v', 0, G_OPTION_ARG_FILENAME, &options->vfio_user,
         "Start no emulator: drive the device of the vfio-user server that listens here", "PATH"},
        {"reconnect-ms", 'r', 0, G_OPTION_ARG_INT, &options->reconnect_ms,
         "When that server has gone, look so long for the one that replaces it; default 0: not",
         "MS"},
        {"timeout", 't', 0, G_OPTION_ARG_INT, &options->timeout,
         "Give up after this many seconds; default 60, 0: never", "SECONDS"},
        {NULL},
    };
    GOptionContext *context =
        g_option_context_new("sink PORT | echo PORT | source HOST:PORT BYTES");
    g_option_context_add_main_entries(context, entries, NULL);
    bool ok = g_option_context_parse(context, argc, argv, errp);
    g_option_context_free(context);
    if (ok && (!options->netdev == !options->vfio_user ||
               (options->vfio_user && (options->migrate || options->reconnect_ms < 0)))) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "either --netdev is needed, or --vfio-user (without --migrate, and with "
                    "--reconnect-ms of 0 or more)");
        return false;
    }
    if (ok && (options->migrate < 0 || (options->migrate && !options->migrate_netdev))) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--migrate %d: give a number of rounds, and the other back end with "
                    "--migrate-netdev",
                    options->migrate);
        return false;
    }
    if (ok && (options->pairs < 0 || options->pairs > NET_DRIVER_MAX_PAIRS)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT, "--pairs %d: use 1 to %u",
                    options->pairs, NET_DRIVER_MAX_PAIRS);
        return false;
    }
    if (ok && (options->udp_echo < 0 || options->udp_echo > 65535)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--udp-echo %d: a port is 1 to 65535", options->udp_echo);
        return false;
    }
    return ok;
}

/* The stream has come MOVE_BYTES further, whatever was lost in a migration before. */
static bool wait_progress(TcpRun *run, GError **errp)
{
    gint64 deadline = g_get_monotonic_time() + TIMEOUT_MS * G_TIME_SPAN_MILLISECOND;
    uint64_t goal = __atomic_load_n(&run->received, __ATOMIC_RELAXED) + MOVE_BYTES;
    while (__atomic_load_n(&run->received, __ATOMIC_RELAXED) < goal) {
        if (g_get_monotonic_time() > deadline) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_TIMED_OUT, "the stream stands still");
            return false;
        }
        g_usleep(1000);
    }
    return true;
}

/* Carries the streams in another thread, and moves the emulator meanwhile; a line "moved" tells the
 * other end that it may stop.  Emulators are started here: they end with the thread that did. */
static bool carry_and_move(TcpRun *run, GError **errp)
{
    run->carries = pthread_create(&run->carrier, NULL, carry_thread, run) == 0;
    if (!run->carries) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "cannot start a thread");
        return false;
    }
    for (int round = 1; round <= run->options->migrate; round++) {
        if (!wait_progress(run, errp) || !mover_move(&run->mover, (unsigned)round, errp)) {
            g_prefix_error(errp, "migration %d: ", round);
            return false;
        }
    }
    if (!wait_progress(run, errp)) {
        return false;
    }
    printf("moved\n");
    fflush(stdout);
    return join_carrier(run, errp);
}

static bool run_command(const TcpOptions *options, const TcpCommand *command,
                        const GuestDhcpLease *lease, GError **errp)
{
    TcpRun run = {
        .options = options,
        .command = command,
        .mover = {.start = start_emulator, .opaque = &run, .bus = &run.bus},
        .sent_sum = g_checksum_new(G_CHECKSUM_SHA256),
        .received_sum = g_checksum_new(G_CHECKSUM_SHA256),
        .pairs = g_string_new(NULL),
    };
    for (unsigned i = 0; i < 2; i++) {
        run.mover.pauses[i] = g_array_new(FALSE, FALSE, sizeof(double));
    }
    bool ok = start(&run, lease, errp) &&
              (options->migrate ? carry_and_move(&run, errp) : carry(&run, command, errp));
    ok = stop(&run, ok, errp);
    if (ok) {
        report(&run);
    }
    for (unsigned i = 0; i < 2; i++) {
        g_array_unref(run.mover.pauses[i]);
    }
    g_checksum_free(run.sent_sum);
    g_checksum_free(run.received_sum);
    g_string_free(run.pairs, TRUE);
    return ok;
}

int tcp_main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_set_prgname("swnic-guest tcp");
    TcpOptions options = {.timeout = 60};
    TcpCommand command = {0};
    GuestDhcpLease lease = {0};
    bool ok = parse_options(&argc, &argv, &options, &error) &&
              parse_command(argc, argv, &command, &error) &&
              parse_address(options.address ? options.address : "10.9.0.2/24", &lease, &error);
    if (ok) {
        guest_guard_start((unsigned)MAX(options.timeout, 0));
        ok = run_command(&options, &command, &lease, &error);
    }
    if (!ok) {
        fprintf(stderr, "swnic-guest: %s\n", error->message);
    }
    g_free(options.emulator);
    g_free(options.netdev);
    g_free(options.migrate_netdev);
    g_free(options.migrate_tx);
    g_free(options.device);
    g_free(options.address);
    g_free(options.vfio_user);
    return ok ? 0 : 1;
}
