/*
 * What migration asks of the machine around it: its name, its RAM, its devices, a dirty log.  The
 * machine's side (hw/i386/x86-migration.c) fills the table; migration knows nothing else of it.
 */
#ifndef MIGRATION_HOST_H
#define MIGRATION_HOST_H

#include "migration/vmstate.h"

/* RAM goes in pages of this size, each aligned to it. */
#define MIGRATION_PAGE_SHIFT 12
#define MIGRATION_PAGE_SIZE  (1u << MIGRATION_PAGE_SHIFT)

/* A piece of RAM.  Pieces of one block follow each other in @offset. */
typedef struct MigrationRamRange {
    const char *block; /* name in the stream: the back end's id */
    uint64_t offset;   /* in the block */
    uint64_t addr;     /* guest physical */
    uint64_t size;
    uint8_t *host;
    bool shared;   /* other processes can map it, and write it unseen */
    bool readonly; /* never written here */
} MigrationRamRange;

typedef struct MigrationDevice {
    char *idstr; /* owned; "0000:00:04.0/virtio-net" */
    uint32_t instance;
    const VMStateDescription *vmsd;
    void *opaque;
} MigrationDevice;

/* Main thread. */
typedef struct MigrationHost {
    /* Can there be a migration at all?  The others are called only if so. */
    gboolean (*check)(GError **errp);
    const char *(*machine_name)(void); /* "pc-i440fx-7.2" */
    GArray *(*ram)(void);              /* MigrationRamRange; caller's */
    /* MigrationDevice, in the order of the stream, with a clear function that frees @idstr. */
    GArray *(*devices)(void);
    /* From now on what the device side and qtest clients write marks its page (guest address >>
     * MIGRATION_PAGE_SHIFT, below @pages) with a 1 in @log, after the write.  NULL: no more. */
    void (*set_dirty_log)(uint8_t *log, uint64_t pages);
    /* Optional, all or none: devices that cannot be migrated are asked to leave; whether one has not
     * left yet (error: it will not); and, if the migration fails, they come back. */
    void (*unplug)(void);
    bool (*unplugging)(GError **errp);
    void (*replug)(void);
    /* Devices may not come or go: a migration is going on. */
    void (*lock_devices)(bool locked);
} MigrationHost;

void migration_set_host(const MigrationHost *host);

/* An empty array of MigrationDevice, which frees their names. */
GArray *migration_devices_new(void);
/* Adds a device.  Takes @idstr; its instance is how many of that name there are already. */
void migration_devices_add(GArray *devices, char *idstr, const VMStateDescription *vmsd,
                           void *opaque);

#endif
