/* An eventfd: set by any thread, also in a signal handler, and read by a loop. */
#ifndef UTIL_EVENT_NOTIFIER_H
#define UTIL_EVENT_NOTIFIER_H

#include <glib.h>
#include <stdbool.h>

typedef struct EventNotifier {
    int fd;
} EventNotifier;

gboolean event_notifier_init(EventNotifier *e, GError **errp); /* non-blocking, close-on-exec */
void event_notifier_init_fd(EventNotifier *e, int fd);         /* takes @fd */
void event_notifier_cleanup(EventNotifier *e);
void event_notifier_set(EventNotifier *e);
bool event_notifier_test_and_clear(EventNotifier *e); /* was it set since the last time? */

#endif
