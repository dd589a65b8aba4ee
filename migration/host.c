/* The machine as migration knows it. */
#include "migration/host.h"

#include "internal.h"

const MigrationHost *migration_host;

void migration_set_host(const MigrationHost *host)
{
    migration_host = host;
}
