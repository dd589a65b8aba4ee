/*
 * Parsing of Ethernet frames down to the transport header, and the Internet checksum.
 *
 * Nothing is believed: each length is checked against the bytes that are there before the next
 * header is looked at, and a chain of extension headers ends with the copied bytes.
 */
#include "hw/net/frame.h"

#include <endian.h>
#include <netinet/in.h>
#include <string.h>

#define ETH_TYPE_VLAN     0x8100
#define ETH_TYPE_QINQ     0x88a8
#define MAX_TAGS          2
#define IPV4_MIN          20
#define IPV6_LEN          40
#define TCP_MIN           20
#define UDP_LEN           8
#define IPV6_OPT_PAD1     0
#define IPV6_OPT_HOME     0xc9 /* RFC 6275, 6.3 */
#define IPV6_ADDR_LEN     16
#define ROUTING_TYPE_HOME 2 /* RFC 6275, 6.4 */

static void parse_transport(const uint8_t *head, size_t size, FrameInfo *info, size_t at)
{
    size_t need = info->protocol == IPPROTO_TCP ? TCP_MIN : UDP_LEN;

    info->upper = at < size ? (uint16_t)at : 0;
    if ((info->protocol == IPPROTO_TCP || info->protocol == IPPROTO_UDP) && at + need <= size) {
        info->l4 = (uint16_t)at;
    }
    (void)head;
}

static void parse_ipv4(const uint8_t *head, size_t size, size_t l3, FrameInfo *info)
{
    size_t len;

    if (l3 + IPV4_MIN > size || head[l3] >> 4 != 4) {
        return;
    }
    len = (size_t)(head[l3] & 15) * 4;
    if (len < IPV4_MIN || l3 + len > size) {
        return;
    }
    info->ip_version = 4;
    info->l3 = (uint16_t)l3;
    info->protocol = head[l3 + 9];
    info->fragment = frame_get16(head + l3 + 6) & 0x3fff; /* offset, or more to come */
    if (!info->fragment) {
        parse_transport(head, size, info, l3 + len);
    }
}

/* The home address option among the @len bytes of options at @at, if it is there. */
static void find_home_address(const uint8_t *head, size_t at, size_t end, FrameInfo *info)
{
    while (at < end) {
        size_t len;

        if (head[at] == IPV6_OPT_PAD1) {
            at++;
            continue;
        }
        if (at + 2 > end) {
            return;
        }
        len = head[at + 1];
        if (at + 2 + len > end) {
            return;
        }
        if (head[at] == IPV6_OPT_HOME && len == IPV6_ADDR_LEN) {
            info->home_address = (uint16_t)(at + 2);
            return;
        }
        at += 2 + len;
    }
}

/* One extension header of kind @kind at @at.  Returns its length; 0: it is none, or does not fit.
 */
static size_t parse_extension(const uint8_t *head, size_t size, uint8_t kind, size_t at,
                              FrameInfo *info)
{
    size_t len;

    if (at + 8 > size) {
        return 0;
    }
    switch (kind) {
    case IPPROTO_HOPOPTS:
    case IPPROTO_ROUTING:
    case IPPROTO_DSTOPTS:
        len = 8 + (size_t)head[at + 1] * 8;
        break;
    case IPPROTO_AH:
        len = 8 + (size_t)head[at + 1] * 4;
        break;
    case IPPROTO_FRAGMENT:
        info->fragment = frame_get16(head + at + 2) & 0xfff9;
        len = 8;
        break;
    default:
        return 0;
    }
    if (at + len > size) {
        return 0;
    }
    if (kind == IPPROTO_DSTOPTS) {
        find_home_address(head, at + 2, at + len, info);
    } else if (kind == IPPROTO_ROUTING && head[at + 2] == ROUTING_TYPE_HOME &&
               len >= 8 + IPV6_ADDR_LEN) {
        info->routing_address = (uint16_t)(at + 8);
    }
    return len;
}

static bool is_extension(uint8_t kind)
{
    return kind == IPPROTO_HOPOPTS || kind == IPPROTO_ROUTING || kind == IPPROTO_DSTOPTS ||
           kind == IPPROTO_AH || kind == IPPROTO_FRAGMENT;
}

static void parse_ipv6(const uint8_t *head, size_t size, size_t l3, FrameInfo *info)
{
    size_t at = l3 + IPV6_LEN;

    if (at > size || head[l3] >> 4 != 6) {
        return;
    }
    info->ip_version = 6;
    info->l3 = (uint16_t)l3;
    info->protocol = head[l3 + 6];
    while (is_extension(info->protocol)) {
        size_t len = parse_extension(head, size, info->protocol, at, info);

        info->extensions = true;
        if (!len) {
            return;
        }
        info->protocol = head[at];
        at += len;
    }
    if (!info->fragment) {
        parse_transport(head, size, info, at);
    }
}

void frame_parse_ip(const uint8_t *head, size_t size, uint16_t type, size_t l3, FrameInfo *info)
{
    memset(info, 0, sizeof(*info));
    info->type = type;
    if (type == FRAME_TYPE_IPV4) {
        parse_ipv4(head, size, l3, info);
    } else if (type == FRAME_TYPE_IPV6) {
        parse_ipv6(head, size, l3, info);
    }
}

bool frame_parse(const uint8_t *head, size_t size, FrameInfo *info)
{
    size_t at = 2 * FRAME_MAC_LEN;
    uint8_t tags = 0;
    uint16_t type;

    memset(info, 0, sizeof(*info));
    size = size < FRAME_HEAD_SIZE ? size : FRAME_HEAD_SIZE;
    if (size < FRAME_ETH_LEN) {
        return false;
    }
    type = frame_get16(head + at);
    while ((type == ETH_TYPE_VLAN || type == ETH_TYPE_QINQ) && tags < MAX_TAGS && at + 6 <= size) {
        at += 4;
        type = frame_get16(head + at);
        tags++;
    }
    frame_parse_ip(head, size, type, at + 2, info);
    info->tags = tags;
    return true;
}

size_t frame_transport_len(const uint8_t *head, size_t size, const FrameInfo *info)
{
    size_t len = UDP_LEN;

    if (!info->l4) {
        return 0;
    }
    if (info->protocol == IPPROTO_TCP) {
        len = (size_t)(head[info->l4 + 12] >> 4) * 4;
        if (len < TCP_MIN) {
            return 0;
        }
    }
    return info->l4 + len <= size ? len : 0;
}

/* --- checksums --- */

uint16_t csum_fold(uint64_t sum)
{
    sum = (sum >> 32) + (uint32_t)sum;
    sum = (sum >> 32) + (uint32_t)sum;
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t)((sum >> 16) + (sum & 0xffff));
}

/* Sum of @size bytes as words of the host's byte order: halves of 32 bits are added to 64, which
 * cannot overflow below 2^32 words, and two chains keep the adder busy. */
static uint64_t sum_native(const uint8_t *p, size_t size)
{
    uint64_t a = 0, b = 0, word[4];

    while (size >= sizeof(word)) {
        memcpy(word, p, sizeof(word));
        a += (word[0] & UINT32_MAX) + (word[0] >> 32) + (word[1] & UINT32_MAX) + (word[1] >> 32);
        b += (word[2] & UINT32_MAX) + (word[2] >> 32) + (word[3] & UINT32_MAX) + (word[3] >> 32);
        p += sizeof(word);
        size -= sizeof(word);
    }
    while (size >= 2) {
        uint16_t half;

        memcpy(&half, p, sizeof(half));
        a += half;
        p += sizeof(half);
        size -= sizeof(half);
    }
    if (size) {
        uint8_t last[2] = {*p, 0};
        uint16_t half;

        memcpy(&half, last, sizeof(half));
        a += half;
    }
    return a + b;
}

uint64_t csum_add(uint64_t sum, const void *data, size_t size, bool odd)
{
    /* RFC 1071 (2)(B): the sum of swapped words is the swapped sum. */
    uint16_t part = htobe16(csum_fold(sum_native(data, size)));

    return sum + (odd ? (uint16_t)(part << 8 | part >> 8) : part);
}

uint64_t csum_add_iov(uint64_t sum, const struct iovec *iov, unsigned cnt, size_t offset,
                      size_t bytes)
{
    bool odd = false;

    for (unsigned i = 0; i < cnt && bytes; i++) {
        size_t len = iov[i].iov_len;

        if (offset >= len) {
            offset -= len;
            continue;
        }
        len = len - offset < bytes ? len - offset : bytes;
        sum = csum_add(sum, (const uint8_t *)iov[i].iov_base + offset, len, odd);
        odd ^= len & 1;
        bytes -= len;
        offset = 0;
    }
    return sum;
}

uint64_t csum_add_pseudo(const uint8_t *head, const FrameInfo *info, uint32_t length)
{
    uint64_t sum = (uint64_t)info->protocol + (length >> 16) + (length & 0xffff);

    if (info->ip_version == 4) {
        return csum_add(sum, head + info->l3 + 12, 8, false);
    }
    return csum_add(sum, head + info->l3 + 8, 32, false);
}
