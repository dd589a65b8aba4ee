/*
 * The demo's HTTP server: see demo-server.h.
 *
 * The body is the output of xorshift64* from a fixed seed, in blocks; the first thing the thread
 * does is to run through it once for its checksum.
 */
#include "guest/demo-server.h"
#include <arpa/inet.h>
#include <errno.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK_WORDS    32768 /* 256 KiB */
#define SEED           0x9E3779B97F4A7C15ull
#define MAX_REQUEST    8192
#define CLIENT_TIMEOUT 10 /* s without progress */

struct DemoServer {
    int fd;
    uint16_t port;
    uint64_t size;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t hashed;
    char *sha256;  /* NULL: not known yet */
    int client_fd; /* -1: none */
    bool stopping;
};

/* A block of the body; *@state is SEED before the first. */
static void make_block(uint64_t *block, uint64_t *state)
{
    uint64_t x = *state;
    for (size_t i = 0; i < BLOCK_WORDS; i++) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        block[i] = GUINT64_TO_LE(x * 0x2545F4914F6CDD1Dull);
    }
    *state = x;
}

static bool is_stopping(DemoServer *server)
{
    pthread_mutex_lock(&server->lock);
    bool stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    return stopping;
}

static void hash_body(DemoServer *server, uint64_t *block)
{
    GChecksum *checksum = g_checksum_new(G_CHECKSUM_SHA256);
    uint64_t state = SEED;
    for (uint64_t left = server->size; left > 0 && !is_stopping(server);) {
        size_t n = MIN(left, BLOCK_WORDS * sizeof(*block));
        make_block(block, &state);
        g_checksum_update(checksum, (uint8_t *)block, (gssize)n);
        left -= n;
    }
    pthread_mutex_lock(&server->lock);
    server->sha256 = g_strdup(g_checksum_get_string(checksum));
    pthread_cond_broadcast(&server->hashed);
    pthread_mutex_unlock(&server->lock);
    g_checksum_free(checksum);
}

static bool send_all(int fd, const void *data, size_t size)
{
    const char *bytes = data;
    while (size > 0) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

/* Reads the request's head; true: it is a GET of our path. */
static bool read_request(int fd)
{
    char request[MAX_REQUEST];
    size_t size = 0;
    while (size < sizeof(request)) {
        ssize_t n = recv(fd, request + size, sizeof(request) - size, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        size += (size_t)n;
        if (memmem(request, size, "\r\n\r\n", 4)) {
            break;
        }
    }
    static const char wanted[] = "GET " DEMO_SERVER_PATH " ";
    return size > sizeof(wanted) && memcmp(request, wanted, sizeof(wanted) - 1) == 0;
}

static void send_body(DemoServer *server, int fd, uint64_t *block)
{
    char head[200];
    int size = snprintf(head, sizeof(head),
                        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                        "Content-Length: %" PRIu64 "\r\nConnection: close\r\n\r\n",
                        server->size);
    bool ok = send_all(fd, head, (size_t)size);
    uint64_t state = SEED;
    for (uint64_t left = server->size; left > 0 && ok;) {
        size_t n = MIN(left, BLOCK_WORDS * sizeof(*block));
        make_block(block, &state);
        ok = send_all(fd, block, n);
        left -= n;
    }
}

static void serve_client(DemoServer *server, int fd, uint64_t *block)
{
    struct timeval timeout = {.tv_sec = CLIENT_TIMEOUT};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (read_request(fd)) {
        send_body(server, fd, block);
    } else {
        static const char refusal[] =
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        send_all(fd, refusal, sizeof(refusal) - 1);
    }
    shutdown(fd, SHUT_WR);
}

/* Makes @fd (-1: none) the client that demo_server_stop() cuts off; false: it is too late. */
static bool set_client(DemoServer *server, int fd)
{
    pthread_mutex_lock(&server->lock);
    server->client_fd = fd;
    bool go_on = !server->stopping;
    pthread_mutex_unlock(&server->lock);
    return go_on;
}

static void *server_thread(void *opaque)
{
    DemoServer *server = opaque;
    g_autofree uint64_t *block = g_new(uint64_t, BLOCK_WORDS);
    hash_body(server, block);
    while (!is_stopping(server)) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            continue; /* shut down, or a client that left before we took it */
        }
        if (set_client(server, fd)) {
            serve_client(server, fd, block);
        }
        set_client(server, -1);
        close(fd);
    }
    return NULL;
}

DemoServer *demo_server_start(uint64_t size, GError **errp)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 4) < 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &length) < 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "HTTP server on 127.0.0.1: %s",
                    g_strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    DemoServer *server = g_new0(DemoServer, 1);
    server->fd = fd;
    server->port = ntohs(addr.sin_port);
    server->size = size;
    server->client_fd = -1;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->hashed, NULL);
    int error = pthread_create(&server->thread, NULL, server_thread, server);
    if (error) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "HTTP server: %s", g_strerror(error));
        close(fd);
        g_free(server);
        return NULL;
    }
    return server;
}

uint16_t demo_server_port(const DemoServer *server)
{
    return server->port;
}

const char *demo_server_sha256(DemoServer *server)
{
    pthread_mutex_lock(&server->lock);
    while (!server->sha256) {
        pthread_cond_wait(&server->hashed, &server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    return server->sha256;
}

void demo_server_stop(DemoServer *server)
{
    if (!server) {
        return;
    }
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    if (server->client_fd >= 0) {
        shutdown(server->client_fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&server->lock);
    shutdown(server->fd, SHUT_RDWR); /* wakes accept() */
    pthread_join(server->thread, NULL);
    close(server->fd);
    g_free(server->sha256);
    pthread_cond_destroy(&server->hashed);
    pthread_mutex_destroy(&server->lock);
    g_free(server);
}
