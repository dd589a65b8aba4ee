/*
 * The device of a vfio-user server as a GuestPciBus: drivers written against guest/pci.h drive it
 * unchanged.
 *
 * Registers are messages; notifications are eventfds where the server gives them, else posted
 * messages; interrupts are eventfds, so that a driver sleeps in poll() until one comes.
 *
 * A server can be replaced under a driver (reconnect_ms; docs/vfio-user.md, "Replacing a server"):
 * accesses then wait until the next one is there.
 */
#ifndef GUEST_VFIO_USER_PCI_H
#define GUEST_VFIO_USER_PCI_H

#include "guest/pci.h"
#include "guest/ram.h"
#include "guest/vfio-user-device.h"

typedef struct VfioUserPci VfioUserPci;

typedef struct VfioUserPciOptions {
    bool no_io_fds;           /* notify by messages all the same */
    const char *capabilities; /* to propose; NULL: all */
    /* vfio_user_pci_connect(): when the server hangs up, another process that has its device's
     * state is looked for at the same path, for so long.  0: no. */
    unsigned reconnect_ms;
} VfioUserPciOptions;

/*
 * Connects to the server at @path, negotiates, and shares all of @ram at address 0.  The device is
 * 00:00.0 of vfio_user_pci_bus().  @ram must live longer.
 */
VfioUserPci *vfio_user_pci_connect(const char *path, GuestRam *ram,
                                   const VfioUserPciOptions *options, GError **errp);
/* The same over a connection that was negotiated already, with memory that the caller maps. */
VfioUserPci *vfio_user_pci_new(VfioUserClient *client, const VfioUserPciOptions *options,
                               GError **errp);
/*
 * Goes on with the device at the end of @client, which has the state of the one so far: a driver
 * that uses the bus notices nothing.  @client is taken; it is negotiated, the driver's memory is
 * mapped, and the device stands still until the caller sets RUNNING on vfio_user_pci_client(),
 * which now talks to it.
 */
bool vfio_user_pci_move(VfioUserPci *pci, VfioUserClient *client, GError **errp);
/* How often another server was found. */
unsigned vfio_user_pci_reconnects(VfioUserPci *pci);
/* Hangs up; NULL is fine. */
void vfio_user_pci_free(VfioUserPci *pci);

GuestPciBus *vfio_user_pci_bus(VfioUserPci *pci);
VfioUserClient *vfio_user_pci_client(VfioUserPci *pci);
/* Notifications that went through eventfds and through messages. */
uint64_t vfio_user_pci_fd_notifications(VfioUserPci *pci);
uint64_t vfio_user_pci_message_notifications(VfioUserPci *pci);

#endif
