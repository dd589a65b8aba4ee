/* Trace events: which of the table's are on, and their lines in the log. */
#include "util/trace.h"

#include <stdarg.h>
#include <string.h>

#include "util/error.h"
#include "util/log.h"

static const struct {
    const char *name, *help;
} events[TRACE__MAX] = {
#define TRACE_EVENT(name, parameters, arguments, format, description)                              \
    [TRACE_##name] = {#name, description},
#include "util/trace-events.def"
#undef TRACE_EVENT
};

bool trace_on[TRACE__MAX];

gboolean trace_switch(const char *pattern, GError **errp)
{
    bool on = pattern[0] != '-', found = false;

    pattern += !on;
    for (unsigned i = 0; i < TRACE__MAX; i++) {
        if (g_pattern_match_simple(pattern, events[i].name)) {
            __atomic_store_n(&trace_on[i], on, __ATOMIC_RELAXED);
            found = true;
        }
    }
    return found ||
           error_set(errp, "trace event '%s' does not exist (-trace help lists them)", pattern);
}

gboolean trace_switch_from_file(const char *path, GError **errp)
{
    g_autofree char *text = NULL;
    GError *err = NULL;

    if (!g_file_get_contents(path, &text, NULL, &err)) {
        error_set(errp, "cannot read trace events: %s", err->message);
        g_error_free(err);
        return FALSE;
    }
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        g_strstrip(*line);
        if (**line && **line != '#' && !trace_switch(*line, errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

void trace_switch_all_off(void)
{
    trace_switch("-*", NULL);
}

char *trace_help(void)
{
    GString *out = g_string_new(NULL);

    for (unsigned i = 0; i < TRACE__MAX; i++) {
        g_string_append_printf(out, "%-30s %s\n", events[i].name, events[i].help);
    }
    return g_string_free(out, FALSE);
}

void trace_printf(TraceEvent event, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    log_printf("%s %s", events[event].name, text);
}
