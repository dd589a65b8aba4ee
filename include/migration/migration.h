/*
 * Live migration: the main program's side.  Main thread.
 */
#ifndef MIGRATION_MIGRATION_H
#define MIGRATION_MIGRATION_H

#include <glib.h>
#include <stdbool.h>

/* -incoming URI.  Listens (or opens) at once; "defer" waits for migrate-incoming.  Once the stream
 * is in, the VM starts if it ran at the source and @autostart. */
gboolean migration_start_incoming(const char *uri, bool autostart, GError **errp);
/* True from migration_start_incoming() until the VM is here (or for ever, if it failed). */
bool migration_is_incoming(void);
/* An incoming migration failed, and the user wanted the process to end then. */
bool migration_exit_with_error(void);
/* `cont`: VM may start.  During an incoming migration the wish is kept for its end; FALSE then,
 * with or without error. */
gboolean migration_may_start(GError **errp);

void migration_register_hmp(void);
/* Cancels what goes on and waits for its end. */
void migration_cleanup(void);

#endif
