/*
 * An emulator as a child process: started, connected to, and surely ended.
 *
 * The child gets a qtest and a QMP socket in a directory that is removed as soon as both are
 * connected, guest RAM that we map too, and a parent-death signal, so that nothing is left
 * behind however this process ends.  Start emulators from a thread that lives as long as they
 * do: the kernel sends the parent-death signal when the thread that forked ends.
 */
#ifndef GUEST_EMULATOR_H
#define GUEST_EMULATOR_H

#include "guest/qmp-client.h"
#include "guest/qtest-client.h"
#include "guest/ram.h"
#include <sys/types.h>

typedef struct EmulatorOptions {
    const char *command;          /* program and arguments, quoted as in a shell */
    const char *const *arguments; /* NULL-terminated, put last; may be NULL */
    size_t ram_size;              /* shared guest RAM in bytes; 0: the emulator's own RAM */
    GuestRam *ram;                /* instead: RAM that stays the caller's; NULL: none */
    const char *accel;            /* "qtest", "tcg"; NULL: no -accel option */
    bool halt_bios;               /* give it firmware that halts at once (QEMU with a CPU) */
    const int *inherit_fds;       /* -1-terminated: kept open in the child; may be NULL */
    unsigned start_timeout_ms;    /* 0: 20,000 */
} EmulatorOptions;

typedef struct Emulator {
    pid_t pid;
    QtestClient *qtest;
    QmpClient *qmp; /* negotiated */
    GuestRam *ram;  /* NULL without ram_size */
} Emulator;

Emulator *emulator_start(const EmulatorOptions *options, GError **errp);
/*
 * "quit" over QMP, then SIGTERM, then SIGKILL, and waits; frees @emulator.  True when it ended
 * by itself with exit status 0.
 */
bool emulator_stop(Emulator *emulator, GError **errp);
/* SIGKILL at once and free, for paths that have failed already; NULL is fine. */
void emulator_kill(Emulator *emulator);
/* Whether the process still runs. */
bool emulator_is_alive(Emulator *emulator);

/*
 * Ends every running emulator of this process and removes their directories.  For a thread that
 * handles SIGINT or SIGTERM: nothing else may use them afterwards, the process is to end.
 */
void emulator_kill_all(void);

/* True when @command is this project's emulator: by its file name, else by what -version says.
 * *@version (may be NULL) is the first line of -version, g_free it; NULL when it cannot run. */
bool emulator_command_is_swnic(const char *command, char **version);

/* The command of the swnic-system-x86_64 that lies beside this program; g_free it. */
char *emulator_default_command(void);

#endif
