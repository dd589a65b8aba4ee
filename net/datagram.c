/*
 * Frames over a datagram socket, one a datagram, perhaps behind a tunnel's header.
 *
 *   socket → peer   One recvmmsg() reads up to 64 datagrams, each into its own place; they are
 *                   sent as one batch.  What the peer does not take stays there, and while it can
 *                   take none the socket is not read: the kernel's queue fills, a sender over a
 *                   UNIX socket is held back, and another process that takes over finds it all.
 *   peer → socket   One sendmmsg() a batch, straight over the peer's pieces.  A full socket stops
 *                   the sender until it is writable; any other failure costs that frame, counted.
 *
 * Nothing is allocated for a packet.  A UNIX socket that sends must be connected: unconnected
 * ones are always "writable", full or not, and waiting would be spinning.
 *
 * Not here: opening sockets, or what to do when the other end is gone (recover()).
 */
#include "net/datagram.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "util/iov.h"

#define IOV_LIMIT 1024 /* the kernel's UIO_MAXIOV */
#define IN_SIZE   (NET_MAX_FRAME + DATAGRAM_HEADER_MAX)

static void datagram_readable(void *opaque);
static void datagram_writable(void *opaque);

static void update_handlers(DatagramLink *l)
{
    FdHandler *readable = l->want_read ? datagram_readable : NULL;
    FdHandler *writable = l->want_write ? datagram_writable : NULL;
    if (l->send_fd == l->fd) {
        event_loop_set_fd_handler(l->nc->loop, l->fd, readable, writable, l);
        return;
    }
    event_loop_set_fd_handler(l->nc->loop, l->fd, readable, NULL, l);
    event_loop_set_fd_handler(l->nc->loop, l->send_fd, NULL, writable, l);
}

static void set_want_read(DatagramLink *l, bool want)
{
    if (l->want_read != want) {
        l->want_read = want;
        update_handlers(l);
    }
}

static void set_want_write(DatagramLink *l, bool want)
{
    if (l->want_write != want) {
        l->want_write = want;
        update_handlers(l);
    }
}

/* ---- socket → peer ---- */

/* True when all that was read has been taken. */
static bool deliver(DatagramLink *l)
{
    l->delivering = true;
    while (l->first < l->count) {
        unsigned n = l->count - l->first;
        unsigned taken = net_send_batch(l->nc, l->pkts + l->first, n);
        l->first += taken;
        if (taken < n) {
            break;
        }
    }
    l->delivering = false;
    return l->first == l->count;
}

/* Datagram @i of the batch just read becomes a packet, or is counted as what it is. */
static void take_datagram(DatagramLink *l, unsigned i)
{
    size_t size = l->in_msgs[i].msg_len;
    uint8_t *data = l->in_iov[i].iov_base;
    ssize_t skip = 0;
    if (l->in_msgs[i].msg_hdr.msg_flags & MSG_TRUNC) {
        net_count_drop(l->nc, NET_DROP_TOO_LONG, 1);
        return;
    }
    if (size == 0) {
        return;
    }
    if (l->header) {
        skip = l->header->check(l, data, size);
        if (skip < 0 || (size_t)skip >= size) {
            net_count_drop(l->nc, NET_DROP_BAD_HEADER, 1);
            return;
        }
    }
    struct iovec *iov = &l->pkt_iov[l->count];
    *iov = (struct iovec){data + skip, size - skip};
    l->pkts[l->count++] = (NetPacket){iov, 1, iov->iov_len};
}

/* A socket that was shut down reads as empty datagrams for ever. */
static bool is_shut_down(const DatagramLink *l)
{
    struct pollfd p = {l->fd, POLLRDHUP, 0};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP));
}

static void datagram_readable(void *opaque)
{
    DatagramLink *l = opaque;
    if (!net_can_send(l->nc)) {
        set_want_read(l, false);
        return;
    }
    int n = recvmmsg(l->fd, l->in_msgs, DATAGRAM_BATCH, MSG_DONTWAIT, NULL);
    l->first = l->count = 0;
    for (int i = 0; i < n; i++) {
        take_datagram(l, i);
    }
    if (n > 0 && l->count == 0 && is_shut_down(l)) {
        l->ended = true;
        set_want_read(l, false);
        return;
    }
    if (!deliver(l)) {
        set_want_read(l, false);
    }
}

void datagram_peer_writable(DatagramLink *l)
{
    if (!l->delivering && deliver(l) && !l->ended) {
        set_want_read(l, true);
    }
}

/* ---- peer → socket ---- */

bool datagram_can_receive(DatagramLink *l)
{
    return !l->want_write;
}

static void set_message(DatagramLink *l, struct mmsghdr *msg, struct iovec *iov, unsigned cnt)
{
    msg->msg_hdr = (struct msghdr){
        .msg_name = l->to.size ? &l->to.u : NULL,
        .msg_namelen = l->to.size,
        .msg_iov = iov,
        .msg_iovlen = cnt,
    };
}

/* Describes packets from @pkts as messages, without copying; how many (0: the first has more
 * pieces than one call takes). */
static unsigned make_messages(DatagramLink *l, const NetPacket *pkts, unsigned n,
                              struct mmsghdr *msgs)
{
    unsigned i = 0, used = 0;
    if (!l->header) {
        for (; i < n && pkts[i].iovcnt <= IOV_LIMIT; i++) {
            set_message(l, &msgs[i], pkts[i].iov, pkts[i].iovcnt);
        }
        return i;
    }
    const unsigned len = l->header->send_len;
    for (; i < n && used + pkts[i].iovcnt + 1 <= IOV_LIMIT; i++) {
        struct iovec *iov = &l->out_iov[used];
        l->header->fill(l, l->headers + i * len);
        iov[0] = (struct iovec){l->headers + i * len, len};
        memcpy(iov + 1, pkts[i].iov, pkts[i].iovcnt * sizeof(*iov));
        set_message(l, &msgs[i], iov, pkts[i].iovcnt + 1);
        used += pkts[i].iovcnt + 1;
    }
    return i;
}

/* The first packet could not be sent: what becomes of it, or of all.  True: go on. */
static bool send_failed(DatagramLink *l, unsigned n, unsigned *done, bool *recovered)
{
    int errnum = errno;
    if (errnum == EAGAIN) {
        set_want_write(l, true);
        return false;
    }
    if (errnum == EINTR) {
        return true;
    }
    if (l->recover && errnum != EMSGSIZE && errnum != ENOBUFS) {
        if (!*recovered && l->recover(l, errnum)) {
            *recovered = true;
            return true;
        }
        net_count_drop(l->nc, NET_DROP_HOST_ERROR, n - *done);
        *done = n;
        return true;
    }
    /* Too long for this socket, or nobody there: costs this frame only. */
    net_count_drop(l->nc, errnum == EMSGSIZE ? NET_DROP_TOO_LONG : NET_DROP_HOST_ERROR, 1);
    (*done)++;
    return true;
}

/* Sends packets [*done, n) as far as one call goes, and moves *done.  False: stop. */
static bool send_some(DatagramLink *l, NetPacket *pkts, unsigned n, unsigned *done, bool *recovered)
{
    struct mmsghdr msgs[NET_BATCH_MAX];
    g_autofree uint8_t *linear = NULL;
    struct iovec one;
    unsigned cnt = make_messages(l, pkts + *done, n - *done, msgs);
    if (cnt == 0) {
        const NetPacket *pkt = &pkts[*done];
        linear = g_malloc(pkt->size);
        iov_to_buf(pkt->iov, pkt->iovcnt, 0, linear, pkt->size);
        one = (struct iovec){linear, pkt->size};
        cnt = make_messages(l, &(NetPacket){&one, 1, pkt->size}, 1, msgs);
    }
    int sent = sendmmsg(l->send_fd, msgs, cnt, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
        *done += sent;
        return true;
    }
    return send_failed(l, n, done, recovered);
}

unsigned datagram_receive(DatagramLink *l, NetPacket *pkts, unsigned n)
{
    unsigned done = 0;
    bool recovered = false;
    if (l->want_write) {
        return 0;
    }
    while (done < n && send_some(l, pkts, n, &done, &recovered)) {
    }
    return done;
}

static void datagram_writable(void *opaque)
{
    DatagramLink *l = opaque;
    set_want_write(l, false);
    net_peer_writable(l->nc);
}

/* ---- life ---- */

void datagram_init(DatagramLink *l, NetClient *nc, int fd, const DatagramHeader *header)
{
    memset(l, 0, sizeof(*l));
    l->nc = nc;
    l->fd = l->send_fd = fd;
    l->header = header;
    l->in = g_malloc((size_t)DATAGRAM_BATCH * IN_SIZE);
    size_t size = NET_MAX_FRAME + (header ? DATAGRAM_HEADER_MAX : 0);
    for (unsigned i = 0; i < DATAGRAM_BATCH; i++) {
        l->in_iov[i] = (struct iovec){l->in + (size_t)i * IN_SIZE, size};
        l->in_msgs[i].msg_hdr.msg_iov = &l->in_iov[i];
        l->in_msgs[i].msg_hdr.msg_iovlen = 1;
    }
    if (header) {
        l->headers = g_malloc(NET_BATCH_MAX * header->send_len);
        l->out_iov = g_new(struct iovec, IOV_LIMIT);
    }
    set_want_read(l, true);
}

static void detach(void *opaque)
{
    DatagramLink *l = opaque;
    event_loop_set_fd_handler(l->nc->loop, l->fd, NULL, NULL, NULL);
    if (l->send_fd != l->fd) {
        event_loop_set_fd_handler(l->nc->loop, l->send_fd, NULL, NULL, NULL);
    }
}

static void attach(void *opaque)
{
    update_handlers(opaque);
}

void datagram_set_send_fd(DatagramLink *l, int fd)
{
    detach(l);
    l->send_fd = fd;
    l->want_write = false;
    update_handlers(l);
}

void datagram_set_loop(DatagramLink *l, EventLoop *loop)
{
    event_loop_run_sync(l->nc->loop, detach, l);
    l->nc->loop = loop;
    event_loop_run_sync(loop, attach, l);
}

void datagram_destroy(DatagramLink *l)
{
    event_loop_run_sync(l->nc->loop, detach, l);
    close(l->fd);
    g_free(l->in);
    g_free(l->headers);
    g_free(l->out_iov);
}
