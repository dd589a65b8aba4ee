/*
 * A driver for modern virtio-pci devices (virtio 1.2, section 4.1).
 *
 * Finds the configuration structures through the vendor capabilities, walks the status bits,
 * negotiates features, and starts queues whose interrupts are MSI-X messages aimed at words of
 * shared RAM: `interrupt word` n is non-zero after vector n fired.  Without MSI-X the ISR byte
 * can be read instead.  Notifications are qtest writes to the notification BAR.
 */
#ifndef GUEST_VIRTIO_DRIVER_H
#define GUEST_VIRTIO_DRIVER_H

#include "guest/driver-queue.h"
#include "guest/pci.h"
#include <linux/virtio_pci.h>

/* All 128 bits that virtio-pci has selectors for (virtio 1.4, 2.2). */
typedef unsigned __int128 VirtioDriverFeatures;
#define VIRTIO_DRIVER_FEATURE(bit) ((VirtioDriverFeatures)1 << (bit))

typedef struct VirtioRegion {
    uint8_t bar;
    uint32_t offset, length; /* length 0: not there */
} VirtioRegion;

typedef struct VirtioDriver {
    GuestPciDevice *pci;
    GuestRam *ram;
    VirtioRegion common, notify, isr, device;
    uint32_t notify_multiplier;
    VirtioDriverFeatures device_features, features; /* offered, negotiated */
    uint16_t queue_count;
    unsigned vectors;         /* MSI-X vectors in use; 0: MSI-X off */
    uint64_t interrupt_words; /* guest address, one word each 64 bytes */
    uint64_t *notify_addrs;   /* by queue: offset into the notification BAR */
    uint64_t *notifications;  /* by queue: how many were sent */
} VirtioDriver;

/*
 * Enables the PCI device, finds its structures, resets it and sets ACKNOWLEDGE and DRIVER.
 * @pci and @ram stay the caller's and must live longer.
 */
VirtioDriver *virtio_driver_new(GuestPciDevice *pci, GuestRam *ram, GError **errp);
/* Resets the device, unless its connection is broken, and frees; NULL is fine. */
void virtio_driver_free(VirtioDriver *driver);

uint8_t virtio_driver_status(VirtioDriver *driver);
void virtio_driver_set_status(VirtioDriver *driver, uint8_t status);
/* Writes 0 and waits for 0. */
bool virtio_driver_reset(VirtioDriver *driver, GError **errp);

/* Accepts @wanted as far as it is offered, and checks FEATURES_OK.  VERSION_1 must be among
 * what is offered. */
bool virtio_driver_negotiate(VirtioDriver *driver, VirtioDriverFeatures wanted, GError **errp);
bool virtio_driver_has_feature(const VirtioDriver *driver, unsigned bit);
/* "0x…" for people; g_free() it. */
char *virtio_driver_features_text(VirtioDriverFeatures features);

/*
 * Turns MSI-X on with up to @count vectors, each aimed at its interrupt word; the configuration
 * vector is 0.  Fewer vectors, or none, are no error: see `vectors`.
 */
bool virtio_driver_setup_interrupts(VirtioDriver *driver, unsigned count, GError **errp);
/* Whether @vector has fired since the last call (the word is cleared). */
bool virtio_driver_take_interrupt(VirtioDriver *driver, unsigned vector);
/* Sleeps until @vector fires, at most @timeout_us; false at once where interrupts are words of
 * RAM, which nobody can sleep on. */
bool virtio_driver_sleep(VirtioDriver *driver, unsigned vector, unsigned timeout_us);
/* Interrupt status byte (reading clears it). */
uint8_t virtio_driver_read_isr(VirtioDriver *driver);

/* What the device offers as size of queue @index; 0: there is no such queue. */
uint16_t virtio_driver_queue_max(VirtioDriver *driver, uint16_t index);
/*
 * Makes queue @index with @size entries (0: what the device offers), tells the device and
 * enables it.  @vector (VIRTIO_MSI_NO_VECTOR for none) is its interrupt.  driver_queue_free() it
 * after the device is reset.
 */
DriverQueue *virtio_driver_setup_queue(VirtioDriver *driver, uint16_t index, uint16_t size,
                                       uint16_t vector, GError **errp);
/* DRIVER_OK. */
bool virtio_driver_start(VirtioDriver *driver, GError **errp);

/* Notifies the device of queue @index, without waiting for the emulator's answer. */
void virtio_driver_notify(VirtioDriver *driver, uint16_t index);
/* The same, returning after the device has seen it (what a test wants). */
void virtio_driver_notify_sync(VirtioDriver *driver, uint16_t index);

/* Device configuration, one access. */
uint64_t virtio_driver_config_read(VirtioDriver *driver, unsigned width, uint32_t offset);
void virtio_driver_config_write(VirtioDriver *driver, unsigned width, uint32_t offset,
                                uint64_t value);

#endif
