/* The frame checker that other tests rely on: what it takes, what it refuses, what it makes. */
#include <string.h>

#include "tests/lib/frame-builder.h"

static const uint8_t receiver[6] = {0x02, 0, 0, 0, 0, 1};

#define TSO4 VIRTIO_NET_HDR_GSO_TCPV4
#define TSO6 VIRTIO_NET_HDR_GSO_TCPV6
#define UFO  VIRTIO_NET_HDR_GSO_UDP
#define USO  VIRTIO_NET_HDR_GSO_UDP_L4
#define ECN  VIRTIO_NET_HDR_GSO_ECN

static const FrameSpec whole[] = {
    {"tcp4", .ip_version = 4, .protocol = 6, .payload = 101},
    {"tcp4-options", .ip_version = 4, .protocol = 6, .payload = 100, .ip_options = true},
    {"tcp4-vlan", .ip_version = 4, .protocol = 6, .payload = 33, .vlan = 7},
    {"tcp4-empty", .ip_version = 4, .protocol = 6},
    {"tcp6", .ip_version = 6, .protocol = 6, .payload = 99},
    {"tcp6-extensions", .ip_version = 6, .protocol = 6, .payload = 64, .ip_options = true},
    {"udp4", .ip_version = 4, .protocol = 17, .payload = 57},
    {"udp6", .ip_version = 6, .protocol = 17, .payload = 58, .seed = 3},
    {"icmp", .ip_version = 4, .protocol = 1, .payload = 56},
    {"icmpv6", .ip_version = 6, .protocol = 58, .payload = 56},
};

static const FrameSpec unfinished[] = {
    {"tcp4", .ip_version = 4, .protocol = 6, .payload = 101, .partial = true},
    {"tcp6", .ip_version = 6, .protocol = 6, .payload = 101, .partial = true, .ip_options = true},
    {"udp4", .ip_version = 4, .protocol = 17, .payload = 40, .partial = true, .vlan = 9},
    {"udp6", .ip_version = 6, .protocol = 17, .payload = 41, .partial = true},
    {"tso4", .ip_version = 4, .protocol = 6, .payload = 5001, .gso_size = 1448, .gso_type = TSO4},
    {"tso4-64k", .ip_version = 4, .protocol = 6, .payload = 65160, .gso_size = 1448,
     .gso_type = TSO4, .tcp_flags = 0x19},
    {"tso4-ecn", .ip_version = 4, .protocol = 6, .payload = 4000, .gso_size = 1000,
     .gso_type = TSO4 | ECN, .tcp_flags = 0x98},
    {"tso6", .ip_version = 6, .protocol = 6, .payload = 5000, .gso_size = 1428, .gso_type = TSO6},
    {"tso6-extensions", .ip_version = 6, .protocol = 6, .payload = 5000, .gso_size = 1412,
     .gso_type = TSO6, .ip_options = true},
    {"ufo4", .ip_version = 4, .protocol = 17, .payload = 4000, .gso_size = 1480, .gso_type = UFO},
    {"uso4", .ip_version = 4, .protocol = 17, .payload = 4001, .gso_size = 1200, .gso_type = USO},
    {"uso6", .ip_version = 6, .protocol = 17, .payload = 3600, .gso_size = 1200, .gso_type = USO},
};

static void expect_good(const uint8_t *frame, size_t size)
{
    g_autofree char *problem = frame_check(frame, size, NULL);

    g_assert_cmpstr(problem, ==, NULL);
}

static void test_takes_correct(void)
{
    BuiltFrame built;

    for (unsigned i = 0; i < G_N_ELEMENTS(whole); i++) {
        FrameLayers layers;
        g_autofree char *problem = NULL;

        frame_build(&built, &whole[i], receiver);
        problem = frame_check(built.bytes, built.size, &layers);
        g_test_message("%s", whole[i].name);
        g_assert_cmpstr(problem, ==, NULL);
        g_assert_cmpuint(layers.ip_version, ==, whole[i].ip_version);
        g_assert_cmpuint(layers.protocol, ==, whole[i].protocol);
        g_assert_cmpuint(layers.end - layers.payload, ==, whole[i].payload);
        g_assert_cmpuint(layers.tags, ==, whole[i].vlan ? 1 : 0);
        frame_clear(&built);
    }
    frame_build_arp(&built);
    expect_good(built.bytes, built.size);
    frame_clear(&built);
}

/* A frame that our builder did not make: its sums were worked out by hand. */
static void test_takes_known_packet(void)
{
    static const uint8_t echo[] = {
        0x02, 0,    0,    0,    0,    1,    0x52, 0x54, 0,    0x12, 0x34, 0x56, 0x08, 0x00,
        0x45, 0x00, 0x00, 0x1C, 0x00, 0x00, 0x00, 0x00, 0x40, 0x01, 0x66, 0xE0, 10,   0,
        0,    1,    10,   0,    0,    1,    0x08, 0x00, 0xF7, 0xFF, 0x00, 0x00, 0x00, 0x00,
    };

    expect_good(echo, sizeof(echo));
}

/* Bytes (of value @value now) that nothing in the frame depends on. */
static bool is_free(const FrameSpec *spec, const FrameLayers *layers, size_t at, uint8_t value)
{
    if (at < 12 || (spec->vlan && at >= 14 && at < 16)) {
        return true; /* addresses, VLAN id */
    }
    if (layers->ip_version == 6 && at >= layers->l3 && at < layers->l3 + 40) {
        size_t byte = at - layers->l3;

        /* Traffic class, flow label, hop limit; and one kind of options may be the other. */
        return byte < 4 || byte == 7 || (byte == 6 && spec->ip_options && value == 60);
    }
    /* An extension header's option kinds and contents, other than padding. */
    return spec->ip_version == 6 && spec->ip_options && at >= layers->l3 + 40 && at < layers->l4;
}

static void test_refuses_every_changed_byte(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(whole); i++) {
        BuiltFrame built;
        FrameLayers layers;

        frame_build(&built, &whole[i], receiver);
        g_free(frame_check(built.bytes, built.size, &layers));
        for (size_t at = 0; at < built.size; at++) {
            for (unsigned change = 1; change < 256; change++) {
                g_autofree char *problem = NULL;

                built.bytes[at] ^= (uint8_t)change;
                problem = frame_check(built.bytes, built.size, NULL);
                built.bytes[at] ^= (uint8_t)change;
                if (!problem &&
                    !is_free(&whole[i], &layers, at, (uint8_t)(built.bytes[at] ^ change))) {
                    g_error("%s: byte %zu changed by %02x is not seen", whole[i].name, at, change);
                }
            }
        }
        frame_clear(&built);
    }
}

static void test_refuses_every_other_size(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(whole); i++) {
        BuiltFrame built;
        g_autofree uint8_t *longer = NULL;

        frame_build(&built, &whole[i], receiver);
        longer = g_malloc0(built.size + 64);
        memcpy(longer, built.bytes, built.size);
        for (size_t size = 0; size < built.size + 64; size++) {
            g_autofree char *problem = frame_check(longer, size, NULL);
            bool padded = size >= built.size && size <= 60;

            g_assert_cmpint(problem == NULL, ==, size == built.size || padded);
        }
        frame_clear(&built);
    }
}

/* The headers of every unfinished frame, one byte changed at a time.  Never a crash; and where
 * it is accepted, the frames made of it are correct. */
static void test_changed_headers(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(unfinished); i++) {
        BuiltFrame built;
        unsigned taken = 0;

        if (unfinished[i].payload > 10000) {
            continue; /* the same in small is there */
        }
        frame_build(&built, &unfinished[i], receiver);
        for (size_t at = 0; at < 10; at++) {
            for (unsigned change = 1; change < 256; change += at < 2 ? 1 : 7) {
                struct virtio_net_hdr_v1 header = built.header;
                char *problem;
                GPtrArray *frames;

                ((uint8_t *)&header)[at] ^= (uint8_t)change;
                frames = frame_finish(&header, built.bytes, built.size, &problem);
                for (unsigned j = 0; frames && j < frames->len; j++) {
                    GByteArray *frame = frames->pdata[j];

                    expect_good(frame->data, frame->len);
                    taken++;
                }
                g_clear_pointer(&frames, g_ptr_array_unref);
                g_free(problem);
                /* csum_start and csum_offset have one right value. */
                g_assert_true(at < 6 || !frames);
            }
        }
        g_test_message("%s: %u frames", unfinished[i].name, taken);
        frame_clear(&built);
    }
}

/* Payload of all frames, in order, as the receiver puts it together. */
static GByteArray *payload_of(GPtrArray *frames)
{
    GByteArray *all = g_byte_array_new();

    for (unsigned i = 0; i < frames->len; i++) {
        GByteArray *frame = frames->pdata[i];
        FrameLayers layers;
        g_autofree char *problem = frame_check(frame->data, frame->len, &layers);
        size_t from = layers.is_fragment && layers.fragment_offset ? layers.l4
                      : layers.is_fragment                         ? layers.l4 + 8
                                                                   : layers.payload;

        g_assert_cmpstr(problem, ==, NULL);
        g_byte_array_append(all, frame->data + from, (guint)(layers.end - from));
    }
    return all;
}

static void test_finishes(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(unfinished); i++) {
        const FrameSpec *spec = &unfinished[i];
        BuiltFrame built;
        FrameLayers layers;
        char *problem;
        GPtrArray *frames;
        GByteArray *all;
        /* UFO cuts from the UDP header on. */
        size_t cut = spec->payload + (spec->gso_type == UFO ? 8 : 0);
        size_t pieces = spec->gso_size ? (cut + spec->gso_size - 1) / spec->gso_size : 1;

        frame_build(&built, spec, receiver);
        g_test_message("%s", spec->name);
        frames = frame_finish(&built.header, built.bytes, built.size, &problem);
        g_assert_cmpstr(problem, ==, NULL);
        g_assert_cmpuint(frames->len, ==, pieces);
        g_free(frame_check_header(&built.header, built.bytes, built.size, &layers));
        all = payload_of(frames);
        g_assert_cmpmem(all->data, all->len, built.bytes + layers.payload, spec->payload);
        g_byte_array_unref(all);
        g_ptr_array_unref(frames);
        frame_clear(&built);
    }
}

/* What distinguishes the segments of one frame. */
static void test_segments(void)
{
    BuiltFrame built;
    char *problem;
    GPtrArray *frames;

    frame_build(&built,
                &(FrameSpec){.ip_version = 4,
                             .protocol = 6,
                             .payload = 2500,
                             .gso_size = 1000,
                             .gso_type = TSO4 | ECN,
                             .tcp_flags = 0x99},
                receiver);
    frames = frame_finish(&built.header, built.bytes, built.size, &problem);
    g_assert_cmpuint(frames->len, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        static const uint8_t flags[3] = {0x90, 0x10, 0x19}; /* CWR first; PSH and FIN last */
        const uint8_t *frame = ((GByteArray *)frames->pdata[i])->data;

        g_assert_cmphex(frame[14 + 5], ==, 0x34 + i); /* identification */
        g_assert_cmphex(frame[14 + 20 + 13], ==, flags[i]);
        g_assert_cmphex(frame[14 + 20 + 6] << 8 | frame[14 + 20 + 7], ==, 0x5678 + 1000 * i);
    }
    g_ptr_array_unref(frames);
    frame_clear(&built);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/frame-checker/takes-correct-frames", test_takes_correct);
    g_test_add_func("/frame-checker/takes-a-known-packet", test_takes_known_packet);
    g_test_add_func("/frame-checker/refuses-every-changed-byte", test_refuses_every_changed_byte);
    g_test_add_func("/frame-checker/refuses-every-other-size", test_refuses_every_other_size);
    g_test_add_func("/frame-checker/changed-headers", test_changed_headers);
    g_test_add_func("/frame-checker/finishes-what-is-left-to-do", test_finishes);
    g_test_add_func("/frame-checker/segments-of-one-frame", test_segments);
    return g_test_run();
}
