/*
 * A Rig over a tap: see tap-rig.h.
 */
#include "tests/lib/tap-rig.h"

#include <string.h>

Rig *tap_rig_open(Wire *wire, const char *netdev, const char *device, VirtioDriverFeatures features)
{
    Rig *rig = rig_open(&(RigConfig){.netdev = netdev, .device = device, .features = features});

    wire_open(wire, TAP_RIG_IFNAME);
    rig_start(rig);
    return rig;
}

void tap_rig_close(Rig *rig, Wire *wire)
{
    wire_close(wire);
    rig_free(rig);
}

void tap_rig_send(Rig *rig, const BuiltFrame *built)
{
    uint64_t addr = rig_alloc(rig, RIG_HDR + built->size);
    struct vring_used_elem used;

    memcpy(rig_at(rig, addr, RIG_HDR), &built->header, RIG_HDR);
    memcpy(rig_at(rig, addr + RIG_HDR, built->size), built->bytes, built->size);
    ring_set(rig->tx, 0, addr, (uint32_t)(RIG_HDR + built->size), 0, 0);
    ring_send(rig, rig->tx, 0);
    used = ring_take(rig, rig->tx);
    g_assert_cmpuint(used.id, ==, 0);
}
