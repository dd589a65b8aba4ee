/*
 * -netdev vhost-user: the emulator's front end against a back end of our own, which moves frames
 * (tests/lib/vhost-user-backend.h).  What users of vhost-user rely on: negotiation, memory, rings
 * handed over and taken back, reconnection in every order, and back ends that misbehave.
 */
#include <linux/vhost_types.h>
#include <linux/virtio_net.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/launch.h"
#include "tests/lib/rig.h"
#include "tests/lib/vhost-user-backend.h"

#define RX_TX          0x3u /* vrings of one queue pair */
#define COMMON_Q_RESET 58   /* virtio 1.2, 4.1.4.3: queue_reset */
#define FRAME          100
#define BUFFER         2048
#define P(name)        (1ull << VHOST_USER_PROTOCOL_F_##name)
#define ALL_PROTOCOL                                                                               \
    (P(MQ) | P(LOG_SHMFD) | P(RARP) | P(REPLY_ACK) | P(NET_MTU) | P(BACKEND_REQ) | P(CONFIG) |     \
     P(INFLIGHT_SHMFD) | P(RESET_DEVICE))

typedef struct Vu {
    char *dir, *path;
    VuBackend *backend;
    Rig *rig;
} Vu;

static void make_dir(Vu *vu)
{
    vu->dir = g_dir_make_tmp("vhost-user-XXXXXX", NULL);
    g_assert_nonnull(vu->dir);
    vu->path = g_build_filename(vu->dir, "s", NULL);
}

/* A rig whose netdev is the back end's; @chardev: further options, @device as in RigConfig. */
static void open_rig(Vu *vu, const VuConfig *config, const char *chardev, const char *device)
{
    make_dir(vu);
    vu->backend = vu_backend_new(vu->path, config);

    g_autofree char *spec = g_strdup_printf("socket,id=c0,path=%s%s", vu->path, chardev);
    const char *args[] = {"-chardev", spec, NULL};
    RigConfig rig = {
        .netdev = "vhost-user,id=n0,chardev=c0,vhostforce=on",
        .args = args,
        .device = device,
        .features = 1ull << VIRTIO_NET_F_MRG_RXBUF | 1ull << VIRTIO_NET_F_MTU,
    };

    vu->rig = rig_open(&rig);
    vu->rig->config.args = NULL;
}

static void open_started(Vu *vu, const VuConfig *config, const char *chardev, const char *device)
{
    open_rig(vu, config, chardev, device);
    rig_start(vu->rig);
    g_assert_true(vu_wait(vu->backend, vu_is_started, RX_TX));
}

static void close_rig(Vu *vu)
{
    rig_free(vu->rig);
    vu_backend_free(vu->backend);
    rmdir(vu->dir);
    g_free(vu->dir);
    g_free(vu->path);
}

/* A frame each way, and the interrupt of the one that came. */
static void expect_working(Vu *vu)
{
    static uint16_t next;
    uint8_t sent[FRAME], got[BUFFER];
    Rig *rig = vu->rig;
    uint16_t at = next++ % 64;

    frame_fill(sent, FRAME, at);
    rig_send_frame(rig, at, sent, FRAME);
    g_assert_cmpmem(got, vu_receive(vu->backend, got, sizeof(got), VU_TIMEOUT_MS), sent, FRAME);

    uint64_t buffer = rig_post_buffer(rig, at, BUFFER);

    g_assert_true(vu_send(vu->backend, RIG_RX, sent, FRAME));
    struct vring_used_elem used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.id, ==, at);
    g_assert_cmpuint(used.len, ==, FRAME + RIG_HDR);
    g_assert_cmpmem(rig_at(rig, buffer + RIG_HDR, FRAME), FRAME, sent, FRAME);
    for (unsigned ms = 0; !virtio_driver_take_interrupt(rig->virtio, 1 + RIG_RX); ms++) {
        g_assert_cmpuint(ms, <, RIG_TIMEOUT_MS);
        rig_settle(rig);
        g_usleep(1000);
    }
}

static unsigned count_of(Vu *vu, unsigned request)
{
    unsigned count = vu_lock(vu->backend)->messages[request];

    vu_unlock(vu->backend);
    return count;
}

static bool has_message(const VuState *state, uint64_t request)
{
    return state->messages[request] > 0;
}

static bool link_is_up(Vu *vu)
{
    return virtio_driver_config_read(vu->rig->virtio, 2,
                                     offsetof(struct virtio_net_config, status)) &
           VIRTIO_NET_S_LINK_UP;
}

static void wait_link(Vu *vu, bool up)
{
    for (unsigned ms = 0; link_is_up(vu) != up; ms++) {
        g_assert_cmpuint(ms, <, RIG_TIMEOUT_MS);
        g_usleep(1000);
    }
}

/* --- what works --- */

static void test_moves_frames(void)
{
    Vu vu = {0};

    open_started(&vu, NULL, "", NULL);
    for (unsigned i = 0; i < 100; i++) {
        expect_working(&vu);
    }
    launch_expect_info(vu.rig->emulator,
                       "nic0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:56\r\n"
                       " \\ n0: index=0,type=vhost-user,vhost-user0 to c0\r\n");
    close_rig(&vu);
}

static void test_all_protocol_features(void)
{
    VuConfig config = {.protocol_features = ALL_PROTOCOL,
                       .features = VU_FEATURES | 1ull << VIRTIO_NET_F_STATUS};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    expect_working(&vu);
    g_assert_cmphex(vu_lock(vu.backend)->protocol_features, ==, ALL_PROTOCOL);
    vu_unlock(vu.backend);
    close_rig(&vu);
}

/* A back end of old: no protocol features at all. */
static void test_no_protocol_features(void)
{
    VuConfig config = {.features = 1ull << VIRTIO_F_VERSION_1 | 1ull << VIRTIO_NET_F_MRG_RXBUF};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    expect_working(&vu);
    g_assert_cmpuint(count_of(&vu, VHOST_USER_GET_PROTOCOL_FEATURES), ==, 0);
    g_assert_cmpuint(count_of(&vu, VHOST_USER_SET_VRING_ENABLE), ==, 0);
    close_rig(&vu);
}

static void test_features_are_masked(void)
{
    VuConfig config = {.features = VU_FEATURES | 1ull << VIRTIO_NET_F_CSUM};
    Vu vu = {0};
    uint64_t offered;

    open_rig(&vu, &config, "", NULL);
    rig_start(vu.rig);
    offered = vu.rig->virtio->device_features;
    g_assert_true(offered >> VIRTIO_NET_F_CSUM & 1);
    g_assert_true(offered >> VIRTIO_NET_F_MRG_RXBUF & 1);
    g_assert_true(offered >> VIRTIO_NET_F_CTRL_VQ & 1);
    g_assert_false(offered >> VIRTIO_NET_F_GUEST_CSUM & 1);
    g_assert_false(offered >> VIRTIO_NET_F_HOST_TSO4 & 1);
    g_assert_false(offered >> VIRTIO_RING_F_EVENT_IDX & 1);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    g_assert_cmphex(vu_lock(vu.backend)->features & 0xffffffff, ==,
                    1ull << VHOST_USER_F_PROTOCOL_FEATURES | 1ull << VIRTIO_NET_F_MRG_RXBUF);
    vu_unlock(vu.backend);
    close_rig(&vu);
}

static void expect_guest_memory(Vu *vu)
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
    Vu vu = {0};

    open_started(&vu, NULL, "", NULL);
    expect_guest_memory(&vu);
    close_rig(&vu);
}

static void test_memory_slots(void)
{
    VuConfig config = {.protocol_features = P(CONFIGURE_MEM_SLOTS) | P(REPLY_ACK)};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    expect_guest_memory(&vu);
    expect_working(&vu);
    g_assert_cmpuint(count_of(&vu, VHOST_USER_SET_MEM_TABLE), ==, 0);
    rig_restart(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    g_assert_cmpuint(count_of(&vu, VHOST_USER_ADD_MEM_REG), ==, 1);
    close_rig(&vu);
}

static void test_intx(void)
{
    Vu vu = {0};
    uint8_t frame[FRAME], got[FRAME];

    open_rig(&vu, NULL, "", NULL);
    vu.rig->config.intx = true;
    rig_start(vu.rig);
    frame_fill(frame, FRAME, 3);
    rig_send_frame(vu.rig, 0, frame, FRAME);
    g_assert_cmpmem(got, vu_receive(vu.backend, got, FRAME, VU_TIMEOUT_MS), frame, FRAME);
    rig_settle(vu.rig);
    g_assert_cmpuint(virtio_driver_read_isr(vu.rig->virtio) & 1, ==, 1);
    close_rig(&vu);
}

/* Notifications go to the back end by whichever register they come. */
static void test_without_ioeventfd(void)
{
    Vu vu = {0};

    open_started(&vu, NULL, "", "ioeventfd=off");
    expect_working(&vu);
    close_rig(&vu);
}

static void test_stop_and_go(void)
{
    VuConfig config = {.protocol_features = ALL_PROTOCOL};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    for (unsigned i = 0; i < 5; i++) {
        expect_working(&vu);
        launch_do(vu.rig->emulator, "stop", NULL);
        g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
        launch_do(vu.rig->emulator, "cont", NULL);
        g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    }
    expect_working(&vu);
    close_rig(&vu);
}

static void test_reset(void)
{
    VuConfig config = {.protocol_features = P(RESET_DEVICE) | P(REPLY_ACK)};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    for (unsigned i = 1; i < 4; i++) {
        expect_working(&vu);
        rig_restart(vu.rig);
        g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
        g_assert_cmpuint(count_of(&vu, VHOST_USER_RESET_DEVICE), ==, i);
    }
    expect_working(&vu);
    close_rig(&vu);
}

static void test_status(void)
{
    VuConfig config = {.protocol_features = P(STATUS) | P(REPLY_ACK)};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    expect_working(&vu);
    g_assert_cmphex(vu_lock(vu.backend)->status, ==, 0xf);
    vu_unlock(vu.backend);
    virtio_driver_reset(vu.rig->virtio, NULL);
    g_assert_cmphex(vu_lock(vu.backend)->status, ==, 0);
    vu_unlock(vu.backend);
    close_rig(&vu);
}

static void reset_queue(Vu *vu, unsigned index)
{
    guest_pci_bar_write(vu->rig->pci, 4, 2, VIRTIO_PCI_COMMON_Q_SELECT, index);
    guest_pci_bar_write(vu->rig->pci, 4, 2, COMMON_Q_RESET, 1);
}

/* One queue is reset and comes back while the other goes on. */
static void test_queue_reset(void)
{
    VuConfig config = {.features = VU_FEATURES | 1ull << VIRTIO_F_RING_RESET};
    Vu vu = {0};

    open_rig(&vu, &config, "", NULL);
    vu.rig->config.features |= 1ull << VIRTIO_F_RING_RESET;
    rig_start(vu.rig);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
        expect_working(&vu);
        reset_queue(&vu, RIG_TX);
        g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX & ~(1u << RIG_TX)));
        driver_queue_free(vu.rig->queues[RIG_TX]);
        vu.rig->queues[RIG_TX] = vu.rig->tx =
            virtio_driver_setup_queue(vu.rig->virtio, RIG_TX, 64, 1 + RIG_TX, NULL);
        g_assert_nonnull(vu.rig->tx);
    }
    close_rig(&vu);
}

static void test_link(void)
{
    Vu vu = {0};

    open_started(&vu, NULL, "", NULL);
    launch_do(vu.rig->emulator, "set_link", "{'name': 'n0', 'up': false}");
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    g_assert_false(link_is_up(&vu));
    launch_do(vu.rig->emulator, "set_link", "{'name': 'n0', 'up': true}");
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    close_rig(&vu);
}

/* The back end's configuration says that its cable is out. */
static void test_back_ends_link(void)
{
    VuConfig config = {.protocol_features = P(CONFIG) | P(BACKEND_REQ) | P(REPLY_ACK),
                       .features = VU_FEATURES | 1ull << VIRTIO_NET_F_STATUS};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    vu_set_link(vu.backend, false);
    wait_link(&vu, false);
    vu_set_link(vu.backend, true);
    wait_link(&vu, true);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    close_rig(&vu);
}

static bool has_rarp(const VuState *state, uint64_t arg)
{
    static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

    return memcmp(state->rarp_mac, mac, sizeof(mac)) == 0;
}

static void test_rarp(void)
{
    VuConfig config = {.protocol_features = P(RARP)};
    Vu vu = {0};

    open_started(&vu, &config, "", NULL);
    launch_do(vu.rig->emulator, "announce-self",
              "{'initial': 50, 'max': 550, 'rounds': 1, 'step': 50}");
    g_assert_true(vu_wait(vu.backend, has_rarp, 0));
    close_rig(&vu);
}

static void test_mtu(void)
{
    VuConfig config = {.protocol_features = P(NET_MTU) | P(REPLY_ACK)};
    Vu vu = {0};

    open_started(&vu, &config, "", "host_mtu=9000");
    g_assert_cmpuint(vu_lock(vu.backend)->mtu, ==, 9000);
    vu_unlock(vu.backend);
    close_rig(&vu);
}

static void test_mtu_needs_the_back_end(void)
{
    VuConfig config = {.protocol_features = P(NET_MTU)};
    Vu vu = {0};

    open_started(&vu, &config, "", "host_mtu=9000,x-mtu-bypass-backend=off");
    g_assert_false(vu.rig->virtio->device_features >> VIRTIO_NET_F_MTU & 1);
    close_rig(&vu);
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
    Vu vu = {0};
    uint64_t none = 0;
    Rig *rig;

    open_rig(&vu, &config, "", NULL);
    rig = vu.rig;
    rig->config.features |= wanted;
    rig_start(rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    g_assert_true(vu_lock(vu.backend)->features >> VIRTIO_NET_F_GUEST_CSUM & 1);
    vu_unlock(vu.backend);
    g_assert_cmpuint(control(rig, rig->queues[RIG_CTRL], VIRTIO_NET_CTRL_GUEST_OFFLOADS,
                             VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET, &none, sizeof(none)),
                     ==, VIRTIO_NET_OK);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    g_assert_false(vu_lock(vu.backend)->features >> VIRTIO_NET_F_GUEST_CSUM & 1);
    vu_unlock(vu.backend);
    expect_working(&vu);
    close_rig(&vu);
}

static void test_iothread(void)
{
    Vu vu = {0};

    make_dir(&vu);
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
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    launch_do(vu.rig->emulator, "stop", NULL);
    launch_do(vu.rig->emulator, "cont", NULL);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    close_rig(&vu);
}

/* The ring's error eventfd: the device asks for a reset, after which it works. */
static void test_broken_ring(void)
{
    Vu vu = {0};

    open_started(&vu, NULL, "", NULL);
    vu_break_vring(vu.backend, RIG_TX);
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    g_assert_true(virtio_driver_status(vu.rig->virtio) & VIRTIO_CONFIG_S_NEEDS_RESET);
    rig_restart(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    close_rig(&vu);
}

/* --- several queue pairs --- */

#define PAIRS 3

static void set_pairs(Rig *rig, DriverQueue *ctrl, uint16_t pairs)
{
    g_assert_cmpuint(control(rig, ctrl, VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, &pairs,
                             sizeof(pairs)),
                     ==, VIRTIO_NET_OK);
}

static void open_multiqueue(Vu *vu, const VuConfig *config)
{
    make_dir(vu);
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
                       .protocol_features = P(MQ) | P(REPLY_ACK)};
    Vu vu = {0};
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
    close_rig(&vu);
}

/* A driver without MQ: one pair is handed over, and queue 2 is the control queue. */
static void test_multiqueue_not_accepted(void)
{
    VuConfig config = {.client = true,
                       .queues = PAIRS,
                       .features = VU_FEATURES | 1ull << VIRTIO_NET_F_MQ,
                       .protocol_features = P(MQ)};
    Vu vu = {0};

    open_multiqueue(&vu, &config);
    vu.rig->config.features = 1ull << VIRTIO_NET_F_CTRL_VQ | 1ull << VIRTIO_NET_F_CTRL_RX |
                              1ull << VIRTIO_NET_F_MRG_RXBUF;
    rig_start(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    g_assert_cmpuint(control(vu.rig, vu.rig->queues[RIG_CTRL], VIRTIO_NET_CTRL_RX,
                             VIRTIO_NET_CTRL_RX_PROMISC, "\1", 1),
                     ==, VIRTIO_NET_OK);
    close_rig(&vu);
}

static void test_too_few_queues(void)
{
    VuConfig config = {.queues = 2, .protocol_features = P(MQ)};
    Vu vu = {0};

    make_dir(&vu);
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

/* --- connections --- */

static void test_reconnect(gconstpointer data)
{
    bool emulator_listens = GPOINTER_TO_INT(data);
    VuConfig config = {.client = emulator_listens, .protocol_features = ALL_PROTOCOL};
    Vu vu = {0};
    uint64_t inflight;

    open_started(&vu, &config, emulator_listens ? ",server=on" : ",reconnect-ms=20", NULL);
    expect_working(&vu);
    inflight = vu_lock(vu.backend)->inflight_inode;
    vu_unlock(vu.backend);
    g_assert_cmpuint(inflight, !=, 0);
    for (unsigned i = 2; i < 5; i++) {
        vu_set_available(vu.backend, false);
        vu_disconnect(vu.backend);
        wait_link(&vu, false);
        vu_set_available(vu.backend, true);
        g_assert_true(vu_wait(vu.backend, vu_has_connections, i));
        g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
        wait_link(&vu, true);
        /* What the back end before left undone is handed to the next. */
        g_assert_cmpuint(vu_lock(vu.backend)->inflight_inode, ==, inflight);
        vu_unlock(vu.backend);
        expect_working(&vu);
    }
    close_rig(&vu);
}

/* Frames that the driver sends while nobody is there wait for the next back end. */
static void test_nothing_lost_meanwhile(void)
{
    VuConfig config = {.client = true};
    Vu vu = {0};
    uint8_t frame[FRAME], got[FRAME];
    uint64_t buffer;

    open_started(&vu, &config, ",server=on", NULL);
    expect_working(&vu);
    vu_set_available(vu.backend, false);
    vu_disconnect(vu.backend);
    wait_link(&vu, false);
    buffer = rig_alloc(vu.rig, FRAME + RIG_HDR);
    frame_fill(frame, FRAME, 77);
    memcpy(rig_at(vu.rig, buffer + RIG_HDR, FRAME), frame, FRAME);
    ring_set(vu.rig->tx, 99, buffer, FRAME + RIG_HDR, 0, 0);
    ring_send(vu.rig, vu.rig->tx, 99);
    rig_settle(vu.rig);
    g_assert_cmpuint(ring_used_count(vu.rig->tx), ==, 0);
    vu_set_available(vu.backend, true);
    g_assert_cmpmem(got, vu_receive(vu.backend, got, FRAME, VU_TIMEOUT_MS), frame, FRAME);
    g_assert_cmpuint(ring_take(vu.rig, vu.rig->tx).id, ==, 99);
    expect_working(&vu);
    close_rig(&vu);
}

/* The driver resets, and starts anew, while there is no back end. */
static void test_restart_while_away(void)
{
    VuConfig config = {.client = true, .protocol_features = ALL_PROTOCOL};
    Vu vu = {0};

    open_started(&vu, &config, ",server=on", NULL);
    expect_working(&vu);
    vu_set_available(vu.backend, false);
    vu_disconnect(vu.backend);
    wait_link(&vu, false);
    rig_restart(vu.rig);
    vu_set_available(vu.backend, true);
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    close_rig(&vu);
}

static void start_after(const VuMode *modes, unsigned connections)
{
    VuConfig config = {.client = true, .modes = modes};
    Vu vu = {0};

    open_started(&vu, &config, ",server=on", NULL);
    g_assert_true(vu_wait(vu.backend, vu_has_connections, connections));
    expect_working(&vu);
    close_rig(&vu);
}

/* The first connection fails at its first message, the next has no features: the third is used. */
static void test_connect_fail(void)
{
    start_after((VuMode[]){VU_CLOSE_AT_ONCE, VU_NO_FEATURES, VU_NORMAL}, 3);
}

static void test_bad_answers(void)
{
    start_after((VuMode[]){VU_WRONG_ANSWER, VU_HUGE_ANSWER, VU_HALF_ANSWER, VU_NORMAL}, 4);
}

/* After the guest was offered features, a back end with fewer, or none, is refused. */
static void test_flags_mismatch(void)
{
    static const VuMode modes[] = {VU_UNASKED, VU_NO_FEATURES, VU_FEWER_FEATURES, VU_CLOSE_AT_ONCE,
                                   VU_NORMAL};
    VuConfig config = {.client = true, .modes = modes};
    Vu vu = {0};

    /* The first connection works until what was not asked for is read. */
    open_rig(&vu, &config, ",server=on", NULL);
    rig_start(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_has_connections, 5));
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    wait_link(&vu, true);
    expect_working(&vu);
    close_rig(&vu);
}

static void test_refused_memory(void)
{
    static const VuMode modes[] = {VU_REFUSE_MEMORY, VU_NORMAL};
    VuConfig config = {.client = true, .modes = modes, .protocol_features = P(REPLY_ACK)};
    Vu vu = {0};

    open_rig(&vu, &config, ",server=on", NULL);
    rig_start(vu.rig);
    g_assert_true(vu_wait(vu.backend, has_message, VHOST_USER_SET_MEM_TABLE));
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    rig_settle(vu.rig);
    vu_disconnect(vu.backend);
    g_assert_true(vu_wait(vu.backend, vu_has_connections, 2));
    g_assert_true(vu_wait(vu.backend, vu_is_started, RX_TX));
    expect_working(&vu);
    close_rig(&vu);
}

/* One that does not answer costs its connection, after a while. */
static void test_silent(void)
{
    start_after((VuMode[]){VU_SILENT, VU_NORMAL}, 2);
}

/* --- migration --- */

/* To another emulator with a back end of its own, which goes on where the first one stopped. */
static void test_migrate(void)
{
    VuConfig config = {.protocol_features = ALL_PROTOCOL};
    Vu vu = {0};
    VuBackend *second;

    open_started(&vu, &config, "", NULL);
    for (unsigned i = 0; i < 7; i++) {
        expect_working(&vu);
    }

    g_autofree char *path = g_build_filename(vu.dir, "2", NULL);
    g_autofree char *stream = g_build_filename(vu.dir, "stream", NULL);

    launch_do(vu.rig->emulator, "migrate", "{'uri': 'file:%s'}", stream);
    launch_wait_migrated(vu.rig->emulator);
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    /* What the back end wrote meanwhile it logged. */
    g_assert_cmpuint(count_of(&vu, VHOST_USER_SET_LOG_BASE), ==, 1);
    g_assert_true(vu_lock(vu.backend)->features >> VHOST_F_LOG_ALL & 1);
    vu_unlock(vu.backend);

    second = vu_backend_new(path, &config);

    /* RAM has the name that the rig's has (guest/emulator.c). */
    Emulator *e = launch(NULL,
                         "-nodefaults -object memory-backend-memfd,id=swnicram,size=128M "
                         "-machine pc,memory-backend=swnicram -chardev socket,id=c0,path=%s "
                         "-netdev vhost-user,id=n0,chardev=c0 "
                         "-device virtio-net-pci,id=nic0,addr=04.0,romfile=,netdev=n0 "
                         "-incoming defer",
                         path);
    launch_do(e, "migrate-incoming", "{'uri': 'file:%s'}", stream);
    launch_wait_migrated(e);
    launch_do(e, "cont", NULL);
    g_assert_true(vu_wait(second, vu_is_started, RX_TX));
    g_assert_cmpuint(vu_lock(second)->vrings[RIG_RX].base, ==, 7);
    vu_unlock(second);
    g_assert_cmpuint(vu_lock(second)->vrings[RIG_TX].base, ==, 7);
    vu_unlock(second);
    launch_quit(e);
    vu_backend_free(second);
    unlink(stream);
    close_rig(&vu);
}

/* --- netdevs that come and go --- */

static void test_netdev_del(void)
{
    Vu vu = {0};

    open_started(&vu, NULL, "", NULL);
    expect_working(&vu);
    launch_do(vu.rig->emulator, "netdev_del", "{'id': 'n0'}");
    g_assert_false(link_is_up(&vu));
    /* Without a peer frames are dropped by the device itself. */
    uint8_t frame[FRAME];
    frame_fill(frame, FRAME, 5);
    rig_send_frame(vu.rig, 80, frame, FRAME);
    launch_do(vu.rig->emulator, "chardev-remove", "{'id': 'c0'}");
    close_rig(&vu);
}

static void test_added_and_unplugged(void)
{
    Vu vu = {0};
    Emulator *e;

    make_dir(&vu);
    vu.backend = vu_backend_new(vu.path, NULL);
    e = launch(
        NULL,
        "-nodefaults -object memory-backend-memfd,id=m,size=64M -machine pc,memory-backend=m "
        "-chardev socket,id=c0,path=%s -chardev socket,id=c1,path=%s-2,server=on,wait=off "
        "-chardev null,id=c2",
        vu.path, vu.path);
    launch_do(e, "netdev_add", "{'type': 'vhost-user', 'id': 'n0', 'chardev': 'c0'}");

    g_autofree char *in_use =
        launch_fails(e, "netdev_add", "{'type': 'vhost-user', 'id': 'n1', 'chardev': 'c0'}");
    g_assert_cmpstr(in_use, ==, "netdev 'n1': chardev 'c0' is already in use");

    g_autofree char *nobody =
        launch_fails(e, "netdev_add", "{'type': 'vhost-user', 'id': 'n1', 'chardev': 'c1'}");
    g_assert_cmpstr(nobody, ==, "netdev 'n1': chardev 'c1' is not connected");

    g_autofree char *no_socket =
        launch_fails(e, "netdev_add", "{'type': 'vhost-user', 'id': 'n1', 'chardev': 'c2'}");
    g_assert_cmpstr(no_socket, ==,
                    "netdev 'n1': chardev 'c2' is not a UNIX socket, over which memory can be "
                    "shared: use -chardev socket,path=PATH");

    g_autofree char *none =
        launch_fails(e, "netdev_add", "{'type': 'vhost-user', 'id': 'n1', 'chardev': 'cx'}");
    g_assert_cmpstr(none, ==, "netdev 'n1': chardev 'cx' not found");

    launch_do(e, "device_add", "{'driver': 'virtio-net-pci', 'id': 'd0', 'netdev': 'n0'}");
    launch_do(e, "netdev_del", "{'id': 'n0'}");
    launch_do(e, "chardev-remove", "{'id': 'c0'}");
    launch_quit(e);
    vu_backend_free(vu.backend);
    rmdir(vu.dir);
    g_free(vu.dir);
    g_free(vu.path);
}

static void expect_refused(const char *args, const char *message)
{
    Vu vu = {0};

    make_dir(&vu);
    vu.backend = vu_backend_new(vu.path, NULL);

    g_autofree char *text =
        launch_refused("-nodefaults -chardev socket,id=c0,path=%s %s", vu.path, args);

    if (!strstr(text, message)) {
        g_error("'%s' is not in '%s'", message, text);
    }
    vu_backend_free(vu.backend);
    rmdir(vu.dir);
    g_free(vu.dir);
    g_free(vu.path);
}

static void test_refused(void)
{
    expect_refused("-netdev vhost-user,id=n0,chardev=c0,queues=0",
                   "queues=0: 1 to 256 are possible");
    expect_refused("-netdev vhost-user,id=n0,chardev=c0,queues=257",
                   "queues=257: 1 to 256 are possible");
    expect_refused("-netdev vhost-user,id=n0", "'chardev' is missing");
    expect_refused("-netdev vhost-user,id=n0,chardev=c0 -device virtio-net-pci,netdev=n0",
                   "needs guest memory that can be shared");
    expect_refused("-object memory-backend-memfd,id=m,size=64M -machine pc,memory-backend=m "
                   "-netdev vhost-user,id=n0,chardev=c0 -device virtio-net-pci,netdev=n0,csum=on",
                   "csum=on is not possible: the vhost-user back end of netdev 'n0' lacks it");
    expect_refused("-object memory-backend-memfd,id=m,size=64M -machine pc,memory-backend=m "
                   "-netdev vhost-user,id=n0,chardev=c0 -device virtio-net-pci,netdev=n0,packed=on",
                   "packed=on is not possible: the vhost-user back end of netdev 'n0' lacks it");
}

/* A server whose features are no good ends a client's only chance. */
static void test_no_second_chance(void)
{
    static const VuMode modes[] = {VU_NO_FEATURES, VU_NORMAL};
    VuConfig config = {.modes = modes};
    Vu vu = {0};

    make_dir(&vu);
    vu.backend = vu_backend_new(vu.path, &config);

    const char *argv[] = {rig_binary(), "-nodefaults", "-accel",  "qtest",
                          "-chardev",   NULL,          "-netdev", "vhost-user,id=n0,chardev=c0",
                          NULL};
    g_autofree char *spec = g_strdup_printf("socket,id=c0,path=%s", vu.path);
    g_autofree char *err = NULL;
    int status;

    argv[5] = spec;
    g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL,
                               NULL, &err, &status, NULL));
    g_assert_cmpint(g_spawn_check_wait_status(status, NULL), ==, FALSE);
    g_assert_nonnull(strstr(err, "offers no features"));
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
    g_test_add_func("/vhost-user/iothread", test_iothread);
    g_test_add_func("/vhost-user/broken-ring", test_broken_ring);
    g_test_add_func("/vhost-user/multiqueue", test_multiqueue);
    g_test_add_func("/vhost-user/multiqueue-not-accepted", test_multiqueue_not_accepted);
    g_test_add_func("/vhost-user/too-few-queues", test_too_few_queues);
    g_test_add_data_func("/vhost-user/reconnect/client", GINT_TO_POINTER(false), test_reconnect);
    g_test_add_data_func("/vhost-user/reconnect/server", GINT_TO_POINTER(true), test_reconnect);
    g_test_add_func("/vhost-user/nothing-lost-meanwhile", test_nothing_lost_meanwhile);
    g_test_add_func("/vhost-user/restart-while-away", test_restart_while_away);
    g_test_add_func("/vhost-user/connect-fail", test_connect_fail);
    g_test_add_func("/vhost-user/bad-answers", test_bad_answers);
    g_test_add_func("/vhost-user/flags-mismatch", test_flags_mismatch);
    g_test_add_func("/vhost-user/refused-memory", test_refused_memory);
    g_test_add_func("/vhost-user/silent", test_silent);
    g_test_add_func("/vhost-user/migrate", test_migrate);
    g_test_add_func("/vhost-user/netdev-del", test_netdev_del);
    g_test_add_func("/vhost-user/added-and-unplugged", test_added_and_unplugged);
    g_test_add_func("/vhost-user/refused", test_refused);
    g_test_add_func("/vhost-user/no-second-chance", test_no_second_chance);
    return g_test_run();
}
