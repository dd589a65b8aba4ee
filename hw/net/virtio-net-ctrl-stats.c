/*
 * Control commands of device statistics (virtio 1.4, 5.1.6.5.10, class STATS): which types there
 * are, and the counters of a list of queues.
 *
 * A type exists for the driver if it negotiated the feature that the counters belong to; both
 * commands say the same about that, so that a driver which asks for all that QUERY names gets it.
 * The device limits no queue's speed: the counters of frames dropped for that are 0.
 */
#include "hw/net/virtio-net-ctrl.h"

#define REPLY(name) VIRTIO_NET_STATS_TYPE_REPLY_##name
#define F(name)     VIRTIO_FEATURE(VIRTIO_NET_F_##name)

typedef struct StatsType {
    uint8_t type;            /* bit in bitmaps */
    VirtIONetQueueRole role; /* of the queues that have it */
    uint8_t counters;
    VirtioFeatures features; /* any of them; 0: none needed */
} StatsType;

static const StatsType stats_types[] = {
    {REPLY(RX_BASIC), VIRTIO_NET_QUEUE_RX, 6, 0},
    {REPLY(RX_CSUM), VIRTIO_NET_QUEUE_RX, 4, F(GUEST_CSUM)},
    {REPLY(RX_GSO), VIRTIO_NET_QUEUE_RX, 4, F(GUEST_TSO4) | F(GUEST_TSO6)},
    {REPLY(RX_SPEED), VIRTIO_NET_QUEUE_RX, 2, 0},
    {REPLY(TX_BASIC), VIRTIO_NET_QUEUE_TX, 6, 0},
    {REPLY(TX_CSUM), VIRTIO_NET_QUEUE_TX, 2, F(CSUM)},
    {REPLY(TX_GSO), VIRTIO_NET_QUEUE_TX, 6, F(HOST_TSO4) | F(HOST_TSO6) | F(HOST_USO)},
    {REPLY(TX_SPEED), VIRTIO_NET_QUEUE_TX, 2, 0},
    {REPLY(CVQ), VIRTIO_NET_QUEUE_CTRL, 2, 0},
};

/* struct virtio_net_stats_reply_hdr */
typedef struct ReplyHeader {
    uint8_t type, reserved;
    uint16_t vq_index, reserved1, size;
} ReplyHeader;
G_STATIC_ASSERT(sizeof(ReplyHeader) == 8);

/* One entry of struct virtio_net_ctrl_queue_stats. */
#define ENTRY_SIZE 16

static bool type_exists(const StatsType *type, VirtioFeatures features)
{
    return !type->features || (features & type->features);
}

/* Types of queues of @role; CTRL + 1: of all. */
static uint64_t types_of(VirtioFeatures features, unsigned role)
{
    uint64_t types = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(stats_types); i++) {
        const StatsType *type = &stats_types[i];

        if (type_exists(type, features) && (role == VIRTIO_NET_QUEUE_NONE || type->role == role)) {
            types |= UINT64_C(1) << type->type;
        }
    }
    return types;
}

bool ctrl_stats_query(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    uint64_t types = GUINT64_TO_LE(types_of(data->context->features, VIRTIO_NET_QUEUE_NONE));

    virtio_net_ctrl_reply(data->reply, &types, sizeof(types));
    return true;
}

static void reply_one(CtrlData *data, const StatsType *type, uint16_t index)
{
    const VirtIONetCtrlContext *context = data->context;
    uint64_t counters[VIRTIO_NET_STATS_COUNTERS] = {0};
    size_t bytes = type->counters * sizeof(counters[0]);
    ReplyHeader header = {
        .type = type->type,
        .vq_index = GUINT16_TO_LE(index),
        .size = GUINT16_TO_LE(sizeof(header) + bytes),
    };

    context->queue_counters(context->opaque, index, type->type, counters);
    for (unsigned i = 0; i < type->counters; i++) {
        counters[i] = GUINT64_TO_LE(counters[i]);
    }
    virtio_net_ctrl_reply(data->reply, &header, sizeof(header));
    virtio_net_ctrl_reply(data->reply, counters, bytes);
}

bool ctrl_stats_get(VirtIONetCtrlState *state, const CtrlCommand *command, CtrlData *data)
{
    const VirtIONetCtrlContext *context = data->context;

    if (!data->left || data->left % ENTRY_SIZE) {
        return false;
    }
    while (data->left) {
        uint16_t index, reserved[3];
        uint64_t types;
        VirtIONetQueueRole role;

        ctrl_read_le16(data, &index);
        ctrl_read(data, reserved, sizeof(reserved));
        ctrl_read_le64(data, &types);
        role = context->queue_role(context->opaque, index);
        if (role == VIRTIO_NET_QUEUE_NONE || !types ||
            (types & ~types_of(context->features, role))) {
            return false;
        }
        for (unsigned i = 0; i < G_N_ELEMENTS(stats_types); i++) {
            if (types >> stats_types[i].type & 1) {
                reply_one(data, &stats_types[i], index);
            }
        }
    }
    return true;
}
