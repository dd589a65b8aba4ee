/*
 * The Express capability of endpoints (PCI Express base specification 5.0, section 7.5.3).
 *
 * Offsets and contents are those that QEMU's virtio functions have behind a port, because a saved
 * device loads elsewhere only if its configuration space is the same.
 */
#include "hw/pci/pcie.h"

#define EXP_SIZE  0x3c /* version 2 of the capability */
#define PM_SIZE   8
#define LINK_BASE 0x11 /* one lane at 2.5 GT/s */

#define DEVCTL_ERRORS                                                                              \
    (PCI_EXP_DEVCTL_CERE | PCI_EXP_DEVCTL_NFERE | PCI_EXP_DEVCTL_FERE | PCI_EXP_DEVCTL_URRE)
#define DEVSTA_ERRORS                                                                              \
    (PCI_EXP_DEVSTA_CED | PCI_EXP_DEVSTA_NFED | PCI_EXP_DEVSTA_FED | PCI_EXP_DEVSTA_URD)
#define DEVCAP2_PREFIXES 0x00300000 /* extended format field, end-to-end TLP prefix */
#define DEVCTL2_PREFIXES 0x8000     /* end-to-end TLP prefix blocking */

unsigned pcie_endpoint_init(PCIDevice *dev, unsigned offset)
{
    if (!dev->bus || !dev->bus->express) {
        return offset;
    }
    uint8_t *exp = pci_add_capability(dev, PCI_CAP_ID_EXP, offset, EXP_SIZE);
    uint8_t *wmask = dev->wmask + offset, *w1cmask = dev->w1cmask + offset;
    pci_set_word(exp + PCI_EXP_FLAGS, PCI_EXP_TYPE_ENDPOINT << 4 | 2);
    pci_set_long(exp + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER | PCI_EXP_DEVCAP_FLR);
    pci_set_word(wmask + PCI_EXP_DEVCTL, DEVCTL_ERRORS | PCI_EXP_DEVCTL_BCR_FLR);
    pci_set_word(w1cmask + PCI_EXP_DEVSTA, DEVSTA_ERRORS);
    pci_set_long(exp + PCI_EXP_LNKCAP, LINK_BASE | PCI_EXP_LNKCAP_ASPM_L0S);
    pci_set_word(exp + PCI_EXP_LNKSTA, LINK_BASE);
    pci_set_long(exp + PCI_EXP_DEVCAP2, DEVCAP2_PREFIXES);
    pci_set_word(wmask + PCI_EXP_DEVCTL2, DEVCTL2_PREFIXES);
    offset += EXP_SIZE;

    uint8_t *pm = pci_add_capability(dev, PCI_CAP_ID_PM, offset, PM_SIZE);
    pci_set_word(pm + PCI_PM_PMC, 3); /* version 1.2 */
    pci_set_word(dev->wmask + offset + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK);
    return offset + PM_SIZE;
}

static unsigned find_capability(const PCIDevice *dev, uint8_t id)
{
    unsigned offset = dev->config[PCI_CAPABILITY_LIST];

    while (offset && dev->config[offset + PCI_CAP_LIST_ID] != id) {
        offset = dev->config[offset + PCI_CAP_LIST_NEXT];
    }
    return offset;
}

void pcie_endpoint_config_written(PCIDevice *dev, unsigned offset, unsigned size)
{
    unsigned exp = dev->bus && dev->bus->express ? find_capability(dev, PCI_CAP_ID_EXP) : 0;
    uint8_t *control = dev->config + exp + PCI_EXP_DEVCTL;

    if (!exp || offset >= exp + PCI_EXP_DEVCTL + 2 || offset + size <= exp + PCI_EXP_DEVCTL ||
        !(pci_get_word(control) & PCI_EXP_DEVCTL_BCR_FLR)) {
        return;
    }
    /* The bit reads as 0: it starts a reset of this function alone (section 6.6.2). */
    device_reset(&dev->parent_obj);
    pci_set_word(control, 0);
}
