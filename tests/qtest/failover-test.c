/*
 * Failover: a primary that is kept back until the driver of its standby accepts STANDBY.  On q35,
 * whose root ports can plug and unplug.
 */
#include <linux/virtio_net.h>

#include "tests/lib/launch.h"
#include "tests/lib/rig.h"

#define STANDBY (1ull << VIRTIO_NET_F_STANDBY)

static Rig *open_rig(const char *machine, const char *more)
{
    g_autofree char *ports = g_strdup("pcie-root-port,id=rp0,addr=2,slot=7,chassis=1");
    const char *args[] = {"-machine", machine, "-device", ports, more ? "-device" : NULL,
                          more,       NULL};
    RigConfig config = {.device = "failover=on", .args = args};
    Rig *rig = rig_open(&config);

    rig->config.args = NULL;
    return rig;
}

static bool exists(Rig *rig, const char *id)
{
    json_object *list = launch_qmp(rig->emulator, "qom-list", "{'path': '/machine/peripheral'}");
    bool found = false;

    for (size_t i = 0; i < json_object_array_length(list); i++) {
        found |= !g_strcmp0(launch_string(json_object_array_get_idx(list, i), "name"), id);
    }
    json_object_put(list);
    return found;
}

static void negotiate(Rig *rig)
{
    rig->config.features = STANDBY;
    rig_start(rig);

    json_object *data = launch_wait_event(rig->emulator, "FAILOVER_NEGOTIATED");

    g_assert_cmpstr(launch_string(data, "device-id"), ==, "nic0");
    json_object_put(data);
    rig_settle(rig);
}

#define PRIMARY "virtio-net-pci,id=primary0,bus=rp0,failover_pair_id=nic0,romfile="

static void test_hidden_until_negotiated(void)
{
    Rig *rig = open_rig("q35", PRIMARY);

    g_assert_false(exists(rig, "primary0"));
    negotiate(rig);
    g_assert_true(exists(rig, "primary0"));
    /* A driver that starts anew finds it as it was. */
    rig_restart(rig);
    g_assert_true(exists(rig, "primary0"));
    rig_free(rig);
}

static void test_driver_without_standby(void)
{
    Rig *rig = open_rig("q35", PRIMARY);

    rig_start(rig);
    rig_settle(rig);
    g_assert_false(exists(rig, "primary0"));
    rig_free(rig);
}

static void test_added_later(void)
{
    Rig *rig = open_rig("q35", NULL);

    launch_do(rig->emulator, "device_add",
              "{'driver': 'virtio-net-pci', 'id': 'primary0', 'bus': 'rp0', "
              "'failover_pair_id': 'nic0'}");
    g_assert_false(exists(rig, "primary0"));

    g_autofree char *second =
        launch_fails(rig->emulator, "device_add",
                     "{'driver': 'virtio-net-pci', 'id': 'primary1', 'bus': 'rp0', "
                     "'failover_pair_id': 'nic0'}");
    g_assert_cmpstr(second, ==,
                    "Cannot attach more than one primary device to 'nic0': 'primary0' and "
                    "'primary1'");

    g_autofree char *nameless =
        launch_fails(rig->emulator, "device_add",
                     "{'driver': 'virtio-net-pci', 'bus': 'rp0', 'failover_pair_id': 'nic0'}");
    g_assert_cmpstr(nameless, ==, "Device with failover_pair_id needs to have id");
    negotiate(rig);
    g_assert_true(exists(rig, "primary0"));
    rig_free(rig);
}

/* A primary must be able to leave by itself. */
static void test_wrong_place(void)
{
    Rig *rig = open_rig("q35", NULL);

    negotiate(rig);

    g_autofree char *display = launch_fails(
        rig->emulator, "device_add",
        "{'driver': 'virtio-rng-pci', 'id': 'p', 'bus': 'rp0', 'failover_pair_id': 'nic0'}");
    g_assert_cmpstr(display, ==, "failover primary device is not an Ethernet device");
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/failover/hidden-until-negotiated", test_hidden_until_negotiated);
    g_test_add_func("/failover/driver-without-standby", test_driver_without_standby);
    g_test_add_func("/failover/added-later", test_added_later);
    g_test_add_func("/failover/wrong-place", test_wrong_place);
    return g_test_run();
}
