/*
 * query-pci, "info pci" and "info mtree": what is plugged in and where it answers.
 *
 * Buses are found in the composition tree; what is told of a device is read from its
 * configuration space, as a guest would.  Nothing is changed.
 */
#include <string.h>

#include "hw/core/machine.h"
#include "hw/pci/pci.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "system.h"
#include "util/error.h"

/* PCI-to-PCI bridge windows count in units of 4 KiB (I/O) and 1 MiB (memory):
 * PCI-to-PCI bridge specification 1.2, section 3.2.5. */
#define IO_WINDOW_MASK     0xf0
#define MEMORY_WINDOW_MASK 0xfff0

static const struct {
    uint16_t class_id;
    const char *name;
} class_names[] = {
    {0x0200, "Ethernet controller"}, {0x0600, "Host bridge"},        {0x0601, "ISA bridge"},
    {0x0604, "PCI bridge"},          {0x0280, "Network controller"},
};

static const char *class_name(uint16_t class_id)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(class_names); i++) {
        if (class_names[i].class_id == class_id) {
            return class_names[i].name;
        }
    }
    return NULL;
}

static PciDeviceInfoList *bus_devices(PCIBus *bus);

static PciMemoryRange *memory_range(uint64_t base, uint64_t limit)
{
    PciMemoryRange *range = g_new0(PciMemoryRange, 1);

    range->base = (int64_t)base;
    range->limit = (int64_t)limit;
    return range;
}

static PciMemoryRange *io_window(const uint8_t *config)
{
    uint64_t base = (uint64_t)(config[PCI_IO_BASE] & IO_WINDOW_MASK) << 8;
    uint64_t limit = (uint64_t)(config[PCI_IO_LIMIT] & IO_WINDOW_MASK) << 8 | 0xfff;

    if ((config[PCI_IO_BASE] & PCI_IO_RANGE_TYPE_MASK) == PCI_IO_RANGE_TYPE_32) {
        base |= (uint64_t)pci_get_word(config + PCI_IO_BASE_UPPER16) << 16;
        limit |= (uint64_t)pci_get_word(config + PCI_IO_LIMIT_UPPER16) << 16;
    }
    return memory_range(base, limit);
}

static PciMemoryRange *memory_window(const uint8_t *config)
{
    return memory_range(
        (uint64_t)(pci_get_word(config + PCI_MEMORY_BASE) & MEMORY_WINDOW_MASK) << 16,
        (uint64_t)(pci_get_word(config + PCI_MEMORY_LIMIT) & MEMORY_WINDOW_MASK) << 16 | 0xfffff);
}

static PciMemoryRange *prefetchable_window(const uint8_t *config)
{
    uint16_t low = pci_get_word(config + PCI_PREF_MEMORY_BASE);
    uint64_t base = (uint64_t)(low & MEMORY_WINDOW_MASK) << 16;
    uint64_t limit = (uint64_t)(pci_get_word(config + PCI_PREF_MEMORY_LIMIT) & MEMORY_WINDOW_MASK)
                         << 16 |
                     0xfffff;

    if ((low & PCI_PREF_RANGE_TYPE_MASK) == PCI_PREF_RANGE_TYPE_64) {
        base |= (uint64_t)pci_get_long(config + PCI_PREF_BASE_UPPER32) << 32;
        limit |= (uint64_t)pci_get_long(config + PCI_PREF_LIMIT_UPPER32) << 32;
    }
    return memory_range(base, limit);
}

/* The bus behind a bridge, or NULL. */
static PCIBus *secondary_bus(PCIDevice *dev)
{
    GPtrArray *buses = dev->parent_obj.child_buses;

    for (unsigned i = 0; buses && i < buses->len; i++) {
        if (IS_PCI_BUS(buses->pdata[i])) {
            return buses->pdata[i];
        }
    }
    return NULL;
}

static PciBridgeInfo *bridge_info(PCIDevice *dev)
{
    PciBridgeInfo *info = g_new0(PciBridgeInfo, 1);
    const uint8_t *config = dev->config;
    PCIBus *bus = secondary_bus(dev);

    info->bus = g_new0(PciBusInfo, 1);
    info->bus->number = config[PCI_PRIMARY_BUS];
    info->bus->secondary = config[PCI_SECONDARY_BUS];
    info->bus->subordinate = config[PCI_SUBORDINATE_BUS];
    info->bus->io_range = io_window(config);
    info->bus->memory_range = memory_window(config);
    info->bus->prefetchable_range = prefetchable_window(config);
    if (bus && config[PCI_SECONDARY_BUS]) {
        info->devices = bus_devices(bus);
    }
    return info;
}

static PciMemoryRegionList *device_regions(const PCIDevice *dev)
{
    PciMemoryRegionList *list = NULL, **tail = &list;

    for (unsigned n = 0; n < PCI_NUM_BARS; n++) {
        const PciBar *bar = &dev->bars[n];
        if (!bar->region) {
            continue;
        }
        PciMemoryRegion *region = g_new0(PciMemoryRegion, 1);
        bool is_io = bar->type & PCI_BASE_ADDRESS_SPACE_IO;
        region->bar = n;
        region->type = g_strdup(is_io ? "io" : "memory");
        region->address = (int64_t)bar->mapped_at;
        region->size = (int64_t)bar->size;
        if (!is_io) {
            region->has_prefetch = region->has_mem_type_64 = true;
            region->prefetch = bar->type & PCI_BASE_ADDRESS_MEM_PREFETCH;
            region->mem_type_64 = bar->type & PCI_BASE_ADDRESS_MEM_TYPE_64;
        }
        QAPI_LIST_APPEND(tail, region);
    }
    return list;
}

static PciDeviceInfo *device_info(PCIDevice *dev)
{
    PciDeviceInfo *info = g_new0(PciDeviceInfo, 1);
    const uint8_t *config = dev->config;
    bool is_bridge = (config[PCI_HEADER_TYPE] & 0x7f) == PCI_HEADER_TYPE_BRIDGE;

    info->bus = dev->bus->number;
    info->slot = PCI_SLOT((unsigned)dev->devfn);
    info->function = PCI_FUNC((unsigned)dev->devfn);
    info->class_info = g_new0(PciDeviceClass, 1);
    info->class_info->class = pci_get_word(config + PCI_CLASS_DEVICE);
    info->class_info->desc = g_strdup(class_name((uint16_t)info->class_info->class));
    info->id = g_new0(PciDeviceId, 1);
    info->id->vendor = pci_get_word(config + PCI_VENDOR_ID);
    info->id->device = pci_get_word(config + PCI_DEVICE_ID);
    if (!is_bridge) {
        info->id->has_subsystem = info->id->has_subsystem_vendor = true;
        info->id->subsystem = pci_get_word(config + PCI_SUBSYSTEM_ID);
        info->id->subsystem_vendor = pci_get_word(config + PCI_SUBSYSTEM_VENDOR_ID);
    }
    info->irq_pin = config[PCI_INTERRUPT_PIN];
    if (info->irq_pin) {
        info->has_irq = true;
        info->irq = config[PCI_INTERRUPT_LINE];
    }
    info->qdev_id = g_strdup(dev->parent_obj.id ? dev->parent_obj.id : "");
    info->regions = device_regions(dev);
    if (is_bridge) {
        info->pci_bridge = bridge_info(dev);
    }
    return info;
}

static PciDeviceInfoList *bus_devices(PCIBus *bus)
{
    PciDeviceInfoList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        PCIDevice *dev = bus->devices[i];
        if (dev && dev->parent_obj.realized && dev->config) {
            QAPI_LIST_APPEND(tail, device_info(dev));
        }
    }
    return list;
}

/* Root buses under @obj: those whose owner is no PCI device. */
static void add_root_buses(Object *obj, PciInfoList ***tail)
{
    if (IS_PCI_BUS(obj) && !(BUS(obj)->owner && IS_PCI_DEVICE(BUS(obj)->owner))) {
        PciInfo *info = g_new0(PciInfo, 1);
        info->bus = PCI_BUS(obj)->number;
        info->devices = bus_devices(PCI_BUS(obj));
        QAPI_LIST_APPEND(*tail, info);
    }
    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        add_root_buses(g_ptr_array_index(obj->children, i), tail);
    }
}

PciInfoList *qmp_query_pci(GError **errp)
{
    PciInfoList *list = NULL, **tail = &list;

    add_root_buses(qom_container("/machine"), &tail);
    return list;
}

/* ---- info pci ---- */

static void print_range(GString *out, const char *what, const PciMemoryRange *range)
{
    g_string_append_printf(out, "      %s range [0x%08" PRIx64 ", 0x%08" PRIx64 "]\r\n", what,
                           range->base, range->limit);
}

static void print_region(GString *out, const PciMemoryRegion *region)
{
    g_string_append_printf(out, "      BAR%" PRId64 ": ", region->bar);
    if (!strcmp(region->type, "io")) {
        g_string_append_printf(out, "I/O at 0x%04" PRIx64 " [0x%04" PRIx64 "].\r\n",
                               (uint64_t)region->address & 0xffff,
                               (uint64_t)(region->address + region->size - 1) & 0xffff);
        return;
    }
    g_string_append_printf(out, "%d bit%s memory at 0x%08" PRIx64 " [0x%08" PRIx64 "].\r\n",
                           region->mem_type_64 ? 64 : 32, region->prefetch ? " prefetchable" : "",
                           (uint64_t)region->address,
                           (uint64_t)(region->address + region->size - 1));
}

static void print_devices(GString *out, const PciDeviceInfoList *list)
{
    for (; list; list = list->next) {
        const PciDeviceInfo *dev = list->value;
        const PciDeviceClass *class_info = dev->class_info;
        g_string_append_printf(
            out, "  Bus %2" PRId64 ", device %3" PRId64 ", function %" PRId64 ":\r\n    ", dev->bus,
            dev->slot, dev->function);
        if (class_info->desc) {
            g_string_append(out, class_info->desc);
        } else {
            g_string_append_printf(out, "Class %04" PRIx64, class_info->class);
        }
        g_string_append_printf(out, ": PCI device %04" PRIx64 ":%04" PRIx64 "\r\n", dev->id->vendor,
                               dev->id->device);
        if (dev->id->has_subsystem) {
            g_string_append_printf(out, "      PCI subsystem %04" PRIx64 ":%04" PRIx64 "\r\n",
                                   dev->id->subsystem_vendor, dev->id->subsystem);
        }
        if (dev->has_irq) {
            g_string_append_printf(out, "      IRQ %" PRId64 ", pin %c\r\n", dev->irq,
                                   (char)('A' + dev->irq_pin - 1));
        }
        if (dev->pci_bridge) {
            const PciBusInfo *bus = dev->pci_bridge->bus;
            g_string_append_printf(out,
                                   "      BUS %" PRId64 ".\r\n      secondary bus %" PRId64
                                   ".\r\n      subordinate bus %" PRId64 ".\r\n",
                                   bus->number, bus->secondary, bus->subordinate);
            print_range(out, "IO", bus->io_range);
            print_range(out, "memory", bus->memory_range);
            print_range(out, "prefetchable memory", bus->prefetchable_range);
        }
        for (PciMemoryRegionList *r = dev->regions; r; r = r->next) {
            print_region(out, r->value);
        }
        g_string_append_printf(out, "      id \"%s\"\r\n", dev->qdev_id);
        if (dev->pci_bridge) {
            print_devices(out, dev->pci_bridge->devices);
        }
    }
}

void hmp_info_pci(const char *args, GString *out)
{
    PciInfoList *list = qmp_query_pci(NULL);

    for (PciInfoList *l = list; l; l = l->next) {
        print_devices(out, l->value->devices);
    }
    if (!list) {
        g_string_append(out, "PCI is not available on this machine\r\n");
    }
    qapi_free_PciInfoList(list);
}

/* ---- info mtree ---- */

static void print_region_tree(GString *out, uint64_t base, const IoRegion *region, int priority,
                              unsigned indent)
{
    g_string_append_printf(out, "%*s%016" PRIx64 "-%016" PRIx64 " (prio %d, %s): %s\r\n",
                           (int)indent, "", base, base + region->size - 1, priority,
                           region->ops ? "i/o" : "container", region->name);
    for (unsigned i = 0; region->children && i < region->children->len; i++) {
        const IoChild *child = &g_array_index(region->children, IoChild, i);
        print_region_tree(out, base + child->offset, child->region, 0, indent + 2);
    }
}

static void print_space(GString *out, const IoSpace *space)
{
    for (unsigned i = 0; space->mappings && i < space->mappings->len; i++) {
        const IoMapping *mapping = &g_array_index(space->mappings, IoMapping, i);
        print_region_tree(out, mapping->base, mapping->region, mapping->priority, 4);
    }
}

void hmp_info_mtree(const char *args, GString *out)
{
    const MachineState *machine = current_machine;

    if (!machine || !machine->memory) {
        return;
    }
    g_string_append(out, "address-space: memory\r\n");
    for (unsigned i = 0; i < machine->memory->count; i++) {
        const MemoryRange *range = &machine->memory->ranges[i];
        g_string_append_printf(out, "    %016" PRIx64 "-%016" PRIx64 " (prio 0, %s): ram\r\n",
                               range->addr, range->addr + range->size - 1,
                               range->flags & MEMORY_READONLY ? "rom" : "ram");
    }
    print_space(out, &machine->mmio);
    g_string_append(out, "\r\naddress-space: I/O\r\n");
    print_space(out, &machine->ports);
}
