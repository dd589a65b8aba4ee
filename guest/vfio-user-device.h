/*
 * What a vfio-user client asks of a device: one function a command, errors as GError with the
 * server's errno in the text.  vfio-user-client.h has the connection.
 */
#ifndef GUEST_VFIO_USER_DEVICE_H
#define GUEST_VFIO_USER_DEVICE_H

#include "guest/vfio-user-client.h"

bool vfio_user_client_device_info(VfioUserClient *client, struct vfio_device_info *info,
                                  GError **errp);

/* A region and, where the server lets it be mapped, its fd (else -1; the caller's). */
typedef struct VfioUserRegion {
    struct vfio_region_info info;
    int fd;
    unsigned areas;                           /* of the sparse-mmap capability */
    struct vfio_region_sparse_mmap_area area; /* the first of them */
} VfioUserRegion;
bool vfio_user_client_region(VfioUserClient *client, uint32_t index, VfioUserRegion *region,
                             GError **errp);
bool vfio_user_client_irq_info(VfioUserClient *client, uint32_t index, struct vfio_irq_info *info,
                               GError **errp);

/* Any length up to vfio_user_client_max_transfer(). */
bool vfio_user_client_read(VfioUserClient *client, uint32_t region, uint64_t offset, void *data,
                           uint32_t count, GError **errp);
bool vfio_user_client_write(VfioUserClient *client, uint32_t region, uint64_t offset,
                            const void *data, uint32_t count, GError **errp);
/* Without a reply. */
bool vfio_user_client_post_write(VfioUserClient *client, uint32_t region, uint64_t offset,
                                 const void *data, uint32_t count, GError **errp);
/* How many of @writes were done. */
bool vfio_user_client_write_multi(VfioUserClient *client, const VfioUserWrite *writes,
                                  uint64_t count, uint64_t *done, GError **errp);

/* @fd -1: by messages. */
bool vfio_user_client_map(VfioUserClient *client, uint64_t addr, uint64_t size, uint32_t flags,
                          int fd, uint64_t offset, GError **errp);
bool vfio_user_client_unmap(VfioUserClient *client, uint64_t addr, uint64_t size, GError **errp);

/* VFIO_IRQ_SET_* flags.  @bools (count bytes) with DATA_BOOL, @fds with DATA_EVENTFD. */
bool vfio_user_client_set_irqs(VfioUserClient *client, uint32_t index, uint32_t flags,
                               uint32_t start, uint32_t count, const uint8_t *bools, const int *fds,
                               unsigned nfds, GError **errp);

/* Where writes to a region can be eventfd writes instead. */
typedef struct VfioUserIoFds {
    VfioUserIoEventfd *entries;
    unsigned count;
    int fds[VFIO_USER_CLIENT_MAX_FDS];
    unsigned nfds;
} VfioUserIoFds;
bool vfio_user_client_io_fds(VfioUserClient *client, uint32_t region, VfioUserIoFds *io_fds,
                             GError **errp);
void vfio_user_io_fds_clear(VfioUserIoFds *io_fds);
/* The eventfd for this write, or -1. */
int vfio_user_io_fds_find(const VfioUserIoFds *io_fds, uint64_t offset, unsigned width,
                          uint64_t value);

bool vfio_user_client_reset(VfioUserClient *client, GError **errp);

/* Dirty pages.  @bitmap: one bit a @page_size from @addr; g_free it. */
bool vfio_user_client_log_start(VfioUserClient *client, GError **errp);
bool vfio_user_client_log_stop(VfioUserClient *client, GError **errp);
uint64_t *vfio_user_client_log_report(VfioUserClient *client, uint64_t addr, uint64_t size,
                                      uint64_t page_size, GError **errp);

/* Device state.  Flags are VFIO_MIGRATION_*, states VFIO_DEVICE_STATE_*.  False with
 * G_IO_ERROR_NOT_SUPPORTED: the server has none of it. */
bool vfio_user_client_migration_flags(VfioUserClient *client, uint64_t *flags, GError **errp);
bool vfio_user_client_get_state(VfioUserClient *client, uint32_t *state, GError **errp);
bool vfio_user_client_set_state(VfioUserClient *client, uint32_t state, GError **errp);
/* Appends what there is to read (PRE_COPY, STOP_COPY), @chunk bytes a message. */
bool vfio_user_client_save(VfioUserClient *client, uint32_t chunk, GByteArray *data, GError **errp);
/* Writes all of @data (RESUMING). */
bool vfio_user_client_load(VfioUserClient *client, uint32_t chunk, const uint8_t *data, size_t size,
                           GError **errp);

#endif
