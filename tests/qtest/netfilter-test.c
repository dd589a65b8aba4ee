/*
 * Filters as clients of QEMU's use them: a mirror and redirectors between a socket netdev, whose
 * other end is ours, and character devices; added, deleted and switched while running; a dump that
 * tcpdump reads, if it is installed.
 *
 * There is no driver in the guest: filters work all the same.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/launch.h"

#define TIMEOUT_MS 20000
#define QUIET_MS   300

static char *tmpdir;

static void pair(int sv[2])
{
    g_assert_cmpint(socketpair(PF_UNIX, SOCK_STREAM, 0, sv), ==, 0);
}

static void send_text(int fd, const char *text)
{
    uint32_t size = strlen(text) + 1, be = htonl(size);

    g_assert_cmpint(write(fd, &be, sizeof(be)), ==, sizeof(be));
    g_assert_cmpint(write(fd, text, size), ==, size);
}

static void expect_bytes(int fd, void *data, size_t size)
{
    for (size_t got = 0; got < size;) {
        struct pollfd p = {fd, POLLIN, 0};
        g_assert_cmpint(poll(&p, 1, TIMEOUT_MS), ==, 1);
        ssize_t n = read(fd, (char *)data + got, size - got);
        g_assert_cmpint(n, >, 0);
        got += n;
    }
}

static void expect_text(int fd, const char *text)
{
    uint32_t be;
    char data[64];

    expect_bytes(fd, &be, sizeof(be));
    g_assert_cmpuint(ntohl(be), ==, strlen(text) + 1);
    expect_bytes(fd, data, ntohl(be));
    g_assert_cmpstr(data, ==, text);
}

static void expect_nothing(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};

    g_assert_cmpint(poll(&p, 1, QUIET_MS), ==, 0);
}

static void expect_end(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    char byte;

    g_assert_cmpint(poll(&p, 1, TIMEOUT_MS), ==, 1);
    g_assert_cmpint(read(fd, &byte, 1), ==, 0);
}

/* The path of a file that is there: servers replace it. */
static char *used_path(const char *name)
{
    char *path = g_build_filename(tmpdir, name, NULL);

    g_assert_true(g_file_set_contents(path, "", -1, NULL));
    return path;
}

static int connect_to(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    g_strlcpy(un.sun_path, path, sizeof(un.sun_path));
    g_assert_cmpint(connect(fd, (struct sockaddr *)&un, sizeof(un)), ==, 0);
    return fd;
}

/* Once this is answered, the connection before it has been accepted. */
static void query(Emulator *e)
{
    launch_do(e, "query-status", NULL);
}

static void test_mirror(void)
{
    int net[2], out[2];

    pair(net);
    pair(out);
    Emulator *e = launch((int[]){net[1], out[1], -1},
                         "-nic socket,id=qtest-bn0,fd=%d -chardev socket,id=mirror0,fd=%d "
                         "-object filter-mirror,id=qtest-f0,netdev=qtest-bn0,queue=tx,"
                         "outdev=mirror0",
                         net[1], out[1]);
    query(e);
    send_text(net[0], "Hello! filter-mirror~");
    close(net[0]); /* data, then its end */
    expect_text(out[0], "Hello! filter-mirror~");
    launch_quit(e);
    close(net[1]);
    close(out[0]);
    close(out[1]);
}

/* A netdev's socket, an emulator with redirectors in front of it, and chardev servers. */
typedef struct Redirectors {
    int net[2];
    char *path[2]; /* of chardevs redirector0 and redirector1 */
    Emulator *e;
} Redirectors;

/* Three filters of @queue: @ends are their indev= or outdev=.  redirector2 is a client of
 * redirector0. */
static void redirectors_open(Redirectors *r, const char *queue, const char *const ends[3])
{
    g_autoptr(GString) filters = g_string_new(NULL);

    for (unsigned i = 0; i < 3; i++) {
        g_string_append_printf(
            filters, " -object filter-redirector,id=qtest-f%u,netdev=qtest-bn0,queue=%s,%s", i,
            queue, ends[i]);
    }
    r->path[0] = used_path("redirector0");
    r->path[1] = used_path("redirector1");
    pair(r->net);
    r->e = launch((int[]){r->net[1], -1},
                  "-nic socket,id=qtest-bn0,fd=%d "
                  "-chardev socket,id=redirector0,path=%s,server=on,wait=off "
                  "-chardev socket,id=redirector1,path=%s,server=on,wait=off "
                  "-chardev socket,id=redirector2,path=%s%s",
                  r->net[1], r->path[0], r->path[1], r->path[0], filters->str);
}

/* One filter of received frames at redirector0, with @more properties. */
static void redirector_open(Redirectors *r, const char *more)
{
    *r = (Redirectors){.path = {used_path("redirector0")}};
    pair(r->net);
    r->e = launch((int[]){r->net[1], -1},
                  "-nic socket,id=qtest-bn0,fd=%d "
                  "-chardev socket,id=redirector0,path=%s,server=on,wait=off "
                  "-object filter-redirector,id=qtest-f0,netdev=qtest-bn0,queue=rx,"
                  "indev=redirector0%s",
                  r->net[1], r->path[0], more);
}

static void redirectors_close(Redirectors *r)
{
    for (unsigned i = 0; i < 2; i++) {
        close(r->net[i]);
        if (r->path[i]) {
            g_unlink(r->path[i]);
            g_free(r->path[i]);
        }
    }
    launch_quit(r->e);
}

/* chardev-change under redirectors' feet: they go on with the new device. */
static void test_chardev_change(void)
{
    int net[2], out[2], in[2];
    g_autofree char *path = used_path("change");

    pair(net);
    pair(out);
    pair(in);
    Emulator *e = launch((int[]){net[1], out[1], in[1], -1},
                         "-nic socket,id=n0,fd=%d -chardev socket,id=out,fd=%d "
                         "-chardev socket,id=in,fd=%d "
                         "-object filter-redirector,id=f0,netdev=n0,queue=tx,outdev=out "
                         "-object filter-redirector,id=f1,netdev=n0,queue=rx,indev=in",
                         net[1], out[1], in[1]);
    close(out[1]);
    close(in[1]);
    query(e);
    send_text(net[0], "before");
    expect_text(out[0], "before");
    send_text(in[0], "in before");
    expect_text(net[0], "in before");

    g_autofree char *args =
        g_strdup_printf("{'id': 'out', 'backend': {'type': 'socket', 'data': {'addr': {'type': "
                        "'unix', 'data': {'path': '%s'}}}}}",
                        path);
    launch_do(e, "chardev-change", args);
    expect_end(out[0]);
    int fd = connect_to(path);
    query(e);
    send_text(net[0], "after");
    expect_text(fd, "after");

    /* Half a frame of the old one is not in front of the new one's. */
    uint32_t half = htonl(1000);
    g_assert_cmpint(write(in[0], &half, sizeof(half)), ==, sizeof(half));
    query(e);
    g_autofree char *in_path = used_path("change-in");
    g_autofree char *in_args =
        g_strdup_printf("{'id': 'in', 'backend': {'type': 'socket', 'data': {'addr': {'type': "
                        "'unix', 'data': {'path': '%s'}}}}}",
                        in_path);
    launch_do(e, "chardev-change", in_args);
    int in_fd = connect_to(in_path);
    query(e);
    send_text(in_fd, "in after");
    expect_text(net[0], "in after");
    launch_quit(e);
    close(fd);
    close(in_fd);
    close(net[0]);
    close(net[1]);
    close(out[0]);
    close(in[0]);
}

/* netdev → f0 → chardev → f1 → f2 → us */
static void test_redirector_tx(void)
{
    Redirectors r;

    redirectors_open(
        &r, "tx",
        (const char *[]){"outdev=redirector0", "indev=redirector2", "outdev=redirector1"});
    int fd = connect_to(r.path[1]);
    query(r.e);
    send_text(r.net[0], "Hello!!");
    shutdown(r.net[0], SHUT_WR); /* data, then its end */
    expect_text(fd, "Hello!!");
    close(fd);
    redirectors_close(&r);
}

/* us → f2 → f1 → chardev → f0 → netdev */
static void test_redirector_rx(void)
{
    Redirectors r;

    redirectors_open(
        &r, "rx", (const char *[]){"indev=redirector0", "outdev=redirector2", "indev=redirector1"});
    int fd = connect_to(r.path[1]);
    query(r.e);
    send_text(fd, "Hello!!");
    expect_text(r.net[0], "Hello!!");
    close(fd);
    redirectors_close(&r);
}

static void redirector_status(const char *first)
{
    Redirectors r;

    redirector_open(&r, first);
    int fd = connect_to(r.path[0]);
    query(r.e);
    if (!*first) {
        launch_do(r.e, "qom-set",
                  "{'path': '/objects/qtest-f0', 'property': 'status', 'value': 'off'}");
    }
    send_text(fd, "Hello!!");
    expect_nothing(r.net[0]);
    launch_do(r.e, "qom-set", "{'path': 'qtest-f0', 'property': 'status', 'value': 'on'}");
    send_text(fd, "Hello!!");
    expect_text(r.net[0], "Hello!!");
    expect_text(r.net[0], "Hello!!"); /* the first has waited */
    close(fd);
    redirectors_close(&r);
}

static void test_redirector_status(void)
{
    redirector_status("");
}

static void test_redirector_created_off(void)
{
    redirector_status(",status=off");
}

/* One client of indev after the other. */
static void test_redirector_clients(void)
{
    Redirectors r;

    redirector_open(&r, "");
    for (unsigned i = 0; i < 4; i++) {
        g_autofree char *text = g_strdup_printf("Hello %u!!", i);
        int fd = connect_to(r.path[0]);
        query(r.e);
        send_text(fd, text);
        expect_text(r.net[0], text);
        close(fd);
        query(r.e);
    }
    redirectors_close(&r);
}

/* --- adding and deleting --- */

static void add_buffer(Emulator *e, const char *id)
{
    launch_do(e, "object-add",
              "{'qom-type': 'filter-buffer', 'id': '%s', 'netdev': 'qtest-bn0', 'queue': 'rx', "
              "'interval': 1000}",
              id);
}

static void replace_netdev(Emulator *e)
{
    launch_do(e, "netdev_del", "{'id': 'qtest-bn0'}");
    launch_do(e, "netdev_add", "{'type': 'user', 'id': 'qtest-bn0'}");
}

static void test_add_delete(void)
{
    Emulator *e = launch(NULL, "-nic user,id=qtest-bn0");

    add_buffer(e, "qtest-f0");
    launch_do(e, "object-del", "{'id': 'qtest-f0'}");
    add_buffer(e, "qtest-f0");
    g_autofree char *info = launch_hmp(e, "info network");
    g_assert_nonnull(strstr(info, "\r\nfilters:\r\n  - qtest-f0: type=filter-buffer,"
                                  "interval=1000,position=tail,status=on,insert=behind,"
                                  "netdev=qtest-bn0,queue=rx\r\n"));
    replace_netdev(e); /* which takes the filter along */
    add_buffer(e, "qtest-f0");
    add_buffer(e, "qtest-f1");
    launch_do(e, "object-del", "{'id': 'qtest-f0'}");
    launch_do(e, "object-del", "{'id': 'qtest-f1'}");
    add_buffer(e, "qtest-f0");
    add_buffer(e, "qtest-f1");
    replace_netdev(e);
    g_autofree char *gone = launch_fails(e, "object-del", "{'id': 'qtest-f1'}");
    g_assert_cmpstr(gone, ==, "object 'qtest-f1' not found");
    g_autofree char *nowhere = launch_fails(
        e, "object-add", "{'qom-type': 'filter-dump', 'id': 'f', 'netdev': 'zz', 'file': 'x'}");
    g_assert_cmpstr(nowhere, ==, "Parameter 'netdev' expects a network backend id, not 'zz'");
    add_buffer(e, "qtest-f9");
    launch_quit(e); /* with a filter in place */
}

static void test_dump(void)
{
    int net[2];
    g_autofree char *path = g_build_filename(tmpdir, "dump.pcap", NULL);
    static const uint8_t arp[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0,  1, 8, 6,
                                    0,    1,    8,    0,    6,    4,    0, 1, 2, 0, 0,  0, 0, 1,
                                    10,   0,    0,    1,    0,    0,    0, 0, 0, 0, 10, 0, 0, 2};
    uint32_t be = htonl(sizeof(arp));

    pair(net);
    Emulator *e = launch((int[]){net[1], -1},
                         "-nic socket,id=n0,fd=%d -object filter-dump,id=f0,netdev=n0,file=%s,"
                         "maxlen=50",
                         net[1], path);
    g_assert_cmpint(write(net[0], &be, 4), ==, 4);
    g_assert_cmpint(write(net[0], arp, sizeof(arp)), ==, sizeof(arp));
    struct stat st = {0};
    for (unsigned i = 0; i < 1000 && st.st_size < 24 + 16 + 50; i++) {
        query(e);
        g_usleep(1000);
        g_assert_cmpint(g_stat(path, &st), ==, 0);
    }
    g_assert_cmpint(st.st_size, ==, 24 + 16 + 50);
    g_autofree char *tcpdump = g_find_program_in_path("tcpdump");
    if (tcpdump) {
        char *argv[] = {tcpdump, (char *)"-nr", path, NULL};
        g_autofree char *out = NULL;
        int status;
        g_assert_true(g_spawn_sync(NULL, argv, NULL, G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, &out,
                                   NULL, &status, NULL));
        g_assert_cmpint(status, ==, 0);
        g_assert_nonnull(strstr(out, "ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 46"));
    } else {
        g_test_message("tcpdump is not installed: the file's bytes were checked only");
    }
    launch_quit(e);
    close(net[0]);
    close(net[1]);
    g_unlink(path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    tmpdir = g_dir_make_tmp("netfilter-test.XXXXXX", NULL);
    g_test_add_func("/netfilter/mirror", test_mirror);
    g_test_add_func("/netfilter/redirector-tx", test_redirector_tx);
    g_test_add_func("/netfilter/redirector-rx", test_redirector_rx);
    g_test_add_func("/netfilter/redirector-status", test_redirector_status);
    g_test_add_func("/netfilter/redirector-created-off", test_redirector_created_off);
    g_test_add_func("/netfilter/redirector-clients", test_redirector_clients);
    g_test_add_func("/netfilter/chardev-change", test_chardev_change);
    g_test_add_func("/netfilter/add-delete", test_add_delete);
    g_test_add_func("/netfilter/dump", test_dump);
    int rc = g_test_run();
    g_rmdir(tmpdir);
    g_free(tmpdir);
    return rc;
}
