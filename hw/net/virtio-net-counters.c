/*
 * What the counters of a queue are called: one table for each direction, from which both the QMP
 * types of query-virtio-net-stats and the JSON of the property x-queue-stats are filled.
 *
 * What is counted, and when, is in virtio-net-stats.c; the commands are in virtio-net-qmp.c, which
 * needs a QMP server, as this file does not.  Main thread.
 */
#include "hw/net/virtio-net-internal.h"
#include "qapi/qapi-types.h"
#include "util/json.h"

/* A counter: its name in x-queue-stats (NULL: not there), where it is in VirtIONetQueueStats, and
 * in the QMP type.  All are uint64_t. */
typedef struct QueueCounter {
    const char *name;
    size_t stats, qmp;
} QueueCounter;

#define TX_COUNTER(name, from, to)                                                                 \
    {                                                                                              \
        name, offsetof(VirtIONetQueueStats, from), offsetof(VirtioNetTxStats, to)                  \
    }
#define RX_COUNTER(name, from, to)                                                                 \
    {                                                                                              \
        name, offsetof(VirtIONetQueueStats, from), offsetof(VirtioNetRxStats, to)                  \
    }

static const QueueCounter tx_counters[] = {
    TX_COUNTER("notifications", tx.notifications, notifications),
    TX_COUNTER("spurious", tx.spurious, notifications_spurious),
    TX_COUNTER("suppressed", tx.suppressed, notifications_suppressed),
    TX_COUNTER("empty", tx.empty, notifications_empty),
    TX_COUNTER("interrupts", tx.interrupts, interrupts),
    TX_COUNTER("interrupts-suppressed", tx_ring.interrupts_suppressed, interrupts_suppressed),
    TX_COUNTER("interrupts-coalesced", tx.interrupts_coalesced, interrupts_coalesced),
    TX_COUNTER("packets", tx.packets, packets),
    TX_COUNTER("bytes", tx.bytes, bytes),
    TX_COUNTER("batches", tx.batches, batches),
    TX_COUNTER("bursts", tx.bursts, bursts),
    TX_COUNTER("stalls", tx.stalls, stalls),
    TX_COUNTER("stall-ns", tx.stall_ns, stall_ns),
    TX_COUNTER(NULL, tx.stall_max_ns, stall_max_ns),
    TX_COUNTER("wait-ns", tx.wait_ns, wait_ns),
    TX_COUNTER(NULL, tx.wait_max_ns, wait_max_ns),
    TX_COUNTER("linearised", tx.linearised, linearised),
    TX_COUNTER("bad-chains", tx_ring.bad_chains, bad_chains),
};

static const QueueCounter rx_counters[] = {
    RX_COUNTER("notifications", rx.notifications, notifications),
    RX_COUNTER("interrupts", rx.interrupts, interrupts),
    RX_COUNTER("interrupts-suppressed", rx_ring.interrupts_suppressed, interrupts_suppressed),
    RX_COUNTER("interrupts-coalesced", rx.interrupts_coalesced, interrupts_coalesced),
    RX_COUNTER("packets", rx.packets, packets),
    RX_COUNTER("bytes", rx.bytes, bytes),
    RX_COUNTER("batches", rx.batches, batches),
    RX_COUNTER("buffers", rx.buffers, buffers),
    RX_COUNTER("stalls", rx.stalls, stalls),
    RX_COUNTER("bad-buffers", rx.bad_buffers, bad_buffers),
    RX_COUNTER("bad-chains", rx_ring.bad_chains, bad_chains),
};

static uint64_t counter_value(const VirtIONetQueueStats *stats, const QueueCounter *counter)
{
    return *(const uint64_t *)((const char *)stats + counter->stats);
}

static void counters_to_qmp(const VirtIONetQueueStats *stats, const QueueCounter *counters,
                            size_t n, void *info)
{
    for (size_t i = 0; i < n; i++) {
        *(uint64_t *)((char *)info + counters[i].qmp) = counter_value(stats, &counters[i]);
    }
}

void virtio_net_fill_tx_counters(const VirtIONetQueueStats *stats, struct VirtioNetTxStats *info)
{
    counters_to_qmp(stats, tx_counters, G_N_ELEMENTS(tx_counters), info);
}

void virtio_net_fill_rx_counters(const VirtIONetQueueStats *stats, struct VirtioNetRxStats *info)
{
    counters_to_qmp(stats, rx_counters, G_N_ELEMENTS(rx_counters), info);
}

/* --- x-queue-stats --- */

static json_object *counters_to_json(const VirtIONetQueueStats *stats, const QueueCounter *counters,
                                     size_t n)
{
    json_object *object = json_object_new_object();

    for (size_t i = 0; i < n; i++) {
        if (counters[i].name) {
            json_put_int(object, counters[i].name, (int64_t)counter_value(stats, &counters[i]));
        }
    }
    return object;
}

static json_object *drops_to_json(const uint64_t *drops)
{
    json_object *object = json_object_new_object();

    for (unsigned i = 0; i < NET_DROP__MAX; i++) {
        if (drops[i]) {
            json_put_int(object, net_drop_names[i], (int64_t)drops[i]);
        }
    }
    return object;
}

static json_object *flushes_to_json(const uint64_t *flushes)
{
    static const char *const names[TX_FLUSH__MAX] = {"notify", "bh", "timer", "poll", "resume"};
    json_object *object = json_object_new_object();

    for (unsigned i = 0; i < TX_FLUSH__MAX; i++) {
        json_put_int(object, names[i], (int64_t)flushes[i]);
    }
    return object;
}

static json_object *queue_to_json(VirtIONetQueue *q)
{
    json_object *pair = json_object_new_object(), *tx, *rx;
    VirtIONetQueueStats stats;

    virtio_net_snapshot_stats(q, &stats);
    tx = counters_to_json(&stats, tx_counters, G_N_ELEMENTS(tx_counters));
    json_object_object_add(tx, "flushes", flushes_to_json(stats.tx.flushes));
    json_object_object_add(tx, "drops", drops_to_json(stats.tx.drops));
    rx = counters_to_json(&stats, rx_counters, G_N_ELEMENTS(rx_counters));
    json_object_object_add(rx, "drops", drops_to_json(stats.rx.drops));
    json_put_int(pair, "queue", q->index);
    json_object_object_add(pair, "tx", tx);
    json_object_object_add(pair, "rx", rx);
    return pair;
}

json_object *virtio_net_query_stats(VirtIONet *n)
{
    json_object *list = json_object_new_array();

    for (unsigned i = 0; n->queues && i < n->queue_pairs; i++) {
        json_object_array_add(list, queue_to_json(&n->queues[i]));
    }
    return list;
}
