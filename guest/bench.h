/*
 * What the files of `swnic-guest bench` share.
 *
 *   bench.c         options, turns, the report
 *   bench-load.c    the scenarios, and those over a tap: what is sent where
 *   bench-plain.c   the same with nothing but read(2) and write(2) on the tap: the yardstick
 *   bench-socket.c  scenarios over datagram and stream sockets, and their yardsticks
 *   bench-user.c    a download through user networking
 *   bench-guest.c   the emulator and its driver, a measurement
 *   bench-frame.c   the frames
 *   bench-tap.c     the interface
 *   bench-meter.c   times of a measurement
 *   bench-stats.c   medians, intervals, verdicts
 */
#ifndef GUEST_BENCH_H
#define GUEST_BENCH_H

#include "guest/bench-tap.h"
#include "guest/emulator.h"
#include "guest/net-driver.h"
#include <time.h>

#define BENCH_SMALL   60
#define BENCH_FULL    1514
#define BENCH_GSO     65226  /* 45 segments of 1,448 bytes behind 66 bytes of headers */
#define BENCH_TYPE    0x88B5 /* ethertype of the others: local experiments (IEEE 802) */
#define BENCH_BATCH   64     /* frames sent before they are published */
#define BENCH_WARM_UP 50000  /* µs */
#define BENCH_DRAIN   (2 * G_USEC_PER_SEC) /* µs until a frame that has not come is lost */

/* --- bench-frame.c --- */

/* A frame with its vnet header in front, zeros or (BENCH_GSO) what asks for segmentation. */
typedef struct BenchFrame {
    struct virtio_net_hdr_v1 header;
    uint8_t *bytes;
    size_t size; /* without header */
} BenchFrame;

/* @size bytes from @source to somebody who is not there, so that the kernel takes the frame in
 * and then has nothing to do with it. */
void bench_frame_init(BenchFrame *frame, size_t size, const uint8_t source[static 6]);
void bench_frame_clear(BenchFrame *frame);
/* For a generator of traffic: @count frames into the packet socket; how many it took, -1: errno. */
int bench_frame_inject(const BenchFrame *frame, int packet_fd, unsigned count);

/* --- a measurement --- */

/* What one measurement found. */
typedef struct BenchSample {
    double rate;          /* packets, round trips or bytes, a second */
    double cpu_ns;        /* of the emulator or the plain loop, for one of these */
    double notifications; /* a packet; NAN: there are none */
    double others;        /* CPUs that the rest of the machine used meanwhile */
} BenchSample;

typedef struct BenchOptions {
    char **emulators, *device;
    int milliseconds, runs;
    gboolean quick, check;
    gboolean one_download; /* hidden: bench-user.c */
} BenchOptions;

typedef enum BenchUnit { BENCH_PACKETS, BENCH_ROUND_TRIPS, BENCH_BYTES } BenchUnit;

typedef struct BenchScenario {
    const char *name, *summary;
    BenchUnit unit; /* of the rate */
    bool needs_tap;
    bool is_stream, receives; /* bench-socket.c */
    const unsigned *sizes;    /* of frames; ended by 0 */
    /* With emulator @command in the middle. */
    bool (*run)(const BenchOptions *options, const struct BenchScenario *scenario, unsigned size,
                const char *command, BenchSample *sample, GError **errp);
    /* Without; NULL: there is no such thing. */
    bool (*run_plain)(const BenchOptions *options, const struct BenchScenario *scenario,
                      unsigned size, BenchSample *sample, GError **errp);
} BenchScenario;

extern const BenchScenario bench_scenarios[];
extern const unsigned bench_scenario_count;

/* The error of a measurement in which frames did not arrive; false. */
bool bench_lost(GError **errp, uint64_t sent, uint64_t arrived);

/* --- bench-guest.c --- */

typedef struct BenchGuest {
    Emulator *emulator;
    clockid_t clock; /* of the emulator's CPU time */
    GuestPciBus bus;
    GuestPciDevice *pci;
    NetDriver *driver;
} BenchGuest;

/* Loads the device for @us, and waits until all that was sent has arrived. */
typedef bool BenchLoad(void *opaque, gint64 us, GError **errp);

/* @netdev (with id=n0; NULL: none) may use @fd (-1: none), which the emulator inherits. */
bool bench_guest_start_emulator(BenchGuest *guest, const BenchOptions *options, const char *command,
                                const char *netdev, int fd, GError **errp);
bool bench_guest_start_driver(BenchGuest *guest, const NetDriverConfig *config, GError **errp);
/* Also for what never started; @so_far: all went well until here, and the emulator must end well.
 */
bool bench_guest_stop(BenchGuest *guest, bool so_far, GError **errp);
/* Frames in both directions; received ones. */
uint64_t bench_guest_packets(const BenchGuest *guest);
uint64_t bench_guest_received(const BenchGuest *guest);
/* Once to warm up, once measured. */
bool bench_guest_measure(BenchGuest *guest, const BenchOptions *options, BenchLoad *load,
                         void *opaque, BenchSample *sample, GError **errp);

/* --- scenarios elsewhere, as in BenchScenario --- */

bool bench_plain_tx(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                    BenchSample *sample, GError **errp);
bool bench_plain_rx(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                    BenchSample *sample, GError **errp);
bool bench_plain_round_trip(const BenchOptions *options, const BenchScenario *scenario,
                            unsigned size, BenchSample *sample, GError **errp);
bool bench_socket_run(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                      const char *command, BenchSample *sample, GError **errp);
bool bench_socket_run_plain(const BenchOptions *options, const BenchScenario *scenario,
                            unsigned size, BenchSample *sample, GError **errp);
bool bench_user_run(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                    const char *command, BenchSample *sample, GError **errp);
/* The measurement that bench_user_run() has another process of this program make: prints it. */
bool bench_user_print_sample(const BenchOptions *options, GError **errp);

/* --- bench-meter.c --- */

typedef struct BenchMeter {
    clockid_t subject;
    bool is_own; /* the subject is a thread of this process */
    int64_t begin_ns, subject_ns, own_ns, machine_ns;
} BenchMeter;

void bench_meter_start(BenchMeter *meter, clockid_t subject, bool is_own);
/* Fills rate, cpu_ns and others; @packets is not 0. */
void bench_meter_stop(const BenchMeter *meter, uint64_t packets, BenchSample *sample);
/* What @clock shows; 0 when its process is gone. */
int64_t bench_clock_ns(clockid_t clock);

/* Frames that may be on their way to a reader: fewer than the tap's queue holds. */
static inline unsigned bench_window(unsigned size)
{
    return size > BENCH_FULL ? 16 : 512;
}

#endif
