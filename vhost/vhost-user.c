/*
 * The vhost-user front end as a VhostBackend: rings and guest memory are handed to another process
 * over a UNIX socket (QEMU's docs/interop/vhost-user.rst).
 *
 * A connection begins with negotiation (features, protocol features, number of queues, owner). Only
 * one that went well is `connected`.  One whose features are all zero, are fewer than what the
 * device has offered its driver, or that has too few queues, is refused: closed, and the chardev
 * tries again (reconnect) or waits for the next (server).  After the connection is lost the rings
 * stay where they are; the next connection gets everything anew: memory, rings, and the inflight
 * region, in which the back end before it left what it had begun.
 *
 * How messages travel: vhost-user-channel.c.
 */
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <string.h>
#include <unistd.h>

#include "util/error.h"
#include "util/runstate.h"
#include "vhost/vhost-user-internal.h"

#define P(name) (UINT64_C(1) << VHOST_USER_PROTOCOL_F_##name)
#define PROTOCOL_FEATURES                                                                          \
    (P(MQ) | P(LOG_SHMFD) | P(RARP) | P(REPLY_ACK) | P(NET_MTU) | P(BACKEND_REQ) | P(CONFIG) |     \
     P(INFLIGHT_SHMFD) | P(RESET_DEVICE) | P(CONFIGURE_MEM_SLOTS) | P(STATUS))

#define MAX_SLOTS 512
#define STATUS_RUNNING                                                                             \
    (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |          \
     VIRTIO_CONFIG_S_DRIVER_OK)

static VhostUser *from_backend(VhostBackend *b)
{
    return (VhostUser *)b;
}

bool vhost_user_has_protocol_feature(const VhostBackend *b, unsigned bit)
{
    return vhost_user_has((const VhostUser *)b, bit);
}

/* --- device-wide settings --- */

static bool knows_protocol_features(const VhostUser *u)
{
    return u->parent.features >> VHOST_USER_F_PROTOCOL_FEATURES & 1;
}

static gboolean user_set_features(VhostBackend *b, uint64_t features, GError **errp)
{
    VhostUser *u = from_backend(b);

    if (knows_protocol_features(u)) {
        features |= UINT64_C(1) << VHOST_USER_F_PROTOCOL_FEATURES;
    }
    return vhost_user_set(u, VHOST_USER_SET_FEATURES, &features, sizeof(features), NULL, 0, errp);
}

static VhostUserRegion to_wire(const VhostRegion *region)
{
    return (VhostUserRegion){
        .guest_addr = region->addr,
        .size = region->size,
        .user_addr = region->host,
        .mmap_offset = region->offset,
    };
}

static bool same_region(const VhostRegion *a, const VhostRegion *b)
{
    return a->addr == b->addr && a->size == b->size && a->host == b->host && a->fd == b->fd &&
           a->offset == b->offset;
}

static bool in_list(const VhostRegion *region, const VhostRegion *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (same_region(region, &list[i])) {
            return true;
        }
    }
    return false;
}

static gboolean tell_slot(VhostUser *u, uint32_t request, const VhostRegion *region, GError **errp)
{
    VhostUserOneRegion one = {.region = to_wire(region)};

    /* REM_MEM_REG needs no descriptor, but back ends of old expect one. */
    return vhost_user_set(u, request, &one, sizeof(one), &region->fd, 1, errp);
}

/* Memory piece by piece: what is gone goes first, so that nothing overlaps. */
static gboolean set_slots(VhostUser *u, const VhostRegion *regions, unsigned count, GError **errp)
{
    for (unsigned i = 0; i < u->num_slots; i++) {
        if (!in_list(&u->slots[i], regions, count)) {
            /* Its descriptor may be closed by now: not passed. */
            VhostUserOneRegion one = {.region = to_wire(&u->slots[i])};

            if (!vhost_user_set(u, VHOST_USER_REM_MEM_REG, &one, sizeof(one), NULL, 0, errp)) {
                return FALSE;
            }
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (!in_list(&regions[i], u->slots, u->num_slots) &&
            !tell_slot(u, VHOST_USER_ADD_MEM_REG, &regions[i], errp)) {
            return FALSE;
        }
    }
    g_free(u->slots);
    u->slots = g_memdup2(regions, count * sizeof(*regions));
    u->num_slots = count;
    return TRUE;
}

static gboolean set_table(VhostUser *u, const VhostRegion *regions, unsigned count, GError **errp)
{
    VhostUserMemory memory = {.count = count};
    int fds[VHOST_USER_MAX_REGIONS];

    for (unsigned i = 0; i < count; i++) {
        memory.regions[i] = to_wire(&regions[i]);
        fds[i] = regions[i].fd;
    }
    return vhost_user_set(u, VHOST_USER_SET_MEM_TABLE, &memory,
                          VHOST_USER_MEMORY_HEAD + count * (uint32_t)sizeof(memory.regions[0]), fds,
                          count, errp);
}

static gboolean user_set_memory(VhostBackend *b, const VhostRegion *regions, unsigned count,
                                GError **errp)
{
    VhostUser *u = from_backend(b);
    g_autofree VhostRegion *shared = g_new(VhostRegion, count + 1);
    unsigned n = 0;

    for (unsigned i = 0; i < count; i++) {
        if (regions[i].fd >= 0) {
            shared[n++] = regions[i];
        }
    }
    if (!n) {
        return error_set(errp,
                         "netdev '%s': vhost-user needs guest memory that can be shared: use "
                         "-object memory-backend-memfd,id=m,size=SIZE,share=on and -machine "
                         "memory-backend=m",
                         b->name);
    }
    if (n > b->max_regions) {
        return error_set(errp, "netdev '%s': guest memory has %u pieces, the back end takes %u",
                         b->name, n, b->max_regions);
    }
    return vhost_user_has(u, VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS)
               ? set_slots(u, shared, n, errp)
               : set_table(u, shared, n, errp);
}

static gboolean user_set_log(VhostBackend *b, const VhostLog *log, GError **errp)
{
    VhostUser *u = from_backend(b);
    VhostUserPayload payload = {0};

    if (!vhost_user_has(u, VHOST_USER_PROTOCOL_F_LOG_SHMFD) ||
        !(b->features >> VHOST_F_LOG_ALL & 1)) {
        return error_set(errp, "netdev '%s': the vhost-user back end cannot log what it writes",
                         b->name);
    }
    payload.log.mmap_size = log->size;
    return vhost_user_ask(u, VHOST_USER_SET_LOG_BASE, &payload, sizeof(payload.log), 0, &log->fd, 1,
                          NULL, errp);
}

static void forget_inflight(VhostUser *u)
{
    if (u->inflight_fd >= 0) {
        close(u->inflight_fd);
        u->inflight_fd = -1;
    }
}

static gboolean get_inflight(VhostUser *u, unsigned max_num, GError **errp)
{
    VhostUserPayload payload = {
        .inflight = {.num_queues = (uint16_t)u->parent.vrings, .queue_size = (uint16_t)max_num},
    };

    if (!vhost_user_ask(u, VHOST_USER_GET_INFLIGHT_FD, &payload, sizeof(payload.inflight),
                        offsetof(VhostUserInflight, padding), NULL, 0, &u->inflight_fd, errp)) {
        return FALSE;
    }
    if (u->inflight_fd >= 0 && !payload.inflight.mmap_size) {
        forget_inflight(u); /* nothing to keep */
    }
    u->inflight = payload.inflight;
    u->inflight.padding = 0;
    return TRUE;
}

static gboolean user_prepare(VhostBackend *b, unsigned max_num, GError **errp)
{
    VhostUser *u = from_backend(b);

    if (!vhost_user_has(u, VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD)) {
        return TRUE;
    }
    if (u->inflight_fd < 0 && !get_inflight(u, max_num, errp)) {
        return FALSE;
    }
    return u->inflight_fd < 0 || vhost_user_tell(u, VHOST_USER_SET_INFLIGHT_FD, &u->inflight,
                                                 sizeof(u->inflight), &u->inflight_fd, 1, errp);
}

static gboolean user_run(VhostBackend *b, GError **errp)
{
    VhostUser *u = from_backend(b);
    uint64_t status = STATUS_RUNNING;

    return !vhost_user_has(u, VHOST_USER_PROTOCOL_F_STATUS) ||
           vhost_user_set(u, VHOST_USER_SET_STATUS, &status, sizeof(status), NULL, 0, errp);
}

static void user_reset(VhostBackend *b)
{
    VhostUser *u = from_backend(b);
    uint64_t status = 0;

    forget_inflight(u);
    if (!b->connected) {
        return;
    }
    if (vhost_user_has(u, VHOST_USER_PROTOCOL_F_STATUS)) {
        vhost_user_set(u, VHOST_USER_SET_STATUS, &status, sizeof(status), NULL, 0, NULL);
    } else if (vhost_user_has(u, VHOST_USER_PROTOCOL_F_RESET_DEVICE)) {
        vhost_user_set(u, VHOST_USER_RESET_DEVICE, NULL, 0, NULL, 0, NULL);
    }
}

static gboolean user_set_mtu(VhostBackend *b, uint16_t mtu, GError **errp)
{
    VhostUser *u = from_backend(b);
    uint64_t value = mtu;

    return !vhost_user_has(u, VHOST_USER_PROTOCOL_F_NET_MTU) ||
           vhost_user_set(u, VHOST_USER_NET_SET_MTU, &value, sizeof(value), NULL, 0, errp);
}

/* --- rings --- */

static gboolean set_vring_addr(VhostBackend *b, unsigned index, const VhostVring *vring,
                               GError **errp)
{
    VhostUserVringAddr addr = {
        .index = index,
        .flags = vring->log ? 1u << VHOST_VRING_F_LOG : 0,
        .desc = vring->desc,
        .used = vring->used,
        .avail = vring->avail,
        .log = vring->used_guest,
    };

    return vhost_user_set(from_backend(b), VHOST_USER_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0,
                          errp);
}

static gboolean tell_state(VhostUser *u, uint32_t request, unsigned index, uint32_t num,
                           GError **errp)
{
    VhostUserVringState state = {index, num};

    return vhost_user_tell(u, request, &state, sizeof(state), NULL, 0, errp);
}

static gboolean tell_fd(VhostUser *u, uint32_t request, unsigned index, int fd, GError **errp)
{
    uint64_t value = index & VHOST_USER_VRING_INDEX_MASK;

    return vhost_user_tell(u, request, &value, sizeof(value), &fd, 1, errp);
}

static gboolean user_vring_start(VhostBackend *b, unsigned index, const VhostVring *vring,
                                 GError **errp)
{
    VhostUser *u = from_backend(b);

    u->vrings_started |= index < 64 ? UINT64_C(1) << index : 0;
    return tell_state(u, VHOST_USER_SET_VRING_NUM, index, vring->num, errp) &&
           tell_state(u, VHOST_USER_SET_VRING_BASE, index, vring->base, errp) &&
           set_vring_addr(b, index, vring, errp) &&
           tell_fd(u, VHOST_USER_SET_VRING_KICK, index, vring->kick, errp) &&
           tell_fd(u, VHOST_USER_SET_VRING_CALL, index, vring->call, errp) &&
           tell_fd(u, VHOST_USER_SET_VRING_ERR, index, vring->err, errp);
}

static gboolean user_vring_stop(VhostBackend *b, unsigned index, uint32_t *base, GError **errp)
{
    VhostUser *u = from_backend(b);
    VhostUserPayload payload = {.state = {.index = index}};

    if (!vhost_user_ask(u, VHOST_USER_GET_VRING_BASE, &payload, sizeof(payload.state),
                        sizeof(payload.state), NULL, 0, NULL, errp)) {
        return FALSE;
    }
    *base = payload.state.num;
    u->vrings_started &= index < 64 ? ~(UINT64_C(1) << index) : UINT64_MAX;
    if (!u->vrings_started) {
        forget_inflight(u); /* all that was begun is done */
    }
    return TRUE;
}

static gboolean user_vring_enable(VhostBackend *b, unsigned index, bool on, GError **errp)
{
    VhostUser *u = from_backend(b);
    VhostUserVringState state = {index, on};

    /* Without protocol features a ring is enabled as long as it runs. */
    return !knows_protocol_features(u) ||
           vhost_user_set(u, VHOST_USER_SET_VRING_ENABLE, &state, sizeof(state), NULL, 0, errp);
}

bool vhost_user_send_rarp(VhostBackend *b, const uint8_t mac[6])
{
    VhostUser *u = from_backend(b);
    uint64_t value = 0;

    memcpy(&value, mac, 6);
    return b->connected && vhost_user_has(u, VHOST_USER_PROTOCOL_F_RARP) &&
           vhost_user_set(u, VHOST_USER_SEND_RARP, &value, sizeof(value), NULL, 0, NULL);
}

/* --- configuration and link --- */

unsigned vhost_user_get_config(VhostBackend *b, void *data, unsigned size)
{
    VhostUser *u = from_backend(b);
    VhostUserPayload payload = {.config = {.size = MIN(size, VHOST_USER_CONFIG_MAX)}};

    if (!vhost_user_has(u, VHOST_USER_PROTOCOL_F_CONFIG) ||
        !vhost_user_ask(u, VHOST_USER_GET_CONFIG, &payload,
                        VHOST_USER_CONFIG_HEAD + payload.config.size, 0, NULL, 0, NULL, NULL) ||
        payload.config.size > MIN(size, VHOST_USER_CONFIG_MAX)) {
        return 0;
    }
    memcpy(data, payload.config.data, payload.config.size);
    return payload.config.size;
}

/* Whether the back end's own link is up; it is unless its configuration says otherwise. */
static bool link_is_up(VhostUser *u)
{
    struct virtio_net_config config = {0};
    unsigned size = offsetof(struct virtio_net_config, max_virtqueue_pairs);

    if (!u->parent.has_config || vhost_user_get_config(&u->parent, &config, size) < size) {
        return true;
    }
    return GUINT16_FROM_LE(config.status) & VIRTIO_NET_S_LINK_UP;
}

static void tell_link(VhostUser *u, bool up)
{
    if (u->told_up != up) {
        u->told_up = up;
        if (u->in_use) {
            u->events.link_changed(u->events.opaque, up);
        }
    }
}

void vhost_user_config_changed(VhostUser *u)
{
    if (u->parent.connected) {
        tell_link(u, link_is_up(u));
    }
}

/* --- connections --- */

static gboolean negotiate_protocol(VhostUser *u, GError **errp)
{
    uint64_t offered, max_queues = 1, max_slots = 0;

    if (!vhost_user_ask_u64(u, VHOST_USER_GET_PROTOCOL_FEATURES, &offered, errp)) {
        return FALSE;
    }
    offered &= PROTOCOL_FEATURES;
    if (!vhost_user_tell(u, VHOST_USER_SET_PROTOCOL_FEATURES, &offered, sizeof(offered), NULL, 0,
                         errp)) {
        return FALSE;
    }
    u->protocol_features = offered;
    if (vhost_user_has(u, VHOST_USER_PROTOCOL_F_MQ) &&
        !vhost_user_ask_u64(u, VHOST_USER_GET_QUEUE_NUM, &max_queues, errp)) {
        return FALSE;
    }
    if (max_queues < u->queues) {
        return error_set(
            errp, "netdev '%s': queues=%u, but the vhost-user back end has %" G_GUINT64_FORMAT,
            u->parent.name, u->queues, max_queues);
    }
    if (vhost_user_has(u, VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS)) {
        if (!vhost_user_ask_u64(u, VHOST_USER_GET_MAX_MEM_SLOTS, &max_slots, errp)) {
            return FALSE;
        }
        u->parent.max_regions = (unsigned)MIN(max_slots, MAX_SLOTS);
    }
    return TRUE;
}

static gboolean check_features(VhostUser *u, uint64_t features, GError **errp)
{
    uint64_t missing = u->parent.required & ~features;

    if (!features) {
        return error_set(errp, "netdev '%s': the vhost-user back end offers no features",
                         u->parent.name);
    }
    if (missing) {
        return error_set(errp,
                         "netdev '%s': the vhost-user back end lacks features that the guest was "
                         "offered (0x%" G_GINT64_MODIFIER "x): start one that has them",
                         u->parent.name, missing);
    }
    return TRUE;
}

static gboolean negotiate(VhostUser *u, GError **errp)
{
    VhostBackend *b = &u->parent;
    uint64_t features;

    u->protocol_features = 0;
    u->num_slots = 0;
    u->vrings_started = 0;
    b->max_regions = VHOST_USER_MAX_REGIONS;
    if (!vhost_user_ask_u64(u, VHOST_USER_GET_FEATURES, &features, errp) ||
        !check_features(u, features, errp)) {
        return FALSE;
    }
    b->features = features;
    if (knows_protocol_features(u)) {
        if (!negotiate_protocol(u, errp)) {
            return FALSE;
        }
    } else if (u->queues > 1) {
        return error_set(errp, "netdev '%s': queues=%u, but the vhost-user back end has one",
                         b->name, u->queues);
    }
    if (!vhost_user_tell(u, VHOST_USER_SET_OWNER, NULL, 0, NULL, 0, errp) ||
        (vhost_user_has(u, VHOST_USER_PROTOCOL_F_BACKEND_REQ) &&
         !vhost_user_open_requests(u, errp))) {
        return FALSE;
    }
    b->has_config =
        vhost_user_has(u, VHOST_USER_PROTOCOL_F_CONFIG) && (features >> VIRTIO_NET_F_STATUS & 1);
    return TRUE;
}

static void opened(VhostUser *u)
{
    VhostBackend *b = &u->parent;
    g_autoptr(GError) err = NULL;

    if (!negotiate(u, &err)) {
        /* Said once, however often a reconnecting chardev tries. */
        if (g_strcmp0(u->refusal, err->message)) {
            warn_report("%s; the connection is refused", err->message);
            g_free(u->refusal);
            u->refusal = g_strdup(err->message);
        }
        chardev_disconnect(u->chr);
        return;
    }
    g_clear_pointer(&u->refusal, g_free);
    b->connected = true;
    b->connection++;
    tell_link(u, link_is_up(u));
    vhost_backend_changed(b);
}

static void closed(VhostUser *u)
{
    bh_cancel(u->drop_bh);
    u->parent.connected = false;
    vhost_user_close_requests(u);
    tell_link(u, false);
    vhost_backend_changed(&u->parent);
}

static void chardev_event(void *opaque, ChardevEvent event)
{
    if (event == CHARDEV_OPENED) {
        opened(opaque);
    } else {
        closed(opaque);
    }
}

/* Nothing comes unasked. */
static void chardev_read(void *opaque, const char *data, size_t size)
{
    VhostUser *u = opaque;

    warn_report("netdev '%s': the vhost-user back end sent what nobody asked for; the connection "
                "is closed",
                u->parent.name);
    chardev_disconnect(u->chr);
}

static void drop_connection(void *opaque)
{
    VhostUser *u = opaque;

    chardev_disconnect(u->chr);
}

/* --- life --- */

static void user_free(VhostBackend *b)
{
    VhostUser *u = from_backend(b);

    chardev_detach(u->chr);
    chardev_disconnect(u->chr);
    vhost_user_close_requests(u);
    forget_inflight(u);
    bh_delete(u->drop_bh);
    g_free(u->refusal);
    g_free(u->slots);
    g_free(b->name);
    g_free(u);
}

static const VhostBackendOps user_ops = {
    .kind = "vhost-user",
    .needs_shared_memory = true,
    .handles_frames = true,
    .set_features = user_set_features,
    .set_memory = user_set_memory,
    .set_log = user_set_log,
    .prepare = user_prepare,
    .vring_start = user_vring_start,
    .vring_stop = user_vring_stop,
    .vring_enable = user_vring_enable,
    .run = user_run,
    .reset = user_reset,
    .set_mtu = user_set_mtu,
    .free = user_free,
};

VhostBackend *vhost_user_new(const char *name, Chardev *chr, unsigned queues, int timeout_ms,
                             const VhostUserEvents *events, GError **errp)
{
    static const ChardevHandlers handlers = {.read = chardev_read, .event = chardev_event};
    VhostUser *u;
    VhostBackend *b;

    if (chardev_in_use(chr)) {
        error_set(errp, "netdev '%s': chardev '%s' is already in use", name, chardev_id(chr));
        return NULL;
    }
    u = g_new0(VhostUser, 1);
    b = &u->parent;
    *b = (VhostBackend){
        .ops = &user_ops,
        .name = g_strdup(name),
        .vrings = 2 * queues,
        .force = true,
    };
    u->chr = chr;
    u->events = *events;
    u->queues = queues;
    u->request_fd = u->inflight_fd = -1;
    u->drop_bh = bh_new(event_loop_main(), drop_connection, u);
    chardev_attach(chr, &handlers, u, NULL);
    while (!b->connected) {
        if (!chardev_wait_open(chr, timeout_ms, errp)) {
            if (u->refusal) {
                g_clear_error(errp);
                error_set(errp, "%s", u->refusal);
            } else {
                g_prefix_error(errp, "netdev '%s': ", name);
            }
            user_free(b);
            return NULL;
        }
    }
    u->in_use = true;
    return b;
}
