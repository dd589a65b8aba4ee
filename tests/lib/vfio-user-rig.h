/*
 * A rig whose emulator serves its device over vfio-user, and that is the client.
 *
 * The Rig inside is an ordinary one once vfio_rig_start() has been called: rings, frames and the
 * peer socket are used as with any other.  The emulator's qtest and QMP sockets are there too, its
 * clock is real.
 */
#ifndef TESTS_LIB_VFIO_USER_RIG_H
#define TESTS_LIB_VFIO_USER_RIG_H

#include "guest/vfio-user-pci.h"
#include "tests/lib/rig.h"

#define VFIO_RIG_RAM ((size_t)8 << 20)
#define VFIO_RIG_RW  (VFIO_USER_DMA_READABLE | VFIO_USER_DMA_WRITABLE)

typedef struct VfioRigConfig {
    RigConfig rig;
    const char *server;       /* -object …: "%s" is the socket's path; NULL: the usual */
    const char *capabilities; /* that vfio_rig_connect() proposes; NULL: all */
    bool no_io_fds;
} VfioRigConfig;

typedef struct VfioRig {
    Rig rig;
    VfioRigConfig config;
    char *dir, *path;       /* of the server's socket */
    VfioUserPci *pci;       /* the connection that drives the device, or NULL */
    VfioUserClient *client; /* pci's */
    uint8_t *bus_view;      /* RAM once more, as the server's messages reach it */
} VfioRig;

/* The server is started, nobody is connected. */
VfioRig *vfio_rig_open(const VfioRigConfig *config);
/* A client that has negotiated and nothing else; the caller's. */
VfioUserClient *vfio_rig_connect(VfioRig *rig);
/* Another one that is only connected. */
VfioUserClient *vfio_rig_connect_raw(VfioRig *rig);
/* Connects rig->pci and shares all RAM, unless @mapped says that the caller does. */
void vfio_rig_attach(VfioRig *rig, bool mapped);
/* Finds the device and starts it, as rig_new() does. */
void vfio_rig_start(VfioRig *rig);
/* Both: RAM shared, the device driven. */
VfioRig *vfio_rig_new(const VfioRigConfig *config);
/* RAM from @from on is reached by messages: by the driver through one mapping, by the client that
 * answers the server through another, as a bus master is nothing that a compiler knows of. */
void vfio_rig_share_by_messages(VfioRig *rig, uint64_t from);
/* The driver is gone without a word, as when a VMM is killed. */
void vfio_rig_hang_up(VfioRig *rig);
/* The driver goes on with the device of @to, another rig that is opened and no more: its state was
 * brought there by @client, a connection to it with the driver's memory mapped.  @to then has the
 * server that the driver left, and nobody drives it. */
void vfio_rig_move(VfioRig *rig, VfioRig *to, VfioUserClient *client);
/* A client of @to that has the driver's memory. */
VfioUserClient *vfio_rig_connect_other(VfioRig *rig, VfioRig *to);
/* Ends the server by "quit"; anything but exit status 0 fails the test. */
void vfio_rig_free(VfioRig *rig);

/* Waits until the server has (not) a client. */
void vfio_rig_wait_connected(VfioRig *rig, bool connected);
/* The server's open file descriptors, and its resident memory in bytes. */
unsigned vfio_rig_count_fds(VfioRig *rig);
size_t vfio_rig_rss(VfioRig *rig);

/* Fails the test on an error. */
void vfio_check(GError *err, const char *what);
/* Sends a command, whose reply must have this errno (0: success). */
void vfio_expect(VfioUserClient *client, uint16_t command, const void *payload, size_t size,
                 const int *fds, unsigned nfds, int error);
/* A memfd of @size bytes. */
int vfio_memfd(size_t size);
/* A non-blocking eventfd; its count, which is then 0; the count once it is not 0 any more. */
int vfio_eventfd(void);
uint64_t vfio_eventfd_take(int fd);
uint64_t vfio_eventfd_wait(int fd, unsigned ms);

/* A second region for buffers, beyond RAM. */
#define VFIO_EXTRA_ADDR 0x40000000ull
#define VFIO_EXTRA_SIZE (64 * 4096ull)

typedef struct VfioExtra {
    int fd;
    uint8_t *host;
} VfioExtra;

VfioExtra vfio_extra_open(void);
void vfio_extra_close(VfioExtra *extra);
void vfio_extra_map(VfioRig *rig, const VfioExtra *extra, uint32_t flags);
void vfio_extra_unmap(VfioRig *rig);

#endif
