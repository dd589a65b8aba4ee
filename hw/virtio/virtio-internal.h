/* Between the files of VirtIODevice: virtio.c (status, features, running) and virtio-queue.c. */
#ifndef HW_VIRTIO_VIRTIO_INTERNAL_H
#define HW_VIRTIO_VIRTIO_INTERNAL_H

#include <linux/virtio_ring.h>

#include "hw/virtio/virtio.h"

void virtio_queues_init(VirtIODevice *vdev);
void virtio_queues_cleanup(VirtIODevice *vdev);
/* Ring rules from the negotiated features, for every queue that has addresses. */
void virtio_queues_apply_rules(VirtIODevice *vdev);
/* Handlers may run from here on; when stop returns, none runs any more. */
void virtio_queues_start(VirtIODevice *vdev);
void virtio_queues_stop(VirtIODevice *vdev);
void virtio_queues_reset(VirtIODevice *vdev);

/* The device is broken until reset.  Any thread. */
void virtio_device_break(VirtIODevice *vdev);

#endif
