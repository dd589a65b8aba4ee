/*
 * Event loop: fd handlers, bottom halves and nanosecond timers over one GMainContext.
 *
 * All fd handlers, eventfds and the loop's one timerfd sit in a single epoll descriptor, and
 * that descriptor is the loop's only GSource: an iteration costs the same with 4 fds or 400.
 * A loop belongs to the thread that runs it.  Unless a function says otherwise, call it from
 * that thread (or before the thread runs, or while the loop is held by event_loop_run_sync()).
 *
 * Order within one iteration: bottom halves, then expired timers, then ready fds.
 */
#ifndef UTIL_EVENT_LOOP_H
#define UTIL_EVENT_LOOP_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/clock.h"

typedef struct EventLoop EventLoop;
typedef struct BottomHalf BottomHalf;

typedef void FdHandler(void *opaque);
typedef void BottomHalfFunc(void *opaque);
typedef void TimerFunc(void *opaque);

/* The loop of the main thread (on the default GMainContext); made at first use, which ends the
 * process if there are no file descriptors left. */
EventLoop *event_loop_main(void);
/* The same for a first use that may fail: NULL with error. */
EventLoop *event_loop_try_main(GError **errp);

/* The loop whose handler is running in this thread; the main loop in any other thread. */
EventLoop *event_loop_current(void);

/* A loop in a thread of its own, running when this returns.  Ends with event_loop_free(). */
/* How long a loop may look for events before it sleeps, as QEMU's iothreads know it. */
typedef struct EventLoopPoll {
    int64_t max_ns; /* 0: it sleeps at once */
    int64_t grow;   /* factor; 0: 2 */
    int64_t shrink; /* divisor; 0: back to nothing */
} EventLoopPoll;
#define EVENT_LOOP_POLL_MAX_NS 32768 /* of every loop, unless set */
/* Callable from any thread, the loop running or not. */
void event_loop_set_poll(EventLoop *loop, const EventLoopPoll *poll);

EventLoop *event_loop_new_thread(const char *name, GError **errp);

/* Stops the loop's thread, waits for it and frees the loop.  Never the main loop. */
void event_loop_free(EventLoop *loop);

const char *event_loop_name(const EventLoop *loop);
int event_loop_thread_id(const EventLoop *loop); /* kernel thread id, for query-iothreads */

/* True in the thread that runs @loop. */
bool event_loop_is_current(const EventLoop *loop);

/* Ends @loop's sleep, if it sleeps; changes nothing else.  Any thread, and async-signal-safe. */
void event_loop_wake(EventLoop *loop);

/* One iteration; sleeps until something is ready if @may_block.  Returns true if anything ran. */
bool event_loop_run_once(EventLoop *loop, bool may_block);

/* Runs @fn in @loop's thread and returns when it has run.  Callable from any thread; runs it
 * directly when already there.  @fn runs between handlers, so it sees none half done.  The caller's
 * own loop does nothing meanwhile: two loops that wait for each other would wait for ever, so
 * only the main thread waits for others. */
void event_loop_run_sync(EventLoop *loop, BottomHalfFunc *fn, void *opaque);

/* Watches @fd, level-triggered.  NULL for a handler: that direction is not watched; both
 * NULL: the fd is forgotten (do this before close).  Callable from within any handler. */
void event_loop_set_fd_handler(EventLoop *loop, int fd, FdHandler *readable, FdHandler *writable,
                               void *opaque);

/*
 * Poll hooks: for libraries (libslirp) that say before each sleep how long they may sleep.
 * @prepare runs before the loop sleeps and may lower *timeout_ns (-1: no limit); @check runs
 * after each wake-up, before fd handlers.
 */
typedef struct EventLoopHook EventLoopHook;
EventLoopHook *event_loop_add_hook(EventLoop *loop,
                                   void (*prepare)(void *opaque, int64_t *timeout_ns),
                                   void (*check)(void *opaque), void *opaque);
void event_loop_remove_hook(EventLoopHook *hook);

/* Bottom halves: run once, soon, in the loop's thread.  schedule and cancel are callable from
 * any thread and cost no system call when the loop is awake; scheduling twice runs it once. */
BottomHalf *bh_new(EventLoop *loop, BottomHalfFunc *fn, void *opaque);
void bh_schedule(BottomHalf *bh);
void bh_cancel(BottomHalf *bh);
bool bh_pending(const BottomHalf *bh);
void bh_delete(BottomHalf *bh); /* may be called from its own function */

/* Runs @fn once in @loop; for messages from another thread. */
void event_loop_oneshot(EventLoop *loop, BottomHalfFunc *fn, void *opaque);

/*
 * Timers: embedded in their owner, so that arming allocates nothing.  Timers with the same
 * deadline run in the order they were armed.  Arming and deleting are callable from any thread;
 * the function runs in the loop's.  A virtual timer does not run while the VM is stopped (the
 * virtual clock is disabled until the first vm_start() or clock_virtual_enable()).
 */
typedef struct Timer {
    EventLoop *loop;
    ClockType clock;
    TimerFunc *fn;
    void *opaque;
    int64_t deadline_ns; /* on @clock; -1 when idle */
    unsigned heap_index; /* place in the loop's heap of this clock */
    uint64_t sequence;   /* order of arming */
} Timer;

void timer_init(Timer *timer, EventLoop *loop, ClockType clock, TimerFunc *fn, void *opaque);
void timer_mod_ns(Timer *timer, int64_t deadline_ns); /* absolute; re-arming moves it */
void timer_del(Timer *timer);                         /* idle timers may be deleted too */
static inline bool timer_pending(const Timer *timer)
{
    return timer->deadline_ns >= 0;
}

#endif
