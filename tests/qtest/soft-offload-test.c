/*
 * Offloads that the device does itself, against the kernel's.
 *
 * The same unfinished frames are sent twice: over a tap with vnet headers, where the kernel
 * completes and cuts them, and over one without, where the device must (x-soft-offloads).  What
 * comes out at the far end of the bridge must be the same frames, byte for byte.
 */
#include <stdio.h>
#include <string.h>

#include "tests/lib/tap-rig.h"

#define TSO4 VIRTIO_NET_HDR_GSO_TCPV4
#define TSO6 VIRTIO_NET_HDR_GSO_TCPV6
#define USO  VIRTIO_NET_HDR_GSO_UDP_L4
#define ECN  VIRTIO_NET_HDR_GSO_ECN

#ifndef VIRTIO_NET_F_HOST_USO
#define VIRTIO_NET_F_HOST_USO 56
#endif

#define FEATURE(name) RIG_FEATURE(VIRTIO_NET_F_##name)
#define HOST                                                                                       \
    (FEATURE(CSUM) | FEATURE(HOST_TSO4) | FEATURE(HOST_TSO6) | FEATURE(HOST_ECN) |                 \
     FEATURE(HOST_USO))
#define RANDOM_FRAMES 150

static const uint8_t receiver[6] = {0x02, 0, 0, 0, 0, 1};

/* Sends @built and returns the frames at the far end, @expected of them. */
static GPtrArray *cross(Rig *rig, Wire *wire, const BuiltFrame *built, unsigned expected)
{
    GPtrArray *frames = frame_list_new();

    tap_rig_send(rig, built);
    frame_list_add_far(frames, wire, expected);
    return frames;
}

static unsigned segments_of(const FrameSpec *spec)
{
    return spec->gso_size ? (unsigned)((spec->payload + spec->gso_size - 1) / spec->gso_size) : 1;
}

static const FrameSpec fixed[] = {
    {"csum tcp4", .ip_version = 4, .protocol = 6, .payload = 900, .partial = true},
    {"csum tcp6", .ip_version = 6, .protocol = 6, .payload = 901, .partial = true},
    {"csum udp4", .ip_version = 4, .protocol = 17, .payload = 77, .partial = true},
    {"csum udp6", .ip_version = 6, .protocol = 17, .payload = 78, .partial = true},
    {"tso4 64K", .ip_version = 4, .protocol = 6, .payload = 65000, .gso_size = 1448,
     .gso_type = TSO4, .tcp_flags = 0x19},
    {"tso6 64K", .ip_version = 6, .protocol = 6, .payload = 65000, .gso_size = 1428,
     .gso_type = TSO6, .tcp_flags = 0x18},
    {"tso4 ecn", .ip_version = 4, .protocol = 6, .payload = 5000, .gso_size = 1000,
     .gso_type = TSO4 | ECN, .tcp_flags = 0x90},
    {"tso4 options", .ip_version = 4, .protocol = 6, .ip_options = true, .payload = 5000,
     .gso_size = 1001, .gso_type = TSO4},
    {"tso6 options", .ip_version = 6, .protocol = 6, .ip_options = true, .payload = 5000,
     .gso_size = 1001, .gso_type = TSO6},
    {"tso4 vlan", .ip_version = 4, .protocol = 6, .vlan = 9, .payload = 5001, .gso_size = 1200,
     .gso_type = TSO4},
    {"uso4", .ip_version = 4, .protocol = 17, .payload = 9000, .gso_size = 1472, .gso_type = USO},
    {"uso6", .ip_version = 6, .protocol = 17, .payload = 9001, .gso_size = 1452, .gso_type = USO},
};

/* Kept where the kernel takes them: USO has at most 128 segments, a payload that together with
 * TCP's options passes the MSS, but alone does not, is refused by it, and a bridge drops single
 * frames beyond its MTU, which the largest segment with all headers and options stays below. */
static FrameSpec random_spec(void)
{
    bool tcp = g_test_rand_bit();
    FrameSpec spec = {
        .name = "random",
        .ip_version = g_test_rand_bit() ? 4 : 6,
        .protocol = tcp ? 6 : 17,
        .ip_options = g_test_rand_int_range(0, 4) == 0,
        .payload = (size_t)g_test_rand_int_range(1, 20000),
        .gso_size = (uint16_t)g_test_rand_int_range(200, 1400),
        .tcp_flags =
            (uint8_t)(0x10 | g_test_rand_int_range(0, 16) | (g_test_rand_bit() ? 0x80 : 0)),
        .seed = (uint32_t)g_test_rand_int(),
    };

    spec.gso_type = tcp ? (spec.ip_version == 4 ? TSO4 : TSO6) : USO;
    spec.tcp_flags &= (uint8_t)~0x06; /* no SYN, no RST */
    if (tcp && spec.tcp_flags & 0x80) {
        spec.gso_type |= ECN;
    }
    if (spec.payload <= spec.gso_size) {
        spec.gso_size = 0;
        spec.partial = true;
        spec.payload = MIN(spec.payload, 1400);
    }
    return spec;
}

static void test_like_the_kernel(void)
{
    FrameSpec specs[G_N_ELEMENTS(fixed) + RANDOM_FRAMES];
    GPtrArray *native[G_N_ELEMENTS(specs)];
    Wire wire;
    Rig *rig;
    BuiltFrame built;

    memcpy(specs, fixed, sizeof(fixed));
    for (unsigned i = G_N_ELEMENTS(fixed); i < G_N_ELEMENTS(specs); i++) {
        specs[i] = random_spec();
    }
    rig = tap_rig_open(&wire, TAP_RIG_NETDEV ",vnet_hdr=on", NULL, HOST);
    if ((rig->virtio->features & HOST) != HOST) {
        g_test_skip("this kernel's taps lack an offload to compare with");
        tap_rig_close(rig, &wire);
        return;
    }
    wire_bridge(&wire);
    for (unsigned i = 0; i < G_N_ELEMENTS(specs); i++) {
        frame_build(&built, &specs[i], receiver);
        native[i] = cross(rig, &wire, &built, segments_of(&specs[i]));
        frame_clear(&built);
    }
    tap_rig_close(rig, &wire);

    rig = tap_rig_open(&wire, TAP_RIG_NETDEV ",vnet_hdr=off", NULL, HOST);
    g_assert_cmphex(rig->virtio->features & HOST, ==, HOST);
    wire_bridge(&wire);
    for (unsigned i = 0; i < G_N_ELEMENTS(specs); i++) {
        GPtrArray *soft;

        frame_build(&built, &specs[i], receiver);
        soft = cross(rig, &wire, &built, native[i]->len);
        for (unsigned n = 0; n < soft->len; n++) {
            const GByteArray *ours = soft->pdata[n], *kernels = native[i]->pdata[n];

            g_test_message("%s (IPv%u, protocol %u, %zu bytes in %u): frame %u of %u",
                           specs[i].name, specs[i].ip_version, specs[i].protocol, specs[i].payload,
                           specs[i].gso_size, n, soft->len);
            g_assert_cmpmem(ours->data, ours->len, kernels->data, kernels->len);
        }
        g_ptr_array_unref(soft);
        g_ptr_array_unref(native[i]);
        frame_clear(&built);
    }
    tap_rig_close(rig, &wire);
}

/* Off means off: nothing is offered that the tap cannot do. */
static void test_off(void)
{
    Wire wire;
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV ",vnet_hdr=off", "x-soft-offloads=off", HOST);

    g_assert_cmphex(rig->virtio->device_features & HOST, ==, 0);
    tap_rig_close(rig, &wire);
}

int main(int argc, char **argv)
{
    g_autofree char *reason = NULL;

    g_test_init(&argc, &argv, NULL);
    if (!wire_enter(&reason)) {
        printf("1..0 # SKIP no taps here: %s\n", reason);
        return 0;
    }
    g_test_add_func("/soft-offload/byte-for-byte-like-the-kernel", test_like_the_kernel);
    g_test_add_func("/soft-offload/off", test_off);
    return g_test_run();
}
