/*
 * When to flush the transmit queue: one small ops table for each value of tx=.
 *
 *   policy       on notify                                 then
 *   bh           bottom half, notifications off            flush in it
 *   timer        first: timer; second: flush at once       flush when it expires
 *   flush-first  flush at once, then hold off              flush when the timer expires
 *   adaptive     flush at once                             rest, poll or hold (below)
 *
 * The first three end alike (tx_run): a full burst means that more is coming, so the policy arms
 * itself again; less than one turns notifications on and looks once more, because the driver may
 * have published between the last look and that moment; if something was there the driver is still
 * busy, and notifications go off again.  When the peer takes no more, notifications stay off and
 * nothing is armed until it is writable.
 *
 * adaptive decides after each flush that emptied the ring, from two figures that it learns:
 * the time between packets (gap), and how late a sleeping thread is woken (lateness).
 *
 *   hold   Sleep with notifications off, if several packets will come meanwhile: one timer in
 *          place of their notifications.  Ends so early that, woken late, the first of them has
 *          not waited for x-txlatency; nor does it last until the ring is full.
 *   poll   Look in every iteration of the loop, if the next packet will come before a sleep and a
 *          wake-up were done: for that long at most.  Polls in vain make the next ones rarer.
 *   rest   Notifications on, as bh does.
 *
 * Nothing is held while the ring holds a packet that was seen.  docs/tx-mitigation.md has the model
 * and the measurements.
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
    /* A flush is due: does it, and what follows from what it found. */
    void (*run)(TxScheduler *s, TxFlushCause cause);
};

/* A flush is due; the driver need not tell of more until then. */
static void tx_flush_later(TxScheduler *s)
{
    s->waiting = true;
    s->engine->disable_notify(s->opaque);
    s->set.policy->arm(s);
}

/* One flush.  False: the peer takes no more. */
static bool tx_flush_once(TxScheduler *s, TxFlushCause cause, int *done)
{
    *done = s->engine->flush(s->opaque, cause);
    if (*done >= 0) {
        return true;
    }
    s->stalled = true;
    s->engine->disable_notify(s->opaque);
    return false;
}

/* --- bh, timer, flush-first --- */

static void tx_run(TxScheduler *s, TxFlushCause cause)
{
    int done;

    s->waiting = false;
    if (!tx_flush_once(s, cause, &done)) {
        return;
    }
    if (done >= s->set.burst) {
        tx_flush_later(s);
        return;
    }
    if (!s->engine->enable_notify(s->opaque)) {
        return;
    }
    if (tx_flush_once(s, cause, &done) && done > 0) {
        tx_flush_later(s);
    }
}

static void arm_bh(TxScheduler *s)
{
    s->cause = TX_FLUSH_BH;
    bh_schedule(s->bh);
}

static void arm_timer(TxScheduler *s)
{
    s->cause = TX_FLUSH_TIMER;
    timer_mod_ns(&s->timer, clock_get_ns(CLOCK_VIRTUAL) + s->set.timer_ns);
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
    tx_run(s, TX_FLUSH_NOTIFY);
    return false;
}

static bool flush_first_notified(TxScheduler *s)
{
    int done;

    if (s->waiting) {
        return false;
    }
    s->engine->disable_notify(s->opaque);
    if (tx_flush_once(s, TX_FLUSH_NOTIFY, &done)) {
        tx_flush_later(s);
    }
    return true;
}

/* --- adaptive --- */

/* A hold pays when it takes the place of more wake-ups than its own one. */
#define HOLD_MIN_PACKETS 3
/* A gap this many times x-txlatency long says no more than "idle"; forgetting it again takes a few
 * packets only. */
#define GAP_MAX_LATENCIES 4
/* Part of the ring that may fill up during a hold. */
#define HOLD_RING_PART 4
/* Polls in vain double the number of chances that are passed over, up to this. */
#define POLL_SKIP_MAX 64

static int64_t adaptive_gap_max(const TxScheduler *s)
{
    return (int64_t)s->set.latency_ns * GAP_MAX_LATENCIES;
}

/* @done packets came since the last look that found any. */
static void adaptive_learn_gap(TxScheduler *s, int done, int64_t now)
{
    TxAdaptive *a = &s->adaptive;
    int64_t gap = MIN((now - a->last_ns) / done, adaptive_gap_max(s));

    /* One long gap is enough to make the queue idle, not one short gap to make it busy. */
    a->gap_ns = gap > a->gap_ns ? (a->gap_ns + gap) / 2 : a->gap_ns - (a->gap_ns - gap) / 4;
    a->last_gap_ns = gap;
    a->last_ns = now;
}

/* A sleep of a hold ended @late after it should have.  Believed at once when it was worse than
 * thought, slowly when better, for the bound has to hold. */
static void adaptive_learn_lateness(TxAdaptive *a, int64_t late)
{
    late = MAX(late, 0);
    a->lateness_ns = late > a->lateness_ns ? (a->lateness_ns + late + 1) / 2
                                           : a->lateness_ns - (a->lateness_ns - late) / 16;
}

/* How long to sleep from now on; 0: not at all. */
static int64_t adaptive_hold_ns(TxScheduler *s)
{
    TxAdaptive *a = &s->adaptive;
    int64_t hold = (int64_t)s->set.latency_ns - a->lateness_ns;

    if (s->ring_size) {
        int64_t gap = MIN(a->gap_ns, a->last_gap_ns);

        hold = MIN(hold, gap * (s->ring_size / HOLD_RING_PART) - a->lateness_ns);
    }
    if (hold > 0 && a->gap_ns * HOLD_MIN_PACKETS <= hold) {
        return hold;
    }
    /* Were it not for the lateness: maybe the machine is quicker now, so try again some time. */
    if (a->gap_ns * HOLD_MIN_PACKETS <= (int64_t)s->set.latency_ns) {
        a->lateness_ns -= a->lateness_ns / 256;
    }
    return 0;
}

static bool adaptive_may_poll(TxScheduler *s)
{
    TxAdaptive *a = &s->adaptive;

    if (a->gap_ns > MIN(a->lateness_ns, (int64_t)s->set.latency_ns) || a->lateness_ns == 0) {
        return false;
    }
    if (a->poll_skip > 0) {
        a->poll_skip--;
        return false;
    }
    return true;
}

/* Another look in the next iteration of the loop. */
static void adaptive_look_again(TxScheduler *s, TxFlushCause cause)
{
    s->waiting = true;
    s->cause = cause;
    s->engine->disable_notify(s->opaque);
    bh_schedule(s->bh);
}

static void adaptive_arm(TxScheduler *s)
{
    s->adaptive.holding = s->adaptive.polling = false;
    adaptive_look_again(s, TX_FLUSH_BH);
}

/* Notifications on; what came meanwhile is looked at soon. */
static void adaptive_rest(TxScheduler *s)
{
    if (s->engine->enable_notify(s->opaque)) {
        adaptive_look_again(s, TX_FLUSH_BH);
    }
}

/* The ring is empty after @done packets. */
static void adaptive_decide(TxScheduler *s, int64_t now)
{
    TxAdaptive *a = &s->adaptive;
    int64_t hold = adaptive_hold_ns(s);

    a->polling = false;
    if (hold) {
        a->holding = true;
        a->holds++;
        a->due_ns = now + hold;
        s->waiting = true;
        s->cause = TX_FLUSH_TIMER;
        s->engine->disable_notify(s->opaque);
        timer_mod_ns(&s->timer, a->due_ns);
    } else if (adaptive_may_poll(s)) {
        a->polling = true;
        a->polls++;
        a->due_ns = now + MIN(a->lateness_ns, (int64_t)s->set.latency_ns);
        adaptive_look_again(s, TX_FLUSH_POLL);
    } else {
        adaptive_rest(s);
    }
}

/* A look of a poll found nothing. */
static void adaptive_poll_on(TxScheduler *s, int64_t now)
{
    TxAdaptive *a = &s->adaptive;

    if (now < a->due_ns) {
        adaptive_look_again(s, TX_FLUSH_POLL);
        return;
    }
    a->polling = false;
    a->poll_failures = MIN(a->poll_failures * 2 + 1, POLL_SKIP_MAX);
    a->poll_skip = a->poll_failures;
    adaptive_rest(s);
}

static void adaptive_run(TxScheduler *s, TxFlushCause cause)
{
    TxAdaptive *a = &s->adaptive;
    int64_t now;
    int done;

    s->waiting = false;
    if (a->holding) {
        a->holding = false;
        if (cause == TX_FLUSH_TIMER) {
            adaptive_learn_lateness(a, clock_get_ns(CLOCK_VIRTUAL) - a->due_ns);
        }
    }
    if (!tx_flush_once(s, cause, &done)) {
        a->polling = false;
        return;
    }
    now = clock_get_ns(CLOCK_VIRTUAL);
    if (done > 0) {
        adaptive_learn_gap(s, done, now);
        a->poll_failures -= a->polling && a->poll_failures > 0;
    }
    if (done >= s->set.burst) {
        adaptive_arm(s);
    } else if (done > 0) {
        adaptive_decide(s, now);
    } else if (a->polling) {
        adaptive_poll_on(s, now);
    } else {
        adaptive_rest(s);
    }
}

static bool adaptive_notified(TxScheduler *s)
{
    bool expected = !s->waiting;

    /* Uninvited: the driver wants its ring emptied.  A look that is due anyway will do so. */
    if (s->waiting && !s->adaptive.holding) {
        return false;
    }
    timer_del(&s->timer);
    s->engine->disable_notify(s->opaque);
    adaptive_run(s, TX_FLUSH_NOTIFY);
    return expected;
}

/* --- the scheduler --- */

static const TxPolicy tx_policies[] = {
    {.name = "bh", .notified = bh_notified, .arm = arm_bh, .run = tx_run},
    {.name = "timer", .notified = timer_notified, .arm = arm_timer, .run = tx_run},
    {.name = "flush-first", .notified = flush_first_notified, .arm = arm_timer, .run = tx_run},
    {.name = "adaptive", .notified = adaptive_notified, .arm = adaptive_arm, .run = adaptive_run},
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

static void tx_due(void *opaque)
{
    TxScheduler *s = opaque;

    if (s->running && s->waiting) {
        s->set.policy->run(s, s->cause);
    }
}

/* What a policy knows nothing of yet: an idle queue on a machine that wakes threads in time. */
static void adaptive_forget(TxScheduler *s)
{
    s->adaptive = (TxAdaptive){
        .gap_ns = adaptive_gap_max(s),
        .last_ns = INT64_MIN / 2,
        .holds = s->adaptive.holds,
        .polls = s->adaptive.polls,
    };
}

void tx_scheduler_init(TxScheduler *s, EventLoop *loop, const TxSettings *set,
                       const TxEngineOps *engine, void *opaque)
{
    memset(s, 0, sizeof(*s));
    s->set = *set;
    s->engine = engine;
    s->opaque = opaque;
    s->bh = bh_new(loop, tx_due, s);
    timer_init(&s->timer, loop, CLOCK_VIRTUAL, tx_due, s);
    adaptive_forget(s);
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
    s->adaptive.holding = s->adaptive.polling = false;
}

void tx_scheduler_configure(TxScheduler *s, const TxSettings *set)
{
    tx_disarm(s);
    s->set = *set;
    adaptive_forget(s);
    if (s->running && s->waiting) {
        arm_bh(s);
    }
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
    return s->set.policy->notified(s);
}

void tx_scheduler_writable(TxScheduler *s)
{
    if (!s->running || !s->stalled) {
        return;
    }
    s->stalled = false;
    s->set.policy->run(s, TX_FLUSH_RESUME);
}
