/*
 * Memory back ends and the machine's RAM: each kind, wrong options, files that are missing, too
 * small or a directory, sharing through the descriptor, layout around the hole below 4 GiB, and
 * the CPU's reads and writes.
 */
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hw/core/device.h"
#include "hw/core/machine.h"
#include "hw/core/memory-backend.h"
#include "util/json.h"

#define MIB (1024u * 1024)

static char *dir; /* scratch, removed at the end */

/* A machine with RAM and a hole at 3 MiB, so that the tests need no gigabytes. */
typedef struct TestMachine {
    MachineState parent_obj;
} TestMachine;
typedef struct TestMachineClass {
    MachineClass parent_class;
} TestMachineClass;
static GType test_machine_get_type(void);
G_DEFINE_TYPE(TestMachine, test_machine, TYPE_MACHINE)

static bool init_fails;

static gboolean test_machine_setup(MachineState *machine, GError **errp)
{
    return !init_fails || error_set(errp, "no buses today");
}

static void test_machine_class_init(TestMachineClass *klass)
{
    MachineClass *mc = &klass->parent_class;
    mc->parent_class.qom_name = "testpc-1.0-machine";
    mc->name = "testpc-1.0";
    mc->alias = "testpc";
    mc->is_default = true;
    mc->default_ram_size = 2 * MIB;
    mc->default_ram_id = "testpc.ram";
    mc->ram_below_4g = 3 * MIB;
    mc->init = test_machine_setup;
}

static void test_machine_init(TestMachine *machine) {}

/* --- helpers --- */

static MemoryBackend *backend_add(const char *json, const char *message)
{
    GError *err = NULL;
    json_object *options = json_parse(json, &err);
    g_assert_no_error(err);
    Object *obj = user_object_add(options, &err);
    json_object_put(options);
    if (message) {
        g_assert_null(obj);
        if (!strstr(err->message, message)) {
            g_error("%s: '%s' does not contain '%s'", json, err->message, message);
        }
        g_assert_null(strchr(err->message, '\n'));
        g_error_free(err);
        return NULL;
    }
    g_assert_no_error(err);
    return MEMORY_BACKEND(obj);
}

static void backend_del(const char *id)
{
    GError *err = NULL;
    user_object_del(id, &err);
    g_assert_no_error(err);
}

/* A file back end in the scratch directory, with @more options. */
static MemoryBackend *file_add(const char *name, const char *size, const char *more,
                               const char *message)
{
    g_autofree char *json = g_strdup_printf("{'qom-type': 'memory-backend-file', 'id': 'm', "
                                            "'mem-path': '%s/%s', 'size': '%s'%s}",
                                            dir, name, size, more);
    return backend_add(json, message);
}

static char *scratch(const char *name)
{
    return g_strdup_printf("%s/%s", dir, name);
}

static void file_make(const char *name, off_t size)
{
    g_autofree char *path = scratch(name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, size), ==, 0);
    close(fd);
}

static off_t size_of(const char *name)
{
    g_autofree char *path = scratch(name);
    struct stat st;
    return stat(path, &st) < 0 ? -1 : st.st_size;
}

/* Another mapping of the descriptor shows what is written through the back end, or not. */
static void check_shared(MemoryBackend *backend, bool expected)
{
    uint8_t *other =
        mmap(NULL, backend->size, PROT_READ, MAP_SHARED, backend->fd, (off_t)backend->offset);
    g_assert_true(other != MAP_FAILED);
    memset(backend->host, 0x77, 16);
    g_assert_true((other[15] == 0x77) == expected);
    munmap(other, backend->size);
}

/* --- back ends --- */

static void test_ram(void)
{
    MemoryBackend *m =
        backend_add("{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '1M'}", NULL);
    g_assert_cmpint(m->fd, ==, -1);
    g_assert_cmpuint(m->size, ==, MIB);
    memset(m->host, 1, m->size);
    backend_del("m");
    m = backend_add("{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': 1048577, 'share': true,"
                    "'prealloc': 'on', 'merge': 'off', 'dump': false}",
                    NULL);
    check_shared(m, true);
    m->host[MIB] = 1; /* the last, odd byte */
    GError *err = NULL;
    json_object *on = json_object_new_boolean(true), *size = json_object_new_int(4096);
    g_assert_true(object_set_property(OBJECT(m), "merge", on, &err));
    g_assert_true(object_set_property(OBJECT(m), "dump", on, &err));
    g_assert_no_error(err);
    g_assert_false(object_set_property(OBJECT(m), "size", size, &err));
    g_assert_nonnull(strstr(err->message, "memory-backend-ram.size"));
    g_clear_error(&err);
    json_object_put(on);
    json_object_put(size);
    backend_del("m");
    /* More than there is, without reserving it; ThreadSanitizer's shadow memory has no room for
     * a terabyte. */
    m = backend_add("{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '64G', 'reserve': 'off'}",
                    NULL);
    m->host[m->size - 1] = 1;
    backend_del("m");

    static const char *const wrong[][2] = {
        {"{'qom-type': 'memory-backend-ram', 'id': 'm'}", "size 0"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': 0}", "size 0"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': -1}", "doesn't take value '-1'"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '1X'}", "doesn't take value '1X'"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '16383P'}", "cannot map"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': 18446744073709551615}",
         "too large"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '16383P', 'share': 'on'}",
         "cannot make it"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '1M', 'share': 1}",
         "doesn't take value '1' (allowed: on, off)"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '1M', 'prealloc': true,"
         "'reserve': false}",
         "incompatible"},
        {"{'qom-type': 'memory-backend-ram', 'id': 'm', 'size': '1M', 'mem-path': 'x'}",
         "Property 'memory-backend-ram.mem-path' not found"},
        {"{'qom-type': 'memory-backend', 'id': 'm', 'size': '1M'}", "does not accept"},
    };
    for (unsigned i = 0; i < G_N_ELEMENTS(wrong); i++) {
        backend_add(wrong[i][0], wrong[i][1]);
    }
}

static void test_memfd_and_shm(void)
{
    MemoryBackend *m =
        backend_add("{'qom-type': 'memory-backend-memfd', 'id': 'm', 'size': '1M'}", NULL);
    check_shared(m, true);
    g_assert_cmpint(ftruncate(m->fd, 0), <, 0); /* sealed: a peer cannot pull it away */
    backend_del("m");
    m = backend_add("{'qom-type': 'memory-backend-memfd', 'id': 'm', 'size': '1M', 'share': 'off',"
                    "'seal': 'off'}",
                    NULL);
    check_shared(m, false);
    g_assert_cmpint(ftruncate(m->fd, 2 * MIB), ==, 0);
    backend_del("m");
    m = backend_add("{'qom-type': 'memory-backend-shm', 'id': 'm', 'size': '1M'}", NULL);
    check_shared(m, true);
    backend_del("m");
    backend_add("{'qom-type': 'memory-backend-shm', 'id': 'm', 'size': '1M', 'share': 'off'}",
                "(allowed: share=on)");
    backend_add("{'qom-type': 'memory-backend-memfd', 'id': 'm', 'size': '1M',"
                "'hugetlbsize': '2M'}",
                "hugetlbsize");
    backend_add("{'qom-type': 'memory-backend-memfd', 'id': 'm', 'size': '1M', 'hugetlb': 'on',"
                "'hugetlbsize': '3M'}",
                "a power of two");
}

static void test_file_new(void)
{
    MemoryBackend *m = file_add("new", "1M", ", 'share': 'on'", NULL);
    g_assert_cmpint(size_of("new"), ==, MIB);
    check_shared(m, true);
    m->host[0] = 'x';
    backend_del("m");
    g_assert_cmpint(size_of("new"), ==, MIB); /* the data stay */
    m = file_add("new", "1M", "", NULL);
    g_assert_cmpint(m->host[0], ==, 'x');
    m->host[0] = 'y'; /* private: not for the file */
    backend_del("m");
    m = file_add("new", "1M", ", 'readonly': 'on', 'share': 'on'", NULL);
    g_assert_cmpint(m->host[0], ==, 'x');
    backend_del("m");
    m = file_add("new", "4K", ", 'offset': '4K', 'align': '2M', 'share': 'on'", NULL);
    g_assert_cmpuint((uintptr_t)m->host % (2 * MIB), ==, 0);
    check_shared(m, true);
    backend_del("m");
    m = file_add("new", "1M", ", 'share': 'on', 'discard-data': 'on'", NULL);
    backend_del("m");
    m = file_add("new", "1M", "", NULL);
    g_assert_cmpint(m->host[0], ==, 0);
    backend_del("m");
    g_autofree char *path = scratch("new");
    unlink(path);
}

static void test_file_sizes(void)
{
    file_make("small", 8192);
    file_add("small", "12K", "", "backing store size 0x2000 of '");
    file_add("small", "8K", ", 'offset': '4K'", "does not match 'size' option 0x2000");
    g_assert_cmpint(size_of("small"), ==, 8192); /* not grown */
    file_add("small", "8K", "", NULL);
    backend_del("m");
    file_add("small", "4K", "", NULL); /* a larger file is fine */
    backend_del("m");
    file_make("empty", 0);
    file_add("empty", "4K", ", 'readonly': 'on'", "backing store size 0x0");
    file_add("empty", "4K", "", NULL);
    backend_del("m");
    g_assert_cmpint(size_of("empty"), ==, 4096);

    file_add("none", "4K", ", 'readonly': 'on'", "can't open backing store");
    file_add("none", "0", "", "size 0");
    file_add("none", "4K", ", 'offset': 100", "(allowed: multiples of 0x1000)");
    file_add("none", "4K", ", 'align': 12288", "(allowed: powers of two)");
    file_add("none", "4K", ", 'offset': 18446744073709547520", "too large for a file");
    file_add("none", "4K", ", 'pmem': 'on'", "persistent memory is not supported");
    file_add("none/such", "4K", "", "can't open backing store");
    g_assert_cmpint(size_of("none"), ==, -1); /* what failed left no file behind */
    backend_add("{'qom-type': 'memory-backend-file', 'id': 'm', 'size': '4K'}",
                "mem-path property not set");
    backend_add("{'qom-type': 'memory-backend-file', 'id': 'm', 'size': '4K', "
                "'mem-path': '/dev/null'}",
                "cannot use mem-path '/dev/null'");
    g_autofree char *small = scratch("small"), *empty = scratch("empty");
    unlink(small);
    unlink(empty);
}

static void test_file_directory(void)
{
    MemoryBackend *m = file_add("", "1M", ", 'share': 'on'", NULL);
    check_shared(m, true);
    GDir *entries = g_dir_open(dir, 0, NULL);
    g_assert_null(g_dir_read_name(entries)); /* it has no name */
    g_dir_close(entries);
    backend_del("m");
    file_add("", "1M", ", 'readonly': 'on'", "cannot use mem-path");
}

/* --- the machine's RAM --- */

static MachineState *machine_start(const char *backend, uint64_t ram_size)
{
    MachineState *machine = machine_new(machine_class_find("testpc", NULL));
    machine->memory_backend = g_strdup(backend);
    machine->ram_size = ram_size;
    return machine;
}

static void check_init(MachineState *machine, const char *message)
{
    GError *err = NULL;
    gboolean ok = machine_init(machine, &err);
    if (!message) {
        g_assert_no_error(err);
        g_assert_true(ok);
        return;
    }
    g_assert_false(ok);
    if (!strstr(err->message, message)) {
        g_error("'%s' does not contain '%s'", err->message, message);
    }
    g_error_free(err);
    machine_free(machine);
}

static void test_default_ram(void)
{
    MachineState *machine = machine_start(NULL, 0);
    check_init(machine, NULL);
    g_assert_cmpuint(machine->ram_size, ==, 2 * MIB);
    g_assert_cmpuint(machine->memory->count, ==, 1);
    g_assert_nonnull(qom_resolve_path("/objects/testpc.ram", NULL));
    g_assert_false(user_object_del("testpc.ram", NULL));
    g_assert_nonnull(qom_resolve_path("/machine/peripheral-anon", NULL));
    machine_free(machine);
    g_assert_null(qom_resolve_path("/objects/testpc.ram", NULL));
    g_assert_null(current_machine);

    machine = machine_start(NULL, MIB);
    machine->mem_merge = false;
    check_init(machine, NULL);
    g_assert_cmpuint(machine->memory->ranges[0].size, ==, MIB);
    g_assert_false(MEMORY_BACKEND(machine->ram->pdata[0])->merge);
    machine_free(machine);
}

static void test_backend_ram(void)
{
    check_init(machine_start("nope", 0), "Memory backend 'nope' not found");
    MemoryBackend *m =
        backend_add("{'qom-type': 'memory-backend-memfd', 'id': 'm', 'size': '5M'}", NULL);
    check_init(machine_start("m", MIB), "does not match the size of the memory backend");
    MachineState *machine = machine_start("m", 0);
    check_init(machine, NULL);
    g_assert_cmpuint(machine->ram_size, ==, 5 * MIB);
    g_assert_true(m->is_mapped);
    g_assert_false(user_object_del("m", NULL));
    /* 3 MiB below the hole, the rest from 4 GiB on, the descriptor's offset goes with it. */
    g_assert_cmpuint(machine->memory->count, ==, 2);
    const MemoryRange *high = &machine->memory->ranges[1];
    g_assert_cmphex(high->addr, ==, UINT64_C(1) << 32);
    g_assert_cmphex(high->size, ==, 2 * MIB);
    g_assert_cmphex(high->offset, ==, 3 * MIB);
    g_assert_true(high->host == m->host + 3 * MIB);
    g_assert_cmpint(high->fd, ==, m->fd);
    json_object *id = json_object_new_string("x");
    g_assert_false(object_set_property(OBJECT(machine), "memory-backend", id, NULL));
    json_object_put(id);
    machine_free(machine);
    g_assert_false(m->is_mapped);
    init_fails = true;
    check_init(machine_start("m", 0), "no buses today");
    init_fails = false;
    backend_del("m");
    backend_add("{'qom-type': 'memory-backend-ram', 'id': 'testpc.ram', 'size': '1M'}", NULL);
    check_init(machine_start(NULL, 0), "object's id conflicts with the default RAM id: testpc.ram");
    backend_del("testpc.ram");
}

static void test_numa_ram(void)
{
    backend_add("{'qom-type': 'memory-backend-ram', 'id': 'a', 'size': '2M'}", NULL);
    backend_add("{'qom-type': 'memory-backend-ram', 'id': 'b', 'size': '2M'}", NULL);
    MachineState *machine = machine_start(NULL, 4 * MIB);
    GError *err = NULL;
    g_assert_true(machine_add_ram_backend(machine, "b", &err));
    g_assert_false(machine_add_ram_backend(machine, "b", &err));
    g_assert_cmpstr(err->message, ==, "memory backend 'b' can't be used multiple times");
    g_clear_error(&err);
    g_assert_true(machine_add_ram_backend(machine, "a", &err));
    check_init(machine, NULL);
    g_assert_cmpuint(machine->memory->count, ==, 3);
    const MemoryRange *r = machine->memory->ranges;
    g_assert_true(r[0].host == MEMORY_BACKEND(machine->ram->pdata[0])->host);
    g_assert_cmphex(r[1].addr, ==, 2 * MIB);
    g_assert_cmphex(r[1].size, ==, MIB);
    g_assert_cmphex(r[2].addr, ==, UINT64_C(1) << 32);
    /* An access across both borders. */
    uint8_t buf[16] = "0123456789abcdef", back[16];
    machine_write(machine, 2 * MIB - 8, buf, 16);
    machine_read(machine, 2 * MIB - 8, back, 16);
    g_assert_cmpmem(buf, 16, back, 16);
    machine_free(machine);

    machine = machine_start(NULL, 3 * MIB);
    g_assert_true(machine_add_ram_backend(machine, "a", NULL));
    check_init(machine, "total memory for NUMA nodes should equal RAM size");
    machine = machine_start("a", 0);
    g_assert_true(machine_add_ram_backend(machine, "b", NULL));
    check_init(machine, "cannot be used together");
    backend_del("a");
    backend_del("b");
}

/* --- the CPU's accesses --- */

static uint64_t log_read(void *opaque, uint64_t offset, unsigned size)
{
    g_string_append_printf(opaque, "r%u@%x ", size, (unsigned)offset);
    return UINT64_C(0x8877665544332211) >> (8 * (offset & 7));
}

static void log_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    g_string_append_printf(opaque, "w%u@%x=%" G_GINT64_MODIFIER "x ", size, (unsigned)offset,
                           value);
}

static void check_log(GString *log, const char *expected)
{
    g_assert_cmpstr(log->str, ==, expected);
    g_string_truncate(log, 0);
}

static void test_cpu_access(void)
{
    static const IoOps ops = {log_read, log_write, 8};
    MachineState *machine = machine_start(NULL, 0);
    check_init(machine, NULL);
    g_autoptr(GString) log = g_string_new(NULL);
    IoRegion region;
    io_region_init(&region, "mmio", 0x100, &ops, log);
    io_space_map(&machine->mmio, 2 * MIB, &region, 0); /* right behind RAM */
    uint8_t buf[32];
    uint64_t base = 2 * MIB;
    machine_read(machine, base, buf, 8);
    machine_read(machine, base + 4, buf, 4);
    machine_read(machine, base + 2, buf, 2);
    machine_read(machine, base + 1, buf, 1);
    check_log(log, "r8@0 r4@4 r2@2 r1@1 ");
    machine_read(machine, base + 1, buf, 2); /* not aligned: by bytes */
    machine_read(machine, base, buf, 3);
    check_log(log, "r1@1 r1@2 r1@0 r1@1 r1@2 ");
    machine_write(machine, base + 4, "\x11\x22\x33\x44", 4);
    check_log(log, "w4@4=44332211 ");

    /* From RAM into MMIO and from MMIO into nothing. */
    machine_write(machine, base - 2, "abcd", 4);
    check_log(log, "w2@0=6463 ");
    machine_read(machine, base - 2, buf, 2);
    g_assert_cmpmem(buf, 2, "ab", 2);
    memset(buf, 0, sizeof(buf));
    machine_read(machine, base + 0xfc, buf, 8);
    g_assert_cmpmem(buf, 8, "\x55\x66\x77\x88\xff\xff\xff\xff", 8);
    g_string_truncate(log, 0);
    machine_read(machine, UINT64_MAX - 3, buf, 32); /* over the end of the address space */
    g_assert_cmpmem(buf, 4, "\xff\xff\xff\xff", 4);
    g_assert_cmphex(buf[31], ==, 0xff);
    machine_write(machine, UINT64_MAX - 3, buf, 32);
    machine_write(machine, UINT64_MAX, buf, 1);
    machine_read(machine, 0, buf, 0);
    check_log(log, "");
    g_assert_true(dma_write(&machine->dma, base, "\1\2\3\4", 4));
    check_log(log, "w4@0=4030201 ");
    g_assert_false(dma_write(&machine->dma, base + 0x100, "\1", 1));
    g_assert_false(dma_read(&machine->dma, UINT64_C(1) << 40, buf, 1));
    io_space_unmap(&machine->mmio, &region);
    io_region_cleanup(&region);
    machine_free(machine);
}

static void test_readonly_ram(void)
{
    file_make("rom", 4096);
    file_add("rom", "4K", ", 'readonly': 'on', 'share': 'on'", NULL);
    MachineState *machine = machine_start("m", 0);
    check_init(machine, NULL);
    uint8_t byte = 1;
    machine_write(machine, 0, &byte, 1); /* as to a ROM: ignored */
    machine_read(machine, 0, &byte, 1);
    g_assert_cmphex(byte, ==, 0);
    g_assert_false(dma_write(&machine->dma, 0, &byte, 1));
    machine_free(machine);
    backend_del("m");
    g_autofree char *rom = scratch("rom");
    unlink(rom);
}

static void test_classes(void)
{
    GError *err = NULL;
    g_assert_true(machine_class_find("testpc-1.0", NULL) == machine_class_find("testpc", NULL));
    g_assert_true(machine_class_default() == machine_class_find("testpc", NULL));
    g_assert_null(machine_class_find("q35", &err));
    g_assert_cmpstr(err->message, ==,
                    "unsupported machine type: \"q35\" (allowed: none, testpc-1.0, testpc)");
    g_clear_error(&err);
    MachineState *machine = machine_new(machine_class_find("none", NULL));
    json_object *on = json_object_new_string("on"), *off = json_object_new_string("off");
    static const char *const absent[] = {"usb", "graphics", "vmport", "acpi", "hpet", "smm"};
    for (unsigned i = 0; i < G_N_ELEMENTS(absent); i++) {
        g_assert_true(object_set_property(OBJECT(machine), absent[i], off, NULL));
        g_assert_false(object_set_property(OBJECT(machine), absent[i], on, &err));
        g_assert_nonnull(strstr(err->message, "(allowed: off; there "));
        g_clear_error(&err);
    }
    json_object_put(on);
    json_object_put(off);
    machine->ram_size = 5;
    check_init(machine, NULL);
    g_assert_cmpuint(machine->memory->count, ==, 0);
    uint32_t value = 0;
    machine_read(machine, 0, &value, 4);
    g_assert_cmphex(value, ==, UINT32_MAX);
    machine_free(machine);
    machine = machine_new(machine_class_find("none", NULL));
    machine->memory_backend = g_strdup("m");
    check_init(machine, "has no RAM");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qom_register_core_types();
    hw_core_register_types();
    qom_register_type(test_machine_get_type());
    dir = g_dir_make_tmp("swnic-test-XXXXXX", NULL);
    g_assert_nonnull(dir);
    g_test_add_func("/memory-backend/ram", test_ram);
    g_test_add_func("/memory-backend/memfd-and-shm", test_memfd_and_shm);
    g_test_add_func("/memory-backend/file/new-kept-private-readonly-offset", test_file_new);
    g_test_add_func("/memory-backend/file/sizes-and-wrong-options", test_file_sizes);
    g_test_add_func("/memory-backend/file/directory", test_file_directory);
    g_test_add_func("/machine/ram/default", test_default_ram);
    g_test_add_func("/machine/ram/backend-around-the-hole", test_backend_ram);
    g_test_add_func("/machine/ram/numa", test_numa_ram);
    g_test_add_func("/machine/ram/readonly-backend-is-rom", test_readonly_ram);
    g_test_add_func("/machine/cpu/one-access-of-that-width", test_cpu_access);
    g_test_add_func("/machine/classes-and-none", test_classes);
    int ret = g_test_run();
    g_rmdir(dir);
    g_free(dir);
    return ret;
}
