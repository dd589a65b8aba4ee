/*
 * The `pc` machine class.  Its versions differ in nothing but their name, which the migration
 * stream carries: a stream saved by QEMU's pc-i440fx-X loads into ours of the same name.
 *
 * Not here: RAM (hw/core/machine.c lays it out), the parts on the board (pci-host.c and others).
 */
#include <string.h>

#include "hw/i386/pc.h"

#define PC_RAM_SIZE     (128ull * 1024 * 1024)
#define PC_RAM_BELOW_4G 0xe0000000ull /* the PCI window begins there */

typedef struct PcMachine {
    MachineState parent_obj;
} PcMachine;
typedef struct PcMachineClass {
    MachineClass parent_class;
} PcMachineClass;

GType pc_machine_get_type(void);
G_DEFINE_ABSTRACT_TYPE(PcMachine, pc_machine, TYPE_MACHINE)

static const X86MachineVersion versions[] = {
    X86_MACHINE_VERSION(PC_MACHINE_DEFAULT, "PcMachine-7-2", .alias = "pc", .is_default = true),
    X86_MACHINE_VERSION("pc-i440fx-10.2", "PcMachine-10-2"),
    X86_MACHINE_VERSION("pc-i440fx-11.0", "PcMachine-11-0"),
    X86_MACHINE_VERSION("pc-i440fx-11.1", "PcMachine-11-1"),
};

/* QEMU's path is /machine/i440fx/ioapic; clients use the partial one. */
static bool pc_irq_intercept_in(MachineState *machine, const char *qom_path)
{
    return strcmp(qom_path, "ioapic") == 0 || strcmp(qom_path, "i440fx/ioapic") == 0 ||
           strcmp(qom_path, "/machine/i440fx/ioapic") == 0;
}

static void pc_machine_init(PcMachine *pc) {}

static void pc_machine_class_init(PcMachineClass *klass)
{
    MachineClass *machine_class = &klass->parent_class;

    machine_class->parent_class.qom_name = "generic-pc-machine";
    machine_class->desc = "Standard PC (i440FX + PIIX, 1996)";
    machine_class->max_cpus = 1;
    machine_class->default_ram_id = "pc.ram";
    machine_class->default_ram_size = PC_RAM_SIZE;
    machine_class->ram_below_4g = PC_RAM_BELOW_4G;
    machine_class->init = pc_host_new;
    machine_class->irq_intercept_in = pc_irq_intercept_in;
    machine_class->irq_inputs = IOAPIC_INPUTS;
}

/* --- versions --- */

static void version_class_init(gpointer klass, gpointer data)
{
    MachineClass *machine_class = klass;
    const X86MachineVersion *version = data;

    machine_class->parent_class.qom_name = version->qom_name;
    machine_class->name = version->name;
    machine_class->alias = version->alias;
    machine_class->is_default = version->is_default;
}

void x86_machine_register_versions(GType parent, const X86MachineVersion *list, unsigned n)
{
    GTypeQuery base;

    qom_register_type(parent);
    g_type_query(parent, &base);
    for (unsigned i = 0; i < n; i++) {
        const GTypeInfo info = {
            .class_size = (guint16)base.class_size,
            .class_init = version_class_init,
            .class_data = &list[i],
            .instance_size = (guint16)base.instance_size,
        };
        GType type = g_type_from_name(list[i].gtype_name);

        if (!type) {
            type = g_type_register_static(parent, list[i].gtype_name, &info, 0);
        }
        qom_register_type(type);
    }
}

void hw_i386_register_types(void)
{
    pc_host_register_types();
    microvm_register_types();
    q35_host_register_types();
    x86_machine_register_versions(pc_machine_get_type(), versions, G_N_ELEMENTS(versions));
    q35_register_types();
}
