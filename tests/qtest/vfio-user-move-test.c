/*
 * A driver's device moves from server to server, by device state that its client carries, with
 * frames in flight: published and not notified, notified and not sent, waiting for a transmit
 * timer, kept back by a slow peer.  Every frame leaves once and in order; buffers that were posted
 * before are filled afterwards.
 */
#include <string.h>

#include "tests/lib/vfio-user-rig.h"

#define SLOTS     64
#define SLOT_SIZE 2048
#define BUFFERS   20

/* Numbered frames, each way. */
typedef struct Traffic {
    VfioRig *rig;
    uint64_t tx_slots, rx_slots;
    uint32_t sent, left, returned; /* by the driver, by a server, to the driver */
    uint32_t posted, fed, arrived;
    size_t size; /* of a frame */
} Traffic;

static Traffic traffic_new(VfioRig *rig, size_t size)
{
    return (Traffic){
        .rig = rig,
        .tx_slots = rig_alloc(&rig->rig, SLOTS * SLOT_SIZE),
        .rx_slots = rig_alloc(&rig->rig, SLOTS * SLOT_SIZE),
        .size = size,
    };
}

/* @notify: the device has seen the notification when this returns. */
static void transmit(Traffic *t, unsigned count, bool notify)
{
    Rig *rig = &t->rig->rig;

    for (unsigned i = 0; i < count; i++) {
        uint64_t addr = t->tx_slots + t->sent % SLOTS * SLOT_SIZE;
        uint8_t *data = rig_at(rig, addr, SLOT_SIZE);
        const DriverSegment segment = {addr, (uint32_t)(RIG_HDR + t->size)};

        memset(data, 0, RIG_HDR);
        frame_fill(data + RIG_HDR, t->size, t->sent++);
        g_assert_cmpint(driver_queue_add(rig->tx, &segment, 1, 0, data), >=, 0);
    }
    driver_queue_publish(rig->tx);
    if (notify) {
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
    }
}

static void post(Traffic *t, unsigned count)
{
    Rig *rig = &t->rig->rig;

    for (unsigned i = 0; i < count; i++) {
        uint64_t addr = t->rx_slots + t->posted++ % SLOTS * SLOT_SIZE;
        const DriverSegment segment = {addr, SLOT_SIZE};

        g_assert_cmpint(driver_queue_add(rig->rx, &segment, 0, 1, rig_at(rig, addr, SLOT_SIZE)), >=,
                        0);
    }
    driver_queue_publish(rig->rx);
    virtio_driver_notify_sync(rig->virtio, RIG_RX);
}

/* Frames reach the driver through buffers posted before, with an interrupt. */
static void receive(Traffic *t, unsigned count)
{
    Rig *rig = &t->rig->rig;
    uint8_t frame[SLOT_SIZE];

    for (unsigned i = 0; i < count; i++) {
        frame_fill(frame, t->size, t->fed++);
        rig_peer_send(rig, frame, t->size);
    }
    for (unsigned i = 0; i < count; i++) {
        uint32_t len;
        uint8_t *data;

        while (!(data = driver_queue_take(rig->rx, &len))) {
            if (driver_queue_enable_interrupts(rig->rx)) {
                continue;
            }
            g_assert_true(virtio_driver_sleep(rig->virtio, 1, RIG_TIMEOUT_MS * 1000));
        }
        frame_fill(frame, t->size, t->arrived++);
        g_assert_cmpuint(len, ==, RIG_HDR + t->size);
        g_assert_cmpmem(data + RIG_HDR, t->size, frame, t->size);
    }
}

/* What comes out at @peer's server within @ms of the last: in order, none twice. */
static void drain(Traffic *t, Rig *peer, unsigned ms)
{
    uint8_t frame[SLOT_SIZE], got[SLOT_SIZE];
    size_t size;

    /* Behind the last one: nothing more. */
    while ((size = rig_peer_recv(peer, got, sizeof(got),
                                 t->left == t->sent ? MIN(ms, RIG_QUIET_MS) : ms))) {
        g_assert_cmpuint(t->left, <, t->sent);
        frame_fill(frame, t->size, t->left++);
        g_assert_cmpmem(got, size, frame, t->size);
    }
}

/* All frames leave, and all buffers come back. */
static void finish(Traffic *t)
{
    Rig *rig = &t->rig->rig;
    gint64 deadline;

    drain(t, rig, RIG_TIMEOUT_MS);
    g_assert_cmpuint(t->left, ==, t->sent);
    deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;
    while (t->returned < t->sent && g_get_monotonic_time() < deadline) {
        uint32_t len;

        if (driver_queue_take(rig->tx, &len)) {
            t->returned++;
        }
    }
    g_assert_cmpuint(t->returned, ==, t->sent);
    g_assert_false(rig->tx->broken || rig->rx->broken);
}

/* From @rig's server to @to's; @early: by way of PRE_COPY. */
static void move(VfioRig *rig, VfioRig *to, bool early, uint32_t chunk)
{
    g_autoptr(GByteArray) data = g_byte_array_new();
    VfioUserClient *next = vfio_rig_connect_other(rig, to);
    GError *err = NULL;

    if (early) {
        vfio_user_client_set_state(rig->client, VFIO_DEVICE_STATE_PRE_COPY, &err);
        vfio_user_client_save(rig->client, chunk, data, &err);
    }
    vfio_user_client_set_state(rig->client, VFIO_DEVICE_STATE_STOP_COPY, &err);
    vfio_user_client_save(rig->client, chunk, data, &err);
    vfio_user_client_set_state(next, VFIO_DEVICE_STATE_RESUMING, &err);
    vfio_user_client_load(next, chunk, data->data, data->len, &err);
    vfio_user_client_set_state(next, VFIO_DEVICE_STATE_STOP, &err);
    vfio_check(err, "move");
    vfio_rig_move(rig, to, next);
    vfio_user_client_set_state(rig->client, VFIO_DEVICE_STATE_RUNNING, &err);
    vfio_check(err, "RUNNING");
}

/* --- policies and ring layouts --- */

/* At the source a frame waits for ever, as far as a test is concerned. */
static const char *const sources[] = {"tx=bh", "tx=timer,x-txtimer=1000000000",
                                      "tx=flush-first,x-txtimer=1000000000", "tx=adaptive"};
static const char *const targets[] = {"tx=bh", "tx=timer,x-txtimer=2000000",
                                      "tx=flush-first,x-txtimer=2000000", "tx=adaptive"};

/* With eventfds every queue is notified once when the driver starts, at some moment. */
static char *device_of(const char *policy, bool packed)
{
    return g_strconcat(policy, ",ioeventfd=off", packed ? ",packed=on" : "", NULL);
}

static VfioRigConfig config_of(const char *policy, bool packed)
{
    VfioRigConfig config = {.rig.device = policy};

    config.rig.features =
        packed ? RIG_FEATURE(VIRTIO_F_RING_PACKED) : RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX);
    return config;
}

static void move_once(unsigned source, unsigned target, bool packed)
{
    g_autofree char *from = device_of(sources[source], packed);
    g_autofree char *where = device_of(targets[target], packed);
    const VfioRigConfig config = config_of(from, packed), next = config_of(where, packed);
    VfioRig *rig = vfio_rig_new(&config), *to = vfio_rig_open(&next);
    Traffic t = traffic_new(rig, 100);
    uint32_t left;

    post(&t, BUFFERS);
    receive(&t, 5);
    transmit(&t, 1, true);
    transmit(&t, 3, source == 0 || source == 3); /* a second notification ends a wait */
    transmit(&t, 2, false);
    move(rig, to, source % 2, 4096);
    drain(&t, &to->rig, 0);
    left = t.left;
    if (source == 1) {
        g_assert_cmpuint(left, ==, 0); /* all were waiting */
    } else if (source == 2) {
        g_assert_cmpuint(left, ==, 1); /* the first went at once */
    }
    if (source != 1) {
        virtio_driver_notify_sync(rig->rig.virtio, RIG_TX);
    }
    finish(&t);
    g_test_message("%s to %s: %u of %u frames left the source", from, where, left, t.sent);
    receive(&t, 10); /* buffers of before */
    post(&t, BUFFERS);
    transmit(&t, 4, true);
    finish(&t);
    receive(&t, 10);
    vfio_rig_free(to);
    vfio_rig_free(rig);
}

static void test_policies(const void *data)
{
    for (unsigned source = 0; source < G_N_ELEMENTS(sources); source++) {
        for (unsigned target = 0; target < G_N_ELEMENTS(targets); target++) {
            move_once(source, target, data != NULL);
        }
    }
}

/* The same rings go round many times, from one server to the next. */
static void test_many_times(const void *data)
{
    static const uint32_t chunks[] = {1000, 65536, 333, 1048576};
    VfioRigConfig config = config_of(data, !g_strcmp0(data, "packed=on"));

    config.rig.args = (const char *const[]){"-object", "iothread,id=io0", NULL};
    VfioRig *rig = vfio_rig_new(&config);
    Traffic t = traffic_new(rig, 300);

    post(&t, BUFFERS);
    for (unsigned i = 0; i < 15; i++) {
        VfioRig *to = vfio_rig_open(&config);

        transmit(&t, 17, true);
        move(rig, to, i % 2, chunks[i % G_N_ELEMENTS(chunks)]);
        drain(&t, &to->rig, 0);
        finish(&t);
        receive(&t, 19);
        post(&t, 19);
        vfio_rig_free(to);
    }
    g_assert_cmpuint(t.sent, ==, 15 * 17);
    vfio_rig_free(rig);
}

/* Frames that the source's peer did not take are the next server's, unless they had begun to go. */
static void test_slow_peer(void)
{
    const VfioRigConfig config = {.rig.sndbuf = 1};
    VfioRig *rig = vfio_rig_new(&config), *to = vfio_rig_open(&config);
    Traffic t = traffic_new(rig, 1400);
    uint32_t left;

    transmit(&t, 60, true);
    move(rig, to, false, 4096);
    drain(&t, &to->rig, RIG_QUIET_MS);
    left = t.left;
    g_assert_cmpuint(left, <, 60);
    finish(&t);
    g_test_message("%u frames left the source, %u the next server", left, t.left - left);
    vfio_rig_free(to);
    vfio_rig_free(rig);
}

/* Rings and buffers that the servers reach by messages: nothing of them is mapped in either. */
static void test_messages(void)
{
    const VfioRigConfig config = config_of(sources[0], false);
    VfioRig *rig = vfio_rig_open(&config), *to = vfio_rig_open(&config);
    const size_t size = rig->rig.ram->size;
    g_autoptr(GByteArray) data = g_byte_array_new();
    VfioUserClient *next = vfio_rig_connect(to);
    GError *err = NULL;

    vfio_rig_attach(rig, true);
    vfio_rig_share_by_messages(rig, 0);
    vfio_rig_start(rig);
    Traffic t = traffic_new(rig, 100);

    post(&t, BUFFERS);
    transmit(&t, 5, true);
    drain(&t, &rig->rig, 0);
    vfio_user_client_set_state(rig->client, VFIO_DEVICE_STATE_STOP_COPY, &err);
    vfio_user_client_save(rig->client, 4096, data, &err);
    vfio_user_client_map(next, 0, size, VFIO_RIG_RW, -1, 0, &err);
    vfio_user_client_set_memory(next, 0, size, rig->bus_view);
    vfio_user_client_set_state(next, VFIO_DEVICE_STATE_RESUMING, &err);
    vfio_user_client_load(next, 4096, data->data, data->len, &err);
    vfio_user_client_set_state(next, VFIO_DEVICE_STATE_STOP, &err);
    vfio_check(err, "move");
    drain(&t, &rig->rig, 0);
    vfio_rig_move(rig, to, next);
    vfio_user_client_set_state(rig->client, VFIO_DEVICE_STATE_RUNNING, &err);
    transmit(&t, 5, true);
    vfio_user_client_serve(rig->client, RIG_QUIET_MS, &err);
    vfio_check(err, "RUNNING");
    finish(&t);
    vfio_rig_free(to);
    vfio_rig_free(rig);
}

/* The source runs on when the other one will not have it; its frames are its own. */
static void test_given_up(void)
{
    g_autofree char *device = device_of(sources[1], false);
    const VfioRigConfig config = config_of(device, false);
    VfioRig *rig = vfio_rig_new(&config);
    Traffic t = traffic_new(rig, 100);
    g_autoptr(GByteArray) data = g_byte_array_new();
    GError *err = NULL;

    transmit(&t, 1, true);
    vfio_user_client_set_state(rig->client, VFIO_DEVICE_STATE_STOP_COPY, &err);
    vfio_user_client_save(rig->client, 4096, data, &err);
    vfio_user_client_set_state(rig->client, VFIO_DEVICE_STATE_RUNNING, &err);
    vfio_check(err, "state");
    transmit(&t, 1, true); /* the second notification */
    finish(&t);
    post(&t, BUFFERS);
    receive(&t, 5);
    vfio_rig_free(rig);
}

/* Features, RX filters and the rest that a driver set up by commands go along. */
static void test_registers(void)
{
    VfioRig *rig = vfio_rig_new(NULL), *to = vfio_rig_open(NULL);
    uint8_t before[256], after[256];
    GError *err = NULL;

    vfio_user_client_read(rig->client, VFIO_PCI_CONFIG_REGION_INDEX, 0, before, 256, &err);
    move(rig, to, true, 4096);
    vfio_user_client_read(rig->client, VFIO_PCI_CONFIG_REGION_INDEX, 0, after, 256, &err);
    vfio_check(err, "configuration space");
    g_assert_cmpmem(before, 256, after, 256);
    g_assert_cmpuint(virtio_driver_status(rig->rig.virtio), ==, 0xf);
    rig_expect_working(&rig->rig);
    vfio_rig_free(to);
    vfio_rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/vfio-user/move/policies/split", NULL, test_policies);
    g_test_add_data_func("/vfio-user/move/policies/packed", "packed", test_policies);
    g_test_add_data_func("/vfio-user/move/many-times/split", NULL, test_many_times);
    g_test_add_data_func("/vfio-user/move/many-times/iothread", "iothread=io0", test_many_times);
    g_test_add_data_func("/vfio-user/move/many-times/packed", "packed=on", test_many_times);
    g_test_add_func("/vfio-user/move/slow-peer", test_slow_peer);
    g_test_add_func("/vfio-user/move/memory-by-messages", test_messages);
    g_test_add_func("/vfio-user/move/given-up", test_given_up);
    g_test_add_func("/vfio-user/move/registers", test_registers);
    return g_test_run();
}
