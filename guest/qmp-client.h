/*
 * The client's end of QMP: greeting and negotiation, one command at a time, events in a queue.
 *
 * Answers are framed by json-c's incremental parser, so it does not matter how they are cut
 * into packets.  Events that arrive while an answer is awaited are queued in order.  Errors are
 * GErrors; an error answer of the emulator has domain QMP_CLIENT_ERROR and the text
 * "CLASS: description".  A client is used from one thread at a time.
 */
#ifndef GUEST_QMP_CLIENT_H
#define GUEST_QMP_CLIENT_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

#define QMP_CLIENT_ERROR qmp_client_error_quark()
GQuark qmp_client_error_quark(void);

typedef struct QmpClient QmpClient;

/* Takes over the connected stream socket @fd; sends and reads nothing yet. */
QmpClient *qmp_client_new(int fd);
/* Connects to a server that listens on UNIX socket @path. */
QmpClient *qmp_client_connect(const char *path, GError **errp);
/* Closes the socket; NULL is fine. */
void qmp_client_free(QmpClient *client);
/* How long one answer may take, milliseconds; 30,000 at first. */
void qmp_client_set_timeout(QmpClient *client, unsigned ms);
int qmp_client_fd(const QmpClient *client);

/* Reads the greeting and sends qmp_capabilities. */
bool qmp_client_negotiate(QmpClient *client, GError **errp);
/* The greeting, once read (borrowed; else NULL). */
json_object *qmp_client_greeting(const QmpClient *client);

/*
 * Runs @command; @arguments (an object, or NULL) is taken over.  What "return" held, owned by
 * the caller (json_object_put), or NULL with error.
 */
json_object *qmp_client_execute(QmpClient *client, const char *command, json_object *arguments,
                                GError **errp);
/* The same with arguments written as JSON text through printf: "{'a': %d}" with double quotes. */
json_object *qmp_client_executef(QmpClient *client, const char *command, GError **errp,
                                 const char *arguments_format, ...) G_GNUC_PRINTF(4, 5);
/* human-monitor-command; the text, g_free it. */
char *qmp_client_hmp(QmpClient *client, const char *command_line, GError **errp);
/* qom-get; owned by the caller.  Note that the property's value may be JSON null, that is NULL:
 * look at *@errp. */
json_object *qmp_client_qom_get(QmpClient *client, const char *path, const char *property,
                                GError **errp);

/* The next event called @name (NULL: any), waiting up to @ms; owned by the caller.  Other events
 * stay queued.  NULL with error on time-out. */
json_object *qmp_client_wait_event(QmpClient *client, const char *name, unsigned ms, GError **errp);
/* Forget queued events. */
void qmp_client_drop_events(QmpClient *client);

/* For tests of the server: bytes as they are, and the next value whatever it is. */
bool qmp_client_send_raw(QmpClient *client, const void *data, size_t size, GError **errp);
bool qmp_client_send_fd(QmpClient *client, const void *data, size_t size, int fd, GError **errp);
json_object *qmp_client_receive(QmpClient *client, unsigned ms, GError **errp);

#endif
