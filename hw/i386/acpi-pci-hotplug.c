/*
 * ACPI PCI hotplug registers at port 0xAE00, as QEMU's firmware tables use them: one bit a slot.
 *
 *   +0x00 up         slots with a device that came; reading clears
 *   +0x04 down       slots whose device is asked to go
 *   +0x08 eject      write 1 << slot: the guest let go, the device leaves
 *   +0x0c removable  slots whose devices can go at all
 *   +0x10 select     bus that the others are about; there is bus 0 only, the default
 *
 * device_del sets `down` and returns; the eject write completes it.  A machine reset does so too,
 * from a bottom half, because it walks the tree that the device would leave.
 * Not here: the general purpose event and its interrupt that would wake an operating system.
 */
#include "hw/i386/pc.h"

#define HOTPLUG_PORT 0xae00

enum {
    REG_UP = 0x00,
    REG_DOWN = 0x04,
    REG_EJECT = 0x08,
    REG_REMOVABLE = 0x0c,
    REG_SELECT = 0x10,
    REG_SIZE = 0x14,
};

static uint32_t slot_bit(const PCIDevice *dev)
{
    return 1u << PCI_SLOT((unsigned)dev->devfn);
}

static bool removable(const PCIDevice *dev)
{
    return PCI_DEVICE_GET_CLASS(dev)->parent_class.hotpluggable;
}

static uint32_t removable_slots(const PcPciHotplug *hotplug)
{
    PCIBus *bus = hotplug->host->parent_obj.bus;
    uint32_t slots = UINT32_MAX;

    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        if (bus->devices[i] && !removable(bus->devices[i])) {
            slots &= ~slot_bit(bus->devices[i]);
        }
    }
    return slots;
}

/* Function 0 goes last: it is the one that makes the others visible. */
static void slot_eject(PcPciHotplug *hotplug, unsigned slot)
{
    PCIBus *bus = hotplug->host->parent_obj.bus;

    hotplug->up &= ~(1u << slot);
    hotplug->down &= ~(1u << slot);
    for (int func = 7; func >= 0; func--) {
        PCIDevice *dev = bus->devices[PCI_DEVFN(slot, (unsigned)func)];

        if (dev && dev->parent_obj.realized && removable(dev)) {
            device_remove(&dev->parent_obj);
        }
    }
}

static uint64_t hotplug_read(void *opaque, uint64_t offset, unsigned size)
{
    PcPciHotplug *hotplug = opaque;
    uint32_t value = 0;

    if (offset == REG_SELECT) {
        return hotplug->bus_select;
    }
    if (hotplug->bus_select != 0) {
        return 0;
    }
    switch (offset) {
    case REG_UP:
        value = hotplug->up;
        hotplug->up = 0;
        break;
    case REG_DOWN:
        value = hotplug->down;
        break;
    case REG_REMOVABLE:
        value = removable_slots(hotplug);
        break;
    default:
        break;
    }
    return value;
}

static void hotplug_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    PcPciHotplug *hotplug = opaque;

    if (offset == REG_SELECT) {
        hotplug->bus_select = (uint32_t)value;
        return;
    }
    if (offset != REG_EJECT || hotplug->bus_select != 0) {
        return;
    }
    for (unsigned slot = 0; slot < 32; slot++) {
        if (value & (1u << slot)) {
            slot_eject(hotplug, slot);
        }
    }
}

static const IoOps hotplug_ops = {.read = hotplug_read, .write = hotplug_write, .max_access = 4};

static void reset_eject(void *opaque)
{
    PcPciHotplug *hotplug = opaque;

    for (unsigned slot = 0; slot < 32; slot++) {
        if (hotplug->down & (1u << slot)) {
            slot_eject(hotplug, slot);
        }
    }
}

void pc_pci_hotplug_plugged(PcPciHotplug *hotplug, PCIDevice *dev)
{
    if (dev->parent_obj.hotplugged && removable(dev)) {
        hotplug->up |= slot_bit(dev);
    }
}

void pc_pci_hotplug_unplug_request(PcPciHotplug *hotplug, PCIDevice *dev)
{
    hotplug->down |= slot_bit(dev);
}

void pc_pci_hotplug_unplugged(PcPciHotplug *hotplug, PCIDevice *dev)
{
    PCIBus *bus = hotplug->host->parent_obj.bus;
    unsigned slot = PCI_SLOT((unsigned)dev->devfn);

    for (unsigned func = 0; func < 8; func++) {
        if (bus->devices[PCI_DEVFN(slot, func)]) {
            return;
        }
    }
    hotplug->up &= ~(1u << slot);
    hotplug->down &= ~(1u << slot);
}

void pc_pci_hotplug_reset(PcPciHotplug *hotplug)
{
    hotplug->up = 0;
    hotplug->bus_select = 0;
    if (hotplug->down) {
        bh_schedule(hotplug->reset_bh);
    }
}

void pc_pci_hotplug_init(PcPciHotplug *hotplug, PcHost *host, IoSpace *ports)
{
    hotplug->host = host;
    hotplug->reset_bh = bh_new(event_loop_main(), reset_eject, hotplug);
    io_region_init(&hotplug->region, "acpi-pci-hotplug", REG_SIZE, &hotplug_ops, hotplug);
    io_space_map(ports, HOTPLUG_PORT, &hotplug->region, 0);
}

void pc_pci_hotplug_cleanup(PcPciHotplug *hotplug, IoSpace *ports)
{
    io_space_unmap(ports, &hotplug->region);
    io_region_cleanup(&hotplug->region);
    g_clear_pointer(&hotplug->reset_bh, bh_delete);
}
