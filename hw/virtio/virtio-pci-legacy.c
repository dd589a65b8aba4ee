/*
 * The legacy register interface of virtio-pci (virtio 1.2, section 4.1.4.10): one I/O BAR with
 * 32 feature bits, queue page numbers, status, ISR, vectors (present only while MSI-X is on), and
 * device configuration behind.  Guest-endian, which is little-endian for every guest of ours.
 *
 * Where drivers before the standard relied on it, this does what QEMU does: queue page number 0
 * resets the device, and a driver that sets ACKNOWLEDGE and DRIVER gets bus mastering turned on,
 * because Linux before 2.6.34 forgot to.
 */
#include "hw/virtio/virtio-pci-internal.h"

static uint32_t device_features_read(VirtIOPCIProxy *proxy)
{
    return (uint32_t)virtio_offered_features(proxy->vdev, true);
}

static uint32_t driver_features_read(VirtIOPCIProxy *proxy)
{
    return (uint32_t)proxy->vdev->guest_features;
}

static void driver_features_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    proxy->vdev->legacy_driver = true;
    virtio_set_features(proxy->vdev, value);
}

static uint32_t queue_page_read(VirtIOPCIProxy *proxy)
{
    VirtioQueue *queue = virtio_pci_selected_queue(proxy);

    return queue ? (uint32_t)(queue->desc >> VIRTIO_PCI_QUEUE_ADDR_SHIFT) : 0;
}

static void queue_page_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    if (value == 0) {
        virtio_pci_reset(proxy);
        return;
    }
    proxy->vdev->legacy_driver = true;
    virtio_queue_set_legacy_address(proxy->vdev, proxy->vdev->queue_sel,
                                    (uint64_t)value << VIRTIO_PCI_QUEUE_ADDR_SHIFT,
                                    VIRTIO_PCI_VRING_ALIGN);
}

static void queue_notify_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    virtio_queue_notify(proxy->vdev, value);
}

static uint32_t status_read(VirtIOPCIProxy *proxy)
{
    return proxy->vdev->status;
}

static void status_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    if (value) {
        proxy->vdev->legacy_driver = true;
    }
    if (value == (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER)) {
        uint32_t command = pci_config_read(&proxy->pci, PCI_COMMAND, 2);

        pci_config_write(&proxy->pci, PCI_COMMAND, command | PCI_COMMAND_MASTER, 2);
    }
    virtio_pci_set_status(proxy, (uint8_t)value);
}

static uint32_t isr_read(VirtIOPCIProxy *proxy)
{
    return virtio_pci_isr_read(proxy);
}

/* The vectors are last, so that they can be left out. */
static const VirtioPciReg legacy_regs[] = {
    {VIRTIO_PCI_HOST_FEATURES, 4, device_features_read, NULL},
    {VIRTIO_PCI_GUEST_FEATURES, 4, driver_features_read, driver_features_write},
    {VIRTIO_PCI_QUEUE_PFN, 4, queue_page_read, queue_page_write},
    {VIRTIO_PCI_QUEUE_NUM, 2, virtio_pci_queue_size_read, NULL},
    {VIRTIO_PCI_QUEUE_SEL, 2, virtio_pci_queue_select_read, virtio_pci_queue_select_write},
    {VIRTIO_PCI_QUEUE_NOTIFY, 2, NULL, queue_notify_write},
    {VIRTIO_PCI_STATUS, 1, status_read, status_write},
    {VIRTIO_PCI_ISR, 1, isr_read, NULL},
    {VIRTIO_MSI_CONFIG_VECTOR, 2, virtio_pci_config_vector_read, virtio_pci_config_vector_write},
    {VIRTIO_MSI_QUEUE_VECTOR, 2, virtio_pci_queue_vector_read, virtio_pci_queue_vector_write},
};
#define VECTOR_REGS 2

static unsigned regs_in_force(VirtIOPCIProxy *proxy)
{
    return G_N_ELEMENTS(legacy_regs) - (msix_enabled(&proxy->pci) ? 0 : VECTOR_REGS);
}

static uint64_t legacy_read(void *opaque, uint64_t offset, unsigned size)
{
    VirtIOPCIProxy *proxy = opaque;
    unsigned config = VIRTIO_PCI_CONFIG_OFF(msix_enabled(&proxy->pci));

    if (offset >= config) {
        return virtio_config_read(proxy->vdev, (unsigned)offset - config, size);
    }
    return virtio_pci_regs_read(proxy, legacy_regs, regs_in_force(proxy), offset, size);
}

static void legacy_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    VirtIOPCIProxy *proxy = opaque;
    unsigned config = VIRTIO_PCI_CONFIG_OFF(msix_enabled(&proxy->pci));

    /* Port writes never come from a message, but from memory windows they might. */
    if (virtio_access_is_nested()) {
        return;
    }
    if (offset >= config) {
        virtio_config_write(proxy->vdev, (unsigned)offset - config, (uint32_t)value, size);
    } else {
        virtio_pci_regs_write(proxy, legacy_regs, regs_in_force(proxy), offset, value, size);
    }
}

static const IoOps legacy_ops = {.read = legacy_read, .write = legacy_write};

static uint64_t power_of_two_from(uint64_t size)
{
    uint64_t power = 1;

    while (power < size) {
        power *= 2;
    }
    return power;
}

void virtio_pci_legacy_init(VirtIOPCIProxy *proxy)
{
    uint64_t size = VIRTIO_PCI_CONFIG_OFF(msix_present(&proxy->pci)) + proxy->vdev->config_len;

    io_region_init(&proxy->legacy_bar, "virtio-pci-legacy", power_of_two_from(size), &legacy_ops,
                   proxy);
    pci_register_bar(&proxy->pci, VIRTIO_PCI_BAR_LEGACY, PCI_BASE_ADDRESS_SPACE_IO,
                     &proxy->legacy_bar);
}

void virtio_pci_legacy_cleanup(VirtIOPCIProxy *proxy)
{
    io_region_cleanup(&proxy->legacy_bar);
}
