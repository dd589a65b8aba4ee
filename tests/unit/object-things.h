/*
 * Types for tests of objects: a thing with a property of each kind, derived ones, a proxy with an
 * alias child, and one that users can make.
 */
#ifndef TESTS_UNIT_OBJECT_THINGS_H
#define TESTS_UNIT_OBJECT_THINGS_H

#include <glib.h>
#include <string.h>

#include "qom/object.h"
#include "util/json.h"

typedef struct Thing {
    Object parent_obj;
    bool flag, frozen, refuse;
    uint64_t bits;
    uint8_t u8;
    uint16_t u16, ranged;
    uint32_t u32, s32;
    int32_t i32, i32_ranged;
    uint64_t u64, size;
    int64_t i64;
    char *str, *str_default;
    OnOffAuto tri;
    uint8_t mac[6];
    uint8_t guard; /* behind mac: nothing may write it */
    Object *link;
    int colour;
    uint32_t live;
    char *live_str;
    unsigned changes;
} Thing;
typedef struct ThingClass {
    ObjectClass parent_class;
} ThingClass;

QOM_DECLARE_TYPE(Thing, ThingClass, thing, THING)
G_DEFINE_TYPE(Thing, thing, TYPE_OBJECT)

static gboolean live_changed(Object *obj, const Property *prop, GError **errp)
{
    THING(obj)->changes++;
    return !THING(obj)->refuse || error_set(errp, "'%s' refused", prop->name);
}

static const char *const colours[] = {"red", "green", NULL};
#define LIVE .flags = PROP_F_RUNTIME, .changed = live_changed
static const Property thing_props[] = {
    PROP_BOOL("flag", Thing, flag, true, "A flag"),
    PROP_BIT64("bit63", Thing, bits, 63, true, "The highest bit"),
    PROP_BIT64("bit0", Thing, bits, 0, false, "The lowest bit"),
    PROP_UINT8("u8", Thing, u8, 7, NULL),
    PROP_UINT16("u16", Thing, u16, 7, NULL),
    PROP_UINT16("ranged", Thing, ranged, 20, NULL, .min = 10, .max = 1024),
    PROP_UINT32("u32", Thing, u32, 7, NULL),
    PROP_SIZE32("s32", Thing, s32, 4096, NULL),
    PROP_INT32("i32", Thing, i32, -1, NULL),
    PROP_INT32("i32_ranged", Thing, i32_ranged, 256, NULL, .min = 1),
    PROP_UINT64("u64", Thing, u64, UINT64_MAX, NULL),
    PROP_SIZE("size", Thing, size, 0, NULL),
    PROP_INT64("i64", Thing, i64, INT64_MIN, NULL),
    PROP_STRING("str", Thing, str, "A string"),
    {.name = "str_default",
     .info = &prop_info_string,
     .offset = offsetof(Thing, str_default),
     .defval = {.s = "dflt"}},
    PROP_ON_OFF_AUTO("tri", Thing, tri, ON_OFF_AUTO_AUTO, NULL),
    PROP_MACADDR("mac", Thing, mac, NULL),
    PROP_LINK("link", Thing, link, "thing", NULL),
    PROP_ENUM("colour", Thing, colour, colours, 1, NULL),
    PROP_BOOL("frozen", Thing, frozen, false, NULL, .flags = PROP_F_READONLY),
    PROP_UINT32("live", Thing, live, 5, NULL, LIVE),
    PROP_STRING("live-str", Thing, live_str, NULL, LIVE),
    PROP_ABSENT("usb", "there is no USB controller"),
    PROP_END,
};

static bool thing_is_frozen(Object *obj)
{
    return THING(obj)->frozen;
}

static void thing_class_init(ThingClass *klass)
{
    klass->parent_class.qom_name = "thing";
    klass->parent_class.is_frozen = thing_is_frozen;
    qom_class_set_props(klass, thing_props);
}

static void thing_init(Thing *thing)
{
    /* Defaults are there already, whatever class is being made. */
    g_assert_cmpuint(thing->u16, ==, 7);
    thing->guard = 0x5a;
}

/* A subclass: another default and one property more. */
typedef struct SubThing {
    Thing parent_obj;
    uint32_t extra;
} SubThing;
typedef struct SubThingClass {
    ThingClass parent_class;
} SubThingClass;
static GType sub_thing_get_type(void);
G_DEFINE_TYPE(SubThing, sub_thing, thing_get_type())

static const Property sub_thing_props[] = {
    PROP_UINT32("extra", SubThing, extra, 3, NULL),
    PROP_UINT8("u8", Thing, u8, 8, NULL),
    PROP_END,
};

static void sub_thing_class_init(SubThingClass *klass)
{
    klass->parent_class.parent_class.qom_name = "sub.thing";
    qom_class_set_props(klass, sub_thing_props);
}

static void sub_thing_init(SubThing *sub)
{
    g_assert_cmpuint(THING(sub)->u8, ==, 8);
}

/* A subclass without a table of its own. */
typedef SubThing BareThing;
typedef SubThingClass BareThingClass;
static GType bare_thing_get_type(void);
G_DEFINE_TYPE(BareThing, bare_thing, sub_thing_get_type())

static void bare_thing_class_init(BareThingClass *klass)
{
    klass->parent_class.parent_class.qom_name = "bare-thing";
}

static void bare_thing_init(BareThing *bare) {}

/* What a transport is to a virtio device. */
typedef struct Proxy {
    Object parent_obj;
    uint32_t vectors;
} Proxy;
typedef struct ProxyClass {
    ObjectClass parent_class;
} ProxyClass;
static GType proxy_get_type(void);
G_DEFINE_TYPE(Proxy, proxy, TYPE_OBJECT)

static bool proxy_is_lazy;

static const Property proxy_props[] = {
    PROP_UINT32("vectors", Proxy, vectors, 2, NULL),
    PROP_UINT8("u8", Proxy, vectors, 9, "hides the child's"),
    PROP_END,
};

static void proxy_class_init(ProxyClass *klass)
{
    klass->parent_class.qom_name = "test-proxy-pci";
    klass->parent_class.alias_child = "backend";
    klass->parent_class.alias_type = thing_get_type();
    qom_class_set_props(klass, proxy_props);
}

static void proxy_init(Proxy *proxy)
{
    if (!proxy_is_lazy) {
        object_add_child(OBJECT(proxy), "backend", object_new(thing_get_type()));
    }
}

/* A user-creatable object that fails when told to. */
typedef struct Made {
    Object parent_obj;
    bool fail, in_use;
    uint32_t n;
} Made;
typedef struct MadeClass {
    ObjectClass parent_class;
} MadeClass;
static GType made_get_type(void);
G_DEFINE_TYPE(Made, made, TYPE_OBJECT)
static unsigned made_alive;

static const Property made_props[] = {
    PROP_BOOL("fail", Made, fail, false, NULL),
    PROP_UINT32("n", Made, n, 1, NULL),
    PROP_BOOL("in-use", Made, in_use, false, NULL, .flags = PROP_F_RUNTIME),
    PROP_END,
};

static gboolean made_complete(Object *obj, GError **errp)
{
    g_autofree char *path = object_canonical_path(obj);
    g_assert_true(g_str_has_prefix(path, "/objects/"));
    return !((Made *)obj)->fail || error_set(errp, "told to fail");
}

static bool made_can_be_deleted(Object *obj)
{
    return !((Made *)obj)->in_use;
}

static void made_finalize(GObject *obj)
{
    made_alive--;
    G_OBJECT_CLASS(made_parent_class)->finalize(obj);
}

static void made_class_init(MadeClass *klass)
{
    ObjectClass *oc = &klass->parent_class;
    oc->qom_name = "made";
    oc->user_creatable = true;
    oc->complete = made_complete;
    oc->can_be_deleted = made_can_be_deleted;
    qom_class_set_props(klass, made_props);
    G_OBJECT_CLASS(klass)->finalize = made_finalize;
}

static void made_init(Made *made)
{
    made_alive++;
}

static inline void things_register(void)
{
    qom_register_core_types();
    qom_register_type(thing_get_type());
    qom_register_type(sub_thing_get_type());
    qom_register_type(bare_thing_get_type());
    qom_register_type(proxy_get_type());
    qom_register_type(made_get_type());
}

/* Sets @name from JSON text; expects success, or an error that contains @message. */
static inline void check_set(Object *obj, const char *name, const char *json, const char *message)
{
    GError *err = NULL;
    json_object *value = json_parse(json, &err);
    g_assert_no_error(err);
    gboolean ok = object_set_property(obj, name, value, &err);
    json_object_put(value);
    if (!message) {
        g_assert_no_error(err);
        g_assert_true(ok);
        return;
    }
    g_assert_false(ok);
    g_assert_nonnull(err);
    if (!strstr(err->message, message)) {
        g_error("%s=%s: '%s' does not contain '%s'", name, json, err->message, message);
    }
    g_assert_null(strchr(err->message, '\n'));
    g_error_free(err);
}

/* As JSON text, compact enough to compare. */
static inline void check_get(Object *obj, const char *name, const char *json)
{
    GError *err = NULL;
    json_object *value = object_get_property(obj, name, &err);
    g_assert_no_error(err);
    g_assert_cmpstr(json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
                                                              JSON_C_TO_STRING_NOSLASHESCAPE),
                    ==, json);
    json_object_put(value);
}

#endif
