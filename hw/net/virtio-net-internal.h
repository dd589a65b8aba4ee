/*
 * What the files of virtio-net share.
 *
 * A queue pair (VirtIONetQueue) lives in one event loop.  Everything in it is touched by that
 * loop's thread alone while the device runs; the main thread reaches it with
 * event_loop_run_sync().
 */
#ifndef HW_NET_VIRTIO_NET_INTERNAL_H
#define HW_NET_VIRTIO_NET_INTERNAL_H

#include <linux/virtio_net.h>

#include "hw/net/virtio-net.h"

/* Feature bits that kernel headers of Debian 12 do not have. */
#ifndef VIRTIO_NET_F_GUEST_USO4 /* virtio 1.3, 5.1.3 */
#define VIRTIO_NET_F_GUEST_USO4 54
#define VIRTIO_NET_F_GUEST_USO6 55
#define VIRTIO_NET_F_HOST_USO   56
#endif
#ifndef VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO /* virtio 1.4, 5.1.3 */
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO      65
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM 66
#define VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO       67
#define VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM  68
#endif

/* Lengths of the header in front of each frame (virtio 1.2, 5.1.6): pre-1.0 without mergeable
 * buffers, and all others. */
#define VIRTIO_NET_HDR_LEN_SHORT 10
#define VIRTIO_NET_HDR_LEN_FULL  12

/* --- virtio-net-stats.c: counters, plain fields written by the queue's thread --- */
typedef struct VirtIONetTxStats {
    uint64_t notifications; /* from the driver */
    uint64_t spurious;      /* of those: came while notifications were off */
    uint64_t interrupts;
    uint64_t packets, bytes; /* taken by the peer; frames without their header */
    uint64_t batches;        /* used-index stores */
    uint64_t bursts;         /* flushes that ended at x-txburst */
    uint64_t stalls;         /* sends of which the peer did not take all */
    uint64_t linearised;     /* chains copied: more buffers than a system call takes */
    uint64_t drops[NET_DROP__MAX];
} VirtIONetTxStats;

typedef struct VirtIONetRxStats {
    uint64_t notifications;
    uint64_t interrupts;
    uint64_t packets, bytes;
    uint64_t batches;
    uint64_t buffers;     /* used for those packets */
    uint64_t stalls;      /* times a frame had to wait for buffers */
    uint64_t bad_buffers; /* returned empty: without room for the header */
    uint64_t drops[NET_DROP__MAX];
} VirtIONetRxStats;

/* --- virtio-net-txpolicy.c: when to flush --- */

/* What a policy drives.  flush returns how many chains it finished, at most a burst, or -EBUSY
 * when the peer takes no more.  enable_notify: true when more arrived meanwhile. */
typedef struct TxEngineOps {
    int (*flush)(void *opaque);
    bool (*enable_notify)(void *opaque);
    void (*disable_notify)(void *opaque);
} TxEngineOps;

typedef struct TxPolicy TxPolicy;

typedef struct TxScheduler {
    const TxPolicy *policy;
    const TxEngineOps *engine;
    void *opaque;
    int burst;
    uint32_t timer_ns;
    BottomHalf *bh;
    Timer timer;
    bool running;
    bool waiting; /* a flush is due (migrated as tx_waiting) */
    bool stalled; /* the peer takes no more; it will say when it does */
} TxScheduler;

/* NULL or empty: bh.  NULL if there is none of that name. */
const TxPolicy *tx_policy_find(const char *name);
#define TX_POLICY_NAMES "bh, timer, flush-first"
const char *tx_policy_name(const TxPolicy *policy);

/* From the main thread, before @loop touches it. */
void tx_scheduler_init(TxScheduler *s, EventLoop *loop, const TxPolicy *policy, int burst,
                       uint32_t timer_ns, const TxEngineOps *engine, void *opaque);
void tx_scheduler_cleanup(TxScheduler *s);
/* In the loop's thread.  @pending: there is something in the queue. */
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
} TxHand;

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

struct VirtIONetQueue {
    VirtIONet *n;
    unsigned index;
    NetClient *nc;
    VirtQueue *rx_vq, *tx_vq;
    bool running;      /* the device runs, as this queue's thread knows */
    BottomHalf *rx_bh; /* for notifications heard in another thread */
    BottomHalf *tx_bh;
    BottomHalf *writable_bh;

    TxScheduler tx;
    TxHand tx_hand;
    uint8_t *tx_bounce; /* NET_MAX_FRAME bytes */
    TxLinger tx_linger;
    VirtIONetTxStats tx_stats;

    RxHand rx_hand;
    unsigned rx_filled; /* elements filled, not flushed */
    VirtIONetRxStats rx_stats;
};

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

/* virtio-net-rx.c; as above */
void virtio_net_rx_init(VirtIONetQueue *q);
void virtio_net_rx_cleanup(VirtIONetQueue *q);
void virtio_net_rx_start(VirtIONetQueue *q);
void virtio_net_rx_stop(VirtIONetQueue *q);
void virtio_net_rx_reset(VirtIONetQueue *q);
void virtio_net_rx_handler(VirtIODevice *vdev, VirtQueue *vq);
unsigned virtio_net_receive_batch(NetClient *nc, NetPacket *pkts, unsigned n);
bool virtio_net_can_receive(NetClient *nc);

/* virtio-net-ctrl.c */
enum {
    VIRTIO_NET_CTRL_CHANGED_FILTER = 1 << 0,
    VIRTIO_NET_CTRL_CHANGED_MAC = 1 << 1,
    VIRTIO_NET_CTRL_CHANGED_OFFLOADS = 1 << 2,
    VIRTIO_NET_CTRL_CHANGED_ANNOUNCE = 1 << 3,
};
/* One command in @iov.  Returns VIRTIO_NET_OK, with what changed of @state in *@changed, or
 * VIRTIO_NET_ERR, with nothing changed.  Knows no device. */
uint8_t virtio_net_ctrl_execute(VirtIONetCtrlState *state, VirtioFeatures features,
                                const struct iovec *iov, unsigned iovcnt, unsigned *changed);
void virtio_net_ctrl_handler(VirtIODevice *vdev, VirtQueue *vq);
void virtio_net_ctrl_init(VirtIONet *n);
void virtio_net_ctrl_start(VirtIONet *n);
/* Hands ctrl.filter to the receiving thread. */
void virtio_net_install_filter(VirtIONet *n);
void virtio_net_update_info(VirtIONet *n); /* the text of `info network` */

/* virtio-net-offload.c */
/* Length of the configuration space that @features need (virtio 1.2, 5.1.4). */
size_t virtio_net_config_length(VirtioFeatures features);
/* @wanted without what this version lacks, what a peer of @caps cannot do, and what has lost a
 * feature that it depends on. */
VirtioFeatures virtio_net_mask_features(VirtioFeatures wanted, const NetCaps *caps);
VirtioFeatures virtio_net_get_features(VirtIODevice *vdev, VirtioFeatures wanted, GError **errp);
/* What may be sent to a guest that takes the GUEST_* bits of @features. */
void virtio_net_offloads_from_features(uint64_t features, NetOffloads *offloads);
uint64_t virtio_net_guest_offload_mask(void);
/* Tells the peer which offloads the driver takes now; in the queues' thread. */
void virtio_net_apply_offloads(VirtIONet *n);
/* What follows from the driver's features; queues stopped. */
void virtio_net_apply_features(VirtIONet *n, VirtioFeatures features);
extern const char *const virtio_net_feature_names[128];

/* virtio-net-props.c */
extern const Property virtio_net_props[];
/* Refuses values that contradict each other, or ask for what this version does not have; fills
 * n->duplex and the features that follow from values. */
gboolean virtio_net_check_conf(VirtIONet *n, GError **errp);

/* virtio-net-stats.c */
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
