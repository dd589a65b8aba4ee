/*
 * HTTP GET over lwIP's netconn interface: see http.h.
 *
 * The head is gathered until it is whole; every byte after it goes to the checksum straight from
 * lwIP's buffers.
 */
#include "guest/http.h"
#include "guest/http-head.h"
#include "guest/lwip-netif.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <lwip/api.h>
#include <string.h>

#define RECEIVE_TIMEOUT_MS 10000

typedef struct HttpTransfer {
    struct netconn *conn;
    GByteArray *head_bytes;
    HttpHead head;
    bool in_body;
    GChecksum *checksum;
    uint64_t received;
} HttpTransfer;

static bool fail(GError **errp, const char *what, err_t err)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "HTTP: %s: %s", what,
                guest_netif_strerror(err));
    return false;
}

static bool send_request(HttpTransfer *t, uint32_t address, uint16_t port, const char *path,
                         GError **errp)
{
    ip_addr_t to = IPADDR4_INIT(lwip_htonl(address));
    char text[16];
    err_t err = netconn_connect(t->conn, &to, port);
    if (err != ERR_OK) {
        return fail(errp, "connect", err);
    }
    g_autofree char *request =
        g_strdup_printf("GET %s HTTP/1.1\r\nHost: %s:%u\r\nUser-Agent: swnic-guest\r\n"
                        "Connection: close\r\n\r\n",
                        path, guest_address_format(address, text), port);
    err = netconn_write(t->conn, request, strlen(request), NETCONN_COPY);
    return err == ERR_OK || fail(errp, "request", err);
}

static void add_body(HttpTransfer *t, const uint8_t *data, size_t size)
{
    if (t->head.has_length) {
        size = MIN(size, t->head.length - t->received);
    }
    g_checksum_update(t->checksum, data, (gssize)size);
    t->received += size;
}

static bool add_head(HttpTransfer *t, const uint8_t *data, size_t size, GError **errp)
{
    g_byte_array_append(t->head_bytes, data, (guint)size);
    ssize_t used =
        http_head_parse((const char *)t->head_bytes->data, t->head_bytes->len, &t->head, errp);
    if (used <= 0) {
        return used == 0;
    }
    if (t->head.status != 200) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "HTTP: the server answered %u",
                    t->head.status);
        return false;
    }
    t->in_body = true;
    add_body(t, t->head_bytes->data + used, t->head_bytes->len - (size_t)used);
    return true;
}

static bool is_complete(const HttpTransfer *t)
{
    return t->in_body && t->head.has_length && t->received == t->head.length;
}

/* One piece from the connection.  *@ended: the server closed it. */
static bool receive_piece(HttpTransfer *t, bool *ended, GError **errp)
{
    struct pbuf *p;
    err_t err = netconn_recv_tcp_pbuf(t->conn, &p);
    if (err == ERR_CLSD) {
        *ended = true;
        return true;
    }
    if (err != ERR_OK) {
        return fail(errp, "receive", err);
    }
    bool ok = true;
    for (struct pbuf *q = p; q && ok; q = q->next) {
        if (t->in_body) {
            add_body(t, q->payload, q->len);
        } else {
            ok = add_head(t, q->payload, q->len, errp);
        }
    }
    pbuf_free(p);
    return ok;
}

static bool receive_response(HttpTransfer *t, HttpProgressFunc *progress, void *opaque,
                             GError **errp)
{
    bool ended = false;
    while (!ended && !is_complete(t)) {
        if (!receive_piece(t, &ended, errp)) {
            return false;
        }
        if (t->in_body && progress) {
            progress(opaque, t->received, t->head.has_length ? t->head.length : 0);
        }
    }
    if (!t->in_body || (t->head.has_length && !is_complete(t))) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "HTTP: the server closed after %" PRIu64 " of %" PRIu64 " bytes", t->received,
                    t->head.length);
        return false;
    }
    return true;
}

bool http_get(uint32_t address, uint16_t port, const char *path, HttpProgressFunc *progress,
              void *opaque, HttpResult *result, GError **errp)
{
    HttpTransfer t = {.conn = netconn_new(NETCONN_TCP)};
    *result = (HttpResult){0};
    if (!t.conn) {
        return fail(errp, "connection", ERR_MEM);
    }
    t.head_bytes = g_byte_array_new();
    t.checksum = g_checksum_new(G_CHECKSUM_SHA256);
    netconn_set_recvtimeout(t.conn, RECEIVE_TIMEOUT_MS);
    gint64 start = g_get_monotonic_time();
    bool ok =
        send_request(&t, address, port, path, errp) && receive_response(&t, progress, opaque, errp);
    if (ok) {
        result->size = t.received;
        result->seconds = (double)(g_get_monotonic_time() - start) / 1e6;
        result->sha256 = g_strdup(g_checksum_get_string(t.checksum));
    }
    netconn_delete(t.conn);
    g_checksum_free(t.checksum);
    g_byte_array_unref(t.head_bytes);
    return ok;
}
