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

typedef struct Q35Version {
    const char *name, *qom_name, *gtype_name;
} Q35Version;
#define Q35_VERSION(version, gtype)                                                                \
    {                                                                                              \
        "pc-q35-" version, "pc-q35-" version "-machine", (gtype)                                   \
    }

/* The first has the alias `q35`. */
static const Q35Version versions[] = {
    Q35_VERSION("7.2", "Q35Machine-7-2"),
    Q35_VERSION("10.2", "Q35Machine-10-2"),
    Q35_VERSION("11.0", "Q35Machine-11-0"),
    Q35_VERSION("11.1", "Q35Machine-11-1"),
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
    machine_class->max_cpus = 1;
    machine_class->default_ram_id = "pc.ram";
    machine_class->default_ram_size = Q35_RAM_SIZE;
    machine_class->ram_below_4g = Q35_RAM_BELOW_4G;
    machine_class->init = q35_host_new;
    machine_class->irq_intercept_in = q35_irq_intercept_in;
}

static void version_class_init(gpointer klass, gpointer data)
{
    MachineClass *machine_class = klass;
    const Q35Version *version = data;

    machine_class->parent_class.qom_name = version->qom_name;
    machine_class->name = version->name;
    machine_class->desc = "Standard PC (Q35 + ICH9, 2009)";
    machine_class->alias = version == &versions[0] ? "q35" : NULL;
}

void q35_register_types(void)
{
    qom_register_type(q35_machine_get_type());
    for (unsigned i = 0; i < G_N_ELEMENTS(versions); i++) {
        const GTypeInfo info = {
            .class_size = sizeof(Q35MachineClass),
            .class_init = version_class_init,
            .class_data = &versions[i],
            .instance_size = sizeof(Q35Machine),
        };
        GType type = g_type_from_name(versions[i].gtype_name);
        if (!type) {
            type = g_type_register_static(q35_machine_get_type(), versions[i].gtype_name, &info, 0);
        }
        qom_register_type(type);
    }
}
