/*
 * -netdev socket,fd=N: frames over a socket that somebody else opened.
 *
 * A stream socket carries each frame behind its length, 32 bits big-endian; a datagram socket one
 * frame in each datagram.  Both directions have back-pressure and neither loses a frame to it:
 *
 *   socket → peer   Frames are read in batches.  What the peer does not take stays in the buffer
 *                   and the socket is not read until the peer says it can take more.
 *   peer → socket   Batches go out in one system call.  A frame of which a stream socket took a
 *                   part is kept until the rest is gone; further frames stay the sender's until
 *                   the socket is writable again.
 *
 * A stream that sends an impossible length is closed with a message: nothing after it can be
 * trusted.  Data followed by end of file is still delivered.
 *
 * Not here: sockets that are opened, listened on or reconnected by us.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/net-internal.h"
#include "qapi/qapi-types.h"
#include "util/error.h"
#include "util/iov.h"

#define LENGTH_SIZE   4
#define STREAM_BUFFER (256 * 1024) /* holds at least three of the longest frames */
#define READ_BATCH    64
#define IOV_LIMIT     1024 /* the kernel's UIO_MAXIOV */

typedef struct SocketClient {
    NetClient nc;
    int fd; /* -1: closed */
    bool stream;
    bool want_read, want_write;
    bool delivering;

    /* From the socket.  Stream: bytes [in_start, in_end) of @in.  Datagram: frames
     * [in_start, in_end), each in its NET_MAX_FRAME bytes of @in. */
    uint8_t *in;
    size_t in_start, in_end;
    size_t in_size[READ_BATCH];

    /* To a stream socket: the rest of a frame that went out in part. */
    uint8_t *out;
    size_t out_start, out_end;
} SocketClient;

static void socket_readable(void *opaque);
static void socket_writable(void *opaque);

static void update_handlers(SocketClient *s)
{
    if (s->fd >= 0) {
        event_loop_set_fd_handler(s->nc.loop, s->fd, s->want_read ? socket_readable : NULL,
                                  s->want_write ? socket_writable : NULL, s);
    }
}

static void set_want_read(SocketClient *s, bool want)
{
    if (s->want_read != want) {
        s->want_read = want;
        update_handlers(s);
    }
}

static void set_want_write(SocketClient *s, bool want)
{
    if (s->want_write != want) {
        s->want_write = want;
        update_handlers(s);
    }
}

/* Ends the connection; frames read already can still be delivered. */
static void socket_close(SocketClient *s)
{
    if (s->fd < 0) {
        return;
    }
    if (s->want_read || s->want_write) {
        event_loop_set_fd_handler(s->nc.loop, s->fd, NULL, NULL, NULL);
    }
    close(s->fd);
    s->fd = -1;
    s->want_read = s->want_write = false;
    if (s->out_end > s->out_start) {
        net_count_drop(&s->nc, NET_DROP_HOST_ERROR, 1);
        s->out_start = s->out_end = 0;
    }
    net_set_info(&s->nc, "disconnected");
}

/* Closes from an event: the device's frames that wait for us go (counted) instead of waiting. */
static void socket_close_and_resume(SocketClient *s)
{
    socket_close(s);
    net_peer_writable(&s->nc);
}

/* ---- socket → peer ---- */

static uint32_t read_length(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

/*
 * Sends what whole frames the stream buffer holds.  False: the peer does not take more now.
 * An impossible length closes the socket and empties the buffer.
 */
static bool stream_deliver(SocketClient *s)
{
    NetPacket pkts[READ_BATCH];
    struct iovec iov[READ_BATCH];
    for (;;) {
        unsigned n = 0;
        size_t at = s->in_start;
        bool bad = false;
        while (n < READ_BATCH && s->in_end - at >= LENGTH_SIZE) {
            uint32_t size = read_length(s->in + at);
            if (size > NET_MAX_FRAME) {
                bad = true;
                break;
            }
            if (s->in_end - at - LENGTH_SIZE < size) {
                break;
            }
            at += LENGTH_SIZE;
            if (size == 0) {
                if (n > 0) {
                    break; /* ends the batch; the next round meets it first */
                }
                net_count_drop(&s->nc, NET_DROP_BAD_HEADER, 1);
                s->in_start = at;
                continue;
            }
            iov[n] = (struct iovec){s->in + at, size};
            pkts[n] = (NetPacket){&iov[n], 1, size};
            at += size;
            n++;
        }
        if (n == 0 && bad) {
            warn_report("netdev '%s': a frame of %u bytes announced, at most %u are possible: "
                        "connection closed",
                        s->nc.name, read_length(s->in + s->in_start), NET_MAX_FRAME);
            net_count_drop(&s->nc, NET_DROP_TOO_LONG, 1);
            s->in_start = s->in_end = 0;
            socket_close_and_resume(s);
            return true;
        }
        if (n == 0) {
            return true;
        }
        unsigned taken = net_send_batch(&s->nc, pkts, n);
        for (unsigned i = 0; i < taken; i++) {
            s->in_start += LENGTH_SIZE + pkts[i].size;
        }
        if (taken < n) {
            return false;
        }
    }
}

static bool dgram_deliver(SocketClient *s)
{
    NetPacket pkts[READ_BATCH];
    struct iovec iov[READ_BATCH];
    unsigned n = 0;
    for (size_t i = s->in_start; i < s->in_end; i++, n++) {
        iov[n] = (struct iovec){s->in + i * NET_MAX_FRAME, s->in_size[i]};
        pkts[n] = (NetPacket){&iov[n], 1, s->in_size[i]};
    }
    if (n > 0) {
        s->in_start += net_send_batch(&s->nc, pkts, n);
    }
    return s->in_start == s->in_end;
}

/* False: frames are left and the socket is not to be read. */
static bool socket_deliver(SocketClient *s)
{
    s->delivering = true;
    bool all = s->stream ? stream_deliver(s) : dgram_deliver(s);
    s->delivering = false;
    return all;
}

static void stream_read(SocketClient *s)
{
    if (s->in_start > 0) {
        memmove(s->in, s->in + s->in_start, s->in_end - s->in_start);
        s->in_end -= s->in_start;
        s->in_start = 0;
    }
    ssize_t n = recv(s->fd, s->in + s->in_end, STREAM_BUFFER - s->in_end, MSG_DONTWAIT);
    if (n > 0) {
        s->in_end += n;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        socket_close_and_resume(s);
    }
}

static void dgram_read(SocketClient *s)
{
    struct mmsghdr msgs[READ_BATCH] = {0};
    struct iovec iov[READ_BATCH];
    for (unsigned i = 0; i < READ_BATCH; i++) {
        iov[i] = (struct iovec){s->in + i * NET_MAX_FRAME, NET_MAX_FRAME};
        msgs[i].msg_hdr.msg_iov = &iov[i];
        msgs[i].msg_hdr.msg_iovlen = 1;
    }
    int n = recvmmsg(s->fd, msgs, READ_BATCH, MSG_DONTWAIT, NULL);
    s->in_start = s->in_end = 0;
    for (int i = 0; i < n; i++) {
        size_t size = msgs[i].msg_len;
        if (msgs[i].msg_hdr.msg_flags & MSG_TRUNC) {
            net_count_drop(&s->nc, NET_DROP_TOO_LONG, 1);
        } else if (size > 0) {
            /* Empty and long ones leave gaps: move the frame down into the first. */
            if (s->in_end != (size_t)i) {
                memcpy(s->in + s->in_end * NET_MAX_FRAME, iov[i].iov_base, size);
            }
            s->in_size[s->in_end++] = size;
        }
    }
    /* A datagram socket shut down reads as empty frames for ever. */
    struct pollfd p = {s->fd, POLLRDHUP, 0};
    if (n > 0 && s->in_end == 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP))) {
        socket_close_and_resume(s);
    }
}

static void socket_readable(void *opaque)
{
    SocketClient *s = opaque;
    if (s->stream) {
        stream_read(s);
    } else {
        dgram_read(s);
    }
    if (!socket_deliver(s) && s->fd >= 0) {
        set_want_read(s, false);
    }
}

static void socket_peer_writable(NetClient *nc)
{
    SocketClient *s = (SocketClient *)nc;
    if (!s->delivering && socket_deliver(s) && s->fd >= 0) {
        set_want_read(s, true);
    }
}

/* ---- peer → socket ---- */

static bool socket_can_receive(NetClient *nc)
{
    return !((SocketClient *)nc)->want_write;
}

/* Keeps what is left of @pkt (header included) after its first @sent bytes went out. */
static void keep_rest(SocketClient *s, const uint8_t header[LENGTH_SIZE], const NetPacket *pkt,
                      size_t sent)
{
    if (!s->out) {
        s->out = g_malloc(LENGTH_SIZE + NET_MAX_FRAME);
    }
    memcpy(s->out, header, LENGTH_SIZE);
    iov_to_buf(pkt->iov, pkt->iovcnt, 0, s->out + LENGTH_SIZE, pkt->size);
    s->out_start = sent;
    s->out_end = LENGTH_SIZE + pkt->size;
}

/*
 * Sends packets [*done, n) as far as one sendmsg() goes, and moves *done.  False: stop, the
 * socket takes no more now (or is closed).
 */
static bool stream_send(SocketClient *s, NetPacket *pkts, unsigned n, unsigned *done)
{
    struct iovec iov[IOV_LIMIT];
    uint8_t headers[NET_BATCH_MAX][LENGTH_SIZE];
    unsigned cnt = 0, i = *done;
    for (; i < n && cnt + pkts[i].iovcnt + 1 <= IOV_LIMIT; i++) {
        uint32_t be = GUINT32_TO_BE((uint32_t)pkts[i].size);
        memcpy(headers[i], &be, LENGTH_SIZE);
        iov[cnt++] = (struct iovec){headers[i], LENGTH_SIZE};
        memcpy(&iov[cnt], pkts[i].iov, pkts[i].iovcnt * sizeof(*iov));
        cnt += pkts[i].iovcnt;
    }
    g_autofree uint8_t *linear = NULL;
    if (i == *done) { /* more pieces than one call takes: send it as one */
        uint32_t be = GUINT32_TO_BE((uint32_t)pkts[i].size);
        memcpy(headers[i], &be, LENGTH_SIZE);
        linear = g_malloc(pkts[i].size);
        iov_to_buf(pkts[i].iov, pkts[i].iovcnt, 0, linear, pkts[i].size);
        iov[0] = (struct iovec){headers[i], LENGTH_SIZE};
        iov[1] = (struct iovec){linear, pkts[i].size};
        cnt = 2;
        i++;
    }

    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = cnt};
    ssize_t sent;
    do {
        sent = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        if (errno == EAGAIN) {
            set_want_write(s, true);
        } else if (errno == ENOBUFS || errno == ENOMEM) {
            net_count_drop(&s->nc, NET_DROP_HOST_ERROR, 1);
            (*done)++;
            return true;
        } else {
            socket_close(s);
        }
        return false;
    }
    size_t left = sent;
    while (*done < i && left >= LENGTH_SIZE + pkts[*done].size) {
        left -= LENGTH_SIZE + pkts[*done].size;
        (*done)++;
    }
    if (*done == i) {
        return true;
    }
    if (left > 0) {
        keep_rest(s, headers[*done], &pkts[*done], left);
        (*done)++;
    }
    set_want_write(s, true);
    return false;
}

/* As stream_send(), with one datagram a packet. */
static bool dgram_send(SocketClient *s, NetPacket *pkts, unsigned n, unsigned *done)
{
    struct mmsghdr msgs[NET_BATCH_MAX] = {0};
    struct iovec one;
    g_autofree uint8_t *linear = NULL;
    unsigned i = *done, cnt = 0;
    for (; i < n && pkts[i].iovcnt <= IOV_LIMIT; i++, cnt++) {
        msgs[cnt].msg_hdr.msg_iov = pkts[i].iov;
        msgs[cnt].msg_hdr.msg_iovlen = pkts[i].iovcnt;
    }
    if (cnt == 0) {
        linear = g_malloc(pkts[i].size);
        iov_to_buf(pkts[i].iov, pkts[i].iovcnt, 0, linear, pkts[i].size);
        one = (struct iovec){linear, pkts[i].size};
        msgs[0].msg_hdr.msg_iov = &one;
        msgs[0].msg_hdr.msg_iovlen = 1;
        cnt = 1;
    }
    int sent = sendmmsg(s->fd, msgs, cnt, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
        *done += sent;
        return true;
    }
    if (errno == EAGAIN) {
        set_want_write(s, true);
        return false;
    }
    if (errno != EINTR) {
        /* Too long for this socket, or nobody there: costs this frame only. */
        net_count_drop(&s->nc, errno == EMSGSIZE ? NET_DROP_TOO_LONG : NET_DROP_HOST_ERROR, 1);
        (*done)++;
    }
    return true;
}

static unsigned socket_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    SocketClient *s = (SocketClient *)nc;
    unsigned done = 0;
    if (s->want_write) {
        return 0;
    }
    while (s->fd >= 0 && done < n) {
        if (!(s->stream ? stream_send(s, pkts, n, &done) : dgram_send(s, pkts, n, &done))) {
            break;
        }
    }
    if (s->fd < 0) {
        net_count_drop(nc, NET_DROP_NOT_READY, n - done);
        return n;
    }
    return done;
}

static void socket_writable(void *opaque)
{
    SocketClient *s = opaque;
    if (s->out_end > s->out_start) {
        ssize_t n = send(s->fd, s->out + s->out_start, s->out_end - s->out_start,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            socket_close_and_resume(s);
            return;
        }
        s->out_start += n > 0 ? n : 0;
        if (s->out_end > s->out_start) {
            return;
        }
        s->out_start = s->out_end = 0;
    }
    set_want_write(s, false);
    net_peer_writable(&s->nc);
}

/* ---- life ---- */

static void socket_detach(void *opaque)
{
    SocketClient *s = opaque;
    if (s->fd >= 0) {
        event_loop_set_fd_handler(s->nc.loop, s->fd, NULL, NULL, NULL);
    }
}

/* Not in the loop any more and not to come back: before close, from another thread. */
static void socket_forget(void *opaque)
{
    SocketClient *s = opaque;
    socket_detach(s);
    s->want_read = s->want_write = false;
}

static void socket_attach(void *opaque)
{
    update_handlers(opaque);
}

static void socket_set_loop(NetClient *nc, EventLoop *loop)
{
    event_loop_run_sync(nc->loop, socket_detach, nc);
    nc->loop = loop;
    event_loop_run_sync(loop, socket_attach, nc);
}

static void socket_cleanup(NetClient *nc)
{
    SocketClient *s = (SocketClient *)nc;
    event_loop_run_sync(nc->loop, socket_forget, s);
    socket_close(s);
    g_free(s->in);
    g_free(s->out);
}

static const NetClientOps socket_ops = {
    .type = "socket",
    .instance_size = sizeof(SocketClient),
    .receive_batch = socket_receive,
    .can_receive = socket_can_receive,
    .peer_writable = socket_peer_writable,
    .set_loop = socket_set_loop,
    .cleanup = socket_cleanup,
};

static int socket_option(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

/* A connected stream or datagram socket.  Unconnected UNIX datagram sockets are refused: POLLOUT
 * is always ready on them while sendto() gives EAGAIN, so waiting would be spinning. */
static gboolean check_socket(const char *text, int fd, GError **errp)
{
    int type = socket_option(fd, SO_TYPE);
    struct sockaddr_storage addr;
    socklen_t size = sizeof(addr);
    if (type < 0) {
        return error_set(errp, "fd=%s is not a socket", text);
    }
    if (type != SOCK_STREAM && type != SOCK_DGRAM) {
        return error_set(errp,
                         "fd=%s is a socket of type %d: a stream or datagram socket is "
                         "needed",
                         text, type);
    }
    if (socket_option(fd, SO_ACCEPTCONN) > 0) {
        return error_set(errp, "fd=%s is a listening socket: a connected one is needed", text);
    }
    if (getpeername(fd, (struct sockaddr *)&addr, &size) < 0) {
        return error_set(errp, "fd=%s is not connected: connect() it to the other side first",
                         text);
    }
    return true;
}

gboolean net_init_socket(const Netdev *netdev, GError **errp)
{
    const NetdevSocketOptions *o = &netdev->u.socket;
    const char *later = o->listen      ? "listen"
                        : o->connect   ? "connect"
                        : o->mcast     ? "mcast"
                        : o->localaddr ? "localaddr"
                        : o->udp       ? "udp"
                                       : NULL;
    if (later) {
        return error_set(errp, "netdev '%s': %s= is not supported: socket takes fd=", netdev->id,
                         later);
    }
    if (!o->fd) {
        return error_set(errp, "netdev '%s': fd= is missing", netdev->id);
    }
    int fd = net_fd_parse("fd", o->fd, errp);
    if (fd < 0 || !check_socket(o->fd, fd, errp)) {
        return false;
    }
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        return error_set_errno(errp, errno, "fd=%s", o->fd);
    }

    SocketClient *s = (SocketClient *)net_client_new(&socket_ops, NULL, "socket", netdev->id);
    s->fd = fd;
    s->stream = socket_option(fd, SO_TYPE) == SOCK_STREAM;
    s->in = g_malloc(s->stream ? STREAM_BUFFER : (size_t)READ_BATCH * NET_MAX_FRAME);
    bool is_unix = socket_option(fd, SO_DOMAIN) == AF_UNIX;
    net_set_info(&s->nc, s->stream ? "fd=%d" : is_unix ? "fd=%d unix" : "fd=%d inet", fd);
    set_want_read(s, true);
    return true;
}
