/*
 * The kernel's side of a tap: what tap.c asks of tap-linux.c.  Bytes and flags, no clients.
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

/* Opens interface @ifname (NULL: the kernel picks tapN), or checks and takes @fd. */
gboolean tap_device_open(TapDevice *tap, const char *ifname, TapVnetHdr hdr, GError **errp);
gboolean tap_device_open_fd(TapDevice *tap, int fd, const char *text, GError **errp);

bool tap_device_set_hdr_len(TapDevice *tap, unsigned len);
/* Lets the kernel hand over what @offloads says, or as much of it as it can. */
bool tap_device_set_offloads(TapDevice *tap, const NetOffloads *offloads);
gboolean tap_device_set_sndbuf(TapDevice *tap, uint64_t bytes, GError **errp);

#endif
