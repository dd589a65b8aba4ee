/*
 * When to flush the transmit queue: one small ops table for each value of tx=.
 *
 *   policy       on notify                                 then
 *   bh           bottom half, notifications off            flush in it
 *   timer        first: timer; second: flush at once       flush when it expires
 *   flush-first  flush at once, then hold off              flush when the timer expires
 *
 * All end alike (tx_run): a full burst means that more is coming, so the policy arms itself again;
 * less than one turns notifications on and looks once more, because the driver may have published
 * between the last look and that moment; if something was there the driver is still busy, and
 * notifications go off again.  When the peer takes no more, notifications stay off and nothing is
 * armed until it is writable.
 *
 * A scheduler knows neither queue nor packets: it drives TxEngineOps.  All its functions run in
 * one loop's thread.
 */
#include <errno.h>
#include <string.h>

#include "hw/net/virtio-net-internal.h"

struct TxPolicy {
    const char *name;
    /* The driver's notification, nothing being stalled; false: it came uninvited. */
    bool (*notified)(TxScheduler *s);
    /* Arms what will flush later. */
    void (*arm)(TxScheduler *s);
};

/* A flush is due; the driver need not tell of more until then. */
static void tx_flush_later(TxScheduler *s)
{
    s->waiting = true;
    s->engine->disable_notify(s->opaque);
    s->policy->arm(s);
}

/* One flush.  False: the peer takes no more. */
static bool tx_flush_once(TxScheduler *s, int *done)
{
    *done = s->engine->flush(s->opaque);
    if (*done >= 0) {
        return true;
    }
    s->stalled = true;
    s->engine->disable_notify(s->opaque);
    return false;
}

/* The flush that was due, and what follows from what it found. */
static void tx_run(TxScheduler *s)
{
    int done;

    s->waiting = false;
    if (!tx_flush_once(s, &done)) {
        return;
    }
    if (done >= s->burst) {
        tx_flush_later(s);
        return;
    }
    if (!s->engine->enable_notify(s->opaque)) {
        return;
    }
    if (tx_flush_once(s, &done) && done > 0) {
        tx_flush_later(s);
    }
}

static void tx_due(void *opaque)
{
    TxScheduler *s = opaque;

    if (s->running && s->waiting) {
        tx_run(s);
    }
}

static void arm_bh(TxScheduler *s)
{
    bh_schedule(s->bh);
}

static void arm_timer(TxScheduler *s)
{
    timer_mod_ns(&s->timer, clock_get_ns(CLOCK_VIRTUAL) + s->timer_ns);
}

static bool bh_notified(TxScheduler *s)
{
    if (s->waiting) {
        return false;
    }
    tx_flush_later(s);
    return true;
}

/* A second notification although they are off: the driver has filled its ring, or wants it out. */
static bool timer_notified(TxScheduler *s)
{
    if (!s->waiting) {
        tx_flush_later(s);
        return true;
    }
    timer_del(&s->timer);
    tx_run(s);
    return false;
}

static bool flush_first_notified(TxScheduler *s)
{
    int done;

    if (s->waiting) {
        return false;
    }
    s->engine->disable_notify(s->opaque);
    if (tx_flush_once(s, &done)) {
        tx_flush_later(s);
    }
    return true;
}

static const TxPolicy tx_policies[] = {
    {.name = "bh", .notified = bh_notified, .arm = arm_bh},
    {.name = "timer", .notified = timer_notified, .arm = arm_timer},
    {.name = "flush-first", .notified = flush_first_notified, .arm = arm_timer},
};

const TxPolicy *tx_policy_find(const char *name)
{
    if (!name || !*name) {
        return &tx_policies[0];
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(tx_policies); i++) {
        if (!strcmp(tx_policies[i].name, name)) {
            return &tx_policies[i];
        }
    }
    return NULL;
}

const char *tx_policy_name(const TxPolicy *policy)
{
    return policy->name;
}

void tx_scheduler_init(TxScheduler *s, EventLoop *loop, const TxPolicy *policy, int burst,
                       uint32_t timer_ns, const TxEngineOps *engine, void *opaque)
{
    memset(s, 0, sizeof(*s));
    s->policy = policy;
    s->engine = engine;
    s->opaque = opaque;
    s->burst = burst;
    s->timer_ns = timer_ns;
    s->bh = bh_new(loop, tx_due, s);
    timer_init(&s->timer, loop, CLOCK_VIRTUAL, tx_due, s);
}

void tx_scheduler_cleanup(TxScheduler *s)
{
    timer_del(&s->timer);
    if (s->bh) {
        bh_delete(s->bh);
        s->bh = NULL;
    }
}

static void tx_disarm(TxScheduler *s)
{
    timer_del(&s->timer);
    bh_cancel(s->bh);
}

void tx_scheduler_start(TxScheduler *s, bool pending)
{
    s->running = true;
    /* The peer may have become writable while nobody listened: try again rather than wait. */
    if (s->waiting || s->stalled || pending || s->engine->enable_notify(s->opaque)) {
        s->stalled = false;
        tx_flush_later(s);
    }
}

void tx_scheduler_stop(TxScheduler *s)
{
    s->running = false;
    tx_disarm(s);
}

void tx_scheduler_reset(TxScheduler *s)
{
    tx_disarm(s);
    s->waiting = false;
    s->stalled = false;
}

bool tx_scheduler_notified(TxScheduler *s)
{
    if (!s->running || s->stalled) {
        return false;
    }
    return s->policy->notified(s);
}

void tx_scheduler_writable(TxScheduler *s)
{
    if (!s->running || !s->stalled) {
        return;
    }
    s->stalled = false;
    tx_run(s);
}
