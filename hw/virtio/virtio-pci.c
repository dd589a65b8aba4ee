/*
 * virtio-pci: the PCI function that carries a virtio device (virtio 1.2, section 4.1).
 *
 * Realizing it realizes the device behind ("virtio-backend", on a bus of its own) and then lays
 * out what the guest sees, byte for byte as QEMU does, because a saved device loads elsewhere
 * only then: capabilities from 0x40 up, MSI-X last and first in the list; BAR 0 the legacy
 * registers, 1 MSI-X, 2 the optional I/O notify port, 4 the modern registers.
 *
 * Here: types, properties, realize, reset, interrupts and vectors.  Registers:
 * virtio-pci-modern.c and virtio-pci-legacy.c.  Main thread, except the interrupt path.
 */
#include "hw/virtio/virtio-mmio.h"
#include "hw/virtio/virtio-pci-internal.h"
#include "hw/virtio/virtio-vmstate.h"
#include "hw/virtio/virtio-rng.h"

#include "hw/pci/pcie.h"

G_DEFINE_ABSTRACT_TYPE(VirtIOPCIProxy, virtio_pci, TYPE_PCI_DEVICE)

#define VENDOR_ID         0x1af4
#define MODERN_ID_BASE    0x1040 /* virtio 1.2, section 4.1.2 */
#define MODERN_REVISION   1
#define MODERN_SUBSYSTEM  0x1100 /* QEMU's, for functions that have none of their own */
#define FIRST_CAPABILITY  0x40
#define VECTORS_AUTOMATIC UINT32_MAX

enum { VARIANT_BASE, VARIANT_TRANSITIONAL, VARIANT_NON_TRANSITIONAL };

/* --- registers of any width --- */

uint64_t virtio_pci_regs_read(VirtIOPCIProxy *proxy, const VirtioPciReg *regs, unsigned count,
                              uint64_t offset, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < count; i++) {
        const VirtioPciReg *reg = &regs[i];
        uint64_t bits;

        if (!reg->read || reg->offset >= offset + size || reg->offset + reg->width <= offset) {
            continue;
        }
        bits = reg->read(proxy);
        value |= reg->offset >= offset ? bits << (8 * (reg->offset - offset))
                                       : bits >> (8 * (offset - reg->offset));
    }
    return size < 8 ? value & ((UINT64_C(1) << (8 * size)) - 1) : value;
}

void virtio_pci_regs_write(VirtIOPCIProxy *proxy, const VirtioPciReg *regs, unsigned count,
                           uint64_t offset, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < count; i++) {
        const VirtioPciReg *reg = &regs[i];
        uint64_t bits;

        if (!reg->write || reg->offset < offset || reg->offset >= offset + size) {
            continue;
        }
        bits = value >> (8 * (reg->offset - offset));
        reg->write(proxy, (uint32_t)(bits & (UINT32_MAX >> (32 - 8 * reg->width))));
    }
}

/* --- interrupts --- */

/* Any thread: the device's interrupt leaves as @vector's message or on the INTx pin. */
static void virtio_pci_interrupt(void *opaque, uint16_t vector)
{
    VirtIOPCIProxy *proxy = opaque;

    if (!msix_enabled(&proxy->pci)) {
        pci_set_irq(&proxy->pci, virtio_isr_peek(proxy->vdev) != 0);
    } else if (vector != VIRTIO_NO_VECTOR) {
        msix_notify(&proxy->pci, vector);
    }
}

uint8_t virtio_pci_isr_read(VirtIOPCIProxy *proxy)
{
    uint8_t isr = virtio_isr_take(proxy->vdev);

    pci_set_irq(&proxy->pci, false);
    /* Another thread may have set a bit and raised the line between the two steps. */
    if (virtio_isr_peek(proxy->vdev) && !msix_enabled(&proxy->pci)) {
        pci_set_irq(&proxy->pci, true);
    }
    return isr;
}

void virtio_pci_set_vector(VirtIOPCIProxy *proxy, uint16_t *vector, uint32_t value)
{
    uint16_t next = VIRTIO_NO_VECTOR;

    if (*vector != VIRTIO_NO_VECTOR) {
        msix_vector_unuse(&proxy->pci, *vector);
    }
    if (value != VIRTIO_NO_VECTOR && msix_vector_use(&proxy->pci, value)) {
        next = (uint16_t)value;
    }
    __atomic_store_n(vector, next, __ATOMIC_RELAXED);
}

VirtioQueue *virtio_pci_selected_queue(VirtIOPCIProxy *proxy)
{
    return virtio_queue(proxy->vdev, proxy->vdev->queue_sel);
}

uint32_t virtio_pci_queue_select_read(VirtIOPCIProxy *proxy)
{
    return proxy->vdev->queue_sel;
}

void virtio_pci_queue_select_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    if (value < VIRTIO_QUEUE_MAX) {
        proxy->vdev->queue_sel = (uint16_t)value;
    }
}

uint32_t virtio_pci_config_vector_read(VirtIOPCIProxy *proxy)
{
    return proxy->vdev->config_vector;
}

void virtio_pci_config_vector_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    virtio_pci_set_vector(proxy, &proxy->vdev->config_vector, value);
}

uint32_t virtio_pci_queue_vector_read(VirtIOPCIProxy *proxy)
{
    VirtioQueue *queue = virtio_pci_selected_queue(proxy);

    return queue ? queue->vector : VIRTIO_NO_VECTOR;
}

void virtio_pci_queue_vector_write(VirtIOPCIProxy *proxy, uint32_t value)
{
    VirtioQueue *queue = virtio_pci_selected_queue(proxy);

    if (queue) {
        virtio_pci_set_vector(proxy, &queue->vector, value);
    }
}

uint32_t virtio_pci_queue_size_read(VirtIOPCIProxy *proxy)
{
    VirtioQueue *queue = virtio_pci_selected_queue(proxy);

    return queue ? virtqueue_num(queue->vq) : 0;
}

static bool virtio_pci_has_msix(void *opaque)
{
    VirtIOPCIProxy *proxy = opaque;

    return msix_enabled(&proxy->pci);
}

static VirtioFeatures virtio_pci_features(void *opaque)
{
    VirtIOPCIProxy *proxy = opaque;
    VirtioFeatures features = VIRTIO_FEATURE(VIRTIO_F_BAD_FEATURE);

    if (proxy->modern) {
        features |= VIRTIO_FEATURE(VIRTIO_F_VERSION_1);
    }
    return features;
}

static const VirtioTransportOps transport_ops = {
    .notify = virtio_pci_interrupt,
    .features = virtio_pci_features,
    .has_msix = virtio_pci_has_msix,
    .started = virtio_pci_started,
    .notifier = virtio_pci_notifier,
    .saved = &virtio_pci_saved_ops,
};

/* --- reset --- */

void virtio_pci_reset(VirtIOPCIProxy *proxy)
{
    VirtIODevice *vdev = proxy->vdev;

    if (!DEVICE(vdev)->realized) {
        return;
    }
    virtio_pci_set_vector(proxy, &vdev->config_vector, VIRTIO_NO_VECTOR);
    for (unsigned i = 0; i < vdev->num_queues; i++) {
        virtio_pci_set_vector(proxy, &vdev->queues[i].vector, VIRTIO_NO_VECTOR);
    }
    virtio_reset(vdev);
    virtio_pci_notifiers_clear(proxy);
    pci_set_irq(&proxy->pci, false);
    proxy->dfselect = proxy->gfselect = 0;
    memset(proxy->guest_features_sel, 0, sizeof(proxy->guest_features_sel));
}

void virtio_pci_set_status(VirtIOPCIProxy *proxy, uint8_t status)
{
    if (status == 0) {
        virtio_pci_reset(proxy);
    } else {
        virtio_set_status(proxy->vdev, status);
    }
}

static void virtio_pci_device_reset(DeviceState *dev)
{
    DeviceClass *parent = virtio_pci_parent_class;

    virtio_pci_reset(VIRTIO_PCI(dev));
    if (parent->reset) {
        parent->reset(dev);
    }
}

/* --- configuration space --- */

static void virtio_pci_config_read(PCIDevice *pci, unsigned offset, unsigned size)
{
    virtio_pci_window_read(VIRTIO_PCI(pci), offset, size);
}

static void virtio_pci_config_written(PCIDevice *pci, unsigned offset, unsigned size)
{
    VirtIOPCIProxy *proxy = VIRTIO_PCI(pci);
    unsigned control = pci->msix.cap + PCI_MSIX_FLAGS;

    virtio_pci_window_written(proxy, offset, size);
    /* INTx and MSI-X exclude each other: the line follows a change of MSI-X Enable. */
    if (msix_present(pci) && offset < control + 2 && offset + size > control) {
        pci_set_irq(pci, !msix_enabled(pci) && virtio_isr_peek(proxy->vdev));
    }
}

static void set_ids(VirtIOPCIProxy *proxy)
{
    const VirtIOPCITypeInfo *info = VIRTIO_PCI_GET_CLASS(proxy)->info;
    uint8_t *config = proxy->pci.config;

    pci_set_word(config + PCI_VENDOR_ID, VENDOR_ID);
    pci_set_word(config + PCI_SUBSYSTEM_VENDOR_ID, VENDOR_ID);
    if (proxy->legacy) {
        pci_set_word(config + PCI_DEVICE_ID, info->legacy_device_id);
        pci_set_word(config + PCI_SUBSYSTEM_ID, proxy->vdev->device_id);
        config[PCI_REVISION_ID] = 0;
    } else {
        pci_set_word(config + PCI_DEVICE_ID, (uint16_t)(MODERN_ID_BASE + proxy->vdev->device_id));
        pci_set_word(config + PCI_SUBSYSTEM_ID, MODERN_SUBSYSTEM);
        config[PCI_REVISION_ID] = MODERN_REVISION;
    }
    config[PCI_INTERRUPT_PIN] = 1;
}

/* --- realize --- */

static gboolean choose_interfaces(VirtIOPCIProxy *proxy, GError **errp)
{
    const char *name = device_name(DEVICE(proxy));

    switch (VIRTIO_PCI_GET_CLASS(proxy)->variant) {
    case VARIANT_TRANSITIONAL:
        proxy->disable_legacy = ON_OFF_AUTO_OFF;
        proxy->disable_modern = false;
        break;
    case VARIANT_NON_TRANSITIONAL:
        proxy->disable_legacy = ON_OFF_AUTO_ON;
        proxy->disable_modern = false;
        break;
    }
    proxy->modern = !proxy->disable_modern;
    /* A PCI Express slot has no I/O space to give away. */
    proxy->legacy = proxy->disable_legacy == ON_OFF_AUTO_OFF ||
                    (proxy->disable_legacy == ON_OFF_AUTO_AUTO && !proxy->pci.bus->express);
    if (!proxy->modern && !proxy->legacy) {
        return error_set(errp,
                         "%s: disable-modern=on and disable-legacy=%s leave no interface, "
                         "turn one of them off",
                         name, proxy->disable_legacy == ON_OFF_AUTO_ON ? "on" : "auto");
    }
    if (proxy->legacy &&
        (proxy->vdev->wanted_features[0] & (UINT64_C(1) << VIRTIO_F_ACCESS_PLATFORM))) {
        return error_set(errp,
                         "%s: iommu_platform=on needs disable-legacy=on (legacy drivers "
                         "cannot use it)",
                         name);
    }
    return TRUE;
}

static gboolean realize_backend(VirtIOPCIProxy *proxy, GError **errp)
{
    const VirtIOPCITypeInfo *info = VIRTIO_PCI_GET_CLASS(proxy)->info;

    if (proxy->vectors == VECTORS_AUTOMATIC) {
        proxy->vectors = info->default_vectors ? info->default_vectors(proxy->vdev) : 2;
    }
    if (!proxy->vbus) {
        proxy->vbus = bus_new(TYPE_VIRTIO_BUS, DEVICE(proxy), "virtio-bus");
    }
    virtio_attach_transport(proxy->vdev, &transport_ops, proxy, &proxy->pci.dma);
    return device_realize(DEVICE(proxy->vdev), proxy->vbus, errp);
}

static void virtio_pci_exit(PCIDevice *pci)
{
    VirtIOPCIProxy *proxy = VIRTIO_PCI(pci);

    device_unrealize(DEVICE(proxy->vdev));
    virtio_pci_notifiers_cleanup(proxy);
    msix_uninit(pci);
    virtio_pci_legacy_cleanup(proxy);
    virtio_pci_modern_cleanup(proxy);
}

static gboolean virtio_pci_realize(PCIDevice *pci, GError **errp)
{
    VirtIOPCIProxy *proxy = VIRTIO_PCI(pci);
    unsigned cap = FIRST_CAPABILITY;

    if (!choose_interfaces(proxy, errp) || !realize_backend(proxy, errp)) {
        return FALSE;
    }
    set_ids(proxy);
    cap = pcie_endpoint_init(pci, cap);
    if (proxy->modern) {
        cap = virtio_pci_modern_init(proxy, cap);
    }
    if (proxy->vectors && !msix_init(pci, proxy->vectors, VIRTIO_PCI_BAR_MSIX, cap, errp)) {
        virtio_pci_exit(pci);
        return FALSE;
    }
    if (proxy->legacy) {
        virtio_pci_legacy_init(proxy);
    }
    return TRUE;
}

/* --- types --- */

static const Property virtio_pci_props[] = {
    PROP_UINT32("vectors", VirtIOPCIProxy, vectors, VECTORS_AUTOMATIC,
                "MSI-X vectors, 0 to 2048; 0: INTx only; by default as many as the queues need"),
    PROP_BOOL("ioeventfd", VirtIOPCIProxy, ioeventfd, true,
              "Queues of other threads, or of hosts that can, are notified by eventfd"),
    PROP_BOOL("modern-pio-notify", VirtIOPCIProxy, modern_pio_notify, false,
              "An I/O port for modern notifications besides the memory one"),
    PROP_BOOL("page-per-vq", VirtIOPCIProxy, page_per_vq, false,
              "A page for each queue's notification address"),
    PROP_BOOL("ats", VirtIOPCIProxy, ats, false, "Address translation service (PCI Express only)"),
    PROP_BOOL("aer", VirtIOPCIProxy, aer, false, "Advanced error reporting (PCI Express only)"),
    PROP_END,
};

/* The variants have decided these two. */
static const Property virtio_pci_base_props[] = {
    PROP_ON_OFF_AUTO("disable-legacy", VirtIOPCIProxy, disable_legacy, ON_OFF_AUTO_AUTO,
                     "No legacy interface; auto: on in a PCI Express slot"),
    PROP_BOOL("disable-modern", VirtIOPCIProxy, disable_modern, false, "No modern interface"),
    PROP_END,
};

static void virtio_pci_init(VirtIOPCIProxy *proxy)
{
    proxy->vectors = VECTORS_AUTOMATIC;
}

static void virtio_pci_class_init(VirtIOPCIProxyClass *klass)
{
    PCIDeviceClass *pci_class = &klass->parent_class;
    DeviceClass *device_class = &pci_class->parent_class;

    ((ObjectClass *)klass)->qom_name = "virtio-pci";
    qom_class_set_props(klass, virtio_pci_props);
    pci_class->realize = virtio_pci_realize;
    pci_class->exit = virtio_pci_exit;
    pci_class->config_read = virtio_pci_config_read;
    pci_class->config_written = virtio_pci_config_written;
    pci_class->vendor_id = VENDOR_ID;
    pci_class->is_express = true;
    device_class->reset = virtio_pci_device_reset;
}

typedef struct ConcreteType {
    const VirtIOPCITypeInfo *info;
    const char *name;
    unsigned variant;
} ConcreteType;

static void concrete_class_init(gpointer g_class, gpointer data)
{
    const ConcreteType *type = data;
    VirtIOPCIProxyClass *klass = g_class;
    ObjectClass *object_class = g_class;
    DeviceClass *device_class = g_class;

    klass->info = type->info;
    klass->variant = type->variant;
    object_class->qom_name = type->name;
    object_class->description = type->info->description;
    object_class->alias_child = "virtio-backend";
    object_class->alias_type = type->info->backend_type();
    if (type->variant == VARIANT_BASE) {
        qom_class_set_props(klass, virtio_pci_base_props);
    }
    device_class->category = type->info->category;
    device_class->user_creatable_device = true;
    klass->parent_class.device_id = type->info->legacy_device_id;
    klass->parent_class.class_id = type->info->class_id;
}

static void concrete_init(GTypeInstance *instance, gpointer g_class)
{
    VirtIOPCIProxy *proxy = (VirtIOPCIProxy *)instance;
    VirtIOPCIProxyClass *klass = g_class;
    Object *backend = object_new(klass->info->backend_type());

    proxy->vdev = (VirtIODevice *)backend;
    object_add_child((Object *)proxy, "virtio-backend", backend);
}

static void register_concrete(const VirtIOPCITypeInfo *info, const char *name, unsigned variant)
{
    ConcreteType *type;
    GTypeInfo gtype_info = {
        .class_size = sizeof(VirtIOPCIProxyClass),
        .class_init = concrete_class_init,
        .instance_size = sizeof(VirtIOPCIProxy),
        .instance_init = concrete_init,
    };

    if (!name) {
        return;
    }
    type = g_new(ConcreteType, 1); /* the type system keeps it */
    *type = (ConcreteType){.info = info, .name = name, .variant = variant};
    gtype_info.class_data = type;
    qom_register_type(g_type_register_static(TYPE_VIRTIO_PCI, name, &gtype_info, 0));
}

void virtio_pci_register_types(const VirtIOPCITypeInfo *info)
{
    register_concrete(info, info->base_name, VARIANT_BASE);
    register_concrete(info, info->transitional_name, VARIANT_TRANSITIONAL);
    register_concrete(info, info->non_transitional_name, VARIANT_NON_TRANSITIONAL);
}

void hw_virtio_register_types(void)
{
    qom_register_type(TYPE_VIRTIO_BUS);
    qom_register_type(TYPE_VIRTIO_DEVICE);
    qom_register_type(TYPE_VIRTIO_PCI);
    virtio_mmio_register_types();
    virtio_rng_register_types();
}
