/*
 * The guest that benchmarks drive: a fresh emulator, its device, and the measurement around a load.
 */
#include "guest/bench.h"
#include <gio/gio.h>
#include <inttypes.h>

#define RAM_SIZE (64u << 20)

bool bench_lost(GError **errp, uint64_t sent, uint64_t arrived)
{
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                "%" PRIu64 " frames were sent, %" PRIu64 " arrived", sent, arrived);
    return false;
}

bool bench_guest_start_emulator(BenchGuest *guest, const BenchOptions *options, const char *command,
                                const char *netdev, int fd, GError **errp)
{
    bool is_swnic = emulator_command_is_swnic(command, NULL);
    const char *extra = options->device;
    int fds[] = {fd, -1};
    g_autofree char *device = g_strconcat("virtio-net-pci,romfile=", netdev ? ",netdev=n0" : "",
                                          extra ? "," : "", extra, NULL);
    const char *plain[] = {"-nodefaults", "-device", device, NULL};
    const char *with_netdev[] = {"-nodefaults", "-netdev", netdev, "-device", device, NULL};
    EmulatorOptions emulator = {
        .command = command,
        .arguments = netdev ? with_netdev : plain,
        .ram_size = RAM_SIZE,
        .accel = is_swnic ? NULL : "tcg",
        .halt_bios = !is_swnic,
        .inherit_fds = fds,
    };
    guest->emulator = emulator_start(&emulator, errp);
    if (guest->emulator && clock_getcpuclockid(guest->emulator->pid, &guest->clock) != 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "the emulator has ended");
        return false;
    }
    return guest->emulator != NULL;
}

bool bench_guest_start_driver(BenchGuest *guest, const NetDriverConfig *config, GError **errp)
{
    guest_pci_bus_init(&guest->bus, guest->emulator->qtest);
    guest->pci = guest_pci_device_find(&guest->bus, guest_pci_match_virtio_net, NULL, 0, errp);
    if (guest->pci) {
        guest->driver = net_driver_new(guest->pci, guest->emulator->ram, config, errp);
    }
    return guest->driver != NULL;
}

bool bench_guest_stop(BenchGuest *guest, bool so_far, GError **errp)
{
    net_driver_free(guest->driver);
    g_free(guest->pci);
    if (so_far) {
        return emulator_stop(guest->emulator, errp);
    }
    emulator_kill(guest->emulator);
    return false;
}

uint64_t bench_guest_packets(const BenchGuest *guest)
{
    NetDriverStats stats;
    net_driver_get_stats(guest->driver, &stats);
    return stats.rx_packets + stats.tx_packets;
}

uint64_t bench_guest_received(const BenchGuest *guest)
{
    NetDriverStats stats;
    net_driver_get_stats(guest->driver, &stats);
    return stats.rx_packets;
}

static uint64_t notifications_of(const BenchGuest *guest)
{
    NetDriverStats stats;
    net_driver_get_stats(guest->driver, &stats);
    return stats.rx_notifications + stats.tx_notifications;
}

bool bench_guest_measure(BenchGuest *guest, const BenchOptions *options, BenchLoad *load,
                         void *opaque, BenchSample *sample, GError **errp)
{
    if (!load(opaque, BENCH_WARM_UP, errp)) {
        return false;
    }
    uint64_t packets = bench_guest_packets(guest), notifications = notifications_of(guest);
    BenchMeter meter;
    bench_meter_start(&meter, guest->clock, false);
    if (!load(opaque, options->milliseconds * 1000ll, errp) ||
        !net_driver_check(guest->driver, errp)) {
        return false;
    }
    packets = bench_guest_packets(guest) - packets;
    notifications = notifications_of(guest) - notifications;
    if (packets == 0) {
        return bench_lost(errp, 1, 0);
    }
    bench_meter_stop(&meter, packets, sample);
    sample->notifications = (double)notifications / (double)packets;
    return true;
}
