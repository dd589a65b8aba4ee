/*
 * The commands of a client: a table with the function of each and the payload it needs at least.
 * A function checks what it was sent, and answers 0 or an errno.
 */
#include <errno.h>
#include <string.h>

#include "vfio-user-internal.h"

/* struct vfio_device_info up to num_irqs: what the protocol has of it. */
#define DEVICE_INFO_SIZE 16

static int run_get_info(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    const struct vfio_device_info info = {
        .argsz = DEVICE_INFO_SIZE,
        .flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
        .num_regions = VFIO_PCI_NUM_REGIONS,
        .num_irqs = VFIO_PCI_NUM_IRQS,
    };
    uint32_t argsz;

    memcpy(&argsz, message->payload, sizeof(argsz));
    if (argsz < DEVICE_INFO_SIZE) {
        return EINVAL;
    }
    g_byte_array_append(reply->data, (const guint8 *)&info, DEVICE_INFO_SIZE);
    return 0;
}

static int run_device_reset(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    device_reset(DEVICE(server->pci));
    vfio_user_irqs_device_reset(server);
    vfio_user_migration_reset(server);
    return 0;
}

typedef int CommandFunc(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);

static const struct Command {
    size_t min_size; /* of the payload */
    CommandFunc *run;
} commands[VFIO_USER_COMMAND_END] = {
    [VFIO_USER_DMA_MAP] = {sizeof(VfioUserDmaMap), vfio_user_dma_map},
    [VFIO_USER_DMA_UNMAP] = {sizeof(VfioUserDmaUnmap), vfio_user_dma_unmap},
    [VFIO_USER_DEVICE_GET_INFO] = {DEVICE_INFO_SIZE, run_get_info},
    [VFIO_USER_DEVICE_GET_REGION_INFO] = {sizeof(struct vfio_region_info),
                                          vfio_user_get_region_info},
    [VFIO_USER_DEVICE_GET_REGION_IO_FDS] = {sizeof(VfioUserRegionIoFds),
                                            vfio_user_get_region_io_fds},
    [VFIO_USER_DEVICE_GET_IRQ_INFO] = {sizeof(struct vfio_irq_info), vfio_user_get_irq_info},
    [VFIO_USER_DEVICE_SET_IRQS] = {offsetof(struct vfio_irq_set, data), vfio_user_set_irqs},
    [VFIO_USER_REGION_READ] = {sizeof(VfioUserRegionAccess), vfio_user_region_read},
    [VFIO_USER_REGION_WRITE] = {sizeof(VfioUserRegionAccess), vfio_user_region_write},
    [VFIO_USER_REGION_WRITE_MULTI] = {sizeof(VfioUserWriteMulti), vfio_user_region_write_multi},
    [VFIO_USER_DEVICE_RESET] = {0, run_device_reset},
    [VFIO_USER_DEVICE_FEATURE] = {sizeof(struct vfio_device_feature), vfio_user_feature},
    [VFIO_USER_MIG_DATA_READ] = {sizeof(VfioUserMigData), vfio_user_migration_read},
    [VFIO_USER_MIG_DATA_WRITE] = {sizeof(VfioUserMigData), vfio_user_migration_write},
};

int vfio_user_run_command(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    uint16_t number = message->header.command;

    if (number >= G_N_ELEMENTS(commands) || !commands[number].run) {
        return EOPNOTSUPP;
    }
    if (message->size < commands[number].min_size) {
        return EINVAL;
    }
    if (message->fds_lost) {
        return EMFILE;
    }
    return commands[number].run(server, message, reply);
}
