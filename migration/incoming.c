/*
 * An incoming migration.  The thread accepts and reads; when the stream has come to its end the
 * main thread checks and applies the devices' state and starts the VM, if it ran at the source.
 * Until then the VM is in state "inmigrate", and a `cont` is only remembered.
 *
 * A failure is reported on standard error and ends the process with status 1, unless
 * migrate-incoming said exit-on-error=false: then query-migrate has it, and the VM stays as it is.
 */
#include <pthread.h>
#include <string.h>

#include "internal.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-events.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/json.h"
#include "util/runstate.h"
#include "util/trace.h"

typedef struct Incoming {
    bool deferred; /* waits for migrate-incoming */
    bool failed_for_good;
    bool autostart, exit_on_error;
    MigrationUri *uri;
    MigrationChannel *channel;
    char *address; /* "host\nport" of a TCP socket that listens */
    LoadState *load;
    EventNotifier cancel;
    pthread_t thread;
    bool running;
    atomic_bool ended;
    MigrationStatus status;
    GError *error;
    GError *thread_error; /* the thread's, until main_end() */
} Incoming;

static Incoming *incoming; /* NULL: none */
static bool exit_with_error;

bool migration_is_incoming(void)
{
    return incoming && incoming->status != MIGRATION_STATUS_COMPLETED;
}

bool migration_exit_with_error(void)
{
    return exit_with_error;
}

gboolean migration_may_start(GError **errp)
{
    if (!migration_is_incoming()) {
        return vm_state() != VM_FINISH_MIGRATE ||
               error_set(errp, "The migration is in its switchover (migrate_cancel ends it)");
    }
    if (incoming->failed_for_good) {
        return error_set(errp, "The incoming migration failed: %s", incoming->error->message);
    }
    incoming->autostart = true;
    return FALSE;
}

static void set_status(Incoming *in, MigrationStatus status)
{
    in->status = status;
    trace_migration_set_incoming_state(MigrationStatus_str(status));
    migration_send_status_event(status);
}

/* --- steps in the main thread --- */

static void main_active(void *opaque)
{
    Incoming *in = opaque;

    g_clear_pointer(&in->address, g_free);
    set_status(in, MIGRATION_STATUS_ACTIVE);
}

/* Tells the network where we are now. */
static void announce(void)
{
    json_object *args = json_object_new_object();
    GError *err = NULL;

    json_put_int(args, "initial", (int64_t)migration_options.announce_initial);
    json_put_int(args, "max", (int64_t)migration_options.announce_max);
    json_put_int(args, "rounds", (int64_t)migration_options.announce_rounds);
    json_put_int(args, "step", (int64_t)migration_options.announce_step);
    json_object_put(qmp_call("announce-self", args, &err));
    json_object_put(args);
    if (err) {
        warn_report("announcing after migration: %s", err->message);
        g_error_free(err);
    }
}

static void arrived(Incoming *in, bool vm_was_running)
{
    migration_channel_answer(in->channel, false);
    g_clear_pointer(&in->channel, migration_channel_free);
    in->status = MIGRATION_STATUS_COMPLETED; /* before the start, which asks */
    if (in->autostart && vm_was_running) {
        vm_start();
    } else {
        vm_set_stopped_state(VM_PAUSED);
    }
    announce();
    migration_send_status_event(MIGRATION_STATUS_COMPLETED);
}

static void failed(Incoming *in)
{
    if (in->channel) {
        migration_channel_answer(in->channel, true);
        g_clear_pointer(&in->channel, migration_channel_free);
    }
    in->failed_for_good = true;
    set_status(in, MIGRATION_STATUS_FAILED);
    error_report("incoming migration: %s", in->error->message);
    if (in->exit_on_error) {
        exit_with_error = true;
        vm_request_shutdown(SHUTDOWN_HOST_ERROR);
    }
}

static void main_end(void *opaque)
{
    Incoming *in = opaque;
    bool vm_was_running = false;

    migration_host->lock_devices(false);
    in->error = g_steal_pointer(&in->thread_error);
    if (!in->error && loadvm_finish(in->load, &vm_was_running, &in->error)) {
        arrived(in, vm_was_running);
    } else if (!vm_shutdown_requested()) {
        failed(in);
    }
    g_clear_pointer(&in->load, loadvm_free);
}

/* --- the thread --- */

static gssize channel_source(void *opaque, void *data, size_t size, GError **errp)
{
    return migration_channel_read(opaque, data, size, errp);
}

static gboolean migrate_in(Incoming *in, GError **errp)
{
    bool listens = in->uri->kind == URI_TCP || in->uri->kind == URI_UNIX;
    VmReader *r;
    gboolean ok;

    if (listens && !migration_channel_accept(in->channel, errp)) {
        return FALSE;
    }
    migration_in_main(main_active, in);
    r = vm_reader_new(channel_source, in->channel);
    ok = loadvm_read(in->load, r, errp);
    vm_reader_free(r);
    return ok;
}

static void *incoming_thread(void *opaque)
{
    Incoming *in = opaque;

    migrate_in(in, &in->thread_error);
    migration_in_main(main_end, in);
    atomic_store(&in->ended, true);
    event_loop_wake(event_loop_main());
    return NULL;
}

/* --- begin and end (main thread) --- */

static gboolean incoming_begin(Incoming *in, const char *uri_text, GError **errp)
{
    int status;

    if (!migration_host) {
        return error_set(errp, "There is no machine to migrate to");
    }
    if (!migration_host->check(errp)) {
        return FALSE;
    }
    in->uri = migration_uri_parse(uri_text, errp);
    in->load = in->uri ? loadvm_new(errp) : NULL;
    if (!in->load || !event_notifier_init(&in->cancel, errp)) {
        return FALSE;
    }
    in->channel = migration_channel_open(in->uri, true, &in->cancel, errp);
    if (!in->channel || !migration_channel_listen(in->channel, in->uri, &in->address, errp)) {
        return FALSE;
    }
    set_status(in, MIGRATION_STATUS_SETUP);
    migration_host->lock_devices(true);
    status = pthread_create(&in->thread, NULL, incoming_thread, in);
    if (status) {
        migration_host->lock_devices(false);
        return error_set_errno(errp, status, "cannot make a thread");
    }
    in->running = true;
    return TRUE;
}

static void incoming_reset(Incoming *in)
{
    g_clear_pointer(&in->uri, migration_uri_free);
    g_clear_pointer(&in->channel, migration_channel_free);
    g_clear_pointer(&in->load, loadvm_free);
    g_clear_pointer(&in->address, g_free);
    event_notifier_cleanup(&in->cancel);
    in->cancel.fd = -1;
    in->status = MIGRATION_STATUS_NONE;
}

gboolean migration_start_incoming(const char *uri, bool autostart, GError **errp)
{
    Incoming *in = g_new0(Incoming, 1);

    in->autostart = autostart;
    in->exit_on_error = true;
    in->cancel.fd = -1;
    in->deferred = !strcmp(uri, "defer");
    incoming = in;
    vm_set_stopped_state(VM_INMIGRATE);
    return in->deferred || incoming_begin(in, uri, errp);
}

void qmp_migrate_incoming(const char *uri, bool has_exit_on_error, bool exit_on_error,
                          GError **errp)
{
    if (!incoming) {
        error_set(errp, "'-incoming' was not specified on the command line");
        return;
    }
    if (!incoming->deferred) {
        error_set(errp, "The incoming migration has already been started");
        return;
    }
    incoming->exit_on_error = !has_exit_on_error || exit_on_error;
    if (incoming_begin(incoming, uri, errp)) {
        incoming->deferred = false;
    } else {
        incoming_reset(incoming);
    }
}

void incoming_cleanup(void)
{
    Incoming *in = incoming;

    if (!in) {
        return;
    }
    if (in->running) {
        event_notifier_set(&in->cancel);
        while (!atomic_load(&in->ended)) {
            event_loop_run_once(event_loop_main(), true);
        }
        pthread_join(in->thread, NULL);
    }
    incoming_reset(in);
    g_clear_error(&in->error);
    g_clear_pointer(&incoming, g_free);
}

bool incoming_query(MigrationInfo *info)
{
    Incoming *in = incoming;

    if (!in || in->deferred) {
        return false;
    }
    info->has_status = true;
    info->status = in->status;
    if (in->error) {
        info->error_desc = g_strdup(in->error->message);
    }
    if (in->status == MIGRATION_STATUS_SETUP && in->uri->kind == URI_UNIX) {
        SocketAddress *address = g_new0(SocketAddress, 1);
        SocketAddressList **tail = &info->socket_address;

        address->type = SOCKET_ADDRESS_TYPE_UNIX;
        address->u.q_unix.path = g_strdup(in->uri->path);
        QAPI_LIST_APPEND(tail, address);
    } else if (in->status == MIGRATION_STATUS_SETUP && in->address) {
        g_auto(GStrv) parts = g_strsplit(in->address, "\n", 2);
        SocketAddress *address = g_new0(SocketAddress, 1);
        SocketAddressList **tail = &info->socket_address;

        address->type = SOCKET_ADDRESS_TYPE_INET;
        address->u.inet.host = g_strdup(parts[0]);
        address->u.inet.port = g_strdup(parts[1]);
        QAPI_LIST_APPEND(tail, address);
    }
    return true;
}
