/*
 * A Rig whose back end is a real tap, with the Wire on its far side.
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

#endif
