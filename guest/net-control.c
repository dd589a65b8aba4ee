/*
 * The control virtqueue, driver's side: see net-control.h.
 *
 * A command is one chain: class, command and data for the device to read, one byte of answer for
 * it to write.
 */
#include "guest/net-control.h"
#include <gio/gio.h>
#include <linux/virtio_net.h>
#include <string.h>

#define QUEUE_SIZE 64
#define MAX_DATA   64
#define ANSWER_US  1000000
#define LOOK_US    100
#define NO_ANSWER  0xFF

typedef struct ControlMessage {
    struct virtio_net_ctrl_hdr hdr;
    uint8_t data[MAX_DATA];
    uint8_t ack;
} ControlMessage;

struct NetControl {
    VirtioDriver *virtio;
    DriverQueue *queue;
    uint64_t addr; /* the message's, guest-physical */
    ControlMessage *message;
};

/* Behind the queues of as many pairs as the device has, or of one where they do not count. */
static uint16_t control_index(VirtioDriver *virtio)
{
    uint16_t pairs = 1;
    if (virtio_driver_has_feature(virtio, VIRTIO_NET_F_MQ)) {
        pairs = (uint16_t)virtio_driver_config_read(
            virtio, 2, offsetof(struct virtio_net_config, max_virtqueue_pairs));
    }
    return (uint16_t)(2 * pairs);
}

NetControl *net_control_new(VirtioDriver *virtio, GError **errp)
{
    uint64_t addr = guest_ram_alloc(virtio->ram, sizeof(ControlMessage), 64);
    if (!addr) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_NO_SPACE,
                    "guest RAM has no room for the control queue");
        return NULL;
    }
    DriverQueue *queue = virtio_driver_setup_queue(virtio, control_index(virtio), QUEUE_SIZE,
                                                   VIRTIO_MSI_NO_VECTOR, errp);
    if (!queue) {
        return NULL;
    }
    NetControl *control = g_new0(NetControl, 1);
    control->virtio = virtio;
    control->queue = queue;
    control->addr = addr;
    control->message = guest_ram_pointer(virtio->ram, addr, sizeof(ControlMessage));
    return control;
}

void net_control_free(NetControl *control)
{
    if (control) {
        driver_queue_free(control->queue);
        g_free(control);
    }
}

bool net_control_command(NetControl *control, uint8_t class, uint8_t command, const void *data,
                         size_t size, GError **errp)
{
    ControlMessage *message = control->message;
    DriverSegment segments[2] = {
        {control->addr, (uint32_t)(sizeof(message->hdr) + size)},
        {control->addr + offsetof(ControlMessage, ack), sizeof(message->ack)},
    };
    uint32_t len;
    g_assert(size <= MAX_DATA);
    message->hdr = (struct virtio_net_ctrl_hdr){class, command};
    memcpy(message->data, data, size);
    message->ack = NO_ANSWER;
    if (driver_queue_add(control->queue, segments, 1, 1, control) >= 0 &&
        driver_queue_publish(control->queue)) {
        virtio_driver_notify(control->virtio, control->queue->index);
    }
    for (unsigned us = 0; us < ANSWER_US && !driver_queue_has_used(control->queue); us += LOOK_US) {
        g_usleep(LOOK_US);
    }
    if (!driver_queue_take(control->queue, &len) || message->ack != VIRTIO_NET_OK) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "control command %u/%u: the device answers %s", class, command,
                    message->ack == NO_ANSWER ? "nothing" : "VIRTIO_NET_ERR");
        return false;
    }
    return true;
}
