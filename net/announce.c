/*
 * announce-self: gratuitous RARP frames that tell switches where a NIC is now.
 *
 * The first goes at once, the others after waits that grow from `initial` by `step` to at most
 * `max`.  Time is the host's: it is about switches outside, also while the guest stands still.
 * Several series may run side by side, told apart by their id; a new one replaces one of its
 * name, and rounds=0 ends it.  A NIC whose driver can announce by itself is asked to as well.
 *
 * A frame that the peer does not take at once is dropped and counted: another follows.
 */
#include <string.h>

#include "net/net-internal.h"
#include "qapi/qapi-commands.h"
#include "util/error.h"

#define RARP_SIZE    60 /* the shortest Ethernet frame, without its checksum */
#define VNET_HDR_MAX 64

typedef struct Announcement {
    char *id;
    GStrv interfaces; /* NULL: all NICs */
    int64_t initial_ms, max_ms, step_ms;
    int64_t rounds, done;
    Timer timer;
} Announcement;

static GPtrArray *series;

/* RFC 903: "reverse request", everything about our own MAC. */
static void rarp_fill(uint8_t *frame, const uint8_t *mac)
{
    static const uint8_t head[] = {0x80, 0x35, 0, 1, 8, 0, ETH_MAC_LEN, 4, 0, 3};
    memset(frame, 0, RARP_SIZE);
    memset(frame, 0xff, ETH_MAC_LEN);
    memcpy(frame + 6, mac, ETH_MAC_LEN);
    memcpy(frame + 12, head, sizeof(head));
    memcpy(frame + 22, mac, ETH_MAC_LEN);
    memcpy(frame + 32, mac, ETH_MAC_LEN);
}

/* In the NIC's loop. */
static void send_rarp(void *opaque)
{
    NetClient *nc = opaque;
    uint8_t data[VNET_HDR_MAX + RARP_SIZE] = {0}, mac[ETH_MAC_LEN];
    const char *text = strstr(nc->info->str, "macaddr="); /* each NIC's text has it */
    g_autofree char *mac_text = text ? g_strndup(text + strlen("macaddr="), 17) : NULL;
    size_t head = MIN(nc->vnet_hdr_len, VNET_HDR_MAX);
    if (!mac_text || !net_parse_mac(mac_text, mac, NULL)) {
        return;
    }
    rarp_fill(data + head, mac);
    struct iovec iov = {data, head + RARP_SIZE};
    NetPacket pkt = {&iov, 1, iov.iov_len};
    if (nc->filter_passed > 0) {
        /* Frames of the guest's wait already: they cannot be overtaken. */
        net_count_drop(nc, NET_DROP_OVERFLOW, 1);
    } else if (net_send_batch(nc, &pkt, 1) == 0) {
        net_count_drop(nc, NET_DROP_OVERFLOW, 1);
        net_forget_unsent(nc);
    }
}

static void announce_once(const Announcement *a)
{
    for (unsigned i = 0; net_clients && i < net_clients->len; i++) {
        NetClient *nc = net_clients->pdata[i];
        if (!nc->is_nic || nc->queue_index != 0 ||
            (a->interfaces && !g_strv_contains((const char *const *)a->interfaces, nc->name))) {
            continue;
        }
        event_loop_run_sync(nc->loop, send_rarp, nc);
        if (nc->ops->announce) {
            nc->ops->announce(nc);
        }
    }
}

static void announcement_free(gpointer data)
{
    Announcement *a = data;
    timer_del(&a->timer);
    g_strfreev(a->interfaces);
    g_free(a->id);
    g_free(a);
}

static void announce_round(void *opaque)
{
    Announcement *a = opaque;
    announce_once(a);
    int64_t wait = MIN(a->initial_ms + a->done * a->step_ms, a->max_ms);
    if (++a->done < a->rounds) {
        timer_mod_ns(&a->timer, clock_get_ns(CLOCK_HOST) + wait * 1000000);
        return;
    }
    g_ptr_array_remove(series, a);
}

static void end_series(const char *id)
{
    for (unsigned i = 0; series && i < series->len; i++) {
        Announcement *a = series->pdata[i];
        if (strcmp(a->id, id) == 0) {
            g_ptr_array_remove_index(series, i);
            return;
        }
    }
}

/* Waits are below a year, so that no sum of them overflows. */
static gboolean check_number(const char *name, int64_t value, int64_t max, GError **errp)
{
    if (value < 0 || value > max) {
        return error_set(errp,
                         "Parameter '%s' expects a value from 0 to %" G_GINT64_FORMAT
                         ", not %" G_GINT64_FORMAT,
                         name, max, value);
    }
    return true;
}

void qmp_announce_self(AnnounceParameters *arg, GError **errp)
{
    const int64_t year_ms = G_GINT64_CONSTANT(365) * 24 * 3600 * 1000;
    const char *id = arg->id ? arg->id : "";
    if (!check_number("initial", arg->initial, year_ms, errp) ||
        !check_number("max", arg->max, year_ms, errp) ||
        !check_number("step", arg->step, year_ms, errp) ||
        !check_number("rounds", arg->rounds, 1000000, errp)) {
        return;
    }
    end_series(id);
    if (arg->rounds == 0) {
        return;
    }
    Announcement *a = g_new0(Announcement, 1);
    a->id = g_strdup(id);
    a->initial_ms = arg->initial;
    a->max_ms = arg->max;
    a->step_ms = arg->step;
    a->rounds = arg->rounds;
    if (arg->interfaces) {
        GPtrArray *names = g_ptr_array_new();
        for (const strList *e = arg->interfaces; e; e = e->next) {
            g_ptr_array_add(names, g_strdup(e->value));
        }
        g_ptr_array_add(names, NULL);
        a->interfaces = (GStrv)g_ptr_array_free(names, FALSE);
    }
    timer_init(&a->timer, event_loop_main(), CLOCK_HOST, announce_round, a);
    series = series ? series : g_ptr_array_new_with_free_func(announcement_free);
    g_ptr_array_add(series, a);
    announce_round(a);
}

void net_announce_cleanup(void)
{
    g_clear_pointer(&series, g_ptr_array_unref);
}
