/*
 * The yardstick of `swnic-guest bench`: the tap alone, with one system call a frame.
 *
 * Sending is a loop of write(2).  To receive there is a thread in the emulator's place, which
 * polls and reads (and, for round trips, writes back); this thread generates, as it does for an
 * emulator.
 */
#include "guest/bench.h"
#include <errno.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define POLL_MS 20
#define SLOTS   256 /* as a driver's ring has: the same bytes go through the caches */

typedef struct Plain {
    BenchTap tap;
    BenchFrame frame;
    uint8_t *bytes; /* SLOTS times header and frame, as the tap wants them */
    size_t size, stride;
    /* The thread in the emulator's place. */
    pthread_t thread;
    clockid_t clock;
    bool has_thread, stopping, echoes;
    uint64_t received; /* by it */
    uint64_t injected; /* by us */
    uint64_t sent;     /* by write(2) */
} Plain;

typedef bool PlainLoad(Plain *plain, gint64 us, GError **errp);

static bool fail(GError **errp, const char *what)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", what, g_strerror(errno));
    return false;
}

static uint64_t received_by(Plain *plain)
{
    return __atomic_load_n(&plain->received, __ATOMIC_ACQUIRE);
}

/* Reads until there is nothing more; what was read is counted one by one. */
static void read_all(Plain *plain, uint8_t *buffer, size_t size)
{
    ssize_t n;
    while ((n = read(plain->tap.fd, buffer, size)) > 0) {
        if (plain->echoes && write(plain->tap.fd, buffer, (size_t)n) < 0) {
            continue; /* the other side misses it and says so */
        }
        __atomic_fetch_add(&plain->received, 1, __ATOMIC_RELEASE);
    }
}

static void *reader_thread(void *opaque)
{
    Plain *plain = opaque;
    size_t size = BENCH_GSO + BENCH_TAP_HEADER;
    g_autofree uint8_t *buffer = g_malloc(size);
    while (!__atomic_load_n(&plain->stopping, __ATOMIC_RELAXED)) {
        struct pollfd poll_fd = {.fd = plain->tap.fd, .events = POLLIN};
        if (poll(&poll_fd, 1, POLL_MS) > 0) {
            read_all(plain, buffer, size);
        }
    }
    return NULL;
}

static bool start_reader(Plain *plain, GError **errp)
{
    int error = pthread_create(&plain->thread, NULL, reader_thread, plain);
    plain->has_thread = error == 0;
    if (error == 0) {
        error = pthread_getcpuclockid(plain->thread, &plain->clock);
    }
    errno = error;
    return error == 0 || fail(errp, "thread");
}

static bool load_tx(Plain *plain, gint64 us, GError **errp)
{
    for (gint64 end = g_get_monotonic_time() + us; g_get_monotonic_time() < end;) {
        for (unsigned i = 0; i < BENCH_BATCH; i++) {
            size_t slot = plain->sent++ % SLOTS;
            if (write(plain->tap.fd, plain->bytes + slot * plain->stride, plain->size) < 0) {
                return fail(errp, "write to the tap");
            }
        }
    }
    uint64_t taken;
    return bench_tap_count(&plain->tap, &taken, errp) &&
           (taken == plain->sent || bench_lost(errp, plain->sent, taken));
}

static bool load_rx(Plain *plain, gint64 us, GError **errp)
{
    unsigned window = bench_window((unsigned)plain->frame.size);
    gint64 now = g_get_monotonic_time(), end = now + us;
    for (; now < end; now = g_get_monotonic_time()) {
        uint64_t room = window - (plain->injected - received_by(plain));
        int sent = 0;
        if (room >= MIN(window, BENCH_BATCH)) {
            sent = bench_frame_inject(&plain->frame, plain->tap.packet_fd, (unsigned)room);
        }
        if (sent < 0) {
            return fail(errp, "packet socket");
        }
        if (sent == 0) {
            sched_yield();
        }
        plain->injected += (unsigned)sent;
    }
    while (received_by(plain) < plain->injected && now < end + BENCH_DRAIN) {
        sched_yield();
        now = g_get_monotonic_time();
    }
    return received_by(plain) == plain->injected ||
           bench_lost(errp, plain->injected, received_by(plain));
}

static bool load_round_trip(Plain *plain, gint64 us, GError **errp)
{
    uint8_t buffer[2048];
    gint64 now = g_get_monotonic_time(), end = now + us;
    if (!bench_tap_listen(&plain->tap, BENCH_TYPE, errp)) {
        return false;
    }
    for (; now < end; now = g_get_monotonic_time()) {
        while (bench_frame_inject(&plain->frame, plain->tap.packet_fd, 1) == 0) {
        }
        plain->injected++;
        while (recv(plain->tap.packet_fd, buffer, sizeof(buffer), 0) < 0) {
            if (g_get_monotonic_time() > now + BENCH_DRAIN) {
                return bench_lost(errp, plain->injected, plain->injected - 1);
            }
            sched_yield();
        }
    }
    return true;
}

static uint64_t packets_of(Plain *plain)
{
    return plain->sent + plain->injected;
}

static bool measure(Plain *plain, PlainLoad *load, gint64 us, BenchSample *sample, GError **errp)
{
    if (!load(plain, BENCH_WARM_UP, errp)) {
        return false;
    }
    clockid_t clock = plain->has_thread ? plain->clock : CLOCK_THREAD_CPUTIME_ID;
    uint64_t packets = packets_of(plain);
    BenchMeter meter;
    bench_meter_start(&meter, clock, true);
    if (!load(plain, us, errp)) {
        return false;
    }
    packets = packets_of(plain) - packets;
    if (packets == 0) {
        return bench_lost(errp, 1, 0);
    }
    bench_meter_stop(&meter, packets, sample);
    sample->notifications = NAN;
    return true;
}

static void make_bytes(Plain *plain)
{
    plain->size = BENCH_TAP_HEADER + plain->frame.size;
    plain->stride = MAX(2048, (plain->size + 63) & ~63u);
    plain->bytes = g_malloc(SLOTS * plain->stride);
    for (unsigned i = 0; i < SLOTS; i++) {
        uint8_t *at = plain->bytes + i * plain->stride;
        memcpy(at, &plain->frame.header, BENCH_TAP_HEADER);
        memcpy(at + BENCH_TAP_HEADER, plain->frame.bytes, plain->frame.size);
    }
}

static bool run(const BenchOptions *options, unsigned size, PlainLoad *load, Plain *plain,
                BenchSample *sample, GError **errp)
{
    static const uint8_t source[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
    bench_frame_init(&plain->frame, size, source);
    make_bytes(plain);
    bool ok = bench_tap_open(&plain->tap, errp) && bench_tap_enable_offloads(&plain->tap, errp) &&
              (load == load_tx || start_reader(plain, errp)) &&
              measure(plain, load, options->milliseconds * 1000ll, sample, errp);
    if (plain->has_thread) {
        __atomic_store_n(&plain->stopping, true, __ATOMIC_RELAXED);
        pthread_join(plain->thread, NULL);
    }
    bench_tap_close(&plain->tap);
    bench_frame_clear(&plain->frame);
    g_free(plain->bytes);
    return ok;
}

bool bench_plain_tx(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                    BenchSample *sample, GError **errp)
{
    return run(options, size, load_tx, &(Plain){.tap = {-1, -1}}, sample, errp);
}

bool bench_plain_rx(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                    BenchSample *sample, GError **errp)
{
    return run(options, size, load_rx, &(Plain){.tap = {-1, -1}}, sample, errp);
}

bool bench_plain_round_trip(const BenchOptions *options, const BenchScenario *scenario,
                            unsigned size, BenchSample *sample, GError **errp)
{
    return run(options, size, load_round_trip, &(Plain){.tap = {-1, -1}, .echoes = true}, sample,
               errp);
}
