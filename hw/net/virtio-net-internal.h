/*
 * What the files of virtio-net share.
 *
 * A queue pair (VirtIONetQueue) lives in one event loop.  Everything in it is touched by that
 * loop's thread alone while the device runs; the main thread reaches it with
 * event_loop_run_sync().
 */
#ifndef HW_NET_VIRTIO_NET_INTERNAL_H
#define HW_NET_VIRTIO_NET_INTERNAL_H

#include "hw/net/frame.h"
#include "hw/net/toeplitz.h"
#include "hw/net/virtio-net-uapi.h"
#include "hw/net/virtio-net.h"

/* Lengths of the header in front of each frame (virtio 1.4, 5.1.6): pre-1.0 without mergeable
 * buffers, all others, with a hash report, and with tunnel offloads. */
#define VIRTIO_NET_HDR_LEN_SHORT  10
#define VIRTIO_NET_HDR_LEN_FULL   12
#define VIRTIO_NET_HDR_LEN_HASH   20
#define VIRTIO_NET_HDR_LEN_TUNNEL 24
#define VIRTIO_NET_HDR_LEN_MAX    24

/* --- virtio-net-stats.c: counters, plain fields of the queue's thread --- */

/* What led to a flush. */
typedef enum TxFlushCause {
    TX_FLUSH_NOTIFY, /* in the notification itself */
    TX_FLUSH_BH,     /* in a bottom half after it, or after a full burst */
    TX_FLUSH_TIMER,
    TX_FLUSH_POLL,   /* a look without having been told */
    TX_FLUSH_RESUME, /* the peer takes packets again */
    TX_FLUSH__MAX
} TxFlushCause;

/* Histograms.  Packets a flush: 1, 2, 3-4, 5-8, … 513-1024, more.  Waits: below 256 ns, then two
 * a doubling up to 16.8 ms, then the rest. */
#define TX_BATCH_BUCKETS 12
#define TX_WAIT_BUCKETS  34

typedef struct VirtIONetTxStats {
    uint64_t notifications; /* from the driver */
    uint64_t suppressed;    /* looks that found packets which nobody had told of */
    uint64_t spurious;      /* notifications that came while they were off */
    uint64_t empty;         /* notifications that found nothing */
    uint64_t interrupts;
    uint64_t interrupts_coalesced; /* put off by coalescing */
    uint64_t packets, bytes;       /* taken by the peer; frames without their header */
    uint64_t batches;              /* used-index stores */
    uint64_t bursts;               /* flushes that ended at x-txburst */
    uint64_t stalls;               /* sends of which the peer did not take all */
    uint64_t stall_ns, stall_max_ns;
    uint64_t linearised; /* chains copied: more buffers than a system call takes */
    uint64_t drops[NET_DROP__MAX];
    uint64_t flushes[TX_FLUSH__MAX];        /* that found something */
    uint64_t flush_sizes[TX_BATCH_BUCKETS]; /* packets a flush */
    uint64_t waits[TX_WAIT_BUCKETS];        /* ns from being seen to being sent, by packet */
    uint64_t wait_ns, wait_max_ns;
} VirtIONetTxStats;

typedef struct VirtIONetRxStats {
    uint64_t notifications;
    uint64_t interrupts;
    uint64_t interrupts_coalesced;
    uint64_t packets, bytes;
    uint64_t batches;
    uint64_t buffers;     /* used for those packets */
    uint64_t stalls;      /* times a frame had to wait for buffers */
    uint64_t bad_buffers; /* returned empty: without room for the header */
    uint64_t drops[NET_DROP__MAX];
} VirtIONetRxStats;

/* When the packets in the ring were first seen: a few looks, oldest first. */
#define TX_LOOKS 8
typedef struct TxLooks {
    uint64_t done;  /* packets that left, ever */
    uint64_t upto;  /* and those seen */
    unsigned count; /* of entries below, [0, count) */
    struct {
        uint64_t upto;
        int64_t ns;
    } look[TX_LOOKS];
    bool notified; /* no flush has followed the last notification, which came at notified_ns */
    int64_t notified_ns;
    int64_t stalled_ns; /* since when the peer takes nothing; 0: it does */
} TxLooks;

/* A look at the ring found @available packets that have not left. */
void tx_looks_note(TxLooks *looks, unsigned available, int64_t now_ns);
/* @packets left at @now_ns; returns how many of them no look had seen: they came into sight at
 * @seen_ns. */
unsigned tx_looks_leave(TxLooks *looks, VirtIONetTxStats *stats, unsigned packets, int64_t seen_ns,
                        int64_t now_ns);
unsigned tx_batch_bucket(unsigned packets);
unsigned tx_wait_bucket(uint64_t ns);
/* The largest value that falls into the bucket; UINT64_MAX for the last one. */
uint64_t tx_batch_bucket_limit(unsigned bucket);
uint64_t tx_wait_bucket_limit(unsigned bucket);

/* --- virtio-net-txpolicy.c: when to flush --- */

/* What a policy drives.  flush returns how many chains it finished, at most a burst, or -EBUSY
 * when the peer takes no more.  enable_notify: true when more arrived meanwhile. */
typedef struct TxEngineOps {
    int (*flush)(void *opaque, TxFlushCause cause);
    bool (*enable_notify)(void *opaque);
    void (*disable_notify)(void *opaque);
} TxEngineOps;

typedef struct TxPolicy TxPolicy;

/* What users set, also while packets flow. */
typedef struct TxSettings {
    const TxPolicy *policy;
    int burst;           /* packets */
    uint32_t timer_ns;   /* timer, flush-first */
    uint32_t latency_ns; /* adaptive */
} TxSettings;

/* What tx=adaptive has learned of its queue and of the machine (virtio-net-txpolicy.c). */
typedef struct TxAdaptive {
    int64_t gap_ns;      /* between packets */
    int64_t last_gap_ns; /* the last ones */
    int64_t lateness_ns; /* of a timer that ends a sleep: what sleeping costs here */
    int64_t last_ns;     /* when the ring was last found to hold something */
    int64_t due_ns;      /* end of the hold, or of the poll; 0: neither */
    bool holding, polling;
    unsigned poll_failures, poll_skip; /* polls that found nothing, and how many to pass over */
    uint64_t holds, polls;             /* begun, for query-virtio-net-stats */
} TxAdaptive;

typedef struct TxScheduler {
    TxSettings set;
    const TxEngineOps *engine;
    void *opaque;
    BottomHalf *bh;
    Timer timer;
    TxFlushCause cause; /* of the flush that is due */
    unsigned ring_size; /* 0: not known */
    TxAdaptive adaptive;
    bool running;
    bool waiting; /* a flush is due (migrated as tx_waiting) */
    bool stalled; /* the peer takes no more; it will say when it does */
} TxScheduler;

/* NULL or empty: bh.  NULL if there is none of that name. */
const TxPolicy *tx_policy_find(const char *name);
#define TX_POLICY_NAMES "bh, timer, flush-first, adaptive"
const char *tx_policy_name(const TxPolicy *policy);

/* From the main thread, before @loop touches it. */
void tx_scheduler_init(TxScheduler *s, EventLoop *loop, const TxSettings *set,
                       const TxEngineOps *engine, void *opaque);
void tx_scheduler_cleanup(TxScheduler *s);
/* In the loop's thread.  Other settings from now on; what waits is flushed soon. */
void tx_scheduler_configure(TxScheduler *s, const TxSettings *set);
/* @pending: there is something in the queue. */
void tx_scheduler_start(TxScheduler *s, bool pending);
void tx_scheduler_stop(TxScheduler *s);  /* what waits still waits after the next start */
void tx_scheduler_reset(TxScheduler *s); /* nothing waits any more */
/* The driver's notification; false: it was expected not to come. */
bool tx_scheduler_notified(TxScheduler *s);
void tx_scheduler_writable(TxScheduler *s); /* the peer takes packets again */

/* --- the queue pair --- */
#define TX_BATCH NET_BATCH_MAX

typedef enum TxKind {
    TX_DIRECT, /* its packet lies over guest memory */
    TX_COPY,   /* goes through the bounce buffer, on its own */
    TX_SOFT,   /* needs offloads that the peer does not do (virtio-net-tx-soft.c) */
    TX_BAD,    /* returned unsent */
} TxKind;

/* Chains popped and not used yet, in order: [0, count). */
typedef struct TxHand {
    unsigned count;
    uint32_t generation; /* of the memory map that the packets point into */
    VirtQueueElement *elems[TX_BATCH];
    NetPacket pkts[TX_BATCH];
    uint32_t sizes[TX_BATCH]; /* of the frame, header not counted */
    uint8_t kinds[TX_BATCH];  /* TxKind */
    uint8_t flags[TX_BATCH];  /* of the header, where anybody asks (tx_look) */
    uint8_t gso[TX_BATCH];    /* its gso_type */
} TxHand;

typedef struct TxSoft TxSoft;
typedef struct VirtIONetRsc VirtIONetRsc;

/* When a flush waits a moment for more: see tx_linger(). */
typedef struct TxLinger {
    unsigned frames;        /* sent since the last time */
    unsigned skip, backoff; /* times still left out; how many after the next one in vain */
} TxLinger;

/* Receive buffers popped and not used yet, in order: [first, first + count). */
typedef struct RxHand {
    unsigned first, count;
    uint32_t generation;
    VirtQueueElement *elems[VIRTQUEUE_MAX_SIZE];
} RxHand;

/* Coalescing of one queue's interrupts (virtio-net-coal.c). */
typedef struct VirtIONetCoal {
    VirtIODevice *vdev;
    VirtQueue *vq;
    VirtIONetCoalescing params;
    unsigned pending; /* packets since the last interrupt that was due */
    Timer timer;
    uint64_t *interrupts, *coalesced; /* the queue's counters */
} VirtIONetCoal;

/* Counters beyond those of every device, for DEVICE_STATS (virtio 1.4, 5.1.6.5.10). */
typedef struct VirtIONetCsumStats {
    uint64_t valid, needs, none; /* frames */
} VirtIONetCsumStats;

typedef struct VirtIONetRxGso {
    uint64_t packets, bytes;                     /* GSO frames passed to the driver */
    uint64_t coalesced_packets, coalesced_bytes; /* of those: made by us */
} VirtIONetRxGso;

typedef struct VirtIONetTxGso {
    uint64_t packets, bytes;             /* GSO frames from the driver */
    uint64_t segments, segments_bytes;   /* that we made of some */
    uint64_t packets_noseg, bytes_noseg; /* GSO frames that the peer took whole */
} VirtIONetTxGso;

struct VirtIONetQueue {
    VirtIONet *n;
    unsigned index;
    NetClient *nc;
    VirtQueue *rx_vq, *tx_vq;
    bool running;      /* the device runs, as this queue's thread knows */
    bool enabled;      /* the pair is in use: its back end is attached, transmitting works */
    BottomHalf *rx_bh; /* for notifications heard in another thread */
    BottomHalf *tx_bh;
    BottomHalf *writable_bh;

    TxScheduler tx;
    TxHand tx_hand;
    uint8_t *tx_bounce; /* NET_MAX_FRAME bytes */
    struct iovec tx_bounce_iov;
    TxSoft *tx_soft; /* NULL until the first frame that needs it */
    TxLinger tx_linger;
    TxLooks tx_looks;
    VirtIONetTxStats tx_stats;
    VirtIONetCsumStats tx_csum;
    VirtIONetTxGso tx_gso;
    VirtIONetCoal tx_coal;

    RxHand rx_hand;
    unsigned rx_filled;           /* elements filled, not flushed */
    unsigned rx_unflushed;        /* frames in them */
    VirtIONetQueue *rx_waits_for; /* frames of our back end wait for buffers of this queue */
    VirtIONetRxStats rx_stats;
    unsigned rx_split_done; /* segments of the frame that our back end has to offer again */
    VirtIONetRsc *rsc;      /* NULL: not negotiated */
    bool rsc_stalled;       /* a frame of it waits for buffers */
    VirtIONetCsumStats rx_csum;
    VirtIONetRxGso rx_gso;
    VirtIONetCoal rx_coal;
};

/* Copy of the control state in the queues' thread, and what was made of it. */
typedef struct VirtIONetSteering {
    VirtIONetRss rss;
    uint32_t hash_tunnels;
    Toeplitz toeplitz;
} VirtIONetSteering;

/* A NIC's NetClient, one a queue pair. */
typedef struct VirtIONetClient {
    NetClient nc;
    VirtIONetQueue *q;
} VirtIONetClient;

/* virtio-net-tx.c; in the queue's thread, init and cleanup in the main thread */
void virtio_net_tx_init(VirtIONetQueue *q);
void virtio_net_tx_cleanup(VirtIONetQueue *q);
void virtio_net_tx_start(VirtIONetQueue *q);
void virtio_net_tx_stop(VirtIONetQueue *q);
void virtio_net_tx_reset(VirtIONetQueue *q);
void virtio_net_tx_handler(VirtIODevice *vdev, VirtQueue *vq);
void virtio_net_tx_writable(NetClient *nc);
/* Takes over tx=, x-txtimer, x-txburst and x-txlatency; main thread, at any time. */
void virtio_net_tx_configure(VirtIONet *n);

/* virtio-net-tx-soft.c */
/* Must the device do what such a header asks for? */
bool virtio_net_tx_is_soft(const VirtIONet *n, uint8_t flags, uint8_t gso_type);
void virtio_net_tx_soft_alloc(VirtIONetQueue *q);
/* Offers the hand's slots [at, at + run), all TX_SOFT or turned TX_BAD meanwhile; returns how many
 * are finished with. */
unsigned virtio_net_tx_send_soft(VirtIONetQueue *q, unsigned at, unsigned run);
/* The hand's first frame is another one now. */
void virtio_net_tx_soft_forget(VirtIONetQueue *q);

/* virtio-net-rx.c; as above */

/* A frame on its way to the driver. */
typedef struct RxFrame {
    const NetPacket *pkt;
    size_t skip;                         /* of the packet: the peer's header */
    size_t size;                         /* of the frame */
    uint8_t hdr[VIRTIO_NET_HDR_LEN_MAX]; /* as the driver will see it */
    uint8_t head[FRAME_HEAD_SIZE];       /* the frame's first bytes, which nobody else can change */
    unsigned head_len;
    uint16_t csum_at; /* where @csum is written in the frame; 0: nowhere */
    uint8_t csum[2];
    bool split; /* waits for a segmentation that the driver does not take */
    bool in_place; /* the packet lies where it belongs: in the first buffers of the hand */
} RxFrame;

/* Puts @frame into the driver's buffers, or drops it, which is counted; false: there are none.
 * @want: frames that will come soon, this one included. */
bool virtio_net_rx_deliver(VirtIONetQueue *q, RxFrame *frame, unsigned want);
/* The end of a batch for one queue: publishes, interrupts. */
void virtio_net_rx_finish(VirtIONetQueue *q);
/* virtio-net-rx-split.c: a frame with split set, which came to @from, in parts to @q; as deliver.
 */
bool virtio_net_rx_split(VirtIONetQueue *from, VirtIONetQueue *q, const RxFrame *frame);

/* virtio-net-rsc.c; in the queue's thread, q->rsc set unless said */
typedef enum RscResult {
    RSC_PASS,  /* to be delivered as it is */
    RSC_TAKEN, /* kept, to become part of a larger frame */
    RSC_WAIT,  /* there are no buffers for what has to go before it */
} RscResult;
RscResult virtio_net_rsc_receive(VirtIONetQueue *q, const RxFrame *frame);
/* Passes on what is kept; false: there are not enough buffers. */
bool virtio_net_rsc_resume(VirtIONetQueue *q);
void virtio_net_rsc_enable(VirtIONetQueue *q, bool on); /* also without */
void virtio_net_rsc_reset(VirtIONetQueue *q);           /* also without; drops what is kept */

/* virtio-net-rx-header.c: fills frame->hdr but for num_buffers and the hash.  False: the driver
 * cannot have the frame; it is counted. */
bool virtio_net_rx_header(VirtIONetQueue *q, RxFrame *frame);
void virtio_net_put_hash(uint8_t *hdr, uint32_t hash, unsigned report);
/* May frames come from this queue's back end at all? */
bool virtio_net_can_take(VirtIONetQueue *q);

void virtio_net_rx_init(VirtIONetQueue *q);
void virtio_net_rx_cleanup(VirtIONetQueue *q);
void virtio_net_rx_start(VirtIONetQueue *q);
void virtio_net_rx_stop(VirtIONetQueue *q);
void virtio_net_rx_reset(VirtIONetQueue *q);
void virtio_net_rx_handler(VirtIODevice *vdev, VirtQueue *vq);
unsigned virtio_net_receive_batch(NetClient *nc, NetPacket *pkts, unsigned n);
unsigned virtio_net_lend_buffers(NetClient *nc, struct iovec *iov, unsigned max);
void virtio_net_receive_lent(NetClient *nc, const NetPacket *pkt);
void virtio_net_end_lending(NetClient *nc);
bool virtio_net_can_receive(NetClient *nc);

/* virtio-net-ctrl.c */
enum {
    VIRTIO_NET_CTRL_CHANGED_FILTER = 1 << 0,
    VIRTIO_NET_CTRL_CHANGED_MAC = 1 << 1,
    VIRTIO_NET_CTRL_CHANGED_OFFLOADS = 1 << 2,
    VIRTIO_NET_CTRL_CHANGED_ANNOUNCE = 1 << 3,
    VIRTIO_NET_CTRL_CHANGED_STEERING = 1 << 4, /* queue pairs, RSS, hashes */
    VIRTIO_NET_CTRL_CHANGED_COALESCING = 1 << 5,
};

typedef enum VirtIONetQueueRole {
    VIRTIO_NET_QUEUE_NONE,
    VIRTIO_NET_QUEUE_RX,
    VIRTIO_NET_QUEUE_TX,
    VIRTIO_NET_QUEUE_CTRL,
} VirtIONetQueueRole;

#define VIRTIO_NET_STATS_COUNTERS 6 /* of a statistics type, at most */

/* What a command may know of the device. */
typedef struct VirtIONetCtrlContext {
    VirtioFeatures features;
    unsigned max_pairs;
    uint32_t hash_types; /* that can be enabled */
    bool (*queue_enabled)(void *opaque, unsigned index);
    VirtIONetQueueRole (*queue_role)(void *opaque, unsigned index);
    /* Counters of statistics type @type (VIRTIO_NET_STATS_TYPE_REPLY_*) in their order. */
    void (*queue_counters)(void *opaque, unsigned index, unsigned type, uint64_t *counters);
    void *opaque;
} VirtIONetCtrlContext;

/* Where a command's answer goes: @size bytes, not 0.  @ack_at: where the success belongs; @end:
 * bytes written, the success included; both set by execute. */
typedef struct VirtIONetCtrlReply {
    const struct iovec *iov;
    unsigned iovcnt;
    size_t size, ack_at, end;
    size_t offset; /* where the next bytes go */
} VirtIONetCtrlReply;

/* Adds to the answer what fits in. */
void virtio_net_ctrl_reply(VirtIONetCtrlReply *reply, const void *buf, size_t bytes);
/* One command in @iov.  Returns VIRTIO_NET_OK, with what changed of @state in *@changed, or
 * VIRTIO_NET_ERR, with nothing changed.  Knows no device. */
uint8_t virtio_net_ctrl_execute(VirtIONetCtrlState *state, const VirtIONetCtrlContext *context,
                                const struct iovec *iov, unsigned iovcnt, VirtIONetCtrlReply *reply,
                                unsigned *changed);
void virtio_net_ctrl_handler(VirtIODevice *vdev, VirtQueue *vq);
void virtio_net_ctrl_init(VirtIONet *n);
void virtio_net_ctrl_start(VirtIONet *n);
/* Hands ctrl.filter to the receiving thread. */
void virtio_net_install_filter(VirtIONet *n);
void virtio_net_update_info(VirtIONet *n); /* the text of `info network` */

/* virtio-net-mq.c */
/* Which queues there are for a driver that takes @features; queues stopped. */
void virtio_net_arrange_queues(VirtIONet *n, VirtioFeatures features);
/* Makes ctrl.queue_pairs, ctrl.rss and ctrl.hash_tunnels true for packets; main thread.  False: a
 * back end's queue cannot be attached or detached; nothing is changed then. */
bool virtio_net_install_steering(VirtIONet *n);
void virtio_net_reset_steering(VirtIONet *n);
VirtIONetQueueRole virtio_net_queue_role(const VirtIONet *n, unsigned index);
uint32_t virtio_net_hash_types(const VirtIONet *n); /* that can be enabled */
/* The queue pair for a frame that came to @q, whose first bytes are @head; its hash too. */
VirtIONetQueue *virtio_net_steer(VirtIONetQueue *q, const uint8_t *head, size_t size,
                                 uint32_t *hash, unsigned *report);
void virtio_net_ctrl_context(VirtIONet *n, VirtIONetCtrlContext *context);

/* virtio-net-coal.c; init in the main thread, used, stop and reset in the queue's loop, the others
 * in the main thread */
void virtio_net_coal_init(VirtIONetCoal *c, VirtIONet *n, VirtQueue *vq, uint64_t *interrupts,
                          uint64_t *coalesced);
/* @packets were published as used: interrupts now, or later, or not. */
void virtio_net_coal_used(VirtIONetCoal *c, unsigned packets);
void virtio_net_coal_stop(VirtIONetCoal *c);
void virtio_net_coal_reset(VirtIONetCoal *c);
void virtio_net_install_coalescing(VirtIONet *n); /* ctrl.coal */
void virtio_net_reset_coalescing(VirtIONet *n);
/* A queue that was reset starts with what all queues of its kind were told. */
void virtio_net_coal_queue_reset(VirtIONet *n, unsigned index);

/* virtio-net-device-stats.c */
void virtio_net_device_stats(VirtIONet *n, unsigned index, unsigned type, uint64_t *counters);

/* virtio-net-offload.c */
/* Length of the configuration space that @features need (virtio 1.2, 5.1.4). */
size_t virtio_net_config_length(VirtioFeatures features);
/* @wanted without what the device lacks, what a peer of @caps cannot do nor (@soft) the device
 * for it, and what has lost a feature that it depends on. */
VirtioFeatures virtio_net_mask_features(VirtioFeatures wanted, const NetCaps *caps, bool soft);
VirtioFeatures virtio_net_get_features(VirtIODevice *vdev, VirtioFeatures wanted, GError **errp);
/* What may be sent to a guest that takes these. */
void virtio_net_offloads_to_peer(uint64_t guest_offloads, NetOffloads *offloads);
/* The offloads of a guest that takes @features, as GUEST_OFFLOADS_SET has them. */
uint64_t virtio_net_guest_offloads(VirtioFeatures features);
/* Tells the peer which offloads the driver takes now; in the queues' thread. */
void virtio_net_apply_offloads(VirtIONet *n);
/* What follows from the driver's features; queues stopped. */
void virtio_net_apply_features(VirtIONet *n, VirtioFeatures features);
extern const char *const virtio_net_feature_names[128];

/* virtio-net-failover.c; main thread */
void virtio_net_failover_init(VirtIONet *n);
void virtio_net_failover_cleanup(VirtIONet *n);
/* The driver accepted @features. */
void virtio_net_failover_features(VirtIONet *n, VirtioFeatures features);

/* virtio-net-vhost.c; main thread */
gboolean virtio_net_vhost_init(VirtIONet *n, GError **errp);
void virtio_net_vhost_cleanup(VirtIONet *n);
/* @features without those that the vhost back end lacks. */
VirtioFeatures virtio_net_vhost_features(VirtIONet *n, VirtioFeatures features, GError **errp);
/* Packets move, by whichever way is right; or stop. */
void virtio_net_path_start(VirtIONet *n);
void virtio_net_path_stop(VirtIONet *n);
/* What the choice depends on may have changed; any thread. */
void virtio_net_path_changed(VirtIONet *n);
/* ctrl.queue_pairs is in use from now on; false: the back end refuses. */
bool virtio_net_vhost_enable_pairs(VirtIONet *n);
void virtio_net_vhost_offloads_changed(VirtIONet *n);
void virtio_net_vhost_reset(VirtIONet *n);
/* One queue; true: the device's own engines have nothing to do with it. */
bool virtio_net_vhost_queue_reset(VirtIONet *n, unsigned index);
bool virtio_net_vhost_queue_enabled(VirtIONet *n, unsigned index);

/* virtio-net-props.c */
extern const Property virtio_net_props[];
/* Refuses values that contradict each other; fills n->duplex and the features that follow from
 * values. */
gboolean virtio_net_check_conf(VirtIONet *n, GError **errp);

/* virtio-net-vmstate.c */
extern const struct VMStateDescription vmstate_virtio_net;

/* virtio-net-stats.c */
/* The counters of one queue pair, all of one moment. */
typedef struct VirtIONetQueueStats {
    VirtIONetTxStats tx;
    VirtIONetRxStats rx;
    VirtQueueStats tx_ring, rx_ring;
    const char *policy;
    TxAdaptive adaptive;
    int64_t time_ns; /* CLOCK_VIRTUAL */
} VirtIONetQueueStats;
/* Main thread. */
void virtio_net_snapshot_stats(VirtIONetQueue *q, VirtIONetQueueStats *stats);

/* virtio-net-counters.c: the plain counters of @stats into the QMP types */
struct VirtioNetTxStats;
struct VirtioNetRxStats;
void virtio_net_fill_tx_counters(const VirtIONetQueueStats *stats, struct VirtioNetTxStats *info);
void virtio_net_fill_rx_counters(const VirtIONetQueueStats *stats, struct VirtioNetRxStats *info);

static inline void virtio_net_tx_drop(VirtIONetQueue *q, NetDropReason reason)
{
    q->tx_stats.drops[reason]++;
    net_count_drop(q->nc, reason, 1);
}
static inline void virtio_net_rx_drop(VirtIONetQueue *q, NetDropReason reason)
{
    q->rx_stats.drops[reason]++;
    net_count_drop(q->nc, reason, 1);
}

#endif
