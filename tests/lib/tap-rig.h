/*
 * A Rig whose back end is a real tap, with the Wire on its far side: frames sent and received as
 * the driver's rings have them, and lists of frames as they must be on the wire at the end.
 */
#ifndef TESTS_LIB_TAP_RIG_H
#define TESTS_LIB_TAP_RIG_H

#include "tests/lib/frame-builder.h"
#include "tests/lib/rig.h"
#include "tests/lib/wire.h"

#define TAP_RIG_IFNAME "wire0"
#define TAP_RIG_NETDEV "tap,id=n0,ifname=" TAP_RIG_IFNAME ",script=no,downscript=no"

/* @netdev names TAP_RIG_IFNAME; @device and @features as in RigConfig. */
Rig *tap_rig_open(Wire *wire, const char *netdev, const char *device,
                  VirtioDriverFeatures features);
void tap_rig_close(Rig *rig, Wire *wire);
/* Sends a frame with its header through the TX ring. */
void tap_rig_send(Rig *rig, const BuiltFrame *built);
/* The same with a header of @header_size bytes, for drivers whose header is not RIG_HDR long. */
void tap_rig_send_raw(Rig *rig, const void *header, size_t header_size, const void *frame,
                      size_t size);
/* Lets the driver have @count RX buffers on offer, of a size that every frame fits. */
void tap_rig_post(Rig *rig, unsigned count);
/* The next frame that the driver got, *@size bytes behind a header of @header_size, which is
 * copied to @header; NULL: none within @ms. */
uint8_t *tap_rig_recv(Rig *rig, void *header, size_t header_size, size_t *size, unsigned ms);
/* GUEST_OFFLOADS_SET, which is what a driver does when it gets or loses an XDP program; how it is
 * acknowledged. */
uint8_t tap_rig_set_offloads(Rig *rig, uint64_t offloads);
/* Whether this kernel's taps can be told TUNSETOFFLOAD @flags: independent of the device's own
 * probing. */
bool tap_rig_kernel_takes(unsigned flags);

/* Lists of frames: GByteArrays. */
GPtrArray *frame_list_new(void);
void frame_list_add(GPtrArray *list, const void *frame, size_t size);
/* What must become of a frame, which is correct (frame_finish()). */
GPtrArray *frame_list_finish(const struct virtio_net_hdr_v1 *header, const uint8_t *frame,
                             size_t size);
void frame_list_expect_same(GPtrArray *got, GPtrArray *wanted);
/* Adds what comes out at the far tap until @list has @count frames. */
void frame_list_add_far(GPtrArray *list, Wire *wire, unsigned count);

#endif
