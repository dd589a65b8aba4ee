/*
 * Files and terminals: stdio, file, pipe, pty.  Each opens one or two fds; moving bytes is the
 * core's.  A terminal keeps its line editing; only its blocking mode is changed, and restored.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "chardev-priv.h"
#include "util/error.h"
#include "util/fdset.h"
#include "util/json.h"

typedef struct FdChardev {
    Chardev parent;
    int in_fd, out_fd;
    int keep_fd;             /* pty: the other end, so that it never hangs up */
    int in_flags, out_flags; /* stdio: file status flags to restore */
    char *name;
} FdChardev;

static bool stdio_in_use;

static char *fd_filename(const Chardev *chr)
{
    return g_strdup(((const FdChardev *)chr)->name);
}

static void fd_close(Chardev *chr)
{
    FdChardev *s = (FdChardev *)chr;

    if (s->in_fd >= 0) {
        close(s->in_fd);
    }
    if (s->out_fd >= 0 && s->out_fd != s->in_fd) {
        close(s->out_fd);
    }
    if (s->keep_fd >= 0) {
        close(s->keep_fd);
    }
    g_free(s->name);
}

static void fd_start(FdChardev *s, int in_fd, int out_fd, const char *name)
{
    s->in_fd = in_fd;
    s->out_fd = out_fd;
    s->name = g_strdup(name);
    chardev_set_fds(&s->parent, in_fd, out_fd);
}

static gboolean stdio_open(Chardev *chr, json_object *options, GError **errp)
{
    FdChardev *s = (FdChardev *)chr;
    bool signal = true;

    s->keep_fd = -1;
    if (!chardev_opt_bool(options, "signal", &signal, errp)) {
        return FALSE;
    }
    if (stdio_in_use) {
        return error_set(errp, "cannot use stdio by multiple character devices");
    }
    stdio_in_use = true;
    s->in_flags = fcntl(STDIN_FILENO, F_GETFL);
    s->out_flags = fcntl(STDOUT_FILENO, F_GETFL);
    fcntl(STDIN_FILENO, F_SETFL, s->in_flags | O_NONBLOCK);
    /* Standard output may share its file description with standard error and with other
     * processes: it stays blocking, as every program's does. */
    fd_start(s, STDIN_FILENO, STDOUT_FILENO, "stdio");
    return TRUE;
}

static void stdio_close(Chardev *chr)
{
    FdChardev *s = (FdChardev *)chr;

    fcntl(STDIN_FILENO, F_SETFL, s->in_flags);
    g_free(s->name);
    stdio_in_use = false;
}

/* The end of standard input ends reading only: answers still go out. */
static void stdio_ended(Chardev *chr)
{
    chr->out_fd = STDOUT_FILENO;
    chr->is_open = true;
}

static int open_or_error(const char *path, int flags, GError **errp)
{
    int fd = fdset_open(path, flags | O_NONBLOCK, 0666);

    if (fd < 0) {
        error_set_errno(errp, errno, "cannot open '%s'", path);
    }
    return fd;
}

static gboolean file_open(Chardev *chr, json_object *options, GError **errp)
{
    FdChardev *s = (FdChardev *)chr;
    const char *path = chardev_opt_string(options, "path");
    const char *input = chardev_opt_string(options, "input-path");
    bool append = false;
    int in_fd = -1, out_fd;

    s->in_fd = s->out_fd = s->keep_fd = -1;
    if (!path) {
        return error_set(errp, "chardev: file: no filename given");
    }
    if (!chardev_opt_bool(options, "append", &append, errp)) {
        return FALSE;
    }
    out_fd = open_or_error(path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC), errp);
    if (out_fd < 0) {
        return FALSE;
    }
    if (input && (in_fd = open_or_error(input, O_RDONLY, errp)) < 0) {
        close(out_fd);
        return FALSE;
    }
    fd_start(s, in_fd, out_fd, "file");
    return TRUE;
}

/* PATH.in and PATH.out as seen by the other side, or one fifo PATH for both. */
static gboolean pipe_open(Chardev *chr, json_object *options, GError **errp)
{
    FdChardev *s = (FdChardev *)chr;
    const char *path = chardev_opt_string(options, "path");

    s->in_fd = s->out_fd = s->keep_fd = -1;
    if (!path) {
        return error_set(errp, "chardev: pipe: no device path given");
    }
    g_autofree char *in_path = g_strconcat(path, ".in", NULL);
    g_autofree char *out_path = g_strconcat(path, ".out", NULL);
    /* O_RDWR: opening does not wait for the other side, and its leaving is no end of file. */
    int in_fd = open(in_path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    int out_fd = open(out_path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (in_fd < 0 || out_fd < 0) {
        if (in_fd >= 0) {
            close(in_fd);
        }
        if (out_fd >= 0) {
            close(out_fd);
        }
        in_fd = out_fd = open_or_error(path, O_RDWR, errp);
        if (in_fd < 0) {
            return FALSE;
        }
    }
    fd_start(s, in_fd, out_fd, "pipe");
    return TRUE;
}

static gboolean pty_open(Chardev *chr, json_object *options, GError **errp)
{
    FdChardev *s = (FdChardev *)chr;
    struct termios tio;
    char name[64];
    int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    s->in_fd = s->out_fd = s->keep_fd = -1;
    if (fd < 0 || grantpt(fd) || unlockpt(fd) || ptsname_r(fd, name, sizeof(name))) {
        error_set_errno(errp, errno, "cannot make a pseudo terminal");
        if (fd >= 0) {
            close(fd);
        }
        return FALSE;
    }
    s->keep_fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (s->keep_fd >= 0 && !tcgetattr(s->keep_fd, &tio)) {
        cfmakeraw(&tio);
        tcsetattr(s->keep_fd, TCSANOW, &tio);
    }
    g_autofree char *filename = g_strdup_printf("pty:%s", name);
    fd_start(s, fd, fd, filename);
    g_printerr("char device redirected to %s (label %s)\n", name, chr->id);
    return TRUE;
}

static const char *const stdio_keys[] = {"signal", NULL};
static const char *const file_keys[] = {"path", "append", "input-path", NULL};
static const char *const pipe_keys[] = {"path", NULL};
static const char *const no_keys[] = {NULL};

const ChardevBackend chardev_stdio = {
    .type = "stdio",
    .help = "standard input and output",
    .keys = stdio_keys,
    .instance_size = sizeof(FdChardev),
    .open = stdio_open,
    .close = stdio_close,
    .filename = fd_filename,
    .ended = stdio_ended,
};

const ChardevBackend chardev_file = {
    .type = "file",
    .help = "path=PATH, append=on|off, input-path=PATH",
    .keys = file_keys,
    .instance_size = sizeof(FdChardev),
    .open = file_open,
    .close = fd_close,
    .filename = fd_filename,
};

const ChardevBackend chardev_pipe = {
    .type = "pipe",
    .help = "path=PATH: fifos PATH.in and PATH.out, or one fifo",
    .keys = pipe_keys,
    .instance_size = sizeof(FdChardev),
    .open = pipe_open,
    .close = fd_close,
    .filename = fd_filename,
};

const ChardevBackend chardev_pty = {
    .type = "pty",
    .help = "a new pseudo terminal; its name is printed",
    .keys = no_keys,
    .instance_size = sizeof(FdChardev),
    .open = pty_open,
    .close = fd_close,
    .filename = fd_filename,
};
