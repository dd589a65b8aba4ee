/*
 * PCI-to-PCI bridges: the part of configuration space with bus numbers and windows, and finding
 * what is behind.
 *
 * Nothing of it is stored twice: buses behind a bridge learn their number when it is written, and
 * devices ask the windows of the bridges above them (pci.c) each time those change.
 */
#include <string.h>

#include "hw/pci/pcie.h"

#define BRIDGE_CTL_VGA_16BIT 0x10 /* PCI-to-PCI bridge specification 1.2, 3.2.5.18 */

static PCIDevice *find_below(PCIBus *bus, unsigned number, unsigned devfn)
{
    PCIDevice *found = NULL;

    if (bus->number == number) {
        found = bus->devices[devfn];
        return found && found->parent_obj.realized ? found : NULL;
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices) && !found; i++) {
        PCIDevice *bridge = bus->devices[i];
        if (!bridge || !bridge->parent_obj.realized || !PCI_DEVICE_GET_CLASS(bridge)->is_bridge ||
            number < bridge->config[PCI_SECONDARY_BUS] ||
            number > bridge->config[PCI_SUBORDINATE_BUS] || !bridge->config[PCI_SECONDARY_BUS]) {
            continue;
        }
        for (unsigned j = 0; j < bridge->parent_obj.child_buses->len && !found; j++) {
            BusState *below = bridge->parent_obj.child_buses->pdata[j];
            found = IS_PCI_BUS(below) ? find_below(PCI_BUS(below), number, devfn) : NULL;
        }
    }
    return found;
}

PCIDevice *pci_bus_find_device(PCIBus *root, unsigned number, unsigned devfn)
{
    return find_below(root, number, devfn & 0xff);
}

unsigned pci_root_pin(const PCIDevice *dev, unsigned pin, unsigned *slot)
{
    PCIDevice *bridge;

    while (dev->bus && (bridge = pci_bus_bridge(dev->bus))) {
        pin = (pin + PCI_SLOT((unsigned)dev->devfn)) & 3;
        dev = bridge;
    }
    *slot = PCI_SLOT((unsigned)dev->devfn);
    return pin;
}

void pci_bridge_init_config(PCIDevice *bridge)
{
    uint8_t *config = bridge->config, *wmask = bridge->wmask;

    config[PCI_HEADER_TYPE] = (config[PCI_HEADER_TYPE] & 0x80) | PCI_HEADER_TYPE_BRIDGE;
    memset(wmask + PCI_PRIMARY_BUS, 0xff, 4); /* three bus numbers and the latency timer */
    wmask[PCI_IO_BASE] = wmask[PCI_IO_LIMIT] = 0xf0;
    pci_set_word(wmask + PCI_MEMORY_BASE, 0xfff0);
    pci_set_word(wmask + PCI_MEMORY_LIMIT, 0xfff0);
    pci_set_word(wmask + PCI_PREF_MEMORY_BASE, 0xfff0);
    pci_set_word(wmask + PCI_PREF_MEMORY_LIMIT, 0xfff0);
    memset(wmask + PCI_PREF_BASE_UPPER32, 0xff, 8);
    pci_set_word(config + PCI_PREF_MEMORY_BASE, PCI_PREF_RANGE_TYPE_64);
    pci_set_word(config + PCI_PREF_MEMORY_LIMIT, PCI_PREF_RANGE_TYPE_64);
    pci_set_word(wmask + PCI_BRIDGE_CONTROL, PCI_BRIDGE_CTL_PARITY | PCI_BRIDGE_CTL_SERR |
                                                 PCI_BRIDGE_CTL_ISA | PCI_BRIDGE_CTL_VGA |
                                                 BRIDGE_CTL_VGA_16BIT | PCI_BRIDGE_CTL_BUS_RESET);
    pci_set_word(bridge->w1cmask + PCI_SEC_STATUS,
                 PCI_STATUS_PARITY | PCI_STATUS_SIG_TARGET_ABORT | PCI_STATUS_REC_TARGET_ABORT |
                     PCI_STATUS_REC_MASTER_ABORT | PCI_STATUS_SIG_SYSTEM_ERROR |
                     PCI_STATUS_DETECTED_PARITY);
}

void pci_bridge_reset_config(PCIDevice *bridge, PCIBus *secondary)
{
    for (unsigned i = PCI_PRIMARY_BUS; i < PCI_CAPABILITY_LIST; i++) {
        bridge->config[i] &= (uint8_t) ~(bridge->wmask[i] | bridge->w1cmask[i]);
    }
    pci_set_word(bridge->config + PCI_BRIDGE_CONTROL, 0);
    /* Every window is closed: it begins above where it ends. */
    bridge->config[PCI_IO_BASE] |= 0xf0;
    pci_set_word(bridge->config + PCI_MEMORY_BASE, 0xfff0);
    pci_set_word(bridge->config + PCI_PREF_MEMORY_BASE, 0xfff0 | PCI_PREF_RANGE_TYPE_64);
    secondary->number = 0;
    pci_bus_routes_changed(secondary);
}

static void reset_below(PCIBus *bus)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        if (bus->devices[i] && bus->devices[i]->parent_obj.realized) {
            device_reset(&bus->devices[i]->parent_obj);
        }
    }
}

void pci_bridge_config_written(PCIDevice *bridge, PCIBus *secondary, unsigned offset, unsigned size)
{
    const uint8_t *config = bridge->config;

    secondary->number = config[PCI_SECONDARY_BUS];
    if (offset <= PCI_BRIDGE_CONTROL && offset + size > PCI_BRIDGE_CONTROL &&
        (pci_get_word(config + PCI_BRIDGE_CONTROL) & PCI_BRIDGE_CTL_BUS_RESET)) {
        reset_below(secondary);
    }
    if (offset < PCI_CAPABILITY_LIST) { /* the command word, bus numbers or a window */
        pci_bus_routes_changed(secondary);
    }
}

void pci_bridge_config_loaded(PCIDevice *bridge, PCIBus *secondary)
{
    secondary->number = bridge->config[PCI_SECONDARY_BUS];
    pci_bus_routes_changed(secondary);
}
