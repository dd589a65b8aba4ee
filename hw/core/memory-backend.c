/*
 * Memory back ends: where guest RAM comes from.
 *
 * A concrete type only opens something (nothing, a memfd, a shared memory object; a file is in
 * memory-backend-file.c) and leaves a descriptor; mapping it, with everything the common
 * properties ask of the mapping, is done here, once, in complete().  Machines take the mapping
 * and its descriptor as a MemoryRange; the back end keeps both until nobody uses it.
 */
#include "hw/core/memory-backend.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hw/core/machine.h"
#include "memory-backend-internal.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14, linux/mman.h */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* --- properties and life --- */

/* KSM and huge pages are wishes: a kernel built without them says EINVAL, and RAM works. */
static void backend_advise(MemoryBackend *backend)
{
    madvise(backend->host, backend->map_size, backend->merge ? MADV_MERGEABLE : MADV_UNMERGEABLE);
    madvise(backend->host, backend->map_size, backend->dump ? MADV_DODUMP : MADV_DONTDUMP);
}

static gboolean advice_changed(Object *obj, const Property *prop, GError **errp)
{
    MemoryBackend *backend = MEMORY_BACKEND(obj);
    if (backend->host) {
        backend_advise(backend);
    }
    return TRUE;
}

static const Property memory_backend_props[] = {
    PROP_SIZE("size", MemoryBackend, size, 0, "Size of the memory region, bytes"),
    PROP_BOOL("share", MemoryBackend, share, false,
              "Mark the memory as shared: other processes can map it"),
    PROP_BOOL("prealloc", MemoryBackend, prealloc, false, "Take all pages from the host at once"),
    PROP_BOOL("merge", MemoryBackend, merge, true, "Let the host merge equal pages",
              .flags = PROP_F_RUNTIME, .changed = advice_changed),
    PROP_BOOL("dump", MemoryBackend, dump, true, "Include the memory in core dumps",
              .flags = PROP_F_RUNTIME, .changed = advice_changed),
    PROP_BOOL("reserve", MemoryBackend, reserve, true, "Reserve swap space or huge pages"),
    PROP_END,
};

G_DEFINE_ABSTRACT_TYPE(MemoryBackend, memory_backend, TYPE_OBJECT)

static void memory_backend_init(MemoryBackend *backend)
{
    backend->fd = -1;
    if (current_machine) {
        backend->merge = current_machine->mem_merge;
        backend->dump = current_machine->dump_guest_core;
    }
}

static void memory_backend_finalize(GObject *obj)
{
    MemoryBackend *backend = MEMORY_BACKEND(obj);
    if (backend->host) {
        munmap(backend->host, backend->map_size);
    }
    if (backend->fd >= 0) {
        close(backend->fd);
    }
    G_OBJECT_CLASS(memory_backend_parent_class)->finalize(obj);
}

/* --- mapping --- */

/*
 * Takes all pages now.  The kernel call reports what is missing as an error; touching the pages
 * instead would end the process with SIGBUS where huge pages or a tmpfs run out.
 */
static gboolean backend_prealloc(MemoryBackend *backend, GError **errp)
{
    int advice = backend->readonly ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    int ret;
    do {
        ret = madvise(backend->host, backend->map_size, advice);
    } while (ret < 0 && errno == EINTR);
    if (ret < 0 && errno == EINVAL && backend->fd >= 0 && !backend->readonly) {
        ret = posix_fallocate(backend->fd, (off_t)backend->offset, (off_t)backend->map_size);
        errno = ret;
    }
    if (ret != 0) {
        return error_set_errno(errp, errno,
                               "Memory backend '%s': cannot preallocate 0x%" PRIx64 " bytes",
                               OBJECT(backend)->name, backend->size);
    }
    return TRUE;
}

/* An address range of @size bytes aligned to @align; NULL with errno.  Nothing is mapped yet. */
static uint8_t *reserve_aligned(size_t size, size_t align)
{
    if (size + align < size) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *whole =
        mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) {
        return NULL;
    }
    size_t head = (align - (uintptr_t)whole % align) % align;
    if (head) {
        munmap(whole, head);
    }
    munmap(whole + head + size, align - head);
    return whole + head;
}

static gboolean backend_map(MemoryBackend *backend, GError **errp)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (backend->size > SIZE_MAX - page) {
        return error_set(errp, "Memory backend '%s': size 0x%" PRIx64 " is too large",
                         OBJECT(backend)->name, backend->size);
    }
    size_t align = MAX(backend->align, page);
    backend->map_size = (backend->size + page - 1) / page * page;
    int prot = PROT_READ | (backend->readonly ? 0 : PROT_WRITE);
    int flags = (backend->share ? MAP_SHARED : MAP_PRIVATE) |
                (backend->fd < 0 ? MAP_ANONYMOUS : 0) | (backend->reserve ? 0 : MAP_NORESERVE);
    uint8_t *at = reserve_aligned(backend->map_size, align);
    uint8_t *host = at ? mmap(at, backend->map_size, prot, flags | MAP_FIXED, backend->fd,
                              backend->fd < 0 ? 0 : (off_t)backend->offset)
                       : MAP_FAILED;
    if (host == MAP_FAILED) {
        int err = errno;
        if (at) {
            munmap(at, backend->map_size);
        }
        return error_set_errno(errp, err, "Memory backend '%s': cannot map 0x%" PRIx64 " bytes",
                               OBJECT(backend)->name, backend->size);
    }
    backend->host = host;
    madvise(host, backend->map_size, MADV_HUGEPAGE);
    backend_advise(backend);
    return TRUE;
}

static gboolean memory_backend_complete(Object *obj, GError **errp)
{
    MemoryBackend *backend = MEMORY_BACKEND(obj);
    if (backend->size == 0) {
        return error_set(errp, "Memory backend '%s': can't create backend with size 0", obj->name);
    }
    if (backend->prealloc && !backend->reserve) {
        return error_set(errp,
                         "Memory backend '%s': 'prealloc=on' and 'reserve=off' are incompatible",
                         obj->name);
    }
    if (!MEMORY_BACKEND_GET_CLASS(backend)->open(backend, errp) || !backend_map(backend, errp)) {
        return FALSE;
    }
    return !backend->prealloc || backend_prealloc(backend, errp);
}

static bool memory_backend_can_be_deleted(Object *obj)
{
    return !MEMORY_BACKEND(obj)->is_mapped;
}

static void memory_backend_class_init(MemoryBackendClass *klass)
{
    ObjectClass *oc = &klass->parent_class;
    oc->qom_name = "memory-backend";
    oc->complete = memory_backend_complete;
    oc->can_be_deleted = memory_backend_can_be_deleted;
    qom_class_set_props(klass, memory_backend_props);
    G_OBJECT_CLASS(klass)->finalize = memory_backend_finalize;
}

/* --- memory-backend-memfd --- */

typedef struct MemoryBackendMemfd {
    MemoryBackend parent_obj;
    bool hugetlb, seal;
    uint64_t hugetlbsize;
} MemoryBackendMemfd;
typedef struct MemoryBackendMemfdClass {
    MemoryBackendClass parent_class;
} MemoryBackendMemfdClass;

static GType memory_backend_memfd_get_type(void);
G_DEFINE_TYPE(MemoryBackendMemfd, memory_backend_memfd, TYPE_MEMORY_BACKEND)

static const Property memfd_props[] = {
    PROP_BOOL("share", MemoryBackend, share, true,
              "Mark the memory as shared: other processes can map it"),
    PROP_BOOL("hugetlb", MemoryBackendMemfd, hugetlb, false, "Use huge pages"),
    PROP_SIZE("hugetlbsize", MemoryBackendMemfd, hugetlbsize, 0,
              "Size of a huge page, bytes; 0: the host's default"),
    PROP_BOOL("seal", MemoryBackendMemfd, seal, true, "Seal growing and shrinking of the memory"),
    PROP_END,
};

static gboolean size_set_on_fd(MemoryBackend *backend, GError **errp)
{
    if (backend->size > INT64_MAX || ftruncate(backend->fd, (off_t)backend->size) < 0) {
        return error_set_errno(errp, backend->size > INT64_MAX ? EFBIG : errno,
                               "Memory backend '%s': cannot make it 0x%" PRIx64 " bytes",
                               OBJECT(backend)->name, backend->size);
    }
    return TRUE;
}

/* A memfd of the back end's size with @flags beside MFD_CLOEXEC. */
static gboolean memfd_open_with(MemoryBackend *backend, unsigned flags, GError **errp)
{
    backend->fd = memfd_create(OBJECT(backend)->name, MFD_CLOEXEC | flags);
    if (backend->fd < 0) {
        return error_set_errno(errp, errno, "Memory backend '%s': cannot create a memfd",
                               OBJECT(backend)->name);
    }
    return size_set_on_fd(backend, errp);
}

static gboolean memfd_open(MemoryBackend *backend, GError **errp)
{
    MemoryBackendMemfd *memfd = (MemoryBackendMemfd *)backend;
    uint64_t huge = memfd->hugetlbsize;
    if (huge && (!memfd->hugetlb || (huge & (huge - 1)))) {
        return error_set(errp,
                         "Memory backend '%s': hugetlbsize=0x%" PRIx64
                         " (allowed: a power of two, with hugetlb=on)",
                         OBJECT(backend)->name, huge);
    }
    unsigned flags = memfd->seal ? MFD_ALLOW_SEALING : 0;
    if (memfd->hugetlb) {
        flags |= MFD_HUGETLB;
        flags |= huge ? (unsigned)g_bit_nth_lsf(huge, -1) << MFD_HUGE_SHIFT : 0;
    }
    if (!memfd_open_with(backend, flags, errp)) {
        return FALSE;
    }
    /* A peer that got the fd must not be able to pull pages from under us (SIGBUS). */
    if (memfd->seal &&
        fcntl(backend->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
        return error_set_errno(errp, errno, "Memory backend '%s': cannot seal the memfd",
                               OBJECT(backend)->name);
    }
    return TRUE;
}

static void memory_backend_memfd_class_init(MemoryBackendMemfdClass *klass)
{
    klass->parent_class.open = memfd_open;
    klass->parent_class.parent_class.qom_name = "memory-backend-memfd";
    klass->parent_class.parent_class.description = "Guest memory in a memfd";
    klass->parent_class.parent_class.user_creatable = true;
    qom_class_set_props(klass, memfd_props);
}

static void memory_backend_memfd_init(MemoryBackendMemfd *memfd) {}

/* --- memory-backend-ram --- */

typedef struct MemoryBackendRam {
    MemoryBackend parent_obj;
} MemoryBackendRam;
typedef struct MemoryBackendRamClass {
    MemoryBackendClass parent_class;
} MemoryBackendRamClass;

G_DEFINE_TYPE(MemoryBackendRam, memory_backend_ram, TYPE_MEMORY_BACKEND)

/* Shared memory needs a descriptor to be shared by: vhost-user and vfio-user pass it on. */
static gboolean ram_open(MemoryBackend *backend, GError **errp)
{
    return !backend->share || memfd_open_with(backend, 0, errp);
}

static void memory_backend_ram_class_init(MemoryBackendRamClass *klass)
{
    klass->parent_class.open = ram_open;
    klass->parent_class.parent_class.qom_name = "memory-backend-ram";
    klass->parent_class.parent_class.description = "Anonymous guest memory";
    klass->parent_class.parent_class.user_creatable = true;
}

static void memory_backend_ram_init(MemoryBackendRam *ram) {}

/* --- memory-backend-shm --- */

typedef struct MemoryBackendShm {
    MemoryBackend parent_obj;
} MemoryBackendShm;
typedef struct MemoryBackendShmClass {
    MemoryBackendClass parent_class;
} MemoryBackendShmClass;

static GType memory_backend_shm_get_type(void);
G_DEFINE_TYPE(MemoryBackendShm, memory_backend_shm, TYPE_MEMORY_BACKEND)

static const Property shm_props[] = {
    PROP_BOOL("share", MemoryBackend, share, true, "Always on: the memory is shared"),
    PROP_END,
};

static gboolean shm_open_backend(MemoryBackend *backend, GError **errp)
{
    if (!backend->share) {
        return error_set(errp,
                         "Memory backend '%s': memory-backend-shm cannot be private "
                         "(allowed: share=on)",
                         OBJECT(backend)->name);
    }
    g_autofree char *name = g_strdup_printf("/swnic-%d-%08x", (int)getpid(), g_random_int());
    backend->fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (backend->fd < 0) {
        return error_set_errno(errp, errno, "Memory backend '%s': cannot create shared memory",
                               OBJECT(backend)->name);
    }
    /* The descriptor is its only name from now on, so nothing stays behind. */
    shm_unlink(name);
    return size_set_on_fd(backend, errp);
}

static void memory_backend_shm_class_init(MemoryBackendShmClass *klass)
{
    klass->parent_class.open = shm_open_backend;
    klass->parent_class.parent_class.qom_name = "memory-backend-shm";
    klass->parent_class.parent_class.description = "Guest memory in POSIX shared memory";
    klass->parent_class.parent_class.user_creatable = true;
    qom_class_set_props(klass, shm_props);
}

static void memory_backend_shm_init(MemoryBackendShm *shm) {}

void memory_backend_register_types(void)
{
    qom_register_type(TYPE_MEMORY_BACKEND);
    qom_register_type(memory_backend_file_get_type());
    qom_register_type(memory_backend_memfd_get_type());
    qom_register_type(memory_backend_ram_get_type());
    qom_register_type(memory_backend_shm_get_type());
}
