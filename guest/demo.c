/*
 * The demo: an emulator is started, its guest gets on the network, and every step is checked.
 *
 *   start the emulator and the HTTP server → find and drive the device → DHCP → ping →
 *   download with SHA-256 → the device's view over QMP → table → stop everything
 *
 * With --vfio-user the emulator is one that runs already and serves its device over a socket; then
 * there is nothing to start, and no QMP to ask.
 *
 * Each step is one function that returns false with an error; run_demo() stops at the first.
 * Whatever happened, everything that was started is stopped again.
 */
#include "guest/commands.h"
#include "guest/demo-report.h"
#include "guest/demo-server.h"
#include "guest/emulator.h"
#include "guest/guard.h"
#include "guest/lwip-netif.h"
#include "guest/vfio-user-pci.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RAM_SIZE        (128u << 20)
#define DHCP_TIMEOUT_MS 10000
#define DEVICE_PATH     "/machine/peripheral/nic0"
#define EXPECTED_LEASE  0x0A00020Fu /* 10.0.2.15, the first of libslirp's */
#define GATEWAY         0x0A000202u /* 10.0.2.2, which stands for the host */

typedef struct DemoOptions {
    char *emulator, *device, *size_text, *vfio_user;
    uint64_t size;
    int pings, timeout;
    gboolean quiet;
} DemoOptions;

typedef struct Demo {
    const DemoOptions *options;
    Emulator *emulator;      /* NULL with --vfio-user */
    VfioUserPci *vfio_user;  /* NULL without */
    GuestRam *vfio_user_ram; /* that it shares */
    GuestPciBus bus;
    GuestPciDevice *pci;
    NetDriver *driver;
    bool stack_runs;
    DemoServer *server;
    DemoReport report;
} Demo;

static bool start_emulator(Demo *demo, GError **errp)
{
    g_autofree char *own = demo->options->emulator ? NULL : emulator_default_command();
    const char *command = own ? own : demo->options->emulator;
    bool is_swnic = emulator_command_is_swnic(command, &demo->report.emulator);
    g_autofree char *device = g_strconcat(
        "virtio-net-pci,netdev=n0,id=nic0,addr=04.0,romfile=", demo->options->device ? "," : "",
        demo->options->device, NULL);
    const char *arguments[] = {"-nodefaults", "-netdev", "user,id=n0", "-device", device, NULL};
    /* Another emulator has a CPU, which must stand still: its RAM is ours. */
    EmulatorOptions options = {
        .command = command,
        .arguments = arguments,
        .ram_size = RAM_SIZE,
        .accel = is_swnic ? NULL : "tcg",
        .halt_bios = !is_swnic,
    };
    demo_report_step(&demo->report, "starting %s",
                     demo->report.emulator ? demo->report.emulator : command);
    demo->emulator = emulator_start(&options, errp);
    return demo->emulator != NULL;
}

static bool connect_vfio_user(Demo *demo, GError **errp)
{
    const char *path = demo->options->vfio_user;
    demo->report.emulator = g_strdup_printf("a vfio-user server at %s", path);
    demo_report_step(&demo->report, "connecting to %s", demo->report.emulator);
    demo->vfio_user_ram = guest_ram_new(RAM_SIZE, errp);
    demo->vfio_user =
        demo->vfio_user_ram ? vfio_user_pci_connect(path, demo->vfio_user_ram, NULL, errp) : NULL;
    return demo->vfio_user != NULL;
}

static bool start_driver(Demo *demo, GError **errp)
{
    GuestPciBus *bus = demo->vfio_user ? vfio_user_pci_bus(demo->vfio_user) : &demo->bus;
    GuestRam *ram = demo->vfio_user ? demo->vfio_user_ram : demo->emulator->ram;
    if (!demo->vfio_user) {
        guest_pci_bus_init(bus, demo->emulator->qtest);
    }
    demo->pci = guest_pci_device_find(bus, guest_pci_match_virtio_net, NULL, 0, errp);
    if (!demo->pci) {
        g_prefix_error(errp, "virtio-net on PCI: ");
        return false;
    }
    NetDriverConfig config = {.features = NET_DRIVER_PLAIN_FEATURES};
    demo->driver = net_driver_new(demo->pci, ram, &config, errp);
    if (!demo->driver) {
        g_prefix_error(errp, "virtio-net driver: ");
        return false;
    }
    demo_report_device(&demo->report, demo->pci, demo->driver);
    if (!net_driver_link_is_up(demo->driver)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "the device says that its link is down");
        return false;
    }
    return true;
}

static bool get_lease(Demo *demo, GError **errp)
{
    GuestDhcpLease *lease = &demo->report.lease;
    demo_report_step(&demo->report, "asking for a lease");
    if (!guest_dhcp_run(demo->driver, DHCP_TIMEOUT_MS, lease, errp)) {
        g_prefix_error(errp, "DHCP: ");
        return false;
    }
    if (lease->address != EXPECTED_LEASE) {
        char text[16];
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "DHCP: lease %s instead of 10.0.2.15",
                    guest_address_format(lease->address, text));
        return false;
    }
    demo->stack_runs = guest_netif_start(demo->driver, lease, errp);
    return demo->stack_runs;
}

static bool ping_gateway(Demo *demo, GError **errp)
{
    PingResult *ping = &demo->report.ping;
    demo_report_step(&demo->report, "pinging 10.0.2.2");
    if (!ping_run(GATEWAY, (unsigned)demo->options->pings, ping, errp)) {
        return false;
    }
    if (ping->received != ping->sent) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "ping: %u of %u answered", ping->received,
                    ping->sent);
        return false;
    }
    return true;
}

static void show_progress(void *opaque, uint64_t received, uint64_t total)
{
    demo_report_progress(opaque, received, total);
}

static bool download(Demo *demo, GError **errp)
{
    HttpResult *http = &demo->report.http;
    const char *expected = demo_server_sha256(demo->server);
    uint16_t port = demo_server_port(demo->server);
    demo_report_step(&demo->report, "downloading http://10.0.2.2:%u%s", port, DEMO_SERVER_PATH);
    if (!http_get(GATEWAY, port, DEMO_SERVER_PATH, show_progress, &demo->report, http, errp)) {
        return false;
    }
    if (http->size != demo->options->size || strcmp(http->sha256, expected) != 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "download: %" PRIu64 " bytes with SHA-256 %s instead of %" PRIu64 " with %s",
                    http->size, http->sha256, demo->options->size, expected);
        return false;
    }
    return true;
}

/* One property of the device, as text. */
static char *get_property(Demo *demo, const char *name, GError **errp)
{
    GError *error = NULL;
    json_object *value = qmp_client_qom_get(demo->emulator->qmp, DEVICE_PATH, name, &error);
    if (error) {
        g_propagate_prefixed_error(errp, error, "qom-get %s %s: ", DEVICE_PATH, name);
        return NULL;
    }
    const char *text = value ? json_object_get_string(value) : "";
    char *copy = g_strdup(*text ? text : "(default: bh)");
    json_object_put(value);
    return copy;
}

/* The RX filter's first entry is our device's: its MAC must be the one the driver read. */
static bool check_rx_filter(Demo *demo, GError **errp)
{
    json_object *filters =
        qmp_client_executef(demo->emulator->qmp, "query-rx-filter", errp, "{\"name\": \"nic0\"}");
    if (!filters) {
        g_prefix_error(errp, "query-rx-filter: ");
        return false;
    }
    json_object *filter = json_object_is_type(filters, json_type_array)
                              ? json_object_array_get_idx(filters, 0)
                              : NULL;
    json_object *mac = NULL;
    if (filter) {
        json_object_object_get_ex(filter, "main-mac", &mac);
    }
    bool ok = mac && g_ascii_strcasecmp(json_object_get_string(mac), demo->report.mac) == 0;
    if (ok) {
        demo_report_rx_filter(&demo->report, filter);
    } else {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "query-rx-filter: main-mac %s, but the driver read %s",
                    mac ? json_object_get_string(mac) : "missing", demo->report.mac);
    }
    json_object_put(filters);
    return ok;
}

static bool ask_device(Demo *demo, GError **errp)
{
    DemoReport *report = &demo->report;
    if (demo->vfio_user) {
        return true;
    }
    return check_rx_filter(demo, errp) &&
           (report->x_txtimer = get_property(demo, "x-txtimer", errp)) &&
           (report->x_txburst = get_property(demo, "x-txburst", errp)) &&
           (report->tx = get_property(demo, "tx", errp));
}

/* The counters, once nothing moves any more. */
static bool check_driver(Demo *demo, GError **errp)
{
    guest_netif_stop();
    demo->stack_runs = false;
    net_driver_get_stats(demo->driver, &demo->report.stats);
    if (!net_driver_check(demo->driver, errp)) {
        return false;
    }
    if (demo->report.stats.rx_bad > 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "the device delivered %" PRIu64 " frames with an impossible length",
                    demo->report.stats.rx_bad);
        return false;
    }
    return true;
}

/* Stops what runs, in reverse order.  False with error when the emulator did not end well. */
static bool stop_demo(Demo *demo, bool so_far, GError **errp)
{
    if (demo->stack_runs) {
        guest_netif_stop();
    }
    net_driver_free(demo->driver);
    g_free(demo->pci);
    demo_server_stop(demo->server);
    vfio_user_pci_free(demo->vfio_user);
    guest_ram_free(demo->vfio_user_ram);
    if (!so_far) {
        emulator_kill(demo->emulator);
        return false;
    }
    return !demo->emulator || emulator_stop(demo->emulator, errp);
}

static bool run_demo(const DemoOptions *options)
{
    g_autoptr(GError) error = NULL;
    Demo demo = {.options = options};
    demo_report_init(&demo.report, options->quiet);
    demo.server = demo_server_start(options->size, &error);
    bool ok =
        demo.server &&
        (options->vfio_user ? connect_vfio_user(&demo, &error) : start_emulator(&demo, &error)) &&
        start_driver(&demo, &error) && get_lease(&demo, &error) && ping_gateway(&demo, &error) &&
        download(&demo, &error) && ask_device(&demo, &error) && check_driver(&demo, &error);
    if (!ok && demo.emulator && !emulator_is_alive(demo.emulator)) {
        g_prefix_error(&error, "the emulator has ended: ");
    }
    ok = stop_demo(&demo, ok, &error);
    if (ok) {
        demo_report_print(&demo.report);
    } else {
        demo_report_failure(&demo.report, error ? error->message : "unknown error");
    }
    demo_report_clear(&demo.report);
    return ok;
}

static GOptionContext *make_context(DemoOptions *options)
{
    const GOptionEntry entries[] = {
        {"emulator", 'e', 0, G_OPTION_ARG_STRING, &options->emulator,
         "Emulator to run, with options of its own; default: swnic-system-x86_64 beside this "
         "program. One that is not ours (qemu-system-x86_64) also gets -accel tcg and firmware "
         "that halts its CPU",
         "COMMAND"},
        {"device", 'd', 0, G_OPTION_ARG_STRING, &options->device,
         "More properties for -device virtio-net-pci, such as tx=timer,x-txtimer=50000", "PROPS"},
        {"vfio-user", 'v', 0, G_OPTION_ARG_FILENAME, &options->vfio_user,
         "Start no emulator: drive the device of the vfio-user server that listens here, which "
         "needs user networking behind it",
         "PATH"},
        {"size", 's', 0, G_OPTION_ARG_STRING, &options->size_text,
         "Bytes to download, with K, M or G; default 64M", "SIZE"},
        {"pings", 'p', 0, G_OPTION_ARG_INT, &options->pings, "Echo requests to send; default 10",
         "N"},
        {"timeout", 't', 0, G_OPTION_ARG_INT, &options->timeout,
         "Give up after this many seconds; default 60, 0: never", "SECONDS"},
        {"quiet", 'q', 0, G_OPTION_ARG_NONE, &options->quiet, "Print nothing but errors", NULL},
        {NULL},
    };
    GOptionContext *context = g_option_context_new(NULL);
    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(
        context,
        "The demo starts an emulator with user networking, drives its virtio-net device, gets\n"
        "a lease, pings the gateway, downloads a file from a server on this host's loopback,\n"
        "verifies the file's SHA-256, and prints a table of what it measured.\n"
        "The exit status is 0 only if every step was verified.");
    return context;
}

char *demo_help(void)
{
    DemoOptions options = {0};
    g_set_prgname("swnic-guest demo");
    GOptionContext *context = make_context(&options);
    char *help = g_option_context_get_help(context, TRUE, NULL);
    g_option_context_free(context);
    return help;
}

/* "64M"; false: not a size from 1 byte to 64 GiB. */
static bool parse_size(const char *text, uint64_t *size)
{
    char *end;
    guint64 value = g_ascii_isdigit(text[0]) ? g_ascii_strtoull(text, &end, 10) : 0;
    if (value == 0) {
        return false;
    }
    static const char suffixes[] = "KMG";
    const char *suffix = *end ? strchr(suffixes, g_ascii_toupper(*end)) : NULL;
    unsigned shift = suffix ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
    if ((*end && (!suffix || end[1])) || value > (64ull << 30) >> shift) {
        return false;
    }
    *size = value << shift;
    return true;
}

static bool parse_options(int *argc, char ***argv, DemoOptions *options, GError **errp)
{
    GOptionContext *context = make_context(options);
    bool ok = g_option_context_parse(context, argc, argv, errp);
    g_option_context_free(context);
    if (!ok) {
        return false;
    }
    if (*argc > 1) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "unexpected argument '%s'; --help lists the options", (*argv)[1]);
        return false;
    }
    if (options->size_text && !parse_size(options->size_text, &options->size)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--size '%s': a number from 1 to 64G, with K, M or G if you like",
                    options->size_text);
        return false;
    }
    if (options->vfio_user && (options->emulator || options->device)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--vfio-user drives a device that runs already: --emulator and --device do "
                    "not go with it");
        return false;
    }
    if (options->pings < 1 || options->pings > 1000 || options->timeout < 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--pings is from 1 to 1000, --timeout not negative");
        return false;
    }
    return true;
}

int demo_main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_set_prgname("swnic-guest demo");
    DemoOptions options = {.size = 64u << 20, .pings = 10, .timeout = 60};
    bool ok = parse_options(&argc, &argv, &options, &error);
    if (ok) {
        guest_guard_start((unsigned)options.timeout);
        ok = run_demo(&options);
    } else {
        fprintf(stderr, "swnic-guest: %s\n", error->message);
    }
    g_free(options.emulator);
    g_free(options.device);
    g_free(options.size_text);
    g_free(options.vfio_user);
    return ok ? 0 : 1;
}
