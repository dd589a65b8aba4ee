/*
 * The client's end of the qtest line protocol.
 *
 * One QtestClient owns one connected socket.  Requests may come from any thread: each is sent
 * and answered under the client's lock.  "IRQ raise N" and "IRQ lower N" lines that arrive
 * between answers are kept as levels and counts.
 *
 * Errors never end the process.  The typed accessors below return 0 on failure and keep the
 * first error in the client ("sticky"): drivers run a whole sequence and look once, with
 * qtest_client_check().  After a transport error (closed, timed out) every later call fails at
 * once.
 */
#ifndef GUEST_QTEST_CLIENT_H
#define GUEST_QTEST_CLIENT_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct QtestClient QtestClient;

/* Takes over the connected stream socket @fd. */
QtestClient *qtest_client_new(int fd);
/* Connects to a server that listens on UNIX socket @path. */
QtestClient *qtest_client_connect(const char *path, GError **errp);
/* Closes the socket; NULL is fine. */
void qtest_client_free(QtestClient *client);
/* How long one answer may take, milliseconds; 30,000 at first. */
void qtest_client_set_timeout(QtestClient *client, unsigned ms);
/* The socket, for tests that send their own bytes. */
int qtest_client_fd(const QtestClient *client);

/*
 * One request line (without newline) and its answer.  False when the transport failed or the
 * answer was not "OK…": the error's text then holds the answer.  *@answer (may be NULL) is what
 * followed "OK ", to be freed by the caller; it is set to NULL on failure.  Not sticky, except
 * for transport errors.
 */
bool qtest_client_command(QtestClient *client, char **answer, GError **errp, const char *format,
                          ...) G_GNUC_PRINTF(4, 5);
/* The whole answer line, whatever it says (NULL: transport error). */
char *qtest_client_ask(QtestClient *client, const char *line, GError **errp);

/* I/O ports; @width is 1, 2 or 4 bytes. */
void qtest_client_out(QtestClient *client, unsigned width, uint16_t port, uint32_t value);
uint32_t qtest_client_in(QtestClient *client, unsigned width, uint16_t port);
/* Memory, one access of @width 1, 2, 4 or 8 bytes, little-endian. */
void qtest_client_store(QtestClient *client, unsigned width, uint64_t addr, uint64_t value);
uint64_t qtest_client_load(QtestClient *client, unsigned width, uint64_t addr);
/* As store, but returns before the answer; a bad answer becomes the sticky error later. */
void qtest_client_post_store(QtestClient *client, unsigned width, uint64_t addr, uint64_t value);
/* Memory in bulk. */
void qtest_client_write(QtestClient *client, uint64_t addr, const void *data, size_t size);
void qtest_client_read(QtestClient *client, uint64_t addr, void *data, size_t size);
void qtest_client_memset(QtestClient *client, uint64_t addr, size_t size, uint8_t value);

/* Moves the clock by @ns, or to the next deadline when @ns is negative; the new time, ns. */
int64_t qtest_client_clock_step(QtestClient *client, int64_t ns);
int64_t qtest_client_clock_set(QtestClient *client, int64_t ns);

bool qtest_client_irq_intercept_in(QtestClient *client, const char *qom_path, GError **errp);
bool qtest_client_irq_intercept_out(QtestClient *client, const char *qom_path, GError **errp);
/* Level of line @irq and how often it was raised, after reading what has arrived. */
bool qtest_client_irq_level(QtestClient *client, unsigned irq);
uint64_t qtest_client_irq_raises(QtestClient *client, unsigned irq);
/* Waits up to @ms for line @irq to have level @level. */
bool qtest_client_irq_wait(QtestClient *client, unsigned irq, bool level, unsigned ms);

/* True when nothing failed since the last check; else moves the sticky error out. */
bool qtest_client_check(QtestClient *client, GError **errp);
/* True after a transport error, which no later call survives. */
bool qtest_client_is_broken(QtestClient *client);

#endif
