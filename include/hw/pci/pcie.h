/*
 * PCI Express: bridges with a bus behind them, the Express capability, and root ports with a slot
 * that devices are plugged into while the machine runs (native hotplug).  Main thread.
 */
#ifndef HW_PCI_PCIE_H
#define HW_PCI_PCIE_H

#include "hw/pci/pci.h"

/* A bus of type "PCIE", such as pcie.0 (@owner is a host) or what is behind a port. */
PCIBus *pcie_bus_new(DeviceState *owner, const char *name, PciHost *host, unsigned devfn_min);
bool pcie_bus_is_root(const PCIBus *bus); /* of that type, and behind no bridge */

/* --- bridges (type 1 headers) --- */

/* The function at bus @number, @devfn as configuration cycles find it from root bus @root, by the
 * bus numbers that firmware wrote into the bridges; NULL: nobody answers. */
PCIDevice *pci_bus_find_device(PCIBus *root, unsigned number, unsigned devfn);
/* The pin (0..3) on the root bus that pin @pin of @dev is wired to; *slot becomes the slot of the
 * device on the root bus on the way there (PCI-to-PCI bridge specification 1.2, table 9-1). */
unsigned pci_root_pin(const PCIDevice *dev, unsigned pin, unsigned *slot);

/* For a bridge's own realize and reset, and after each write to its configuration space. */
void pci_bridge_init_config(PCIDevice *bridge);
void pci_bridge_reset_config(PCIDevice *bridge, PCIBus *secondary);
void pci_bridge_config_written(PCIDevice *bridge, PCIBus *secondary, unsigned offset,
                               unsigned size);
/* A saved state was loaded: what is behind follows. */
void pci_bridge_config_loaded(PCIDevice *bridge, PCIBus *secondary);

/* --- the Express capability --- */

/* Express and power management capabilities of an endpoint, from @offset up; returns the first
 * free offset.  A device on a bus that is not express gets none: @offset is returned. */
unsigned pcie_endpoint_init(PCIDevice *dev, unsigned offset);
/* After a write: function level reset. */
void pcie_endpoint_config_written(PCIDevice *dev, unsigned offset, unsigned size);

/* The extended capabilities of a root port, where QEMU's has them. */
#define PCIE_AER_OFFSET 0x100
#define PCIE_AER_SIZE   0x48
#define PCIE_ACS_OFFSET (PCIE_AER_OFFSET + PCIE_AER_SIZE)
#define PCIE_ACS_SIZE   8
void pcie_port_extended_init(PCIDevice *dev);
void pcie_port_extended_reset(PCIDevice *dev);

/* Where the notice that the guest refused to let a device go is told; @id may be NULL. */
extern void (*pcie_unplug_refused_hook)(const char *id, const char *path);

void pcie_root_port_register_types(void);

#endif
