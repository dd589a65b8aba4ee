/*
 * The device of a vfio-user server as a GuestPciBus: drivers written against guest/pci.h drive it
 * unchanged.
 *
 * Registers are messages; notifications are eventfds where the server gives them, else posted
 * messages; interrupts are eventfds, so that a driver sleeps in poll() until one comes.
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
/* Hangs up; NULL is fine. */
void vfio_user_pci_free(VfioUserPci *pci);

GuestPciBus *vfio_user_pci_bus(VfioUserPci *pci);
VfioUserClient *vfio_user_pci_client(VfioUserPci *pci);
/* Notifications that went through eventfds and through messages. */
uint64_t vfio_user_pci_fd_notifications(VfioUserPci *pci);
uint64_t vfio_user_pci_message_notifications(VfioUserPci *pci);

#endif
