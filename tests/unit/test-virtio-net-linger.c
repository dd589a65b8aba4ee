/*
 * The moment that a transmit flush waits for more frames before it lets the driver notify again
 * (tx_linger() in virtio-net-tx.c): how long, after how many frames, what comes of frames that are
 * published meanwhile, and how seldom it is tried where it is in vain.
 *
 * The wait reads the host's clock.  The linker puts the test's own in its place: each reading takes
 * a while, and a driver may publish frames at a reading of the test's choice.
 */
#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"

#define READING_NS 1000
#define LINGER_NS  5000                         /* what the device waits at most */
#define MANY       16                           /* frames after which it waits */
#define READINGS   (1 + LINGER_NS / READING_NS) /* of one wait in vain */
#define SIZE       60

int64_t __real_clock_get_ns(ClockType clock);
int64_t __wrap_clock_get_ns(ClockType clock);

static int64_t host_ns;
static unsigned readings;
static unsigned publish_at; /* the reading at which frames are published; 0: none */
static unsigned publish_frames;
static Rig *driver;

static uint64_t published;

static void publish(Rig *rig, unsigned frames)
{
    published += frames;
    for (unsigned i = 0; i < frames; i++) {
        rig_send(rig, RIG_DATA + i * 0x100, SIZE, (uint8_t)i);
    }
}

/* The event loop reads the clock too, but not when all is sent and notifications are still off. */
static bool is_waiting(void)
{
    return driver->n->queues[0].tx_stats.packets == published && !rig_wants_notify(driver, RIG_TX);
}

int64_t __wrap_clock_get_ns(ClockType clock)
{
    if (clock != CLOCK_HOST || !driver || !is_waiting()) {
        return __real_clock_get_ns(clock);
    }
    if (++readings == publish_at) {
        publish(driver, publish_frames);
    }
    host_ns += READING_NS;
    return host_ns;
}

static void start(Rig *rig)
{
    rig_init(rig);
    rig_start(rig, NULL, RIG_MODERN, 256);
    driver = rig;
    readings = publish_at = 0;
    published = 0;
}

static void finish(Rig *rig)
{
    driver = NULL;
    rig_cleanup(rig);
}

/* One notification for @frames frames; how often the clock was read for it. */
static unsigned burst(Rig *rig, unsigned frames)
{
    unsigned before = readings;

    publish(rig, frames);
    rig_notify(rig, RIG_TX);
    rig_loop();
    g_assert_true(rig_wants_notify(rig, RIG_TX));
    rig_count_used(rig, RIG_TX);
    rig_forget_frames(rig);
    return readings - before;
}

static void test_few_frames(void)
{
    Rig rig;

    start(&rig);
    g_assert_cmpuint(burst(&rig, MANY - 1), ==, 0);
    finish(&rig);
}

static void test_in_vain(void)
{
    Rig rig;

    start(&rig);
    publish(&rig, MANY);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpuint(readings, ==, READINGS);
    g_assert_true(rig_wants_notify(&rig, RIG_TX));
    g_assert_cmpuint(rig_count_used(&rig, RIG_TX), ==, MANY);
    g_assert_cmpuint(rig.interrupts[RIG_TX], ==, 1); /* of before the wait */
    finish(&rig);
}

/* What comes during the wait leaves without a notification; what comes later needs one. */
static void test_more_comes(void)
{
    for (unsigned at = 1; at <= READINGS; at++) {
        bool in_time = at < READINGS;
        Rig rig;

        start(&rig);
        publish_at = at;
        publish_frames = 3;
        publish(&rig, MANY);
        rig_notify(&rig, RIG_TX);
        rig_loop();
        g_test_message("published at reading %u", at);
        g_assert_cmpuint(rig.count, ==, MANY + 3);
        g_assert_cmpuint(rig_count_used(&rig, RIG_TX), ==, MANY + 3);
        g_assert_cmpuint(rig.n->queues[0].tx_stats.notifications, ==, 1);
        g_assert_cmpuint(rig.batches, ==, 2);
        g_assert_cmpuint(rig.n->queues[0].tx_linger.backoff, ==, in_time ? 0 : 1);
        for (unsigned i = 0; i < 3; i++) {
            rig_assert_filled(rig.frames[MANY + i].bytes, SIZE, (uint8_t)i);
        }
        /* The three alone are too few to wait for others. */
        g_assert_true(!in_time || readings == at);
        finish(&rig);
    }
}

/* In vain: the next time is left out, then the next three, seven, … 63. */
static void test_backoff(void)
{
    Rig rig;

    start(&rig);
    for (unsigned left_out = 0; left_out < 63;) {
        g_assert_cmpuint(burst(&rig, MANY), ==, READINGS);
        left_out = 2 * left_out + 1;
        for (unsigned i = 0; i < left_out; i++) {
            g_assert_cmpuint(burst(&rig, MANY), ==, 0);
        }
    }
    g_assert_cmpuint(burst(&rig, MANY), ==, READINGS);
    for (unsigned i = 0; i < 63; i++) { /* no more than that */
        g_assert_cmpuint(burst(&rig, MANY), ==, 0);
    }
    publish_at = readings + 2; /* a success ends it */
    publish_frames = 1;
    g_assert_cmpuint(burst(&rig, MANY), ==, 2);
    g_assert_cmpuint(burst(&rig, MANY), ==, READINGS);
    g_assert_cmpuint(burst(&rig, MANY), ==, 0);
    g_assert_cmpuint(burst(&rig, MANY), ==, READINGS);
    finish(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_func("/linger/few-frames-do-not-wait", test_few_frames);
    g_test_add_func("/linger/ends-after-5-us", test_in_vain);
    g_test_add_func("/linger/more-comes-without-notification", test_more_comes);
    g_test_add_func("/linger/in-vain-is-tried-ever-less", test_backoff);
    return g_test_run();
}
