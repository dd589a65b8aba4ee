/*
 * Messages on a socket.
 *
 * A message is read in two steps, header and payload, each of exactly the bytes that belong to it:
 * descriptors come with the first byte of the message they were sent with, and a read that went
 * on into the next message could not tell whose they are.  Writing never blocks: what the peer
 * does not take is queued, and while anything is queued nothing more is read, so that a client
 * that does not read its replies stops getting service, not memory.
 *
 * What makes the stream unreadable (a size that cannot be right, an error of the socket) is
 * remembered and told once, from a bottom half: whoever was in the middle of using the channel
 * has finished by then.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vfio-user-internal.h"

#define MESSAGES_PER_WAKEUP 64 /* then other handlers of the loop get their turn */
/* Commands that may come while the client owes us a reply. */
#define KEPT_MAX_MESSAGES 4096
#define KEPT_MAX_BYTES    (8u << 20)
#define HEADER_SIZE       sizeof(VfioUserHeader)

typedef struct Outgoing {
    GByteArray *bytes;
    size_t done;
    int *fds;
    unsigned nfds;
} Outgoing;

struct VfioUserChannel {
    int fd;
    const VfioUserChannelOps *ops;
    void *opaque;
    VfioUserMessage *in; /* being read */
    size_t in_done;      /* bytes of it, header first */
    GQueue out;          /* Outgoing */
    GQueue kept;         /* VfioUserMessage: commands that came while a call waited */
    size_t kept_bytes;
    BottomHalf *later; /* runs what was kept, tells of the end */
    bool held;         /* nothing is read, nothing that was kept is run */
    bool failed, told;
    char *why;     /* with @failed; NULL: end of stream */
    unsigned busy; /* callbacks running: freed when they have ended */
    bool freed;
};

void vfio_user_message_free(VfioUserMessage *message)
{
    if (!message) {
        return;
    }
    for (unsigned i = 0; i < message->nfds; i++) {
        if (message->fds[i] >= 0) {
            close(message->fds[i]);
        }
    }
    g_free(message->fds);
    g_free(message->payload);
    g_free(message);
}

int vfio_user_message_take_fd(VfioUserMessage *message, unsigned i)
{
    int fd = i < message->nfds ? message->fds[i] : -1;

    if (fd >= 0) {
        message->fds[i] = -1;
    }
    return fd;
}

static void outgoing_free(Outgoing *out)
{
    for (unsigned i = 0; i < out->nfds; i++) {
        close(out->fds[i]);
    }
    g_free(out->fds);
    g_byte_array_unref(out->bytes);
    g_free(out);
}

static void channel_readable(void *opaque);
static void channel_writable(void *opaque);

static void watch(VfioUserChannel *channel)
{
    bool queued = !g_queue_is_empty(&channel->out);
    bool off = channel->freed || channel->failed;

    event_loop_set_fd_handler(event_loop_main(), channel->fd,
                              off || queued || channel->held ? NULL : channel_readable,
                              !off && queued ? channel_writable : NULL, channel);
}

/* @why NULL: end of stream. */
static void channel_end(VfioUserChannel *channel, const char *why)
{
    if (channel->failed || channel->freed) {
        return;
    }
    channel->failed = true;
    channel->why = g_strdup(why);
    watch(channel);
    bh_schedule(channel->later);
}

void vfio_user_channel_fail(VfioUserChannel *channel, const char *why)
{
    channel_end(channel, why);
}

void vfio_user_channel_hold(VfioUserChannel *channel)
{
    channel->held = true;
    watch(channel);
}

void vfio_user_channel_go_on(VfioUserChannel *channel)
{
    channel->held = false;
    watch(channel);
    bh_schedule(channel->later);
}

/* --- reading --- */

/* Keeps the descriptors of one control message. */
static void take_fds(VfioUserMessage *in, const struct cmsghdr *control)
{
    size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);

    in->fds = g_renew(int, in->fds, in->nfds + count);
    memcpy(in->fds + in->nfds, CMSG_DATA(control), count * sizeof(int));
    in->nfds += (unsigned)count;
    while (in->nfds > MESSAGE_MAX_FDS) { /* one sendmsg cannot: it came in several */
        close(in->fds[--in->nfds]);
    }
}

/* One recvmsg into @buf.  Returns bytes, 0 at the end, -1 with errno. */
static ssize_t receive(VfioUserChannel *channel, void *buf, size_t size)
{
    union {
        char space[CMSG_SPACE(sizeof(int) * MESSAGE_MAX_FDS)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n;

    do {
        n = recvmsg(channel->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return n;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            take_fds(channel->in, c);
        }
    }
    channel->in->fds_lost |= (msg.msg_flags & MSG_CTRUNC) != 0;
    return n;
}

typedef enum ReadResult { READ_MESSAGE, READ_AGAIN, READ_ENDED } ReadResult;

/* The header is there: makes room for the payload.  False: its size cannot be right. */
static bool begin_payload(VfioUserChannel *channel)
{
    VfioUserMessage *in = channel->in;

    if (in->header.size < HEADER_SIZE || in->header.size - HEADER_SIZE > SERVER_MAX_PAYLOAD) {
        channel_end(channel, "a message of impossible size");
        return false;
    }
    in->size = in->header.size - HEADER_SIZE;
    in->payload = g_malloc(in->size + 1);
    return true;
}

/* Reads on in the current message. */
static ReadResult read_message(VfioUserChannel *channel)
{
    VfioUserMessage *in;

    if (channel->failed || channel->freed) {
        return READ_ENDED;
    }
    if (!channel->in) {
        channel->in = g_new0(VfioUserMessage, 1);
        channel->in_done = 0;
    }
    in = channel->in;
    while (channel->in_done < HEADER_SIZE + in->size) {
        bool in_header = channel->in_done < HEADER_SIZE;
        uint8_t *to = in_header ? (uint8_t *)&in->header + channel->in_done
                                : in->payload + (channel->in_done - HEADER_SIZE);
        size_t end = in_header ? HEADER_SIZE : HEADER_SIZE + in->size;
        ssize_t n = receive(channel, to, end - channel->in_done);

        if (n < 0 && errno == EAGAIN) {
            return READ_AGAIN;
        }
        if (n <= 0) {
            channel_end(channel, n < 0              ? g_strerror(errno)
                                 : channel->in_done ? "it ended within a message"
                                                    : NULL);
            return READ_ENDED;
        }
        channel->in_done += (size_t)n;
        if (in_header && channel->in_done == HEADER_SIZE && !begin_payload(channel)) {
            return READ_ENDED;
        }
    }
    return READ_MESSAGE;
}

static VfioUserMessage *take_message(VfioUserChannel *channel)
{
    VfioUserMessage *message = channel->in;

    channel->in = NULL;
    return message;
}

/* --- life --- */

static void channel_destroy(VfioUserChannel *channel)
{
    event_loop_set_fd_handler(event_loop_main(), channel->fd, NULL, NULL, NULL);
    close(channel->fd);
    bh_delete(channel->later);
    vfio_user_message_free(channel->in);
    g_queue_clear_full(&channel->out, (GDestroyNotify)outgoing_free);
    g_queue_clear_full(&channel->kept, (GDestroyNotify)vfio_user_message_free);
    g_free(channel->why);
    g_free(channel);
}

static void channel_enter(VfioUserChannel *channel)
{
    channel->busy++;
}

/* Returns false when the channel is gone. */
static bool channel_leave(VfioUserChannel *channel)
{
    bool gone = channel->freed;

    if (--channel->busy == 0 && gone) {
        channel_destroy(channel);
    }
    return !gone;
}

void vfio_user_channel_free(VfioUserChannel *channel)
{
    if (!channel || channel->freed) {
        return;
    }
    channel->freed = true;
    watch(channel);
    if (!channel->busy) {
        channel_destroy(channel);
    }
}

static void channel_readable(void *opaque)
{
    VfioUserChannel *channel = opaque;

    channel_enter(channel);
    /* Kept commands are older than what the socket holds: they go first, from the bottom half. */
    for (unsigned i = 0; i < MESSAGES_PER_WAKEUP && g_queue_is_empty(&channel->out) &&
                         g_queue_is_empty(&channel->kept) && !channel->held;
         i++) {
        if (read_message(channel) != READ_MESSAGE) {
            break;
        }
        channel->ops->message(channel->opaque, take_message(channel));
    }
    channel_leave(channel);
}

static void run_later(void *opaque)
{
    VfioUserChannel *channel = opaque;
    VfioUserMessage *message;

    channel_enter(channel);
    /* As from the socket: none while the client leaves replies unread (channel_writable()). */
    while (!channel->freed && !channel->held && g_queue_is_empty(&channel->out) &&
           (message = g_queue_pop_head(&channel->kept))) {
        channel->kept_bytes -= message->size;
        channel->ops->message(channel->opaque, message);
    }
    if (channel->failed && !channel->freed && !channel->told) {
        channel->told = true;
        channel->ops->closed(channel->opaque, channel->why);
    }
    channel_leave(channel);
}

/* --- writing --- */

/* One sendmsg.  Returns bytes, -1 with errno; fds go with the first byte. */
static ssize_t transmit(VfioUserChannel *channel, struct iovec *iov, unsigned iovcnt,
                        const int *fds, unsigned nfds)
{
    union {
        char space[CMSG_SPACE(sizeof(int) * MESSAGE_MAX_FDS)];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = iovcnt};
    ssize_t n;

    if (nfds) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
    }
    do {
        n = sendmsg(channel->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n;
}

static void channel_writable(void *opaque)
{
    VfioUserChannel *channel = opaque;
    Outgoing *out;

    while ((out = g_queue_peek_head(&channel->out))) {
        struct iovec iov = {.iov_base = out->bytes->data + out->done,
                            .iov_len = out->bytes->len - out->done};
        ssize_t n = transmit(channel, &iov, 1, out->fds, out->done ? 0 : out->nfds);

        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0) {
            channel_end(channel, g_strerror(errno));
            return;
        }
        out->done += (size_t)n;
        if (out->done == out->bytes->len) {
            outgoing_free(g_queue_pop_head(&channel->out));
        }
    }
    watch(channel);
    if (!g_queue_is_empty(&channel->kept)) {
        bh_schedule(channel->later);
    }
}

/* Keeps the rest of a message, from byte @done on. */
static void queue_rest(VfioUserChannel *channel, const struct iovec *iov, size_t done,
                       const int *fds, unsigned nfds)
{
    Outgoing *out = g_new0(Outgoing, 1);

    out->bytes = g_byte_array_new();
    g_byte_array_append(out->bytes, iov[0].iov_base, (guint)iov[0].iov_len);
    g_byte_array_append(out->bytes, iov[1].iov_base, (guint)iov[1].iov_len);
    out->done = done;
    if (nfds && !done) {
        out->fds = g_new(int, nfds);
        for (; out->nfds < nfds; out->nfds++) {
            out->fds[out->nfds] = dup(fds[out->nfds]);
            if (out->fds[out->nfds] < 0) {
                channel_end(channel, "no file descriptor left for its reply");
                break;
            }
        }
    }
    g_queue_push_tail(&channel->out, out);
    watch(channel);
}

void vfio_user_channel_send(VfioUserChannel *channel, const VfioUserHeader *header,
                            const void *payload, size_t size, const int *fds, unsigned nfds)
{
    struct iovec iov[2] = {{.iov_base = (void *)header, .iov_len = HEADER_SIZE},
                           {.iov_base = (void *)payload, .iov_len = size}};
    ssize_t n = 0;

    if (channel->freed || channel->failed) {
        return;
    }
    if (g_queue_is_empty(&channel->out)) {
        n = transmit(channel, iov, size ? 2 : 1, fds, nfds);
        if (n == (ssize_t)(HEADER_SIZE + size)) {
            return;
        }
        if (n < 0 && errno == EPIPE) {
            return; /* what the peer sent before it went away is still to be read */
        }
        if (n < 0 && errno != EAGAIN) {
            channel_end(channel, g_strerror(errno));
            return;
        }
    }
    queue_rest(channel, iov, n > 0 ? (size_t)n : 0, fds, nfds);
}

/* --- calls --- */

static bool is_reply_to(const VfioUserMessage *message, const VfioUserHeader *header)
{
    return message->header.id == header->id && message->header.command == header->command;
}

/* A command that came while a reply is awaited. */
static void keep(VfioUserChannel *channel, VfioUserMessage *message)
{
    channel->kept_bytes += message->size;
    g_queue_push_tail(&channel->kept, message);
    bh_schedule(channel->later);
    if (channel->kept_bytes > KEPT_MAX_BYTES || channel->kept.length > KEPT_MAX_MESSAGES) {
        channel_end(channel, "it sends commands and answers none");
    }
}

/* Waits until the socket is ready or @deadline; false: too late. */
static bool wait_ready(VfioUserChannel *channel, int64_t deadline, short *revents)
{
    bool queued = !g_queue_is_empty(&channel->out);
    int64_t left = deadline - clock_get_ns(CLOCK_HOST);
    struct pollfd pfd = {.fd = channel->fd, .events = (short)(POLLIN | (queued ? POLLOUT : 0))};

    *revents = 0;
    if (left <= 0) {
        return false;
    }
    if (poll(&pfd, 1, (int)(left / 1000000) + 1) > 0) {
        *revents = pfd.revents;
    }
    return true;
}

VfioUserMessage *vfio_user_channel_call(VfioUserChannel *channel, const VfioUserHeader *header,
                                        const void *payload, size_t size, int timeout_ms)
{
    int64_t deadline = clock_get_ns(CLOCK_HOST) + (int64_t)timeout_ms * 1000000;
    VfioUserMessage *reply = NULL;

    channel_enter(channel);
    vfio_user_channel_send(channel, header, payload, size, NULL, 0);
    while (!reply && !channel->failed && !channel->freed) {
        short revents;

        if (!wait_ready(channel, deadline, &revents)) {
            channel_end(channel, "it does not answer");
            break;
        }
        if (revents & POLLOUT) {
            channel_writable(channel);
        }
        if (read_message(channel) != READ_MESSAGE) {
            continue;
        }
        VfioUserMessage *message = take_message(channel);

        if ((message->header.flags & VFIO_USER_TYPE_MASK) != VFIO_USER_REPLY) {
            keep(channel, message);
        } else if (is_reply_to(message, header)) {
            reply = message;
        } else {
            vfio_user_message_free(message);
        }
    }
    if (!channel_leave(channel)) {
        g_clear_pointer(&reply, vfio_user_message_free);
    }
    return reply;
}

VfioUserChannel *vfio_user_channel_new(int fd, const VfioUserChannelOps *ops, void *opaque)
{
    VfioUserChannel *channel = g_new0(VfioUserChannel, 1);

    channel->fd = fd;
    channel->ops = ops;
    channel->opaque = opaque;
    g_queue_init(&channel->out);
    g_queue_init(&channel->kept);
    channel->later = bh_new(event_loop_main(), run_later, channel);
    watch(channel);
    return channel;
}
