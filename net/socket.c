/*
 * -netdev socket: the older options for frames over sockets: an open one, TCP that listens or
 * connects, UDP, a multicast group.
 *
 * Two clients behind one type: over a stream socket (frames with their length, framed.c) and over
 * a datagram socket (datagram.c).  A server serves one connection at a time, a connection that
 * has ended is not made again: stream can.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "net/datagram.h"
#include "net/dgram-open.h"
#include "net/framed.h"
#include "net/net-internal.h"
#include "util/error.h"

/* ---- stream sockets ---- */

typedef struct SocketStream {
    NetClient nc;
    FramedLink link;
    int listen_fd;     /* -1: none */
    int connecting_fd; /* -1: none */
} SocketStream;

static unsigned stream_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    return framed_receive(&((SocketStream *)nc)->link, pkts, n);
}

static bool stream_can_receive(NetClient *nc)
{
    return framed_can_receive(&((SocketStream *)nc)->link);
}

static void stream_peer_writable(NetClient *nc)
{
    framed_peer_writable(&((SocketStream *)nc)->link);
}

static void stream_set_loop(NetClient *nc, EventLoop *loop)
{
    framed_set_loop(&((SocketStream *)nc)->link, loop);
}

static void forget_fd(int fd)
{
    if (fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), fd, NULL, NULL, NULL);
        close(fd);
    }
}

static void stream_cleanup(NetClient *nc)
{
    SocketStream *s = (SocketStream *)nc;
    framed_destroy(&s->link);
    forget_fd(s->listen_fd);
    forget_fd(s->connecting_fd);
}

static const NetClientOps socket_stream_ops = {
    .type = "socket",
    .instance_size = sizeof(SocketStream),
    .receive_batch = stream_receive,
    .can_receive = stream_can_receive,
    .peer_writable = stream_peer_writable,
    .set_loop = stream_set_loop,
    .cleanup = stream_cleanup,
};

static void stream_accept(void *opaque)
{
    SocketStream *s = opaque;
    NetAddress from = {.size = sizeof(from.u)};
    int fd = accept4(s->listen_fd, &from.u.sa, &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return;
    }
    event_loop_set_fd_handler(event_loop_main(), s->listen_fd, NULL, NULL, NULL);
    socket_set_nodelay(fd);
    framed_open(&s->link, fd);
    g_autofree char *text = address_host_port(&from);
    net_set_info(&s->nc, "socket: connection from %s", text);
}

static void stream_disconnected(NetClient *nc)
{
    SocketStream *s = (SocketStream *)nc;
    net_set_info(nc, "%s", "");
    if (s->listen_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), s->listen_fd, stream_accept, NULL, s);
    }
}

static SocketStream *stream_new(const char *id)
{
    SocketStream *s = (SocketStream *)net_client_new(&socket_stream_ops, NULL, "socket", id);
    framed_init(&s->link, &s->nc, stream_disconnected);
    s->listen_fd = s->connecting_fd = -1;
    return s;
}

static void stream_connected(void *opaque)
{
    SocketStream *s = opaque;
    int fd = s->connecting_fd, errnum = socket_connect_result(fd);
    event_loop_set_fd_handler(event_loop_main(), fd, NULL, NULL, NULL);
    s->connecting_fd = -1;
    if (errnum) {
        warn_report("netdev '%s': cannot connect: %s", s->nc.name, g_strerror(errnum));
        net_set_info(&s->nc, "%s", "");
        close(fd);
        return;
    }
    socket_set_nodelay(fd);
    framed_open(&s->link, fd);
}

static gboolean init_listen(const char *id, const char *text, GError **errp)
{
    int on = 1, errnum = 0;
    NetAddress addr;
    BoundPath bound = {NULL};
    if (!address_parse_host_port("listen", text, SOCK_STREAM, true, &addr, errp)) {
        return false;
    }
    int fd = socket_open(addr.u.sa.sa_family, SOCK_STREAM, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        errnum = socket_bind(fd, &addr, &bound);
    }
    if (fd < 0 || errnum || listen(fd, 1) < 0) {
        errnum = errnum ? errnum : errno;
        forget_fd(fd);
        return error_set_errno(errp, errnum, "cannot listen at listen=%s", text);
    }
    SocketStream *s = stream_new(id);
    s->listen_fd = fd;
    event_loop_set_fd_handler(event_loop_main(), fd, stream_accept, NULL, s);
    return true;
}

static gboolean init_connect(const char *id, const char *text, GError **errp)
{
    NetAddress addr;
    bool pending;
    if (!address_parse_host_port("connect", text, SOCK_STREAM, false, &addr, errp)) {
        return false;
    }
    int fd = address_connect(&addr, NULL, &pending);
    if (fd < 0) {
        return error_set_errno(errp, errno, "cannot connect to connect=%s", text);
    }
    SocketStream *s = stream_new(id);
    g_autofree char *shown = address_host_port(&addr);
    net_set_info(&s->nc, "socket: connect to %s", shown);
    s->connecting_fd = fd;
    if (pending) {
        event_loop_set_fd_handler(event_loop_main(), fd, NULL, stream_connected, s);
    } else {
        stream_connected(s);
    }
    return true;
}

/* ---- datagram sockets ---- */

typedef struct SocketDgram {
    NetClient nc;
    DatagramLink link;
} SocketDgram;

static unsigned dgram_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    return datagram_receive(&((SocketDgram *)nc)->link, pkts, n);
}

static bool dgram_can_receive(NetClient *nc)
{
    return datagram_can_receive(&((SocketDgram *)nc)->link);
}

static void dgram_peer_writable(NetClient *nc)
{
    datagram_peer_writable(&((SocketDgram *)nc)->link);
}

static void dgram_set_loop(NetClient *nc, EventLoop *loop)
{
    datagram_set_loop(&((SocketDgram *)nc)->link, loop);
}

static void dgram_cleanup(NetClient *nc)
{
    datagram_destroy(&((SocketDgram *)nc)->link);
}

static const NetClientOps socket_dgram_ops = {
    .type = "socket",
    .instance_size = sizeof(SocketDgram),
    .receive_batch = dgram_receive,
    .can_receive = dgram_can_receive,
    .peer_writable = dgram_peer_writable,
    .set_loop = dgram_set_loop,
    .cleanup = dgram_cleanup,
};

/* @to NULL: @fd is connected. */
static SocketDgram *dgram_new(const char *id, int fd, const NetAddress *to)
{
    SocketDgram *s = (SocketDgram *)net_client_new(&socket_dgram_ops, NULL, "socket", id);
    datagram_init(&s->link, &s->nc, fd, NULL);
    if (to) {
        s->link.to = *to;
    }
    return s;
}

static gboolean init_multicast(const char *id, const NetdevSocketOptions *o, GError **errp)
{
    NetAddress group, iface = {.size = sizeof(iface.u.in), .u.in = {.sin_family = AF_INET}};
    if (!address_parse_host_port("mcast", o->mcast, SOCK_DGRAM, false, &group, errp)) {
        return false;
    }
    if (o->localaddr && inet_pton(AF_INET, o->localaddr, &iface.u.in.sin_addr) != 1) {
        return error_set(errp, "localaddr '%s' is not a valid IPv4 address", o->localaddr);
    }
    int fd = multicast_open(&group, o->localaddr ? &iface : NULL, errp);
    if (fd < 0) {
        g_prefix_error(errp, "mcast=: ");
        return false;
    }
    SocketDgram *s = dgram_new(id, fd, &group);
    g_autofree char *shown = address_host_port(&group);
    net_set_info(&s->nc, "socket: mcast=%s", shown);
    return true;
}

static gboolean init_udp(const char *id, const NetdevSocketOptions *o, GError **errp)
{
    NetAddress local, remote;
    if (!o->localaddr) {
        return error_set(errp, "localaddr= is mandatory with udp=");
    }
    if (!address_parse_host_port("localaddr", o->localaddr, SOCK_DGRAM, true, &local, errp) ||
        !address_parse_host_port("udp", o->udp, SOCK_DGRAM, false, &remote, errp)) {
        return false;
    }
    if (local.u.sa.sa_family != remote.u.sa.sa_family) {
        return error_set(errp, "localaddr= and udp= must both be IPv4 or both IPv6");
    }
    int fd = udp_open(&local, errp);
    if (fd < 0) {
        return false;
    }
    SocketDgram *s = dgram_new(id, fd, &remote);
    g_autofree char *shown = address_host_port(&remote);
    net_set_info(&s->nc, "socket: udp=%s", shown);
    return true;
}

/* ---- open sockets, and the choice ---- */

/* A connected stream or datagram socket. */
static gboolean check_fd(const char *text, int fd, GError **errp)
{
    int type = socket_option(fd, SO_TYPE);
    NetAddress addr = {.size = sizeof(addr.u)};
    if (type != SOCK_STREAM && type != SOCK_DGRAM) {
        return error_set(errp,
                         "fd=%s is a socket of type %d: a stream or datagram socket is "
                         "needed",
                         text, type);
    }
    if (socket_option(fd, SO_ACCEPTCONN) > 0) {
        return error_set(errp, "fd=%s is a listening socket: a connected one is needed", text);
    }
    if (getpeername(fd, &addr.u.sa, &addr.size) < 0) {
        return error_set(errp, "fd=%s is not connected: connect() it to the other side first",
                         text);
    }
    return true;
}

static gboolean init_fd(const char *id, const char *text, GError **errp)
{
    int fd = socket_take_fd("fd", text, errp);
    if (fd < 0 || !check_fd(text, fd, errp)) {
        return false;
    }
    if (socket_option(fd, SO_TYPE) == SOCK_DGRAM) {
        SocketDgram *s = dgram_new(id, fd, NULL);
        net_set_info(&s->nc, "socket: fd=%d %s", fd,
                     socket_option(fd, SO_DOMAIN) == AF_UNIX ? "unix" : "inet");
        return true;
    }
    SocketStream *s = stream_new(id);
    net_set_info(&s->nc, "socket: fd=%d", fd);
    socket_set_nodelay(fd);
    framed_open(&s->link, fd);
    return true;
}

gboolean net_init_socket(const Netdev *netdev, GError **errp)
{
    const NetdevSocketOptions *o = &netdev->u.socket;
    if (!!o->fd + !!o->listen + !!o->connect + !!o->mcast + !!o->udp != 1) {
        return error_set(errp,
                         "netdev '%s': exactly one of fd=, listen=, connect=, mcast= or "
                         "udp= is required",
                         netdev->id);
    }
    if (o->localaddr && !o->mcast && !o->udp) {
        return error_set(errp, "localaddr= is only valid with mcast= or udp=");
    }
    return o->fd        ? init_fd(netdev->id, o->fd, errp)
           : o->listen  ? init_listen(netdev->id, o->listen, errp)
           : o->connect ? init_connect(netdev->id, o->connect, errp)
           : o->mcast   ? init_multicast(netdev->id, o, errp)
                        : init_udp(netdev->id, o, errp);
}
