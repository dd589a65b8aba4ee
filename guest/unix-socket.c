/*
 * Connecting to UNIX stream sockets: what the clients of QMP, qtest and vfio-user begin with.
 */
#include "guest/unix-socket.h"

#include <errno.h>
#include <gio/gio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int unix_socket_connect(const char *what, const char *path, GError **errp)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "%s '%s': a UNIX socket's path has at most %zu bytes", what, path,
                    sizeof(address.sun_path) - 1);
        return -1;
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "%s '%s': %s", what, path,
                    g_strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}
