/*
 * A NIC's receive filter: which frames a driver wants to see.  Pure: it knows no device.
 *
 * Rules, in order: promiscuous takes all; a VLAN tag (802.1Q) must have its bit set; a broadcast
 * passes unless nobcast; a multicast as nomulti, allmulti or overflow say, else by the table; a
 * unicast as nouni, alluni or overflow say, else if it is the NIC's own or in the table.
 */
#ifndef HW_NET_RX_FILTER_H
#define HW_NET_RX_FILTER_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"

#define RX_FILTER_MACS      64   /* unicast and multicast together, as QEMU's */
#define RX_FILTER_VLANS     4096 /* 802.1Q: 12 bits */
#define RX_FILTER_HEAD_SIZE 18   /* bytes of a frame that the filter looks at */

typedef struct RxFilter {
    bool promisc, allmulti, alluni, nomulti, nouni, nobcast;
    bool uni_overflow, multi_overflow; /* the driver's list did not fit: take all of that kind */
    uint8_t mac[ETH_MAC_LEN];
    unsigned in_use;      /* entries of @macs: unicast in front, multicast from first_multi */
    unsigned first_multi; /* ≤ in_use */
    uint8_t macs[RX_FILTER_MACS][ETH_MAC_LEN];
    uint32_t vlans[RX_FILTER_VLANS / 32];
} RxFilter;

/* As after a reset: promiscuous, tables empty, no VLAN. */
void rx_filter_reset(RxFilter *filter, const uint8_t mac[ETH_MAC_LEN]);
/* All VLANs (a driver that does not filter them), or none. */
void rx_filter_set_all_vlans(RxFilter *filter, bool pass);
void rx_filter_set_vlan(RxFilter *filter, uint16_t vid, bool pass); /* @vid < 4096 */

/* @head: the frame's first bytes, in memory that nobody else can change; zero behind its end. */
bool rx_filter_match(const RxFilter *filter, const uint8_t head[RX_FILTER_HEAD_SIZE]);

/* QAPI's RxFilterInfo for NIC @name.  @vlan_filtering: negotiated by the driver. */
json_object *rx_filter_info(const RxFilter *filter, const char *name, bool vlan_filtering);

#endif
