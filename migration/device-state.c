/* Streams of devices alone: migration/device-state.h.  savevm.c and loadvm.c do it. */
#include "migration/device-state.h"

#include "internal.h"
#include "util/error.h"

struct DeviceStateLoaded {
    LoadState *load;
};

void device_state_save(GByteArray *out, const char *machine, const GArray *devices)
{
    savevm_write_only_devices(out, machine, devices);
}

static gboolean read_all(LoadState *load, VmReader *r, size_t size, GError **errp)
{
    if (!loadvm_read(load, r, errp)) {
        return FALSE;
    }
    return r->position == size ||
           error_set(errp, "the stream ends at byte %" G_GUINT64_FORMAT " of %zu", r->position,
                     size);
}

DeviceStateLoaded *device_state_load(const void *data, size_t size, const char *machine,
                                     GArray *devices, GError **errp)
{
    DeviceStateLoaded *loaded = g_new0(DeviceStateLoaded, 1);
    VmReader *r = vm_reader_new_bytes(data, size);

    loaded->load = loadvm_new_devices(machine, devices);
    if (!read_all(loaded->load, r, size, errp)) {
        g_clear_pointer(&loaded, device_state_free);
    }
    vm_reader_free(r);
    return loaded;
}

gboolean device_state_apply(DeviceStateLoaded *loaded, GError **errp)
{
    bool unused;

    return loadvm_finish(loaded->load, &unused, errp);
}

void device_state_free(DeviceStateLoaded *loaded)
{
    if (loaded) {
        loadvm_free(loaded->load);
        g_free(loaded);
    }
}
