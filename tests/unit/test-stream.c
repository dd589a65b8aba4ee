/*
 * -netdev stream and socket's listen= and connect=: two back ends in one process that talk to each
 * other under load, reconnecting, events, texts, addresses that cannot be.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <sys/un.h>

#include "net-socket-util.h"
#include "net/framed.h"
#include "qapi/monitor.h"

static char *tmpdir;
static GPtrArray *events; /* "NAME DATA" */

static void note_event(void *opaque, const char *name, json_object *event)
{
    g_autofree char *spaced = json_to_string(json_member(event, "data"));
    g_auto(GStrv) parts = g_strsplit(spaced, " ", -1);
    g_autofree char *data = g_strjoinv("", parts);
    g_ptr_array_add(events, g_strdup_printf("%s %s", name, data));
}

static void assert_events(const char *first, ...)
{
    va_list ap;
    unsigned i = 0;
    va_start(ap, first);
    for (const char *e = first; e; e = va_arg(ap, const char *), i++) {
        g_assert_cmpuint(i, <, events->len);
        g_assert_cmpstr(events->pdata[i], ==, e);
    }
    va_end(ap);
    g_assert_cmpuint(events->len, ==, i);
    g_ptr_array_set_size(events, 0);
}

static char *info(const char *id)
{
    g_autoptr(GString) out = g_string_new(NULL);
    g_autofree char *start = g_strdup_printf("%s: ", id);
    net_print_info(out);
    char *at = strstr(out->str, start);
    g_assert_nonnull(at);
    return g_strndup(at, strstr(at, "\r\n") - at);
}

static bool info_is(const char *id, const char *text)
{
    g_autofree char *line = info(id);
    g_autofree char *want = g_strdup_printf("%s: index=0,type=%s", id, text);
    return strcmp(line, want) == 0;
}

#define EXPECT_INFO(id, ...)                                                                       \
    do {                                                                                           \
        g_autofree char *want_ = g_strdup_printf(__VA_ARGS__);                                     \
        RUN_LOOP_WHILE(!info_is(id, want_));                                                       \
    } while (0)

/* Frames both ways at once between two back ends, receivers that take a few at a time. */
static void load(TestClient *a, TestClient *b, unsigned frames, unsigned spread)
{
    test_pair_load(a, b, frames, spread);
    g_assert_cmpuint(a->nc.stats.tx_packets, ==, frames);
    g_assert_cmpuint(b->nc.stats.tx_packets, ==, frames);
}

static void both_ways(const char *uri)
{
    TestClient *a = test_client_new(net_client_find("srv"), "a");
    TestClient *b = test_client_new(net_client_find("cli"), "b");
    EXPECT_INFO("cli", "stream,%s", uri);
    load(a, b, 3000, 9000);
    test_pair_delete(a, b);
}

static void test_unix(void)
{
    g_autofree char *path = g_build_filename(tmpdir, "s", NULL);
    g_assert_true(g_file_set_contents(path, "in the way", -1, NULL));
    netdev_must_initf(
        "{'type':'stream','id':'srv','server':'on','addr':{'type':'unix','path':'%s'}}", path);
    EXPECT_INFO("srv", "stream,listening");
    netdev_must_initf("{'type':'stream','id':'cli','addr':{'type':'unix','path':'%s'}}", path);
    EXPECT_INFO("cli", "stream,unix:%s", path);
    EXPECT_INFO("srv", "stream,unix:%s", path);
    g_autofree char *cli =
        g_strdup_printf("NETDEV_STREAM_CONNECTED "
                        "{\"netdev-id\":\"cli\",\"addr\":{\"type\":\"unix\",\"path\":\"%s\"}}",
                        path);
    g_autofree char *srv =
        g_strdup_printf("NETDEV_STREAM_CONNECTED "
                        "{\"netdev-id\":\"srv\",\"addr\":{\"type\":\"unix\",\"path\":\"%s\"}}",
                        path);
    bool cli_first = strstr(events->pdata[0], "cli") != NULL;
    assert_events(cli_first ? cli : srv, cli_first ? srv : cli, NULL);
    g_autofree char *uri = g_strdup_printf("unix:%s", path);
    both_ways(uri);
    g_assert_false(g_file_test(path, G_FILE_TEST_EXISTS));
    g_ptr_array_set_size(events, 0);
}

static void test_abstract(void)
{
    g_autofree char *name = g_strdup_printf("swnic-test-%d", getpid());
    for (unsigned tight = 0; tight < 2; tight++) {
        g_autofree char *addr = g_strdup_printf(
            "{'type':'unix','path':'%s','abstract':'on','tight':'%s'}", name, tight ? "on" : "off");
        g_autofree char *uri = g_strdup_printf("unix:%s", name);
        netdev_must_initf("{'type':'stream','id':'srv','server':'on','addr':%s}", addr);
        netdev_must_initf("{'type':'stream','id':'cli','addr':%s}", addr);
        EXPECT_INFO("srv", "stream,unix:%s", name);
        g_assert_nonnull(strstr(events->pdata[1], tight ? "\"abstract\":true,\"tight\":true"
                                                        : "\"abstract\":true,\"tight\":false"));
        both_ways(uri);
        g_ptr_array_set_size(events, 0);
    }
}

static void inet_both_ways(int family, const char *host, const char *flags)
{
    unsigned port = test_free_port(family, SOCK_STREAM);
    g_autofree char *addr = g_strdup_printf(
        "{'type':'inet','host':'%s','port':'%u',%s,'keep-alive':'on'}", host, port, flags);
    g_autofree char *uri = g_strdup_printf("tcp:%s:%u", host, port);
    netdev_must_initf("{'type':'stream','id':'srv','server':'true','addr':%s}", addr);
    netdev_must_initf("{'type':'stream','id':'cli','server':'false','addr':%s}", addr);
    EXPECT_INFO("cli", "stream,%s", uri);
    RUN_LOOP_WHILE(events->len < 2);
    both_ways(uri);
    g_ptr_array_set_size(events, 0);
}

static void test_inet(void)
{
    inet_both_ways(AF_INET, "127.0.0.1", "'ipv4':'on','ipv6':'off'");
    inet_both_ways(AF_INET6, "::1", "'ipv4':'off','ipv6':'on'");
}

/* An empty host is both loopback addresses; nobody listens at the other. */
static void test_several_addresses(void)
{
    const char *hosts[] = {"127.0.0.1", "::1"};
    for (unsigned i = 0; i < 2; i++) {
        unsigned port = test_free_port(i ? AF_INET6 : AF_INET, SOCK_STREAM);
        netdev_must_initf("{'type':'stream','id':'srv','server':'on','addr':{'type':'inet',"
                          "'host':'%s','port':'%u'}}",
                          hosts[i], port);
        netdev_must_initf("{'type':'stream','id':'cli','reconnect-ms':'10','addr':{'type':'inet',"
                          "'host':'','port':'%u'}}",
                          port);
        g_autofree char *uri = g_strdup_printf("tcp:%s:%u", hosts[i], port);
        both_ways(uri);
        g_ptr_array_set_size(events, 0);
    }
}

static void test_fd(void)
{
    int fds[2];
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), ==, 0);
    netdev_must_initf("{'type':'stream','id':'srv','addr':{'type':'fd','str':'%d'}}", fds[0]);
    netdev_must_initf("{'type':'stream','id':'cli','addr':{'type':'fd','str':'%d'}}", fds[1]);
    EXPECT_INFO("srv", "stream,unix:");
    assert_events("NETDEV_STREAM_CONNECTED {\"netdev-id\":\"srv\",\"addr\":{\"type\":\"unix\","
                  "\"path\":\"\"}}",
                  "NETDEV_STREAM_CONNECTED {\"netdev-id\":\"cli\",\"addr\":{\"type\":\"unix\","
                  "\"path\":\"\"}}",
                  NULL);
    both_ways("unix:");
    g_ptr_array_set_size(events, 0);
}

static void test_reconnect(void)
{
    g_autofree char *path = g_build_filename(tmpdir, "r", NULL);
    g_autofree char *server = g_strdup_printf(
        "{'type':'stream','id':'srv','server':'on','addr':{'type':'unix','path':'%s'}}", path);
    /* Nobody there yet. */
    netdev_must_initf("{'type':'stream','id':'cli','reconnect-ms':'20','addr':{'type':'unix',"
                      "'path':'%s'}}",
                      path);
    TestClient *b = test_client_new(net_client_find("cli"), "b");
    g_assert_true(info_is("cli", "stream,connecting"));
    b->to_send = 3;
    test_client_send(b);
    g_assert_cmpuint(net_client_find("cli")->stats.drops[NET_DROP_NOT_READY], ==, 3);

    for (unsigned round = 0; round < 3; round++) {
        netdev_must_init(server);
        TestClient *a = test_client_new(net_client_find("srv"), "a");
        EXPECT_INFO("cli", "stream,unix:%s", path);
        EXPECT_INFO("srv", "stream,unix:%s", path);
        g_ptr_array_set_size(events, 0);
        a->room = b->room = 1000;
        a->to_send = 100;
        test_client_send(a);
        RUN_LOOP_WHILE(b->got->len < 100);
        assert_frames_in_order(b, 100);
        g_ptr_array_set_size(b->got, 0);
        net_client_delete(&a->nc);
        g_assert_true(net_delete_netdev("srv", NULL));
        RUN_LOOP_WHILE(events->len == 0);
        assert_events("NETDEV_STREAM_DISCONNECTED {\"netdev-id\":\"cli\"}", NULL);
        g_assert_true(info_is("cli", "stream,connecting"));
    }
    net_client_delete(&b->nc);
    net_cleanup();
}

static int connect_raw(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    g_assert_cmpint(connect(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    return fd;
}

/* One client after the other; half a frame of one is not in front of the next one's. */
static void test_server_serves_in_turn(void)
{
    g_autofree char *path = g_build_filename(tmpdir, "t", NULL);
    static const uint8_t frame[] = {0, 0, 0, 4, 1, 2, 3, 4};
    netdev_must_initf(
        "{'type':'stream','id':'srv','server':'on','addr':{'type':'unix','path':'%s'}}", path);
    TestClient *a = test_client_new(net_client_find("srv"), "a");
    for (unsigned cut = 0; cut < sizeof(frame); cut++) {
        int first = connect_raw(path), second = connect_raw(path);
        /* The second's frame is there first, and waits for its turn. */
        g_assert_cmpint(write(second, frame, sizeof(frame)), ==, sizeof(frame));
        run_loop_until_idle();
        g_assert_cmpuint(a->got->len, ==, 0);
        g_assert_cmpint(write(first, frame, sizeof(frame)), ==, sizeof(frame));
        g_assert_cmpint(write(first, frame, cut), ==, cut);
        run_loop_until_idle();
        close(first);
        run_loop_until_idle();
        /* Nothing was taken so far: both frames, in order, none of the cut one. */
        test_client_give_room(a, 10);
        run_loop_until_idle();
        g_assert_cmpuint(a->got->len, ==, 2);
        g_ptr_array_set_size(a->got, 0);
        close(second);
        a->room = 0;
        EXPECT_INFO("srv", "stream,listening");
    }
    /* Garbage costs only the connection. */
    int bad = connect_raw(path);
    g_assert_cmpint(write(bad, "GET / HTTP/1.0\r\n\r\n", 18), ==, 18);
    run_loop_until_idle();
    EXPECT_INFO("srv", "stream,listening");
    close(bad);
    int good = connect_raw(path);
    a->room = 10;
    g_assert_cmpint(write(good, frame, sizeof(frame)), ==, sizeof(frame));
    RUN_LOOP_WHILE(a->got->len == 0);
    close(good);
    net_client_delete(&a->nc);
    net_cleanup();
    g_ptr_array_set_size(events, 0);
}

/* Any bytes in any pieces: nothing but frames comes out, and the server goes on. */
static void test_random_bytes(void)
{
    g_autofree char *path = g_build_filename(tmpdir, "x", NULL);
    netdev_must_initf(
        "{'type':'stream','id':'srv','server':'on','addr':{'type':'unix','path':'%s'}}", path);
    TestClient *a = test_client_new(net_client_find("srv"), "a");
    a->room = G_MAXUINT;
    for (unsigned round = 0; round < 60; round++) {
        int fd = connect_raw(path);
        for (unsigned i = 0; i < 40; i++) {
            uint8_t buf[600];
            unsigned size = g_test_rand_int_range(1, sizeof(buf));
            for (unsigned j = 0; j < size; j++) {
                buf[j] = g_test_rand_int_range(0, 4) ? 0 : g_test_rand_int_range(0, 256);
            }
            if (send(fd, buf, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
                break;
            }
            run_loop_until_idle();
        }
        close(fd);
        run_loop_until_idle();
    }
    for (unsigned i = 0; i < a->got->len; i++) {
        g_assert_cmpuint(g_bytes_get_size(a->got->pdata[i]), <=, NET_MAX_FRAME);
    }
    EXPECT_INFO("srv", "stream,listening");
    net_client_delete(&a->nc);
    net_cleanup();
    g_ptr_array_set_size(events, 0);
}

static void test_old_socket(void)
{
    unsigned port = test_free_port(AF_INET, SOCK_STREAM);
    netdev_must_initf("{'type':'socket','id':'srv','listen':'127.0.0.1:%u'}", port);
    g_assert_true(info_is("srv", "socket,"));
    netdev_must_initf("{'type':'socket','id':'cli','connect':'127.0.0.1:%u'}", port);
    EXPECT_INFO("cli", "socket,socket: connect to 127.0.0.1:%u", port);
    RUN_LOOP_WHILE(info_is("srv", "socket,"));
    g_autofree char *line = info("srv");
    g_assert_true(g_str_has_prefix(line, "srv: index=0,type=socket,socket: connection from "
                                         "127.0.0.1:"));
    TestClient *a = test_client_new(net_client_find("srv"), "a");
    TestClient *b = test_client_new(net_client_find("cli"), "b");
    load(a, b, 1000, 3000);
    net_delete_netdev("cli", NULL);
    EXPECT_INFO("srv", "socket,");
    test_pair_delete(a, b);
    assert_events(NULL);
}

static void test_wrong_options(void)
{
#define STREAM(addr, more) "{'type':'stream','id':'s','addr':" addr more "}"
#define INET(host, port)   "{'type':'inet','host':'" host "','port':'" port "'}"
    netdev_must_fail("{'type':'stream','id':'s'}", "Parameter 'addr' is missing");
    netdev_must_fail(STREAM("{'type':'unix'}", ""), "Parameter 'addr.path' is missing");
    netdev_must_fail(STREAM("{'type':'pigeon'}", ""), "Parameter 'addr.type' does not accept");
    netdev_must_fail(STREAM("{'type':'unix','path':''}", ""), "UNIX socket path '' is empty");
    netdev_must_fail(STREAM("{'type':'unix','path':'/nowhere/x'}", ""),
                     "cannot connect to '/nowhere/x': No such file or directory (reconnect-ms=");
    netdev_must_fail(STREAM("{'type':'unix','path':'/nowhere/x'}", ",'server':'on'"),
                     "cannot listen at '/nowhere/x': No such file or directory");
    netdev_must_fail(STREAM("{'type':'unix','path':'/proc'}", ",'server':'on'"),
                     "cannot listen at '/proc': ");
    g_autofree char *path = g_strnfill(200, 'x');
    g_autofree char *text = g_strdup_printf(STREAM("{'type':'unix','path':'%s'}", ""), path);
    g_autofree char *want = g_strdup_printf("UNIX socket path '%s' is too long: 1 to 107", path);
    netdev_must_fail(text, want);
    netdev_must_fail(STREAM(INET("127.0.0.1", ""), ""), "address '127.0.0.1:' has no port");
    netdev_must_fail(STREAM(INET("127.0.0.1", "nosuchport"), ""),
                     "address '127.0.0.1:nosuchport': ");
    netdev_must_fail(STREAM("{'type':'inet','host':'no.where','port':'1','numeric':'on'}", ""),
                     "address 'no.where:1': ");
    netdev_must_fail(
        STREAM("{'type':'inet','host':'::1','port':'1','ipv4':'off','ipv6':'off'}", ""),
        "ipv4=off and ipv6=off leave no address");
    netdev_must_fail(STREAM(INET("198.51.100.1", "5000"), ",'server':'on'"),
                     "cannot listen at '198.51.100.1:5000': Cannot assign requested address");
    netdev_must_fail(STREAM("{'type':'unix','path':'x'}", ",'reconnect':'1','reconnect-ms':'1'"),
                     "'reconnect' and 'reconnect-ms' are mutually exclusive");
    netdev_must_fail(STREAM("{'type':'unix','path':'x'}", ",'reconnect':'1','server':'on'"),
                     "'reconnect' and 'reconnect-ms' options are incompatible");
    netdev_must_fail(STREAM("{'type':'fd','str':'99'}", ""), "addr.str=99 is not an open file");
    netdev_must_fail(STREAM("{'type':'fd','str':'0'}", ""), "addr.str=0 is not a socket");

    unsigned port = test_free_port(AF_INET, SOCK_STREAM);
    g_autofree char *in_use = g_strdup_printf(
        STREAM("{'type':'inet','host':'127.0.0.1','port':'%u'}", ",'server':'on'"), port);
    g_autofree char *range = g_strdup_printf(
        "{'type':'stream','id':'s2','server':'on','addr':{'type':'inet','host':'127.0.0.1',"
        "'port':'%u','to':'%u'}}",
        port, port + 20);
    netdev_must_init(in_use);
    strstr(in_use, "'s'")[1] = 't';
    netdev_must_fail(in_use, "cannot listen at '127.0.0.1:");
    netdev_must_init(range);
    net_cleanup();
    g_assert_null(net_clients);
#undef STREAM
#undef INET
}

/* Refused at once by the kernel, but told late: the netdev stays and says so. */
static void test_refused(void)
{
    unsigned port = test_free_port(AF_INET, SOCK_STREAM);
    netdev_must_initf("{'type':'stream','id':'cli','reconnect-ms':'5','addr':{'type':'inet',"
                      "'host':'127.0.0.1','port':'%u'}}",
                      port);
    for (unsigned i = 0; i < 100; i++) {
        event_loop_run_once(event_loop_main(), false);
        g_usleep(500);
    }
    g_assert_true(info_is("cli", "stream,connecting"));
    net_cleanup();
}

typedef struct LoopTest {
    TestClient *a, *b;
    unsigned got;
} LoopTest;

static void loop_send(void *opaque)
{
    test_client_send(((LoopTest *)opaque)->b);
}

static void loop_count(void *opaque)
{
    LoopTest *t = opaque;
    t->got = t->b->got->len;
}

/* The client's data moves in an iothread; its connection comes and goes in the main loop. */
static void test_in_another_loop(void)
{
    g_autofree char *path = g_build_filename(tmpdir, "l", NULL);
    g_autofree char *server = g_strdup_printf(
        "{'type':'stream','id':'srv','server':'on','addr':{'type':'unix','path':'%s'}}", path);
    EventLoop *loop = event_loop_new_thread("io0", NULL);
    netdev_must_initf("{'type':'stream','id':'cli','reconnect-ms':'5','addr':{'type':'unix',"
                      "'path':'%s'}}",
                      path);
    LoopTest t = {.b = test_client_new(net_client_find("cli"), "b")};
    g_assert_true(net_client_set_loop(net_client_find("cli"), loop, NULL));
    t.b->nc.loop = loop;
    t.b->room = 1u << 30;
    for (unsigned round = 0; round < 5; round++) {
        netdev_must_init(server);
        t.a = test_client_new(net_client_find("srv"), "a");
        t.a->room = 1u << 30;
        t.a->spread = t.b->spread = 4000;
        EXPECT_INFO("cli", "stream,unix:%s", path);
        EXPECT_INFO("srv", "stream,unix:%s", path);
        t.a->to_send = 500;
        t.b->sent = 0;
        t.b->to_send = 500;
        event_loop_run_sync(loop, loop_send, &t);
        test_client_send(t.a);
        do {
            event_loop_run_once(event_loop_main(), false);
            event_loop_run_sync(loop, loop_count, &t);
        } while (t.a->got->len < 500 || t.got < 500 * (round + 1));
        assert_frames_in_order(t.a, 500);
        net_client_delete(&t.a->nc);
        g_assert_true(net_delete_netdev("srv", NULL));
        EXPECT_INFO("cli", "stream,connecting");
    }
    g_assert_true(net_client_set_loop(net_client_find("cli"), event_loop_main(), NULL));
    t.b->nc.loop = event_loop_main();
    event_loop_free(loop);
    net_client_delete(&t.b->nc);
    net_cleanup();
    g_ptr_array_set_size(events, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    test_enter_own_network();
    tmpdir = g_dir_make_tmp("test-stream-XXXXXX", NULL);
    events = g_ptr_array_new_with_free_func(g_free);
    qmp_event_listen(note_event, NULL);
    g_test_add_func("/stream/unix", test_unix);
    g_test_add_func("/stream/abstract", test_abstract);
    g_test_add_func("/stream/inet", test_inet);
    g_test_add_func("/stream/several-addresses", test_several_addresses);
    g_test_add_func("/stream/fd", test_fd);
    g_test_add_func("/stream/reconnect", test_reconnect);
    g_test_add_func("/stream/server-serves-in-turn", test_server_serves_in_turn);
    g_test_add_func("/stream/random-bytes", test_random_bytes);
    g_test_add_func("/stream/old-socket", test_old_socket);
    g_test_add_func("/stream/wrong-options", test_wrong_options);
    g_test_add_func("/stream/refused", test_refused);
    g_test_add_func("/stream/in-another-loop", test_in_another_loop);
    int rc = g_test_run();
    qmp_event_unlisten(note_event, NULL);
    g_ptr_array_unref(events);
    g_rmdir(tmpdir);
    g_free(tmpdir);
    return rc;
}
