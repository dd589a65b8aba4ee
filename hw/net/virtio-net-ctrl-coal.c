/*
 * Control commands of notification coalescing (virtio 1.4, 5.1.6.5.9, class NOTF_COAL): parameters
 * for all receive or all transmit queues, or for one; the last command for a queue counts.
 */
#include "hw/net/virtio-net-ctrl.h"

static bool read_params(VirtIONetCoalescing *params, CtrlData *data)
{
    return ctrl_read_le32(data, &params->max_packets) && ctrl_read_le32(data, &params->max_usecs);
}

bool ctrl_coal_all(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    unsigned first = command->cmd == VIRTIO_NET_CTRL_NOTF_COAL_TX_SET;
    VirtIONetCoalescing *params = first ? &state->coal_tx : &state->coal_rx;

    if (!read_params(params, data)) {
        return false;
    }
    for (unsigned i = first; i < G_N_ELEMENTS(state->coal); i += 2) {
        state->coal[i] = *params;
    }
    return true;
}

/* {le16 index, le16 reserved}: an enabled receive or transmit queue. */
static bool read_queue(unsigned *index, CtrlData *data)
{
    const VirtIONetCtrlContext *context = data->context;
    uint16_t value, reserved;

    if (!ctrl_read_le16(data, &value) || !ctrl_read_le16(data, &reserved) ||
        value >= 2 * context->max_pairs || !context->queue_enabled(context->opaque, value)) {
        return false;
    }
    *index = value;
    return true;
}

bool ctrl_coal_vq_set(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    unsigned index;

    return read_queue(&index, data) && read_params(&state->coal[index], data);
}

bool ctrl_coal_vq_get(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    unsigned index;

    if (!read_queue(&index, data)) {
        return false;
    }

    uint32_t params[2] = {GUINT32_TO_LE(state->coal[index].max_packets),
                          GUINT32_TO_LE(state->coal[index].max_usecs)};

    virtio_net_ctrl_reply(data->reply, params, sizeof(params));
    return true;
}
