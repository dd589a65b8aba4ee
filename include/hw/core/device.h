/*
 * Devices and buses (QEMU's qdev).  A device is made, gets its properties, and is realized once;
 * from then on its structure is fixed.  Main thread.
 */
#ifndef HW_CORE_DEVICE_H
#define HW_CORE_DEVICE_H

#include "qom/object.h"

typedef struct DeviceState DeviceState;
typedef struct DeviceClass DeviceClass;
typedef struct BusState BusState;
typedef struct BusClass BusClass;

struct DeviceState {
    Object parent_obj;
    char *id; /* user's id or NULL */
    BusState *parent_bus;
    GPtrArray *child_buses; /* BusState*, owned */
    bool realized;
    bool hotplugged;
    bool pending_deleted_event; /* device_del was asked and the guest has not answered */
    unsigned drain_count;       /* this device's; a parent's drain counts here too */
};

typedef enum DeviceCategory { CATEGORY_NETWORK, CATEGORY_BRIDGE, CATEGORY_MISC } DeviceCategory;

struct DeviceClass {
    ObjectClass parent_class;
    DeviceCategory category;
    const char *bus_type; /* QOM name of the bus it plugs into: "PCI", "virtio-bus"; NULL: none */
    bool user_creatable_device; /* -device; false for sysbus parts of the machine */
    bool hotpluggable;
    const char *fw_name;

    gboolean (*realize)(DeviceState *dev, GError **errp); /* chain up where the parent says so */
    void (*unrealize)(DeviceState *dev);
    void (*reset)(DeviceState *dev);
    /* No more guest memory access or packets until drain_end; nests. */
    void (*drain_begin)(DeviceState *dev);
    void (*drain_end)(DeviceState *dev);
    const void *vmsd; /* migration table; opaque here */
};

struct BusState {
    Object parent_obj;
    DeviceState *owner;
    char *bus_name;     /* "pci.0" */
    GPtrArray *devices; /* DeviceState*, borrowed (the tree owns them) */
};

struct BusClass {
    ObjectClass parent_class;
    unsigned max_devices; /* a bus that has as many is full, another is looked for; 0: no limit */
    /* Any may be NULL.  Checks and reserves a place for @dev; called before realize. */
    gboolean (*plug_check)(BusState *bus, DeviceState *dev, GError **errp);
    /* @dev is realized. */
    void (*plugged)(BusState *bus, DeviceState *dev);
    /* Gives the place back: after unrealize, or when realize failed. */
    void (*unplugged)(BusState *bus, DeviceState *dev);
    /* device_del.  TRUE: the guest was asked, and device_remove() is called when it agrees.
     * FALSE without error: no guest is needed, it is removed at once.  FALSE with error: refused.
     */
    gboolean (*unplug_request)(BusState *bus, DeviceState *dev, GError **errp);
    char *(*device_path)(DeviceState *dev); /* "0000:00:04.0" for migration and logs */
    void (*print_device)(DeviceState *dev, GString *out, int indent); /* info qtree */
};

QOM_DECLARE_TYPE(DeviceState, DeviceClass, device, DEVICE)
#define TYPE_DEVICE (device_get_type())
QOM_DECLARE_TYPE(BusState, BusClass, bus, BUS)
#define TYPE_BUS (bus_get_type())

/*
 * device_add: {"driver": …, "id": …, "bus": …, props…}.  Resolves aliases ("virtio-net"), finds a
 * bus (the named one, else the first of the right type), sets properties, realizes, and puts it
 * under /machine/peripheral or peripheral-anon.  Borrowed on success; nothing is left on failure.
 * NULL without an error: a standby keeps the device back (failover.h).
 */
DeviceState *device_add(json_object *options, GError **errp);
/* Asks the bus for removal; done at once where the bus needs no guest. */
gboolean device_del(const char *id_or_path, GError **errp);
/* The same for a device that is known to be removable: asks the guest, or removes it at once. */
gboolean device_unplug(DeviceState *dev, GError **errp);
DeviceState *device_find(const char *id_or_path, GError **errp);

/*
 * @bus may be NULL for a device that needs none.  A device that is not in the tree yet goes to
 * /machine/unattached, which takes the caller's reference; when realize fails it is taken out and
 * freed again.  A device already in the tree stays there, unrealized, for its owner to unparent.
 */
gboolean device_realize(DeviceState *dev, BusState *bus, GError **errp);
/* Drains it, then devices on its buses first, last plugged first.  No-op if not realized. */
void device_unrealize(DeviceState *dev);
/* Unrealizes, sends DEVICE_DELETED, leaves the tree. */
void device_remove(DeviceState *dev);
void device_reset(DeviceState *dev); /* with its child buses, children first */
/* Nests; includes devices on its buses (a device before them at begin, after them at end). */
void device_drain_begin(DeviceState *dev);
void device_drain_end(DeviceState *dev);
char *device_path(DeviceState *dev);       /* bus path; g_free */
const char *device_name(DeviceState *dev); /* id, else the type name */

/* @owner NULL: a root bus, in /machine/unattached.  @name NULL: "<owner's id>.N", else "<type>.N"
 * in lower case.  Borrowed: it belongs to the tree. */
BusState *bus_new(GType type, DeviceState *owner, const char *name);
BusState *bus_find(const char *name); /* by name or path, first match in tree order */
BusState *bus_find_by_type(const char *qom_name);

/* Aliases of device names and the places where hotplug events are told. */
void device_add_alias(const char *alias, const char *driver);
const char *device_resolve_alias(const char *name);

/* Set by qapi-side code: events of removal (path always, id may be NULL). */
extern void (*device_deleted_hook)(const char *id, const char *path);
/* Resets the whole machine: every device from the tree's root. */
void machine_reset_devices(void);

/* Once the command line's devices are there: from now on device_add is a hotplug. */
void device_set_machine_ready(bool ready);
bool device_machine_is_ready(void);
/* From now on device_add() refuses devices without a migration table. */
void device_set_only_migratable(void);
/* While a migration goes on device_add() and device_del() are refused. */
void device_lock_changes(bool locked);
bool device_changes_are_locked(void);

/* "info qtree"; lines end CR LF. */
void device_print_qtree(GString *out);
/* "-device help": user-creatable types by category. */
char *device_list_help(void);

/* All types of hw/core: device, bus, machine, machine-none, memory back ends, iothread. */
void hw_core_register_types(void);
void device_register_types(void);

#endif
