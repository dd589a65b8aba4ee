/*
 * MSI-X (PCI 3.0, section 6.8.2): a table of messages, one a vector, each with a mask bit.
 *
 * Table and pending bits live in a BAR of their own.  msix_notify() sends a vector's message
 * through the host, or, while vector or function are masked, sets the pending bit; unmasking sends
 * what waits.  Notifications come from any thread, so table, pending bits and the decision are
 * under the device's irq_lock.  The host is called outside of it: a guest may aim a message at
 * whatever it likes.
 *
 * A host that keeps the table itself (vfio-user) never sees a mask here.
 */
#include <string.h>

#include "hw/pci/pci.h"

#define BAR_SIZE_MIN   4096
#define PBA_OFFSET_MIN 0x800
#define FLAGS_OFFSET   PCI_MSIX_FLAGS
#define VECTORS_MAX    (PCI_MSIX_FLAGS_QSIZE + 1)

typedef struct MsixMessage {
    uint64_t addr;
    uint32_t data;
} MsixMessage;

static uint8_t *entry(const PCIDevice *dev, unsigned vector)
{
    return dev->msix.table + vector * PCI_MSIX_ENTRY_SIZE;
}

static bool host_masks(const PCIDevice *dev)
{
    return dev->bus && dev->bus->host->ops->msix_table_is_ours;
}

/* With irq_lock held, like the three below. */
static bool vector_masked(const PCIDevice *dev, unsigned vector)
{
    return host_masks(dev) &&
           (dev->msix.function_masked ||
            (entry(dev, vector)[PCI_MSIX_ENTRY_VECTOR_CTRL] & PCI_MSIX_ENTRY_CTRL_MASKBIT));
}

static bool pending(const PCIDevice *dev, unsigned vector)
{
    return dev->msix.pba[vector / 8] & (1u << (vector % 8));
}

static void pending_set(PCIDevice *dev, unsigned vector)
{
    dev->msix.pba[vector / 8] |= (uint8_t)(1u << (vector % 8));
}

static void pending_clear(PCIDevice *dev, unsigned vector)
{
    dev->msix.pba[vector / 8] &= (uint8_t) ~(1u << (vector % 8));
}

static MsixMessage vector_message(const PCIDevice *dev, unsigned vector)
{
    const uint8_t *e = entry(dev, vector);

    return (MsixMessage){
        .addr = pci_get_long(e + PCI_MSIX_ENTRY_LOWER_ADDR) |
                (uint64_t)pci_get_long(e + PCI_MSIX_ENTRY_UPPER_ADDR) << 32,
        .data = pci_get_long(e + PCI_MSIX_ENTRY_DATA),
    };
}

static void message_send(PCIDevice *dev, unsigned vector, const MsixMessage *message)
{
    PciHost *host = dev->bus ? dev->bus->host : NULL;

    if (host && host->ops->msi_notify) {
        host->ops->msi_notify(host, dev, vector, message->addr, message->data);
    }
}

void msix_notify(PCIDevice *dev, unsigned vector)
{
    MsixMessage message;
    bool send;

    if (vector >= dev->msix.vectors || !msix_enabled(dev)) {
        return;
    }
    pthread_mutex_lock(&dev->irq_lock);
    send = !vector_masked(dev, vector);
    if (send) {
        message = vector_message(dev, vector);
    } else if (dev->msix.users[vector]) {
        pending_set(dev, vector);
    }
    pthread_mutex_unlock(&dev->irq_lock);
    if (send) {
        message_send(dev, vector, &message);
    }
}

/* Sends what waits on @vector if nothing holds it back any more. */
static void vector_flush(PCIDevice *dev, unsigned vector)
{
    MsixMessage message;
    bool send;

    pthread_mutex_lock(&dev->irq_lock);
    send = dev->msix.enabled && pending(dev, vector) && !vector_masked(dev, vector);
    if (send) {
        pending_clear(dev, vector);
        message = vector_message(dev, vector);
    }
    pthread_mutex_unlock(&dev->irq_lock);
    if (send) {
        message_send(dev, vector, &message);
    }
}

void msix_control_written(PCIDevice *dev)
{
    uint16_t flags = pci_get_word(dev->config + dev->msix.cap + FLAGS_OFFSET);

    pthread_mutex_lock(&dev->irq_lock);
    __atomic_store_n(&dev->msix.enabled, (flags & PCI_MSIX_FLAGS_ENABLE) != 0, __ATOMIC_RELEASE);
    dev->msix.function_masked = (flags & PCI_MSIX_FLAGS_MASKALL) != 0;
    pthread_mutex_unlock(&dev->irq_lock);
    for (unsigned i = 0; i < dev->msix.vectors; i++) {
        vector_flush(dev, i);
    }
}

/* --- the BAR --- */

static uint64_t bytes_read(const uint8_t *bytes, uint64_t limit, uint64_t offset, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size && offset + i < limit; i++) {
        value |= (uint64_t)bytes[offset + i] << (8 * i);
    }
    return value;
}

static uint64_t table_read(void *opaque, uint64_t offset, unsigned size)
{
    PCIDevice *dev = opaque;
    uint64_t value;

    pthread_mutex_lock(&dev->irq_lock);
    value = bytes_read(dev->msix.table, dev->msix.table_region.size, offset, size);
    pthread_mutex_unlock(&dev->irq_lock);
    return value;
}

static void table_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    PCIDevice *dev = opaque;
    uint64_t limit = dev->msix.table_region.size;

    if (offset >= limit || size == 0) {
        return;
    }
    size = (unsigned)MIN(size, limit - offset);
    pthread_mutex_lock(&dev->irq_lock);
    for (unsigned i = 0; i < size; i++) {
        dev->msix.table[offset + i] = (uint8_t)(value >> (8 * i));
    }
    pthread_mutex_unlock(&dev->irq_lock);
    for (uint64_t v = offset / PCI_MSIX_ENTRY_SIZE; v <= (offset + size - 1) / PCI_MSIX_ENTRY_SIZE;
         v++) {
        vector_flush(dev, (unsigned)v);
    }
}

static uint64_t pba_read(void *opaque, uint64_t offset, unsigned size)
{
    PCIDevice *dev = opaque;
    uint64_t value;

    pthread_mutex_lock(&dev->irq_lock);
    value = bytes_read(dev->msix.pba, dev->msix.pba_region.size, offset, size);
    pthread_mutex_unlock(&dev->irq_lock);
    return value;
}

static const IoOps table_ops = {.read = table_read, .write = table_write, .max_access = 8};
static const IoOps pba_ops = {.read = pba_read, .max_access = 8}; /* read-only */

/* --- life --- */

static void masks_set_all(PCIDevice *dev)
{
    memset(dev->msix.table, 0, dev->msix.table_region.size);
    for (unsigned i = 0; i < dev->msix.vectors; i++) {
        entry(dev, i)[PCI_MSIX_ENTRY_VECTOR_CTRL] = PCI_MSIX_ENTRY_CTRL_MASKBIT;
    }
}

gboolean msix_init(PCIDevice *dev, unsigned vectors, unsigned bar, unsigned cap_offset,
                   GError **errp)
{
    MsixState *msix = &dev->msix;
    uint64_t table_size = (uint64_t)vectors * PCI_MSIX_ENTRY_SIZE;
    uint64_t pba_size = (vectors + 63) / 64 * 8;
    uint64_t pba_offset = MAX(table_size, PBA_OFFSET_MIN);
    uint64_t bar_size = BAR_SIZE_MIN;
    uint8_t *cap;

    if (vectors < 1 || vectors > VECTORS_MAX) {
        return error_set(errp, "vectors %u of %s is out of range, 1 to %u are allowed", vectors,
                         device_name(&dev->parent_obj), VECTORS_MAX);
    }
    while (bar_size < pba_offset + pba_size) {
        bar_size *= 2;
    }
    msix->vectors = vectors;
    msix->table = g_malloc(table_size);
    msix->pba = g_malloc0(pba_size);
    msix->users = g_new0(unsigned, vectors);
    msix->cap = (uint8_t)cap_offset;
    io_region_init(&msix->bar, "msix", bar_size, NULL, NULL);
    io_region_init(&msix->table_region, "msix-table", table_size, &table_ops, dev);
    io_region_init(&msix->pba_region, "msix-pba", pba_size, &pba_ops, dev);
    io_region_add_child(&msix->bar, 0, &msix->table_region);
    io_region_add_child(&msix->bar, pba_offset, &msix->pba_region);
    masks_set_all(dev);

    cap = pci_add_capability(dev, PCI_CAP_ID_MSIX, cap_offset, PCI_CAP_MSIX_SIZEOF);
    pci_set_word(cap + PCI_MSIX_FLAGS, (uint16_t)(vectors - 1));
    pci_set_long(cap + PCI_MSIX_TABLE, bar);
    pci_set_long(cap + PCI_MSIX_PBA, (uint32_t)pba_offset | bar);
    pci_set_word(dev->wmask + cap_offset + PCI_MSIX_FLAGS,
                 PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
    pci_register_bar(dev, bar, PCI_BASE_ADDRESS_SPACE_MEMORY, &msix->bar);
    return TRUE;
}

void msix_uninit(PCIDevice *dev)
{
    MsixState *msix = &dev->msix;

    if (!msix_present(dev)) {
        return;
    }
    __atomic_store_n(&msix->enabled, false, __ATOMIC_RELEASE);
    msix->vectors = 0;
    io_region_cleanup(&msix->bar);
    io_region_cleanup(&msix->table_region);
    io_region_cleanup(&msix->pba_region);
    g_clear_pointer(&msix->table, g_free);
    g_clear_pointer(&msix->pba, g_free);
    g_clear_pointer(&msix->users, g_free);
}

void msix_reset(PCIDevice *dev)
{
    MsixState *msix = &dev->msix;
    uint8_t *flags;

    if (!msix_present(dev)) {
        return;
    }
    flags = dev->config + msix->cap + PCI_MSIX_FLAGS;
    pthread_mutex_lock(&dev->irq_lock);
    memset(msix->pba, 0, msix->pba_region.size);
    masks_set_all(dev);
    pthread_mutex_unlock(&dev->irq_lock);
    pci_set_word(flags, pci_get_word(flags) &
                            (uint16_t) ~(PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL));
    msix_control_written(dev);
}

bool msix_present(const PCIDevice *dev)
{
    return dev->msix.vectors > 0;
}

bool msix_enabled(const PCIDevice *dev)
{
    return msix_present(dev) && __atomic_load_n(&dev->msix.enabled, __ATOMIC_ACQUIRE);
}

bool msix_vector_use(PCIDevice *dev, unsigned vector)
{
    if (vector >= dev->msix.vectors) {
        return false;
    }
    pthread_mutex_lock(&dev->irq_lock);
    dev->msix.users[vector]++;
    pthread_mutex_unlock(&dev->irq_lock);
    return true;
}

void msix_vector_unuse(PCIDevice *dev, unsigned vector)
{
    if (vector >= dev->msix.vectors) {
        return;
    }
    pthread_mutex_lock(&dev->irq_lock);
    if (dev->msix.users[vector] > 0 && --dev->msix.users[vector] == 0) {
        pending_clear(dev, vector);
    }
    pthread_mutex_unlock(&dev->irq_lock);
}
