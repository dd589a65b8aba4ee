/*
 * The scenarios of `swnic-guest bench` with an emulator in the middle.
 *
 * One thread is both ends: it drives the guest's rings and, on the tap's other side, the packet
 * socket.  So with the emulator two threads are busy, which a machine of two cores can run.  A
 * generator keeps fewer frames on their way than the tap's queue holds: nothing is lost, and a
 * frame that is lost all the same fails the measurement.
 */
#include "guest/bench.h"
#include <errno.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAM_SIZE     (64u << 20)
#define DRAIN_US     (2 * G_USEC_PER_SEC)
#define FEATURE(bit) (1ull << (bit))
#define GSO_FEATURES                                                                               \
    (FEATURE(VIRTIO_NET_F_CSUM) | FEATURE(VIRTIO_NET_F_HOST_TSO4) |                                \
     FEATURE(VIRTIO_NET_F_GUEST_CSUM) | FEATURE(VIRTIO_NET_F_GUEST_TSO4))

typedef struct Bench {
    const BenchOptions *options;
    BenchTap tap; /* fd -1: none */
    BenchFrame frame;
    Emulator *emulator;
    clockid_t clock; /* of the emulator's CPU time */
    GuestPciBus bus;
    GuestPciDevice *pci;
    NetDriver *driver;
    uint64_t injected; /* by the generator */
} Bench;

/* Loads the device for @us. */
typedef bool BenchLoad(Bench *bench, gint64 us, GError **errp);

static bool lost(GError **errp, uint64_t sent, uint64_t arrived)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                "%" PRIu64 " frames were sent, %" PRIu64 " arrived", sent, arrived);
    return false;
}

/* --- the emulator --- */

static bool start_emulator(Bench *bench, const char *command, GError **errp)
{
    bool is_swnic = emulator_command_is_swnic(command, NULL);
    const char *extra = bench->options->device;
    int fds[] = {bench->tap.fd, -1};
    g_autofree char *netdev = g_strdup_printf("tap,id=n0,fd=%d", bench->tap.fd);
    g_autofree char *device =
        g_strconcat("virtio-net-pci,romfile=", bench->tap.fd < 0 ? "" : ",netdev=n0",
                    extra ? "," : "", extra, NULL);
    const char *plain[] = {"-nodefaults", "-device", device, NULL};
    const char *with_tap[] = {"-nodefaults", "-netdev", netdev, "-device", device, NULL};
    EmulatorOptions options = {
        .command = command,
        .arguments = bench->tap.fd < 0 ? plain : with_tap,
        .ram_size = RAM_SIZE,
        .accel = is_swnic ? NULL : "tcg",
        .halt_bios = !is_swnic,
        .inherit_fds = fds,
    };
    bench->emulator = emulator_start(&options, errp);
    if (bench->emulator && clock_getcpuclockid(bench->emulator->pid, &bench->clock) != 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "the emulator has ended");
        return false;
    }
    return bench->emulator != NULL;
}

static bool start_driver(Bench *bench, unsigned size, GError **errp)
{
    NetDriverConfig config = {
        .features = NET_DRIVER_PLAIN_FEATURES | (size > BENCH_FULL ? GSO_FEATURES : 0),
        .tx_buffer_size = size > BENCH_FULL ? BENCH_GSO + sizeof(struct virtio_net_hdr_v1) : 0,
        .keep_partial_checksums = true,
    };
    guest_pci_bus_init(&bench->bus, bench->emulator->qtest);
    bench->pci = guest_pci_device_find(&bench->bus, guest_pci_match_virtio_net, NULL, 0, errp);
    if (bench->pci) {
        bench->driver = net_driver_new(bench->pci, bench->emulator->ram, &config, errp);
    }
    if (bench->driver) {
        bench_frame_init(&bench->frame, size, net_driver_mac(bench->driver));
    }
    return bench->driver != NULL;
}

static bool stop(Bench *bench, bool so_far, GError **errp)
{
    net_driver_free(bench->driver);
    g_free(bench->pci);
    bench_frame_clear(&bench->frame);
    if (so_far) {
        so_far = emulator_stop(bench->emulator, errp);
    } else {
        emulator_kill(bench->emulator);
    }
    bench_tap_close(&bench->tap);
    return so_far;
}

static uint64_t packets_of(Bench *bench)
{
    NetDriverStats stats;
    net_driver_get_stats(bench->driver, &stats);
    return stats.rx_packets + stats.tx_packets;
}

static uint64_t notifications_of(Bench *bench)
{
    NetDriverStats stats;
    net_driver_get_stats(bench->driver, &stats);
    return stats.rx_notifications + stats.tx_notifications;
}

static bool measure(Bench *bench, BenchLoad *load, BenchSample *sample, GError **errp)
{
    if (!load(bench, BENCH_WARM_UP, errp)) {
        return false;
    }
    uint64_t packets = packets_of(bench), notifications = notifications_of(bench);
    BenchMeter meter;
    bench_meter_start(&meter, bench->clock, false);
    if (!load(bench, bench->options->milliseconds * 1000ll, errp) ||
        !net_driver_check(bench->driver, errp)) {
        return false;
    }
    packets = packets_of(bench) - packets;
    notifications = notifications_of(bench) - notifications;
    if (packets == 0) {
        return lost(errp, 1, 0);
    }
    bench_meter_stop(&meter, packets, sample);
    sample->notifications = (double)notifications / (double)packets;
    return true;
}

static bool run_load(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                     const char *command, BenchLoad *load, BenchSample *sample, GError **errp)
{
    Bench bench = {.options = options, .tap = {.fd = -1, .packet_fd = -1}};
    bool ok = (!scenario->needs_tap || bench_tap_open(&bench.tap, errp)) &&
              start_emulator(&bench, command, errp) && start_driver(&bench, size, errp) &&
              measure(&bench, load, sample, errp);
    return stop(&bench, ok, errp);
}

/* --- sending --- */

static bool all_returned(Bench *bench)
{
    return net_driver_tx_in_flight(bench->driver) == 0;
}

/* Sends as fast as the device takes frames back. */
static bool load_tx(Bench *bench, gint64 us, GError **errp)
{
    struct iovec iov = {bench->frame.bytes, bench->frame.size};
    gint64 end = g_get_monotonic_time() + us;
    while (g_get_monotonic_time() < end) {
        unsigned n = 0;
        while (n < BENCH_BATCH && net_driver_send(bench->driver, &bench->frame.header, &iov, 1)) {
            n++;
        }
        net_driver_flush(bench->driver);
        if (n == 0) {
            sched_yield(); /* the ring is full: the device has the floor */
        }
    }
    while (!all_returned(bench) && g_get_monotonic_time() < end + DRAIN_US) {
        sched_yield();
    }
    return all_returned(bench) || lost(errp, packets_of(bench),
                                       packets_of(bench) - net_driver_tx_in_flight(bench->driver));
}

static bool load_tx_tap(Bench *bench, gint64 us, GError **errp)
{
    uint64_t taken;
    return load_tx(bench, us, errp) && bench_tap_count(&bench->tap, &taken, errp) &&
           (taken == packets_of(bench) || lost(errp, packets_of(bench), taken));
}

/* --- receiving --- */

static void ignore_frame(void *opaque, const NetDriverFrame *frame) {}

static uint64_t received_by(Bench *bench)
{
    NetDriverStats stats;
    net_driver_get_stats(bench->driver, &stats);
    return stats.rx_packets;
}

static bool load_rx(Bench *bench, gint64 us, GError **errp)
{
    unsigned window = bench_window((unsigned)bench->frame.size);
    gint64 end = g_get_monotonic_time() + us;
    gint64 now = end - us;
    while (now < end || (received_by(bench) < bench->injected && now < end + DRAIN_US)) {
        uint64_t room = window - (bench->injected - received_by(bench));
        if (now < end && room >= MIN(window, BENCH_BATCH)) {
            int sent = bench_frame_inject(&bench->frame, bench->tap.packet_fd, (unsigned)room);
            if (sent < 0) {
                g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "packet socket: %s",
                            g_strerror(errno));
                return false;
            }
            bench->injected += (unsigned)sent;
        }
        if (net_driver_receive(bench->driver, BENCH_BATCH, ignore_frame, NULL) == 0) {
            sched_yield();
        }
        now = g_get_monotonic_time();
    }
    return received_by(bench) == bench->injected || lost(errp, bench->injected, received_by(bench));
}

/* --- there and back --- */

/* Until the packet socket has something or it is too late. */
static bool await_frame(Bench *bench, uint8_t *buffer, size_t size, gint64 deadline)
{
    while (recv(bench->tap.packet_fd, buffer, size, 0) < 0) {
        if (g_get_monotonic_time() > deadline) {
            return false;
        }
        sched_yield();
    }
    return true;
}

/* One frame at a time: guest, tap, packet socket, and back the same way. */
static bool load_round_trip(Bench *bench, gint64 us, GError **errp)
{
    uint8_t buffer[2048];
    struct iovec iov = {bench->frame.bytes, bench->frame.size};
    uint64_t trips = received_by(bench);
    gint64 now = g_get_monotonic_time(), end = now + us;
    if (!bench_tap_listen(&bench->tap, BENCH_TYPE, errp)) {
        return false;
    }
    for (; now < end; now = g_get_monotonic_time()) {
        net_driver_send(bench->driver, &bench->frame.header, &iov, 1);
        net_driver_flush(bench->driver);
        if (!await_frame(bench, buffer, sizeof(buffer), now + DRAIN_US)) {
            return lost(errp, trips + 1, trips);
        }
        while (bench_frame_inject(&bench->frame, bench->tap.packet_fd, 1) == 0) {
        }
        trips++;
        while (received_by(bench) < trips) {
            if (net_driver_receive(bench->driver, 1, ignore_frame, NULL) == 0) {
                if (g_get_monotonic_time() > now + DRAIN_US) {
                    return lost(errp, trips, received_by(bench));
                }
                sched_yield();
            }
        }
    }
    return true;
}

/* --- the table --- */

static bool run_tx(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                   const char *command, BenchSample *sample, GError **errp)
{
    return run_load(options, scenario, size, command, load_tx, sample, errp);
}

static bool run_tx_tap(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                       const char *command, BenchSample *sample, GError **errp)
{
    return run_load(options, scenario, size, command, load_tx_tap, sample, errp);
}

static bool run_rx_tap(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                       const char *command, BenchSample *sample, GError **errp)
{
    return run_load(options, scenario, size, command, load_rx, sample, errp);
}

static bool run_round_trip(const BenchOptions *options, const BenchScenario *scenario,
                           unsigned size, const char *command, BenchSample *sample, GError **errp)
{
    bool ok = run_load(options, scenario, size, command, load_round_trip, sample, errp);
    sample->rate /= 2; /* a trip is two packets */
    sample->cpu_ns *= 2;
    sample->notifications *= 2;
    return ok;
}

static const unsigned small_only[] = {BENCH_SMALL, 0};
static const unsigned all_sizes[] = {BENCH_SMALL, BENCH_FULL, BENCH_GSO, 0};

const BenchScenario bench_scenarios[] = {
    {"tx-none", "send to a device without a peer: the device alone", false, small_only, run_tx,
     NULL},
    {"tx-tap", "send to a tap interface", true, all_sizes, run_tx_tap, bench_plain_tx},
    {"rx-tap", "receive from a tap interface", true, all_sizes, run_rx_tap, bench_plain_rx},
    {"round-trip", "one frame at a time, out through the tap and back", true, small_only,
     run_round_trip, bench_plain_round_trip},
};
const unsigned bench_scenario_count = G_N_ELEMENTS(bench_scenarios);
