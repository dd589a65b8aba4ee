/*
 * vhost= of -netdev tap: the options, and the /dev/vhost-net of each queue.
 *
 * vhost=on is a wish: where it cannot be had the device's own way is used, with a warning.
 * vhostforce=on makes that an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "net/net-internal.h"
#include "net/tap.h"
#include "qapi/qapi-types.h"
#include "util/error.h"
#include "vhost/vhost.h"

#define VHOST_DEVICE "/dev/vhost-net"

bool tap_wants_vhost(const NetdevTapOptions *o)
{
    return o->has_vhost ? o->vhost
                        : o->vhostfd || o->vhostfds || (o->has_vhostforce && o->vhostforce);
}

gboolean tap_check_vhost_options(const char *id, const NetdevTapOptions *o, GError **errp)
{
    const char *fd = o->vhostfd ? "vhostfd=" : o->vhostfds ? "vhostfds=" : NULL;

    if (fd && !tap_wants_vhost(o)) {
        return error_set(errp, "netdev '%s': %s is not valid without vhost", id, fd);
    }
    if (o->vhostfd && o->vhostfds) {
        return error_set(errp, "netdev '%s': only one of vhostfd= and vhostfds= is possible", id);
    }
    if (o->vhostfds && !o->fds) {
        return error_set(errp, "netdev '%s': vhostfds= goes with fds=, use vhostfd=", id);
    }
    if (o->vhostfd && (o->fds || (o->has_queues && o->queues > 1))) {
        return error_set(errp,
                         "netdev '%s': vhostfd= is for one queue; several are given with fds= and "
                         "vhostfds=",
                         id);
    }
    if (o->has_poll_us && o->poll_us && !tap_wants_vhost(o)) {
        return error_set(errp, "netdev '%s': poll-us= is for vhost=on, which polls in the kernel",
                         id);
    }
    return true;
}

static int open_vhost(const NetdevTapOptions *o, const char *given, GError **errp)
{
    int fd;

    if (given) {
        return net_fd_parse(o->vhostfd ? "vhostfd" : "vhostfds", given, errp);
    }
    fd = open(VHOST_DEVICE, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        error_set_errno(errp, errno, "tap: open vhost char device failed: %s%s", VHOST_DEVICE,
                        errno == ENOENT ? " (load the host's module vhost_net)" : "");
    }
    return fd;
}

/* The back end of one queue; NULL with error. */
static VhostBackend *queue_vhost(const char *id, const NetdevTapOptions *o, const char *given,
                                 int tap, GError **errp)
{
    int fd = open_vhost(o, given, errp);
    VhostBackend *b =
        fd >= 0 ? vhost_kernel_new(id, fd, tap, o->has_poll_us ? o->poll_us : 0, errp) : NULL;

    if (fd >= 0 && !b && !given) {
        close(fd);
    }
    if (b) {
        b->force = o->has_vhostforce && o->vhostforce;
    }
    return b;
}

static void free_vhosts(GPtrArray *vhosts)
{
    for (unsigned i = 0; i < vhosts->len; i++) {
        vhost_backend_free(vhosts->pdata[i]);
    }
    g_ptr_array_set_size(vhosts, 0);
}

static gboolean open_all(const char *id, const NetdevTapOptions *o, GArray *devs, GPtrArray *vhosts,
                         GError **errp)
{
    g_auto(GStrv) given = o->vhostfd    ? g_strsplit(o->vhostfd, ":", 1)
                          : o->vhostfds ? g_strsplit(o->vhostfds, ":", -1)
                                        : NULL;

    if (given && g_strv_length(given) != devs->len) {
        return error_set(errp, "netdev '%s': fds= has %u file descriptors, vhostfds= has %u", id,
                         devs->len, g_strv_length(given));
    }
    for (unsigned i = 0; i < devs->len; i++) {
        VhostBackend *b =
            queue_vhost(id, o, given ? given[i] : NULL, g_array_index(devs, TapDevice, i).fd, errp);

        if (!b) {
            free_vhosts(vhosts);
            return false;
        }
        g_ptr_array_add(vhosts, b);
    }
    return true;
}

gboolean tap_open_vhosts(const char *id, const NetdevTapOptions *o, GArray *devs, GPtrArray *vhosts,
                         GError **errp)
{
    GError *err = NULL;

    if (!tap_wants_vhost(o) || open_all(id, o, devs, vhosts, &err)) {
        return true;
    }
    if (o->has_vhostforce && o->vhostforce) {
        g_propagate_prefixed_error(errp, err,
                                   "netdev '%s': vhost-net requested but could not be "
                                   "initialized: ",
                                   id);
        return false;
    }
    warn_report("netdev '%s': vhost-net requested but could not be initialized: %s; the device "
                "moves packets itself",
                id, err->message);
    g_error_free(err);
    return true;
}
