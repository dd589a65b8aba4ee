/*
 * The test rig: see rig.h.  Frames on the peer socket have QEMU's framing, a 32-bit big-endian
 * length in front.
 */
#include "tests/lib/rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define INBOX_MAX (1 << 20)
#define ALL_MSIX  4 /* configuration, receive, transmit, control */

const char *rig_binary(void)
{
    const char *binary = g_getenv("SWNIC_BINARY");

    if (!binary || !*binary) {
        g_error("SWNIC_BINARY must name the emulator to test");
    }
    return binary;
}

static void fail_on(GError *err, const char *what)
{
    if (err) {
        g_error("%s: %s", what, err->message);
    }
}

static void peer_open(Rig *rig, int fds[2])
{
    int size = rig->config.sndbuf;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
        g_error("socketpair: %s", g_strerror(errno));
    }
    if (size && setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0) {
        g_error("SO_SNDBUF: %s", g_strerror(errno));
    }
    rig->peer = fds[0];
    rig->inbox = g_malloc(INBOX_MAX);
}

static void emulator_open(Rig *rig)
{
    GError *err = NULL;
    const RigConfig *config = &rig->config;
    int fds[2] = {-1, -1};
    int inherit[] = {-1, -1};
    EmulatorOptions options = {.command = rig_binary(), .ram_size = RIG_RAM_SIZE};
    g_autoptr(GPtrArray) args = g_ptr_array_new();
    g_autofree char *netdev = NULL, *device = NULL;

    rig->is_swnic = emulator_command_is_swnic(options.command, NULL);
    options.accel = rig->is_swnic ? "qtest" : "tcg";
    options.halt_bios = !rig->is_swnic;
    g_ptr_array_add(args, (char *)"-nodefaults");
    if (config->netdev) {
        options.inherit_fds = config->inherit_fds;
        g_ptr_array_add(args, (char *)"-netdev");
        g_ptr_array_add(args, (char *)config->netdev);
    } else if (!config->no_peer) {
        peer_open(rig, fds);
        inherit[0] = fds[1];
        options.inherit_fds = inherit;
        netdev = g_strdup_printf("socket,fd=%d,id=n0", fds[1]);
        g_ptr_array_add(args, (char *)"-netdev");
        g_ptr_array_add(args, netdev);
    }
    device =
        g_strdup_printf("virtio-net-pci,id=nic0,addr=04.0,romfile=,mac=52:54:00:12:34:56%s%s%s",
                        config->no_peer ? "" : ",netdev=n0", config->device ? "," : "",
                        config->device ? config->device : "");
    g_ptr_array_add(args, (char *)"-device");
    g_ptr_array_add(args, device);
    for (const char *const *arg = config->args; arg && *arg; arg++) {
        g_ptr_array_add(args, (char *)*arg);
    }
    g_ptr_array_add(args, NULL);
    options.arguments = (const char *const *)args->pdata;
    rig->emulator = emulator_start(&options, &err);
    fail_on(err, "emulator");
    if (fds[1] >= 0) {
        close(fds[1]);
    }
    rig->qtest = rig->emulator->qtest;
    rig->qmp = rig->emulator->qmp;
    rig->ram = rig->emulator->ram;
}

Rig *rig_open(const RigConfig *config)
{
    Rig *rig = g_new0(Rig, 1);
    GError *err = NULL;

    if (config) {
        rig->config = *config;
    }
    rig->peer = -1;
    emulator_open(rig);
    guest_ram_reset(rig->ram);
    guest_pci_bus_init(&rig->bus, rig->qtest);
    rig->pci = guest_pci_device_open(&rig->bus, RIG_DEVFN, &err);
    fail_on(err, "00:04.0");
    if (rig->config.raw) {
        guest_pci_device_enable(rig->pci, &err);
    } else {
        rig->virtio = virtio_driver_new(rig->pci, rig->ram, &err);
    }
    fail_on(err, "virtio device");
    return rig;
}

void rig_start(Rig *rig)
{
    GError *err = NULL;
    const RigConfig *config = &rig->config;
    uint16_t sizes[RIG_QUEUES] = {config->rx_size, config->tx_size, 0};

    virtio_driver_negotiate(
        rig->virtio,
        config->features | RIG_FEATURE(VIRTIO_NET_F_MAC) | RIG_FEATURE(VIRTIO_NET_F_STATUS), &err);
    fail_on(err, "negotiation");
    if (!config->intx) {
        virtio_driver_setup_interrupts(rig->virtio, ALL_MSIX, &err);
        fail_on(err, "MSI-X");
    }
    for (uint16_t i = 0; i < RIG_QUEUES && i < rig->virtio->queue_count; i++) {
        uint16_t vector = i + 1u < rig->virtio->vectors ? i + 1 : 0xffff;

        driver_queue_free(rig->queues[i]);
        rig->queues[i] = virtio_driver_setup_queue(rig->virtio, i, sizes[i], vector, &err);
        fail_on(err, "queue");
    }
    rig->rx = rig->queues[RIG_RX];
    rig->tx = rig->queues[RIG_TX];
    virtio_driver_start(rig->virtio, &err);
    fail_on(err, "DRIVER_OK");
}

Rig *rig_new(const RigConfig *config)
{
    Rig *rig = rig_open(config);

    rig_start(rig);
    return rig;
}

void rig_restart(Rig *rig)
{
    GError *err = NULL;

    virtio_driver_reset(rig->virtio, &err);
    fail_on(err, "reset");
    virtio_driver_set_status(rig->virtio, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
    rig_start(rig);
}

static void rig_release(Rig *rig)
{
    g_free(rig->pci);
    for (unsigned i = 0; i < RIG_QUEUES; i++) {
        driver_queue_free(rig->queues[i]);
    }
    if (rig->peer >= 0) {
        close(rig->peer);
    }
    g_free(rig->inbox);
    g_free(rig);
}

void rig_free(Rig *rig)
{
    GError *err = NULL;

    rig_check(rig);
    virtio_driver_free(rig->virtio);
    emulator_stop(rig->emulator, &err);
    fail_on(err, "quit");
    rig_release(rig);
}

bool rig_free_ended(Rig *rig)
{
    GError *err = NULL;
    bool ok;

    /* Tell the driver that nobody answers any more. */
    shutdown(qtest_client_fd(rig->qtest), SHUT_RDWR);
    qtest_client_in(rig->qtest, 4, 0xcf8);
    qtest_client_check(rig->qtest, NULL);
    virtio_driver_free(rig->virtio);
    ok = emulator_stop(rig->emulator, &err);
    if (err) {
        g_test_message("%s", err->message);
        g_error_free(err);
    }
    rig_release(rig);
    return ok;
}

/* Bottom halves that a request scheduled run before the next request is read. */
void rig_settle(Rig *rig)
{
    for (unsigned i = 0; i < 3; i++) {
        qtest_client_in(rig->qtest, 4, 0xcf8);
    }
    rig_check(rig);
}

void rig_check(Rig *rig)
{
    GError *err = NULL;

    qtest_client_check(rig->qtest, &err);
    fail_on(err, "qtest");
    if (!emulator_is_alive(rig->emulator)) {
        g_error("the emulator has ended");
    }
}

uint64_t rig_alloc(Rig *rig, size_t size)
{
    uint64_t addr = guest_ram_alloc(rig->ram, size, 64);

    if (!addr) {
        g_error("guest RAM is used up");
    }
    return addr;
}

void *rig_at(Rig *rig, uint64_t addr, size_t size)
{
    void *host = guest_ram_pointer(rig->ram, addr, size);

    g_assert_nonnull(host);
    return host;
}

/* --- the peer --- */

void rig_peer_send(Rig *rig, const void *frame, size_t size)
{
    uint32_t length = htonl((uint32_t)size);
    g_autofree uint8_t *bytes = g_malloc(size + 4);
    size_t done = 0;

    memcpy(bytes, &length, 4);
    memcpy(bytes + 4, frame, size);
    while (done < size + 4) {
        ssize_t n = send(rig->peer, bytes + done, size + 4 - done, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR) {
            g_error("peer: %s", g_strerror(errno));
        }
        done += n > 0 ? (size_t)n : 0;
    }
}

/* A whole frame from the inbox, if there is one. */
static size_t inbox_take(Rig *rig, void *frame, size_t size)
{
    uint32_t length;

    if (rig->inbox_size < 4) {
        return 0;
    }
    memcpy(&length, rig->inbox, 4);
    length = ntohl(length);
    if (length == 0 || length > INBOX_MAX / 2) {
        g_error("peer: a frame of %u bytes", length);
    }
    if (rig->inbox_size < 4 + length) {
        return 0;
    }
    memcpy(frame, rig->inbox + 4, MIN(size, length));
    rig->inbox_size -= 4 + length;
    memmove(rig->inbox, rig->inbox + 4 + length, rig->inbox_size);
    return length;
}

size_t rig_peer_recv(Rig *rig, void *frame, size_t size, unsigned ms)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)ms * 1000;

    for (;;) {
        size_t length = inbox_take(rig, frame, size);
        gint64 left = (deadline - g_get_monotonic_time()) / 1000;
        struct pollfd pfd = {.fd = rig->peer, .events = POLLIN};
        ssize_t n;

        if (length) {
            return length;
        }
        if (poll(&pfd, 1, (int)MAX(left, 0)) <= 0) {
            return 0;
        }
        n = read(rig->peer, rig->inbox + rig->inbox_size, INBOX_MAX - rig->inbox_size);
        if (n <= 0) {
            g_error("peer: the emulator closed the socket");
        }
        rig->inbox_size += (size_t)n;
    }
}

void rig_peer_expect(Rig *rig, const void *frame, size_t size)
{
    g_autofree uint8_t *got = g_malloc(INBOX_MAX);
    size_t length = rig_peer_recv(rig, got, INBOX_MAX, RIG_TIMEOUT_MS);

    g_assert_cmpmem(got, length, frame, size);
}

void rig_peer_expect_nothing(Rig *rig)
{
    uint8_t byte;

    rig_settle(rig);
    g_assert_cmpuint(rig_peer_recv(rig, &byte, 1, RIG_QUIET_MS), ==, 0);
}

void frame_fill(uint8_t *frame, size_t size, uint32_t seed)
{
    static const uint8_t header[14] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x02,
                                       0,    0,    0,    0,    1,    0x88, 0xb5};

    memcpy(frame, header, MIN(size, sizeof(header)));
    for (size_t i = sizeof(header); i < size; i++) {
        frame[i] = (uint8_t)(i * 7 + seed + (i >> 8) * 13);
    }
    for (size_t i = 0; i < 4 && sizeof(header) + i < size; i++) {
        frame[sizeof(header) + i] = (uint8_t)(seed >> (8 * i));
    }
}

/* --- rings --- */

void ring_set(DriverQueue *queue, uint16_t at, uint64_t addr, uint32_t len, uint16_t flags,
              uint16_t next)
{
    queue->desc[at] = (struct vring_desc){.addr = addr, .len = len, .flags = flags, .next = next};
}

static void write_parts(struct vring_desc *table, uint16_t first, const RingPart *parts,
                        unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        bool more = i + 1 < count;

        table[i] = (struct vring_desc){
            .addr = parts[i].addr,
            .len = parts[i].len,
            .flags = (uint16_t)(parts[i].flags | (more ? VRING_DESC_F_NEXT : 0)),
            .next = more ? (uint16_t)(first + i + 1) : 0,
        };
    }
}

void ring_chain(DriverQueue *queue, uint16_t at, const RingPart *parts, unsigned count)
{
    g_assert_cmpuint(at + count, <=, queue->size);
    write_parts(queue->desc + at, at, parts, count);
}

void ring_indirect(DriverQueue *queue, uint16_t at, uint64_t table, const RingPart *parts,
                   unsigned count)
{
    uint32_t size = count * (uint32_t)sizeof(struct vring_desc);

    write_parts(guest_ram_pointer(queue->ram, table, size), 0, parts, count);
    ring_set(queue, at, table, size, VRING_DESC_F_INDIRECT, 0);
}

void ring_offer(DriverQueue *queue, uint16_t head)
{
    __atomic_store_n(&queue->avail->ring[queue->avail_next % queue->size], head, __ATOMIC_RELAXED);
    queue->avail_next++;
}

void ring_publish(DriverQueue *queue)
{
    __atomic_store_n(&queue->avail->idx, queue->avail_next, __ATOMIC_RELEASE);
    queue->avail_published = queue->avail_next;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void ring_send(Rig *rig, DriverQueue *queue, uint16_t head)
{
    ring_offer(queue, head);
    ring_publish(queue);
    virtio_driver_notify_sync(rig->virtio, queue->index);
}

uint16_t ring_used_count(const DriverQueue *queue)
{
    return (uint16_t)(__atomic_load_n(&queue->used->idx, __ATOMIC_ACQUIRE) - queue->used_next);
}

bool ring_wait_used(Rig *rig, DriverQueue *queue, uint16_t count, unsigned ms)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)ms * 1000;

    while (ring_used_count(queue) < count) {
        if (g_get_monotonic_time() > deadline) {
            return false;
        }
        g_usleep(50);
    }
    return true;
}

struct vring_used_elem ring_take(Rig *rig, DriverQueue *queue)
{
    if (!ring_wait_used(rig, queue, 1, RIG_TIMEOUT_MS)) {
        g_error("queue %u: no used entry after %d ms", queue->index, RIG_TIMEOUT_MS);
    }
    return queue->used->ring[queue->used_next++ % queue->size];
}

void rig_send_frame(Rig *rig, uint16_t at, const uint8_t *frame, size_t size)
{
    uint64_t addr = rig_alloc(rig, RIG_HDR + size);
    struct vring_used_elem used;

    memcpy(rig_at(rig, addr + RIG_HDR, size), frame, size);
    ring_set(rig->tx, at, addr, (uint32_t)(RIG_HDR + size), 0, 0);
    ring_send(rig, rig->tx, at);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, at);
}

uint64_t rig_post_buffer(Rig *rig, uint16_t at, uint32_t size)
{
    uint64_t addr = rig_alloc(rig, size);

    ring_set(rig->rx, at, addr, size, VRING_DESC_F_WRITE, 0);
    ring_send(rig, rig->rx, at);
    return addr;
}

void rig_expect_working(Rig *rig)
{
    static uint32_t seed = 0xabc00000;
    uint8_t frame[100];
    struct vring_used_elem used;
    uint64_t addr;
    uint16_t at = rig->tx->size - 1;

    frame_fill(frame, sizeof(frame), seed++);
    rig_send_frame(rig, at, frame, sizeof(frame));
    rig_peer_expect(rig, frame, sizeof(frame));

    at = rig->rx->size - 1;
    addr = rig_post_buffer(rig, at, 2048);
    rig_peer_send(rig, frame, sizeof(frame));
    used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.id, ==, at);
    g_assert_cmpuint(used.len, ==, RIG_HDR + sizeof(frame));
    g_assert_cmpmem(rig_at(rig, addr + RIG_HDR, sizeof(frame)), sizeof(frame), frame,
                    sizeof(frame));
    rig_check(rig);
}

void rig_expect_recovery(Rig *rig)
{
    uint8_t drop[2048];

    rig_settle(rig);
    rig_restart(rig);
    while (rig_peer_recv(rig, drop, sizeof(drop), RIG_QUIET_MS)) {
    }
    do {
        rig_post_buffer(rig, 0, 2048);
    } while (ring_wait_used(rig, rig->rx, 1, RIG_QUIET_MS) && rig->rx->used_next++ < 1000);
    rig_restart(rig);
    rig_expect_working(rig);
}
