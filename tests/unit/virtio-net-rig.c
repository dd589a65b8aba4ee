/* See virtio-net-rig.h. */
#include <string.h>

#include "tests/unit/virtio-net-rig.h"
#include "util/error.h"
#include "util/iov.h"
#include "util/keyval.h"
#include "util/runstate.h"

/* --- transport --- */

typedef struct RigTransport {
    DeviceState parent_obj;
    BusState *bus;
} RigTransport;
typedef DeviceClass RigTransportClass;
GType rig_transport_get_type(void);
G_DEFINE_TYPE(RigTransport, rig_transport, TYPE_DEVICE)

static void rig_transport_init(RigTransport *t) {}

static void rig_transport_class_init(RigTransportClass *klass)
{
    ((ObjectClass *)klass)->qom_name = "rig-nic";
}

static void transport_notify(void *opaque, uint16_t vector)
{
    Rig *rig = opaque;

    g_assert_cmpint(vector, <, G_N_ELEMENTS(rig->interrupts));
    rig->interrupts[vector]++;
}

static VirtioFeatures transport_features(void *opaque)
{
    return RIG_MODERN;
}

static const VirtioTransportOps transport_ops = {
    .notify = transport_notify,
    .features = transport_features,
};

/* --- peer --- */

static unsigned peer_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    Rig *rig = ((RigPeer *)nc)->rig;
    unsigned taken = MIN(n, rig->room);

    for (unsigned i = 0; i < taken; i++) {
        RigFrame *frame = &rig->frames[rig->count++];

        g_assert_cmpint(rig->count, <=, RIG_FRAMES);
        frame->queue = nc->queue_index;
        g_assert_cmpint(pkts[i].size, ==, iov_size(pkts[i].iov, pkts[i].iovcnt));
        frame->size = pkts[i].size;
        frame->bytes = g_malloc(frame->size);
        iov_to_buf(pkts[i].iov, pkts[i].iovcnt, 0, frame->bytes, frame->size);
    }
    rig->room -= taken;
    rig->batches++;
    return taken;
}

static void peer_writable(NetClient *nc)
{
    ((RigPeer *)nc)->rig->writable++;
}

static void peer_caps(NetClient *nc, NetCaps *caps)
{
    *caps = ((RigPeer *)nc)->rig->caps;
}

static gboolean peer_set_hdr(NetClient *nc, unsigned len)
{
    return len <= ((RigPeer *)nc)->rig->longest_hdr;
}

static gboolean peer_set_offloads(NetClient *nc, const NetOffloads *offloads)
{
    ((RigPeer *)nc)->rig->offloads = *offloads;
    return true;
}

static gboolean peer_set_enabled(NetClient *nc, bool enabled, GError **errp)
{
    Rig *rig = ((RigPeer *)nc)->rig;

    if (rig->refuse_attach) {
        return error_set(errp, "told to refuse");
    }
    rig->attached[nc->queue_index] = enabled;
    return true;
}

static const NetClientOps peer_ops = {
    .type = "rig",
    .instance_size = sizeof(RigPeer),
    .receive_batch = peer_receive,
    .peer_writable = peer_writable,
    .get_caps = peer_caps,
    .set_vnet_hdr_len = peer_set_hdr,
    .set_offloads = peer_set_offloads,
    .set_enabled = peer_set_enabled,
};

/* --- bench --- */

void rig_set_memory(Rig *rig, uint8_t *ram)
{
    MemoryRange range = {.addr = 0, .size = RIG_RAM_SIZE, .host = ram, .fd = -1};
    MemoryMap *map = memory_map_new(&range, 1, NULL);

    rig->ram = ram;
    dma_space_set_map(&rig->dma, map);
    memory_map_unref(map);
}

static void register_types(void)
{
    static bool done;

    if (!done) {
        qom_register_core_types();
        qom_register_type(TYPE_DEVICE);
        qom_register_type(TYPE_BUS);
        qom_register_type(TYPE_IOTHREAD);
        qom_register_type(TYPE_VIRTIO_BUS);
        qom_register_type(TYPE_VIRTIO_DEVICE);
        qom_register_type(TYPE_VIRTIO_NET);
        qom_register_type(rig_transport_get_type());
        vm_start();
        done = true;
    }
}

void rig_init(Rig *rig)
{
    rig_init_pairs(rig, 1);
}

void rig_init_pairs(Rig *rig, unsigned pairs)
{
    g_assert_cmpint(pairs, <=, RIG_PAIRS);
    memset(rig, 0, sizeof(*rig));
    register_types();
    dma_space_init(&rig->dma, NULL, NULL);
    rig_set_memory(rig, g_malloc0(RIG_RAM_SIZE));
    rig->room = UINT32_MAX;
    rig->longest_hdr = 12;
    rig->pairs = pairs;
    for (unsigned i = 0; i < pairs; i++) {
        rig->peers[i] = net_client_new(&peer_ops, NULL, "rig", "n0");
        rig->peers[i]->queue_index = i;
        rig->peers[i]->is_netdev = true;
        ((RigPeer *)rig->peers[i])->rig = rig;
        rig->attached[i] = true;
    }
    rig->peer = rig->peers[0];
    rig->transport = DEVICE(object_new(rig_transport_get_type()));
    g_assert_true(device_realize(rig->transport, NULL, NULL));
}

bool rig_realize(Rig *rig, const char *props, GError **errp)
{
    KeyvalOptions options = {.flat = true};
    VirtIODevice *vdev = VIRTIO_DEVICE(object_new(TYPE_VIRTIO_NET));
    BusState *bus = rig->transport->child_buses->len
                        ? rig->transport->child_buses->pdata[0]
                        : bus_new(TYPE_VIRTIO_BUS, rig->transport, "virtio-bus");
    bool ok = true;

    if (props) {
        json_object *values = keyval_parse(props, &options, NULL, errp);

        ok = values && object_set_properties(OBJECT(vdev), values, NULL, errp);
        json_object_put(values);
    }
    object_add_child(OBJECT(rig->transport), "virtio-backend", OBJECT(vdev));
    virtio_attach_transport(vdev, &transport_ops, rig, &rig->dma);
    if (!ok || !device_realize(DEVICE(vdev), bus, errp)) {
        object_unparent(OBJECT(vdev));
        return false;
    }
    rig->vdev = vdev;
    rig->n = VIRTIO_NET(vdev);
    virtio_reset(vdev);
    return true;
}

void rig_drive(Rig *rig, VirtioFeatures features, unsigned num)
{
    VirtIODevice *vdev = rig->vdev;
    bool modern = features & RIG_MODERN;

    vdev->legacy_driver = !modern;
    virtio_set_status(vdev, 3);
    virtio_set_features(vdev, features & virtio_offered_features(vdev, !modern));
    if (modern) {
        virtio_set_status(vdev, 3 | VIRTIO_CONFIG_S_FEATURES_OK);
        g_assert_true(vdev->status & VIRTIO_CONFIG_S_FEATURES_OK);
    }
    for (unsigned i = 0; i < RIG_QUEUES; i++) {
        RigRing *ring = &rig->rings[i];
        VirtioQueue *queue = virtio_queue(vdev, i);

        if (!queue) {
            continue;
        }
        *ring =
            (RigRing){.desc = 0x10000 * (i + 1), .num = (uint16_t)(i == rig_ctrl(rig) ? 64 : num)};
        ring->avail = ring->desc + 0x5000;
        ring->used = ring->desc + 0x8000;
        memset(rig->ram + ring->desc, 0, 0x10000);
        virtio_queue_set_num(vdev, i, ring->num);
        queue->desc = ring->desc;
        queue->avail = ring->avail;
        queue->used = ring->used;
        queue->vector = (uint16_t)i;
        virtio_queue_enable(vdev, i);
    }
    vdev->config_vector = (uint16_t)(rig_ctrl(rig) + 1);
    virtio_set_status(vdev, vdev->status | VIRTIO_CONFIG_S_DRIVER_OK);
    memset(rig->interrupts, 0, sizeof(rig->interrupts));
}

void rig_forget_frames(Rig *rig)
{
    while (rig->count) {
        g_free(rig->frames[--rig->count].bytes);
    }
    rig->batches = 0;
}

void rig_cleanup(Rig *rig)
{
    uint8_t *ram = rig->ram;

    if (rig->vdev) {
        device_unrealize(DEVICE(rig->vdev));
    }
    device_unrealize(rig->transport);
    object_unparent(OBJECT(rig->transport));
    if (rig->peer) {
        net_client_delete(rig->peer);
    }
    rig_forget_frames(rig);
    dma_space_cleanup(&rig->dma);
    g_free(ram);
}

/* --- driver --- */

static void put_desc(Rig *rig, uint64_t at, const RigPart *part, bool more, unsigned next)
{
    struct vring_desc desc = {
        .addr = part->addr,
        .len = part->len,
        .flags = (part->writable ? VRING_DESC_F_WRITE : 0) | (more ? VRING_DESC_F_NEXT : 0),
        .next = (uint16_t)next,
    };

    memcpy(rig->ram + at, &desc, sizeof(desc));
}

static uint16_t *ring_word(Rig *rig, uint64_t at)
{
    return (uint16_t *)(rig->ram + at);
}

unsigned rig_add(Rig *rig, unsigned queue, const RigPart *parts, unsigned n, uint64_t indirect)
{
    RigRing *ring = &rig->rings[queue];
    unsigned head = ring->next_desc;

    if (indirect) {
        struct vring_desc desc = {indirect, n * sizeof(desc), VRING_DESC_F_INDIRECT, 0};

        for (unsigned i = 0; i < n; i++) {
            put_desc(rig, indirect + i * sizeof(desc), &parts[i], i + 1 < n, i + 1);
        }
        memcpy(rig->ram + ring->desc + head * sizeof(desc), &desc, sizeof(desc));
        ring->next_desc = (uint16_t)((head + 1) % ring->num);
    } else {
        for (unsigned i = 0; i < n; i++) {
            unsigned next = (ring->next_desc + 1) % ring->num;

            put_desc(rig, ring->desc + ring->next_desc * sizeof(struct vring_desc), &parts[i],
                     i + 1 < n, next);
            ring->next_desc = (uint16_t)next;
        }
    }
    *ring_word(rig, ring->avail + 4 + 2 * (ring->avail_idx % ring->num)) = (uint16_t)head;
    *ring_word(rig, ring->avail + 2) = ++ring->avail_idx;
    return head;
}

void rig_notify(Rig *rig, unsigned queue)
{
    virtio_queue_notify(rig->vdev, queue);
}

bool rig_used(Rig *rig, unsigned queue, unsigned *head, unsigned *len)
{
    RigRing *ring = &rig->rings[queue];
    struct vring_used_elem *elem;

    if (*ring_word(rig, ring->used + 2) == ring->used_idx) {
        return false;
    }
    elem = (struct vring_used_elem *)(rig->ram + ring->used + 4) + ring->used_idx % ring->num;
    ring->used_idx++;
    *head = elem->id;
    *len = elem->len;
    return true;
}

bool rig_wants_notify(Rig *rig, unsigned queue)
{
    return !(*ring_word(rig, rig->rings[queue].used) & VRING_USED_F_NO_NOTIFY);
}

unsigned rig_ctrl(const Rig *rig)
{
    return 2 * rig->n->present_pairs;
}

uint8_t rig_command_answer(Rig *rig, const void *bytes, uint32_t size, void *answer,
                           uint32_t answer_size, uint32_t *written)
{
    uint64_t at = RIG_RAM_SIZE - 0x20000, reply = at + 0x10000;
    RigPart parts[] = {{at, size, false}, {reply, answer_size, true}};
    unsigned head;

    memcpy(rig->ram + at, bytes, size);
    memset(rig->ram + reply, 0x55, answer_size);
    rig_add(rig, rig_ctrl(rig), parts, 2, 0);
    rig_notify(rig, rig_ctrl(rig));
    g_assert_true(rig_used(rig, rig_ctrl(rig), &head, written));
    memcpy(answer, rig->ram + reply, answer_size);
    return *(uint8_t *)answer;
}

uint8_t rig_command(Rig *rig, const void *bytes, uint32_t size)
{
    uint32_t written;
    uint8_t ack;

    rig_command_answer(rig, bytes, size, &ack, 1, &written);
    g_assert_cmpint(written, ==, 1);
    return ack;
}

bool rig_receive_frame(Rig *rig, unsigned queue, const void *bytes, size_t size)
{
    struct iovec iov = {(void *)bytes, size};
    NetPacket pkt = {&iov, 1, size};

    return net_send_batch(rig->peers[queue], &pkt, 1) == 1;
}

void rig_loop(void)
{
    while (event_loop_run_once(event_loop_main(), false)) {
    }
}

void rig_send(Rig *rig, uint64_t addr, size_t size, uint8_t fill)
{
    unsigned hdr = rig->n->guest_hdr_len;
    RigPart part = {addr, (uint32_t)(hdr + size), false};

    memset(rig->ram + addr, 0, hdr);
    memset(rig->ram + addr + hdr, fill, size);
    rig_add(rig, RIG_TX, &part, 1, 0);
}

unsigned rig_receive(Rig *rig, unsigned n, size_t size)
{
    g_autofree NetPacket *pkts = g_new0(NetPacket, n);
    g_autofree struct iovec *iov = g_new0(struct iovec, n);
    unsigned taken;

    for (unsigned i = 0; i < n; i++) {
        iov[i] = (struct iovec){g_malloc(size), size};
        memset(iov[i].iov_base, (int)i, size);
        pkts[i] = (NetPacket){&iov[i], 1, size};
    }
    taken = net_send_batch(rig->peer, pkts, n);
    for (unsigned i = 0; i < n; i++) {
        g_free(iov[i].iov_base);
    }
    return taken;
}

void rig_start(Rig *rig, const char *props, VirtioFeatures features, unsigned num)
{
    GError *err = NULL;

    if (!rig_realize(rig, props ? props : "netdev=n0", &err)) {
        g_error("realize: %s", err->message);
    }
    rig_drive(rig, features, num);
}

void rig_start_pairs(Rig *rig, unsigned pairs, const char *props, VirtioFeatures features)
{
    rig_init_pairs(rig, pairs);
    rig_start(rig, props, features, 256);
}

void rig_send_from(Rig *rig, unsigned pair, uint8_t fill)
{
    RigPart part = {RIG_DATA + 0x200000 + pair * 0x1000, rig->n->guest_hdr_len + 60, false};

    memset(rig->ram + part.addr, 0, rig->n->guest_hdr_len);
    memset(rig->ram + part.addr + rig->n->guest_hdr_len, fill, 60);
    rig_add(rig, 2 * pair + 1, &part, 1, 0);
    rig_notify(rig, 2 * pair + 1);
    rig_loop();
}

unsigned rig_count_used(Rig *rig, unsigned queue)
{
    unsigned n = 0, head, len;

    while (rig_used(rig, queue, &head, &len)) {
        n++;
    }
    return n;
}

unsigned rig_drain_used(Rig *rig, unsigned queue, unsigned len)
{
    unsigned n = 0, head, got;

    while (rig_used(rig, queue, &head, &got)) {
        g_assert_cmpint(got, ==, len);
        n++;
    }
    return n;
}

void rig_assert_filled(const uint8_t *bytes, size_t size, uint8_t fill)
{
    for (size_t i = 0; i < size; i++) {
        g_assert_cmpint(bytes[i], ==, fill);
    }
}

void rig_post_to(Rig *rig, unsigned queue, unsigned n, uint32_t size)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned slot = rig->rings[queue].avail_idx % rig->rings[queue].num;
        RigPart part = {RIG_DATA + (queue / 2 * 256 + slot) * 0x1000, size, true};

        rig_add(rig, queue, &part, 1, 0);
    }
}

void rig_post(Rig *rig, unsigned n, uint32_t size)
{
    rig_post_to(rig, RIG_RX, n, size);
}
