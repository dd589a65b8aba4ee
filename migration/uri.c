/*
 * Where a migration goes to or comes from, as users write it:
 * tcp:HOST:PORT, unix:PATH, fd:NUMBER-OR-NAME, exec:COMMAND, file:PATH[,offset=BYTES].
 */
#include <string.h>

#include "internal.h"
#include "util/error.h"
#include "util/keyval.h"

static gboolean parse_tcp(MigrationUri *uri, const char *text, GError **errp)
{
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;

    if (!colon || !colon[1]) {
        return error_set(errp, "address 'tcp:%s' has no port, expected tcp:HOST:PORT", text);
    }
    if (text[0] == '[' && len >= 2 && text[len - 1] == ']') {
        uri->host = g_strndup(text + 1, len - 2);
    } else if (memchr(text, ':', len)) {
        return error_set(errp, "address 'tcp:%s': an IPv6 address goes in brackets", text);
    } else {
        uri->host = g_strndup(text, len);
    }
    uri->port = g_strdup(colon + 1);
    return TRUE;
}

static gboolean parse_file(MigrationUri *uri, const char *text, GError **errp)
{
    const char *option = strstr(text, ",offset=");

    uri->path = option ? g_strndup(text, (gsize)(option - text)) : g_strdup(text);
    return !option || parse_size("offset", option + strlen(",offset="), &uri->offset, errp);
}

MigrationUri *migration_uri_parse(const char *text, GError **errp)
{
    static const struct {
        const char *prefix;
        MigrationUriKind kind;
    } kinds[] = {
        {"tcp:", URI_TCP},   {"unix:", URI_UNIX}, {"fd:", URI_FD},
        {"exec:", URI_EXEC}, {"file:", URI_FILE},
    };
    MigrationUri *uri = g_new0(MigrationUri, 1);
    gboolean ok = FALSE;

    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        const char *rest = text + strlen(kinds[i].prefix);

        if (!g_str_has_prefix(text, kinds[i].prefix)) {
            continue;
        }
        uri->kind = kinds[i].kind;
        if (!*rest) {
            error_set(errp, "migration URI '%s' has nothing behind its scheme", text);
        } else if (uri->kind == URI_TCP) {
            ok = parse_tcp(uri, rest, errp);
        } else if (uri->kind == URI_FILE) {
            ok = parse_file(uri, rest, errp);
        } else {
            uri->path = g_strdup(rest);
            ok = TRUE;
        }
        if (!ok) {
            migration_uri_free(uri);
            return NULL;
        }
        return uri;
    }
    error_set(errp, "unknown migration protocol: %s (tcp:, unix:, fd:, exec: and file: are known)",
              text);
    migration_uri_free(uri);
    return NULL;
}

void migration_uri_free(MigrationUri *uri)
{
    if (uri) {
        g_free(uri->host);
        g_free(uri->port);
        g_free(uri->path);
        g_free(uri);
    }
}
