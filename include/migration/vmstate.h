/*
 * Migration tables: what of a device's state is in the stream, in which order and form.
 *
 * A VMStateDescription describes a plain structure (the "state"): fixed arrays, no pointers.  A
 * section's root, and any part with a size of its own (a "view"), gets such a structure allocated;
 * fill() takes it from the device before saving.  Loading reads into one that prepare() made, so
 * that a bad stream has touched nothing of the device; check() then compares it with the device,
 * and apply(), which cannot fail, puts it there.  For a root that is at the end of the whole
 * stream, guest memory being in place; for a view or sub-structure inside, when it has been read,
 * and its parent is the state around it.
 *
 * Numbers are big-endian in the stream.  Sub-structures are written without a header; subsections
 * have one, are there only when needed, and may come in any order.
 */
#ifndef MIGRATION_VMSTATE_H
#define MIGRATION_VMSTATE_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct VMStateDescription VMStateDescription;
typedef struct VMStateField VMStateField;
typedef struct VMStateInfo VMStateInfo;
typedef struct VmReader VmReader;
typedef struct VmWriter VmWriter;

/* A kind of scalar. */
struct VMStateInfo {
    const char *type; /* in the description JSON: "uint32", "buffer" */
    size_t size;      /* bytes in the stream; 0: the field's size */
    void (*save)(VmWriter *w, const void *data, const VMStateField *field);
    /* On failure: vm_reader_fail(). */
    void (*load)(VmReader *r, void *data, const VMStateField *field);
};

struct VMStateField {
    const char *name;
    const VMStateInfo *info;        /* NULL: sub-structure @vmsd */
    const VMStateDescription *vmsd; /* at @offset, or a view of its own */
    size_t offset;                  /* in the state */
    size_t size;                    /* of one element there, bytes */
    unsigned capacity;              /* elements of an array; 0: not an array */
    unsigned limit;                 /* variable array: more than this is refused; what is beyond
                                     * capacity is read and left out.  0: capacity */
    size_t count_offset;            /* variable array: the uint32_t count in the state */
    bool variable;
    int version;                       /* of the description: not in older ones; 0: always there */
    bool (*exists)(const void *state); /* NULL: always */
    uint64_t max;                      /* numbers: the largest allowed; 0: any */
};

struct VMStateDescription {
    const char *name;
    int version, minimum_version;
    int save_version;           /* that is written, for older readers; 0: @version */
    const VMStateField *fields; /* ended by name NULL; NULL: none */
    const VMStateDescription *const *subsections; /* ended by NULL; NULL: none */
    size_t state_size;                            /* roots and views */
    bool (*needed)(const void *state);            /* subsection: is it to be saved?  NULL: yes */
    void (*fill)(void *state, void *parent);
    void (*prepare)(void *state, void *parent);                  /* NULL: zeros */
    gboolean (*check)(void *state, void *parent, GError **errp); /* NULL: all is well */
    void (*apply)(void *state, void *parent);
    void (*loaded)(void *state); /* subsection: it was there */
};

extern const VMStateInfo vmstate_info_uint8, vmstate_info_uint16, vmstate_info_uint32,
    vmstate_info_uint64, vmstate_info_int32, vmstate_info_bool, vmstate_info_buffer,
    vmstate_info_unused;
/* The number must be what prepare() put there. */
extern const VMStateInfo vmstate_info_uint16_equal, vmstate_info_uint32_equal,
    vmstate_info_int32_equal;

#define VMS_FIELD_(S, member, i)                                                                   \
    .name = #member, .info = &vmstate_info_##i, .offset = offsetof(S, member),                     \
    .size = sizeof(((S *)0)->member)

/* A number of the member's type; further initialisers (.version, .exists, .max) may follow. */
#define VMS_UINT8(S, member, ...)                                                                  \
    {                                                                                              \
        VMS_FIELD_(S, member, uint8), __VA_ARGS__                                                  \
    }
#define VMS_UINT16(S, member, ...)                                                                 \
    {                                                                                              \
        VMS_FIELD_(S, member, uint16), __VA_ARGS__                                                 \
    }
#define VMS_UINT32(S, member, ...)                                                                 \
    {                                                                                              \
        VMS_FIELD_(S, member, uint32), __VA_ARGS__                                                 \
    }
#define VMS_UINT64(S, member, ...)                                                                 \
    {                                                                                              \
        VMS_FIELD_(S, member, uint64), __VA_ARGS__                                                 \
    }
#define VMS_INT32(S, member, ...)                                                                  \
    {                                                                                              \
        VMS_FIELD_(S, member, int32), __VA_ARGS__                                                  \
    }
#define VMS_BOOL(S, member, ...)                                                                   \
    {                                                                                              \
        VMS_FIELD_(S, member, bool), __VA_ARGS__                                                   \
    }
#define VMS_EQUAL(S, member, kind, ...)                                                            \
    {                                                                                              \
        VMS_FIELD_(S, member, kind##_equal), __VA_ARGS__                                           \
    }
/* Bytes as they are: the whole member. */
#define VMS_BUFFER(S, member, ...)                                                                 \
    {                                                                                              \
        VMS_FIELD_(S, member, buffer), __VA_ARGS__                                                 \
    }
/* Bytes without a meaning. */
#define VMS_UNUSED(bytes)                                                                          \
    {                                                                                              \
        .name = "unused", .info = &vmstate_info_unused, .size = (bytes)                            \
    }
/* A member that is an array of numbers, or of structures. */
#define VMS_ARRAY(S, member, kind, ...)                                                            \
    {                                                                                              \
        .name = #member, .info = &vmstate_info_##kind, .offset = offsetof(S, member),              \
        .size = sizeof(((S *)0)->member[0]),                                                       \
        .capacity = sizeof(((S *)0)->member) / sizeof(((S *)0)->member[0]), __VA_ARGS__            \
    }
#define VMS_STRUCT_ARRAY(S, member, description, ...)                                              \
    {                                                                                              \
        .name = #member, .vmsd = &(description), .offset = offsetof(S, member),                    \
        .size = sizeof(((S *)0)->member[0]),                                                       \
        .capacity = sizeof(((S *)0)->member) / sizeof(((S *)0)->member[0]), __VA_ARGS__            \
    }
/* For the two above, and buffers of bytes: how many is in the uint32_t member @count. */
#define VMS_COUNTED(S, count) .variable = true, .count_offset = offsetof(S, count)
/* A sub-structure over the same state, or over a view of its own if it has a size. */
#define VMS_PART(part, description, ...)                                                           \
    {                                                                                              \
        .name = (part), .vmsd = &(description), __VA_ARGS__                                        \
    }
#define VMS_END                                                                                    \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/*
 * Appends the state of @parent as @root describes it to @out.  @description (NULL: not wanted)
 * gets "vmsd_name", "version", "fields" and "subsections".
 */
void vmstate_save(GByteArray *out, const VMStateDescription *root, void *parent,
                  json_object *description);

/*
 * Reads @version of @root; NULL with error, which names what is wrong and where: the reader's
 * section, then fields.  The result goes to check and apply, or to vmstate_free().
 */
typedef struct VMStateLoaded VMStateLoaded;
VMStateLoaded *vmstate_load(VmReader *r, const VMStateDescription *root, int version, void *parent,
                            GError **errp);
gboolean vmstate_check(VMStateLoaded *loaded, GError **errp);
void vmstate_apply(VMStateLoaded *loaded);
void vmstate_free(VMStateLoaded *loaded);

/* --- for VMStateInfo: bytes of the stream --- */
void vm_write(VmWriter *w, const void *data, size_t size);
void vm_write_uint(VmWriter *w, uint64_t value, unsigned size);
/* Zeros, once something has failed. */
void vm_read(VmReader *r, void *data, size_t size);
uint64_t vm_read_uint(VmReader *r, unsigned size);
void vm_reader_skip(VmReader *r, uint64_t size);
/* The first failure is the one that is reported: "SECTION: FIELD <what>". */
void vm_reader_fail(VmReader *r, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

#endif
