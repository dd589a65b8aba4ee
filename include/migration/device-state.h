/*
 * The state of a few devices alone, as a stream in memory: the form of a migration without RAM, so
 * the same tables, checks and messages.  For protocols that carry device state themselves.
 * Main thread.
 */
#ifndef MIGRATION_DEVICE_STATE_H
#define MIGRATION_DEVICE_STATE_H

#include "migration/host.h"

/* Appends to @out.  @devices: MigrationDevice, see migration_devices_new(). */
void device_state_save(GByteArray *out, const char *machine, const GArray *devices);

/*
 * Reads a stream for @devices (taken over) to its end: what follows it, like anything else that
 * is wrong, is an error.  No device has changed then; device_state_apply() does that.
 */
typedef struct DeviceStateLoaded DeviceStateLoaded;
DeviceStateLoaded *device_state_load(const void *data, size_t size, const char *machine,
                                     GArray *devices, GError **errp);
/* Checks the state against the devices and guest memory, and gives it to them: all or nothing. */
gboolean device_state_apply(DeviceStateLoaded *loaded, GError **errp);
void device_state_free(DeviceStateLoaded *loaded);

#endif
