/*
 * Filters between two clients: who sees what, once and in order, with receivers that are full;
 * pcap files, intervals, framing on character devices; places, switching, deletion.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net-test-util.h"
#include "net/filter.h"
#include "net/net-internal.h"
#include "chardev/chardev.h"

static char *tmpdir;

/* n0 is the netdev, dev its device. */
typedef struct Setup {
    TestClient *n0, *dev;
} Setup;

static Setup setup_new(void)
{
    Setup s;
    s.n0 = test_client_new(NULL, "n0");
    s.n0->nc.is_netdev = true;
    s.dev = test_client_new(&s.n0->nc, "dev");
    s.n0->room = s.dev->room = G_MAXUINT;
    return s;
}

static void setup_free(Setup *s)
{
    net_client_delete(&s->dev->nc);
    net_client_delete(&s->n0->nc);
    g_assert_null(net_clients);
    chardev_cleanup_all();
}

static NetFilter *filter_add(const char *fmt, ...) G_GNUC_PRINTF(1, 2);
static NetFilter *filter_add(const char *fmt, ...)
{
    va_list ap;
    GError *err = NULL;
    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    json_object *options = quoted(text);
    Object *obj = user_object_add(options, &err);
    g_assert_no_error(err);
    json_object_put(options);
    return NETFILTER(obj);
}

static void filter_must_fail(const char *text, const char *message)
{
    GError *err = NULL;
    json_object *options = quoted(text);
    g_assert_null(user_object_add(options, &err));
    g_assert_cmpstr(err->message, ==, message);
    g_error_free(err);
    json_object_put(options);
}

static void filter_del(const char *id)
{
    g_assert_true(user_object_del(id, NULL));
}

static void set_status(NetFilter *nf, const char *status)
{
    json_object *value = json_object_new_string(status);
    g_assert_true(object_set_property(OBJECT(nf), "status", value, NULL));
    json_object_put(value);
}

static void send_up_to(TestClient *c, unsigned total)
{
    c->to_send = total;
    test_client_send(c);
}

/* ---- pcap files ---- */

typedef struct Pcap {
    char *data;
    size_t size, at;
} Pcap;

static Pcap pcap_open(const char *path, uint32_t snap)
{
    Pcap p = {0};
    uint32_t header[6];
    g_assert_true(g_file_get_contents(path, &p.data, &p.size, NULL));
    g_assert_cmpuint(p.size, >=, sizeof(header));
    memcpy(header, p.data, sizeof(header));
    g_assert_cmphex(header[0], ==, 0xa1b2c3d4);
    g_assert_cmphex(header[1], ==, 0x00040002);
    g_assert_cmpuint(header[4], ==, snap);
    g_assert_cmpuint(header[5], ==, 1);
    p.at = sizeof(header);
    return p;
}

/* The next frame is number @i of @c, of which @captured bytes are there. */
static void pcap_expect(Pcap *p, const TestClient *c, unsigned i, size_t snap)
{
    uint32_t header[4];
    size_t size = test_frame_size(c, i);
    g_autofree uint8_t *frame = g_malloc(size);
    test_frame_fill(frame, size, i);
    g_assert_cmpuint(p->size - p->at, >=, sizeof(header));
    memcpy(header, p->data + p->at, sizeof(header));
    p->at += sizeof(header);
    g_assert_cmpuint(header[0], >=, g_get_real_time() / G_USEC_PER_SEC - 60);
    g_assert_cmpuint(header[1], <, 1000000);
    g_assert_cmpuint(header[2], ==, MIN(size, snap));
    g_assert_cmpuint(header[3], ==, size);
    g_assert_cmpuint(p->size - p->at, >=, header[2]);
    g_assert_true(memcmp(p->data + p->at, frame, header[2]) == 0);
    p->at += header[2];
}

static void pcap_close(Pcap *p)
{
    g_assert_cmpuint(p->at, ==, p->size);
    g_free(p->data);
}

static void test_dump(void)
{
    Setup s = setup_new();
    const char *queues[] = {"tx", "rx", "all"};
    char *files[3];
    s.n0->spread = s.dev->spread = 2000;
    for (unsigned i = 0; i < 3; i++) {
        files[i] = g_strdup_printf("%s/%s.pcap", tmpdir, queues[i]);
        filter_add("{'qom-type':'filter-dump','id':'d%u','netdev':'n0','queue':'%s','file':'%s',"
                   "'maxlen':'%u'}",
                   i, queues[i], files[i], i == 2 ? 100 : 65536);
    }
    /* The receivers are full again and again: each frame is in the file once. */
    s.n0->room = s.dev->room = 0;
    send_up_to(s.n0, 500);
    send_up_to(s.dev, 400);
    for (unsigned i = 0; s.n0->got->len < 400 || s.dev->got->len < 500; i++) {
        test_client_give_room(s.n0, i % 7);
        test_client_give_room(s.dev, i % 11);
    }
    assert_frames_in_order(s.n0, 400);
    assert_frames_in_order(s.dev, 500);
    Pcap p;
    for (unsigned q = 0; q < 2; q++) {
        p = pcap_open(files[q], 65536);
        for (unsigned i = 0; i < (q ? 400 : 500); i++) {
            pcap_expect(&p, q ? s.dev : s.n0, i, 65536);
        }
        pcap_close(&p);
    }
    /* Both directions: the batch of one was first in full. */
    p = pcap_open(files[2], 100);
    for (unsigned i = 0; i < 50; i++) {
        pcap_expect(&p, s.n0, i, 100);
    }
    g_free(p.data);
    for (unsigned i = 0; i < 3; i++) {
        g_autofree char *id = g_strdup_printf("d%u", i);
        filter_del(id);
        g_unlink(files[i]);
        g_free(files[i]);
    }
    setup_free(&s);
}

static void test_dump_vnet_header(void)
{
    Setup s = setup_new();
    g_autofree char *file = g_build_filename(tmpdir, "v.pcap", NULL);
    filter_add("{'qom-type':'filter-dump','id':'d','netdev':'n0','file':'%s'}", file);
    uint8_t data[12 + 60] = {0};
    s.n0->nc.vnet_hdr_len = s.dev->nc.vnet_hdr_len = 12;
    test_frame_fill(data + 12, 60, 0);
    struct iovec iov[40];
    for (unsigned i = 0; i < 36; i++) {
        iov[i] = (struct iovec){data + 2 * i, 2};
    }
    net_send_batch(&s.dev->nc, &(NetPacket){iov, 36, 72}, 1);
    Pcap p = pcap_open(file, 65536);
    pcap_expect(&p, s.dev, 0, 65536);
    pcap_close(&p);
    filter_del("d");
    g_unlink(file);
    s.n0->nc.vnet_hdr_len = s.dev->nc.vnet_hdr_len = 0;
    setup_free(&s);
}

/* ---- buffer ---- */

static void step_us(int64_t us)
{
    clock_step_virtual(clock_get_ns(CLOCK_VIRTUAL) + us * 1000);
}

static void test_buffer(void)
{
    Setup s = setup_new();
    NetFilter *nf = filter_add("{'qom-type':'filter-buffer','id':'b','netdev':'n0','queue':'tx',"
                               "'interval':1000}");
    send_up_to(s.n0, 30);
    g_assert_cmpuint(s.n0->sent, ==, 30);
    send_up_to(s.dev, 10); /* the other direction passes */
    g_assert_cmpuint(s.n0->got->len, ==, 10);
    step_us(999);
    g_assert_cmpuint(s.dev->got->len, ==, 0);
    step_us(1);
    assert_frames_in_order(s.dev, 30);

    /* What the receiver does not take goes as soon as it can; later ones wait. */
    s.dev->room = 10;
    send_up_to(s.n0, 60);
    step_us(1000);
    assert_frames_in_order(s.dev, 40);
    send_up_to(s.n0, 65);
    test_client_give_room(s.dev, 100);
    assert_frames_in_order(s.dev, 60);
    step_us(1000);
    assert_frames_in_order(s.dev, 65);

    /* Off: all go at once, and frames pass. */
    send_up_to(s.n0, 70);
    s.dev->room = 2;
    set_status(nf, "off");
    assert_frames_in_order(s.dev, 67);
    send_up_to(s.n0, 80); /* not past those that wait */
    test_client_give_room(s.dev, 1000);
    assert_frames_in_order(s.dev, 80);
    send_up_to(s.n0, 90);
    assert_frames_in_order(s.dev, 90);
    set_status(nf, "on");
    send_up_to(s.n0, 100);
    assert_frames_in_order(s.dev, 90);
    filter_del("b");
    assert_frames_in_order(s.dev, 100);
    setup_free(&s);
}

/* A full buffer holds the sender back; nothing is lost. */
static void test_buffer_full(void)
{
    Setup s = setup_new();
    filter_add("{'qom-type':'filter-buffer','id':'b','netdev':'n0','interval':1000}");
    send_up_to(s.n0, 25000);
    g_assert_cmpuint(s.n0->sent, ==, 10000);
    for (unsigned i = 0; s.dev->got->len < 25000 && i < 10; i++) {
        step_us(1000);
    }
    assert_frames_in_order(s.dev, 25000);
    /* Deleted with a receiver that takes nothing: counted. */
    s.dev->room = 0;
    send_up_to(s.n0, 25010);
    g_assert_true(net_delete_netdev("n0", NULL));
    g_assert_cmpuint(s.dev->got->len, ==, 25000);
    s.n0 = test_client_new(NULL, "n0");
    setup_free(&s);
}

/* ---- mirror and redirector ---- */

/* A chardev on one end of a socket pair; the other end, not blocking. */
static int chardev_pair(const char *id)
{
    int fds[2];
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), ==, 0);
    g_autofree char *text = g_strdup_printf("{'backend':'socket','id':'%s','fd':'%d'}", id, fds[0]);
    json_object *options = quoted(text);
    GError *err = NULL;
    chardev_new(options, &err);
    g_assert_no_error(err);
    json_object_put(options);
    return fds[1];
}

static void expect_bytes(int fd, void *buf, size_t size)
{
    size_t got = 0;
    int64_t end = g_get_monotonic_time() + 5 * G_USEC_PER_SEC;
    while (got < size) {
        ssize_t n = read(fd, (char *)buf + got, size - got);
        if (n > 0) {
            got += n;
            continue;
        }
        g_assert_cmpint(n, <, 0);
        g_assert_cmpint(errno, ==, EAGAIN);
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        event_loop_run_once(event_loop_main(), false);
    }
}

/* Frame @i of @c with @headers in front (0: none but the length). */
static void expect_frame(int fd, const TestClient *c, unsigned i, bool vnet_hdr)
{
    uint32_t head[2];
    size_t size = test_frame_size(c, i);
    g_autofree uint8_t *want = g_malloc(size);
    g_autofree uint8_t *got = g_malloc(size);
    expect_bytes(fd, head, vnet_hdr ? 8 : 4);
    g_assert_cmpuint(GUINT32_FROM_BE(head[0]), ==, size);
    if (vnet_hdr) {
        g_assert_cmpuint(GUINT32_FROM_BE(head[1]), ==, c->nc.vnet_hdr_len);
    }
    expect_bytes(fd, got, size);
    test_frame_fill(want, size, i);
    g_assert_true(memcmp(got, want, size) == 0);
}

static void expect_nothing(int fd)
{
    char c;
    run_loop_until_idle();
    g_assert_cmpint(read(fd, &c, 1), ==, -1);
    g_assert_cmpint(errno, ==, EAGAIN);
}

static void write_frame(int fd, const TestClient *c, unsigned i, int vnet_hdr)
{
    size_t size = test_frame_size(c, i), at = 0;
    unsigned head = vnet_hdr < 0 ? 4 : 8;
    g_autofree uint8_t *data = g_malloc(head + size + MAX(vnet_hdr, 0));
    uint32_t be[2] = {GUINT32_TO_BE((uint32_t)(size + MAX(vnet_hdr, 0))),
                      GUINT32_TO_BE((uint32_t)vnet_hdr)};
    memcpy(data, be, head);
    memset(data + head, 0xee, MAX(vnet_hdr, 0));
    test_frame_fill(data + head + MAX(vnet_hdr, 0), size, i);
    size += head + MAX(vnet_hdr, 0);
    while (at < size) {
        ssize_t n = write(fd, data + at, MIN(size - at, 1 + i % 700));
        if (n < 0) {
            g_assert_cmpint(errno, ==, EAGAIN);
            event_loop_run_once(event_loop_main(), false);
        }
        at += n > 0 ? n : 0;
    }
}

static void test_mirror(void)
{
    Setup s = setup_new();
    int fd = chardev_pair("m0");
    NetFilter *nf = filter_add("{'qom-type':'filter-mirror','id':'f','netdev':'n0','queue':'tx',"
                               "'outdev':'m0'}");
    s.n0->spread = s.dev->spread = 1000;
    /* Not ready to receive: the copy goes out all the same, once. */
    s.dev->room = 0;
    g_assert_true(net_can_send(&s.n0->nc));
    send_up_to(s.n0, 40);
    for (unsigned i = 0; i < 40; i++) {
        expect_frame(fd, s.n0, i, false);
    }
    test_client_give_room(s.dev, 100);
    assert_frames_in_order(s.dev, 40);
    send_up_to(s.dev, 5);
    expect_nothing(fd);
    set_status(nf, "off");
    send_up_to(s.n0, 50);
    expect_nothing(fd);
    set_status(nf, "on");
    s.dev->room = G_MAXUINT;
    send_up_to(s.n0, 60);
    for (unsigned i = 50; i < 60; i++) {
        expect_frame(fd, s.n0, i, false);
    }
    assert_frames_in_order(s.dev, 60);
    /* Nobody reads: copies are dropped, frames are not. */
    s.n0->spread = s.dev->spread = 9000;
    g_ptr_array_set_size(s.dev->got, 0);
    s.n0->sent = 0;
    send_up_to(s.n0, 3000);
    assert_frames_in_order(s.dev, 3000);
    g_assert_cmpuint(s.n0->nc.stats.drops[NET_DROP_OVERFLOW], >, 100);
    close(fd);
    run_loop_until_idle();
    send_up_to(s.n0, 3010);
    filter_del("f");
    setup_free(&s);
}

static void test_mirror_vnet_header(void)
{
    Setup s = setup_new();
    int fd = chardev_pair("m0");
    filter_add("{'qom-type':'filter-mirror','id':'f','netdev':'n0','outdev':'m0',"
               "'vnet_hdr_support':true}");
    s.n0->nc.vnet_hdr_len = s.dev->nc.vnet_hdr_len = 12;
    send_up_to(s.n0, 3);
    for (unsigned i = 0; i < 3; i++) {
        expect_frame(fd, s.n0, i, true);
    }
    s.n0->nc.vnet_hdr_len = s.dev->nc.vnet_hdr_len = 0;
    setup_free(&s);
    close(fd);
}

static void test_redirector_out(void)
{
    Setup s = setup_new();
    int fd = chardev_pair("r0");
    NetFilter *nf = filter_add("{'qom-type':'filter-redirector','id':'f','netdev':'n0',"
                               "'queue':'rx','outdev':'r0'}");
    s.n0->spread = s.dev->spread = 9000;
    send_up_to(s.dev, 3000);
    /* Nobody reads: the device waits, and loses nothing. */
    g_assert_cmpuint(s.dev->sent, <, 3000);
    for (unsigned i = 0; i < 3000; i++) {
        expect_frame(fd, s.dev, i, false);
    }
    g_assert_cmpuint(s.dev->sent, ==, 3000);
    g_assert_cmpuint(s.n0->got->len, ==, 0);
    g_assert_cmpuint(s.n0->nc.stats.drops[NET_DROP_FILTERED], ==, 3000);

    /* Off while the device waits: it goes on. */
    s.dev->sent = 0;
    send_up_to(s.dev, 3000);
    unsigned redirected = s.dev->sent;
    g_assert_cmpuint(redirected, <, 3000);
    set_status(nf, "off");
    g_assert_cmpuint(s.dev->sent, ==, 3000);
    g_assert_cmpuint(s.n0->got->len, ==, 3000 - redirected);
    /* Without a reader at all frames pass. */
    set_status(nf, "on");
    close(fd);
    run_loop_until_idle();
    g_ptr_array_set_size(s.n0->got, 0);
    s.dev->sent = 0;
    send_up_to(s.dev, 10);
    assert_frames_in_order(s.n0, 10);
    setup_free(&s);
}

static void test_redirector_in(void)
{
    Setup s = setup_new();
    const char *queues[] = {"tx", "rx", "all"};
    for (unsigned q = 0; q < 3; q++) {
        int fd = chardev_pair("r0");
        filter_add("{'qom-type':'filter-redirector','id':'f','netdev':'n0','queue':'%s',"
                   "'indev':'r0'}",
                   queues[q]);
        g_ptr_array_set_size(s.n0->got, 0);
        g_ptr_array_set_size(s.dev->got, 0);
        s.n0->room = s.dev->room = 0;
        s.n0->spread = s.dev->spread = 5000;
        unsigned written = 0;
        bool to_dev = q != 1, to_n0 = q != 0;
        for (unsigned i = 0; (to_dev && s.dev->got->len < 300) || (to_n0 && s.n0->got->len < 300);
             i++) {
            if (written < 300) {
                write_frame(fd, s.n0, written++, -1);
            }
            run_loop_until_idle();
            test_client_give_room(s.n0, i % 3);
            test_client_give_room(s.dev, i % 4);
        }
        assert_frames_in_order(s.dev, to_dev ? 300 : 0);
        assert_frames_in_order(s.n0, to_n0 ? 300 : 0);
        filter_del("f");
        close(fd);
        chardev_cleanup_all();
    }
    setup_free(&s);
}

static void test_redirector_in_status(void)
{
    Setup s = setup_new();
    int fd = chardev_pair("r0");
    NetFilter *nf = filter_add("{'qom-type':'filter-redirector','id':'f','netdev':'n0',"
                               "'queue':'rx','indev':'r0','status':'off'}");
    write_frame(fd, s.dev, 0, -1);
    run_loop_until_idle();
    g_assert_cmpuint(s.n0->got->len, ==, 0);
    set_status(nf, "on");
    run_loop_until_idle();
    assert_frames_in_order(s.n0, 1);
    set_status(nf, "off");
    write_frame(fd, s.dev, 1, -1);
    run_loop_until_idle();
    assert_frames_in_order(s.n0, 1);
    set_status(nf, "on");
    RUN_LOOP_WHILE(s.n0->got->len < 2);
    /* A length that cannot be: the connection ends, with what was good before it delivered. */
    write_frame(fd, s.dev, 2, -1);
    g_assert_cmpint(write(fd, "\377\377\377\377garbage", 11), ==, 11);
    run_loop_until_idle();
    assert_frames_in_order(s.n0, 3);
    g_assert_false(chardev_is_open(chardev_find("r0")));
    setup_free(&s);
    close(fd);
}

/* The vnet header that a frame comes with is replaced by the link's. */
static void test_redirector_in_vnet_header(void)
{
    static const int with[] = {0, 10, 12, 24};
    for (unsigned link = 0; link <= 12; link += 12) {
        for (unsigned i = 0; i < G_N_ELEMENTS(with); i++) {
            Setup s = setup_new();
            int fd = chardev_pair("r0");
            filter_add("{'qom-type':'filter-redirector','id':'f','netdev':'n0','queue':'rx',"
                       "'indev':'r0','vnet_hdr_support':'on'}");
            s.n0->nc.vnet_hdr_len = s.dev->nc.vnet_hdr_len = link;
            write_frame(fd, s.n0, 0, with[i]);
            RUN_LOOP_WHILE(s.n0->got->len == 0);
            size_t size;
            const uint8_t *data = g_bytes_get_data(s.n0->got->pdata[0], &size);
            uint8_t want[60];
            test_frame_fill(want, 60, 0);
            g_assert_cmpuint(size, ==, link + 60);
            g_assert_true(memcmp(data + link, want, 60) == 0);
            if (link > 0) {
                g_assert_cmphex(data[0], ==, with[i] == (int)link ? 0xee : 0);
            }
            /* A header longer than the frame. */
            uint32_t bad[2] = {GUINT32_TO_BE(4), GUINT32_TO_BE(link + 90)};
            g_assert_cmpint(write(fd, bad, 8), ==, 8);
            g_assert_cmpint(write(fd, "abcd", 4), ==, 4);
            run_loop_until_idle();
            g_assert_cmpuint(s.n0->nc.stats.drops[NET_DROP_BAD_HEADER], ==, 1);
            s.n0->nc.vnet_hdr_len = s.dev->nc.vnet_hdr_len = 0;
            setup_free(&s);
            close(fd);
        }
    }
}

/* ---- places ---- */

/* A frame that the netdev sends meets filters from first to last, one it receives the other way. */
static void test_order(void)
{
    Setup s = setup_new();
    int in[2], out[2];
    for (unsigned i = 0; i < 2; i++) {
        g_autofree char *a = g_strdup_printf("in%u", i);
        g_autofree char *b = g_strdup_printf("out%u", i);
        in[i] = chardev_pair(a);
        out[i] = chardev_pair(b);
    }
    filter_add("{'qom-type':'filter-redirector','id':'f0','netdev':'n0','indev':'in0'}");
    filter_add("{'qom-type':'filter-redirector','id':'f1','netdev':'n0','outdev':'out0'}");
    /* From f0 to the device f1 is in the way, to the netdev nothing. */
    write_frame(in[0], s.n0, 0, -1);
    run_loop_until_idle();
    assert_frames_in_order(s.n0, 1);
    assert_frames_in_order(s.dev, 0);
    expect_frame(out[0], s.n0, 0, false);
    filter_del("f0");
    filter_add("{'qom-type':'filter-redirector','id':'f2','netdev':'n0','indev':'in1'}");
    /* From behind f1 it is the other way round. */
    write_frame(in[1], s.n0, 0, -1);
    run_loop_until_idle();
    assert_frames_in_order(s.n0, 1);
    assert_frames_in_order(s.dev, 1);
    expect_frame(out[0], s.n0, 0, false);
    setup_free(&s);
    for (unsigned i = 0; i < 2; i++) {
        close(in[i]);
        close(out[i]);
    }
}

static char *order_text(const TestClient *c)
{
    GString *out = g_string_new(NULL);
    for (unsigned i = 0; i < c->nc.filters->len; i++) {
        g_string_append_printf(out, "%s%s", i ? " " : "", OBJECT(c->nc.filters->pdata[i])->name);
    }
    return g_string_free(out, FALSE);
}

static void test_position(void)
{
    Setup s = setup_new();
#define BUFFER(id, more)                                                                           \
    "{'qom-type':'filter-buffer','netdev':'n0','interval':10,'id':'" id "'" more "}"
    filter_add(BUFFER("b", ""));
    filter_add(BUFFER("d", ",'position':'tail'"));
    filter_add(BUFFER("a", ",'position':'head'"));
    filter_add(BUFFER("c", ",'position':'id=b'"));
    filter_add(BUFFER("c2", ",'position':'id=d','insert':'before'"));
    filter_add(BUFFER("e", ",'position':'id=d','insert':'behind'"));
    g_autofree char *order = order_text(s.n0);
    g_assert_cmpstr(order, ==, "a b c c2 d e");
    filter_must_fail(BUFFER("x", ",'position':'id=zz'"), "filter 'zz' not found");
    filter_must_fail(BUFFER("x", ",'position':'middle'"),
                     "position=middle: head, tail or id=FILTER is expected");
    TestClient *n1 = test_client_new(NULL, "n1");
    filter_must_fail("{'qom-type':'filter-buffer','netdev':'n1','interval':10,'id':'x',"
                     "'position':'id=a'}",
                     "filter 'a' belongs to a different netdev");
    filter_del("c");
    filter_del("a");
    g_autofree char *rest = order_text(s.n0);
    g_assert_cmpstr(rest, ==, "b c2 d e");
    /* The netdev takes its filters along; their ids are free. */
    g_assert_true(net_delete_netdev("n0", NULL));
    g_assert_null(object_child(qom_container("/objects"), "b"));
    s.n0 = test_client_new(NULL, "n0");
    filter_add(BUFFER("b", ""));
    net_client_delete(&n1->nc);
    setup_free(&s);
#undef BUFFER
}

static void test_info(void)
{
    Setup s = setup_new();
    net_set_info(&s.n0->nc, "x=y");
    filter_add("{'qom-type':'filter-buffer','id':'b','netdev':'n0','queue':'rx','interval':1000}");
    g_autoptr(GString) out = g_string_new(NULL);
    net_client_print(&s.n0->nc, out);
    g_assert_cmpstr(out->str, ==,
                    "n0: index=0,type=test,x=y\r\n"
                    "filters:\r\n"
                    "  - b: type=filter-buffer,interval=1000,position=tail,status=on,"
                    "insert=behind,netdev=n0,queue=rx\r\n");
    setup_free(&s);
}

static void test_wrong_options(void)
{
    Setup s = setup_new();
    int fd = chardev_pair("c0");
#define FILTER(type, more) "{'qom-type':'filter-" type "','id':'f'" more "}"
    filter_must_fail(FILTER("dump", ""), "Parameter 'netdev' is required");
    filter_must_fail(FILTER("dump", ",'netdev':'zz'"),
                     "Parameter 'netdev' expects a network backend id, not 'zz'");
    filter_must_fail(FILTER("dump", ",'netdev':'n0'"), "dump filter needs 'file' property set!");
    filter_must_fail(FILTER("dump", ",'netdev':'n0','file':'/nowhere/x'"),
                     "file=/nowhere/x: No such file or directory");
    filter_must_fail(FILTER("buffer", ",'netdev':'n0'"),
                     "Parameter 'interval' expects a non-zero interval");
    filter_must_fail(FILTER("mirror", ",'netdev':'n0'"),
                     "filter-mirror parameter 'outdev' cannot be empty");
    filter_must_fail(FILTER("mirror", ",'netdev':'n0','outdev':'zz'"), "Device 'zz' not found");
    filter_must_fail(FILTER("redirector", ",'netdev':'n0'"),
                     "filter redirector needs 'indev' or 'outdev' at least one property set");
    filter_must_fail(FILTER("redirector", ",'netdev':'n0','indev':'c0','outdev':'c0'"),
                     "'indev' and 'outdev' could not be same for filter redirector");
    filter_must_fail(FILTER("redirector", ",'netdev':'n0','indev':'zz','outdev':'c0'"),
                     "IN Device 'zz' not found");
    filter_must_fail(FILTER("redirector", ",'netdev':'n0','outdev':'zz'"),
                     "OUT Device 'zz' not found");
    filter_add("{'qom-type':'filter-mirror','id':'m','netdev':'n0','outdev':'c0'}");
    filter_must_fail(FILTER("mirror", ",'netdev':'n0','outdev':'c0'"),
                     "chardev 'c0' is already in use");
    g_assert_cmpuint(s.n0->nc.filters->len, ==, 1);
    GError *err = NULL;
    EventLoop *loop = event_loop_new_thread("io0", NULL);
    g_assert_false(net_client_set_loop(&s.n0->nc, loop, &err));
    g_assert_true(g_str_has_prefix(err->message, "netdev 'n0' has filters"));
    g_error_free(err);
    filter_del("m");
    s.n0->nc.loop = loop;
    filter_must_fail(FILTER("mirror", ",'netdev':'n0','outdev':'c0'"),
                     "netdev 'n0' is used with iothread=: filters work in the main loop only");
    s.n0->nc.loop = event_loop_main();
    event_loop_free(loop);
    close(fd);
    setup_free(&s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    clock_virtual_enable(true);
    qom_register_core_types();
    net_register_filter_types();
    tmpdir = g_dir_make_tmp("test-filter-XXXXXX", NULL);
    g_test_add_func("/filter/dump", test_dump);
    g_test_add_func("/filter/dump-vnet-header", test_dump_vnet_header);
    g_test_add_func("/filter/buffer", test_buffer);
    g_test_add_func("/filter/buffer-full", test_buffer_full);
    g_test_add_func("/filter/mirror", test_mirror);
    g_test_add_func("/filter/mirror-vnet-header", test_mirror_vnet_header);
    g_test_add_func("/filter/redirector-out", test_redirector_out);
    g_test_add_func("/filter/redirector-in", test_redirector_in);
    g_test_add_func("/filter/redirector-in-status", test_redirector_in_status);
    g_test_add_func("/filter/redirector-in-vnet-header", test_redirector_in_vnet_header);
    g_test_add_func("/filter/order", test_order);
    g_test_add_func("/filter/position", test_position);
    g_test_add_func("/filter/info", test_info);
    g_test_add_func("/filter/wrong-options", test_wrong_options);
    int rc = g_test_run();
    g_rmdir(tmpdir);
    g_free(tmpdir);
    return rc;
}
