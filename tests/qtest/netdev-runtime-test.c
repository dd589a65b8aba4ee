/*
 * Back ends while the emulator runs: added and deleted under a device, fds by name, links, -nic,
 * hostfwd_add, announce-self, counters.
 */
#include <arpa/inet.h>
#include <glib/gstdio.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/launch.h"

#define NIC "-device virtio-net-pci,id=nic0,mac=52:54:00:12:34:56,"

static void send_fd(Emulator *e, const char *name, int fd)
{
    GError *err = NULL;
    g_autofree char *text =
        g_strdup_printf("{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"%s\"}}", name);

    g_assert_true(qmp_client_send_fd(e->qmp, text, strlen(text), fd, &err));
    json_object *answer = qmp_client_receive(e->qmp, 20000, &err);
    g_assert_no_error(err);
    g_assert_nonnull(launch_member(answer, "return"));
    json_object_put(answer);
}

static char *info(Emulator *e)
{
    return launch_hmp(e, "info network");
}

/* Each kind that can be made anywhere, ten times: nothing is left behind. */
static void test_add_delete(void)
{
    static const char *const adds[] = {
        "{'type': 'user', 'id': 'n'}",
        "{'type': 'user', 'id': 'n', 'restrict': true, 'hostfwd': [{'str': "
        "'tcp:127.0.0.1:0-:22'}]}",
        "{'type': 'hubport', 'id': 'n', 'hubid': 4}",
        "{'type': 'stream', 'id': 'n', 'server': true, 'addr': {'type': 'unix', "
        "'path': 'swnic-runtime', 'abstract': true}}",
        "{'type': 'stream', 'id': 'n', 'reconnect-ms': 1, 'addr': {'type': 'unix', "
        "'path': '/nowhere/x'}}",
        "{'type': 'stream', 'id': 'n', 'reconnect-ms': 1, 'addr': {'type': 'inet', "
        "'host': '127.0.0.1', 'port': '1'}}",
        "{'type': 'dgram', 'id': 'n', 'local': {'type': 'inet', 'host': '127.0.0.1', "
        "'port': '0'}, 'remote': {'type': 'inet', 'host': '127.0.0.1', 'port': '9'}}",
        "{'type': 'dgram', 'id': 'n', 'remote': {'type': 'inet', 'host': '230.0.0.1', "
        "'port': '1234'}}",
        "{'type': 'socket', 'id': 'n', 'listen': '127.0.0.1:0'}",
        "{'type': 'l2tpv3', 'id': 'n', 'udp': true, 'src': '127.0.0.1', 'dst': '127.0.0.1', "
        "'dstport': '9', 'txsession': 1}",
    };
    Emulator *e = launch(NULL, "-nodefaults");
    g_autofree char *fds = g_strdup_printf("/proc/%d/fd", (int)e->pid);
    unsigned before = 0;

    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(adds); i++) {
            launch_do(e, "netdev_add", "%s", adds[i]);
            g_autofree char *again = launch_fails(e, "netdev_add", "%s", adds[i]);
            g_assert_cmpstr(again, ==, "Duplicate ID 'n' for netdev");
            launch_do(e, "device_add",
                      "{'driver': 'virtio-net-pci', 'id': 'd', 'netdev': 'n', "
                      "'addr': '06'}");
            launch_do(e, "netdev_del", "{'id': 'n'}");
            g_autofree char *text = info(e);
            g_assert_null(strstr(text, "n: "));
            launch_do(e, "device_del", "{'id': 'd'}");
            launch_do(e, "system_reset", NULL);
            json_object_put(launch_wait_event(e, "DEVICE_DELETED"));
            qmp_client_drop_events(e->qmp);
        }
        unsigned count = 0;
        GDir *d = g_dir_open(fds, 0, NULL);
        while (g_dir_read_name(d)) {
            count++;
        }
        g_dir_close(d);
        if (round == 0) {
            before = count;
        }
        g_assert_cmpuint(count, ==, before);
    }
    g_autofree char *text = info(e);
    g_assert_cmpstr(text, ==, "");
    launch_quit(e);
}

/* JSON types only: the command line's strings are not QMP's. */
static void test_wrong_values(void)
{
    static const struct {
        const char *add, *message;
    } rows[] = {
        {"{'type': 'stream', 'id': 'n', 'server': 'on', 'addr': {'type': 'fd', 'str': '1'}}",
         "Invalid parameter type for 'server', expected: boolean"},
        {"{'type': 'vde', 'id': 'n'}", "netdev type 'vde' is not supported: "},
        {"{'type': 'pigeon', 'id': 'n'}", "Parameter 'type' does not accept value 'pigeon'"},
        {"{'id': 'n'}", "Parameter 'type' is missing"},
        {"{'type': 'dgram', 'id': '1n'}", "Parameter 'id' expects an identifier"},
        {"{'type': 'stream', 'id': 'n', 'addr': {'type': 'fd', 'str': 'nobody'}}",
         "File descriptor named 'nobody' has not been found"},
    };
    Emulator *e = launch(NULL, "-nodefaults");

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *message = launch_fails(e, "netdev_add", "%s", rows[i].add);
        if (!g_str_has_prefix(message, rows[i].message)) {
            g_error("%s: '%s' is not '%s…'", rows[i].add, message, rows[i].message);
        }
    }
    launch_quit(e);
}

static void test_named_fds(void)
{
    int stream[2], dgram[2];
    Emulator *e = launch(NULL, "-nodefaults");

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, stream), ==, 0);
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram), ==, 0);
    send_fd(e, "a", stream[1]);
    send_fd(e, "b", dgram[1]);
    launch_do(e, "netdev_add",
              "{'type': 'stream', 'id': 's', 'addr': {'type': 'fd', "
              "'str': 'a'}}");
    launch_do(e, "netdev_add",
              "{'type': 'dgram', 'id': 'd', 'local': {'type': 'fd', "
              "'str': 'b'}}");
    close(stream[1]);
    close(dgram[1]);
    launch_expect_info_cut(e, '=', "s: index=0,type=stream,unix:\r\nd: index=0,type=dgram,fd");
    g_autofree char *again = launch_fails(
        e, "netdev_add", "{'type': 'stream', 'id': 't', 'addr': {'type': 'fd', 'str': 'a'}}");
    g_assert_nonnull(strstr(again, "'a'"));
    close(stream[0]);
    launch_expect_info_cut(e, '=',
                           "s: index=0,type=stream,disconnected\r\nd: index=0,type=dgram,fd");
    close(dgram[0]);
    launch_quit(e);
}

static void test_nic(void)
{
    Emulator *e = launch(NULL, "-nic none -net none -nic user,id=n1,ipv6=off "
                               "-nic hubport,hubid=3,mac=52:54:00:aa:bb:cc,model=virtio-net-pci "
                               "-nic stream,id=n3,server=on,addr.type=inet,addr.host=127.0.0.1,"
                               "addr.port=0");
    launch_expect_info(
        e, "hub 3\r\n"
           " \\ #net0: virtio-net-pci.1: index=0,type=nic,model=virtio-net-pci,"
           "macaddr=52:54:00:aa:bb:cc\r\n"
           "virtio-net-pci.0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:56\r\n"
           " \\ n1: index=0,type=user,net=10.0.2.0,restrict=off\r\n"
           "virtio-net-pci.2: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:57\r\n"
           " \\ n3: index=0,type=stream,listening\r\n");
    launch_quit(e);
}

/* --- frames from and to the emulator, without a driver --- */

static void expect_rarp(int fd, const char *mac)
{
    uint8_t frame[64], want[6];
    struct pollfd p = {fd, POLLIN, 0};

    g_assert_cmpint(poll(&p, 1, 20000), ==, 1);
    g_assert_cmpint(read(fd, frame, sizeof(frame)), ==, 4 + 60);
    for (unsigned i = 0; i < 6; i++) {
        want[i] = (uint8_t)strtoul(mac + 3 * i, NULL, 16);
    }
    g_assert_cmpint(memcmp(frame, "\0\0\0\x3c\xff\xff\xff\xff\xff\xff", 10), ==, 0);
    g_assert_cmpint(memcmp(frame + 10, want, 6), ==, 0);
    g_assert_cmphex(frame[16] << 8 | frame[17], ==, 0x8035);
    g_assert_cmpint(memcmp(frame + 26, want, 6), ==, 0);
}

static bool is_quiet(int fd, int ms)
{
    struct pollfd p = {fd, POLLIN, 0};

    return poll(&p, 1, ms) == 0;
}

static void test_announce(void)
{
    int sv[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), ==, 0);
    Emulator *e = launch((int[]){sv[1], -1}, "-netdev socket,id=n0,fd=%d " NIC "netdev=n0", sv[1]);
    launch_do(e, "announce-self",
              "{'initial': 20, 'max': 100, 'rounds': 300, 'step': 10, "
              "'id': 'bob'}");
    for (unsigned i = 0; i < 3; i++) {
        expect_rarp(sv[0], "52:54:00:12:34:56");
    }
    launch_do(e, "announce-self",
              "{'initial': 20, 'max': 100, 'rounds': 0, 'step': 10, "
              "'id': 'bob'}");
    while (!is_quiet(sv[0], 0)) {
        expect_rarp(sv[0], "52:54:00:12:34:56");
    }
    g_assert_true(is_quiet(sv[0], 300));
    g_autofree char *text = launch_hmp(e, "announce_self nobody");
    g_assert_cmpstr(text, ==, "");
    g_assert_true(is_quiet(sv[0], 100));
    launch_quit(e);
    close(sv[0]);
    close(sv[1]);
}

static int64_t drops(Emulator *e, const char *name, const char *reason)
{
    json_object *list = launch_qmp(e, "x-query-netclients", NULL);
    int64_t value = -1;

    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *row = json_object_array_get_idx(list, i);
        if (!strcmp(launch_string(row, "name"), name)) {
            value = json_object_get_int64(launch_member(launch_member(row, "drops"), reason));
        }
    }
    json_object_put(list);
    return value;
}

static void test_link(void)
{
    int sv[2];
    static const uint8_t frame[64] = {0, 0, 0, 60};

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), ==, 0);
    Emulator *e = launch((int[]){sv[1], -1}, "-netdev socket,id=n0,fd=%d " NIC "netdev=n0", sv[1]);
    launch_do(e, "set_link", "{'name': 'n0', 'up': false}");
    g_assert_cmpint(write(sv[0], frame, sizeof(frame)), ==, sizeof(frame));
    while (drops(e, "n0", "link-down") < 1) {
        g_usleep(1000);
    }
    launch_do(e, "announce-self", "{'initial': 1, 'max': 1, 'rounds': 1, 'step': 0}");
    g_assert_cmpint(drops(e, "nic0", "link-down"), ==, 1);
    launch_do(e, "set_link", "{'name': 'n0', 'up': true}");
    launch_do(e, "announce-self", "{'initial': 1, 'max': 1, 'rounds': 1, 'step': 0}");
    expect_rarp(sv[0], "52:54:00:12:34:56");
    launch_do(e, "set_link", "{'name': 'nic0', 'up': false}");
    launch_do(e, "netdev_del", "{'id': 'n0'}");
    g_autofree char *gone = launch_fails(e, "set_link", "{'name': 'n0', 'up': true}");
    g_assert_cmpstr(gone, ==, "Device 'n0' not found");
    launch_quit(e);
    close(sv[0]);
    close(sv[1]);
}

static unsigned free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t size = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, size), ==, 0);
    getsockname(fd, (struct sockaddr *)&addr, &size);
    close(fd);
    return ntohs(addr.sin_port);
}

static void expect_hmp(Emulator *e, const char *line, const char *want)
{
    g_autofree char *text = launch_hmp(e, line);

    g_assert_cmpstr(text, ==, want);
}

static bool can_connect(unsigned port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;

    close(fd);
    return ok;
}

static void test_hostfwd(void)
{
    Emulator *e = launch(NULL, "-nodefaults");
    unsigned port = free_port();
    g_autofree char *add = g_strdup_printf("hostfwd_add tcp:127.0.0.1:%u-:22", port);
    g_autofree char *add_u1 = g_strdup_printf("hostfwd_add u1 tcp:127.0.0.1:%u-:22", port);
    g_autofree char *remove = g_strdup_printf("hostfwd_remove u0 tcp:127.0.0.1:%u", port);
    g_autofree char *removed =
        g_strdup_printf("host forwarding rule for tcp:127.0.0.1:%u removed\r\n", port);
    g_autofree char *not_found =
        g_strdup_printf("host forwarding rule for tcp:127.0.0.1:%u not found\r\n", port);

    expect_hmp(e, add, "Error: user mode network stack not in use\r\n");
    expect_hmp(e, "info usernet", "");
    launch_do(e, "netdev_add", "{'type': 'user', 'id': 'u0'}");
    expect_hmp(e, add_u1, "Error: unrecognized netdev id 'u1'\r\n");
    g_assert_false(can_connect(port));
    expect_hmp(e, add, "");
    g_assert_true(can_connect(port));
    g_autofree char *usernet = launch_hmp(e, "info usernet");
    g_assert_true(g_str_has_prefix(usernet, "Hub -1 (u0):\r\n  Protocol[State]"));
    g_assert_nonnull(strstr(usernet, "TCP[HOST_FORWARD]"));
    g_assert_true(g_str_has_suffix(usernet, "\r\n"));
    expect_hmp(e, remove, removed);
    g_assert_false(can_connect(port));
    expect_hmp(e, remove, not_found);
    expect_hmp(e, "hostfwd_remove tcp", "Error: 'tcp' is not [tcp|udp]:[HOSTADDR]:HOSTPORT\r\n");
    g_autofree char *bad = launch_hmp(e, "hostfwd_add tcp::1-:");
    g_assert_true(g_str_has_prefix(bad, "Error: Invalid host forwarding rule 'tcp::1-:'"));
    launch_quit(e);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/netdev-runtime/add-delete", test_add_delete);
    g_test_add_func("/netdev-runtime/wrong-values", test_wrong_values);
    g_test_add_func("/netdev-runtime/named-fds", test_named_fds);
    g_test_add_func("/netdev-runtime/nic", test_nic);
    g_test_add_func("/netdev-runtime/announce", test_announce);
    g_test_add_func("/netdev-runtime/link", test_link);
    g_test_add_func("/netdev-runtime/hostfwd", test_hostfwd);
    return g_test_run();
}
