/*
 * PCI as a guest's firmware and drivers see it.
 *
 * How the emulator is reached is an ops table: over a QtestClient (here) or as the client of a
 * vfio-user server (vfio-user-pci.h).  Over qtest, configuration space is at ports 0xCF8 and
 * 0xCFC, BARs are placed in the pc machine's windows (memory from 0xE0000000, I/O from 0xC000),
 * MSI-X messages are aimed at any address the caller likes, RAM included.  No bridges are
 * configured: devices behind one can be opened by bus number once the caller has set the bridge
 * up.  Failures are sticky errors of the bus, unless a function has a GError of its own.
 */
#ifndef GUEST_PCI_H
#define GUEST_PCI_H

#include "guest/qtest-client.h"

#define GUEST_PCI_MMIO_BASE 0xE0000000u
#define GUEST_PCI_MMIO_END  0xFEC00000u
#define GUEST_PCI_IO_BASE   0xC000u
#define GUEST_PCI_IO_END    0x10000u

typedef struct GuestPciBus GuestPciBus;
typedef struct GuestPciDevice GuestPciDevice;

/* How the emulator is reached. */
typedef struct GuestPciOps {
    uint32_t (*config_read)(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                            uint8_t offset);
    void (*config_write)(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                         uint8_t offset, uint32_t value);
    uint64_t (*bar_read)(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset);
    void (*bar_write)(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                      uint64_t value);
    /* Returns before the device has seen it. */
    void (*bar_post)(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                     uint64_t value);
    bool (*check)(GuestPciBus *bus, GError **errp);
    bool (*is_broken)(GuestPciBus *bus);
    /* Interrupts that do not come as messages in RAM; all NULL: they do.  @wait sleeps until
     * vector @vector fired, at most @timeout_us. */
    bool (*irqs_enable)(GuestPciDevice *device, unsigned count, GError **errp);
    bool (*irq_take)(GuestPciDevice *device, unsigned vector);
    void (*irq_wait)(GuestPciDevice *device, unsigned vector, unsigned timeout_us);
} GuestPciOps;

struct GuestPciBus {
    const GuestPciOps *ops;
    void *opaque;       /* of the ops */
    QtestClient *qtest; /* NULL: reached in another way */
    uint32_t next_mmio; /* first free address of each window */
    uint32_t next_io;
};

typedef struct GuestPciBar {
    uint64_t addr; /* where it was placed; 0: not there */
    uint64_t size; /* bytes; 0: not implemented, or the upper half of a 64-bit BAR */
    bool is_io, is_64bit, is_prefetchable;
} GuestPciBar;

struct GuestPciDevice {
    GuestPciBus *bus;
    uint8_t bus_number, devfn;
    uint16_t vendor_id, device_id, subsystem_vendor_id, subsystem_id;
    uint8_t revision;
    GuestPciBar bars[6];
    uint8_t msix_cap; /* 0: no MSI-X */
    unsigned msix_vectors;
    uint8_t msix_table_bar, msix_pba_bar;
    uint32_t msix_table_offset, msix_pba_offset;
};

void guest_pci_bus_init(GuestPciBus *bus, QtestClient *qtest);
void guest_pci_bus_init_ops(GuestPciBus *bus, const GuestPciOps *ops, void *opaque);
/* True when nothing failed since the last check; else moves the sticky error out. */
bool guest_pci_check(GuestPciDevice *device, GError **errp);
/* True after an error that no later access survives. */
bool guest_pci_is_broken(GuestPciDevice *device);

/* Raw configuration space: @width 1, 2 or 4, @offset below 256. */
uint32_t guest_pci_bus_read(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                            uint8_t offset);
void guest_pci_bus_write(GuestPciBus *bus, uint8_t bus_number, uint8_t devfn, unsigned width,
                         uint8_t offset, uint32_t value);

/* The device at @devfn of bus 0, or NULL with error when the slot is empty; g_free it. */
GuestPciDevice *guest_pci_device_open(GuestPciBus *bus, uint8_t devfn, GError **errp);
/* The @nth (from 0) device of bus 0 for which @match says yes. */
typedef bool GuestPciMatch(const GuestPciDevice *device, void *opaque);
GuestPciDevice *guest_pci_device_find(GuestPciBus *bus, GuestPciMatch *match, void *opaque,
                                      unsigned nth, GError **errp);
/* Matches virtio-net in both its ids, 1af4:1000 and 1af4:1041. */
bool guest_pci_match_virtio_net(const GuestPciDevice *device, void *opaque);

uint32_t guest_pci_config_read(GuestPciDevice *device, unsigned width, uint8_t offset);
void guest_pci_config_write(GuestPciDevice *device, unsigned width, uint8_t offset, uint32_t value);
/* Offset of the first capability @id after offset @after (0: from the start); 0: none. */
uint8_t guest_pci_find_capability(GuestPciDevice *device, uint8_t id, uint8_t after);

/* Sizes all BARs, places them, and turns on I/O, memory and bus mastering. */
bool guest_pci_device_enable(GuestPciDevice *device, GError **errp);
/* Bus Master Enable alone. */
void guest_pci_set_bus_master(GuestPciDevice *device, bool on);

/* One access to a BAR; I/O BARs up to 4 bytes wide. */
uint64_t guest_pci_bar_read(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset);
void guest_pci_bar_write(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                         uint64_t value);

/* The same without waiting for the device: a notification. */
void guest_pci_bar_post(GuestPciDevice *device, unsigned bar, unsigned width, uint64_t offset,
                        uint64_t value);

/* MSI-X: aim vector @vector at @addr with @data and unmask it; mask it; the function's switch. */
bool guest_pci_msix_set_vector(GuestPciDevice *device, unsigned vector, uint64_t addr,
                               uint32_t data, GError **errp);
void guest_pci_msix_set_mask(GuestPciDevice *device, unsigned vector, bool masked);
bool guest_pci_msix_is_pending(GuestPciDevice *device, unsigned vector);
void guest_pci_msix_set_enabled(GuestPciDevice *device, bool on);
void guest_pci_msix_set_function_mask(GuestPciDevice *device, bool on);

#endif
