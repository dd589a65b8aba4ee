/* Transmission: every layout of header and data, order, bursts, and what is not a frame. */
#include <string.h>

#include "tests/lib/rig.h"

#define FRAME_MAX 1600
#define PARTS_MAX 1024
#define ALL_REST  0xffff /* this part takes what is left */
#define PAD       32     /* guard bytes between parts in guest memory */

/* How header and frame are cut into descriptors: sizes in bytes, ended by ALL_REST or 0. */
typedef struct Layout {
    const char *name;
    uint16_t cut[16];
} Layout;

static const Layout layouts[] = {
    {"header-and-data-in-one", {ALL_REST}},
    {"header-alone", {12, ALL_REST}},
    {"header-split-in-two", {5, 7, ALL_REST}},
    {"header-byte-by-byte", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ALL_REST}},
    {"header-runs-into-data", {3, 20, ALL_REST}},
    {"ethernet-header-with-header", {26, ALL_REST}},
    {"ethernet-header-alone", {12, 14, ALL_REST}},
    {"data-in-three", {12, 10, 1, ALL_REST}},
    {"ends-in-one-byte", {12, 59, 1}},
};

/* Cuts @bytes (header and frame) by @layout into guest memory; returns the parts. */
static unsigned cut_by_layout(Rig *rig, const Layout *layout, const uint8_t *bytes, size_t size,
                              RingPart *parts)
{
    unsigned n = 0;

    for (size_t done = 0; done < size; n++) {
        uint16_t cut = layout->cut[n];
        size_t len = cut == ALL_REST || cut == 0 ? size - done : MIN(cut, size - done);

        parts[n] = (RingPart){.addr = rig_alloc(rig, len + PAD), .len = (uint32_t)len};
        memcpy(rig_at(rig, parts[n].addr, len), bytes + done, len);
        done += len;
    }
    return n;
}

static void expect_sent(Rig *rig, uint16_t head, const uint8_t *frame, size_t size)
{
    struct vring_used_elem used;

    ring_send(rig, rig->tx, head);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, head);
    g_assert_cmpuint(used.len, ==, 0);
    rig_peer_expect(rig, frame, size);
}

static void send_all_layouts(Rig *rig, bool indirect)
{
    static const size_t sizes[] = {14, 60, 61, 1514};
    uint8_t bytes[RIG_HDR + FRAME_MAX] = {0};
    RingPart parts[PARTS_MAX];
    uint16_t at = 0;

    for (unsigned l = 0; l < G_N_ELEMENTS(layouts); l++) {
        for (unsigned s = 0; s < G_N_ELEMENTS(sizes); s++) {
            unsigned n;

            frame_fill(bytes + RIG_HDR, sizes[s], l * 16 + s);
            n = cut_by_layout(rig, &layouts[l], bytes, RIG_HDR + sizes[s], parts);
            at = (uint16_t)((at + 16) % (rig->tx->size - 16));
            if (indirect) {
                ring_indirect(rig->tx, at, rig_alloc(rig, n * 16), parts, n);
            } else {
                ring_chain(rig->tx, at, parts, n);
            }
            expect_sent(rig, at, bytes + RIG_HDR, sizes[s]);
        }
    }
}

static void test_layouts(gconstpointer features)
{
    uint64_t bits = (uint64_t)(uintptr_t)features;
    Rig *rig = rig_new(&(RigConfig){.features = bits});

    send_all_layouts(rig, false);
    if (bits & RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC)) {
        send_all_layouts(rig, true);
    }
    rig_free(rig);
}

/* A frame in @n parts, none empty. */
static void send_in_parts(Rig *rig, unsigned n, bool indirect)
{
    static RingPart parts[PARTS_MAX];
    uint8_t bytes[RIG_HDR + FRAME_MAX] = {0};
    size_t size = RIG_HDR + 1514, done = 0;
    uint64_t addr = rig_alloc(rig, size);

    frame_fill(bytes + RIG_HDR, 1514, n);
    memcpy(rig_at(rig, addr, size), bytes, size);
    for (unsigned i = 0; i < n; i++) {
        size_t len = i + 1 < n ? (size - done) / (n - i) : size - done;

        parts[i] = (RingPart){.addr = addr + done, .len = (uint32_t)len};
        done += len;
    }
    if (indirect) {
        ring_indirect(rig->tx, 0, rig_alloc(rig, n * 16), parts, n);
    } else {
        ring_chain(rig->tx, 0, parts, n);
    }
    expect_sent(rig, 0, bytes + RIG_HDR, 1514);
}

static void test_one_to_n_descriptors(void)
{
    Rig *rig = rig_new(&(RigConfig){.features = RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC)});

    for (unsigned n = 1; n <= 256; n = n < 20 ? n + 1 : n + 59) {
        send_in_parts(rig, n, false);
        send_in_parts(rig, n, true);
    }
    send_in_parts(rig, rig->tx->size, false);
    send_in_parts(rig, rig->tx->size, true);
    rig_free(rig);
}

/* Short frames are passed, not padded or dropped. */
static void test_short_frames(void)
{
    Rig *rig = rig_new(NULL);
    uint8_t frame[60];

    for (size_t size = 1; size < sizeof(frame); size += 7) {
        frame_fill(frame, size, (uint32_t)size);
        rig_send_frame(rig, 0, frame, size);
        rig_peer_expect(rig, frame, size);
    }
    rig_free(rig);
}

/* Puts @count frames of 60 bytes into descriptors 0.. and offers them. */
static uint64_t offer_frames(Rig *rig, unsigned count, uint32_t seed)
{
    uint64_t addr = rig_alloc(rig, count * 128);

    for (unsigned i = 0; i < count; i++) {
        frame_fill(rig_at(rig, addr + i * 128 + RIG_HDR, 60), 60, seed + i);
        ring_set(rig->tx, (uint16_t)i, addr + i * 128, RIG_HDR + 60, 0, 0);
        ring_offer(rig->tx, (uint16_t)i);
    }
    return addr;
}

static void expect_frames(Rig *rig, unsigned count, uint32_t seed)
{
    uint8_t frame[60];

    for (unsigned i = 0; i < count; i++) {
        frame_fill(frame, sizeof(frame), seed + i);
        rig_peer_expect(rig, frame, sizeof(frame));
    }
}

static void expect_used_in_order(Rig *rig, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct vring_used_elem used = ring_take(rig, rig->tx);

        g_assert_cmpuint(used.id, ==, i);
        g_assert_cmpuint(used.len, ==, 0);
    }
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
}

/* One notification for a full ring: all of it is sent once, in order, whatever the burst. */
static void test_batch_in_order(gconstpointer device)
{
    Rig *rig = rig_new(&(RigConfig){.device = device});

    for (uint32_t round = 0; round < 5; round++) {
        offer_frames(rig, rig->tx->size, round * 1000);
        ring_publish(rig->tx);
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        expect_frames(rig, rig->tx->size, round * 1000);
        expect_used_in_order(rig, rig->tx->size);
        rig_peer_expect_nothing(rig);
    }
    rig_free(rig);
}

/* With a stepped clock a burst is visible: one flush takes x-txburst frames and no more. */
static void test_burst_limit_timer(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "tx=timer,x-txtimer=150000,x-txburst=4"});

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("needs a stepped clock");
        return;
    }
    offer_frames(rig, 10, 0);
    ring_publish(rig->tx);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
    qtest_client_clock_step(rig->qtest, 149999);
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
    qtest_client_clock_step(rig->qtest, 1);
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 4);
    qtest_client_clock_step(rig->qtest, 150000);
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 8);
    qtest_client_clock_step(rig->qtest, 150000);
    rig_settle(rig);
    expect_used_in_order(rig, 10);
    expect_frames(rig, 10, 0);
    rig_free(rig);
}

/* After a flush the device asks to be notified of the next frame: no frame waits unnoticed. */
static void test_notifications_return(gconstpointer features)
{
    uint64_t bits = (uint64_t)(uintptr_t)features;
    Rig *rig = rig_new(&(RigConfig){.features = bits});

    for (unsigned i = 0; i < 50; i++) {
        offer_frames(rig, 1, i);
        ring_publish(rig->tx);
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        expect_used_in_order(rig, 1);
        expect_frames(rig, 1, i);
        rig_settle(rig);
        if (bits & RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX)) {
            g_assert_cmpuint(*rig->tx->avail_event, ==, rig->tx->avail_next);
        } else {
            g_assert_cmphex(rig->tx->used->flags, ==, 0);
        }
    }
    rig_free(rig);
}

/* Frames that were there before DRIVER_OK are sent once it is set, without a notification. */
static void test_frames_before_driver_ok(void)
{
    Rig *rig = rig_new(NULL);

    virtio_driver_set_status(rig->virtio, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER |
                                              VIRTIO_CONFIG_S_FEATURES_OK);
    rig_settle(rig);
    offer_frames(rig, 2, 7);
    ring_publish(rig->tx);
    rig_peer_expect_nothing(rig);
    virtio_driver_set_status(rig->virtio, 0xf);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    expect_frames(rig, 2, 7);
    rig_free(rig);
}

/* 70,000 frames with no peer: indices wrap, nothing is lost. */
static void test_index_wraps(gconstpointer features)
{
    Rig *rig = rig_new(&(RigConfig){.no_peer = true, .features = (uint64_t)(uintptr_t)features});
    unsigned n = rig->tx->size;

    offer_frames(rig, n, 0);
    rig->tx->avail_next -= (uint16_t)n;
    for (unsigned sent = 0; sent < 70000; sent += n) {
        for (unsigned i = 0; i < n; i++) {
            ring_offer(rig->tx, (uint16_t)i);
        }
        ring_publish(rig->tx);
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        expect_used_in_order(rig, n);
    }
    rig_free(rig);
}

static void test_link_down_consumes(void)
{
    Rig *rig = rig_new(NULL);
    GError *err = NULL;

    json_object_put(
        qmp_client_executef(rig->qmp, "set_link", &err, "{\"name\": \"nic0\", \"up\": false}"));
    g_assert_no_error(err);
    offer_frames(rig, 3, 0);
    ring_publish(rig->tx);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    expect_used_in_order(rig, 3);
    rig_peer_expect_nothing(rig);
    json_object_put(
        qmp_client_executef(rig->qmp, "set_link", &err, "{\"name\": \"nic0\", \"up\": true}"));
    g_assert_no_error(err);
    rig_expect_working(rig);
    rig_free(rig);
}

/* While the VM is stopped nothing moves; what waits goes on after cont. */
static void test_stopped_vm_moves_nothing(void)
{
    Rig *rig = rig_new(NULL);
    GError *err = NULL;

    json_object_put(qmp_client_execute(rig->qmp, "stop", NULL, &err));
    g_assert_no_error(err);
    offer_frames(rig, 3, 5);
    ring_publish(rig->tx);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    rig_peer_expect_nothing(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
    json_object_put(qmp_client_execute(rig->qmp, "cont", NULL, &err));
    g_assert_no_error(err);
    expect_frames(rig, 3, 5);
    expect_used_in_order(rig, 3);
    rig_free(rig);
}

/* --- not a frame: the chain comes back, the queue goes on --- */

static void expect_returned(Rig *rig, uint16_t head)
{
    struct vring_used_elem used;

    ring_send(rig, rig->tx, head);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, head);
    g_assert_cmpuint(used.len, ==, 0);
    rig_peer_expect_nothing(rig);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
}

static void test_over_long_frame(void)
{
    Rig *rig = rig_new(NULL);
    uint32_t size = 69633;
    uint64_t addr = rig_alloc(rig, size + RIG_HDR);

    virtio_driver_take_interrupt(rig->virtio, 2);
    ring_set(rig->tx, 0, addr, RIG_HDR + size, 0, 0);
    expect_returned(rig, 0);
    g_assert_true(virtio_driver_take_interrupt(rig->virtio, 2));
    rig_expect_working(rig);
    rig_free(rig);
}

/* 65 descriptors, over 4 GiB in total: a length kept in 32 bits would wrap to a small one. */
static void test_four_gib_frame(void)
{
    Rig *rig = rig_new(NULL);
    RingPart parts[65];

    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        parts[i] = (RingPart){.addr = 0, .len = 64 << 20};
    }
    parts[64].len = 100;
    ring_chain(rig->tx, 0, parts, G_N_ELEMENTS(parts));
    expect_returned(rig, 0);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_without_header(void)
{
    Rig *rig = rig_new(NULL);
    uint64_t addr = rig_alloc(rig, 64);

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU breaks the device for it");
        return;
    }
    for (uint32_t len = 1; len < RIG_HDR; len++) {
        ring_set(rig->tx, 0, addr, len, 0, 0);
        expect_returned(rig, 0);
    }
    /* A header and nothing behind it is no frame either. */
    ring_set(rig->tx, 0, addr, RIG_HDR, 0, 0);
    expect_returned(rig, 0);
    rig_expect_working(rig);
    rig_free(rig);
}

#define BITS(b) GUINT_TO_POINTER((guint)(b))

int main(int argc, char **argv)
{
    const uint64_t event_idx = RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX);
    const uint64_t all =
        event_idx | RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC) | RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF);

    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/tx/layout/plain", BITS(0), test_layouts);
    g_test_add_data_func("/tx/layout/indirect-mergeable-event-idx", BITS(all), test_layouts);
    g_test_add_func("/tx/layout/1-to-n-descriptors", test_one_to_n_descriptors);
    g_test_add_func("/tx/layout/short-frames-are-passed", test_short_frames);
    g_test_add_data_func("/tx/burst/default", NULL, test_batch_in_order);
    g_test_add_data_func("/tx/burst/1", "x-txburst=1", test_batch_in_order);
    g_test_add_data_func("/tx/burst/7", "x-txburst=7", test_batch_in_order);
    g_test_add_func("/tx/burst/limits-one-flush", test_burst_limit_timer);
    g_test_add_data_func("/tx/notify/on-again-after-flush", BITS(0), test_notifications_return);
    g_test_add_data_func("/tx/notify/on-again-after-flush-event-idx", BITS(event_idx),
                         test_notifications_return);
    g_test_add_func("/tx/frames-before-driver-ok-are-sent", test_frames_before_driver_ok);
    g_test_add_data_func("/tx/index-wraps", BITS(0), test_index_wraps);
    g_test_add_data_func("/tx/index-wraps-event-idx", BITS(event_idx), test_index_wraps);
    g_test_add_func("/tx/link-down-consumes", test_link_down_consumes);
    g_test_add_func("/tx/stopped-vm-moves-nothing", test_stopped_vm_moves_nothing);
    g_test_add_func("/tx/bad/over-long-frame-is-returned", test_over_long_frame);
    g_test_add_func("/tx/bad/4-gib-frame-is-returned", test_four_gib_frame);
    g_test_add_func("/tx/bad/frame-without-header-is-returned", test_without_header);
    return g_test_run();
}
