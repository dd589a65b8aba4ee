/*
 * Putting TCP segments together: see tx-merge.h.
 */
#include "guest/tx-merge.h"
#include <string.h>

#define ETH       14
#define IP        20
#define IP_AT     ETH
#define TCP_AT    (ETH + IP)
#define TCP_MIN   20
#define PROTO_TCP 6
#define FLAG_PSH  0x08
#define FLAG_ACK  0x10

static unsigned get16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static void put16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static size_t headers_of(const uint8_t *frame)
{
    return TCP_AT + (size_t)(frame[TCP_AT + 12] >> 4) * 4;
}

bool tx_merge_can_hold(const uint8_t *frame, size_t size)
{
    if (size < TCP_AT + TCP_MIN || size > TX_MERGE_MAX || get16(frame + 12) != 0x0800 ||
        frame[IP_AT] != 0x45 || frame[IP_AT + 9] != PROTO_TCP) {
        return false;
    }
    bool fragment = get16(frame + IP_AT + 6) & 0x3FFF;
    bool exact = get16(frame + IP_AT + 2) == size - ETH; /* no padding */
    return !fragment && exact && headers_of(frame) >= TCP_AT + TCP_MIN &&
           headers_of(frame) < size && (frame[TCP_AT + 13] & (uint8_t)~FLAG_PSH) == FLAG_ACK;
}

/* Equal but for lengths, identification, checksums, sequence number and PSH. */
static bool same_flow(const uint8_t *a, const uint8_t *b, size_t headers)
{
    return memcmp(a, b, IP_AT + 2) == 0 &&
           memcmp(a + IP_AT + 6, b + IP_AT + 6, 4) == 0 &&       /* fragment, TTL, protocol */
           memcmp(a + IP_AT + 12, b + IP_AT + 12, 8 + 4) == 0 && /* addresses, ports */
           memcmp(a + TCP_AT + 8, b + TCP_AT + 8, 5) == 0 &&     /* acknowledgement, offset */
           memcmp(a + TCP_AT + 14, b + TCP_AT + 14, 2) == 0 &&   /* window */
           memcmp(a + TCP_AT + 18, b + TCP_AT + 18, headers - TCP_AT - 18) == 0;
}

static void hold(TxMerge *merge, const uint8_t *frame, size_t size)
{
    memcpy(merge->bytes, frame, size);
    merge->size = size;
    merge->headers = headers_of(frame);
    merge->segment = size - merge->headers;
    merge->segments = 1;
    merge->closed = false;
}

bool tx_merge_add(TxMerge *merge, const uint8_t *frame, size_t size)
{
    if (!tx_merge_can_hold(frame, size)) {
        return false;
    }
    if (merge->size == 0) {
        hold(merge, frame, size);
        return true;
    }
    size_t headers = merge->headers, bytes = size - headers_of(frame);
    uint32_t next = get32(merge->bytes + TCP_AT + 4) + (uint32_t)(merge->size - headers);
    if (merge->closed || headers_of(frame) != headers || bytes > merge->segment ||
        merge->size + bytes > TX_MERGE_MAX || get32(frame + TCP_AT + 4) != next ||
        !same_flow(merge->bytes, frame, headers)) {
        return false;
    }
    memcpy(merge->bytes + merge->size, frame + headers, bytes);
    merge->size += bytes;
    merge->segments++;
    merge->bytes[TCP_AT + 13] |= frame[TCP_AT + 13] & FLAG_PSH;
    merge->closed = bytes < merge->segment || frame[TCP_AT + 13] & FLAG_PSH;
    return true;
}

static uint32_t add_words(const uint8_t *data, size_t size, uint32_t sum)
{
    for (size_t i = 0; i < size; i += 2) {
        sum += get16(data + i);
    }
    return sum;
}

static uint16_t fold(uint32_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    return (uint16_t)sum;
}

void tx_merge_finish(TxMerge *merge)
{
    uint8_t *ip = merge->bytes + IP_AT, *tcp = merge->bytes + TCP_AT;
    memset(&merge->header, 0, sizeof(merge->header));
    if (merge->segments < 2) {
        return; /* complete as it came */
    }
    put16(ip + 2, (unsigned)(merge->size - ETH));
    put16(ip + 10, 0);
    put16(ip + 10, (uint16_t)~fold(add_words(ip, IP, 0)));
    put16(tcp + 16, fold(add_words(ip + 12, 8, PROTO_TCP + (uint32_t)(merge->size - TCP_AT))));
    merge->header = (struct virtio_net_hdr_v1){
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
        .hdr_len = (uint16_t)merge->headers,
        .gso_size = (uint16_t)merge->segment,
        .csum_start = TCP_AT,
        .csum_offset = 16,
    };
}
