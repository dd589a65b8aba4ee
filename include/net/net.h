/*
 * Network clients: the two ends of every packet's way.
 *
 * A NIC's client and a back end's client are peers.  The same call carries packets in both
 * directions, in batches, with back-pressure: the receiver says how many it took, the rest stay
 * the sender's until the receiver calls net_peer_writable().  Nothing is dropped silently: each
 * drop is counted by reason.  net/ never includes hw/: devices and back ends meet here.
 *
 * Threads: a client and its peer are driven by one loop at a time (nc->loop); creation
 * and deletion are the main thread's, with the device drained.
 */
#ifndef NET_NET_H
#define NET_NET_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "util/event-loop.h"

#define NET_MAX_FRAME (64 * 1024 + 4096) /* 69,632 bytes: the longest frame, header included */
#define NET_BATCH_MAX 256
#define ETH_MAC_LEN   6

typedef struct Netdev Netdev; /* qapi/net.json */
typedef struct NetClient NetClient;
typedef struct NetClientOps NetClientOps;
typedef struct VhostBackend VhostBackend; /* vhost/vhost.h */

/* One frame.  When the two peers agreed on a vnet header (nc->vnet_hdr_len > 0) it is in front. */
typedef struct NetPacket {
    struct iovec *iov;
    unsigned iovcnt;
    size_t size; /* bytes in all */
} NetPacket;

/* What a client's side of the link can do with a vnet header; and what is switched on. */
typedef struct NetOffloads {
    bool csum, tso4, tso6, ecn, ufo, uso4, uso6, tunnel, tunnel_csum;
} NetOffloads;

typedef struct NetCaps {
    bool vnet_hdr;        /* understands struct virtio_net_hdr in front of frames */
    NetOffloads offloads; /* it can receive (device to back end) and, asked, send */
} NetCaps;

typedef enum NetDropReason {
    NET_DROP_LINK_DOWN,
    NET_DROP_NO_PEER,
    NET_DROP_NOT_READY,
    NET_DROP_FILTERED,
    NET_DROP_TOO_LONG,
    NET_DROP_NO_BUFFER,
    NET_DROP_BAD_HEADER,
    NET_DROP_HOST_ERROR,
    NET_DROP_OVERFLOW,
    NET_DROP__MAX
} NetDropReason;
extern const char *const net_drop_names[NET_DROP__MAX];

typedef struct NetStats {
    uint64_t rx_packets, rx_bytes; /* received by this client from its peer */
    uint64_t tx_packets, tx_bytes; /* sent by this client and taken */
    uint64_t stalls;               /* sends of which the peer did not take all */
    uint64_t drops[NET_DROP__MAX];
} NetStats;

struct NetClientOps {
    const char *type; /* "nic", "user", "tap", "socket", … as info network prints */
    size_t instance_size;
    /* Takes up to @n packets from the peer; returns how many it took (or dropped and counted).
     * Fewer than n: call net_peer_writable() when more can come. */
    unsigned (*receive_batch)(NetClient *nc, NetPacket *pkts, unsigned n);
    /*
     * So that a large frame need not be copied: up to @max pieces of the receiver's own memory, in
     * which NET_MAX_FRAME bytes have room; 0: not now.  What the sender has read into them it
     * passes with receive_lent(), the pieces for the next frame it asks for anew, and end_lending()
     * closes the batch.  Nothing else may be sent in between.  NULLs: never.
     */
    unsigned (*lend_buffers)(NetClient *nc, struct iovec *iov, unsigned max);
    void (*receive_lent)(NetClient *nc, const NetPacket *pkt);
    void (*end_lending)(NetClient *nc);
    /* Could one packet be taken now?  NULL: always. */
    bool (*can_receive)(NetClient *nc);
    /* The peer can take more: resume what stalled. */
    void (*peer_writable)(NetClient *nc);
    /* Peer plugged, unplugged, or its link changed. */
    void (*link_changed)(NetClient *nc);
    /* Back end: capabilities, and what the device settled on. NULLs: none. */
    void (*get_caps)(NetClient *nc, NetCaps *caps);
    gboolean (*set_vnet_hdr_len)(NetClient *nc, unsigned len); /* 0, 10, 12, 20, …; false: cannot */
    gboolean (*set_offloads)(NetClient *nc, const NetOffloads *offloads); /* what it may send us */
    /* Multiqueue back ends: this queue is attached or detached. */
    gboolean (*set_enabled)(NetClient *nc, bool enabled, GError **errp);
    /* Move handlers to @loop. */
    void (*set_loop)(NetClient *nc, EventLoop *loop);
    /* Who can move the packets of this queue between the guest's rings and the network in the
     * device's place; the same for several queues of a client.  NULL: nobody. */
    VhostBackend *(*get_vhost)(NetClient *nc);
    json_object *(*query_rx_filter)(NetClient *nc); /* NICs; QAPI RxFilterInfo */
    void (*announce)(NetClient *nc);
    void (*cleanup)(NetClient *nc);
};

struct NetClient {
    const NetClientOps *ops;
    char *name;  /* id, or "virtio-net-pci.0" */
    char *model; /* "user", "virtio-net-pci": what default names are made from */
    NetClient *peer;
    unsigned queue_index;
    bool is_netdev; /* by -netdev: found by id, may be a device's peer */
    bool is_nic;
    bool link_down;
    bool deleted_peer;     /* its netdev was deleted under it */
    unsigned vnet_hdr_len; /* in force towards the peer */
    EventLoop *loop;
    GString *info; /* text behind "type=": changes with connections */
    NetStats stats;
    GPtrArray *filters; /* of NetFilter, in order */
    /* Of what this client sends next, so many frames have been through the filters before
     * filter_at (NULL: through all): see net/filter.c. */
    struct NetFilter *filter_at;
    unsigned filter_passed;
    unsigned announce_left;
};

/* All clients, in order of creation. */
extern GPtrArray *net_clients;

/* Registers a client with @name (copied) and connects it to @peer (or NULL). */
NetClient *net_client_new(const NetClientOps *ops, NetClient *peer, const char *model,
                          const char *name);
/* The same for queue @queue of a back end that has several; without a peer. */
NetClient *net_client_new_queue(const NetClientOps *ops, const char *model, const char *name,
                                unsigned queue);
/* A NIC's clients, one a queue; peers[i] may be NULL.  Default name "model.N". */
NetClient *net_nic_new(const NetClientOps *ops, NetClient *const *peers, unsigned queues,
                       const char *model, const char *id);
void net_client_delete(NetClient *nc);      /* with its other queues; the peer lives on, alone */
NetClient *net_client_find(const char *id); /* queue 0; back ends only, never a NIC */
/* All queues of netdev @id, in order; returns how many (at most @max). */
unsigned net_client_find_queues(const char *id, NetClient **ncs, unsigned max);

/* Delivers up to @n packets (at most NET_BATCH_MAX) to the peer of @nc.  Returns how many were
 * taken (dropped and counted ones too); packets not taken stay the caller's, in order.
 * The iovecs may be changed by the call only for packets that were taken. */
unsigned net_send_batch(NetClient *nc, NetPacket *pkts, unsigned n);
/* The same without a copy, as far as the peer can (see NetClientOps.lend_buffers): memory for one
 * frame, 0 pieces if that is not to be had now; the frame of @size bytes that was read into it; and
 * the end of the batch, due after the first call that gave memory. */
unsigned net_borrow_buffers(NetClient *nc, struct iovec *iov, unsigned max);
void net_send_borrowed(NetClient *nc, struct iovec *iov, unsigned iovcnt, size_t size);
void net_return_buffers(NetClient *nc);
/* The sender gives up what it could not send and begins anew (a device's reset): what it sends next
 * are other frames. */
void net_forget_unsent(NetClient *nc);
/* Called by a receiver that took less than offered, or starts to receive. */
void net_peer_writable(NetClient *nc);
bool net_can_send(NetClient *nc); /* would the peer take one? */
void net_count_drop(NetClient *nc, NetDropReason reason, unsigned packets);
void net_set_info(NetClient *nc, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
/* Moves @nc's handlers to @loop; not its peer's.  Main thread, with the device drained.  False
 * with error: this type of client stays in the main loop (user, hubport). */
gboolean net_client_set_loop(NetClient *nc, EventLoop *loop, GError **errp);
/* Queue @index of the client @nc is a queue of; NULL: it has fewer. */
NetClient *net_client_queue(NetClient *nc, unsigned index);
/* Every queue of the client named @name, back end or NIC; returns how many (at most @max). */
unsigned net_client_find_any(const char *name, NetClient **ncs, unsigned max);

/* Peer's capabilities and settings, from the device's side. No peer: nothing. */
void net_peer_caps(NetClient *nc, NetCaps *caps);
bool net_peer_set_vnet_hdr_len(NetClient *nc, unsigned len);
bool net_peer_set_offloads(NetClient *nc, const NetOffloads *offloads);

/* -netdev: {"type": …, "id": …, …}, values as keyval_parse() makes them (strings) or JSON types. */
gboolean net_init_netdev(json_object *options, GError **errp);
/* QMP's netdev_add: the same with JSON types only. */
gboolean net_add_netdev(json_object *options, GError **errp);
/* The same, parsed already. */
gboolean net_init_netdev_parsed(const Netdev *netdev, GError **errp);
/* Options of -netdev that may be repeated: each becomes a list (KeyvalOptions.list_keys). */
extern const char *const net_list_keys[];
/* Whether the type that @text ("TYPE,…") begins with takes no "key" for "key=on" (allow_flags). */
bool net_options_are_strict(const char *text);
char *net_help_text(void); /* -netdev help; g_free it */
/*
 * -nic TEXT as -netdev and -device options: "user,model=M,mac=…,<netdev options>".  "none": both
 * are NULL.  *netdev and *device are new references; the device's model is @default_model
 * unless one is named.
 */
gboolean net_parse_nic(const char *text, const char *default_model, json_object **netdev,
                       json_object **device, GError **errp);
/* -net TEXT: only "none" is left of it. */
gboolean net_parse_legacy_net(const char *text, GError **errp);
/*
 * The fd a user named in @option=@text: a number, or a name given with getfd (through
 * net_named_fd, which the monitor's side sets; NULL: numbers only).  -1 with error.
 */
int net_fd_parse(const char *option, const char *text, GError **errp);
extern int (*net_named_fd)(const char *name, GError **errp);
/* HMP commands, named fds and filter objects; once, by a program with monitors. */
void net_monitor_init(void);
gboolean net_delete_netdev(const char *id, GError **errp);
gboolean net_set_link(const char *name, bool up, GError **errp);
void net_print_info(GString *out);         /* info network, lines end in "\r\n" */
gboolean net_check_clients(GError **errp); /* after start: warnings for clients without peers */
void net_cleanup(void);

/* The next default MAC, 52:54:00:12:34:56 upwards, that no NIC has; @mac all zero is replaced,
 * any other is noted as taken.  net_release_mac() when the NIC goes. */
void net_default_mac(uint8_t mac[ETH_MAC_LEN]);
void net_release_mac(const uint8_t mac[ETH_MAC_LEN]);
/* "52:54:00:12:34:56" or with dashes; exact. */
gboolean net_parse_mac(const char *text, uint8_t mac[ETH_MAC_LEN], GError **errp);

/* Back-end table: a type of -netdev. */
typedef struct NetBackend {
    const char *type;
    const char *help;
    gboolean (*init)(const Netdev *netdev, GError **errp); /* makes clients named netdev->id */
} NetBackend;
extern const NetBackend net_backends[]; /* ended by type NULL */

#endif
