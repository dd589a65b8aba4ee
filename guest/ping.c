/*
 * ICMP echo: see ping.h.
 *
 * The time of an answer is taken in lwIP's raw receive callback, that is in the thread that
 * received the frame, so the wake-up of the waiting thread is not measured.
 */
#include "guest/ping.h"
#include "guest/lwip-netif.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <lwip/icmp.h>
#include <lwip/inet_chksum.h>
#include <lwip/ip4.h>
#include <lwip/raw.h>
#include <lwip/tcpip.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define PAYLOAD     56
#define INTERVAL_US 50000
#define TIMEOUT_NS  1000000000ll

typedef struct Ping {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    uint16_t id, seq;
    int64_t sent_ns, answer_ns; /* answer_ns 0: none yet */
} Ping;

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* raw_recv_fn: @p starts with the IP header.  1: taken. */
static u8_t receive_echo(void *opaque, struct raw_pcb *pcb, struct pbuf *p, const ip_addr_t *from)
{
    Ping *ping = opaque;
    struct icmp_echo_hdr echo;
    uint8_t version;
    if (pbuf_copy_partial(p, &version, 1, 0) != 1) {
        return 0;
    }
    u16_t header = (u16_t)((version & 15) * 4);
    if (pbuf_copy_partial(p, &echo, sizeof(echo), header) != sizeof(echo) || echo.type != ICMP_ER ||
        echo.id != ping->id) {
        return 0;
    }
    pthread_mutex_lock(&ping->lock);
    if (echo.seqno == ping->seq && !ping->answer_ns) {
        ping->answer_ns = now_ns();
        pthread_cond_signal(&ping->answered);
    }
    pthread_mutex_unlock(&ping->lock);
    pbuf_free(p);
    return 1;
}

static struct pbuf *build_echo(const Ping *ping)
{
    struct pbuf *p = pbuf_alloc(PBUF_IP, sizeof(struct icmp_echo_hdr) + PAYLOAD, PBUF_RAM);
    if (!p) {
        return NULL;
    }
    struct icmp_echo_hdr *echo = p->payload;
    memset(echo, 0, sizeof(*echo));
    echo->type = ICMP_ECHO;
    echo->id = ping->id;
    echo->seqno = ping->seq;
    uint8_t *payload = (uint8_t *)(echo + 1);
    for (unsigned i = 0; i < PAYLOAD; i++) {
        payload[i] = (uint8_t)i;
    }
    echo->chksum = inet_chksum(echo, p->len);
    return p;
}

static err_t send_echo(Ping *ping, struct raw_pcb *pcb, const ip_addr_t *to)
{
    LOCK_TCPIP_CORE();
    struct pbuf *p = build_echo(ping);
    err_t err = ERR_MEM;
    if (p) {
        ping->sent_ns = now_ns();
        err = raw_sendto(pcb, p, to);
        pbuf_free(p);
    }
    UNLOCK_TCPIP_CORE();
    return err;
}

/* The round-trip time in ms; negative: no answer in time. */
static double wait_answer(Ping *ping)
{
    int64_t deadline = ping->sent_ns + TIMEOUT_NS;
    struct timespec ts = {deadline / 1000000000, deadline % 1000000000};
    pthread_mutex_lock(&ping->lock);
    while (!ping->answer_ns && pthread_cond_timedwait(&ping->answered, &ping->lock, &ts) == 0) {
    }
    double ms = ping->answer_ns ? (double)(ping->answer_ns - ping->sent_ns) / 1e6 : -1;
    pthread_mutex_unlock(&ping->lock);
    return ms;
}

static void summarise(PingResult *result, const double *ms)
{
    double sum = 0, squares = 0;
    unsigned n = result->received;
    for (unsigned i = 0; i < n; i++) {
        sum += ms[i];
        squares += ms[i] * ms[i];
        result->min_ms = i ? MIN(result->min_ms, ms[i]) : ms[i];
        result->max_ms = MAX(result->max_ms, ms[i]);
    }
    if (n > 0) {
        result->avg_ms = sum / n;
        result->stddev_ms = sqrt(MAX(squares / n - result->avg_ms * result->avg_ms, 0));
    }
}

static void ping_init(Ping *ping)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&ping->lock, NULL);
    pthread_cond_init(&ping->answered, &attr);
    pthread_condattr_destroy(&attr);
    ping->id = (uint16_t)g_random_int();
}

bool ping_run(uint32_t address, unsigned count, PingResult *result, GError **errp)
{
    Ping ping = {0};
    ping_init(&ping);
    ip_addr_t to = IPADDR4_INIT(lwip_htonl(address));
    g_autofree double *ms = g_new0(double, count);
    err_t err = ERR_OK;
    *result = (PingResult){0};
    LOCK_TCPIP_CORE();
    struct raw_pcb *pcb = raw_new(IP_PROTO_ICMP);
    if (pcb) {
        raw_recv(pcb, receive_echo, &ping);
    }
    UNLOCK_TCPIP_CORE();
    for (unsigned i = 0; pcb && i < count; i++) {
        pthread_mutex_lock(&ping.lock);
        ping.seq = lwip_htons((u16_t)(i + 1));
        ping.answer_ns = 0;
        pthread_mutex_unlock(&ping.lock);
        err = send_echo(&ping, pcb, &to);
        if (err != ERR_OK) {
            break;
        }
        result->sent++;
        double time = wait_answer(&ping);
        if (time >= 0) {
            ms[result->received++] = time;
        }
        if (i + 1 < count) {
            g_usleep(INTERVAL_US);
        }
    }
    if (pcb) {
        LOCK_TCPIP_CORE();
        raw_remove(pcb);
        UNLOCK_TCPIP_CORE();
    }
    summarise(result, ms);
    pthread_cond_destroy(&ping.answered);
    pthread_mutex_destroy(&ping.lock);
    if (!pcb || err != ERR_OK) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "ping: %s",
                    pcb ? guest_netif_strerror(err) : "out of memory");
        return false;
    }
    return true;
}
