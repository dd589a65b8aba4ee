/*
 * What the files of net/ share and others do not need.
 */
#ifndef NET_NET_INTERNAL_H
#define NET_NET_INTERNAL_H

#include "net/net.h"

/* hubport.c: the hubs' part of info network, and whether it has @nc in it already. */
void net_hub_print_info(GString *out);
bool net_hub_shows_client(const NetClient *nc);
/* The hub that @nc is connected to; -1: none. */
int net_hub_id(const NetClient *nc);
/* Warns of hubs that connect nothing. */
void net_hub_check(void);

/* net.c: plugs two clients together that have no peer yet. */
void net_client_connect(NetClient *nc, NetClient *peer);
/* net.c: hands packets of legal length to @peer and counts them. */
unsigned net_deliver(NetClient *nc, NetClient *peer, NetPacket *pkts, unsigned n);
/* net.c: one client's line of info network. */
void net_client_print(const NetClient *nc, GString *out);

/* net-hmp.c */
void net_register_hmp(void);
/* announce.c: ends all series. */
void net_announce_cleanup(void);

/* The netdev is added by the monitor of a running emulator, which cannot wait for ever. */
extern bool net_at_run_time;

gboolean net_init_user(const Netdev *netdev, GError **errp);
gboolean net_init_tap(const Netdev *netdev, GError **errp);
gboolean net_init_bridge(const Netdev *netdev, GError **errp);
gboolean net_init_l2tpv3(const Netdev *netdev, GError **errp);
gboolean net_init_socket(const Netdev *netdev, GError **errp);
gboolean net_init_stream(const Netdev *netdev, GError **errp);
gboolean net_init_dgram(const Netdev *netdev, GError **errp);
gboolean net_init_vhost_user(const Netdev *netdev, GError **errp);
gboolean net_init_hubport(const Netdev *netdev, GError **errp);

#endif
