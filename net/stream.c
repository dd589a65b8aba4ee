/*
 * -netdev stream: frames over a stream socket that is connected to, listened at, or given.
 *
 * A client connects without blocking anybody: several addresses of a name are tried in order;
 * what fails is tried again after reconnect-ms, if that is given.  A server serves one client at
 * a time; the next waits in the kernel until that one goes.  Each change shows in `info network`
 * and as an event.
 *
 * What can be known at once fails at once: an address that cannot be, a port in use, and, without
 * reconnect, a UNIX socket nobody listens at.
 *
 * Connections are the main thread's; frames (framed.c) move in the client's loop.
 */
#include <errno.h>
#include <gio/gio.h>
#include <string.h>
#include <unistd.h>

#include "net/address.h"
#include "net/framed.h"
#include "net/net-internal.h"
#include "qapi/qapi-events.h"
#include "util/error.h"

#define BUSY_RETRY_MS 100 /* a UNIX server's queue was full */

typedef struct StreamClient StreamClient;

/* A name being looked up in another thread. */
typedef struct Lookup {
    SocketAddress *addr;
    GArray *found;
    GError *err;
    StreamClient *client; /* NULL: deleted meanwhile */
} Lookup;

struct StreamClient {
    NetClient nc;
    FramedLink link;
    SocketAddress *addr;

    int listen_fd; /* -1: a client */
    BoundPath bound;

    unsigned reconnect_ms;
    Timer retry;
    Lookup *lookup;
    GArray *candidates; /* of NetAddress: what addr stands for */
    unsigned candidate; /* the next to try */
    int connecting_fd;  /* -1: none */
    BottomHalf *established;
};

static void connect_start(void *opaque);
static void connect_next(StreamClient *s);

/* ---- connections ---- */

/* The other end; of a UNIX server our own address, because clients' sockets have no names. */
static SocketAddress *shown_address(const StreamClient *s, int fd)
{
    NetAddress addr = {.size = sizeof(addr.u)};
    if (s->listen_fd >= 0 && socket_option(fd, SO_DOMAIN) == AF_UNIX) {
        getsockname(fd, &addr.u.sa, &addr.size);
    } else {
        getpeername(fd, &addr.u.sa, &addr.size);
    }
    return address_to_qapi(&addr);
}

static void stream_connected(StreamClient *s, int fd)
{
    g_autoptr(SocketAddress) addr = shown_address(s, fd);
    g_autofree char *uri = address_uri(addr);
    socket_set_nodelay(fd);
    framed_open(&s->link, fd);
    net_set_info(&s->nc, "%s", uri);
    qapi_event_send_netdev_stream_connected(s->nc.name, addr);
}

static void stream_accept(void *opaque)
{
    StreamClient *s = opaque;
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return;
    }
    event_loop_set_fd_handler(event_loop_main(), s->listen_fd, NULL, NULL, NULL);
    stream_connected(s, fd);
}

static void stream_listen(StreamClient *s)
{
    net_set_info(&s->nc, "listening");
    event_loop_set_fd_handler(event_loop_main(), s->listen_fd, stream_accept, NULL, s);
}

static void retry_later(StreamClient *s, unsigned ms)
{
    timer_mod_ns(&s->retry, clock_get_ns(CLOCK_HOST) + ms * G_GINT64_CONSTANT(1000000));
}

static void stream_disconnected(NetClient *nc)
{
    StreamClient *s = (StreamClient *)nc;
    if (s->listen_fd >= 0) {
        stream_listen(s);
    } else if (s->reconnect_ms) {
        net_set_info(&s->nc, "connecting");
        retry_later(s, s->reconnect_ms);
    } else {
        net_set_info(&s->nc, "disconnected");
    }
    qapi_event_send_netdev_stream_disconnected(s->nc.name);
}

/* ---- connecting ---- */

static void connect_failed(StreamClient *s, const char *why)
{
    if (s->reconnect_ms) {
        net_set_info(&s->nc, "connecting");
        retry_later(s, s->reconnect_ms);
        return;
    }
    warn_report("netdev '%s': %s", s->nc.name, why);
    net_set_info(&s->nc, "error: %s", why);
}

static char *connect_error(StreamClient *s, int errnum)
{
    g_autofree char *text = address_text(s->addr);
    return g_strdup_printf("cannot connect to '%s': %s", text, g_strerror(errnum));
}

static void connect_established(void *opaque)
{
    StreamClient *s = opaque;
    int fd = s->connecting_fd;
    s->connecting_fd = -1;
    stream_connected(s, fd);
}

static void connect_writable(void *opaque)
{
    StreamClient *s = opaque;
    int errnum = socket_connect_result(s->connecting_fd);
    event_loop_set_fd_handler(event_loop_main(), s->connecting_fd, NULL, NULL, NULL);
    if (errnum == 0) {
        connect_established(s);
        return;
    }
    close(s->connecting_fd);
    s->connecting_fd = -1;
    if (s->candidate < s->candidates->len) {
        connect_next(s);
        return;
    }
    g_autofree char *why = connect_error(s, errnum);
    connect_failed(s, why);
}

/* Begins with the next address that does not fail at once; an errno when there is none. */
static int connect_begin(StreamClient *s)
{
    int errnum = ENOENT;
    while (s->candidate < s->candidates->len) {
        const NetAddress *to = &g_array_index(s->candidates, NetAddress, s->candidate);
        bool pending;
        int fd = address_connect(to, s->addr, &pending);
        s->candidate++;
        if (fd >= 0) {
            s->connecting_fd = fd;
            if (pending) {
                event_loop_set_fd_handler(event_loop_main(), fd, NULL, connect_writable, s);
            } else {
                bh_schedule(s->established);
            }
            return 0;
        }
        errnum = errno;
        if (errnum == EAGAIN) {
            retry_later(s, BUSY_RETRY_MS);
            return 0;
        }
    }
    return errnum;
}

static void connect_next(StreamClient *s)
{
    int errnum = connect_begin(s);
    if (errnum) {
        g_autofree char *why = connect_error(s, errnum);
        connect_failed(s, why);
    }
}

static void set_candidates(StreamClient *s, GArray *list)
{
    g_clear_pointer(&s->candidates, g_array_unref);
    s->candidates = list;
    s->candidate = 0;
}

static void lookup_free(Lookup *lookup)
{
    qapi_free_SocketAddress(lookup->addr);
    g_clear_pointer(&lookup->found, g_array_unref);
    g_clear_error(&lookup->err);
    g_free(lookup);
}

static void lookup_run(GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
    Lookup *lookup = data;
    lookup->found = address_resolve(lookup->addr, SOCK_STREAM, false, &lookup->err);
    g_task_return_boolean(task, TRUE);
}

static void lookup_done(GObject *source, GAsyncResult *result, gpointer data)
{
    Lookup *lookup = data;
    StreamClient *s = lookup->client;
    if (s) {
        s->lookup = NULL;
        if (lookup->found) {
            set_candidates(s, g_steal_pointer(&lookup->found));
            connect_next(s);
        } else {
            connect_failed(s, lookup->err->message);
        }
    }
    lookup_free(lookup);
}

/* Again, after an end or a failure: a name may stand for something else by now. */
static void connect_start(void *opaque)
{
    StreamClient *s = opaque;
    if (!address_needs_lookup(s->addr)) {
        s->candidate = 0;
        connect_next(s);
        return;
    }
    s->lookup = g_new0(Lookup, 1);
    s->lookup->addr = address_clone(s->addr);
    s->lookup->client = s;
    GTask *task = g_task_new(NULL, NULL, lookup_done, s->lookup);
    g_task_set_task_data(task, s->lookup, NULL);
    g_task_run_in_thread(task, lookup_run);
    g_object_unref(task);
}

/* ---- the client ---- */

static unsigned stream_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    return framed_receive(&((StreamClient *)nc)->link, pkts, n);
}

static bool stream_can_receive(NetClient *nc)
{
    return framed_can_receive(&((StreamClient *)nc)->link);
}

static void stream_peer_writable(NetClient *nc)
{
    framed_peer_writable(&((StreamClient *)nc)->link);
}

static void stream_set_loop(NetClient *nc, EventLoop *loop)
{
    framed_set_loop(&((StreamClient *)nc)->link, loop);
}

static void stream_cleanup(NetClient *nc)
{
    StreamClient *s = (StreamClient *)nc;
    framed_destroy(&s->link);
    timer_del(&s->retry);
    bh_delete(s->established);
    if (s->lookup) {
        s->lookup->client = NULL;
    }
    if (s->connecting_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), s->connecting_fd, NULL, NULL, NULL);
        close(s->connecting_fd);
    }
    bound_path_release(&s->bound);
    if (s->listen_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), s->listen_fd, NULL, NULL, NULL);
        close(s->listen_fd);
    }
    g_clear_pointer(&s->candidates, g_array_unref);
    qapi_free_SocketAddress(s->addr);
}

static const NetClientOps stream_ops = {
    .type = "stream",
    .instance_size = sizeof(StreamClient),
    .receive_batch = stream_receive,
    .can_receive = stream_can_receive,
    .peer_writable = stream_peer_writable,
    .set_loop = stream_set_loop,
    .cleanup = stream_cleanup,
};

static gboolean check_fd(const char *text, int fd, bool server, GError **errp)
{
    NetAddress addr = {.size = sizeof(addr.u)};
    bool listening = socket_option(fd, SO_ACCEPTCONN) > 0;
    if (socket_option(fd, SO_TYPE) != SOCK_STREAM) {
        return error_set(errp, "addr.str=%s is a socket of type %d: a stream socket is needed",
                         text, socket_option(fd, SO_TYPE));
    }
    if (server && !listening) {
        return error_set(errp, "addr.str=%s does not listen: server=on needs a listening socket",
                         text);
    }
    if (!server && listening) {
        return error_set(errp, "addr.str=%s is a listening socket: give server=on too", text);
    }
    if (!server && getpeername(fd, &addr.u.sa, &addr.size) < 0) {
        return error_set(errp, "addr.str=%s is not connected: connect() it to the other side first",
                         text);
    }
    return true;
}

/* The option's milliseconds; 0: no reconnecting. */
static gboolean get_reconnect(const NetdevStreamOptions *o, unsigned *ms, GError **errp)
{
    *ms = 0;
    if (!o->has_reconnect && !o->has_reconnect_ms) {
        return true;
    }
    if (o->has_reconnect && o->has_reconnect_ms) {
        return error_set(errp, "'reconnect' and 'reconnect-ms' are mutually exclusive");
    }
    if (o->has_server && o->server) {
        return error_set(errp, "'reconnect' and 'reconnect-ms' options are incompatible with "
                               "socket in server mode");
    }
    if (o->addr->type == SOCKET_ADDRESS_TYPE_FD) {
        return error_set(errp, "an fd cannot be connected again: leave reconnect-ms= out");
    }
    if (o->has_reconnect && o->reconnect > UINT_MAX / 1000) {
        return error_set(errp, "reconnect=%u: at most %u seconds are possible", o->reconnect,
                         UINT_MAX / 1000);
    }
    *ms = o->has_reconnect_ms ? o->reconnect_ms : o->reconnect * 1000;
    return true;
}

static StreamClient *stream_new(const Netdev *netdev)
{
    StreamClient *s = (StreamClient *)net_client_new(&stream_ops, NULL, "stream", netdev->id);
    framed_init(&s->link, &s->nc, stream_disconnected);
    s->addr = address_clone(netdev->u.stream.addr);
    s->listen_fd = s->connecting_fd = -1;
    s->established = bh_new(event_loop_main(), connect_established, s);
    timer_init(&s->retry, event_loop_main(), CLOCK_HOST, connect_start, s);
    return s;
}

static gboolean init_server(const Netdev *netdev, GError **errp)
{
    const SocketAddress *addr = netdev->u.stream.addr;
    BoundPath bound = {NULL};
    int fd;
    if (addr->type == SOCKET_ADDRESS_TYPE_FD) {
        fd = socket_take_fd("addr.str", addr->u.fd.str, errp);
        if (fd >= 0 && !check_fd(addr->u.fd.str, fd, true, errp)) {
            return false;
        }
    } else {
        fd = address_listen(addr, &bound, errp);
    }
    if (fd < 0) {
        return false;
    }
    StreamClient *s = stream_new(netdev);
    s->listen_fd = fd;
    s->bound = bound;
    stream_listen(s);
    return true;
}

static gboolean init_fd(const Netdev *netdev, GError **errp)
{
    const char *text = netdev->u.stream.addr->u.fd.str;
    int fd = socket_take_fd("addr.str", text, errp);
    if (fd < 0 || !check_fd(text, fd, false, errp)) {
        return false;
    }
    StreamClient *s = stream_new(netdev);
    net_set_info(&s->nc, "connecting");
    s->connecting_fd = fd;
    bh_schedule(s->established);
    return true;
}

gboolean net_init_stream(const Netdev *netdev, GError **errp)
{
    const NetdevStreamOptions *o = &netdev->u.stream;
    unsigned reconnect_ms;
    if (!get_reconnect(o, &reconnect_ms, errp)) {
        return false;
    }
    if (o->has_server && o->server) {
        return init_server(netdev, errp);
    }
    if (o->addr->type == SOCKET_ADDRESS_TYPE_FD) {
        return init_fd(netdev, errp);
    }

    GError *err = NULL;
    GArray *list = address_resolve(o->addr, SOCK_STREAM, false, &err);
    /* A name that is not known now may be later; anything else never will be. */
    if (!list && !(reconnect_ms && address_needs_lookup(o->addr))) {
        g_propagate_error(errp, err);
        return false;
    }
    g_clear_error(&err);
    StreamClient *s = stream_new(netdev);
    s->reconnect_ms = reconnect_ms;
    set_candidates(s, list);
    net_set_info(&s->nc, "connecting");
    int errnum = list ? connect_begin(s) : ENOENT;
    if (errnum && reconnect_ms) {
        retry_later(s, reconnect_ms);
    } else if (errnum) {
        g_autofree char *why = connect_error(s, errnum);
        net_client_delete(&s->nc);
        return error_set(errp, "%s (reconnect-ms= keeps trying)", why);
    }
    return true;
}
