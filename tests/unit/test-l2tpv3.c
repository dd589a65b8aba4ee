/*
 * -netdev l2tpv3: two ends in one process, over UDP and over IP, with every option that changes
 * the header; the header's bytes; frames of others.  IP needs root.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net-socket-util.h"

static void both_ways(void)
{
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    TestClient *b = test_client_new(net_client_find("n1"), "b");
    g_assert_cmpstr(a->nc.peer->info->str, ==, "l2tpv3: connected");
    a->spread = b->spread = 1400;
    for (unsigned i = 1; i <= 40; i++) {
        a->room = b->room = 8; /* full again each time */
        net_peer_writable(&a->nc);
        net_peer_writable(&b->nc);
        a->to_send = b->to_send = i * 8;
        test_client_send(a);
        test_client_send(b);
        RUN_LOOP_WHILE(a->got->len < i * 8 || b->got->len < i * 8);
    }
    assert_frames_in_order(a, 320);
    assert_frames_in_order(b, 320);
    g_assert_cmpuint(a->nc.peer->stats.drops[NET_DROP_BAD_HEADER], ==, 0);
    test_pair_delete(a, b);
}

static const char *const variants[][2] = {
    {"", ""},
    {",'rxsession':'7'", ",'txsession':'7','rxsession':'5'"},
    {",'rxcookie':'0x11223344','txcookie':'0x55667788'",
     ",'txcookie':'0x11223344','rxcookie':'0x55667788'"},
    {",'cookie64':'on','rxcookie':'0x1122334455667788','txcookie':'1'",
     ",'cookie64':'on','txcookie':'0x1122334455667788','rxcookie':'1'"},
    {",'counter':'on'", ",'pincounter':'on'"},
    {",'offset':'256','counter':'on'", ",'offset':'256','counter':'on'"},
};

static void test_udp(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(variants); i++) {
        for (unsigned v6 = 0; v6 < 2; v6++) {
            unsigned port[2];
            test_free_ports(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, port, 2);
            const char *host = v6 ? "::1','ipv6':'on" : "127.0.0.1";
            const char *addr = v6 ? "::1" : "127.0.0.1";
            netdev_must_initf("{'type':'l2tpv3','id':'n0','udp':'on','src':'%s','dst':'%s',"
                              "'srcport':'%u','dstport':'%u','txsession':'5'%s}",
                              host, addr, port[0], port[1], variants[i][0]);
            g_autofree char *session =
                g_strdup(strstr(variants[i][1], "txsession") ? "" : ",'txsession':'5'");
            netdev_must_initf("{'type':'l2tpv3','id':'n1','udp':'on','src':'%s','dst':'%s',"
                              "'srcport':'%u','dstport':'%u'%s%s}",
                              host, addr, port[1], port[0], session, variants[i][1]);
            both_ways();
        }
    }
}

static void test_ip(void)
{
    for (unsigned v6 = 0; v6 < 2; v6++) {
        /* Both ends on one address see each other's frames and their own: told apart by session. */
        const char *host = v6 ? "'::1','ipv6':'on'" : "'127.0.0.1'";
        const char *other = v6 ? "'::1'" : "'127.0.0.2'";
        const char *other_src = v6 ? "'::1','ipv6':'on'" : "'127.0.0.2'";
        const char *dst = v6 ? "'::1'" : "'127.0.0.1'";
        netdev_must_initf("{'type':'l2tpv3','id':'n0','src':%s,'dst':%s,'txsession':'1',"
                          "'rxsession':'2','counter':'on'}",
                          host, other);
        netdev_must_initf("{'type':'l2tpv3','id':'n1','src':%s,'dst':%s,'txsession':'2',"
                          "'rxsession':'1','counter':'on'}",
                          other_src, dst);
        TestClient *a = test_client_new(net_client_find("n0"), "a");
        TestClient *b = test_client_new(net_client_find("n1"), "b");
        a->room = b->room = G_MAXUINT;
        for (unsigned i = 1; i <= 20; i++) {
            a->to_send = b->to_send = i;
            test_client_send(a);
            test_client_send(b);
            RUN_LOOP_WHILE(a->got->len < i || b->got->len < i);
        }
        assert_frames_in_order(a, 20);
        assert_frames_in_order(b, 20);
        net_client_delete(&a->nc);
        net_client_delete(&b->nc);
        net_cleanup();
    }
}

static int raw_end(unsigned port, unsigned to)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    addr.sin_port = htons(to);
    g_assert_cmpint(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    return fd;
}

/* RFC 3931, 4.1: what is on the wire, and what is not for us. */
static void test_bytes(void)
{
    unsigned ports[2];
    test_free_ports(AF_INET, SOCK_DGRAM, ports, 2);
    unsigned port = ports[0], far = ports[1];
    netdev_must_initf(
        "{'type':'l2tpv3','id':'n0','udp':'on','src':'127.0.0.1','dst':'127.0.0.1',"
        "'srcport':'%u','dstport':'%u','txsession':'0x01020304','rxsession':'9',"
        "'cookie64':'on','txcookie':'0x1122334455667788','rxcookie':'0xa0b0c0d0e0f00010',"
        "'counter':'on','offset':'2'}",
        port, far);
    static const uint8_t head[] = {0,    3,    0,    0,    1,    2, 3, 4, 0x11, 0x22, 0x33,
                                   0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 1,    0,    0};
    static const uint8_t good[] = {0,    3,    0,    0,    0,    0, 0, 9, 0xa0, 0xb0, 0xc0,
                                   0xd0, 0xe0, 0xf0, 0x00, 0x10, 0, 0, 0, 7,    0,    0};
    uint8_t buf[200], frame[60];
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    NetClient *nc = a->nc.peer;
    int fd = raw_end(far, port);
    a->to_send = 1;
    a->room = 100;
    test_client_send(a);
    g_assert_cmpint(read(fd, buf, sizeof(buf)), ==, sizeof(head) + 60);
    test_frame_fill(frame, 60, 0);
    g_assert_true(memcmp(buf, head, sizeof(head)) == 0);
    g_assert_true(memcmp(buf + sizeof(head), frame, 60) == 0);

    memcpy(buf, good, sizeof(good));
    memcpy(buf + sizeof(good), frame, 60);
    g_assert_cmpint(write(fd, buf, sizeof(good) + 60), ==, sizeof(good) + 60);
    RUN_LOOP_WHILE(a->got->len == 0);
    assert_frames_in_order(a, 1);
    /* Another session, another cookie, every length that is too short. */
    unsigned bad = 0;
    buf[7] = 8;
    g_assert_cmpint(write(fd, buf, sizeof(good) + 60), >, 0);
    buf[7] = 9;
    buf[15]++;
    g_assert_cmpint(write(fd, buf, sizeof(good) + 60), >, 0);
    buf[15]--;
    bad += 2;
    for (size_t size = 1; size <= sizeof(good); size++, bad++) {
        g_assert_cmpint(write(fd, buf, size), ==, size);
    }
    RUN_LOOP_WHILE(nc->stats.drops[NET_DROP_BAD_HEADER] < bad);
    g_assert_cmpuint(a->got->len, ==, 1);
    close(fd);
    net_client_delete(&a->nc);
    net_cleanup();
}

static void test_wrong_options(void)
{
#define L2TP(more) "{'type':'l2tpv3','id':'n','src':'127.0.0.1','dst':'127.0.0.1'" more "}"
#define UDP        ",'udp':'on','dstport':'1701','txsession':'1'"
    netdev_must_fail(L2TP(""), "Parameter 'txsession' is missing");
    netdev_must_fail(L2TP(",'txsession':'1','udp':'on'"), "udp=on needs dstport=");
    netdev_must_fail(L2TP(",'txsession':'1','srcport':'1'"), "srcport= and dstport= are for udp=");
    netdev_must_fail(L2TP(UDP ",'rxcookie':'1'"),
                     "require both 'rxcookie' and 'txcookie' or neither");
    netdev_must_fail(L2TP(UDP ",'rxcookie':'0x100000000','txcookie':'1'"),
                     "a cookie above 0xffffffff needs cookie64=on");
    netdev_must_fail(L2TP(UDP ",'cookie64':'on'"), "cookie64=on needs rxcookie= and txcookie=");
    netdev_must_fail(L2TP(UDP ",'offset':'257'"), "offset=257: at most 256 bytes are possible");
    netdev_must_fail("{'type':'l2tpv3','id':'n','src':'198.51.100.1','dst':'127.0.0.1'" UDP "}",
                     "src=198.51.100.1: Cannot assign requested address");
    netdev_must_fail("{'type':'l2tpv3','id':'n','src':'::1','dst':'127.0.0.1'" UDP "}",
                     "src=::1: ");
    g_assert_null(net_clients);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    test_enter_own_network();
    g_test_add_func("/l2tpv3/udp", test_udp);
    g_test_add_func("/l2tpv3/ip", test_ip);
    g_test_add_func("/l2tpv3/bytes", test_bytes);
    g_test_add_func("/l2tpv3/wrong-options", test_wrong_options);
    return g_test_run();
}
