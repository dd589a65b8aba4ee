/*
 * Migration of -machine vfio-user: a server process is replaced by another one.
 *
 * The stream has the devices and a section for each server, and no RAM: that is the client's, and
 * stays where it is.  Saving a server's section stops it from answering its client, because what
 * the client would be told is no longer in the stream; if the migration fails, or the VM runs
 * again, it goes on.  Loading one leaves the device standing still, in the migration state STOP:
 * its rings are in memory that a client has yet to share, and the client says RUNNING when that is
 * done.
 */
#include <string.h>

#include "hw/core/machine.h"
#include "hw/pci/pci-vmstate.h"
#include "hw/virtio/device-vmstate.h"
#include "migration/host.h"
#include "util/error.h"
#include "vfio-user-internal.h"

/* --- sections --- */

/* Interrupts that have not left: held back, masked, or without an eventfd. */
typedef struct IrqsSaved {
    uint32_t vectors;
    uint32_t pending_size; /* bytes; not in the stream */
    uint8_t pending[MSIX_VECTORS_MAX / 8];
    bool failed; /* the migration state was one that only a reset ends */
} IrqsSaved;

static void irqs_prepare(void *state, void *opaque)
{
    IrqsSaved *s = state;
    VfioUserServer *server = opaque;

    s->vectors = server->irqs[VFIO_PCI_MSIX_IRQ_INDEX].count;
    s->pending_size = (s->vectors + 7) / 8;
}

static void irqs_fill(void *state, void *opaque)
{
    IrqsSaved *s = state;
    VfioUserServer *server = opaque;

    irqs_prepare(s, server);
    for (unsigned i = 0; i < s->pending_size; i++) {
        s->pending[i] = vfio_user_irq_pending_byte(server, i * 8);
    }
    /* What a client had sent of a state that it was loading is lost with the connection. */
    s->failed = server->migration.state == VFIO_DEVICE_STATE_ERROR ||
                server->migration.state == VFIO_DEVICE_STATE_RESUMING;
}

static void irqs_apply(void *state, void *opaque)
{
    const IrqsSaved *s = state;

    for (unsigned i = 0; i < s->pending_size; i++) {
        vfio_user_irq_set_pending_byte(opaque, i * 8, s->pending[i]);
    }
}

static const VMStateField irqs_fields[] = {
    VMS_EQUAL(IrqsSaved, vectors, uint32),
    VMS_ARRAY(IrqsSaved, pending, buffer, VMS_COUNTED(IrqsSaved, pending_size)),
    VMS_BOOL(IrqsSaved, failed),
    VMS_END,
};

const VMStateDescription vfio_user_vmstate_irqs = {
    .name = "vfio-user-irqs",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(IrqsSaved),
    .prepare = irqs_prepare,
    .fill = irqs_fill,
    .apply = irqs_apply,
    .fields = irqs_fields,
};

static void server_fill(void *state, void *opaque)
{
    irqs_fill(state, opaque);
    vfio_user_server_saved(opaque);
}

static void server_apply(void *state, void *opaque)
{
    const IrqsSaved *s = state;

    vfio_user_migration_restored(opaque, s->failed);
    irqs_apply(state, opaque);
    vfio_user_server_arrived(opaque);
}

static const VMStateDescription vmstate_server = {
    .name = "vfio-user-server",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(IrqsSaved),
    .prepare = irqs_prepare,
    .fill = server_fill,
    .apply = server_apply,
    .fields = irqs_fields,
};

/* --- the machine --- */

static const char *const device_places[] = {"/machine/unattached", "/machine/peripheral",
                                            "/machine/peripheral-anon"};

static gboolean host_check(GError **errp)
{
    for (size_t i = 0; i < G_N_ELEMENTS(device_places); i++) {
        DeviceState *dev = device_vmstate_find_missing(qom_container(device_places[i]));

        if (dev) {
            return error_set(errp, "State blocked by non-migratable device '%s' (%s)",
                             device_name(dev), object_type_name(OBJECT(dev)));
        }
    }
    return TRUE;
}

static const char *host_machine_name(void)
{
    return "vfio-user";
}

static GArray *host_ram(void)
{
    return g_array_new(FALSE, TRUE, sizeof(MigrationRamRange));
}

static void add_server(VfioUserServer *server, void *opaque)
{
    migration_devices_add(opaque,
                          g_strdup_printf("%s/%s", OBJECT(server)->name, vmstate_server.name),
                          &vmstate_server, server);
}

/* Devices first: a server's section lets clients in. */
static GArray *host_devices(void)
{
    GArray *devices = migration_devices_new();

    for (size_t i = 0; i < G_N_ELEMENTS(device_places); i++) {
        device_vmstate_add(qom_container(device_places[i]), devices);
    }
    vfio_user_host_foreach_server(add_server, devices);
    return devices;
}

static void host_set_dirty_log(uint8_t *log, uint64_t pages) {}

static void host_unplug(void) {}

static bool host_unplugging(GError **errp)
{
    return false;
}

static void go_on(VfioUserServer *server, void *opaque)
{
    vfio_user_server_go_on(server);
}

/* The migration failed. */
static void host_replug(void)
{
    vfio_user_host_foreach_server(go_on, NULL);
}

void vfio_user_register_migration(void)
{
    static const MigrationHost host = {
        .check = host_check,
        .machine_name = host_machine_name,
        .ram = host_ram,
        .devices = host_devices,
        .set_dirty_log = host_set_dirty_log,
        .unplug = host_unplug,
        .unplugging = host_unplugging,
        .replug = host_replug,
        .lock_devices = device_lock_changes,
    };

    migration_set_host(&host);
}
