/*
 * -netdev dgram, and socket's udp= and mcast=: load both ways over each kind of socket, other ends
 * that come late, restart, connect themselves or go; addresses that cannot be.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sys/un.h>

#include "net-socket-util.h"

static char *tmpdir;

static void assert_infof(const char *id, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
static void assert_infof(const char *id, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_autofree char *want = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    NetClient *nc = net_client_find(id);
    g_autofree char *got = g_strdup_printf("%s,%s", nc->ops->type, nc->info->str);
    g_assert_cmpstr(got, ==, want);
}

static void unix_init(const char *id, const char *local, const char *remote)
{
    netdev_must_initf("{'type':'dgram','id':'%s','local':{'type':'unix','path':'%s/%s'},"
                      "'remote':{'type':'unix','path':'%s/%s'}}",
                      id, tmpdir, local, tmpdir, remote);
}

/* Both ways at once, with receivers that are often full: UNIX sockets lose nothing. */
static void load(TestClient *a, TestClient *b, unsigned frames, unsigned spread)
{
    test_pair_load(a, b, frames, spread);
    g_assert_cmpuint(a->nc.stats.stalls, >, 0);
}

/* UDP has no back-pressure: as many as the receiver takes at once. */
static void ping_pong(TestClient *a, TestClient *b, unsigned frames)
{
    a->room = b->room = G_MAXUINT;
    a->spread = b->spread = 1400;
    for (unsigned i = 1; i <= frames; i++) {
        a->to_send = b->to_send = i * 8;
        test_client_send(a);
        test_client_send(b);
        RUN_LOOP_WHILE(a->got->len < i * 8 || b->got->len < i * 8);
    }
    assert_frames_in_order(a, frames * 8);
    assert_frames_in_order(b, frames * 8);
}

static void test_unix(void)
{
    unix_init("n0", "p0", "p1");
    assert_infof("n0", "dgram,udp=%s/p0:%s/p1", tmpdir, tmpdir);
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    /* The other end is not there yet. */
    a->to_send = 5;
    test_client_send(a);
    g_assert_cmpuint(net_client_find("n0")->stats.drops[NET_DROP_HOST_ERROR], ==, 5);
    a->sent = 0;

    unix_init("n1", "p1", "p0");
    TestClient *b = test_client_new(net_client_find("n1"), "b");
    load(a, b, 3000, 9000);
    test_pair_delete(a, b);
    g_autofree char *path = g_build_filename(tmpdir, "p0", NULL);
    g_assert_false(g_file_test(path, G_FILE_TEST_EXISTS));
}

/* Either end restarts; the other finds it again, whoever speaks first. */
static void test_unix_restart(void)
{
    unix_init("n0", "p0", "p1");
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    a->room = G_MAXUINT;
    for (unsigned round = 0; round < 4; round++) {
        unix_init("n1", "p1", "p0");
        TestClient *b = test_client_new(net_client_find("n1"), "b");
        b->room = G_MAXUINT;
        TestClient *first = round % 2 ? a : b, *second = round % 2 ? b : a;
        g_ptr_array_set_size(a->got, 0);
        a->sent = 0;
        first->to_send = 20;
        test_client_send(first);
        RUN_LOOP_WHILE(second->got->len < 20);
        second->to_send = 20;
        test_client_send(second);
        RUN_LOOP_WHILE(first->got->len < 20);
        assert_frames_in_order(a, 20);
        assert_frames_in_order(b, 20);
        net_client_delete(&b->nc);
        g_assert_true(net_delete_netdev("n1", NULL));
    }
    test_pair_delete(a, NULL);
}

static int bind_raw(const char *name, const char *connect_to)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX}, to = {.sun_family = AF_UNIX};
    g_autofree char *path = g_build_filename(tmpdir, name, NULL);
    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    g_assert_cmpint(bind(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    if (connect_to) {
        g_autofree char *remote = g_build_filename(tmpdir, connect_to, NULL);
        g_strlcpy(to.sun_path, remote, sizeof(to.sun_path));
        g_assert_cmpint(connect(fd, (struct sockaddr *)&to, sizeof(to)), ==, 0);
    }
    return fd;
}

static void expect_raw(TestClient *a, int fd, unsigned first, unsigned last)
{
    uint8_t buf[2000];
    for (unsigned i = first; i < last; i++) {
        ssize_t n;
        while ((n = read(fd, buf, sizeof(buf))) < 0) {
            g_assert_cmpint(errno, ==, EAGAIN);
            event_loop_run_once(event_loop_main(), false);
        }
        uint32_t value;
        memcpy(&value, buf, 4);
        g_assert_cmpuint(value, ==, i);
    }
}

/* Other programs: one that connects itself to us (before we find it, or after), one that answers
 * to the address a frame came from, one that sends from another socket than it receives at. */
static void test_unix_other_programs(void)
{
    uint8_t buf[60];
    g_autofree char *p0 = g_build_filename(tmpdir, "p0", NULL);
    g_autofree char *p1 = g_build_filename(tmpdir, "p1", NULL);
    unix_init("n0", "p0", "p1");
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    a->room = G_MAXUINT;

    int fd = bind_raw("p1", "p0"); /* connected before our first frame */
    a->to_send = 300;
    test_client_send(a);
    expect_raw(a, fd, 0, 300);
    test_frame_fill(buf, sizeof(buf), 0);
    g_assert_cmpint(write(fd, buf, sizeof(buf)), ==, 60);
    RUN_LOOP_WHILE(a->got->len < 1);
    close(fd);

    /* Its successor may speak first: a second at most until it is heard. */
    fd = bind_raw("p1", NULL);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    g_strlcpy(to.sun_path, p0, sizeof(to.sun_path));
    test_frame_fill(buf, sizeof(buf), 1);
    int64_t end = g_get_monotonic_time() + 3 * G_USEC_PER_SEC;
    while (sendto(fd, buf, 60, 0, (struct sockaddr *)&to, sizeof(to)) < 0) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        event_loop_run_once(event_loop_main(), false);
    }
    RUN_LOOP_WHILE(a->got->len < 2);

    /* Not connected to us: frames come from the path we listen at. */
    a->to_send = 301;
    test_client_send(a);
    struct sockaddr_un from;
    socklen_t size = sizeof(from);
    g_assert_cmpint(recvfrom(fd, buf, 60, 0, (struct sockaddr *)&from, &size), ==, 60);
    g_assert_cmpstr(from.sun_path, ==, p0);
    /* And from others than the one we send to. */
    int other = bind_raw("p2", NULL);
    test_frame_fill(buf, sizeof(buf), 2);
    g_assert_cmpint(sendto(other, buf, 60, 0, (struct sockaddr *)&to, sizeof(to)), ==, 60);
    RUN_LOOP_WHILE(a->got->len < 3);
    close(other);

    /* It connects itself later. */
    g_assert_cmpint(connect(fd, (struct sockaddr *)&to, sizeof(to)), ==, 0);
    a->to_send = 600;
    test_client_send(a);
    expect_raw(a, fd, 301, 600);
    assert_frames_in_order(a, 3);
    close(fd);
    unlink(p1);
    g_autofree char *p2 = g_build_filename(tmpdir, "p2", NULL);
    unlink(p2);
    test_pair_delete(a, NULL);
}

static void test_abstract(void)
{
    for (unsigned i = 0; i < 2; i++) {
        netdev_must_initf("{'type':'dgram','id':'n%u',"
                          "'local':{'type':'unix','path':'swnic-t%d-%u','abstract':'on'},"
                          "'remote':{'type':'unix','path':'swnic-t%d-%u','abstract':'on'}}",
                          i, getpid(), i, getpid(), !i);
    }
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    TestClient *b = test_client_new(net_client_find("n1"), "b");
    load(a, b, 2000, 2000);
    test_pair_delete(a, b);
}

static void udp(int family, const char *host)
{
    unsigned port[2];

    test_free_ports(family, SOCK_DGRAM, port, 2);
    for (unsigned i = 0; i < 2; i++) {
        netdev_must_initf("{'type':'dgram','id':'n%u',"
                          "'local':{'type':'inet','host':'%s','port':'%u'},"
                          "'remote':{'type':'inet','host':'%s','port':'%u'}}",
                          i, host, port[i], host, port[!i]);
        g_autofree char *id = g_strdup_printf("n%u", i);
        assert_infof(id, "dgram,udp=%s:%u/%s:%u", host, port[i], host, port[!i]);
    }
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    TestClient *b = test_client_new(net_client_find("n1"), "b");
    ping_pong(a, b, 100);
    test_pair_delete(a, b);
}

static void test_udp(void)
{
    udp(AF_INET, "127.0.0.1");
    udp(AF_INET6, "::1");
}

static void test_fd(void)
{
    int fds[2];
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), ==, 0);
    for (unsigned i = 0; i < 2; i++) {
        netdev_must_initf("{'type':'dgram','id':'n%u','local':{'type':'fd','str':'%d'}}", i,
                          fds[i]);
        g_autofree char *id = g_strdup_printf("n%u", i);
        assert_infof(id, "dgram,fd=%d unix", fds[i]);
    }
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    TestClient *b = test_client_new(net_client_find("n1"), "b");
    load(a, b, 3000, 9000);
    test_pair_delete(a, b);
}

/* Everybody in the group gets everything, we too: a hub. */
static void multicast(const char *first, const char *second, const char *info)
{
    netdev_must_init(first);
    netdev_must_init(second);
    assert_infof("n0", "%s", info);
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    TestClient *b = test_client_new(net_client_find("n1"), "b");
    a->room = b->room = G_MAXUINT;
    for (unsigned i = 1; i < 50; i++) {
        a->to_send = i;
        test_client_send(a);
        RUN_LOOP_WHILE(b->got->len < i || a->got->len < i);
    }
    assert_frames_in_order(b, 49);
    assert_frames_in_order(a, 49);
    test_pair_delete(a, b);
}

static void test_multicast(void)
{
#define MCAST(id)                                                                                  \
    "{'type':'dgram','id':'" id "','remote':{'type':'inet','host':'230.0.0.1','port':'21234'},"    \
    "'local':{'type':'inet','host':'127.0.0.1','port':'0'}}"
    multicast(MCAST("n0"), MCAST("n1"), "dgram,mcast=230.0.0.1:21234");
#define OLD(id) "{'type':'socket','id':'" id "','mcast':'230.0.0.1:21234','localaddr':'127.0.0.1'}"
    multicast(OLD("n0"), OLD("n1"), "socket,socket: mcast=230.0.0.1:21234");
    /* Loopback interfaces have no IPv6 multicast routes: only joining is tried. */
    netdev_must_init("{'type':'dgram','id':'n0','remote':{'type':'inet','host':'ff02::77%lo',"
                     "'port':'21234'}}");
    assert_infof("n0", "dgram,mcast=ff02::77:21234");
    net_cleanup();
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    netdev_must_initf("{'type':'dgram','id':'n0','remote':{'type':'inet','host':'230.0.0.1',"
                      "'port':'21234'},'local':{'type':'fd','str':'%d'}}",
                      fd);
    assert_infof("n0", "dgram,fd=%d (cloned mcast=230.0.0.1:21234)", fd);
    net_cleanup();
}

static void test_old_udp(void)
{
    unsigned port[2];

    test_free_ports(AF_INET, SOCK_DGRAM, port, 2);
    for (unsigned i = 0; i < 2; i++) {
        netdev_must_initf("{'type':'socket','id':'n%u','udp':'127.0.0.1:%u','localaddr':'%s:%u'}",
                          i, port[!i], i ? "" : "127.0.0.1", port[i]);
    }
    assert_infof("n0", "socket,socket: udp=127.0.0.1:%u", port[1]);
    TestClient *a = test_client_new(net_client_find("n0"), "a");
    TestClient *b = test_client_new(net_client_find("n1"), "b");
    ping_pong(a, b, 50);
    test_pair_delete(a, b);
}

static void test_wrong_options(void)
{
#define INET(host)   "{'type':'inet','host':'" host "','port':'2000'}"
#define UNIX(path)   "{'type':'unix','path':'" path "'}"
#define DGRAM(more)  "{'type':'dgram','id':'n'" more "}"
#define LOCAL(addr)  ",'local':" addr
#define REMOTE(addr) ",'remote':" addr
    netdev_must_fail(DGRAM(""), "dgram requires local= parameter");
    netdev_must_fail(DGRAM(REMOTE(INET("127.0.0.1"))), "dgram requires local= parameter");
    netdev_must_fail(DGRAM(LOCAL(INET("127.0.0.1"))),
                     "type=inet or type=unix requires remote parameter");
    netdev_must_fail(DGRAM(LOCAL(INET("127.0.0.1")) REMOTE(UNIX("/x"))),
                     "remote and local types must be the same");
    netdev_must_fail(DGRAM(LOCAL("{'type':'fd','str':'3'}") REMOTE(UNIX("/x"))),
                     "don't set remote with local.fd");
    netdev_must_fail(DGRAM(LOCAL("{'type':'fd','str':'0'}")), "local.str=0 is not a socket");
    netdev_must_fail(DGRAM(LOCAL(INET("::1")) REMOTE(INET("127.0.0.1"))),
                     "local and remote must both be IPv4 or both IPv6");
    netdev_must_fail(DGRAM(LOCAL(INET("198.51.100.1")) REMOTE(INET("127.0.0.1"))),
                     "cannot receive at '198.51.100.1:2000': Cannot assign requested address");
    netdev_must_fail(DGRAM(LOCAL(UNIX("/nowhere/x")) REMOTE(UNIX("/x"))),
                     "cannot receive at '/nowhere/x': No such file or directory");
    netdev_must_fail(DGRAM(LOCAL(UNIX("/x")) REMOTE(INET("230.0.0.1"))),
                     "local.type=unix: with a multicast group it is inet");
    netdev_must_fail(
        DGRAM(LOCAL(INET("198.51.100.1")) REMOTE(INET("230.0.0.1"))),
        "cannot join the multicast group at interface '198.51.100.1:2000': No such dev");
    netdev_must_fail("{'type':'socket','id':'n','udp':'127.0.0.1:1'}",
                     "localaddr= is mandatory with udp=");
    netdev_must_fail("{'type':'socket','id':'n','udp':'127.0.0.1','localaddr':':1'}",
                     "udp=127.0.0.1: HOST:PORT is expected");
    netdev_must_fail("{'type':'socket','id':'n','mcast':'10.0.0.1:1'}",
                     "mcast=: '10.0.0.1:1' is not a multicast address");
    netdev_must_fail("{'type':'socket','id':'n','mcast':'230.0.0.1:1','localaddr':'x'}",
                     "localaddr 'x' is not a valid IPv4 address");
    netdev_must_fail("{'type':'socket','id':'n','listen':':1','localaddr':'x'}",
                     "localaddr= is only valid with mcast= or udp=");
    g_assert_null(net_clients);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    test_enter_own_network();
    tmpdir = g_dir_make_tmp("test-dgram-XXXXXX", NULL);
    g_test_add_func("/dgram/unix", test_unix);
    g_test_add_func("/dgram/unix-restart", test_unix_restart);
    g_test_add_func("/dgram/unix-other-programs", test_unix_other_programs);
    g_test_add_func("/dgram/abstract", test_abstract);
    g_test_add_func("/dgram/udp", test_udp);
    g_test_add_func("/dgram/fd", test_fd);
    g_test_add_func("/dgram/multicast", test_multicast);
    g_test_add_func("/dgram/old-udp", test_old_udp);
    g_test_add_func("/dgram/wrong-options", test_wrong_options);
    int rc = g_test_run();
    g_rmdir(tmpdir);
    g_free(tmpdir);
    return rc;
}
