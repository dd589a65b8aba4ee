/*
 * The client's memory: DMA regions, with an fd (mapped here) or without (reached by messages).
 *
 * The regions that are mapped make the device's MemoryMap; each change replaces it whole, and
 * dma_space_set_map() drains the device in between, so that when an unmap is answered nothing
 * touches the region any more.  A region that may be written but not read is not mapped, fd or
 * not, because a mapping could not refuse the read; it is reached by messages like one without an
 * fd (vfio-user-dma-message.c).
 *
 * The client's file may have larger pages than ours (hugetlbfs): the mapping then begins and ends
 * at those, and is larger than the region.  If its owner truncates it: vfio-user-sigbus.c.
 */
#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "vfio-user-internal.h"

guint vfio_user_dma_position(VfioUserServer *server, uint64_t address)
{
    guint low = 0;
    guint high = server->dma->len;

    while (low < high) {
        guint middle = (low + high) / 2;
        VfioUserDma *region = vfio_user_dma_at(server, middle);

        if (region->address + (region->size - 1) < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void region_free(VfioUserDma *region)
{
    if (region->mapping) {
        sigbus_guard_remove(region->mapping);
        munmap(region->mapping, region->mapping_size);
    }
    if (region->fd >= 0) {
        close(region->fd);
    }
    g_free(region);
}

/* A map of the regions as they are now. */
static MemoryMap *map_build(VfioUserServer *server)
{
    g_autofree MemoryRange *ranges = g_new0(MemoryRange, server->dma->len + 1);
    unsigned count = 0;
    g_autoptr(GError) err = NULL;

    for (guint i = 0; i < server->dma->len; i++) {
        VfioUserDma *region = vfio_user_dma_at(server, i);

        if (region->host && !__atomic_load_n(&region->dead, __ATOMIC_ACQUIRE)) {
            ranges[count++] = (MemoryRange){
                .addr = region->address,
                .size = region->size,
                .host = region->host,
                .fd = region->fd,
                .offset = region->offset,
                .flags = region->flags & VFIO_USER_DMA_WRITABLE ? 0 : MEMORY_READONLY,
            };
        }
    }
    MemoryMap *map = memory_map_new(ranges, count, &err);

    if (!map) { /* cannot be: overlaps and wraps were refused */
        warn_report("vfio-user: %s", err->message);
        map = memory_map_new(NULL, 0, NULL);
    }
    return map;
}

/* When this returns, the device touches what the regions are now and nothing else. */
static void map_update(VfioUserServer *server)
{
    DeviceState *dev = DEVICE(server->pci);

    if (!dev->realized) {
        return; /* nothing runs, and its view of memory is gone */
    }
    MemoryMap *map = map_build(server);

    device_drain_begin(dev);
    vfio_user_log_resize(server);
    dma_space_set_map(&server->pci->dma, map);
    device_drain_end(dev);
    memory_map_unref(map);
}

/* --- mapping --- */

/* Bytes that offsets into @fd must be multiples of. */
static uint64_t file_page_size(int fd)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC && fs.f_bsize > SERVER_PAGE_SIZE) {
        return (uint64_t)fs.f_bsize;
    }
    return SERVER_PAGE_SIZE;
}

static int region_mmap(VfioUserServer *server, VfioUserDma *region)
{
    int prot = PROT_READ | (region->flags & VFIO_USER_DMA_WRITABLE ? PROT_WRITE : 0);
    uint64_t page = file_page_size(region->fd);
    uint64_t before = region->offset & (page - 1);
    uint64_t size = (before + region->size + page - 1) & ~(page - 1);
    struct stat st;
    void *mapping;

    if (fstat(region->fd, &st) < 0) {
        return errno;
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size < region->offset + region->size) {
        return EINVAL; /* the file ends before the region does */
    }
    mapping = mmap(NULL, size, prot, MAP_SHARED | MAP_NORESERVE, region->fd,
                   (off_t)(region->offset - before));
    if (mapping == MAP_FAILED) {
        return errno;
    }
    region->mapping = mapping;
    region->mapping_size = size;
    region->host = (uint8_t *)mapping + before;
    return sigbus_guard_add(mapping, size, &region->dead, &server->dead_notifier) ? 0 : ENOSPC;
}

static int request_check(const VfioUserDmaMap *request, const VfioUserMessage *message)
{
    const uint32_t known = VFIO_USER_DMA_READABLE | VFIO_USER_DMA_WRITABLE;
    uint64_t aligned = request->address | request->size | (message->nfds ? request->offset : 0);

    if (request->argsz < sizeof(*request) || message->nfds > 1 || request->flags & ~known ||
        request->size == 0 || aligned % SERVER_PAGE_SIZE) {
        return EINVAL;
    }
    /* The last page of 64 bits is left out: the end of a region is a number too. */
    if (request->address + request->size < request->address ||
        request->offset + request->size < request->offset) {
        return EINVAL;
    }
    return 0;
}

int vfio_user_dma_map(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    VfioUserDmaMap request;
    VfioUserDma *region, *next;
    guint position;
    int result;

    memcpy(&request, message->payload, sizeof(request));
    result = request_check(&request, message);
    if (result) {
        return result;
    }
    position = vfio_user_dma_position(server, request.address);
    next = vfio_user_dma_at(server, position);
    if (next && next->address < request.address + request.size) {
        return EEXIST;
    }
    if (server->dma->len >= SERVER_MAX_DMA_MAPS) {
        return ENOSPC;
    }
    region = g_new0(VfioUserDma, 1);
    region->address = request.address;
    region->size = request.size;
    region->offset = request.offset;
    region->flags = request.flags;
    region->fd = vfio_user_message_take_fd(message, 0);
    if (region->fd >= 0 && region->flags & VFIO_USER_DMA_READABLE) {
        result = region_mmap(server, region);
    }
    if (result) {
        region_free(region);
        return result;
    }
    g_array_insert_val(server->dma, position, region);
    map_update(server);
    return 0;
}

int vfio_user_dma_unmap(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    VfioUserDmaUnmap request;

    memcpy(&request, message->payload, sizeof(request));
    if (request.argsz < sizeof(request) || request.flags & ~VFIO_DMA_UNMAP_FLAG_ALL ||
        message->nfds) {
        return EINVAL;
    }
    if (request.flags & VFIO_DMA_UNMAP_FLAG_ALL) {
        if (request.address || request.size) {
            return EINVAL;
        }
        vfio_user_dma_release(server);
    } else {
        guint position = vfio_user_dma_position(server, request.address);
        VfioUserDma *region = vfio_user_dma_at(server, position);

        if (!region || region->address != request.address || region->size != request.size) {
            return ENOENT;
        }
        g_array_remove_index(server->dma, position);
        map_update(server); /* from here on nobody touches it */
        region_free(region);
    }
    request.argsz = sizeof(request);
    g_byte_array_append(reply->data, (guint8 *)&request, sizeof(request));
    return 0;
}

void vfio_user_dma_release(VfioUserServer *server)
{
    GArray *old = server->dma;

    if (!old->len) {
        return;
    }
    server->dma = g_array_new(FALSE, FALSE, sizeof(VfioUserDma *));
    map_update(server);
    for (guint i = 0; i < old->len; i++) {
        region_free(g_array_index(old, VfioUserDma *, i));
    }
    g_array_unref(old);
}

/* --- life --- */

static void regions_died(void *opaque)
{
    VfioUserServer *server = opaque;

    if (!event_notifier_test_and_clear(&server->dead_notifier)) {
        return;
    }
    warn_report("vfio-user: %s: the client truncated memory that it had shared: the region is gone",
                server->device_id);
    map_update(server);
}

void vfio_user_dma_init(VfioUserServer *server)
{
    server->dma = g_array_new(FALSE, FALSE, sizeof(VfioUserDma *));
    event_notifier_init(&server->dead_notifier, NULL);
    event_loop_set_fd_handler(event_loop_main(), server->dead_notifier.fd, regions_died, NULL,
                              server);
    server->pci->dma.ops = &vfio_user_dma_ops;
    server->pci->dma.opaque = server;
}

void vfio_user_dma_cleanup(VfioUserServer *server)
{
    vfio_user_dma_release(server);
    vfio_user_log_stop(server);
    server->pci->dma.ops = NULL;
    event_loop_set_fd_handler(event_loop_main(), server->dead_notifier.fd, NULL, NULL, NULL);
    event_notifier_cleanup(&server->dead_notifier);
    g_array_unref(server->dma);
    server->dma = NULL;
}
