/*
 * virtio-net over packed rings, IN_ORDER on both layouts, and reset of single queues, through a
 * whole emulator.  The rules ring by ring are tests/unit/test-virtqueue-*.c's.
 */
#include <string.h>
#include <unistd.h>

#include "tests/lib/launch.h"
#include "tests/lib/packed-driver.h"

#define F_IN_ORDER   35
#define F_RING_RESET 40
#define COMMON_RESET 58 /* virtio 1.2, section 4.1.4.3 */
#define W            VRING_DESC_F_WRITE
#define FRAME        200
#define BUFFER       2048

typedef struct PackedRig {
    Rig *rig;
    PackedQueue *queues[RIG_QUEUES], *rx, *tx, *ctrl;
    uint64_t frame, buffers; /* guest memory */
} PackedRig;

static void set_up_queue(PackedRig *p, unsigned index, uint16_t size)
{
    uint16_t vector = index + 1u < p->rig->virtio->vectors ? (uint16_t)(index + 1) : 0xffff;

    packed_queue_free(p->queues[index]);
    p->queues[index] = packed_queue_new(p->rig->ram, (uint16_t)index, size);
    packed_queue_enable(p->rig->virtio, p->queues[index], vector);
}

/* @args: more arguments, or NULL. */
static PackedRig packed_rig_start(const char *device, const char *const *args, uint64_t features,
                                  uint16_t rx, uint16_t tx, int sndbuf)
{
    PackedRig p = {.rig = rig_open(&(RigConfig){.device = device, .args = args, .sndbuf = sndbuf})};
    GError *err = NULL;

    virtio_driver_negotiate(p.rig->virtio, features | RIG_FEATURE(VIRTIO_F_RING_PACKED), &err);
    g_assert_no_error(err);
    g_assert_true(virtio_driver_has_feature(p.rig->virtio, VIRTIO_F_RING_PACKED));
    virtio_driver_setup_interrupts(p.rig->virtio, 4, &err);
    g_assert_no_error(err);
    set_up_queue(&p, RIG_RX, rx);
    set_up_queue(&p, RIG_TX, tx);
    set_up_queue(&p, RIG_CTRL, 64);
    virtio_driver_start(p.rig->virtio, &err);
    g_assert_no_error(err);
    p.rx = p.queues[RIG_RX];
    p.tx = p.queues[RIG_TX];
    p.ctrl = p.queues[RIG_CTRL];
    p.frame = rig_alloc(p.rig, 64 * BUFFER);
    p.buffers = rig_alloc(p.rig, 64 * BUFFER);
    return p;
}

static PackedRig packed_rig_new(const char *device, uint64_t features, uint16_t rx, uint16_t tx,
                                int sndbuf)
{
    static const char *const iothread[] = {"-object", "iothread,id=t0", NULL};
    bool threaded = strstr(device, "iothread=") != NULL;

    return packed_rig_start(device, threaded ? iothread : NULL, features, rx, tx, sndbuf);
}

static void packed_rig_free(PackedRig *p)
{
    for (unsigned i = 0; i < RIG_QUEUES; i++) {
        packed_queue_free(p->queues[i]);
    }
    rig_free(p->rig);
}

static void notify(PackedRig *p, PackedQueue *queue)
{
    if (packed_queue_wants_notification(queue)) {
        virtio_driver_notify_sync(p->rig->virtio, queue->index);
    }
}

/* A frame of @size bytes as a chain of @parts; it is not notified. */
static void add_frame(PackedRig *p, uint16_t id, size_t size, uint32_t seed, unsigned parts)
{
    uint64_t addr = p->frame + id % 64 * (uint64_t)BUFFER;
    uint8_t *host = rig_at(p->rig, addr, RIG_HDR + size);
    RingPart chain[3] = {
        {addr, RIG_HDR, 0}, {addr + RIG_HDR, 20, 0}, {addr + RIG_HDR + 20, (uint32_t)size - 20, 0}};

    memset(host, 0, RIG_HDR);
    frame_fill(host + RIG_HDR, size, seed);
    if (parts == 1) {
        chain[0].len = (uint32_t)(RIG_HDR + size);
    } else if (parts == 2) {
        chain[1].len = (uint32_t)size;
    }
    packed_queue_add(p->tx, chain, parts, id);
}

static void expect_frame(PackedRig *p, size_t size, uint32_t seed)
{
    uint8_t frame[BUFFER];

    frame_fill(frame, size, seed);
    rig_peer_expect(p->rig, frame, size);
}

static void send_frames(PackedRig *p, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint16_t id;
        uint32_t len;

        add_frame(p, (uint16_t)(i % p->tx->size), 60 + i % 1000, i, 1 + i % 3);
        notify(p, p->tx);
        packed_queue_wait(p->tx, &id, &len);
        g_assert_cmpuint(id, ==, i % p->tx->size);
        expect_frame(p, 60 + i % 1000, i);
    }
}

static void post_buffer(PackedRig *p, uint16_t id, uint32_t size)
{
    packed_queue_add(p->rx, &(RingPart){p->buffers + id * (uint64_t)BUFFER, size, W}, 1, id);
    notify(p, p->rx);
}

static void receive_frames(PackedRig *p, unsigned count)
{
    uint8_t frame[FRAME];

    for (unsigned i = 0; i < count; i++) {
        uint16_t at = (uint16_t)(i % 60), id;
        uint32_t len;

        post_buffer(p, at, BUFFER);
        frame_fill(frame, FRAME, i);
        rig_peer_send(p->rig, frame, FRAME);
        packed_queue_wait(p->rx, &id, &len);
        g_assert_cmpuint(id, ==, at);
        g_assert_cmpuint(len, ==, RIG_HDR + FRAME);
        g_assert_cmpmem(rig_at(p->rig, p->buffers + id * (uint64_t)BUFFER + RIG_HDR, FRAME), FRAME,
                        frame, FRAME);
    }
}

/* --- packed --- */

static void test_frames(gconstpointer event_idx)
{
    PackedRig p = packed_rig_new("packed=on,rx_queue_size=65,tx_queue_size=100",
                                 event_idx ? RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX) : 0, 65, 100, 0);

    send_frames(&p, 400);
    receive_frames(&p, 300);
    packed_rig_free(&p);
}

static void test_indirect(void)
{
    PackedRig p =
        packed_rig_new("packed=on", RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC), 256, 256, 0);
    uint64_t table = rig_alloc(p.rig, 64);
    struct vring_packed_desc *desc = rig_at(p.rig, table, 64);
    uint8_t *host = rig_at(p.rig, p.frame, RIG_HDR + FRAME);

    for (unsigned i = 0; i < 300; i++) {
        uint16_t id;
        uint32_t len;

        frame_fill(host + RIG_HDR, FRAME, i);
        desc[0] = (struct vring_packed_desc){.addr = p.frame, .len = RIG_HDR};
        desc[1] = (struct vring_packed_desc){.addr = p.frame + RIG_HDR, .len = 50};
        desc[2] = (struct vring_packed_desc){.addr = p.frame + RIG_HDR + 50, .len = FRAME - 50};
        packed_queue_add(p.tx, &(RingPart){table, 48, VRING_DESC_F_INDIRECT}, 1, 7);
        notify(&p, p.tx);
        packed_queue_wait(p.tx, &id, &len);
        g_assert_cmpuint(id, ==, 7);
        expect_frame(&p, FRAME, i);
    }
    packed_rig_free(&p);
}

/* A frame spread over three buffers, used together. */
static void test_mergeable(void)
{
    PackedRig p = packed_rig_new("packed=on", RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF), 256, 256, 0);
    uint8_t frame[FRAME];
    uint16_t id;
    uint32_t len;

    for (unsigned turn = 0; turn < 100; turn++) {
        for (uint16_t i = 0; i < 4; i++) {
            post_buffer(&p, i, 80);
        }
        frame_fill(frame, FRAME, turn);
        rig_peer_send(p.rig, frame, FRAME);
        for (uint16_t i = 0; i < 3; i++) {
            packed_queue_wait(p.rx, &id, &len);
            g_assert_cmpuint(id, ==, i);
            g_assert_cmpuint(len, ==, i < 2 ? 80 : RIG_HDR + FRAME - 160);
        }
        g_assert_cmpuint(
            ((struct virtio_net_hdr_v1 *)rig_at(p.rig, p.buffers, RIG_HDR))->num_buffers, ==, 3);
        /* The fourth takes a short frame, and the ring is as before. */
        rig_peer_send(p.rig, frame, 60);
        packed_queue_wait(p.rx, &id, &len);
        g_assert_cmpuint(id, ==, 3);
        g_assert_cmpuint(len, ==, RIG_HDR + 60);
    }
    packed_rig_free(&p);
}

static void test_control(void)
{
    PackedRig p = packed_rig_new(
        "packed=on", RIG_FEATURE(VIRTIO_NET_F_CTRL_VQ) | RIG_FEATURE(VIRTIO_NET_F_CTRL_RX), 256,
        256, 0);
    uint8_t *bytes = rig_at(p.rig, p.frame, 16);
    RingPart parts[] = {{p.frame, 2, 0}, {p.frame + 2, 1, 0}, {p.frame + 3, 1, W}};
    uint16_t id;
    uint32_t len;

    for (unsigned i = 0; i < 200; i++) {
        memcpy(bytes, (uint8_t[]){VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, i & 1, 0xff}, 4);
        packed_queue_add(p.ctrl, parts, 3, 5);
        notify(&p, p.ctrl);
        packed_queue_wait(p.ctrl, &id, &len);
        g_assert_cmpuint(id, ==, 5);
        g_assert_cmpuint(len, ==, 1);
        g_assert_cmpuint(bytes[3], ==, VIRTIO_NET_OK);
    }
    packed_rig_free(&p);
}

/* An interrupt when the third descriptor from now is used, and not before. */
static void test_descriptor_event(void)
{
    PackedRig p = packed_rig_new("packed=on", RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX), 256, 100, 0);
    uint16_t id;
    uint32_t len;

    for (unsigned turn = 0; turn < 60; turn++) {
        virtio_driver_take_interrupt(p.rig->virtio, RIG_TX + 1);
        packed_queue_set_event(p.tx, 2);
        for (unsigned i = 0; i < 4; i++) {
            add_frame(&p, (uint16_t)i, FRAME, i, 1);
            notify(&p, p.tx);
            packed_queue_wait(p.tx, &id, &len);
            expect_frame(&p, FRAME, i);
            rig_settle(p.rig);
            g_assert_cmpint(virtio_driver_take_interrupt(p.rig->virtio, RIG_TX + 1), ==, i == 2);
        }
    }
    packed_rig_free(&p);
}

/* Whatever lies in the rings: the emulator lives, and a reset brings the device back. */
static void test_garbage(void)
{
    PackedRig p = packed_rig_new("packed=on",
                                 RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX) |
                                     RIG_FEATURE(VIRTIO_RING_F_INDIRECT_DESC),
                                 256, 64, 0);
    GRand *rand = g_rand_new_with_seed(1);
    uint8_t frame[FRAME];

    frame_fill(frame, FRAME, 0);
    for (unsigned i = 0; i < 3000; i++) {
        PackedQueue *queue = p.queues[g_rand_int_range(rand, 0, RIG_QUEUES)];
        unsigned slot = (unsigned)g_rand_int_range(rand, 0, queue->size);

        queue->desc[slot] = (struct vring_packed_desc){
            .addr = g_rand_boolean(rand) ? p.frame + (g_rand_int(rand) & 0xfff)
                                         : (uint64_t)g_rand_int(rand) << 16,
            .len = g_rand_boolean(rand) ? g_rand_int(rand) & 0x7ff : g_rand_int(rand),
            .id = (uint16_t)g_rand_int(rand),
            .flags = (uint16_t)g_rand_int(rand),
        };
        *(uint32_t *)(void *)queue->driver = g_rand_int(rand);
        virtio_driver_notify_sync(p.rig->virtio, queue->index);
        if (i % 50 == 0) {
            rig_check(p.rig);
        }
        if (virtio_driver_status(p.rig->virtio) & VIRTIO_CONFIG_S_NEEDS_RESET) {
            break;
        }
    }
    g_rand_free(rand);
    rig_settle(p.rig);
    {
        uint8_t byte[BUFFER];

        while (rig_peer_recv(p.rig, byte, sizeof(byte), RIG_QUIET_MS)) {
        }
    }
    rig_restart(p.rig); /* as a split ring's driver */
    rig_expect_working(p.rig);
    packed_rig_free(&p);
}

/* --- IN_ORDER --- */

static void test_in_order_packed(void)
{
    PackedRig p = packed_rig_new("packed=on,in_order=on", RIG_FEATURE(F_IN_ORDER), 256, 64, 0);
    uint16_t id, first = 0;
    uint32_t len;

    for (unsigned turn = 0; turn < 60; turn++) {
        for (unsigned i = 0; i < 10; i++) {
            add_frame(&p, (uint16_t)((first + i) % 64), FRAME, i, 1 + i % 3);
        }
        virtio_driver_notify_sync(p.rig->virtio, RIG_TX);
        for (unsigned i = 0; i < 10; i++) {
            expect_frame(&p, FRAME, i);
        }
        rig_settle(p.rig);
        /* All ten by one used descriptor. */
        g_assert_true(packed_queue_take_in_order(p.tx, first, &id, &len));
        g_assert_cmpuint(id, ==, (first + 9) % 64);
        g_assert_false(packed_queue_take(p.tx, &id, &len));
        first = (uint16_t)((first + 10) % 64);
        receive_frames(&p, 3);
    }
    packed_rig_free(&p);
}

/* Many buffers posted: the device pops ahead and gives back what it does not need. */
static void test_in_order_receive(void)
{
    PackedRig p =
        packed_rig_new("packed=on,in_order=on",
                       RIG_FEATURE(F_IN_ORDER) | RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF), 64, 64, 0);
    uint16_t posted = 0, first = 0, id = 0;
    unsigned room = 64;
    uint8_t frame[FRAME];
    uint32_t len;

    for (unsigned turn = 0; turn < 200; turn++) {
        gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;
        unsigned got = 0;

        for (; room > 4; room--, posted++) {
            post_buffer(&p, posted % 64, 100);
        }
        /* Three buffers a frame: the first two are written whole, and come with the third. */
        frame_fill(frame, FRAME, turn);
        rig_peer_send(p.rig, frame, FRAME);
        while (got < 3) {
            uint16_t before = first;

            g_assert_cmpint(g_get_monotonic_time(), <, deadline);
            if (packed_queue_take_in_order(p.rx, first % 64, &id, &len)) {
                first = (uint16_t)(first + ((id - first) & 63) + 1);
                got += (uint16_t)(first - before);
                g_assert_cmpuint(len, ==, got < 3 ? 100 : RIG_HDR + FRAME - 200);
            }
        }
        g_assert_cmpuint(got, ==, 3);
        room += 3;
    }
    packed_rig_free(&p);
}

static void test_in_order_split(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "in_order=on", .features = RIG_FEATURE(F_IN_ORDER)});
    uint64_t addr = rig_alloc(rig, RIG_HDR + FRAME);
    uint8_t frame[FRAME];
    uint16_t at = 0;

    g_assert_true(virtio_driver_has_feature(rig->virtio, F_IN_ORDER));
    frame_fill(frame, FRAME, 1);
    memcpy(rig_at(rig, addr + RIG_HDR, FRAME), frame, FRAME);
    for (unsigned turn = 0; turn < 100; turn++) {
        const struct vring_used_elem *entry =
            &rig->tx->used->ring[rig->tx->used_next % rig->tx->size];

        for (unsigned i = 0; i < 7; i++) {
            ring_set(rig->tx, at, addr, RIG_HDR + FRAME, 0, 0);
            ring_offer(rig->tx, at);
            at = (uint16_t)((at + 1) % rig->tx->size);
        }
        ring_publish(rig->tx);
        virtio_driver_notify_sync(rig->virtio, RIG_TX);
        g_assert_true(ring_wait_used(rig, rig->tx, 7, RIG_TIMEOUT_MS));
        /* One entry, at the place of the first, naming the last. */
        g_assert_cmpuint(entry->id, ==, (at + rig->tx->size - 1u) % rig->tx->size);
        rig->tx->used_next = (uint16_t)(rig->tx->used_next + 7);
        for (unsigned i = 0; i < 7; i++) {
            rig_peer_expect(rig, frame, FRAME);
        }
    }
    rig_free(rig);
}

/* The platform's DMA addresses are the physical ones. */
static void test_access_platform(void)
{
    Rig *rig = rig_new(&(RigConfig){.device = "iommu_platform=on,disable-legacy=on",
                                    .features = RIG_FEATURE(VIRTIO_F_ACCESS_PLATFORM)});

    g_assert_true(virtio_driver_has_feature(rig->virtio, VIRTIO_F_ACCESS_PLATFORM));
    rig_expect_working(rig);
    rig_free(rig);
}

/* --- reset of a queue --- */

static void reset_queue(PackedRig *p, unsigned index)
{
    guest_pci_bar_write(p->rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_SELECT, index);
    guest_pci_bar_write(p->rig->pci, 4, 2, COMMON_RESET, 1);
    g_assert_cmpuint(guest_pci_bar_read(p->rig->pci, 4, 2, COMMON_RESET), ==, 0);
    g_assert_cmpuint(guest_pci_bar_read(p->rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_ENABLE), ==, 0);
}

/* Each queue in turn, to ever new sizes, while the other works. */
static void test_reset_sizes(gconstpointer device)
{
    static const uint16_t sizes[] = {64, 3, 100, 1, 256, 17};
    PackedRig p = packed_rig_new(device, RIG_FEATURE(F_RING_RESET), 256, 256, 0);

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        reset_queue(&p, RIG_TX);
        receive_frames(&p, 5);
        set_up_queue(&p, RIG_TX, sizes[i]);
        p.tx = p.queues[RIG_TX];
        for (unsigned n = 0; n < 20; n++) {
            uint16_t id;
            uint32_t len;

            add_frame(&p, 0, FRAME, n, 1);
            notify(&p, p.tx);
            packed_queue_wait(p.tx, &id, &len);
            expect_frame(&p, FRAME, n);
        }
        /* With buffers posted, which go with the queue. */
        post_buffer(&p, 61, BUFFER);
        post_buffer(&p, 62, BUFFER);
        reset_queue(&p, RIG_RX);
        set_up_queue(&p, RIG_RX, (uint16_t)(64 + i * 13));
        p.rx = p.queues[RIG_RX];
        receive_frames(&p, 70);
    }
    packed_rig_free(&p);
}

/* Frames that the peer does not take are parked in the device; the reset drops them, and nothing
 * of the old ring is touched any more. */
static void test_reset_in_flight(gconstpointer device)
{
    PackedRig p = packed_rig_new(device, RIG_FEATURE(F_RING_RESET), 256, 64, 4096);
    g_autofree uint8_t *before = NULL;
    uint8_t frame[BUFFER];
    uint16_t id;
    uint32_t len;
    size_t size = 64 * sizeof(struct vring_packed_desc);
    PackedQueue old;

    for (uint16_t i = 0; i < 60; i++) {
        add_frame(&p, i, 1500, i, 1);
    }
    notify(&p, p.tx);
    rig_settle(p.rig);
    reset_queue(&p, RIG_TX);
    old = *p.tx;
    before = g_memdup2(old.desc, size);
    receive_frames(&p, 10);
    set_up_queue(&p, RIG_TX, 32);
    p.tx = p.queues[RIG_TX];
    add_frame(&p, 31, FRAME, 0xabcdef, 1);
    notify(&p, p.tx);
    /* What had left before the reset comes first; then the new frame. */
    do {
        g_assert_cmpuint(rig_peer_recv(p.rig, frame, sizeof(frame), RIG_TIMEOUT_MS), >, 0);
    } while (frame[14] != 0xef || frame[15] != 0xcd || frame[16] != 0xab);
    packed_queue_wait(p.tx, &id, &len);
    g_assert_cmpuint(id, ==, 31);
    g_assert_cmpmem(old.desc, size, before, size);
    rig_peer_expect_nothing(p.rig);
    packed_rig_free(&p);
}

/* --- migration --- */

#define MIGRATE "packed=on,rx_queue_size=100,tx_queue_size=100"

/* The driver of @to, which set its rings up at the same places, goes on where @from was. */
static void hand_over(const PackedRig *from, PackedRig *to)
{
    for (unsigned i = 0; i < RIG_QUEUES; i++) {
        PackedQueue *queue = to->queues[i];
        const PackedQueue *before = from->queues[i];

        g_assert_cmphex(queue->desc_addr, ==, before->desc_addr);
        queue->next = before->next;
        queue->used = before->used;
        queue->wrap = before->wrap;
        queue->used_wrap = before->used_wrap;
        queue->checked = before->checked;
        queue->checked_wrap = before->checked_wrap;
        memcpy(queue->slots, before->slots, queue->size * sizeof(*queue->slots));
    }
}

/* Rings of sizes of their own, which have wrapped, with frames that the device has not seen. */
static void test_migrate(void)
{
    static const char *const incoming[] = {"-incoming", "defer", NULL};
    g_autofree char *folder = g_dir_make_tmp("virtio-packed-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(folder, "stream", NULL), *message = NULL;
    PackedRig from = packed_rig_new(MIGRATE, 0, 70, 50, 0), to;
    Emulator *e = from.rig->emulator;
    uint16_t id;
    uint32_t len;

    send_frames(&from, 77);
    launch_do(e, "stop", NULL);
    for (uint16_t i = 0; i < 3; i++) {
        add_frame(&from, i, 100u + i, 1000u + i, 2);
    }
    notify(&from, from.tx);
    launch_do(e, "migrate", "{'uri': 'file:%s'}", path);
    launch_wait_migrated(e);
    rig_peer_expect_nothing(from.rig);

    to = packed_rig_start(MIGRATE, incoming, 0, 70, 50, 0);
    e = to.rig->emulator;
    launch_do(e, "migrate-set-parameters", "{'announce-rounds': 0}");
    launch_do(e, "migrate-incoming", "{'uri': 'file:%s'}", path);
    launch_wait_migrated(e);
    hand_over(&from, &to);
    launch_do(e, "cont", NULL);
    for (uint16_t i = 0; i < 3; i++) {
        packed_queue_wait(to.tx, &id, &len);
        g_assert_cmpuint(id, ==, i);
        expect_frame(&to, 100u + i, 1000u + i);
    }
    send_frames(&to, 77);
    packed_rig_free(&to);
    packed_rig_free(&from);

    /* One that has no packed rings. */
    Rig *other = rig_open(&(RigConfig){.args = incoming});
    launch_do(other->emulator, "migrate-incoming", "{'uri': 'file:%s', 'exit-on-error': false}",
              path);
    message = launch_wait_migration_failed(other->emulator);
    g_assert_nonnull(strstr(message, "0000:00:04.0/virtio-net: Features 0x"));
    rig_free(other);
    unlink(path);
    rmdir(folder);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/virtio-packed/frames/plain", NULL, test_frames);
    g_test_add_data_func("/virtio-packed/frames/event-idx", "event-idx", test_frames);
    g_test_add_func("/virtio-packed/indirect", test_indirect);
    g_test_add_func("/virtio-packed/mergeable", test_mergeable);
    g_test_add_func("/virtio-packed/control", test_control);
    g_test_add_func("/virtio-packed/descriptor-event", test_descriptor_event);
    g_test_add_func("/virtio-packed/garbage", test_garbage);
    g_test_add_func("/virtio-access-platform", test_access_platform);
    g_test_add_func("/virtio-in-order/packed", test_in_order_packed);
    g_test_add_func("/virtio-in-order/receive", test_in_order_receive);
    g_test_add_func("/virtio-in-order/split", test_in_order_split);
    g_test_add_data_func("/virtio-queue-reset/new-sizes", "packed=on", test_reset_sizes);
    g_test_add_data_func("/virtio-queue-reset/new-sizes/iothread", "packed=on,iothread=t0",
                         test_reset_sizes);
    g_test_add_data_func("/virtio-queue-reset/in-flight", "packed=on", test_reset_in_flight);
    g_test_add_data_func("/virtio-queue-reset/in-flight/iothread", "packed=on,iothread=t0",
                         test_reset_in_flight);
    g_test_add_func("/virtio-packed/migrate", test_migrate);
    return g_test_run();
}
