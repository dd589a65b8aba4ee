/*
 * The client core with fake clients: what is taken arrives once and in order, what is not stays
 * the sender's; link, deletion, counters, names, MACs, -nic.
 */
#include <string.h>

#include "net/net.h"
#include "util/error.h"
#include "util/json.h"

typedef struct Fake {
    NetClient nc;
    unsigned room; /* packets it takes before it is full */
    GArray *got;   /* of uint32_t: first four bytes of each packet */
    unsigned writable_calls, link_calls;
    unsigned next_to_send; /* a sender: resumes in peer_writable up to @send_end */
    unsigned send_end;
    bool cleaned;
} Fake;

static unsigned fakes_cleaned;

static unsigned fake_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    Fake *f = (Fake *)nc;
    unsigned taken = MIN(n, f->room);
    for (unsigned i = 0; i < taken; i++) {
        uint32_t value;
        memcpy(&value, pkts[i].iov[0].iov_base, 4);
        g_array_append_val(f->got, value);
        pkts[i].iov[0].iov_base = NULL; /* allowed for what is taken */
    }
    f->room -= taken;
    return taken;
}

static bool fake_can_receive(NetClient *nc)
{
    return ((Fake *)nc)->room > 0;
}

static void send_more(Fake *f)
{
    while (f->next_to_send < f->send_end) {
        uint32_t values[64];
        struct iovec iov[64];
        NetPacket pkts[64];
        unsigned n = MIN(64, f->send_end - f->next_to_send);
        for (unsigned i = 0; i < n; i++) {
            values[i] = f->next_to_send + i;
            iov[i] = (struct iovec){&values[i], 4};
            pkts[i] = (NetPacket){&iov[i], 1, 4};
        }
        unsigned taken = net_send_batch(&f->nc, pkts, n);
        f->next_to_send += taken;
        if (taken < n) {
            return;
        }
    }
}

static void fake_writable(NetClient *nc)
{
    Fake *f = (Fake *)nc;
    f->writable_calls++;
    send_more(f);
}

static void fake_link(NetClient *nc)
{
    ((Fake *)nc)->link_calls++;
}

static void fake_cleanup(NetClient *nc)
{
    g_array_unref(((Fake *)nc)->got);
    fakes_cleaned++;
}

static const NetClientOps fake_ops = {
    .type = "fake",
    .instance_size = sizeof(Fake),
    .receive_batch = fake_receive,
    .can_receive = fake_can_receive,
    .peer_writable = fake_writable,
    .link_changed = fake_link,
    .cleanup = fake_cleanup,
};
static const NetClientOps nic_ops = {
    .type = "nic",
    .instance_size = sizeof(Fake),
    .receive_batch = fake_receive,
    .can_receive = fake_can_receive,
    .peer_writable = fake_writable,
    .link_changed = fake_link,
    .cleanup = fake_cleanup,
};

static Fake *fake_init(NetClient *nc, unsigned room)
{
    Fake *f = (Fake *)nc;
    f->got = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    f->room = room;
    return f;
}

static Fake *fake_new(const char *name, unsigned room)
{
    Fake *f = fake_init(net_client_new(&fake_ops, NULL, "fake", name), room);
    f->nc.is_netdev = true;
    return f;
}

static Fake *nic_new(Fake *peer, const char *id, unsigned room)
{
    NetClient *peers[] = {peer ? &peer->nc : NULL};
    return fake_init(net_nic_new(&nic_ops, peers, 1, "virtio-net-pci", id), room);
}

static void assert_sequence(const Fake *f, unsigned n)
{
    g_assert_cmpuint(f->got->len, ==, n);
    for (unsigned i = 0; i < n; i++) {
        g_assert_cmpuint(g_array_index(f->got, uint32_t, i), ==, i);
    }
}

static void test_partial_takes_keep_order(void)
{
    Fake *net = fake_new("n0", 0), *nic = nic_new(net, NULL, 0);
    nic->send_end = 1000;
    send_more(nic);
    g_assert_cmpuint(nic->next_to_send, ==, 0);
    for (unsigned round = 0; net->got->len < 1000; round++) {
        net->room = 1 + round * 7 % 90;
        net_peer_writable(&net->nc);
    }
    assert_sequence(net, 1000);
    g_assert_cmpuint(nic->nc.stats.tx_packets, ==, 1000);
    g_assert_cmpuint(nic->nc.stats.tx_bytes, ==, 4000);
    g_assert_cmpuint(net->nc.stats.rx_packets, ==, 1000);
    g_assert_cmpuint(net->nc.stats.rx_bytes, ==, 4000);
    g_assert_cmpuint(nic->nc.stats.stalls, >, 10);
    g_assert_false(net_can_send(&nic->nc) && net->room == 0);
    net_client_delete(&nic->nc);
    net_client_delete(&net->nc);
    g_assert_null(net_clients);
}

static void test_no_peer_and_link_down_drop(void)
{
    Fake *nic = nic_new(NULL, "nic0", 10);
    nic->send_end = 5;
    g_assert_true(net_can_send(&nic->nc));
    send_more(nic);
    g_assert_cmpuint(nic->nc.stats.drops[NET_DROP_NO_PEER], ==, 5);
    g_assert_cmpuint(nic->nc.stats.tx_packets, ==, 0);
    net_client_delete(&nic->nc);

    Fake *net = fake_new("n0", 0);
    nic = nic_new(net, "nic0", 10);
    nic->send_end = 7;
    send_more(nic);
    g_assert_cmpuint(nic->next_to_send, ==, 0);
    /* What waited is dropped when the cable goes, not sent when it comes back. */
    g_assert_true(net_set_link("n0", false, NULL));
    g_assert_true(nic->nc.link_down);
    g_assert_cmpuint(nic->link_calls, ==, 1);
    g_assert_cmpuint(nic->next_to_send, ==, 7);
    g_assert_cmpuint(nic->nc.stats.drops[NET_DROP_LINK_DOWN], ==, 7);
    net->room = 100;
    g_assert_true(net_set_link("n0", true, NULL));
    g_assert_false(nic->nc.link_down);
    g_assert_cmpuint(net->got->len, ==, 0);

    GError *err = NULL;
    g_assert_false(net_set_link("nope", true, &err));
    g_assert_cmpint(err->code, ==, ERROR_DEVICE_NOT_FOUND);
    g_assert_cmpstr(err->message, ==, "Device 'nope' not found");
    g_error_free(err);
    net_client_delete(&nic->nc);
    net_client_delete(&net->nc);
}

static void test_netdev_deleted_under_its_device(void)
{
    Fake *net = fake_new("n0", 0), *nic = nic_new(net, "nic0", 10);
    nic->send_end = 3;
    send_more(nic);
    g_assert_true(net_delete_netdev("n0", NULL));
    g_assert_null(nic->nc.peer);
    g_assert_true(nic->nc.deleted_peer);
    g_assert_cmpuint(nic->next_to_send, ==, 3);
    g_assert_cmpuint(nic->nc.stats.drops[NET_DROP_NO_PEER], ==, 3);
    g_assert_null(net_client_find("n0"));

    GError *err = NULL;
    g_assert_false(net_delete_netdev("n0", &err));
    g_assert_cmpstr(err->message, ==, "Device 'n0' not found");
    g_error_free(err);
    net = fake_new("n0", 5); /* the id is free */
    g_assert_true(net_client_find("n0") == &net->nc);
    net_client_delete(&nic->nc);
    net_cleanup();
    g_assert_null(net_clients);
}

static void test_too_long_frames_are_cut_out(void)
{
    Fake *net = fake_new("n0", 2), *nic = nic_new(net, NULL, 0);
    static uint8_t big[NET_MAX_FRAME + 1];
    uint32_t values[5] = {0, 1, 2, 3, 4};
    struct iovec iov[5];
    NetPacket pkts[5];
    for (unsigned i = 0; i < 5; i++) {
        bool is_big = i == 1 || i == 2;
        iov[i] = (struct iovec){is_big ? (void *)big : &values[i], is_big ? sizeof(big) : 4};
        pkts[i] = (NetPacket){&iov[i], 1, iov[i].iov_len};
    }
    g_assert_cmpuint(net_send_batch(&nic->nc, pkts, 5), ==, 4);
    g_assert_cmpuint(net->got->len, ==, 2);
    g_assert_cmpuint(g_array_index(net->got, uint32_t, 1), ==, 3);
    g_assert_cmpuint(nic->nc.stats.drops[NET_DROP_TOO_LONG], ==, 2);
    g_assert_nonnull(pkts[4].iov[0].iov_base);
    net_client_delete(&nic->nc);
    net_client_delete(&net->nc);
}

static void test_names_and_queues(void)
{
    Fake *a = nic_new(NULL, NULL, 0), *b = nic_new(NULL, NULL, 0);
    g_assert_cmpstr(a->nc.name, ==, "virtio-net-pci.0");
    g_assert_cmpstr(b->nc.name, ==, "virtio-net-pci.1");
    NetClient *mq = net_nic_new(&nic_ops, NULL, 3, "virtio-net-pci", "mq");
    for (unsigned i = 0; i < 3; i++) {
        fake_init(net_client_queue(mq, i), 0);
    }
    g_assert_null(net_client_queue(mq, 3));
    NetClient *found[8];
    g_assert_cmpuint(net_client_find_any("mq", found, 8), ==, 3);
    g_assert_cmpuint(net_client_find_queues("mq", found, 8), ==, 0);
    g_assert_null(net_client_find("mq"));
    fakes_cleaned = 0;
    net_client_delete(mq);
    g_assert_cmpuint(fakes_cleaned, ==, 3);
    net_client_delete(&a->nc);
    net_client_delete(&b->nc);
}

static void test_info_network(void)
{
    Fake *net = fake_new("n0", 0), *alone = fake_new("n1", 0), *nic = nic_new(net, NULL, 0);
    net_set_info(&net->nc, "net=%s", "10.0.2.0");
    net_set_info(&alone->nc, "x=y");
    net_set_info(&nic->nc, "model=virtio-net-pci,macaddr=52:54:00:12:34:56");
    g_autoptr(GString) out = g_string_new(NULL);
    net_print_info(out);
    g_assert_cmpstr(out->str, ==,
                    "n1: index=0,type=fake,x=y\r\n"
                    "virtio-net-pci.0: index=0,type=nic,model=virtio-net-pci,"
                    "macaddr=52:54:00:12:34:56\r\n"
                    " \\ n0: index=0,type=fake,net=10.0.2.0\r\n");
    net_client_delete(&nic->nc);
    net_client_delete(&net->nc);
    net_client_delete(&alone->nc);
}

static void assert_mac(const char *text, bool good)
{
    uint8_t mac[ETH_MAC_LEN] = {1, 2, 3, 4, 5, 6};
    GError *err = NULL;
    g_assert_true(net_parse_mac(text, mac, &err) == good);
    g_assert_true(good == (err == NULL));
    g_assert_cmpuint(mac[0], ==, good ? 0x52 : 1);
    g_clear_error(&err);
}

static void test_macs(void)
{
    assert_mac("52:54:00:12:34:56", true);
    assert_mac("52-54-00-aB-Cd-eF", true);
    const char *bad[] = {"",
                         "52:54:00:12:34",
                         "52:54:00:12:34:5",
                         "52:54:00:12:34:56:",
                         "52:54:00:12:34:567",
                         "52:54-00:12:34:56",
                         "525400123456",
                         "52:54:00:12:34:5g",
                         " 52:54:00:12:34:56",
                         "52.54.00.12.34.56"};
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        assert_mac(bad[i], false);
    }
    uint8_t a[6] = {0}, b[6] = {0}, c[6] = {0}, d[6] = {0x52, 0x54, 0, 0x12, 0x34, 0x58};
    net_default_mac(a);
    net_default_mac(d); /* given by a user: taken from then on */
    net_default_mac(b);
    net_default_mac(c);
    g_assert_cmpuint(a[5], ==, 0x56);
    g_assert_cmpuint(b[5], ==, 0x57);
    g_assert_cmpuint(c[5], ==, 0x59);
    net_release_mac(a);
    memset(a, 0, 6);
    net_default_mac(a);
    g_assert_cmpuint(a[5], ==, 0x56);
}

static void assert_netdev_error(const char *json, const char *message)
{
    GError *err = NULL;
    json_object *options = json_parse(json, NULL);
    g_assert_nonnull(options);
    g_assert_false(net_init_netdev(options, &err));
    g_assert_nonnull(err);
    if (!g_str_has_prefix(err->message, message)) {
        g_error("%s: '%s' is not '%s…'", json, err->message, message);
    }
    g_assert_null(strchr(err->message, '\n'));
    g_error_free(err);
    json_object_put(options);
}

static void test_wrong_options(void)
{
    Fake *net = fake_new("n0", 0);
    assert_netdev_error("{\"id\":\"n1\"}", "Parameter 'type' is missing");
    assert_netdev_error("{\"type\":\"foo\",\"id\":\"n1\"}",
                        "Parameter 'type' does not accept value 'foo'");
    assert_netdev_error("{\"type\":\"user\"}", "Parameter 'id' is missing");
    assert_netdev_error("{\"type\":\"user\",\"id\":\"n0\"}", "Duplicate ID 'n0' for netdev");
    assert_netdev_error("{\"type\":\"user\",\"id\":\"n1\",\"foo\":\"1\"}",
                        "Parameter 'foo' is unexpected");
    assert_netdev_error("{\"type\":\"user\",\"id\":\"1n\"}",
                        "Parameter 'id' expects an identifier");
    assert_netdev_error("{\"type\":\"user\",\"id\":\"n1\",\"restrict\":\"maybe\"}", "Parameter");
    assert_netdev_error("{\"type\":\"hubport\",\"id\":\"n1\"}", "Parameter 'hubid' is missing");
    g_assert_cmpuint(net_clients->len, ==, 1);
    g_autofree char *help = net_help_text();
    g_assert_nonnull(strstr(help, "user"));
    net_client_delete(&net->nc);
}

static void test_nic_option(void)
{
    json_object *netdev, *device;
    g_assert_true(net_parse_nic("none", "virtio-net-pci", &netdev, &device, NULL));
    g_assert_null(netdev);
    g_assert_null(device);
    g_assert_true(net_parse_nic("user,model=virtio-net,mac=52:54:00:01:02:03,net=10.1.0.0/16",
                                "virtio-net-pci", &netdev, &device, NULL));
    g_assert_cmpstr(json_member_string(netdev, "type"), ==, "user");
    g_assert_cmpstr(json_member_string(netdev, "net"), ==, "10.1.0.0/16");
    g_assert_null(json_member(netdev, "mac"));
    g_assert_cmpstr(json_member_string(device, "driver"), ==, "virtio-net");
    g_assert_cmpstr(json_member_string(device, "mac"), ==, "52:54:00:01:02:03");
    g_assert_cmpstr(json_member_string(device, "netdev"), ==, json_member_string(netdev, "id"));
    json_object_put(netdev);
    json_object_put(device);
    g_assert_true(net_parse_legacy_net("none", NULL));
    GError *err = NULL;
    g_assert_false(net_parse_legacy_net("user", &err));
    g_error_free(err);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/net/partial-takes-keep-order", test_partial_takes_keep_order);
    g_test_add_func("/net/no-peer-and-link-down-drop", test_no_peer_and_link_down_drop);
    g_test_add_func("/net/netdev-deleted-under-its-device", test_netdev_deleted_under_its_device);
    g_test_add_func("/net/too-long-frames-are-cut-out", test_too_long_frames_are_cut_out);
    g_test_add_func("/net/names-and-queues", test_names_and_queues);
    g_test_add_func("/net/info-network", test_info_network);
    g_test_add_func("/net/macs", test_macs);
    g_test_add_func("/net/wrong-options", test_wrong_options);
    g_test_add_func("/net/nic-option", test_nic_option);
    return g_test_run();
}
