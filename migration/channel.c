/*
 * The channel that a stream goes through: a socket, a pipe to a command, a file, an open fd.
 *
 * Reads and writes happen in the migration's own thread and wait there; the cancel notifier ends
 * every wait.  Descriptors that can be waited for are non-blocking.
 *
 * At the end the source of a socket half-closes it and waits until the destination closes, or says
 * how it went, with one message in the form of QEMU's return path: u16 1 ("shut"), u16 4, u32
 * status.  A destination that fails always says so; one that succeeds says so when it was asked to.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "qapi/monitor.h"
#include "util/error.h"
#include "util/event-notifier.h"
#include "util/keyval.h"

#define RETURN_PATH_SHUT 1

/* Waits for @events on the channel; FALSE: cancelled. */
static gboolean channel_wait(MigrationChannel *channel, short events, GError **errp)
{
    struct pollfd fds[2] = {
        {.fd = channel->fd, .events = events},
        {.fd = channel->cancel->fd, .events = POLLIN},
    };

    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    if (fds[1].revents) {
        return error_set(errp, "migration was cancelled");
    }
    return TRUE;
}

static bool fd_is_socket(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void fd_set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0) {
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    }
}

static void channel_take(MigrationChannel *channel, int fd)
{
    channel->fd = fd;
    channel->is_socket = fd_is_socket(fd);
    fd_set_nonblocking(fd);
}

/* --- without waiting --- */

static int open_fd(const char *text, GError **errp)
{
    Monitor *mon = monitor_current();
    uint64_t number;
    int fd;

    if (g_ascii_isdigit(text[0])) {
        if (!parse_uint64("fd", text, INT_MAX, &number, errp)) {
            return -1;
        }
        fd = fcntl((int)number, F_DUPFD_CLOEXEC, 3);
        if (fd < 0) {
            error_set_errno(errp, errno, "fd %s", text);
        }
        return fd;
    }
    if (!mon) {
        error_set(errp, "fd '%s' is not a number, and there is no monitor that knows names", text);
        return -1;
    }
    return monitor_get_fd(mon, text, errp);
}

static int open_file(const MigrationUri *uri, bool incoming, GError **errp)
{
    int fd = open(uri->path, (incoming ? O_RDONLY : O_WRONLY | O_CREAT) | O_CLOEXEC, 0660);

    if (fd < 0) {
        error_set_errno(errp, errno, "cannot open '%s'", uri->path);
        return -1;
    }
    if (!incoming && ftruncate(fd, (off_t)uri->offset) < 0 && errno != EINVAL) {
        error_set_errno(errp, errno, "cannot cut '%s' to %" G_GUINT64_FORMAT " bytes", uri->path,
                        uri->offset);
        close(fd);
        return -1;
    }
    if (uri->offset && lseek(fd, (off_t)uri->offset, SEEK_SET) < 0) {
        error_set_errno(errp, errno, "cannot seek in '%s'", uri->path);
        close(fd);
        return -1;
    }
    return fd;
}

static int open_command(MigrationChannel *channel, const char *command, bool incoming,
                        GError **errp)
{
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    GError *err = NULL;
    int fd = -1;

    if (!g_spawn_async_with_pipes(
            NULL, (char **)argv, NULL,
            G_SPAWN_DO_NOT_REAP_CHILD | (incoming ? G_SPAWN_CHILD_INHERITS_STDIN : 0), NULL, NULL,
            &channel->child, incoming ? NULL : &fd, incoming ? &fd : NULL, NULL, &err)) {
        error_set(errp, "cannot start '%s': %s", command, err->message);
        g_error_free(err);
        return -1;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

MigrationChannel *migration_channel_open(const MigrationUri *uri, bool incoming,
                                         EventNotifier *cancel, GError **errp)
{
    MigrationChannel *channel = g_new0(MigrationChannel, 1);
    int fd = -1;

    channel->cancel = cancel;
    channel->fd = -1;
    switch (uri->kind) {
    case URI_TCP:
    case URI_UNIX:
        return channel;
    case URI_FD:
        fd = open_fd(uri->path, errp);
        break;
    case URI_FILE:
        fd = open_file(uri, incoming, errp);
        break;
    case URI_EXEC:
        fd = open_command(channel, uri->path, incoming, errp);
        break;
    }
    if (fd < 0) {
        migration_channel_free(channel);
        return NULL;
    }
    channel_take(channel, fd);
    return channel;
}

/* --- sockets --- */

static gboolean unix_address(const char *path, struct sockaddr_un *addr, GError **errp)
{
    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(addr->sun_path)) {
        return error_set(errp, "UNIX socket path '%s' is too long (at most %zu bytes)", path,
                         sizeof(addr->sun_path) - 1);
    }
    memcpy(addr->sun_path, path, strlen(path));
    return TRUE;
}

static struct addrinfo *resolve(const MigrationUri *uri, bool listening, GError **errp)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = listening ? AI_PASSIVE : 0};
    struct addrinfo *list = NULL;
    int ret = getaddrinfo(*uri->host ? uri->host : NULL, uri->port, &hints, &list);

    if (ret) {
        error_set(errp, "address '%s:%s': %s", uri->host, uri->port, gai_strerror(ret));
        return NULL;
    }
    return list;
}

static gboolean connect_address(MigrationChannel *channel, const struct sockaddr *addr,
                                socklen_t len, const char *name, GError **errp)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int status = 0;
    socklen_t status_len = sizeof(status);

    if (fd < 0) {
        return error_set_errno(errp, errno, "cannot make a socket");
    }
    channel->fd = fd;
    channel->is_socket = true;
    if (connect(fd, addr, len) == 0) {
        return TRUE;
    }
    status = errno;
    if (status == EINPROGRESS || (status == EAGAIN && addr->sa_family != AF_UNIX)) {
        if (!channel_wait(channel, POLLOUT, errp)) {
            return FALSE;
        }
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &status, &status_len);
        if (status == 0) {
            return TRUE;
        }
    }
    close(fd);
    channel->fd = -1;
    return error_set_errno(errp, status, "cannot connect to '%s'", name);
}

static gboolean connect_tcp(MigrationChannel *channel, const MigrationUri *uri, GError **errp)
{
    struct addrinfo *list = resolve(uri, false, errp);
    g_autofree char *name = g_strdup_printf("%s:%s", uri->host, uri->port);
    GError *err = NULL;
    gboolean ok = FALSE;

    if (!list) {
        return FALSE;
    }
    for (struct addrinfo *a = list; a && !ok; a = a->ai_next) {
        g_clear_error(&err);
        ok = connect_address(channel, a->ai_addr, a->ai_addrlen, name, &err);
    }
    freeaddrinfo(list);
    if (!ok) {
        g_propagate_error(errp, err);
    } else {
        g_clear_error(&err);
    }
    return ok;
}

gboolean migration_channel_connect(MigrationChannel *channel, const MigrationUri *uri,
                                   GError **errp)
{
    struct sockaddr_un addr;

    if (channel->fd >= 0) {
        return TRUE;
    }
    if (uri->kind == URI_TCP) {
        return connect_tcp(channel, uri, errp);
    }
    return unix_address(uri->path, &addr, errp) &&
           connect_address(channel, (struct sockaddr *)&addr, sizeof(addr), uri->path, errp);
}

static int bind_socket(const struct sockaddr *addr, socklen_t len)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, saved;

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, addr, len) == 0 && listen(fd, 1) == 0) {
        return fd;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static char *listening_address(int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0 ||
        getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        return NULL;
    }
    return g_strdup_printf("%s\n%s", host, port);
}

static int listen_tcp(const MigrationUri *uri, GError **errp)
{
    struct addrinfo *list = resolve(uri, true, errp);
    int fd = -1, status = 0;

    if (!list) {
        return -1;
    }
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = bind_socket(a->ai_addr, a->ai_addrlen);
        status = errno;
    }
    freeaddrinfo(list);
    if (fd < 0) {
        error_set_errno(errp, status, "cannot listen at '%s:%s'", uri->host, uri->port);
    }
    return fd;
}

gboolean migration_channel_listen(MigrationChannel *channel, const MigrationUri *uri,
                                  char **address, GError **errp)
{
    struct sockaddr_un addr;
    struct stat st;

    if (channel->fd >= 0) {
        return TRUE;
    }
    if (uri->kind == URI_TCP) {
        channel->fd = listen_tcp(uri, errp);
        *address = channel->fd >= 0 ? listening_address(channel->fd) : NULL;
        return channel->fd >= 0;
    }
    if (!unix_address(uri->path, &addr, errp)) {
        return FALSE;
    }
    if (stat(uri->path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(uri->path);
    }
    channel->fd = bind_socket((struct sockaddr *)&addr, sizeof(addr));
    if (channel->fd < 0) {
        return error_set_errno(errp, errno, "cannot listen at '%s'", uri->path);
    }
    return TRUE;
}

gboolean migration_channel_accept(MigrationChannel *channel, GError **errp)
{
    int fd;

    do {
        if (!channel_wait(channel, POLLIN, errp)) {
            return FALSE;
        }
        fd = accept4(channel->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED));
    if (fd < 0) {
        return error_set_errno(errp, errno, "cannot accept a connection");
    }
    close(channel->fd);
    channel->fd = fd;
    channel->is_socket = true;
    return TRUE;
}

/* --- bytes --- */

gboolean migration_channel_write(MigrationChannel *channel, const void *data, size_t size,
                                 GError **errp)
{
    const uint8_t *p = data;

    while (size) {
        ssize_t n = channel->is_socket ? send(channel->fd, p, size, MSG_NOSIGNAL)
                                       : write(channel->fd, p, size);

        if (n > 0) {
            p += n;
            size -= (size_t)n;
            __atomic_fetch_add(&channel->transferred, (uint64_t)n, __ATOMIC_RELAXED);
        } else if (n < 0 && errno == EAGAIN) {
            if (!channel_wait(channel, POLLOUT, errp)) {
                return FALSE;
            }
        } else if (n < 0 && errno != EINTR) {
            return error_set_errno(errp, errno, "cannot write the migration stream");
        }
    }
    return TRUE;
}

gssize migration_channel_read(MigrationChannel *channel, void *data, size_t size, GError **errp)
{
    for (;;) {
        ssize_t n = read(channel->fd, data, size);

        if (n >= 0) {
            __atomic_fetch_add(&channel->transferred, (uint64_t)n, __ATOMIC_RELAXED);
            return n;
        }
        if (errno == EAGAIN) {
            if (!channel_wait(channel, POLLIN, errp)) {
                return -1;
            }
        } else if (errno != EINTR) {
            error_set_errno(errp, errno, "migration stream");
            return -1;
        }
    }
}

/* The command's end; FALSE with error if it failed. */
static gboolean reap_child(MigrationChannel *channel, GError **errp)
{
    int status = 0;
    GPid child = channel->child;

    channel->child = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return TRUE;
    }
    return error_set(errp, "the command of exec: ended with %s %d",
                     WIFEXITED(status) ? "status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static gboolean socket_finish(MigrationChannel *channel, bool answer_needed, GError **errp)
{
    uint8_t message[8];
    size_t got = 0;

    shutdown(channel->fd, SHUT_WR);
    while (got < sizeof(message)) {
        gssize n = migration_channel_read(channel, message + got, sizeof(message) - got, errp);

        if (n < 0) {
            return FALSE;
        }
        if (n == 0) {
            return !answer_needed ||
                   error_set(errp, "the destination went away without saying that it is well");
        }
        got += (size_t)n;
    }
    if (message[1] == RETURN_PATH_SHUT && message[7]) {
        return error_set(errp, "the destination failed to load the state");
    }
    return TRUE;
}

gboolean migration_channel_finish(MigrationChannel *channel, bool answer_needed, GError **errp)
{
    if (channel->is_socket && !socket_finish(channel, answer_needed, errp)) {
        return FALSE;
    }
    if (close(channel->fd) < 0 && errno != EINTR) {
        channel->fd = -1;
        return error_set_errno(errp, errno, "cannot write the migration stream");
    }
    channel->fd = -1;
    return !channel->child || reap_child(channel, errp);
}

void migration_channel_answer(MigrationChannel *channel, bool failed)
{
    uint8_t message[8] = {0, RETURN_PATH_SHUT, 0, 4, 0, 0, 0, failed};

    if (channel->is_socket && channel->fd >= 0) {
        /* It fits any socket's buffer; who has gone needs no answer. */
        if (send(channel->fd, message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            return;
        }
    }
}

void migration_channel_free(MigrationChannel *channel)
{
    if (!channel) {
        return;
    }
    if (channel->fd >= 0) {
        close(channel->fd);
    }
    if (channel->child) {
        reap_child(channel, NULL);
    }
    g_free(channel);
}
