/*
 * Migration of the guest's emulator: see mover.h.
 */
#include "guest/mover.h"
#include "guest/lwip-netif.h"
#include <gio/gio.h>
#include <string.h>
#include <unistd.h>

#define STEP_MS 20000 /* one step of a migration may take this long */

static bool run(Emulator *emulator, GError **errp, const char *command, json_object *arguments)
{
    json_object *answer = qmp_client_execute(emulator->qmp, command, arguments, errp);
    json_object_put(answer);
    return answer != NULL;
}

static json_object *capability(const char *name, bool on)
{
    json_object *one = json_object_new_object();
    json_object_object_add(one, "capability", json_object_new_string(name));
    json_object_object_add(one, "state", json_object_new_boolean(on));
    return one;
}

static bool set_capabilities(Emulator *emulator, bool shared, GError **errp)
{
    json_object *list = json_object_new_array(), *arguments = json_object_new_object();
    json_object_array_add(list, capability("events", true));
    json_object_array_add(list, capability("pause-before-switchover", true));
    json_object_array_add(list, capability("x-ignore-shared", shared));
    json_object_object_add(arguments, "capabilities", list);
    return run(emulator, errp, "migrate-set-capabilities", arguments);
}

static json_object *string_argument(const char *name, const char *value)
{
    json_object *arguments = json_object_new_object();
    json_object_object_add(arguments, name, json_object_new_string(value));
    return arguments;
}

/* Waits until the migration is in state @wanted; "failed" is an error. */
static bool wait_status(Emulator *emulator, const char *wanted, GError **errp)
{
    for (;;) {
        json_object *event = qmp_client_wait_event(emulator->qmp, "MIGRATION", STEP_MS, errp);
        json_object *data = NULL, *status = NULL;
        if (!event) {
            g_prefix_error(errp, "migration to state %s: ", wanted);
            return false;
        }
        json_object_object_get_ex(event, "data", &data);
        json_object_object_get_ex(data, "status", &status);
        g_autofree char *now = g_strdup(status ? json_object_get_string(status) : "");
        json_object_put(event);
        if (strcmp(now, wanted) == 0) {
            return true;
        }
        if (strcmp(now, "failed") == 0) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "the migration failed");
            return false;
        }
    }
}

static bool wait_resume(Emulator *emulator, GError **errp)
{
    json_object *event = qmp_client_wait_event(emulator->qmp, "RESUME", STEP_MS, errp);
    json_object_put(event);
    return event != NULL;
}

/* From where the source stands still to where the target runs; the stack is paused. */
static bool switch_over(Mover *mover, Emulator *target, GuestRam *ram, GError **errp)
{
    /* What was posted to the source has been seen before its state is saved: one answer waits for
     * all before it. */
    guest_pci_bus_read(mover->bus, 0, 0, 4, 0);
    if (!run(mover->emulator, errp, "migrate-continue",
             string_argument("state", "pre-switchover")) ||
        !wait_resume(target, errp)) {
        return false;
    }
    if (ram != mover->ram && !guest_ram_replace(mover->ram, ram, errp)) {
        return false;
    }
    mover->bus->qtest = target->qtest;
    return true;
}

static bool migrate(Mover *mover, Emulator *target, GuestRam *ram, bool shared, GError **errp)
{
    g_autofree char *dir = g_dir_make_tmp("swnic-XXXXXX", errp);
    if (!dir) {
        return false;
    }
    g_autofree char *path = g_build_filename(dir, "migration", NULL);
    g_autofree char *uri = g_strconcat("unix:", path, NULL);
    bool ok = set_capabilities(target, shared, errp) &&
              set_capabilities(mover->emulator, shared, errp) &&
              run(target, errp, "migrate-incoming", string_argument("uri", uri)) &&
              run(mover->emulator, errp, "migrate", string_argument("uri", uri)) &&
              wait_status(mover->emulator, "pre-switchover", errp);
    unlink(path);
    rmdir(dir);
    if (!ok) {
        return false;
    }
    gint64 begin = g_get_monotonic_time();
    guest_netif_pause();
    ok = switch_over(mover, target, ram, errp);
    guest_netif_resume();
    double pause = (double)(g_get_monotonic_time() - begin) / 1000;
    g_array_append_val(mover->pauses[shared], pause);
    return ok && wait_status(mover->emulator, "completed", errp);
}

bool mover_move(Mover *mover, unsigned round, GError **errp)
{
    static const char *const incoming[] = {"-incoming", "defer", NULL};
    bool shared = round % 2;
    GuestRam *ram = shared ? mover->ram : guest_ram_new(mover->ram->size, errp);
    Emulator *target = ram ? mover->start(mover->opaque, round, ram, incoming, errp) : NULL;
    if (!target || !migrate(mover, target, ram, shared, errp)) {
        /* Its memory may be mapped in the place of ours: then it goes with ours. */
        emulator_kill(target);
        return false;
    }
    Emulator *source = mover->emulator;
    mover->emulator = target;
    return emulator_stop(source, errp);
}
