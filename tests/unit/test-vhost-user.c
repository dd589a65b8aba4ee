/*
 * The vhost-user front end alone: what it puts on the wire, byte by byte, and answers that nobody
 * should give.
 */
#include "vhost-user-peer.h"

/* --- what is sent --- */

static void test_negotiation(void)
{
    /* Features of the protocol that nobody here knows are not taken. */
    Peer *p = peer_open(P(MQ) | P(CONFIGURE_MEM_SLOTS) | 1ull << 7 | 1ull << 63);

    g_assert_cmphex(p->backend->features, ==, FEATURES);
    g_assert_cmpuint(p->backend->vrings, ==, 2);
    g_assert_cmpuint(p->backend->max_regions, ==, 16);
    g_assert_true(p->backend->connected);
    g_assert_false(p->backend->has_config);
    peer_join(p);
    g_assert_cmpuint(p->count, ==, 6);
    expect(p, 0, VHOST_USER_GET_FEATURES, VERSION, NULL, 0, 0);
    expect(p, 1, VHOST_USER_GET_PROTOCOL_FEATURES, VERSION, NULL, 0, 0);
    expect_u64(p, 2, VHOST_USER_SET_PROTOCOL_FEATURES, VERSION, P(MQ) | P(CONFIGURE_MEM_SLOTS));
    expect(p, 3, VHOST_USER_GET_QUEUE_NUM, VERSION, NULL, 0, 0);
    expect(p, 4, VHOST_USER_GET_MAX_MEM_SLOTS, VERSION, NULL, 0, 0);
    expect(p, 5, VHOST_USER_SET_OWNER, VERSION, NULL, 0, 0);
    peer_free(p);
}

static void test_negotiation_of_old(void)
{
    Peer *p = peer_new(0);
    uint64_t features = 1ull << 32;

    p->features = features;
    g_assert_nonnull(peer_start(p, NULL));
    g_assert_cmpuint(p->backend->max_regions, ==, VHOST_USER_MAX_REGIONS);
    g_assert_true(p->backend->ops->set_features(p->backend, features, NULL));
    /* No message enables a ring there. */
    g_assert_true(p->backend->ops->vring_enable(p->backend, 0, true, NULL));
    peer_join(p);
    g_assert_cmpuint(p->count, ==, 3);
    expect(p, 0, VHOST_USER_GET_FEATURES, VERSION, NULL, 0, 0);
    expect(p, 1, VHOST_USER_SET_OWNER, VERSION, NULL, 0, 0);
    expect_u64(p, 2, VHOST_USER_SET_FEATURES, VERSION, features);
    peer_free(p);
}

static void test_rings(void)
{
    Peer *p = peer_open(0);
    const VhostBackendOps *ops = p->backend->ops;
    const VhostVring vring = {.num = 256,
                              .base = 0x8007,
                              .desc = 0x1111222233334444,
                              .avail = 0x5555,
                              .used = 0x6666,
                              .used_guest = 0x7777,
                              .log = true,
                              .kick = p->listener,
                              .call = p->listener,
                              .err = p->listener};
    const VhostUserVringAddr addr = {.index = 1,
                                     .flags = 1,
                                     .desc = 0x1111222233334444,
                                     .used = 0x6666,
                                     .avail = 0x5555,
                                     .log = 0x7777};
    uint32_t base = 0;
    unsigned at;

    g_assert_true(ops->set_features(p->backend, 1ull << 32, NULL));
    g_assert_true(ops->vring_start(p->backend, 1, &vring, NULL));
    g_assert_true(ops->vring_enable(p->backend, 1, true, NULL));
    g_assert_true(ops->vring_stop(p->backend, 1, &base, NULL));
    g_assert_cmphex(base, ==, 0x1235);
    peer_join(p);
    at = first_after(p, VHOST_USER_SET_OWNER);
    expect_u64(p, at++, VHOST_USER_SET_FEATURES, VERSION, 1ull << 32 | F_PROTOCOL);
    expect(p, at++, VHOST_USER_SET_VRING_NUM, VERSION, &(VhostUserVringState){1, 256}, 8, 0);
    expect(p, at++, VHOST_USER_SET_VRING_BASE, VERSION, &(VhostUserVringState){1, 0x8007}, 8, 0);
    expect(p, at++, VHOST_USER_SET_VRING_ADDR, VERSION, &addr, sizeof(addr), 0);
    expect(p, at++, VHOST_USER_SET_VRING_KICK, VERSION, &(uint64_t){1}, 8, 1);
    expect(p, at++, VHOST_USER_SET_VRING_CALL, VERSION, &(uint64_t){1}, 8, 1);
    expect(p, at++, VHOST_USER_SET_VRING_ERR, VERSION, &(uint64_t){1}, 8, 1);
    expect(p, at++, VHOST_USER_SET_VRING_ENABLE, VERSION, &(VhostUserVringState){1, 1}, 8, 0);
    expect(p, at++, VHOST_USER_GET_VRING_BASE, VERSION, &(VhostUserVringState){1, 0}, 8, 0);
    g_assert_cmpuint(at, ==, p->count);
    peer_free(p);
}

static void regions_fill(const Peer *p, VhostRegion *regions, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        regions[i] = (VhostRegion){.addr = 0x100000 * i,
                                   .size = 0x1000 + i,
                                   .host = 0x7f0000000000 + i,
                                   .fd = i == 1 ? -1 : p->listener, /* that one is private */
                                   .offset = 0x2000 * i};
    }
}

static VhostUserRegion on_wire(const VhostRegion *r)
{
    return (VhostUserRegion){r->addr, r->size, r->host, r->offset};
}

static void test_memory_table(void)
{
    Peer *p = peer_open(0);
    VhostRegion regions[3];
    VhostUserMemory memory = {.count = 2};
    GError *err = NULL;

    regions_fill(p, regions, 3);
    memory.regions[0] = on_wire(&regions[0]);
    memory.regions[1] = on_wire(&regions[2]);
    g_assert_true(p->backend->ops->set_memory(p->backend, regions, 3, NULL));
    g_assert_false(p->backend->ops->set_memory(p->backend, regions + 1, 1, &err));
    g_assert_nonnull(strstr(err->message, "vhost-user needs guest memory that can be shared"));
    g_clear_error(&err);
    peer_join(p);
    g_assert_cmpuint(p->count, ==, first_after(p, VHOST_USER_SET_OWNER) + 1);
    expect(p, p->count - 1, VHOST_USER_SET_MEM_TABLE, VERSION, &memory, 8 + 2 * 32, 2);
    peer_free(p);
}

static void test_too_many_regions(void)
{
    for (unsigned slots = 0; slots < 2; slots++) {
        Peer *p = peer_new(slots ? P(CONFIGURE_MEM_SLOTS) : 0);
        VhostRegion regions[VHOST_USER_MAX_REGIONS + 2];
        GError *err = NULL;

        p->slots = 3;
        g_assert_nonnull(peer_start(p, NULL));
        regions_fill(p, regions, G_N_ELEMENTS(regions));
        g_assert_false(p->backend->ops->set_memory(p->backend, regions, 10, &err));
        g_assert_cmpstr(err->message, ==,
                        slots ? "netdev 'n0': guest memory has 9 pieces, the back end takes 3"
                              : "netdev 'n0': guest memory has 9 pieces, the back end takes 8");
        g_clear_error(&err);
        peer_free(p);
    }
}

/* Only what changed is told, what went first. */
static void test_memory_slots(void)
{
    Peer *p = peer_open(P(CONFIGURE_MEM_SLOTS));
    VhostRegion regions[4], moved;
    VhostUserOneRegion one = {0};
    unsigned at;

    regions_fill(p, regions, 4);
    regions[1].fd = p->listener;
    g_assert_true(p->backend->ops->set_memory(p->backend, regions, 2, NULL));
    g_assert_true(p->backend->ops->set_memory(p->backend, regions, 2, NULL));
    moved = regions[1];
    moved.addr = 0x900000;
    regions[1] = regions[2];
    g_assert_true(p->backend->ops->set_memory(
        p->backend, (VhostRegion[]){regions[0], moved, regions[2]}, 3, NULL));
    peer_join(p);
    regions_fill(p, regions, 4);
    at = first_after(p, VHOST_USER_SET_OWNER);
    one.region = on_wire(&regions[0]);
    expect(p, at++, VHOST_USER_ADD_MEM_REG, VERSION, &one, sizeof(one), 1);
    one.region = on_wire(&regions[1]);
    expect(p, at++, VHOST_USER_ADD_MEM_REG, VERSION, &one, sizeof(one), 1);
    expect(p, at++, VHOST_USER_REM_MEM_REG, VERSION, &one, sizeof(one), 0);
    one.region = on_wire(&moved);
    expect(p, at++, VHOST_USER_ADD_MEM_REG, VERSION, &one, sizeof(one), 1);
    one.region = on_wire(&regions[2]);
    expect(p, at++, VHOST_USER_ADD_MEM_REG, VERSION, &one, sizeof(one), 1);
    g_assert_cmpuint(at, ==, p->count);
    peer_free(p);
}

static void test_settings(void)
{
    Peer *p = peer_open(P(NET_MTU) | P(RARP) | P(STATUS) | P(RESET_DEVICE));
    const VhostBackendOps *ops = p->backend->ops;
    const uint8_t mac[6] = {1, 2, 3, 4, 5, 6};
    unsigned at;

    g_assert_true(ops->set_mtu(p->backend, 9000, NULL));
    g_assert_true(vhost_user_send_rarp(p->backend, mac));
    g_assert_true(ops->run(p->backend, NULL));
    ops->reset(p->backend);
    peer_join(p);
    at = first_after(p, VHOST_USER_SET_OWNER);
    expect_u64(p, at++, VHOST_USER_NET_SET_MTU, VERSION, 9000);
    expect_u64(p, at++, VHOST_USER_SEND_RARP, VERSION, 0x060504030201);
    expect_u64(p, at++, VHOST_USER_SET_STATUS, VERSION, 15);
    expect_u64(p, at++, VHOST_USER_SET_STATUS, VERSION, 0);
    g_assert_cmpuint(at, ==, p->count);
    peer_free(p);
}

/* What the back end does not know is not said. */
static void test_settings_unknown(void)
{
    Peer *p = peer_open(0);
    const VhostBackendOps *ops = p->backend->ops;
    const uint8_t mac[6] = {0};
    VhostLog log = {.fd = p->listener, .size = 4096};
    GError *err = NULL;

    g_assert_true(ops->set_mtu(p->backend, 9000, NULL));
    g_assert_false(vhost_user_send_rarp(p->backend, mac));
    g_assert_true(ops->run(p->backend, NULL));
    g_assert_true(ops->prepare(p->backend, 256, NULL));
    ops->reset(p->backend);
    g_assert_false(ops->set_log(p->backend, &log, &err));
    g_assert_cmpstr(err->message, ==,
                    "netdev 'n0': the vhost-user back end cannot log what it writes");
    g_clear_error(&err);
    peer_join(p);
    g_assert_cmpuint(p->count, ==, first_after(p, VHOST_USER_SET_OWNER));
    peer_free(p);
}

static void test_log(void)
{
    Peer *p = peer_new(P(LOG_SHMFD));
    const VhostLog log = {.fd = p->listener, .size = 0x12000};
    const VhostUserLog wire = {.mmap_size = 0x12000};

    p->features |= 1ull << 26; /* VHOST_F_LOG_ALL */
    g_assert_nonnull(peer_start(p, NULL));
    g_assert_true(p->backend->ops->set_log(p->backend, &log, NULL));
    peer_join(p);
    expect(p, p->count - 1, VHOST_USER_SET_LOG_BASE, VERSION, &wire, sizeof(wire), 1);
    peer_free(p);
}

static void test_inflight(void)
{
    Peer *p = peer_new(P(INFLIGHT_SHMFD));
    VhostUserInflight wire = {.num_queues = 2, .queue_size = 256};
    unsigned at;

    p->inflight_fd = memfd_create("inflight", MFD_CLOEXEC);
    p->inflight_size = 0x3000;
    g_assert_nonnull(peer_start(p, NULL));
    g_assert_true(p->backend->ops->prepare(p->backend, 256, NULL));
    g_assert_true(p->backend->ops->prepare(p->backend, 256, NULL)); /* once got, it is kept */
    peer_join(p);
    at = first_after(p, VHOST_USER_SET_OWNER);
    expect(p, at++, VHOST_USER_GET_INFLIGHT_FD, VERSION, &wire, sizeof(wire), 0);
    wire.mmap_size = 0x3000;
    expect(p, at++, VHOST_USER_SET_INFLIGHT_FD, VERSION, &wire, sizeof(wire), 1);
    expect(p, at++, VHOST_USER_SET_INFLIGHT_FD, VERSION, &wire, sizeof(wire), 1);
    g_assert_cmpuint(at, ==, p->count);
    close(p->inflight_fd);
    peer_free(p);
}

/* A descriptor without a size, and no descriptor: there is no such region then. */
static void test_inflight_of_nothing(void)
{
    for (unsigned with_fd = 0; with_fd < 2; with_fd++) {
        Peer *p = peer_new(P(INFLIGHT_SHMFD));

        p->inflight_fd = with_fd ? memfd_create("inflight", MFD_CLOEXEC) : -1;
        p->inflight_size = with_fd ? 0 : 0x3000;
        g_assert_nonnull(peer_start(p, NULL));
        g_assert_true(p->backend->ops->prepare(p->backend, 256, NULL));
        peer_join(p);
        g_assert_cmpuint(p->messages[p->count - 1].header.request, ==, VHOST_USER_GET_INFLIGHT_FD);
        if (with_fd) {
            close(p->inflight_fd);
        }
        peer_free(p);
    }
}

static void test_confirmation(void)
{
    Peer *p = peer_open(P(REPLY_ACK));
    GError *err = NULL;

    g_assert_true(p->backend->ops->set_features(p->backend, 0, NULL));
    peer_join(p);
    expect_u64(p, p->count - 1, VHOST_USER_SET_FEATURES, VERSION_ACK, F_PROTOCOL);
    peer_free(p);

    /* A refusal is the request's, the connection goes on. */
    p = peer_new(P(REPLY_ACK));
    p->ack = 1;
    g_assert_nonnull(peer_start(p, NULL));
    g_assert_false(p->backend->ops->set_features(p->backend, 0, &err));
    g_assert_cmpstr(err->message, ==, "netdev 'n0': the back end refuses vhost-user request 2");
    g_clear_error(&err);
    g_assert_true(p->backend->connected);
    peer_free(p);
}

static void test_configuration(void)
{
    Peer *p = peer_open(P(CONFIG));
    uint8_t config[16];
    VhostUserConfig wire = {.size = 16};
    unsigned at;

    g_assert_true(p->backend->has_config);
    g_assert_cmpuint(vhost_user_get_config(p->backend, config, sizeof(config)), ==, 16);
    g_assert_cmpuint(config[offsetof(struct virtio_net_config, status)], ==, VIRTIO_NET_S_LINK_UP);
    peer_join(p);
    at = p->count - 1;
    expect(p, at, VHOST_USER_GET_CONFIG, VERSION, &wire, VHOST_USER_CONFIG_HEAD + 16, 0);
    peer_free(p);

    /* More than was asked for is nothing; less is that much. */
    p = peer_open(P(CONFIG));
    __atomic_store_n(&p->config_size, 17, __ATOMIC_RELAXED);
    g_assert_cmpuint(vhost_user_get_config(p->backend, config, sizeof(config)), ==, 0);
    __atomic_store_n(&p->config_size, UINT32_MAX, __ATOMIC_RELAXED);
    g_assert_cmpuint(vhost_user_get_config(p->backend, config, sizeof(config)), ==, 0);
    __atomic_store_n(&p->config_size, 3, __ATOMIC_RELAXED);
    g_assert_cmpuint(vhost_user_get_config(p->backend, config, sizeof(config)), ==, 3);
    peer_free(p);
}

/* --- back ends that cannot be used --- */

static void refused(uint64_t features, uint64_t protocol, uint64_t queues, const char *message)
{
    Peer *p = peer_new(protocol);
    GError *err = NULL;

    p->features = features;
    p->queues = queues;
    g_assert_null(peer_start(p, &err));
    g_assert_cmpstr(err->message, ==, message);
    g_clear_error(&err);
    peer_join(p);
    peer_free(p);
}

static void test_refused(void)
{
    refused(0, 0, 1, "netdev 'n0': the vhost-user back end offers no features");
    refused(FEATURES, P(MQ), 0, "netdev 'n0': queues=1, but the vhost-user back end has 0");
}

/* --- answers that nobody should give --- */

static unsigned open_fds(void)
{
    GDir *dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned count = 0;

    while (g_dir_read_name(dir)) {
        count++;
    }
    g_dir_close(dir);
    return count;
}

static BadAnswer bad_header(uint32_t request, uint32_t answered, uint32_t flags, uint32_t size)
{
    const VhostUserHeader header = {answered, flags, size};
    BadAnswer bad = {.request = request, .size = sizeof(header) + MIN(size, 40)};

    memcpy(bad.bytes, &header, sizeof(header));
    return bad;
}

/* The connection is lost, the question fails with @message, no descriptor stays. */
static void bad_answer(const BadAnswer *bad, const char *message)
{
    unsigned before = open_fds();
    Peer *p = peer_open(P(CONFIG) | P(MQ));
    GError *err = NULL;
    uint32_t base;

    __atomic_store_n(&p->bad, bad, __ATOMIC_RELEASE);
    g_assert_false(p->backend->ops->vring_stop(p->backend, 0, &base, &err));
    g_assert_nonnull(strstr(err->message, "netdev 'n0': vhost-user request 11: "));
    g_assert_nonnull(strstr(err->message, message));
    g_clear_error(&err);
    g_assert_false(p->backend->connected);
    /* Whoever asks next is told so, at once. */
    g_assert_false(p->backend->ops->set_features(p->backend, 0, &err));
    g_assert_cmpstr(err->message, ==, "netdev 'n0': the vhost-user back end is not connected");
    g_clear_error(&err);
    while (chardev_is_open(p->chr)) {
        event_loop_run_once(event_loop_main(), true);
    }
    g_assert_false(p->link_up);
    peer_free(p);
    g_assert_cmpuint(open_fds(), ==, before);
}

static void test_bad_headers(void)
{
    const uint32_t asked = VHOST_USER_GET_VRING_BASE;
    const struct {
        uint32_t answered, flags, size;
        const char *message;
    } table[] = {
        {asked + 1, VERSION_REPLY, 8, "the answer is to something else"},
        {asked, VERSION, 8, "the answer is to something else"},
        {asked, VHOST_USER_FLAG_REPLY, 8, "the answer is to something else"},
        {asked, VHOST_USER_FLAG_REPLY | 2, 8, "the answer is to something else"},
        {asked, VERSION_REPLY, 7, "the answer has the wrong size"},
        {asked, VERSION_REPLY, 0, "the answer has the wrong size"},
        {asked, VERSION_REPLY, sizeof(VhostUserPayload) + 1, "the answer has the wrong size"},
        {asked, VERSION_REPLY, UINT32_MAX, "the answer has the wrong size"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(table); i++) {
        BadAnswer bad = bad_header(asked, table[i].answered, table[i].flags, table[i].size);

        bad.stays = i % 2;
        bad.fds = i % 3;
        bad_answer(&bad, table[i].message);
    }
}

/* Cut off after each byte of a good answer. */
static void test_cut_answers(void)
{
    for (size_t size = 0; size < sizeof(VhostUserHeader) + 8; size++) {
        BadAnswer bad =
            bad_header(VHOST_USER_GET_VRING_BASE, VHOST_USER_GET_VRING_BASE, VERSION_REPLY, 8);

        bad.size = size;
        bad.fds = size ? 8 : 0;
        bad_answer(&bad, "");
    }
}

/* A descriptor whose size was cut off is none: the next connection asks for another. */
static void test_cut_inflight(void)
{
    unsigned before = open_fds();
    Peer *p = peer_open(P(INFLIGHT_SHMFD));
    BadAnswer bad = bad_header(VHOST_USER_GET_INFLIGHT_FD, VHOST_USER_GET_INFLIGHT_FD,
                               VERSION_REPLY, sizeof(VhostUserInflight));

    bad.size = sizeof(VhostUserHeader) + 8;
    bad.fds = 1;
    __atomic_store_n(&p->bad, &bad, __ATOMIC_RELEASE);
    g_assert_false(p->backend->ops->prepare(p->backend, 256, NULL));
    g_assert_cmpint(((VhostUser *)p->backend)->inflight_fd, ==, -1);
    peer_free(p);
    g_assert_cmpuint(open_fds(), ==, before);
}

/* Descriptors along with a good answer are closed, and it is one. */
static void test_fds_nobody_asked_for(void)
{
    unsigned before = open_fds();
    Peer *p = peer_open(0);
    BadAnswer bad =
        bad_header(VHOST_USER_GET_VRING_BASE, VHOST_USER_GET_VRING_BASE, VERSION_REPLY, 8);
    uint32_t base = 1;
    unsigned open = open_fds();

    bad.stays = true;
    bad.fds = 8;
    __atomic_store_n(&p->bad, &bad, __ATOMIC_RELEASE);
    g_assert_true(p->backend->ops->vring_stop(p->backend, 0, &base, NULL));
    g_assert_cmpuint(base, ==, 0);
    g_assert_cmpuint(open_fds(), ==, open);
    g_assert_true(p->backend->connected);
    peer_free(p);
    g_assert_cmpuint(open_fds(), ==, before);
}

/* --- requests of the back end's --- */

static int request_socket(Peer *p)
{
    pthread_mutex_lock(&p->lock);
    int fd = p->request_fd;
    pthread_mutex_unlock(&p->lock);
    g_assert_cmpint(fd, >=, 0);
    return fd;
}

static bool link_is_down(Peer *p)
{
    return !p->link_up;
}

static bool requests_are_closed(Peer *p)
{
    char byte;

    return recv(request_socket(p), &byte, 1, MSG_DONTWAIT) == 0;
}

static bool has_answer(Peer *p)
{
    char bytes[20];

    return recv(request_socket(p), bytes, sizeof(bytes), MSG_DONTWAIT | MSG_PEEK) == sizeof(bytes);
}

static void test_requests(void)
{
    Peer *p = peer_open(P(CONFIG) | P(BACKEND_REQ) | P(REPLY_ACK));
    const VhostUserHeader change = {VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, VERSION, 0};
    struct {
        VhostUserHeader header;
        uint8_t payload[8];
    } unknown = {{99, VERSION_ACK, 8}, {0}}, reply;

    p->link_up = true;
    /* In two pieces: nothing happens before it is whole. */
    __atomic_store_n(&p->link, 0, __ATOMIC_RELAXED);
    send(request_socket(p), &change, 5, 0);
    send(request_socket(p), (const char *)&change + 5, sizeof(change) - 5, 0);
    loop_until(link_is_down, p);
    g_assert_cmpuint(p->link_changes, ==, 1);
    /* What is not known is answered so, if an answer is wanted. */
    send(request_socket(p), &unknown, sizeof(unknown), 0);
    loop_until(has_answer, p);
    recv(request_socket(p), &reply, sizeof(reply), 0);
    g_assert_cmpuint(reply.header.request, ==, 99);
    g_assert_cmphex(reply.header.flags, ==, VERSION_REPLY);
    g_assert_cmpuint(reply.header.size, ==, 8);
    g_assert_cmpmem(reply.payload, 8, "\1\0\0\0\0\0\0\0", 8);
    g_assert_true(p->backend->connected);
    peer_free(p);
}

static void test_bad_requests(void)
{
    const uint32_t sizes[] = {sizeof(VhostUserPayload) + 1, UINT32_MAX, UINT32_MAX - 11};

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Peer *p = peer_open(P(BACKEND_REQ) | P(REPLY_ACK));
        const VhostUserHeader bad = {VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, VERSION, sizes[i]};

        send(request_socket(p), &bad, sizeof(bad), 0);
        loop_until(requests_are_closed, p);
        /* The rings go on without it. */
        g_assert_true(p->backend->connected);
        g_assert_true(p->backend->ops->set_features(p->backend, 0, NULL));
        peer_free(p);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    event_loop_main(); /* its descriptors are open before any are counted */
    g_test_add_func("/vhost-user/negotiation", test_negotiation);
    g_test_add_func("/vhost-user/negotiation-of-old", test_negotiation_of_old);
    g_test_add_func("/vhost-user/rings", test_rings);
    g_test_add_func("/vhost-user/memory-table", test_memory_table);
    g_test_add_func("/vhost-user/too-many-regions", test_too_many_regions);
    g_test_add_func("/vhost-user/memory-slots", test_memory_slots);
    g_test_add_func("/vhost-user/settings", test_settings);
    g_test_add_func("/vhost-user/settings-unknown", test_settings_unknown);
    g_test_add_func("/vhost-user/log", test_log);
    g_test_add_func("/vhost-user/inflight", test_inflight);
    g_test_add_func("/vhost-user/inflight-of-nothing", test_inflight_of_nothing);
    g_test_add_func("/vhost-user/confirmation", test_confirmation);
    g_test_add_func("/vhost-user/configuration", test_configuration);
    g_test_add_func("/vhost-user/refused", test_refused);
    g_test_add_func("/vhost-user/bad-headers", test_bad_headers);
    g_test_add_func("/vhost-user/cut-answers", test_cut_answers);
    g_test_add_func("/vhost-user/cut-inflight", test_cut_inflight);
    g_test_add_func("/vhost-user/fds-nobody-asked-for", test_fds_nobody_asked_for);
    g_test_add_func("/vhost-user/requests", test_requests);
    g_test_add_func("/vhost-user/bad-requests", test_bad_requests);
    return g_test_run();
}
