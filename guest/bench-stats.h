/*
 * The statistics of a benchmark: medians, how sure they are, and whether a goal is reached.
 *
 * A few short runs on a machine whose speed changes say little by themselves.  The interval is
 * the bootstrap's: the runs are drawn again, with replacement, many times, and 95% of the
 * medians found so lie in it.  A goal is met or missed only when the whole interval is on one
 * side of it.
 */
#ifndef GUEST_BENCH_STATS_H
#define GUEST_BENCH_STATS_H

typedef struct BenchInterval {
    double median, low, high; /* low and high: 95% */
} BenchInterval;

typedef enum BenchVerdict { BENCH_MET, BENCH_MISSED, BENCH_NOT_RESOLVED } BenchVerdict;

/* Of @n (at least 1) @values; the same values give the same interval. */
BenchInterval bench_interval(const double *values, unsigned n);
/* Whether what the interval estimates is at least @goal. */
BenchVerdict bench_verdict(const BenchInterval *interval, double goal);
const char *bench_verdict_name(BenchVerdict verdict);

#endif
