/*
 * Toeplitz hashing of frames.
 *
 * The hash is linear: each set bit of the input adds (xor) the 32 bits of the key that begin at
 * its place.  A table by half byte and value, made when the key is set, turns the 288 steps of
 * the longest input into 72 look-ups.
 *
 * Which fields are hashed is a table too, tried in order: the first row whose type is enabled and
 * whose packet it is.  Of an encapsulated packet that the driver asked to look into, the inner
 * one's fields are taken.
 */
#include "hw/net/toeplitz.h"

#include <netinet/in.h>
#include <string.h>

#include "hw/net/frame.h"
#include "hw/net/virtio-net-uapi.h"

void toeplitz_init(Toeplitz *toeplitz, const uint8_t *key, size_t key_len)
{
    uint8_t full[TOEPLITZ_KEY_MAX + 8] = {0};

    memcpy(full, key, key_len < TOEPLITZ_KEY_MAX ? key_len : TOEPLITZ_KEY_MAX);
    for (unsigned i = 0; i < 2 * TOEPLITZ_INPUT_MAX; i++) {
        uint64_t window = (uint64_t)frame_get32(full + i / 2) << 32 | frame_get32(full + i / 2 + 4);

        window <<= i % 2 * 4;
        for (unsigned value = 0; value < 16; value++) {
            uint32_t sum = 0;

            for (unsigned bit = 0; bit < 4; bit++) {
                if (value & (8u >> bit)) {
                    sum ^= (uint32_t)(window << bit >> 32);
                }
            }
            toeplitz->table[i][value] = sum;
        }
    }
}

uint32_t toeplitz_hash(const Toeplitz *toeplitz, const uint8_t *input, size_t size)
{
    uint32_t hash = 0;

    for (size_t i = 0; i < size && i < TOEPLITZ_INPUT_MAX; i++) {
        hash ^= toeplitz->table[2 * i][input[i] >> 4] ^ toeplitz->table[2 * i + 1][input[i] & 15];
    }
    return hash;
}

/* --- encapsulated packets --- */

#define GRE_C         0x8000
#define GRE_R         0x4000
#define GRE_K         0x2000
#define GRE_S         0x1000
#define GRE_VERSION   0x0007
#define UDP_LEN       8
#define PORT_GRE      4754 /* RFC 8086 */
#define PORT_VXLAN    4789 /* RFC 7348 */
#define PORT_VXLANGPE 4790 /* draft-ietf-nvo3-vxlan-gpe */
#define PORT_GENEVE   6081 /* RFC 8926 */
#define GPE_IPV4      1
#define GPE_IPV6      2
#define GPE_ETHERNET  3

#define TUNNEL(name) VIRTIO_NET_HASH_TUNNEL_TYPE_##name

/* What an outer header carries. */
typedef struct Inner {
    uint32_t types; /* TUNNEL() bits that describe the encapsulation */
    uint16_t type;  /* ethertype of what is inside */
    size_t at;      /* where that begins */
} Inner;

static bool find_gre(const uint8_t *head, size_t size, size_t at, bool in_udp, uint8_t ip_version,
                     Inner *inner)
{
    uint16_t flags;
    size_t len = 4;

    if (at + 4 > size) {
        return false;
    }
    flags = frame_get16(head + at);
    inner->type = frame_get16(head + at + 2);
    if (flags & (GRE_R | GRE_VERSION)) {
        return false;
    }
    len += (flags & GRE_C ? 4 : 0) + (flags & GRE_K ? 4 : 0) + (flags & GRE_S ? 4 : 0);
    inner->at = at + len;
    if (in_udp) {
        inner->types = TUNNEL(GRE_UDP);
    } else if (flags & (GRE_K | GRE_S)) {
        /* RFC 2890 adds key and sequence number; NVGRE (RFC 7637) is its form with a key that
         * carries Ethernet. */
        inner->types = TUNNEL(GRE_2890);
        if ((flags & (GRE_C | GRE_K | GRE_S)) == GRE_K && inner->type == FRAME_TYPE_TEB) {
            inner->types |= TUNNEL(NVGRE);
        }
    } else {
        /* RFC 7676: the same with IPv6 outside or inside. */
        bool v6 = ip_version == 6 || inner->type == FRAME_TYPE_IPV6;

        inner->types = TUNNEL(GRE_2784) | (v6 ? TUNNEL(GRE_7676) : 0);
    }
    return true;
}

static bool find_vxlan_gpe(const uint8_t *p, Inner *inner)
{
    static const uint16_t next[] = {
        [GPE_IPV4] = FRAME_TYPE_IPV4,
        [GPE_IPV6] = FRAME_TYPE_IPV6,
        [GPE_ETHERNET] = FRAME_TYPE_TEB,
    };

    inner->types = TUNNEL(VXLAN_GPE);
    inner->type = p[3] < sizeof(next) / sizeof(next[0]) ? next[p[3]] : 0;
    return inner->type != 0;
}

static bool find_udp(const uint8_t *head, size_t size, const FrameInfo *outer, Inner *inner)
{
    size_t at = (size_t)outer->l4 + UDP_LEN;

    if (!outer->l4 || at + 8 > size) {
        return false;
    }
    inner->at = at + 8;
    switch (frame_get16(head + outer->l4 + 2)) {
    case PORT_GRE:
        return find_gre(head, size, at, true, outer->ip_version, inner);
    case PORT_VXLAN:
        inner->types = TUNNEL(VXLAN);
        inner->type = FRAME_TYPE_TEB;
        return true;
    case PORT_VXLANGPE:
        return find_vxlan_gpe(head + at, inner);
    case PORT_GENEVE:
        inner->types = TUNNEL(GENEVE);
        inner->type = frame_get16(head + at + 2);
        inner->at += (size_t)(head[at] & 0x3f) * 4;
        return head[at] >> 6 == 0;
    default:
        return false;
    }
}

static bool find_inner(const uint8_t *head, size_t size, const FrameInfo *outer, Inner *inner)
{
    if (!outer->upper) {
        return false;
    }
    switch (outer->protocol) {
    case IPPROTO_UDP:
        return find_udp(head, size, outer, inner);
    case IPPROTO_GRE:
        return find_gre(head, size, outer->upper, false, outer->ip_version, inner);
    case IPPROTO_IPIP:
    case IPPROTO_IPV6:
        inner->types = TUNNEL(IPIP);
        inner->type = outer->protocol == IPPROTO_IPIP ? FRAME_TYPE_IPV4 : FRAME_TYPE_IPV6;
        inner->at = outer->upper;
        return true;
    default:
        return false;
    }
}

/* Puts the inner packet into @info, its offsets counted from @head too. */
static void parse_inner(const uint8_t *head, size_t size, const Inner *inner, FrameInfo *info)
{
    size_t at = inner->at;
    uint16_t type = inner->type;

    if (type == FRAME_TYPE_TEB) {
        if (at + FRAME_ETH_LEN > size) {
            *info = (FrameInfo){0};
            return;
        }
        type = frame_get16(head + at + 2 * FRAME_MAC_LEN);
        at += FRAME_ETH_LEN;
    }
    frame_parse_ip(head, size, type, at, info);
}

/* --- fields --- */

#define TYPE(report) (1u << ((report)-1))

typedef struct HashRow {
    uint8_t report;     /* VIRTIO_NET_HASH_REPORT_* */
    uint8_t ip_version; /* of the packet */
    uint8_t protocol;   /* with its ports; 0: addresses only */
    bool extended;      /* addresses of IPv6 extension headers; only for packets that have some */
} HashRow;

/* In the order in which the specification tries them. */
static const HashRow hash_rows[] = {
    {VIRTIO_NET_HASH_REPORT_TCPv4, 4, IPPROTO_TCP, false},
    {VIRTIO_NET_HASH_REPORT_UDPv4, 4, IPPROTO_UDP, false},
    {VIRTIO_NET_HASH_REPORT_IPv4, 4, 0, false},
    {VIRTIO_NET_HASH_REPORT_TCPv6_EX, 6, IPPROTO_TCP, true},
    {VIRTIO_NET_HASH_REPORT_UDPv6_EX, 6, IPPROTO_UDP, true},
    {VIRTIO_NET_HASH_REPORT_IPv6_EX, 6, 0, true},
    {VIRTIO_NET_HASH_REPORT_TCPv6, 6, IPPROTO_TCP, false},
    {VIRTIO_NET_HASH_REPORT_UDPv6, 6, IPPROTO_UDP, false},
    {VIRTIO_NET_HASH_REPORT_IPv6, 6, 0, false},
};

static bool row_matches(const HashRow *row, uint32_t types, const FrameInfo *info)
{
    return types & TYPE(row->report) && row->ip_version == info->ip_version &&
           (!row->extended || info->extensions) &&
           (!row->protocol || (info->l4 && row->protocol == info->protocol));
}

static size_t gather(const HashRow *row, const uint8_t *head, const FrameInfo *info,
                     uint8_t input[TOEPLITZ_INPUT_MAX])
{
    size_t len = info->ip_version == 4 ? 4 : 16;
    size_t src = info->l3 + (info->ip_version == 4 ? 12u : 8u), dst = src + len;

    if (row->extended) {
        src = info->home_address ? info->home_address : src;
        dst = info->routing_address ? info->routing_address : dst;
    }
    memcpy(input, head + src, len);
    memcpy(input + len, head + dst, len);
    if (!row->protocol) {
        return 2 * len;
    }
    memcpy(input + 2 * len, head + info->l4, 4); /* both ports */
    return 2 * len + 4;
}

unsigned frame_hash(const Toeplitz *toeplitz, uint32_t hash_types, uint32_t tunnel_types,
                    const uint8_t *head, size_t size, uint32_t *hash)
{
    uint8_t input[TOEPLITZ_INPUT_MAX];
    FrameInfo info;
    Inner inner;

    *hash = 0;
    size = size < FRAME_HEAD_SIZE ? size : FRAME_HEAD_SIZE;
    if (!frame_parse(head, size, &info) || !info.ip_version) {
        return VIRTIO_NET_HASH_REPORT_NONE;
    }
    if (tunnel_types && find_inner(head, size, &info, &inner) && (inner.types & tunnel_types)) {
        parse_inner(head, size, &inner, &info);
    }
    for (size_t i = 0; i < sizeof(hash_rows) / sizeof(hash_rows[0]); i++) {
        const HashRow *row = &hash_rows[i];

        if (row_matches(row, hash_types, &info)) {
            *hash = toeplitz_hash(toeplitz, input, gather(row, head, &info, input));
            return row->report;
        }
    }
    return VIRTIO_NET_HASH_REPORT_NONE;
}
