/*
 * A Rig on a vhost-user back end: see vhost-user-rig.h.
 */
#include "tests/lib/vhost-user-rig.h"

#include <string.h>
#include <unistd.h>

void vu_rig_make_dir(VuRig *vu)
{
    vu->dir = g_dir_make_tmp("vhost-user-XXXXXX", NULL);
    g_assert_nonnull(vu->dir);
    vu->path = g_build_filename(vu->dir, "s", NULL);
}

/* A rig whose netdev is the back end's; @chardev: further options, @device as in RigConfig. */
void vu_rig_open(VuRig *vu, const VuConfig *config, const char *chardev, const char *device)
{
    vu_rig_make_dir(vu);
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

void vu_rig_start(VuRig *vu, const VuConfig *config, const char *chardev, const char *device)
{
    vu_rig_open(vu, config, chardev, device);
    rig_start(vu->rig);
    g_assert_true(vu_wait(vu->backend, vu_is_started, VU_RX_TX));
}

void vu_rig_close(VuRig *vu)
{
    rig_free(vu->rig);
    vu_backend_free(vu->backend);
    rmdir(vu->dir);
    g_free(vu->dir);
    g_free(vu->path);
}

/* A frame each way, and the interrupt of the one that came. */
void vu_rig_expect_working(VuRig *vu)
{
    static uint16_t next;
    uint8_t sent[VU_FRAME], got[VU_BUFFER];
    Rig *rig = vu->rig;
    uint16_t at = next++ % 64;

    frame_fill(sent, VU_FRAME, at);
    rig_send_frame(rig, at, sent, VU_FRAME);
    g_assert_cmpmem(got, vu_receive(vu->backend, got, sizeof(got), VU_TIMEOUT_MS), sent, VU_FRAME);

    uint64_t buffer = rig_post_buffer(rig, at, VU_BUFFER);

    g_assert_true(vu_send(vu->backend, RIG_RX, sent, VU_FRAME));
    struct vring_used_elem used = ring_take(rig, rig->rx);
    g_assert_cmpuint(used.id, ==, at);
    g_assert_cmpuint(used.len, ==, VU_FRAME + RIG_HDR);
    g_assert_cmpmem(rig_at(rig, buffer + RIG_HDR, VU_FRAME), VU_FRAME, sent, VU_FRAME);
    for (unsigned ms = 0; !virtio_driver_take_interrupt(rig->virtio, 1 + RIG_RX); ms++) {
        g_assert_cmpuint(ms, <, RIG_TIMEOUT_MS);
        rig_settle(rig);
        g_usleep(1000);
    }
}

unsigned vu_rig_count(VuRig *vu, unsigned request)
{
    unsigned count = vu_lock(vu->backend)->messages[request];

    vu_unlock(vu->backend);
    return count;
}

bool vu_has_message(const VuState *state, uint64_t request)
{
    return state->messages[request] > 0;
}

bool vu_rig_link_is_up(VuRig *vu)
{
    return virtio_driver_config_read(vu->rig->virtio, 2,
                                     offsetof(struct virtio_net_config, status)) &
           VIRTIO_NET_S_LINK_UP;
}

void vu_rig_wait_link(VuRig *vu, bool up)
{
    for (unsigned ms = 0; vu_rig_link_is_up(vu) != up; ms++) {
        g_assert_cmpuint(ms, <, RIG_TIMEOUT_MS);
        g_usleep(1000);
    }
}
