/*
 * Rings that change while the device reads them: another thread flips descriptors, and the
 * available index, as fast as it can.  The device reads each field once, so it sees good chains
 * and bad ones, and nothing in between; whatever it sees, it works afterwards.
 */
#include <poll.h>
#include <pthread.h>

#include "tests/lib/rig.h"

#define BAD 0 /* head of the chain that changes */
#define ALL_FEATURES                                                                               \
    (RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC) | RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF))

typedef struct Attack {
    Rig *rig;
    DriverQueue *queue;
    uint16_t dir;    /* VRING_DESC_F_WRITE on the RX queue */
    uint64_t memory; /* 64 KiB of guest memory to point at */
} Attack;

static void attack_init(Attack *a, Rig *rig, uint16_t index)
{
    *a = (Attack){.rig = rig,
                  .queue = rig->queues[index],
                  .dir = index == RIG_RX ? VRING_DESC_F_WRITE : 0,
                  .memory = rig_alloc(rig, 65536)};
}

typedef struct Flipper {
    Attack *attack;
    bool stop;
} Flipper;

/* Flips each field of the chain between good and bad as fast as it can. */
static void *flip(void *opaque)
{
    Flipper *f = opaque;
    DriverQueue *queue = f->attack->queue;
    struct vring_desc *table = rig_at(f->attack->rig, f->attack->memory + 4096, 4096);
    uint16_t dir = f->attack->dir;
    uint64_t good = f->attack->memory + 8192;

    for (uint32_t i = 0; !__atomic_load_n(&f->stop, __ATOMIC_RELAXED); i++) {
        struct vring_desc *descs[2] = {&queue->desc[BAD], &table[0]};
        struct vring_desc *desc = descs[i / 7 % 2];

        __atomic_store_n(&desc->addr, i % 3 ? good : UINT64_MAX - i, __ATOMIC_RELAXED);
        __atomic_store_n(&desc->len, i % 5 ? 64u : i * 2654435761u, __ATOMIC_RELAXED);
        __atomic_store_n(&desc->flags, (uint16_t)(dir ^ (i % 11)), __ATOMIC_RELAXED);
        __atomic_store_n(&desc->next, (uint16_t)(i % 4 ? BAD + 1 : i), __ATOMIC_RELAXED);
        __atomic_store_n(&descs[0]->addr, i % 2 ? good : f->attack->memory + 4096,
                         __ATOMIC_RELAXED);
    }
    return NULL;
}

static void run_changing(uint16_t index)
{
    Rig *rig = rig_new(&(RigConfig){.features = ALL_FEATURES});
    uint8_t bytes[4096];
    pthread_t thread;
    Flipper f = {0};
    Attack a;
    gint64 end = g_get_monotonic_time() + 1500 * 1000;

    attack_init(&a, rig, index);
    f.attack = &a;
    ring_set(a.queue, BAD + 1, a.memory, 64, a.dir, 0);
    g_assert_cmpint(pthread_create(&thread, NULL, flip, &f), ==, 0);
    while (g_get_monotonic_time() < end) {
        a.queue->used_next = __atomic_load_n(&a.queue->used->idx, __ATOMIC_ACQUIRE);
        /* No more than the ring holds: an index jump would be another attack. */
        for (unsigned i = 0;
             i < 16 && (uint16_t)(a.queue->avail_next - a.queue->used_next) < a.queue->size; i++) {
            ring_offer(a.queue, BAD);
        }
        ring_publish(a.queue);
        virtio_driver_notify_sync(rig->virtio, index);
        /* The device takes no more frames than fit into the chains that happened to be good. */
        if (index == RIG_RX && poll(&(struct pollfd){.fd = rig->peer, .events = POLLOUT}, 1, 0)) {
            frame_fill(bytes, 60, 1);
            rig_peer_send(rig, bytes, 60);
        }
        while (rig_peer_recv(rig, bytes, sizeof(bytes), 0)) {
        }
        rig_check(rig);
        if (virtio_driver_status(rig->virtio) & VIRTIO_CONFIG_S_NEEDS_RESET) {
            g_assert_false(rig->is_swnic); /* only chains were bad */
            break;
        }
    }
    __atomic_store_n(&f.stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    rig_expect_recovery(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_changing_tx(void)
{
    run_changing(RIG_TX);
}

static void test_changing_rx(void)
{
    run_changing(RIG_RX);
}

/* The available index changes all the time: whatever the device sees, it does not loop for ever. */
static void *flip_index(void *opaque)
{
    Flipper *f = opaque;

    for (uint16_t i = 0; !__atomic_load_n(&f->stop, __ATOMIC_RELAXED); i++) {
        __atomic_store_n(&f->attack->queue->avail->idx, i, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void test_index_runs_away(void)
{
    Rig *rig = rig_new(&(RigConfig){.features = ALL_FEATURES});
    pthread_t thread;
    Flipper f = {0};
    Attack a;

    attack_init(&a, rig, RIG_TX);
    f.attack = &a;
    for (uint16_t i = 0; i < a.queue->size; i++) {
        ring_set(a.queue, i, a.memory, 64, 0, 0);
        a.queue->avail->ring[i] = i;
    }
    g_assert_cmpint(pthread_create(&thread, NULL, flip_index, &f), ==, 0);
    for (unsigned i = 0; i < 200; i++) {
        uint8_t bytes[256];

        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        while (rig_peer_recv(rig, bytes, sizeof(bytes), 0)) {
        }
        rig_check(rig);
    }
    __atomic_store_n(&f.stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    rig_expect_recovery(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/race/tx-descriptors", test_changing_tx);
    g_test_add_func("/race/rx-descriptors", test_changing_rx);
    g_test_add_func("/race/available-index", test_index_runs_away);
    return g_test_run();
}
