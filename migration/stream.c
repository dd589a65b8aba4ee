/*
 * The reading and the writing end of a stream.  Knows no format beyond big-endian numbers and
 * names behind their length.
 */
#include "stream.h"

#include <string.h>

#include "util/error.h"

#define BUFFER_SIZE (64u * 1024)

/* --- writing --- */

void vm_write(VmWriter *w, const void *data, size_t size)
{
    g_byte_array_append(w->out, data, (guint)size);
}

void vm_write_uint(VmWriter *w, uint64_t value, unsigned size)
{
    uint8_t bytes[8];

    for (unsigned i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
    }
    g_byte_array_append(w->out, bytes, size);
}

/* --- reading --- */

VmReader *vm_reader_new(VmSource *source, void *opaque)
{
    VmReader *r = g_new0(VmReader, 1);

    r->source = source;
    r->opaque = opaque;
    r->buffer = g_malloc(BUFFER_SIZE);
    r->path = g_string_new(NULL);
    return r;
}

typedef struct Bytes {
    const uint8_t *data;
    size_t left;
} Bytes;

static gssize bytes_source(void *opaque, void *data, size_t size, GError **errp)
{
    Bytes *bytes = opaque;
    size_t n = MIN(size, bytes->left);

    if (n) {
        memcpy(data, bytes->data, n);
    }
    bytes->data += n;
    bytes->left -= n;
    return (gssize)n;
}

VmReader *vm_reader_new_bytes(const void *data, size_t size)
{
    Bytes *bytes = g_new(Bytes, 1);

    *bytes = (Bytes){data, size};
    return vm_reader_new(bytes_source, bytes);
}

void vm_reader_free(VmReader *r)
{
    if (!r) {
        return;
    }
    if (r->source == bytes_source) {
        g_free(r->opaque);
    }
    g_clear_error(&r->error);
    g_free(r->buffer);
    g_string_free(r->path, TRUE);
    g_free(r);
}

void vm_reader_fail(VmReader *r, const char *fmt, ...)
{
    g_autofree char *what = NULL;
    va_list args;

    if (r->error) {
        return;
    }
    va_start(args, fmt);
    what = g_strdup_vprintf(fmt, args);
    va_end(args);
    error_set(&r->error, "%s%s%s%s%s", r->section ? r->section : "", r->section ? ": " : "",
              r->path->str, r->path->len ? " " : "", what);
}

/* Reads more behind what is buffered.  False: nothing came. */
static bool refill(VmReader *r)
{
    gssize n;
    GError *err = NULL;

    if (r->ended || r->error) {
        return false;
    }
    if (r->start) {
        memmove(r->buffer, r->buffer + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    n = r->source(r->opaque, r->buffer + r->end, BUFFER_SIZE - r->end, &err);
    if (n > 0) {
        r->end += (size_t)n;
        return true;
    }
    r->ended = true;
    if (n < 0) {
        vm_reader_fail(r, "cannot be read: %s", err ? err->message : "unknown error");
        g_clear_error(&err);
    }
    return false;
}

const uint8_t *vm_reader_peek(VmReader *r, size_t size)
{
    while (r->end - r->start < size) {
        if (!refill(r)) {
            return NULL;
        }
    }
    return r->buffer + r->start;
}

void vm_read(VmReader *r, void *data, size_t size)
{
    uint8_t *p = data;

    while (size && !r->error) {
        size_t n = MIN(size, r->end - r->start);

        if (n) {
            memcpy(p, r->buffer + r->start, n);
            r->start += n;
            r->position += n;
            p += n;
            size -= n;
        } else if (!refill(r)) {
            vm_reader_fail(r, "is cut off: the stream ends at byte %" G_GUINT64_FORMAT,
                           r->position);
        }
    }
    if (size) {
        memset(p, 0, size);
    }
}

void vm_reader_skip(VmReader *r, uint64_t size)
{
    uint8_t bytes[512];

    while (size && !r->error) {
        size_t n = MIN(size, sizeof(bytes));

        vm_read(r, bytes, n);
        size -= n;
    }
}

uint64_t vm_read_uint(VmReader *r, unsigned size)
{
    uint8_t bytes[8];
    uint64_t value = 0;

    vm_read(r, bytes, size);
    for (unsigned i = 0; i < size; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

void vm_read_name(VmReader *r, char text[256])
{
    unsigned len = (unsigned)vm_read_uint(r, 1);

    vm_read(r, text, len);
    text[r->error ? 0 : len] = '\0';
}

gboolean vm_reader_result(VmReader *r, GError **errp)
{
    if (!r->error) {
        return TRUE;
    }
    g_propagate_error(errp, g_error_copy(r->error));
    return FALSE;
}
