/*
 * The table of scenarios, and those over a tap or nothing with an emulator in the middle.
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

#define FEATURE(bit) (1ull << (bit))
#define GSO_FEATURES                                                                               \
    (FEATURE(VIRTIO_NET_F_CSUM) | FEATURE(VIRTIO_NET_F_HOST_TSO4) |                                \
     FEATURE(VIRTIO_NET_F_GUEST_CSUM) | FEATURE(VIRTIO_NET_F_GUEST_TSO4))

typedef struct Bench Bench;
/* Loads the device for @us. */
typedef bool TapLoad(Bench *bench, gint64 us, GError **errp);

struct Bench {
    BenchGuest guest;
    BenchTap tap; /* fd -1: none */
    BenchFrame frame;
    TapLoad *load;
    uint64_t injected; /* by the generator */
};

static bool start(Bench *bench, const BenchOptions *options, const char *command, unsigned size,
                  GError **errp)
{
    NetDriverConfig config = {
        .features = NET_DRIVER_PLAIN_FEATURES | (size > BENCH_FULL ? GSO_FEATURES : 0),
        .tx_buffer_size = size > BENCH_FULL ? BENCH_GSO + sizeof(struct virtio_net_hdr_v1) : 0,
        .keep_partial_checksums = true,
    };
    g_autofree char *netdev = g_strdup_printf("tap,id=n0,fd=%d", bench->tap.fd);
    if (!bench_guest_start_emulator(&bench->guest, options, command,
                                    bench->tap.fd < 0 ? NULL : netdev, bench->tap.fd, errp) ||
        !bench_guest_start_driver(&bench->guest, &config, errp)) {
        return false;
    }
    bench_frame_init(&bench->frame, size, net_driver_mac(bench->guest.driver));
    return true;
}

/* BenchLoad */
static bool load_bench(void *opaque, gint64 us, GError **errp)
{
    Bench *bench = opaque;
    return bench->load(bench, us, errp);
}

static bool run_load(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                     const char *command, TapLoad *load, BenchSample *sample, GError **errp)
{
    Bench bench = {.tap = {.fd = -1, .packet_fd = -1}, .load = load};
    bool ok = (!scenario->needs_tap || bench_tap_open(&bench.tap, errp)) &&
              start(&bench, options, command, size, errp) &&
              bench_guest_measure(&bench.guest, options, load_bench, &bench, sample, errp);
    ok = bench_guest_stop(&bench.guest, ok, errp);
    bench_frame_clear(&bench.frame);
    bench_tap_close(&bench.tap);
    return ok;
}

/* --- sending --- */

static bool all_returned(Bench *bench)
{
    return net_driver_tx_in_flight(bench->guest.driver) == 0;
}

/* Sends as fast as the device takes frames back. */
static bool load_tx(Bench *bench, gint64 us, GError **errp)
{
    struct iovec iov = {bench->frame.bytes, bench->frame.size};
    gint64 end = g_get_monotonic_time() + us;
    while (g_get_monotonic_time() < end) {
        unsigned n = 0;
        while (n < BENCH_BATCH &&
               net_driver_send(bench->guest.driver, &bench->frame.header, &iov, 1)) {
            n++;
        }
        net_driver_flush(bench->guest.driver);
        if (n == 0) {
            sched_yield(); /* the ring is full: the device has the floor */
        }
    }
    while (!all_returned(bench) && g_get_monotonic_time() < end + BENCH_DRAIN) {
        sched_yield();
    }
    return all_returned(bench) || bench_lost(errp, bench_guest_packets(&bench->guest),
                                             bench_guest_packets(&bench->guest) -
                                                 net_driver_tx_in_flight(bench->guest.driver));
}

static bool load_tx_tap(Bench *bench, gint64 us, GError **errp)
{
    uint64_t taken;
    return load_tx(bench, us, errp) && bench_tap_count(&bench->tap, &taken, errp) &&
           (taken == bench_guest_packets(&bench->guest) ||
            bench_lost(errp, bench_guest_packets(&bench->guest), taken));
}

/* --- receiving --- */

static void ignore_frame(void *opaque, const NetDriverFrame *frame) {}

static bool load_rx(Bench *bench, gint64 us, GError **errp)
{
    unsigned window = bench_window((unsigned)bench->frame.size);
    gint64 end = g_get_monotonic_time() + us;
    gint64 now = end - us;
    while (now < end ||
           (bench_guest_received(&bench->guest) < bench->injected && now < end + BENCH_DRAIN)) {
        uint64_t room = window - (bench->injected - bench_guest_received(&bench->guest));
        if (now < end && room >= MIN(window, BENCH_BATCH)) {
            int sent = bench_frame_inject(&bench->frame, bench->tap.packet_fd, (unsigned)room);
            if (sent < 0) {
                g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "packet socket: %s",
                            g_strerror(errno));
                return false;
            }
            bench->injected += (unsigned)sent;
        }
        if (net_driver_receive(bench->guest.driver, BENCH_BATCH, ignore_frame, NULL) == 0) {
            sched_yield();
        }
        now = g_get_monotonic_time();
    }
    return bench_guest_received(&bench->guest) == bench->injected ||
           bench_lost(errp, bench->injected, bench_guest_received(&bench->guest));
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
    uint64_t trips = bench_guest_received(&bench->guest);
    gint64 now = g_get_monotonic_time(), end = now + us;
    if (!bench_tap_listen(&bench->tap, BENCH_TYPE, errp)) {
        return false;
    }
    for (; now < end; now = g_get_monotonic_time()) {
        net_driver_send(bench->guest.driver, &bench->frame.header, &iov, 1);
        net_driver_flush(bench->guest.driver);
        if (!await_frame(bench, buffer, sizeof(buffer), now + BENCH_DRAIN)) {
            return bench_lost(errp, trips + 1, trips);
        }
        while (bench_frame_inject(&bench->frame, bench->tap.packet_fd, 1) == 0) {
        }
        trips++;
        while (bench_guest_received(&bench->guest) < trips) {
            if (net_driver_receive(bench->guest.driver, 1, ignore_frame, NULL) == 0) {
                if (g_get_monotonic_time() > now + BENCH_DRAIN) {
                    return bench_lost(errp, trips, bench_guest_received(&bench->guest));
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

static const unsigned frame_sizes[] = {BENCH_SMALL, BENCH_FULL, 0};
static const unsigned full_only[] = {BENCH_FULL, 0};

const BenchScenario bench_scenarios[] = {
    {"tx-none", "send to a device without a peer: the device alone", .sizes = small_only,
     .run = run_tx},
    {"tx-tap", "send to a tap interface", .needs_tap = true, .sizes = all_sizes, .run = run_tx_tap,
     .run_plain = bench_plain_tx},
    {"rx-tap", "receive from a tap interface", .needs_tap = true, .sizes = all_sizes,
     .run = run_rx_tap, .run_plain = bench_plain_rx},
    {"round-trip", "one frame at a time, out through the tap and back", BENCH_ROUND_TRIPS,
     .needs_tap = true, .sizes = small_only, .run = run_round_trip,
     .run_plain = bench_plain_round_trip},
    {"dgram-tx", "send to a UNIX datagram socket", .sizes = frame_sizes, .run = bench_socket_run,
     .run_plain = bench_socket_run_plain},
    {"dgram-rx", "receive from a UNIX datagram socket", .receives = true, .sizes = frame_sizes,
     .run = bench_socket_run, .run_plain = bench_socket_run_plain},
    {"stream-tx", "send to a UNIX stream socket", .is_stream = true, .sizes = frame_sizes,
     .run = bench_socket_run, .run_plain = bench_socket_run_plain},
    {"stream-rx", "receive from a UNIX stream socket", .is_stream = true, .receives = true,
     .sizes = frame_sizes, .run = bench_socket_run, .run_plain = bench_socket_run_plain},
    {"user-download", "TCP from the loopback interface to the guest", BENCH_BYTES,
     .sizes = full_only, .run = bench_user_run},
};
const unsigned bench_scenario_count = G_N_ELEMENTS(bench_scenarios);
