/*
 * Objects: the tree, every property info with right and wrong values, alias children, globals
 * and user-creatable objects.  No devices here, see test-device.c.
 */
#include <glib.h>
#include <string.h>

#include "qom/object.h"
#include "util/json.h"

/* --- types under test --- */

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

/* --- helpers --- */

/* Sets @name from JSON text; expects success, or an error that contains @message. */
static void check_set(Object *obj, const char *name, const char *json, const char *message)
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
static void check_get(Object *obj, const char *name, const char *json)
{
    GError *err = NULL;
    json_object *value = object_get_property(obj, name, &err);
    g_assert_no_error(err);
    g_assert_cmpstr(json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
                                                              JSON_C_TO_STRING_NOSLASHESCAPE),
                    ==, json);
    json_object_put(value);
}

#define REFUSED(name) "Property 'thing." name "' doesn't take value "

/* --- properties --- */

typedef struct Case {
    const char *name, *json, *get; /* @get NULL: refused */
} Case;

static const Case cases[] = {
    {"flag", "false", "false"},
    {"flag", "\"on\"", "true"},
    {"flag", "\"no\"", "false"},
    {"flag", "1", NULL},
    {"flag", "0", NULL},
    {"flag", "\"1\"", NULL},
    {"flag", "null", NULL},
    {"flag", "\"ON\"", NULL},
    {"flag", "\"\"", NULL},
    {"flag", "{}", NULL},
    {"flag", "[]", NULL},
    {"flag", "\"on\\u0000\"", NULL},
    {"bit63", "false", "false"},
    {"bit63", "\"yes\"", "true"},
    {"bit63", "1", NULL},
    {"bit0", "true", "true"},
    {"u8", "255", "255"},
    {"u8", "\"0xff\"", "255"},
    {"u8", "\"010\"", "8"},
    {"u8", "256", NULL},
    {"u8", "-1", NULL},
    {"u8", "\"-1\"", NULL},
    {"u8", "1.0", NULL},
    {"u8", "true", NULL},
    {"u8", "\"\"", NULL},
    {"u8", "\"5x\"", NULL},
    {"u8", "\"08\"", NULL},
    {"u8", "\"1k\"", NULL},
    {"u16", "65535", "65535"},
    {"u16", "65536", NULL},
    {"ranged", "10", "10"},
    {"ranged", "1024", "1024"},
    {"ranged", "9", NULL},
    {"ranged", "1025", NULL},
    {"ranged", "\"0x400\"", "1024"},
    {"u32", "4294967295", "4294967295"},
    {"u32", "4294967296", NULL},
    {"s32", "\"1M\"", "1048576"},
    {"s32", "\"4G\"", NULL},
    {"s32", "8", "8"},
    {"i32", "-2147483648", "-2147483648"},
    {"i32", "2147483648", NULL},
    {"i32", "-2147483649", NULL},
    {"i32", "\"-5\"", "-5"},
    {"i32", "\"0x10\"", "16"},
    {"i32_ranged", "0", NULL},
    {"i32_ranged", "1", "1"},
    {"i32_ranged", "2147483647", "2147483647"},
    {"u64", "18446744073709551615", "18446744073709551615"},
    {"u64", "-1", NULL},
    {"u64", "\"18446744073709551616\"", NULL},
    {"u64", "\"0xffffffffffffffff\"", "18446744073709551615"},
    {"u64", "18446744073709551616", NULL},
    {"u64", "1e3", NULL},
    {"i64", "-9223372036854775808", "-9223372036854775808"},
    {"i64", "9223372036854775807", "9223372036854775807"},
    {"i64", "9223372036854775808", NULL},
    {"size", "\"1G\"", "1073741824"},
    {"size", "4096", "4096"},
    {"size", "-1", NULL},
    {"size", "\"1Q\"", NULL},
    {"size", "\"\"", NULL},
    {"str", "\"a,b\"", "\"a,b\""},
    {"str", "\"\"", "\"\""},
    {"str", "5", NULL},
    {"str", "null", NULL},
    {"str", "\"a\\u0000b\"", NULL},
    {"tri", "\"on\"", "\"on\""},
    {"tri", "\"auto\"", "\"auto\""},
    {"tri", "true", NULL},
    {"tri", "\"yes\"", NULL},
    {"tri", "1", NULL},
    {"mac", "\"52:54:00:12:34:56\"", "\"52:54:00:12:34:56\""},
    {"mac", "\"52-54-00-ab-CD-eF\"", "\"52:54:00:ab:cd:ef\""},
    {"mac", "\"52:54:00:12:34\"", NULL},
    {"mac", "\"52:54:00:12:34:56:\"", NULL},
    {"mac", "\"52:54:00:12:34:5\"", NULL},
    {"mac", "\"525400123456\"", NULL},
    {"mac", "\"52:54:00:12:34:5g\"", NULL},
    {"mac", "\"\"", NULL},
    {"mac", "0", NULL},
    {"mac", "\"52:54:00:12:34:567\"", NULL},
    {"mac", "\":\"", NULL},
    {"colour", "\"red\"", "\"red\""},
    {"colour", "\"blue\"", NULL},
    {"colour", "0", NULL},
    {"usb", "\"off\"", "false"},
    {"usb", "false", "false"},
    {"usb", "\"auto\"", "false"},
    {"usb", "\"on\"", NULL},
    {"usb", "true", NULL},
    {"usb", "0", NULL},
};

static void test_values(void)
{
    Object *obj = object_new(thing_get_type());
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        const Case *c = &cases[i];
        if (c->get) {
            check_set(obj, c->name, c->json, NULL);
            check_get(obj, c->name, c->get);
            continue;
        }
        json_object *before = object_get_property(obj, c->name, NULL);
        g_autofree char *refused =
            g_strdup_printf("Property 'thing.%s' doesn't take value '", c->name);
        check_set(obj, c->name, c->json, refused);
        check_set(obj, c->name, c->json, "(allowed: ");
        json_object *after = object_get_property(obj, c->name, NULL);
        g_assert_true(json_object_equal(before, after));
        json_object_put(before);
        json_object_put(after);
    }
    g_assert_cmpuint(THING(obj)->guard, ==, 0x5a);
    g_object_unref(obj);
}

static void test_messages(void)
{
    Object *obj = object_new(thing_get_type());
    check_set(obj, "mac", "\"x\"", REFUSED("mac") "'x' (allowed: six bytes as in");
    check_set(obj, "flag", "1", REFUSED("flag") "'1' (allowed: on, off)");
    check_set(obj, "ranged", "5", "(allowed: 10 to 1024)");
    check_set(obj, "u8", "300", "(allowed: 0 to 255)");
    check_set(obj, "i32", "\"x\"", "(allowed: -2147483648 to 2147483647)");
    check_set(obj, "i32_ranged", "0", "(allowed: 1 to 2147483647)");
    check_set(obj, "tri", "\"maybe\"", "(allowed: auto, on, off)");
    check_set(obj, "colour", "\"blue\"", "(allowed: red, green)");
    check_set(obj, "usb", "true", "(allowed: off; there is no USB controller)");
    check_set(obj, "foo", "1", "Property 'thing.foo' not found");
    check_set(obj, "i32-ranged", "1", "Property 'thing.i32-ranged' not found");
    check_set(obj, "FLAG", "true", "Property 'thing.FLAG' not found");
    check_set(obj, "frozen", "true", "Property 'thing.frozen' is not writable");
    check_set(obj, "type", "\"x\"", "Property 'thing.type' is not writable");
    /* Whatever the value holds, the message stays one line of bounded length. */
    check_set(obj, "mac", "\"a\\nb\\u0007\"", "'a?b?'");
    g_autofree char *longest = g_strnfill(100000, 'x');
    g_autofree char *quoted = g_strdup_printf("\"%s\"", longest);
    GError *err = NULL;
    json_object *value = json_parse(quoted, NULL);
    g_assert_false(object_set_property(obj, "mac", value, &err));
    g_assert_cmpuint(strlen(err->message), <, 300);
    g_error_free(err);
    /* Nobody interested in the error. */
    g_assert_false(object_set_property(obj, "mac", value, NULL));
    json_object_put(value);
    g_assert_null(object_get_property(obj, "foo", NULL));
    g_object_unref(obj);
}

static void test_defaults(void)
{
    Object *thing = object_new(thing_get_type()), *sub = object_new(sub_thing_get_type());
    Object *bare = object_new(bare_thing_get_type());
    check_get(thing, "u8", "7");
    check_get(sub, "u8", "8");
    check_get(bare, "u8", "8");
    check_get(bare, "extra", "3");
    check_get(thing, "i64", "-9223372036854775808");
    check_get(thing, "u64", "18446744073709551615");
    check_get(thing, "str", "\"\"");
    check_get(thing, "str_default", "\"dflt\"");
    check_get(thing, "colour", "\"green\"");
    check_get(thing, "type", "\"thing\"");
    g_assert_cmphex(THING(thing)->bits, ==, UINT64_C(1) << 63);
    check_set(sub, "extra", "\"0x10\"", NULL);
    check_get(sub, "extra", "16");
    check_set(thing, "extra", "1", "Property 'thing.extra' not found");
    check_set(sub, "nope", "1", "Property 'sub.thing.nope' not found");
    g_object_unref(thing);
    g_object_unref(sub);
    g_object_unref(bare);
}

static void test_frozen(void)
{
    Object *obj = object_new(thing_get_type());
    Thing *thing = THING(obj);
    check_set(obj, "live", "6", NULL);
    g_assert_cmpuint(thing->changes, ==, 0); /* not running yet: nobody is told */
    thing->frozen = true;
    check_set(obj, "u8", "1", "Property 'thing.u8' cannot be changed any more");
    check_get(obj, "u8", "7");
    check_set(obj, "live", "8", NULL);
    check_set(obj, "live", "\"x\"", REFUSED("live"));
    g_assert_cmpuint(thing->changes, ==, 1);
    thing->refuse = true;
    check_set(obj, "live", "9", "'live' refused");
    check_get(obj, "live", "8");
    check_set(obj, "live-str", "\"new\"", "refused");
    g_assert_null(thing->live_str);
    thing->refuse = false;
    check_set(obj, "live-str", "\"old\"", NULL);
    thing->refuse = true;
    check_set(obj, "live-str", "\"new\"", "refused");
    g_assert_cmpstr(thing->live_str, ==, "old");
    g_object_unref(obj);
}

static void test_was_set(void)
{
    Object *obj = object_new(proxy_get_type());
    json_object *props = json_parse("{'id': 'x', 'u16': '0x10', 'vectors': 4}", NULL);
    const char *const skip[] = {"id", NULL};
    GError *err = NULL;
    g_assert_true(object_set_properties(obj, props, skip, &err));
    g_assert_no_error(err);
    json_object_put(props);
    g_assert_true(property_was_set(obj, "u16"));
    g_assert_true(property_was_set(object_child(obj, "backend"), "u16"));
    g_assert_true(property_was_set(obj, "vectors"));
    g_assert_false(property_was_set(obj, "u32"));
    g_assert_false(property_was_set(obj, "id"));
    g_assert_false(property_was_set(obj, "nope"));
    check_get(obj, "u16", "16");
    props = json_parse("{'u32': 1, 'bad': 2, 'u64': 3}", NULL);
    g_assert_false(object_set_properties(obj, props, NULL, &err));
    g_assert_cmpstr(err->message, ==, "Property 'test-proxy-pci.bad' not found");
    g_clear_error(&err);
    json_object_put(props);
    g_object_unref(obj);
}

/* --- alias children --- */

static void test_alias(void)
{
    Object *obj = object_new(proxy_get_type());
    Object *child = object_child(obj, "backend"), *owner;
    check_set(obj, "mac", "\"52:54:00:12:34:56\"", NULL);
    check_get(child, "mac", "\"52:54:00:12:34:56\"");
    check_get(obj, "mac", "\"52:54:00:12:34:56\"");
    check_set(obj, "mac", "\"x\"", "Property 'test-proxy-pci.mac' doesn't take value 'x'");
    check_set(obj, "foo", "1", "Property 'test-proxy-pci.foo' not found");
    check_get(obj, "u8", "9");
    check_get(child, "u8", "7");
    g_assert_nonnull(object_find_property(obj, "mac", &owner));
    g_assert_true(owner == child);
    g_assert_nonnull(object_find_property(obj, "vectors", &owner));
    g_assert_true(owner == obj);
    g_assert_null(object_find_property(obj, "nope", &owner));
    g_assert_null(owner);
    THING(child)->frozen = true;
    check_set(obj, "u16", "1", "Property 'test-proxy-pci.u16' cannot be changed any more");
    check_set(obj, "live", "1", NULL);
    g_object_unref(obj);
}

static void test_alias_before_child(void)
{
    proxy_is_lazy = true;
    Object *obj = object_new(proxy_get_type()), *owner = obj;
    proxy_is_lazy = false;
    g_assert_nonnull(object_find_property(obj, "mac", &owner));
    g_assert_null(owner);
    check_set(obj, "mac", "\"52:54:00:12:34:56\"", "before its 'backend' exists");
    g_assert_null(object_get_property(obj, "mac", NULL));
    g_assert_false(property_was_set(obj, "mac"));
    g_object_unref(obj);
}

static void count_property(const Property *prop, GType owner, void *opaque)
{
    GHashTable *seen = opaque;
    g_assert_true(g_hash_table_add(seen, (gpointer)prop->name));
}

static void test_class_walk(void)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    qom_class_foreach_property(proxy_get_type(), count_property, seen);
    g_assert_cmpuint(g_hash_table_size(seen), ==, G_N_ELEMENTS(thing_props) - 1 + 1);
    g_assert_true(g_hash_table_contains(seen, "mac"));
    g_hash_table_remove_all(seen);
    qom_class_foreach_property(bare_thing_get_type(), count_property, seen);
    g_assert_cmpuint(g_hash_table_size(seen), ==, G_N_ELEMENTS(thing_props) - 1 + 1);
    g_assert_cmpstr(qom_class_find_property(proxy_get_type(), "u8")->description, ==,
                    "hides the child's");
    g_autofree char *help = qom_type_help(thing_get_type());
    g_assert_nonnull(strstr(help, "  flag=<bool>                    - A flag (default: true)\n"));
    g_assert_nonnull(strstr(help, "link=<link<thing>>"));
    g_assert_null(strstr(help, "frozen"));
}

static void info_line(const char *name, const char *type, const char *description,
                      json_object *default_value, void *opaque)
{
    g_string_append_printf(opaque, "%s:%s:%s;", name, type,
                           default_value ? json_object_to_json_string(default_value) : "-");
}

static void test_info(void)
{
    Object *obj = object_new(proxy_get_type());
    g_autoptr(GString) out = g_string_new(NULL);
    object_foreach_property_info(obj, info_line, out);
    g_assert_true(g_str_has_prefix(out->str, "type:string:-;vectors:uint32:2;u8:uint8:9;"));
    g_assert_nonnull(strstr(out->str, ";mac:str:-;"));
    g_assert_nonnull(strstr(out->str, ";tri:OnOffAuto:\"auto\";"));
    g_assert_nonnull(strstr(out->str, ";link:link<thing>:-;"));
    g_assert_nonnull(strstr(out->str, ";backend:child<thing>:-;"));
    g_object_unref(obj);
}

/* --- tree --- */

static void check_path(const char *path, Object *expected, bool expect_ambiguous)
{
    bool ambiguous = !expect_ambiguous;
    g_assert_true(qom_resolve_path(path, &ambiguous) == expected);
    g_assert_true(ambiguous == expect_ambiguous);
}

static void test_tree(void)
{
    Object *a = object_new(thing_get_type()), *b = object_new(thing_get_type());
    Object *deep = object_new(thing_get_type());
    object_add_child(qom_container("/t/one"), "a", a);
    object_add_child(qom_container("/t/two"), "b", b);
    object_add_child(b, "deep", deep);
    g_autofree char *path = object_canonical_path(deep);
    g_assert_cmpstr(path, ==, "/t/two/b/deep");
    check_path("/t/two/b/deep", deep, false);
    check_path("//t//two/b/deep/", deep, false);
    check_path("/t/two/c/deep", NULL, false);
    check_path("b/deep", deep, false);
    check_path("deep", deep, false);
    check_path("", NULL, false);
    check_path("/", qom_root(), false);
    check_path("t", qom_container("/t"), false);
    check_get(b, "deep", "\"/t/two/b/deep\"");
    check_set(b, "deep", "\"x\"", "is not writable");

    /* Links: by path or id, of the right type, followed in paths. */
    check_set(a, "link", "\"/t/two/b\"", NULL);
    check_get(a, "link", "\"/t/two/b\"");
    check_path("/t/one/a/link/deep", deep, false);
    check_path("a/link", b, false);
    check_set(a, "link", "\"nowhere\"", "Device 'nowhere' not found");
    check_set(a, "link", "\"/t\"", "this one is of type container");
    check_set(a, "link", "5", "doesn't take value '5'");
    check_get(a, "link", "\"/t/two/b\"");
    check_set(a, "link", "\"\"", NULL);
    g_assert_null(THING(a)->link);
    check_set(a, "link", "\"deep\"", NULL);

    object_add_child(a, "deep", object_new(sub_thing_get_type()));
    check_path("deep", NULL, true);
    check_path("a/deep", object_child(a, "deep"), false);
    check_set(b, "link", "\"deep\"", "does not uniquely identify an object");
    check_set(b, "link", "\"a/deep\"", NULL); /* a subtype of what is asked for */

    /* A link keeps what the tree has dropped, and shows no path for it. */
    object_unparent(b);
    g_assert_null(object_canonical_path(deep));
    check_get(a, "link", "\"\"");
    g_assert_null(qom_resolve_path("/t/two/b", NULL));
    object_unparent(a);
    object_unparent(qom_container("/t"));
    check_path("/t", NULL, false);
}

static void test_ids(void)
{
    static const char *const good[] = {"a", "net0", "A-b.c_9", NULL};
    static const char *const bad[] = {"", "0a", "-a", "a b", "a/b", "a\n", "\xc3\xa4", "a,b", NULL};
    for (unsigned i = 0; good[i]; i++) {
        g_assert_true(id_wellformed(good[i], NULL));
    }
    for (unsigned i = 0; bad[i]; i++) {
        GError *err = NULL;
        g_assert_false(id_wellformed(bad[i], &err));
        g_assert_true(g_str_has_prefix(err->message, "Parameter 'id' expects an identifier"));
        g_assert_null(strchr(err->message, '\n'));
        g_error_free(err);
    }
}

/* --- types --- */

static void collect_type(GType type, void *opaque)
{
    g_string_append_printf(opaque, "%s ", qom_type_name(type));
}

static void test_types(void)
{
    g_autoptr(GString) names = g_string_new(NULL);
    qom_foreach_type(thing_get_type(), false, collect_type, names);
    g_assert_cmpstr(names->str, ==, "bare-thing sub.thing thing ");
    g_string_truncate(names, 0);
    qom_foreach_type(TYPE_OBJECT, true, collect_type, names);
    g_assert_nonnull(strstr(names->str, " object "));
    g_assert_true(qom_type_by_name("sub.thing") == sub_thing_get_type());
    static const char *const foreign[] = {"gint", "GObject", "SubThing", "sub-thing", "", "Object"};
    for (unsigned i = 0; i < G_N_ELEMENTS(foreign); i++) {
        g_assert_true(qom_type_by_name(foreign[i]) == G_TYPE_INVALID);
    }
}

/* --- globals (last: they cannot be taken back) --- */

static void test_globals(void)
{
    GError *err = NULL;
    g_assert_false(qom_add_global("sub.thing", "nope", "1", &err));
    g_assert_cmpstr(err->message, ==,
                    "can't apply global sub.thing.nope=1: Property 'sub.thing.nope' not found");
    g_clear_error(&err);
    g_assert_true(qom_add_global("sub.thing", "u16", "0x20", &err));
    g_assert_true(qom_add_global("sub.thing", "u16", "0x21", &err));
    g_assert_true(qom_add_global("test-proxy-pci", "colour", "red", &err));
    Object *thing = object_new(thing_get_type()), *bare = object_new(bare_thing_get_type());
    Object *proxy = object_new(proxy_get_type());
    check_get(thing, "u16", "7");
    check_get(bare, "u16", "33");
    g_assert_true(property_was_set(bare, "u16"));
    check_get(object_child(proxy, "backend"), "colour", "\"red\"");
    g_object_unref(thing);
    g_object_unref(bare);
    g_object_unref(proxy);

    /* Refused by a child made in instance init: the outer construction fails. */
    g_assert_true(qom_add_global("thing", "ranged", "5", &err));
    g_assert_null(object_try_new(proxy_get_type(), &err));
    g_assert_true(g_str_has_prefix(err->message, "can't apply global thing.ranged=5: Property"));
    g_clear_error(&err);
    Object *made = object_try_new(made_get_type(), &err);
    g_assert_no_error(err);
    g_object_unref(made);
}

/* --- user-creatable objects --- */

static void check_add(const char *json, const char *message)
{
    GError *err = NULL;
    json_object *options = json_parse(json, NULL);
    unsigned alive = made_alive;
    Object *obj = user_object_add(options, &err);
    json_object_put(options);
    if (!message) {
        g_assert_no_error(err);
        g_assert_nonnull(obj);
        return;
    }
    g_assert_null(obj);
    if (!strstr(err->message, message)) {
        g_error("%s: '%s' does not contain '%s'", json, err->message, message);
    }
    g_assert_cmpuint(made_alive, ==, alive);
    g_error_free(err);
}

static void test_user_objects(void)
{
    check_add("{}", "Parameter 'qom-type' is missing");
    check_add("{'qom-type': 'made'}", "Parameter 'id' is missing");
    check_add("{'qom-type': 5, 'id': 'o0'}", "Invalid parameter type for 'qom-type'");
    check_add("{'qom-type': 'made', 'id': 5}", "Invalid parameter type for 'id'");
    check_add("{'qom-type': 'made', 'id': null}", "'id'");
    check_add("{'qom-type': 'made', 'id': '0'}", "Parameter 'id' expects an identifier");
    check_add("{'qom-type': 'thing', 'id': 'o0'}",
              "Parameter 'qom-type' does not accept value 'thing' (allowed: made)");
    check_add("{'qom-type': 'object', 'id': 'o0'}", "does not accept value 'object'");
    check_add("{'qom-type': 'gint', 'id': 'o0'}", "does not accept value 'gint'");
    check_add("{'qom-type': 'made', 'id': 'o0', 'n': 'x'}",
              "Property 'made.n' doesn't take value 'x'");
    check_add("{'qom-type': 'made', 'id': 'o0', 'zz': 1}", "Property 'made.zz' not found");
    check_add("{'qom-type': 'made', 'id': 'o0', 'fail': true}", "told to fail");
    check_add("{'qom-type': 'made', 'id': 'o0', 'n': '0x10'}", NULL);
    check_add("{'qom-type': 'made', 'id': 'o0'}", "Duplicate ID 'o0' for object");

    Object *obj = qom_resolve_path("/objects/o0", NULL);
    check_get(obj, "n", "16");
    check_set(obj, "n", "1", "Property 'made.n' cannot be changed any more: 'o0' is in use");
    check_set(obj, "in-use", "true", NULL);
    GError *err = NULL;
    g_assert_false(user_object_del("o0", &err));
    g_assert_cmpstr(err->message, ==, "object 'o0' is in use, can not be deleted");
    g_clear_error(&err);
    g_assert_false(user_object_del("o1", &err));
    g_assert_cmpstr(err->message, ==, "object 'o1' not found");
    g_clear_error(&err);
    check_set(obj, "in-use", "false", NULL);
    g_assert_true(user_object_del("o0", &err));
    g_assert_cmpuint(made_alive, ==, 0);
    check_add("{'qom-type': 'made', 'id': 'o0'}", NULL);
    g_assert_true(user_object_del("o0", NULL));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qom_register_core_types();
    qom_register_type(thing_get_type());
    qom_register_type(sub_thing_get_type());
    qom_register_type(bare_thing_get_type());
    qom_register_type(proxy_get_type());
    qom_register_type(made_get_type());
    g_test_add_func("/object/property/values-right-and-wrong", test_values);
    g_test_add_func("/object/property/messages-name-thing-value-allowed", test_messages);
    g_test_add_func("/object/property/defaults-of-derived-class-win", test_defaults);
    g_test_add_func("/object/property/frozen-takes-runtime-changes-only", test_frozen);
    g_test_add_func("/object/property/was-set-by-user", test_was_set);
    g_test_add_func("/object/alias/forwards-to-child", test_alias);
    g_test_add_func("/object/alias/known-before-child-exists", test_alias_before_child);
    g_test_add_func("/object/class/each-name-once", test_class_walk);
    g_test_add_func("/object/class/info-has-type-children-links", test_info);
    g_test_add_func("/object/tree/paths-and-links", test_tree);
    g_test_add_func("/object/ids", test_ids);
    g_test_add_func("/object/types/only-registered-names", test_types);
    g_test_add_func("/object/user/add-and-del", test_user_objects);
    g_test_add_func("/object/globals/defaults-by-type", test_globals);
    return g_test_run();
}
