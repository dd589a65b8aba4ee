/*
 * A Rig over a tap: see tap-rig.h.
 */
#include "tests/lib/tap-rig.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define RX_BUFFER  69632u
#define WAIT_MS    2000
#define TUNNEL_HDR 24 /* the longest header: without room for it no tap takes tunnel offloads */

Rig *tap_rig_open(Wire *wire, const char *netdev, const char *device, VirtioDriverFeatures features)
{
    Rig *rig = rig_open(&(RigConfig){.netdev = netdev, .device = device, .features = features});

    wire_open(wire, TAP_RIG_IFNAME);
    rig_start(rig);
    return rig;
}

void tap_rig_close(Rig *rig, Wire *wire)
{
    wire_close(wire);
    rig_free(rig);
}

void tap_rig_send_raw(Rig *rig, const void *header, size_t header_size, const void *frame,
                      size_t size)
{
    uint64_t addr = rig_alloc(rig, header_size + size);
    struct vring_used_elem used;

    memcpy(rig_at(rig, addr, header_size), header, header_size);
    memcpy(rig_at(rig, addr + header_size, size), frame, size);
    ring_set(rig->tx, 0, addr, (uint32_t)(header_size + size), 0, 0);
    ring_send(rig, rig->tx, 0);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, 0);
}

void tap_rig_send(Rig *rig, const BuiltFrame *built)
{
    tap_rig_send_raw(rig, &built->header, RIG_HDR, built->bytes, built->size);
}

void tap_rig_post(Rig *rig, unsigned count)
{
    DriverQueue *rx = rig->rx;

    /* Each descriptor keeps its buffer. */
    while ((uint16_t)(rx->avail_next - rx->used_next) < count) {
        uint16_t at = rx->avail_next % rx->size;
        uint64_t addr = rx->desc[at].addr ? rx->desc[at].addr : rig_alloc(rig, RX_BUFFER);

        ring_set(rx, at, addr, RX_BUFFER, VRING_DESC_F_WRITE, 0);
        ring_send(rig, rx, at);
    }
}

uint8_t *tap_rig_recv(Rig *rig, void *header, size_t header_size, size_t *size, unsigned ms)
{
    struct vring_used_elem used;
    uint8_t *at;

    if (!ring_wait_used(rig, rig->rx, 1, ms)) {
        return NULL;
    }
    used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.len, >=, header_size);
    at = rig_at(rig, rig->rx->desc[used.id].addr, used.len);
    memcpy(header, at, header_size);
    *size = used.len - header_size;
    return at + header_size;
}

uint8_t tap_rig_set_offloads(Rig *rig, uint64_t offloads)
{
    uint64_t addr = rig_alloc(rig, 64);
    uint8_t *at = rig_at(rig, addr, 64);
    const RingPart parts[] = {{addr, 2, 0}, {addr + 2, 8, 0}, {addr + 16, 1, VRING_DESC_F_WRITE}};
    DriverQueue *ctrl = rig->queues[RIG_CTRL];

    at[0] = VIRTIO_NET_CTRL_GUEST_OFFLOADS;
    at[1] = VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET;
    memcpy(at + 2, &offloads, 8);
    at[16] = 0xFF;
    ring_chain(ctrl, 0, parts, 3);
    ring_send(rig, ctrl, 0);
    ring_take(rig, ctrl);
    return at[16];
}

bool tap_rig_kernel_takes(unsigned flags)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = "probe%d"};
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    int size = TUNNEL_HDR;
    bool takes;

    g_assert_cmpint(ioctl(fd, TUNSETIFF, &ifr), ==, 0);
    g_assert_cmpint(ioctl(fd, TUNSETVNETHDRSZ, &size), ==, 0);
    takes = ioctl(fd, TUNSETOFFLOAD, (unsigned long)flags) == 0;
    close(fd);
    return takes;
}

/* --- lists of frames --- */

static void free_bytes(gpointer bytes)
{
    g_byte_array_unref(bytes);
}

GPtrArray *frame_list_new(void)
{
    return g_ptr_array_new_with_free_func(free_bytes);
}

void frame_list_add(GPtrArray *list, const void *frame, size_t size)
{
    g_ptr_array_add(list, g_byte_array_append(g_byte_array_new(), frame, (guint)size));
}

GPtrArray *frame_list_finish(const struct virtio_net_hdr_v1 *header, const uint8_t *frame,
                             size_t size)
{
    g_autofree char *problem = NULL;
    GPtrArray *frames = frame_finish(header, frame, size, &problem);

    if (!frames) {
        g_error("frame of %zu bytes: %s", size, problem);
    }
    return frames;
}

void frame_list_expect_same(GPtrArray *got, GPtrArray *wanted)
{
    g_assert_cmpuint(got->len, ==, wanted->len);
    for (unsigned i = 0; i < got->len; i++) {
        GByteArray *a = got->pdata[i], *b = wanted->pdata[i];

        g_assert_cmpmem(a->data, a->len, b->data, b->len);
    }
}

void frame_list_add_far(GPtrArray *list, Wire *wire, unsigned count)
{
    g_autofree uint8_t *got = g_malloc(WIRE_MAX);

    while (list->len < count) {
        size_t size = wire_far_recv(wire, got, WAIT_MS);

        if (!size) {
            g_error("%u of %u frames came out of the far tap", list->len, count);
        }
        frame_list_add(list, got, size);
    }
}
