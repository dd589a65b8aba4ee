/*
 * The stream as a whole, loading.
 *
 * Reading (in the incoming thread) puts RAM in its place and keeps what it read of the devices
 * aside.  loadvm_finish() (main thread, at the end of the stream) lets every device check its part,
 * and only when all are content gives each its state: so a bad stream leaves the devices as they
 * were.  Sections are known by their names; each device's must come once, and all must come.
 */
#include <inttypes.h>
#include <string.h>

#include "internal.h"
#include "util/error.h"

#define DESCRIPTION_MAX  (64u << 20)
#define MACHINE_NAME_MAX 256u

struct LoadState {
    RamState *ram;     /* NULL: there is none in the stream */
    GArray *devices;   /* MigrationDevice */
    GPtrArray *loaded; /* VMStateLoaded by device, or NULL */
    bool capabilities[MIGRATION_CAPABILITY__MAX];
    char *machine;
    bool vm_was_running;
    bool answer_wanted;
    uint32_t ram_id; /* of the RAM section, once it began */
    enum { RAM_NOT_YET, RAM_COMING, RAM_DONE } ram_state;
    char section[256 + 16];
};

LoadState *loadvm_new_devices(const char *machine, GArray *devices)
{
    LoadState *load = g_new0(LoadState, 1);

    load->machine = g_strdup(machine);
    load->devices = devices;
    load->loaded = g_ptr_array_new_with_free_func((GDestroyNotify)vmstate_free);
    g_ptr_array_set_size(load->loaded, (int)devices->len);
    return load;
}

LoadState *loadvm_new(GError **errp)
{
    bool ignore_shared = migration_options.capabilities[MIGRATION_CAPABILITY_X_IGNORE_SHARED];
    LoadState *load = loadvm_new_devices(migration_host->machine_name(), migration_host->devices());
    MigrationDevice ours = {g_strdup(vmstate_globalstate.name), 0, &vmstate_globalstate,
                            &load->vm_was_running};

    load->vm_was_running = true;
    memcpy(load->capabilities, migration_options.capabilities, sizeof(load->capabilities));
    g_array_append_val(load->devices, ours);
    g_ptr_array_set_size(load->loaded, (int)load->devices->len);
    load->ram = ram_state_new(ignore_shared, errp);
    if (!load->ram) {
        loadvm_free(load);
        return NULL;
    }
    return load;
}

void loadvm_free(LoadState *load)
{
    if (load) {
        g_ptr_array_unref(load->loaded);
        g_array_unref(load->devices);
        ram_state_free(load->ram);
        g_free(load->machine);
        g_free(load);
    }
}

bool loadvm_answer_wanted(const LoadState *load)
{
    return load->answer_wanted;
}

/* --- configuration --- */

static bool ignores_shared(const LoadState *load)
{
    return load->ram && load->ram->ignore_shared;
}

static void load_capabilities(LoadState *load, VmReader *r)
{
    uint32_t count = (uint32_t)vm_read_uint(r, 4);
    bool theirs[MIGRATION_CAPABILITY__MAX] = {false};
    char name[256];

    if (count > MIGRATION_CAPABILITY__MAX) {
        vm_reader_fail(r, "number of capabilities %u > %d", count, MIGRATION_CAPABILITY__MAX);
        return;
    }
    for (uint32_t i = 0; i < count && !vm_reader_failed(r); i++) {
        vm_read_name(r, name);
        int capability = qapi_enum_find(MigrationCapability_names, name);

        if (vm_reader_failed(r)) {
            return;
        }
        if (capability < 0) {
            vm_reader_fail(r, "capability '%s' is not known here", name);
            return;
        }
        theirs[capability] = true;
        if (!load->capabilities[capability]) {
            vm_reader_fail(r, "capability '%s' is on at the source and off here", name);
        }
    }
    if (ignores_shared(load) && !theirs[MIGRATION_CAPABILITY_X_IGNORE_SHARED]) {
        vm_reader_fail(r, "capability 'x-ignore-shared' is off at the source and on here");
    }
}

static void load_configuration(LoadState *load, VmReader *r)
{
    static const char subsection[] = "configuration/capabilities";
    uint32_t len;
    char name[MACHINE_NAME_MAX + 1] = {0};
    const uint8_t *next;

    r->section = "configuration";
    len = (uint32_t)vm_read_uint(r, 4);
    if (len > MACHINE_NAME_MAX) {
        vm_reader_fail(r, "length of the machine's name %u > %u", len, MACHINE_NAME_MAX);
        return;
    }
    vm_read(r, name, len);
    if (!vm_reader_failed(r) && strcmp(name, load->machine)) {
        vm_reader_fail(r, "the stream is of machine '%s', here is '%s'", name, load->machine);
        return;
    }
    next = vm_reader_peek(r, 1);
    if (!next || next[0] != VM_SUBSECTION) {
        if (ignores_shared(load)) {
            vm_reader_fail(r, "capability 'x-ignore-shared' is off at the source and on here");
        }
        return;
    }
    vm_reader_skip(r, 1);
    vm_read_name(r, name);
    if (!vm_reader_failed(r) && strcmp(name, subsection)) {
        vm_reader_fail(r, "has the unknown subsection '%s'", name);
        return;
    }
    vm_reader_skip(r, 4);
    load_capabilities(load, r);
}

/* --- sections --- */

static void load_footer(VmReader *r, uint32_t id)
{
    uint8_t mark = (uint8_t)vm_read_uint(r, 1);
    uint32_t its = (uint32_t)vm_read_uint(r, 4);

    if (vm_reader_failed(r)) {
        return;
    }
    g_string_truncate(r->path, 0);
    if (mark != VM_SECTION_FOOTER) {
        vm_reader_fail(r, "does not end where it should: 0x%02x instead of a footer", mark);
    } else if (its != id) {
        vm_reader_fail(r, "footer has section id %u, the section %u", its, id);
    }
}

static int find_device(LoadState *load, const char *idstr, uint32_t instance)
{
    for (unsigned i = 0; i < load->devices->len; i++) {
        const MigrationDevice *dev = &g_array_index(load->devices, MigrationDevice, i);

        if (dev->instance == instance && !strcmp(dev->idstr, idstr)) {
            return (int)i;
        }
    }
    return -1;
}

static void load_device(LoadState *load, VmReader *r, const char *idstr, uint32_t instance,
                        uint32_t version)
{
    int index = find_device(load, idstr, instance);
    GError *err = NULL;

    if (index < 0) {
        vm_reader_fail(r, "unknown section (instance %u): there is no such device here", instance);
        return;
    }
    if (g_ptr_array_index(load->loaded, (guint)index)) {
        vm_reader_fail(r, "section came twice");
        return;
    }
    const MigrationDevice *dev = &g_array_index(load->devices, MigrationDevice, index);
    if (version > INT32_MAX) {
        vm_reader_fail(r, "has version %u, %d to %d are known", version, dev->vmsd->minimum_version,
                       dev->vmsd->version);
        return;
    }
    load->loaded->pdata[index] = vmstate_load(r, dev->vmsd, (int)version, dev->opaque, &err);
    g_clear_error(&err); /* the reader keeps it too */
}

static void load_ram(LoadState *load, VmReader *r, uint8_t type, uint32_t version)
{
    if (type == VM_SECTION_START) {
        if (load->ram_state != RAM_NOT_YET) {
            vm_reader_fail(r, "section came twice");
            return;
        }
        if (version != SAVEVM_RAM_VERSION) {
            vm_reader_fail(r, "has version %u, %d is known", version, SAVEVM_RAM_VERSION);
            return;
        }
        load->ram_state = RAM_COMING;
    } else if (load->ram_state == RAM_DONE) {
        vm_reader_fail(r, "goes on after its end");
        return;
    }
    ram_load_section(load->ram, r);
    if (type == VM_SECTION_END) {
        load->ram_state = RAM_DONE;
    }
}

static void load_section(LoadState *load, VmReader *r, uint8_t type)
{
    uint32_t id = (uint32_t)vm_read_uint(r, 4);
    char idstr[256] = "ram";
    uint32_t instance = 0, version = 0;

    g_string_truncate(r->path, 0);
    if (type == VM_SECTION_START || type == VM_SECTION_FULL) {
        vm_read_name(r, idstr);
        instance = (uint32_t)vm_read_uint(r, 4);
        version = (uint32_t)vm_read_uint(r, 4);
    } else if (load->ram_state == RAM_NOT_YET || id != load->ram_id) {
        g_snprintf(load->section, sizeof(load->section), "section %u", id);
        r->section = load->section;
        vm_reader_fail(r, "goes on without a beginning");
    }
    if (vm_reader_failed(r)) {
        return;
    }
    g_strlcpy(load->section, idstr, sizeof(load->section));
    r->section = load->section;
    if (type == VM_SECTION_FULL) {
        load_device(load, r, idstr, instance, version);
    } else if (load->ram && !strcmp(idstr, "ram") && instance == 0) {
        load->ram_id = type == VM_SECTION_START ? id : load->ram_id;
        load_ram(load, r, type, version);
    } else {
        vm_reader_fail(r, "unknown section (instance %u) in parts", instance);
    }
    load_footer(r, id);
}

static void load_command(LoadState *load, VmReader *r)
{
    uint16_t command = (uint16_t)vm_read_uint(r, 2);
    uint16_t len = (uint16_t)vm_read_uint(r, 2);

    r->section = "command";
    if (vm_reader_failed(r)) {
        return;
    }
    if (command == SAVEVM_CMD_OPEN_RETURN_PATH) {
        load->answer_wanted = true;
    } else if (command != SAVEVM_CMD_SWITCHOVER_START && command != SAVEVM_CMD_PING) {
        vm_reader_fail(r, "%u is not available here", command);
    }
    vm_reader_skip(r, len);
}

/* The description is for programs that look into streams; it may be missing. */
static void load_description(VmReader *r)
{
    const uint8_t *next = vm_reader_peek(r, 1);

    r->section = "description";
    if (!next || next[0] != VM_DESCRIPTION) {
        return;
    }
    vm_reader_skip(r, 1);
    uint32_t len = (uint32_t)vm_read_uint(r, 4);
    if (len > DESCRIPTION_MAX) {
        vm_reader_fail(r, "length %u > %u", len, DESCRIPTION_MAX);
    }
    vm_reader_skip(r, len);
}

static void check_complete(LoadState *load, VmReader *r)
{
    r->section = NULL;
    if (load->ram && load->ram_state != RAM_DONE && load->ram->total) {
        vm_reader_fail(r, "section 'ram' is missing or has no end");
    }
    for (unsigned i = 0; i < load->devices->len; i++) {
        const MigrationDevice *dev = &g_array_index(load->devices, MigrationDevice, i);

        /* Who saved without "globalstate" ran. */
        if (dev->vmsd != &vmstate_globalstate && !g_ptr_array_index(load->loaded, i)) {
            vm_reader_fail(r, "section '%s' is missing", dev->idstr);
        }
    }
}

static void load_stream(LoadState *load, VmReader *r)
{
    uint32_t magic, version;
    bool configured = false;

    r->section = "stream";
    magic = (uint32_t)vm_read_uint(r, 4);
    version = (uint32_t)vm_read_uint(r, 4);

    if (!vm_reader_failed(r) && (magic != VM_FILE_MAGIC || version != VM_FILE_VERSION)) {
        vm_reader_fail(r, "not a migration stream: it begins with 0x%08x and version %u", magic,
                       version);
    }
    while (!vm_reader_failed(r)) {
        uint8_t type;

        r->section = "stream";
        type = (uint8_t)vm_read_uint(r, 1);
        if (vm_reader_failed(r)) {
            return;
        }
        if (!configured && type != VM_CONFIGURATION) {
            vm_reader_fail(r, "does not begin with the configuration");
            return;
        }
        switch (type) {
        case VM_EOF:
            load_description(r);
            check_complete(load, r);
            return;
        case VM_CONFIGURATION:
            if (configured) {
                vm_reader_fail(r, "has the configuration twice");
            }
            configured = true;
            load_configuration(load, r);
            break;
        case VM_SECTION_START:
        case VM_SECTION_PART:
        case VM_SECTION_END:
        case VM_SECTION_FULL:
            load_section(load, r, type);
            break;
        case VM_COMMAND:
            load_command(load, r);
            break;
        default:
            vm_reader_fail(r, "has a section of unknown type 0x%02x at byte %" PRIu64, type,
                           r->position - 1);
        }
    }
}

gboolean loadvm_read(LoadState *load, VmReader *r, GError **errp)
{
    load_stream(load, r);
    r->section = NULL;
    return vm_reader_result(r, errp);
}

gboolean loadvm_finish(LoadState *load, bool *vm_was_running, GError **errp)
{
    for (unsigned i = 0; i < load->loaded->len; i++) {
        VMStateLoaded *loaded = g_ptr_array_index(load->loaded, i);

        if (loaded && !vmstate_check(loaded, errp)) {
            return FALSE;
        }
    }
    for (unsigned i = 0; i < load->loaded->len; i++) {
        VMStateLoaded *loaded = g_ptr_array_index(load->loaded, i);

        if (loaded) {
            vmstate_apply(loaded);
        }
    }
    *vm_was_running = load->vm_was_running;
    return TRUE;
}
