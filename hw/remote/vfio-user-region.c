/*
 * Regions: BARs 0 to 5, expansion ROM, configuration space (VFIO's numbering).
 *
 * Registers cannot be mapped: each access means something, so it comes as a message, and
 * notifications without one through the eventfds of VFIO_USER_DEVICE_GET_REGION_IO_FDS.  The
 * expansion ROM never changes: it is offered as a sealed file too, with a sparse-mmap capability.
 *
 * The pending bits of MSI-X are the client's view of what we hold back (vfio-user-irq.c), not the
 * device's own, which on this machine is never masked.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hw/virtio/virtio-pci.h"
#include "vfio-user-internal.h"

static void append(VfioUserReply *reply, const void *data, size_t size)
{
    g_byte_array_append(reply->data, data, (guint)size);
}

PciBar *vfio_user_region_bar(VfioUserServer *server, uint32_t index)
{
    if (index > VFIO_PCI_ROM_REGION_INDEX || !server->pci->bars[index].region) {
        return NULL;
    }
    return &server->pci->bars[index];
}

static uint64_t region_size(VfioUserServer *server, uint32_t index)
{
    PciBar *bar = vfio_user_region_bar(server, index);

    if (index == VFIO_PCI_CONFIG_REGION_INDEX) {
        return server->pci->config_size;
    }
    return bar ? bar->size : 0;
}

/* --- information --- */

/* The ROM as a file that nobody can change; -1: it is none of whole pages, or cannot be made. */
static int rom_file(VfioUserServer *server)
{
    PCIDevice *pci = server->pci;
    size_t size = pci->rom ? (size_t)pci->rom_region.size : 0;
    int fd;

    if (server->rom_fd >= 0 || size == 0 || size % SERVER_PAGE_SIZE) {
        return server->rom_fd;
    }
    fd = memfd_create("swnic-rom", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 &&
        (pwrite(fd, pci->rom, size, 0) != (ssize_t)size ||
         fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))) {
        close(fd);
        fd = -1;
    }
    server->rom_fd = fd;
    return fd;
}

/* One area: the whole region. */
typedef struct SparseCapability {
    struct vfio_region_info_cap_sparse_mmap head;
    struct vfio_region_sparse_mmap_area area;
} SparseCapability;

/* The ROM's reply: with its capability where the client left room, else what that needs. */
static void append_rom_info(VfioUserReply *reply, struct vfio_region_info *info, uint32_t argsz,
                            int fd)
{
    const SparseCapability sparse = {
        .head = {.header = {.id = VFIO_REGION_INFO_CAP_SPARSE_MMAP, .version = 1}, .nr_areas = 1},
        .area = {.offset = 0, .size = info->size},
    };

    info->flags |= VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS;
    info->argsz = sizeof(*info) + sizeof(sparse);
    if (argsz < info->argsz) {
        append(reply, info, sizeof(*info));
        return;
    }
    info->cap_offset = sizeof(*info);
    append(reply, info, sizeof(*info));
    append(reply, &sparse, sizeof(sparse));
    reply->fds[reply->nfds++] = fd;
}

int vfio_user_get_region_info(VfioUserServer *server, VfioUserMessage *message,
                              VfioUserReply *reply)
{
    struct vfio_region_info info;
    uint32_t argsz;
    int fd = -1;

    memcpy(&info, message->payload, sizeof(info));
    argsz = info.argsz;
    if (argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_REGIONS) {
        return EINVAL;
    }
    info = (struct vfio_region_info){
        .argsz = sizeof(info),
        .index = info.index,
        .size = region_size(server, info.index),
    };
    if (info.size && info.index == VFIO_PCI_ROM_REGION_INDEX) {
        info.flags = VFIO_REGION_INFO_FLAG_READ;
        fd = rom_file(server);
    } else if (info.size) {
        info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    }
    if (fd >= 0) {
        append_rom_info(reply, &info, argsz, fd);
    } else {
        append(reply, &info, sizeof(info));
    }
    return 0;
}

/* --- eventfds --- */

/* Where @target lies within @region; false: elsewhere. */
static bool region_offset(const IoRegion *region, const IoRegion *target, uint64_t *offset)
{
    if (region == target) {
        return true;
    }
    for (guint i = 0; region->children && i < region->children->len; i++) {
        const IoChild *child = &g_array_index(region->children, IoChild, i);

        if (region_offset(child->region, target, offset)) {
            *offset += child->offset;
            return true;
        }
    }
    return false;
}

typedef struct IoFdCollector {
    const PciBar *bar;
    VfioUserReply *reply;
    unsigned max_fds;
    GArray *entries; /* VfioUserIoEventfd */
} IoFdCollector;

static void collect_io_fd(IoRegion *region, const IoEventfd *eventfd, void *opaque)
{
    IoFdCollector *collector = opaque;
    VfioUserReply *reply = collector->reply;
    bool pio = collector->bar->type & PCI_BASE_ADDRESS_SPACE_IO;
    uint64_t offset = eventfd->offset;
    unsigned slot = 0;

    if (!region_offset(collector->bar->region, region, &offset)) {
        return;
    }
    while (slot < reply->nfds && reply->fds[slot] != eventfd->notifier->fd) {
        slot++;
    }
    if (slot == reply->nfds) {
        if (slot == collector->max_fds) {
            return; /* queues beyond what the client takes are notified by messages */
        }
        reply->fds[reply->nfds++] = eventfd->notifier->fd;
    }
    const VfioUserIoEventfd entry = {
        .offset = offset,
        .size = eventfd->size,
        .fd_index = slot,
        .type = VFIO_USER_IO_FD_TYPE_IOEVENTFD,
        .flags = (eventfd->match ? VFIO_USER_IOEVENTFD_DATAMATCH : 0) |
                 (pio ? VFIO_USER_IOEVENTFD_PIO : 0),
        .datamatch = eventfd->data,
    };
    g_array_append_val(collector->entries, entry);
}

int vfio_user_get_region_io_fds(VfioUserServer *server, VfioUserMessage *message,
                                VfioUserReply *reply)
{
    VfioUserRegionIoFds request;
    g_autoptr(GArray) entries = g_array_new(FALSE, FALSE, sizeof(VfioUserIoEventfd));
    IoFdCollector collector = {
        .reply = reply, .max_fds = MIN(server->peer_max_fds, MESSAGE_MAX_FDS), .entries = entries};
    uint32_t argsz;

    memcpy(&request, message->payload, sizeof(request));
    argsz = request.argsz;
    if (argsz < sizeof(request) || request.flags || request.count ||
        request.index >= VFIO_PCI_NUM_REGIONS) {
        return EINVAL;
    }
    collector.bar = vfio_user_region_bar(server, request.index);
    if (collector.bar && IS_VIRTIO_PCI(server->pci)) {
        virtio_pci_foreach_host_notifier(VIRTIO_PCI(server->pci), collect_io_fd, &collector);
    }
    request.argsz = (uint32_t)(sizeof(request) + entries->len * sizeof(VfioUserIoEventfd));
    if (argsz < request.argsz) { /* only how much is needed */
        reply->nfds = 0;
        append(reply, &request, sizeof(request));
        return 0;
    }
    request.count = entries->len;
    append(reply, &request, sizeof(request));
    append(reply, entries->data, entries->len * sizeof(VfioUserIoEventfd));
    return 0;
}

/* --- accesses --- */

/* The widest aligned access of 1, 2, 4 or 8 bytes at @offset within @left. */
static unsigned access_width(uint64_t offset, uint64_t left, unsigned max)
{
    unsigned width = max;

    while (width > 1 && (offset % width || left < width)) {
        width /= 2;
    }
    return width;
}

/* False when [offset, offset+count) is not within the region, or there is none. */
static bool region_check(VfioUserServer *server, uint32_t index, uint64_t offset, uint32_t count)
{
    uint64_t size = region_size(server, index);

    return size && offset <= size && count <= size - offset;
}

static bool is_pending_bits(VfioUserServer *server, uint32_t index, uint64_t offset)
{
    const PCIDevice *pci = server->pci;
    uint32_t pba;

    if (!msix_present(pci)) {
        return false;
    }
    pba = pci_get_long(pci->config + pci->msix.cap + PCI_MSIX_PBA);
    return index == (pba & PCI_MSIX_PBA_BIR) &&
           offset - (pba & PCI_MSIX_PBA_OFFSET) < pci->msix.pba_region.size;
}

static uint64_t read_pending_bits(VfioUserServer *server, uint64_t offset, unsigned width)
{
    const PCIDevice *pci = server->pci;
    uint32_t pba = pci_get_long(pci->config + pci->msix.cap + PCI_MSIX_PBA) & PCI_MSIX_PBA_OFFSET;
    uint64_t value = 0;

    for (unsigned i = 0; i < width; i++) {
        unsigned first = (unsigned)(offset - pba + i) * 8;

        value |= (uint64_t)vfio_user_irq_pending_byte(server, first) << (8 * i);
    }
    return value;
}

static uint64_t read_once(VfioUserServer *server, uint32_t index, uint64_t offset, unsigned width)
{
    PciBar *bar = vfio_user_region_bar(server, index);

    if (!bar) {
        return pci_config_read(server->pci, (unsigned)offset, width);
    }
    if (is_pending_bits(server, index, offset)) {
        return read_pending_bits(server, offset, width);
    }
    return io_region_read(bar->region, offset, width);
}

int vfio_user_region_read(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    VfioUserRegionAccess access;
    unsigned max;

    memcpy(&access, message->payload, sizeof(access));
    if (access.count > MIN(server->peer_max_xfer, SERVER_MAX_XFER) ||
        !region_check(server, access.region, access.offset, access.count)) {
        return EINVAL;
    }
    append(reply, &access, sizeof(access));
    max = access.region == VFIO_PCI_CONFIG_REGION_INDEX ? 4 : 8;
    for (uint32_t done = 0; done < access.count;) {
        unsigned width = access_width(access.offset + done, access.count - done, max);
        uint64_t value = read_once(server, access.region, access.offset + done, width);

        value = GUINT64_TO_LE(value);
        append(reply, &value, width);
        done += width;
    }
    return 0;
}

static void region_write(VfioUserServer *server, uint32_t index, uint64_t offset,
                         const uint8_t *data, uint32_t count)
{
    PciBar *bar = vfio_user_region_bar(server, index);

    for (uint32_t done = 0; done < count;) {
        unsigned width = access_width(offset + done, count - done, bar ? 8 : 4);
        uint64_t value = 0;

        memcpy(&value, data + done, width);
        value = GUINT64_FROM_LE(value);
        if (bar) {
            io_region_write(bar->region, offset + done, value, width);
        } else {
            pci_config_write(server->pci, (unsigned)(offset + done), (uint32_t)value, width);
        }
        done += width;
    }
}

int vfio_user_region_write(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    VfioUserRegionAccess access;

    memcpy(&access, message->payload, sizeof(access));
    if (access.count != message->size - sizeof(access) ||
        !region_check(server, access.region, access.offset, access.count)) {
        return EINVAL;
    }
    region_write(server, access.region, access.offset, message->payload + sizeof(access),
                 access.count);
    append(reply, &access, sizeof(access));
    return 0;
}

int vfio_user_region_write_multi(VfioUserServer *server, VfioUserMessage *message,
                                 VfioUserReply *reply)
{
    const uint8_t *from = message->payload + sizeof(VfioUserWriteMulti);
    size_t room = message->size - sizeof(VfioUserWriteMulti);
    uint64_t count, done;

    memcpy(&count, message->payload, sizeof(count));
    if (count > room / sizeof(VfioUserWrite)) {
        return EINVAL;
    }
    for (done = 0; done < count; done++) {
        VfioUserWrite write;

        memcpy(&write, from + done * sizeof(write), sizeof(write));
        if (write.count > sizeof(write.data) ||
            !region_check(server, write.region, write.offset, write.count)) {
            break; /* the reply says how many were done */
        }
        region_write(server, write.region, write.offset, write.data, write.count);
    }
    append(reply, &done, sizeof(done));
    return 0;
}
