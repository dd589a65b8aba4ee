/* Between the files of virtio-pci: the function (virtio-pci.c), its two register interfaces
 * (virtio-pci-modern.c, virtio-pci-legacy.c) and its ioeventfds (virtio-pci-notify.c). */
#ifndef HW_VIRTIO_VIRTIO_PCI_INTERNAL_H
#define HW_VIRTIO_VIRTIO_PCI_INTERNAL_H

#include <linux/virtio_pci.h>

#include "hw/virtio/virtio-pci.h"

/* BARs, as in QEMU's layout. */
enum {
    VIRTIO_PCI_BAR_LEGACY = 0,
    VIRTIO_PCI_BAR_MSIX = 1,
    VIRTIO_PCI_BAR_PIO_NOTIFY = 2,
    VIRTIO_PCI_BAR_MODERN = 4,
};

#define VIRTIO_PCI_NOTIFY_MULT     4      /* bytes between notification addresses */
#define VIRTIO_PCI_NOTIFY_MULT_PVQ 0x1000 /* with page-per-vq */

/* A register of one, two or four bytes.  NULL: reads 0, or ignores writes. */
typedef struct VirtioPciReg {
    uint8_t offset, width;
    uint32_t (*read)(VirtIOPCIProxy *proxy);
    void (*write)(VirtIOPCIProxy *proxy, uint32_t value);
} VirtioPciReg;

/*
 * An access of any width to a block of registers.  Wider than a register: it reaches each one.
 * Narrower: a read gets its part, a write counts only at the register's first byte (drivers must
 * use the natural width, virtio 1.2, section 4.1.3.1).
 */
uint64_t virtio_pci_regs_read(VirtIOPCIProxy *proxy, const VirtioPciReg *regs, unsigned count,
                              uint64_t offset, unsigned size);
void virtio_pci_regs_write(VirtIOPCIProxy *proxy, const VirtioPciReg *regs, unsigned count,
                           uint64_t offset, uint64_t value, unsigned size);

/* Reads and clears the ISR byte, and lowers INTx. */
uint8_t virtio_pci_isr_read(VirtIOPCIProxy *proxy);
/* Puts @value into @vector, or NO_VECTOR where there is no such vector. */
void virtio_pci_set_vector(VirtIOPCIProxy *proxy, uint16_t *vector, uint32_t value);
/* The queue that queue_select names; NULL: there is none. */
VirtioQueue *virtio_pci_selected_queue(VirtIOPCIProxy *proxy);
/* Registers that both interfaces have. */
uint32_t virtio_pci_queue_select_read(VirtIOPCIProxy *proxy);
void virtio_pci_queue_select_write(VirtIOPCIProxy *proxy, uint32_t value);
uint32_t virtio_pci_queue_size_read(VirtIOPCIProxy *proxy);
uint32_t virtio_pci_config_vector_read(VirtIOPCIProxy *proxy);
void virtio_pci_config_vector_write(VirtIOPCIProxy *proxy, uint32_t value);
uint32_t virtio_pci_queue_vector_read(VirtIOPCIProxy *proxy);
void virtio_pci_queue_vector_write(VirtIOPCIProxy *proxy, uint32_t value);
/* Status byte from the driver; 0 resets the device with what the transport keeps. */
void virtio_pci_set_status(VirtIOPCIProxy *proxy, uint8_t status);
void virtio_pci_reset(VirtIOPCIProxy *proxy);

/* Registers BAR 4, BAR 2 and the capabilities from @cap on; returns the next free offset. */
unsigned virtio_pci_modern_init(VirtIOPCIProxy *proxy, unsigned cap);
void virtio_pci_modern_cleanup(VirtIOPCIProxy *proxy);
/* The window of the PCI_CFG capability, before a read and after a write of configuration. */
void virtio_pci_window_read(VirtIOPCIProxy *proxy, unsigned offset, unsigned size);
void virtio_pci_window_written(VirtIOPCIProxy *proxy, unsigned offset, unsigned size);

void virtio_pci_legacy_init(VirtIOPCIProxy *proxy);
void virtio_pci_legacy_cleanup(VirtIOPCIProxy *proxy);

unsigned virtio_pci_notify_mult(const VirtIOPCIProxy *proxy);
/* Transport hook: the device began to run, or stops. */
void virtio_pci_started(void *opaque, bool started);
/* Transport hook: the eventfd of a queue that somebody else handles. */
EventNotifier *virtio_pci_notifier(void *opaque, unsigned index);
void virtio_pci_notifiers_clear(VirtIOPCIProxy *proxy);
void virtio_pci_notifiers_cleanup(VirtIOPCIProxy *proxy);

#endif
