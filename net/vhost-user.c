/*
 * -netdev vhost-user: the packets are moved by another process, which shares the guest's memory.
 *
 * No frame passes here: the device hands its rings to the VhostBackend (vhost/vhost-user.c), one
 * connection for all queues.  What is left to this file: the clients that the device is connected
 * to, whose link is up while the back end is there, and RARP frames of announce-self, which are
 * turned into the request that asks the back end to send one.
 */
#include <string.h>

#include "chardev/chardev.h"
#include "net/net-internal.h"
#include "qapi/qapi-types.h"
#include "util/error.h"
#include "util/iov.h"
#include "vhost/vhost.h"

#define QUEUES_MAX        256
#define RUN_TIME_WAIT_MS  5000 /* for a connection, when the monitor adds a netdev */
#define RARP_FRAME_SIZE   60
#define ETHERTYPE_OFFSET  12
#define SOURCE_MAC_OFFSET 6

typedef struct VhostUserClient {
    NetClient nc;
    VhostBackend *backend; /* queue 0 owns it; NULL: not made yet, or gone */
} VhostUserClient;

bool net_at_run_time;

/* --- RARP frames --- */

typedef struct RarpCall {
    char *netdev;
    uint8_t mac[ETH_MAC_LEN];
} RarpCall;

/* In the main thread. */
static void send_rarp(void *opaque)
{
    RarpCall *call = opaque;
    VhostUserClient *c = (VhostUserClient *)net_client_find(call->netdev);

    if (c && strcmp(c->nc.ops->type, "vhost-user") == 0 && c->backend &&
        !vhost_user_send_rarp(c->backend, call->mac)) {
        net_count_drop(&c->nc, NET_DROP_NOT_READY, 1);
    }
    g_free(call->netdev);
    g_free(call);
}

static bool is_rarp(const NetPacket *pkt, unsigned hdr_len, uint8_t *frame)
{
    static const uint8_t ethertype[] = {0x80, 0x35};

    return pkt->size == hdr_len + RARP_FRAME_SIZE &&
           iov_to_buf(pkt->iov, pkt->iovcnt, hdr_len, frame, RARP_FRAME_SIZE) == RARP_FRAME_SIZE &&
           memcmp(frame + ETHERTYPE_OFFSET, ethertype, sizeof(ethertype)) == 0;
}

static unsigned vhost_user_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    uint8_t frame[RARP_FRAME_SIZE];

    for (unsigned i = 0; i < n; i++) {
        RarpCall *call;

        if (!is_rarp(&pkts[i], nc->vnet_hdr_len, frame)) {
            net_count_drop(nc, NET_DROP_NOT_READY, 1);
            continue;
        }
        call = g_new(RarpCall, 1);
        call->netdev = g_strdup(nc->name);
        memcpy(call->mac, frame + SOURCE_MAC_OFFSET, ETH_MAC_LEN);
        event_loop_oneshot(event_loop_main(), send_rarp, call);
    }
    return n;
}

/* --- settings: the back end's own affair --- */

static void vhost_user_get_caps(NetClient *nc, NetCaps *caps)
{
    /* As far as its features go: the device asks for those. */
    caps->vnet_hdr = true;
    caps->offloads = (NetOffloads){
        .csum = true,
        .tso4 = true,
        .tso6 = true,
        .ecn = true,
        .ufo = true,
        .uso4 = true,
        .uso6 = true,
    };
}

static gboolean vhost_user_set_vnet_hdr_len(NetClient *nc, unsigned len)
{
    return true;
}

static gboolean vhost_user_set_offloads(NetClient *nc, const NetOffloads *offloads)
{
    return true;
}

static void vhost_user_set_loop(NetClient *nc, EventLoop *loop)
{
    nc->loop = loop; /* nothing of ours runs there */
}

static VhostBackend *vhost_user_get_vhost(NetClient *nc)
{
    return ((VhostUserClient *)nc)->backend;
}

/* --- life --- */

static void link_changed(void *opaque, bool up)
{
    net_set_link(opaque, up, NULL);
}

static void vhost_user_cleanup(NetClient *nc)
{
    VhostUserClient *c = (VhostUserClient *)nc;
    VhostBackend *b = c->backend;
    NetClient *queues[QUEUES_MAX];
    unsigned n = net_client_find_queues(nc->name, queues, QUEUES_MAX);

    for (unsigned i = 0; i < n; i++) {
        ((VhostUserClient *)queues[i])->backend = NULL;
    }
    vhost_backend_free(b);
}

static const NetClientOps vhost_user_ops = {
    .type = "vhost-user",
    .instance_size = sizeof(VhostUserClient),
    .receive_batch = vhost_user_receive,
    .get_caps = vhost_user_get_caps,
    .set_vnet_hdr_len = vhost_user_set_vnet_hdr_len,
    .set_offloads = vhost_user_set_offloads,
    .set_loop = vhost_user_set_loop,
    .get_vhost = vhost_user_get_vhost,
    .cleanup = vhost_user_cleanup,
};

gboolean net_init_vhost_user(const Netdev *netdev, GError **errp)
{
    const NetdevVhostUserOptions *o = &netdev->u.vhost_user;
    Chardev *chr = chardev_find(o->chardev);
    int64_t queues = o->has_queues ? o->queues : 1;
    VhostUserEvents events = {.link_changed = link_changed};
    VhostUserClient *first;
    VhostBackend *b;

    if (!chr) {
        return error_set(errp, "netdev '%s': chardev '%s' not found", netdev->id, o->chardev);
    }
    if (!chardev_is_unix_socket(chr)) {
        return error_set(errp,
                         "netdev '%s': chardev '%s' is not a UNIX socket, over which memory can be "
                         "shared: use -chardev socket,path=PATH",
                         netdev->id, o->chardev);
    }
    if (queues < 1 || queues > QUEUES_MAX) {
        return error_set(errp, "netdev '%s': queues=%" G_GINT64_FORMAT ": 1 to %u are possible",
                         netdev->id, queues, QUEUES_MAX);
    }
    first = (VhostUserClient *)net_client_new_queue(&vhost_user_ops, "vhost-user", netdev->id, 0);
    events.opaque = first->nc.name;
    b = vhost_user_new(netdev->id, chr, (unsigned)queues, net_at_run_time ? RUN_TIME_WAIT_MS : -1,
                       &events, errp);
    if (!b) {
        net_client_delete(&first->nc);
        return false;
    }
    for (unsigned i = 0; i < queues; i++) {
        VhostUserClient *c = i == 0 ? first
                                    : (VhostUserClient *)net_client_new_queue(
                                          &vhost_user_ops, "vhost-user", netdev->id, i);

        c->backend = b;
        net_set_info(&c->nc, "vhost-user%u to %s", i, o->chardev);
    }
    return true;
}
