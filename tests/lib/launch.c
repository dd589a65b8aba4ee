/* Emulators by command line: see launch.h. */
#include "tests/lib/launch.h"

#include <string.h>

#include "tests/lib/rig.h"

#define TIMEOUT_US (20 * G_USEC_PER_SEC)
#define TIMEOUT_MS 20000

Emulator *launch(const int *fds, const char *format, ...)
{
    GError *err = NULL;
    g_auto(GStrv) words = NULL;
    va_list ap;

    va_start(ap, format);
    g_autofree char *line = g_strdup_vprintf(format, ap);
    va_end(ap);
    g_assert_true(g_shell_parse_argv(line, NULL, &words, &err));
    EmulatorOptions options = {
        .command = rig_binary(),
        .accel = "qtest",
        .inherit_fds = fds,
        .arguments = (const char *const *)words,
    };
    Emulator *e = emulator_start(&options, &err);
    if (!e) {
        g_error("%s: %s", line, err->message);
    }
    return e;
}

void launch_quit(Emulator *e)
{
    GError *err = NULL;

    if (!emulator_stop(e, &err)) {
        g_error("the emulator did not end well: %s", err ? err->message : "bad exit status");
    }
}

char *launch_refused(const char *format, ...)
{
    GError *err = NULL;
    g_auto(GStrv) words = NULL;
    char *out = NULL, *message = NULL;
    int status;
    va_list ap;

    va_start(ap, format);
    g_autofree char *rest = g_strdup_vprintf(format, ap);
    va_end(ap);
    g_autofree char *line = g_strdup_printf("%s %s", rig_binary(), rest);
    g_assert_true(g_shell_parse_argv(line, NULL, &words, &err));
    g_assert_true(g_spawn_sync(NULL, words, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out, &message,
                               &status, &err));
    g_assert_cmpint(status, ==, 1 << 8);
    g_assert_cmpstr(out, ==, "");
    g_free(out);
    g_assert_nonnull(strchr(message, '\n'));
    g_assert_cmpstr(strchr(message, '\n'), ==, "\n");
    return message;
}

json_object *launch_member(json_object *object, const char *key)
{
    json_object *value = NULL;

    json_object_object_get_ex(object, key, &value);
    return value;
}

const char *launch_string(json_object *object, const char *key)
{
    json_object *value = launch_member(object, key);

    return value ? json_object_get_string(value) : NULL;
}

static json_object *execute(Emulator *e, const char *command, const char *arguments, va_list ap,
                            GError **errp)
{
    json_object *args = NULL;

    if (arguments) {
        g_autofree char *text = g_strdup_vprintf(arguments, ap);
        args = json_tokener_parse(g_strdelimit(text, "'", '"'));
        g_assert_nonnull(args);
    }
    return qmp_client_execute(e->qmp, command, args, errp);
}

json_object *launch_qmp(Emulator *e, const char *command, const char *arguments, ...)
{
    GError *err = NULL;
    va_list ap;

    va_start(ap, arguments);
    json_object *ret = execute(e, command, arguments, ap, &err);
    va_end(ap);
    if (err) {
        g_error("%s: %s", command, err->message);
    }
    return ret;
}

void launch_do(Emulator *e, const char *command, const char *arguments, ...)
{
    GError *err = NULL;
    va_list ap;

    va_start(ap, arguments);
    json_object_put(execute(e, command, arguments, ap, &err));
    va_end(ap);
    if (err) {
        g_error("%s: %s", command, err->message);
    }
}

char *launch_fails(Emulator *e, const char *command, const char *arguments, ...)
{
    GError *err = NULL;
    va_list ap;

    va_start(ap, arguments);
    json_object_put(execute(e, command, arguments, ap, &err));
    va_end(ap);
    g_assert_nonnull(err);
    const char *colon = strstr(err->message, ": ");
    char *message = g_strdup(colon ? colon + 2 : err->message);
    g_error_free(err);
    return message;
}

char *launch_hmp(Emulator *e, const char *line)
{
    GError *err = NULL;
    char *text = qmp_client_hmp(e->qmp, line, &err);

    if (!text) {
        g_error("%s: %s", line, err->message);
    }
    return text;
}

static void expect_info(Emulator *e, char at, const char *want)
{
    int64_t end = g_get_monotonic_time() + TIMEOUT_US;

    for (;;) {
        g_autofree char *text = launch_hmp(e, "info network");
        char *cut = at ? strrchr(text, at) : NULL;
        if (cut) {
            *cut = '\0';
        }
        if (!strcmp(text, want)) {
            return;
        }
        if (g_get_monotonic_time() > end) {
            g_assert_cmpstr(text, ==, want);
        }
        g_usleep(1000);
    }
}

void launch_expect_info(Emulator *e, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    g_autofree char *want = g_strdup_vprintf(format, ap);
    va_end(ap);
    expect_info(e, '\0', want);
}

void launch_expect_info_cut(Emulator *e, char at, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    g_autofree char *want = g_strdup_vprintf(format, ap);
    va_end(ap);
    expect_info(e, at, want);
}

json_object *launch_wait_event(Emulator *e, const char *name)
{
    GError *err = NULL;
    json_object *event = qmp_client_wait_event(e->qmp, name, TIMEOUT_MS, &err);

    if (!event) {
        g_error("%s: %s", name, err->message);
    }
    json_object *data = json_object_get(launch_member(event, "data"));
    json_object_put(event);
    return data;
}

/* The "query-migrate" of a migration that has ended as @status; json_object_put. */
static json_object *wait_migration(Emulator *e, const char *wanted)
{
    int64_t end = g_get_monotonic_time() + TIMEOUT_US;

    for (;;) {
        json_object *info = launch_qmp(e, "query-migrate", NULL);
        const char *status = launch_string(info, "status");

        if (!g_strcmp0(status, wanted)) {
            return info;
        }
        if (!g_strcmp0(status, "completed") || !g_strcmp0(status, "failed") ||
            g_get_monotonic_time() > end) {
            g_error("migration is %s, not %s: %s", status, wanted,
                    json_object_to_json_string(info));
        }
        json_object_put(info);
        g_usleep(1000);
    }
}

void launch_wait_migrated(Emulator *e)
{
    json_object_put(wait_migration(e, "completed"));
}

char *launch_wait_migration_failed(Emulator *e)
{
    json_object *info = wait_migration(e, "failed");
    char *message = g_strdup(launch_string(info, "error-desc"));

    json_object_put(info);
    return message;
}
