/*
 * -netdev tap: frames to and from a tap interface of the host.
 *
 *   tap → peer   One wake-up reads a batch of frames, packed one behind the other into a small
 *                arena, and sends them as one batch.  What the peer does not take stays in the
 *                arena and the tap is not read until the peer can take more: the kernel's queue
 *                fills, and its drops are the interface's own counters.
 *   peer → tap   One writev() a frame, straight over the peer's iovec.  The kernel queues or
 *                refuses; EINVAL (a header it finds wrong) and EIO (interface down) cost that one
 *                frame, counted.
 *
 * vnet headers: where the tap has them and the peer knows them, they pass through, in the length
 * the peer asked for.  A peer that does not know them never sees one: on the way out a header of
 * zeros is put in front, on the way in it is cut off (with all offloads off the kernel sends
 * nothing that needs it).
 *
 * Not here: ioctls (tap-linux.c); several queues, vhost, bridge helpers.
 */
#include "net/tap.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "net/net-internal.h"
#include "qapi/qapi-types.h"
#include "util/error.h"
#include "util/iov.h"

#define READ_BATCH      64
#define ARENA_SIZE      (8 * NET_MAX_FRAME)
#define IOV_LIMIT       1024 /* the kernel's UIO_MAXIOV */
#define HDR_LEN_DEFAULT 10

#define DEFAULT_SCRIPT     "/etc/qemu-ifup"
#define DEFAULT_DOWNSCRIPT "/etc/qemu-ifdown"

typedef struct TapClient {
    NetClient nc;
    TapDevice dev; /* dev.fd -1: the interface is gone */
    char *downscript;
    bool want_read, want_write;
    bool delivering;

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
    if (t->dev.fd >= 0) {
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
    }
}

static void tap_readable(void *opaque)
{
    TapClient *t = opaque;
    if (!net_can_send(&t->nc)) {
        set_want_read(t, false);
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

/* ---- scripts and life ---- */

/* Runs @script with the interface's name; what it printed is part of the error. */
static gboolean run_script(const char *option, const char *script, const char *ifname,
                           GError **errp)
{
    const char *argv[] = {script, ifname, NULL};
    g_autofree char *out = NULL, *err = NULL;
    g_autoptr(GError) spawn_error = NULL;
    int status;
    if (!g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out, &err, &status,
                      &spawn_error)) {
        return error_set(errp, "%s=%s could not be run: %s", option, script, spawn_error->message);
    }
    if (g_spawn_check_wait_status(status, &spawn_error)) {
        return true;
    }
    g_autofree char *text = g_strconcat(out, err, NULL);
    g_strdelimit(g_strchomp(text), "\r\n", ' ');
    return error_set(errp, "%s=%s failed for interface '%s' (%s)%s%s", option, script, ifname,
                     spawn_error->message, *text ? ": " : "", text);
}

static void tap_cleanup(NetClient *nc)
{
    TapClient *t = (TapClient *)nc;
    event_loop_run_sync(nc->loop, tap_detach, t);
    if (t->downscript && t->dev.fd >= 0) {
        GError *err = NULL;
        if (!run_script("downscript", t->downscript, t->dev.ifname, &err)) {
            warn_report("%s", err->message);
            g_error_free(err);
        }
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
    .set_loop = tap_set_loop,
    .cleanup = tap_cleanup,
};

/* Options that are known but not possible. */
static gboolean check_options(const char *id, const NetdevTapOptions *o, GError **errp)
{
    const char *refused = o->fds                               ? "fds="
                          : o->br                              ? "br="
                          : o->helper                          ? "helper="
                          : o->has_vhost && o->vhost           ? "vhost=on"
                          : o->vhostfd                         ? "vhostfd="
                          : o->vhostfds                        ? "vhostfds="
                          : o->has_vhostforce && o->vhostforce ? "vhostforce=on"
                          : o->has_poll_us && o->poll_us       ? "poll-us="
                                                               : NULL;
    if (refused) {
        return error_set(errp, "netdev '%s': %s is not supported by tap", id, refused);
    }
    if (o->has_queues && o->queues != 1) {
        return error_set(errp, "netdev '%s': queues=%u is not supported: 1 is possible", id,
                         o->queues);
    }
    const char *with_fd = o->ifname         ? "ifname="
                          : o->script       ? "script="
                          : o->downscript   ? "downscript="
                          : o->has_vnet_hdr ? "vnet_hdr="
                                            : NULL;
    if (o->fd && with_fd) {
        return error_set(errp, "netdev '%s': %s cannot be used with fd=, which is set up already",
                         id, with_fd);
    }
    return true;
}

/* The option's script, the default one, or NULL for none. */
static gboolean pick_script(const NetdevTapOptions *o, const char **script, GError **errp)
{
    *script = o->script ? o->script : DEFAULT_SCRIPT;
    if (o->fd || strcmp(*script, "no") == 0 || **script == 0) {
        *script = NULL;
        return true;
    }
    struct stat st;
    if (!o->script && stat(DEFAULT_SCRIPT, &st) < 0) {
        return error_set(errp,
                         "the default script %s does not exist: give script=no, or script=FILE "
                         "that sets the interface up",
                         DEFAULT_SCRIPT);
    }
    return true;
}

static char *pick_downscript(const NetdevTapOptions *o)
{
    struct stat st;
    if (o->fd || (o->downscript && (strcmp(o->downscript, "no") == 0 || !*o->downscript))) {
        return NULL;
    }
    if (!o->downscript && stat(DEFAULT_DOWNSCRIPT, &st) < 0) {
        return NULL;
    }
    return g_strdup(o->downscript ? o->downscript : DEFAULT_DOWNSCRIPT);
}

gboolean net_init_tap(const Netdev *netdev, GError **errp)
{
    const NetdevTapOptions *o = &netdev->u.tap;
    const char *script = NULL;
    TapDevice dev;
    if (!check_options(netdev->id, o, errp) || !pick_script(o, &script, errp)) {
        return false;
    }
    if (o->fd) {
        int fd = net_fd_parse("fd", o->fd, errp);
        if (fd < 0 || !tap_device_open_fd(&dev, fd, o->fd, errp)) {
            return false;
        }
    } else {
        TapVnetHdr hdr = !o->has_vnet_hdr ? TAP_VNET_HDR_AUTO
                         : o->vnet_hdr    ? TAP_VNET_HDR_ON
                                          : TAP_VNET_HDR_OFF;
        if (!tap_device_open(&dev, o->ifname, hdr, errp)) {
            return false;
        }
    }
    if (!tap_device_set_sndbuf(&dev, o->has_sndbuf ? o->sndbuf : 0, errp) ||
        (script && !run_script("script", script, dev.ifname, errp))) {
        if (!o->fd) {
            close(dev.fd); /* one that was given stays the giver's */
        }
        return false;
    }

    TapClient *t = (TapClient *)net_client_new(&tap_ops, NULL, "tap", netdev->id);
    t->dev = dev;
    t->downscript = pick_downscript(o);
    t->arena = g_malloc(ARENA_SIZE);
    if (o->fd) {
        net_set_info(&t->nc, "fd=%d", dev.fd);
    } else {
        net_set_info(&t->nc, "ifname=%s,script=%s,downscript=%s", dev.ifname,
                     script ? script : "no", t->downscript ? t->downscript : "no");
    }
    return true;
}
