/*
 * The counters that a driver can ask for (virtio 1.4, 5.1.6.5.10), from those of the queues.
 *
 * Fields follow the structures of the specification, in order.  Read in the queues' loop, so that
 * those of one queue are of one moment.
 */
#include "hw/net/virtio-net-internal.h"

static uint64_t sum_drops(const uint64_t *drops)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < NET_DROP__MAX; i++) {
        sum += drops[i];
    }
    return sum;
}

static void rx_basic(const VirtIONetQueue *q, uint64_t *c)
{
    const VirtIONetRxStats *s = &q->rx_stats;

    c[0] = s->notifications;
    c[1] = s->packets;
    c[2] = s->bytes;
    c[3] = s->interrupts;
    c[4] = sum_drops(s->drops);
    c[5] = s->drops[NET_DROP_NO_BUFFER];
}

static void rx_csum(const VirtIONetQueue *q, uint64_t *c)
{
    c[0] = q->rx_csum.valid;
    c[1] = q->rx_csum.needs;
    c[2] = q->rx_csum.none;
    c[3] = 0; /* frames with a bad checksum are passed on as they are, without looking */
}

static void rx_gso(const VirtIONetQueue *q, uint64_t *c)
{
    c[0] = q->rx_gso.packets;
    c[1] = q->rx_gso.bytes;
    c[2] = q->rx_gso.coalesced_packets;
    c[3] = q->rx_gso.coalesced_bytes;
}

/* The specification counts what left, not what the driver gave. */
static void tx_basic(const VirtIONetQueue *q, uint64_t *c)
{
    const VirtIONetTxStats *s = &q->tx_stats;
    const VirtIONetTxGso *gso = &q->tx_gso;

    c[0] = s->notifications;
    c[1] = s->packets - (gso->packets - gso->packets_noseg) + gso->segments;
    c[2] = s->bytes - (gso->bytes - gso->bytes_noseg) + gso->segments_bytes;
    c[3] = s->interrupts;
    c[4] = sum_drops(s->drops);
    c[5] = s->drops[NET_DROP_BAD_HEADER] + s->drops[NET_DROP_TOO_LONG];
}

static void tx_csum(const VirtIONetQueue *q, uint64_t *c)
{
    c[0] = q->tx_csum.none;
    c[1] = q->tx_csum.needs;
}

static void tx_gso(const VirtIONetQueue *q, uint64_t *c)
{
    c[0] = q->tx_gso.packets;
    c[1] = q->tx_gso.bytes;
    c[2] = q->tx_gso.segments;
    c[3] = q->tx_gso.segments_bytes;
    c[4] = q->tx_gso.packets_noseg;
    c[5] = q->tx_gso.bytes_noseg;
}

typedef struct StatsRequest {
    const VirtIONetQueue *q;
    void (*read)(const VirtIONetQueue *q, uint64_t *counters);
    uint64_t *counters;
} StatsRequest;

static void read_stats(void *opaque)
{
    StatsRequest *request = opaque;

    request->read(request->q, request->counters);
}

void virtio_net_device_stats(VirtIONet *n, unsigned index, unsigned type, uint64_t *counters)
{
    static void (*const readers[])(const VirtIONetQueue *, uint64_t *) = {
        [VIRTIO_NET_STATS_TYPE_REPLY_RX_BASIC] = rx_basic,
        [VIRTIO_NET_STATS_TYPE_REPLY_RX_CSUM] = rx_csum,
        [VIRTIO_NET_STATS_TYPE_REPLY_RX_GSO] = rx_gso,
        [VIRTIO_NET_STATS_TYPE_REPLY_TX_BASIC] = tx_basic,
        [VIRTIO_NET_STATS_TYPE_REPLY_TX_CSUM] = tx_csum,
        [VIRTIO_NET_STATS_TYPE_REPLY_TX_GSO] = tx_gso,
    };

    if (type == VIRTIO_NET_STATS_TYPE_REPLY_CVQ) {
        /* This command is counted, and it succeeds if its answer is ever seen. */
        counters[0] = n->ctrl_commands;
        counters[1] = n->ctrl_commands - n->ctrl_errors;
    } else if (type < G_N_ELEMENTS(readers) && readers[type]) {
        event_loop_run_sync(n->loop, read_stats,
                            &(StatsRequest){&n->queues[index / 2], readers[type], counters});
    }
}
