/*
 * -netdev hubport: a hub with any number of ports.  What one port's client sends leaves at every
 * other port.
 *
 * A port whose client does not take a frame at once keeps it in a backlog, in order.  The hub
 * takes frames as long as some other port has no backlog: with two ports that is plain
 * back-pressure, nothing is ever lost; with more, one client that does not read (a NIC without a
 * driver) cannot stop the others, and what does not fit into its backlog is dropped and counted
 * there.
 *
 * A hub may be connected to itself or in a ring with others.  Frames then circle, as in real
 * cables, but not on the stack: a hub that is forwarding takes nothing until it has finished.
 *
 * Not here: learning of addresses (it is a hub, not a switch), vnet headers.
 */
#include <string.h>

#include "net/net-internal.h"
#include "qapi/qapi-types.h"
#include "util/error.h"
#include "util/iov.h"

#define BACKLOG_MAX 1024 /* frames a port */

typedef struct HubPort HubPort;

typedef struct Hub {
    int id;
    GPtrArray *ports;
    bool forwarding;
    bool refused; /* somebody has to be called again after forwarding */
    BottomHalf *resume;
} Hub;

typedef struct Frame {
    size_t size;
    uint8_t data[];
} Frame;

struct HubPort {
    NetClient nc;
    Hub *hub;
    GQueue backlog; /* of Frame */
};

static GPtrArray *hubs;

static void hub_forwarding_done(Hub *hub)
{
    hub->forwarding = false;
    if (hub->refused) {
        hub->refused = false;
        bh_schedule(hub->resume);
    }
}

/* Offers the backlog to the port's client; true when it is empty.  The hub takes nothing
 * meanwhile: in a ring the backlog would grow as fast as it shrinks. */
static bool port_flush(HubPort *port)
{
    Hub *hub = port->hub;
    hub->forwarding = true;
    while (port->backlog.length > 0) {
        Frame *frame = g_queue_peek_head(&port->backlog);
        struct iovec iov = {frame->data, frame->size};
        NetPacket pkt = {&iov, 1, frame->size};
        if (net_send_batch(&port->nc, &pkt, 1) == 0) {
            break;
        }
        g_free(g_queue_pop_head(&port->backlog));
    }
    hub_forwarding_done(hub);
    return port->backlog.length == 0;
}

static void port_keep(HubPort *port, const NetPacket *pkts, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (port->backlog.length >= BACKLOG_MAX) {
            net_count_drop(&port->nc, NET_DROP_OVERFLOW, n - i);
            return;
        }
        Frame *frame = g_malloc(sizeof(*frame) + pkts[i].size);
        frame->size = iov_to_buf(pkts[i].iov, pkts[i].iovcnt, 0, frame->data, pkts[i].size);
        g_queue_push_tail(&port->backlog, frame);
    }
}

/* Sends @pkts out of @port.  The receiver may change the iovecs of what it takes, and other ports
 * need them as they are: so it gets copies of the lists (not of the data). */
static void port_send(HubPort *port, const NetPacket *pkts, unsigned n)
{
    if (port->backlog.length > 0) {
        port_keep(port, pkts, n);
        return;
    }
    unsigned pieces = 0;
    for (unsigned i = 0; i < n; i++) {
        pieces += pkts[i].iovcnt;
    }
    g_autofree struct iovec *iov = g_new(struct iovec, MAX(pieces, 1));
    NetPacket copy[NET_BATCH_MAX];
    struct iovec *at = iov;
    for (unsigned i = 0; i < n; i++) {
        copy[i] = (NetPacket){at, pkts[i].iovcnt, pkts[i].size};
        memcpy(at, pkts[i].iov, pkts[i].iovcnt * sizeof(*at));
        at += pkts[i].iovcnt;
    }
    unsigned taken = net_send_batch(&port->nc, copy, n);
    port_keep(port, pkts + taken, n - taken);
}

static bool hub_can_take(const Hub *hub, const HubPort *from)
{
    unsigned others = 0;
    for (unsigned i = 0; i < hub->ports->len; i++) {
        HubPort *port = hub->ports->pdata[i];
        if (port == from || !port->nc.peer) {
            continue;
        }
        if (port->backlog.length == 0) {
            return true;
        }
        others++;
    }
    return others == 0;
}

static bool port_can_receive(NetClient *nc)
{
    HubPort *port = (HubPort *)nc;
    return !port->hub->forwarding && hub_can_take(port->hub, port);
}

static unsigned port_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    HubPort *from = (HubPort *)nc;
    Hub *hub = from->hub;
    if (hub->forwarding) {
        hub->refused = true;
        return 0;
    }
    if (!hub_can_take(hub, from)) {
        return 0;
    }
    hub->forwarding = true;
    for (unsigned i = 0; i < hub->ports->len; i++) {
        HubPort *port = hub->ports->pdata[i];
        if (port != from && port->nc.peer) {
            port_send(port, pkts, n);
        }
    }
    hub_forwarding_done(hub);
    return n;
}

/* Lets every client go on that may have been refused. */
static void hub_resume(void *opaque)
{
    Hub *hub = opaque;
    for (unsigned i = 0; i < hub->ports->len; i++) {
        port_flush(hub->ports->pdata[i]);
    }
    for (unsigned i = 0; i < hub->ports->len; i++) {
        HubPort *port = hub->ports->pdata[i];
        if (port_can_receive(&port->nc)) {
            net_peer_writable(&port->nc);
        }
    }
}

static void port_peer_writable(NetClient *nc)
{
    HubPort *port = (HubPort *)nc;
    if (port->hub->forwarding) {
        port->hub->refused = true;
        return;
    }
    if (port_flush(port)) {
        bh_schedule(port->hub->resume);
    }
}

static void hub_free(Hub *hub)
{
    bh_delete(hub->resume);
    g_ptr_array_unref(hub->ports);
    g_ptr_array_remove(hubs, hub);
    if (hubs->len == 0) {
        g_clear_pointer(&hubs, g_ptr_array_unref);
    }
    g_free(hub);
}

static void port_cleanup(NetClient *nc)
{
    HubPort *port = (HubPort *)nc;
    g_queue_clear_full(&port->backlog, g_free);
    g_ptr_array_remove(port->hub->ports, port);
    if (port->hub->ports->len == 0) {
        hub_free(port->hub);
    } else {
        bh_schedule(port->hub->resume);
    }
}

static const NetClientOps hubport_ops = {
    .type = "hubport",
    .instance_size = sizeof(HubPort),
    .receive_batch = port_receive,
    .can_receive = port_can_receive,
    .peer_writable = port_peer_writable,
    .cleanup = port_cleanup,
};

static Hub *hub_get(int id)
{
    for (unsigned i = 0; hubs && i < hubs->len; i++) {
        Hub *hub = hubs->pdata[i];
        if (hub->id == id) {
            return hub;
        }
    }
    Hub *hub = g_new0(Hub, 1);
    hub->id = id;
    hub->ports = g_ptr_array_new();
    hub->resume = bh_new(event_loop_main(), hub_resume, hub);
    hubs = hubs ? hubs : g_ptr_array_new();
    g_ptr_array_add(hubs, hub);
    return hub;
}

gboolean net_init_hubport(const Netdev *netdev, GError **errp)
{
    const NetdevHubPortOptions *o = &netdev->u.hubport;
    NetClient *peer = NULL;
    if (o->netdev) {
        peer = net_client_find(o->netdev);
        if (!peer) {
            return error_set(errp, "netdev '%s' not found", o->netdev);
        }
        if (peer->peer) {
            return error_set(errp, "netdev '%s' is already in use by '%s'", o->netdev,
                             peer->peer->name);
        }
        if (net_client_queue(peer, 1)) {
            return error_set(errp, "netdev '%s' has several queues: a hub port has one", o->netdev);
        }
    }
    Hub *hub = hub_get(o->hubid);
    HubPort *port = (HubPort *)net_client_new(&hubport_ops, NULL, "hubport", netdev->id);
    port->hub = hub;
    g_queue_init(&port->backlog);
    g_ptr_array_add(hub->ports, port);
    net_set_info(&port->nc, "hubid=%d", hub->id);
    if (peer) {
        net_client_connect(&port->nc, peer);
    }
    return true;
}

void net_hub_print_info(GString *out)
{
    for (unsigned i = 0; hubs && i < hubs->len; i++) {
        Hub *hub = hubs->pdata[i];
        g_string_append_printf(out, "hub %d\r\n", hub->id);
        for (unsigned j = 0; j < hub->ports->len; j++) {
            HubPort *port = hub->ports->pdata[j];
            g_string_append_printf(out, " \\ %s", port->nc.name);
            if (port->nc.peer) {
                g_string_append(out, ": ");
                net_client_print(port->nc.peer, out);
            } else {
                g_string_append(out, "\r\n");
            }
        }
    }
}

int net_hub_id(const NetClient *nc)
{
    const NetClient *port = nc->ops == &hubport_ops ? nc : nc->peer;
    return port && port->ops == &hubport_ops ? ((const HubPort *)port)->hub->id : -1;
}

bool net_hub_shows_client(const NetClient *nc)
{
    return nc->ops == &hubport_ops || (nc->peer && nc->peer->ops == &hubport_ops);
}

void net_hub_check(void)
{
    for (unsigned i = 0; hubs && i < hubs->len; i++) {
        Hub *hub = hubs->pdata[i];
        bool nic = false, host = false;
        for (unsigned j = 0; j < hub->ports->len; j++) {
            const HubPort *port = hub->ports->pdata[j];
            nic |= port->nc.peer && port->nc.peer->is_nic;
            host |= port->nc.peer && !port->nc.peer->is_nic;
        }
        if (host && !nic) {
            warn_report("hub %d with no nics", hub->id);
        } else if (nic && !host) {
            warn_report("hub %d is not connected to host network", hub->id);
        }
    }
}
