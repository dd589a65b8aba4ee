/*
 * libswnic: the instance, its memory, back ends and objects.
 *
 * An instance is a machine without anything: no RAM of its own, no buses.  Each device brings the
 * bus it sits on (device.c).  What the functions here take as text goes through the same parsers
 * and the same checks as the command line of swnic-system-x86_64.
 *
 * Not here: what system/ adds around a device for users (options, monitors, qtest).
 */
#include "libswnic.h"

#include "chardev/chardev.h"
#include "hw/net/virtio-net.h"
#include "hw/virtio/virtio.h"
#include "net/filter.h"
#include "net/net.h"
#include "qapi/monitor.h"
#include "qapi/qapi-events.h"
#include "util/error.h"
#include "util/event-loop.h"
#include "util/json.h"
#include "util/log.h"
#include "util/runstate.h"

/* There are no monitors: no client can name a command. */
const QmpCommand qmp_commands[] = {{NULL}};

typedef struct SwnicMachine {
    MachineState parent_obj;
} SwnicMachine;
typedef struct SwnicMachineClass {
    MachineClass parent_class;
} SwnicMachineClass;

static GType swnic_machine_get_type(void);
G_DEFINE_TYPE(SwnicMachine, swnic_machine, TYPE_MACHINE)

static Swnic *instance;

static void swnic_machine_class_init(SwnicMachineClass *klass)
{
    MachineClass *mc = &klass->parent_class;

    mc->parent_class.qom_name = "libswnic-machine";
    mc->name = "libswnic";
    mc->desc = "devices of an emulator that embeds libswnic";
}

static void swnic_machine_init(SwnicMachine *machine) {}

static void register_types(void)
{
    qom_register_core_types();
    hw_core_register_types();
    hw_pci_register_types();
    hw_virtio_register_types();
    virtio_net_register_types();
    net_register_filter_types();
    qom_register_type(swnic_machine_get_type());
    swnic_device_register_types();
}

const char *swnic_version(void)
{
    return SWNIC_VERSION;
}

/* --- the instance --- */

static void event_sent(void *opaque, const char *name, json_object *event)
{
    Swnic *swnic = opaque;

    swnic->config.event(swnic->config.opaque, name,
                        json_object_to_json_string_ext(event, JSON_C_TO_STRING_PLAIN));
}

/* Whether an instance can be made now, by this thread, for this program. */
static gboolean check_new(const SwnicConfig *config, GError **errp)
{
    if (config && config->version != SWNIC_CONFIG_VERSION) {
        return error_set(errp, "SwnicConfig has version %u, this library knows %u", config->version,
                         SWNIC_CONFIG_VERSION);
    }
    EventLoop *loop = event_loop_try_main(errp);
    if (!loop) {
        return FALSE;
    }
    if (!event_loop_is_current(loop)) {
        return error_set(errp,
                         "another thread has called swnic_new() first: it is the main thread");
    }
    return !instance || error_set(errp, "there is an instance already, one a process is possible");
}

Swnic *swnic_new(const SwnicConfig *config, GError **errp)
{
    static bool registered;

    if (!check_new(config, errp)) {
        return NULL;
    }
    if (!registered) {
        registered = true;
        register_types();
        error_set_program_name("libswnic");
        virtio_net_rx_filter_changed_hook = qapi_event_send_nic_rx_filter_changed;
        device_deleted_hook = qapi_event_send_device_deleted;
    }
    Swnic *swnic = g_new0(Swnic, 1);
    if (config) {
        swnic->config = *config;
    }
    swnic->devices = g_ptr_array_new();
    swnic->memory = memory_map_new(NULL, 0, NULL);
    swnic->machine = machine_new(g_type_class_peek(swnic_machine_get_type()));
    if (!machine_init(swnic->machine, errp)) {
        swnic_free(swnic);
        return NULL;
    }
    device_set_machine_ready(true);
    if (swnic->config.event) {
        qmp_event_listen(event_sent, swnic);
    }
    instance = swnic;
    return swnic;
}

/* In reverse order: a later one may refer to an earlier one. */
static void remove_objects(void)
{
    Object *objects = qom_container("/objects");

    while (objects->children && objects->children->len) {
        object_unparent(g_ptr_array_index(objects->children, objects->children->len - 1));
    }
}

void swnic_free(Swnic *swnic)
{
    if (!swnic) {
        return;
    }
    vm_stop(VM_SHUTDOWN);
    while (swnic->devices->len) {
        swnic_device_remove(g_ptr_array_index(swnic->devices, swnic->devices->len - 1));
    }
    machine_free(swnic->machine);
    remove_objects();
    net_cleanup();
    chardev_cleanup_all();
    if (swnic->config.event) {
        qmp_event_unlisten(event_sent, swnic);
    }
    memory_map_unref(swnic->memory);
    g_ptr_array_free(swnic->devices, TRUE);
    g_free(swnic);
    instance = NULL;
}

void swnic_start(Swnic *swnic)
{
    vm_start();
}

void swnic_stop(Swnic *swnic)
{
    vm_stop(VM_PAUSED);
}

bool swnic_set_log(Swnic *swnic, const char *items, const char *path, GError **errp)
{
    return (!path || log_set_file(path, errp)) && log_set_items(items, errp);
}

/* --- memory --- */

bool swnic_set_memory(Swnic *swnic, const SwnicMemory *memory, unsigned count, GError **errp)
{
    g_autofree MemoryRange *ranges = g_new0(MemoryRange, count);

    for (unsigned i = 0; i < count; i++) {
        ranges[i] = (MemoryRange){
            .addr = memory[i].addr,
            .size = memory[i].size,
            .host = memory[i].host,
            .fd = memory[i].fd,
            .offset = memory[i].offset,
            .flags = memory[i].flags & SWNIC_MEMORY_READONLY ? MEMORY_READONLY : 0,
        };
    }
    MemoryMap *map = memory_map_new(ranges, count, errp);
    if (!map) {
        return false;
    }
    MemoryMap *old = swnic->memory;
    swnic->memory = map;
    for (guint i = 0; i < swnic->devices->len; i++) {
        swnic_device_memory_changed(g_ptr_array_index(swnic->devices, i));
    }
    memory_map_unref(old);
    return true;
}

/* --- character devices, back ends and objects --- */

json_object *swnic_parse_options(const char *text, const KeyvalOptions *keyval, GError **errp)
{
    bool help = false;
    json_object *options = keyval_parse(text, keyval, &help, errp);

    if (options && help) {
        json_object_put(options);
        error_set(errp, "'%s' asks for help, which swnic-system-x86_64 gives", text);
        return NULL;
    }
    return options;
}

bool swnic_chardev_add(Swnic *swnic, const char *text, GError **errp)
{
    bool help = false;
    json_object *options = chardev_parse_options(text, &help, errp);
    bool ok = options &&
              (!help || error_set(errp,
                                  "'%s' asks for help, which "
                                  "swnic-system-x86_64 gives",
                                  text)) &&
              chardev_new(options, errp);

    json_object_put(options);
    return ok;
}

bool swnic_chardev_del(Swnic *swnic, const char *id, GError **errp)
{
    return chardev_remove(id, errp);
}

bool swnic_netdev_add(Swnic *swnic, const char *text, GError **errp)
{
    const KeyvalOptions keyval = {
        .implied_key = "type",
        .allow_flags = !net_options_are_strict(text),
        .list_keys = net_list_keys,
    };
    json_object *options = swnic_parse_options(text, &keyval, errp);
    bool ok = options && net_init_netdev(options, errp);

    json_object_put(options);
    return ok;
}

bool swnic_netdev_del(Swnic *swnic, const char *id, GError **errp)
{
    return net_delete_netdev(id, errp);
}

bool swnic_set_link(Swnic *swnic, const char *id, bool up, GError **errp)
{
    return net_set_link(id, up, errp);
}

char *swnic_info_network(Swnic *swnic)
{
    GString *out = g_string_new(NULL);

    net_print_info(out);
    return g_string_free(out, FALSE);
}

bool swnic_object_add(Swnic *swnic, const char *text, GError **errp)
{
    static const KeyvalOptions keyval = {.implied_key = "qom-type", .allow_flags = true};
    json_object *options = swnic_parse_options(text, &keyval, errp);
    bool ok = options && user_object_add(options, errp);

    json_object_put(options);
    return ok;
}

bool swnic_object_del(Swnic *swnic, const char *id, GError **errp)
{
    return user_object_del(id, errp);
}
