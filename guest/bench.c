/*
 * The benchmarks: what one guest driver gets out of an emulator's virtio-net device.
 *
 * A measurement starts a fresh emulator, drives its device for a while and reads the process's
 * CPU time around it.  The subjects (a plain loop of system calls where there is one, then each
 * emulator) are measured in turns, since this machine's speed changes over time: only neighbours
 * compare.  Printed are medians with 95% intervals, and ratios of the neighbours' rates with
 * what the project asks of them.
 */
#include "guest/bench.h"
#include "guest/bench-stats.h"
#include "guest/commands.h"
#include "guest/guard.h"
#include <gio/gio.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OTHERS 0.2 /* CPUs that others may use before a goal counts as missed */
#define TRIES      4   /* of another emulator: QEMU 7.2's stream hangs now and then */

typedef enum SubjectKind { SUBJECT_PLAIN, SUBJECT_SWNIC, SUBJECT_OTHER } SubjectKind;

typedef struct Subject {
    SubjectKind kind;
    const char *command; /* NULL: plain */
    char *label;
} Subject;

/* One scenario at one frame size; [subject * runs + run]. */
typedef struct Results {
    const BenchScenario *scenario;
    unsigned size;
    const Subject *subjects;
    unsigned count; /* of subjects */
    BenchSample *samples;
} Results;

/* The first swnic's rate against another's, at least so much. */
static const struct Goal {
    const char *scenario;
    unsigned size;
    SubjectKind against;
    double ratio;
} goals[] = {
    {"tx-none", BENCH_SMALL, SUBJECT_OTHER, 2},      {"tx-tap", BENCH_SMALL, SUBJECT_PLAIN, 0.85},
    {"dgram-tx", BENCH_SMALL, SUBJECT_OTHER, 3},     {"dgram-tx", BENCH_FULL, SUBJECT_OTHER, 3},
    {"dgram-rx", BENCH_SMALL, SUBJECT_OTHER, 3},     {"dgram-rx", BENCH_FULL, SUBJECT_OTHER, 3},
    {"stream-tx", BENCH_SMALL, SUBJECT_OTHER, 1.3},  {"stream-tx", BENCH_FULL, SUBJECT_OTHER, 1.3},
    {"stream-rx", BENCH_SMALL, SUBJECT_OTHER, 1.3},  {"stream-rx", BENCH_FULL, SUBJECT_OTHER, 1.3},
    {"user-download", BENCH_FULL, SUBJECT_OTHER, 1},
};

typedef struct Run {
    const BenchOptions *options;
    Subject *subjects; /* [0] is the plain loop */
    unsigned count;
    bool has_tap, all_met;
} Run;

/* --- the report --- */

static BenchInterval interval_of(const Results *results, unsigned subject, unsigned runs,
                                 size_t field)
{
    g_autofree double *values = g_new(double, runs);
    for (unsigned i = 0; i < runs; i++) {
        values[i] = *(const double *)((const char *)&results->samples[subject * runs + i] + field);
    }
    return bench_interval(values, runs);
}

static void print_interval(const char *name, BenchInterval interval, double scale)
{
    printf("    %-22s %9.3f  [%.3f, %.3f]\n", name, interval.median * scale, interval.low * scale,
           interval.high * scale);
}

static void print_rate(const Results *results, BenchInterval rate)
{
    switch (results->scenario->unit) {
    case BENCH_ROUND_TRIPS:
        print_interval("µs/round trip",
                       (BenchInterval){1e6 / rate.median, 1e6 / rate.high, 1e6 / rate.low}, 1);
        break;
    case BENCH_BYTES:
        print_interval("Mbyte/s", rate, 1e-6);
        print_interval("Gbit/s", rate, 8e-9);
        break;
    case BENCH_PACKETS:
        print_interval("Mpackets/s", rate, 1e-6);
        if (results->size > BENCH_SMALL) {
            print_interval("Gbit/s", rate, results->size * 8e-9);
        }
    }
}

static void print_subject(const Results *results, unsigned subject, unsigned runs)
{
    static const struct {
        const char *name;
        double scale;
    } cpu[] = {
        [BENCH_PACKETS] = {"CPU ns/packet", 1},
        [BENCH_ROUND_TRIPS] = {"CPU ns/round trip", 1},
        [BENCH_BYTES] = {"CPU ns/Kbyte", 1000},
    };
    BenchUnit unit = results->scenario->unit;
    BenchInterval notifications =
        interval_of(results, subject, runs, offsetof(BenchSample, notifications));
    printf("  %s\n", results->subjects[subject].label);
    print_rate(results, interval_of(results, subject, runs, offsetof(BenchSample, rate)));
    print_interval(cpu[unit].name,
                   interval_of(results, subject, runs, offsetof(BenchSample, cpu_ns)),
                   cpu[unit].scale);
    if (!isnan(notifications.median)) {
        print_interval("notifications/packet", notifications, 1);
    }
}

static BenchInterval ratio_of(const Results *results, unsigned a, unsigned b, unsigned runs,
                              size_t field)
{
    g_autofree double *ratios = g_new(double, runs);
    for (unsigned i = 0; i < runs; i++) {
        const char *x = (const char *)&results->samples[a * runs + i] + field;
        const char *y = (const char *)&results->samples[b * runs + i] + field;
        ratios[i] = *(const double *)x / *(const double *)y;
    }
    return bench_interval(ratios, runs);
}

static const struct Goal *find_goal(const Results *results, SubjectKind against)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(goals); i++) {
        if (strcmp(goals[i].scenario, results->scenario->name) == 0 &&
            goals[i].size == results->size && goals[i].against == against) {
            return &goals[i];
        }
    }
    return NULL;
}

/* The first swnic against subject @other, neighbours in time compared. */
static void print_ratio(Run *run, const Results *results, unsigned own, unsigned other)
{
    unsigned runs = (unsigned)run->options->runs;
    const struct Goal *goal = results->subjects[own].kind == SUBJECT_SWNIC
                                  ? find_goal(results, results->subjects[other].kind)
                                  : NULL;
    BenchInterval rate = ratio_of(results, own, other, runs, offsetof(BenchSample, rate));
    BenchInterval cpu = ratio_of(results, own, other, runs, offsetof(BenchSample, cpu_ns));
    printf("  %s / %s: rate %.3f [%.3f, %.3f], CPU %.3f [%.3f, %.3f]\n",
           results->subjects[own].label, results->subjects[other].label, rate.median, rate.low,
           rate.high, cpu.median, cpu.low, cpu.high);
    if (goal) {
        BenchVerdict verdict = bench_verdict(&rate, goal->ratio);
        double others = interval_of(results, own, runs, offsetof(BenchSample, others)).median;
        bool disturbed = verdict == BENCH_MISSED && others > MAX_OTHERS;
        verdict = disturbed ? BENCH_NOT_RESOLVED : verdict;
        printf("    goal: rate at least %.2f: %s\n", goal->ratio, bench_verdict_name(verdict));
        if (disturbed) {
            printf("    (other programs used %.1f CPUs: measure when the machine is idle)\n",
                   others);
        }
        run->all_met = run->all_met && verdict == BENCH_MET;
    }
}

static void print_results(Run *run, const Results *results)
{
    unsigned runs = (unsigned)run->options->runs;
    unsigned first = results->subjects[0].kind == SUBJECT_PLAIN ? 1 : 0;
    printf("%s, %u-byte frames, %u runs of %d ms: median [95%% interval]\n",
           results->scenario->name, results->size, runs, run->options->milliseconds);
    for (unsigned i = 0; i < results->count; i++) {
        print_subject(results, i, runs);
    }
    for (unsigned i = 0; i < results->count; i++) {
        if (i != first && first < results->count) {
            print_ratio(run, results, first, i);
        }
    }
    fflush(stdout);
}

/* --- the turns --- */

static bool measure(const BenchOptions *options, const BenchScenario *scenario, unsigned size,
                    const Subject *subject, BenchSample *sample, GError **errp)
{
    bool ok = subject->command
                  ? scenario->run(options, scenario, size, subject->command, sample, errp)
                  : scenario->run_plain(options, scenario, size, sample, errp);
    if (!ok) {
        g_prefix_error(errp, "%s, %u bytes, %s: ", scenario->name, size, subject->label);
    }
    return ok;
}

/* What another emulator loses is not a failure of ours: it is said, and measured again. */
static bool measure_repeatedly(const BenchOptions *options, const BenchScenario *scenario,
                               unsigned size, const Subject *subject, BenchSample *sample,
                               GError **errp)
{
    unsigned tries = subject->kind == SUBJECT_OTHER ? TRIES : 1;
    for (unsigned i = 1; i < tries; i++) {
        g_autoptr(GError) error = NULL;
        if (measure(options, scenario, size, subject, sample, &error)) {
            return true;
        }
        fprintf(stderr, "swnic-guest: %s; once more\n", error->message);
    }
    return measure(options, scenario, size, subject, sample, errp);
}

/* False with error: one of ours or a plain loop failed.  *@given_up: another emulator did. */
static bool run_turns(Run *run, const Results *results, bool *given_up, GError **errp)
{
    unsigned runs = (unsigned)run->options->runs;
    for (unsigned i = 0; i < runs; i++) {
        for (unsigned j = 0; j < results->count; j++) {
            unsigned at = (i + j) % results->count; /* nobody is always first */
            const Subject *subject = &results->subjects[at];
            g_autoptr(GError) error = NULL;
            if (measure_repeatedly(run->options, results->scenario, results->size, subject,
                                   &results->samples[at * runs + i], &error)) {
                continue;
            }
            *given_up = subject->kind == SUBJECT_OTHER;
            if (*given_up) {
                printf("%s: given up\n", error->message);
                return true;
            }
            g_propagate_error(errp, g_steal_pointer(&error));
            return false;
        }
    }
    return true;
}

static bool run_size(Run *run, const BenchScenario *scenario, unsigned size, GError **errp)
{
    unsigned skip = scenario->run_plain ? 0 : 1, runs = (unsigned)run->options->runs;
    Results results = {scenario, size, run->subjects + skip, run->count - skip, NULL};
    g_autofree BenchSample *samples = g_new0(BenchSample, (gsize)results.count * runs);
    bool given_up = false;
    results.samples = samples;
    if (!run_turns(run, &results, &given_up, errp)) {
        return false;
    }
    if (given_up) {
        run->all_met = run->all_met && !find_goal(&results, SUBJECT_OTHER);
    } else {
        print_results(run, &results);
    }
    return true;
}

static bool run_scenario(Run *run, const BenchScenario *scenario, unsigned only, GError **errp)
{
    if (scenario->needs_tap && !run->has_tap) {
        printf("%s: not measured, there is no tap\n", scenario->name);
        return true;
    }
    for (const unsigned *size = scenario->sizes; *size; size++) {
        if ((!only || *size == only) && !run_size(run, scenario, *size, errp)) {
            return false;
        }
    }
    return true;
}

/* "tx-tap" or "tx-tap:1514". */
static const BenchScenario *find_scenario(const char *text, unsigned *size)
{
    const char *colon = strchrnul(text, ':');
    *size = *colon ? (unsigned)atoi(colon + 1) : 0;
    for (unsigned i = 0; i < bench_scenario_count; i++) {
        const BenchScenario *scenario = &bench_scenarios[i];
        if (strlen(scenario->name) != (size_t)(colon - text) ||
            strncmp(scenario->name, text, (size_t)(colon - text)) != 0) {
            continue;
        }
        for (const unsigned *at = scenario->sizes; *at; at++) {
            if (!*colon || *at == *size) {
                return scenario;
            }
        }
    }
    return NULL;
}

/* Runs the scenarios named in @names, or all of them. */
static bool run_named(Run *run, char **names, unsigned count, GError **errp)
{
    unsigned size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!find_scenario(names[i], &size)) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                        "no benchmark '%s'; --help lists them", names[i]);
            return false;
        }
    }
    size = 0;
    for (unsigned i = 0; i < (count ? count : bench_scenario_count); i++) {
        const BenchScenario *scenario =
            count ? find_scenario(names[i], &size) : &bench_scenarios[i];
        if (!run_scenario(run, scenario, size, errp)) {
            return false;
        }
    }
    return true;
}

/* --- start --- */

static bool parse_options(int *argc, char ***argv, BenchOptions *options, GError **errp)
{
    const GOptionEntry entries[] = {
        {"emulator", 'e', 0, G_OPTION_ARG_STRING_ARRAY, &options->emulators,
         "Emulator to measure; may be given several times, to compare in turns", "COMMAND"},
        {"device", 'd', 0, G_OPTION_ARG_STRING, &options->device,
         "More properties for -device virtio-net-pci", "PROPS"},
        {"milliseconds", 'm', 0, G_OPTION_ARG_INT, &options->milliseconds,
         "Length of a run; default 500", "N"},
        {"runs", 'r', 0, G_OPTION_ARG_INT, &options->runs, "Runs of each; default 7", "N"},
        {"quick", 'q', 0, G_OPTION_ARG_NONE, &options->quick, "3 runs of 150 ms, unless given",
         NULL},
        {"check", 'c', 0, G_OPTION_ARG_NONE, &options->check,
         "Exit with status 2 if a goal is not met", NULL},
        {"one-download", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &options->one_download, NULL,
         NULL},
        {NULL},
    };
    g_autoptr(GString) summary =
        g_string_new("Scenarios (all run when none is named; NAME:SIZE is one frame size of it):");
    for (unsigned i = 0; i < bench_scenario_count; i++) {
        g_string_append_printf(summary, "\n  %-13s %s (", bench_scenarios[i].name,
                               bench_scenarios[i].summary);
        for (const unsigned *size = bench_scenarios[i].sizes; *size; size++) {
            g_string_append_printf(summary, "%u%s", *size, size[1] ? ", " : " bytes)");
        }
    }
    GOptionContext *context = g_option_context_new("[SCENARIO[:SIZE]...]");
    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(context, summary->str);
    bool ok = g_option_context_parse(context, argc, argv, errp);
    g_option_context_free(context);
    if (ok && !options->milliseconds) {
        options->milliseconds = options->quick ? 150 : 500;
    }
    if (ok && !options->runs) {
        options->runs = options->quick ? 3 : 7;
    }
    if (ok && (options->milliseconds < 10 || options->milliseconds > 600000 || options->runs < 1 ||
               options->runs > 100)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "--milliseconds is from 10 to 600000, --runs from 1 to 100");
        return false;
    }
    return ok;
}

/* "QEMU emulator version 7.2.22 (Debian …)" → "QEMU 7.2.22"; else the command's name. */
static char *label_of(const char *command, const char *version)
{
    const char *number = version ? strstr(version, " version ") : NULL;
    if (number && g_str_has_prefix(version, "QEMU")) {
        number += strlen(" version ");
        return g_strdup_printf("QEMU %.*s", (int)strcspn(number, " ("), number);
    }
    g_auto(GStrv) words = NULL;
    return g_path_get_basename(g_shell_parse_argv(command, NULL, &words, NULL) ? words[0]
                                                                               : command);
}

static void init_subjects(Run *run, char **emulators)
{
    run->count = 1 + g_strv_length(emulators);
    run->subjects = g_new0(Subject, run->count);
    run->subjects[0].label = g_strdup("plain system calls");
    for (unsigned i = 1; i < run->count; i++) {
        g_autofree char *version = NULL;
        bool is_swnic = emulator_command_is_swnic(emulators[i - 1], &version);
        run->subjects[i] = (Subject){
            .kind = is_swnic ? SUBJECT_SWNIC : SUBJECT_OTHER,
            .command = emulators[i - 1],
            .label = label_of(emulators[i - 1], version),
        };
    }
}

static void clear_subjects(Run *run)
{
    for (unsigned i = 0; i < run->count; i++) {
        g_free(run->subjects[i].label);
    }
    g_free(run->subjects);
}

/* Taps may be impossible here; what needs none is measured all the same. */
static bool have_taps(void)
{
    g_autoptr(GError) error = NULL;
    BenchTap tap;
    if (bench_tap_enter_namespace(&error) && bench_tap_open(&tap, &error)) {
        bench_tap_close(&tap);
        return true;
    }
    printf("no tap here: %s\n", error->message);
    return false;
}

int bench_main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    g_set_prgname("swnic-guest bench");
    BenchOptions options = {0};
    Run run = {.options = &options, .all_met = true};
    bool ok = parse_options(&argc, &argv, &options, &error);
    if (ok && options.one_download) {
        guest_guard_start(0);
        ok = bench_user_print_sample(&options, &error);
    } else if (ok) {
        run.has_tap = have_taps();
        guest_guard_start(0);
        if (!options.emulators) {
            options.emulators = g_new0(char *, 2);
            options.emulators[0] = emulator_default_command();
        }
        init_subjects(&run, options.emulators);
        ok = run_named(&run, argv + 1, (unsigned)argc - 1, &error);
        clear_subjects(&run);
    }
    if (!ok) {
        fprintf(stderr, "swnic-guest: %s\n", error->message);
    }
    g_strfreev(options.emulators);
    g_free(options.device);
    return !ok ? 1 : options.check && !run.all_met ? 2 : 0;
}
