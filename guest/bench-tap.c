/*
 * Taps in a namespace: see bench-tap.h.
 */
#include "guest/bench-tap.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEND_BUFFER (8 << 20)

static bool fail(GError **errp, const char *what)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "%s: %s", what, g_strerror(errno));
    return false;
}

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

/* Without it a new namespace's 127.0.0.1 cannot be reached; what needs that says so. */
static void set_loopback_up(void)
{
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        ioctl(fd, SIOCSIFFLAGS, &ifr);
        close(fd);
    }
}

bool bench_tap_enter_namespace(GError **errp)
{
    if (unshare(CLONE_NEWNET) == 0) {
        set_loopback_up();
        return true;
    }
    g_autofree char *uid = g_strdup_printf("0 %u 1", geteuid());
    g_autofree char *gid = g_strdup_printf("0 %u 1", getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
        return fail(errp, "network namespace (root can make one)");
    }
    if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", uid) ||
        !write_file("/proc/self/gid_map", gid)) {
        return fail(errp, "user namespace (root needs none)");
    }
    set_loopback_up();
    return true;
}

static bool set_up(BenchTap *tap, GError **errp)
{
    struct ifreq ifr = {0};
    g_autofree char *ipv6 = g_strdup_printf("/proc/sys/net/ipv6/conf/%s/disable_ipv6", tap->ifname);
    /* Nobody but us is to send; without IPv6 in the kernel there is nothing to switch off. */
    write_file(ipv6, "1");
    memcpy(ifr.ifr_name, tap->ifname, sizeof(tap->ifname));
    if (ioctl(tap->packet_fd, SIOCGIFFLAGS, &ifr) < 0) {
        return fail(errp, tap->ifname);
    }
    ifr.ifr_flags |= IFF_UP;
    return ioctl(tap->packet_fd, SIOCSIFFLAGS, &ifr) == 0 || fail(errp, tap->ifname);
}

bool bench_tap_listen(BenchTap *tap, uint16_t type, GError **errp)
{
    struct sockaddr_ll addr = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(type),
        .sll_ifindex = (int)if_nametoindex(tap->ifname),
    };
    return bind(tap->packet_fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 ||
           fail(errp, "packet socket");
}

static bool bind_packet_socket(BenchTap *tap, GError **errp)
{
    int on = 1, size = SEND_BUFFER;
    if (setsockopt(tap->packet_fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) < 0 ||
        setsockopt(tap->packet_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) < 0) {
        return fail(errp, "packet socket");
    }
    if (setsockopt(tap->packet_fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0) {
        setsockopt(tap->packet_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    }
    /* Protocol 0: it receives nothing so far. */
    return bench_tap_listen(tap, 0, errp);
}

bool bench_tap_open(BenchTap *tap, GError **errp)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = "bench%d"};
    int header = BENCH_TAP_HEADER;
    *tap = (BenchTap){.fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), .packet_fd = -1};
    if (tap->fd < 0) {
        return fail(errp, "/dev/net/tun");
    }
    if (ioctl(tap->fd, TUNSETIFF, &ifr) < 0 || ioctl(tap->fd, TUNSETVNETHDRSZ, &header) < 0) {
        fail(errp, "tap");
        bench_tap_close(tap);
        return false;
    }
    memcpy(tap->ifname, ifr.ifr_name, sizeof(tap->ifname));
    tap->packet_fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tap->packet_fd < 0) {
        fail(errp, "packet socket");
    } else if (set_up(tap, errp) && bind_packet_socket(tap, errp)) {
        return true;
    }
    bench_tap_close(tap);
    return false;
}

bool bench_tap_enable_offloads(BenchTap *tap, GError **errp)
{
    unsigned long flags = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    return ioctl(tap->fd, TUNSETOFFLOAD, flags) == 0 || fail(errp, "TUNSETOFFLOAD");
}

void bench_tap_close(BenchTap *tap)
{
    if (tap->fd >= 0) {
        close(tap->fd);
    }
    if (tap->packet_fd >= 0) {
        close(tap->packet_fd);
    }
    tap->fd = tap->packet_fd = -1;
}

bool bench_tap_count(const BenchTap *tap, uint64_t *taken, GError **errp)
{
    char line[512];
    size_t len = strlen(tap->ifname);
    FILE *file = fopen("/proc/thread-self/net/dev", "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file)) {
        const char *at = line + strspn(line, " ");
        found = strncmp(at, tap->ifname, len) == 0 && at[len] == ':' &&
                sscanf(at + len + 1, "%*u %" SCNu64, taken) == 1; /* bytes, packets, … */
    }
    if (file) {
        fclose(file);
    }
    if (!found) {
        errno = ENODEV;
        return fail(errp, tap->ifname);
    }
    return true;
}
