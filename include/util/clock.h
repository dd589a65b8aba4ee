/*
 * Clocks.  CLOCK_VIRTUAL is guest time: it stands still while the VM is stopped.  Under
 * `-accel qtest` it moves only by clock_step_virtual(), which makes every timer test
 * deterministic.  CLOCK_HOST is CLOCK_MONOTONIC.
 */
#ifndef UTIL_CLOCK_H
#define UTIL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ClockType { CLOCK_VIRTUAL, CLOCK_HOST, CLOCK__MAX } ClockType;

/* Nanoseconds on @clock.  Any thread. */
int64_t clock_get_ns(ClockType clock);

/* The virtual clock's two modes.  Stepped starts at 0; chosen once, before any timer. */
void clock_set_stepped(void);
bool clock_is_stepped(void);

/* Earliest deadline of any virtual timer in any loop, or -1; -1 also while the virtual clock is
 * disabled, because no timer would run then.  Main thread. */
int64_t clock_virtual_deadline_ns(void);

/* Stepped clock: moves to @target_ns, stopping at every deadline on the way and running the
 * timers that expire there, in order of deadline.  While the clock is disabled (VM stopped) time
 * moves all the same, and the timers run once it is enabled.  Main thread. */
void clock_step_virtual(int64_t target_ns);

/* Called by run state changes: virtual time stands still between disable and enable.  It starts
 * disabled. */
void clock_virtual_enable(bool enable);

#endif
