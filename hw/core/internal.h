/* What the files of hw/core share with one another.  Not for other folders. */
#ifndef HW_CORE_INTERNAL_H
#define HW_CORE_INTERNAL_H

#include "hw/core/device.h"

/* Puts @dev under @container as "device[N]", N the lowest free; takes the caller's reference. */
void device_add_numbered(DeviceState *dev, const char *container);
/* Devices on the buses of @dev; the array holds a reference to each. */
GPtrArray *device_bus_children(DeviceState *dev);

/* Walks all buses: root buses in tree order, each followed by the buses below it.  Ends when
 * @fn returns true. */
bool bus_foreach(bool (*fn)(BusState *bus, void *opaque), void *opaque);

#endif
