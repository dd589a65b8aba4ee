/*
 * Whole migration streams of a tiny machine: cut off at every byte, each byte changed, sections in
 * other orders.  Whatever comes, the device is either untouched or wholly loaded.
 */
#include "migration-rig.h"

static GByteArray *rig_save(void)
{
    GByteArray *out = g_byte_array_new();
    VmWriter w = {out, NULL};
    const bool capabilities[MIGRATION_CAPABILITY__MAX] = {false};
    RamState *ram = ram_state_new(false, NULL);

    ram->log = g_malloc(ram->log_pages);
    memset(ram->log, 1, ram->log_pages);
    savevm_write_header(&w, capabilities);
    savevm_write_section(&w, VM_SECTION_START, "ram", SAVEVM_RAM_VERSION);
    ram_write_setup(ram, &w);
    savevm_write_footer(&w, SAVEVM_RAM_ID);
    savevm_write_section(&w, VM_SECTION_END, "ram", SAVEVM_RAM_VERSION);
    g_assert_false(ram_write_pages(ram, &w, SIZE_MAX));
    ram_write_eos(&w);
    savevm_write_footer(&w, SAVEVM_RAM_ID);
    ram_state_free(ram);
    savevm_write_devices(out, true);
    return out;
}

static GByteArray *example(void)
{
    migration_set_host(&rig_host);
    memset(rig_ram, 0, sizeof(rig_ram));
    memset(rig_ram[0], 0x5a, MIGRATION_PAGE_SIZE);
    rig_ram[1][RIG_BLOCK_SIZE - 1] = 1;
    rig_device = (RigDevice){.count = 3, .values = {1, 2, 3}, .extra = 7, .has_extra = true};
    return rig_save();
}

static void forget(void)
{
    memset(rig_ram, 0, sizeof(rig_ram));
    rig_device = (RigDevice){.count = 1, .values = {99}};
}

static bool is_untouched(void)
{
    return rig_device.applied == 0 && rig_device.count == 1 && rig_device.values[0] == 99;
}

static void test_round_trip(void)
{
    g_autoptr(GByteArray) stream = example();

    const char *seeds = g_getenv("SWNIC_TEST_SEEDS");

    if (seeds) {
        g_autofree char *path = g_build_filename(seeds, "stream", NULL);
        g_assert_true(g_file_set_contents(path, (char *)stream->data, stream->len, NULL));
    }
    forget();
    g_assert_null(rig_load(stream->data, stream->len));
    g_assert_cmpuint(rig_device.applied, ==, 1);
    g_assert_cmpuint(rig_device.values[2], ==, 3);
    g_assert_cmpuint(rig_device.extra, ==, 7);
    g_assert_cmpuint(rig_ram[0][100], ==, 0x5a);
    g_assert_cmpuint(rig_ram[0][MIGRATION_PAGE_SIZE], ==, 0);
    g_assert_cmpuint(rig_ram[1][RIG_BLOCK_SIZE - 1], ==, 1);
}

static void test_cut_at_every_byte(void)
{
    g_autoptr(GByteArray) stream = example();
    /* The description at the end may be missing, but not be cut. */
    unsigned good = 0;

    for (guint size = 0; size < stream->len; size++) {
        forget();
        g_autofree char *message = rig_load(stream->data, size);

        if (!message) {
            good++;
            continue;
        }
        /* (Inside a subsection's header it looks like a section with too much at its end.) */
        g_assert_true(strstr(message, "cut off") || strstr(message, "instead of a footer"));
        g_assert_true(is_untouched());
    }
    g_assert_cmpuint(good, ==, 1);
}

/* No claim on which are refused: contents of pages are anybody's. */
static void test_every_byte_changed(void)
{
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    g_autoptr(GByteArray) stream = example();
    unsigned refused = 0, loaded = 0;

    for (guint at = 0; at < stream->len; at++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(changes); i++) {
            forget();
            stream->data[at] ^= changes[i];
            g_autofree char *message = rig_load(stream->data, stream->len);
            stream->data[at] ^= changes[i];
            g_assert_true(message ? is_untouched() : rig_device.applied == 1);
            refused += message != NULL;
            loaded += message == NULL;
        }
    }
    g_test_message("%u refused, %u loaded", refused, loaded);
}

static void test_refused_device_leaves_all_alone(void)
{
    g_autoptr(GByteArray) stream = example();

    forget();
    rig_device.refuse = true;
    g_autofree char *message = rig_load(stream->data, stream->len);
    g_assert_cmpstr(message, ==, "rig: refused");
    g_assert_true(is_untouched());
}

static void test_messages(void)
{
    g_autoptr(GByteArray) stream = example();
    static const char count[] = {0, 0, 0, 3, 0, 1, 0, 2, 0, 3};
    uint8_t *at = memmem(stream->data, stream->len, count, sizeof(count));

    g_assert_nonnull(at);
    at[3] = 9;
    forget();
    g_autofree char *message = rig_load(stream->data, stream->len);
    g_assert_cmpstr(message, ==, "rig: count 9 > 8");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/migration/stream/round-trip", test_round_trip);
    g_test_add_func("/migration/stream/cut-at-every-byte", test_cut_at_every_byte);
    g_test_add_func("/migration/stream/every-byte-changed", test_every_byte_changed);
    g_test_add_func("/migration/stream/refused-device-leaves-all-alone",
                    test_refused_device_leaves_all_alone);
    g_test_add_func("/migration/stream/message-names-section-and-field", test_messages);
    return g_test_run();
}
