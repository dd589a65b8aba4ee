/*
 * Dirty pages: the DMA_LOGGING features.
 *
 * While logging is on, the device's DmaSpace keeps one byte a 4 KiB page, which whoever writes to
 * guest memory sets; a report takes and clears them.  All writes are logged, whatever ranges the
 * client named.  Memory beyond the log's reach is reported dirty each time: never too little.
 */
#include <errno.h>
#include <string.h>

#include "vfio-user-internal.h"

#define PAGE_SHIFT 12
/* A log of 256 MiB for addresses up to 1 TiB; untouched parts of it cost nothing. */
#define LOG_MAX_PAGES (1ull << 28)

typedef struct vfio_device_feature FeatureHead;
typedef struct vfio_device_feature_dma_logging_control LogControl;
typedef struct vfio_device_feature_dma_logging_range LogRange;

#define REPORT_SIZE offsetof(struct vfio_device_feature_dma_logging_report, bitmap)

/* --- the log --- */

/* Pages from 0 to the end of the last region that the log can reach. */
static uint64_t pages_wanted(VfioUserServer *server)
{
    uint64_t pages = 0;

    for (guint i = 0; i < server->dma->len; i++) {
        VfioUserDma *region = vfio_user_dma_at(server, i);
        uint64_t end = (region->address + region->size) >> PAGE_SHIFT;

        if (end <= LOG_MAX_PAGES) {
            pages = MAX(pages, end);
        }
    }
    return pages;
}

void vfio_user_log_resize(VfioUserServer *server)
{
    DmaSpace *space = &server->pci->dma;
    uint64_t pages = server->logging ? pages_wanted(server) : 0;
    uint8_t *log;

    if (pages <= space->dirty_pages) {
        return;
    }
    log = g_malloc0(pages);
    if (space->dirty_log) {
        memcpy(log, space->dirty_log, space->dirty_pages);
        g_free(space->dirty_log);
    }
    space->dirty_log = log;
    space->dirty_pages = pages;
}

static void log_start(VfioUserServer *server)
{
    device_drain_begin(DEVICE(server->pci));
    server->logging = true;
    vfio_user_log_resize(server);
    device_drain_end(DEVICE(server->pci));
}

void vfio_user_log_stop(VfioUserServer *server)
{
    DmaSpace *space = &server->pci->dma;
    bool alive = DEVICE(server->pci)->realized;

    if (!server->logging) {
        return;
    }
    if (alive) {
        device_drain_begin(DEVICE(server->pci));
    }
    server->logging = false;
    g_clear_pointer(&space->dirty_log, g_free);
    space->dirty_pages = 0;
    if (alive) {
        device_drain_end(DEVICE(server->pci));
    }
}

static bool region_is_writable(VfioUserServer *server, uint64_t address)
{
    VfioUserDma *region = vfio_user_dma_at(server, vfio_user_dma_position(server, address));

    return region && region->address <= address && region->flags & VFIO_USER_DMA_WRITABLE;
}

/* Whether @page was written since the last report; forgets it if @whole of it is reported. */
static bool page_take(VfioUserServer *server, uint64_t page, bool whole)
{
    DmaSpace *space = &server->pci->dma;

    if (page >= space->dirty_pages) {
        return page >= LOG_MAX_PAGES && region_is_writable(server, page << PAGE_SHIFT);
    }
    if (!whole) {
        return __atomic_load_n(&space->dirty_log[page], __ATOMIC_ACQUIRE);
    }
    /* Cleared before it is reported: a write from now on is in the next report. */
    return __atomic_load_n(&space->dirty_log[page], __ATOMIC_RELAXED) &&
           __atomic_exchange_n(&space->dirty_log[page], 0, __ATOMIC_ACQ_REL);
}

/* --- commands --- */

int vfio_user_log_run_start(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    LogControl control;
    size_t have = message->size - sizeof(FeatureHead);

    if (have < sizeof(control) || server->logging) {
        return EINVAL;
    }
    memcpy(&control, message->payload + sizeof(FeatureHead), sizeof(control));
    if ((have - sizeof(control)) / sizeof(LogRange) < control.num_ranges) {
        return EINVAL;
    }
    log_start(server);
    control.page_size = SERVER_PAGE_SIZE; /* what we do, whatever was hinted */
    g_byte_array_append(reply->data, message->payload, (guint)message->size);
    memcpy(reply->data->data + sizeof(FeatureHead), &control, sizeof(control));
    return 0;
}

int vfio_user_log_run_stop(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    vfio_user_log_stop(server);
    g_byte_array_append(reply->data, message->payload, (guint)message->size);
    return 0;
}

/* Sets the bits of @bitmap that the 4 KiB page at @address touches. */
static void report_page(uint64_t *bitmap, uint64_t address,
                        const struct vfio_device_feature_dma_logging_report *report)
{
    uint64_t begin = MAX(address, report->iova) - report->iova;
    uint64_t end =
        MIN(address + (SERVER_PAGE_SIZE - 1), report->iova + (report->length - 1)) - report->iova;

    for (uint64_t bit = begin / report->page_size; bit <= end / report->page_size; bit++) {
        bitmap[bit / 64] |= 1ull << (bit % 64);
    }
}

static void report_fill(VfioUserServer *server, uint64_t *bitmap,
                        const struct vfio_device_feature_dma_logging_report *report)
{
    uint64_t last = report->iova + (report->length - 1);

    for (uint64_t page = report->iova >> PAGE_SHIFT; page <= last >> PAGE_SHIFT; page++) {
        uint64_t address = page << PAGE_SHIFT;
        bool whole = address >= report->iova && address + (SERVER_PAGE_SIZE - 1) <= last;

        if (page_take(server, page, whole)) {
            report_page(bitmap, address, report);
        }
    }
}

static bool report_is_sound(const struct vfio_device_feature_dma_logging_report *report)
{
    uint64_t unit = report->page_size;

    return unit && !(unit & (unit - 1)) && report->length && report->iova % unit == 0 &&
           report->iova + (report->length - 1) >= report->iova &&
           (report->length - 1) / unit < SERVER_MAX_XFER * 8ull &&
           (report->length - 1) >> PAGE_SHIFT < LOG_MAX_PAGES;
}

int vfio_user_log_run_report(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    struct vfio_device_feature_dma_logging_report report = {0};
    FeatureHead head;
    uint64_t words;

    if (message->size < sizeof(head) + REPORT_SIZE || !server->logging) {
        return EINVAL;
    }
    memcpy(&head, message->payload, sizeof(head));
    memcpy(&report, message->payload + sizeof(head), REPORT_SIZE);
    if (!report_is_sound(&report)) {
        return EINVAL;
    }
    words = (report.length - 1) / report.page_size / 64 + 1;

    uint32_t argsz = head.argsz;

    head.argsz = (uint32_t)(sizeof(head) + REPORT_SIZE + words * sizeof(uint64_t));
    g_byte_array_append(reply->data, (guint8 *)&head, sizeof(head));
    g_byte_array_append(reply->data, (guint8 *)&report, REPORT_SIZE);
    if (argsz < head.argsz) { /* only how much is needed: nothing is forgotten */
        return 0;
    }
    g_autofree uint64_t *bitmap = g_new0(uint64_t, words);

    report_fill(server, bitmap, &report);
    g_byte_array_append(reply->data, (guint8 *)bitmap, (guint)(words * sizeof(uint64_t)));
    return 0;
}
