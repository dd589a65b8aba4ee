/*
 * The control virtqueue of a network device, driver's side (virtio 1.4, section 5.1.6.5).
 *
 * One command at a time, waited for by looking: the queue has no vector.
 */
#ifndef GUEST_NET_CONTROL_H
#define GUEST_NET_CONTROL_H

#include "guest/virtio-driver.h"

typedef struct NetControl NetControl;

/* Sets the queue up, which has to happen before DRIVER_OK; CTRL_VQ was negotiated. */
NetControl *net_control_new(VirtioDriver *virtio, GError **errp);
/* After the device is reset; NULL is fine. */
void net_control_free(NetControl *control);

/* Sends @size bytes of @data, at most 64; false with error when the device does not answer in time
 * or with anything but VIRTIO_NET_OK. */
bool net_control_command(NetControl *control, uint8_t class, uint8_t command, const void *data,
                         size_t size, GError **errp);

#endif
