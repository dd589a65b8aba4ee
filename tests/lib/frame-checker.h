/*
 * A checker of Ethernet frames, and the offloads a device may leave undone, in software.
 *
 * It shares no code with the device, the back ends or the guest's driver: what it says is a
 * second opinion.  frame_check() takes a frame apart from Ethernet to the transport and names
 * the first thing that is wrong with it.  frame_check_header() does so for a frame with a
 * virtio_net_hdr in front, which may have a partial checksum or wait for segmentation.
 * frame_finish() does what such a header asks for: the frames that must be on the wire at the
 * end, whoever makes them.
 *
 * Known are Ethernet with up to two VLAN tags, ARP, RARP, IPv4 with options, IPv6 with extension
 * headers, TCP, UDP, ICMP and ICMPv6; 88B5 (local experiments) carries anything; every other
 * type is refused.  Fragments are checked up to the IP layer.
 */
#ifndef TESTS_LIB_FRAME_CHECKER_H
#define TESTS_LIB_FRAME_CHECKER_H

#include <glib.h>
#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Newer than some kernels' headers (virtio 1.3, 5.1.6). */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

/* Where the parts of a frame begin; 0: there is none. */
typedef struct FrameLayers {
    uint16_t type;       /* ethertype behind the tags */
    unsigned tags;       /* VLAN */
    size_t l3, l4;       /* IP; TCP, UDP or ICMP */
    size_t payload, end; /* behind the transport's header; behind the IP packet */
    uint8_t ip_version;  /* 4, 6 or 0 */
    uint8_t protocol;    /* of the transport */
    bool is_fragment;
    size_t fragment_offset; /* bytes */
} FrameLayers;

/* NULL: correct.  Else what is wrong; g_free it.  @layers (may be NULL) is valid if correct. */
char *frame_check(const uint8_t *frame, size_t size, FrameLayers *layers);
/* The same for a frame behind @header (num_buffers is not looked at). */
char *frame_check_header(const struct virtio_net_hdr_v1 *header, const uint8_t *frame, size_t size,
                         FrameLayers *layers);
/*
 * The frames on the wire: GByteArrays, in order.  One for a frame without segmentation, its
 * checksum complete.  NULL with *@problem when the frame is not correct.
 */
GPtrArray *frame_finish(const struct virtio_net_hdr_v1 *header, const uint8_t *frame, size_t size,
                        char **problem);

/* One's complement sum of 16-bit big-endian words (RFC 1071), not folded, not inverted. */
uint32_t frame_sum(const uint8_t *data, size_t size, uint32_t sum);
/* Folded, not inverted. */
uint16_t frame_fold(uint32_t sum);
/* Of the pseudo-header for @length bytes of transport, folded, not inverted. */
uint16_t frame_pseudo_sum(const uint8_t *frame, const FrameLayers *layers, size_t length);

#endif
