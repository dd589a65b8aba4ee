/*
 * lwIP over a NetDriver: see lwip-netif.h.
 *
 * Receive: a thread waits for the RX interrupt, copies a batch of frames to pbufs, and runs them
 * through lwIP under its core lock.  What lwIP sends meanwhile (acknowledgements, mostly) is
 * queued and published once at the end of the batch, so a batch costs at most one notification.
 * Send from other threads (an application's data, lwIP's timers) is published at once.  The TX
 * side of the driver is used only under the core lock.
 *
 * With several queue pairs each has a receiving thread, and what is sent takes the pair that the
 * destination's port chooses: a back end with as many queues answers on the same one.
 */
#include "guest/lwip-netif.h"
#include "guest/tx-merge.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <lwip/etharp.h>
#include <lwip/init.h>
#include <lwip/netif.h>
#include <lwip/pbuf.h>
#include <lwip/priv/tcp_priv.h>
#include <lwip/prot/ethernet.h>
#include <lwip/prot/ip4.h>
#include <lwip/tcpip.h>
#include <netif/ethernet.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#define BATCH         64
#define MAX_PBUFS     16 /* pieces of one frame to send */
#define WAIT_US       2000
#define DRAIN_STEP_US 1000
#define MTU           1500
#define MAX_FRAME     (MTU + 14)
#define HEAD_SIZE     80 /* Ethernet, IPv4 with all options, ports */

/* Where the receiving threads stop for guest_netif_pause(). */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed;
    unsigned waiting; /* threads */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct {
    NetDriver *driver; /* the first pair's */
    unsigned pairs;
    unsigned queued; /* pairs with frames that are not published; under the core lock */
    struct netif netif;
    pthread_t threads[NET_DRIVER_MAX_PAIRS];
    unsigned thread_count;
    bool batching; /* under the core lock: the receiving thread publishes at its batch's end */
    bool stopping;
    bool merges;           /* HOST_TSO4: segments sent while batching are put together */
    TxMerge merge;         /* under the core lock */
    GuestNetifStats stats; /* under the core lock */
} stack;

/* The queue pair that a frame of @size bytes leaves by. */
static unsigned choose_pair(const uint8_t *frame, size_t size)
{
    const size_t ip = SIZEOF_ETH_HDR;
    if (stack.pairs == 1 || size < ip + IP_HLEN) {
        return 0;
    }
    size_t port = ip + (frame[ip] & 0xF) * 4u + 2; /* the destination's, TCP and UDP alike */
    bool ipv4 = frame[12] == ETHTYPE_IP >> 8 && frame[13] == (ETHTYPE_IP & 0xFF);
    return ipv4 && size >= port + 2 ? frame[port + 1] % stack.pairs : 0;
}

/* Publishes what waits on any pair. */
static void flush_queued(void)
{
    for (unsigned i = 0; stack.queued >> i; i++) {
        if (stack.queued >> i & 1) {
            net_driver_flush(net_driver_pair(stack.driver, i));
        }
    }
    stack.queued = 0;
}

/* Queues a frame on the pair that its first bytes, @head, choose. */
static bool queue_frame(const uint8_t *head, size_t head_size,
                        const struct virtio_net_hdr_v1 *header, const struct iovec *iov,
                        unsigned count)
{
    unsigned pair = choose_pair(head, head_size);
    stack.queued |= 1u << pair;
    return net_driver_send(net_driver_pair(stack.driver, pair), header, iov, count);
}

static bool send_pbuf(struct pbuf *p)
{
    struct iovec iov[MAX_PBUFS];
    unsigned count = 0;
    for (struct pbuf *q = p; q; q = q->next) {
        if (count == MAX_PBUFS) {
            return false;
        }
        iov[count++] = (struct iovec){q->payload, q->len};
    }
    uint8_t head[HEAD_SIZE];
    u16_t head_size = pbuf_copy_partial(p, head, sizeof(head), 0);
    return queue_frame(head, head_size, NULL, iov, count);
}

/* Sends what is held; a full ring loses it, as a full ring loses a frame. */
static void send_held(void)
{
    TxMerge *merge = &stack.merge;
    if (merge->size == 0) {
        return;
    }
    tx_merge_finish(merge);
    struct iovec iov = {merge->bytes, merge->size};
    if (!queue_frame(merge->bytes, merge->size, &merge->header, &iov, 1)) {
        flush_queued(); /* what is queued must leave before there is room */
        queue_frame(merge->bytes, merge->size, &merge->header, &iov, 1);
    }
    stack.stats.tso_frames += merge->segments > 1;
    merge->size = 0;
}

/* Whether the frame was put to what is held. */
static bool hold_pbuf(struct pbuf *p)
{
    uint8_t frame[MAX_FRAME];
    if (p->tot_len > sizeof(frame)) {
        return false;
    }
    pbuf_copy_partial(p, frame, p->tot_len, 0);
    if (tx_merge_add(&stack.merge, frame, p->tot_len)) {
        return true;
    }
    send_held();
    return tx_merge_add(&stack.merge, frame, p->tot_len);
}

/* netif_linkoutput_fn: one whole Ethernet frame, under the core lock. */
static err_t output_frame(struct netif *netif, struct pbuf *p)
{
    if (stack.batching && stack.merges && hold_pbuf(p)) {
        return ERR_OK;
    }
    bool sent = send_pbuf(p);
    if (!sent && stack.batching) {
        flush_queued(); /* as above */
        sent = send_pbuf(p);
    }
    if (!stack.batching) {
        flush_queued();
    }
    return sent ? ERR_OK : ERR_MEM;
}

/* netif_init_fn */
static err_t init_netif(struct netif *netif)
{
    netif->name[0] = 'v';
    netif->name[1] = 'n';
    netif->output = etharp_output;
    netif->linkoutput = output_frame;
    netif->mtu = MTU;
    netif->hwaddr_len = 6;
    memcpy(netif->hwaddr, net_driver_mac(stack.driver), 6);
    netif->flags =
        NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    return ERR_OK;
}

typedef struct RxBatch {
    struct pbuf *pbufs[BATCH];
    unsigned count;
    unsigned large; /* frames longer than an MTU allows */
} RxBatch;

/* NetDriverReceiveFunc: copies a frame out of shared RAM; out of memory drops it. */
static void collect_frame(void *opaque, const NetDriverFrame *frame)
{
    RxBatch *batch = opaque;
    if (frame->size > UINT16_MAX || batch->count == BATCH) {
        return;
    }
    struct pbuf *p = pbuf_alloc(PBUF_RAW, (u16_t)frame->size, PBUF_RAM);
    if (!p) {
        return;
    }
    batch->large += frame->size > MAX_FRAME;
    uint8_t *to = p->payload; /* PBUF_RAM is one piece */
    for (unsigned i = 0; i < frame->iovcnt; i++) {
        memcpy(to, frame->iov[i].iov_base, frame->iov[i].iov_len);
        to += frame->iov[i].iov_len;
    }
    batch->pbufs[batch->count++] = p;
}

static void input_batch(RxBatch *batch)
{
    LOCK_TCPIP_CORE();
    stack.batching = true;
    for (unsigned i = 0; i < batch->count; i++) {
        if (ethernet_input(batch->pbufs[i], &stack.netif) != ERR_OK) {
            pbuf_free(batch->pbufs[i]);
        }
    }
    stack.batching = false;
    stack.stats.large_frames += batch->large;
    send_held();
    flush_queued();
    UNLOCK_TCPIP_CORE();
    batch->count = batch->large = 0;
}

static void pass_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    if (gate.closed) {
        gate.waiting++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.closed) {
            pthread_cond_wait(&gate.changed, &gate.lock);
        }
        gate.waiting--;
    }
    pthread_mutex_unlock(&gate.lock);
}

static void *receive_thread(void *opaque)
{
    NetDriver *driver = opaque;
    RxBatch batch = {0};
    prctl(PR_SET_TIMERSLACK, 1); /* ns: short sleeps must be short, their default slack is 50 µs */
    while (!__atomic_load_n(&stack.stopping, __ATOMIC_RELAXED)) {
        pass_gate();
        if (net_driver_receive(driver, BATCH, collect_frame, &batch) == 0) {
            net_driver_wait(driver, WAIT_US);
        } else {
            input_batch(&batch);
        }
    }
    return NULL;
}

static void signal_ready(void *opaque)
{
    sys_sem_signal(opaque);
}

/* lwIP's thread runs as soon as its first callback has. */
static bool start_lwip(void)
{
    sys_sem_t ready;
    if (sys_sem_new(&ready, 0) != ERR_OK) {
        return false;
    }
    tcpip_init(signal_ready, &ready);
    sys_arch_sem_wait(&ready, 0);
    sys_sem_free(&ready);
    return true;
}

static ip4_addr_t to_ip4(uint32_t address)
{
    return (ip4_addr_t){lwip_htonl(address)};
}

static bool start_threads(void)
{
    for (unsigned i = 0; i < stack.pairs; i++) {
        if (pthread_create(&stack.threads[i], NULL, receive_thread,
                           net_driver_pair(stack.driver, i)) != 0) {
            return false;
        }
        stack.thread_count++;
    }
    return true;
}

static void stop_threads(void)
{
    __atomic_store_n(&stack.stopping, true, __ATOMIC_RELAXED);
    while (stack.thread_count > 0) {
        pthread_join(stack.threads[--stack.thread_count], NULL);
    }
}

bool guest_netif_start(NetDriver *driver, const GuestDhcpLease *lease, GError **errp)
{
    stack.driver = driver;
    stack.pairs = 1;
    while (stack.pairs < NET_DRIVER_MAX_PAIRS && net_driver_pair(driver, stack.pairs)) {
        stack.pairs++;
    }
    stack.merges = virtio_driver_has_feature(net_driver_virtio(driver), VIRTIO_NET_F_HOST_TSO4);
    if (!start_lwip()) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "lwIP does not start: out of memory");
        return false;
    }
    ip4_addr_t address = to_ip4(lease->address), netmask = to_ip4(lease->netmask),
               router = to_ip4(lease->router);
    LOCK_TCPIP_CORE();
    struct netif *added =
        netif_add(&stack.netif, &address, &netmask, &router, NULL, init_netif, tcpip_input);
    if (added) {
        netif_set_default(added);
        netif_set_up(added);
    }
    UNLOCK_TCPIP_CORE();
    if (!added || !start_threads()) {
        stop_threads();
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "lwIP does not take the interface");
        return false;
    }
    return true;
}

void guest_netif_pause(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = true;
    while (gate.waiting < stack.thread_count) {
        pthread_cond_wait(&gate.changed, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
    LOCK_TCPIP_CORE(); /* whoever sends holds it */
}

void guest_netif_resume(void)
{
    UNLOCK_TCPIP_CORE();
    pthread_mutex_lock(&gate.lock);
    gate.closed = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

bool guest_netif_drain(unsigned timeout_ms)
{
    gint64 deadline = g_get_monotonic_time() + timeout_ms * G_TIME_SPAN_MILLISECOND;
    for (;;) {
        LOCK_TCPIP_CORE();
        /* Connections in TIME-WAIT are on another list: their peer has all it needs. */
        bool done = !tcp_active_pcbs;
        for (unsigned i = 0; i < stack.pairs; i++) {
            done = done && net_driver_tx_in_flight(net_driver_pair(stack.driver, i)) == 0;
        }
        UNLOCK_TCPIP_CORE();
        if (done || g_get_monotonic_time() >= deadline) {
            return done;
        }
        g_usleep(DRAIN_STEP_US);
    }
}

void guest_netif_stop(void)
{
    stop_threads();
    LOCK_TCPIP_CORE();
    netif_set_down(&stack.netif);
    netif_remove(&stack.netif);
    UNLOCK_TCPIP_CORE();
}

void guest_netif_get_stats(GuestNetifStats *stats)
{
    LOCK_TCPIP_CORE();
    *stats = stack.stats;
    UNLOCK_TCPIP_CORE();
}

const char *guest_netif_strerror(int err)
{
    static const char *const texts[] = {
        [-ERR_OK] = "no error",          [-ERR_MEM] = "out of memory",
        [-ERR_BUF] = "out of buffers",   [-ERR_TIMEOUT] = "timed out",
        [-ERR_RTE] = "no route",         [-ERR_INPROGRESS] = "in progress",
        [-ERR_VAL] = "bad value",        [-ERR_WOULDBLOCK] = "would block",
        [-ERR_USE] = "address in use",   [-ERR_ALREADY] = "connecting already",
        [-ERR_ISCONN] = "connected",     [-ERR_CONN] = "not connected",
        [-ERR_IF] = "interface error",   [-ERR_ABRT] = "connection aborted",
        [-ERR_RST] = "connection reset", [-ERR_CLSD] = "connection closed",
        [-ERR_ARG] = "bad argument",
    };
    return err <= 0 && (unsigned)-err < G_N_ELEMENTS(texts) ? texts[-err] : "unknown error";
}
