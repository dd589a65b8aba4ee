/* What the human monitor's Tab key offers: ids, types and property names, from the tables. */
#include <string.h>

#include "hw/core/device.h"
#include "qom/object.h"
#include "system.h"

static void offer(GPtrArray *words, const char *start, const char *word, const char *suffix)
{
    if (g_str_has_prefix(word, start)) {
        g_ptr_array_add(words, g_strconcat(word, suffix, NULL));
    }
}

/* The last word of @args: after the last blank, comma or slash. */
static const char *last_word(const char *args, const char *separators)
{
    const char *at = args + strlen(args);

    while (at > args && !strchr(separators, at[-1])) {
        at--;
    }
    return at;
}

typedef struct Offer {
    GPtrArray *words;
    const char *start;
} Offer;

static void offer_device_type(GType type, void *opaque)
{
    Offer *o = opaque;
    DeviceClass *klass = g_type_class_peek(type);

    if (klass->user_creatable_device) {
        offer(o->words, o->start, qom_type_name(type), "");
    }
}

static void offer_object_type(GType type, void *opaque)
{
    Offer *o = opaque;

    if (((ObjectClass *)g_type_class_peek(type))->user_creatable) {
        offer(o->words, o->start, qom_type_name(type), "");
    }
}

static void offer_property(const Property *prop, GType owner, void *opaque)
{
    Offer *o = opaque;

    if (!(prop->flags & (PROP_F_HIDDEN | PROP_F_READONLY))) {
        offer(o->words, o->start, prop->name, "=");
    }
}

/* "TYPE,prop=value,pro" */
static void complete_options(const char *args, GPtrArray *words, GType base,
                             void (*offer_type)(GType type, void *opaque))
{
    Offer o = {words, last_word(args, ",")};
    g_autofree char *first = g_strndup(args, strcspn(args, ","));
    GType type;

    if (!strchr(args, ',')) {
        qom_foreach_type(base, false, offer_type, &o);
        return;
    }
    type = qom_type_by_name(device_resolve_alias(first));
    if (type != G_TYPE_INVALID && !strchr(o.start, '=')) {
        qom_class_foreach_property(type, offer_property, &o);
        offer(words, o.start, "id", "=");
        if (g_type_is_a(type, TYPE_DEVICE)) {
            offer(words, o.start, "bus", "=");
        }
    }
}

void hmp_complete_device_add(const char *args, GPtrArray *words)
{
    complete_options(args, words, TYPE_DEVICE, offer_device_type);
}

void hmp_complete_object_add(const char *args, GPtrArray *words)
{
    complete_options(args, words, TYPE_OBJECT, offer_object_type);
}

static void offer_children(const char *path, const char *start, GPtrArray *words)
{
    Object *parent = qom_resolve_path(path, NULL);

    for (unsigned i = 0; parent && parent->children && i < parent->children->len; i++) {
        offer(words, start, ((Object *)g_ptr_array_index(parent->children, i))->name, "");
    }
}

void hmp_complete_device_id(const char *args, GPtrArray *words)
{
    offer_children("/machine/peripheral", args, words);
}

void hmp_complete_object_id(const char *args, GPtrArray *words)
{
    offer_children("/objects", args, words);
}

/* "PATH" or "PATH PROPERTY". */
void hmp_complete_qom(const char *args, GPtrArray *words)
{
    const char *blank = strchr(args, ' ');
    const char *start = last_word(args, " /");

    if (blank) {
        g_autofree char *path = g_strndup(args, blank - args);
        Object *obj = qom_resolve_path(path, NULL);
        Offer o = {words, start};
        if (obj && !strchr(blank + 1, ' ')) {
            Object *walk = obj;
            GPtrArray *names = g_ptr_array_new();
            o.words = names;
            qom_class_foreach_property(G_OBJECT_TYPE(walk), offer_property, &o);
            for (unsigned i = 0; i < names->len; i++) {
                char *name = names->pdata[i];
                name[strlen(name) - 1] = '\0'; /* without '=' */
                g_ptr_array_add(words, name);
            }
            g_ptr_array_free(names, TRUE);
        }
        return;
    }
    if (args[0] == '/') {
        g_autofree char *parent = g_strndup(args, MAX(start - args - 1, 0));
        offer_children(*parent ? parent : "/", start, words);
    } else {
        offer_children("/machine/peripheral", args, words);
    }
}
