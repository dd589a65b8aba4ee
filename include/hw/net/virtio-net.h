/*
 * virtio-net: the network device of the virtio specification (1.2 section 5.1), legacy drivers
 * included.  What other parts may know of it; how it works inside is in hw/net/.
 */
#ifndef HW_NET_VIRTIO_NET_H
#define HW_NET_VIRTIO_NET_H

#include <json-c/json.h>

#include "hw/core/iothread.h"
#include "hw/net/rx-filter.h"
#include "hw/virtio/vhost.h"
#include "hw/virtio/virtio.h"
#include "net/net.h"

/* Queues: receive 2i, transmit 2i + 1 of each pair, control last.  Without MQ or RSS negotiated
 * there is one pair, whatever the back end has. */
#define VIRTIO_NET_MAX_QUEUE_PAIRS 64
#define VIRTIO_NET_CTRL_QUEUE_SIZE 64 /* as QEMU's */

#define VIRTIO_NET_TX_TIMER_DEFAULT_NS   150000
#define VIRTIO_NET_TX_BURST_DEFAULT      256
#define VIRTIO_NET_RX_BURST_DEFAULT      256
#define VIRTIO_NET_TX_LATENCY_DEFAULT_NS 50000
#define VIRTIO_NET_RSC_INTERVAL_DEFAULT  300000 /* ns */
#define VIRTIO_NET_QUEUE_SIZE_DEFAULT    256
#define VIRTIO_NET_QUEUE_SIZE_MIN        64
#define VIRTIO_NET_QUEUE_SIZE_MAX        1024

#define VIRTIO_NET_RSS_TABLE_MAX 128    /* entries of the indirection table; as QEMU's */
#define VIRTIO_NET_RSS_KEY_MAX   40     /* bytes */
#define VIRTIO_NET_HASH_TUNNELS  0x1ffu /* VIRTIO_NET_HASH_TUNNEL_TYPE_*, all of them */

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

/* Receive-side scaling and hash reports, as the driver configured them. */
typedef struct VirtIONetRss {
    bool redirect;         /* the table says which queue a frame goes to */
    uint32_t hash_types;   /* enabled VIRTIO_NET_RSS_HASH_TYPE_*; 0: nothing is hashed */
    uint16_t unclassified; /* queue pair of frames without a hash */
    uint16_t table_len;    /* a power of two; 0 until the first RSS_CONFIG */
    uint16_t table[VIRTIO_NET_RSS_TABLE_MAX]; /* queue pairs */
    uint8_t key_len;
    uint8_t key[VIRTIO_NET_RSS_KEY_MAX];
} VirtIONetRss;

/* Notification coalescing of a queue; either 0: none. */
typedef struct VirtIONetCoalescing {
    uint32_t max_packets, max_usecs;
} VirtIONetCoalescing;

/* What the control queue's commands can change; a command works on a copy, so that one that fails
 * changes nothing. */
typedef struct VirtIONetCtrlState {
    RxFilter filter;
    bool announce;           /* VIRTIO_NET_S_ANNOUNCE in the status word */
    uint64_t guest_offloads; /* in force, as GUEST_OFFLOADS_SET has them */
    uint16_t queue_pairs;    /* in use */
    VirtIONetRss rss;
    uint32_t hash_tunnels; /* VIRTIO_NET_HASH_TUNNEL_TYPE_* whose inner packet is hashed */
    /* What all receive and all transmit queues were last told, and what each queue has. */
    VirtIONetCoalescing coal_rx, coal_tx;
    VirtIONetCoalescing coal[2 * VIRTIO_NET_MAX_QUEUE_PAIRS];
} VirtIONetCtrlState;

/* Who moves packets: nobody, the device's own engines, or vhost back ends. */
typedef enum VirtIONetPath {
    VIRTIO_NET_PATH_NONE,
    VIRTIO_NET_PATH_OWN,
    VIRTIO_NET_PATH_VHOST
} VirtIONetPath;

struct VirtIONet {
    VirtIODevice parent_obj;
    VirtIONetConf conf;
    uint8_t duplex; /* as the configuration space has it */

    unsigned queue_pairs;   /* that there can be: queues of the back end */
    unsigned present_pairs; /* that there are for the driver: 1 without MQ or RSS */
    VirtIONetQueue *queues; /* one a pair */
    VirtQueue *ctrl_vq;
    BottomHalf *ctrl_bh; /* looks at the control queue when the device starts */
    uint64_t ctrl_notifications, ctrl_commands, ctrl_errors;
    NetClient *nc;   /* of queue pair 0 */
    EventLoop *loop; /* of all queue pairs */
    bool running;
    bool link_was_down; /* as the driver was last told */

    json_object *primary_options; /* failover: of the primary, once somebody wanted it; or NULL */
    bool primary_hidden;          /* it is not to be made yet, or not any more */
    bool primary_leaving;         /* a migration asked it to go, and it is still there */
    BottomHalf *failover_bh;

    VirtIONetPath path;
    VhostDev *vhosts[VIRTIO_NET_MAX_QUEUE_PAIRS];
    unsigned num_vhosts;
    bool vhost_used;   /* since the last reset */
    bool vhost_failed; /* to start: not tried again until something changes */
    BottomHalf *path_bh;

    VirtIONetCtrlState ctrl; /* the main thread's truth */
    /* What sending and receiving read, in @loop's thread: copies of parts of @ctrl. */
    RxFilter rx_filter;
    struct VirtIONetSteering *steering;
    unsigned guest_hdr_len; /* bytes in front of every frame in guest buffers: 10, 12, 20 or 24 */
    bool mergeable, hash_report, rsc_ext;
    NetOffloads tx_native;   /* that the peer does for frames sent */
    bool tx_soft;            /* the driver may ask for more: that is the device's to do */
    bool tx_look;            /* headers of frames sent are read */
    bool tx_count;           /* and counted, for DEVICE_STATS */
    NetOffloads rx_offloads; /* that the driver takes now */
    unsigned rx_look;        /* bytes of a received frame that are looked at */
    unsigned rx_mtu;         /* longest IP packet that may reach the driver; 0: any */
    bool rx_filter_event;    /* the filter was read: tell of the next change, once */
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
