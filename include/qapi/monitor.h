/*
 * Monitors: QMP and HMP on a chardev.  Main thread.
 */
#ifndef QAPI_MONITOR_H
#define QAPI_MONITOR_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>

#include "chardev/chardev.h"

typedef struct Monitor Monitor;

Monitor *monitor_new_qmp(Chardev *chr, bool pretty, GError **errp);
Monitor *monitor_new_hmp(Chardev *chr, bool use_readline, GError **errp);
/* Detaches it from its chardev and frees it, once the command that runs in it has returned.
 * Nothing happens if that was done already. */
void monitor_remove(Monitor *mon);
void monitor_cleanup_all(void); /* sends what is queued, detaches */
Monitor *monitor_current(void); /* the one whose command is running, or NULL */
/* The fd that getfd kept under @name, now the caller's; -1 with error. */
int monitor_get_fd(Monitor *mon, const char *name, GError **errp);

/*
 * Events, from qapi/ generated senders: {"timestamp": …, "event": name, "data": data}.  Takes @data
 * (NULL: none).  Any thread: what comes from another thread than the main one is handed over.
 */
void qmp_emit_event(const char *name, json_object *data);
/* @fn sees each event (@event borrowed) in the main thread.  Monitors do so, and tests. */
typedef void QmpEventFunc(void *opaque, const char *name, json_object *event);
void qmp_event_listen(QmpEventFunc *fn, void *opaque);
void qmp_event_unlisten(QmpEventFunc *fn, void *opaque);

/* Forgets events that a rate holds back; at the end, before the main loop goes. */
void qmp_events_cleanup(void);

/* QMP commands: a table generated from the schema. */
typedef enum QmpCommandFlags {
    QMP_NO_SUCCESS_RESPONSE = 1,
    QMP_ALLOW_OOB = 2,
    QMP_ALLOW_PRECONFIG = 4,
    QMP_RETURNS_ANY = 8 /* a NULL result is JSON null, not an empty answer */
} QmpCommandFlags;
typedef struct QmpCommand {
    const char *name;
    void (*marshal)(json_object *args, json_object **ret, GError **errp);
    unsigned flags;
} QmpCommand;
extern const QmpCommand qmp_commands[]; /* sorted by name, ended by name NULL */
/* Runs a command as a client would, with @args (borrowed; NULL: none).  New reference; NULL with
 * error, or where the answer is empty. */
json_object *qmp_call(const char *name, json_object *args, GError **errp);

/* HMP commands: tables registered by the parts that have them. */
typedef struct HmpCommand {
    const char *name;   /* "info network", "set_link", "q|quit" */
    const char *params; /* for help */
    const char *help;
    /* @args: the rest of the line, trimmed. Text for the user goes to @out, "\r\n" lines. */
    void (*run)(const char *args, GString *out);
    /* Words that the last, unfinished word of @args may become; adds to @words.  NULL: none. */
    void (*complete)(const char *args, GPtrArray *words);
} HmpCommand;
/* Completes what qom-get, qom-list and qom-set take; set by who knows the objects. */
extern void (*hmp_complete_path_hook)(const char *args, GPtrArray *words);
void hmp_register(const HmpCommand *commands); /* ended by name NULL */
/* One line; output with CR LF.  An unknown command is text, not an error. */
char *hmp_execute(const char *line);

#endif
