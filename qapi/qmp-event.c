/*
 * Events on their way from devices to monitors.
 *
 * A sender builds nothing but the data; here it gets its time and goes to every listener, in the
 * main thread.  Nothing waits and nothing is kept: a listener that cannot take an event (a client
 * that does not read) drops and counts it itself.
 */
#include "qapi/monitor.h"

#include "util/event-loop.h"
#include "util/json.h"

typedef struct Listener {
    QmpEventFunc *fn;
    void *opaque;
} Listener;

/* An event from another thread, waiting for the main one. */
typedef struct PendingEvent {
    char *name;
    json_object *event;
} PendingEvent;

static GSList *listeners; /* of Listener; changed and walked by the main thread only */
static GThread *main_thread;
static gint listener_count; /* atomic: any thread asks whether an event is worth making */

void qmp_event_listen(QmpEventFunc *fn, void *opaque)
{
    Listener *listener = g_new0(Listener, 1);

    listener->fn = fn;
    listener->opaque = opaque;
    main_thread = g_thread_self();
    listeners = g_slist_append(listeners, listener);
    g_atomic_int_inc(&listener_count);
}

void qmp_event_unlisten(QmpEventFunc *fn, void *opaque)
{
    for (GSList *l = listeners; l; l = l->next) {
        Listener *listener = l->data;

        if (listener->fn == fn && listener->opaque == opaque) {
            listeners = g_slist_delete_link(listeners, l);
            g_free(listener);
            g_atomic_int_add(&listener_count, -1);
            return;
        }
    }
}

static void broadcast(const char *name, json_object *event)
{
    GSList *copy = g_slist_copy(listeners);

    for (GSList *l = copy; l; l = l->next) {
        Listener *listener = l->data;

        if (g_slist_find(listeners, listener)) { /* an earlier one may have removed it */
            listener->fn(listener->opaque, name, event);
        }
    }
    g_slist_free(copy);
}

static void pending_broadcast(void *opaque)
{
    PendingEvent *pending = opaque;

    broadcast(pending->name, pending->event);
    json_object_put(pending->event);
    g_free(pending->name);
    g_free(pending);
}

void qmp_emit_event(const char *name, json_object *data)
{
    json_object *event, *timestamp;
    PendingEvent *pending;
    gint64 now;

    if (!g_atomic_int_get(&listener_count)) {
        json_object_put(data);
        return;
    }
    now = g_get_real_time();
    timestamp = json_object_new_object();
    json_put_int(timestamp, "seconds", now / G_USEC_PER_SEC);
    json_put_int(timestamp, "microseconds", now % G_USEC_PER_SEC);
    event = json_object_new_object();
    json_object_object_add(event, "timestamp", timestamp);
    json_put_string(event, "event", name);
    if (data) {
        json_object_object_add(event, "data", data);
    }
    if (g_thread_self() == main_thread) {
        broadcast(name, event);
        json_object_put(event);
        return;
    }
    pending = g_new0(PendingEvent, 1);
    pending->name = g_strdup(name);
    pending->event = event;
    event_loop_oneshot(event_loop_main(), pending_broadcast, pending);
}
