/* Character devices: sockets both ways, files, ring buffers, flow control, fd passing. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "chardev/chardev.h"
#include "util/error.h"
#include "util/event-loop.h"

static char *dir;

typedef struct Front {
    GString *data;
    int opened, closed, drained;
    size_t room; /* 0: any */
    bool full;
} Front;

static size_t front_can_read(void *opaque)
{
    Front *f = opaque;

    return f->full ? 0 : f->room ? f->room : 4096;
}

static void front_read(void *opaque, const char *data, size_t size)
{
    Front *f = opaque;

    g_string_append_len(f->data, data, size);
    if (f->room) {
        f->full = true;
    }
}

static void front_event(void *opaque, ChardevEvent event)
{
    Front *f = opaque;

    ++*(event == CHARDEV_OPENED ? &f->opened : &f->closed);
}

static void front_drained(void *opaque)
{
    ((Front *)opaque)->drained++;
}

static const ChardevHandlers handlers = {front_can_read, front_read, front_event, front_drained};

static void run(void)
{
    for (int i = 0; i < 20; i++) {
        event_loop_run_once(event_loop_main(), false);
    }
}

static Chardev *make(const char *text)
{
    GError *err = NULL;
    json_object *options = chardev_parse_options(text, NULL, &err);

    g_assert_no_error(err);
    Chardev *chr = chardev_new(options, &err);
    g_assert_no_error(err);
    json_object_put(options);
    return chr;
}

static void expect_error(const char *text, const char *message)
{
    GError *err = NULL;
    json_object *options = chardev_parse_options(text, NULL, NULL);

    g_assert_null(chardev_new(options, &err));
    g_assert_nonnull(err);
    if (!strstr(err->message, message)) {
        g_error("'%s' is not in '%s'", message, err->message);
    }
    g_clear_error(&err);
    json_object_put(options);
}

static int unix_client(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path));
    g_assert_cmpint(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    return fd;
}

static void put(int fd, const char *text)
{
    g_assert_cmpint(write(fd, text, strlen(text)), ==, strlen(text));
}

static void test_unix_server(void)
{
    g_autofree char *path = g_build_filename(dir, "server", NULL);
    g_autofree char *text = g_strdup_printf("socket,path=%s,server,nowait,id=s", path);
    Front f = {.data = g_string_new(NULL)};
    char buf[16];

    Chardev *chr = make(text);
    g_assert_true(chardev_attach(chr, &handlers, &f, NULL));
    g_assert_false(chardev_attach(chr, &handlers, &f, NULL));
    g_assert_true(chardev_in_use(chr));
    g_assert_false(chardev_is_open(chr));
    g_assert_true(chardev_wait_connected(chr, NULL)); /* nowait: returns */

    int a = unix_client(path), b = unix_client(path);
    put(a, "one");
    put(b, "two");
    run();
    g_assert_cmpint(f.opened, ==, 1);
    g_assert_cmpstr(f.data->str, ==, "one");
    g_assert_true(chardev_write(chr, "hello", 5, 100));
    g_assert_cmpint(read(a, buf, sizeof(buf)), ==, 5);
    /* Data, then the end: both arrive; then the next client has its turn. */
    put(a, "-last");
    close(a);
    run();
    g_assert_cmpstr(f.data->str, ==, "one-lasttwo");
    g_assert_cmpint(f.closed, ==, 1);
    g_assert_cmpint(f.opened, ==, 2);
    chardev_disconnect(chr);
    g_assert_cmpint(f.closed, ==, 2);
    g_assert_cmpint(read(b, buf, sizeof(buf)), ==, 0);
    close(b);

    g_assert_false(chardev_remove("s", NULL));
    chardev_detach(chr);
    g_assert_true(chardev_remove("s", NULL));
    g_assert_null(chardev_find("s"));
    g_assert_cmpint(access(path, F_OK), !=, 0);
    g_string_free(f.data, TRUE);
}

static void test_unix_replaces_file(void)
{
    g_autofree char *path = g_build_filename(dir, "stale", NULL);
    g_autofree char *text = g_strdup_printf("socket,path=%s,server=on,wait=off,id=s", path);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    close(fd);
    make(text);
    close(unix_client(path));
    g_assert_true(chardev_remove("s", NULL));

    /* Clients make the name with mkstemp() and pass it on. */
    g_assert_true(g_file_set_contents(path, "", -1, NULL));
    make(text);
    close(unix_client(path));
    g_assert_true(chardev_remove("s", NULL));

    /* Anything else at that place stays. */
    g_assert_cmpint(g_mkdir(path, 0700), ==, 0);
    expect_error(text, "cannot listen on UNIX socket");
    g_assert_cmpint(g_rmdir(path), ==, 0);
}

static void test_flow_control(void)
{
    Front f = {.data = g_string_new(NULL), .room = 2};
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), ==, 0);
    g_autofree char *text = g_strdup_printf("socket,fd=%d,id=s", fds[0]);
    Chardev *chr = make(text);
    g_assert_true(chardev_attach(chr, &handlers, &f, NULL));
    g_assert_cmpint(f.opened, ==, 1);
    put(fds[1], "abcd");
    run();
    g_assert_cmpstr(f.data->str, ==, "ab");
    f.full = false;
    chardev_accept_input(chr);
    run();
    g_assert_cmpstr(f.data->str, ==, "abcd");
    f.full = false;
    chardev_accept_input(chr);

    /* Output beyond what the kernel takes is queued, up to the limit. */
    g_autofree char *block = g_malloc0(65536);
    int accepted = 0;
    while (chardev_write(chr, block, 65536, 1 << 20)) {
        accepted++;
    }
    g_assert_cmpint(chardev_queued(chr), <=, 1 << 20);
    g_assert_cmpint(accepted, >=, 16);
    size_t got = 0;
    while (got < (size_t)accepted * 65536) {
        ssize_t n = read(fds[1], block, 65536);
        g_assert_cmpint(n, >, 0);
        got += n;
        run();
    }
    g_assert_cmpint(chardev_queued(chr), ==, 0);
    g_assert_cmpint(f.drained, >, 0);

    close(fds[1]);
    g_assert_true(chardev_write(chr, "x", 1, 10));
    run();
    g_assert_cmpint(f.closed, ==, 1);
    chardev_detach(chr);
    g_assert_true(chardev_remove("s", NULL));
    g_string_free(f.data, TRUE);
}

static void test_fd_passing(void)
{
    Front f = {.data = g_string_new(NULL)};
    int fds[2], null = open("/dev/null", O_RDONLY);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {.iov_base = (char *)"x", .iov_len = 1};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), ==, 0);
    g_autofree char *text = g_strdup_printf("socket,fd=%d,id=s", fds[0]);
    Chardev *chr = make(text);
    g_assert_true(chardev_attach(chr, &handlers, &f, NULL));
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &null, sizeof(int));
    g_assert_cmpint(sendmsg(fds[1], &msg, 0), ==, 1);
    g_assert_cmpint(sendmsg(fds[1], &msg, 0), ==, 1);
    run();
    int fd = chardev_take_fd(chr);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(chardev_take_fd(chr), ==, -1);
    g_assert_cmpint(close(fd), ==, 0);
    g_assert_cmpint(sendmsg(fds[1], &msg, 0), ==, 1); /* never taken: closed by us */
    run();
    close(null);
    close(fds[1]);
    chardev_detach(chr);
    g_assert_true(chardev_remove("s", NULL));
    g_string_free(f.data, TRUE);
}

static void test_tcp(void)
{
    Front server = {.data = g_string_new(NULL)}, client = {.data = g_string_new(NULL)};
    Chardev *s = make("socket,host=127.0.0.1,port=0,server=on,wait=off,id=s");
    g_autofree char *filename = chardev_filename(s);

    g_assert_true(g_str_has_prefix(filename, "disconnected:tcp:127.0.0.1:"));
    g_assert_true(g_str_has_suffix(filename, ",server=on"));
    g_auto(GStrv) parts = g_strsplit_set(filename, ":,", -1);
    g_autofree char *spec = g_strdup_printf("tcp:127.0.0.1:%s", parts[3]);
    Chardev *c = chardev_new_compat("c", spec, NULL);
    g_assert_nonnull(c);
    g_assert_true(chardev_attach(s, &handlers, &server, NULL));
    g_assert_true(chardev_attach(c, &handlers, &client, NULL));
    chardev_write(c, "ping", 4, CHARDEV_NO_LIMIT);
    for (int i = 0; i < 1000 && !server.data->len; i++) {
        event_loop_run_once(event_loop_main(), true);
    }
    g_assert_cmpstr(server.data->str, ==, "ping");
    chardev_cleanup_all();
    g_string_free(server.data, TRUE);
    g_string_free(client.data, TRUE);
}

static void test_reconnect(void)
{
    g_autofree char *path = g_build_filename(dir, "late", NULL);
    g_autofree char *client = g_strdup_printf("socket,path=%s,reconnect-ms=5,id=c", path);
    g_autofree char *server = g_strdup_printf("socket,path=%s,server=on,wait=off,id=s", path);
    Front fc = {.data = g_string_new(NULL)}, fs = {.data = g_string_new(NULL)};

    Chardev *c = make(client);
    g_assert_true(chardev_attach(c, &handlers, &fc, NULL));
    run();
    g_assert_cmpint(fc.opened, ==, 0);
    Chardev *s = make(server);
    g_assert_true(chardev_attach(s, &handlers, &fs, NULL));
    while (!fc.opened || !fs.opened) {
        event_loop_run_once(event_loop_main(), true);
    }
    chardev_disconnect(s);
    while (fc.opened < 2) {
        event_loop_run_once(event_loop_main(), true);
    }
    g_assert_cmpint(fc.closed, ==, 1);
    chardev_cleanup_all();
    g_string_free(fc.data, TRUE);
    g_string_free(fs.data, TRUE);
}

static void test_file_and_ringbuf(void)
{
    g_autofree char *path = g_build_filename(dir, "a,b", NULL);
    g_autofree char *spec = g_strdup_printf("file:%s/a,,b", dir);
    g_autofree char *content = NULL;

    Chardev *chr = chardev_new_compat("f", spec, NULL);
    g_assert_nonnull(chr);
    g_assert_true(chardev_write(chr, "text", 4, 100));
    g_assert_true(chardev_remove("f", NULL));
    g_assert_true(g_file_get_contents(path, &content, NULL, NULL));
    g_assert_cmpstr(content, ==, "text");
    g_unlink(path);

    chr = make("ringbuf,size=4,id=r");
    g_assert_true(chardev_write(chr, "abcdef", 6, 100));
    GByteArray *out = chardev_ringbuf_read(chr, 3, NULL);
    g_assert_cmpmem(out->data, out->len, "cde", 3);
    g_byte_array_unref(out);
    out = chardev_ringbuf_read(chr, 9, NULL);
    g_assert_cmpmem(out->data, out->len, "f", 1);
    g_byte_array_unref(out);
    g_assert_true(chardev_remove("r", NULL));
    g_assert_null(chardev_ringbuf_read(make("null,id=n"), 1, NULL));
    g_assert_true(chardev_new_compat("x", "chardev:n", NULL) == chardev_find("n"));
    g_assert_true(chardev_remove("n", NULL));
}

static void test_pipe_and_pty(void)
{
    g_autofree char *path = g_build_filename(dir, "fifo", NULL);
    g_autofree char *spec = g_strdup_printf("pipe:%s", path);
    Front f = {.data = g_string_new(NULL)};

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    Chardev *chr = chardev_new_compat("p", spec, NULL);
    g_assert_nonnull(chr);
    g_assert_true(chardev_attach(chr, &handlers, &f, NULL));
    int fd = open(path, O_RDWR | O_NONBLOCK);
    put(fd, "in");
    run();
    g_assert_cmpstr(f.data->str, ==, "in");
    close(fd);
    chardev_cleanup_all();
    g_unlink(path);

    chr = make("pty,id=p");
    g_autofree char *name = chardev_filename(chr);
    g_assert_true(g_str_has_prefix(name, "pty:/dev/"));
    g_string_truncate(f.data, 0);
    g_assert_true(chardev_attach(chr, &handlers, &f, NULL));
    fd = open(name + 4, O_RDWR | O_NOCTTY);
    put(fd, "tty");
    while (f.data->len < 3) {
        event_loop_run_once(event_loop_main(), true); /* the kernel passes it on by a worker */
    }
    g_assert_cmpstr(f.data->str, ==, "tty");
    close(fd);
    chardev_cleanup_all();
    g_string_free(f.data, TRUE);
}

static Chardev *change(const char *id, const char *text, const char *message)
{
    GError *err = NULL;
    json_object *options = chardev_parse_options(text, NULL, NULL);
    Chardev *chr = chardev_change(id, options, &err);

    json_object_put(options);
    if (message) {
        g_assert_null(chr);
        g_assert_cmpstr(err->message, ==, message);
        g_clear_error(&err);
    } else {
        g_assert_no_error(err);
        g_assert_true(chr == chardev_find(id));
    }
    return chr;
}

typedef struct ChangingFront {
    Front front; /* first: the other handlers see a Front */
    Chardev *chr;
    bool leaves; /* detaches when it hears of the end */
} ChangingFront;

static void front_changed(void *opaque, Chardev *chr)
{
    ((ChangingFront *)opaque)->chr = chr;
}

static void leaving_event(void *opaque, ChardevEvent event)
{
    ChangingFront *f = opaque;

    front_event(opaque, event);
    if (event == CHARDEV_CLOSED && f->leaves) {
        chardev_detach(f->chr);
    }
}

static const ChardevHandlers changing = {front_can_read, front_read, leaving_event, front_drained,
                                         front_changed};

static void test_change(void)
{
    g_autofree char *path = g_build_filename(dir, "change", NULL);
    g_autofree char *server = g_strdup_printf("socket,path=%s,server=on,wait=off", path);
    g_autofree char *first = g_strconcat(server, ",id=c", NULL);
    ChangingFront f = {.front = {.data = g_string_new(NULL)}};
    char buf[16];
    int sv[2];

    f.chr = make(first);
    g_assert_true(chardev_attach(f.chr, &changing, &f, NULL));
    int a = unix_client(path);
    put(a, "a");
    run();

    /* To a connected socket: the old client is left, the front end goes on with the new one. */
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), ==, 0);
    put(sv[0], "b");
    g_autofree char *socket = g_strdup_printf("socket,fd=%d", sv[1]);
    Chardev *second = change("c", socket, NULL);
    g_assert_true(f.chr == second);
    g_assert_cmpint(f.front.closed, ==, 1);
    g_assert_cmpint(f.front.opened, ==, 2);
    g_assert_cmpint(read(a, buf, sizeof(buf)), ==, 0);
    g_assert_false(g_file_test(path, G_FILE_TEST_EXISTS));
    run();
    g_assert_cmpstr(f.front.data->str, ==, "ab");
    g_assert_true(chardev_write(f.chr, "out", 3, 100));
    g_assert_cmpint(read(sv[0], buf, sizeof(buf)), ==, 3);
    g_assert_true(chardev_in_use(f.chr));

    /* To a server on the same path as one before: nobody is connected, then somebody is. */
    change("c", server, NULL);
    change("c", server, NULL);
    g_assert_cmpint(f.front.closed, ==, 2);
    g_assert_cmpint(f.front.opened, ==, 2);
    close(a);
    a = unix_client(path);
    put(a, "c");
    run();
    g_assert_cmpstr(f.front.data->str, ==, "abc");

    /* What fails changes nothing. */
    Chardev *same = f.chr;
    change("c", "ringbuf,size=3",
           "size of ringbuf chardev must be a power of two up to 1G, not '3'");
    change("c", "mux",
           "'mux' is not a valid char driver name; it is one of socket, stdio, file, "
           "pipe, pty, null, ringbuf");
    change("d", "null", "Chardev 'd' does not exist");
    g_assert_true(f.chr == same && chardev_find("c") == same);
    g_assert_cmpint(f.front.closed, ==, 2);
    put(a, "d");
    run();
    g_assert_cmpstr(f.front.data->str, ==, "abcd");

    /* A front end that leaves at the end stays away. */
    f.leaves = true;
    Chardev *null = change("c", "null", NULL);
    g_assert_true(f.chr == same);
    g_assert_false(chardev_in_use(null));
    close(a);
    close(sv[0]);
    chardev_cleanup_all();
    g_string_free(f.front.data, TRUE);
}

static void test_change_refused(void)
{
    Front f = {.data = g_string_new(NULL)};
    Chardev *chr = make("null,id=c");

    change("c", "ringbuf", NULL); /* nobody uses it */
    chr = chardev_find("c");
    g_assert_cmpstr(chardev_type(chr), ==, "ringbuf");
    g_assert_true(chardev_attach(chr, &handlers, &f, NULL));
    change("c", "null", "Chardev 'c' is busy: its user does not support chardev hotswap");
    g_assert_true(chardev_find("c") == chr);
    g_assert_cmpint(f.closed, ==, 0);
    chardev_cleanup_all();
    g_string_free(f.data, TRUE);
}

static void test_errors(void)
{
    GError *err = NULL;

    expect_error("sokcet,id=a", "'sokcet' is not a valid char driver name");
    expect_error("socket", "no id");
    expect_error("socket,id=a", "needs one of path=, host= and port=, fd=");
    expect_error("socket,id=a,path=/x,fd=1", "needs one of");
    expect_error("socket,id=a,path=/nonexistent/x", "Failed to connect to '/nonexistent/x'");
    expect_error("socket,id=a,path=/x,wait=off", "server=on");
    expect_error("socket,id=a,path=/x,server=maybe", "expects 'on' or 'off'");
    expect_error("socket,id=a,fd=77", "expects a socket");
    expect_error("socket,id=a,path=/x,foo=1", "'foo' is unexpected");
    expect_error("socket,id=a,path=/x,server=on,reconnect=1", "'reconnect'");
    expect_error("ringbuf,id=a,size=3", "power of two");
    expect_error("file,id=a", "no filename");
    make("null,id=a");
    expect_error("null,id=a", "already exists");
    g_assert_true(chardev_remove("a", NULL));
    g_assert_false(chardev_remove("a", NULL));
    g_assert_null(chardev_new_compat("a", "nonsense", &err));
    g_assert_nonnull(strstr(err->message, "'nonsense'"));
    g_clear_error(&err);
    g_assert_null(chardev_new_compat("a", "tcp:nohost", &err));
    g_clear_error(&err);
    g_assert_null(chardev_new_compat("a", "chardev:b", &err));
    g_clear_error(&err);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    dir = g_dir_make_tmp("swnic-chardev-XXXXXX", NULL);
    g_test_add_func("/chardev/unix/server-serves-one-after-the-other", test_unix_server);
    g_test_add_func("/chardev/unix/server-replaces-a-file", test_unix_replaces_file);
    g_test_add_func("/chardev/flow-control-both-ways", test_flow_control);
    g_test_add_func("/chardev/unix/passed-fds", test_fd_passing);
    g_test_add_func("/chardev/tcp/server-and-client", test_tcp);
    g_test_add_func("/chardev/reconnect", test_reconnect);
    g_test_add_func("/chardev/file-and-ringbuf", test_file_and_ringbuf);
    g_test_add_func("/chardev/pipe-and-pty", test_pipe_and_pty);
    g_test_add_func("/chardev/change", test_change);
    g_test_add_func("/chardev/change-refused", test_change_refused);
    g_test_add_func("/chardev/errors", test_errors);
    int ret = g_test_run();
    g_rmdir(dir);
    g_free(dir);
    return ret;
}
