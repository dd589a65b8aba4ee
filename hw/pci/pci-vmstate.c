/*
 * Migration of what all PCI devices share: configuration space, INTx levels, the MSI-X table.
 *
 * The status register's interrupt bit is not saved: it is what the levels say.  Everything derived
 * from configuration space (decoding, bus mastering, MSI-X) follows in pci_config_loaded().
 */
#include <string.h>

#include "hw/pci/pci-vmstate.h"

#define PCI_SAVED_VERSION 2

/* Bits of byte @at that a saved state must agree on. */
static uint8_t must_match(const PCIDevice *dev, unsigned at)
{
    uint8_t fixed = (uint8_t) ~(dev->wmask[at] | dev->w1cmask[at]);

    if (at >= PCI_STD_HEADER_SIZEOF || at == PCI_STATUS || at == PCI_STATUS + 1) {
        return dev->cmask[at] & fixed;
    }
    return fixed;
}

/* Checked as soon as it is read: what follows in the stream depends on it. */
static gboolean pci_saved_check(void *state, void *parent, GError **errp)
{
    const PciSaved *s = state;
    const PCIDevice *dev = s->device;

    for (unsigned i = 0; i < dev->config_size; i++) {
        if ((s->config[i] ^ dev->config[i]) & must_match(dev, i)) {
            return error_set(errp,
                             "PCI configuration byte 0x%02x is 0x%02x, 0x%02x here (bits 0x%02x "
                             "must be equal)",
                             i, s->config[i], dev->config[i], must_match(dev, i));
        }
    }
    return TRUE;
}

const VMStateDescription vmstate_pci_device = {
    .name = "PCIDevice",
    .version = PCI_SAVED_VERSION,
    .minimum_version = 1,
    .check = pci_saved_check,
    .fields =
        (const VMStateField[]){
            VMS_INT32(PciSaved, version_id, .max = PCI_SAVED_VERSION),
            VMS_ARRAY(PciSaved, config, buffer, VMS_COUNTED(PciSaved, config_size)),
            VMS_ARRAY(PciSaved, irq_state, int32, .max = 1),
            VMS_END,
        },
};

const VMStateDescription vmstate_msix = {
    .name = "MSI-X",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_ARRAY(MsixSaved, table, buffer, VMS_COUNTED(MsixSaved, table_size)),
            VMS_ARRAY(MsixSaved, pba, buffer, VMS_COUNTED(MsixSaved, pba_size)),
            VMS_END,
        },
};

void pci_saved_prepare(PciSaved *s, const PCIDevice *dev)
{
    s->device = dev;
    s->config_size = dev->config_size;
}

void pci_saved_fill(PciSaved *s, PCIDevice *dev)
{
    unsigned pin = dev->config[PCI_INTERRUPT_PIN];

    s->version_id = PCI_SAVED_VERSION;
    s->config_size = dev->config_size;
    memcpy(s->config, dev->config, dev->config_size);
    s->config[PCI_STATUS] &= (uint8_t)~PCI_STATUS_INTERRUPT;
    if (pin >= 1 && pin <= 4) {
        s->irq_state[pin - 1] = dev->irq_level;
    }
}

void pci_saved_apply(const PciSaved *s, PCIDevice *dev)
{
    unsigned pin = dev->config[PCI_INTERRUPT_PIN];

    memcpy(dev->config, s->config, dev->config_size);
    dev->config[PCI_STATUS] &= (uint8_t)~PCI_STATUS_INTERRUPT;
    pci_config_loaded(dev);
    pci_set_irq(dev, pin >= 1 && pin <= 4 && s->irq_state[pin - 1]);
}

void msix_saved_prepare(MsixSaved *s, const PCIDevice *dev)
{
    s->table_size = dev->msix.vectors * PCI_MSIX_ENTRY_SIZE;
    s->pba_size = (dev->msix.vectors + 7) / 8;
}

void msix_saved_fill(MsixSaved *s, PCIDevice *dev)
{
    msix_saved_prepare(s, dev);
    if (!msix_present(dev)) {
        return;
    }
    pthread_mutex_lock(&dev->irq_lock);
    memcpy(s->table, dev->msix.table, s->table_size);
    memcpy(s->pba, dev->msix.pba, s->pba_size);
    pthread_mutex_unlock(&dev->irq_lock);
}

void msix_saved_apply(const MsixSaved *s, PCIDevice *dev)
{
    if (!msix_present(dev)) {
        return;
    }
    pthread_mutex_lock(&dev->irq_lock);
    memcpy(dev->msix.table, s->table, s->table_size);
    memcpy(dev->msix.pba, s->pba, s->pba_size);
    pthread_mutex_unlock(&dev->irq_lock);
}
