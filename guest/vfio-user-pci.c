/*
 * GuestPciOps over vfio-user: see vfio-user-pci.h.
 *
 * Another server: a thread that finds the connection broken, or sees it hang up while it waits for
 * an interrupt, looks for the next server while the others wait for it.  All that the next one
 * needs is given to it over a connection of its own, which then takes the place of the broken one.
 * File descriptors keep their numbers (dup3), so threads that notify or poll need no lock.
 * Notifications that the old server did not see are no loss: a device looks at all its rings when
 * it begins to run.
 *
 * Errors of accesses are sticky, as those of a QtestClient are: the first is kept, and later
 * accesses do nothing.
 */
#include "guest/vfio-user-pci.h"
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <linux/pci_regs.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_VECTORS 64
#define RETRY_MS    5 /* between looks for a server that is not there yet */
#define ALL_ONES    0xFFFFFFFFu

struct VfioUserPci {
    GuestPciBus bus;
    VfioUserClient *client;
    VfioUserIoFds io_fds[6]; /* by BAR */
    int irq_fds[MAX_VECTORS];
    unsigned irqs;
    pthread_mutex_t error_lock;
    GError *error; /* the first */
    uint64_t fd_notifications, message_notifications;
    /* reconnecting */
    VfioUserPciOptions options;
    char *path; /* NULL: never */
    GuestRam *ram;
    pthread_mutex_t reconnect_lock;
    unsigned reconnects; /* atomic */
    bool given_up;       /* atomic */
};

static VfioUserPci *pci_of(GuestPciBus *bus)
{
    return bus->opaque;
}

/* Keeps the first error. */
static void keep_error(VfioUserPci *pci, GError *error)
{
    pthread_mutex_lock(&pci->error_lock);
    if (pci->error) {
        g_clear_error(&error);
    } else {
        pci->error = error;
    }
    pthread_mutex_unlock(&pci->error_lock);
}

/* --- another server --- */

static int64_t now_ms(void)
{
    return g_get_monotonic_time() / 1000;
}

static bool set_irq(VfioUserClient *client, unsigned vector, int fd, GError **errp)
{
    /* One a message: a server need not take more. */
    return vfio_user_client_set_irqs(client, VFIO_PCI_MSIX_IRQ_INDEX,
                                     VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                                     vector, 1, NULL, &fd, 1, errp);
}

/* The notification eventfds of the next server in place of the old ones. */
static bool move_io_fds(VfioUserIoFds *old, const VfioUserIoFds *new, GError **errp)
{
    bool same =
        old->count == new->count && old->nfds == new->nfds &&
        (!new->count || !memcmp(old->entries, new->entries, new->count * sizeof(*new->entries)));
    for (unsigned i = 0; same && i < new->nfds; i++) {
        same = dup3(new->fds[i], old->fds[i], O_CLOEXEC) >= 0;
    }
    if (!same) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
                    "vfio-user: the next server's device is notified in another way");
    }
    return same;
}

bool vfio_user_pci_move(VfioUserPci *pci, VfioUserClient *client, GError **errp)
{
    bool ok = true;
    for (unsigned i = 0; ok && i < pci->irqs; i++) {
        ok = set_irq(client, i, pci->irq_fds[i], errp);
    }
    for (unsigned bar = 0; ok && bar < 6 && !pci->options.no_io_fds; bar++) {
        VfioUserIoFds next;
        ok = vfio_user_client_io_fds(client, bar, &next, errp);
        if (ok) {
            ok = move_io_fds(&pci->io_fds[bar], &next, errp);
            vfio_user_io_fds_clear(&next);
        }
    }
    if (!ok) {
        vfio_user_client_free(client);
        return false;
    }
    return vfio_user_client_take_over(pci->client, client, errp);
}

static bool share_ram(VfioUserClient *client, GuestRam *ram, GError **errp)
{
    return vfio_user_client_map(client, 0, ram->size,
                                VFIO_USER_DMA_READABLE | VFIO_USER_DMA_WRITABLE, ram->fd, 0, errp);
}

/* Only a device that was stopped elsewhere is the one that we know. */
static bool check_state(VfioUserPci *pci, VfioUserClient *client, GError **errp)
{
    uint32_t state;
    if (!vfio_user_client_get_state(client, &state, errp)) {
        return false;
    }
    if (state != VFIO_DEVICE_STATE_STOP) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
                    "vfio-user socket '%s': the server there does not have the state of our device",
                    pci->path);
        return false;
    }
    return true;
}

/* A server that answers at our path, within @ms. */
static VfioUserClient *find_server(VfioUserPci *pci, int64_t ms, GError **errp)
{
    int64_t deadline = now_ms() + ms;
    for (;;) {
        g_autoptr(GError) err = NULL;
        VfioUserClient *client = vfio_user_client_connect(pci->path, &err);
        int64_t left = deadline - now_ms();
        if (client) {
            vfio_user_client_set_timeout(client, (unsigned)MAX(left, 0));
            if (vfio_user_client_negotiate(client, pci->options.capabilities, &err)) {
                vfio_user_client_set_timeout(client, 10000);
                return client;
            }
            vfio_user_client_free(client);
        }
        if (left <= 0) {
            g_propagate_error(errp, g_steal_pointer(&err));
            return NULL;
        }
        poll(NULL, 0, (int)MIN(left, RETRY_MS));
    }
}

static bool reconnect_now(VfioUserPci *pci, GError **errp)
{
    VfioUserClient *next = find_server(pci, pci->options.reconnect_ms, errp);
    if (!next) {
        return false;
    }
    if (!check_state(pci, next, errp) || !share_ram(next, pci->ram, errp)) {
        vfio_user_client_free(next);
        return false;
    }
    return vfio_user_pci_move(pci, next, errp) &&
           vfio_user_client_set_state(pci->client, VFIO_DEVICE_STATE_RUNNING, errp);
}

static unsigned reconnects(VfioUserPci *pci)
{
    return __atomic_load_n(&pci->reconnects, __ATOMIC_ACQUIRE);
}

static bool may_reconnect(VfioUserPci *pci)
{
    return pci->path && !__atomic_load_n(&pci->given_up, __ATOMIC_RELAXED);
}

/* After an access failed that began when @before servers had been found: try again? */
static bool reconnect(VfioUserPci *pci, unsigned before, GError **errp)
{
    if (!pci->path || !vfio_user_client_is_broken(pci->client)) {
        return pci->path && reconnects(pci) != before;
    }
    pthread_mutex_lock(&pci->reconnect_lock);
    bool found = reconnects(pci) != before;
    if (!found && !pci->given_up) {
        g_clear_error(errp);
        found = reconnect_now(pci, errp);
        if (found) {
            __atomic_fetch_add(&pci->reconnects, 1, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(&pci->given_up, true, __ATOMIC_RELAXED);
        }
    }
    pthread_mutex_unlock(&pci->reconnect_lock);
    return found;
}

unsigned vfio_user_pci_reconnects(VfioUserPci *pci)
{
    return reconnects(pci);
}

/* --- accesses --- */

/* One access to a region, tried again with the next server if this one is gone. */
typedef bool RegionAccess(VfioUserClient *client, uint32_t region, uint64_t offset, void *data,
                          uint32_t count, GError **errp);

static void access_region(VfioUserPci *pci, RegionAccess *access, uint32_t region, uint64_t offset,
                          unsigned width, uint64_t *value)
{
    for (;;) {
        GError *error = NULL;
        unsigned before = reconnects(pci);
        if (access(pci->client, region, offset, value, width, &error)) {
            return;
        }
        if (!reconnect(pci, before, &error)) {
            keep_error(pci, error);
            return;
        }
        g_clear_error(&error);
    }
}

static bool access_write(VfioUserClient *client, uint32_t region, uint64_t offset, void *data,
                         uint32_t count, GError **errp)
{
    return vfio_user_client_write(client, region, offset, data, count, errp);
}

static bool access_post(VfioUserClient *client, uint32_t region, uint64_t offset, void *data,
                        uint32_t count, GError **errp)
{
    return vfio_user_client_post_write(client, region, offset, data, count, errp);
}

static uint64_t read_region(VfioUserPci *pci, uint32_t region, uint64_t offset, unsigned width)
{
    uint64_t value = 0;
    access_region(pci, vfio_user_client_read, region, offset, width, &value);
    return value;
}

static void write_region(VfioUserPci *pci, uint32_t region, uint64_t offset, unsigned width,
                         uint64_t value)
{
    access_region(pci, access_write, region, offset, width, &value);
}

static uint32_t op_config_read(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                               uint8_t offset)
{
    if (bus_number || devfn) {
        return ALL_ONES >> (32 - 8 * width);
    }
    return (uint32_t)read_region(pci_of(bus), VFIO_PCI_CONFIG_REGION_INDEX, offset, width);
}

static void op_config_write(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                            uint8_t offset, uint32_t value)
{
    if (!bus_number && !devfn) {
        write_region(pci_of(bus), VFIO_PCI_CONFIG_REGION_INDEX, offset, width, value);
    }
}

static uint64_t op_bar_read(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset)
{
    return read_region(pci_of(device->bus), bar, offset, width);
}

static void op_bar_write(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                         uint64_t value)
{
    write_region(pci_of(device->bus), bar, offset, width, value);
}

static void op_bar_post(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                        uint64_t value)
{
    VfioUserPci *pci = pci_of(device->bus);
    int fd = bar < 6 ? vfio_user_io_fds_find(&pci->io_fds[bar], offset, width, value) : -1;
    uint64_t one = 1;
    if (fd >= 0) {
        __atomic_fetch_add(&pci->fd_notifications, 1, __ATOMIC_RELAXED);
        if (write(fd, &one, sizeof(one)) != sizeof(one) && errno != EAGAIN) {
            keep_error(pci, g_error_new(G_FILE_ERROR, G_FILE_ERROR_FAILED,
                                        "notification eventfd: %s", g_strerror(errno)));
        }
        return;
    }
    __atomic_fetch_add(&pci->message_notifications, 1, __ATOMIC_RELAXED);
    access_region(pci, access_post, bar, offset, width, &value);
}

static bool op_check(GuestPciBus *bus, GError **errp)
{
    VfioUserPci *pci = pci_of(bus);
    pthread_mutex_lock(&pci->error_lock);
    GError *error = g_steal_pointer(&pci->error);
    pthread_mutex_unlock(&pci->error_lock);
    if (error) {
        g_propagate_error(errp, error);
        return false;
    }
    return true;
}

static bool op_is_broken(GuestPciBus *bus)
{
    VfioUserPci *pci = pci_of(bus);
    return vfio_user_client_is_broken(pci->client) && !may_reconnect(pci);
}

/* --- interrupts --- */

static void close_irqs(VfioUserPci *pci)
{
    for (unsigned i = 0; i < pci->irqs; i++) {
        close(pci->irq_fds[i]);
    }
    pci->irqs = 0;
}

static bool op_irqs_enable(GuestPciDevice *device, unsigned count, GError **errp)
{
    VfioUserPci *pci = pci_of(device->bus);
    close_irqs(pci);
    for (unsigned i = 0; i < MIN(count, MAX_VECTORS); i++) {
        pci->irq_fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (pci->irq_fds[i] < 0) {
            g_set_error(errp, G_FILE_ERROR, G_FILE_ERROR_FAILED, "eventfd: %s", g_strerror(errno));
            return false;
        }
        pci->irqs++;
        if (!set_irq(pci->client, i, pci->irq_fds[i], errp)) {
            return false;
        }
    }
    return true;
}

static bool op_irq_take(GuestPciDevice *device, unsigned vector)
{
    VfioUserPci *pci = pci_of(device->bus);
    uint64_t count;
    /* The read orders what the device did before its interrupt before what we look at next. */
    return vector < pci->irqs && read(pci->irq_fds[vector], &count, sizeof(count)) == sizeof(count);
}

static void op_irq_wait(GuestPciDevice *device, unsigned vector, unsigned timeout_us)
{
    VfioUserPci *pci = pci_of(device->bus);
    struct pollfd pfds[] = {
        {.fd = vector < pci->irqs ? pci->irq_fds[vector] : -1, .events = POLLIN},
        {.fd = may_reconnect(pci) ? vfio_user_client_fd(pci->client) : -1, .events = POLLRDHUP},
    };
    struct timespec timeout = {timeout_us / 1000000, timeout_us % 1000000 * 1000l};
    if (ppoll(pfds, 2, &timeout, NULL) > 0 && pfds[1].revents) {
        /* Any access finds out what happened, and then the next server. */
        read_region(pci, VFIO_PCI_CONFIG_REGION_INDEX, PCI_VENDOR_ID, 2);
    }
}

static const GuestPciOps vfio_user_ops = {
    .config_read = op_config_read,
    .config_write = op_config_write,
    .bar_read = op_bar_read,
    .bar_write = op_bar_write,
    .bar_post = op_bar_post,
    .check = op_check,
    .is_broken = op_is_broken,
    .irqs_enable = op_irqs_enable,
    .irq_take = op_irq_take,
    .irq_wait = op_irq_wait,
};

/* --- life --- */

VfioUserPci *vfio_user_pci_new(VfioUserClient *client, const VfioUserPciOptions *options,
                               GError **errp)
{
    VfioUserPci *pci = g_new0(VfioUserPci, 1);
    pci->client = client;
    if (options) {
        pci->options = *options;
    }
    pthread_mutex_init(&pci->error_lock, NULL);
    pthread_mutex_init(&pci->reconnect_lock, NULL);
    guest_pci_bus_init_ops(&pci->bus, &vfio_user_ops, pci);
    for (unsigned bar = 0; bar < 6 && !pci->options.no_io_fds; bar++) {
        if (!vfio_user_client_io_fds(client, bar, &pci->io_fds[bar], errp)) {
            vfio_user_pci_free(pci);
            return NULL;
        }
    }
    return pci;
}

VfioUserPci *vfio_user_pci_connect(const char *path, GuestRam *ram,
                                   const VfioUserPciOptions *options, GError **errp)
{
    VfioUserClient *client = vfio_user_client_connect(path, errp);
    if (!client) {
        return NULL;
    }
    if (!vfio_user_client_negotiate(client, options ? options->capabilities : NULL, errp) ||
        !share_ram(client, ram, errp)) {
        vfio_user_client_free(client);
        return NULL;
    }
    VfioUserPci *pci = vfio_user_pci_new(client, options, errp);
    if (pci && pci->options.reconnect_ms) {
        pci->path = g_strdup(path);
        pci->ram = ram;
    }
    return pci;
}

void vfio_user_pci_free(VfioUserPci *pci)
{
    if (!pci) {
        return;
    }
    close_irqs(pci);
    for (unsigned bar = 0; bar < 6; bar++) {
        vfio_user_io_fds_clear(&pci->io_fds[bar]);
    }
    vfio_user_client_free(pci->client);
    g_clear_error(&pci->error);
    pthread_mutex_destroy(&pci->error_lock);
    pthread_mutex_destroy(&pci->reconnect_lock);
    g_free(pci->path);
    g_free(pci);
}

GuestPciBus *vfio_user_pci_bus(VfioUserPci *pci)
{
    return &pci->bus;
}

VfioUserClient *vfio_user_pci_client(VfioUserPci *pci)
{
    return pci->client;
}

uint64_t vfio_user_pci_fd_notifications(VfioUserPci *pci)
{
    return __atomic_load_n(&pci->fd_notifications, __ATOMIC_RELAXED);
}

uint64_t vfio_user_pci_message_notifications(VfioUserPci *pci)
{
    return __atomic_load_n(&pci->message_notifications, __ATOMIC_RELAXED);
}
