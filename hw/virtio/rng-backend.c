/*
 * Where random bytes come from: rng-builtin asks the kernel, rng-random reads a file (by default
 * /dev/urandom).  A file that has nothing now (a pipe, a device) is watched, and the devices that
 * wait are told.  Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "hw/virtio/virtio-rng.h"
#include "util/log.h"

G_DEFINE_ABSTRACT_TYPE(RngBackend, rng_backend, TYPE_OBJECT)

ssize_t rng_backend_read(RngBackend *rng, void *buf, size_t size)
{
    return RNG_BACKEND_GET_CLASS(rng)->read(rng, buf, size);
}

void rng_backend_attach(RngBackend *rng, void (*ready)(void *opaque), void *opaque)
{
    RngListener listener = {ready, opaque};

    g_array_append_val(rng->listeners, listener);
    rng->users++;
}

void rng_backend_detach(RngBackend *rng, void *opaque)
{
    for (guint i = 0; i < rng->listeners->len; i++) {
        if (g_array_index(rng->listeners, RngListener, i).opaque == opaque) {
            g_array_remove_index(rng->listeners, i);
            rng->users--;
            return;
        }
    }
}

static bool rng_backend_can_be_deleted(Object *obj)
{
    return RNG_BACKEND(obj)->users == 0;
}

static void rng_backend_finalize(GObject *obj)
{
    g_array_unref(RNG_BACKEND(obj)->listeners);
    G_OBJECT_CLASS(rng_backend_parent_class)->finalize(obj);
}

static void rng_backend_init(RngBackend *rng)
{
    rng->listeners = g_array_new(FALSE, FALSE, sizeof(RngListener));
}

static void rng_backend_class_init(RngBackendClass *klass)
{
    klass->parent_class.qom_name = "rng-backend";
    klass->parent_class.can_be_deleted = rng_backend_can_be_deleted;
    G_OBJECT_CLASS(klass)->finalize = rng_backend_finalize;
}

/* --- rng-builtin --- */

typedef struct RngBuiltin {
    RngBackend parent_obj;
} RngBuiltin;
typedef struct RngBuiltinClass {
    RngBackendClass parent_class;
} RngBuiltinClass;

G_DEFINE_TYPE(RngBuiltin, rng_builtin, TYPE_RNG_BACKEND)

static ssize_t rng_builtin_read(RngBackend *rng, void *buf, size_t size)
{
    (void)rng;
    /* At most 256 bytes: those come whole, without an interruption (getrandom(2)). */
    return getrandom(buf, MIN(size, 256), 0);
}

static void rng_builtin_init(RngBuiltin *rng)
{
    (void)rng;
}

static void rng_builtin_class_init(RngBuiltinClass *klass)
{
    ObjectClass *object_class = (ObjectClass *)klass;

    object_class->qom_name = "rng-builtin";
    object_class->description = "Random bytes of the kernel";
    object_class->user_creatable = true;
    klass->parent_class.read = rng_builtin_read;
}

/* --- rng-random --- */

typedef struct RngRandom {
    RngBackend parent_obj;
    char *filename;
    int fd;
    bool watched;
} RngRandom;
typedef struct RngRandomClass {
    RngBackendClass parent_class;
} RngRandomClass;

static GType rng_random_get_type(void);
G_DEFINE_TYPE(RngRandom, rng_random, TYPE_RNG_BACKEND)

static void rng_random_watch(RngRandom *rng, bool watch);

static void rng_random_readable(void *opaque)
{
    RngRandom *rng = opaque;
    GArray *listeners = rng->parent_obj.listeners;

    rng_random_watch(rng, false);
    for (guint i = 0; i < listeners->len; i++) {
        RngListener *listener = &g_array_index(listeners, RngListener, i);

        listener->ready(listener->opaque);
    }
}

static void rng_random_watch(RngRandom *rng, bool watch)
{
    if (rng->watched != watch) {
        rng->watched = watch;
        event_loop_set_fd_handler(event_loop_main(), rng->fd, watch ? rng_random_readable : NULL,
                                  NULL, watch ? rng : NULL);
    }
}

static ssize_t rng_random_read(RngBackend *backend, void *buf, size_t size)
{
    RngRandom *rng = (RngRandom *)backend;
    ssize_t got;

    do {
        got = read(rng->fd, buf, size);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        return got;
    }
    if (got < 0 && errno == EAGAIN) {
        rng_random_watch(rng, true);
        return 0;
    }
    return -1; /* the file has ended */
}

static gboolean rng_random_complete(Object *obj, GError **errp)
{
    RngRandom *rng = (RngRandom *)obj;
    const char *filename = rng->filename ? rng->filename : "/dev/urandom";

    rng->fd = open(filename, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (rng->fd < 0) {
        return error_set(errp, "Could not open '%s': %s", filename, g_strerror(errno));
    }
    return TRUE;
}

static void rng_random_finalize(GObject *obj)
{
    RngRandom *rng = (RngRandom *)obj;

    if (rng->fd >= 0) {
        rng_random_watch(rng, false);
        close(rng->fd);
    }
    G_OBJECT_CLASS(rng_random_parent_class)->finalize(obj);
}

static const Property rng_random_props[] = {
    PROP_STRING("filename", RngRandom, filename, "File to read, by default /dev/urandom"),
    PROP_END,
};

static void rng_random_init(RngRandom *rng)
{
    rng->fd = -1;
}

static void rng_random_class_init(RngRandomClass *klass)
{
    ObjectClass *object_class = (ObjectClass *)klass;

    object_class->qom_name = "rng-random";
    object_class->description = "Random bytes from a file";
    object_class->user_creatable = true;
    object_class->complete = rng_random_complete;
    qom_class_set_props(klass, rng_random_props);
    G_OBJECT_CLASS(klass)->finalize = rng_random_finalize;
    klass->parent_class.read = rng_random_read;
}

void rng_backend_register_types(void)
{
    qom_register_type(TYPE_RNG_BACKEND);
    qom_register_type(rng_builtin_get_type());
    qom_register_type(rng_random_get_type());
}
