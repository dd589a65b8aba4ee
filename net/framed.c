/*
 * Frames over a connected stream socket: length (32 bits, big-endian), then that many bytes.
 *
 *   socket → peer   Bytes are read in large pieces and whole frames sent as batches, straight from
 *                   the buffer.  What the peer does not take stays there and the socket is not
 *                   read until the peer says it can take more.
 *   peer → socket   A batch goes out in one system call.  A frame of which the socket took a part
 *                   is kept until the rest is gone; further frames stay the sender's until the
 *                   socket is writable again.
 *
 * A length that cannot be ends the connection with a message: nothing after it can be trusted.
 * Data followed by end of file is still delivered, also when sending has failed already.
 *
 * Threads: data moves in the client's loop.  It only marks a connection as ended; closing, and
 * what follows from it (texts, events, connecting again), is the main thread's.
 */
#include "net/framed.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/error.h"
#include "util/iov.h"
#include "util/log.h"

#define LENGTH_SIZE   4
#define STREAM_BUFFER (256 * 1024) /* holds at least three of the longest frames */
#define BATCH         64
#define IOV_LIMIT     1024 /* the kernel's UIO_MAXIOV */

static void framed_readable(void *opaque);
static void framed_writable(void *opaque);

static void update_handlers(FramedLink *l)
{
    if (framed_is_open(l)) {
        event_loop_set_fd_handler(l->nc->loop, l->fd, l->want_read ? framed_readable : NULL,
                                  l->want_write ? framed_writable : NULL, l);
    }
}

static void set_want_read(FramedLink *l, bool want)
{
    if (l->want_read != want) {
        l->want_read = want;
        update_handlers(l);
    }
}

static void set_want_write(FramedLink *l, bool want)
{
    if (l->want_write != want) {
        l->want_write = want;
        update_handlers(l);
    }
}

static uint32_t read_length(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

/* What is left of a frame that never came whole must not stand in front of another connection. */
static void trim_to_whole_frames(FramedLink *l)
{
    size_t at = l->in_start;
    while (l->in_end - at >= LENGTH_SIZE) {
        uint32_t size = read_length(l->in + at);
        if (size > l->in_end - at - LENGTH_SIZE) {
            break;
        }
        at += LENGTH_SIZE + size;
    }
    l->in_end = at;
}

static void drop_kept(FramedLink *l)
{
    if (l->out_end > l->out_start) {
        net_count_drop(l->nc, NET_DROP_HOST_ERROR, 1);
    }
    l->out_start = l->out_end = 0;
}

/* In the client's loop: no more of this connection. */
static void forget(void *opaque)
{
    FramedLink *l = opaque;
    if (l->fd < 0) {
        return;
    }
    event_loop_set_fd_handler(l->nc->loop, l->fd, NULL, NULL, NULL);
    close(l->fd);
    l->fd = -1;
    l->ended = l->send_ended = false;
    l->want_read = l->want_write = false;
    trim_to_whole_frames(l);
    drop_kept(l);
}

/* Main thread. */
static void report_end(void *opaque)
{
    FramedLink *l = opaque;
    event_loop_run_sync(l->nc->loop, forget, l);
    l->disconnected(l->nc);
}

/* In an event: the connection is over.  Frames of the peer's that wait go (counted) instead of
 * waiting. */
static void connection_ended(FramedLink *l)
{
    event_loop_set_fd_handler(l->nc->loop, l->fd, NULL, NULL, NULL);
    l->ended = true;
    l->want_read = l->want_write = false;
    drop_kept(l);
    bh_schedule(l->report);
    net_peer_writable(l->nc);
}

/* ---- socket → peer ---- */

/* Finds up to BATCH whole frames from in_start.  False: there is an impossible length where the
 * next one should begin, and none was found before it. */
static bool find_frames(FramedLink *l, NetPacket *pkts, struct iovec *iov, unsigned *count)
{
    size_t at = l->in_start;
    unsigned n = 0;
    while (n < BATCH && l->in_end - at >= LENGTH_SIZE) {
        uint32_t size = read_length(l->in + at);
        if (size > NET_MAX_FRAME) {
            *count = n;
            return n > 0;
        }
        if (l->in_end - at - LENGTH_SIZE < size) {
            break;
        }
        if (size == 0) {
            if (n > 0) {
                break; /* ends the batch; the next round meets it first */
            }
            net_count_drop(l->nc, NET_DROP_BAD_HEADER, 1);
            l->in_start = at += LENGTH_SIZE;
            continue;
        }
        iov[n] = (struct iovec){l->in + at + LENGTH_SIZE, size};
        pkts[n] = (NetPacket){&iov[n], 1, size};
        at += LENGTH_SIZE + size;
        n++;
    }
    *count = n;
    return true;
}

/* Once a second at most: whoever may connect could fill a disk. */
static void warn_bad_length(const FramedLink *l, uint32_t size)
{
    static LogRate rate;
    unsigned left_out;
    if (log_rate_ok(&rate, &left_out)) {
        warn_report("netdev '%s': a frame of %u bytes announced, at most %u are possible: "
                    "connection closed",
                    l->nc->name, size, NET_MAX_FRAME);
    }
}

/* Sends what whole frames there are.  False: the peer does not take more now. */
static bool deliver(FramedLink *l)
{
    NetPacket pkts[BATCH];
    struct iovec iov[BATCH];
    unsigned n;
    for (;;) {
        if (!find_frames(l, pkts, iov, &n)) {
            warn_bad_length(l, read_length(l->in + l->in_start));
            net_count_drop(l->nc, NET_DROP_TOO_LONG, 1);
            l->in_start = l->in_end = 0;
            if (framed_is_open(l)) {
                connection_ended(l);
            }
            return true;
        }
        if (n == 0) {
            return true;
        }
        unsigned taken = net_send_batch(l->nc, pkts, n);
        for (unsigned i = 0; i < taken; i++) {
            l->in_start += LENGTH_SIZE + pkts[i].size;
        }
        if (taken < n) {
            return false;
        }
    }
}

static bool deliver_guarded(FramedLink *l)
{
    l->delivering = true;
    bool all = deliver(l);
    l->delivering = false;
    return all;
}

static void framed_readable(void *opaque)
{
    FramedLink *l = opaque;
    if (l->in_start > 0) {
        memmove(l->in, l->in + l->in_start, l->in_end - l->in_start);
        l->in_end -= l->in_start;
        l->in_start = 0;
    }
    ssize_t n = recv(l->fd, l->in + l->in_end, STREAM_BUFFER - l->in_end, MSG_DONTWAIT);
    if (n > 0) {
        l->in_end += n;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        trim_to_whole_frames(l);
        connection_ended(l);
        return;
    }
    if (!deliver_guarded(l)) {
        set_want_read(l, false);
    }
}

void framed_peer_writable(FramedLink *l)
{
    if (!l->delivering && l->in && deliver_guarded(l) && framed_is_open(l)) {
        set_want_read(l, true);
    }
}

/* ---- peer → socket ---- */

bool framed_can_receive(FramedLink *l)
{
    return !l->want_write;
}

/* Keeps what is left of @pkt (header included) after its first @sent bytes went out. */
static void keep_rest(FramedLink *l, const uint8_t header[LENGTH_SIZE], const NetPacket *pkt,
                      size_t sent)
{
    if (!l->out) {
        l->out = g_malloc(LENGTH_SIZE + NET_MAX_FRAME);
    }
    memcpy(l->out, header, LENGTH_SIZE);
    iov_to_buf(pkt->iov, pkt->iovcnt, 0, l->out + LENGTH_SIZE, pkt->size);
    l->out_start = sent;
    l->out_end = LENGTH_SIZE + pkt->size;
}

static void write_length(uint8_t *p, const NetPacket *pkt)
{
    uint32_t be = GUINT32_TO_BE((uint32_t)pkt->size);
    memcpy(p, &be, LENGTH_SIZE);
}

/* False: the socket takes nothing now. */
static bool send_failed(FramedLink *l, unsigned *done)
{
    if (errno == EAGAIN) {
        set_want_write(l, true);
    } else if (errno == ENOBUFS || errno == ENOMEM) {
        net_count_drop(l->nc, NET_DROP_HOST_ERROR, 1);
        (*done)++;
        return true;
    } else {
        /* What the other end sent before it went is still read. */
        l->send_ended = true;
    }
    return false;
}

/* Sends packets [*done, n) as far as one sendmsg() goes, and moves *done.  False: stop. */
static bool send_some(FramedLink *l, NetPacket *pkts, unsigned n, unsigned *done)
{
    struct iovec iov[IOV_LIMIT];
    uint8_t headers[NET_BATCH_MAX][LENGTH_SIZE];
    g_autofree uint8_t *linear = NULL;
    unsigned cnt = 0, i = *done;
    for (; i < n && cnt + pkts[i].iovcnt + 1 <= IOV_LIMIT; i++) {
        write_length(headers[i], &pkts[i]);
        iov[cnt++] = (struct iovec){headers[i], LENGTH_SIZE};
        memcpy(&iov[cnt], pkts[i].iov, pkts[i].iovcnt * sizeof(*iov));
        cnt += pkts[i].iovcnt;
    }
    if (i == *done) { /* more pieces than one call takes: send it as one */
        write_length(headers[i], &pkts[i]);
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
        sent = sendmsg(l->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        return send_failed(l, done);
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
        keep_rest(l, headers[*done], &pkts[*done], left);
        (*done)++;
    }
    set_want_write(l, true);
    return false;
}

unsigned framed_receive(FramedLink *l, NetPacket *pkts, unsigned n)
{
    unsigned done = 0;
    if (l->want_write) {
        return 0;
    }
    while (framed_is_open(l) && !l->send_ended && done < n && send_some(l, pkts, n, &done)) {
    }
    if (!framed_is_open(l) || l->send_ended) {
        net_count_drop(l->nc, NET_DROP_NOT_READY, n - done);
        return n;
    }
    return done;
}

static void framed_writable(void *opaque)
{
    FramedLink *l = opaque;
    if (l->out_end > l->out_start) {
        ssize_t n = send(l->fd, l->out + l->out_start, l->out_end - l->out_start,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            l->send_ended = true;
            drop_kept(l);
        }
        l->out_start += n > 0 ? n : 0;
        if (l->out_end > l->out_start) {
            return;
        }
        l->out_start = l->out_end = 0;
    }
    set_want_write(l, false);
    net_peer_writable(l->nc);
}

/* ---- life ---- */

void framed_init(FramedLink *l, NetClient *nc, void (*disconnected)(NetClient *nc))
{
    *l = (FramedLink){.nc = nc, .fd = -1, .disconnected = disconnected};
    l->report = bh_new(event_loop_main(), report_end, l);
}

static void start(void *opaque)
{
    FramedLink *l = opaque;
    if (!l->in) {
        l->in = g_malloc(STREAM_BUFFER);
    }
    l->fd = l->new_fd;
    /* Frames of the connection before may still wait: they go first. */
    l->want_read = l->in_start == l->in_end;
    update_handlers(l);
}

void framed_open(FramedLink *l, int fd)
{
    l->new_fd = fd;
    event_loop_run_sync(l->nc->loop, start, l);
}

void framed_close(FramedLink *l)
{
    event_loop_run_sync(l->nc->loop, forget, l);
    bh_cancel(l->report);
}

void framed_destroy(FramedLink *l)
{
    framed_close(l);
    bh_delete(l->report);
    g_free(l->in);
    g_free(l->out);
}

static void detach(void *opaque)
{
    FramedLink *l = opaque;
    if (framed_is_open(l)) {
        event_loop_set_fd_handler(l->nc->loop, l->fd, NULL, NULL, NULL);
    }
}

static void attach(void *opaque)
{
    update_handlers(opaque);
}

void framed_set_loop(FramedLink *l, EventLoop *loop)
{
    event_loop_run_sync(l->nc->loop, detach, l);
    l->nc->loop = loop;
    event_loop_run_sync(loop, attach, l);
}
