/*
 * Emulators by command line, for tests of back ends and monitors: started, asked, ended.
 * A function that meets a failure which no test expects ends the test program.
 */
#ifndef TESTS_LIB_LAUNCH_H
#define TESTS_LIB_LAUNCH_H

#include "guest/emulator.h"

/* Starts $SWNIC_BINARY with -accel qtest and the words of the formatted line.  @fds: ended by -1,
 * stay open in it; may be NULL. */
Emulator *launch(const int *fds, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* Ends it by "quit"; anything but exit status 0 fails. */
void launch_quit(Emulator *e);
/* The line is refused: exit status 1, one line on standard error, which this returns (g_free). */
char *launch_refused(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* Runs a QMP command with arguments as JSON in single quotes (NULL: none) and returns "return". */
json_object *launch_qmp(Emulator *e, const char *command, const char *arguments, ...)
    G_GNUC_PRINTF(3, 4);
/* The same for one that must succeed, whatever it returns. */
void launch_do(Emulator *e, const char *command, const char *arguments, ...) G_GNUC_PRINTF(3, 4);
/* The same for one that must fail; its message (without the class), g_free. */
char *launch_fails(Emulator *e, const char *command, const char *arguments, ...)
    G_GNUC_PRINTF(3, 4);
char *launch_hmp(Emulator *e, const char *line);

/* Members of JSON objects, borrowed; NULL if absent. */
json_object *launch_member(json_object *object, const char *key);
const char *launch_string(json_object *object, const char *key);

/* Asks "info network" until the whole answer is the formatted text. */
void launch_expect_info(Emulator *e, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* The same, with the answer cut at the last @at. */
void launch_expect_info_cut(Emulator *e, char at, const char *format, ...) G_GNUC_PRINTF(3, 4);
/* Waits until a migration has ended, which must succeed. */
void launch_wait_migrated(Emulator *e);
/* Waits until one has failed; its message, g_free. */
char *launch_wait_migration_failed(Emulator *e);
/* The "data" of the next event of this name; json_object_put. */
json_object *launch_wait_event(Emulator *e, const char *name);

#endif
