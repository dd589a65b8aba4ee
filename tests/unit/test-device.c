/*
 * Devices: realize and its failures, places in the tree, buses, reset order, drain, unplug with
 * and without a guest, an iothread.  The devices here write what happens to them to one log.
 */
#include <glib.h>
#include <string.h>

#include "hw/core/device.h"
#include "hw/core/iothread.h"
#include "hw/core/machine.h"
#include "util/json.h"

static GString *event_log;
static unsigned alive;

#define LOG(...) g_string_append_printf(event_log, __VA_ARGS__)

static void check_log(const char *expected)
{
    g_assert_cmpstr(event_log->str, ==, expected);
    g_string_truncate(event_log, 0);
}

/* --- a bus with two places --- */

typedef BusState TBus;
typedef BusClass TBusClass;
static GType t_bus_get_type(void);
G_DEFINE_TYPE(TBus, t_bus, TYPE_BUS)

static bool guest_must_agree, unplug_refused;

static gboolean t_bus_plug_check(BusState *bus, DeviceState *dev, GError **errp)
{
    g_assert_true(dev->parent_bus == bus);
    if (bus->devices->len >= 2) {
        return error_set(errp, "Bus '%s' is full", bus->bus_name);
    }
    LOG("plug ");
    return TRUE;
}

static void t_bus_plugged(BusState *bus, DeviceState *dev)
{
    g_assert_true(dev->realized);
}

static void t_bus_unplugged(BusState *bus, DeviceState *dev)
{
    g_assert_false(dev->realized);
    g_assert_true(dev->parent_bus == bus);
    LOG("unplug ");
}

static gboolean t_bus_unplug_request(BusState *bus, DeviceState *dev, GError **errp)
{
    return unplug_refused ? error_set(errp, "not now") : guest_must_agree;
}

static char *t_bus_device_path(DeviceState *dev)
{
    return g_strdup_printf("place-of-%s", device_name(dev));
}

static void t_bus_print(DeviceState *dev, GString *out, int indent)
{
    g_string_append_printf(out, "%*sprinted by bus\r\n", indent, "");
}

static void t_bus_class_init(TBusClass *klass)
{
    klass->parent_class.qom_name = "TBUS";
    klass->plug_check = t_bus_plug_check;
    klass->plugged = t_bus_plugged;
    klass->unplugged = t_bus_unplugged;
    klass->unplug_request = t_bus_unplug_request;
    klass->device_path = t_bus_device_path;
    klass->print_device = t_bus_print;
}

static void t_bus_init(TBus *bus) {}

typedef BusState PartBus;
typedef BusClass PartBusClass;
static GType part_bus_get_type(void);
G_DEFINE_TYPE(PartBus, part_bus, TYPE_BUS)

static void part_bus_class_init(PartBusClass *klass)
{
    klass->parent_class.qom_name = "part-bus";
}

static void part_bus_init(PartBus *bus) {}

/* --- devices --- */

typedef struct TDev {
    DeviceState parent_obj;
    uint32_t n;
    bool fail;
    BusState *bus; /* of a bridge or proxy */
    DeviceState *part;
} TDev;
typedef struct TDevClass {
    DeviceClass parent_class;
} TDevClass;
static GType t_dev_get_type(void);
/* Not a checked cast: TProxy shares the structure, not the class. */
#define T_DEV(dev) ((TDev *)(dev))
G_DEFINE_TYPE(TDev, t_dev, TYPE_DEVICE)

static const Property t_dev_props[] = {
    PROP_UINT32("n", TDev, n, 1, NULL),
    PROP_UINT32("live", TDev, n, 1, NULL, .flags = PROP_F_RUNTIME),
    PROP_BOOL("fail", TDev, fail, false, NULL),
    PROP_END,
};

static gboolean t_dev_realize(DeviceState *dev, GError **errp)
{
    if (T_DEV(dev)->fail) {
        return error_set(errp, "told to fail");
    }
    LOG("realize:%s ", device_name(dev));
    return TRUE;
}

static void t_dev_unrealize(DeviceState *dev)
{
    LOG("unrealize:%s ", device_name(dev));
}

static void t_dev_reset(DeviceState *dev)
{
    g_assert_cmpuint(dev->drain_count, >, 0); /* reset finds the device at rest */
    LOG("reset:%s ", device_name(dev));
}

static bool log_drain;

static void t_dev_drain_begin(DeviceState *dev)
{
    if (log_drain) {
        LOG("stop:%s ", device_name(dev));
    }
}

static void t_dev_drain_end(DeviceState *dev)
{
    if (log_drain) {
        LOG("go:%s ", device_name(dev));
    }
}

static void t_dev_finalize(GObject *obj)
{
    alive--;
    G_OBJECT_CLASS(t_dev_parent_class)->finalize(obj);
}

static void t_dev_class_init(TDevClass *klass)
{
    DeviceClass *dc = &klass->parent_class;
    dc->parent_class.qom_name = "tdev";
    dc->parent_class.description = "A device under test";
    dc->bus_type = "TBUS";
    dc->user_creatable_device = true;
    dc->realize = t_dev_realize;
    dc->unrealize = t_dev_unrealize;
    dc->reset = t_dev_reset;
    dc->drain_begin = t_dev_drain_begin;
    dc->drain_end = t_dev_drain_end;
    qom_class_set_props(klass, t_dev_props);
    G_OBJECT_CLASS(klass)->finalize = t_dev_finalize;
}

static void t_dev_init(TDev *dev)
{
    alive++;
}

/* The host bridge: on no bus, provides one; not for users. */
typedef TDev THost;
typedef TDevClass THostClass;
static GType t_host_get_type(void);
G_DEFINE_TYPE(THost, t_host, t_dev_get_type())

static void t_host_class_init(THostClass *klass)
{
    klass->parent_class.parent_class.qom_name = "thost";
    klass->parent_class.bus_type = NULL;
    klass->parent_class.user_creatable_device = false;
}

static void t_host_init(THost *host) {}

/* A bridge: one more TBUS behind. */
typedef TDev TBridge;
typedef TDevClass TBridgeClass;
static GType t_bridge_get_type(void);
G_DEFINE_TYPE(TBridge, t_bridge, t_dev_get_type())

static gboolean t_bridge_realize(DeviceState *dev, GError **errp)
{
    T_DEV(dev)->bus = bus_new(t_bus_get_type(), dev, dev->id);
    return t_dev_realize(dev, errp);
}

static void t_bridge_class_init(TBridgeClass *klass)
{
    klass->parent_class.parent_class.qom_name = "tbridge";
    klass->parent_class.realize = t_bridge_realize;
    klass->parent_class.category = CATEGORY_BRIDGE;
}

static void t_bridge_init(TBridge *bridge) {}

/* A transport with its device as a part, as virtio-net-pci has. */
typedef TDev TPart;
typedef TDevClass TPartClass;
static GType t_part_get_type(void);
G_DEFINE_TYPE(TPart, t_part, t_dev_get_type())

static void t_part_class_init(TPartClass *klass)
{
    klass->parent_class.parent_class.qom_name = "tpart";
    klass->parent_class.bus_type = "part-bus";
}

static void t_part_init(TPart *part) {}

typedef TDev TProxy;
typedef TDevClass TProxyClass;
static GType t_proxy_get_type(void);
G_DEFINE_TYPE(TProxy, t_proxy, TYPE_DEVICE)

static gboolean t_proxy_realize(DeviceState *dev, GError **errp)
{
    return device_realize(T_DEV(dev)->part, T_DEV(dev)->bus, errp) && t_dev_realize(dev, errp);
}

static void t_proxy_class_init(TProxyClass *klass)
{
    DeviceClass *dc = &klass->parent_class;
    dc->parent_class.qom_name = "tproxy";
    dc->parent_class.alias_child = "backend";
    dc->parent_class.alias_type = t_part_get_type();
    dc->bus_type = "TBUS";
    dc->user_creatable_device = true;
    dc->realize = t_proxy_realize;
    dc->unrealize = t_dev_unrealize;
    G_OBJECT_CLASS(klass)->finalize = t_dev_finalize;
}

static void t_proxy_init(TProxy *proxy)
{
    alive++;
}

static void t_proxy_make_part(TDev *proxy)
{
    proxy->bus = bus_new(part_bus_get_type(), DEVICE(proxy), "part-bus");
    proxy->part = DEVICE(object_new(t_part_get_type()));
    object_add_child(OBJECT(proxy), "backend", OBJECT(proxy->part));
}

/* --- helpers --- */

static MachineState *machine;
static DeviceState *host;

static void machine_start(void)
{
    machine = machine_new(machine_class_find("none", NULL));
    g_assert_true(machine_init(machine, NULL));
    host = DEVICE(object_new(t_host_get_type()));
    bus_new(t_bus_get_type(), host, "tbus.0");
    g_assert_true(device_realize(host, NULL, NULL));
    g_string_truncate(event_log, 0);
}

static void machine_end(void)
{
    machine_free(machine);
    g_string_truncate(event_log, 0);
    g_assert_cmpuint(alive, ==, 0);
    guest_must_agree = unplug_refused = log_drain = false;
}

static DeviceState *add(const char *json)
{
    GError *err = NULL;
    json_object *options = json_parse(json, NULL);
    DeviceState *dev = device_add(options, &err);
    json_object_put(options);
    g_assert_no_error(err);
    g_assert_nonnull(dev);
    g_assert_true(dev->realized);
    return dev;
}

/* An addition that fails leaves nothing: no object, no place on the bus, the id free. */
static void check_refused(const char *json, const char *message)
{
    GError *err = NULL;
    json_object *options = json_parse(json, &err);
    g_assert_no_error(err);
    unsigned before = alive, on_bus = bus_find("tbus.0") ? bus_find("tbus.0")->devices->len : 0;
    g_assert_null(device_add(options, &err));
    if (!strstr(err->message, message)) {
        g_error("%s: '%s' does not contain '%s'", json, err->message, message);
    }
    g_clear_error(&err);
    g_assert_null(device_add(options, NULL));
    json_object_put(options);
    g_assert_cmpuint(alive, ==, before);
    g_assert_cmpuint(bus_find("tbus.0") ? bus_find("tbus.0")->devices->len : 0, ==, on_bus);
}

static void check_del(const char *id, const char *message)
{
    GError *err = NULL;
    gboolean ok = device_del(id, &err);
    if (!message) {
        g_assert_no_error(err);
        g_assert_true(ok);
        return;
    }
    g_assert_false(ok);
    g_assert_cmpstr(err->message, ==, message);
    g_error_free(err);
}

static void check_get(Object *obj, const char *name, const char *json)
{
    json_object *value = object_get_property(obj, name, NULL);
    g_assert_cmpstr(json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
                                                              JSON_C_TO_STRING_NOSLASHESCAPE),
                    ==, json);
    json_object_put(value);
}

static void on_deleted(const char *id, const char *path)
{
    /* Whoever hears of it may add again at once. */
    g_assert_null(qom_resolve_path(path, NULL));
    LOG("gone:%s:%s ", id ? id : "-", path);
}

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

/* --- iothread --- */

static void note_thread(void *opaque)
{
    *(GThread **)opaque = g_thread_self();
}

static void test_iothread(void)
{
    GError *err = NULL;
    json_object *options =
        json_parse("{'qom-type': 'iothread', 'id': 'io0', 'poll-max-ns': 0}", NULL);
    Object *obj = user_object_add(options, &err);
    g_assert_no_error(err);
    GThread *thread = NULL;
    event_loop_run_sync(IOTHREAD(obj)->loop, note_thread, &thread);
    g_assert_true(thread && thread != g_thread_self());
    IOTHREAD(obj)->users++;
    g_assert_false(user_object_del("io0", &err));
    g_clear_error(&err);
    IOTHREAD(obj)->users--;
    g_assert_true(user_object_del("io0", &err));
    json_object_object_add(options, "poll-max-ns", json_object_new_int(32768));
    g_assert_null(user_object_add(options, &err));
    g_assert_nonnull(strstr(err->message, "'iothread.poll-max-ns' doesn't take value '32768'"));
    g_clear_error(&err);
    json_object_put(options);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qom_register_core_types();
    hw_core_register_types();
    GType types[] = {t_bus_get_type(),    part_bus_get_type(), t_dev_get_type(),  t_host_get_type(),
                     t_bridge_get_type(), t_part_get_type(),   t_proxy_get_type()};
    for (unsigned i = 0; i < G_N_ELEMENTS(types); i++) {
        qom_register_type(types[i]);
    }
    event_log = g_string_new(NULL);
    g_test_add_func("/device/add/places-and-properties", test_places);
    g_test_add_func("/device/add/failure-leaves-nothing", test_refusals);
    g_test_add_func("/device/add/driver-alias", test_alias);
    g_test_add_func("/device/add/hotplug-resets", test_hotplug_state);
    g_test_add_func("/device/bus/names-and-order", test_buses);
    g_test_add_func("/device/reset/children-first", test_reset_order);
    g_test_add_func("/device/drain/nests", test_drain);
    g_test_add_func("/device/del/with-and-without-guest", test_del);
    g_test_add_func("/device/del/bridge-takes-what-is-behind", test_del_bridge);
    g_test_add_func("/device/del/part-told-before-whole", test_del_proxy);
    g_test_add_func("/device/random-plugging", test_random);
    g_test_add_func("/device/iothread", test_iothread);
    int ret = g_test_run();
    g_string_free(event_log, TRUE);
    return ret;
}
