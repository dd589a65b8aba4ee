/*
 * virtio-rng: the driver posts writable buffers, the device fills them with random bytes (virtio
 * 1.2, section 5.4).
 *
 * A buffer gets what the back end has at the moment, one byte or more.  When it has nothing, or
 * when max-bytes of the current period are spent, buffers stay in the ring until the back end or
 * the period's timer says that it goes on.  Main thread.
 *
 * A migration does not carry how much of a period is spent (the format has no place for it): the
 * destination begins a new one.
 */
#include <sys/uio.h>

#include "hw/virtio/virtio-pci.h"
#include "hw/virtio/virtio-rng.h"
#include "hw/virtio/virtio-vmstate.h"
#include "util/iov.h"
#include "util/log.h"

#define QUEUE_SIZE       8
#define CHUNK            4096  /* bytes that one buffer gets at most */
#define BURST            64    /* buffers filled in one go, before others have their turn */
#define PERIOD_DEFAULT   65536 /* ms */
#define NS_PER_MS        1000000
#define LEGACY_DEVICE_ID 0x1005 /* virtio 1.2, 4.1.2.1 */
#define CLASS_OTHERS     0x00ff

typedef struct VirtioRng {
    VirtIODevice parent_obj;
    RngBackend *rng;    /* the user's, or NULL */
    uint64_t max_bytes; /* a period */
    uint32_t period_ms;
    RngBackend *source;  /* in use */
    RngBackend *builtin; /* our own, where the user named none */
    VirtQueue *vq;
    BottomHalf *more;
    Timer timer;
    bool running;
    bool timer_armed;
    uint64_t quota; /* bytes left in this period */
} VirtioRng;

typedef struct VirtioRngClass {
    VirtIODeviceClass parent_class;
} VirtioRngClass;

QOM_DECLARE_TYPE(VirtioRng, VirtioRngClass, virtio_rng, VIRTIO_RNG)
G_DEFINE_TYPE(VirtioRng, virtio_rng, TYPE_VIRTIO_DEVICE)

/* The first bytes of a period start its clock. */
static void period_begin(VirtioRng *rng)
{
    if (!rng->timer_armed && rng->max_bytes != INT64_MAX) {
        rng->timer_armed = true;
        timer_mod_ns(&rng->timer,
                     clock_get_ns(CLOCK_VIRTUAL) + (int64_t)rng->period_ms * NS_PER_MS);
    }
}

/* Bytes for @elem; 0: later. */
static size_t element_fill(VirtioRng *rng, VirtQueueElement *elem)
{
    uint8_t bytes[CHUNK];
    size_t want = MIN(MIN(elem->in_size, sizeof(bytes)), rng->quota);
    ssize_t got;

    period_begin(rng);
    got = want ? rng_backend_read(rng->source, bytes, want) : 0;
    if (got <= 0) {
        return 0;
    }
    iov_from_buf(virtqueue_in_sg(elem), elem->in_num, 0, bytes, (size_t)got);
    if (rng->max_bytes != INT64_MAX) {
        rng->quota -= (uint64_t)got;
    }
    return (size_t)got;
}

/* One buffer; false: there is none, or nothing to fill it with. */
static bool serve_one(VirtioRng *rng)
{
    VirtQueueElement *elem;
    size_t len = 0;

    if (!virtqueue_pop_batch(rng->vq, &elem, 1)) {
        return false;
    }
    if (elem->in_size) {
        len = element_fill(rng, elem);
        if (!len) {
            virtqueue_unpop(rng->vq, elem);
            return false;
        }
    } else {
        guest_error("virtio-rng: a buffer that cannot be written");
    }
    virtqueue_fill(rng->vq, elem, (uint32_t)len, 0);
    virtqueue_flush(rng->vq, 1);
    virtio_notify(&rng->parent_obj, rng->vq);
    return true;
}

static void serve(void *opaque)
{
    VirtioRng *rng = opaque;

    for (unsigned i = 0; rng->running && i < BURST; i++) {
        if (!serve_one(rng)) {
            return;
        }
    }
    if (rng->running) {
        bh_schedule(rng->more);
    }
}

static void rng_handler(VirtIODevice *vdev, VirtQueue *vq)
{
    (void)vq;
    serve(VIRTIO_RNG(vdev));
}

static void period_ended(void *opaque)
{
    VirtioRng *rng = opaque;

    rng->timer_armed = false;
    rng->quota = rng->max_bytes;
    serve(rng);
}

static void rng_set_running(VirtIODevice *vdev, bool running)
{
    VirtioRng *rng = VIRTIO_RNG(vdev);

    rng->running = running;
    if (running) {
        bh_schedule(rng->more);
    } else {
        bh_cancel(rng->more);
    }
}

static void rng_queue_enabled(VirtIODevice *vdev, unsigned index)
{
    (void)index;
    bh_schedule(VIRTIO_RNG(vdev)->more);
}

static gboolean rng_check(VirtioRng *rng, GError **errp)
{
    if (rng->period_ms == 0) {
        return error_set(errp, "'period' parameter expects a positive integer");
    }
    if (rng->max_bytes > INT64_MAX) {
        return error_set(errp, "'max-bytes' parameter must be non-negative, and less than 2^63");
    }
    return TRUE;
}

static gboolean rng_realize(VirtIODevice *vdev, GError **errp)
{
    VirtioRng *rng = VIRTIO_RNG(vdev);

    if (!rng_check(rng, errp)) {
        return FALSE;
    }
    if (!rng->rng) {
        rng->builtin = RNG_BACKEND(object_new(rng_builtin_get_type()));
    }
    rng->source = rng->rng ? rng->rng : rng->builtin;
    rng_backend_attach(rng->source, serve, rng);
    rng->quota = rng->max_bytes;
    rng->vq = virtio_add_queue(vdev, QUEUE_SIZE, rng_handler);
    rng->more = bh_new(event_loop_main(), serve, rng);
    timer_init(&rng->timer, event_loop_main(), CLOCK_VIRTUAL, period_ended, rng);
    return TRUE;
}

static void rng_unrealize(VirtIODevice *vdev)
{
    VirtioRng *rng = VIRTIO_RNG(vdev);

    timer_del(&rng->timer);
    rng->timer_armed = false;
    g_clear_pointer(&rng->more, bh_delete);
    rng_backend_detach(rng->source, rng);
    virtio_del_queue(vdev, 0);
    g_clear_object(&rng->builtin);
    rng->source = NULL;
}

/* --- migration --- */

static void rng_saved_prepare(void *state, void *opaque)
{
    virtio_saved_prepare(state, opaque);
}

static void rng_saved_fill(void *state, void *opaque)
{
    virtio_saved_fill(state, opaque);
}

static gboolean rng_saved_check(void *state, void *opaque, GError **errp)
{
    return virtio_saved_check(state, opaque, errp);
}

static void rng_saved_apply(void *state, void *opaque)
{
    virtio_saved_apply(state, opaque);
}

static const VMStateDescription vmstate_virtio_rng = {
    .name = "virtio-rng",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(VirtioSaved),
    .prepare = rng_saved_prepare,
    .fill = rng_saved_fill,
    .check = rng_saved_check,
    .apply = rng_saved_apply,
    .fields =
        (const VMStateField[]){
            VMS_PART("virtio-head", vmstate_virtio_head),
            VMS_PART("virtio", vmstate_virtio),
            VMS_END,
        },
};

/* --- the class --- */

static const Property virtio_rng_props[] = {
    PROP_LINK("rng", VirtioRng, rng, "rng-backend",
              "Where the bytes come from; by default, the "
              "kernel"),
    PROP_UINT64("max-bytes", VirtioRng, max_bytes, INT64_MAX, "Bytes in a period, at most"),
    PROP_UINT32("period", VirtioRng, period_ms, PERIOD_DEFAULT, "Length of the period, ms"),
    PROP_END,
};

static void virtio_rng_init(VirtioRng *rng)
{
    (void)rng;
}

static void virtio_rng_class_init(VirtioRngClass *klass)
{
    ObjectClass *object_class = (ObjectClass *)klass;
    VirtIODeviceClass *virtio_class = &klass->parent_class;

    object_class->qom_name = "virtio-rng-device";
    object_class->description = "Virtio entropy device";
    qom_class_set_props(klass, virtio_rng_props);
    ((DeviceClass *)klass)->vmsd = &vmstate_virtio_rng;
    virtio_class->device_id = VIRTIO_ID_RNG;
    virtio_class->realize = rng_realize;
    virtio_class->unrealize = rng_unrealize;
    virtio_class->set_running = rng_set_running;
    virtio_class->queue_enabled = rng_queue_enabled;
}

void virtio_rng_register_types(void)
{
    static const VirtIOPCITypeInfo pci_info = {
        .base_name = "virtio-rng-pci",
        .transitional_name = "virtio-rng-pci-transitional",
        .non_transitional_name = "virtio-rng-pci-non-transitional",
        .backend_type = virtio_rng_get_type,
        .legacy_device_id = LEGACY_DEVICE_ID,
        .class_id = CLASS_OTHERS,
        .category = CATEGORY_MISC,
        .description = "Virtio entropy device",
    };

    rng_backend_register_types();
    qom_register_type(virtio_rng_get_type());
    virtio_pci_register_types(&pci_info);
}
