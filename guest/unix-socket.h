/* Connecting to UNIX stream sockets.  Any thread. */
#ifndef GUEST_UNIX_SOCKET_H
#define GUEST_UNIX_SOCKET_H

#include <glib.h>

/* Connects to @path; the fd is the caller's and closes on exec.  -1 with an error that begins with
 * @what, as in "QMP socket". */
int unix_socket_connect(const char *what, const char *path, GError **errp);

#endif
