/*
 * The qtest server: a line protocol that plays the CPU, as QEMU's docs/devel/testing/qtest.rst has
 * it; system/qtest-command.c lists the commands.  One client at a time.  Main thread.
 */
#ifndef SYSTEM_QTEST_H
#define SYSTEM_QTEST_H

#include <glib.h>

#include "chardev/chardev.h"

/* Serves the client of @chr, which stays the caller's.  @log: a file to which all lines are written
 * too; "none" or NULL: no such file. */
gboolean qtest_server_start(Chardev *chr, const char *log, GError **errp);
void qtest_server_stop(void);

#endif
