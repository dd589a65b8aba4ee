/*
 * libFuzzer target: the loader of migration streams, on the tiny machine of migration-rig.h.
 *
 *     CC=clang meson setup build-fuzz -Dfuzz=true && ninja -C build-fuzz fuzz-migration
 *     build-fuzz/tests/fuzz/fuzz-migration -max_len=65536 CORPUS
 *
 * Seeds: SWNIC_TEST_SEEDS=FOLDER tests/unit/test-migration-stream writes streams of that machine
 * there.  What is checked, besides what sanitizers see: a refused stream has left the device alone.
 */
#include "../unit/migration-rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    migration_set_host(&rig_host);
    rig_device = (RigDevice){.count = 1, .values = {99}};
    char *message = rig_load(data, size);

    if (message && (rig_device.applied || rig_device.values[0] != 99)) {
        __builtin_trap();
    }
    g_free(message);
    return 0;
}
