/* Between the files of the vhost-user front end: messages (vhost-user-channel.c) and what they are
 * used for (vhost-user.c). */
#ifndef VHOST_VHOST_USER_INTERNAL_H
#define VHOST_VHOST_USER_INTERNAL_H

#include "chardev/chardev.h"
#include "protocol/vhost-user.h"
#include "util/event-loop.h"
#include "vhost/vhost.h"

struct VhostUser {
    VhostBackend parent;
    Chardev *chr;
    VhostUserEvents events;
    unsigned queues; /* pairs */
    bool told_up;    /* what the owner was told last */
    bool in_use;     /* constructed: the owner is told of changes */
    char *refusal;   /* why the last connection was refused; NULL: it was not */
    BottomHalf *drop_bh;
    /* of this connection */
    uint64_t protocol_features;
    uint64_t max_slots;
    VhostRegion *slots; /* memory that ADD_MEM_REG has told */
    unsigned num_slots;
    uint64_t vrings_started; /* bit by index, the first 64 */
    int request_fd;          /* our end of the back end's own requests; -1 */
    struct {
        uint8_t data[sizeof(VhostUserHeader) + sizeof(VhostUserPayload)];
        size_t size;
    } request;
    /* Requests that a back end which dies leaves half done; longer than a connection. */
    int inflight_fd; /* -1: none */
    VhostUserInflight inflight;
};

static inline bool vhost_user_has(const VhostUser *u, unsigned bit)
{
    return u->protocol_features >> bit & 1;
}

/* A message that is not answered. */
gboolean vhost_user_tell(VhostUser *u, uint32_t request, const void *payload, uint32_t size,
                         const int *fds, unsigned nfds, GError **errp);
/* One whose success is confirmed if the back end can (REPLY_ACK). */
gboolean vhost_user_set(VhostUser *u, uint32_t request, const void *payload, uint32_t size,
                        const int *fds, unsigned nfds, GError **errp);
/* One that has an answer, of @min to sizeof(*payload) bytes, which replaces the question in
 * @payload.  *fd (may be NULL): the descriptor that came with it, or -1. */
gboolean vhost_user_ask(VhostUser *u, uint32_t request, VhostUserPayload *payload, uint32_t size,
                        uint32_t min, const int *fds, unsigned nfds, int *fd, GError **errp);
gboolean vhost_user_ask_u64(VhostUser *u, uint32_t request, uint64_t *value, GError **errp);

/* Requests of the back end's: opens and closes the socket for them. */
gboolean vhost_user_open_requests(VhostUser *u, GError **errp);
void vhost_user_close_requests(VhostUser *u);
/* The back end's configuration changed (vhost-user.c). */
void vhost_user_config_changed(VhostUser *u);

#endif
