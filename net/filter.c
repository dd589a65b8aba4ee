/*
 * Filters: the abstract object, and the way of frames through the filters of a netdev.
 *
 * Frames run through the chain as batches.  A filter that only looks passes a batch on; one that
 * holds or takes frames ends its way.  When the receiver at the end (or a filter in between) does
 * not take all, the rest stays the sender's, as without filters.  What is then offered again has
 * been seen by the filters before the one that stopped it; sender->filter_passed says how many
 * frames, sender->filter_at from where they go on, so that nobody sees a frame twice.
 *
 * Filters run before the receiver is asked whether it is ready: they work without a driver in the
 * guest.
 */
#include "net/filter.h"

#include <string.h>

#include "net/net-internal.h"
#include "util/json.h"

G_DEFINE_ABSTRACT_TYPE(NetFilter, netfilter, TYPE_OBJECT)

static const char *const queue_names[] = {"all", "rx", "tx", NULL};
static const char *const status_names[] = {"on", "off", NULL};
static const char *const insert_names[] = {"behind", "before", NULL};

/* ---- the chain ---- */

static bool is_in_the_way(const NetFilter *nf, NetFilterQueue dir)
{
    return (net_filter_is_on(nf) || nf->draining) &&
           (nf->queue == NET_FILTER_ALL || nf->queue == (int)dir);
}

/* A frame's direction, seen from the filter's netdev. */
static NetFilterQueue direction(const NetFilter *nf, const NetClient *sender)
{
    return nf->nc == sender ? NET_FILTER_TX : NET_FILTER_RX;
}

/* The first in the way below index @end of the receiver's filters. */
static NetFilter *scan_peer(const NetClient *peer, unsigned end)
{
    while (end > 0) {
        NetFilter *nf = peer->filters->pdata[--end];
        if (is_in_the_way(nf, NET_FILTER_RX)) {
            return nf;
        }
    }
    return NULL;
}

/* From index @i of the sender's filters upwards, then from the last of the peer's downwards. */
static NetFilter *scan_sender(const NetClient *sender, unsigned i)
{
    for (; i < sender->filters->len; i++) {
        NetFilter *nf = sender->filters->pdata[i];
        if (is_in_the_way(nf, NET_FILTER_TX)) {
            return nf;
        }
    }
    return scan_peer(sender->peer, sender->peer->filters->len);
}

static NetFilter *chain_after(const NetClient *sender, NetFilter *nf)
{
    unsigned i = 0;
    g_ptr_array_find(nf->nc->filters, nf, &i);
    return nf->nc == sender ? scan_sender(sender, i + 1) : scan_peer(nf->nc, i);
}

/* From @nf on (NULL: the receiver).  *at: who did not take all, when fewer than @n were taken. */
static unsigned run(NetClient *sender, NetFilter *nf, NetPacket *pkts, unsigned n, NetFilter **at)
{
    for (; nf; nf = chain_after(sender, nf)) {
        unsigned taken = NETFILTER_GET_CLASS(nf)->receive(nf, direction(nf, sender), pkts, n);
        if (taken != NET_FILTER_PASS) {
            *at = nf;
            return MIN(taken, n);
        }
    }
    *at = NULL;
    return net_deliver(sender, sender->peer, pkts, n);
}

unsigned net_filters_send(NetClient *sender, NetPacket *pkts, unsigned n)
{
    NetFilter *at;
    unsigned done = 0, again = MIN(n, sender->filter_passed);
    if (again > 0) {
        NetFilter *from = sender->filter_at;
        if (from && !is_in_the_way(from, direction(from, sender))) {
            from = chain_after(sender, from); /* switched off meanwhile */
        }
        done = run(sender, from, pkts, again, &at);
        /* Frames behind these have come as far only if it is the same one that stops them. */
        sender->filter_passed =
            done < again && at != sender->filter_at ? again - done : sender->filter_passed - done;
        if (done < again) {
            sender->filter_at = at;
            sender->stats.stalls++;
            return done;
        }
    }
    if (done == n) {
        return n;
    }
    done += run(sender, scan_sender(sender, 0), pkts + done, n - done, &at);
    sender->filter_passed = n - done;
    sender->filter_at = at;
    sender->stats.stalls += done < n && at;
    return done;
}

bool net_filters_can_send(NetClient *sender)
{
    NetClient *peer = sender->peer;
    if (sender->filter_passed == 0 && scan_sender(sender, 0)) {
        return true;
    }
    return !peer->ops->can_receive || peer->ops->can_receive(peer);
}

/* Tells the filters between the receiver and @from (NULL: all), nearest to the receiver first. */
static void resume_until(NetClient *sender, NetFilter *from)
{
    NetFilter *list[64], *nf = scan_sender(sender, 0);
    unsigned n = 0;
    for (; nf && nf != from && n < G_N_ELEMENTS(list); nf = chain_after(sender, nf)) {
        list[n++] = nf;
    }
    while (n > 0) {
        NetFilterClass *klass = NETFILTER_GET_CLASS(list[--n]);
        if (klass->resume) {
            klass->resume(list[n], direction(list[n], sender));
        }
    }
}

void net_filters_resume(NetClient *sender)
{
    resume_until(sender, NULL);
}

static NetClient *filter_sender(const NetFilter *nf, NetFilterQueue dir)
{
    return !nf->nc ? NULL : dir == NET_FILTER_TX ? nf->nc : nf->nc->peer;
}

unsigned net_filter_send(NetFilter *nf, NetFilterQueue dir, NetPacket *pkts, unsigned n)
{
    NetFilter *at;
    NetClient *sender = filter_sender(nf, dir);
    if (!sender || !sender->peer) {
        if (nf->nc) {
            net_count_drop(nf->nc, NET_DROP_NO_PEER, n);
        }
        return n;
    }
    if (sender->link_down || sender->peer->link_down) {
        net_count_drop(sender, NET_DROP_LINK_DOWN, n);
        return n;
    }
    return run(sender, chain_after(sender, nf), pkts, n, &at);
}

void net_filter_writable(NetFilter *nf, NetFilterQueue dir)
{
    NetClient *sender = filter_sender(nf, dir);
    if (!sender || !sender->peer) {
        return;
    }
    resume_until(sender, nf);
    if (sender->ops->peer_writable) {
        sender->ops->peer_writable(sender);
    }
}

/* ---- on and off the netdev ---- */

/* Where in the netdev's list: the index of the new filter. */
static gboolean find_place(NetFilter *nf, const NetClient *nc, unsigned *index, GError **errp)
{
    const char *position = nf->position ? nf->position : "tail";
    if (strcmp(position, "head") == 0) {
        *index = 0;
        return TRUE;
    }
    if (strcmp(position, "tail") == 0) {
        *index = nc->filters->len;
        return TRUE;
    }
    if (!g_str_has_prefix(position, "id=")) {
        return error_set(errp, "position=%s: head, tail or id=FILTER is expected", position);
    }
    const char *id = position + 3;
    Object *other = object_child(qom_container("/objects"), id);
    if (!other || !IS_NETFILTER(other)) {
        return error_set(errp, "filter '%s' not found", id);
    }
    if (!g_ptr_array_find(nc->filters, other, index)) {
        return error_set(errp, "filter '%s' belongs to a different netdev", id);
    }
    *index += nf->insert == 0;
    return TRUE;
}

static gboolean netfilter_complete(Object *obj, GError **errp)
{
    NetFilter *nf = NETFILTER(obj);
    NetClient *ncs[2];
    unsigned index;
    if (!nf->netdev_id) {
        return error_set(errp, "Parameter 'netdev' is required");
    }
    unsigned queues = net_client_find_queues(nf->netdev_id, ncs, 2);
    if (queues == 0) {
        return error_set(errp, "Parameter 'netdev' expects a network backend id, not '%s'",
                         nf->netdev_id);
    }
    if (queues > 1) {
        return error_set(errp, "netdev '%s' has several queues: filters see only one",
                         nf->netdev_id);
    }
    if (ncs[0]->loop != event_loop_main()) {
        return error_set(errp,
                         "netdev '%s' is used with iothread=: filters work in the main loop "
                         "only",
                         nf->netdev_id);
    }
    if (!find_place(nf, ncs[0], &index, errp)) {
        return FALSE;
    }
    nf->nc = ncs[0];
    if (!NETFILTER_GET_CLASS(nf)->setup(nf, errp)) {
        NETFILTER_GET_CLASS(nf)->cleanup(nf);
        nf->nc = NULL;
        return FALSE;
    }
    g_ptr_array_insert(nf->nc->filters, index, nf);
    return TRUE;
}

static void forget_passed(NetClient *nc, NetFilter *nf)
{
    if (nc && nc->filter_at == nf && nc->filter_passed) {
        nc->filter_at = chain_after(nc, nf);
    }
}

static void netfilter_unparent(Object *obj)
{
    NetFilter *nf = NETFILTER(obj);
    NetClient *nc = nf->nc;
    if (!nc || !g_ptr_array_find(nc->filters, nf, NULL)) {
        return;
    }
    NETFILTER_GET_CLASS(nf)->cleanup(nf);
    if (nc->peer) {
        forget_passed(nc, nf);
        forget_passed(nc->peer, nf);
    }
    g_ptr_array_remove(nc->filters, nf);
    nf->nc = NULL;
    if (nc->peer) {
        /* Whoever waited for this filter waits no longer. */
        net_peer_writable(nc);
        net_peer_writable(nc->peer);
    }
}

void net_filters_delete(NetClient *nc)
{
    while (nc->filters->len > 0) {
        object_unparent(nc->filters->pdata[nc->filters->len - 1]);
    }
}

static gboolean status_changed(Object *obj, const Property *prop, GError **errp)
{
    NetFilter *nf = NETFILTER(obj);
    NetFilterClass *klass = NETFILTER_GET_CLASS(nf);
    if (nf->nc && klass->status_changed) {
        klass->status_changed(nf);
    }
    if (nf->nc && nf->nc->peer) {
        net_peer_writable(nf->nc);
        net_peer_writable(nf->nc->peer);
    }
    return TRUE;
}

/* ---- info network ---- */

typedef struct PrintState {
    Object *obj;
    GString *out;
    bool common; /* properties that all filters have, or the others */
} PrintState;

static void print_property(const Property *prop, GType owner, void *opaque)
{
    PrintState *p = opaque;
    if ((owner == TYPE_NETFILTER) != p->common) {
        return;
    }
    json_object *value = object_get_property(p->obj, prop->name, NULL);
    if (value && !json_object_is_type(value, json_type_boolean)) {
        g_string_append_printf(p->out, ",%s=%s", prop->name, json_object_get_string(value));
    } else if (value) {
        g_string_append_printf(p->out, ",%s=%s", prop->name,
                               json_object_get_boolean(value) ? "on" : "off");
    }
    json_object_put(value);
}

void net_filters_print(const NetClient *nc, GString *out)
{
    if (nc->filters->len > 0) {
        g_string_append(out, "filters:\r\n");
    }
    for (unsigned i = 0; i < nc->filters->len; i++) {
        PrintState p = {OBJECT(nc->filters->pdata[i]), out, false};
        g_string_append_printf(out, "  - %s: type=%s", p.obj->name, object_type_name(p.obj));
        qom_class_foreach_property(G_OBJECT_TYPE(p.obj), print_property, &p);
        p.common = true;
        qom_class_foreach_property(G_OBJECT_TYPE(p.obj), print_property, &p);
        g_string_append(out, "\r\n");
    }
}

/* ---- the type ---- */

/* In the order in which `info network` shows them. */
static const Property netfilter_props[] = {
    {.name = "position",
     .info = &prop_info_string,
     .offset = offsetof(NetFilter, position),
     .defval = {.s = "tail"},
     .description = "Place among the netdev's filters: head, tail, id=FILTER"},
    PROP_ENUM("status", NetFilter, status, status_names, 0, "Off: frames pass as if it were not",
              .flags = PROP_F_RUNTIME, .changed = status_changed),
    PROP_ENUM("insert", NetFilter, insert, insert_names, 0,
              "With position=id=FILTER: before or behind it"),
    PROP_STRING("netdev", NetFilter, netdev_id, "The netdev whose frames it sees"),
    PROP_ENUM("queue", NetFilter, queue, queue_names, NET_FILTER_ALL,
              "Direction: tx (netdev to guest), rx (guest to netdev), all"),
    PROP_END,
};

static void netfilter_class_init(NetFilterClass *klass)
{
    ObjectClass *oc = &klass->parent_class;
    oc->qom_name = "netfilter";
    oc->complete = netfilter_complete;
    oc->unparent = netfilter_unparent;
    qom_class_set_props(klass, netfilter_props);
}

static void netfilter_init(NetFilter *nf) {}

void net_register_filter_types(void)
{
    static bool done;
    if (done) {
        return;
    }
    done = true;
    qom_register_type(TYPE_NETFILTER);
    qom_register_type(filter_buffer_get_type());
    qom_register_type(filter_dump_get_type());
    qom_register_type(filter_mirror_get_type());
    qom_register_type(filter_redirector_get_type());
}
