/*
 * -object filter-mirror, filter-redirector: frames out of, and into, a character device.
 *
 * On the device a frame is its length (32 bits, big-endian), with vnet_hdr_support=on the length
 * of the vnet header in it (the same), then the frame with that header.
 *
 * A mirror writes a copy of each frame and lets it pass.  A redirector writes frames to outdev
 * instead of letting them pass (while outdev is connected), and sends frames that it reads from
 * indev on their way from where it stands.
 *
 * Output is bounded: a mirror that is not read drops copies (counted), a redirector makes the
 * sender wait.  Input stops while the receiver takes nothing.  A length that cannot be ends
 * indev's connection with a message.
 */
#include <string.h>

#include "chardev/chardev.h"
#include "net/filter.h"
#include "util/iov.h"
#include "util/log.h"

#define LENGTH_SIZE 4
#define HEADERS_MAX (2 * LENGTH_SIZE)
#define OUT_LIMIT   (1024 * 1024) /* bytes that may wait for outdev */
#define IN_SIZE     (2 * (HEADERS_MAX + NET_MAX_FRAME))

typedef struct FilterMirror {
    NetFilter parent_obj;
    char *indev, *outdev;
    bool vnet_hdr;
    Chardev *in, *out; /* attached */

    uint8_t *out_buf;
    bool out_full;

    uint8_t *in_buf; /* bytes [in_start, in_end) are not sent on yet */
    size_t in_start, in_end;
    unsigned in_todo; /* directions (bits) the first frame has still to go; 0: not begun */
    bool reading;
} FilterMirror;
typedef struct FilterMirrorClass {
    NetFilterClass parent_class;
} FilterMirrorClass;

/* A redirector is a mirror that can do more. */
typedef FilterMirror FilterRedirector;
typedef FilterMirrorClass FilterRedirectorClass;

QOM_DECLARE_TYPE(FilterMirror, FilterMirrorClass, filter_mirror, FILTER_MIRROR)
QOM_DECLARE_TYPE(FilterRedirector, FilterRedirectorClass, filter_redirector, FILTER_REDIRECTOR)
G_DEFINE_TYPE(FilterMirror, filter_mirror, TYPE_NETFILTER)
G_DEFINE_TYPE(FilterRedirector, filter_redirector, TYPE_NETFILTER)

/* Both are the same structure, whatever the class. */
static FilterMirror *mirror(NetFilter *nf)
{
    return (FilterMirror *)nf;
}

static uint32_t get_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static void put_be32(uint8_t *p, uint32_t value)
{
    value = GUINT32_TO_BE(value);
    memcpy(p, &value, sizeof(value));
}

static unsigned headers_size(const FilterMirror *m)
{
    return m->vnet_hdr ? HEADERS_MAX : LENGTH_SIZE;
}

/* ---- out ---- */

/* False: too much waits already. */
static bool write_frame(FilterMirror *m, const NetPacket *pkt)
{
    unsigned head = headers_size(m);
    put_be32(m->out_buf, pkt->size);
    if (m->vnet_hdr) {
        put_be32(m->out_buf + LENGTH_SIZE, m->parent_obj.nc->vnet_hdr_len);
    }
    iov_to_buf(pkt->iov, pkt->iovcnt, 0, m->out_buf + head, pkt->size);
    return chardev_write(m->out, (const char *)m->out_buf, head + pkt->size, OUT_LIMIT);
}

static unsigned mirror_receive(NetFilter *nf, NetFilterQueue dir, NetPacket *pkts, unsigned n)
{
    FilterMirror *m = mirror(nf);
    for (unsigned i = 0; i < n && chardev_is_open(m->out); i++) {
        if (pkts[i].size > 0 && !write_frame(m, &pkts[i])) {
            net_count_drop(nf->nc, NET_DROP_OVERFLOW, 1);
        }
    }
    return NET_FILTER_PASS;
}

static unsigned redirector_receive(NetFilter *nf, NetFilterQueue dir, NetPacket *pkts, unsigned n)
{
    FilterMirror *m = mirror(nf);
    if (!m->out || !chardev_is_open(m->out)) {
        return NET_FILTER_PASS;
    }
    for (unsigned i = 0; i < n; i++) {
        if (pkts[i].size > 0 && !write_frame(m, &pkts[i])) {
            m->out_full = true;
            return i;
        }
        net_count_drop(nf->nc, NET_DROP_FILTERED, 1);
    }
    return n;
}

/* Whoever waits for outdev goes on. */
static void out_writable(FilterMirror *m)
{
    if (m->out_full) {
        m->out_full = false;
        net_filter_writable(&m->parent_obj, NET_FILTER_TX);
        net_filter_writable(&m->parent_obj, NET_FILTER_RX);
    }
}

static void out_drained(void *opaque)
{
    out_writable(opaque);
}

static void out_event(void *opaque, ChardevEvent event)
{
    if (event == CHARDEV_CLOSED) {
        out_writable(opaque);
    }
}

/* Nobody is expected to send here; reading is how the end is noticed. */
static void out_read(void *opaque, const char *data, size_t size) {}

static void out_changed(void *opaque, Chardev *chr)
{
    ((FilterMirror *)opaque)->out = chr;
}

static const ChardevHandlers out_handlers = {
    .read = out_read,
    .event = out_event,
    .drained = out_drained,
    .changed = out_changed,
};

/* ---- in ---- */

/* The frame at in_start: with the link's vnet header instead of the one it came with. */
static bool make_packet(FilterMirror *m, NetPacket *pkt, struct iovec iov[2])
{
    static uint8_t zeros[64];
    uint8_t *data = m->in_buf + m->in_start + headers_size(m);
    uint32_t size = get_be32(m->in_buf + m->in_start);
    unsigned want = m->parent_obj.nc->vnet_hdr_len;
    uint32_t have = m->vnet_hdr ? get_be32(m->in_buf + m->in_start + LENGTH_SIZE) : want;
    if (have == want) {
        iov[0] = (struct iovec){data, size};
        *pkt = (NetPacket){iov, 1, size};
        return size > 0;
    }
    if (have >= size || want > sizeof(zeros)) {
        return false;
    }
    iov[0] = (struct iovec){zeros, want};
    iov[1] = (struct iovec){data + have, size - have};
    *pkt = want ? (NetPacket){iov, 2, want + size - have} : (NetPacket){iov + 1, 1, size - have};
    return true;
}

/* Sends the first frame the ways it has to go.  False: somebody does not take it now. */
static bool send_first(FilterMirror *m)
{
    NetFilter *nf = &m->parent_obj;
    NetPacket pkt;
    struct iovec iov[2];
    if (m->in_todo == 0) {
        m->in_todo =
            nf->queue == NET_FILTER_ALL ? 1 << NET_FILTER_TX | 1 << NET_FILTER_RX : 1 << nf->queue;
    }
    for (unsigned dir = NET_FILTER_TX; dir >= NET_FILTER_RX; dir--) {
        if (!(m->in_todo & 1 << dir)) {
            continue;
        }
        if (!make_packet(m, &pkt, iov)) {
            net_count_drop(nf->nc, NET_DROP_BAD_HEADER, 1);
        } else if (net_filter_send(nf, dir, &pkt, 1) == 0) {
            return false;
        }
        m->in_todo &= ~(1 << dir);
    }
    return true;
}

static void bad_length(FilterMirror *m, uint32_t size)
{
    static LogRate rate;
    unsigned left_out;
    if (log_rate_ok(&rate, &left_out)) {
        warn_report("filter '%s': a frame of %u bytes announced, at most %u are possible: "
                    "connection of '%s' closed",
                    OBJECT(m)->name, size, NET_MAX_FRAME, m->indev);
    }
    m->in_start = m->in_end = 0;
    chardev_disconnect(m->in);
}

/* Sends what whole frames there are, as far as they are taken. */
static void send_frames(FilterMirror *m)
{
    const unsigned head = headers_size(m);
    if (m->reading) {
        return;
    }
    m->reading = true;
    while (m->in && m->in_end - m->in_start >= head && net_filter_is_on(&m->parent_obj)) {
        uint32_t size = get_be32(m->in_buf + m->in_start);
        if (size > NET_MAX_FRAME) {
            bad_length(m, size);
            break;
        }
        if (m->in_end - m->in_start < head + size || !send_first(m)) {
            break;
        }
        m->in_start += head + size;
    }
    m->reading = false;
}

static size_t in_room(void *opaque)
{
    FilterMirror *m = opaque;
    if (!net_filter_is_on(&m->parent_obj) || m->in_todo) {
        return 0;
    }
    return IN_SIZE - (m->in_end - m->in_start);
}

static void in_read(void *opaque, const char *data, size_t size)
{
    FilterMirror *m = opaque;
    memmove(m->in_buf, m->in_buf + m->in_start, m->in_end - m->in_start);
    m->in_end -= m->in_start;
    m->in_start = 0;
    memcpy(m->in_buf + m->in_end, data, size);
    m->in_end += size;
    send_frames(m);
}

/* Half a frame is not to be in front of what the next connection sends. */
static void in_event(void *opaque, ChardevEvent event)
{
    FilterMirror *m = opaque;
    const unsigned head = headers_size(m);
    size_t at = m->in_start;
    if (event != CHARDEV_CLOSED) {
        return;
    }
    while (m->in_end - at >= head && m->in_end - at - head >= get_be32(m->in_buf + at)) {
        at += head + get_be32(m->in_buf + at);
    }
    m->in_end = at;
}

static void in_changed(void *opaque, Chardev *chr)
{
    ((FilterMirror *)opaque)->in = chr;
}

static const ChardevHandlers in_handlers = {
    .can_read = in_room,
    .read = in_read,
    .event = in_event,
    .changed = in_changed,
};

static void mirror_resume(NetFilter *nf, NetFilterQueue dir)
{
    FilterMirror *m = mirror(nf);
    if (m->in) {
        send_frames(m);
        chardev_accept_input(m->in);
    }
}

static void mirror_status_changed(NetFilter *nf)
{
    mirror_resume(nf, NET_FILTER_ALL);
    out_writable(mirror(nf));
}

/* ---- life ---- */

static Chardev *attach(FilterMirror *m, const char *id, const char *what,
                       const ChardevHandlers *handlers, GError **errp)
{
    Chardev *chr = chardev_find(id);
    if (!chr) {
        error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "%sDevice '%s' not found", what, id);
        return NULL;
    }
    return chardev_attach(chr, handlers, m, errp) ? chr : NULL;
}

static gboolean mirror_setup(NetFilter *nf, GError **errp)
{
    FilterMirror *m = mirror(nf);
    if (!m->outdev) {
        return error_set_class(errp, ERROR_DEVICE_NOT_FOUND,
                               "filter-mirror parameter 'outdev' cannot be empty");
    }
    m->out_buf = g_malloc(HEADERS_MAX + NET_MAX_FRAME);
    m->out = attach(m, m->outdev, "", &out_handlers, errp);
    return m->out != NULL;
}

static gboolean redirector_setup(NetFilter *nf, GError **errp)
{
    FilterMirror *m = mirror(nf);
    if (!m->indev && !m->outdev) {
        return error_set(errp, "filter redirector needs 'indev' or 'outdev' at least one property "
                               "set");
    }
    if (m->indev && m->outdev && strcmp(m->indev, m->outdev) == 0) {
        return error_set(errp, "'indev' and 'outdev' could not be same for filter redirector");
    }
    if (m->outdev) {
        m->out_buf = g_malloc(HEADERS_MAX + NET_MAX_FRAME);
        m->out = attach(m, m->outdev, "OUT ", &out_handlers, errp);
        if (!m->out) {
            return FALSE;
        }
    }
    if (m->indev) {
        m->in_buf = g_malloc(IN_SIZE);
        m->in = attach(m, m->indev, "IN ", &in_handlers, errp);
    }
    return !m->indev || m->in;
}

static void mirror_cleanup(NetFilter *nf)
{
    FilterMirror *m = mirror(nf);
    if (m->in) {
        chardev_detach(m->in);
    }
    if (m->out) {
        chardev_detach(m->out);
    }
    m->in = m->out = NULL;
    g_clear_pointer(&m->in_buf, g_free);
    g_clear_pointer(&m->out_buf, g_free);
    m->in_start = m->in_end = 0;
}

#define PROP_OUTDEV                                                                                \
    PROP_STRING("outdev", FilterMirror, outdev, "Character device that frames are written to")
#define PROP_VNET_HDR                                                                              \
    PROP_BOOL("vnet_hdr_support", FilterMirror, vnet_hdr, false,                                   \
              "The length of vnet headers is sent along")

static const Property filter_mirror_props[] = {
    PROP_OUTDEV,
    PROP_VNET_HDR,
    PROP_END,
};

static const Property filter_redirector_props[] = {
    PROP_STRING("indev", FilterMirror, indev, "Character device that frames are read from"),
    PROP_OUTDEV,
    PROP_VNET_HDR,
    PROP_END,
};

static void class_init(FilterMirrorClass *klass, const char *name, const char *description)
{
    NetFilterClass *nfc = &klass->parent_class;
    nfc->parent_class.qom_name = name;
    nfc->parent_class.description = description;
    nfc->parent_class.user_creatable = true;
    nfc->cleanup = mirror_cleanup;
    nfc->resume = mirror_resume;
    nfc->status_changed = mirror_status_changed;
}

static void filter_mirror_class_init(FilterMirrorClass *klass)
{
    class_init(klass, "filter-mirror", "Copies a netdev's frames to a character device");
    klass->parent_class.setup = mirror_setup;
    klass->parent_class.receive = mirror_receive;
    qom_class_set_props(klass, filter_mirror_props);
}

static void filter_redirector_class_init(FilterRedirectorClass *klass)
{
    class_init(klass, "filter-redirector",
               "Sends a netdev's frames to a character device, and others from one");
    klass->parent_class.setup = redirector_setup;
    klass->parent_class.receive = redirector_receive;
    qom_class_set_props(klass, filter_redirector_props);
}

static void filter_mirror_init(FilterMirror *m) {}

static void filter_redirector_init(FilterRedirector *m) {}
