/*
 * memory-backend-file: guest memory in a file, for sharing it, keeping it, or huge pages.
 *
 * mem-path names a file (made when missing, and removed again if the back end then fails), or a
 * directory, in which a nameless file is made.  An empty file grows to the size asked for; one
 * that is too small is refused rather than grown: it is somebody's data.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory-backend-internal.h"

#ifndef MADV_REMOVE
#define MADV_REMOVE 9
#endif

typedef struct MemoryBackendFile {
    MemoryBackend parent_obj;
    char *mem_path;
    bool discard_data;
    bool created; /* by us: removed again if completing fails */
} MemoryBackendFile;
typedef struct MemoryBackendFileClass {
    MemoryBackendClass parent_class;
} MemoryBackendFileClass;

G_DEFINE_TYPE(MemoryBackendFile, memory_backend_file, TYPE_MEMORY_BACKEND)

static const Property file_props[] = {
    PROP_STRING("mem-path", MemoryBackendFile, mem_path, "File, or directory for a nameless file"),
    PROP_BOOL("readonly", MemoryBackend, readonly, false, "Open the file for reading only"),
    PROP_SIZE("offset", MemoryBackend, offset, 0, "Where the memory begins in the file, bytes"),
    PROP_SIZE("align", MemoryBackend, align, 0, "Alignment of the host address; a power of two"),
    PROP_BOOL("discard-data", MemoryBackendFile, discard_data, false,
              "Throw the contents away when the back end goes"),
    PROP_ABSENT("pmem", "persistent memory is not supported"),
    PROP_END,
};

/* A file without a name in directory @path; -1 with errno. */
static int open_in_directory(const char *path)
{
    g_autofree char *name = g_strdup_printf("%s/swnic-ram.XXXXXX", path);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) {
        unlink(name);
    }
    return fd;
}

static int file_open_fd(MemoryBackendFile *file)
{
    if (file->parent_obj.readonly) {
        return open(file->mem_path, O_RDONLY | O_CLOEXEC);
    }
    /* Two tries: the file may come or go between the two ways of opening it. */
    for (unsigned i = 0; i < 2; i++) {
        int fd = open(file->mem_path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            return fd;
        }
        if (errno == EISDIR) {
            return open_in_directory(file->mem_path);
        }
        if (errno != ENOENT) {
            return -1;
        }
        fd = open(file->mem_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0) {
            file->created = true;
            return fd;
        }
        if (errno != EEXIST) {
            return -1;
        }
    }
    return -1;
}

/* Size of the open file, bytes; -1 with errno when it is nothing to map. */
static int64_t file_size(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return -1;
    }
    if (S_ISREG(st.st_mode)) {
        return st.st_size;
    }
    if (S_ISBLK(st.st_mode)) {
        return lseek(fd, 0, SEEK_END);
    }
    errno = S_ISDIR(st.st_mode) ? EISDIR : ENODEV;
    return -1;
}

/* Checks the file against what is asked for; makes an empty one large enough. */
static gboolean file_fit(MemoryBackendFile *file, GError **errp)
{
    MemoryBackend *backend = &file->parent_obj;
    int64_t have = file_size(backend->fd);
    if (have < 0) {
        return error_set_errno(errp, errno, "Memory backend '%s': cannot use mem-path '%s'",
                               OBJECT(backend)->name, file->mem_path);
    }
    uint64_t need = backend->offset + backend->size;
    if (need < backend->size || need > INT64_MAX) {
        return error_set(errp,
                         "Memory backend '%s': offset 0x%" PRIx64 " and size 0x%" PRIx64
                         " are too large for a file",
                         OBJECT(backend)->name, backend->offset, backend->size);
    }
    if (have == 0 && !backend->readonly) {
        if (ftruncate(backend->fd, (off_t)need) < 0) {
            return error_set_errno(errp, errno,
                                   "Memory backend '%s': cannot make '%s' 0x%" PRIx64 " bytes",
                                   OBJECT(backend)->name, file->mem_path, need);
        }
        return TRUE;
    }
    if ((uint64_t)have < need) {
        return error_set(errp,
                         "Memory backend '%s': backing store size 0x%" PRIx64
                         " of '%s' does not match 'size' option 0x%" PRIx64
                         " (allowed: a file of offset + size or more bytes, or an empty one)",
                         OBJECT(backend)->name, (uint64_t)have, file->mem_path, backend->size);
    }
    return TRUE;
}

static gboolean file_open(MemoryBackend *backend, GError **errp)
{
    MemoryBackendFile *file = (MemoryBackendFile *)backend;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const char *name = OBJECT(backend)->name;
    if (!file->mem_path || !*file->mem_path) {
        return error_set(errp, "Memory backend '%s': mem-path property not set", name);
    }
    if (backend->offset % page) {
        return error_set(
            errp, "Memory backend '%s': offset=0x%" PRIx64 " (allowed: multiples of 0x%" PRIx64 ")",
            name, backend->offset, page);
    }
    if (backend->align & (backend->align - 1)) {
        return error_set(errp, "Memory backend '%s': align=0x%" PRIx64 " (allowed: powers of two)",
                         name, backend->align);
    }
    backend->fd = file_open_fd(file);
    if (backend->fd < 0) {
        return error_set_errno(errp, errno,
                               "Memory backend '%s': can't open backing store '%s' for guest RAM",
                               name, file->mem_path);
    }
    return file_fit(file, errp);
}

static void memory_backend_file_finalize(GObject *obj)
{
    MemoryBackendFile *file = (MemoryBackendFile *)obj;
    MemoryBackend *backend = &file->parent_obj;
    if (file->created && !OBJECT(obj)->completed) {
        unlink(file->mem_path);
    }
    if (file->discard_data && backend->host && backend->share && !backend->readonly) {
        madvise(backend->host, backend->map_size, MADV_REMOVE);
    }
    G_OBJECT_CLASS(memory_backend_file_parent_class)->finalize(obj);
}

static void memory_backend_file_class_init(MemoryBackendFileClass *klass)
{
    ObjectClass *oc = &klass->parent_class.parent_class;
    klass->parent_class.open = file_open;
    oc->qom_name = "memory-backend-file";
    oc->description = "Guest memory in a file";
    oc->user_creatable = true;
    qom_class_set_props(klass, file_props);
    G_OBJECT_CLASS(klass)->finalize = memory_backend_file_finalize;
}

static void memory_backend_file_init(MemoryBackendFile *file) {}
