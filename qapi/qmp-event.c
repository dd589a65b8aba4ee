/*
 * Events on their way from devices to monitors.
 *
 * A sender builds nothing but the data; here it gets its time and goes to every listener, in the
 * main thread.  A listener that cannot take an event (a client that does not read) drops and counts
 * it itself.
 *
 * Events that a guest can cause as often as it likes have a rate: the first goes at once, of those
 * that follow too soon the last is kept and sent when the time is over, as QEMU does.
 */
#include "qapi/monitor.h"

#include <string.h>

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

static void send_to_all(const char *name, json_object *event)
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

/* ---- rates ---- */

/* At most one in @interval_ns of a name, or of a name and a member of its data. */
static const struct {
    const char *name, *member;
    int64_t interval_ns;
} rates[] = {
    {"DEVICE_UNPLUG_GUEST_ERROR", "path", INT64_C(1000000000)},
};

/* An event whose next one must wait. */
typedef struct Throttle {
    char *key;          /* in @throttles */
    const char *name;   /* in @rates */
    json_object *event; /* the last that came meanwhile, or NULL */
    Timer timer;
    int64_t interval_ns;
} Throttle;

static GHashTable *throttles; /* key -> Throttle, while its timer runs */

static void throttle_free(gpointer data)
{
    Throttle *throttle = data;

    timer_del(&throttle->timer);
    json_object_put(throttle->event);
    g_free(throttle->key);
    g_free(throttle);
}

static void throttle_expired(void *opaque)
{
    Throttle *throttle = opaque;
    json_object *event = throttle->event;

    if (!event) {
        g_hash_table_remove(throttles, throttle->key);
        return;
    }
    throttle->event = NULL;
    timer_mod_ns(&throttle->timer, clock_get_ns(CLOCK_HOST) + throttle->interval_ns);
    send_to_all(throttle->name, event);
    json_object_put(event);
}

static void throttle_start(const char *name, char *key, int64_t interval_ns)
{
    Throttle *throttle = g_new0(Throttle, 1);

    throttle->name = name;
    throttle->key = key;
    throttle->interval_ns = interval_ns;
    timer_init(&throttle->timer, event_loop_main(), CLOCK_HOST, throttle_expired, throttle);
    timer_mod_ns(&throttle->timer, clock_get_ns(CLOCK_HOST) + interval_ns);
    if (!throttles) {
        throttles = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, throttle_free);
    }
    g_hash_table_insert(throttles, throttle->key, throttle);
}

static void broadcast(const char *name, json_object *event)
{
    for (size_t i = 0; i < G_N_ELEMENTS(rates); i++) {
        if (strcmp(rates[i].name, name)) {
            continue;
        }
        const char *which = json_member_string(json_member(event, "data"), rates[i].member);
        char *key = g_strdup_printf("%s %s", name, which ? which : "");
        Throttle *throttle = throttles ? g_hash_table_lookup(throttles, key) : NULL;
        if (throttle) {
            json_object_put(throttle->event);
            throttle->event = json_object_get(event);
            g_free(key);
            return;
        }
        throttle_start(rates[i].name, key, rates[i].interval_ns);
        break;
    }
    send_to_all(name, event);
}

void qmp_events_cleanup(void)
{
    g_clear_pointer(&throttles, g_hash_table_unref);
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
