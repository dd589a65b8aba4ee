/*
 * What the files of `swnic-guest bench` share.
 *
 *   bench.c         options, turns, the report
 *   bench-load.c    scenarios: what is sent where, with an emulator in the middle
 *   bench-plain.c   the same with nothing but read(2) and write(2) on the tap: the yardstick
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
    double rate;          /* packets or round trips, a second */
    double cpu_ns;        /* of the emulator or the plain loop, a packet */
    double notifications; /* a packet; NAN: there are none */
    double others;        /* CPUs that the rest of the machine used meanwhile */
} BenchSample;

typedef struct BenchOptions {
    char **emulators, *device;
    int milliseconds, runs;
    gboolean quick, check;
} BenchOptions;

typedef struct BenchScenario {
    const char *name, *summary;
    bool needs_tap;
    const unsigned *sizes; /* of frames; ended by 0 */
    /* With emulator @command in the middle. */
    bool (*run)(const BenchOptions *options, const struct BenchScenario *scenario, unsigned size,
                const char *command, BenchSample *sample, GError **errp);
    /* Without; NULL: there is no such thing. */
    bool (*run_plain)(const BenchOptions *options, unsigned size, BenchSample *sample,
                      GError **errp);
} BenchScenario;

extern const BenchScenario bench_scenarios[];
extern const unsigned bench_scenario_count;

/* bench-plain.c */
bool bench_plain_tx(const BenchOptions *options, unsigned size, BenchSample *sample, GError **errp);
bool bench_plain_rx(const BenchOptions *options, unsigned size, BenchSample *sample, GError **errp);
bool bench_plain_round_trip(const BenchOptions *options, unsigned size, BenchSample *sample,
                            GError **errp);

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
