/*
 * A program that embeds libswnic: the smallest emulator there can be, and a driver in it.
 *
 *     cc -o embed embed.c $(pkg-config --cflags --libs swnic) && ./embed
 *
 * The upper half is what every emulator has to do: give memory, hand over accesses, take
 * interrupts.  The lower half plays the guest, which an emulator does not write: it finds the
 * device, assigns its BARs, brings up one pair of queues (virtio 1.2, sections 4.1 and 5.1), and
 * exchanges a frame with a socket's other end.  Prints what happens; exit status 1 if it did not.
 */
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <swnic/swnic.h>

#define RAM_SIZE   (1 << 20)
#define MMIO_BASE  0xe0000000u /* where our guest puts BARs */
#define MSI_TARGET 0xfee00000u /* and where it wants to be told of interrupts */
#define NO_BAR     UINT64_MAX

/* ---- the emulator ---- */

typedef struct Emulator {
    _Alignas(4096) uint8_t ram[RAM_SIZE]; /* guest physical 0 */
    SwnicDevice *nic;
    uint64_t bars[SWNIC_BARS]; /* guest address, NO_BAR: not decoding */
    unsigned interrupts[8];    /* by the data of the message */
} Emulator;

static void fail(const char *what)
{
    fprintf(stderr, "embed: %s\n", what);
    exit(1);
}

static void check(bool ok, GError *error)
{
    if (!ok) {
        fail(error->message);
    }
}

/* What a local APIC would get.  With an iothread this comes from its thread: a real emulator passes
 * it on to its interrupt controller under a lock of its own. */
static void nic_send_msi(void *opaque, unsigned vector, uint64_t addr, uint32_t data)
{
    Emulator *emulator = opaque;

    if (addr == MSI_TARGET && data < G_N_ELEMENTS(emulator->interrupts)) {
        emulator->interrupts[data]++;
    }
}

static void nic_bar_mapped(void *opaque, unsigned bar, uint64_t addr)
{
    ((Emulator *)opaque)->bars[bar] = addr;
}

static void nic_bar_unmapped(void *opaque, unsigned bar, uint64_t addr)
{
    ((Emulator *)opaque)->bars[bar] = NO_BAR;
}

static const SwnicDeviceOps nic_ops = {
    .version = SWNIC_DEVICE_OPS_VERSION,
    .send_msi = nic_send_msi,
    .bar_mapped = nic_bar_mapped,
    .bar_unmapped = nic_bar_unmapped,
};

/* Which BAR of the NIC answers at guest address @addr; *offset within it. */
static int find_bar(Emulator *emulator, uint64_t addr, uint64_t *offset)
{
    for (unsigned bar = 0; bar < SWNIC_BARS; bar++) {
        SwnicBarInfo info;

        if (emulator->bars[bar] != NO_BAR && swnic_bar_info(emulator->nic, bar, &info) &&
            !(info.flags & SWNIC_BAR_IO) && addr - emulator->bars[bar] < info.size) {
            *offset = addr - emulator->bars[bar];
            return (int)bar;
        }
    }
    fail("the guest accessed memory where nothing is");
    return -1;
}

/* What the CPU does with a load or store outside RAM. */
static uint64_t mmio_read(Emulator *emulator, uint64_t addr, unsigned size)
{
    uint64_t offset;
    int bar = find_bar(emulator, addr, &offset);

    return swnic_bar_read(emulator->nic, (unsigned)bar, offset, size);
}

static void mmio_write(Emulator *emulator, uint64_t addr, uint64_t value, unsigned size)
{
    uint64_t offset;
    int bar = find_bar(emulator, addr, &offset);

    swnic_bar_write(emulator->nic, (unsigned)bar, offset, value, size);
}

static Swnic *emulator_start(Emulator *emulator, int network_fd)
{
    const SwnicMemory ram = {.size = RAM_SIZE, .host = emulator->ram, .fd = -1};
    g_autofree char *netdev =
        g_strdup_printf("dgram,id=net0,local.type=fd,local.str=%d", network_fd);
    GError *error = NULL;
    Swnic *swnic = swnic_new(NULL, &error);

    check(swnic != NULL, error);
    for (unsigned bar = 0; bar < SWNIC_BARS; bar++) {
        emulator->bars[bar] = NO_BAR;
    }
    check(swnic_set_memory(swnic, &ram, 1, &error), error);
    check(swnic_netdev_add(swnic, netdev, &error), error);
    emulator->nic = swnic_device_add(
        swnic, "virtio-net-pci,netdev=net0,id=nic0,mac=52:54:00:00:00:01,disable-legacy=on",
        &nic_ops, emulator, &error);
    check(emulator->nic != NULL, error);
    swnic_start(swnic);
    return swnic;
}

static gboolean took_too_long(gpointer opaque)
{
    fail("nothing happened for ten seconds");
    return G_SOURCE_REMOVE;
}

/* The main loop of this emulator: until the guest gets its interrupt. */
static void run_until_interrupt(Emulator *emulator, unsigned number)
{
    guint watchdog = g_timeout_add_seconds(10, took_too_long, NULL);

    while (!emulator->interrupts[number]) {
        g_main_context_iteration(NULL, TRUE);
    }
    g_source_remove(watchdog);
    emulator->interrupts[number] = 0;
}

/* ---- the guest ---- */

enum { RX_QUEUE, TX_QUEUE, QUEUES };
enum { RX_VECTOR = 1, TX_VECTOR = 2 };

#define RING_SIZE   8u
#define RING_BYTES  4096u
#define RINGS_AT    0x10000u
#define RX_BUFFER   0x20000u
#define TX_BUFFER   0x30000u
#define BUFFER_SIZE 2048u

typedef struct Guest {
    Emulator *emulator;
    uint64_t common, notify, device, msix_table; /* guest addresses */
    uint32_t notify_multiplier;
    unsigned msix_cap;
    struct vring rings[QUEUES];
    uint16_t used_seen[QUEUES];
} Guest;

static uint32_t config_read(Guest *guest, unsigned offset, unsigned size)
{
    return swnic_config_read(guest->emulator->nic, offset, size);
}

static void config_write(Guest *guest, unsigned offset, uint32_t value, unsigned size)
{
    swnic_config_write(guest->emulator->nic, offset, value, size);
}

/* Sizes the memory BARs, gives them addresses one after the other, and lets them decode. */
static void assign_bars(Guest *guest)
{
    uint64_t next = MMIO_BASE;

    for (unsigned bar = 0; bar < 6; bar++) {
        unsigned offset = PCI_BASE_ADDRESS_0 + 4 * bar;

        config_write(guest, offset, 0xffffffff, 4);
        uint32_t mask = config_read(guest, offset, 4);
        if (!mask || mask & PCI_BASE_ADDRESS_SPACE_IO) {
            continue;
        }
        uint64_t size = (~(mask & PCI_BASE_ADDRESS_MEM_MASK) & 0xffffffff) + 1;
        next = (next + size - 1) & ~(size - 1);
        config_write(guest, offset, (uint32_t)next, 4);
        next += size;
        if (mask & PCI_BASE_ADDRESS_MEM_TYPE_64) {
            config_write(guest, offset + 4, 0, 4);
            bar++;
        }
    }
    config_write(guest, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER, 2);
}

static uint64_t bar_address(Guest *guest, unsigned bar)
{
    return config_read(guest, PCI_BASE_ADDRESS_0 + 4 * bar, 4) & PCI_BASE_ADDRESS_MEM_MASK;
}

/* virtio 1.2, 4.1.4: the vendor capabilities say where in which BAR a structure is. */
static void find_structures(Guest *guest)
{
    for (unsigned cap = config_read(guest, PCI_CAPABILITY_LIST, 1); cap;
         cap = config_read(guest, cap + PCI_CAP_LIST_NEXT, 1)) {
        unsigned id = config_read(guest, cap, 1);
        if (id == PCI_CAP_ID_MSIX) {
            uint32_t table = config_read(guest, cap + PCI_MSIX_TABLE, 4);
            guest->msix_cap = cap;
            guest->msix_table =
                bar_address(guest, table & PCI_MSIX_TABLE_BIR) + (table & PCI_MSIX_TABLE_OFFSET);
        }
        if (id != PCI_CAP_ID_VNDR) {
            continue;
        }
        unsigned bar = config_read(guest, cap + offsetof(struct virtio_pci_cap, bar), 1);
        uint64_t at = config_read(guest, cap + offsetof(struct virtio_pci_cap, offset), 4);
        switch (config_read(guest, cap + offsetof(struct virtio_pci_cap, cfg_type), 1)) {
        case VIRTIO_PCI_CAP_COMMON_CFG:
            guest->common = bar_address(guest, bar) + at;
            break;
        case VIRTIO_PCI_CAP_NOTIFY_CFG:
            guest->notify = bar_address(guest, bar) + at;
            guest->notify_multiplier = config_read(
                guest, cap + offsetof(struct virtio_pci_notify_cap, notify_off_multiplier), 4);
            break;
        case VIRTIO_PCI_CAP_DEVICE_CFG:
            guest->device = bar_address(guest, bar) + at;
            break;
        }
    }
    if (!guest->common || !guest->notify || !guest->device || !guest->msix_table) {
        fail("the device lacks a structure");
    }
}

#define COMMON(member) (guest->common + offsetof(struct virtio_pci_common_cfg, member))

/* Vector n: a message with data n. */
static void enable_msix(Guest *guest, unsigned vectors)
{
    for (unsigned n = 0; n < vectors; n++) {
        uint64_t entry = guest->msix_table + PCI_MSIX_ENTRY_SIZE * n;

        mmio_write(guest->emulator, entry + PCI_MSIX_ENTRY_LOWER_ADDR, MSI_TARGET, 4);
        mmio_write(guest->emulator, entry + PCI_MSIX_ENTRY_UPPER_ADDR, 0, 4);
        mmio_write(guest->emulator, entry + PCI_MSIX_ENTRY_DATA, n, 4);
        mmio_write(guest->emulator, entry + PCI_MSIX_ENTRY_VECTOR_CTRL, 0, 4);
    }
    config_write(guest, guest->msix_cap + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE, 2);
}

static void set_status(Guest *guest, unsigned bits)
{
    unsigned status = mmio_read(guest->emulator, COMMON(device_status), 1) | bits;

    mmio_write(guest->emulator, COMMON(device_status), status, 1);
    if ((mmio_read(guest->emulator, COMMON(device_status), 1) & status) != status) {
        fail("the device refused a status bit");
    }
}

static void start_queue(Guest *guest, unsigned queue, unsigned vector)
{
    Emulator *emulator = guest->emulator;
    struct vring *ring = &guest->rings[queue];
    uint64_t at = RINGS_AT + RING_BYTES * queue;

    vring_init(ring, RING_SIZE, emulator->ram + at, 64);
    mmio_write(emulator, COMMON(queue_select), queue, 2);
    mmio_write(emulator, COMMON(queue_size), RING_SIZE, 2);
    mmio_write(emulator, COMMON(queue_msix_vector), vector, 2);
    mmio_write(emulator, COMMON(queue_desc_lo), at, 4);
    mmio_write(emulator, COMMON(queue_avail_lo),
               at + ((uint8_t *)ring->avail - (uint8_t *)ring->desc), 4);
    mmio_write(emulator, COMMON(queue_used_lo),
               at + ((uint8_t *)ring->used - (uint8_t *)ring->desc), 4);
    mmio_write(emulator, COMMON(queue_enable), 1, 2);
}

/* virtio 1.2, 3.1.1, with no feature but VIRTIO_F_VERSION_1. */
static void start_driver(Guest *guest)
{
    assign_bars(guest);
    find_structures(guest);
    enable_msix(guest, 3);
    mmio_write(guest->emulator, COMMON(device_status), 0, 1);
    set_status(guest, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
    mmio_write(guest->emulator, COMMON(guest_feature_select), VIRTIO_F_VERSION_1 / 32, 4);
    mmio_write(guest->emulator, COMMON(guest_feature), 1u << VIRTIO_F_VERSION_1 % 32, 4);
    set_status(guest, VIRTIO_CONFIG_S_FEATURES_OK);
    start_queue(guest, RX_QUEUE, RX_VECTOR);
    start_queue(guest, TX_QUEUE, TX_VECTOR);
    set_status(guest, VIRTIO_CONFIG_S_DRIVER_OK);
}

/* Publishes one buffer and notifies; virtio 1.2, 2.7.13. */
static void queue_add(Guest *guest, unsigned queue, uint64_t addr, uint32_t len, uint16_t flags)
{
    struct vring *ring = &guest->rings[queue];

    ring->desc[0] = (struct vring_desc){.addr = addr, .len = len, .flags = flags};
    ring->avail->ring[ring->avail->idx % RING_SIZE] = 0;
    __atomic_store_n(&ring->avail->idx, (uint16_t)(ring->avail->idx + 1), __ATOMIC_RELEASE);
    mmio_write(guest->emulator, COMMON(queue_select), queue, 2);
    uint64_t offset = mmio_read(guest->emulator, COMMON(queue_notify_off), 2);
    mmio_write(guest->emulator, guest->notify + offset * guest->notify_multiplier, queue, 2);
}

/* Bytes that the device wrote into the buffer it has used. */
static uint32_t queue_take(Guest *guest, unsigned queue)
{
    struct vring *ring = &guest->rings[queue];
    uint16_t seen = guest->used_seen[queue]++;

    if (__atomic_load_n(&ring->used->idx, __ATOMIC_ACQUIRE) != (uint16_t)(seen + 1)) {
        fail("an interrupt, and no buffer was used");
    }
    return ring->used->ring[seen % RING_SIZE].len;
}

/* ---- the show ---- */

#define HEADER_SIZE sizeof(struct virtio_net_hdr_v1)
#define FRAME_SIZE  64u

static void make_frame(uint8_t *frame, uint8_t from, uint8_t to)
{
    const uint8_t head[] = {0x52, 0x54, 0, 0, 0, to, 0x52, 0x54, 0, 0, 0, from, 0x88, 0xb5};

    memset(frame, from, FRAME_SIZE);
    memcpy(frame, head, sizeof(head));
}

static void show_transmit(Guest *guest, int network)
{
    uint8_t frame[FRAME_SIZE], got[FRAME_SIZE + 1];

    make_frame(frame, 1, 2);
    memset(guest->emulator->ram + TX_BUFFER, 0, HEADER_SIZE);
    memcpy(guest->emulator->ram + TX_BUFFER + HEADER_SIZE, frame, FRAME_SIZE);
    queue_add(guest, TX_QUEUE, TX_BUFFER, HEADER_SIZE + FRAME_SIZE, 0);
    run_until_interrupt(guest->emulator, TX_VECTOR);
    queue_take(guest, TX_QUEUE);
    ssize_t n = recv(network, got, sizeof(got), MSG_DONTWAIT);
    if (n != FRAME_SIZE || memcmp(got, frame, FRAME_SIZE)) {
        fail("the network got another frame than the guest sent");
    }
    printf("guest -> network: %u bytes\n", FRAME_SIZE);
}

static void show_receive(Guest *guest, int network)
{
    uint8_t frame[FRAME_SIZE];

    make_frame(frame, 2, 1);
    queue_add(guest, RX_QUEUE, RX_BUFFER, BUFFER_SIZE, VRING_DESC_F_WRITE);
    if (send(network, frame, FRAME_SIZE, 0) != FRAME_SIZE) {
        fail("cannot send");
    }
    run_until_interrupt(guest->emulator, RX_VECTOR);
    if (queue_take(guest, RX_QUEUE) != HEADER_SIZE + FRAME_SIZE ||
        memcmp(guest->emulator->ram + RX_BUFFER + HEADER_SIZE, frame, FRAME_SIZE)) {
        fail("the guest got another frame than the network sent");
    }
    printf("network -> guest: %u bytes\n", FRAME_SIZE);
}

int main(void)
{
    static Emulator emulator;
    Guest guest = {.emulator = &emulator};
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets)) {
        fail("no sockets");
    }
    Swnic *swnic = emulator_start(&emulator, sockets[0]);
    g_autofree char *mac = swnic_device_get(emulator.nic, "mac", NULL);
    printf("libswnic %s: %04x:%04x, MAC %s\n", swnic_version(),
           swnic_config_read(emulator.nic, PCI_VENDOR_ID, 2),
           swnic_config_read(emulator.nic, PCI_DEVICE_ID, 2), mac);
    start_driver(&guest);
    show_transmit(&guest, sockets[1]);
    show_receive(&guest, sockets[1]);
    swnic_free(swnic);
    close(sockets[1]);
    return 0;
}
