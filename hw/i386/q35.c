/* The `q35` machine classes: versions that differ in their name only, see pc.c. */
#include <string.h>

#include "hw/i386/q35.h"

#define Q35_RAM_SIZE     (128ull << 20)
#define Q35_RAM_BELOW_4G 0x80000000ull /* ECAM and the PCI window are above */

typedef struct Q35Machine {
    MachineState parent_obj;
} Q35Machine;
typedef struct Q35MachineClass {
    MachineClass parent_class;
} Q35MachineClass;

GType q35_machine_get_type(void);
G_DEFINE_ABSTRACT_TYPE(Q35Machine, q35_machine, TYPE_MACHINE)

static const X86MachineVersion versions[] = {
    X86_MACHINE_VERSION("pc-q35-7.2", "Q35Machine-7-2", .alias = "q35"),
    X86_MACHINE_VERSION("pc-q35-10.2", "Q35Machine-10-2"),
    X86_MACHINE_VERSION("pc-q35-11.0", "Q35Machine-11-0"),
    X86_MACHINE_VERSION("pc-q35-11.1", "Q35Machine-11-1"),
};

static bool q35_irq_intercept_in(MachineState *machine, const char *qom_path)
{
    return strcmp(qom_path, "ioapic") == 0 || strcmp(qom_path, "q35/ioapic") == 0 ||
           strcmp(qom_path, "/machine/q35/ioapic") == 0;
}

static void q35_machine_init(Q35Machine *q35) {}

static void q35_machine_class_init(Q35MachineClass *klass)
{
    MachineClass *machine_class = &klass->parent_class;

    machine_class->parent_class.qom_name = "generic-q35-machine";
    machine_class->desc = "Standard PC (Q35 + ICH9, 2009)";
    machine_class->max_cpus = 1;
    machine_class->default_ram_id = "pc.ram";
    machine_class->default_ram_size = Q35_RAM_SIZE;
    machine_class->ram_below_4g = Q35_RAM_BELOW_4G;
    machine_class->init = q35_host_new;
    machine_class->irq_intercept_in = q35_irq_intercept_in;
    machine_class->irq_inputs = IOAPIC_INPUTS;
}

void q35_register_types(void)
{
    x86_machine_register_versions(q35_machine_get_type(), versions, G_N_ELEMENTS(versions));
}
