/*
 * -machine vfio-user: a PCI bus whose devices belong to somebody else's machine.
 *
 * There is no RAM and no CPU here.  A device's interrupts leave by the eventfds that the client of
 * its vfio-user-server gave, its memory is the client's, and its BARs are accessed by messages.
 * A device without a server, or whose server has no client, just waits.
 *
 * Interrupts come from any thread: the table of servers is atomic, and changes while the device is
 * drained.
 */
#include "hw/core/machine.h"
#include "vfio-user-internal.h"

/* The device that owns the bus. */
typedef struct VfioUserHost {
    DeviceState parent_obj;
    PciHost pci;
    PCIBus *bus;
    VfioUserServer *servers[256]; /* by devfn */
} VfioUserHost;

typedef struct VfioUserHostClass {
    DeviceClass parent_class;
} VfioUserHostClass;

typedef struct VfioUserMachine {
    MachineState parent_obj;
} VfioUserMachine;

typedef struct VfioUserMachineClass {
    MachineClass parent_class;
} VfioUserMachineClass;

QOM_DECLARE_TYPE(VfioUserHost, VfioUserHostClass, vfio_user_host, VFIO_USER_HOST)
G_DEFINE_TYPE(VfioUserHost, vfio_user_host, TYPE_DEVICE)
GType vfio_user_machine_get_type(void);
G_DEFINE_TYPE(VfioUserMachine, vfio_user_machine, TYPE_MACHINE)

static VfioUserServer **server_slot(PciHost *pci, PCIDevice *dev)
{
    VfioUserHost *host = (VfioUserHost *)((char *)pci - offsetof(VfioUserHost, pci));

    return &host->servers[dev->devfn & 0xff];
}

static VfioUserServer *server_of(PciHost *pci, PCIDevice *dev)
{
    return __atomic_load_n(server_slot(pci, dev), __ATOMIC_ACQUIRE);
}

static void host_set_irq(PciHost *host, PCIDevice *dev, unsigned pin, bool level)
{
    VfioUserServer *server = server_of(host, dev);

    if (server) {
        vfio_user_intx_level(server, level);
    }
}

static void host_msi_notify(PciHost *host, PCIDevice *dev, unsigned vector, uint64_t addr,
                            uint32_t data)
{
    VfioUserServer *server = server_of(host, dev);

    if (server) {
        vfio_user_irq_trigger(server, VFIO_PCI_MSIX_IRQ_INDEX, vector);
    }
}

static gboolean host_unplug_request(PciHost *host, PCIDevice *dev, GError **errp)
{
    VfioUserServer *server = server_of(host, dev);

    return server && vfio_user_server_unplug(server);
}

static void host_unplugged(PciHost *host, PCIDevice *dev)
{
    VfioUserServer *server = server_of(host, dev);

    if (server) {
        vfio_user_server_device_gone(server);
    }
}

static const PciHostOps host_ops = {
    .set_irq = host_set_irq,
    .msi_notify = host_msi_notify,
    .unplug_request = host_unplug_request,
    .unplugged = host_unplugged,
};

bool vfio_user_host_owns(PCIDevice *dev)
{
    return dev->bus && dev->bus->host->ops == &host_ops;
}

VfioUserServer *vfio_user_host_server(PCIDevice *dev)
{
    return server_of(dev->bus->host, dev);
}

void vfio_user_host_set_server(PCIDevice *dev, VfioUserServer *server)
{
    __atomic_store_n(server_slot(dev->bus->host, dev), server, __ATOMIC_RELEASE);
}

void vfio_user_host_foreach_server(void (*fn)(VfioUserServer *server, void *opaque), void *opaque)
{
    VfioUserHost *host = VFIO_USER_HOST(object_child(OBJECT(current_machine), "pcihost"));

    for (size_t i = 0; i < G_N_ELEMENTS(host->servers); i++) {
        if (host->servers[i]) {
            fn(host->servers[i], opaque);
        }
    }
}

static gboolean host_realize(DeviceState *dev, GError **errp)
{
    VfioUserHost *host = VFIO_USER_HOST(dev);

    host->pci.ops = &host_ops;
    host->pci.memory = memory_map_new(NULL, 0, errp); /* each device gets its client's map */
    host->bus = pci_bus_new(dev, "pci.0", &host->pci, PCI_DEVFN(0, 0));
    return host->pci.memory != NULL;
}

static void host_unrealize(DeviceState *dev)
{
    g_clear_pointer(&VFIO_USER_HOST(dev)->pci.memory, memory_map_unref);
}

static void vfio_user_host_init(VfioUserHost *host) {}

static void vfio_user_host_class_init(VfioUserHostClass *klass)
{
    DeviceClass *dc = (DeviceClass *)klass;

    dc->parent_class.qom_name = "vfio-user-pcihost";
    dc->category = CATEGORY_BRIDGE;
    dc->realize = host_realize;
    dc->unrealize = host_unrealize;
}

static gboolean vfio_user_machine_start(MachineState *machine, GError **errp)
{
    Object *host = object_new(vfio_user_host_get_type());

    object_add_child(OBJECT(machine), "pcihost", host);
    vfio_user_register_migration();
    return device_realize(DEVICE(host), NULL, errp);
}

static void vfio_user_machine_init(VfioUserMachine *machine) {}

static void vfio_user_machine_class_init(VfioUserMachineClass *klass)
{
    MachineClass *mc = (MachineClass *)klass;
    ObjectClass *oc = (ObjectClass *)klass;

    oc->qom_name = "vfio-user-machine";
    mc->name = "vfio-user";
    mc->desc = "PCI devices served to other emulators (-object vfio-user-server)";
    mc->init = vfio_user_machine_start;
    mc->max_cpus = 1;
}

void hw_remote_register_types(void)
{
    qom_register_type(vfio_user_host_get_type());
    qom_register_type(vfio_user_machine_get_type());
    qom_register_type(TYPE_VFIO_USER_SERVER);
    qom_register_type(x_vfio_user_server_get_type());
}
