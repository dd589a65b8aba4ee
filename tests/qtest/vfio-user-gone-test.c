/*
 * Memory that goes away while packets move through it: unmapped under full traffic, and truncated
 * by its owner without a word.
 */
#include <string.h>
#include <unistd.h>

#include "tests/lib/vfio-user-rig.h"

#define PAGE 4096ull

/* Traffic both ways with buffers in the extra region, until told to stop. */
typedef struct Traffic {
    VfioRig *rig;
    GThread *peer;
    bool stop, stopped;
    uint64_t sent, received, refused; /* chains */
} Traffic;

static gpointer peer_run(gpointer opaque)
{
    Traffic *traffic = opaque;
    uint8_t frame[1000], got[2048];

    frame_fill(frame, sizeof(frame), 9);
    while (!__atomic_load_n(&traffic->stop, __ATOMIC_ACQUIRE)) {
        rig_peer_send(&traffic->rig->rig, frame, sizeof(frame));
        while (rig_peer_recv(&traffic->rig->rig, got, sizeof(got), 0)) {
        }
    }
    __atomic_store_n(&traffic->stopped, true, __ATOMIC_RELEASE);
    return NULL;
}

#define IN_FLIGHT 32

static void post(VfioRig *rig, DriverQueue *queue, uint16_t at)
{
    bool rx = queue == rig->rig.rx;
    uint64_t addr = VFIO_EXTRA_ADDR + (rx ? 0 : VFIO_EXTRA_SIZE / 2) + at * (PAGE / 4);

    ring_set(queue, at, addr, rx ? 1024 : 600, rx ? VRING_DESC_F_WRITE : 0, 0);
    ring_offer(queue, at);
}

/* Takes what was used and posts it again. */
static void turn(Traffic *traffic, DriverQueue *queue)
{
    unsigned n = 0;

    while (ring_used_count(queue)) {
        struct vring_used_elem used = queue->used->ring[queue->used_next++ % queue->size];

        g_assert_cmpuint(used.id, <, IN_FLIGHT);
        traffic->received += queue == traffic->rig->rig.rx && used.len;
        traffic->refused += queue == traffic->rig->rig.rx && !used.len;
        traffic->sent += queue == traffic->rig->rig.tx;
        post(traffic->rig, queue, (uint16_t)used.id);
        n++;
    }
    if (n) {
        ring_publish(queue);
        virtio_driver_notify(traffic->rig->rig.virtio, queue->index);
    }
}

/* Posts everything, as a driver does that has just started. */
static void traffic_post(VfioRig *rig)
{
    for (uint16_t i = 0; i < IN_FLIGHT; i++) {
        post(rig, rig->rig.rx, i);
        post(rig, rig->rig.tx, i);
    }
    ring_publish(rig->rig.rx);
    ring_publish(rig->rig.tx);
    virtio_driver_notify(rig->rig.virtio, RIG_RX);
    virtio_driver_notify(rig->rig.virtio, RIG_TX);
}

static void traffic_start(Traffic *traffic, VfioRig *rig)
{
    *traffic = (Traffic){.rig = rig};
    traffic_post(rig);
    traffic->peer = g_thread_new("peer", peer_run, traffic);
}

static void traffic_turn_for(Traffic *traffic, gint64 us)
{
    gint64 end = g_get_monotonic_time() + us;

    do {
        turn(traffic, traffic->rig->rig.rx);
        turn(traffic, traffic->rig->rig.tx);
    } while (g_get_monotonic_time() < end);
}

static void traffic_stop(Traffic *traffic)
{
    uint8_t got[2048];

    __atomic_store_n(&traffic->stop, true, __ATOMIC_RELEASE);
    /* The peer may be in the middle of sending: somebody must take it. */
    while (!__atomic_load_n(&traffic->stopped, __ATOMIC_ACQUIRE)) {
        traffic_turn_for(traffic, 1000);
    }
    g_thread_join(traffic->peer);
    traffic_turn_for(traffic, 20000);
    while (rig_peer_recv(&traffic->rig->rig, got, sizeof(got), RIG_QUIET_MS)) {
    }
}

/* After the answer to an unmap nothing of the region is touched, however much is going on. */
static void test_unmap_under_traffic(void)
{
    const unsigned rounds = g_getenv("SWNIC_TEST_FULL") ? 1000 : 200;
    VfioRig *rig = vfio_rig_new(NULL);
    VfioExtra extra = vfio_extra_open();
    Traffic traffic;

    vfio_extra_map(rig, &extra, VFIO_RIG_RW);
    traffic_start(&traffic, rig);
    for (unsigned i = 0; i < rounds; i++) {
        traffic_turn_for(&traffic, 1000);
        vfio_extra_unmap(rig);
        memset(extra.host, 0xa5, VFIO_EXTRA_SIZE);
        traffic_turn_for(&traffic, 500); /* the driver goes on as if nothing had happened */
        for (size_t at = 0; at < VFIO_EXTRA_SIZE; at += 8) {
            g_assert_cmphex(*(uint64_t *)(extra.host + at), ==, 0xa5a5a5a5a5a5a5a5);
        }
        memset(extra.host, 0, VFIO_EXTRA_SIZE);
        vfio_extra_map(rig, &extra, VFIO_RIG_RW);
    }
    traffic_stop(&traffic);
    g_test_message("%u unmaps: %" PRIu64 " sent, %" PRIu64 " received, %" PRIu64 " refused", rounds,
                   traffic.sent, traffic.received, traffic.refused);
    g_assert_cmpuint(traffic.sent, >, 0);
    g_assert_cmpuint(traffic.received, >, 0);
    g_assert_cmpuint(traffic.refused, >, 0);
    rig_check(&rig->rig);
    vfio_rig_free(rig);
    vfio_extra_close(&extra);
}

/* The rings themselves go away: the device stops, and works again once they are back. */
static void test_unmap_rings(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    VfioExtra extra = vfio_extra_open();
    Traffic traffic;
    GError *err = NULL;

    vfio_extra_map(rig, &extra, VFIO_RIG_RW);
    for (unsigned i = 0; i < 20; i++) {
        traffic_start(&traffic, rig);
        traffic_turn_for(&traffic, 2000);
        vfio_user_client_unmap(rig->client, 0, rig->rig.ram->size, &err);
        vfio_check(err, "unmap");
        uint16_t used = __atomic_load_n(&rig->rig.rx->used->idx, __ATOMIC_ACQUIRE);

        g_usleep(500);
        g_assert_cmpuint(used, ==, __atomic_load_n(&rig->rig.rx->used->idx, __ATOMIC_ACQUIRE));
        vfio_user_client_map(rig->client, 0, rig->rig.ram->size, VFIO_RIG_RW, rig->rig.ram->fd, 0,
                             &err);
        vfio_check(err, "map");
        rig_restart(&rig->rig);
        traffic_post(rig);
        traffic_stop(&traffic);
        rig_restart(&rig->rig);
    }
    rig_expect_recovery(&rig->rig);
    vfio_rig_free(rig);
    vfio_extra_close(&extra);
}

/* The owner truncates the file: no SIGBUS ends the server, the region is dead, the rest lives. */
static void test_truncated_buffers(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    VfioExtra extra = vfio_extra_open(), fresh = vfio_extra_open();
    Traffic traffic;

    vfio_extra_map(rig, &extra, VFIO_RIG_RW);
    traffic_start(&traffic, rig);
    traffic_turn_for(&traffic, 5000);
    g_assert_cmpint(ftruncate(extra.fd, 0), ==, 0);
    traffic_turn_for(&traffic, 50000);
    rig_check(&rig->rig);
    /* It can be unmapped as any other, and memory be shared there anew. */
    vfio_extra_unmap(rig);
    vfio_extra_map(rig, &fresh, VFIO_RIG_RW);
    traffic.received = 0;
    for (unsigned i = 0; i < RIG_TIMEOUT_MS / 10 && !traffic.received; i++) {
        traffic_turn_for(&traffic, 10000);
    }
    g_assert_cmpuint(traffic.received, >, 0);
    traffic_stop(&traffic);
    vfio_rig_free(rig);
    vfio_extra_close(&extra);
    vfio_extra_close(&fresh);
}

static void test_truncated_rings(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    GuestRam *ram = rig->rig.ram;
    GError *err = NULL;
    uint8_t frame[100] = {0};

    rig_expect_working(&rig->rig);
    virtio_driver_notify(rig->rig.virtio, RIG_TX);
    g_assert_cmpint(ftruncate(ram->fd, 0), ==, 0);
    for (unsigned i = 0; i < 50; i++) {
        rig_peer_send(&rig->rig, frame, sizeof(frame));
        virtio_driver_notify(rig->rig.virtio, i % 2 ? RIG_TX : RIG_RX);
    }
    g_usleep(RIG_QUIET_MS * 1000);
    rig_check(&rig->rig);
    /* The file grows again, and the client shares it again. */
    g_assert_cmpint(ftruncate(ram->fd, (off_t)ram->size), ==, 0);
    vfio_user_client_unmap(rig->client, 0, ram->size, &err);
    vfio_user_client_map(rig->client, 0, ram->size, VFIO_RIG_RW, ram->fd, 0, &err);
    vfio_check(err, "map");
    rig_restart(&rig->rig);
    rig_expect_recovery(&rig->rig);
    vfio_rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vfio-user/gone/unmap-under-traffic", test_unmap_under_traffic);
    g_test_add_func("/vfio-user/gone/unmap-rings", test_unmap_rings);
    g_test_add_func("/vfio-user/gone/truncated-buffers", test_truncated_buffers);
    g_test_add_func("/vfio-user/gone/truncated-rings", test_truncated_rings);
    return g_test_run();
}
