/*
 * The scenario over -netdev user: a server on the loopback interface sends, the guest receives.
 *
 *   server thread → TCP → emulator with libslirp → rings → lwIP
 *
 * lwIP takes the bytes in the thread that drives the rings, and gives each back to the window at
 * once: no other thread of the guest is in their way.  Its window is 64 Kbytes, as the library was
 * built.
 *
 * lwIP starts once in a process, so a measurement is another process of this program, with the
 * hidden option --one-download; it prints what it found.
 */
#include "guest/bench.h"
#include "guest/lwip-netif.h"
#include <arpa/inet.h>
#include <errno.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <lwip/tcp.h>
#include <lwip/tcpip.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE    (256 * 1024)
#define FIRST_US (10 * G_USEC_PER_SEC) /* until something comes, at most */
#define STEP_US  1000
#define GATEWAY  0x0A000202u /* 10.0.2.2, which stands for 127.0.0.1 */
#define OWN      0x0A00020Fu
#define OWN_MASK 0xFFFFFF00u

typedef struct Download {
    BenchGuest guest;
    bool stack_runs;
    int listen_fd, fd; /* the server's */
    uint16_t port;
    bool serves;
    pthread_t server;
    struct tcp_pcb *pcb;
    uint64_t received; /* bytes, by lwIP's callback */
} Download;

static bool fail(GError **errp, const char *what, const char *why)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", what, why);
    return false;
}

/* --- the server --- */

/* Sends zeros until the connection ends. */
static void *server_thread(void *opaque)
{
    Download *d = opaque;
    g_autofree uint8_t *piece = g_malloc0(PIECE);
    int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    while (fd >= 0 && send(fd, piece, PIECE, MSG_NOSIGNAL) > 0) {
    }
    if (fd >= 0) {
        close(fd);
    }
    return NULL;
}

static bool start_server(Download *d, GError **errp)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    d->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (d->listen_fd < 0 || bind(d->listen_fd, (struct sockaddr *)&address, size) < 0 ||
        listen(d->listen_fd, 1) < 0 ||
        getsockname(d->listen_fd, (struct sockaddr *)&address, &size) < 0) {
        return fail(errp, "the server's socket", g_strerror(errno));
    }
    d->port = ntohs(address.sin_port);
    int error = pthread_create(&d->server, NULL, server_thread, d);
    d->serves = error == 0;
    return error == 0 || fail(errp, "thread", g_strerror(error));
}

/* After the emulator: its end of the connection is closed then. */
static void stop_server(Download *d)
{
    if (d->serves) {
        shutdown(d->listen_fd, SHUT_RDWR); /* ends an accept() too */
        pthread_join(d->server, NULL);
    }
    if (d->listen_fd >= 0) {
        close(d->listen_fd);
    }
}

/* --- the guest --- */

/* tcp_recv_fn */
static err_t take_bytes(void *opaque, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    Download *d = opaque;
    if (!p) {
        return ERR_OK; /* the server has closed: no more bytes come, which the measurement sees */
    }
    __atomic_store_n(&d->received, d->received + p->tot_len, __ATOMIC_RELAXED);
    tcp_recved(pcb, p->tot_len);
    pbuf_free(p);
    return ERR_OK;
}

/* tcp_err_fn: the connection is no more. */
static void connection_failed(void *opaque, err_t err)
{
    ((Download *)opaque)->pcb = NULL;
}

static bool start_download(Download *d, GError **errp)
{
    ip_addr_t gateway = IPADDR4_INIT(lwip_htonl(GATEWAY));
    LOCK_TCPIP_CORE();
    d->pcb = tcp_new();
    err_t err = d->pcb ? ERR_OK : ERR_MEM;
    if (d->pcb) {
        tcp_arg(d->pcb, d);
        tcp_recv(d->pcb, take_bytes);
        tcp_err(d->pcb, connection_failed);
        err = tcp_connect(d->pcb, &gateway, d->port, NULL);
    }
    UNLOCK_TCPIP_CORE();
    return err == ERR_OK || fail(errp, "connect", guest_netif_strerror(err));
}

static void stop_download(Download *d)
{
    if (d->stack_runs) {
        LOCK_TCPIP_CORE();
        if (d->pcb) {
            tcp_err(d->pcb, NULL);
            tcp_abort(d->pcb);
        }
        UNLOCK_TCPIP_CORE();
        guest_netif_stop();
    }
}

static bool start(Download *d, const BenchOptions *options, GError **errp)
{
    GuestDhcpLease lease = {.address = OWN, .netmask = OWN_MASK, .router = GATEWAY};
    NetDriverConfig config = {.features = NET_DRIVER_PLAIN_FEATURES};
    if (!start_server(d, errp) ||
        !bench_guest_start_emulator(&d->guest, options, options->emulators[0], "user,id=n0", -1,
                                    errp) ||
        !bench_guest_start_driver(&d->guest, &config, errp)) {
        return false;
    }
    d->stack_runs = guest_netif_start(d->guest.driver, &lease, errp);
    return d->stack_runs && start_download(d, errp);
}

static uint64_t received_by(const Download *d)
{
    return __atomic_load_n(&d->received, __ATOMIC_RELAXED);
}

/* At least for @us, and until there is something; how many bytes came. */
static uint64_t receive_for(const Download *d, gint64 us)
{
    uint64_t before = received_by(d);
    gint64 deadline = g_get_monotonic_time() + FIRST_US;
    g_usleep((gulong)us);
    while (received_by(d) == before && g_get_monotonic_time() < deadline) {
        g_usleep(STEP_US);
    }
    return received_by(d) - before;
}

static bool measure(Download *d, const BenchOptions *options, BenchSample *sample, GError **errp)
{
    BenchMeter meter;
    if (receive_for(d, BENCH_WARM_UP) == 0) {
        return fail(errp, "download", "nothing comes");
    }
    bench_meter_start(&meter, d->guest.clock, false);
    uint64_t bytes = receive_for(d, options->milliseconds * 1000ll);
    if (bytes == 0) {
        return fail(errp, "download", "it has stopped");
    }
    bench_meter_stop(&meter, bytes, sample);
    return net_driver_check(d->guest.driver, errp);
}

bool bench_user_print_sample(const BenchOptions *options, GError **errp)
{
    Download d = {.listen_fd = -1};
    BenchSample sample;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    bool ok = start(&d, options, errp) && measure(&d, options, &sample, errp);
    stop_download(&d);
    ok = bench_guest_stop(&d.guest, ok, errp);
    stop_server(&d);
    if (ok) {
        printf("%.17g %.17g %.17g\n", sample.rate, sample.cpu_ns, sample.others);
    }
    return ok;
}

/* --- from outside --- */

bool bench_user_run(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                    const char *command, BenchSample *sample, GError **errp)
{
    g_autofree char *milliseconds = g_strdup_printf("%d", options->milliseconds);
    char *argv[] = {
        "/proc/self/exe", "bench",      "--one-download", "--milliseconds",
        milliseconds,     "--emulator", (char *)command,  options->device ? "--device" : NULL,
        options->device,  NULL};
    g_autofree char *found = NULL;
    g_autofree char *message = NULL;
    int status;
    if (!g_spawn_sync(NULL, argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &found, &message, &status,
                      errp)) {
        return false;
    }
    if (status != 0 ||
        sscanf(found, "%lf %lf %lf", &sample->rate, &sample->cpu_ns, &sample->others) != 3) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "the download: %s",
                    *g_strchomp(message) ? message : "ended too early");
        return false;
    }
    sample->notifications = NAN;
    return true;
}
