/*
 * Trace events (-trace, -d trace): the table is in trace-events.def.  trace_NAME(...) tests one
 * flag and does nothing else while its event is off; while it is on, a line goes to the log.
 * Where <sys/sdt.h> was there at build, each is a USDT probe swnic:NAME as well.
 *
 * Any thread may trace.  Events are switched in the main thread.
 */
#ifndef UTIL_TRACE_H
#define UTIL_TRACE_H

#include <glib.h>
#include <stdbool.h>

#ifdef HAVE_SYS_SDT_H
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>
#define TRACE_PROBE(...) STAP_PROBEV(swnic, __VA_ARGS__)
#else
#define TRACE_PROBE(...) ((void)0)
#endif

typedef enum TraceEvent {
#define TRACE_EVENT(name, parameters, arguments, format, description) TRACE_##name,
#include "util/trace-events.def"
#undef TRACE_EVENT
    TRACE__MAX
} TraceEvent;

extern bool trace_on[TRACE__MAX];

/* Switches the events that @pattern (* and ? as in a shell) matches on, or off if it begins with
 * '-'.  An error if there is none. */
gboolean trace_switch(const char *pattern, GError **errp);
/* The patterns of a file, one a line; lines that begin with '#' are comments. */
gboolean trace_switch_from_file(const char *path, GError **errp);
void trace_switch_all_off(void);
/* The events with what they say, one a line; g_free it. */
char *trace_help(void);

void trace_printf(TraceEvent event, const char *fmt, ...) G_GNUC_PRINTF(2, 3) G_GNUC_NO_INLINE;

#define TRACE_UNPACK(...) __VA_ARGS__
#define TRACE_EVENT(name, parameters, arguments, format, description)                              \
    static inline void trace_##name parameters                                                     \
    {                                                                                              \
        TRACE_PROBE(name, TRACE_UNPACK arguments);                                                 \
        if (G_UNLIKELY(__atomic_load_n(&trace_on[TRACE_##name], __ATOMIC_RELAXED))) {              \
            trace_printf(TRACE_##name, format, TRACE_UNPACK arguments);                            \
        }                                                                                          \
    }
#include "util/trace-events.def"
#undef TRACE_EVENT

#endif
