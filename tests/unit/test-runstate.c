/* Run states, notifiers, requests; log and error helpers. */
#include <string.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/event-loop.h"
#include "util/log.h"
#include "util/runstate.h"

static GString *trace;
static VmStateNotifier *removable;

static void note(void *opaque, bool running)
{
    g_string_append_printf(trace, "%s%c", (char *)opaque, running ? '+' : '-');
}

static void note_and_remove(void *opaque, bool running)
{
    g_string_append_c(trace, 'r');
    vm_state_remove_notifier(removable);
}

static void note_clock(void *opaque, bool running)
{
    /* Before clocks start, after they stop: time stands still in a notifier. */
    int64_t now = clock_get_ns(CLOCK_VIRTUAL);
    g_usleep(1000);
    g_assert_cmpint(clock_get_ns(CLOCK_VIRTUAL), ==, now);
}

static void test_notifiers(void)
{
    VmStateNotifier *c = vm_state_add_notifier(2, note, "c");
    VmStateNotifier *a = vm_state_add_notifier(0, note, "a");
    VmStateNotifier *b = vm_state_add_notifier(1, note, "b");
    VmStateNotifier *t = vm_state_add_notifier(1, note_clock, NULL);

    removable = vm_state_add_notifier(1, note_and_remove, NULL);
    g_assert_cmpint(vm_state(), ==, VM_PRELAUNCH);
    g_assert_false(vm_stop(VM_PAUSED));
    g_assert_cmpint(vm_state(), ==, VM_PRELAUNCH);
    g_assert_true(vm_start());
    g_assert_false(vm_start());
    g_assert_true(vm_is_running());
    g_assert_cmpstr(trace->str, ==, "a+b+rc+");
    g_string_truncate(trace, 0);
    g_assert_true(vm_stop(VM_PAUSED));
    g_assert_cmpstr(trace->str, ==, "c-b-a-");
    g_assert_cmpstr(vm_state_name(vm_state()), ==, "paused");
    vm_set_stopped_state(VM_POSTMIGRATE);
    g_assert_cmpstr(vm_state_name(vm_state()), ==, "postmigrate");
    vm_state_remove_notifier(a);
    vm_state_remove_notifier(b);
    vm_state_remove_notifier(c);
    vm_state_remove_notifier(t);
}

static void test_requests(void)
{
    event_loop_main();
    g_assert_cmpint(vm_reset_requested(), ==, SHUTDOWN_NONE);
    vm_request_reset(SHUTDOWN_HOST_QMP_SYSTEM_RESET);
    event_loop_run_once(event_loop_main(), true); /* does not sleep */
    g_assert_cmpint(vm_reset_requested(), ==, SHUTDOWN_HOST_QMP_SYSTEM_RESET);
    g_assert_cmpint(vm_reset_requested(), ==, SHUTDOWN_NONE);
    vm_request_shutdown(SHUTDOWN_HOST_SIGNAL);
    vm_request_shutdown(SHUTDOWN_HOST_QMP_QUIT);
    g_assert_cmpint(vm_shutdown_requested(), ==, SHUTDOWN_HOST_SIGNAL);
}

static void test_log(void)
{
    GError *err = NULL;
    LogRate rate = {0};
    unsigned left_out = 9;

    g_assert_true(log_set_items("guest_errors,trace", &err));
    g_assert_cmpint(log_mask, ==, LOG_GUEST_ERROR | LOG_TRACE);
    g_assert_false(log_set_items("foo", &err));
    g_assert_nonnull(strstr(err->message, "'foo'"));
    g_clear_error(&err);
    g_assert_true(log_set_items("none", &err));
    g_assert_cmpint(log_mask, ==, 0);
    g_autofree char *help = log_items_help();
    g_assert_nonnull(strstr(help, "guest_errors"));
    g_assert_true(log_rate_ok(&rate, &left_out));
    g_assert_cmpint(left_out, ==, 0);
    g_assert_false(log_rate_ok(&rate, &left_out));
    g_assert_false(log_rate_ok(&rate, &left_out));
    rate.last_ns -= 2000000000;
    g_assert_true(log_rate_ok(&rate, &left_out));
    g_assert_cmpint(left_out, ==, 2);
    g_assert_false(log_set_file("/nonexistent/log", &err));
    g_clear_error(&err);
}

static void test_error(void)
{
    GError *err = NULL;

    g_assert_false(error_set(NULL, "x"));
    g_assert_false(error_set_class(&err, ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", "d"));
    g_assert_error(err, SWNIC_ERROR, ERROR_DEVICE_NOT_FOUND);
    g_clear_error(&err);
    g_assert_false(error_set_errno(&err, 2, "cannot open '%s'", "f"));
    g_assert_cmpstr(err->message, ==, "cannot open 'f': No such file or directory");
    g_clear_error(&err);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    trace = g_string_new(NULL);
    g_test_add_func("/runstate/notifiers-in-order", test_notifiers);
    g_test_add_func("/runstate/requests-wake-the-loop", test_requests);
    g_test_add_func("/log/items-and-rate", test_log);
    g_test_add_func("/error/classes", test_error);
    int ret = g_test_run();
    g_string_free(trace, TRUE);
    return ret;
}
