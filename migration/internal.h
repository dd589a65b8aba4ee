/*
 * Between the files of migration.
 *
 * An outgoing and an incoming migration each run in a thread of their own, which does all that may
 * wait: connecting, reading, writing, looking for dirty pages.  Status, events, starting and
 * stopping the VM and everything about devices happen in the main thread: the threads ask for it
 * with migration_in_main().
 */
#ifndef MIGRATION_INTERNAL_H
#define MIGRATION_INTERNAL_H

#include <stdatomic.h>

#include "migration/host.h"
#include "migration/migration.h"
#include "qapi/qapi-types.h"
#include "stream.h"
#include "util/event-loop.h"
#include "util/event-notifier.h"

extern const MigrationHost *migration_host; /* NULL: there is nothing to migrate */

/* Runs @fn in the main thread and returns when it has run.  Any thread. */
void migration_in_main(void (*fn)(void *opaque), void *opaque);

/* --- options.c --- */
typedef struct MigrationOptions {
    bool capabilities[MIGRATION_CAPABILITY__MAX];
    uint64_t max_bandwidth;              /* bytes a second; 0: no limit */
    uint64_t avail_switchover_bandwidth; /* 0: measured */
    uint64_t downtime_limit;             /* ms */
    uint64_t announce_initial, announce_max, announce_rounds, announce_step;
} MigrationOptions;
extern MigrationOptions migration_options; /* main thread */

/* --- channel.c: where the bytes go --- */
typedef struct MigrationChannel {
    int fd;
    bool is_socket;
    GPid child;            /* of exec:; 0 */
    EventNotifier *cancel; /* set: reads and writes end with an error */
    uint64_t transferred;  /* bytes; atomic */
} MigrationChannel;

typedef enum MigrationUriKind { URI_TCP, URI_UNIX, URI_FD, URI_EXEC, URI_FILE } MigrationUriKind;
typedef struct MigrationUri {
    MigrationUriKind kind;
    char *host, *port; /* tcp */
    char *path;        /* unix, file; command of exec; name of fd */
    uint64_t offset;   /* file */
} MigrationUri;
MigrationUri *migration_uri_parse(const char *text, GError **errp);
void migration_uri_free(MigrationUri *uri);

/* Outgoing: open is for the main thread and does all that needs no waiting (sockets: nothing);
 * connect is for the migration's thread. */
MigrationChannel *migration_channel_open(const MigrationUri *uri, bool incoming,
                                         EventNotifier *cancel, GError **errp);
gboolean migration_channel_connect(MigrationChannel *channel, const MigrationUri *uri,
                                   GError **errp);
/* Incoming: a listening socket, and the first client of it.  @address: what it listens at. */
gboolean migration_channel_listen(MigrationChannel *channel, const MigrationUri *uri,
                                  char **address, GError **errp);
gboolean migration_channel_accept(MigrationChannel *channel, GError **errp);
gboolean migration_channel_write(MigrationChannel *channel, const void *data, size_t size,
                                 GError **errp);
gssize migration_channel_read(MigrationChannel *channel, void *data, size_t size, GError **errp);
/* Tells the other side that this was all, and waits for its answer: FALSE if the other side says
 * that it failed, or if exec's command did.  @answer_needed: silence is a failure too. */
gboolean migration_channel_finish(MigrationChannel *channel, bool answer_needed, GError **errp);
/* Incoming: tells the source how it went, where a socket can. */
void migration_channel_answer(MigrationChannel *channel, bool failed);
void migration_channel_free(MigrationChannel *channel);

/* --- ram.c, ram-load.c --- */
typedef struct RamBlock {
    const char *name; /* borrowed from the ranges */
    uint64_t size;
    unsigned first, count; /* ranges */
    bool ignored;          /* not in the stream */
} RamBlock;

typedef struct RamState {
    GArray *ranges; /* MigrationRamRange */
    GArray *blocks; /* RamBlock */
    uint64_t total; /* bytes of all blocks */
    bool ignore_shared;
    /* saving */
    uint8_t *log; /* dirty log: a byte a page of guest addresses */
    uint64_t log_pages;
    unsigned range; /* place of the pass that is going on */
    uint64_t page;  /* in the range */
    RamBlock *last_block;
    /* counters, atomic */
    uint64_t normal, zero, passes, dirty_rate, dirtied_since;
    uint64_t remaining; /* bytes */
} RamState;

/* Main thread.  The ranges must be whole pages. */
RamState *ram_state_new(bool ignore_shared, GError **errp);
void ram_state_free(RamState *ram);
void ram_log_start(RamState *ram);       /* main thread: every page is dirty */
void ram_log_stop(RamState *ram);        /* main thread */
uint64_t ram_count_dirty(RamState *ram); /* bytes; sets remaining */
void ram_mark_shared(RamState *ram);     /* writers of other processes are not seen */
void ram_write_setup(RamState *ram, VmWriter *w);
/* Appends up to about @bytes of dirty pages; FALSE: the pass has come to its end. */
gboolean ram_write_pages(RamState *ram, VmWriter *w, size_t bytes);
void ram_write_eos(VmWriter *w);
/* The contents of a RAM section, up to its end mark. */
void ram_load_section(RamState *ram, VmReader *r);

/* --- savevm.c: the stream as a whole --- */
void savevm_write_header(VmWriter *w, const bool *capabilities);
void savevm_write_section(VmWriter *w, uint8_t type, const char *idstr, int version);
void savevm_write_footer(VmWriter *w, uint32_t id);
enum {
    SAVEVM_CMD_OPEN_RETURN_PATH = 1,
    SAVEVM_CMD_PING = 2,
    SAVEVM_CMD_SWITCHOVER_START = 11,
};
extern const VMStateDescription vmstate_globalstate; /* of a bool: the VM ran */
#define SAVEVM_RAM_ID      1u
#define SAVEVM_RAM_VERSION 4
/* Main thread, VM stopped: all devices, the end mark, the description. */
void savevm_write_devices(GByteArray *out, bool vm_was_running);
/* A whole stream that has nothing but @devices (MigrationDevice). */
void savevm_write_only_devices(GByteArray *out, const char *machine, const GArray *devices);

typedef struct LoadState LoadState;
/* Main thread. */
LoadState *loadvm_new(GError **errp);
/* For a stream that has nothing but @devices (MigrationDevice), which are taken over. */
LoadState *loadvm_new_devices(const char *machine, GArray *devices);
/* Any thread: reads the stream to its end. */
gboolean loadvm_read(LoadState *load, VmReader *r, GError **errp);
/* Main thread: checks and applies what was read.  On failure nothing of it was applied. */
gboolean loadvm_finish(LoadState *load, bool *vm_was_running, GError **errp);
bool loadvm_answer_wanted(const LoadState *load);
void loadvm_free(LoadState *load);

/* --- outgoing.c, incoming.c --- */
bool outgoing_is_active(void);
void outgoing_cleanup(void);
void outgoing_query(MigrationInfo *info); /* members of the last or current one */
void incoming_cleanup(void);
bool incoming_query(MigrationInfo *info);
void migration_send_status_event(MigrationStatus status);

#endif
