/* What concerns the process itself: background, pid file, parent, signals. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "system.h"
#include "util/error.h"
#include "util/runstate.h"

static int ready_fd = -1; /* daemon: tells the parent that all is up */
static char *pidfile;     /* absolute, ours to remove */
static pid_t pidfile_owner;

/* The parent stays until the child is up or has failed, and exits with its outcome. */
static void G_GNUC_NORETURN wait_for_daemon(pid_t child, int fd)
{
    char byte;
    int status;
    ssize_t n;

    do {
        n = read(fd, &byte, 1);
    } while (n < 0 && errno == EINTR);
    if (n == 1) {
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    _exit(1);
}

gboolean process_daemonize(GError **errp)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC)) {
        return error_set_errno(errp, errno, "-daemonize: cannot make a pipe");
    }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        return error_set_errno(errp, errno, "-daemonize: cannot fork");
    }
    if (child) {
        close(fds[1]);
        wait_for_daemon(child, fds[0]);
    }
    close(fds[0]);
    ready_fd = fds[1];
    setsid();
    umask(027);
    signal(SIGTSTP, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    signal(SIGTTIN, SIG_IGN);
    return TRUE;
}

void process_daemon_ready(void)
{
    int null;

    if (ready_fd < 0) {
        return;
    }
    /* No directory is kept busy, no terminal written to. */
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (chdir("/") == 0 && null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        close(null);
    }
    if (write(ready_fd, "", 1) == 1) {
        close(ready_fd);
    }
    ready_fd = -1;
}

gboolean process_write_pidfile(const char *path, GError **errp)
{
    g_autofree char *text = g_strdup_printf("%d\n", getpid());
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0) {
        return error_set_errno(errp, errno, "cannot write PID file '%s'", path);
    }
    ssize_t n = write(fd, text, strlen(text));
    int err = errno;
    close(fd);
    if (n != (ssize_t)strlen(text)) {
        return error_set_errno(errp, err, "cannot write PID file '%s'", path);
    }
    pidfile = g_canonicalize_filename(path, NULL);
    pidfile_owner = getpid();
    return TRUE;
}

void process_remove_pidfile(void)
{
    if (pidfile && pidfile_owner == getpid()) {
        unlink(pidfile);
    }
    g_clear_pointer(&pidfile, g_free);
}

gboolean process_exit_with_parent(GError **errp)
{
    pid_t parent = getppid();

    if (prctl(PR_SET_PDEATHSIG, SIGTERM)) {
        return error_set_errno(errp, errno, "-run-with exit-with-parent=on");
    }
    if (getppid() != parent) {
        exit(0); /* it went just before the line above */
    }
    return TRUE;
}

static void end_by_signal(int number)
{
    vm_request_shutdown(SHUTDOWN_HOST_SIGNAL);
}

void process_handle_signals(void)
{
    struct sigaction end = {.sa_handler = end_by_signal};

    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    /* Writing to a pipe or socket that the other side closed is an error, not the end. */
    signal(SIGPIPE, SIG_IGN);
}
