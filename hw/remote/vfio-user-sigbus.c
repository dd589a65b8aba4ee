/*
 * SIGBUS: memory of a client whose file shrank under us.
 *
 * A client may truncate the file that it shared.  The next access raises SIGBUS, in whatever
 * thread runs the queue.  The handler finds the range in a fixed table, maps zero pages over all
 * of it (so that the access goes on, and reads zeros), marks it dead and wakes the main loop,
 * which takes the range out of the device's map.  System calls on such memory see EFAULT instead.
 * A SIGBUS anywhere else ends the process as it always would.
 *
 * Slots are written by the main thread only and read by the handler: the address is stored last
 * and cleared first.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "util/event-notifier.h"
#include "vfio-user-internal.h"

#define GUARD_SLOTS (2 * SERVER_MAX_DMA_MAPS) /* for all devices of the process */

static struct Guard {
    _Atomic(uintptr_t) start;
    size_t size;
    bool *dead;
    EventNotifier *notify;
} guards[GUARD_SLOTS];
static _Atomic(unsigned) guards_used; /* slots beyond were never used */
static struct sigaction previous;
static bool installed;

static struct Guard *guard_find(uintptr_t address)
{
    unsigned used = atomic_load_explicit(&guards_used, memory_order_acquire);

    for (unsigned i = 0; i < used; i++) {
        uintptr_t start = atomic_load_explicit(&guards[i].start, memory_order_acquire);

        if (start && address >= start && address - start < guards[i].size) {
            return &guards[i];
        }
    }
    return NULL;
}

/* Async-signal-safe: atomics, mmap(), and a write to an eventfd. */
static void handle_sigbus(int sig, siginfo_t *info, void *context)
{
    struct Guard *guard = guard_find((uintptr_t)info->si_addr);

    if (guard &&
        mmap((void *)guard->start, guard->size, PROT_READ | PROT_WRITE,
             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
        __atomic_store_n(guard->dead, true, __ATOMIC_RELEASE);
        event_notifier_set(guard->notify);
        return;
    }
    sigaction(SIGBUS, &previous, NULL); /* the access faults again, and then it counts */
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = handle_sigbus, .sa_flags = SA_SIGINFO};

    if (!installed) {
        sigaction(SIGBUS, &action, &previous);
        installed = true;
    }
}

bool sigbus_guard_add(void *host, size_t size, bool *dead, EventNotifier *notify)
{
    unsigned used = atomic_load_explicit(&guards_used, memory_order_relaxed);
    unsigned slot = 0;

    install();
    while (slot < used && atomic_load_explicit(&guards[slot].start, memory_order_relaxed)) {
        slot++;
    }
    if (slot == GUARD_SLOTS) {
        return false;
    }
    guards[slot].size = size;
    guards[slot].dead = dead;
    guards[slot].notify = notify;
    atomic_store_explicit(&guards[slot].start, (uintptr_t)host, memory_order_release);
    if (slot == used) {
        atomic_store_explicit(&guards_used, used + 1, memory_order_release);
    }
    return true;
}

void sigbus_guard_remove(void *host)
{
    struct Guard *guard = guard_find((uintptr_t)host);

    if (guard) {
        atomic_store_explicit(&guard->start, 0, memory_order_release);
    }
}
