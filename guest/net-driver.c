/*
 * virtio-net driver: see net-driver.h.
 *
 * Both rings hold fixed buffers of shared RAM.  A chain's token is its buffer's number plus one,
 * so the device's used entries lead back to a buffer without a look at shared memory.
 */
#include "guest/net-driver.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define HEADER_SIZE    sizeof(struct virtio_net_hdr_v1)
#define DEFAULT_BUFFER 2048u
#define OFFLOAD_BUFFER 65562u /* virtio 1.2, 5.1.6.3.1: 65,550 bytes and the 12-byte header */
#define MIN_BUFFER     1526u  /* same section, without MRG_RXBUF and offloads */
#define MAX_FRAME      (NET_DRIVER_MAX_BUFFERS * OFFLOAD_BUFFER)
#define SPIN_NS        50000
#define MAX_SLEEP_NS   1000000
#define GUEST_OFFLOADS                                                                             \
    ((1ull << VIRTIO_NET_F_GUEST_TSO4) | (1ull << VIRTIO_NET_F_GUEST_TSO6) |                       \
     (1ull << VIRTIO_NET_F_GUEST_UFO))

typedef struct BufferPool {
    uint64_t base; /* guest-physical */
    uint8_t *host;
    uint32_t size;   /* bytes a buffer */
    uint32_t stride; /* from one to the next */
} BufferPool;

struct NetDriver {
    VirtioDriver *virtio;
    unsigned index;      /* of the queue pair */
    NetDriver *next;     /* the next pair's; the first owns them and all of the device */
    NetControl *control; /* the first pair's; NULL: none */
    DriverQueue *rx, *tx;
    BufferPool rx_pool, tx_pool;
    uint16_t *tx_free; /* stack of TX buffers that are not in flight */
    uint16_t tx_free_count;
    bool rx_has_vector, tx_has_vector;
    bool keep_partial_checksums;
    uint8_t mac[6];
    uint8_t *linear;       /* MAX_FRAME bytes to complete checksums in; NULL: never needed */
    int64_t last_activity; /* monotonic ns; written by both sides */
    NetDriverFrame frame;  /* the one being received */
    NetDriverStats stats;
};

static bool has_feature(const NetDriver *driver, unsigned bit)
{
    return virtio_driver_has_feature(driver->virtio, bit);
}

static unsigned rx_vector(const NetDriver *driver)
{
    return 1 + 2 * driver->index; /* 0 is the configuration's */
}

static unsigned tx_vector(const NetDriver *driver)
{
    return rx_vector(driver) + 1;
}

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* Each counter has one writer at a time, so no locked instruction is needed. */
static void count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static void note_activity(NetDriver *driver)
{
    __atomic_store_n(&driver->last_activity, now_ns(), __ATOMIC_RELAXED);
}

static void *token_of(uint16_t buffer)
{
    return GUINT_TO_POINTER(buffer + 1u);
}

static uint16_t buffer_of(void *token)
{
    return (uint16_t)(GPOINTER_TO_UINT(token) - 1u);
}

static uint8_t *pool_host(const BufferPool *pool, uint16_t buffer)
{
    return pool->host + (size_t)buffer * pool->stride;
}

static uint64_t pool_addr(const BufferPool *pool, uint16_t buffer)
{
    return pool->base + (uint64_t)buffer * pool->stride;
}

static bool pool_init(BufferPool *pool, GuestRam *ram, uint16_t buffers, uint32_t size,
                      GError **errp)
{
    pool->size = size;
    pool->stride = (size + 63) & ~63u;
    size_t total = (size_t)buffers * pool->stride;
    pool->base = guest_ram_alloc(ram, total, 64);
    if (!pool->base) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NO_SPACE,
                    "guest RAM of %zu bytes has no room for %u buffers of %u bytes", ram->size,
                    buffers, pool->stride);
        return false;
    }
    pool->host = guest_ram_pointer(ram, pool->base, total);
    return true;
}

static void post_buffer(NetDriver *driver, uint16_t buffer)
{
    DriverSegment segment = {pool_addr(&driver->rx_pool, buffer), driver->rx_pool.size};
    driver_queue_add(driver->rx, &segment, 0, 1, token_of(buffer));
}

static void publish(NetDriver *driver, DriverQueue *queue)
{
    if (driver_queue_publish(queue)) {
        virtio_driver_notify(driver->virtio, queue->index);
    }
}

static bool setup_rx(NetDriver *driver, const NetDriverConfig *config, GError **errp)
{
    bool big =
        driver->virtio->features & GUEST_OFFLOADS && !has_feature(driver, VIRTIO_NET_F_MRG_RXBUF);
    uint32_t size = config->rx_buffer_size ? config->rx_buffer_size
                    : big                  ? OFFLOAD_BUFFER
                                           : DEFAULT_BUFFER;
    if (size < HEADER_SIZE || size > OFFLOAD_BUFFER ||
        (size < MIN_BUFFER && !has_feature(driver, VIRTIO_NET_F_MRG_RXBUF))) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "RX buffers of %u bytes: use %u to %u", size, MIN_BUFFER, OFFLOAD_BUFFER);
        return false;
    }
    unsigned vector = rx_vector(driver);
    driver->rx_has_vector = driver->virtio->vectors > vector;
    driver->rx = virtio_driver_setup_queue(
        driver->virtio, (uint16_t)(2 * driver->index), config->rx_size,
        driver->rx_has_vector ? (uint16_t)vector : VIRTIO_MSI_NO_VECTOR, errp);
    return driver->rx &&
           pool_init(&driver->rx_pool, driver->virtio->ram, driver->rx->size, size, errp);
}

static bool setup_tx(NetDriver *driver, const NetDriverConfig *config, GError **errp)
{
    unsigned vector = tx_vector(driver);
    driver->tx_has_vector = driver->virtio->vectors > vector;
    driver->tx = virtio_driver_setup_queue(
        driver->virtio, (uint16_t)(2 * driver->index + 1), config->tx_size,
        driver->tx_has_vector ? (uint16_t)vector : VIRTIO_MSI_NO_VECTOR, errp);
    if (!driver->tx) {
        return false;
    }
    driver_queue_disable_interrupts(driver->tx);
    uint16_t slots = driver->tx->size;
    driver->tx_free = g_new(uint16_t, slots);
    for (uint16_t i = 0; i < slots; i++) {
        driver->tx_free[driver->tx_free_count++] = i;
    }
    uint32_t size = config->tx_buffer_size ? config->tx_buffer_size : DEFAULT_BUFFER;
    return pool_init(&driver->tx_pool, driver->virtio->ram, slots, size, errp);
}

/* Reads a field of device configuration byte by byte. */
static void read_mac(NetDriver *driver)
{
    for (unsigned i = 0; i < 6; i++) {
        driver->mac[i] = (uint8_t)virtio_driver_config_read(
            driver->virtio, 1, offsetof(struct virtio_net_config, mac) + i);
    }
}

/* One pair's queues, its buffers added but not yet published. */
static bool setup_pair(NetDriver *driver, const NetDriverConfig *config, GError **errp)
{
    if (!setup_rx(driver, config, errp) || !setup_tx(driver, config, errp)) {
        return false;
    }
    if (has_feature(driver, VIRTIO_NET_F_GUEST_CSUM)) {
        driver->linear = g_malloc(MAX_FRAME);
    }
    for (uint16_t i = 0; i < driver->rx->size; i++) {
        post_buffer(driver, i);
    }
    return true;
}

/* The pairs behind the first one. */
static bool setup_more_pairs(NetDriver *first, const NetDriverConfig *config, GError **errp)
{
    NetDriver *last = first;
    for (unsigned i = 1; i < config->pairs; i++) {
        last = last->next = g_new0(NetDriver, 1);
        last->virtio = first->virtio;
        last->index = i;
        last->keep_partial_checksums = first->keep_partial_checksums;
        memcpy(last->mac, first->mac, sizeof(last->mac));
        if (!setup_pair(last, config, errp)) {
            return false;
        }
    }
    return true;
}

/* Has the device use as many pairs as are set up. */
static bool enable_pairs(NetDriver *driver, unsigned pairs, GError **errp)
{
    uint16_t data = GUINT16_TO_LE((uint16_t)pairs);
    return pairs < 2 ||
           net_control_command(driver->control, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
                               &data, sizeof(data), errp);
}

static bool negotiate(NetDriver *driver, const NetDriverConfig *config, GError **errp)
{
    bool many = config->pairs > 1;
    uint64_t more = many ? (1ull << VIRTIO_NET_F_MQ) | (1ull << VIRTIO_NET_F_CTRL_VQ) : 0;
    if (!virtio_driver_negotiate(driver->virtio, config->features | more, errp)) {
        return false;
    }
    if (config->pairs > NET_DRIVER_MAX_PAIRS || (many && !has_feature(driver, VIRTIO_NET_F_MQ))) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
                    "%u queue pairs: this driver has up to %u, the device %s", config->pairs,
                    NET_DRIVER_MAX_PAIRS, many ? "one (mq=on?)" : "more");
        return false;
    }
    return true;
}

static bool bring_up(NetDriver *driver, const NetDriverConfig *config, GError **errp)
{
    VirtioDriver *virtio = driver->virtio;
    if (!negotiate(driver, config, errp) ||
        !virtio_driver_setup_interrupts(virtio, 1 + 2 * MAX(config->pairs, 1), errp)) {
        return false;
    }
    if (has_feature(driver, VIRTIO_NET_F_MAC)) {
        read_mac(driver);
    } else {
        memcpy(driver->mac, "\x52\x54\x00\x12\x34\x56", 6); /* any locally administered address */
    }
    if (!setup_pair(driver, config, errp) || !setup_more_pairs(driver, config, errp)) {
        return false;
    }
    if (has_feature(driver, VIRTIO_NET_F_CTRL_VQ) &&
        !(driver->control = net_control_new(virtio, errp))) {
        return false;
    }
    if (!virtio_driver_start(virtio, errp) || !enable_pairs(driver, config->pairs, errp)) {
        return false;
    }
    for (NetDriver *pair = driver; pair; pair = pair->next) {
        note_activity(pair);
        publish(pair, pair->rx);
    }
    return guest_pci_check(virtio->pci, errp);
}

NetDriver *net_driver_new(GuestPciDevice *pci, GuestRam *ram, const NetDriverConfig *config,
                          GError **errp)
{
    VirtioDriver *virtio = virtio_driver_new(pci, ram, errp);
    if (!virtio) {
        return NULL;
    }
    NetDriver *driver = g_new0(NetDriver, 1);
    driver->virtio = virtio;
    driver->keep_partial_checksums = config->keep_partial_checksums;
    if (!bring_up(driver, config, errp)) {
        net_driver_free(driver);
        return NULL;
    }
    return driver;
}

void net_driver_free(NetDriver *driver)
{
    if (!driver) {
        return;
    }
    virtio_driver_free(driver->virtio); /* resets: the rings are ours alone from here on */
    net_control_free(driver->control);
    while (driver) {
        NetDriver *next = driver->next;
        driver_queue_free(driver->rx);
        driver_queue_free(driver->tx);
        g_free(driver->tx_free);
        g_free(driver->linear);
        g_free(driver);
        driver = next;
    }
}

NetDriver *net_driver_pair(NetDriver *driver, unsigned index)
{
    while (driver && driver->index < index) {
        driver = driver->next;
    }
    return driver;
}

NetControl *net_driver_control(NetDriver *driver)
{
    return driver->control;
}

const uint8_t *net_driver_mac(const NetDriver *driver)
{
    return driver->mac;
}

bool net_driver_link_is_up(NetDriver *driver)
{
    if (!has_feature(driver, VIRTIO_NET_F_STATUS)) {
        return true;
    }
    return virtio_driver_config_read(driver->virtio, 2,
                                     offsetof(struct virtio_net_config, status)) &
           VIRTIO_NET_S_LINK_UP;
}

VirtioDriver *net_driver_virtio(NetDriver *driver)
{
    return driver->virtio;
}

void net_driver_get_stats(NetDriver *driver, NetDriverStats *stats)
{
    const uint64_t *from = (const uint64_t *)&driver->stats;
    uint64_t *to = (uint64_t *)stats;
    for (size_t i = 0; i < sizeof(*stats) / sizeof(*to); i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
    const uint64_t *sent = driver->virtio->notifications;
    stats->rx_notifications = __atomic_load_n(&sent[driver->rx->index], __ATOMIC_RELAXED);
    stats->tx_notifications = __atomic_load_n(&sent[driver->tx->index], __ATOMIC_RELAXED);
}

bool net_driver_check(NetDriver *driver, GError **errp)
{
    if (!guest_pci_check(driver->virtio->pci, errp)) {
        return false;
    }
    for (NetDriver *pair = driver; pair; pair = pair->next) {
        if (pair->rx->broken || pair->tx->broken) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                        "the device returned a chain on the %s ring %u that it was never given",
                        pair->rx->broken ? "RX" : "TX", pair->index);
            return false;
        }
    }
    return true;
}

bool net_frame_complete_checksum(uint8_t *frame, size_t size, uint16_t start, uint16_t offset)
{
    if (start >= size || (size_t)start + offset + 2 > size) {
        return false;
    }
    uint32_t sum = 0;
    for (size_t i = start; i + 1 < size; i += 2) {
        sum += (uint32_t)frame[i] << 8 | frame[i + 1];
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    if ((size - start) & 1) {
        sum += (uint32_t)frame[size - 1] << 8;
    }
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    uint16_t result = (uint16_t)~sum;
    /* RFC 768: UDP sends 0 as all ones, as 0 means "no checksum"; for TCP both are the same. */
    result = result ? result : 0xFFFF;
    frame[start + offset] = (uint8_t)(result >> 8);
    frame[start + offset + 1] = (uint8_t)result;
    return true;
}

/* Makes the frame linear and completes its checksum. */
static bool finish_checksum(NetDriver *driver)
{
    NetDriverFrame *frame = &driver->frame;
    if (driver->keep_partial_checksums || !(frame->header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)) {
        return true;
    }
    if (!driver->linear || frame->size > MAX_FRAME) {
        return false; /* the flag was not negotiated */
    }
    size_t done = 0;
    for (unsigned i = 0; i < frame->iovcnt; i++) {
        memcpy(driver->linear + done, frame->iov[i].iov_base, frame->iov[i].iov_len);
        done += frame->iov[i].iov_len;
    }
    frame->iov[0] = (struct iovec){driver->linear, done};
    frame->iovcnt = 1;
    return net_frame_complete_checksum(driver->linear, done, frame->header.csum_start,
                                       frame->header.csum_offset);
}

/* The next used buffer and its length; false: there is none. */
static bool take_buffer(NetDriver *driver, uint16_t *buffer, uint32_t *len)
{
    void *token = driver_queue_take(driver->rx, len);
    if (!token) {
        return false;
    }
    *buffer = buffer_of(token);
    return true;
}

/*
 * Collects one frame.  @taken receives the buffers it lies in and @*count their number, also
 * when the frame is bad (false with *count > 0).  Nothing there: false with *count 0.
 */
static bool collect_frame(NetDriver *driver, uint16_t *taken, unsigned *count_out)
{
    NetDriverFrame *frame = &driver->frame;
    uint32_t len;
    *count_out = 0;
    if (!take_buffer(driver, &taken[0], &len)) {
        return false;
    }
    *count_out = 1;
    if (len < HEADER_SIZE || len > driver->rx_pool.stride) {
        return false;
    }
    uint8_t *host = pool_host(&driver->rx_pool, taken[0]);
    memcpy(&frame->header, host, HEADER_SIZE);
    frame->iov[0] = (struct iovec){host + HEADER_SIZE, len - HEADER_SIZE};
    frame->size = len - HEADER_SIZE;
    bool mergeable = has_feature(driver, VIRTIO_NET_F_MRG_RXBUF);
    unsigned buffers = mergeable ? frame->header.num_buffers : 1;
    if (buffers == 0 || buffers > NET_DRIVER_MAX_BUFFERS) {
        return false;
    }
    for (unsigned i = 1; i < buffers; i++) {
        if (!take_buffer(driver, &taken[i], &len)) {
            return false; /* all of a frame's buffers are published at once */
        }
        *count_out = i + 1;
        if (len > driver->rx_pool.stride) {
            return false;
        }
        frame->iov[i] = (struct iovec){pool_host(&driver->rx_pool, taken[i]), len};
        frame->size += len;
    }
    frame->iovcnt = buffers;
    return finish_checksum(driver);
}

unsigned net_driver_receive(NetDriver *driver, unsigned max, NetDriverReceiveFunc *fn, void *opaque)
{
    unsigned received = 0, bad = 0;
    while (received + bad < max) {
        uint16_t taken[NET_DRIVER_MAX_BUFFERS];
        unsigned buffers;
        if (collect_frame(driver, taken, &buffers)) {
            count(&driver->stats.rx_bytes, driver->frame.size);
            fn(opaque, &driver->frame);
            received++;
        } else if (buffers > 0) {
            bad++;
        } else if (received + bad > 0 || !driver_queue_enable_interrupts(driver->rx)) {
            break;
        }
        for (unsigned i = 0; i < buffers; i++) {
            post_buffer(driver, taken[i]);
        }
    }
    count(&driver->stats.rx_packets, received);
    count(&driver->stats.rx_bad, bad);
    publish(driver, driver->rx);
    return received + bad;
}

/* Whether the RX interrupt came, or, without MSI-X, what it would tell. */
static bool poll_rx(NetDriver *driver)
{
    if (!driver->rx_has_vector) {
        return driver_queue_has_used(driver->rx);
    }
    if (!virtio_driver_take_interrupt(driver->virtio, rx_vector(driver))) {
        return false;
    }
    count(&driver->stats.rx_interrupts, 1);
    driver_queue_disable_interrupts(driver->rx);
    return true;
}

bool net_driver_wait(NetDriver *driver, unsigned timeout_us)
{
    int64_t now = now_ns(), deadline = now + timeout_us * 1000ll;
    for (;;) {
        if (poll_rx(driver)) {
            note_activity(driver);
            return true;
        }
        if (now >= deadline) {
            return false;
        }
        int64_t idle = now - __atomic_load_n(&driver->last_activity, __ATOMIC_RELAXED);
        unsigned left_us = (unsigned)((deadline - now) / 1000);
        if (driver->rx_has_vector &&
            virtio_driver_sleep(driver->virtio, rx_vector(driver), left_us)) {
            /* It has slept as long as there was nothing to do. */
        } else if (idle < SPIN_NS) {
            sched_yield();
        } else {
            struct timespec pause = {0, MIN(MIN(idle / 4, MAX_SLEEP_NS), deadline - now)};
            nanosleep(&pause, NULL);
        }
        now = now_ns();
    }
}

static void reclaim_tx(NetDriver *driver)
{
    uint32_t len;
    void *token;
    while ((token = driver_queue_take(driver->tx, &len))) {
        driver->tx_free[driver->tx_free_count++] = buffer_of(token);
    }
    driver_queue_disable_interrupts(driver->tx);
}

unsigned net_driver_tx_in_flight(NetDriver *driver)
{
    reclaim_tx(driver);
    return driver->tx->size - driver->tx_free_count;
}

static bool add_tx(NetDriver *driver, uint16_t buffer, uint32_t size)
{
    uint64_t addr = pool_addr(&driver->tx_pool, buffer);
    if (!driver->tx->use_indirect) {
        DriverSegment one = {addr, (uint32_t)HEADER_SIZE + size};
        return driver_queue_add(driver->tx, &one, 1, 0, token_of(buffer)) >= 0;
    }
    DriverSegment two[2] = {{addr, HEADER_SIZE}, {addr + HEADER_SIZE, size}};
    return driver_queue_add(driver->tx, two, 2, 0, token_of(buffer)) >= 0;
}

bool net_driver_send(NetDriver *driver, const struct virtio_net_hdr_v1 *header,
                     const struct iovec *iov, unsigned iovcnt)
{
    if (driver->tx_free_count <= driver->tx->size / 2) {
        reclaim_tx(driver);
    }
    size_t size = 0;
    for (unsigned i = 0; i < iovcnt; i++) {
        size += iov[i].iov_len;
    }
    if (size + HEADER_SIZE > driver->tx_pool.stride || driver->tx_free_count == 0) {
        count(&driver->stats.tx_full, 1);
        return false;
    }
    uint16_t buffer = driver->tx_free[driver->tx_free_count - 1];
    uint8_t *to = pool_host(&driver->tx_pool, buffer);
    memset(to, 0, HEADER_SIZE);
    if (header) {
        memcpy(to, header, HEADER_SIZE);
    }
    to += HEADER_SIZE;
    for (unsigned i = 0; i < iovcnt; i++) {
        memcpy(to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
    if (!add_tx(driver, buffer, (uint32_t)size)) {
        count(&driver->stats.tx_full, 1);
        return false;
    }
    driver->tx_free_count--;
    count(&driver->stats.tx_packets, 1);
    count(&driver->stats.tx_bytes, size);
    return true;
}

void net_driver_flush(NetDriver *driver)
{
    publish(driver, driver->tx);
    note_activity(driver);
    if (driver->tx_has_vector && virtio_driver_take_interrupt(driver->virtio, tx_vector(driver))) {
        count(&driver->stats.tx_interrupts, 1);
    }
}
