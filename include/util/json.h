/*
 * JSON as QMP needs it, around json-c's values.  JsonFramer reads a byte stream, cut anywhere, into
 * values: '…' and "…" strings, limits on size, depth and tokens, one error a broken value, and it
 * refuses what QEMU refuses.  json-c's own tokener would not (facts in util/json.c).
 *
 * A framer and a value belong to one thread at a time; there is no other state.
 */
#ifndef UTIL_JSON_H
#define UTIL_JSON_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct JsonFramer JsonFramer;
/* Called for each value (@value borrowed, NULL for null; @err NULL) or broken one (@err borrowed).
 * It may free the framer. */
typedef void JsonValueFunc(void *opaque, json_object *value, const GError *err);
JsonFramer *json_framer_new(JsonValueFunc *fn, void *opaque);
void json_framer_feed(JsonFramer *framer, const char *data, size_t size);
void json_framer_flush(JsonFramer *framer); /* end of input: an open value is an error */
void json_framer_free(JsonFramer *framer);

/* One value from @text; NULL with error. */
json_object *json_parse(const char *text, GError **errp);
/* As one line, without "\/"; g_free it. */
char *json_to_string(json_object *value);
char *json_to_pretty(json_object *value);

/* Object member helpers; the add functions take the reference of @value. */
json_object *json_member(json_object *object, const char *key); /* borrowed; NULL if absent */
const char *json_member_string(json_object *object, const char *key);
void json_put_string(json_object *object, const char *key, const char *value);
void json_put_int(json_object *object, const char *key, int64_t value);
void json_put_bool(json_object *object, const char *key, bool value);
/* "null", "bool", "number", "integer", "string", "array", "object" as error texts name them. */
const char *json_type_name_qapi(json_object *value);
/* A new reference, which shares nothing with @value. */
json_object *json_deep_copy(json_object *value);

#endif
