/*
 * A vhost-user back end for tests: see vhost-user-backend.h.
 *
 * One thread: waits for a connection, then for messages and kicks.  Everything is under one lock,
 * which the test takes to look; what it waits for is signalled after each message and frame.
 */
#include "tests/lib/vhost-user-backend.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/vhost-user-internal.h"

#define RETRY_MS 20

VuState *vu_lock(VuBackend *vu)
{
    pthread_mutex_lock(&vu->lock);
    return &vu->state;
}

void vu_unlock(VuBackend *vu)
{
    pthread_mutex_unlock(&vu->lock);
}

void vu_signal(int fd)
{
    uint64_t one = 1;

    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
        g_error("eventfd: %s", g_strerror(errno));
    }
}

bool vu_wait_changed(VuBackend *vu, gint64 end)
{
    gint64 left = end - g_get_monotonic_time();
    gint64 until = g_get_real_time() + left;
    struct timespec time = {until / G_USEC_PER_SEC, until % G_USEC_PER_SEC * 1000};

    return left > 0 && pthread_cond_timedwait(&vu->changed, &vu->lock, &time) == 0;
}

/* --- the thread --- */

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void disconnected(VuBackend *vu)
{
    VuState *s = vu_lock(vu);

    close_fd(&vu->fd);
    close_fd(&vu->request_fd);
    vu_unmap_memory(s);
    vu_unmap_log(s);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        close_fd(&s->vrings[i].kick);
        close_fd(&s->vrings[i].call);
        close_fd(&s->vrings[i].err);
        s->vrings[i] = (VuVring){.kick = -1, .call = -1, .err = -1};
    }
    s->connected = false;
    vu->drop = false;
    pthread_cond_broadcast(&vu->changed);
    vu_unlock(vu);
}

static struct sockaddr_un address(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path));
    return addr;
}

static int try_connect(VuBackend *vu)
{
    struct sockaddr_un addr = address(vu->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void wait_for_connection(VuBackend *vu, bool available)
{
    struct pollfd pfds[] = {{.fd = vu->wake, .events = POLLIN},
                            {.fd = available ? vu->listen_fd : -1, .events = POLLIN}};

    poll(pfds, 2, available && vu->config.client ? RETRY_MS : -1);
    if (pfds[0].revents) {
        return;
    }
    vu->fd = !available          ? -1
             : vu->config.client ? try_connect(vu)
             : pfds[1].revents   ? accept4(vu->listen_fd, NULL, NULL, SOCK_CLOEXEC)
                                 : -1;
    if (vu->fd >= 0) {
        VuState *s = vu_lock(vu);

        s->connections++;
        s->connected = true;
        pthread_cond_broadcast(&vu->changed);
        vu_unlock(vu);
    }
}

static void serve(VuBackend *vu)
{
    struct pollfd pfds[2 + VU_MAX_VRINGS] = {{.fd = vu->wake, .events = POLLIN},
                                             {.fd = vu->fd, .events = POLLIN}};
    uint64_t count;

    vu_lock(vu);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        pfds[2 + i] = (struct pollfd){.fd = vu->state.vrings[i].kick, .events = POLLIN};
    }
    vu_unlock(vu);
    poll(pfds, G_N_ELEMENTS(pfds), -1);
    vu_lock(vu);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        VuVring *v = &vu->state.vrings[i];

        if (pfds[2 + i].revents && v->enabled &&
            read(v->kick, &count, sizeof(count)) == sizeof(count) && i % 2) {
            vu_take_frames(vu, v);
        } else if (pfds[2 + i].revents && !v->enabled) {
            /* Looked at when it is enabled: not kept spinning. */
            if (read(v->kick, &count, sizeof(count)) < 0) {
                g_error("kick: %s", g_strerror(errno));
            }
            vu_signal(vu->wake);
            g_usleep(1000);
            vu_signal(v->kick);
        }
    }
    pthread_cond_broadcast(&vu->changed);
    vu_unlock(vu);

    bool over = pfds[1].revents && !vu_serve_message(vu);

    vu_lock(vu);
    over = over || vu->drop;
    vu_unlock(vu);
    if (over) {
        disconnected(vu);
    }
}

static void *run(void *opaque)
{
    VuBackend *vu = opaque;
    uint64_t count;

    for (;;) {
        bool available;
        struct pollfd pfd = {.fd = vu->wake, .events = POLLIN};

        vu_lock(vu);
        if (poll(&pfd, 1, 0) > 0 && read(vu->wake, &count, sizeof(count)) < 0) {
            g_error("wake: %s", g_strerror(errno));
        }
        bool stop = vu->stop, drop = vu->drop;
        available = vu->available;
        vu_unlock(vu);
        if (vu->fd >= 0 && (stop || drop)) {
            disconnected(vu);
        }
        if (stop) {
            return NULL;
        }
        if (vu->fd >= 0) {
            serve(vu);
        } else {
            wait_for_connection(vu, available);
        }
    }
}

/* --- for tests --- */

VuBackend *vu_backend_new(const char *path, const VuConfig *config)
{
    VuBackend *vu = g_new0(VuBackend, 1);
    struct sockaddr_un addr = address(path);

    vu->path = g_strdup(path);
    if (config) {
        vu->config = *config;
    }
    pthread_mutex_init(&vu->lock, NULL);
    pthread_cond_init(&vu->changed, NULL);
    g_queue_init(&vu->frames);
    vu->listen_fd = vu->fd = vu->request_fd = -1;
    vu->available = vu->link_up = true;
    vu->wake = eventfd(0, EFD_CLOEXEC);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        vu->state.vrings[i].kick = vu->state.vrings[i].call = vu->state.vrings[i].err = -1;
    }
    if (!vu->config.client) {
        vu->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        unlink(path);
        if (bind(vu->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
            listen(vu->listen_fd, 4) < 0) {
            g_error("%s: %s", path, g_strerror(errno));
        }
    }
    g_assert_cmpint(pthread_create(&vu->thread, NULL, run, vu), ==, 0);
    return vu;
}

void vu_backend_free(VuBackend *vu)
{
    GBytes *bytes;

    vu_lock(vu);
    vu->stop = true;
    vu_unlock(vu);
    vu_signal(vu->wake);
    pthread_join(vu->thread, NULL);
    while ((bytes = g_queue_pop_head(&vu->frames))) {
        g_bytes_unref(bytes);
    }
    if (vu->listen_fd >= 0) {
        close(vu->listen_fd);
        unlink(vu->path);
    }
    close(vu->wake);
    pthread_cond_destroy(&vu->changed);
    pthread_mutex_destroy(&vu->lock);
    g_free(vu->path);
    g_free(vu);
}

bool vu_wait(VuBackend *vu, bool (*fn)(const VuState *state, uint64_t arg), uint64_t arg)
{
    gint64 end = g_get_monotonic_time() + VU_TIMEOUT_MS * G_TIME_SPAN_MILLISECOND;
    bool ok;

    vu_lock(vu);
    while (!(ok = fn(&vu->state, arg)) && vu_wait_changed(vu, end)) {
    }
    vu_unlock(vu);
    return ok;
}

bool vu_is_started(const VuState *state, uint64_t vrings)
{
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        /* The err eventfd is what a front end sends last. */
        if ((state->vrings[i].started && state->vrings[i].err >= 0) != (vrings >> i & 1)) {
            return false;
        }
    }
    return true;
}

bool vu_is_enabled(const VuState *state, uint64_t vrings)
{
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        if (state->vrings[i].enabled != (vrings >> i & 1)) {
            return false;
        }
    }
    return true;
}

bool vu_has_connections(const VuState *state, uint64_t count)
{
    return state->connected && state->connections >= count;
}

void vu_disconnect(VuBackend *vu)
{
    vu_lock(vu);
    vu->drop = vu->state.connected;
    vu_unlock(vu);
    vu_signal(vu->wake);
}

void vu_set_available(VuBackend *vu, bool available)
{
    vu_lock(vu);
    vu->available = available;
    vu_unlock(vu);
    vu_signal(vu->wake);
}

void vu_set_link(VuBackend *vu, bool up)
{
    VhostUserHeader header = {VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, VHOST_USER_VERSION, 0};

    vu_lock(vu);
    vu->link_up = up;
    if (vu->request_fd >= 0) {
        send(vu->request_fd, &header, sizeof(header), MSG_NOSIGNAL);
    }
    vu_unlock(vu);
}
