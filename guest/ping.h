/* ICMP echo over the guest's stack. */
#ifndef GUEST_PING_H
#define GUEST_PING_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct PingResult {
    unsigned sent, received;
    double min_ms, avg_ms, max_ms, stddev_ms; /* of the answered ones */
} PingResult;

/*
 * Sends @count echo requests of 56 bytes to @address (host byte order), one each 50 ms at the
 * earliest, and waits up to 1 s for each answer.  False with error when none can be sent;
 * unanswered ones are a result.
 */
bool ping_run(uint32_t address, unsigned count, PingResult *result, GError **errp);

#endif
