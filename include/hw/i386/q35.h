/*
 * The `q35` machine: a PC without a CPU with PCI Express.  Root bus "pcie.0" with the host bridge
 * at 00:00.0 and the ISA bridge at 00:1f.0; configuration space through ports and, where the
 * guest maps it, through memory (ECAM).  Devices are plugged behind pcie-root-port while it runs.
 */
#ifndef HW_I386_Q35_H
#define HW_I386_Q35_H

#include "hw/i386/pc.h"

typedef struct Q35Host {
    X86PciHost parent_obj;
    PCIDevice *mch; /* holds PCIEXBAR */
    IoRegion ecam;
    bool ecam_mapped;
} Q35Host;
typedef struct Q35HostClass {
    X86PciHostClass parent_class;
} Q35HostClass;

QOM_DECLARE_TYPE(Q35Host, Q35HostClass, q35_host, Q35_HOST)
#define TYPE_Q35_HOST (q35_host_get_type())

gboolean q35_host_new(MachineState *machine, GError **errp);

#endif
