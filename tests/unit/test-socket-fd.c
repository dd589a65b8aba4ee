/*
 * -netdev socket,fd=: both socket types over socketpairs, back-pressure both ways, partial
 * writes, garbage, end of file, moving to another loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net-test-util.h"

typedef struct Setup {
    TestClient *dev;
    NetClient *nc;
    int far; /* the other end, non-blocking */
} Setup;

static Setup setup_new(int type, int buffer)
{
    Setup s;
    int fds[2];
    g_assert_cmpint(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, fds), ==, 0);
    if (buffer) {
        setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
        setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    }
    g_autofree char *text = g_strdup_printf("{'type':'socket','id':'s0','fd':'%d'}", fds[0]);
    netdev_must_init(text);
    s.far = fds[1];
    s.nc = net_client_find("s0");
    s.dev = test_client_new(s.nc, "dev");
    return s;
}

static void setup_free(Setup *s)
{
    net_client_delete(&s->dev->nc);
    net_cleanup();
    g_assert_null(net_clients);
    close(s->far);
}

static void append_frame(GByteArray *bytes, const TestClient *c, unsigned i)
{
    size_t size = test_frame_size(c, i);
    g_autofree uint8_t *data = g_malloc(size);
    uint32_t be = GUINT32_TO_BE((uint32_t)size);
    test_frame_fill(data, size, i);
    g_byte_array_append(bytes, (uint8_t *)&be, 4);
    g_byte_array_append(bytes, data, size);
}

/* Device → stream whose reader reads little by little. */
static void test_stream_back_pressure(void)
{
    Setup s = setup_new(SOCK_STREAM, 4096);
    s.dev->spread = 9000;
    s.dev->to_send = 1500;
    test_client_send(s.dev);
    g_assert_cmpuint(s.dev->sent, <, 1500);
    g_assert_false(net_can_send(&s.dev->nc));

    g_autoptr(GByteArray) all = g_byte_array_new(), expected = g_byte_array_new();
    for (unsigned i = 0; i < 1500; i++) {
        append_frame(expected, s.dev, i);
    }
    unsigned chunk = 1;
    while (all->len < expected->len) {
        uint8_t buf[8000];
        chunk = chunk % 7919 + 613;
        ssize_t n = read(s.far, buf, MIN(chunk, sizeof(buf)));
        if (n > 0) {
            g_byte_array_append(all, buf, n);
        } else {
            g_assert_cmpint(errno, ==, EAGAIN);
            RUN_LOOP_WHILE(!event_loop_run_once(event_loop_main(), false));
        }
        event_loop_run_once(event_loop_main(), false);
    }
    g_assert_cmpuint(s.dev->sent, ==, 1500);
    g_assert_cmpuint(s.nc->stats.rx_packets, ==, 1500);
    g_assert_true(all->len == expected->len && memcmp(all->data, expected->data, all->len) == 0);
    g_assert_cmpuint(s.dev->nc.stats.stalls, >, 0);
    setup_free(&s);
}

/* Stream → device that takes little by little; bytes arrive in odd pieces. */
static void test_stream_to_slow_device(void)
{
    Setup s = setup_new(SOCK_STREAM, 0);
    s.dev->spread = 5000;
    g_autoptr(GByteArray) all = g_byte_array_new();
    for (unsigned i = 0; i < 1000; i++) {
        append_frame(all, s.dev, i);
    }
    size_t at = 0;
    unsigned step = 1;
    bool was_full = false;
    while (s.dev->got->len < 1000) {
        if (at < all->len) {
            step = step * 5 % 4099 + 1;
            ssize_t n = write(s.far, all->data + at, MIN(step, all->len - at));
            was_full |= n < 0;
            at += n > 0 ? n : 0;
        }
        run_loop_until_idle();
        if (was_full || at == all->len) {
            test_client_give_room(s.dev, 3);
        }
    }
    g_assert_true(was_full); /* back-pressure reached the far end */
    assert_frames_in_order(s.dev, 1000);
    setup_free(&s);
}

static void test_stream_data_then_eof(void)
{
    Setup s = setup_new(SOCK_STREAM, 0);
    g_autoptr(GByteArray) all = g_byte_array_new();
    for (unsigned i = 0; i < 10; i++) {
        append_frame(all, s.dev, i);
    }
    g_byte_array_append(all, (const uint8_t *)"\0\0\1", 3); /* and a frame that never comes */
    s.dev->room = 4;
    g_assert_cmpint(write(s.far, all->data, all->len), ==, all->len);
    g_assert_cmpint(shutdown(s.far, SHUT_RDWR), ==, 0);
    run_loop_until_idle();
    g_assert_cmpuint(s.dev->got->len, ==, 4);
    test_client_give_room(s.dev, 100);
    run_loop_until_idle();
    assert_frames_in_order(s.dev, 10);
    g_assert_cmpstr(s.nc->info->str, ==, "");
    /* The device goes on; what it sends is dropped and counted. */
    s.dev->to_send = 5;
    test_client_send(s.dev);
    g_assert_cmpuint(s.dev->sent, ==, 5);
    g_assert_cmpuint(s.nc->stats.drops[NET_DROP_NOT_READY], ==, 5);
    setup_free(&s);
}

/* The reader goes while frames wait: they are not waited for any longer. */
static void test_stream_reader_gone(void)
{
    Setup s = setup_new(SOCK_STREAM, 4096);
    s.dev->to_send = 1000;
    s.dev->spread = 3000;
    test_client_send(s.dev);
    g_assert_cmpuint(s.dev->sent, <, 1000);
    shutdown(s.far, SHUT_RDWR);
    RUN_LOOP_WHILE(s.dev->sent < 1000);
    g_assert_cmpuint(s.nc->stats.drops[NET_DROP_NOT_READY], >, 0);
    setup_free(&s);
}

static void test_stream_garbage_length(void)
{
    static const uint8_t lengths[][4] = {
        {0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0, 1, 0x10, 1}, {'G', 'E', 'T', ' '}};
    for (unsigned i = 0; i < G_N_ELEMENTS(lengths); i++) {
        Setup s = setup_new(SOCK_STREAM, 0);
        s.dev->room = 100;
        g_autoptr(GByteArray) all = g_byte_array_new();
        append_frame(all, s.dev, 0);
        g_byte_array_append(all, (const uint8_t *)"\0\0\0\0", 4); /* empty: skipped */
        append_frame(all, s.dev, 1);
        g_byte_array_append(all, lengths[i], 4);
        append_frame(all, s.dev, 2);
        g_assert_cmpint(write(s.far, all->data, all->len), ==, all->len);
        run_loop_until_idle();
        assert_frames_in_order(s.dev, 2);
        g_assert_cmpstr(s.nc->info->str, ==, "");
        g_assert_cmpuint(s.nc->stats.drops[NET_DROP_BAD_HEADER], ==, 1);
        g_assert_cmpuint(s.nc->stats.drops[NET_DROP_TOO_LONG], ==, 1);
        uint8_t byte;
        g_assert_cmpint(read(s.far, &byte, 1), <=, 0);
        setup_free(&s);
    }
}

/* The longest frame passes both ways, in one piece and in more pieces than one call takes. */
static void test_longest_frame(void)
{
    const int types[] = {SOCK_STREAM, SOCK_DGRAM};
    for (unsigned t = 0; t < 2; t++) {
        Setup s = setup_new(types[t], 1 << 20);
        static uint8_t frame[NET_MAX_FRAME], back[NET_MAX_FRAME + 4];
        static struct iovec iov[2000];
        size_t header = types[t] == SOCK_STREAM ? 4 : 0;
        for (unsigned i = 0; i < sizeof(frame); i++) {
            frame[i] = i * 13;
        }
        size_t at = 0;
        for (unsigned i = 0; i < 2000; i++) {
            size_t len = i == 1999 ? sizeof(frame) - at : 30;
            iov[i] = (struct iovec){frame + at, len};
            at += len;
        }
        NetPacket pkt = {iov, 2000, sizeof(frame)};
        g_assert_cmpuint(net_send_batch(&s.dev->nc, &pkt, 1), ==, 1);
        at = 0;
        while (at < sizeof(frame) + header) {
            ssize_t n = read(s.far, back + at, sizeof(back) - at);
            at += n > 0 ? n : 0;
            run_loop_until_idle();
        }
        g_assert_true(memcmp(back + header, frame, sizeof(frame)) == 0);
        s.dev->room = 2;
        g_assert_cmpint(write(s.far, back, at), ==, at);
        RUN_LOOP_WHILE(s.dev->got->len == 0);
        g_assert_cmpuint(g_bytes_get_size(s.dev->got->pdata[0]), ==, sizeof(frame));
        setup_free(&s);
    }
}

static void test_dgram_both_ways(void)
{
    Setup s = setup_new(SOCK_DGRAM, 0);
    uint8_t buf[70000];
    s.dev->spread = 1400;
    s.dev->to_send = 700;
    test_client_send(s.dev);
    g_assert_cmpuint(s.dev->sent, <, 700); /* the kernel's queue is full */
    for (unsigned i = 0; i < 700;) {
        ssize_t n = read(s.far, buf, sizeof(buf));
        if (n < 0) {
            RUN_LOOP_WHILE(!event_loop_run_once(event_loop_main(), false));
            continue;
        }
        uint32_t value;
        memcpy(&value, buf, 4);
        g_assert_cmpuint(value, ==, i);
        g_assert_cmpint(n, ==, test_frame_size(s.dev, i));
        i++;
    }
    g_assert_cmpuint(s.dev->sent, ==, 700);

    unsigned sent = 0;
    bool was_full = false;
    while (s.dev->got->len < 700) {
        size_t size = test_frame_size(s.dev, sent);
        test_frame_fill(buf, size, sent);
        if (sent < 700) {
            ssize_t n = write(s.far, buf, size);
            was_full |= n < 0;
            sent += n > 0;
        }
        run_loop_until_idle();
        if (was_full || sent == 700) {
            test_client_give_room(s.dev, 3);
        }
    }
    g_assert_true(was_full);
    assert_frames_in_order(s.dev, 700);
    setup_free(&s);
}

static void test_dgram_odd_sizes(void)
{
    Setup s = setup_new(SOCK_DGRAM, 1 << 20);
    static uint8_t big[NET_MAX_FRAME + 1];
    s.dev->room = 100;
    test_frame_fill(big, 60, 0);
    g_assert_cmpint(write(s.far, big, sizeof(big)), ==, sizeof(big)); /* too long */
    g_assert_cmpint(write(s.far, big, 0), ==, 0);                     /* empty */
    g_assert_cmpint(write(s.far, big, 60), ==, 60);
    run_loop_until_idle();
    assert_frames_in_order(s.dev, 1);
    g_assert_cmpuint(s.nc->stats.drops[NET_DROP_TOO_LONG], ==, 1);
    /* The other end goes: each frame is lost and counted, nothing spins. */
    close(s.far);
    s.far = -1;
    s.dev->to_send = 3;
    test_client_send(s.dev);
    g_assert_cmpuint(s.dev->sent, ==, 3);
    g_assert_cmpuint(s.nc->stats.drops[NET_DROP_HOST_ERROR], ==, 3);
    run_loop_until_idle();
    setup_free(&s);
}

static void *echo_thread(void *opaque)
{
    int fd = GPOINTER_TO_INT(opaque);
    uint8_t buf[4096];
    fcntl(fd, F_SETFL, 0);
    for (;;) {
        ssize_t n = read(fd, buf, sizeof(buf));
        if (n <= 0) {
            return NULL;
        }
        for (ssize_t at = 0; at < n;) {
            ssize_t done = write(fd, buf + at, n - at);
            if (done <= 0) {
                return NULL;
            }
            at += done;
        }
    }
}

static void loop_send(void *opaque)
{
    test_client_send(opaque);
}

static void loop_count(void *opaque)
{
    TestClient *c = opaque;
    c->nc.announce_left = c->got->len;
}

static void test_in_another_loop(void)
{
    Setup s = setup_new(SOCK_STREAM, 0);
    EventLoop *loop = event_loop_new_thread("io0", NULL);
    GThread *echo = g_thread_new("echo", echo_thread, GINT_TO_POINTER(s.far));
    s.dev->room = 1u << 30;
    g_assert_true(net_client_set_loop(s.nc, loop, NULL));
    s.dev->nc.loop = loop;
    s.dev->to_send = 500;
    event_loop_run_sync(loop, loop_send, s.dev);
    for (unsigned i = 0; i < 5000; i++) {
        event_loop_run_sync(loop, loop_count, s.dev);
        if (s.dev->nc.announce_left == 500) {
            break;
        }
        g_usleep(1000);
    }
    g_assert_true(net_client_set_loop(s.nc, event_loop_main(), NULL));
    s.dev->nc.loop = event_loop_main();
    assert_frames_in_order(s.dev, 500);
    event_loop_free(loop);
    s.dev->to_send = 600;
    test_client_send(s.dev);
    RUN_LOOP_WHILE(s.dev->got->len < 600);
    shutdown(s.far, SHUT_RDWR);
    g_thread_join(echo);
    setup_free(&s);
}

static void fail_fd(int fd, const char *message)
{
    g_autofree char *text = g_strdup_printf("{'type':'socket','id':'s0','fd':'%d'}", fd);
    g_autofree char *full = g_strdup_printf("fd=%d %s", fd, message);
    netdev_must_fail(text, full);
    close(fd);
}

static void test_wrong_fds(void)
{
    netdev_must_fail("{'type':'socket','id':'s0'}",
                     "netdev 's0': exactly one of fd=, listen=, connect=, mcast= or udp=");
    netdev_must_fail("{'type':'socket','id':'s0','fd':'1','listen':':1'}",
                     "netdev 's0': exactly one of");
    netdev_must_fail("{'type':'socket','id':'s0','fd':'4x'}",
                     "fd=4x is not a file descriptor number");
    netdev_must_fail("{'type':'socket','id':'s0','fd':'name'}", "fd=name is not a file descriptor");
    netdev_must_fail("{'type':'socket','id':'s0','fd':'99999999999'}",
                     "fd=99999999999 is not a file descriptor number");
    netdev_must_fail("{'type':'socket','id':'s0','fd':'987'}",
                     "fd=987 is not an open file descriptor");
    fail_fd(open("/dev/null", O_RDWR), "is not a socket");
    fail_fd(socket(AF_UNIX, SOCK_SEQPACKET, 0), "is a socket of type 5");
    fail_fd(socket(AF_UNIX, SOCK_DGRAM, 0), "is not connected");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    listen(fd, 1);
    fail_fd(fd, "is a listening socket");
    g_assert_null(net_clients);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/socket-fd/stream-back-pressure", test_stream_back_pressure);
    g_test_add_func("/socket-fd/stream-to-slow-device", test_stream_to_slow_device);
    g_test_add_func("/socket-fd/stream-data-then-eof", test_stream_data_then_eof);
    g_test_add_func("/socket-fd/stream-reader-gone", test_stream_reader_gone);
    g_test_add_func("/socket-fd/stream-garbage-length", test_stream_garbage_length);
    g_test_add_func("/socket-fd/longest-frame", test_longest_frame);
    g_test_add_func("/socket-fd/dgram-both-ways", test_dgram_both_ways);
    g_test_add_func("/socket-fd/dgram-odd-sizes", test_dgram_odd_sizes);
    g_test_add_func("/socket-fd/in-another-loop", test_in_another_loop);
    g_test_add_func("/socket-fd/wrong-fds", test_wrong_fds);
    return g_test_run();
}
