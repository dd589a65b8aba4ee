/*
 * Logging: items switched on by -d, written to -D's file or standard error, one line a call.
 * Any thread.
 */
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/clock.h"
#include "util/error.h"
#include "util/trace.h"

#define RATE_INTERVAL_NS INT64_C(1000000000)

static const struct {
    const char *name;
    unsigned mask;
    const char *help;
} log_items[] = {
    {"guest_errors", LOG_GUEST_ERROR,
     "what a guest does wrong, at most one line a second and place"},
    {"unimp", LOG_UNIMP, "what a guest uses that is not there"},
    {"trace", LOG_TRACE, "trace events; trace:PATTERN: those that -trace help lists"},
};

unsigned log_mask;

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *log_file; /* NULL: standard error */

char *log_items_help(void)
{
    GString *out = g_string_new(NULL);

    for (size_t i = 0; i < G_N_ELEMENTS(log_items); i++) {
        g_string_append_printf(out, "%-15s %s\n", log_items[i].name, log_items[i].help);
    }
    return g_string_free(out, FALSE);
}

gboolean log_set_items(const char *list, GError **errp)
{
    g_auto(GStrv) names = g_strsplit(list, ",", -1);
    unsigned mask = 0;

    for (char **name = names; *name; name++) {
        unsigned found = 0;
        if (g_str_has_prefix(*name, "trace:")) {
            if (!trace_switch(*name + strlen("trace:"), errp)) {
                return FALSE;
            }
            mask |= LOG_TRACE;
            continue;
        }
        for (size_t i = 0; i < G_N_ELEMENTS(log_items); i++) {
            if (!strcmp(*name, log_items[i].name) || !strcmp(*name, "all")) {
                found |= log_items[i].mask;
            }
        }
        if (!found && **name && strcmp(*name, "none")) {
            return error_set(errp,
                             "Unknown log item '%s'; it is one of guest_errors, unimp, trace, "
                             "all, none",
                             *name);
        }
        if (found & LOG_TRACE) {
            trace_switch("*", NULL);
        } else if (!strcmp(*name, "none")) {
            trace_switch_all_off();
        }
        mask |= found;
    }
    log_mask = mask;
    return TRUE;
}

gboolean log_set_file(const char *path, GError **errp)
{
    FILE *file = fopen(path, "we");

    if (!file) {
        return error_set_errno(errp, errno, "cannot write log file '%s'", path);
    }
    setvbuf(file, NULL, _IOLBF, 0);
    pthread_mutex_lock(&log_lock);
    if (log_file) {
        fclose(log_file);
    }
    log_file = file;
    pthread_mutex_unlock(&log_lock);
    return TRUE;
}

void log_printf(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_strchomp(text);
    g_autofree char *time = error_time_prefix();
    pthread_mutex_lock(&log_lock);
    fprintf(log_file ? log_file : stderr, "%s%s\n", time, text);
    pthread_mutex_unlock(&log_lock);
}

bool log_rate_ok(LogRate *rate, unsigned *suppressed)
{
    int64_t now = clock_get_ns(CLOCK_HOST);

    pthread_mutex_lock(&log_lock);
    bool ok = !rate->last_ns || now - rate->last_ns >= RATE_INTERVAL_NS;
    if (ok) {
        rate->last_ns = now;
        *suppressed = rate->suppressed;
        rate->suppressed = 0;
    } else {
        rate->suppressed++;
    }
    pthread_mutex_unlock(&log_lock);
    return ok;
}
