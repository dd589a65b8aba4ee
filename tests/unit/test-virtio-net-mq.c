/*
 * Several queue pairs: which queues there are, which are in use, where frames go; receive-side
 * scaling, hash reports, interrupt coalescing and device statistics, each with a table of commands
 * that are wrong in one way and must change nothing.
 */
#include <netinet/in.h>
#include <string.h>

#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"
#include "util/runstate.h"

#define F(name) VIRTIO_FEATURE(VIRTIO_NET_F_##name)
#define MQ      (RIG_MODERN | F(CTRL_VQ) | F(MQ))
#define RSS     (RIG_MODERN | F(CTRL_VQ) | F(RSS))

#define RUN(rig, ...)                                                                              \
    ({                                                                                             \
        const uint8_t bytes_[] = {__VA_ARGS__};                                                    \
        rig_command(rig, bytes_, sizeof(bytes_));                                                  \
    })
#define OK  VIRTIO_NET_OK
#define ERR VIRTIO_NET_ERR

static void start(Rig *rig, unsigned pairs, const char *props, VirtioFeatures features)
{
    rig_init_pairs(rig, pairs);
    rig_start(rig, props, features, 256);
}

/* Sends a frame of 60 bytes from transmit queue @pair. */
static void send_from(Rig *rig, unsigned pair, uint8_t fill)
{
    RigPart part = {RIG_DATA + 0x200000 + pair * 0x1000, rig->n->guest_hdr_len + 60, false};

    memset(rig->ram + part.addr, 0, rig->n->guest_hdr_len);
    memset(rig->ram + part.addr + rig->n->guest_hdr_len, fill, 60);
    rig_add(rig, 2 * pair + 1, &part, 1, 0);
    rig_notify(rig, 2 * pair + 1);
    rig_loop();
}

static unsigned used(Rig *rig, unsigned queue)
{
    unsigned n = 0, head, len;

    while (rig_used(rig, queue, &head, &len)) {
        n++;
    }
    return n;
}

/* --- queue pairs --- */

static void test_queues(void)
{
    Rig rig;

    start(&rig, 4, "netdev=n0,mq=on", RIG_MODERN | F(CTRL_VQ));
    g_assert_cmpint(virtio_config_read(rig.vdev, 8, 2), ==, 4);
    g_assert_cmpint(rig.vdev->config_len, ==, 10);
    g_assert_cmpint(rig_ctrl(&rig), ==, 2); /* MQ is offered, but not taken */
    g_assert_cmpint(virtio_queue(rig.vdev, 2)->max_num, ==, 64);
    g_assert_null(virtio_queue(rig.vdev, 3));
    g_assert_null(virtio_queue(rig.vdev, 8));
    g_assert_cmpint(RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 2, 0), ==, ERR);

    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, MQ, 256);
    g_assert_cmpint(rig_ctrl(&rig), ==, 8);
    g_assert_cmpint(virtio_queue(rig.vdev, 2)->max_num, ==, 256);
    g_assert_cmpint(virtio_queue(rig.vdev, 8)->max_num, ==, 64);
    g_assert_cmpint(RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 2, 0), ==, OK);

    virtio_set_status(rig.vdev, 0);
    g_assert_cmpint(rig.n->present_pairs, ==, 1);
    g_assert_cmpint(virtio_queue(rig.vdev, 2)->max_num, ==, 64);
    rig_cleanup(&rig);

    start(&rig, 1, "netdev=n0,mq=on", MQ); /* one pair: nothing to choose */
    g_assert_cmpint(rig_ctrl(&rig), ==, 2);
    g_assert_cmpint(RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 1, 0), ==, OK);
    g_assert_cmpint(RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 2, 0), ==, ERR);
    rig_cleanup(&rig);

    start(&rig, 3, NULL, RIG_MODERN | F(CTRL_VQ)); /* mq=off: several queues, one used */
    g_assert_false(virtio_host_has_feature(rig.vdev, VIRTIO_NET_F_MQ));
    g_assert_true(rig.attached[0] && !rig.attached[1] && !rig.attached[2]);
    rig_cleanup(&rig);
}

static void expect_attached(const Rig *rig, unsigned pairs)
{
    for (unsigned i = 0; i < rig->pairs; i++) {
        g_assert_cmpint(rig->attached[i], ==, i < pairs);
    }
}

static void test_pairs_set(void)
{
    static const struct {
        uint8_t bytes[5];
        unsigned size;
    } bad[] = {
        {{4, 0, 0, 0}, 4},       {{4, 0, 5, 0}, 4},    {{4, 0, 0, 0x80}, 4},
        {{4, 0, 1}, 3},          {{4, 0, 1, 0, 0}, 5}, {{4, 0}, 2},
        {{4, 3, 1, 0}, 4},       {{4, 1, 1, 0}, 4},    {{4, 2, 1, 0}, 4},
        {{4, 0, 0xff, 0xff}, 4},
    };
    Rig rig;

    start(&rig, 4, "netdev=n0,mq=on", MQ);
    expect_attached(&rig, 1);
    g_assert_cmpint(RUN(&rig, 4, 0, 3, 0), ==, OK);
    expect_attached(&rig, 3);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_cmpint(rig_command(&rig, bad[i].bytes, bad[i].size), ==, ERR);
        g_assert_cmpint(rig.n->ctrl.queue_pairs, ==, 3);
        expect_attached(&rig, 3);
    }
    rig.refuse_attach = true;
    g_assert_cmpint(RUN(&rig, 4, 0, 4, 0), ==, ERR);
    g_assert_cmpint(rig.n->ctrl.queue_pairs, ==, 3);
    rig.refuse_attach = false;
    expect_attached(&rig, 3);
    g_assert_cmpint(RUN(&rig, 4, 0, 4, 0), ==, OK);
    expect_attached(&rig, 4);
    g_assert_cmpint(RUN(&rig, 4, 0, 2, 0), ==, OK);
    expect_attached(&rig, 2);
    virtio_set_status(rig.vdev, 0);
    expect_attached(&rig, 1);
    device_unrealize(DEVICE(rig.vdev));
    rig.vdev = NULL;
    expect_attached(&rig, 4); /* for whoever uses the netdev next */
    rig_cleanup(&rig);
}

static void test_traffic_by_pair(void)
{
    uint8_t frame[60];
    Rig rig;

    start(&rig, 4, "netdev=n0,mq=on", MQ | RIG_MRG);
    for (unsigned i = 0; i < 4; i++) {
        rig_post_to(&rig, 2 * i, 8, 1500);
    }
    send_from(&rig, 0, 0);
    send_from(&rig, 2, 2); /* not in use yet: waits */
    g_assert_cmpint(rig.count, ==, 1);
    memset(frame, 0x77, sizeof(frame));
    g_assert_false(rig_receive_frame(&rig, 2, frame, sizeof(frame)));
    rig.writable = 0;
    g_assert_cmpint(RUN(&rig, 4, 0, 4, 0), ==, OK);
    g_assert_cmpint(rig.writable, >=, 4);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 2);
    g_assert_cmpint(rig.frames[1].queue, ==, 2);
    rig_assert_filled(rig.frames[1].bytes, 60, 2);
    for (unsigned i = 0; i < 4; i++) {
        send_from(&rig, i, (uint8_t)i);
        g_assert_cmpint(rig.frames[2 + i].queue, ==, i);
        g_assert_true(rig_receive_frame(&rig, i, frame, sizeof(frame)));
        g_assert_cmpint(used(&rig, 2 * i), ==, 1);
        g_assert_cmpint(rig.interrupts[2 * i], ==, 1);
        rig_assert_filled(rig.ram + RIG_DATA + i * 256 * 0x1000 + 12, 60, 0x77);
    }
    g_assert_cmpint(RUN(&rig, 4, 0, 1, 0), ==, OK);
    g_assert_false(rig_receive_frame(&rig, 1, frame, sizeof(frame)));
    g_assert_false(net_can_send(rig.peers[3]));
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    rig_cleanup(&rig);
}

/* The device's own reset and the queue's: pairs come back as they should. */
static void test_queue_reset(void)
{
    uint8_t frame[60] = {0};
    Rig rig;

    start(&rig, 2, "netdev=n0,mq=on,queue_reset=on", MQ | VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
    g_assert_cmpint(RUN(&rig, 4, 0, 2, 0), ==, OK);
    rig_post_to(&rig, 2, 4, 1500);
    g_assert_true(rig_receive_frame(&rig, 1, frame, sizeof(frame)));
    virtio_queue_reset(rig.vdev, 2);
    g_assert_false(rig_receive_frame(&rig, 1, frame, sizeof(frame)));
    rig_post_to(&rig, 0, 4, 1500);
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    rig_cleanup(&rig);
}

/* --- RSS --- */

#define KEY_LEN 40

static const uint8_t rss_key[KEY_LEN] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

typedef struct RssCommand {
    uint32_t types;
    uint16_t mask, unclassified, max_tx;
    const uint16_t *table; /* NULL: entry i is pair i % 4 */
    uint8_t key_len;
    int more; /* bytes at the end, or less */
} RssCommand;

static uint8_t *put16(uint8_t *p, unsigned value)
{
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
    return p + 2;
}

static uint8_t rss_config(Rig *rig, const RssCommand *c)
{
    uint8_t bytes[4096] = {VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_RSS_CONFIG}, *p = bytes + 2;

    p = put16(put16(p, c->types), c->types >> 16);
    p = put16(put16(p, c->mask), c->unclassified);
    for (unsigned i = 0; i <= c->mask && i < 1024; i++) {
        p = put16(p, c->table ? c->table[i] : i % 4);
    }
    p = put16(p, c->max_tx);
    *p++ = c->key_len;
    memcpy(p, rss_key, MIN(c->key_len, KEY_LEN));
    p += c->key_len;
    return rig_command(rig, bytes, (uint32_t)(p - bytes + c->more));
}

/* TCP from 66.9.149.187:2794 to 161.142.100.80:1766, whose hash is 0x51ccc178; its low byte of the
 * source port can be changed. */
static size_t tcp_frame(uint8_t *frame, uint8_t port)
{
    static const uint8_t bytes[54] = {
        [0] = 0x52, 0x54,        0,           0x12, 0x34,
        0x56,       [12] = 0x08, 0x00,        0x45, [23] = IPPROTO_TCP,
        [26] = 66,  9,           149,         187,  161,
        142,        100,         80,          0x0a, 0xea,
        0x06,       0xe6,        [46] = 0x50,
    };

    memcpy(frame, bytes, sizeof(bytes));
    frame[35] = port ? port : frame[35];
    return sizeof(bytes);
}

static void test_rss_config_space(void)
{
    Rig rig;

    start(&rig, 4, "netdev=n0,rss=on,hash_tunnel=on,hash-ipv4=off", RSS);
    g_assert_cmpint(rig.vdev->config_len, ==, 28);
    g_assert_cmpint(virtio_config_read(rig.vdev, 17, 1), ==, 40);
    g_assert_cmpint(virtio_config_read(rig.vdev, 18, 2), ==, 128);
    g_assert_cmphex(virtio_config_read(rig.vdev, 20, 4), ==, 0x1fe);
    g_assert_cmphex(virtio_config_read(rig.vdev, 24, 4), ==, 0x1ff);
    g_assert_cmpint(rig_ctrl(&rig), ==, 8); /* RSS alone is multiqueue too */
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1fe, 3, 0, 4, NULL, KEY_LEN}), ==, OK);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, 3, 0, 4, NULL, KEY_LEN}), ==, ERR);
    rig_cleanup(&rig);
}

static void test_rss_bad(void)
{
    static const uint16_t beyond[4] = {0, 1, 4, 3};
    static const RssCommand bad[] = {
        {0x1ff, 2, 0, 4, NULL, KEY_LEN}, /* three entries */
        {0x1ff, 127 + 1, 0, 4, NULL, KEY_LEN},
        {0x1ff, 255, 0, 4, NULL, KEY_LEN}, /* more than the device has */
        {0x1ff, 0xffff, 0, 4, NULL, KEY_LEN},
        {0x1ff, 3, 4, 4, NULL, KEY_LEN},      /* no such queue */
        {0x1ff, 3, 0x8001, 4, NULL, KEY_LEN}, /* reserved bit */
        {0x1ff, 3, 0, 4, beyond, KEY_LEN},
        {0x1ff, 3, 0, 0, NULL, KEY_LEN},
        {0x1ff, 3, 0, 5, NULL, KEY_LEN},
        {0x3ff, 3, 0, 4, NULL, KEY_LEN}, /* unknown hash type */
        {0x800001ff, 3, 0, 4, NULL, KEY_LEN},
        {0x1ff, 3, 0, 4, NULL, KEY_LEN + 1},
        {0x1ff, 3, 0, 4, NULL, 0}, /* hashes without a key */
        {0x1ff, 3, 0, 4, NULL, KEY_LEN, 1},
        {0x1ff, 3, 0, 4, NULL, KEY_LEN, -1},
        {0x1ff, 3, 0, 4, NULL, KEY_LEN, -KEY_LEN},
        {0x1ff, 3, 0, 4, NULL, KEY_LEN, -KEY_LEN - 1},
        {0x1ff, 3, 0, 4, NULL, KEY_LEN, -KEY_LEN - 4},
        {0x1ff, 3, 0, 4, NULL, KEY_LEN, -KEY_LEN - 3 - 9},
        {0x1ff, 3, 0, 4, NULL, KEY_LEN, -KEY_LEN - 3 - 8 - 8},
    };
    Rig rig;

    start(&rig, 4, "netdev=n0,rss=on", RSS);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x12, 127, 2, 3, NULL, KEY_LEN}), ==, OK);

    VirtIONetCtrlState before = rig.n->ctrl;
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_cmpint(rss_config(&rig, &bad[i]), ==, ERR);
        g_assert_cmpmem(&before, sizeof(before), &rig.n->ctrl, sizeof(before));
        expect_attached(&rig, 3);
    }
    g_assert_cmpint(RUN(&rig, 4, 0, 1, 0), ==, ERR); /* MQ not taken */
    g_assert_cmpint(RUN(&rig, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), ==, ERR); /* HASH */
    g_assert_cmpint(RUN(&rig, 7, 0, 1, 0, 0, 0), ==, ERR); /* HASH_TUNNEL */
    rig_cleanup(&rig);
}

static void test_rss_table_lengths(void)
{
    Rig rig;

    start(&rig, 4, "netdev=n0,rss=on", RSS);
    for (unsigned len = 1; len <= 128; len *= 2) {
        uint8_t frame[60];
        uint16_t mask = (uint16_t)(len - 1);
        unsigned queue = (0x51ccc178 & mask) % 4;

        g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, mask, 0, 4, NULL, KEY_LEN}), ==, OK);
        g_assert_cmpint(rig.n->ctrl.rss.table_len, ==, len);
        rig_post_to(&rig, 2 * queue, 1, 1500);
        g_assert_true(rig_receive_frame(&rig, 1, frame, tcp_frame(frame, 0)));
        g_assert_cmpint(used(&rig, 2 * queue), ==, 1);
    }
    rig_cleanup(&rig);
}

static void test_rss_steers(void)
{
    uint8_t frame[60];
    unsigned by_queue[4] = {0};
    Rig rig;

    start(&rig, 4, "netdev=n0,rss=on,mq=on", RSS | F(MQ));
    for (unsigned i = 0; i < 4; i++) {
        rig_post_to(&rig, 2 * i, 200, 1500);
    }
    /* Until configured: by the back end's queue. */
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    g_assert_cmpint(used(&rig, 0), ==, 1);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, 127, 3, 4, NULL, KEY_LEN}), ==, OK);
    for (unsigned port = 1; port < 128; port++) {
        /* Whichever queue of the back end it came from. */
        g_assert_true(rig_receive_frame(&rig, port % 4, frame, tcp_frame(frame, (uint8_t)port)));
    }
    for (unsigned i = 0; i < 4; i++) {
        by_queue[i] = used(&rig, 2 * i);
        g_assert_cmpint(by_queue[i], >, 10);
    }
    g_assert_cmpint(by_queue[0] + by_queue[1] + by_queue[2] + by_queue[3], ==, 127);
    memset(frame, 0x11, sizeof(frame)); /* nothing to hash */
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    g_assert_cmpint(used(&rig, 6), ==, 1);
    /* A queue that is not there drops; the others go on. */
    g_assert_cmpint(RUN(&rig, 4, 0, 4, 0), ==, OK); /* automatic again */
    g_assert_true(rig_receive_frame(&rig, 1, frame, sizeof(frame)));
    g_assert_cmpint(used(&rig, 2), ==, 1);
    rig_cleanup(&rig);
}

/* One queue without buffers holds up the back end's queue, which goes on when it gets some. */
static void test_rss_waits(void)
{
    uint8_t frame[60];
    Rig rig;
    const uint16_t all_to_2[1] = {2};

    start(&rig, 4, "netdev=n0,rss=on", RSS);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, 0, 2, 4, all_to_2, KEY_LEN}), ==, OK);
    g_assert_true(net_can_send(rig.peers[0]));
    g_assert_false(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    g_assert_cmpint(rig.n->queues[2].rx_stats.stalls, ==, 1);
    rig.writable = 0;
    rig_post_to(&rig, 4, 4, 1500);
    rig_notify(&rig, 4);
    g_assert_cmpint(rig.writable, ==, 2); /* queue 0's, which waits, and its own */
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    g_assert_cmpint(used(&rig, 4), ==, 1);
    rig_cleanup(&rig);

    start(&rig, 4, "netdev=n0,rss=on", RSS | VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, 0, 2, 4, all_to_2, KEY_LEN}), ==, OK);
    virtio_queue_reset(rig.vdev, 4); /* the specification: dropped */
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    g_assert_cmpint(rig.n->queues[2].rx_stats.drops[NET_DROP_NOT_READY], ==, 1);
    rig_cleanup(&rig);
}

/* A batch for several queues: order within each, one interrupt each. */
static void test_rss_batch(void)
{
    static uint8_t frames[40][54];
    struct iovec iov[40];
    NetPacket pkts[40];
    Rig rig;

    start(&rig, 4, "netdev=n0,rss=on", RSS);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, 127, 0, 4, NULL, KEY_LEN}), ==, OK);
    for (unsigned i = 0; i < 4; i++) {
        rig_post_to(&rig, 2 * i, 100, 1500);
    }
    for (unsigned i = 0; i < 40; i++) {
        tcp_frame(frames[i], (uint8_t)(i % 8 + 1));
        frames[i][53] = (uint8_t)i;
        iov[i] = (struct iovec){frames[i], 54};
        pkts[i] = (NetPacket){&iov[i], 1, 54};
    }
    g_assert_cmpint(net_send_batch(rig.peers[0], pkts, 40), ==, 40);
    unsigned total = 0;
    for (unsigned q = 0; q < 4; q++) {
        unsigned n = used(&rig, 2 * q);

        g_assert_cmpint(rig.interrupts[2 * q], ==, n ? 1 : 0);
        for (unsigned i = 1; i < n; i++) {
            uint8_t *data = rig.ram + RIG_DATA + q * 256 * 0x1000 + 12 + 53;
            g_assert_cmpint(data[i * 0x1000], >, data[(i - 1) * 0x1000]);
        }
        total += n;
    }
    g_assert_cmpint(total, ==, 40);
    rig_cleanup(&rig);
}

/* --- hash reports --- */

static void test_hash_report(void)
{
    uint8_t frame[60], config[2 + 4 + 8 + 1 + KEY_LEN] = {4, 2, 0xff, 1};
    Rig rig;

    start(&rig, 1, "netdev=n0,hash=on", RIG_MODERN | RIG_MRG | F(CTRL_VQ) | F(HASH_REPORT));
    g_assert_cmpint(rig.n->guest_hdr_len, ==, 20);
    g_assert_cmpint(virtio_config_read(rig.vdev, 18, 2), ==, 1);
    rig_post(&rig, 8, 1500);
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    rig_assert_filled(rig.ram + RIG_DATA + 12, 8, 0); /* no hash yet */
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 20 + 54), ==, 1);

    config[14] = KEY_LEN;
    memcpy(config + 15, rss_key, KEY_LEN);
    g_assert_cmpint(rig_command(&rig, config, sizeof(config)), ==, OK);
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    uint8_t *hdr = rig.ram + RIG_DATA + 0x1000;
    g_assert_cmpmem(hdr + 10, 10, "\1\0\x78\xc1\xcc\x51\2\0\0\0", 10);
    g_assert_cmpmem(hdr + 20, 54, frame, 54);

    VirtIONetCtrlState before = rig.n->ctrl;
    config[6] = 1; /* reserved */
    g_assert_cmpint(rig_command(&rig, config, sizeof(config)), ==, ERR);
    config[6] = 0;
    g_assert_cmpint(rig_command(&rig, config, sizeof(config) - 1), ==, ERR);
    config[3] = 2;
    g_assert_cmpint(rig_command(&rig, config, sizeof(config)), ==, ERR);
    g_assert_cmpmem(&before, sizeof(before), &rig.n->ctrl, sizeof(before));

    /* A key of no bytes with no types turns hashing off. */
    memset(config + 2, 0, 13);
    g_assert_cmpint(rig_command(&rig, config, 15), ==, OK);
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    rig_assert_filled(rig.ram + RIG_DATA + 0x2000 + 12, 8, 0);
    rig_cleanup(&rig);
}

static void test_hash_tunnel(void)
{
    uint8_t frame[14 + 20 + 54 - 14] = {0}, inner[60],
                                 config[2 + 4 + 8 + 1 + KEY_LEN] = {4, 2, 0xff, 1};
    Rig rig;

    start(&rig, 1, "netdev=n0,hash=on,hash_tunnel=on",
          RIG_MODERN | RIG_MRG | F(CTRL_VQ) | F(HASH_REPORT) | F(HASH_TUNNEL));
    rig_post(&rig, 8, 1500);
    config[14] = KEY_LEN;
    memcpy(config + 15, rss_key, KEY_LEN);
    g_assert_cmpint(rig_command(&rig, config, sizeof(config)), ==, OK);
    tcp_frame(inner, 0);
    memcpy(frame, inner, 34); /* outer IP: the same addresses */
    frame[23] = IPPROTO_IPIP;
    memcpy(frame + 34, inner + 14, 40);
    uint8_t *hdr = rig.ram + RIG_DATA;
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    g_assert_cmpmem(hdr + 12, 6, "\xc2\x8f\x3e\x32\1\0", 6); /* of the outer addresses */
    g_assert_cmpint(RUN(&rig, 7, 0, 0x80, 0, 0, 0), ==, OK);
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    g_assert_cmpmem(hdr + 0x1000 + 12, 6, "\x78\xc1\xcc\x51\2\0", 6);
    g_assert_cmpint(RUN(&rig, 7, 0, 0, 2, 0, 0), ==, ERR); /* unknown type */
    g_assert_cmpint(RUN(&rig, 7, 0, 0, 0, 0), ==, ERR);
    g_assert_cmpint(RUN(&rig, 7, 0, 0, 0, 0, 0, 0), ==, ERR);
    g_assert_cmpint(RUN(&rig, 7, 1, 0, 0, 0, 0), ==, ERR);
    g_assert_cmphex(rig.n->ctrl.hash_tunnels, ==, 0x80);
    g_assert_cmpint(RUN(&rig, 7, 0, 0, 0, 0, 0), ==, OK);
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    g_assert_cmpmem(hdr + 0x2000 + 12, 6, "\xc2\x8f\x3e\x32\1\0", 6);
    virtio_set_status(rig.vdev, 0);
    g_assert_cmphex(rig.n->ctrl.hash_tunnels, ==, 0);
    rig_cleanup(&rig);
}

/* --- coalescing --- */

#define COAL (F(NOTF_COAL) | F(VQ_NOTF_COAL))

static uint8_t coal_all(Rig *rig, bool rx, uint8_t packets, uint8_t usecs)
{
    return RUN(rig, 6, rx, packets, 0, 0, 0, usecs, 0, 0, 0);
}

static uint8_t coal_vq(Rig *rig, uint8_t queue, uint8_t packets, uint8_t usecs)
{
    return RUN(rig, 6, 2, queue, 0, 0xff, 0xff, packets, 0, 0, 0, usecs, 0, 0, 0);
}

static void expect_coal(Rig *rig, uint8_t queue, uint32_t packets, uint32_t usecs)
{
    const uint8_t get[] = {6, 3, queue, 0, 0, 0};
    uint8_t answer[16];
    uint32_t written, got[2];

    rig_command_answer(rig, get, sizeof(get), answer, 9, &written);
    g_assert_cmpint(written, ==, 9);
    g_assert_cmpint(answer[8], ==, OK);
    memcpy(got, answer, sizeof(got));
    g_assert_cmpint(got[0], ==, packets);
    g_assert_cmpint(got[1], ==, usecs);
}

static void step_us(unsigned us)
{
    clock_step_virtual(clock_get_ns(CLOCK_VIRTUAL) + us * 1000ll);
    rig_loop();
}

static void start_coal(Rig *rig)
{
    start(rig, 2, "netdev=n0,mq=on,notf_coal=on,vq_notf_coal=on,queue_reset=on",
          MQ | COAL | RIG_MRG | VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
    g_assert_cmpint(RUN(rig, 4, 0, 2, 0), ==, OK);
    rig_post_to(rig, 0, 100, 1500);
    rig_post_to(rig, 2, 100, 1500);
}

/* The specification's example of six commands. */
static void test_coal_commands(void)
{
    Rig rig;

    start_coal(&rig);
    expect_coal(&rig, 3, 0, 0);
    g_assert_cmpint(coal_all(&rig, true, 15, 10), ==, OK);
    expect_coal(&rig, 0, 15, 10);
    expect_coal(&rig, 2, 15, 10);
    expect_coal(&rig, 1, 0, 0);
    g_assert_cmpint(coal_vq(&rig, 0, 7, 70), ==, OK);
    expect_coal(&rig, 0, 7, 70);
    expect_coal(&rig, 2, 15, 10);
    g_assert_cmpint(coal_vq(&rig, 1, 8, 80), ==, OK);
    expect_coal(&rig, 3, 0, 0);
    g_assert_cmpint(coal_all(&rig, false, 9, 90), ==, OK);
    expect_coal(&rig, 1, 9, 90);
    expect_coal(&rig, 3, 9, 90);
    expect_coal(&rig, 0, 7, 70);

    /* Disabled and enabled again: what all were told last. */
    virtio_queue_reset(rig.vdev, 0);
    const uint8_t get[] = {6, 3, 0, 0, 0, 0};
    uint8_t answer[9];
    uint32_t written;
    rig_command_answer(&rig, get, sizeof(get), answer, 9, &written);
    g_assert_cmpint(answer[8], ==, ERR);
    g_assert_cmpint(written, ==, 9);
    virtio_queue(rig.vdev, 0)->desc = rig.rings[0].desc;
    virtio_queue(rig.vdev, 0)->avail = rig.rings[0].avail;
    virtio_queue(rig.vdev, 0)->used = rig.rings[0].used;
    virtio_queue_enable(rig.vdev, 0);
    expect_coal(&rig, 0, 15, 10);
    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, MQ | COAL, 256);
    expect_coal(&rig, 0, 0, 0);
    rig_cleanup(&rig);
}

static void test_coal_bad(void)
{
    static const struct {
        uint8_t bytes[16];
        unsigned size;
    } bad[] = {
        {{6, 0, 1, 0, 0, 0, 1, 0, 0}, 9},
        {{6, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, 11},
        {{6, 1}, 2},
        {{6, 4, 1, 0, 0, 0, 1, 0, 0, 0}, 10},
        {{6, 2, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 14}, /* the control queue */
        {{6, 2, 5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 14}, /* no queue */
        {{6, 2, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 14},
        {{6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0}, 13},
        {{6, 2, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}, 15},
        {{6, 3, 0, 0, 0}, 5},
        {{6, 3, 0, 0, 0, 0}, 6}, /* no room for the answer */
    };
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_all(&rig, true, 15, 10), ==, OK);

    VirtIONetCtrlState before = rig.n->ctrl;
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_cmpint(rig_command(&rig, bad[i].bytes, bad[i].size), ==, ERR);
        g_assert_cmpmem(&before, sizeof(before), &rig.n->ctrl, sizeof(before));
    }
    rig_cleanup(&rig);

    start(&rig, 1, "netdev=n0,notf_coal=on,vq_notf_coal=on", RIG_MODERN | F(CTRL_VQ));
    g_assert_cmpint(coal_all(&rig, true, 15, 10), ==, ERR); /* not negotiated */
    g_assert_cmpint(coal_vq(&rig, 0, 15, 10), ==, ERR);
    rig_cleanup(&rig);
}

static void test_coal_rx(void)
{
    uint8_t frame[60] = {0};
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_all(&rig, true, 3, 100), ==, OK);
    for (unsigned i = 1; i <= 7; i++) {
        g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
        g_assert_cmpint(rig.interrupts[0], ==, i / 3); /* by count */
    }
    step_us(99);
    g_assert_cmpint(rig.interrupts[0], ==, 2);
    step_us(1); /* the seventh, by time */
    g_assert_cmpint(rig.interrupts[0], ==, 3);
    step_us(1000);
    g_assert_cmpint(rig.interrupts[0], ==, 3);
    g_assert_cmpint(used(&rig, 0), ==, 7); /* never late in the ring */
    g_assert_true(rig_receive_frame(&rig, 1, frame, sizeof(frame)));
    g_assert_cmpint(rig.interrupts[2], ==, 0); /* queues count by themselves */
    g_assert_cmpint(rig.n->queues[0].rx_stats.interrupts, ==, 3);
    g_assert_cmpint(rig.n->queues[0].rx_stats.interrupts_coalesced, ==, 5); /* 1 2, 4 5, 7 */
    rig_cleanup(&rig);
}

static void test_coal_tx(void)
{
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_vq(&rig, 1, 2, 50), ==, OK);
    send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 0);
    g_assert_cmpint(used(&rig, 1), ==, 1);
    send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 1);
    send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 1);
    step_us(50);
    g_assert_cmpint(rig.interrupts[1], ==, 2);
    send_from(&rig, 1, 1); /* the other queue has no parameters */
    g_assert_cmpint(rig.interrupts[3], ==, 1);
    g_assert_cmpint(coal_vq(&rig, 1, 2, 0), ==, OK); /* half of them are none */
    send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 3);
    g_assert_cmpint(coal_vq(&rig, 1, 0, 50), ==, OK);
    send_from(&rig, 0, 1);
    g_assert_cmpint(rig.interrupts[1], ==, 4);
    rig_cleanup(&rig);
}

static void test_coal_change(void)
{
    uint8_t frame[60] = {0};
    Rig rig;

    start_coal(&rig);
    g_assert_cmpint(coal_all(&rig, true, 15, 200), ==, OK);
    for (unsigned i = 0; i < 10; i++) {
        rig_receive_frame(&rig, 0, frame, sizeof(frame));
    }
    g_assert_cmpint(coal_all(&rig, true, 12, 200), ==, OK);
    g_assert_cmpint(rig.interrupts[0], ==, 0);
    g_assert_cmpint(coal_all(&rig, true, 8, 200), ==, OK); /* met already */
    g_assert_cmpint(rig.interrupts[0], ==, 1);
    rig_receive_frame(&rig, 0, frame, sizeof(frame));
    g_assert_cmpint(coal_all(&rig, true, 8, 20), ==, OK); /* a shorter time holds at once */
    step_us(20);
    g_assert_cmpint(rig.interrupts[0], ==, 2);
    rig_receive_frame(&rig, 0, frame, sizeof(frame));
    g_assert_cmpint(coal_all(&rig, true, 0, 0), ==, OK); /* off: now */
    g_assert_cmpint(rig.interrupts[0], ==, 3);
    g_assert_cmpint(coal_all(&rig, true, 15, 200), ==, OK);
    rig_receive_frame(&rig, 0, frame, sizeof(frame));
    vm_stop(VM_PAUSED); /* nothing is held over a stop */
    g_assert_cmpint(rig.interrupts[0], ==, 4);
    vm_start();
    step_us(1000);
    g_assert_cmpint(rig.interrupts[0], ==, 4);

    /* Suppressed by the driver: the condition is met, and nobody is interrupted. */
    *(uint16_t *)(rig.ram + rig.rings[0].avail) = VRING_AVAIL_F_NO_INTERRUPT;
    for (unsigned i = 0; i < 15; i++) {
        rig_receive_frame(&rig, 0, frame, sizeof(frame));
    }
    step_us(1000);
    g_assert_cmpint(rig.interrupts[0], ==, 4);
    rig_cleanup(&rig);
}

/* --- device statistics --- */

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
    g_assert_cmpint(RUN(rig, 4, 0, 2, 0), ==, OK);
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
    send_from(&rig, 1, 7);
    g_assert_cmpint(RUN(&rig, 99, 0), ==, ERR);
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
    g_test_add_func("/mq/queues-follow-features", test_queues);
    g_test_add_func("/mq/pairs-set", test_pairs_set);
    g_test_add_func("/mq/traffic-by-pair", test_traffic_by_pair);
    g_test_add_func("/mq/queue-reset", test_queue_reset);
    g_test_add_func("/rss/config-space", test_rss_config_space);
    g_test_add_func("/rss/bad-commands-change-nothing", test_rss_bad);
    g_test_add_func("/rss/every-table-length", test_rss_table_lengths);
    g_test_add_func("/rss/steers", test_rss_steers);
    g_test_add_func("/rss/waits-for-buffers", test_rss_waits);
    g_test_add_func("/rss/batch-keeps-order", test_rss_batch);
    g_test_add_func("/hash/report", test_hash_report);
    g_test_add_func("/hash/tunnel", test_hash_tunnel);
    g_test_add_func("/coalescing/commands", test_coal_commands);
    g_test_add_func("/coalescing/bad-commands-change-nothing", test_coal_bad);
    g_test_add_func("/coalescing/rx-by-count-and-time", test_coal_rx);
    g_test_add_func("/coalescing/tx-by-count-and-time", test_coal_tx);
    g_test_add_func("/coalescing/changes-hold-at-once", test_coal_change);
    g_test_add_func("/stats/query", test_stats_query);
    g_test_add_func("/stats/get", test_stats_get);
    g_test_add_func("/stats/bad-commands", test_stats_bad);
    return g_test_run();
}
