/* See vfio-user-rig.h. */
#include "tests/lib/vfio-user-rig.h"

#include <dirent.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define INBOX_MAX (1 << 20)
#define SERVER    "vfio-user-server,id=s0,device=nic0,socket.type=unix,socket.path=%s"

void vfio_check(GError *err, const char *what)
{
    if (err) {
        g_error("%s: %s", what, err->message);
    }
}

/* --- the server --- */

static void add_option(GPtrArray *args, const char *option, char *value)
{
    g_ptr_array_add(args, g_strdup(option));
    g_ptr_array_add(args, value);
}

static void server_start(VfioRig *rig)
{
    const RigConfig *config = &rig->rig.config;
    const char *server = rig->config.server ? rig->config.server : SERVER;
    g_auto(GStrv) around = g_strsplit(server, "%s", -1);
    g_autoptr(GPtrArray) args = g_ptr_array_new_with_free_func(g_free);
    EmulatorOptions options = {.command = rig_binary()};
    int fds[2], inherit[] = {-1, -1};
    GError *err = NULL;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
        g_error("socketpair: %s", g_strerror(errno));
    }
    if (config->sndbuf &&
        setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &config->sndbuf, sizeof(config->sndbuf)) < 0) {
        g_error("SO_SNDBUF: %s", g_strerror(errno));
    }
    rig->rig.peer = fds[0];
    rig->rig.inbox = g_malloc(INBOX_MAX);
    inherit[0] = fds[1];
    options.inherit_fds = inherit;
    add_option(args, "-machine", g_strdup("vfio-user"));
    add_option(args, "-netdev", g_strdup_printf("socket,fd=%d,id=n0", fds[1]));
    add_option(args, "-device",
               g_strdup_printf("virtio-net-pci,id=nic0,netdev=n0,mac=52:54:00:12:34:56%s%s",
                               config->device ? "," : "", config->device ? config->device : ""));
    if (*server) {
        add_option(args, "-object", g_strjoinv(rig->path, around));
    }
    for (const char *const *arg = config->args; arg && *arg; arg++) {
        g_ptr_array_add(args, g_strdup(*arg));
    }
    g_ptr_array_add(args, NULL);
    options.arguments = (const char *const *)args->pdata;
    rig->rig.emulator = emulator_start(&options, &err);
    vfio_check(err, "emulator");
    close(fds[1]);
    rig->rig.qtest = rig->rig.emulator->qtest;
    rig->rig.qmp = rig->rig.emulator->qmp;
}

VfioRig *vfio_rig_open(const VfioRigConfig *config)
{
    VfioRig *rig = g_new0(VfioRig, 1);
    GError *err = NULL;

    if (config) {
        rig->config = *config;
        rig->rig.config = config->rig;
    }
    rig->rig.is_swnic = true;
    rig->dir = g_dir_make_tmp("swnic-vfio-XXXXXX", &err);
    vfio_check(err, "directory");
    rig->path = g_build_filename(rig->dir, "nic0.sock", NULL);
    rig->rig.ram = guest_ram_new(VFIO_RIG_RAM, &err);
    vfio_check(err, "guest RAM");
    server_start(rig);
    return rig;
}

static bool server_connected(VfioRig *rig)
{
    GError *err = NULL;
    json_object *value = qmp_client_qom_get(rig->rig.qmp, "/objects/s0", "connected", &err);
    bool connected = json_object_get_boolean(value);

    vfio_check(err, "qom-get connected");
    json_object_put(value);
    return connected;
}

void vfio_rig_wait_connected(VfioRig *rig, bool connected)
{
    for (unsigned i = 0; server_connected(rig) != connected; i++) {
        if (i == RIG_TIMEOUT_MS) {
            g_error("the server's client is still %s", connected ? "away" : "there");
        }
        g_usleep(1000);
    }
}

unsigned vfio_rig_count_fds(VfioRig *rig)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/fd", rig->rig.emulator->pid);
    DIR *dir = opendir(path);
    unsigned count = 0;

    g_assert_nonnull(dir);
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

size_t vfio_rig_rss(VfioRig *rig)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/statm", rig->rig.emulator->pid);
    g_autofree char *text = NULL;
    unsigned long pages = 0;

    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_cmpint(sscanf(text, "%*u %lu", &pages), ==, 1);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* --- the client --- */

VfioUserClient *vfio_rig_connect_raw(VfioRig *rig)
{
    GError *err = NULL;
    VfioUserClient *client = vfio_user_client_connect(rig->path, &err);

    vfio_check(err, "connect");
    return client;
}

VfioUserClient *vfio_rig_connect(VfioRig *rig)
{
    VfioUserClient *client = vfio_rig_connect_raw(rig);
    GError *err = NULL;

    vfio_user_client_negotiate(client, rig->config.capabilities, &err);
    vfio_check(err, "negotiation");
    return client;
}

void vfio_rig_attach(VfioRig *rig, bool mapped)
{
    const VfioUserPciOptions options = {.no_io_fds = rig->config.no_io_fds};
    GError *err = NULL;

    rig->client = vfio_rig_connect(rig);
    if (!mapped) {
        vfio_user_client_map(rig->client, 0, rig->rig.ram->size, VFIO_RIG_RW, rig->rig.ram->fd, 0,
                             &err);
        vfio_check(err, "DMA_MAP");
    }
    rig->pci = vfio_user_pci_new(rig->client, &options, &err);
    vfio_check(err, "vfio-user");
}

void vfio_rig_share_by_messages(VfioRig *rig, uint64_t from)
{
    GuestRam *ram = rig->rig.ram;
    GError *err = NULL;

    rig->bus_view = mmap(NULL, ram->size, PROT_READ | PROT_WRITE, MAP_SHARED, ram->fd, 0);
    g_assert_true(rig->bus_view != MAP_FAILED);
    vfio_user_client_map(rig->client, from, ram->size - from, VFIO_RIG_RW, -1, 0, &err);
    vfio_check(err, "map");
    vfio_user_client_set_memory(rig->client, from, ram->size - from, rig->bus_view + from);
}

void vfio_rig_start(VfioRig *rig)
{
    GError *err = NULL;

    guest_ram_reset(rig->rig.ram);
    rig->rig.pci = guest_pci_device_open(vfio_user_pci_bus(rig->pci), 0, &err);
    vfio_check(err, "device");
    rig->rig.virtio = virtio_driver_new(rig->rig.pci, rig->rig.ram, &err);
    vfio_check(err, "virtio device");
    rig_start(&rig->rig);
}

VfioRig *vfio_rig_new(const VfioRigConfig *config)
{
    VfioRig *rig = vfio_rig_open(config);

    vfio_rig_attach(rig, false);
    vfio_rig_start(rig);
    return rig;
}

VfioUserClient *vfio_rig_connect_other(VfioRig *rig, VfioRig *to)
{
    VfioUserClient *client = vfio_rig_connect(to);
    GError *err = NULL;

    vfio_user_client_map(client, 0, rig->rig.ram->size, VFIO_RIG_RW, rig->rig.ram->fd, 0, &err);
    vfio_check(err, "DMA_MAP");
    return client;
}

#define SWAP(a, b)                                                                                 \
    do {                                                                                           \
        __typeof__(a) swap_ = (a);                                                                 \
        (a) = (b);                                                                                 \
        (b) = swap_;                                                                               \
    } while (0)

void vfio_rig_move(VfioRig *rig, VfioRig *to, VfioUserClient *client)
{
    GError *err = NULL;

    vfio_user_pci_move(rig->pci, client, &err);
    vfio_check(err, "move");
    SWAP(rig->rig.emulator, to->rig.emulator);
    SWAP(rig->rig.qtest, to->rig.qtest);
    SWAP(rig->rig.qmp, to->rig.qmp);
    SWAP(rig->rig.peer, to->rig.peer);
    SWAP(rig->rig.inbox, to->rig.inbox);
    SWAP(rig->rig.inbox_size, to->rig.inbox_size);
    SWAP(rig->dir, to->dir);
    SWAP(rig->path, to->path);
}

void vfio_rig_hang_up(VfioRig *rig)
{
    if (!rig->pci) {
        return;
    }
    /* The driver must not say goodbye to its device. */
    shutdown(vfio_user_client_fd(rig->client), SHUT_RDWR);
    vfio_user_client_reset(rig->client, NULL);
    virtio_driver_free(rig->rig.virtio);
    rig->rig.virtio = NULL;
    g_clear_pointer(&rig->rig.pci, g_free);
    for (unsigned i = 0; i < RIG_QUEUES; i++) {
        g_clear_pointer(&rig->rig.queues[i], driver_queue_free);
    }
    g_clear_pointer(&rig->pci, vfio_user_pci_free);
    rig->client = NULL;
}

void vfio_rig_free(VfioRig *rig)
{
    GError *err = NULL;

    vfio_rig_hang_up(rig);
    if (rig->rig.emulator) {
        rig_check(&rig->rig);
        emulator_stop(rig->rig.emulator, &err);
        vfio_check(err, "quit");
    }
    close(rig->rig.peer);
    g_free(rig->rig.inbox);
    if (rig->bus_view) {
        munmap(rig->bus_view, rig->rig.ram->size);
    }
    guest_ram_free(rig->rig.ram);
    g_assert_false(g_file_test(rig->path, G_FILE_TEST_EXISTS));
    g_rmdir(rig->dir);
    g_free(rig->dir);
    g_free(rig->path);
    g_free(rig);
}

/* --- small things --- */

void vfio_expect(VfioUserClient *client, uint16_t command, const void *payload, size_t size,
                 const int *fds, unsigned nfds, int error)
{
    VfioUserAnswer answer;
    GError *err = NULL;

    vfio_user_client_request(client, command, payload, size, fds, nfds, &answer, &err);
    vfio_check(err, "request");
    if (answer.error != error) {
        g_error("command %u of %zu bytes: error %d (%s) instead of %d", command, size, answer.error,
                g_strerror(answer.error), error);
    }
    vfio_user_answer_clear(&answer);
}

int vfio_memfd(size_t size)
{
    int fd = memfd_create("swnic-test", MFD_CLOEXEC);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, (off_t)size), ==, 0);
    return fd;
}

int vfio_eventfd(void)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    g_assert_cmpint(fd, >=, 0);
    return fd;
}

uint64_t vfio_eventfd_take(int fd)
{
    uint64_t count = 0;

    return read(fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

uint64_t vfio_eventfd_wait(int fd, unsigned ms)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    poll(&pfd, 1, (int)ms);
    return vfio_eventfd_take(fd);
}

/* --- the second region --- */

VfioExtra vfio_extra_open(void)
{
    VfioExtra extra = {.fd = vfio_memfd(VFIO_EXTRA_SIZE)};

    extra.host = mmap(NULL, VFIO_EXTRA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, extra.fd, 0);
    g_assert_true(extra.host != MAP_FAILED);
    return extra;
}

void vfio_extra_close(VfioExtra *extra)
{
    munmap(extra->host, VFIO_EXTRA_SIZE);
    close(extra->fd);
}

void vfio_extra_map(VfioRig *rig, const VfioExtra *extra, uint32_t flags)
{
    GError *err = NULL;

    vfio_user_client_map(rig->client, VFIO_EXTRA_ADDR, VFIO_EXTRA_SIZE, flags, extra->fd, 0, &err);
    vfio_check(err, "map");
}

void vfio_extra_unmap(VfioRig *rig)
{
    GError *err = NULL;

    vfio_user_client_unmap(rig->client, VFIO_EXTRA_ADDR, VFIO_EXTRA_SIZE, &err);
    vfio_check(err, "unmap");
}
