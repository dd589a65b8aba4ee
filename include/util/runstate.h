/*
 * Run state of the VM (QAPI's RunState) and who wants to know of its changes.  Main thread,
 * except vm_is_running().
 */
#ifndef UTIL_RUNSTATE_H
#define UTIL_RUNSTATE_H

#include <stdbool.h>

/* Same order and names as RunState in qapi/run-state.json. */
typedef enum VmState {
    VM_DEBUG,
    VM_INMIGRATE,
    VM_INTERNAL_ERROR,
    VM_IO_ERROR,
    VM_PAUSED,
    VM_POSTMIGRATE,
    VM_PRELAUNCH,
    VM_FINISH_MIGRATE,
    VM_RESTORE_VM,
    VM_RUNNING,
    VM_SAVE_VM,
    VM_SHUTDOWN,
    VM_SUSPENDED,
    VM_WATCHDOG,
    VM_GUEST_PANICKED,
    VM_COLO,
    VM__MAX
} VmState;

const char *vm_state_name(VmState state); /* "running", "paused", "prelaunch", ... */
VmState vm_state(void);
bool vm_is_running(void); /* any thread */

/* Both return false when nothing changed.  Notifiers run before clocks start (start) and
 * after they stop (stop): when vm_stop() returns, no device touches guest memory. */
bool vm_start(void);
bool vm_stop(VmState state);
/* Another reason why the VM is stopped (VM_POSTMIGRATE, …); nothing if it is running. */
void vm_set_stopped_state(VmState state);

typedef struct VmStateNotifier VmStateNotifier;
/* Lower @priority runs first on start and last on stop: devices 0, back ends 1, monitors 2. */
VmStateNotifier *vm_state_add_notifier(int priority, void (*fn)(void *opaque, bool running),
                                       void *opaque);
void vm_state_remove_notifier(VmStateNotifier *notifier);

/* Why the process should end; the main loop looks after each iteration. */
typedef enum ShutdownCause {
    SHUTDOWN_NONE,
    SHUTDOWN_HOST_QMP_QUIT,
    SHUTDOWN_HOST_QMP_SYSTEM_RESET,
    SHUTDOWN_HOST_SIGNAL,
    SHUTDOWN_HOST_ERROR,
    SHUTDOWN_GUEST_SHUTDOWN,
    SHUTDOWN_GUEST_RESET
} ShutdownCause;
void vm_request_shutdown(ShutdownCause cause); /* async-signal-safe */
void vm_request_reset(ShutdownCause cause);
ShutdownCause vm_shutdown_requested(void);
ShutdownCause vm_reset_requested(void); /* reading clears it */

#endif
