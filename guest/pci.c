/*
 * PCI from the guest's side: see pci.h.
 *
 * BARs are placed upwards from the start of each window, aligned to their size, and never given
 * back.  Expansion ROMs are left unmapped.
 */
#include "guest/pci.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <linux/pci_regs.h>
#include <string.h>

#define CONFIG_ADDRESS 0xCF8
#define CONFIG_DATA    0xCFC
#define MSIX_ENTRY     16
#define MAX_CAPS       48 /* 192 bytes of capabilities, 4 each: a longer list has a loop */

/* --- over qtest --- */

static void select_register(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, uint8_t offset)
{
    uint32_t address =
        0x80000000u | (uint32_t)bus_number << 16 | (uint32_t)devfn << 8 | (offset & 0xFCu);
    qtest_client_out(bus->qtest, 4, CONFIG_ADDRESS, address);
}

static uint32_t qtest_config_read(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn,
                                  unsigned width, uint8_t offset)
{
    select_register(bus, bus_number, devfn, offset);
    return qtest_client_in(bus->qtest, width, CONFIG_DATA + (offset & 3));
}

static void qtest_config_write(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                               uint8_t offset, uint32_t value)
{
    select_register(bus, bus_number, devfn, offset);
    qtest_client_out(bus->qtest, width, CONFIG_DATA + (offset & 3), value);
}

static uint64_t qtest_bar_read(GuestPciDevice *device, unsigned bar, unsigned width,
                               uint64_t offset)
{
    const GuestPciBar *b = &device->bars[bar];
    if (b->is_io) {
        return qtest_client_in(device->bus->qtest, width, (uint16_t)(b->addr + offset));
    }
    return qtest_client_load(device->bus->qtest, width, b->addr + offset);
}

static void qtest_bar_write(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                            uint64_t value)
{
    const GuestPciBar *b = &device->bars[bar];
    if (b->is_io) {
        qtest_client_out(device->bus->qtest, width, (uint16_t)(b->addr + offset), (uint32_t)value);
    } else {
        qtest_client_store(device->bus->qtest, width, b->addr + offset, value);
    }
}

static void qtest_bar_post(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                           uint64_t value)
{
    const GuestPciBar *b = &device->bars[bar];
    if (b->is_io) {
        qtest_bar_write(device, bar, width, offset, value);
    } else {
        qtest_client_post_store(device->bus->qtest, width, b->addr + offset, value);
    }
}

static bool qtest_check(GuestPciBus *bus, GError **errp)
{
    return qtest_client_check(bus->qtest, errp);
}

static bool qtest_is_broken(GuestPciBus *bus)
{
    return qtest_client_is_broken(bus->qtest);
}

static const GuestPciOps qtest_ops = {
    .config_read = qtest_config_read,
    .config_write = qtest_config_write,
    .bar_read = qtest_bar_read,
    .bar_write = qtest_bar_write,
    .bar_post = qtest_bar_post,
    .check = qtest_check,
    .is_broken = qtest_is_broken,
};

/* --- the bus --- */

void guest_pci_bus_init_ops(GuestPciBus *bus, const GuestPciOps *ops, void *opaque)
{
    *bus = (GuestPciBus){
        .ops = ops,
        .opaque = opaque,
        .next_mmio = GUEST_PCI_MMIO_BASE,
        .next_io = GUEST_PCI_IO_BASE,
    };
}

void guest_pci_bus_init(GuestPciBus *bus, QtestClient *qtest)
{
    guest_pci_bus_init_ops(bus, &qtest_ops, NULL);
    bus->qtest = qtest;
}

uint32_t guest_pci_bus_read(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                            uint8_t offset)
{
    return bus->ops->config_read(bus, bus_number, devfn, width, offset);
}

void guest_pci_bus_write(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                         uint8_t offset, uint32_t value)
{
    bus->ops->config_write(bus, bus_number, devfn, width, offset, value);
}

bool guest_pci_check(GuestPciDevice *device, GError **errp)
{
    return device->bus->ops->check(device->bus, errp);
}

bool guest_pci_is_broken(GuestPciDevice *device)
{
    return device->bus->ops->is_broken(device->bus);
}

/* --- a device --- */

uint32_t guest_pci_config_read(GuestPciDevice *device, unsigned width, uint8_t offset)
{
    return guest_pci_bus_read(device->bus, device->bus_number, device->devfn, width, offset);
}

void guest_pci_config_write(GuestPciDevice *device, unsigned width, uint8_t offset, uint32_t value)
{
    guest_pci_bus_write(device->bus, device->bus_number, device->devfn, width, offset, value);
}

uint8_t guest_pci_find_capability(GuestPciDevice *device, uint8_t id, uint8_t after)
{
    if (!(guest_pci_config_read(device, 2, PCI_STATUS) & PCI_STATUS_CAP_LIST)) {
        return 0;
    }
    uint8_t link = after ? (uint8_t)(after + PCI_CAP_LIST_NEXT) : PCI_CAPABILITY_LIST;
    for (unsigned i = 0; i < MAX_CAPS; i++) {
        uint8_t offset = guest_pci_config_read(device, 1, link) & 0xFC;
        if (offset < PCI_STD_HEADER_SIZEOF) {
            return 0;
        }
        if (guest_pci_config_read(device, 1, offset + PCI_CAP_LIST_ID) == id) {
            return offset;
        }
        link = offset + PCI_CAP_LIST_NEXT;
    }
    return 0;
}

static void find_msix(GuestPciDevice *device)
{
    device->msix_cap = guest_pci_find_capability(device, PCI_CAP_ID_MSIX, 0);
    if (!device->msix_cap) {
        return;
    }
    uint8_t cap = device->msix_cap;
    uint32_t table = guest_pci_config_read(device, 4, cap + PCI_MSIX_TABLE);
    uint32_t pba = guest_pci_config_read(device, 4, cap + PCI_MSIX_PBA);
    device->msix_vectors =
        (guest_pci_config_read(device, 2, cap + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_QSIZE) + 1;
    device->msix_table_bar = table & PCI_MSIX_TABLE_BIR;
    device->msix_table_offset = table & PCI_MSIX_TABLE_OFFSET;
    device->msix_pba_bar = pba & PCI_MSIX_PBA_BIR;
    device->msix_pba_offset = pba & PCI_MSIX_PBA_OFFSET;
}

/* Reads identity and capabilities of what sits at @devfn; false: nothing does. */
static bool identify(GuestPciDevice *device, GuestPciBus *bus, uint8_t devfn)
{
    *device = (GuestPciDevice){.bus = bus, .devfn = devfn};
    uint32_t id = guest_pci_config_read(device, 4, PCI_VENDOR_ID);
    if (id == 0xFFFFFFFFu || id == 0) {
        return false;
    }
    device->vendor_id = (uint16_t)id;
    device->device_id = (uint16_t)(id >> 16);
    device->revision = (uint8_t)guest_pci_config_read(device, 1, PCI_REVISION_ID);
    uint32_t subsystem = guest_pci_config_read(device, 4, PCI_SUBSYSTEM_VENDOR_ID);
    device->subsystem_vendor_id = (uint16_t)subsystem;
    device->subsystem_id = (uint16_t)(subsystem >> 16);
    return true;
}

GuestPciDevice *guest_pci_device_open(GuestPciBus *bus, uint8_t devfn, GError **errp)
{
    g_autofree GuestPciDevice *device = g_new0(GuestPciDevice, 1);
    if (!identify(device, bus, devfn)) {
        if (bus->ops->check(bus, errp)) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NOT_FOUND, "no PCI device at 00:%02x.%u",
                        devfn >> 3, devfn & 7);
        }
        return NULL;
    }
    find_msix(device);
    return g_steal_pointer(&device);
}

GuestPciDevice *guest_pci_device_find(GuestPciBus *bus, GuestPciMatch *match, void *opaque,
                                      unsigned nth, GError **errp)
{
    for (unsigned devfn = 0; devfn < 256; devfn++) {
        GuestPciDevice device;
        bool present = identify(&device, bus, (uint8_t)devfn);
        if (present && match(&device, opaque) && nth-- == 0) {
            return guest_pci_device_open(bus, (uint8_t)devfn, errp);
        }
        bool multifunction = present && guest_pci_config_read(&device, 1, PCI_HEADER_TYPE) & 0x80;
        if ((devfn & 7) == 0 && !multifunction) {
            devfn += 7;
        }
        if (bus->ops->is_broken(bus)) {
            break;
        }
    }
    if (bus->ops->check(bus, errp)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NOT_FOUND, "no such PCI device on bus 0");
    }
    return NULL;
}

bool guest_pci_match_virtio_net(const GuestPciDevice *device, void *opaque)
{
    return device->vendor_id == 0x1AF4 &&
           (device->device_id == 0x1000 || device->device_id == 0x1041);
}

/* Sizes BAR @index (and the next one, when it is 64 bits wide). */
static void size_bar(GuestPciDevice *device, unsigned index)
{
    GuestPciBar *bar = &device->bars[index];
    uint8_t offset = (uint8_t)(PCI_BASE_ADDRESS_0 + 4 * index);
    guest_pci_config_write(device, 4, offset, 0xFFFFFFFFu);
    uint32_t low = guest_pci_config_read(device, 4, offset);
    if (low == 0) {
        return;
    }
    bar->is_io = low & PCI_BASE_ADDRESS_SPACE_IO;
    if (bar->is_io) {
        bar->size = (~(low & 0xFFFCu) + 1u) & 0xFFFFu;
        return;
    }
    bar->is_prefetchable = low & PCI_BASE_ADDRESS_MEM_PREFETCH;
    bar->is_64bit = (low & PCI_BASE_ADDRESS_MEM_TYPE_MASK) == PCI_BASE_ADDRESS_MEM_TYPE_64;
    uint64_t mask = 0xFFFFFFFF00000000ull | (low & ~0xFu);
    if (bar->is_64bit && index < 5) {
        guest_pci_config_write(device, 4, offset + 4, 0xFFFFFFFFu);
        mask = (uint64_t)guest_pci_config_read(device, 4, offset + 4) << 32 | (low & ~0xFu);
    }
    bar->size = ~mask + 1;
}

static bool place_bar(GuestPciDevice *device, unsigned index, GError **errp)
{
    GuestPciBar *bar = &device->bars[index];
    uint32_t *next = bar->is_io ? &device->bus->next_io : &device->bus->next_mmio;
    uint64_t end = bar->is_io ? GUEST_PCI_IO_END : GUEST_PCI_MMIO_END;
    uint64_t addr = ((uint64_t)*next + bar->size - 1) & ~(bar->size - 1);
    if (bar->size > end || addr + bar->size > end) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NO_SPACE,
                    "BAR%u of 0x%" PRIx64 " bytes does not fit into the PCI window", index,
                    bar->size);
        return false;
    }
    bar->addr = addr;
    *next = (uint32_t)(addr + bar->size);
    uint8_t offset = (uint8_t)(PCI_BASE_ADDRESS_0 + 4 * index);
    guest_pci_config_write(device, 4, offset, (uint32_t)addr);
    if (bar->is_64bit) {
        guest_pci_config_write(device, 4, offset + 4, (uint32_t)(addr >> 32));
    }
    return true;
}

bool guest_pci_device_enable(GuestPciDevice *device, GError **errp)
{
    uint32_t command = guest_pci_config_read(device, 2, PCI_COMMAND);
    command &= ~(uint32_t)(PCI_COMMAND_IO | PCI_COMMAND_MEMORY);
    guest_pci_config_write(device, 2, PCI_COMMAND, command);
    memset(device->bars, 0, sizeof(device->bars));
    for (unsigned i = 0; i < 6; i++) {
        size_bar(device, i);
        if (device->bars[i].size && !place_bar(device, i, errp)) {
            return false;
        }
        i += device->bars[i].is_64bit;
    }
    command |= PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    guest_pci_config_write(device, 2, PCI_COMMAND, command);
    return guest_pci_check(device, errp);
}

void guest_pci_set_bus_master(GuestPciDevice *device, bool on)
{
    uint32_t command = guest_pci_config_read(device, 2, PCI_COMMAND);
    command = on ? command | PCI_COMMAND_MASTER : command & ~(uint32_t)PCI_COMMAND_MASTER;
    guest_pci_config_write(device, 2, PCI_COMMAND, command);
}

uint64_t guest_pci_bar_read(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset)
{
    return device->bus->ops->bar_read(device, bar, width, offset);
}

void guest_pci_bar_write(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                         uint64_t value)
{
    device->bus->ops->bar_write(device, bar, width, offset, value);
}

void guest_pci_bar_post(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                        uint64_t value)
{
    device->bus->ops->bar_post(device, bar, width, offset, value);
}

static void table_write(GuestPciDevice *device, unsigned vector, unsigned field, uint32_t value)
{
    guest_pci_bar_write(device, device->msix_table_bar, 4,
                        device->msix_table_offset + vector * MSIX_ENTRY + field, value);
}

bool guest_pci_msix_set_vector(GuestPciDevice *device, unsigned vector, uint64_t addr,
                               uint32_t data, GError **errp)
{
    if (!device->msix_cap || vector >= device->msix_vectors) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "MSI-X vector %u: the device has %u", vector, device->msix_vectors);
        return false;
    }
    table_write(device, vector, PCI_MSIX_ENTRY_VECTOR_CTRL, PCI_MSIX_ENTRY_CTRL_MASKBIT);
    table_write(device, vector, PCI_MSIX_ENTRY_LOWER_ADDR, (uint32_t)addr);
    table_write(device, vector, PCI_MSIX_ENTRY_UPPER_ADDR, (uint32_t)(addr >> 32));
    table_write(device, vector, PCI_MSIX_ENTRY_DATA, data);
    table_write(device, vector, PCI_MSIX_ENTRY_VECTOR_CTRL, 0);
    return guest_pci_check(device, errp);
}

void guest_pci_msix_set_mask(GuestPciDevice *device, unsigned vector, bool masked)
{
    table_write(device, vector, PCI_MSIX_ENTRY_VECTOR_CTRL,
                masked ? PCI_MSIX_ENTRY_CTRL_MASKBIT : 0);
}

bool guest_pci_msix_is_pending(GuestPciDevice *device, unsigned vector)
{
    uint64_t word = guest_pci_bar_read(device, device->msix_pba_bar, 4,
                                       device->msix_pba_offset + vector / 32 * 4);
    return word >> (vector % 32) & 1;
}

static void set_msix_flag(GuestPciDevice *device, uint32_t flag, bool on)
{
    uint8_t offset = device->msix_cap + PCI_MSIX_FLAGS;
    uint32_t flags = guest_pci_config_read(device, 2, offset);
    guest_pci_config_write(device, 2, offset, on ? flags | flag : flags & ~flag);
}

void guest_pci_msix_set_enabled(GuestPciDevice *device, bool on)
{
    set_msix_flag(device, PCI_MSIX_FLAGS_ENABLE, on);
}

void guest_pci_msix_set_function_mask(GuestPciDevice *device, bool on)
{
    set_msix_flag(device, PCI_MSIX_FLAGS_MASKALL, on);
}
