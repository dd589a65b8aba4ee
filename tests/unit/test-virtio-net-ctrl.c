/*
 * The pure parts of virtio-net: receive filter, control commands, feature masks, configuration
 * length.
 */
#include <string.h>

#include "hw/net/virtio-net-internal.h"
#include "util/json.h"

static const uint8_t own_mac[6] = {0x52, 0x54, 0, 0x12, 0x34, 0x56};
static const uint8_t other_mac[6] = {0x52, 0x54, 0, 0x99, 0x99, 0x99};
static const uint8_t multi_mac[6] = {0x01, 0, 0x5e, 0, 0, 1};
static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

#define ALL_FEATURES                                                                               \
    (VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_VQ) | VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_RX) |                 \
     VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_RX_EXTRA) | VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_VLAN) |         \
     VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_MAC_ADDR) | VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_ANNOUNCE) |    \
     VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_GUEST_OFFLOADS) | VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_CSUM) |  \
     VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_TSO4))

/* --- filter --- */

static bool match(const RxFilter *filter, const uint8_t *mac, int vid)
{
    uint8_t head[RX_FILTER_HEAD_SIZE] = {0};

    memcpy(head, mac, 6);
    if (vid >= 0) {
        head[12] = 0x81;
        head[14] = (uint8_t)(vid >> 8) | 0xe0; /* priority bits are not the VLAN's */
        head[15] = (uint8_t)vid;
    }
    return rx_filter_match(filter, head);
}

static void filter_closed(RxFilter *filter)
{
    rx_filter_reset(filter, own_mac);
    filter->promisc = false;
}

static void test_filter_reset(void)
{
    RxFilter f;

    rx_filter_reset(&f, own_mac);
    g_assert_true(match(&f, other_mac, -1));
    g_assert_true(match(&f, multi_mac, 7));
    filter_closed(&f);
    g_assert_true(match(&f, own_mac, -1));
    g_assert_true(match(&f, broadcast, -1));
    g_assert_false(match(&f, other_mac, -1));
    g_assert_false(match(&f, multi_mac, -1));
    g_assert_false(match(&f, own_mac, 7));
}

static void test_filter_modes(void)
{
    RxFilter f;

    filter_closed(&f);
    f.allmulti = true;
    g_assert_true(match(&f, multi_mac, -1));
    f.nomulti = true;
    g_assert_false(match(&f, multi_mac, -1));
    g_assert_true(match(&f, broadcast, -1));
    f.nobcast = true;
    g_assert_false(match(&f, broadcast, -1));
    f.alluni = true;
    g_assert_true(match(&f, other_mac, -1));
    f.nouni = true;
    g_assert_false(match(&f, other_mac, -1));
    g_assert_false(match(&f, own_mac, -1));
    f.promisc = true;
    g_assert_true(match(&f, other_mac, 99));
    filter_closed(&f);
    f.multi_overflow = f.uni_overflow = true;
    g_assert_true(match(&f, multi_mac, -1));
    g_assert_true(match(&f, other_mac, -1));
}

static void test_filter_vlan(void)
{
    RxFilter f;

    filter_closed(&f);
    for (unsigned vid = 0; vid < 4096; vid += 4095) {
        rx_filter_set_vlan(&f, vid, true);
        g_assert_true(match(&f, own_mac, (int)vid));
        g_assert_false(match(&f, own_mac, 7));
        g_assert_false(match(&f, other_mac, (int)vid));
        rx_filter_set_vlan(&f, vid, false);
        g_assert_false(match(&f, own_mac, (int)vid));
    }
    rx_filter_set_all_vlans(&f, true);
    g_assert_true(match(&f, own_mac, 7));
}

static void test_filter_info(void)
{
    RxFilter f;
    json_object *info;

    rx_filter_reset(&f, own_mac);
    info = rx_filter_info(&f, "net0", false);
    g_assert_cmpstr(json_member_string(info, "vlan"), ==, "all");
    g_assert_cmpstr(json_member_string(info, "main-mac"), ==, "52:54:00:12:34:56");
    g_assert_cmpstr(json_member_string(info, "name"), ==, "net0");
    g_assert_true(json_object_get_boolean(json_member(info, "promiscuous")));
    g_assert_cmpint(json_object_object_length(info), ==, 12);
    json_object_put(info);

    info = rx_filter_info(&f, "net0", true);
    g_assert_cmpstr(json_member_string(info, "vlan"), ==, "none");
    json_object_put(info);

    rx_filter_set_vlan(&f, 0, true);
    rx_filter_set_vlan(&f, 4, true);
    memcpy(f.macs[0], other_mac, 6);
    memcpy(f.macs[1], multi_mac, 6);
    f.in_use = 2;
    f.first_multi = 1;
    f.nouni = true;
    info = rx_filter_info(&f, "net0", true);
    g_assert_cmpstr(json_member_string(info, "vlan"), ==, "normal");
    g_assert_cmpstr(json_member_string(info, "unicast"), ==, "none");
    g_assert_cmpstr(json_member_string(info, "multicast"), ==, "normal");
    g_assert_cmpstr(json_object_to_json_string_ext(json_member(info, "vlan-table"), 0), ==,
                    "[4,0]");
    g_assert_cmpstr(json_object_to_json_string_ext(json_member(info, "unicast-table"), 0), ==,
                    "[\"52:54:00:99:99:99\"]");
    g_assert_cmpstr(json_object_to_json_string_ext(json_member(info, "multicast-table"), 0), ==,
                    "[\"01:00:5e:00:00:01\"]");
    json_object_put(info);
}

/* --- commands --- */

static VirtIONetCtrlState state;
static unsigned changed;

static void state_reset(void)
{
    memset(&state, 0, sizeof(state));
    rx_filter_reset(&state.filter, own_mac);
}

/* Runs a command whose bytes come in pieces of @piece; checks that an error changes nothing. */
static uint8_t run_pieces(VirtioFeatures features, const void *bytes, size_t size, size_t piece)
{
    g_autofree uint8_t *copy = g_memdup2(bytes, size); /* of exact size, for sanitizers */
    g_autofree struct iovec *iov = g_new0(struct iovec, size + 1);
    VirtIONetCtrlState before = state;
    const VirtIONetCtrlContext context = {.features = features, .max_pairs = 1};
    uint8_t room;
    struct iovec in = {&room, 1};
    VirtIONetCtrlReply reply = {.iov = &in, .iovcnt = 1, .size = 1};
    unsigned n = 0;
    uint8_t ack;

    for (size_t at = 0; at < size; at += piece) {
        iov[n++] = (struct iovec){copy + at, MIN(piece, size - at)};
    }
    ack = virtio_net_ctrl_execute(&state, &context, iov, n, &reply, &changed);
    if (ack != VIRTIO_NET_OK) {
        g_assert_cmpint(changed, ==, 0);
        g_assert_cmpmem(&before, sizeof(before), &state, sizeof(state));
    }
    return ack;
}

static uint8_t run(const void *bytes, size_t size)
{
    return run_pieces(ALL_FEATURES, bytes, size, size ? size : 1);
}

#define RUN(...)                                                                                   \
    ({                                                                                             \
        const uint8_t bytes_[] = {__VA_ARGS__};                                                    \
        run(bytes_, sizeof(bytes_));                                                               \
    })

static void test_ctrl_rx_modes(void)
{
    bool *const fields[] = {&state.filter.promisc, &state.filter.allmulti, &state.filter.alluni,
                            &state.filter.nomulti, &state.filter.nouni,    &state.filter.nobcast};

    state_reset();
    for (unsigned cmd = 0; cmd < G_N_ELEMENTS(fields); cmd++) {
        g_assert_cmpint(RUN(VIRTIO_NET_CTRL_RX, cmd, 1), ==, VIRTIO_NET_OK);
        g_assert_cmpint(changed, ==, VIRTIO_NET_CTRL_CHANGED_FILTER);
        g_assert_true(*fields[cmd]);
        g_assert_cmpint(RUN(VIRTIO_NET_CTRL_RX, cmd, 0), ==, VIRTIO_NET_OK);
        g_assert_false(*fields[cmd]);
        g_assert_cmpint(RUN(VIRTIO_NET_CTRL_RX, cmd), ==, VIRTIO_NET_ERR);
        g_assert_cmpint(RUN(VIRTIO_NET_CTRL_RX, cmd, 1, 0), ==, VIRTIO_NET_ERR);
        g_assert_cmpint(RUN(VIRTIO_NET_CTRL_RX, cmd, 2), ==, VIRTIO_NET_ERR);
    }
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_RX, 6, 1), ==, VIRTIO_NET_ERR);
}

static void test_ctrl_bad_commands(void)
{
    state_reset();
    g_assert_cmpint(run("", 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_RX), ==, VIRTIO_NET_ERR);
    for (unsigned class = 6; class < 256; class ++) {
        g_assert_cmpint(RUN(class, 0, 0), ==, VIRTIO_NET_ERR);
    }
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_MQ, 0, 1, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_MAC, 2, 0, 0, 0, 0, 0, 0, 0, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_VLAN, 2, 0, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_ANNOUNCE, 1), ==, VIRTIO_NET_ERR);
}

static void test_ctrl_needs_feature(void)
{
    static const uint8_t commands[][10] = {
        {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 1},
        {VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, 1, 0},
        {VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, 2, 2, 2, 2, 2, 2},
        {VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET},
    };
    static const size_t sizes[] = {3, 4, 8, 10};

    state_reset();
    for (unsigned i = 0; i < G_N_ELEMENTS(commands); i++) {
        g_assert_cmpint(run_pieces(VIRTIO_FEATURE(VIRTIO_NET_F_CTRL_VQ), commands[i], sizes[i], 1),
                        ==, VIRTIO_NET_ERR);
        g_assert_cmpint(run_pieces(ALL_FEATURES, commands[i], sizes[i], 1), ==, VIRTIO_NET_OK);
    }
}

/* MAC_TABLE_SET with @uni and @multi addresses; @more changes the length. */
static uint8_t mac_table(unsigned uni, unsigned multi, int more, size_t piece)
{
    size_t size = 2 + 4 + uni * 6 + 4 + multi * 6;
    g_autofree uint8_t *bytes = g_malloc0(size + 16);
    uint8_t *p = bytes;

    *p++ = VIRTIO_NET_CTRL_MAC;
    *p++ = VIRTIO_NET_CTRL_MAC_TABLE_SET;
    for (unsigned list = 0; list < 2; list++) {
        unsigned entries = list ? multi : uni;

        memcpy(p, &entries, 4);
        p += 4;
        for (unsigned i = 0; i < entries; i++, p += 6) {
            memcpy(p, list ? multi_mac : other_mac, 6);
            p[4] = (uint8_t)(i >> 8);
            p[5] = (uint8_t)i;
        }
    }
    return run_pieces(ALL_FEATURES, bytes, size + more, piece);
}

static void test_ctrl_mac_table(void)
{
    RxFilter *f = &state.filter;

    state_reset();
    g_assert_cmpint(mac_table(2, 3, 0, 1000), ==, VIRTIO_NET_OK);
    g_assert_cmpint(f->in_use, ==, 5);
    g_assert_cmpint(f->first_multi, ==, 2);
    g_assert_cmpint(f->macs[4][5], ==, 2);
    g_assert_cmpint(mac_table(40, 24, 0, 5), ==, VIRTIO_NET_OK); /* just fits */
    g_assert_cmpint(f->in_use, ==, 64);
    g_assert_false(f->uni_overflow || f->multi_overflow);
    g_assert_cmpint(mac_table(40, 25, 0, 1000), ==, VIRTIO_NET_OK);
    g_assert_true(f->multi_overflow && !f->uni_overflow);
    g_assert_cmpint(f->in_use, ==, 40);
    g_assert_cmpint(mac_table(65, 3, 0, 1000), ==, VIRTIO_NET_OK);
    g_assert_true(!f->multi_overflow && f->uni_overflow);
    g_assert_cmpint(f->in_use, ==, 3);
    g_assert_cmpint(f->first_multi, ==, 0);
    g_assert_cmpint(mac_table(1000, 1000, 0, 100), ==, VIRTIO_NET_OK);
    g_assert_true(f->multi_overflow && f->uni_overflow);
    g_assert_cmpint(mac_table(0, 0, 0, 1000), ==, VIRTIO_NET_OK);
    g_assert_cmpint(f->in_use, ==, 0);
    g_assert_false(f->uni_overflow || f->multi_overflow);
}

static void test_ctrl_mac_table_bad(void)
{
    state_reset();
    for (int cut = 1; cut <= 32; cut++) {
        g_assert_cmpint(mac_table(2, 2, -cut, 7), ==, VIRTIO_NET_ERR);
    }
    g_assert_cmpint(mac_table(2, 2, 1, 7), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(mac_table(100, 2, -1, 7), ==, VIRTIO_NET_ERR);
    /* A count that only fits modulo 2^32. */
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_MAC, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0), ==,
                    VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_MAC, 0, 0, 0, 0, 0, 0xab, 0xaa, 0xaa, 0x2a), ==,
                    VIRTIO_NET_ERR);
}

static void test_ctrl_mac_addr(void)
{
    state_reset();
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_MAC, 1, 2, 3, 4, 5, 6, 7), ==, VIRTIO_NET_OK);
    g_assert_true(changed & VIRTIO_NET_CTRL_CHANGED_MAC);
    g_assert_cmpmem(state.filter.mac, 6, ((uint8_t[]){2, 3, 4, 5, 6, 7}), 6);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_MAC, 1, 2, 3, 4, 5, 6), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_MAC, 1, 2, 3, 4, 5, 6, 7, 8), ==, VIRTIO_NET_ERR);
}

static void test_ctrl_vlan(void)
{
    state_reset();
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_VLAN, 0, 0xff, 0x0f), ==, VIRTIO_NET_OK);
    g_assert_cmpint(state.filter.vlans[127] >> 31, ==, 1);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_VLAN, 1, 0xff, 0x0f), ==, VIRTIO_NET_OK);
    g_assert_cmpint(state.filter.vlans[127], ==, 0);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_VLAN, 0, 0x00, 0x10), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_VLAN, 0, 1), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_VLAN, 0, 1, 0, 0), ==, VIRTIO_NET_ERR);
}

static void test_ctrl_announce(void)
{
    state_reset();
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_ANNOUNCE, 0), ==, VIRTIO_NET_ERR); /* nothing to ack */
    state.announce = true;
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_ANNOUNCE, 0, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_ANNOUNCE, 0), ==, VIRTIO_NET_OK);
    g_assert_false(state.announce);
}

static void test_ctrl_offloads(void)
{
    state_reset();
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 0x82, 0, 0, 0, 0, 0, 0, 0), ==,
                    VIRTIO_NET_OK);
    g_assert_cmpint(changed, ==, VIRTIO_NET_CTRL_CHANGED_OFFLOADS);
    g_assert_cmphex(state.guest_offloads, ==, 0x82);
    /* GUEST_TSO6 was not negotiated; CTRL_VQ is no offload. */
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 0x02, 1, 0, 0, 0, 0, 0, 0), ==,
                    VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 0, 0, 2, 0, 0, 0, 0, 0), ==,
                    VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 2, 0, 0, 0), ==, VIRTIO_NET_ERR);
    g_assert_cmpint(RUN(VIRTIO_NET_CTRL_GUEST_OFFLOADS, 0, 0, 0, 0, 0, 0, 0, 0, 0), ==,
                    VIRTIO_NET_OK);
    g_assert_cmphex(state.guest_offloads, ==, 0);
}

/* --- features --- */

#define F(name) VIRTIO_FEATURE(VIRTIO_NET_F_##name)

static void test_config_length(void)
{
    g_assert_cmpint(virtio_net_config_length(F(MAC)), ==, 6);
    g_assert_cmpint(virtio_net_config_length(F(MAC) | F(STATUS)), ==, 8);
    g_assert_cmpint(virtio_net_config_length(F(STATUS) | F(MQ)), ==, 10);
    g_assert_cmpint(virtio_net_config_length(F(STATUS) | F(MTU)), ==, 12);
    g_assert_cmpint(virtio_net_config_length(F(SPEED_DUPLEX) | F(MTU)), ==, 17);
    g_assert_cmpint(virtio_net_config_length(F(RSS)), ==, 24);
    g_assert_cmpint(virtio_net_config_length(F(HASH_REPORT) | F(STATUS)), ==, 24);
    g_assert_cmpint(virtio_net_config_length(F(HASH_TUNNEL) | F(HASH_REPORT)), ==, 28);
}

static void test_features_masked(void)
{
    NetCaps caps = {0};
    VirtioFeatures all = ~(VirtioFeatures)0, got;

    /* Offloads without a header would be lies. */
    caps.offloads.csum = caps.offloads.tso4 = true;
    got = virtio_net_mask_features(all, &caps, false);
    g_assert_false(got & (F(CSUM) | F(GUEST_CSUM) | F(HOST_TSO4) | F(GUEST_TSO4) | F(GSO)));
    g_assert_true((got & F(MRG_RXBUF)) && (got & F(CTRL_VLAN)) && (got & F(STATUS)));
    g_assert_true((got & F(MQ)) && (got & F(RSS)) && (got & F(HASH_REPORT)));
    g_assert_false(got & F(RSC_EXT));
    g_assert_false(got & VIRTIO_FEATURE(67));

    caps.vnet_hdr = true;
    got = virtio_net_mask_features(all, &caps, false);
    g_assert_true((got & F(CSUM)) && (got & F(HOST_TSO4)) && (got & F(GUEST_TSO4)));
    g_assert_false(got & (F(HOST_TSO6) | F(HOST_ECN) | F(HOST_UFO) | F(HOST_USO) | F(GSO)));

    caps.offloads = (NetOffloads){.csum = true,
                                  .tso4 = true,
                                  .tso6 = true,
                                  .ecn = true,
                                  .ufo = true,
                                  .uso4 = true,
                                  .uso6 = true};
    got = virtio_net_mask_features(all, &caps, false);
    g_assert_true((got & F(GSO)) && (got & F(HOST_USO)) && (got & F(GUEST_USO6)));

    /* What a feature needs takes it along. */
    got = virtio_net_mask_features(all & ~F(CSUM), &caps, false);
    g_assert_false(got & (F(HOST_TSO4) | F(HOST_ECN) | F(HOST_UFO) | F(HOST_USO) | F(GSO)));
    g_assert_true(got & F(GUEST_TSO4));
    /* What the device does itself needs nothing of the peer. */
    got = virtio_net_mask_features(all & ~F(RSC_EXT), &(NetCaps){0}, true);
    g_assert_true((got & F(CSUM)) && (got & F(HOST_TSO4)) && (got & F(HOST_TSO6)) &&
                  (got & F(HOST_ECN)) && (got & F(HOST_USO)) && (got & F(GSO)));
    g_assert_false(got & (F(HOST_UFO) | F(GUEST_CSUM) | F(GUEST_TSO4)));
    got = virtio_net_mask_features(all, &(NetCaps){0}, true); /* coalescing makes large frames */
    g_assert_true((got & F(RSC_EXT)) && (got & F(GUEST_CSUM)) && (got & F(GUEST_TSO4)));
    g_assert_false(got & (F(GUEST_ECN) | F(GUEST_UFO)));
    got = virtio_net_mask_features(all & ~F(CSUM), &(NetCaps){0}, true);
    g_assert_false(got & (F(HOST_TSO4) | F(HOST_ECN) | F(HOST_USO)));
    got = virtio_net_mask_features(all & ~F(CTRL_VQ), &caps, false);
    g_assert_false(got & (F(CTRL_RX) | F(CTRL_VLAN) | F(GUEST_ANNOUNCE) | F(CTRL_GUEST_OFFLOADS)));
    got = virtio_net_mask_features(all & ~F(GUEST_TSO4), &caps, false);
    g_assert_true(got & F(GUEST_ECN));
    got = virtio_net_mask_features(all & ~F(GUEST_TSO4) & ~F(GUEST_TSO6), &caps, false);
    g_assert_false(got & F(GUEST_ECN));
}

static void test_offloads_from_features(void)
{
    NetOffloads o;

    virtio_net_offloads_to_peer((uint64_t)(F(GUEST_CSUM) | F(GUEST_TSO6) | F(GUEST_ECN)), &o);
    g_assert_true(o.csum && o.tso6 && o.ecn && !o.tso4 && !o.ufo);
    virtio_net_offloads_to_peer((uint64_t)(F(GUEST_TSO6) | F(GUEST_ECN) | F(GUEST_USO4)), &o);
    g_assert_false(o.csum || o.tso6 || o.ecn || o.uso4);
    virtio_net_offloads_to_peer((uint64_t)(F(GUEST_CSUM) | F(GUEST_ECN)), &o);
    g_assert_true(o.csum && !o.ecn);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rx-filter/reset-is-promiscuous", test_filter_reset);
    g_test_add_func("/rx-filter/modes", test_filter_modes);
    g_test_add_func("/rx-filter/vlan", test_filter_vlan);
    g_test_add_func("/rx-filter/info", test_filter_info);
    g_test_add_func("/ctrl/rx-modes", test_ctrl_rx_modes);
    g_test_add_func("/ctrl/bad-commands-change-nothing", test_ctrl_bad_commands);
    g_test_add_func("/ctrl/unnegotiated-command-is-refused", test_ctrl_needs_feature);
    g_test_add_func("/ctrl/mac-table-and-overflow", test_ctrl_mac_table);
    g_test_add_func("/ctrl/mac-table-bad-lengths", test_ctrl_mac_table_bad);
    g_test_add_func("/ctrl/mac-address", test_ctrl_mac_addr);
    g_test_add_func("/ctrl/vlan", test_ctrl_vlan);
    g_test_add_func("/ctrl/announce-ack", test_ctrl_announce);
    g_test_add_func("/ctrl/guest-offloads", test_ctrl_offloads);
    g_test_add_func("/features/config-length", test_config_length);
    g_test_add_func("/features/masked-by-peer-and-by-need", test_features_masked);
    g_test_add_func("/features/offloads-in-legal-combinations", test_offloads_from_features);
    return g_test_run();
}
