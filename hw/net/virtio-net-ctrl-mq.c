/*
 * Control commands of multiqueue (virtio 1.4, 5.1.6.5.5 to 5.1.6.5.6, class MQ) and of hashing
 * tunnels (class HASH_TUNNEL).
 *
 * The last command decides how received frames are steered: VQ_PAIRS_SET and HASH_CONFIG by the
 * back end's queues, RSS_CONFIG by the indirection table.  Hash parameters are those of the last
 * RSS_CONFIG or HASH_CONFIG.
 */
#include <string.h>

#include "hw/net/virtio-net-ctrl.h"

static bool pairs_are_valid(const CtrlData *data, unsigned pairs)
{
    return pairs >= VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MIN && pairs <= data->context->max_pairs;
}

bool ctrl_mq_pairs(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    uint16_t pairs;

    if (!ctrl_read_le16(data, &pairs) || !pairs_are_valid(data, pairs)) {
        return false;
    }
    state->queue_pairs = pairs;
    state->rss.redirect = false;
    return true;
}

/* {u8 length, key}: the end of both structures.  A key of no bytes hashes nothing. */
static bool read_key(VirtIONetRss *rss, CtrlData *data)
{
    uint8_t len;

    if (!ctrl_read(data, &len, 1) || len > VIRTIO_NET_RSS_KEY_MAX || data->left != len ||
        (!len && rss->hash_types)) {
        return false;
    }
    memset(rss->key, 0, sizeof(rss->key));
    rss->key_len = len;
    return ctrl_read(data, rss->key, len);
}

static bool read_types(VirtIONetRss *rss, CtrlData *data)
{
    return ctrl_read_le32(data, &rss->hash_types) &&
           !(rss->hash_types & ~data->context->hash_types);
}

/* A receive queue's id is its number among the receive queues (bits 1 to 16 of its index). */
static bool read_queue(uint16_t *queue, CtrlData *data)
{
    return ctrl_read_le16(data, queue) && *queue < data->context->max_pairs;
}

static bool read_table(VirtIONetRss *rss, CtrlData *data)
{
    uint16_t mask;

    if (!ctrl_read_le16(data, &mask) || mask >= VIRTIO_NET_RSS_TABLE_MAX || (mask & (mask + 1)) ||
        !read_queue(&rss->unclassified, data)) {
        return false;
    }
    memset(rss->table, 0, sizeof(rss->table));
    rss->table_len = (uint16_t)(mask + 1);
    for (unsigned i = 0; i <= mask; i++) {
        if (!read_queue(&rss->table[i], data)) {
            return false;
        }
    }
    return true;
}

bool ctrl_mq_rss(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    VirtIONetRss *rss = &state->rss;

    if (!read_types(rss, data) || !read_table(rss, data) ||
        !ctrl_read_le16(data, &state->queue_pairs) || !pairs_are_valid(data, state->queue_pairs)) {
        return false;
    }
    rss->redirect = true;
    return read_key(rss, data);
}

bool ctrl_mq_hash(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    static const uint8_t zeros[8];
    uint8_t reserved[8];

    if (!read_types(&state->rss, data) || !ctrl_read(data, reserved, sizeof(reserved)) ||
        memcmp(reserved, zeros, sizeof(reserved))) {
        return false;
    }
    state->rss.redirect = false;
    return read_key(&state->rss, data);
}

bool ctrl_hash_tunnel(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    return ctrl_read_le32(data, &state->hash_tunnels) &&
           !(state->hash_tunnels & ~VIRTIO_NET_HASH_TUNNELS);
}
