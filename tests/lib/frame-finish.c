/*
 * Checksums and segmentation in software: what the last one who handles a frame must make of it.
 *
 * Rules: TCP per RFC 9293 and what offload hardware does (sequence numbers advance, FIN and PSH
 * only in the last segment, CWR only in the first (RFC 3168, 6.1.2), IPv4 identification counts
 * up); UDP_L4: each segment is a datagram of its own; UDP (UFO): one datagram in IP fragments,
 * its checksum completed over the whole before it is cut.
 */
#include <string.h>

#include "tests/lib/frame-checker.h"

#define PROTO_TCP      6
#define TCP_FIN_PSH    0x09
#define TCP_CWR        0x80
#define MORE_FRAGMENTS 0x2000

typedef struct Cut {
    const uint8_t *frame;
    const FrameLayers *layers;
    GPtrArray *out;
} Cut;

static void put16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static unsigned get16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xFFFF);
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static GByteArray *add_frame(Cut *cut, size_t head, const uint8_t *data, size_t size)
{
    GByteArray *bytes = g_byte_array_sized_new((guint)(head + size));

    g_byte_array_append(bytes, cut->frame, (guint)head);
    g_byte_array_append(bytes, data, (guint)size);
    g_ptr_array_add(cut->out, bytes);
    return bytes;
}

/* Lengths of the IP header, and its checksum; @index counts IPv4's identification up. */
static void fix_ip(GByteArray *bytes, const FrameLayers *layers, unsigned index)
{
    uint8_t *ip = bytes->data + layers->l3;
    size_t header = layers->l4 - layers->l3, total = bytes->len - layers->l3;

    if (layers->ip_version == 6) {
        put16(ip + 4, (unsigned)(total - 40));
        return;
    }
    put16(ip + 2, (unsigned)total);
    put16(ip + 4, (get16(ip + 4) + index) & 0xFFFF);
    put16(ip + 10, 0);
    put16(ip + 10, (uint16_t)~frame_fold(frame_sum(ip, header, 0)));
}

static size_t sum_offset(const FrameLayers *layers)
{
    return layers->protocol == PROTO_TCP ? 16 : 6;
}

static void fix_sum(GByteArray *bytes, const FrameLayers *layers)
{
    uint8_t *at = bytes->data + layers->l4 + sum_offset(layers);
    size_t length = bytes->len - layers->l4;
    uint16_t sum;

    put16(at, 0);
    sum = (uint16_t)~frame_fold(
        frame_sum(bytes->data + layers->l4, length, frame_pseudo_sum(bytes->data, layers, length)));
    /* RFC 768: zero means "none", so zero is sent as its other form. */
    put16(at, sum == 0 && layers->protocol != PROTO_TCP ? 0xFFFF : sum);
}

static void fix_tcp(GByteArray *bytes, const FrameLayers *layers, size_t offset, bool last)
{
    uint8_t *tcp = bytes->data + layers->l4;

    put32(tcp + 4, get32(tcp + 4) + (uint32_t)offset);
    tcp[13] &= (uint8_t) ~(last ? 0 : TCP_FIN_PSH);
    tcp[13] &= (uint8_t) ~(offset ? TCP_CWR : 0);
}

/* TCP and UDP_L4: the payload in pieces of @gso_size, each behind all headers. */
static void cut_segments(Cut *cut, size_t gso_size)
{
    const FrameLayers *layers = cut->layers;
    size_t total = layers->end - layers->payload;

    for (size_t done = 0; done < total; done += gso_size) {
        size_t bytes = MIN(gso_size, total - done);
        GByteArray *segment =
            add_frame(cut, layers->payload, cut->frame + layers->payload + done, bytes);

        fix_ip(segment, layers, (unsigned)(done / gso_size));
        if (layers->protocol == PROTO_TCP) {
            fix_tcp(segment, layers, done, done + bytes == total);
        } else {
            put16(segment->data + layers->l4 + 4, (unsigned)(segment->len - layers->l4));
        }
        fix_sum(segment, layers);
    }
}

/* The datagram from its UDP header on in IPv4 fragments of @gso_size, rounded down to eights. */
static void cut_fragments(Cut *cut, size_t gso_size)
{
    const FrameLayers *layers = cut->layers;
    size_t total = layers->end - layers->l4, step = gso_size & ~7ul;
    GByteArray *whole = g_byte_array_new();

    g_byte_array_append(whole, cut->frame, (guint)layers->end);
    fix_sum(whole, layers);
    for (size_t done = 0; done < total; done += step) {
        size_t bytes = MIN(step, total - done);
        GByteArray *fragment = add_frame(cut, layers->l4, whole->data + layers->l4 + done, bytes);

        put16(fragment->data + layers->l3 + 6,
              (unsigned)(done / 8) | (done + bytes < total ? MORE_FRAGMENTS : 0));
        fix_ip(fragment, layers, 0);
    }
    g_byte_array_unref(whole);
}

static void free_bytes(gpointer bytes)
{
    g_byte_array_unref(bytes);
}

GPtrArray *frame_finish(const struct virtio_net_hdr_v1 *header, const uint8_t *frame, size_t size,
                        char **problem)
{
    FrameLayers layers;
    Cut cut = {.frame = frame, .layers = &layers};

    *problem = frame_check_header(header, frame, size, &layers);
    if (*problem) {
        return NULL;
    }
    cut.out = g_ptr_array_new_with_free_func(free_bytes);
    switch (header->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
    case VIRTIO_NET_HDR_GSO_NONE:
        add_frame(&cut, size, frame, 0);
        if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
            fix_sum(cut.out->pdata[0], &layers);
        }
        break;
    case VIRTIO_NET_HDR_GSO_UDP:
        if (layers.ip_version == 6) {
            *problem = g_strdup("UFO over IPv6 is not done here: its identification is random");
            g_ptr_array_unref(cut.out);
            return NULL;
        }
        cut_fragments(&cut, header->gso_size);
        break;
    default:
        cut_segments(&cut, header->gso_size);
    }
    return cut.out;
}
