/*
 * Socket addresses: looking them up, showing them, and opening stream sockets at them.
 *
 * Sockets made here never block and are closed in child processes.  Connecting is begun here and
 * waited for by the caller in its event loop; only looking up names can block, so a caller that
 * must not wait does it in another thread.
 *
 * Not here: frames, and datagram sockets with their multicast groups (dgram-open.c).
 */
#include "net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/net.h"
#include "qapi/qapi-visit.h"
#include "util/error.h"
#include "util/keyval.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define LISTEN_BACKLOG 1 /* one is served at a time; the next waits */

/* ---- looking up ---- */

static gboolean inet_family(const InetSocketAddress *in, int *family, GError **errp)
{
    bool v4_off = in->has_ipv4 && !in->ipv4, v6_off = in->has_ipv6 && !in->ipv6;
    bool v4_on = in->has_ipv4 && in->ipv4, v6_on = in->has_ipv6 && in->ipv6;
    if (v4_off && v6_off) {
        return error_set(errp, "ipv4=off and ipv6=off leave no address: one of them must be on");
    }
    *family = v4_off || (v6_on && !v4_on)   ? AF_INET6
              : v6_off || (v4_on && !v6_on) ? AF_INET
                                            : AF_UNSPEC;
    return true;
}

static bool host_is_numeric(const char *host)
{
    struct in6_addr in6;
    struct in_addr in;
    return !*host || inet_pton(AF_INET, host, &in) == 1 || inet_pton(AF_INET6, host, &in6) == 1;
}

static GArray *resolve_inet(const char *host, const char *port, const struct addrinfo *hints,
                            GError **errp)
{
    struct addrinfo *list;
    if (!*port) {
        error_set(errp, "address '%s:' has no port", host);
        return NULL;
    }
    int rc = getaddrinfo(*host ? host : NULL, port, hints, &list);
    if (rc != 0) {
        error_set(errp, "address '%s:%s': %s", host, port, gai_strerror(rc));
        return NULL;
    }
    GArray *out = g_array_new(FALSE, FALSE, sizeof(NetAddress));
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        NetAddress addr = {.size = a->ai_addrlen};
        memcpy(&addr.u, a->ai_addr, a->ai_addrlen);
        g_array_append_val(out, addr);
    }
    freeaddrinfo(list);
    return out;
}

static gboolean unix_address(const UnixSocketAddress *un, NetAddress *out, GError **errp)
{
    size_t len = strlen(un->path), max = sizeof(out->u.un.sun_path) - 1;
    bool abstract = un->has_abstract && un->abstract;
    memset(out, 0, sizeof(*out));
    out->u.un.sun_family = AF_UNIX;
    if (len == 0 || len > max) {
        return error_set(errp, "UNIX socket path '%s' is %s: 1 to %zu bytes are possible", un->path,
                         len ? "too long" : "empty", max);
    }
    if (!abstract && un->has_tight) {
        return error_set(errp, "tight= is for abstract UNIX sockets: give abstract=on too");
    }
    memcpy(out->u.un.sun_path + abstract, un->path, len);
    out->size = sizeof(out->u.un);
    if (abstract && (!un->has_tight || un->tight)) {
        out->size = offsetof(struct sockaddr_un, sun_path) + 1 + len;
    }
    return true;
}

static gboolean vsock_address(const VsockSocketAddress *vs, NetAddress *out, GError **errp)
{
    uint64_t cid, port;
    if (!parse_uint64("cid", vs->cid, UINT32_MAX, &cid, errp) ||
        !parse_uint64("port", vs->port, UINT32_MAX, &port, errp)) {
        return false;
    }
    memset(out, 0, sizeof(*out));
    out->u.vm.svm_family = AF_VSOCK;
    out->u.vm.svm_cid = cid;
    out->u.vm.svm_port = port;
    out->size = sizeof(out->u.vm);
    return true;
}

GArray *address_resolve(const SocketAddress *addr, int socktype, bool passive, GError **errp)
{
    NetAddress one;
    gboolean ok;
    if (addr->type == SOCKET_ADDRESS_TYPE_INET) {
        const InetSocketAddress *in = &addr->u.inet;
        struct addrinfo hints = {.ai_socktype = socktype, .ai_flags = passive ? AI_PASSIVE : 0};
        if (in->has_numeric && in->numeric) {
            hints.ai_flags |= AI_NUMERICHOST | AI_NUMERICSERV;
        }
        return inet_family(in, &hints.ai_family, errp)
                   ? resolve_inet(in->host, in->port, &hints, errp)
                   : NULL;
    }
    ok = addr->type == SOCKET_ADDRESS_TYPE_UNIX ? unix_address(&addr->u.q_unix, &one, errp)
                                                : vsock_address(&addr->u.vsock, &one, errp);
    if (!ok) {
        return NULL;
    }
    GArray *out = g_array_new(FALSE, FALSE, sizeof(NetAddress));
    return g_array_append_val(out, one);
}

bool address_needs_lookup(const SocketAddress *addr)
{
    return addr->type == SOCKET_ADDRESS_TYPE_INET && !host_is_numeric(addr->u.inet.host);
}

gboolean address_parse_host_port(const char *option, const char *text, int socktype, bool passive,
                                 NetAddress *out, GError **errp)
{
    const char *colon = strrchr(text, ':');
    if (!colon) {
        return error_set(errp, "%s=%s: HOST:PORT is expected", option, text);
    }
    bool brackets = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    g_autofree char *host =
        brackets ? g_strndup(text + 1, colon - text - 2) : g_strndup(text, colon - text);
    /* An old option: without brackets it is IPv4. */
    struct addrinfo hints = {.ai_family = brackets ? AF_UNSPEC : AF_INET,
                             .ai_socktype = socktype,
                             .ai_flags = passive ? AI_PASSIVE : 0};
    g_autoptr(GArray) list = resolve_inet(host, colon + 1, &hints, errp);
    if (!list) {
        g_prefix_error(errp, "%s=: ", option);
        return false;
    }
    *out = g_array_index(list, NetAddress, 0);
    return true;
}

/* ---- showing ---- */

static SocketAddress *unix_to_qapi(const NetAddress *addr)
{
    SocketAddress *out = g_new0(SocketAddress, 1);
    UnixSocketAddress *un = &out->u.q_unix;
    const char *path = addr->u.un.sun_path;
    size_t head = offsetof(struct sockaddr_un, sun_path);
    size_t len = addr->size > head ? addr->size - head : 0;
    out->type = SOCKET_ADDRESS_TYPE_UNIX;
    if (len > 0 && path[0] == 0) {
        g_autofree char *name = g_strndup(path + 1, len - 1);
        un->path = g_utf8_make_valid(name, -1);
        un->has_abstract = un->abstract = true;
        un->has_tight = true;
        un->tight = addr->size < sizeof(addr->u.un);
    } else {
        g_autofree char *name = g_strndup(path, len);
        un->path = g_utf8_make_valid(name, -1);
    }
    return out;
}

SocketAddress *address_to_qapi(const NetAddress *addr)
{
    char host[INET6_ADDRSTRLEN] = "";
    if (addr->u.sa.sa_family == AF_UNIX) {
        return unix_to_qapi(addr);
    }
    SocketAddress *out = g_new0(SocketAddress, 1);
    if (addr->u.sa.sa_family == AF_VSOCK) {
        out->type = SOCKET_ADDRESS_TYPE_VSOCK;
        out->u.vsock.cid = g_strdup_printf("%u", addr->u.vm.svm_cid);
        out->u.vsock.port = g_strdup_printf("%u", addr->u.vm.svm_port);
        return out;
    }
    bool v6 = addr->u.sa.sa_family == AF_INET6;
    out->type = SOCKET_ADDRESS_TYPE_INET;
    inet_ntop(addr->u.sa.sa_family,
              v6 ? (const void *)&addr->u.in6.sin6_addr : &addr->u.in.sin_addr, host, sizeof(host));
    out->u.inet.host = g_strdup(host);
    out->u.inet.port =
        g_strdup_printf("%u", ntohs(v6 ? addr->u.in6.sin6_port : addr->u.in.sin_port));
    return out;
}

SocketAddress *address_clone(const SocketAddress *addr)
{
    json_object *json = qapi_build_SocketAddress(addr);
    SocketAddress *copy = qapi_parse_SocketAddress(json, QAPI_INPUT_JSON, NULL);
    json_object_put(json);
    return copy;
}

char *address_uri(const SocketAddress *addr)
{
    switch (addr->type) {
    case SOCKET_ADDRESS_TYPE_INET:
        return g_strdup_printf("tcp:%s:%s", addr->u.inet.host, addr->u.inet.port);
    case SOCKET_ADDRESS_TYPE_UNIX:
        return g_strdup_printf("unix:%s", addr->u.q_unix.path);
    case SOCKET_ADDRESS_TYPE_VSOCK:
        return g_strdup_printf("vsock:%s:%s", addr->u.vsock.cid, addr->u.vsock.port);
    default:
        return g_strdup_printf("fd:%s", addr->u.fd.str);
    }
}

char *address_text(const SocketAddress *addr)
{
    if (addr->type == SOCKET_ADDRESS_TYPE_INET) {
        return g_strdup_printf("%s:%s", addr->u.inet.host, addr->u.inet.port);
    }
    return addr->type == SOCKET_ADDRESS_TYPE_UNIX ? g_strdup(addr->u.q_unix.path)
                                                  : address_uri(addr);
}

char *address_host_port(const NetAddress *addr)
{
    g_autoptr(SocketAddress) qapi = address_to_qapi(addr);
    return g_strdup_printf("%s:%s", qapi->u.inet.host, qapi->u.inet.port);
}

bool address_is_multicast(const NetAddress *addr)
{
    if (addr->u.sa.sa_family == AF_INET6) {
        return IN6_IS_ADDR_MULTICAST(&addr->u.in6.sin6_addr);
    }
    return addr->u.sa.sa_family == AF_INET && IN_MULTICAST(ntohl(addr->u.in.sin_addr.s_addr));
}

/* ---- sockets ---- */

int socket_open(int family, int type, int protocol)
{
    return socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

int socket_option(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

void socket_set_nodelay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int socket_take_fd(const char *option, const char *text, GError **errp)
{
    int fd = net_fd_parse(option, text, errp);
    if (fd < 0) {
        return -1;
    }
    if (socket_option(fd, SO_TYPE) < 0) {
        error_set(errp, "%s=%s is not a socket", option, text);
        return -1;
    }
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        error_set_errno(errp, errno, "%s=%s", option, text);
        return -1;
    }
    return fd;
}

static int inet_protocol(const SocketAddress *addr)
{
    bool mptcp = addr && addr->type == SOCKET_ADDRESS_TYPE_INET && addr->u.inet.has_mptcp &&
                 addr->u.inet.mptcp;
    return mptcp ? IPPROTO_MPTCP : 0;
}

static void set_keep_alive(int fd, const SocketAddress *addr)
{
    int on = 1;
    if (addr && addr->type == SOCKET_ADDRESS_TYPE_INET && addr->u.inet.has_keep_alive &&
        addr->u.inet.keep_alive) {
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
}

int socket_bind(int fd, const NetAddress *addr, BoundPath *bound)
{
    const char *path = addr->u.sa.sa_family == AF_UNIX ? addr->u.un.sun_path : "";
    struct stat st;
    if (*path && unlink(path) < 0 && errno != ENOENT) {
        return errno;
    }
    if (bind(fd, &addr->u.sa, addr->size) < 0) {
        return errno;
    }
    if (*path && stat(path, &st) == 0) {
        *bound = (BoundPath){g_strdup(path), st.st_dev, st.st_ino};
    }
    return 0;
}

void bound_path_release(BoundPath *bound)
{
    struct stat st;
    if (bound->path && stat(bound->path, &st) == 0 && st.st_dev == bound->dev &&
        st.st_ino == bound->ino) {
        unlink(bound->path);
    }
    g_clear_pointer(&bound->path, g_free);
}

static void set_port(NetAddress *addr, unsigned port)
{
    if (addr->u.sa.sa_family == AF_INET6) {
        addr->u.in6.sin6_port = htons(port);
    } else {
        addr->u.in.sin_port = htons(port);
    }
}

/* One address, one port: a listening socket, or -1 with errno. */
static int listen_at(const NetAddress *at, const SocketAddress *addr, BoundPath *bound)
{
    int on = 1, family = at->u.sa.sa_family;
    int fd = socket_open(family, SOCK_STREAM, inet_protocol(addr));
    if (fd < 0) {
        return -1;
    }
    if (family == AF_INET || family == AF_INET6) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    if (family == AF_INET6) {
        /* "::" takes IPv4 too only when both are wanted. */
        int v6_only = addr->u.inet.has_ipv4 && !addr->u.inet.ipv4;
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
    }
    set_keep_alive(fd, addr);
    int errnum = socket_bind(fd, at, bound);
    if (errnum == 0 && listen(fd, LISTEN_BACKLOG) < 0) {
        errnum = errno;
        bound_path_release(bound);
    }
    if (errnum) {
        close(fd);
        errno = errnum;
        return -1;
    }
    return fd;
}

static gboolean port_range(const SocketAddress *addr, GArray *list, unsigned *first, unsigned *last,
                           GError **errp)
{
    if (addr->type != SOCKET_ADDRESS_TYPE_INET) {
        *first = *last = 0;
        return true;
    }
    const NetAddress *at = &g_array_index(list, NetAddress, 0);
    *first = ntohs(at->u.sa.sa_family == AF_INET6 ? at->u.in6.sin6_port : at->u.in.sin_port);
    *last = addr->u.inet.has_to ? addr->u.inet.to : *first;
    if (*last < *first) {
        return error_set(errp, "to=%u is below port=%u", *last, *first);
    }
    return true;
}

int address_listen(const SocketAddress *addr, BoundPath *bound, GError **errp)
{
    unsigned first, last;
    g_autoptr(GArray) list = address_resolve(addr, SOCK_STREAM, true, errp);
    if (!list || !port_range(addr, list, &first, &last, errp)) {
        return -1;
    }
    int errnum = 0;
    for (unsigned i = 0; i < list->len; i++) {
        NetAddress *at = &g_array_index(list, NetAddress, i);
        for (unsigned port = first; port <= last; port++) {
            if (addr->type == SOCKET_ADDRESS_TYPE_INET) {
                set_port(at, port);
            }
            int fd = listen_at(at, addr, bound);
            if (fd >= 0) {
                return fd;
            }
            errnum = errno;
            if (errnum != EADDRINUSE) {
                break;
            }
        }
    }
    g_autofree char *text = address_text(addr);
    error_set_errno(errp, errnum, "cannot listen at '%s'%s", text,
                    errnum == EADDRINUSE ? " (another program uses it; choose another)" : "");
    return -1;
}

int address_connect(const NetAddress *addr, const SocketAddress *options, bool *pending)
{
    int family = addr->u.sa.sa_family;
    int fd = socket_open(family, SOCK_STREAM, inet_protocol(options));
    if (fd < 0) {
        return -1;
    }
    set_keep_alive(fd, options);
    *pending = false;
    while (connect(fd, &addr->u.sa, addr->size) < 0) {
        if (errno == EINTR) {
            continue;
        }
        /* EAGAIN: a UNIX server's queue is full; no event says when it is not. */
        if (errno == EINPROGRESS) {
            *pending = true;
            return fd;
        }
        int errnum = errno;
        close(fd);
        errno = errnum;
        return -1;
    }
    return fd;
}

int socket_connect_result(int fd)
{
    int value = 0;
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &size) < 0 ? errno : value;
}
