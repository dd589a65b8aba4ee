/*
 * Timers: a binary heap for each clock of a loop.
 *
 * A heap holds pointers to timers that their owners embed; heap_index lets one be moved or
 * deleted without a search.  Arming makes no system call: the loop looks at the heaps before it
 * sleeps.  If it sleeps already (armed from another thread), it is woken to look again.
 */
#include "event-loop-priv.h"

static bool timer_before(const Timer *a, const Timer *b)
{
    return a->deadline_ns < b->deadline_ns ||
           (a->deadline_ns == b->deadline_ns && a->sequence < b->sequence);
}

static void heap_put(TimerHeap *heap, unsigned i, Timer *timer)
{
    heap->timers[i] = timer;
    timer->heap_index = i;
}

static void heap_up(TimerHeap *heap, unsigned i, Timer *timer)
{
    while (i && timer_before(timer, heap->timers[(i - 1) / 2])) {
        heap_put(heap, i, heap->timers[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_put(heap, i, timer);
}

static void heap_down(TimerHeap *heap, unsigned i, Timer *timer)
{
    for (;;) {
        unsigned child = 2 * i + 1;
        if (child + 1 < heap->count && timer_before(heap->timers[child + 1], heap->timers[child])) {
            child++;
        }
        if (child >= heap->count || timer_before(timer, heap->timers[child])) {
            break;
        }
        heap_put(heap, i, heap->timers[child]);
        i = child;
    }
    heap_put(heap, i, timer);
}

static void heap_insert(TimerHeap *heap, Timer *timer)
{
    if (heap->count == heap->size) {
        heap->size = heap->size ? heap->size * 2 : 16;
        heap->timers = g_renew(Timer *, heap->timers, heap->size);
    }
    heap_up(heap, heap->count++, timer);
}

static void heap_remove(TimerHeap *heap, Timer *timer)
{
    unsigned i = timer->heap_index;
    Timer *moved = heap->timers[--heap->count];

    if (moved == timer) {
        return;
    }
    if (i && timer_before(moved, heap->timers[(i - 1) / 2])) {
        heap_up(heap, i, moved);
    } else {
        heap_down(heap, i, moved);
    }
}

void timer_init(Timer *timer, EventLoop *loop, ClockType clock, TimerFunc *fn, void *opaque)
{
    *timer = (Timer){
        .loop = loop ? loop : event_loop_main(),
        .clock = clock,
        .fn = fn,
        .opaque = opaque,
        .deadline_ns = -1,
    };
}

void timer_mod_ns(Timer *timer, int64_t deadline_ns)
{
    EventLoop *loop = timer->loop;
    TimerHeap *heap = &loop->heaps[timer->clock];

    pthread_mutex_lock(&loop->lock);
    if (timer->deadline_ns >= 0) {
        heap_remove(heap, timer);
    }
    timer->deadline_ns = MAX(deadline_ns, 0);
    timer->sequence = ++loop->timer_sequence;
    heap_insert(heap, timer);
    if (timer->heap_index == 0) {
        event_loop_unlock_and_wake(loop);
    } else {
        pthread_mutex_unlock(&loop->lock);
    }
}

void timer_del(Timer *timer)
{
    EventLoop *loop = timer->loop;

    if (!loop) {
        return; /* never initialised */
    }
    pthread_mutex_lock(&loop->lock);
    if (timer->deadline_ns >= 0) {
        heap_remove(&loop->heaps[timer->clock], timer);
        timer->deadline_ns = -1;
    }
    pthread_mutex_unlock(&loop->lock);
}

int64_t event_loop_deadline_locked(EventLoop *loop)
{
    TimerHeap *host = &loop->heaps[CLOCK_HOST], *virtual = &loop->heaps[CLOCK_VIRTUAL];
    int64_t deadline = TIME_NEVER;

    if (host->count) {
        deadline = host->timers[0]->deadline_ns;
    }
    if (virtual->count) {
        deadline = MIN(deadline, clock_virtual_to_host_ns(virtual->timers[0]->deadline_ns));
    }
    return deadline;
}

int64_t event_loop_virtual_deadline(EventLoop *loop)
{
    TimerHeap *heap = &loop->heaps[CLOCK_VIRTUAL];

    pthread_mutex_lock(&loop->lock);
    int64_t deadline = heap->count ? heap->timers[0]->deadline_ns : TIME_NEVER;
    pthread_mutex_unlock(&loop->lock);
    return deadline;
}

void event_loop_run_timers(EventLoop *loop, ClockType clock)
{
    TimerHeap *heap = &loop->heaps[clock];

    pthread_mutex_lock(&loop->lock);
    /* A timer that arms itself for the past runs again in the next iteration, not in this. */
    uint64_t last = loop->timer_sequence;
    if (heap->count) {
        int64_t now = clock_get_ns(clock);
        while (heap->count && heap->timers[0]->deadline_ns <= now &&
               heap->timers[0]->sequence <= last) {
            /* A function may stop the VM: the rest then waits. */
            if (clock == CLOCK_VIRTUAL && !clock_virtual_enabled()) {
                break;
            }
            Timer *timer = heap->timers[0];
            TimerFunc *fn = timer->fn;
            void *opaque = timer->opaque;

            heap_remove(heap, timer);
            timer->deadline_ns = -1;
            pthread_mutex_unlock(&loop->lock);
            fn(opaque);
            pthread_mutex_lock(&loop->lock);
        }
    }
    pthread_mutex_unlock(&loop->lock);
}
