/* See traffic.h. */
#include "tests/lib/traffic.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/lib/rig.h"

#define MAX_FRAME 1514
#define WINDOW    64 /* frames on their way in one direction */

static bool stopping(Traffic *t)
{
    return __atomic_load_n(&t->stop, __ATOMIC_RELAXED);
}

static uint32_t load(const uint32_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void count(uint32_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELEASE);
}

static int64_t now_ns(void)
{
    return g_get_monotonic_time() * 1000;
}

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){0, 50000}, NULL);
}

static size_t frame_make(uint8_t frame[MAX_FRAME], uint32_t number)
{
    size_t size = 60 + number * 131 % (MAX_FRAME - 60 + 1);

    frame_fill(frame, size, number);
    return size;
}

static void *drive_out(void *opaque)
{
    Traffic *t = opaque;
    uint8_t frame[MAX_FRAME];

    while (!stopping(t)) {
        const struct iovec iov = {frame, frame_make(frame, t->sent)};

        if (t->sent - load(&t->left) < WINDOW && net_driver_send(t->driver, NULL, &iov, 1)) {
            net_driver_flush(t->driver);
            count(&t->sent);
        } else {
            pause_a_little();
        }
    }
    return NULL;
}

static void frame_arrived(void *opaque, const NetDriverFrame *got)
{
    Traffic *t = opaque;
    uint8_t frame[MAX_FRAME], data[MAX_FRAME];
    size_t size = frame_make(frame, t->arrived), done = 0;

    for (unsigned i = 0; i < got->iovcnt && done + got->iov[i].iov_len <= sizeof(data); i++) {
        memcpy(data + done, got->iov[i].iov_base, got->iov[i].iov_len);
        done += got->iov[i].iov_len;
    }
    g_assert_cmpmem(data, done, frame, size);
    count(&t->arrived);
}

static void *drive_in(void *opaque)
{
    Traffic *t = opaque;

    while (!stopping(t)) {
        if (net_driver_wait(t->driver, 20000)) {
            while (net_driver_receive(t->driver, 64, frame_arrived, t)) {
            }
        }
    }
    return NULL;
}

static void *wire_out(void *opaque)
{
    Traffic *t = opaque;
    uint8_t frame[MAX_FRAME], got[MAX_FRAME];

    while (!stopping(t)) {
        struct pollfd pfd = {.fd = t->wire, .events = POLLIN};

        if (poll(&pfd, 1, 20) <= 0) {
            continue;
        }
        ssize_t n = recv(t->wire, got, sizeof(got), 0);

        if (n > 12 && got[12] == 0x80 && got[13] == 0x35) {
            continue; /* RARP: the device tells where it is now */
        }
        g_assert_cmpmem(got, MAX(n, 0), frame, frame_make(frame, t->left));
        t->gap_ns = t->left ? MAX(t->gap_ns, now_ns() - t->last_ns) : 0;
        t->last_ns = now_ns();
        count(&t->left);
    }
    return NULL;
}

static void *wire_in(void *opaque)
{
    Traffic *t = opaque;
    uint8_t frame[MAX_FRAME];

    while (!stopping(t)) {
        size_t size = frame_make(frame, t->fed);
        struct pollfd pfd = {.fd = t->wire, .events = POLLOUT};

        if (t->fed - load(&t->arrived) >= WINDOW) {
            pause_a_little();
        } else if (send(t->wire, frame, size, MSG_DONTWAIT) == (ssize_t)size) {
            count(&t->fed);
        } else {
            poll(&pfd, 1, 5);
        }
    }
    return NULL;
}

void traffic_start(Traffic *t, NetDriver *driver, int wire)
{
    void *(*const functions[])(void *) = {drive_out, drive_in, wire_out, wire_in};

    *t = (Traffic){.driver = driver, .wire = wire};
    for (unsigned i = 0; i < G_N_ELEMENTS(functions); i++) {
        g_assert_cmpint(pthread_create(&t->threads[i], NULL, functions[i], t), ==, 0);
    }
}

void traffic_wait(Traffic *t, uint32_t frames)
{
    uint32_t left = load(&t->left) + frames, arrived = load(&t->arrived) + frames;
    gint64 deadline = g_get_monotonic_time() + 3 * RIG_TIMEOUT_MS * 1000ll;

    while ((int32_t)(load(&t->left) - left) < 0 || (int32_t)(load(&t->arrived) - arrived) < 0) {
        GError *err = NULL;

        net_driver_check(t->driver, &err);
        if (err) {
            g_error("driver: %s", err->message);
        }
        if (g_get_monotonic_time() > deadline) {
            g_error("traffic stands still: %u of %u left, %u of %u arrived", load(&t->left),
                    load(&t->sent), load(&t->arrived), load(&t->fed));
        }
        g_usleep(1000);
    }
}

void traffic_stop(Traffic *t)
{
    __atomic_store_n(&t->stop, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < G_N_ELEMENTS(t->threads); i++) {
        pthread_join(t->threads[i], NULL);
    }
}
