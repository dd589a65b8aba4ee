/*
 * GuestPciOps over vfio-user: see vfio-user-pci.h.
 *
 * Errors of accesses are sticky, as those of a QtestClient are: the first is kept, and later
 * accesses do nothing.
 */
#include "guest/vfio-user-pci.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_VECTORS 64
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

static uint64_t read_region(VfioUserPci *pci, uint32_t region, uint64_t offset, unsigned width)
{
    uint64_t value = 0;
    GError *error = NULL;
    if (!vfio_user_client_read(pci->client, region, offset, &value, width, &error)) {
        keep_error(pci, error);
        return 0;
    }
    return value;
}

static void write_region(VfioUserPci *pci, uint32_t region, uint64_t offset, unsigned width,
                         uint64_t value)
{
    GError *error = NULL;
    if (!vfio_user_client_write(pci->client, region, offset, &value, width, &error)) {
        keep_error(pci, error);
    }
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
    GError *error = NULL;
    if (fd >= 0) {
        __atomic_fetch_add(&pci->fd_notifications, 1, __ATOMIC_RELAXED);
        if (write(fd, &one, sizeof(one)) != sizeof(one) && errno != EAGAIN) {
            keep_error(pci, g_error_new(G_FILE_ERROR, G_FILE_ERROR_FAILED,
                                        "notification eventfd: %s", g_strerror(errno)));
        }
        return;
    }
    __atomic_fetch_add(&pci->message_notifications, 1, __ATOMIC_RELAXED);
    if (!vfio_user_client_post_write(pci->client, bar, offset, &value, width, &error)) {
        keep_error(pci, error);
    }
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
    return vfio_user_client_is_broken(pci_of(bus)->client);
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
        /* One a message: a server need not take more. */
        if (!vfio_user_client_set_irqs(pci->client, VFIO_PCI_MSIX_IRQ_INDEX,
                                       VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, i,
                                       1, NULL, &pci->irq_fds[i], 1, errp)) {
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
    struct pollfd pfd = {.fd = vector < pci->irqs ? pci->irq_fds[vector] : -1, .events = POLLIN};
    struct timespec timeout = {timeout_us / 1000000, timeout_us % 1000000 * 1000l};
    ppoll(&pfd, 1, &timeout, NULL);
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
    pthread_mutex_init(&pci->error_lock, NULL);
    guest_pci_bus_init_ops(&pci->bus, &vfio_user_ops, pci);
    for (unsigned bar = 0; bar < 6 && !(options && options->no_io_fds); bar++) {
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
        !vfio_user_client_map(client, 0, ram->size, VFIO_USER_DMA_READABLE | VFIO_USER_DMA_WRITABLE,
                              ram->fd, 0, errp)) {
        vfio_user_client_free(client);
        return NULL;
    }
    return vfio_user_pci_new(client, options, errp);
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
