/* Medians, intervals and verdicts of the benchmarks. */
#include <glib.h>

#include "guest/bench-stats.h"

static void test_median(void)
{
    const double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, one[] = {7};

    g_assert_cmpfloat(bench_interval(odd, 3).median, ==, 2);
    g_assert_cmpfloat(bench_interval(even, 4).median, ==, 2.5);
    g_assert_cmpfloat(bench_interval(one, 1).median, ==, 7);
    g_assert_cmpfloat(bench_interval(one, 1).low, ==, 7);
    g_assert_cmpfloat(bench_interval(one, 1).high, ==, 7);
}

static void test_interval(void)
{
    const double values[] = {10, 11, 12, 13, 14, 15, 16};
    BenchInterval interval = bench_interval(values, 7), again = bench_interval(values, 7);

    /* Exact for the median of 7: P(at most 3 draws above the second lowest …) puts the 95%
     * between the second and the second highest value, or one further out. */
    g_assert_cmpfloat(interval.low, >=, 10);
    g_assert_cmpfloat(interval.low, <=, 12);
    g_assert_cmpfloat(interval.high, >=, 14);
    g_assert_cmpfloat(interval.high, <=, 16);
    g_assert_cmpfloat(interval.low, ==, again.low);
}

static void test_verdict(void)
{
    BenchInterval interval = {.median = 1, .low = 0.9, .high = 1.1};

    g_assert_cmpint(bench_verdict(&interval, 0.9), ==, BENCH_MET);
    g_assert_cmpint(bench_verdict(&interval, 0.8), ==, BENCH_MET);
    g_assert_cmpint(bench_verdict(&interval, 1.0), ==, BENCH_NOT_RESOLVED);
    g_assert_cmpint(bench_verdict(&interval, 1.2), ==, BENCH_MISSED);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/bench-stats/median", test_median);
    g_test_add_func("/bench-stats/interval", test_interval);
    g_test_add_func("/bench-stats/verdict", test_verdict);
    return g_test_run();
}
