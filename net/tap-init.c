/*
 * Options of -netdev tap: where its fds come from (an interface that is opened or made, fds that
 * were passed, a helper program), how many queues it has, and the scripts that set the interface
 * up and take it down.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/net-internal.h"
#include "net/tap.h"
#include "qapi/qapi-types.h"
#include "util/error.h"
#include "vhost/vhost.h"

#define DEFAULT_SCRIPT     "/etc/qemu-ifup"
#define DEFAULT_DOWNSCRIPT "/etc/qemu-ifdown"
#define QUEUES_MAX         256 /* of the kernel's taps */

/* ---- scripts ---- */

/* Runs @script with the interface's name; what it printed is part of the error. */
static gboolean run_script(const char *option, const char *script, const char *ifname,
                           GError **errp)
{
    const char *argv[] = {script, ifname, NULL};
    g_autofree char *out = NULL, *err = NULL;
    g_autoptr(GError) spawn_error = NULL;
    int status;
    if (!g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out, &err, &status,
                      &spawn_error)) {
        return error_set(errp, "%s=%s could not be run: %s", option, script, spawn_error->message);
    }
    if (g_spawn_check_wait_status(status, &spawn_error)) {
        return true;
    }
    g_autofree char *text = g_strconcat(out, err, NULL);
    g_strdelimit(g_strchomp(text), "\r\n", ' ');
    return error_set(errp, "%s=%s failed for interface '%s' (%s)%s%s", option, script, ifname,
                     spawn_error->message, *text ? ": " : "", text);
}

void tap_run_downscript(const char *script, const char *ifname)
{
    GError *err = NULL;
    if (ifname && !run_script("downscript", script, ifname, &err)) {
        warn_report("%s", err->message);
        g_error_free(err);
    }
}

/* The option's script, the default one, or NULL for none. */
static gboolean pick_script(const NetdevTapOptions *o, const char **script, GError **errp)
{
    *script = o->script ? o->script : DEFAULT_SCRIPT;
    if (o->fd || o->fds || o->helper || strcmp(*script, "no") == 0 || **script == 0) {
        *script = NULL;
        return true;
    }
    struct stat st;
    if (!o->script && stat(DEFAULT_SCRIPT, &st) < 0) {
        return error_set(errp,
                         "the default script %s does not exist: give script=no, or script=FILE "
                         "that sets the interface up",
                         DEFAULT_SCRIPT);
    }
    return true;
}

static char *pick_downscript(const NetdevTapOptions *o)
{
    struct stat st;
    if (o->fd || o->fds || o->helper ||
        (o->downscript && (strcmp(o->downscript, "no") == 0 || !*o->downscript))) {
        return NULL;
    }
    if (!o->downscript && stat(DEFAULT_DOWNSCRIPT, &st) < 0) {
        return NULL;
    }
    return g_strdup(o->downscript ? o->downscript : DEFAULT_DOWNSCRIPT);
}

/* ---- checks ---- */

/* Options that are known but not possible, alone or with others. */
static gboolean check_options(const char *id, const NetdevTapOptions *o, GError **errp)
{
    if (!tap_check_vhost_options(id, o, errp)) {
        return false;
    }
    const char *setup = o->ifname         ? "ifname="
                        : o->script       ? "script="
                        : o->downscript   ? "downscript="
                        : o->has_vnet_hdr ? "vnet_hdr="
                        : o->has_queues   ? "queues="
                                          : NULL;
    const char *given = o->fd ? "fd=" : o->fds ? "fds=" : o->helper ? "helper=" : NULL;
    if (given && setup) {
        return error_set(errp, "netdev '%s': %s cannot be used with %s, which is set up already",
                         id, setup, given);
    }
    if (!!o->fd + !!o->fds + !!o->helper > 1) {
        return error_set(errp, "netdev '%s': only one of fd=, fds= and helper= is possible", id);
    }
    if (o->br && !o->helper) {
        return error_set(errp, "netdev '%s': br= is for helper=; -netdev bridge has its own", id);
    }
    if (o->has_queues && (o->queues == 0 || o->queues > QUEUES_MAX)) {
        return error_set(errp, "netdev '%s': queues=%u: 1 to %u are possible", id, o->queues,
                         QUEUES_MAX);
    }
    return true;
}

/* ---- opening ---- */

/* An array of TapDevice in the making: what is in it is closed if it is not used. */
static void close_devices(GArray *devs)
{
    for (unsigned i = 0; i < devs->len; i++) {
        close(g_array_index(devs, TapDevice, i).fd);
    }
    g_array_unref(devs);
}

static gboolean add_fd(GArray *devs, const char *option, const char *text, GError **errp)
{
    TapDevice dev;
    int fd = net_fd_parse(option, text, errp);
    if (fd < 0 || !tap_device_open_fd(&dev, fd, option, text, errp)) {
        return false;
    }
    const TapDevice *first = devs->len ? &g_array_index(devs, TapDevice, 0) : NULL;
    if (first && strcmp(first->ifname, dev.ifname) != 0) {
        return error_set(errp, "%s: fd %s belongs to interface '%s', the first to '%s'", option,
                         text, dev.ifname, first->ifname);
    }
    if (first && first->vnet_hdr != dev.vnet_hdr) {
        return error_set(errp, "%s: fd %s has %s vnet headers, the first has%s", option, text,
                         dev.vnet_hdr ? "" : "no", dev.vnet_hdr ? " none" : "");
    }
    g_array_append_val(devs, dev);
    return true;
}

static gboolean add_fds(GArray *devs, const char *text, GError **errp)
{
    g_auto(GStrv) parts = g_strsplit(text, ":", -1);
    if (!parts[0] || g_strv_length(parts) > QUEUES_MAX) {
        return error_set(errp, "fds=%s: 1 to %u file descriptors, separated by ':', are expected",
                         text, QUEUES_MAX);
    }
    for (char **part = parts; *part; part++) {
        if (!add_fd(devs, "fds", *part, errp)) {
            return false;
        }
    }
    return true;
}

static gboolean add_helper(GArray *devs, const NetdevTapOptions *o, GError **errp)
{
    TapDevice dev;
    int fd = tap_open_helper(o->helper, o->br, errp);
    if (fd < 0) {
        return false;
    }
    if (!tap_device_open_fd(&dev, fd, "helper", o->helper, errp)) {
        close(fd);
        return false;
    }
    g_array_append_val(devs, dev);
    return true;
}

static gboolean add_interface(GArray *devs, const NetdevTapOptions *o, GError **errp)
{
    unsigned queues = o->has_queues ? o->queues : 1;
    TapVnetHdr hdr = !o->has_vnet_hdr ? TAP_VNET_HDR_AUTO
                     : o->vnet_hdr    ? TAP_VNET_HDR_ON
                                      : TAP_VNET_HDR_OFF;
    for (unsigned i = 0; i < queues; i++) {
        TapDevice dev;
        /* The kernel chose a name: further queues are that interface's. */
        const char *ifname = i ? g_array_index(devs, TapDevice, 0).ifname : o->ifname;
        if (!tap_device_open(&dev, ifname, hdr, queues > 1, errp)) {
            return false;
        }
        g_array_append_val(devs, dev);
    }
    return true;
}

static gboolean open_devices(GArray *devs, const NetdevTapOptions *o, GError **errp)
{
    return o->fd       ? add_fd(devs, "fd", o->fd, errp)
           : o->fds    ? add_fds(devs, o->fds, errp)
           : o->helper ? add_helper(devs, o, errp)
                       : add_interface(devs, o, errp);
}

static gboolean set_sndbuf(GArray *devs, const NetdevTapOptions *o, GError **errp)
{
    for (unsigned i = 0; i < devs->len; i++) {
        if (!tap_device_set_sndbuf(&g_array_index(devs, TapDevice, i),
                                   o->has_sndbuf ? o->sndbuf : 0, errp)) {
            return false;
        }
    }
    return true;
}

gboolean net_init_tap(const Netdev *netdev, GError **errp)
{
    const NetdevTapOptions *o = &netdev->u.tap;
    const char *script = NULL;
    if (!check_options(netdev->id, o, errp) || !pick_script(o, &script, errp)) {
        return false;
    }
    GArray *devs = g_array_new(FALSE, FALSE, sizeof(TapDevice));
    g_autoptr(GPtrArray) vhosts = g_ptr_array_new();
    if (!open_devices(devs, o, errp) || !set_sndbuf(devs, o, errp) ||
        !tap_open_vhosts(netdev->id, o, devs, vhosts, errp) ||
        (script && !run_script("script", script, g_array_index(devs, TapDevice, 0).ifname, errp))) {
        if (o->fd || o->fds) {
            g_array_set_size(devs, 0); /* those that were given stay the giver's */
        }
        for (unsigned i = 0; i < vhosts->len; i++) {
            vhost_backend_free(vhosts->pdata[i]);
        }
        close_devices(devs);
        return false;
    }

    char *downscript = pick_downscript(o);
    for (unsigned i = 0; i < devs->len; i++) {
        const TapDevice *dev = &g_array_index(devs, TapDevice, i);
        NetClient *nc = tap_client_new(netdev->id, i, dev, i == 0 ? downscript : NULL);
        tap_client_set_vhost(nc, i < vhosts->len ? vhosts->pdata[i] : NULL);
        if (o->fd || o->fds) {
            net_set_info(nc, "fd=%d", dev->fd);
        } else if (o->helper) {
            net_set_info(nc, "helper=%s", o->helper);
        } else {
            net_set_info(nc, "ifname=%s,script=%s,downscript=%s", dev->ifname,
                         script ? script : "no", downscript ? downscript : "no");
        }
    }
    g_array_unref(devs);
    return true;
}
