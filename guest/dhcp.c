/*
 * DHCP client: see dhcp.h.
 *
 * DISCOVER → OFFER → REQUEST → ACK, each sent again after 200 ms, 400 ms … without an answer.
 * The first offer is taken.  The lease is never renewed: a guest of ours lives shorter.
 */
#include "guest/dhcp.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <string.h>

#define ETH_SIZE       14
#define IP_SIZE        20
#define UDP_SIZE       8
#define BOOTP_OFFSET   (ETH_SIZE + IP_SIZE + UDP_SIZE)
#define OPTIONS_OFFSET (BOOTP_OFFSET + 240) /* 236 bytes of BOOTP and the cookie */
#define SERVER_PORT    67
#define CLIENT_PORT    68
#define COOKIE         0x63825363u
#define MAX_RECEIVED   1514

/* RFC 2132 option codes. */
enum {
    OPTION_PAD = 0,
    OPTION_NETMASK = 1,
    OPTION_ROUTER = 3,
    OPTION_DNS = 6,
    OPTION_ADDRESS = 50,
    OPTION_LEASE_TIME = 51,
    OPTION_TYPE = 53,
    OPTION_SERVER = 54,
    OPTION_PARAMETERS = 55,
    OPTION_END = 255,
};

static void put16(uint8_t *p, uint16_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static void put32(uint8_t *p, uint32_t value)
{
    put16(p, (uint16_t)(value >> 16));
    put16(p + 2, (uint16_t)value);
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

/* Ones' complement sum of @size bytes, added to @sum and folded. */
static uint32_t add_checksum(uint32_t sum, const uint8_t *p, size_t size)
{
    for (size_t i = 0; i + 1 < size; i += 2) {
        sum += get16(p + i);
    }
    if (size & 1) {
        sum += (uint32_t)p[size - 1] << 8;
    }
    while (sum >> 16) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    return sum;
}

/* Sum over pseudo-header and datagram; 0xFFFF for a datagram with a right checksum in it. */
static uint32_t udp_sum(const uint8_t *ip, const uint8_t *udp, size_t udp_size)
{
    uint8_t pseudo[4] = {0, 17};
    put16(pseudo + 2, (uint16_t)udp_size);
    uint32_t sum = add_checksum(0, ip + 12, 8);
    return add_checksum(add_checksum(sum, pseudo, 4), udp, udp_size);
}

static uint8_t *put_option32(uint8_t *p, uint8_t code, uint32_t value)
{
    p[0] = code;
    p[1] = 4;
    put32(p + 2, value);
    return p + 6;
}

static void fill_headers(uint8_t *frame, const uint8_t *mac)
{
    memset(frame, 0xFF, 6);
    memcpy(frame + 6, mac, 6);
    put16(frame + 12, 0x0800);
    uint8_t *ip = frame + ETH_SIZE;
    ip[0] = 0x45;
    put16(ip + 2, GUEST_DHCP_FRAME_MAX - ETH_SIZE);
    ip[8] = 64;
    ip[9] = 17;
    put32(ip + 16, 0xFFFFFFFFu);
    put16(ip + 10, (uint16_t)~add_checksum(0, ip, IP_SIZE));
    uint8_t *udp = ip + IP_SIZE;
    put16(udp, CLIENT_PORT);
    put16(udp + 2, SERVER_PORT);
    put16(udp + 4, GUEST_DHCP_FRAME_MAX - ETH_SIZE - IP_SIZE);
}

size_t guest_dhcp_build(uint8_t frame[static GUEST_DHCP_FRAME_MAX], GuestDhcpType type,
                        const uint8_t mac[static 6], uint32_t xid, const GuestDhcpLease *offer)
{
    static const uint8_t parameters[] = {OPTION_NETMASK, OPTION_ROUTER, OPTION_DNS};
    memset(frame, 0, GUEST_DHCP_FRAME_MAX);
    fill_headers(frame, mac);
    uint8_t *bootp = frame + BOOTP_OFFSET;
    bootp[0] = 1; /* BOOTREQUEST */
    bootp[1] = 1; /* Ethernet */
    bootp[2] = 6;
    put32(bootp + 4, xid);
    put16(bootp + 10, 0x8000); /* answer by broadcast */
    memcpy(bootp + 28, mac, 6);
    put32(bootp + 236, COOKIE);
    uint8_t *p = frame + OPTIONS_OFFSET;
    *p++ = OPTION_TYPE;
    *p++ = 1;
    *p++ = (uint8_t)type;
    if (type == GUEST_DHCP_REQUEST && offer) {
        p = put_option32(p, OPTION_ADDRESS, offer->address);
        p = put_option32(p, OPTION_SERVER, offer->server);
    }
    *p++ = OPTION_PARAMETERS;
    *p++ = sizeof(parameters);
    memcpy(p, parameters, sizeof(parameters));
    p[sizeof(parameters)] = OPTION_END;
    uint8_t *ip = frame + ETH_SIZE, *udp = ip + IP_SIZE;
    uint16_t sum = (uint16_t)~udp_sum(ip, udp, GUEST_DHCP_FRAME_MAX - ETH_SIZE - IP_SIZE);
    put16(udp + 6, sum ? sum : 0xFFFF);
    return GUEST_DHCP_FRAME_MAX;
}

/* Finds the DHCP message in an Ethernet frame; NULL: it is none, or damaged. */
static const uint8_t *find_message(const uint8_t *frame, size_t size, size_t *message_size)
{
    if (size < OPTIONS_OFFSET || get16(frame + 12) != 0x0800) {
        return NULL;
    }
    const uint8_t *ip = frame + ETH_SIZE;
    size_t ip_header = (size_t)(ip[0] & 15) * 4, ip_size = get16(ip + 2);
    if (ip[0] >> 4 != 4 || ip_header < IP_SIZE || ip_size > size - ETH_SIZE ||
        ip_size < ip_header + UDP_SIZE + 240 || ip[9] != 17 || (get16(ip + 6) & 0x3FFF) != 0 ||
        add_checksum(0, ip, ip_header) != 0xFFFF) {
        return NULL;
    }
    const uint8_t *udp = ip + ip_header;
    size_t udp_size = get16(udp + 4);
    if (get16(udp) != SERVER_PORT || get16(udp + 2) != CLIENT_PORT || udp_size < UDP_SIZE + 240 ||
        udp_size > ip_size - ip_header ||
        (get16(udp + 6) != 0 && udp_sum(ip, udp, udp_size) != 0xFFFF)) {
        return NULL;
    }
    *message_size = udp_size - UDP_SIZE;
    return udp + UDP_SIZE;
}

static void note_option(GuestDhcpLease *lease, uint8_t code, const uint8_t *value, uint8_t size)
{
    if (code == OPTION_TYPE && size == 1) {
        lease->type = (GuestDhcpType)value[0];
        return;
    }
    if (size < 4) {
        return;
    }
    switch (code) {
    case OPTION_NETMASK:
        lease->netmask = get32(value);
        break;
    case OPTION_ROUTER:
        lease->router = get32(value);
        break;
    case OPTION_DNS:
        lease->dns = get32(value);
        break;
    case OPTION_LEASE_TIME:
        lease->seconds = get32(value);
        break;
    case OPTION_SERVER:
        lease->server = get32(value);
        break;
    default:
        break;
    }
}

/* False when an option reaches beyond the message. */
static bool parse_options(const uint8_t *options, size_t size, GuestDhcpLease *lease)
{
    for (size_t at = 0; at < size && options[at] != OPTION_END;) {
        if (options[at] == OPTION_PAD) {
            at++;
            continue;
        }
        if (at + 2 > size || at + 2 + options[at + 1] > size) {
            return false;
        }
        note_option(lease, options[at], options + at + 2, options[at + 1]);
        at += 2u + options[at + 1];
    }
    return true;
}

bool guest_dhcp_parse(const uint8_t *frame, size_t size, const uint8_t mac[static 6], uint32_t xid,
                      GuestDhcpLease *lease)
{
    size_t message_size;
    const uint8_t *message = find_message(frame, size, &message_size);
    if (!message || message[0] != 2 || message[1] != 1 || message[2] != 6 ||
        get32(message + 4) != xid || memcmp(message + 28, mac, 6) != 0 ||
        get32(message + 236) != COOKIE) {
        return false;
    }
    *lease = (GuestDhcpLease){.address = get32(message + 16)};
    return parse_options(message + 240, message_size - 240, lease) &&
           (lease->type == GUEST_DHCP_OFFER || lease->type == GUEST_DHCP_ACK ||
            lease->type == GUEST_DHCP_NAK);
}

typedef struct DhcpExchange {
    const uint8_t *mac;
    uint32_t xid;
    bool answered;
    GuestDhcpLease answer;
} DhcpExchange;

/* NetDriverReceiveFunc: keeps the first DHCP answer, ignores everything else. */
static void receive_answer(void *opaque, const NetDriverFrame *frame)
{
    DhcpExchange *exchange = opaque;
    uint8_t bytes[MAX_RECEIVED];
    if (exchange->answered || frame->size > sizeof(bytes)) {
        return;
    }
    size_t size = 0;
    for (unsigned i = 0; i < frame->iovcnt; i++) {
        memcpy(bytes + size, frame->iov[i].iov_base, frame->iov[i].iov_len);
        size += frame->iov[i].iov_len;
    }
    exchange->answered =
        guest_dhcp_parse(bytes, size, exchange->mac, exchange->xid, &exchange->answer);
}

/* Sends @type until an answer comes; false at @deadline (monotonic µs) or a broken device. */
static bool exchange_messages(NetDriver *driver, DhcpExchange *exchange, GuestDhcpType type,
                              gint64 deadline)
{
    GuestDhcpLease offer = exchange->answer;
    exchange->answered = false;
    for (gint64 patience = 200000; !exchange->answered; patience *= 2) {
        uint8_t frame[GUEST_DHCP_FRAME_MAX];
        size_t size = guest_dhcp_build(frame, type, exchange->mac, exchange->xid, &offer);
        net_driver_send(driver, NULL, &(struct iovec){frame, size}, 1);
        net_driver_flush(driver);
        gint64 retry = MIN(g_get_monotonic_time() + patience, deadline);
        while (!exchange->answered && g_get_monotonic_time() < retry) {
            if (net_driver_receive(driver, 64, receive_answer, exchange) == 0) {
                net_driver_wait(driver, 10000);
            }
        }
        if (!exchange->answered &&
            (g_get_monotonic_time() >= deadline || !net_driver_check(driver, NULL))) {
            return false;
        }
    }
    return true;
}

bool guest_dhcp_run(NetDriver *driver, unsigned timeout_ms, GuestDhcpLease *lease, GError **errp)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)timeout_ms * 1000;
    DhcpExchange exchange = {.mac = net_driver_mac(driver), .xid = g_random_int()};
    const char *waited_for = "DHCPOFFER";
    bool ok = exchange_messages(driver, &exchange, GUEST_DHCP_DISCOVER, deadline);
    if (ok && exchange.answer.type == GUEST_DHCP_OFFER) {
        waited_for = "DHCPACK";
        ok = exchange_messages(driver, &exchange, GUEST_DHCP_REQUEST, deadline);
    }
    if (!ok) {
        if (net_driver_check(driver, errp)) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_TIMED_OUT, "no %s within %u ms", waited_for,
                        timeout_ms);
        }
        return false;
    }
    if (exchange.answer.type != GUEST_DHCP_ACK || exchange.answer.address == 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "the DHCP server refused (message type %d)", exchange.answer.type);
        return false;
    }
    *lease = exchange.answer;
    return true;
}

char *guest_address_format(uint32_t address, char text[static 16])
{
    g_snprintf(text, 16, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255,
               address & 255);
    return text;
}
