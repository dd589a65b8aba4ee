/*
 * A DHCP client (RFC 2131) on raw Ethernet frames.
 *
 * It runs below the TCP/IP stack, before that has an address: lwIP drops what is addressed to a
 * lease it does not hold yet.  Building and parsing are functions of bytes alone, so tests and
 * fuzzers can call them; the client runs them over a NetDriver.
 */
#ifndef GUEST_DHCP_H
#define GUEST_DHCP_H

#include "guest/net-driver.h"

#define GUEST_DHCP_FRAME_MAX 342 /* Ethernet 14 + IP 20 + UDP 8 + the 300 bytes BOOTP asks for */

typedef enum GuestDhcpType {
    GUEST_DHCP_DISCOVER = 1,
    GUEST_DHCP_OFFER = 2,
    GUEST_DHCP_REQUEST = 3,
    GUEST_DHCP_ACK = 5,
    GUEST_DHCP_NAK = 6,
    GUEST_DHCP_RELEASE = 7,
} GuestDhcpType;

/* Addresses in host byte order; 0: not given. */
typedef struct GuestDhcpLease {
    GuestDhcpType type; /* of the message it was parsed from */
    uint32_t address, netmask, router, dns, server;
    uint32_t seconds;
} GuestDhcpLease;

/*
 * A broadcast DISCOVER or REQUEST; a REQUEST names the address and server of @offer.  Bytes
 * written to @frame.
 */
size_t guest_dhcp_build(uint8_t frame[static GUEST_DHCP_FRAME_MAX], GuestDhcpType type,
                        const uint8_t mac[static 6], uint32_t xid, const GuestDhcpLease *offer);
/* False: not a whole, correct DHCP answer to @mac's @xid. */
bool guest_dhcp_parse(const uint8_t *frame, size_t size, const uint8_t mac[static 6], uint32_t xid,
                      GuestDhcpLease *lease);

/* Obtains a lease, retrying, within @timeout_ms. */
bool guest_dhcp_run(NetDriver *driver, unsigned timeout_ms, GuestDhcpLease *lease, GError **errp);

/* "10.0.2.15"; @text holds at least 16 bytes and is returned. */
char *guest_address_format(uint32_t address, char text[static 16]);

#endif
