/*
 * The options of character devices: both spellings that users write, and their values.
 *
 * "-chardev TYPE,key=value" and "-serial TYPE:rest" alike become one flat JSON object with
 * "backend", which chardev_new() opens; chardev-add of QMP brings such an object itself.  A back
 * end reads its own keys with chardev_opt_*().  Nothing here knows an open device.
 */
#include <string.h>

#include "chardev-priv.h"
#include "util/error.h"
#include "util/json.h"
#include "util/keyval.h"

json_object *chardev_parse_options(const char *text, bool *help, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "backend", .allow_flags = true, .flat = true};

    return keyval_parse(text, &opts, help, errp);
}

gboolean chardev_opt_bool(json_object *options, const char *key, bool *value, GError **errp)
{
    json_object *v = json_member(options, key);

    if (!v) {
        return TRUE;
    }
    if (json_object_is_type(v, json_type_boolean)) {
        *value = json_object_get_boolean(v);
        return TRUE;
    }
    return parse_bool(key, json_object_get_string(v), value, errp);
}

gboolean chardev_opt_uint(json_object *options, const char *key, uint64_t max, uint64_t *value,
                          GError **errp)
{
    json_object *v = json_member(options, key);

    return !v || parse_uint64(key, json_object_get_string(v), max, value, errp);
}

const char *chardev_opt_string(json_object *options, const char *key)
{
    json_object *v = json_member(options, key);

    return v ? json_object_get_string(v) : NULL;
}

gboolean chardev_check_options(const ChardevBackend *backend, json_object *options, GError **errp)
{
    json_object_object_foreach(options, key, value)
    {
        bool scalar = value && !json_object_is_type(value, json_type_object) &&
                      !json_object_is_type(value, json_type_array);
        if (strcmp(key, "backend") && strcmp(key, "id") && !g_strv_contains(backend->keys, key)) {
            return error_set(errp, "Parameter '%s' is unexpected for chardev '%s'", key,
                             backend->type);
        }
        if (!scalar) {
            return error_set(errp, "Parameter '%s' of a chardev expects one value", key);
        }
    }
    return TRUE;
}

/* "tcp:HOST:PORT,opts" to {"host": …, "port": …, opts}.  A host in brackets may hold colons. */
static json_object *parse_compat_tcp(const char *rest, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "address", .allow_flags = true, .flat = true};
    json_object *options = keyval_parse(rest, &opts, NULL, errp);
    const char *address = options ? json_member_string(options, "address") : NULL;
    const char *colon = address ? strrchr(address, ':') : NULL;

    if (!options) {
        return NULL;
    }
    if (!colon || !colon[1]) {
        error_set(errp, "chardev address 'tcp:%s' is not tcp:HOST:PORT", rest);
        json_object_put(options);
        return NULL;
    }
    bool bracketed = *address == '[' && colon > address + 1 && colon[-1] == ']';
    g_autofree char *host = bracketed ? g_strndup(address + 1, colon - address - 2)
                                      : g_strndup(address, colon - address);
    g_autofree char *port = g_strdup(colon + 1);
    json_put_string(options, "host", host);
    json_put_string(options, "port", port);
    json_object_object_del(options, "address");
    return options;
}

json_object *chardev_parse_compat(const char *spec, GError **errp)
{
    static const struct {
        const char *prefix, *type, *key;
    } spellings[] = {
        {"unix:", "socket", "path"},
        {"file:", "file", "path"},
        {"pipe:", "pipe", "path"},
        {"fd:", "socket", "fd"},
    };
    json_object *options = NULL;
    const char *rest;

    if (g_str_has_prefix(spec, "tcp:")) {
        options = parse_compat_tcp(spec + strlen("tcp:"), errp);
        if (options) {
            json_put_string(options, "backend", "socket");
        }
        return options;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(spellings); i++) {
        if (g_str_has_prefix(spec, spellings[i].prefix)) {
            KeyvalOptions opts = {
                .implied_key = spellings[i].key, .allow_flags = true, .flat = true};
            rest = spec + strlen(spellings[i].prefix);
            options = keyval_parse(rest, &opts, NULL, errp);
            if (options) {
                json_put_string(options, "backend", spellings[i].type);
            }
            return options;
        }
    }
    /* A bare type, perhaps with options: "stdio", "null", "pty", "ringbuf,size=4k". */
    options = chardev_parse_options(strcmp(spec, "none") ? spec : "null", NULL, errp);
    if (options && !chardev_backend_find(json_member_string(options, "backend") ?: "")) {
        json_object_put(options);
        options = NULL;
        error_set(errp,
                  "'%s' is not a character device; it is one of unix:PATH, tcp:HOST:PORT, "
                  "file:PATH, pipe:PATH, chardev:ID, stdio, pty, null",
                  spec);
    }
    return options;
}
