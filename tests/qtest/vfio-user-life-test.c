/*
 * Clients come and go: a thousand times, at any byte, with garbage, with descriptors that nobody
 * asked for, and without reading what they are sent.  The server and its device outlive them all,
 * and keep neither memory nor descriptors.  The device may go as well.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/vfio-user-rig.h"

#define RECONNECTS    1000
#define RSS_TOLERANCE (3u << 20) /* allocator noise; a leak of one region list would be more */

/* --- coming and going --- */

/* A whole client's life: all that makes the server allocate or keep a descriptor. */
static void live(VfioRig *rig, unsigned how)
{
    GError *err = NULL;
    int fd = vfio_eventfd();

    vfio_rig_attach(rig, false);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;

        vfio_user_client_set_irqs(rig->client, VFIO_PCI_MSIX_IRQ_INDEX, flags, i, 1, NULL, &fd, 1,
                                  &err);
    }
    vfio_user_client_map(rig->client, 1ull << 32, VFIO_RIG_RAM, VFIO_RIG_RW, rig->rig.ram->fd, 0,
                         &err);
    vfio_user_client_map(rig->client, 1ull << 33, 1 << 20, VFIO_RIG_RW, -1, 0, &err);
    if (how % 3 == 0) {
        vfio_user_client_log_start(rig->client, &err);
    }
    vfio_check(err, "client");
    if (how % 10 == 0) {
        vfio_rig_start(rig);
        rig_expect_working(&rig->rig);
    }
    vfio_rig_hang_up(rig);
    close(fd);
}

static void test_reconnects(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    unsigned fds;
    size_t rss;

    for (unsigned i = 0; i < 50; i++) {
        live(rig, i); /* whatever is made once is there now */
    }
    vfio_rig_wait_connected(rig, false);
    fds = vfio_rig_count_fds(rig);
    rss = vfio_rig_rss(rig);
    for (unsigned i = 0; i < RECONNECTS; i++) {
        live(rig, i);
    }
    vfio_rig_wait_connected(rig, false);
    g_test_message("%u reconnects: %u fds, %zu KiB before; %u fds, %zu KiB after", RECONNECTS, fds,
                   rss >> 10, vfio_rig_count_fds(rig), vfio_rig_rss(rig) >> 10);
    g_assert_cmpuint(vfio_rig_count_fds(rig), ==, fds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep freed memory */
    g_assert_cmpuint(vfio_rig_rss(rig), <, rss + RSS_TOLERANCE);
#endif
    vfio_rig_free(rig);
}

/* While one client is there, the next waits. */
static void test_one_at_a_time(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *first = vfio_rig_connect(rig), *second = vfio_rig_connect_raw(rig);
    GError *err = NULL;

    vfio_user_client_set_timeout(second, RIG_QUIET_MS);
    g_assert_false(vfio_user_client_negotiate(second, NULL, NULL));
    vfio_user_client_free(second);
    second = vfio_rig_connect_raw(rig);
    vfio_user_client_free(first);
    vfio_user_client_negotiate(second, NULL, &err);
    vfio_check(err, "second client");
    vfio_user_client_free(second);
    vfio_rig_free(rig);
}

/* The device of a client that was killed is reset, its frames go nowhere. */
static void test_reset_on_hang_up(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    uint8_t frame[100] = {0}, before[64], after[64];
    uint64_t addr = rig_post_buffer(&rig->rig, 0, 2048);

    memcpy(before, rig_at(&rig->rig, addr, 64), 64);
    vfio_rig_hang_up(rig);
    vfio_rig_wait_connected(rig, false);
    rig_peer_send(&rig->rig, frame, sizeof(frame));
    g_usleep(RIG_QUIET_MS * 1000);
    memcpy(after, rig_at(&rig->rig, addr, 64), 64);
    g_assert_cmpmem(before, 64, after, 64);
    vfio_rig_attach(rig, false);
    rig->rig.pci = guest_pci_device_open(vfio_user_pci_bus(rig->pci), 0, NULL);
    g_assert_cmphex(guest_pci_config_read(rig->rig.pci, 2, 4), ==, 0);
    vfio_rig_free(rig);
}

/* A reply goes out before the message that it answers is thrown away. */
static void expect_fds(VfioRig *rig, unsigned count)
{
    for (unsigned i = 0; i < RIG_TIMEOUT_MS && vfio_rig_count_fds(rig) != count; i++) {
        g_usleep(1000);
    }
    g_assert_cmpuint(vfio_rig_count_fds(rig), ==, count);
}

/* --- at any byte --- */

typedef struct Message {
    const char *name;
    uint8_t bytes[128];
    size_t size;
    int fds[4];
    unsigned nfds;
} Message;

static Message message_new(const char *name, uint16_t command, const void *payload, size_t size)
{
    Message message = {.name = name, .size = sizeof(VfioUserHeader) + size};
    const VfioUserHeader header = {.command = command, .size = (uint32_t)message.size};

    memcpy(message.bytes, &header, sizeof(header));
    memcpy(message.bytes + sizeof(header), payload, size);
    return message;
}

static Message version_message(void)
{
    uint8_t payload[] = "\0\0\0\0{\"capabilities\": {\"twin_socket\": {\"supported\": true}}}";

    return message_new("version", VFIO_USER_VERSION, payload, sizeof(payload));
}

static Message map_message(VfioRig *rig)
{
    const VfioUserDmaMap map = {.argsz = 32, .flags = 3, .size = VFIO_RIG_RAM};
    Message message = message_new("map", VFIO_USER_DMA_MAP, &map, sizeof(map));

    message.fds[message.nfds++] = rig->rig.ram->fd;
    return message;
}

static Message irqs_message(const int *fds, unsigned count)
{
    const struct vfio_irq_set set = {.argsz = 20,
                                     .flags =
                                         VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                                     .index = VFIO_PCI_MSIX_IRQ_INDEX,
                                     .count = count};
    Message message = message_new("irqs", VFIO_USER_DEVICE_SET_IRQS, &set, 20);

    memcpy(message.fds, fds, count * sizeof(int));
    message.nfds = count;
    return message;
}

static Message write_message(void)
{
    const VfioUserWriteMulti head = {.count = 1};
    const VfioUserWrite write = {.offset = 12, .region = VFIO_PCI_CONFIG_REGION_INDEX, .count = 1};
    uint8_t payload[sizeof(head) + sizeof(write)];

    memcpy(payload, &head, sizeof(head));
    memcpy(payload + sizeof(head), &write, sizeof(write));
    return message_new("write", VFIO_USER_REGION_WRITE_MULTI, payload, sizeof(payload));
}

static void send_part(VfioUserClient *client, const Message *message, size_t from, size_t to)
{
    unsigned nfds = from == 0 && to ? message->nfds : 0;

    if (to > from) {
        vfio_user_client_send_raw(client, message->bytes + from, to - from, message->fds, nfds,
                                  NULL);
    }
}

/* Each message cut at each byte: the client hangs up there, or sends the rest later. */
static void test_any_byte(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    int fds[4] = {vfio_eventfd(), vfio_eventfd(), vfio_eventfd(), vfio_eventfd()};
    const Message messages[] = {version_message(), map_message(rig), irqs_message(fds, 4),
                                write_message()};
    unsigned before = vfio_rig_count_fds(rig);

    for (unsigned i = 0; i < G_N_ELEMENTS(messages); i++) {
        for (size_t cut = 0; cut <= messages[i].size; cut++) {
            VfioUserClient *client = i ? vfio_rig_connect(rig) : vfio_rig_connect_raw(rig);

            send_part(client, &messages[i], 0, cut);
            vfio_user_client_free(client);
        }
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(messages); i++) {
        for (size_t cut = 1; cut < messages[i].size; cut++) {
            VfioUserClient *client = i ? vfio_rig_connect(rig) : vfio_rig_connect_raw(rig);
            VfioUserAnswer answer;

            send_part(client, &messages[i], 0, cut);
            if (cut % 8 == 0) {
                g_usleep(500); /* so that the server has seen half of it */
            }
            send_part(client, &messages[i], cut, messages[i].size);
            g_assert_true(vfio_user_client_receive(client, &answer, NULL));
            g_assert_cmpint(answer.error, ==, 0);
            vfio_user_answer_clear(&answer);
            vfio_user_client_free(client);
        }
    }
    vfio_rig_wait_connected(rig, false);
    expect_fds(rig, before);
    live(rig, 0);
    vfio_rig_free(rig);
    for (unsigned i = 0; i < 4; i++) {
        close(fds[i]);
    }
}

/* Several messages in one piece, with the descriptors of the second among them. */
static void test_many_in_one_piece(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    Message map = map_message(rig), write = write_message();
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    for (unsigned i = 0; i < 200; i++) {
        g_byte_array_append(bytes, write.bytes, (guint)write.size);
    }
    vfio_user_client_send_raw(client, bytes->data, bytes->len, NULL, 0, NULL);
    send_part(client, &map, 0, map.size);
    vfio_user_client_send_raw(client, bytes->data, bytes->len, NULL, 0, NULL);
    for (unsigned i = 0; i < 401; i++) {
        VfioUserAnswer answer;

        g_assert_true(vfio_user_client_receive(client, &answer, NULL));
        g_assert_cmpint(answer.error, ==, 0);
        g_assert_cmpuint(answer.size, ==, i == 200 ? 0 : 8);
        vfio_user_answer_clear(&answer);
    }
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* --- garbage --- */

/* The server hangs up on what it cannot go on after. */
static void expect_hang_up(VfioRig *rig, const VfioUserHeader *header)
{
    VfioUserClient *client = vfio_rig_connect(rig);
    VfioUserAnswer answer;

    vfio_user_client_send_raw(client, header, sizeof(*header), NULL, 0, NULL);
    g_assert_false(vfio_user_client_receive(client, &answer, NULL));
    vfio_user_client_free(client);
}

static void test_impossible_headers(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    const uint32_t sizes[] = {0, 1, 15, (1u << 20) + 4096, 1u << 31, UINT32_MAX};

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        expect_hang_up(rig, &(VfioUserHeader){.command = 4, .size = sizes[i]});
    }
    for (uint32_t type = 2; type < 16; type++) {
        expect_hang_up(rig, &(VfioUserHeader){.command = 4, .size = 16, .flags = type});
    }
    live(rig, 0);
    vfio_rig_free(rig);
}

/* Random messages with a good size, then random bytes: nothing ends the server. */
static void test_random(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    g_autoptr(GRand) rand = g_rand_new_with_seed(20081107);

    for (unsigned round = 0; round < 300; round++) {
        VfioUserClient *client = vfio_rig_connect(rig);
        uint8_t bytes[256];

        for (unsigned n = 0; n < 40; n++) {
            VfioUserHeader header = {
                .command = (uint16_t)g_rand_int_range(rand, 0, 20),
                .size = (uint32_t)g_rand_int_range(rand, 16, 120),
                .flags = VFIO_USER_NO_REPLY,
            };
            for (unsigned i = 0; i < sizeof(bytes); i++) {
                /* Small numbers are what passes for sizes, flags and indices. */
                bytes[i] =
                    (uint8_t)(g_rand_int_range(rand, 0, 3) ? 0 : g_rand_int_range(rand, 0, 256));
            }
            if (round % 2 == 0) {
                memcpy(bytes, &header, sizeof(header));
            }
            if (!vfio_user_client_send_raw(client, bytes, header.size, &rig->rig.ram->fd, n % 2,
                                           NULL)) {
                break;
            }
        }
        vfio_user_client_free(client);
    }
    rig_check(&rig->rig);
    live(rig, 0);
    vfio_rig_free(rig);
}

/* Descriptors that a command does not take are closed. */
static void test_surplus_fds(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    const struct vfio_irq_info info = {.argsz = 16, .index = VFIO_PCI_MSIX_IRQ_INDEX};
    const VfioUserDmaMap map = {.argsz = 32, .flags = 3, .size = 4096};
    int fds[253];
    unsigned before;

    for (unsigned i = 0; i < G_N_ELEMENTS(fds); i++) {
        fds[i] = rig->rig.ram->fd;
    }
    vfio_expect(client, VFIO_USER_DEVICE_GET_IRQ_INFO, &info, 16, fds, 1, 0);
    rig_settle(&rig->rig);
    before = vfio_rig_count_fds(rig);
    for (unsigned i = 0; i < 50; i++) {
        vfio_expect(client, VFIO_USER_DEVICE_GET_IRQ_INFO, &info, 16, fds, 253, 0);
        vfio_expect(client, VFIO_USER_DMA_MAP, &map, sizeof(map), fds, 2 + i, EINVAL);
        vfio_expect(client, 77, NULL, 0, fds, 16, EOPNOTSUPP);
    }
    expect_fds(rig, before);
    /* The same in the middle of a message, byte by byte. */
    for (unsigned i = 0; i < 16; i++) {
        VfioUserHeader header = {.command = VFIO_USER_DEVICE_RESET, .size = 16};

        vfio_user_client_send_raw(client, (uint8_t *)&header + i, 1, fds, 40, NULL);
    }
    VfioUserAnswer answer;

    g_assert_true(vfio_user_client_receive(client, &answer, NULL));
    vfio_user_answer_clear(&answer);
    expect_fds(rig, before);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* Replies that nobody reads: the server stops reading commands, and keeps its memory. */
static void test_unread_replies(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    struct {
        VfioUserHeader header;
        VfioUserRegionAccess access;
    } request = {{.command = VFIO_USER_REGION_READ, .size = sizeof(request)},
                 {.region = 4, .count = 16384}};
    int fd = vfio_user_client_fd(client);
    size_t rss = vfio_rig_rss(rig);
    unsigned sent = 0;

    for (unsigned idle = 0; idle < 50;) {
        if (send(fd, &request, sizeof(request), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(request)) {
            sent++;
            idle = 0;
        } else {
            g_usleep(1000);
            idle++;
        }
    }
    g_test_message("%u requests without reading", sent);
    g_assert_cmpuint(vfio_rig_rss(rig), <, rss + (16u << 20));
    rig_check(&rig->rig); /* its other sockets are served */
    vfio_user_client_free(client);
    live(rig, 0);
    vfio_rig_free(rig);
}

/* One process serves several devices, each with a client of its own. */
static void test_two_devices(void)
{
    g_autofree char *path = g_strdup_printf("/tmp/swnic-vfio-two-%d.sock", getpid());
    g_autofree char *server =
        g_strdup_printf("x-vfio-user-server,id=s1,device=nic1,type=unix,path=%s", path);
    const char *const args[] = {"-device", "virtio-net-pci,id=nic1,disable-legacy=on", "-object",
                                server, NULL};
    VfioRig *rig = vfio_rig_open(&(VfioRigConfig){.rig = {.args = args}});
    GError *err = NULL;
    VfioUserClient *other = vfio_user_client_connect(path, &err);
    uint16_t id = 0;

    vfio_check(err, "second server");
    vfio_user_client_negotiate(other, NULL, &err);
    vfio_user_client_read(other, VFIO_PCI_CONFIG_REGION_INDEX, 2, &id, 2, &err);
    vfio_check(err, "second device");
    g_assert_cmphex(id, ==, 0x1041);
    vfio_rig_attach(rig, false);
    vfio_rig_start(rig);
    rig_expect_working(&rig->rig);
    vfio_user_client_free(other);
    rig_expect_working(&rig->rig); /* the other's end is not ours */
    vfio_rig_free(rig);
    g_assert_false(g_file_test(path, G_FILE_TEST_EXISTS));
}

/* --- the device and the object go --- */

static void qmp(VfioRig *rig, const char *command, const char *arguments)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(rig->rig.qmp, command, &err, "%s", arguments));
    vfio_check(err, command);
}

static void wait_deleted(VfioRig *rig)
{
    GError *err = NULL;

    for (unsigned i = 0; i < 2; i++) { /* the virtio backend, then the device */
        json_object_put(
            qmp_client_wait_event(rig->rig.qmp, "DEVICE_DELETED", RIG_TIMEOUT_MS, &err));
        vfio_check(err, "DEVICE_DELETED");
    }
}

/* device_del asks a client that said how; it is done when that has hung up. */
static void test_unplug_asks(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    const uint32_t flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    int fd = vfio_eventfd();
    GError *err = NULL;

    vfio_user_client_set_irqs(rig->client, VFIO_PCI_REQ_IRQ_INDEX, flags, 0, 1, NULL, &fd, 1, &err);
    vfio_check(err, "REQ");
    qmp(rig, "device_del", "{\"id\": \"nic0\"}");
    g_assert_cmpuint(vfio_eventfd_wait(fd, RIG_TIMEOUT_MS), ==, 1);
    rig_expect_working(&rig->rig); /* still */
    g_assert_null(qmp_client_executef(rig->rig.qmp, "device_del", NULL, "{\"id\": \"nic0\"}"));
    vfio_rig_hang_up(rig);
    wait_deleted(rig);
    /* The server has nothing to serve: nobody can connect, and a new one takes its place. */
    g_assert_null(vfio_user_client_connect(rig->path, NULL));
    qmp(rig, "object-del", "{\"id\": \"s0\"}");
    qmp(rig, "device_add",
        "{\"driver\": \"virtio-net-pci\", \"id\": \"nic0\", \"netdev\": \"n0\"}");
    g_autofree char *server = g_strdup_printf(
        "{\"qom-type\": \"vfio-user-server\", \"id\": \"s0\", \"device\": \"nic0\", \"socket\": "
        "{\"type\": \"unix\", \"path\": \"%s\"}}",
        rig->path);
    qmp(rig, "object-add", server);
    vfio_rig_attach(rig, false);
    vfio_rig_start(rig);
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
    close(fd);
}

/* One that did not say how just loses it. */
static void test_unplug_at_once(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    VfioUserAnswer answer;

    qmp(rig, "device_del", "{\"id\": \"nic0\"}");
    wait_deleted(rig);
    g_assert_false(vfio_user_client_receive(rig->client, &answer, NULL));
    vfio_rig_free(rig);
}

static void test_object_del(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    VfioUserAnswer answer;
    unsigned before = vfio_rig_count_fds(rig);

    qmp(rig, "object-del", "{\"id\": \"s0\"}");
    g_assert_false(vfio_user_client_receive(rig->client, &answer, NULL));
    g_assert_cmpuint(vfio_rig_count_fds(rig), <, before);
    g_autofree char *server = g_strdup_printf(
        "{\"qom-type\": \"x-vfio-user-server\", \"id\": \"s0\", \"device\": \"nic0\", \"type\": "
        "\"unix\", \"path\": \"%s\"}",
        rig->path);
    vfio_rig_hang_up(rig);
    qmp(rig, "object-add", server);
    vfio_rig_attach(rig, false);
    vfio_rig_start(rig);
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

/* Quitting with a client in the middle of traffic; the rig checks exit status and leaks. */
static void test_quit_with_client(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    GError *err = NULL;

    rig_expect_working(&rig->rig);
    emulator_stop(rig->rig.emulator, &err);
    vfio_check(err, "quit");
    rig->rig.emulator = NULL;
    vfio_rig_free(rig);
}

/* --- what is refused --- */

static void test_wrong_objects(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    const char *const wrong[][2] = {
        {"\"device\": \"nic0\", \"socket\": {\"type\": \"unix\", \"path\": \"/tmp/x\"}",
         "served already"},
        {"\"device\": \"nix\", \"socket\": {\"type\": \"unix\", \"path\": \"/tmp/x\"}",
         "'nix' not found"},
        {"\"socket\": {\"type\": \"unix\", \"path\": \"/tmp/x\"}", "'device'"},
        {"\"device\": \"nic0\", \"socket\": {\"colour\": \"red\"}", "socket.colour"},
        {"\"device\": \"nic0\", \"socket\": {\"path\": 5}", "not a string"},
        {"\"device\": \"nic0\", \"socket\": 5", "object"},
        {"\"device\": \"/machine\", \"socket\": {\"path\": \"/tmp/x\"}", "not a hotpluggable"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(wrong); i++) {
        GError *err = NULL;

        g_assert_null(qmp_client_executef(
            rig->rig.qmp, "object-add", &err,
            "{\"qom-type\": \"vfio-user-server\", \"id\": \"s1\", %s}", wrong[i][0]));
        g_assert_nonnull(err);
        if (!strstr(err->message, wrong[i][1])) {
            g_error("'%s' does not say '%s'", err->message, wrong[i][1]);
        }
        g_error_free(err);
    }
    live(rig, 0);
    vfio_rig_free(rig);
}

static void test_wrong_sockets(void)
{
    VfioRig *rig = vfio_rig_open(&(VfioRigConfig){.server = ""});
    g_autofree char *long_path = g_strnfill(200, 'x');
    g_autofree char *too_long =
        g_strdup_printf("\"socket\": {\"type\": \"unix\", \"path\": \"/tmp/%s\"}", long_path);
    const char *const wrong[][2] = {
        {"\"socket\": {\"type\": \"inet\", \"path\": \"x\"}", "allowed: unix, fd"},
        {"\"socket\": {\"type\": \"unix\"}", "'path'"},
        {"\"socket\": {\"type\": \"fd\"}", "'str'"},
        {"\"socket\": {\"type\": \"fd\", \"str\": \"zero\"}", "str"},
        {"\"socket\": {\"type\": \"fd\", \"str\": \"999\"}", "not a socket"},
        {"\"socket\": {\"path\": \"/nowhere/at/all\"}", "cannot listen"},
        {too_long, "longer than"},
    };
    unsigned before = vfio_rig_count_fds(rig);

    for (unsigned i = 0; i < G_N_ELEMENTS(wrong); i++) {
        GError *err = NULL;

        g_assert_null(qmp_client_executef(rig->rig.qmp, "object-add", &err,
                                          "{\"qom-type\": \"vfio-user-server\", \"id\": \"s1\", "
                                          "\"device\": \"nic0\", %s}",
                                          wrong[i][0]));
        g_assert_nonnull(err);
        if (!strstr(err->message, wrong[i][1])) {
            g_error("'%s' does not say '%s'", err->message, wrong[i][1]);
        }
        g_error_free(err);
    }
    g_assert_cmpuint(vfio_rig_count_fds(rig), ==, before);
    vfio_rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vfio-user/life/reconnects", test_reconnects);
    g_test_add_func("/vfio-user/life/one-at-a-time", test_one_at_a_time);
    g_test_add_func("/vfio-user/life/reset-on-hang-up", test_reset_on_hang_up);
    g_test_add_func("/vfio-user/life/two-devices", test_two_devices);
    g_test_add_func("/vfio-user/stream/any-byte", test_any_byte);
    g_test_add_func("/vfio-user/stream/many-in-one-piece", test_many_in_one_piece);
    g_test_add_func("/vfio-user/stream/impossible-headers", test_impossible_headers);
    g_test_add_func("/vfio-user/stream/random", test_random);
    g_test_add_func("/vfio-user/stream/surplus-fds", test_surplus_fds);
    g_test_add_func("/vfio-user/stream/unread-replies", test_unread_replies);
    g_test_add_func("/vfio-user/unplug/asks-the-client", test_unplug_asks);
    g_test_add_func("/vfio-user/unplug/at-once", test_unplug_at_once);
    g_test_add_func("/vfio-user/unplug/object-del", test_object_del);
    g_test_add_func("/vfio-user/unplug/quit-with-client", test_quit_with_client);
    g_test_add_func("/vfio-user/refused/objects", test_wrong_objects);
    g_test_add_func("/vfio-user/refused/sockets", test_wrong_sockets);
    return g_test_run();
}
