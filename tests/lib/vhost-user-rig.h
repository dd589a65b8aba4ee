/*
 * A Rig whose netdev is a vhost-user back end of the test's own, in a folder of its own.
 */
#ifndef TESTS_LIB_VHOST_USER_RIG_H
#define TESTS_LIB_VHOST_USER_RIG_H

#include "tests/lib/rig.h"
#include "tests/lib/vhost-user-backend.h"

#define VU_RX_TX   0x3u /* vrings of one queue pair */
#define VU_FRAME   100
#define VU_BUFFER  2048
#define VU_P(name) (1ull << VHOST_USER_PROTOCOL_F_##name)
#define VU_ALL_PROTOCOL                                                                            \
    (VU_P(MQ) | VU_P(LOG_SHMFD) | VU_P(RARP) | VU_P(REPLY_ACK) | VU_P(NET_MTU) |                   \
     VU_P(BACKEND_REQ) | VU_P(CONFIG) | VU_P(INFLIGHT_SHMFD) | VU_P(RESET_DEVICE))

typedef struct VuRig {
    char *dir, *path; /* of the back end's socket */
    VuBackend *backend;
    Rig *rig;
} VuRig;

/* The folder, and the name of the socket in it. */
void vu_rig_make_dir(VuRig *vu);
/* Folder, back end, and an emulator on it; @chardev: further options, @device as in RigConfig. */
void vu_rig_open(VuRig *vu, const VuConfig *config, const char *chardev, const char *device);
/* And the driver, until both rings have started. */
void vu_rig_start(VuRig *vu, const VuConfig *config, const char *chardev, const char *device);
void vu_rig_close(VuRig *vu);

/* A frame each way, and the interrupt of the one that came. */
void vu_rig_expect_working(VuRig *vu);
/* How often the back end got @request. */
unsigned vu_rig_count(VuRig *vu, unsigned request);
bool vu_has_message(const VuState *state, uint64_t request); /* for vu_wait() */
bool vu_rig_link_is_up(VuRig *vu);
void vu_rig_wait_link(VuRig *vu, bool up);

#endif
