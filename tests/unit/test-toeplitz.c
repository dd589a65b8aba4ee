/*
 * Toeplitz hashing: the test vectors that Microsoft publishes for RSS ("Verifying the RSS Hash
 * Calculation"), the fields that are hashed of each kind of packet, and packets in tunnels.
 */
#include <glib.h>
#include <linux/virtio_net.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "hw/net/frame.h"
#include "hw/net/toeplitz.h"
#include "hw/net/virtio-net-uapi.h"

static const uint8_t key[TOEPLITZ_KEY_MAX] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

#define ALL_TYPES  0x1ff
#define TYPE(name) VIRTIO_NET_RSS_HASH_TYPE_##name

static Toeplitz toeplitz;

/* --- frames --- */

typedef struct Frame {
    uint8_t bytes[FRAME_HEAD_SIZE];
    size_t size;
} Frame;

static uint8_t *frame_add(Frame *f, size_t bytes)
{
    uint8_t *at = f->bytes + f->size;

    f->size += bytes;
    g_assert_cmpuint(f->size, <=, sizeof(f->bytes));
    return at;
}

static void add_ethernet(Frame *f, uint16_t type)
{
    frame_put16(frame_add(f, FRAME_ETH_LEN) + 12, type);
}

static void add_ipv4(Frame *f, uint8_t protocol, const char *src, const char *dst)
{
    uint8_t *ip = frame_add(f, 20);

    ip[0] = 0x45;
    ip[9] = protocol;
    g_assert_true(inet_pton(AF_INET, src, ip + 12) && inet_pton(AF_INET, dst, ip + 16));
}

static void add_ipv6(Frame *f, uint8_t next, const char *src, const char *dst)
{
    uint8_t *ip = frame_add(f, 40);

    ip[0] = 0x60;
    ip[6] = next;
    g_assert_true(inet_pton(AF_INET6, src, ip + 8) && inet_pton(AF_INET6, dst, ip + 24));
}

static void add_ports(Frame *f, size_t len, uint16_t src, uint16_t dst)
{
    uint8_t *l4 = frame_add(f, len);

    frame_put16(l4, src);
    frame_put16(l4 + 2, dst);
    if (len >= 20) {
        l4[12] = 0x50;
    }
}

static void expect(const Frame *f, uint32_t types, uint32_t tunnels, unsigned report, uint32_t hash)
{
    g_autofree uint8_t *copy = g_memdup2(f->bytes, f->size);
    uint32_t got;

    g_assert_cmpuint(frame_hash(&toeplitz, types, tunnels, copy, f->size, &got), ==, report);
    g_assert_cmphex(got, ==, hash);
}

/* --- the published vectors --- */

static const struct {
    const char *dst, *src;
    uint16_t dst_port, src_port;
    uint32_t ip, tcp;
} v4[] =
    {
        {"161.142.100.80", "66.9.149.187", 1766, 2794, 0x323e8fc2, 0x51ccc178},
        {"65.69.140.83", "199.92.111.2", 4739, 14230, 0xd718262a, 0xc626b0ea},
        {"12.22.207.184", "24.19.198.95", 38024, 12898, 0xd2d0a5de, 0x5c2b394a},
        {"209.142.163.6", "38.27.205.30", 2217, 48228, 0x82989176, 0xafc7327f},
        {"202.188.127.2", "153.39.163.191", 1303, 44251, 0x5d1809c5, 0x10e828a2},
},
  v6[] = {
      {"3ffe:2501:200:3::1", "3ffe:2501:200:1fff::7", 1766, 2794, 0x2cc18cd5, 0x40207d3d},
      {"ff02::1", "3ffe:501:8::260:97ff:fe40:efab", 4739, 14230, 0x0f0c461c, 0xdde51bbf},
      {"fe80::200:f8ff:fe21:67cf", "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 38024, 44251, 0x4b61e985,
       0x02d1feef},
};

static void test_vectors_v4(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(v4); i++) {
        Frame f = {.size = 0};

        add_ethernet(&f, FRAME_TYPE_IPV4);
        add_ipv4(&f, IPPROTO_TCP, v4[i].src, v4[i].dst);
        add_ports(&f, 20, v4[i].src_port, v4[i].dst_port);
        expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_TCPv4, v4[i].tcp);
        expect(&f, ALL_TYPES & ~TYPE(TCPv4), 0, VIRTIO_NET_HASH_REPORT_IPv4, v4[i].ip);
        f.bytes[23] = IPPROTO_UDP;
        expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_UDPv4, v4[i].tcp);
        expect(&f, TYPE(TCPv4) | TYPE(IPv4), 0, VIRTIO_NET_HASH_REPORT_IPv4, v4[i].ip);
    }
}

static void test_vectors_v6(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(v6); i++) {
        Frame f = {.size = 0};

        add_ethernet(&f, FRAME_TYPE_IPV6);
        add_ipv6(&f, IPPROTO_TCP, v6[i].src, v6[i].dst);
        add_ports(&f, 20, v6[i].src_port, v6[i].dst_port);
        expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_TCPv6, v6[i].tcp);
        expect(&f, ALL_TYPES & ~TYPE(TCPv6), 0, VIRTIO_NET_HASH_REPORT_IPv6, v6[i].ip);
        f.bytes[20] = IPPROTO_UDP;
        expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_UDPv6, v6[i].tcp);
    }
}

/* The definition, bit by bit: what the tables must agree with, short keys included. */
static uint32_t slow_hash(const uint8_t *k, size_t key_len, const uint8_t *input, size_t size)
{
    uint32_t hash = 0;

    for (size_t bit = 0; bit < size * 8; bit++) {
        uint32_t window = 0;

        for (unsigned i = 0; i < 32; i++) {
            size_t at = bit + i;
            unsigned set = at / 8 < key_len ? k[at / 8] >> (7 - at % 8) & 1 : 0;

            window = window << 1 | set;
        }
        if (input[bit / 8] >> (7 - bit % 8) & 1) {
            hash ^= window;
        }
    }
    return hash;
}

static void test_definition(void)
{
    Toeplitz t;

    for (unsigned round = 0; round < 200; round++) {
        uint8_t k[TOEPLITZ_KEY_MAX], input[TOEPLITZ_INPUT_MAX];
        size_t key_len = (size_t)g_random_int_range(1, sizeof(k) + 1);
        size_t size = (size_t)g_random_int_range(0, sizeof(input) + 1);

        for (unsigned i = 0; i < sizeof(k); i++) {
            k[i] = (uint8_t)g_random_int();
        }
        for (unsigned i = 0; i < sizeof(input); i++) {
            input[i] = (uint8_t)g_random_int();
        }
        toeplitz_init(&t, k, key_len);
        g_assert_cmphex(toeplitz_hash(&t, input, size), ==, slow_hash(k, key_len, input, size));
    }
}

/* --- which fields --- */

static void test_vlan_and_unclassified(void)
{
    Frame f = {.size = 0};

    add_ethernet(&f, 0x8100);
    frame_put16(frame_add(&f, 4) + 2, FRAME_TYPE_IPV4);
    add_ipv4(&f, IPPROTO_TCP, v4[0].src, v4[0].dst);
    add_ports(&f, 20, v4[0].src_port, v4[0].dst_port);
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_TCPv4, v4[0].tcp);
    expect(&f, TYPE(IPv6), 0, VIRTIO_NET_HASH_REPORT_NONE, 0);
    f.size = 14 + 4 + 20 + 10; /* the transport header is cut off: only addresses are there */
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_IPv4, v4[0].ip);
    f.size = 14 + 4 + 19;
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_NONE, 0);
    f.size = 5;
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_NONE, 0);

    Frame arp = {.size = 0};
    add_ethernet(&arp, 0x0806);
    frame_add(&arp, 46);
    expect(&arp, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_NONE, 0);
}

static void test_fragments(void)
{
    Frame f = {.size = 0};

    add_ethernet(&f, FRAME_TYPE_IPV4);
    add_ipv4(&f, IPPROTO_UDP, v4[0].src, v4[0].dst);
    add_ports(&f, 20, v4[0].src_port, v4[0].dst_port);
    f.bytes[20] = 0x20; /* more fragments: the others have no ports, so this one's do not count */
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_IPv4, v4[0].ip);
    expect(&f, TYPE(UDPv4), 0, VIRTIO_NET_HASH_REPORT_NONE, 0);
    f.bytes[20] = 0x40; /* do not fragment */
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_UDPv4, v4[0].tcp);
}

/* Home address and routing header stand in for the addresses in the IPv6 header. */
static void test_extension_headers(void)
{
    Frame f = {.size = 0};
    uint8_t *ext;

    add_ethernet(&f, FRAME_TYPE_IPV6);
    add_ipv6(&f, IPPROTO_DSTOPTS, "fd00::1", "fd00::2");
    ext = frame_add(&f, 24);
    ext[0] = IPPROTO_ROUTING;
    ext[1] = 2;
    ext[2] = 1; /* PadN of 2 */
    ext[4] = 0xc9;
    ext[5] = 16;
    g_assert_true(inet_pton(AF_INET6, v6[0].src, ext + 6));
    ext = frame_add(&f, 24);
    ext[0] = IPPROTO_TCP;
    ext[1] = 2;
    ext[2] = 2;
    ext[3] = 1;
    g_assert_true(inet_pton(AF_INET6, v6[0].dst, ext + 8));
    add_ports(&f, 20, v6[0].src_port, v6[0].dst_port);
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_TCPv6_EX, v6[0].tcp);
    expect(&f, TYPE(IP_EX) | TYPE(TCPv6), 0, VIRTIO_NET_HASH_REPORT_IPv6_EX, v6[0].ip);
    f.bytes[14 + 40 + 24] = IPPROTO_UDP;
    expect(&f, ALL_TYPES, 0, VIRTIO_NET_HASH_REPORT_UDPv6_EX, v6[0].tcp);

    /* Without the _EX types extension headers are skipped, not used. */
    g_assert_true(inet_pton(AF_INET6, v6[1].src, f.bytes + 14 + 8));
    g_assert_true(inet_pton(AF_INET6, v6[1].dst, f.bytes + 14 + 24));
    expect(&f, TYPE(IPv6), 0, VIRTIO_NET_HASH_REPORT_IPv6, v6[1].ip);
    /* With them, but without those headers: the addresses of the IPv6 header. */
    f.bytes[14 + 40 + 4] = 1;
    f.bytes[14 + 40 + 24 + 2] = 0;
    expect(&f, ALL_TYPES & ~TYPE(UDP_EX), 0, VIRTIO_NET_HASH_REPORT_IPv6_EX, v6[1].ip);
    /* A chain that does not end in the frame. */
    f.size = 14 + 40 + 20;
    expect(&f, TYPE(TCPv6) | TYPE(IPv6), 0, VIRTIO_NET_HASH_REPORT_IPv6, v6[1].ip);
}

/* --- tunnels --- */

static void add_inner(Frame *f)
{
    add_ipv4(f, IPPROTO_TCP, v4[1].src, v4[1].dst);
    add_ports(f, 20, v4[1].src_port, v4[1].dst_port);
}

/* The inner packet's hash with its type enabled, the outer one's with all others. */
static void expect_tunnel(const Frame *f, uint32_t type)
{
    uint32_t outer;
    unsigned report = frame_hash(&toeplitz, ALL_TYPES, 0, f->bytes, f->size, &outer);

    expect(f, ALL_TYPES, type, VIRTIO_NET_HASH_REPORT_TCPv4, v4[1].tcp);
    expect(f, ALL_TYPES, 0x1ff, VIRTIO_NET_HASH_REPORT_TCPv4, v4[1].tcp);
    g_assert_cmphex(outer, !=, v4[1].tcp);
    for (unsigned bit = 0; bit < 9; bit++) {
        bool also =
            type == VIRTIO_NET_HASH_TUNNEL_TYPE_NVGRE && bit == 1; /* NVGRE is a GRE of RFC 2890 */

        if (type != 1u << bit && !also) {
            expect(f, ALL_TYPES, 1u << bit, report, outer);
        }
    }
}

static void test_gre(void)
{
    static const struct {
        uint16_t flags;
        uint16_t more;
        uint32_t type;
    } kinds[] = {
        {0x0000, 0, VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_2784},
        {0x8000, 4, VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_2784},
        {0x2000, 4, VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_2890},
        {0xb000, 12, VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_2890},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        Frame f = {.size = 0};
        uint8_t *gre;

        add_ethernet(&f, FRAME_TYPE_IPV4);
        add_ipv4(&f, IPPROTO_GRE, "10.0.0.1", "10.0.0.2");
        gre = frame_add(&f, 4u + kinds[i].more);
        frame_put16(gre, kinds[i].flags);
        frame_put16(gre + 2, FRAME_TYPE_IPV4);
        add_inner(&f);
        expect_tunnel(&f, kinds[i].type);
        frame_put16(gre, kinds[i].flags | 1); /* PPTP's version: not ours */
        expect(&f, TYPE(TCPv4), 0x1ff, VIRTIO_NET_HASH_REPORT_NONE, 0);
    }
}

static void test_gre_v6(void)
{
    Frame f = {.size = 0};

    add_ethernet(&f, FRAME_TYPE_IPV6);
    add_ipv6(&f, IPPROTO_GRE, "fd00::1", "fd00::2");
    frame_put16(frame_add(&f, 4) + 2, FRAME_TYPE_IPV4);
    add_inner(&f);
    expect(&f, ALL_TYPES, VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_7676, VIRTIO_NET_HASH_REPORT_TCPv4,
           v4[1].tcp);
}

static void test_nvgre(void)
{
    Frame f = {.size = 0};
    uint8_t *gre;

    add_ethernet(&f, FRAME_TYPE_IPV4);
    add_ipv4(&f, IPPROTO_GRE, "10.0.0.1", "10.0.0.2");
    gre = frame_add(&f, 8);
    frame_put16(gre, 0x2000);
    frame_put16(gre + 2, FRAME_TYPE_TEB);
    add_ethernet(&f, FRAME_TYPE_IPV4);
    add_inner(&f);
    expect_tunnel(&f, VIRTIO_NET_HASH_TUNNEL_TYPE_NVGRE);
}

static void test_udp_tunnels(void)
{
    static const struct {
        uint16_t port;
        uint8_t header[8];
        bool ethernet;
        uint32_t type;
    } kinds[] = {
        {4789, {8, 0, 0, 0, 0, 0, 7}, true, VIRTIO_NET_HASH_TUNNEL_TYPE_VXLAN},
        {4790, {0xc, 0, 0, 1, 0, 0, 7}, false, VIRTIO_NET_HASH_TUNNEL_TYPE_VXLAN_GPE},
        {4790, {0xc, 0, 0, 3, 0, 0, 7}, true, VIRTIO_NET_HASH_TUNNEL_TYPE_VXLAN_GPE},
        {6081, {0, 0, 0x65, 0x58, 0, 0, 7}, true, VIRTIO_NET_HASH_TUNNEL_TYPE_GENEVE},
        {6081, {0, 0, 0x08, 0x00, 0, 0, 7}, false, VIRTIO_NET_HASH_TUNNEL_TYPE_GENEVE},
        {4754, {0x20, 0, 0x08, 0x00, 0, 0, 7}, false, VIRTIO_NET_HASH_TUNNEL_TYPE_GRE_UDP},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        Frame f = {.size = 0};

        add_ethernet(&f, FRAME_TYPE_IPV4);
        add_ipv4(&f, IPPROTO_UDP, "10.0.0.1", "10.0.0.2");
        add_ports(&f, 8, 40000, kinds[i].port);
        memcpy(frame_add(&f, 8), kinds[i].header, 8);
        if (kinds[i].ethernet) {
            add_ethernet(&f, FRAME_TYPE_IPV4);
        }
        add_inner(&f);
        expect_tunnel(&f, kinds[i].type);
        f.size = 14 + 20 + 8 + 7; /* the tunnel's header is cut off */
        expect(&f, TYPE(TCPv4), 0x1ff, VIRTIO_NET_HASH_REPORT_NONE, 0);
    }
}

static void test_geneve_options(void)
{
    Frame f = {.size = 0};

    add_ethernet(&f, FRAME_TYPE_IPV6);
    add_ipv6(&f, IPPROTO_UDP, "fd00::1", "fd00::2");
    add_ports(&f, 8, 40000, 6081);
    frame_put32(frame_add(&f, 8 + 12), 3u << 24 | FRAME_TYPE_IPV4);
    add_inner(&f);
    expect_tunnel(&f, VIRTIO_NET_HASH_TUNNEL_TYPE_GENEVE);
    f.bytes[14 + 40 + 8] = 0x3f; /* options beyond the frame */
    expect(&f, ALL_TYPES, VIRTIO_NET_HASH_TUNNEL_TYPE_GENEVE, VIRTIO_NET_HASH_REPORT_NONE, 0);
}

static void test_ipip(void)
{
    Frame f = {.size = 0};

    add_ethernet(&f, FRAME_TYPE_IPV4);
    add_ipv4(&f, IPPROTO_IPIP, "10.0.0.1", "10.0.0.2");
    add_inner(&f);
    expect_tunnel(&f, VIRTIO_NET_HASH_TUNNEL_TYPE_IPIP);

    Frame six = {.size = 0};
    add_ethernet(&six, FRAME_TYPE_IPV4);
    add_ipv4(&six, IPPROTO_IPV6, "10.0.0.1", "10.0.0.2");
    add_ipv6(&six, IPPROTO_TCP, v6[0].src, v6[0].dst);
    add_ports(&six, 20, v6[0].src_port, v6[0].dst_port);
    expect(&six, ALL_TYPES, VIRTIO_NET_HASH_TUNNEL_TYPE_IPIP, VIRTIO_NET_HASH_REPORT_TCPv6,
           v6[0].tcp);
}

/* --- checksums --- */

static void test_sums(void)
{
    uint8_t bytes[300];

    for (unsigned i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)g_random_int();
    }
    for (size_t size = 0; size < sizeof(bytes); size++) {
        uint32_t sum = 0;

        for (size_t i = 0; i < size; i++) {
            sum += (uint32_t)bytes[i] << (i % 2 ? 0 : 8);
        }
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        g_assert_cmphex(csum_fold(csum_add(0, bytes, size, false)), ==, sum);

        size_t cut = size ? (size_t)g_random_int_range(0, (int)size) : 0;
        struct iovec iov[] = {{bytes, cut}, {bytes + cut, 0}, {bytes + cut, size - cut}};
        g_assert_cmphex(csum_fold(csum_add_iov(0, iov, 3, 0, size)), ==, sum);
    }
    g_assert_cmphex(csum_fold(UINT64_MAX), ==, 0xffff);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    toeplitz_init(&toeplitz, key, sizeof(key));
    g_test_add_func("/toeplitz/published-vectors-ipv4", test_vectors_v4);
    g_test_add_func("/toeplitz/published-vectors-ipv6", test_vectors_v6);
    g_test_add_func("/toeplitz/as-defined", test_definition);
    g_test_add_func("/toeplitz/vlan-and-unclassified", test_vlan_and_unclassified);
    g_test_add_func("/toeplitz/fragments-have-no-ports", test_fragments);
    g_test_add_func("/toeplitz/extension-headers", test_extension_headers);
    g_test_add_func("/toeplitz/tunnel/gre", test_gre);
    g_test_add_func("/toeplitz/tunnel/gre-ipv6", test_gre_v6);
    g_test_add_func("/toeplitz/tunnel/nvgre", test_nvgre);
    g_test_add_func("/toeplitz/tunnel/udp", test_udp_tunnels);
    g_test_add_func("/toeplitz/tunnel/geneve-options", test_geneve_options);
    g_test_add_func("/toeplitz/tunnel/ipip", test_ipip);
    g_test_add_func("/frame/checksums", test_sums);
    return g_test_run();
}
