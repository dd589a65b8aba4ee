/*
 * The frame checker: see frame-checker.h.  Segmentation is in frame-finish.c.
 *
 * A Check walks the frame from the front.  Each step looks at one header, says fail() or sets
 * where the next begins; nothing is read before its length is known to be there.
 */
#include "tests/lib/frame-checker.h"

#include <stdarg.h>
#include <string.h>

#define ETH_SIZE 14
#define MIN_WIRE 60 /* shorter ones are padded by whoever sends them */
#define MAX_TAGS 2

#define TYPE_IPV4  0x0800
#define TYPE_ARP   0x0806
#define TYPE_RARP  0x8035
#define TYPE_VLAN  0x8100
#define TYPE_IPV6  0x86DD
#define TYPE_QINQ  0x88A8
#define TYPE_LOCAL 0x88B5

#define PROTO_HOP      0
#define PROTO_ICMP     1
#define PROTO_TCP      6
#define PROTO_UDP      17
#define PROTO_ROUTING  43
#define PROTO_FRAGMENT 44
#define PROTO_ICMPV6   58
#define PROTO_NONE     59
#define PROTO_OPTIONS  60

#define OPTION_END  0 /* IPv4 and TCP; in IPv6 it is Pad1 */
#define OPTION_NOP  1 /* IPv4 and TCP; in IPv6 it is PadN */
#define OPTION_PADN 1

typedef struct Check {
    const uint8_t *frame;
    size_t size;
    const struct virtio_net_hdr_v1 *header; /* NULL: none */
    FrameLayers layers;
    char *problem;
} Check;

static bool G_GNUC_PRINTF(2, 3) fail(Check *check, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    g_assert_null(check->problem);
    check->problem = g_strdup_vprintf(format, ap);
    va_end(ap);
    return false;
}

static unsigned get16(const Check *check, size_t at)
{
    return (unsigned)check->frame[at] << 8 | check->frame[at + 1];
}

uint32_t frame_sum(const uint8_t *data, size_t size, uint32_t sum)
{
    for (size_t i = 0; i < size; i++) {
        sum += i % 2 ? data[i] : (uint32_t)data[i] << 8;
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    return sum;
}

uint16_t frame_fold(uint32_t sum)
{
    while (sum > 0xFFFF) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    return (uint16_t)sum;
}

uint16_t frame_pseudo_sum(const uint8_t *frame, const FrameLayers *layers, size_t length)
{
    const uint8_t *addresses = frame + layers->l3 + (layers->ip_version == 4 ? 12 : 8);
    uint32_t sum = frame_sum(addresses, layers->ip_version == 4 ? 8 : 32, layers->protocol);

    return frame_fold(sum + (uint32_t)(length >> 16) + (uint32_t)(length & 0xFFFF));
}

static bool all_zero(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i]) {
            return false;
        }
    }
    return true;
}

/* --- transport --- */

static bool needs_csum(const Check *check)
{
    return check->header && check->header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
}

/* The transport's checksum, at @at: complete, or as NEEDS_CSUM leaves it. */
static bool check_sum(Check *check, size_t at, const char *name)
{
    const FrameLayers *layers = &check->layers;
    size_t length = layers->end - layers->l4;
    bool has_pseudo = layers->protocol != PROTO_ICMP;
    uint16_t pseudo = has_pseudo ? frame_pseudo_sum(check->frame, layers, length) : 0;

    if (needs_csum(check)) {
        if (check->header->csum_start != layers->l4 ||
            (size_t)check->header->csum_start + check->header->csum_offset != at) {
            return fail(check, "csum_start %u, csum_offset %u: the %s checksum is at %zu + %zu",
                        check->header->csum_start, check->header->csum_offset, name, layers->l4,
                        at - layers->l4);
        }
        return get16(check, at) == pseudo ||
               fail(check, "partial %s checksum %04x, the pseudo-header's sum is %04x", name,
                    get16(check, at), pseudo);
    }
    return frame_fold(frame_sum(check->frame + layers->l4, length, pseudo)) == 0xFFFF ||
           fail(check, "%s checksum %04x is wrong", name, get16(check, at));
}

/* Kind-length-value options of IPv4 and TCP in [@at, @end). */
static bool check_options(Check *check, size_t at, size_t end, const char *name)
{
    while (at < end && check->frame[at] != OPTION_END) {
        size_t length = check->frame[at] == OPTION_NOP ? 1
                        : at + 1 < end                 ? check->frame[at + 1]
                                                       : 0;

        if (length == 0 || (length < 2 && check->frame[at] != OPTION_NOP) || at + length > end) {
            return fail(check, "%s option %u at %zu has a bad length", name, check->frame[at], at);
        }
        at += length;
    }
    return all_zero(check->frame + at, end - at) ||
           fail(check, "bytes behind the end of the %s options", name);
}

static bool check_tcp(Check *check)
{
    FrameLayers *layers = &check->layers;
    size_t l4 = layers->l4, room = layers->end - l4, length;
    unsigned flags;

    if (room < 20) {
        return fail(check, "TCP header of %zu bytes", room);
    }
    length = (size_t)(check->frame[l4 + 12] >> 4) * 4;
    flags = check->frame[l4 + 13];
    if (length < 20 || length > room) {
        return fail(check, "TCP data offset %zu, there are %zu bytes", length, room);
    }
    if (check->frame[l4 + 12] & 0x0E) {
        return fail(check, "TCP reserved bits are set");
    }
    if ((flags & 3) == 3) {
        return fail(check, "TCP with SYN and FIN");
    }
    layers->payload = l4 + length;
    return check_options(check, l4 + 20, l4 + length, "TCP") && check_sum(check, l4 + 16, "TCP");
}

static bool check_udp(Check *check)
{
    FrameLayers *layers = &check->layers;
    size_t l4 = layers->l4, room = layers->end - l4;

    if (room < 8 || get16(check, l4 + 4) != room) {
        return fail(check, "UDP length %u, there are %zu bytes",
                    room < 8 ? 0 : get16(check, l4 + 4), room);
    }
    layers->payload = l4 + 8;
    if (get16(check, l4 + 6) == 0 && !needs_csum(check)) {
        return layers->ip_version == 4 || fail(check, "UDP over IPv6 without checksum");
    }
    return check_sum(check, l4 + 6, "UDP");
}

static bool check_icmp(Check *check)
{
    FrameLayers *layers = &check->layers;

    if (layers->end - layers->l4 < 8) {
        return fail(check, "ICMP of %zu bytes", layers->end - layers->l4);
    }
    layers->payload = layers->l4 + 8;
    return check_sum(check, layers->l4 + 2, layers->protocol == PROTO_ICMP ? "ICMP" : "ICMPv6");
}

static bool check_transport(Check *check)
{
    FrameLayers *layers = &check->layers;

    if (layers->is_fragment) {
        return true;
    }
    switch (layers->protocol) {
    case PROTO_TCP:
        return check_tcp(check);
    case PROTO_UDP:
        return check_udp(check);
    case PROTO_ICMP:
        return layers->ip_version == 4 ? check_icmp(check) : fail(check, "ICMP over IPv6");
    case PROTO_ICMPV6:
        return layers->ip_version == 6 ? check_icmp(check) : fail(check, "ICMPv6 over IPv4");
    default:
        return fail(check, "IP protocol %u is not one that is sent here", layers->protocol);
    }
}

/* --- IP --- */

/* The packet ends at @end; what is behind may only be padding of a short frame. */
static bool set_end(Check *check, size_t end)
{
    if (end > check->size) {
        return fail(check, "the IP packet ends at %zu, the frame at %zu", end, check->size);
    }
    if (end < check->size && (check->size > MIN_WIRE || check->header)) {
        return fail(check, "%zu bytes behind the IP packet", check->size - end);
    }
    check->layers.end = end;
    return all_zero(check->frame + end, check->size - end) || fail(check, "padding is not zero");
}

static bool set_fragment(Check *check, size_t offset, bool more, size_t bytes)
{
    check->layers.is_fragment = offset || more;
    check->layers.fragment_offset = offset;
    if (more && bytes % 8) {
        return fail(check, "a fragment of %zu bytes is not the last", bytes);
    }
    return offset + bytes <= 65535 || fail(check, "a fragment beyond 65535");
}

static bool check_ipv4(Check *check)
{
    FrameLayers *layers = &check->layers;
    size_t l3 = layers->l3, room = check->size - l3, length;
    unsigned fragment;

    if (room < 20 || check->frame[l3] >> 4 != 4) {
        return fail(check, "IPv4 version or size");
    }
    length = (size_t)(check->frame[l3] & 15) * 4;
    if (length < 20 || length > room || get16(check, l3 + 2) < length) {
        return fail(check, "IPv4 header length %zu, total length %u, there are %zu bytes", length,
                    get16(check, l3 + 2), room);
    }
    if (frame_fold(frame_sum(check->frame + l3, length, 0)) != 0xFFFF) {
        return fail(check, "IPv4 header checksum %04x is wrong", get16(check, l3 + 10));
    }
    fragment = get16(check, l3 + 6);
    if (fragment & 0x8000) {
        return fail(check, "IPv4 reserved flag is set");
    }
    if (check->frame[l3 + 8] == 0) {
        return fail(check, "IPv4 time to live is 0");
    }
    layers->ip_version = 4;
    layers->protocol = check->frame[l3 + 9];
    layers->l4 = l3 + length;
    return check_options(check, l3 + 20, l3 + length, "IPv4") &&
           set_end(check, l3 + get16(check, l3 + 2)) &&
           set_fragment(check, (fragment & 0x1FFF) * 8ul, fragment & 0x2000,
                        layers->end - layers->l4) &&
           check_transport(check);
}

/* Options of a hop-by-hop or destination options header in [@at, @end). */
static bool check_ipv6_options(Check *check, size_t at, size_t end)
{
    while (at < end) {
        size_t length = check->frame[at] == 0 ? 1 : at + 1 < end ? 2ul + check->frame[at + 1] : 0;

        if (length == 0 || at + length > end) {
            return fail(check, "IPv6 option %u at %zu has a bad length", check->frame[at], at);
        }
        if (check->frame[at] == OPTION_PADN && !all_zero(check->frame + at + 2, length - 2)) {
            return fail(check, "IPv6 padding is not zero");
        }
        at += length;
    }
    return true;
}

/* One extension header; moves l4 behind it. */
static bool check_extension(Check *check)
{
    FrameLayers *layers = &check->layers;
    size_t at = layers->l4, room = layers->end - at, length;
    uint8_t kind = layers->protocol;

    if (room < 8) {
        return fail(check, "IPv6 extension header of %zu bytes", room);
    }
    length = kind == PROTO_FRAGMENT ? 8 : (check->frame[at + 1] + 1ul) * 8;
    if (length > room) {
        return fail(check, "IPv6 extension header of %zu bytes, there are %zu", length, room);
    }
    layers->protocol = check->frame[at];
    layers->l4 = at + length;
    if (kind == PROTO_FRAGMENT) {
        unsigned fragment = get16(check, at + 2);

        if (check->frame[at + 1] || fragment & 6) {
            return fail(check, "IPv6 fragment header: reserved bits are set");
        }
        return set_fragment(check, fragment & 0xFFF8, fragment & 1, layers->end - layers->l4);
    }
    if (kind == PROTO_ROUTING) {
        /* Types in use: Mobile IPv6, RPL, segment routing. */
        return (check->frame[at + 2] >= 2 && check->frame[at + 2] <= 4) ||
               fail(check, "IPv6 routing type %u", check->frame[at + 2]);
    }
    return check_ipv6_options(check, at + 2, layers->l4);
}

static bool is_extension(uint8_t protocol)
{
    return protocol == PROTO_HOP || protocol == PROTO_ROUTING || protocol == PROTO_FRAGMENT ||
           protocol == PROTO_OPTIONS;
}

static bool check_ipv6(Check *check)
{
    FrameLayers *layers = &check->layers;
    size_t l3 = layers->l3, room = check->size - l3;

    if (room < 40 || check->frame[l3] >> 4 != 6) {
        return fail(check, "IPv6 version or size");
    }
    if (check->frame[l3 + 7] == 0) {
        return fail(check, "IPv6 hop limit is 0");
    }
    layers->ip_version = 6;
    layers->protocol = check->frame[l3 + 6];
    layers->l4 = l3 + 40;
    if (!set_end(check, l3 + 40 + get16(check, l3 + 4))) {
        return false;
    }
    for (bool first = true; is_extension(layers->protocol) && !layers->fragment_offset;
         first = false) {
        if (layers->protocol == PROTO_HOP && !first) {
            return fail(check, "IPv6 hop-by-hop options are not the first extension header");
        }
        if (!check_extension(check)) {
            return false;
        }
    }
    return check_transport(check);
}

/* --- Ethernet --- */

static bool check_arp(Check *check)
{
    static const uint8_t ethernet_ipv4[6] = {0, 1, 8, 0, 6, 4};
    size_t l3 = check->layers.l3, room = check->size - l3;
    bool reverse = check->layers.type == TYPE_RARP;
    unsigned operation;

    if (room < 28 || memcmp(check->frame + l3, ethernet_ipv4, 6) != 0) {
        return fail(check, "ARP is not for Ethernet and IPv4, or has only %zu bytes", room);
    }
    operation = get16(check, l3 + 6);
    if (reverse ? operation < 3 || operation > 4 : operation < 1 || operation > 2) {
        return fail(check, "ARP operation %u", operation);
    }
    if (memcmp(check->frame + l3 + 8, check->frame + 6, 6) != 0) {
        return fail(check, "ARP sender is not the frame's source");
    }
    return set_end(check, l3 + 28);
}

static bool check_tags(Check *check)
{
    FrameLayers *layers = &check->layers;

    layers->type = (uint16_t)get16(check, 12);
    layers->l3 = ETH_SIZE;
    while (layers->type == TYPE_VLAN || layers->type == TYPE_QINQ) {
        if (layers->tags == MAX_TAGS || check->size < layers->l3 + 4) {
            return fail(check, "VLAN tag %u", layers->tags + 1);
        }
        if ((get16(check, layers->l3) & 0xFFF) == 0xFFF) {
            return fail(check, "VLAN id 4095");
        }
        layers->type = (uint16_t)get16(check, layers->l3 + 2);
        layers->l3 += 4;
        layers->tags++;
    }
    return true;
}

static bool check_ethernet(Check *check)
{
    if (check->size < ETH_SIZE) {
        return fail(check, "a frame of %zu bytes", check->size);
    }
    if (check->frame[6] & 1) {
        return fail(check, "the source address is a group's");
    }
    if (!check_tags(check)) {
        return false;
    }
    check->layers.end = check->size;
    switch (check->layers.type) {
    case TYPE_IPV4:
        return check_ipv4(check);
    case TYPE_IPV6:
        return check_ipv6(check);
    case TYPE_ARP:
    case TYPE_RARP:
        return check_arp(check);
    case TYPE_LOCAL:
        return !needs_csum(check) || fail(check, "NEEDS_CSUM without a transport");
    default:
        return fail(check, "ethertype %04x is not one that is sent here", check->layers.type);
    }
}

char *frame_check(const uint8_t *frame, size_t size, FrameLayers *layers)
{
    Check check = {.frame = frame, .size = size};

    check_ethernet(&check);
    if (layers) {
        *layers = check.layers;
    }
    return check.problem;
}

/* --- the header in front --- */

static const struct GsoType {
    uint8_t type, ip_version, protocol; /* ip_version 0: both */
    const char *name;
} gso_types[] = {
    {VIRTIO_NET_HDR_GSO_TCPV4, 4, PROTO_TCP, "TCPV4"},
    {VIRTIO_NET_HDR_GSO_TCPV6, 6, PROTO_TCP, "TCPV6"},
    {VIRTIO_NET_HDR_GSO_UDP, 0, PROTO_UDP, "UDP"},
    {VIRTIO_NET_HDR_GSO_UDP_L4, 0, PROTO_UDP, "UDP_L4"},
};

static bool check_gso(Check *check)
{
    const struct virtio_net_hdr_v1 *header = check->header;
    const FrameLayers *layers = &check->layers;
    uint8_t type = header->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
    const struct GsoType *gso = NULL;

    for (unsigned i = 0; i < G_N_ELEMENTS(gso_types); i++) {
        gso = gso_types[i].type == type ? &gso_types[i] : gso;
    }
    if (!gso) {
        return fail(check, "gso_type %02x", header->gso_type);
    }
    if ((gso->ip_version && gso->ip_version != layers->ip_version) ||
        gso->protocol != layers->protocol || layers->is_fragment) {
        return fail(check, "gso_type %s for IPv%u, protocol %u%s", gso->name, layers->ip_version,
                    layers->protocol, layers->is_fragment ? ", a fragment" : "");
    }
    if (header->gso_type & VIRTIO_NET_HDR_GSO_ECN && layers->protocol != PROTO_TCP) {
        return fail(check, "gso_type %02x: ECN without TCP", header->gso_type);
    }
    if (!needs_csum(check)) {
        return fail(check, "gso_type %s without NEEDS_CSUM", gso->name);
    }
    if (header->gso_size == 0 || (type == VIRTIO_NET_HDR_GSO_UDP && header->gso_size < 8)) {
        return fail(check, "gso_size %u", header->gso_size);
    }
    return (header->hdr_len >= layers->payload && header->hdr_len <= check->size) ||
           fail(check, "hdr_len %u, the headers have %zu bytes, the frame %zu", header->hdr_len,
                layers->payload, check->size);
}

static bool check_header(Check *check)
{
    const struct virtio_net_hdr_v1 *header = check->header;
    const uint8_t known = VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID;

    if (header->flags & ~known) {
        return fail(check, "header flags %02x", header->flags);
    }
    if (needs_csum(check) && (size_t)header->csum_start + header->csum_offset + 2 > check->size) {
        return fail(check, "csum_start %u + csum_offset %u: the frame has %zu bytes",
                    header->csum_start, header->csum_offset, check->size);
    }
    if (header->gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        return header->gso_size == 0 ||
               fail(check, "gso_size %u without gso_type", header->gso_size);
    }
    return check_gso(check);
}

char *frame_check_header(const struct virtio_net_hdr_v1 *header, const uint8_t *frame, size_t size,
                         FrameLayers *layers)
{
    Check check = {.frame = frame, .size = size, .header = header};

    if (check_ethernet(&check)) {
        check_header(&check);
    }
    if (layers) {
        *layers = check.layers;
    }
    return check.problem;
}
