/*
 * The client's memory: DMA regions right and wrong, their permissions, memory without an fd,
 * dirty pages, and regions that go away under traffic, announced or not.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/vfio-user-rig.h"

#define PAGE  4096ull
#define READ  VFIO_USER_DMA_READABLE
#define WRITE VFIO_USER_DMA_WRITABLE

/* --- regions --- */

typedef struct MapCase {
    uint64_t addr, size, offset;
    uint32_t flags;
    int error;
} MapCase;

static void try_map(VfioUserClient *client, const MapCase *c, int fd)
{
    const VfioUserDmaMap request = {.argsz = sizeof(request),
                                    .flags = c->flags,
                                    .offset = c->offset,
                                    .address = c->addr,
                                    .size = c->size};

    vfio_expect(client, VFIO_USER_DMA_MAP, &request, sizeof(request), &fd, fd >= 0, c->error);
}

static void try_unmap(VfioUserClient *client, uint64_t addr, uint64_t size, uint32_t flags,
                      int error)
{
    const VfioUserDmaUnmap request = {
        .argsz = sizeof(request), .flags = flags, .address = addr, .size = size};

    vfio_expect(client, VFIO_USER_DMA_UNMAP, &request, sizeof(request), NULL, 0, error);
}

static void test_map_cases(void)
{
    const MapCase cases[] = {
        {0x100000, 0x10000, 0, READ | WRITE, 0},
        {0x100000, 0x10000, 0, READ | WRITE, EEXIST}, /* the same again */
        {0x10f000, 0x1000, 0, READ | WRITE, EEXIST},  /* its last page */
        {0xff000, 0x2000, 0, READ | WRITE, EEXIST},   /* over its start */
        {0xff000, 0x20000, 0, READ | WRITE, EEXIST},  /* all around it */
        {0x108000, 0x10000, 0, READ | WRITE, EEXIST}, /* over its end */
        {0x110000, 0x1000, 0x3000, READ, 0},          /* beside it */
        {0xff000, 0x1000, 0, WRITE, 0},               /* and before */
        {0x200000, 0, 0, READ, EINVAL},
        {0x200001, 0x1000, 0, READ, EINVAL},
        {0x200000, 0x1001, 0, READ, EINVAL},
        {0x200000, 0x1000, 0x10, READ, EINVAL},
        {0x200000, 0x1000, 0, READ | 4, EINVAL},
        {0x200000, 0x11000, 0, READ, EINVAL}, /* more than the file has */
        {0x200000, 0x1000, 0x10000, READ, EINVAL},
        {0x200000, 0x1000, -PAGE, READ, EINVAL}, /* offset + size wraps */
        {-PAGE, PAGE, 0, READ, EINVAL},
        {-2 * PAGE, 4 * PAGE, 0, READ, EINVAL},
        {-2 * PAGE, PAGE, 0, READ, 0},
        {UINT64_MAX / 2 + 1, UINT64_MAX / 2 + 1, 0, READ, EINVAL},
    };
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    int fd = vfio_memfd(0x10000), two[2] = {fd, fd}, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const VfioUserDmaMap small = {.argsz = 31, .flags = READ, .address = 0x300000, .size = PAGE},
                         more = {.argsz = 32, .flags = READ, .address = 0x300000, .size = PAGE};

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        try_map(client, &cases[i], fd);
    }
    vfio_expect(client, VFIO_USER_DMA_MAP, &small, sizeof(small), &fd, 1, EINVAL);
    vfio_expect(client, VFIO_USER_DMA_MAP, &more, sizeof(more), two, 2, EINVAL);
    vfio_expect(client, VFIO_USER_DMA_MAP, &more, sizeof(more), &null, 1, ENODEV);
    /* Without an fd the offset means nothing. */
    try_map(client, &(MapCase){0x400000, PAGE, 0x123, READ | WRITE, 0}, -1);
    try_map(client, &(MapCase){0x401000, PAGE, 0, 0, 0}, -1);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
    close(fd);
    close(null);
}

static void test_unmap_cases(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    int fd = vfio_memfd(0x10000);

    for (uint64_t i = 0; i < 4; i++) {
        try_map(client, &(MapCase){0x100000 + i * 0x10000, 0x10000, 0, READ | WRITE, 0}, fd);
    }
    try_unmap(client, 0x100000, 0x8000, 0, ENOENT); /* a part */
    try_unmap(client, 0x108000, 0x8000, 0, ENOENT);
    try_unmap(client, 0x100000, 0x20000, 0, ENOENT); /* two at once */
    try_unmap(client, 0x500000, 0x1000, 0, ENOENT);
    try_unmap(client, 0, 0, 0, ENOENT);
    try_unmap(client, 0x100000, 0x10000, 8, EINVAL);
    try_unmap(client, 0x110000, 0x10000, 0, 0);
    try_unmap(client, 0x110000, 0x10000, 0, ENOENT);
    try_map(client, &(MapCase){0x110000, 0x10000, 0, READ, 0}, fd);
    try_unmap(client, 0x1000, 0, VFIO_DMA_UNMAP_FLAG_ALL, EINVAL);
    try_unmap(client, 0, 0, VFIO_DMA_UNMAP_FLAG_ALL, 0);
    try_unmap(client, 0, 0, VFIO_DMA_UNMAP_FLAG_ALL, 0); /* nothing is all there is */
    try_map(client, &(MapCase){0x100000, 0x40000 - 0x30000, 0, READ, 0}, fd);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
    close(fd);
}

/* A file that may only be read cannot be mapped for writing. */
static void test_read_only_fd(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    int fd = vfio_memfd(PAGE);
    g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", fd);
    int read_only = open(path, O_RDONLY | O_CLOEXEC);

    try_map(client, &(MapCase){0, PAGE, 0, READ | WRITE, EACCES}, read_only);
    try_map(client, &(MapCase){0, PAGE, 0, READ, 0}, read_only);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
    close(fd);
    close(read_only);
}

static void test_map_limit(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    int fd = vfio_memfd(PAGE);

    for (uint64_t i = 0; i < 4096; i++) {
        /* Backwards, as the worst order for a sorted list. */
        try_map(client, &(MapCase){(8192 - 2 * i) * PAGE, PAGE, 0, READ, 0}, i % 64 ? -1 : fd);
    }
    try_map(client, &(MapCase){0, PAGE, 0, READ, ENOSPC}, fd);
    try_unmap(client, 8192 * PAGE, PAGE, 0, 0);
    try_map(client, &(MapCase){0, PAGE, 0, READ, 0}, fd);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
    close(fd);
}

/* --- permissions --- */

/* A frame to the guest into a buffer at @addr; the used length. */
static uint32_t receive_into(VfioRig *rig, uint64_t addr)
{
    uint8_t frame[100];

    frame_fill(frame, sizeof(frame), 5);
    ring_set(rig->rig.rx, 0, addr, 2048, VRING_DESC_F_WRITE, 0);
    ring_send(&rig->rig, rig->rig.rx, 0);
    rig_peer_send(&rig->rig, frame, sizeof(frame));
    return ring_take(&rig->rig, rig->rig.rx).len;
}

static void test_permissions(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    VfioExtra extra = vfio_extra_open();
    uint8_t frame[100];

    vfio_extra_map(rig, &extra, READ);
    memset(extra.host, 0x5a, VFIO_EXTRA_SIZE);
    g_assert_cmpuint(receive_into(rig, VFIO_EXTRA_ADDR), ==, 0); /* refused, the queue goes on */
    for (unsigned i = 0; i < 2048; i++) {
        g_assert_cmphex(extra.host[i], ==, 0x5a);
    }
    rig_post_buffer(&rig->rig, 1, 2048); /* the frame was waiting for a buffer */
    g_assert_cmpuint(ring_take(&rig->rig, rig->rig.rx).len, ==, RIG_HDR + 100);

    /* Reading is fine. */
    memset(extra.host, 0, RIG_HDR);
    frame_fill(frame, sizeof(frame), 6);
    memcpy(extra.host + RIG_HDR, frame, sizeof(frame));
    ring_set(rig->rig.tx, 0, VFIO_EXTRA_ADDR, RIG_HDR + sizeof(frame), 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    ring_take(&rig->rig, rig->rig.tx);
    rig_peer_expect(&rig->rig, frame, sizeof(frame));

    /* Neither: as if nothing were there. */
    vfio_extra_unmap(rig);
    vfio_extra_map(rig, &extra, 0);
    ring_set(rig->rig.tx, 0, VFIO_EXTRA_ADDR, RIG_HDR + sizeof(frame), 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    g_assert_cmpuint(ring_take(&rig->rig, rig->rig.tx).id, ==, 0);
    rig_peer_expect_nothing(&rig->rig);
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
    vfio_extra_close(&extra);
}

/* --- memory without an fd --- */

typedef struct Service {
    VfioUserClient *client;
    GThread *thread;
    bool stop;
} Service;

static gpointer service_run(gpointer opaque)
{
    Service *service = opaque;

    while (!__atomic_load_n(&service->stop, __ATOMIC_ACQUIRE)) {
        vfio_user_client_serve(service->client, 1, NULL);
        g_usleep(20);
    }
    return NULL;
}

static void service_start(Service *service, VfioUserClient *client)
{
    *service = (Service){.client = client};
    service->thread = g_thread_new("serve", service_run, service);
}

static void service_stop(Service *service)
{
    __atomic_store_n(&service->stop, true, __ATOMIC_RELEASE);
    g_thread_join(service->thread);
}

static const char no_twin[] = "{\"max_msg_fds\": 16}";

/* All of RAM, or only what lies above @split, is reached by messages. */
static void share_by_messages(VfioRig *rig, uint64_t split)
{
    GError *err = NULL;

    if (split) {
        vfio_user_client_map(rig->client, 0, split, VFIO_RIG_RW, rig->rig.ram->fd, 0, &err);
        vfio_check(err, "map");
    }
    vfio_rig_share_by_messages(rig, split);
}

static void pass_frames(VfioRig *rig, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        rig_expect_working(&rig->rig);
    }
}

static void test_messages(gconstpointer capabilities)
{
    VfioRigConfig config = {.capabilities = capabilities,
                            .rig = {.features = RIG_FEATURE(VIRTIO_RING_F_EVENT_IDX) |
                                                RIG_FEATURE(VIRTIO_NET_F_MRG_RXBUF)}};
    VfioRig *rig = vfio_rig_open(&config);
    Service service;
    uint8_t frame[1500];

    vfio_rig_attach(rig, true);
    g_assert_cmpint(vfio_user_client_twin_fd(rig->client) >= 0, ==, capabilities == NULL);
    share_by_messages(rig, 0);
    service_start(&service, rig->client);
    vfio_rig_start(rig);
    pass_frames(rig, 20);
    /* A mergeable frame over several buffers: its header is written last. */
    for (uint16_t i = 0; i < 8; i++) {
        rig_post_buffer(&rig->rig, i, 256);
    }
    frame_fill(frame, sizeof(frame), 77);
    rig_peer_send(&rig->rig, frame, sizeof(frame));
    g_assert_true(ring_wait_used(&rig->rig, rig->rig.rx, 6, RIG_TIMEOUT_MS));
    struct vring_used_elem first = ring_take(&rig->rig, rig->rig.rx);
    const struct virtio_net_hdr_v1 *header =
        rig_at(&rig->rig, rig->rig.rx->desc[first.id].addr, RIG_HDR);

    g_assert_cmpuint(header->num_buffers, ==, 6);
    g_assert_cmpmem(header + 1, 256 - RIG_HDR, frame, 256 - RIG_HDR);
    g_assert_cmpuint(vfio_user_client_dma_reads(rig->client), >, 0);
    g_assert_cmpuint(vfio_user_client_dma_writes(rig->client), >, 0);
    service_stop(&service);
    vfio_rig_free(rig);
}

/* Rings in shared memory, buffers behind messages, and one buffer over the border. */
static void test_messages_mixed(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    const uint64_t split = 4ull << 20;
    uint8_t frame[300];
    uint64_t addr = split - 100;
    Service service;

    vfio_rig_attach(rig, true);
    share_by_messages(rig, split);
    service_start(&service, rig->client);
    vfio_rig_start(rig);
    pass_frames(rig, 3);
    g_assert_cmpuint(vfio_user_client_dma_reads(rig->client), ==, 0);
    frame_fill(frame, sizeof(frame), 8);
    memset(rig_at(&rig->rig, addr, RIG_HDR), 0, RIG_HDR);
    memcpy(rig_at(&rig->rig, addr + RIG_HDR, sizeof(frame)), frame, sizeof(frame));
    ring_set(rig->rig.tx, 0, addr, RIG_HDR + sizeof(frame), 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    ring_take(&rig->rig, rig->rig.tx);
    rig_peer_expect(&rig->rig, frame, sizeof(frame));
    g_assert_cmpuint(vfio_user_client_dma_reads(rig->client), ==, 1);

    memset(rig_at(&rig->rig, addr, 2048), 0, 2048);
    ring_set(rig->rig.rx, 0, addr, 2048, VRING_DESC_F_WRITE, 0);
    ring_send(&rig->rig, rig->rig.rx, 0);
    rig_peer_send(&rig->rig, frame, sizeof(frame));
    g_assert_cmpuint(ring_take(&rig->rig, rig->rig.rx).len, ==, RIG_HDR + sizeof(frame));
    g_assert_cmpmem(rig_at(&rig->rig, addr + RIG_HDR, sizeof(frame)), sizeof(frame), frame,
                    sizeof(frame));
    /* An indirect table behind messages. */
    pass_frames(rig, 3);
    service_stop(&service);
    vfio_rig_free(rig);
}

/* The client refuses the server's access: the chain is bad, and the queue goes on. */
static void test_messages_refused(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    const uint64_t split = 4ull << 20;
    Service service;

    vfio_rig_attach(rig, true);
    share_by_messages(rig, split);
    vfio_user_client_set_dma_failure(rig->client, EIO);
    service_start(&service, rig->client);
    vfio_rig_start(rig);
    ring_set(rig->rig.tx, 0, split, 100, 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    g_assert_cmpuint(ring_take(&rig->rig, rig->rig.tx).id, ==, 0);
    rig_peer_expect_nothing(&rig->rig);
    /* More than is copied for one chain. */
    vfio_user_client_set_dma_failure(rig->client, 0);
    ring_set(rig->rig.tx, 0, split, 2u << 20, 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    ring_take(&rig->rig, rig->rig.tx);
    rig_peer_expect_nothing(&rig->rig);
    pass_frames(rig, 3);
    service_stop(&service);
    vfio_rig_free(rig);
}

/* It does not answer at all: its connection ends, and the next client is served. */
static void test_messages_unanswered(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserAnswer answer;

    vfio_rig_attach(rig, true);
    share_by_messages(rig, 4ull << 20);
    vfio_rig_start(rig);
    vfio_user_client_set_dma_failure(rig->client, -1);
    ring_set(rig->rig.tx, 0, 4ull << 20, 100, 0, 0);
    ring_offer(rig->rig.tx, 0);
    ring_publish(rig->rig.tx);
    virtio_driver_notify(rig->rig.virtio, RIG_TX);
    g_assert_false(vfio_user_client_receive(rig->client, &answer, NULL));
    vfio_rig_hang_up(rig);
    vfio_rig_attach(rig, false);
    vfio_rig_start(rig);
    pass_frames(rig, 2);
    vfio_rig_free(rig);
}

/* --- dirty pages --- */

/* Pages of RAM reported dirty, in a list of at most @max; returns how many. */
static unsigned dirty_pages(VfioRig *rig, uint64_t *pages, unsigned max)
{
    GError *err = NULL;
    g_autofree uint64_t *bitmap =
        vfio_user_client_log_report(rig->client, 0, rig->rig.ram->size, PAGE, &err);
    unsigned count = 0;

    vfio_check(err, "report");
    for (uint64_t page = 0; page < rig->rig.ram->size / PAGE; page++) {
        if (bitmap[page / 64] >> (page % 64) & 1) {
            g_assert_cmpuint(count, <, max);
            pages[count++] = page;
        }
    }
    return count;
}

/* Exactly @wanted (as addresses, several in one page count once) is dirty. */
static void expect_dirty(VfioRig *rig, const uint64_t *wanted, unsigned count)
{
    uint64_t pages[64];
    unsigned n = dirty_pages(rig, pages, G_N_ELEMENTS(pages)), distinct = 0;

    for (unsigned i = 0; i < n; i++) {
        g_test_message("dirty: page 0x%" PRIx64, pages[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        bool there = false, again = false;

        for (unsigned j = 0; j < n; j++) {
            there |= pages[j] == wanted[i] / PAGE;
        }
        for (unsigned j = 0; j < i; j++) {
            again |= wanted[j] / PAGE == wanted[i] / PAGE;
        }
        if (!there) {
            g_error("page 0x%" PRIx64 " is not reported dirty", (uint64_t)(wanted[i] / PAGE));
        }
        distinct += !again;
    }
    g_assert_cmpuint(n, ==, distinct);
}

/* Address of the used entry that comes next. */
static uint64_t next_used(const DriverQueue *queue)
{
    return queue->used_addr + 4 + queue->used_next % queue->size * 8;
}

static void test_dirty_exact(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    uint64_t addr = rig_alloc(&rig->rig, 8 * PAGE), base = (addr + 2 * PAGE) & -PAGE;
    uint64_t rx_used = rig->rig.rx->used_addr, tx_used = rig->rig.tx->used_addr;
    uint64_t entry = next_used(rig->rig.rx);
    uint8_t frame[60] = {0};
    GError *err = NULL;

    g_assert_null(vfio_user_client_log_report(rig->client, 0, PAGE, PAGE, NULL));
    vfio_user_client_log_start(rig->client, &err);
    vfio_check(err, "start");
    g_assert_false(vfio_user_client_log_start(rig->client, NULL));
    /* Logging began with a drain, after which the device looks at its rings once. */
    g_usleep(RIG_QUIET_MS * 1000);
    dirty_pages(rig, (uint64_t[64]){0}, 64);
    expect_dirty(rig, NULL, 0);

    /* Received into the end of one page and the beginning of the next: both, and the used ring. */
    g_assert_cmpuint(receive_into(rig, base + PAGE - 50), ==, RIG_HDR + 100);
    expect_dirty(rig, (uint64_t[]){base, base + PAGE, rx_used, entry}, 4);
    expect_dirty(rig, NULL, 0); /* reported once */

    /* Only what was written: the buffer goes on for pages. */
    entry = next_used(rig->rig.rx);
    ring_set(rig->rig.rx, 0, base, 3 * PAGE, VRING_DESC_F_WRITE, 0);
    ring_send(&rig->rig, rig->rig.rx, 0);
    rig_peer_send(&rig->rig, frame, sizeof(frame));
    ring_take(&rig->rig, rig->rig.rx);
    expect_dirty(rig, (uint64_t[]){base, rx_used, entry}, 3);

    /* Sending writes nothing but its used ring. */
    entry = next_used(rig->rig.tx);
    memset(rig_at(&rig->rig, base, 112), 0, 112);
    ring_set(rig->rig.tx, 0, base, 112, 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    ring_take(&rig->rig, rig->rig.tx);
    expect_dirty(rig, (uint64_t[]){tx_used, entry}, 2);
    g_assert_cmpuint(rig_peer_recv(&rig->rig, frame, sizeof(frame), RIG_TIMEOUT_MS), ==, 100);

    vfio_user_client_log_stop(rig->client, &err);
    vfio_check(err, "stop");
    g_assert_null(vfio_user_client_log_report(rig->client, 0, PAGE, PAGE, NULL));
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

/* Units other than the 4 KiB that are logged, ranges and their limits. */
static void test_dirty_units(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    uint64_t addr = rig_alloc(&rig->rig, 40 * PAGE), base = (addr + 16 * PAGE) & -(16 * PAGE);
    g_autofree uint64_t *fine = NULL, *coarse = NULL, *part = NULL;
    GError *err = NULL;

    vfio_user_client_log_start(rig->client, &err);
    receive_into(rig, base + PAGE);
    part = vfio_user_client_log_report(rig->client, base + PAGE + 1024, 1024, 1024, &err);
    fine = vfio_user_client_log_report(rig->client, base, 16 * PAGE, 1024, &err);
    vfio_check(err, "report");
    g_assert_cmphex(part[0], ==, 1); /* a part of a page does not clear it */
    g_assert_cmphex(fine[0], ==, 0xf0);
    receive_into(rig, base + 5 * PAGE);
    coarse = vfio_user_client_log_report(rig->client, base, 16 * PAGE, 4 * PAGE, &err);
    vfio_check(err, "report");
    g_assert_cmphex(coarse[0], ==, 2);
    g_assert_null(vfio_user_client_log_report(rig->client, 0, PAGE, 3000, NULL));
    g_assert_null(vfio_user_client_log_report(rig->client, 512, PAGE, PAGE, NULL));
    g_assert_null(vfio_user_client_log_report(rig->client, 0, 0, PAGE, NULL));
    g_assert_null(vfio_user_client_log_report(rig->client, -PAGE, 2 * PAGE, PAGE, NULL));
    g_assert_null(vfio_user_client_log_report(rig->client, 0, 1ull << 46, PAGE, NULL));
    vfio_rig_free(rig);
}

/* Regions that come while logging is on are logged too, and by messages as well. */
static void test_dirty_new_regions(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    VfioExtra extra = vfio_extra_open();
    Service service;
    GError *err = NULL;

    vfio_user_client_log_start(rig->client, &err);
    for (unsigned by_message = 0; by_message < 2; by_message++) {
        g_autofree uint64_t *bitmap = NULL;

        vfio_user_client_map(rig->client, VFIO_EXTRA_ADDR, VFIO_EXTRA_SIZE, VFIO_RIG_RW,
                             by_message ? -1 : extra.fd, 0, &err);
        vfio_user_client_set_memory(rig->client, VFIO_EXTRA_ADDR, VFIO_EXTRA_SIZE, extra.host);
        service_start(&service, rig->client);
        receive_into(rig, VFIO_EXTRA_ADDR + 7 * PAGE);
        service_stop(&service);
        bitmap =
            vfio_user_client_log_report(rig->client, VFIO_EXTRA_ADDR, VFIO_EXTRA_SIZE, PAGE, &err);
        vfio_check(err, "report");
        g_assert_cmphex(bitmap[0], ==, 1u << 7);
        vfio_extra_unmap(rig);
    }
    vfio_rig_free(rig);
    vfio_extra_close(&extra);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vfio-user/dma/map", test_map_cases);
    g_test_add_func("/vfio-user/dma/unmap", test_unmap_cases);
    g_test_add_func("/vfio-user/dma/read-only-fd", test_read_only_fd);
    g_test_add_func("/vfio-user/dma/map-limit", test_map_limit);
    g_test_add_func("/vfio-user/dma/permissions", test_permissions);
    g_test_add_data_func("/vfio-user/dma/messages/twin-socket", NULL, test_messages);
    g_test_add_data_func("/vfio-user/dma/messages/one-socket", no_twin, test_messages);
    g_test_add_func("/vfio-user/dma/messages/mixed", test_messages_mixed);
    g_test_add_func("/vfio-user/dma/messages/refused", test_messages_refused);
    g_test_add_func("/vfio-user/dma/messages/unanswered", test_messages_unanswered);
    g_test_add_func("/vfio-user/dirty/exact-pages", test_dirty_exact);
    g_test_add_func("/vfio-user/dirty/units-and-ranges", test_dirty_units);
    g_test_add_func("/vfio-user/dirty/new-regions", test_dirty_new_regions);
    return g_test_run();
}
