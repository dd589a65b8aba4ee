/*
 * A test rig: an emulator with one virtio-net device, driven ring entry by ring entry.
 *
 *      test ── peer socket ── netdev socket,fd=N ── virtio-net-pci ── rings in shared RAM ── test
 *
 * The emulator is the one in $SWNIC_BINARY, started with a stepped clock.  QEMU works too (as a
 * reference for what a test expects): it then runs in real time with a CPU that halts, and
 * rig->is_swnic is false.  What the guest's library does for a well-behaved driver (finding the
 * device, negotiation, setting up queues) is used; descriptors and indices are written here, by
 * ring_*(), so that a test says exactly what the device sees.
 *
 * A function that meets a failure which no test expects ends the test program.
 */
#ifndef TESTS_LIB_RIG_H
#define TESTS_LIB_RIG_H

#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>

#include "guest/driver-queue.h"
#include "guest/emulator.h"
#include "guest/virtio-driver.h"

#define RIG_RX           0
#define RIG_TX           1
#define RIG_CTRL         2
#define RIG_QUEUES       3
#define RIG_HDR          ((uint32_t)sizeof(struct virtio_net_hdr_v1)) /* 12, with VERSION_1 */
#define RIG_RAM_SIZE     ((size_t)128 << 20)
#define RIG_TIMEOUT_MS   10000
#define RIG_QUIET_MS     30 /* how long "nothing comes" is watched */
#define RIG_FEATURE(bit) (1ull << (bit))
#define RIG_DEVFN        0x20 /* 00:04.0 */

typedef struct RigConfig {
    const char *device;            /* more properties: "mrg_rxbuf=off,x-txburst=4" */
    const char *const *args;       /* more arguments, NULL-ended */
    VirtioDriverFeatures features; /* beyond VERSION_1, MAC and STATUS */
    uint16_t rx_size, tx_size;     /* entries; 0: as offered */
    int sndbuf;             /* SO_SNDBUF of the emulator's end of the peer socket; 0: as it is */
    const char *netdev;     /* -netdev in place of the peer socket; its id is n0 */
    const int *inherit_fds; /* with it: -1-ended, kept open in the emulator */
    bool no_peer;           /* no netdev */
    bool intx;              /* leave MSI-X off */
    bool raw;               /* no driver: the device is found and its BARs placed, no more */
} RigConfig;

typedef struct Rig {
    RigConfig config;
    bool is_swnic;
    Emulator *emulator;
    QtestClient *qtest;
    QmpClient *qmp;
    GuestRam *ram;
    GuestPciBus bus;
    GuestPciDevice *pci;
    VirtioDriver *virtio;
    DriverQueue *queues[RIG_QUEUES];
    DriverQueue *rx, *tx; /* queues[RIG_RX], queues[RIG_TX] */
    int peer;             /* our end of the netdev's socket; -1 */
    uint8_t *inbox;       /* bytes of the peer socket not handed out yet */
    size_t inbox_size;
} Rig;

/* Emulator started, device found and in state DRIVER; nothing negotiated. */
Rig *rig_open(const RigConfig *config);
/* Negotiates, sets up interrupts and all queues, DRIVER_OK. */
void rig_start(Rig *rig);
/* Both. */
Rig *rig_new(const RigConfig *config);
/* Resets the device and starts it anew, as a driver does after NEEDS_RESET. */
void rig_restart(Rig *rig);
/* Ends the emulator by "quit"; anything but exit status 0 fails the test. */
void rig_free(Rig *rig);
/* The same for a rig whose emulator is on its way out already, or cannot be talked to: waits for
 * it, and returns whether it ended with exit status 0. */
bool rig_free_ended(Rig *rig);
/* $SWNIC_BINARY. */
const char *rig_binary(void);

/* Returns when the emulator has finished what it was told before, bottom halves included. */
void rig_settle(Rig *rig);
/* Nothing went wrong on the qtest socket so far, and the process lives. */
void rig_check(Rig *rig);
/* Fails unless a good frame passes each way right now: what must hold after every attack. */
void rig_expect_working(Rig *rig);

/* Resets the device, drops frames of before on either side, and expects it to work: what must hold
 * whatever a driver did. */
void rig_expect_recovery(Rig *rig);

/* Guest memory, zeroed. */
uint64_t rig_alloc(Rig *rig, size_t size);
void *rig_at(Rig *rig, uint64_t addr, size_t size);

/* The peer's side: one frame each way.  recv returns its size, 0 when none came within @ms. */
void rig_peer_send(Rig *rig, const void *frame, size_t size);
size_t rig_peer_recv(Rig *rig, void *frame, size_t size, unsigned ms);
void rig_peer_expect(Rig *rig, const void *frame, size_t size);
void rig_peer_expect_nothing(Rig *rig);

/* A recognisable Ethernet frame of @size bytes (at least 14): local addresses, ethertype 0x88b5,
 * contents made from @seed. */
void frame_fill(uint8_t *frame, size_t size, uint32_t seed);

/* --- rings, entry by entry --- */

typedef struct RingPart {
    uint64_t addr;
    uint32_t len;
    uint16_t flags; /* VRING_DESC_F_WRITE, …; NEXT is added where a chain goes on */
} RingPart;

void ring_set(DriverQueue *queue, uint16_t at, uint64_t addr, uint32_t len, uint16_t flags,
              uint16_t next);
/* Descriptors @at, @at + 1, … of the table, linked. */
void ring_chain(DriverQueue *queue, uint16_t at, const RingPart *parts, unsigned count);
/* The same in an indirect table at guest address @table, behind descriptor @at. */
void ring_indirect(DriverQueue *queue, uint16_t at, uint64_t table, const RingPart *parts,
                   unsigned count);
/* Into the available ring; ring_publish() shows it. */
void ring_offer(DriverQueue *queue, uint16_t head);
void ring_publish(DriverQueue *queue);
/* Offers, publishes and notifies. */
void ring_send(Rig *rig, DriverQueue *queue, uint16_t head);
/* Used entries not taken yet. */
uint16_t ring_used_count(const DriverQueue *queue);
/* Waits until at least @count are there. */
bool ring_wait_used(Rig *rig, DriverQueue *queue, uint16_t count, unsigned ms);
/* Waits for one and takes it. */
struct vring_used_elem ring_take(Rig *rig, DriverQueue *queue);

/* A whole frame through descriptor @at (header and data in one): sends it, takes the used entry. */
void rig_send_frame(Rig *rig, uint16_t at, const uint8_t *frame, size_t size);
/* Posts a buffer of @size bytes as descriptor @at of the RX ring; its address. */
uint64_t rig_post_buffer(Rig *rig, uint16_t at, uint32_t size);

#endif
