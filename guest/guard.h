/*
 * Ends the process in order on SIGINT, SIGTERM, SIGHUP, and when it takes too long: emulators it
 * started are killed and their directories removed first.
 */
#ifndef GUEST_GUARD_H
#define GUEST_GUARD_H

/* Once, before any other thread; @seconds 0: no limit of time. */
void guest_guard_start(unsigned seconds);
/* @fn is called then too, in another thread; NULL: nothing is. */
void guest_guard_on_end(void (*fn)(void));

#endif
