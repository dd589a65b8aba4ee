/* See hw/virtio/device-vmstate.h. */
#include "hw/virtio/device-vmstate.h"

#include "hw/virtio/virtio-pci.h"

void device_vmstate_add(Object *root, GArray *devices)
{
    const VMStateDescription *vmsd = IS_DEVICE(root) ? DEVICE_GET_CLASS(root)->vmsd : NULL;

    if (vmsd && DEVICE(root)->realized) {
        g_autofree char *path = device_path(DEVICE(root));

        migration_devices_add(
            devices, path ? g_strdup_printf("%s/%s", path, vmsd->name) : g_strdup(vmsd->name), vmsd,
            root);
    }
    for (unsigned i = 0; root->children && i < root->children->len; i++) {
        device_vmstate_add(g_ptr_array_index(root->children, i), devices);
    }
}

/* A virtio-pci function's state is in its device's section. */
DeviceState *device_vmstate_find_missing(Object *root)
{
    if (IS_DEVICE(root) && DEVICE(root)->realized && !DEVICE_GET_CLASS(root)->vmsd &&
        !IS_VIRTIO_PCI(root)) {
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
