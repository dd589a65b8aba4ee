/*
 * Devices: reset order, drain, unplug with and without a guest, and random plugging.
 */
#include "tests/unit/device-things.h"

/* --- reset and drain --- */

static void test_reset_order(void)
{
    machine_start();
    add("{'driver': 'tbridge', 'id': 'br'}");
    add("{'driver': 'tdev', 'id': 'one', 'bus': 'br'}");
    add("{'driver': 'tdev', 'id': 'two', 'bus': 'br'}");
    add("{'driver': 'tdev', 'id': 'last'}");
    g_string_truncate(event_log, 0);
    machine_reset_devices();
    check_log("reset:one reset:two reset:br reset:last reset:thost ");
    device_reset(device_find("br", NULL));
    check_log("reset:one reset:two reset:br ");
    machine_end();
}

static void test_drain(void)
{
    machine_start();
    log_drain = true;
    DeviceState *bridge = add("{'driver': 'tbridge', 'id': 'br'}");
    DeviceState *leaf = add("{'driver': 'tdev', 'id': 'leaf', 'bus': 'br'}");
    g_string_truncate(event_log, 0);
    device_drain_begin(bridge);
    check_log("stop:br stop:leaf ");
    device_drain_begin(leaf);
    device_drain_begin(bridge);
    device_drain_end(leaf);
    device_drain_end(bridge);
    check_log("");
    /* What is plugged in meanwhile waits as well. */
    add("{'driver': 'tdev', 'id': 'new', 'bus': 'br'}");
    check_log("plug realize:new stop:new ");
    device_drain_end(bridge);
    check_log("go:new go:leaf go:br ");
    device_drain_end(bridge); /* one too many does no harm */
    check_log("");
    /* A device that goes while drained stays still, and its end is harmless. */
    device_drain_begin(leaf);
    g_object_ref(leaf);
    check_del("leaf", NULL);
    device_drain_end(leaf);
    check_log("stop:leaf unrealize:leaf unplug ");
    g_object_unref(leaf);
    device_reset(bridge);
    check_log("stop:br stop:new reset:new reset:br go:new go:br ");
    machine_end();
}

/* --- removing --- */

static void test_del(void)
{
    machine_start();
    device_deleted_hook = on_deleted;
    add("{'driver': 'tdev', 'id': 'a'}");
    g_string_truncate(event_log, 0);
    check_del("nope", "Device 'nope' not found");
    check_del("/machine/peripheral", "/machine/peripheral is not a hotpluggable device");
    check_del("", "Device '' not found");
    check_del("/machine/unattached/device[0]", "Device 'thost' does not support hotplugging");
    GError *err = NULL;
    g_assert_null(device_find("nope", &err));
    g_assert_cmpint(err->code, ==, ERROR_DEVICE_NOT_FOUND);
    g_clear_error(&err);
    unplug_refused = true;
    check_del("a", "not now");
    unplug_refused = false;
    check_del("a", NULL);
    check_log("unrealize:a unplug gone:a:/machine/peripheral/a ");

    guest_must_agree = true;
    DeviceState *dev = add("{'driver': 'tdev', 'id': 'a'}");
    g_string_truncate(event_log, 0);
    check_del("a", NULL);
    g_assert_true(dev->realized && dev->pending_deleted_event);
    check_del("a", "Device a is already in the process of unplug");
    check_del("/machine/peripheral/a",
              "Device /machine/peripheral/a is already in the process of unplug");
    check_refused("{'driver': 'tdev', 'id': 'a'}", "Duplicate device ID 'a'");
    g_string_truncate(event_log, 0);
    device_remove(dev);
    check_log("unrealize:a unplug gone:a:/machine/peripheral/a ");
    device_deleted_hook = NULL;
    machine_end();
}

static void test_del_bridge(void)
{
    machine_start();
    device_deleted_hook = on_deleted;
    add("{'driver': 'tbridge', 'id': 'br'}");
    add("{'driver': 'tdev', 'id': 'one', 'bus': 'br'}");
    add("{'driver': 'tdev', 'id': 'two', 'bus': 'br'}");
    g_string_truncate(event_log, 0);
    check_del("br", NULL);
    check_log("unrealize:two unplug gone:two:/machine/peripheral/two "
              "unrealize:one unplug gone:one:/machine/peripheral/one "
              "unrealize:br unplug gone:br:/machine/peripheral/br ");
    g_assert_null(bus_find("br"));
    device_deleted_hook = NULL;
    machine_end();
}

/* virtio's shape: the part is told first, both are gone then. */
static void test_del_proxy(void)
{
    machine_start();
    device_deleted_hook = on_deleted;
    TDev *proxy = (TDev *)object_new(t_proxy_get_type());
    t_proxy_make_part(proxy);
    object_add_child(qom_container("/machine/peripheral"), "n0", OBJECT(proxy));
    DEVICE(proxy)->id = g_strdup("n0");
    GError *err = NULL;
    json_object *value = json_object_new_int(3);
    g_assert_true(object_set_property(OBJECT(proxy), "n", value, &err));
    proxy->part->drain_count = 0;
    T_DEV(proxy->part)->fail = true;
    g_assert_false(device_realize(DEVICE(proxy), bus_find("tbus.0"), &err));
    g_assert_false(DEVICE(proxy)->realized || proxy->part->realized);
    g_assert_nonnull(OBJECT(proxy)->parent); /* its place is its owner's */
    g_clear_error(&err);
    T_DEV(proxy->part)->fail = false;
    g_assert_true(device_realize(DEVICE(proxy), bus_find("tbus.0"), &err));
    g_assert_no_error(err);
    check_get(OBJECT(proxy), "n", "3");
    g_assert_false(object_set_property(OBJECT(proxy), "n", value, &err));
    g_assert_cmpstr(err->message, ==,
                    "Attempt to set property 'n' on device 'n0' (type 'tproxy') after it was "
                    "realized");
    g_clear_error(&err);
    json_object_put(value);
    g_autofree char *path = device_path(proxy->part);
    g_assert_cmpstr(path, ==, "place-of-n0");
    g_string_truncate(event_log, 0);
    check_del("/machine/peripheral/n0/backend", "Device 'tpart' does not support hotplugging");
    check_del("n0", NULL);
    check_log("unrealize:tpart unrealize:n0 unplug "
              "gone:-:/machine/peripheral/n0/backend gone:n0:/machine/peripheral/n0 ");
    device_deleted_hook = NULL;
    machine_end();
}

/* Random plugging and unplugging: at the end the books are balanced. */
static void test_random(void)
{
    machine_start();
    add("{'driver': 'tbridge', 'id': 'br'}");
    for (unsigned i = 0; i < 2000; i++) {
        char id[2] = {(char)('a' + g_test_rand_int_range(0, 5)), 0};
        if (g_test_rand_bit()) {
            g_autofree char *json =
                g_strdup_printf("{'driver': 'tdev', 'id': '%s', 'fail': %s, 'bus': '%s'}", id,
                                g_test_rand_int_range(0, 4) ? "false" : "true",
                                g_test_rand_bit() ? "br" : "tbus.0");
            json_object *options = json_parse(json, NULL);
            device_add(options, NULL);
            json_object_put(options);
        } else {
            device_del(id, NULL);
        }
        if (i % 64 == 0) {
            machine_reset_devices();
        }
        g_string_truncate(event_log, 0);
        unsigned placed = qom_container("/machine/peripheral")->children->len;
        unsigned plugged = bus_find("tbus.0")->devices->len + bus_find("br")->devices->len;
        g_assert_cmpuint(placed, ==, plugged);
        g_assert_cmpuint(alive, ==, placed + 1);
    }
    machine_end();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    device_things_init();
    g_test_add_func("/device/reset/children-first", test_reset_order);
    g_test_add_func("/device/drain/nests", test_drain);
    g_test_add_func("/device/del/with-and-without-guest", test_del);
    g_test_add_func("/device/del/bridge-takes-what-is-behind", test_del_bridge);
    g_test_add_func("/device/del/part-told-before-whole", test_del_proxy);
    g_test_add_func("/device/random-plugging", test_random);
    int ret = g_test_run();
    g_string_free(event_log, TRUE);
    return ret;
}
