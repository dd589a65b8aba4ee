/*
 * A virtio-net driver, below any TCP/IP stack.
 *
 * RX: buffers are posted once and re-posted in batches, one publish and at most one
 * notification a batch; frames are handed to a callback straight from shared RAM.  TX: frames
 * are copied to a slot of shared RAM, published by net_driver_flush(), and their slots taken
 * back when room is needed; TX asks for no interrupts.  A frame with NEEDS_CSUM (only after
 * GUEST_CSUM was negotiated) has its checksum completed before it is handed on.
 *
 * With several queue pairs each is a NetDriver of its own, and the first owns the others and the
 * device.  Of each, the receiving side belongs to one thread, the sending side to one at a time.
 */
#ifndef GUEST_NET_DRIVER_H
#define GUEST_NET_DRIVER_H

#include "guest/net-control.h"
#include <linux/virtio_net.h>
#include <sys/uio.h>

/* What a plain stack can take: no offloads.  With INDIRECT_DESC added, TX puts header and frame
 * into two segments behind an indirect table instead of one descriptor. */
#define NET_DRIVER_PLAIN_FEATURES                                                                  \
    ((1ull << VIRTIO_NET_F_MAC) | (1ull << VIRTIO_NET_F_STATUS) |                                  \
     (1ull << VIRTIO_NET_F_MRG_RXBUF) | (1ull << VIRTIO_RING_F_EVENT_IDX))

#define NET_DRIVER_MAX_BUFFERS 64 /* that one received frame may span */
#define NET_DRIVER_MAX_PAIRS   16

typedef struct NetDriverStats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t tx_full; /* frames refused because the ring was full */
    uint64_t rx_bad;  /* used chains that held no valid frame */
    uint64_t rx_notifications, tx_notifications;
    uint64_t rx_interrupts, tx_interrupts; /* messages seen; two between looks count as one */
} NetDriverStats;

typedef struct NetDriverConfig {
    uint64_t features;         /* wanted beyond VERSION_1 */
    uint16_t rx_size, tx_size; /* ring sizes; 0: as offered */
    uint32_t
        rx_buffer_size; /* bytes a buffer; 0: 2,048, or 65,562 with offloads and no MRG_RXBUF */
    uint32_t tx_buffer_size;     /* bytes a slot; 0: 2,048 */
    unsigned pairs;              /* queue pairs to use; 0: one */
    bool keep_partial_checksums; /* hand frames with NEEDS_CSUM on as they are */
} NetDriverConfig;

typedef struct NetDriver NetDriver;

/* A received frame, valid during the callback. */
typedef struct NetDriverFrame {
    struct virtio_net_hdr_v1 header;
    struct iovec iov[NET_DRIVER_MAX_BUFFERS];
    unsigned iovcnt;
    size_t size; /* bytes, without the header */
} NetDriverFrame;
typedef void NetDriverReceiveFunc(void *opaque, const NetDriverFrame *frame);

/* Takes the device from reset to DRIVER_OK with all RX buffers posted. */
NetDriver *net_driver_new(GuestPciDevice *pci, GuestRam *ram, const NetDriverConfig *config,
                          GError **errp);
/* Resets the device; NULL is fine.  @driver is the first pair's, and frees all. */
void net_driver_free(NetDriver *driver);
/* Queue pair @index; @driver is the first's.  NULL: there is no such pair. */
NetDriver *net_driver_pair(NetDriver *driver, unsigned index);
/* The control queue; NULL: CTRL_VQ was not negotiated. */
NetControl *net_driver_control(NetDriver *driver);

const uint8_t *net_driver_mac(const NetDriver *driver);
bool net_driver_link_is_up(NetDriver *driver);
VirtioDriver *net_driver_virtio(NetDriver *driver);
/* The counters; each is exact, the set is not one instant. */
void net_driver_get_stats(NetDriver *driver, NetDriverStats *stats);
/* False with error when the emulator is gone or the device broke a ring. */
bool net_driver_check(NetDriver *driver, GError **errp);

/* Hands up to @max frames to @fn, re-posts their buffers; how many.  When it returns 0,
 * interrupts are on again. */
unsigned net_driver_receive(NetDriver *driver, unsigned max, NetDriverReceiveFunc *fn,
                            void *opaque);
/*
 * Waits for the RX interrupt, at most @timeout_us.  Where interrupts are eventfds it sleeps until
 * one comes.  Where they are words of RAM it spins (yielding) shortly after traffic, then
 * sleeps for a quarter of the time that has passed without any, at most 1 ms: a wake-up is never
 * later than 1/4 of the silence before it, and an idle guest costs no CPU.
 */
bool net_driver_wait(NetDriver *driver, unsigned timeout_us);

/* Queues one frame; false: too long, or the ring is full.  @header NULL: no offloads. */
bool net_driver_send(NetDriver *driver, const struct virtio_net_hdr_v1 *header,
                     const struct iovec *iov, unsigned iovcnt);
/* Frames that the device has not returned yet, after taking back what it has. */
unsigned net_driver_tx_in_flight(NetDriver *driver);
/* Publishes what was queued, with at most one notification. */
void net_driver_flush(NetDriver *driver);

/* Completes a partial checksum in a linear frame; false when the offsets lie outside. */
bool net_frame_complete_checksum(uint8_t *frame, size_t size, uint16_t start, uint16_t offset);

#endif
