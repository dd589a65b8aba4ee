/* Capabilities and parameters in force; their commands are in options.c. */
#include "internal.h"

/* Defaults are QEMU's. */
MigrationOptions migration_options = {
    .max_bandwidth = 128u << 20,
    .downtime_limit = 300,
    .announce_initial = 50,
    .announce_max = 550,
    .announce_rounds = 5,
    .announce_step = 100,
};
