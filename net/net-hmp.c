/*
 * HMP commands of net: people's side of qapi/net.json, and what there is for people only.
 */
#include <string.h>

#include "net/net-internal.h"
#include "net/user.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "util/error.h"
#include "util/keyval.h"

static void print_error(GString *out, GError *err)
{
    if (err) {
        g_string_append_printf(out, "Error: %s\r\n", err->message);
        g_error_free(err);
    }
}

/* Lines that end in "\n" as the monitor wants them. */
static void append_lines(GString *out, const char *text)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        if (**line || line[1]) {
            g_string_append_printf(out, "%s\r\n", *line);
        }
    }
}

static void hmp_info_network(const char *args, GString *out)
{
    net_print_info(out);
}

static void hmp_set_link(const char *args, GString *out)
{
    g_auto(GStrv) words = g_strsplit_set(args, " ", 2);
    const char *state = words[0] && words[1] ? g_strstrip(words[1]) : NULL;
    bool up;
    GError *err = NULL;
    if (!state) {
        error_set(&err, "set_link takes a client's name and on or off");
    } else if (parse_bool("state", state, &up, &err)) {
        net_set_link(words[0], up, &err);
    }
    print_error(out, err);
}

static void hmp_netdev_add(const char *args, GString *out)
{
    const KeyvalOptions opts = {
        .implied_key = "type",
        .allow_flags = !net_options_are_strict(args),
        .list_keys = net_list_keys,
    };
    GError *err = NULL;
    bool help = false;
    json_object *options = keyval_parse(args, &opts, &help, &err);
    if (help) {
        g_autofree char *text = net_help_text();
        append_lines(out, text);
    } else if (options) {
        net_init_netdev(options, &err);
    }
    json_object_put(options);
    print_error(out, err);
}

static void hmp_netdev_del(const char *args, GString *out)
{
    GError *err = NULL;
    net_delete_netdev(args, &err);
    print_error(out, err);
}

/* ---- user networking ---- */

/* The user netdev named @id (NULL: the first); NULL with error. */
static Slirp *find_slirp(const char *id, GError **errp)
{
    if (id) {
        NetClient *nc = net_client_find(id);
        Slirp *slirp = nc ? user_slirp(nc) : NULL;
        if (!slirp) {
            error_set(errp, nc ? "netdev '%s' is not of type user" : "unrecognized netdev id '%s'",
                      id);
        }
        return slirp;
    }
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        Slirp *slirp = user_slirp(net_clients->pdata[i]);
        if (slirp) {
            return slirp;
        }
    }
    error_set(errp, "user mode network stack not in use");
    return NULL;
}

/* "[ID] RULE" */
static Slirp *split_rule(const char *args, char **rule, GError **errp)
{
    g_auto(GStrv) words = g_strsplit_set(args, " ", 2);
    bool named = words[0] && words[1];
    *rule = g_strdup(named ? g_strstrip(words[1]) : words[0] ? words[0] : "");
    return find_slirp(named ? words[0] : NULL, errp);
}

static void hmp_hostfwd_add(const char *args, GString *out)
{
    GError *err = NULL;
    g_autofree char *rule = NULL;
    Slirp *slirp = split_rule(args, &rule, &err);
    if (slirp) {
        user_add_hostfwd(slirp, rule, &err);
    }
    print_error(out, err);
}

static void hmp_hostfwd_remove(const char *args, GString *out)
{
    GError *err = NULL;
    bool found;
    g_autofree char *rule = NULL;
    Slirp *slirp = split_rule(args, &rule, &err);
    if (slirp && user_remove_hostfwd(slirp, rule, &found, &err)) {
        g_string_append_printf(out, "host forwarding rule for %s %s\r\n", rule,
                               found ? "removed" : "not found");
    }
    print_error(out, err);
}

static void hmp_info_usernet(const char *args, GString *out)
{
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        const NetClient *nc = net_clients->pdata[i];
        Slirp *slirp = user_slirp(nc);
        if (!slirp) {
            continue;
        }
        g_autofree char *info = slirp_connection_info(slirp);
        g_string_append_printf(out, "Hub %d (%s):\r\n", net_hub_id(nc), nc->name);
        append_lines(out, info);
    }
}

/* ---- announce_self [INTERFACES [ID]] ---- */

static void hmp_announce_self(const char *args, GString *out)
{
    g_auto(GStrv) words = g_strsplit_set(args, " ", 2);
    GError *err = NULL;
    /* What a migration's end announces with, unless told otherwise. */
    AnnounceParameters params = {.initial = 50, .max = 550, .rounds = 5, .step = 100};
    strList **tail = &params.interfaces;
    g_auto(GStrv) names = g_strsplit(words[0] ? words[0] : "", ",", -1);
    for (char **n = names; *n; n++) {
        if (**n) {
            QAPI_LIST_APPEND(tail, g_strdup(*n));
        }
    }
    params.id = words[0] && words[1] ? g_strstrip(words[1]) : NULL;
    qmp_announce_self(&params, &err);
    qapi_free_strList(params.interfaces);
    print_error(out, err);
}

static const HmpCommand net_hmp_commands[] = {
    {"info network", "", "show the network clients and who is connected to whom", hmp_info_network},
    {"set_link", "name on|off", "plug or unplug a network client's cable", hmp_set_link},
    {"announce_self", "[interfaces] [id]", "send RARP frames that tell switches where the NICs are",
     hmp_announce_self},
    {"info usernet", "", "show the connections of user networking", hmp_info_usernet},
    {"hostfwd_add", "[netdev_id] [tcp|udp]:[hostaddr]:hostport-[guestaddr]:guestport",
     "redirect connections from the host to the guest", hmp_hostfwd_add},
    {"hostfwd_remove", "[netdev_id] [tcp|udp]:[hostaddr]:hostport", "end that", hmp_hostfwd_remove},
    {"netdev_add",
     "[user|tap|bridge|l2tpv3|socket|stream|dgram|vhost-user|hubport],id=str[,prop=value][,...]",
     "add a network back end", hmp_netdev_add},
    {"netdev_del", "id", "delete a network back end", hmp_netdev_del},
    {NULL},
};

void net_register_hmp(void)
{
    hmp_register(net_hmp_commands);
}
