/* The machine `none`: no RAM, no buses.  For asking what types, machines and properties exist. */
#include "hw/core/machine.h"

typedef struct NoneMachine {
    MachineState parent_obj;
} NoneMachine;
typedef struct NoneMachineClass {
    MachineClass parent_class;
} NoneMachineClass;

static GType none_machine_get_type(void);
G_DEFINE_TYPE(NoneMachine, none_machine, TYPE_MACHINE)

static void none_machine_class_init(NoneMachineClass *klass)
{
    MachineClass *mc = &klass->parent_class;
    mc->parent_class.qom_name = "none-machine";
    mc->name = "none";
    mc->desc = "empty machine";
}

static void none_machine_init(NoneMachine *machine) {}

void machine_none_register_types(void)
{
    qom_register_type(none_machine_get_type());
}
