/*
 * -netdev dgram: frames over a datagram socket: UDP, a multicast group, UNIX sockets, or an open
 * socket.
 *
 * UDP sockets are bound to the local address and send to the remote one; frames from anybody are
 * taken.  UNIX sockets need more care, because one that sends should be connected (it is three
 * times as fast, and only then says when it can be written) and one that receives should not (the
 * kernel would refuse everybody but the other end it knows, also its successor after a restart).
 * So there are two sockets with one name: the first is bound to the local path and connected to
 * the remote one, to send; then the path is bound anew, to receive.
 *
 * Another end that has connected itself to our path takes frames from the receiving socket only:
 * then that is connected too and sends ("paired").  Once a second its path is looked at, because
 * nothing else tells when another process has taken it over.
 *
 * The other end need not exist yet: frames are dropped (and counted) until it does.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "net/datagram.h"
#include "net/dgram-open.h"
#include "net/net-internal.h"
#include "util/error.h"

#define CHECK_NS G_GINT64_CONSTANT(1000000000)

typedef struct DgramClient {
    NetClient nc;
    DatagramLink link;
    BoundPath bound;

    /* UNIX sockets */
    NetAddress remote;
    int send_fd; /* has our name, and is connected when not paired; -1: none */
    bool paired;
    struct stat remote_file; /* what was at the remote path when paired */
    Timer check;
} DgramClient;

/* ---- UNIX sockets: finding the other end ---- */

static void use_send_fd(DgramClient *d, int fd)
{
    if (d->link.send_fd != fd) {
        datagram_set_send_fd(&d->link, fd);
    }
}

static void unpair(DgramClient *d)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    connect(d->link.fd, &none, sizeof(none));
    d->paired = false;
    timer_del(&d->check);
}

/* Inode numbers are used again at once: the time says whether it is the same file. */
static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool pair(DgramClient *d)
{
    const char *path = d->remote.u.un.sun_path;
    if (connect(d->link.fd, &d->remote.u.sa, d->remote.size) < 0) {
        return false;
    }
    d->paired = true;
    use_send_fd(d, d->link.fd);
    if (*path && stat(path, &d->remote_file) == 0) {
        timer_mod_ns(&d->check, clock_get_ns(CLOCK_HOST) + CHECK_NS);
    }
    return true;
}

/* Finds whoever is at the remote path now. */
static bool connect_remote(DgramClient *d)
{
    if (d->send_fd >= 0) {
        if (connect(d->send_fd, &d->remote.u.sa, d->remote.size) == 0) {
            if (d->paired) {
                unpair(d);
            }
            use_send_fd(d, d->send_fd);
            return true;
        }
        if (errno != EPERM) {
            return false;
        }
    }
    return pair(d);
}

static bool dgram_recover(DatagramLink *l, int errnum)
{
    return connect_remote((DgramClient *)l->nc);
}

/* Paired: is it still the same socket that is at the remote path? */
static void dgram_check(void *opaque)
{
    DgramClient *d = opaque;
    struct stat st;
    if (stat(d->remote.u.un.sun_path, &st) == 0 && same_file(&st, &d->remote_file)) {
        timer_mod_ns(&d->check, clock_get_ns(CLOCK_HOST) + CHECK_NS);
        return;
    }
    unpair(d);
    if (d->send_fd >= 0) {
        use_send_fd(d, d->send_fd);
    }
    connect_remote(d);
}

/* ---- the client ---- */

static unsigned dgram_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    return datagram_receive(&((DgramClient *)nc)->link, pkts, n);
}

static bool dgram_can_receive(NetClient *nc)
{
    return datagram_can_receive(&((DgramClient *)nc)->link);
}

static void dgram_peer_writable(NetClient *nc)
{
    datagram_peer_writable(&((DgramClient *)nc)->link);
}

static void move_check(void *opaque)
{
    DgramClient *d = opaque;
    bool pending = timer_pending(&d->check);
    timer_del(&d->check);
    timer_init(&d->check, d->nc.loop, CLOCK_HOST, dgram_check, d);
    if (pending) {
        timer_mod_ns(&d->check, clock_get_ns(CLOCK_HOST) + CHECK_NS);
    }
}

static void dgram_set_loop(NetClient *nc, EventLoop *loop)
{
    DgramClient *d = (DgramClient *)nc;
    datagram_set_loop(&d->link, loop);
    event_loop_run_sync(loop, move_check, d);
}

static void stop_check(void *opaque)
{
    timer_del(&((DgramClient *)opaque)->check);
}

static void dgram_cleanup(NetClient *nc)
{
    DgramClient *d = (DgramClient *)nc;
    event_loop_run_sync(nc->loop, stop_check, d);
    bound_path_release(&d->bound);
    datagram_destroy(&d->link);
    if (d->send_fd >= 0) {
        close(d->send_fd);
    }
}

static const NetClientOps dgram_ops = {
    .type = "dgram",
    .instance_size = sizeof(DgramClient),
    .receive_batch = dgram_receive,
    .can_receive = dgram_can_receive,
    .peer_writable = dgram_peer_writable,
    .set_loop = dgram_set_loop,
    .cleanup = dgram_cleanup,
};

static DgramClient *dgram_new(const char *id, int fd, const NetAddress *to)
{
    DgramClient *d = (DgramClient *)net_client_new(&dgram_ops, NULL, "dgram", id);
    d->send_fd = -1;
    timer_init(&d->check, d->nc.loop, CLOCK_HOST, dgram_check, d);
    datagram_init(&d->link, &d->nc, fd, NULL);
    if (to) {
        d->link.to = *to;
    }
    return d;
}

/* ---- options ---- */

/* The one address that @addr (named @name in messages) stands for; of several the first. */
static gboolean first_address(const char *name, const SocketAddress *addr, bool passive,
                              NetAddress *out, GError **errp)
{
    g_autoptr(GArray) list = address_resolve(addr, SOCK_DGRAM, passive, errp);
    if (!list) {
        g_prefix_error(errp, "%s: ", name);
        return false;
    }
    *out = g_array_index(list, NetAddress, 0);
    return true;
}

static gboolean init_multicast(const Netdev *netdev, const NetAddress *group, GError **errp)
{
    const SocketAddress *local = netdev->u.dgram.local;
    NetAddress iface;
    int fd;
    g_autofree char *text = address_host_port(group);
    if (local && local->type == SOCKET_ADDRESS_TYPE_FD) {
        fd = socket_take_fd("local.str", local->u.fd.str, errp);
        int clone = fd < 0 ? -1 : multicast_open(group, NULL, errp);
        if (clone < 0) {
            return false;
        }
        /* A socket that several processes share would give each frame to one of them only. */
        dup3(clone, fd, O_CLOEXEC);
        close(clone);
        DgramClient *d = dgram_new(netdev->id, fd, group);
        net_set_info(&d->nc, "fd=%d (cloned mcast=%s)", fd, text);
        return true;
    }
    if (local && local->type != SOCKET_ADDRESS_TYPE_INET) {
        return error_set(errp,
                         "local.type=%s: with a multicast group it is inet (the address of "
                         "the interface) or fd",
                         SocketAddressType_str(local->type));
    }
    if (local && !first_address("local", local, true, &iface, errp)) {
        return false;
    }
    fd = multicast_open(group, local ? &iface : NULL, errp);
    if (fd < 0) {
        return false;
    }
    DgramClient *d = dgram_new(netdev->id, fd, group);
    net_set_info(&d->nc, "mcast=%s", text);
    return true;
}

static gboolean init_udp(const Netdev *netdev, const NetAddress *remote, GError **errp)
{
    NetAddress local;
    if (!first_address("local", netdev->u.dgram.local, true, &local, errp)) {
        return false;
    }
    if (local.u.sa.sa_family != remote->u.sa.sa_family) {
        return error_set(errp, "local and remote must both be IPv4 or both IPv6");
    }
    int fd = udp_open(&local, errp);
    if (fd < 0) {
        return false;
    }
    DgramClient *d = dgram_new(netdev->id, fd, remote);
    g_autofree char *from = address_host_port(&local);
    g_autofree char *to = address_host_port(remote);
    net_set_info(&d->nc, "udp=%s/%s", from, to);
    return true;
}

/* A UNIX socket with name @local; -1 with error. */
static int unix_open(const NetAddress *local, BoundPath *bound, GError **errp)
{
    int fd = socket_open(AF_UNIX, SOCK_DGRAM, 0);
    int errnum = fd < 0 ? errno : socket_bind(fd, local, bound);
    if (errnum == 0) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    const char *path = local->u.un.sun_path;
    error_set_errno(errp, errnum, "cannot receive at '%s'", *path ? path : path + 1);
    return -1;
}

static gboolean init_unix(const Netdev *netdev, GError **errp)
{
    const NetdevDgramOptions *o = &netdev->u.dgram;
    NetAddress local, remote;
    BoundPath bound = {NULL};
    if (!first_address("local", o->local, true, &local, errp) ||
        !first_address("remote", o->remote, false, &remote, errp)) {
        return false;
    }
    /* An abstract name cannot be had twice: that socket is always paired. */
    bool is_path = local.u.un.sun_path[0];
    int send_fd = is_path ? unix_open(&local, &bound, errp) : -1;
    if (is_path && send_fd < 0) {
        return false;
    }
    g_clear_pointer(&bound.path, g_free); /* bound anew */
    int fd = unix_open(&local, &bound, errp);
    if (fd < 0) {
        if (send_fd >= 0) {
            close(send_fd);
        }
        return false;
    }
    DgramClient *d = dgram_new(netdev->id, fd, NULL);
    d->bound = bound;
    d->send_fd = send_fd;
    d->remote = remote;
    d->link.recover = dgram_recover;
    if (send_fd >= 0) {
        use_send_fd(d, send_fd);
    }
    connect_remote(d);
    net_set_info(&d->nc, "udp=%s:%s", o->local->u.q_unix.path, o->remote->u.q_unix.path);
    return true;
}

static gboolean init_fd(const Netdev *netdev, GError **errp)
{
    int fd = dgram_take_fd("local.str", netdev->u.dgram.local->u.fd.str, errp);
    if (fd < 0) {
        return false;
    }
    DgramClient *d = dgram_new(netdev->id, fd, NULL);
    net_set_info(&d->nc, "fd=%d %s", fd, socket_option(fd, SO_DOMAIN) == AF_UNIX ? "unix" : "inet");
    return true;
}

gboolean net_init_dgram(const Netdev *netdev, GError **errp)
{
    const NetdevDgramOptions *o = &netdev->u.dgram;
    NetAddress remote;
    if (o->remote && o->remote->type == SOCKET_ADDRESS_TYPE_INET) {
        if (!first_address("remote", o->remote, false, &remote, errp)) {
            return false;
        }
        if (address_is_multicast(&remote)) {
            return init_multicast(netdev, &remote, errp);
        }
    }
    if (!o->local) {
        return error_set(errp, "dgram requires local= parameter");
    }
    if (o->local->type == SOCKET_ADDRESS_TYPE_FD) {
        return o->remote ? error_set(errp, "don't set remote with local.fd")
                         : init_fd(netdev, errp);
    }
    if (!o->remote) {
        return error_set(errp, "type=inet or type=unix requires remote parameter");
    }
    if (o->remote->type != o->local->type) {
        return error_set(errp, "remote and local types must be the same");
    }
    if (o->local->type == SOCKET_ADDRESS_TYPE_INET) {
        return init_udp(netdev, &remote, errp);
    }
    return o->local->type == SOCKET_ADDRESS_TYPE_UNIX
               ? init_unix(netdev, errp)
               : error_set(errp, "local.type=%s: dgram takes inet, unix and fd",
                           SocketAddressType_str(o->local->type));
}
