/*
 * -netdev tap on real taps, in a network namespace of this process's own: frames both ways with
 * and without vnet header, offloads, link, errors, scripts, another loop.  Needs root and
 * /dev/net/tun; says why when it cannot run.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net-test-util.h"

#define ETHERTYPE_TEST 0x88b5 /* IEEE 802 local experimental */

static void set_if_up(const char *name, bool up)
{
    struct ifreq ifr = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    g_strlcpy(ifr.ifr_name, name, sizeof(ifr.ifr_name));
    g_assert_cmpint(ioctl(fd, SIOCGIFFLAGS, &ifr), ==, 0);
    ifr.ifr_flags = up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP;
    g_assert_cmpint(ioctl(fd, SIOCSIFFLAGS, &ifr), ==, 0);
    close(fd);
}

/* A packet socket on the host's side of the tap, our test ethertype only. */
static int packet_socket(const char *name)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETHERTYPE_TEST));
    struct sockaddr_ll addr = {.sll_family = AF_PACKET,
                               .sll_protocol = htons(ETHERTYPE_TEST),
                               .sll_ifindex = if_nametoindex(name)};
    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    return fd;
}

static void fill_frame(uint8_t *f, size_t size, uint32_t i)
{
    memset(f, (int)i, size);
    memset(f, 0xff, 6);
    memcpy(f + 6, "\x52\x54\0\1\2\3", 6);
    f[12] = ETHERTYPE_TEST >> 8;
    f[13] = ETHERTYPE_TEST & 0xff;
    memcpy(f + 14, &i, 4);
}

static unsigned send_one(TestClient *c, const void *hdr, size_t hdr_size, uint32_t i, size_t size)
{
    uint8_t f[2000];
    fill_frame(f, size, i);
    struct iovec iov[3] = {{(void *)hdr, hdr_size}, {f, 20}, {f + 20, size - 20}};
    NetPacket pkt = {hdr_size ? iov : iov + 1, hdr_size ? 3 : 2, hdr_size + size};
    return net_send_batch(&c->nc, &pkt, 1);
}

static bool is_test_frame(GBytes *bytes, size_t hdr, uint32_t *value, size_t *len)
{
    size_t size;
    const uint8_t *data = g_bytes_get_data(bytes, &size);
    if (size < hdr + 18 || data[hdr + 12] != ETHERTYPE_TEST >> 8 ||
        data[hdr + 13] != (ETHERTYPE_TEST & 0xff)) {
        return false; /* the kernel's own: IPv6 neighbour discovery and the like */
    }
    memcpy(value, data + hdr + 14, 4);
    *len = size - hdr;
    return true;
}

static TestClient *tap_client(const char *options, unsigned hdr_len)
{
    netdev_must_init(options);
    TestClient *c = test_client_new(net_client_find("t0"), "dev");
    g_assert_true(net_peer_set_vnet_hdr_len(&c->nc, hdr_len));
    c->room = 1u << 30;
    set_if_up("swt0", true);
    return c;
}

static void tap_free(TestClient *c)
{
    net_client_delete(&c->nc);
    net_cleanup();
    g_assert_null(net_clients);
}

static void both_ways(const char *options, unsigned hdr_len)
{
    TestClient *c = tap_client(options, hdr_len);
    int ps = packet_socket("swt0");
    static const uint8_t zeros[24];
    uint8_t buf[2048];
    for (uint32_t i = 0; i < 200; i++) {
        size_t size = 60 + i * 7;
        g_assert_cmpuint(send_one(c, zeros, hdr_len, i, size), ==, 1);
        ssize_t n = read(ps, buf, sizeof(buf));
        g_assert_cmpint(n, ==, size);
        uint32_t value;
        memcpy(&value, buf + 14, 4);
        g_assert_cmpuint(value, ==, i);
    }
    for (uint32_t i = 0; i < 400; i++) {
        fill_frame(buf, 60 + i % 1400, i);
        g_assert_cmpint(write(ps, buf, 60 + i % 1400), ==, 60 + i % 1400);
        if (i == 100) {
            c->room = 37; /* the device stalls in a batch, twice */
        }
        if (i % 150 == 0) {
            run_loop_until_idle();
        }
    }
    run_loop_until_idle();
    test_client_give_room(c, 99);
    run_loop_until_idle();
    test_client_give_room(c, 1u << 30);
    run_loop_until_idle();
    uint32_t next = 0, value;
    size_t len;
    for (unsigned i = 0; i < c->got->len; i++) {
        if (is_test_frame(c->got->pdata[i], hdr_len, &value, &len)) {
            g_assert_cmpuint(value, ==, next);
            g_assert_cmpuint(len, ==, 60 + next % 1400);
            next++;
        }
    }
    g_assert_cmpuint(next, ==, 400);
    close(ps);
    tap_free(c);
}

#define TAP "'type':'tap','id':'t0','ifname':'swt0','script':'no','downscript':'no'"

static void test_both_ways(void)
{
    both_ways("{" TAP ",'vnet_hdr':'off'}", 0);
    both_ways("{" TAP "}", 0); /* the tap has a header, the device does not know it */
    both_ways("{" TAP ",'vnet_hdr':'on'}", 10);
    both_ways("{" TAP ",'vnet_hdr':true,'sndbuf':'1M'}", 12);
    both_ways("{" TAP "}", 20);
}

static void test_offloads(void)
{
    TestClient *c = tap_client("{" TAP "}", 12);
    NetCaps caps;
    net_peer_caps(&c->nc, &caps);
    g_assert_true(caps.vnet_hdr);
    g_assert_true(caps.offloads.csum && caps.offloads.tso4 && caps.offloads.tso6);
    g_test_message("ufo %d uso %d/%d tunnel %d/%d", caps.offloads.ufo, caps.offloads.uso4,
                   caps.offloads.uso6, caps.offloads.tunnel, caps.offloads.tunnel_csum);
    /* Every combination is answered, legal for the kernel or not. */
    for (unsigned bits = 0; bits < 512; bits++) {
        NetOffloads o = {bits & 1,  bits & 2,  bits & 4,   bits & 8,  bits & 16,
                         bits & 32, bits & 64, bits & 128, bits & 256};
        g_assert_true(net_peer_set_offloads(&c->nc, &o));
    }
    g_assert_true(net_peer_set_vnet_hdr_len(&c->nc, 24));
    NetOffloads all = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    g_assert_true(net_peer_set_offloads(&c->nc, &all));
    g_assert_false(net_peer_set_vnet_hdr_len(&c->nc, 9));
    g_assert_true(net_peer_set_vnet_hdr_len(&c->nc, 0));
    tap_free(c);

    c = tap_client("{" TAP ",'vnet_hdr':'off'}", 0);
    net_peer_caps(&c->nc, &caps);
    g_assert_false(caps.vnet_hdr || caps.offloads.csum);
    g_assert_false(net_peer_set_vnet_hdr_len(&c->nc, 12));
    tap_free(c);
}

static void test_bad_frames_cost_themselves(void)
{
    TestClient *c = tap_client("{" TAP "}", 12);
    int ps = packet_socket("swt0");
    NetClient *tap = c->nc.peer;
    uint8_t buf[2048];
    struct virtio_net_hdr_v1 hdr = {.gso_type = 0x55, .gso_size = 7, .hdr_len = 0xffff};
    g_assert_cmpuint(send_one(c, &hdr, 12, 1, 100), ==, 1);
    g_assert_cmpuint(tap->stats.drops[NET_DROP_BAD_HEADER], ==, 1);
    memset(&hdr, 0, sizeof(hdr));
    g_assert_cmpuint(send_one(c, &hdr, 12, 2, 100), ==, 1);
    g_assert_cmpint(read(ps, buf, sizeof(buf)), ==, 100);
    close(ps);

    set_if_up("swt0", false);
    g_assert_cmpuint(send_one(c, &hdr, 12, 3, 100), ==, 1);
    g_assert_cmpuint(tap->stats.drops[NET_DROP_HOST_ERROR], ==, 1);
    set_if_up("swt0", true);
    g_assert_cmpuint(send_one(c, &hdr, 12, 4, 100), ==, 1);
    g_assert_cmpuint(tap->stats.drops[NET_DROP_HOST_ERROR], ==, 1);

    /* A frame of more pieces than writev takes. */
    static uint8_t frame[3000];
    static struct iovec iov[1501];
    fill_frame(frame, sizeof(frame), 5);
    iov[0] = (struct iovec){&hdr, 12};
    for (unsigned i = 0; i < 1500; i++) {
        iov[i + 1] = (struct iovec){frame + i * 2, 2};
    }
    NetPacket pkt = {iov, 1501, 3012};
    ps = packet_socket("swt0");
    g_assert_cmpuint(net_send_batch(&c->nc, &pkt, 1), ==, 1);
    static uint8_t big[4000];
    g_assert_cmpint(read(ps, big, sizeof(big)), ==, 3000);
    g_assert_true(memcmp(big, frame, 3000) == 0);
    close(ps);
    tap_free(c);
}

static void test_link_down_drops(void)
{
    TestClient *c = tap_client("{" TAP "}", 0);
    NetClient *tap = c->nc.peer;
    int ps = packet_socket("swt0");
    uint8_t buf[100];
    run_loop_until_idle();
    g_assert_true(net_set_link("t0", false, NULL));
    for (uint32_t i = 0; i < 10; i++) {
        fill_frame(buf, sizeof(buf), i);
        g_assert_cmpint(write(ps, buf, sizeof(buf)), ==, sizeof(buf));
    }
    run_loop_until_idle();
    g_assert_cmpuint(tap->stats.drops[NET_DROP_LINK_DOWN], >=, 10);
    g_assert_true(net_set_link("t0", true, NULL));
    unsigned before = c->got->len;
    g_assert_cmpint(write(ps, buf, sizeof(buf)), ==, sizeof(buf));
    run_loop_until_idle();
    g_assert_cmpuint(c->got->len, >, before);
    close(ps);
    tap_free(c);
}

static int open_tap(const char *name, short flags)
{
    struct ifreq ifr = {.ifr_flags = flags};
    int fd = open("/dev/net/tun", O_RDWR);
    g_strlcpy(ifr.ifr_name, name, sizeof(ifr.ifr_name));
    g_assert_cmpint(ioctl(fd, TUNSETIFF, &ifr), ==, 0);
    return fd;
}

static void test_fd(void)
{
    int fd = open_tap("swt0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
    g_autofree char *options = g_strdup_printf("{'type':'tap','id':'t0','fd':'%d'}", fd);
    both_ways(options, 12); /* which closes it */
    fd = open_tap("swt0", IFF_TAP | IFF_NO_PI);
    g_autofree char *plain = g_strdup_printf("{'type':'tap','id':'t0','fd':'%d'}", fd);
    both_ways(plain, 0);

    fd = open_tap("swt0", IFF_TUN | IFF_NO_PI);
    g_autofree char *tun = g_strdup_printf("{'type':'tap','id':'t0','fd':'%d'}", fd);
    g_autofree char *with = g_strdup_printf("{" TAP ",'fd':'%d'}", fd);
    g_autofree char *message = g_strdup_printf("fd=%d: a tap opened with IFF_TAP", fd);
    netdev_must_fail(tun, message);
    netdev_must_fail(with, "netdev 't0': ifname= cannot be used with fd=");
    close(fd);
    fd = open("/dev/null", O_RDWR);
    g_autofree char *null = g_strdup_printf("{'type':'tap','id':'t0','fd':'%d'}", fd);
    g_autofree char *null_message = g_strdup_printf("fd=%d is not a tap", fd);
    netdev_must_fail(null, null_message);
    close(fd);
}

static char *write_script(const char *dir, const char *name, const char *text)
{
    char *path = g_build_filename(dir, name, NULL);
    g_assert_true(g_file_set_contents(path, text, -1, NULL));
    g_assert_cmpint(chmod(path, 0755), ==, 0);
    return path;
}

static void test_scripts(void)
{
    g_autofree char *dir = g_dir_make_tmp("swnic-tap-XXXXXX", NULL);
    g_autofree char *log = g_build_filename(dir, "log", NULL);
    g_autofree char *text = g_strdup_printf("#!/bin/sh\necho \"$0 $1\" >> %s\n", log);
    g_autofree char *up = write_script(dir, "up", text);
    g_autofree char *down = write_script(dir, "down", text);
    g_autofree char *bad =
        write_script(dir, "bad", "#!/bin/sh\necho no bridge\necho for $1 >&2\nexit 3\n");
    g_autofree char *options = g_strdup_printf(
        "{'type':'tap','id':'t0','ifname':'swt0','script':'%s','downscript':'%s'}", up, down);
    TestClient *c = tap_client(options, 0);
    g_autofree char *info = g_strdup_printf("ifname=swt0,script=%s,downscript=%s", up, down);
    g_assert_cmpstr(c->nc.peer->info->str, ==, info);
    tap_free(c);
    g_autofree char *got = NULL, *want = g_strdup_printf("%s swt0\n%s swt0\n", up, down);
    g_assert_true(g_file_get_contents(log, &got, NULL, NULL));
    g_assert_cmpstr(got, ==, want);

    g_autofree char *bad_options = g_strdup_printf(
        "{'type':'tap','id':'t0','ifname':'swt0','script':'%s','downscript':'no'}", bad);
    g_autofree char *message = g_strdup_printf("script=%s failed for interface 'swt0' (", bad);
    netdev_must_fail(bad_options, message);
    GError *err = NULL;
    json_object *o = quoted(bad_options);
    g_assert_false(net_init_netdev(o, &err));
    g_assert_nonnull(strstr(err->message, "no bridge for swt0"));
    g_error_free(err);
    json_object_put(o);
    netdev_must_fail("{'type':'tap','id':'t0','ifname':'swt0','script':'/nonexistent/up'}",
                     "script=/nonexistent/up could not be run");
    g_assert_cmpuint(if_nametoindex("swt0"), ==, 0); /* nothing is left behind */
    unlink(up);
    unlink(down);
    unlink(bad);
    unlink(log);
    rmdir(dir);
}

static void test_wrong_options(void)
{
    int fd = open_tap("swt0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
    netdev_must_fail("{" TAP "}", "tap interface 'swt0' is busy");
    close(fd);
    netdev_must_fail("{'type':'tap','id':'t0','ifname':'lo','script':'no'}",
                     "interface 'lo' is not a tap");
    netdev_must_fail("{'type':'tap','id':'t0','ifname':'a-name-too-long-for-it','script':'no'}",
                     "ifname=a-name-too-long-for-it: an interface name has 1 to 15 characters");
    netdev_must_fail("{" TAP ",'vhostfd':'99','vhostforce':'on'}",
                     "netdev 't0': vhost-net requested but could not be initialized: vhostfd=99 is "
                     "not an open file descriptor");
    netdev_must_fail("{" TAP ",'vhost':'off','vhostfd':'0'}",
                     "netdev 't0': vhostfd= is not valid without vhost");
    netdev_must_fail("{" TAP ",'vhostfds':'0:1'}",
                     "netdev 't0': vhostfds= goes with fds=, use vhostfd=");
    netdev_must_fail("{" TAP ",'queues':'2','vhostfd':'0'}", "netdev 't0': vhostfd= is for one");
    netdev_must_fail("{" TAP ",'vhostfd':'0','vhostfds':'1'}",
                     "netdev 't0': only one of vhostfd= and vhostfds= is possible");
    /* Something else than vhost-net. */
    netdev_must_fail("{" TAP ",'vhostfd':'0','vhostforce':'on'}",
                     "netdev 't0': vhost-net requested but could not be initialized: netdev 't0': "
                     "vhost-net: VHOST_SET_OWNER");
    netdev_must_fail("{" TAP ",'queues':'300'}", "netdev 't0': queues=300: 1 to 256 are possible");
    netdev_must_fail("{" TAP ",'queues':'0'}", "netdev 't0': queues=0: 1 to 256 are possible");
    netdev_must_fail("{" TAP ",'poll-us':'4'}", "netdev 't0': poll-us= is for vhost=on");
    netdev_must_fail("{" TAP ",'fds':'3:4'}", "netdev 't0': ifname= cannot be used with fds=");
    netdev_must_fail("{'type':'tap','id':'t0','fds':'3','fd':'3'}",
                     "netdev 't0': only one of fd=, fds= and helper= is possible");
    netdev_must_fail("{'type':'tap','id':'t0','br':'br0'}", "netdev 't0': br= is for helper=");
    netdev_must_fail("{'type':'tap','id':'t0','fds':'887:888'}", "fds=887 is not an open file");
    netdev_must_fail("{'type':'tap','id':'t0','fds':''}", "fds=: 1 to 256 file descriptors");
    netdev_must_fail("{'type':'tap','id':'t0','helper':'/nowhere/x'}",
                     "helper=/nowhere/x could not be run: ");
    netdev_must_fail("{'type':'tap','id':'t0','helper':'/bin/false'}",
                     "helper=/bin/false gave no tap on bridge 'br0' (exit status 1)");
    netdev_must_fail("{'type':'bridge','id':'t0','helper':'/bin/true','br':'b7'}",
                     "helper=/bin/true gave no tap on bridge 'b7' (exit status 0)");
    g_assert_null(net_clients);
}

static void test_no_permission(void)
{
    if (g_test_subprocess()) {
        g_assert_cmpint(setgid(65534), ==, 0);
        g_assert_cmpint(setuid(65534), ==, 0);
        netdev_must_fail("{" TAP "}", "no permission for tap interface 'swt0'");
        return;
    }
    g_test_trap_subprocess(NULL, 0, 0);
    g_test_trap_assert_passed();
}

static void test_interface_deleted(void)
{
    TestClient *c = tap_client("{" TAP "}", 0);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    run_loop_until_idle();
    g_assert_cmpint(system("ip link del swt0"), ==, 0);
    close(fd);
    for (unsigned i = 0; i < 20; i++) {
        event_loop_run_once(event_loop_main(), false);
    }
    g_assert_cmpstr(c->nc.peer->info->str, ==, "ifname=swt0,gone");
    g_assert_cmpuint(send_one(c, NULL, 0, 1, 100), ==, 1);
    g_assert_cmpuint(c->nc.peer->stats.drops[NET_DROP_HOST_ERROR], ==, 1);
    tap_free(c);
}

static void loop_count(void *opaque)
{
    TestClient *c = opaque;
    uint32_t value;
    size_t len;
    c->sent = 0;
    for (unsigned i = 0; i < c->got->len; i++) {
        c->sent += is_test_frame(c->got->pdata[i], 0, &value, &len);
    }
}

static void test_in_another_loop(void)
{
    TestClient *c = tap_client("{" TAP "}", 0);
    int ps = packet_socket("swt0");
    EventLoop *loop = event_loop_new_thread("io0", NULL);
    g_assert_true(net_client_set_loop(c->nc.peer, loop, NULL));
    c->nc.loop = loop;
    uint8_t buf[100];
    for (uint32_t i = 0; i < 300; i++) {
        fill_frame(buf, sizeof(buf), i);
        g_assert_cmpint(write(ps, buf, sizeof(buf)), ==, sizeof(buf));
    }
    for (unsigned i = 0; i < 5000; i++) {
        event_loop_run_sync(loop, loop_count, c);
        if (c->sent == 300) {
            break;
        }
        g_usleep(1000);
    }
    g_assert_cmpuint(c->sent, ==, 300);
    g_assert_true(net_set_link("t0", false, NULL));
    g_assert_true(net_delete_netdev("t0", NULL)); /* from the main thread, while it lives there */
    g_assert_null(c->nc.peer);
    net_client_delete(&c->nc);
    event_loop_free(loop);
    close(ps);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (geteuid() != 0 || access("/dev/net/tun", R_OK | W_OK) < 0) {
        g_print("1..0 # SKIP needs root and /dev/net/tun\n");
        return 0;
    }
    if (unshare(CLONE_NEWNET) < 0) {
        g_print("1..0 # SKIP no network namespace of its own: %s\n", g_strerror(errno));
        return 0;
    }
    g_test_add_func("/tap/both-ways", test_both_ways);
    g_test_add_func("/tap/offloads", test_offloads);
    g_test_add_func("/tap/bad-frames-cost-themselves", test_bad_frames_cost_themselves);
    g_test_add_func("/tap/link-down-drops", test_link_down_drops);
    g_test_add_func("/tap/fd", test_fd);
    g_test_add_func("/tap/scripts", test_scripts);
    g_test_add_func("/tap/wrong-options", test_wrong_options);
    g_test_add_func("/tap/no-permission", test_no_permission);
    g_test_add_func("/tap/interface-deleted", test_interface_deleted);
    g_test_add_func("/tap/in-another-loop", test_in_another_loop);
    return g_test_run();
}
