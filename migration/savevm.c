/*
 * The stream as a whole, saving: header, configuration, section headers and footers, the devices
 * and the description of all of it.
 */
#include <string.h>

#include "internal.h"
#include "util/json.h"
#include "util/runstate.h"

#define CAPABILITIES_SUBSECTION "configuration/capabilities"

static void write_name(VmWriter *w, const char *name)
{
    vm_write_uint(w, strlen(name), 1);
    vm_write(w, name, strlen(name));
}

/* Capabilities without which the destination would read the stream wrongly. */
static void write_capabilities(VmWriter *w)
{
    const char *name = MigrationCapability_str(MIGRATION_CAPABILITY_X_IGNORE_SHARED);

    vm_write_uint(w, VM_SUBSECTION, 1);
    write_name(w, CAPABILITIES_SUBSECTION);
    vm_write_uint(w, 1, 4);
    vm_write_uint(w, 1, 4);
    write_name(w, name);
}

static void write_configuration(VmWriter *w, const char *machine)
{
    vm_write_uint(w, VM_FILE_MAGIC, 4);
    vm_write_uint(w, VM_FILE_VERSION, 4);
    vm_write_uint(w, VM_CONFIGURATION, 1);
    vm_write_uint(w, strlen(machine), 4);
    vm_write(w, machine, strlen(machine));
}

void savevm_write_header(VmWriter *w, const bool *capabilities)
{
    write_configuration(w, migration_host->machine_name());
    if (capabilities[MIGRATION_CAPABILITY_X_IGNORE_SHARED]) {
        write_capabilities(w);
    }
    if (capabilities[MIGRATION_CAPABILITY_RETURN_PATH]) {
        vm_write_uint(w, VM_COMMAND, 1);
        vm_write_uint(w, SAVEVM_CMD_OPEN_RETURN_PATH, 2);
        vm_write_uint(w, 0, 2);
    }
}

static void write_head(VmWriter *w, uint8_t type, uint32_t id, const char *idstr, uint32_t instance,
                       int version)
{
    vm_write_uint(w, type, 1);
    vm_write_uint(w, id, 4);
    if (type == VM_SECTION_START || type == VM_SECTION_FULL) {
        write_name(w, idstr);
        vm_write_uint(w, instance, 4);
        vm_write_uint(w, (uint32_t)version, 4);
    }
}

void savevm_write_section(VmWriter *w, uint8_t type, const char *idstr, int version)
{
    write_head(w, type, SAVEVM_RAM_ID, idstr, 0, version);
}

void savevm_write_footer(VmWriter *w, uint32_t id)
{
    vm_write_uint(w, VM_SECTION_FOOTER, 1);
    vm_write_uint(w, id, 4);
}

/* --- devices --- */

static void write_device(VmWriter *w, uint32_t id, const MigrationDevice *dev, json_object *list)
{
    json_object *entry = json_object_new_object();

    json_put_string(entry, "name", dev->idstr);
    json_put_int(entry, "instance_id", dev->instance);
    write_head(w, VM_SECTION_FULL, id, dev->idstr, dev->instance, dev->vmsd->version);
    vmstate_save(w->out, dev->vmsd, dev->opaque, entry);
    savevm_write_footer(w, id);
    json_object_array_add(list, entry);
}

static json_object *describe_configuration(const char *machine)
{
    json_object *configuration = json_object_new_object();

    json_put_string(configuration, "vmsd_name", "configuration");
    json_put_int(configuration, "version", 1);
    json_object *fields = json_object_new_array();
    json_object *len = json_object_new_object(), *name = json_object_new_object();
    json_put_string(len, "name", "len");
    json_put_string(len, "type", "uint32");
    json_put_int(len, "size", 4);
    json_put_string(name, "name", "name");
    json_put_string(name, "type", "buffer");
    json_put_int(name, "size", (int64_t)strlen(machine));
    json_object_array_add(fields, len);
    json_object_array_add(fields, name);
    json_object_object_add(configuration, "fields", fields);
    return configuration;
}

/* Sections from @id on, the end mark, the description. */
static void write_devices(VmWriter *w, uint32_t id, const char *machine, const GArray *devices)
{
    json_object *description = json_object_new_object();
    json_object *list = json_object_new_array();

    json_object_object_add(description, "configuration", describe_configuration(machine));
    json_put_int(description, "page_size", MIGRATION_PAGE_SIZE);
    json_object_object_add(description, "devices", list);
    for (unsigned i = 0; i < devices->len; i++) {
        write_device(w, id++, &g_array_index(devices, MigrationDevice, i), list);
    }
    vm_write_uint(w, VM_EOF, 1);

    g_autofree char *text = json_to_string(description);
    vm_write_uint(w, VM_DESCRIPTION, 1);
    vm_write_uint(w, strlen(text), 4);
    vm_write(w, text, strlen(text));
    json_object_put(description);
}

void savevm_write_devices(GByteArray *out, bool vm_was_running)
{
    VmWriter w = {out, NULL};
    g_autoptr(GArray) devices = migration_host->devices();
    MigrationDevice ours = {g_strdup(vmstate_globalstate.name), 0, &vmstate_globalstate,
                            &vm_was_running};

    g_array_prepend_val(devices, ours);
    write_devices(&w, SAVEVM_RAM_ID + 1, migration_host->machine_name(), devices);
}

void savevm_write_only_devices(GByteArray *out, const char *machine, const GArray *devices)
{
    VmWriter w = {out, NULL};

    write_configuration(&w, machine);
    write_devices(&w, SAVEVM_RAM_ID + 1, machine, devices);
}

/* --- whether the VM ran --- */

typedef struct GlobalState {
    uint32_t size;
    char runstate[100];
} GlobalState;

static void globalstate_fill(void *state, void *parent)
{
    GlobalState *s = state;

    g_strlcpy(s->runstate, vm_state_name(*(bool *)parent ? VM_RUNNING : VM_PAUSED),
              sizeof(s->runstate));
    s->size = (uint32_t)strlen(s->runstate) + 1;
}

static gboolean globalstate_check(void *state, void *parent, GError **errp)
{
    GlobalState *s = state;

    s->runstate[sizeof(s->runstate) - 1] = '\0';
    return TRUE;
}

static void globalstate_apply(void *state, void *parent)
{
    *(bool *)parent = !strcmp(((GlobalState *)state)->runstate, "running");
}

const VMStateDescription vmstate_globalstate = {
    .name = "globalstate",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(GlobalState),
    .fill = globalstate_fill,
    .check = globalstate_check,
    .apply = globalstate_apply,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(GlobalState, size, .max = sizeof(((GlobalState *)0)->runstate)),
            VMS_BUFFER(GlobalState, runstate),
            VMS_END,
        },
};
