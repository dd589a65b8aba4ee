/* An HTTP/1.1 GET over the guest's stack, with the body hashed on the way. */
#ifndef GUEST_HTTP_H
#define GUEST_HTTP_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct HttpResult {
    uint64_t size;  /* bytes of body */
    double seconds; /* from the request to the last byte */
    char *sha256;   /* hexadecimal; g_free it */
} HttpResult;

/* Called as the body arrives, often; @total is 0 when the server did not say. */
typedef void HttpProgressFunc(void *opaque, uint64_t received, uint64_t total);

/* @address in host byte order.  False with error, also for a status other than 200 and for a body
 * shorter than announced. */
bool http_get(uint32_t address, uint16_t port, const char *path, HttpProgressFunc *progress,
              void *opaque, HttpResult *result, GError **errp);

#endif
