/*
 * Bottom halves: a list of what is to run in a loop, in the order it was scheduled.
 *
 * One iteration runs what was pending when it began: a bottom half that schedules itself again
 * waits for the next one, so fds and timers get their turn.  Every list change is under the
 * loop's lock; functions run without it and may do anything, delete their bottom half included.
 */
#include "event-loop-priv.h"

BottomHalf *bh_new(EventLoop *loop, BottomHalfFunc *fn, void *opaque)
{
    BottomHalf *bh = g_new0(BottomHalf, 1);

    bh->loop = loop;
    bh->fn = fn;
    bh->opaque = opaque;
    return bh;
}

static void list_append_locked(BottomHalf *bh)
{
    EventLoop *loop = bh->loop;

    bh->prev = loop->bh_last;
    bh->next = NULL;
    if (loop->bh_last) {
        loop->bh_last->next = bh;
    } else {
        loop->bh_first = bh;
    }
    loop->bh_last = bh;
    bh->pending = true;
    bh->sequence = ++loop->bh_sequence;
}

static void list_remove_locked(BottomHalf *bh)
{
    EventLoop *loop = bh->loop;

    *(bh->prev ? &bh->prev->next : &loop->bh_first) = bh->next;
    *(bh->next ? &bh->next->prev : &loop->bh_last) = bh->prev;
    bh->pending = false;
}

void bh_schedule(BottomHalf *bh)
{
    EventLoop *loop = bh->loop;

    pthread_mutex_lock(&loop->lock);
    if (bh->pending) {
        pthread_mutex_unlock(&loop->lock);
        return;
    }
    list_append_locked(bh);
    event_loop_unlock_and_wake(loop);
}

void bh_cancel(BottomHalf *bh)
{
    pthread_mutex_lock(&bh->loop->lock);
    if (bh->pending) {
        list_remove_locked(bh);
    }
    pthread_mutex_unlock(&bh->loop->lock);
}

bool bh_pending(const BottomHalf *bh)
{
    pthread_mutex_lock(&bh->loop->lock);
    bool pending = bh->pending;
    pthread_mutex_unlock(&bh->loop->lock);
    return pending;
}

void bh_delete(BottomHalf *bh)
{
    if (bh) {
        bh_cancel(bh);
        g_free(bh);
    }
}

void event_loop_oneshot(EventLoop *loop, BottomHalfFunc *fn, void *opaque)
{
    BottomHalf *bh = bh_new(loop, fn, opaque);

    bh->oneshot = true;
    bh_schedule(bh);
}

void event_loop_run_bottom_halves(EventLoop *loop)
{
    pthread_mutex_lock(&loop->lock);
    uint64_t last = loop->bh_sequence;
    while (loop->bh_first && loop->bh_first->sequence <= last) {
        BottomHalf *bh = loop->bh_first;
        BottomHalfFunc *fn = bh->fn;
        void *opaque = bh->opaque;
        bool oneshot = bh->oneshot;

        list_remove_locked(bh);
        pthread_mutex_unlock(&loop->lock);
        if (oneshot) {
            g_free(bh);
        }
        fn(opaque);
        pthread_mutex_lock(&loop->lock);
    }
    pthread_mutex_unlock(&loop->lock);
}

/* At the end of a loop: the owners of ordinary bottom halves free theirs. */
void event_loop_drop_bottom_halves(EventLoop *loop)
{
    while (loop->bh_first) {
        BottomHalf *bh = loop->bh_first;

        list_remove_locked(bh);
        if (bh->oneshot) {
            g_free(bh);
        }
    }
}
