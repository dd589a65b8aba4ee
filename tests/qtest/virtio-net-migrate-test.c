/*
 * Migration of what only some drivers use: several queue pairs, RSS and hashes, interrupt
 * coalescing, receive filters, and feature bits beyond 63.  The stream goes through a file, and the
 * second emulator takes over the first one's tap.
 *
 * The destination's driver sets its device up as the source's did, so that both know the same
 * addresses; the load then puts the source's RAM and device in the place of that.
 */
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

#include "hw/net/virtio-net-uapi.h"
#include "tests/lib/launch.h"
#include "tests/lib/mq-rig.h"

#define F(name) VIRTIO_DRIVER_FEATURE(VIRTIO_NET_F_##name)
#define WANTED                                                                                     \
    (F(CTRL_VQ) | F(CTRL_RX) | F(CTRL_VLAN) | F(CTRL_MAC_ADDR) | F(MQ) | F(RSS) | F(HASH_REPORT) | \
     F(HASH_TUNNEL) | F(NOTF_COAL) | F(VQ_NOTF_COAL) | F(CTRL_GUEST_OFFLOADS) | F(CSUM) |          \
     F(HOST_TSO4) | F(GUEST_CSUM) | F(GUEST_TSO4) | F(HOST_UDP_TUNNEL_GSO) |                       \
     F(GUEST_UDP_TUNNEL_GSO))
#define DEVICE                                                                                     \
    "mq=on,rss=on,hash=on,hash_tunnel=on,notf_coal=on,vq_notf_coal=on,host_tunnel_csum=off"
#define PAIRS_USED 3
#define SECTION    "0000:00:04.0/virtio-net"

static char *folder;

static const char *const incoming[] = {"-incoming", "defer", NULL};

static char *stream_path(void)
{
    return g_build_filename(folder, "stream", NULL);
}

/* query-rx-filter as text. */
static char *filter_text(Rig *rig)
{
    json_object *filter = launch_qmp(rig->emulator, "query-rx-filter", NULL);
    char *text = g_strdup(json_object_to_json_string(filter));

    json_object_put(filter);
    return text;
}

static void expect_coalescing(MqRig *m, uint8_t queue, uint32_t packets, uint32_t usecs)
{
    const uint8_t get[] = {
        VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET, queue, 0, 0, 0};
    uint8_t answer[9];
    uint32_t got[2];

    mq_rig_command(m, get, sizeof(get), answer, sizeof(answer));
    g_assert_cmpuint(answer[8], ==, VIRTIO_NET_OK);
    memcpy(got, answer, sizeof(got));
    g_assert_cmpuint(got[0], ==, packets);
    g_assert_cmpuint(got[1], ==, usecs);
}

/* Brings the device into a state that is in every part other than after a reset. */
static void change_state(MqRig *m)
{
    uint64_t offloads = (uint64_t)(F(GUEST_CSUM) | F(GUEST_TSO4)); /* and no tunnels */
    uint8_t command[10] = {VIRTIO_NET_CTRL_GUEST_OFFLOADS, VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET}, ack;

    mq_rig_post(m);
    g_assert_cmpuint(MQ_RUN(m, VIRTIO_NET_CTRL_MQ, 0, PAIRS_USED, 0), ==, VIRTIO_NET_OK);
    g_assert_cmpuint(mq_rig_set_rss(m, 2, MQ_PAIRS), ==, VIRTIO_NET_OK);
    g_assert_cmpuint(MQ_RUN(m, VIRTIO_NET_CTRL_HASH_TUNNEL, 0, 0x10, 0, 0, 0), ==, VIRTIO_NET_OK);
    g_assert_cmpuint(MQ_RUN(m, VIRTIO_NET_CTRL_NOTF_COAL, 1, 5, 0, 0, 0, 100, 0, 0, 0), ==,
                     VIRTIO_NET_OK);
    g_assert_cmpuint(MQ_RUN(m, VIRTIO_NET_CTRL_NOTF_COAL, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET, 3, 0, 0,
                            0, 7, 0, 0, 0, 200, 0, 0, 0),
                     ==, VIRTIO_NET_OK);
    g_assert_cmpuint(MQ_RUN(m, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 0), ==,
                     VIRTIO_NET_OK);
    g_assert_cmpuint(MQ_RUN(m, VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, 1, 0, 0, 0, 2, 0,
                            0, 0, 0, 9, 1, 0, 0, 0, 1, 0, 0x5e, 0, 0, 9),
                     ==, VIRTIO_NET_OK);
    g_assert_cmpuint(MQ_RUN(m, VIRTIO_NET_CTRL_VLAN, VIRTIO_NET_CTRL_VLAN_ADD, 5, 0), ==,
                     VIRTIO_NET_OK);
    memcpy(command + 2, &offloads, 8);
    g_assert_cmpuint(mq_rig_command(m, command, sizeof(command), &ack, 1), ==, VIRTIO_NET_OK);
}

/* The driver of @to goes on where that of @from was. */
static void hand_over(const MqRig *from, MqRig *to)
{
    for (unsigned i = 0; i <= MQ_CTRL; i++) {
        to->queues[i]->avail_next = from->queues[i]->avail_next;
        to->queues[i]->avail_published = from->queues[i]->avail_published;
        to->queues[i]->used_next = from->queues[i]->used_next;
        g_assert_cmphex(to->queues[i]->desc_addr, ==, from->queues[i]->desc_addr);
    }
    memcpy(to->buffers, from->buffers, sizeof(to->buffers));
    to->rig->ram->next = from->rig->ram->next;
}

static MqRig *open_source(const char *device)
{
    MqRig *m = mq_rig_open(MQ_NETDEV, device, NULL, WANTED);

    change_state(m);
    return m;
}

/* Saves @m, which stays stopped. */
static void save(MqRig *m)
{
    g_autofree char *path = stream_path();

    launch_do(m->rig->emulator, "migrate", "{'uri': 'file:%s'}", path);
    launch_wait_migrated(m->rig->emulator);
}

static void load(MqRig *m)
{
    g_autofree char *path = stream_path();

    launch_do(m->rig->emulator, "migrate-incoming", "{'uri': 'file:%s'}", path);
    launch_wait_migrated(m->rig->emulator);
    launch_do(m->rig->emulator, "cont", NULL);
}

/* What the driver remembers of its queues when its emulator is gone: their rings are not there any
 * more. */
typedef struct Memory {
    MqRig m;
    Rig rig;
    GuestRam ram;
    DriverQueue queues[MQ_CTRL + 1];
} Memory;

static void remember(Memory *memory, const MqRig *m)
{
    memory->m = *m;
    memory->ram = *m->rig->ram;
    memory->rig.ram = &memory->ram;
    memory->m.rig = &memory->rig;
    for (unsigned i = 0; i <= MQ_CTRL; i++) {
        memory->queues[i] = *m->queues[i];
        memory->m.queues[i] = &memory->queues[i];
    }
}

static void test_state_is_carried(void)
{
    MqRig *m = open_source(DEVICE);
    VirtioDriverFeatures features = m->rig->virtio->features;
    g_autofree char *before = filter_text(m->rig), *after = NULL;
    unsigned got[MQ_PAIRS];
    Memory memory;
    uint8_t frame[200];

    mq_rig_send_flows(m, 4);
    mq_rig_count(m, 4, got);
    g_assert_cmpuint(got[2], ==, 4);
    g_assert_false(virtio_driver_take_interrupt(m->rig->virtio, 5)); /* fewer than five */
    save(m);
    remember(&memory, m);
    mq_rig_close(m);

    m = mq_rig_open(MQ_NETDEV, DEVICE, incoming, WANTED);
    g_assert_true(m->rig->virtio->features == features);
    load(m);
    hand_over(&memory.m, m);
    after = filter_text(m->rig);
    g_assert_cmpstr(before, ==, after);
    g_assert_true(virtio_driver_take_interrupt(m->rig->virtio, 5)); /* not held back over the end */
    for (uint8_t i = 0; i < MQ_CTRL; i += 2) {
        expect_coalescing(m, i, 5, 100);
        expect_coalescing(m, i + 1, i == 2 ? 7 : 0, i == 2 ? 200 : 0);
    }

    /* RSS, hash, length of the header, interrupts and their coalescing. */
    mq_rig_send_flows(m, 4);
    mq_rig_count(m, 8, got);
    g_assert_cmpuint(got[2], ==, 8);
    g_assert_false(virtio_driver_take_interrupt(m->rig->virtio, 5));
    mq_rig_send_flows(m, 1);
    mq_rig_count(m, 9, got);
    g_assert_true(virtio_driver_take_interrupt(m->rig->virtio, 5));
    const uint8_t *hdr = rig_at(m->rig, m->buffers[2][8], MQ_BUFFER);
    unsigned length = features >> 64 ? 24 : 20;
    size_t size = mq_rig_frame(frame, 0);
    g_assert_cmpuint(hdr[16], ==, VIRTIO_NET_HASH_REPORT_UDPv4);
    g_assert_cmpmem(hdr + length, size, frame, size);
    mq_rig_close(m);
}

/* The device's section of the stream, and what follows it; g_bytes_unref(). */
static GBytes *saved_section(void)
{
    g_autofree char *path = stream_path(), *bytes = NULL;
    const char *section;
    gsize size;

    g_assert_true(g_file_get_contents(path, &bytes, &size, NULL));
    section = memmem(bytes, size, SECTION, strlen(SECTION));
    g_assert_nonnull(section);
    return g_bytes_new(section, (gsize)(bytes + size - section));
}

/* Saved by the destination without having run, it is the same. */
static void test_saved_again(void)
{
    g_autofree char *path = stream_path();
    g_autoptr(GBytes) first = NULL, second = NULL;
    MqRig *m = open_source(DEVICE);

    launch_do(m->rig->emulator, "stop", NULL);
    save(m);
    first = saved_section();
    mq_rig_close(m);
    m = mq_rig_open(MQ_NETDEV, DEVICE, incoming, WANTED);
    launch_do(m->rig->emulator, "migrate-incoming", "{'uri': 'file:%s'}", path);
    launch_wait_migrated(m->rig->emulator);
    save(m);
    second = saved_section();
    mq_rig_close(m);
    g_assert_cmpmem(g_bytes_get_data(first, NULL), g_bytes_get_size(first),
                    g_bytes_get_data(second, NULL), g_bytes_get_size(second));
}

/* What the destination cannot have is refused, by the name of the field, and changes nothing. */
static void test_refused(void)
{
    static const struct {
        const char *netdev, *device, *message;
    } rows[] = {
        {TAP_RIG_NETDEV ",queues=4,vnet_hdr=on",
         "mq=on,rss=on,hash=on,notf_coal=on,vq_notf_coal=on,host_tunnel_csum=off", "Features 0x"},
        {TAP_RIG_NETDEV ",queues=4,vnet_hdr=on", DEVICE ",hash-udp4=off", "rss_data.hash_types 0x"},
        {TAP_RIG_NETDEV ",queues=2,vnet_hdr=on", DEVICE ",vectors=10", "max_queue_pairs 4"},
        {TAP_RIG_NETDEV ",queues=4,vnet_hdr=off", DEVICE, "Features 0x"},
    };
    MqRig *m = open_source(DEVICE);

    save(m);
    mq_rig_close(m);
    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        Wire wire;
        g_autofree char *path = stream_path();
        g_autofree char *message = NULL, *before = NULL, *after = NULL;
        Rig *rig = rig_open(
            &(RigConfig){.netdev = rows[i].netdev, .device = rows[i].device, .args = incoming});

        wire_open(&wire, TAP_RIG_IFNAME);
        before = filter_text(rig);
        launch_do(rig->emulator, "migrate-incoming", "{'uri': 'file:%s', 'exit-on-error': false}",
                  path);
        message = launch_wait_migration_failed(rig->emulator);
        g_test_message("%s: %s", rows[i].device, message);
        g_assert_nonnull(strstr(message, SECTION));
        g_assert_nonnull(strstr(message, rows[i].message));
        g_assert_null(strchr(message, '\n'));
        after = filter_text(rig);
        g_assert_cmpstr(before, ==, after);
        g_assert_cmpuint(virtio_driver_status(rig->virtio), ==, 3); /* as the driver left it */
        wire_close(&wire);
        rig_free(rig);
    }
}

int main(int argc, char **argv)
{
    g_autofree char *reason = NULL, *path = NULL;
    int rc;

    g_test_init(&argc, &argv, NULL);
    if (!wire_enter(&reason)) {
        printf("1..0 # SKIP no taps here: %s\n", reason);
        return 0;
    }
    folder = g_dir_make_tmp("virtio-net-migrate-XXXXXX", NULL);
    g_assert_nonnull(folder);
    g_test_add_func("/virtio-net-migrate/state-is-carried", test_state_is_carried);
    g_test_add_func("/virtio-net-migrate/saved-again-is-the-same", test_saved_again);
    g_test_add_func("/virtio-net-migrate/refused-by-field", test_refused);
    rc = g_test_run();
    path = stream_path();
    g_unlink(path);
    g_rmdir(folder);
    g_free(folder);
    return rc;
}
