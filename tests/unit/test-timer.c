/* Timers on both clocks; the stepped virtual clock, also across threads. */
#include <stdatomic.h>
#include <string.h>

#include "util/clock.h"
#include "util/event-loop.h"
#include "util/runstate.h"

#define MS INT64_C(1000000)

static GString *trace;

typedef struct Named {
    Timer timer;
    const char *name;
    int64_t fired_ns;
    int64_t period_ns; /* arms itself again; 0: no */
    int runs;
} Named;

static void named_fire(void *opaque)
{
    Named *n = opaque;

    n->fired_ns = clock_get_ns(n->timer.clock);
    n->runs++;
    g_string_append(trace, n->name);
    if (n->period_ns) {
        timer_mod_ns(&n->timer, n->fired_ns + n->period_ns);
    }
}

static void named_init(Named *n, ClockType clock, const char *name)
{
    memset(n, 0, sizeof(*n));
    n->name = name;
    timer_init(&n->timer, event_loop_main(), clock, named_fire, n);
}

static void test_host_order(void)
{
    Named a, b, c;
    int64_t now = clock_get_ns(CLOCK_HOST);

    g_string_truncate(trace, 0);
    named_init(&a, CLOCK_HOST, "a");
    named_init(&b, CLOCK_HOST, "b");
    named_init(&c, CLOCK_HOST, "c");
    timer_mod_ns(&c.timer, now + 3 * MS);
    timer_mod_ns(&a.timer, now + 9 * MS);
    timer_mod_ns(&b.timer, now + 2 * MS);
    timer_mod_ns(&a.timer, now + 1 * MS); /* moves it forward */
    g_assert_true(timer_pending(&a.timer));
    while (!c.runs) {
        event_loop_run_once(event_loop_main(), true);
    }
    g_assert_cmpstr(trace->str, ==, "abc");
    g_assert_cmpint(a.fired_ns, >=, now + 1 * MS);
    g_assert_cmpint(c.fired_ns, >=, now + 3 * MS);
    g_assert_false(timer_pending(&c.timer));
    timer_del(&c.timer);
}

static void test_host_deleted(void)
{
    Named a, b;
    int64_t now = clock_get_ns(CLOCK_HOST);

    named_init(&a, CLOCK_HOST, "a");
    named_init(&b, CLOCK_HOST, "b");
    timer_mod_ns(&a.timer, now + 1 * MS);
    timer_mod_ns(&b.timer, now + 5 * MS);
    timer_del(&a.timer);
    timer_del(&a.timer);
    while (!b.runs) {
        event_loop_run_once(event_loop_main(), true);
    }
    g_assert_cmpint(a.runs, ==, 0);
}

/* The heap against the obvious: 500 timers with random deadlines, moved and deleted at random. */
static void test_heap_random(void)
{
    enum { N = 500 };
    g_autofree Named *timers = g_new0(Named, N);
    int64_t now = clock_get_ns(CLOCK_HOST), last = 0;
    unsigned expected = 0, fired = 0;

    g_string_truncate(trace, 0);
    for (int i = 0; i < N; i++) {
        named_init(&timers[i], CLOCK_HOST, ".");
    }
    for (int i = 0; i < 5 * N; i++) {
        Named *n = &timers[g_test_rand_int_range(0, N)];
        if (g_test_rand_int_range(0, 4)) {
            timer_mod_ns(&n->timer, now - g_test_rand_int_range(0, 1000000));
        } else {
            timer_del(&n->timer);
        }
    }
    for (int i = 0; i < N; i++) {
        expected += timer_pending(&timers[i].timer);
    }
    event_loop_run_once(event_loop_main(), false);
    for (int i = 0; i < N; i++) {
        fired += timers[i].runs;
        last = MAX(last, timers[i].fired_ns);
    }
    g_assert_cmpint(fired, ==, expected);
    g_assert_cmpint(trace->len, ==, expected);
}

static void test_virtual_stands_still(void)
{
    Named v, h;

    named_init(&v, CLOCK_VIRTUAL, "v");
    named_init(&h, CLOCK_HOST, "h");
    g_assert_false(vm_is_running());
    int64_t before = clock_get_ns(CLOCK_VIRTUAL);
    timer_mod_ns(&v.timer, before + 1);
    timer_mod_ns(&h.timer, clock_get_ns(CLOCK_HOST) + 5 * MS);
    while (!h.runs) {
        event_loop_run_once(event_loop_main(), true);
    }
    g_assert_cmpint(v.runs, ==, 0);
    g_assert_cmpint(clock_get_ns(CLOCK_VIRTUAL), ==, before);
    g_assert_cmpint(clock_virtual_deadline_ns(), ==, -1);

    vm_start();
    while (!v.runs) {
        event_loop_run_once(event_loop_main(), true);
    }
    timer_mod_ns(&v.timer, clock_get_ns(CLOCK_VIRTUAL) + 2 * MS);
    while (v.runs < 2) {
        event_loop_run_once(event_loop_main(), true);
    }
    vm_stop(VM_PAUSED);
    int64_t stopped = clock_get_ns(CLOCK_VIRTUAL);
    g_usleep(2000);
    g_assert_cmpint(clock_get_ns(CLOCK_VIRTUAL), ==, stopped);
    g_assert_cmpint(stopped, <, 1000 * MS);
}

static void cross_fire(void *opaque)
{
    atomic_store((atomic_bool *)opaque, true);
}

/* A loop that sleeps without limit takes a timer armed from another thread. */
static void test_armed_from_other_thread(void)
{
    EventLoop *loop = event_loop_new_thread("io", NULL);
    atomic_bool fired = false;
    Timer timer;

    timer_init(&timer, loop, CLOCK_HOST, cross_fire, &fired);
    g_usleep(2000);
    timer_mod_ns(&timer, clock_get_ns(CLOCK_HOST) + 2 * MS);
    for (int i = 0; i < 5000 && !atomic_load(&fired); i++) {
        g_usleep(1000);
    }
    g_assert_true(atomic_load(&fired));
    event_loop_free(loop);
}

static void test_stepped_order(void)
{
    Named a, b, c;

    g_string_truncate(trace, 0);
    named_init(&a, CLOCK_VIRTUAL, "a");
    named_init(&b, CLOCK_VIRTUAL, "b");
    named_init(&c, CLOCK_VIRTUAL, "c");
    clock_virtual_enable(true);
    g_assert_cmpint(clock_get_ns(CLOCK_VIRTUAL), ==, 0);
    g_assert_cmpint(clock_virtual_deadline_ns(), ==, -1);
    a.period_ns = 100;
    timer_mod_ns(&a.timer, 100);
    timer_mod_ns(&b.timer, 250);
    timer_mod_ns(&c.timer, 400);
    g_assert_cmpint(clock_virtual_deadline_ns(), ==, 100);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(a.runs, ==, 0);
    clock_step_virtual(350);
    g_assert_cmpstr(trace->str, ==, "aaba");
    g_assert_cmpint(a.fired_ns, ==, 300);
    g_assert_cmpint(b.fired_ns, ==, 250);
    g_assert_cmpint(clock_get_ns(CLOCK_VIRTUAL), ==, 350);
    timer_del(&a.timer);
    clock_step_virtual(400);
    g_assert_cmpint(c.fired_ns, ==, 400);
    g_assert_cmpint(clock_virtual_deadline_ns(), ==, -1);
}

static void test_stepped_stopped(void)
{
    Named a;
    int64_t now = clock_get_ns(CLOCK_VIRTUAL);

    named_init(&a, CLOCK_VIRTUAL, "a");
    timer_mod_ns(&a.timer, now + 10);
    clock_virtual_enable(false);
    clock_step_virtual(now + 50);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(a.runs, ==, 0);
    g_assert_cmpint(clock_get_ns(CLOCK_VIRTUAL), ==, now + 50);
    clock_virtual_enable(true);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(a.runs, ==, 1);
    g_assert_cmpint(a.fired_ns, ==, now + 50);
}

static void fire_again_now(void *opaque)
{
    Timer *timer = opaque;

    timer_mod_ns(timer, clock_get_ns(CLOCK_VIRTUAL));
}

static void test_stepped_endless(void)
{
    int64_t now = clock_get_ns(CLOCK_VIRTUAL);
    Timer timer;

    timer_init(&timer, event_loop_main(), CLOCK_VIRTUAL, fire_again_now, &timer);
    timer_mod_ns(&timer, now + 5);
    clock_step_virtual(now + 100);
    g_assert_cmpint(clock_get_ns(CLOCK_VIRTUAL), ==, now + 100);
    event_loop_run_once(event_loop_main(), false);
    timer_del(&timer);
}

typedef struct ThreadTimer {
    Timer timer;
    EventLoop *loop;
    int64_t fired_ns[3];
    int runs;
} ThreadTimer;

static void thread_fire(void *opaque)
{
    ThreadTimer *t = opaque;

    g_assert_true(event_loop_is_current(t->loop));
    t->fired_ns[t->runs++] = clock_get_ns(CLOCK_VIRTUAL);
    if (t->runs < 3) {
        timer_mod_ns(&t->timer, clock_get_ns(CLOCK_VIRTUAL) + 20);
    }
}

static void test_stepped_other_loop(void)
{
    ThreadTimer t = {.loop = event_loop_new_thread("io", NULL)};
    int64_t now = clock_get_ns(CLOCK_VIRTUAL);

    timer_init(&t.timer, t.loop, CLOCK_VIRTUAL, thread_fire, &t);
    timer_mod_ns(&t.timer, now + 10);
    clock_step_virtual(now + 1000);
    /* It has run to its end when the step returns: no waiting here. */
    g_assert_cmpint(t.runs, ==, 3);
    for (int i = 0; i < 3; i++) {
        g_assert_cmpint(t.fired_ns[i], ==, now + 10 + 20 * i);
    }
    event_loop_free(t.loop);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    trace = g_string_new(NULL);
    g_test_add_func("/timer/host/in-order-of-deadline", test_host_order);
    g_test_add_func("/timer/host/deleted-does-not-fire", test_host_deleted);
    g_test_add_func("/timer/host/heap-against-random-use", test_heap_random);
    g_test_add_func("/timer/virtual/stands-still-while-stopped", test_virtual_stands_still);
    g_test_add_func("/timer/thread/armed-from-another-thread", test_armed_from_other_thread);
    /* From here on the clock is stepped, for good. */
    clock_virtual_enable(false);
    g_test_add_func("/timer/stepped/setup", clock_set_stepped);
    g_test_add_func("/timer/stepped/stops-at-every-deadline", test_stepped_order);
    g_test_add_func("/timer/stepped/no-timer-while-stopped", test_stepped_stopped);
    g_test_add_func("/timer/stepped/timer-for-now-does-not-hold-the-clock", test_stepped_endless);
    g_test_add_func("/timer/stepped/other-loops-run-in-step", test_stepped_other_loop);
    int ret = g_test_run();
    g_string_free(trace, TRUE);
    return ret;
}
