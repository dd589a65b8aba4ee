/*
 * A virtio-net device on a bench: a transport that only counts interrupts, a peer that records
 * what it gets and takes as much as it is told, guest memory, and a driver of a few functions.
 */
#ifndef TESTS_UNIT_VIRTIO_NET_RIG_H
#define TESTS_UNIT_VIRTIO_NET_RIG_H

#include <linux/virtio_ring.h>

#include "hw/net/virtio-net-internal.h"

#define RIG_RAM_SIZE (8u << 20)
#define RIG_DATA     0x100000u /* buffers from here */
#define RIG_RX       0
#define RIG_TX       1
#define RIG_CTRL     2
#define RIG_PAIRS    4 /* of queues, at most */
#define RIG_QUEUES   (2 * RIG_PAIRS + 1)
#define RIG_FRAMES   1024

typedef struct RigRing {
    uint64_t desc, avail, used;
    uint16_t num, next_desc, avail_idx, used_idx;
} RigRing;

typedef struct RigFrame {
    unsigned queue; /* of the back end */
    size_t size;
    uint8_t *bytes;
} RigFrame;

typedef struct RigPeer {
    NetClient nc;
    struct Rig *rig;
} RigPeer;

typedef struct Rig {
    uint8_t *ram;
    DmaSpace dma;
    DeviceState *transport;
    VirtIODevice *vdev;
    VirtIONet *n;
    RigRing rings[RIG_QUEUES];
    /* By vector; queue i has vector i, configuration the next after the last queue. */
    unsigned interrupts[RIG_QUEUES + 1];

    NetClient *peer, *peers[RIG_PAIRS];
    unsigned pairs;
    bool attached[RIG_PAIRS]; /* by set_enabled */
    bool refuse_attach;
    NetCaps caps;
    unsigned longest_hdr; /* that the peer knows */
    unsigned room;        /* packets it takes */
    unsigned batches, writable;
    NetOffloads offloads;
    RigFrame frames[RIG_FRAMES];
    unsigned count;
} Rig;

/* One part of a chain: {bytes, written by the device?}. */
typedef struct RigPart {
    uint64_t addr;
    uint32_t len;
    bool writable;
} RigPart;

/* Device with a peer named n0 that knows what @rig->caps says; @props: "key=value,…" or NULL.
 * NULL device and an error when realize fails. */
void rig_init(Rig *rig);
/* The same with a back end of several queues. */
void rig_init_pairs(Rig *rig, unsigned pairs);
bool rig_realize(Rig *rig, const char *props, GError **errp);
/* Features (as far as offered), rings of @num entries, DRIVER_OK. */
void rig_drive(Rig *rig, VirtioFeatures features, unsigned num);
void rig_cleanup(Rig *rig);
void rig_forget_frames(Rig *rig);
void rig_set_memory(Rig *rig, uint8_t *ram);

/* A chain; returns its head.  @indirect: in a table at that guest address, or 0. */
unsigned rig_add(Rig *rig, unsigned queue, const RigPart *parts, unsigned n, uint64_t indirect);
void rig_notify(Rig *rig, unsigned queue);
/* The next used entry, or false. */
bool rig_used(Rig *rig, unsigned queue, unsigned *head, unsigned *len);
bool rig_wants_notify(Rig *rig, unsigned queue);
void rig_loop(void);

/* A frame of @size bytes behind a zero header, in one buffer at @addr. */
void rig_send(Rig *rig, uint64_t addr, size_t size, uint8_t fill);
/* The peer sends @n frames of @size bytes, each filled with its number; returns how many went. */
unsigned rig_receive(Rig *rig, unsigned n, size_t size);

/* Queue @queue of the back end sends one frame; false: it was not taken. */
bool rig_receive_frame(Rig *rig, unsigned queue, const void *bytes, size_t size);
/* A control command on the control queue, wherever that is: its success, and what it answers
 * besides (@answer of @answer_size bytes; *answered: how many came). */
uint8_t rig_command(Rig *rig, const void *bytes, uint32_t size);
uint8_t rig_command_answer(Rig *rig, const void *bytes, uint32_t size, void *answer,
                           uint32_t answer_size, uint32_t *written);
unsigned rig_ctrl(const Rig *rig); /* index of the control queue */
/* The same with the bytes of the command as arguments. */
#define RIG_RUN(rig, ...)                                                                          \
    ({                                                                                             \
        const uint8_t bytes_[] = {__VA_ARGS__};                                                    \
        rig_command(rig, bytes_, sizeof(bytes_));                                                  \
    })

/* Realizes with @props (NULL: "netdev=n0") and drives; must succeed. */
void rig_start(Rig *rig, const char *props, VirtioFeatures features, unsigned num);
/* The same with a back end of @pairs queues and rings of 256 entries, from rig_init_pairs() on. */
void rig_start_pairs(Rig *rig, unsigned pairs, const char *props, VirtioFeatures features);
/* Sends a frame of 60 bytes from transmit queue @pair, and runs the loop. */
void rig_send_from(Rig *rig, unsigned pair, uint8_t fill);
/* Used entries of @queue, whatever their length, taken. */
unsigned rig_count_used(Rig *rig, unsigned queue);
/* Used entries of @queue, which must all have length @len. */
unsigned rig_drain_used(Rig *rig, unsigned queue, unsigned len);
void rig_assert_filled(const uint8_t *bytes, size_t size, uint8_t fill);
/* The same for receive queue @queue (its index among all queues); buffers at
 * RIG_DATA + (queue / 2 * 256 + i) * 0x1000. */
void rig_post_to(Rig *rig, unsigned queue, unsigned n, uint32_t size);
/* Posts @n receive buffers of @size bytes; buffer i of the ring lies at RIG_DATA + i * 0x1000. */
void rig_post(Rig *rig, unsigned n, uint32_t size);

#define RIG_MRG    VIRTIO_FEATURE(VIRTIO_NET_F_MRG_RXBUF)
#define RIG_MODERN VIRTIO_FEATURE(VIRTIO_F_VERSION_1)

#endif
