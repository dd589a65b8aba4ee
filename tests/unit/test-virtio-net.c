/*
 * virtio-net as a device: the control queue, configuration space, and what realize refuses.
 */
#include <string.h>

#include "tests/unit/virtio-net-rig.h"
#include "qapi/qapi-types.h"
#include "util/clock.h"
#include "util/json.h"

#define CTRL                                                                                       \
    (VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_VQ) | VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_RX) |                 \
     VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_VLAN) | VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_MAC_ADDR))

static unsigned changes_told;
static char *changes_name;

static void rx_filter_changed(const char *name, const char *path)
{
    changes_told++;
    g_free(changes_name);
    changes_name = g_strdup(name);
    g_assert_nonnull(strstr(path, "virtio-backend"));
}

static uint8_t command(Rig *rig, const void *bytes, uint32_t size)
{
    RigPart parts[] = {{RIG_DATA, size, false}, {RIG_DATA + 0x1000, 1, true}};
    unsigned head, len;

    memcpy(rig->ram + RIG_DATA, bytes, size);
    rig->ram[RIG_DATA + 0x1000] = 0x55;
    rig_add(rig, RIG_CTRL, parts, 2, 0);
    rig_notify(rig, RIG_CTRL);
    g_assert_true(rig_used(rig, RIG_CTRL, &head, &len));
    g_assert_cmpint(len, ==, 1);
    return rig->ram[RIG_DATA + 0x1000];
}

static void test_ctrl_queue(void)
{
    Rig rig;

    rig_init(&rig);
    virtio_net_rx_filter_changed_hook = rx_filter_changed;
    rig_start(&rig, NULL, RIG_MODERN | CTRL, 256);
    rig_post(&rig, 8, 1500);
    g_assert_cmpint(rig_receive(&rig, 1, 60), ==, 1); /* promiscuous */
    g_assert_cmpint(command(&rig, "\0\0\0", 3), ==, VIRTIO_NET_OK);
    g_assert_cmpint(changes_told, ==, 0); /* nobody has looked yet */
    g_assert_cmpint(rig_receive(&rig, 1, 60), ==, 1);
    g_assert_cmpint(rig.n->queues[0].rx_stats.drops[NET_DROP_FILTERED], ==, 1);
    g_assert_cmpint(rig.interrupts[RIG_CTRL], ==, 1);

    json_object *info = rig.n->nc->ops->query_rx_filter(rig.n->nc);
    g_assert_false(json_object_get_boolean(json_object_object_get(info, "promiscuous")));
    json_object_put(info);
    g_assert_cmpint(command(&rig, "\1\1\2\3\4\5\6\7", 8), ==, VIRTIO_NET_OK);
    g_assert_cmpint(command(&rig, "\2\0\7\0", 4), ==, VIRTIO_NET_OK);
    g_assert_cmpint(changes_told, ==, 1); /* once until it is read again */
    g_assert_null(changes_name);
    g_assert_cmphex(virtio_config_read(rig.vdev, 0, 4), ==, 0x05040302);
    g_assert_nonnull(strstr(rig.n->nc->info->str, "macaddr=02:03:04:05:06:07"));
    g_assert_cmpint(command(&rig, "\x63\0", 2), ==, VIRTIO_NET_ERR);

    /* No room for the answer: a bad chain, and the queue goes on. */
    RigPart part = {RIG_DATA, 3, false};
    rig_add(&rig, RIG_CTRL, &part, 1, 0);
    rig_notify(&rig, RIG_CTRL);
    g_assert_cmpint(rig_drain_used(&rig, RIG_CTRL, 0), ==, 1);
    g_assert_cmpint(command(&rig, "\0\0\1", 3), ==, VIRTIO_NET_OK);

    /* Reset brings everything back. */
    virtio_set_status(rig.vdev, 0);
    g_assert_true(rig.n->rx_filter.promisc);
    g_assert_cmphex(virtio_config_read(rig.vdev, 0, 2), ==, 0x5452);
    virtio_net_rx_filter_changed_hook = NULL;
    g_clear_pointer(&changes_name, g_free);
    rig_cleanup(&rig);
}

static void test_ctrl_offloads_reach_peer(void)
{
    Rig rig;

    rig_init(&rig);
    rig.caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true}};
    rig_start(&rig, NULL, ~(VirtioFeatures)0, 256);
    g_assert_true(rig.offloads.csum && rig.offloads.tso4);
    g_assert_cmpint(command(&rig, "\5\0\2\0\0\0\0\0\0\0", 10), ==, VIRTIO_NET_OK);
    g_assert_true(rig.offloads.csum && !rig.offloads.tso4);
    g_assert_cmpint(command(&rig, "\5\0\2\1\0\0\0\0\0\0", 10), ==, VIRTIO_NET_ERR);
    g_assert_true(rig.offloads.csum);
    virtio_set_status(rig.vdev, 0);
    g_assert_false(rig.offloads.csum);
    rig_cleanup(&rig);
}

static void test_announce(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN | CTRL, 256);
    rig.n->nc->ops->announce(rig.n->nc); /* the driver cannot: nothing is asked of it */
    g_assert_cmpint(virtio_config_read(rig.vdev, 6, 2), ==, VIRTIO_NET_S_LINK_UP);
    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, RIG_MODERN | CTRL | VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_ANNOUNCE), 256);
    rig.n->nc->ops->announce(rig.n->nc);
    g_assert_cmpint(virtio_config_read(rig.vdev, 6, 2), ==,
                    VIRTIO_NET_S_LINK_UP | VIRTIO_NET_S_ANNOUNCE);
    g_assert_cmpint(rig.interrupts[3], ==, 1);
    g_assert_cmpint(command(&rig, "\3\0", 2), ==, VIRTIO_NET_OK);
    g_assert_cmpint(virtio_config_read(rig.vdev, 6, 2), ==, VIRTIO_NET_S_LINK_UP);
    g_assert_cmpint(command(&rig, "\3\0", 2), ==, VIRTIO_NET_ERR);
    rig_cleanup(&rig);
}

static void test_config_and_link(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, "netdev=n0,mac=52:54:00:aa:bb:cc,host_mtu=1400,speed=10000,duplex=full",
              RIG_MODERN, 256);
    g_assert_cmpint(rig.vdev->config_len, ==, 17);
    g_assert_cmphex(virtio_config_read(rig.vdev, 2, 4), ==, 0xccbbaa00);
    g_assert_cmpint(virtio_config_read(rig.vdev, 6, 2), ==, VIRTIO_NET_S_LINK_UP);
    g_assert_cmpint(virtio_config_read(rig.vdev, 10, 2), ==, 1400);
    g_assert_cmpint(virtio_config_read(rig.vdev, 12, 4), ==, 10000);
    g_assert_cmpint(virtio_config_read(rig.vdev, 16, 1), ==, 1);
    g_assert_true(virtio_host_has_feature(rig.vdev, VIRTIO_NET_F_MTU));

    g_assert_true(net_set_link("n0", false, NULL));
    g_assert_cmpint(virtio_config_read(rig.vdev, 6, 2), ==, 0);
    g_assert_cmpint(rig.interrupts[3], ==, 1);
    rig_send(&rig, RIG_DATA, 60, 0);
    rig_notify(&rig, RIG_TX);
    rig_loop();
    g_assert_cmpint(rig.count, ==, 0);
    g_assert_cmpint(rig_drain_used(&rig, RIG_TX, 0), ==, 1);
    g_assert_true(net_set_link("rig-nic.0", true, NULL));
    g_assert_cmpint(rig.interrupts[3], ==, 2);
    rig_cleanup(&rig);
}

static void test_legacy_mac_write(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, 0, 256);
    virtio_config_write(rig.vdev, 5, 0x99, 1);
    g_assert_cmphex(virtio_config_read(rig.vdev, 5, 1), ==, 0x99);
    g_assert_cmpint(rig.n->rx_filter.mac[5], ==, 0x99);
    virtio_set_status(rig.vdev, 0);
    rig_drive(&rig, RIG_MODERN, 256);
    virtio_config_write(rig.vdev, 5, 0x99, 1);
    g_assert_cmphex(virtio_config_read(rig.vdev, 5, 1), !=, 0x99);
    rig_cleanup(&rig);
}

static void test_stats_readable(void)
{
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    VirtIONetQueue *q = &rig.n->queues[0];
    q->tx_stats.stalls = 11;
    q->tx_stats.wait_ns = 12;
    q->tx_stats.wait_max_ns = 13;
    q->rx_stats.bad_buffers = 14;
    json_object *stats = object_get_property(OBJECT(rig.n), "x-queue-stats", NULL);
    g_assert_cmpint(json_object_array_length(stats), ==, 1);
    json_object *pair = json_object_array_get_idx(stats, 0);
    json_object *tx = json_member(pair, "tx"), *rx = json_member(pair, "rx");
    g_assert_cmpint(json_object_get_int64(json_member(tx, "stalls")), ==, 11);
    g_assert_cmpint(json_object_get_int64(json_member(tx, "wait-ns")), ==, 12);
    g_assert_null(json_member(tx, "wait-max-ns"));
    g_assert_cmpint(json_object_get_int64(json_member(rx, "bad-buffers")), ==, 14);
    g_assert_cmpint(json_object_object_length(tx), ==, 18);
    g_assert_cmpint(json_object_object_length(rx), ==, 12);
    json_object_put(stats);
    rig_cleanup(&rig);
}

/* Each counter is another number, so that one in another's place shows. */
static void test_stats_in_qmp(void)
{
    VirtIONetQueueStats stats = {
        .tx = {.notifications = 1,
               .suppressed = 2,
               .spurious = 3,
               .empty = 4,
               .interrupts = 5,
               .interrupts_coalesced = 6,
               .packets = 7,
               .bytes = 8,
               .batches = 9,
               .bursts = 10,
               .stalls = 11,
               .stall_ns = 12,
               .stall_max_ns = 13,
               .linearised = 14,
               .wait_ns = 15,
               .wait_max_ns = 16},
        .tx_ring = {.interrupts_suppressed = 17, .bad_chains = 18},
        .rx = {.notifications = 21,
               .interrupts = 22,
               .interrupts_coalesced = 23,
               .packets = 24,
               .bytes = 25,
               .batches = 26,
               .buffers = 27,
               .stalls = 28,
               .bad_buffers = 29},
        .rx_ring = {.interrupts_suppressed = 30, .bad_chains = 31},
    };
    VirtioNetTxStats tx = {0}, expected_tx = {.notifications = 1,
                                              .notifications_suppressed = 2,
                                              .notifications_spurious = 3,
                                              .notifications_empty = 4,
                                              .interrupts = 5,
                                              .interrupts_coalesced = 6,
                                              .packets = 7,
                                              .bytes = 8,
                                              .batches = 9,
                                              .bursts = 10,
                                              .stalls = 11,
                                              .stall_ns = 12,
                                              .stall_max_ns = 13,
                                              .linearised = 14,
                                              .wait_ns = 15,
                                              .wait_max_ns = 16,
                                              .interrupts_suppressed = 17,
                                              .bad_chains = 18};
    VirtioNetRxStats rx = {0}, expected_rx = {.notifications = 21,
                                              .interrupts = 22,
                                              .interrupts_coalesced = 23,
                                              .packets = 24,
                                              .bytes = 25,
                                              .batches = 26,
                                              .buffers = 27,
                                              .stalls = 28,
                                              .bad_buffers = 29,
                                              .interrupts_suppressed = 30,
                                              .bad_chains = 31};

    virtio_net_fill_tx_counters(&stats, &tx);
    virtio_net_fill_rx_counters(&stats, &rx);
    g_assert_cmpmem(&tx, sizeof(tx), &expected_tx, sizeof(expected_tx));
    g_assert_cmpmem(&rx, sizeof(rx), &expected_rx, sizeof(expected_rx));
}

/* --- what is refused --- */

typedef struct Refusal {
    const char *props, *text;
} Refusal;

static void test_refused(void)
{
    static const Refusal all[] = {
        {"netdev=n9", "Property 'virtio-net-device.netdev' can't find value 'n9'"},
        {"tx=foo", "(allowed: bh, timer, flush-first, adaptive)"},
        {"rx_queue_size=32", "a power of two from 64 to 1024"},
        {"rx_queue_size=100", "a power of two from 64 to 1024"},
        {"tx_queue_size=2048", "a power of two from 64 to 1024"},
        {"duplex=both", "(allowed: half, full)"},
        {"host_mtu=67", "68 to 65535"},
        {"x-txburst=0", "x-txburst"},
        {"x-txburst=-1", "x-txburst"},
        {"x-rxburst=0", "x-rxburst"},
        {"speed=-2", "speed"},
        {"mac=hello", "mac"},
        {"netdev=n0,x-soft-offloads=off,csum=on", "csum=on is not possible with netdev 'n0' of type rig"},
        {"netdev=n0,host_ufo=on", "host_ufo=on is not possible with netdev 'n0' of type rig"},
        {"netdev=n0,csum=off,host_tso4=on", "host_tso4=on is not possible without csum=on"},
        {"guest_tso4=on", "guest_tso4=on is not possible without a netdev"},
        {"ctrl_vq=off,mq=on", "mq=on is not possible without ctrl_vq=on"},
        {"ctrl_vq=off,rss=on", "rss=on is not possible without ctrl_vq=on"},
        {"netdev=n0,x-soft-offloads=off,guest_rsc_ext=on",
         "guest_rsc_ext=on is not possible without guest_tso4=on"},
        {"netdev=n0,host_tunnel=on", "host_tunnel=on is not possible with netdev 'n0'"},
        {"netdev=n0,guest_tunnel_csum=on", "guest_tunnel_csum=on is not possible with netdev"},
        {"netdev=n0,csum=off,guest_hdrlen=on",
         "guest_hdrlen=on is not possible without host_tso4=on"},
        {"hash_tunnel=on", "hash_tunnel=on is not possible without rss=on"},
        {"ctrl_vq=off,notf_coal=on", "notf_coal=on is not possible without ctrl_vq=on"},
        {"ctrl_vq=off,ctrl_rx=on", "ctrl_rx=on is not possible without ctrl_vq=on"},
        {"no-such=1", "no-such"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(all); i++) {
        g_autoptr(GError) err = NULL;
        Rig rig;

        rig_init(&rig);
        g_assert_false(rig_realize(&rig, all[i].props, &err));
        g_test_message("%s: %s", all[i].props, err->message);
        g_assert_nonnull(strstr(err->message, all[i].text));
        g_assert_null(strchr(err->message, '\n'));
        g_assert_null(rig.peer->peer);
        rig_cleanup(&rig);
    }
}

static void test_accepted(void)
{
    static const char *const all[] = {
        "netdev=n0",
        "netdev=n0,csum=on,host_tso4=on,host_tso6=on,host_ecn=on,host_uso=on,guest_hdrlen=on",
        "netdev=n0,x-soft-offloads=on",
        "tx=bh",
        "tx=",
        "mq=on,rss=on,hash=on,hash_tunnel=on,hash-ipv4=on,hash-udp6ex=off",
        "notf_coal=on,vq_notf_coal=on,device_stats=on",
        "guest_rsc_ext=on,rsc_interval=7",
        "mq=off,rss=off,hash=off,guest_rsc_ext=off,host_tunnel=off,hash-ipv4=auto,failover=off",
        "x-soft-offloads=off,x-mtu-bypass-backend=off,bootindex=1",
        "rx_queue_size=64,tx_queue_size=1024",
        "csum=off,guest_csum=off,ctrl_vq=off",
        "netdev=n0,x-txburst=1,x-txtimer=0,tx=timer",
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(all); i++) {
        GError *err = NULL;
        Rig rig;

        rig_init(&rig);
        g_assert_true(rig_realize(&rig, all[i], &err));
        g_assert_no_error(err);
        g_assert_false(virtio_host_has_feature(rig.vdev, 65));
        rig_cleanup(&rig);
    }
}

static void test_netdev_used_twice(void)
{
    g_autoptr(GError) err = NULL;
    Rig rig;

    rig_init(&rig);
    rig_start(&rig, NULL, RIG_MODERN, 256);
    VirtIODevice *first = rig.vdev;
    DeviceState *transport = rig.transport;
    rig.transport = DEVICE(object_new(G_OBJECT_TYPE(transport)));
    g_assert_true(device_realize(rig.transport, NULL, NULL));
    g_assert_false(rig_realize(&rig, "netdev=n0", &err));
    g_assert_cmpstr(err->message, ==,
                    "Property 'virtio-net-device.netdev' can't take value 'n0', it's in use");
    device_unrealize(rig.transport);
    object_unparent(OBJECT(rig.transport));
    rig.transport = transport;
    rig.vdev = first;
    rig_cleanup(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_func("/ctrl/queue", test_ctrl_queue);
    g_test_add_func("/ctrl/offloads-reach-peer", test_ctrl_offloads_reach_peer);
    g_test_add_func("/ctrl/announce", test_announce);
    g_test_add_func("/config/fields-and-link", test_config_and_link);
    g_test_add_func("/config/legacy-mac-write", test_legacy_mac_write);
    g_test_add_func("/config/stats", test_stats_readable);
    g_test_add_func("/config/stats-in-qmp", test_stats_in_qmp);
    g_test_add_func("/realize/refused", test_refused);
    g_test_add_func("/realize/accepted", test_accepted);
    g_test_add_func("/realize/netdev-used-twice", test_netdev_used_twice);
    return g_test_run();
}
