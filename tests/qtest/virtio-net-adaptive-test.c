/*
 * tx=adaptive and the settings of tx= at run time, on the device, under a stepped clock; and what
 * query-virtio-net-stats counts.
 */
#include <json-c/json.h>
#include <string.h>

#include "tests/lib/rig.h"

#define LATENCY_NS 50000 /* x-txlatency's default */
#define FRAME_SIZE 100

static void publish(Rig *rig, unsigned seed)
{
    uint64_t addr = rig_alloc(rig, RIG_HDR + FRAME_SIZE);
    uint16_t at = (uint16_t)(seed % rig->tx->size);

    frame_fill(rig_at(rig, addr + RIG_HDR, FRAME_SIZE), FRAME_SIZE, seed);
    ring_set(rig->tx, at, addr, RIG_HDR + FRAME_SIZE, 0, 0);
    ring_offer(rig->tx, at);
    ring_publish(rig->tx);
}

static bool notifications_on(Rig *rig)
{
    return !(rig->tx->used->flags & VRING_USED_F_NO_NOTIFY);
}

static void step(Rig *rig, int64_t ns)
{
    qtest_client_clock_step(rig->qtest, ns);
    rig_settle(rig);
}

/* Sends frame @seed as a driver does; true: with a notification. */
static bool send_frame(Rig *rig, unsigned seed)
{
    bool on = notifications_on(rig);

    publish(rig, seed);
    if (on) {
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
    }
    rig_settle(rig);
    return on;
}

static void expect_frame(Rig *rig, unsigned seed)
{
    uint8_t frame[FRAME_SIZE];

    frame_fill(frame, sizeof(frame), seed);
    rig_peer_expect(rig, frame, sizeof(frame));
}

static void set(Rig *rig, const char *property, const char *value)
{
    g_autofree char *text = g_strdup_printf(
        "{\"path\": \"nic0\", \"property\": \"%s\", \"value\": %s}", property, value);
    json_object *args = json_tokener_parse(text);
    GError *err = NULL;

    json_object_put(qmp_client_execute(rig->qmp, "qom-set", args, &err));
    g_assert_no_error(err);
}

static Rig *open_nic(const char *device)
{
    g_autofree char *all = g_strdup_printf("id=nic0,%s", device);

    return rig_new(&(RigConfig){.device = all, .tx_size = 256});
}

/* The first device's first queue; g_free nothing, json_object_put(*all). */
static json_object *stats(Rig *rig, json_object **all)
{
    GError *err = NULL;

    *all = qmp_client_execute(rig->qmp, "query-virtio-net-stats", NULL, &err);
    g_assert_no_error(err);
    json_object *device = json_object_array_get_idx(*all, 0);
    g_assert_cmpstr(json_object_get_string(json_object_object_get(device, "name")), ==, "nic0");
    return json_object_array_get_idx(json_object_object_get(device, "queues"), 0);
}

static int64_t number(json_object *object, const char *key)
{
    return json_object_get_int64(json_object_object_get(object, key));
}

static void test_idle(void)
{
    Rig *rig = open_nic("tx=adaptive");

    for (unsigned i = 0; i < 10; i++) {
        g_assert_true(send_frame(rig, i));
        g_assert_cmpuint(ring_used_count(rig->tx), ==, i + 1); /* the clock stands still */
        g_assert_true(notifications_on(rig));
        expect_frame(rig, i);
        step(rig, 1000000);
    }
    rig_free(rig);
}

static void test_busy(void)
{
    Rig *rig = open_nic("tx=adaptive");
    json_object *all, *tx;
    unsigned told = 0;

    for (unsigned i = 0; i < 200; i++) {
        told += send_frame(rig, i);
        step(rig, 2000);
    }
    step(rig, LATENCY_NS);
    g_assert_cmpuint(told, <, 40);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 200);
    for (unsigned i = 0; i < 200; i++) {
        expect_frame(rig, i);
    }
    tx = json_object_object_get(stats(rig, &all), "tx");
    g_assert_cmpint(number(tx, "packets"), ==, 200);
    g_assert_cmpint(number(tx, "bytes"), ==, 200 * FRAME_SIZE);
    g_assert_cmpint(number(tx, "notifications"), ==, told);
    g_assert_cmpint(number(tx, "notifications-spurious"), ==, 0);
    g_assert_cmpint(number(json_object_object_get(tx, "adaptive"), "holds"), >, 0);
    g_assert_cmpint(number(json_object_object_get(tx, "flushes"), "timer"), >, 0);
    g_assert_cmpint(number(json_object_object_get(tx, "flushes"), "notify"), ==, told);
    json_object_put(all);

    /* The stream is over: the next one goes at once. */
    step(rig, 20 * LATENCY_NS);
    g_assert_true(notifications_on(rig));
    rig_free(rig);
}

/* Nothing waits for longer than x-txlatency, whatever it is. */
static void test_bound(void)
{
    static const int64_t latencies[] = {5000, 50000, 400000};

    for (unsigned l = 0; l < G_N_ELEMENTS(latencies); l++) {
        g_autofree char *device = g_strdup_printf("tx=adaptive,x-txlatency=%d", (int)latencies[l]);
        Rig *rig = open_nic(device);
        int64_t waited = 0;

        for (unsigned i = 0; i < 240; i++) {
            int64_t gap = i % 60 < 50 ? latencies[l] / 25 : latencies[l] * 2;

            send_frame(rig, i);
            step(rig, gap);
            waited = ring_used_count(rig->tx) == i + 1 ? 0 : waited + gap;
            g_assert_cmpint(waited, <=, latencies[l]);
        }
        rig_free(rig);
    }
}

/* Each setting changes while packets are on their way; none is lost, late or out of order. */
static void test_settings_change(void)
{
    static const struct {
        const char *property, *value;
    } changes[] = {{"tx", "\"timer\""},     {"x-txtimer", "20000"}, {"tx", "\"adaptive\""},
                   {"x-txlatency", "9000"}, {"x-txburst", "2"},     {"tx", "\"flush-first\""},
                   {"x-txburst", "64"},     {"tx", "\"bh\""},       {"tx", "\"adaptive\""},
                   {"x-txtimer", "70000"},  {"tx", "\"\""}};
    Rig *rig = open_nic("tx=bh");

    for (unsigned i = 0; i < 220; i++) {
        send_frame(rig, i);
        step(rig, 3000);
        if (i % 20 == 10) {
            set(rig, changes[i / 20].property, changes[i / 20].value);
            rig_settle(rig);
        }
    }
    step(rig, 200000);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 220);
    for (unsigned i = 0; i < 220; i++) {
        expect_frame(rig, i);
    }
    g_assert_true(notifications_on(rig));
    rig_free(rig);
}

static void test_settings_take_effect(void)
{
    Rig *rig = open_nic("tx=timer");

    set(rig, "x-txtimer", "40000");
    send_frame(rig, 0);
    step(rig, 39999);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
    step(rig, 1);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 1);
    send_frame(rig, 1);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 1);
    set(rig, "tx", "\"bh\""); /* what waits for the timer goes at once */
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 2);
    send_frame(rig, 2);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 3);
    rig_free(rig);
}

static void test_bad_settings(void)
{
    static const char *const bad[][2] = {{"tx", "\"never\""},
                                         {"tx", "7"},
                                         {"x-txburst", "0"},
                                         {"x-txtimer", "-1"},
                                         {"x-txlatency", "4294967296"}};
    Rig *rig = open_nic("tx=adaptive");

    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *text = g_strdup_printf(
            "{\"path\": \"nic0\", \"property\": \"%s\", \"value\": %s}", bad[i][0], bad[i][1]);
        g_autoptr(GError) err = NULL;
        json_object *ret = qmp_client_execute(rig->qmp, "qom-set", json_tokener_parse(text), &err);

        g_assert_null(ret);
        g_assert_nonnull(err);
        g_assert_nonnull(strstr(err->message, bad[i][0]));
    }
    g_assert_true(send_frame(rig, 0));
    expect_frame(rig, 0);
    rig_free(rig);
}

static void test_waits(void)
{
    Rig *rig = open_nic("tx=timer");
    json_object *all, *queue, *tx, *waits;

    send_frame(rig, 0);
    step(rig, 100000);
    publish(rig, 1); /* first seen when the timer runs */
    step(rig, 50000);
    queue = stats(rig, &all);
    tx = json_object_object_get(queue, "tx");
    g_assert_cmpint(number(tx, "wait-ns"), ==, 150000);
    g_assert_cmpint(number(tx, "wait-max-ns"), ==, 150000);
    g_assert_cmpint(number(tx, "notifications-suppressed"), ==, 1);
    g_assert_cmpint(number(json_object_object_get(tx, "flushes"), "timer"), ==, 1);
    g_assert_null(json_object_object_get(tx, "adaptive"));
    g_assert_cmpstr(json_object_get_string(json_object_object_get(tx, "policy")), ==, "timer");
    waits = json_object_object_get(tx, "waits");
    g_assert_cmpuint(json_object_array_length(waits), ==, 2);
    g_assert_cmpint(number(json_object_array_get_idx(waits, 0), "upto"), ==, 255);
    g_assert_cmpint(number(json_object_array_get_idx(waits, 1), "upto"), ==, 196607);
    g_assert_cmpint(
        number(json_object_array_get_idx(json_object_object_get(tx, "flush-sizes"), 0), "upto"), ==,
        2);
    g_assert_cmpint(number(queue, "time-ns"), ==, 150000);
    json_object_put(all);
    rig_free(rig);
}

static void test_by_name(void)
{
    Rig *rig = open_nic("tx=bh");
    g_autoptr(GError) err = NULL;
    json_object *ret;

    ret = qmp_client_execute(rig->qmp, "query-virtio-net-stats",
                             json_tokener_parse("{\"name\": \"nic0\"}"), &err);
    g_assert_no_error(err);
    g_assert_cmpuint(json_object_array_length(ret), ==, 1);
    json_object_put(ret);
    ret = qmp_client_execute(rig->qmp, "query-virtio-net-stats",
                             json_tokener_parse("{\"name\": \"n0\"}"), &err);
    g_assert_null(ret);
    g_assert_nonnull(strstr(err->message, "'n0'"));
    rig_free(rig);
}

/* Readers and settings meet a queue that runs in a thread of its own. */
static void test_iothread(void)
{
    static const char *const args[] = {"-object", "iothread,id=io0", NULL};
    static const char *const policies[] = {"\"adaptive\"", "\"timer\"", "\"bh\"",
                                           "\"flush-first\""};
    Rig *rig = rig_new(&(RigConfig){.device = "id=nic0,iothread=io0,tx=adaptive,x-txtimer=20000",
                                    .args = args,
                                    .tx_size = 256});

    for (unsigned i = 0; i < 240; i++) {
        json_object *all;

        send_frame(rig, i);
        if (i % 8 == 0) {
            set(rig, "tx", policies[i / 8 % G_N_ELEMENTS(policies)]);
        }
        stats(rig, &all);
        json_object_put(all);
        step(rig, 3000);
    }
    step(rig, 100000);
    g_assert_true(ring_wait_used(rig, rig->tx, 240, RIG_TIMEOUT_MS));
    for (unsigned i = 0; i < 240; i++) {
        expect_frame(rig, i);
    }
    rig_free(rig);
}

/* The same counters in the general interface. */
static void test_query_stats(void)
{
    Rig *rig = open_nic("tx=timer");
    g_autoptr(GError) err = NULL;
    json_object *ret, *list;
    unsigned found = 0;

    send_frame(rig, 0);
    step(rig, 150000);
    ret = qmp_client_execute(rig->qmp, "query-stats",
                             json_tokener_parse("{\"target\": \"device\"}"), &err);
    g_assert_no_error(err);
    list = json_object_object_get(json_object_array_get_idx(ret, 0), "stats");
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *entry = json_object_array_get_idx(list, i);
        const char *name = json_object_get_string(json_object_object_get(entry, "name"));
        int64_t value = number(entry, "value");

        if (!strcmp(name, "tx-wait-ns")) {
            g_assert_cmpint(value, ==, 150000);
            found++;
        } else if (!strcmp(name, "tx-flushes-timer") || !strcmp(name, "tx-notifications")) {
            g_assert_cmpint(value, ==, 1);
            found++;
        }
    }
    g_assert_cmpuint(found, ==, 3);
    json_object_put(ret);
    rig_free(rig);
}

static void test_hmp(void)
{
    Rig *rig = open_nic("tx=adaptive");
    GError *err = NULL;
    json_object *ret;
    const char *text;

    send_frame(rig, 0);
    ret = qmp_client_execute(rig->qmp, "human-monitor-command",
                             json_tokener_parse("{\"command-line\": \"info virtio-net\"}"), &err);
    g_assert_no_error(err);
    text = json_object_get_string(ret);
    g_assert_nonnull(strstr(text, "nic0: /machine/peripheral/nic0/virtio-backend\r\n"));
    g_assert_nonnull(strstr(text, "tx=adaptive: 1 packets, 100 bytes\r\n"));
    g_assert_nonnull(strstr(text, "flushes: notify 1, bh 0,"));
    json_object_put(ret);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtio-net-adaptive/idle-flushes-at-once", test_idle);
    g_test_add_func("/virtio-net-adaptive/busy-is-held", test_busy);
    g_test_add_func("/virtio-net-adaptive/bound-holds", test_bound);
    g_test_add_func("/virtio-net-adaptive/settings-change-under-traffic", test_settings_change);
    g_test_add_func("/virtio-net-adaptive/settings-take-effect", test_settings_take_effect);
    g_test_add_func("/virtio-net-adaptive/bad-settings-are-refused", test_bad_settings);
    g_test_add_func("/virtio-net-adaptive/in-an-iothread", test_iothread);
    g_test_add_func("/virtio-net-stats/waits", test_waits);
    g_test_add_func("/virtio-net-stats/by-name", test_by_name);
    g_test_add_func("/virtio-net-stats/query-stats", test_query_stats);
    g_test_add_func("/virtio-net-stats/hmp", test_hmp);
    return g_test_run();
}
