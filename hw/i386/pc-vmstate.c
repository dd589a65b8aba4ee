/*
 * Migration of PCs (`pc` and `q35`): the sections of their boards, and what migration asks of a
 * machine (include/migration/host.h).
 *
 * A machine that has a device without a table cannot be migrated, and says which one.
 */
#include <string.h>

#include "hw/core/failover.h"
#include "hw/core/memory-backend.h"
#include "hw/i386/q35.h"
#include "hw/pci/pci-vmstate.h"
#include "hw/virtio/device-vmstate.h"
#include "hw/virtio/vhost.h"
#include "migration/host.h"

#define PIRQS 4

/* --- bridges: a PCI device and nothing else --- */

typedef struct BridgeSaved {
    PciSaved pci;
    uint8_t smm;               /* i440FX: no SMM here */
    int32_t irq_levels[PIRQS]; /* PIIX3: they follow from the devices */
} BridgeSaved;

static void bridge_prepare(void *state, void *opaque)
{
    pci_saved_prepare(&((BridgeSaved *)state)->pci, PCI_DEVICE(opaque));
}

static void bridge_fill(void *state, void *opaque)
{
    pci_saved_fill(&((BridgeSaved *)state)->pci, PCI_DEVICE(opaque));
}

/* What follows from the board's own registers (interrupt routes, the ECAM window) is made as if the
 * guest had written them. */
static void bridge_apply(void *state, void *opaque)
{
    PCIDevice *dev = PCI_DEVICE(opaque);
    PCIDeviceClass *klass = PCI_DEVICE_GET_CLASS(dev);

    pci_saved_apply(&((BridgeSaved *)state)->pci, dev);
    if (klass->config_written) {
        klass->config_written(dev, 0, dev->config_size);
    }
}

#define PCI_PART                                                                                   \
    {                                                                                              \
        .name = "parent_obj", .vmsd = &vmstate_pci_device, .offset = offsetof(BridgeSaved, pci),   \
        .size = sizeof(PciSaved)                                                                   \
    }

#define BRIDGE(var, text, newest, oldest, ...)                                                     \
    const VMStateDescription var = {                                                               \
        .name = text,                                                                              \
        .version = newest,                                                                         \
        .minimum_version = oldest,                                                                 \
        .state_size = sizeof(BridgeSaved),                                                         \
        .prepare = bridge_prepare,                                                                 \
        .fill = bridge_fill,                                                                       \
        .apply = bridge_apply,                                                                     \
        .fields = (const VMStateField[]){PCI_PART, __VA_ARGS__, VMS_END},                          \
    }

BRIDGE(vmstate_i440fx, "I440FX", 3, 3, VMS_UINT8(BridgeSaved, smm));
BRIDGE(vmstate_piix3, "PIIX3", 3, 2,
       VMS_ARRAY(BridgeSaved, irq_levels, int32, .version = 3, .max = 1));
BRIDGE(vmstate_mch, "mch", 1, 1, VMS_UINT8(BridgeSaved, smm));
BRIDGE(vmstate_ich9, "ICH9LPC", 1, 1, VMS_UNUSED(1));

/* --- the host: ports --- */

typedef struct HostSaved {
    uint32_t config_address;
    uint16_t fw_cfg_item;
    uint32_t fw_cfg_offset;
    uint32_t hotplug_up, hotplug_down, hotplug_select;
} HostSaved;

static void x86_host_fill(void *state, void *opaque)
{
    HostSaved *s = state;
    X86PciHost *host = X86_PCI_HOST(opaque);

    s->config_address = host->config_address;
    s->fw_cfg_item = host->fw_cfg.selected;
    s->fw_cfg_offset = host->fw_cfg.offset;
}

static void x86_host_apply(void *state, void *opaque)
{
    const HostSaved *s = state;
    X86PciHost *host = X86_PCI_HOST(opaque);

    host->config_address = s->config_address;
    host->fw_cfg.selected = s->fw_cfg_item;
    host->fw_cfg.offset = s->fw_cfg_offset;
}

static void pc_host_fill(void *state, void *opaque)
{
    HostSaved *s = state;
    PcHost *host = opaque;

    x86_host_fill(state, opaque);
    s->hotplug_up = host->hotplug.up;
    s->hotplug_down = host->hotplug.down;
    s->hotplug_select = host->hotplug.bus_select;
}

static void pc_host_apply(void *state, void *opaque)
{
    const HostSaved *s = state;
    PcHost *host = opaque;

    x86_host_apply(state, opaque);
    host->hotplug.up = s->hotplug_up;
    host->hotplug.down = s->hotplug_down;
    host->hotplug.bus_select = s->hotplug_select;
}

#define HOST(var, text, take, put)                                                                 \
    const VMStateDescription var = {                                                               \
        .name = text,                                                                              \
        .version = 1,                                                                              \
        .minimum_version = 1,                                                                      \
        .state_size = sizeof(HostSaved),                                                           \
        .fill = take,                                                                              \
        .apply = put,                                                                              \
        .fields =                                                                                  \
            (const VMStateField[]){                                                                \
                VMS_UINT32(HostSaved, config_address),                                             \
                VMS_UINT16(HostSaved, fw_cfg_item),                                                \
                VMS_UINT32(HostSaved, fw_cfg_offset),                                              \
                VMS_UINT32(HostSaved, hotplug_up),                                                 \
                VMS_UINT32(HostSaved, hotplug_down),                                               \
                VMS_UINT32(HostSaved, hotplug_select),                                             \
                VMS_END,                                                                           \
            },                                                                                     \
    }

HOST(vmstate_pc_host, "pc-host", pc_host_fill, pc_host_apply);
HOST(vmstate_q35_host, "q35-host", x86_host_fill, x86_host_apply);

/* --- what migration asks --- */

static const char *pc_machine_name(void)
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

static GArray *pc_ram(void)
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

/* The board first: a device's interrupt goes by routes that are in place then. */
static GArray *pc_devices(void)
{
    GArray *list = migration_devices_new();

    device_vmstate_add(host_object(), list);
    device_vmstate_add(qom_container("/machine/unattached"), list);
    device_vmstate_add(qom_container("/machine/peripheral"), list);
    device_vmstate_add(qom_container("/machine/peripheral-anon"), list);
    return list;
}

static gboolean pc_check(GError **errp)
{
    DeviceState *dev;

    if (!current_machine) {
        return error_set(errp, "There is no machine to migrate");
    }
    if (!host_object()) {
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

/* Devices in other threads stand still while it changes. */
static void pc_set_dirty_log(uint8_t *log, uint64_t pages)
{
    DeviceState *host = DEVICE(host_object());

    device_drain_begin(host);
    current_machine->dma.dirty_log = log;
    current_machine->dma.dirty_pages = pages;
    device_set_dirty_log(OBJECT(current_machine), &(DirtyLog){log, pages});
    vhost_set_logging(log != NULL);
    device_drain_end(host);
}

void pc_register_migration(void)
{
    static const MigrationHost host = {
        .check = pc_check,
        .machine_name = pc_machine_name,
        .ram = pc_ram,
        .devices = pc_devices,
        .set_dirty_log = pc_set_dirty_log,
        .unplug = failover_unplug_primaries,
        .unplugging = failover_is_unplugging,
        .replug = failover_replug_primaries,
        .lock_devices = device_lock_changes,
    };

    migration_set_host(&host);
}
