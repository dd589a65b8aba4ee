/*
 * Packets a second over sockets, emulators compared in turns:
 *
 *   bench-netdev [-m MILLISECONDS] [-r RUNS] [-s FIRST-SCENARIO] EMULATOR [EMULATOR…]
 *
 * One thread drives the guest's rings and is the other end of the netdev's socket: a UNIX datagram
 * socket (dgram) or a stream socket (stream).  `plain` is sendmmsg() and recvmmsg() between two
 * such sockets: what the kernel alone gives.  Prints medians with their intervals, the CPU time the
 * emulator needed for a frame, and the first emulator's ratio to the others.  A run in which frames
 * are lost is said and made again.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest/bench-stats.h"
#include "guest/emulator.h"
#include "guest/net-driver.h"

#define BATCH   64
#define ROOM    2048
#define WARM_US 50000

static int run_ms = 300, runs = 7;
static char *folder;

typedef struct End {
    const char *netdev; /* as -netdev takes it; %s: the folder */
    bool is_stream, is_rx;
    unsigned size;
} End;

typedef struct Bench {
    const End *end;
    int fd;
    Emulator *emulator;
    GuestPciBus bus;
    GuestPciDevice *pci;
    NetDriver *driver;
    uint8_t frame[4 + ROOM]; /* with the stream's length in front */
    uint64_t arrived, partial;
} Bench;

static void fail(const char *what, GError *err)
{
    fprintf(stderr, "bench-netdev: %s: %s\n", what, err ? err->message : g_strerror(errno));
    exit(1);
}

static struct sockaddr_un address(const char *name)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    snprintf(un.sun_path, sizeof(un.sun_path), "%s/%s", folder, name);
    return un;
}

/* Our end: a datagram socket bound to "b", or a listening one at "s". */
static int open_end(const End *end)
{
    struct sockaddr_un un = address(end->is_stream ? "s" : "b");
    int fd = socket(AF_UNIX, (end->is_stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
    unlink(un.sun_path);
    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || (end->is_stream && listen(fd, 1) < 0)) {
        fail("our socket", NULL);
    }
    return fd;
}

static void connect_end(Bench *b)
{
    struct sockaddr_un un = address("a");
    if (b->end->is_stream) {
        int fd = accept4(b->fd, NULL, NULL, SOCK_CLOEXEC);
        close(b->fd);
        b->fd = fd;
    } else if (connect(b->fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
        fail("the emulator's socket", NULL);
    }
    fcntl(b->fd, F_SETFL, O_NONBLOCK);
}

static void start(Bench *b, const char *command)
{
    GError *err = NULL;
    bool is_swnic = emulator_command_is_swnic(command, NULL);
    g_autofree char *netdev = g_strdup_printf(b->end->netdev, folder, folder);
    const char *args[] = {
        "-nodefaults", "-netdev", netdev, "-device", "virtio-net-pci,romfile=,netdev=n0", NULL};
    EmulatorOptions options = {
        .command = command,
        .arguments = args,
        .ram_size = 64u << 20,
        .accel = is_swnic ? NULL : "tcg",
        .halt_bios = !is_swnic,
    };
    NetDriverConfig config = {.features = NET_DRIVER_PLAIN_FEATURES};
    b->fd = open_end(b->end);
    b->emulator = emulator_start(&options, &err);
    if (!b->emulator) {
        fail(command, err);
    }
    connect_end(b);
    guest_pci_bus_init(&b->bus, b->emulator->qtest);
    b->pci = guest_pci_device_find(&b->bus, guest_pci_match_virtio_net, NULL, 0, &err);
    b->driver = b->pci ? net_driver_new(b->pci, b->emulator->ram, &config, &err) : NULL;
    if (!b->driver) {
        fail(command, err);
    }
    uint32_t be = GUINT32_TO_BE(b->end->size);
    memcpy(b->frame, &be, sizeof(be));
    memset(b->frame + 4, 0xff, 6);
    memcpy(b->frame + 10, net_driver_mac(b->driver), 6);
    memcpy(b->frame + 16, "\x88\xb5", 2);
}

static void stop(Bench *b)
{
    net_driver_free(b->driver);
    g_free(b->pci);
    emulator_kill(b->emulator);
    close(b->fd);
}

/* ---- our end ---- */

static uint64_t read_some(int fd, bool is_stream, unsigned size, uint64_t *partial)
{
    static uint8_t data[BATCH][ROOM];
    if (is_stream) {
        ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT);
        *partial += n > 0 ? n : 0;
        uint64_t frames = *partial / (size + 4);
        *partial %= size + 4;
        return frames;
    }
    struct mmsghdr msgs[BATCH];
    struct iovec iov[BATCH];
    for (unsigned i = 0; i < BATCH; i++) {
        iov[i] = (struct iovec){data[i], ROOM};
        msgs[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
    }
    int n = recvmmsg(fd, msgs, BATCH, MSG_DONTWAIT, NULL);
    return n > 0 ? n : 0;
}

/* How many whole frames went out; the rest of one that went in part follows at once. */
static unsigned write_some(int fd, bool is_stream, uint8_t *frame, unsigned size)
{
    if (is_stream) {
        static uint8_t many[BATCH * (ROOM + 4)];
        for (unsigned i = 0; i < BATCH; i++) {
            memcpy(many + i * (size + 4), frame, size + 4);
        }
        ssize_t n = send(fd, many, BATCH * (size + 4), MSG_DONTWAIT | MSG_NOSIGNAL);
        size_t done = n > 0 ? n : 0;
        while (done % (size + 4)) {
            n = send(fd, many + done, size + 4 - done % (size + 4), MSG_NOSIGNAL | MSG_DONTWAIT);
            done += n > 0 ? n : 0;
        }
        return done / (size + 4);
    }
    struct mmsghdr msgs[BATCH];
    struct iovec iov = {frame + 4, size};
    for (unsigned i = 0; i < BATCH; i++) {
        msgs[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
    }
    int n = sendmmsg(fd, msgs, BATCH, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n > 0 ? n : 0;
}

/* ---- loads: how many frames arrived; 0: not all that were sent ---- */

static void ignore(void *opaque, const NetDriverFrame *frame)
{
    if (frame->size == ((Bench *)opaque)->end->size) {
        ((Bench *)opaque)->arrived++;
    }
}

static uint64_t load_tx(Bench *b, int64_t us)
{
    struct iovec iov = {b->frame + 4, b->end->size};
    int64_t end = g_get_monotonic_time() + us, late = end + 2 * G_USEC_PER_SEC, now;
    uint64_t sent = 0, got = 0;
    while ((now = g_get_monotonic_time()) < end || (got < sent && now < late)) {
        unsigned n = 0;
        while (now < end && n < BATCH && net_driver_send(b->driver, NULL, &iov, 1)) {
            n++;
        }
        net_driver_flush(b->driver);
        sent += n;
        uint64_t more = read_some(b->fd, b->end->is_stream, b->end->size, &b->partial);
        got += more;
        if (n == 0 && more == 0) {
            net_driver_tx_in_flight(b->driver);
            sched_yield();
        }
    }
    return got == sent ? got : 0;
}

static uint64_t load_rx(Bench *b, int64_t us)
{
    int64_t end = g_get_monotonic_time() + us, late = end + 2 * G_USEC_PER_SEC, now;
    uint64_t sent = 0;
    b->arrived = 0;
    while ((now = g_get_monotonic_time()) < end || (b->arrived < sent && now < late)) {
        unsigned n = now < end && sent - b->arrived < 1024
                         ? write_some(b->fd, b->end->is_stream, b->frame, b->end->size)
                         : 0;
        sent += n;
        if (net_driver_receive(b->driver, 256, ignore, b) == 0 && n == 0) {
            sched_yield();
        }
    }
    return b->arrived == sent ? sent : 0;
}

static int64_t cpu_ns(const Bench *b)
{
    struct timespec ts = {0};
    clockid_t clock;
    if (clock_getcpuclockid(b->emulator->pid, &clock) == 0) {
        clock_gettime(clock, &ts);
    }
    return ts.tv_sec * G_GINT64_CONSTANT(1000000000) + ts.tv_nsec;
}

/* Frames a second; *cpu: the emulator's CPU time for one, ns. */
static double measure_once(const End *end, const char *command, double *cpu)
{
    Bench b = {.end = end};
    start(&b, command);
    uint64_t frames = (end->is_rx ? load_rx : load_tx)(&b, WARM_US);
    int64_t begin = g_get_monotonic_time(), begin_cpu = cpu_ns(&b);
    if (frames > 0) {
        frames = (end->is_rx ? load_rx : load_tx)(&b, run_ms * 1000);
    }
    *cpu = frames ? (double)(cpu_ns(&b) - begin_cpu) / (double)frames : 0;
    double seconds = (g_get_monotonic_time() - begin) / 1e6;
    stop(&b);
    return frames / seconds;
}

/* QEMU 7.2's stream stops for ever now and then: such a run is said and made again. */
static double measure(const End *end, const char *command, double *cpu)
{
    double rate = measure_once(end, command, cpu);
    for (unsigned tries = 0; rate == 0; tries++) {
        fprintf(stderr, "bench-netdev: %s: frames were lost or it hung\n", command);
        if (tries == 3) {
            exit(1);
        }
        rate = measure_once(end, command, cpu);
    }
    return rate;
}

/* The same sockets with nothing between them; reader and writer are two threads, as above. */
typedef struct Plain {
    const End *end;
    int fd;
    int stop;
} Plain;

static gpointer plain_reader(gpointer opaque)
{
    Plain *p = opaque;
    uint64_t got = 0, partial = 0;
    while (!g_atomic_int_get(&p->stop)) {
        got += read_some(p->fd, p->end->is_stream, p->end->size, &partial);
    }
    return (gpointer)(uintptr_t)got;
}

static double measure_plain(const End *end)
{
    int fds[2];
    uint8_t frame[4 + ROOM] = {0};
    if (socketpair(AF_UNIX, end->is_stream ? SOCK_STREAM : SOCK_DGRAM, 0, fds) < 0) {
        fail("socketpair", NULL);
    }
    Plain p = {end, fds[1], 0};
    GThread *reader = g_thread_new("reader", plain_reader, &p);
    int64_t begin = g_get_monotonic_time(), until = begin + run_ms * 1000;
    while (g_get_monotonic_time() < until) {
        if (write_some(fds[0], end->is_stream, frame, end->size) == 0) {
            sched_yield();
        }
    }
    g_atomic_int_set(&p.stop, 1);
    uint64_t got = (uintptr_t)g_thread_join(reader);
    double seconds = (g_get_monotonic_time() - begin) / 1e6;
    close(fds[0]);
    close(fds[1]);
    return got / seconds;
}

static void compare(const End *end, char **emulators, unsigned n)
{
    g_autofree double *rates = g_new(double, (n + 1) * runs);
    g_autofree double *cpus = g_new0(double, (n + 1) * runs);
    for (int run = 0; run < runs; run++) {
        for (unsigned i = 0; i < n; i++) {
            rates[i * runs + run] = measure(end, emulators[i], &cpus[i * runs + run]);
        }
        rates[n * runs + run] = measure_plain(end);
    }
    printf("%s-%s %4u bytes:", end->is_stream ? "stream" : "dgram", end->is_rx ? "rx" : "tx",
           end->size);
    double first = bench_interval(rates, runs).median;
    for (unsigned i = 0; i <= n; i++) {
        BenchInterval m = bench_interval(rates + i * runs, runs);
        printf("  %s %.0f [%.0f..%.0f]",
               i == n   ? "plain"
               : i == 0 ? "first"
                        : "other",
               m.median, m.low, m.high);
        if (i < n) {
            printf(" %.0f ns of CPU", bench_interval(cpus + i * runs, runs).median);
        }
        if (i > 0 && i < n) {
            printf(" (first is %.2f times it)", first / m.median);
        }
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
#define DGRAM  "dgram,id=n0,local.type=unix,local.path=%s/a,remote.type=unix,remote.path=%s/b"
#define STREAM "stream,id=n0,addr.type=unix,addr.path=%s/s"
    static const End ends[] = {
        {DGRAM, false, false, 60},   {DGRAM, false, true, 60},   {DGRAM, false, false, 1514},
        {DGRAM, false, true, 1514},  {STREAM, true, false, 60},  {STREAM, true, true, 60},
        {STREAM, true, false, 1514}, {STREAM, true, true, 1514},
    };
    int option;
    unsigned first = 0;
    while ((option = getopt(argc, argv, "m:r:s:")) != -1) {
        if (option == 's') {
            first = atoi(optarg);
            continue;
        }
        if (option == 'm') {
            run_ms = atoi(optarg);
        } else if (option == 'r') {
            runs = atoi(optarg);
        } else {
            return 1;
        }
    }
    if (optind == argc || run_ms < 1 || runs < 1) {
        fprintf(stderr, "usage: bench-netdev [-m MILLISECONDS] [-r RUNS] EMULATOR [EMULATOR…]\n");
        return 1;
    }
    folder = g_dir_make_tmp("bench-netdev-XXXXXX", NULL);
    for (unsigned i = first; i < G_N_ELEMENTS(ends); i++) {
        compare(&ends[i], argv + optind, argc - optind);
    }
    for (const char *const *name = (const char *const[]){"a", "b", "s", NULL}; *name; name++) {
        unlink(address(*name).sun_path);
    }
    rmdir(folder);
    g_free(folder);
    return 0;
}
