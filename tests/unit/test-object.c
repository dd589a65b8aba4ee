/*
 * Objects: the tree, ids, types, globals and user-creatable objects.  Properties are in
 * test-object-property.c, devices in test-device.c.
 */
#include "tests/unit/object-things.h"

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
    things_register();
    g_test_add_func("/object/tree/paths-and-links", test_tree);
    g_test_add_func("/object/ids", test_ids);
    g_test_add_func("/object/types/only-registered-names", test_types);
    g_test_add_func("/object/user/add-and-del", test_user_objects);
    g_test_add_func("/object/globals/defaults-by-type", test_globals);
    return g_test_run();
}
