/* The machine as migration knows it. */
#include <string.h>

#include "migration/host.h"

#include "internal.h"

const MigrationHost *migration_host;

void migration_set_host(const MigrationHost *host)
{
    migration_host = host;
}

static void device_clear(void *data)
{
    g_free(((MigrationDevice *)data)->idstr);
}

GArray *migration_devices_new(void)
{
    GArray *devices = g_array_new(FALSE, TRUE, sizeof(MigrationDevice));

    g_array_set_clear_func(devices, device_clear);
    return devices;
}

void migration_devices_add(GArray *devices, char *idstr, const VMStateDescription *vmsd,
                           void *opaque)
{
    MigrationDevice dev = {.idstr = idstr, .vmsd = vmsd, .opaque = opaque};

    for (unsigned i = 0; i < devices->len; i++) {
        dev.instance += !strcmp(g_array_index(devices, MigrationDevice, i).idstr, idstr);
    }
    g_array_append_val(devices, dev);
}
