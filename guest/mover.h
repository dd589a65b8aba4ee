/*
 * Live migration of the guest's emulator while the guest's stack runs on.
 *
 * Each round starts another emulator, migrates to it and ends the old one.  The guest touches RAM
 * until the source has stopped its machine (pause-before-switchover), and goes on in the target's:
 * the same pages (x-ignore-shared), or the target's own, which then take their place here.
 */
#ifndef GUEST_MOVER_H
#define GUEST_MOVER_H

#include "guest/emulator.h"
#include "guest/pci.h"

/* Starts the emulator of round @round (0: the first of all) with @ram as its RAM and @more (may be
 * NULL) as further arguments. */
typedef Emulator *MoverStartFunc(void *opaque, unsigned round, GuestRam *ram,
                                 const char *const *more, GError **errp);

typedef struct Mover {
    MoverStartFunc *start;
    void *opaque;
    GuestPciBus *bus;   /* reached through the emulator's qtest socket */
    GuestRam *ram;      /* stays where it is in this process, whatever it maps */
    Emulator *emulator; /* the one that runs the guest now */
    GArray *pauses[2];  /* double, ms: how long the guest stood still; [1]: RAM was handed over */
} Mover;

/* One migration; the lwIP stack runs before and after.  RAM is copied in every other round.  False
 * with error: the guest is stopped, and all that is left is to end the emulator. */
bool mover_move(Mover *mover, unsigned round, GError **errp);

#endif
