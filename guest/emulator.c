/*
 * Starting and ending an emulator: see emulator.h.
 *
 * We listen on two UNIX sockets in a fresh directory, start the emulator, which connects to
 * both, and remove the directory.  RAM and the halting firmware are memfds that the child
 * inherits and opens as /proc/self/fd/N.  Every running child is in one list, so that a signal
 * handler's thread can end them all.
 */
#include "guest/emulator.h"
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIOS_SIZE        65536
#define START_TIMEOUT_MS 20000
#define QUIT_TIMEOUT_MS  5000
#define TERM_TIMEOUT_MS  2000
#define END_GRACE_MS     200 /* from closing its sockets to its exit */

/* What must not survive this process; guarded by running_lock. */
typedef struct Running {
    pid_t pid; /* 0: no child (yet, or any more) */
    char *dir; /* NULL: removed already */
} Running;

static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;
static GPtrArray *running;

typedef struct EmulatorPrivate {
    Emulator public; /* first: callers hold a pointer to it */
    Running *running;
    GuestRam *own_ram; /* NULL: the caller's, or none */
    int bios_fd;
    int listen_fds[2]; /* qtest, QMP */
} EmulatorPrivate;

static const char *const socket_names[2] = {"qtest", "qmp"};

static void remove_dir(Running *entry)
{
    if (!entry->dir) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        g_autofree char *path = g_build_filename(entry->dir, socket_names[i], NULL);
        unlink(path);
    }
    rmdir(entry->dir);
    g_clear_pointer(&entry->dir, g_free);
}

static Running *running_new(void)
{
    Running *entry = g_new0(Running, 1);
    pthread_mutex_lock(&running_lock);
    if (!running) {
        running = g_ptr_array_new();
    }
    g_ptr_array_add(running, entry);
    pthread_mutex_unlock(&running_lock);
    return entry;
}

static void running_free(Running *entry)
{
    pthread_mutex_lock(&running_lock);
    g_ptr_array_remove(running, entry);
    remove_dir(entry);
    if (running->len == 0) {
        g_clear_pointer(&running, g_ptr_array_unref);
    }
    pthread_mutex_unlock(&running_lock);
    g_free(entry);
}

/* Waits for @pid to end and forgets it; ECHILD means that somebody else has waited. */
static int reap(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

void emulator_kill_all(void)
{
    pthread_mutex_lock(&running_lock);
    for (guint i = 0; running && i < running->len; i++) {
        Running *entry = running->pdata[i];
        if (entry->pid > 0) {
            kill(entry->pid, SIGKILL);
            reap(entry->pid);
            entry->pid = 0;
        }
        remove_dir(entry);
    }
    /* The lock stays held: no other thread may start one now. */
}

static int listen_on(const char *dir, const char *name, GError **errp)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    g_autofree char *path = g_build_filename(dir, name, NULL);
    if (strlen(path) >= sizeof(addr.sun_path)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "socket '%s': the path is too long, set TMPDIR to a shorter directory", path);
        return -1;
    }
    strcpy(addr.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 1) < 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "socket '%s': %s", path,
                    g_strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

static bool make_sockets(EmulatorPrivate *e, GError **errp)
{
    g_autofree char *dir = g_dir_make_tmp("swnic-XXXXXX", errp);
    if (!dir) {
        return false;
    }
    pthread_mutex_lock(&running_lock);
    e->running->dir = g_strdup(dir);
    pthread_mutex_unlock(&running_lock);
    for (unsigned i = 0; i < 2; i++) {
        e->listen_fds[i] = listen_on(dir, socket_names[i], errp);
        if (e->listen_fds[i] < 0) {
            return false;
        }
    }
    return true;
}

/* Firmware of 64 KiB whose reset vector (16 bytes before the end) is cli; hlt; jmp back to hlt. */
static int make_halt_bios(GError **errp)
{
    static const uint8_t reset_vector[] = {0xFA, 0xF4, 0xEB, 0xFD};
    int fd = memfd_create("swnic-guest-bios", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, BIOS_SIZE) < 0 ||
        pwrite(fd, reset_vector, sizeof(reset_vector), BIOS_SIZE - 16) !=
            (ssize_t)sizeof(reset_vector)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "firmware image: %s", g_strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

static void add(GPtrArray *args, const char *arg)
{
    g_ptr_array_add(args, g_strdup(arg));
}

static void G_GNUC_PRINTF(2, 3) addf(GPtrArray *args, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    g_ptr_array_add(args, g_strdup_vprintf(format, ap));
    va_end(ap);
}

static char **build_arguments(EmulatorPrivate *e, const EmulatorOptions *options, GError **errp)
{
    g_auto(GStrv) command = NULL;
    if (!g_shell_parse_argv(options->command, NULL, &command, errp)) {
        g_prefix_error(errp, "emulator command '%s': ", options->command);
        return NULL;
    }
    GPtrArray *args = g_ptr_array_new();
    for (char **word = command; *word; word++) {
        add(args, *word);
    }
    const char *dir = e->running->dir;
    add(args, "-qtest");
    addf(args, "unix:%s/%s", dir, socket_names[0]);
    add(args, "-qtest-log");
    add(args, "none");
    add(args, "-chardev");
    addf(args, "socket,path=%s/%s,id=swnicqmp", dir, socket_names[1]);
    add(args, "-mon");
    add(args, "chardev=swnicqmp,mode=control");
    add(args, "-display");
    add(args, "none");
    if (e->public.ram) {
        add(args, "-m");
        addf(args, "%zuM", e->public.ram->size >> 20);
        add(args, "-object");
        addf(args, "memory-backend-file,id=swnicram,size=%zu,mem-path=/proc/self/fd/%d,share=on",
             e->public.ram->size, e->public.ram->fd);
        add(args, "-machine");
        add(args, "pc,memory-backend=swnicram");
    }
    if (e->bios_fd >= 0) {
        add(args, "-bios");
        addf(args, "/proc/self/fd/%d", e->bios_fd);
    }
    for (const char *const *arg = options->arguments; arg && *arg; arg++) {
        add(args, *arg);
    }
    if (options->accel) {
        add(args, "-accel");
        add(args, options->accel);
    }
    g_ptr_array_add(args, NULL);
    return (char **)g_ptr_array_free(args, FALSE);
}

static void keep_open(int fd)
{
    if (fd >= 0) {
        fcntl(fd, F_SETFD, 0);
    }
}

/* Between fork and exec: only calls that are safe there. */
static void G_GNUC_NORETURN run_child(EmulatorPrivate *e, const EmulatorOptions *options,
                                      char **argv, pid_t parent, int error_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(127); /* the parent ended before the line above */
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0); /* Ctrl-C reaches us first, and we end it in order */
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
    }
    dup2(STDERR_FILENO, STDOUT_FILENO);
    keep_open(e->public.ram ? e->public.ram->fd : -1);
    keep_open(e->bios_fd);
    for (const int *fd = options->inherit_fds; fd && *fd >= 0; fd++) {
        keep_open(*fd);
    }
    execvp(argv[0], argv);
    int error = errno;
    if (write(error_fd, &error, sizeof(error)) < 0) {
        _exit(126);
    }
    _exit(127);
}

static bool spawn(EmulatorPrivate *e, const EmulatorOptions *options, char **argv, GError **errp)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "pipe: %s", g_strerror(errno));
        return false;
    }
    pid_t parent = getpid();
    /* Under the lock, so that emulator_kill_all() either sees the child or prevents it. */
    pthread_mutex_lock(&running_lock);
    pid_t pid = fork();
    if (pid == 0) {
        run_child(e, options, argv, parent, pipe_fds[1]);
    }
    e->running->pid = MAX(pid, 0);
    pthread_mutex_unlock(&running_lock);
    e->public.pid = pid;
    int error = pid < 0 ? errno : 0;
    close(pipe_fds[1]);
    if (pid > 0 && read(pipe_fds[0], &error, sizeof(error)) < 0) {
        error = errno;
    }
    close(pipe_fds[0]);
    if (error) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "cannot start '%s': %s", argv[0],
                    g_strerror(error));
        return false;
    }
    return true;
}

/* Collects the child if it has ended; its wait status in *@status. */
static bool collect_if_ended(EmulatorPrivate *e, int *status)
{
    bool ended = true;
    *status = 0;
    pthread_mutex_lock(&running_lock);
    if (e->running->pid > 0) {
        pid_t pid = waitpid(e->running->pid, status, WNOHANG);
        ended = pid != 0;
        if (ended) {
            e->running->pid = 0;
        }
    }
    pthread_mutex_unlock(&running_lock);
    return ended;
}

static char *describe_status(int status)
{
    if (WIFSIGNALED(status)) {
        return g_strdup_printf("was ended by signal %d (%s)", WTERMSIG(status),
                               strsignal(WTERMSIG(status)));
    }
    return g_strdup_printf("ended with exit status %d", WEXITSTATUS(status));
}

/* Waits for the child's connection to both sockets. */
static bool accept_both(EmulatorPrivate *e, unsigned timeout_ms, int fds[2], GError **errp)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)timeout_ms * 1000;
    struct pollfd pfds[2] = {{.fd = e->listen_fds[0], .events = POLLIN},
                             {.fd = e->listen_fds[1], .events = POLLIN}};
    while (fds[0] < 0 || fds[1] < 0) {
        int status;
        if (poll(pfds, 2, 20) <= 0 && collect_if_ended(e, &status)) {
            g_autofree char *how = describe_status(status);
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                        "the emulator %s before it connected its qtest and QMP sockets", how);
            return false;
        }
        for (unsigned i = 0; i < 2; i++) {
            if (fds[i] < 0 && pfds[i].revents & POLLIN) {
                fds[i] = accept4(pfds[i].fd, NULL, NULL, SOCK_CLOEXEC);
                pfds[i].fd = -1;
            }
        }
        if (g_get_monotonic_time() > deadline) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_TIMED_OUT,
                        "the emulator did not connect its %s socket within %u ms",
                        fds[0] < 0 ? "qtest" : "QMP", timeout_ms);
            return false;
        }
    }
    return true;
}

/* Polls until the child has ended; false: it still runs after @ms. */
static bool wait_ended(EmulatorPrivate *e, unsigned ms, int *status)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)ms * 1000;
    while (!collect_if_ended(e, status)) {
        if (g_get_monotonic_time() > deadline) {
            return false;
        }
        g_usleep(2000);
    }
    return true;
}

/* Replaces *@errp by how the child ended, if it did: that is the cause of the error. */
static void explain_end(EmulatorPrivate *e, GError **errp)
{
    int status;
    if (wait_ended(e, END_GRACE_MS, &status)) {
        g_autofree char *how = describe_status(status);
        g_clear_error(errp);
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "the emulator %s while it started", how);
    }
}

static bool connect_child(EmulatorPrivate *e, const EmulatorOptions *options, GError **errp)
{
    int fds[2] = {-1, -1};
    unsigned timeout = options->start_timeout_ms ? options->start_timeout_ms : START_TIMEOUT_MS;
    bool ok = accept_both(e, timeout, fds, errp);
    if (fds[0] >= 0) {
        e->public.qtest = qtest_client_new(fds[0]);
    }
    if (fds[1] >= 0) {
        e->public.qmp = qmp_client_new(fds[1]);
    }
    pthread_mutex_lock(&running_lock);
    remove_dir(e->running);
    pthread_mutex_unlock(&running_lock);
    if (ok && !qmp_client_negotiate(e->public.qmp, errp)) {
        explain_end(e, errp);
        return false;
    }
    return ok;
}

static void emulator_free(EmulatorPrivate *e)
{
    qtest_client_free(e->public.qtest);
    qmp_client_free(e->public.qmp);
    guest_ram_free(e->own_ram);
    running_free(e->running);
    for (unsigned i = 0; i < 2; i++) {
        if (e->listen_fds[i] >= 0) {
            close(e->listen_fds[i]);
        }
    }
    if (e->bios_fd >= 0) {
        close(e->bios_fd);
    }
    g_free(e);
}

Emulator *emulator_start(const EmulatorOptions *options, GError **errp)
{
    EmulatorPrivate *e = g_new0(EmulatorPrivate, 1);
    e->running = running_new();
    e->bios_fd = e->listen_fds[0] = e->listen_fds[1] = -1;
    if (options->ram_size && !(e->own_ram = guest_ram_new(options->ram_size, errp))) {
        goto fail;
    }
    e->public.ram = options->ram ? options->ram : e->own_ram;
    if (options->halt_bios && (e->bios_fd = make_halt_bios(errp)) < 0) {
        goto fail;
    }
    if (!make_sockets(e, errp)) {
        goto fail;
    }
    char **argv = build_arguments(e, options, errp);
    if (!argv) {
        goto fail;
    }
    bool ok = spawn(e, options, argv, errp) && connect_child(e, options, errp);
    g_strfreev(argv);
    if (!ok) {
        goto fail;
    }
    return &e->public;
fail:
    emulator_kill(&e->public);
    return NULL;
}

bool emulator_stop(Emulator *emulator, GError **errp)
{
    EmulatorPrivate *e = (EmulatorPrivate *)emulator;
    int status = 0;
    qmp_client_set_timeout(emulator->qmp, QUIT_TIMEOUT_MS);
    json_object_put(qmp_client_execute(emulator->qmp, "quit", NULL, NULL));
    bool ended = wait_ended(e, QUIT_TIMEOUT_MS, &status);
    bool by_itself = ended;
    if (!ended) {
        kill(emulator->pid, SIGTERM);
        ended = wait_ended(e, TERM_TIMEOUT_MS, &status);
    }
    bool ok = by_itself && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!by_itself) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_TIMED_OUT,
                    "the emulator still ran %u ms after 'quit'%s", QUIT_TIMEOUT_MS,
                    ended ? "; SIGTERM ended it" : " and SIGTERM");
    } else if (!ok) {
        g_autofree char *how = describe_status(status);
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "the emulator %s", how);
    }
    emulator_kill(emulator);
    return ok;
}

void emulator_kill(Emulator *emulator)
{
    if (!emulator) {
        return;
    }
    EmulatorPrivate *e = (EmulatorPrivate *)emulator;
    pthread_mutex_lock(&running_lock);
    if (e->running->pid > 0) {
        kill(e->running->pid, SIGKILL);
        reap(e->running->pid);
        e->running->pid = 0;
    }
    pthread_mutex_unlock(&running_lock);
    emulator_free(e);
}

bool emulator_is_alive(Emulator *emulator)
{
    int status;
    return !collect_if_ended((EmulatorPrivate *)emulator, &status);
}

/* First line of "COMMAND -version"; NULL when it cannot run. */
static char *read_version(char **command)
{
    g_autoptr(GPtrArray) args = g_ptr_array_new();
    for (char **word = command; *word; word++) {
        g_ptr_array_add(args, *word);
    }
    g_ptr_array_add(args, (char *)"-version");
    g_ptr_array_add(args, NULL);
    g_autofree char *output = NULL;
    int status = 0;
    if (!g_spawn_sync(NULL, (char **)args->pdata, NULL,
                      G_SPAWN_SEARCH_PATH | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, &output, NULL,
                      &status, NULL) ||
        status != 0) {
        return NULL;
    }
    return g_strndup(output, strcspn(output, "\r\n"));
}

bool emulator_command_is_swnic(const char *command, char **version)
{
    if (version) {
        *version = NULL;
    }
    g_auto(GStrv) words = NULL;
    if (!g_shell_parse_argv(command, NULL, &words, NULL)) {
        return false;
    }
    g_autofree char *line = read_version(words);
    bool is_swnic = line && strstr(line, "swnic");
    for (char **word = words; *word && !is_swnic; word++) {
        g_autofree char *name = g_path_get_basename(*word);
        is_swnic = g_str_has_prefix(name, "swnic-system");
    }
    if (version) {
        *version = g_steal_pointer(&line);
    }
    return is_swnic;
}

char *emulator_default_command(void)
{
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *dir = g_path_get_dirname(self ? self : ".");
    g_autofree char *path = g_build_filename(dir, "swnic-system-x86_64", NULL);
    return g_shell_quote(path);
}
