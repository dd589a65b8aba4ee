/*
 * VFIO_USER_DEVICE_FEATURE: which features there are, the methods of each, and what does it.
 *
 * Answers as the kernel's VFIO_DEVICE_FEATURE does: a feature that is not there is ENOTTY, a method
 * that it does not have EINVAL.
 */
#include <errno.h>
#include <string.h>

#include "vfio-user-internal.h"

#define METHODS (VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_SET)

static const struct FeatureInfo {
    uint32_t feature;
    uint32_t methods;
    int (*run)(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
    bool (*available)(VfioUserServer *server); /* NULL: always */
} features[] = {
    {VFIO_DEVICE_FEATURE_MIGRATION, VFIO_DEVICE_FEATURE_GET, vfio_user_migration_run_flags,
     vfio_user_migration_available},
    {VFIO_DEVICE_FEATURE_MIG_DEVICE_STATE, METHODS, vfio_user_migration_run_state,
     vfio_user_migration_available},
    {VFIO_DEVICE_FEATURE_DMA_LOGGING_START, VFIO_DEVICE_FEATURE_SET, vfio_user_log_run_start, NULL},
    {VFIO_DEVICE_FEATURE_DMA_LOGGING_STOP, VFIO_DEVICE_FEATURE_SET, vfio_user_log_run_stop, NULL},
    {VFIO_DEVICE_FEATURE_DMA_LOGGING_REPORT, VFIO_DEVICE_FEATURE_GET, vfio_user_log_run_report,
     NULL},
};

static const struct FeatureInfo *find_feature(VfioUserServer *server, uint32_t flags)
{
    for (size_t i = 0; i < G_N_ELEMENTS(features); i++) {
        const struct FeatureInfo *info = &features[i];

        if ((flags & VFIO_DEVICE_FEATURE_MASK) == info->feature) {
            return !info->available || info->available(server) ? info : NULL;
        }
    }
    return NULL;
}

int vfio_user_feature(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    struct vfio_device_feature request;
    const struct FeatureInfo *info;
    uint32_t methods;

    memcpy(&request, message->payload, sizeof(request));
    methods = request.flags & METHODS;
    info = find_feature(server, request.flags);
    if (!info) {
        return ENOTTY;
    }
    if (request.argsz < sizeof(request) || methods & ~info->methods ||
        request.flags & ~(VFIO_DEVICE_FEATURE_MASK | METHODS | VFIO_DEVICE_FEATURE_PROBE)) {
        return EINVAL;
    }
    if (request.flags & VFIO_DEVICE_FEATURE_PROBE) {
        g_byte_array_append(reply->data, message->payload, (guint)message->size);
        return 0;
    }
    return methods && methods != METHODS ? info->run(server, message, reply) : EINVAL;
}
