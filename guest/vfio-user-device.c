/*
 * Commands of a vfio-user client: see vfio-user-device.h.
 *
 * Replies come from another process: sizes and counts in them are checked before use.
 */
#include "guest/vfio-user-device.h"
#include <errno.h>
#include <gio/gio.h>
#include <string.h>
#include <unistd.h>

#define REGION_REPLY_MAX 4096
#define IO_FDS_REPLY_MAX 65536

/* A request whose reply must be no error and have at least @min bytes. */
static bool ask(VfioUserClient *client, uint16_t command, const void *payload, size_t size,
                const int *fds, unsigned nfds, size_t min, VfioUserAnswer *answer, GError **errp)
{
    if (!vfio_user_client_request(client, command, payload, size, fds, nfds, answer, errp)) {
        return false;
    }
    if (answer->error) {
        bool unknown = answer->error == ENOTTY || answer->error == EOPNOTSUPP;
        g_set_error(errp, G_IO_ERROR,
                    unknown ? G_IO_ERROR_NOT_SUPPORTED : g_io_error_from_errno(answer->error),
                    "vfio-user command %u: %s", command, g_strerror(answer->error));
    } else if (answer->size < min) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
                    "vfio-user command %u: a reply of %zu bytes, %zu are the least", command,
                    answer->size, min);
    } else {
        return true;
    }
    vfio_user_answer_clear(answer);
    return false;
}

/* The same for commands whose reply says nothing. */
static bool tell(VfioUserClient *client, uint16_t command, const void *payload, size_t size,
                 const int *fds, unsigned nfds, GError **errp)
{
    VfioUserAnswer answer;
    bool ok = ask(client, command, payload, size, fds, nfds, 0, &answer, errp);
    if (ok) {
        vfio_user_answer_clear(&answer);
    }
    return ok;
}

/* The same for a reply that is @reply, of @reply_size bytes. */
static bool exchange(VfioUserClient *client, uint16_t command, const void *payload, size_t size,
                     void *reply, size_t reply_size, GError **errp)
{
    VfioUserAnswer answer;
    if (!ask(client, command, payload, size, NULL, 0, reply_size, &answer, errp)) {
        return false;
    }
    memcpy(reply, answer.data, reply_size);
    vfio_user_answer_clear(&answer);
    return true;
}

/* --- information --- */

bool vfio_user_client_device_info(VfioUserClient *client, struct vfio_device_info *info,
                                  GError **errp)
{
    const size_t size = 16; /* up to num_irqs: what the protocol has of it */
    memset(info, 0, sizeof(*info));
    info->argsz = (uint32_t)size;
    return exchange(client, VFIO_USER_DEVICE_GET_INFO, info, size, info, size, errp);
}

/* Notes the sparse-mmap capability, if the chain has one. */
static void parse_capabilities(VfioUserRegion *region, const VfioUserAnswer *answer)
{
    uint32_t offset = region->info.flags & VFIO_REGION_INFO_FLAG_CAPS ? region->info.cap_offset : 0;
    for (unsigned i = 0; offset && i < 16; i++) {
        struct vfio_region_info_cap_sparse_mmap cap;
        if (offset > answer->size || answer->size - offset < sizeof(struct vfio_info_cap_header)) {
            return;
        }
        memcpy(&cap, answer->data + offset, sizeof(struct vfio_info_cap_header));
        if (cap.header.id == VFIO_REGION_INFO_CAP_SPARSE_MMAP &&
            answer->size - offset >= sizeof(cap) + sizeof(region->area)) {
            memcpy(&cap, answer->data + offset, sizeof(cap));
            region->areas = cap.nr_areas;
            memcpy(&region->area, answer->data + offset + sizeof(cap), sizeof(region->area));
        }
        offset = cap.header.next;
    }
}

bool vfio_user_client_region(VfioUserClient *client, uint32_t index, VfioUserRegion *region,
                             GError **errp)
{
    struct vfio_region_info request = {.argsz = REGION_REPLY_MAX, .index = index};
    VfioUserAnswer answer;
    memset(region, 0, sizeof(*region));
    region->fd = -1;
    if (!ask(client, VFIO_USER_DEVICE_GET_REGION_INFO, &request, sizeof(request), NULL, 0,
             sizeof(request), &answer, errp)) {
        return false;
    }
    memcpy(&region->info, answer.data, sizeof(region->info));
    parse_capabilities(region, &answer);
    if (answer.nfds) {
        region->fd = answer.fds[0];
        answer.fds[0] = -1;
    }
    vfio_user_answer_clear(&answer);
    return true;
}

bool vfio_user_client_irq_info(VfioUserClient *client, uint32_t index, struct vfio_irq_info *info,
                               GError **errp)
{
    *info = (struct vfio_irq_info){.argsz = sizeof(*info), .index = index};
    return exchange(client, VFIO_USER_DEVICE_GET_IRQ_INFO, info, sizeof(*info), info, sizeof(*info),
                    errp);
}

/* --- regions --- */

bool vfio_user_client_read(VfioUserClient *client, uint32_t region, uint64_t offset, void *data,
                           uint32_t count, GError **errp)
{
    VfioUserRegionAccess request = {.offset = offset, .region = region, .count = count};
    VfioUserAnswer answer;
    if (!ask(client, VFIO_USER_REGION_READ, &request, sizeof(request), NULL, 0,
             sizeof(request) + count, &answer, errp)) {
        return false;
    }
    memcpy(data, answer.data + sizeof(request), count);
    vfio_user_answer_clear(&answer);
    return true;
}

static VfioUserRegionAccess *write_request(uint32_t region, uint64_t offset, const void *data,
                                           uint32_t count)
{
    VfioUserRegionAccess *request = g_malloc(sizeof(*request) + count);
    *request = (VfioUserRegionAccess){.offset = offset, .region = region, .count = count};
    memcpy(request->data, data, count);
    return request;
}

bool vfio_user_client_write(VfioUserClient *client, uint32_t region, uint64_t offset,
                            const void *data, uint32_t count, GError **errp)
{
    g_autofree VfioUserRegionAccess *request = write_request(region, offset, data, count);
    return tell(client, VFIO_USER_REGION_WRITE, request, sizeof(*request) + count, NULL, 0, errp);
}

bool vfio_user_client_post_write(VfioUserClient *client, uint32_t region, uint64_t offset,
                                 const void *data, uint32_t count, GError **errp)
{
    g_autofree VfioUserRegionAccess *request = write_request(region, offset, data, count);
    return vfio_user_client_post(client, VFIO_USER_REGION_WRITE, request, sizeof(*request) + count,
                                 errp);
}

bool vfio_user_client_write_multi(VfioUserClient *client, const VfioUserWrite *writes,
                                  uint64_t count, uint64_t *done, GError **errp)
{
    size_t size = sizeof(VfioUserWriteMulti) + count * sizeof(*writes);
    g_autofree VfioUserWriteMulti *request = g_malloc(size);
    request->count = count;
    memcpy(request->writes, writes, count * sizeof(*writes));
    return exchange(client, VFIO_USER_REGION_WRITE_MULTI, request, size, done, sizeof(*done), errp);
}

/* --- memory --- */

bool vfio_user_client_map(VfioUserClient *client, uint64_t addr, uint64_t size, uint32_t flags,
                          int fd, uint64_t offset, GError **errp)
{
    VfioUserDmaMap request = {
        .argsz = sizeof(request), .flags = flags, .offset = offset, .address = addr, .size = size};
    return tell(client, VFIO_USER_DMA_MAP, &request, sizeof(request), &fd, fd >= 0 ? 1 : 0, errp);
}

bool vfio_user_client_unmap(VfioUserClient *client, uint64_t addr, uint64_t size, GError **errp)
{
    VfioUserDmaUnmap request = {.argsz = sizeof(request), .address = addr, .size = size};
    return exchange(client, VFIO_USER_DMA_UNMAP, &request, sizeof(request), &request,
                    sizeof(request), errp);
}

/* --- interrupts and notifications --- */

bool vfio_user_client_set_irqs(VfioUserClient *client, uint32_t index, uint32_t flags,
                               uint32_t start, uint32_t count, const uint8_t *bools, const int *fds,
                               unsigned nfds, GError **errp)
{
    const size_t head = offsetof(struct vfio_irq_set, data);
    size_t size = head + (bools ? count : 0);
    g_autofree struct vfio_irq_set *request = g_malloc0(size);
    request->argsz = (uint32_t)size;
    request->flags = flags;
    request->index = index;
    request->start = start;
    request->count = count;
    if (bools) {
        memcpy(request->data, bools, count);
    }
    return tell(client, VFIO_USER_DEVICE_SET_IRQS, request, size, fds, nfds, errp);
}

bool vfio_user_client_io_fds(VfioUserClient *client, uint32_t region, VfioUserIoFds *io_fds,
                             GError **errp)
{
    VfioUserRegionIoFds request = {.argsz = IO_FDS_REPLY_MAX, .index = region};
    VfioUserAnswer answer;
    memset(io_fds, 0, sizeof(*io_fds));
    if (!ask(client, VFIO_USER_DEVICE_GET_REGION_IO_FDS, &request, sizeof(request), NULL, 0,
             sizeof(request), &answer, errp)) {
        return false;
    }
    memcpy(&request, answer.data, sizeof(request));
    size_t room = (answer.size - sizeof(request)) / sizeof(VfioUserIoEventfd);
    io_fds->count = (unsigned)MIN(request.count, room);
    io_fds->entries =
        g_memdup2(answer.data + sizeof(request), io_fds->count * sizeof(VfioUserIoEventfd));
    io_fds->nfds = answer.nfds;
    memcpy(io_fds->fds, answer.fds, sizeof(io_fds->fds));
    answer.nfds = 0;
    vfio_user_answer_clear(&answer);
    return true;
}

void vfio_user_io_fds_clear(VfioUserIoFds *io_fds)
{
    for (unsigned i = 0; i < io_fds->nfds; i++) {
        close(io_fds->fds[i]);
    }
    g_free(io_fds->entries);
    memset(io_fds, 0, sizeof(*io_fds));
}

int vfio_user_io_fds_find(const VfioUserIoFds *io_fds, uint64_t offset, unsigned width,
                          uint64_t value)
{
    for (unsigned i = 0; i < io_fds->count; i++) {
        const VfioUserIoEventfd *e = &io_fds->entries[i];
        if (e->type == VFIO_USER_IO_FD_TYPE_IOEVENTFD && e->offset == offset &&
            (e->size == 0 || e->size == width) && e->fd_index < io_fds->nfds &&
            (!(e->flags & VFIO_USER_IOEVENTFD_DATAMATCH) || e->datamatch == value)) {
            return io_fds->fds[e->fd_index];
        }
    }
    return -1;
}

/* --- the device --- */

bool vfio_user_client_reset(VfioUserClient *client, GError **errp)
{
    return tell(client, VFIO_USER_DEVICE_RESET, NULL, 0, NULL, 0, errp);
}

/* LOGGING_START and LOGGING_STOP. */
static bool set_feature(VfioUserClient *client, uint32_t feature, const void *data, size_t size,
                        GError **errp)
{
    g_autofree struct vfio_device_feature *request = g_malloc0(sizeof(*request) + size);
    request->argsz = (uint32_t)(sizeof(*request) + size);
    request->flags = feature | VFIO_DEVICE_FEATURE_SET;
    if (size) {
        memcpy(request->data, data, size);
    }
    return tell(client, VFIO_USER_DEVICE_FEATURE, request, request->argsz, NULL, 0, errp);
}

bool vfio_user_client_log_start(VfioUserClient *client, GError **errp)
{
    const struct vfio_device_feature_dma_logging_control control = {.page_size = 4096};
    return set_feature(client, VFIO_DEVICE_FEATURE_DMA_LOGGING_START, &control, sizeof(control),
                       errp);
}

bool vfio_user_client_log_stop(VfioUserClient *client, GError **errp)
{
    return set_feature(client, VFIO_DEVICE_FEATURE_DMA_LOGGING_STOP, NULL, 0, errp);
}

uint64_t *vfio_user_client_log_report(VfioUserClient *client, uint64_t addr, uint64_t size,
                                      uint64_t page_size, GError **errp)
{
    /* vfio_device_feature and vfio_device_feature_dma_logging_report, the bitmap left out */
    struct {
        uint32_t argsz, flags;
        uint64_t iova, length, page_size;
    } request = {
        .flags = VFIO_DEVICE_FEATURE_DMA_LOGGING_REPORT | VFIO_DEVICE_FEATURE_GET,
        .iova = addr,
        .length = size,
        .page_size = page_size,
    };
    const size_t head = sizeof(request);
    size_t bytes = ((size + page_size - 1) / page_size + 63) / 64 * 8;
    VfioUserAnswer answer;
    request.argsz = (uint32_t)(head + bytes);
    if (!ask(client, VFIO_USER_DEVICE_FEATURE, &request, head, NULL, 0, head + bytes, &answer,
             errp)) {
        return NULL;
    }
    uint64_t *bitmap = g_memdup2(answer.data + head, bytes);
    vfio_user_answer_clear(&answer);
    return bitmap;
}

/* --- device state --- */

/* A feature's head, and the data of the two that are got here. */
typedef struct StateFeature {
    struct vfio_device_feature head;
    struct vfio_device_feature_mig_state data;
} StateFeature;

typedef struct FlagsFeature {
    struct vfio_device_feature head;
    struct vfio_device_feature_migration data;
} FlagsFeature;

bool vfio_user_client_migration_flags(VfioUserClient *client, uint64_t *flags, GError **errp)
{
    FlagsFeature feature = {.head = {
                                .argsz = sizeof(feature),
                                .flags = VFIO_DEVICE_FEATURE_MIGRATION | VFIO_DEVICE_FEATURE_GET,
                            }};
    bool ok = exchange(client, VFIO_USER_DEVICE_FEATURE, &feature, sizeof(feature.head), &feature,
                       sizeof(feature), errp);
    *flags = feature.data.flags;
    return ok;
}

bool vfio_user_client_get_state(VfioUserClient *client, uint32_t *state, GError **errp)
{
    StateFeature feature = {
        .head = {.argsz = sizeof(feature),
                 .flags = VFIO_DEVICE_FEATURE_MIG_DEVICE_STATE | VFIO_DEVICE_FEATURE_GET}};
    bool ok = exchange(client, VFIO_USER_DEVICE_FEATURE, &feature, sizeof(feature.head), &feature,
                       sizeof(feature), errp);
    *state = feature.data.device_state;
    return ok;
}

bool vfio_user_client_set_state(VfioUserClient *client, uint32_t state, GError **errp)
{
    const struct vfio_device_feature_mig_state data = {.device_state = state, .data_fd = -1};
    return set_feature(client, VFIO_DEVICE_FEATURE_MIG_DEVICE_STATE, &data, sizeof(data), errp);
}

bool vfio_user_client_save(VfioUserClient *client, uint32_t chunk, GByteArray *data, GError **errp)
{
    const VfioUserMigData request = {.argsz = (uint32_t)sizeof(request) + chunk, .size = chunk};
    VfioUserMigData head;
    do {
        VfioUserAnswer answer;
        if (!ask(client, VFIO_USER_MIG_DATA_READ, &request, sizeof(request), NULL, 0, sizeof(head),
                 &answer, errp)) {
            return false;
        }
        memcpy(&head, answer.data, sizeof(head));
        if (head.size > chunk || head.size != answer.size - sizeof(head)) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
                        "vfio-user: %zu bytes of device state came as %u", answer.size, head.size);
            vfio_user_answer_clear(&answer);
            return false;
        }
        g_byte_array_append(data, answer.data + sizeof(head), head.size);
        vfio_user_answer_clear(&answer);
    } while (head.size == chunk);
    return true;
}

bool vfio_user_client_load(VfioUserClient *client, uint32_t chunk, const uint8_t *data, size_t size,
                           GError **errp)
{
    g_autofree VfioUserMigData *request = g_malloc(sizeof(*request) + chunk);
    for (size_t done = 0; done < size; done += request->size) {
        request->size = (uint32_t)MIN(size - done, chunk);
        request->argsz = (uint32_t)sizeof(*request) + request->size;
        memcpy(request->data, data + done, request->size);
        if (!tell(client, VFIO_USER_MIG_DATA_WRITE, request, request->argsz, NULL, 0, errp)) {
            return false;
        }
    }
    return true;
}
