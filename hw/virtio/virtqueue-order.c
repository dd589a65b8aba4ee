/*
 * Order: IN_ORDER (virtio 1.2, sections 2.7.9 and 2.8.10), where chains are used in the order in
 * which they were made available; elements that were given back and are kept; bad chains.
 *
 * A device may finish elements in any order, and a pop may find a bad chain while older ones are
 * out.  So popped elements stand in a line (vq->order); one that is done waits until it is the
 * oldest, and whatever is done at the front is published together.  An element that was given
 * back keeps its place.
 *
 * Without IN_ORDER the line is empty, but what a device that finishes in order has used must still
 * be the oldest chains there are: a saved state says only how many, and the next device begins
 * behind them.  A bad chain is found used by nobody, and so is held until those before it are done.
 */
#include "hw/virtio/virtqueue-internal.h"

void virtqueue_held_advance(VirtQueue *vq, unsigned used)
{
    for (unsigned i = 0; i < vq->held_count; i++) {
        vq->held[i].older -= MIN(used, vq->held[i].older);
    }
}

void virtqueue_held_publish(VirtQueue *vq)
{
    unsigned i = 0;

    while (i < vq->held_count) {
        VirtQueueElement *elem = vq->held[i].elem;

        if (vq->held[i].older) {
            i++;
            continue;
        }
        vq->held_count--;
        memmove(vq->held + i, vq->held + i + 1, (vq->held_count - i) * sizeof(*vq->held));
        /* Others that wait wait for this one too: they may be next, and so may earlier ones. */
        virtqueue_publish(vq, &elem, 1);
        i = 0;
    }
}

void virtqueue_order_push(VirtQueue *vq, VirtQueueElement *const *elems, unsigned count)
{
    if (vq->order_first + vq->order_count + count > 2 * vq->pool_num) {
        memmove(vq->order, vq->order + vq->order_first, vq->order_count * sizeof(*vq->order));
        vq->order_first = 0;
    }
    memcpy(vq->order + vq->order_first + vq->order_count, elems, count * sizeof(*elems));
    vq->order_count += count;
}

void virtqueue_order_remove(VirtQueue *vq, const VirtQueueElement *elem)
{
    VirtQueueElement **line = vq->order + vq->order_first;

    for (unsigned i = 0; i < vq->order_count; i++) {
        if (line[i] == elem) {
            memmove(line + i, line + i + 1, (vq->order_count - i - 1) * sizeof(*line));
            vq->order_count--;
            return;
        }
    }
}

void virtqueue_order_publish(VirtQueue *vq)
{
    VirtQueueElement **line = vq->order + vq->order_first;
    unsigned done = 0;

    while (done < vq->order_count && line[done]->in_order_done) {
        done++;
    }
    if (done) {
        vq->order_first += done;
        vq->order_count -= done;
        virtqueue_publish(vq, line, done);
    }
}

unsigned virtqueue_order_run(VirtQueueElement *const *elems, unsigned count)
{
    unsigned run = 1;

    while (run < count && elems[run - 1]->len >= elems[run - 1]->in_size) {
        run++;
    }
    return run;
}

/* Host addresses again, after the memory map changed. */
static bool retranslate(VirtQueue *vq, VirtQueueElement *elem)
{
    for (unsigned i = 0; i < (unsigned)elem->out_num + elem->in_num; i++) {
        uint64_t len = elem->sg[i].iov_len;
        void *host;

        if (virtqueue_bounce_holds(vq, elem, i)) {
            continue;
        }
        host = dma_translate(vq->dma, elem->gpa[i], &len, i >= elem->out_num);
        if (!host || len < elem->sg[i].iov_len) {
            return false;
        }
        elem->sg[i].iov_base = host;
    }
    virtqueue_mark(vq, elem)->map_generation = vq->map_generation;
    return true;
}

unsigned virtqueue_take_kept(VirtQueue *vq, VirtQueueElement **elems, unsigned max)
{
    unsigned n = 0;

    while (n < max && vq->unpopped_count) {
        VirtQueueElement *elem = vq->kept[--vq->unpopped_count];

        elem->owner_data = NULL;
        elem->popped_ns = 0;
        if (virtqueue_mark(vq, elem)->map_generation != vq->map_generation &&
            !retranslate(vq, elem)) {
            virtqueue_return_bad_again(vq, elem, "buffer outside RAM");
            continue;
        }
        elems[n++] = elem;
    }
    return n;
}
