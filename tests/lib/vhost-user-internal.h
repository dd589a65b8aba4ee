/*
 * Between the three files of the vhost-user back end for tests: vhost-user-backend.c (its life and
 * its thread), vhost-user-messages.c (the protocol), vhost-user-rings.c (memory and frames).
 */
#ifndef TESTS_LIB_VHOST_USER_INTERNAL_H
#define TESTS_LIB_VHOST_USER_INTERNAL_H

#include <pthread.h>

#include "tests/lib/vhost-user-backend.h"

struct VuBackend {
    char *path;
    VuConfig config;
    pthread_t thread; /* pthread's locks: ThreadSanitizer does not know GLib's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    VuState state;
    GQueue frames; /* of GBytes, from the guest */
    int listen_fd, fd, request_fd;
    int wake; /* eventfd: look at the flags below */
    bool stop, drop, available, link_up;
};

/* Writes to an eventfd; -1 is fine. */
void vu_signal(int fd);
/* Waits for a change until @end (monotonic, µs), with the lock; false at the end of the time. */
bool vu_wait_changed(VuBackend *vu, gint64 end);

/* Reads one message and does what it says; false: the connection is no good any more. */
bool vu_serve_message(VuBackend *vu);
void vu_unmap_log(VuState *s);

void vu_map_region(VuState *s, const VhostUserRegion *region, int fd);
void vu_remove_region(VuState *s, const VhostUserRegion *region);
void vu_unmap_memory(VuState *s);
/* Where an address of the front end's lies here; one outside its table ends the test. */
void *vu_from_user(VuState *s, uint64_t addr);
/* Moves frames from a ring of the guest's to the queue that vu_receive() reads. */
void vu_take_frames(VuBackend *vu, VuVring *v);

#endif
