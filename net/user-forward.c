/*
 * Port forwarding of -netdev user: connections from the host to the guest (hostfwd), and from the
 * guest to programs and character devices of the host (guestfwd).
 *
 * libslirp moves the bytes of all but the last: with a character device they pass through here.
 * What it can take is known only when it is asked, so it is asked again before each poll.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "net/user.h"
#include "util/error.h"
#include "util/keyval.h"

#define FORWARD_LIMIT (16 * 1024 * 1024) /* bytes that may wait for a character device */

typedef union Endpoint {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
} Endpoint;

/* "[ADDR]:PORT", the address in brackets if it is IPv6; empty means any. */
static bool parse_endpoint(const char *text, Endpoint *end)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    memset(end, 0, sizeof(*end));
    if (!colon || !g_ascii_isdigit(colon[1]) ||
        !parse_uint64("port", colon + 1, 65535, &port, NULL)) {
        return false;
    }
    g_autofree char *addr = g_strndup(text, colon - text);
    size_t len = strlen(addr);
    if (addr[0] == '[' && len > 2 && addr[len - 1] == ']') {
        addr[len - 1] = 0;
        end->in6.sin6_family = AF_INET6;
        end->in6.sin6_port = htons(port);
        return inet_pton(AF_INET6, addr + 1, &end->in6.sin6_addr) == 1;
    }
    end->in.sin_family = AF_INET;
    end->in.sin_port = htons(port);
    return len == 0 || inet_pton(AF_INET, addr, &end->in.sin_addr) == 1;
}

static socklen_t endpoint_size(const Endpoint *end)
{
    return end->sa.sa_family == AF_INET6 ? sizeof(end->in6) : sizeof(end->in);
}

/* "[tcp|udp]:REST"; NULL if it is not. */
static const char *parse_protocol(const char *rule, int *flags)
{
    *flags = 0;
    if (g_str_has_prefix(rule, "tcp:") || g_str_has_prefix(rule, "udp:")) {
        *flags = rule[0] == 'u' ? SLIRP_HOSTFWD_UDP : 0;
        return rule + 4;
    }
    return rule[0] == ':' ? rule + 1 : NULL;
}

static gboolean rule_error(const char *rule, GError **errp)
{
    return error_set(errp,
                     "Invalid host forwarding rule '%s': "
                     "[tcp|udp]:[HOSTADDR]:HOSTPORT-[GUESTADDR]:GUESTPORT is expected",
                     rule);
}

static gboolean forward_error(const char *rule, GError **errp)
{
    return error_set(errp,
                     "Could not set up guest forwarding rule '%s': the address must be in the "
                     "guest's network, not the host's or the name server's, and not in use",
                     rule);
}

gboolean user_add_hostfwd(Slirp *slirp, const char *rule, GError **errp)
{
    int flags, rc;
    Endpoint host, guest;
    const char *rest = parse_protocol(rule, &flags);
    const char *dash = rest ? strchr(rest, '-') : NULL;
    if (!dash) {
        return rule_error(rule, errp);
    }
    g_autofree char *from = g_strndup(rest, dash - rest);
    if (!parse_endpoint(from, &host) || !parse_endpoint(dash + 1, &guest) ||
        ntohs(guest.in.sin_port) == 0) {
        return rule_error(rule, errp);
    }
    if (host.sa.sa_family != guest.sa.sa_family) {
        /* An IPv6 host side with no guest address would ask for a translation nobody does. */
        return error_set(errp,
                         "Invalid host forwarding rule '%s': host and guest address must both be "
                         "IPv4 or both IPv6",
                         rule);
    }
    errno = 0;
    if (host.sa.sa_family == AF_INET) {
        rc = slirp_add_hostfwd(slirp, flags, host.in.sin_addr, ntohs(host.in.sin_port),
                               guest.in.sin_addr, ntohs(guest.in.sin_port));
    } else {
        rc = slirp_add_hostxfwd(slirp, &host.sa, endpoint_size(&host), &guest.sa,
                                endpoint_size(&guest), flags | SLIRP_HOSTFWD_V6ONLY);
    }
    if (rc < 0) {
        return error_set_errno(errp, errno ? errno : EINVAL,
                               "Could not set up host forwarding rule '%s'", rule);
    }
    return true;
}

gboolean user_remove_hostfwd(Slirp *slirp, const char *rule, bool *found, GError **errp)
{
    int flags;
    Endpoint host;
    const char *rest = parse_protocol(rule, &flags);
    if (!rest || !parse_endpoint(rest, &host)) {
        return error_set(errp, "'%s' is not [tcp|udp]:[HOSTADDR]:HOSTPORT", rule);
    }
    *found = (host.sa.sa_family == AF_INET
                  ? slirp_remove_hostfwd(slirp, flags, host.in.sin_addr, ntohs(host.in.sin_port))
                  : slirp_remove_hostxfwd(slirp, &host.sa, endpoint_size(&host),
                                          flags | SLIRP_HOSTFWD_V6ONLY)) == 0;
    return true;
}

/* ---- guest to character device ---- */

struct UserForward {
    Slirp *slirp;
    struct in_addr addr;
    int port;
    Chardev *chr;
    bool ours; /* made here */
};

static size_t forward_room(void *opaque)
{
    UserForward *f = opaque;
    return slirp_socket_can_recv(f->slirp, f->addr, f->port);
}

static void forward_read(void *opaque, const char *data, size_t size)
{
    UserForward *f = opaque;
    slirp_socket_recv(f->slirp, f->addr, f->port, (const uint8_t *)data, (int)size);
}

static const ChardevHandlers forward_handlers = {
    .can_read = forward_room,
    .read = forward_read,
};

/* libslirp does not ask what became of it: a device that is not read for long loses its connection,
 * because a stream with a gap is worse than one that ends. */
static ssize_t forward_write(const void *data, size_t size, void *opaque)
{
    UserForward *f = opaque;
    if (!chardev_write(f->chr, data, size, FORWARD_LIMIT)) {
        warn_report("guestfwd: '%s' is not read: connection closed", chardev_id(f->chr));
        chardev_disconnect(f->chr);
    }
    return size;
}

static void forward_free(UserForward *f)
{
    chardev_detach(f->chr);
    if (f->ours) {
        chardev_remove(chardev_id(f->chr), NULL);
    }
    g_free(f);
}

static gboolean add_chardev(Slirp *slirp, GPtrArray *forwards, const Endpoint *at, const char *spec,
                            GError **errp)
{
    int port = ntohs(at->in.sin_port);
    struct in_addr addr = at->in.sin_addr;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &addr, text, sizeof(text));
    g_autofree char *id = g_strdup_printf("guestfwd.tcp.%s.%d", text, port);
    UserForward *f = g_new0(UserForward, 1);
    *f = (UserForward){slirp, addr, port, chardev_new_compat(id, spec, errp), false};
    if (!f->chr || !chardev_attach(f->chr, &forward_handlers, f, errp)) {
        g_free(f);
        return false;
    }
    f->ours = strcmp(chardev_id(f->chr), id) == 0;
    if (slirp_add_guestfwd(slirp, forward_write, f, &addr, port) < 0) {
        forward_free(f);
        return forward_error(spec, errp);
    }
    g_ptr_array_add(forwards, f);
    return true;
}

void user_forwards_poll(GPtrArray *forwards)
{
    for (unsigned i = 0; i < forwards->len; i++) {
        chardev_accept_input(((UserForward *)forwards->pdata[i])->chr);
    }
}

void user_forwards_free(GPtrArray *forwards)
{
    for (unsigned i = 0; i < forwards->len; i++) {
        forward_free(forwards->pdata[i]);
    }
    g_ptr_array_unref(forwards);
}

gboolean user_add_guestfwd(Slirp *slirp, GPtrArray *forwards, const char *rule, GError **errp)
{
    const char *rest = rule;
    Endpoint at;
    if (g_str_has_prefix(rest, "tcp:")) {
        rest += 4;
    } else if (rest[0] == ':') {
        rest++;
    }
    const char *dash = strchr(rest, '-');
    g_autofree char *addr = dash ? g_strndup(rest, dash - rest) : g_strdup("");
    if (!dash || !parse_endpoint(addr, &at) || at.sa.sa_family != AF_INET || at.in.sin_port == 0 ||
        !at.in.sin_addr.s_addr) {
        return error_set(errp,
                         "Invalid guest forwarding rule '%s': tcp:ADDR:PORT-cmd:COMMAND, "
                         "tcp:ADDR:PORT-unix:PATH or tcp:ADDR:PORT-chardev:ID is expected",
                         rule);
    }
    int rc;
    if (g_str_has_prefix(dash + 1, "cmd:")) {
        rc = slirp_add_exec(slirp, dash + 5, &at.in.sin_addr, ntohs(at.in.sin_port));
    } else if (g_str_has_prefix(dash + 1, "unix:")) {
        rc = slirp_add_unix(slirp, dash + 6, &at.in.sin_addr, ntohs(at.in.sin_port));
    } else if (add_chardev(slirp, forwards, &at, dash + 1, errp)) {
        return true;
    } else {
        g_prefix_error(errp, "Guest forwarding rule '%s': ", rule);
        return false;
    }
    return rc == 0 || forward_error(rule, errp);
}
