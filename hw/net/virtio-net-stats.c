/*
 * Counters as JSON.  The counters themselves are plain fields of each queue, written only by the
 * queue's thread; a reader in another thread sees each one whole, not all of one moment.
 */
#include "hw/net/virtio-net-internal.h"
#include "util/json.h"

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

static json_object *tx_to_json(const VirtIONetQueue *q)
{
    const VirtIONetTxStats *s = &q->tx_stats;
    json_object *object = json_object_new_object();

    json_put_int(object, "notifications", (int64_t)s->notifications);
    json_put_int(object, "spurious", (int64_t)s->spurious);
    json_put_int(object, "interrupts", (int64_t)s->interrupts);
    json_put_int(object, "packets", (int64_t)s->packets);
    json_put_int(object, "bytes", (int64_t)s->bytes);
    json_put_int(object, "batches", (int64_t)s->batches);
    json_put_int(object, "bursts", (int64_t)s->bursts);
    json_put_int(object, "stalls", (int64_t)s->stalls);
    json_put_int(object, "linearised", (int64_t)s->linearised);
    json_put_int(object, "bad-chains", (int64_t)virtqueue_stats(q->tx_vq)->bad_chains);
    json_object_object_add(object, "drops", drops_to_json(s->drops));
    return object;
}

static json_object *rx_to_json(const VirtIONetQueue *q)
{
    const VirtIONetRxStats *s = &q->rx_stats;
    json_object *object = json_object_new_object();

    json_put_int(object, "notifications", (int64_t)s->notifications);
    json_put_int(object, "interrupts", (int64_t)s->interrupts);
    json_put_int(object, "packets", (int64_t)s->packets);
    json_put_int(object, "bytes", (int64_t)s->bytes);
    json_put_int(object, "batches", (int64_t)s->batches);
    json_put_int(object, "buffers", (int64_t)s->buffers);
    json_put_int(object, "stalls", (int64_t)s->stalls);
    json_put_int(object, "bad-buffers", (int64_t)s->bad_buffers);
    json_put_int(object, "bad-chains", (int64_t)virtqueue_stats(q->rx_vq)->bad_chains);
    json_object_object_add(object, "drops", drops_to_json(s->drops));
    return object;
}

json_object *virtio_net_query_stats(VirtIONet *n)
{
    json_object *list = json_object_new_array();

    for (unsigned i = 0; n->queues && i < n->queue_pairs; i++) {
        json_object *pair = json_object_new_object();

        json_put_int(pair, "queue", i);
        json_object_object_add(pair, "tx", tx_to_json(&n->queues[i]));
        json_object_object_add(pair, "rx", rx_to_json(&n->queues[i]));
        json_object_array_add(list, pair);
    }
    return list;
}
