/*
 * -netdev vhost-user: connections that end and come again, in every order, back ends that
 * misbehave, migration from one back end to another, and netdevs that come and go.
 */
#include <linux/vhost_types.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/launch.h"
#include "tests/lib/vhost-user-rig.h"

/* --- connections --- */

static void test_reconnect(gconstpointer data)
{
    bool emulator_listens = GPOINTER_TO_INT(data);
    VuConfig config = {.client = emulator_listens, .protocol_features = VU_ALL_PROTOCOL};
    VuRig vu = {0};
    uint64_t inflight;

    vu_rig_start(&vu, &config, emulator_listens ? ",server=on" : ",reconnect-ms=20", NULL);
    vu_rig_expect_working(&vu);
    inflight = vu_lock(vu.backend)->inflight_inode;
    vu_unlock(vu.backend);
    g_assert_cmpuint(inflight, !=, 0);
    for (unsigned i = 2; i < 5; i++) {
        vu_set_available(vu.backend, false);
        vu_disconnect(vu.backend);
        vu_rig_wait_link(&vu, false);
        vu_set_available(vu.backend, true);
        g_assert_true(vu_wait(vu.backend, vu_has_connections, i));
        g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
        vu_rig_wait_link(&vu, true);
        /* What the back end before left undone is handed to the next. */
        g_assert_cmpuint(vu_lock(vu.backend)->inflight_inode, ==, inflight);
        vu_unlock(vu.backend);
        vu_rig_expect_working(&vu);
    }
    vu_rig_close(&vu);
}

/* Frames that the driver sends while nobody is there wait for the next back end. */
static void test_nothing_lost_meanwhile(void)
{
    VuConfig config = {.client = true};
    VuRig vu = {0};
    uint8_t frame[VU_FRAME], got[VU_FRAME];
    uint64_t buffer;

    vu_rig_start(&vu, &config, ",server=on", NULL);
    vu_rig_expect_working(&vu);
    vu_set_available(vu.backend, false);
    vu_disconnect(vu.backend);
    vu_rig_wait_link(&vu, false);
    buffer = rig_alloc(vu.rig, VU_FRAME + RIG_HDR);
    frame_fill(frame, VU_FRAME, 77);
    memcpy(rig_at(vu.rig, buffer + RIG_HDR, VU_FRAME), frame, VU_FRAME);
    ring_set(vu.rig->tx, 99, buffer, VU_FRAME + RIG_HDR, 0, 0);
    ring_send(vu.rig, vu.rig->tx, 99);
    rig_settle(vu.rig);
    g_assert_cmpuint(ring_used_count(vu.rig->tx), ==, 0);
    vu_set_available(vu.backend, true);
    g_assert_cmpmem(got, vu_receive(vu.backend, got, VU_FRAME, VU_TIMEOUT_MS), frame, VU_FRAME);
    g_assert_cmpuint(ring_take(vu.rig, vu.rig->tx).id, ==, 99);
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

/* The driver resets, and starts anew, while there is no back end. */
static void test_restart_while_away(void)
{
    VuConfig config = {.client = true, .protocol_features = VU_ALL_PROTOCOL};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, ",server=on", NULL);
    vu_rig_expect_working(&vu);
    vu_set_available(vu.backend, false);
    vu_disconnect(vu.backend);
    vu_rig_wait_link(&vu, false);
    rig_restart(vu.rig);
    vu_set_available(vu.backend, true);
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

static void start_after(const VuMode *modes, unsigned connections)
{
    VuConfig config = {.client = true, .modes = modes};
    VuRig vu = {0};

    vu_rig_start(&vu, &config, ",server=on", NULL);
    g_assert_true(vu_wait(vu.backend, vu_has_connections, connections));
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
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
    VuRig vu = {0};

    /* The first connection works until what was not asked for is read. */
    vu_rig_open(&vu, &config, ",server=on", NULL);
    rig_start(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_has_connections, 5));
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_wait_link(&vu, true);
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
}

static void test_refused_memory(void)
{
    static const VuMode modes[] = {VU_REFUSE_MEMORY, VU_NORMAL};
    VuConfig config = {.client = true, .modes = modes, .protocol_features = VU_P(REPLY_ACK)};
    VuRig vu = {0};

    vu_rig_open(&vu, &config, ",server=on", NULL);
    rig_start(vu.rig);
    g_assert_true(vu_wait(vu.backend, vu_has_message, VHOST_USER_SET_MEM_TABLE));
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    rig_settle(vu.rig);
    vu_disconnect(vu.backend);
    g_assert_true(vu_wait(vu.backend, vu_has_connections, 2));
    g_assert_true(vu_wait(vu.backend, vu_is_started, VU_RX_TX));
    vu_rig_expect_working(&vu);
    vu_rig_close(&vu);
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
    VuConfig config = {.protocol_features = VU_ALL_PROTOCOL};
    VuRig vu = {0};
    VuBackend *second;

    vu_rig_start(&vu, &config, "", NULL);
    for (unsigned i = 0; i < 7; i++) {
        vu_rig_expect_working(&vu);
    }

    g_autofree char *path = g_build_filename(vu.dir, "2", NULL);
    g_autofree char *stream = g_build_filename(vu.dir, "stream", NULL);

    launch_do(vu.rig->emulator, "migrate", "{'uri': 'file:%s'}", stream);
    launch_wait_migrated(vu.rig->emulator);
    g_assert_true(vu_wait(vu.backend, vu_is_started, 0));
    /* What the back end wrote meanwhile it logged. */
    g_assert_cmpuint(vu_rig_count(&vu, VHOST_USER_SET_LOG_BASE), ==, 1);
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
    g_assert_true(vu_wait(second, vu_is_started, VU_RX_TX));
    g_assert_cmpuint(vu_lock(second)->vrings[RIG_RX].base, ==, 7);
    vu_unlock(second);
    g_assert_cmpuint(vu_lock(second)->vrings[RIG_TX].base, ==, 7);
    vu_unlock(second);
    launch_quit(e);
    vu_backend_free(second);
    unlink(stream);
    vu_rig_close(&vu);
}

/* --- netdevs that come and go --- */

static void test_netdev_del(void)
{
    VuRig vu = {0};

    vu_rig_start(&vu, NULL, "", NULL);
    vu_rig_expect_working(&vu);
    launch_do(vu.rig->emulator, "netdev_del", "{'id': 'n0'}");
    g_assert_false(vu_rig_link_is_up(&vu));
    /* Without a peer frames are dropped by the device itself. */
    uint8_t frame[VU_FRAME];
    frame_fill(frame, VU_FRAME, 5);
    rig_send_frame(vu.rig, 80, frame, VU_FRAME);
    launch_do(vu.rig->emulator, "chardev-remove", "{'id': 'c0'}");
    vu_rig_close(&vu);
}

static void test_added_and_unplugged(void)
{
    VuRig vu = {0};
    Emulator *e;

    vu_rig_make_dir(&vu);
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
    VuRig vu = {0};

    vu_rig_make_dir(&vu);
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
    VuRig vu = {0};

    vu_rig_make_dir(&vu);
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
    g_test_add_data_func("/vhost-user-connection/reconnect/client", GINT_TO_POINTER(false),
                         test_reconnect);
    g_test_add_data_func("/vhost-user-connection/reconnect/server", GINT_TO_POINTER(true),
                         test_reconnect);
    g_test_add_func("/vhost-user-connection/nothing-lost-meanwhile", test_nothing_lost_meanwhile);
    g_test_add_func("/vhost-user-connection/restart-while-away", test_restart_while_away);
    g_test_add_func("/vhost-user-connection/connect-fail", test_connect_fail);
    g_test_add_func("/vhost-user-connection/bad-answers", test_bad_answers);
    g_test_add_func("/vhost-user-connection/flags-mismatch", test_flags_mismatch);
    g_test_add_func("/vhost-user-connection/refused-memory", test_refused_memory);
    g_test_add_func("/vhost-user-connection/silent", test_silent);
    g_test_add_func("/vhost-user-connection/migrate", test_migrate);
    g_test_add_func("/vhost-user-connection/netdev-del", test_netdev_del);
    g_test_add_func("/vhost-user-connection/added-and-unplugged", test_added_and_unplugged);
    g_test_add_func("/vhost-user-connection/refused", test_refused);
    g_test_add_func("/vhost-user-connection/no-second-chance", test_no_second_chance);
    return g_test_run();
}
