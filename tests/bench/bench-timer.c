/*
 * How late a 150 us timer is on our event loop, beside a bare timerfd and read(2), alternating
 * shot by shot so that both see the same machine.  Prints medians and 99th percentiles; exit
 * status 1 if ours is more than 10 us later at the median.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/event-loop.h"

#define DELAY_NS INT64_C(150000)
#define GOAL_NS  INT64_C(10000)

static int64_t fired_ns;

static void timer_fired(void *opaque)
{
    fired_ns = clock_get_ns(CLOCK_HOST);
}

static int64_t shot_loop(Timer *timer)
{
    int64_t deadline = clock_get_ns(CLOCK_HOST) + DELAY_NS;

    fired_ns = 0;
    timer_mod_ns(timer, deadline);
    while (!fired_ns) {
        event_loop_run_once(event_loop_main(), true);
    }
    return fired_ns - deadline;
}

static int64_t shot_bare(int fd)
{
    int64_t deadline = clock_get_ns(CLOCK_HOST) + DELAY_NS;
    struct itimerspec spec = {
        .it_value = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000},
    };
    uint64_t expired;

    timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL);
    if (read(fd, &expired, sizeof(expired)) != sizeof(expired)) {
        perror("read of timerfd");
        exit(1);
    }
    return clock_get_ns(CLOCK_HOST) - deadline;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static double us_at(const int64_t *sorted, int n, double quantile)
{
    return sorted[(int)(quantile * (n - 1))] / 1000.0;
}

int main(int argc, char **argv)
{
    int shots = argc > 1 ? atoi(argv[1]) : 1000;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    Timer timer;

    if (shots < 10 || fd < 0) {
        fprintf(stderr, "usage: bench-timer [SHOTS]   (at least 10)\n");
        return 1;
    }
    int64_t *loop = calloc(shots, sizeof(*loop)), *bare = calloc(shots, sizeof(*bare));
    timer_init(&timer, event_loop_main(), CLOCK_HOST, timer_fired, NULL);
    shot_loop(&timer);
    shot_bare(fd);
    for (int i = 0; i < shots; i++) {
        loop[i] = shot_loop(&timer);
        bare[i] = shot_bare(fd);
    }
    qsort(loop, shots, sizeof(*loop), compare);
    qsort(bare, shots, sizeof(*bare), compare);

    double loop_median = us_at(loop, shots, 0.5), bare_median = us_at(bare, shots, 0.5);
    double difference = loop_median - bare_median;
    bool good = difference * 1000 <= GOAL_NS;
    printf("lateness of a 150 us timer, %d shots each, alternating\n", shots);
    printf("  %-22s %10s %10s\n", "", "median us", "p99 us");
    printf("  %-22s %10.1f %10.1f\n", "event loop", loop_median, us_at(loop, shots, 0.99));
    printf("  %-22s %10.1f %10.1f\n", "bare timerfd + read", bare_median, us_at(bare, shots, 0.99));
    printf("  difference at the median %+.1f us, ratio %.2f; goal: at most +%.0f us: %s\n",
           difference, loop_median / bare_median, GOAL_NS / 1000.0, good ? "reached" : "MISSED");
    free(loop);
    free(bare);
    close(fd);
    return !good;
}
