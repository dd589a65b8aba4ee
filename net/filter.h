/*
 * Filters: objects that see, hold or take the frames of a netdev on their way.
 *
 * A filter sits on a netdev's client.  Frames that the netdev sends (to the guest: direction tx)
 * meet the filters from first to last, frames that it receives (rx) from last to first.  Main
 * loop only.
 */
#ifndef NET_FILTER_H
#define NET_FILTER_H

#include "net/net.h"
#include "qom/object.h"

/* In the order of the property's names. */
typedef enum NetFilterQueue {
    NET_FILTER_ALL,
    NET_FILTER_RX,
    NET_FILTER_TX,
    NET_FILTER__MAX
} NetFilterQueue;

#define NET_FILTER_PASS UINT_MAX

typedef struct NetFilter NetFilter;

struct NetFilter {
    Object parent_obj;
    char *netdev_id;
    int queue;  /* NetFilterQueue */
    int status; /* 0: on */
    char *position;
    int insert;    /* 0: behind */
    NetClient *nc; /* NULL: not on a netdev (yet, any more) */
    bool draining; /* off, but still in the way of frames: what it holds goes first */
};

typedef struct NetFilterClass {
    ObjectClass parent_class;
    /* Checks the properties and opens what is needed.  The filter is on its netdev after it. */
    gboolean (*setup)(NetFilter *nf, GError **errp);
    /* The filter leaves its netdev (still nf->nc); also after a setup that failed. */
    void (*cleanup)(NetFilter *nf);
    /*
     * Frames that go in direction @dir (never ALL).  NET_FILTER_PASS: all go on.  Otherwise how
     * many of them are the filter's now (copied, or counted as dropped); the rest wait for
     * net_filter_writable().
     */
    unsigned (*receive)(NetFilter *nf, NetFilterQueue dir, NetPacket *pkts, unsigned n);
    /* Whoever is behind the filter can take more.  NULL: it holds nothing. */
    void (*resume)(NetFilter *nf, NetFilterQueue dir);
    void (*status_changed)(NetFilter *nf);
} NetFilterClass;

QOM_DECLARE_TYPE(NetFilter, NetFilterClass, netfilter, NETFILTER)
#define TYPE_NETFILTER (netfilter_get_type())

static inline bool net_filter_is_on(const NetFilter *nf)
{
    return nf->status == 0;
}

/* Sends frames on from behind @nf; returns how many were taken (dropped and counted ones too).  The
 * rest stay the filter's until resume(). */
unsigned net_filter_send(NetFilter *nf, NetFilterQueue dir, NetPacket *pkts, unsigned n);
/* The filter can take more: whoever waits for it goes on. */
void net_filter_writable(NetFilter *nf, NetFilterQueue dir);

/* For net.c: net_send_batch() between clients of which one has filters. */
unsigned net_filters_send(NetClient *sender, NetPacket *pkts, unsigned n);
/* The receiver of what @sender sends can take more: filters that hold frames go first. */
void net_filters_resume(NetClient *sender);
/* Would a frame of @sender's be taken?  Filters work with a receiver that is not ready. */
bool net_filters_can_send(NetClient *sender);
/* The netdev goes: its filters too. */
void net_filters_delete(NetClient *nc);
/* "filters:" lines of info network. */
void net_filters_print(const NetClient *nc, GString *out);
static inline bool net_has_filters(const NetClient *nc)
{
    return nc->filters->len > 0 || (nc->peer && nc->peer->filters->len > 0);
}

/* filter-dump.c, filter-buffer.c, filter-mirror.c */
GType filter_dump_get_type(void);
GType filter_buffer_get_type(void);
GType filter_mirror_get_type(void);
GType filter_redirector_get_type(void);
void net_register_filter_types(void);

#endif
