/*
 * qtest client: see qtest-client.h.
 *
 * Bytes arrive in `input`; next_line() cuts lines from it.  A line that reports an interrupt is
 * noted at once, any other line answers the oldest request that has none yet: first the posted
 * stores (nobody waits for those), then the request whose thread holds the lock.
 */
#include "guest/qtest-client.h"
#include <errno.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/unix-socket.h"

#define MAX_IRQS   1024
#define MAX_LINE   (256u << 20) /* a whole guest RAM read in one request still fits */
#define MAX_POSTED 64           /* answers that may be outstanding: 200 bytes in the socket */
#define READ_SIZE  65536
#define BULK_SIZE  (1u << 20) /* bytes of memory in one read or write request */

struct QtestClient {
    pthread_mutex_t lock;
    int fd;
    unsigned timeout_ms;
    GByteArray *input;
    size_t scanned;  /* bytes of input known to hold no newline */
    unsigned posted; /* stores sent without waiting */
    GError *error;   /* first failure since the last check */
    bool broken;
    bool levels[MAX_IRQS];
    uint64_t raises[MAX_IRQS];
};

QtestClient *qtest_client_new(int fd)
{
    QtestClient *client = g_new0(QtestClient, 1);
    pthread_mutex_init(&client->lock, NULL);
    client->fd = fd;
    client->timeout_ms = 30000;
    client->input = g_byte_array_new();
    return client;
}

QtestClient *qtest_client_connect(const char *path, GError **errp)
{
    int fd = unix_socket_connect("qtest socket", path, errp);
    if (fd < 0) {
        return NULL;
    }
    return qtest_client_new(fd);
}

void qtest_client_free(QtestClient *client)
{
    if (!client) {
        return;
    }
    close(client->fd);
    g_byte_array_unref(client->input);
    g_clear_error(&client->error);
    pthread_mutex_destroy(&client->lock);
    g_free(client);
}

void qtest_client_set_timeout(QtestClient *client, unsigned ms)
{
    client->timeout_ms = ms;
}

int qtest_client_fd(const QtestClient *client)
{
    return client->fd;
}

/* Keeps @error if it is the first one; takes it over. */
static void keep_error(QtestClient *client, GError *error)
{
    if (client->error) {
        g_error_free(error);
    } else {
        client->error = error;
    }
}

static bool break_connection(QtestClient *client, GError **errp, int code, const char *why)
{
    client->broken = true;
    keep_error(client, g_error_new(G_IO_ERROR, code, "qtest: %s", why));
    g_set_error(errp, G_IO_ERROR, code, "qtest: %s", why);
    return false;
}

static bool refuse_broken(QtestClient *client, GError **errp)
{
    if (client->broken) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_CLOSED, "qtest: the connection is broken");
    }
    return client->broken;
}

static bool send_all(QtestClient *client, const char *data, size_t size, GError **errp)
{
    while (size > 0) {
        ssize_t n = send(client->fd, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return break_connection(client, errp, G_IO_ERROR_CLOSED, g_strerror(errno));
        }
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* "IRQ raise N" and "IRQ lower N"; false: the line is something else. */
static bool note_irq(QtestClient *client, const char *line)
{
    bool raise = g_str_has_prefix(line, "IRQ raise ");
    if (!raise && !g_str_has_prefix(line, "IRQ lower ")) {
        return false;
    }
    unsigned long irq = strtoul(line + strlen("IRQ raise "), NULL, 10);
    if (irq < MAX_IRQS) {
        client->levels[irq] = raise;
        client->raises[irq] += raise;
    }
    return true;
}

/* Cuts one line from what has been read; NULL: there is no whole one. */
static char *cut_line(QtestClient *client)
{
    GByteArray *in = client->input;
    if (in->len == client->scanned) {
        return NULL;
    }
    uint8_t *newline = memchr(in->data + client->scanned, '\n', in->len - client->scanned);
    if (!newline) {
        client->scanned = in->len;
        return NULL;
    }
    size_t size = (size_t)(newline - in->data);
    char *line = g_strndup((const char *)in->data, size);
    g_byte_array_remove_range(in, 0, (guint)size + 1);
    client->scanned = 0;
    return line;
}

/* Reads once, waiting up to @timeout_ms (0: do not wait).  1: read, 0: nothing came, -1: error. */
static int fill_input(QtestClient *client, int timeout_ms, GError **errp)
{
    struct pollfd pfd = {.fd = client->fd, .events = POLLIN};
    int ready = poll(&pfd, 1, timeout_ms);
    if (ready <= 0) {
        return 0;
    }
    guint old = client->input->len;
    if (old > MAX_LINE) {
        break_connection(client, errp, G_IO_ERROR_FAILED, "an answer without an end");
        return -1;
    }
    g_byte_array_set_size(client->input, old + READ_SIZE);
    ssize_t n = recv(client->fd, client->input->data + old, READ_SIZE, MSG_DONTWAIT);
    int saved = errno;
    g_byte_array_set_size(client->input, old + (guint)MAX(n, 0));
    if (n > 0) {
        return 1;
    }
    if (n < 0 && (saved == EINTR || saved == EAGAIN)) {
        return 0;
    }
    break_connection(client, errp, G_IO_ERROR_CLOSED,
                     n == 0 ? "the emulator closed the connection" : g_strerror(saved));
    return -1;
}

/* The next line that answers a request, waiting as long as the time-out says. */
static char *next_answer(QtestClient *client, GError **errp)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)client->timeout_ms * 1000;
    for (;;) {
        char *line = cut_line(client);
        if (line && note_irq(client, line)) {
            g_free(line);
            continue;
        }
        if (line) {
            return line;
        }
        gint64 left = deadline - g_get_monotonic_time();
        if (left <= 0) {
            break_connection(client, errp, G_IO_ERROR_TIMED_OUT, "no answer in time");
            return NULL;
        }
        if (fill_input(client, (int)(left / 1000) + 1, errp) < 0) {
            return NULL;
        }
    }
}

/* Judges the answer to a posted store; takes @line over. */
static void settle_posted(QtestClient *client, char *line)
{
    client->posted--;
    if (!g_str_has_prefix(line, "OK")) {
        keep_error(client, g_error_new(G_IO_ERROR, G_IO_ERROR_FAILED, "qtest: %s", line));
    }
    g_free(line);
}

static bool settle_all_posted(QtestClient *client, GError **errp)
{
    while (client->posted > 0) {
        char *line = next_answer(client, errp);
        if (!line) {
            return false;
        }
        settle_posted(client, line);
    }
    return true;
}

/* Notes what has arrived without waiting: interrupts and answers to posted stores. */
static void drain_input(QtestClient *client)
{
    do {
        char *line;
        while ((line = cut_line(client))) {
            if (note_irq(client, line)) {
                g_free(line);
            } else if (client->posted > 0) {
                settle_posted(client, line);
            } else {
                g_free(line); /* an answer nobody asked for */
            }
        }
    } while (!client->broken && fill_input(client, 0, NULL) > 0);
}

/* One request and its answer, under the lock; @request ends in a newline. */
static char *exchange(QtestClient *client, const char *request, size_t size, GError **errp)
{
    if (refuse_broken(client, errp) || !send_all(client, request, size, errp) ||
        !settle_all_posted(client, errp)) {
        return NULL;
    }
    return next_answer(client, errp);
}

char *qtest_client_ask(QtestClient *client, const char *line, GError **errp)
{
    g_autofree char *request = g_strconcat(line, "\n", NULL);
    pthread_mutex_lock(&client->lock);
    char *answer = exchange(client, request, strlen(request), errp);
    pthread_mutex_unlock(&client->lock);
    return answer;
}

/* What follows "OK", or NULL with error; takes @line over. */
static char *require_ok(char *line, GError **errp)
{
    if (!line) {
        return NULL;
    }
    if (strcmp(line, "OK") != 0 && !g_str_has_prefix(line, "OK ")) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "qtest: %s", line);
        g_free(line);
        return NULL;
    }
    size_t skip = line[2] ? 3 : 2;
    memmove(line, line + skip, strlen(line + skip) + 1);
    return line;
}

bool qtest_client_command(QtestClient *client, char **answer, GError **errp, const char *format,
                          ...)
{
    va_list ap;
    va_start(ap, format);
    g_autofree char *line = g_strdup_vprintf(format, ap);
    va_end(ap);
    char *rest = require_ok(qtest_client_ask(client, line, errp), errp);
    bool ok = rest != NULL;
    if (answer) {
        *answer = rest;
    } else {
        g_free(rest);
    }
    return ok;
}

/* A typed request: failures are kept in the client.  The answer after "OK", or NULL. */
static char *run_sticky(QtestClient *client, const char *request, size_t size)
{
    GError *error = NULL;
    pthread_mutex_lock(&client->lock);
    char *answer = require_ok(exchange(client, request, size, &error), &error);
    if (error) {
        keep_error(client, error);
    }
    pthread_mutex_unlock(&client->lock);
    return answer;
}

static char *G_GNUC_PRINTF(2, 3) runf(QtestClient *client, const char *format, ...)
{
    char request[160];
    va_list ap;
    va_start(ap, format);
    int size = vsnprintf(request, sizeof(request), format, ap);
    va_end(ap);
    return run_sticky(client, request, (size_t)size);
}

/* An answer that is one number; 0 when there is none. */
static uint64_t take_number(char *answer)
{
    uint64_t value = answer ? strtoull(answer, NULL, 0) : 0;
    g_free(answer);
    return value;
}

static char width_letter(unsigned width)
{
    return width == 1 ? 'b' : width == 2 ? 'w' : width == 4 ? 'l' : 'q';
}

void qtest_client_out(QtestClient *client, unsigned width, uint16_t port, uint32_t value)
{
    g_free(runf(client, "out%c 0x%x 0x%x\n", width_letter(width), port, value));
}

uint32_t qtest_client_in(QtestClient *client, unsigned width, uint16_t port)
{
    return (uint32_t)take_number(runf(client, "in%c 0x%x\n", width_letter(width), port));
}

void qtest_client_store(QtestClient *client, unsigned width, uint64_t addr, uint64_t value)
{
    g_free(runf(client, "write%c 0x%" PRIx64 " 0x%" PRIx64 "\n", width_letter(width), addr, value));
}

uint64_t qtest_client_load(QtestClient *client, unsigned width, uint64_t addr)
{
    return take_number(runf(client, "read%c 0x%" PRIx64 "\n", width_letter(width), addr));
}

void qtest_client_post_store(QtestClient *client, unsigned width, uint64_t addr, uint64_t value)
{
    char request[80];
    int size = snprintf(request, sizeof(request), "write%c 0x%" PRIx64 " 0x%" PRIx64 "\n",
                        width_letter(width), addr, value);
    pthread_mutex_lock(&client->lock);
    if (!client->broken && send_all(client, request, (size_t)size, NULL)) {
        client->posted++;
        drain_input(client);
        if (client->posted >= MAX_POSTED) {
            settle_all_posted(client, NULL);
        }
    }
    pthread_mutex_unlock(&client->lock);
}

static void write_piece(QtestClient *client, uint64_t addr, const uint8_t *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    g_autoptr(GString) request = g_string_sized_new(size * 2 + 64);
    g_string_printf(request, "write 0x%" PRIx64 " 0x%zx 0x", addr, size);
    for (size_t i = 0; i < size; i++) {
        g_string_append_c(request, digits[data[i] >> 4]);
        g_string_append_c(request, digits[data[i] & 15]);
    }
    g_string_append_c(request, '\n');
    g_free(run_sticky(client, request->str, request->len));
}

void qtest_client_write(QtestClient *client, uint64_t addr, const void *data, size_t size)
{
    for (size_t done = 0; done < size; done += BULK_SIZE) {
        write_piece(client, addr + done, (const uint8_t *)data + done, MIN(size - done, BULK_SIZE));
    }
}

static void read_piece(QtestClient *client, uint64_t addr, uint8_t *data, size_t size)
{
    g_autofree char *hex = runf(client, "read 0x%" PRIx64 " 0x%zx\n", addr, size);
    if (!hex) {
        return;
    }
    if (strlen(hex) != 2 * size + 2) {
        pthread_mutex_lock(&client->lock);
        keep_error(client,
                   g_error_new(G_IO_ERROR, G_IO_ERROR_FAILED,
                               "qtest: read of %zu bytes answered %zu digits", size, strlen(hex)));
        pthread_mutex_unlock(&client->lock);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(g_ascii_xdigit_value(hex[2 + 2 * i]) << 4 |
                            g_ascii_xdigit_value(hex[3 + 2 * i]));
    }
}

void qtest_client_read(QtestClient *client, uint64_t addr, void *data, size_t size)
{
    memset(data, 0, size);
    for (size_t done = 0; done < size; done += BULK_SIZE) {
        read_piece(client, addr + done, (uint8_t *)data + done, MIN(size - done, BULK_SIZE));
    }
}

void qtest_client_memset(QtestClient *client, uint64_t addr, size_t size, uint8_t value)
{
    g_free(runf(client, "memset 0x%" PRIx64 " 0x%zx 0x%x\n", addr, size, value));
}

int64_t qtest_client_clock_step(QtestClient *client, int64_t ns)
{
    if (ns < 0) {
        return (int64_t)take_number(runf(client, "clock_step\n"));
    }
    return (int64_t)take_number(runf(client, "clock_step %" PRId64 "\n", ns));
}

int64_t qtest_client_clock_set(QtestClient *client, int64_t ns)
{
    return (int64_t)take_number(runf(client, "clock_set %" PRId64 "\n", ns));
}

bool qtest_client_irq_intercept_in(QtestClient *client, const char *qom_path, GError **errp)
{
    return qtest_client_command(client, NULL, errp, "irq_intercept_in %s", qom_path);
}

bool qtest_client_irq_intercept_out(QtestClient *client, const char *qom_path, GError **errp)
{
    return qtest_client_command(client, NULL, errp, "irq_intercept_out %s", qom_path);
}

bool qtest_client_irq_level(QtestClient *client, unsigned irq)
{
    pthread_mutex_lock(&client->lock);
    drain_input(client);
    bool level = irq < MAX_IRQS && client->levels[irq];
    pthread_mutex_unlock(&client->lock);
    return level;
}

uint64_t qtest_client_irq_raises(QtestClient *client, unsigned irq)
{
    pthread_mutex_lock(&client->lock);
    drain_input(client);
    uint64_t raises = irq < MAX_IRQS ? client->raises[irq] : 0;
    pthread_mutex_unlock(&client->lock);
    return raises;
}

bool qtest_client_irq_wait(QtestClient *client, unsigned irq, bool level, unsigned ms)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)ms * 1000;
    while (qtest_client_irq_level(client, irq) != level) {
        gint64 left = deadline - g_get_monotonic_time();
        if (left <= 0 || qtest_client_is_broken(client)) {
            return false;
        }
        struct pollfd pfd = {.fd = client->fd, .events = POLLIN};
        poll(&pfd, 1, (int)(left / 1000) + 1);
    }
    return true;
}

bool qtest_client_check(QtestClient *client, GError **errp)
{
    pthread_mutex_lock(&client->lock);
    if (!client->broken) {
        settle_all_posted(client, NULL);
    }
    GError *error = client->error;
    client->error = NULL;
    if (!error && client->broken) {
        error = g_error_new(G_IO_ERROR, G_IO_ERROR_CLOSED, "qtest: the connection is broken");
    }
    pthread_mutex_unlock(&client->lock);
    if (error) {
        g_propagate_error(errp, error);
        return false;
    }
    return true;
}

bool qtest_client_is_broken(QtestClient *client)
{
    pthread_mutex_lock(&client->lock);
    bool broken = client->broken;
    pthread_mutex_unlock(&client->lock);
    return broken;
}
