/*
 * JSON out, in QEMU's spelling ("a": 1, ASCII only), and helpers for json-c values.
 *
 * json-c's own printer puts blanks inside braces and passes invalid UTF-8 on; what goes to a QMP
 * client must be valid whatever bytes a file name or an id had.  Invalid bytes become U+FFFD.
 */
#include "util/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void format_char(GString *out, gunichar c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;

    if (known) {
        g_string_append_c(out, '\\');
        g_string_append_c(out, to[known - from]);
    } else if (c > 0xFFFF) {
        g_string_append_printf(out, "\\u%04X\\u%04X", 0xD800 + ((c - 0x10000) >> 10),
                               0xDC00 + ((c - 0x10000) & 0x3FF));
    } else if (c < 0x20 || c >= 0x7F) {
        g_string_append_printf(out, "\\u%04X", c);
    } else {
        g_string_append_c(out, (char)c);
    }
}

static void format_string(GString *out, const char *text, size_t len)
{
    const char *end = text + len;

    g_string_append_c(out, '"');
    while (text < end) {
        const char *run = text;
        gunichar c;

        while (run < end && *run >= 0x20 && *run < 0x7F && *run != '"' && *run != '\\') {
            run++;
        }
        g_string_append_len(out, text, run - text);
        text = run;
        if (text == end) {
            break;
        }
        c = *text ? g_utf8_get_char_validated(text, end - text) : 0;
        if (c == (gunichar)-1 || c == (gunichar)-2) {
            c = 0xFFFD;
            text++;
        } else {
            text = *text ? g_utf8_next_char(text) : text + 1;
        }
        format_char(out, c);
    }
    g_string_append_c(out, '"');
}

/* The shortest of 15 and 17 digits that reads back as the same number. */
static void format_double(GString *out, double value)
{
    char buf[G_ASCII_DTOSTR_BUF_SIZE];

    if (!isfinite(value)) {
        g_string_append(out, "null"); /* JSON has no word for it */
        return;
    }
    g_ascii_formatd(buf, sizeof(buf), "%.15g", value);
    if (g_ascii_strtod(buf, NULL) != value) {
        g_ascii_formatd(buf, sizeof(buf), "%.17g", value);
    }
    g_string_append(out, buf);
}

static void format_int(GString *out, json_object *value)
{
    int64_t i = json_object_get_int64(value);
    uint64_t u = json_object_get_uint64(value);

    if (i == INT64_MAX && u > INT64_MAX) { /* json-c clamps what is beyond int64 */
        g_string_append_printf(out, "%" PRIu64, u);
    } else {
        g_string_append_printf(out, "%" PRId64, i);
    }
}

/* Between members: ", ", or a new line of @indent levels where @indent is not negative. */
static void format_separator(GString *out, bool first, int indent)
{
    if (!first) {
        g_string_append(out, indent < 0 ? ", " : ",");
    }
    if (indent >= 0) {
        g_string_append_printf(out, "\n%*s", 4 * indent, "");
    }
}

static void format_value(GString *out, json_object *value, int indent);

static void format_members(GString *out, json_object *object, int indent)
{
    bool first = true;

    json_object_object_foreach(object, key, member)
    {
        format_separator(out, first, indent);
        format_string(out, key, strlen(key));
        g_string_append(out, ": ");
        format_value(out, member, indent);
        first = false;
    }
}

/* @indent: levels of the line @value starts on; negative: all on one line. */
static void format_value(GString *out, json_object *value, int indent)
{
    int inner = indent < 0 ? indent : indent + 1;
    bool first = true;

    switch (json_object_get_type(value)) {
    case json_type_null:
        g_string_append(out, "null");
        break;
    case json_type_boolean:
        g_string_append(out, json_object_get_boolean(value) ? "true" : "false");
        break;
    case json_type_double:
        format_double(out, json_object_get_double(value));
        break;
    case json_type_int:
        format_int(out, value);
        break;
    case json_type_string:
        format_string(out, json_object_get_string(value), json_object_get_string_len(value));
        break;
    case json_type_array:
        g_string_append_c(out, '[');
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            format_separator(out, first, inner);
            format_value(out, json_object_array_get_idx(value, i), inner);
            first = false;
        }
        if (indent >= 0) {
            format_separator(out, true, indent);
        }
        g_string_append_c(out, ']');
        break;
    case json_type_object:
        g_string_append_c(out, '{');
        format_members(out, value, inner);
        if (indent >= 0) {
            format_separator(out, true, indent);
        }
        g_string_append_c(out, '}');
        break;
    }
}

char *json_to_string(json_object *value)
{
    GString *out = g_string_new(NULL);

    format_value(out, value, -1);
    return g_string_free(out, FALSE);
}

char *json_to_pretty(json_object *value)
{
    GString *out = g_string_new(NULL);

    format_value(out, value, 0);
    return g_string_free(out, FALSE);
}

json_object *json_member(json_object *object, const char *key)
{
    json_object *value = NULL;

    if (json_object_is_type(object, json_type_object)) {
        json_object_object_get_ex(object, key, &value);
    }
    return value;
}

const char *json_member_string(json_object *object, const char *key)
{
    json_object *value = json_member(object, key);

    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

void json_put_string(json_object *object, const char *key, const char *value)
{
    json_object_object_add(object, key, value ? json_object_new_string(value) : NULL);
}

void json_put_int(json_object *object, const char *key, int64_t value)
{
    json_object_object_add(object, key, json_object_new_int64(value));
}

void json_put_bool(json_object *object, const char *key, bool value)
{
    json_object_object_add(object, key, json_object_new_boolean(value));
}

const char *json_type_name_qapi(json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null:
        return "null";
    case json_type_boolean:
        return "bool";
    case json_type_double:
        return "number";
    case json_type_int:
        return "integer";
    case json_type_string:
        return "string";
    case json_type_array:
        return "array";
    default:
        return "object";
    }
}

json_object *json_deep_copy(json_object *value)
{
    json_object *copy = NULL;

    if (value && json_object_deep_copy(value, &copy, NULL) < 0) {
        return NULL;
    }
    return copy;
}
