/*
 * The benchmarks: what one guest driver gets out of an emulator's virtio-net device.
 *
 * Scenarios are rows of a table.  A measurement starts a fresh emulator, drives its device for a
 * while and reads the process's CPU time around it.  With several emulators the measurements are
 * taken in turns, because this machine's speed changes over time: only neighbours compare.
 * Medians are printed with the range of all runs.
 */
#include "guest/commands.h"
#include "guest/emulator.h"
#include "guest/guard.h"
#include "guest/net-driver.h"
#include <gio/gio.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RAM_SIZE   (64u << 20)
#define BURST      64 /* frames queued before they are published */
#define WARM_UP_MS 100
#define MIN_FRAME  60
#define MAX_FRAME  1514

typedef struct BenchOptions {
    char **emulators, *device;
    int seconds, runs, frame_size;
} BenchOptions;

/* What one measurement found. */
typedef struct Sample {
    double packets_per_second;
    double cpu_ns;        /* of the emulator, a packet */
    double notifications; /* a packet */
} Sample;

typedef struct Bench {
    const BenchOptions *options;
    Emulator *emulator;
    GuestPciBus bus;
    GuestPciDevice *pci;
    NetDriver *driver;
} Bench;

typedef struct Scenario {
    const char *name, *summary;
    const char *device;                                  /* -device, more properties may follow */
    const char *const *arguments;                        /* NULL-terminated */
    bool (*run)(Bench *bench, gint64 us, GError **errp); /* loads the device for @us */
} Scenario;

/* CPU time of process @pid, ns; 0 when it is gone. */
static int64_t process_cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec ts;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) != 0) {
        return 0;
    }
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* Sends as fast as the device takes frames back. */
static bool run_tx(Bench *bench, gint64 us, GError **errp)
{
    uint8_t frame[MAX_FRAME] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    memcpy(frame + 6, net_driver_mac(bench->driver), 6);
    frame[12] = 0x88; /* 88B5: local experiments (IEEE 802) */
    frame[13] = 0xB5;
    struct iovec iov = {frame, (size_t)bench->options->frame_size};
    for (gint64 end = g_get_monotonic_time() + us; g_get_monotonic_time() < end;) {
        unsigned n = 0;
        while (n < BURST && net_driver_send(bench->driver, NULL, &iov, 1)) {
            n++;
        }
        net_driver_flush(bench->driver);
        if (n == 0) {
            sched_yield(); /* the ring is full: the device has the floor */
        }
    }
    return net_driver_check(bench->driver, errp);
}

static const char *const no_arguments[] = {"-nodefaults", NULL};

static const Scenario scenarios[] = {
    {"tx-none", "send to a device without a peer: the device alone",
     "virtio-net-pci,romfile=", no_arguments, run_tx},
};

static bool start(Bench *bench, const Scenario *scenario, const char *command, GError **errp)
{
    bool is_swnic = emulator_command_is_swnic(command, NULL);
    const char *extra = bench->options->device;
    g_autofree char *device = g_strconcat(scenario->device, extra ? "," : "", extra, NULL);
    g_autoptr(GPtrArray) arguments = g_ptr_array_new();
    for (const char *const *word = scenario->arguments; *word; word++) {
        g_ptr_array_add(arguments, (char *)*word);
    }
    g_ptr_array_add(arguments, (char *)"-device");
    g_ptr_array_add(arguments, device);
    g_ptr_array_add(arguments, NULL);
    EmulatorOptions options = {
        .command = command,
        .arguments = (const char *const *)arguments->pdata,
        .ram_size = RAM_SIZE,
        .accel = is_swnic ? NULL : "tcg",
        .halt_bios = !is_swnic,
    };
    NetDriverConfig config = {.features = NET_DRIVER_PLAIN_FEATURES};
    bench->emulator = emulator_start(&options, errp);
    if (!bench->emulator) {
        return false;
    }
    guest_pci_bus_init(&bench->bus, bench->emulator->qtest);
    bench->pci = guest_pci_device_find(&bench->bus, guest_pci_match_virtio_net, NULL, 0, errp);
    if (bench->pci) {
        bench->driver = net_driver_new(bench->pci, bench->emulator->ram, &config, errp);
    }
    return bench->driver != NULL;
}

static bool stop(Bench *bench, bool so_far, GError **errp)
{
    net_driver_free(bench->driver);
    g_free(bench->pci);
    if (!so_far) {
        emulator_kill(bench->emulator);
        return false;
    }
    return emulator_stop(bench->emulator, errp);
}

static uint64_t count_packets(const NetDriverStats *stats)
{
    return stats->rx_packets + stats->tx_packets;
}

static bool measure_load(Bench *bench, const Scenario *scenario, Sample *sample, GError **errp)
{
    NetDriverStats before, after;
    if (!scenario->run(bench, WARM_UP_MS * 1000, errp)) {
        return false;
    }
    net_driver_get_stats(bench->driver, &before);
    int64_t cpu = process_cpu_ns(bench->emulator->pid);
    gint64 begin = g_get_monotonic_time();
    if (!scenario->run(bench, bench->options->seconds * G_USEC_PER_SEC, errp)) {
        return false;
    }
    double seconds = (double)(g_get_monotonic_time() - begin) / G_USEC_PER_SEC;
    cpu = process_cpu_ns(bench->emulator->pid) - cpu;
    net_driver_get_stats(bench->driver, &after);
    double packets = (double)(count_packets(&after) - count_packets(&before));
    if (packets == 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "no packet crossed");
        return false;
    }
    uint64_t notifications = after.rx_notifications + after.tx_notifications -
                             before.rx_notifications - before.tx_notifications;
    *sample = (Sample){packets / seconds, (double)cpu / packets, (double)notifications / packets};
    return true;
}

static bool measure(const BenchOptions *options, const Scenario *scenario, const char *command,
                    Sample *sample, GError **errp)
{
    Bench bench = {.options = options};
    bool ok =
        start(&bench, scenario, command, errp) && measure_load(&bench, scenario, sample, errp);
    return stop(&bench, ok, errp);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts @values; "median (lowest to highest)" scaled by @scale. */
static char *summarise(double *values, unsigned n, double scale)
{
    qsort(values, n, sizeof(*values), compare_doubles);
    double median = (values[(n - 1) / 2] + values[n / 2]) / 2;
    return g_strdup_printf("%.3f (%.3f to %.3f)", median * scale, values[0] * scale,
                           values[n - 1] * scale);
}

/* Prints emulator @e's medians, and the ratio of its rate to the first one's, run by run. */
static void print_emulator(const BenchOptions *options, const Sample *samples, unsigned e)
{
    unsigned runs = (unsigned)options->runs;
    const Sample *own = samples + (size_t)e * runs;
    g_autofree double *rate = g_new(double, runs), *cpu = g_new(double, runs),
                      *notifications = g_new(double, runs), *ratio = g_new(double, runs);
    for (unsigned i = 0; i < runs; i++) {
        rate[i] = own[i].packets_per_second;
        cpu[i] = own[i].cpu_ns;
        notifications[i] = own[i].notifications;
        ratio[i] = rate[i] / samples[i].packets_per_second;
    }
    g_autofree char *rate_text = summarise(rate, runs, 1e-6);
    g_autofree char *cpu_text = summarise(cpu, runs, 1);
    g_autofree char *notification_text = summarise(notifications, runs, 1);
    printf("  %s\n    Mpackets/s           %s\n    CPU ns/packet        %s\n"
           "    notifications/packet %s\n",
           options->emulators[e], rate_text, cpu_text, notification_text);
    if (e > 0) {
        g_autofree char *ratio_text = summarise(ratio, runs, 1);
        printf("    rate against first   %s\n", ratio_text);
    }
}

static bool run_scenario(const BenchOptions *options, const Scenario *scenario, GError **errp)
{
    unsigned emulators = g_strv_length(options->emulators), runs = (unsigned)options->runs;
    g_autofree Sample *samples = g_new0(Sample, (gsize)emulators * runs);
    for (unsigned run = 0; run < runs; run++) {
        for (unsigned e = 0; e < emulators; e++) {
            if (!measure(options, scenario, options->emulators[e], &samples[e * runs + run],
                         errp)) {
                g_prefix_error(errp, "%s, %s: ", scenario->name, options->emulators[e]);
                return false;
            }
        }
    }
    printf("%s, %d-byte frames, %u runs of %d s: median (range)\n", scenario->name,
           options->frame_size, runs, options->seconds);
    for (unsigned e = 0; e < emulators; e++) {
        print_emulator(options, samples, e);
    }
    return true;
}

static const Scenario *find_scenario(const char *name)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(scenarios); i++) {
        if (strcmp(name, scenarios[i].name) == 0) {
            return &scenarios[i];
        }
    }
    return NULL;
}

static bool parse_options(int *argc, char ***argv, BenchOptions *options, GError **errp)
{
    const GOptionEntry entries[] = {
        {"emulator", 'e', 0, G_OPTION_ARG_STRING_ARRAY, &options->emulators,
         "Emulator to measure; may be given several times, to compare in turns", "COMMAND"},
        {"device", 'd', 0, G_OPTION_ARG_STRING, &options->device,
         "More properties for -device virtio-net-pci", "PROPS"},
        {"seconds", 's', 0, G_OPTION_ARG_INT, &options->seconds, "Length of a run; default 2", "N"},
        {"runs", 'r', 0, G_OPTION_ARG_INT, &options->runs, "Runs of each; default 5", "N"},
        {"frame-size", 'f', 0, G_OPTION_ARG_INT, &options->frame_size, "Bytes a frame; default 60",
         "BYTES"},
        {NULL},
    };
    g_autoptr(GString) summary = g_string_new("Scenarios (all run when none is named):");
    for (unsigned i = 0; i < G_N_ELEMENTS(scenarios); i++) {
        g_string_append_printf(summary, "\n  %-10s %s", scenarios[i].name, scenarios[i].summary);
    }
    GOptionContext *context = g_option_context_new("[SCENARIO...]");
    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(context, summary->str);
    bool ok = g_option_context_parse(context, argc, argv, errp);
    g_option_context_free(context);
    if (ok && (options->seconds < 1 || options->seconds > 600 || options->runs < 1 ||
               options->runs > 100 || options->frame_size < MIN_FRAME ||
               options->frame_size > MAX_FRAME)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--seconds is from 1 to 600, --runs from 1 to 100, --frame-size from %d to %d",
                    MIN_FRAME, MAX_FRAME);
        return false;
    }
    return ok;
}

/* Runs the scenarios named in @names, or all of them. */
static bool run_named(const BenchOptions *options, char **names, unsigned count, GError **errp)
{
    for (unsigned i = 0; i < count; i++) {
        if (!find_scenario(names[i])) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                        "no benchmark '%s'; --help lists them", names[i]);
            return false;
        }
    }
    unsigned n = count ? count : G_N_ELEMENTS(scenarios);
    for (unsigned i = 0; i < n; i++) {
        const Scenario *scenario = count ? find_scenario(names[i]) : &scenarios[i];
        if (!run_scenario(options, scenario, errp)) {
            return false;
        }
    }
    return true;
}

int bench_main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_set_prgname("swnic-guest bench");
    BenchOptions options = {.seconds = 2, .runs = 5, .frame_size = MIN_FRAME};
    bool ok = parse_options(&argc, &argv, &options, &error);
    if (ok) {
        guest_guard_start(0);
        if (!options.emulators) {
            options.emulators = g_new0(char *, 2);
            options.emulators[0] = emulator_default_command();
        }
        ok = run_named(&options, argv + 1, (unsigned)argc - 1, &error);
    }
    if (!ok) {
        fprintf(stderr, "swnic-guest: %s\n", error->message);
    }
    g_strfreev(options.emulators);
    g_free(options.device);
    return ok ? 0 : 1;
}
