/*
 * What the tests of net back ends share: a client that plays the device, counts on frames and
 * can be full; options from JSON with single quotes; running the loop.
 */
#ifndef TESTS_UNIT_NET_TEST_UTIL_H
#define TESTS_UNIT_NET_TEST_UTIL_H

#include <string.h>

#include "net/net.h"
#include "util/error.h"
#include "util/iov.h"
#include "util/json.h"

#define TEST_FRAME_MIN 60

/* Frame i starts with i and is TEST_FRAME_MIN + i * 37 % spread bytes long. */
typedef struct TestClient {
    NetClient nc;
    unsigned room;  /* frames it still takes */
    GPtrArray *got; /* of GBytes */
    unsigned sent, to_send;
    unsigned spread;
} TestClient;

static inline size_t test_frame_size(const TestClient *c, unsigned i)
{
    return TEST_FRAME_MIN + (c->spread ? (uint64_t)i * 37 % c->spread : 0);
}

static inline void test_frame_fill(uint8_t *data, size_t size, uint32_t i)
{
    memset(data, (int)(i * 7 + 1), size);
    memcpy(data, &i, sizeof(i));
}

static inline unsigned test_client_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    TestClient *c = (TestClient *)nc;
    unsigned taken = MIN(n, c->room);
    for (unsigned i = 0; i < taken; i++) {
        uint8_t *data = g_malloc(MAX(pkts[i].size, 1));
        iov_to_buf(pkts[i].iov, pkts[i].iovcnt, 0, data, pkts[i].size);
        g_ptr_array_add(c->got, g_bytes_new_take(data, pkts[i].size));
    }
    c->room -= taken;
    return taken;
}

static inline bool test_client_can_receive(NetClient *nc)
{
    return ((TestClient *)nc)->room > 0;
}

/* Sends up to frame @to_send, 50 a batch and three pieces a frame, until the peer takes no more. */
static inline void test_client_send(TestClient *c)
{
    while (c->sent < c->to_send) {
        NetPacket pkts[50];
        struct iovec iov[50][3];
        unsigned n = MIN(50, c->to_send - c->sent);
        g_autoptr(GPtrArray) data = g_ptr_array_new_with_free_func(g_free);
        for (unsigned i = 0; i < n; i++) {
            size_t size = test_frame_size(c, c->sent + i);
            uint8_t *frame = g_malloc(size);
            test_frame_fill(frame, size, c->sent + i);
            g_ptr_array_add(data, frame);
            iov[i][0] = (struct iovec){frame, 10};
            iov[i][1] = (struct iovec){frame + 10, 0};
            iov[i][2] = (struct iovec){frame + 10, size - 10};
            pkts[i] = (NetPacket){iov[i], 3, size};
        }
        unsigned taken = net_send_batch(&c->nc, pkts, n);
        c->sent += taken;
        if (taken < n) {
            return;
        }
    }
}

static inline void test_client_writable(NetClient *nc)
{
    test_client_send((TestClient *)nc);
}

static inline void test_client_cleanup(NetClient *nc)
{
    g_ptr_array_unref(((TestClient *)nc)->got);
}

static inline TestClient *test_client_new(NetClient *peer, const char *name)
{
    static const NetClientOps ops = {
        .type = "test",
        .instance_size = sizeof(TestClient),
        .receive_batch = test_client_receive,
        .can_receive = test_client_can_receive,
        .peer_writable = test_client_writable,
        .cleanup = test_client_cleanup,
    };
    TestClient *c = (TestClient *)net_client_new(&ops, peer, "test", name);
    c->got = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    return c;
}

static inline void test_client_give_room(TestClient *c, unsigned room)
{
    c->room = room;
    net_peer_writable(&c->nc);
}

static inline void assert_frames_in_order(const TestClient *c, unsigned n)
{
    g_assert_cmpuint(c->got->len, ==, n);
    for (unsigned i = 0; i < n; i++) {
        size_t size;
        const uint8_t *data = g_bytes_get_data(c->got->pdata[i], &size);
        uint32_t value;
        g_assert_cmpuint(size, >=, sizeof(value));
        memcpy(&value, data, sizeof(value));
        g_assert_cmpuint(value, ==, i);
        g_assert_cmpuint(size, ==, test_frame_size(c, i));
        g_autofree uint8_t *expected = g_malloc(size);
        test_frame_fill(expected, size, i);
        g_assert_true(memcmp(data, expected, size) == 0);
    }
}

static inline json_object *quoted(const char *text)
{
    g_autofree char *json = g_strdelimit(g_strdup(text), "'", '"');
    json_object *options = json_parse(json, NULL);
    g_assert_nonnull(options);
    return options;
}

static inline void netdev_must_init(const char *text)
{
    json_object *options = quoted(text);
    GError *err = NULL;
    if (!net_init_netdev(options, &err)) {
        g_error("%s: %s", text, err->message);
    }
    json_object_put(options);
}

/* The same with a formatted text. */
static inline void netdev_must_initf(const char *fmt, ...) G_GNUC_PRINTF(1, 2);
static inline void netdev_must_initf(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    netdev_must_init(text);
}

/* The message must start with @message and be one line. */
static inline void netdev_must_fail(const char *text, const char *message)
{
    json_object *options = quoted(text);
    GError *err = NULL;
    g_assert_false(net_init_netdev(options, &err));
    if (!g_str_has_prefix(err->message, message)) {
        g_error("%s: '%s' is not '%s…'", text, err->message, message);
    }
    g_assert_null(strchr(err->message, '\n'));
    g_error_free(err);
    json_object_put(options);
}

/* A loop with hooks (user networking) is never seen idle: then a thousand rounds are enough. */
static inline void run_loop_until_idle(void)
{
    for (unsigned idle = 0, rounds = 0; idle < 3 && rounds < 1000; rounds++) {
        idle = event_loop_run_once(event_loop_main(), false) ? 0 : idle + 1;
    }
}

/* Runs the loop until @cond holds; fails after five seconds. */
#define RUN_LOOP_WHILE(cond)                                                                       \
    do {                                                                                           \
        int64_t end_ = g_get_monotonic_time() + 5 * G_USEC_PER_SEC;                                \
        while (cond) {                                                                             \
            if (!event_loop_run_once(event_loop_main(), false)) {                                  \
                g_usleep(200);                                                                     \
            }                                                                                      \
            if (g_get_monotonic_time() > end_) {                                                   \
                g_error("%s:%d: still true after 5 s: %s", __FILE__, __LINE__, #cond);             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#endif
