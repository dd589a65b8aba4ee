/* Between the qtest server (lines in and out) and its commands. */
#ifndef SYSTEM_QTEST_PRIV_H
#define SYSTEM_QTEST_PRIV_H

#include <glib.h>

/* Most bytes one request may carry or ask for. */
#define QTEST_MAX_DATA (64u << 20)

/* Sends one line; "\n" is added. */
void qtest_reply(const char *fmt, ...) G_GNUC_PRINTF(1, 2);
/* The same for a line that was built; takes it over. */
void qtest_reply_take(GString *line);

/* Runs the request @line (without its end) and replies. */
void qtest_command(const char *line);
/* The client is gone: nobody wants to hear of interrupts any more. */
void qtest_command_reset(void);

#endif
