/*
 * Orderly end on signals and time-out: see guard.h.
 *
 * The signals are blocked in every thread and awaited in one, so that what runs is a thread and
 * not a signal handler, and may take locks.
 */
#include "guest/guard.h"
#include "guest/emulator.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static unsigned limit_seconds;
static void (*_Atomic on_end)(void);

static void fill_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

static int64_t now_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

/* The signal that came; -1 when the time is over. */
static int await_signal(const sigset_t *set)
{
    int64_t deadline = now_seconds() + limit_seconds;
    for (;;) {
        int64_t left = limit_seconds ? deadline - now_seconds() : 3600;
        struct timespec ts = {.tv_sec = left > 0 ? left : 0};
        int sig = sigtimedwait(set, NULL, &ts);
        if (sig > 0) {
            return sig;
        }
        if (errno == EAGAIN && limit_seconds && now_seconds() >= deadline) {
            return -1;
        }
    }
}

static void *guard_thread(void *opaque)
{
    sigset_t set;
    fill_set(&set);
    int sig = await_signal(&set);
    emulator_kill_all();
    void (*fn)(void) = on_end;
    if (fn) {
        fn();
    }
    if (sig < 0) {
        fprintf(stderr, "swnic-guest: not finished after %u s (--timeout), giving up\n",
                limit_seconds);
        _exit(1);
    }
    /* End as the signal ends a process, so that a shell or make sees it. */
    signal(sig, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    kill(getpid(), sig);
    _exit(128 + sig);
}

void guest_guard_on_end(void (*fn)(void))
{
    on_end = fn;
}

void guest_guard_start(unsigned seconds)
{
    sigset_t set;
    pthread_t thread;
    limit_seconds = seconds;
    fill_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (pthread_create(&thread, NULL, guard_thread, NULL) == 0) {
        pthread_detach(thread);
    } else {
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
}
