/*
 * An emulator around libswnic for tests: memory, interrupts and BARs as a program has them, the
 * guest's driver on top, and the far end of the back end's socket.
 *
 * The driver's interrupts are words of RAM, which send_msi writes as an emulator's memory would be
 * written.  What a test does not expect ends the test program.
 */
#ifndef TESTS_UNIT_LIBRARY_HOST_H
#define TESTS_UNIT_LIBRARY_HOST_H

#include <pthread.h>

#include "guest/net-driver.h"
#include "swnic/swnic.h"

#define HOST_RAM_SIZE   ((size_t)16 << 20)
#define HOST_FRAME_SIZE 200u
#define HOST_BURST      32u

typedef struct Host {
    Swnic *swnic;
    SwnicDevice *nic;
    GuestRam *ram;
    GuestPciBus bus;
    GuestPciDevice *pci;
    NetDriver *driver;
    int peer;                  /* our end of the back end's socket */
    uint64_t bars[SWNIC_BARS]; /* UINT64_MAX: nowhere */
    unsigned mapped, unmapped;
    bool irq_level;
    unsigned irq_changes, irq_pin;
    unsigned messages;           /* atomic */
    unsigned messages_elsewhere; /* atomic: of another thread than the main one */
    pthread_t main_thread;
    unsigned received, expected;
} Host;

extern const SwnicDeviceOps host_ops;  /* opaque: the Host */
extern const GuestPciOps host_pci_ops; /* opaque: the Host */

/* @swnic sees @ram at 0. */
void host_set_ram(Swnic *swnic, const GuestRam *ram);
/* RAM of its own and nothing else. */
void host_prepare(Host *host, Swnic *swnic);
/* And a device with more @properties, on a socket whose other end is host->peer. */
void host_add_device(Host *host, Swnic *swnic, const char *id, const char *properties);
/* An instance with such a device "nic0", running. */
void host_open(Host *host, const char *properties);
/* The driver, from reset to DRIVER_OK; and back. */
void host_start_driver(Host *host);
void host_stop_driver(Host *host);
/* Everything, the instance too. */
void host_close(Host *host);

/* Runs the main loop until @done says so. */
void host_run_until(bool (*done)(void *opaque), void *opaque);
/* Everything that is ready has run. */
void host_settle(void);

/* Frame @number, HOST_FRAME_SIZE bytes; from the guest; and what the peer must get next. */
void host_frame_make(uint8_t *frame, unsigned number);
void host_send_frame(Host *host, unsigned number);
bool host_peer_has_frame(void *host);
void host_expect_at_peer(Host *host, unsigned number);
/* Whether host->received has come to host->expected; frames must be those with these numbers. */
bool host_has_received(void *host);
/* HOST_BURST frames, to the guest; in both directions. */
void host_expect_receive(Host *host);
void host_expect_traffic(Host *host);

#endif
