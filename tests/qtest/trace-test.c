/*
 * Trace events of the data path and of vfio-user: lines in the log (-D) with what really happened,
 * and none while their event is off.
 */
#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/vfio-user-rig.h"

#define FRAME_SIZE 100u
#define BUF_SIZE   1600u

/* The emulator's log, read from where the last look ended. */
typedef struct Log {
    char *path;
    size_t seen;
} Log;

static Log log_open(void)
{
    Log log = {.path = g_build_filename(g_get_tmp_dir(), "swnic-trace-XXXXXX", NULL)};
    int fd = g_mkstemp(log.path);

    g_assert_cmpint(fd, >=, 0);
    close(fd);
    return log;
}

static void log_close(Log *log)
{
    g_unlink(log->path);
    g_free(log->path);
}

/* What was written since the last call, without addresses ("vdev 0x55…" is "vdev P"). */
static char *log_take(Log *log)
{
    g_autofree char *text = NULL;
    gsize size;
    g_autoptr(GRegex) address = g_regex_new("0x[0-9a-f]{6,}", 0, 0, NULL);

    g_assert_true(g_file_get_contents(log->path, &text, &size, NULL));
    g_assert_cmpuint(size, >=, log->seen);
    char *fresh = g_regex_replace_literal(address, text + log->seen, -1, 0, "P", 0, NULL);
    log->seen = size;
    return fresh;
}

static void expect_log(Rig *rig, Log *log, const char *expected)
{
    rig_settle(rig);
    g_autofree char *got = log_take(log);
    g_assert_cmpstr(got, ==, expected);
}

static uint8_t run_command(Rig *rig, uint8_t class, uint8_t command, uint8_t argument)
{
    DriverQueue *queue = rig->queues[RIG_CTRL];
    uint64_t addr = rig_alloc(rig, 4);
    uint8_t *bytes = rig_at(rig, addr, 4);
    const RingPart parts[] = {{addr, 3, 0}, {addr + 3, 1, VRING_DESC_F_WRITE}};

    memcpy(bytes, (uint8_t[]){class, command, argument, 0x55}, 4);
    ring_chain(queue, 0, parts, 2);
    ring_send(rig, queue, 0);
    ring_take(rig, queue);
    return bytes[3];
}

static void test_data_path(void)
{
    Log log = log_open();
    const char *args[] = {"-D", log.path, "-trace", "virtio_*", "-trace", "net_*", NULL};
    uint8_t frame[FRAME_SIZE];
    Rig *rig = rig_open(&(RigConfig){
        .args = args,
        .device = "tx=bh",
        .features = RIG_FEATURE(VIRTIO_NET_F_CTRL_VQ) | RIG_FEATURE(VIRTIO_NET_F_CTRL_RX),
    });

    rig_settle(rig);
    g_autofree char *start = log_take(&log); /* resets of the bus before that of the driver */
    g_assert_true(g_str_has_suffix(start, "virtio_set_status vdev P status 0x00\n"
                                          "virtio_set_status vdev P status 0x01\n"
                                          "virtio_set_status vdev P status 0x03\n"));
    rig_start(rig);
    expect_log(rig, &log,
               "virtio_set_status vdev P status 0x0b\n"
               "virtio_set_status vdev P status 0x0f\n");

    frame_fill(frame, sizeof(frame), 1);
    rig_send_frame(rig, 0, frame, sizeof(frame));
    rig_peer_expect(rig, frame, sizeof(frame));
    expect_log(rig, &log,
               "virtio_queue_notify vdev P queue 1\n"
               "virtio_notify vdev P queue 1 vector 2\n"
               "virtio_net_tx_flush n P queue pair 0 cause 1 packets 1\n");

    rig_post_buffer(rig, 0, BUF_SIZE);
    expect_log(rig, &log, "virtio_queue_notify vdev P queue 0\n");
    rig_peer_send(rig, frame, sizeof(frame));
    ring_take(rig, rig->rx);
    expect_log(rig, &log,
               "virtio_notify vdev P queue 0 vector 1\n"
               "virtio_net_rx_batch n P queue pair 0 offered 1 taken 1\n");

    g_assert_cmpuint(run_command(rig, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI, 1), ==, 0);
    g_assert_cmpuint(run_command(rig, 99, 98, 1), ==, 1);
    expect_log(rig, &log,
               "virtio_queue_notify vdev P queue 2\n"
               "virtio_net_ctrl class 0 command 1 ack 0\n"
               "virtio_notify vdev P queue 2 vector 3\n"
               "virtio_queue_notify vdev P queue 2\n"
               "virtio_net_ctrl class 99 command 98 ack 1\n"
               "virtio_notify vdev P queue 2 vector 3\n");
    rig_free(rig);
    log_close(&log);
}

static void test_drop(void)
{
    Log log = log_open();
    const char *args[] = {"-D", log.path, "-trace", "net_drop", NULL};
    uint8_t frame[FRAME_SIZE];
    Rig *rig = rig_new(&(RigConfig){.args = args, .no_peer = true});

    frame_fill(frame, sizeof(frame), 1);
    expect_log(rig, &log, "");
    rig_send_frame(rig, 0, frame, sizeof(frame));
    expect_log(rig, &log, "net_drop client nic0 reason no-peer packets 1\n");
    rig_free(rig);
    log_close(&log);
}

static void test_off(void)
{
    Log log = log_open();
    const char *args[] = {"-D",     log.path,    "-trace", "virtio_*",
                          "-trace", "-virtio_*", "-trace", "vfio_user_command",
                          NULL};
    Rig *rig = rig_new(&(RigConfig){.args = args});

    rig_expect_working(rig);
    expect_log(rig, &log, "");
    rig_free(rig);
    log_close(&log);
}

static void test_vfio_user(void)
{
    Log log = log_open();
    const char *args[] = {"-D", log.path, "-trace", "vfio_user_*", NULL};
    VfioRig *rig = vfio_rig_open(&(VfioRigConfig){.rig.args = args});
    VfioUserClient *client = vfio_rig_connect(rig);
    const struct vfio_device_info info = {.argsz = sizeof(info)};
    const struct vfio_region_info bad = {.argsz = sizeof(bad), .index = 99};
    unsigned ids[3];

    g_free(log_take(&log)); /* of the negotiation */
    vfio_expect(client, VFIO_USER_DEVICE_GET_INFO, &info, sizeof(info), NULL, 0, 0);
    vfio_expect(client, VFIO_USER_DEVICE_GET_REGION_INFO, &bad, sizeof(bad), NULL, 0, EINVAL);
    vfio_expect(client, VFIO_USER_DEVICE_RESET, NULL, 0, NULL, 0, 0);
    g_autofree char *text = log_take(&log);
    g_assert_cmpint(sscanf(text,
                           "vfio_user_command id %u command 4 errno 0\n"
                           "vfio_user_command id %u command 5 errno 22\n"
                           "vfio_user_command id %u command 13 errno 0\n",
                           &ids[0], &ids[1], &ids[2]),
                    ==, 3);
    g_assert_cmpuint(ids[1], ==, ids[0] + 1); /* the client counts its messages */
    g_assert_cmpuint(ids[2], ==, ids[1] + 1);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    g_assert_cmpuint(g_strv_length(lines), ==, 4); /* and behind the last nothing */
    g_assert_cmpstr(lines[3], ==, "");
    vfio_user_client_free(client);
    vfio_rig_free(rig);
    log_close(&log);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/trace/data-path", test_data_path);
    g_test_add_func("/trace/drop", test_drop);
    g_test_add_func("/trace/off-is-silent", test_off);
    g_test_add_func("/trace/vfio-user", test_vfio_user);
    return g_test_run();
}
