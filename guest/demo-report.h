/*
 * What the demo tells a person: steps while it runs, and the table at its end.
 */
#ifndef GUEST_DEMO_REPORT_H
#define GUEST_DEMO_REPORT_H

#include "guest/dhcp.h"
#include "guest/http.h"
#include "guest/net-driver.h"
#include "guest/ping.h"
#include <json-c/json.h>

/* Results of the steps; strings are owned, NULL until known. */
typedef struct DemoReport {
    bool quiet, is_terminal;
    bool line_open;       /* a progress line without its newline */
    gint64 last_progress; /* monotonic µs */
    unsigned quarters_shown;
    char *emulator; /* first line of -version */
    char *device;   /* where it is and what was negotiated */
    char mac[18];
    GuestDhcpLease lease;
    PingResult ping;
    HttpResult http;
    NetDriverStats stats;
    char *rx_filter, *x_txtimer, *x_txburst, *tx;
} DemoReport;

void demo_report_init(DemoReport *report, bool quiet);
void demo_report_clear(DemoReport *report);

/* One line: what happens now. */
void demo_report_step(DemoReport *report, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* How far the download is: a line rewritten ten times a second on a terminal, else four lines. */
void demo_report_progress(DemoReport *report, uint64_t received, uint64_t total);
void demo_report_device(DemoReport *report, const GuestPciDevice *pci, NetDriver *driver);
/* Summarises one entry of query-rx-filter. */
void demo_report_rx_filter(DemoReport *report, json_object *filter);

/* The table. */
void demo_report_print(DemoReport *report);
/* The line of a failure, on standard error also when quiet. */
void demo_report_failure(DemoReport *report, const char *message);

#endif
