/*
 * Event loop: one GSource over one epoll descriptor.
 *
 * How an iteration goes.  GLib asks loop_prepare() whether something is ready; if not, the
 * loop is marked sleeping, the timerfd is set if the next deadline is earlier than the one it is
 * set for, and GLib polls the epoll descriptor.  loop_check() marks the loop awake;
 * loop_dispatch() runs bottom halves, expired timers, poll hooks and ready fds, in this order.
 *
 * Waking.  Work from other threads is put under loop->lock; only if the loop sleeps does the
 * adder write the eventfd, so a busy loop costs its callers no system call.  eventfd and timerfd
 * are edge-triggered in the epoll set: they are never read, each write or expiry is one wake-up.
 *
 * What this does not do: priorities (GIO's sources and ours share the default one) and timeouts
 * in milliseconds (GLib's own; use timers).
 */
#include "util/event-loop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "event-loop-priv.h"
#include "util/error.h"

#define EVENTS_PER_WAIT 64
#define WAKE_TOKEN      UINT64_MAX /* epoll data of eventfd and timerfd */

typedef struct LoopSource {
    GSource source;
    EventLoop *loop;
} LoopSource;

static _Thread_local EventLoop *current_loop;

/* All loops, for the clocks.  Loops are made and freed rarely. */
static pthread_mutex_t loops_lock = PTHREAD_MUTEX_INITIALIZER;
static GPtrArray *loops;
static _Atomic(EventLoop *) main_loop;

void event_loop_foreach(void (*fn)(EventLoop *loop, void *opaque), void *opaque)
{
    /* Called without the lock: @fn may wait for a loop's thread, which may make a loop. */
    pthread_mutex_lock(&loops_lock);
    unsigned n = loops ? loops->len : 0;
    EventLoop **copy = g_newa(EventLoop *, n + 1);
    for (unsigned i = 0; i < n; i++) {
        copy[i] = g_ptr_array_index(loops, i);
    }
    pthread_mutex_unlock(&loops_lock);
    for (unsigned i = 0; i < n; i++) {
        fn(copy[i], opaque);
    }
}

void event_loop_wake(EventLoop *loop)
{
    uint64_t one = 1;
    int saved_errno = errno;
    ssize_t n;

    do {
        n = write(loop->event_fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
    errno = saved_errno;
}

void event_loop_unlock_and_wake(EventLoop *loop)
{
    bool wake = loop->sleeping;

    loop->sleeping = false;
    pthread_mutex_unlock(&loop->lock);
    if (wake) {
        event_loop_wake(loop);
    }
}

/* Lets every hook say how long the loop may sleep; -1: as long as it likes. */
static int64_t hooks_prepare(EventLoop *loop)
{
    int64_t timeout_ns = -1;

    loop->hook_walkers++;
    for (unsigned i = 0; i < loop->hooks->len; i++) {
        EventLoopHook *hook = g_ptr_array_index(loop->hooks, i);
        if (!hook->removed && hook->prepare) {
            hook->prepare(hook->opaque, &timeout_ns);
        }
    }
    loop->hook_walkers--;
    return timeout_ns;
}

static void hooks_sweep(EventLoop *loop)
{
    if (loop->hook_walkers) {
        return;
    }
    for (unsigned i = loop->hooks->len; i-- > 0;) {
        EventLoopHook *hook = g_ptr_array_index(loop->hooks, i);
        if (hook->removed) {
            g_ptr_array_remove_index(loop->hooks, i);
            g_free(hook);
        }
    }
}

static void hooks_check(EventLoop *loop)
{
    loop->hook_walkers++;
    for (unsigned i = 0; i < loop->hooks->len; i++) {
        EventLoopHook *hook = g_ptr_array_index(loop->hooks, i);
        if (!hook->removed && hook->check) {
            hook->check(hook->opaque);
        }
    }
    loop->hook_walkers--;
    hooks_sweep(loop);
}

/* Sets the timerfd for host time @deadline_ns unless it is already set for something earlier:
 * a wake-up too early costs less than a system call each time a deadline moves away. */
static void loop_arm_timer(EventLoop *loop, int64_t deadline_ns, int64_t now_ns)
{
    if (loop->armed_ns > now_ns && loop->armed_ns <= deadline_ns) {
        return;
    }
    struct itimerspec spec = {
        .it_value = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000},
    };
    timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
    loop->armed_ns = deadline_ns;
}

/* @found: by an event, which busy polling learns from. */
static void loop_end_wait(EventLoop *loop, bool found)
{
    if (found && loop->wait_ns) {
        busy_poll_adapt(&loop->poll, clock_get_ns(CLOCK_HOST) - loop->wait_ns);
    }
    loop->wait_ns = 0;
}

static gboolean loop_prepare(GSource *source, gint *timeout)
{
    EventLoop *loop = ((LoopSource *)source)->loop;
    EventLoop *outer = current_loop;

    current_loop = loop;
    *timeout = -1;
    int64_t hook_ns = hooks_prepare(loop);
    current_loop = outer;

    int64_t now = clock_get_ns(CLOCK_HOST);
    pthread_mutex_lock(&loop->lock);
    int64_t deadline = event_loop_deadline_locked(loop);
    if (hook_ns >= 0 && hook_ns < TIME_NEVER - now) {
        deadline = MIN(deadline, now + hook_ns);
    }
    bool ready = loop->bh_first || loop->always_ready || deadline <= now;
    loop->sleeping = !ready;
    pthread_mutex_unlock(&loop->lock);

    if (ready) {
        return TRUE;
    }
    loop->wait_ns = now;
    if (loop->poll.now_ns && busy_poll_wait(&loop->poll, loop->epoll_fd, deadline)) {
        pthread_mutex_lock(&loop->lock);
        loop->sleeping = false;
        pthread_mutex_unlock(&loop->lock);
        loop_end_wait(loop, true);
        return TRUE;
    }
    if (deadline != TIME_NEVER) {
        loop_arm_timer(loop, deadline, now);
    }
    return FALSE;
}

static gboolean loop_check(GSource *source)
{
    EventLoop *loop = ((LoopSource *)source)->loop;

    pthread_mutex_lock(&loop->lock);
    loop->sleeping = false;
    bool ready = loop->bh_first || event_loop_deadline_locked(loop) <= clock_get_ns(CLOCK_HOST);
    pthread_mutex_unlock(&loop->lock);
    ready = ready || g_source_query_unix_fd(source, loop->poll_tag);
    loop_end_wait(loop, ready);
    return ready || loop->always_ready || loop->hooks->len;
}

/* The entry of @fd if it is still the one an event was for, else NULL. */
static FdEntry *fd_entry(EventLoop *loop, unsigned fd, uint32_t generation)
{
    if (fd >= loop->fds->len) {
        return NULL;
    }
    FdEntry *entry = &g_array_index(loop->fds, FdEntry, fd);
    return entry->watched && entry->generation == generation ? entry : NULL;
}

static void fd_dispatch(EventLoop *loop, unsigned fd, uint32_t generation, uint32_t events)
{
    const uint32_t failed = EPOLLERR | EPOLLHUP;
    FdEntry *entry = fd_entry(loop, fd, generation);

    if (entry && entry->readable && (events & (EPOLLIN | failed))) {
        events &= ~failed; /* told once */
        entry->readable(entry->opaque);
        /* The handler may have changed or removed this fd, or moved the table. */
        entry = fd_entry(loop, fd, generation);
    }
    if (entry && entry->writable && (events & (EPOLLOUT | failed))) {
        entry->writable(entry->opaque);
    }
}

static void always_ready_dispatch(EventLoop *loop)
{
    for (unsigned fd = 0; fd < loop->fds->len && loop->always_ready; fd++) {
        FdEntry *entry = &g_array_index(loop->fds, FdEntry, fd);
        if (entry->watched && entry->always_ready) {
            fd_dispatch(loop, fd, entry->generation, EPOLLIN | EPOLLOUT);
        }
    }
}

static void fds_dispatch(EventLoop *loop)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    int n = epoll_wait(loop->epoll_fd, events, EVENTS_PER_WAIT, 0);

    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 != WAKE_TOKEN) {
            fd_dispatch(loop, (uint32_t)events[i].data.u64, events[i].data.u64 >> 32,
                        events[i].events);
        }
    }
}

static gboolean loop_dispatch(GSource *source, GSourceFunc callback, gpointer user_data)
{
    EventLoop *loop = ((LoopSource *)source)->loop;
    EventLoop *outer = current_loop;

    current_loop = loop;
    event_loop_run_bottom_halves(loop);
    for (int clock = 0; clock < CLOCK__MAX; clock++) {
        event_loop_run_timers(loop, clock);
    }
    if (loop->hooks->len) {
        hooks_check(loop);
    }
    if (g_source_query_unix_fd(source, loop->poll_tag)) {
        fds_dispatch(loop);
    }
    if (loop->always_ready) {
        always_ready_dispatch(loop);
    }
    current_loop = outer;
    return G_SOURCE_CONTINUE;
}

static GSourceFuncs loop_source_funcs = {
    .prepare = loop_prepare,
    .check = loop_check,
    .dispatch = loop_dispatch,
};

static void epoll_add_wake_fd(EventLoop *loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = WAKE_TOKEN};

    epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* A loop on @context that nobody runs yet; takes over the reference. */
static EventLoop *event_loop_new(const char *name, GMainContext *context, GError **errp)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

    if (epoll_fd < 0 || event_fd < 0 || timer_fd < 0) {
        error_set_errno(errp, errno, "cannot make event loop '%s'", name);
        close(epoll_fd);
        close(event_fd);
        close(timer_fd);
        g_main_context_unref(context);
        return NULL;
    }
    EventLoop *loop = g_new0(EventLoop, 1);
    loop->name = g_strdup(name);
    loop->context = context;
    loop->epoll_fd = epoll_fd;
    loop->event_fd = event_fd;
    loop->timer_fd = timer_fd;
    loop->poll.set.max_ns = EVENT_LOOP_POLL_MAX_NS;
    loop->fds = g_array_new(FALSE, TRUE, sizeof(FdEntry));
    loop->hooks = g_ptr_array_new();
    pthread_mutex_init(&loop->lock, NULL);
    epoll_add_wake_fd(loop, event_fd);
    epoll_add_wake_fd(loop, timer_fd);

    loop->source = g_source_new(&loop_source_funcs, sizeof(LoopSource));
    ((LoopSource *)loop->source)->loop = loop;
    g_source_set_name(loop->source, name);
    /* A handler may run the loop itself, while it waits for something. */
    g_source_set_can_recurse(loop->source, TRUE);
    loop->poll_tag = g_source_add_unix_fd(loop->source, epoll_fd, G_IO_IN);
    g_source_attach(loop->source, context);

    pthread_mutex_lock(&loops_lock);
    if (!loops) {
        loops = g_ptr_array_new();
    }
    g_ptr_array_add(loops, loop);
    pthread_mutex_unlock(&loops_lock);
    return loop;
}

EventLoop *event_loop_try_main(GError **errp)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    EventLoop *loop = atomic_load(&main_loop);

    if (loop) {
        return loop;
    }
    pthread_mutex_lock(&lock);
    loop = atomic_load(&main_loop);
    if (!loop) {
        loop = event_loop_new("main", g_main_context_ref(g_main_context_default()), errp);
    }
    if (loop && !atomic_load(&main_loop)) {
        loop->thread = pthread_self();
        atomic_store(&loop->thread_id, getpid());
        atomic_store(&main_loop, loop);
    }
    pthread_mutex_unlock(&lock);
    return loop;
}

EventLoop *event_loop_main(void)
{
    GError *err = NULL;
    EventLoop *loop = event_loop_try_main(&err);

    if (!loop) {
        error_report_and_free(err);
        exit(1);
    }
    return loop;
}

EventLoop *event_loop_main_if_made(void)
{
    return atomic_load(&main_loop);
}

EventLoop *event_loop_current(void)
{
    return current_loop ? current_loop : event_loop_main();
}

/* Threads of loops take no signals: those are the main thread's. */
static void *loop_thread(void *opaque)
{
    EventLoop *loop = opaque;
    char short_name[16];

    g_strlcpy(short_name, loop->name, sizeof(short_name));
    pthread_setname_np(pthread_self(), short_name);
    current_loop = loop;
    g_main_context_push_thread_default(loop->context);
    atomic_store(&loop->thread_id, syscall(SYS_gettid));
    while (!atomic_load(&loop->quit)) {
        g_main_context_iteration(loop->context, TRUE);
    }
    event_loop_run_bottom_halves(loop); /* one-shots that came with the request to end */
    g_main_context_pop_thread_default(loop->context);
    return NULL;
}

static void loop_started(void *opaque) {}

static void event_loop_destroy(EventLoop *loop)
{
    pthread_mutex_lock(&loops_lock);
    g_ptr_array_remove(loops, loop);
    pthread_mutex_unlock(&loops_lock);

    g_source_destroy(loop->source);
    g_source_unref(loop->source);
    g_main_context_unref(loop->context);
    event_loop_drop_bottom_halves(loop);
    for (int clock = 0; clock < CLOCK__MAX; clock++) {
        g_free(loop->heaps[clock].timers);
    }
    for (unsigned i = 0; i < loop->hooks->len; i++) {
        g_free(g_ptr_array_index(loop->hooks, i));
    }
    g_ptr_array_free(loop->hooks, TRUE);
    g_array_free(loop->fds, TRUE);
    close(loop->epoll_fd);
    close(loop->event_fd);
    close(loop->timer_fd);
    pthread_mutex_destroy(&loop->lock);
    g_free(loop->name);
    g_free(loop);
}

typedef struct SetPoll {
    EventLoop *loop;
    const EventLoopPoll *poll;
} SetPoll;

static void set_poll(void *opaque)
{
    SetPoll *set = opaque;
    set->loop->poll = (BusyPoll){.set = *set->poll};
}

void event_loop_set_poll(EventLoop *loop, const EventLoopPoll *poll)
{
    SetPoll set = {loop, poll};
    event_loop_run_sync(loop, set_poll, &set);
}

EventLoop *event_loop_new_thread(const char *name, GError **errp)
{
    EventLoop *loop = event_loop_new(name, g_main_context_new(), errp);
    sigset_t all, old;

    if (!loop) {
        return NULL;
    }
    loop->own_thread = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int ret = pthread_create(&loop->thread, NULL, loop_thread, loop);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (ret) {
        event_loop_destroy(loop);
        error_set_errno(errp, ret, "cannot start the thread of event loop '%s'", name);
        return NULL;
    }
    event_loop_run_sync(loop, loop_started, NULL);
    return loop;
}

void event_loop_free(EventLoop *loop)
{
    if (!loop) {
        return;
    }
    atomic_store(&loop->quit, true);
    event_loop_wake(loop);
    pthread_join(loop->thread, NULL);
    event_loop_destroy(loop);
}

const char *event_loop_name(const EventLoop *loop)
{
    return loop->name;
}

int event_loop_thread_id(const EventLoop *loop)
{
    return atomic_load(&((EventLoop *)loop)->thread_id);
}

bool event_loop_is_current(const EventLoop *loop)
{
    return pthread_equal(loop->thread, pthread_self());
}

bool event_loop_run_once(EventLoop *loop, bool may_block)
{
    return g_main_context_iteration(loop->context, may_block);
}

typedef struct SyncCall {
    BottomHalfFunc *fn;
    void *opaque;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
} SyncCall;

static void sync_call_run(void *opaque)
{
    SyncCall *call = opaque;

    call->fn(call->opaque);
    pthread_mutex_lock(&call->lock);
    call->done = true;
    /* Under the lock: the caller's frame holds the condition and may be gone right after it. */
    pthread_cond_signal(&call->cond);
    pthread_mutex_unlock(&call->lock);
}

void event_loop_run_sync(EventLoop *loop, BottomHalfFunc *fn, void *opaque)
{
    if (event_loop_is_current(loop)) {
        fn(opaque);
        return;
    }
    SyncCall call = {.fn = fn, .opaque = opaque};
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.cond, NULL);
    event_loop_oneshot(loop, sync_call_run, &call);
    pthread_mutex_lock(&call.lock);
    while (!call.done) {
        pthread_cond_wait(&call.cond, &call.lock);
    }
    pthread_mutex_unlock(&call.lock);
    pthread_cond_destroy(&call.cond);
    pthread_mutex_destroy(&call.lock);
}

static void fd_entry_forget(EventLoop *loop, FdEntry *entry, int fd)
{
    if (!entry->watched) {
        return;
    }
    if (entry->always_ready) {
        loop->always_ready--;
    } else {
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    }
    memset(entry, 0, sizeof(*entry));
}

void event_loop_set_fd_handler(EventLoop *loop, int fd, FdHandler *readable, FdHandler *writable,
                               void *opaque)
{
    if (fd < 0) {
        return;
    }
    if ((unsigned)fd >= loop->fds->len) {
        if (!readable && !writable) {
            return;
        }
        g_array_set_size(loop->fds, fd + 1);
    }
    FdEntry *entry = &g_array_index(loop->fds, FdEntry, fd);
    if (!readable && !writable) {
        fd_entry_forget(loop, entry, fd);
        return;
    }

    uint32_t generation = entry->watched ? entry->generation : ++loop->generation;
    bool same_direction =
        entry->watched && !readable == !entry->readable && !writable == !entry->writable;
    struct epoll_event event = {
        .events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0),
        .data.u64 = (uint64_t)generation << 32 | (uint32_t)fd,
    };
    entry->readable = readable;
    entry->writable = writable;
    entry->opaque = opaque;
    entry->generation = generation;
    if (same_direction || entry->always_ready) {
        return;
    }
    int op = entry->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    int ret = epoll_ctl(loop->epoll_fd, op, fd, &event);
    if (ret < 0 && errno == EEXIST) {
        ret = epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &event);
    } else if (ret < 0 && errno == ENOENT) {
        /* Closed without being forgotten, and the number used again. */
        ret = epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
    entry->watched = true;
    if (ret < 0 && errno == EPERM) {
        entry->always_ready = true;
        loop->always_ready++;
    }
}

EventLoopHook *event_loop_add_hook(EventLoop *loop,
                                   void (*prepare)(void *opaque, int64_t *timeout_ns),
                                   void (*check)(void *opaque), void *opaque)
{
    EventLoopHook *hook = g_new0(EventLoopHook, 1);

    hook->loop = loop;
    hook->prepare = prepare;
    hook->check = check;
    hook->opaque = opaque;
    g_ptr_array_add(loop->hooks, hook);
    return hook;
}

void event_loop_remove_hook(EventLoopHook *hook)
{
    hook->removed = true;
    hooks_sweep(hook->loop);
}
