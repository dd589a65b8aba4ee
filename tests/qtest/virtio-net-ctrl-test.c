/*
 * The control queue end to end: what commands answer, what they do to received frames, and what
 * QMP tells of it.
 */
#include <string.h>

#include "tests/lib/rig.h"

#define BUF_SIZE 1600

static const uint8_t nic_mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
static const uint8_t other_mac[6] = {0x52, 0x54, 0x00, 0x99, 0x99, 0x99};
static const uint8_t multi_mac[6] = {0x01, 0x00, 0x5e, 0x00, 0x00, 0x01};
static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

#define CTRL_FEATURES                                                                              \
    (RIG_FEATURE(VIRTIO_NET_F_CTRL_VQ) | RIG_FEATURE(VIRTIO_NET_F_CTRL_RX) |                       \
     RIG_FEATURE(VIRTIO_NET_F_CTRL_RX_EXTRA) | RIG_FEATURE(VIRTIO_NET_F_CTRL_VLAN) |               \
     RIG_FEATURE(VIRTIO_NET_F_CTRL_MAC_ADDR) | RIG_FEATURE(VIRTIO_NET_F_GUEST_ANNOUNCE) |          \
     RIG_FEATURE(VIRTIO_NET_F_CTRL_GUEST_OFFLOADS))

static Rig *open_ctrl(uint64_t features)
{
    Rig *rig = rig_new(&(RigConfig){.features = features});

    g_assert_nonnull(rig->queues[RIG_CTRL]);
    return rig;
}

/* One command of @size bytes in pieces of @piece; its answer. */
static uint8_t run_pieces(Rig *rig, const void *bytes, uint32_t size, uint32_t piece)
{
    DriverQueue *queue = rig->queues[RIG_CTRL];
    uint64_t addr = rig_alloc(rig, size + 1);
    uint8_t *ack = rig_at(rig, addr + size, 1);
    RingPart parts[40];
    unsigned n = 0;

    memcpy(rig_at(rig, addr, size + 1), bytes, size);
    *ack = 0x55;
    for (uint32_t at = 0; at < size; at += piece) {
        parts[n++] = (RingPart){.addr = addr + at, .len = MIN(piece, size - at)};
    }
    parts[n++] = (RingPart){.addr = addr + size, .len = 1, .flags = VRING_DESC_F_WRITE};
    ring_chain(queue, 0, parts, n);
    ring_send(rig, queue, 0);
    g_assert_cmpuint(ring_take(rig, queue).len, ==, 1);
    return *ack;
}

#define RUN(rig, ...)                                                                              \
    ({                                                                                             \
        const uint8_t bytes_[] = {__VA_ARGS__};                                                    \
        run_pieces(rig, bytes_, sizeof(bytes_), sizeof(bytes_));                                   \
    })

static uint8_t mac_table(Rig *rig, unsigned uni, unsigned multi)
{
    uint32_t size = 2 + 4 + 6 * uni + 4 + 6 * multi;
    g_autofree uint8_t *bytes = g_malloc0(size);
    uint8_t *p = bytes;

    *p++ = VIRTIO_NET_CTRL_MAC;
    *p++ = VIRTIO_NET_CTRL_MAC_TABLE_SET;
    for (unsigned list = 0; list < 2; list++) {
        uint32_t entries = list ? multi : uni;

        memcpy(p, &entries, 4);
        p += 4;
        for (uint32_t i = 0; i < entries; i++, p += 6) {
            memcpy(p, list ? multi_mac : other_mac, 6);
            p[5] = (uint8_t)(p[5] + i);
        }
    }
    return run_pieces(rig, bytes, size, 100);
}

/* Does a frame to @mac, with VLAN tag @vid (-1: none), reach the driver?  A broadcast behind it,
 * which does whatever else is set, shows that it had its chance. */
static bool passes(Rig *rig, const uint8_t *mac, int vid)
{
    static uint32_t seed;
    uint8_t frame[80], marker[60];
    uint64_t addr[2];
    struct vring_used_elem used;
    bool passed;

    frame_fill(frame, sizeof(frame), ++seed);
    memcpy(frame, mac, 6);
    if (vid >= 0) {
        memcpy(frame + 12, ((uint8_t[]){0x81, 0, (uint8_t)(vid >> 8), (uint8_t)vid}), 4);
    }
    frame_fill(marker, sizeof(marker), seed);
    memcpy(marker, broadcast, 6);
    for (uint16_t i = 0; i < 2; i++) {
        addr[i] = rig_post_buffer(rig, i, BUF_SIZE);
    }
    rig_peer_send(rig, frame, sizeof(frame));
    rig_peer_send(rig, marker, sizeof(marker));
    used = ring_take(rig, rig->rx);
    passed = used.len == RIG_HDR + sizeof(frame);
    if (passed) {
        g_assert_cmpmem(rig_at(rig, addr[0] + RIG_HDR, sizeof(frame)), sizeof(frame), frame,
                        sizeof(frame));
        used = ring_take(rig, rig->rx);
    } else {
        rig_peer_send(rig, marker, sizeof(marker)); /* uses the second buffer up */
        ring_take(rig, rig->rx);
    }
    g_assert_cmpuint(used.len, ==, RIG_HDR + sizeof(marker));
    return passed;
}

static json_object *rx_filter(Rig *rig)
{
    GError *err = NULL;
    json_object *list =
        qmp_client_executef(rig->qmp, "query-rx-filter", &err, "{\"name\": \"nic0\"}");
    json_object *info;

    g_assert_no_error(err);
    g_assert_cmpuint(json_object_array_length(list), ==, 1);
    info = json_object_get(json_object_array_get_idx(list, 0));
    json_object_put(list);
    return info;
}

static void expect_member(json_object *info, const char *key, const char *json)
{
    g_assert_cmpstr(json_object_to_json_string_ext(json_object_object_get(info, key),
                                                   JSON_C_TO_STRING_NOSLASHESCAPE),
                    ==, json);
}

static void test_rx_modes(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);

    g_assert_true(passes(rig, other_mac, -1)); /* promiscuous at reset */
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 0), ==, 0);
    g_assert_false(passes(rig, other_mac, -1));
    g_assert_false(passes(rig, multi_mac, -1));
    g_assert_true(passes(rig, nic_mac, -1));
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI, 1), ==, 0);
    g_assert_true(passes(rig, multi_mac, -1));
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOMULTI, 1), ==, 0);
    g_assert_false(passes(rig, multi_mac, -1));
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLUNI, 1), ==, 0);
    g_assert_true(passes(rig, other_mac, -1));
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_NOUNI, 1), ==, 0);
    g_assert_false(passes(rig, nic_mac, -1));

    json_object *info = rx_filter(rig);
    expect_member(info, "promiscuous", "false");
    expect_member(info, "unicast", "\"none\"");
    expect_member(info, "multicast", "\"none\"");
    expect_member(info, "broadcast-allowed", "true");
    expect_member(info, "vlan", "\"none\"");
    json_object_put(info);
    rig_free(rig);
}

static void test_mac_table(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);
    uint8_t second[6];

    memcpy(second, other_mac, 6);
    second[5]++;
    RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 0);
    g_assert_cmpuint(mac_table(rig, 2, 1), ==, 0);
    g_assert_true(passes(rig, other_mac, -1));
    g_assert_true(passes(rig, second, -1));
    g_assert_true(passes(rig, multi_mac, -1));
    json_object *info = rx_filter(rig);
    expect_member(info, "unicast-table", "[\"52:54:00:99:99:99\",\"52:54:00:99:99:9a\"]");
    expect_member(info, "multicast-table", "[\"01:00:5e:00:00:01\"]");
    json_object_put(info);

    g_assert_cmpuint(mac_table(rig, 1, 0), ==, 0); /* replaces, does not add */
    g_assert_true(passes(rig, other_mac, -1));
    g_assert_false(passes(rig, second, -1));
    g_assert_false(passes(rig, multi_mac, -1));

    g_assert_cmpuint(mac_table(rig, 65, 64), ==, 0); /* too many: all unicast */
    second[5] = 0;
    g_assert_true(passes(rig, second, -1));
    g_assert_true(passes(rig, multi_mac, -1));
    info = rx_filter(rig);
    expect_member(info, "unicast-overflow", "true");
    expect_member(info, "multicast-overflow", "false");
    json_object_put(info);
    g_assert_cmpuint(mac_table(rig, 0, 0), ==, 0);
    g_assert_false(passes(rig, second, -1));
    rig_free(rig);
}

static void test_vlan(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);

    RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 0);
    g_assert_false(passes(rig, nic_mac, 7));
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, 7, 0), ==, 0);
    g_assert_true(passes(rig, nic_mac, 7));
    g_assert_false(passes(rig, nic_mac, 8));
    g_assert_true(passes(rig, nic_mac, -1));
    json_object *info = rx_filter(rig);
    expect_member(info, "vlan", "\"normal\"");
    expect_member(info, "vlan-table", "[7]");
    json_object_put(info);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_DEL, 7, 0), ==, 0);
    g_assert_false(passes(rig, nic_mac, 7));
    rig_free(rig);

    rig = open_ctrl(CTRL_FEATURES & ~RIG_FEATURE(VIRTIO_NET_F_CTRL_VLAN));
    RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 0);
    g_assert_true(passes(rig, nic_mac, 7)); /* a driver that does not filter gets all */
    info = rx_filter(rig);
    expect_member(info, "vlan", "\"all\"");
    json_object_put(info);
    rig_free(rig);
}

static void test_mac_address(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);
    GError *err = NULL;

    RUN(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 0);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, 0x52, 0x54, 0,
                         0x99, 0x99, 0x99),
                     ==, 0);
    g_assert_true(passes(rig, other_mac, -1));
    g_assert_false(passes(rig, nic_mac, -1));
    g_assert_cmphex(virtio_driver_config_read(rig->virtio, 1, 5), ==, 0x99);
    g_autofree char *text = qmp_client_hmp(rig->qmp, "info network", &err);
    g_assert_no_error(err);
    g_assert_nonnull(strstr(text, "macaddr=52:54:00:99:99:99"));
    rig_restart(rig);
    g_assert_cmphex(virtio_driver_config_read(rig->virtio, 1, 5), ==, 0x56);
    rig_free(rig);
}

/* Everything that is no command is VIRTIO_NET_ERR and changes nothing. */
static void test_bad_commands(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);
    json_object *before, *after;

    g_assert_cmpuint(mac_table(rig, 2, 2), ==, 0);
    RUN(rig, VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, 7, 0);
    before = rx_filter(rig);
    g_assert_cmpuint(RUN(rig, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, 99, 0, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, 6, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, 0, 0, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, 0, 2), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_MAC, 0, 0, 0, 0, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_MAC, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6), ==,
                     VIRTIO_NET_ERR);
    g_assert_cmpuint(
        RUN(rig, VIRTIO_NET_CTRL_MAC, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0), ==,
        VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_MAC, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), ==,
                     VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_MAC, 1, 2, 3, 4), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_MAC, 2, 2, 3, 4, 5, 6, 7), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_VLAN, 0, 0, 0x10), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_VLAN, 1, 7), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_VLAN, 2, 7, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_ANNOUNCE, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_MQ, 0, 2, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 2, 0, 0, 0, 0, 0, 0, 0), ==,
                     VIRTIO_NET_ERR); /* nothing negotiated */
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 0, 0, 0, 0, 0, 0, 0), ==,
                     VIRTIO_NET_ERR);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 0, 0, 0, 0, 0, 0, 0, 0), ==,
                     VIRTIO_NET_OK);
    after = rx_filter(rig);
    g_assert_true(json_object_equal(before, after));
    json_object_put(before);
    json_object_put(after);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_pieces(void)
{
    static const uint8_t set[] = {
        VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, 2, 0, 0, 0, 0, 1};
    Rig *rig = open_ctrl(CTRL_FEATURES);

    for (uint32_t piece = 1; piece <= sizeof(set); piece++) {
        g_assert_cmpuint(run_pieces(rig, set, sizeof(set), piece), ==, VIRTIO_NET_OK);
    }
    rig_free(rig);
}

/* No byte for the answer: a bad chain; the queue goes on. */
static void test_no_room_for_answer(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);
    DriverQueue *queue = rig->queues[RIG_CTRL];
    uint64_t addr = rig_alloc(rig, 3);
    struct vring_used_elem used;

    ring_set(queue, 5, addr, 3, 0, 0);
    ring_send(rig, queue, 5);
    used = ring_take(rig, queue);
    g_assert_cmpuint(used.id, ==, 5);
    g_assert_cmpuint(used.len, ==, 0);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_RX, 0, 1), ==, VIRTIO_NET_OK);
    g_assert_cmphex(virtio_driver_status(rig->virtio), ==, 0xf);
    rig_free(rig);
}

static void test_event(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);
    GError *err = NULL;
    json_object *event;

    RUN(rig, VIRTIO_NET_CTRL_RX, 1, 1);
    g_assert_null(qmp_client_wait_event(rig->qmp, "NIC_RX_FILTER_CHANGED", RIG_QUIET_MS, &err));
    g_clear_error(&err);
    json_object_put(rx_filter(rig));
    RUN(rig, VIRTIO_NET_CTRL_RX, 1, 0);
    event = qmp_client_wait_event(rig->qmp, "NIC_RX_FILTER_CHANGED", RIG_TIMEOUT_MS, &err);
    g_assert_no_error(err);
    expect_member(json_object_object_get(event, "data"), "name", "\"nic0\"");
    expect_member(json_object_object_get(event, "data"), "path",
                  "\"/machine/peripheral/nic0/virtio-backend\"");
    json_object_put(event);
    RUN(rig, VIRTIO_NET_CTRL_RX, 1, 1); /* not told again before it is read */
    g_assert_null(qmp_client_wait_event(rig->qmp, "NIC_RX_FILTER_CHANGED", RIG_QUIET_MS, &err));
    g_clear_error(&err);
    rig_free(rig);
}

/* --- announcing --- */

static void announce_self(Rig *rig)
{
    GError *err = NULL;
    json_object *parameters =
        json_tokener_parse("{\"initial\": 50, \"max\": 50, \"rounds\": 1, \"step\": 0}");
    json_object *result = qmp_client_execute(rig->qmp, "announce-self", parameters, &err);

    g_assert_no_error(err);
    json_object_put(result);
}

static unsigned net_status(Rig *rig)
{
    return (unsigned)virtio_driver_config_read(rig->virtio, 2,
                                               offsetof(struct virtio_net_config, status));
}

static bool config_changed(Rig *rig)
{
    rig_settle(rig);
    return virtio_driver_take_interrupt(rig->virtio, 0);
}

static void test_announce(void)
{
    Rig *rig = open_ctrl(CTRL_FEATURES);

    g_assert_cmpuint(net_status(rig), ==, VIRTIO_NET_S_LINK_UP);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK), ==,
                     VIRTIO_NET_ERR); /* nobody asked for it */
    g_assert_false(config_changed(rig));

    for (unsigned times = 1; times <= 2; times++) { /* asked twice is answered once */
        for (unsigned i = 0; i < times; i++) {
            announce_self(rig);
            g_assert_true(config_changed(rig));
            g_assert_cmpuint(net_status(rig), ==, VIRTIO_NET_S_LINK_UP | VIRTIO_NET_S_ANNOUNCE);
        }
        g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_ANNOUNCE, 1), ==, VIRTIO_NET_ERR);
        g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK, 0), ==,
                         VIRTIO_NET_ERR);
        g_assert_cmpuint(net_status(rig), ==, VIRTIO_NET_S_LINK_UP | VIRTIO_NET_S_ANNOUNCE);
        g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK), ==,
                         VIRTIO_NET_OK);
        g_assert_cmpuint(net_status(rig), ==, VIRTIO_NET_S_LINK_UP);
        g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK), ==,
                         VIRTIO_NET_ERR);
    }
    announce_self(rig);
    rig_restart(rig); /* the request was for the driver before */
    g_assert_cmpuint(net_status(rig), ==, VIRTIO_NET_S_LINK_UP);
    g_assert_cmpuint(RUN(rig, VIRTIO_NET_CTRL_ANNOUNCE, VIRTIO_NET_CTRL_ANNOUNCE_ACK), ==,
                     VIRTIO_NET_ERR);
    rig_free(rig);
}

/* A driver that cannot announce is not asked; the RARP frame goes out all the same. */
static void test_announce_not_negotiated(void)
{
    static const uint64_t without[] = {
        CTRL_FEATURES & ~RIG_FEATURE(VIRTIO_NET_F_GUEST_ANNOUNCE),
        CTRL_FEATURES & ~RIG_FEATURE(VIRTIO_NET_F_CTRL_VQ),
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(without); i++) {
        Rig *rig = open_ctrl(without[i]);
        uint8_t frame[64];

        announce_self(rig);
        g_assert_cmpuint(rig_peer_recv(rig, frame, sizeof(frame), RIG_TIMEOUT_MS), ==, 60);
        g_assert_cmpuint(frame[12] << 8 | frame[13], ==, 0x8035);
        g_assert_cmpmem(frame + 6, 6, nic_mac, 6);
        g_assert_false(config_changed(rig));
        g_assert_cmpuint(net_status(rig), ==, VIRTIO_NET_S_LINK_UP);
        rig_free(rig);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/virtio-net-ctrl/rx-modes", test_rx_modes);
    g_test_add_func("/virtio-net-ctrl/mac-table-and-overflow", test_mac_table);
    g_test_add_func("/virtio-net-ctrl/vlan", test_vlan);
    g_test_add_func("/virtio-net-ctrl/mac-address", test_mac_address);
    g_test_add_func("/virtio-net-ctrl/bad-commands-change-nothing", test_bad_commands);
    g_test_add_func("/virtio-net-ctrl/command-in-pieces", test_pieces);
    g_test_add_func("/virtio-net-ctrl/no-room-for-the-answer", test_no_room_for_answer);
    g_test_add_func("/virtio-net-ctrl/filter-changed-event", test_event);
    g_test_add_func("/virtio-net-ctrl/announce/asked-and-acknowledged", test_announce);
    g_test_add_func("/virtio-net-ctrl/announce/not-negotiated", test_announce_not_negotiated);
    return g_test_run();
}
