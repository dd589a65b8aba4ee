/*
 * Makes TSO frames of a stack that sends single segments.
 *
 * lwIP has no segmentation offload.  So that real TCP traffic exercises the device's, consecutive
 * segments of one connection are put together before they are sent, as a NIC's GRO does on the
 * other side: same headers but for sequence number, identification and checksums, every segment
 * but the last of the same size.  What is put together is TCP over IPv4 without IP options, data
 * with no flags beyond ACK and PSH; anything else passes by.
 */
#ifndef GUEST_TX_MERGE_H
#define GUEST_TX_MERGE_H

#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TX_MERGE_MAX 65549 /* Ethernet header and the longest IPv4 packet */

typedef struct TxMerge {
    struct virtio_net_hdr_v1 header; /* valid after tx_merge_finish() */
    uint8_t bytes[TX_MERGE_MAX];
    size_t size; /* 0: nothing is held */
    size_t headers, segment;
    unsigned segments;
    bool closed; /* the last one was short: none may follow */
} TxMerge;

/* Whether a segment like this @frame could be held at all. */
bool tx_merge_can_hold(const uint8_t *frame, size_t size);
/* Adds @frame to what is held; false: it does not continue it (what is held is unchanged).  When
 * nothing is held, a frame that can be held is. */
bool tx_merge_add(TxMerge *merge, const uint8_t *frame, size_t size);
/* Completes what is held: @merge->bytes, ->size and ->header can be sent.  Reset with size = 0. */
void tx_merge_finish(TxMerge *merge);

#endif
