/*
 * Several queue pairs on a real tap of several queues: which frames go where, by the kernel's
 * flows, by the indirection table, and what the kernel is told when pairs go out of use; and the
 * commands of interrupt coalescing and statistics, all through PCI and MSI-X.
 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <string.h>

#include "hw/net/virtio-net-uapi.h"
#include "tests/lib/tap-rig.h"

#define PAIRS     4
#define CTRL      (2 * PAIRS)
#define HDR       RIG_HDR
#define BUF       2048u
#define FRAMES    64
#define WAIT_MS   2000
#define MQ_NETDEV TAP_RIG_NETDEV ",queues=4,vnet_hdr=on"
#define F(name)   RIG_FEATURE(VIRTIO_NET_F_##name)
#define MQ        (F(CTRL_VQ) | F(MQ))
#define KEY_LEN   40

static const uint8_t guest_mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

typedef struct MqRig {
    Rig *rig;
    Wire wire;
    DriverQueue *queues[2 * PAIRS + 1];
    uint64_t buffers[PAIRS][FRAMES];
    uint16_t posted[PAIRS];
} MqRig;

static void fail_on(GError *err, const char *what)
{
    if (err) {
        g_error("%s: %s", what, err->message);
    }
}

static bool in_iothread; /* the queues have a thread of their own */

static MqRig *mq_open(const char *netdev, const char *device, uint64_t features)
{
    MqRig *m = g_new0(MqRig, 1);
    GError *err = NULL;
    VirtioDriver *virtio;

    static const char *const iothread[] = {"-object", "iothread,id=io0", NULL};
    g_autofree char *threaded = g_strconcat(device, ",iothread=io0", NULL);

    m->rig = rig_open(&(RigConfig){.netdev = netdev,
                                   .device = in_iothread ? threaded : device,
                                   .args = in_iothread ? iothread : NULL});
    wire_open(&m->wire, TAP_RIG_IFNAME);
    virtio = m->rig->virtio;
    virtio_driver_negotiate(virtio, features | F(MAC) | F(STATUS), &err);
    fail_on(err, "negotiation");
    virtio_driver_setup_interrupts(virtio, 2 * PAIRS + 2, &err);
    fail_on(err, "MSI-X");
    g_assert_cmpuint(virtio->vectors, ==, 2 * PAIRS + 2); /* as many as there are by default */
    for (uint16_t i = 0; i <= CTRL; i++) {
        m->queues[i] = virtio_driver_setup_queue(virtio, i, 0, (uint16_t)(i + 1), &err);
        fail_on(err, "queue");
    }
    virtio_driver_start(virtio, &err);
    fail_on(err, "DRIVER_OK");
    return m;
}

static void mq_close(MqRig *m)
{
    wire_close(&m->wire);
    for (unsigned i = 0; i <= CTRL; i++) {
        driver_queue_free(m->queues[i]);
    }
    rig_free(m->rig);
    g_free(m);
}

static uint8_t command(MqRig *m, const void *bytes, size_t size, void *answer, uint32_t room)
{
    uint64_t addr = rig_alloc(m->rig, size), reply = rig_alloc(m->rig, room);
    const RingPart parts[] = {{addr, (uint32_t)size, 0}, {reply, room, VRING_DESC_F_WRITE}};

    memcpy(rig_at(m->rig, addr, size), bytes, size);
    ring_chain(m->queues[CTRL], 0, parts, 2);
    ring_send(m->rig, m->queues[CTRL], 0);
    ring_take(m->rig, m->queues[CTRL]);
    memcpy(answer, rig_at(m->rig, reply, room), room);
    return *(uint8_t *)answer;
}

#define RUN(m, ...)                                                                                \
    ({                                                                                             \
        const uint8_t bytes_[] = {__VA_ARGS__};                                                    \
        uint8_t ack_;                                                                              \
        command(m, bytes_, sizeof(bytes_), &ack_, 1);                                              \
    })

static void post_all(MqRig *m)
{
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        for (uint16_t i = 0; i < FRAMES; i++) {
            uint64_t addr = rig_alloc(m->rig, BUF);

            m->buffers[pair][i] = addr;
            ring_set(m->queues[2 * pair], i, addr, BUF, VRING_DESC_F_WRITE, 0);
            ring_offer(m->queues[2 * pair], i);
        }
        ring_publish(m->queues[2 * pair]);
        virtio_driver_notify_sync(m->rig->virtio, (uint16_t)(2 * pair));
    }
}

/* A UDP frame for the guest whose flow is @flow. */
static size_t udp_frame(uint8_t *frame, unsigned flow)
{
    static const FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17, .payload = 64};
    BuiltFrame built;
    size_t size;
    uint32_t sum;

    frame_build(&built, &spec, guest_mac);
    size = built.size;
    memcpy(frame, built.bytes, size);
    sum = (uint16_t) ~(frame[40] << 8 | frame[41]);
    sum += (uint16_t) ~(frame[34] << 8 | frame[35]);
    frame[34] = (uint8_t)((30000 + flow) >> 8);
    frame[35] = (uint8_t)(30000 + flow);
    sum += 30000 + flow;
    sum = (uint16_t)~frame_fold(sum);
    frame[40] = (uint8_t)(sum >> 8);
    frame[41] = (uint8_t)sum;
    frame_clear(&built);
    return size;
}

/* How many frames each pair has got, of @total that must come. */
static void count_received(MqRig *m, unsigned total, unsigned got[PAIRS])
{
    unsigned sum = 0;

    for (unsigned wait = 0; sum < total && wait < 200; wait++) {
        g_usleep(10000);
        rig_settle(m->rig);
        sum = 0;
        for (unsigned pair = 0; pair < PAIRS; pair++) {
            got[pair] = ring_used_count(m->queues[2 * pair]);
            sum += got[pair];
        }
    }
    g_assert_cmpuint(sum, ==, total);
}

static void send_flows(MqRig *m, unsigned flows)
{
    const struct virtio_net_hdr_v1 header = {0};
    uint8_t frame[200];

    for (unsigned flow = 0; flow < flows; flow++) {
        size_t size = udp_frame(frame, flow);

        wire_send(&m->wire, &header, frame, size);
    }
}

/* Only the pairs in use get frames; the kernel spreads flows over their queues. */
static void test_flows(void)
{
    MqRig *m = mq_open(MQ_NETDEV, "mq=on", MQ);
    unsigned got[PAIRS];

    g_assert_cmpuint(virtio_driver_config_read(m->rig->virtio, 2, 8), ==, PAIRS);
    post_all(m);
    send_flows(m, 20);
    count_received(m, 20, got);
    g_assert_cmpuint(got[0], ==, 20);
    g_assert_cmpuint(RUN(m, 4, 0, PAIRS, 0), ==, VIRTIO_NET_OK);
    send_flows(m, 40);
    count_received(m, 60, got);
    unsigned used = 0;
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        used += got[pair] > (pair ? 0 : 20);
    }
    g_assert_cmpuint(used, >=, 2);
    g_assert_cmpuint(RUN(m, 4, 0, 1, 0), ==, VIRTIO_NET_OK);
    unsigned before = got[0];
    send_flows(m, 20);
    count_received(m, 80, got);
    g_assert_cmpuint(got[0], ==, before + 20);
    mq_close(m);
}

/* After a frame of a flow was sent from pair X, the flow's frames come to pair X. */
static void test_flow_follows_transmit(void)
{
    MqRig *m = mq_open(MQ_NETDEV, "mq=on", MQ);
    unsigned got[PAIRS] = {0}, expected[PAIRS] = {0};
    const struct virtio_net_hdr_v1 header = {0};

    post_all(m);
    g_assert_cmpuint(RUN(m, 4, 0, PAIRS, 0), ==, VIRTIO_NET_OK);
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        unsigned pair = (i * 3 + 1) % PAIRS;
        uint8_t frame[200], reply[200], seen[WIRE_MAX];
        size_t size = udp_frame(frame, 500 + i);
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
        count_received(m, i + 1, got);
        g_assert_cmpuint(got[pair], ==, expected[pair]);
    }
    mq_close(m);
}

static size_t rss_command(uint8_t *bytes, unsigned queue)
{
    uint8_t *p = bytes;

    *p++ = VIRTIO_NET_CTRL_MQ;
    *p++ = VIRTIO_NET_CTRL_MQ_RSS_CONFIG;
    memcpy(p, "\xff\1\0\0\x7f\0\0\0", 8);
    p += 8;
    for (unsigned i = 0; i < 128; i++) {
        *p++ = (uint8_t)(queue == PAIRS ? i % PAIRS : queue);
        *p++ = 0;
    }
    memcpy(p, "\4\0\x28", 3);
    p += 3;
    for (unsigned i = 0; i < KEY_LEN; i++) {
        *p++ = (uint8_t)(i * 37 + 11);
    }
    return (size_t)(p - bytes);
}

/* The indirection table decides, whichever of the tap's queues a frame comes from; with the hash in
 * its header. */
static void test_rss(void)
{
    MqRig *m = mq_open(MQ_NETDEV, "mq=on,rss=on,hash=on", MQ | F(RSS) | F(HASH_REPORT));
    unsigned got[PAIRS];
    uint8_t bytes[512], ack;

    post_all(m);
    g_assert_cmpuint(command(m, bytes, rss_command(bytes, 2), &ack, 1), ==, VIRTIO_NET_OK);
    send_flows(m, 30);
    count_received(m, 30, got);
    g_assert_cmpuint(got[2], ==, 30);
    const uint8_t *hdr = rig_at(m->rig, m->buffers[2][0], BUF);
    g_assert_cmpuint(hdr[16], ==, VIRTIO_NET_HASH_REPORT_UDPv4);
    g_assert_cmpmem(hdr + 20, 6, guest_mac, 6);
    g_assert_cmpuint(command(m, bytes, rss_command(bytes, PAIRS), &ack, 1), ==, VIRTIO_NET_OK);
    send_flows(m, 30);
    count_received(m, 60, got);
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        g_assert_cmpuint(got[pair], >, pair == 2 ? 30 : 0);
    }
    mq_close(m);
}

/* Interrupts by count, then by (stepped) time. */
static void test_coalescing(void)
{
    MqRig *m = mq_open(MQ_NETDEV, "mq=on,notf_coal=on,vq_notf_coal=on",
                       MQ | F(NOTF_COAL) | F(VQ_NOTF_COAL));
    VirtioDriver *virtio = m->rig->virtio;
    unsigned got[PAIRS];

    post_all(m);
    g_assert_cmpuint(RUN(m, 6, 1, 5, 0, 0, 0, 100, 0, 0, 0), ==, VIRTIO_NET_OK);
    send_flows(m, 4);
    count_received(m, 4, got);
    g_assert_false(virtio_driver_take_interrupt(virtio, 1));
    send_flows(m, 1);
    count_received(m, 5, got);
    g_assert_true(virtio_driver_take_interrupt(virtio, 1));
    send_flows(m, 1);
    count_received(m, 6, got);
    g_assert_false(virtio_driver_take_interrupt(virtio, 1));
    qtest_client_clock_step(m->rig->qtest, 99999);
    g_assert_false(virtio_driver_take_interrupt(virtio, 1));
    qtest_client_clock_step(m->rig->qtest, 1);
    g_assert_true(virtio_driver_take_interrupt(virtio, 1));
    mq_close(m);
}

static void test_device_stats(void)
{
    static const uint8_t get[] = {8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    MqRig *m = mq_open(MQ_NETDEV, "mq=on,device_stats=on", MQ | F(DEVICE_STATS));
    unsigned got[PAIRS];
    uint8_t answer[1 + 56];
    uint64_t packets;

    post_all(m);
    send_flows(m, 7);
    count_received(m, 7, got);
    g_assert_cmpuint(command(m, get, sizeof(get), answer, sizeof(answer)), ==, VIRTIO_NET_OK);
    memcpy(&packets, answer + 1 + 8 + 8, 8);
    g_assert_cmpuint(packets, ==, 7);
    mq_close(m);
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
    add("/mq/rss-and-hash", test_rss, false);
    add("/mq/coalescing", test_coalescing, false);
    add("/mq/device-stats", test_device_stats, false);
    add("/mq/iothread/flows-over-pairs-in-use", test_flows, true);
    add("/mq/iothread/rss-and-hash", test_rss, true);
    add("/mq/iothread/coalescing", test_coalescing, true);
    add("/mq/iothread/device-stats", test_device_stats, true);
    return g_test_run();
}
