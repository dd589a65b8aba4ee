/*
 * The host kernel's vhost-net as a VhostBackend: linux/vhost.h, one /dev/vhost-net a queue pair.
 *
 * Rings are 0 (receive) and 1 (transmit).  A ring runs while it has a back end, the tap's fd
 * (VHOST_NET_SET_BACKEND); taking that away waits until the kernel's thread has let go of the ring.
 * The kernel finds rings and buffers through the memory table, by this process's addresses; memory
 * need not be shared.
 *
 * System calls: ioctl on /dev/vhost-net.
 */
#include <errno.h>
#include <linux/vhost.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "util/error.h"
#include "vhost/vhost.h"

#define VRINGS              2
#define DEFAULT_MAX_REGIONS 64 /* of the kernel's vhost module */
#define MAX_REGIONS_FILE    "/sys/module/vhost/parameters/max_mem_regions"

typedef struct VhostKernel {
    VhostBackend parent;
    int fd, tap;
    uint32_t poll_us;
} VhostKernel;

static gboolean call(VhostKernel *k, unsigned long request, const char *what, void *arg,
                     GError **errp)
{
    if (ioctl(k->fd, request, arg) < 0) {
        return error_set_errno(errp, errno, "netdev '%s': vhost-net: %s", k->parent.name, what);
    }
    return TRUE;
}
#define CALL(k, request, arg, errp) call(k, request, #request, arg, errp)

static gboolean kernel_set_features(VhostBackend *b, uint64_t features, GError **errp)
{
    __u64 value = features;

    return CALL((VhostKernel *)b, VHOST_SET_FEATURES, &value, errp);
}

static gboolean kernel_set_memory(VhostBackend *b, const VhostRegion *regions, unsigned count,
                                  GError **errp)
{
    g_autofree struct vhost_memory *table =
        g_malloc0(sizeof(*table) + count * sizeof(table->regions[0]));

    if (count > b->max_regions) {
        return error_set(errp,
                         "netdev '%s': guest memory has %u pieces, vhost-net takes %u: raise "
                         "max_mem_regions of the host's module vhost",
                         b->name, count, b->max_regions);
    }
    table->nregions = count;
    for (unsigned i = 0; i < count; i++) {
        table->regions[i] = (struct vhost_memory_region){
            .guest_phys_addr = regions[i].addr,
            .memory_size = regions[i].size,
            .userspace_addr = regions[i].host,
        };
    }
    return CALL((VhostKernel *)b, VHOST_SET_MEM_TABLE, table, errp);
}

static gboolean kernel_set_log(VhostBackend *b, const VhostLog *log, GError **errp)
{
    __u64 base = (uintptr_t)log->bits;

    return CALL((VhostKernel *)b, VHOST_SET_LOG_BASE, &base, errp);
}

static gboolean kernel_prepare(VhostBackend *b, unsigned max_num, GError **errp)
{
    return TRUE;
}

static gboolean set_vring_addr(VhostBackend *b, unsigned index, const VhostVring *vring,
                               GError **errp)
{
    struct vhost_vring_addr addr = {
        .index = index,
        .flags = vring->log ? 1u << VHOST_VRING_F_LOG : 0,
        .desc_user_addr = vring->desc,
        .avail_user_addr = vring->avail,
        .used_user_addr = vring->used,
        .log_guest_addr = vring->used_guest,
    };

    return CALL((VhostKernel *)b, VHOST_SET_VRING_ADDR, &addr, errp);
}

static gboolean set_backend(VhostKernel *k, unsigned index, int tap, GError **errp)
{
    struct vhost_vring_file file = {.index = index, .fd = tap};

    return CALL(k, VHOST_NET_SET_BACKEND, &file, errp);
}

static gboolean set_poll(VhostKernel *k, unsigned index, GError **errp)
{
    struct vhost_vring_state state = {.index = index, .num = k->poll_us};

    return !k->poll_us || CALL(k, VHOST_SET_VRING_BUSYLOOP_TIMEOUT, &state, errp);
}

static gboolean kernel_vring_start(VhostBackend *b, unsigned index, const VhostVring *vring,
                                   GError **errp)
{
    VhostKernel *k = (VhostKernel *)b;
    struct vhost_vring_state num = {.index = index, .num = vring->num};
    struct vhost_vring_state base = {.index = index, .num = vring->base};
    struct vhost_vring_file kick = {.index = index, .fd = vring->kick};
    struct vhost_vring_file notify = {.index = index, .fd = vring->call};
    struct vhost_vring_file err = {.index = index, .fd = vring->err};

    return CALL(k, VHOST_SET_VRING_NUM, &num, errp) && CALL(k, VHOST_SET_VRING_BASE, &base, errp) &&
           set_vring_addr(b, index, vring, errp) && CALL(k, VHOST_SET_VRING_KICK, &kick, errp) &&
           CALL(k, VHOST_SET_VRING_CALL, &notify, errp) &&
           CALL(k, VHOST_SET_VRING_ERR, &err, errp) && set_poll(k, index, errp) &&
           set_backend(k, index, k->tap, errp);
}

static gboolean kernel_vring_stop(VhostBackend *b, unsigned index, uint32_t *base, GError **errp)
{
    VhostKernel *k = (VhostKernel *)b;
    struct vhost_vring_state state = {.index = index};
    struct vhost_vring_file none = {.index = index, .fd = VHOST_FILE_UNBIND};

    if (!set_backend(k, index, VHOST_FILE_UNBIND, errp) ||
        !CALL(k, VHOST_GET_VRING_BASE, &state, errp)) {
        return FALSE;
    }
    *base = state.num;
    return CALL(k, VHOST_SET_VRING_KICK, &none, errp) && CALL(k, VHOST_SET_VRING_CALL, &none, errp);
}

static gboolean kernel_run(VhostBackend *b, GError **errp)
{
    return TRUE;
}

static void kernel_free(VhostBackend *b)
{
    close(((VhostKernel *)b)->fd); /* the kernel lets go of rings and tap */
    g_free(b->name);
    g_free(b);
}

static const VhostBackendOps kernel_ops = {
    .kind = "vhost-net",
    .set_features = kernel_set_features,
    .set_memory = kernel_set_memory,
    .set_log = kernel_set_log,
    .prepare = kernel_prepare,
    .vring_start = kernel_vring_start,
    .vring_stop = kernel_vring_stop,
    .run = kernel_run,
    .free = kernel_free,
};

static unsigned read_max_regions(void)
{
    g_autofree char *text = NULL;

    return g_file_get_contents(MAX_REGIONS_FILE, &text, NULL, NULL) ? (unsigned)MAX(atoi(text), 1)
                                                                    : DEFAULT_MAX_REGIONS;
}

VhostBackend *vhost_kernel_new(const char *name, int fd, int tap, uint32_t poll_us, GError **errp)
{
    VhostKernel *k = g_new0(VhostKernel, 1);
    __u64 features = 0;

    k->parent = (VhostBackend){
        .ops = &kernel_ops,
        .name = g_strdup(name),
        .vrings = VRINGS,
        .max_regions = read_max_regions(),
        .connected = true,
    };
    k->fd = fd;
    k->tap = tap;
    k->poll_us = poll_us;
    if (!CALL(k, VHOST_SET_OWNER, NULL, errp) || !CALL(k, VHOST_GET_FEATURES, &features, errp)) {
        g_free(k->parent.name);
        g_free(k);
        return NULL;
    }
    k->parent.features = features;
    return &k->parent;
}
