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
    /* It has not let go yet. */
    bool (*unplugging)(void *opaque);
    /* The migration failed: the primary comes back. */
    void (*replug)(void *opaque);
} FailoverOps;

void failover_add_standby(const FailoverOps *ops, void *opaque);
void failover_remove_standby(void *opaque);

/* By device_add(): see hide(). */
bool failover_hides(json_object *options, GError **errp);
/* For migration: of all standbys. */
void failover_unplug_primaries(void);
bool failover_is_unplugging(void);
void failover_replug_primaries(void);

#endif
