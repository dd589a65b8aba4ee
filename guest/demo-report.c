/*
 * The demo's output: see demo-report.h.
 */
#include "guest/demo-report.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_US 100000
#define MIB         (1024.0 * 1024.0)

void demo_report_init(DemoReport *report, bool quiet)
{
    *report = (DemoReport){.quiet = quiet, .is_terminal = isatty(STDOUT_FILENO)};
    setvbuf(stdout, NULL, _IOLBF, 0);
}

void demo_report_clear(DemoReport *report)
{
    g_free(report->emulator);
    g_free(report->device);
    g_free(report->http.sha256);
    g_free(report->rx_filter);
    g_free(report->x_txtimer);
    g_free(report->x_txburst);
    g_free(report->tx);
}

static void close_line(DemoReport *report)
{
    if (report->line_open) {
        printf("\n");
        report->line_open = false;
    }
}

void demo_report_step(DemoReport *report, const char *format, ...)
{
    if (report->quiet) {
        return;
    }
    va_list ap;
    va_start(ap, format);
    g_autofree char *text = g_strdup_vprintf(format, ap);
    va_end(ap);
    close_line(report);
    printf("- %s\n", text);
}

void demo_report_progress(DemoReport *report, uint64_t received, uint64_t total)
{
    if (report->quiet || total == 0) {
        return;
    }
    gint64 now = g_get_monotonic_time();
    unsigned quarters = (unsigned)(4.0 * (double)received / (double)total);
    bool due = report->is_terminal ? now - report->last_progress >= PROGRESS_US || received == total
                                   : quarters > report->quarters_shown;
    if (!due) {
        return;
    }
    report->last_progress = now;
    report->quarters_shown = quarters;
    printf("%s  %.1f of %.1f MiB, %.0f %%%s", report->is_terminal ? "\r" : "",
           (double)received / MIB, (double)total / MIB, 100.0 * (double)received / (double)total,
           report->is_terminal ? "" : "\n");
    report->line_open = report->is_terminal;
    fflush(stdout);
}

void demo_report_device(DemoReport *report, const GuestPciDevice *pci, NetDriver *driver)
{
    const uint8_t *mac = net_driver_mac(driver);
    VirtioDriver *virtio = net_driver_virtio(driver);
    g_snprintf(report->mac, sizeof(report->mac), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1],
               mac[2], mac[3], mac[4], mac[5]);
    g_autofree char *features = virtio_driver_features_text(virtio->features);
    g_autofree char *offered = virtio_driver_features_text(virtio->device_features);
    report->device = g_strdup_printf("PCI 00:%02x.%u, %04x:%04x, %u queues, %u MSI-X vectors, "
                                     "features %s of %s",
                                     pci->devfn >> 3, pci->devfn & 7, pci->vendor_id,
                                     pci->device_id, virtio->queue_count, pci->msix_vectors,
                                     features, offered);
    demo_report_step(report, "driving %s, MAC %s", report->device, report->mac);
}

static const char *member_text(json_object *object, const char *key)
{
    json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value ? json_object_get_string(value) : "?";
}

void demo_report_rx_filter(DemoReport *report, json_object *filter)
{
    bool promiscuous = strcmp(member_text(filter, "promiscuous"), "true") == 0;
    g_free(report->rx_filter);
    report->rx_filter =
        g_strdup_printf("promiscuous %s, unicast %s, multicast %s, VLANs %s",
                        promiscuous ? "on" : "off", member_text(filter, "unicast"),
                        member_text(filter, "multicast"), member_text(filter, "vlan"));
}

static void G_GNUC_PRINTF(2, 3) row(const char *label, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    g_autofree char *text = g_strdup_vprintf(format, ap);
    va_end(ap);
    printf("  %-15s %s\n", label, text);
}

static double per_packet(uint64_t events, uint64_t packets)
{
    return packets ? (double)events / (double)packets : 0;
}

static unsigned prefix_length(uint32_t netmask)
{
    return (unsigned)__builtin_popcount(netmask);
}

static void print_lease(const GuestDhcpLease *lease)
{
    char address[16], server[16], router[16], dns[16];
    row("lease", "%s/%u from %s for %u s, router %s, DNS %s",
        guest_address_format(lease->address, address), prefix_length(lease->netmask),
        guest_address_format(lease->server, server), lease->seconds,
        guest_address_format(lease->router, router), guest_address_format(lease->dns, dns));
}

static void print_counters(const NetDriverStats *stats)
{
    row("packets", "%" PRIu64 " received (%.1f MiB), %" PRIu64 " sent (%.1f MiB)",
        stats->rx_packets, (double)stats->rx_bytes / MIB, stats->tx_packets,
        (double)stats->tx_bytes / MIB);
    row("notifications", "RX %.3f, TX %.3f per packet (%" PRIu64 " and %" PRIu64 ")",
        per_packet(stats->rx_notifications, stats->rx_packets),
        per_packet(stats->tx_notifications, stats->tx_packets), stats->rx_notifications,
        stats->tx_notifications);
    row("interrupts", "RX %.3f, TX %.3f per packet (%" PRIu64 " and %" PRIu64 " seen)",
        per_packet(stats->rx_interrupts, stats->rx_packets),
        per_packet(stats->tx_interrupts, stats->tx_packets), stats->rx_interrupts,
        stats->tx_interrupts);
}

void demo_report_print(DemoReport *report)
{
    if (report->quiet) {
        return;
    }
    close_line(report);
    const PingResult *ping = &report->ping;
    const HttpResult *http = &report->http;
    double rate = http->seconds > 0 ? (double)http->size / http->seconds : 0;
    printf("\n");
    row("emulator", "%s", report->emulator ? report->emulator : "(tells no version)");
    row("device", "%s", report->device);
    print_lease(&report->lease);
    row("ping 10.0.2.2", "%u of %u answered, min/avg/max/stddev %.3f/%.3f/%.3f/%.3f ms",
        ping->received, ping->sent, ping->min_ms, ping->avg_ms, ping->max_ms, ping->stddev_ms);
    row("download", "%.1f MiB in %.3f s: %.1f MiB/s (%.0f Mbit/s)", (double)http->size / MIB,
        http->seconds, rate / MIB, rate * 8 / 1e6);
    row("SHA-256", "%s, verified", http->sha256);
    print_counters(&report->stats);
    if (report->rx_filter) {
        row("QMP: device", "tx %s, x-txtimer %s ns, x-txburst %s", report->tx, report->x_txtimer,
            report->x_txburst);
        row("QMP: RX filter", "%s, MAC %s", report->rx_filter, report->mac);
    }
    printf("\nAll verified.\n");
}

void demo_report_failure(DemoReport *report, const char *message)
{
    close_line(report);
    fprintf(stderr, "swnic-guest: FAILED: %s\n", message);
}
