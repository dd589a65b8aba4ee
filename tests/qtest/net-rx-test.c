/*
 * Reception: mergeable and plain buffers in every layout, order, waiting for buffers, and what
 * does not fit.
 */
#include <string.h>

#include "tests/lib/rig.h"

#define FRAME_MAX 4096

static const size_t frame_sizes[] = {14, 60, 64, 499, 500, 501, 1514};

static void bytes_append(GByteArray *bytes, Rig *rig, uint64_t addr, size_t size)
{
    g_byte_array_append(bytes, rig_at(rig, addr, size), (guint)size);
}

/* Plain buffers: num_buffers is 1 (1.2, section 5.1.6.4.1); QEMU leaves it as it was. */
static void expect_frame(Rig *rig, const GByteArray *bytes, const uint8_t *frame, size_t size,
                         uint16_t num_buffers)
{
    struct virtio_net_hdr_v1 header;

    g_assert_cmpuint(bytes->len, ==, RIG_HDR + size);
    memcpy(&header, bytes->data, sizeof(header));
    g_assert_cmpuint(header.flags, ==, 0);
    g_assert_cmpuint(header.gso_type, ==, 0);
    if (rig->is_swnic || virtio_driver_has_feature(rig->virtio, VIRTIO_NET_F_MRG_RXBUF)) {
        g_assert_cmpuint(header.num_buffers, ==, num_buffers);
    }
    g_assert_cmpmem(bytes->data + RIG_HDR, size, frame, size);
}

/* --- mergeable: one frame over as many chains as it needs --- */

static void receive_mergeable(Rig *rig, uint32_t buffer, size_t size, uint32_t seed)
{
    uint8_t frame[FRAME_MAX];
    unsigned needed = (unsigned)((RIG_HDR + size + buffer - 1) / buffer);
    g_autofree uint64_t *addrs = g_new(uint64_t, needed);
    GByteArray *bytes = g_byte_array_new();

    for (unsigned i = 0; i < needed; i++) {
        addrs[i] = rig_post_buffer(rig, (uint16_t)i, buffer);
    }
    frame_fill(frame, size, seed);
    rig_peer_send(rig, frame, size);
    for (unsigned i = 0; i < needed; i++) {
        struct vring_used_elem used = ring_take(rig, rig->rx);

        g_assert_cmpuint(used.id, ==, i);
        g_assert_cmpuint(used.len, ==, i + 1 < needed ? buffer : RIG_HDR + size - i * buffer);
        bytes_append(bytes, rig, addrs[i], used.len);
    }
    expect_frame(rig, bytes, frame, size, (uint16_t)needed);
    g_byte_array_unref(bytes);
}

static void test_mergeable_sizes(void)
{
    static const uint32_t buffers[] = {12, 13, 26, 60, 72, 100, 511, 512, 1526, 2048, 4096};
    Rig *rig = rig_new(&(RigConfig){.features = RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF)});

    for (unsigned b = 0; b < G_N_ELEMENTS(buffers); b++) {
        for (unsigned s = 0; s < G_N_ELEMENTS(frame_sizes); s++) {
            receive_mergeable(rig, buffers[b], frame_sizes[s], b * 16 + s);
        }
    }
    rig_free(rig);
}

/* All buffers of one frame appear together: never a used index between them. */
static void test_mergeable_whole_frames_only(void)
{
    Rig *rig = rig_new(&(RigConfig){.features = RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF)});
    uint8_t frame[1514];
    uint64_t addr;

    frame_fill(frame, sizeof(frame), 3);
    for (uint16_t i = 0; i < 3; i++) {
        rig_post_buffer(rig, i, 512); /* 1,536 bytes: 1,526 are needed; then two more */
    }
    rig_peer_send(rig, frame, sizeof(frame));
    g_assert_true(ring_wait_used(rig, rig->rx, 1, RIG_TIMEOUT_MS));
    g_assert_cmpuint(ring_used_count(rig->rx), ==, 3);
    rig->rx->used_next += 3;
    for (uint16_t i = 0; i < 2; i++) {
        rig_post_buffer(rig, i, 512); /* too few */
    }
    rig_peer_send(rig, frame, sizeof(frame));
    rig_settle(rig);
    g_usleep(RIG_QUIET_MS * 1000);
    g_assert_cmpuint(ring_used_count(rig->rx), ==, 0);
    addr = rig_post_buffer(rig, 2, 512);
    g_assert_true(ring_wait_used(rig, rig->rx, 1, RIG_TIMEOUT_MS));
    g_assert_cmpuint(ring_used_count(rig->rx), ==, 3);
    g_assert_cmpmem(rig_at(rig, addr, 502), 502, frame + 1012, 502);
    rig_free(rig);
}

/* --- one chain a frame, cut in descriptors --- */

typedef struct Cut {
    const char *name;
    uint16_t sizes[16]; /* ended by 0 */
} Cut;

static const Cut cuts[] = {
    {"one-buffer", {2048}},
    {"header-alone", {12, 2036}},
    {"header-split", {4, 8, 2036}},
    {"header-byte-by-byte", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2036}},
    {"header-runs-into-data", {11, 3, 2034}},
    {"many", {12, 100, 1, 99, 300, 500, 1, 1, 700, 512}},
    {"exactly-1526", {1526}},
    {"larger-than-64k", {65535, 65535}},
};

static void receive_cut(Rig *rig, const Cut *cut, bool indirect, size_t size, uint32_t seed)
{
    uint8_t frame[FRAME_MAX];
    RingPart parts[16];
    unsigned n = 0;
    GByteArray *bytes = g_byte_array_new();
    struct vring_used_elem used;
    size_t left;

    for (; n < 16 && cut->sizes[n]; n++) {
        parts[n] = (RingPart){.addr = rig_alloc(rig, cut->sizes[n] + 16u),
                              .len = cut->sizes[n],
                              .flags = VRING_DESC_F_WRITE};
        memset(rig_at(rig, parts[n].addr, cut->sizes[n] + 16u), 0xee, cut->sizes[n] + 16u);
    }
    if (indirect) {
        ring_indirect(rig->rx, 5, rig_alloc(rig, n * 16), parts, n);
    } else {
        ring_chain(rig->rx, 5, parts, n);
    }
    ring_send(rig, rig->rx, 5);
    frame_fill(frame, size, seed);
    rig_peer_send(rig, frame, size);
    used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.id, ==, 5);
    g_assert_cmpuint(used.len, ==, RIG_HDR + size);
    left = used.len;
    for (unsigned i = 0; i < n; i++) {
        size_t len = MIN(left, parts[i].len);
        const uint8_t *guard = rig_at(rig, parts[i].addr + parts[i].len, 16);

        bytes_append(bytes, rig, parts[i].addr, len);
        left -= len;
        for (unsigned g = 0; g < 16; g++) {
            g_assert_cmphex(guard[g], ==, 0xee);
        }
    }
    expect_frame(rig, bytes, frame, size, 1);
    g_byte_array_unref(bytes);
}

static void test_cuts(gconstpointer features)
{
    uint64_t bits = (uint64_t)(uintptr_t)features;
    Rig *rig = rig_new(&(RigConfig){.features = bits});

    for (unsigned c = 0; c < G_N_ELEMENTS(cuts); c++) {
        for (unsigned s = 0; s < G_N_ELEMENTS(frame_sizes); s++) {
            receive_cut(rig, &cuts[c], false, frame_sizes[s], c);
            if (bits & RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC)) {
                receive_cut(rig, &cuts[c], true, frame_sizes[s], c + 100);
            }
        }
    }
    rig_free(rig);
}

static void test_one_to_n_descriptors(void)
{
    Rig *rig = rig_new(&(RigConfig){.features = RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC)});
    uint16_t max = rig->rx->size;
    RingPart parts[1024];
    uint8_t frame[1514];
    uint64_t addr = rig_alloc(rig, 2048);

    for (uint16_t n = 1; n <= max; n = n < 16 ? n + 1
                                              : (n < max - 80 ? n + 77
                                                 : n == max   ? n + 1
                                                              : max)) {
        struct vring_used_elem used;
        uint32_t done = 0;

        for (uint16_t i = 0; i < n; i++) {
            uint32_t len = i + 1 < n ? (2048 - done) / (n - i) : 2048 - done;

            parts[i] = (RingPart){.addr = addr + done, .len = len, .flags = VRING_DESC_F_WRITE};
            done += len;
        }
        ring_chain(rig->rx, 0, parts, n);
        ring_send(rig, rig->rx, 0);
        frame_fill(frame, sizeof(frame), n);
        rig_peer_send(rig, frame, sizeof(frame));
        used = ring_take(rig, rig->rx);
        g_assert_cmpuint(used.len, ==, RIG_HDR + sizeof(frame));
        g_assert_cmpmem(rig_at(rig, addr + RIG_HDR, sizeof(frame)), sizeof(frame), frame,
                        sizeof(frame));
    }
    rig_free(rig);
}

/* Readable buffers in front are no place for a frame, the writable ones behind are. */
static void test_readable_parts_are_skipped(void)
{
    Rig *rig = rig_new(NULL);
    uint64_t addr = rig_alloc(rig, 4096);
    RingPart parts[2] = {{.addr = addr, .len = 100},
                         {.addr = addr + 100, .len = 2048, .flags = VRING_DESC_F_WRITE}};
    uint8_t frame[60];
    struct vring_used_elem used;

    frame_fill(frame, sizeof(frame), 1);
    ring_chain(rig->rx, 0, parts, 2);
    ring_send(rig, rig->rx, 0);
    rig_peer_send(rig, frame, sizeof(frame));
    used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.len, ==, RIG_HDR + sizeof(frame));
    g_assert_cmpmem(rig_at(rig, addr + 100 + RIG_HDR, 60), 60, frame, 60);
    g_assert_cmphex(*(uint8_t *)rig_at(rig, addr, 1), ==, 0);
    rig_free(rig);
}

/* --- buffers that are missing or too small --- */

/* Frames wait at the back end while there are no buffers, and come in order. */
static void test_no_buffers_frames_wait(void)
{
    Rig *rig = rig_new(NULL);
    uint8_t frame[100];
    uint64_t addrs[20];

    for (uint32_t i = 0; i < 20; i++) {
        frame_fill(frame, sizeof(frame), i);
        rig_peer_send(rig, frame, sizeof(frame));
    }
    rig_settle(rig);
    for (uint16_t i = 0; i < 20; i++) {
        addrs[i] = rig_post_buffer(rig, i, 2048);
    }
    for (uint16_t i = 0; i < 20; i++) {
        struct vring_used_elem used = ring_take(rig, rig->rx);

        g_assert_cmpuint(used.id, ==, i);
        frame_fill(frame, sizeof(frame), i);
        g_assert_cmpmem(rig_at(rig, addrs[i] + RIG_HDR, 100), 100, frame, 100);
    }
    rig_expect_working(rig);
    rig_free(rig);
}

/* A frame that does not fit into a plain buffer is dropped; the buffer serves the next one. */
static void test_plain_too_small(void)
{
    Rig *rig = rig_new(NULL);
    uint8_t frame[1514];
    uint64_t addr = rig_post_buffer(rig, 0, 256);
    struct vring_used_elem used;

    frame_fill(frame, sizeof(frame), 1);
    rig_peer_send(rig, frame, sizeof(frame));
    frame_fill(frame, 100, 2);
    rig_peer_send(rig, frame, 100);
    used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.id, ==, 0);
    g_assert_cmpuint(used.len, ==, RIG_HDR + 100);
    g_assert_cmpmem(rig_at(rig, addr + RIG_HDR, 100), 100, frame, 100);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_order_over_many(gconstpointer features)
{
    Rig *rig = rig_new(&(RigConfig){.features = (uint64_t)(uintptr_t)features});
    uint16_t n = rig->rx->size;
    g_autofree uint64_t *addrs = g_new(uint64_t, n);
    uint8_t frame[200];
    uint32_t got = 0;

    for (uint16_t i = 0; i < n; i++) {
        addrs[i] = rig_alloc(rig, 512);
        ring_set(rig->rx, i, addrs[i], 512, VRING_DESC_F_WRITE, 0);
        ring_offer(rig->rx, i);
    }
    ring_publish(rig->rx);
    virtio_driver_notify_sync(rig->virtio, RIG_RX);
    for (uint32_t sent = 0; sent < 4000; sent++) {
        frame_fill(frame, sizeof(frame), sent);
        rig_peer_send(rig, frame, sizeof(frame));
        if (sent % 100 != 99) {
            continue;
        }
        for (; got <= sent; got++) {
            struct vring_used_elem used = ring_take(rig, rig->rx);

            frame_fill(frame, sizeof(frame), got);
            g_assert_cmpmem(rig_at(rig, addrs[used.id] + RIG_HDR, 200), 200, frame, 200);
            ring_offer(rig->rx, (uint16_t)used.id);
        }
        ring_publish(rig->rx);
        virtio_driver_notify_sync(rig->virtio, RIG_RX);
    }
    rig_free(rig);
}

static void test_link_down_drops(void)
{
    Rig *rig = rig_new(NULL);
    GError *err = NULL;
    uint8_t frame[60];

    rig_post_buffer(rig, 0, 2048);
    json_object_put(
        qmp_client_executef(rig->qmp, "set_link", &err, "{\"name\": \"nic0\", \"up\": false}"));
    g_assert_no_error(err);
    frame_fill(frame, sizeof(frame), 1);
    rig_peer_send(rig, frame, sizeof(frame));
    rig_settle(rig);
    g_usleep(RIG_QUIET_MS * 1000);
    g_assert_cmpuint(ring_used_count(rig->rx), ==, 0);
    json_object_put(
        qmp_client_executef(rig->qmp, "set_link", &err, "{\"name\": \"nic0\", \"up\": true}"));
    g_assert_no_error(err);
    frame_fill(frame, sizeof(frame), 2);
    rig_peer_send(rig, frame, sizeof(frame));
    ring_take(rig, rig->rx);
    rig_free(rig);
}

static void test_stopped_vm_waits(void)
{
    Rig *rig = rig_new(NULL);
    GError *err = NULL;
    uint8_t frame[60];

    rig_post_buffer(rig, 0, 2048);
    rig_settle(rig);
    json_object_put(qmp_client_execute(rig->qmp, "stop", NULL, &err));
    g_assert_no_error(err);
    frame_fill(frame, sizeof(frame), 1);
    rig_peer_send(rig, frame, sizeof(frame));
    rig_settle(rig);
    g_usleep(RIG_QUIET_MS * 1000);
    g_assert_cmpuint(ring_used_count(rig->rx), ==, 0);
    json_object_put(qmp_client_execute(rig->qmp, "cont", NULL, &err));
    g_assert_no_error(err);
    ring_take(rig, rig->rx);
    rig_free(rig);
}

/* Before DRIVER_OK and after a reset no frame is written anywhere. */
static void test_before_driver_ok(void)
{
    Rig *rig = rig_new(NULL);
    uint8_t frame[60];
    uint64_t addr = rig_post_buffer(rig, 0, 2048);
    DriverQueue *old;

    rig_settle(rig);
    virtio_driver_set_status(rig->virtio, 0);
    frame_fill(frame, sizeof(frame), 1);
    rig_peer_send(rig, frame, sizeof(frame));
    rig_settle(rig);
    g_usleep(RIG_QUIET_MS * 1000);
    old = rig->rx;
    g_assert_cmpuint(old->used->idx, ==, 0);
    g_assert_cmphex(*(uint8_t *)rig_at(rig, addr + RIG_HDR, 1), ==, 0);
    rig_free(rig);
}

#define BITS(b) GUINT_TO_POINTER((guint)(b))

int main(int argc, char **argv)
{
    const uint64_t indirect = RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC);
    const uint64_t all =
        indirect | RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX) | RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF);

    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rx/mergeable/every-buffer-size", test_mergeable_sizes);
    g_test_add_func("/rx/mergeable/whole-frames-only", test_mergeable_whole_frames_only);
    g_test_add_data_func("/rx/layout/plain", BITS(0), test_cuts);
    g_test_add_data_func("/rx/layout/indirect", BITS(indirect), test_cuts);
    g_test_add_data_func("/rx/layout/indirect-mergeable-event-idx", BITS(all), test_cuts);
    g_test_add_func("/rx/layout/1-to-n-descriptors", test_one_to_n_descriptors);
    g_test_add_func("/rx/layout/readable-parts-are-skipped", test_readable_parts_are_skipped);
    g_test_add_func("/rx/no-buffers-frames-wait", test_no_buffers_frames_wait);
    g_test_add_func("/rx/plain/too-small-drops-the-frame", test_plain_too_small);
    g_test_add_data_func("/rx/order/plain", BITS(0), test_order_over_many);
    g_test_add_data_func("/rx/order/mergeable-event-idx", BITS(all), test_order_over_many);
    g_test_add_func("/rx/link-down-drops", test_link_down_drops);
    g_test_add_func("/rx/stopped-vm-waits", test_stopped_vm_waits);
    g_test_add_func("/rx/nothing-after-reset", test_before_driver_ok);
    return g_test_run();
}
