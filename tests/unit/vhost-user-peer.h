/*
 * A vhost-user back end for test-vhost-user.c: a thread that writes down every message and answers
 * by a table, and the front end that is connected to it.
 */
#ifndef TESTS_UNIT_VHOST_USER_PEER_H
#define TESTS_UNIT_VHOST_USER_PEER_H

#include <linux/virtio_net.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "chardev/chardev.h"
#include "util/json.h"
#include "vhost/vhost-user-internal.h"

#define P(name)       (1ull << VHOST_USER_PROTOCOL_F_##name)
#define F_PROTOCOL    (1ull << VHOST_USER_F_PROTOCOL_FEATURES)
#define FEATURES      (1ull << 32 | 1ull << VIRTIO_NET_F_STATUS | F_PROTOCOL)
#define MESSAGES_MAX  64
#define TIMEOUT_MS    10000
#define VERSION       VHOST_USER_VERSION
#define VERSION_REPLY (VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY)
#define VERSION_ACK   (VHOST_USER_VERSION | VHOST_USER_FLAG_NEED_REPLY)

typedef struct Message {
    VhostUserHeader header;
    uint8_t payload[sizeof(VhostUserPayload)];
    unsigned fds;
} Message;

/* In place of an answer: these bytes, and then the end of the connection. */
typedef struct BadAnswer {
    uint32_t request;
    uint8_t bytes[64];
    size_t size;
    unsigned fds; /* descriptors that nobody wants, along with them */
    bool stays;   /* no end behind it */
} BadAnswer;

typedef struct Peer {
    uint64_t features, protocol_features, queues, slots;
    uint64_t ack; /* what requests are confirmed with */
    /* These may change while the thread runs: atomic. */
    const BadAnswer *bad;
    uint16_t link;        /* of the configuration */
    uint32_t config_size; /* 0: as asked */
    int inflight_fd;      /* -1: answers without one */
    uint64_t inflight_size;
    /* the thread's, read after peer_join() */
    Message messages[MESSAGES_MAX];
    unsigned count;
    /* both */
    pthread_mutex_t lock;
    int request_fd; /* where requests of its own go */
    /* main thread */
    pthread_t thread;
    int listener;
    char *path;
    Chardev *chr;
    VhostBackend *backend;
    unsigned link_changes;
    bool link_up;
} Peer;

/* --- the back end's thread --- */

static void send_bytes(int fd, const void *data, size_t size, const int *fds, unsigned count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec iov = {(void *)data, size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (count) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    }
    sendmsg(fd, &msg, MSG_NOSIGNAL);
}

static void answer(int fd, uint32_t request, const void *payload, uint32_t size, int passed)
{
    struct {
        VhostUserHeader header;
        uint8_t payload[sizeof(VhostUserPayload)];
    } message = {.header = {request, VERSION_REPLY, size}};

    if (size) {
        memcpy(message.payload, payload, size);
    }
    send_bytes(fd, &message, sizeof(message.header) + size, &passed, passed >= 0);
}

/* Returns false at the end; what came along is closed, or kept as @request_fd. */
static bool receive(Peer *p, int fd, Message *m)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct iovec iov = {&m->header, sizeof(m->header)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    int fds[8];

    if (recvmsg(fd, &msg, MSG_WAITALL) != sizeof(m->header)) {
        return false;
    }
    if (CMSG_FIRSTHDR(&msg)) {
        m->fds = (unsigned)((CMSG_FIRSTHDR(&msg)->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), m->fds * sizeof(int));
    }
    for (unsigned i = 0; i < m->fds; i++) {
        if (m->header.request == VHOST_USER_SET_BACKEND_REQ_FD) {
            pthread_mutex_lock(&p->lock);
            p->request_fd = fds[i];
            pthread_mutex_unlock(&p->lock);
        } else {
            close(fds[i]);
        }
    }
    g_assert_cmpuint(m->header.size, <=, sizeof(m->payload));
    return !m->header.size ||
           recv(fd, m->payload, m->header.size, MSG_WAITALL) == (ssize_t)m->header.size;
}

static void answer_config(Peer *p, int fd, const Message *m)
{
    VhostUserConfig config = {0};

    memcpy(&config, m->payload, VHOST_USER_CONFIG_HEAD);
    uint32_t size = __atomic_load_n(&p->config_size, __ATOMIC_RELAXED);

    config.data[offsetof(struct virtio_net_config, status)] =
        (uint8_t)__atomic_load_n(&p->link, __ATOMIC_RELAXED);
    if (size) {
        config.size = size;
    }
    answer(fd, m->header.request, &config, VHOST_USER_CONFIG_HEAD + MIN(config.size, 256), -1);
}

static void answer_inflight(Peer *p, int fd, const Message *m)
{
    VhostUserInflight inflight;

    memcpy(&inflight, m->payload, sizeof(inflight));
    inflight.mmap_size = p->inflight_size;
    answer(fd, m->header.request, &inflight, sizeof(inflight), p->inflight_fd);
}

static void answer_message(Peer *p, int fd, const Message *m)
{
    const struct {
        uint32_t request;
        uint64_t value;
    } numbers[] = {
        {VHOST_USER_GET_FEATURES, p->features},
        {VHOST_USER_GET_PROTOCOL_FEATURES, p->protocol_features},
        {VHOST_USER_GET_QUEUE_NUM, p->queues},
        {VHOST_USER_GET_MAX_MEM_SLOTS, p->slots},
    };
    VhostUserVringState state;

    for (unsigned i = 0; i < G_N_ELEMENTS(numbers); i++) {
        if (m->header.request == numbers[i].request) {
            answer(fd, m->header.request, &numbers[i].value, 8, -1);
            return;
        }
    }
    switch (m->header.request) {
    case VHOST_USER_GET_VRING_BASE:
        memcpy(&state, m->payload, sizeof(state));
        state.num = 0x1234 + state.index;
        answer(fd, m->header.request, &state, sizeof(state), -1);
        break;
    case VHOST_USER_GET_CONFIG:
        answer_config(p, fd, m);
        break;
    case VHOST_USER_GET_INFLIGHT_FD:
        answer_inflight(p, fd, m);
        break;
    case VHOST_USER_SET_LOG_BASE:
        answer(fd, m->header.request, NULL, 0, -1);
        break;
    default:
        if (m->header.flags & VHOST_USER_FLAG_NEED_REPLY) {
            answer(fd, m->header.request, &p->ack, 8, -1);
        }
    }
}

static void *peer_thread(void *opaque)
{
    Peer *p = opaque;
    int fd = accept(p->listener, NULL, NULL);
    int extra[8];

    for (unsigned i = 0; i < G_N_ELEMENTS(extra); i++) {
        extra[i] = p->listener;
    }
    while (p->count < MESSAGES_MAX && receive(p, fd, &p->messages[p->count])) {
        const Message *m = &p->messages[p->count++];

        const BadAnswer *bad = __atomic_load_n(&p->bad, __ATOMIC_ACQUIRE);

        if (!bad || bad->request != m->header.request) {
            answer_message(p, fd, m);
            continue;
        }
        if (bad->size) {
            send_bytes(fd, bad->bytes, bad->size, extra, bad->fds);
        }
        if (!bad->stays) {
            break;
        }
    }
    close(fd);
    return NULL;
}

/* --- the front end's side --- */

static void link_changed(void *opaque, bool up)
{
    Peer *p = opaque;

    p->link_changes++;
    p->link_up = up;
}

static Peer *peer_new(uint64_t protocol_features)
{
    Peer *p = g_new0(Peer, 1);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    g_autofree char *folder = g_dir_make_tmp("swnic-vhost-XXXXXX", NULL);

    p->features = FEATURES;
    p->protocol_features = protocol_features;
    p->queues = 2;
    p->slots = 16;
    p->link = VIRTIO_NET_S_LINK_UP;
    p->inflight_fd = p->request_fd = -1;
    pthread_mutex_init(&p->lock, NULL);
    p->path = g_build_filename(folder, "s", NULL);
    p->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    g_strlcpy(address.sun_path, p->path, sizeof(address.sun_path));
    g_assert_cmpint(bind(p->listener, (struct sockaddr *)&address, sizeof(address)), ==, 0);
    g_assert_cmpint(listen(p->listener, 1), ==, 0);
    return p;
}

static VhostBackend *peer_start(Peer *p, GError **errp)
{
    const VhostUserEvents events = {link_changed, p};
    json_object *options = json_object_new_object();

    json_put_string(options, "backend", "socket");
    json_put_string(options, "id", "c0");
    json_put_string(options, "path", p->path);
    g_assert_cmpint(pthread_create(&p->thread, NULL, peer_thread, p), ==, 0);
    p->chr = chardev_new(options, NULL);
    g_assert_nonnull(p->chr);
    json_object_put(options);
    p->backend = vhost_user_new("n0", p->chr, 1, TIMEOUT_MS, &events, errp);
    return p->backend;
}

/* What @protocol_features say, up and running. */
static Peer *peer_open(uint64_t protocol_features)
{
    Peer *p = peer_new(protocol_features);
    GError *err = NULL;

    peer_start(p, &err);
    g_assert_no_error(err);
    return p;
}

static void loop_until(bool (*done)(Peer *p), Peer *p)
{
    for (unsigned ms = 0; !done(p); ms++) {
        g_assert_cmpuint(ms, <, TIMEOUT_MS);
        while (event_loop_run_once(event_loop_main(), false)) {
        }
        g_usleep(1000);
    }
}

/* The end of the connection; messages may be looked at then. */
static void peer_join(Peer *p)
{
    if (p->backend) {
        vhost_backend_free(p->backend);
        p->backend = NULL;
    }
    chardev_cleanup_all();
    pthread_join(p->thread, NULL);
}

static void peer_free(Peer *p)
{
    g_autofree char *folder = g_path_get_dirname(p->path);

    if (p->backend) {
        peer_join(p);
    }
    if (p->request_fd >= 0) {
        close(p->request_fd);
    }
    close(p->listener);
    unlink(p->path);
    rmdir(folder);
    pthread_mutex_destroy(&p->lock);
    g_free(p->path);
    g_free(p);
}

/* Message @at of what was sent. */
static void expect(const Peer *p, unsigned at, uint32_t request, uint32_t flags,
                   const void *payload, uint32_t size, unsigned fds)
{
    const Message *m = &p->messages[at];

    g_assert_cmpuint(at, <, p->count);
    g_assert_cmpuint(m->header.request, ==, request);
    g_assert_cmphex(m->header.flags, ==, flags);
    g_assert_cmpmem(m->payload, m->header.size, payload, size);
    g_assert_cmpuint(m->fds, ==, fds);
}

static void expect_u64(const Peer *p, unsigned at, uint32_t request, uint32_t flags, uint64_t value)
{
    expect(p, at, request, flags, &value, sizeof(value), 0);
}

/* The first message after negotiation. */
static unsigned first_after(const Peer *p, uint32_t request)
{
    unsigned i = 0;

    while (i < p->count && p->messages[i].header.request != request) {
        i++;
    }
    return i + 1;
}

#endif
