/*
 * virtio-net: the network device of the virtio specification (1.2 section 5.1), legacy drivers
 * included.  What other parts may know of it; how it works inside is in hw/net/.
 */
#ifndef HW_NET_VIRTIO_NET_H
#define HW_NET_VIRTIO_NET_H

#include <json-c/json.h>

#include "hw/core/iothread.h"
#include "hw/net/rx-filter.h"
#include "hw/virtio/virtio.h"
#include "net/net.h"

/* Queues of one pair, plus the control queue: receive 2i, transmit 2i + 1, control last. */
#define VIRTIO_NET_MAX_QUEUE_PAIRS 1
#define VIRTIO_NET_CTRL_QUEUE_SIZE 64 /* as QEMU's */

#define VIRTIO_NET_TX_TIMER_DEFAULT_NS   150000
#define VIRTIO_NET_TX_BURST_DEFAULT      256
#define VIRTIO_NET_RX_BURST_DEFAULT      256
#define VIRTIO_NET_TX_LATENCY_DEFAULT_NS 50000
#define VIRTIO_NET_RSC_INTERVAL_DEFAULT  300000 /* ns */
#define VIRTIO_NET_QUEUE_SIZE_DEFAULT    256
#define VIRTIO_NET_QUEUE_SIZE_MIN        64
#define VIRTIO_NET_QUEUE_SIZE_MAX        1024

typedef struct VirtIONet VirtIONet;
typedef struct VirtIONetQueue VirtIONetQueue;

typedef struct VirtIONetClass {
    VirtIODeviceClass parent_class;
} VirtIONetClass;

/* What a user sets. */
typedef struct VirtIONetConf {
    uint8_t mac[ETH_MAC_LEN];
    char *netdev;
    int32_t bootindex;
    uint32_t tx_timer_ns;
    int32_t tx_burst, rx_burst; /* packets */
    uint32_t tx_latency_ns;
    char *tx; /* name of the policy; NULL or empty: bh */
    uint16_t rx_queue_size, tx_queue_size;
    uint16_t mtu;  /* 0: none is advised */
    int32_t speed; /* Mbit/s; -1: unknown */
    char *duplex;
    bool failover, mtu_bypass_backend, soft_offloads;
    uint32_t rsc_interval_ns;
    OnOffAuto hash[9]; /* in the order of VIRTIO_NET_RSS_HASH_TYPE_* */
    IOThread *iothread;
} VirtIONetConf;

/* What the control queue's commands can change; a command works on a copy, so that one that fails
 * changes nothing. */
typedef struct VirtIONetCtrlState {
    RxFilter filter;
    bool announce;           /* VIRTIO_NET_S_ANNOUNCE in the status word */
    uint64_t guest_offloads; /* bits VIRTIO_NET_F_GUEST_* in force */
} VirtIONetCtrlState;

struct VirtIONet {
    VirtIODevice parent_obj;
    VirtIONetConf conf;
    uint8_t duplex; /* as the configuration space has it */

    unsigned queue_pairs;
    VirtIONetQueue *queues; /* one a pair */
    VirtQueue *ctrl_vq;
    BottomHalf *ctrl_bh; /* looks at the control queue when the device starts */
    uint64_t ctrl_notifications, ctrl_commands, ctrl_errors;
    NetClient *nc;   /* of queue pair 0 */
    EventLoop *loop; /* of all queue pairs */
    bool running;
    bool link_was_down; /* as the driver was last told */

    VirtIONetCtrlState ctrl; /* the main thread's truth */
    RxFilter rx_filter;      /* copy of ctrl.filter that receiving reads, in @loop's thread */
    unsigned guest_hdr_len;  /* bytes in front of every frame in guest buffers: 10 or 12 */
    bool mergeable;
    bool rx_filter_event; /* the filter was read: tell of the next change, once */
};

QOM_DECLARE_TYPE(VirtIONet, VirtIONetClass, virtio_net, VIRTIO_NET)
#define TYPE_VIRTIO_NET (virtio_net_get_type())

/* "virtio-net-device", and "virtio-net-pci" with its variants and alias. */
void virtio_net_register_types(void);

/* `info virtio-net`; once, by a program with monitors (query-virtio-net-stats needs no call). */
void virtio_net_register_hmp(void);

/* Called when a driver changed its receive filter, once after each read of it; main thread.
 * @name: the NIC's id or NULL; @path: of the device in the composition tree. */
extern void (*virtio_net_rx_filter_changed_hook)(const char *name, const char *path);

/* Counters of all queues: [{"queue": 0, "tx": {…}, "rx": {…}}, …].  Main thread; a new reference.
 */
json_object *virtio_net_query_stats(VirtIONet *n);

#endif
