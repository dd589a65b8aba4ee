/*
 * Logging (-d, -D) and rate-limited guest error reports.  What a guest does wrong is logged
 * once per second and place at most, so that it cannot fill a disk.  Any thread, except where a
 * file or items are set.
 */
#ifndef UTIL_LOG_H
#define UTIL_LOG_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum LogItem {
    LOG_GUEST_ERROR = 1 << 0,
    LOG_UNIMP = 1 << 1,
    LOG_TRACE = 1 << 2,
} LogItem;

extern unsigned log_mask; /* items enabled */

gboolean log_set_items(const char *list, GError **errp); /* "guest_errors,trace" */
char *log_items_help(void); /* the items with what they log, one a line; g_free */
gboolean log_set_file(const char *path, GError **errp);
void log_printf(const char *fmt, ...) G_GNUC_PRINTF(1, 2); /* one line; the end is added */

typedef struct LogRate {
    int64_t last_ns;
    unsigned suppressed;
} LogRate;
/* May this place log now?  *suppressed: how many times it might not since the last time. */
bool log_rate_ok(LogRate *rate, unsigned *suppressed);

/* Logs a guest's mistake: one line a second and place; how many were left out is said. */
#define guest_error(...)                                                                           \
    do {                                                                                           \
        if (log_mask & LOG_GUEST_ERROR) {                                                          \
            static LogRate rate_;                                                                  \
            unsigned left_out_;                                                                    \
            if (log_rate_ok(&rate_, &left_out_)) {                                                 \
                log_printf(__VA_ARGS__);                                                           \
                if (left_out_) {                                                                   \
                    log_printf("(%u more like this)", left_out_);                                  \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#endif
