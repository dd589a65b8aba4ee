/*
 * Clocks.  The virtual clock is host time minus an offset while it is enabled, a frozen value
 * while it is not; in stepped mode it is a number that only clock_step_virtual() changes.
 *
 * Readers take no lock.  The value that a mode needs is stored before the mode is switched to;
 * a reader that raced with the switch reads the time of a moment before it.
 */
#include "util/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "event-loop-priv.h"

/* How often timers may expire at one instant before a step moves on: a timer that arms itself
 * for "now" must not hold the clock for ever. */
#define MAX_RUNS_AT_ONE_INSTANT 1000

static atomic_bool stepped, enabled;
static _Atomic int64_t frozen_ns; /* stepped: now; else: now while disabled */
static _Atomic int64_t offset_ns; /* host time - virtual time while enabled */

static int64_t host_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

int64_t clock_get_ns(ClockType clock)
{
    if (clock == CLOCK_HOST) {
        return host_ns();
    }
    if (atomic_load(&stepped) || !atomic_load(&enabled)) {
        return atomic_load(&frozen_ns);
    }
    return host_ns() - atomic_load(&offset_ns);
}

void clock_set_stepped(void)
{
    atomic_store(&frozen_ns, 0);
    atomic_store(&stepped, true);
}

bool clock_is_stepped(void)
{
    return atomic_load(&stepped);
}

bool clock_virtual_enabled(void)
{
    return atomic_load(&enabled);
}

int64_t clock_virtual_to_host_ns(int64_t deadline_ns)
{
    if (!atomic_load(&enabled)) {
        return TIME_NEVER;
    }
    if (atomic_load(&stepped)) {
        return deadline_ns <= atomic_load(&frozen_ns) ? 0 : TIME_NEVER;
    }
    int64_t offset = atomic_load(&offset_ns);
    return deadline_ns < TIME_NEVER - offset ? deadline_ns + offset : TIME_NEVER;
}

static void wake_loop(EventLoop *loop, void *opaque)
{
    event_loop_wake(loop);
}

void clock_virtual_enable(bool enable)
{
    if (atomic_load(&enabled) == enable) {
        return;
    }
    if (!atomic_load(&stepped)) {
        if (enable) {
            atomic_store(&offset_ns, host_ns() - atomic_load(&frozen_ns));
        } else {
            atomic_store(&frozen_ns, host_ns() - atomic_load(&offset_ns));
        }
    }
    atomic_store(&enabled, enable);
    if (enable) {
        event_loop_foreach(wake_loop, NULL); /* deadlines count again */
    }
}

static void find_deadline(EventLoop *loop, void *opaque)
{
    int64_t *earliest = opaque;

    *earliest = MIN(*earliest, event_loop_virtual_deadline(loop));
}

int64_t clock_virtual_deadline_ns(void)
{
    int64_t earliest = TIME_NEVER;

    if (!atomic_load(&enabled)) {
        return -1;
    }
    event_loop_foreach(find_deadline, &earliest);
    return earliest == TIME_NEVER ? -1 : earliest;
}

static void run_virtual_timers(void *opaque)
{
    event_loop_run_timers(opaque, CLOCK_VIRTUAL);
}

static void run_due_loop(EventLoop *loop, void *opaque)
{
    const int64_t *now = opaque;

    if (event_loop_virtual_deadline(loop) <= *now) {
        event_loop_run_sync(loop, run_virtual_timers, loop);
    }
}

void clock_step_virtual(int64_t target_ns)
{
    unsigned runs = 0;

    for (;;) {
        int64_t deadline = clock_virtual_deadline_ns();
        int64_t now = atomic_load(&frozen_ns);
        if (deadline < 0 || deadline > target_ns) {
            break;
        }
        if (deadline > now) {
            now = deadline;
            runs = 0;
            atomic_store(&frozen_ns, now);
        } else if (++runs > MAX_RUNS_AT_ONE_INSTANT) {
            break;
        }
        event_loop_foreach(run_due_loop, &now);
    }
    if (target_ns > atomic_load(&frozen_ns)) {
        atomic_store(&frozen_ns, target_ns);
    }
}
