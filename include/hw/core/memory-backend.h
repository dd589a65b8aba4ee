/* Memory back ends: -object memory-backend-ram|file|memfd|shm.  Main thread. */
#ifndef HW_CORE_MEMORY_BACKEND_H
#define HW_CORE_MEMORY_BACKEND_H

#include "hw/core/memory-map.h"
#include "qom/object.h"

typedef struct MemoryBackend MemoryBackend;
typedef struct MemoryBackendClass MemoryBackendClass;

struct MemoryBackend {
    Object parent_obj;
    uint64_t size;
    bool share, prealloc, merge, dump, reserve, readonly;
    uint64_t offset; /* of the mapping in @fd */
    uint64_t align;  /* of the host address; 0: a page */
    size_t map_size; /* bytes mapped at @host: @size in whole pages */
    uint8_t *host;   /* mapped by complete() */
    int fd;          /* -1: anonymous */
    bool is_mapped;  /* in use by a machine: cannot be deleted or used twice */
};

struct MemoryBackendClass {
    ObjectClass parent_class;
    /* Opens what is to be mapped; sets fd (or leaves -1). */
    gboolean (*open)(MemoryBackend *backend, GError **errp);
};

QOM_DECLARE_TYPE(MemoryBackend, MemoryBackendClass, memory_backend, MEMORY_BACKEND)
#define TYPE_MEMORY_BACKEND (memory_backend_get_type())

void memory_backend_register_types(void);

#endif
