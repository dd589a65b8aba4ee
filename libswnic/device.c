/*
 * libswnic: a device and the host around it.
 *
 *   program → swnic_config_*(), swnic_bar_*()   → configuration space, the BARs' regions
 *   device  → PciHostOps                        → the program's SwnicDeviceOps
 *   device  → DMA                               → the instance's memory map, nothing else
 *
 * Each device has a bus of its own, so that its callbacks, its place and its going are its alone.
 */
#include "hw/virtio/virtio-pci.h"
#include "libswnic.h"
#include "util/error.h"
#include "util/json.h"

typedef struct SwnicDeviceClass {
    DeviceClass parent_class;
} SwnicDeviceClass;

static GType swnic_device_get_type(void);
G_DEFINE_TYPE(SwnicDevice, swnic_device, TYPE_DEVICE)

static SwnicDevice *device_of(PciHost *pci)
{
    return (SwnicDevice *)((char *)pci - offsetof(SwnicDevice, pci));
}

/* --- what the PCI device asks of its host --- */

static void host_set_irq(PciHost *pci, PCIDevice *function, unsigned pin, bool level)
{
    SwnicDevice *dev = device_of(pci);

    if (dev->ops.set_irq) {
        dev->ops.set_irq(dev->opaque, pin, level);
    }
}

static void host_msi_notify(PciHost *pci, PCIDevice *function, unsigned vector, uint64_t addr,
                            uint32_t data)
{
    SwnicDevice *dev = device_of(pci);

    if (dev->ops.send_msi) {
        dev->ops.send_msi(dev->opaque, vector, addr, data);
    }
}

static void host_bar_mapped(PciHost *pci, PCIDevice *function, unsigned bar, uint64_t addr,
                            bool enabled)
{
    SwnicDevice *dev = device_of(pci);
    void (*tell)(void *opaque, unsigned bar, uint64_t addr) =
        enabled ? dev->ops.bar_mapped : dev->ops.bar_unmapped;

    if (tell) {
        tell(dev->opaque, bar, addr);
    }
}

static const PciHostOps host_ops = {
    .set_irq = host_set_irq,
    .msi_notify = host_msi_notify,
    .bar_mapped = host_bar_mapped,
    .msix_table_is_ours = true,
};

static gboolean host_realize(DeviceState *state, GError **errp)
{
    SwnicDevice *dev = (SwnicDevice *)state;
    g_autofree char *name = NULL;

    for (unsigned n = 0; !name || bus_find(name); n++) {
        g_free(name);
        name = g_strdup_printf("pci.%u", n);
    }
    dev->pci.ops = &host_ops;
    dev->pci.memory = memory_map_ref(dev->swnic->memory);
    dev->bus = pci_bus_new(state, name, &dev->pci, PCI_DEVFN(0, 0));
    return TRUE;
}

static void host_unrealize(DeviceState *state)
{
    g_clear_pointer(&((SwnicDevice *)state)->pci.memory, memory_map_unref);
}

static void swnic_device_init(SwnicDevice *dev) {}

static void swnic_device_class_init(SwnicDeviceClass *klass)
{
    DeviceClass *dc = &klass->parent_class;

    dc->parent_class.qom_name = "libswnic-pcihost";
    dc->category = CATEGORY_BRIDGE;
    dc->realize = host_realize;
    dc->unrealize = host_unrealize;
}

void swnic_device_register_types(void)
{
    qom_register_type(swnic_device_get_type());
}

void swnic_device_memory_changed(SwnicDevice *dev)
{
    DeviceState *function = DEVICE(dev->function);

    device_drain_begin(function);
    pci_host_set_memory(&dev->pci, dev->bus, dev->swnic->memory);
    device_drain_end(function);
}

/* --- coming and going --- */

/* What device_add() does not ask, because for it buses and bridges are fine. */
static gboolean check_options(json_object *options, GError **errp)
{
    const char *driver = json_member_string(options, "driver");
    GType type = driver ? qom_type_by_name(device_resolve_alias(driver)) : G_TYPE_INVALID;

    if (json_member(options, "bus")) {
        return error_set(errp, "Parameter 'bus' is unexpected: each device has a bus of its own");
    }
    if (type == G_TYPE_INVALID) {
        return TRUE; /* device_add() says what is wrong */
    }
    if (!g_type_is_a(type, TYPE_PCI_DEVICE)) {
        return error_set(errp, "'%s' is not a PCI device", driver);
    }
    return !((PCIDeviceClass *)g_type_class_peek(type))->is_bridge ||
           error_set(errp, "'%s' is a bridge: nothing could be plugged into it", driver);
}

static SwnicDevice *host_new(Swnic *swnic, const SwnicDeviceOps *ops, void *opaque, GError **errp)
{
    SwnicDevice *dev = (SwnicDevice *)object_new(swnic_device_get_type());
    g_autofree char *name = NULL;

    for (unsigned n = 0; !name || object_child(OBJECT(swnic->machine), name); n++) {
        g_free(name);
        name = g_strdup_printf("host[%u]", n);
    }
    dev->swnic = swnic;
    dev->ops = *ops;
    dev->opaque = opaque;
    object_add_child(OBJECT(swnic->machine), name, OBJECT(dev));
    if (!device_realize(DEVICE(dev), NULL, errp)) {
        object_unparent(OBJECT(dev));
        return NULL;
    }
    return dev;
}

static void host_free(SwnicDevice *dev)
{
    device_unrealize(DEVICE(dev));
    object_unparent(OBJECT(dev));
}

/* The PCI device on the host's bus; false with error, and then there is none. */
static bool function_new(SwnicDevice *dev, json_object *options, GError **errp)
{
    GError *err = NULL;

    json_put_string(options, "bus", dev->bus->parent_obj.bus_name);
    DeviceState *function = device_add(options, &err);
    if (function) {
        dev->function = PCI_DEVICE(function);
        return true;
    }
    if (!err) { /* a standby would keep it back until its guest is ready */
        error_set(&err, "the primary device of a failover pair cannot be added");
    }
    g_propagate_error(errp, err);
    return false;
}

SwnicDevice *swnic_device_add(Swnic *swnic, const char *text, const SwnicDeviceOps *ops,
                              void *opaque, GError **errp)
{
    static const KeyvalOptions keyval = {
        .implied_key = "driver", .allow_flags = true, .flat = true};
    SwnicDevice *dev = NULL;

    if (ops->version != SWNIC_DEVICE_OPS_VERSION) {
        error_set(errp, "SwnicDeviceOps has version %u, this library knows %u", ops->version,
                  SWNIC_DEVICE_OPS_VERSION);
        return NULL;
    }
    json_object *options = swnic_parse_options(text, &keyval, errp);
    if (options && check_options(options, errp)) {
        dev = host_new(swnic, ops, opaque, errp);
    }
    if (dev && !function_new(dev, options, errp)) {
        host_free(dev);
        dev = NULL;
    }
    if (dev) {
        g_ptr_array_add(swnic->devices, dev);
    }
    json_object_put(options);
    return dev;
}

void swnic_device_remove(SwnicDevice *dev)
{
    g_ptr_array_remove(dev->swnic->devices, dev);
    device_remove(DEVICE(dev->function));
    host_free(dev);
}

void swnic_device_reset(SwnicDevice *dev)
{
    device_reset(DEVICE(dev->function));
}

/* --- properties --- */

char *swnic_device_get(SwnicDevice *dev, const char *property, GError **errp)
{
    json_object *value = NULL;
    GError *err = NULL;

    value = object_get_property(OBJECT(dev->function), property, &err);
    if (err) {
        g_propagate_error(errp, err);
        return NULL;
    }
    char *text = g_strdup(json_object_to_json_string_ext(
        value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(value);
    return text;
}

bool swnic_device_set(SwnicDevice *dev, const char *property, const char *text, GError **errp)
{
    json_object *value = json_object_new_string(text);
    bool ok = object_set_property(OBJECT(dev->function), property, value, errp);

    json_object_put(value);
    return ok;
}

/* --- accesses --- */

uint32_t swnic_config_read(SwnicDevice *dev, unsigned offset, unsigned size)
{
    return pci_config_read(dev->function, offset, size);
}

void swnic_config_write(SwnicDevice *dev, unsigned offset, uint32_t value, unsigned size)
{
    pci_config_write(dev->function, offset, value, size);
}

static const PciBar *bar_of(SwnicDevice *dev, unsigned bar)
{
    return bar < PCI_NUM_BARS && dev->function->bars[bar].region ? &dev->function->bars[bar] : NULL;
}

bool swnic_bar_info(SwnicDevice *dev, unsigned n, SwnicBarInfo *info)
{
    const PciBar *bar = bar_of(dev, n);

    if (!bar) {
        return false;
    }
    bool io = bar->type & PCI_BASE_ADDRESS_SPACE_IO;
    *info = (SwnicBarInfo){
        .size = bar->size,
        .addr = bar->mapped_at,
        .flags = (io ? SWNIC_BAR_IO : 0) |
                 (!io && bar->type & PCI_BASE_ADDRESS_MEM_TYPE_64 ? SWNIC_BAR_64BIT : 0) |
                 (!io && bar->type & PCI_BASE_ADDRESS_MEM_PREFETCH ? SWNIC_BAR_PREFETCH : 0),
    };
    return true;
}

/* Whether BAR @n has bytes [@offset, @offset + @size); NULL if not. */
static const PciBar *bar_range(SwnicDevice *dev, unsigned n, uint64_t offset, unsigned size)
{
    const PciBar *bar = bar_of(dev, n);
    bool width = size == 1 || size == 2 || size == 4 || size == 8;

    return bar && width && offset < bar->size && size <= bar->size - offset ? bar : NULL;
}

uint64_t swnic_bar_read(SwnicDevice *dev, unsigned n, uint64_t offset, unsigned size)
{
    const PciBar *bar = bar_range(dev, n, offset, size);

    return bar         ? io_region_read(bar->region, offset, size)
           : size >= 8 ? UINT64_MAX
                       : (UINT64_C(1) << (8 * size)) - 1;
}

void swnic_bar_write(SwnicDevice *dev, unsigned n, uint64_t offset, uint64_t value, unsigned size)
{
    const PciBar *bar = bar_range(dev, n, offset, size);

    if (bar) {
        io_region_write(bar->region, offset, value, size);
    }
}

/* --- notifications --- */

typedef struct NotifierWalk {
    SwnicDevice *dev;
    void (*fn)(const SwnicNotifier *notifier, void *opaque);
    void *opaque;
} NotifierWalk;

/* Finds @target in the BARs: the BAR's number, or -1; *offset is moved to be within it. */
static int region_bar(SwnicDevice *dev, const IoRegion *target, uint64_t *offset)
{
    for (unsigned n = 0; n < PCI_NUM_BARS; n++) {
        const IoRegion *region = bar_of(dev, n) ? bar_of(dev, n)->region : NULL;
        if (region == target) {
            return (int)n;
        }
        for (guint i = 0; region && region->children && i < region->children->len; i++) {
            const IoChild *child = &g_array_index(region->children, IoChild, i);
            if (child->region == target) {
                *offset += child->offset;
                return (int)n;
            }
        }
    }
    return -1;
}

static void tell_notifier(IoRegion *region, const IoEventfd *eventfd, void *opaque)
{
    NotifierWalk *walk = opaque;
    uint64_t offset = eventfd->offset;
    int bar = region_bar(walk->dev, region, &offset);

    if (bar >= 0) {
        const SwnicNotifier notifier = {
            .bar = (unsigned)bar,
            .offset = offset,
            .size = eventfd->size,
            .match = eventfd->match,
            .value = eventfd->data,
            .fd = eventfd->notifier->fd,
        };
        walk->fn(&notifier, walk->opaque);
    }
}

void swnic_foreach_notifier(SwnicDevice *dev,
                            void (*fn)(const SwnicNotifier *notifier, void *opaque), void *opaque)
{
    NotifierWalk walk = {dev, fn, opaque};

    if (IS_VIRTIO_PCI(dev->function)) {
        virtio_pci_foreach_host_notifier(VIRTIO_PCI(dev->function), tell_notifier, &walk);
    }
}
