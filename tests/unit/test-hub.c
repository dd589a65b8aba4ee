/*
 * Hubs: every other port gets each frame, two ports never lose one, a port that does not read
 * cannot stop the others, rings of hubs do not recurse, info network.
 */
#include <string.h>

#include "net-test-util.h"

static void test_two_ports_lose_nothing(void)
{
    netdev_must_init("{'type':'hubport','id':'h0','hubid':'1'}");
    netdev_must_init("{'type':'hubport','id':'h1','hubid':'1'}");
    TestClient *a = test_client_new(net_client_find("h0"), "a");
    TestClient *b = test_client_new(net_client_find("h1"), "b");
    a->to_send = 2000;
    test_client_send(a);
    for (unsigned i = 0; b->got->len < 2000 && i < 5000; i++) {
        test_client_give_room(b, 1 + i % 50);
        run_loop_until_idle();
    }
    assert_frames_in_order(b, 2000);
    g_assert_cmpuint(a->got->len, ==, 0);
    net_client_delete(&a->nc);
    net_client_delete(&b->nc);
    net_cleanup();
    g_assert_null(net_clients);
}

static void test_stuck_port_does_not_stop_others(void)
{
    netdev_must_init("{'type':'hubport','id':'h0','hubid':0}");
    netdev_must_init("{'type':'hubport','id':'h1','hubid':0}");
    netdev_must_init("{'type':'hubport','id':'h2','hubid':0}");
    NetClient *stuck_port = net_client_find("h2");
    TestClient *a = test_client_new(net_client_find("h0"), "a");
    TestClient *b = test_client_new(net_client_find("h1"), "b");
    TestClient *stuck = test_client_new(stuck_port, "stuck");
    b->room = 1u << 30;
    a->to_send = 3000;
    test_client_send(a);
    run_loop_until_idle();
    assert_frames_in_order(b, 3000);
    g_assert_cmpuint(stuck_port->stats.drops[NET_DROP_OVERFLOW], ==, 3000 - 1024);
    test_client_give_room(stuck, 1u << 30);
    run_loop_until_idle();
    assert_frames_in_order(stuck, 1024);

    g_autoptr(GString) out = g_string_new(NULL);
    net_print_info(out);
    g_assert_cmpstr(out->str, ==,
                    "hub 0\r\n"
                    " \\ h0: a: index=0,type=test,\r\n"
                    " \\ h1: b: index=0,type=test,\r\n"
                    " \\ h2: stuck: index=0,type=test,\r\n");
    /* A backlog goes with the client it was for. */
    stuck->room = 0;
    a->to_send = 3010;
    test_client_send(a);
    net_client_delete(&stuck->nc);
    run_loop_until_idle();
    net_client_delete(&b->nc);
    a->to_send = 3020;
    test_client_send(a);
    g_assert_cmpuint(a->sent, ==, 3020);
    net_client_delete(&a->nc);
    net_cleanup();
    g_assert_null(net_clients);
}

static void test_ring_does_not_recurse(void)
{
    netdev_must_init("{'type':'hubport','id':'a0','hubid':1}");
    netdev_must_init("{'type':'hubport','id':'a1','hubid':1}");
    netdev_must_init("{'type':'hubport','id':'a2','hubid':1}");
    netdev_must_init("{'type':'hubport','id':'b1','hubid':2,'netdev':'a1'}");
    netdev_must_init("{'type':'hubport','id':'b2','hubid':2,'netdev':'a2'}");
    TestClient *a = test_client_new(net_client_find("a0"), "a");
    a->room = 1u << 30;
    a->to_send = 3;
    test_client_send(a);
    for (unsigned i = 0; i < 100; i++) {
        event_loop_run_once(event_loop_main(), false);
    }
    netdev_must_fail("{'type':'hubport','id':'b3','hubid':2,'netdev':'a1'}",
                     "netdev 'a1' is already in use by 'b1'");
    netdev_must_fail("{'type':'hubport','id':'b3','hubid':2,'netdev':'zz'}",
                     "netdev 'zz' not found");
    net_client_delete(&a->nc);
    net_cleanup();
    g_assert_null(net_clients);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/hub/two-ports-lose-nothing", test_two_ports_lose_nothing);
    g_test_add_func("/hub/stuck-port-does-not-stop-others", test_stuck_port_does_not_stop_others);
    g_test_add_func("/hub/ring-does-not-recurse", test_ring_does_not_recurse);
    return g_test_run();
}
