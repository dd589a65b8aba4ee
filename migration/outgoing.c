/*
 * An outgoing migration: setup, passes over RAM while the guest runs, the switchover.
 *
 * The thread writes; the VM, devices, status and events are the main thread's (migration_in_main).
 * A pass sends every page that is dirty.  When what is dirty fits the downtime limit at the
 * bandwidth that was seen, the VM is stopped, the last pages and the devices follow, and the source
 * is done.  Anything that goes wrong before, and cancelling, lets the VM run on if it ran: it is
 * never left standing with another reason in query-status than the user's own.
 */
#include <pthread.h>
#include <string.h>

#include "internal.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-events.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/runstate.h"
#include "util/trace.h"

#define UNPLUG_POLL_MS 50 /* how often it is looked whether a device has left */
#define CHUNK_SIZE     (512u * 1024) /* written at once; also how often the rate is looked at */
#define RATE_PERIOD_NS 100000000LL
#define NS_PER_MS      1000000LL

typedef struct Outgoing {
    MigrationUri *uri;
    MigrationChannel *channel;
    RamState *ram;
    EventNotifier cancel, resume; /* resume: migrate-continue */
    pthread_t thread;
    bool running;      /* the thread exists; main thread */
    atomic_bool ended; /* the thread has nothing more to do */
    bool capabilities[MIGRATION_CAPABILITY__MAX];

    /* main thread */
    MigrationStatus status;
    GError *error;
    bool vm_was_running, vm_stopped_by_us;
    bool cancelled;
    GByteArray *devices;
    int64_t begin_ns, setup_ns, end_ns;
    int64_t stopped_ns;

    /* atomic: written by the thread */
    uint64_t bandwidth, expected_downtime_ms, precopy_bytes, downtime_bytes;
    int64_t downtime_ns;

    /* the thread's */
    GByteArray *buffer;
    int64_t period_begin_ns;
    uint64_t period_bytes;
} Outgoing;

static Outgoing *outgoing; /* the last one, or NULL */

/* --- calls into the main thread --- */

typedef struct MainCall {
    void (*fn)(void *opaque);
    void *opaque;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
} MainCall;

static void main_call_run(void *opaque)
{
    MainCall *call = opaque;

    call->fn(call->opaque);
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->done_cond);
    pthread_mutex_unlock(&call->lock);
}

void migration_in_main(void (*fn)(void *opaque), void *opaque)
{
    MainCall call = {.fn = fn, .opaque = opaque};

    if (event_loop_is_current(event_loop_main())) {
        fn(opaque);
        return;
    }
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.done_cond, NULL);
    event_loop_oneshot(event_loop_main(), main_call_run, &call);
    pthread_mutex_lock(&call.lock);
    while (!call.done) {
        pthread_cond_wait(&call.done_cond, &call.lock);
    }
    pthread_mutex_unlock(&call.lock);
    pthread_cond_destroy(&call.done_cond);
    pthread_mutex_destroy(&call.lock);
}

/* --- status (main thread) --- */

void migration_send_status_event(MigrationStatus status)
{
    if (migration_options.capabilities[MIGRATION_CAPABILITY_EVENTS]) {
        qapi_event_send_migration(status);
    }
}

static void set_status(Outgoing *m, MigrationStatus status)
{
    if (m->status != status) {
        m->status = status;
        trace_migration_set_outgoing_state(MigrationStatus_str(status));
        migration_send_status_event(status);
    }
}

bool outgoing_is_active(void)
{
    return outgoing && outgoing->running;
}

/* --- steps in the main thread --- */

static void main_unplug(void *opaque)
{
    if (migration_host->unplug) {
        migration_host->unplug();
    }
}

typedef struct Unplugging {
    Outgoing *m;
    bool going_on;
    GError *error;
} Unplugging;

static void main_unplugging(void *opaque)
{
    Unplugging *u = opaque;

    u->going_on = !u->m->cancelled && migration_host->unplugging &&
                  migration_host->unplugging(&u->error);
    if (u->going_on) {
        set_status(u->m, MIGRATION_STATUS_WAIT_UNPLUG);
    }
}

static void main_setup(void *opaque)
{
    Outgoing *m = opaque;

    ram_log_start(m->ram);
    m->setup_ns = clock_get_ns(CLOCK_HOST) - m->begin_ns;
    if (!m->cancelled) {
        set_status(m, MIGRATION_STATUS_ACTIVE);
    }
}

static void main_pass(void *opaque)
{
    Outgoing *m = opaque;

    if (m->capabilities[MIGRATION_CAPABILITY_EVENTS]) {
        qapi_event_send_migration_pass((int64_t)m->ram->passes);
    }
}

static void main_stop(void *opaque)
{
    Outgoing *m = opaque;

    m->vm_was_running = vm_is_running();
    m->stopped_ns = clock_get_ns(CLOCK_HOST);
    if (m->cancelled) {
        return;
    }
    if (m->vm_was_running) {
        vm_stop(VM_FINISH_MIGRATE);
        m->vm_stopped_by_us = true;
    }
    if (m->capabilities[MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER]) {
        set_status(m, MIGRATION_STATUS_PRE_SWITCHOVER);
    } else {
        set_status(m, MIGRATION_STATUS_DEVICE);
    }
}

static void main_save_devices(void *opaque)
{
    Outgoing *m = opaque;

    m->devices = g_byte_array_new();
    savevm_write_devices(m->devices, m->vm_was_running);
}

/* How it ended.  The state of the VM is settled before anybody hears of it. */
static void main_end(void *opaque)
{
    Outgoing *m = opaque;
    bool ok = !m->error && !m->cancelled;

    ram_log_stop(m->ram);
    migration_host->lock_devices(false);
    m->end_ns = clock_get_ns(CLOCK_HOST);
    if (ok) {
        if (m->vm_stopped_by_us) {
            vm_set_stopped_state(VM_POSTMIGRATE);
        }
        set_status(m, MIGRATION_STATUS_COMPLETED);
    } else {
        if (m->vm_stopped_by_us && vm_state() == VM_FINISH_MIGRATE) {
            vm_start();
        }
        if (migration_host->replug) {
            migration_host->replug();
        }
        set_status(m, m->cancelled ? MIGRATION_STATUS_CANCELLED : MIGRATION_STATUS_FAILED);
    }
    g_clear_pointer(&m->channel, migration_channel_free);
}

/* --- the thread --- */

static gboolean wait_for_resume(Outgoing *m, GError **errp)
{
    GPollFD fds[2] = {{.fd = m->cancel.fd, .events = G_IO_IN},
                      {.fd = m->resume.fd, .events = G_IO_IN}};

    while (g_poll(fds, 2, -1) < 0) {
    }
    return !fds[0].revents || error_set(errp, "migration was cancelled");
}

/* Keeps to max-bandwidth: sleeps the rest of a period whose share is used up. */
static gboolean keep_rate(Outgoing *m, size_t written, GError **errp)
{
    uint64_t limit = __atomic_load_n(&migration_options.max_bandwidth, __ATOMIC_RELAXED);
    int64_t now = clock_get_ns(CLOCK_HOST), due;
    GPollFD fd = {.fd = m->cancel.fd, .events = G_IO_IN};

    m->period_bytes += written;
    if (limit && (double)m->period_bytes >= (double)limit * RATE_PERIOD_NS / 1e9) {
        due = m->period_begin_ns + (int64_t)((double)m->period_bytes * 1e9 / (double)limit);
        while (now < due) {
            if (g_poll(&fd, 1, (int)((due - now + NS_PER_MS - 1) / NS_PER_MS)) > 0) {
                return error_set(errp, "migration was cancelled");
            }
            now = clock_get_ns(CLOCK_HOST);
        }
    } else if (now - m->period_begin_ns < RATE_PERIOD_NS) {
        return TRUE;
    }
    m->period_begin_ns = now;
    m->period_bytes = 0;
    return TRUE;
}

static gboolean flush(Outgoing *m, GError **errp)
{
    gboolean ok = migration_channel_write(m->channel, m->buffer->data, m->buffer->len, errp);

    g_byte_array_set_size(m->buffer, 0);
    return ok;
}

/* One section of RAM; *more: the pass goes on. */
static gboolean write_ram_part(Outgoing *m, uint8_t type, gboolean *more, GError **errp)
{
    VmWriter w = {m->buffer, NULL};

    savevm_write_section(&w, type, "ram", SAVEVM_RAM_VERSION);
    m->ram->last_block = NULL;
    *more = ram_write_pages(m->ram, &w, type == VM_SECTION_END ? SIZE_MAX : CHUNK_SIZE);
    ram_write_eos(&w);
    savevm_write_footer(&w, SAVEVM_RAM_ID);
    return flush(m, errp);
}

static gboolean write_pass(Outgoing *m, GError **errp)
{
    gboolean more = TRUE;
    int64_t begin = clock_get_ns(CLOCK_HOST);
    uint64_t bytes = 0;

    __atomic_fetch_add(&m->ram->passes, 1, __ATOMIC_RELAXED);
    migration_in_main(main_pass, m);
    while (more) {
        uint64_t before = m->channel->transferred;

        if (!write_ram_part(m, VM_SECTION_PART, &more, errp)) {
            return FALSE;
        }
        bytes += m->channel->transferred - before;
        if (!keep_rate(m, m->channel->transferred - before, errp)) {
            return FALSE;
        }
    }
    int64_t ns = MAX(clock_get_ns(CLOCK_HOST) - begin, 1);
    uint64_t dirty = ram_count_dirty(m->ram);

    __atomic_store_n(&m->bandwidth, (uint64_t)((double)bytes * 1e9 / (double)ns), __ATOMIC_RELAXED);
    __atomic_store_n(&m->ram->dirty_rate,
                     (uint64_t)((double)(dirty >> MIGRATION_PAGE_SHIFT) * 1e9 / (double)ns),
                     __ATOMIC_RELAXED);
    return TRUE;
}

/* Whether what is left fits the downtime. */
static bool may_switch_over(Outgoing *m)
{
    uint64_t limit_ms = __atomic_load_n(&migration_options.downtime_limit, __ATOMIC_RELAXED);
    uint64_t bandwidth =
        __atomic_load_n(&migration_options.avail_switchover_bandwidth, __ATOMIC_RELAXED);
    uint64_t dirty = ram_count_dirty(m->ram);

    if (!bandwidth) {
        bandwidth = MAX(m->bandwidth, 1);
    }
    uint64_t need_ms = (uint64_t)((double)dirty * 1e3 / (double)bandwidth);
    __atomic_store_n(&m->expected_downtime_ms, need_ms, __ATOMIC_RELAXED);
    return dirty == 0 || need_ms <= limit_ms;
}

static gboolean write_setup(Outgoing *m, GError **errp)
{
    VmWriter w = {m->buffer, NULL};

    savevm_write_header(&w, m->capabilities);
    savevm_write_section(&w, VM_SECTION_START, "ram", SAVEVM_RAM_VERSION);
    ram_write_setup(m->ram, &w);
    savevm_write_footer(&w, SAVEVM_RAM_ID);
    return flush(m, errp);
}

/* VM stopped. */
static gboolean write_last(Outgoing *m, GError **errp)
{
    gboolean more;

    ram_mark_shared(m->ram);
    __atomic_fetch_add(&m->ram->passes, 1, __ATOMIC_RELAXED);
    /* In pieces, so that the buffer stays small. */
    do {
        if (!write_ram_part(m, VM_SECTION_PART, &more, errp)) {
            return FALSE;
        }
    } while (more);
    if (!write_ram_part(m, VM_SECTION_END, &more, errp)) {
        return FALSE;
    }
    ram_count_dirty(m->ram);
    migration_in_main(main_save_devices, m);
    return migration_channel_write(m->channel, m->devices->data, m->devices->len, errp);
}

static void main_resumed(void *opaque)
{
    Outgoing *m = opaque;

    if (!m->cancelled) {
        set_status(m, MIGRATION_STATUS_DEVICE);
    }
}

static gboolean switch_over(Outgoing *m, GError **errp)
{
    bool answer = m->capabilities[MIGRATION_CAPABILITY_RETURN_PATH];

    __atomic_store_n(&m->precopy_bytes, m->channel->transferred, __ATOMIC_RELAXED);
    migration_in_main(main_stop, m);
    if (m->capabilities[MIGRATION_CAPABILITY_PAUSE_BEFORE_SWITCHOVER]) {
        if (!wait_for_resume(m, errp)) {
            return FALSE;
        }
        migration_in_main(main_resumed, m);
    }
    if (!write_last(m, errp)) {
        return FALSE;
    }
    __atomic_store_n(&m->downtime_bytes, m->channel->transferred - m->precopy_bytes,
                     __ATOMIC_RELAXED);
    if (!migration_channel_finish(m->channel, answer, errp)) {
        return FALSE;
    }
    __atomic_store_n(&m->downtime_ns, clock_get_ns(CLOCK_HOST) - m->stopped_ns, __ATOMIC_RELAXED);
    return TRUE;
}

/* Devices that do not migrate leave first; a guest may take its time. */
static gboolean wait_for_unplug(Outgoing *m, GError **errp)
{
    Unplugging u = {.m = m};

    for (;;) {
        GPollFD cancel = {.fd = m->cancel.fd, .events = G_IO_IN};

        migration_in_main(main_unplugging, &u);
        if (u.error) {
            g_propagate_error(errp, u.error);
            return FALSE;
        }
        if (!u.going_on) {
            return TRUE;
        }
        if (g_poll(&cancel, 1, UNPLUG_POLL_MS) > 0) {
            return error_set(errp, "cancelled while a device was being unplugged");
        }
    }
}

static gboolean migrate_out(Outgoing *m, GError **errp)
{
    if (!migration_channel_connect(m->channel, m->uri, errp)) {
        return FALSE;
    }
    migration_in_main(main_unplug, m);
    if (!wait_for_unplug(m, errp)) {
        return FALSE;
    }
    migration_in_main(main_setup, m);
    m->period_begin_ns = clock_get_ns(CLOCK_HOST);
    if (!write_setup(m, errp)) {
        return FALSE;
    }
    do {
        if (!write_pass(m, errp)) {
            return FALSE;
        }
    } while (!may_switch_over(m));
    return switch_over(m, errp);
}

static void *outgoing_thread(void *opaque)
{
    Outgoing *m = opaque;
    GError *err = NULL;

    if (!migrate_out(m, &err)) {
        m->error = err;
    }
    migration_in_main(main_end, m);
    atomic_store(&m->ended, true);
    event_loop_wake(event_loop_main());
    return NULL;
}

/* --- begin and end (main thread) --- */

static void outgoing_join(void *opaque)
{
    Outgoing *m = opaque;

    if (m->running) {
        pthread_join(m->thread, NULL);
        m->running = false;
    }
}

static void outgoing_free(Outgoing *m)
{
    if (!m) {
        return;
    }
    migration_uri_free(m->uri);
    migration_channel_free(m->channel);
    ram_state_free(m->ram);
    event_notifier_cleanup(&m->cancel);
    event_notifier_cleanup(&m->resume);
    g_clear_error(&m->error);
    if (m->devices) {
        g_byte_array_unref(m->devices);
    }
    g_byte_array_unref(m->buffer);
    g_free(m);
}

static gboolean may_begin(GError **errp)
{
    if (outgoing_is_active() && !atomic_load(&outgoing->ended)) {
        return error_set(errp, "There's a migration process in progress");
    }
    if (migration_is_incoming()) {
        return error_set(errp, "Guest is waiting for an incoming migration");
    }
    if (!migration_host) {
        return error_set(errp, "There is no machine to migrate");
    }
    if (!migration_host->check(errp)) {
        return FALSE;
    }
    if (vm_state() == VM_POSTMIGRATE) {
        return error_set(errp, "Can't migrate the vm that was paused due to previous migration");
    }
    return TRUE;
}

void qmp_migrate(const char *uri_text, bool has_detach, bool detach, bool has_resume, bool resume,
                 GError **errp)
{
    Outgoing *m;

    if (has_resume && resume) {
        error_set(errp, "Parameter 'resume' is not available: there is no postcopy here");
        return;
    }
    if (!may_begin(errp)) {
        return;
    }
    if (outgoing) {
        outgoing_join(outgoing);
        g_clear_pointer(&outgoing, outgoing_free);
    }
    m = g_new0(Outgoing, 1);
    m->cancel.fd = m->resume.fd = -1;
    m->buffer = g_byte_array_new();
    memcpy(m->capabilities, migration_options.capabilities, sizeof(m->capabilities));
    m->uri = migration_uri_parse(uri_text, errp);
    if (!m->uri || !event_notifier_init(&m->cancel, errp) ||
        !event_notifier_init(&m->resume, errp)) {
        outgoing_free(m);
        return;
    }
    m->ram = ram_state_new(m->capabilities[MIGRATION_CAPABILITY_X_IGNORE_SHARED], errp);
    m->channel = m->ram ? migration_channel_open(m->uri, false, &m->cancel, errp) : NULL;
    if (!m->channel) {
        outgoing_free(m);
        return;
    }
    m->begin_ns = clock_get_ns(CLOCK_HOST);
    migration_host->lock_devices(true);
    outgoing = m;
    set_status(m, MIGRATION_STATUS_SETUP);
    int status = pthread_create(&m->thread, NULL, outgoing_thread, m);
    if (status) {
        migration_host->lock_devices(false);
        outgoing = NULL;
        error_set_errno(errp, status, "cannot make a thread");
        outgoing_free(m);
        return;
    }
    m->running = true;
}

void qmp_migrate_cancel(GError **errp)
{
    Outgoing *m = outgoing;

    if (!outgoing_is_active() || atomic_load(&m->ended) || m->end_ns || m->cancelled) {
        return;
    }
    m->cancelled = true;
    set_status(m, MIGRATION_STATUS_CANCELLING);
    event_notifier_set(&m->cancel);
}

void qmp_migrate_continue(MigrationStatus state, GError **errp)
{
    Outgoing *m = outgoing;
    MigrationStatus now = m ? m->status : MIGRATION_STATUS_NONE;

    if (now != state) {
        error_set(errp, "Migration not in expected state: %s (it is in %s)",
                  MigrationStatus_str(state), MigrationStatus_str(now));
        return;
    }
    if (state != MIGRATION_STATUS_PRE_SWITCHOVER) {
        error_set(errp, "Migration does not wait in state %s", MigrationStatus_str(state));
        return;
    }
    event_notifier_set(&m->resume);
}

void outgoing_cleanup(void)
{
    if (!outgoing) {
        return;
    }
    qmp_migrate_cancel(NULL);
    while (outgoing->running && !atomic_load(&outgoing->ended)) {
        event_loop_run_once(event_loop_main(), true);
    }
    outgoing_join(outgoing);
    g_clear_pointer(&outgoing, outgoing_free);
}

/* --- query-migrate --- */

static MigrationStats *query_ram(Outgoing *m)
{
    MigrationStats *s = g_new0(MigrationStats, 1);
    RamState *ram = m->ram;
    uint64_t normal = __atomic_load_n(&ram->normal, __ATOMIC_RELAXED);
    uint64_t bandwidth = __atomic_load_n(&m->bandwidth, __ATOMIC_RELAXED);

    s->transferred = m->channel
                         ? (int64_t)__atomic_load_n(&m->channel->transferred, __ATOMIC_RELAXED)
                         : (int64_t)(m->precopy_bytes + m->downtime_bytes);
    s->remaining = (int64_t)__atomic_load_n(&ram->remaining, __ATOMIC_RELAXED);
    s->total = (int64_t)ram->total;
    s->duplicate = (int64_t)__atomic_load_n(&ram->zero, __ATOMIC_RELAXED);
    s->normal = (int64_t)normal;
    s->normal_bytes = (int64_t)(normal << MIGRATION_PAGE_SHIFT);
    s->dirty_pages_rate = (int64_t)__atomic_load_n(&ram->dirty_rate, __ATOMIC_RELAXED);
    s->mbps = (double)bandwidth * 8 / 1e6;
    s->dirty_sync_count = (int64_t)__atomic_load_n(&ram->passes, __ATOMIC_RELAXED);
    s->page_size = MIGRATION_PAGE_SIZE;
    s->pages_per_second = bandwidth >> MIGRATION_PAGE_SHIFT;
    s->precopy_bytes = __atomic_load_n(&m->precopy_bytes, __ATOMIC_RELAXED);
    if (!s->precopy_bytes) {
        s->precopy_bytes = (uint64_t)s->transferred;
    }
    s->downtime_bytes = __atomic_load_n(&m->downtime_bytes, __ATOMIC_RELAXED);
    return s;
}

void outgoing_query(MigrationInfo *info)
{
    Outgoing *m = outgoing;

    if (!m) {
        return;
    }
    info->has_status = true;
    info->status = m->status;
    info->has_total_time = true;
    info->total_time =
        ((m->end_ns ? m->end_ns : clock_get_ns(CLOCK_HOST)) - m->begin_ns) / NS_PER_MS;
    if (m->setup_ns) {
        info->has_setup_time = true;
        info->setup_time = m->setup_ns / NS_PER_MS;
        info->ram = query_ram(m);
    }
    if (m->status == MIGRATION_STATUS_COMPLETED) {
        info->has_downtime = true;
        info->downtime = m->downtime_ns / NS_PER_MS;
    } else if (m->status == MIGRATION_STATUS_ACTIVE) {
        info->has_expected_downtime = true;
        info->expected_downtime =
            (int64_t)__atomic_load_n(&m->expected_downtime_ms, __ATOMIC_RELAXED);
        if (!info->expected_downtime) {
            info->expected_downtime = (int64_t)migration_options.downtime_limit;
        }
    }
    if (m->status == MIGRATION_STATUS_FAILED && m->error) {
        info->error_desc = g_strdup(m->error->message);
    }
}
