/*
 * A tap as back end: its settings, what it refuses, and chains that no system call takes.
 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/lib/tap-rig.h"

#define WAIT_MS 2000
#define TSO4    VIRTIO_NET_HDR_GSO_TCPV4
#define TSO6    VIRTIO_NET_HDR_GSO_TCPV6
#define HOST_TSO                                                                                   \
    (RIG_FEATURE(VIRTIO_NET_F_CSUM) | RIG_FEATURE(VIRTIO_NET_F_HOST_TSO4) |                        \
     RIG_FEATURE(VIRTIO_NET_F_HOST_TSO6))

static const uint8_t receiver[6] = {0x02, 0, 0, 0, 0, 1};

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
    tap_rig_send(rig, &built);
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
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, HOST_TSO);
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);
    struct virtio_net_hdr_v1 header;
    BuiltFrame built;

    frame_build(&built, &spec, receiver);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        int64_t before = drops_of(rig, "bad-header");

        built.header = bad[i];
        tap_rig_send(rig, &built);
        rig_settle(rig);
        g_assert_cmpuint(wire_recv(&wire, &header, got, RIG_QUIET_MS), ==, 0);
        g_assert_cmpint(drops_of(rig, "bad-header"), ==, before + 1);
        expect_passes(rig, &wire);
    }
    frame_clear(&built);
    tap_rig_close(rig, &wire);
}

static void test_interface_down_costs_the_frame(void)
{
    static const FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17, .payload = 99};
    Wire wire;
    Rig *rig = tap_rig_open(&wire, TAP_RIG_NETDEV, NULL, 0);
    BuiltFrame built;

    frame_build(&built, &spec, receiver);
    expect_passes(rig, &wire);
    wire_set_up(&wire, false);
    for (unsigned i = 1; i <= 3; i++) {
        tap_rig_send(rig, &built);
        g_assert_cmpint(drops_of(rig, "host-error"), ==, i);
    }
    wire_set_up(&wire, true);
    wire_close(&wire); /* going down ended what it had queued */
    wire_open(&wire, TAP_RIG_IFNAME);
    expect_passes(rig, &wire);
    g_assert_cmpint(drops_of(rig, "host-error"), ==, 3);
    frame_clear(&built);
    tap_rig_close(rig, &wire);
}

/* --- a tap that is given: its state can be looked at --- */

typedef struct GivenTap {
    int fds[2]; /* the tap, -1 */
    char *netdev;
} GivenTap;

static void given_open(GivenTap *tap, const char *options)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR,
                        .ifr_name = TAP_RIG_IFNAME};

    *tap = (GivenTap){.fds = {open("/dev/net/tun", O_RDWR | O_CLOEXEC), -1}};
    g_assert_cmpint(ioctl(tap->fds[0], TUNSETIFF, &ifr), ==, 0);
    tap->netdev = g_strdup_printf("tap,id=n0,fd=%d%s", tap->fds[0], options);
}

static void given_close(GivenTap *tap)
{
    close(tap->fds[0]);
    g_free(tap->netdev);
}

static int given_get(const GivenTap *tap, unsigned long request)
{
    int value = -1;

    g_assert_cmpint(ioctl(tap->fds[0], request, &value), ==, 0);
    return value;
}

static void test_given_fd(void)
{
    static const FrameSpec spec = {"tso6",          .ip_version = 6,  .protocol = 6,
                                   .payload = 4000, .gso_size = 1000, .gso_type = TSO6};
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);
    struct virtio_net_hdr_v1 header;
    BuiltFrame built;
    GivenTap tap;
    Wire wire;
    Rig *rig;
    size_t size;

    given_open(&tap, ",sndbuf=65536");
    rig =
        rig_open(&(RigConfig){.netdev = tap.netdev, .inherit_fds = tap.fds, .features = HOST_TSO});
    wire_open(&wire, TAP_RIG_IFNAME);
    g_assert_cmpint(given_get(&tap, TUNGETSNDBUF), ==, 65536);
    rig_start(rig);
    frame_build(&built, &spec, receiver);
    tap_rig_send(rig, &built);
    size = wire_recv(&wire, &header, got, WAIT_MS);
    g_assert_cmpmem(got, size, built.bytes, built.size);
    g_assert_cmpuint(header.gso_type, ==, TSO6);
    frame_clear(&built);
    tap_rig_close(rig, &wire);
    given_close(&tap);
}

/* TUNSETVNETHDRSZ is what the guest's driver puts in front of its frames. */
static void test_header_size(void)
{
    enum { GUEST_FEATURES = 4, STATUS = 18 }; /* legacy registers */
    static const struct {
        uint32_t features;
        int size;
    } rows[] = {{0, 10}, {1u << VIRTIO_NET_F_MRG_RXBUF, 12}, {0, 10}};
    GivenTap tap;
    Rig *rig;

    given_open(&tap, "");
    rig = rig_open(&(RigConfig){.netdev = tap.netdev, .inherit_fds = tap.fds});
    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        guest_pci_bar_write(rig->pci, 0, 1, STATUS, 0);
        guest_pci_bar_write(rig->pci, 0, 1, STATUS, 3);
        guest_pci_bar_write(rig->pci, 0, 4, GUEST_FEATURES, rows[i].features);
        guest_pci_bar_write(rig->pci, 0, 1, STATUS, 7);
        rig_settle(rig);
        g_assert_cmpint(given_get(&tap, TUNGETVNETHDRSZ), ==, rows[i].size);
    }
    rig_restart(rig); /* VERSION_1 */
    g_assert_cmpint(given_get(&tap, TUNGETVNETHDRSZ), ==, 12);
    rig_free(rig);
    given_close(&tap);
}

/* Chains of more descriptors than one writev() takes, a header of its own in front. */
static void test_long_chains(void)
{
    const uint16_t counts[] = {1000, 1015, 1016, 1017, 1018, 1023, 1024};
    static const char *const netdevs[] = {TAP_RIG_NETDEV, TAP_RIG_NETDEV ",vnet_hdr=off"};
    FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17};
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);

    for (unsigned n = 0; n < G_N_ELEMENTS(netdevs); n++) {
        Wire wire;
        Rig *rig = tap_rig_open(&wire, netdevs[n], "tx_queue_size=1024", 0);

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
        tap_rig_close(rig, &wire);
    }
}

int main(int argc, char **argv)
{
    g_autofree char *reason = NULL;

    g_test_init(&argc, &argv, NULL);
    if (!wire_enter(&reason)) {
        printf("1..0 # SKIP no taps here: %s\n", reason);
        return 0;
    }
    g_test_add_func("/tap/bad-header-costs-one-frame", test_bad_header_costs_one_frame);
    g_test_add_func("/tap/interface-down-costs-the-frame", test_interface_down_costs_the_frame);
    g_test_add_func("/tap/fd-and-sndbuf", test_given_fd);
    g_test_add_func("/tap/header-size-is-the-guests", test_header_size);
    g_test_add_func("/tap/chains-longer-than-iov-max", test_long_chains);
    return g_test_run();
}
