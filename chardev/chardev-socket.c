/*
 * Sockets: UNIX and TCP, server and client.
 *
 * A server listens until a client comes, then serves this one only; further clients wait in the
 * kernel's queue until it leaves.  A client connects when it is made (failing fails the chardev)
 * or, with reconnect, tries for ever, also after the connection was lost.  fd= takes over a
 * socket of the parent process.  Fds passed over UNIX sockets are kept by the core.
 *
 * System calls: socket, bind, listen, accept4, connect, getaddrinfo's, unlink.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "chardev-priv.h"
#include "util/error.h"
#include "util/json.h"
#include "util/keyval.h"
#include "util/runstate.h"

typedef struct SocketChardev {
    Chardev parent;
    char *path;        /* UNIX, or NULL */
    char *host, *port; /* TCP, or NULL */
    int family;        /* AF_UNSPEC, AF_INET, AF_INET6 */
    bool server, wait, nodelay, from_fd;
    bool bound; /* @path is ours to unlink */
    dev_t bound_dev;
    ino_t bound_ino;
    int listen_fd, connect_fd, fd;
    int64_t reconnect_ns;
    Timer reconnect_timer;
} SocketChardev;

static const char *const socket_keys[] = {
    "path",  "host",    "port",      "fd",           "server", "wait",     "ipv4",  "ipv6", "to",
    "delay", "nodelay", "reconnect", "reconnect-ms", "telnet", "abstract", "tight", NULL,
};

static void socket_listen(SocketChardev *s);
static void socket_try_connect(void *opaque);

/* "unix:/path", "tcp:host:port", "fd"; what messages and query-chardev call it. */
static char *socket_address(const SocketChardev *s)
{
    if (s->path) {
        return g_strdup_printf("unix:%s", s->path);
    }
    if (s->host) {
        bool colons = strchr(s->host, ':') != NULL;
        return g_strdup_printf("tcp:%s%s%s:%s", colons ? "[" : "", s->host, colons ? "]" : "",
                               s->port);
    }
    return g_strdup("fd");
}

static char *socket_filename(const Chardev *chr)
{
    const SocketChardev *s = (const SocketChardev *)chr;
    g_autofree char *address = socket_address(s);

    return g_strdup_printf("%s%s%s", chr->is_open ? "" : "disconnected:", address,
                           s->server ? ",server=on" : "");
}

static void set_nonblocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Takes @fd as the connection. */
static void socket_connected(SocketChardev *s, int fd)
{
    int one = 1;

    set_nonblocking(fd);
    if (s->nodelay) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    s->fd = fd;
    if (s->listen_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), s->listen_fd, NULL, NULL, NULL);
    }
    chardev_set_fds(&s->parent, fd, fd);
}

static void socket_acceptable(void *opaque)
{
    SocketChardev *s = opaque;
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        socket_connected(s, fd);
    }
}

static void socket_listen(SocketChardev *s)
{
    event_loop_set_fd_handler(event_loop_main(), s->listen_fd, socket_acceptable, NULL, s);
}

static void schedule_reconnect(SocketChardev *s)
{
    timer_mod_ns(&s->reconnect_timer, clock_get_ns(CLOCK_HOST) + s->reconnect_ns);
}

static void socket_ended(Chardev *chr)
{
    SocketChardev *s = (SocketChardev *)chr;

    if (s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
    if (s->listen_fd >= 0) {
        socket_listen(s);
    } else if (s->reconnect_ns) {
        schedule_reconnect(s);
    }
}

static gboolean unix_address(const char *path, struct sockaddr_un *addr, GError **errp)
{
    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(addr->sun_path)) {
        return error_set(errp, "UNIX socket path '%s' is too long (at most %zu bytes)", path,
                         sizeof(addr->sun_path) - 1);
    }
    strcpy(addr->sun_path, path);
    return TRUE;
}

/* What an earlier run left behind is replaced, and so is a file that a client made to have a name
 * of its own (mkstemp), as in QEMU. */
static void remove_stale_file(const char *path)
{
    struct stat st;

    if (!lstat(path, &st) && (S_ISSOCK(st.st_mode) || S_ISREG(st.st_mode))) {
        unlink(path);
    }
}

static int unix_open(SocketChardev *s, GError **errp)
{
    struct sockaddr_un addr;
    struct stat st;

    if (!unix_address(s->path, &addr, errp)) {
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        error_set_errno(errp, errno, "cannot make a UNIX socket");
        return -1;
    }
    if (s->server) {
        remove_stale_file(s->path);
        if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, 8)) {
            error_set_errno(errp, errno, "cannot listen on UNIX socket '%s'", s->path);
            close(fd);
            return -1;
        }
        if (!stat(s->path, &st)) {
            s->bound = true;
            s->bound_dev = st.st_dev;
            s->bound_ino = st.st_ino;
        }
    } else if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
        error_set_errno(errp, errno, "Failed to connect to '%s'", s->path);
        close(fd);
        return -1;
    }
    return fd;
}

static int tcp_open_one(SocketChardev *s, const struct addrinfo *ai)
{
    int one = 1, zero = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    if (!s->server) {
        if (!connect(fd, ai->ai_addr, ai->ai_addrlen)) {
            return fd;
        }
    } else {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (ai->ai_family == AF_INET6 && s->family == AF_UNSPEC && !*s->host) {
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
        }
        if (!bind(fd, ai->ai_addr, ai->ai_addrlen) && !listen(fd, 8)) {
            return fd;
        }
    }
    int saved_errno = errno;
    close(fd);
    errno = saved_errno;
    return -1;
}

static int tcp_open(SocketChardev *s, GError **errp)
{
    struct addrinfo hints = {
        .ai_family = s->family,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = s->server ? AI_PASSIVE : 0,
    };
    struct addrinfo *list;
    int ret = getaddrinfo(*s->host ? s->host : NULL, s->port, &hints, &list);
    int fd = -1;

    if (ret) {
        error_set(errp, "address '%s:%s' cannot be resolved: %s", s->host, s->port,
                  gai_strerror(ret));
        return -1;
    }
    for (struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next) {
        fd = tcp_open_one(s, ai);
    }
    if (fd < 0) {
        error_set_errno(errp, errno,
                        s->server ? "cannot listen on '%s:%s'" : "Failed to connect to '%s:%s'",
                        s->host, s->port);
    }
    freeaddrinfo(list);
    return fd;
}

/* What the kernel chose for port 0. */
static void read_bound_port(SocketChardev *s)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    char port[16];

    if (!getsockname(s->listen_fd, (struct sockaddr *)&addr, &len) &&
        !getnameinfo((struct sockaddr *)&addr, len, NULL, 0, port, sizeof(port), NI_NUMERICSERV)) {
        g_free(s->port);
        s->port = g_strdup(port);
    }
}

static void connect_finished(void *opaque)
{
    SocketChardev *s = opaque;
    int fd = s->connect_fd, err = 0;
    socklen_t len = sizeof(err);

    event_loop_set_fd_handler(event_loop_main(), fd, NULL, NULL, NULL);
    s->connect_fd = -1;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err) {
        close(fd);
        schedule_reconnect(s);
    } else {
        socket_connected(s, fd);
    }
}

/* One attempt that does not block (a host name is looked up each time, which may). */
static void socket_try_connect(void *opaque)
{
    SocketChardev *s = opaque;
    struct addrinfo hints = {.ai_family = s->family, .ai_socktype = SOCK_STREAM}, *list = NULL;
    struct sockaddr_un addr;
    struct sockaddr *to = (struct sockaddr *)&addr;
    socklen_t len = sizeof(addr);

    if (s->path) {
        if (!unix_address(s->path, &addr, NULL)) {
            return; /* checked when it was made */
        }
    } else if (getaddrinfo(s->host, s->port, &hints, &list)) {
        schedule_reconnect(s);
        return;
    } else {
        to = list->ai_addr;
        len = list->ai_addrlen;
    }
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int ret = fd < 0 ? -1 : connect(fd, to, len);
    int err = errno;
    if (list) {
        freeaddrinfo(list);
    }
    if (fd >= 0 && ret < 0 && err == EINPROGRESS) {
        s->connect_fd = fd;
        event_loop_set_fd_handler(event_loop_main(), fd, NULL, connect_finished, s);
    } else if (ret < 0) {
        if (fd >= 0) {
            close(fd);
        }
        schedule_reconnect(s);
    } else {
        socket_connected(s, fd);
    }
}

static gboolean parse_reconnect(SocketChardev *s, json_object *options, GError **errp)
{
    uint64_t seconds = 0, ms = 0;

    if (!chardev_opt_uint(options, "reconnect", 1000000, &seconds, errp) ||
        !chardev_opt_uint(options, "reconnect-ms", 1000000000, &ms, errp)) {
        return FALSE;
    }
    s->reconnect_ns = (seconds * 1000 + ms) * 1000000;
    if (s->reconnect_ns && (s->server || s->from_fd)) {
        return error_set(errp, "Parameter 'reconnect' is for clients with an address only");
    }
    return TRUE;
}

static gboolean parse_family(SocketChardev *s, json_object *options, GError **errp)
{
    bool ipv4 = false, ipv6 = false;

    if (!chardev_opt_bool(options, "ipv4", &ipv4, errp) ||
        !chardev_opt_bool(options, "ipv6", &ipv6, errp)) {
        return FALSE;
    }
    s->family = ipv4 == ipv6 ? AF_UNSPEC : ipv4 ? AF_INET : AF_INET6;
    return TRUE;
}

/* Options that QEMU has and we do not: off is fine. */
static gboolean refuse_switches(json_object *options, GError **errp)
{
    static const char *const names[] = {"telnet", "abstract", NULL};

    for (const char *const *name = names; *name; name++) {
        bool on = false;
        if (!chardev_opt_bool(options, *name, &on, errp)) {
            return FALSE;
        }
        if (on) {
            return error_set(errp, "Parameter '%s' of a socket chardev is not available, only off",
                             *name);
        }
    }
    return TRUE;
}

static gboolean parse_options(SocketChardev *s, json_object *options, const char **fd_text,
                              GError **errp)
{
    bool delay = true, nodelay = false;

    s->path = g_strdup(chardev_opt_string(options, "path"));
    s->host = g_strdup(chardev_opt_string(options, "host"));
    s->port = g_strdup(chardev_opt_string(options, "port"));
    *fd_text = chardev_opt_string(options, "fd");
    s->from_fd = *fd_text != NULL;
    s->wait = true;
    if (!chardev_opt_bool(options, "server", &s->server, errp) ||
        !chardev_opt_bool(options, "wait", &s->wait, errp) ||
        !chardev_opt_bool(options, "delay", &delay, errp) ||
        !chardev_opt_bool(options, "nodelay", &nodelay, errp) || !parse_family(s, options, errp) ||
        !parse_reconnect(s, options, errp) || !refuse_switches(options, errp)) {
        return FALSE;
    }
    s->nodelay = nodelay || !delay;
    if (json_member(options, "wait") && !s->server) {
        return error_set(errp, "Parameter 'wait' is for servers only (server=on)");
    }
    s->wait = s->wait && s->server;
    if (!!s->path + (s->host || s->port) + s->from_fd != 1) {
        return error_set(
            errp, "socket chardev '%s' needs one of path=, host= and port=, fd=", s->parent.id);
    }
    if (s->path && !*s->path) {
        return error_set(errp, "socket chardev '%s': the path is empty", s->parent.id);
    }
    if (s->host && !s->port) {
        return error_set(errp, "socket chardev '%s': no port given", s->parent.id);
    }
    if (s->port && !s->host) {
        s->host = g_strdup("");
    }
    return TRUE;
}

static int fd_open(SocketChardev *s, const char *text, GError **errp)
{
    uint64_t fd;
    struct stat st;

    if (!parse_uint64("fd", text, INT32_MAX, &fd, errp)) {
        return -1;
    }
    if (fstat(fd, &st) || !S_ISSOCK(st.st_mode)) {
        error_set(errp, "Parameter 'fd' expects a socket that is open in this process, not '%s'",
                  text);
        return -1;
    }
    return fd;
}

static void socket_close(Chardev *chr)
{
    SocketChardev *s = (SocketChardev *)chr;
    EventLoop *loop = event_loop_main();
    struct stat st;

    timer_del(&s->reconnect_timer);
    if (s->connect_fd >= 0) {
        event_loop_set_fd_handler(loop, s->connect_fd, NULL, NULL, NULL);
        close(s->connect_fd);
    }
    if (s->listen_fd >= 0) {
        event_loop_set_fd_handler(loop, s->listen_fd, NULL, NULL, NULL);
        close(s->listen_fd);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    /* Another process may have replaced the file: leave that one alone. */
    if (s->bound && !stat(s->path, &st) && st.st_dev == s->bound_dev && st.st_ino == s->bound_ino) {
        unlink(s->path);
    }
    g_free(s->path);
    g_free(s->host);
    g_free(s->port);
}

static gboolean socket_open(Chardev *chr, json_object *options, GError **errp)
{
    SocketChardev *s = (SocketChardev *)chr;
    const char *fd_text;
    struct sockaddr_un addr;
    int fd;

    s->listen_fd = s->connect_fd = s->fd = -1;
    timer_init(&s->reconnect_timer, event_loop_main(), CLOCK_HOST, socket_try_connect, s);
    if (!parse_options(s, options, &fd_text, errp) ||
        (s->path && !unix_address(s->path, &addr, errp))) {
        goto fail;
    }
    if (s->reconnect_ns) {
        socket_try_connect(s);
        return TRUE;
    }
    fd = s->from_fd ? fd_open(s, fd_text, errp) : s->path ? unix_open(s, errp) : tcp_open(s, errp);
    if (fd < 0) {
        goto fail;
    }
    if (s->server) {
        set_nonblocking(fd);
        s->listen_fd = fd;
        if (s->port) {
            read_bound_port(s);
        }
        socket_listen(s);
    } else {
        socket_connected(s, fd);
    }
    return TRUE;

fail:
    socket_close(chr);
    return FALSE;
}

gboolean chardev_wait_connected(Chardev *chr, GError **errp)
{
    SocketChardev *s = (SocketChardev *)chr;

    if (chr->backend != &chardev_socket || !s->wait) {
        return TRUE;
    }
    s->wait = false;
    if (!chr->is_open) {
        g_autofree char *address = socket_address(s);
        g_printerr("waiting for a client of chardev '%s' on %s\n", chr->id, address);
    }
    while (!chr->is_open) {
        struct pollfd pfd = {.fd = s->listen_fd, .events = POLLIN};
        if (poll(&pfd, 1, -1) < 0) {
            if (errno == EINTR) {
                return error_set(errp, "interrupted while waiting for a client of chardev '%s'",
                                 chr->id);
            }
            return error_set_errno(errp, errno, "cannot wait for a client of chardev '%s'",
                                   chr->id);
        }
        socket_acceptable(s);
    }
    return TRUE;
}

bool chardev_is_unix_socket(const Chardev *chr)
{
    const SocketChardev *s = (const SocketChardev *)chr;

    return chr->backend == &chardev_socket && !s->host;
}

/* One step towards a connection, in at most @ms; FALSE: none will ever come. */
static gboolean step_towards_connection(SocketChardev *s, int ms, GError **errp)
{
    struct pollfd pfd = {.fd = s->listen_fd, .events = POLLIN};

    if (s->connect_fd >= 0) {
        pfd = (struct pollfd){.fd = s->connect_fd, .events = POLLOUT};
    } else if (s->listen_fd < 0 && !s->reconnect_ns) {
        return error_set(errp, "chardev '%s' is not connected and will not connect again",
                         s->parent.id);
    }
    if (poll(&pfd, 1, ms) > 0) {
        if (s->connect_fd >= 0) {
            connect_finished(s);
        } else {
            socket_acceptable(s);
        }
    } else if (s->listen_fd < 0 && s->connect_fd < 0 &&
               s->reconnect_timer.deadline_ns <= clock_get_ns(CLOCK_HOST)) {
        timer_del(&s->reconnect_timer);
        socket_try_connect(s);
    }
    return TRUE;
}

gboolean chardev_wait_open(Chardev *chr, int timeout_ms, GError **errp)
{
    const int step_ms = 20;
    SocketChardev *s = (SocketChardev *)chr;
    int64_t end_ns = clock_get_ns(CLOCK_HOST) + timeout_ms * INT64_C(1000000);

    if (chr->backend != &chardev_socket) {
        return error_set(errp, "chardev '%s' is not a socket", chr->id);
    }
    s->wait = false;
    while (!chr->is_open) {
        if (vm_shutdown_requested()) {
            return error_set(errp, "interrupted while waiting for chardev '%s' to connect",
                             chr->id);
        }
        if (timeout_ms >= 0 && clock_get_ns(CLOCK_HOST) >= end_ns) {
            return error_set(errp, "chardev '%s' is not connected", chr->id);
        }
        if (!step_towards_connection(s, step_ms, errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

gboolean chardev_add_client(Chardev *chr, int fd, GError **errp)
{
    SocketChardev *s = (SocketChardev *)chr;

    if (chr->backend != &chardev_socket || !s->server) {
        return error_set(errp, "Adding a client is not supported by chardev '%s', only by servers",
                         chr->id);
    }
    if (chr->is_open) {
        return error_set(errp, "chardev '%s' has a client already", chr->id);
    }
    socket_connected(s, fd);
    return TRUE;
}

const ChardevBackend chardev_socket = {
    .type = "socket",
    .help = "path=PATH | host=HOST,port=PORT | fd=N, server=on|off, wait=on|off, reconnect-ms=MS",
    .keys = socket_keys,
    .instance_size = sizeof(SocketChardev),
    .open = socket_open,
    .close = socket_close,
    .filename = socket_filename,
    .ended = socket_ended,
};
