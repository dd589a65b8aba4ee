/*
 * A peer that does not read: the device keeps what it could not send, stops, and goes on where it
 * stopped.  No frame is lost, none is sent twice, no element comes back before its frame is out.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/rig.h"

#define FRAME  1514
#define STRIDE 2048
#define SNDBUF 8192 /* room for a few frames only */

static uint64_t buffers_fill(Rig *rig, uint32_t seed)
{
    unsigned n = rig->tx->size;
    uint64_t addr = rig_alloc(rig, (size_t)n * STRIDE);

    for (unsigned i = 0; i < n; i++) {
        frame_fill(rig_at(rig, addr + i * STRIDE + RIG_HDR, FRAME), FRAME, seed + i);
        ring_set(rig->tx, (uint16_t)i, addr + i * STRIDE, RIG_HDR + FRAME, 0, 0);
        ring_offer(rig->tx, (uint16_t)i);
    }
    ring_publish(rig->tx);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    return addr;
}

static void frame_expect(Rig *rig, uint32_t seed)
{
    uint8_t frame[FRAME];

    frame_fill(frame, FRAME, seed);
    rig_peer_expect(rig, frame, FRAME);
}

/* Fills the ring and lets the device run into the full socket; how many it used. */
static unsigned stall(Rig *rig, uint32_t seed)
{
    unsigned used;

    buffers_fill(rig, seed);
    rig_settle(rig);
    g_usleep(RIG_QUIET_MS * 1000);
    rig_settle(rig);
    used = ring_used_count(rig->tx);
    g_assert_cmpuint(used, >, 0);
    g_assert_cmpuint(used, <, rig->tx->size);
    return used;
}

static void used_expect_all(Rig *rig)
{
    for (unsigned i = 0; i < rig->tx->size; i++) {
        struct vring_used_elem used = ring_take(rig, rig->tx);

        g_assert_cmpuint(used.id, ==, i);
        g_assert_cmpuint(used.len, ==, 0);
    }
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
}

/* Every chain once; what waited in the back end may come back after what did not. */
static void used_expect_each(Rig *rig)
{
    g_autofree bool *seen = g_new0(bool, rig->tx->size);

    for (unsigned i = 0; i < rig->tx->size; i++) {
        struct vring_used_elem used = ring_take(rig, rig->tx);

        g_assert_cmpuint(used.id, <, rig->tx->size);
        g_assert_false(seen[used.id]);
        seen[used.id] = true;
    }
    g_assert_cmpuint(ring_used_count(rig->tx), ==, 0);
}

static void test_resume(gconstpointer device)
{
    Rig *rig = rig_new(&(RigConfig){.device = device, .sndbuf = SNDBUF});

    for (uint32_t round = 0; round < 4; round++) {
        stall(rig, round * 10000);
        for (uint32_t i = 0; i < rig->tx->size; i++) {
            frame_expect(rig, round * 10000 + i);
        }
        used_expect_all(rig);
        rig_peer_expect_nothing(rig);
    }
    rig_expect_working(rig);
    rig_free(rig);
}

/* The peer reads in fits and starts: each time the device fills what became free. */
static void test_resume_in_pieces(void)
{
    Rig *rig = rig_new(&(RigConfig){.sndbuf = SNDBUF});

    stall(rig, 0);
    for (uint32_t i = 0; i < rig->tx->size; i++) {
        if (i % 5 == 0) {
            g_usleep(2000);
        }
        frame_expect(rig, i);
    }
    used_expect_all(rig);
    rig_free(rig);
}

static uint64_t cpu_ticks(const Rig *rig)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/stat", (int)rig->emulator->pid);
    g_autofree char *text = NULL;
    unsigned long user = 0, system = 0;
    const char *rest;

    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    rest = strrchr(text, ')');
    g_assert_nonnull(rest);
    g_assert_cmpint(
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
        ==, 2);
    return user + system;
}

/* Waiting costs no CPU, whatever the driver notifies. */
static void test_stalled_is_idle(void)
{
    Rig *rig = rig_new(&(RigConfig){.sndbuf = SNDBUF});
    unsigned used = stall(rig, 0);
    uint64_t before = cpu_ticks(rig), spent;

    g_usleep(500 * 1000);
    spent = cpu_ticks(rig) - before;
    g_test_message("%u ticks of CPU in 0.5 s while stalled", (unsigned)spent);
    g_assert_cmpuint(spent, <, (uint64_t)sysconf(_SC_CLK_TCK) / 10);
    for (unsigned i = 0; i < 20; i++) {
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
    }
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, used);
    rig_free(rig);
}

/* A reset drops what waits.  A frame of which a part is in the socket is finished, so that the
 * framing holds for the next one. */
static void test_reset_while_stalled(void)
{
    Rig *rig = rig_new(&(RigConfig){.sndbuf = SNDBUF});
    uint8_t frame[FRAME], got[STRIDE];
    uint32_t next = 0;
    size_t size;

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU's stream loses its framing here");
        return;
    }
    stall(rig, 0);
    rig_restart(rig);
    while ((size = rig_peer_recv(rig, got, sizeof(got), RIG_QUIET_MS)) > 0) {
        frame_fill(frame, FRAME, next++);
        g_assert_cmpmem(got, size, frame, FRAME);
    }
    g_assert_cmpuint(next, <, rig->tx->size);
    rig_expect_working(rig);
    rig_free(rig);
}

/* Frames of the driver before, which a filter had seen and the peer not taken, are nobody's any
 * more: the filter sees the first frames of the next driver. */
static void test_reset_with_filter(void)
{
    g_autofree char *path =
        g_strdup_printf("%s/swnic-backpressure-%d.pcap", g_get_tmp_dir(), getpid());
    g_autofree char *filter = g_strdup_printf("filter-dump,id=d0,netdev=n0,queue=rx,file=%s", path);
    const char *args[] = {"-object", filter, NULL};
    Rig *rig = rig_new(&(RigConfig){.sndbuf = SNDBUF, .args = args});
    const unsigned count = 3, record = 16 + FRAME; /* a pcap record's header in front */
    uint8_t frame[FRAME], got[STRIDE];
    g_autofree char *before = NULL, *after = NULL;
    gsize size_before, size_after;

    rig->config.args = NULL;
    stall(rig, 0);
    rig_restart(rig);
    while (rig_peer_recv(rig, got, sizeof(got), RIG_QUIET_MS) > 0) {
    }
    g_assert_true(g_file_get_contents(path, &before, &size_before, NULL));
    for (unsigned i = 0; i < count; i++) {
        frame_fill(frame, FRAME, 1000 + i);
        rig_send_frame(rig, (uint16_t)i, frame, FRAME);
        rig_peer_expect(rig, frame, FRAME);
    }
    rig_settle(rig);
    g_assert_true(g_file_get_contents(path, &after, &size_after, NULL));
    g_assert_cmpuint(size_after, ==, size_before + count * record);
    for (unsigned i = 0; i < count; i++) {
        frame_fill(frame, FRAME, 1000 + i);
        g_assert_cmpmem(after + size_before + i * record + 16, FRAME, frame, FRAME);
    }
    unlink(path);
    rig_free(rig);
}

static void test_stop_while_stalled(void)
{
    Rig *rig = rig_new(&(RigConfig){.sndbuf = SNDBUF});
    GError *err = NULL;
    unsigned used;

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU gives up what waits");
        return;
    }
    used = stall(rig, 0);
    json_object_put(qmp_client_execute(rig->qmp, "stop", NULL, &err));
    g_assert_no_error(err);
    for (uint32_t i = 0; i < 3; i++) {
        frame_expect(rig, i);
    }
    rig_settle(rig);
    g_assert_cmpuint(ring_used_count(rig->tx), ==, used); /* guest memory stands still */
    json_object_put(qmp_client_execute(rig->qmp, "cont", NULL, &err));
    g_assert_no_error(err);
    for (uint32_t i = 3; i < rig->tx->size; i++) {
        frame_expect(rig, i);
    }
    used_expect_all(rig);
    rig_free(rig);
}

/* The netdev goes while frames wait for it: the device keeps running without a peer. */
static void test_netdev_del_while_stalled(void)
{
    Rig *rig = rig_new(&(RigConfig){.sndbuf = SNDBUF});
    GError *err = NULL;

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU's device waits for ever");
        return;
    }
    stall(rig, 0);
    json_object_put(qmp_client_executef(rig->qmp, "netdev_del", &err, "{\"id\": \"n0\"}"));
    g_assert_no_error(err);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    used_expect_each(rig);
    buffers_fill(rig, 1);
    used_expect_each(rig);
    rig_free(rig);
}

/* The peer closes its end: nothing to wait for any more. */
static void test_peer_closes_while_stalled(void)
{
    Rig *rig = rig_new(&(RigConfig){.sndbuf = SNDBUF});

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU's device waits for ever");
        return;
    }
    stall(rig, 0);
    close(rig->peer);
    rig->peer = -1;
    g_usleep(RIG_QUIET_MS * 1000);
    virtio_driver_notify_sync(rig->virtio, RIG_TX);
    used_expect_each(rig);
    rig_check(rig);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/backpressure/resumes-where-it-stopped", NULL, test_resume);
    g_test_add_data_func("/backpressure/resumes-with-burst-1", "x-txburst=1", test_resume);
    g_test_add_func("/backpressure/resumes-in-pieces", test_resume_in_pieces);
    g_test_add_func("/backpressure/stalled-is-idle", test_stalled_is_idle);
    g_test_add_func("/backpressure/reset-while-stalled", test_reset_while_stalled);
    g_test_add_func("/backpressure/reset-with-filter", test_reset_with_filter);
    g_test_add_func("/backpressure/stop-while-stalled", test_stop_while_stalled);
    g_test_add_func("/backpressure/netdev-del-while-stalled", test_netdev_del_while_stalled);
    g_test_add_func("/backpressure/peer-closes-while-stalled", test_peer_closes_while_stalled);
    return g_test_run();
}
