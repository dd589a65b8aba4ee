/*
 * The command line's value syntaxes.  Everything becomes a JSON object of strings, so that the
 * same checked code (QAPI visitors, property tables) reads the command line and QMP.
 */
#ifndef UTIL_KEYVAL_H
#define UTIL_KEYVAL_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>

/*
 * Parses "first,key=value,key.sub=value,…".  Doubled commas stand for one in a value; a trailing
 * comma is ignored; "a.b=c" nests, "a.0=x" makes a list.  @implied_key names a first part without
 * "=" (NULL: none).  @allow_flags: "key" is "key=on" and "nokey" is "key=off"; otherwise a part
 * without "=" is the error "Expected '=' after parameter 'key'".  @help (may be NULL) is set when
 * a part is "help" or "?".  A value that starts with "{" is parsed as JSON instead (numbers and
 * booleans then keep their types).  Returns a new reference, NULL with error.
 */
typedef struct KeyvalOptions {
    const char *implied_key;
    bool allow_flags;
    bool flat; /* no nesting at dots; the last of equal keys wins */
    /* Keys that may be repeated (NULL-ended, or NULL): their values are collected in a list of
     * strings, also when there is only one ("hostfwd=a,hostfwd=b": ["a", "b"]). */
    const char *const *list_keys;
} KeyvalOptions;
json_object *keyval_parse(const char *text, const KeyvalOptions *opts, bool *help, GError **errp);

/* Scalars as the command line spells them.  @name is used in the message. */
gboolean parse_bool(const char *name, const char *text, bool *value,
                    GError **errp); /* on/off/yes/no/true/false/y/n */
gboolean parse_uint64(const char *name, const char *text, uint64_t max, uint64_t *value,
                      GError **errp); /* C prefixes */
gboolean parse_int64(const char *name, const char *text, int64_t min, int64_t max, int64_t *value,
                     GError **errp);
gboolean parse_size(const char *name, const char *text, uint64_t *value,
                    GError **errp); /* B K M G T P E, 1024s */

#endif
