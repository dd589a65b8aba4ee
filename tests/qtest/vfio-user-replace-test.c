/*
 * A server process is replaced under a running driver: its state goes to a file (or straight to
 * the next process), it ends, the next one listens at the same path, and the driver's library
 * finds it.  The driver's two threads and those of the other end of the wire notice nothing but a
 * pause: numbered frames of all lengths go both ways all the time, and each is compared.
 *
 * 9 replacements a ring layout; SWNIC_TEST_FULL=1: 99.
 */
#include <glib/gstdio.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/traffic.h"
#include "tests/lib/vfio-user-rig.h"

#define RAM_SIZE     ((size_t)16 << 20)
#define BETWEEN      400 /* frames each way between two replacements */
#define RECONNECT_MS 20000

/* --- servers --- */

typedef struct Place {
    char *dir, *socket;  /* the server's */
    char *file, *stream; /* its state, or the way there */
    int wire[2];         /* ours; the servers' */
} Place;

static Place place_new(void)
{
    Place place = {0};
    GError *err = NULL;

    place.dir = g_dir_make_tmp("swnic-replace-XXXXXX", &err);
    vfio_check(err, "directory");
    place.socket = g_build_filename(place.dir, "nic0.sock", NULL);
    place.file = g_build_filename(place.dir, "state", NULL);
    place.stream = g_build_filename(place.dir, "migration.sock", NULL);
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, place.wire), ==, 0);
    return place;
}

static void place_free(Place *place)
{
    g_assert_false(g_file_test(place->socket, G_FILE_TEST_EXISTS));
    close(place->wire[0]);
    close(place->wire[1]);
    g_unlink(place->file);
    g_unlink(place->stream);
    g_assert_cmpint(g_rmdir(place->dir), ==, 0);
    g_free(place->dir);
    g_free(place->socket);
    g_free(place->file);
    g_free(place->stream);
}

/* @incoming NULL: a new device. */
static Emulator *server_start(const Place *place, const char *device, const char *incoming)
{
    g_autofree char *netdev =
        g_strdup_printf("dgram,id=n0,local.type=fd,local.str=%d", place->wire[1]);
    g_autofree char *nic =
        g_strdup_printf("virtio-net-pci,id=nic0,netdev=n0,mac=52:54:00:12:34:56%s%s",
                        device ? "," : "", device ? device : "");
    g_autofree char *object = g_strdup_printf(
        "vfio-user-server,id=s0,device=nic0,socket.type=unix,socket.path=%s", place->socket);
    const char *arguments[] = {"-machine", "vfio-user", "-netdev",
                               netdev,     "-device",   nic,
                               "-object",  object,      incoming ? "-incoming" : NULL,
                               incoming,   NULL};
    const int inherit[] = {place->wire[1], -1};
    const EmulatorOptions options = {
        .command = rig_binary(), .arguments = arguments, .inherit_fds = inherit};
    GError *err = NULL;
    Emulator *server = emulator_start(&options, &err);

    vfio_check(err, "server");
    return server;
}

static void server_quit(Emulator *server)
{
    GError *err = NULL;

    emulator_stop(server, &err);
    vfio_check(err, "quit");
}

static void command(Emulator *server, const char *name, const char *uri)
{
    GError *err = NULL;

    json_object_put(uri ? qmp_client_executef(server->qmp, name, &err, "{\"uri\": \"%s\"}", uri)
                        : qmp_client_execute(server->qmp, name, NULL, &err));
    vfio_check(err, name);
}

/* How a migration ended. */
static char *migration_status(Emulator *server)
{
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;

    for (;;) {
        json_object *info = qmp_client_execute(server->qmp, "query-migrate", NULL, NULL);
        json_object *status;

        g_assert_true(json_object_object_get_ex(info, "status", &status));
        g_autofree char *text = g_strdup(json_object_get_string(status));

        json_object_put(info);
        if (!strcmp(text, "completed") || !strcmp(text, "failed")) {
            return g_steal_pointer(&text);
        }
        g_assert_cmpint(g_get_monotonic_time(), <, deadline);
        g_usleep(1000);
    }
}

static void migrate(Emulator *server, const char *uri, const char *how)
{
    command(server, "migrate", uri);
    g_autofree char *status = migration_status(server);

    g_assert_cmpstr(status, ==, how);
}

static char *get_property(Emulator *server, const char *name)
{
    GError *err = NULL;
    json_object *value = qmp_client_qom_get(server->qmp, "/objects/s0", name, &err);
    char *text = g_strdup(json_object_get_string(value));

    vfio_check(err, name);
    json_object_put(value);
    return text;
}

static void expect_property(Emulator *server, const char *name, const char *expected)
{
    gint64 deadline = g_get_monotonic_time() + RIG_TIMEOUT_MS * 1000;

    for (;;) {
        g_autofree char *value = get_property(server, name);

        if (!strcmp(value, expected)) {
            return;
        }
        if (g_get_monotonic_time() > deadline) {
            g_error("%s is '%s', not '%s'", name, value, expected);
        }
        g_usleep(1000);
    }
}

/* --- the driver --- */

typedef struct Guest {
    GuestRam *ram;
    VfioUserPci *vfio_user;
    GuestPciDevice *pci;
    NetDriver *driver;
} Guest;

static Guest guest_new(const Place *place, uint64_t features, unsigned reconnect_ms)
{
    const VfioUserPciOptions options = {.reconnect_ms = reconnect_ms};
    const NetDriverConfig config = {.features = NET_DRIVER_PLAIN_FEATURES | features};
    GError *err = NULL;
    Guest guest = {.ram = guest_ram_new(RAM_SIZE, &err)};

    vfio_check(err, "RAM");
    guest.vfio_user = vfio_user_pci_connect(place->socket, guest.ram, &options, &err);
    vfio_check(err, "connect");
    guest.pci = guest_pci_device_open(vfio_user_pci_bus(guest.vfio_user), 0, &err);
    vfio_check(err, "device");
    guest.driver = net_driver_new(guest.pci, guest.ram, &config, &err);
    vfio_check(err, "driver");
    return guest;
}

static void guest_free(Guest *guest)
{
    net_driver_free(guest->driver);
    g_free(guest->pci);
    vfio_user_pci_free(guest->vfio_user);
    guest_ram_free(guest->ram);
}

static uint32_t read_vendor(Guest *guest)
{
    return guest_pci_config_read(guest->pci, 2, 0);
}

/* --- replacing --- */

/* Saved, ended, then the next one is started. */
static Emulator *replace_by_file(const Place *place, Emulator *server, const char *device)
{
    g_autofree char *uri = g_strconcat("file:", place->file, NULL);

    migrate(server, uri, "completed");
    server_quit(server);
    return server_start(place, device, uri);
}

/* The next one is there already, at the path that the clients know, and waits for the file. */
static Emulator *replace_prepared(const Place *place, Emulator *server, const char *device)
{
    g_autofree char *uri = g_strconcat("file:", place->file, NULL);
    Emulator *next = server_start(place, device, "defer");

    migrate(server, uri, "completed");
    server_quit(server);
    g_assert_true(g_file_test(place->socket, G_FILE_TEST_EXISTS)); /* it is the next one's */
    command(next, "migrate-incoming", uri);
    return next;
}

/* From process to process. */
static Emulator *replace_directly(const Place *place, Emulator *server, const char *device)
{
    g_autofree char *uri = g_strconcat("unix:", place->stream, NULL);
    Emulator *next = server_start(place, device, uri);

    migrate(server, uri, "completed");
    server_quit(server);
    return next;
}

static void test_replace(const void *data)
{
    static Emulator *(*const ways[])(const Place *place, Emulator *server, const char *device) = {
        replace_by_file, replace_prepared, replace_directly};
    static const char *const policies[] = {"tx=bh", "tx=timer,x-txtimer=500000",
                                           "tx=flush-first,x-txtimer=500000", "tx=adaptive"};
    const bool packed = data != NULL;
    const unsigned rounds = g_getenv("SWNIC_TEST_FULL") ? 99 : 9;
    Place place = place_new();
    Emulator *server = server_start(&place, packed ? "packed=on" : NULL, NULL);
    Guest guest = guest_new(&place, packed ? RIG_FEATURE(VIRTIO_F_RING_PACKED) : 0, RECONNECT_MS);
    Traffic t;

    traffic_start(&t, guest.driver, place.wire[0]);
    traffic_wait(&t, BETWEEN);
    for (unsigned i = 0; i < rounds; i++) {
        g_autofree char *device =
            g_strconcat(policies[i % G_N_ELEMENTS(policies)], packed ? ",packed=on" : "", NULL);

        server = ways[i % G_N_ELEMENTS(ways)](&place, server, device);
        traffic_wait(&t, BETWEEN);
        g_assert_cmpuint(vfio_user_pci_reconnects(guest.vfio_user), ==, i + 1);
    }
    traffic_stop(&t);
    g_test_message("%u servers, %u frames out, %u in, the longest pause %.1f ms", rounds + 1,
                   t.left, t.arrived, (double)t.gap_ns / 1e6);
    guest_free(&guest);
    server_quit(server);
    place_free(&place);
}

/* --- what a server does around it --- */

/* Sends a request to read the vendor id; the reply is another matter. */
static void ask_vendor(VfioUserClient *client)
{
    const struct {
        VfioUserHeader header;
        VfioUserRegionAccess access;
    } request = {{.command = VFIO_USER_REGION_READ, .size = sizeof(request)},
                 {.region = VFIO_PCI_CONFIG_REGION_INDEX, .count = 2}};
    GError *err = NULL;

    vfio_user_client_send_raw(client, &request, sizeof(request), NULL, 0, &err);
    vfio_check(err, "request");
}

static bool answer_comes(VfioUserClient *client, unsigned ms)
{
    struct pollfd pfds[] = {{.fd = vfio_user_client_fd(client), .events = POLLIN}};

    return poll(pfds, 1, (int)ms) > 0;
}

/* What is asked once the state is saved is not answered: the answer would not be in it.  With
 * `cont` the device is here again, and the answer comes. */
static void test_saved(void)
{
    Place place = place_new();
    g_autofree char *uri = g_strconcat("file:", place.file, NULL);
    Emulator *server = server_start(&place, NULL, NULL);
    Guest guest = guest_new(&place, 0, 0);
    VfioUserClient *client = vfio_user_pci_client(guest.vfio_user);
    VfioUserAnswer answer;
    GError *err = NULL;

    migrate(server, uri, "completed");
    ask_vendor(client);
    g_assert_false(answer_comes(client, RIG_QUIET_MS));
    VfioUserClient *other = vfio_user_client_connect(place.socket, &err);

    vfio_check(err, "connect");
    vfio_user_client_set_timeout(other, RIG_QUIET_MS);
    g_assert_false(vfio_user_client_negotiate(other, NULL, NULL));
    vfio_user_client_free(other);
    command(server, "cont", NULL);
    vfio_user_client_receive(client, &answer, &err);
    vfio_check(err, "answer");
    g_assert_cmpint(answer.error, ==, 0);
    vfio_user_answer_clear(&answer);
    Traffic t;

    traffic_start(&t, guest.driver, place.wire[0]);
    traffic_wait(&t, BETWEEN);
    traffic_stop(&t);
    guest_free(&guest);
    server_quit(server);
    place_free(&place);
}

/* A save that fails at its end costs nothing, whether the VM ran or not. */
static void test_failed(const void *data)
{
    const bool stopped = data != NULL;
    Place place = place_new();
    Emulator *server = server_start(&place, NULL, NULL);
    Guest guest = guest_new(&place, 0, 0);
    Traffic t;

    if (stopped) {
        command(server, "stop", NULL);
    }
    migrate(server, "exec:cat >/dev/null; exit 3", "failed");
    g_assert_cmphex(read_vendor(&guest), ==, 0x1af4);
    if (stopped) {
        command(server, "cont", NULL);
    }
    traffic_start(&t, guest.driver, place.wire[0]);
    traffic_wait(&t, BETWEEN);
    traffic_stop(&t);
    guest_free(&guest);
    server_quit(server);
    place_free(&place);
}

/* Whoever connects to a restored device and says nothing leaves it as it is; who has negotiated and
 * goes takes it along. */
static void test_restored(void)
{
    Place place = place_new();
    g_autofree char *uri = g_strconcat("file:", place.file, NULL);
    Emulator *server = server_start(&place, NULL, NULL), *next;
    VfioUserClient *client;
    uint32_t state;
    GError *err = NULL;

    expect_property(server, "device-state", "running");
    next = replace_by_file(&place, server, NULL);
    expect_property(next, "device-state", "stop");
    for (unsigned i = 0; i < 3; i++) {
        client = vfio_user_client_connect(place.socket, &err);
        vfio_check(err, "connect");
        vfio_user_client_free(client);
    }
    client = vfio_user_client_connect(place.socket, &err);
    vfio_user_client_negotiate(client, NULL, &err);
    vfio_user_client_get_state(client, &state, &err);
    vfio_check(err, "client");
    g_assert_cmpuint(state, ==, VFIO_DEVICE_STATE_STOP);
    vfio_user_client_free(client);
    expect_property(next, "device-state", "running");
    expect_property(next, "connected", "false");
    server_quit(next);
    place_free(&place);
}

/* A state that a client has to reset stays one. */
static void test_restored_error(void)
{
    Place place = place_new();
    Emulator *server = server_start(&place, NULL, NULL), *next;
    GError *err = NULL;
    VfioUserClient *client = vfio_user_client_connect(place.socket, &err);

    vfio_user_client_negotiate(client, NULL, &err);
    vfio_user_client_set_state(client, VFIO_DEVICE_STATE_RESUMING, &err);
    vfio_check(err, "client");
    next = replace_by_file(&place, server, NULL);
    vfio_user_client_free(client);
    expect_property(next, "device-state", "error");
    client = vfio_user_client_connect(place.socket, &err);
    vfio_user_client_negotiate(client, NULL, &err);
    vfio_check(err, "client");
    g_assert_false(vfio_user_client_set_state(client, VFIO_DEVICE_STATE_RUNNING, NULL));
    vfio_user_client_reset(client, &err);
    vfio_check(err, "reset");
    expect_property(next, "device-state", "running");
    vfio_user_client_free(client);
    server_quit(next);
    place_free(&place);
}

static void add(Emulator *server, const char *name, const char *arguments)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(server->qmp, name, &err, "%s", arguments));
    vfio_check(err, name);
}

/* A process that serves two devices is replaced whole; one of them has no server, and one server no
 * client. */
static void test_two_devices(void)
{
    Place place = place_new();
    g_autofree char *uri = g_strconcat("file:", place.file, NULL);
    g_autofree char *object =
        g_strdup_printf("{\"qom-type\": \"vfio-user-server\", \"id\": \"s1\", \"device\": "
                        "\"nic1\", \"socket\": {\"type\": \"unix\", \"path\": \"%s\"}}",
                        place.stream);
    const char *devices[] = {"{\"driver\": \"virtio-net-pci\", \"id\": \"nic1\"}",
                             "{\"driver\": \"virtio-net-pci\", \"id\": \"nic2\"}"};
    Emulator *server = server_start(&place, NULL, NULL), *next;
    Guest guest = guest_new(&place, 0, RECONNECT_MS);
    Traffic t;

    for (unsigned i = 0; i < 2; i++) {
        add(server, "device_add", devices[i]);
    }
    add(server, "object-add", object);
    migrate(server, uri, "completed");
    next = server_start(&place, NULL, "defer");
    for (unsigned i = 0; i < 2; i++) {
        add(next, "device_add", devices[i]);
    }
    add(next, "object-add", object);
    server_quit(server);
    command(next, "migrate-incoming", uri);
    traffic_start(&t, guest.driver, place.wire[0]);
    traffic_wait(&t, BETWEEN);
    traffic_stop(&t);
    GError *err = NULL;
    uint32_t state;
    VfioUserClient *client = vfio_user_client_connect(place.stream, &err);

    vfio_user_client_negotiate(client, NULL, &err);
    vfio_user_client_get_state(client, &state, &err);
    vfio_check(err, "the other device");
    g_assert_cmpuint(state, ==, VFIO_DEVICE_STATE_STOP);
    vfio_user_client_free(client);
    guest_free(&guest);
    server_quit(next);
    place_free(&place);
}

/* A device of another kind goes along. */
static void test_entropy_device(void)
{
    const char *device = "{\"driver\": \"virtio-rng-pci\", \"id\": \"rng0\"}";
    Place place = place_new();
    g_autofree char *uri = g_strconcat("file:", place.file, NULL);
    Emulator *server = server_start(&place, NULL, NULL), *next;

    add(server, "device_add", device);
    migrate(server, uri, "completed");
    next = server_start(&place, NULL, "defer");
    add(next, "device_add", device);
    server_quit(server);
    command(next, "migrate-incoming", uri);
    g_autofree char *status = migration_status(next);
    g_assert_cmpstr(status, ==, "completed");
    server_quit(next);
    place_free(&place);
}

/* A file that is none ends the process that was to take over, with one line that says why. */
static void test_bad_file(void)
{
    Place place = place_new();
    g_autofree char *uri = g_strconcat("file:", place.file, NULL);
    Emulator *server = server_start(&place, NULL, NULL);
    g_autofree char *contents = NULL;
    gsize size;

    migrate(server, uri, "completed");
    server_quit(server);
    g_assert_true(g_file_get_contents(place.file, &contents, &size, NULL));
    g_assert_true(g_file_set_contents(place.file, contents, (gssize)size / 2, NULL));
    server = server_start(&place, NULL, "defer");
    GError *err = NULL;

    json_object_put(qmp_client_executef(server->qmp, "migrate-incoming", &err,
                                        "{\"uri\": \"%s\", \"exit-on-error\": false}", uri));
    vfio_check(err, "migrate-incoming");
    g_autofree char *status = migration_status(server);

    g_assert_cmpstr(status, ==, "failed");
    expect_property(server, "device-state", "running"); /* as it was: but no client gets to it */
    VfioUserClient *client = vfio_user_client_connect(place.socket, &err);

    vfio_check(err, "connect");
    vfio_user_client_set_timeout(client, RIG_QUIET_MS);
    g_assert_false(vfio_user_client_negotiate(client, NULL, NULL));
    vfio_user_client_free(client);
    server_quit(server);
    place_free(&place);
}

/* --- what a client meets --- */

static void expect_gone(Guest *guest, const char *text)
{
    GError *err = NULL;

    read_vendor(guest);
    g_assert_false(guest_pci_check(guest->pci, &err));
    g_test_message("%s", err->message);
    g_assert_nonnull(strstr(err->message, text));
    g_error_free(err);
    g_assert_true(guest_pci_is_broken(guest->pci));
}

/* Nobody comes. */
static void test_nobody(void)
{
    Place place = place_new();
    Emulator *server = server_start(&place, NULL, NULL);
    Guest guest = guest_new(&place, 0, 50);

    server_quit(server);
    expect_gone(&guest, place.socket);
    guest_free(&guest);
    place_free(&place);
}

/* The one that comes has another device: nothing of it is touched. */
static void test_another(void)
{
    Place place = place_new();
    Emulator *server = server_start(&place, NULL, NULL);
    Guest guest = guest_new(&place, 0, RECONNECT_MS);

    server_quit(server);
    server = server_start(&place, NULL, NULL);
    expect_gone(&guest, "does not have the state");
    guest_free(&guest);
    expect_property(server, "connected", "false");
    server_quit(server);
    place_free(&place);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/vfio-user/replace/under-traffic/split", NULL, test_replace);
    g_test_add_data_func("/vfio-user/replace/under-traffic/packed", "packed", test_replace);
    g_test_add_func("/vfio-user/replace/saved-is-silent-until-cont", test_saved);
    g_test_add_data_func("/vfio-user/replace/failed", NULL, test_failed);
    g_test_add_data_func("/vfio-user/replace/failed-while-stopped", "stopped", test_failed);
    g_test_add_func("/vfio-user/replace/restored-waits-for-its-client", test_restored);
    g_test_add_func("/vfio-user/replace/restored-error", test_restored_error);
    g_test_add_func("/vfio-user/replace/two-devices", test_two_devices);
    g_test_add_func("/vfio-user/replace/entropy-device", test_entropy_device);
    g_test_add_func("/vfio-user/replace/bad-file", test_bad_file);
    g_test_add_func("/vfio-user/replace/nobody-comes", test_nobody);
    g_test_add_func("/vfio-user/replace/another-device", test_another);
    return g_test_run();
}
