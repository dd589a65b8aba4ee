/*
 * Between the JSON reader's files only.
 */
#ifndef UTIL_JSON_PRIV_H
#define UTIL_JSON_PRIV_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

/* Valid UTF-8 without noncharacters? */
bool json_utf8_is_valid(const char *text, size_t len);
/* @raw with its escapes replaced, a new string; NULL: an escape that JSON does not know.  Every
 * backslash in @raw has a byte behind it. */
GString *json_decode_string(const GString *raw);

#endif
