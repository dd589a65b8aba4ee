/*
 * announce-self: the frame's bytes, its rounds and waits, several series, NICs chosen by name,
 * numbers that cannot be.
 */
#include <string.h>

#include "net-test-util.h"
#include "net/net-internal.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"

const QmpCommand qmp_commands[] = {{NULL}};

static unsigned asked; /* calls of the NIC's own announce */

static void nic_announce(NetClient *nc)
{
    asked++;
}

static const NetClientOps nic_ops = {
    .type = "nic",
    .instance_size = sizeof(TestClient),
    .receive_batch = test_client_receive,
    .announce = nic_announce,
    .cleanup = test_client_cleanup,
};

typedef struct Pair {
    TestClient *net, *nic;
} Pair;

static Pair pair_new(unsigned i, unsigned vnet_hdr_len)
{
    Pair p;
    g_autofree char *net = g_strdup_printf("n%u", i), *nic = g_strdup_printf("nic%u", i);
    p.net = test_client_new(NULL, net);
    p.net->room = G_MAXUINT;
    NetClient *peer = &p.net->nc;
    p.nic = (TestClient *)net_nic_new(&nic_ops, &peer, 1, "virtio-net-pci", nic);
    p.nic->got = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    net_set_info(&p.nic->nc, "model=virtio-net-pci,macaddr=52:54:00:12:34:%02x", 0x56 + i);
    p.nic->nc.vnet_hdr_len = p.net->nc.vnet_hdr_len = vnet_hdr_len;
    return p;
}

static void pair_free(Pair *p)
{
    p->net->nc.vnet_hdr_len = 0;
    net_client_delete(&p->nic->nc);
    net_client_delete(&p->net->nc);
}

static void announce(const char *id, strList *interfaces, int64_t initial, int64_t max,
                     int64_t rounds, int64_t step)
{
    GError *err = NULL;
    AnnounceParameters params = {.initial = initial,
                                 .max = max,
                                 .rounds = rounds,
                                 .step = step,
                                 .id = (char *)id,
                                 .interfaces = interfaces};
    qmp_announce_self(&params, &err);
    g_assert_no_error(err);
}

static void test_frame(void)
{
    Pair a = pair_new(0, 0), b = pair_new(1, 12);
    asked = 0;
    announce(NULL, NULL, 50, 50, 1, 0);
    g_assert_cmpuint(asked, ==, 2);
    for (unsigned i = 0; i < 2; i++) {
        TestClient *net = i ? b.net : a.net;
        size_t size, head = i ? 12 : 0;
        const uint8_t *f = g_bytes_get_data(net->got->pdata[0], &size);
        uint8_t want[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        const uint8_t mac[] = {0x52, 0x54, 0, 0x12, 0x34, 0x56 + i};
        memcpy(want + 6, mac, 6);
        memcpy(want + 12, "\x80\x35\0\1\x08\0\6\4\0\3", 10);
        memcpy(want + 22, mac, 6);
        memcpy(want + 32, mac, 6);
        g_assert_cmpuint(net->got->len, ==, 1);
        g_assert_cmpuint(size, ==, head + 60);
        g_assert_true(memcmp(f + head, want, 60) == 0);
        g_assert_true(head == 0 || (f[0] == 0 && f[1] == 0));
    }
    pair_free(&a);
    pair_free(&b);
}

static void test_rounds(void)
{
    Pair a = pair_new(0, 0);
    int64_t start = clock_get_ns(CLOCK_HOST);
    announce("x", NULL, 10, 25, 4, 10); /* after 10, 20 and 25 ms */
    g_assert_cmpuint(a.net->got->len, ==, 1);
    RUN_LOOP_WHILE(a.net->got->len < 4);
    g_assert_cmpint(clock_get_ns(CLOCK_HOST) - start, >=, 55 * 1000000);
    g_usleep(40000);
    run_loop_until_idle();
    g_assert_cmpuint(a.net->got->len, ==, 4);

    /* A peer that is full costs that frame, not the next. */
    a.net->room = 0;
    announce("x", NULL, 5, 5, 2, 0);
    g_assert_cmpuint(a.nic->nc.stats.drops[NET_DROP_OVERFLOW], ==, 1);
    a.net->room = 10;
    RUN_LOOP_WHILE(a.net->got->len < 5);
    pair_free(&a);
}

static void test_series(void)
{
    Pair a = pair_new(0, 0), b = pair_new(1, 0);
    strList only = {NULL, (char *)"nic1"};
    announce("x", NULL, 5, 5, 100000, 0);
    announce("y", &only, 5, 5, 100000, 0);
    g_assert_cmpuint(a.net->got->len, ==, 1);
    g_assert_cmpuint(b.net->got->len, ==, 2);
    announce("x", NULL, 0, 0, 0, 0); /* ends x, not y */
    unsigned got = a.net->got->len;
    unsigned more = b.net->got->len + 3;
    RUN_LOOP_WHILE(b.net->got->len < more);
    g_assert_cmpuint(a.net->got->len, ==, got);
    announce("y", NULL, 0, 0, 0, 0);
    got = b.net->got->len;
    g_usleep(12000);
    run_loop_until_idle();
    g_assert_cmpuint(b.net->got->len, ==, got);
    announce("z", NULL, 5, 5, 10, 0); /* still going on when everything ends */
    pair_free(&a);
    pair_free(&b);
    net_cleanup();
}

static void test_monitor(void)
{
    Pair a = pair_new(0, 0);
    const AnnounceParameters bad[] = {
        {.initial = -1, .max = 1, .rounds = 1, .step = 1},
        {.initial = 1, .max = INT64_MAX, .rounds = 1, .step = 1},
        {.initial = 1, .max = 1, .rounds = -5, .step = 1},
        {.initial = 1, .max = 1, .rounds = 1, .step = INT64_MIN},
    };
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        GError *err = NULL;
        AnnounceParameters p = bad[i];
        qmp_announce_self(&p, &err);
        g_assert_true(g_str_has_prefix(err->message, "Parameter '"));
        g_error_free(err);
    }
    g_assert_cmpuint(a.net->got->len, ==, 0);
    net_register_hmp();
    g_autofree char *text = hmp_execute("announce_self");
    g_assert_cmpstr(text, ==, "");
    g_assert_cmpuint(a.net->got->len, ==, 1);
    g_autofree char *other = hmp_execute("announce_self nic7,nic8 other");
    g_assert_cmpuint(a.net->got->len, ==, 1);
    g_autofree char *same = hmp_execute("announce_self nic7,nic0 other");
    g_assert_cmpuint(a.net->got->len, ==, 2);
    pair_free(&a);
    net_cleanup();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/announce/frame", test_frame);
    g_test_add_func("/announce/rounds", test_rounds);
    g_test_add_func("/announce/series", test_series);
    g_test_add_func("/announce/monitor", test_monitor);
    return g_test_run();
}
