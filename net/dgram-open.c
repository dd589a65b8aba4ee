/*
 * Opening of datagram sockets: UDP at an address, UDP in a multicast group, or one that a user
 * opened.
 */
#include "net/dgram-open.h"

#include <errno.h>
#include <unistd.h>

#include "util/error.h"

static int fail(int fd, const NetAddress *addr, const char *what, GError **errp)
{
    int errnum = errno;
    g_autofree char *text = address_host_port(addr);
    if (fd >= 0) {
        close(fd);
    }
    error_set_errno(errp, errnum, "%s '%s'", what, text);
    return -1;
}

int udp_open(const NetAddress *local, GError **errp)
{
    int on = 1;
    int fd = socket_open(local->u.sa.sa_family, SOCK_DGRAM, 0);
    if (fd < 0) {
        return fail(fd, local, "cannot open a UDP socket for", errp);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, &local->u.sa, local->size) < 0) {
        return fail(fd, local, "cannot receive at", errp);
    }
    return fd;
}

static bool join_ipv4(int fd, const NetAddress *group, const NetAddress *iface)
{
    int on = 1;
    struct ip_mreq mreq = {.imr_multiaddr = group->u.in.sin_addr};
    if (iface) {
        mreq.imr_interface = iface->u.in.sin_addr;
    }
    /* Loop: several emulators on one host are what groups are mostly used for. */
    return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq)) == 0 &&
           setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &on, sizeof(on)) == 0 &&
           (!iface || setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &mreq.imr_interface,
                                 sizeof(mreq.imr_interface)) == 0);
}

/* IPv6 names interfaces by number: the scope of either address ("ff02::1%eth0"). */
static bool join_ipv6(int fd, const NetAddress *group, const NetAddress *iface)
{
    int on = 1;
    unsigned index = group->u.in6.sin6_scope_id;
    if (iface && iface->u.in6.sin6_scope_id) {
        index = iface->u.in6.sin6_scope_id;
    }
    struct ipv6_mreq mreq = {.ipv6mr_multiaddr = group->u.in6.sin6_addr, .ipv6mr_interface = index};
    return setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &mreq, sizeof(mreq)) == 0 &&
           setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &on, sizeof(on)) == 0 &&
           (!index || setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof(index)) == 0);
}

int multicast_open(const NetAddress *group, const NetAddress *iface, GError **errp)
{
    int on = 1, family = group->u.sa.sa_family;
    if (!address_is_multicast(group)) {
        g_autofree char *text = address_host_port(group);
        error_set(errp, "'%s' is not a multicast address: 224.0.0.0 to 239.255.255.255 are", text);
        return -1;
    }
    if (iface && iface->u.sa.sa_family != family) {
        error_set(errp, "the address of the interface must be of the group's IP version");
        return -1;
    }
    int fd = socket_open(family, SOCK_DGRAM, 0);
    if (fd < 0) {
        return fail(fd, group, "cannot open a UDP socket for", errp);
    }
    /* Each member on this host binds to the same address. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, &group->u.sa, group->size) < 0) {
        return fail(fd, group, "cannot receive at", errp);
    }
    if (!(family == AF_INET6 ? join_ipv6 : join_ipv4)(fd, group, iface)) {
        return fail(fd, iface ? iface : group,
                    iface ? "cannot join the multicast group at interface"
                          : "cannot join multicast group",
                    errp);
    }
    return fd;
}

int dgram_take_fd(const char *option, const char *text, GError **errp)
{
    NetAddress addr = {.size = sizeof(addr.u)};
    int fd = socket_take_fd(option, text, errp);
    if (fd < 0) {
        return -1;
    }
    if (socket_option(fd, SO_TYPE) != SOCK_DGRAM) {
        error_set(errp, "%s=%s is a socket of type %d: a datagram socket is needed", option, text,
                  socket_option(fd, SO_TYPE));
        return -1;
    }
    if (getpeername(fd, &addr.u.sa, &addr.size) < 0) {
        error_set(errp, "%s=%s is not connected: connect() it to the other side first", option,
                  text);
        return -1;
    }
    return fd;
}
