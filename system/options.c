/*
 * The table of options, and the handlers of those that make things: objects, character devices,
 * netdevs, devices, monitors.  Handlers of plain settings are in option-values.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chardev/chardev.h"
#include "hw/core/device.h"
#include "hw/core/machine.h"
#include "net/net.h"
#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "qom/object.h"
#include "system.h"
#include "util/error.h"
#include "util/json.h"

const KeyvalOptions object_keyval = {.implied_key = "qom-type", .allow_flags = true};

static GPtrArray *nic_devices; /* json_object*: devices that -nic asked for */
static unsigned compat_monitors;

static void free_json(gpointer value)
{
    json_object_put(value);
}

/* Ends with status 0 in the middle of the start: what other processes would see is taken down. */
static void G_GNUC_NORETURN exit_early(void)
{
    chardev_cleanup_all();
    process_remove_pidfile();
    fflush(stdout);
    _exit(0);
}

void print_help_and_exit(const char *text)
{
    fputs(text, stdout);
    if (*text && text[strlen(text) - 1] != '\n') {
        putchar('\n');
    }
    exit_early();
}

static gboolean opt_help(const char *value, GError **errp)
{
    cmdline_print_help();
    exit_early();
}

/* One line an option, for the manual page and the shell's completion: name, argument, help. */
static gboolean opt_list_options(const char *value, GError **errp)
{
    for (const CmdlineOption *option = cmdline_options; option->name; option++) {
        if (!option->refusal && (option->help || option->arg)) {
            printf("%s\t%s\t%s\n", option->name, option->arg ? option->arg : "",
                   option->help ? option->help : "");
        }
    }
    exit_early();
}

static gboolean opt_version(const char *value, GError **errp)
{
    VersionInfo *info = qmp_query_version(errp);

    printf("swnic-system-x86_64 version " SWNIC_VERSION
           " (interfaces of QEMU emulator version %" PRIi64 ".%" PRIi64 ".%" PRIi64 ")\n",
           info->qemu->major, info->qemu->minor, info->qemu->micro);
    qapi_free_VersionInfo(info);
    exit_early();
}

static gboolean opt_stopped(const char *value, GError **errp)
{
    settings.start_stopped = true;
    return TRUE;
}

static gboolean opt_no_reboot(const char *value, GError **errp)
{
    settings.no_reboot = true;
    return TRUE;
}

static gboolean opt_only_migratable(const char *value, GError **errp)
{
    device_set_only_migratable();
    return TRUE;
}

static gboolean opt_daemonize(const char *value, GError **errp)
{
    settings.daemonize = true;
    return TRUE;
}

static gboolean opt_accepted(const char *value, GError **errp)
{
    return TRUE;
}

static void replace(char **place, const char *value)
{
    g_free(*place);
    *place = g_strdup(value);
}

static gboolean opt_pidfile(const char *value, GError **errp)
{
    replace(&settings.pidfile, value);
    return TRUE;
}

static gboolean opt_incoming(const char *value, GError **errp)
{
    replace(&settings.incoming, value);
    return TRUE;
}

static gboolean opt_qtest(const char *value, GError **errp)
{
    replace(&settings.qtest, value);
    return TRUE;
}

static gboolean opt_qtest_log(const char *value, GError **errp)
{
    replace(&settings.qtest_log, value);
    return TRUE;
}

/* -global DRIVER.PROP=VALUE or driver=…,property=…,value=… */
static gboolean opt_global(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.flat = true};
    const char *dot = strchr(value, '.'), *equals = strchr(value, '=');

    if (dot && equals && dot < equals) {
        g_autofree char *driver = g_strndup(value, dot - value);
        g_autofree char *property = g_strndup(dot + 1, equals - dot - 1);
        return qom_add_global(driver, property, equals + 1, errp);
    }
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    if (!options) {
        return FALSE;
    }
    const char *driver = json_member_string(options, "driver");
    const char *property = json_member_string(options, "property");
    const char *text = json_member_string(options, "value");
    gboolean ok = driver && property && text ? qom_add_global(driver, property, text, errp)
                                             : error_set(errp, "expected DRIVER.PROPERTY=VALUE");
    json_object_put(options);
    return ok;
}

/* Objects that refer to devices or netdevs, or that are referred to by none of them. */
static bool object_is_late(const char *type)
{
    return g_str_has_prefix(type, "filter-") || g_str_has_prefix(type, "monitor-") ||
           !strcmp(type, "colo-compare") || !strcmp(type, "vfio-user-server") ||
           !strcmp(type, "x-vfio-user-server");
}

static void add_object_type(GType type, void *opaque)
{
    ObjectClass *klass = g_type_class_ref(type);

    if (klass->user_creatable) {
        g_string_append_printf(opaque, "  %-24s %s\n", qom_type_name(type),
                               klass->description ? klass->description : "");
    }
    g_type_class_unref(klass);
}

static void object_help_and_exit(const char *type)
{
    GType gtype = type ? qom_type_by_name(type) : G_TYPE_INVALID;
    GString *out = g_string_new("List of user creatable objects:\n");

    if (gtype != G_TYPE_INVALID) {
        g_autofree char *properties = qom_type_help(gtype);
        g_string_printf(out, "%s options:\n%s", type, properties);
    } else {
        qom_foreach_type(TYPE_OBJECT, false, add_object_type, out);
    }
    print_help_and_exit(out->str);
}

static gboolean add_object(const char *value, bool late, GError **errp)
{
    bool help;
    json_object *options = keyval_parse(value, &object_keyval, &help, errp);
    gboolean ok = TRUE;

    if (!options) {
        return FALSE;
    }
    const char *type = json_member_string(options, "qom-type");
    if (help) {
        object_help_and_exit(type);
    }
    if ((type && object_is_late(type)) == late) {
        ok = user_object_add(options, errp) != NULL;
    }
    json_object_put(options);
    return ok;
}

static gboolean opt_object(const char *value, GError **errp)
{
    return add_object(value, false, errp);
}

static gboolean opt_object_late(const char *value, GError **errp)
{
    return add_object(value, true, errp);
}

static gboolean opt_chardev(const char *value, GError **errp)
{
    bool help;
    json_object *options = chardev_parse_options(value, &help, errp);

    if (!options) {
        return FALSE;
    }
    if (help) {
        g_autofree char *text = chardev_types_help();
        print_help_and_exit(text);
    }
    gboolean ok = chardev_new(options, errp) != NULL;
    json_object_put(options);
    return ok;
}

static void wait_for_client(Chardev *chr, void *opaque)
{
    GError **errp = opaque;

    if (!*errp) {
        chardev_wait_connected(chr, errp);
    }
}

gboolean options_wait_for_clients(GError **errp)
{
    GError *err = NULL;

    chardev_foreach(wait_for_client, &err);
    if (err) {
        g_propagate_error(errp, err);
    }
    return !err;
}

static gboolean opt_netdev(const char *value, GError **errp)
{
    KeyvalOptions opts = {
        .implied_key = "type",
        .allow_flags = !net_options_are_strict(value),
        .list_keys = net_list_keys,
    };
    bool help;
    json_object *options = keyval_parse(value, &opts, &help, errp);

    if (!options) {
        return FALSE;
    }
    if (help) {
        g_autofree char *text = net_help_text();
        print_help_and_exit(text);
    }
    gboolean ok = net_init_netdev(options, errp);
    json_object_put(options);
    return ok;
}

static gboolean opt_nic(const char *value, GError **errp)
{
    json_object *netdev, *device;

    if (!strcmp(value, "help") || !strcmp(value, "?")) {
        g_autofree char *text = net_help_text();
        print_help_and_exit(text);
    }
    if (!net_parse_nic(value, "virtio-net-pci", &netdev, &device, errp)) {
        return FALSE;
    }
    gboolean ok = !netdev || net_init_netdev(netdev, errp);
    json_object_put(netdev);
    if (device && ok) {
        if (!nic_devices) {
            nic_devices = g_ptr_array_new_with_free_func(free_json);
        }
        g_ptr_array_add(nic_devices, device);
    } else {
        json_object_put(device);
    }
    return ok;
}

static gboolean opt_nic_device(const char *value, GError **errp)
{
    /* One device a -nic, in order; -nic none made none. */
    if (!strcmp(value, "none") || !nic_devices || !nic_devices->len) {
        return TRUE;
    }
    json_object *device = g_ptr_array_steal_index(nic_devices, 0);
    gboolean ok = device_add(device, errp) != NULL;
    json_object_put(device);
    return ok;
}

static gboolean device_help_and_exit(const char *driver, GError **errp)
{
    GType type = driver ? qom_type_by_name(device_resolve_alias(driver)) : G_TYPE_INVALID;

    if (type == G_TYPE_INVALID && driver) {
        return error_set(errp, "'%s' is not a valid device model name (-device help lists them)",
                         driver);
    }
    if (type == G_TYPE_INVALID) {
        g_autofree char *text = device_list_help();
        print_help_and_exit(text);
    }
    g_autofree char *properties = qom_type_help(type);
    g_autofree char *text = g_strdup_printf("%s options:\n%s", driver, properties);
    print_help_and_exit(text);
}

static const KeyvalOptions device_keyval = {
    .implied_key = "driver", .allow_flags = true, .flat = true};

/* Runs before anything is made, so that -device help works whatever else is wrong. */
static gboolean opt_device_help(const char *value, GError **errp)
{
    bool help;
    json_object *options = keyval_parse(value, &device_keyval, &help, errp);

    gboolean ok =
        options && (!help || device_help_and_exit(json_member_string(options, "driver"), errp));
    json_object_put(options);
    return ok;
}

static gboolean opt_device(const char *value, GError **errp)
{
    json_object *options = keyval_parse(value, &device_keyval, NULL, errp);
    GError *err = NULL;

    /* None is made, without an error, of a primary that its standby keeps back. */
    if (options) {
        device_add(options, &err);
        json_object_put(options);
    }
    if (err) {
        g_propagate_error(errp, err);
        return FALSE;
    }
    return options != NULL;
}

/* -numa node,memdev=ID: RAM in order of nodes. */
static gboolean opt_numa(const char *value, GError **errp)
{
    static const char *const known[] = {"type", "memdev", "nodeid", "cpus", NULL};
    static const KeyvalOptions opts = {.implied_key = "type", .flat = true};
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    gboolean ok = TRUE;

    if (!options) {
        return FALSE;
    }
    const char *type = json_member_string(options, "type");
    const char *memdev = json_member_string(options, "memdev");
    json_object_object_foreach(options, key, member)
    {
        (void)member;
        if (ok && !g_strv_contains(known, key)) {
            ok = error_set(errp, "Parameter '%s' is unexpected, use memdev=ID", key);
        }
    }
    if (ok && (!type || strcmp(type, "node"))) {
        ok = error_set(errp, "only -numa node,memdev=ID is available");
    }
    if (ok && memdev) {
        ok = machine_add_ram_backend(current_machine, memdev, errp);
    }
    json_object_put(options);
    return ok;
}

static gboolean opt_mon(const char *value, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "chardev", .allow_flags = true, .flat = true};
    static const char *const known[] = {"chardev", "mode", "pretty", "id", NULL};
    json_object *options = keyval_parse(value, &opts, NULL, errp);
    bool pretty = false;
    gboolean ok = options != NULL;

    if (!ok) {
        return FALSE;
    }
    const char *id = json_member_string(options, "chardev");
    const char *mode = json_member_string(options, "mode");
    const char *pretty_text = json_member_string(options, "pretty");
    Chardev *chr = id ? chardev_find(id) : NULL;
    json_object_object_foreach(options, key, member)
    {
        (void)member;
        if (ok && !g_strv_contains(known, key)) {
            ok = error_set(errp, "Parameter '%s' is unexpected", key);
        }
    }
    if (ok && !chr) {
        ok = error_set(errp, "chardev \"%s\" not found", id ? id : "");
    }
    ok = ok && (!pretty_text || parse_bool("pretty", pretty_text, &pretty, errp));
    if (ok && mode && strcmp(mode, "control") && strcmp(mode, "readline")) {
        ok = error_set(errp, "unknown monitor mode \"%s\", it is control or readline", mode);
    }
    if (ok && mode && !strcmp(mode, "control")) {
        ok = monitor_new_qmp(chr, pretty, errp) != NULL;
    } else if (ok) {
        ok = monitor_new_hmp(chr, true, errp) != NULL;
    }
    json_object_put(options);
    return ok;
}

/* Chardevs of -qmp and -monitor are made with the others, so that they listen early. */
static Chardev *compat_chardev(const char *value, GError **errp)
{
    g_autofree char *id = g_strdup_printf("compat_monitor%u", compat_monitors++);

    return chardev_new_compat(id, value, errp);
}

static gboolean opt_compat_chardev(const char *value, GError **errp)
{
    return !strcmp(value, "none") || compat_chardev(value, errp);
}

/* The nth of them belongs to the nth -qmp, -qmp-pretty or -monitor that is not "none". */
static Chardev *next_compat_chardev(const char *value)
{
    static unsigned next;

    if (g_str_has_prefix(value, "chardev:")) {
        next++;
        return chardev_find(value + strlen("chardev:"));
    }
    g_autofree char *id = g_strdup_printf("compat_monitor%u", next++);
    return chardev_find(id);
}

static gboolean opt_qmp(const char *value, GError **errp)
{
    return !strcmp(value, "none") || monitor_new_qmp(next_compat_chardev(value), false, errp);
}

static gboolean opt_qmp_pretty(const char *value, GError **errp)
{
    return !strcmp(value, "none") || monitor_new_qmp(next_compat_chardev(value), true, errp);
}

static gboolean opt_monitor(const char *value, GError **errp)
{
    return !strcmp(value, "none") || monitor_new_hmp(next_compat_chardev(value), true, errp);
}

static gboolean opt_net(const char *value, GError **errp)
{
    return net_parse_legacy_net(value, errp);
}

void options_cleanup(void)
{
    g_clear_pointer(&nic_devices, g_ptr_array_unref);
}

/* An option with one step; with two; one that is known and has no effect; one refused by name. */
#define OPTION(name, arg, help, phase, fn)                                                         \
    {                                                                                              \
        name, arg, help, {{phase, fn}}, NULL                                                       \
    }
#define OPTION2(name, arg, help, phase, fn, phase2, fn2)                                           \
    {                                                                                              \
        name, arg, help, {{phase, fn}, {phase2, fn2}}, NULL                                        \
    }
#define IGNORED(name, arg)                                                                         \
    {                                                                                              \
        name, arg, NULL, {{PHASE_SETTINGS, opt_accepted}}, NULL                                    \
    }
#define REFUSED(name, arg, reason)                                                                 \
    {                                                                                              \
        name, arg, NULL, {}, reason                                                                \
    }

#define NO_CPU     "there is no CPU; qtest plays it"
#define NO_DISK    "there are no disks"
#define NO_DISPLAY "there is no display"
#define NO_BOOT    "nothing is booted; qtest plays the guest's CPU"

const CmdlineOption cmdline_options[] = {
    OPTION("help", NULL, "this text", PHASE_SETTINGS, opt_help),
    OPTION("h", NULL, NULL, PHASE_SETTINGS, opt_help),
    OPTION("x-list-options", NULL, NULL, PHASE_SETTINGS, opt_list_options),
    OPTION("version", NULL, "name and version", PHASE_SETTINGS, opt_version),
    OPTION("machine", "TYPE[,PROP=VALUE...]",
           "machine: pc, q35, microvm, vfio-user, none; memory-backend=ID is its RAM",
           PHASE_SETTINGS, opt_machine),
    OPTION("M", "MACHINE", "same as -machine", PHASE_SETTINGS, opt_machine),
    OPTION("accel", "qtest|tcg", "qtest: time moves by qtest's clock_step only; tcg: real time",
           PHASE_SETTINGS, opt_accel),
    OPTION("m", "[size=]SIZE", "RAM size, in MiB unless it has a suffix", PHASE_SETTINGS,
           opt_memory),
    OPTION("numa", "node,memdev=ID", "RAM from a memory back end, in order of nodes", PHASE_MACHINE,
           opt_numa),
    OPTION2("object", "TYPE,id=ID[,PROP=VALUE...]", "memory back end, iothread, filter, ...",
            PHASE_OBJECTS, opt_object, PHASE_LATE_OBJECTS, opt_object_late),
    OPTION2("device", "DRIVER[,id=ID][,PROP=VALUE...]", "device; DRIVER,help lists its properties",
            PHASE_GLOBALS, opt_device_help, PHASE_DEVICES, opt_device),
    OPTION("netdev", "TYPE,id=ID[,PROP=VALUE...]", "network back end", PHASE_NETDEVS, opt_netdev),
    OPTION2("nic", "TYPE[,mac=MAC][,model=M]...|none", "back end and virtio-net-pci in one",
            PHASE_NETDEVS, opt_nic, PHASE_DEVICES, opt_nic_device),
    OPTION("net", "none", "accepted for compatibility", PHASE_SETTINGS, opt_net),
    OPTION("chardev", "TYPE,id=ID[,PROP=VALUE...]", "character device", PHASE_CHARDEVS,
           opt_chardev),
    OPTION("mon", "[chardev=]ID[,mode=control|readline]", "monitor: QMP (control) or for people",
           PHASE_MONITORS, opt_mon),
    OPTION2("qmp", "unix:PATH[,server=on,wait=off]|...", "QMP monitor on a new character device",
            PHASE_CHARDEVS, opt_compat_chardev, PHASE_MONITORS, opt_qmp),
    OPTION2("qmp-pretty", "unix:PATH...", "the same, answers indented", PHASE_CHARDEVS,
            opt_compat_chardev, PHASE_MONITORS, opt_qmp_pretty),
    OPTION2("monitor", "stdio|unix:PATH...|none", "monitor for people", PHASE_CHARDEVS,
            opt_compat_chardev, PHASE_MONITORS, opt_monitor),
    OPTION("qtest", "unix:PATH|chardev:ID|...", "qtest server", PHASE_SETTINGS, opt_qtest),
    OPTION("qtest-log", "FILE|none", "log of qtest's lines", PHASE_SETTINGS, opt_qtest_log),
    OPTION("global", "DRIVER.PROP=VALUE", "default of a property", PHASE_GLOBALS, opt_global),
    OPTION("set", "GROUP.ID.ARG=VALUE", "adds ARG=VALUE to the option that has this id",
           PHASE_SETTINGS, opt_set),
    OPTION("readconfig", "FILE", "reads options from a file of [group \"id\"] sections",
           PHASE_SETTINGS, opt_readconfig),
    OPTION("writeconfig", "FILE", "writes options that -readconfig reads; - is standard output",
           PHASE_GLOBALS, opt_writeconfig),
    OPTION("add-fd", "fd=N,set=ID[,opaque=TEXT]",
           "puts an inherited file descriptor into the set /dev/fdset/ID", PHASE_SETTINGS,
           opt_add_fd),
    OPTION("S", NULL, "does not start: cont does", PHASE_SETTINGS, opt_stopped),
    OPTION("name", "NAME", "name of the guest", PHASE_SETTINGS, opt_name),
    OPTION("uuid", "UUID", "UUID of the guest", PHASE_SETTINGS, opt_uuid),
    OPTION("incoming", "URI|defer", "waits for a migration from tcp:, unix:, fd:, exec: or file:",
           PHASE_SETTINGS, opt_incoming),
    OPTION("no-reboot", NULL, "a reset ends the emulator", PHASE_SETTINGS, opt_no_reboot),
    OPTION("daemonize", NULL, "goes to the background once it is up", PHASE_SETTINGS,
           opt_daemonize),
    OPTION("pidfile", "FILE", "writes the process id", PHASE_SETTINGS, opt_pidfile),
    OPTION("run-with", "exit-with-parent=on", "ends when the process that started it ends",
           PHASE_SETTINGS, opt_run_with),
    OPTION("sandbox", "on|off[,spawn=deny]...", "forbids itself system calls it does not need",
           PHASE_SETTINGS, opt_sandbox),
    OPTION("d", "ITEM[,...]", "logs; -d help lists what", PHASE_SETTINGS, opt_log_items),
    OPTION("D", "FILE", "log file instead of standard error", PHASE_SETTINGS, opt_log_file),
    OPTION("trace", "[enable=]PATTERN[,events=FILE][,file=FILE]",
           "logs trace events; -trace help lists them", PHASE_SETTINGS, opt_trace),
    OPTION("only-migratable", NULL, "refuses devices that cannot be migrated", PHASE_SETTINGS,
           opt_only_migratable),
    OPTION("msg", "[timestamp=on|off][,guest-name=on|off]",
           "messages begin with the time (log lines too), and the guest's name", PHASE_SETTINGS,
           opt_msg),
    OPTION("display", "none", "there is no other", PHASE_SETTINGS, opt_display),
    OPTION("audio", "none", "there is no other", PHASE_SETTINGS, opt_audio),
    OPTION("vga", "none", "there is no other", PHASE_SETTINGS, opt_vga),
    OPTION("serial", "none|null", "there is no other", PHASE_SETTINGS, opt_no_device),
    OPTION("parallel", "none|null", "there is no other", PHASE_SETTINGS, opt_no_device),
    OPTION("nodefaults", NULL, "accepted: there are no default devices", PHASE_SETTINGS,
           opt_accepted),
    IGNORED("nographic", NULL),
    IGNORED("no-user-config", NULL),
    IGNORED("nodefconfig", NULL),
    IGNORED("no-shutdown", NULL),
    IGNORED("no-hpet", NULL),
    IGNORED("no-acpi", NULL),
    REFUSED("loadvm", "NAME", "no disk holds snapshots; use -incoming file:PATH"),
    REFUSED("cpu", "MODEL", NO_CPU),
    REFUSED("smp", "N", NO_CPU),
    REFUSED("enable-kvm", NULL, NO_CPU),
    REFUSED("icount", "N", NO_CPU),
    REFUSED("kernel", "FILE", NO_BOOT),
    REFUSED("initrd", "FILE", NO_BOOT),
    REFUSED("append", "TEXT", NO_BOOT),
    REFUSED("dtb", "FILE", NO_BOOT),
    REFUSED("bios", "FILE", NO_BOOT),
    REFUSED("boot", "ORDER", NO_BOOT),
    REFUSED("L", "DIRECTORY", NO_BOOT),
    REFUSED("option-rom", "FILE", NO_BOOT),
    REFUSED("smbios", "...", NO_BOOT),
    REFUSED("acpitable", "...", NO_BOOT),
    REFUSED("fw_cfg", "...", "fw_cfg has fixed items only"),
    REFUSED("drive", "...", NO_DISK),
    REFUSED("blockdev", "...", NO_DISK),
    REFUSED("hda", "FILE", NO_DISK),
    REFUSED("hdb", "FILE", NO_DISK),
    REFUSED("hdc", "FILE", NO_DISK),
    REFUSED("hdd", "FILE", NO_DISK),
    REFUSED("cdrom", "FILE", NO_DISK),
    REFUSED("fda", "FILE", NO_DISK),
    REFUSED("fdb", "FILE", NO_DISK),
    REFUSED("sd", "FILE", NO_DISK),
    REFUSED("pflash", "FILE", NO_DISK),
    REFUSED("mtdblock", "FILE", NO_DISK),
    REFUSED("snapshot", NULL, NO_DISK),
    REFUSED("virtfs", "...", NO_DISK),
    REFUSED("fsdev", "...", NO_DISK),
    REFUSED("vnc", "DISPLAY", NO_DISPLAY),
    REFUSED("spice", "...", NO_DISPLAY),
    REFUSED("full-screen", NULL, NO_DISPLAY),
    REFUSED("k", "LAYOUT", NO_DISPLAY),
    REFUSED("usb", NULL, "there is no USB controller"),
    REFUSED("usbdevice", "NAME", "there is no USB controller"),
    REFUSED("audiodev", "...", "there is no audio"),
    REFUSED("soundhw", "...", "there is no audio"),
    REFUSED("rtc", "...", "there is no real-time clock device"),
    REFUSED("watchdog", "MODEL", "there is no watchdog"),
    REFUSED("tpmdev", "...", "there is no TPM"),
    REFUSED("gdb", "DEVICE", NO_CPU),
    REFUSED("s", NULL, NO_CPU),
    REFUSED("mem-path", "PATH", "use -object memory-backend-file with -machine memory-backend="),
    REFUSED("mem-prealloc", NULL, "use -object memory-backend-...,prealloc=on"),
    REFUSED("runas", "USER", "start it as that user"),
    REFUSED("chroot", "DIRECTORY", "start it there"),
    {NULL},
};
