/*
 * The guest's DHCP client: what it sends is checked by hand-written offsets, and what it receives
 * is built here, byte by byte, then damaged in every way that matters.
 */
#include "guest/dhcp.h"
#include <glib.h>
#include <string.h>

#define XID 0x12345678u

static const uint8_t mac[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};

static uint32_t be(const uint8_t *p, unsigned n)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < n; i++) {
        value = value << 8 | p[i];
    }
    return value;
}

static void put(uint8_t *p, unsigned n, uint32_t value)
{
    for (unsigned i = 0; i < n; i++) {
        p[i] = (uint8_t)(value >> 8 * (n - 1 - i));
    }
}

static uint16_t sum16(const uint8_t *p, size_t n, uint32_t sum)
{
    for (size_t i = 0; i < n; i++) {
        sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
    }
    while (sum >> 16) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    return (uint16_t)sum;
}

/* Pseudo-header (RFC 768) and datagram of a frame with a 20-byte IP header. */
static uint16_t udp_sum(const uint8_t *frame)
{
    uint32_t length = be(frame + 38, 2);
    return sum16(frame + 34, length, sum16(frame + 26, 8, 17 + length));
}

/* An answer as a server sends it, with @options; its size. */
static size_t make_answer(uint8_t *frame, const uint8_t *options, size_t options_size)
{
    size_t size = 14 + 20 + 8 + 240 + options_size;
    memset(frame, 0, size);
    memset(frame, 0xFF, 6);
    put(frame + 12, 2, 0x0800);
    frame[14] = 0x45;
    put(frame + 16, 2, (uint32_t)size - 14);
    frame[22] = 64;
    frame[23] = 17;
    put(frame + 26, 4, 0x0A000202);
    put(frame + 30, 4, 0xFFFFFFFF);
    put(frame + 24, 2, (uint16_t)~sum16(frame + 14, 20, 0));
    put(frame + 34, 2, 67);
    put(frame + 36, 2, 68);
    put(frame + 38, 2, (uint32_t)size - 34);
    uint8_t *bootp = frame + 42;
    bootp[0] = 2;
    bootp[1] = 1;
    bootp[2] = 6;
    put(bootp + 4, 4, XID);
    put(bootp + 16, 4, 0x0A00020F);
    memcpy(bootp + 28, mac, 6);
    put(bootp + 236, 4, 0x63825363);
    memcpy(bootp + 240, options, options_size);
    put(frame + 40, 2, (uint16_t)~udp_sum(frame));
    return size;
}

static const uint8_t ack_options[] = {
    53,  1, 5, 1, 4, 255, 255, 255, 0, 3,  4,   10, 0, 2,  2, 0 /* pad */, 6, 8,   10, 0, 2,
    3,   8, 8, 8, 8, 51,  4,   0,   1, 81, 128, 54, 4, 10, 0, 2,           2, 200, 0, /* unknown,
                                                                                         empty */
    255,
};

/* Parses a copy of exactly @size bytes, so that a sanitizer sees a read beyond them. */
static bool parse(const uint8_t *frame, size_t size, GuestDhcpLease *lease)
{
    g_autofree uint8_t *copy = g_memdup2(frame, size);
    static const uint8_t nothing;
    return guest_dhcp_parse(copy ? copy : &nothing, size, mac, XID, lease);
}

static void test_discover(void)
{
    uint8_t frame[GUEST_DHCP_FRAME_MAX];
    size_t size = guest_dhcp_build(frame, GUEST_DHCP_DISCOVER, mac, XID, NULL);
    g_assert_cmpuint(size, ==, 342);
    g_assert_cmpuint(be(frame, 4), ==, 0xFFFFFFFF);
    g_assert_cmpmem(frame + 6, 6, mac, 6);
    g_assert_cmpuint(be(frame + 12, 2), ==, 0x0800);
    g_assert_cmpuint(be(frame + 16, 2), ==, size - 14);
    g_assert_cmpuint(sum16(frame + 14, 20, 0), ==, 0xFFFF);
    g_assert_cmpuint(be(frame + 34, 4), ==, 68u << 16 | 67);
    g_assert_cmpuint(udp_sum(frame), ==, 0xFFFF);
    g_assert_cmpuint(be(frame + 46, 4), ==, XID);
    g_assert_cmpuint(be(frame + 278, 4), ==, 0x63825363);
    g_assert_cmpmem(frame + 282, 3, "\x35\x01\x01", 3);
}

static void test_request_names_the_offer(void)
{
    uint8_t frame[GUEST_DHCP_FRAME_MAX];
    GuestDhcpLease offer = {.address = 0x0A00020F, .server = 0x0A000202};
    guest_dhcp_build(frame, GUEST_DHCP_REQUEST, mac, XID, &offer);
    static const uint8_t expected[] = {53, 1, 3, 50, 4, 10, 0, 2, 15, 54, 4, 10, 0, 2, 2};
    g_assert_cmpmem(frame + 282, sizeof(expected), expected, sizeof(expected));
    g_assert_cmpuint(udp_sum(frame), ==, 0xFFFF);
}

static void test_ack(void)
{
    uint8_t frame[600];
    GuestDhcpLease lease;
    size_t size = make_answer(frame, ack_options, sizeof(ack_options));
    g_assert_true(parse(frame, size, &lease));
    g_assert_cmpint(lease.type, ==, GUEST_DHCP_ACK);
    g_assert_cmphex(lease.address, ==, 0x0A00020F);
    g_assert_cmphex(lease.netmask, ==, 0xFFFFFF00);
    g_assert_cmphex(lease.router, ==, 0x0A000202);
    g_assert_cmphex(lease.dns, ==, 0x0A000203);
    g_assert_cmphex(lease.server, ==, 0x0A000202);
    g_assert_cmpuint(lease.seconds, ==, 86400);
    /* Ethernet padding after the datagram is no part of it. */
    memset(frame + size, 0xA5, 20);
    g_assert_true(parse(frame, size + 20, &lease));
}

static void test_option_beyond_the_end(void)
{
    static const uint8_t cut_value[] = {53, 1, 5, 1, 4, 255};
    static const uint8_t cut_length[] = {53, 1, 5, 1};
    static const uint8_t without_type[] = {1, 4, 255, 255, 255, 0, 255};
    static const uint8_t short_address[] = {53, 1, 5, 1, 3, 255, 255, 255, 255};
    uint8_t frame[600];
    GuestDhcpLease lease;
    g_assert_false(parse(frame, make_answer(frame, cut_value, sizeof(cut_value)), &lease));
    g_assert_false(parse(frame, make_answer(frame, cut_length, sizeof(cut_length)), &lease));
    g_assert_false(parse(frame, make_answer(frame, without_type, sizeof(without_type)), &lease));
    g_assert_true(parse(frame, make_answer(frame, short_address, sizeof(short_address)), &lease));
    g_assert_cmphex(lease.netmask, ==, 0);
}

static void test_another_clients_answer(void)
{
    uint8_t frame[600];
    GuestDhcpLease lease;
    static const uint8_t other[6] = {0x52, 0x54, 0x00, 0x12, 0x34, 0x57};
    size_t size = make_answer(frame, ack_options, sizeof(ack_options));
    g_assert_false(guest_dhcp_parse(frame, size, other, XID, &lease));
    g_assert_false(guest_dhcp_parse(frame, size, mac, XID + 1, &lease));
}

/* No cut frame is taken for a whole one. */
static void test_truncated(void)
{
    uint8_t frame[600];
    GuestDhcpLease lease;
    size_t size = make_answer(frame, ack_options, sizeof(ack_options));
    for (size_t i = 0; i < size; i++) {
        g_assert_false(parse(frame, i, &lease));
    }
}

/* Every single-bit error behind the Ethernet addresses is found, by a checksum or a check. */
static void test_damaged(void)
{
    uint8_t frame[600];
    GuestDhcpLease lease;
    size_t size = make_answer(frame, ack_options, sizeof(ack_options));
    for (size_t bit = 12 * 8; bit < size * 8; bit++) {
        frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
        g_assert_false(parse(frame, size, &lease));
        frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* Garbage behind headers that look right, with the UDP checksum off, never reads too far. */
static void test_garbage(void)
{
    uint8_t frame[600];
    GuestDhcpLease lease;
    for (unsigned round = 0; round < 20000; round++) {
        uint8_t options[200];
        size_t n = (size_t)g_test_rand_int_range(0, sizeof(options));
        for (size_t i = 0; i < n; i++) {
            options[i] = (uint8_t)g_test_rand_int();
        }
        size_t size = make_answer(frame, options, n);
        put(frame + 40, 2, 0);
        parse(frame, size, &lease);
        for (size_t i = 12; i < size; i++) {
            if (g_test_rand_int_range(0, 32) == 0) {
                frame[i] = (uint8_t)g_test_rand_int();
            }
        }
        parse(frame, (size_t)g_test_rand_int_range(0, (gint32)size + 1), &lease);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/dhcp-client/discover", test_discover);
    g_test_add_func("/dhcp-client/request-names-the-offer", test_request_names_the_offer);
    g_test_add_func("/dhcp-client/ack", test_ack);
    g_test_add_func("/dhcp-client/option-beyond-the-end", test_option_beyond_the_end);
    g_test_add_func("/dhcp-client/another-clients-answer", test_another_clients_answer);
    g_test_add_func("/dhcp-client/truncated", test_truncated);
    g_test_add_func("/dhcp-client/damaged", test_damaged);
    g_test_add_func("/dhcp-client/garbage", test_garbage);
    return g_test_run();
}
