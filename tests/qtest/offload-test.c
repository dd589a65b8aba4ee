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

#include "tests/lib/tap-rig.h"

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

/* --- frames --- */

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
        g_autoptr(GPtrArray) wanted = NULL, frames = frame_list();
        BuiltFrame built;

        if (i < G_N_ELEMENTS(cases) && cases[i].host & lacks) {
            continue;
        }
        g_test_message("%s", spec->name);
        frame_build(&built, spec, receiver);
        wanted = finish(&built.header, built.bytes, built.size);
        tap_rig_send(rig, &built);
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
        Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, features);

        g_test_message("features %" G_GINT64_MODIFIER "x", features);
        g_assert_cmphex(rig->virtio->features & GUEST_ALL, ==, features);
        receive_all(rig, &wire, features);
        tap_rig_close(rig, &wire);
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
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL,
                            all | FEATURE(CTRL_VQ) | FEATURE(CTRL_GUEST_OFFLOADS));

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
