/*
 * Several queue pairs: which queues there are, which are in use, where frames go; receive-side
 * scaling and hash reports, each with a table of commands that are wrong in one way and must change
 * nothing.
 */
#include <netinet/in.h>
#include <string.h>

#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"

#define F(name) VIRTIO_FEATURE(VIRTIO_NET_F_##name)
#define MQ      (RIG_MODERN | F(CTRL_VQ) | F(MQ))
#define RSS     (RIG_MODERN | F(CTRL_VQ) | F(RSS))

#define OK  VIRTIO_NET_OK
#define ERR VIRTIO_NET_ERR

/* --- queue pairs --- */

static void test_queues(void)
{
    Rig rig;

    rig_start_pairs(&rig, 4, "netdev=n0,mq=on", RIG_MODERN | F(CTRL_VQ));
    g_assert_cmpint(virtio_config_read(rig.vdev, 8, 2), ==, 4);
    g_assert_cmpint(rig.vdev->config_len, ==, 10);
    g_assert_cmpint(rig_ctrl(&rig), ==, 2); /* MQ is offered, but not taken */
    g_assert_cmpint(virtio_queue(rig.vdev, 2)->max_num, ==, 64);
    g_assert_null(virtio_queue(rig.vdev, 3));
    g_assert_null(virtio_queue(rig.vdev, 8));
    g_assert_cmpint(RIG_RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 2, 0), ==, ERR);

    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, MQ, 256);
    g_assert_cmpint(rig_ctrl(&rig), ==, 8);
    g_assert_cmpint(virtio_queue(rig.vdev, 2)->max_num, ==, 256);
    g_assert_cmpint(virtio_queue(rig.vdev, 8)->max_num, ==, 64);
    g_assert_cmpint(RIG_RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 2, 0), ==, OK);

    virtio_set_status(rig.vdev, 0);
    g_assert_cmpint(rig.n->present_pairs, ==, 1);
    g_assert_cmpint(virtio_queue(rig.vdev, 2)->max_num, ==, 64);
    rig_cleanup(&rig);

    rig_start_pairs(&rig, 1, "netdev=n0,mq=on", MQ); /* one pair: nothing to choose */
    g_assert_cmpint(rig_ctrl(&rig), ==, 2);
    g_assert_cmpint(RIG_RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 1, 0), ==, OK);
    g_assert_cmpint(RIG_RUN(&rig, VIRTIO_NET_CTRL_MQ, 0, 2, 0), ==, ERR);
    rig_cleanup(&rig);

    rig_start_pairs(&rig, 3, NULL, RIG_MODERN | F(CTRL_VQ)); /* mq=off: several queues, one used */
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

    rig_start_pairs(&rig, 4, "netdev=n0,mq=on", MQ);
    expect_attached(&rig, 1);
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 3, 0), ==, OK);
    expect_attached(&rig, 3);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_cmpint(rig_command(&rig, bad[i].bytes, bad[i].size), ==, ERR);
        g_assert_cmpint(rig.n->ctrl.queue_pairs, ==, 3);
        expect_attached(&rig, 3);
    }
    rig.refuse_attach = true;
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 4, 0), ==, ERR);
    g_assert_cmpint(rig.n->ctrl.queue_pairs, ==, 3);
    rig.refuse_attach = false;
    expect_attached(&rig, 3);
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 4, 0), ==, OK);
    expect_attached(&rig, 4);
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 2, 0), ==, OK);
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

    rig_start_pairs(&rig, 4, "netdev=n0,mq=on", MQ | RIG_MRG);
    for (unsigned i = 0; i < 4; i++) {
        rig_post_to(&rig, 2 * i, 8, 1500);
    }
    rig_send_from(&rig, 0, 0);
    rig_send_from(&rig, 2, 2); /* not in use yet: waits */
    g_assert_cmpint(rig.count, ==, 1);
    memset(frame, 0x77, sizeof(frame));
    g_assert_false(rig_receive_frame(&rig, 2, frame, sizeof(frame)));
    rig.writable = 0;
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 4, 0), ==, OK);
    g_assert_cmpint(rig.writable, >=, 4);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 2);
    g_assert_cmpint(rig.frames[1].queue, ==, 2);
    rig_assert_filled(rig.frames[1].bytes, 60, 2);
    for (unsigned i = 0; i < 4; i++) {
        rig_send_from(&rig, i, (uint8_t)i);
        g_assert_cmpint(rig.frames[2 + i].queue, ==, i);
        g_assert_true(rig_receive_frame(&rig, i, frame, sizeof(frame)));
        g_assert_cmpint(rig_count_used(&rig, 2 * i), ==, 1);
        g_assert_cmpint(rig.interrupts[2 * i], ==, 1);
        rig_assert_filled(rig.ram + RIG_DATA + i * 256 * 0x1000 + 12, 60, 0x77);
    }
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 1, 0), ==, OK);
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

    rig_start_pairs(&rig, 2, "netdev=n0,mq=on,queue_reset=on",
                    MQ | VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 2, 0), ==, OK);
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

    rig_start_pairs(&rig, 4, "netdev=n0,rss=on,hash_tunnel=on,hash-ipv4=off", RSS);
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

    rig_start_pairs(&rig, 4, "netdev=n0,rss=on", RSS);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x12, 127, 2, 3, NULL, KEY_LEN}), ==, OK);

    VirtIONetCtrlState before = rig.n->ctrl;
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_assert_cmpint(rss_config(&rig, &bad[i]), ==, ERR);
        g_assert_cmpmem(&before, sizeof(before), &rig.n->ctrl, sizeof(before));
        expect_attached(&rig, 3);
    }
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 1, 0), ==, ERR); /* MQ not taken */
    g_assert_cmpint(RIG_RUN(&rig, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), ==, ERR); /* HASH */
    g_assert_cmpint(RIG_RUN(&rig, 7, 0, 1, 0, 0, 0), ==, ERR); /* HASH_TUNNEL */
    rig_cleanup(&rig);
}

static void test_rss_table_lengths(void)
{
    Rig rig;

    rig_start_pairs(&rig, 4, "netdev=n0,rss=on", RSS);
    for (unsigned len = 1; len <= 128; len *= 2) {
        uint8_t frame[60];
        uint16_t mask = (uint16_t)(len - 1);
        unsigned queue = (0x51ccc178 & mask) % 4;

        g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, mask, 0, 4, NULL, KEY_LEN}), ==, OK);
        g_assert_cmpint(rig.n->ctrl.rss.table_len, ==, len);
        rig_post_to(&rig, 2 * queue, 1, 1500);
        g_assert_true(rig_receive_frame(&rig, 1, frame, tcp_frame(frame, 0)));
        g_assert_cmpint(rig_count_used(&rig, 2 * queue), ==, 1);
    }
    rig_cleanup(&rig);
}

static void test_rss_steers(void)
{
    uint8_t frame[60];
    unsigned by_queue[4] = {0};
    Rig rig;

    rig_start_pairs(&rig, 4, "netdev=n0,rss=on,mq=on", RSS | F(MQ));
    for (unsigned i = 0; i < 4; i++) {
        rig_post_to(&rig, 2 * i, 200, 1500);
    }
    /* Until configured: by the back end's queue. */
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    g_assert_cmpint(rig_count_used(&rig, 0), ==, 1);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, 127, 3, 4, NULL, KEY_LEN}), ==, OK);
    for (unsigned port = 1; port < 128; port++) {
        /* Whichever queue of the back end it came from. */
        g_assert_true(rig_receive_frame(&rig, port % 4, frame, tcp_frame(frame, (uint8_t)port)));
    }
    for (unsigned i = 0; i < 4; i++) {
        by_queue[i] = rig_count_used(&rig, 2 * i);
        g_assert_cmpint(by_queue[i], >, 10);
    }
    g_assert_cmpint(by_queue[0] + by_queue[1] + by_queue[2] + by_queue[3], ==, 127);
    memset(frame, 0x11, sizeof(frame)); /* nothing to hash */
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    g_assert_cmpint(rig_count_used(&rig, 6), ==, 1);
    /* A queue that is not there drops; the others go on. */
    g_assert_cmpint(RIG_RUN(&rig, 4, 0, 4, 0), ==, OK); /* automatic again */
    g_assert_true(rig_receive_frame(&rig, 1, frame, sizeof(frame)));
    g_assert_cmpint(rig_count_used(&rig, 2), ==, 1);
    rig_cleanup(&rig);
}

/* One queue without buffers holds up the back end's queue, which goes on when it gets some. */
static void test_rss_waits(void)
{
    uint8_t frame[60];
    Rig rig;
    const uint16_t all_to_2[1] = {2};

    rig_start_pairs(&rig, 4, "netdev=n0,rss=on", RSS);
    g_assert_cmpint(rss_config(&rig, &(RssCommand){0x1ff, 0, 2, 4, all_to_2, KEY_LEN}), ==, OK);
    g_assert_true(net_can_send(rig.peers[0]));
    g_assert_false(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    g_assert_cmpint(rig.n->queues[2].rx_stats.stalls, ==, 1);
    rig.writable = 0;
    rig_post_to(&rig, 4, 4, 1500);
    rig_notify(&rig, 4);
    g_assert_cmpint(rig.writable, ==, 2); /* queue 0's, which waits, and its own */
    g_assert_true(rig_receive_frame(&rig, 0, frame, tcp_frame(frame, 0)));
    g_assert_cmpint(rig_count_used(&rig, 4), ==, 1);
    rig_cleanup(&rig);

    rig_start_pairs(&rig, 4, "netdev=n0,rss=on", RSS | VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
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

    rig_start_pairs(&rig, 4, "netdev=n0,rss=on", RSS);
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
        unsigned n = rig_count_used(&rig, 2 * q);

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

    rig_start_pairs(&rig, 1, "netdev=n0,hash=on",
                    RIG_MODERN | RIG_MRG | F(CTRL_VQ) | F(HASH_REPORT));
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

    rig_start_pairs(&rig, 1, "netdev=n0,hash=on,hash_tunnel=on",
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
    g_assert_cmpint(RIG_RUN(&rig, 7, 0, 0x80, 0, 0, 0), ==, OK);
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    g_assert_cmpmem(hdr + 0x1000 + 12, 6, "\x78\xc1\xcc\x51\2\0", 6);
    g_assert_cmpint(RIG_RUN(&rig, 7, 0, 0, 2, 0, 0), ==, ERR); /* unknown type */
    g_assert_cmpint(RIG_RUN(&rig, 7, 0, 0, 0, 0), ==, ERR);
    g_assert_cmpint(RIG_RUN(&rig, 7, 0, 0, 0, 0, 0, 0), ==, ERR);
    g_assert_cmpint(RIG_RUN(&rig, 7, 1, 0, 0, 0, 0), ==, ERR);
    g_assert_cmphex(rig.n->ctrl.hash_tunnels, ==, 0x80);
    g_assert_cmpint(RIG_RUN(&rig, 7, 0, 0, 0, 0, 0), ==, OK);
    g_assert_true(rig_receive_frame(&rig, 0, frame, sizeof(frame)));
    g_assert_cmpmem(hdr + 0x2000 + 12, 6, "\xc2\x8f\x3e\x32\1\0", 6);
    virtio_set_status(rig.vdev, 0);
    g_assert_cmphex(rig.n->ctrl.hash_tunnels, ==, 0);
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
    return g_test_run();
}
