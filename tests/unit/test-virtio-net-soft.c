/*
 * Offloads in software: what a device makes of frames for a peer that has no vnet header, or fewer
 * offloads than the driver was offered, compared with a second implementation (tests/lib), in all
 * layouts of buffers and with a peer that takes little at a time.
 */
#include <string.h>

#include "hw/net/segment.h"
#include "tests/lib/frame-builder.h"
#include "tests/unit/virtio-net-rig.h"

#define F(name) VIRTIO_FEATURE(VIRTIO_NET_F_##name)
#define HOST                                                                                       \
    (RIG_MODERN | F(CSUM) | F(HOST_TSO4) | F(HOST_TSO6) | F(HOST_ECN) | F(HOST_USO) | F(CTRL_VQ) | \
     F(DEVICE_STATS) | VIRTIO_FEATURE(VIRTIO_RING_F_INDIRECT_DESC))
#define TCP4 VIRTIO_NET_HDR_GSO_TCPV4
#define TCP6 VIRTIO_NET_HDR_GSO_TCPV6
#define UDP  VIRTIO_NET_HDR_GSO_UDP_L4
#define ECN  VIRTIO_NET_HDR_GSO_ECN

static const uint8_t to[6] = {0x02, 0, 0, 0, 0, 1};

static const FrameSpec specs[] = {
    {"plain udp", .ip_version = 4, .protocol = 17, .payload = 500},
    {"no ip", .payload = 300},
    {"csum tcp4", .ip_version = 4, .protocol = 6, .payload = 1000, .partial = true},
    {"csum tcp6", .ip_version = 6, .protocol = 6, .payload = 999, .partial = true},
    {"csum udp4", .ip_version = 4, .protocol = 17, .payload = 1, .partial = true},
    {"csum udp6 vlan", .ip_version = 6, .protocol = 17, .vlan = 7, .payload = 77, .partial = true},
    {"csum options", .ip_version = 6, .protocol = 6, .ip_options = true, .payload = 5,
     .partial = true},
    {"csum empty", .ip_version = 4, .protocol = 6, .payload = 0, .partial = true},
    {"tso4", .ip_version = 4, .protocol = 6, .payload = 5000, .gso_size = 1448, .gso_type = TCP4},
    {"tso4 options vlan", .ip_version = 4, .protocol = 6, .vlan = 5, .ip_options = true,
     .tcp_flags = 0x19, .payload = 4001, .gso_size = 1000, .gso_type = TCP4},
    {"tso6", .ip_version = 6, .protocol = 6, .tcp_flags = 0x18, .payload = 9001, .gso_size = 1428,
     .gso_type = TCP6},
    {"tso6 options", .ip_version = 6, .protocol = 6, .ip_options = true, .payload = 3000,
     .gso_size = 999, .gso_type = TCP6},
    {"tso4 ecn", .ip_version = 4, .protocol = 6, .tcp_flags = 0x90, .payload = 5000,
     .gso_size = 1448, .gso_type = TCP4 | ECN},
    {"tso4 64K", .ip_version = 4, .protocol = 6, .tcp_flags = 0x11, .payload = 65000,
     .gso_size = 1448, .gso_type = TCP4},
    {"tso4 odd and small", .ip_version = 4, .protocol = 6, .payload = 2001, .gso_size = 7,
     .gso_type = TCP4},
    {"tso6 one byte more", .ip_version = 6, .protocol = 6, .payload = 1001, .gso_size = 1000,
     .gso_type = TCP6},
    {"tso4 exact", .ip_version = 4, .protocol = 6, .payload = 4000, .gso_size = 1000,
     .gso_type = TCP4},
    {"uso4", .ip_version = 4, .protocol = 17, .payload = 7000, .gso_size = 1472, .gso_type = UDP},
    {"uso6", .ip_version = 6, .protocol = 17, .payload = 3001, .gso_size = 1000, .gso_type = UDP},
    {"too small for gso", .ip_version = 4, .protocol = 6, .payload = 900, .gso_size = 1000,
     .gso_type = TCP4},
};

/* The rig's frames from @at on are what @built must become; returns how many. */
static unsigned expect_frames(const Rig *rig, unsigned at, const BuiltFrame *built,
                              unsigned peer_hdr)
{
    char *problem = NULL;
    g_autoptr(GPtrArray) want = frame_finish(&built->header, built->bytes, built->size, &problem);

    g_assert_cmpstr(problem, ==, NULL);
    for (unsigned i = 0; i < want->len; i++) {
        const GByteArray *bytes = want->pdata[i];
        const RigFrame *got = &rig->frames[at + i];

        g_assert_cmpuint(at + i, <, rig->count);
        rig_assert_filled(got->bytes, peer_hdr, 0);
        g_assert_cmpmem(got->bytes + peer_hdr, got->size - peer_hdr, bytes->data, bytes->len);
    }
    return want->len;
}

/* Puts the frame behind its header into guest memory at @addr, in pieces of at most @piece bytes
 * each (the header whole, with the frame's first bytes where @joined). */
static void send_built(Rig *rig, uint64_t addr, const BuiltFrame *built, size_t piece, bool joined)
{
    unsigned hdr = rig->n->guest_hdr_len, n = 0;
    size_t total = hdr + built->size, at = 0;
    static RigPart parts[2048];

    memset(rig->ram + addr, 0, hdr);
    memcpy(rig->ram + addr, &built->header, 10);
    memcpy(rig->ram + addr + hdr, built->bytes, built->size);
    while (at < total) {
        size_t len = at == 0 && !joined ? hdr : MIN(piece, total - at);

        g_assert_cmpuint(n, <, G_N_ELEMENTS(parts));
        parts[n++] = (RigPart){addr + at, (uint32_t)len, false};
        at += len;
    }
    rig_add(rig, RIG_TX, parts, n, addr + 0x20000);
}

static void run(Rig *rig)
{
    rig_notify(rig, RIG_TX);
    rig_loop();
}

static void test_every_kind(void)
{
    static const size_t pieces[] = {1, 13, 100, 1460, 4096, 70000};
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,device_stats=on", HOST, 256);
    g_assert_true(rig.n->tx_soft);
    for (unsigned i = 0; i < G_N_ELEMENTS(specs); i++) {
        for (unsigned p = 0; p < 2 * G_N_ELEMENTS(pieces); p++) {
            size_t piece = pieces[p / 2];
            BuiltFrame built;

            frame_build(&built, &specs[i], to);
            if (built.size / piece < 1500) {
                g_test_message("%s in pieces of %zu", specs[i].name, piece);
                send_built(&rig, RIG_DATA, &built, piece, p % 2);
                run(&rig);
                g_assert_cmpuint(expect_frames(&rig, 0, &built, 0), ==, rig.count);
                g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 1);
                rig_forget_frames(&rig);
            }
            frame_clear(&built);
        }
    }
    g_assert_cmpint(rig.n->queues[0].tx_stats.drops[NET_DROP_BAD_HEADER], ==, 0);
    rig_cleanup(&rig);
}

/* All kinds in one burst, to a peer that takes a few at a time: nothing lost, doubled or
 * overtaken. */
static void test_short_of_room(void)
{
    for (unsigned room = 1; room < 60; room += 7) {
        BuiltFrame built[G_N_ELEMENTS(specs)];
        unsigned at = 0;
        Rig rig;

        rig_init(&rig);
        rig_start(&rig, "netdev=n0,device_stats=on", HOST, 256);
        for (unsigned i = 0; i < G_N_ELEMENTS(specs); i++) {
            frame_build(&built[i], &specs[i], to);
            send_built(&rig, RIG_DATA + i * 0x40000, &built[i], 3000, i % 2);
        }
        rig.room = 0;
        run(&rig);
        while (rig.room == 0) {
            rig.room = room;
            net_peer_writable(rig.peer);
            rig_loop();
        }
        for (unsigned i = 0; i < G_N_ELEMENTS(specs); i++) {
            at += expect_frames(&rig, at, &built[i], 0);
            frame_clear(&built[i]);
        }
        g_assert_cmpuint(at, ==, rig.count);
        g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, G_N_ELEMENTS(specs));
        rig_cleanup(&rig);
    }
}

/* More segments than a batch of the back end, and more pieces than the arena. */
static void test_many_segments(void)
{
    static const FrameSpec spec = {"tso4",         .ip_version = 4, .protocol = 6,
                                   .payload = 960, .gso_size = 2,   .gso_type = TCP4};
    static const FrameSpec csum = {"csum", .ip_version = 4, .protocol = 6, .payload = 950,
                                   .partial = true};
    const FrameSpec *all[] = {&spec, &csum};
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0", HOST, 256);
    for (unsigned i = 0; i < 2; i++) {
        BuiltFrame built;

        frame_build(&built, all[i], to);
        send_built(&rig, RIG_DATA, &built, 1, false); /* more pieces than a system call takes */
        send_built(&rig, RIG_DATA + 0x40000, &built, 2, false);
        run(&rig);
        unsigned at = expect_frames(&rig, 0, &built, 0);
        at += expect_frames(&rig, at, &built, 0);
        g_assert_cmpuint(at, ==, rig.count);
        rig_forget_frames(&rig);
        frame_clear(&built);
    }
    rig_cleanup(&rig);
}

/* A peer that does a part: its share passes by, with the header; the rest is done here. */
static void test_partly_native(void)
{
    Rig rig;

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true, .ecn = true}};
    rig_start(&rig, "netdev=n0", HOST, 256);
    g_assert_true(rig.n->tx_soft);
    for (unsigned i = 0; i < G_N_ELEMENTS(specs); i++) {
        uint8_t gso = specs[i].gso_size ? specs[i].gso_type & 0x7f : 0;
        BuiltFrame built;

        frame_build(&built, &specs[i], to);
        send_built(&rig, RIG_DATA, &built, 4000, true);
        run(&rig);
        if (gso == TCP6 || gso == UDP) {
            g_assert_cmpuint(expect_frames(&rig, 0, &built, 12), ==, rig.count);
        } else {
            g_assert_cmpuint(rig.count, ==, 1);
            g_assert_cmpmem(rig.frames[0].bytes, 10, &built.header, 10);
            g_assert_cmpmem(rig.frames[0].bytes + 12, rig.frames[0].size - 12, built.bytes,
                            built.size);
        }
        rig_drain_used(&rig, RIG_TX, 0);
        rig_forget_frames(&rig);
        frame_clear(&built);
    }
    rig_cleanup(&rig);
}

static void test_off(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,x-soft-offloads=off", HOST, 256);
    g_assert_false(virtio_host_has_feature(rig.vdev, VIRTIO_NET_F_CSUM));
    g_assert_false(rig.n->tx_soft || rig.n->tx_look);
    rig_cleanup(&rig);
}

/* What a driver may ask for that no frame can be made of: dropped, counted, and the queue goes on.
 */
static void test_bad_requests(void)
{
    static const FrameSpec tso = {"tso4",          .ip_version = 4,  .protocol = 6,
                                  .payload = 5000, .gso_size = 1000, .gso_type = TCP4};
    static const struct virtio_net_hdr_v1 bad[] = {
        {.flags = 1, .gso_type = TCP4, .gso_size = 0, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = TCP6, .gso_size = 1000, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = UDP, .gso_size = 1000, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = TCP4, .gso_size = 1000, .csum_start = 35, .csum_offset = 16},
        {.flags = 1, .gso_type = TCP4, .gso_size = 1000, .csum_start = 34, .csum_offset = 6},
        {.flags = 1, .gso_type = TCP4, .gso_size = 1000, .csum_start = 65000, .csum_offset = 16},
        {.flags = 1, .gso_type = 2, .gso_size = 1000, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = 0x80, .gso_size = 1000, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = 3, .gso_size = 1000, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .csum_start = 0xffff, .csum_offset = 0xffff},
        {.flags = 1, .csum_start = 5065, .csum_offset = 0},
    };
    BuiltFrame built;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0", HOST, 256);
    frame_build(&built, &tso, to);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        BuiltFrame wrong = built;

        wrong.header = bad[i];
        send_built(&rig, RIG_DATA, &built, 4000, false);
        send_built(&rig, RIG_DATA + 0x40000, &wrong, 4000, false);
        send_built(&rig, RIG_DATA + 0x80000, &built, 4000, true);
        run(&rig);
        unsigned at = expect_frames(&rig, 0, &built, 0);
        g_assert_cmpuint(at + expect_frames(&rig, at, &built, 0), ==, rig.count);
        g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 3);
        g_assert_cmpint(rig.n->queues[0].tx_stats.drops[NET_DROP_BAD_HEADER], ==, i + 1);
        rig_forget_frames(&rig);
    }
    /* A frame that is no frame: shorter than an Ethernet header. */
    BuiltFrame tiny = built;
    tiny.size = 9;
    send_built(&rig, RIG_DATA, &tiny, 4000, false);
    run(&rig);
    g_assert_cmpint(rig.n->queues[0].tx_stats.drops[NET_DROP_BAD_HEADER], ==,
                    G_N_ELEMENTS(bad) + 1);
    frame_clear(&built);
    rig_cleanup(&rig);
}

/* A checksum far behind any header: the frame is copied. */
static void test_far_checksum(void)
{
    uint8_t bytes[2000];
    BuiltFrame built = {.bytes = bytes, .size = sizeof(bytes)};
    Rig rig;

    for (unsigned i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 7);
    }
    built.header = (struct virtio_net_hdr_v1){.flags = 1, .csum_start = 1001, .csum_offset = 6};
    rig_init(&rig);
    rig_start(&rig, "netdev=n0", HOST, 256);
    send_built(&rig, RIG_DATA, &built, 100, false);
    send_built(&rig, RIG_DATA + 0x40000, &built, 100, true);
    run(&rig);
    g_assert_cmpuint(rig.count, ==, 2);
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *got = rig.frames[i].bytes;

        g_assert_cmpmem(got, 1007, bytes, 1007);
        g_assert_cmpmem(got + 1009, 991, bytes + 1009, 991);
        /* With the old value added to the new sum everything adds up to all ones. */
        uint64_t sum = csum_add(0, got + 1001, 999, false) + csum_add(0, bytes + 1007, 2, false);
        g_assert_cmphex(csum_fold(sum), ==, 0xffff);
    }
    rig_cleanup(&rig);
}

/* A reset in the middle of a frame's segments: what comes next begins anew. */
static void test_reset_between_segments(void)
{
    static const FrameSpec tso = {"tso4",          .ip_version = 4,  .protocol = 6,
                                  .payload = 5000, .gso_size = 1000, .gso_type = TCP4};
    BuiltFrame built;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0", HOST, 256);
    frame_build(&built, &tso, to);
    send_built(&rig, RIG_DATA, &built, 4000, false);
    rig.room = 2;
    run(&rig);
    g_assert_cmpuint(rig.count, ==, 2);
    virtio_set_status(rig.vdev, 0);
    rig_forget_frames(&rig);
    rig.room = UINT32_MAX;
    rig_drive(&rig, HOST, 256);
    send_built(&rig, RIG_DATA, &built, 4000, false);
    run(&rig);
    g_assert_cmpuint(expect_frames(&rig, 0, &built, 0), ==, rig.count);
    frame_clear(&built);
    rig_cleanup(&rig);
}

static void test_counters(void)
{
    const VirtIONetQueue *q;
    BuiltFrame built;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,device_stats=on", HOST, 256);
    q = &rig.n->queues[0];
    frame_build(&built, &specs[8], to); /* 5,000 bytes in four segments */
    send_built(&rig, RIG_DATA, &built, 4000, false);
    run(&rig);
    g_assert_cmpint(q->tx_gso.packets, ==, 1);
    g_assert_cmpint(q->tx_gso.bytes, ==, built.size);
    g_assert_cmpint(q->tx_gso.segments, ==, 4);
    g_assert_cmpint(q->tx_gso.segments_bytes, ==, built.size + 3 * (built.size - 5000));
    g_assert_cmpint(q->tx_gso.packets_noseg, ==, 0);
    g_assert_cmpint(q->tx_csum.needs, ==, 1);
    rig_send(&rig, RIG_DATA, 60, 0);
    run(&rig);
    g_assert_cmpint(q->tx_csum.none, ==, 1);

    uint64_t basic[6];
    virtio_net_device_stats(rig.n, 1, VIRTIO_NET_STATS_TYPE_REPLY_TX_BASIC, basic);
    g_assert_cmpint(basic[1], ==, 5);
    g_assert_cmpint(basic[2], ==, q->tx_gso.segments_bytes + 60);
    frame_clear(&built);
    rig_cleanup(&rig);
}

/* --- receiving --- */

/* A peer's partial checksum for a driver that does not complete any, over all buffer layouts. */
static void test_rx_completes_checksum(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(specs); i++) {
        for (uint32_t buffer = 60; buffer < 2000; buffer = buffer * 3 / 2 + 1) {
            uint8_t bytes[4000], got[4000];
            char *problem = NULL;
            unsigned head, len;
            size_t size = 0;
            BuiltFrame built;
            Rig rig;

            if (specs[i].gso_size) {
                continue;
            }
            rig_init(&rig);
            rig.caps = (NetCaps){.vnet_hdr = true, .offloads.csum = true};
            rig_start(&rig, "netdev=n0", RIG_MODERN | RIG_MRG, 256);
            rig_post(&rig, 64, buffer);
            frame_build(&built, &specs[i], to);
            memcpy(bytes, &built.header, 12);
            memcpy(bytes + 12, built.bytes, built.size);
            g_assert_true(rig_receive_frame(&rig, 0, bytes, 12 + built.size));
            for (unsigned n = 0; rig_used(&rig, RIG_RX, &head, &len); n++) {
                memcpy(got + size, rig.ram + RIG_DATA + n * 0x1000, len);
                size += len;
            }
            rig_assert_filled(got, 10, 0);
            g_autoptr(GPtrArray) want =
                frame_finish(&built.header, built.bytes, built.size, &problem);
            const GByteArray *whole = want->pdata[0];
            g_assert_cmpmem(got + 12, size - 12, whole->data, whole->len);
            frame_clear(&built);
            rig_cleanup(&rig);
        }
    }
}

/* GUEST_HDRLEN is the driver's promise that hdr_len is exact (virtio 1.4, 5.1.6.2).  The headers
 * say it too, so a wrong one does no harm, promised or not; a peer gets what the driver wrote. */
static void test_hdr_len(void)
{
    static const uint16_t lengths[] = {0, 1, 54, 55, 0x7fff, 0xffff};

    for (unsigned i = 0; i < 4 * G_N_ELEMENTS(lengths); i++) {
        bool native = i & 1, promised = i & 2;
        uint16_t hdr_len = lengths[i / 4];
        BuiltFrame built;
        Rig rig;

        rig_init(&rig);
        if (native) {
            rig.caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true}};
        }
        rig_start(&rig, "netdev=n0,guest_hdrlen=on", HOST | (promised ? F(GUEST_HDRLEN) : 0), 256);
        g_assert_true(!(rig.vdev->guest_features & F(GUEST_HDRLEN)) == !promised);
        frame_build(&built,
                    &(FrameSpec){"tso4", .ip_version = 4, .protocol = 6, .payload = 3001,
                                 .gso_size = 1000, .gso_type = TCP4},
                    to);
        uint16_t exact = built.header.hdr_len;
        built.header.hdr_len = hdr_len;
        send_built(&rig, RIG_DATA, &built, 4096, false);
        run(&rig);
        if (native) {
            g_assert_cmpuint(rig.count, ==, 1);
            g_assert_cmpmem(rig.frames[0].bytes, 10, &built.header, 10);
        } else {
            built.header.hdr_len = exact;
            g_assert_cmpuint(expect_frames(&rig, 0, &built, 0), ==, 4);
            g_assert_cmpuint(rig.count, ==, 4);
        }
        frame_clear(&built);
        rig_cleanup(&rig);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/soft/every-kind-in-every-layout", test_every_kind);
    g_test_add_func("/soft/peer-short-of-room", test_short_of_room);
    g_test_add_func("/soft/many-segments-and-pieces", test_many_segments);
    g_test_add_func("/soft/peer-does-a-part", test_partly_native);
    g_test_add_func("/soft/off", test_off);
    g_test_add_func("/soft/bad-requests-cost-one-frame", test_bad_requests);
    g_test_add_func("/soft/checksum-behind-any-header", test_far_checksum);
    g_test_add_func("/soft/reset-between-segments", test_reset_between_segments);
    g_test_add_func("/soft/counters", test_counters);
    g_test_add_func("/soft/rx-completes-checksum", test_rx_completes_checksum);
    g_test_add_func("/soft/hdr-len-is-not-relied-on", test_hdr_len);
    return g_test_run();
}
