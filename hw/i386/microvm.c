/*
 * The machine `microvm`: RAM, fw_cfg and eight virtio-mmio slots, no PCI.  Addresses, interrupt
 * lines and bus names are QEMU's: slot N at 0xFEB00000 + N * 0x200, line 5 + N,
 * "virtio-mmio-bus.N".  A device without bus= goes to the highest free slot.
 *
 * Interrupt levels may change in any thread; what qtest is told is made in the main thread.
 */
#include "hw/i386/pc.h"
#include "hw/virtio/virtio-mmio.h"
#include "migration/vmstate.h"

#define SLOTS             8
#define SLOT_BASE         0xfeb00000ull
#define FIRST_IRQ         5
#define MICROVM_RAM       (128ull * 1024 * 1024)
#define MICROVM_BELOW_4G  0xc0000000ull

typedef struct MicrovmMachine {
    MachineState parent_obj;
    FwCfg fw_cfg;
    uint32_t levels; /* wanted; atomic */
    BottomHalf *irq_bh;
} MicrovmMachine;
typedef struct MicrovmMachineClass {
    MachineClass parent_class;
} MicrovmMachineClass;

static GType microvm_machine_get_type(void);
G_DEFINE_TYPE(MicrovmMachine, microvm_machine, TYPE_MACHINE)

static void irq_update(void *opaque)
{
    MicrovmMachine *microvm = opaque;
    uint32_t levels = __atomic_load_n(&microvm->levels, __ATOMIC_ACQUIRE);

    machine_set_irq_lines(&microvm->parent_obj, levels);
}

static void set_irq(void *opaque, unsigned irq, bool level)
{
    MicrovmMachine *microvm = opaque;

    if (level) {
        __atomic_fetch_or(&microvm->levels, 1u << irq, __ATOMIC_ACQ_REL);
    } else {
        __atomic_fetch_and(&microvm->levels, ~(1u << irq), __ATOMIC_ACQ_REL);
    }
    if (event_loop_is_current(event_loop_main())) {
        irq_update(microvm);
    } else {
        bh_schedule(microvm->irq_bh);
    }
}

static gboolean microvm_init(MachineState *machine, GError **errp)
{
    MicrovmMachine *microvm = (MicrovmMachine *)machine;

    microvm->irq_bh = bh_new(event_loop_main(), irq_update, microvm);
    fw_cfg_init(&microvm->fw_cfg, &machine->ports);
    fw_cfg_add_machine(&microvm->fw_cfg, machine);
    for (unsigned i = SLOTS; i-- > 0;) {
        if (!virtio_mmio_new(&machine->mmio, &machine->dma, SLOT_BASE + i * VIRTIO_MMIO_SIZE, i,
                             FIRST_IRQ + i, set_irq, microvm, errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

static bool microvm_irq_intercept_in(MachineState *machine, const char *qom_path)
{
    (void)machine;
    return g_str_has_suffix(qom_path, "ioapic");
}

/* --- migration: interrupt levels follow from the devices --- */

typedef struct MicrovmSaved {
    uint16_t fw_cfg_item;
    uint32_t fw_cfg_offset;
} MicrovmSaved;

static void microvm_saved_fill(void *state, void *opaque)
{
    MicrovmSaved *s = state;
    const MicrovmMachine *microvm = opaque;

    s->fw_cfg_item = microvm->fw_cfg.selected;
    s->fw_cfg_offset = microvm->fw_cfg.offset;
}

static void microvm_saved_apply(void *state, void *opaque)
{
    const MicrovmSaved *s = state;
    MicrovmMachine *microvm = opaque;

    microvm->fw_cfg.selected = s->fw_cfg_item;
    microvm->fw_cfg.offset = s->fw_cfg_offset;
}

static const VMStateDescription vmstate_microvm = {
    .name = "microvm",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(MicrovmSaved),
    .fill = microvm_saved_fill,
    .apply = microvm_saved_apply,
    .fields =
        (const VMStateField[]){
            VMS_UINT16(MicrovmSaved, fw_cfg_item),
            VMS_UINT32(MicrovmSaved, fw_cfg_offset),
            VMS_END,
        },
};

/* --- the class --- */

static void microvm_finalize(GObject *obj)
{
    MicrovmMachine *microvm = (MicrovmMachine *)obj;

    if (microvm->irq_bh) {
        fw_cfg_cleanup(&microvm->fw_cfg, &microvm->parent_obj.ports);
        bh_delete(microvm->irq_bh);
    }
    G_OBJECT_CLASS(microvm_machine_parent_class)->finalize(obj);
}

static void microvm_machine_init(MicrovmMachine *microvm)
{
    (void)microvm;
}

static void microvm_machine_class_init(MicrovmMachineClass *klass)
{
    MachineClass *machine_class = &klass->parent_class;

    machine_class->parent_class.qom_name = "microvm-machine";
    machine_class->name = "microvm";
    machine_class->desc = "microvm (i386)";
    machine_class->max_cpus = 1;
    machine_class->default_ram_id = "microvm.ram";
    machine_class->default_ram_size = MICROVM_RAM;
    machine_class->ram_below_4g = MICROVM_BELOW_4G;
    machine_class->init = microvm_init;
    machine_class->irq_intercept_in = microvm_irq_intercept_in;
    machine_class->irq_inputs = IOAPIC_INPUTS;
    machine_class->vmsd = &vmstate_microvm;
    G_OBJECT_CLASS(klass)->finalize = microvm_finalize;
}

void microvm_register_types(void)
{
    qom_register_type(microvm_machine_get_type());
}
