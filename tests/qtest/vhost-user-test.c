/*
 * -netdev vhost-user: the emulator's front end against a back end of our own, which moves frames
 * (tests/lib/vhost-user-backend.h).  What users of vhost-user rely on: negotiation, memory, rings
 * handed over and taken back, and several queue pairs.
 */
#include <linux/vhost_types.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/launch.h"
#include "tests/lib/vhost-user-rig.h"

#define COMMON_Q_RESET 58 /* virtio 1.2, 4.1.4.3: queue_reset */

static void test_moves_frames(void)
{
    VuRig vu = {0};

    vu_rig_start(&vu, NULL, "", NULL);
    for (unsigned i = 0; i < 100; i++) {
        vu_rig_expect_working(&vu);
    }
    launch_expect_info(vu.rig->emulator,
                       "nic0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:56\r\n"
                       " \\ n0: index=0,type=vhost-user,vhost-user0 to c0\r\n");
    vu_rig_close(&vu);
}

static void test_all_protocol_features(void)
{
    VuConfig config = {.protocol_features = VU_ALL_PROTOCOL,
                       .features = VU_FEATURES | 1ull << VIRTIO_NET_F_STATUS};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    vu_rig_expect_working(&vu);
    g_assert_cmphex(vu_lock(vu.backend)->protocol_features, ==, VU_ALL_PROTOCOL);
    vu_unlock(vu.backend);
    vu_rig_close(&vu);
}

/* A back end of old: no protocol features at all. */
static void test_no_protocol_features(void)
{
    VuConfig config = {.features = 1ull << VIRTIO_F_VERSION_1 | 1ull << VIRTIO_NET_F_MRG_RXBUF};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    vu_rig_expect_working(&vu);
    g_assert_cmpuint(vu_rig_count(&vu, VHOST_USER_GET_PROTOCOL_FEATURES), ==, 0);
    g_assert_cmpuint(vu_rig_count(&vu, VHOST_USER_SET_VRING_ENABLE), ==, 0);
    vu_rig_close(&vu);
}

static void test_features_are_masked(void)
{
    VuConfig config = {.features = VU_FEATURES | 1ull << VIRTIO_NET_F_CSUM};
    VuRig vu = {0};
    uint64_t offered;

    vu_rig_open(&vu, &config, "", NULL);
    rig_start(vu.rig);
    offered = vu.rig->virtio->device_features;
    g_assert_true(offered >> VIRTIO_NET_F_CSUM & 1);
    g_assert_true(offered >> VIRTIO_NET_F_MRG_RXBUF & 1);
    g_assert_true(offered >> VIRTIO_NET_F_CTRL_VQ & 1);
    g_assert_false(offered >> VIRTIO_NET_F_GUEST_CSUM & 1);
    g_assert_false(offered >> VIRTIO_NET_F_HOST_TSO4 & 1);
    g_assert_false(offered >> VIRTIO_RING_F_EVENT_IDX & 1);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    g_assert_cmphex(vu_lock(vu.backend)->features & 0xffffffff, ==,
                    1ull << VHOST_USER_F_PROTOCOL_FEATURES | 1ull << VIRTIO_NET_F_MRG_RXBUF);
    vu_unlock(vu.backend);
    vu_rig_close(&vu);
}

static void expect_guest_memory(VuRig *vu)
{
    uint8_t *mine = rig_at(vu->rig, 0, RIG_RAM_SIZE);
    VuState *s = vu_lock(vu->backend);

    g_assert_cmpuint(s->num_regions, ==, 1); /* RAM, and nothing else */
    g_assert_cmphex(s->regions[0].guest_addr, ==, 0);
    g_assert_cmphex(s->regions[0].size, ==, RIG_RAM_SIZE);
    mine[4711] = 0xa5;
    g_assert_cmphex(s->mapped[0][4711], ==, 0xa5);
    s->mapped[0][4711] = 0x5a;
    g_assert_cmphex(mine[4711], ==, 0x5a);
    vu_unlock(vu->backend);
}

static void test_shares_memory(void)
{
    VuRig vu = {0};

    vu_rig_start(&vu, NULL, "", NULL);
    expect_guest_memory(&vu);
    vu_rig_close(&vu);
}

static void test_memory_slots(void)
{
    VuConfig config = {.protocol_features = VU_P(CONFIGURE_MEM_SLOTS) | VU_P(REPLY_ACK)};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    expect_guest_memory(&vu);
    vu_rig_expect_working(&vu);
    g_assert_cmpuint(vu_rig_count(&vu, VHOST_USER_SET_MEM_TABLE), ==, 0);
    rig_restart(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    g_assert_cmpuint(vu_rig_count(&vu, VHOST_USER_ADD_MEM_REG), ==, 1);
    vu_rig_close(&vu);
}

static void test_intx(void)
{
    VuRig vu = {0};
    uint8_t frame[VU_FRAME], got[VU_FRAME];

    vu_rig_open(&vu, NULL, "", NULL);
    vu.rig->config.intx = true;
    rig_start(vu.rig);
    frame_fill(frame, VU_FRAME, 3);
    rig_send_frame(vu.rig, 0, frame, VU_FRAME);
    g_assert_cmpmem(got, vu_receive(vu.backend, got, VU_FRAME, VU_TIMEOUT_MS), frame, VU_FRAME);
    rig_settle(vu.rig);
    g_assert_cmpuint(virtio_driver_read_isr(vu.rig->virtio) & 1, ==, 1);
    vu_rig_close(&vu);
}

/* Notifications go to the back end by whichever register they come. */
static void test_without_ioeventfd(void)
{
    VuRig vu = {0};

    vu_rig_start(&vu, NULL, "", "ioeventfd=off");
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

static void test_stop_and_go(void)
{
    VuConfig config = {.protocol_features = VU_ALL_PROTOCOL};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    for (unsigned i = 0; i < 5; i++) {
        vu_rig_expect_working(&vu);
        launch_do(vu.rig->emulator, "stop", NULL);
        g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
        launch_do(vu.rig->emulator, "cont", NULL);
        g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    }
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

static void test_reset(void)
{
    VuConfig config = {.protocol_features = VU_P(RESET_DEVICE) | VU_P(REPLY_ACK)};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    for (unsigned i = 1; i < 4; i++) {
        vu_rig_expect_working(&vu);
        rig_restart(vu.rig);
        g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
        g_assert_cmpuint(vu_rig_count(&vu, VHOST_USER_RESET_DEVICE), ==, i);
    }
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

static void test_status(void)
{
    VuConfig config = {.protocol_features = VU_P(STATUS) | VU_P(REPLY_ACK)};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    vu_rig_expect_working(&vu);
    g_assert_cmphex(vu_lock(vu.backend)->status, ==, 0xf);
    vu_unlock(vu.backend);
    virtio_driver_reset(vu.rig->virtio, NULL);
    g_assert_cmphex(vu_lock(vu.backend)->status, ==, 0);
    vu_unlock(vu.backend);
    vu_rig_close(&vu);
}

static void reset_queue(VuRig *vu, unsigned index)
{
    guest_pci_bar_write(vu->rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_SELECT, index);
    guest_pci_bar_write(vu->rig->pci, 4, 2, COMMON_Q_RESET, 1);
}

/* One queue is reset and comes back while the other goes on. */
static void test_queue_reset(void)
{
    VuConfig config = {.features = VU_FEATURES | 1ull << VIRTIO_F_RING_RESET};
    VuRig vu = {0};

    vu_rig_open(&vu, &config, "", NULL);
    vu.rig->config.features |= 1ull << VIRTIO_F_RING_RESET;
    rig_start(vu.rig);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
        vu_rig_expect_working(&vu);
        reset_queue(&vu, RIG_TX);
        g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX & ~(1u << RIG_TX)));
        driver_queue_free(vu.rig->queues[RIG_TX]);
        vu.rig->queues[RIG_TX] = vu.rig->tx =
            virtio_driver_setup_queue(vu.rig->virtio, RIG_TX, 64, 1 + RIG_TX, NULL);
        g_assert_nonnull(vu.rig->tx);
    }
    vu_rig_close(&vu);
}

static void test_link(void)
{
    VuRig vu = {0};

    vu_rig_start(&vu, NULL, "", NULL);
    launch_do(vu.rig->emulator, "set_link", "{'name': 'n0', 'up': false}");
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    g_assert_false(vu_rig_link_is_up(&vu));
    launch_do(vu.rig->emulator, "set_link", "{'name': 'n0', 'up': true}");
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

/* The back end's configuration says that its cable is out. */
static void test_back_ends_link(void)
{
    VuConfig config = {.protocol_features = VU_P(CONFIG) | VU_P(BACKEND_REQ) | VU_P(REPLY_ACK),
                       .features = VU_FEATURES | 1ull << VIRTIO_NET_F_STATUS};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    vu_set_link(vu.backend, false);
    vu_rig_wait_link(&vu, false);
    vu_set_link(vu.backend, true);
    vu_rig_wait_link(&vu, true);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

static bool has_rarp(const VuState *state, uint64_t arg)
{
    static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

    return memcmp(state->rarp_mac, mac, sizeof(mac)) == 0;
}

static void test_rarp(void)
{
    VuConfig config = {.protocol_features = VU_P(RARP)};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", NULL);
    launch_do(vu.rig->emulator, "announce-self",
              "{'initial': 50, 'max': 550, 'rounds': 1, 'step': 50}");
    g_assert_true(vu_wait(vu.backend, has_rarp, 0));
    vu_rig_close(&vu);
}

static void test_mtu(void)
{
    VuConfig config = {.protocol_features = VU_P(NET_MTU) | VU_P(REPLY_ACK)};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", "host_mtu=9000");
    g_assert_cmpuint(vu_lock(vu.backend)->mtu, ==, 9000);
    vu_unlock(vu.backend);
    vu_rig_close(&vu);
}

static void test_mtu_needs_the_back_end(void)
{
    VuConfig config = {.protocol_features = VU_P(NET_MTU)};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, "", "host_mtu=9000,x-mtu-bypass-backend=off");
    g_assert_false(vu.rig->virtio->device_features >> VIRTIO_NET_F_MTU & 1);
    vu_rig_close(&vu);
}

/* One command of the control queue, with @size bytes of data: its answer. */
static uint8_t control(Rig *rig, DriverQueue *queue, uint8_t class, uint8_t cmd, const void *data,
                       uint32_t size)
{
    uint64_t addr = rig_alloc(rig, size + 3);
    uint8_t *bytes = rig_at(rig, addr, size + 3);

    bytes[0] = class;
    bytes[1] = cmd;
    memcpy(bytes + 2, data, size);
    bytes[size + 2] = 0xff;
    ring_chain(queue, 0,
               (RingPart[]){{addr, size + 2, 0}, {addr + size + 2, 1, VRING_DESC_F_WRITE}}, 2);
    ring_send(rig, queue, 0);
    ring_take(rig, queue);
    return bytes[size + 2];
}

/* The driver switches a receive offload off: the back end is told, standing still. */
static void test_guest_offloads(void)
{
    uint64_t wanted = 1ull << VIRTIO_NET_F_GUEST_CSUM | 1ull << VIRTIO_NET_F_CTRL_VQ |
                      1ull << VIRTIO_NET_F_CTRL_GUEST_OFFLOADS;
    VuConfig config = {.features = VU_FEATURES | 1ull << VIRTIO_NET_F_GUEST_CSUM};
    VuRig vu = {0};
    uint64_t none = 0;
    Rig *rig;

    vu_rig_open(&vu, &config, "", NULL);
    rig = vu.rig;
    rig->config.features |= wanted;
    rig_start(rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    g_assert_true(vu_lock(vu.backend)->features >> VIRTIO_NET_F_GUEST_CSUM & 1);
    vu_unlock(vu.backend);
    g_assert_cmpuint(control(rig, rig->queues[RIG_CTRL], VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                             VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET, &none, sizeof(none)),
                     ==, VIRTIO_NET_OK);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    g_assert_false(vu_lock(vu.backend)->features >> VIRTIO_NET_F_GUEST_CSUM & 1);
    vu_unlock(vu.backend);
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

static bool has_new_rarp(const VuState *state, uint64_t arg)
{
    static const uint8_t mac[6] = {0x02, 0, 0, 0, 0, 0x07};

    return memcmp(state->rarp_mac, mac, sizeof(mac)) == 0;
}

/* What the guest says of addresses and VLANs is kept here and shown; the back end filters as it
 * likes, and announcements carry the new address. */
static void test_guest_filter(void)
{
    VuConfig config = {.protocol_features = VU_P(RARP)};
    VuRig vu = {0};
    const uint8_t mac[6] = {0x02, 0, 0, 0, 0, 0x07};
    const uint16_t vlan = 5;
    DriverQueue *ctrl;
    json_object *list, *info, *vlans;

    vu_rig_open(&vu, &config, "", NULL);
    vu.rig->config.features |= 1ull << VIRTIO_NET_F_CTRL_VQ | 1ull << VIRTIO_NET_F_CTRL_VLAN |
                               1ull << VIRTIO_NET_F_CTRL_MAC_ADDR;
    rig_start(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    ctrl = vu.rig->queues[RIG_CTRL];
    g_assert_cmpuint(
        control(vu.rig, ctrl, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_ADDR_SET, mac, sizeof(mac)),
        ==, VIRTIO_NET_OK);
    g_assert_cmpuint(
        control(vu.rig, ctrl, VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, &vlan, sizeof(vlan)),
        ==, VIRTIO_NET_OK);
    list = launch_qmp(vu.rig->emulator, "query-rx-filter", NULL);
    info = json_object_array_get_idx(list, 0);
    g_assert_cmpstr(launch_string(info, "main-mac"), ==, "02:00:00:00:00:07");
    vlans = launch_member(info, "vlan-table");
    g_assert_cmpuint(json_object_array_length(vlans), ==, 1);
    g_assert_cmpint(json_object_get_int(json_object_array_get_idx(vlans, 0)), ==, vlan);
    json_object_put(list);
    vu_rig_expect_working(&vu);
    launch_do(vu.rig->emulator, "announce-self",
              "{'initial': 50, 'max': 550, 'rounds': 1, 'step': 50}");
    g_assert_true(vu_wait(vu.backend, has_new_rarp, 0));
    vu_rig_close(&vu);
}

static void test_iothread(void)
{
    VuRig vu = {0};

    vu_rig_make_dir(&vu);
    vu.backend = vu_backend_new(vu.path, NULL);

    g_autofree char *spec = g_strdup_printf("socket,id=c0,path=%s", vu.path);
    const char *args[] = {"-chardev", spec, "-object", "iothread,id=io0", NULL};
    RigConfig rig = {
        .netdev = "vhost-user,id=n0,chardev=c0",
        .args = args,
        .device = "iothread=io0",
        .features = 1ull << VIRTIO_NET_F_MRG_RXBUF,
    };

    vu.rig = rig_new(&rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    launch_do(vu.rig->emulator, "stop", NULL);
    launch_do(vu.rig->emulator, "cont", NULL);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

/* The ring's error eventfd: the device asks for a reset, after which it works. */
static void test_broken_ring(void)
{
    VuRig vu = {0};

    vu_rig_start(&vu, NULL, "", NULL);
    vu_break_vring(vu.backend, RIG_TX);
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    g_assert_true(virtio_driver_status(vu.rig->virtio) & VIRTIO_CONFIG_S_NEEDS_RESET);
    rig_restart(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

/* --- several queue pairs --- */

#define PAIRS 3

static void set_pairs(Rig *rig, DriverQueue *ctrl, uint16_t pairs)
{
    g_assert_cmpuint(control(rig, ctrl, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, &pairs,
                             sizeof(pairs)),
                     ==, VIRTIO_NET_OK);
}

static void open_multiqueue(VuRig *vu, const VuConfig *config)
{
    vu_rig_make_dir(vu);
    vu->backend = vu_backend_new(vu->path, config);

    g_autofree char *spec = g_strdup_printf("socket,id=c0,path=%s,server=on", vu->path);
    const char *args[] = {"-chardev", spec, NULL};
    RigConfig rig = {
        .netdev = "vhost-user,id=n0,chardev=c0,queues=3",
        .args = args,
        .device = "mq=on",
    };

    vu->rig = rig_open(&rig);
}

/* DRIVER_OK starts all pairs, and those in use are enabled. */
static void test_multiqueue(void)
{
    VuConfig config = {.client = true,
                       .queues = PAIRS,
                       .features = VU_FEATURES | 1ull << VIRTIO_NET_F_MQ,
                       .protocol_features = VU_P(MQ) | VU_P(REPLY_ACK)};
    VuRig vu = {0};
    DriverQueue *queues[2 * PAIRS + 1];
    VirtioDriver *d;

    open_multiqueue(&vu, &config);
    d = vu.rig->virtio;
    g_assert_true(virtio_driver_negotiate(
        d, 1ull << VIRTIO_F_VERSION_1 | 1ull << VIRTIO_NET_F_MQ | 1ull << VIRTIO_NET_F_CTRL_VQ,
        NULL));
    g_assert_true(virtio_driver_has_feature(d, VIRTIO_NET_F_MQ));
    for (uint16_t i = 0; i < G_N_ELEMENTS(queues); i++) {
        queues[i] = virtio_driver_setup_queue(d, i, 64, 0xffff, NULL);
        g_assert_nonnull(queues[i]);
    }
    virtio_driver_start(d, NULL);
    g_assert_true(vu_wait(vu.backend, vu_is_started, (1u << 2 * PAIRS) - 1));
    g_assert_true(vu_wait(vu.backend, vu_is_enabled, 0x3));
    set_pairs(vu.rig, queues[2 * PAIRS], PAIRS);
    g_assert_true(vu_wait(vu.backend, vu_is_enabled, (1u << 2 * PAIRS) - 1));
    set_pairs(vu.rig, queues[2 * PAIRS], 2);
    g_assert_true(vu_wait(vu.backend, vu_is_enabled, 0xf));
    /* What is in use is in use after a new connection too. */
    vu_disconnect(vu.backend);
    g_assert_true(vu_wait(vu.backend, vu_has_connections, 2));
    g_assert_true(vu_wait(vu.backend, vu_is_started, (1u << 2 * PAIRS) - 1));
    g_assert_true(vu_wait(vu.backend, vu_is_enabled, 0xf));
    virtio_driver_reset(d, NULL);
    for (uint16_t i = 0; i < G_N_ELEMENTS(queues); i++) {
        driver_queue_free(queues[i]);
    }
    vu_rig_close(&vu);
}

/* A driver without MQ: one pair is handed over, and queue 2 is the control queue. */
static void test_multiqueue_not_accepted(void)
{
    VuConfig config = {.client = true,
                       .queues = PAIRS,
                       .features = VU_FEATURES | 1ull << VIRTIO_NET_F_MQ,
                       .protocol_features = VU_P(MQ)};
    VuRig vu = {0};

    open_multiqueue(&vu, &config);
    vu.rig->config.features = 1ull << VIRTIO_NET_F_CTRL_VQ | 1ull << VIRTIO_NET_F_CTRL_RX |
                              1ull << VIRTIO_NET_F_MRG_RXBUF;
    rig_start(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    g_assert_cmpuint(control(vu.rig, vu.rig->queues[RIG_CTRL], VIRTIO_NET_CTRL_RX,
                             VIRTIO_NET_CTRL_RX_PROMISC, "\1", 1),
                     ==, VIRTIO_NET_OK);
    vu_rig_close(&vu);
}

static void test_too_few_queues(void)
{
    VuConfig config = {.queues = 2, .protocol_features = VU_P(MQ)};
    VuRig vu = {0};

    vu_rig_make_dir(&vu);
    vu.backend = vu_backend_new(vu.path, &config);

    Emulator *e = launch(NULL, "-nodefaults -chardev socket,id=c0,path=%s", vu.path);
    g_autofree char *text = launch_fails(
        e, "netdev_add", "{'type': 'vhost-user', 'id': 'n1', 'chardev': 'c0', 'queues': 3}");

    g_assert_cmpstr(text, ==, "netdev 'n1': queues=3, but the vhost-user back end has 2");
    launch_quit(e);
    vu_backend_free(vu.backend);
    rmdir(vu.dir);
    g_free(vu.dir);
    g_free(vu.path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vhost-user/moves-frames", test_moves_frames);
    g_test_add_func("/vhost-user/all-protocol-features", test_all_protocol_features);
    g_test_add_func("/vhost-user/no-protocol-features", test_no_protocol_features);
    g_test_add_func("/vhost-user/features-are-masked", test_features_are_masked);
    g_test_add_func("/vhost-user/shares-memory", test_shares_memory);
    g_test_add_func("/vhost-user/memory-slots", test_memory_slots);
    g_test_add_func("/vhost-user/intx", test_intx);
    g_test_add_func("/vhost-user/without-ioeventfd", test_without_ioeventfd);
    g_test_add_func("/vhost-user/stop-and-go", test_stop_and_go);
    g_test_add_func("/vhost-user/reset", test_reset);
    g_test_add_func("/vhost-user/status", test_status);
    g_test_add_func("/vhost-user/queue-reset", test_queue_reset);
    g_test_add_func("/vhost-user/link", test_link);
    g_test_add_func("/vhost-user/back-ends-link", test_back_ends_link);
    g_test_add_func("/vhost-user/rarp", test_rarp);
    g_test_add_func("/vhost-user/mtu", test_mtu);
    g_test_add_func("/vhost-user/mtu-needs-the-back-end", test_mtu_needs_the_back_end);
    g_test_add_func("/vhost-user/guest-offloads", test_guest_offloads);
    g_test_add_func("/vhost-user/guest-filter", test_guest_filter);
    g_test_add_func("/vhost-user/iothread", test_iothread);
    g_test_add_func("/vhost-user/broken-ring", test_broken_ring);
    g_test_add_func("/vhost-user/multiqueue", test_multiqueue);
    g_test_add_func("/vhost-user/multiqueue-not-accepted", test_multiqueue_not_accepted);
    g_test_add_func("/vhost-user/too-few-queues", test_too_few_queues);
    return g_test_run();
}
