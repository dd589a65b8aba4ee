/*
 * Taps from a helper program: -netdev bridge, and tap's helper= and br=.
 *
 * The helper may do what we may not: it makes a tap, puts it on the bridge if its configuration
 * allows that to our user, and passes the fd back over a socket.  The protocol is
 * qemu-bridge-helper's: arguments --use-vnet --fd=N --br=BRIDGE, one SCM_RIGHTS message on N,
 * exit status 0.  A helper with a blank in it is a shell command, for wrappers such as sudo.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/net-internal.h"
#include "net/tap.h"
#include "qapi/qapi-types.h"
#include "util/error.h"

#define DEFAULT_BRIDGE "br0"

static const char *default_helper(void)
{
    static const char *const places[] = {
        "/usr/lib/qemu/qemu-bridge-helper",
        "/usr/libexec/qemu-bridge-helper",
        "/usr/local/libexec/qemu-bridge-helper",
    };
    for (unsigned i = 0; i < G_N_ELEMENTS(places); i++) {
        if (access(places[i], X_OK) == 0) {
            return places[i];
        }
    }
    return places[0];
}

/* In the child, between fork and exec: this one descriptor goes along. */
static void keep_fd(gpointer data)
{
    fcntl(GPOINTER_TO_INT(data), F_SETFD, 0);
}

static gboolean start_helper(const char *helper, const char *br, int fd, GPid *pid, GError **errp)
{
    g_autofree char *fd_arg = g_strdup_printf("--fd=%d", fd);
    g_autofree char *br_arg = g_strdup_printf("--br=%s", br);
    g_autofree char *command =
        g_strdup_printf("exec %s --use-vnet %s%s%s", helper, fd_arg,
                        strstr(helper, "--br=") ? "" : " ", strstr(helper, "--br=") ? "" : br_arg);
    const char *direct[] = {helper, "--use-vnet", fd_arg, br_arg, NULL};
    const char *shell[] = {"/bin/sh", "-c", command, NULL};
    g_autoptr(GError) err = NULL;
    bool is_command = strpbrk(helper, " \t") != NULL;
    if (!g_spawn_async(NULL, (char **)(is_command ? shell : direct), NULL,
                       G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_LEAVE_DESCRIPTORS_OPEN, keep_fd,
                       GINT_TO_POINTER(fd), pid, &err)) {
        return error_set(errp, "helper=%s could not be run: %s", helper, err->message);
    }
    return true;
}

/* The descriptor that comes over @socket; -1: none came. */
static int receive_fd(int socket)
{
    char byte;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t n;
    int fd = -1;
    do {
        n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len >= CMSG_LEN(sizeof(int))) {
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    }
    return fd;
}

int tap_open_helper(const char *helper, const char *br, GError **errp)
{
    int sv[2], status = 0;
    GPid pid;
    helper = helper ? helper : default_helper();
    br = br ? br : DEFAULT_BRIDGE;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0) {
        error_set_errno(errp, errno, "helper=%s: socketpair", helper);
        return -1;
    }
    if (!start_helper(helper, br, sv[1], &pid, errp)) {
        close(sv[0]);
        close(sv[1]);
        return -1;
    }
    close(sv[1]);
    int fd = receive_fd(sv[0]);
    close(sv[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    g_spawn_close_pid(pid);
    if (fd >= 0 && status == 0) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    error_set(errp,
              "helper=%s gave no tap on bridge '%s' (exit status %d): it must be setuid root, and "
              "/etc/qemu/bridge.conf must have \"allow %s\"",
              helper, br, WIFEXITED(status) ? WEXITSTATUS(status) : -1, br);
    return -1;
}

gboolean net_init_bridge(const Netdev *netdev, GError **errp)
{
    const NetdevBridgeOptions *o = &netdev->u.bridge;
    const char *helper = o->helper ? o->helper : default_helper();
    TapDevice dev;
    int fd = tap_open_helper(helper, o->br, errp);
    if (fd < 0) {
        return false;
    }
    if (!tap_device_open_fd(&dev, fd, "helper", helper, errp)) {
        close(fd);
        return false;
    }
    net_set_info(tap_client_new(netdev->id, 0, &dev, NULL), "helper=%s,br=%s", helper,
                 o->br ? o->br : DEFAULT_BRIDGE);
    return true;
}
