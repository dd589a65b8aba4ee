/*
 * Devices: realize and its failures, places in the tree, buses, an iothread.  How they are reset,
 * drained and removed is in test-device-removal.c.
 */
#include "tests/unit/device-things.h"

/* --- adding --- */

static void test_places(void)
{
    machine_start();
    DeviceState *a = add("{'driver': 'tdev', 'id': 'a', 'n': '0x10'}");
    DeviceState *anon = add("{'driver': 'tdev', 'bus': 'tbus.0'}");
    check_log("plug realize:a plug realize:tdev ");
    g_autofree char *path = object_canonical_path(OBJECT(a));
    g_assert_cmpstr(path, ==, "/machine/peripheral/a");
    g_autofree char *anon_path = object_canonical_path(OBJECT(anon));
    g_assert_true(g_str_has_prefix(anon_path, "/machine/peripheral-anon/device["));
    g_autofree char *host_path = object_canonical_path(OBJECT(host));
    g_assert_cmpstr(host_path, ==, "/machine/unattached/device[0]");
    check_get(OBJECT(a), "realized", "true");
    check_get(OBJECT(a), "hotplugged", "false");
    check_get(OBJECT(a), "hotpluggable", "true");
    check_get(OBJECT(a), "parent_bus", "\"/machine/unattached/device[0]/tbus.0\"");
    check_get(OBJECT(a), "n", "16");
    check_get(OBJECT(host), "parent_bus", "\"\"");
    check_get(OBJECT(host), "tbus.0", "\"/machine/unattached/device[0]/tbus.0\"");
    g_assert_true(qom_resolve_path("/machine/peripheral/a/parent_bus", NULL) ==
                  OBJECT(bus_find("tbus.0")));
    g_assert_true(device_find("a", NULL) == a);
    g_assert_true(device_find(anon_path, NULL) == anon);
    g_autofree char *bus_path = device_path(a);
    g_assert_cmpstr(bus_path, ==, "place-of-a");
    g_assert_null(device_path(host));

    GError *err = NULL;
    json_object *value = json_object_new_int(5);
    g_assert_false(object_set_property(OBJECT(a), "n", value, &err));
    g_assert_cmpstr(
        err->message, ==,
        "Attempt to set property 'n' on device 'a' (type 'tdev') after it was realized");
    g_clear_error(&err);
    g_assert_false(object_set_property(OBJECT(anon), "n", value, &err));
    g_assert_cmpstr(err->message, ==,
                    "Attempt to set property 'n' on anonymous device (type 'tdev') after it was "
                    "realized");
    g_clear_error(&err);
    g_assert_true(object_set_property(OBJECT(a), "live", value, &err));
    g_assert_false(object_set_property(OBJECT(a), "realized", value, &err));
    g_assert_cmpstr(err->message, ==, "Property 'tdev.realized' is not writable");
    g_clear_error(&err);
    json_object_put(value);
    g_assert_false(device_realize(a, a->parent_bus, &err));
    g_clear_error(&err);
    machine_end();
}

static void test_refusals(void)
{
    machine_start();
    add("{'driver': 'tdev', 'id': 'a'}");
    check_refused("{}", "Parameter 'driver' is missing");
    check_refused("{'driver': 5}", "Invalid parameter type for 'driver', expected: string");
    check_refused("{'driver': 'tdev', 'id': 5}", "Invalid parameter type for 'id'");
    check_refused("{'driver': 'tdev', 'bus': []}", "Invalid parameter type for 'bus'");
    check_refused("{'driver': 'x'}", "'x' is not a valid device model name");
    check_refused("{'driver': 'gint'}", "'gint' is not a valid device model name");
    check_refused("{'driver': 'none-machine'}", "is not a valid device model name");
    check_refused("{'driver': 'device'}", "expects a non-abstract device type");
    check_refused("{'driver': 'thost'}", "expects a pluggable device type");
    check_refused("{'driver': 'tdev', 'id': '1'}", "Parameter 'id' expects an identifier");
    check_refused("{'driver': 'tdev', 'id': 'a'}", "Duplicate device ID 'a'");
    check_refused("{'driver': 'tdev', 'bus': 'nope'}", "Bus 'nope' not found");
    check_refused("{'driver': 'tpart', 'bus': 'tbus.0'}", "Device 'tpart' can't go on TBUS bus");
    check_refused("{'driver': 'tpart'}", "No 'part-bus' bus found for device 'tpart'");
    check_refused("{'driver': 'tdev', 'foo': 1}", "Property 'tdev.foo' not found");
    check_refused("{'driver': 'tdev', 'id': 'b', 'n': 'x'}",
                  "Property 'tdev.n' doesn't take value 'x'");
    g_string_truncate(event_log, 0);
    check_refused("{'driver': 'tdev', 'id': 'b', 'fail': 'on'}", "told to fail");
    check_log("plug unplug plug unplug ");
    add("{'driver': 'tdev', 'id': 'b', 'fail': false}");
    check_refused("{'driver': 'tdev', 'id': 'c'}", "Bus 'tbus.0' is full");
    g_string_truncate(event_log, 0);

    DeviceState *loose = DEVICE(object_new(t_dev_get_type()));
    GError *err = NULL;
    g_assert_false(device_realize(loose, NULL, &err)); /* takes and frees it */
    g_assert_cmpstr(err->message, ==, "No 'TBUS' bus found for device 'tdev'");
    g_clear_error(&err);
    g_assert_cmpuint(alive, ==, 3);
    machine_end();
}

static void test_alias(void)
{
    machine_start();
    device_add_alias("old-name", "tdev");
    g_assert_cmpstr(device_resolve_alias("old-name"), ==, "tdev");
    g_assert_cmpstr(device_resolve_alias("other"), ==, "other");
    DeviceState *dev = add("{'driver': 'old-name'}");
    g_assert_cmpstr(object_type_name(OBJECT(dev)), ==, "tdev");
    check_refused("{'driver': 'old-name', 'foo': 1}", "Property 'tdev.foo' not found");
    machine_end();
}

static void test_hotplug_state(void)
{
    machine_start();
    device_set_machine_ready(true);
    DeviceState *dev = add("{'driver': 'tdev', 'id': 'a'}");
    check_log("plug realize:a reset:a ");
    check_get(OBJECT(dev), "hotplugged", "true");
    DeviceClass *klass = DEVICE_GET_CLASS(dev);
    klass->hotpluggable = false;
    check_refused("{'driver': 'tdev'}", "Device 'tdev' does not support hotplugging");
    check_del("a", "Device 'tdev' does not support hotplugging");
    klass->hotpluggable = true;
    machine_end();
}

/* --- buses --- */

static void test_buses(void)
{
    machine_start();
    DeviceState *bridge = add("{'driver': 'tbridge', 'id': 'br'}");
    BusState *behind = T_DEV(bridge)->bus;
    g_assert_true(bus_find("br") == behind);
    g_assert_true(bus_find("/machine/peripheral/br/br") == behind);
    g_assert_null(bus_find("/machine/peripheral/br"));
    g_assert_null(bus_find("/nowhere"));
    g_assert_null(bus_find(""));
    /* The machine's own bus comes first, although peripheral is earlier in the tree. */
    g_assert_cmpstr(bus_find_by_type("TBUS")->bus_name, ==, "tbus.0");
    g_assert_cmpstr(bus_find_by_type("bus")->bus_name, ==, "tbus.0");
    g_assert_null(bus_find_by_type("nope"));
    DeviceState *leaf = add("{'driver': 'tdev', 'id': 'leaf', 'bus': 'br'}");
    g_assert_true(leaf->parent_bus == behind);
    BusState *one = bus_new(part_bus_get_type(), host, NULL);
    BusState *two = bus_new(part_bus_get_type(), host, NULL);
    BusState *of_id = bus_new(part_bus_get_type(), leaf, NULL);
    BusState *root = bus_new(part_bus_get_type(), NULL, "root");
    g_assert_cmpstr(one->bus_name, ==, "part-bus.0");
    g_assert_cmpstr(two->bus_name, ==, "part-bus.1");
    g_assert_cmpstr(of_id->bus_name, ==, "leaf.0");
    g_assert_true(bus_find("leaf.0") == of_id);
    g_assert_true(bus_find("root") == root);

    g_autoptr(GString) out = g_string_new(NULL);
    device_print_qtree(out);
    g_assert_nonnull(strstr(out->str, "dev: thost, id \"\"\r\n"));
    g_assert_nonnull(strstr(out->str, "  bus: tbus.0\r\n    type TBUS\r\n"
                                      "    dev: tbridge, id \"br\"\r\n      n = 1\r\n"));
    g_assert_nonnull(strstr(out->str, "          printed by bus\r\n"));
    g_assert_null(strstr(out->str, "realized"));
    g_autofree char *help = device_list_help();
    g_assert_nonnull(strstr(help, "name \"tdev\", bus TBUS, desc \"A device under test\"\n"));
    g_assert_nonnull(strstr(help, "Controller/Bridge/Hub devices:\nname \"tbridge\""));
    g_assert_null(strstr(help, "thost"));
    machine_end();
}

/* --- iothread --- */

static void note_thread(void *opaque)
{
    *(GThread **)opaque = g_thread_self();
}

static void test_iothread(void)
{
    GError *err = NULL;
    json_object *options =
        json_parse("{'qom-type': 'iothread', 'id': 'io0', 'poll-max-ns': 5000}", NULL);
    Object *obj = user_object_add(options, &err);
    g_assert_no_error(err);
    GThread *thread = NULL;
    event_loop_run_sync(IOTHREAD(obj)->loop, note_thread, &thread);
    g_assert_true(thread && thread != g_thread_self());
    g_assert_cmpint(IOTHREAD(obj)->poll_max_ns, ==, 5000);
    json_object *text = json_object_new_string("7000");
    g_assert_true(object_set_property(obj, "poll-max-ns", text, &err));
    json_object_put(text);
    g_assert_cmpint(IOTHREAD(obj)->poll_max_ns, ==, 7000);
    IOTHREAD(obj)->users++;
    g_assert_false(user_object_del("io0", &err));
    g_clear_error(&err);
    IOTHREAD(obj)->users--;
    g_assert_true(user_object_del("io0", &err));
    json_object_object_add(options, "poll-max-ns", json_object_new_int(-1));
    g_assert_null(user_object_add(options, &err));
    g_assert_nonnull(strstr(err->message, "poll-max-ns"));
    g_assert_nonnull(strstr(err->message, "1000000000"));
    g_clear_error(&err);
    json_object_put(options);
}

/* For good: the last test. */
static void test_only_migratable(void)
{
    static const char table[] = "a migration table";
    DeviceClass *klass = g_type_class_ref(t_dev_get_type());

    machine_start();
    device_set_only_migratable();
    check_refused("{\"driver\": \"tdev\", \"id\": \"d0\", \"bus\": \"tbus.0\"}",
                  "Device 'd0' (tdev) is not migratable, but -only-migratable was given");
    klass->vmsd = table;
    add("{\"driver\": \"tdev\", \"id\": \"d0\", \"bus\": \"tbus.0\"}");
    klass->vmsd = NULL;
    check_del("d0", NULL);
    machine_end();
    g_type_class_unref(klass);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    device_things_init();
    g_test_add_func("/device/add/places-and-properties", test_places);
    g_test_add_func("/device/add/failure-leaves-nothing", test_refusals);
    g_test_add_func("/device/add/driver-alias", test_alias);
    g_test_add_func("/device/add/hotplug-resets", test_hotplug_state);
    g_test_add_func("/device/bus/names-and-order", test_buses);
    g_test_add_func("/device/iothread", test_iothread);
    g_test_add_func("/only-migratable/refuses", test_only_migratable);
    int ret = g_test_run();
    g_string_free(event_log, TRUE);
    return ret;
}
