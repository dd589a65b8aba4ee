/* Shared by the files of system/: settings from the command line, and the phases of main(). */
#ifndef SYSTEM_SYSTEM_H
#define SYSTEM_SYSTEM_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/keyval.h"

/* What simple options leave behind for main(). */
typedef struct Settings {
    char *name, *uuid;
    char *pidfile;
    char *sandbox;
    char *machine;                /* last -machine's type, or NULL */
    json_object *machine_options; /* properties of all -machine options; never NULL after start */
    char *accel;                  /* "qtest", "tcg" or NULL */
    char *accel_error;            /* why the last -accel was not taken */
    char *qtest, *qtest_log;
    char *incoming;     /* URI, "defer", or NULL */
    uint64_t ram_size;  /* bytes; 0: the machine's default */
    bool start_stopped; /* -S */
    bool no_reboot, no_shutdown;
    bool daemonize, exit_with_parent;
} Settings;
extern Settings settings;

/* Options are handled phase by phase, within a phase as they were given. */
typedef enum Phase {
    PHASE_SETTINGS, /* before anything is made */
    PHASE_GLOBALS,  /* types are registered */
    PHASE_OBJECTS,  /* memory back ends, iothreads */
    PHASE_CHARDEVS,
    PHASE_NETDEVS,
    PHASE_MACHINE, /* between machine_new() and machine_init() */
    PHASE_DEVICES,
    PHASE_LATE_OBJECTS, /* what refers to devices and netdevs: filters, servers */
    PHASE_MONITORS,
} Phase;

typedef struct CmdlineStep {
    Phase phase;
    gboolean (*handle)(const char *value, GError **errp);
} CmdlineStep;

/* One row a spelling.  @arg NULL: the option takes none. */
typedef struct CmdlineOption {
    const char *name, *arg;
    const char *help;
    CmdlineStep steps[3]; /* what is done in which phase; ended by handle NULL */
    const char *refusal;  /* why there is no such thing here, or NULL */
} CmdlineOption;
extern const CmdlineOption cmdline_options[]; /* ended by name NULL */

/* cmdline.c */
gboolean cmdline_parse(int argc, char **argv, GError **errp);
gboolean cmdline_run_phase(Phase phase, GError **errp);
/* As if `-NAME VALUE` had been given; for -readconfig. */
gboolean cmdline_add(const char *name, const char *value, GError **errp);
/* -set GROUP.ID.ARG=VALUE. */
gboolean cmdline_set(const char *text, GError **errp);
/* The options given so far that have parameters, as a file for -readconfig; g_free. */
char *cmdline_to_config(void);
void cmdline_print_help(void);
void cmdline_cleanup(void);

/* options.c: for -object and object_add. */
extern const KeyvalOptions object_keyval;
/* Prints @text on standard output and ends the process: what "help" as a value asked for. */
void print_help_and_exit(const char *text) G_GNUC_NORETURN;
/* Waits for the clients of servers made with wait=on. */
gboolean options_wait_for_clients(GError **errp);
void options_cleanup(void);

/* option-values.c: the settings' options */
gboolean opt_machine(const char *value, GError **errp);
gboolean opt_accel(const char *value, GError **errp);
gboolean opt_memory(const char *value, GError **errp);
gboolean opt_name(const char *value, GError **errp);
gboolean opt_uuid(const char *value, GError **errp);
gboolean opt_display(const char *value, GError **errp);
gboolean opt_audio(const char *value, GError **errp);
gboolean opt_vga(const char *value, GError **errp);
gboolean opt_no_device(const char *value, GError **errp);
gboolean opt_run_with(const char *value, GError **errp);
gboolean opt_msg(const char *value, GError **errp);
gboolean opt_log_items(const char *value, GError **errp);
gboolean opt_log_file(const char *value, GError **errp);
gboolean opt_trace(const char *value, GError **errp);
gboolean opt_sandbox(const char *value, GError **errp);
gboolean opt_readconfig(const char *value, GError **errp);
gboolean opt_set(const char *value, GError **errp);
gboolean opt_writeconfig(const char *value, GError **errp);
gboolean opt_add_fd(const char *value, GError **errp);

/* sandbox.c: "on,spawn=deny,…" */
gboolean sandbox_check(const char *text, GError **errp);
gboolean sandbox_enter(const char *text, GError **errp);

/* monitor-object.c */
void monitor_object_register_types(void);

/* hmp-cmds.c; the others belong to the QMP commands that they print */
void system_register_hmp(void);
void hmp_complete_device_add(const char *args, GPtrArray *words);
void hmp_complete_object_add(const char *args, GPtrArray *words);
void hmp_complete_device_id(const char *args, GPtrArray *words);
void hmp_complete_object_id(const char *args, GPtrArray *words);
void hmp_complete_qom(const char *args, GPtrArray *words);
void hmp_info_pci(const char *args, GString *out);
void hmp_info_mtree(const char *args, GString *out);
void hmp_info_stats(const char *args, GString *out);
void hmp_info_virtio(const char *args, GString *out);
void hmp_info_virtio_status(const char *args, GString *out);
void hmp_info_virtio_queue_status(const char *args, GString *out);
void hmp_info_virtio_queue_element(const char *args, GString *out);

/* process.c: what concerns the process: daemon, pid file, parent, signals. */
gboolean process_daemonize(GError **errp); /* returns in the child; the parent waits */
void process_daemon_ready(void);           /* lets the parent exit with 0 */
gboolean process_write_pidfile(const char *path, GError **errp);
void process_remove_pidfile(void);
gboolean process_exit_with_parent(GError **errp);
void process_handle_signals(void);

#endif
