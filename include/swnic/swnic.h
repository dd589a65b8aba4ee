/*
 * libswnic: a virtio-net-pci device for an emulator of your own.
 *
 * The emulator gives guest memory, hands configuration and BAR accesses of its guest to the device,
 * and takes interrupts from callbacks.  Devices, network back ends and objects are described by the
 * same texts as on QEMU's command line, and known by the same names:
 *
 *     swnic_new() → swnic_set_memory() → swnic_netdev_add() → swnic_device_add() → swnic_start()
 *
 * Everything happens in sources of the default GMainContext: the emulator runs it, by a
 * GMainLoop or by g_main_context_iteration(), in the thread that called swnic_new().
 *
 * Threads.  That thread is "the main thread", and every function here is to be called from it, and
 * not from within a callback unless the callback's description says otherwise.  A device whose
 * queues run in an iothread object calls its interrupt callbacks from that thread too.
 *
 * One instance a process.  The names of devices and back ends, the virtual clock, the run state
 * and the log are the process's; so is the machine that swnic_new() makes.  A second swnic_new()
 * before swnic_free() is an error.  An instance holds as many devices as you like.  Types are
 * registered with GObject under plain names (Object, DeviceState, PCIDevice, …), which no other
 * part of the process may use, and the library stays loaded once it was.
 *
 * Errors.  A function that can fail takes a GError **, which may be NULL.  The message is one line
 * for people: which option, which value, what is allowed.  Codes and domain are not an interface.
 * A guest's mistakes are no errors: the device answers them as hardware would, and counts them.
 * Calls that are mistakes of the program's (a NULL where none is allowed, a device after it was
 * removed) are not answered.
 *
 * What is not here: QMP and HMP, migration, and PCI topology (each device is alone, its emulator
 * says where it sits).  Warnings go to standard error.  A write to a connection that is
 * gone does not raise SIGPIPE, except through character devices that are pipes.
 *
 * Compatibility.  Structures that the program fills begin with a version, the one that it was
 * compiled with; a later library takes older ones.
 */
#ifndef SWNIC_SWNIC_H
#define SWNIC_SWNIC_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWNIC_API __attribute__((visibility("default")))

typedef struct Swnic Swnic;
typedef struct SwnicDevice SwnicDevice;

/* "0.1.0"; static.  Any thread, any time. */
SWNIC_API const char *swnic_version(void);

/* --- the instance --- */

#define SWNIC_CONFIG_VERSION 1

typedef struct SwnicConfig {
    uint32_t version; /* SWNIC_CONFIG_VERSION */
    /*
     * Something that QMP reports as an event: @name ("NIC_RX_FILTER_CHANGED",
     * "NETDEV_STREAM_CONNECTED", …), and all of it as a JSON object.  Both are the library's and
     * gone when this returns.  Main thread.  May be NULL.
     */
    void (*event)(void *opaque, const char *name, const char *json);
    void *opaque; /* for event */
} SwnicConfig;

/*
 * Makes the instance, stopped, without memory and devices.  @config (NULL: all defaults) is copied.
 * The first call makes the calling thread the main one, for good.
 * NULL with error: there is an instance already, this is another thread, or @config is of a
 * version that this library does not know, or there are no file descriptors left.
 */
SWNIC_API Swnic *swnic_new(const SwnicConfig *config, GError **error);

/* Removes all devices, objects and back ends; callbacks may be called until it returns.  NULL is
 * fine.  Then swnic_new() may be called again. */
SWNIC_API void swnic_free(Swnic *swnic);

/*
 * The guest runs, or it does not.  While it is stopped no device touches guest memory, calls an
 * interrupt callback on its own, or takes packets; accesses to registers are still answered.
 * swnic_stop() returns when that is so, and swnic's virtual clock (the transmit timer's) stands.
 * Doing what is done already does nothing.
 */
SWNIC_API void swnic_start(Swnic *swnic);
SWNIC_API void swnic_stop(Swnic *swnic);

/*
 * What is logged, to standard error or to the file @path (written anew; NULL: as before): @items is
 * what QEMU's -d takes, "guest_errors,trace:virtio_net_*".  Both may be changed at any time, and
 * stay when the instance goes.
 */
SWNIC_API bool swnic_set_log(Swnic *swnic, const char *items, const char *path, GError **error);

/* --- guest memory --- */

#define SWNIC_MEMORY_READONLY (1u << 0) /* the guest's ROM: devices read it, writes fail */

/* RAM of the guest at [@addr, @addr + @size). */
typedef struct SwnicMemory {
    uint64_t addr; /* guest physical */
    uint64_t size; /* bytes, > 0 */
    void *host;    /* where it is in this process */
    int fd;        /* shared memory that it is mapped from, for vhost-user and vhost; -1: private */
    uint64_t offset; /* of the range in @fd, bytes */
    uint32_t flags;  /* SWNIC_MEMORY_* */
} SwnicMemory;

/*
 * Replaces the map of guest memory that all devices see.  @ranges in any order, copied; the memory
 * itself and @fd stay the caller's, and must stay until a map without them is in force: when this
 * returns, nothing touches what is only in the old map.  @count 0: none.  False with error, and
 * nothing changed: two ranges overlap, or one is empty or wraps.
 * Devices read and write it at any time while the guest runs, from the threads above.
 */
SWNIC_API bool swnic_set_memory(Swnic *swnic, const SwnicMemory *ranges, unsigned count,
                                GError **error);

/* --- character devices, back ends and objects --- */

/* As -chardev: "socket,id=vu0,path=/run/vhost-user.sock"; for back ends and objects that name one.
 * A server that waits for its client (wait=on) does not wait here. */
SWNIC_API bool swnic_chardev_add(Swnic *swnic, const char *options, GError **error);
/* False with error: nobody has this name, or somebody uses it. */
SWNIC_API bool swnic_chardev_del(Swnic *swnic, const char *id, GError **error);

/* As -netdev: "user,id=net0", "tap,id=net0,ifname=tap0,script=no,downscript=no",
 * "dgram,id=net0,local.type=fd,local.str=7", or a JSON object.  An fd named so is the
 * library's from success on. */
SWNIC_API bool swnic_netdev_add(Swnic *swnic, const char *options, GError **error);
/* A device whose back end is deleted lives on without a link. */
SWNIC_API bool swnic_netdev_del(Swnic *swnic, const char *id, GError **error);
/* Sets the link of a back end or a device (by its id) up or down; the guest is told. */
SWNIC_API bool swnic_set_link(Swnic *swnic, const char *id, bool up, GError **error);
/* What `info network` prints, lines end "\r\n"; g_free() it. */
SWNIC_API char *swnic_info_network(Swnic *swnic);

/* As -object: "iothread,id=io0", "filter-dump,id=f0,netdev=net0,file=a.pcap". */
SWNIC_API bool swnic_object_add(Swnic *swnic, const char *options, GError **error);
SWNIC_API bool swnic_object_del(Swnic *swnic, const char *id, GError **error);

/* --- devices --- */

#define SWNIC_DEVICE_OPS_VERSION 1

/*
 * What a device asks of its emulator.  Any member but @version may be NULL.
 *
 * set_irq and send_msi come from the main thread and from the iothread of a queue, with locks of
 * the device held: they only pass on what they are told, and call nothing of this library.
 * bar_mapped and bar_unmapped come from within swnic_config_write(), swnic_device_reset() and
 * swnic_device_remove(), and may call swnic_bar_info().
 */
typedef struct SwnicDeviceOps {
    uint32_t version; /* SWNIC_DEVICE_OPS_VERSION */
    /* The level of interrupt pin INTA..INTD (@pin 0..3) has changed.  Low at first. */
    void (*set_irq)(void *opaque, unsigned pin, bool level);
    /* MSI-X @vector fires, unmasked: a write of @data, 32 bits little-endian, to @addr, both as the
     * guest put them into the table. */
    void (*send_msi)(void *opaque, unsigned vector, uint64_t addr, uint32_t data);
    /* BAR @bar begins, or ceases, to answer at @addr (of ports or memory: swnic_bar_info()). A BAR
     * that moves does both, in this order: unmapped, mapped.  Ranges may overlap others. */
    void (*bar_mapped)(void *opaque, unsigned bar, uint64_t addr);
    void (*bar_unmapped)(void *opaque, unsigned bar, uint64_t addr);
} SwnicDeviceOps;

/*
 * As -device: "virtio-net-pci,netdev=net0,id=nic0,mac=52:54:00:12:34:56,tx=adaptive", or a JSON
 * object. `bus=` is refused: each device has a bus of its own; `addr=` only shows in names.  @ops
 * is copied, @opaque is passed to its functions.  The device is reset, and belongs to the instance.
 * NULL with error: unknown device or property, a bad value, a back end that is missing or in use, a
 * bridge, or @ops of a version that this library does not know.
 */
SWNIC_API SwnicDevice *swnic_device_add(Swnic *swnic, const char *options,
                                        const SwnicDeviceOps *ops, void *opaque, GError **error);

/* At once, without asking the guest.  What it has mapped is unmapped, its interrupt is
 * lowered; when this returns no callback comes any more and @dev is gone. */
SWNIC_API void swnic_device_remove(SwnicDevice *dev);

/* What a reset of the bus does to it. */
SWNIC_API void swnic_device_reset(SwnicDevice *dev);

/* A property's value as JSON ("true", "\"52:54:00:12:34:56\"", "256"); g_free() it.  NULL with
 * error: no such property. */
SWNIC_API char *swnic_device_get(SwnicDevice *dev, const char *property, GError **error);
/* Sets one that may be changed while the device is there, spelled as on the command line. */
SWNIC_API bool swnic_device_set(SwnicDevice *dev, const char *property, const char *value,
                                GError **error);

/* Configuration space: @offset in bytes, @size 1, 2 or 4.  What does not exist reads as ones and
 * ignores writes. */
SWNIC_API uint32_t swnic_config_read(SwnicDevice *dev, unsigned offset, unsigned size);
SWNIC_API void swnic_config_write(SwnicDevice *dev, unsigned offset, uint32_t value, unsigned size);

#define SWNIC_BARS 7 /* six, and the expansion ROM */

#define SWNIC_BAR_IO       (1u << 0) /* ports; else memory */
#define SWNIC_BAR_64BIT    (1u << 1) /* takes the register of the next BAR too */
#define SWNIC_BAR_PREFETCH (1u << 2)

typedef struct SwnicBarInfo {
    uint64_t size;  /* bytes, a power of two */
    uint64_t addr;  /* where it answers; UINT64_MAX: nowhere */
    uint32_t flags; /* SWNIC_BAR_* */
} SwnicBarInfo;

/* False: the device has no BAR @bar. */
SWNIC_API bool swnic_bar_info(SwnicDevice *dev, unsigned bar, SwnicBarInfo *info);

/*
 * The guest accesses a BAR: @offset in bytes from its beginning, @size 1, 2, 4 or 8, values in
 * the program's byte order.  One call for one access of the guest's: registers have side effects.
 * Whether the BAR is mapped is not looked at.  Outside the BAR: ones, and nothing.
 * A notification that swnic_foreach_notifier() tells of wakes its eventfd here too.
 */
SWNIC_API uint64_t swnic_bar_read(SwnicDevice *dev, unsigned bar, uint64_t offset, unsigned size);
SWNIC_API void swnic_bar_write(SwnicDevice *dev, unsigned bar, uint64_t offset, uint64_t value,
                               unsigned size);

/* A write that need not come by swnic_bar_write(): writing 1 to @fd does the same, from any thread
 * (KVM_IOEVENTFD). */
typedef struct SwnicNotifier {
    unsigned bar;
    uint64_t offset;
    unsigned size; /* bytes of the write; 0: any */
    bool match;    /* only when @value is written */
    uint64_t value;
    int fd; /* an eventfd; the device's: not to be closed or read */
} SwnicNotifier;

/* Calls @fn for each address at which a queue can be notified, none with ioeventfd=off.  They stay
 * the same until the device is removed.  Once asked for, queues are run from their eventfd. */
SWNIC_API void swnic_foreach_notifier(SwnicDevice *dev,
                                      void (*fn)(const SwnicNotifier *notifier, void *opaque),
                                      void *opaque);

#ifdef __cplusplus
}
#endif

#endif
