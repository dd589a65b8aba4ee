/*
 * vhost for a virtio device: hands some of its queues to a VhostBackend and takes them back.
 *
 * While a queue is handed over, the driver's notifications go to the back end's kick eventfd (the
 * transport's ioeventfd, where it has one), and its call eventfd becomes the queue's interrupt.
 * The device must leave the queue alone.  When it comes back, its indices say where the back end
 * stopped.
 *
 * Main thread.
 */
#ifndef HW_VIRTIO_VHOST_H
#define HW_VIRTIO_VHOST_H

#include "hw/virtio/virtio.h"
#include "vhost/vhost.h"

typedef struct VhostDev VhostDev;

/* Queues @first .. @first + backend->vrings - 1 of @vdev, as far as they exist. */
VhostDev *vhost_dev_new(VirtIODevice *vdev, VhostBackend *backend, unsigned first);
/* Stops it; the back end stays its owner's. */
void vhost_dev_free(VhostDev *dev);

VhostBackend *vhost_dev_backend(const VhostDev *dev);
/* At the next start, features besides those that the driver accepted (VHOST_NET_F_VIRTIO_NET_HDR),
 * and accepted ones that are not in force. */
void vhost_dev_set_features(VhostDev *dev, uint64_t extra, uint64_t off);
/* Queues of the device from @limit on are not handed over (the control queue; multiqueue that the
 * driver did not accept). */
void vhost_dev_set_limit(VhostDev *dev, unsigned limit);
/* Told to the back end at each start; 0: nothing. */
void vhost_dev_set_mtu(VhostDev *dev, uint16_t mtu);

/* Hands over every queue that the driver has set up.  Nothing of the device's own may be out
 * (virtqueue_inuse() is taken back).  On failure everything is as before. */
gboolean vhost_dev_start(VhostDev *dev, GError **errp);
void vhost_dev_stop(VhostDev *dev);
bool vhost_dev_is_started(const VhostDev *dev);
/* It was started, but the connection on which it was is not there any more. */
bool vhost_dev_lost(const VhostDev *dev);
/* The driver reset the device (after stop). */
void vhost_dev_reset(VhostDev *dev);

/* One queue of the device comes or goes while the others run; @index is the device's. */
gboolean vhost_dev_start_queue(VhostDev *dev, unsigned index, GError **errp);
void vhost_dev_stop_queue(VhostDev *dev, unsigned index);
/* Queues that the driver uses (multiqueue): the first @pairs pairs; also before start. */
gboolean vhost_dev_enable_pairs(VhostDev *dev, unsigned pairs, GError **errp);

/*
 * For migration: from now on back ends log which guest memory they write.  What they have written
 * is marked in the DmaSpaces' dirty logs by vhost_log_sync(), and when they stop.  A back end that
 * cannot log works over shared memory, all of which migration sends again at the end.  Devices
 * stand still while this is called.
 */
void vhost_set_logging(bool on);
void vhost_log_sync(void);

#endif
