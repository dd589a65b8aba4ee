/*
 * The monitor's side of net: query-rx-filter, x-query-netclients, set_link, netdev_add and
 * netdev_del, and HMP's info network.
 */
#include "net-test-util.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"

const QmpCommand qmp_commands[] = {{NULL}};

static json_object *rx_filter_query(NetClient *nc)
{
    json_object *o = quoted("{'promiscuous':true,'multicast':'normal','unicast':'normal',"
                            "'vlan':'all','broadcast-allowed':true,'multicast-overflow':false,"
                            "'unicast-overflow':false,'main-mac':'52:54:00:12:34:56',"
                            "'vlan-table':[],'unicast-table':[],"
                            "'multicast-table':['01:00:5e:00:00:01']}");
    json_put_string(o, "name", nc->name);
    return o;
}

static const NetClientOps nic_ops = {
    .type = "nic",
    .instance_size = sizeof(TestClient),
    .receive_batch = test_client_receive,
    .query_rx_filter = rx_filter_query,
    .cleanup = test_client_cleanup,
};

static void assert_error(GError **err, const char *message)
{
    g_assert_nonnull(*err);
    g_assert_cmpstr((*err)->message, ==, message);
    g_clear_error(err);
}

static void test_commands(void)
{
    GError *err = NULL;
    json_object *options = quoted("{'type':'hubport','id':'h0','hubid':3}");
    qmp_netdev_add(options, NULL, &err);
    g_assert_no_error(err);
    qmp_netdev_add(options, NULL, &err);
    assert_error(&err, "Duplicate ID 'h0' for netdev");
    json_object_put(options);

    NetClient *peer = net_client_find("h0");
    TestClient *nic = (TestClient *)net_nic_new(&nic_ops, &peer, 1, "virtio-net-pci", "nic0");
    nic->got = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    RxFilterInfoList *filters = qmp_query_rx_filter(NULL, &err);
    g_assert_no_error(err);
    g_assert_cmpstr(filters->value->name, ==, "nic0");
    g_assert_cmpint(filters->value->vlan, ==, RX_STATE_ALL);
    g_assert_null(filters->next);
    qapi_free_RxFilterInfoList(filters);
    qmp_query_rx_filter("nope", &err);
    assert_error(&err, "invalid net client name: nope");
    qmp_query_rx_filter("h0", &err);
    assert_error(&err, "net client(h0) isn't a NIC");

    qmp_set_link("nic0", false, &err);
    g_assert_no_error(err);
    nic->to_send = 4;
    test_client_send(nic);
    NetClientStatsList *stats = qmp_x_query_netclients(&err);
    g_assert_cmpstr(stats->next->value->name, ==, "nic0");
    g_assert_cmpstr(stats->next->value->peer, ==, "h0");
    g_assert_false(stats->next->value->link_up);
    g_assert_cmpuint(stats->next->value->drops->link_down, ==, 4);
    qapi_free_NetClientStatsList(stats);

    qmp_netdev_del("h0", &err);
    g_assert_no_error(err);
    qmp_netdev_del("h0", &err);
    assert_error(&err, "Device 'h0' not found");
    net_client_delete(&nic->nc);
}

static void assert_hmp(const char *line, const char *output)
{
    g_autofree char *text = hmp_execute(line);
    g_assert_cmpstr(text, ==, output);
}

static void test_hmp(void)
{
    net_monitor_init();
    assert_hmp("info network", "");
    assert_hmp("netdev_add user,id=u0,ipv6=off", "");
    assert_hmp("info network", "u0: index=0,type=user,net=10.0.2.0,restrict=off\r\n");
    assert_hmp("set_link u0 off", "");
    g_assert_true(net_client_find("u0")->link_down);
    assert_hmp("set_link u0 on", "");
    assert_hmp("set_link zz on", "Error: Device 'zz' not found\r\n");
    assert_hmp("set_link u0", "Error: set_link takes a client's name and on or off\r\n");
    assert_hmp("netdev_del u0", "");
    g_assert_null(net_clients);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/net-qmp/commands", test_commands);
    g_test_add_func("/net-qmp/hmp", test_hmp);
    return g_test_run();
}
