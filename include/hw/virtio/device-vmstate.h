/*
 * Which devices of a machine have a section in a migration stream, and which should and have none.
 * Shared by the machines.  Main thread.
 */
#ifndef HW_VIRTIO_DEVICE_VMSTATE_H
#define HW_VIRTIO_DEVICE_VMSTATE_H

#include "hw/core/device.h"
#include "migration/host.h"

/* Adds the realized devices with a migration table, @root and below, to @devices
 * (migration_devices_new()): "0000:00:04.0/virtio-net".  PCI-to-PCI bridges have a call of their
 * own, before it: what is behind one is loaded when its registers are in place. */
void device_vmstate_add_bridges(Object *root, GArray *devices);
void device_vmstate_add(Object *root, GArray *devices);
/* The first device, @root and below, that has state and no table; NULL: none. */
DeviceState *device_vmstate_find_missing(Object *root);

#endif
