/* Errors for people: GErrors of one domain, and one-line reports on standard error. */
#include "util/error.h"

#include <stdarg.h>
#include <stdio.h>

G_DEFINE_QUARK(swnic - error, swnic_error)

static const char *program_name = "swnic-system-x86_64";
/* Set while the command line is read, before there are threads. */
static gboolean timestamps, guest_names;
static char *guest; /* its name, or NULL */

G_GNUC_PRINTF(3, 0)
static void error_set_valist(GError **errp, SwnicErrorClass cls, const char *fmt, va_list ap)
{
    if (errp) {
        g_return_if_fail(*errp == NULL);
        *errp = g_error_new_valist(SWNIC_ERROR, cls, fmt, ap);
    }
}

gboolean error_set(GError **errp, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    error_set_valist(errp, ERROR_GENERIC, fmt, ap);
    va_end(ap);
    return FALSE;
}

gboolean error_set_class(GError **errp, SwnicErrorClass cls, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    error_set_valist(errp, cls, fmt, ap);
    va_end(ap);
    return FALSE;
}

gboolean error_set_errno(GError **errp, int errnum, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    return error_set(errp, "%s: %s", text, g_strerror(errnum));
}

void error_set_program_name(const char *argv0)
{
    static char *name;

    g_free(name);
    name = g_path_get_basename(argv0);
    program_name = name;
    swnic_error_quark(); /* made before there are threads that could make it twice */
}

void error_set_timestamps(gboolean on)
{
    timestamps = on;
}

void error_set_guest_names(gboolean on)
{
    guest_names = on;
}

void error_set_guest(const char *name)
{
    g_free(guest);
    guest = g_strdup(name);
}

char *error_time_prefix(void)
{
    if (!timestamps) {
        return g_strdup("");
    }
    g_autoptr(GDateTime) now = g_date_time_new_now_utc();
    g_autofree char *seconds = g_date_time_format(now, "%Y-%m-%dT%H:%M:%S");
    return g_strdup_printf("%s.%06dZ ", seconds, g_date_time_get_microsecond(now));
}

G_GNUC_PRINTF(2, 0)
static void report(const char *prefix, const char *fmt, va_list ap)
{
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    g_autofree char *time = error_time_prefix();

    /* One write, so that lines of several threads or processes do not mix. */
    gboolean named = guest_names && guest;
    fprintf(stderr, "%s%s%s%s: %s%s\n", time, named ? guest : "", named ? " " : "", program_name,
            prefix, text);
}

void error_report(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    report("", fmt, ap);
    va_end(ap);
}

void warn_report(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    report("warning: ", fmt, ap);
    va_end(ap);
}

void error_report_and_free(GError *err)
{
    error_report("%s", err ? err->message : "unknown error");
    g_clear_error(&err);
}
