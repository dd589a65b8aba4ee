/*
 * -netdev user: a network for the guest without any privilege, through libslirp.
 *
 * libslirp is a TCP/IP stack that ends the guest's connections here and opens sockets of the
 * host's in their place.  It has no back-pressure: when it makes a frame, it hands it over.  So
 * frames from it go into a bounded queue.  While that is not empty libslirp is not polled, hence
 * reads nothing more from the host's sockets.  Only frames that the guest's own frames provoke
 * (answers) still join the queue then; what overflows it is counted.
 *
 * The queue is sent in batches of SHARE frames, while libslirp goes on: a TCP window's worth of
 * frames sent at once would have the guest wait for the last of them, and then us for the guest.
 * In a poll that is at once.  In the middle of the guest's own batch it would be the device's
 * receive side within its transmit side: there the rest of that batch is refused until the loop
 * has sent the queue.
 *
 * Polling: before each sleep of the loop libslirp names its sockets.  They sit in an epoll fd of
 * our own, which in turn is one fd in the loop's: the loop's cost does not grow with connections,
 * and only changes from the last time cost a system call.
 *
 * Time is the host's, not the VM's: libslirp's timers belong to connections with the outside,
 * which does not stop when the VM does, and they must not be among the deadlines that clock_step
 * finds.
 *
 * Main loop only.  Not here: options (user-options.c), vnet headers, saving connections.
 */
#include "net/user.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net-internal.h"
#include "qapi/qapi-types.h"
#include "util/error.h"
#include "util/iov.h"
#include "util/log.h"

#define QUEUE_MAX  1024 /* frames; with an MTU of 1500 some 1.5 MiB */
#define SHARE      16   /* frames sent at a time, if there are so many */
#define EVENTS_MAX 64

typedef struct QueuedFrame {
    uint8_t *data; /* kept for the next frame in this place */
    size_t size, room;
} QueuedFrame;

/* A socket of libslirp's, found by its number. */
typedef struct PolledFd {
    uint32_t registered; /* events in the epoll fd; 0: not in it */
    uint32_t wanted;     /* asked for in fill @generation */
    uint32_t ready;      /* what the last wait said */
    uint32_t generation;
} PolledFd;

typedef struct UserClient {
    NetClient nc;
    Slirp *slirp;
    EventLoopHook *hook;
    BottomHalf *flush;

    int epoll_fd;
    bool watching;       /* the epoll fd is in the loop */
    bool filled;         /* libslirp was asked for its sockets and not polled since */
    int64_t deadline_ns; /* when it wants to be polled whatever happens; -1: never */
    GArray *fds;         /* of PolledFd, index: fd */
    GArray *active;      /* of int: fds in the epoll fd */
    GArray *asked;       /* of int: fds named in this fill */
    uint32_t generation;

    QueuedFrame queue[QUEUE_MAX]; /* a ring */
    unsigned head, count;
    bool polling;        /* in slirp_pollfds_poll() */
    bool blocked;        /* the peer did not take all the last time */
    bool refused;        /* the peer has frames that we did not take */
    uint8_t *linear;     /* a frame in one piece */
    GPtrArray *forwards; /* guestfwd to character devices */
} UserClient;

typedef struct UserTimer {
    Timer timer;
    UserClient *user;
    SlirpTimerId id;
    void *cb_opaque;
} UserTimer;

/* ---- frames from libslirp ---- */

/* Sends what is queued, as far as the peer takes it. */
static void send_queue(UserClient *u)
{
    NetPacket pkts[NET_BATCH_MAX];
    struct iovec iov[NET_BATCH_MAX];
    while (u->count > 0 && !u->blocked) {
        unsigned n = MIN(u->count, NET_BATCH_MAX);
        for (unsigned i = 0; i < n; i++) {
            QueuedFrame *f = &u->queue[(u->head + i) % QUEUE_MAX];
            iov[i] = (struct iovec){f->data, f->size};
            pkts[i] = (NetPacket){&iov[i], 1, f->size};
        }
        unsigned taken = net_send_batch(&u->nc, pkts, n);
        u->head = (u->head + taken) % QUEUE_MAX;
        u->count -= taken;
        u->blocked = taken < n;
    }
}

static ssize_t user_send_packet(const void *data, size_t size, void *opaque)
{
    UserClient *u = opaque;
    if (u->count == QUEUE_MAX || size > NET_MAX_FRAME) {
        net_count_drop(&u->nc, u->count == QUEUE_MAX ? NET_DROP_OVERFLOW : NET_DROP_TOO_LONG, 1);
        return size;
    }
    QueuedFrame *f = &u->queue[(u->head + u->count) % QUEUE_MAX];
    if (f->room < size) {
        f->room = MAX(size, 1536);
        f->data = g_realloc(f->data, f->room);
    }
    memcpy(f->data, data, size);
    f->size = size;
    u->count++;
    if (u->polling && u->count >= SHARE) {
        send_queue(u);
    } else {
        bh_schedule(u->flush);
    }
    return size;
}

static void user_flush(void *opaque)
{
    UserClient *u = opaque;
    u->blocked = false; /* it may have changed its mind */
    send_queue(u);
    if (u->refused) {
        u->refused = false;
        net_peer_writable(&u->nc);
    }
}

static void user_peer_writable(NetClient *nc)
{
    UserClient *u = (UserClient *)nc;
    if (u->count > 0) {
        bh_schedule(u->flush);
    }
}

/* ---- frames to libslirp ---- */

static unsigned user_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    UserClient *u = (UserClient *)nc;
    for (unsigned i = 0; i < n; i++) {
        /* A peer that takes no answers now may still send: it may wait for that first. */
        if (u->count >= SHARE && !u->blocked) {
            u->refused = true;
            bh_schedule(u->flush);
            return i;
        }
        const uint8_t *data = pkts[i].iovcnt ? pkts[i].iov[0].iov_base : u->linear;
        if (pkts[i].iovcnt > 1) {
            iov_to_buf(pkts[i].iov, pkts[i].iovcnt, 0, u->linear, pkts[i].size);
            data = u->linear;
        }
        slirp_input(u->slirp, data, (int)pkts[i].size);
    }
    return n;
}

/* ---- polling ---- */

static PolledFd *polled_fd(UserClient *u, int fd)
{
    if ((unsigned)fd >= u->fds->len) {
        g_array_set_size(u->fds, fd + 1);
    }
    return &g_array_index(u->fds, PolledFd, fd);
}

static uint32_t to_epoll(int events)
{
    return (events & SLIRP_POLL_IN ? EPOLLIN : 0) | (events & SLIRP_POLL_OUT ? EPOLLOUT : 0) |
           (events & SLIRP_POLL_PRI ? EPOLLPRI : 0);
}

static int from_epoll(uint32_t events)
{
    return (events & EPOLLIN ? SLIRP_POLL_IN : 0) | (events & EPOLLOUT ? SLIRP_POLL_OUT : 0) |
           (events & EPOLLPRI ? SLIRP_POLL_PRI : 0) | (events & EPOLLERR ? SLIRP_POLL_ERR : 0) |
           (events & EPOLLHUP ? SLIRP_POLL_HUP : 0);
}

/* Makes the epoll fd agree with what @fd is wanted for. */
static void polled_fd_update(UserClient *u, int fd, PolledFd *p, uint32_t wanted)
{
    if (p->registered == wanted) {
        return;
    }
    struct epoll_event ev = {.events = wanted, .data.fd = fd};
    if (wanted == 0) {
        epoll_ctl(u->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    } else if (epoll_ctl(u->epoll_fd, p->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) < 0) {
        /* Closed and opened again behind our back, or the other way round. */
        int op = errno == EEXIST ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        if (epoll_ctl(u->epoll_fd, op, fd, &ev) < 0) {
            wanted = 0;
        }
    }
    p->registered = wanted;
}

static int user_add_poll(int fd, int events, void *opaque)
{
    UserClient *u = opaque;
    PolledFd *p = polled_fd(u, fd);
    if (p->generation != u->generation) {
        p->generation = u->generation;
        p->wanted = 0;
        p->ready = 0;
        g_array_append_val(u->asked, fd);
    }
    p->wanted |= to_epoll(events);
    return fd;
}

static int user_get_revents(int index, void *opaque)
{
    UserClient *u = opaque;
    return (unsigned)index < u->fds->len ? from_epoll(g_array_index(u->fds, PolledFd, index).ready)
                                         : 0;
}

/* libslirp opens or closes a socket: whatever was registered by this number is another's. */
static void user_forget_fd(int fd, void *opaque)
{
    UserClient *u = opaque;
    if (fd >= 0 && (unsigned)fd < u->fds->len) {
        PolledFd *p = polled_fd(u, fd);
        polled_fd_update(u, fd, p, 0);
        p->ready = 0;
    }
}

static void user_epoll_ready(void *opaque);

static void user_watch(UserClient *u, bool on)
{
    if (u->watching != on) {
        u->watching = on;
        event_loop_set_fd_handler(u->nc.loop, u->epoll_fd, on ? user_epoll_ready : NULL, NULL, u);
    }
}

static void user_prepare(void *opaque, int64_t *timeout_ns)
{
    UserClient *u = opaque;
    if (u->count > 0) {
        user_watch(u, false);
        u->filled = false;
        return;
    }
    user_forwards_poll(u->forwards);
    uint32_t timeout_ms = UINT32_MAX;
    u->generation++;
    slirp_pollfds_fill(u->slirp, &timeout_ms, user_add_poll, u);
    for (unsigned i = 0; i < u->active->len; i++) {
        int fd = g_array_index(u->active, int, i);
        PolledFd *p = polled_fd(u, fd);
        if (p->generation != u->generation) {
            polled_fd_update(u, fd, p, 0);
        }
    }
    for (unsigned i = 0; i < u->asked->len; i++) {
        int fd = g_array_index(u->asked, int, i);
        PolledFd *p = polled_fd(u, fd);
        polled_fd_update(u, fd, p, p->wanted);
    }
    GArray *free_list = u->active;
    u->active = u->asked;
    u->asked = g_array_set_size(free_list, 0);
    u->filled = true;
    user_watch(u, true);
    u->deadline_ns = -1;
    if (timeout_ms != UINT32_MAX) {
        int64_t ns = (int64_t)timeout_ms * 1000000;
        u->deadline_ns = clock_get_ns(CLOCK_HOST) + ns;
        *timeout_ns = *timeout_ns < 0 ? ns : MIN(*timeout_ns, ns);
    }
}

/* Once after a fill, when a socket is ready or libslirp's time has come; other wake-ups of the
 * loop cost nothing here. */
static void user_poll(UserClient *u)
{
    if (!u->filled) {
        return;
    }
    u->filled = false;
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(u->epoll_fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < n; i++) {
        polled_fd(u, events[i].data.fd)->ready = events[i].events;
    }
    u->polling = true;
    slirp_pollfds_poll(u->slirp, 0, user_get_revents, u);
    u->polling = false;
    send_queue(u);
}

static void user_epoll_ready(void *opaque)
{
    user_poll(opaque);
}

static void user_check(void *opaque)
{
    UserClient *u = opaque;
    if (u->filled && u->deadline_ns >= 0 && clock_get_ns(CLOCK_HOST) >= u->deadline_ns) {
        user_poll(u);
    }
}

/* ---- timers and messages ---- */

static void user_timer_expired(void *opaque)
{
    UserTimer *t = opaque;
    slirp_handle_timer(t->user->slirp, t->id, t->cb_opaque);
}

static void *user_timer_new(SlirpTimerId id, void *cb_opaque, void *opaque)
{
    UserClient *u = opaque;
    UserTimer *t = g_new0(UserTimer, 1);
    t->user = u;
    t->id = id;
    t->cb_opaque = cb_opaque;
    timer_init(&t->timer, u->nc.loop, CLOCK_HOST, user_timer_expired, t);
    return t;
}

static void user_timer_free(void *timer, void *opaque)
{
    UserTimer *t = timer;
    timer_del(&t->timer);
    g_free(t);
}

static void user_timer_mod(void *timer, int64_t expire_ms, void *opaque)
{
    timer_mod_ns(&((UserTimer *)timer)->timer, expire_ms * 1000000);
}

static int64_t user_clock_ns(void *opaque)
{
    return clock_get_ns(CLOCK_HOST);
}

static void user_guest_error(const char *msg, void *opaque)
{
    guest_error("user networking: %s", msg);
}

static void user_notify(void *opaque)
{
    /* The loop asks libslirp before each sleep anyway. */
}

static void user_init_completed(Slirp *slirp, void *opaque)
{
    ((UserClient *)opaque)->slirp = slirp;
}

static const SlirpCb user_callbacks = {
    .send_packet = user_send_packet,
    .guest_error = user_guest_error,
    .clock_get_ns = user_clock_ns,
    .timer_free = user_timer_free,
    .timer_mod = user_timer_mod,
    .register_poll_fd = user_forget_fd,
    .unregister_poll_fd = user_forget_fd,
    .notify = user_notify,
    .init_completed = user_init_completed,
    .timer_new_opaque = user_timer_new,
};

/* ---- life ---- */

static void user_cleanup(NetClient *nc)
{
    UserClient *u = (UserClient *)nc;
    event_loop_remove_hook(u->hook);
    user_watch(u, false);
    user_forwards_free(u->forwards);
    if (u->slirp) {
        slirp_cleanup(u->slirp);
    }
    bh_delete(u->flush);
    close(u->epoll_fd);
    g_array_unref(u->fds);
    g_array_unref(u->active);
    g_array_unref(u->asked);
    for (unsigned i = 0; i < QUEUE_MAX; i++) {
        g_free(u->queue[i].data);
    }
    g_free(u->linear);
}

static const NetClientOps user_ops = {
    .type = "user",
    .instance_size = sizeof(UserClient),
    .receive_batch = user_receive,
    .peer_writable = user_peer_writable,
    .cleanup = user_cleanup,
};

Slirp *user_slirp(const NetClient *nc)
{
    return nc->ops == &user_ops ? ((const UserClient *)nc)->slirp : NULL;
}

static gboolean add_rules(UserClient *u, const NetdevUserOptions *o, GError **errp)
{
    for (const StringList *e = o->hostfwd; e; e = e->next) {
        if (!user_add_hostfwd(u->slirp, e->value->str, errp)) {
            return false;
        }
    }
    for (const StringList *e = o->guestfwd; e; e = e->next) {
        if (!user_add_guestfwd(u->slirp, u->forwards, e->value->str, errp)) {
            return false;
        }
    }
    return true;
}

gboolean net_init_user(const Netdev *netdev, GError **errp)
{
    const NetdevUserOptions *o = &netdev->u.user;
    UserConfig config;
    if (!user_config_init(&config, o, errp)) {
        user_config_clear(&config);
        return false;
    }
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) {
        user_config_clear(&config);
        return error_set_errno(errp, errno, "netdev '%s': epoll", netdev->id);
    }

    UserClient *u = (UserClient *)net_client_new(&user_ops, NULL, "user", netdev->id);
    u->epoll_fd = epoll_fd;
    u->fds = g_array_new(FALSE, TRUE, sizeof(PolledFd));
    u->active = g_array_new(FALSE, FALSE, sizeof(int));
    u->asked = g_array_new(FALSE, FALSE, sizeof(int));
    u->linear = g_malloc0(NET_MAX_FRAME);
    u->forwards = g_ptr_array_new();
    u->flush = bh_new(u->nc.loop, user_flush, u);
    net_set_info(&u->nc, "net=%s,restrict=%s", config.net, config.slirp.restricted ? "on" : "off");
    u->slirp = slirp_new(&config.slirp, &user_callbacks, u);
    bool ok = u->slirp != NULL;
    if (!ok) {
        error_set(errp, "netdev '%s': libslirp refused the configuration", netdev->id);
    }
    user_config_clear(&config);
    u->hook = event_loop_add_hook(u->nc.loop, user_prepare, user_check, u);
    if (!ok || !add_rules(u, o, errp)) {
        net_client_delete(&u->nc);
        return false;
    }
    return true;
}
