/*
 * Correct frames to test with, from ARP to a TSO frame of 64 KiB.
 *
 * A FrameSpec says what is to be in the frame; contents follow from the seed.  With gso_size or
 * partial set, the header in front asks for what is left to do.
 */
#ifndef TESTS_LIB_FRAME_BUILDER_H
#define TESTS_LIB_FRAME_BUILDER_H

#include "tests/lib/frame-checker.h"

typedef struct FrameSpec {
    const char *name;
    uint8_t ip_version; /* 4, 6; 0: no IP, ethertype 88B5 */
    uint8_t protocol;   /* 6, 17, 1, 58 */
    uint16_t vlan;      /* id; 0: no tag */
    bool ip_options;    /* IPv4 options, or IPv6 hop-by-hop and destination options */
    uint8_t tcp_flags;  /* ACK when 0 */
    size_t payload;     /* bytes behind the transport's header */
    uint16_t gso_size;  /* 0: no segmentation */
    uint8_t gso_type;   /* VIRTIO_NET_HDR_GSO_* when gso_size is set */
    bool partial;       /* NEEDS_CSUM without segmentation */
    uint32_t seed;
} FrameSpec;

typedef struct BuiltFrame {
    struct virtio_net_hdr_v1 header;
    uint8_t *bytes;
    size_t size;
} BuiltFrame;

/* Addresses: from 52:54:00:12:34:56, 10.9.0.2 and fd09::2 to @to, 10.9.0.1 and fd09::1. */
void frame_build(BuiltFrame *built, const FrameSpec *spec, const uint8_t to[static 6]);
void frame_clear(BuiltFrame *built);
/* An ARP request of the same sender. */
void frame_build_arp(BuiltFrame *built);

#endif
