/*
 * A driver for virtio-mmio slots (virtio 1.2, section 4.2), both versions, over qtest.
 */
#ifndef TESTS_LIB_MMIO_DRIVER_H
#define TESTS_LIB_MMIO_DRIVER_H

#include <linux/virtio_mmio.h>

#include "guest/driver-queue.h"
#include "guest/qtest-client.h"

#define MMIO_SLOTS     8
#define MMIO_BASE      0xfeb00000u
#define MMIO_SLOT_SIZE 0x200u
#define MMIO_FIRST_IRQ 5

typedef struct MmioDriver {
    QtestClient *qtest;
    GuestRam *ram;
    uint64_t base;
    unsigned irq;
    unsigned version; /* 1 or 2 */
    uint32_t device_id;
    uint64_t features;
} MmioDriver;

/* Slot @n, whatever is in it. */
MmioDriver mmio_driver_open(QtestClient *qtest, GuestRam *ram, unsigned n);
uint32_t mmio_read(MmioDriver *driver, unsigned reg);
void mmio_write(MmioDriver *driver, unsigned reg, uint32_t value);
uint64_t mmio_offered(MmioDriver *driver);
/* Resets, and accepts what is both @wanted and offered. */
void mmio_driver_negotiate(MmioDriver *driver, uint64_t wanted);
/* A split queue; @size 0: as large as it may be. */
DriverQueue *mmio_driver_setup_queue(MmioDriver *driver, uint16_t index, uint16_t size);
void mmio_driver_start(MmioDriver *driver);
void mmio_driver_notify(MmioDriver *driver, uint16_t index);
/* Takes the interrupt: its status bits, acknowledged. */
uint32_t mmio_driver_take_interrupt(MmioDriver *driver);

#endif
