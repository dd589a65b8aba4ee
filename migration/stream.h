/*
 * The two ends of a stream, and the bytes that give it its form.
 *
 * A VmReader pulls bytes from a source function, with a look ahead; its first failure is kept, and
 * from then on it gives zeros, so that code which reads need not ask after each byte.  A VmWriter
 * appends to a byte array.
 */
#ifndef MIGRATION_STREAM_H
#define MIGRATION_STREAM_H

#include "migration/vmstate.h"

#define VM_FILE_MAGIC   0x5145564du
#define VM_FILE_VERSION 3u

enum {
    VM_EOF = 0x00,
    VM_SECTION_START = 0x01,
    VM_SECTION_PART = 0x02,
    VM_SECTION_END = 0x03,
    VM_SECTION_FULL = 0x04,
    VM_SUBSECTION = 0x05,
    VM_DESCRIPTION = 0x06,
    VM_CONFIGURATION = 0x07,
    VM_COMMAND = 0x08,
    VM_SECTION_FOOTER = 0x7e,
};

/* Up to @size bytes; 0: the end; -1 with error. */
typedef gssize VmSource(void *opaque, void *data, size_t size, GError **errp);

struct VmReader {
    VmSource *source;
    void *opaque;
    uint8_t *buffer;
    size_t start, end; /* bytes in @buffer */
    uint64_t position; /* in the stream, of the next byte */
    bool ended;
    GError *error;
    const char *section; /* for messages; may be NULL */
    GString *path;       /* of the field being read */
};

struct VmWriter {
    GByteArray *out;
    json_object *fields; /* where fields are described; NULL: not wanted */
};

VmReader *vm_reader_new(VmSource *source, void *opaque);
VmReader *vm_reader_new_bytes(const void *data, size_t size); /* not copied */
void vm_reader_free(VmReader *r);
static inline bool vm_reader_failed(const VmReader *r)
{
    return r->error != NULL;
}
/* The next @size bytes (at most VM_LOOKAHEAD) without taking them; NULL: so many do not come. */
#define VM_LOOKAHEAD 320u
const uint8_t *vm_reader_peek(VmReader *r, size_t size);
/* Moves the error into *errp; returns FALSE if there was one. */
gboolean vm_reader_result(VmReader *r, GError **errp);
/* u8 length and that many bytes; @text has room for 256. */
void vm_read_name(VmReader *r, char text[256]);

#endif
