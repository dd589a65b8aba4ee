/*
 * The frames that benchmarks send.
 */
#include "guest/bench.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define TCP_OPTIONS 12
#define HEADERS                                                                                    \
    (sizeof(struct ether_header) + sizeof(struct iphdr) + sizeof(struct tcphdr) + TCP_OPTIONS)
#define SEGMENT      1448
#define SHORT_HEADER 10 /* of a packet socket */

static const uint8_t nobody[6] = {0x52, 0x54, 0x00, 0xFF, 0xFF, 0xFE};

static uint32_t sum_words(const void *data, size_t size, uint32_t sum)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i + 1 < size; i += 2) {
        sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
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

/* TCP over IPv4 for the device or the kernel to cut. */
static void fill_gso(BenchFrame *frame)
{
    struct iphdr ip = {
        .version = 4,
        .ihl = 5,
        .tot_len = htons((uint16_t)(frame->size - sizeof(struct ether_header))),
        .ttl = 64,
        .protocol = IPPROTO_TCP,
        .saddr = htonl(0xC0000201), /* 192.0.2.1 and .2: for documentation (RFC 5737) */
        .daddr = htonl(0xC0000202),
    };
    struct tcphdr tcp = {
        .source = htons(40000),
        .dest = htons(9),
        .doff = (sizeof(tcp) + TCP_OPTIONS) / 4,
        .ack = 1,
        .window = htons(65535),
    };
    uint8_t *at = frame->bytes + sizeof(struct ether_header);
    uint32_t sum = sum_words(&ip.saddr, 8, IPPROTO_TCP);
    ip.check = htons((uint16_t)~fold(sum_words(&ip, sizeof(ip), 0)));
    tcp.check =
        htons(fold(sum + (uint32_t)(frame->size - sizeof(struct ether_header) - sizeof(ip))));
    memcpy(at, &ip, sizeof(ip));
    memcpy(at + sizeof(ip), &tcp, sizeof(tcp));
    memcpy(at + sizeof(ip) + sizeof(tcp), "\x01\x01\x08\x0A", 4); /* NOP, NOP, time stamps */
    frame->header = (struct virtio_net_hdr_v1){
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
        .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
        .hdr_len = HEADERS,
        .gso_size = SEGMENT,
        .csum_start = sizeof(struct ether_header) + sizeof(ip),
        .csum_offset = offsetof(struct tcphdr, check),
    };
}

void bench_frame_init(BenchFrame *frame, size_t size, const uint8_t source[static 6])
{
    bool gso = size > BENCH_FULL;
    struct ether_header eth = {.ether_type = htons(gso ? ETHERTYPE_IP : BENCH_TYPE)};
    memcpy(eth.ether_dhost, nobody, 6);
    memcpy(eth.ether_shost, source, 6);
    *frame = (BenchFrame){.bytes = g_malloc0(size), .size = size};
    memcpy(frame->bytes, &eth, sizeof(eth));
    if (gso) {
        fill_gso(frame);
    }
}

void bench_frame_clear(BenchFrame *frame)
{
    g_clear_pointer(&frame->bytes, g_free);
}

int bench_frame_inject(const BenchFrame *frame, int packet_fd, unsigned count)
{
    struct iovec iov[2] = {{(void *)&frame->header, SHORT_HEADER}, {frame->bytes, frame->size}};
    struct mmsghdr messages[BENCH_BATCH];
    count = MIN(count, BENCH_BATCH);
    for (unsigned i = 0; i < count; i++) {
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = iov, .msg_iovlen = 2}};
    }
    int sent = sendmmsg(packet_fd, messages, count, 0);
    /* ENOBUFS: the interface's queue is full for now. */
    return sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) ? 0 : sent;
}
