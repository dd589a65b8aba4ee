/*
 * How long an event loop looks for events before it sleeps.
 *
 * Going to sleep and being woken costs tens of microseconds where a halted processor is another
 * machine's.  A loop whose last waits were short looks again for a while instead.  The length
 * follows the waits, as QEMU's iothreads do it: a wait that a longer look would have caught lets it
 * grow, one that no allowed look could have caught lets it shrink.
 */
#include <poll.h>
#include <sched.h>

#include "event-loop-priv.h"
#include "util/clock.h"

#define FIRST_NS 4000

void busy_poll_adapt(BusyPoll *poll, int64_t waited_ns)
{
    if (waited_ns <= poll->now_ns) {
        return;
    }
    if (waited_ns > poll->set.max_ns) {
        poll->now_ns = poll->set.shrink > 0 ? poll->now_ns / poll->set.shrink : 0;
    } else {
        int64_t grow = poll->set.grow > 0 ? poll->set.grow : 2;
        poll->now_ns = poll->now_ns > poll->set.max_ns / grow
                           ? poll->set.max_ns
                           : MIN(poll->now_ns ? poll->now_ns * grow : FIRST_NS, poll->set.max_ns);
    }
}

/* Who wants the processor gets it: a poll must never keep from running what it waits for. */
bool busy_poll_wait(const BusyPoll *poll_state, int fd, int64_t until_ns)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    int64_t begin = clock_get_ns(CLOCK_HOST);
    int64_t end = MIN(begin + poll_state->now_ns, until_ns);

    for (int64_t now = begin; now < end; now = clock_get_ns(CLOCK_HOST)) {
        if (poll(&pfd, 1, 0) > 0) {
            return true;
        }
        sched_yield();
    }
    return false;
}
