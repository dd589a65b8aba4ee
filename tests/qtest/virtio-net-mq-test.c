/*
 * Several queue pairs on a real tap of several queues: which frames go where, by the kernel's
 * flows, by the indirection table, and what the kernel is told when pairs go out of use; and the
 * commands of interrupt coalescing and statistics, all through PCI and MSI-X.
 */
#include <stdio.h>
#include <string.h>

#include "hw/net/virtio-net-uapi.h"
#include "tests/lib/mq-rig.h"

#define HDR     RIG_HDR
#define WAIT_MS 2000
#define F(name) RIG_FEATURE(VIRTIO_NET_F_##name)
#define MQ      (F(CTRL_VQ) | F(MQ))

static const uint8_t guest_mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
static bool in_iothread; /* the queues have a thread of their own */

static MqRig *mq_open(const char *device, uint64_t features)
{
    static const char *const iothread[] = {"-object", "iothread,id=io0", NULL};
    g_autofree char *threaded = g_strconcat(device, ",iothread=io0", NULL);

    return mq_rig_open(MQ_NETDEV, in_iothread ? threaded : device, in_iothread ? iothread : NULL,
                       features);
}

/* Only the pairs in use get frames; the kernel spreads flows over their queues. */
static void test_flows(void)
{
    MqRig *m = mq_open("mq=on", MQ);
    unsigned got[MQ_PAIRS];

    g_assert_cmpuint(virtio_driver_config_read(m->rig->virtio, 2, 8), ==, MQ_PAIRS);
    mq_rig_post(m);
    mq_rig_send_flows(m, 20);
    mq_rig_count(m, 20, got);
    g_assert_cmpuint(got[0], ==, 20);
    g_assert_cmpuint(MQ_RUN(m, 4, 0, MQ_PAIRS, 0), ==, VIRTIO_NET_OK);
    mq_rig_send_flows(m, 40);
    mq_rig_count(m, 60, got);
    unsigned used = 0;
    for (unsigned pair = 0; pair < MQ_PAIRS; pair++) {
        used += got[pair] > (pair ? 0 : 20);
    }
    g_assert_cmpuint(used, >=, 2);
    g_assert_cmpuint(MQ_RUN(m, 4, 0, 1, 0), ==, VIRTIO_NET_OK);
    unsigned before = got[0];
    mq_rig_send_flows(m, 20);
    mq_rig_count(m, 80, got);
    g_assert_cmpuint(got[0], ==, before + 20);
    mq_rig_close(m);
}

/* A queue's thread interrupts after the used entry is there. */
static void wait_interrupt(VirtioDriver *virtio, unsigned vector)
{
    for (unsigned ms = 0; !virtio_driver_take_interrupt(virtio, vector); ms++) {
        g_assert_cmpuint(ms, <, WAIT_MS);
        g_usleep(1000);
    }
}

/* As many pairs as there can be: each sends, is steered to, and interrupts by its own vector. */
static void test_most_pairs(void)
{
    enum { MOST = 64 };
    static const char *const iothread[] = {"-object", "iothread,id=io0", NULL};
    DriverQueue *queues[2 * MOST + 1];
    g_autofree uint8_t *seen = g_malloc(WIRE_MAX);
    GError *err = NULL;
    MqRig m = {0};

    m.rig = rig_open(&(RigConfig){
        .netdev = TAP_RIG_NETDEV ",queues=64,vnet_hdr=on",
        .device = in_iothread ? "mq=on,rss=on,iothread=io0" : "mq=on,rss=on",
        .args = in_iothread ? iothread : NULL,
    });
    wire_open(&m.wire, TAP_RIG_IFNAME);
    VirtioDriver *virtio = m.rig->virtio;
    g_assert_true(virtio_driver_negotiate(virtio, MQ | F(RSS), &err));
    g_assert_cmpuint(virtio->queue_count, ==, 2 * MOST + 1);
    g_assert_cmpuint(virtio_driver_config_read(virtio, 2, 8), ==, MOST);
    g_assert_true(virtio_driver_setup_interrupts(virtio, 2 * MOST + 2, &err));
    g_assert_cmpuint(virtio->vectors, ==, 2 * MOST + 2);
    for (uint16_t i = 0; i <= 2 * MOST; i++) {
        queues[i] = virtio_driver_setup_queue(virtio, i, 0, (uint16_t)(i + 1), &err);
        g_assert_no_error(err);
    }
    m.queues[MQ_CTRL] = queues[2 * MOST];
    g_assert_true(virtio_driver_start(virtio, &err));
    g_assert_cmpuint(MQ_RUN(&m, VIRTIO_NET_CTRL_MQ, 0, MOST, 0), ==, VIRTIO_NET_OK);
    g_assert_cmpuint(MQ_RUN(&m, VIRTIO_NET_CTRL_MQ, 0, MOST + 1, 0), ==, VIRTIO_NET_ERR);
    for (uint16_t pair = 0; pair < MOST; pair++) {
        DriverQueue *rx = queues[2 * pair], *tx = queues[2 * pair + 1];
        uint64_t addr = rig_alloc(m.rig, 2048);
        struct virtio_net_hdr_v1 header;
        uint8_t frame[200];
        size_t size = mq_rig_frame(frame, pair);

        memcpy(rig_at(m.rig, addr + HDR, size), frame, size);
        ring_set(tx, 0, addr, (uint32_t)(HDR + size), 0, 0);
        ring_send(m.rig, tx, 0);
        ring_take(m.rig, tx);
        g_assert_cmpuint(wire_recv(&m.wire, &header, seen, WAIT_MS), ==, size);
        g_assert_cmpmem(seen, size, frame, size);

        g_assert_cmpuint(mq_rig_set_rss(&m, pair, MOST), ==, VIRTIO_NET_OK);
        ring_set(rx, 0, addr, 2048, VRING_DESC_F_WRITE, 0);
        ring_send(m.rig, rx, 0);
        header = (struct virtio_net_hdr_v1){0};
        wire_send(&m.wire, &header, frame, size);
        g_assert_cmpuint(ring_take(m.rig, rx).len, ==, HDR + size);
        g_assert_cmpmem(rig_at(m.rig, addr + HDR, size), size, frame, size);
        wait_interrupt(virtio, 2 * pair + 1);
        wait_interrupt(virtio, 2 * pair + 2);
        for (unsigned vector = 1; vector <= 2 * MOST; vector++) {
            g_assert_false(virtio_driver_take_interrupt(virtio, vector));
        }
    }
    wire_close(&m.wire);
    for (unsigned i = 0; i <= 2 * MOST; i++) {
        driver_queue_free(queues[i]);
    }
    rig_free(m.rig);
}

/* After a frame of a flow was sent from pair X, the flow's frames come to pair X. */
static void test_flow_follows_transmit(void)
{
    MqRig *m = mq_open("mq=on", MQ);
    unsigned got[MQ_PAIRS] = {0}, expected[MQ_PAIRS] = {0};
    const struct virtio_net_hdr_v1 header = {0};

    mq_rig_post(m);
    g_assert_cmpuint(MQ_RUN(m, 4, 0, MQ_PAIRS, 0), ==, VIRTIO_NET_OK);
    for (unsigned i = 0; i < 2 * MQ_PAIRS; i++) {
        unsigned pair = (i * 3 + 1) % MQ_PAIRS;
        uint8_t frame[200], reply[200], seen[WIRE_MAX];
        size_t size = mq_rig_frame(frame, 500 + i);
        uint64_t addr = rig_alloc(m->rig, HDR + size);
        struct virtio_net_hdr_v1 got_header;

        /* What the guest sends: the same flow, the other way round. */
        memcpy(reply, frame, size);
        memcpy(reply, frame + 6, 6);
        memcpy(reply + 6, frame, 6);
        memcpy(reply + 26, frame + 30, 4);
        memcpy(reply + 30, frame + 26, 4);
        memcpy(reply + 34, frame + 36, 2);
        memcpy(reply + 36, frame + 34, 2);
        memcpy(rig_at(m->rig, addr + HDR, size), reply, size);
        ring_set(m->queues[2 * pair + 1], 0, addr, (uint32_t)(HDR + size), 0, 0);
        ring_send(m->rig, m->queues[2 * pair + 1], 0);
        ring_take(m->rig, m->queues[2 * pair + 1]);
        g_assert_cmpuint(wire_recv(&m->wire, &got_header, seen, WAIT_MS), ==, size);

        wire_send(&m->wire, &header, frame, size);
        expected[pair]++;
        mq_rig_count(m, i + 1, got);
        g_assert_cmpuint(got[pair], ==, expected[pair]);
    }
    mq_rig_close(m);
}

/* The indirection table decides, whichever of the tap's queues a frame comes from; with the hash in
 * its header. */
static void test_rss(void)
{
    MqRig *m = mq_open("mq=on,rss=on,hash=on", MQ | F(RSS) | F(HASH_REPORT));
    unsigned got[MQ_PAIRS];

    mq_rig_post(m);
    g_assert_cmpuint(mq_rig_set_rss(m, 2, MQ_PAIRS), ==, VIRTIO_NET_OK);
    mq_rig_send_flows(m, 30);
    mq_rig_count(m, 30, got);
    g_assert_cmpuint(got[2], ==, 30);
    const uint8_t *hdr = rig_at(m->rig, m->buffers[2][0], MQ_BUFFER);
    g_assert_cmpuint(hdr[16], ==, VIRTIO_NET_HASH_REPORT_UDPv4);
    g_assert_cmpmem(hdr + 20, 6, guest_mac, 6);
    g_assert_cmpuint(mq_rig_set_rss(m, MQ_EVERY_PAIR, MQ_PAIRS), ==, VIRTIO_NET_OK);
    mq_rig_send_flows(m, 30);
    mq_rig_count(m, 60, got);
    for (unsigned pair = 0; pair < MQ_PAIRS; pair++) {
        g_assert_cmpuint(got[pair], >, pair == 2 ? 30 : 0);
    }
    mq_rig_close(m);
}

/* Interrupts by count, then by (stepped) time. */
static void test_coalescing(void)
{
    MqRig *m = mq_open("mq=on,notf_coal=on,vq_notf_coal=on", MQ | F(NOTF_COAL) | F(VQ_NOTF_COAL));
    VirtioDriver *virtio = m->rig->virtio;
    unsigned got[MQ_PAIRS];

    mq_rig_post(m);
    g_assert_cmpuint(MQ_RUN(m, 6, 1, 5, 0, 0, 0, 100, 0, 0, 0), ==, VIRTIO_NET_OK);
    mq_rig_send_flows(m, 4);
    mq_rig_count(m, 4, got);
    g_assert_false(virtio_driver_take_interrupt(virtio, 1));
    mq_rig_send_flows(m, 1);
    mq_rig_count(m, 5, got);
    g_assert_true(virtio_driver_take_interrupt(virtio, 1));
    mq_rig_send_flows(m, 1);
    mq_rig_count(m, 6, got);
    g_assert_false(virtio_driver_take_interrupt(virtio, 1));
    qtest_client_clock_step(m->rig->qtest, 99999);
    g_assert_false(virtio_driver_take_interrupt(virtio, 1));
    qtest_client_clock_step(m->rig->qtest, 1);
    g_assert_true(virtio_driver_take_interrupt(virtio, 1));
    mq_rig_close(m);
}

static void test_device_stats(void)
{
    static const uint8_t get[] = {8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    MqRig *m = mq_open("mq=on,device_stats=on", MQ | F(DEVICE_STATS));
    unsigned got[MQ_PAIRS];
    uint8_t answer[1 + 56];
    uint64_t packets;

    mq_rig_post(m);
    mq_rig_send_flows(m, 7);
    mq_rig_count(m, 7, got);
    g_assert_cmpuint(mq_rig_command(m, get, sizeof(get), answer, sizeof(answer)), ==,
                     VIRTIO_NET_OK);
    memcpy(&packets, answer + 1 + 8 + 8, 8);
    g_assert_cmpuint(packets, ==, 7);
    mq_rig_close(m);
}

typedef struct MqTest {
    void (*run)(void);
    bool iothread;
} MqTest;

static void run_test(const void *opaque)
{
    const MqTest *test = opaque;

    in_iothread = test->iothread;
    test->run();
}

static void add(const char *path, void (*run)(void), bool iothread)
{
    MqTest *test = g_new(MqTest, 1);

    *test = (MqTest){run, iothread};
    g_test_add_data_func_full(path, test, run_test, g_free);
}

int main(int argc, char **argv)
{
    g_autofree char *reason = NULL;

    g_test_init(&argc, &argv, NULL);
    if (!wire_enter(&reason)) {
        printf("1..0 # SKIP no taps here: %s\n", reason);
        return 0;
    }
    add("/mq/flows-over-pairs-in-use", test_flows, false);
    add("/mq/flow-follows-transmit", test_flow_follows_transmit, false);
    add("/mq/64-pairs", test_most_pairs, false);
    add("/mq/iothread/64-pairs", test_most_pairs, true);
    add("/mq/rss-and-hash", test_rss, false);
    add("/mq/coalescing", test_coalescing, false);
    add("/mq/device-stats", test_device_stats, false);
    add("/mq/iothread/flows-over-pairs-in-use", test_flows, true);
    add("/mq/iothread/rss-and-hash", test_rss, true);
    add("/mq/iothread/coalescing", test_coalescing, true);
    add("/mq/iothread/device-stats", test_device_stats, true);
    return g_test_run();
}
