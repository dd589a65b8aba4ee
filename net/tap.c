/*
 * -netdev tap: frames to and from a tap interface of the host.
 *
 *   tap → peer   One wake-up reads a batch of frames, packed one behind the other into a small
 *                arena, and sends them as one batch.  What the peer does not take stays in the
 *                arena and the tap is not read until the peer can take more: the kernel's queue
 *                fills, and its drops are the interface's own counters.  While large frames come
 *                (TCP of the host with segmentation offload), each is read straight into memory
 *                that the peer lends, where it can; a small frame is cheaper to copy than so much
 *                memory is to hand to the kernel.
 *   peer → tap   One writev() a frame, straight over the peer's iovec.  The kernel queues or
 *                refuses; EINVAL (a header it finds wrong) and EIO (interface down) cost that one
 *                frame, counted.
 *
 * vnet headers: where the tap has them and the peer knows them, they pass through, in the length
 * the peer asked for.  A peer that does not know them never sees one: on the way out a header of
 * zeros is put in front, on the way in it is cut off (with all offloads off the kernel sends
 * nothing that needs it).
 *
 * With several queues each is a client of its own on an fd of its own.  A queue that the guest does
 * not use is detached: the kernel spreads frames over the others only.
 *
 * Not here: ioctls (tap-linux.c), options and scripts (tap-init.c), bridge helpers
 * (tap-bridge.c), vhost (tap-vhost.c; while it moves the packets the device takes none from here).
 */
#include "net/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "net/net-internal.h"
#include "util/error.h"
#include "util/iov.h"
#include "vhost/vhost.h"

#define READ_BATCH      64
#define LENT_MAX        128 /* pieces of memory for one frame */
#define ARENA_SIZE      (8 * NET_MAX_FRAME)
#define IOV_LIMIT       1024 /* the kernel's UIO_MAXIOV */
#define HDR_LEN_DEFAULT 10
#define LARGE_FRAME     8192
#define SMALL_IN_A_ROW  4 /* small frames after which no large one is expected */

typedef struct TapClient {
    NetClient nc;
    TapDevice dev;       /* dev.fd -1: the interface is gone */
    VhostBackend *vhost; /* NULL: none */
    char *downscript;    /* NULL: none */
    bool detached;       /* a queue that the guest does not use */
    bool want_read, want_write;
    bool delivering;

    unsigned expect_large; /* > 0: frames are read in place; so many small ones may still come */
    uint8_t *arena;
    NetPacket pkts[READ_BATCH]; /* frames read; [first, count) not yet taken */
    struct iovec iov[READ_BATCH];
    unsigned first, count;

    uint8_t *linear; /* a frame of more pieces than one call takes */
} TapClient;

static void tap_readable(void *opaque);
static void tap_writable(void *opaque);

static void update_handlers(TapClient *t)
{
    if (t->dev.fd >= 0 && !t->detached) {
        event_loop_set_fd_handler(t->nc.loop, t->dev.fd, t->want_read ? tap_readable : NULL,
                                  t->want_write ? tap_writable : NULL, t);
    }
}

static void set_want_read(TapClient *t, bool want)
{
    if (t->want_read != want) {
        t->want_read = want;
        update_handlers(t);
    }
}

static void set_want_write(TapClient *t, bool want)
{
    if (t->want_write != want) {
        t->want_write = want;
        update_handlers(t);
    }
}

/* The interface was deleted under us; the client stays, for the device's sake. */
static void tap_gone(TapClient *t, int errnum)
{
    warn_report("netdev '%s': tap interface '%s' is gone: %s", t->nc.name, t->dev.ifname,
                g_strerror(errnum));
    event_loop_set_fd_handler(t->nc.loop, t->dev.fd, NULL, NULL, NULL);
    close(t->dev.fd);
    t->dev.fd = -1;
    t->want_read = t->want_write = false;
    net_set_info(&t->nc, "ifname=%s,gone", t->dev.ifname);
}

/* ---- tap → peer ---- */

/* Bytes in front of a frame that are not the peer's to see. */
static unsigned hidden_header(const TapClient *t)
{
    return t->nc.vnet_hdr_len == 0 ? t->dev.hdr_len : 0;
}

/* True when all that was read has been taken. */
static bool tap_deliver(TapClient *t)
{
    t->delivering = true;
    while (t->first < t->count) {
        unsigned n = t->count - t->first;
        unsigned taken = net_send_batch(&t->nc, t->pkts + t->first, n);
        t->first += taken;
        if (taken < n) {
            break;
        }
    }
    t->delivering = false;
    return t->first == t->count;
}

static void tap_read_batch(TapClient *t)
{
    const unsigned hidden = hidden_header(t);
    size_t used = 0;
    t->first = t->count = 0;
    while (t->count < READ_BATCH && used + NET_MAX_FRAME <= ARENA_SIZE) {
        ssize_t n = read(t->dev.fd, t->arena + used, NET_MAX_FRAME);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN) {
                tap_gone(t, errno);
            }
            return;
        }
        if ((size_t)n <= hidden) {
            net_count_drop(&t->nc, NET_DROP_BAD_HEADER, 1);
            return;
        }
        t->iov[t->count] = (struct iovec){t->arena + used + hidden, n - hidden};
        t->pkts[t->count] = (NetPacket){&t->iov[t->count], 1, n - hidden};
        t->count++;
        used += (n + 63) & ~63; /* frames do not share cache lines */
        if (n >= LARGE_FRAME) {
            t->expect_large = SMALL_IN_A_ROW;
            return;
        }
    }
}

/* Reads a batch of frames where the peer wants them.  False: not a single one, read the other way.
 */
static bool tap_read_in_place(TapClient *t)
{
    struct iovec iov[LENT_MAX];
    unsigned frames = 0, pieces;
    bool lent = false;
    while (t->expect_large && frames < READ_BATCH &&
           (pieces = net_borrow_buffers(&t->nc, iov, LENT_MAX)) > 0) {
        lent = true;
        ssize_t n = readv(t->dev.fd, iov, pieces);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            if (errno == EFAULT) { /* its memory is gone, and the frame with it */
                net_count_drop(&t->nc, NET_DROP_HOST_ERROR, 1);
                t->expect_large = 0;
            } else if (errno != EAGAIN) {
                tap_gone(t, errno);
            }
            frames++;
            break;
        }
        t->expect_large = n >= LARGE_FRAME ? SMALL_IN_A_ROW : t->expect_large - 1;
        net_send_borrowed(&t->nc, iov, pieces, (size_t)n);
        frames++;
    }
    if (lent) {
        net_return_buffers(&t->nc);
    }
    return frames > 0;
}

static void tap_readable(void *opaque)
{
    TapClient *t = opaque;
    if (!net_can_send(&t->nc)) {
        set_want_read(t, false);
        return;
    }
    if (t->expect_large && hidden_header(t) == 0 && tap_read_in_place(t)) {
        return;
    }
    tap_read_batch(t);
    if (!tap_deliver(t)) {
        set_want_read(t, false);
    }
}

static void tap_peer_writable(NetClient *nc)
{
    TapClient *t = (TapClient *)nc;
    if (!t->delivering && tap_deliver(t) && t->dev.fd >= 0) {
        /* Nobody there: the kernel's queue is as good a place for the frames as any. */
        set_want_read(t, nc->peer != NULL);
    }
}

static void tap_link_changed(NetClient *nc)
{
    tap_peer_writable(nc);
}

/* ---- peer → tap ---- */

static bool tap_can_receive(NetClient *nc)
{
    return !((TapClient *)nc)->want_write;
}

static ssize_t tap_write(TapClient *t, const NetPacket *pkt)
{
    static const uint8_t zeros[64];
    struct iovec iov[IOV_LIMIT];
    const struct iovec *list = pkt->iov;
    unsigned cnt = pkt->iovcnt, hidden = hidden_header(t);
    if (cnt + 1 > IOV_LIMIT) {
        t->linear = t->linear ? t->linear : g_malloc(NET_MAX_FRAME);
        iov_to_buf(pkt->iov, pkt->iovcnt, 0, t->linear, pkt->size);
        iov[1] = (struct iovec){t->linear, pkt->size};
        list = &iov[1];
        cnt = 1;
    } else if (hidden) {
        memcpy(&iov[1], pkt->iov, cnt * sizeof(*iov));
        list = &iov[1];
    }
    if (hidden) {
        iov[0] = (struct iovec){(void *)zeros, hidden};
        list = iov;
        cnt++;
    }
    ssize_t n;
    do {
        n = cnt == 1 ? write(t->dev.fd, list[0].iov_base, list[0].iov_len)
                     : writev(t->dev.fd, list, cnt);
    } while (n < 0 && errno == EINTR);
    return n;
}

static unsigned tap_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    TapClient *t = (TapClient *)nc;
    if (t->dev.fd < 0) {
        net_count_drop(nc, NET_DROP_HOST_ERROR, n);
        return n;
    }
    if (t->detached) {
        net_count_drop(nc, NET_DROP_NOT_READY, n);
        return n;
    }
    if (t->want_write) {
        return 0;
    }
    for (unsigned i = 0; i < n; i++) {
        if (tap_write(t, &pkts[i]) >= 0) {
            continue;
        }
        if (errno == EAGAIN) {
            set_want_write(t, true);
            return i;
        }
        net_count_drop(nc, errno == EINVAL ? NET_DROP_BAD_HEADER : NET_DROP_HOST_ERROR, 1);
    }
    return n;
}

static void tap_writable(void *opaque)
{
    TapClient *t = opaque;
    set_want_write(t, false);
    net_peer_writable(&t->nc);
}

/* ---- settings ---- */

static void tap_get_caps(NetClient *nc, NetCaps *caps)
{
    TapClient *t = (TapClient *)nc;
    caps->vnet_hdr = t->dev.vnet_hdr && t->dev.fd >= 0;
    caps->offloads = t->dev.offloads;
}

static gboolean tap_set_vnet_hdr_len(NetClient *nc, unsigned len)
{
    TapClient *t = (TapClient *)nc;
    if (len > 0) {
        return t->dev.fd >= 0 && tap_device_set_hdr_len(&t->dev, len);
    }
    /* No header towards the peer; the tap's own stays, hidden, and nothing needs it. */
    static const NetOffloads none;
    if (t->dev.vnet_hdr && t->dev.fd >= 0) {
        tap_device_set_offloads(&t->dev, &none);
        tap_device_set_hdr_len(&t->dev, HDR_LEN_DEFAULT);
    }
    return true;
}

static gboolean tap_set_offloads(NetClient *nc, const NetOffloads *offloads)
{
    TapClient *t = (TapClient *)nc;
    return t->dev.fd >= 0 && tap_device_set_offloads(&t->dev, offloads);
}

static void tap_detach(void *opaque)
{
    TapClient *t = opaque;
    if (t->dev.fd >= 0) {
        event_loop_set_fd_handler(t->nc.loop, t->dev.fd, NULL, NULL, NULL);
    }
}

static void tap_attach(void *opaque)
{
    update_handlers(opaque);
}

static void tap_set_loop(NetClient *nc, EventLoop *loop)
{
    event_loop_run_sync(nc->loop, tap_detach, nc);
    nc->loop = loop;
    event_loop_run_sync(loop, tap_attach, nc);
}

typedef struct SetEnabled {
    TapClient *tap;
    bool enabled;
    GError **errp;
    gboolean ok;
} SetEnabled;

/* In the client's loop.  A detached fd is always in error to poll(): it is not watched. */
static void set_enabled(void *opaque)
{
    SetEnabled *s = opaque;
    TapClient *t = s->tap;
    if (t->detached == !s->enabled || t->dev.fd < 0) {
        s->ok = true;
        return;
    }
    if (!s->enabled) {
        tap_detach(t);
    }
    s->ok = tap_device_set_queue(&t->dev, s->enabled, s->errp);
    t->detached = s->ok ? !s->enabled : t->detached;
    update_handlers(t);
    if (t->detached && t->want_write) {
        t->want_write = false;
        net_peer_writable(&t->nc);
    }
}

static gboolean tap_set_enabled(NetClient *nc, bool enabled, GError **errp)
{
    SetEnabled s = {(TapClient *)nc, enabled, errp, false};
    event_loop_run_sync(nc->loop, set_enabled, &s);
    return s.ok;
}

/* ---- life ---- */

static VhostBackend *tap_get_vhost(NetClient *nc)
{
    return ((TapClient *)nc)->vhost;
}

void tap_client_set_vhost(NetClient *nc, VhostBackend *vhost)
{
    ((TapClient *)nc)->vhost = vhost;
}

static void tap_cleanup(NetClient *nc)
{
    TapClient *t = (TapClient *)nc;
    VhostBackend *vhost = t->vhost;
    t->vhost = NULL;
    vhost_backend_free(vhost);
    event_loop_run_sync(nc->loop, tap_detach, t);
    if (t->downscript) {
        tap_run_downscript(t->downscript, t->dev.fd >= 0 ? t->dev.ifname : NULL);
    }
    if (t->dev.fd >= 0) {
        close(t->dev.fd);
    }
    g_free(t->downscript);
    g_free(t->arena);
    g_free(t->linear);
}

static const NetClientOps tap_ops = {
    .type = "tap",
    .instance_size = sizeof(TapClient),
    .receive_batch = tap_receive,
    .can_receive = tap_can_receive,
    .peer_writable = tap_peer_writable,
    .link_changed = tap_link_changed,
    .get_caps = tap_get_caps,
    .set_vnet_hdr_len = tap_set_vnet_hdr_len,
    .set_offloads = tap_set_offloads,
    .set_enabled = tap_set_enabled,
    .get_vhost = tap_get_vhost,
    .set_loop = tap_set_loop,
    .cleanup = tap_cleanup,
};

NetClient *tap_client_new(const char *id, unsigned queue, const TapDevice *dev, char *downscript)
{
    TapClient *t = (TapClient *)net_client_new_queue(&tap_ops, "tap", id, queue);
    t->dev = *dev;
    t->downscript = downscript;
    t->arena = g_malloc(ARENA_SIZE);
    return &t->nc;
}
