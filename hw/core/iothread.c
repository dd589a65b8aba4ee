/*
 * IOThread: an event loop in a thread of its own, for queues that should not wait for the main
 * loop.  The loop runs from complete() until the object goes; devices that use it count
 * themselves in `users`, and until they leave it cannot be deleted.
 *
 * QEMU's thread may poll its rings for a while before it sleeps.  Ours sleeps in epoll at once:
 * the properties exist for clients that read them, and only their "off" is accepted.
 */
#include "hw/core/iothread.h"

G_DEFINE_TYPE(IOThread, iothread, TYPE_OBJECT)

static gboolean no_poll_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const char *text = property_value_text(value);
    bool zero = json_object_is_type(value, json_type_int) && json_object_get_int64(value) == 0;
    if (zero || !g_strcmp0(text, "0")) {
        return TRUE;
    }
    return property_error_value(obj, prop, value, errp, "0; an iothread here does not poll");
}

static json_object *no_poll_get(Object *obj, const Property *prop)
{
    return json_object_new_int64(*PROP_FIELD(obj, prop, int64_t));
}

static json_object *no_poll_default(const Property *prop)
{
    return json_object_new_int64(0);
}

static const PropertyInfo no_poll_info = {
    .type = "int",
    .set = no_poll_set,
    .get = no_poll_get,
    .default_value = no_poll_default,
};

#define PROP_NO_POLL(n, f, desc)                                                                   \
    {                                                                                              \
        .name = n, .info = &no_poll_info, .offset = offsetof(IOThread, f),                         \
        .flags = PROP_F_RUNTIME, .description = desc                                               \
    }
static const Property iothread_props[] = {
    PROP_NO_POLL("poll-max-ns", poll_max_ns, "Longest polling time, ns; always 0"),
    PROP_NO_POLL("poll-grow", poll_grow, "Factor by which polling grows; always 0"),
    PROP_NO_POLL("poll-shrink", poll_shrink, "Divisor by which polling shrinks; always 0"),
    PROP_NO_POLL("aio-max-batch", aio_max_batch, "Largest batch of disk requests; always 0"),
    PROP_END,
};

static gboolean iothread_complete(Object *obj, GError **errp)
{
    IOThread *iothread = IOTHREAD(obj);
    g_autofree char *name = g_strdup_printf("IO %s", obj->name);
    iothread->loop = event_loop_new_thread(name, errp);
    return iothread->loop != NULL;
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
