/*
 * Entropy: the device virtio-rng (virtio 1.2, section 5.4), and the objects it draws from,
 * -object rng-random,id=… and rng-builtin.
 */
#ifndef HW_VIRTIO_VIRTIO_RNG_H
#define HW_VIRTIO_VIRTIO_RNG_H

#include <sys/types.h>

#include "hw/virtio/virtio.h"

typedef struct RngBackend RngBackend;
typedef struct RngBackendClass RngBackendClass;

/* Who waits for bytes. */
typedef struct RngListener {
    void (*ready)(void *opaque); /* main thread */
    void *opaque;
} RngListener;

struct RngBackend {
    Object parent_obj;
    unsigned users;    /* devices; it cannot be deleted as long as there are any */
    GArray *listeners; /* RngListener */
};

struct RngBackendClass {
    ObjectClass parent_class;
    /* Up to @size random bytes.  0: none now, the listeners are called when there are some.
     * -1: there will never be any. */
    ssize_t (*read)(RngBackend *rng, void *buf, size_t size);
};

QOM_DECLARE_TYPE(RngBackend, RngBackendClass, rng_backend, RNG_BACKEND)
#define TYPE_RNG_BACKEND (rng_backend_get_type())

/* As the class's read. */
ssize_t rng_backend_read(RngBackend *rng, void *buf, size_t size);
/* A device draws from it, and is called in the main thread when there are bytes again; until detach
 * with the same @opaque. */
void rng_backend_attach(RngBackend *rng, void (*ready)(void *opaque), void *opaque);
void rng_backend_detach(RngBackend *rng, void *opaque);
GType rng_builtin_get_type(void);

void rng_backend_register_types(void);
void virtio_rng_register_types(void);

#endif
