/*
 * User networking: what its options become, shared by user.c (data path), user-options.c and
 * user-forward.c.
 */
#ifndef NET_USER_H
#define NET_USER_H

#include <glib.h>
#include <libslirp.h>

#include "chardev/chardev.h"
#include "net/net.h"
#include "qapi/qapi-types.h"

typedef struct UserConfig {
    SlirpConfig slirp; /* strings in it are borrowed from the options */
    GPtrArray *search; /* dnssearch, NULL-ended; borrowed strings */
    char net[INET_ADDRSTRLEN];
} UserConfig;

/* Checks the addresses and fills @config.  user_config_clear() also after an error. */
gboolean user_config_init(UserConfig *config, const NetdevUserOptions *options, GError **errp);
void user_config_clear(UserConfig *config);

/* The libslirp of a client of type user; NULL for others. */
Slirp *user_slirp(const NetClient *nc);

/* One hostfwd= or guestfwd= rule; @rule as the user wrote it. */
gboolean user_add_hostfwd(Slirp *slirp, const char *rule, GError **errp);
/* "[tcp|udp]:[HOSTADDR]:HOSTPORT"; *found: there was one. */
gboolean user_remove_hostfwd(Slirp *slirp, const char *rule, bool *found, GError **errp);
/* @forwards keeps those with a character device (UserForward). */
typedef struct UserForward UserForward;
gboolean user_add_guestfwd(Slirp *slirp, GPtrArray *forwards, const char *rule, GError **errp);
void user_forwards_poll(GPtrArray *forwards); /* before each poll of libslirp */
void user_forwards_free(GPtrArray *forwards);

#endif
