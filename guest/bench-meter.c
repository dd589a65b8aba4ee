/*
 * Times of one measurement: the wall's, the subject's CPU, and what everybody else used.
 *
 * A rate compares only on a machine that is otherwise idle: a subject of two threads loses more
 * to a neighbour than one of a single thread.  So the CPU time of others is measured too.
 */
#include "guest/bench.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

int64_t bench_clock_ns(clockid_t clock)
{
    struct timespec ts;
    return clock_gettime(clock, &ts) == 0 ? ts.tv_sec * 1000000000ll + ts.tv_nsec : 0;
}

/* What all CPUs together were busy with, ns; 0: the kernel does not say. */
static int64_t machine_busy_ns(void)
{
    /* user nice system idle iowait irq softirq steal (proc(5)) */
    uint64_t v[8] = {0};
    FILE *file = fopen("/proc/stat", "re");
    bool ok = file && fscanf(file,
                             "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                             " %" SCNu64 " %" SCNu64 " %" SCNu64,
                             &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) == 8;
    if (file) {
        fclose(file);
    }
    uint64_t ticks = v[0] + v[1] + v[2] + v[5] + v[6] + v[7];
    return ok ? (int64_t)(ticks * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK))) : 0;
}

void bench_meter_start(BenchMeter *meter, clockid_t subject, bool is_own)
{
    *meter = (BenchMeter){
        .subject = subject,
        .is_own = is_own,
        .machine_ns = machine_busy_ns(),
        .own_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID),
        .subject_ns = bench_clock_ns(subject),
        .begin_ns = bench_clock_ns(CLOCK_MONOTONIC),
    };
}

void bench_meter_stop(const BenchMeter *meter, uint64_t packets, BenchSample *sample)
{
    double wall = (double)(bench_clock_ns(CLOCK_MONOTONIC) - meter->begin_ns);
    double subject = (double)(bench_clock_ns(meter->subject) - meter->subject_ns);
    double own = (double)(bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - meter->own_ns);
    double machine = (double)(machine_busy_ns() - meter->machine_ns);
    double others = machine - own - (meter->is_own ? 0 : subject);
    sample->rate = (double)packets / wall * 1e9;
    sample->cpu_ns = subject / (double)packets;
    sample->others = MAX(others / wall, 0);
}
