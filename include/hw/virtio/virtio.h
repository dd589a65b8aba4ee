/*
 * VirtIODevice: what every virtio device has, whatever it is and whatever carries it.
 *
 * The device side (virtio-net) fills VirtIODeviceClass.  The transport side (virtio-pci,
 * virtio-mmio) plugs in with VirtioTransportOps and calls the functions in the second half.
 * The device hangs under its transport as child "virtio-backend".
 *
 * Threads: main thread, except virtio_notify() and what a queue's own loop does with its queue.
 */
#ifndef HW_VIRTIO_VIRTIO_H
#define HW_VIRTIO_VIRTIO_H

#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>

#include "hw/core/device.h"
#include "hw/virtio/virtqueue.h"
#include "util/event-loop.h"
#include "util/event-notifier.h"

#define VIRTIO_QUEUE_MAX  1024
#define VIRTIO_NO_VECTOR  0xffff
#define VIRTIO_CONFIG_MAX 256

/* Feature bits go beyond 63 (virtio 1.4's UDP tunnel offloads). */
typedef unsigned __int128 VirtioFeatures;
#define VIRTIO_FEATURE(bit) ((VirtioFeatures)1 << (bit))

/* Bits of the legacy interface that kernel headers do not have (virtio 1.2, section 6.3). */
#ifndef VIRTIO_F_BAD_FEATURE
#define VIRTIO_F_BAD_FEATURE 30
#endif
#ifndef VIRTIO_F_NOTIFICATION_DATA
#define VIRTIO_F_NOTIFICATION_DATA 38 /* virtio 1.2, section 6 */
#endif

/* Bits of virtio_isr_take() (virtio 1.2, section 4.1.4.5). */
#define VIRTIO_ISR_QUEUE  1
#define VIRTIO_ISR_CONFIG 2

typedef struct VirtIODevice VirtIODevice;
typedef struct VirtIODeviceClass VirtIODeviceClass;

typedef void VirtioQueueHandler(VirtIODevice *vdev, VirtQueue *vq);

/* A queue with what the transport keeps for it. */
typedef struct VirtioQueue {
    VirtQueue *vq;
    VirtioQueueHandler *handler; /* NULL: the queue does not exist */
    uint16_t vector;
    uint16_t max_num;           /* as realized */
    bool enabled;               /* modern: queue_enable; legacy: has an address */
    uint64_t desc, avail, used; /* as written by the driver, before enable */
    /* virtio.c's own */
    VirtIODevice *vdev;
    EventLoop *loop;  /* that runs the handler, while started */
    BottomHalf *kick; /* in @loop: runs the handler for other threads */
    bool active;      /* the handler may run; written by the main thread, atomic */
    EventNotifier *outside; /* somebody else handles it, who is woken by this (vhost); or NULL */
} VirtioQueue;

typedef struct VirtioTransportOps {
    /* Interrupt for @vector; VIRTIO_NO_VECTOR with INTx or mmio means the shared line. */
    void (*notify)(void *opaque, uint16_t vector);
    /* Features that the transport itself adds. */
    VirtioFeatures (*features)(void *opaque);
    bool (*has_msix)(void *opaque); /* the ISR byte does not matter then; may be NULL */
    /* The device began to run, or is about to stop: attach and detach what wakes queue loops
     * (ioeventfds).  After the device's set_running(true), before its set_running(false).  May be
     * NULL. */
    void (*started)(void *opaque, bool started);
    /* The ioeventfd of queue @index, for who handles it in our place; NULL: there is none.  May be
     * NULL. */
    EventNotifier *(*notifier)(void *opaque, unsigned index);
    const struct VirtioSavedOps *saved; /* its part of a migration section (virtio-vmstate.h) */
} VirtioTransportOps;

struct VirtIODevice {
    DeviceState parent_obj;
    const VirtioTransportOps *transport;
    void *transport_opaque;
    uint16_t device_id; /* VIRTIO_ID_NET */
    uint8_t status;
    uint8_t isr; /* bit 0 queue, bit 1 configuration; atomic */
    uint16_t queue_sel;
    uint16_t config_vector;
    uint32_t generation;          /* of configuration */
    VirtioFeatures host_features; /* offered: wanted, less what device and peer cannot do */
    VirtioFeatures guest_features;
    uint64_t wanted_features[2]; /* bits chosen by properties: 0..63, 64..127 */
    size_t config_len;
    VirtioQueue *queues; /* VIRTIO_QUEUE_MAX */
    unsigned num_queues; /* highest existing + 1 */
    DmaSpace *dma;
    DmaListener dma_listener;
    bool broken;  /* NEEDS_RESET until reset; atomic */
    bool started; /* set_running(true) is in force */
    bool vm_running;
    bool dma_changing; /* the memory map is being replaced */
    unsigned drains;   /* drain_begin without drain_end */
    bool disabled;     /* queues disabled by transport */
    bool bad_features; /* the driver accepted features that were not offered */
    bool needs_reset_told;
    BottomHalf *broken_bh;
    bool use_started, use_disabled_flag;
    bool legacy_driver; /* guest drives through the legacy interface */
    struct VmStateNotifier *vmstate;
};

struct VirtIODeviceClass {
    DeviceClass parent_class;
    uint16_t device_id;
    /* Offered by the legacy interface only, besides NOTIFY_ON_EMPTY and ANY_LAYOUT. */
    VirtioFeatures legacy_features;
    /* What a driver that accepts everything unseen (VIRTIO_F_BAD_FEATURE) is known to mean. */
    VirtioFeatures bad_driver_features;
    gboolean (*realize)(VirtIODevice *vdev, GError **errp);
    void (*unrealize)(VirtIODevice *vdev);
    /* Offered features: @wanted without what the device or its peer cannot do. Error: one asked
     * for explicitly cannot be had. */
    VirtioFeatures (*get_features)(VirtIODevice *vdev, VirtioFeatures wanted, GError **errp);
    void (*set_features)(VirtIODevice *vdev, VirtioFeatures features);
    /* False refuses FEATURES_OK. */
    bool (*validate_features)(VirtIODevice *vdev, VirtioFeatures features);
    /* Fills or takes config_len bytes of config, little-endian (legacy: guest-endian = the same).
     */
    void (*get_config)(VirtIODevice *vdev, uint8_t *config);
    void (*set_config)(VirtIODevice *vdev, const uint8_t *config);
    /* Queues are stopped, and forget their elements right after. */
    void (*reset)(VirtIODevice *vdev);
    /* Main thread.  The device may run (DRIVER_OK, VM running, not broken), or may not any more:
     * when set_running(false) returns, nothing touches guest memory.  Notifications that come while
     * it does not run are dropped, so set_running(true) looks at every ring. */
    void (*set_running)(VirtIODevice *vdev, bool running);
    void (*status_changed)(VirtIODevice *vdev, uint8_t status);
    void (*queue_reset)(VirtIODevice *vdev, unsigned index);
    void (*queue_enabled)(VirtIODevice *vdev, unsigned index);
    /* Loop whose thread handles queue @index (NULL function: main loop). */
    EventLoop *(*queue_loop)(VirtIODevice *vdev, unsigned index);
    const char *const *feature_names; /* by bit 0..127, for x-query-virtio; NULL entries */
};

QOM_DECLARE_TYPE(VirtIODevice, VirtIODeviceClass, virtio_device, VIRTIO_DEVICE)
#define TYPE_VIRTIO_DEVICE (virtio_device_get_type())

/* --- for devices --- */
/* While realizing, in order of index; returns the queue. */
VirtQueue *virtio_add_queue(VirtIODevice *vdev, unsigned num, VirtioQueueHandler *handler);
void virtio_del_queue(VirtIODevice *vdev, unsigned index);
/* Makes an added queue another one (virtio-net's control queue moves with features), or hides it
 * from the driver (@handler NULL).  While features are negotiated; the queue is as after a reset,
 * if anything changes. */
void virtio_set_queue_role(VirtIODevice *vdev, unsigned index, unsigned num,
                           VirtioQueueHandler *handler);
bool virtio_has_feature(const VirtIODevice *vdev, unsigned bit);      /* negotiated */
bool virtio_host_has_feature(const VirtIODevice *vdev, unsigned bit); /* offered */
/* Interrupts for @vq if virtqueue_should_interrupt() says so.  Any thread. */
void virtio_notify(VirtIODevice *vdev, VirtQueue *vq);
/* Without asking the ring (coalescing decided already). */
void virtio_notify_now(VirtIODevice *vdev, VirtQueue *vq);
void virtio_notify_config(VirtIODevice *vdev); /* new generation and interrupt; main thread */
/* The guest broke the device: log, NEEDS_RESET, config interrupt (1.x), stop.  Any thread. */
void virtio_error(VirtIODevice *vdev, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
/* Around a change of VirtioQueue.outside while the device runs: nobody is woken in between. */
void virtio_pause_notifications(VirtIODevice *vdev);
void virtio_resume_notifications(VirtIODevice *vdev);
bool virtio_is_modern(const VirtIODevice *vdev); /* VERSION_1 negotiated */

/* --- for transports --- */
void virtio_attach_transport(VirtIODevice *vdev, const VirtioTransportOps *ops, void *opaque,
                             DmaSpace *dma);
VirtioFeatures virtio_offered_features(VirtIODevice *vdev,
                                       bool legacy); /* what the driver may read */
void virtio_set_features(VirtIODevice *vdev, VirtioFeatures features); /* masked to offered */
void virtio_set_status(VirtIODevice *vdev, uint8_t status);            /* 0 resets */
uint32_t virtio_config_read(VirtIODevice *vdev, unsigned offset,
                            unsigned size); /* all ones beyond the end */
void virtio_config_write(VirtIODevice *vdev, unsigned offset, uint32_t value, unsigned size);
void virtio_queue_notify(VirtIODevice *vdev, unsigned index); /* driver's notification */
void virtio_queue_enable(VirtIODevice *vdev, unsigned index); /* takes num and addresses in force */
void virtio_queue_reset(VirtIODevice *vdev, unsigned index);
void virtio_queue_set_num(VirtIODevice *vdev, unsigned index,
                          unsigned num); /* ignores what is not allowed */
/* The 32-bit halves of a queue's addresses, as drivers of the modern interface write them before
 * they enable the queue. */
typedef enum VirtioQueueHalf {
    VIRTIO_QUEUE_DESC_LOW,
    VIRTIO_QUEUE_DESC_HIGH,
    VIRTIO_QUEUE_AVAIL_LOW,
    VIRTIO_QUEUE_AVAIL_HIGH,
    VIRTIO_QUEUE_USED_LOW,
    VIRTIO_QUEUE_USED_HIGH,
} VirtioQueueHalf;
/* A queue that is not there reads 0 and takes nothing. */
uint32_t virtio_queue_address(VirtIODevice *vdev, unsigned index, VirtioQueueHalf half);
void virtio_queue_set_address(VirtIODevice *vdev, unsigned index, VirtioQueueHalf half,
                              uint32_t value);
/* Legacy: one address for all three areas, the used ring aligned to @align (a power of two); 0: the
 * queue is not in use any more. */
void virtio_queue_set_legacy_address(VirtIODevice *vdev, unsigned index, uint64_t address,
                                     uint64_t align);
/* As a reset of the queue, without RING_RESET (virtio-mmio's QueueReady = 0). */
void virtio_queue_disable(VirtIODevice *vdev, unsigned index);
void virtio_reset(VirtIODevice *vdev);
uint8_t virtio_isr_take(VirtIODevice *vdev); /* reads and clears */
uint8_t virtio_isr_peek(const VirtIODevice *vdev);
void virtio_isr_clear(VirtIODevice *vdev, uint8_t bits);
/* The queue, or NULL where none was added. */
VirtioQueue *virtio_queue(VirtIODevice *vdev, unsigned index);
/* Runs the queue's handler; in the queue's loop, between the transport's started(true) and
 * started(false). */
void virtio_queue_run(VirtIODevice *vdev, unsigned index);
/* True while this thread delivers an interrupt.  A guest can aim a message at registers of
 * ours: they must not act then, or the device would be entered from its own middle. */
bool virtio_access_is_nested(void);

/* The bus between a transport and its device: "virtio-bus", one device, plugged by the
 * transport's realize. */
typedef struct VirtioBus {
    BusState parent_obj;
} VirtioBus;
typedef struct VirtioBusClass {
    BusClass parent_class;
} VirtioBusClass;
QOM_DECLARE_TYPE(VirtioBus, VirtioBusClass, virtio_bus, VIRTIO_BUS)
#define TYPE_VIRTIO_BUS (virtio_bus_get_type())

/* Registers the types of hw/virtio. */
void hw_virtio_register_types(void);

#endif
