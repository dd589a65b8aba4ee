/*
 * Receive-side coalescing, segmentation of what a driver does not take, and tunnel offloads.
 *
 * What a driver receives is checked by cutting it again: frame_finish() of a coalesced frame must
 * give the segments that were sent, byte for byte.
 */
#include <netinet/in.h>
#include <string.h>

#include "tests/lib/frame-builder.h"
#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"
#include "util/runstate.h"

#define F(name) VIRTIO_FEATURE(VIRTIO_NET_F_##name)
#define RSC     (RIG_MODERN | RIG_MRG | F(GUEST_CSUM) | F(GUEST_TSO4) | F(GUEST_TSO6) | F(RSC_EXT))
#define TCP4    VIRTIO_NET_HDR_GSO_TCPV4
#define TCP6    VIRTIO_NET_HDR_GSO_TCPV6

static const uint8_t to[6] = {0x02, 0, 0, 0, 0, 1};

static void start(Rig *rig, const char *more)
{
    g_autofree char *props = g_strconcat("netdev=n0,guest_rsc_ext=on", more, NULL);

    rig_init(rig);
    rig_start(rig, props, RSC, 256);
    rig_post(rig, 200, 2000);
}

static void step_us(unsigned us)
{
    clock_step_virtual(clock_get_ns(CLOCK_VIRTUAL) + us * 1000ll);
    rig_loop();
}

/* The segments of a large frame, complete, as they would come over a wire. */
static GPtrArray *segments(const FrameSpec *spec)
{
    char *problem = NULL;
    BuiltFrame built;
    GPtrArray *frames;

    frame_build(&built, spec, to);
    frames = frame_finish(&built.header, built.bytes, built.size, &problem);
    g_assert_cmpstr(problem, ==, NULL);
    frame_clear(&built);
    return frames;
}

static const GByteArray *segment(const GPtrArray *frames, unsigned i)
{
    return frames->pdata[i];
}

static void receive(Rig *rig, const GByteArray *frame)
{
    g_assert_true(rig_receive_frame(rig, 0, frame->data, frame->len));
}

typedef struct Got {
    struct virtio_net_hdr_v1 hdr;
    uint8_t bytes[NET_MAX_FRAME];
    size_t size;
} Got;

/* The next frame in the receive ring; false: none. */
static bool take(Rig *rig, Got *got)
{
    unsigned head, len, left;

    if (!rig_used(rig, RIG_RX, &head, &len)) {
        return false;
    }
    memcpy(&got->hdr, rig->ram + RIG_DATA + head * 0x1000, 12);
    got->size = len - 12;
    memcpy(got->bytes, rig->ram + RIG_DATA + head * 0x1000 + 12, got->size);
    for (left = got->hdr.num_buffers; left > 1; left--) {
        g_assert_true(rig_used(rig, RIG_RX, &head, &len));
        memcpy(got->bytes + got->size, rig->ram + RIG_DATA + head * 0x1000, len);
        got->size += len;
    }
    return true;
}

static void expect_whole(Rig *rig, const GByteArray *want)
{
    static Got got;

    g_assert_true(take(rig, &got));
    g_assert_cmpint(got.hdr.gso_type, ==, 0);
    g_assert_cmpint(got.hdr.flags, ==, 0);
    g_assert_cmpmem(got.bytes, got.size, want->data, want->len);
}

/* A coalesced frame of segments [from, to_) of @frames. */
static void expect_coalesced(Rig *rig, const GPtrArray *frames, unsigned from, unsigned to_,
                             unsigned dup_acks)
{
    static Got got;
    char *problem = NULL;
    bool v4;

    g_assert_true(take(rig, &got));
    g_assert_cmphex(got.hdr.flags, ==, VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_RSC_INFO);
    g_assert_cmpint(got.hdr.csum_start, ==, to_ - from);
    g_assert_cmpint(got.hdr.csum_offset, ==, dup_acks);
    v4 = got.hdr.gso_type == TCP4;
    g_assert_true(v4 || got.hdr.gso_type == TCP6);
    got.hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    got.hdr.csum_start = v4 ? 34 : 54;
    got.hdr.csum_offset = 16;
    g_autoptr(GPtrArray) cut = frame_finish(&got.hdr, got.bytes, got.size, &problem);
    g_assert_cmpstr(problem, ==, NULL);
    g_assert_cmpint(cut->len, ==, to_ - from);
    for (unsigned i = 0; i < cut->len; i++) {
        const GByteArray *one = segment(cut, i), *want = segment(frames, from + i);

        g_assert_cmpmem(one->data, one->len, want->data, want->len);
    }
}

static const FrameSpec v4 = {"tcp4",           .ip_version = 4,  .protocol = 6,    .payload = 10000,
                             .gso_size = 1000, .gso_type = TCP4, .tcp_flags = 0x10};
static const FrameSpec v4_push = {"tcp4",           .ip_version = 4,  .protocol = 6,
                                  .payload = 10000, .gso_size = 1000, .gso_type = TCP4,
                                  .tcp_flags = 0x18};
static const FrameSpec v6 = {"tcp6",           .ip_version = 6,  .protocol = 6,    .payload = 9500,
                             .gso_size = 1000, .gso_type = TCP6, .tcp_flags = 0x10};

static void test_offered(void)
{
    Rig rig;

    start(&rig, "");
    g_assert_true(virtio_host_has_feature(rig.vdev, VIRTIO_NET_F_RSC_EXT));
    g_assert_true(virtio_host_has_feature(rig.vdev, VIRTIO_NET_F_GUEST_TSO6));
    g_assert_nonnull(rig.n->queues[0].rsc);
    virtio_set_status(rig.vdev, 0);
    g_assert_null(rig.n->queues[0].rsc);
    rig_cleanup(&rig);
}

static void test_coalesces(void)
{
    const FrameSpec *all[] = {&v4_push, &v6}; /* ended by PSH, and by a short segment */
    Rig rig;

    for (unsigned k = 0; k < 2; k++) {
        g_autoptr(GPtrArray) frames = segments(all[k]);
        Got got;

        start(&rig, "");
        for (unsigned i = 0; i < frames->len; i++) {
            g_assert_false(take(&rig, &got));
            receive(&rig, segment(frames, i));
        }
        expect_coalesced(&rig, frames, 0, frames->len, 0);
        g_assert_cmpint(rig.interrupts[RIG_RX], ==, 1);
        g_assert_cmpint(rig.n->queues[0].rx_gso.coalesced_packets, ==, 1);
        step_us(1000);
        g_assert_false(take(&rig, &got));
        rig_cleanup(&rig);
    }
}

static void test_timer(void)
{
    g_autoptr(GPtrArray) frames = segments(&v4);
    static Got got;
    Rig rig;

    start(&rig, "");
    receive(&rig, segment(frames, 0));
    receive(&rig, segment(frames, 1));
    step_us(299);
    g_assert_false(take(&rig, &got));
    step_us(1);
    expect_coalesced(&rig, frames, 0, 2, 0);
    receive(&rig, segment(frames, 2)); /* one alone stays what it is */
    step_us(300);
    expect_whole(&rig, segment(frames, 2));
    rig_cleanup(&rig);

    start(&rig, ",rsc_interval=50000");
    receive(&rig, segment(frames, 0));
    step_us(50);
    expect_whole(&rig, segment(frames, 0));
    rig_cleanup(&rig);
}

/* Whatever does not continue a flow comes behind what was kept of it; nothing is overtaken. */
static void test_order(void)
{
    g_autoptr(GPtrArray) frames = segments(&v4);
    g_autoptr(GPtrArray) other = segments(&v6);
    g_autofree uint8_t *fin = g_memdup2(segment(frames, 3)->data, segment(frames, 3)->len);
    BuiltFrame arp;
    static Got got;
    Rig rig;

    start(&rig, "");
    receive(&rig, segment(frames, 0));
    receive(&rig, segment(other, 0)); /* flows do not disturb each other */
    receive(&rig, segment(frames, 1));
    receive(&rig, segment(other, 1));
    receive(&rig, segment(frames, 3)); /* a gap: what was kept, and a new beginning */
    expect_coalesced(&rig, frames, 0, 2, 0);
    receive(&rig, segment(frames, 2));
    expect_whole(&rig, segment(frames, 3));
    fin[47] |= 1; /* FIN, and with it a wrong checksum too */
    g_assert_true(rig_receive_frame(&rig, 0, fin, segment(frames, 3)->len));
    expect_whole(&rig, segment(frames, 2));
    g_assert_true(take(&rig, &got));
    g_assert_cmpmem(got.bytes, got.size, fin, segment(frames, 3)->len);
    frame_build_arp(&arp);
    g_assert_true(rig_receive_frame(&rig, 0, arp.bytes, arp.size));
    g_assert_true(take(&rig, &got)); /* not TCP: at once */
    g_assert_cmpmem(got.bytes, got.size, arp.bytes, arp.size);
    step_us(300);
    expect_coalesced(&rig, other, 0, 2, 0);
    g_assert_false(take(&rig, &got));
    frame_clear(&arp);
    rig_cleanup(&rig);
}

/* A segment with a bad checksum is the driver's to see, as it is. */
static void test_bad_checksum(void)
{
    g_autoptr(GPtrArray) frames = segments(&v4);
    g_autofree uint8_t *bad = g_memdup2(segment(frames, 1)->data, segment(frames, 1)->len);
    static Got got;
    Rig rig;

    start(&rig, "");
    bad[100] ^= 1;
    receive(&rig, segment(frames, 0));
    g_assert_true(rig_receive_frame(&rig, 0, bad, segment(frames, 1)->len));
    expect_whole(&rig, segment(frames, 0));
    g_assert_true(take(&rig, &got));
    g_assert_cmpmem(got.bytes, got.size, bad, segment(frames, 1)->len);
    rig_cleanup(&rig);
}

static void test_full(void)
{
    FrameSpec spec = v4;
    static Got got;
    Rig rig;

    spec.payload = 65000;
    g_autoptr(GPtrArray) frames = segments(&spec);
    spec.seed = 9;
    start(&rig, "");
    for (unsigned i = 0; i < frames->len; i++) {
        receive(&rig, segment(frames, i));
    }
    step_us(300);
    expect_coalesced(&rig, frames, 0, 65, 0); /* 65,052 bytes of IP: no room for another */
    g_assert_false(take(&rig, &got));
    rig_cleanup(&rig);
}

static void test_many_flows(void)
{
    static Got got;
    Rig rig;
    g_autoptr(GPtrArray) frames = segments(&v4);

    start(&rig, "");
    for (unsigned port = 0; port < 17; port++) {
        /* Another port, and the checksum with it. */
        GByteArray *one = (GByteArray *)segment(frames, 0);
        uint16_t old = frame_get16(one->data + 34), sum = frame_get16(one->data + 50);
        uint32_t next = (uint32_t)(uint16_t)~sum + (uint16_t)~old + (40000 + port);

        frame_put16(one->data + 34, 40000 + port);
        frame_put16(one->data + 50, (uint16_t)~csum_fold(next));
        receive(&rig, one);
        g_assert_cmpint(take(&rig, &got), ==, port == 16); /* the oldest makes room */
    }
    g_assert_cmpint(frame_get16(got.bytes + 34), ==, 40000);
    step_us(300);
    for (unsigned port = 1; port < 17; port++) {
        g_assert_true(take(&rig, &got));
        g_assert_cmpint(frame_get16(got.bytes + 34), ==, 40000 + port);
    }
    rig_cleanup(&rig);
}

/* Acknowledgements that say the same again are counted and kept. */
static void test_dup_acks(void)
{
    FrameSpec ack = {"ack", .ip_version = 4, .protocol = 6, .payload = 0, .tcp_flags = 0x10};
    g_autoptr(GPtrArray) frames = segments(&v4);
    BuiltFrame built;
    static Got got;
    Rig rig;

    frame_build(&built, &ack, to);
    /* It continues the two segments: their sequence number and 2,000. */
    uint32_t seq = frame_get32(built.bytes + 38);
    uint64_t sum = (uint16_t)~frame_get16(built.bytes + 50);
    sum += (uint16_t) ~(seq >> 16) + (uint16_t) ~(seq & 0xffff);
    seq += 2000;
    sum += (seq >> 16) + (seq & 0xffff);
    frame_put32(built.bytes + 38, seq);
    frame_put16(built.bytes + 50, (uint16_t)~csum_fold(sum));
    start(&rig, "");
    receive(&rig, segment(frames, 0));
    receive(&rig, segment(frames, 1));
    for (unsigned i = 0; i < 3; i++) {
        g_assert_true(rig_receive_frame(&rig, 0, built.bytes, built.size));
    }
    step_us(300);
    expect_coalesced(&rig, frames, 0, 2, 3);
    g_assert_true(rig_receive_frame(&rig, 0, built.bytes, built.size)); /* alone: as it is */
    g_assert_true(take(&rig, &got));
    g_assert_cmpmem(got.bytes, got.size, built.bytes, built.size);
    frame_clear(&built);
    rig_cleanup(&rig);
}

/* Without buffers a kept frame waits, and so does what comes behind it. */
static void test_no_buffers(void)
{
    g_autoptr(GPtrArray) frames = segments(&v4_push);
    static Got got;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,guest_rsc_ext=on", RSC, 256);
    for (unsigned i = 0; i < frames->len; i++) {
        g_assert_true(
            rig_receive_frame(&rig, 0, segment(frames, i)->data, segment(frames, i)->len));
    }
    g_assert_false(rig_receive_frame(&rig, 0, segment(frames, 0)->data, segment(frames, 0)->len));
    rig.writable = 0;
    rig_post(&rig, 2, 2000); /* not enough */
    rig_notify(&rig, RIG_RX);
    g_assert_cmpint(rig.writable, ==, 0);
    g_assert_false(take(&rig, &got));
    rig_post(&rig, 20, 2000);
    rig_notify(&rig, RIG_RX);
    g_assert_cmpint(rig.writable, ==, 1);
    expect_coalesced(&rig, frames, 0, frames->len, 0);
    rig_cleanup(&rig);
}

/* GUEST_OFFLOADS_SET without TSO: what was kept comes before, nothing large after. */
static void test_offloads_set(void)
{
    static const uint8_t csum_only[] = {5, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    g_autoptr(GPtrArray) frames = segments(&v4);
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,guest_rsc_ext=on", RSC | F(CTRL_VQ) | F(CTRL_GUEST_OFFLOADS), 256);
    rig_post(&rig, 100, 2000);
    receive(&rig, segment(frames, 0));
    receive(&rig, segment(frames, 1));
    g_assert_cmpint(rig_command(&rig, csum_only, sizeof(csum_only)), ==, VIRTIO_NET_OK);
    expect_coalesced(&rig, frames, 0, 2, 0);
    for (unsigned i = 2; i < 5; i++) {
        receive(&rig, segment(frames, i));
        expect_whole(&rig, segment(frames, i));
    }
    rig_cleanup(&rig);
}

static void test_stop_and_reset(void)
{
    g_autoptr(GPtrArray) frames = segments(&v4);
    static Got got;
    Rig rig;

    start(&rig, "");
    receive(&rig, segment(frames, 0));
    receive(&rig, segment(frames, 1));
    vm_stop(VM_PAUSED); /* passed on: nothing is kept over a stop */
    expect_coalesced(&rig, frames, 0, 2, 0);
    vm_start();
    receive(&rig, segment(frames, 2));
    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, RSC, 256);
    rig_post(&rig, 10, 2000);
    step_us(1000);
    g_assert_false(take(&rig, &got));
    rig_cleanup(&rig);
}

/* --- frames of a peer that cuts nothing --- */

static void start_split(Rig *rig, VirtioFeatures features)
{
    rig_init(rig);
    rig->caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true, .tso6 = true}};
    rig_start(rig, "netdev=n0", RIG_MODERN | features, 256);
}

static bool receive_built(Rig *rig, const BuiltFrame *built)
{
    static uint8_t bytes[NET_MAX_FRAME];

    memcpy(bytes, &built->header, 12);
    memcpy(bytes + 12, built->bytes, built->size);
    return rig_receive_frame(rig, 0, bytes, 12 + built->size);
}

static void test_split(void)
{
    g_autoptr(GPtrArray) frames = segments(&v4);
    BuiltFrame built;
    Rig rig;

    frame_build(&built, &v4, to);
    for (unsigned mrg = 0; mrg < 2; mrg++) {
        start_split(&rig, mrg ? RIG_MRG : 0);
        rig_post(&rig, 40, 1600);
        g_assert_true(receive_built(&rig, &built));
        for (unsigned i = 0; i < frames->len; i++) {
            expect_whole(&rig, segment(frames, i));
        }
        g_assert_cmpint(rig.interrupts[RIG_RX], ==, 1);
        rig_cleanup(&rig);
    }
    frame_clear(&built);
}

/* Buffers for some segments only: the rest follows, none twice. */
static void test_split_waits(void)
{
    g_autoptr(GPtrArray) frames = segments(&v4);
    BuiltFrame built;
    Rig rig;

    frame_build(&built, &v4, to);
    start_split(&rig, 0);
    for (unsigned i = 0; i < frames->len; i += 3) {
        rig_post(&rig, 3, 1600);
        rig_notify(&rig, RIG_RX);
        g_assert_cmpint(receive_built(&rig, &built), ==, i + 3 >= frames->len);
        for (unsigned k = i; k < MIN(i + 3, frames->len); k++) {
            expect_whole(&rig, segment(frames, k));
        }
    }
    built.header.gso_size = 0; /* cannot be cut */
    g_assert_true(receive_built(&rig, &built));
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_BAD_HEADER], ==, 1);
    frame_clear(&built);
    rig_cleanup(&rig);
}

static void test_gso_passes(void)
{
    static Got got;
    BuiltFrame built;
    Rig rig;

    frame_build(&built, &v4, to);
    start_split(&rig, RIG_MRG | F(GUEST_CSUM) | F(GUEST_TSO4));
    rig_post(&rig, 40, 1600);
    g_assert_true(receive_built(&rig, &built));
    g_assert_true(take(&rig, &got));
    built.header.num_buffers = got.hdr.num_buffers;
    g_assert_cmpmem(&got.hdr, 12, &built.header, 12);
    g_assert_cmpmem(got.bytes, got.size, built.bytes, built.size);
    g_assert_cmpint(rig.n->queues[0].rx_gso.packets, ==, 1);
    rig_cleanup(&rig);

    /* With RSC_EXT the peer's large frames say of how many segments they are, too. */
    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true}};
    rig_start(&rig, "netdev=n0,guest_rsc_ext=on", RSC, 256);
    rig_post(&rig, 40, 1600);
    g_assert_true(receive_built(&rig, &built));
    g_assert_true(take(&rig, &got));
    g_assert_cmphex(got.hdr.flags, ==, VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_RSC_INFO);
    g_assert_cmpint(got.hdr.csum_start, ==, 10);
    g_assert_cmpint(got.hdr.csum_offset, ==, 0);
    frame_clear(&built);
    rig_cleanup(&rig);
}

static void test_mtu(void)
{
    uint8_t bytes[12 + 14 + 4 + 1401] = {0};
    Rig rig;

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true};
    rig_start(&rig, "netdev=n0,host_mtu=1400", RIG_MODERN | RIG_MRG | F(MTU), 256);
    rig_post(&rig, 10, 1412 + 14); /* MTU and headers in one descriptor */
    g_assert_true(rig_receive_frame(&rig, 0, bytes, 12 + 14 + 1400));
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 12 + 14 + 1400), ==, 1);
    g_assert_cmpint(rig.ram[RIG_DATA + 10], ==, 1); /* num_buffers */
    g_assert_true(rig_receive_frame(&rig, 0, bytes, 12 + 14 + 1401));
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_TOO_LONG], ==, 1);
    bytes[12 + 12] = 0x81; /* a tag does not count */
    g_assert_true(rig_receive_frame(&rig, 0, bytes, 12 + 14 + 4 + 1400));
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_TOO_LONG], ==, 1);
    g_assert_true(rig_receive_frame(&rig, 0, bytes, 12 + 14 + 4 + 1401));
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_TOO_LONG], ==, 2);
    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, RIG_MODERN | RIG_MRG, 256); /* not negotiated */
    rig_post(&rig, 10, 1600);
    g_assert_true(rig_receive_frame(&rig, 0, bytes, 12 + 14 + 4 + 1401));
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, 12 + 14 + 4 + 1401), ==, 1);
    rig_cleanup(&rig);
}

/* --- tunnels --- */

#define TUNNELS                                                                                    \
    (F(GUEST_UDP_TUNNEL_GSO) | F(GUEST_UDP_TUNNEL_GSO_CSUM) | F(HOST_UDP_TUNNEL_GSO) |             \
     F(HOST_UDP_TUNNEL_GSO_CSUM))

static void test_tunnel_offered(void)
{
    Rig rig;

    rig_init(&rig); /* a peer without: never, x-soft-offloads or not */
    g_assert_true(rig_realize(&rig, "netdev=n0", NULL));
    g_assert_true(!(rig.vdev->host_features & TUNNELS));
    rig_cleanup(&rig);

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true,
                         .offloads = {.csum = true, .tso4 = true, .tso6 = true, .tunnel = true}};
    g_assert_true(rig_realize(&rig, "netdev=n0,guest_tunnel=on,host_tunnel=on", NULL));
    g_assert_true((rig.vdev->host_features & TUNNELS) ==
                  (F(GUEST_UDP_TUNNEL_GSO) | F(HOST_UDP_TUNNEL_GSO)));
    rig_cleanup(&rig);

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true}};
    g_autoptr(GError) err = NULL;
    g_assert_false(rig_realize(&rig, "netdev=n0,host_tunnel=on", &err));
    g_assert_nonnull(strstr(err->message, "host_tunnel=on is not possible with netdev 'n0'"));
    rig_cleanup(&rig);
}

static void test_tunnel_passes(void)
{
    /* A GSO frame in a UDP tunnel, whose offsets lie behind the hash fields. */
    static const uint8_t hdr[24] = {VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM,
                                    TCP4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4,
                                    104,
                                    0,
                                    100,
                                    0,
                                    84,
                                    0,
                                    16,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    34,
                                    0,
                                    64,
                                    0};
    uint8_t bytes[24 + 500];
    Rig rig;

    rig_init(&rig);
    rig.caps =
        (NetCaps){.vnet_hdr = true,
                  .offloads = {.csum = true, .tso4 = true, .tunnel = true, .tunnel_csum = true}};
    rig.longest_hdr = 24;
    rig_start(&rig, "netdev=n0",
              RIG_MODERN | RIG_MRG | F(CSUM) | F(HOST_TSO4) | F(GUEST_CSUM) | F(GUEST_TSO4) |
                  F(CTRL_VQ) | F(CTRL_GUEST_OFFLOADS) | TUNNELS,
              256);
    g_assert_cmpint(rig.n->guest_hdr_len, ==, 24);
    g_assert_cmpint(rig.n->nc->vnet_hdr_len, ==, 24);
    g_assert_true(rig.offloads.tunnel && rig.offloads.tunnel_csum);
    rig_post(&rig, 4, 1500);
    memcpy(bytes, hdr, 24);
    memset(bytes + 24, 0x44, 500);
    g_assert_true(rig_receive_frame(&rig, 0, bytes, sizeof(bytes)));
    bytes[10] = 1; /* num_buffers */
    g_assert_cmpmem(rig.ram + RIG_DATA, sizeof(bytes), bytes, sizeof(bytes));

    bytes[10] = 0;
    RigPart part = {RIG_DATA + 0x8000, sizeof(bytes), false};
    memcpy(rig.ram + part.addr, bytes, sizeof(bytes));
    rig_add(&rig, RIG_TX, &part, 1, 0);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 1);
    g_assert_cmpmem(rig.frames[0].bytes, rig.frames[0].size, bytes, sizeof(bytes));

    /* GUEST_OFFLOADS_SET has the two bits at 46 and 47. */
    static const uint8_t no_csum[] = {5, 0, 0x82, 0, 0, 0, 0, 0x40, 0, 0};
    static const uint8_t none[] = {5, 0, 0x82, 0, 0, 0, 0, 0, 0, 0};
    g_assert_cmpint(rig_command(&rig, no_csum, sizeof(no_csum)), ==, VIRTIO_NET_OK);
    g_assert_true(rig.offloads.tunnel && !rig.offloads.tunnel_csum);
    g_assert_cmpint(rig_command(&rig, none, sizeof(none)), ==, VIRTIO_NET_OK);
    g_assert_false(rig.offloads.tunnel);
    rig_cleanup(&rig);
}

/* The offsets have their place behind the hash, whether it is reported or not. */
static void test_tunnel_and_hash(void)
{
    uint8_t bytes[24 + 200] = {0};
    const uint8_t *hdr;
    Rig rig;

    rig_init(&rig);
    rig.caps =
        (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso6 = true, .tunnel = true}};
    rig.longest_hdr = 24;
    rig_start(&rig, "netdev=n0,hash=on",
              RIG_MODERN | RIG_MRG | F(GUEST_CSUM) | F(GUEST_TSO6) | F(CTRL_VQ) | F(HASH_REPORT) |
                  F(GUEST_UDP_TUNNEL_GSO),
              256);
    const uint8_t hash_udp4[] = {4, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40};
    uint8_t command[sizeof(hash_udp4) + 40] = {0};
    memcpy(command, hash_udp4, sizeof(hash_udp4));
    memset(command + sizeof(hash_udp4), 0x6d, 40);
    g_assert_cmpint(rig_command(&rig, command, sizeof(command)), ==, VIRTIO_NET_OK);
    rig_post(&rig, 4, 1500);

    bytes[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    bytes[1] = VIRTIO_NET_HDR_GSO_TCPV6 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6;
    bytes[4] = 50;
    bytes[20] = 54;                                                  /* outer_th_offset */
    bytes[22] = 84;                                                  /* inner_nh_offset */
    memcpy(bytes + 24 + 12, "\x08\0\x45\0\0\0\0\0\0\0\x40\x11", 12); /* an IPv4 UDP packet */
    g_assert_true(rig_receive_frame(&rig, 0, bytes, sizeof(bytes)));
    hdr = rig.ram + RIG_DATA;
    g_assert_cmpint(hdr[1], ==, bytes[1]);
    g_assert_cmpint(hdr[16], ==, VIRTIO_NET_HASH_REPORT_UDPv4);
    g_assert_cmpmem(hdr + 20, 4, bytes + 20, 4);
    g_assert_cmpmem(hdr + 24, 200, bytes + 24, 200);

    /* What the driver does not take of it (IPv4 inside) is not given to it. */
    bytes[1] = VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6;
    g_assert_true(rig_receive_frame(&rig, 0, bytes, sizeof(bytes)));
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_BAD_HEADER], ==, 1);
    g_assert_cmpint(rig_drain_used(&rig, RIG_RX, sizeof(bytes)), ==, 1);
    rig_cleanup(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_func("/rsc/offered", test_offered);
    g_test_add_func("/rsc/coalesces", test_coalesces);
    g_test_add_func("/rsc/timer", test_timer);
    g_test_add_func("/rsc/order-is-kept", test_order);
    g_test_add_func("/rsc/bad-checksum-is-passed-as-it-is", test_bad_checksum);
    g_test_add_func("/rsc/full", test_full);
    g_test_add_func("/rsc/many-flows", test_many_flows);
    g_test_add_func("/rsc/duplicate-acknowledgements", test_dup_acks);
    g_test_add_func("/rsc/waits-for-buffers", test_no_buffers);
    g_test_add_func("/rsc/guest-offloads-set", test_offloads_set);
    g_test_add_func("/rsc/stop-and-reset", test_stop_and_reset);
    g_test_add_func("/split/driver-without-tso", test_split);
    g_test_add_func("/split/waits-for-buffers", test_split_waits);
    g_test_add_func("/split/gso-passes-where-taken", test_gso_passes);
    g_test_add_func("/mtu/longer-frames-are-dropped", test_mtu);
    g_test_add_func("/tunnel/offered", test_tunnel_offered);
    g_test_add_func("/tunnel/passes", test_tunnel_passes);
    g_test_add_func("/tunnel/with-hash-report", test_tunnel_and_hash);
    return g_test_run();
}
