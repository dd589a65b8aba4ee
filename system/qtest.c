/*
 * The qtest server: cuts what a client sends into lines, runs them in order, sends answers.
 *
 * Bytes collect in `input` until a line is complete; pieces and many lines at once are the same
 * to it.  While the client does not read its answers (`queued` beyond a limit) no line is run and
 * nothing is read, so a client cannot make us hold more than a few answers.  Nothing that it
 * sends ends the process, nor does its leaving.
 *
 * The log (-qtest-log) has a line a request and answer: [R +seconds] …, [S +seconds] ….
 */
#include "system/qtest.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "qtest-priv.h"
#include "util/clock.h"
#include "util/error.h"

/* Twice the data in hexadecimal, and the command before it. */
#define MAX_LINE   (2 * (size_t)QTEST_MAX_DATA + 4096)
#define MAX_QUEUED (1u << 20)
#define READ_SIZE  (64 * 1024)

static struct {
    Chardev *chr;
    GString *input;
    size_t taken;   /* bytes of @input that were run */
    size_t scanned; /* bytes of @input known to hold no unrun line's end */
    bool skipping;  /* in a line that is too long, until its end */
    bool running;
    FILE *log;
    int64_t opened_ns;
} qtest;

static void log_line(char direction, const char *line)
{
    if (qtest.log) {
        double seconds = (clock_get_ns(CLOCK_HOST) - qtest.opened_ns) / 1e9;
        fprintf(qtest.log, "[%c +%.6f] %s\n", direction, seconds, line);
    }
}

void qtest_reply_take(GString *line)
{
    log_line('S', line->str);
    g_string_append_c(line, '\n');
    if (qtest.chr) {
        chardev_write(qtest.chr, line->str, line->len, CHARDEV_NO_LIMIT);
    }
    g_string_free(line, TRUE);
}

void qtest_reply(const char *fmt, ...)
{
    GString *line = g_string_new(NULL);
    va_list ap;

    va_start(ap, fmt);
    g_string_vprintf(line, fmt, ap);
    va_end(ap);
    qtest_reply_take(line);
}

static void run_line(char *line, size_t size)
{
    if (size && line[size - 1] == '\r') {
        line[--size] = '\0';
    }
    if (qtest.skipping) {
        qtest.skipping = false;
        qtest_reply("ERR line too long (at most %zu bytes)", MAX_LINE);
    } else if (memchr(line, '\0', size)) {
        qtest_reply("ERR line with a NUL byte");
    } else if (size) {
        log_line('R', line);
        qtest_command(line);
    }
}

/* Gives back the memory of lines that were run. */
static void input_compact(void)
{
    g_string_erase(qtest.input, 0, qtest.taken);
    qtest.scanned -= qtest.taken;
    qtest.taken = 0;
}

static void run_lines(void)
{
    if (qtest.running) {
        return; /* a command's answer made room: the loop below goes on anyway */
    }
    qtest.running = true;
    while (qtest.chr && chardev_queued(qtest.chr) <= MAX_QUEUED) {
        char *start = qtest.input->str + qtest.scanned;
        char *end = memchr(start, '\n', qtest.input->len - qtest.scanned);
        if (!end) {
            qtest.scanned = qtest.input->len;
            break;
        }
        char *line = qtest.input->str + qtest.taken;
        *end = '\0';
        qtest.taken = qtest.scanned = end + 1 - qtest.input->str;
        run_line(line, end - line);
    }
    qtest.running = false;
    if (!qtest.chr) {
        return;
    }
    input_compact();
    if (qtest.input->len > MAX_LINE && qtest.scanned == qtest.input->len) {
        qtest.skipping = true;
        g_string_truncate(qtest.input, 0);
        qtest.scanned = 0;
    }
}

static size_t qtest_can_read(void *opaque)
{
    bool unrun = qtest.scanned < qtest.input->len;

    return unrun || chardev_queued(qtest.chr) > MAX_QUEUED ? 0 : READ_SIZE;
}

static void qtest_read(void *opaque, const char *data, size_t size)
{
    g_string_append_len(qtest.input, data, size);
    run_lines();
}

static void qtest_drained(void *opaque)
{
    run_lines();
    if (qtest.chr) {
        chardev_accept_input(qtest.chr);
    }
}

static void qtest_event(void *opaque, ChardevEvent event)
{
    g_string_truncate(qtest.input, 0);
    qtest.taken = qtest.scanned = 0;
    qtest.skipping = false;
    if (event == CHARDEV_OPENED) {
        qtest.opened_ns = clock_get_ns(CLOCK_HOST);
        log_line('I', "OPENED");
    } else {
        log_line('I', "CLOSED");
        qtest_command_reset();
    }
}

gboolean qtest_server_start(Chardev *chr, const char *log, GError **errp)
{
    static const ChardevHandlers handlers = {
        .can_read = qtest_can_read,
        .read = qtest_read,
        .event = qtest_event,
        .drained = qtest_drained,
    };

    if (log && strcmp(log, "none")) {
        qtest.log = fopen(log, "we");
        if (!qtest.log) {
            return error_set_errno(errp, errno, "cannot write qtest log '%s'", log);
        }
        setvbuf(qtest.log, NULL, _IOLBF, 0);
    }
    qtest.input = g_string_new(NULL);
    qtest.chr = chr;
    if (!chardev_attach(chr, &handlers, NULL, errp)) {
        qtest.chr = NULL;
        qtest_server_stop();
        return FALSE;
    }
    return TRUE;
}

void qtest_server_stop(void)
{
    if (qtest.chr) {
        qtest_command_reset();
        chardev_detach(qtest.chr);
        qtest.chr = NULL;
    }
    if (qtest.input) {
        g_string_free(qtest.input, TRUE);
        qtest.input = NULL;
    }
    g_clear_pointer(&qtest.log, fclose);
}
