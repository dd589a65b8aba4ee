/*
 * Counters of all virtio-net devices for QMP (query-virtio-net-stats) and HMP (info virtio-net).
 * Main thread.
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "util/error.h"

/* --- QMP --- */

static VirtioNetDropsList *drops_list(const uint64_t *drops)
{
    VirtioNetDropsList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < NET_DROP__MAX; i++) {
        if (drops[i]) {
            VirtioNetDrops *entry = g_new0(VirtioNetDrops, 1);

            entry->reason = g_strdup(net_drop_names[i]);
            entry->count = drops[i];
            QAPI_LIST_APPEND(tail, entry);
        }
    }
    return list;
}

static VirtioNetBucketList *bucket_list(const uint64_t *counts, unsigned n,
                                        uint64_t (*limit)(unsigned bucket))
{
    VirtioNetBucketList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < n; i++) {
        if (counts[i]) {
            VirtioNetBucket *bucket = g_new0(VirtioNetBucket, 1);

            bucket->upto = limit(i);
            bucket->has_upto = bucket->upto != UINT64_MAX;
            bucket->count = counts[i];
            QAPI_LIST_APPEND(tail, bucket);
        }
    }
    return list;
}

static VirtioNetTxStats *tx_info(const VirtIONetQueueStats *all)
{
    const VirtIONetTxStats *s = &all->tx;
    VirtioNetTxStats *info = g_new0(VirtioNetTxStats, 1);

    virtio_net_fill_tx_counters(all, info);
    info->drops = drops_list(s->drops);
    info->flushes = g_new0(VirtioNetFlushes, 1);
    info->flushes->notify = s->flushes[TX_FLUSH_NOTIFY];
    info->flushes->bh = s->flushes[TX_FLUSH_BH];
    info->flushes->timer = s->flushes[TX_FLUSH_TIMER];
    info->flushes->poll = s->flushes[TX_FLUSH_POLL];
    info->flushes->resume = s->flushes[TX_FLUSH_RESUME];
    info->flush_sizes = bucket_list(s->flush_sizes, TX_BATCH_BUCKETS, tx_batch_bucket_limit);
    info->waits = bucket_list(s->waits, TX_WAIT_BUCKETS, tx_wait_bucket_limit);
    info->policy = g_strdup(all->policy);
    if (!strcmp(all->policy, "adaptive")) {
        info->adaptive = g_new0(VirtioNetAdaptive, 1);
        info->adaptive->gap_ns = (uint64_t)all->adaptive.gap_ns;
        info->adaptive->lateness_ns = (uint64_t)all->adaptive.lateness_ns;
        info->adaptive->holds = all->adaptive.holds;
        info->adaptive->polls = all->adaptive.polls;
    }
    return info;
}

static VirtioNetRxStats *rx_info(const VirtIONetQueueStats *all)
{
    VirtioNetRxStats *info = g_new0(VirtioNetRxStats, 1);

    virtio_net_fill_rx_counters(all, info);
    info->drops = drops_list(all->rx.drops);
    return info;
}

static VirtioNetStats *device_info(NetClient *nc)
{
    VirtIONet *n = ((VirtIONetClient *)nc)->q->n;
    VirtioNetStats *info = g_new0(VirtioNetStats, 1);
    VirtioNetQueueStatsList **tail = &info->queues;

    info->name = g_strdup(nc->name);
    info->path = object_canonical_path(OBJECT(n));
    for (unsigned i = 0; i < n->queue_pairs; i++) {
        VirtioNetQueueStats *queue = g_new0(VirtioNetQueueStats, 1);
        VirtIONetQueueStats stats;

        virtio_net_snapshot_stats(&n->queues[i], &stats);
        queue->queue = i;
        queue->time_ns = (uint64_t)stats.time_ns;
        queue->tx = tx_info(&stats);
        queue->rx = rx_info(&stats);
        QAPI_LIST_APPEND(tail, queue);
    }
    return info;
}

static bool is_virtio_net(const NetClient *nc)
{
    return nc->ops->receive_batch == virtio_net_receive_batch && nc->queue_index == 0;
}

VirtioNetStatsList *qmp_query_virtio_net_stats(const char *name, GError **errp)
{
    VirtioNetStatsList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < net_clients->len; i++) {
        NetClient *nc = g_ptr_array_index(net_clients, i);

        if (is_virtio_net(nc) && (!name || !strcmp(nc->name, name))) {
            QAPI_LIST_APPEND(tail, device_info(nc));
        }
    }
    if (name && !list) {
        error_set(errp, "There is no virtio-net device named '%s'", name);
    }
    return list;
}

/* --- HMP --- */

/* The bucket in which the @part (0 to 1) smallest of all values end; its limit in µs, as text. */
static void print_quantile(GString *out, const VirtioNetBucketList *buckets, double part)
{
    uint64_t all = 0, seen = 0;

    for (const VirtioNetBucketList *b = buckets; b; b = b->next) {
        all += b->value->count;
    }
    for (const VirtioNetBucketList *b = buckets; b; b = b->next) {
        seen += b->value->count;
        if ((double)seen < part * (double)all) {
            continue;
        }
        if (b->value->has_upto) {
            g_string_append_printf(out, "%.1f", (double)b->value->upto / 1e3);
        } else {
            g_string_append(out, "more");
        }
        return;
    }
    g_string_append(out, "-");
}

static void print_drops(GString *out, const VirtioNetDropsList *drops)
{
    for (; drops; drops = drops->next) {
        g_string_append_printf(out, ", %" G_GUINT64_FORMAT " dropped (%s)", drops->value->count,
                               drops->value->reason);
    }
    g_string_append(out, "\r\n");
}

#define N G_GUINT64_FORMAT

static void print_queue(GString *out, const VirtioNetQueueStats *queue)
{
    const VirtioNetTxStats *tx = queue->tx;
    const VirtioNetRxStats *rx = queue->rx;

    g_string_append_printf(out, "  queue %d tx=%s: %" N " packets, %" N " bytes", (int)queue->queue,
                           tx->policy, tx->packets, tx->bytes);
    print_drops(out, tx->drops);
    g_string_append_printf(out,
                           "    notifications %" N " (%" N " spurious, %" N " empty), saved %" N
                           "; interrupts %" N ", not wanted %" N ", coalesced %" N "\r\n",
                           tx->notifications, tx->notifications_spurious, tx->notifications_empty,
                           tx->notifications_suppressed, tx->interrupts, tx->interrupts_suppressed,
                           tx->interrupts_coalesced);
    g_string_append_printf(out,
                           "    flushes: notify %" N ", bh %" N ", timer %" N ", poll %" N
                           ", resume %" N "; stalls %" N " (%.3f ms, longest %.3f ms)\r\n",
                           tx->flushes->notify, tx->flushes->bh, tx->flushes->timer,
                           tx->flushes->poll, tx->flushes->resume, tx->stalls,
                           (double)tx->stall_ns / 1e6, (double)tx->stall_max_ns / 1e6);
    g_string_append(out, "    wait of half the packets at most ");
    print_quantile(out, tx->waits, 0.5);
    g_string_append(out, " us, of 99 % ");
    print_quantile(out, tx->waits, 0.99);
    g_string_append_printf(out, " us, longest %.1f us\r\n", (double)tx->wait_max_ns / 1e3);
    if (tx->adaptive) {
        g_string_append_printf(out,
                               "    adaptive: a packet every %.1f us, sleep ends %.1f us late, "
                               "holds %" N ", polls %" N "\r\n",
                               (double)tx->adaptive->gap_ns / 1e3,
                               (double)tx->adaptive->lateness_ns / 1e3, tx->adaptive->holds,
                               tx->adaptive->polls);
    }
    g_string_append_printf(out, "  queue %d rx: %" N " packets, %" N " bytes", (int)queue->queue,
                           rx->packets, rx->bytes);
    print_drops(out, rx->drops);
    g_string_append_printf(out,
                           "    notifications %" N "; interrupts %" N ", not wanted %" N
                           ", coalesced %" N "; buffers %" N ", waited for them %" N " times\r\n",
                           rx->notifications, rx->interrupts, rx->interrupts_suppressed,
                           rx->interrupts_coalesced, rx->buffers, rx->stalls);
}

static void hmp_info_virtio_net(const char *args, GString *out)
{
    g_autoptr(GError) err = NULL;
    g_autoptr(VirtioNetStatsList) list = qmp_query_virtio_net_stats(*args ? args : NULL, &err);

    if (err) {
        g_string_append_printf(out, "Error: %s\r\n", err->message);
    }
    for (VirtioNetStatsList *l = list; l; l = l->next) {
        g_string_append_printf(out, "%s: %s\r\n", l->value->name, l->value->path);
        for (VirtioNetQueueStatsList *q = l->value->queues; q; q = q->next) {
            print_queue(out, q->value);
        }
    }
}

void virtio_net_register_hmp(void)
{
    static const HmpCommand commands[] = {
        {"info virtio-net", "[name]", "show counters and waits of virtio-net queues",
         hmp_info_virtio_net},
        {NULL},
    };

    hmp_register(commands);
}
