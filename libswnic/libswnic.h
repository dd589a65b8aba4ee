/* Shared by the files of libswnic: the instance, and a device with the host around it. */
#ifndef LIBSWNIC_LIBSWNIC_H
#define LIBSWNIC_LIBSWNIC_H

#include "hw/core/machine.h"
#include "hw/pci/pci.h"
#include "swnic/swnic.h"
#include "util/keyval.h"

struct Swnic {
    SwnicConfig config;
    MachineState *machine;
    MemoryMap *memory;  /* in force for all devices */
    GPtrArray *devices; /* SwnicDevice*, in order of adding; borrowed, the tree owns them */
};

/* A PCI device's surroundings: the host bridge of a bus that it is alone on. */
struct SwnicDevice {
    DeviceState parent_obj;
    Swnic *swnic;
    PciHost pci;
    PCIBus *bus;
    PCIDevice *function; /* NULL before it is there */
    SwnicDeviceOps ops;
    void *opaque;
};

/* device.c */
void swnic_device_register_types(void);
void swnic_device_memory_changed(SwnicDevice *dev);

/* Options as text: NULL with error; a new reference. */
json_object *swnic_parse_options(const char *text, const KeyvalOptions *keyval, GError **errp);

#endif
