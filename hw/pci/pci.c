/*
 * The PCI device base class: configuration space and what hangs on it.
 *
 * Every configuration byte has masks: wmask (the guest may write these bits), w1cmask (writing 1
 * clears) and cmask (a saved state must agree).  A write goes through the masks first; then what
 * is derived from the bytes follows: BARs begin or cease to decode (PciHostOps.bar_mapped), the
 * device's DmaSpace opens with Bus Master Enable, INTx follows Interrupt Disable, MSI-X follows
 * its control word.  Nothing derived is stored in a second place except what other threads read.
 *
 * Offsets and sizes come from guests and clients: reads past the end are ones, writes past the
 * end go nowhere.  Not here: places on the bus (pci-bus.c), MSI-X itself (msix.c), how a machine
 * reaches configuration space (hw/i386/pci-host.c).
 */
#include <string.h>

#include "hw/pci/pcie.h"

G_DEFINE_ABSTRACT_TYPE(PCIDevice, pci_device, TYPE_DEVICE)

#define ROM_BAR        (PCI_NUM_BARS - 1)
#define ROM_SIZE_MIN   2048 /* PCI 3.0, section 6.2.5.2: address bits 10..1 are reserved */
#define ROM_SIZE_MAX   (16u * 1024 * 1024)
#define ROMSIZE_AUTO   UINT32_MAX
#define UNMAPPED       UINT64_MAX
#define BAR_WRITE_MASK (~(uint64_t)0)

/* QEMU's subsystem ids for devices that have none of their own. */
#define SUBSYSTEM_VENDOR_DEFAULT 0x1af4
#define SUBSYSTEM_DEFAULT        0x1100

static unsigned bar_offset(unsigned n)
{
    return n == ROM_BAR ? PCI_ROM_ADDRESS : PCI_BASE_ADDRESS_0 + 4 * n;
}

static uint16_t command(const PCIDevice *dev)
{
    return pci_get_word(dev->config + PCI_COMMAND);
}

static bool ranges_overlap(unsigned a, unsigned a_size, unsigned b, unsigned b_size)
{
    return a < b + b_size && b < a + a_size;
}

/* --- BARs --- */

void pci_register_bar(PCIDevice *dev, unsigned n, uint8_t type, IoRegion *region)
{
    uint64_t size = region->size;
    unsigned offset = bar_offset(n);

    g_assert(n < PCI_NUM_BARS && !dev->bars[n].region);
    g_assert(size >= (type & PCI_BASE_ADDRESS_SPACE_IO ? 4 : 16) && (size & (size - 1)) == 0);
    dev->bars[n] = (PciBar){.region = region, .type = type, .size = size, .mapped_at = UNMAPPED};
    if (n == ROM_BAR) {
        pci_set_long(dev->wmask + offset, (uint32_t) ~(size - 1) | PCI_ROM_ADDRESS_ENABLE);
        return;
    }
    pci_set_long(dev->config + offset, type);
    pci_set_long(dev->wmask + offset, (uint32_t)(BAR_WRITE_MASK & ~(size - 1)));
    if (type & PCI_BASE_ADDRESS_MEM_TYPE_64) {
        g_assert(n + 1 < ROM_BAR);
        pci_set_long(dev->wmask + offset + 4, (uint32_t)((BAR_WRITE_MASK & ~(size - 1)) >> 32));
    }
}

/* A window of a bridge: what it passes on, from @base to @limit. */
static bool window_holds(uint64_t base, uint64_t limit, uint64_t addr, uint64_t size)
{
    return base <= limit && addr >= base && addr + (size - 1) <= limit;
}

static uint64_t window_memory(const uint8_t *config, unsigned offset)
{
    return (uint64_t)(pci_get_word(config + offset) & 0xfff0) << 16;
}

/* Does @bridge pass on what goes to @bar at @addr (PCI-to-PCI bridge specification 1.2, 3.2.5)? */
static bool bridge_forwards(const PCIDevice *bridge, const PciBar *bar, uint64_t addr)
{
    const uint8_t *config = bridge->config;
    uint16_t cmd = command(bridge);

    if (bar->type & PCI_BASE_ADDRESS_SPACE_IO) {
        return (cmd & PCI_COMMAND_IO) &&
               window_holds((config[PCI_IO_BASE] & 0xf0u) << 8,
                            (config[PCI_IO_LIMIT] & 0xf0u) << 8 | 0xfff, addr, bar->size);
    }
    if (!(cmd & PCI_COMMAND_MEMORY)) {
        return false;
    }
    return window_holds(window_memory(config, PCI_MEMORY_BASE),
                        window_memory(config, PCI_MEMORY_LIMIT) | 0xfffff, addr, bar->size) ||
           window_holds(window_memory(config, PCI_PREF_MEMORY_BASE) |
                            (uint64_t)pci_get_long(config + PCI_PREF_BASE_UPPER32) << 32,
                        window_memory(config, PCI_PREF_MEMORY_LIMIT) | 0xfffff |
                            (uint64_t)pci_get_long(config + PCI_PREF_LIMIT_UPPER32) << 32,
                        addr, bar->size);
}

static bool bridges_forward(const PCIDevice *dev, const PciBar *bar, uint64_t addr)
{
    PCIDevice *bridge = dev->bus ? pci_bus_bridge(dev->bus) : NULL;

    for (; bridge; bridge = bridge->bus ? pci_bus_bridge(bridge->bus) : NULL) {
        if (!bridge->config || !bridge_forwards(bridge, bar, addr)) {
            return false;
        }
    }
    return true;
}

/* Where BAR @n decodes by what its registers say, or UNMAPPED.  Address 0 and ranges that reach
 * the end of their space do not decode: they are what sizing leaves behind. */
static uint64_t bar_decoded_address(const PCIDevice *dev, unsigned n)
{
    const PciBar *bar = &dev->bars[n];
    uint64_t value = pci_get_long(dev->config + bar_offset(n));
    uint64_t limit = UINT32_MAX - 1;
    uint64_t addr;

    if (bar->type & PCI_BASE_ADDRESS_SPACE_IO) {
        if (!(command(dev) & PCI_COMMAND_IO)) {
            return UNMAPPED;
        }
        limit = UINT16_MAX;
    } else {
        if (!(command(dev) & PCI_COMMAND_MEMORY)) {
            return UNMAPPED;
        }
        if (n == ROM_BAR && !(value & PCI_ROM_ADDRESS_ENABLE)) {
            return UNMAPPED;
        }
        if (bar->type & PCI_BASE_ADDRESS_MEM_TYPE_64) {
            value |= (uint64_t)pci_get_long(dev->config + bar_offset(n) + 4) << 32;
            limit = UINT64_MAX - 1;
        }
    }
    addr = value & ~(bar->size - 1);
    if (addr == 0 || addr + (bar->size - 1) < addr || addr + (bar->size - 1) > limit ||
        !bridges_forward(dev, bar, addr)) {
        return UNMAPPED;
    }
    return addr;
}

static void bar_move(PCIDevice *dev, unsigned n, uint64_t addr)
{
    PciHost *host = dev->bus ? dev->bus->host : NULL;
    PciBar *bar = &dev->bars[n];
    uint64_t old = bar->mapped_at;

    if (old == addr) {
        return;
    }
    bar->mapped_at = addr;
    if (!host || !host->ops->bar_mapped) {
        return;
    }
    if (old != UNMAPPED) {
        host->ops->bar_mapped(host, dev, n, old, false);
    }
    if (addr != UNMAPPED) {
        host->ops->bar_mapped(host, dev, n, addr, true);
    }
}

static void bars_update(PCIDevice *dev)
{
    for (unsigned n = 0; n < PCI_NUM_BARS; n++) {
        if (dev->bars[n].region) {
            bar_move(dev, n, bar_decoded_address(dev, n));
        }
    }
}

static void bars_unmap(PCIDevice *dev)
{
    for (unsigned n = 0; n < PCI_NUM_BARS; n++) {
        if (dev->bars[n].region) {
            bar_move(dev, n, UNMAPPED);
        }
    }
}

/* --- expansion ROM --- */

static uint64_t rom_read(void *opaque, uint64_t offset, unsigned size)
{
    PCIDevice *dev = opaque;
    uint64_t value = 0;

    for (unsigned i = 0; i < size && offset + i < dev->rom_region.size; i++) {
        value |= (uint64_t)dev->rom[offset + i] << (8 * i);
    }
    return value;
}

static const IoOps rom_ops = {.read = rom_read, .max_access = 8};

/* An empty romfile, and none, mean no ROM; so does rombar=0. */
static gboolean rom_load(PCIDevice *dev, GError **errp)
{
    g_autofree char *contents = NULL;
    uint64_t size = ROM_SIZE_MIN;
    gsize length;
    GError *err = NULL;

    if (!dev->romfile || !*dev->romfile || !dev->rombar) {
        return TRUE;
    }
    if (dev->romsize != ROMSIZE_AUTO &&
        (dev->romsize < ROM_SIZE_MIN || dev->romsize > ROM_SIZE_MAX ||
         (dev->romsize & (dev->romsize - 1)))) {
        return error_set(errp, "romsize %u of %s must be a power of two from %u to %u",
                         dev->romsize, device_name(&dev->parent_obj), ROM_SIZE_MIN, ROM_SIZE_MAX);
    }
    if (!g_file_get_contents(dev->romfile, &contents, &length, &err)) {
        error_set(errp, "failed to load romfile \"%s\": %s", dev->romfile, err->message);
        g_error_free(err);
        return FALSE;
    }
    if (length == 0 || length > ROM_SIZE_MAX) {
        return error_set(errp, "romfile \"%s\" has %zu bytes, 1 to %u are allowed", dev->romfile,
                         (size_t)length, ROM_SIZE_MAX);
    }
    while (size < length) {
        size *= 2;
    }
    if (dev->romsize != ROMSIZE_AUTO) {
        if (length > dev->romsize) {
            return error_set(errp, "romfile \"%s\" (%zu bytes) is too large for ROM size %u",
                             dev->romfile, (size_t)length, dev->romsize);
        }
        size = dev->romsize;
    }
    dev->rom = g_malloc0(size);
    memcpy(dev->rom, contents, length);
    io_region_init(&dev->rom_region, "pci-rom", size, &rom_ops, dev);
    pci_register_bar(dev, ROM_BAR, PCI_BASE_ADDRESS_MEM_PREFETCH, &dev->rom_region);
    return TRUE;
}

/* --- INTx --- */

/* Tells the host when level or Interrupt Disable changed what is on the wire.  Its counting is
 * commutative, so it is told outside the lock. */
static void irq_update(PCIDevice *dev, bool level)
{
    PciHost *host = dev->bus ? dev->bus->host : NULL;
    unsigned pin = dev->config ? dev->config[PCI_INTERRUPT_PIN] : 0;
    bool disabled = dev->config && (command(dev) & PCI_COMMAND_INTX_DISABLE);
    bool asserted, changed;

    pthread_mutex_lock(&dev->irq_lock);
    __atomic_store_n(&dev->irq_level, level, __ATOMIC_RELAXED);
    asserted = level && !disabled && pin >= 1 && pin <= 4;
    changed = asserted != dev->irq_asserted;
    dev->irq_asserted = asserted;
    pthread_mutex_unlock(&dev->irq_lock);
    if (changed && host) {
        host->ops->set_irq(host, dev, pin - 1, asserted);
    }
}

void pci_set_irq(PCIDevice *dev, bool level)
{
    irq_update(dev, level);
}

/* --- configuration space --- */

uint32_t pci_config_read(PCIDevice *dev, unsigned offset, unsigned size)
{
    PCIDeviceClass *klass = PCI_DEVICE_GET_CLASS(dev);
    uint32_t value = 0;

    size = MIN(size, 4);
    if (klass->config_read && offset < dev->config_size) {
        klass->config_read(dev, offset, MIN(size, dev->config_size - offset));
    }
    for (unsigned i = 0; i < size; i++) {
        unsigned at = offset + i;
        uint32_t byte = at >= offset && at < dev->config_size ? dev->config[at] : 0xff;

        if (at == PCI_STATUS && __atomic_load_n(&dev->irq_level, __ATOMIC_RELAXED)) {
            byte |= PCI_STATUS_INTERRUPT;
        }
        value |= byte << (8 * i);
    }
    return value;
}

/* Its own Bus Master Enable, and that of every bridge above. */
static bool may_master(const PCIDevice *dev)
{
    const PCIDevice *d = dev;

    while (d && d->config && (command(d) & PCI_COMMAND_MASTER)) {
        PCIDevice *bridge = d->bus ? pci_bus_bridge(d->bus) : NULL;
        if (!bridge) {
            return true;
        }
        d = bridge;
    }
    return false;
}

void pci_bus_routes_changed(PCIBus *bus)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(bus->devices); i++) {
        PCIDevice *dev = bus->devices[i];
        if (!dev || !dev->config || !dev->parent_obj.realized) {
            continue;
        }
        if (dev->dma.enabled != may_master(dev)) {
            dma_space_set_enabled(&dev->dma, may_master(dev));
        }
        bars_update(dev);
        for (unsigned j = 0; j < dev->parent_obj.child_buses->len; j++) {
            BusState *below = dev->parent_obj.child_buses->pdata[j];
            if (IS_PCI_BUS(below)) {
                pci_bus_routes_changed(PCI_BUS(below));
            }
        }
    }
}

static void command_changed(PCIDevice *dev)
{
    bool master = may_master(dev);

    if (dev->dma.enabled != master) {
        dma_space_set_enabled(&dev->dma, master);
    }
    irq_update(dev, dev->irq_level);
}

void pci_config_write(PCIDevice *dev, unsigned offset, uint32_t value, unsigned size)
{
    PCIDeviceClass *klass = PCI_DEVICE_GET_CLASS(dev);

    size = MIN(size, 4);
    if (offset >= dev->config_size) {
        return;
    }
    size = MIN(size, dev->config_size - offset);
    for (unsigned i = 0; i < size; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        uint8_t wmask = dev->wmask[offset + i];
        uint8_t *config = &dev->config[offset + i];

        *config = (uint8_t)((*config & ~wmask) | (byte & wmask));
        *config &= (uint8_t) ~(byte & dev->w1cmask[offset + i]);
    }
    if (ranges_overlap(offset, size, PCI_COMMAND, 2)) {
        command_changed(dev);
        bars_update(dev);
    } else if (ranges_overlap(offset, size, PCI_BASE_ADDRESS_0, 24) ||
               ranges_overlap(offset, size, PCI_ROM_ADDRESS, 4)) {
        bars_update(dev);
    }
    if (msix_present(dev) && ranges_overlap(offset, size, dev->msix.cap + PCI_MSIX_FLAGS, 2)) {
        msix_control_written(dev);
    }
    if (klass->config_written) {
        klass->config_written(dev, offset, size);
    }
    if (klass->is_express && !klass->is_bridge) {
        pcie_endpoint_config_written(dev, offset, size);
    }
}

void pci_config_loaded(PCIDevice *dev)
{
    command_changed(dev);
    bars_update(dev);
    if (msix_present(dev)) {
        msix_control_written(dev);
    }
}

uint8_t *pci_add_capability(PCIDevice *dev, uint8_t id, unsigned offset, unsigned size)
{
    uint8_t *cap = dev->config + offset;

    g_assert(offset >= PCI_STD_HEADER_SIZEOF && size >= 2 && offset + size <= PCI_CONFIG_SIZE);
    memset(cap, 0, size);
    memset(dev->wmask + offset, 0, size);
    memset(dev->cmask + offset, 0xff, size);
    cap[PCI_CAP_LIST_ID] = id;
    cap[PCI_CAP_LIST_NEXT] = dev->config[PCI_CAPABILITY_LIST];
    dev->config[PCI_CAPABILITY_LIST] = (uint8_t)offset;
    dev->config[PCI_STATUS] |= PCI_STATUS_CAP_LIST;
    return cap;
}

static void config_init(PCIDevice *dev)
{
    PCIDeviceClass *klass = PCI_DEVICE_GET_CLASS(dev);
    uint16_t sub_vendor = klass->subsystem_vendor_id, sub_id = klass->subsystem_id;
    uint8_t *config;

    dev->config_size =
        klass->is_express && dev->bus->express ? PCIE_CONFIG_SIZE : PCI_CONFIG_SIZE;
    if (klass->is_bridge && klass->is_express) {
        dev->config_size = PCIE_CONFIG_SIZE;
    }
    dev->config = config = g_malloc0(dev->config_size);
    dev->wmask = g_malloc0(dev->config_size);
    dev->w1cmask = g_malloc0(dev->config_size);
    dev->cmask = g_malloc0(dev->config_size);

    if (!sub_vendor && !sub_id && !klass->is_bridge) {
        sub_vendor = SUBSYSTEM_VENDOR_DEFAULT;
        sub_id = SUBSYSTEM_DEFAULT;
    }
    pci_set_word(config + PCI_VENDOR_ID, klass->vendor_id);
    pci_set_word(config + PCI_DEVICE_ID, klass->device_id);
    config[PCI_REVISION_ID] = klass->revision;
    pci_set_word(config + PCI_CLASS_DEVICE, klass->class_id);
    pci_set_word(config + PCI_SUBSYSTEM_VENDOR_ID, sub_vendor);
    pci_set_word(config + PCI_SUBSYSTEM_ID, sub_id);
    if (dev->multifunction) {
        config[PCI_HEADER_TYPE] |= 0x80;
    }

    pci_set_word(dev->wmask + PCI_COMMAND, PCI_COMMAND_IO | PCI_COMMAND_MEMORY |
                                               PCI_COMMAND_MASTER | PCI_COMMAND_SERR |
                                               PCI_COMMAND_INTX_DISABLE);
    dev->wmask[PCI_CACHE_LINE_SIZE] = 0xff;
    dev->wmask[PCI_INTERRUPT_LINE] = 0xff;
    pci_set_word(dev->w1cmask + PCI_STATUS,
                 PCI_STATUS_PARITY | PCI_STATUS_SIG_TARGET_ABORT | PCI_STATUS_REC_TARGET_ABORT |
                     PCI_STATUS_REC_MASTER_ABORT | PCI_STATUS_SIG_SYSTEM_ERROR |
                     PCI_STATUS_DETECTED_PARITY);

    memset(dev->cmask + PCI_VENDOR_ID, 0xff, 4);
    dev->cmask[PCI_STATUS] = PCI_STATUS_CAP_LIST;
    memset(dev->cmask + PCI_REVISION_ID, 0xff, 4);
    dev->cmask[PCI_HEADER_TYPE] = 0xff;
    dev->cmask[PCI_CAPABILITY_LIST] = 0xff;
}

/* --- the device class --- */

static void device_release(PCIDevice *dev)
{
    bars_unmap(dev);
    memset(dev->bars, 0, sizeof(dev->bars));
    if (dev->rom) {
        io_region_cleanup(&dev->rom_region);
        g_clear_pointer(&dev->rom, g_free);
    }
    dma_space_cleanup(&dev->dma);
    g_clear_pointer(&dev->config, g_free);
    g_clear_pointer(&dev->wmask, g_free);
    g_clear_pointer(&dev->w1cmask, g_free);
    g_clear_pointer(&dev->cmask, g_free);
}

/* The primary of a failover pair must be able to leave by native hotplug, alone. */
static gboolean check_primary(PCIDevice *dev, GError **errp)
{
    const unsigned ethernet = 0x0200; /* PCI code and ID assignment, network controller */

    if (!dev->bus->express) {
        return error_set(errp, "failover primary device must be on PCIExpress bus");
    }
    if (PCI_DEVICE_GET_CLASS(dev)->class_id != ethernet) {
        return error_set(errp, "failover primary device is not an Ethernet device");
    }
    if (dev->multifunction || PCI_FUNC(dev->devfn)) {
        return error_set(errp, "failover: primary device must be in its own PCI slot");
    }
    return TRUE;
}

static gboolean pci_device_realize(DeviceState *state, GError **errp)
{
    PCIDevice *dev = PCI_DEVICE(state);
    PCIDeviceClass *klass = PCI_DEVICE_GET_CLASS(dev);
    PciHost *host;

    if (!dev->bus) {
        return error_set(errp, "%s needs a PCI bus", device_name(state));
    }
    if (dev->failover_pair_id && !check_primary(dev, errp)) {
        return FALSE;
    }
    host = dev->bus->host;
    dma_space_init(&dev->dma, &host->dma_ops, host->dma_opaque);
    dma_space_set_enabled(&dev->dma, false);
    if (host->memory) {
        dma_space_set_map(&dev->dma, host->memory);
    }
    config_init(dev);
    if (klass->realize && !klass->realize(dev, errp)) {
        device_release(dev);
        return FALSE;
    }
    if (!rom_load(dev, errp)) {
        if (klass->exit) {
            klass->exit(dev);
        }
        device_release(dev);
        return FALSE;
    }
    return TRUE;
}

static void pci_device_unrealize(DeviceState *state)
{
    PCIDevice *dev = PCI_DEVICE(state);
    PCIDeviceClass *klass = PCI_DEVICE_GET_CLASS(dev);

    /* First unreachable, then gone: no access may meet a device half taken apart. */
    bars_unmap(dev);
    if (klass->exit) {
        klass->exit(dev);
    }
    pci_set_irq(dev, false);
    device_release(dev);
}

static void pci_device_reset(DeviceState *state)
{
    PCIDevice *dev = PCI_DEVICE(state);
    uint8_t *config = dev->config;

    if (!config) {
        return;
    }
    pci_set_irq(dev, false);
    for (unsigned i = PCI_COMMAND; i < PCI_STATUS + 2; i++) {
        config[i] &= (uint8_t) ~(dev->wmask[i] | dev->w1cmask[i]);
    }
    config[PCI_CACHE_LINE_SIZE] = 0;
    config[PCI_INTERRUPT_LINE] = 0;
    for (unsigned n = 0; n < PCI_NUM_BARS; n++) {
        const PciBar *bar = &dev->bars[n];

        if (!bar->region) {
            continue;
        }
        pci_set_long(config + bar_offset(n), n == ROM_BAR ? 0 : bar->type);
        if (n != ROM_BAR && (bar->type & PCI_BASE_ADDRESS_MEM_TYPE_64)) {
            pci_set_long(config + bar_offset(n) + 4, 0);
        }
    }
    if (msix_present(dev)) {
        msix_reset(dev);
    }
    command_changed(dev);
    bars_update(dev);
}

static json_object *busnr_get(Object *obj, const Property *prop)
{
    PCIDevice *dev = PCI_DEVICE(obj);

    return json_object_new_int(dev->bus ? dev->bus->number : 0);
}

static const PropertyInfo prop_info_busnr = {.type = "busnr", .get = busnr_get};

static const Property pci_device_props[] = {
    PROP_("addr", pci_devfn, PCIDevice, devfn, {.i = -1},
          "Slot and optional function number in hexadecimal, example: 06.0 or 06"),
    PROP_STRING("romfile", PCIDevice, romfile, "File with the expansion ROM; empty: no ROM"),
    PROP_UINT32("romsize", PCIDevice, romsize, ROMSIZE_AUTO, "Size of the ROM BAR, bytes"),
    PROP_UINT32("rombar", PCIDevice, rombar, 1, "0: the ROM is not visible"),
    PROP_BOOL("multifunction", PCIDevice, multifunction, false,
              "Function 0 says that there are more functions in this slot"),
    PROP_UINT32("acpi-index", PCIDevice, acpi_index, 0, "Number of an onboard device, 0: none"),
    PROP_STRING("failover_pair_id", PCIDevice, failover_pair_id,
                "Id of the standby device this is the primary of"),
    {.name = "busnr",
     .info = &prop_info_busnr,
     .flags = PROP_F_READONLY,
     .description = "Number of the bus the device is on"},
    PROP_END,
};

static void pci_device_finalize(GObject *object)
{
    PCIDevice *dev = PCI_DEVICE(object);

    pthread_mutex_destroy(&dev->irq_lock);
    G_OBJECT_CLASS(pci_device_parent_class)->finalize(object);
}

static void pci_device_init(PCIDevice *dev)
{
    dev->devfn = -1;
    pthread_mutex_init(&dev->irq_lock, NULL);
}

static void pci_device_class_init(PCIDeviceClass *klass)
{
    ObjectClass *object_class = &klass->parent_class.parent_class;
    DeviceClass *device_class = &klass->parent_class;

    G_OBJECT_CLASS(klass)->finalize = pci_device_finalize;
    object_class->qom_name = "pci-device";
    qom_class_set_props(klass, pci_device_props);
    device_class->bus_type = "PCI";
    device_class->hotpluggable = true;
    device_class->realize = pci_device_realize;
    device_class->unrealize = pci_device_unrealize;
    device_class->reset = pci_device_reset;
}

void hw_pci_register_types(void)
{
    qom_register_type(TYPE_PCI_DEVICE);
    pci_bus_register_types();
    pcie_root_port_register_types();
}
