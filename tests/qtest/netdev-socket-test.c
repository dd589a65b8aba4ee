/*
 * stream, dgram and socket as clients of QEMU's meet them: two emulators without a machine that
 * find each other, what `info network` says in whole, events, reconnecting, passed fds.
 */
#include <glib/gstdio.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/launch.h"

#define NONE "-nodefaults -M none -netdev "

static char *tmpdir;

/* @n ports that are free now; all different. */
static void free_ports(int family, unsigned *ports, unsigned n)
{
    int fds[8];

    for (unsigned i = 0; i < n; i++) {
        struct sockaddr_storage addr = {.ss_family = family};
        socklen_t size = sizeof(addr);
        fds[i] = socket(family, SOCK_STREAM, 0);
        g_assert_cmpint(bind(fds[i], (struct sockaddr *)&addr, size), ==, 0);
        g_assert_cmpint(getsockname(fds[i], (struct sockaddr *)&addr, &size), ==, 0);
        ports[i] = ntohs(((struct sockaddr_in *)&addr)->sin_port);
    }
    for (unsigned i = 0; i < n; i++) {
        close(fds[i]);
    }
}

static char *path_of(const char *name)
{
    return g_build_filename(tmpdir, name, NULL);
}

/* The event's netdev is st0; a member of its address. */
static char *connected(Emulator *e, const char *type, const char *member)
{
    json_object *data = launch_wait_event(e, "NETDEV_STREAM_CONNECTED");
    json_object *addr = launch_member(data, "addr");

    g_assert_cmpstr(launch_string(data, "netdev-id"), ==, "st0");
    g_assert_cmpint(json_object_object_length(data), ==, 2);
    g_assert_cmpstr(launch_string(addr, "type"), ==, type);
    char *value = g_strdup(launch_string(addr, member));
    json_object_put(data);
    return value;
}

static void disconnected(Emulator *e)
{
    json_object *data = launch_wait_event(e, "NETDEV_STREAM_DISCONNECTED");

    g_assert_cmpstr(launch_string(data, "netdev-id"), ==, "st0");
    g_assert_cmpint(json_object_object_length(data), ==, 1);
    json_object_put(data);
}

static void stream_inet(int family, const char *host, const char *flags)
{
    unsigned port;

    free_ports(family, &port, 1);
    Emulator *server =
        launch(NULL, NONE "stream,id=st0,server=true,addr.type=inet,%s,addr.host=%s,addr.port=%u",
               flags, host, port);
    launch_expect_info(server, "st0: index=0,type=stream,listening\r\n");
    Emulator *client =
        launch(NULL, NONE "stream,server=false,id=st0,addr.type=inet,%s,addr.host=%s,addr.port=%u",
               flags, host, port);
    launch_expect_info(client, "st0: index=0,type=stream,tcp:%s:%u\r\n", host, port);
    launch_expect_info_cut(server, ':', "st0: index=0,type=stream,tcp:%s", host);
    launch_quit(client);
    launch_expect_info(server, "st0: index=0,type=stream,listening\r\n");
    launch_quit(server);
}

static void test_stream_ipv4(void)
{
    stream_inet(AF_INET, "127.0.0.1", "addr.ipv4=on,addr.ipv6=off");
}

static void test_stream_ipv6(void)
{
    stream_inet(AF_INET6, "::1", "addr.ipv4=off,addr.ipv6=on");
}

/* The server ends and comes back: the client finds it; both say so. */
static void reconnect(const char *address, const char *option, const char *type, const char *member,
                      const char *server_value, const char *client_value)
{
    const char *server_line = NONE "stream,id=st0,server=true,%s";
    Emulator *server = launch(NULL, server_line, address);

    launch_expect_info(server, "st0: index=0,type=stream,listening\r\n");
    Emulator *client = launch(NULL, NONE "stream,server=false,id=st0,%s,%s", address, option);
    g_autofree char *first = connected(server, type, member);
    g_assert_cmpstr(first, ==, server_value);
    launch_expect_info_cut(client, '\r', "st0: index=0,type=stream,%s:%s%s",
                           strcmp(type, "inet") ? "unix" : "tcp", client_value,
                           strcmp(type, "inet") ? "" : strstr(address, "addr.port=") + 10);
    qmp_client_drop_events(client->qmp);
    launch_quit(server);
    disconnected(client);
    launch_expect_info(client, "st0: index=0,type=stream,connecting\r\n");
    server = launch(NULL, server_line, address);
    g_autofree char *second = connected(server, type, member);
    g_assert_cmpstr(second, ==, server_value);
    g_autofree char *third = connected(client, type, member);
    g_assert_cmpstr(third, ==, server_value);
    launch_quit(client);
    disconnected(server);
    launch_quit(server);
}

static void test_stream_inet_reconnect(void)
{
    unsigned port;

    free_ports(AF_INET, &port, 1);
    g_autofree char *address = g_strdup_printf("addr.ipv4=on,addr.ipv6=off,addr.type=inet,"
                                               "addr.host=127.0.0.1,addr.port=%u",
                                               port);
    reconnect(address, "reconnect=1", "inet", "host", "127.0.0.1", "127.0.0.1:");
    reconnect(address, "reconnect-ms=50", "inet", "host", "127.0.0.1", "127.0.0.1:");
}

static void test_stream_unix_reconnect(void)
{
    g_autofree char *path = path_of("stream_unix_reconnect");
    g_autofree char *address = g_strdup_printf("addr.type=unix,addr.path=%s", path);

    reconnect(address, "reconnect=1", "unix", "path", path, path);
    reconnect(address, "reconnect-ms=1000", "unix", "path", path, path);
}

static void stream_unix(const char *name, const char *flags)
{
    g_autofree char *path = path_of(name);
    Emulator *server =
        launch(NULL, NONE "stream,id=st0,server=true,addr.type=unix,addr.path=%s,%s", path, flags);

    launch_expect_info(server, "st0: index=0,type=stream,listening\r\n");
    Emulator *client =
        launch(NULL, NONE "stream,id=st0,server=false,addr.type=unix,addr.path=%s,%s", path, flags);
    launch_expect_info(client, "st0: index=0,type=stream,unix:%s\r\n", path);
    launch_expect_info(server, "st0: index=0,type=stream,unix:%s\r\n", path);
    launch_quit(client);
    launch_quit(server);
    g_assert_false(g_file_test(path, G_FILE_TEST_EXISTS));
}

static void test_stream_unix(void)
{
    stream_unix("stream_unix", "");
}

static void test_stream_unix_abstract(void)
{
    stream_unix("stream_unix_abstract", "addr.abstract=on");
}

static void test_stream_fd(void)
{
    int sv[2];

    g_assert_cmpint(socketpair(AF_LOCAL, SOCK_STREAM, 0, sv), ==, 0);
    Emulator *a = launch((int[]){sv[0], -1}, NONE "stream,id=st0,addr.type=fd,addr.str=%d", sv[0]);
    launch_expect_info(a, "st0: index=0,type=stream,unix:\r\n");
    Emulator *b = launch((int[]){sv[1], -1}, NONE "stream,id=st0,addr.type=fd,addr.str=%d", sv[1]);
    launch_expect_info(b, "st0: index=0,type=stream,unix:\r\n");
    launch_expect_info(a, "st0: index=0,type=stream,unix:\r\n");
    launch_quit(b);
    launch_quit(a);
    close(sv[0]);
    close(sv[1]);
}

static void test_dgram_inet(void)
{
    unsigned port[2];
    Emulator *e[2];

    free_ports(AF_INET, port, 2);
    for (unsigned i = 0; i < 2; i++) {
        e[i] = launch(NULL,
                      NONE "dgram,id=st0,local.type=inet,local.host=127.0.0.1,local.port=%u,"
                           "remote.type=inet,remote.host=127.0.0.1,remote.port=%u",
                      port[i], port[!i]);
        launch_expect_info(e[i], "st0: index=0,type=dgram,udp=127.0.0.1:%u/127.0.0.1:%u\r\n",
                           port[i], port[!i]);
    }
    launch_quit(e[1]);
    launch_quit(e[0]);
}

static void test_dgram_mcast(void)
{
    Emulator *e = launch(NULL, NONE "dgram,id=st0,remote.type=inet,remote.host=230.0.0.1,"
                                    "remote.port=1234");

    launch_expect_info(e, "st0: index=0,type=dgram,mcast=230.0.0.1:1234\r\n");
    launch_quit(e);
}

static void test_dgram_unix(void)
{
    g_autofree char *path0 = path_of("dgram_unix0"), *path1 = path_of("dgram_unix1");
    const char *path[] = {path0, path1};
    Emulator *e[2];

    for (unsigned i = 0; i < 2; i++) {
        e[i] = launch(NULL,
                      NONE "dgram,id=st0,local.type=unix,local.path=%s,remote.type=unix,"
                           "remote.path=%s",
                      path[i], path[!i]);
        launch_expect_info(e[i], "st0: index=0,type=dgram,udp=%s:%s\r\n", path[i], path[!i]);
    }
    g_unlink(path0); /* as clients do: the emulators must not mind */
    g_unlink(path1);
    launch_quit(e[1]);
    launch_quit(e[0]);
}

static void test_dgram_fd(void)
{
    int sv[2];
    Emulator *e[2];

    g_assert_cmpint(socketpair(PF_UNIX, SOCK_DGRAM, 0, sv), ==, 0);
    for (unsigned i = 0; i < 2; i++) {
        e[i] = launch((int[]){sv[i], -1}, NONE "dgram,id=st0,local.type=fd,local.str=%d", sv[i]);
        launch_expect_info(e[i], "st0: index=0,type=dgram,fd=%d unix\r\n", sv[i]);
    }
    launch_quit(e[1]);
    launch_quit(e[0]);
    close(sv[0]);
    close(sv[1]);
}

static void test_socket(void)
{
    unsigned port[2];

    free_ports(AF_INET, port, 2);
    Emulator *server = launch(NULL, NONE "socket,id=s0,listen=127.0.0.1:%u", port[0]);
    launch_expect_info(server, "s0: index=0,type=socket,\r\n");
    Emulator *client = launch(NULL,
                              NONE "socket,id=s0,connect=127.0.0.1:%u -netdev socket,id=s1,"
                                   "udp=127.0.0.1:%u,localaddr=127.0.0.1:%u -netdev socket,id=s2,"
                                   "mcast=230.0.0.1:1235",
                              port[0], port[1], port[1]);
    launch_expect_info(client,
                       "s0: index=0,type=socket,socket: connect to 127.0.0.1:%u\r\n"
                       "s1: index=0,type=socket,socket: udp=127.0.0.1:%u\r\n"
                       "s2: index=0,type=socket,socket: mcast=230.0.0.1:1235\r\n",
                       port[0], port[1]);
    launch_expect_info_cut(server, ':',
                           "s0: index=0,type=socket,socket: connection from 127.0.0.1");
    launch_quit(client);
    launch_expect_info(server, "s0: index=0,type=socket,\r\n");
    launch_quit(server);
}

static void refused(const char *netdev, const char *want)
{
    g_autofree char *message = launch_refused("-M none -netdev %s", netdev);

    if (!strstr(message, want)) {
        g_error("-netdev %s: '%s' does not say '%s'", netdev, message, want);
    }
}

/* One line that names the value and what would work. */
static void test_refused(void)
{
    refused("stream,id=s,server", "Expected '=' after parameter 'server'");
    refused("stream,id=s,addr.type=unix,addr.path=x,noserver", "Expected '='");
    refused("dgram,id=s,nolocal", "Expected '='");
    refused("stream,id=s,addr.type=unix,addr.path=/nowhere/x", "cannot connect to '/nowhere/x'");
    refused("stream,id=s,addr.type=fd,addr.str=77", "addr.str=77 is not an open file descriptor");
    refused("stream,id=s,addr.type=inet,addr.host=::1,addr.port=1,addr.flag=2", "addr.flag");
    refused("socket,id=s,fd=0", "fd=0 is not a socket");
    refused("socket,id=s,listen=1234", "listen=1234: HOST:PORT is expected");
    refused("l2tpv3,id=s,src=x", "'dst' is missing");
    refused("vde,id=s", "netdev type 'vde' is not supported: ");
    refused("netmap,id=s", "netdev type 'netmap' is not supported: ");
    refused("af-xdp,id=s", "netdev type 'af-xdp' is not supported: ");
    refused("vhost-vdpa,id=s", "netdev type 'vhost-vdpa' is not supported: ");
    refused("passt,id=s", "netdev type 'passt' is not supported: start passt and use stream");
    refused("user,id=s,smb=/tmp", "smb= is not supported: there is no SMB server; share files with "
                                  "tftp=, or with a server of your own through guestfwd=");
    refused("user,id=s,smbserver=1.2.3.4", "smbserver= is not supported: there is no SMB server");
    refused("user,id=s,nonsense=1", "Parameter 'nonsense' is unexpected");
    refused("type=stream,id=s,server", "Expected '=' after parameter 'server'");
    refused("user,id=s,noipv6,ipv4=off", "ipv4=off and ipv6=off leave nothing");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    tmpdir = g_dir_make_tmp("netdev-socket.XXXXXX", NULL);
    g_test_add_func("/netdev/stream/inet/ipv4", test_stream_ipv4);
    g_test_add_func("/netdev/stream/inet/ipv6", test_stream_ipv6);
    g_test_add_func("/netdev/stream/inet/reconnect", test_stream_inet_reconnect);
    g_test_add_func("/netdev/stream/unix", test_stream_unix);
    g_test_add_func("/netdev/stream/unix/reconnect", test_stream_unix_reconnect);
    g_test_add_func("/netdev/stream/unix/abstract", test_stream_unix_abstract);
    g_test_add_func("/netdev/stream/fd", test_stream_fd);
    g_test_add_func("/netdev/dgram/inet", test_dgram_inet);
    g_test_add_func("/netdev/dgram/mcast", test_dgram_mcast);
    g_test_add_func("/netdev/dgram/unix", test_dgram_unix);
    g_test_add_func("/netdev/dgram/fd", test_dgram_fd);
    g_test_add_func("/netdev/socket", test_socket);
    g_test_add_func("/netdev/refused", test_refused);
    int rc = g_test_run();
    g_rmdir(tmpdir);
    g_free(tmpdir);
    return rc;
}
