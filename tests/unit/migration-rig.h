/*
 * A machine as small as can be for tests of whole migration streams: 16 KiB of RAM in two blocks,
 * one device with a few fields.  Used by test-migration-stream.c and fuzz-migration.c.
 */
#ifndef TESTS_UNIT_MIGRATION_RIG_H
#define TESTS_UNIT_MIGRATION_RIG_H

#include <string.h>

#include "migration/internal.h"
#include "util/error.h"

#define RIG_BLOCK_SIZE (2 * MIGRATION_PAGE_SIZE)

static uint8_t rig_ram[2][RIG_BLOCK_SIZE] __attribute__((aligned(4096)));

typedef struct RigDevice {
    uint32_t count;
    uint16_t values[8];
    uint32_t extra;
    bool has_extra;
    bool refuse;
    unsigned applied;
} RigDevice;
static RigDevice rig_device;

static bool rig_extra_needed(const void *state)
{
    return ((const RigDevice *)state)->has_extra;
}

static void rig_extra_loaded(void *state)
{
    ((RigDevice *)state)->has_extra = true;
}

static const VMStateDescription rig_extra = {
    .name = "rig/extra",
    .version = 1,
    .minimum_version = 1,
    .needed = rig_extra_needed,
    .loaded = rig_extra_loaded,
    .fields = (const VMStateField[]){VMS_UINT32(RigDevice, extra), VMS_END},
};

static void rig_fill(void *state, void *parent)
{
    memcpy(state, parent, sizeof(RigDevice));
}

static gboolean rig_check(void *state, void *parent, GError **errp)
{
    return !((RigDevice *)parent)->refuse || error_set(errp, "refused");
}

static void rig_apply(void *state, void *parent)
{
    unsigned applied = ((RigDevice *)parent)->applied;

    memcpy(parent, state, sizeof(RigDevice));
    ((RigDevice *)parent)->applied = applied + 1;
}

static const VMStateDescription rig_vmsd = {
    .name = "rig",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(RigDevice),
    .fill = rig_fill,
    .check = rig_check,
    .apply = rig_apply,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(RigDevice, count),
            VMS_ARRAY(RigDevice, values, uint16, VMS_COUNTED(RigDevice, count)),
            VMS_END,
        },
    .subsections = (const VMStateDescription *const[]){&rig_extra, NULL},
};

static gboolean rig_host_check(GError **errp)
{
    return TRUE;
}

static const char *rig_machine_name(void)
{
    return "rig";
}

static GArray *rig_host_ram(void)
{
    GArray *list = g_array_new(FALSE, TRUE, sizeof(MigrationRamRange));

    for (unsigned i = 0; i < 2; i++) {
        MigrationRamRange range = {
            .block = i ? "high" : "low",
            .addr = i * UINT64_C(0x10000),
            .size = RIG_BLOCK_SIZE,
            .host = rig_ram[i],
        };
        g_array_append_val(list, range);
    }
    return list;
}

static void rig_device_clear(void *data)
{
    g_free(((MigrationDevice *)data)->idstr);
}

static GArray *rig_host_devices(void)
{
    GArray *list = g_array_new(FALSE, TRUE, sizeof(MigrationDevice));
    MigrationDevice dev = {g_strdup("rig"), 0, &rig_vmsd, &rig_device};

    g_array_set_clear_func(list, rig_device_clear);
    g_array_append_val(list, dev);
    return list;
}

static const MigrationHost rig_host = {
    .check = rig_host_check,
    .machine_name = rig_machine_name,
    .ram = rig_host_ram,
    .devices = rig_host_devices,
};

/* Loads a whole stream; the message (g_free), or NULL if it is good. */
static char *rig_load(const uint8_t *data, size_t size)
{
    GError *err = NULL;
    LoadState *load = loadvm_new(&err);
    VmReader *r = vm_reader_new_bytes(data, size);
    bool ran;
    char *message = NULL;

    if (loadvm_read(load, r, &err)) {
        loadvm_finish(load, &ran, &err);
    }
    vm_reader_free(r);
    loadvm_free(load);
    if (err) {
        message = g_strdup(err->message);
        g_error_free(err);
    }
    return message;
}

#endif
