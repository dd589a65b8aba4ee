/*
 * Taps with several queues, taps that were passed (fds=) and taps from a helper program, on real
 * taps in a network namespace of this process's own.  Needs root and /dev/net/tun.
 *
 * Run with --use-vnet this program is the helper: it does what qemu-bridge-helper does, without a
 * bridge.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net-test-util.h"

#define QUEUES 4
#define FRAMES 400
#define MARK   0x5157

static char *self;

static void set_if_up(const char *name)
{
    struct ifreq ifr = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    g_strlcpy(ifr.ifr_name, name, sizeof(ifr.ifr_name));
    g_assert_cmpint(ioctl(fd, SIOCGIFFLAGS, &ifr), ==, 0);
    ifr.ifr_flags |= IFF_UP;
    g_assert_cmpint(ioctl(fd, SIOCSIFFLAGS, &ifr), ==, 0);
    close(fd);
}

static int open_tap(const char *name, short flags)
{
    struct ifreq ifr = {.ifr_flags = flags};
    int fd = open("/dev/net/tun", O_RDWR);
    g_strlcpy(ifr.ifr_name, name, sizeof(ifr.ifr_name));
    if (ioctl(fd, TUNSETIFF, &ifr) < 0) {
        g_error("TUNSETIFF %s: %s", name, g_strerror(errno));
    }
    return fd;
}

static int packet_socket(const char *name)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct sockaddr_ll addr = {.sll_family = AF_PACKET,
                               .sll_protocol = htons(ETH_P_ALL),
                               .sll_ifindex = if_nametoindex(name)};
    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    return fd;
}

/* UDP over IPv4, with a port of its own each: a flow for the kernel to spread. */
static void fill_udp(uint8_t *f, unsigned i)
{
    static const uint8_t head[] = {0x45, 0, 0,  46, 0, 0, 0,  0, 64, 17,
                                   0,    0, 10, 0,  0, 1, 10, 0, 0,  2};
    memset(f, 0, 60);
    memcpy(f, "\2\0\0\0\0\1\2\0\0\0\0\2\x08\0", 14);
    memcpy(f + 14, head, sizeof(head));
    f[34] = 0x20 + i / 256;
    f[35] = i;
    f[37] = 9;
    f[39] = 26;
    f[42] = MARK >> 8;
    f[43] = MARK & 0xff;
}

static bool is_ours(const uint8_t *f, size_t size)
{
    return size == 60 && f[42] == MARK >> 8 && f[43] == (MARK & 0xff);
}

static unsigned count_ours(const TestClient *c)
{
    unsigned n = 0;
    for (unsigned i = 0; i < c->got->len; i++) {
        size_t size;
        const uint8_t *data = g_bytes_get_data(c->got->pdata[i], &size);
        n += is_ours(data, size);
    }
    return n;
}

static unsigned total(TestClient **devs, unsigned n, unsigned *used)
{
    unsigned sum = 0;
    *used = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned got = count_ours(devs[i]);
        sum += got;
        *used += got > 0;
    }
    return sum;
}

static void send_frames(const char *name)
{
    uint8_t f[60];
    int fd = packet_socket(name);
    for (unsigned i = 0; i < FRAMES; i++) {
        fill_udp(f, i);
        g_assert_cmpint(write(fd, f, sizeof(f)), ==, sizeof(f));
        if (i % 20 == 0) {
            run_loop_until_idle();
        }
    }
    close(fd);
}

/* Frames from each client arrive at the interface. */
static void check_out(TestClient **devs, unsigned n, const char *name)
{
    uint8_t f[60], buf[200];
    int fd = packet_socket(name);
    for (unsigned i = 0; i < n; i++) {
        fill_udp(f, i);
        struct iovec iov = {f, sizeof(f)};
        g_assert_cmpuint(net_send_batch(&devs[i]->nc, &(NetPacket){&iov, 1, 60}, 1), ==, 1);
        ssize_t got;
        do {
            got = read(fd, buf, sizeof(buf));
        } while (got >= 0 && !is_ours(buf, got));
        g_assert_cmpint(got, ==, 60);
        g_assert_cmpint(buf[35], ==, i);
    }
    close(fd);
}

static unsigned make_devices(TestClient **devs, unsigned max)
{
    NetClient *queues[QUEUES * 2];
    unsigned n = net_client_find_queues("t0", queues, max);
    for (unsigned i = 0; i < n; i++) {
        g_assert_cmpuint(queues[i]->queue_index, ==, i);
        devs[i] = test_client_new(queues[i], NULL);
        devs[i]->room = G_MAXUINT;
        net_peer_writable(&devs[i]->nc); /* as a driver that starts */
    }
    return n;
}

static void delete_all(TestClient **devs, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        net_client_delete(&devs[i]->nc);
    }
    net_cleanup();
    g_assert_null(net_clients);
}

static void spread_and_detach(TestClient **devs)
{
    unsigned used;
    set_if_up("swq0");
    send_frames("swq0");
    RUN_LOOP_WHILE(total(devs, QUEUES, &used) < FRAMES);
    g_assert_cmpuint(used, ==, QUEUES);
    check_out(devs, QUEUES, "swq0");

    /* Only the first: everything comes there, and nothing spins or is lost. */
    GError *err = NULL;
    for (unsigned i = 1; i < QUEUES; i++) {
        NetClient *nc = devs[i]->nc.peer;
        g_assert_true(nc->ops->set_enabled(nc, false, &err));
        g_assert_true(nc->ops->set_enabled(nc, false, &err)); /* is off already */
        uint8_t f[60] = {0};
        struct iovec iov = {f, sizeof(f)};
        g_assert_cmpuint(net_send_batch(&devs[i]->nc, &(NetPacket){&iov, 1, 60}, 1), ==, 1);
        g_assert_cmpuint(nc->stats.drops[NET_DROP_NOT_READY], ==, 1);
    }
    for (unsigned i = 0; i < QUEUES; i++) {
        g_ptr_array_set_size(devs[i]->got, 0);
    }
    send_frames("swq0");
    RUN_LOOP_WHILE(count_ours(devs[0]) < FRAMES);
    g_assert_cmpuint(total(devs, QUEUES, &used), ==, FRAMES);
    g_assert_cmpuint(used, ==, 1);

    for (unsigned i = 1; i < QUEUES; i++) {
        g_assert_true(devs[i]->nc.peer->ops->set_enabled(devs[i]->nc.peer, true, &err));
    }
    for (unsigned i = 0; i < QUEUES; i++) {
        g_ptr_array_set_size(devs[i]->got, 0);
    }
    send_frames("swq0");
    RUN_LOOP_WHILE(total(devs, QUEUES, &used) < FRAMES);
    check_out(devs, QUEUES, "swq0");
}

static void test_queues(void)
{
    TestClient *devs[QUEUES];
    netdev_must_init("{'type':'tap','id':'t0','ifname':'swq0','script':'no','downscript':'no',"
                     "'queues':'4'}");
    g_assert_cmpuint(make_devices(devs, QUEUES), ==, QUEUES);
    g_autoptr(GString) out = g_string_new(NULL);
    net_print_info(out);
    g_assert_nonnull(strstr(out->str, "t0: index=3,type=tap,ifname=swq0,script=no,downscript=no"));
    spread_and_detach(devs);
    delete_all(devs, QUEUES);
    g_assert_cmpuint(if_nametoindex("swq0"), ==, 0);
}

static void test_fds(void)
{
    TestClient *devs[QUEUES];
    int fds[QUEUES];
    for (unsigned i = 0; i < QUEUES; i++) {
        fds[i] = open_tap("swq0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE);
    }
    g_autofree char *text = g_strdup_printf("{'type':'tap','id':'t0','fds':'%d:%d:%d:%d'}", fds[0],
                                            fds[1], fds[2], fds[3]);
    netdev_must_init(text);
    g_assert_cmpuint(make_devices(devs, QUEUES), ==, QUEUES);
    spread_and_detach(devs);
    delete_all(devs, QUEUES);

    int a = open_tap("swq1", IFF_TAP | IFF_NO_PI), b = open_tap("swq2", IFF_TAP | IFF_NO_PI);
    g_autofree char *two = g_strdup_printf("{'type':'tap','id':'t0','fds':'%d:%d'}", a, b);
    g_autofree char *want =
        g_strdup_printf("fds: fd %d belongs to interface 'swq2', the first to 'swq1'", b);
    netdev_must_fail(two, want);
    g_assert_cmpint(fcntl(a, F_GETFD), >=, 0); /* still the giver's */
    close(a);
    close(b);
}

static void test_helper(void)
{
    const char *formats[] = {
        "{'type':'bridge','id':'t0','helper':'%s','br':'swq3'}",
        "{'type':'tap','id':'t0','helper':'%s','br':'swq3'}",
        "{'type':'bridge','id':'t0','helper':'%s --br=swq3 ','br':'zz'}",
    };
    const char *infos[] = {"helper=%s,br=swq3", "helper=%s", "helper=%s --br=swq3 ,br=zz"};
    for (unsigned i = 0; i < G_N_ELEMENTS(formats); i++) {
        TestClient *dev;
        unsigned used;
        g_autofree char *text = g_strdup_printf(formats[i], self);
        g_autofree char *info = g_strdup_printf(infos[i], self);
        netdev_must_init(text);
        g_assert_cmpuint(make_devices(&dev, 1), ==, 1);
        g_assert_cmpstr(dev->nc.peer->info->str, ==, info);
        g_assert_cmpstr(dev->nc.peer->ops->type, ==, "tap");
        set_if_up("swq3");
        send_frames("swq3");
        RUN_LOOP_WHILE(total(&dev, 1, &used) < FRAMES);
        check_out(&dev, 1, "swq3");
        delete_all(&dev, 1);
    }
}

/* The helper: a tap named as the bridge, over the socket. */
static int helper_main(int argc, char **argv)
{
    int sock = -1;
    const char *name = NULL;
    bool vnet = false;
    for (int i = 1; i < argc; i++) {
        if (g_str_has_prefix(argv[i], "--fd=")) {
            sock = atoi(argv[i] + 5);
        } else if (g_str_has_prefix(argv[i], "--br=")) {
            name = argv[i] + 5;
        }
        vnet |= strcmp(argv[i], "--use-vnet") == 0;
    }
    g_assert_true(sock >= 0 && name && vnet);
    int fd = open_tap(name, IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    char byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    return sendmsg(sock, &msg, 0) == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--use-vnet") == 0) {
            return helper_main(argc, argv);
        }
    }
    g_test_init(&argc, &argv, NULL);
    self = g_file_read_link("/proc/self/exe", NULL);
    if (unshare(CLONE_NEWNET) < 0) {
        g_error("a network namespace is needed (root): %s", g_strerror(errno));
    }
    g_test_add_func("/tap-queues/queues", test_queues);
    g_test_add_func("/tap-queues/fds", test_fds);
    g_test_add_func("/tap-queues/helper", test_helper);
    int rc = g_test_run();
    g_free(self);
    return rc;
}
