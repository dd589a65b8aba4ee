/*
 * Offloads over a real tap: what is offered, what the kernel is told, what crosses.
 *
 * The frame checker (tests/lib/frame-checker.h) makes from each unfinished frame the frames that
 * must be on the wire at the end.  Whoever does the work, the guest's driver, the device or the
 * kernel, on either side of the tap, the result must be those, byte for byte.
 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/lib/frame-builder.h"
#include "tests/lib/rig.h"
#include "tests/lib/wire.h"

#define IFNAME    "wire0"
#define TAP       "tap,id=n0,ifname=" IFNAME ",script=no,downscript=no"
#define WAIT_MS   2000
#define RX_BUFFER 69632u

#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif
#ifndef VIRTIO_NET_F_GUEST_USO4
#define VIRTIO_NET_F_GUEST_USO4 54
#define VIRTIO_NET_F_GUEST_USO6 55
#define VIRTIO_NET_F_HOST_USO   56
#endif

#define TSO4 VIRTIO_NET_HDR_GSO_TCPV4
#define TSO6 VIRTIO_NET_HDR_GSO_TCPV6
#define UFO  VIRTIO_NET_HDR_GSO_UDP
#define USO  VIRTIO_NET_HDR_GSO_UDP_L4
#define ECN  VIRTIO_NET_HDR_GSO_ECN

#define FEATURE(name) RIG_FEATURE(VIRTIO_NET_F_##name)
#define HOST_ALL                                                                                   \
    (FEATURE(CSUM) | FEATURE(HOST_TSO4) | FEATURE(HOST_TSO6) | FEATURE(HOST_ECN) |                 \
     FEATURE(HOST_UFO) | FEATURE(HOST_USO))
#define GUEST_ALL                                                                                  \
    (FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4) | FEATURE(GUEST_TSO6) | FEATURE(GUEST_ECN) |        \
     FEATURE(GUEST_UFO) | FEATURE(GUEST_USO4) | FEATURE(GUEST_USO6))

static const uint8_t receiver[6] = {0x02, 0, 0, 0, 0, 1};
static const uint8_t guest_mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

/* Unfinished frames, and the guest features that let one arrive in the guest as it is. */
static const struct Case {
    FrameSpec spec;
    uint64_t guest;
    uint64_t host; /* what the guest needs to send it */
} cases[] = {
    {{"tcp4", .ip_version = 4, .protocol = 6, .payload = 901, .partial = true},
     FEATURE(GUEST_CSUM),
     FEATURE(CSUM)},
    {{"tcp6", .ip_version = 6, .protocol = 6, .payload = 900, .partial = true},
     FEATURE(GUEST_CSUM),
     FEATURE(CSUM)},
    {{"udp4", .ip_version = 4, .protocol = 17, .payload = 55, .partial = true},
     FEATURE(GUEST_CSUM),
     FEATURE(CSUM)},
    {{"udp6", .ip_version = 6, .protocol = 17, .payload = 56, .partial = true},
     FEATURE(GUEST_CSUM),
     FEATURE(CSUM)},
    {{"tso4", .ip_version = 4, .protocol = 6, .payload = 9001, .gso_size = 1448, .gso_type = TSO4},
     FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4),
     FEATURE(CSUM) | FEATURE(HOST_TSO4)},
    {{"tso4-64k", .ip_version = 4, .protocol = 6, .payload = 65160, .gso_size = 1448,
      .gso_type = TSO4, .tcp_flags = 0x18},
     FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4),
     FEATURE(CSUM) | FEATURE(HOST_TSO4)},
    {{"tso4-ecn", .ip_version = 4, .protocol = 6, .payload = 4000, .gso_size = 1000,
      .gso_type = TSO4 | ECN, .tcp_flags = 0x90},
     FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4) | FEATURE(GUEST_ECN),
     FEATURE(CSUM) | FEATURE(HOST_TSO4) | FEATURE(HOST_ECN)},
    {{"tso6", .ip_version = 6, .protocol = 6, .payload = 9000, .gso_size = 1428, .gso_type = TSO6},
     FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO6),
     FEATURE(CSUM) | FEATURE(HOST_TSO6)},
    {{"ufo4", .ip_version = 4, .protocol = 17, .payload = 4000, .gso_size = 1480, .gso_type = UFO},
     FEATURE(GUEST_CSUM) | FEATURE(GUEST_UFO),
     FEATURE(CSUM) | FEATURE(HOST_UFO)},
    {{"uso4", .ip_version = 4, .protocol = 17, .payload = 4001, .gso_size = 1200, .gso_type = USO},
     FEATURE(GUEST_CSUM) | FEATURE(GUEST_USO4) | FEATURE(GUEST_USO6),
     FEATURE(CSUM) | FEATURE(HOST_USO)},
    {{"uso6", .ip_version = 6, .protocol = 17, .payload = 3600, .gso_size = 1200, .gso_type = USO},
     FEATURE(GUEST_CSUM) | FEATURE(GUEST_USO4) | FEATURE(GUEST_USO6),
     FEATURE(CSUM) | FEATURE(HOST_USO)},
};

/* What this kernel's taps can be told; independent of the device's own probing. */
static bool kernel_takes(unsigned flags)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = "probe%d"};
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    bool takes;

    g_assert_cmpint(ioctl(fd, TUNSETIFF, &ifr), ==, 0);
    takes = ioctl(fd, TUNSETOFFLOAD, (unsigned long)flags) == 0;
    close(fd);
    return takes;
}

static bool kernel_has_uso(void)
{
    return kernel_takes(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_USO4 | TUN_F_USO6);
}

/* Features that need what this kernel lacks. */
static uint64_t kernel_lacks(void)
{
    uint64_t lacks = 0;

    if (!kernel_takes(TUN_F_CSUM | TUN_F_UFO)) {
        lacks |= FEATURE(GUEST_UFO) | FEATURE(HOST_UFO);
    }
    if (!kernel_has_uso()) {
        lacks |= FEATURE(GUEST_USO4) | FEATURE(GUEST_USO6) | FEATURE(HOST_USO);
    }
    return lacks;
}

static Rig *open_rig(Wire *wire, const char *netdev, const char *device, uint64_t features)
{
    Rig *rig = rig_open(&(RigConfig){.netdev = netdev, .device = device, .features = features});

    wire_open(wire, IFNAME);
    rig_start(rig);
    return rig;
}

static void close_rig(Rig *rig, Wire *wire)
{
    wire_close(wire);
    rig_free(rig);
}

/* --- both directions, by their frames --- */

static void send_built(Rig *rig, const BuiltFrame *built)
{
    uint64_t addr = rig_alloc(rig, RIG_HDR + built->size);
    struct vring_used_elem used;

    memcpy(rig_at(rig, addr, RIG_HDR), &built->header, RIG_HDR);
    memcpy(rig_at(rig, addr + RIG_HDR, built->size), built->bytes, built->size);
    ring_set(rig->tx, 0, addr, (uint32_t)(RIG_HDR + built->size), 0, 0);
    ring_send(rig, rig->tx, 0);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, 0);
}

static void free_bytes(gpointer bytes)
{
    g_byte_array_unref(bytes);
}

static GPtrArray *frame_list(void)
{
    return g_ptr_array_new_with_free_func(free_bytes);
}

static GPtrArray *finish(const struct virtio_net_hdr_v1 *header, const uint8_t *frame, size_t size)
{
    g_autofree char *problem = NULL;
    GPtrArray *frames = frame_finish(header, frame, size, &problem);

    if (!frames) {
        g_error("frame of %zu bytes: %s", size, problem);
    }
    return frames;
}

static void expect_same(GPtrArray *got, GPtrArray *wanted)
{
    g_assert_cmpuint(got->len, ==, wanted->len);
    for (unsigned i = 0; i < got->len; i++) {
        GByteArray *a = got->pdata[i], *b = wanted->pdata[i];

        g_assert_cmpmem(a->data, a->len, b->data, b->len);
    }
}

/* Adds what is to become of a frame; returns its gso_type. */
static uint8_t add_finished(GPtrArray *list, const struct virtio_net_hdr_v1 *header,
                            const uint8_t *frame, size_t size)
{
    GPtrArray *frames = finish(header, frame, size);

    g_ptr_array_extend_and_steal(list, frames);
    return header->gso_type;
}

/* Lets the driver have @count buffers on offer; each descriptor keeps its own. */
static void post_buffers(Rig *rig, unsigned count)
{
    DriverQueue *rx = rig->rx;

    while ((uint16_t)(rx->avail_next - rx->used_next) < count) {
        uint16_t at = rx->avail_next % rx->size;
        uint64_t addr = rx->desc[at].addr ? rx->desc[at].addr : rig_alloc(rig, RX_BUFFER);

        ring_set(rx, at, addr, RX_BUFFER, VRING_DESC_F_WRITE, 0);
        ring_send(rig, rx, at);
    }
}

/* The next frame that the driver got; NULL: none within @ms. */
static uint8_t *guest_recv(Rig *rig, struct virtio_net_hdr_v1 *header, size_t *size, unsigned ms)
{
    struct vring_used_elem used;
    uint8_t *at;

    if (!ring_wait_used(rig, rig->rx, 1, ms)) {
        return NULL;
    }
    used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.len, >=, RIG_HDR);
    at = rig_at(rig, rig->rx->desc[used.id].addr, used.len);
    memcpy(header, at, RIG_HDR);
    *size = used.len - RIG_HDR;
    return at + RIG_HDR;
}

/* --- what is offered --- */

static uint64_t offered(const char *netdev, const char *device)
{
    Wire wire;
    Rig *rig = open_rig(&wire, netdev, device, 0);
    uint64_t features = rig->virtio->device_features;

    close_rig(rig, &wire);
    return features;
}

static void test_offered(void)
{
    uint64_t all = (HOST_ALL | GUEST_ALL) & ~kernel_lacks();

    g_assert_cmphex(offered(TAP, NULL) & (HOST_ALL | GUEST_ALL), ==, all);
    g_assert_cmphex(offered(TAP ",vnet_hdr=on", NULL) & (HOST_ALL | GUEST_ALL), ==, all);
    g_assert_cmphex(offered(TAP, "csum=off,guest_csum=off") & (HOST_ALL | GUEST_ALL), ==, 0);
    g_assert_cmphex(offered(TAP, "guest_tso4=off,guest_ecn=off,host_tso6=off") &
                        (HOST_ALL | GUEST_ALL),
                    ==, all & ~(FEATURE(GUEST_TSO4) | FEATURE(GUEST_ECN) | FEATURE(HOST_TSO6)));
}

/* A peer without a header is offered nothing that needs one, and never sees one. */
static void test_offered_without_header(void)
{
    uint64_t features = offered(TAP ",vnet_hdr=off", NULL);

    g_assert_cmphex(features & (GUEST_ALL & ~FEATURE(GUEST_CSUM)), ==, 0);
    g_assert_cmphex(features & (HOST_ALL & ~FEATURE(CSUM)), ==, 0);
}

/* --- sending --- */

static void test_sent_as_the_guest_made_it(void)
{
    Wire wire;
    uint64_t lacks = kernel_lacks();
    Rig *rig = open_rig(&wire, TAP, NULL, HOST_ALL);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        const FrameSpec *spec = &cases[i].spec;
        struct virtio_net_hdr_v1 header;
        BuiltFrame built;
        size_t size;
        g_autofree char *problem = NULL;

        /* The kernel still takes UFO from a tap, but its packet sockets cannot show it. */
        if (spec->gso_type == UFO || cases[i].host & lacks) {
            continue;
        }
        g_test_message("%s", spec->name);
        frame_build(&built, spec, receiver);
        send_built(rig, &built);
        size = wire_recv(&wire, &header, got, WAIT_MS);
        g_assert_cmpmem(got, size, built.bytes, built.size);
        problem = frame_check_header(&header, got, size, NULL);
        g_assert_cmpstr(problem, ==, NULL);
        g_assert_cmpuint(header.gso_type, ==, built.header.gso_type);
        g_assert_cmpuint(header.gso_size, ==, built.header.gso_size);
        g_assert_cmpuint(header.csum_start, ==, built.header.csum_start);
        g_assert_cmpuint(header.csum_offset, ==, built.header.csum_offset);
        frame_clear(&built);
    }
    close_rig(rig, &wire);
}

static void test_sent_and_finished(void)
{
    static const FrameSpec tagged = {"tso4-vlan",     .ip_version = 4,  .protocol = 6,
                                     .payload = 5000, .gso_size = 1448, .gso_type = TSO4,
                                     .vlan = 5};
    Wire wire;
    uint64_t lacks = kernel_lacks();
    Rig *rig = open_rig(&wire, TAP, NULL, HOST_ALL);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);

    wire_bridge(&wire);
    for (unsigned i = 0; i <= G_N_ELEMENTS(cases); i++) {
        const FrameSpec *spec = i < G_N_ELEMENTS(cases) ? &cases[i].spec : &tagged;
        g_autoptr(GPtrArray) wanted = NULL, frames = frame_list();
        BuiltFrame built;

        if (i < G_N_ELEMENTS(cases) && cases[i].host & lacks) {
            continue;
        }
        g_test_message("%s", spec->name);
        frame_build(&built, spec, receiver);
        wanted = finish(&built.header, built.bytes, built.size);
        send_built(rig, &built);
        while (frames->len < wanted->len) {
            size_t size = wire_far_recv(&wire, got, WAIT_MS);

            if (!size) {
                break;
            }
            g_ptr_array_add(frames, g_byte_array_append(g_byte_array_new(), got, (guint)size));
        }
        expect_same(frames, wanted);
        g_assert_cmpuint(wire_far_recv(&wire, got, 0), ==, 0);
        frame_clear(&built);
    }
    close_rig(rig, &wire);
}

static void test_sent_without_header(void)
{
    static const FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17, .payload = 500};
    Wire wire;
    Rig *rig = open_rig(&wire, TAP ",vnet_hdr=off", NULL, 0);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);
    struct virtio_net_hdr_v1 header;
    BuiltFrame built;
    size_t size;

    frame_build(&built, &spec, receiver);
    send_built(rig, &built);
    size = wire_recv(&wire, &header, got, WAIT_MS);
    g_assert_cmpmem(got, size, built.bytes, built.size);
    frame_clear(&built);
    close_rig(rig, &wire);
}

/* --- receiving --- */

/* All cases to a guest that took @features: the frames, finished, are right, and one that the
 * guest can take as it is came as it is. */
static void receive_all(Rig *rig, Wire *wire, uint64_t features)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        const FrameSpec *spec = &cases[i].spec;
        bool as_it_is = (cases[i].guest & features) == cases[i].guest;
        g_autoptr(GPtrArray) wanted = NULL, frames = frame_list();
        struct virtio_net_hdr_v1 header = {0};
        unsigned arrived = 0;
        uint8_t gso_type = 0, *frame;
        size_t size;
        BuiltFrame built;

        if (spec->gso_type == UFO) {
            continue; /* no packet socket sends it */
        }
        g_test_message("%s%s", spec->name, as_it_is ? ", as it is" : "");
        frame_build(&built, spec, guest_mac);
        wanted = finish(&built.header, built.bytes, built.size);
        post_buffers(rig, wanted->len);
        wire_send(wire, &built.header, built.bytes, built.size);
        while (frames->len < wanted->len &&
               (frame = guest_recv(rig, &header, &size, WAIT_MS)) != NULL) {
            arrived++;
            g_assert_true(features & FEATURE(GUEST_CSUM) ||
                          !(header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM));
            gso_type = add_finished(frames, &header, frame, size);
        }
        expect_same(frames, wanted);
        g_assert_cmpuint(arrived, ==, as_it_is ? 1 : wanted->len);
        g_assert_cmpuint(gso_type, ==, as_it_is ? built.header.gso_type : 0);
        frame_clear(&built);
    }
}

static const uint64_t combinations[] = {
    0,
    FEATURE(GUEST_CSUM),
    FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4),
    FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO6),
    FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4) | FEATURE(GUEST_TSO6),
    FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4) | FEATURE(GUEST_TSO6) | FEATURE(GUEST_ECN),
    FEATURE(GUEST_CSUM) | FEATURE(GUEST_TSO4) | FEATURE(GUEST_TSO6) | FEATURE(GUEST_USO4) |
        FEATURE(GUEST_USO6),
    GUEST_ALL,
};

/* The driver's negotiated features. */
static void test_received_as_negotiated(void)
{
    uint64_t lacks = kernel_lacks();

    for (unsigned i = 0; i < G_N_ELEMENTS(combinations); i++) {
        uint64_t features = combinations[i] & ~lacks;
        Wire wire;
        Rig *rig = open_rig(&wire, TAP, NULL, features);

        g_test_message("features %" G_GINT64_MODIFIER "x", features);
        g_assert_cmphex(rig->virtio->features & GUEST_ALL, ==, features);
        receive_all(rig, &wire, features);
        close_rig(rig, &wire);
    }
}

/* GUEST_OFFLOADS_SET, which is what a driver does when it gets or loses an XDP program. */
static uint8_t set_offloads(Rig *rig, uint64_t offloads)
{
    uint64_t addr = rig_alloc(rig, 64);
    uint8_t *at = rig_at(rig, addr, 64);
    const RingPart parts[] = {{addr, 2, 0}, {addr + 2, 8, 0}, {addr + 16, 1, VRING_DESC_F_WRITE}};
    DriverQueue *ctrl = rig->queues[RIG_CTRL];

    at[0] = VIRTIO_NET_CTRL_GUEST_OFFLOADS;
    at[1] = VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET;
    memcpy(at + 2, &offloads, 8);
    at[16] = 0xFF;
    ring_chain(ctrl, 0, parts, 3);
    ring_send(rig, ctrl, 0);
    ring_take(rig, ctrl);
    return at[16];
}

static void test_received_as_set(void)
{
    Wire wire;
    uint64_t lacks = kernel_lacks(), all = GUEST_ALL & ~lacks;
    Rig *rig = open_rig(&wire, TAP, NULL, all | FEATURE(CTRL_VQ) | FEATURE(CTRL_GUEST_OFFLOADS));

    receive_all(rig, &wire, all);
    for (unsigned i = 0; i < G_N_ELEMENTS(combinations); i++) {
        uint64_t offloads = combinations[i] & ~lacks;

        g_test_message("offloads %" G_GINT64_MODIFIER "x", offloads);
        g_assert_cmpuint(set_offloads(rig, offloads), ==, VIRTIO_NET_OK);
        receive_all(rig, &wire, offloads);
    }
    /* What was not negotiated, or is no offload, changes nothing. */
    g_assert_cmpuint(set_offloads(rig, all | FEATURE(MRG_RXBUF)), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(set_offloads(rig, 1ull << 63), ==, VIRTIO_NET_ERR);
    receive_all(rig, &wire, all);
    close_rig(rig, &wire);
}

/* A reset takes back what the last driver had agreed to. */
static void test_reset_turns_off(void)
{
    Wire wire;
    uint64_t all = GUEST_ALL & ~kernel_lacks();
    Rig *rig = open_rig(&wire, TAP, NULL, all);

    receive_all(rig, &wire, all);
    rig->config.features = 0;
    rig_restart(rig);
    receive_all(rig, &wire, 0);
    close_rig(rig, &wire);
}

static void test_received_without_header(void)
{
    Wire wire;
    Rig *rig = open_rig(&wire, TAP ",vnet_hdr=off", NULL, 0);

    receive_all(rig, &wire, 0);
    close_rig(rig, &wire);
}

/* --- what the tap refuses --- */

static int64_t drops_of(Rig *rig, const char *reason)
{
    g_autoptr(GError) err = NULL;
    json_object *all = qmp_client_executef(rig->qmp, "x-query-netclients", &err, "{}");
    int64_t count = -1;

    g_assert_no_error(err);
    for (size_t i = 0; i < json_object_array_length(all); i++) {
        json_object *client = json_object_array_get_idx(all, i), *type = NULL, *drops = NULL,
                    *value = NULL;

        if (json_object_object_get_ex(client, "type", &type) &&
            strcmp(json_object_get_string(type), "tap") == 0 &&
            json_object_object_get_ex(client, "drops", &drops) &&
            json_object_object_get_ex(drops, reason, &value)) {
            count = json_object_get_int64(value);
        }
    }
    json_object_put(all);
    return count;
}

/* A good frame passes. */
static void expect_passes(Rig *rig, Wire *wire)
{
    static const FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17, .payload = 99};
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);
    struct virtio_net_hdr_v1 header;
    BuiltFrame built;
    size_t size;

    frame_build(&built, &spec, receiver);
    send_built(rig, &built);
    size = wire_recv(wire, &header, got, WAIT_MS);
    g_assert_cmpmem(got, size, built.bytes, built.size);
    frame_clear(&built);
}

static void test_bad_header_costs_one_frame(void)
{
    static const FrameSpec spec = {"tso4",          .ip_version = 4,  .protocol = 6,
                                   .payload = 3000, .gso_size = 1000, .gso_type = TSO4};
    static const struct virtio_net_hdr_v1 bad[] = {
        {.flags = 1, .gso_type = 0x7F, .gso_size = 1000, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = TSO4, .gso_size = 0, .csum_start = 34, .csum_offset = 16},
        {.flags = 1, .gso_type = TSO4, .gso_size = 9, .csum_start = 65000, .csum_offset = 16},
        {.flags = 1, .csum_start = 0xFFFF, .csum_offset = 0xFFFF},
        {.flags = 1, .gso_type = TSO4, .gso_size = 9, .hdr_len = 0xFFFF, .csum_start = 34},
    };
    Wire wire;
    Rig *rig = open_rig(&wire, TAP, NULL, HOST_ALL);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);
    struct virtio_net_hdr_v1 header;
    BuiltFrame built;

    frame_build(&built, &spec, receiver);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        int64_t before = drops_of(rig, "bad-header");

        built.header = bad[i];
        send_built(rig, &built);
        rig_settle(rig);
        g_assert_cmpuint(wire_recv(&wire, &header, got, RIG_QUIET_MS), ==, 0);
        g_assert_cmpint(drops_of(rig, "bad-header"), ==, before + 1);
        expect_passes(rig, &wire);
    }
    frame_clear(&built);
    close_rig(rig, &wire);
}

static void test_interface_down_costs_the_frame(void)
{
    static const FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17, .payload = 99};
    Wire wire;
    Rig *rig = open_rig(&wire, TAP, NULL, 0);
    BuiltFrame built;

    frame_build(&built, &spec, receiver);
    expect_passes(rig, &wire);
    wire_set_up(&wire, false);
    for (unsigned i = 1; i <= 3; i++) {
        send_built(rig, &built);
        g_assert_cmpint(drops_of(rig, "host-error"), ==, i);
    }
    wire_set_up(&wire, true);
    wire_close(&wire); /* going down ended what it had queued */
    wire_open(&wire, IFNAME);
    expect_passes(rig, &wire);
    g_assert_cmpint(drops_of(rig, "host-error"), ==, 3);
    frame_clear(&built);
    close_rig(rig, &wire);
}

/* --- a tap that is given --- */

static void test_given_fd(void)
{
    static const FrameSpec spec = {"tso6",          .ip_version = 6,  .protocol = 6,
                                   .payload = 4000, .gso_size = 1000, .gso_type = TSO6};
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = IFNAME};
    int fds[] = {open("/dev/net/tun", O_RDWR | O_CLOEXEC), -1};
    g_autofree char *netdev = g_strdup_printf("tap,id=n0,fd=%d", fds[0]);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);
    struct virtio_net_hdr_v1 header;
    BuiltFrame built;
    Wire wire;
    Rig *rig;
    size_t size;

    g_assert_cmpint(ioctl(fds[0], TUNSETIFF, &ifr), ==, 0);
    rig = rig_open(
        &(RigConfig){.netdev = netdev, .inherit_fds = fds, .features = HOST_ALL | GUEST_ALL});
    wire_open(&wire, IFNAME);
    rig_start(rig);
    frame_build(&built, &spec, receiver);
    send_built(rig, &built);
    size = wire_recv(&wire, &header, got, WAIT_MS);
    g_assert_cmpmem(got, size, built.bytes, built.size);
    g_assert_cmpuint(header.gso_type, ==, TSO6);
    frame_clear(&built);
    receive_all(rig, &wire, rig->virtio->features);
    close_rig(rig, &wire);
    close(fds[0]);
}

/* Chains of more descriptors than one writev() takes, a header of its own in front. */
static void test_long_chains(void)
{
    const uint16_t counts[] = {1000, 1015, 1016, 1017, 1018, 1023, 1024};
    static const char *const netdevs[] = {TAP, TAP ",vnet_hdr=off"};
    FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17};
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);

    for (unsigned n = 0; n < G_N_ELEMENTS(netdevs); n++) {
        Wire wire;
        Rig *rig = open_rig(&wire, netdevs[n], "tx_queue_size=1024", 0);

        for (unsigned i = 0; i < G_N_ELEMENTS(counts); i++) {
            struct virtio_net_hdr_v1 header;
            g_autofree RingPart *parts = g_new0(RingPart, counts[i]);
            uint64_t addr = rig_alloc(rig, 2048);
            BuiltFrame built;
            size_t size;

            /* One byte a descriptor, the rest of the frame in the last. */
            spec.payload = 1200 + i;
            frame_build(&built, &spec, receiver);
            memcpy(rig_at(rig, addr + RIG_HDR, built.size), built.bytes, built.size);
            for (unsigned j = 0; j < counts[i]; j++) {
                parts[j] = (RingPart){addr + j, 1, 0};
            }
            parts[counts[i] - 1].len = (uint32_t)(RIG_HDR + built.size - counts[i] + 1);
            ring_chain(rig->tx, 0, parts, counts[i]);
            ring_send(rig, rig->tx, 0);
            ring_take(rig, rig->tx);
            size = wire_recv(&wire, &header, got, WAIT_MS);
            g_assert_cmpmem(got, size, built.bytes, built.size);
            frame_clear(&built);
        }
        close_rig(rig, &wire);
    }
}

int main(int argc, char **argv)
{
    g_autofree char *reason = NULL;
    static const struct {
        const char *path;
        void (*run)(void);
    } tests[] = {
        {"/offload/offered/as-the-tap-can", test_offered},
        {"/offload/offered/nothing-without-header", test_offered_without_header},
        {"/offload/tx/arrives-as-the-guest-made-it", test_sent_as_the_guest_made_it},
        {"/offload/tx/is-finished-on-the-wire", test_sent_and_finished},
        {"/offload/tx/peer-without-header-sees-none", test_sent_without_header},
        {"/offload/tx/chains-longer-than-iov-max", test_long_chains},
        {"/offload/tx/bad-header-costs-one-frame", test_bad_header_costs_one_frame},
        {"/offload/tx/interface-down-costs-the-frame", test_interface_down_costs_the_frame},
        {"/offload/rx/as-negotiated", test_received_as_negotiated},
        {"/offload/rx/as-guest-offloads-set", test_received_as_set},
        {"/offload/rx/reset-turns-offloads-off", test_reset_turns_off},
        {"/offload/rx/peer-without-header-sends-none", test_received_without_header},
        {"/offload/tap-by-fd", test_given_fd},
    };

    g_test_init(&argc, &argv, NULL);
    if (!wire_enter(&reason)) {
        printf("1..0 # SKIP no taps here: %s\n", reason);
        return 0;
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        g_test_add_func(tests[i].path, tests[i].run);
    }
    return g_test_run();
}
