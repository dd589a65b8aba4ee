/*
 * Failover: a standby device (virtio-net with failover=on) keeps its primary, a faster device with
 * failover_pair_id=, out of the machine until the guest's driver knows of the pair, and takes it
 * out again for a migration.  Main thread.
 */
#ifndef HW_CORE_FAILOVER_H
#define HW_CORE_FAILOVER_H

#include "hw/core/device.h"

typedef struct FailoverOps {
    /* True: the device that @options describe (failover_pair_id among them) is not made yet; the
     * standby makes it later.  Error: it must not be made. */
    bool (*hide)(void *opaque, json_object *options, GError **errp);
    /* A migration begins: ask the guest to let go of the primary. */
    void (*unplug)(void *opaque);
    /* True: it has not let go yet.  False: the primary is gone, or, with error, it stays. */
    bool (*unplugging)(void *opaque, GError **errp);
    /* Device @id has left the machine; it was asked to and the guest keeps it. */
    void (*removed)(void *opaque, const char *id);
    void (*refused)(void *opaque, const char *id);
    /* The migration failed: the primary comes back. */
    void (*replug)(void *opaque);
} FailoverOps;

void failover_add_standby(const FailoverOps *ops, void *opaque);
void failover_remove_standby(void *opaque);

/* By device_add(): see hide(). */
bool failover_hides(json_object *options, GError **errp);
/* By device_remove(), when all is done, and by a slot whose guest refused; @id may be NULL. */
void failover_device_removed(const char *id);
void failover_device_refused(const char *id);
/* For migration: of all standbys. */
void failover_unplug_primaries(void);
bool failover_is_unplugging(GError **errp);
void failover_replug_primaries(void);

#endif
