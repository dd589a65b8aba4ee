/*
 * Linux taps: opening /dev/net/tun, and the ioctls that set header size and offloads.
 *
 * TUNSETOFFLOAD is all or nothing and takes only some combinations: segmentation needs checksum
 * offload, ECN needs TSO, USO for IPv4 and for IPv6 come together, tunnel checksums need tunnel
 * segmentation.  offload_flags() never asks for another, and where the kernel has less,
 * tap_device_set_offloads() asks for less: the tap then sends what it would have sent merged as
 * single segments, which every receiver takes.
 */
#include "net/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if_tun.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "util/error.h"

/* Newer than the kernel headers of some machines; values of the kernel's uapi if_tun.h. */
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif
#ifndef TUN_F_UDP_TUNNEL_GSO
#define TUN_F_UDP_TUNNEL_GSO      0x80
#define TUN_F_UDP_TUNNEL_GSO_CSUM 0x100
#endif

#define HDR_LEN_MIN    10 /* struct virtio_net_hdr */
#define HDR_LEN_TUNNEL 24 /* the shortest with tunnel fields */

static unsigned offload_flags(const NetOffloads *o)
{
    if (!o->csum) {
        return 0;
    }
    unsigned tso = (o->tso4 ? TUN_F_TSO4 : 0) | (o->tso6 ? TUN_F_TSO6 : 0);
    unsigned flags = TUN_F_CSUM | tso | (o->ufo ? TUN_F_UFO : 0);
    if (tso && o->ecn) {
        flags |= TUN_F_TSO_ECN;
    }
    if (o->uso4 && o->uso6) {
        flags |= TUN_F_USO4 | TUN_F_USO6;
    }
    if (tso && o->tunnel) {
        flags |= TUN_F_UDP_TUNNEL_GSO | (o->tunnel_csum ? TUN_F_UDP_TUNNEL_GSO_CSUM : 0);
    }
    return flags;
}

static bool set_flags(const TapDevice *tap, unsigned flags)
{
    return ioctl(tap->fd, TUNSETOFFLOAD, (unsigned long)flags) == 0;
}

bool tap_device_set_offloads(TapDevice *tap, const NetOffloads *offloads)
{
    /* What is given up first when the kernel refuses: the newest. */
    static const unsigned fallbacks[] = {
        0,
        TUN_F_UDP_TUNNEL_GSO_CSUM,
        TUN_F_UDP_TUNNEL_GSO,
        TUN_F_USO4 | TUN_F_USO6,
        TUN_F_UFO,
        TUN_F_TSO_ECN,
        TUN_F_TSO4 | TUN_F_TSO6,
        TUN_F_CSUM,
    };
    if (!tap->vnet_hdr) {
        return offload_flags(offloads) == 0;
    }
    unsigned flags = offload_flags(offloads);
    if (tap->hdr_len < HDR_LEN_TUNNEL) {
        flags &= ~(TUN_F_UDP_TUNNEL_GSO | TUN_F_UDP_TUNNEL_GSO_CSUM);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(fallbacks); i++) {
        if (i > 0 && !(flags & fallbacks[i])) {
            continue;
        }
        flags &= ~fallbacks[i];
        if (set_flags(tap, flags)) {
            return true;
        }
    }
    return false;
}

/* Tries what the kernel takes; leaves everything off. */
static void probe_offloads(TapDevice *tap)
{
    const unsigned base = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    NetOffloads *o = &tap->offloads;
    memset(o, 0, sizeof(*o));
    if (!tap->vnet_hdr) {
        return;
    }
    o->csum = set_flags(tap, TUN_F_CSUM);
    o->tso4 = o->tso6 = set_flags(tap, base);
    o->ecn = set_flags(tap, base | TUN_F_TSO_ECN);
    o->ufo = set_flags(tap, TUN_F_CSUM | TUN_F_UFO);
    o->uso4 = o->uso6 = set_flags(tap, base | TUN_F_USO4 | TUN_F_USO6);
    o->tunnel = set_flags(tap, base | TUN_F_UDP_TUNNEL_GSO);
    o->tunnel_csum = set_flags(tap, base | TUN_F_UDP_TUNNEL_GSO | TUN_F_UDP_TUNNEL_GSO_CSUM);
    set_flags(tap, 0);
}

bool tap_device_set_hdr_len(TapDevice *tap, unsigned len)
{
    int value = len;
    if (!tap->vnet_hdr || len < HDR_LEN_MIN || ioctl(tap->fd, TUNSETVNETHDRSZ, &value) < 0) {
        return false;
    }
    tap->hdr_len = len;
    return true;
}

gboolean tap_device_set_sndbuf(TapDevice *tap, uint64_t bytes, GError **errp)
{
    int value = bytes == 0 ? INT_MAX : (int)MIN(bytes, INT_MAX);
    if (ioctl(tap->fd, TUNSETSNDBUF, &value) < 0 && bytes != 0) {
        return error_set_errno(errp, errno, "tap interface '%s': sndbuf=%" G_GUINT64_FORMAT,
                               tap->ifname, bytes);
    }
    return true;
}

/* What is the same for a tap we opened and one we were given: a known state. */
static gboolean device_start(TapDevice *tap, GError **errp)
{
    if (tap->vnet_hdr) {
        /* Headers are little-endian; big-endian hosts alone need this, and have it. */
        int le = 1;
        (void)ioctl(tap->fd, TUNSETVNETLE, &le);
        if (!tap_device_set_hdr_len(tap, HDR_LEN_MIN)) {
            return error_set_errno(errp, errno, "tap interface '%s': TUNSETVNETHDRSZ", tap->ifname);
        }
    }
    probe_offloads(tap);
    return true;
}

static gboolean open_error(int errnum, const char *ifname, GError **errp)
{
    switch (errnum) {
    case EPERM:
    case EACCES:
        return error_set(errp,
                         "no permission for tap interface '%s': run as root, or make it for this "
                         "user first: ip tuntap add dev %s mode tap user NAME",
                         ifname, ifname);
    case EBUSY:
        return error_set(errp,
                         "tap interface '%s' is busy: another program has it open, choose another "
                         "ifname=",
                         ifname);
    case EINVAL:
        return error_set(errp,
                         "interface '%s' is not a tap: choose a name that is free or was made "
                         "with ip tuntap add mode tap",
                         ifname);
    default:
        return error_set_errno(errp, errnum, "tap interface '%s'", ifname);
    }
}

/* TUNSETIFF; an interface made for several queues takes us as one of them. */
static int attach(int fd, struct ifreq *ifr)
{
    const short flags = ifr->ifr_flags;
    if (ioctl(fd, TUNSETIFF, ifr) == 0) {
        return 0;
    }
    if (errno == EINVAL) {
        ifr->ifr_flags = flags | IFF_MULTI_QUEUE;
        return ioctl(fd, TUNSETIFF, ifr) == 0 ? 0 : EINVAL;
    }
    return errno;
}

gboolean tap_device_open(TapDevice *tap, const char *ifname, TapVnetHdr hdr, bool multi_queue,
                         GError **errp)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | (multi_queue ? IFF_MULTI_QUEUE : 0)};
    unsigned features = 0;
    const char *name = ifname ? ifname : "tap%d";
    memset(tap, 0, sizeof(*tap));
    if (!*name || strlen(name) >= sizeof(ifr.ifr_name)) {
        return error_set(errp, "ifname=%s: an interface name has 1 to %zu characters", name,
                         sizeof(ifr.ifr_name) - 1);
    }
    tap->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap->fd < 0) {
        return errno == EACCES || errno == EPERM
                   ? open_error(errno, name, errp)
                   : error_set_errno(errp, errno,
                                     "/dev/net/tun, needed for tap (modprobe tun loads it)");
    }
    ioctl(tap->fd, TUNGETFEATURES, &features);
    if (hdr == TAP_VNET_HDR_ON && !(features & IFF_VNET_HDR)) {
        close(tap->fd);
        return error_set(errp, "vnet_hdr=on: this kernel's taps have no vnet header");
    }
    tap->vnet_hdr = hdr != TAP_VNET_HDR_OFF && (features & IFF_VNET_HDR);
    ifr.ifr_flags |= tap->vnet_hdr ? IFF_VNET_HDR : 0;
    memcpy(ifr.ifr_name, name, strlen(name));
    int errnum = attach(tap->fd, &ifr);
    if (errnum) {
        close(tap->fd);
        return open_error(errnum, name, errp);
    }
    memcpy(tap->ifname, ifr.ifr_name, sizeof(tap->ifname));
    tap->ifname[sizeof(tap->ifname) - 1] = 0;
    if (!device_start(tap, errp)) {
        close(tap->fd);
        return false;
    }
    return true;
}

gboolean tap_device_open_fd(TapDevice *tap, int fd, const char *option, const char *text,
                            GError **errp)
{
    struct ifreq ifr = {0};
    memset(tap, 0, sizeof(*tap));
    tap->fd = fd;
    if (ioctl(fd, TUNGETIFF, &ifr) < 0) {
        return error_set(errp,
                         "%s=%s is not a tap: open /dev/net/tun and attach it to an interface "
                         "(TUNSETIFF) first",
                         option, text);
    }
    if ((ifr.ifr_flags & (IFF_TUN | IFF_TAP)) != IFF_TAP || !(ifr.ifr_flags & IFF_NO_PI)) {
        return error_set(errp, "%s=%s: a tap opened with IFF_TAP and IFF_NO_PI is needed", option,
                         text);
    }
    memcpy(tap->ifname, ifr.ifr_name, sizeof(tap->ifname));
    tap->ifname[sizeof(tap->ifname) - 1] = 0;
    tap->vnet_hdr = ifr.ifr_flags & IFF_VNET_HDR;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        return error_set_errno(errp, errno, "%s=%s", option, text);
    }
    return device_start(tap, errp);
}

gboolean tap_device_set_queue(TapDevice *tap, bool attached, GError **errp)
{
    struct ifreq ifr = {.ifr_flags = attached ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE};
    if (ioctl(tap->fd, TUNSETQUEUE, &ifr) < 0) {
        return error_set_errno(errp, errno, "tap interface '%s': cannot %s a queue", tap->ifname,
                               attached ? "attach" : "detach");
    }
    return true;
}
