/*
 * Offloads over a real tap: what is offered, what the kernel is told, what crosses.
 *
 * The frame checker (tests/lib/frame-checker.h) makes from each unfinished frame the frames that
 * must be on the wire at the end.  Whoever does the work, the guest's driver, the device or the
 * kernel, on either side of the tap, the result must be those, byte for byte.
 */
#include <linux/if_tun.h>
#include <stdio.h>

#include "tests/lib/tap-rig.h"

#define WAIT_MS 2000

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

static bool kernel_has_uso(void)
{
    return tap_rig_kernel_takes(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_USO4 | TUN_F_USO6);
}

/* Features that need what this kernel lacks. */
static uint64_t kernel_lacks(void)
{
    uint64_t lacks = 0;

    if (!tap_rig_kernel_takes(TUN_F_CSUM | TUN_F_UFO)) {
        lacks |= FEATURE(GUEST_UFO) | FEATURE(HOST_UFO);
    }
    if (!kernel_has_uso()) {
        lacks |= FEATURE(GUEST_USO4) | FEATURE(GUEST_USO6) | FEATURE(HOST_USO);
    }
    return lacks;
}

/* --- frames --- */

/* Adds what is to become of a frame; returns its gso_type. */
static uint8_t add_finished(GPtrArray *list, const struct virtio_net_hdr_v1 *header,
                            const uint8_t *frame, size_t size)
{
    GPtrArray *frames = frame_list_finish(header, frame, size);

    g_ptr_array_extend_and_steal(list, frames);
    return header->gso_type;
}

/* --- what is offered --- */

static uint64_t offered(const char *netdev, const char *device)
{
    Wire wire;
    Rig *rig = tap_rig_open(&wire, netdev, device, 0);
    uint64_t features = rig->virtio->device_features;

    tap_rig_close(rig, &wire);
    return features;
}

static void test_offered(void)
{
    uint64_t all = (HOST_ALL | GUEST_ALL) & ~kernel_lacks();

    g_assert_cmphex(offered(TAP_RIG_NETDEV, NULL) & (HOST_ALL | GUEST_ALL), ==, all);
    g_assert_cmphex(offered(TAP_RIG_NETDEV ",vnet_hdr=on", NULL) & (HOST_ALL | GUEST_ALL), ==, all);
    g_assert_cmphex(offered(TAP_RIG_NETDEV, "csum=off,guest_csum=off") & (HOST_ALL | GUEST_ALL), ==,
                    0);
    g_assert_cmphex(offered(TAP_RIG_NETDEV, "guest_tso4=off,guest_ecn=off,host_tso6=off") &
                        (HOST_ALL | GUEST_ALL),
                    ==, all & ~(FEATURE(GUEST_TSO4) | FEATURE(GUEST_ECN) | FEATURE(HOST_TSO6)));
}

/* A peer without a header is offered nothing that needs one, and never sees one. */
static void test_offered_without_header(void)
{
    uint64_t features = offered(TAP_RIG_NETDEV ",vnet_hdr=off", "x-soft-offloads=off");

    g_assert_cmphex(features & GUEST_ALL, ==, 0);
    g_assert_cmphex(features & HOST_ALL, ==, 0);
    features = offered(TAP_RIG_NETDEV ",vnet_hdr=off", NULL); /* what the device does itself */
    g_assert_cmphex(features & GUEST_ALL, ==, 0);
    g_assert_cmphex(features & HOST_ALL, ==, HOST_ALL & ~FEATURE(HOST_UFO));
}

/* --- sending --- */

static void test_sent_as_the_guest_made_it(void)
{
    Wire wire;
    uint64_t lacks = kernel_lacks();
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, HOST_ALL);
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
        tap_rig_send(rig, &built);
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
    tap_rig_close(rig, &wire);
}

static void test_sent_and_finished(void)
{
    static const FrameSpec tagged = {"tso4-vlan",     .ip_version = 4,  .protocol = 6,
                                     .payload = 5000, .gso_size = 1448, .gso_type = TSO4,
                                     .vlan = 5};
    Wire wire;
    uint64_t lacks = kernel_lacks();
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, HOST_ALL);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);

    wire_bridge(&wire);
    for (unsigned i = 0; i <= G_N_ELEMENTS(cases); i++) {
        const FrameSpec *spec = i < G_N_ELEMENTS(cases) ? &cases[i].spec : &tagged;
        g_autoptr(GPtrArray) wanted = NULL, frames = frame_list_new();
        BuiltFrame built;

        if (i < G_N_ELEMENTS(cases) && cases[i].host & lacks) {
            continue;
        }
        g_test_message("%s", spec->name);
        frame_build(&built, spec, receiver);
        wanted = frame_list_finish(&built.header, built.bytes, built.size);
        tap_rig_send(rig, &built);
        frame_list_add_far(frames, &wire, wanted->len);
        frame_list_expect_same(frames, wanted);
        g_assert_cmpuint(wire_far_recv(&wire, got, 0), ==, 0);
        frame_clear(&built);
    }
    tap_rig_close(rig, &wire);
}

static void test_sent_without_header(void)
{
    static const FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17, .payload = 500};
    Wire wire;
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV ",vnet_hdr=off", NULL, 0);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);
    struct virtio_net_hdr_v1 header;
    BuiltFrame built;
    size_t size;

    frame_build(&built, &spec, receiver);
    tap_rig_send(rig, &built);
    size = wire_recv(&wire, &header, got, WAIT_MS);
    g_assert_cmpmem(got, size, built.bytes, built.size);
    frame_clear(&built);
    tap_rig_close(rig, &wire);
}

/* --- receiving --- */

/* All cases to a guest that took @features: the frames, finished, are right, and one that the
 * guest can take as it is came as it is. */
static void receive_all(Rig *rig, Wire *wire, uint64_t features)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        const FrameSpec *spec = &cases[i].spec;
        bool as_it_is = (cases[i].guest & features) == cases[i].guest;
        g_autoptr(GPtrArray) wanted = NULL, frames = frame_list_new();
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
        wanted = frame_list_finish(&built.header, built.bytes, built.size);
        tap_rig_post(rig, wanted->len);
        wire_send(wire, &built.header, built.bytes, built.size);
        while (frames->len < wanted->len &&
               (frame = tap_rig_recv(rig, &header, RIG_HDR, &size, WAIT_MS)) != NULL) {
            arrived++;
            g_assert_true(features & FEATURE(GUEST_CSUM) ||
                          !(header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM));
            gso_type = add_finished(frames, &header, frame, size);
        }
        frame_list_expect_same(frames, wanted);
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
        Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, features);

        g_test_message("features %" G_GINT64_MODIFIER "x", features);
        g_assert_cmphex(rig->virtio->features & GUEST_ALL, ==, features);
        receive_all(rig, &wire, features);
        tap_rig_close(rig, &wire);
    }
}

static void test_received_as_set(void)
{
    Wire wire;
    uint64_t lacks = kernel_lacks(), all = GUEST_ALL & ~lacks;
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL,
                            all | FEATURE(CTRL_VQ) | FEATURE(CTRL_GUEST_OFFLOADS));

    receive_all(rig, &wire, all);
    for (unsigned i = 0; i < G_N_ELEMENTS(combinations); i++) {
        uint64_t offloads = combinations[i] & ~lacks;

        g_test_message("offloads %" G_GINT64_MODIFIER "x", offloads);
        g_assert_cmpuint(tap_rig_set_offloads(rig, offloads), ==, VIRTIO_NET_OK);
        receive_all(rig, &wire, offloads);
    }
    /* What was not negotiated, or is no offload, changes nothing. */
    g_assert_cmpuint(tap_rig_set_offloads(rig, all | FEATURE(MRG_RXBUF)), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(tap_rig_set_offloads(rig, 1ull << 63), ==, VIRTIO_NET_ERR);
    receive_all(rig, &wire, all);
    tap_rig_close(rig, &wire);
}

/* A reset takes back what the last driver had agreed to. */
static void test_reset_turns_off(void)
{
    Wire wire;
    uint64_t all = GUEST_ALL & ~kernel_lacks();
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, all);

    receive_all(rig, &wire, all);
    rig->config.features = 0;
    rig_restart(rig);
    receive_all(rig, &wire, 0);
    tap_rig_close(rig, &wire);
}

static void test_received_without_header(void)
{
    Wire wire;
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV ",vnet_hdr=off", NULL, 0);

    receive_all(rig, &wire, 0);
    tap_rig_close(rig, &wire);
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
        {"/offload/rx/as-negotiated", test_received_as_negotiated},
        {"/offload/rx/as-guest-offloads-set", test_received_as_set},
        {"/offload/rx/reset-turns-offloads-off", test_reset_turns_off},
        {"/offload/rx/peer-without-header-sends-none", test_received_without_header},
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
