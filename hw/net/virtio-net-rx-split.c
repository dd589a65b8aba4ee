/*
 * Received frames that wait for a segmentation which the driver does not take: they were on their
 * way when it changed its offloads, or the peer does not care.  They are cut here and delivered as
 * the frames they stand for.
 *
 * The peer offers a frame again if not all of its segments found buffers: rx_split_done says how
 * many did.
 */
#include <string.h>

#include "hw/net/segment.h"
#include "hw/net/virtio-net-internal.h"
#include "util/iov.h"

#define SPLIT_IOVS 64 /* pieces of a segment */

/* One segment as a frame of its own; false: there are no buffers. */
static bool deliver_segment(VirtIONetQueue *q, const RxFrame *whole, const SegmentPlan *plan,
                            unsigned i)
{
    uint8_t head[FRAME_HEAD_SIZE];
    struct iovec iov[SPLIT_IOVS] = {{head, plan->head_len}};
    size_t payload = segment_payload(plan, i);
    NetPacket pkt = {.iov = iov, .size = plan->head_len + payload};
    RxFrame frame = {.pkt = &pkt, .size = pkt.size};

    pkt.iovcnt = 1 + iov_slice(iov + 1, SPLIT_IOVS - 1, whole->pkt->iov, whole->pkt->iovcnt,
                               whole->skip + plan->head_len + (size_t)i * plan->gso_size, payload);
    if (iov_size(iov, pkt.iovcnt) != pkt.size) {
        virtio_net_rx_drop(q, NET_DROP_BAD_HEADER);
        return true;
    }
    segment_head(plan, i, csum_add_iov(0, iov + 1, pkt.iovcnt - 1, 0, payload), head);
    memcpy(frame.hdr, whole->hdr, sizeof(frame.hdr));
    return virtio_net_rx_deliver(q, &frame, 1);
}

bool virtio_net_rx_split(VirtIONetQueue *from, VirtIONetQueue *q, const RxFrame *whole)
{
    uint8_t hdr[VIRTIO_NET_HDR_LEN_SHORT];
    SegmentPlan plan;

    iov_to_buf(whole->pkt->iov, whole->pkt->iovcnt, 0, hdr, sizeof(hdr));
    segment_plan(&plan, hdr, whole->pkt->iov, whole->pkt->iovcnt, whole->skip, whole->size);
    if (plan.kind != SEGMENT_GSO) {
        virtio_net_rx_drop(from, NET_DROP_BAD_HEADER);
        from->rx_split_done = 0;
        return true;
    }
    while (from->rx_split_done < plan.segments) {
        if (!deliver_segment(q, whole, &plan, from->rx_split_done)) {
            return false;
        }
        from->rx_split_done++;
    }
    from->rx_split_done = 0;
    return true;
}
