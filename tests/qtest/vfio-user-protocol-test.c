/*
 * The vfio-user server, command by command: what each answers when it is right, and what when
 * sizes, flags, indices or descriptors are not.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/vfio-user-rig.h"

#define BAR_LEGACY 0
#define BAR_MSIX   1
#define BAR_MODERN 4
#define CONFIG     VFIO_PCI_CONFIG_REGION_INDEX
#define ROM        VFIO_PCI_ROM_REGION_INDEX
#define ROM_BYTES  8192

/* --- version --- */

/* The first message; the server must answer with an error and hang up. */
static void expect_refused(VfioRig *rig, uint16_t command, const void *payload, size_t size)
{
    VfioUserClient *client = vfio_rig_connect_raw(rig);
    VfioUserAnswer answer;
    char byte;

    vfio_expect(client, command, payload, size, NULL, 0, EINVAL);
    g_assert_false(vfio_user_client_receive(client, &answer, NULL));
    g_assert_cmpint(read(vfio_user_client_fd(client), &byte, 1), ==, 0);
    vfio_user_client_free(client);
}

static void test_version_refused(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    const VfioUserVersion major = {.major = 1};
    const char *const bad[] = {"{", "[]", "1", "{\"capabilities\": }", "\xff\xfe", "", "{} {}"};

    expect_refused(rig, VFIO_USER_VERSION, &major, sizeof(major));
    expect_refused(rig, VFIO_USER_VERSION, &major, 3);
    expect_refused(rig, VFIO_USER_DEVICE_GET_INFO, &major, sizeof(major));
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree VfioUserVersion *version = g_malloc0(64);

        strcpy(version->data, bad[i]);
        expect_refused(rig, VFIO_USER_VERSION, version, sizeof(*version) + strlen(bad[i]) + 1);
    }
    vfio_rig_free(rig);
}

static json_object *negotiated(VfioRig *rig, const char *capabilities)
{
    VfioUserClient *client = vfio_rig_connect_raw(rig);
    GError *err = NULL;
    json_object *got;

    vfio_user_client_negotiate(client, capabilities, &err);
    vfio_check(err, "negotiation");
    got = json_object_get(vfio_user_client_capabilities(client));
    vfio_user_client_free(client);
    return got;
}

static int64_t number(json_object *object, const char *key)
{
    json_object *value;

    return json_object_object_get_ex(object, key, &value) ? json_object_get_int64(value) : -1;
}

static void test_version_capabilities(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    json_object *all = negotiated(rig, NULL), *none = negotiated(rig, "{}");
    json_object *odd = negotiated(rig, "{\"max_msg_fds\": \"many\", \"max_data_xfer_size\": -5, "
                                       "\"twin_socket\": 3, \"write_multiple\": null, \"new\": 1}");

    g_assert_cmpint(number(all, "max_msg_fds"), ==, 16);
    g_assert_cmpint(number(all, "max_data_xfer_size"), ==, 1048576);
    g_assert_cmpint(number(all, "pgsizes"), ==, 4096);
    g_assert_cmpint(number(all, "max_dma_maps"), ==, 4096);
    g_assert_true(json_object_object_get_ex(all, "twin_socket", NULL));
    g_assert_cmpint(number(all, "write_multiple"), ==, 1);
    /* Offers are made to those who know them. */
    g_assert_false(json_object_object_get_ex(none, "twin_socket", NULL));
    g_assert_false(json_object_object_get_ex(none, "write_multiple", NULL));
    g_assert_cmpint(number(none, "max_msg_fds"), ==, 16);
    g_assert_false(json_object_object_get_ex(odd, "twin_socket", NULL));
    json_object_put(all);
    json_object_put(none);
    json_object_put(odd);
    vfio_rig_free(rig);
}

/* A newer minor version is answered with ours, and data may be missing altogether. */
static void test_version_minor(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect_raw(rig);
    const VfioUserVersion minor = {.minor = 7};
    VfioUserAnswer answer;

    g_assert_true(vfio_user_client_request(client, VFIO_USER_VERSION, &minor, sizeof(minor), NULL,
                                           0, &answer, NULL));
    g_assert_cmpint(answer.error, ==, 0);
    g_assert_cmpuint(((VfioUserVersion *)answer.data)->minor, ==, 0);
    vfio_user_answer_clear(&answer);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* --- commands in general --- */

static void test_unknown_and_short(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    const uint16_t unknown[] = {
        0, VFIO_USER_VERSION, VFIO_USER_DMA_READ, VFIO_USER_DMA_WRITE, 14, 19, 99, 0xffff};
    const struct {
        uint16_t command;
        size_t least;
    } known[] = {
        {VFIO_USER_DMA_MAP, 32},
        {VFIO_USER_DMA_UNMAP, 24},
        {VFIO_USER_DEVICE_GET_INFO, 16},
        {VFIO_USER_DEVICE_GET_REGION_INFO, 32},
        {VFIO_USER_DEVICE_GET_REGION_IO_FDS, 16},
        {VFIO_USER_DEVICE_GET_IRQ_INFO, 16},
        {VFIO_USER_DEVICE_SET_IRQS, 20},
        {VFIO_USER_REGION_READ, 16},
        {VFIO_USER_REGION_WRITE, 16},
        {VFIO_USER_REGION_WRITE_MULTI, 8},
        {VFIO_USER_DEVICE_FEATURE, 8},
        {VFIO_USER_MIG_DATA_READ, 8},
        {VFIO_USER_MIG_DATA_WRITE, 8},
    };
    const uint8_t payload[64] = {0};

    for (unsigned i = 0; i < G_N_ELEMENTS(unknown); i++) {
        vfio_expect(client, unknown[i], payload, sizeof(payload), NULL, 0, EOPNOTSUPP);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(known); i++) {
        for (size_t size = 0; size < known[i].least; size++) {
            vfio_expect(client, known[i].command, payload, size, NULL, 0, EINVAL);
        }
    }
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* Posted commands are done before a later one is answered. */
static void test_no_reply_keeps_order(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    GError *err = NULL;

    for (unsigned i = 0; i < 500; i++) {
        uint8_t line = (uint8_t)i, got = 0;

        vfio_user_client_post_write(client, CONFIG, PCI_CACHE_LINE_SIZE, &line, 1, &err);
        vfio_check(err, "post");
        vfio_user_client_read(client, CONFIG, PCI_CACHE_LINE_SIZE, &got, 1, &err);
        vfio_check(err, "read");
        g_assert_cmpuint(got, ==, line);
    }
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* --- information --- */

static void test_device_info(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    struct vfio_device_info info;
    GError *err = NULL;

    vfio_user_client_device_info(client, &info, &err);
    vfio_check(err, "device info");
    g_assert_cmpuint(info.argsz, ==, 16);
    g_assert_cmphex(info.flags, ==, VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET);
    g_assert_cmpuint(info.num_regions, ==, VFIO_PCI_NUM_REGIONS);
    g_assert_cmpuint(info.num_irqs, ==, VFIO_PCI_NUM_IRQS);
    info.argsz = 15;
    vfio_expect(client, VFIO_USER_DEVICE_GET_INFO, &info, 16, NULL, 0, EINVAL);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

static void test_region_info(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    const uint64_t sizes[VFIO_PCI_NUM_REGIONS] = {
        [BAR_LEGACY] = 32, [BAR_MSIX] = 4096, [BAR_MODERN] = 16384, [CONFIG] = 256};
    struct vfio_region_info request = {.argsz = sizeof(request)};
    GError *err = NULL;

    for (uint32_t i = 0; i < VFIO_PCI_NUM_REGIONS; i++) {
        const uint32_t rw = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        VfioUserRegion region;

        vfio_user_client_region(client, i, &region, &err);
        vfio_check(err, "region");
        g_assert_cmpuint(region.info.size, ==, sizes[i]);
        g_assert_cmphex(region.info.flags, ==, sizes[i] ? rw : 0);
        g_assert_cmpuint(region.info.argsz, ==, sizeof(region.info));
        g_assert_cmpuint(region.info.index, ==, i);
        g_assert_cmpint(region.fd, ==, -1);
    }
    request.index = VFIO_PCI_NUM_REGIONS;
    vfio_expect(client, VFIO_USER_DEVICE_GET_REGION_INFO, &request, 32, NULL, 0, EINVAL);
    request.index = UINT32_MAX;
    vfio_expect(client, VFIO_USER_DEVICE_GET_REGION_INFO, &request, 32, NULL, 0, EINVAL);
    request.index = 0;
    request.argsz = 31;
    vfio_expect(client, VFIO_USER_DEVICE_GET_REGION_INFO, &request, 32, NULL, 0, EINVAL);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* Without room for the capability the reply says how much is needed, and has no fd. */
static void expect_rom_needs_room(VfioUserClient *client, uint32_t argsz)
{
    const struct vfio_region_info request = {.argsz = argsz, .index = ROM};
    struct vfio_region_info info;
    VfioUserAnswer answer;

    g_assert_true(vfio_user_client_request(client, VFIO_USER_DEVICE_GET_REGION_INFO, &request,
                                           sizeof(request), NULL, 0, &answer, NULL));
    g_assert_cmpint(answer.error, ==, 0);
    g_assert_cmpuint(answer.size, ==, sizeof(info));
    g_assert_cmpuint(answer.nfds, ==, 0);
    memcpy(&info, answer.data, sizeof(info));
    g_assert_cmpuint(info.argsz, >, argsz);
    g_assert_cmpuint(info.cap_offset, ==, 0);
    g_assert_true(info.flags & VFIO_REGION_INFO_FLAG_CAPS);
    vfio_user_answer_clear(&answer);
}

/* The expansion ROM: read-only, and mappable with a sparse-mmap capability. */
static void test_rom(void)
{
    g_autofree uint8_t *rom = g_malloc(ROM_BYTES), *read = g_malloc(ROM_BYTES);
    g_autofree char *path = NULL, *device = NULL;
    const uint32_t flags =
        VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS;
    GError *err = NULL;
    VfioUserRegion region;
    int fd = g_file_open_tmp("swnic-rom-XXXXXX", &path, &err);

    vfio_check(err, "ROM file");
    for (unsigned i = 0; i < ROM_BYTES; i++) {
        rom[i] = (uint8_t)(i * 31 + (i >> 8));
    }
    g_assert_cmpint(write(fd, rom, ROM_BYTES), ==, ROM_BYTES);
    close(fd);
    device = g_strdup_printf("romfile=%s", path);
    VfioRig *rig = vfio_rig_open(&(VfioRigConfig){.rig = {.device = device}});
    VfioUserClient *client = vfio_rig_connect(rig);

    unlink(path);
    expect_rom_needs_room(client, 32);
    expect_rom_needs_room(client, 63);
    vfio_user_client_region(client, ROM, &region, &err);
    vfio_check(err, "ROM region");
    g_assert_cmphex(region.info.flags, ==, flags);
    g_assert_cmpuint(region.info.size, ==, ROM_BYTES);
    g_assert_cmpuint(region.info.cap_offset, ==, 32);
    g_assert_cmpuint(region.areas, ==, 1);
    g_assert_cmpuint(region.area.offset, ==, 0);
    g_assert_cmpuint(region.area.size, ==, ROM_BYTES);

    uint8_t *map = mmap(NULL, ROM_BYTES, PROT_READ, MAP_SHARED, region.fd, 0);

    g_assert_true(map != MAP_FAILED);
    g_assert_cmpmem(map, ROM_BYTES, rom, ROM_BYTES);
    g_assert_true(mmap(NULL, ROM_BYTES, PROT_WRITE, MAP_SHARED, region.fd, 0) == MAP_FAILED);
    g_assert_cmpint(ftruncate(region.fd, 0), <, 0);
    vfio_user_client_write(client, ROM, 0, "xxxx", 4, &err); /* as hardware: nothing happens */
    vfio_check(err, "ROM write");
    vfio_user_client_read(client, ROM, 0, read, ROM_BYTES, &err);
    vfio_check(err, "ROM read");
    g_assert_cmpmem(read, ROM_BYTES, rom, ROM_BYTES);
    munmap(map, ROM_BYTES);
    close(region.fd);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* --- accesses --- */

static void expect_access(VfioUserClient *client, uint16_t command, uint32_t region,
                          uint64_t offset, uint32_t count, size_t data, int error)
{
    g_autofree VfioUserRegionAccess *access = g_malloc0(sizeof(*access) + data);

    *access = (VfioUserRegionAccess){.offset = offset, .region = region, .count = count};
    vfio_expect(client, command, access, sizeof(*access) + data, NULL, 0, error);
}

static void test_region_read(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    uint8_t all[256], part[256];
    GError *err = NULL;

    vfio_user_client_read(client, CONFIG, 0, all, sizeof(all), &err);
    vfio_check(err, "config");
    g_assert_cmphex(all[0] | all[1] << 8, ==, 0x1af4);
    g_assert_cmphex(all[2] | all[3] << 8, ==, 0x1000);
    for (uint32_t offset = 0; offset < 32; offset++) {
        for (uint32_t count = 0; count < 20; count++) {
            vfio_user_client_read(client, CONFIG, offset, part, count, &err);
            vfio_check(err, "config");
            g_assert_cmpmem(part, count, all + offset, count);
        }
    }
    expect_access(client, VFIO_USER_REGION_READ, CONFIG, 256, 0, 0, 0);
    expect_access(client, VFIO_USER_REGION_READ, CONFIG, 253, 4, 0, EINVAL);
    expect_access(client, VFIO_USER_REGION_READ, CONFIG, 257, 0, 0, EINVAL);
    expect_access(client, VFIO_USER_REGION_READ, CONFIG, UINT64_MAX, 4, 0, EINVAL);
    expect_access(client, VFIO_USER_REGION_READ, CONFIG, 0, UINT32_MAX, 0, EINVAL);
    expect_access(client, VFIO_USER_REGION_READ, BAR_MODERN, 0, 16384, 0, 0);
    expect_access(client, VFIO_USER_REGION_READ, BAR_MODERN, 16380, 8, 0, EINVAL);
    expect_access(client, VFIO_USER_REGION_READ, 2, 0, 1, 0, EINVAL); /* no such BAR */
    expect_access(client, VFIO_USER_REGION_READ, ROM, 0, 1, 0, EINVAL);
    expect_access(client, VFIO_USER_REGION_READ, VFIO_PCI_VGA_REGION_INDEX, 0, 1, 0, EINVAL);
    expect_access(client, VFIO_USER_REGION_READ, UINT32_MAX, 0, 1, 0, EINVAL);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* What the peer of a small max_data_xfer_size may ask for. */
static void test_transfer_limit(void)
{
    VfioRigConfig config = {.capabilities = "{\"max_data_xfer_size\": 64}"};
    VfioRig *rig = vfio_rig_open(&config);
    VfioUserClient *client = vfio_rig_connect(rig);

    expect_access(client, VFIO_USER_REGION_READ, CONFIG, 0, 64, 0, 0);
    expect_access(client, VFIO_USER_REGION_READ, CONFIG, 0, 65, 0, EINVAL);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

static void test_region_write(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    const uint32_t address = 0xfe001000;
    uint32_t got = 0;
    GError *err = NULL;

    vfio_user_client_write(client, CONFIG, PCI_BASE_ADDRESS_1, &address, 4, &err);
    vfio_user_client_read(client, CONFIG, PCI_BASE_ADDRESS_1, &got, 4, &err);
    vfio_check(err, "BAR register");
    g_assert_cmphex(got, ==, address);
    expect_access(client, VFIO_USER_REGION_WRITE, CONFIG, 0, 4, 4, 0); /* read-only: ignored */
    expect_access(client, VFIO_USER_REGION_WRITE, CONFIG, PCI_ROM_ADDRESS, 4, 4, 0);
    expect_access(client, VFIO_USER_REGION_WRITE, CONFIG, 0, 4, 3, EINVAL);
    expect_access(client, VFIO_USER_REGION_WRITE, CONFIG, 0, 4, 5, EINVAL);
    expect_access(client, VFIO_USER_REGION_WRITE, CONFIG, 0, UINT32_MAX, 4, EINVAL);
    expect_access(client, VFIO_USER_REGION_WRITE, CONFIG, 254, 4, 4, EINVAL);
    expect_access(client, VFIO_USER_REGION_WRITE, 3, 0, 4, 4, EINVAL);
    expect_access(client, VFIO_USER_REGION_WRITE, BAR_MODERN, 0, 16384, 16384, 0);
    expect_access(client, VFIO_USER_REGION_WRITE, BAR_MODERN, 1, 16384, 16384, EINVAL);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

static void test_write_multi(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    VfioUserWrite writes[4] = {
        {.offset = PCI_CACHE_LINE_SIZE, .region = CONFIG, .count = 1, .data = {0x11}},
        {.offset = PCI_INTERRUPT_LINE, .region = CONFIG, .count = 1, .data = {0x22}},
        {.offset = 256, .region = CONFIG, .count = 1, .data = {0x33}}, /* nothing there */
        {.offset = PCI_CACHE_LINE_SIZE, .region = CONFIG, .count = 1, .data = {0x44}},
    };
    uint64_t done = 0, payload[4] = {1};
    uint8_t got[2];
    GError *err = NULL;

    vfio_user_client_write_multi(client, writes, 2, &done, &err);
    vfio_check(err, "write multi");
    g_assert_cmpuint(done, ==, 2);
    vfio_user_client_read(client, CONFIG, PCI_CACHE_LINE_SIZE, &got[0], 1, &err);
    vfio_user_client_read(client, CONFIG, PCI_INTERRUPT_LINE, &got[1], 1, &err);
    g_assert_cmphex(got[0], ==, 0x11);
    g_assert_cmphex(got[1], ==, 0x22);
    /* It ends at the first that cannot be done, and says how many were. */
    vfio_user_client_write_multi(client, writes + 1, 3, &done, &err);
    g_assert_cmpuint(done, ==, 1);
    vfio_user_client_read(client, CONFIG, PCI_CACHE_LINE_SIZE, &got[0], 1, &err);
    g_assert_cmphex(got[0], ==, 0x11);
    writes[0].count = 9;
    vfio_user_client_write_multi(client, writes, 1, &done, &err);
    vfio_user_client_write_multi(client, writes, 0, &done, &err);
    vfio_check(err, "write multi");
    g_assert_cmpuint(done, ==, 0);
    vfio_expect(client, VFIO_USER_REGION_WRITE_MULTI, payload, 8 + 23, NULL, 0, EINVAL);
    payload[0] = UINT64_MAX / 24 + 2; /* times 24 wraps to something small */
    vfio_expect(client, VFIO_USER_REGION_WRITE_MULTI, payload, sizeof(payload), NULL, 0, EINVAL);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* --- notification eventfds --- */

static void test_io_fds(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    VfioUserIoFds modern, legacy, none;
    VfioUserRegionIoFds request = {.argsz = 16, .index = BAR_MODERN}, reply;
    VfioUserAnswer answer;
    GError *err = NULL;

    vfio_user_client_io_fds(client, BAR_MODERN, &modern, &err);
    vfio_user_client_io_fds(client, BAR_LEGACY, &legacy, &err);
    vfio_user_client_io_fds(client, CONFIG, &none, &err);
    vfio_check(err, "io fds");
    g_assert_cmpuint(none.count + none.nfds, ==, 0);
    g_assert_cmpuint(modern.count, ==, 3);
    g_assert_cmpuint(modern.nfds, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        g_assert_cmphex(modern.entries[i].offset, ==, 0x3000 + 4 * i);
        g_assert_cmphex(modern.entries[i].flags, ==, 0);
        g_assert_cmphex(legacy.entries[i].offset, ==, 16);
        g_assert_cmphex(legacy.entries[i].flags, ==,
                        VFIO_USER_IOEVENTFD_DATAMATCH | VFIO_USER_IOEVENTFD_PIO);
        g_assert_cmpuint(legacy.entries[i].datamatch, ==, i);
        g_assert_cmpuint(legacy.entries[i].size, ==, 2);
    }
    /* Without room: how much is needed, and nothing else. */
    g_assert_true(vfio_user_client_request(client, VFIO_USER_DEVICE_GET_REGION_IO_FDS, &request, 16,
                                           NULL, 0, &answer, NULL));
    g_assert_cmpuint(answer.size, ==, 16);
    g_assert_cmpuint(answer.nfds, ==, 0);
    memcpy(&reply, answer.data, sizeof(reply));
    g_assert_cmpuint(reply.argsz, ==, 16 + 3 * sizeof(VfioUserIoEventfd));
    g_assert_cmpuint(reply.count, ==, 0);
    vfio_user_answer_clear(&answer);
    request.argsz = 15;
    vfio_expect(client, VFIO_USER_DEVICE_GET_REGION_IO_FDS, &request, 16, NULL, 0, EINVAL);
    request = (VfioUserRegionIoFds){.argsz = 1000, .flags = 1};
    vfio_expect(client, VFIO_USER_DEVICE_GET_REGION_IO_FDS, &request, 16, NULL, 0, EINVAL);
    request = (VfioUserRegionIoFds){.argsz = 1000, .index = VFIO_PCI_NUM_REGIONS};
    vfio_expect(client, VFIO_USER_DEVICE_GET_REGION_IO_FDS, &request, 16, NULL, 0, EINVAL);
    vfio_user_io_fds_clear(&modern);
    vfio_user_io_fds_clear(&legacy);
    vfio_user_io_fds_clear(&none);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* A client that takes two fds a message gets two, and no entry that names a third. */
static void test_io_fds_limit(void)
{
    VfioRigConfig config = {.capabilities = "{\"max_msg_fds\": 2}"};
    VfioRig *rig = vfio_rig_open(&config);
    VfioUserClient *client = vfio_rig_connect(rig);
    VfioUserIoFds io_fds;
    GError *err = NULL;

    vfio_user_client_io_fds(client, BAR_MODERN, &io_fds, &err);
    vfio_check(err, "io fds");
    g_assert_cmpuint(io_fds.nfds, ==, 2);
    g_assert_cmpuint(io_fds.count, ==, 2);
    vfio_user_io_fds_clear(&io_fds);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* Frames pass with notifications by eventfd, by posted message, and without ioeventfds at all. */
static void test_notify(gconstpointer data)
{
    const char *how = data;
    VfioRigConfig config = {.no_io_fds = !strcmp(how, "message")};

    if (!strcmp(how, "no-ioeventfd")) {
        config.rig.device = "ioeventfd=off";
    }
    VfioRig *rig = vfio_rig_new(&config);
    uint8_t frame[200];
    uint64_t addr = rig_alloc(&rig->rig, 256);

    frame_fill(frame, sizeof(frame), 1);
    memcpy(rig_at(&rig->rig, addr + RIG_HDR, sizeof(frame)), frame, sizeof(frame));
    for (unsigned i = 0; i < 20; i++) {
        ring_set(rig->rig.tx, 0, addr, RIG_HDR + sizeof(frame), 0, 0);
        ring_offer(rig->rig.tx, 0);
        ring_publish(rig->rig.tx);
        virtio_driver_notify(rig->rig.virtio, RIG_TX);
        ring_take(&rig->rig, rig->rig.tx);
        rig_peer_expect(&rig->rig, frame, sizeof(frame));
    }
    g_assert_cmpuint(vfio_user_pci_fd_notifications(rig->pci), ==, !strcmp(how, "eventfd") * 20);
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

/* --- reset and features --- */

static void test_device_reset(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    GError *err = NULL;

    rig_expect_working(&rig->rig);
    g_assert_cmphex(virtio_driver_status(rig->rig.virtio), !=, 0);
    vfio_user_client_reset(rig->client, &err);
    vfio_check(err, "reset");
    g_assert_cmphex(guest_pci_config_read(rig->rig.pci, 2, PCI_COMMAND), ==, 0);
    g_assert_cmphex(virtio_driver_status(rig->rig.virtio), ==, 0);
    /* It is driven again, with the same memory and eventfds. */
    virtio_driver_free(rig->rig.virtio);
    g_free(rig->rig.pci);
    vfio_rig_start(rig);
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

static void test_features(void)
{
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    const uint32_t get = VFIO_DEVICE_FEATURE_GET, set = VFIO_DEVICE_FEATURE_SET,
                   probe = VFIO_DEVICE_FEATURE_PROBE;
    const uint32_t start = VFIO_DEVICE_FEATURE_DMA_LOGGING_START,
                   report = VFIO_DEVICE_FEATURE_DMA_LOGGING_REPORT;
    const struct {
        uint32_t flags;
        int error;
    } requests[] = {
        {probe | start, 0},
        {probe | set | start, 0},
        {probe | get | start, EINVAL},
        {probe | get | set | start, EINVAL},
        {probe | get | report, 0},
        {probe | set | report, EINVAL},
        {start, EINVAL},
        {get | start, EINVAL},
        {get | set | report, EINVAL},
        {set | start | 1u << 20, EINVAL},
        {set | start, EINVAL},  /* its data is missing */
        {get | report, EINVAL}, /* that too, and nothing is logged */
        {probe | VFIO_DEVICE_FEATURE_LOW_POWER_ENTRY, ENOTTY},
        {probe | 0xffff, ENOTTY},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(requests); i++) {
        const uint32_t request[2] = {8, requests[i].flags};

        vfio_expect(client, VFIO_USER_DEVICE_FEATURE, request, 8, NULL, 0, requests[i].error);
    }
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vfio-user/version/refused", test_version_refused);
    g_test_add_func("/vfio-user/version/capabilities", test_version_capabilities);
    g_test_add_func("/vfio-user/version/minor", test_version_minor);
    g_test_add_func("/vfio-user/commands/unknown-and-short", test_unknown_and_short);
    g_test_add_func("/vfio-user/commands/no-reply-keeps-order", test_no_reply_keeps_order);
    g_test_add_func("/vfio-user/info/device", test_device_info);
    g_test_add_func("/vfio-user/info/regions", test_region_info);
    g_test_add_func("/vfio-user/info/rom-is-mappable", test_rom);
    g_test_add_func("/vfio-user/region/read", test_region_read);
    g_test_add_func("/vfio-user/region/read-limit", test_transfer_limit);
    g_test_add_func("/vfio-user/region/write", test_region_write);
    g_test_add_func("/vfio-user/region/write-multi", test_write_multi);
    g_test_add_func("/vfio-user/io-fds/entries", test_io_fds);
    g_test_add_func("/vfio-user/io-fds/limit", test_io_fds_limit);
    g_test_add_data_func("/vfio-user/notify/eventfd", "eventfd", test_notify);
    g_test_add_data_func("/vfio-user/notify/message", "message", test_notify);
    g_test_add_data_func("/vfio-user/notify/no-ioeventfd", "no-ioeventfd", test_notify);
    g_test_add_func("/vfio-user/reset", test_device_reset);
    g_test_add_func("/vfio-user/features", test_features);
    return g_test_run();
}
