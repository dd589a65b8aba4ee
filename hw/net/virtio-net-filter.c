/*
 * Receive filter: decides for each frame whether the driver wants it, from a copy of its first
 * bytes, and describes itself for query-rx-filter.
 *
 * It does not parse what drivers send (virtio-net-ctrl.c) and counts nothing (virtio-net-rx.c).
 */
#include <stdio.h>
#include <string.h>

#include "hw/net/rx-filter.h"
#include "util/json.h"

void rx_filter_reset(RxFilter *filter, const uint8_t mac[ETH_MAC_LEN])
{
    memset(filter, 0, sizeof(*filter));
    /* virtio 1.2, 5.1.6.5.1 leaves the start to the device; drivers that never set a mode (and
     * firmware is full of them) need everything. */
    filter->promisc = true;
    memcpy(filter->mac, mac, ETH_MAC_LEN);
}

void rx_filter_set_all_vlans(RxFilter *filter, bool pass)
{
    memset(filter->vlans, pass ? 0xff : 0, sizeof(filter->vlans));
}

void rx_filter_set_vlan(RxFilter *filter, uint16_t vid, bool pass)
{
    uint32_t bit = UINT32_C(1) << (vid % 32);

    if (vid >= RX_FILTER_VLANS) {
        return;
    }
    if (pass) {
        filter->vlans[vid / 32] |= bit;
    } else {
        filter->vlans[vid / 32] &= ~bit;
    }
}

static bool filter_has_vlan(const RxFilter *filter, unsigned vid)
{
    return filter->vlans[vid / 32] >> (vid % 32) & 1;
}

/* Is @mac among entries @from up to @to? */
static bool filter_lists(const RxFilter *filter, unsigned from, unsigned to, const uint8_t *mac)
{
    for (unsigned i = from; i < to; i++) {
        if (!memcmp(filter->macs[i], mac, ETH_MAC_LEN)) {
            return true;
        }
    }
    return false;
}

static bool match_multicast(const RxFilter *filter, const uint8_t *mac)
{
    static const uint8_t broadcast[ETH_MAC_LEN] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

    if (!memcmp(mac, broadcast, ETH_MAC_LEN)) {
        return !filter->nobcast;
    }
    if (filter->nomulti) {
        return false;
    }
    return filter->allmulti || filter->multi_overflow ||
           filter_lists(filter, filter->first_multi, filter->in_use, mac);
}

static bool match_unicast(const RxFilter *filter, const uint8_t *mac)
{
    if (filter->nouni) {
        return false;
    }
    return filter->alluni || filter->uni_overflow || !memcmp(mac, filter->mac, ETH_MAC_LEN) ||
           filter_lists(filter, 0, filter->first_multi, mac);
}

bool rx_filter_match(const RxFilter *filter, const uint8_t head[RX_FILTER_HEAD_SIZE])
{
    if (filter->promisc) {
        return true;
    }
    if (head[12] == 0x81 && head[13] == 0x00) {
        unsigned vid = (head[14] << 8 | head[15]) & (RX_FILTER_VLANS - 1);

        if (!filter_has_vlan(filter, vid)) {
            return false;
        }
    }
    return head[0] & 1 ? match_multicast(filter, head) : match_unicast(filter, head);
}

static json_object *mac_to_json(const uint8_t *mac)
{
    char text[3 * ETH_MAC_LEN];

    snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
             mac[4], mac[5]);
    return json_object_new_string(text);
}

static json_object *macs_to_json(const RxFilter *filter, unsigned from, unsigned to)
{
    json_object *list = json_object_new_array();

    for (unsigned i = from; i < to; i++) {
        json_object_array_add(list, mac_to_json(filter->macs[i]));
    }
    return list;
}

/* Highest first, as in the documentation's example of query-rx-filter. */
static json_object *vlans_to_json(const RxFilter *filter)
{
    json_object *list = json_object_new_array();

    for (unsigned vid = RX_FILTER_VLANS; vid-- > 0;) {
        if (filter_has_vlan(filter, vid)) {
            json_object_array_add(list, json_object_new_int((int)vid));
        }
    }
    return list;
}

static const char *kind_state(bool none, bool all)
{
    return none ? "none" : all ? "all" : "normal";
}

json_object *rx_filter_info(const RxFilter *filter, const char *name, bool vlan_filtering)
{
    json_object *info = json_object_new_object();
    json_object *vlans = vlans_to_json(filter);
    bool no_vlan = json_object_array_length(vlans) == 0;

    json_put_string(info, "name", name);
    json_put_bool(info, "promiscuous", filter->promisc);
    json_put_string(info, "multicast", kind_state(filter->nomulti, filter->allmulti));
    json_put_string(info, "unicast", kind_state(filter->nouni, filter->alluni));
    json_put_string(info, "vlan", kind_state(vlan_filtering && no_vlan, !vlan_filtering));
    json_put_bool(info, "broadcast-allowed", !filter->nobcast);
    json_put_bool(info, "multicast-overflow", filter->multi_overflow);
    json_put_bool(info, "unicast-overflow", filter->uni_overflow);
    json_object_object_add(info, "main-mac", mac_to_json(filter->mac));
    json_object_object_add(info, "vlan-table", vlans);
    json_object_object_add(info, "unicast-table", macs_to_json(filter, 0, filter->first_multi));
    json_object_object_add(info, "multicast-table",
                           macs_to_json(filter, filter->first_multi, filter->in_use));
    return info;
}
