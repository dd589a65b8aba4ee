/*
 * Numbered frames of all lengths, both ways at once, between a driver and a datagram socket: two
 * threads at each end.  Each frame is compared with what its number says, and none may be missing,
 * come twice or out of order; a test does to the device what it likes meanwhile.
 */
#ifndef TESTS_LIB_TRAFFIC_H
#define TESTS_LIB_TRAFFIC_H

#include <pthread.h>

#include "guest/net-driver.h"

typedef struct Traffic {
    NetDriver *driver;
    int wire;                /* the other end of the device's -netdev dgram */
    bool stop;               /* atomic, like the counters */
    uint32_t sent, left;     /* by the driver, off the wire */
    uint32_t fed, arrived;   /* onto the wire, at the driver */
    int64_t gap_ns, last_ns; /* the longest time without a frame off the wire */
    pthread_t threads[4];
} Traffic;

void traffic_start(Traffic *t, NetDriver *driver, int wire);
/* Until @frames more have passed each way. */
void traffic_wait(Traffic *t, uint32_t frames);
void traffic_stop(Traffic *t);

#endif
