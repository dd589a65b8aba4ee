/*
 * Load for the lab (scripts/lab.py): real sockets of the kernel at both ends, nothing of ours.
 *
 *   lab-load serve PORT                      answers all of the following; ends with its stdin
 *   lab-load tcp HOST PORT MS                one stream
 *   lab-load udp HOST PORT MS SIZE           as many datagrams as go out; counts those that arrive
 *   lab-load rr HOST PORT MS CONNS SIZE      each connection: a request, its answer, the next one
 *   lab-load ping HOST MS                    an echo request as soon as the answer to the last came
 *
 * A client prints one line of JSON.  The first byte on a connection says what it is for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK       (128 * 1024)
#define MAX_CONNS   1024
#define MAX_SIZE    65000
#define MAX_SAMPLES (1 << 21)
#define UDP_BATCH   32
#define TIMEOUT_MS  2000

enum { KIND_SINK = 'S', KIND_ECHO = 'E', KIND_UDP_RESET = 'R', KIND_UDP_COUNT = 'Q' };

static uint8_t buffer[CHUNK];

static void die(const char *what)
{
    fprintf(stderr, "lab-load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static struct sockaddr_in address(const char *host, const char *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

    if (inet_pton(AF_INET, host, &addr.sin_addr) != 1) {
        errno = EINVAL;
        die(host);
    }
    return addr;
}

static void set_nodelay(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* --- the serving end --- */

typedef struct Conn {
    int fd;
    uint8_t kind; /* 0: not known yet */
    uint64_t bytes;
    uint8_t *unsent; /* echo: what the socket did not take */
    size_t unsent_size;
} Conn;

typedef struct Server {
    int epoll_fd, listen_fd, udp_fd;
    uint64_t udp_packets, udp_bytes;
} Server;

static void watch(Server *server, int fd, void *data, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = data};

    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        die("epoll");
    }
}

static void conn_close(Conn *conn)
{
    close(conn->fd);
    free(conn->unsent);
    free(conn);
}

static void accept_conn(Server *server)
{
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    Conn *conn;

    if (fd < 0) {
        return;
    }
    set_nodelay(fd);
    conn = calloc(1, sizeof(*conn));
    if (!conn) {
        die("memory");
    }
    conn->fd = fd;
    watch(server, fd, conn, EPOLLIN);
}

/* False: the connection is over. */
static bool echo(Server *server, Conn *conn, const uint8_t *data, size_t size)
{
    ssize_t sent = send(conn->fd, data, size, MSG_NOSIGNAL);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = conn};

    if (sent < 0 && errno != EAGAIN) {
        return false;
    }
    sent = sent < 0 ? 0 : sent;
    if ((size_t)sent == size) {
        return true;
    }
    conn->unsent = realloc(conn->unsent, conn->unsent_size + size - (size_t)sent);
    if (!conn->unsent) {
        die("memory");
    }
    memcpy(conn->unsent + conn->unsent_size, data + sent, size - (size_t)sent);
    conn->unsent_size += size - (size_t)sent;
    epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event);
    return true;
}

static bool echo_rest(Server *server, Conn *conn)
{
    ssize_t sent = send(conn->fd, conn->unsent, conn->unsent_size, MSG_NOSIGNAL);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};

    if (sent < 0) {
        return errno == EAGAIN;
    }
    memmove(conn->unsent, conn->unsent + sent, conn->unsent_size - (size_t)sent);
    conn->unsent_size -= (size_t)sent;
    if (!conn->unsent_size) {
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event);
    }
    return true;
}

static bool answer_counts(Server *server, const Conn *conn)
{
    uint64_t counts[2] = {server->udp_packets, server->udp_bytes};

    if (conn->kind == KIND_UDP_RESET) {
        server->udp_packets = server->udp_bytes = 0;
    }
    return send(conn->fd, counts, sizeof(counts), MSG_NOSIGNAL) == sizeof(counts);
}

static bool conn_read(Server *server, Conn *conn)
{
    ssize_t n = recv(conn->fd, buffer, sizeof(buffer), 0);
    size_t skip = 0;

    if (n < 0) {
        return errno == EAGAIN;
    }
    if (n == 0) {
        if (conn->kind == KIND_SINK) {
            send(conn->fd, &conn->bytes, sizeof(conn->bytes), MSG_NOSIGNAL);
        }
        return false;
    }
    if (!conn->kind) {
        conn->kind = buffer[0];
        skip = 1;
        if (conn->kind == KIND_UDP_RESET || conn->kind == KIND_UDP_COUNT) {
            return answer_counts(server, conn);
        }
    }
    conn->bytes += (size_t)n - skip;
    return conn->kind != KIND_ECHO || (size_t)n == skip ||
           echo(server, conn, buffer + skip, (size_t)n - skip);
}

static void udp_read(Server *server)
{
    static uint8_t data[UDP_BATCH][2048];
    struct mmsghdr msgs[UDP_BATCH] = {0};
    struct iovec iov[UDP_BATCH];
    int n;

    for (unsigned i = 0; i < UDP_BATCH; i++) {
        iov[i] = (struct iovec){data[i], sizeof(data[i])};
        msgs[i].msg_hdr.msg_iov = &iov[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
    }
    n = recvmmsg(server->udp_fd, msgs, UDP_BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++) {
        server->udp_packets++;
        server->udp_bytes += msgs[i].msg_len;
    }
}

static int serve(const char *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    Server server = {.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    int on = 1, size = 4 << 20;
    struct epoll_event events[64];

    server.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    server.udp_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    setsockopt(server.listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(server.udp_fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    if (bind(server.listen_fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        bind(server.udp_fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        listen(server.listen_fd, MAX_CONNS) < 0) {
        die("bind");
    }
    watch(&server, server.listen_fd, &server.listen_fd, EPOLLIN);
    watch(&server, server.udp_fd, &server.udp_fd, EPOLLIN);
    watch(&server, STDIN_FILENO, NULL, EPOLLIN);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(server.epoll_fd, events, 64, -1);

        for (int i = 0; i < n; i++) {
            Conn *conn = events[i].data.ptr;

            if (!conn) {
                return 0; /* whoever started us is gone */
            } else if (events[i].data.ptr == &server.listen_fd) {
                accept_conn(&server);
            } else if (events[i].data.ptr == &server.udp_fd) {
                udp_read(&server);
            } else if ((events[i].events & EPOLLOUT && conn->unsent_size &&
                        !echo_rest(&server, conn)) ||
                       (events[i].events & ~EPOLLOUT && !conn_read(&server, conn))) {
                conn_close(conn);
            }
        }
    }
}

/* --- clients --- */

static int open_conn(const char *host, const char *port, uint8_t kind)
{
    struct sockaddr_in addr = address(host, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval timeout = {TIMEOUT_MS / 1000, 0};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    set_nodelay(fd);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || send(fd, &kind, 1, 0) != 1) {
        die("connect");
    }
    return fd;
}

static int run_tcp(char **args)
{
    int64_t begin, end, stop;
    int fd = open_conn(args[0], args[1], KIND_SINK);
    uint64_t bytes;

    begin = now_ns();
    stop = begin + atoll(args[2]) * 1000000;
    while (now_ns() < stop) {
        if (send(fd, buffer, sizeof(buffer), MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
            die("send");
        }
    }
    shutdown(fd, SHUT_WR);
    if (recv(fd, &bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes)) {
        die("answer");
    }
    end = now_ns();
    printf("{\"bytes\": %llu, \"ns\": %lld, \"rate\": %.0f}\n", (unsigned long long)bytes,
           (long long)(end - begin), (double)bytes * 1e9 / (double)(end - begin));
    close(fd);
    return 0;
}

static void udp_counts(char **args, uint8_t kind, uint64_t counts[2])
{
    int fd = open_conn(args[0], args[1], kind);

    if (recv(fd, counts, 16, MSG_WAITALL) != 16) {
        die("answer");
    }
    close(fd);
}

static int run_udp(char **args)
{
    struct sockaddr_in addr = address(args[0], args[1]);
    size_t size = (size_t)atoi(args[3]);
    struct mmsghdr msgs[UDP_BATCH] = {0};
    struct iovec iov = {buffer, size};
    uint64_t counts[2], sent = 0;
    int64_t begin, end, stop;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (size > 2000 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        die("udp");
    }
    for (unsigned i = 0; i < UDP_BATCH; i++) {
        msgs[i].msg_hdr.msg_iov = &iov;
        msgs[i].msg_hdr.msg_iovlen = 1;
    }
    udp_counts(args, KIND_UDP_RESET, counts);
    begin = now_ns();
    stop = begin + atoll(args[2]) * 1000000;
    while ((end = now_ns()) < stop) {
        int n = sendmmsg(fd, msgs, UDP_BATCH, 0);

        if (n < 0 && errno != ENOBUFS && errno != EAGAIN) {
            die("send");
        }
        sent += n > 0 ? (uint64_t)n : 0;
    }
    usleep(20000);
    udp_counts(args, KIND_UDP_COUNT, counts);
    printf("{\"sent\": %llu, \"packets\": %llu, \"bytes\": %llu, \"ns\": %lld, \"rate\": %.0f}\n",
           (unsigned long long)sent, (unsigned long long)counts[0], (unsigned long long)counts[1],
           (long long)(end - begin), (double)counts[0] * 1e9 / (double)(end - begin));
    close(fd);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void print_times(uint32_t *samples, size_t n, int64_t ns, unsigned lost)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += samples[i];
    }
    qsort(samples, n, sizeof(*samples), by_value);
    if (n == 0) {
        printf("{\"count\": 0, \"lost\": %u, \"rate\": 0}\n", lost);
        return;
    }
    printf("{\"count\": %zu, \"lost\": %u, \"ns\": %lld, \"rate\": %.1f, \"mean_ns\": %.0f, "
           "\"p50_ns\": %u, \"p90_ns\": %u, \"p99_ns\": %u, \"max_ns\": %u}\n",
           n, lost, (long long)ns, (double)n * 1e9 / (double)ns, sum / (double)n, samples[n / 2],
           samples[n * 9 / 10], samples[n * 99 / 100], samples[n - 1]);
}

typedef struct Request {
    int fd;
    size_t received;
    int64_t since;
} Request;

static void request_send(Request *request, size_t size)
{
    request->received = 0;
    request->since = now_ns();
    if (send(request->fd, buffer, size, MSG_NOSIGNAL) != (ssize_t)size) {
        die("request");
    }
}

static int run_rr(char **args)
{
    int conns = atoi(args[3]), epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    size_t size = (size_t)atoi(args[4]), n = 0;
    Request *requests = calloc(MAX_CONNS, sizeof(*requests));
    uint32_t *samples = calloc(MAX_SAMPLES, sizeof(*samples));
    struct epoll_event events[64];
    int64_t begin, now, stop;

    if (conns < 1 || conns > MAX_CONNS || size < 1 || size > 16384 || !requests || !samples) {
        errno = EINVAL;
        die("rr");
    }
    for (int i = 0; i < conns; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};

        requests[i].fd = open_conn(args[0], args[1], KIND_ECHO);
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, requests[i].fd, &event);
    }
    begin = now_ns();
    stop = begin + atoll(args[2]) * 1000000;
    for (int i = 0; i < conns; i++) {
        request_send(&requests[i], size);
    }
    while ((now = now_ns()) < stop) {
        int ready = epoll_wait(epoll_fd, events, 64, 100);

        for (int i = 0; i < ready; i++) {
            Request *request = &requests[events[i].data.u32];
            ssize_t got = recv(request->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

            if (got == 0 || (got < 0 && errno != EAGAIN)) {
                die("response");
            }
            request->received += got > 0 ? (size_t)got : 0;
            if (request->received >= size) {
                if (n < MAX_SAMPLES) {
                    samples[n++] = (uint32_t)(now_ns() - request->since);
                }
                request_send(request, size);
            }
        }
    }
    print_times(samples, n, now - begin, 0);
    return 0;
}

static uint16_t checksum(const void *data, size_t size)
{
    const uint16_t *words = data;
    uint32_t sum = 0;

    for (size_t i = 0; i < size / 2; i++) {
        sum += words[i];
    }
    sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t) ~(sum + (sum >> 16));
}

/* Waits for the answer numbered @sequence; false: none came. */
static bool await_echo(int fd, uint16_t sequence)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    while (poll(&pfd, 1, 100) > 0) {
        struct {
            struct iphdr ip;
            struct icmphdr icmp;
            uint8_t data[64];
        } packet;
        ssize_t n = recv(fd, &packet, sizeof(packet), MSG_DONTWAIT);

        if (n >= (ssize_t)(sizeof(packet.ip) + sizeof(packet.icmp)) &&
            packet.icmp.type == ICMP_ECHOREPLY && packet.icmp.un.echo.sequence == sequence) {
            return true;
        }
    }
    return false;
}

static int run_ping(char **args)
{
    struct sockaddr_in addr = address(args[0], "0");
    int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
    uint32_t *samples = calloc(MAX_SAMPLES, sizeof(*samples));
    int64_t begin = now_ns(), stop = begin + atoll(args[1]) * 1000000, now;
    size_t n = 0;
    unsigned lost = 0;
    struct {
        struct icmphdr icmp;
        uint8_t data[56];
    } request = {.icmp.type = ICMP_ECHO};

    if (fd < 0 || !samples || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        die("ping");
    }
    for (uint16_t sequence = 0; (now = now_ns()) < stop; sequence++) {
        request.icmp.un.echo.sequence = sequence;
        request.icmp.checksum = 0;
        request.icmp.checksum = checksum(&request, sizeof(request));
        if (send(fd, &request, sizeof(request), 0) < 0) {
            die("ping");
        }
        if (!await_echo(fd, sequence)) {
            lost++;
        } else if (n < MAX_SAMPLES) {
            samples[n++] = (uint32_t)(now_ns() - now);
        }
    }
    print_times(samples, n, now - begin, lost);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int args;
        int (*run)(char **args);
    } clients[] = {
        {"tcp", 3, run_tcp}, {"udp", 4, run_udp}, {"rr", 5, run_rr}, {"ping", 2, run_ping}};

    if (argc == 3 && !strcmp(argv[1], "serve")) {
        return serve(argv[2]);
    }
    for (unsigned i = 0; argc > 1 && i < sizeof(clients) / sizeof(clients[0]); i++) {
        if (!strcmp(argv[1], clients[i].name) && argc == 2 + clients[i].args) {
            return clients[i].run(argv + 2);
        }
    }
    fprintf(stderr, "usage: lab-load serve PORT | tcp HOST PORT MS | udp HOST PORT MS SIZE |\n"
                    "       rr HOST PORT MS CONNS SIZE | ping HOST MS\n");
    return 1;
}
