/*
 * Device state of a vfio-user server: the state machine with every arc and every one that is none,
 * data in messages of all sizes, streams that nobody should send, clients that go in the middle.
 * Whatever happens, the device either is what it was, or runs only after a reset; the server and
 * its next client are as if nothing had been.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/vfio-user-rig.h"

#define ERROR VFIO_DEVICE_STATE_ERROR
#define STOP  VFIO_DEVICE_STATE_STOP
#define RUN   VFIO_DEVICE_STATE_RUNNING
#define COPY  VFIO_DEVICE_STATE_STOP_COPY
#define LOAD  VFIO_DEVICE_STATE_RESUMING
#define PRE   VFIO_DEVICE_STATE_PRE_COPY

#define MAX_TRANSFER VFIO_USER_DEFAULT_MAX_XFER

/* --- small things --- */

static uint32_t get_state(VfioUserClient *client)
{
    GError *err = NULL;
    uint32_t state = 99;

    vfio_user_client_get_state(client, &state, &err);
    vfio_check(err, "state");
    return state;
}

/* 0 or the errno of the reply. */
static int try_state(VfioUserClient *client, uint32_t state)
{
    const struct {
        uint32_t argsz, flags, state;
        int32_t fd;
    } request = {sizeof(request), VFIO_DEVICE_FEATURE_MIG_DEVICE_STATE | VFIO_DEVICE_FEATURE_SET,
                 state, -1};
    VfioUserAnswer answer;
    GError *err = NULL;
    int error;

    vfio_user_client_request(client, VFIO_USER_DEVICE_FEATURE, &request, sizeof(request), NULL, 0,
                             &answer, &err);
    vfio_check(err, "state");
    error = answer.error;
    if (!error) { /* the reply is the request */
        g_assert_cmpmem(answer.data, answer.size, &request, sizeof(request));
    }
    vfio_user_answer_clear(&answer);
    return error;
}

static void set_state(VfioUserClient *client, uint32_t state)
{
    g_assert_cmpint(try_state(client, state), ==, 0);
    g_assert_cmpuint(get_state(client), ==, state);
}

static void reset(VfioUserClient *client)
{
    GError *err = NULL;

    vfio_user_client_reset(client, &err);
    vfio_check(err, "reset");
    g_assert_cmpuint(get_state(client), ==, RUN);
}

static GByteArray *save(VfioUserClient *client, uint32_t chunk)
{
    GByteArray *data = g_byte_array_new();
    GError *err = NULL;

    vfio_user_client_save(client, chunk, data, &err);
    vfio_check(err, "save");
    return data;
}

/* The whole state of a running device, which then runs on. */
static GByteArray *save_running(VfioUserClient *client)
{
    set_state(client, COPY);
    GByteArray *data = save(client, 4096);

    set_state(client, RUN);
    return data;
}

static int try_write(VfioUserClient *client, const void *data, size_t size)
{
    g_autofree VfioUserMigData *request = g_malloc(sizeof(*request) + size);
    VfioUserAnswer answer;
    GError *err = NULL;
    int error;

    request->argsz = (uint32_t)(sizeof(*request) + size);
    request->size = (uint32_t)size;
    memcpy(request->data, data, size);
    vfio_user_client_request(client, VFIO_USER_MIG_DATA_WRITE, request, request->argsz, NULL, 0,
                             &answer, &err);
    vfio_check(err, "write");
    g_assert_cmpuint(answer.size, ==, 0);
    error = answer.error;
    vfio_user_answer_clear(&answer);
    return error;
}

/* Whether all of it is taken, and RESUMING left well. */
static bool try_load(VfioUserClient *client, const uint8_t *data, size_t size)
{
    bool written = true;

    set_state(client, LOAD);
    for (size_t done = 0; done < size && written; done += 65536) {
        written = try_write(client, data + done, MIN(size - done, 65536)) == 0;
    }
    if (!written) { /* what was refused once stays so */
        g_assert_cmpint(try_write(client, data, 1), ==, EINVAL);
        g_assert_cmpuint(get_state(client), ==, LOAD);
    }
    int error = try_state(client, STOP);

    g_assert_cmpint(error, ==, get_state(client) == STOP ? 0 : EINVAL);
    g_assert_true(error == 0 || get_state(client) == ERROR);
    g_assert_true(written || error);
    return error == 0;
}

/* After a reset the driver starts anew and everything works. */
static void expect_recovery(VfioRig *rig)
{
    reset(rig->client);
    guest_pci_device_enable(rig->rig.pci, NULL);
    rig_expect_recovery(&rig->rig);
}

/* --- features --- */

static void expect_feature(VfioUserClient *client, uint32_t flags, uint32_t argsz, size_t size,
                           int error)
{
    const uint32_t request[4] = {argsz, flags, RUN, 0};

    vfio_expect(client, VFIO_USER_DEVICE_FEATURE, request, size, NULL, 0, error);
}

static void test_features(void)
{
    const uint32_t get = VFIO_DEVICE_FEATURE_GET, set = VFIO_DEVICE_FEATURE_SET,
                   probe = VFIO_DEVICE_FEATURE_PROBE;
    const uint32_t flags = VFIO_DEVICE_FEATURE_MIGRATION,
                   state = VFIO_DEVICE_FEATURE_MIG_DEVICE_STATE;
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    GError *err = NULL;
    uint64_t supported = 0;

    vfio_user_client_migration_flags(client, &supported, &err);
    vfio_check(err, "flags");
    g_assert_cmphex(supported, ==, VFIO_MIGRATION_STOP_COPY | VFIO_MIGRATION_PRE_COPY);
    g_assert_cmpuint(get_state(client), ==, RUN);
    expect_feature(client, probe | flags, 8, 8, 0);
    expect_feature(client, probe | get | flags, 8, 8, 0);
    expect_feature(client, probe | set | flags, 8, 8, EINVAL);
    expect_feature(client, set | flags, 16, 16, EINVAL);
    expect_feature(client, get | flags, 15, 8, EINVAL); /* no room for the answer */
    expect_feature(client, probe | get | set | state, 8, 8, 0);
    expect_feature(client, get | set | state, 16, 16, EINVAL);
    expect_feature(client, get | state, 15, 8, EINVAL);
    expect_feature(client, set | state, 16, 15, EINVAL); /* data that is not whole */
    expect_feature(client, set | state, 15, 16, EINVAL);
    expect_feature(client, set | state, 16, 16, 0);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* It is every device's that has a migration table. */
static void test_entropy_device(void)
{
    const VfioRigConfig config = {
        .rig.args = (const char *const[]){"-device", "virtio-rng-pci,id=rng0", NULL},
        .server = "vfio-user-server,id=s0,device=rng0,socket.type=unix,socket.path=%s",
    };
    VfioRig *rig = vfio_rig_open(&config);
    VfioUserClient *client = vfio_rig_connect(rig);

    expect_feature(client, VFIO_DEVICE_FEATURE_PROBE | VFIO_DEVICE_FEATURE_MIGRATION, 8, 8, 0);
    expect_feature(client, VFIO_DEVICE_FEATURE_SET | VFIO_DEVICE_FEATURE_MIG_DEVICE_STATE, 16, 16,
                   0);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* --- states --- */

/* From reset to @state. */
static void go_to(VfioUserClient *client, uint32_t state)
{
    reset(client);
    if (state == ERROR) {
        set_state(client, LOAD);
        g_assert_cmpint(try_state(client, STOP), ==, EINVAL); /* no data came */
    } else {
        set_state(client, state);
    }
    g_assert_cmpuint(get_state(client), ==, state);
}

/*
 * <linux/vfio.h>: nothing leads to ERROR or out of it, STOP_COPY does not become PRE_COPY again,
 * and states without peer-to-peer DMA are not there.  RESUMING cannot be left without data.
 */
static void test_transitions(void)
{
    static const uint32_t from[] = {ERROR, STOP, RUN, COPY, LOAD, PRE};
    static const uint32_t to[] = {ERROR, STOP,
                                  RUN,   COPY,
                                  LOAD,  VFIO_DEVICE_STATE_RUNNING_P2P,
                                  PRE,   VFIO_DEVICE_STATE_PRE_COPY_P2P,
                                  8,     0xffffffff};
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);

    for (unsigned i = 0; i < G_N_ELEMENTS(from); i++) {
        for (unsigned j = 0; j < G_N_ELEMENTS(to); j++) {
            bool known =
                to[j] == STOP || to[j] == RUN || to[j] == COPY || to[j] == LOAD || to[j] == PRE;
            bool legal = known && from[i] != ERROR && !(from[i] == COPY && to[j] == PRE);
            bool empty = legal && from[i] == LOAD && to[j] != LOAD;

            go_to(client, from[i]);
            g_test_message("from %u to %u", from[i], to[j]);
            g_assert_cmpint(try_state(client, to[j]), ==, legal && !empty ? 0 : EINVAL);
            g_assert_cmpuint(get_state(client), ==, empty ? ERROR : legal ? to[j] : from[i]);
        }
    }
    reset(client);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* With data RESUMING leads everywhere. */
static void test_out_of_resuming(void)
{
    static const uint32_t to[] = {STOP, RUN, COPY, PRE};
    VfioRig *rig = vfio_rig_open(NULL);
    VfioUserClient *client = vfio_rig_connect(rig);
    g_autoptr(GByteArray) data = save_running(client);

    for (unsigned i = 0; i < G_N_ELEMENTS(to); i++) {
        set_state(client, LOAD);
        g_assert_cmpint(try_write(client, data->data, data->len), ==, 0);
        set_state(client, to[i]);
        reset(client);
    }
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

static uint64_t interrupts_of(VfioRig *rig, unsigned vector)
{
    return virtio_driver_take_interrupt(rig->rig.virtio, vector);
}

static void set_link(VfioRig *rig, bool up)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(rig->rig.qmp, "set_link", &err,
                                        "{\"name\": \"nic0\", \"up\": %s}", up ? "true" : "false"));
    vfio_check(err, "set_link");
}

/* A device that does not run neither sends nor receives nor interrupts, whatever is asked of it; it
 * makes up for it afterwards. */
static void test_stands_still(const void *data)
{
    const uint32_t state = *(const uint32_t *)data;
    VfioRig *rig = vfio_rig_new(NULL);
    uint8_t frame[100], before[64];
    uint64_t in = rig_post_buffer(&rig->rig, 0, 2048), out = rig_alloc(&rig->rig, 2048);

    frame_fill(frame, sizeof(frame), 7);
    memcpy(rig_at(&rig->rig, out, 2048) + RIG_HDR, frame, sizeof(frame));
    memcpy(before, rig_at(&rig->rig, in, 64), 64);
    interrupts_of(rig, 0), interrupts_of(rig, 1), interrupts_of(rig, 2);
    set_state(rig->client, state);
    set_link(rig, false);
    set_link(rig, true);
    ring_set(rig->rig.tx, 0, out, RIG_HDR + sizeof(frame), 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    rig_peer_send(&rig->rig, frame, sizeof(frame));
    rig_peer_expect_nothing(&rig->rig);
    g_assert_cmpmem(rig_at(&rig->rig, in, 64), 64, before, 64);
    g_assert_cmpuint(ring_used_count(rig->rig.rx) + ring_used_count(rig->rig.tx), ==, 0);
    g_assert_false(interrupts_of(rig, 0) || interrupts_of(rig, 1) || interrupts_of(rig, 2));
    if (state == LOAD) {
        expect_recovery(rig);
    } else {
        set_state(rig->client, RUN);
        g_assert_true(interrupts_of(rig, 0)); /* what the link did */
        rig_peer_expect(&rig->rig, frame, sizeof(frame));
        g_assert_true(ring_wait_used(&rig->rig, rig->rig.rx, 1, RIG_TIMEOUT_MS));
        g_assert_cmpmem(rig_at(&rig->rig, in, 2048) + RIG_HDR, sizeof(frame), frame, sizeof(frame));
        g_assert_true(ring_wait_used(&rig->rig, rig->rig.tx, 1, RIG_TIMEOUT_MS));
        ring_take(&rig->rig, rig->rig.rx);
        ring_take(&rig->rig, rig->rig.tx);
        rig_expect_working(&rig->rig);
    }
    vfio_rig_free(rig);
}

/* PRE_COPY takes nothing away from the device. */
static void test_runs_in_pre_copy(void)
{
    VfioRig *rig = vfio_rig_new(NULL);

    set_state(rig->client, PRE);
    rig_expect_working(&rig->rig);
    set_state(rig->client, RUN);
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

/* --- data --- */

static void test_sizes(void)
{
    static const uint32_t chunks[] = {1, 7, 8, 9, 4095, 4096, 65537, MAX_TRANSFER};
    VfioRig *rig = vfio_rig_new(NULL);
    g_autoptr(GByteArray) whole = save_running(rig->client);

    g_test_message("a device's state is %u bytes", whole->len);
    for (unsigned i = 0; i < G_N_ELEMENTS(chunks); i++) {
        GError *err = NULL;

        set_state(rig->client, COPY);
        g_autoptr(GByteArray) data = save(rig->client, chunks[i]);

        g_assert_cmpmem(data->data, data->len, whole->data, whole->len);
        set_state(rig->client, LOAD);
        vfio_user_client_load(rig->client, chunks[i], data->data, data->len, &err);
        vfio_check(err, "load");
        set_state(rig->client, RUN);
        rig_expect_working(&rig->rig);
        g_byte_array_unref(whole);
        whole = save_running(rig->client); /* the rings have gone on */
    }
    vfio_rig_free(rig);
}

static void expect_read(VfioUserClient *client, uint32_t argsz, uint32_t size, int error)
{
    const VfioUserMigData request = {.argsz = argsz, .size = size};

    vfio_expect(client, VFIO_USER_MIG_DATA_READ, &request, sizeof(request), NULL, 0, error);
}

/* Data moves only in the states that have some, and never more than was agreed. */
static void test_wrong_requests(void)
{
    static const uint32_t states[] = {ERROR, STOP, RUN, COPY, LOAD, PRE};
    const VfioRigConfig config = {.capabilities = "{\"max_data_xfer_size\": 4096}"};
    VfioRig *rig = vfio_rig_open(&config);
    VfioUserClient *client = vfio_rig_connect(rig);
    const struct {
        uint32_t argsz, size;
        uint8_t data[4];
    } longer = {12, 3, "abc"}, shorter = {12, 5, "abc"};

    for (unsigned i = 0; i < G_N_ELEMENTS(states); i++) {
        bool reads = states[i] == COPY || states[i] == PRE;

        go_to(client, states[i]);
        expect_read(client, 8, 0, reads ? 0 : EINVAL);
        expect_read(client, 24, 16, reads ? 0 : EINVAL);
        g_assert_cmpint(try_write(client, "s", 1), ==, states[i] == LOAD ? 0 : EINVAL);
        g_assert_cmpuint(get_state(client), ==, states[i]);
    }
    go_to(client, COPY);
    expect_read(client, 8 + 4097, 4097, EINVAL);
    expect_read(client, 0xffffffff, 0xffffffff, EINVAL);
    expect_read(client, 8 + 15, 16, EINVAL);
    expect_read(client, 7, 0, EINVAL);
    go_to(client, LOAD);
    vfio_expect(client, VFIO_USER_MIG_DATA_WRITE, &longer, sizeof(longer), NULL, 0, EINVAL);
    vfio_expect(client, VFIO_USER_MIG_DATA_WRITE, &shorter, sizeof(shorter), NULL, 0, EINVAL);
    g_assert_cmpint(try_write(client, "", 0), ==, 0);
    vfio_user_client_free(client);
    vfio_rig_free(rig);
}

/* What PRE_COPY gives comes first and is not enough; STOP_COPY goes on where it was left. */
static void test_pre_copy(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    g_autoptr(GByteArray) all = NULL, rest = NULL, more = NULL;
    guint early;

    set_state(rig->client, PRE);
    all = save(rig->client, 1000);
    early = all->len;
    more = save(rig->client, 1000);
    g_assert_cmpuint(early, >, 16);
    g_assert_cmpuint(more->len, ==, 0);
    set_state(rig->client, COPY);
    rest = save(rig->client, 1000);
    g_assert_cmpuint(rest->len, >, 16);
    g_byte_array_append(all, rest->data, rest->len);
    g_assert_true(try_load(rig->client, all->data, all->len));
    set_state(rig->client, RUN);
    rig_expect_working(&rig->rig);
    g_assert_false(try_load(rig->client, all->data, early));
    expect_recovery(rig);
    set_state(rig->client, PRE); /* unread data does not get lost on the way */
    set_state(rig->client, COPY);
    g_autoptr(GByteArray) unread = save(rig->client, 70000);
    g_assert_cmpuint(unread->len, ==, all->len);
    g_assert_true(try_load(rig->client, unread->data, unread->len));
    vfio_rig_free(rig);
}

/* --- streams that nobody should send --- */

typedef struct Registers {
    uint8_t config[256], common[56], device[32];
} Registers;

static Registers read_registers(VfioRig *rig)
{
    Registers registers = {0};
    GError *err = NULL;
    const VirtioRegion *common = &rig->rig.virtio->common, *device = &rig->rig.virtio->device;

    vfio_user_client_read(rig->client, VFIO_PCI_CONFIG_REGION_INDEX, 0, registers.config, 256,
                          &err);
    vfio_user_client_read(rig->client, common->bar, common->offset, registers.common, 56, &err);
    vfio_user_client_read(rig->client, device->bar, device->offset, registers.device,
                          MIN(device->length, 32), &err);
    vfio_check(err, "registers");
    return registers;
}

/* A refused stream leaves the device as it was, and not running. */
static void expect_refused(VfioRig *rig, const uint8_t *data, size_t size, const Registers *before)
{
    g_assert_false(try_load(rig->client, data, size));
    const Registers after = read_registers(rig);

    g_assert_cmpmem(&after, sizeof(after), before, sizeof(*before));
    reset(rig->client);
}

/* The driver is not started anew between them: a reset device with its registers back. */
static Registers registers_after_reset(VfioRig *rig)
{
    reset(rig->client);
    return read_registers(rig);
}

static void test_truncated(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    g_autoptr(GByteArray) data = save_running(rig->client);
    const Registers before = registers_after_reset(rig);

    for (guint size = 0; size < data->len; size += size < 400 ? 1 : 997) {
        expect_refused(rig, data->data, size, &before);
    }
    expect_refused(rig, data->data, data->len - 1, &before);
    g_assert_true(try_load(rig->client, data->data, data->len));
    set_state(rig->client, RUN); /* it is the driver's device again */
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

/* Bytes changed one at a time: it is refused, or it is another sound state. */
static void test_garbled(void)
{
    static const uint8_t changes[] = {0x01, 0x80, 0xff};
    VfioRig *rig = vfio_rig_new(NULL);
    g_autoptr(GByteArray) data = save_running(rig->client);
    unsigned refused = 0, taken = 0;

    for (guint i = 0; i < data->len; i += i < 1200 ? 3 : 331) {
        uint8_t change = changes[i % G_N_ELEMENTS(changes)];

        data->data[i] ^= change;
        if (try_load(rig->client, data->data, data->len)) {
            taken++;
            set_state(rig->client, RUN);
        } else {
            refused++;
        }
        reset(rig->client);
        data->data[i] ^= change;
    }
    g_test_message("%u refused, %u taken", refused, taken);
    g_assert_cmpuint(refused, >, 100);
    expect_recovery(rig);
    vfio_rig_free(rig);
}

static void test_crafted(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    g_autoptr(GByteArray) data = save_running(rig->client), more = g_byte_array_new();
    const Registers before = registers_after_reset(rig);
    const guint head = 16, block = 8;
    /* Where, and the big-endian number that is put there. */
    const struct {
        guint at;
        uint32_t value;
    } words[] = {
        {0, 0},                              /* no magic */
        {8, 0},    {8, 2},        {8, ~0u},  /* versions */
        {12, 1},                             /* what must be zero */
        {16, 0},   {16, 3},       {16, ~0u}, /* kinds of block */
        {16, 1},                             /* early, so that there is none that counts */
        {20, 0},   {20, 1 << 20}, {20, (1 << 20) + 1},
        {20, ~0u}, /* sizes */
        {24, 0},   /* the stream within */
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(words); i++) {
        g_autofree uint8_t *copy = g_memdup2(data->data, data->len);
        uint32_t value = GUINT32_TO_BE(words[i].value);

        memcpy(copy + words[i].at, &value, 4);
        expect_refused(rig, copy, data->len, &before);
    }
    g_byte_array_append(more, data->data, data->len); /* a byte too many; two final blocks */
    g_byte_array_append(more, data->data + head, 1);
    expect_refused(rig, more->data, more->len, &before);
    g_byte_array_append(more, data->data + head + 1, data->len - head - 1);
    expect_refused(rig, more->data, more->len, &before);
    g_assert_cmpuint(data->len, >, head + block);
    vfio_rig_free(rig);
}

/* The state of a device that this one is not. */
static void test_other_device(const void *properties)
{
    const VfioRigConfig config = {.rig.device = properties};
    VfioRig *source = vfio_rig_open(&config), *rig = vfio_rig_new(NULL);

    vfio_rig_attach(source, false);
    vfio_rig_start(source);
    g_autoptr(GByteArray) data = save_running(source->client);
    const Registers before = registers_after_reset(rig);

    expect_refused(rig, data->data, data->len, &before);
    expect_recovery(rig);
    vfio_rig_free(source);
    vfio_rig_free(rig);
}

/* --- clients that go --- */

static void test_client_goes(const void *data)
{
    const uint32_t state = *(const uint32_t *)data;
    VfioRig *rig = vfio_rig_new(NULL);
    unsigned fds;

    rig_expect_working(&rig->rig);
    vfio_rig_hang_up(rig);
    vfio_rig_wait_connected(rig, false);
    fds = vfio_rig_count_fds(rig);
    for (unsigned i = 0; i < 5; i++) {
        vfio_rig_attach(rig, false);
        vfio_rig_start(rig);
        g_autoptr(GByteArray) saved = save_running(rig->client);

        set_state(rig->client, state);
        if (state == LOAD) {
            g_assert_cmpint(try_write(rig->client, saved->data, saved->len - i * 10), ==, 0);
        } else if (state != STOP) {
            expect_read(rig->client, 8 + 10 * i, 10 * i, 0);
        }
        vfio_rig_hang_up(rig);
        vfio_rig_wait_connected(rig, false);
        g_assert_cmpuint(vfio_rig_count_fds(rig), ==, fds);
    }
    vfio_rig_attach(rig, false);
    g_assert_cmpuint(get_state(rig->client), ==, RUN);
    vfio_rig_start(rig);
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

/* The device goes while it stands still. */
static void test_device_goes(void)
{
    VfioRig *rig = vfio_rig_new(NULL);

    set_state(rig->client, COPY);
    json_object_put(qmp_client_executef(rig->rig.qmp, "device_del", NULL, "{\"id\":\"nic0\"}"));
    vfio_rig_hang_up(rig);
    rig_check(&rig->rig);
    vfio_rig_free(rig);
}

/* An interrupt that is masked when the state is saved is pending where it is loaded. */
static void test_pending_interrupt(void)
{
    const uint32_t mask = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_MASK,
                   unmask = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_UNMASK;
    VfioRig *rig = vfio_rig_new(NULL), *to = vfio_rig_open(NULL);
    uint8_t frame[60];
    GError *err = NULL;

    frame_fill(frame, sizeof(frame), 1);
    vfio_user_client_set_irqs(rig->client, VFIO_PCI_MSIX_IRQ_INDEX, mask, 1, 1, NULL, NULL, 0,
                              &err);
    rig_post_buffer(&rig->rig, 0, 2048);
    rig_peer_send(&rig->rig, frame, sizeof(frame));
    g_assert_true(ring_wait_used(&rig->rig, rig->rig.rx, 1, RIG_TIMEOUT_MS));
    set_state(rig->client, COPY);
    g_autoptr(GByteArray) data = save(rig->client, 4096);
    VfioUserClient *client = vfio_rig_connect_other(rig, to);

    g_assert_true(try_load(client, data->data, data->len));
    vfio_user_client_set_irqs(client, VFIO_PCI_MSIX_IRQ_INDEX, mask, 1, 1, NULL, NULL, 0, &err);
    vfio_rig_move(rig, to, client);
    interrupts_of(rig, 1);
    set_state(rig->client, RUN);
    g_assert_true(guest_pci_msix_is_pending(rig->rig.pci, 1));
    g_assert_false(interrupts_of(rig, 1));
    vfio_user_client_set_irqs(rig->client, VFIO_PCI_MSIX_IRQ_INDEX, unmask, 1, 1, NULL, NULL, 0,
                              &err);
    vfio_check(err, "SET_IRQS");
    g_assert_true(interrupts_of(rig, 1));
    vfio_rig_free(to);
    vfio_rig_free(rig);
}

int main(int argc, char **argv)
{
    static const uint32_t stop = STOP, copy = COPY, load = LOAD, pre = PRE;

    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vfio-user/state/features", test_features);
    g_test_add_func("/vfio-user/state/entropy-device", test_entropy_device);
    g_test_add_func("/vfio-user/state/transitions", test_transitions);
    g_test_add_func("/vfio-user/state/out-of-resuming", test_out_of_resuming);
    g_test_add_data_func("/vfio-user/state/stands-still/stop", &stop, test_stands_still);
    g_test_add_data_func("/vfio-user/state/stands-still/stop-copy", &copy, test_stands_still);
    g_test_add_data_func("/vfio-user/state/stands-still/resuming", &load, test_stands_still);
    g_test_add_func("/vfio-user/state/runs-in-pre-copy", test_runs_in_pre_copy);
    g_test_add_func("/vfio-user/state/data/sizes", test_sizes);
    g_test_add_func("/vfio-user/state/data/wrong-requests", test_wrong_requests);
    g_test_add_func("/vfio-user/state/data/pre-copy", test_pre_copy);
    g_test_add_func("/vfio-user/state/hostile/truncated", test_truncated);
    g_test_add_func("/vfio-user/state/hostile/garbled", test_garbled);
    g_test_add_func("/vfio-user/state/hostile/crafted", test_crafted);
    g_test_add_data_func("/vfio-user/state/hostile/longer-queue", "rx_queue_size=512",
                         test_other_device);
    g_test_add_data_func("/vfio-user/state/hostile/more-vectors", "vectors=5", test_other_device);
    g_test_add_data_func("/vfio-user/state/client-goes/stop", &stop, test_client_goes);
    g_test_add_data_func("/vfio-user/state/client-goes/stop-copy", &copy, test_client_goes);
    g_test_add_data_func("/vfio-user/state/client-goes/pre-copy", &pre, test_client_goes);
    g_test_add_data_func("/vfio-user/state/client-goes/resuming", &load, test_client_goes);
    g_test_add_func("/vfio-user/state/device-goes", test_device_goes);
    g_test_add_func("/vfio-user/state/pending-interrupt", test_pending_interrupt);
    return g_test_run();
}
