/*
 * vfio-user messages, client's side: see vfio-user-client.h.
 *
 * Reading is blocking with a deadline (poll before each recvmsg), one message at a time, header
 * and payload apart, because fds belong to the message that they came with.
 */
#include "guest/vfio-user-client.h"
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "guest/unix-socket.h"

#define DEFAULT_TIMEOUT_MS 10000
#define MAX_MESSAGE        (VFIO_USER_DEFAULT_MAX_XFER + 4096)
#define HEADER             sizeof(VfioUserHeader)

typedef struct MemoryPiece {
    uint64_t addr, size;
    uint8_t *host;
} MemoryPiece;

struct VfioUserClient {
    pthread_mutex_t lock; /* one request at a time; all below */
    int fd, twin_fd;
    unsigned timeout_ms;
    bool broken;
    uint16_t next_id;
    json_object *capabilities; /* the server's */
    uint32_t max_transfer;
    GArray *memory; /* MemoryPiece */
    int dma_failure;
    uint64_t dma_reads, dma_writes;
};

typedef struct Message {
    VfioUserHeader header;
    VfioUserAnswer body;
} Message;

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

void vfio_user_answer_clear(VfioUserAnswer *answer)
{
    for (unsigned i = 0; i < answer->nfds; i++) {
        if (answer->fds[i] >= 0) {
            close(answer->fds[i]);
        }
    }
    g_free(answer->data);
    memset(answer, 0, sizeof(*answer));
}

VfioUserClient *vfio_user_client_new(int fd)
{
    VfioUserClient *client = g_new0(VfioUserClient, 1);
    pthread_mutex_init(&client->lock, NULL);
    client->fd = fd;
    client->twin_fd = -1;
    client->timeout_ms = DEFAULT_TIMEOUT_MS;
    client->max_transfer = VFIO_USER_DEFAULT_MAX_XFER;
    client->memory = g_array_new(FALSE, FALSE, sizeof(MemoryPiece));
    return client;
}

VfioUserClient *vfio_user_client_connect(const char *path, GError **errp)
{
    int fd = unix_socket_connect("vfio-user socket", path, errp);
    if (fd < 0) {
        return NULL;
    }
    return vfio_user_client_new(fd);
}

void vfio_user_client_free(VfioUserClient *client)
{
    if (!client) {
        return;
    }
    close(client->fd);
    if (client->twin_fd >= 0) {
        close(client->twin_fd);
    }
    json_object_put(client->capabilities);
    g_array_unref(client->memory);
    pthread_mutex_destroy(&client->lock);
    g_free(client);
}

void vfio_user_client_set_timeout(VfioUserClient *client, unsigned ms)
{
    client->timeout_ms = ms;
}

int vfio_user_client_fd(const VfioUserClient *client)
{
    return client->fd;
}

int vfio_user_client_twin_fd(const VfioUserClient *client)
{
    return client->twin_fd;
}

bool vfio_user_client_is_broken(VfioUserClient *client)
{
    return __atomic_load_n(&client->broken, __ATOMIC_RELAXED);
}

json_object *vfio_user_client_capabilities(const VfioUserClient *client)
{
    return client->capabilities;
}

uint32_t vfio_user_client_max_transfer(const VfioUserClient *client)
{
    return client->max_transfer;
}

/* Every transport error comes through here. */
static bool set_broken(VfioUserClient *client, GError **errp, const char *why)
{
    __atomic_store_n(&client->broken, true, __ATOMIC_RELAXED);
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_BROKEN_PIPE, "vfio-user: %s", why);
    return false;
}

/* --- one message --- */

static bool send_bytes(VfioUserClient *client, int fd, struct iovec *iov, unsigned iovcnt,
                       const int *fds, unsigned nfds, GError **errp)
{
    char control[CMSG_SPACE(sizeof(int) * 253)] __attribute__((aligned(8))) = {0};
    while (iovcnt) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = iovcnt};
        if (nfds) {
            msg.msg_control = control;
            msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
            memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
        }
        ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return set_broken(client, errp, g_strerror(errno));
        }
        nfds = 0; /* they went with the first byte */
        for (; iovcnt && (size_t)n >= iov->iov_len; iov++, iovcnt--) {
            n -= (ssize_t)iov->iov_len;
        }
        if (iovcnt) {
            iov->iov_base = (char *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
    return true;
}

static bool send_message(VfioUserClient *client, int fd, VfioUserHeader *header,
                         const void *payload, size_t size, const int *fds, unsigned nfds,
                         GError **errp)
{
    header->size = (uint32_t)(HEADER + size);
    struct iovec iov[2] = {{header, HEADER}, {(void *)payload, size}};
    return send_bytes(client, fd, iov, size ? 2 : 1, fds, nfds, errp);
}

/* Waits until one of our sockets is readable; it, or -1 at @deadline_ms. */
static int wait_readable(VfioUserClient *client, int64_t deadline_ms)
{
    struct pollfd pfds[2] = {{.fd = client->fd, .events = POLLIN},
                             {.fd = client->twin_fd, .events = POLLIN}};
    for (;;) {
        int64_t left = deadline_ms - now_ms();
        int n = poll(pfds, 2, left > 0 ? (int)left : 0);
        if (n > 0) {
            return pfds[1].revents ? client->twin_fd : client->fd;
        }
        if (n == 0 || errno != EINTR) {
            return -1;
        }
    }
}

static void take_fds(struct msghdr *msg, VfioUserAnswer *body)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (body->nfds < VFIO_USER_CLIENT_MAX_FDS) {
                body->fds[body->nfds++] = fd;
            } else {
                close(fd);
            }
        }
    }
}

static bool receive_bytes(VfioUserClient *client, int fd, void *to, size_t size,
                          VfioUserAnswer *body, int64_t deadline_ms, GError **errp)
{
    for (size_t done = 0; done < size;) {
        char control[CMSG_SPACE(sizeof(int) * 253)] __attribute__((aligned(8)));
        struct iovec iov = {(char *)to + done, size - done};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        int64_t left = deadline_ms - now_ms();
        if (poll(&pfd, 1, left > 0 ? (int)left : 0) == 0) {
            return set_broken(client, errp, "the server does not answer");
        }
        ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return set_broken(client, errp, n ? g_strerror(errno) : "the server has hung up");
        }
        take_fds(&msg, body);
        done += (size_t)n;
    }
    return true;
}

static bool receive_message(VfioUserClient *client, int fd, Message *message, int64_t deadline_ms,
                            GError **errp)
{
    memset(message, 0, sizeof(*message));
    VfioUserHeader *header = &message->header;
    VfioUserAnswer *body = &message->body;
    bool ok = receive_bytes(client, fd, header, HEADER, body, deadline_ms, errp);
    if (ok && (header->size < HEADER || header->size > MAX_MESSAGE)) {
        ok = set_broken(client, errp, "the server sent a message of impossible size");
    }
    if (ok) {
        body->size = header->size - HEADER;
        body->data = g_malloc(body->size + 1);
        ok = receive_bytes(client, fd, body->data, body->size, body, deadline_ms, errp);
    }
    if (!ok) {
        vfio_user_answer_clear(body);
        return false;
    }
    if (header->flags & VFIO_USER_ERROR) {
        body->error = header->error ? (int)header->error : EIO;
    }
    return true;
}

/* --- the server's commands --- */

static uint8_t *memory_find(VfioUserClient *client, uint64_t addr, uint64_t size)
{
    for (guint i = 0; i < client->memory->len; i++) {
        const MemoryPiece *piece = &g_array_index(client->memory, MemoryPiece, i);
        if (addr >= piece->addr && addr - piece->addr < piece->size &&
            size <= piece->size - (addr - piece->addr)) {
            return piece->host + (addr - piece->addr);
        }
    }
    return NULL;
}

/*
 * The server is a bus master here: a driver's thread may look at the same words.  Ring indices are
 * 16 bits, so copies go in such units, each an atomic access with the order that a bus has.
 */
static bool words_fit(const void *a, const void *b, size_t size)
{
    return (((uintptr_t)a | (uintptr_t)b | size) & 1) == 0;
}

static void memory_store(uint8_t *host, const uint8_t *from, size_t size)
{
    size_t step = words_fit(host, from, size) ? 2 : 1;
    for (size_t i = 0; i < size; i += step) {
        if (step == 2) {
            __atomic_store_n((uint16_t *)(host + i), *(const uint16_t *)(from + i),
                             __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(host + i, from[i], __ATOMIC_RELEASE);
        }
    }
}

static void memory_load(uint8_t *to, const uint8_t *host, size_t size)
{
    size_t step = words_fit(host, to, size) ? 2 : 1;
    for (size_t i = 0; i < size; i += step) {
        if (step == 2) {
            *(uint16_t *)(to + i) = __atomic_load_n((const uint16_t *)(host + i), __ATOMIC_ACQUIRE);
        } else {
            to[i] = __atomic_load_n(host + i, __ATOMIC_ACQUIRE);
        }
    }
}

static bool reply_to_server(VfioUserClient *client, int fd, const VfioUserHeader *command,
                            int error, const void *payload, size_t size, GError **errp)
{
    VfioUserHeader header = {
        .id = command->id,
        .command = command->command,
        .flags = VFIO_USER_REPLY | (error ? VFIO_USER_ERROR : 0),
        .error = (uint32_t)error,
    };
    return send_message(client, fd, &header, payload, error ? 0 : size, NULL, 0, errp);
}

static bool answer_server(VfioUserClient *client, int fd, const Message *message, GError **errp)
{
    VfioUserDmaAccess access;
    const VfioUserHeader *command = &message->header;
    bool reads = command->command == VFIO_USER_DMA_READ;
    if ((!reads && command->command != VFIO_USER_DMA_WRITE) ||
        message->body.size < sizeof(access)) {
        return reply_to_server(client, fd, command, EINVAL, NULL, 0, errp);
    }
    memcpy(&access, message->body.data, sizeof(access));
    __atomic_fetch_add(reads ? &client->dma_reads : &client->dma_writes, 1, __ATOMIC_RELAXED);
    if (client->dma_failure < 0) {
        return true;
    }
    uint8_t *host = memory_find(client, access.address, access.count);
    if (!host || client->dma_failure || access.count > VFIO_USER_DEFAULT_MAX_XFER ||
        (!reads && message->body.size != sizeof(access) + access.count)) {
        int error = client->dma_failure ? client->dma_failure : EFAULT;
        return reply_to_server(client, fd, command, error, NULL, 0, errp);
    }
    if (!reads) {
        memory_store(host, message->body.data + sizeof(access), access.count);
        return reply_to_server(client, fd, command, 0, &access, sizeof(access), errp);
    }
    g_autofree VfioUserDmaAccess *reply = g_malloc(sizeof(access) + access.count);
    *reply = access;
    memory_load(reply->data, host, access.count);
    return reply_to_server(client, fd, command, 0, reply, sizeof(access) + access.count, errp);
}

/* Reads one message: a command of the server is answered (*reply false), a reply handed on. */
static bool handle_one(VfioUserClient *client, int fd, Message *message, bool *reply,
                       int64_t deadline_ms, GError **errp)
{
    if (!receive_message(client, fd, message, deadline_ms, errp)) {
        return false;
    }
    *reply = (message->header.flags & VFIO_USER_TYPE_MASK) == VFIO_USER_REPLY;
    if (*reply) {
        return true;
    }
    bool ok = answer_server(client, fd, message, errp);
    vfio_user_answer_clear(&message->body);
    return ok;
}

/* The next reply, whatever it answers if @id is negative. */
static bool receive_reply(VfioUserClient *client, int id, VfioUserAnswer *answer, GError **errp)
{
    int64_t deadline_ms = now_ms() + client->timeout_ms;
    for (;;) {
        int fd = wait_readable(client, deadline_ms);
        Message message;
        bool reply;
        if (fd < 0) {
            return set_broken(client, errp, "the server does not answer");
        }
        if (!handle_one(client, fd, &message, &reply, deadline_ms, errp)) {
            return false;
        }
        if (reply && (id < 0 || message.header.id == id)) {
            *answer = message.body;
            return true;
        }
        if (reply) {
            vfio_user_answer_clear(&message.body);
        }
    }
}

bool vfio_user_client_serve(VfioUserClient *client, unsigned ms, GError **errp)
{
    int64_t deadline_ms = now_ms() + ms;
    bool ok = !vfio_user_client_is_broken(client);
    pthread_mutex_lock(&client->lock);
    while (ok) {
        int fd = wait_readable(client, deadline_ms);
        Message message;
        bool reply;
        if (fd < 0) {
            break;
        }
        ok = handle_one(client, fd, &message, &reply, now_ms() + client->timeout_ms, errp);
        if (ok && reply) {
            vfio_user_answer_clear(&message.body);
        }
    }
    pthread_mutex_unlock(&client->lock);
    return ok;
}

/* --- requests --- */

static bool check_usable(VfioUserClient *client, GError **errp)
{
    return !client->broken || set_broken(client, errp, "the connection has failed before");
}

bool vfio_user_client_request(VfioUserClient *client, uint16_t command, const void *payload,
                              size_t size, const int *fds, unsigned nfds, VfioUserAnswer *answer,
                              GError **errp)
{
    memset(answer, 0, sizeof(*answer));
    pthread_mutex_lock(&client->lock);
    VfioUserHeader header = {.id = client->next_id++, .command = command};
    bool ok = check_usable(client, errp) &&
              send_message(client, client->fd, &header, payload, size, fds, nfds, errp) &&
              receive_reply(client, header.id, answer, errp);
    pthread_mutex_unlock(&client->lock);
    return ok;
}

bool vfio_user_client_post(VfioUserClient *client, uint16_t command, const void *payload,
                           size_t size, GError **errp)
{
    pthread_mutex_lock(&client->lock);
    VfioUserHeader header = {
        .id = client->next_id++, .command = command, .flags = VFIO_USER_NO_REPLY};
    bool ok = check_usable(client, errp) &&
              send_message(client, client->fd, &header, payload, size, NULL, 0, errp);
    pthread_mutex_unlock(&client->lock);
    return ok;
}

bool vfio_user_client_send_raw(VfioUserClient *client, const void *bytes, size_t size,
                               const int *fds, unsigned nfds, GError **errp)
{
    struct iovec iov = {(void *)bytes, size};
    pthread_mutex_lock(&client->lock);
    bool ok =
        check_usable(client, errp) && send_bytes(client, client->fd, &iov, 1, fds, nfds, errp);
    pthread_mutex_unlock(&client->lock);
    return ok;
}

bool vfio_user_client_receive(VfioUserClient *client, VfioUserAnswer *answer, GError **errp)
{
    memset(answer, 0, sizeof(*answer));
    pthread_mutex_lock(&client->lock);
    bool ok = check_usable(client, errp) && receive_reply(client, -1, answer, errp);
    pthread_mutex_unlock(&client->lock);
    return ok;
}

/* --- negotiation --- */

static json_object *all_capabilities(void)
{
    json_object *all = json_object_new_object();
    json_object *twin = json_object_new_object();
    json_object_object_add(all, "max_msg_fds", json_object_new_int(VFIO_USER_CLIENT_MAX_FDS));
    json_object_object_add(all, "max_data_xfer_size",
                           json_object_new_int(VFIO_USER_DEFAULT_MAX_XFER));
    json_object_object_add(all, "pgsizes", json_object_new_int(4096));
    json_object_object_add(all, "max_dma_maps",
                           json_object_new_int(VFIO_USER_DEFAULT_MAX_DMA_MAPS));
    json_object_object_add(all, "write_multiple", json_object_new_boolean(true));
    json_object_object_add(twin, "supported", json_object_new_boolean(true));
    json_object_object_add(all, "twin_socket", twin);
    return all;
}

/* {"capabilities": …}, as text. */
static char *proposal_new(const char *capabilities)
{
    json_object *all = capabilities ? NULL : all_capabilities();
    char *text = g_strdup_printf("{\"capabilities\": %s}",
                                 all ? json_object_to_json_string_ext(all, JSON_C_TO_STRING_PLAIN)
                                     : capabilities);
    json_object_put(all);
    return text;
}

/* Takes limits and the twin socket from the server's capabilities. */
static bool take_capabilities(VfioUserClient *client, VfioUserAnswer *answer, GError **errp)
{
    const VfioUserVersion *version = (VfioUserVersion *)answer->data;
    g_autofree char *text = g_strndup(version->data, answer->size - sizeof(*version));
    json_object *data = json_tokener_parse(text);
    json_object *value, *supported, *index;
    if (!data || !json_object_object_get_ex(data, "capabilities", &value)) {
        json_object_put(data);
        return set_broken(client, errp, "the server's version data is not understood");
    }
    json_object_put(client->capabilities);
    client->capabilities = json_object_get(value);
    json_object_put(data);
    if (json_object_object_get_ex(client->capabilities, "max_data_xfer_size", &value)) {
        client->max_transfer =
            (uint32_t)CLAMP(json_object_get_int64(value), 8, VFIO_USER_DEFAULT_MAX_XFER);
    }
    if (!json_object_object_get_ex(client->capabilities, "twin_socket", &value) ||
        !json_object_object_get_ex(value, "supported", &supported) ||
        !json_object_get_boolean(supported)) {
        return true;
    }
    int64_t i =
        json_object_object_get_ex(value, "fd_index", &index) ? json_object_get_int64(index) : -1;
    if (i < 0 || i >= answer->nfds) {
        return set_broken(client, errp, "the server names a twin socket that it did not send");
    }
    client->twin_fd = answer->fds[i];
    answer->fds[i] = -1;
    return true;
}

bool vfio_user_client_negotiate(VfioUserClient *client, const char *capabilities, GError **errp)
{
    g_autofree char *text = proposal_new(capabilities);
    size_t length = strlen(text) + 1;
    g_autofree VfioUserVersion *version = g_malloc0(sizeof(*version) + length);
    VfioUserAnswer answer;
    version->major = VFIO_USER_MAJOR;
    version->minor = VFIO_USER_MINOR;
    memcpy(version->data, text, length);
    if (!vfio_user_client_request(client, VFIO_USER_VERSION, version, sizeof(*version) + length,
                                  NULL, 0, &answer, errp)) {
        return false;
    }
    const VfioUserVersion *theirs = (VfioUserVersion *)answer.data;
    bool ok = !answer.error && answer.size > sizeof(*theirs) && theirs->major == VFIO_USER_MAJOR &&
              theirs->minor <= VFIO_USER_MINOR;
    if (!ok) {
        set_broken(client, errp, "the server refuses version 0.0");
    }
    ok = ok && take_capabilities(client, &answer, errp);
    vfio_user_answer_clear(&answer);
    return ok;
}

/* --- another connection --- */

bool vfio_user_client_take_over(VfioUserClient *client, VfioUserClient *other, GError **errp)
{
    pthread_mutex_lock(&client->lock);
    bool ok = dup3(other->fd, client->fd, O_CLOEXEC) >= 0 &&
              (client->twin_fd < 0 || other->twin_fd < 0 ||
               dup3(other->twin_fd, client->twin_fd, O_CLOEXEC) >= 0);
    if (!ok) {
        set_broken(client, errp, g_strerror(errno));
    } else if (client->twin_fd < 0 || other->twin_fd < 0) {
        int twin_fd = client->twin_fd;
        client->twin_fd = other->twin_fd;
        other->twin_fd = twin_fd;
    }
    if (ok) {
        json_object *capabilities = client->capabilities;
        client->capabilities = other->capabilities;
        other->capabilities = capabilities;
        client->max_transfer = other->max_transfer;
        client->next_id = other->next_id;
        __atomic_store_n(&client->broken, other->broken, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&client->lock);
    vfio_user_client_free(other);
    return ok;
}

/* --- memory --- */

void vfio_user_client_set_memory(VfioUserClient *client, uint64_t addr, uint64_t size, void *host)
{
    pthread_mutex_lock(&client->lock);
    for (guint i = client->memory->len; i-- > 0;) {
        if (g_array_index(client->memory, MemoryPiece, i).addr == addr) {
            g_array_remove_index(client->memory, i);
        }
    }
    if (host) {
        MemoryPiece piece = {addr, size, host};
        g_array_append_val(client->memory, piece);
    }
    pthread_mutex_unlock(&client->lock);
}

uint64_t vfio_user_client_dma_reads(VfioUserClient *client)
{
    return __atomic_load_n(&client->dma_reads, __ATOMIC_RELAXED);
}

uint64_t vfio_user_client_dma_writes(VfioUserClient *client)
{
    return __atomic_load_n(&client->dma_writes, __ATOMIC_RELAXED);
}

void vfio_user_client_set_dma_failure(VfioUserClient *client, int error)
{
    pthread_mutex_lock(&client->lock);
    client->dma_failure = error;
    pthread_mutex_unlock(&client->lock);
}
