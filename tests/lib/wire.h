/*
 * The far side of a tap interface, in a network namespace of the test's own.
 *
 *      emulator ── tap fd │ interface ─┬─ packet socket (vnet headers): what the kernel was given
 *                         │            └─ bridge ── far tap (no header, no offloads): what is on
 *                         │                         the wire at the end, cut and summed
 *
 * The packet socket shows and sends frames as the kernel holds them, unfinished ones with their
 * virtio_net_hdr.  The far tap gets only finished ones: the kernel does what the header asks for.
 * Unexpected failures end the test program.
 */
#ifndef TESTS_LIB_WIRE_H
#define TESTS_LIB_WIRE_H

#include <glib.h>
#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stdint.h>

#define WIRE_MAX 66000 /* bytes a frame */

typedef struct Wire {
    char ifname[16];
    int packet_fd;
    int far_fd; /* -1: not bridged */
} Wire;

/* Enters a new namespace, once, before there are threads.  False with *@reason (g_free it) where
 * there can be no taps. */
bool wire_enter(char **reason);
/* Attaches to interface @ifname, which exists: sets it up, quiet (no IPv6). */
void wire_open(Wire *wire, const char *ifname);
/* Adds the bridge and the far tap. */
void wire_bridge(Wire *wire);
void wire_close(Wire *wire);
void wire_set_up(const Wire *wire, bool up);

/* Sends one frame out of the interface, that is, to the tap's fd. */
void wire_send(Wire *wire, const struct virtio_net_hdr_v1 *header, const void *frame, size_t size);
/* The next frame that came in; 0: none within @ms. */
size_t wire_recv(Wire *wire, struct virtio_net_hdr_v1 *header, uint8_t frame[static WIRE_MAX],
                 unsigned ms);
/* The next frame at the far tap; 0: none within @ms. */
size_t wire_far_recv(Wire *wire, uint8_t frame[static WIRE_MAX], unsigned ms);

#endif
