/*
 * Extended capabilities of root ports (PCI Express base specification 5.0, section 7.8): Advanced
 * Error Reporting and Access Control Services.
 *
 * They are registers and nothing else: here no transaction ever fails, and what a port's one
 * device sends goes to memory only.  Guests find and write them, though, and a saved port loads
 * elsewhere only if they are the same: place, contents and masks are those of QEMU's port.
 */
#include <string.h>

#include "hw/pci/pcie.h"

#define AER_VERSION 2
#define ACS_VERSION 1

/* Kinds of errors that the registers have bits for. */
#define AER_UNCORRECTABLE 0x03fff030
#define AER_CORRECTABLE   0x0000f1c1

typedef struct ExtendedRegister {
    uint16_t offset; /* in its capability */
    uint32_t value, wmask, w1cmask;
} ExtendedRegister;

static const ExtendedRegister aer_registers[] = {
    {PCI_ERR_UNCOR_STATUS, 0, 0, AER_UNCORRECTABLE},
    {PCI_ERR_UNCOR_SEVER,
     PCI_ERR_UNC_DLP | PCI_ERR_UNC_SURPDN | PCI_ERR_UNC_FCP | PCI_ERR_UNC_RX_OVER |
         PCI_ERR_UNC_MALF_TLP | PCI_ERR_UNC_INTN,
     AER_UNCORRECTABLE, 0},
    {PCI_ERR_COR_STATUS, 0, 0, AER_CORRECTABLE},
    {PCI_ERR_COR_MASK, PCI_ERR_COR_ADV_NFAT | PCI_ERR_COR_INTERNAL | PCI_ERR_COR_LOG_OVER,
     AER_CORRECTABLE, 0},
    /* ECRC generation and checking, and multiple header recording: possible, and switched on */
    {PCI_ERR_CAP, PCI_ERR_CAP_ECRC_GENC | PCI_ERR_CAP_ECRC_CHKC | 0x200,
     PCI_ERR_CAP_ECRC_GENE | PCI_ERR_CAP_ECRC_CHKE | 0x400, 0},
    {PCI_ERR_ROOT_COMMAND, 0,
     PCI_ERR_ROOT_CMD_COR_EN | PCI_ERR_ROOT_CMD_NONFATAL_EN | PCI_ERR_ROOT_CMD_FATAL_EN, 0},
    {PCI_ERR_ROOT_STATUS, 0, 0, 0x7f},
};

#define ACS_SERVICES (PCI_ACS_SV | PCI_ACS_TB | PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_UF | PCI_ACS_DT)

static const ExtendedRegister acs_registers[] = {
    {PCI_ACS_CAP, ACS_SERVICES, (uint32_t)ACS_SERVICES << 16, 0}, /* control in the upper half */
};

static void registers_init(PCIDevice *dev, unsigned offset, const ExtendedRegister *table,
                           unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pci_set_long(dev->config + offset + table[i].offset, table[i].value);
        pci_set_long(dev->wmask + offset + table[i].offset, table[i].wmask);
        pci_set_long(dev->w1cmask + offset + table[i].offset, table[i].w1cmask);
    }
}

static void capability_init(PCIDevice *dev, unsigned offset, unsigned size, uint16_t id,
                            unsigned version, unsigned next)
{
    pci_set_long(dev->config + offset, id | version << 16 | next << 20);
    memset(dev->cmask + offset, 0xff, size);
}

void pcie_port_extended_init(PCIDevice *dev)
{
    capability_init(dev, PCIE_AER_OFFSET, PCIE_AER_SIZE, PCI_EXT_CAP_ID_ERR, AER_VERSION,
                    PCIE_ACS_OFFSET);
    capability_init(dev, PCIE_ACS_OFFSET, PCIE_ACS_SIZE, PCI_EXT_CAP_ID_ACS, ACS_VERSION, 0);
    pcie_port_extended_reset(dev);
}

void pcie_port_extended_reset(PCIDevice *dev)
{
    registers_init(dev, PCIE_AER_OFFSET, aer_registers, G_N_ELEMENTS(aer_registers));
    registers_init(dev, PCIE_ACS_OFFSET, acs_registers, G_N_ELEMENTS(acs_registers));
}
