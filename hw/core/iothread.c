/*
 * IOThread: an event loop in a thread of its own, for queues that should not wait for the main
 * loop.  The loop runs from complete() until the object goes; devices that use it count
 * themselves in `users`, and until they leave it cannot be deleted.
 *
 * poll-max-ns, poll-grow and poll-shrink say how long the loop looks for events before it sleeps
 * (util/busy-poll.c); they can be set while it runs.  There are no disk requests to make batches
 * of: aio-max-batch exists for clients that read it.
 */
#include "hw/core/iothread.h"

#define POLL_LONGEST_NS 1000000000 /* so that nobody who waits for the thread waits longer */

G_DEFINE_TYPE(IOThread, iothread, TYPE_OBJECT)

static void apply_poll(IOThread *iothread)
{
    EventLoopPoll poll = {iothread->poll_max_ns, iothread->poll_grow, iothread->poll_shrink};
    event_loop_set_poll(iothread->loop, &poll);
}

static gboolean poll_changed(Object *obj, const Property *prop, GError **errp)
{
    apply_poll(IOTHREAD(obj));
    return TRUE;
}

static gboolean no_batch_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const char *text = property_value_text(value);
    bool zero = json_object_is_type(value, json_type_int) && json_object_get_int64(value) == 0;
    if (zero || !g_strcmp0(text, "0")) {
        return TRUE;
    }
    return property_error_value(obj, prop, value, errp, "0; there are no disks here");
}

static json_object *no_batch_get(Object *obj, const Property *prop)
{
    return json_object_new_int64(*PROP_FIELD(obj, prop, int64_t));
}

static json_object *no_batch_default(const Property *prop)
{
    return json_object_new_int64(0);
}

static const PropertyInfo no_batch_info = {
    .type = "int",
    .set = no_batch_set,
    .get = no_batch_get,
    .default_value = no_batch_default,
};

#define PROP_POLL(n, f, default_ns, limit, desc)                                                   \
    PROP_INT64(n, IOThread, f, default_ns, desc, .flags = PROP_F_RUNTIME, .min = 0,                \
               .max = (limit), .changed = poll_changed)
static const Property iothread_props[] = {
    PROP_POLL("poll-max-ns", poll_max_ns, EVENT_LOOP_POLL_MAX_NS, POLL_LONGEST_NS,
              "Longest look for events before sleeping, ns; 0: none"),
    PROP_POLL("poll-grow", poll_grow, 0, INT64_MAX,
              "Factor by which looks get longer when waits are short; 0: 2"),
    PROP_POLL("poll-shrink", poll_shrink, 0, INT64_MAX,
              "Divisor by which they get shorter when waits are long; 0: to nothing"),
    {
        .name = "aio-max-batch",
        .info = &no_batch_info,
        .flags = PROP_F_RUNTIME,
        .offset = offsetof(IOThread, aio_max_batch),
        .description = "Largest batch of disk requests; always 0",
    },
    PROP_END,
};

static gboolean iothread_complete(Object *obj, GError **errp)
{
    IOThread *iothread = IOTHREAD(obj);
    g_autofree char *name = g_strdup_printf("IO %s", obj->name);
    iothread->loop = event_loop_new_thread(name, errp);
    if (!iothread->loop) {
        return FALSE;
    }
    apply_poll(iothread);
    return TRUE;
}

static bool iothread_can_be_deleted(Object *obj)
{
    return IOTHREAD(obj)->users == 0;
}

static void iothread_finalize(GObject *obj)
{
    IOThread *iothread = IOTHREAD(obj);
    if (iothread->loop) {
        event_loop_free(iothread->loop);
    }
    G_OBJECT_CLASS(iothread_parent_class)->finalize(obj);
}

static void iothread_class_init(IOThreadClass *klass)
{
    ObjectClass *oc = &klass->parent_class;
    oc->qom_name = "iothread";
    oc->description = "A thread that serves queues of devices";
    oc->user_creatable = true;
    oc->complete = iothread_complete;
    oc->can_be_deleted = iothread_can_be_deleted;
    qom_class_set_props(klass, iothread_props);
    G_OBJECT_CLASS(klass)->finalize = iothread_finalize;
}

static void iothread_init(IOThread *iothread) {}

void iothread_register_types(void)
{
    qom_register_type(TYPE_IOTHREAD);
}
