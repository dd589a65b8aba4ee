/*
 * Counters and histograms.  They are plain fields of each queue, written only by the queue's
 * thread; a reader asks that thread for a copy, so that all figures are of one moment and the
 * queue pays nothing while nobody asks.
 *
 * How long packets waited is told from looks: when a packet is left for later (a timer, a peer that
 * takes no more) the number of packets that are there is noted with the time, and packets that
 * leave are counted off against these notes.  What leaves in the flush that a notification led to
 * has waited since that.  So a wait begins when the device could first have known of the packet,
 * and costs two readings of the clock a batch, whatever the number of packets; the ring is not
 * looked at more often than it is anyway, for a line of memory that the driver writes is dear.
 *
 * Names for them are in virtio-net-counters.c.
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"

#define WAIT_FIRST_BIT 8 /* waits below 256 ns are one bucket */

/* --- histograms --- */

unsigned tx_batch_bucket(unsigned packets)
{
    unsigned bucket = packets > 1 ? 32u - (unsigned)__builtin_clz(packets - 1) : 0;

    return MIN(bucket, TX_BATCH_BUCKETS - 1);
}

uint64_t tx_batch_bucket_limit(unsigned bucket)
{
    return bucket < TX_BATCH_BUCKETS - 1 ? UINT64_C(1) << bucket : UINT64_MAX;
}

unsigned tx_wait_bucket(uint64_t ns)
{
    unsigned top, half;

    if (ns < UINT64_C(1) << WAIT_FIRST_BIT) {
        return 0;
    }
    top = 63u - (unsigned)__builtin_clzll(ns);
    half = ns >> (top - 1) & 1;
    return MIN(1 + 2 * (top - WAIT_FIRST_BIT) + half, TX_WAIT_BUCKETS - 1);
}

uint64_t tx_wait_bucket_limit(unsigned bucket)
{
    uint64_t octave = UINT64_C(1) << WAIT_FIRST_BIT;

    if (bucket >= TX_WAIT_BUCKETS - 1) {
        return UINT64_MAX;
    }
    if (bucket == 0) {
        return octave - 1;
    }
    octave <<= (bucket - 1) / 2;
    return (bucket % 2 ? octave + octave / 2 : 2 * octave) - 1;
}

/* --- waits --- */

void tx_looks_note(TxLooks *looks, unsigned available, int64_t now_ns)
{
    uint64_t upto = looks->done + available;

    /* Chains that turned out bad were seen, but did not leave through us. */
    while (looks->count && looks->look[looks->count - 1].upto > upto) {
        uint64_t before = looks->count > 1 ? looks->look[looks->count - 2].upto : looks->done;

        if (before < upto) {
            looks->look[looks->count - 1].upto = upto;
        } else {
            looks->count--;
        }
    }
    looks->upto = MIN(looks->upto, upto);
    if (upto <= looks->upto) {
        return;
    }
    looks->upto = upto;
    if (looks->count == TX_LOOKS) {
        /* Out of room: these count as seen with those before.  Too long a wait, never too short. */
        looks->look[TX_LOOKS - 1].upto = upto;
        return;
    }
    looks->look[looks->count].upto = upto;
    looks->look[looks->count++].ns = now_ns;
}

static void count_waits(VirtIONetTxStats *stats, uint64_t packets, int64_t wait)
{
    uint64_t ns = wait > 0 ? (uint64_t)wait : 0;

    stats->waits[tx_wait_bucket(ns)] += packets;
    stats->wait_ns += packets * ns;
    stats->wait_max_ns = MAX(stats->wait_max_ns, ns);
}

unsigned tx_looks_leave(TxLooks *looks, VirtIONetTxStats *stats, unsigned packets, int64_t seen_ns,
                        int64_t now_ns)
{
    unsigned used = 0;

    while (packets && used < looks->count) {
        uint64_t n = MIN(packets, looks->look[used].upto - looks->done);

        count_waits(stats, n, now_ns - looks->look[used].ns);
        looks->done += n;
        packets -= (unsigned)n;
        used += looks->look[used].upto == looks->done;
    }
    if (used) {
        looks->count -= used;
        memmove(looks->look, looks->look + used, looks->count * sizeof(looks->look[0]));
    }
    if (packets) {
        count_waits(stats, packets, now_ns - seen_ns);
        looks->done += packets;
        looks->upto = looks->done;
    }
    return packets;
}

/* --- reading them --- */

typedef struct Snapshot {
    VirtIONetQueue *q;
    VirtIONetQueueStats *stats;
} Snapshot;

static void snapshot(void *opaque)
{
    Snapshot *s = opaque;
    VirtIONetQueue *q = s->q;
    int64_t stalled_ns = q->tx_looks.stalled_ns;

    *s->stats = (VirtIONetQueueStats){
        .tx = q->tx_stats,
        .rx = q->rx_stats,
        .tx_ring = *virtqueue_stats(q->tx_vq),
        .rx_ring = *virtqueue_stats(q->rx_vq),
        .policy = tx_policy_name(q->tx.set.policy),
        .adaptive = q->tx.adaptive,
        .time_ns = clock_get_ns(CLOCK_VIRTUAL),
    };
    if (stalled_ns) {
        uint64_t so_far = (uint64_t)(s->stats->time_ns - stalled_ns);

        s->stats->tx.stall_ns += so_far;
        s->stats->tx.stall_max_ns = MAX(s->stats->tx.stall_max_ns, so_far);
    }
}

void virtio_net_snapshot_stats(VirtIONetQueue *q, VirtIONetQueueStats *stats)
{
    event_loop_run_sync(q->n->loop, snapshot, &(Snapshot){q, stats});
}
