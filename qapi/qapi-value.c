/*
 * Parses, builds and frees values as QapiType tables describe them.
 *
 * Data flows from a json_object into C memory (parse) and back (build).  All checking of what a
 * client or a user sent is here, once: types, ranges, missing members, members nobody asked for.
 * A parse that fails frees what it had made and leaves zeroes.  Depth is bounded by the input's
 * (the JSON reader's limit).
 */
#include "qapi/util.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "util/error.h"
#include "util/json.h"
#include "util/keyval.h"

const QapiType qapi_type_str = {.name = "str", .kind = QAPI_KIND_STR, .size = sizeof(char *)};
const QapiType qapi_type_bool = {.name = "bool", .kind = QAPI_KIND_BOOL, .size = sizeof(bool)};
const QapiType qapi_type_int = {.name = "int", .kind = QAPI_KIND_INT, .size = 8};
const QapiType qapi_type_int8 = {.name = "int8", .kind = QAPI_KIND_INT, .size = 1};
const QapiType qapi_type_int16 = {.name = "int16", .kind = QAPI_KIND_INT, .size = 2};
const QapiType qapi_type_int32 = {.name = "int32", .kind = QAPI_KIND_INT, .size = 4};
const QapiType qapi_type_int64 = {.name = "int64", .kind = QAPI_KIND_INT, .size = 8};
const QapiType qapi_type_uint8 = {.name = "uint8", .kind = QAPI_KIND_UINT, .size = 1};
const QapiType qapi_type_uint16 = {.name = "uint16", .kind = QAPI_KIND_UINT, .size = 2};
const QapiType qapi_type_uint32 = {.name = "uint32", .kind = QAPI_KIND_UINT, .size = 4};
const QapiType qapi_type_uint64 = {.name = "uint64", .kind = QAPI_KIND_UINT, .size = 8};
const QapiType qapi_type_size = {.name = "size", .kind = QAPI_KIND_SIZE, .size = 8};
const QapiType qapi_type_number = {.name = "number", .kind = QAPI_KIND_NUMBER, .size = 8};
const QapiType qapi_type_null = {.name = "null", .kind = QAPI_KIND_NULL, .size = sizeof(bool)};
const QapiType qapi_type_any = {.name = "any", .kind = QAPI_KIND_ANY, .size = sizeof(void *)};

/* One parse: where it is (for error texts) and how values are spelled. */
typedef struct QapiReader {
    QapiInput mode;
    GString *path; /* "a.b[0]" */
    GError **errp;
} QapiReader;

/* A list's node as all lists have it: the value follows the pointer (none is aligned wider). */
typedef struct QapiNode {
    struct QapiNode *next;
    uint64_t value[];
} QapiNode;

static gboolean read_slot(QapiReader *r, const QapiType *type, json_object *in, void *slot);
static gboolean read_members(QapiReader *r, const QapiType *type, json_object *in, void *out);

int qapi_enum_find(const char *const *names, const char *text)
{
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

/* Adds a member's name to the path; returns the length to cut it back to. */
static size_t path_push(QapiReader *r, const char *name)
{
    size_t len = r->path->len;

    g_string_append_printf(r->path, "%s%s", len ? "." : "", name);
    return len;
}

static gboolean wrong_type(QapiReader *r, const char *expected)
{
    return error_set(r->errp, "Invalid parameter type for '%s', expected: %s", r->path->str,
                     expected);
}

/* The text of a string in @in; NULL with error.  C strings end at a NUL, so there may be none. */
static const char *read_text(QapiReader *r, json_object *in)
{
    const char *text;

    if (!json_object_is_type(in, json_type_string)) {
        wrong_type(r, "string");
        return NULL;
    }
    text = json_object_get_string(in);
    if (strlen(text) != (size_t)json_object_get_string_len(in)) {
        error_set(r->errp, "Parameter '%s' must not hold a NUL character", r->path->str);
        return NULL;
    }
    return text;
}

/* True when @in is a string that this parse has to convert. */
static bool is_keyval_text(QapiReader *r, json_object *in)
{
    return r->mode == QAPI_INPUT_KEYVAL && json_object_is_type(in, json_type_string);
}

static gboolean read_bool(QapiReader *r, json_object *in, bool *value)
{
    const char *text;

    if (is_keyval_text(r, in)) {
        text = read_text(r, in);
        return text && parse_bool(r->path->str, text, value, r->errp);
    }
    if (!json_object_is_type(in, json_type_boolean)) {
        return wrong_type(r, "boolean");
    }
    *value = json_object_get_boolean(in);
    return TRUE;
}

static gboolean out_of_range(QapiReader *r, const QapiType *type)
{
    return error_set(r->errp, "Parameter '%s' expects %s", r->path->str, type->name);
}

static void store_int(void *slot, size_t size, uint64_t value)
{
    memcpy(slot, &value, size); /* little-endian, as x86 is: the low bytes come first */
}

static gboolean read_signed(QapiReader *r, const QapiType *type, json_object *in, void *slot)
{
    int64_t max = INT64_MAX >> (64 - 8 * type->size), min = -max - 1, value;
    const char *text;

    if (is_keyval_text(r, in)) {
        text = read_text(r, in);
        if (!text || !parse_int64(r->path->str, text, min, max, &value, r->errp)) {
            return FALSE;
        }
        store_int(slot, type->size, value);
        return TRUE;
    }
    if (!json_object_is_type(in, json_type_int)) {
        return wrong_type(r, "integer");
    }
    value = json_object_get_int64(in);
    if (value < min || value > max || (value >= 0 && json_object_get_uint64(in) > (uint64_t)max)) {
        return out_of_range(r, type);
    }
    store_int(slot, type->size, value);
    return TRUE;
}

static gboolean read_unsigned(QapiReader *r, const QapiType *type, json_object *in, void *slot)
{
    uint64_t max = UINT64_MAX >> (64 - 8 * type->size), value;
    const char *text;

    if (is_keyval_text(r, in)) {
        text = read_text(r, in);
        if (!text || !(type->kind == QAPI_KIND_SIZE
                           ? parse_size(r->path->str, text, &value, r->errp)
                           : parse_uint64(r->path->str, text, max, &value, r->errp))) {
            return FALSE;
        }
        store_int(slot, type->size, value);
        return TRUE;
    }
    if (!json_object_is_type(in, json_type_int)) {
        return wrong_type(r, "integer");
    }
    value = json_object_get_uint64(in);
    if (json_object_get_int64(in) < 0 || value > max) {
        return out_of_range(r, type);
    }
    store_int(slot, type->size, value);
    return TRUE;
}

static gboolean read_number(QapiReader *r, json_object *in, double *value)
{
    const char *text;
    char *end;

    if (is_keyval_text(r, in)) {
        text = read_text(r, in);
        if (!text) {
            return FALSE;
        }
        *value = g_ascii_strtod(text, &end);
        if (end == text || *end || !isfinite(*value)) {
            return error_set(r->errp,
                             "Parameter '%s' does not accept value '%s', allowed: a number",
                             r->path->str, text);
        }
        return TRUE;
    }
    if (!json_object_is_type(in, json_type_double) && !json_object_is_type(in, json_type_int)) {
        return wrong_type(r, "number");
    }
    *value = json_object_get_double(in);
    return TRUE;
}

static gboolean read_enum(QapiReader *r, const QapiType *type, json_object *in, int *value)
{
    const char *text = read_text(r, in);
    char *allowed;

    if (!text) {
        return FALSE;
    }
    *value = qapi_enum_find(type->names, text);
    if (*value >= 0) {
        return TRUE;
    }
    *value = 0;
    allowed = g_strjoinv(", ", (char **)type->names);
    error_set(r->errp, "Parameter '%s' does not accept value '%s', allowed: %s", r->path->str, text,
              allowed);
    g_free(allowed);
    return FALSE;
}

static gboolean read_str(QapiReader *r, json_object *in, char **value)
{
    *value = g_strdup(read_text(r, in));
    return *value != NULL;
}

/* How a list's and a slot's value differ: what a list holds is a slot after the next pointer. */
static gboolean read_list(QapiReader *r, const QapiType *type, json_object *in, void *slot)
{
    QapiNode **tail = slot;
    size_t len = r->path->len;
    gboolean ok;

    if (!json_object_is_type(in, json_type_array)) {
        return wrong_type(r, "array");
    }
    for (size_t i = 0; i < json_object_array_length(in); i++) {
        *tail = g_malloc0(sizeof(QapiNode) + sizeof(uint64_t));
        g_string_append_printf(r->path, r->mode == QAPI_INPUT_JSON ? "[%zu]" : ".%zu", i);
        ok = read_slot(r, type->element, json_object_array_get_idx(in, i), (*tail)->value);
        g_string_truncate(r->path, len);
        if (!ok) {
            return FALSE;
        }
        tail = &(*tail)->next;
    }
    return TRUE;
}

static const QapiMember *find_member(const QapiType *type, const char *name)
{
    for (unsigned i = 0; type && i < type->member_count; i++) {
        if (strcmp(type->members[i].name, name) == 0) {
            return &type->members[i];
        }
    }
    return NULL;
}

/* The branch that the discriminator chose; NULL: it has no members. */
static const QapiType *union_branch(const QapiType *type, const void *value)
{
    int tag;

    if (type->kind != QAPI_KIND_UNION) {
        return NULL;
    }
    memcpy(&tag, (const char *)value + type->members[type->tag].offset, sizeof(tag));
    return type->branches[tag];
}

/* Refuses members that neither @type nor the chosen branch knows. */
static gboolean check_unexpected(QapiReader *r, const QapiType *type, const QapiType *branch,
                                 json_object *in)
{
    json_object_object_foreach(in, key, value)
    {
        (void)value;
        if (!find_member(type, key) && !find_member(branch, key)) {
            path_push(r, key);
            return error_set(r->errp, "Parameter '%s' is unexpected", r->path->str);
        }
    }
    return TRUE;
}

static gboolean read_members(QapiReader *r, const QapiType *type, json_object *in, void *out)
{
    for (unsigned i = 0; i < type->member_count; i++) {
        const QapiMember *m = &type->members[i];
        size_t len = path_push(r, m->name);
        json_object *value = NULL;

        if (!json_object_object_get_ex(in, m->name, &value)) {
            if (!m->optional) {
                return error_set(r->errp, "Parameter '%s' is missing", r->path->str);
            }
        } else {
            if (!read_slot(r, m->type, value, (char *)out + m->offset)) {
                return FALSE;
            }
            if (m->has_offset >= 0) {
                *(bool *)((char *)out + m->has_offset) = true;
            }
        }
        g_string_truncate(r->path, len);
    }
    return TRUE;
}

/* Structures and unions: members, then the branch's, then a look at what else there is. */
static gboolean read_struct(QapiReader *r, const QapiType *type, json_object *in, void *out)
{
    const QapiType *branch;

    if (!json_object_is_type(in, json_type_object)) {
        return wrong_type(r, "object");
    }
    if (!read_members(r, type, in, out)) {
        return FALSE;
    }
    branch = union_branch(type, out);
    if (branch && !read_members(r, branch, in, (char *)out + type->union_offset)) {
        return FALSE;
    }
    return check_unexpected(r, type, branch, in);
}

/* Does JSON of @in's type belong to an alternate's branch of type @branch? */
static bool alternate_takes(QapiReader *r, const QapiType *branch, json_object *in)
{
    enum json_type type = json_object_get_type(in);
    bool text = is_keyval_text(r, in);

    switch (branch->kind) {
    case QAPI_KIND_STR:
    case QAPI_KIND_ENUM:
        return type == json_type_string;
    case QAPI_KIND_BOOL:
        return type == json_type_boolean;
    case QAPI_KIND_NUMBER:
        return type == json_type_double || type == json_type_int || text;
    case QAPI_KIND_INT:
    case QAPI_KIND_UINT:
    case QAPI_KIND_SIZE:
        return type == json_type_int || text;
    case QAPI_KIND_NULL:
        return type == json_type_null;
    case QAPI_KIND_LIST:
        return type == json_type_array;
    case QAPI_KIND_ANY:
        return true;
    default:
        return type == json_type_object;
    }
}

static bool is_by_value(const QapiType *type)
{
    return type->kind == QAPI_KIND_STRUCT || type->kind == QAPI_KIND_UNION;
}

static gboolean read_alternate(QapiReader *r, const QapiType *type, json_object *in, void *out)
{
    GString *expected;

    for (unsigned i = 0; i < type->member_count; i++) {
        const QapiMember *m = &type->members[i];
        void *u = (char *)out + type->union_offset;

        if (!alternate_takes(r, m->type, in)) {
            continue;
        }
        *(int *)out = i;
        return is_by_value(m->type) ? read_struct(r, m->type, in, u) : read_slot(r, m->type, in, u);
    }
    expected = g_string_new(NULL);
    for (unsigned i = 0; i < type->member_count; i++) {
        g_string_append_printf(expected, "%s%s", i ? " or " : "", type->members[i].name);
    }
    wrong_type(r, expected->str);
    g_string_free(expected, TRUE);
    return FALSE;
}

/* A structure, union or alternate into memory of its own, held by the pointer at @slot. */
static gboolean read_pointer(QapiReader *r, const QapiType *type, json_object *in, void **slot)
{
    *slot = g_malloc0(type->size);
    if (type->kind == QAPI_KIND_ALTERNATE) {
        return read_alternate(r, type, in, *slot);
    }
    return read_struct(r, type, in, *slot);
}

static gboolean read_slot(QapiReader *r, const QapiType *type, json_object *in, void *slot)
{
    switch (type->kind) {
    case QAPI_KIND_STR:
        return read_str(r, in, slot);
    case QAPI_KIND_BOOL:
        return read_bool(r, in, slot);
    case QAPI_KIND_INT:
        return read_signed(r, type, in, slot);
    case QAPI_KIND_UINT:
    case QAPI_KIND_SIZE:
        return read_unsigned(r, type, in, slot);
    case QAPI_KIND_NUMBER:
        return read_number(r, in, slot);
    case QAPI_KIND_NULL:
        *(bool *)slot = true;
        return in ? wrong_type(r, "null") : TRUE;
    case QAPI_KIND_ANY:
        *(json_object **)slot = json_object_get(in);
        return TRUE;
    case QAPI_KIND_ENUM:
        return read_enum(r, type, in, slot);
    case QAPI_KIND_LIST:
        return read_list(r, type, in, slot);
    default:
        return read_pointer(r, type, in, slot);
    }
}

void *qapi_value_parse(const QapiType *type, const char *name, json_object *in, QapiInput mode,
                       GError **errp)
{
    QapiReader r = {.mode = mode, .path = g_string_new(name), .errp = errp};
    void *value = NULL;

    if (!read_slot(&r, type, in, &value)) {
        qapi_value_free(type, value);
        value = NULL;
    }
    g_string_free(r.path, TRUE);
    return value;
}

gboolean qapi_struct_parse(const QapiType *type, json_object *in, QapiInput mode, void *out,
                           GError **errp)
{
    QapiReader r = {.mode = mode, .path = g_string_new(NULL), .errp = errp};
    gboolean ok = read_struct(&r, type, in, out);

    if (!ok) {
        qapi_struct_clear(type, out);
    }
    g_string_free(r.path, TRUE);
    return ok;
}

/* ---- Build ---- */

static void build_members(const QapiType *type, const void *value, json_object *out)
{
    for (unsigned i = 0; i < type->member_count; i++) {
        const QapiMember *m = &type->members[i];
        const void *slot = (const char *)value + m->offset;

        if (m->optional && (m->has_offset >= 0 ? !*(bool *)((const char *)value + m->has_offset)
                                               : !*(void *const *)slot)) {
            continue;
        }
        json_object_object_add_ex(out, m->name, qapi_slot_build(m->type, slot),
                                  JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_ADD_CONSTANT_KEY);
    }
}

static json_object *build_struct(const QapiType *type, const void *value)
{
    json_object *out = json_object_new_object();
    const QapiType *branch;

    build_members(type, value, out);
    branch = union_branch(type, value);
    if (branch) {
        build_members(branch, (const char *)value + type->union_offset, out);
    }
    return out;
}

static json_object *build_list(const QapiType *type, const QapiNode *node)
{
    json_object *out = json_object_new_array();

    for (; node; node = node->next) {
        json_object_array_add(out, qapi_slot_build(type->element, node->value));
    }
    return out;
}

static json_object *build_alternate(const QapiType *type, const void *value)
{
    const QapiType *branch = type->members[*(const int *)value].type;
    const void *u = (const char *)value + type->union_offset;

    return is_by_value(branch) ? build_struct(branch, u) : qapi_slot_build(branch, u);
}

json_object *qapi_value_build(const QapiType *type, const void *value)
{
    return qapi_slot_build(type, &value);
}

static json_object *build_int(const QapiType *type, const void *slot)
{
    unsigned shift = 64 - 8 * type->size;
    uint64_t value = 0;

    memcpy(&value, slot, type->size);
    if (type->kind == QAPI_KIND_INT) {
        return json_object_new_int64((int64_t)(value << shift) >> shift);
    }
    return value <= INT64_MAX ? json_object_new_int64(value) : json_object_new_uint64(value);
}

json_object *qapi_slot_build(const QapiType *type, const void *slot)
{
    void *pointer;

    switch (type->kind) {
    case QAPI_KIND_BOOL:
        return json_object_new_boolean(*(const bool *)slot);
    case QAPI_KIND_INT:
    case QAPI_KIND_UINT:
    case QAPI_KIND_SIZE:
        return build_int(type, slot);
    case QAPI_KIND_NUMBER:
        return json_object_new_double(*(const double *)slot);
    case QAPI_KIND_NULL:
        return NULL;
    case QAPI_KIND_ENUM:
        return json_object_new_string(type->names[*(const int *)slot]);
    default:
        break;
    }
    memcpy(&pointer, slot, sizeof(pointer));
    switch (type->kind) {
    case QAPI_KIND_STR:
        return json_object_new_string(pointer ? pointer : "");
    case QAPI_KIND_ANY:
        return json_object_get(pointer);
    case QAPI_KIND_LIST:
        return build_list(type, pointer);
    case QAPI_KIND_ALTERNATE:
        return pointer ? build_alternate(type, pointer) : NULL;
    default:
        return pointer ? build_struct(type, pointer) : json_object_new_object();
    }
}

/* ---- Free ---- */

static void clear_members(const QapiType *type, void *value)
{
    for (unsigned i = 0; i < type->member_count; i++) {
        qapi_slot_clear(type->members[i].type, (char *)value + type->members[i].offset);
    }
}

void qapi_struct_clear(const QapiType *type, void *value)
{
    void *u = (char *)value + type->union_offset;
    const QapiType *branch;

    if (type->kind == QAPI_KIND_ALTERNATE) {
        branch = type->members[*(int *)value].type;
        if (is_by_value(branch)) {
            qapi_struct_clear(branch, u);
        } else {
            qapi_slot_clear(branch, u);
        }
    } else {
        branch = union_branch(type, value);
        if (branch) {
            clear_members(branch, u);
        }
        clear_members(type, value);
    }
    memset(value, 0, type->size);
}

void qapi_slot_clear(const QapiType *type, void *slot)
{
    switch (type->kind) {
    case QAPI_KIND_STR:
    case QAPI_KIND_ANY:
    case QAPI_KIND_LIST:
    case QAPI_KIND_STRUCT:
    case QAPI_KIND_UNION:
    case QAPI_KIND_ALTERNATE:
        qapi_value_free(type, *(void **)slot);
        *(void **)slot = NULL;
        break;
    default:
        memset(slot, 0, type->size);
        break;
    }
}

void qapi_value_free(const QapiType *type, void *value)
{
    if (!value) {
        return;
    }
    switch (type->kind) {
    case QAPI_KIND_ANY:
        json_object_put(value);
        break;
    case QAPI_KIND_LIST:
        for (QapiNode *node = value, *next; node; node = next) {
            next = node->next;
            qapi_slot_clear(type->element, node->value);
            g_free(node);
        }
        break;
    case QAPI_KIND_STR:
        g_free(value);
        break;
    default:
        qapi_struct_clear(type, value);
        g_free(value);
        break;
    }
}

void qapi_free_strList(strList *list)
{
    static const QapiType type = {.kind = QAPI_KIND_LIST, .element = &qapi_type_str};

    qapi_value_free(&type, list);
}
