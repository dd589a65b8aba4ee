/*
 * -netdev l2tpv3: one session of an L2TPv3 tunnel (RFC 3931) whose numbers are set by hand.
 *
 * The header in front of each frame, big-endian: over UDP first 0x00030000 (a data message of
 * version 3), then the session number, the cookie (32 or 64 bits, if there is one), a counter (if
 * asked for), `offset` bytes of nothing.  Frames move through datagram.c.
 *
 * A frame with another session or cookie is not for us: dropped, counted as a bad header.  The
 * counter is sent and not looked at.  Over IP (protocol 115) an IPv4 socket hands over the IP
 * header too.
 */
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "net/datagram.h"
#include "net/net-internal.h"
#include "util/error.h"

#define PROTOCOL_L2TP 115
#define DATA_MESSAGE  0x00030000
#define OFFSET_MAX    256

typedef struct L2tpClient {
    NetClient nc;
    DatagramLink link;
    DatagramHeader header;
    bool udp, ip_header; /* received datagrams begin with an IPv4 header */
    unsigned cookie_size;
    bool has_counter, pin_counter;
    uint32_t counter;
    uint64_t tx_cookie, rx_cookie;
    uint32_t tx_session, rx_session;
} L2tpClient;

static uint8_t *put32(uint8_t *p, uint32_t value)
{
    value = htobe32(value);
    memcpy(p, &value, sizeof(value));
    return p + sizeof(value);
}

static uint32_t get32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof(value));
    return be32toh(value);
}

static void l2tp_fill(DatagramLink *l, uint8_t *p)
{
    L2tpClient *c = (L2tpClient *)l->nc;
    memset(p, 0, c->header.send_len);
    if (c->udp) {
        p = put32(p, DATA_MESSAGE);
    }
    p = put32(p, c->tx_session);
    if (c->cookie_size == 8) {
        p = put32(p, c->tx_cookie >> 32);
    }
    if (c->cookie_size) {
        p = put32(p, c->tx_cookie);
    }
    if (c->has_counter) {
        put32(p, c->pin_counter ? 0 : ++c->counter);
    }
}

static ssize_t l2tp_check(DatagramLink *l, const uint8_t *data, size_t size)
{
    const L2tpClient *c = (const L2tpClient *)l->nc;
    size_t ip = c->ip_header && size > 0 ? (data[0] & 15) * 4 : 0;
    if (size < ip + c->header.send_len) {
        return -1;
    }
    const uint8_t *p = data + ip + (c->udp ? 4 : 0);
    if (get32(p) != c->rx_session) {
        return -1;
    }
    uint64_t cookie = 0;
    for (unsigned i = 0; i < c->cookie_size; i += 4) {
        cookie = cookie << 32 | get32(p + 4 + i);
    }
    return cookie == c->rx_cookie ? (ssize_t)(ip + c->header.send_len) : -1;
}

static unsigned l2tp_receive(NetClient *nc, NetPacket *pkts, unsigned n)
{
    return datagram_receive(&((L2tpClient *)nc)->link, pkts, n);
}

static bool l2tp_can_receive(NetClient *nc)
{
    return datagram_can_receive(&((L2tpClient *)nc)->link);
}

static void l2tp_peer_writable(NetClient *nc)
{
    datagram_peer_writable(&((L2tpClient *)nc)->link);
}

static void l2tp_set_loop(NetClient *nc, EventLoop *loop)
{
    datagram_set_loop(&((L2tpClient *)nc)->link, loop);
}

static void l2tp_cleanup(NetClient *nc)
{
    datagram_destroy(&((L2tpClient *)nc)->link);
}

static const NetClientOps l2tp_ops = {
    .type = "l2tpv3",
    .instance_size = sizeof(L2tpClient),
    .receive_batch = l2tp_receive,
    .can_receive = l2tp_can_receive,
    .peer_writable = l2tp_peer_writable,
    .set_loop = l2tp_set_loop,
    .cleanup = l2tp_cleanup,
};

/* ---- options ---- */

static gboolean check_options(const NetdevL2TPv3Options *o, GError **errp)
{
    bool udp = o->has_udp && o->udp, cookie64 = o->has_cookie64 && o->cookie64;
    if (o->has_rxcookie != o->has_txcookie) {
        return error_set(errp, "require both 'rxcookie' and 'txcookie' or neither");
    }
    if (cookie64 && !o->has_rxcookie) {
        return error_set(errp, "cookie64=on needs rxcookie= and txcookie=");
    }
    if (!cookie64 && ((o->has_rxcookie && o->rxcookie > UINT32_MAX) ||
                      (o->has_txcookie && o->txcookie > UINT32_MAX))) {
        return error_set(errp, "a cookie above 0xffffffff needs cookie64=on");
    }
    if (udp && !o->dstport) {
        return error_set(errp, "udp=on needs dstport= (and srcport=, unless any will do)");
    }
    if (!udp && (o->srcport || o->dstport)) {
        return error_set(errp, "srcport= and dstport= are for udp=on");
    }
    if (o->has_offset && o->offset > OFFSET_MAX) {
        return error_set(errp, "offset=%u: at most %u bytes are possible", o->offset, OFFSET_MAX);
    }
    return true;
}

static gboolean resolve(const char *option, const char *host, const char *port,
                        const NetdevL2TPv3Options *o, bool passive, NetAddress *out, GError **errp)
{
    struct addrinfo *list, hints = {
                               .ai_family = o->has_ipv6 && o->ipv6 ? AF_INET6 : AF_INET,
                               .ai_socktype = SOCK_DGRAM,
                               .ai_flags = passive ? AI_PASSIVE : 0,
                           };
    /* Without UDP a port means nothing: 0 makes a whole address. */
    int rc = getaddrinfo(*host ? host : NULL, port ? port : "0", &hints, &list);
    if (rc != 0) {
        return error_set(errp, "%s=%s%s%s: %s", option, host, port ? ":" : "", port ? port : "",
                         gai_strerror(rc));
    }
    out->size = list->ai_addrlen;
    memcpy(&out->u, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return true;
}

static int open_socket(const NetdevL2TPv3Options *o, const NetAddress *src, GError **errp)
{
    bool udp = o->has_udp && o->udp;
    int fd = socket_open(src->u.sa.sa_family, udp ? SOCK_DGRAM : SOCK_RAW, udp ? 0 : PROTOCOL_L2TP);
    if (fd < 0) {
        int errnum = errno;
        error_set_errno(errp, errnum, "l2tpv3%s",
                        errnum == EPERM ? " over IP needs CAP_NET_RAW (udp=on does not)" : "");
        return -1;
    }
    if (bind(fd, &src->u.sa, src->size) < 0) {
        error_set_errno(errp, errno, "src=%s", o->src);
        close(fd);
        return -1;
    }
    return fd;
}

static void set_header(L2tpClient *c, const NetdevL2TPv3Options *o)
{
    c->udp = o->has_udp && o->udp;
    c->ip_header = !c->udp && !(o->has_ipv6 && o->ipv6);
    c->cookie_size = !o->has_rxcookie ? 0 : o->has_cookie64 && o->cookie64 ? 8 : 4;
    c->has_counter = o->has_counter && o->counter;
    c->pin_counter = o->has_pincounter && o->pincounter;
    c->has_counter |= c->pin_counter;
    c->tx_cookie = o->has_txcookie ? o->txcookie : 0;
    c->rx_cookie = o->has_rxcookie ? o->rxcookie : 0;
    c->tx_session = o->txsession;
    c->rx_session = o->has_rxsession ? o->rxsession : o->txsession;
    c->header = (DatagramHeader){
        .send_len = (c->udp ? 4 : 0) + 4 + c->cookie_size + (c->has_counter ? 4 : 0) +
                    (o->has_offset ? o->offset : 0),
        .fill = l2tp_fill,
        .check = l2tp_check,
    };
}

gboolean net_init_l2tpv3(const Netdev *netdev, GError **errp)
{
    const NetdevL2TPv3Options *o = &netdev->u.l2tpv3;
    NetAddress src, dst;
    if (!check_options(o, errp) || !resolve("src", o->src, o->srcport, o, true, &src, errp) ||
        !resolve("dst", o->dst, o->dstport, o, false, &dst, errp)) {
        return false;
    }
    int fd = open_socket(o, &src, errp);
    if (fd < 0) {
        return false;
    }
    L2tpClient *c = (L2tpClient *)net_client_new(&l2tp_ops, NULL, "l2tpv3", netdev->id);
    set_header(c, o);
    datagram_init(&c->link, &c->nc, fd, &c->header);
    c->link.to = dst;
    net_set_info(&c->nc, "l2tpv3: connected");
    return true;
}
