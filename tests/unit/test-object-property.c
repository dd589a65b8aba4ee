/*
 * Properties of objects: every property info with right and wrong values, defaults, what is frozen,
 * alias children, and what a class tells of them.
 */
#include "tests/unit/object-things.h"

#define REFUSED(name) "Property 'thing." name "' doesn't take value "

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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    things_register();
    g_test_add_func("/object/property/values-right-and-wrong", test_values);
    g_test_add_func("/object/property/messages-name-thing-value-allowed", test_messages);
    g_test_add_func("/object/property/defaults-of-derived-class-win", test_defaults);
    g_test_add_func("/object/property/frozen-takes-runtime-changes-only", test_frozen);
    g_test_add_func("/object/property/was-set-by-user", test_was_set);
    g_test_add_func("/object/alias/forwards-to-child", test_alias);
    g_test_add_func("/object/alias/known-before-child-exists", test_alias_before_child);
    g_test_add_func("/object/class/each-name-once", test_class_walk);
    g_test_add_func("/object/class/info-has-type-children-links", test_info);
    return g_test_run();
}
