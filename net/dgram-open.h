/* Datagram sockets that dgram and socket open: plain UDP, and multicast groups. */
#ifndef NET_DGRAM_OPEN_H
#define NET_DGRAM_OPEN_H

#include "net/address.h"

/* A UDP socket bound to @local; -1 with error. */
int udp_open(const NetAddress *local, GError **errp);
/* One that receives what is sent to @group, also by this host.  @iface (may be NULL): address of
 * the interface to use.  -1 with error. */
int multicast_open(const NetAddress *group, const NetAddress *iface, GError **errp);
/* A connected datagram socket named by @option=@text; -1 with error. */
int dgram_take_fd(const char *option, const char *text, GError **errp);

#endif
