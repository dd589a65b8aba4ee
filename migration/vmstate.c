/*
 * Saving and loading by migration tables.
 *
 * Both walk the table the same way.  Saving also describes what it wrote, field by field with
 * sizes, so that a program which knows nothing but this description can take the stream apart.
 * Loading keeps the path of the field that it is at, for messages: "queues[3].size 9 > 8".
 *
 * Knows no section headers (savevm.c) and no devices: fill, check and apply are the tables'.
 */
#include <inttypes.h>
#include <string.h>

#include "stream.h"
#include "util/error.h"
#include "util/json.h"

struct VMStateLoaded {
    const VMStateDescription *root;
    void *parent;
    char *section;
    void *state;
};

/* A field by which a description begins: at least one byte, so that allocations are never empty. */
static void *state_new(const VMStateDescription *vmsd)
{
    return g_malloc0(MAX(vmsd->state_size, 1));
}

static bool field_in(const VMStateField *field, const void *state, int version)
{
    return field->version <= version && (!field->exists || field->exists(state));
}

static uint32_t field_count(const VMStateField *field, const void *state)
{
    if (field->variable) {
        return *(const uint32_t *)((const uint8_t *)state + field->count_offset);
    }
    return field->capacity ? field->capacity : 1;
}

/* --- saving --- */

static int saved_version(const VMStateDescription *vmsd)
{
    return vmsd->save_version ? vmsd->save_version : vmsd->version;
}

static void save_state(VmWriter *w, const VMStateDescription *vmsd, void *state, void *view_parent,
                       json_object *description);

/* Whether every element of an array of these has the same form. */
static bool is_uniform(const VMStateDescription *vmsd)
{
    for (const VMStateField *f = vmsd->fields; f && f->name; f++) {
        if (f->variable || f->exists || (f->vmsd && !is_uniform(f->vmsd))) {
            return false;
        }
    }
    return !vmsd->subsections;
}

static json_object *describe_field(const VMStateField *field)
{
    json_object *entry = json_object_new_object();

    json_put_string(entry, "name", field->name);
    json_put_string(entry, "type", field->info ? field->info->type : "struct");
    return entry;
}

/* One element; its description is added to @w's fields if there are any. */
static json_object *save_element(VmWriter *w, const VMStateField *field, void *state, void *data)
{
    json_object *entry = w->fields ? describe_field(field) : NULL;
    guint before = w->out->len;

    if (field->info) {
        field->info->save(w, data, field);
    } else {
        json_object *inner = entry ? json_object_new_object() : NULL;
        VmWriter nested = {w->out, NULL};

        save_state(&nested, field->vmsd, field->size ? data : state, state, inner);
        if (entry) {
            json_object_object_add(entry, "struct", inner);
        }
    }
    if (entry) {
        json_put_int(entry, "size", w->out->len - before);
        json_object_array_add(w->fields, entry);
    }
    return entry;
}

/* An array of single bytes is one buffer. */
static bool is_bytes(const VMStateField *field)
{
    return field->info == &vmstate_info_buffer && field->capacity && field->size == 1;
}

static void save_field(VmWriter *w, const VMStateField *field, void *state)
{
    uint8_t *data = (uint8_t *)state + field->offset;
    uint32_t count = MIN(field_count(field, state), field->capacity ? field->capacity : 1);

    if (is_bytes(field)) {
        VMStateField whole = *field;

        whole.size = count;
        whole.capacity = 0;
        save_element(w, &whole, state, data);
        return;
    }

    bool uniform = field->info || is_uniform(field->vmsd);
    json_object *wanted = w->fields;

    for (uint32_t i = 0; i < count; i++) {
        json_object *entry;

        w->fields = i == 0 || !uniform ? wanted : NULL;
        entry = save_element(w, field, state, data + i * field->size);
        if (!entry || !field->capacity) {
            continue;
        }
        if (!uniform) {
            json_put_int(entry, "index", i);
        } else if (count > 1) {
            json_put_int(entry, "array_len", count);
        } else {
            json_put_int(entry, "index", 0);
        }
    }
    w->fields = wanted;
}

static void save_subsection(VmWriter *w, const VMStateDescription *sub, void *state,
                            json_object *list)
{
    json_object *description = list ? json_object_new_object() : NULL;

    vm_write_uint(w, VM_SUBSECTION, 1);
    vm_write_uint(w, strlen(sub->name), 1);
    vm_write(w, sub->name, strlen(sub->name));
    vm_write_uint(w, (uint32_t)saved_version(sub), 4);
    save_state(w, sub, state, state, description);
    if (list) {
        json_object_array_add(list, description);
    }
}

/* @state, or where @vmsd has a size of its own a view of @view_parent. */
static void save_state(VmWriter *w, const VMStateDescription *vmsd, void *state, void *view_parent,
                       json_object *description)
{
    g_autofree void *view = vmsd->state_size ? state_new(vmsd) : NULL;
    json_object *outer = w->fields, *list = NULL;

    if (view) {
        state = view;
        if (vmsd->fill) {
            vmsd->fill(view, view_parent);
        }
    }
    if (description) {
        json_put_string(description, "vmsd_name", vmsd->name);
        json_put_int(description, "version", saved_version(vmsd));
        json_object_object_add(description, "fields", json_object_new_array());
    }
    w->fields = description ? json_member(description, "fields") : NULL;
    for (const VMStateField *f = vmsd->fields; f && f->name; f++) {
        if (field_in(f, state, saved_version(vmsd))) {
            save_field(w, f, state);
        }
    }
    for (unsigned i = 0; vmsd->subsections && vmsd->subsections[i]; i++) {
        const VMStateDescription *sub = vmsd->subsections[i];

        if (sub->needed && !sub->needed(state)) {
            continue;
        }
        if (description && !list) {
            list = json_object_new_array();
            json_object_object_add(description, "subsections", list);
        }
        save_subsection(w, sub, state, list);
    }
    w->fields = outer;
}

void vmstate_save(GByteArray *out, const VMStateDescription *root, void *parent,
                  json_object *description)
{
    VmWriter w = {out, NULL};

    save_state(&w, root, parent, parent, description);
}

/* --- loading --- */

static void load_state(VmReader *r, const VMStateDescription *vmsd, int version, void *state,
                       void *view_parent);

static size_t path_push(VmReader *r, const VMStateField *field, unsigned index)
{
    size_t before = r->path->len;

    if (!field->info && !field->size) {
        return before; /* a part of the same structure: it has no name of its own in messages */
    }
    g_string_append_printf(r->path, "%s%s", before ? "." : "", field->name);
    if (field->capacity && !is_bytes(field)) {
        g_string_append_printf(r->path, "[%u]", index);
    }
    return before;
}

static void path_pop(VmReader *r, size_t before)
{
    g_string_truncate(r->path, before);
}

static void load_element(VmReader *r, const VMStateField *field, void *state, void *data)
{
    if (field->info) {
        field->info->load(r, data, field);
    } else {
        load_state(r, field->vmsd, field->vmsd->version, field->size ? data : state, state);
    }
}

/* Says where the count came from, which is the field that is wrong. */
static const char *count_name(const VMStateDescription *vmsd, const VMStateField *field)
{
    for (const VMStateField *f = vmsd->fields; f->name; f++) {
        if (f->offset == field->count_offset && f != field && f->info && f->info->size == 4) {
            return f->name;
        }
    }
    return field->name;
}

static void load_field(VmReader *r, const VMStateDescription *vmsd, const VMStateField *field,
                       void *state)
{
    uint8_t *data = (uint8_t *)state + field->offset;
    uint32_t count = field_count(field, state);
    uint32_t limit = MAX(field->limit, field->capacity);

    if (field->variable && count > limit) {
        g_string_append_printf(r->path, "%s%s", r->path->len ? "." : "", count_name(vmsd, field));
        vm_reader_fail(r, "%u > %u", count, field->capacity);
        return;
    }
    if (is_bytes(field)) {
        size_t before = path_push(r, field, 0);

        vm_read(r, data, MIN(count, field->capacity));
        vm_reader_skip(r, count - MIN(count, field->capacity));
        path_pop(r, before);
        return;
    }
    for (uint32_t i = 0; i < count && !vm_reader_failed(r); i++) {
        size_t before = path_push(r, field, i);

        if (field->capacity && i >= field->capacity) {
            vm_reader_skip(r, field->info->size ? field->info->size : field->size);
        } else {
            load_element(r, field, state, data + i * field->size);
        }
        if (!vm_reader_failed(r)) {
            path_pop(r, before);
        }
    }
}

static const VMStateDescription *find_subsection(const VMStateDescription *vmsd, const char *name,
                                                 unsigned *index)
{
    for (unsigned i = 0; vmsd->subsections && vmsd->subsections[i]; i++) {
        if (!strcmp(vmsd->subsections[i]->name, name)) {
            *index = i;
            return vmsd->subsections[i];
        }
    }
    return NULL;
}

/* Whether a subsection of @vmsd comes next; its name. */
static bool subsection_comes(VmReader *r, const VMStateDescription *vmsd, char name[256])
{
    const uint8_t *head = vm_reader_peek(r, 2);
    size_t len = strlen(vmsd->name);

    if (!head || head[0] != VM_SUBSECTION || head[1] <= len) {
        return false;
    }
    unsigned name_len = head[1];
    head = vm_reader_peek(r, 2 + name_len);
    if (!head || memcmp(head + 2, vmsd->name, len) || head[2 + len] != '/') {
        return false;
    }
    memcpy(name, head + 2, name_len);
    name[name_len] = '\0';
    return true;
}

static void load_subsection(VmReader *r, const VMStateDescription *sub, void *state)
{
    uint32_t version;

    vm_reader_skip(r, 2 + strlen(sub->name));
    version = (uint32_t)vm_read_uint(r, 4);
    if (vm_reader_failed(r)) {
        return;
    }
    if (version > (uint32_t)sub->version || version < (uint32_t)sub->minimum_version) {
        vm_reader_fail(r, "subsection %s has version %u, %d to %d are known", sub->name, version,
                       sub->minimum_version, sub->version);
        return;
    }
    load_state(r, sub, (int)version, state, state);
    if (sub->loaded && !vm_reader_failed(r)) {
        sub->loaded(state);
    }
}

static void load_subsections(VmReader *r, const VMStateDescription *vmsd, void *state)
{
    char name[256];
    uint64_t seen = 0;

    while (!vm_reader_failed(r) && subsection_comes(r, vmsd, name)) {
        unsigned index = 0;
        const VMStateDescription *sub = find_subsection(vmsd, name, &index);

        if (!sub) {
            vm_reader_fail(r, "has the unknown subsection '%s'", name);
        } else if (seen & (UINT64_C(1) << index)) {
            vm_reader_fail(r, "has subsection '%s' twice", name);
        } else {
            seen |= UINT64_C(1) << index;
            load_subsection(r, sub, state);
        }
    }
}

static void fail_with(VmReader *r, GError *err)
{
    vm_reader_fail(r, "%s", err->message);
    g_error_free(err);
}

static void load_fields(VmReader *r, const VMStateDescription *vmsd, int version, void *state)
{
    for (const VMStateField *f = vmsd->fields; f && f->name && !vm_reader_failed(r); f++) {
        if (field_in(f, state, version)) {
            load_field(r, vmsd, f, state);
        }
    }
    load_subsections(r, vmsd, state);
}

static void load_state(VmReader *r, const VMStateDescription *vmsd, int version, void *state,
                       void *view_parent)
{
    g_autofree void *view = vmsd->state_size ? state_new(vmsd) : NULL;
    GError *err = NULL;

    if (view) {
        state = view;
        if (vmsd->prepare) {
            vmsd->prepare(view, view_parent);
        }
    }
    load_fields(r, vmsd, version, state);
    if (vm_reader_failed(r)) {
        return;
    }
    if (vmsd->check && !vmsd->check(state, view_parent, &err)) {
        fail_with(r, err);
    } else if (vmsd->apply) {
        vmsd->apply(state, view_parent);
    }
}

VMStateLoaded *vmstate_load(VmReader *r, const VMStateDescription *root, int version, void *parent,
                            GError **errp)
{
    VMStateLoaded *loaded;

    if (version > root->version || version < root->minimum_version) {
        vm_reader_fail(r, "has version %d, %d to %d are known", version, root->minimum_version,
                       root->version);
        vm_reader_result(r, errp);
        return NULL;
    }
    loaded = g_new0(VMStateLoaded, 1);
    loaded->root = root;
    loaded->parent = parent;
    loaded->section = g_strdup(r->section ? r->section : root->name);
    loaded->state = state_new(root);
    if (root->prepare) {
        root->prepare(loaded->state, parent);
    }
    g_string_truncate(r->path, 0);
    load_fields(r, root, version, loaded->state);
    if (!vm_reader_result(r, errp)) {
        vmstate_free(loaded);
        return NULL;
    }
    return loaded;
}

gboolean vmstate_check(VMStateLoaded *loaded, GError **errp)
{
    if (loaded->root->check && !loaded->root->check(loaded->state, loaded->parent, errp)) {
        g_prefix_error(errp, "%s: ", loaded->section);
        return FALSE;
    }
    return TRUE;
}

void vmstate_apply(VMStateLoaded *loaded)
{
    if (loaded->root->apply) {
        loaded->root->apply(loaded->state, loaded->parent);
    }
}

void vmstate_free(VMStateLoaded *loaded)
{
    if (loaded) {
        g_free(loaded->section);
        g_free(loaded->state);
        g_free(loaded);
    }
}
