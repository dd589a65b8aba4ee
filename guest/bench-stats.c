/*
 * Medians and bootstrap intervals: see bench-stats.h.
 */
#include "guest/bench-stats.h"
#include <glib.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RESAMPLES 2000
#define SEED      0x9E3779B97F4A7C15ull

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts @values. */
static double median_of(double *values, unsigned n)
{
    qsort(values, n, sizeof(*values), compare_doubles);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* xorshift64: any cheap generator will do. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

BenchInterval bench_interval(const double *values, unsigned n)
{
    g_autofree double *drawn = g_new(double, n);
    g_autofree double *medians = g_new(double, RESAMPLES);
    uint64_t state = SEED;
    for (unsigned i = 0; i < RESAMPLES; i++) {
        for (unsigned j = 0; j < n; j++) {
            drawn[j] = values[next_random(&state) % n];
        }
        medians[i] = median_of(drawn, n);
    }
    qsort(medians, RESAMPLES, sizeof(*medians), compare_doubles);
    memcpy(drawn, values, n * sizeof(*values));
    return (BenchInterval){
        .median = median_of(drawn, n),
        .low = medians[RESAMPLES * 25 / 1000],
        .high = medians[RESAMPLES * 975 / 1000 - 1],
    };
}

BenchVerdict bench_verdict(const BenchInterval *interval, double goal)
{
    return interval->low >= goal   ? BENCH_MET
           : interval->high < goal ? BENCH_MISSED
                                   : BENCH_NOT_RESOLVED;
}

const char *bench_verdict_name(BenchVerdict verdict)
{
    static const char *const names[] = {
        [BENCH_MET] = "met",
        [BENCH_MISSED] = "missed",
        [BENCH_NOT_RESOLVED] = "not resolved",
    };
    return names[verdict];
}
