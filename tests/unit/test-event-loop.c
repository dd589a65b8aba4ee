/* The event loop: bottom halves, fd handlers, hooks, threads.  Run under ThreadSanitizer too. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/error.h"
#include "util/event-loop.h"
#include "util/event-notifier.h"

static void count(void *opaque)
{
    ++*(int *)opaque;
}

static void run_pending(void)
{
    for (int i = 0; i < 10; i++) {
        event_loop_run_once(event_loop_main(), false);
    }
}

static void test_bh_runs_once(void)
{
    int runs = 0;
    BottomHalf *bh = bh_new(event_loop_main(), count, &runs);

    bh_schedule(bh);
    bh_schedule(bh);
    g_assert_true(bh_pending(bh));
    run_pending();
    g_assert_cmpint(runs, ==, 1);
    g_assert_false(bh_pending(bh));

    bh_schedule(bh);
    bh_cancel(bh);
    run_pending();
    g_assert_cmpint(runs, ==, 1);
    bh_schedule(bh);
    bh_delete(bh);
    run_pending();
    g_assert_cmpint(runs, ==, 1);
}

typedef struct SelfBh {
    BottomHalf *bh;
    int runs;
} SelfBh;

static void bh_reschedule(void *opaque)
{
    SelfBh *self = opaque;

    self->runs++;
    bh_schedule(self->bh);
}

static void bh_delete_self(void *opaque)
{
    SelfBh *self = opaque;

    self->runs++;
    bh_delete(self->bh);
}

static void test_bh_reschedule_waits(void)
{
    SelfBh self = {0};

    self.bh = bh_new(event_loop_main(), bh_reschedule, &self);
    bh_schedule(self.bh);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(self.runs, ==, 1);
    event_loop_run_once(event_loop_main(), false);
    g_assert_cmpint(self.runs, ==, 2);
    bh_delete(self.bh);

    self.runs = 0;
    self.bh = bh_new(event_loop_main(), bh_delete_self, &self);
    bh_schedule(self.bh);
    run_pending();
    g_assert_cmpint(self.runs, ==, 1);
}

typedef struct Watch {
    int fd, other_fd;
    int reads, writes;
    bool remove_self, remove_other;
} Watch;

static void watch_readable(void *opaque)
{
    Watch *w = opaque;

    w->reads++;
    if (w->remove_self) {
        event_loop_set_fd_handler(event_loop_main(), w->fd, NULL, NULL, NULL);
    }
    if (w->remove_other) {
        event_loop_set_fd_handler(event_loop_main(), w->other_fd, NULL, NULL, NULL);
    }
}

static void watch_writable(void *opaque)
{
    ((Watch *)opaque)->writes++;
}

static void test_fd_level_triggered(void)
{
    Watch w = {0};
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), ==, 0);
    w.fd = fds[0];
    event_loop_set_fd_handler(event_loop_main(), fds[0], watch_readable, NULL, &w);
    run_pending();
    g_assert_cmpint(w.reads, ==, 0);
    g_assert_cmpint(write(fds[1], "x", 1), ==, 1);
    event_loop_run_once(event_loop_main(), true);
    event_loop_run_once(event_loop_main(), true);
    g_assert_cmpint(w.reads, ==, 2);

    event_loop_set_fd_handler(event_loop_main(), fds[0], NULL, watch_writable, &w);
    event_loop_run_once(event_loop_main(), true);
    g_assert_cmpint(w.reads, ==, 2);
    g_assert_cmpint(w.writes, ==, 1);

    /* A handler that removes its fd is not called for the other direction. */
    w = (Watch){.fd = fds[0], .remove_self = true};
    event_loop_set_fd_handler(event_loop_main(), fds[0], watch_readable, watch_writable, &w);
    run_pending();
    g_assert_cmpint(w.reads, ==, 1);
    g_assert_cmpint(w.writes, ==, 0);

    /* The end of the other side is readable (read returns 0). */
    w = (Watch){.fd = fds[0], .remove_self = true};
    close(fds[1]);
    event_loop_set_fd_handler(event_loop_main(), fds[0], watch_readable, NULL, &w);
    run_pending();
    g_assert_cmpint(w.reads, ==, 1);
    close(fds[0]);
}

static void test_fd_remove_other(void)
{
    EventNotifier a, b;
    Watch wa = {0}, wb = {0};

    g_assert_true(event_notifier_init(&a, NULL));
    g_assert_true(event_notifier_init(&b, NULL));
    wa = (Watch){.fd = a.fd, .other_fd = b.fd, .remove_self = true, .remove_other = true};
    wb = (Watch){.fd = b.fd, .other_fd = a.fd, .remove_self = true, .remove_other = true};
    event_loop_set_fd_handler(event_loop_main(), a.fd, watch_readable, NULL, &wa);
    event_loop_set_fd_handler(event_loop_main(), b.fd, watch_readable, NULL, &wb);
    event_notifier_set(&a);
    event_notifier_set(&b);
    run_pending();
    g_assert_cmpint(wa.reads + wb.reads, ==, 1);
    event_notifier_cleanup(&a);
    event_notifier_cleanup(&b);
}

static void replace_other(void *opaque)
{
    Watch *w = opaque;

    /* Same number, another file: an event of the old one must not reach the new handler. */
    w->reads++;
    event_loop_set_fd_handler(event_loop_main(), w->fd, NULL, NULL, NULL);
    event_loop_set_fd_handler(event_loop_main(), w->other_fd, NULL, NULL, NULL);
    EventNotifier fresh;
    g_assert_true(event_notifier_init(&fresh, NULL));
    g_assert_cmpint(dup2(fresh.fd, w->other_fd), ==, w->other_fd);
    event_notifier_cleanup(&fresh);
    event_loop_set_fd_handler(event_loop_main(), w->other_fd, count, NULL, &w->writes);
}

static void test_fd_number_reused(void)
{
    EventNotifier a, b;

    g_assert_true(event_notifier_init(&a, NULL));
    g_assert_true(event_notifier_init(&b, NULL));
    Watch wa = {.fd = a.fd, .other_fd = b.fd}, wb = {.fd = b.fd, .other_fd = a.fd};
    event_loop_set_fd_handler(event_loop_main(), a.fd, replace_other, NULL, &wa);
    event_loop_set_fd_handler(event_loop_main(), b.fd, replace_other, NULL, &wb);
    event_notifier_set(&a);
    event_notifier_set(&b);
    run_pending();
    g_assert_cmpint(wa.reads + wb.reads, ==, 1);
    g_assert_cmpint(wa.writes + wb.writes, ==, 0);
    event_loop_set_fd_handler(event_loop_main(), a.fd, NULL, NULL, NULL);
    event_loop_set_fd_handler(event_loop_main(), b.fd, NULL, NULL, NULL);
    event_notifier_cleanup(&a);
    event_notifier_cleanup(&b);
}

static void test_fd_regular_file(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    Watch w = {.fd = fd, .remove_self = true};

    event_loop_set_fd_handler(event_loop_main(), fd, watch_readable, NULL, &w);
    event_loop_run_once(event_loop_main(), true);
    run_pending();
    g_assert_cmpint(w.reads, ==, 1);
    close(fd);
}

typedef struct HookTest {
    EventLoopHook *hook;
    int64_t timeout_ns;
    int prepares, checks;
} HookTest;

static void hook_prepare(void *opaque, int64_t *timeout_ns)
{
    HookTest *t = opaque;

    t->prepares++;
    *timeout_ns = t->timeout_ns;
}

static void hook_check(void *opaque)
{
    HookTest *t = opaque;

    t->checks++;
    event_loop_remove_hook(t->hook);
}

static void test_hook_limits_sleep(void)
{
    HookTest t = {.timeout_ns = 20 * 1000 * 1000};
    int64_t start = clock_get_ns(CLOCK_HOST);

    t.hook = event_loop_add_hook(event_loop_main(), hook_prepare, hook_check, &t);
    while (!t.checks) {
        event_loop_run_once(event_loop_main(), true);
    }
    int64_t slept = clock_get_ns(CLOCK_HOST) - start;
    g_assert_cmpint(slept, <, 2000 * INT64_C(1000000));
    g_assert_cmpint(t.prepares, >, 0);
    run_pending();
    g_assert_cmpint(t.checks, ==, 1);
}

static gboolean gio_source_ran(gpointer opaque)
{
    *(bool *)opaque = true;
    return G_SOURCE_REMOVE;
}

static void test_glib_sources_run(void)
{
    bool ran = false;

    g_timeout_add(5, gio_source_ran, &ran);
    while (!ran) {
        event_loop_run_once(event_loop_main(), true);
    }
}

typedef struct ThreadTest {
    EventLoop *loop;
    BottomHalf *bh;
    atomic_int runs;
    int plain; /* only the loop's thread and run_sync touch it: no lock */
} ThreadTest;

static void thread_bh(void *opaque)
{
    ThreadTest *t = opaque;

    g_assert_true(event_loop_is_current(t->loop));
    g_assert_true(event_loop_current() == t->loop);
    t->plain++;
    atomic_fetch_add(&t->runs, 1);
}

static void read_plain(void *opaque)
{
    ThreadTest *t = opaque;

    g_assert_true(event_loop_is_current(t->loop));
    g_assert_cmpint(t->plain, ==, atomic_load(&t->runs));
}

static void *schedule_from_thread(void *opaque)
{
    ThreadTest *t = opaque;

    for (int i = 0; i < 2000; i++) {
        bh_schedule(t->bh);
        if (i % 64 == 0) {
            bh_cancel(t->bh);
        }
    }
    return NULL;
}

static void test_thread_loop(void)
{
    ThreadTest t = {0};
    pthread_t threads[3];

    t.loop = event_loop_new_thread("io0", NULL);
    g_assert_nonnull(t.loop);
    g_assert_cmpstr(event_loop_name(t.loop), ==, "io0");
    g_assert_cmpint(event_loop_thread_id(t.loop), >, 0);
    g_assert_cmpint(event_loop_thread_id(t.loop), !=, getpid());
    g_assert_false(event_loop_is_current(t.loop));
    t.bh = bh_new(t.loop, thread_bh, &t);
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, schedule_from_thread, &t);
    }
    for (int i = 0; i < 100; i++) {
        event_loop_run_sync(t.loop, read_plain, &t);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    int before = atomic_load(&t.runs);
    bh_schedule(t.bh);
    event_loop_run_sync(t.loop, read_plain, &t);
    g_assert_cmpint(atomic_load(&t.runs), >=, MAX(before, 1));
    bh_delete(t.bh);
    event_loop_free(t.loop);
}

static void *wake_main(void *opaque)
{
    for (int i = 0; i < 500; i++) {
        bh_schedule(opaque);
        g_usleep(i % 50);
    }
    return NULL;
}

/* No wake-up may be lost between "nothing to do" and the sleep: one lost one hangs this. */
static void test_no_lost_wakeup(void)
{
    int runs = 0, last = 0;
    BottomHalf *bh = bh_new(event_loop_main(), count, &runs);
    BottomHalf *end = bh_new(event_loop_main(), count, &last);
    pthread_t thread;

    pthread_create(&thread, NULL, wake_main, bh);
    while (runs < 100) {
        event_loop_run_once(event_loop_main(), true);
    }
    pthread_join(thread, NULL);
    bh_schedule(end);
    while (!last) {
        event_loop_run_once(event_loop_main(), true);
    }
    bh_delete(bh);
    bh_delete(end);
}

static void test_oneshot_and_free(void)
{
    int runs = 0;
    EventLoop *loop = event_loop_new_thread("a-name-longer-than-the-kernel-takes", NULL);

    for (int i = 0; i < 10; i++) {
        event_loop_oneshot(loop, count, &runs);
    }
    event_loop_free(loop);
    g_assert_cmpint(runs, ==, 10);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/event-loop/bh/scheduled-twice-runs-once", test_bh_runs_once);
    g_test_add_func("/event-loop/bh/rescheduled-waits-for-next-iteration",
                    test_bh_reschedule_waits);
    g_test_add_func("/event-loop/fd/level-triggered", test_fd_level_triggered);
    g_test_add_func("/event-loop/fd/handler-removes-another-ready-one", test_fd_remove_other);
    g_test_add_func("/event-loop/fd/reused-number-gets-no-old-event", test_fd_number_reused);
    g_test_add_func("/event-loop/fd/file-without-poll-is-always-ready", test_fd_regular_file);
    g_test_add_func("/event-loop/hook/limits-the-sleep", test_hook_limits_sleep);
    g_test_add_func("/event-loop/glib-sources-run", test_glib_sources_run);
    g_test_add_func("/event-loop/thread/bottom-halves-from-many-threads", test_thread_loop);
    g_test_add_func("/event-loop/thread/no-lost-wakeup", test_no_lost_wakeup);
    g_test_add_func("/event-loop/thread/oneshots-run-before-the-end", test_oneshot_and_free);
    return g_test_run();
}
