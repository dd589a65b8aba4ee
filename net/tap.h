/*
 * Taps: the kernel's side (tap-linux.c: fds and flags, no clients), and what the files of tap
 * share.
 */
#ifndef NET_TAP_H
#define NET_TAP_H

#include <glib.h>
#include <linux/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"

typedef enum TapVnetHdr { TAP_VNET_HDR_AUTO, TAP_VNET_HDR_ON, TAP_VNET_HDR_OFF } TapVnetHdr;

typedef struct TapDevice {
    int fd; /* non-blocking, close-on-exec */
    char ifname[IFNAMSIZ];
    bool vnet_hdr;        /* frames carry struct virtio_net_hdr */
    unsigned hdr_len;     /* how long it is (0 without) */
    NetOffloads offloads; /* what the kernel takes in TUNSETOFFLOAD */
} TapDevice;

/* Opens interface @ifname (NULL: the kernel picks tapN), as one queue of several if
 * @multi_queue; or checks and takes @fd, which the user named with @option=@text. */
gboolean tap_device_open(TapDevice *tap, const char *ifname, TapVnetHdr hdr, bool multi_queue,
                         GError **errp);
gboolean tap_device_open_fd(TapDevice *tap, int fd, const char *option, const char *text,
                            GError **errp);

/* Attaches this queue to its interface or detaches it (interfaces with several queues). */
gboolean tap_device_set_queue(TapDevice *tap, bool attached, GError **errp);

bool tap_device_set_hdr_len(TapDevice *tap, unsigned len);
/* Lets the kernel hand over what @offloads says, or as much of it as it can. */
bool tap_device_set_offloads(TapDevice *tap, const NetOffloads *offloads);
gboolean tap_device_set_sndbuf(TapDevice *tap, uint64_t bytes, GError **errp);

/* tap-bridge.c: a tap that program @helper has put on bridge @br (NULL: the default ones); -1
 * with error. */
int tap_open_helper(const char *helper, const char *br, GError **errp);

/* tap.c: client of queue @queue; takes the device and @downscript (NULL: none). */
NetClient *tap_client_new(const char *id, unsigned queue, const TapDevice *dev, char *downscript);

/* The kernel can move this queue's packets; takes @vhost (NULL: it cannot). */
void tap_client_set_vhost(NetClient *nc, VhostBackend *vhost);

/* tap-vhost.c */
typedef struct NetdevTapOptions NetdevTapOptions;
bool tap_wants_vhost(const NetdevTapOptions *o);
gboolean tap_check_vhost_options(const char *id, const NetdevTapOptions *o, GError **errp);
/* Fills @vhosts with one VhostBackend a TapDevice of @devs, or, if vhost is not wanted or (with a
 * warning) not to be had, with none.  False with error: vhostforce=on and not to be had. */
gboolean tap_open_vhosts(const char *id, const NetdevTapOptions *o, GArray *devs,
                         GPtrArray *vhosts, GError **errp);

/* tap-init.c: @ifname NULL: the interface is gone, nothing to do. */
void tap_run_downscript(const char *script, const char *ifname);

#endif
