/*
 * What the files of the event loop share: event-loop.c (sleep, fds, threads), bottom-half.c and
 * timer.c (what runs), clock.c (time).  Nobody else includes this.
 */
#ifndef UTIL_EVENT_LOOP_PRIV_H
#define UTIL_EVENT_LOOP_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "util/event-loop.h"

#define TIME_NEVER INT64_MAX

/* Timers of one clock, earliest first. */
typedef struct TimerHeap {
    Timer **timers;
    unsigned count, size;
} TimerHeap;

struct BottomHalf {
    EventLoop *loop;
    BottomHalfFunc *fn;
    void *opaque;
    /* Under loop->lock: */
    BottomHalf *prev, *next; /* in loop->bh_first..bh_last while pending */
    uint64_t sequence;       /* when it was scheduled */
    bool pending;
    bool oneshot; /* freed before it runs */
};

/* What is watched on one fd.  An fd number may be closed and used anew while an event of the old
 * one is still in hand: the generation tells them apart. */
typedef struct FdEntry {
    FdHandler *readable, *writable;
    void *opaque;
    uint32_t generation;
    bool watched;      /* in the epoll set (or always ready) */
    bool always_ready; /* a file that epoll refuses: regular files, /dev/null */
} FdEntry;

struct EventLoopHook {
    EventLoop *loop;
    void (*prepare)(void *opaque, int64_t *timeout_ns);
    void (*check)(void *opaque);
    void *opaque;
    bool removed; /* freed once nobody walks the list */
};

/* busy-poll.c */
typedef struct BusyPoll {
    EventLoopPoll set;
    int64_t now_ns; /* how long the next look may take */
} BusyPoll;
/* An event came after @waited_ns. */
void busy_poll_adapt(BusyPoll *poll, int64_t waited_ns);
/* Looks at epoll descriptor @fd, not beyond host time @until_ns; true: there is an event. */
bool busy_poll_wait(const BusyPoll *poll, int fd, int64_t until_ns);

struct EventLoop {
    char *name;
    GMainContext *context;
    GSource *source;
    gpointer poll_tag; /* of epoll_fd in source */
    int epoll_fd, event_fd, timer_fd;

    pthread_t thread;
    bool own_thread;
    atomic_int thread_id;
    atomic_bool quit;

    /* The loop's thread only. */
    GArray *fds; /* FdEntry by fd number */
    unsigned always_ready;
    uint32_t generation;
    GPtrArray *hooks;
    unsigned hook_walkers;
    BusyPoll poll;
    int64_t wait_ns;  /* host time at which the loop began to wait; 0: it does not */
    int64_t armed_ns; /* host time for which timer_fd is set; in the past: not set */

    /* Guards what follows. */
    pthread_mutex_t lock;
    bool sleeping; /* whoever adds work clears this and writes event_fd */
    BottomHalf *bh_first, *bh_last;
    uint64_t bh_sequence, timer_sequence;
    TimerHeap heaps[CLOCK__MAX];
};

/* bottom-half.c: runs what was pending at the call. */
void event_loop_run_bottom_halves(EventLoop *loop);
void event_loop_drop_bottom_halves(EventLoop *loop);

/* timer.c.  The deadline is in host time, TIME_NEVER if there is none; called with the lock. */
int64_t event_loop_deadline_locked(EventLoop *loop);
void event_loop_run_timers(EventLoop *loop, ClockType clock);
int64_t event_loop_virtual_deadline(EventLoop *loop);

/* event-loop.c.  Unlocks; wakes the loop if it sleeps. */
void event_loop_unlock_and_wake(EventLoop *loop);
void event_loop_foreach(void (*fn)(EventLoop *loop, void *opaque), void *opaque);
EventLoop *event_loop_main_if_made(void); /* NULL before the first use; async-signal-safe */

/* clock.c: host time at which virtual time reaches @deadline_ns, 0 if it has and only stepping
 * moves the clock, TIME_NEVER if waiting does not help. */
int64_t clock_virtual_to_host_ns(int64_t deadline_ns);
bool clock_virtual_enabled(void);

#endif
