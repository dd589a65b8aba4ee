/*
 * Run state: running or not, why not, and who is told.
 *
 * Starting: notifiers by rising priority, then the virtual clock.  Stopping: the clock, then
 * notifiers by falling priority; devices drain in theirs, so after vm_stop() guest memory is
 * still.  Requests to end or reset come from signals and commands and are only noted here; the
 * main loop acts on them.
 */
#include "util/runstate.h"

#include <glib.h>
#include <stdatomic.h>

#include "event-loop-priv.h"
#include "util/clock.h"

struct VmStateNotifier {
    int priority;
    void (*fn)(void *opaque, bool running);
    void *opaque;
    bool removed;
};

static const char *const state_names[VM__MAX] = {
    [VM_DEBUG] = "debug",
    [VM_INMIGRATE] = "inmigrate",
    [VM_INTERNAL_ERROR] = "internal-error",
    [VM_IO_ERROR] = "io-error",
    [VM_PAUSED] = "paused",
    [VM_POSTMIGRATE] = "postmigrate",
    [VM_PRELAUNCH] = "prelaunch",
    [VM_FINISH_MIGRATE] = "finish-migrate",
    [VM_RESTORE_VM] = "restore-vm",
    [VM_RUNNING] = "running",
    [VM_SAVE_VM] = "save-vm",
    [VM_SHUTDOWN] = "shutdown",
    [VM_SUSPENDED] = "suspended",
    [VM_WATCHDOG] = "watchdog",
    [VM_GUEST_PANICKED] = "guest-panicked",
    [VM_COLO] = "colo",
};

static atomic_int current_state = VM_PRELAUNCH;
static GPtrArray *notifiers; /* VmStateNotifier*, by rising priority */
static unsigned notifier_walkers;
static atomic_int shutdown_cause, reset_cause;

const char *vm_state_name(VmState state)
{
    return state >= 0 && state < VM__MAX ? state_names[state] : "unknown";
}

VmState vm_state(void)
{
    return atomic_load(&current_state);
}

bool vm_is_running(void)
{
    return atomic_load(&current_state) == VM_RUNNING;
}

VmStateNotifier *vm_state_add_notifier(int priority, void (*fn)(void *opaque, bool running),
                                       void *opaque)
{
    VmStateNotifier *notifier = g_new0(VmStateNotifier, 1);
    unsigned i = 0;

    notifier->priority = priority;
    notifier->fn = fn;
    notifier->opaque = opaque;
    if (!notifiers) {
        notifiers = g_ptr_array_new();
    }
    while (i < notifiers->len &&
           ((VmStateNotifier *)g_ptr_array_index(notifiers, i))->priority <= priority) {
        i++;
    }
    g_ptr_array_insert(notifiers, i, notifier);
    return notifier;
}

static void notifiers_sweep(void)
{
    if (notifier_walkers) {
        return;
    }
    for (unsigned i = notifiers->len; i-- > 0;) {
        VmStateNotifier *notifier = g_ptr_array_index(notifiers, i);
        if (notifier->removed) {
            g_ptr_array_remove_index(notifiers, i);
            g_free(notifier);
        }
    }
    if (!notifiers->len) {
        g_ptr_array_free(notifiers, TRUE);
        notifiers = NULL;
    }
}

void vm_state_remove_notifier(VmStateNotifier *notifier)
{
    if (notifier) {
        notifier->removed = true; /* it may be running, or the list being walked */
        notifiers_sweep();
    }
}

static void notifiers_call(bool running)
{
    if (!notifiers) {
        return;
    }
    /* A copy: a function may add or remove notifiers. */
    g_autoptr(GPtrArray) list = g_ptr_array_copy(notifiers, NULL, NULL);

    notifier_walkers++;
    for (unsigned i = 0; i < list->len; i++) {
        VmStateNotifier *notifier = g_ptr_array_index(list, running ? i : list->len - 1 - i);
        if (!notifier->removed) {
            notifier->fn(notifier->opaque, running);
        }
    }
    notifier_walkers--;
    notifiers_sweep();
}

bool vm_start(void)
{
    if (vm_is_running()) {
        return false;
    }
    atomic_store(&current_state, VM_RUNNING);
    notifiers_call(true);
    if (vm_is_running()) {
        clock_virtual_enable(true);
    }
    return true;
}

bool vm_stop(VmState state)
{
    if (!vm_is_running()) {
        return false;
    }
    clock_virtual_enable(false);
    atomic_store(&current_state, state);
    notifiers_call(false);
    return true;
}

void vm_set_stopped_state(VmState state)
{
    if (!vm_is_running() && state != VM_RUNNING) {
        atomic_store(&current_state, state);
    }
}

static void request(atomic_int *place, ShutdownCause cause)
{
    EventLoop *loop = event_loop_main_if_made();
    int none = SHUTDOWN_NONE;

    /* The first cause is the one that is told. */
    atomic_compare_exchange_strong(place, &none, cause);
    if (loop) {
        event_loop_wake(loop);
    }
}

void vm_request_shutdown(ShutdownCause cause)
{
    request(&shutdown_cause, cause);
}

void vm_request_reset(ShutdownCause cause)
{
    request(&reset_cause, cause);
}

ShutdownCause vm_shutdown_requested(void)
{
    return atomic_load(&shutdown_cause);
}

ShutdownCause vm_reset_requested(void)
{
    return atomic_exchange(&reset_cause, SHUTDOWN_NONE);
}
