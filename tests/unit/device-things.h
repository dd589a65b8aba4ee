/*
 * Devices and buses for tests of the device core: they write what happens to them to one log, and a
 * machine that they sit on.
 */
#ifndef TESTS_UNIT_DEVICE_THINGS_H
#define TESTS_UNIT_DEVICE_THINGS_H

#include <glib.h>
#include <string.h>

#include "hw/core/device.h"
#include "hw/core/iothread.h"
#include "hw/core/machine.h"
#include "util/json.h"

static GString *event_log;
static unsigned alive;

#define LOG(...) g_string_append_printf(event_log, __VA_ARGS__)

static inline void check_log(const char *expected)
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

static inline void t_proxy_make_part(TDev *proxy)
{
    proxy->bus = bus_new(part_bus_get_type(), DEVICE(proxy), "part-bus");
    proxy->part = DEVICE(object_new(t_part_get_type()));
    object_add_child(OBJECT(proxy), "backend", OBJECT(proxy->part));
}

/* --- helpers --- */

static MachineState *machine;
static DeviceState *host;

static inline void machine_start(void)
{
    machine = machine_new(machine_class_find("none", NULL));
    g_assert_true(machine_init(machine, NULL));
    host = DEVICE(object_new(t_host_get_type()));
    bus_new(t_bus_get_type(), host, "tbus.0");
    g_assert_true(device_realize(host, NULL, NULL));
    g_string_truncate(event_log, 0);
}

static inline void machine_end(void)
{
    machine_free(machine);
    g_string_truncate(event_log, 0);
    g_assert_cmpuint(alive, ==, 0);
    guest_must_agree = unplug_refused = log_drain = false;
}

static inline DeviceState *add(const char *json)
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
static inline void check_refused(const char *json, const char *message)
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

static inline void check_del(const char *id, const char *message)
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

static inline void check_get(Object *obj, const char *name, const char *json)
{
    json_object *value = object_get_property(obj, name, NULL);
    g_assert_cmpstr(json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN |
                                                              JSON_C_TO_STRING_NOSLASHESCAPE),
                    ==, json);
    json_object_put(value);
}

static inline void on_deleted(const char *id, const char *path)
{
    /* Whoever hears of it may add again at once. */
    g_assert_null(qom_resolve_path(path, NULL));
    LOG("gone:%s:%s ", id ? id : "-", path);
}

static inline void device_things_init(void)
{
    qom_register_core_types();
    hw_core_register_types();
    GType types[] = {t_bus_get_type(),    part_bus_get_type(), t_dev_get_type(),  t_host_get_type(),
                     t_bridge_get_type(), t_part_get_type(),   t_proxy_get_type()};
    for (unsigned i = 0; i < G_N_ELEMENTS(types); i++) {
        qom_register_type(types[i]);
    }
    event_log = g_string_new(NULL);
}

#endif
