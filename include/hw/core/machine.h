/*
 * Machines: what holds RAM, buses and I/O spaces together.  `-machine pc,memory-backend=ID`.
 * One machine a process.  Main thread.
 */
#ifndef HW_CORE_MACHINE_H
#define HW_CORE_MACHINE_H

#include "hw/core/io.h"
#include "hw/core/memory-map.h"
#include "qom/object.h"

typedef struct MachineState MachineState;
typedef struct MachineClass MachineClass;
typedef struct MemoryBackend MemoryBackend;

struct MachineState {
    Object parent_obj;
    uint64_t ram_size;               /* set by -m; 0: the back end's, or the machine's default */
    char *memory_backend;            /* id, or NULL: an anonymous one of ram_size is made */
    bool mem_merge, dump_guest_core; /* defaults of back ends */
    GPtrArray *ram;                  /* MemoryBackend*, in order of guest address */
    MemoryMap *memory;               /* RAM of the guest */
    IoSpace mmio, ports;
    DmaSpace dma; /* CPU's view: qtest reads and writes through it */
    void (*irq_intercept)(void *opaque, int line, int level);
    void *irq_intercept_opaque;
    /* Inputs of the interrupt controller, a bit each: up by devices, by somebody else, and told. */
    uint32_t irq_devices, irq_in, irq_told;
};

struct MachineClass {
    ObjectClass parent_class;
    const char *name;  /* "pc-i440fx-…", "none" */
    const char *alias; /* "pc" or NULL */
    const char *desc;
    bool is_default;
    bool hotpluggable_cpus, numa_mem_supported;
    int max_cpus;
    const char *default_cpu_type, *default_ram_id;
    uint64_t default_ram_size; /* 0: a machine without RAM */
    uint64_t ram_below_4g;     /* RAM beyond this continues at 4 GiB; 0: no hole */
    gboolean (*init)(MachineState *machine, GError **errp); /* RAM is there; make buses */
    /* Whether @qom_path is the interrupt controller, whose inputs irq_intercept tells of. */
    bool (*irq_intercept_in)(MachineState *machine, const char *qom_path);
    unsigned irq_inputs; /* it has so many; at most 32 */
    const void *vmsd; /* migration table of what no device holds, or NULL; opaque here */
};

QOM_DECLARE_TYPE(MachineState, MachineClass, machine, MACHINE)
#define TYPE_MACHINE (machine_get_type())

extern MachineState *current_machine; /* NULL before it is made */

/* Class with this name or alias; NULL with an error that lists what there is. */
MachineClass *machine_class_find(const char *name, GError **errp);
MachineClass *machine_class_default(void);
/* Makes /machine and its containers; properties may then be set. */
MachineState *machine_new(MachineClass *mc);
/* -numa node,memdev=ID, in order of nodes; before machine_init(). */
gboolean machine_add_ram_backend(MachineState *machine, const char *id, GError **errp);
/* RAM from the back ends, then mc->init.  On failure the process should end, or machine_free(). */
gboolean machine_init(MachineState *machine, GError **errp);
/* Unrealizes every device, removes /machine and gives the back ends free. */
void machine_free(MachineState *machine);
/* Physical address access by the "CPU" (qtest): RAM, MMIO, unassigned.  An aligned access of 1, 2,
 * 4 or 8 bytes to MMIO is one access of that width. */
void machine_read(MachineState *machine, uint64_t addr, void *buf, size_t size);
void machine_write(MachineState *machine, uint64_t addr, const void *buf, size_t size);
/* The levels that devices give the inputs of the interrupt controller, a bit each, are @lines now:
 * who intercepts them is told of what changes. */
void machine_set_irq_lines(MachineState *machine, uint32_t lines);
/* Holds input @line up besides the devices, or lets it go.  False: there is no such input. */
bool machine_set_irq_in(MachineState *machine, unsigned line, bool level);

void machine_register_types(void);
void machine_none_register_types(void);

#endif
