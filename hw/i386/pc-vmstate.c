/*
 * Migration of the `pc` machine: the sections of its board, and what migration asks of it
 * (include/migration/host.h).
 */
#include <string.h>

#include "hw/core/memory-backend.h"
#include "hw/i386/pc.h"
#include "hw/pci/pci-vmstate.h"
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

static void bridge_apply(void *state, void *opaque)
{
    pci_saved_apply(&((BridgeSaved *)state)->pci, PCI_DEVICE(opaque));
}

#define PCI_PART                                                                                   \
    {                                                                                              \
        .name = "parent_obj", .vmsd = &vmstate_pci_device, .offset = offsetof(BridgeSaved, pci),   \
        .size = sizeof(PciSaved)                                                                   \
    }

const VMStateDescription vmstate_i440fx = {
    .name = "I440FX",
    .version = 3,
    .minimum_version = 3,
    .state_size = sizeof(BridgeSaved),
    .prepare = bridge_prepare,
    .fill = bridge_fill,
    .apply = bridge_apply,
    .fields =
        (const VMStateField[]){
            PCI_PART,
            VMS_UINT8(BridgeSaved, smm),
            VMS_END,
        },
};

const VMStateDescription vmstate_piix3 = {
    .name = "PIIX3",
    .version = 3,
    .minimum_version = 2,
    .state_size = sizeof(BridgeSaved),
    .prepare = bridge_prepare,
    .fill = bridge_fill,
    .apply = bridge_apply,
    .fields =
        (const VMStateField[]){
            PCI_PART,
            VMS_ARRAY(BridgeSaved, irq_levels, int32, .version = 3, .max = 1),
            VMS_END,
        },
};

/* --- the host: ports --- */

typedef struct HostSaved {
    uint32_t config_address;
    uint16_t fw_cfg_item;
    uint32_t fw_cfg_offset;
    uint32_t hotplug_up, hotplug_down, hotplug_select;
} HostSaved;

static void host_fill(void *state, void *opaque)
{
    HostSaved *s = state;
    const PcHost *host = opaque;

    s->config_address = host->config_address;
    s->fw_cfg_item = host->fw_cfg.selected;
    s->fw_cfg_offset = host->fw_cfg.offset;
    s->hotplug_up = host->hotplug.up;
    s->hotplug_down = host->hotplug.down;
    s->hotplug_select = host->hotplug.bus_select;
}

static void host_apply(void *state, void *opaque)
{
    const HostSaved *s = state;
    PcHost *host = opaque;

    host->config_address = s->config_address;
    host->fw_cfg.selected = s->fw_cfg_item;
    host->fw_cfg.offset = s->fw_cfg_offset;
    host->hotplug.up = s->hotplug_up;
    host->hotplug.down = s->hotplug_down;
    host->hotplug.bus_select = s->hotplug_select;
}

const VMStateDescription vmstate_pc_host = {
    .name = "pc-host",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(HostSaved),
    .fill = host_fill,
    .apply = host_apply,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(HostSaved, config_address),
            VMS_UINT16(HostSaved, fw_cfg_item),
            VMS_UINT32(HostSaved, fw_cfg_offset),
            VMS_UINT32(HostSaved, hotplug_up),
            VMS_UINT32(HostSaved, hotplug_down),
            VMS_UINT32(HostSaved, hotplug_select),
            VMS_END,
        },
};

/* --- what migration asks --- */

static const char *pc_machine_name(void)
{
    const char *name = current_machine ? MACHINE_GET_CLASS(current_machine)->name : NULL;

    return name && current_machine->ram_size ? name : NULL;
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

static void device_clear(void *data)
{
    g_free(((MigrationDevice *)data)->idstr);
}

/* How many of that name there are already. */
static uint32_t instance_of(const GArray *list, const char *idstr)
{
    uint32_t instance = 0;

    for (unsigned i = 0; i < list->len; i++) {
        instance += !strcmp(g_array_index(list, MigrationDevice, i).idstr, idstr);
    }
    return instance;
}

static void add_devices(Object *obj, GArray *list)
{
    const VMStateDescription *vmsd = IS_DEVICE(obj) ? DEVICE_GET_CLASS(obj)->vmsd : NULL;

    if (vmsd && DEVICE(obj)->realized) {
        g_autofree char *path = device_path(DEVICE(obj));
        MigrationDevice dev = {
            .idstr = path ? g_strdup_printf("%s/%s", path, vmsd->name) : g_strdup(vmsd->name),
            .vmsd = vmsd,
            .opaque = obj,
        };

        dev.instance = instance_of(list, dev.idstr);
        g_array_append_val(list, dev);
    }
    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        add_devices(g_ptr_array_index(obj->children, i), list);
    }
}

/* The board first: a device's interrupt goes by routes that are in place then. */
static GArray *pc_devices(void)
{
    GArray *list = g_array_new(FALSE, TRUE, sizeof(MigrationDevice));
    Object *machine = OBJECT(current_machine);

    g_array_set_clear_func(list, device_clear);
    add_devices(object_child(machine, "i440fx"), list);
    add_devices(qom_container("/machine/unattached"), list);
    add_devices(qom_container("/machine/peripheral"), list);
    add_devices(qom_container("/machine/peripheral-anon"), list);
    return list;
}

static PcHost *pc_host(void)
{
    return PC_HOST(object_child(OBJECT(current_machine), "i440fx"));
}

/* Devices in other threads stand still while it changes. */
static void pc_set_dirty_log(uint8_t *log, uint64_t pages)
{
    PcHost *host = pc_host();

    device_drain_begin(&host->parent_obj);
    current_machine->dma.dirty_log = log;
    current_machine->dma.dirty_pages = pages;
    for (unsigned i = 0; i < G_N_ELEMENTS(host->bus->devices); i++) {
        PCIDevice *dev = host->bus->devices[i];

        if (dev && dev->parent_obj.realized) {
            dev->dma.dirty_log = log;
            dev->dma.dirty_pages = pages;
        }
    }
    device_drain_end(&host->parent_obj);
}

void pc_register_migration(void)
{
    static const MigrationHost host = {
        .machine_name = pc_machine_name,
        .ram = pc_ram,
        .devices = pc_devices,
        .set_dirty_log = pc_set_dirty_log,
        .lock_devices = device_lock_changes,
    };

    migration_set_host(&host);
}
