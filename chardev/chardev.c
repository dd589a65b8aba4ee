/*
 * Character devices: the table of back ends, the list of devices, and the moving of bytes.
 * Options are read in chardev-options.c.
 *
 * Input: while a front end is attached and takes bytes, in_fd is watched; each time it is
 * readable one piece is read and handed over.  A front end that can take nothing stops the watch
 * (`stalled`) until chardev_accept_input().  The end of the input is seen only after everything
 * before it was delivered.
 *
 * Output: written at once when nothing is queued; the rest waits in `queue` for room.
 *
 * Handlers may detach, disconnect or remove their device: the core holds a reference while one
 * runs.
 */
#include "chardev/chardev.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chardev-priv.h"
#include "util/error.h"
#include "util/json.h"

#define READ_SIZE       (64 * 1024)
#define MAX_PASSED_FDS  16
#define EXIT_TIMEOUT_MS 200 /* for what is still queued when the process ends */

static const ChardevBackend *const backends[] = {
    &chardev_socket, &chardev_stdio, &chardev_file,    &chardev_pipe,
    &chardev_pty,    &chardev_null,  &chardev_ringbuf, &chardev_memory,
};

static GPtrArray *chardevs; /* Chardev*, in order of creation */

static void update_watch(Chardev *chr);

static void chardev_unref(Chardev *chr)
{
    if (--chr->refs) {
        return;
    }
    g_string_free(chr->queue, TRUE);
    g_array_free(chr->passed_fds, TRUE);
    g_free(chr->id);
    g_free(chr);
}

static void send_event(Chardev *chr, ChardevEvent event)
{
    if (chr->handlers && chr->handlers->event) {
        chr->handlers->event(chr->opaque, event);
    }
}

void chardev_drop_passed_fds(Chardev *chr)
{
    for (unsigned i = 0; i < chr->passed_fds->len; i++) {
        close(g_array_index(chr->passed_fds, int, i));
    }
    g_array_set_size(chr->passed_fds, 0);
}

static void fds_ended(Chardev *chr)
{
    chardev_clear_fds(chr);
    if (chr->backend->ended) {
        chr->backend->ended(chr);
    }
}

/* As read(2); fds that came along are kept for chardev_take_fd(), replacing those before. */
static ssize_t receive(Chardev *chr, char *data, size_t size)
{
    char control[CMSG_SPACE(sizeof(int) * MAX_PASSED_FDS)];
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };

    if (!chr->in_is_socket) {
        return read(chr->in_fd, data, size);
    }
    ssize_t n = recvmsg(chr->in_fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0) {
        return n;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            chardev_drop_passed_fds(chr);
            g_array_append_vals(chr->passed_fds, CMSG_DATA(c),
                                (c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        }
    }
    return n;
}

static size_t front_end_room(Chardev *chr)
{
    if (!chr->handlers || !chr->handlers->read) {
        return 0;
    }
    return chr->handlers->can_read ? chr->handlers->can_read(chr->opaque) : READ_SIZE;
}

static void in_fd_readable(void *opaque)
{
    Chardev *chr = opaque;
    size_t room = front_end_room(chr);

    if (!room) {
        chr->stalled = true;
        update_watch(chr);
        return;
    }
    char data[READ_SIZE];
    ssize_t n = receive(chr, data, MIN(room, sizeof(data)));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    chr->refs++;
    if (n > 0) {
        chr->handlers->read(chr->opaque, data, n);
    } else {
        fds_ended(chr);
    }
    chardev_unref(chr);
}

/* Writes from the queue what the outside takes.  False: the other side is gone. */
static bool queue_push(Chardev *chr)
{
    while (chr->queue_head < chr->queue->len) {
        const char *data = chr->queue->str + chr->queue_head;
        size_t size = chr->queue->len - chr->queue_head;
        ssize_t n = chr->out_is_socket ? send(chr->out_fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
                                       : write(chr->out_fd, data, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return true;
        }
        if (n < 0) {
            return false;
        }
        chr->queue_head += n;
    }
    g_string_truncate(chr->queue, 0);
    chr->queue_head = 0;
    return true;
}

static void out_fd_writable(void *opaque)
{
    Chardev *chr = opaque;

    chr->refs++;
    if (!queue_push(chr)) {
        /* What the other side sent before it left may still be unread: only input ends the
         * connection, unless nobody reads. */
        g_string_truncate(chr->queue, 0);
        chr->queue_head = 0;
        if (!chr->reading) {
            fds_ended(chr);
        }
    }
    update_watch(chr);
    if (!chr->queue->len && chr->handlers && chr->handlers->drained) {
        chr->handlers->drained(chr->opaque);
    }
    chardev_unref(chr);
}

/* Watches what there is to watch, after any change of fds, front end, stall or queue. */
static void update_watch(Chardev *chr)
{
    EventLoop *loop = event_loop_main();
    bool reading = chr->in_fd >= 0 && chr->handlers && chr->handlers->read && !chr->stalled;
    bool writing = chr->out_fd >= 0 && chr->queue->len > 0;

    if (reading == chr->reading && writing == chr->writing) {
        return;
    }
    if (chr->in_fd >= 0 && chr->in_fd == chr->out_fd) {
        event_loop_set_fd_handler(loop, chr->in_fd, reading ? in_fd_readable : NULL,
                                  writing ? out_fd_writable : NULL, chr);
    } else {
        event_loop_set_fd_handler(loop, chr->in_fd, reading ? in_fd_readable : NULL, NULL, chr);
        event_loop_set_fd_handler(loop, chr->out_fd, NULL, writing ? out_fd_writable : NULL, chr);
    }
    chr->reading = reading;
    chr->writing = writing;
}

static bool fd_is_socket(int fd)
{
    socklen_t size = sizeof(int);
    int type;

    return fd >= 0 && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size);
}

void chardev_set_fds(Chardev *chr, int in_fd, int out_fd)
{
    chr->in_fd = in_fd;
    chr->out_fd = out_fd;
    chr->in_is_socket = fd_is_socket(in_fd);
    chr->out_is_socket = fd_is_socket(out_fd);
    chr->is_open = true;
    chr->stalled = false;
    chr->refs++;
    send_event(chr, CHARDEV_OPENED);
    update_watch(chr);
    chardev_unref(chr);
}

static void forget_fds(Chardev *chr)
{
    if (chr->in_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), chr->in_fd, NULL, NULL, NULL);
    }
    if (chr->out_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), chr->out_fd, NULL, NULL, NULL);
    }
    chr->in_fd = chr->out_fd = -1;
    chr->reading = chr->writing = false;
    g_string_truncate(chr->queue, 0);
    chr->queue_head = 0;
    chardev_drop_passed_fds(chr);
}

void chardev_clear_fds(Chardev *chr)
{
    bool was_open = chr->is_open;

    forget_fds(chr);
    chr->is_open = false;
    if (was_open) {
        send_event(chr, CHARDEV_CLOSED);
    }
}

const ChardevBackend *chardev_backend_find(const char *type)
{
    for (size_t i = 0; i < G_N_ELEMENTS(backends); i++) {
        if (!strcmp(backends[i]->type, type)) {
            return backends[i];
        }
    }
    return NULL;
}

char *chardev_types_help(void)
{
    GString *out = g_string_new("Available chardev backend types:\n");

    for (size_t i = 0; i < G_N_ELEMENTS(backends); i++) {
        g_string_append_printf(out, "  %-8s %s\n", backends[i]->type, backends[i]->help);
    }
    return g_string_free(out, FALSE);
}

/* Opened, and not in the list yet.  NULL with error. */
static Chardev *chardev_make(json_object *options, GError **errp)
{
    const char *type = chardev_opt_string(options, "backend");
    const char *id = chardev_opt_string(options, "id");
    const ChardevBackend *backend = type ? chardev_backend_find(type) : NULL;

    if (!backend) {
        error_set(errp,
                  "'%s' is not a valid char driver name; it is one of socket, stdio, file, pipe, "
                  "pty, null, ringbuf",
                  type ? type : "");
        return NULL;
    }
    if (!id || !*id) {
        error_set(errp, "chardev: no id specified");
        return NULL;
    }
    if (!chardev_check_options(backend, options, errp)) {
        return NULL;
    }
    Chardev *chr = g_malloc0(backend->instance_size);
    chr->backend = backend;
    chr->id = g_strdup(id);
    chr->refs = 1;
    chr->in_fd = chr->out_fd = -1;
    chr->queue = g_string_new(NULL);
    chr->passed_fds = g_array_new(FALSE, FALSE, sizeof(int));
    if (!backend->open(chr, options, errp)) {
        chardev_unref(chr);
        return NULL;
    }
    return chr;
}

Chardev *chardev_new(json_object *options, GError **errp)
{
    const char *id = chardev_opt_string(options, "id");

    if (id && chardev_find(id)) {
        error_set(errp, "Chardev with id '%s' already exists", id);
        return NULL;
    }
    Chardev *chr = chardev_make(options, errp);
    if (!chr) {
        return NULL;
    }
    if (!chardevs) {
        chardevs = g_ptr_array_new();
    }
    g_ptr_array_add(chardevs, chr);
    return chr;
}

Chardev *chardev_new_compat(const char *id, const char *spec, GError **errp)
{
    if (g_str_has_prefix(spec, "chardev:")) {
        Chardev *chr = chardev_find(spec + strlen("chardev:"));
        if (!chr) {
            error_set(errp, "chardev '%s' not found", spec + strlen("chardev:"));
        }
        return chr;
    }
    json_object *options = chardev_parse_compat(spec, errp);
    if (!options) {
        return NULL;
    }
    json_put_string(options, "id", id);
    Chardev *chr = chardev_new(options, errp);
    json_object_put(options);
    return chr;
}

static void chardev_destroy(Chardev *chr)
{
    chr->handlers = NULL;
    forget_fds(chr);
    chr->is_open = false;
    if (chr->backend->close) {
        chr->backend->close(chr);
    }
    g_ptr_array_remove(chardevs, chr);
    chardev_unref(chr);
}

gboolean chardev_remove(const char *id, GError **errp)
{
    Chardev *chr = chardev_find(id);

    if (!chr) {
        return error_set(errp, "Chardev '%s' not found", id);
    }
    if (chr->handlers) {
        return error_set(errp, "Chardev '%s' is busy", id);
    }
    chardev_destroy(chr);
    return TRUE;
}

/* Its front end, if there is one, goes from @old, which is open no more, to @chr. */
static void hand_over(Chardev *old, Chardev *chr)
{
    chardev_flush(old, 0);
    if (old->is_open) {
        old->is_open = false;
        send_event(old, CHARDEV_CLOSED);
    }
    if (old->handlers) { /* it may have left when it heard of the end */
        ChardevHandlers handlers = *old->handlers;
        void *opaque = old->opaque;

        chardev_detach(old);
        handlers.changed(opaque, chr);
        chardev_attach(chr, &handlers, opaque, NULL);
    }
}

Chardev *chardev_change(const char *id, json_object *options, GError **errp)
{
    Chardev *old = chardev_find(id), *chr;

    if (!old) {
        error_set(errp, "Chardev '%s' does not exist", id);
        return NULL;
    }
    if (old->handlers && !old->handlers->changed) {
        error_set(errp, "Chardev '%s' is busy: its user does not support chardev hotswap", id);
        return NULL;
    }
    json_put_string(options, "id", id);
    chr = chardev_make(options, errp);
    if (!chr) {
        return NULL;
    }
    for (unsigned i = 0; i < chardevs->len; i++) {
        if (chardevs->pdata[i] == old) {
            chardevs->pdata[i] = chr;
        }
    }
    old->refs++;
    chr->refs++;
    hand_over(old, chr);
    chardev_destroy(old);
    chardev_unref(old);
    chardev_unref(chr);
    return chr;
}

void chardev_cleanup_all(void)
{
    while (chardevs && chardevs->len) {
        Chardev *chr = g_ptr_array_index(chardevs, chardevs->len - 1);
        chardev_flush(chr, EXIT_TIMEOUT_MS);
        chardev_destroy(chr);
    }
    g_clear_pointer(&chardevs, g_ptr_array_unref);
}

Chardev *chardev_find(const char *id)
{
    for (unsigned i = 0; chardevs && i < chardevs->len; i++) {
        Chardev *chr = g_ptr_array_index(chardevs, i);
        if (!strcmp(chr->id, id)) {
            return chr;
        }
    }
    return NULL;
}

void chardev_foreach(void (*fn)(Chardev *chr, void *opaque), void *opaque)
{
    for (unsigned i = 0; chardevs && i < chardevs->len; i++) {
        fn(g_ptr_array_index(chardevs, i), opaque);
    }
}

void chardev_foreach_type(void (*fn)(const char *type, const char *const *keys, void *opaque),
                          void *opaque)
{
    for (size_t i = 0; i < G_N_ELEMENTS(backends); i++) {
        fn(backends[i]->type, backends[i]->keys, opaque);
    }
}

const char *chardev_type(const Chardev *chr)
{
    return chr->backend->type;
}

const char *chardev_id(const Chardev *chr)
{
    return chr->id;
}

char *chardev_filename(const Chardev *chr)
{
    return chr->backend->filename ? chr->backend->filename(chr) : g_strdup(chr->backend->type);
}

bool chardev_is_open(const Chardev *chr)
{
    return chr->is_open;
}

bool chardev_in_use(const Chardev *chr)
{
    return chr->handlers != NULL;
}

gboolean chardev_attach(Chardev *chr, const ChardevHandlers *handlers, void *opaque, GError **errp)
{
    if (!handlers) {
        chardev_detach(chr);
        return TRUE;
    }
    if (chr->handlers) {
        return error_set(errp, "chardev '%s' is already in use", chr->id);
    }
    chr->handlers_copy = *handlers;
    chr->handlers = &chr->handlers_copy;
    chr->opaque = opaque;
    chr->stalled = false;
    chr->refs++;
    if (chr->is_open) {
        send_event(chr, CHARDEV_OPENED);
    }
    update_watch(chr);
    chardev_unref(chr);
    return TRUE;
}

void chardev_detach(Chardev *chr)
{
    chr->handlers = NULL;
    chr->opaque = NULL;
    update_watch(chr);
}

void chardev_accept_input(Chardev *chr)
{
    if (chr->stalled && front_end_room(chr)) {
        chr->stalled = false;
        update_watch(chr);
    }
}

size_t chardev_queued(const Chardev *chr)
{
    return chr->queue->len - chr->queue_head;
}

bool chardev_write(Chardev *chr, const char *data, size_t size, size_t limit)
{
    if (chr->backend->write) {
        chr->backend->write(chr, data, size);
        return true;
    }
    if (!chr->is_open || chr->out_fd < 0) {
        return true;
    }
    if (size > limit || chardev_queued(chr) > limit - size) {
        return false;
    }
    bool was_empty = !chr->queue->len;
    if (chr->queue_head > chr->queue->len / 2) {
        g_string_erase(chr->queue, 0, chr->queue_head);
        chr->queue_head = 0;
    }
    g_string_append_len(chr->queue, data, size);
    if (was_empty && !queue_push(chr)) {
        /* Told by the input side, not from within a write. */
        g_string_truncate(chr->queue, 0);
        chr->queue_head = 0;
    }
    update_watch(chr);
    return true;
}

void chardev_flush(Chardev *chr, int timeout_ms)
{
    int64_t end = clock_get_ns(CLOCK_HOST) + timeout_ms * INT64_C(1000000);

    while (chr->out_fd >= 0 && chr->queue->len && queue_push(chr) && chr->queue->len) {
        struct pollfd pfd = {.fd = chr->out_fd, .events = POLLOUT};
        int64_t left = (end - clock_get_ns(CLOCK_HOST)) / 1000000;
        if (left <= 0 || poll(&pfd, 1, left) <= 0) {
            break;
        }
    }
}

/* Waits for @events on @fd until @end_ns; FALSE with error at the time limit. */
static gboolean wait_for(int fd, short events, int64_t end_ns, const char *what, GError **errp)
{
    for (;;) {
        struct pollfd pfd = {.fd = fd, .events = events};
        int64_t left = end_ns - clock_get_ns(CLOCK_HOST);
        int ret = poll(&pfd, 1, (int)MAX((left + 999999) / 1000000, 0));

        if (ret > 0) {
            return TRUE;
        }
        if (ret == 0) {
            return error_set(errp, "%s: no answer in time", what);
        }
        if (errno != EINTR) {
            return error_set_errno(errp, errno, "%s", what);
        }
    }
}

gboolean chardev_send_sync(Chardev *chr, const void *data, size_t size, const int *fds,
                           unsigned nfds, int timeout_ms, GError **errp)
{
    char control[CMSG_SPACE(sizeof(int) * MAX_PASSED_FDS)] = {0};
    int64_t end_ns = clock_get_ns(CLOCK_HOST) + timeout_ms * INT64_C(1000000);
    size_t done = 0;

    g_assert(nfds <= MAX_PASSED_FDS);
    while (done < size) {
        struct iovec iov = {.iov_base = (char *)data + done, .iov_len = size - done};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n;

        if (!chr->is_open || !chr->out_is_socket) {
            return error_set(errp, "chardev '%s' is not connected", chr->id);
        }
        if (nfds && !done) {
            msg.msg_control = control;
            msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
            memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
        }
        n = sendmsg(chr->out_fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN) {
            if (!wait_for(chr->out_fd, POLLOUT, end_ns, chr->id, errp)) {
                return FALSE;
            }
        } else if (errno != EINTR) {
            return error_set_errno(errp, errno, "chardev '%s': cannot send", chr->id);
        }
    }
    return TRUE;
}

gboolean chardev_receive_sync(Chardev *chr, void *data, size_t size, int timeout_ms, GError **errp)
{
    int64_t end_ns = clock_get_ns(CLOCK_HOST) + timeout_ms * INT64_C(1000000);
    size_t done = 0;

    while (done < size) {
        ssize_t n;

        if (!chr->is_open || chr->in_fd < 0) {
            return error_set(errp, "chardev '%s' is not connected", chr->id);
        }
        n = receive(chr, (char *)data + done, size - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            return error_set(errp, "chardev '%s': the connection was closed", chr->id);
        } else if (errno == EAGAIN) {
            if (!wait_for(chr->in_fd, POLLIN, end_ns, chr->id, errp)) {
                return FALSE;
            }
        } else if (errno != EINTR) {
            return error_set_errno(errp, errno, "chardev '%s': cannot receive", chr->id);
        }
    }
    return TRUE;
}

void chardev_disconnect(Chardev *chr)
{
    if (chr->is_open && chr->backend == &chardev_socket) {
        chardev_flush(chr, 0);
        chr->refs++;
        fds_ended(chr);
        chardev_unref(chr);
    }
}

int chardev_take_fd(Chardev *chr)
{
    if (!chr->passed_fds->len) {
        return -1;
    }
    int fd = g_array_index(chr->passed_fds, int, 0);
    g_array_remove_index(chr->passed_fds, 0);
    return fd;
}
