/*
 * The far side of a tap: see wire.h.
 */
#include "tests/lib/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "guest/bench-tap.h"

#define HEADER 10 /* of the packet socket */
#define BRIDGE "wirebr"
#define FAR    "wirefar"

bool wire_enter(char **reason)
{
    g_autoptr(GError) err = NULL;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        *reason = g_strdup_printf("/dev/net/tun: %s", g_strerror(errno));
        return false;
    }
    close(fd);
    if (geteuid() != 0 || !bench_tap_enter_namespace(&err)) {
        *reason = g_strdup(err ? err->message : "root is needed for taps and bridges");
        return false;
    }
    return true;
}

static void set_quiet(const char *ifname)
{
    g_autofree char *path = g_strdup_printf("/proc/sys/net/ipv6/conf/%s/disable_ipv6", ifname);
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) { /* else the kernel has no IPv6 */
        g_assert_cmpint(write(fd, "1", 1), ==, 1);
        close(fd);
    }
}

static void set_up(int fd, const char *ifname, bool up)
{
    struct ifreq ifr = {0};

    g_strlcpy(ifr.ifr_name, ifname, sizeof(ifr.ifr_name));
    if (ioctl(fd, SIOCGIFFLAGS, &ifr) < 0) {
        g_error("interface %s: %s", ifname, g_strerror(errno));
    }
    ifr.ifr_flags = (short)(up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP);
    if (ioctl(fd, SIOCSIFFLAGS, &ifr) < 0) {
        g_error("interface %s: %s", ifname, g_strerror(errno));
    }
}

void wire_set_up(const Wire *wire, bool up)
{
    set_up(wire->packet_fd, wire->ifname, up);
}

void wire_open(Wire *wire, const char *ifname)
{
    int on = 1;
    struct sockaddr_ll addr = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = (int)if_nametoindex(ifname),
    };

    wire->far_fd = -1;
    g_strlcpy(wire->ifname, ifname, sizeof(wire->ifname));
    wire->packet_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (wire->packet_fd < 0 || !addr.sll_ifindex ||
        setsockopt(wire->packet_fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) < 0 ||
        setsockopt(wire->packet_fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) < 0) {
        g_error("packet socket on %s: %s", ifname, g_strerror(errno));
    }
    set_quiet(ifname);
    wire_set_up(wire, true);
    if (bind(wire->packet_fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        g_error("packet socket on %s: %s", ifname, g_strerror(errno));
    }
}

static void add_port(int fd, const char *ifname)
{
    struct ifreq ifr = {.ifr_name = BRIDGE};

    ifr.ifr_ifindex = (int)if_nametoindex(ifname);
    if (ioctl(fd, SIOCBRADDIF, &ifr) < 0) {
        g_error("bridge, port %s: %s", ifname, g_strerror(errno));
    }
}

void wire_bridge(Wire *wire)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI, .ifr_name = FAR};

    wire->far_fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (wire->far_fd < 0 || ioctl(wire->far_fd, TUNSETIFF, &ifr) < 0) {
        g_error("far tap: %s", g_strerror(errno));
    }
    if (ioctl(wire->packet_fd, SIOCBRADDBR, BRIDGE) < 0) {
        g_error("bridge: %s", g_strerror(errno));
    }
    set_quiet(FAR);
    set_quiet(BRIDGE);
    add_port(wire->packet_fd, wire->ifname);
    add_port(wire->packet_fd, FAR);
    set_up(wire->packet_fd, FAR, true);
    set_up(wire->packet_fd, BRIDGE, true);
}

void wire_close(Wire *wire)
{
    if (wire->far_fd >= 0) {
        set_up(wire->packet_fd, BRIDGE, false);
        if (ioctl(wire->packet_fd, SIOCBRDELBR, BRIDGE) < 0) {
            g_error("bridge: %s", g_strerror(errno));
        }
        close(wire->far_fd);
    }
    close(wire->packet_fd);
}

void wire_send(Wire *wire, const struct virtio_net_hdr_v1 *header, const void *frame, size_t size)
{
    struct iovec iov[2] = {{(void *)header, HEADER}, {(void *)frame, size}};

    if (writev(wire->packet_fd, iov, 2) < 0) {
        g_error("packet socket: frame of %zu bytes: %s", size, g_strerror(errno));
    }
}

static bool await(int fd, unsigned ms)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return poll(&pfd, 1, (int)ms) > 0;
}

size_t wire_recv(Wire *wire, struct virtio_net_hdr_v1 *header, uint8_t frame[static WIRE_MAX],
                 unsigned ms)
{
    struct iovec iov[2] = {{header, HEADER}, {frame, WIRE_MAX}};
    ssize_t n;

    memset(header, 0, sizeof(*header));
    if (!await(wire->packet_fd, ms)) {
        return 0;
    }
    n = readv(wire->packet_fd, iov, 2);
    if (n < HEADER) {
        g_error("packet socket: %s", n < 0 ? g_strerror(errno) : "no header");
    }
    return (size_t)n - HEADER;
}

/* A bridge that comes up joins the group of multicast snoopers, and reports that by IGMP. */
static bool is_from_bridge(const uint8_t *frame, size_t size)
{
    return size > 23 && frame[12] == 0x08 && frame[13] == 0x00 && frame[23] == IPPROTO_IGMP;
}

size_t wire_far_recv(Wire *wire, uint8_t frame[static WIRE_MAX], unsigned ms)
{
    ssize_t n;

    do {
        if (!await(wire->far_fd, ms)) {
            return 0;
        }
        n = read(wire->far_fd, frame, WIRE_MAX);
        if (n < 0) {
            g_error("far tap: %s", g_strerror(errno));
        }
    } while (is_from_bridge(frame, (size_t)n));
    return (size_t)n;
}
