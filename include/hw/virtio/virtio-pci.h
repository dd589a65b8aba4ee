/*
 * virtio-pci: a PCI function that carries a virtio device (virtio 1.2, section 4.1), modern and
 * legacy.  Concrete types are made from a VirtIOPCIDeviceTypeInfo row: the base type, and
 * -transitional and -non-transitional ones beside it.
 */
#ifndef HW_VIRTIO_VIRTIO_PCI_H
#define HW_VIRTIO_VIRTIO_PCI_H

#include "hw/pci/pci.h"
#include "hw/virtio/virtio.h"

typedef struct VirtIOPCIProxy VirtIOPCIProxy;

struct VirtIOPCIProxy {
    PCIDevice pci;
    /* properties */
    uint32_t vectors; /* UINT32_MAX: as many as the device's queues need */
    OnOffAuto disable_legacy;
    bool disable_modern, ioeventfd, modern_pio_notify, page_per_vq, ats, aer;
    /* state */
    VirtIODevice *vdev;  /* child "virtio-backend" */
    BusState *vbus;      /* "virtio-bus", where it is plugged */
    bool legacy, modern; /* interfaces in force */
    unsigned config_cap; /* offset of the PCI_CFG capability; 0: none */
    IoRegion legacy_bar, modern_bar, common, isr, device, notify, pio_notify_bar;
    uint32_t dfselect, gfselect;
    uint32_t guest_features_sel[4];
    EventNotifier *notifiers; /* ioeventfd of each queue; fd -1: none */
    bool *notifiers_in_use;
    unsigned num_notifiers;
    bool host_notifiers; /* the host wants ioeventfds on every queue */
};

typedef struct VirtIOPCIProxyClass {
    PCIDeviceClass parent_class;
    const struct VirtIOPCITypeInfo *info;
    unsigned variant; /* 0 base, 1 transitional, 2 non-transitional */
} VirtIOPCIProxyClass;

typedef struct VirtIOPCITypeInfo {
    const char *base_name; /* "virtio-net-pci" */
    const char *transitional_name, *non_transitional_name;
    GType (*backend_type)(void); /* virtio_net_get_type */
    uint16_t legacy_device_id;   /* 0x1000 */
    uint16_t class_id;           /* PCI_CLASS_NETWORK_ETHERNET */
    DeviceCategory category;
    const char *description;
    /* Vectors by default, once the backend's properties are set. */
    unsigned (*default_vectors)(VirtIODevice *vdev);
} VirtIOPCITypeInfo;

QOM_DECLARE_TYPE(VirtIOPCIProxy, VirtIOPCIProxyClass, virtio_pci, VIRTIO_PCI)
#define TYPE_VIRTIO_PCI (virtio_pci_get_type())

/* Registers "virtio-net-pci" and its variants; @info lives forever. */
void virtio_pci_register_types(const VirtIOPCITypeInfo *info);

/* For hosts that can take eventfds over (vfio-user, KVM): from now on every queue in use has
 * one, registered with the IoRegions of the notification registers while the driver drives the
 * device.  Without this call only queues of another thread's loop have one.  Main thread; does
 * nothing with ioeventfd=off. */
void virtio_pci_set_host_notifiers(VirtIOPCIProxy *proxy, bool enable);
/* The same, and calls @fn for each address at which a queue is notified, also before the driver
 * drives the device: the eventfds stay the same as long as the device exists. */
void virtio_pci_foreach_host_notifier(VirtIOPCIProxy *proxy,
                                      void (*fn)(IoRegion *region, const IoEventfd *eventfd,
                                                 void *opaque),
                                      void *opaque);

#endif
