/*
 * Checksum and segmentation offload in software: what must be done with a frame that has a
 * virtio_net_hdr in front, and the headers of each frame that comes of it.  Pure; knows no device.
 *
 * Payload is never moved: a segment is a new head followed by a range of the original's payload.
 */
#ifndef HW_NET_SEGMENT_H
#define HW_NET_SEGMENT_H

#include "hw/net/frame.h"

typedef enum SegmentKind {
    SEGMENT_BAD,   /* header and frame do not fit together */
    SEGMENT_PLAIN, /* nothing to do */
    SEGMENT_CSUM,  /* one frame, its checksum to be completed */
    SEGMENT_GSO,   /* several frames */
} SegmentKind;

typedef struct SegmentPlan {
    SegmentKind kind;
    uint16_t csum_start, csum_offset; /* of SEGMENT_CSUM */
    /* Of SEGMENT_GSO. */
    FrameInfo info;
    unsigned head_len; /* bytes of headers in front of each segment */
    size_t payload;    /* bytes behind them in the original */
    unsigned gso_size; /* of them in each segment but the last */
    unsigned segments; /* 2 or more */
    uint8_t head[FRAME_HEAD_SIZE];
} SegmentPlan;

/*
 * @hdr: the first 10 bytes of struct virtio_net_hdr, little-endian; the frame is @size bytes from
 * @skip on in @iov, memory that may change any time.  Headers are copied, once.
 */
void segment_plan(SegmentPlan *plan, const uint8_t hdr[10], const struct iovec *iov, unsigned cnt,
                  size_t skip, size_t size);

/* Bytes of payload in segment @i. */
static inline size_t segment_payload(const SegmentPlan *plan, unsigned i)
{
    size_t left = plan->payload - (size_t)i * plan->gso_size;

    return left < plan->gso_size ? left : plan->gso_size;
}

/* The head_len bytes in front of segment @i, whose payload sums up (csum_add()) to @payload_sum.
 */
void segment_head(const SegmentPlan *plan, unsigned i, uint64_t payload_sum, uint8_t *head);

/* The checksum for a frame (as above) of SEGMENT_CSUM, to be stored big-endian; never 0. */
uint16_t segment_checksum(const SegmentPlan *plan, const struct iovec *iov, unsigned cnt,
                          size_t skip, size_t size);

#endif
