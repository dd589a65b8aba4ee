/*
 * What monitors of both kinds share, inside qapi/ only.
 */
#ifndef QAPI_MONITOR_PRIV_H
#define QAPI_MONITOR_PRIV_H

#include "qapi/monitor.h"

/* How a kind of monitor reacts; NULLs are not allowed. */
typedef struct MonitorOps {
    size_t size; /* of the structure that begins with a Monitor */
    size_t (*can_read)(Monitor *mon);
    void (*read)(Monitor *mon, const char *data, size_t size);
    void (*opened)(Monitor *mon);  /* a client is there */
    void (*closed)(Monitor *mon);  /* it has gone: forget its session */
    void (*drained)(Monitor *mon); /* all output has left */
    void (*release)(Monitor *mon); /* frees what the kind holds */
} MonitorOps;

struct Monitor {
    const MonitorOps *ops;
    Chardev *chr;
    GHashTable *fds;  /* getfd: name -> GINT_TO_POINTER(fd) */
    unsigned session; /* counts clients, so that an answer never reaches the next one */
    bool open;
    unsigned busy; /* calls into this monitor on the stack: it may not be freed now */
    bool dead;     /* free it when they return */
};

/* Attaches a monitor of @ops' kind to @chr; @configure sets it up before a client is greeted. */
Monitor *monitor_new(const MonitorOps *ops, Chardev *chr,
                     void (*configure)(Monitor *mon, bool flag), bool flag, GError **errp);
/* Between these @mon stays allocated and, for commands, is monitor_current(). */
Monitor *monitor_enter(Monitor *mon);
void monitor_leave(Monitor *mon, Monitor *previous);

/* chardev_change(), but not of the device that the command came by. */
Chardev *monitor_change_chardev(const char *id, json_object *options, GError **errp);

/* QMP's greeting and query-version. */
json_object *qmp_version(void);
/* qmp_capabilities for the session of @mon; false when it is over already or @mon is no QMP one. */
bool qmp_session_negotiate(Monitor *mon, bool oob);

/* Line editor of an HMP monitor: bytes in, echo and whole lines out. */
typedef struct Readline Readline;
typedef struct ReadlineOps {
    void (*output)(void *opaque, const char *text, size_t size);
    void (*line)(void *opaque, const char *line);
    /* Words that @text may be completed to, sorted; NULL: none.  Freed with g_strfreev. */
    char **(*complete)(void *opaque, const char *text);
} ReadlineOps;
Readline *readline_new(const ReadlineOps *ops, void *opaque, const char *prompt, bool editing);
void readline_free(Readline *rl);
void readline_restart(Readline *rl); /* forgets the line; history stays */
void readline_show_prompt(Readline *rl);
void readline_feed(Readline *rl, char c);

/* Command names that begin with @text; for completion. */
char **hmp_complete(const char *text);
/* The commands every program has; hmp_register()ed ones of the same name go first. */
extern const HmpCommand hmp_builtin_commands[];

#endif
