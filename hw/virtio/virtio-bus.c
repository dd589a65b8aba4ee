/*
 * The bus between a transport and its device: one place, no addresses.  Its device's path is the
 * transport's, so that a virtio-net in slot 4 saves itself as "0000:00:04.0/virtio-net".
 */
#include "hw/virtio/virtio.h"

G_DEFINE_TYPE(VirtioBus, virtio_bus, TYPE_BUS)

static gboolean virtio_bus_plug_check(BusState *bus, DeviceState *dev, GError **errp)
{
    for (unsigned i = 0; i < bus->devices->len; i++) {
        if (g_ptr_array_index(bus->devices, i) != dev) {
            return error_set(errp, "Bus '%s' is full, it holds one device", bus->bus_name);
        }
    }
    return TRUE;
}

static char *virtio_bus_device_path(DeviceState *dev)
{
    return device_path(dev->parent_bus->owner);
}

static void virtio_bus_init(VirtioBus *bus)
{
    (void)bus;
}

static void virtio_bus_class_init(VirtioBusClass *klass)
{
    ((ObjectClass *)klass)->qom_name = "virtio-bus";
    klass->parent_class.max_devices = 1;
    klass->parent_class.plug_check = virtio_bus_plug_check;
    klass->parent_class.device_path = virtio_bus_device_path;
}
