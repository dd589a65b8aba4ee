/*
 * The modern register interface of virtio-pci (virtio 1.2, section 4.1.4): common configuration,
 * notification, ISR and device configuration in BAR 4, a vendor capability pointing at each, and
 * the PCI_CFG window through which firmware reaches them without mapping a BAR.
 *
 * The common registers are a table; what a register does is one small function.
 */
#include "hw/virtio/virtio-pci-internal.h"
#include "util/log.h"

#define STRUCTURE_SIZE  0x1000 /* each structure fills a page */
#define COMMON_OFFSET   0
#define ISR_OFFSET      0x1000
#define DEVICE_OFFSET   0x2000
#define NOTIFY_OFFSET   0x3000
#define BAR_SIZE        0x4000
#define BAR_SIZE_PVQ    0x800000 /* 0x3000 + 1024 pages, up to a power of two */
#define PIO_NOTIFY_SIZE 4

#define FEATURE_WORDS 4

unsigned virtio_pci_notify_mult(const VirtIOPCIProxy *proxy)
{
    return proxy->page_per_vq ? VIRTIO_PCI_NOTIFY_MULT_PVQ : VIRTIO_PCI_NOTIFY_MULT;
}

/* --- common configuration --- */

static uint32_t dfselect_read(VirtIOPCIProxy *proxy)
{
    return proxy->dfselect;
}

static void dfselect_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    proxy->dfselect = value;
}

static uint32_t device_feature_read(VirtIOPCIProxy *proxy)
{
    if (proxy->dfselect >= FEATURE_WORDS) {
        return 0;
    }
    return (uint32_t)(virtio_offered_features(proxy->vdev, false) >> (32 * proxy->dfselect));
}

static uint32_t gfselect_read(VirtIOPCIProxy *proxy)
{
    return proxy->gfselect;
}

static void gfselect_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    proxy->gfselect = value;
}

static uint32_t driver_feature_read(VirtIOPCIProxy *proxy)
{
    return proxy->gfselect < FEATURE_WORDS ? proxy->guest_features_sel[proxy->gfselect] : 0;
}

static void driver_feature_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    VirtioFeatures features = 0;

    if (proxy->gfselect >= FEATURE_WORDS) {
        if (value) {
            proxy->vdev->bad_features = true;
        }
        return;
    }
    proxy->guest_features_sel[proxy->gfselect] = value;
    for (unsigned i = 0; i < FEATURE_WORDS; i++) {
        features |= (VirtioFeatures)proxy->guest_features_sel[i] << (32 * i);
    }
    virtio_set_features(proxy->vdev, features);
}

static uint32_t num_queues_read(VirtIOPCIProxy *proxy)
{
    return proxy->vdev->num_queues;
}

static uint32_t status_read(VirtIOPCIProxy *proxy)
{
    return proxy->vdev->status;
}

static void status_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    virtio_pci_set_status(proxy, (uint8_t)value);
}

static uint32_t generation_read(VirtIOPCIProxy *proxy)
{
    return proxy->vdev->generation & 0xff;
}

static void queue_size_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    virtio_queue_set_num(proxy->vdev, proxy->vdev->queue_sel, value);
}

static uint32_t queue_enable_read(VirtIOPCIProxy *proxy)
{
    VirtioQueue *queue = virtio_pci_selected_queue(proxy);

    return queue && queue->enabled;
}

static void queue_enable_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    if (value == 1) {
        virtio_queue_enable(proxy->vdev, proxy->vdev->queue_sel);
    } else {
        guest_error("%s: %u written to queue_enable, 1 is allowed", device_name(DEVICE(proxy)),
                    value);
    }
}

static uint32_t queue_notify_off_read(VirtIOPCIProxy *proxy)
{
    return proxy->vdev->queue_sel;
}

#define ADDRESS_REGISTER(name, half)                                                               \
    static uint32_t name##_read(VirtIOPCIProxy *proxy)                                             \
    {                                                                                              \
        return virtio_queue_address(proxy->vdev, proxy->vdev->queue_sel, half);                    \
    }                                                                                              \
    static void name##_write(VirtIOPCIProxy *proxy, uint32_t value)                                \
    {                                                                                              \
        virtio_queue_set_address(proxy->vdev, proxy->vdev->queue_sel, half, value);                \
    }

ADDRESS_REGISTER(desc_low, VIRTIO_QUEUE_DESC_LOW)
ADDRESS_REGISTER(desc_high, VIRTIO_QUEUE_DESC_HIGH)
ADDRESS_REGISTER(avail_low, VIRTIO_QUEUE_AVAIL_LOW)
ADDRESS_REGISTER(avail_high, VIRTIO_QUEUE_AVAIL_HIGH)
ADDRESS_REGISTER(used_low, VIRTIO_QUEUE_USED_LOW)
ADDRESS_REGISTER(used_high, VIRTIO_QUEUE_USED_HIGH)

static void queue_reset_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    VirtioQueue *queue = virtio_pci_selected_queue(proxy);

    if (value != 1 || !queue || !virtio_has_feature(proxy->vdev, VIRTIO_F_RING_RESET)) {
        return;
    }
    virtio_pci_set_vector(proxy, &queue->vector, VIRTIO_NO_VECTOR);
    /* Done when it returns, so the register always reads 0. */
    virtio_queue_reset(proxy->vdev, proxy->vdev->queue_sel);
}

static const VirtioPciReg common_regs[] = {
    {VIRTIO_PCI_COMMON_DFSELECT, 4, dfselect_read, dfselect_write},
    {VIRTIO_PCI_COMMON_DF, 4, device_feature_read, NULL},
    {VIRTIO_PCI_COMMON_GFSELECT, 4, gfselect_read, gfselect_write},
    {VIRTIO_PCI_COMMON_GF, 4, driver_feature_read, driver_feature_write},
    {VIRTIO_PCI_COMMON_MSIX, 2, virtio_pci_config_vector_read, virtio_pci_config_vector_write},
    {VIRTIO_PCI_COMMON_NUMQ, 2, num_queues_read, NULL},
    {VIRTIO_PCI_COMMON_STATUS, 1, status_read, status_write},
    {VIRTIO_PCI_COMMON_CFGGENERATION, 1, generation_read, NULL},
    {VIRTIO_PCI_COMMON_Q_SELECT, 2, virtio_pci_queue_select_read, virtio_pci_queue_select_write},
    {VIRTIO_PCI_COMMON_Q_SIZE, 2, virtio_pci_queue_size_read, queue_size_write},
    {VIRTIO_PCI_COMMON_Q_MSIX, 2, virtio_pci_queue_vector_read, virtio_pci_queue_vector_write},
    {VIRTIO_PCI_COMMON_Q_ENABLE, 2, queue_enable_read, queue_enable_write},
    {VIRTIO_PCI_COMMON_Q_NOFF, 2, queue_notify_off_read, NULL},
    {VIRTIO_PCI_COMMON_Q_DESCLO, 4, desc_low_read, desc_low_write},
    {VIRTIO_PCI_COMMON_Q_DESCHI, 4, desc_high_read, desc_high_write},
    {VIRTIO_PCI_COMMON_Q_AVAILLO, 4, avail_low_read, avail_low_write},
    {VIRTIO_PCI_COMMON_Q_AVAILHI, 4, avail_high_read, avail_high_write},
    {VIRTIO_PCI_COMMON_Q_USEDLO, 4, used_low_read, used_low_write},
    {VIRTIO_PCI_COMMON_Q_USEDHI, 4, used_high_read, used_high_write},
    {VIRTIO_PCI_COMMON_Q_RESET, 2, NULL, queue_reset_write},
};

static uint64_t common_read(void *opaque, uint64_t offset, unsigned size)
{
    return virtio_pci_regs_read(opaque, common_regs, G_N_ELEMENTS(common_regs), offset, size);
}

static void common_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    if (!virtio_access_is_nested()) {
        virtio_pci_regs_write(opaque, common_regs, G_N_ELEMENTS(common_regs), offset, value, size);
    }
}

/* --- the other structures --- */

static uint64_t isr_read(void *opaque, uint64_t offset, unsigned size)
{
    (void)size;
    return offset == 0 ? virtio_pci_isr_read(opaque) : 0;
}

static uint64_t device_read(void *opaque, uint64_t offset, unsigned size)
{
    VirtIOPCIProxy *proxy = opaque;

    return virtio_config_read(proxy->vdev, (unsigned)offset, size);
}

static void device_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    VirtIOPCIProxy *proxy = opaque;

    if (!virtio_access_is_nested()) {
        virtio_config_write(proxy->vdev, (unsigned)offset, (uint32_t)value, size);
    }
}

static void notify_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    VirtIOPCIProxy *proxy = opaque;

    (void)value; /* the address says which queue */
    (void)size;
    virtio_queue_notify(proxy->vdev, (unsigned)(offset / virtio_pci_notify_mult(proxy)));
}

static void pio_notify_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    VirtIOPCIProxy *proxy = opaque;

    (void)size;
    if (offset == 0) {
        virtio_queue_notify(proxy->vdev, value & 0xffff);
    }
}

static const IoOps common_ops = {.read = common_read, .write = common_write};
static const IoOps isr_ops = {.read = isr_read};
static const IoOps device_ops = {.read = device_read, .write = device_write};
static const IoOps notify_ops = {.write = notify_write, .max_access = 8};
static const IoOps pio_notify_ops = {.write = pio_notify_write};

/* --- capabilities --- */

/* A vendor capability of @size bytes that describes [@offset, @offset + @length) of @bar. */
static uint8_t *add_cap(VirtIOPCIProxy *proxy, unsigned *cap, unsigned size, uint8_t type,
                        uint8_t bar, uint32_t offset, uint32_t length)
{
    uint8_t *p = pci_add_capability(&proxy->pci, PCI_CAP_ID_VNDR, *cap, size);

    p[VIRTIO_PCI_CAP_LEN] = (uint8_t)size;
    p[VIRTIO_PCI_CAP_CFG_TYPE] = type;
    p[VIRTIO_PCI_CAP_BAR] = bar;
    pci_set_long(p + VIRTIO_PCI_CAP_OFFSET, offset);
    pci_set_long(p + VIRTIO_PCI_CAP_LENGTH, length);
    *cap += size;
    return p;
}

static void add_window(VirtIOPCIProxy *proxy, unsigned *cap)
{
    uint8_t *wmask;

    proxy->config_cap = *cap;
    add_cap(proxy, cap, sizeof(struct virtio_pci_cfg_cap), VIRTIO_PCI_CAP_PCI_CFG, 0, 0, 0);
    wmask = proxy->pci.wmask + proxy->config_cap;
    wmask[VIRTIO_PCI_CAP_BAR] = 0xff;
    pci_set_long(wmask + VIRTIO_PCI_CAP_OFFSET, UINT32_MAX);
    pci_set_long(wmask + VIRTIO_PCI_CAP_LENGTH, UINT32_MAX);
    pci_set_long(wmask + offsetof(struct virtio_pci_cfg_cap, pci_cfg_data), UINT32_MAX);
    /* The driver's leftovers there are no part of what a saved state must agree on. */
    for (unsigned i = 0; i < sizeof(struct virtio_pci_cfg_cap); i++) {
        proxy->pci.cmask[proxy->config_cap + i] &= (uint8_t)~wmask[i];
    }
}

unsigned virtio_pci_modern_init(VirtIOPCIProxy *proxy, unsigned cap)
{
    unsigned mult = virtio_pci_notify_mult(proxy);
    uint32_t notify_size = mult * VIRTIO_QUEUE_MAX;
    uint8_t *notify;

    io_region_init(&proxy->modern_bar, "virtio-pci", proxy->page_per_vq ? BAR_SIZE_PVQ : BAR_SIZE,
                   NULL, NULL);
    io_region_init(&proxy->common, "virtio-pci-common", STRUCTURE_SIZE, &common_ops, proxy);
    io_region_init(&proxy->isr, "virtio-pci-isr", STRUCTURE_SIZE, &isr_ops, proxy);
    io_region_init(&proxy->device, "virtio-pci-device", STRUCTURE_SIZE, &device_ops, proxy);
    io_region_init(&proxy->notify, "virtio-pci-notify", notify_size, &notify_ops, proxy);
    io_region_add_child(&proxy->modern_bar, COMMON_OFFSET, &proxy->common);
    io_region_add_child(&proxy->modern_bar, ISR_OFFSET, &proxy->isr);
    io_region_add_child(&proxy->modern_bar, DEVICE_OFFSET, &proxy->device);
    io_region_add_child(&proxy->modern_bar, NOTIFY_OFFSET, &proxy->notify);

    add_cap(proxy, &cap, sizeof(struct virtio_pci_cap), VIRTIO_PCI_CAP_COMMON_CFG,
            VIRTIO_PCI_BAR_MODERN, COMMON_OFFSET, STRUCTURE_SIZE);
    add_cap(proxy, &cap, sizeof(struct virtio_pci_cap), VIRTIO_PCI_CAP_ISR_CFG,
            VIRTIO_PCI_BAR_MODERN, ISR_OFFSET, STRUCTURE_SIZE);
    add_cap(proxy, &cap, sizeof(struct virtio_pci_cap), VIRTIO_PCI_CAP_DEVICE_CFG,
            VIRTIO_PCI_BAR_MODERN, DEVICE_OFFSET, STRUCTURE_SIZE);
    notify = add_cap(proxy, &cap, sizeof(struct virtio_pci_notify_cap), VIRTIO_PCI_CAP_NOTIFY_CFG,
                     VIRTIO_PCI_BAR_MODERN, NOTIFY_OFFSET, notify_size);
    pci_set_long(notify + VIRTIO_PCI_NOTIFY_CAP_MULT, mult);
    if (proxy->modern_pio_notify) {
        /* Multiplier 0: one port, the value says which queue. */
        io_region_init(&proxy->pio_notify_bar, "virtio-pci-notify-pio", PIO_NOTIFY_SIZE,
                       &pio_notify_ops, proxy);
        add_cap(proxy, &cap, sizeof(struct virtio_pci_notify_cap), VIRTIO_PCI_CAP_NOTIFY_CFG,
                VIRTIO_PCI_BAR_PIO_NOTIFY, 0, PIO_NOTIFY_SIZE);
        pci_register_bar(&proxy->pci, VIRTIO_PCI_BAR_PIO_NOTIFY, PCI_BASE_ADDRESS_SPACE_IO,
                         &proxy->pio_notify_bar);
    }
    pci_register_bar(&proxy->pci, VIRTIO_PCI_BAR_MODERN,
                     PCI_BASE_ADDRESS_SPACE_MEMORY | PCI_BASE_ADDRESS_MEM_TYPE_64 |
                         PCI_BASE_ADDRESS_MEM_PREFETCH,
                     &proxy->modern_bar);
    add_window(proxy, &cap);
    return cap;
}

void virtio_pci_modern_cleanup(VirtIOPCIProxy *proxy)
{
    io_region_cleanup(&proxy->modern_bar);
    io_region_cleanup(&proxy->common);
    io_region_cleanup(&proxy->isr);
    io_region_cleanup(&proxy->device);
    io_region_cleanup(&proxy->notify);
    io_region_cleanup(&proxy->pio_notify_bar);
    proxy->config_cap = 0;
}

/* --- the PCI_CFG window --- */

/* Whether configuration bytes [offset, offset + size) touch the window's data. */
static bool window_touched(const VirtIOPCIProxy *proxy, unsigned offset, unsigned size)
{
    unsigned data = proxy->config_cap + offsetof(struct virtio_pci_cfg_cap, pci_cfg_data);

    return proxy->config_cap && offset < data + 4 && offset + size > data;
}

/* The region and place that the window shows, as the driver wrote them; NULL: nothing. */
static IoRegion *window_target(VirtIOPCIProxy *proxy, uint32_t *offset, uint32_t *length)
{
    const uint8_t *cap = proxy->pci.config + proxy->config_cap;
    uint8_t bar = cap[VIRTIO_PCI_CAP_BAR];
    IoRegion *region;

    *offset = pci_get_long(cap + VIRTIO_PCI_CAP_OFFSET);
    *length = pci_get_long(cap + VIRTIO_PCI_CAP_LENGTH);
    if (bar != VIRTIO_PCI_BAR_MODERN && bar != VIRTIO_PCI_BAR_PIO_NOTIFY &&
        bar != VIRTIO_PCI_BAR_LEGACY) {
        return NULL;
    }
    region = proxy->pci.bars[bar].region;
    if (!region || (*length != 1 && *length != 2 && *length != 4) || *offset % *length ||
        (uint64_t)*offset + *length > region->size) {
        return NULL;
    }
    return region;
}

void virtio_pci_window_read(VirtIOPCIProxy *proxy, unsigned offset, unsigned size)
{
    uint8_t *data =
        proxy->pci.config + proxy->config_cap + offsetof(struct virtio_pci_cfg_cap, pci_cfg_data);
    uint32_t where, length;
    IoRegion *region;

    if (!window_touched(proxy, offset, size)) {
        return;
    }
    region = window_target(proxy, &where, &length);
    if (region) {
        uint64_t value = io_region_read(region, where, length);

        for (unsigned i = 0; i < length; i++) {
            data[i] = (uint8_t)(value >> (8 * i));
        }
    }
}

void virtio_pci_window_written(VirtIOPCIProxy *proxy, unsigned offset, unsigned size)
{
    const uint8_t *data =
        proxy->pci.config + proxy->config_cap + offsetof(struct virtio_pci_cfg_cap, pci_cfg_data);
    uint32_t where, length;
    IoRegion *region;

    if (!window_touched(proxy, offset, size) || virtio_access_is_nested()) {
        return;
    }
    region = window_target(proxy, &where, &length);
    if (region) {
        io_region_write(region, where, pci_get_long(data) & (UINT32_MAX >> (32 - 8 * length)),
                        length);
    }
}
