/*
 * The part of a migration section that every PCI device has: "PCIDevice", without a header of its
 * own, and the MSI-X table.  A device's state embeds PciSaved and MsixSaved and calls these.
 */
#ifndef HW_PCI_PCI_VMSTATE_H
#define HW_PCI_PCI_VMSTATE_H

#include "hw/pci/pci.h"
#include "migration/vmstate.h"

#define MSIX_VECTORS_MAX 2048

typedef struct PciSaved {
    const PCIDevice *device; /* that it is to be loaded into; not in the stream */
    int32_t version_id;
    uint32_t config_size; /* not in the stream */
    uint8_t config[PCIE_CONFIG_SIZE];
    int32_t irq_state[4]; /* INTA to INTD */
} PciSaved;

typedef struct MsixSaved {
    uint32_t table_size, pba_size; /* bytes; not in the stream */
    uint8_t table[MSIX_VECTORS_MAX * PCI_MSIX_ENTRY_SIZE];
    uint8_t pba[MSIX_VECTORS_MAX / 8];
} MsixSaved;

/* Over a PciSaved.  Bytes that the guest cannot write must be what they are in @device. */
extern const VMStateDescription vmstate_pci_device;
extern const VMStateDescription vmstate_msix;       /* over an MsixSaved; nothing without MSI-X */

void pci_saved_prepare(PciSaved *s, const PCIDevice *dev);
void pci_saved_fill(PciSaved *s, PCIDevice *dev);
void pci_saved_apply(const PciSaved *s, PCIDevice *dev);

void msix_saved_prepare(MsixSaved *s, const PCIDevice *dev);
void msix_saved_fill(MsixSaved *s, PCIDevice *dev);
void msix_saved_apply(const MsixSaved *s, PCIDevice *dev); /* before pci_saved_apply() */

#endif
