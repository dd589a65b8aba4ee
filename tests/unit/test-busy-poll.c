/* How long an event loop looks before it sleeps: what it learns from waits, and that it looks. */
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/event-loop-priv.h"

/* Waits in ns, and the length of the next look after each. */
typedef struct Step {
    int64_t waited, then;
} Step;

static void assert_steps(const EventLoopPoll *set, const Step *steps, unsigned count)
{
    BusyPoll poll = {.set = *set};

    for (unsigned i = 0; i < count; i++) {
        busy_poll_adapt(&poll, steps[i].waited);
        g_assert_cmpint(poll.now_ns, ==, steps[i].then);
    }
}

static void test_grows_and_ends(void)
{
    static const EventLoopPoll set = {.max_ns = 30000};
    static const Step steps[] = {
        {20000, 4000},  {3000, 4000},   {20000, 8000}, {20000, 16000}, {16001, 30000},
        {30000, 30000}, {29000, 30000}, {30001, 0},    {5000000, 0},   {1000, 4000},
    };

    assert_steps(&set, steps, G_N_ELEMENTS(steps));
}

static void test_factors(void)
{
    static const EventLoopPoll set = {.max_ns = 100000, .grow = 5, .shrink = 4};
    static const Step steps[] = {
        {90000, 4000}, {90000, 20000}, {90000, 100000}, {200000, 25000}, {200000, 6250},
    };
    static const EventLoopPoll largest = {.max_ns = 1000, .grow = INT64_MAX, .shrink = INT64_MAX};
    static const Step jumps[] = {{900, 1000}, {1001, 0}};

    assert_steps(&set, steps, G_N_ELEMENTS(steps));
    assert_steps(&largest, jumps, G_N_ELEMENTS(jumps));
}

static void test_off(void)
{
    static const EventLoopPoll set = {.max_ns = 0};
    static const Step steps[] = {{1, 0}, {1000, 0}, {100000, 0}};

    assert_steps(&set, steps, G_N_ELEMENTS(steps));
}

static void test_look(void)
{
    BusyPoll poll = {.now_ns = 1000000};
    struct epoll_event event = {.events = EPOLLIN};
    int epoll_fd = epoll_create1(0), fds[2];

    g_assert_no_errno(pipe(fds));
    g_assert_no_errno(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[0], &event));
    int64_t begin = clock_get_ns(CLOCK_HOST);
    g_assert_false(busy_poll_wait(&poll, epoll_fd, INT64_MAX));
    g_assert_cmpint(clock_get_ns(CLOCK_HOST) - begin, >=, 1000000);
    g_assert_false(busy_poll_wait(&poll, epoll_fd, begin)); /* a timer is due */
    g_assert_cmpint(write(fds[1], "x", 1), ==, 1);
    g_assert_true(busy_poll_wait(&poll, epoll_fd, INT64_MAX));
    /* The event is still there for whoever dispatches it. */
    g_assert_cmpint(epoll_wait(epoll_fd, &event, 1, 0), ==, 1);
    close(fds[0]);
    close(fds[1]);
    close(epoll_fd);
}

/* An event found by looking is dispatched like any other, and the loop wakes from sleep as before.
 */
static void count_and_read(void *opaque)
{
    int *state = opaque; /* fd, count */
    char byte;

    g_assert_cmpint(read(state[0], &byte, 1), ==, 1);
    state[1]++;
}

static gpointer write_bytes(gpointer opaque)
{
    for (unsigned i = 0; i < 2000; i++) {
        g_assert_cmpint(write(GPOINTER_TO_INT(opaque), "x", 1), ==, 1);
        if (i % 100 == 0) {
            g_usleep(200); /* longer than any look */
        } else {
            g_thread_yield();
        }
    }
    return NULL;
}

static void test_loop(void)
{
    EventLoop *loop = event_loop_main();
    int fds[2], state[2] = {0};

    g_assert_no_errno(pipe(fds));
    state[0] = fds[0];
    event_loop_set_fd_handler(loop, fds[0], count_and_read, NULL, state);
    GThread *writer = g_thread_new("writer", write_bytes, GINT_TO_POINTER(fds[1]));
    while (state[1] < 2000) {
        event_loop_run_once(loop, true);
    }
    g_thread_join(writer);
    event_loop_set_fd_handler(loop, fds[0], NULL, NULL, NULL);
    close(fds[0]);
    close(fds[1]);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/busy-poll/grows-and-ends", test_grows_and_ends);
    g_test_add_func("/busy-poll/factors", test_factors);
    g_test_add_func("/busy-poll/off", test_off);
    g_test_add_func("/busy-poll/look", test_look);
    g_test_add_func("/busy-poll/loop", test_loop);
    return g_test_run();
}
