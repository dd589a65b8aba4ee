/*
 * PCI devices: configuration space, BARs, capabilities, INTx and MSI-X.
 *
 * A device knows nothing of the machine.  What it needs from outside (where its BARs are heard,
 * how an interrupt leaves) goes through PciHost, the small interface that the PC host bridges and
 * `-machine vfio-user` implement.  Main thread, except where it says any.
 */
#ifndef HW_PCI_PCI_H
#define HW_PCI_PCI_H

#include <linux/pci_regs.h>
#include <pthread.h>

#include "hw/core/device.h"
#include "hw/core/io.h"
#include "hw/core/memory-map.h"

#define PCI_CONFIG_SIZE 256
#define PCIE_CONFIG_SIZE 4096
#define PCI_NUM_BARS 7 /* six and the expansion ROM */
#define PCI_DEVFN(slot, func) ((((slot) & 0x1f) << 3) | ((func) & 7))
#define PCI_SLOT(devfn) (((devfn) >> 3) & 0x1f)
#define PCI_FUNC(devfn) ((devfn) & 7)

typedef struct PCIDevice PCIDevice;
typedef struct PCIDeviceClass PCIDeviceClass;
typedef struct PCIBus PCIBus;
typedef struct PCIBusClass PCIBusClass;
typedef struct PciHost PciHost;

/* What a PCI device asks of the emulator it is plugged into. */
typedef struct PciHostOps {
    /* Level of INTx pin A..D (0..3).  Any thread, and so is msi_notify. */
    void (*set_irq)(PciHost *host, PCIDevice *dev, unsigned pin, bool level);
    /* An MSI-X vector fires.  @addr and @data as the guest wrote them; a host that keeps the
     * table itself (vfio-user) goes by @vector. */
    void (*msi_notify)(PciHost *host, PCIDevice *dev, unsigned vector, uint64_t addr,
                       uint32_t data);
    /* A BAR begins (or, @enabled false, ceases) to decode at @addr.  NULL: accesses come by BAR. */
    void (*bar_mapped)(PciHost *host, PCIDevice *dev, unsigned bar, uint64_t addr, bool enabled);
    /* True if the host consults the device's own MSI-X mask bits (not on vfio-user). */
    bool msix_table_is_ours;
    /* Hotplug, all optional.  plugged: @dev is realized.
     * unplug_request: ask the guest to let go, device_remove() follows later; NULL: removed at
     * once.  unplugged: the place is free again. */
    void (*plugged)(PciHost *host, PCIDevice *dev);
    gboolean (*unplug_request)(PciHost *host, PCIDevice *dev, GError **errp);
    void (*unplugged)(PciHost *host, PCIDevice *dev);
} PciHostOps;

struct PciHost {
    const PciHostOps *ops;
    DmaSpaceOps dma_ops;   /* what a bus master reaches outside RAM */
    void *dma_opaque;
    MemoryMap *memory;     /* RAM that bus masters see */
};

typedef struct PciBar {
    IoRegion *region;      /* NULL: not implemented */
    uint8_t type;          /* PCI_BASE_ADDRESS_SPACE_IO, _MEM_TYPE_64, _MEM_PREFETCH bits */
    uint64_t size;         /* a power of two */
    uint64_t mapped_at;    /* UINT64_MAX: not decoding */
} PciBar;

typedef struct MsixState {
    uint8_t *table;        /* PCI_MSIX_ENTRY_SIZE a vector */
    uint8_t *pba;
    unsigned vectors;      /* 0: no MSI-X */
    unsigned *users;       /* a vector used by nobody loses its pending bit */
    uint8_t cap;
    bool enabled, function_masked; /* atomic copies of the control word's bits */
    IoRegion bar, table_region, pba_region;
} MsixState;

struct PCIDevice {
    DeviceState parent_obj;
    /* properties */
    int32_t devfn;         /* -1: first free */
    bool multifunction;
    char *romfile;
    uint32_t romsize, rombar;
    uint32_t acpi_index;
    char *failover_pair_id;
    /* state */
    PCIBus *bus;           /* NULL until plugged */
    unsigned config_size;
    uint8_t *config;       /* little-endian bytes */
    uint8_t *wmask;        /* bits that the guest can write */
    uint8_t *w1cmask;      /* bits cleared by writing 1 */
    uint8_t *cmask;        /* bits that must match when a saved state is loaded */
    PciBar bars[PCI_NUM_BARS];
    MsixState msix;
    DmaSpace dma;          /* bus-master view: disabled while Bus Master Enable is off */
    pthread_mutex_t irq_lock; /* INTx level and MSI-X table: interrupts come from any thread */
    bool irq_level;        /* what the device wants */
    bool irq_asserted;     /* what the host was told: the level, unless Interrupt Disable is set */
    IoRegion rom_region;
    uint8_t *rom;          /* contents of romfile, or NULL */
};

struct PCIDeviceClass {
    DeviceClass parent_class;
    /* PCIDevice's realize makes configuration space from these, then calls @realize. */
    gboolean (*realize)(PCIDevice *dev, GError **errp);
    void (*exit)(PCIDevice *dev);
    /* Before a read of configuration space, after a write.  May be NULL. */
    void (*config_read)(PCIDevice *dev, unsigned offset, unsigned size);
    void (*config_written)(PCIDevice *dev, unsigned offset, unsigned size);
    uint16_t vendor_id, device_id, class_id, subsystem_vendor_id, subsystem_id;
    uint8_t revision;
    bool is_bridge;
    bool is_express; /* behind an Express port it has 4 KiB of configuration space */
};

/* Hotplug of one bus: what its bridge has to say.  NULL members: as the host's. */
typedef struct PciBusHotplugOps {
    gboolean (*plug_check)(PCIBus *bus, PCIDevice *dev, GError **errp);
    void (*plugged)(PCIBus *bus, PCIDevice *dev);
    gboolean (*unplug_request)(PCIBus *bus, PCIDevice *dev, GError **errp);
    void (*unplugged)(PCIBus *bus, PCIDevice *dev);
} PciBusHotplugOps;

struct PCIBus {
    BusState parent_obj;
    PciHost *host;
    PCIDevice *devices[256]; /* by devfn */
    unsigned devfn_min;
    uint8_t number;  /* behind a bridge: as firmware numbered it, 0 before */
    bool express;    /* behind an Express port: one slot, and no I/O ports to give away */
    bool no_hotplug; /* devices come and go with the machine only */
    const PciBusHotplugOps *hotplug; /* NULL: the host's */
};
struct PCIBusClass {
    BusClass parent_class;
};

QOM_DECLARE_TYPE(PCIDevice, PCIDeviceClass, pci_device, PCI_DEVICE)
#define TYPE_PCI_DEVICE (pci_device_get_type())
QOM_DECLARE_TYPE(PCIBus, PCIBusClass, pci_bus, PCI_BUS)
#define TYPE_PCI_BUS (pci_bus_get_type())

extern const PropertyInfo prop_info_pci_devfn; /* "04.0", "0x4", 32 (JSON: a devfn) */

PCIBus *pci_bus_new(DeviceState *owner, const char *name, PciHost *host, unsigned devfn_min);
/* New RAM map for every device of the bus. */
void pci_host_set_memory(PciHost *host, PCIBus *bus, MemoryMap *map);

/* Configuration space.  @size 1, 2, 4; reads past the end are all ones. */
uint32_t pci_config_read(PCIDevice *dev, unsigned offset, unsigned size);
void pci_config_write(PCIDevice *dev, unsigned offset, uint32_t value, unsigned size);

/* A bridge above changed: what each device of @bus decodes and may reach is derived again. */
void pci_bus_routes_changed(PCIBus *bus);
/* The bridge that @bus is behind, or NULL. */
PCIDevice *pci_bus_bridge(const PCIBus *bus);

/* config[] was replaced whole (a saved state): derive everything that hangs on it again. */
void pci_config_loaded(PCIDevice *dev);

/* While realizing: BAR @n is @region; @type from PCI_BASE_ADDRESS_*.  Size: region->size. */
void pci_register_bar(PCIDevice *dev, unsigned n, uint8_t type, IoRegion *region);
/* Capability at a fixed @offset (never 0); zeroed, linked in front of the list as hardware lists
 * are read: the last added is the first found. Returns its address in config[]. */
uint8_t *pci_add_capability(PCIDevice *dev, uint8_t id, unsigned offset, unsigned size);

static inline uint16_t pci_get_word(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t pci_get_long(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void pci_set_word(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void pci_set_long(uint8_t *p, uint32_t v)
{
    pci_set_word(p, (uint16_t)v);
    pci_set_word(p + 2, (uint16_t)(v >> 16));
}

/* INTx of the device's pin; honours Interrupt Disable.  Any thread. */
void pci_set_irq(PCIDevice *dev, bool level);

/* "00:04.0": bus, slot and function of a plugged device, for messages; g_free. */
char *pci_device_address(const PCIDevice *dev);

/* MSI-X in a 4 KiB BAR of its own (table at 0, PBA at 0x800).  @vectors 1..2048. */
gboolean msix_init(PCIDevice *dev, unsigned vectors, unsigned bar, unsigned cap_offset,
                   GError **errp);
void msix_uninit(PCIDevice *dev);
void msix_reset(PCIDevice *dev);
bool msix_enabled(const PCIDevice *dev);  /* enabled and present */
bool msix_present(const PCIDevice *dev);
/* Fires, or sets the pending bit when masked.  Any thread. */
void msix_notify(PCIDevice *dev, unsigned vector);
bool msix_vector_use(PCIDevice *dev, unsigned vector); /* false: no such vector */
void msix_vector_unuse(PCIDevice *dev, unsigned vector);
/* After the control word changed (pci.c): takes over Enable and Function Mask, fires what waits. */
void msix_control_written(PCIDevice *dev);

void pci_bus_register_types(void);
/* Registers the types of hw/pci. */
void hw_pci_register_types(void);

#endif
