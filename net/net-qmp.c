/*
 * QMP commands of qapi/net.json, and fds by the name that getfd gave them.
 */
#include <string.h>

#include "net/filter.h"
#include "net/net-internal.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "util/error.h"

static RxFilterInfo *rx_filter(NetClient *nc, GError **errp)
{
    json_object *info = nc->ops->query_rx_filter(nc);
    RxFilterInfo *filter = qapi_parse_RxFilterInfo(info, QAPI_INPUT_JSON, errp);
    json_object_put(info);
    return filter;
}

RxFilterInfoList *qmp_query_rx_filter(const char *name, GError **errp)
{
    RxFilterInfoList *list = NULL, **tail = &list;
    bool found = false;
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        NetClient *nc = net_clients->pdata[i];
        if (nc->queue_index != 0 || (name && strcmp(nc->name, name) != 0)) {
            continue;
        }
        if (!nc->is_nic || !nc->ops->query_rx_filter) {
            if (name) {
                error_set(errp,
                          nc->is_nic ? "net client(%s) doesn't support rx-filter querying"
                                     : "net client(%s) isn't a NIC",
                          name);
                return NULL;
            }
            continue;
        }
        RxFilterInfo *filter = rx_filter(nc, errp);
        if (!filter) {
            qapi_free_RxFilterInfoList(list);
            return NULL;
        }
        QAPI_LIST_APPEND(tail, filter);
        found = true;
    }
    if (name && !found) {
        error_set(errp, "invalid net client name: %s", name);
    }
    return list;
}

NetClientStatsList *qmp_x_query_netclients(GError **errp)
{
    NetClientStatsList *list = NULL, **tail = &list;
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        const NetClient *nc = net_clients->pdata[i];
        const NetStats *st = &nc->stats;
        NetClientStats *s = g_new0(NetClientStats, 1);
        s->name = g_strdup(nc->name);
        s->queue_index = nc->queue_index;
        s->type = g_strdup(nc->ops->type);
        s->peer = nc->peer ? g_strdup(nc->peer->name) : NULL;
        s->link_up = !nc->link_down;
        s->info = g_strdup(nc->info->str);
        s->rx_packets = st->rx_packets;
        s->rx_bytes = st->rx_bytes;
        s->tx_packets = st->tx_packets;
        s->tx_bytes = st->tx_bytes;
        s->stalls = st->stalls;
        s->drops = g_new0(NetDropCounts, 1);
        s->drops->link_down = st->drops[NET_DROP_LINK_DOWN];
        s->drops->no_peer = st->drops[NET_DROP_NO_PEER];
        s->drops->not_ready = st->drops[NET_DROP_NOT_READY];
        s->drops->filtered = st->drops[NET_DROP_FILTERED];
        s->drops->too_long = st->drops[NET_DROP_TOO_LONG];
        s->drops->no_buffer = st->drops[NET_DROP_NO_BUFFER];
        s->drops->bad_header = st->drops[NET_DROP_BAD_HEADER];
        s->drops->host_error = st->drops[NET_DROP_HOST_ERROR];
        s->drops->overflow = st->drops[NET_DROP_OVERFLOW];
        QAPI_LIST_APPEND(tail, s);
    }
    return list;
}

void qmp_set_link(const char *name, bool up, GError **errp)
{
    net_set_link(name, up, errp);
}

void qmp_netdev_add(json_object *args, json_object **ret, GError **errp)
{
    net_add_netdev(args, errp);
}

void qmp_netdev_del(const char *id, GError **errp)
{
    net_delete_netdev(id, errp);
}

static int monitor_named_fd(const char *name, GError **errp)
{
    Monitor *mon = monitor_current();
    if (!mon) {
        error_set(errp, "fd=%s: a name can only be used in a monitor, after getfd", name);
        return -1;
    }
    return monitor_get_fd(mon, name, errp);
}

void net_monitor_init(void)
{
    net_register_filter_types();
    net_register_hmp();
    net_named_fd = monitor_named_fd;
}
