/*
 * The machine: guest RAM, the two I/O spaces, and the view of them that a CPU has.
 *
 * machine_new() makes /machine; the command line then sets properties and RAM back ends;
 * machine_init() lays the back ends out from address 0 (around the hole that a PC has below
 * 4 GiB), puts the map in force and lets the class make its buses.  From then on qtest plays the
 * CPU through machine_read() and machine_write(): RAM by copying, everything else as accesses of
 * a width a device can see.
 */
#include "hw/core/machine.h"

#include <inttypes.h>
#include <string.h>

#include "hw/core/device.h"
#include "hw/core/iothread.h"
#include "memory-backend-internal.h"

#define GIB4 (UINT64_C(4) << 30)

MachineState *current_machine;

static const Property machine_props[] = {
    PROP_STRING("memory-backend", MachineState, memory_backend, "Id of the RAM's back end"),
    PROP_BOOL("mem-merge", MachineState, mem_merge, true, "Let the host merge equal pages of RAM"),
    PROP_BOOL("dump-guest-core", MachineState, dump_guest_core, true, "Include RAM in core dumps"),
    PROP_ABSENT("usb", "there is no USB controller"),
    PROP_ABSENT("graphics", "there is no display"),
    PROP_ABSENT("vmport", "there is no VMware port"),
    PROP_ABSENT("acpi", "there are no ACPI tables"),
    PROP_ABSENT("hpet", "there is no HPET"),
    PROP_ABSENT("smm", "there is no CPU that could enter SMM"),
    PROP_END,
};

/* Not "machine": machine_init() is the public function, not the instance init. */
static GType machine_base_get_type(void);
typedef MachineClass MachineStateClass; /* the name that the macro expects */
G_DEFINE_ABSTRACT_TYPE(MachineState, machine_base, TYPE_OBJECT)

GType machine_get_type(void)
{
    return machine_base_get_type();
}

/* --- the CPU's view --- */

/* Width of the next access of a transfer to MMIO: all of it if a CPU could do that at once. */
static unsigned mmio_width(uint64_t addr, size_t size)
{
    bool power = size == 1 || size == 2 || size == 4 || size == 8;
    return power && addr % size == 0 ? (unsigned)size : 1;
}

/* Moves @size bytes from what is not RAM; all ones, and false in the end, where nothing is. */
static bool mmio_read(MachineState *machine, uint64_t addr, uint8_t *buf, size_t size)
{
    bool all = true;
    unsigned width = mmio_width(addr, size);
    for (size_t at = 0; at < size; at += width) {
        uint64_t value;
        all &= io_space_read(&machine->mmio, addr + at, &value, width);
        value = GUINT64_TO_LE(value);
        memcpy(buf + at, &value, width);
    }
    return all;
}

static bool mmio_write(MachineState *machine, uint64_t addr, const uint8_t *buf, size_t size)
{
    bool all = true;
    unsigned width = mmio_width(addr, size);
    for (size_t at = 0; at < size; at += width) {
        uint64_t value = 0;
        memcpy(&value, buf + at, width);
        all &= io_space_write(&machine->mmio, addr + at, GUINT64_FROM_LE(value), width);
    }
    return all;
}

static bool machine_dma_read(void *opaque, uint64_t addr, void *buf, size_t size)
{
    return mmio_read(opaque, addr, buf, size);
}

static bool machine_dma_write(void *opaque, uint64_t addr, const void *buf, size_t size)
{
    return mmio_write(opaque, addr, buf, size);
}

static const DmaSpaceOps machine_dma_ops = {machine_dma_read, machine_dma_write};

/* Bytes of an access at @addr that lie in one piece of RAM (*range set) or in none (NULL). */
static size_t piece_len(MachineState *machine, uint64_t addr, size_t size,
                        const MemoryRange **range)
{
    *range = memory_map_find(machine->memory, addr);
    uint64_t len =
        *range ? (*range)->size - (addr - (*range)->addr) : memory_map_gap(machine->memory, addr);
    return (size_t)MIN(len, (uint64_t)size);
}

/* The part of [@addr, @addr + @size) below 2^64. */
static size_t clamp_to_space(uint64_t addr, size_t size)
{
    return addr && size > UINT64_MAX - addr + 1 ? (size_t)(UINT64_MAX - addr + 1) : size;
}

void machine_read(MachineState *machine, uint64_t addr, void *buf, size_t size)
{
    uint8_t *p = buf;
    size_t inside = clamp_to_space(addr, size);
    memset(p + inside, 0xff, size - inside);
    for (size_t len; inside; inside -= len, addr += len, p += len) {
        const MemoryRange *range;
        len = piece_len(machine, addr, inside, &range);
        if (range) {
            memcpy(p, range->host + (addr - range->addr), len);
        } else {
            mmio_read(machine, addr, p, len);
        }
    }
}

void machine_write(MachineState *machine, uint64_t addr, const void *buf, size_t size)
{
    const uint8_t *p = buf;
    size_t inside = clamp_to_space(addr, size);
    for (size_t len; inside; inside -= len, addr += len, p += len) {
        const MemoryRange *range;
        len = piece_len(machine, addr, inside, &range);
        if (!range) {
            mmio_write(machine, addr, p, len);
        } else if (!(range->flags & MEMORY_READONLY)) {
            memcpy(range->host + (addr - range->addr), p, len);
            dma_mark_dirty(&machine->dma, addr, len);
        }
    }
}

static void tell_irqs(MachineState *machine)
{
    uint32_t lines = machine->irq_devices | machine->irq_in;
    uint32_t changed = machine->irq_told ^ lines;

    machine->irq_told = lines;
    for (int i = 0; machine->irq_intercept && i < 32; i++) {
        if (changed & (1u << i)) {
            machine->irq_intercept(machine->irq_intercept_opaque, i, (lines >> i) & 1);
        }
    }
}

void machine_set_irq_lines(MachineState *machine, uint32_t lines)
{
    machine->irq_devices = lines;
    tell_irqs(machine);
}

bool machine_set_irq_in(MachineState *machine, unsigned line, bool level)
{
    if (line >= MACHINE_GET_CLASS(machine)->irq_inputs) {
        return false;
    }
    machine->irq_in = (machine->irq_in & ~(1u << line)) | (uint32_t)level << line;
    tell_irqs(machine);
    return true;
}

/* --- RAM --- */

/* Takes @backend as the next piece of RAM. */
static gboolean machine_take_ram(MachineState *machine, MemoryBackend *backend, GError **errp)
{
    if (backend->is_mapped) {
        return error_set(errp, "memory backend '%s' can't be used multiple times",
                         OBJECT(backend)->name);
    }
    backend->is_mapped = true;
    g_ptr_array_add(machine->ram, g_object_ref(backend));
    return TRUE;
}

gboolean machine_add_ram_backend(MachineState *machine, const char *id, GError **errp)
{
    if (!MACHINE_GET_CLASS(machine)->default_ram_size) {
        return error_set(errp, "Machine '%s' has no RAM: memory backend '%s' cannot be used",
                         MACHINE_GET_CLASS(machine)->name, id);
    }
    Object *obj = object_child(qom_container("/objects"), id);
    if (!obj) {
        return error_set(errp, "Memory backend '%s' not found", id);
    }
    if (!IS_MEMORY_BACKEND(obj) || !obj->completed) {
        return error_set(errp, "Object '%s' of type %s is not a memory backend", id,
                         object_type_name(obj));
    }
    return machine_take_ram(machine, MEMORY_BACKEND(obj), errp);
}

/* RAM that no option describes: in /objects like all back ends, under the machine's own name. */
static gboolean machine_add_default_ram(MachineState *machine, GError **errp)
{
    const MachineClass *mc = MACHINE_GET_CLASS(machine);
    const char *id = mc->default_ram_id ? mc->default_ram_id : "ram";
    Object *objects = qom_container("/objects");
    if (object_child(objects, id)) {
        return error_set(errp, "object's id conflicts with the default RAM id: %s", id);
    }
    Object *obj = object_new(memory_backend_ram_get_type());
    MEMORY_BACKEND(obj)->size = machine->ram_size ? machine->ram_size : mc->default_ram_size;
    object_add_child(objects, id, obj);
    if (!OBJECT_GET_CLASS(obj)->complete(obj, errp)) {
        object_unparent(obj);
        return FALSE;
    }
    obj->completed = true;
    return machine_take_ram(machine, MEMORY_BACKEND(obj), errp);
}

/* Chooses the back ends and settles ram_size. */
static gboolean machine_collect_ram(MachineState *machine, GError **errp)
{
    const MachineClass *mc = MACHINE_GET_CLASS(machine);
    const char *id =
        machine->memory_backend && *machine->memory_backend ? machine->memory_backend : NULL;
    if (id && machine->ram->len) {
        return error_set(errp,
                         "'-machine memory-backend=%s' and '-numa node,memdev' cannot be "
                         "used together",
                         id);
    }
    if (id && !machine_add_ram_backend(machine, id, errp)) {
        return FALSE;
    }
    if (!mc->default_ram_size) {
        machine->ram_size = 0;
        return TRUE;
    }
    if (!machine->ram->len && !machine_add_default_ram(machine, errp)) {
        return FALSE;
    }
    uint64_t total = 0;
    for (unsigned i = 0; i < machine->ram->len; i++) {
        uint64_t size = ((MemoryBackend *)machine->ram->pdata[i])->size;
        if (total + size < total) {
            return error_set(errp, "RAM of more than 2^64 bytes");
        }
        total += size;
    }
    if (machine->ram_size && machine->ram_size != total) {
        return error_set(errp, "%s (-m 0x%" PRIx64 ", memory backend%s 0x%" PRIx64 ")",
                         id ? "Machine memory size does not match the size of the memory backend"
                            : "total memory for NUMA nodes should equal RAM size",
                         machine->ram_size, machine->ram->len > 1 ? "s" : "", total);
    }
    machine->ram_size = total;
    return TRUE;
}

/* Appends @size bytes of @backend from @offset, to be seen at @addr. */
static void layout_add(GArray *ranges, MemoryBackend *backend, uint64_t addr, uint64_t offset,
                       uint64_t size)
{
    MemoryRange range = {
        .addr = addr,
        .size = size,
        .host = backend->host + offset,
        .fd = backend->share ? backend->fd : -1, /* what is written elsewhere is seen here */
        .offset = backend->offset + offset,
        .flags = backend->readonly ? MEMORY_READONLY : 0,
    };
    g_array_append_val(ranges, range);
}

/* Lays all back ends out in order: from 0 up to the hole, then from 4 GiB. */
static MemoryMap *machine_layout_ram(MachineState *machine, GError **errp)
{
    uint64_t low_max = MACHINE_GET_CLASS(machine)->ram_below_4g;
    g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(MemoryRange));
    uint64_t addr = 0;
    for (unsigned i = 0; i < machine->ram->len; i++) {
        MemoryBackend *backend = machine->ram->pdata[i];
        for (uint64_t offset = 0, size; offset < backend->size; offset += size) {
            if (low_max && addr == low_max) {
                addr = GIB4;
            }
            size = backend->size - offset;
            if (low_max && addr < low_max) {
                size = MIN(size, low_max - addr);
            }
            layout_add(ranges, backend, addr, offset, size);
            addr += size;
        }
    }
    return memory_map_new((MemoryRange *)(void *)ranges->data, ranges->len, errp);
}

gboolean machine_init(MachineState *machine, GError **errp)
{
    if (!machine_collect_ram(machine, errp)) {
        return FALSE;
    }
    MemoryMap *map = machine_layout_ram(machine, errp);
    if (!map) {
        return FALSE;
    }
    memory_map_unref(machine->memory);
    machine->memory = map;
    dma_space_set_map(&machine->dma, map);
    OBJECT(machine)->completed = true;
    const MachineClass *mc = MACHINE_GET_CLASS(machine);
    return !mc->init || mc->init(machine, errp);
}

/* --- classes and life --- */

typedef struct MachineQuery {
    const char *name; /* NULL: the default */
    MachineClass *found;
    GString *names;
} MachineQuery;

static void machine_match(GType type, void *opaque)
{
    MachineQuery *query = opaque;
    MachineClass *mc = g_type_class_peek(type);
    if (query->name ? !g_strcmp0(query->name, mc->name) || !g_strcmp0(query->name, mc->alias)
                    : mc->is_default) {
        query->found = mc;
    }
    g_string_append_printf(query->names, "%s%s", query->names->len ? ", " : "", mc->name);
    if (mc->alias) {
        g_string_append_printf(query->names, ", %s", mc->alias);
    }
}

MachineClass *machine_class_find(const char *name, GError **errp)
{
    MachineQuery query = {name, NULL, g_string_new(NULL)};
    qom_foreach_type(TYPE_MACHINE, false, machine_match, &query);
    if (!query.found) {
        error_set(errp, "unsupported machine type: \"%s\" (allowed: %s)", name, query.names->str);
    }
    g_string_free(query.names, TRUE);
    return query.found;
}

MachineClass *machine_class_default(void)
{
    MachineQuery query = {NULL, NULL, g_string_new(NULL)};
    qom_foreach_type(TYPE_MACHINE, false, machine_match, &query);
    g_string_free(query.names, TRUE);
    return query.found;
}

MachineState *machine_new(MachineClass *mc)
{
    g_assert(!current_machine && !object_child(qom_root(), "machine"));
    Object *obj = object_new(G_TYPE_FROM_CLASS(mc));
    object_add_child(qom_root(), "machine", obj);
    qom_container("/machine/peripheral");
    qom_container("/machine/peripheral-anon");
    qom_container("/machine/unattached");
    current_machine = MACHINE(obj);
    return current_machine;
}

/* Devices under @obj that hang on nothing; unrealizing them unrealizes all. */
static void unrealize_walk(Object *obj)
{
    if (IS_DEVICE(obj)) {
        device_unrealize(DEVICE(obj));
    }
    for (unsigned i = obj->children->len; i-- > 0;) {
        unrealize_walk(obj->children->pdata[i]);
    }
}

void machine_free(MachineState *machine)
{
    /* While the tree still stands: what goes away may still be named by its path. */
    unrealize_walk(OBJECT(machine));
    if (current_machine == machine) {
        current_machine = NULL;
    }
    device_set_machine_ready(false);
    object_unparent(OBJECT(machine));
}

static void machine_finalize(GObject *obj)
{
    MachineState *machine = MACHINE(obj);
    for (unsigned i = 0; i < machine->ram->len; i++) {
        MEMORY_BACKEND(machine->ram->pdata[i])->is_mapped = false;
    }
    /* The one we made ourselves goes with us. */
    const char *id = MACHINE_GET_CLASS(machine)->default_ram_id;
    Object *own = object_child(qom_container("/objects"), id ? id : "ram");
    if (own && g_ptr_array_find(machine->ram, own, NULL)) {
        object_unparent(own);
    }
    g_ptr_array_unref(machine->ram);
    dma_space_cleanup(&machine->dma);
    memory_map_unref(machine->memory);
    io_space_cleanup(&machine->mmio);
    io_space_cleanup(&machine->ports);
    G_OBJECT_CLASS(machine_base_parent_class)->finalize(obj);
}

static void machine_base_init(MachineState *machine)
{
    machine->ram = g_ptr_array_new_with_free_func(g_object_unref);
    machine->memory = memory_map_new(NULL, 0, NULL);
    io_space_init(&machine->mmio, "memory");
    io_space_init(&machine->ports, "io");
    dma_space_init(&machine->dma, &machine_dma_ops, machine);
}

static void machine_base_class_init(MachineClass *klass)
{
    klass->parent_class.qom_name = "machine";
    klass->max_cpus = 1;
    qom_class_set_props(klass, machine_props);
    G_OBJECT_CLASS(klass)->finalize = machine_finalize;
}

void machine_register_types(void)
{
    qom_register_type(TYPE_MACHINE);
}

void hw_core_register_types(void)
{
    device_register_types();
    machine_register_types();
    machine_none_register_types();
    memory_backend_register_types();
    iothread_register_types();
}
