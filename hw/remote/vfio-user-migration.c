/*
 * Device state: the features MIGRATION and MIG_DEVICE_STATE, MIG_DATA_READ and MIG_DATA_WRITE.
 *
 * The states and the arcs between them are those of <linux/vfio.h> without peer-to-peer DMA
 * (QEMU's docs/interop/vfio-user.rst, "Direct State Transitions"); what is no arc goes by the
 * shortest way, whose next step a table has.  Where the device does not run it is drained, and
 * its interrupts stay pending.
 *
 * What is transferred is a head and blocks, each a whole stream of the device's migration tables
 * (migration/device-state.h) and the interrupts that are pending:
 *
 *     "swnicvfu" u32 version, u32 0          all numbers big-endian
 *     u32 kind, u32 size, stream             kind 1: early, 2: final (the last one, once)
 *
 * PRE_COPY gives an early block, the state as it is at that moment, so that a destination that
 * cannot take it says so before anything stops; STOP_COPY the final one.  While resuming each block
 * is read as soon as it is whole.  Nothing of it reaches the device before RESUMING is left: then
 * the final one is checked and applied, or the state is ERROR, the device is as it was, and only a
 * reset makes it run.  Of a hostile stream no more than a block is kept.
 */
#include <errno.h>
#include <string.h>

#include "hw/virtio/device-vmstate.h"
#include "migration/device-state.h"
#include "util/error.h"
#include "util/log.h"
#include "util/trace.h"
#include "vfio-user-internal.h"

#define MACHINE        "vfio-user"
#define STREAM_MAGIC   "swnicvfu"
#define STREAM_VERSION 1u
/* A virtio-net device with all its queues and vectors has about 200 KiB. */
#define BLOCK_MAX (1u << 20)

enum { BLOCK_EARLY = 1, BLOCK_FINAL };

typedef struct StreamHead {
    char magic[8];
    uint32_t version, zero;
} StreamHead;

typedef struct BlockHead {
    uint32_t kind, size;
} BlockHead;

#define STATES (VFIO_DEVICE_STATE_PRE_COPY + 1)

static const char *const state_names[STATES] = {
    [VFIO_DEVICE_STATE_ERROR] = "error",       [VFIO_DEVICE_STATE_STOP] = "stop",
    [VFIO_DEVICE_STATE_RUNNING] = "running",   [VFIO_DEVICE_STATE_STOP_COPY] = "stop-copy",
    [VFIO_DEVICE_STATE_RESUMING] = "resuming", [VFIO_DEVICE_STATE_RUNNING_P2P] = "running-p2p",
    [VFIO_DEVICE_STATE_PRE_COPY] = "pre-copy",
};

const char *vfio_user_migration_state_name(uint32_t state)
{
    return state < STATES ? state_names[state] : "unknown";
}

/* --- which devices --- */

static DeviceState *device_of(VfioUserServer *server)
{
    return DEVICE(server->pci);
}

/* The tables of the served device.  Their names do not say in which slot it is. */
static GArray *state_devices(VfioUserServer *server)
{
    g_autoptr(GArray) found = migration_devices_new();
    GArray *devices = migration_devices_new();

    device_vmstate_add(OBJECT(server->pci), found);
    for (unsigned i = 0; i < found->len; i++) {
        const MigrationDevice *dev = &g_array_index(found, MigrationDevice, i);

        migration_devices_add(devices, g_strdup(dev->vmsd->name), dev->vmsd, dev->opaque);
    }
    migration_devices_add(devices, g_strdup(vfio_user_vmstate_irqs.name), &vfio_user_vmstate_irqs,
                          server);
    return devices;
}

bool vfio_user_migration_available(VfioUserServer *server)
{
    return device_of(server)->realized && !device_vmstate_find_missing(OBJECT(server->pci));
}

/* --- running or not --- */

static void device_halt(VfioUserServer *server)
{
    if (!server->migration.halted) {
        server->migration.halted = true;
        device_drain_begin(device_of(server));
        vfio_user_irqs_hold(server);
    }
}

static void device_go_on(VfioUserServer *server)
{
    if (server->migration.halted) {
        server->migration.halted = false;
        vfio_user_irqs_go_on(server);
        if (device_of(server)->realized) {
            device_drain_end(device_of(server));
        }
    }
}

/* --- saving --- */

static void save_begin(VfioUserServer *server)
{
    const StreamHead head = {.magic = STREAM_MAGIC, .version = GUINT32_TO_BE(STREAM_VERSION)};

    server->migration.out = g_byte_array_new();
    server->migration.out_done = 0;
    g_byte_array_append(server->migration.out, (const guint8 *)&head, sizeof(head));
}

/* The device stands still. */
static void save_block(VfioUserServer *server, uint32_t kind)
{
    g_autoptr(GArray) devices = state_devices(server);
    g_autoptr(GByteArray) stream = g_byte_array_new();

    device_state_save(stream, MACHINE, devices);
    const BlockHead head = {.kind = GUINT32_TO_BE(kind), .size = GUINT32_TO_BE(stream->len)};

    g_byte_array_append(server->migration.out, (const guint8 *)&head, sizeof(head));
    g_byte_array_append(server->migration.out, stream->data, stream->len);
}

static void session_end(VfioUserServer *server)
{
    VfioUserMigration *m = &server->migration;

    g_clear_pointer(&m->out, g_byte_array_unref);
    g_clear_pointer(&m->in, g_byte_array_unref);
    g_clear_pointer(&m->final, g_byte_array_unref);
    m->headed = m->bad = false;
}

/* --- resuming --- */

static void report_bad(VfioUserServer *server, GError *err)
{
    static LogRate rate;
    unsigned left_out;

    server->migration.bad = true;
    if (log_rate_ok(&rate, &left_out)) {
        warn_report("vfio-user: %s: device state from the client: %s", server->device_id,
                    err->message);
    }
    g_error_free(err);
}

static DeviceStateLoaded *block_load(VfioUserServer *server, const void *data, size_t size,
                                     GError **errp)
{
    return device_state_load(data, size, MACHINE, state_devices(server), errp);
}

/* A whole block: is it a stream for this device? */
static gboolean block_take(VfioUserServer *server, uint32_t kind, const uint8_t *data,
                           uint32_t size, GError **errp)
{
    VfioUserMigration *m = &server->migration;
    DeviceStateLoaded *loaded = block_load(server, data, size, errp);

    if (!loaded) {
        return FALSE;
    }
    device_state_free(loaded);
    if (kind == BLOCK_FINAL) {
        m->final = g_byte_array_sized_new(size);
        g_byte_array_append(m->final, data, size);
    }
    return TRUE;
}

/* Takes what is whole off @in: *size bytes, 0 if there is nothing. */
static gboolean take_head(VfioUserMigration *m, size_t *size, GError **errp)
{
    StreamHead head;

    if (m->in->len < sizeof(head)) {
        return TRUE;
    }
    memcpy(&head, m->in->data, sizeof(head));
    if (memcmp(head.magic, STREAM_MAGIC, sizeof(head.magic))) {
        return error_set(errp, "it does not begin with \"" STREAM_MAGIC "\"");
    }
    if (head.version != GUINT32_TO_BE(STREAM_VERSION) || head.zero) {
        return error_set(errp, "version %u, %u is known", GUINT32_FROM_BE(head.version),
                         STREAM_VERSION);
    }
    m->headed = true;
    *size = sizeof(head);
    return TRUE;
}

static gboolean take_block(VfioUserServer *server, size_t *size, GError **errp)
{
    VfioUserMigration *m = &server->migration;
    BlockHead head;

    if (m->final && m->in->len) {
        return error_set(errp, "it goes on after its final block");
    }
    if (m->in->len < sizeof(head)) {
        return TRUE;
    }
    memcpy(&head, m->in->data, sizeof(head));
    head.kind = GUINT32_FROM_BE(head.kind);
    head.size = GUINT32_FROM_BE(head.size);
    if (head.kind != BLOCK_EARLY && head.kind != BLOCK_FINAL) {
        return error_set(errp, "it has a block of unknown kind %u", head.kind);
    }
    if (head.size > BLOCK_MAX) {
        return error_set(errp, "it has a block of %u bytes, %u is the most", head.size, BLOCK_MAX);
    }
    if (m->in->len - sizeof(head) < head.size) {
        return TRUE;
    }
    *size = sizeof(head) + head.size;
    return block_take(server, head.kind, m->in->data + sizeof(head), head.size, errp);
}

static gboolean resume_parse(VfioUserServer *server, GError **errp)
{
    VfioUserMigration *m = &server->migration;
    size_t size;

    do {
        size = 0;
        if (!(m->headed ? take_block(server, &size, errp) : take_head(m, &size, errp))) {
            return FALSE;
        }
        g_byte_array_remove_range(m->in, 0, (guint)size);
    } while (size);
    return TRUE;
}

static gboolean resume_apply(VfioUserServer *server, GError **errp)
{
    VfioUserMigration *m = &server->migration;
    DeviceStateLoaded *loaded;
    gboolean ok;

    if (m->bad) {
        return error_set(errp, "it was refused before");
    }
    if (!m->final) {
        return error_set(errp, "it is incomplete");
    }
    loaded = block_load(server, m->final->data, m->final->len, errp);
    ok = loaded && device_state_apply(loaded, errp);
    device_state_free(loaded);
    return ok;
}

/* --- arcs --- */

/* Arcs of which one end is RUNNING, PRE_COPY or STOP_COPY do not fail. */
static uint32_t arc_halt(VfioUserServer *server)
{
    device_halt(server);
    return VFIO_DEVICE_STATE_STOP;
}

static uint32_t arc_run(VfioUserServer *server)
{
    server->migration.restored = false;
    device_go_on(server);
    return VFIO_DEVICE_STATE_RUNNING;
}

static uint32_t arc_begin_early(VfioUserServer *server)
{
    save_begin(server);
    device_drain_begin(device_of(server));
    save_block(server, BLOCK_EARLY);
    device_drain_end(device_of(server));
    return VFIO_DEVICE_STATE_PRE_COPY;
}

static uint32_t arc_end_early(VfioUserServer *server)
{
    session_end(server);
    return VFIO_DEVICE_STATE_RUNNING;
}

static uint32_t arc_finish_early(VfioUserServer *server)
{
    device_halt(server);
    save_block(server, BLOCK_FINAL);
    return VFIO_DEVICE_STATE_STOP_COPY;
}

static uint32_t arc_begin_final(VfioUserServer *server)
{
    save_begin(server);
    save_block(server, BLOCK_FINAL);
    return VFIO_DEVICE_STATE_STOP_COPY;
}

static uint32_t arc_end_final(VfioUserServer *server)
{
    session_end(server);
    return VFIO_DEVICE_STATE_STOP;
}

static uint32_t arc_begin_resume(VfioUserServer *server)
{
    server->migration.in = g_byte_array_new();
    return VFIO_DEVICE_STATE_RESUMING;
}

static uint32_t arc_end_resume(VfioUserServer *server)
{
    GError *err = NULL;
    gboolean ok = resume_apply(server, &err);

    if (!ok) {
        report_bad(server, err);
    }
    session_end(server);
    return ok ? VFIO_DEVICE_STATE_STOP : VFIO_DEVICE_STATE_ERROR;
}

#define RUN  VFIO_DEVICE_STATE_RUNNING
#define HALT VFIO_DEVICE_STATE_STOP
#define COPY VFIO_DEVICE_STATE_STOP_COPY
#define PRE  VFIO_DEVICE_STATE_PRE_COPY
#define LOAD VFIO_DEVICE_STATE_RESUMING

/* The next step from one state to another; ERROR (0): there is no way.  The saving states can begin
 * and end a way, never lie on it, but for PRE_COPY, which STOP_COPY continues. */
static const uint8_t next_state[STATES][STATES] = {
    [RUN] = {[RUN] = RUN, [HALT] = HALT, [COPY] = HALT, [LOAD] = HALT, [PRE] = PRE},
    [HALT] = {[RUN] = RUN, [HALT] = HALT, [COPY] = COPY, [LOAD] = LOAD, [PRE] = RUN},
    [COPY] = {[RUN] = HALT, [HALT] = HALT, [COPY] = COPY, [LOAD] = HALT},
    [PRE] = {[RUN] = RUN, [HALT] = RUN, [COPY] = COPY, [LOAD] = RUN, [PRE] = PRE},
    [LOAD] = {[RUN] = HALT, [HALT] = HALT, [COPY] = HALT, [LOAD] = LOAD, [PRE] = HALT},
};

/* What a step does; it returns the state that it led to. */
static uint32_t (*const arcs[STATES][STATES])(VfioUserServer *server) = {
    [RUN] = {[HALT] = arc_halt, [PRE] = arc_begin_early},
    [HALT] = {[RUN] = arc_run, [COPY] = arc_begin_final, [LOAD] = arc_begin_resume},
    [COPY] = {[HALT] = arc_end_final},
    [PRE] = {[RUN] = arc_end_early, [COPY] = arc_finish_early},
    [LOAD] = {[HALT] = arc_end_resume},
};

static int set_state(VfioUserServer *server, uint32_t wanted)
{
    VfioUserMigration *m = &server->migration;

    if (wanted >= STATES || next_state[m->state][wanted] == VFIO_DEVICE_STATE_ERROR) {
        return EINVAL;
    }
    while (m->state != wanted && m->state != VFIO_DEVICE_STATE_ERROR) {
        uint32_t from = m->state;

        m->state = arcs[from][next_state[from][wanted]](server);
        trace_vfio_user_set_state(state_names[from], state_names[m->state]);
    }
    return m->state == wanted ? 0 : EINVAL;
}

/* --- features --- */

/* A feature's head and data. */
static void append_feature(VfioUserReply *reply, uint32_t flags, const void *data, size_t size)
{
    const struct vfio_device_feature head = {
        .argsz = (uint32_t)(sizeof(head) + size),
        .flags = flags,
    };

    g_byte_array_append(reply->data, (const guint8 *)&head, sizeof(head));
    g_byte_array_append(reply->data, data, (guint)size);
}

int vfio_user_migration_run_flags(VfioUserServer *server, VfioUserMessage *message,
                                  VfioUserReply *reply)
{
    const struct vfio_device_feature_migration data = {
        .flags = VFIO_MIGRATION_STOP_COPY | VFIO_MIGRATION_PRE_COPY,
    };
    struct vfio_device_feature head;

    memcpy(&head, message->payload, sizeof(head));
    if (head.argsz < sizeof(head) + sizeof(data)) {
        return EINVAL;
    }
    append_feature(reply, head.flags, &data, sizeof(data));
    return 0;
}

int vfio_user_migration_run_state(VfioUserServer *server, VfioUserMessage *message,
                                  VfioUserReply *reply)
{
    struct vfio_device_feature_mig_state data;
    struct vfio_device_feature head;
    uint8_t *from;
    size_t have = vfio_user_feature_data(message, &from);
    int error;

    memcpy(&head, message->payload, sizeof(head));
    if (head.argsz < sizeof(head) + sizeof(data)) {
        return EINVAL;
    }
    if (head.flags & VFIO_DEVICE_FEATURE_GET) {
        data = (struct vfio_device_feature_mig_state){.device_state = server->migration.state,
                                                      .data_fd = -1};
        append_feature(reply, head.flags, &data, sizeof(data));
        return 0;
    }
    if (have < sizeof(data)) {
        return EINVAL;
    }
    memcpy(&data, from, sizeof(data));
    error = set_state(server, data.device_state);
    g_byte_array_append(reply->data, message->payload, (guint)message->size);
    return error;
}

/* --- data --- */

int vfio_user_migration_read(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    VfioUserMigration *m = &server->migration;
    VfioUserMigData request;

    if (!vfio_user_migration_available(server)) {
        return EOPNOTSUPP;
    }
    memcpy(&request, message->payload, sizeof(request));
    if (!m->out || request.size > MIN(server->peer_max_xfer, SERVER_MAX_XFER) ||
        request.argsz < sizeof(request) || request.argsz - sizeof(request) < request.size) {
        return EINVAL;
    }
    request.size = (uint32_t)MIN(request.size, m->out->len - m->out_done);
    request.argsz = (uint32_t)(sizeof(request) + request.size);
    g_byte_array_append(reply->data, (const guint8 *)&request, sizeof(request));
    g_byte_array_append(reply->data, m->out->data + m->out_done, request.size);
    m->out_done += request.size;
    return 0;
}

int vfio_user_migration_write(VfioUserServer *server, VfioUserMessage *message,
                              VfioUserReply *reply)
{
    VfioUserMigration *m = &server->migration;
    VfioUserMigData request;
    GError *err = NULL;

    if (!vfio_user_migration_available(server)) {
        return EOPNOTSUPP;
    }
    memcpy(&request, message->payload, sizeof(request));
    if (!m->in || m->bad || request.size != message->size - sizeof(request)) {
        return EINVAL;
    }
    g_byte_array_append(m->in, message->payload + sizeof(request), request.size);
    if (!resume_parse(server, &err)) {
        report_bad(server, err);
        return EINVAL;
    }
    return 0;
}

/* --- life --- */

void vfio_user_migration_init(VfioUserServer *server)
{
    server->migration.state = VFIO_DEVICE_STATE_RUNNING;
}

void vfio_user_migration_reset(VfioUserServer *server)
{
    session_end(server);
    server->migration.state = VFIO_DEVICE_STATE_RUNNING;
    server->migration.restored = false;
    device_go_on(server);
}

void vfio_user_migration_restored(VfioUserServer *server, bool failed)
{
    session_end(server);
    device_halt(server);
    server->migration.state = failed ? VFIO_DEVICE_STATE_ERROR : VFIO_DEVICE_STATE_STOP;
    server->migration.restored = true;
}
