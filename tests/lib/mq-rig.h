/*
 * A Rig with several queue pairs on a tap of several queues: rings of all pairs, control commands,
 * and flows of UDP frames for the guest.
 */
#ifndef TESTS_LIB_MQ_RIG_H
#define TESTS_LIB_MQ_RIG_H

#include "tests/lib/tap-rig.h"

#define MQ_PAIRS  4
#define MQ_CTRL   (2 * MQ_PAIRS)
#define MQ_BUFFER 2048u
#define MQ_FRAMES 64 /* buffers of each pair */
#define MQ_NETDEV TAP_RIG_NETDEV ",queues=4,vnet_hdr=on"

typedef struct MqRig {
    Rig *rig;
    Wire wire;
    DriverQueue *queues[2 * MQ_PAIRS + 1];
    uint64_t buffers[MQ_PAIRS][MQ_FRAMES];
} MqRig;

/* @netdev and @device as in tap_rig_open(), @args more arguments (NULL-ended, may be NULL);
 * @features are taken as far as offered. */
MqRig *mq_rig_open(const char *netdev, const char *device, const char *const *args,
                   VirtioDriverFeatures features);
void mq_rig_close(MqRig *m);

/* A control command, and what it answers: *@answer of @room bytes.  The first of them. */
uint8_t mq_rig_command(MqRig *m, const void *bytes, size_t size, void *answer, uint32_t room);
/* One whose bytes are the arguments, and which answers with its success alone. */
#define MQ_RUN(m, ...)                                                                             \
    ({                                                                                             \
        const uint8_t bytes_[] = {__VA_ARGS__};                                                    \
        uint8_t ack_;                                                                              \
        mq_rig_command(m, bytes_, sizeof(bytes_), &ack_, 1);                                       \
    })
/* RSS_CONFIG: all hashes, @pairs pairs in use, and a table of 128 entries that all name pair @pair,
 * or every pair in turn. */
#define MQ_EVERY_PAIR G_MAXUINT
uint8_t mq_rig_set_rss(MqRig *m, unsigned pair, unsigned pairs);

/* Puts all buffers of all pairs on offer. */
void mq_rig_post(MqRig *m);
/* A UDP frame for the guest whose flow is @flow (at most 200 bytes); its size. */
size_t mq_rig_frame(uint8_t *frame, unsigned flow);
/* Sends a frame of each of the first @flows flows to the guest. */
void mq_rig_send_flows(MqRig *m, unsigned flows);
/* Waits until @total frames have come since the beginning: how many to each pair. */
void mq_rig_count(MqRig *m, unsigned total, unsigned got[static MQ_PAIRS]);

#endif
