/*
 * Several queue pairs on a tap: see mq-rig.h.
 */
#include "tests/lib/mq-rig.h"

#include <string.h>

#define HDR     RIG_HDR
#define KEY_LEN 40
#define F(name) RIG_FEATURE(VIRTIO_NET_F_##name)

static const uint8_t guest_mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

static void fail_on(GError *err, const char *what)
{
    if (err) {
        g_error("%s: %s", what, err->message);
    }
}

MqRig *mq_rig_open(const char *netdev, const char *device, const char *const *args,
                   VirtioDriverFeatures features)
{
    MqRig *m = g_new0(MqRig, 1);
    GError *err = NULL;
    VirtioDriver *virtio;

    m->rig = rig_open(&(RigConfig){.netdev = netdev, .device = device, .args = args});
    wire_open(&m->wire, TAP_RIG_IFNAME);
    virtio = m->rig->virtio;
    virtio_driver_negotiate(virtio, features | F(MAC) | F(STATUS), &err);
    fail_on(err, "negotiation");
    virtio_driver_setup_interrupts(virtio, 2 * MQ_PAIRS + 2, &err);
    fail_on(err, "MSI-X");
    g_assert_cmpuint(virtio->vectors, ==, 2 * MQ_PAIRS + 2); /* as many as there are by default */
    for (uint16_t i = 0; i <= MQ_CTRL; i++) {
        m->queues[i] = virtio_driver_setup_queue(virtio, i, 0, (uint16_t)(i + 1), &err);
        fail_on(err, "queue");
    }
    virtio_driver_start(virtio, &err);
    fail_on(err, "DRIVER_OK");
    return m;
}

void mq_rig_close(MqRig *m)
{
    wire_close(&m->wire);
    for (unsigned i = 0; i <= MQ_CTRL; i++) {
        driver_queue_free(m->queues[i]);
    }
    rig_free(m->rig);
    g_free(m);
}

uint8_t mq_rig_command(MqRig *m, const void *bytes, size_t size, void *answer, uint32_t room)
{
    uint64_t addr = rig_alloc(m->rig, size), reply = rig_alloc(m->rig, room);
    const RingPart parts[] = {{addr, (uint32_t)size, 0}, {reply, room, VRING_DESC_F_WRITE}};

    memcpy(rig_at(m->rig, addr, size), bytes, size);
    ring_chain(m->queues[MQ_CTRL], 0, parts, 2);
    ring_send(m->rig, m->queues[MQ_CTRL], 0);
    ring_take(m->rig, m->queues[MQ_CTRL]);
    memcpy(answer, rig_at(m->rig, reply, room), room);
    return *(uint8_t *)answer;
}

void mq_rig_post(MqRig *m)
{
    for (unsigned pair = 0; pair < MQ_PAIRS; pair++) {
        for (uint16_t i = 0; i < MQ_FRAMES; i++) {
            uint64_t addr = rig_alloc(m->rig, MQ_BUFFER);

            m->buffers[pair][i] = addr;
            ring_set(m->queues[2 * pair], i, addr, MQ_BUFFER, VRING_DESC_F_WRITE, 0);
            ring_offer(m->queues[2 * pair], i);
        }
        ring_publish(m->queues[2 * pair]);
        virtio_driver_notify_sync(m->rig->virtio, (uint16_t)(2 * pair));
    }
}

/* A UDP frame for the guest whose flow is @flow. */
size_t mq_rig_frame(uint8_t *frame, unsigned flow)
{
    static const FrameSpec spec = {"udp4", .ip_version = 4, .protocol = 17, .payload = 64};
    BuiltFrame built;
    size_t size;
    uint32_t sum;

    frame_build(&built, &spec, guest_mac);
    size = built.size;
    memcpy(frame, built.bytes, size);
    sum = (uint16_t) ~(frame[40] << 8 | frame[41]);
    sum += (uint16_t) ~(frame[34] << 8 | frame[35]);
    frame[34] = (uint8_t)((30000 + flow) >> 8);
    frame[35] = (uint8_t)(30000 + flow);
    sum += 30000 + flow;
    sum = (uint16_t)~frame_fold(sum);
    frame[40] = (uint8_t)(sum >> 8);
    frame[41] = (uint8_t)sum;
    frame_clear(&built);
    return size;
}

/* How many frames each pair has got, of @total that must come. */
void mq_rig_count(MqRig *m, unsigned total, unsigned got[MQ_PAIRS])
{
    unsigned sum = 0;

    for (unsigned wait = 0; sum < total && wait < 200; wait++) {
        g_usleep(10000);
        rig_settle(m->rig);
        sum = 0;
        for (unsigned pair = 0; pair < MQ_PAIRS; pair++) {
            got[pair] = ring_used_count(m->queues[2 * pair]);
            sum += got[pair];
        }
    }
    g_assert_cmpuint(sum, ==, total);
}

void mq_rig_send_flows(MqRig *m, unsigned flows)
{
    const struct virtio_net_hdr_v1 header = {0};
    uint8_t frame[200];

    for (unsigned flow = 0; flow < flows; flow++) {
        size_t size = mq_rig_frame(frame, flow);

        wire_send(&m->wire, &header, frame, size);
    }
}

uint8_t mq_rig_set_rss(MqRig *m, unsigned pair, unsigned pairs)
{
    uint8_t bytes[512], *p = bytes, ack;

    *p++ = VIRTIO_NET_CTRL_MQ;
    *p++ = VIRTIO_NET_CTRL_MQ_RSS_CONFIG;
    memcpy(p, "\xff\1\0\0\x7f\0\0\0", 8);
    p += 8;
    for (unsigned i = 0; i < 128; i++) {
        *p++ = (uint8_t)(pair == MQ_EVERY_PAIR ? i % pairs : pair);
        *p++ = 0;
    }
    *p++ = (uint8_t)pairs; /* max_tx_vq */
    *p++ = 0;
    *p++ = KEY_LEN;
    for (unsigned i = 0; i < KEY_LEN; i++) {
        *p++ = (uint8_t)(i * 37 + 11);
    }
    return mq_rig_command(m, bytes, (size_t)(p - bytes), &ack, 1);
}
