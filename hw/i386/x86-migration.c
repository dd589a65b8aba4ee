/*
 * What migration asks of a machine (include/migration/host.h): its RAM, and the devices that have
 * something to save, in the order that they are saved and loaded in.
 *
 * A machine that has a device without a table cannot be migrated, and says which one.
 */
#include <string.h>

#include "hw/core/failover.h"
#include "hw/core/machine.h"
#include "hw/core/memory-backend.h"
#include "hw/i386/pc.h"
#include "hw/virtio/device-vmstate.h"
#include "hw/virtio/vhost.h"
#include "migration/host.h"

static const char *machine_name(void)
{
    return MACHINE_GET_CLASS(current_machine)->name;
}

/* The back end that a piece of RAM belongs to. */
static MemoryBackend *backend_of(const MemoryRange *range)
{
    for (unsigned i = 0; i < current_machine->ram->len; i++) {
        MemoryBackend *backend = g_ptr_array_index(current_machine->ram, i);

        if (range->host >= backend->host && range->host < backend->host + backend->size) {
            return backend;
        }
    }
    return NULL;
}

static GArray *machine_ram(void)
{
    GArray *list = g_array_new(FALSE, TRUE, sizeof(MigrationRamRange));
    const MemoryMap *map = current_machine->memory;

    for (unsigned i = 0; i < map->count; i++) {
        const MemoryRange *range = &map->ranges[i];
        MemoryBackend *backend = backend_of(range);

        if (!backend) {
            continue;
        }
        MigrationRamRange piece = {
            .block = OBJECT(backend)->name,
            .offset = (uint64_t)(range->host - backend->host),
            .addr = range->addr,
            .size = range->size,
            .host = range->host,
            .shared = backend->share,
            .readonly = (range->flags & MEMORY_READONLY) != 0,
        };
        g_array_append_val(list, piece);
    }
    return list;
}

static Object *host_object(void)
{
    Object *machine = OBJECT(current_machine);
    Object *host = object_child(machine, "i440fx");

    return host ? host : object_child(machine, "q35");
}

static const VMStateDescription *board_vmsd(void)
{
    return MACHINE_GET_CLASS(current_machine)->vmsd;
}

/* The board and bridges first: a device's interrupt and accesses go by routes that are in place
 * then. */
static GArray *machine_devices(void)
{
    GArray *list = migration_devices_new();

    if (board_vmsd()) {
        migration_devices_add(list, g_strdup(board_vmsd()->name), board_vmsd(), current_machine);
    }
    if (host_object()) {
        device_vmstate_add(host_object(), list);
    }
    device_vmstate_add_bridges(OBJECT(current_machine), list);
    device_vmstate_add(qom_container("/machine/unattached"), list);
    device_vmstate_add(qom_container("/machine/peripheral"), list);
    device_vmstate_add(qom_container("/machine/peripheral-anon"), list);
    return list;
}

static gboolean machine_check(GError **errp)
{
    DeviceState *dev;

    if (!current_machine) {
        return error_set(errp, "There is no machine to migrate");
    }
    if (!host_object() && !board_vmsd()) {
        return error_set(errp, "Machine '%s' cannot be migrated",
                         MACHINE_GET_CLASS(current_machine)->name);
    }
    dev = device_vmstate_find_missing(OBJECT(current_machine));
    return !dev || error_set(errp, "State blocked by non-migratable device '%s' (%s)",
                             device_name(dev), object_type_name(OBJECT(dev)));
}

typedef struct DirtyLog {
    uint8_t *log;
    uint64_t pages;
} DirtyLog;

static void device_set_dirty_log(Object *obj, const DirtyLog *dirty)
{
    if (IS_PCI_DEVICE(obj) && DEVICE(obj)->realized) {
        PCI_DEVICE(obj)->dma.dirty_log = dirty->log;
        PCI_DEVICE(obj)->dma.dirty_pages = dirty->pages;
    }
    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        device_set_dirty_log(g_ptr_array_index(obj->children, i), dirty);
    }
}

/* Calls @drain with each device that is on no bus; it goes on to those behind. */
static void foreach_root_device(Object *obj, void (*drain)(DeviceState *dev))
{
    if (IS_DEVICE(obj) && DEVICE(obj)->realized && !DEVICE(obj)->parent_bus) {
        drain(DEVICE(obj));
    }
    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        foreach_root_device(g_ptr_array_index(obj->children, i), drain);
    }
}

/* Devices in other threads stand still while it changes. */
static void machine_set_dirty_log(uint8_t *log, uint64_t pages)
{
    foreach_root_device(OBJECT(current_machine), device_drain_begin);
    current_machine->dma.dirty_log = log;
    current_machine->dma.dirty_pages = pages;
    device_set_dirty_log(OBJECT(current_machine), &(DirtyLog){log, pages});
    vhost_set_logging(log != NULL);
    foreach_root_device(OBJECT(current_machine), device_drain_end);
}

void x86_register_migration(void)
{
    static const MigrationHost host = {
        .check = machine_check,
        .machine_name = machine_name,
        .ram = machine_ram,
        .devices = machine_devices,
        .set_dirty_log = machine_set_dirty_log,
        .unplug = failover_unplug_primaries,
        .unplugging = failover_is_unplugging,
        .replug = failover_replug_primaries,
        .lock_devices = device_lock_changes,
    };

    migration_set_host(&host);
}
