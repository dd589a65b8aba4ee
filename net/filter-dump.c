/*
 * -object filter-dump: frames into a pcap file, as tcpdump and wireshark read it.
 *
 * Each frame is written as it passes, with the host's time; vnet headers are left out.  A frame
 * longer than maxlen is cut and says how long it was.  A write that fails ends the dump, never
 * the frames' way.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "net/filter.h"
#include "util/iov.h"

#define MAXLEN_DEFAULT 65536
#define IOV_MAX_PIECES 64

/* libpcap's file format, version 2.4 (pcap-savefile(5)). */
#define PCAP_MAGIC    0xa1b2c3d4
#define LINK_ETHERNET 1
typedef struct PcapFileHeader {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, accuracy;
    uint32_t snap_length;
    uint32_t link_type;
} PcapFileHeader;
typedef struct PcapFrameHeader {
    uint32_t seconds, microseconds;
    uint32_t captured, length;
} PcapFrameHeader;

typedef struct FilterDump {
    NetFilter parent_obj;
    char *file;
    uint32_t maxlen;
    int fd; /* -1: not open */
} FilterDump;
typedef struct FilterDumpClass {
    NetFilterClass parent_class;
} FilterDumpClass;

QOM_DECLARE_TYPE(FilterDump, FilterDumpClass, filter_dump, FILTER_DUMP)
G_DEFINE_TYPE(FilterDump, filter_dump, TYPE_NETFILTER)

static void dump_stop(FilterDump *d)
{
    if (d->fd >= 0) {
        close(d->fd);
        d->fd = -1;
    }
}

static gboolean dump_setup(NetFilter *nf, GError **errp)
{
    FilterDump *d = FILTER_DUMP(nf);
    if (!d->file) {
        return error_set(errp, "dump filter needs 'file' property set!");
    }
    d->fd = open(d->file, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | O_NONBLOCK, 0644);
    if (d->fd < 0) {
        return error_set_errno(errp, errno, "file=%s", d->file);
    }
    const PcapFileHeader header = {
        .magic = PCAP_MAGIC,
        .major = 2,
        .minor = 4,
        .snap_length = d->maxlen,
        .link_type = LINK_ETHERNET,
    };
    if (write(d->fd, &header, sizeof(header)) != sizeof(header)) {
        return error_set_errno(errp, errno, "file=%s", d->file);
    }
    return TRUE;
}

static void dump_cleanup(NetFilter *nf)
{
    dump_stop(FILTER_DUMP(nf));
}

static bool write_frame(FilterDump *d, const NetPacket *pkt, int64_t time_us)
{
    unsigned skip = d->parent_obj.nc->vnet_hdr_len;
    size_t size = pkt->size > skip ? pkt->size - skip : 0;
    PcapFrameHeader header = {
        .seconds = time_us / G_USEC_PER_SEC,
        .microseconds = time_us % G_USEC_PER_SEC,
        .captured = MIN(size, d->maxlen),
        .length = size,
    };
    struct iovec iov[IOV_MAX_PIECES + 1] = {{&header, sizeof(header)}};
    g_autofree uint8_t *linear = NULL;
    unsigned cnt = iov_slice(iov + 1, IOV_MAX_PIECES, pkt->iov, pkt->iovcnt, skip, header.captured);
    if (iov_size(iov + 1, cnt) < header.captured) {
        linear = g_malloc(header.captured);
        iov_to_buf(pkt->iov, pkt->iovcnt, skip, linear, header.captured);
        iov[1] = (struct iovec){linear, header.captured};
        cnt = 1;
    }
    return writev(d->fd, iov, cnt + 1) == (ssize_t)(sizeof(header) + header.captured);
}

static unsigned dump_receive(NetFilter *nf, NetFilterQueue dir, NetPacket *pkts, unsigned n)
{
    FilterDump *d = FILTER_DUMP(nf);
    int64_t now = g_get_real_time();
    for (unsigned i = 0; i < n && d->fd >= 0; i++) {
        if (!write_frame(d, &pkts[i], now)) {
            warn_report("filter '%s': cannot write to '%s' any more: the dump ends",
                        OBJECT(nf)->name, d->file);
            dump_stop(d);
        }
    }
    return NET_FILTER_PASS;
}

static const Property filter_dump_props[] = {
    PROP_STRING("file", FilterDump, file, "The pcap file; replaced if it exists"),
    PROP_UINT32("maxlen", FilterDump, maxlen, MAXLEN_DEFAULT, "Bytes kept of each frame", .min = 0,
                .max = G_MAXINT32),
    PROP_END,
};

static void filter_dump_class_init(FilterDumpClass *klass)
{
    NetFilterClass *nfc = &klass->parent_class;
    nfc->parent_class.qom_name = "filter-dump";
    nfc->parent_class.description = "Writes a netdev's frames to a pcap file";
    nfc->parent_class.user_creatable = true;
    nfc->setup = dump_setup;
    nfc->cleanup = dump_cleanup;
    nfc->receive = dump_receive;
    qom_class_set_props(klass, filter_dump_props);
}

static void filter_dump_init(FilterDump *d)
{
    d->fd = -1;
}
