/*
 * Where the layers of an Ethernet frame begin, and the Internet checksum.  Pure; knows no device.
 *
 * Frames come from guests and peers that can change them while we look, so frame_parse() works on
 * a private copy of a frame's first bytes; what does not lie in it whole counts as not there.
 */
#ifndef HW_NET_FRAME_H
#define HW_NET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define FRAME_HEAD_SIZE 256 /* enough for Ethernet, two tags, IPv6 with extensions and TCP */
#define FRAME_MAC_LEN   6
#define FRAME_ETH_LEN   14

#define FRAME_TYPE_IPV4 0x0800
#define FRAME_TYPE_IPV6 0x86dd
#define FRAME_TYPE_TEB  0x6558 /* Ethernet in GRE (RFC 1701) */

typedef struct FrameInfo {
    uint16_t type;      /* ethertype behind the VLAN tags */
    uint8_t tags;       /* of them */
    uint8_t ip_version; /* 4, 6; 0: none */
    uint8_t protocol;   /* of the transport; IPv6: behind the extension headers */
    bool fragment;      /* of a larger IP packet: no transport header is looked for */
    bool extensions;    /* IPv6 has extension headers */
    uint16_t l3;        /* offset of the IP header; 0: none */
    uint16_t l4;        /* of the transport header; 0: none, or not TCP or UDP in whole */
    uint16_t upper;     /* of what follows the IP header, whatever it is; 0: none */
    /* IPv6: offsets of the addresses to hash instead of source and destination (RFC 6275: home
     * address option, routing header type 2); 0: none. */
    uint16_t home_address, routing_address;
} FrameInfo;

/* @head: the frame's first @size bytes (at most FRAME_HEAD_SIZE matter).  False: no Ethernet
 * header. */
bool frame_parse(const uint8_t *head, size_t size, FrameInfo *info);
/* The same for an IP packet of @type that begins at @l3. */
void frame_parse_ip(const uint8_t *head, size_t size, uint16_t type, size_t l3, FrameInfo *info);

/* Length of the transport header at info->l4, options included; 0: it does not fit. */
size_t frame_transport_len(const uint8_t *head, size_t size, const FrameInfo *info);

static inline uint16_t frame_get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}
static inline uint32_t frame_get32(const uint8_t *p)
{
    return (uint32_t)frame_get16(p) << 16 | frame_get16(p + 2);
}
static inline void frame_put16(uint8_t *p, unsigned value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}
static inline void frame_put32(uint8_t *p, uint32_t value)
{
    frame_put16(p, value >> 16);
    frame_put16(p + 2, value & 0xffff);
}

/*
 * One's complement sums (RFC 1071), kept unfolded in 64 bits: big enough for any frame.  Words are
 * big-endian whatever the host is; @odd: the first byte is the second half of a word.
 */
uint64_t csum_add(uint64_t sum, const void *data, size_t size, bool odd);
uint64_t csum_add_iov(uint64_t sum, const struct iovec *iov, unsigned cnt, size_t offset,
                      size_t bytes);
/* Of the pseudo-header for @length bytes of transport. */
uint64_t csum_add_pseudo(const uint8_t *head, const FrameInfo *info, uint32_t length);
/* To 16 bits, not inverted. */
uint16_t csum_fold(uint64_t sum);

#endif
