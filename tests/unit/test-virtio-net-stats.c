/*
 * Device statistics for the driver (virtio 1.4, 5.1.6.5.10): which types there are, what each
 * counts, and a table of commands that are wrong in one way.
 */
#include <string.h>

#include "tests/lib/frame-builder.h"
#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"

#define F(name) VIRTIO_FEATURE(VIRTIO_NET_F_##name)
#define MQ      (RIG_MODERN | F(CTRL_VQ) | F(MQ))
#define OK      VIRTIO_NET_OK
#define ERR     VIRTIO_NET_ERR

typedef struct StatsReply {
    uint8_t type, reserved;
    uint16_t vq_index, reserved1, size;
    uint64_t counters[6];
} StatsReply;

static void start_stats(Rig *rig, VirtioFeatures more)
{
    rig_init_pairs(rig, 2);
    rig->caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true, .tso6 = true}};
    rig_start(rig, "netdev=n0,mq=on,device_stats=on", MQ | F(DEVICE_STATS) | RIG_MRG | more, 256);
    g_assert_cmpint(RIG_RUN(rig, 4, 0, 2, 0), ==, OK);
}

static void test_stats_query(void)
{
    static const uint8_t query[] = {8, 0};
    uint8_t answer[64];
    uint32_t written;
    uint64_t types;
    Rig rig;

    start_stats(&rig, 0);
    g_assert_cmpint(rig_command_answer(&rig, query, 2, answer, 9, &written), ==, OK);
    g_assert_cmpint(written, ==, 9);
    memcpy(&types, answer + 1, 8);
    g_assert_cmphex(types, ==, UINT64_C(1) << 32 | 0x90009);
    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, MQ | F(DEVICE_STATS) | F(CSUM) | F(GUEST_CSUM) | F(GUEST_TSO4) | F(HOST_TSO6),
              256);
    g_assert_cmpint(rig_command_answer(&rig, query, 2, answer, 64, &written), ==, OK);
    memcpy(&types, answer + 1, 8);
    g_assert_cmphex(types, ==, UINT64_C(1) << 32 | 0xf000f);
    g_assert_cmpint(rig_command_answer(&rig, query, 2, answer, 4, &written), ==, OK);
    g_assert_cmpint(written, ==, 4); /* what fits in */
    rig_cleanup(&rig);
}

static void test_stats_get(void)
{
    static const uint8_t get[] = {8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, //
                                  3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0,       //
                                  4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
    uint8_t answer[512], frame[72] = {0};
    uint32_t written;
    StatsReply r;
    Rig rig;

    start_stats(&rig, 0);
    rig_post_to(&rig, 0, 4, 1500);
    rig_notify(&rig, 0);
    rig_receive_frame(&rig, 0, frame, sizeof(frame));
    rig_receive_frame(&rig, 0, frame, 5); /* shorter than its header: dropped */
    rig_send_from(&rig, 1, 7);
    g_assert_cmpint(RIG_RUN(&rig, 99, 0), ==, ERR);
    g_assert_cmpint(rig_command_answer(&rig, get, sizeof(get), answer, 512, &written), ==, OK);
    g_assert_cmpint(written, ==, 1 + 56 + 56 + 24 + 24);
    memcpy(&r, answer + 1, 56);
    g_assert_cmpint(r.type, ==, 0);
    g_assert_cmpint(r.vq_index, ==, 0);
    g_assert_cmpint(r.size, ==, 56);
    g_assert_cmpint(r.counters[0], ==, 1);
    g_assert_cmpint(r.counters[1], ==, 1);
    g_assert_cmpint(r.counters[2], ==, 60);
    g_assert_cmpint(r.counters[3], ==, 1);
    g_assert_cmpint(r.counters[4], ==, 1);
    g_assert_cmpint(r.counters[5], ==, 0);
    memcpy(&r, answer + 57, 56);
    g_assert_cmpint(r.type, ==, 16);
    g_assert_cmpint(r.vq_index, ==, 3);
    g_assert_cmpint(r.counters[1], ==, 1);
    g_assert_cmpint(r.counters[2], ==, 60);
    memcpy(&r, answer + 113, 24);
    g_assert_cmpint(r.type, ==, 19);
    g_assert_cmpint(r.size, ==, 24);
    memcpy(&r, answer + 137, 24);
    g_assert_cmpint(r.type, ==, 32);
    g_assert_cmpint(r.vq_index, ==, 4);
    g_assert_cmpint(r.counters[0], ==, 3); /* this one included */
    g_assert_cmpint(r.counters[1], ==, 2);
    g_assert_cmpint(rig_command_answer(&rig, get, sizeof(get), answer, 60, &written), ==, OK);
    g_assert_cmpint(written, ==, 60);
    rig_cleanup(&rig);
}

/* --- offloads: a peer that does TSO for IPv4 and not for IPv6 --- */

#define OFFLOADS                                                                                   \
    (F(CSUM) | F(HOST_TSO4) | F(HOST_TSO6) | F(GUEST_CSUM) | F(GUEST_TSO4) | F(GUEST_TSO6))
#define HDR 12

static const uint8_t to[6] = {0x02, 0, 0, 0, 0, 1};

static void start_offloads(Rig *rig, const char *props, VirtioFeatures more)
{
    rig_init_pairs(rig, 2);
    rig->caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true}};
    rig_start(rig, props, MQ | F(DEVICE_STATS) | RIG_MRG | OFFLOADS | more, 256);
    g_assert_cmpint(RIG_RUN(rig, 4, 0, 2, 0), ==, OK);
}

/* The counters of one type, which must be @want (as many as the type has). */
static void expect_counters(Rig *rig, uint8_t queue, unsigned type, const uint64_t *want,
                            unsigned count)
{
    uint8_t get[18] = {8, 1, queue}, answer[64];
    uint32_t written;
    StatsReply r;

    get[10 + type / 8] = (uint8_t)(1 << type % 8);
    g_assert_cmpint(rig_command_answer(rig, get, sizeof(get), answer, 64, &written), ==, OK);
    g_assert_cmpint(written, ==, 1 + 8 + 8 * count);
    memcpy(&r, answer + 1, 8 + 8 * count);
    g_assert_cmpint(r.type, ==, type);
    g_assert_cmpint(r.vq_index, ==, queue);
    for (unsigned i = 0; i < count; i++) {
        g_test_message("queue %u, type %u, counter %u", queue, type, i);
        g_assert_cmpuint(r.counters[i], ==, want[i]);
    }
}

#define EXPECT_COUNTERS(rig, queue, type, ...)                                                     \
    ({                                                                                             \
        const uint64_t want_[] = {__VA_ARGS__};                                                    \
        expect_counters(rig, queue, type, want_, G_N_ELEMENTS(want_));                             \
    })

/* Sends from pair 1 what @spec says; returns how long the frame is. */
static size_t send_spec(Rig *rig, const FrameSpec *spec)
{
    BuiltFrame built;
    RigPart part = {RIG_DATA + 0x300000, 0, false};

    frame_build(&built, spec, to);
    part.len = (uint32_t)(HDR + built.size);
    memset(rig->ram + part.addr, 0, HDR);
    memcpy(rig->ram + part.addr, &built.header, 10);
    memcpy(rig->ram + part.addr + HDR, built.bytes, built.size);
    rig_add(rig, 3, &part, 1, 0);
    rig_notify(rig, 3);
    rig_loop();
    frame_clear(&built);
    return built.size;
}

static void test_stats_tx_offloads(void)
{
    static const FrameSpec whole = {"whole", .ip_version = 4, .protocol = 6, .payload = 100},
                           partial = {"partial", .ip_version = 4, .protocol = 17, .payload = 100,
                                      .partial = true},
                           tso4 = {"tso4",           .ip_version = 4,
                                   .protocol = 6,    .payload = 3000,
                                   .gso_size = 1000, .gso_type = VIRTIO_NET_HDR_GSO_TCPV4},
                           tso6 = {"tso6",           .ip_version = 6,
                                   .protocol = 6,    .payload = 3500,
                                   .gso_size = 1000, .gso_type = VIRTIO_NET_HDR_GSO_TCPV6};
    Rig rig;
    size_t plain, native, soft, left, headers = 14 + 40 + 32;

    start_offloads(&rig, "netdev=n0,mq=on,device_stats=on", 0);
    EXPECT_COUNTERS(&rig, 3, VIRTIO_NET_STATS_TYPE_REPLY_TX_CSUM, 0, 0);
    EXPECT_COUNTERS(&rig, 3, VIRTIO_NET_STATS_TYPE_REPLY_TX_GSO, 0, 0, 0, 0, 0, 0);
    plain = send_spec(&rig, &whole) + send_spec(&rig, &partial) + send_spec(&rig, &partial);
    native = send_spec(&rig, &tso4);
    soft = send_spec(&rig, &tso6);
    left = soft + 3 * headers; /* four segments, each with the headers */
    EXPECT_COUNTERS(&rig, 3, VIRTIO_NET_STATS_TYPE_REPLY_TX_CSUM, 1, 4);
    EXPECT_COUNTERS(&rig, 3, VIRTIO_NET_STATS_TYPE_REPLY_TX_GSO, 2, native + soft, 4, left, 1,
                    native);
    EXPECT_COUNTERS(&rig, 3, VIRTIO_NET_STATS_TYPE_REPLY_TX_BASIC, 5, 3 + 1 + 4,
                    plain + native + left, 5, 0, 0);
    EXPECT_COUNTERS(&rig, 1, VIRTIO_NET_STATS_TYPE_REPLY_TX_CSUM, 0, 0); /* the other pair */
    EXPECT_COUNTERS(&rig, 3, VIRTIO_NET_STATS_TYPE_REPLY_TX_SPEED, 0, 0);
    rig_cleanup(&rig);
}

/* Frames from the peer with @flags, and GSO if @gso_size. */
static size_t receive_spec(Rig *rig, const FrameSpec *spec, uint8_t flags)
{
    g_autofree uint8_t *bytes = NULL;
    BuiltFrame built;

    frame_build(&built, spec, to);
    bytes = g_malloc0(HDR + built.size);
    memcpy(bytes, &built.header, 10);
    bytes[0] |= flags;
    memcpy(bytes + HDR, built.bytes, built.size);
    g_assert_true(rig_receive_frame(rig, 1, bytes, HDR + built.size));
    frame_clear(&built);
    return built.size;
}

static void test_stats_rx_offloads(void)
{
    static const FrameSpec whole = {"whole", .ip_version = 4, .protocol = 6, .payload = 100},
                           partial = {"partial", .ip_version = 4, .protocol = 17, .payload = 100,
                                      .partial = true},
                           tso4 = {"tso4",           .ip_version = 4,
                                   .protocol = 6,    .payload = 3000,
                                   .gso_size = 1000, .gso_type = VIRTIO_NET_HDR_GSO_TCPV4};
    size_t large;
    Rig rig;

    start_offloads(&rig, "netdev=n0,mq=on,device_stats=on", 0);
    rig_post_to(&rig, 2, 64, 1500);
    receive_spec(&rig, &whole, VIRTIO_NET_HDR_F_DATA_VALID);
    receive_spec(&rig, &whole, VIRTIO_NET_HDR_F_DATA_VALID);
    receive_spec(&rig, &whole, 0);
    receive_spec(&rig, &partial, 0);
    receive_spec(&rig, &partial, 0);
    receive_spec(&rig, &partial, 0);
    large = receive_spec(&rig, &tso4, 0);
    EXPECT_COUNTERS(&rig, 2, VIRTIO_NET_STATS_TYPE_REPLY_RX_CSUM, 2, 4, 1, 0);
    EXPECT_COUNTERS(&rig, 2, VIRTIO_NET_STATS_TYPE_REPLY_RX_GSO, 1, large, 0, 0);
    EXPECT_COUNTERS(&rig, 0, VIRTIO_NET_STATS_TYPE_REPLY_RX_CSUM, 0, 0, 0, 0);
    EXPECT_COUNTERS(&rig, 2, VIRTIO_NET_STATS_TYPE_REPLY_RX_SPEED, 0, 0);
    rig_cleanup(&rig);
}

static void test_stats_bad(void)
{
    static const struct {
        uint8_t bytes[40];
        unsigned size;
    } bad[] = {
        {{8, 0, 0}, 3},
        {{8, 2}, 2},
        {{8, 1}, 2},
        {{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 17},
        {{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 18},       /* no type */
        {{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x10}, 18},    /* unknown */
        {{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2}, 18},       /* not negotiated */
        {{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 18}, /* another role's */
        {{8, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1}, 18},
        {{8, 1, 4, 0, 0, 0, 0, 0, 0, 0, 1}, 18},
        {{8, 1, 5, 0, 0, 0, 0, 0, 0, 0, 1}, 18}, /* no such queue */
        {{8, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1}, 18},
        {{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9}, 34}, /* one bad of two */
    };
    uint8_t answer[512];
    uint32_t written;
    Rig rig;

    start_stats(&rig, 0);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_cmpint(rig_command_answer(&rig, bad[i].bytes, bad[i].size, answer, 512, &written),
                        ==, ERR);
        g_assert_cmpint(written, ==, 1);
    }
    rig_cleanup(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_func("/stats/query", test_stats_query);
    g_test_add_func("/stats/get", test_stats_get);
    g_test_add_func("/stats/tx-offloads", test_stats_tx_offloads);
    g_test_add_func("/stats/rx-offloads", test_stats_rx_offloads);
    g_test_add_func("/stats/bad-commands", test_stats_bad);
    return g_test_run();
}
