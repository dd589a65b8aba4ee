/*
 * HTTP response heads: see http-head.h.  Syntax: RFC 9112, sections 4 and 5.
 */
#include "guest/http-head.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <string.h>

static ssize_t refuse(GError **errp, const char *what, const char *line)
{
    g_autofree char *shown = g_strescape(line, NULL);
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "HTTP: %s: '%.80s'", what, shown);
    return -1;
}

/* "HTTP/1.x NNN reason" */
static bool parse_status(const char *line, HttpHead *head)
{
    if (!g_str_has_prefix(line, "HTTP/1.") || !g_ascii_isdigit(line[7]) || line[8] != ' ') {
        return false;
    }
    const char *code = line + 9;
    for (unsigned i = 0; i < 3; i++) {
        if (!g_ascii_isdigit(code[i])) {
            return false;
        }
        head->status = head->status * 10 + (unsigned)(code[i] - '0');
    }
    return code[3] == '\0' || code[3] == ' ';
}

/* "Name: value" */
static bool parse_field(char *line, HttpHead *head, GError **errp)
{
    char *colon = strchr(line, ':');
    if (!colon || colon == line) {
        refuse(errp, "a field without a name", line);
        return false;
    }
    *colon = '\0';
    char *value = g_strstrip(colon + 1);
    if (g_ascii_strcasecmp(line, "Transfer-Encoding") == 0) {
        refuse(errp, "this client takes no transfer encoding", value);
        return false;
    }
    if (g_ascii_strcasecmp(line, "Content-Length") == 0) {
        guint64 length;
        if (!g_ascii_string_to_unsigned(value, 10, 0, G_MAXUINT64, &length, NULL) ||
            (head->has_length && head->length != length)) {
            refuse(errp, "bad Content-Length", value);
            return false;
        }
        head->has_length = true;
        head->length = length;
    }
    return true;
}

ssize_t http_head_parse(const char *data, size_t size, HttpHead *head, GError **errp)
{
    const char *end = memmem(data, MIN(size, HTTP_HEAD_MAX), "\r\n\r\n", 4);
    if (!end) {
        return size < HTTP_HEAD_MAX ? 0 : refuse(errp, "the response has no end of head", "");
    }
    if (memchr(data, '\0', (size_t)(end - data))) {
        return refuse(errp, "a NUL in the head", "");
    }
    *head = (HttpHead){0};
    g_autofree char *text = g_strndup(data, (size_t)(end - data));
    g_auto(GStrv) lines = g_strsplit(text, "\r\n", -1);
    if (!lines[0] || !parse_status(lines[0], head)) {
        return refuse(errp, "no HTTP/1.x status line", lines[0] ? lines[0] : "");
    }
    for (char **line = lines + 1; *line; line++) {
        if (!parse_field(*line, head, errp)) {
            return -1;
        }
    }
    return end - data + 4;
}
