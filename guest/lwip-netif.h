/*
 * lwIP as the guest's TCP/IP stack, over a NetDriver.
 *
 * Where the driver has HOST_TSO4, TCP segments that lwIP sends in a row leave as one TSO frame.
 * One interface a process: lwIP's state is global and has no end.  Public names carry our
 * prefix because liblwip exports short ones (list_push, sys_init, mem_malloc …).
 */
#ifndef GUEST_LWIP_NETIF_H
#define GUEST_LWIP_NETIF_H

#include "guest/dhcp.h"

/*
 * Starts lwIP's thread, adds the interface with the lease's addresses, and starts the thread
 * that receives.  From here on @driver belongs to the stack.  False with error.
 */
bool guest_netif_start(NetDriver *driver, const GuestDhcpLease *lease, GError **errp);
/*
 * Waits until every connection that was closed has ended at both ends and the device has sent all
 * frames: what the stack still holds when the device is reset is lost.  False after @timeout_ms.
 */
bool guest_netif_drain(unsigned timeout_ms);
/*
 * Between the two no thread touches the rings, the buffers or the device, and none of the stack's
 * does anything.  Both from the same thread.
 */
void guest_netif_pause(void);
void guest_netif_resume(void);
/* Takes the interface down and ends the receiving thread; the caller has @driver again. */
void guest_netif_stop(void);
/* Frames that no plain driver could carry: sent as TSO, and received longer than an MTU allows. */
typedef struct GuestNetifStats {
    uint64_t tso_frames, large_frames;
} GuestNetifStats;
void guest_netif_get_stats(GuestNetifStats *stats);
/* What lwIP's error code @err (an err_t) means. */
const char *guest_netif_strerror(int err);

#endif
