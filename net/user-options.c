/*
 * Options of -netdev user: the addresses of the guest's network.
 *
 * Nothing here touches the data path.  Defaults are those that guests and scripts know:
 * 10.0.2.0/24 with host .2, name server .3, DHCP from .15; fec0::/64 with ::2 and ::3.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "net/user.h"
#include "util/error.h"
#include "util/keyval.h"

static gboolean parse_ipv4(const char *name, const char *text, struct in_addr *addr, GError **errp)
{
    if (inet_pton(AF_INET, text, addr) != 1) {
        return error_set(errp, "%s=%s: an IPv4 address is expected, such as 10.0.2.2", name, text);
    }
    return true;
}

static gboolean parse_ipv6(const char *name, const char *text, struct in6_addr *addr, GError **errp)
{
    if (inet_pton(AF_INET6, text, addr) != 1) {
        return error_set(errp, "%s=%s: an IPv6 address is expected, such as fec0::2", name, text);
    }
    return true;
}

/* Without a mask the address's class decides, as it always did. */
static uint32_t class_mask(uint32_t addr)
{
    if (!(addr & 0x80000000)) {
        return 0xff000000;
    }
    if (!(addr & 0x40000000)) {
        return 0xffff0000;
    }
    return addr & 0x20000000 ? 0xfffffff0 : 0xffffff00;
}

/* "10.0.2.0", "10.0.2.0/24", "10.0.2.0/255.255.255.0" */
static gboolean parse_net(const char *text, struct in_addr *net, struct in_addr *mask,
                          GError **errp)
{
    g_auto(GStrv) parts = g_strsplit(text, "/", 2);
    if (!parse_ipv4("net", parts[0] ? parts[0] : "", net, errp)) {
        return false;
    }
    uint32_t m = class_mask(ntohl(net->s_addr));
    if (parts[1]) {
        struct in_addr dotted;
        char *end;
        unsigned long bits = strtoul(parts[1], &end, 10);
        if (inet_pton(AF_INET, parts[1], &dotted) == 1) {
            m = ntohl(dotted.s_addr);
        } else if (*parts[1] && !*end && bits >= 1 && bits <= 30) {
            m = ~0u << (32 - bits);
        } else {
            m = 0;
        }
        if ((~m & (~m + 1)) != 0 || m == 0 || ~m < 3) {
            return error_set(errp,
                             "net=%s: the part behind '/' must be a number of bits from 1 "
                             "to 30, or a mask such as 255.255.255.0",
                             text);
        }
    }
    mask->s_addr = htonl(m);
    net->s_addr &= mask->s_addr;
    return true;
}

/* An address in the guest's network: the option's, or @last in the host part. */
static gboolean host_part(const char *name, const char *text, const SlirpConfig *c, uint32_t last,
                          struct in_addr *addr, GError **errp)
{
    if (!text) {
        addr->s_addr = c->vnetwork.s_addr | (htonl(last) & ~c->vnetmask.s_addr);
        return true;
    }
    if (!parse_ipv4(name, text, addr, errp)) {
        return false;
    }
    if ((addr->s_addr & c->vnetmask.s_addr) != c->vnetwork.s_addr) {
        char net[INET_ADDRSTRLEN], mask[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &c->vnetwork, net, sizeof(net));
        inet_ntop(AF_INET, &c->vnetmask, mask, sizeof(mask));
        return error_set(errp, "%s=%s is not in the guest's network %s/%s", name, text, net, mask);
    }
    return true;
}

static gboolean config_ipv4(SlirpConfig *c, const NetdevUserOptions *o, GError **errp)
{
    const char *net = o->net ? o->net : o->ip ? o->ip : "10.0.2.0/24";
    if (!parse_net(net, &c->vnetwork, &c->vnetmask, errp) ||
        !host_part("host", o->host, c, 0x0202, &c->vhost, errp) ||
        !host_part("dhcpstart", o->dhcpstart, c, 0x020f, &c->vdhcp_start, errp) ||
        !host_part("dns", o->dns, c, 0x0203, &c->vnameserver, errp)) {
        return false;
    }
    if (c->vnameserver.s_addr == c->vhost.s_addr) {
        return error_set(errp, "dns= and host= must be different addresses");
    }
    if (c->vdhcp_start.s_addr == c->vhost.s_addr ||
        c->vdhcp_start.s_addr == c->vnameserver.s_addr) {
        return error_set(errp, "dhcpstart= must be another address than host= and dns=");
    }
    return true;
}

static bool in6_in_prefix(const struct in6_addr *addr, const struct in6_addr *prefix, unsigned len)
{
    unsigned bytes = len / 8, bits = len % 8;
    if (memcmp(addr, prefix, bytes) != 0) {
        return false;
    }
    uint8_t mask = bits ? 0xff << (8 - bits) : 0;
    return bits == 0 || ((addr->s6_addr[bytes] ^ prefix->s6_addr[bytes]) & mask) == 0;
}

static gboolean host_part6(const char *name, const char *text, const SlirpConfig *c, uint8_t last,
                           struct in6_addr *addr, GError **errp)
{
    if (!text) {
        *addr = c->vprefix_addr6;
        addr->s6_addr[15] |= last;
        return true;
    }
    if (!parse_ipv6(name, text, addr, errp)) {
        return false;
    }
    if (!in6_in_prefix(addr, &c->vprefix_addr6, c->vprefix_len)) {
        char prefix[INET6_ADDRSTRLEN];
        inet_ntop(AF_INET6, &c->vprefix_addr6, prefix, sizeof(prefix));
        return error_set(errp, "%s=%s is not in the guest's network %s/%u", name, text, prefix,
                         c->vprefix_len);
    }
    return true;
}

static gboolean config_ipv6(SlirpConfig *c, const NetdevUserOptions *o, GError **errp)
{
    int64_t len = o->has_ipv6_prefixlen ? o->ipv6_prefixlen : 64;
    if (len < 0 || len > 126) {
        return error_set(errp, "ipv6-prefixlen=%" G_GINT64_FORMAT ": 0 to 126 bits are possible",
                         len);
    }
    c->vprefix_len = len;
    if (!parse_ipv6("ipv6-prefix", o->ipv6_prefix ? o->ipv6_prefix : "fec0::", &c->vprefix_addr6,
                    errp) ||
        !host_part6("ipv6-host", o->ipv6_host, c, 2, &c->vhost6, errp) ||
        !host_part6("ipv6-dns", o->ipv6_dns, c, 3, &c->vnameserver6, errp)) {
        return false;
    }
    if (memcmp(&c->vhost6, &c->vnameserver6, sizeof(c->vhost6)) == 0) {
        return error_set(errp, "ipv6-dns= and ipv6-host= must be different addresses");
    }
    return true;
}

static gboolean check_length(const char *name, const char *text, GError **errp)
{
    if (text && strlen(text) > 255) {
        return error_set(errp, "%s= is %zu characters long, at most 255 are possible", name,
                         strlen(text));
    }
    return true;
}

/* One protocol named on means the other off, unless that is named too. */
static gboolean config_protocols(SlirpConfig *c, const NetdevUserOptions *o, GError **errp)
{
    bool v4_on = o->has_ipv4 && o->ipv4, v6_on = o->has_ipv6 && o->ipv6;
    c->in_enabled = o->has_ipv4 ? o->ipv4 : !v6_on;
    c->in6_enabled = o->has_ipv6 ? o->ipv6 : !v4_on;
    if (!c->in_enabled && !c->in6_enabled) {
        return error_set(errp, "ipv4=off and ipv6=off leave nothing: one of them must be on");
    }
    if (!c->in_enabled && (o->ip || o->net || o->host || o->dhcpstart || o->dns)) {
        return error_set(errp, "net=, host=, dhcpstart= and dns= need ipv4=on");
    }
    if (!c->in6_enabled &&
        (o->ipv6_prefix || o->has_ipv6_prefixlen || o->ipv6_host || o->ipv6_dns)) {
        return error_set(errp, "ipv6-prefix=, ipv6-prefixlen=, ipv6-host= and ipv6-dns= need "
                               "ipv6=on");
    }
    return true;
}

gboolean user_config_init(UserConfig *config, const NetdevUserOptions *o, GError **errp)
{
    SlirpConfig *c = &config->slirp;
    memset(config, 0, sizeof(*config));
    if (o->smb || o->smbserver) {
        return error_set(errp,
                         "%s= is not supported: there is no SMB server; share files with tftp=, or "
                         "with a server of your own through guestfwd=",
                         o->smb ? "smb" : "smbserver");
    }
    c->version = 4;
    if (!config_protocols(c, o, errp) || !config_ipv4(c, o, errp) || !config_ipv6(c, o, errp) ||
        !check_length("hostname", o->hostname, errp) ||
        !check_length("domainname", o->domainname, errp) ||
        !check_length("tftp-server-name", o->tftp_server_name, errp)) {
        return false;
    }
    if (o->bootfile && strlen(o->bootfile) > 127) {
        return error_set(errp, "bootfile= is too long: at most 127 characters are possible");
    }
    struct stat st;
    if (o->tftp && (stat(o->tftp, &st) < 0 || !S_ISDIR(st.st_mode))) {
        return error_set(errp, "tftp=%s is not a folder", o->tftp);
    }
    c->restricted = o->has_q_restrict && o->q_restrict;
    c->vhostname = o->hostname;
    c->vdomainname = o->domainname;
    c->tftp_server_name = o->tftp_server_name;
    c->tftp_path = o->tftp;
    c->bootfile = o->bootfile;
    if (o->dnssearch) {
        config->search = g_ptr_array_new();
        for (const StringList *e = o->dnssearch; e; e = e->next) {
            g_ptr_array_add(config->search, e->value->str);
        }
        g_ptr_array_add(config->search, NULL);
        c->vdnssearch = (const char **)config->search->pdata;
    }
    inet_ntop(AF_INET, &c->vnetwork, config->net, sizeof(config->net));
    return true;
}

void user_config_clear(UserConfig *config)
{
    g_clear_pointer(&config->search, g_ptr_array_unref);
}
