/*
 * User networking: what its options become, shared by user.c (data path) and user-options.c.
 */
#ifndef NET_USER_H
#define NET_USER_H

#include <glib.h>
#include <libslirp.h>

#include "qapi/qapi-types.h"

typedef struct UserConfig {
    SlirpConfig slirp; /* strings in it are borrowed from the options */
    GPtrArray *search; /* dnssearch, NULL-ended; borrowed strings */
    char net[INET_ADDRSTRLEN];
} UserConfig;

/* Checks the addresses and fills @config.  user_config_clear() also after an error. */
gboolean user_config_init(UserConfig *config, const NetdevUserOptions *options, GError **errp);
void user_config_clear(UserConfig *config);

/* One hostfwd= or guestfwd= rule; @rule as the user wrote it. */
gboolean user_add_hostfwd(Slirp *slirp, const char *rule, GError **errp);
gboolean user_add_guestfwd(Slirp *slirp, const char *rule, GError **errp);

#endif
