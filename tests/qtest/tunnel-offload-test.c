/*
 * UDP tunnel offloads (virtio 1.4, 5.1.6.2.1 and 5.1.6.4.2): large frames inside VXLAN, over a real
 * tap, to and from the kernel's own VXLAN device.
 *
 *      driver ── device ── tap │ wire0 10.9.0.1 ─┬─ vxlan0: packet socket sees the inner frames
 *                              │                 └─ or bridge ── far tap: what is on the wire
 *
 * Each case is an unfinished inner frame.  The frame checker makes of it the frames that must be
 * there at the end; each of them then stands behind an outer header of its own.  Feature bits lie
 * beyond 63, and the header is 24 bytes long.  A kernel whose taps have no tunnel offloads leaves
 * the tests of what is then not offered.
 */
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "hw/net/virtio-net-uapi.h"
#include "tests/lib/tap-rig.h"

#define WAIT_MS 2000
#define HDR     24 /* struct virtio_net_hdr_v1_hash_tunnel */

#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif
#ifndef TUN_F_UDP_TUNNEL_GSO
#define TUN_F_UDP_TUNNEL_GSO      0x80
#define TUN_F_UDP_TUNNEL_GSO_CSUM 0x100
#endif
#define TUN_TSO (TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)

#define F(name) VIRTIO_DRIVER_FEATURE(VIRTIO_NET_F_##name)
#define HOST_GSO                                                                                   \
    (F(CSUM) | F(HOST_TSO4) | F(HOST_TSO6) | F(HOST_USO) | F(HOST_UDP_TUNNEL_GSO) |                \
     F(HOST_UDP_TUNNEL_GSO_CSUM))
#define GUEST_GSO                                                                                  \
    (F(GUEST_CSUM) | F(GUEST_TSO4) | F(GUEST_TSO6) | F(GUEST_USO4) | F(GUEST_USO6))
#define GUEST_TUNNEL      F(GUEST_UDP_TUNNEL_GSO)
#define GUEST_TUNNEL_CSUM F(GUEST_UDP_TUNNEL_GSO_CSUM)
#define TUNNELS                                                                                    \
    (GUEST_TUNNEL | GUEST_TUNNEL_CSUM | F(HOST_UDP_TUNNEL_GSO) | F(HOST_UDP_TUNNEL_GSO_CSUM))
#define SET_OFFLOADS (F(CTRL_VQ) | F(CTRL_GUEST_OFFLOADS))

#define TSO4 VIRTIO_NET_HDR_GSO_TCPV4
#define TSO6 VIRTIO_NET_HDR_GSO_TCPV6
#define USO  VIRTIO_NET_HDR_GSO_UDP_L4

#define ETH_SIZE   14u
#define UDP_SIZE   8u
#define VXLAN_SIZE 8u
#define VXLAN_PORT 4789

static const uint8_t guest_mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
static const uint8_t receiver[6] = {0x02, 0, 0, 0, 0, 1};
static const uint8_t inner_mac[6] = {0x02, 0, 0, 0, 0, 2};

static const FrameSpec inner_frames[] = {
    {"tso4", .ip_version = 4, .protocol = 6, .payload = 9001, .gso_size = 1300, .gso_type = TSO4},
    {"tso4-60k", .ip_version = 4, .protocol = 6, .payload = 60000, .gso_size = 1300,
     .gso_type = TSO4, .tcp_flags = 0x18},
    {"tso6", .ip_version = 6, .protocol = 6, .payload = 9000, .gso_size = 1300, .gso_type = TSO6},
    {"uso4", .ip_version = 4, .protocol = 17, .payload = 4001, .gso_size = 1200, .gso_type = USO},
    {"uso6", .ip_version = 6, .protocol = 17, .payload = 3600, .gso_size = 1200, .gso_type = USO},
};

static bool kernel_has_tunnels(void)
{
    return tap_rig_kernel_takes(TUN_TSO | TUN_F_UDP_TUNNEL_GSO | TUN_F_UDP_TUNNEL_GSO_CSUM);
}

/* --- outer headers --- */

/* How the outer UDP checksum is left. */
typedef enum OuterSum {
    SUM_NONE,    /* 0 */
    SUM_PARTIAL, /* of the pseudo-header: each segment's is to be completed */
    SUM_WHOLE,
} OuterSum;

typedef struct Outer {
    uint8_t ip_version;
    OuterSum sum;
    uint8_t to[6];
} Outer;

static unsigned outer_size(const Outer *outer)
{
    return ETH_SIZE + (outer->ip_version == 4 ? 20 : 40) + UDP_SIZE + VXLAN_SIZE;
}

static void put16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static unsigned get16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static void put_ipv4(uint8_t *ip, size_t size, unsigned id)
{
    static const uint8_t addresses[8] = {10, 9, 0, 2, 10, 9, 0, 1};

    memcpy(ip, "\x45\0\0\0\0\0\0\0\x40\x11\0\0", 12);
    memcpy(ip + 12, addresses, 8);
    put16(ip + 2, size);
    put16(ip + 4, id);
    put16(ip + 10, (uint16_t)~frame_fold(frame_sum(ip, 20, 0)));
}

static void put_ipv6(uint8_t *ip, size_t size)
{
    memset(ip, 0, 40);
    ip[0] = 0x60;
    put16(ip + 4, size - 40);
    ip[6] = 17;
    ip[7] = 64;
    ip[8] = ip[24] = 0xFD;
    ip[9] = ip[25] = 9;
    ip[23] = 2;
    ip[39] = 1;
}

/* @frame has room for the outer header, and @size bytes of the inner frame behind it. */
static void put_outer(const Outer *outer, uint8_t *frame, size_t size, unsigned id)
{
    size_t l3 = ETH_SIZE, l4 = l3 + (outer->ip_version == 4 ? 20 : 40);
    size_t udp = UDP_SIZE + VXLAN_SIZE + size;
    FrameLayers layers = {.l3 = l3, .l4 = l4, .ip_version = outer->ip_version, .protocol = 17};
    uint16_t sum;

    memcpy(frame, outer->to, 6);
    memcpy(frame + 6, guest_mac, 6);
    put16(frame + 12, outer->ip_version == 4 ? 0x0800 : 0x86DD);
    if (outer->ip_version == 4) {
        put_ipv4(frame + l3, 20 + udp, id);
    } else {
        put_ipv6(frame + l3, 40 + udp);
    }
    put16(frame + l4, 51000);
    put16(frame + l4 + 2, VXLAN_PORT);
    put16(frame + l4 + 4, udp);
    put16(frame + l4 + 6, 0);
    memcpy(frame + l4 + UDP_SIZE, "\x08\0\0\0\0\0\x4d\0", VXLAN_SIZE); /* network 77 */
    if (outer->sum == SUM_NONE) {
        return;
    }
    sum = frame_pseudo_sum(frame, &layers, udp);
    if (outer->sum == SUM_WHOLE) {
        sum = (uint16_t)~frame_fold(frame_sum(frame + l4, udp, sum));
        sum = sum ? sum : 0xFFFF;
    }
    put16(frame + l4 + 6, sum);
}

typedef struct TunnelFrame {
    uint8_t header[HDR];
    uint8_t *bytes;
    size_t size;
} TunnelFrame;

static void put_le16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

/* @built inside @outer, with the header that asks for all that is left to do. */
static void tunnel_frame(TunnelFrame *t, const Outer *outer, const BuiltFrame *built)
{
    unsigned head = outer_size(outer);

    t->size = head + built->size;
    t->bytes = g_malloc(t->size);
    memcpy(t->bytes + head, built->bytes, built->size);
    put_outer(outer, t->bytes, built->size, 0x5000);
    memset(t->header, 0, HDR);
    t->header[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM |
                   (outer->sum == SUM_PARTIAL ? VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM : 0);
    t->header[1] =
        built->header.gso_type | (outer->ip_version == 4 ? VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4
                                                         : VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6);
    put_le16(t->header + 2, head + built->header.hdr_len);
    put_le16(t->header + 4, built->header.gso_size);
    put_le16(t->header + 6, head + built->header.csum_start);
    put_le16(t->header + 8, built->header.csum_offset);
    put_le16(t->header + 20, head - UDP_SIZE - VXLAN_SIZE); /* outer_th_offset */
    put_le16(t->header + 22, head + ETH_SIZE);              /* inner_nh_offset */
}

/* Each frame of @inner behind an outer header of its own. */
static GPtrArray *wrap(const Outer *outer, GPtrArray *inner)
{
    Outer whole = *outer;
    GPtrArray *list = frame_list_new();

    whole.sum = outer->sum == SUM_NONE ? SUM_NONE : SUM_WHOLE;
    for (unsigned i = 0; i < inner->len; i++) {
        const GByteArray *bytes = inner->pdata[i];
        unsigned head = outer_size(outer);
        g_autofree uint8_t *frame = g_malloc(head + bytes->len);

        memcpy(frame + head, bytes->data, bytes->len);
        put_outer(&whole, frame, bytes->len, 0x5000 + i);
        frame_list_add(list, frame, head + bytes->len);
    }
    return list;
}

/* --- what is offered --- */

static VirtioDriverFeatures offered(const char *netdev, const char *device)
{
    Wire wire;
    Rig *rig = tap_rig_open(&wire, netdev, device, 0);
    VirtioDriverFeatures features = rig->virtio->device_features & TUNNELS;

    tap_rig_close(rig, &wire);
    return features;
}

static void expect_features(VirtioDriverFeatures got, VirtioDriverFeatures wanted)
{
    g_assert_cmphex((uint64_t)(got >> 64), ==, (uint64_t)(wanted >> 64));
    g_assert_cmphex((uint64_t)got, ==, (uint64_t)wanted);
}

static void test_offered(void)
{
    VirtioDriverFeatures all = kernel_has_tunnels() ? TUNNELS : 0;

    expect_features(offered(TAP_RIG_NETDEV, NULL), all);
    expect_features(offered(TAP_RIG_NETDEV, "host_tunnel_csum=off,guest_tunnel_csum=off"),
                    all & (GUEST_TUNNEL | F(HOST_UDP_TUNNEL_GSO)));
    expect_features(offered(TAP_RIG_NETDEV, "host_tunnel=off,guest_tunnel=off"), 0);
    expect_features(offered(TAP_RIG_NETDEV, "host_tso4=off,host_tso6=off"),
                    all & (GUEST_TUNNEL | GUEST_TUNNEL_CSUM)); /* nothing to put into tunnels */
    expect_features(offered(TAP_RIG_NETDEV ",vnet_hdr=off", NULL), 0);
}

/* What a tap cannot do is refused where it was asked for, in one line. */
static void test_refused(void)
{
    static const char *const names[] = {"host_tunnel", "host_tunnel_csum", "guest_tunnel",
                                        "guest_tunnel_csum"};

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *device = g_strdup_printf(
            "virtio-net-pci,netdev=n0,guest_tunnel=off,host_tunnel=off,%s=on", names[i]);
        const char *argv[] = {
            rig_binary(), "-nodefaults", "-netdev", TAP_RIG_NETDEV ",vnet_hdr=off",
            "-device",    device,        NULL};
        g_autofree char *wanted = g_strdup_printf("%s=on is not possible with", names[i]);
        g_autofree char *text = NULL;
        g_autoptr(GError) err = NULL;
        int status;

        g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, NULL, &text, &status,
                     &err);
        g_assert_no_error(err);
        g_assert_false(g_spawn_check_wait_status(status, NULL));
        g_test_message("%s", text);
        g_assert_nonnull(strstr(text, wanted));
        g_assert_true(strchr(text, '\n') == text + strlen(text) - 1);
    }
}

/* --- the kernel's VXLAN device --- */

static void ip(const char *format, ...) G_GNUC_PRINTF(1, 2);
static void ip(const char *format, ...)
{
    va_list ap;
    g_autofree char *arguments = NULL, *command = NULL;
    g_autoptr(GError) err = NULL;
    int status;

    va_start(ap, format);
    arguments = g_strdup_vprintf(format, ap);
    va_end(ap);
    command = g_strdup_printf("ip %s", arguments);
    if (!g_spawn_command_line_sync(command, NULL, NULL, &status, &err) ||
        !g_spawn_check_wait_status(status, &err)) {
        g_error("%s: %s", command, err->message);
    }
}

typedef struct Tunnel {
    Rig *rig;
    Wire wire, vxlan;
    uint8_t mac[6]; /* of the tap's interface */
} Tunnel;

static void tunnel_open(Tunnel *t, VirtioDriverFeatures features, bool outer_csum)
{
    struct ifreq ifr = {.ifr_name = TAP_RIG_IFNAME};

    t->rig = tap_rig_open(&t->wire, TAP_RIG_NETDEV, NULL, features);
    g_assert_cmpint(ioctl(t->wire.packet_fd, SIOCGIFHWADDR, &ifr), ==, 0);
    memcpy(t->mac, ifr.ifr_hwaddr.sa_data, 6);
    ip("address add 10.9.0.1/24 dev " TAP_RIG_IFNAME);
    ip("neigh replace 10.9.0.2 lladdr 52:54:00:12:34:56 dev " TAP_RIG_IFNAME);
    ip("link add vxlan0 type vxlan id 77 local 10.9.0.1 remote 10.9.0.2 dstport %u %s nolearning "
       "dev " TAP_RIG_IFNAME,
       VXLAN_PORT, outer_csum ? "udpcsum" : "noudpcsum");
    wire_open(&t->vxlan, "vxlan0");
}

static void tunnel_close(Tunnel *t)
{
    wire_close(&t->vxlan);
    tap_rig_close(t->rig, &t->wire); /* with the tap goes what sits on it */
}

/* --- sending --- */

static void test_sent_and_unpacked(void)
{
    for (unsigned sum = SUM_NONE; sum <= SUM_PARTIAL; sum++) {
        Outer outer = {4, sum, {0}};
        g_autofree uint8_t *got = g_malloc(WIRE_MAX);
        Tunnel t;

        tunnel_open(&t, HOST_GSO, true);
        expect_features(t.rig->virtio->features & HOST_GSO, HOST_GSO);
        memcpy(outer.to, t.mac, 6);
        for (unsigned i = 0; i < G_N_ELEMENTS(inner_frames); i++) {
            struct virtio_net_hdr_v1 header;
            BuiltFrame built;
            TunnelFrame frame;
            size_t size;

            g_test_message("%s, outer checksum %u", inner_frames[i].name, sum);
            frame_build(&built, &inner_frames[i], inner_mac);
            tunnel_frame(&frame, &outer, &built);
            tap_rig_send_raw(t.rig, frame.header, HDR, frame.bytes, frame.size);
            size = wire_recv(&t.vxlan, &header, got, WAIT_MS);
            g_assert_cmpmem(got, size, built.bytes, built.size);
            g_assert_cmpuint(header.gso_type, ==, built.header.gso_type);
            g_assert_cmpuint(header.gso_size, ==, built.header.gso_size);
            g_assert_cmpuint(header.csum_start, ==, built.header.csum_start);
            g_assert_cmpuint(header.csum_offset, ==, built.header.csum_offset);
            g_free(frame.bytes);
            frame_clear(&built);
        }
        tunnel_close(&t);
    }
}

static void test_sent_and_finished(void)
{
    static const Outer outers[] = {
        {4, SUM_NONE, {0}}, {4, SUM_PARTIAL, {0}}, {6, SUM_PARTIAL, {0}}};
    Wire wire;
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, HOST_GSO);

    wire_bridge(&wire);
    for (unsigned i = 0; i < G_N_ELEMENTS(inner_frames) * G_N_ELEMENTS(outers); i++) {
        const FrameSpec *spec = &inner_frames[i / G_N_ELEMENTS(outers)];
        Outer outer = outers[i % G_N_ELEMENTS(outers)];
        g_autoptr(GPtrArray) frames = frame_list_new();
        g_autoptr(GPtrArray) wanted = NULL, inner = NULL;
        BuiltFrame built;
        TunnelFrame frame;

        g_test_message("%s in IPv%u, outer checksum %u", spec->name, outer.ip_version, outer.sum);
        memcpy(outer.to, receiver, 6);
        frame_build(&built, spec, inner_mac);
        tunnel_frame(&frame, &outer, &built);
        inner = frame_list_finish(&built.header, built.bytes, built.size);
        wanted = wrap(&outer, inner);
        tap_rig_send_raw(rig, frame.header, HDR, frame.bytes, frame.size);
        frame_list_add_far(frames, &wire, wanted->len);
        frame_list_expect_same(frames, wanted);
        g_free(frame.bytes);
        frame_clear(&built);
    }
    tap_rig_close(rig, &wire);
}

/* A header that does not fit its frame, or asks for what was not negotiated, costs that frame. */
static void test_bad_headers(void)
{
    static const struct {
        unsigned at;
        uint8_t value;
    } bad[] = {
        {0, 0},                                  /* nothing to sum */
        {1, VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4}, /* nothing in the tunnel */
        {1,
         TSO4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6}, /* both */
        {20, 3},   /* outer_th_offset */
        {22, 35},  /* inner_nh_offset */
        {7, 0xFF}, /* csum_start */
    };
    Outer outer = {4, SUM_NONE, {0x02, 0, 0, 0, 0, 1}};
    BuiltFrame built;
    TunnelFrame frame;
    Wire wire;
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, HOST_GSO);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);

    wire_bridge(&wire);
    frame_build(&built, &inner_frames[0], inner_mac);
    tunnel_frame(&frame, &outer, &built);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        uint8_t header[HDR];

        memcpy(header, frame.header, HDR);
        header[bad[i].at] = bad[i].value;
        tap_rig_send_raw(rig, header, HDR, frame.bytes, frame.size);
    }
    g_assert_cmphex(virtio_driver_status(rig->virtio) & VIRTIO_CONFIG_S_NEEDS_RESET, ==, 0);
    g_assert_cmpuint(wire_far_recv(&wire, got, 0), ==, 0);

    rig->config.features = HOST_GSO & ~TUNNELS;
    rig_restart(rig);
    tap_rig_send_raw(rig, frame.header, RIG_HDR, frame.bytes, frame.size);
    g_assert_cmpuint(wire_far_recv(&wire, got, 0), ==, 0);
    g_free(frame.bytes);
    frame_clear(&built);
    tap_rig_close(rig, &wire);
}

/* --- receiving --- */

/* Takes one frame of the driver's apart: outer headers checked, what must become of the inner
 * frame added to @list.  Returns the gso_type. */
static uint8_t unpack(GPtrArray *list, const uint8_t *header, uint8_t *frame, size_t size,
                      bool outer_csum)
{
    Outer outer = {4, SUM_NONE, {0}};
    unsigned head = outer_size(&outer), l4 = head - VXLAN_SIZE - UDP_SIZE;
    FrameLayers layers = {.l3 = ETH_SIZE, .l4 = l4, .ip_version = 4, .protocol = 17};
    struct virtio_net_hdr_v1 inner;
    g_autoptr(GPtrArray) frames = NULL;
    g_autofree char *problem = NULL;

    memcpy(&inner, header, sizeof(inner));
    g_assert_cmpuint(size, >, head);
    g_assert_cmpmem(frame, 6, guest_mac, 6);
    g_assert_cmpuint(get16(frame + l4 + 2), ==, VXLAN_PORT);
    g_assert_cmpmem(frame + l4 + UDP_SIZE, VXLAN_SIZE, "\x08\0\0\0\0\0\x4d\0", VXLAN_SIZE);
    g_assert_cmpuint(get16(frame + l4 + 4), ==, size - l4);
    if (inner.gso_type) {
        g_assert_cmpuint(!!(inner.flags & VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM), ==, outer_csum);
        g_assert_cmpuint(get16(frame + l4 + 6), ==,
                         outer_csum ? frame_pseudo_sum(frame, &layers, size - l4) : 0);
        g_assert_cmpuint(header[20] | header[21] << 8, ==, l4);
        g_assert_cmpuint(header[22] | header[23] << 8, ==, head + ETH_SIZE);
    } else {
        g_assert_cmpuint(get16(frame + l4 + 6) != 0, ==, outer_csum);
    }
    if (inner.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
        inner.csum_start = (uint16_t)(inner.csum_start - head);
    }
    inner.hdr_len = (uint16_t)(inner.gso_type ? inner.hdr_len - head : 0);
    inner.gso_type &=
        (uint8_t) ~(VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6);
    inner.flags &= (uint8_t)~VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM;
    frames = frame_list_finish(&inner, frame + head, size - head);
    if (!inner.gso_type) { /* whole: the outer sum is that of the finished inner frame */
        const GByteArray *finished = frames->pdata[0];

        memcpy(frame + head, finished->data, finished->len);
        problem = frame_check(frame, size, NULL);
        g_assert_cmpstr(problem, ==, NULL);
    }
    g_ptr_array_extend_and_steal(list, g_steal_pointer(&frames));
    return header[1];
}

/* All cases from the kernel's VXLAN device: right when finished, and in one piece if @one_piece. */
static void receive_all(Tunnel *t, unsigned hdr, bool outer_csum, bool one_piece)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(inner_frames); i++) {
        g_autoptr(GPtrArray) frames = frame_list_new();
        g_autoptr(GPtrArray) wanted = NULL;
        uint8_t header[HDR] = {0}, gso_type = 0, *frame;
        unsigned arrived = 0;
        BuiltFrame built;
        size_t size;

        g_test_message("%s%s", inner_frames[i].name, one_piece ? ", in one piece" : "");
        frame_build(&built, &inner_frames[i], inner_mac);
        wanted = frame_list_finish(&built.header, built.bytes, built.size);
        tap_rig_post(t->rig, wanted->len);
        wire_send(&t->vxlan, &built.header, built.bytes, built.size);
        while (frames->len < wanted->len &&
               (frame = tap_rig_recv(t->rig, header, hdr, &size, WAIT_MS)) != NULL) {
            arrived++;
            gso_type = unpack(frames, header, frame, size, outer_csum);
        }
        frame_list_expect_same(frames, wanted);
        g_assert_cmpuint(arrived, ==, one_piece ? 1 : wanted->len);
        g_assert_cmpuint(gso_type, ==,
                         one_piece ? built.header.gso_type | VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4
                                   : 0);
        frame_clear(&built);
    }
}

static void test_received_as_negotiated(void)
{
    static const struct {
        VirtioDriverFeatures features;
        unsigned hdr;
        bool plain, summed; /* in one piece, without and with outer checksums */
    } rows[] = {
        {0, RIG_HDR, false, false},
        {GUEST_GSO, RIG_HDR, false, false},
        {GUEST_GSO | GUEST_TUNNEL, HDR, true, false},
        {GUEST_GSO | GUEST_TUNNEL | GUEST_TUNNEL_CSUM, HDR, true, true},
        {F(HOST_UDP_TUNNEL_GSO) | HOST_GSO | GUEST_GSO, HDR, false, false},
    };

    for (unsigned i = 0; i < 2 * G_N_ELEMENTS(rows); i++) {
        bool outer_csum = i & 1;
        Tunnel t;

        g_test_message("row %u, outer checksums %d", i / 2, outer_csum);
        tunnel_open(&t, rows[i / 2].features, outer_csum);
        receive_all(&t, rows[i / 2].hdr, outer_csum,
                    outer_csum ? rows[i / 2].summed : rows[i / 2].plain);
        tunnel_close(&t);
    }
}

static void test_received_as_set(void)
{
    static const uint64_t tunnel = 1ull << VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED,
                          summed = 1ull << VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED;
    const uint64_t gso = (uint64_t)GUEST_GSO;
    Tunnel t;

    tunnel_open(&t, GUEST_GSO | GUEST_TUNNEL | GUEST_TUNNEL_CSUM | SET_OFFLOADS, true);
    receive_all(&t, HDR, true, true);
    g_assert_cmpuint(tap_rig_set_offloads(t.rig, gso | tunnel), ==, VIRTIO_NET_OK);
    receive_all(&t, HDR, true, false);
    g_assert_cmpuint(tap_rig_set_offloads(t.rig, gso | tunnel | summed), ==, VIRTIO_NET_OK);
    receive_all(&t, HDR, true, true);
    g_assert_cmpuint(tap_rig_set_offloads(t.rig, 0), ==, VIRTIO_NET_OK);
    receive_all(&t, HDR, true, false);
    tunnel_close(&t);

    /* Only what was negotiated can be set. */
    tunnel_open(&t, GUEST_GSO | GUEST_TUNNEL | SET_OFFLOADS, false);
    g_assert_cmpuint(tap_rig_set_offloads(t.rig, gso | tunnel | summed), ==, VIRTIO_NET_ERR);
    receive_all(&t, HDR, false, true);
    tunnel_close(&t);
}

/* The next driver, which takes none, has the short header again and gets no tunnels. */
static void test_reset(void)
{
    Tunnel t;

    tunnel_open(&t, GUEST_GSO | GUEST_TUNNEL, false);
    receive_all(&t, HDR, false, true);
    t.rig->config.features = GUEST_GSO;
    rig_restart(t.rig);
    receive_all(&t, RIG_HDR, false, false);
    tunnel_close(&t);
}

int main(int argc, char **argv)
{
    g_autofree char *reason = NULL;
    static const struct {
        const char *path;
        void (*run)(void);
    } tests[] = {
        {"/tunnel-offload/tx/kernel-unpacks-what-the-guest-made", test_sent_and_unpacked},
        {"/tunnel-offload/tx/is-finished-on-the-wire", test_sent_and_finished},
        {"/tunnel-offload/tx/bad-headers-cost-their-frame", test_bad_headers},
        {"/tunnel-offload/rx/as-negotiated", test_received_as_negotiated},
        {"/tunnel-offload/rx/as-guest-offloads-set", test_received_as_set},
        {"/tunnel-offload/rx/reset-turns-tunnels-off", test_reset},
    };

    g_test_init(&argc, &argv, NULL);
    if (!wire_enter(&reason)) {
        printf("1..0 # SKIP no taps here: %s\n", reason);
        return 0;
    }
    g_test_add_func("/tunnel-offload/offered-as-the-tap-can", test_offered);
    g_test_add_func("/tunnel-offload/refused-where-the-tap-cannot", test_refused);
    if (!kernel_has_tunnels()) {
        g_test_message("this kernel's taps have no tunnel offloads");
        return g_test_run();
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        g_test_add_func(tests[i].path, tests[i].run);
    }
    return g_test_run();
}
