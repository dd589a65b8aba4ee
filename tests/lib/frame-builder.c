/*
 * Frames to test with: see frame-builder.h.
 */
#include "tests/lib/frame-builder.h"

#include <string.h>

#define PROTO_TCP     6
#define PROTO_UDP     17
#define PROTO_HOP     0
#define PROTO_OPTIONS 60
#define ROOM          512 /* more than all headers take */

static const uint8_t sender[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

typedef struct Builder {
    uint8_t *bytes;
    size_t size;
    const FrameSpec *spec;
    FrameLayers layers;
} Builder;

static void add(Builder *b, const void *data, size_t size)
{
    memcpy(b->bytes + b->size, data, size);
    b->size += size;
}

static void add16(Builder *b, unsigned value)
{
    uint8_t bytes[2] = {(uint8_t)(value >> 8), (uint8_t)value};

    add(b, bytes, 2);
}

static void put16(Builder *b, size_t at, unsigned value)
{
    b->bytes[at] = (uint8_t)(value >> 8);
    b->bytes[at + 1] = (uint8_t)value;
}

static void add_ethernet(Builder *b, const uint8_t *to)
{
    unsigned type = b->spec->ip_version == 4 ? 0x0800 : b->spec->ip_version == 6 ? 0x86DD : 0x88B5;

    add(b, to, 6);
    add(b, sender, 6);
    if (b->spec->vlan) {
        add16(b, 0x8100);
        add16(b, b->spec->vlan);
    }
    add16(b, type);
    b->layers.l3 = b->size;
}

static void add_ipv4(Builder *b)
{
    static const uint8_t addresses[8] = {10, 9, 0, 2, 10, 9, 0, 1};
    static const uint8_t options[8] = {0x94, 4, 0, 0, 1, 1, 0, 0}; /* router alert, NOPs, end */

    add16(b, b->spec->ip_options ? 0x4700 : 0x4500);
    add16(b, 0); /* total length */
    add16(b, 0x1234);
    add16(b, b->spec->gso_type == VIRTIO_NET_HDR_GSO_UDP ? 0 : 0x4000); /* don't fragment */
    add16(b, 0x4000u | b->spec->protocol);
    add16(b, 0); /* checksum */
    add(b, addresses, 8);
    if (b->spec->ip_options) {
        add(b, options, 8);
    }
}

static void add_ipv6(Builder *b)
{
    static const uint8_t network[15] = {0xFD, 0x09};
    /* PadN of 6 bytes in each; hop-by-hop, then destination options. */
    const uint8_t hop[8] = {PROTO_OPTIONS, 0, 1, 4}, options[8] = {b->spec->protocol, 0, 1, 4};

    add16(b, 0x6000);
    add16(b, 0x0000);
    add16(b, 0); /* payload length */
    add16(b, (b->spec->ip_options ? PROTO_HOP : b->spec->protocol) << 8 | 0x40);
    add(b, network, 15);
    add(b, "\2", 1);
    add(b, network, 15);
    add(b, "\1", 1);
    if (b->spec->ip_options) {
        add(b, hop, 8);
        add(b, options, 8);
    }
}

static void add_tcp(Builder *b)
{
    add16(b, 40000);
    add16(b, 9);
    add(b, "\x12\x34\x56\x78\x9A\xBC\xDE\xF0", 8); /* sequence, acknowledgement */
    add16(b, 0x8000u | (b->spec->tcp_flags ? b->spec->tcp_flags : 0x10));
    add16(b, 0x7D00);
    add16(b, 0);                                /* checksum */
    add16(b, 0);                                /* urgent */
    add(b, "\1\1\x08\x0A\0\1\2\3\4\5\6\7", 12); /* time stamps */
}

static void add_transport(Builder *b)
{
    b->layers.l4 = b->size;
    if (b->spec->protocol == PROTO_TCP) {
        add_tcp(b);
    } else if (b->spec->protocol == PROTO_UDP) {
        add16(b, 40000);
        add16(b, 9);
        add16(b, (unsigned)b->spec->payload + 8);
        add16(b, 0);
    } else {
        add16(b, b->spec->ip_version == 4 ? 0x0800 : 0x8000); /* echo request */
        add16(b, 0);
        add16(b, 0x4321);
        add16(b, 1);
    }
    b->layers.payload = b->size;
}

static void fill_payload(Builder *b)
{
    for (size_t i = 0; i < b->spec->payload; i++) {
        b->bytes[b->size++] = (uint8_t)(i * 11 + b->spec->seed + (i >> 8) * 29 + 1);
    }
}

static size_t sum_offset(const FrameSpec *spec)
{
    return spec->protocol == PROTO_TCP ? 16 : spec->protocol == PROTO_UDP ? 6 : 2;
}

static void finish_ip(Builder *b)
{
    size_t l3 = b->layers.l3, total = b->size - l3;

    if (b->spec->ip_version == 6) {
        put16(b, l3 + 4, (unsigned)(total - 40));
        return;
    }
    put16(b, l3 + 2, (unsigned)total);
    put16(b, l3 + 10, (uint16_t)~frame_fold(frame_sum(b->bytes + l3, b->layers.l4 - l3, 0)));
}

static void finish_transport(Builder *b, bool partial)
{
    size_t at = b->layers.l4 + sum_offset(b->spec), length = b->size - b->layers.l4;
    uint16_t sum;

    b->layers.ip_version = b->spec->ip_version;
    b->layers.protocol = b->spec->protocol;
    sum = b->spec->protocol == 1 ? 0 : frame_pseudo_sum(b->bytes, &b->layers, length);
    if (!partial) {
        sum = (uint16_t)~frame_fold(frame_sum(b->bytes + b->layers.l4, length, sum));
        sum = sum == 0 && b->spec->protocol == PROTO_UDP ? 0xFFFF : sum;
    }
    put16(b, at, sum);
}

void frame_build(BuiltFrame *built, const FrameSpec *spec, const uint8_t to[static 6])
{
    Builder b = {.spec = spec, .bytes = g_malloc0(ROOM + spec->payload)};
    bool partial = spec->partial || spec->gso_size;

    *built = (BuiltFrame){.bytes = b.bytes};
    add_ethernet(&b, to);
    if (spec->ip_version) {
        if (spec->ip_version == 4) {
            add_ipv4(&b);
        } else {
            add_ipv6(&b);
        }
        add_transport(&b);
    }
    fill_payload(&b);
    if (spec->ip_version) {
        finish_ip(&b);
        finish_transport(&b, partial);
    }
    built->size = b.size;
    if (partial) {
        built->header = (struct virtio_net_hdr_v1){
            .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
            .csum_start = (uint16_t)b.layers.l4,
            .csum_offset = (uint16_t)sum_offset(spec),
        };
    }
    if (spec->gso_size) {
        built->header.gso_type = spec->gso_type;
        built->header.gso_size = spec->gso_size;
        built->header.hdr_len = (uint16_t)b.layers.payload;
    }
}

void frame_clear(BuiltFrame *built)
{
    g_clear_pointer(&built->bytes, g_free);
}

void frame_build_arp(BuiltFrame *built)
{
    Builder b = {.bytes = g_malloc0(ROOM)};

    add(&b, "\xFF\xFF\xFF\xFF\xFF\xFF", 6);
    add(&b, sender, 6);
    add16(&b, 0x0806);
    add(&b, "\0\1\x08\0\6\4\0\1", 8);
    add(&b, sender, 6);
    add(&b, "\x0A\x09\0\2\0\0\0\0\0\0\x0A\x09\0\1", 14);
    *built = (BuiltFrame){.bytes = b.bytes, .size = b.size};
}
