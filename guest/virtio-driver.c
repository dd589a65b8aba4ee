/*
 * Modern virtio-pci, driver's side: see virtio-driver.h.
 */
#include "guest/virtio-driver.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <string.h>

#define WORD_STRIDE   64 /* one interrupt word a cache line */
#define RESET_TRIES   1000
#define INTERRUPT_ONE 1
#define FEATURE_WORDS 4  /* of 32 bits */
#define MAX_CAPS      48 /* all that configuration space has room for: more is a loop */

static uint64_t common_read(VirtioDriver *driver, unsigned width, uint32_t offset)
{
    return guest_pci_bar_read(driver->pci, driver->common.bar, width,
                              driver->common.offset + offset);
}

static void common_write(VirtioDriver *driver, unsigned width, uint32_t offset, uint64_t value)
{
    guest_pci_bar_write(driver->pci, driver->common.bar, width, driver->common.offset + offset,
                        value);
}

/* Notes the structure that the vendor capability at @cap describes, if it is the first. */
static void note_capability(VirtioDriver *driver, uint8_t cap)
{
    VirtioRegion *regions[] = {
        [VIRTIO_PCI_CAP_COMMON_CFG] = &driver->common,
        [VIRTIO_PCI_CAP_NOTIFY_CFG] = &driver->notify,
        [VIRTIO_PCI_CAP_ISR_CFG] = &driver->isr,
        [VIRTIO_PCI_CAP_DEVICE_CFG] = &driver->device,
    };
    uint32_t type = guest_pci_config_read(driver->pci, 1, cap + VIRTIO_PCI_CAP_CFG_TYPE);
    uint32_t bar = guest_pci_config_read(driver->pci, 1, cap + VIRTIO_PCI_CAP_BAR);
    if (type >= G_N_ELEMENTS(regions) || !regions[type] || regions[type]->length || bar > 5) {
        return;
    }
    regions[type]->bar = (uint8_t)bar;
    regions[type]->offset = guest_pci_config_read(driver->pci, 4, cap + VIRTIO_PCI_CAP_OFFSET);
    regions[type]->length = guest_pci_config_read(driver->pci, 4, cap + VIRTIO_PCI_CAP_LENGTH);
    if (type == VIRTIO_PCI_CAP_NOTIFY_CFG) {
        driver->notify_multiplier =
            guest_pci_config_read(driver->pci, 4, cap + VIRTIO_PCI_NOTIFY_CAP_MULT);
    }
}

static bool region_fits(const VirtioDriver *driver, const VirtioRegion *region, uint32_t at_least)
{
    return region->length >= at_least &&
           (uint64_t)region->offset + region->length <= driver->pci->bars[region->bar].size;
}

static bool find_structures(VirtioDriver *driver, GError **errp)
{
    uint8_t cap = 0;
    for (unsigned i = 0; i < MAX_CAPS; i++) {
        cap = guest_pci_find_capability(driver->pci, PCI_CAP_ID_VNDR, cap);
        if (!cap) {
            break;
        }
        note_capability(driver, cap);
    }
    if (!region_fits(driver, &driver->common, VIRTIO_PCI_COMMON_Q_USEDHI + 4) ||
        !region_fits(driver, &driver->notify, 2) || !region_fits(driver, &driver->isr, 1)) {
        if (guest_pci_check(driver->pci, errp)) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED,
                        "the device has no modern virtio structures (disable-modern=on?)");
        }
        return false;
    }
    return true;
}

VirtioDriver *virtio_driver_new(GuestPciDevice *pci, GuestRam *ram, GError **errp)
{
    VirtioDriver *driver = g_new0(VirtioDriver, 1);
    driver->pci = pci;
    driver->ram = ram;
    if (!guest_pci_device_enable(pci, errp) || !find_structures(driver, errp) ||
        !virtio_driver_reset(driver, errp)) {
        g_free(driver);
        return NULL;
    }
    virtio_driver_set_status(driver, VIRTIO_CONFIG_S_ACKNOWLEDGE);
    virtio_driver_set_status(driver, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
    driver->queue_count = (uint16_t)common_read(driver, 2, VIRTIO_PCI_COMMON_NUMQ);
    driver->notify_addrs = g_new0(uint64_t, driver->queue_count);
    driver->notifications = g_new0(uint64_t, driver->queue_count);
    if (!guest_pci_check(pci, errp)) {
        virtio_driver_free(driver);
        return NULL;
    }
    return driver;
}

void virtio_driver_free(VirtioDriver *driver)
{
    if (!driver) {
        return;
    }
    if (!guest_pci_is_broken(driver->pci)) {
        virtio_driver_reset(driver, NULL);
        if (driver->vectors) {
            guest_pci_msix_set_enabled(driver->pci, false);
        }
    }
    g_free(driver->notify_addrs);
    g_free(driver->notifications);
    g_free(driver);
}

uint8_t virtio_driver_status(VirtioDriver *driver)
{
    return (uint8_t)common_read(driver, 1, VIRTIO_PCI_COMMON_STATUS);
}

void virtio_driver_set_status(VirtioDriver *driver, uint8_t status)
{
    common_write(driver, 1, VIRTIO_PCI_COMMON_STATUS, status);
}

bool virtio_driver_reset(VirtioDriver *driver, GError **errp)
{
    virtio_driver_set_status(driver, 0);
    for (unsigned i = 0; i < RESET_TRIES; i++) {
        uint8_t status = virtio_driver_status(driver);
        if (guest_pci_is_broken(driver->pci)) {
            break;
        }
        if (status == 0) {
            return guest_pci_check(driver->pci, errp);
        }
        g_usleep(1000);
    }
    if (guest_pci_check(driver->pci, errp)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_TIMED_OUT, "the device does not finish its reset");
    }
    return false;
}

static VirtioDriverFeatures read_device_features(VirtioDriver *driver)
{
    VirtioDriverFeatures features = 0;

    for (unsigned i = 0; i < FEATURE_WORDS; i++) {
        common_write(driver, 4, VIRTIO_PCI_COMMON_DFSELECT, i);
        uint32_t word = (uint32_t)common_read(driver, 4, VIRTIO_PCI_COMMON_DF);
        features |= (VirtioDriverFeatures)word << (32 * i);
    }
    return features;
}

static void write_driver_features(VirtioDriver *driver)
{
    for (unsigned i = 0; i < FEATURE_WORDS; i++) {
        common_write(driver, 4, VIRTIO_PCI_COMMON_GFSELECT, i);
        common_write(driver, 4, VIRTIO_PCI_COMMON_GF, (uint32_t)(driver->features >> (32 * i)));
    }
}

char *virtio_driver_features_text(VirtioDriverFeatures features)
{
    uint64_t low = (uint64_t)features, high = (uint64_t)(features >> 64);

    return high ? g_strdup_printf("0x%" PRIx64 "%016" PRIx64, high, low)
                : g_strdup_printf("0x%" PRIx64, low);
}

bool virtio_driver_negotiate(VirtioDriver *driver, VirtioDriverFeatures wanted, GError **errp)
{
    VirtioDriverFeatures version_1 = VIRTIO_DRIVER_FEATURE(VIRTIO_F_VERSION_1);

    driver->device_features = read_device_features(driver);
    driver->features = driver->device_features & (wanted | version_1);
    write_driver_features(driver);
    uint8_t status = virtio_driver_status(driver) | VIRTIO_CONFIG_S_FEATURES_OK;
    virtio_driver_set_status(driver, status);
    uint8_t seen = virtio_driver_status(driver);
    if (!guest_pci_check(driver->pci, errp)) {
        return false;
    }
    if (!(driver->features & version_1) || !(seen & VIRTIO_CONFIG_S_FEATURES_OK)) {
        g_autofree char *chosen = virtio_driver_features_text(driver->features);
        g_autofree char *offered = virtio_driver_features_text(driver->device_features);

        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "the device refuses features %s of the %s it offers", chosen, offered);
        return false;
    }
    return true;
}

bool virtio_driver_has_feature(const VirtioDriver *driver, unsigned bit)
{
    return driver->features >> bit & 1;
}

/* Aims the first @count vectors at words of RAM. */
static bool aim_vectors(VirtioDriver *driver, unsigned count, GError **errp)
{
    driver->interrupt_words =
        guest_ram_alloc(driver->ram, (size_t)count * WORD_STRIDE, WORD_STRIDE);
    if (!driver->interrupt_words) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NO_SPACE, "guest RAM is used up");
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!guest_pci_msix_set_vector(driver->pci, i, driver->interrupt_words + i * WORD_STRIDE,
                                       INTERRUPT_ONE, errp)) {
            return false;
        }
    }
    return true;
}

bool virtio_driver_setup_interrupts(VirtioDriver *driver, unsigned count, GError **errp)
{
    GuestPciDevice *pci = driver->pci;
    count = MIN(count, pci->msix_vectors);
    if (count == 0) {
        return true;
    }
    guest_pci_msix_set_enabled(pci, true);
    if (pci->bus->ops->irqs_enable ? !pci->bus->ops->irqs_enable(pci, count, errp)
                                   : !aim_vectors(driver, count, errp)) {
        return false;
    }
    guest_pci_msix_set_function_mask(pci, false);
    common_write(driver, 2, VIRTIO_PCI_COMMON_MSIX, 0);
    driver->vectors = count;
    return guest_pci_check(pci, errp);
}

bool virtio_driver_take_interrupt(VirtioDriver *driver, unsigned vector)
{
    if (vector >= driver->vectors) {
        return false;
    }
    if (driver->pci->bus->ops->irq_take) {
        return driver->pci->bus->ops->irq_take(driver->pci, vector);
    }
    uint32_t *word =
        guest_ram_pointer(driver->ram, driver->interrupt_words + vector * WORD_STRIDE, 4);
    /* Acquire: what the device did before its message is visible after it. */
    return __atomic_load_n(word, __ATOMIC_RELAXED) != 0 &&
           __atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE) != 0;
}

bool virtio_driver_sleep(VirtioDriver *driver, unsigned vector, unsigned timeout_us)
{
    const GuestPciOps *ops = driver->pci->bus->ops;
    if (!ops->irq_wait || vector >= driver->vectors) {
        return false;
    }
    ops->irq_wait(driver->pci, vector, timeout_us);
    return true;
}

uint8_t virtio_driver_read_isr(VirtioDriver *driver)
{
    return (uint8_t)guest_pci_bar_read(driver->pci, driver->isr.bar, 1, driver->isr.offset);
}

uint16_t virtio_driver_queue_max(VirtioDriver *driver, uint16_t index)
{
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_SELECT, index);
    return (uint16_t)common_read(driver, 2, VIRTIO_PCI_COMMON_Q_SIZE);
}

static void write_ring_address(VirtioDriver *driver, uint32_t offset, uint64_t addr)
{
    common_write(driver, 4, offset, (uint32_t)addr);
    common_write(driver, 4, offset + 4, addr >> 32);
}

/* Tells the device where @queue is and enables it. */
static bool enable_queue(VirtioDriver *driver, DriverQueue *queue, uint16_t vector, GError **errp)
{
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_SELECT, queue->index);
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_SIZE, queue->size);
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_MSIX, vector);
    uint64_t got_vector = common_read(driver, 2, VIRTIO_PCI_COMMON_Q_MSIX);
    write_ring_address(driver, VIRTIO_PCI_COMMON_Q_DESCLO, queue->desc_addr);
    write_ring_address(driver, VIRTIO_PCI_COMMON_Q_AVAILLO, queue->avail_addr);
    write_ring_address(driver, VIRTIO_PCI_COMMON_Q_USEDLO, queue->used_addr);
    uint64_t notify = common_read(driver, 2, VIRTIO_PCI_COMMON_Q_NOFF) * driver->notify_multiplier;
    common_write(driver, 2, VIRTIO_PCI_COMMON_Q_ENABLE, 1);
    if (!guest_pci_check(driver->pci, errp)) {
        return false;
    }
    if (got_vector != vector) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "queue %u: no MSI-X vector %u",
                    queue->index, vector);
        return false;
    }
    if (notify + 2 > driver->notify.length) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "queue %u: notification offset 0x%" PRIx64 " outside its structure of 0x%x",
                    queue->index, notify, driver->notify.length);
        return false;
    }
    driver->notify_addrs[queue->index] = driver->notify.offset + notify;
    return true;
}

DriverQueue *virtio_driver_setup_queue(VirtioDriver *driver, uint16_t index, uint16_t size,
                                       uint16_t vector, GError **errp)
{
    uint16_t max = index < driver->queue_count ? virtio_driver_queue_max(driver, index) : 0;
    if (max == 0 || size > max) {
        if (guest_pci_check(driver->pci, errp)) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                        "queue %u of %u entries: the device has %u queues, this one of at most %u",
                        index, size, driver->queue_count, max);
        }
        return NULL;
    }
    bool event_idx = virtio_driver_has_feature(driver, VIRTIO_RING_F_EVENT_IDX);
    size = size ? size : max;
    DriverQueue *queue =
        virtio_driver_has_feature(driver, VIRTIO_F_RING_PACKED)
            ? driver_queue_new_packed(driver->ram, index, size, event_idx, errp)
            : driver_queue_new(driver->ram, index, size, event_idx,
                               virtio_driver_has_feature(driver, VIRTIO_RING_F_INDIRECT_DESC),
                               errp);
    if (queue && !enable_queue(driver, queue, vector, errp)) {
        driver_queue_free(queue);
        return NULL;
    }
    return queue;
}

bool virtio_driver_start(VirtioDriver *driver, GError **errp)
{
    virtio_driver_set_status(driver, virtio_driver_status(driver) | VIRTIO_CONFIG_S_DRIVER_OK);
    return guest_pci_check(driver->pci, errp);
}

void virtio_driver_notify(VirtioDriver *driver, uint16_t index)
{
    __atomic_fetch_add(&driver->notifications[index], 1, __ATOMIC_RELAXED);
    guest_pci_bar_post(driver->pci, driver->notify.bar, 2, driver->notify_addrs[index], index);
}

void virtio_driver_notify_sync(VirtioDriver *driver, uint16_t index)
{
    __atomic_fetch_add(&driver->notifications[index], 1, __ATOMIC_RELAXED);
    guest_pci_bar_write(driver->pci, driver->notify.bar, 2, driver->notify_addrs[index], index);
}

uint64_t virtio_driver_config_read(VirtioDriver *driver, unsigned width, uint32_t offset)
{
    return guest_pci_bar_read(driver->pci, driver->device.bar, width,
                              driver->device.offset + offset);
}

void virtio_driver_config_write(VirtioDriver *driver, unsigned width, uint32_t offset,
                                uint64_t value)
{
    guest_pci_bar_write(driver->pci, driver->device.bar, width, driver->device.offset + offset,
                        value);
}
