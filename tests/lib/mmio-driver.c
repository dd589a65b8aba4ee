/* A driver for virtio-mmio slots: see mmio-driver.h. */
#include "tests/lib/mmio-driver.h"

#include <linux/virtio_config.h>

#define PAGE_SIZE 4096u

MmioDriver mmio_driver_open(QtestClient *qtest, GuestRam *ram, unsigned n)
{
    MmioDriver driver = {.qtest = qtest,
                         .ram = ram,
                         .base = MMIO_BASE + n * MMIO_SLOT_SIZE,
                         .irq = MMIO_FIRST_IRQ + n};

    g_assert_cmphex(mmio_read(&driver, VIRTIO_MMIO_MAGIC_VALUE), ==, 0x74726976);
    driver.version = mmio_read(&driver, VIRTIO_MMIO_VERSION);
    driver.device_id = mmio_read(&driver, VIRTIO_MMIO_DEVICE_ID);
    return driver;
}

uint32_t mmio_read(MmioDriver *driver, unsigned reg)
{
    return (uint32_t)qtest_client_load(driver->qtest, 4, driver->base + reg);
}

void mmio_write(MmioDriver *driver, unsigned reg, uint32_t value)
{
    qtest_client_store(driver->qtest, 4, driver->base + reg, value);
}

uint64_t mmio_offered(MmioDriver *driver)
{
    uint64_t features;

    mmio_write(driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
    features = mmio_read(driver, VIRTIO_MMIO_DEVICE_FEATURES);
    mmio_write(driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    return features | (uint64_t)mmio_read(driver, VIRTIO_MMIO_DEVICE_FEATURES) << 32;
}

static void add_status(MmioDriver *driver, uint32_t bits)
{
    mmio_write(driver, VIRTIO_MMIO_STATUS, mmio_read(driver, VIRTIO_MMIO_STATUS) | bits);
    g_assert_cmphex(mmio_read(driver, VIRTIO_MMIO_STATUS) & bits, ==, bits);
}

void mmio_driver_negotiate(MmioDriver *driver, uint64_t wanted)
{
    mmio_write(driver, VIRTIO_MMIO_STATUS, 0);
    g_assert_cmphex(mmio_read(driver, VIRTIO_MMIO_STATUS), ==, 0);
    add_status(driver, VIRTIO_CONFIG_S_ACKNOWLEDGE);
    add_status(driver, VIRTIO_CONFIG_S_DRIVER);
    driver->features = mmio_offered(driver) & (wanted | 1ull << VIRTIO_F_VERSION_1);
    for (unsigned i = 0; i < 2; i++) {
        mmio_write(driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, i);
        mmio_write(driver, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(driver->features >> (32 * i)));
    }
    if (driver->version == 1) {
        mmio_write(driver, VIRTIO_MMIO_GUEST_PAGE_SIZE, PAGE_SIZE);
    } else {
        add_status(driver, VIRTIO_CONFIG_S_FEATURES_OK);
    }
}

/* The three areas in consecutive pages, as a legacy queue must lie. */
static void place_rings(MmioDriver *driver, DriverQueue *queue)
{
    size_t n = queue->size, front = n * sizeof(struct vring_desc) + 6 + 2 * n;
    size_t used = (front + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1);
    size_t size = used + 6 + n * sizeof(struct vring_used_elem);
    struct vring_desc *desc;

    queue->desc_addr = guest_ram_alloc(driver->ram, size, PAGE_SIZE);
    g_assert_cmphex(queue->desc_addr, !=, 0);
    queue->avail_addr = queue->desc_addr + n * sizeof(struct vring_desc);
    queue->used_addr = queue->desc_addr + used;
    desc = guest_ram_pointer(driver->ram, queue->desc_addr, size);
    memcpy(desc, queue->desc, n * sizeof(*desc)); /* the list of free ones */
    queue->desc = desc;
    queue->avail = (struct vring_avail *)((uint8_t *)desc + n * sizeof(*desc));
    queue->used = (struct vring_used *)((uint8_t *)desc + used);
    queue->used_event = &queue->avail->ring[n];
    queue->avail_event = (uint16_t *)&queue->used->ring[n];
}

static void write_address(MmioDriver *driver, unsigned reg, uint64_t addr)
{
    mmio_write(driver, reg, (uint32_t)addr);
    mmio_write(driver, reg + 4, (uint32_t)(addr >> 32));
}

DriverQueue *mmio_driver_setup_queue(MmioDriver *driver, uint16_t index, uint16_t size)
{
    DriverQueue *queue;
    uint32_t max;
    GError *err = NULL;

    mmio_write(driver, VIRTIO_MMIO_QUEUE_SEL, index);
    max = mmio_read(driver, VIRTIO_MMIO_QUEUE_NUM_MAX);
    g_assert_cmpuint(max, >=, size);
    queue = driver_queue_new(driver->ram, index, (uint16_t)(size ? size : max),
                             driver->features >> VIRTIO_RING_F_EVENT_IDX & 1, false, &err);
    g_assert_no_error(err);
    mmio_write(driver, VIRTIO_MMIO_QUEUE_NUM, queue->size);
    if (driver->version == 1) {
        place_rings(driver, queue);
        g_assert_cmphex(mmio_read(driver, VIRTIO_MMIO_QUEUE_PFN), ==, 0);
        mmio_write(driver, VIRTIO_MMIO_QUEUE_ALIGN, PAGE_SIZE);
        mmio_write(driver, VIRTIO_MMIO_QUEUE_PFN, (uint32_t)(queue->desc_addr / PAGE_SIZE));
        g_assert_cmphex(mmio_read(driver, VIRTIO_MMIO_QUEUE_PFN), ==, queue->desc_addr / PAGE_SIZE);
        return queue;
    }
    g_assert_cmphex(mmio_read(driver, VIRTIO_MMIO_QUEUE_READY), ==, 0);
    write_address(driver, VIRTIO_MMIO_QUEUE_DESC_LOW, queue->desc_addr);
    write_address(driver, VIRTIO_MMIO_QUEUE_AVAIL_LOW, queue->avail_addr);
    write_address(driver, VIRTIO_MMIO_QUEUE_USED_LOW, queue->used_addr);
    mmio_write(driver, VIRTIO_MMIO_QUEUE_READY, 1);
    g_assert_cmphex(mmio_read(driver, VIRTIO_MMIO_QUEUE_READY), ==, 1);
    return queue;
}

void mmio_driver_start(MmioDriver *driver)
{
    add_status(driver, VIRTIO_CONFIG_S_DRIVER_OK);
}

void mmio_driver_notify(MmioDriver *driver, uint16_t index)
{
    mmio_write(driver, VIRTIO_MMIO_QUEUE_NOTIFY, index);
}

uint32_t mmio_driver_take_interrupt(MmioDriver *driver)
{
    uint32_t status = mmio_read(driver, VIRTIO_MMIO_INTERRUPT_STATUS);

    mmio_write(driver, VIRTIO_MMIO_INTERRUPT_ACK, status);
    return status;
}
