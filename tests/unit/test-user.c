/*
 * -netdev user with the real libslirp: ARP, DHCP, a forwarded TCP connection with data both
 * ways, back-pressure and its limit, options.  The guest's frames are made by hand here; the
 * host's side is loopback only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chardev/chardev.h"
#include "net-test-util.h"

static const uint8_t guest_mac[6] = {0x52, 0x54, 0, 0x12, 0x34, 0x56};
static uint8_t host_mac[6];

static TestClient *guest_new(const char *options, unsigned room)
{
    netdev_must_init(options);
    TestClient *c = test_client_new(net_client_find("n0"), "guest");
    c->room = room;
    return c;
}

static void guest_free(TestClient *c)
{
    net_client_delete(&c->nc);
    net_cleanup();
    g_assert_null(net_clients);
}

static void send_frame(TestClient *c, const void *data, size_t size)
{
    struct iovec iov = {(void *)data, size};
    NetPacket pkt = {&iov, 1, size};
    while (net_send_batch(&c->nc, &pkt, 1) == 0) { /* it sends its answers first */
        g_assert_true(event_loop_run_once(event_loop_main(), false));
    }
}

/* Takes the next received frame of which @match is true; others are thrown away. */
static GBytes *next_frame(TestClient *c, bool (*match)(const uint8_t *data, size_t size))
{
    for (;;) {
        RUN_LOOP_WHILE(c->got->len == 0);
        GBytes *bytes = g_bytes_ref(c->got->pdata[0]);
        g_ptr_array_remove_index(c->got, 0);
        size_t size;
        const uint8_t *data = g_bytes_get_data(bytes, &size);
        if (match(data, size)) {
            return bytes;
        }
        g_bytes_unref(bytes);
    }
}

static uint32_t sum16(const void *data, size_t size, uint32_t sum)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < size; i++) {
        sum += i & 1 ? p[i] : p[i] << 8;
    }
    return sum;
}

static uint16_t sum_finish(uint32_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return htons(~sum & 0xffff);
}

static void fill_ether(uint8_t *frame, const uint8_t *dst, uint16_t type)
{
    memcpy(frame, dst, 6);
    memcpy(frame + 6, guest_mac, 6);
    frame[12] = type >> 8;
    frame[13] = type;
}

/* ---- ARP ---- */

#define ARP_SIZE 42

static void make_arp(uint8_t f[static ARP_SIZE], const char *target)
{
    static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    memset(f, 0, ARP_SIZE);
    fill_ether(f, broadcast, 0x0806);
    memcpy(f + 14, "\0\1\10\0\6\4\0\1", 8);
    memcpy(f + 22, guest_mac, 6);
    inet_pton(AF_INET, "10.0.2.15", f + 28);
    inet_pton(AF_INET, target, f + 38);
}

static void send_arp(TestClient *c, const char *target)
{
    uint8_t f[ARP_SIZE];
    make_arp(f, target);
    send_frame(c, f, sizeof(f));
}

static bool is_arp_reply(const uint8_t *data, size_t size)
{
    return size >= 42 && data[12] == 8 && data[13] == 6 && data[21] == 2;
}

static void learn_host(TestClient *c)
{
    send_arp(c, "10.0.2.2");
    g_autoptr(GBytes) reply = next_frame(c, is_arp_reply);
    const uint8_t *data = g_bytes_get_data(reply, NULL);
    memcpy(host_mac, data + 22, 6);
    g_assert_true(memcmp(data + 28, "\12\0\2\2", 4) == 0);
}

static void test_arp(void)
{
    TestClient *c = guest_new("{'type':'user','id':'n0'}", 1000);
    g_assert_cmpstr(c->nc.peer->info->str, ==, "net=10.0.2.0,restrict=off");
    learn_host(c);
    guest_free(c);
}

/* ---- DHCP ---- */

static size_t make_udp(uint8_t *f, const char *src, uint16_t sport, const char *dst, uint16_t dport,
                       size_t payload)
{
    static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP};
    struct udphdr udp = {
        .source = htons(sport), .dest = htons(dport), .len = htons(sizeof(udp) + payload)};
    fill_ether(f, broadcast, 0x0800);
    ip.tot_len = htons(sizeof(ip) + sizeof(udp) + payload);
    inet_pton(AF_INET, src, &ip.saddr);
    inet_pton(AF_INET, dst, &ip.daddr);
    ip.check = sum_finish(sum16(&ip, sizeof(ip), 0));
    memcpy(f + 14, &ip, sizeof(ip));
    memcpy(f + 34, &udp, sizeof(udp));
    return 14 + sizeof(ip) + sizeof(udp) + payload;
}

static bool is_dhcp_reply(const uint8_t *data, size_t size)
{
    return size > 42 + 240 && data[12] == 8 && data[13] == 0 && data[23] == IPPROTO_UDP &&
           data[34] == 0 && data[35] == 67;
}

/* The offered address. */
static char *dhcp_discover(TestClient *c)
{
    uint8_t f[42 + 300] = {0}, *d = f + 42;
    d[0] = 1; /* BOOTREQUEST, Ethernet */
    d[1] = 1;
    d[2] = 6;
    memcpy(d + 4, "abcd", 4);
    memcpy(d + 28, guest_mac, 6);
    memcpy(d + 236, "\x63\x82\x53\x63", 4);
    memcpy(d + 240, "\65\1\1\377", 4); /* option 53: DISCOVER; end */
    send_frame(c, f, make_udp(f, "0.0.0.0", 68, "255.255.255.255", 67, 300));
    g_autoptr(GBytes) reply = next_frame(c, is_dhcp_reply);
    const uint8_t *r = (const uint8_t *)g_bytes_get_data(reply, NULL) + 42;
    g_assert_cmpuint(r[0], ==, 2);
    g_assert_true(memcmp(r + 4, "abcd", 4) == 0);
    g_assert_true(memcmp(r + 240, "\65\1\2", 3) == 0); /* OFFER */
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, r + 16, text, sizeof(text));
    return g_strdup(text);
}

static void test_dhcp(void)
{
    TestClient *c = guest_new("{'type':'user','id':'n0'}", 1000);
    g_autofree char *a = dhcp_discover(c);
    g_assert_cmpstr(a, ==, "10.0.2.15");
    guest_free(c);

    c = guest_new("{'type':'user','id':'n0','net':'192.168.7.0/24','dhcpstart':'192.168.7.77',"
                  "'hostname':'vm','dnssearch':['example.org',{'str':'example.com'}]}",
                  1000);
    g_assert_cmpstr(c->nc.peer->info->str, ==, "net=192.168.7.0,restrict=off");
    g_autofree char *b = dhcp_discover(c);
    g_assert_cmpstr(b, ==, "192.168.7.77");
    guest_free(c);
}

/* ---- TCP through hostfwd ---- */

static int free_port(int *fd_out)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(addr);
    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, size), ==, 0);
    g_assert_cmpint(listen(fd, 1), ==, 0);
    getsockname(fd, (struct sockaddr *)&addr, &size);
    if (fd_out) {
        *fd_out = fd;
    } else {
        close(fd);
    }
    return ntohs(addr.sin_port);
}

static void send_tcp(TestClient *c, uint32_t dst, uint16_t dport, uint32_t seq, uint32_t ack,
                     bool syn, const void *data, size_t size)
{
    uint8_t f[1514] = {0};
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP};
    struct tcphdr tcp = {.doff = 5, .syn = syn, .ack = ack != 0, .psh = size > 0};
    fill_ether(f, host_mac, 0x0800);
    ip.tot_len = htons(sizeof(ip) + sizeof(tcp) + size);
    inet_pton(AF_INET, "10.0.2.15", &ip.saddr);
    ip.daddr = dst;
    ip.check = sum_finish(sum16(&ip, sizeof(ip), 0));
    tcp.source = htons(22);
    tcp.dest = dport;
    tcp.seq = htonl(seq);
    tcp.ack_seq = htonl(ack);
    tcp.window = htons(8192);
    memcpy(f + 14, &ip, 20);
    memcpy(f + 34, &tcp, 20);
    memcpy(f + 54, data, size);
    uint32_t sum = sum16(&ip.saddr, 8, IPPROTO_TCP + 20 + size);
    tcp.check = sum_finish(sum16(f + 34, 20 + size, sum));
    memcpy(f + 34, &tcp, 20);
    send_frame(c, f, 54 + size);
}

static bool is_tcp(const uint8_t *data, size_t size)
{
    return size >= 54 && data[12] == 8 && data[13] == 0 && data[23] == IPPROTO_TCP;
}

static bool is_tcp_data(const uint8_t *data, size_t size)
{
    return is_tcp(data, size) && (data[16] << 8 | data[17]) > 40;
}

static void test_hostfwd(void)
{
    int port = free_port(NULL);
    g_autofree char *options = g_strdup_printf(
        "{'type':'user','id':'n0','hostfwd':['tcp:127.0.0.1:%d-:22','udp::%d-:53']}", port, port);
    TestClient *c = guest_new(options, 1000);
    g_autofree char *lease = dhcp_discover(c);
    learn_host(c); /* and libslirp learns us */

    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    connect(fd, (struct sockaddr *)&to, sizeof(to));

    g_autoptr(GBytes) syn = next_frame(c, is_tcp);
    const uint8_t *s = g_bytes_get_data(syn, NULL);
    struct iphdr ip;
    struct tcphdr tcp;
    memcpy(&ip, s + 14, 20);
    memcpy(&tcp, s + 34, 20);
    g_assert_true(tcp.syn && !tcp.ack);
    g_assert_cmpuint(ntohs(tcp.dest), ==, 22);
    uint32_t theirs = ntohl(tcp.seq) + 1;
    send_tcp(c, ip.saddr, tcp.source, 1000, theirs, true, "", 0);
    run_loop_until_idle();
    g_assert_cmpint(write(fd, "hello guest", 11), ==, 11);

    g_autoptr(GBytes) data = next_frame(c, is_tcp_data);
    size_t size;
    const uint8_t *d = g_bytes_get_data(data, &size);
    g_assert_cmpuint(size, ==, 54 + 11);
    g_assert_true(memcmp(d + 54, "hello guest", 11) == 0);
    send_tcp(c, ip.saddr, tcp.source, 1001, theirs + 11, false, "hello host", 10);
    char buf[32];
    ssize_t n;
    RUN_LOOP_WHILE((n = read(fd, buf, sizeof(buf))) < 0);
    g_assert_cmpint(n, ==, 10);
    g_assert_true(memcmp(buf, "hello host", 10) == 0);

    /* The guest takes nothing: what the host sends stays in its socket, and comes later. */
    c->room = 0;
    g_assert_cmpint(write(fd, "later", 5), ==, 5);
    run_loop_until_idle();
    g_usleep(20000);
    run_loop_until_idle();
    g_assert_cmpuint(c->got->len, <, 20);
    test_client_give_room(c, 1000);
    for (bool seen = false; !seen;) {
        g_autoptr(GBytes) more = next_frame(c, is_tcp_data);
        seen = memcmp((const uint8_t *)g_bytes_get_data(more, NULL) + 54, "later", 5) == 0;
    }
    close(fd);
    run_loop_until_idle();
    guest_free(c);
    /* The port is free again. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&to, sizeof(to)), ==, 0);
    close(fd);
}

static void test_overflow_is_counted(void)
{
    TestClient *c = guest_new("{'type':'user','id':'n0','ipv6':false}", 0);
    for (unsigned i = 0; i < 3000; i++) {
        send_arp(c, "10.0.2.2");
    }
    run_loop_until_idle();
    g_assert_cmpuint(c->got->len, ==, 0);
    g_assert_cmpuint(c->nc.peer->stats.drops[NET_DROP_OVERFLOW], ==, 3000 - 1024);
    test_client_give_room(c, 1000); /* not all at once */
    run_loop_until_idle();
    g_assert_cmpuint(c->got->len, ==, 1000);
    test_client_give_room(c, 1000);
    run_loop_until_idle();
    g_assert_cmpuint(c->got->len, ==, 1024);
    guest_free(c);
}

/* A long batch is not taken whole before its first answers are sent, and none of those within it. */
static void test_answers_come_between_parts_of_a_batch(void)
{
    TestClient *c = guest_new("{'type':'user','id':'n0','ipv6':false}", 1000);
    uint8_t f[ARP_SIZE];
    NetPacket pkts[100];
    struct iovec iov[100];
    make_arp(f, "10.0.2.2");
    for (unsigned i = 0; i < 100; i++) {
        iov[i] = (struct iovec){f, ARP_SIZE};
        pkts[i] = (NetPacket){&iov[i], 1, ARP_SIZE};
    }
    unsigned done = 0, parts = 0;
    while (done < 100) {
        unsigned taken = net_send_batch(&c->nc, pkts + done, 100 - done);
        g_assert_cmpuint(taken, >, 0);
        g_assert_cmpuint(c->got->len, ==, done);
        done += taken;
        parts++;
        c->to_send = c->sent + (done < 100); /* one frame that nobody answers, when it can be */
        run_loop_until_idle();
        g_assert_cmpuint(c->sent, ==, c->to_send);
        g_assert_cmpuint(c->got->len, ==, done);
    }
    g_assert_cmpuint(parts, >=, 4);
    g_assert_cmpuint(c->nc.peer->stats.drops[NET_DROP_OVERFLOW], ==, 0);
    guest_free(c);
}

static void test_guestfwd(void)
{
    TestClient *c = guest_new(
        "{'type':'user','id':'n0','restrict':'on','guestfwd':'tcp:10.0.2.100:7-cmd:cat'}", 1000);
    g_assert_cmpstr(c->nc.peer->info->str, ==, "net=10.0.2.0,restrict=on");
    guest_free(c);
}

/* The guest's connection and a character device: bytes both ways, as fast as the guest reads. */
static void test_guestfwd_chardev(void)
{
    int fds[2];
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), ==, 0);
    g_autofree char *text = g_strdup_printf("{'backend':'socket','id':'c0','fd':'%d'}", fds[0]);
    json_object *chr = quoted(text);
    g_assert_nonnull(chardev_new(chr, NULL));
    json_object_put(chr);
    TestClient *c =
        guest_new("{'type':'user','id':'n0','guestfwd':'tcp:10.0.2.100:7-chardev:c0'}", 1u << 20);
    learn_host(c);
    uint32_t to;
    inet_pton(AF_INET, "10.0.2.100", &to);
    send_tcp(c, to, htons(7), 1000, 0, true, "", 0);
    g_autoptr(GBytes) syn_ack = next_frame(c, is_tcp);
    struct tcphdr tcp;
    memcpy(&tcp, (const uint8_t *)g_bytes_get_data(syn_ack, NULL) + 34, 20);
    g_assert_true(tcp.syn && tcp.ack);
    uint32_t theirs = ntohl(tcp.seq) + 1;
    send_tcp(c, to, htons(7), 1001, theirs, false, "to the device", 13);
    char buf[64];
    ssize_t n;
    RUN_LOOP_WHILE((n = read(fds[1], buf, sizeof(buf))) < 0);
    g_assert_cmpint(n, ==, 13);
    g_assert_true(memcmp(buf, "to the device", 13) == 0);

    /* Far more than libslirp keeps: the rest waits in the device's socket. */
    enum { TOTAL = 300000 };
    g_autofree uint8_t *data = g_malloc(TOTAL);
    for (unsigned i = 0; i < TOTAL; i++) {
        data[i] = i * 7 + i / 256;
    }
    unsigned written = 0, got = 0;
    int64_t end = g_get_monotonic_time() + 10 * G_USEC_PER_SEC;
    while (got < TOTAL) {
        n = written < TOTAL ? write(fds[1], data + written, TOTAL - written) : 0;
        written += n > 0 ? n : 0;
        event_loop_run_once(event_loop_main(), false);
        for (unsigned i = 0; i < c->got->len; i++) {
            size_t size;
            const uint8_t *f = g_bytes_get_data(c->got->pdata[i], &size);
            if (!is_tcp_data(f, size)) {
                continue;
            }
            size_t bytes = (f[16] << 8 | f[17]) - 40;
            memcpy(&tcp, f + 34, 20);
            if (ntohl(tcp.seq) != theirs + got) {
                continue; /* sent again */
            }
            g_assert_true(memcmp(f + 54, data + got, bytes) == 0);
            got += bytes;
        }
        g_ptr_array_set_size(c->got, 0);
        send_tcp(c, to, htons(7), 1014, theirs + got, false, "", 0);
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
    GError *err = NULL;
    g_assert_false(chardev_remove("c0", &err)); /* in use */
    g_clear_error(&err);
    guest_free(c);
    g_assert_true(chardev_remove("c0", NULL));
    close(fds[1]);
    /* A device made for the rule goes with it. */
    c = guest_new("{'type':'user','id':'n0','guestfwd':'tcp:10.0.2.100:7-null'}", 1);
    g_assert_nonnull(chardev_find("guestfwd.tcp.10.0.2.100.7"));
    guest_free(c);
    g_assert_null(chardev_find("guestfwd.tcp.10.0.2.100.7"));
    chardev_cleanup_all();
}

/* Frames of any content: nothing ends the process. */
static void test_garbage_frames(void)
{
    TestClient *c = guest_new("{'type':'user','id':'n0'}", 1u << 30);
    learn_host(c);
    GRand *rand = g_rand_new_with_seed(1);
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t f[256];
        size_t size = g_rand_int_range(rand, 0, sizeof(f));
        for (unsigned j = 0; j < sizeof(f); j++) {
            f[j] = g_rand_int(rand);
        }
        static const uint16_t types[] = {0x0800, 0x0806, 0x86dd, 0x8100, 0x88cc};
        fill_ether(f, host_mac, types[i % 5]);
        if (i % 3) {
            f[14] = i % 5 == 2 ? 0x60 : 0x45;
        }
        send_frame(c, f, size);
        if (i % 500 == 0) {
            run_loop_until_idle();
        }
    }
    g_rand_free(rand);
    run_loop_until_idle();
    learn_host(c);
    guest_free(c);
}

static void test_wrong_options(void)
{
    static const char *const bad[][2] = {
        {"'net':'10.0.2'", "net=10.0.2: an IPv4 address is expected"},
        {"'net':'10.0.2.0/33'", "net=10.0.2.0/33: the part behind '/'"},
        {"'net':'10.0.2.0/255.0.255.0'", "net=10.0.2.0/255.0.255.0: the part behind '/'"},
        {"'host':'10.0.3.2'", "host=10.0.3.2 is not in the guest's network 10.0.2.0/255.255.255.0"},
        {"'dns':'10.0.2.2'", "dns= and host= must be different"},
        {"'dhcpstart':'10.0.2.2'", "dhcpstart= must be another address"},
        {"'ipv4':'off','ipv6':'off'", "ipv4=off and ipv6=off leave nothing"},
        {"'ipv4':'off','net':'10.0.2.0/24'", "net=, host=, dhcpstart= and dns= need ipv4=on"},
        {"'ipv6':'off','ipv6-host':'fec0::7'", "ipv6-prefix="},
        {"'ipv6-prefixlen':'127'", "ipv6-prefixlen=127: 0 to 126"},
        {"'ipv6-host':'fec1::2'", "ipv6-host=fec1::2 is not in the guest's network fec0::/64"},
        {"'tftp':'/nonexistent'", "tftp=/nonexistent is not a folder"},
        {"'hostfwd':'tcp:5555'", "Invalid host forwarding rule 'tcp:5555'"},
        {"'hostfwd':'sctp::5555-:22'", "Invalid host forwarding rule 'sctp::5555-:22'"},
        {"'hostfwd':'tcp::99999-:22'", "Invalid host forwarding rule 'tcp::99999-:22'"},
        {"'hostfwd':'tcp::5555-:0'", "Invalid host forwarding rule 'tcp::5555-:0'"},
        {"'hostfwd':'tcp:[::1]:5555-:22'", "Invalid host forwarding rule 'tcp:[::1]:5555-:22'"},
        {"'guestfwd':'tcp:10.0.2.100:7'", "Invalid guest forwarding rule"},
        {"'guestfwd':'tcp:10.0.2.2:7-cmd:cat'", "Could not set up guest forwarding rule"},
        {"'guestfwd':'tcp:10.0.2.100:7-chr0'", "Guest forwarding rule"},
        {"'restrict':'1'", "Parameter 'restrict'"},
    };
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *options = g_strdup_printf("{'type':'user','id':'n0',%s}", bad[i][0]);
        netdev_must_fail(options, bad[i][1]);
        g_assert_null(net_clients);
    }
    int fd, port = free_port(&fd);
    g_autofree char *options =
        g_strdup_printf("{'type':'user','id':'n0','hostfwd':'tcp:127.0.0.1:%d-:22'}", port);
    g_autofree char *message = g_strdup_printf(
        "Could not set up host forwarding rule 'tcp:127.0.0.1:%d-:22': Address already in use",
        port);
    netdev_must_fail(options, message);
    close(fd);

    netdev_must_init("{'type':'user','id':'n0','ipv6':'off'}");
    EventLoop *loop = event_loop_new_thread("io0", NULL);
    GError *err = NULL;
    g_assert_false(net_client_set_loop(net_client_find("n0"), loop, &err));
    g_assert_nonnull(strstr(err->message, "works in the main loop only"));
    g_error_free(err);
    event_loop_free(loop);
    net_cleanup();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/user/arp", test_arp);
    g_test_add_func("/user/dhcp", test_dhcp);
    g_test_add_func("/user/hostfwd", test_hostfwd);
    g_test_add_func("/user/overflow-is-counted", test_overflow_is_counted);
    g_test_add_func("/user/answers-come-between-parts-of-a-batch",
                    test_answers_come_between_parts_of_a_batch);
    g_test_add_func("/user/guestfwd", test_guestfwd);
    g_test_add_func("/user/guestfwd-chardev", test_guestfwd_chardev);
    g_test_add_func("/user/garbage-frames", test_garbage_frames);
    g_test_add_func("/user/wrong-options", test_wrong_options);
    return g_test_run();
}
