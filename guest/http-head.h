/* The head of an HTTP/1.1 response, parsed from bytes alone. */
#ifndef GUEST_HTTP_HEAD_H
#define GUEST_HTTP_HEAD_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_HEAD_MAX 16384 /* bytes */

typedef struct HttpHead {
    unsigned status;
    bool has_length;
    uint64_t length; /* Content-Length */
} HttpHead;

/*
 * Bytes of the head with its blank line, 0 when @data does not hold all of it yet, -1 with error
 * when it is no head this client can use (transfer encodings are not).
 */
ssize_t http_head_parse(const char *data, size_t size, HttpHead *head, GError **errp);

#endif
