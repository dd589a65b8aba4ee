/*
 * What code generated from the schema stands on: type descriptions, and three functions that
 * parse, build and free any described value.  Each generated type has a QapiType table; the
 * generated qapi_parse_Foo() and friends are typed fronts of these functions.
 *
 * How a member is stored ("slot"): scalars and enumerations by value; strings, structures, unions,
 * alternates, lists and `any` as pointers, NULL when absent.  Main thread or any other: no state.
 */
#ifndef QAPI_UTIL_H
#define QAPI_UTIL_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where values come from: JSON has types; the command line has strings, which are converted. */
typedef enum QapiInput { QAPI_INPUT_JSON, QAPI_INPUT_KEYVAL } QapiInput;

typedef enum QapiKind {
    QAPI_KIND_STR,
    QAPI_KIND_BOOL,
    QAPI_KIND_INT,  /* signed, of @size bytes */
    QAPI_KIND_UINT, /* unsigned, of @size bytes */
    QAPI_KIND_SIZE, /* uint64_t that the command line may spell 4k */
    QAPI_KIND_NUMBER,
    QAPI_KIND_NULL,
    QAPI_KIND_ANY,
    QAPI_KIND_ENUM,
    QAPI_KIND_STRUCT,
    QAPI_KIND_UNION,
    QAPI_KIND_ALTERNATE,
    QAPI_KIND_LIST,
} QapiKind;

typedef struct QapiType QapiType;

typedef struct QapiMember {
    const char *name; /* as in JSON */
    const QapiType *type;
    size_t offset;  /* of the slot */
    int has_offset; /* of the bool that says whether it is there; -1: none */
    bool optional;
} QapiMember;

struct QapiType {
    const char *name;
    QapiKind kind;
    size_t size;               /* bytes of a value (structures: of the structure) */
    const QapiMember *members; /* structures; a union's base; alternate: one a branch */
    unsigned member_count;
    const char *const *names;        /* enumerations: NULL-ended */
    const QapiType *element;         /* lists */
    unsigned tag;                    /* unions: which member is the discriminator */
    size_t union_offset;             /* unions and alternates: of `u` */
    const QapiType *const *branches; /* unions: by discriminator value; NULL: no members */
};

/* Built-in types and lists of them. */
extern const QapiType qapi_type_str, qapi_type_bool, qapi_type_int, qapi_type_int8, qapi_type_int16,
    qapi_type_int32, qapi_type_int64, qapi_type_uint8, qapi_type_uint16, qapi_type_uint32,
    qapi_type_uint64, qapi_type_size, qapi_type_number, qapi_type_null, qapi_type_any;

/* A structure, union, alternate or list from @in (borrowed).  @name: what errors call @in itself;
 * NULL: its members are named without a prefix.  NULL with error; NULL without is an empty list. */
void *qapi_value_parse(const QapiType *type, const char *name, json_object *in, QapiInput mode,
                       GError **errp);
/* The same into zeroed memory of type->size bytes.  On failure it is zeroed again. */
gboolean qapi_struct_parse(const QapiType *type, json_object *in, QapiInput mode, void *out,
                           GError **errp);
/* JSON of a structure, union, alternate (@value points at it) or list (its first node). */
json_object *qapi_value_build(const QapiType *type, const void *value);
/* JSON of the slot at @slot, whatever its type. */
json_object *qapi_slot_build(const QapiType *type, const void *slot);
void qapi_value_free(const QapiType *type, void *value);
/* Frees what a structure or slot holds, not the memory itself, and zeroes it. */
void qapi_struct_clear(const QapiType *type, void *value);
void qapi_slot_clear(const QapiType *type, void *slot);

/* Index of @text in @names (NULL-ended); -1 if it is not there. */
int qapi_enum_find(const char *const *names, const char *text);

/* Lists.  `FooList *list = NULL, **tail = &list; QAPI_LIST_APPEND(tail, foo);` */
#define QAPI_LIST_PREPEND(list, element)                                                           \
    do {                                                                                           \
        typeof(list) node_ = g_malloc0(sizeof(*(list)));                                           \
        node_->value = (element);                                                                  \
        node_->next = (list);                                                                      \
        (list) = node_;                                                                            \
    } while (0)
#define QAPI_LIST_APPEND(tail, element)                                                            \
    do {                                                                                           \
        *(tail) = g_malloc0(sizeof(**(tail)));                                                     \
        (*(tail))->value = (element);                                                              \
        (tail) = &(*(tail))->next;                                                                 \
    } while (0)

/* Types of our own table that lists use: one pointer, then the value. */
typedef struct strList strList;
struct strList {
    strList *next;
    char *value;
};
typedef struct anyList anyList;
struct anyList {
    anyList *next;
    json_object *value;
};
#define QAPI_SCALAR_LIST(name, ctype)                                                              \
    typedef struct name##List name##List;                                                          \
    struct name##List {                                                                            \
        name##List *next;                                                                          \
        ctype value;                                                                               \
    };
QAPI_SCALAR_LIST(bool, bool)
QAPI_SCALAR_LIST(int, int64_t)
QAPI_SCALAR_LIST(int8, int8_t)
QAPI_SCALAR_LIST(int16, int16_t)
QAPI_SCALAR_LIST(int32, int32_t)
QAPI_SCALAR_LIST(int64, int64_t)
QAPI_SCALAR_LIST(uint8, uint8_t)
QAPI_SCALAR_LIST(uint16, uint16_t)
QAPI_SCALAR_LIST(uint32, uint32_t)
QAPI_SCALAR_LIST(uint64, uint64_t)
QAPI_SCALAR_LIST(size, uint64_t)
QAPI_SCALAR_LIST(number, double)
QAPI_SCALAR_LIST(null, bool)
void qapi_free_strList(strList *list);

#endif
