/*
 * What is inside a JSON string: UTF-8 that must be valid, and escapes that must be known.  Works on
 * whole strings, so that no character is ever split.
 */
#include <string.h>

#include "util/json-priv.h"

/* Four hexadecimal digits; -1 if they are not. */
static int parse_hex4(const char *p, const char *end)
{
    int value = 0;

    if (end - p < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        int digit = g_ascii_xdigit_value(p[i]);
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Unicode's noncharacters, which QEMU refuses. */
static bool is_noncharacter(gunichar c)
{
    return (c >= 0xFDD0 && c <= 0xFDEF) || (c & 0xFFFE) == 0xFFFE;
}

/* Decodes the \u escape whose digits start at @p.  Returns the bytes used after "\u", 0 if bad. */
static size_t decode_unicode_escape(const char *p, const char *end, GString *out)
{
    int code = parse_hex4(p, end), low;
    size_t used = 4;

    if (code < 0 || (code >= 0xDC00 && code <= 0xDFFF)) {
        return 0;
    }
    if (code >= 0xD800 && code <= 0xDBFF) {
        low = end - p >= 10 && p[4] == '\\' && p[5] == 'u' ? parse_hex4(p + 6, end) : -1;
        if (low < 0xDC00 || low > 0xDFFF) {
            return 0;
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        used = 10;
    }
    if (is_noncharacter(code)) {
        return 0;
    }
    if (code == 0) {
        g_string_append_c(out, 0);
    } else {
        g_string_append_unichar(out, code);
    }
    return used;
}

/* Raw UTF-8 as it must be: valid, and no noncharacter.  All of those start with a byte >= 0xEF. */
bool json_utf8_is_valid(const char *text, size_t len)
{
    if (!g_utf8_validate_len(text, len, NULL)) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if ((guchar)text[i] >= 0xEF && is_noncharacter(g_utf8_get_char(text + i))) {
            return false;
        }
    }
    return true;
}

/* Replaces the escapes in @raw.  NULL: an escape that JSON does not know. */
GString *json_decode_string(const GString *raw)
{
    static const char from[] = "\"'\\/bfnrt", to[] = "\"'\\/\b\f\n\r\t";
    const char *p = raw->str, *end = raw->str + raw->len;
    GString *out = g_string_sized_new(raw->len + 1);

    while (p < end) {
        const char *slash = memchr(p, '\\', end - p);
        const char *known;
        size_t used;

        g_string_append_len(out, p, (slash ? slash : end) - p);
        if (!slash) {
            return out;
        }
        p = slash + 2; /* the lexer saw to it that one byte follows */
        known = strchr(from, slash[1]);
        if (known) {
            g_string_append_c(out, to[known - from]);
            continue;
        }
        used = slash[1] == 'u' ? decode_unicode_escape(p, end, out) : 0;
        if (!used) {
            g_string_free(out, TRUE);
            return NULL;
        }
        p += used;
    }
    return out;
}
