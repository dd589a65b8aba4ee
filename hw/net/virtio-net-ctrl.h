/*
 * What the files of the control queue share: reading a command's data, writing its result, and
 * the commands that are not in virtio-net-ctrl.c.
 */
#ifndef HW_NET_VIRTIO_NET_CTRL_H
#define HW_NET_VIRTIO_NET_CTRL_H

#include "hw/net/virtio-net-internal.h"

/* A command's data: what follows the header.  Guest memory: each byte is read once. */
typedef struct CtrlData {
    const struct iovec *iov;
    unsigned iovcnt;
    size_t offset, left;
    const VirtIONetCtrlContext *context;
    VirtIONetCtrlReply *reply; /* what it answers besides its success */
} CtrlData;

typedef struct CtrlCommand CtrlCommand;

/* Changes @state as the command says; false: it is wrong, and @state is thrown away. */
typedef bool CtrlFunc(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data);

struct CtrlCommand {
    uint8_t class, cmd;
    uint8_t feature; /* negotiated, or the command does not exist */
    bool any_length;
    size_t length; /* of the data, exactly; not counting what the device writes */
    size_t answer; /* bytes of the data that the device writes: they lie before the ack */
    CtrlFunc *run;
    size_t field; /* of a receive mode: offset of its bool in RxFilter */
    unsigned changes;
};

/* False: the data ends before. */
bool ctrl_read(CtrlData *data, void *buf, size_t bytes);
bool ctrl_read_le16(CtrlData *data, uint16_t *value);
bool ctrl_read_le32(CtrlData *data, uint32_t *value);
bool ctrl_read_le64(CtrlData *data, uint64_t *value);

/* virtio-net-ctrl-mq.c */
CtrlFunc ctrl_mq_pairs, ctrl_mq_rss, ctrl_mq_hash, ctrl_hash_tunnel;
/* virtio-net-ctrl-coal.c */
CtrlFunc ctrl_coal_all, ctrl_coal_vq_set, ctrl_coal_vq_get;
/* virtio-net-ctrl-stats.c */
CtrlFunc ctrl_stats_query, ctrl_stats_get;

#endif
