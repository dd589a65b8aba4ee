/*
 * Network clients: creation, connection, delivery of batches, link state, counters.
 *
 * A packet's way through this file is one function, net_send_batch(): check that there is
 * somebody to deliver to, hand the batch over, count.  There is no queue here.  What the peer
 * does not take stays the sender's, and net_peer_writable() tells the sender to go on; so a
 * packet is never lost or sent twice between two clients, and order is kept.  A sender that can read
 * a frame wherever it likes may borrow the receiver's memory for it (net_borrow_buffers()).
 *
 * Not here: back ends (a file each), the -netdev table (net-init.c), QMP (net-qmp.c).
 */
#include "net/net.h"

#include <string.h>

#include "net/filter.h"
#include "net/net-internal.h"
#include "util/error.h"
#include "util/trace.h"

GPtrArray *net_clients;

const char *const net_drop_names[NET_DROP__MAX] = {
    [NET_DROP_LINK_DOWN] = "link-down",   [NET_DROP_NO_PEER] = "no-peer",
    [NET_DROP_NOT_READY] = "not-ready",   [NET_DROP_FILTERED] = "filtered",
    [NET_DROP_TOO_LONG] = "too-long",     [NET_DROP_NO_BUFFER] = "no-buffer",
    [NET_DROP_BAD_HEADER] = "bad-header", [NET_DROP_HOST_ERROR] = "host-error",
    [NET_DROP_OVERFLOW] = "overflow",
};

/* "model.N": N counts the clients of that model, as QEMU's names do; then made unique. */
static char *default_name(const char *model)
{
    unsigned n = 0;
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        NetClient *nc = net_clients->pdata[i];
        n += nc->queue_index == 0 && strcmp(nc->model, model) == 0;
    }
    for (;; n++) {
        char *name = g_strdup_printf("%s.%u", model, n);
        NetClient *other;
        if (net_client_find_any(name, &other, 1) == 0) {
            return name;
        }
        g_free(name);
    }
}

static void notify_link(NetClient *nc)
{
    if (nc->ops->link_changed) {
        nc->ops->link_changed(nc);
    }
}

void net_client_connect(NetClient *nc, NetClient *peer)
{
    g_assert(!nc->peer && !peer->peer);
    nc->peer = peer;
    peer->peer = nc;
    notify_link(peer);
}

static NetClient *client_new(const NetClientOps *ops, NetClient *peer, const char *model,
                             char *name_taken, unsigned queue)
{
    g_assert(ops->instance_size >= sizeof(NetClient));
    NetClient *nc = g_malloc0(ops->instance_size);
    nc->ops = ops;
    nc->model = g_strdup(model);
    nc->name = name_taken;
    nc->queue_index = queue;
    nc->loop = event_loop_main();
    nc->info = g_string_new(NULL);
    nc->filters = g_ptr_array_new();
    if (!net_clients) {
        net_clients = g_ptr_array_new();
    }
    g_ptr_array_add(net_clients, nc);
    if (peer) {
        net_client_connect(nc, peer);
    }
    return nc;
}

NetClient *net_client_new(const NetClientOps *ops, NetClient *peer, const char *model,
                          const char *name)
{
    return client_new(ops, peer, model, name ? g_strdup(name) : default_name(model), 0);
}

NetClient *net_client_new_queue(const NetClientOps *ops, const char *model, const char *name,
                                unsigned queue)
{
    return client_new(ops, NULL, model, g_strdup(name), queue);
}

NetClient *net_nic_new(const NetClientOps *ops, NetClient *const *peers, unsigned queues,
                       const char *model, const char *id)
{
    g_autofree char *name = id ? g_strdup(id) : default_name(model);
    NetClient *first = NULL;
    for (unsigned i = 0; i < MAX(queues, 1); i++) {
        NetClient *nc = client_new(ops, peers ? peers[i] : NULL, model, g_strdup(name), i);
        nc->is_nic = true;
        first = first ? first : nc;
    }
    return first;
}

static bool same_client(const NetClient *a, const NetClient *b)
{
    return a->is_nic == b->is_nic && strcmp(a->name, b->name) == 0;
}

NetClient *net_client_queue(NetClient *nc, unsigned index)
{
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        NetClient *other = net_clients->pdata[i];
        if (other->queue_index == index && same_client(other, nc)) {
            return other;
        }
    }
    return NULL;
}

/* In the loop of @opaque: its peer went away.  What waited in it is dropped and counted. */
static void peer_gone(void *opaque)
{
    NetClient *nc = opaque;
    if (!nc->is_nic && nc->vnet_hdr_len) {
        nc->ops->set_vnet_hdr_len(nc, 0);
        nc->vnet_hdr_len = 0;
    }
    notify_link(nc);
    if (nc->ops->peer_writable) {
        nc->ops->peer_writable(nc);
    }
}

/* The end of one queue; the peer stays, alone. */
static void client_free(NetClient *nc)
{
    net_filters_delete(nc);
    NetClient *peer = nc->peer;
    if (nc->ops->cleanup) {
        nc->ops->cleanup(nc);
    }
    g_ptr_array_remove(net_clients, nc);
    if (peer) {
        peer->peer = NULL;
        if (!nc->is_nic && peer->is_nic) {
            peer->deleted_peer = true;
            peer->link_down = true;
        }
        event_loop_run_sync(peer->loop, peer_gone, peer);
    }
    g_ptr_array_unref(nc->filters);
    g_string_free(nc->info, TRUE);
    g_free(nc->name);
    g_free(nc->model);
    g_free(nc);
}

void net_client_delete(NetClient *nc)
{
    /* Collected first: each end takes its entry out of the array. */
    g_autoptr(GPtrArray) queues = g_ptr_array_new();
    for (unsigned i = 0; i < net_clients->len; i++) {
        if (same_client(net_clients->pdata[i], nc)) {
            g_ptr_array_add(queues, net_clients->pdata[i]);
        }
    }
    for (unsigned i = 0; i < queues->len; i++) {
        client_free(queues->pdata[i]);
    }
    if (net_clients->len == 0) {
        g_clear_pointer(&net_clients, g_ptr_array_unref);
    }
}

static unsigned find_queues(const char *name, bool nics_too, NetClient **ncs, unsigned max)
{
    unsigned n = 0;
    for (unsigned i = 0; net_clients && i < net_clients->len && n < max; i++) {
        NetClient *nc = net_clients->pdata[i];
        if ((nics_too || !nc->is_nic) && strcmp(nc->name, name) == 0) {
            ncs[n++] = nc;
        }
    }
    return n;
}

NetClient *net_client_find(const char *id)
{
    NetClient *nc;
    return find_queues(id, false, &nc, 1) ? nc : NULL;
}

unsigned net_client_find_queues(const char *id, NetClient **ncs, unsigned max)
{
    return find_queues(id, false, ncs, max);
}

unsigned net_client_find_any(const char *name, NetClient **ncs, unsigned max)
{
    return find_queues(name, true, ncs, max);
}

void net_count_drop(NetClient *nc, NetDropReason reason, unsigned packets)
{
    nc->stats.drops[reason] += packets;
    trace_net_drop(nc->name, net_drop_names[reason], packets);
}

unsigned net_deliver(NetClient *nc, NetClient *peer, NetPacket *pkts, unsigned n)
{
    unsigned taken = peer->ops->receive_batch(peer, pkts, n);
    taken = MIN(taken, n);
    size_t bytes = 0;
    for (unsigned i = 0; i < taken; i++) {
        bytes += pkts[i].size;
    }
    nc->stats.tx_packets += taken;
    nc->stats.tx_bytes += bytes;
    peer->stats.rx_packets += taken;
    peer->stats.rx_bytes += bytes;
    nc->stats.stalls += taken < n;
    return taken;
}

unsigned net_send_batch(NetClient *nc, NetPacket *pkts, unsigned n)
{
    NetClient *peer = nc->peer;
    n = MIN(n, NET_BATCH_MAX);
    if (!peer || nc->link_down || peer->link_down) {
        net_count_drop(nc, peer ? NET_DROP_LINK_DOWN : NET_DROP_NO_PEER, n);
        net_forget_unsent(nc);
        return n;
    }

    /* Frames too long to exist are cut out of the batch here, so that no receiver meets one. */
    unsigned done = 0;
    while (done < n) {
        unsigned run = done;
        while (run < n && pkts[run].size <= NET_MAX_FRAME) {
            run++;
        }
        if (run > done) {
            unsigned taken = net_has_filters(nc) ? net_filters_send(nc, pkts + done, run - done)
                                                 : net_deliver(nc, peer, pkts + done, run - done);
            done += taken;
            if (done < run) {
                return done;
            }
        }
        while (done < n && pkts[done].size > NET_MAX_FRAME) {
            net_count_drop(nc, NET_DROP_TOO_LONG, 1);
            done++;
        }
    }
    return done;
}

unsigned net_borrow_buffers(NetClient *nc, struct iovec *iov, unsigned max)
{
    NetClient *peer = nc->peer;
    if (!peer || !peer->ops->lend_buffers || nc->link_down || peer->link_down ||
        net_has_filters(nc)) {
        return 0;
    }
    return peer->ops->lend_buffers(peer, iov, max);
}

void net_send_borrowed(NetClient *nc, struct iovec *iov, unsigned iovcnt, size_t size)
{
    NetPacket pkt = {iov, iovcnt, size};
    nc->peer->ops->receive_lent(nc->peer, &pkt);
    nc->stats.tx_packets++;
    nc->stats.tx_bytes += size;
    nc->peer->stats.rx_packets++;
    nc->peer->stats.rx_bytes += size;
}

void net_return_buffers(NetClient *nc)
{
    nc->peer->ops->end_lending(nc->peer);
}

void net_forget_unsent(NetClient *nc)
{
    nc->filter_at = NULL;
    nc->filter_passed = 0;
}

void net_peer_writable(NetClient *nc)
{
    NetClient *peer = nc->peer;
    if (!peer) {
        return;
    }
    if (net_has_filters(peer)) {
        net_filters_resume(peer);
    }
    if (peer->ops->peer_writable) {
        peer->ops->peer_writable(peer);
    }
}

bool net_can_send(NetClient *nc)
{
    NetClient *peer = nc->peer;
    /* Without a peer or a link a packet is taken too: dropped and counted. */
    if (!peer || nc->link_down || peer->link_down) {
        return true;
    }
    if (net_has_filters(nc)) {
        return net_filters_can_send(nc);
    }
    return !peer->ops->can_receive || peer->ops->can_receive(peer);
}

void net_set_info(NetClient *nc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    g_string_vprintf(nc->info, fmt, ap);
    va_end(ap);
}

gboolean net_client_set_loop(NetClient *nc, EventLoop *loop, GError **errp)
{
    if (nc->loop == loop) {
        return true;
    }
    if (nc->filters->len > 0) {
        return error_set(errp,
                         "netdev '%s' has filters, which work in the main loop only: it cannot be "
                         "used with iothread=",
                         nc->name);
    }
    if (nc->ops->set_loop) {
        nc->ops->set_loop(nc, loop);
    } else if (!nc->is_nic) {
        return error_set(errp,
                         "netdev '%s' of type %s cannot be used with iothread=: "
                         "it works in the main loop only",
                         nc->name, nc->ops->type);
    }
    nc->loop = loop;
    return true;
}

void net_peer_caps(NetClient *nc, NetCaps *caps)
{
    memset(caps, 0, sizeof(*caps));
    if (nc->peer && nc->peer->ops->get_caps) {
        nc->peer->ops->get_caps(nc->peer, caps);
    }
}

bool net_peer_set_vnet_hdr_len(NetClient *nc, unsigned len)
{
    NetClient *peer = nc->peer;
    if (!peer || !peer->ops->set_vnet_hdr_len) {
        return len == 0;
    }
    if (!peer->ops->set_vnet_hdr_len(peer, len)) {
        return false;
    }
    peer->vnet_hdr_len = len;
    nc->vnet_hdr_len = len;
    return true;
}

bool net_peer_set_offloads(NetClient *nc, const NetOffloads *offloads)
{
    NetClient *peer = nc->peer;
    if (!peer || !peer->ops->set_offloads) {
        static const NetOffloads none;
        return memcmp(offloads, &none, sizeof(none)) == 0;
    }
    return peer->ops->set_offloads(peer, offloads);
}

/* In the client's loop: both sides look at the link again, and whoever waits for the other waits
 * no longer (down: what waited is dropped). */
static void link_set(void *opaque)
{
    NetClient *nc = opaque;
    notify_link(nc);
    if (nc->peer) {
        notify_link(nc->peer);
    }
    if (nc->ops->peer_writable) {
        nc->ops->peer_writable(nc);
    }
    net_peer_writable(nc);
}

gboolean net_set_link(const char *name, bool up, GError **errp)
{
    NetClient *ncs[NET_BATCH_MAX];
    unsigned n = net_client_find_any(name, ncs, G_N_ELEMENTS(ncs));
    if (n == 0) {
        return error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", name);
    }
    for (unsigned i = 0; i < n; i++) {
        NetClient *nc = ncs[i];
        nc->link_down = !up;
        /* A back end's cable is its NIC's too: the guest sees the carrier go. */
        if (!nc->is_nic && nc->peer && nc->peer->is_nic) {
            nc->peer->link_down = !up;
        }
        event_loop_run_sync(nc->loop, link_set, nc);
    }
    return true;
}

void net_client_print(const NetClient *nc, GString *out)
{
    g_string_append_printf(out, "%s: index=%u,type=%s", nc->name, nc->queue_index, nc->ops->type);
    g_string_append_printf(out, ",%s\r\n", nc->info->str);
    net_filters_print(nc, out);
}

void net_print_info(GString *out)
{
    net_hub_print_info(out);
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        const NetClient *nc = net_clients->pdata[i];
        if (net_hub_shows_client(nc) || (nc->peer && !nc->is_nic && nc->peer->is_nic)) {
            continue;
        }
        net_client_print(nc, out);
        if (nc->peer && nc->is_nic) {
            g_string_append(out, " \\ ");
            net_client_print(nc->peer, out);
        }
    }
}

gboolean net_check_clients(GError **errp)
{
    net_hub_check();
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        const NetClient *nc = net_clients->pdata[i];
        if (!nc->peer && nc->queue_index == 0) {
            warn_report("%s %s has no peer", nc->is_nic ? "nic" : "netdev", nc->name);
        }
    }
    return true;
}

void net_cleanup(void)
{
    net_announce_cleanup();
    /* NICs are their devices' and go with them. */
    unsigned i = 0;
    while (net_clients && i < net_clients->len) {
        NetClient *nc = net_clients->pdata[i];
        if (nc->is_nic) {
            i++;
            continue;
        }
        net_client_delete(nc);
        i = 0;
    }
}
