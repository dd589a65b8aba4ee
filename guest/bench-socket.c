/*
 * Scenarios over UNIX sockets: -netdev dgram and stream against sendmmsg(2) and its like alone.
 *
 * One thread drives the guest's rings and is the other end of the netdev's socket, as over a tap:
 * with the emulator that makes two busy threads.  For the yardstick a thread is in the emulator's
 * place, which waits in poll(2) and moves up to BENCH_BATCH frames with a system call.
 *
 * Datagram sockets have paths, as users give them, in a directory that lives as long as the
 * measurement; a stream socket is one of a pair.  A UNIX socket loses nothing, and its kernel queue
 * is short (net.unix.max_dgram_qlen datagrams): a frame that is missing is an error.
 */
#include "guest/bench.h"
#include "guest/guard.h"
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LENGTH_SIZE 4    /* in front of a frame on a stream, big-endian */
#define ROOM        2048 /* bytes for a frame */
#define WINDOW      1024 /* frames on their way to the guest */
#define POLL_MS     20

/* One end of a socket that frames of one size go over. */
typedef struct SocketEnd {
    int fd; /* non-blocking */
    bool is_stream;
    size_t size;              /* of a frame with what the socket wants in front */
    uint8_t *out;             /* BENCH_BATCH times the frame */
    size_t out_done, in_done; /* stream: bytes of a frame that went out or came in in part */
    uint8_t *in;              /* BENCH_BATCH times ROOM */
} SocketEnd;

typedef struct SocketBench {
    BenchGuest guest;
    SocketEnd end;
    BenchFrame frame;
    uint64_t sent, arrived; /* since the start: by whoever sends, at whoever receives */
} SocketBench;

static bool fail(GError **errp, const char *what)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", what, g_strerror(errno));
    return false;
}

/* --- an end --- */

static void end_init(SocketEnd *end, const BenchScenario *scenario, const BenchFrame *frame)
{
    uint32_t length = GUINT32_TO_BE((uint32_t)frame->size);
    size_t skip = scenario->is_stream ? LENGTH_SIZE : 0;
    end->is_stream = scenario->is_stream;
    end->size = skip + frame->size;
    end->out = g_malloc(BENCH_BATCH * end->size);
    end->in = g_malloc(BENCH_BATCH * ROOM);
    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        memcpy(end->out + i * end->size, &length, skip);
        memcpy(end->out + i * end->size + skip, frame->bytes, frame->size);
    }
}

static void end_clear(SocketEnd *end)
{
    if (end->fd >= 0) {
        close(end->fd);
    }
    g_free(end->out);
    g_free(end->in);
}

/* As many messages as one call moves, all of them in @bytes, @stride apart. */
static int move_datagrams(const SocketEnd *end, uint8_t *bytes, size_t stride, bool out)
{
    struct mmsghdr messages[BENCH_BATCH];
    struct iovec iov[BENCH_BATCH];
    for (unsigned i = 0; i < BENCH_BATCH; i++) {
        iov[i] = (struct iovec){bytes + i * stride, stride};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
    }
    return out ? sendmmsg(end->fd, messages, BENCH_BATCH, MSG_NOSIGNAL)
               : recvmmsg(end->fd, messages, BENCH_BATCH, 0, NULL);
}

/* How many whole frames came in with one call. */
static unsigned end_read(SocketEnd *end)
{
    if (!end->is_stream) {
        int n = move_datagrams(end, end->in, ROOM, false);
        return n > 0 ? (unsigned)n : 0;
    }
    ssize_t n = recv(end->fd, end->in, BENCH_BATCH * ROOM, 0);
    end->in_done += n > 0 ? (size_t)n : 0;
    unsigned frames = (unsigned)(end->in_done / end->size);
    end->in_done %= end->size;
    return frames;
}

/* How many whole frames went out with one call. */
static unsigned end_write(SocketEnd *end)
{
    if (!end->is_stream) {
        int n = move_datagrams(end, end->out, end->size, true);
        return n > 0 ? (unsigned)n : 0;
    }
    ssize_t n = send(end->fd, end->out + end->out_done, BENCH_BATCH * end->size - end->out_done,
                     MSG_NOSIGNAL);
    end->out_done += n > 0 ? (size_t)n : 0;
    unsigned frames = (unsigned)(end->out_done / end->size);
    end->out_done %= end->size;
    return frames;
}

/* --- the paths of datagram sockets --- */

/* "a" is the emulator's, "b" ours; empty: there is no directory. */
static char directory[64];

static void remove_directory(void)
{
    if (directory[0]) {
        g_autofree char *a = g_build_filename(directory, "a", NULL);
        g_autofree char *b = g_build_filename(directory, "b", NULL);
        unlink(a);
        unlink(b);
        rmdir(directory);
        directory[0] = '\0';
    }
}

static bool make_directory(GError **errp)
{
    g_autofree char *path = g_dir_make_tmp("swnic-bench-XXXXXX", errp);
    if (path && strlen(path) >= sizeof(directory)) {
        rmdir(path);
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "'%s': the path is too long, set TMPDIR to a shorter directory", path);
        return false;
    }
    if (path) {
        strcpy(directory, path);
        guest_guard_on_end(remove_directory);
    }
    return path != NULL;
}

static struct sockaddr_un path_address(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", directory, name);
    return address;
}

/* --- with an emulator --- */

static bool start_datagram(SocketBench *bench, const BenchOptions *options, const char *command,
                           GError **errp)
{
    if (!make_directory(errp)) {
        return false;
    }
    struct sockaddr_un own = path_address("b"), other = path_address("a");
    g_autofree char *netdev =
        g_strdup_printf("dgram,id=n0,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s",
                        other.sun_path, own.sun_path);
    bench->end.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bench->end.fd < 0 || bind(bench->end.fd, (struct sockaddr *)&own, sizeof(own)) < 0) {
        return fail(errp, "our datagram socket");
    }
    return bench_guest_start_emulator(&bench->guest, options, command, netdev, -1, errp) &&
           (connect(bench->end.fd, (struct sockaddr *)&other, sizeof(other)) == 0 ||
            fail(errp, "the emulator's datagram socket"));
}

static bool start_stream(SocketBench *bench, const BenchOptions *options, const char *command,
                         GError **errp)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
        return fail(errp, "socket pair");
    }
    bench->end.fd = fds[0];
    g_autofree char *netdev =
        g_strdup_printf("stream,id=n0,server=off,addr.type=fd,addr.str=%d", fds[1]);
    bool ok = bench_guest_start_emulator(&bench->guest, options, command, netdev, fds[1], errp);
    close(fds[1]);
    return ok;
}

static bool start(SocketBench *bench, const BenchOptions *options, const BenchScenario *scenario,
                  unsigned size, const char *command, GError **errp)
{
    NetDriverConfig config = {.features = NET_DRIVER_PLAIN_FEATURES};
    bool ok =
        (scenario->is_stream ? start_stream : start_datagram)(bench, options, command, errp) &&
        bench_guest_start_driver(&bench->guest, &config, errp);
    if (ok) {
        bench_frame_init(&bench->frame, size, net_driver_mac(bench->guest.driver));
        end_init(&bench->end, scenario, &bench->frame);
    }
    return ok;
}

static unsigned send_batch(SocketBench *bench)
{
    struct iovec iov = {bench->frame.bytes, bench->frame.size};
    unsigned n = 0;
    while (n < BENCH_BATCH && net_driver_send(bench->guest.driver, NULL, &iov, 1)) {
        n++;
    }
    net_driver_flush(bench->guest.driver);
    return n;
}

/* BenchLoad */
static bool load_tx(void *opaque, gint64 us, GError **errp)
{
    SocketBench *bench = opaque;
    gint64 now = g_get_monotonic_time(), end = now + us;
    while (now < end || (bench->arrived < bench->sent && now < end + BENCH_DRAIN)) {
        unsigned sent = now < end ? send_batch(bench) : 0;
        unsigned arrived = end_read(&bench->end);
        bench->sent += sent;
        bench->arrived += arrived;
        if (sent + arrived == 0) {
            sched_yield(); /* the device has the floor */
        }
        now = g_get_monotonic_time();
    }
    net_driver_tx_in_flight(bench->guest.driver); /* takes back what has been sent */
    return bench->arrived == bench->sent || bench_lost(errp, bench->sent, bench->arrived);
}

static void count_frame(void *opaque, const NetDriverFrame *frame)
{
    SocketBench *bench = opaque;
    bench->arrived += frame->size == bench->frame.size;
}

/* BenchLoad */
static bool load_rx(void *opaque, gint64 us, GError **errp)
{
    SocketBench *bench = opaque;
    gint64 now = g_get_monotonic_time(), end = now + us;
    /* A frame that went out in part must be finished, also when the time is over. */
    while (now < end ||
           ((bench->arrived < bench->sent || bench->end.out_done) && now < end + BENCH_DRAIN)) {
        bool writes = now < end ? bench->sent - bench->arrived < WINDOW : bench->end.out_done > 0;
        unsigned sent = writes ? end_write(&bench->end) : 0;
        bench->sent += sent;
        if (net_driver_receive(bench->guest.driver, BENCH_BATCH, count_frame, bench) + sent == 0) {
            sched_yield();
        }
        now = g_get_monotonic_time();
    }
    return bench->arrived == bench->sent || bench_lost(errp, bench->sent, bench->arrived);
}

bool bench_socket_run(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                      const char *command, BenchSample *sample, GError **errp)
{
    SocketBench bench = {.end = {.fd = -1}};
    BenchLoad *load = scenario->receives ? load_rx : load_tx;
    bool ok = start(&bench, options, scenario, size, command, errp) &&
              bench_guest_measure(&bench.guest, options, load, &bench, sample, errp);
    ok = bench_guest_stop(&bench.guest, ok, errp);
    end_clear(&bench.end);
    bench_frame_clear(&bench.frame);
    remove_directory();
    return ok;
}

/* --- without --- */

typedef struct Yardstick {
    SocketEnd own, other; /* [other]: the thread's */
    bool receives;        /* the thread */
    bool stopping;
    pthread_t thread;
    clockid_t clock;
    uint64_t moved; /* by the thread: frames */
} Yardstick;

/* In the emulator's place. */
static void *yardstick_thread(void *opaque)
{
    Yardstick *y = opaque;
    struct pollfd poll_fd = {.fd = y->other.fd, .events = y->receives ? POLLIN : POLLOUT};
    while (!__atomic_load_n(&y->stopping, __ATOMIC_RELAXED)) {
        unsigned n = y->receives ? end_read(&y->other) : end_write(&y->other);
        __atomic_store_n(&y->moved, y->moved + n, __ATOMIC_RELEASE);
        if (n == 0) {
            poll(&poll_fd, 1, POLL_MS);
        }
    }
    return NULL;
}

static uint64_t moved_by(const Yardstick *y)
{
    return __atomic_load_n(&y->moved, __ATOMIC_ACQUIRE);
}

/* For @us, longer where the thread has had no CPU until then; how many frames it moved. */
static uint64_t yardstick_load(Yardstick *y, gint64 us)
{
    uint64_t before = moved_by(y);
    gint64 now = g_get_monotonic_time(), end = now + us;
    while (now < end || (moved_by(y) == before && now < end + BENCH_DRAIN)) {
        if ((y->receives ? end_write(&y->own) : end_read(&y->own)) == 0) {
            sched_yield();
        }
        now = g_get_monotonic_time();
    }
    return moved_by(y) - before;
}

static bool yardstick_measure(Yardstick *y, const BenchOptions *options, BenchSample *sample,
                              GError **errp)
{
    BenchMeter meter;
    yardstick_load(y, BENCH_WARM_UP);
    bench_meter_start(&meter, y->clock, true);
    uint64_t moved = yardstick_load(y, options->milliseconds * 1000ll);
    if (moved == 0) {
        return bench_lost(errp, 1, 0);
    }
    bench_meter_stop(&meter, moved, sample);
    sample->notifications = NAN;
    return true;
}

static bool yardstick_start(Yardstick *y, GError **errp)
{
    int error = pthread_create(&y->thread, NULL, yardstick_thread, y);
    if (error == 0) {
        error = pthread_getcpuclockid(y->thread, &y->clock);
    }
    errno = error;
    return error == 0 || fail(errp, "thread");
}

bool bench_socket_run_plain(const BenchOptions *options, const BenchScenario *scenario,
                            unsigned size, BenchSample *sample, GError **errp)
{
    static const uint8_t source[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
    Yardstick y = {.receives = scenario->receives};
    BenchFrame frame;
    int fds[2], type = scenario->is_stream ? SOCK_STREAM : SOCK_DGRAM;
    if (socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) {
        return fail(errp, "socket pair");
    }
    bench_frame_init(&frame, size, source);
    y.own.fd = fds[0];
    y.other.fd = fds[1];
    end_init(&y.own, scenario, &frame);
    end_init(&y.other, scenario, &frame);
    bool ok = yardstick_start(&y, errp);
    if (ok) {
        ok = yardstick_measure(&y, options, sample, errp);
        __atomic_store_n(&y.stopping, true, __ATOMIC_RELAXED);
        pthread_join(y.thread, NULL);
    }
    end_clear(&y.own);
    end_clear(&y.other);
    bench_frame_clear(&frame);
    return ok;
}
