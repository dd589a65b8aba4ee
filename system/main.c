/*
 * swnic-system-x86_64: a PC without a CPU around our devices.
 *
 * main() is a sequence of phases: register types, read the command line, then objects, character
 * devices, netdevs, machine, devices, late objects, monitors, reset, start.  Each phase handles
 * the options that belong to it, in the order they were given.  Then the main loop runs until
 * somebody asks for the end, and everything is taken down in reverse.
 *
 * Exit status: 0 when asked to end (quit, signal, guest), 1 after an error at start-up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "chardev/chardev.h"
#include "hw/core/device.h"
#include "hw/core/machine.h"
#include "hw/i386/pc.h"
#include "hw/net/virtio-net.h"
#include "hw/pci/pci.h"
#include "hw/pci/pcie.h"
#include "hw/remote/vfio-user.h"
#include "hw/virtio/virtio.h"
#include "migration/migration.h"
#include "net/net.h"
#include "qapi/monitor.h"
#include "qapi/qapi-events.h"
#include "qom/object.h"
#include "system.h"
#include "system/qtest.h"
#include "util/error.h"
#include "util/event-loop.h"
#include "util/fdset.h"
#include "util/json.h"
#include "util/runstate.h"

static void register_types(void)
{
    qom_register_core_types();
    monitor_object_register_types();
    hw_core_register_types();
    hw_pci_register_types();
    hw_i386_register_types();
    hw_virtio_register_types();
    virtio_net_register_types();
    hw_remote_register_types();
}

/* Lowest priority of all: told first of a start, and last of a stop, when nothing moves. */
static void run_state_changed(void *opaque, bool running)
{
    if (running) {
        qapi_event_send_resume();
    } else if (!vm_shutdown_requested()) {
        qapi_event_send_stop();
    }
}

static QapiShutdownCause qapi_cause(ShutdownCause cause)
{
    static const QapiShutdownCause causes[] = {
        [SHUTDOWN_NONE] = QAPI_SHUTDOWN_CAUSE_NONE,
        [SHUTDOWN_HOST_QMP_QUIT] = QAPI_SHUTDOWN_CAUSE_HOST_QMP_QUIT,
        [SHUTDOWN_HOST_QMP_SYSTEM_RESET] = QAPI_SHUTDOWN_CAUSE_HOST_QMP_SYSTEM_RESET,
        [SHUTDOWN_HOST_SIGNAL] = QAPI_SHUTDOWN_CAUSE_HOST_SIGNAL,
        [SHUTDOWN_HOST_ERROR] = QAPI_SHUTDOWN_CAUSE_HOST_ERROR,
        [SHUTDOWN_GUEST_SHUTDOWN] = QAPI_SHUTDOWN_CAUSE_GUEST_SHUTDOWN,
        [SHUTDOWN_GUEST_RESET] = QAPI_SHUTDOWN_CAUSE_GUEST_RESET,
    };

    return causes[cause];
}

static bool cause_is_guest(ShutdownCause cause)
{
    return cause == SHUTDOWN_GUEST_SHUTDOWN || cause == SHUTDOWN_GUEST_RESET;
}

static gboolean make_machine(GError **errp)
{
    MachineClass *mc =
        settings.machine ? machine_class_find(settings.machine, errp) : machine_class_default();

    if (!mc) {
        return settings.machine ? FALSE
                                : error_set(errp, "No machine specified, and there is no "
                                                  "default (-machine help lists them)");
    }
    MachineState *machine = machine_new(mc);
    machine->ram_size = settings.ram_size;
    return object_set_properties(OBJECT(machine), settings.machine_options, NULL, errp) &&
           cmdline_run_phase(PHASE_MACHINE, errp) && machine_init(machine, errp);
}

static gboolean choose_clock(GError **errp)
{
    if (!settings.accel && settings.accel_error) {
        return error_set(errp, "%s", settings.accel_error);
    }
    if (!g_strcmp0(settings.accel, "qtest")) {
        clock_set_stepped();
    }
    return TRUE;
}

static gboolean start_process(GError **errp)
{
    if (settings.daemonize && settings.exit_with_parent) {
        return error_set(errp, "-daemonize: a daemon has no parent to exit with");
    }
    if (settings.daemonize && !process_daemonize(errp)) {
        return FALSE;
    }
    if (settings.exit_with_parent && !process_exit_with_parent(errp)) {
        return FALSE;
    }
    return !settings.pidfile || process_write_pidfile(settings.pidfile, errp);
}

static gboolean start_qtest(GError **errp)
{
    if (!settings.qtest) {
        return TRUE;
    }
    Chardev *chr = chardev_new_compat("qtest", settings.qtest, errp);
    if (!chr) {
        g_prefix_error(errp, "-qtest %s: ", settings.qtest);
        return FALSE;
    }
    return qtest_server_start(chr, settings.qtest_log, errp);
}

static gboolean start_up(int argc, char **argv, GError **errp)
{
    vm_state_add_notifier(-1, run_state_changed, NULL);
    device_deleted_hook = qapi_event_send_device_deleted;
    pcie_unplug_refused_hook = qapi_event_send_device_unplug_guest_error;
    virtio_net_rx_filter_changed_hook = qapi_event_send_nic_rx_filter_changed;
    system_register_hmp();
    net_monitor_init();
    virtio_net_register_hmp();
    migration_register_hmp();
    x86_register_migration();

    if (!cmdline_parse(argc, argv, errp) || !cmdline_run_phase(PHASE_SETTINGS, errp) ||
        !choose_clock(errp) || !cmdline_run_phase(PHASE_GLOBALS, errp) || !start_process(errp)) {
        return FALSE;
    }
    process_handle_signals();
    event_loop_main(); /* from here on signals wake it */
    return cmdline_run_phase(PHASE_OBJECTS, errp) && cmdline_run_phase(PHASE_CHARDEVS, errp) &&
           start_qtest(errp) && cmdline_run_phase(PHASE_NETDEVS, errp) && make_machine(errp) &&
           cmdline_run_phase(PHASE_DEVICES, errp) && cmdline_run_phase(PHASE_LATE_OBJECTS, errp) &&
           net_check_clients(errp) && cmdline_run_phase(PHASE_MONITORS, errp) &&
           options_wait_for_clients(errp) &&
           (!settings.sandbox || sandbox_enter(settings.sandbox, errp));
}

static void reset_if_requested(void)
{
    ShutdownCause cause = vm_reset_requested();

    if (cause == SHUTDOWN_NONE) {
        return;
    }
    if (settings.no_reboot) {
        vm_request_shutdown(cause);
        return;
    }
    machine_reset_devices();
    qapi_event_send_reset(cause_is_guest(cause), qapi_cause(cause));
}

static void main_loop(void)
{
    while (!vm_shutdown_requested()) {
        event_loop_run_once(event_loop_main(), true);
        reset_if_requested();
    }
    ShutdownCause cause = vm_shutdown_requested();
    qapi_event_send_shutdown(cause_is_guest(cause), qapi_cause(cause));
    vm_stop(VM_SHUTDOWN);
}

/* User-made objects in reverse order: a later one may refer to an earlier one. */
static void remove_objects(void)
{
    Object *objects = qom_container("/objects");

    while (objects->children && objects->children->len) {
        object_unparent(g_ptr_array_index(objects->children, objects->children->len - 1));
    }
}

static void settings_clear(void)
{
    g_free(settings.incoming);
    g_free(settings.name);
    g_free(settings.uuid);
    g_free(settings.pidfile);
    g_free(settings.sandbox);
    g_free(settings.machine);
    g_free(settings.accel);
    g_free(settings.accel_error);
    g_free(settings.qtest);
    g_free(settings.qtest_log);
    json_object_put(settings.machine_options);
}

/* Undoes what start_up() did, however far it came. */
static void clean_up(void)
{
    migration_cleanup();
    monitor_cleanup_all();
    qtest_server_stop();
    if (current_machine) {
        machine_free(current_machine);
    }
    remove_objects();
    net_cleanup();
    chardev_cleanup_all();
    fdset_cleanup();
    options_cleanup();
    cmdline_cleanup();
    settings_clear();
    process_remove_pidfile();
}

int main(int argc, char **argv)
{
    GError *err = NULL;

    error_set_program_name(argv[0]);
    settings.machine_options = json_object_new_object();
    register_types();
    if (!start_up(argc, argv, &err)) {
        bool asked_to_end = vm_shutdown_requested();
        if (asked_to_end) {
            g_error_free(err); /* a signal interrupted the wait for a client */
        } else {
            error_report_and_free(err);
        }
        clean_up();
        return asked_to_end ? 0 : 1;
    }
    device_set_machine_ready(true);
    machine_reset_devices();
    process_daemon_ready();
    if (settings.incoming) {
        if (!migration_start_incoming(settings.incoming, !settings.start_stopped, &err)) {
            g_prefix_error(&err, "-incoming %s: ", settings.incoming);
            error_report_and_free(err);
            clean_up();
            return 1;
        }
    } else if (!settings.start_stopped) {
        vm_start();
    }
    main_loop();
    int status = migration_exit_with_error() ? 1 : 0;
    clean_up();
    return status;
}
