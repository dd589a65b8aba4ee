/*
 * vhost-user: messages.
 *
 * Questions are synchronous: the front end asks, waits (at most TIMEOUT_MS, for a back end that
 * hangs must not hang the emulator) and has its answer.  A connection on which anything goes wrong
 * is of no more use: it is marked as lost at once, and closed from a bottom half, because whoever
 * asked is in the middle of something.
 *
 * The back end's own requests come on a second socket, read when the loop has time.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/error.h"
#include "vhost/vhost-user-internal.h"

#define TIMEOUT_MS 5000

static gboolean lost(VhostUser *u)
{
    u->parent.connected = false;
    bh_schedule(u->drop_bh);
    return FALSE;
}

static gboolean protocol_error(VhostUser *u, uint32_t request, const char *what, GError **errp)
{
    error_set(errp, "netdev '%s': vhost-user request %u: %s", u->parent.name, request, what);
    return lost(u);
}

static gboolean send_message(VhostUser *u, uint32_t request, uint32_t flags, const void *payload,
                             uint32_t size, const int *fds, unsigned nfds, GError **errp)
{
    struct {
        VhostUserHeader header;
        VhostUserPayload payload;
    } __attribute__((packed)) message = {
        .header = {request, VHOST_USER_VERSION | flags, size},
    };

    if (size) {
        memcpy(&message.payload, payload, size);
    }
    if (!chardev_send_sync(u->chr, &message, sizeof(message.header) + size, fds, nfds, TIMEOUT_MS,
                           errp)) {
        g_prefix_error(errp, "netdev '%s': vhost-user request %u: ", u->parent.name, request);
        return lost(u);
    }
    return TRUE;
}

static void close_passed_fds(VhostUser *u, int *keep)
{
    int fd;

    if (keep) {
        *keep = chardev_take_fd(u->chr);
    }
    while ((fd = chardev_take_fd(u->chr)) >= 0) {
        close(fd);
    }
}

static gboolean receive_answer(VhostUser *u, uint32_t request, VhostUserPayload *payload,
                               uint32_t min, int *fd, GError **errp)
{
    VhostUserHeader header;
    gboolean ok;

    if (!chardev_receive_sync(u->chr, &header, sizeof(header), TIMEOUT_MS, errp)) {
        g_prefix_error(errp, "netdev '%s': vhost-user request %u: ", u->parent.name, request);
        return lost(u);
    }
    if (header.request != request || !(header.flags & VHOST_USER_FLAG_REPLY) ||
        (header.flags & VHOST_USER_VERSION_MASK) != VHOST_USER_VERSION) {
        return protocol_error(u, request, "the answer is to something else", errp);
    }
    if (header.size < min || header.size > sizeof(*payload)) {
        return protocol_error(u, request, "the answer has the wrong size", errp);
    }
    ok = !header.size || chardev_receive_sync(u->chr, payload, header.size, TIMEOUT_MS, errp);
    close_passed_fds(u, ok ? fd : NULL);
    if (!ok) {
        g_prefix_error(errp, "netdev '%s': vhost-user request %u: ", u->parent.name, request);
        return lost(u);
    }
    return TRUE;
}

static gboolean is_connected(VhostUser *u, GError **errp)
{
    return (chardev_is_open(u->chr) && !bh_pending(u->drop_bh)) ||
           error_set(errp, "netdev '%s': the vhost-user back end is not connected", u->parent.name);
}

gboolean vhost_user_tell(VhostUser *u, uint32_t request, const void *payload, uint32_t size,
                         const int *fds, unsigned nfds, GError **errp)
{
    return is_connected(u, errp) && send_message(u, request, 0, payload, size, fds, nfds, errp);
}

gboolean vhost_user_set(VhostUser *u, uint32_t request, const void *payload, uint32_t size,
                        const int *fds, unsigned nfds, GError **errp)
{
    bool confirmed = vhost_user_has(u, VHOST_USER_PROTOCOL_F_REPLY_ACK);
    VhostUserPayload answer;

    if (!is_connected(u, errp) ||
        !send_message(u, request, confirmed ? VHOST_USER_FLAG_NEED_REPLY : 0, payload, size, fds,
                      nfds, errp)) {
        return FALSE;
    }
    if (!confirmed) {
        return TRUE;
    }
    if (!receive_answer(u, request, &answer, sizeof(answer.u64), NULL, errp)) {
        return FALSE;
    }
    return !answer.u64 || error_set(errp, "netdev '%s': the back end refuses vhost-user request %u",
                                    u->parent.name, request);
}

gboolean vhost_user_ask(VhostUser *u, uint32_t request, VhostUserPayload *payload, uint32_t size,
                        uint32_t min, const int *fds, unsigned nfds, int *fd, GError **errp)
{
    if (fd) {
        *fd = -1;
    }
    return is_connected(u, errp) && send_message(u, request, 0, payload, size, fds, nfds, errp) &&
           receive_answer(u, request, payload, min, fd, errp);
}

gboolean vhost_user_ask_u64(VhostUser *u, uint32_t request, uint64_t *value, GError **errp)
{
    VhostUserPayload payload = {0};

    if (!vhost_user_ask(u, request, &payload, 0, sizeof(payload.u64), NULL, 0, NULL, errp)) {
        return FALSE;
    }
    *value = payload.u64;
    return TRUE;
}

/* --- requests of the back end's --- */

static void answer_request(VhostUser *u, const VhostUserHeader *header, uint64_t result)
{
    struct {
        VhostUserHeader header;
        uint64_t result;
    } __attribute__((packed)) answer = {
        .header = {header->request, VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY, sizeof(result)},
        .result = result,
    };

    if (header->flags & VHOST_USER_FLAG_NEED_REPLY) {
        send(u->request_fd, &answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void handle_request(VhostUser *u, const VhostUserHeader *header)
{
    bool known = header->request == VHOST_USER_BACKEND_CONFIG_CHANGE_MSG;

    answer_request(u, header, !known);
    if (known) {
        vhost_user_config_changed(u);
    }
}

/* Handles what is complete in the buffer; false: nonsense. */
static bool handle_requests(VhostUser *u)
{
    VhostUserHeader header;

    while (u->request.size >= sizeof(header)) {
        memcpy(&header, u->request.data, sizeof(header));
        if (header.size > sizeof(u->request.data) - sizeof(header)) {
            return false;
        }

        size_t size = sizeof(header) + header.size;

        if (u->request.size < size) {
            break;
        }
        u->request.size -= size;
        memmove(u->request.data, u->request.data + size, u->request.size);
        handle_request(u, &header);
        if (u->request_fd < 0) {
            break; /* the connection ended meanwhile */
        }
    }
    return true;
}

static void request_readable(void *opaque)
{
    VhostUser *u = opaque;
    ssize_t n = recv(u->request_fd, u->request.data + u->request.size,
                     sizeof(u->request.data) - u->request.size, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    u->request.size += n > 0 ? (size_t)n : 0;
    if (n <= 0 || !handle_requests(u)) {
        vhost_user_close_requests(u);
    }
}

gboolean vhost_user_open_requests(VhostUser *u, GError **errp)
{
    int pair[2];
    gboolean ok;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return error_set_errno(errp, errno, "netdev '%s': cannot make a socket for vhost-user",
                               u->parent.name);
    }
    u->request_fd = pair[0];
    u->request.size = 0;
    event_loop_set_fd_handler(event_loop_main(), u->request_fd, request_readable, NULL, u);
    ok = vhost_user_set(u, VHOST_USER_SET_BACKEND_REQ_FD, NULL, 0, &pair[1], 1, errp);
    close(pair[1]);
    return ok;
}

void vhost_user_close_requests(VhostUser *u)
{
    if (u->request_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), u->request_fd, NULL, NULL, NULL);
        close(u->request_fd);
        u->request_fd = -1;
    }
}
