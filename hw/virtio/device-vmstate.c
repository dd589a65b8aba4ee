/* See hw/virtio/device-vmstate.h. */
#include "hw/virtio/device-vmstate.h"

#include "hw/virtio/virtio-mmio.h"
#include "hw/virtio/virtio-pci.h"

static bool is_bridge(Object *obj)
{
    return IS_PCI_DEVICE(obj) && PCI_DEVICE_GET_CLASS(obj)->is_bridge;
}

static void add_where(Object *root, bool (*wanted)(Object *obj), GArray *devices)
{
    const VMStateDescription *vmsd = IS_DEVICE(root) ? DEVICE_GET_CLASS(root)->vmsd : NULL;

    if (vmsd && DEVICE(root)->realized && wanted(root)) {
        g_autofree char *path = device_path(DEVICE(root));

        migration_devices_add(
            devices, path ? g_strdup_printf("%s/%s", path, vmsd->name) : g_strdup(vmsd->name), vmsd,
            root);
    }
    for (unsigned i = 0; root->children && i < root->children->len; i++) {
        add_where(g_ptr_array_index(root->children, i), wanted, devices);
    }
}

static bool is_no_bridge(Object *obj)
{
    return !is_bridge(obj);
}

void device_vmstate_add_bridges(Object *root, GArray *devices)
{
    add_where(root, is_bridge, devices);
}

void device_vmstate_add(Object *root, GArray *devices)
{
    add_where(root, is_no_bridge, devices);
}

/* The state of what carries a virtio device is in that device's section. */
DeviceState *device_vmstate_find_missing(Object *root)
{
    if (IS_DEVICE(root) && DEVICE(root)->realized && !DEVICE_GET_CLASS(root)->vmsd &&
        !IS_VIRTIO_PCI(root) && !IS_VIRTIO_MMIO(root)) {
        return DEVICE(root);
    }
    for (unsigned i = 0; root->children && i < root->children->len; i++) {
        DeviceState *found = device_vmstate_find_missing(g_ptr_array_index(root->children, i));

        if (found) {
            return found;
        }
    }
    return NULL;
}
