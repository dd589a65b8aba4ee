/* The qtest server: a line protocol that plays the CPU.  facts/qemu-compat.md has the protocol. */
#ifndef SYSTEM_QTEST_H
#define SYSTEM_QTEST_H

#include <glib.h>

#include "chardev/chardev.h"

gboolean qtest_server_start(Chardev *chr, const char *log, GError **errp);
void qtest_server_stop(void);

#endif
