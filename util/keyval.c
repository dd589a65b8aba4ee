/*
 * The command line's value syntaxes: "first,key=value,…" or JSON, to a JSON object of strings.
 *
 * A text is cut at single commas into parts, each part is a key and a value, each key is either
 * taken as it is (flat) or a path whose dots nest objects.  An object whose members are all
 * numbers becomes a list at the end.  What keys mean is not known here.
 */
#include "util/keyval.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "util/error.h"
#include "util/json.h"

/* Reads up to @stop or the end of the part, undoubling commas; returns where it stopped. */
static const char *take_until(const char *p, char stop, GString *out)
{
    g_string_truncate(out, 0);
    while (*p && *p != stop) {
        if (*p == ',') {
            if (p[1] != ',') {
                break;
            }
            p++;
        }
        g_string_append_c(out, *p++);
    }
    return p;
}

static bool key_is_number(const char *key)
{
    return *key && strspn(key, "0123456789") == strlen(key) && strlen(key) < 7;
}

/* A letter, then letters, digits, '-' and '_'; or a list index. */
static bool fragment_is_valid(const char *fragment)
{
    if (key_is_number(fragment)) {
        return true;
    }
    if (!g_ascii_isalpha(*fragment)) {
        return false;
    }
    for (; *fragment; fragment++) {
        if (!g_ascii_isalnum(*fragment) && *fragment != '-' && *fragment != '_') {
            return false;
        }
    }
    return true;
}

static gboolean put_list(json_object *object, const char *key, const char *value)
{
    json_object *list = json_member(object, key);

    if (!list) {
        list = json_object_new_array();
        json_object_object_add(object, key, list);
    }
    json_object_array_add(list, json_object_new_string(value));
    return TRUE;
}

static gboolean put_flat(json_object *object, const char *key, const char *value, GError **errp)
{
    if (!*key) {
        return error_set(errp, "Expected a parameter before '=%s'", value);
    }
    json_put_string(object, key, value);
    return TRUE;
}

static gboolean put_nested(json_object *object, const char *key, const char *value, GError **errp)
{
    g_auto(GStrv) fragments = g_strsplit(key, ".", -1);
    GString *path = g_string_new(NULL);
    gboolean ok = TRUE;

    if (!fragments[0]) {
        ok = error_set(errp, "Expected a parameter before '=%s'", value);
    }
    for (char **f = fragments; ok && *f; f++) {
        if (!fragment_is_valid(*f) || (f == fragments && key_is_number(*f))) {
            ok = error_set(errp, "Invalid parameter '%s'", key);
            break;
        }
        g_string_append_printf(path, "%s%s", path->len ? "." : "", *f);
        json_object *member = json_member(object, *f);
        bool is_object = json_object_is_type(member, json_type_object);
        if (member && is_object != (f[1] != NULL)) {
            ok = error_set(errp, "Parameters '%s.*' used inconsistently", path->str);
        } else if (!f[1]) {
            json_put_string(object, *f, value);
        } else {
            if (!member) {
                member = json_object_new_object();
                json_object_object_add(object, *f, member);
            }
            object = member;
        }
    }
    g_string_free(path, TRUE);
    return ok;
}

static gboolean put_part(json_object *object, const char *key, const char *value,
                         const KeyvalOptions *opts, GError **errp)
{
    if (opts->list_keys && g_strv_contains(opts->list_keys, key)) {
        return put_list(object, key, value);
    }
    return opts->flat ? put_flat(object, key, value, errp) : put_nested(object, key, value, errp);
}

/* Takes over @value; returns it with numbered objects in it made lists, NULL with error. */
static json_object *listify(json_object *value, const char *path, GError **errp)
{
    unsigned numbers = 0, names = 0;

    if (!json_object_is_type(value, json_type_object)) {
        return value;
    }
    json_object_object_foreach(value, key, member)
    {
        g_autofree char *sub = *path ? g_strdup_printf("%s.%s", path, key) : g_strdup(key);
        json_object *made = listify(json_object_get(member), sub, errp);
        if (!made) {
            json_object_put(value);
            return NULL;
        }
        if (made != member) {
            json_object_object_add(value, key, made); /* replaces the value, keeps the entry */
        } else {
            json_object_put(made);
        }
        *(key_is_number(key) ? &numbers : &names) += 1;
    }
    if (!numbers) {
        return value;
    }
    if (names) {
        error_set(errp, "Parameters '%s.*' used inconsistently", path);
        json_object_put(value);
        return NULL;
    }
    json_object *list = json_object_new_array();
    for (unsigned i = 0; i < numbers; i++) {
        g_autofree char *index = g_strdup_printf("%u", i);
        json_object *element = json_member(value, index);
        if (!element) {
            error_set(errp, "Parameter '%s.%u' missing", path, i);
            json_object_put(list);
            list = NULL;
            break;
        }
        json_object_array_add(list, json_object_get(element));
    }
    json_object_put(value);
    return list;
}

static json_object *parse_json_object(const char *text, GError **errp)
{
    json_object *value = json_parse(text, errp);

    if (value && !json_object_is_type(value, json_type_object)) {
        json_object_put(value);
        error_set(errp, "Expected a JSON object");
        return NULL;
    }
    return value;
}

json_object *keyval_parse(const char *text, const KeyvalOptions *opts, bool *help, GError **errp)
{
    if (help) {
        *help = false;
    }
    if (*text == '{') {
        return parse_json_object(text, errp);
    }

    json_object *object = json_object_new_object();
    GString *key = g_string_new(NULL), *value = g_string_new(NULL);
    const char *p = text;
    gboolean ok = TRUE;

    while (ok && *p) {
        bool first = p == text;
        const char *part = p;

        p = take_until(p, '=', key);
        if (*p == '=') {
            p = take_until(p + 1, '\0', value);
        } else if (help && (!strcmp(key->str, "help") || !strcmp(key->str, "?"))) {
            *help = true;
            p += *p == ',';
            continue;
        } else if (first && opts->implied_key) {
            g_string_assign(value, key->str);
            g_string_assign(key, opts->implied_key);
        } else if (!opts->allow_flags) {
            ok = error_set(errp, "Expected '=' after parameter '%s'", key->str);
        } else if (g_str_has_prefix(key->str, "no") && key->len > 2) {
            g_string_erase(key, 0, 2);
            g_string_assign(value, "off");
        } else if (key->len) {
            g_string_assign(value, "on");
        } else {
            ok = error_set(errp, "Expected a parameter at '%s'", part);
        }
        if (ok) {
            ok = put_part(object, key->str, value->str, opts, errp);
        }
        p += *p == ',';
    }
    g_string_free(key, TRUE);
    g_string_free(value, TRUE);
    if (!ok) {
        json_object_put(object);
        return NULL;
    }
    return opts->flat ? object : listify(object, "", errp);
}

gboolean parse_bool(const char *name, const char *text, bool *value, GError **errp)
{
    static const char *const on[] = {"on", "yes", "true", "y", NULL};
    static const char *const off[] = {"off", "no", "false", "n", NULL};

    if (g_strv_contains(on, text)) {
        *value = true;
    } else if (g_strv_contains(off, text)) {
        *value = false;
    } else {
        return error_set(errp, "Parameter '%s' expects 'on' or 'off', not '%s'", name, text);
    }
    return TRUE;
}

/* Sign, then digits with a C prefix and nothing else.  *overflow: does not fit 64 bits. */
static bool scan_number(const char *text, bool *negative, uint64_t *value, bool *overflow)
{
    char *end;

    *negative = *text == '-';
    text += *text == '-' || *text == '+';
    if (!isdigit((unsigned char)*text)) {
        return false;
    }
    errno = 0;
    *value = g_ascii_strtoull(text, &end, 0);
    *overflow = errno == ERANGE;
    return *end == '\0';
}

gboolean parse_uint64(const char *name, const char *text, uint64_t max, uint64_t *value,
                      GError **errp)
{
    bool negative, overflow;
    uint64_t number;

    if (!scan_number(text, &negative, &number, &overflow)) {
        return error_set(errp, "Parameter '%s' expects a number, not '%s'", name, text);
    }
    if (overflow || number > max || (negative && number)) {
        return error_set(errp, "Parameter '%s' expects a number from 0 to %" PRIu64 ", not '%s'",
                         name, max, text);
    }
    *value = number;
    return TRUE;
}

gboolean parse_int64(const char *name, const char *text, int64_t min, int64_t max, int64_t *value,
                     GError **errp)
{
    bool negative, overflow;
    uint64_t number;

    if (!scan_number(text, &negative, &number, &overflow)) {
        return error_set(errp, "Parameter '%s' expects a number, not '%s'", name, text);
    }
    int64_t result = negative ? (int64_t)-number : (int64_t)number;
    bool fits = !overflow && number <= (uint64_t)INT64_MAX + negative;
    if (!fits || result < min || result > max) {
        return error_set(
            errp, "Parameter '%s' expects a number from %" PRIi64 " to %" PRIi64 ", not '%s'", name,
            min, max, text);
    }
    *value = result;
    return TRUE;
}

static gboolean size_error(const char *name, const char *text, GError **errp)
{
    return error_set(errp,
                     "Parameter '%s' expects a size below 16E, such as 512, 64k, 1.5G "
                     "(suffixes B, K, M, G, T, P, E), not '%s'",
                     name, text);
}

gboolean parse_size(const char *name, const char *text, uint64_t *value, GError **errp)
{
    static const char suffixes[] = "BKMGTPE";
    uint64_t whole, scale = 1;
    double fraction = 0;
    char *end;

    if (!isdigit((unsigned char)*text)) {
        return size_error(name, text, errp);
    }
    errno = 0;
    whole = g_ascii_strtoull(text, &end, g_str_has_prefix(text, "0x") ? 16 : 10);
    if (errno) {
        return size_error(name, text, errp);
    }
    if (*end == '.' && isdigit((unsigned char)end[1])) {
        double digit = 0.1;
        for (end++; isdigit((unsigned char)*end); end++, digit /= 10) {
            fraction += digit * (*end - '0');
        }
    }
    if (*end) {
        const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
        if (!suffix || end[1]) {
            return size_error(name, text, errp);
        }
        scale = UINT64_C(1) << (10 * (suffix - suffixes));
    }
    if (whole > UINT64_MAX / scale || (fraction > 0 && scale == 1)) {
        return size_error(name, text, errp);
    }
    *value = whole * scale + (uint64_t)llround(fraction * (double)scale);
    return TRUE;
}
