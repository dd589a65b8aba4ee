/* Back ends without an outside: null discards, ringbuf (alias memory) keeps the last bytes. */
#include <string.h>

#include "chardev-priv.h"
#include "util/error.h"
#include "util/json.h"
#include "util/keyval.h"

#define RINGBUF_DEFAULT (64 * 1024)
#define RINGBUF_MAX     (UINT64_C(1) << 30)

typedef struct RingbufChardev {
    Chardev parent;
    uint8_t *data;
    size_t size;            /* a power of two */
    size_t produced, taken; /* bytes since the start; their difference is at most @size */
} RingbufChardev;

static gboolean null_open(Chardev *chr, json_object *options, GError **errp)
{
    chr->is_open = true;
    return TRUE;
}

static void null_write(Chardev *chr, const char *data, size_t size) {}

static gboolean ringbuf_open(Chardev *chr, json_object *options, GError **errp)
{
    RingbufChardev *s = (RingbufChardev *)chr;
    const char *text = chardev_opt_string(options, "size");
    uint64_t size = RINGBUF_DEFAULT;

    if (text && !parse_size("size", text, &size, errp)) {
        return FALSE;
    }
    if (!size || size > RINGBUF_MAX || (size & (size - 1))) {
        return error_set(errp, "size of ringbuf chardev must be a power of two up to 1G, not '%s'",
                         text);
    }
    s->data = g_malloc(size);
    s->size = size;
    chr->is_open = true;
    return TRUE;
}

static void ringbuf_close(Chardev *chr)
{
    g_free(((RingbufChardev *)chr)->data);
}

static void ringbuf_write(Chardev *chr, const char *data, size_t size)
{
    RingbufChardev *s = (RingbufChardev *)chr;

    for (size_t i = 0; i < size; i++) {
        s->data[s->produced++ & (s->size - 1)] = data[i];
    }
    if (s->produced - s->taken > s->size) {
        s->taken = s->produced - s->size; /* the oldest are lost */
    }
}

static gboolean check_is_ringbuf(Chardev *chr, GError **errp)
{
    if (chr->backend->write != ringbuf_write) {
        return error_set(errp, "chardev '%s' is not a ringbuf device", chr->id);
    }
    return TRUE;
}

gboolean chardev_ringbuf_write(Chardev *chr, const void *data, size_t size, GError **errp)
{
    if (!check_is_ringbuf(chr, errp)) {
        return FALSE;
    }
    ringbuf_write(chr, data, size);
    return TRUE;
}

GByteArray *chardev_ringbuf_read(Chardev *chr, size_t max, GError **errp)
{
    RingbufChardev *s = (RingbufChardev *)chr;

    if (!check_is_ringbuf(chr, errp)) {
        return NULL;
    }
    GByteArray *out = g_byte_array_new();
    while (out->len < max && s->taken < s->produced) {
        g_byte_array_append(out, &s->data[s->taken++ & (s->size - 1)], 1);
    }
    return out;
}

static const char *const null_keys[] = {NULL};
static const char *const ringbuf_keys[] = {"size", NULL};

const ChardevBackend chardev_null = {
    .type = "null",
    .help = "takes everything, sends nothing",
    .keys = null_keys,
    .instance_size = sizeof(Chardev),
    .open = null_open,
    .write = null_write,
};

const ChardevBackend chardev_ringbuf = {
    .type = "ringbuf",
    .help = "size=SIZE: keeps the last bytes written",
    .keys = ringbuf_keys,
    .instance_size = sizeof(RingbufChardev),
    .open = ringbuf_open,
    .close = ringbuf_close,
    .write = ringbuf_write,
};

const ChardevBackend chardev_memory = {
    .type = "memory",
    .help = "another name of ringbuf",
    .keys = ringbuf_keys,
    .instance_size = sizeof(RingbufChardev),
    .open = ringbuf_open,
    .close = ringbuf_close,
    .write = ringbuf_write,
};
