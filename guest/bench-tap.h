/*
 * A tap interface for benchmarks and tests, in a network namespace of this process's own.
 *
 * The namespace goes with the process and its children, so nothing can be left behind, and
 * nothing else sends on the interface.  The tap's fd goes to the emulator (or to a plain read and
 * write loop); the other side is a packet socket, whose frames carry a vnet header as well.
 */
#ifndef GUEST_BENCH_TAP_H
#define GUEST_BENCH_TAP_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define BENCH_TAP_HEADER 12 /* bytes of vnet header on the tap's fd, as set at the start */

typedef struct BenchTap {
    int fd;        /* of the tap: non-blocking, with vnet header */
    int packet_fd; /* AF_PACKET on the interface: non-blocking, vnet header of 10 bytes */
    char ifname[16];
} BenchTap;

/* Once, before there are threads.  Without root a user namespace is tried.  The loopback interface
 * is up in it.  False with error. */
bool bench_tap_enter_namespace(GError **errp);
/* A new interface, up, IPv6 off; offloads off.  False with error. */
bool bench_tap_open(BenchTap *tap, GError **errp);
/* Lets the kernel send checksums and TCP segmentation to the tap's fd, as a VMM would. */
bool bench_tap_enable_offloads(BenchTap *tap, GError **errp);
void bench_tap_close(BenchTap *tap);
/* From here on the packet socket receives frames of ethertype @type that come in. */
bool bench_tap_listen(BenchTap *tap, uint16_t type, GError **errp);
/* How many frames written to the fd the kernel has taken. */
bool bench_tap_count(const BenchTap *tap, uint64_t *taken, GError **errp);

#endif
