/*
 * From options to clients: the table of -netdev types, netdev_add and netdev_del, -nic, and the
 * small values that options carry (MAC addresses, file descriptors).
 *
 * The command line's strings and QMP's typed values meet in one generated type, Netdev: what it
 * takes is in qapi/net.json and nowhere else.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/net-internal.h"
#include "qapi/qapi-visit.h"
#include "util/error.h"
#include "util/json.h"
#include "util/keyval.h"

const NetBackend net_backends[] = {
    {"user", "user networking, no privilege needed", net_init_user},
    {"tap", "a tap interface of the host", net_init_tap},
    {"bridge", "a tap on a bridge of the host, from a helper program", net_init_bridge},
    {"l2tpv3", "an L2TPv3 tunnel", net_init_l2tpv3},
    {"stream", "frames over a stream socket", net_init_stream},
    {"dgram", "frames over a datagram socket", net_init_dgram},
    {"socket", "the same with older options", net_init_socket},
    {"vhost-user", "packets moved by another process (DPDK, passt), which shares the guest's memory",
     net_init_vhost_user},
    {"hubport", "a port of a software hub", net_init_hubport},
    {NULL},
};

const char *const net_list_keys[] = {"hostfwd", "guestfwd", "dnssearch", NULL};

int (*net_named_fd)(const char *name, GError **errp);

bool net_options_are_strict(const char *text)
{
    static const char *const strict[] = {"stream", "dgram"};
    if (g_str_has_prefix(text, "type=")) {
        text += strlen("type=");
    }
    size_t len = strcspn(text, ",");
    for (unsigned i = 0; i < G_N_ELEMENTS(strict); i++) {
        if (len == strlen(strict[i]) && strncmp(text, strict[i], len) == 0) {
            return true;
        }
    }
    return false;
}

char *net_help_text(void)
{
    GString *text = g_string_new("Available netdev backend types:\n");
    for (const NetBackend *b = net_backends; b->type; b++) {
        g_string_append_printf(text, "%-10s %s\n", b->type, b->help);
    }
    return g_string_free(text, FALSE);
}

/* An id starts with a letter and goes on with letters, digits, '-', '.' and '_'. */
static bool id_is_well_formed(const char *id)
{
    if (!g_ascii_isalpha(id[0])) {
        return false;
    }
    return id[strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")] == 0;
}

gboolean net_init_netdev_parsed(const Netdev *netdev, GError **errp)
{
    /* Ids that start with '#' are our own (-nic). */
    if (netdev->id[0] != '#' && !id_is_well_formed(netdev->id)) {
        return error_set(errp,
                         "Parameter 'id' expects an identifier (a letter, then letters, digits, "
                         "'-', '.', '_'), not '%s'",
                         netdev->id);
    }
    if (net_client_find(netdev->id)) {
        return error_set(errp, "Duplicate ID '%s' for netdev", netdev->id);
    }
    const char *type = NetClientDriver_str(netdev->type);
    for (const NetBackend *b = net_backends; b->type; b++) {
        if (strcmp(b->type, type) != 0) {
            continue;
        }
        if (!b->init(netdev, errp)) {
            return false;
        }
        NetClient *queues[NET_BATCH_MAX];
        unsigned n = net_client_find_queues(netdev->id, queues, G_N_ELEMENTS(queues));
        for (unsigned i = 0; i < n; i++) {
            queues[i]->is_netdev = true;
        }
        return true;
    }
    return error_set(errp, "Parameter 'type' does not accept value '%s'", type);
}

/* {"hostfwd": "a"} and {"hostfwd": ["a"]} as the schema has it: {"hostfwd": [{"str": "a"}]}. */
static void wrap_lists(json_object *options)
{
    for (const char *const *key = net_list_keys; *key; key++) {
        json_object *value;
        if (!json_object_object_get_ex(options, *key, &value)) {
            continue;
        }
        if (json_object_is_type(value, json_type_string)) {
            json_object *list = json_object_new_array();
            json_object_array_add(list, json_object_get(value));
            json_object_object_add(options, *key, list);
            value = list;
        }
        if (!json_object_is_type(value, json_type_array)) {
            continue;
        }
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            json_object *item = json_object_array_get_idx(value, i);
            if (json_object_is_type(item, json_type_string)) {
                json_object *wrapped = json_object_new_object();
                json_object_object_add(wrapped, "str", json_object_get(item));
                json_object_array_put_idx(value, i, wrapped);
            }
        }
    }
}

/* Types of QEMU's that there are none of here. */
static gboolean check_refused(json_object *options, GError **errp)
{
    static const struct {
        const char *type, *reason;
    } refused[] = {
        {"vde", "use stream or dgram, which need no library"},
        {"netmap", "there are no netmap ports; use tap"},
        {"af-xdp", "there are no XDP sockets; use tap"},
        {"vhost-vdpa", "there is no vDPA device to hand the rings to; use tap"},
        {"passt", "start passt and use stream or vhost-user with its socket"},
        {"nic", "a NIC is a -device"},
    };
    const char *type = json_member_string(options, "type");
    for (unsigned i = 0; type && i < G_N_ELEMENTS(refused); i++) {
        if (strcmp(type, refused[i].type) == 0) {
            return error_set(errp, "netdev type '%s' is not supported: %s", type,
                             refused[i].reason);
        }
    }
    return true;
}

static gboolean init_options(json_object *options, QapiInput input, GError **errp)
{
    g_autoptr(Netdev) netdev =
        check_refused(options, errp) ? qapi_parse_Netdev(options, input, errp) : NULL;
    return netdev && net_init_netdev_parsed(netdev, errp);
}

gboolean net_add_netdev(json_object *options, GError **errp)
{
    net_at_run_time = true;
    gboolean ok = init_options(options, QAPI_INPUT_JSON, errp);
    net_at_run_time = false;
    return ok;
}

gboolean net_init_netdev(json_object *options, GError **errp)
{
    if (!json_object_is_type(options, json_type_object)) {
        return error_set(errp, "-netdev expects TYPE,id=ID,… or a JSON object");
    }
    /* "user,id=n0" and the JSON form both name the type; a missing one is said first. */
    if (!json_member(options, "type")) {
        return error_set(errp, "Parameter 'type' is missing");
    }
    json_object *copy = json_deep_copy(options);
    wrap_lists(copy);
    gboolean ok = init_options(copy, QAPI_INPUT_KEYVAL, errp);
    json_object_put(copy);
    return ok;
}

gboolean net_delete_netdev(const char *id, GError **errp)
{
    NetClient *nc = net_client_find(id);
    if (!nc) {
        return error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", id);
    }
    if (!nc->is_netdev) {
        return error_set(errp, "Device '%s' is not a netdev", id);
    }
    net_client_delete(nc);
    return true;
}

gboolean net_parse_nic(const char *text, const char *default_model, json_object **netdev,
                       json_object **device, GError **errp)
{
    static unsigned count;
    const KeyvalOptions opts = {
        .implied_key = "type",
        .allow_flags = !net_options_are_strict(text),
        .list_keys = net_list_keys,
    };
    *netdev = *device = NULL;
    json_object *options = keyval_parse(text, &opts, NULL, errp);
    if (!options) {
        return false;
    }
    const char *type = json_member_string(options, "type");
    if (type && strcmp(type, "none") == 0) {
        json_object_put(options);
        return true;
    }

    json_object *dev = json_object_new_object();
    const char *model = json_member_string(options, "model");
    const char *mac = json_member_string(options, "mac");
    json_put_string(dev, "driver", model && strcmp(model, "virtio") != 0 ? model : default_model);
    if (mac) {
        json_put_string(dev, "mac", mac);
    }
    const char *id = json_member_string(options, "id");
    g_autofree char *netdev_id = id ? g_strdup(id) : g_strdup_printf("#net%u", count++);
    json_put_string(dev, "netdev", netdev_id);
    json_object_object_del(options, "model");
    json_object_object_del(options, "mac");
    json_put_string(options, "id", netdev_id);
    *netdev = options;
    *device = dev;
    return true;
}

gboolean net_parse_legacy_net(const char *text, GError **errp)
{
    if (strcmp(text, "none") == 0) {
        return true;
    }
    return error_set(errp, "-net %s is not supported: use -netdev with -device, or -nic", text);
}

int net_fd_parse(const char *option, const char *text, GError **errp)
{
    int fd = -1;
    if (g_ascii_isdigit(text[0])) {
        char *end;
        errno = 0;
        unsigned long n = strtoul(text, &end, 10);
        if (errno || *end || n > G_MAXINT) {
            error_set(errp, "%s=%s is not a file descriptor number", option, text);
            return -1;
        }
        fd = (int)n;
    } else if (net_named_fd) {
        fd = net_named_fd(text, errp);
        if (fd < 0) {
            return -1;
        }
    } else {
        error_set(errp, "%s=%s is not a file descriptor number", option, text);
        return -1;
    }
    if (fcntl(fd, F_GETFD) < 0) {
        error_set(errp, "%s=%s is not an open file descriptor", option, text);
        return -1;
    }
    return fd;
}

/* Low 24 bits of the MACs 52:54:00:xx:xx:xx in use → how many NICs have them. */
static GHashTable *macs_in_use;
static const uint8_t default_prefix[3] = {0x52, 0x54, 0x00};

static uint32_t mac_low(const uint8_t *mac)
{
    return (uint32_t)mac[3] << 16 | mac[4] << 8 | mac[5];
}

static unsigned mac_uses(uint32_t low)
{
    return macs_in_use ? GPOINTER_TO_UINT(g_hash_table_lookup(macs_in_use, GUINT_TO_POINTER(low)))
                       : 0;
}

static void mac_set_uses(uint32_t low, unsigned uses)
{
    if (!macs_in_use) {
        macs_in_use = g_hash_table_new(NULL, NULL);
    }
    if (uses) {
        g_hash_table_insert(macs_in_use, GUINT_TO_POINTER(low), GUINT_TO_POINTER(uses));
    } else {
        g_hash_table_remove(macs_in_use, GUINT_TO_POINTER(low));
    }
}

void net_default_mac(uint8_t mac[ETH_MAC_LEN])
{
    static const uint8_t zero[ETH_MAC_LEN];
    if (memcmp(mac, zero, ETH_MAC_LEN) == 0) {
        uint32_t low = 0x123456;
        while (mac_uses(low)) {
            low = (low + 1) & 0xffffff;
        }
        memcpy(mac, default_prefix, sizeof(default_prefix));
        mac[3] = low >> 16;
        mac[4] = low >> 8;
        mac[5] = low;
    }
    if (memcmp(mac, default_prefix, sizeof(default_prefix)) == 0) {
        mac_set_uses(mac_low(mac), mac_uses(mac_low(mac)) + 1);
    }
}

void net_release_mac(const uint8_t mac[ETH_MAC_LEN])
{
    if (memcmp(mac, default_prefix, sizeof(default_prefix)) == 0 && mac_uses(mac_low(mac))) {
        mac_set_uses(mac_low(mac), mac_uses(mac_low(mac)) - 1);
    }
}

gboolean net_parse_mac(const char *text, uint8_t mac[ETH_MAC_LEN], GError **errp)
{
    uint8_t out[ETH_MAC_LEN];
    const char *p = text;
    char separator = 0;
    for (unsigned i = 0; i < ETH_MAC_LEN; i++) {
        if (i > 0) {
            separator = separator ? separator : *p;
            if (*p != separator || (*p != ':' && *p != '-')) {
                goto bad;
            }
            p++;
        }
        if (!g_ascii_isxdigit(p[0]) || !g_ascii_isxdigit(p[1])) {
            goto bad;
        }
        out[i] = g_ascii_xdigit_value(p[0]) << 4 | g_ascii_xdigit_value(p[1]);
        p += 2;
    }
    if (*p == 0) {
        memcpy(mac, out, ETH_MAC_LEN);
        return true;
    }
bad:
    return error_set(errp,
                     "'%s' is not a MAC address: six pairs of hexadecimal digits are, "
                     "such as 52:54:00:12:34:56",
                     text);
}
