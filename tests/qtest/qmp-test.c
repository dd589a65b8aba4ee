/* QMP as clients meet it: negotiation, answers, events, broken bytes, and HMP through it. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/rig.h"

/* A rig with a second, fresh monitor, on which nothing was negotiated. */
typedef struct Raw {
    Rig *rig;
    QmpClient *qmp;
    char *path;
} Raw;

static Raw raw_open(void)
{
    Raw raw = {.path = g_strdup_printf("%s/swnic-qmp-test-%d", g_get_tmp_dir(), (int)getpid())};
    g_autofree char *option = g_strdup_printf("unix:%s,server=on,wait=off", raw.path);
    const char *args[] = {"-qmp", option, NULL};
    GError *err = NULL;

    unlink(raw.path);
    raw.rig = rig_open(&(RigConfig){.args = args});
    raw.qmp = qmp_client_connect(raw.path, &err);
    g_assert_no_error(err);
    return raw;
}

static void raw_close(Raw *raw)
{
    qmp_client_free(raw->qmp);
    rig_free(raw->rig);
    unlink(raw->path);
    g_free(raw->path);
}

static void raw_send(Raw *raw, const char *bytes, size_t size)
{
    GError *err = NULL;

    qmp_client_send_raw(raw->qmp, bytes, size, &err);
    g_assert_no_error(err);
}

static json_object *raw_receive(Raw *raw)
{
    GError *err = NULL;
    json_object *value = qmp_client_receive(raw->qmp, RIG_TIMEOUT_MS, &err);

    g_assert_no_error(err);
    return value;
}

static json_object *raw_ask(Raw *raw, const char *text)
{
    raw_send(raw, text, strlen(text));
    return raw_receive(raw);
}

/* Text at "a.b.c" of @value; fails when it is not there. */
static const char *text_at(json_object *value, const char *path)
{
    g_auto(GStrv) keys = g_strsplit(path, ".", -1);

    for (char **key = keys; *key; key++) {
        json_object *member = NULL;

        if (!json_object_object_get_ex(value, *key, &member)) {
            g_error("no member '%s' in %s", *key, json_object_to_json_string(value));
        }
        value = member;
    }
    return value ? json_object_get_string(value) : "null";
}

static void raw_negotiate(Raw *raw)
{
    json_object_put(raw_receive(raw)); /* greeting */
    json_object_put(raw_ask(raw, "{\"execute\": \"qmp_capabilities\"}\n"));
}

/* --- negotiation --- */

static void test_greeting_and_negotiation(void)
{
    Raw raw = raw_open();
    json_object *greeting = raw_receive(&raw), *answer;

    text_at(greeting, "QMP.version.qemu.major");
    text_at(greeting, "QMP.version.qemu.minor");
    text_at(greeting, "QMP.version.qemu.micro");
    text_at(greeting, "QMP.version.package");
    g_assert_cmpstr(text_at(greeting, "QMP.capabilities"), ==, "[ \"oob\" ]");
    json_object_put(greeting);

    answer = raw_ask(&raw, "{\"execute\": \"query-status\"}");
    g_assert_cmpstr(text_at(answer, "error.class"), ==, "CommandNotFound");
    json_object_put(answer);
    answer = raw_ask(&raw, "{\"execute\": \"qmp_capabilities\", "
                           "\"arguments\": {\"enable\": [\"nothing\"]}}");
    g_assert_cmpstr(text_at(answer, "error.class"), ==, "GenericError");
    json_object_put(answer);
    answer = raw_ask(&raw, "{\"execute\": \"qmp_capabilities\"}");
    g_assert_cmpstr(text_at(answer, "return"), ==, "{ }");
    json_object_put(answer);
    answer = raw_ask(&raw, "{\"execute\": \"qmp_capabilities\"}");
    g_assert_cmpstr(text_at(answer, "error.class"), ==, "CommandNotFound");
    json_object_put(answer);
    answer = raw_ask(&raw, "{\"exec-oob\": \"query-status\"}");
    g_assert_cmpstr(text_at(answer, "error.class"), ==, "GenericError");
    json_object_put(answer);
    raw_close(&raw);
}

static void test_ids_are_echoed(void)
{
    static const char *const ids[] = {
        "1", "\"text\"", "null", "true", "[ 1, 2 ]", "{ \"a\": 1 }", "18446744073709551615", "-5"};
    Raw raw = raw_open();

    raw_negotiate(&raw);
    for (unsigned i = 0; i < G_N_ELEMENTS(ids); i++) {
        g_autofree char *good =
            g_strdup_printf("{\"execute\": \"query-status\", \"id\": %s}", ids[i]);
        g_autofree char *bad = g_strdup_printf("{\"execute\": \"nothing\", \"id\": %s}", ids[i]);
        g_autofree char *want = g_strdup(strcmp(ids[i], "\"text\"") ? ids[i] : "text");
        json_object *answer = raw_ask(&raw, good);

        text_at(answer, "return.status");
        g_assert_cmpstr(text_at(answer, "id"), ==, want);
        json_object_put(answer);
        answer = raw_ask(&raw, bad);
        g_assert_cmpstr(text_at(answer, "error.class"), ==, "CommandNotFound");
        g_assert_cmpstr(text_at(answer, "id"), ==, want);
        json_object_put(answer);
    }
    raw_close(&raw);
}

/* --- bytes --- */

/* Each broken value is one GenericError, and the stream goes on behind it. */
static void test_broken_values(void)
{
    static const struct {
        const char *bytes;
        size_t size;
        unsigned errors;
    } rows[] = {
        {"}", 1, 1},
        {"}}}", 3, 3},
        {"]", 1, 1},
        {"{\"execute\" \"x\"}\n", 16, 1},
        {"\xff", 1, 1},
        {"{\"a\": \xc3\x28}\n", 10, 2}, /* the bracket behind it is another */
        {"nonsense\n", 9, 1},
        {"[1]", 3, 1},
        {"5\n", 2, 1},
        {"\"text\"\n", 7, 1},
        {"null\n", 5, 1},
        {"{}", 2, 1},
        {"{\"execute\": 5}", 14, 1},
        {"{\"execute\": \"query-status\", \"nothing\": 1}", 41, 1},
        {"{\"execute\": \"query-status\", \"arguments\": 5}", 43, 1},
        {"{\"execute\": \"query-status\", \"arguments\": {\"a\": 1}}", 50, 1},
    };
    Raw raw = raw_open();

    raw_negotiate(&raw);
    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        unsigned errors = 0;
        json_object *answer;

        raw_send(&raw, rows[i].bytes, rows[i].size);
        answer = raw_ask(&raw, "{\"execute\": \"query-status\", \"id\": 7}\n");
        while (json_object_object_get(answer, "error")) {
            g_assert_cmpstr(text_at(answer, "error.class"), ==, "GenericError");
            errors++;
            json_object_put(answer);
            answer = raw_receive(&raw);
        }
        g_assert_cmpstr(text_at(answer, "id"), ==, "7");
        json_object_put(answer);
        if (errors != rows[i].errors) {
            g_error("'%.*s' gives %u errors, not %u", (int)rows[i].size, rows[i].bytes, errors,
                    rows[i].errors);
        }
    }
    raw_close(&raw);
}

static void test_pieces_and_quotes(void)
{
    static const char text[] = "  {'execute': \t'query-status',\n 'id': 'it\\'s \"\\u00e4\"'}\r\n";
    Raw raw = raw_open();
    json_object *answer;

    raw_negotiate(&raw);
    for (unsigned i = 0; i < strlen(text); i++) {
        raw_send(&raw, text + i, 1);
    }
    answer = raw_receive(&raw);
    g_assert_cmpstr(text_at(answer, "id"), ==, "it's \"\xc3\xa4\"");
    json_object_put(answer);
    raw_send(&raw, "{'execute':'query-status','id':1}{'execute':'query-status','id':2}", 66);
    answer = raw_receive(&raw);
    g_assert_cmpstr(text_at(answer, "id"), ==, "1");
    json_object_put(answer);
    answer = raw_receive(&raw);
    g_assert_cmpstr(text_at(answer, "id"), ==, "2");
    json_object_put(answer);
    raw_close(&raw);
}

/* Depth, length and noise without end: errors, never the end of the process. */
static void test_hostile_bytes(void)
{
    Raw raw = raw_open();
    GRand *rand = g_rand_new_with_seed(5);
    size_t size = 1 << 20;
    g_autofree char *bytes = g_malloc(size);
    GError *err = NULL;
    json_object *status;

    raw_negotiate(&raw);
    for (unsigned round = 0; round < 4; round++) {
        for (size_t i = 0; i < size; i++) {
            static const char alphabet[] = "{}[]\"',:0123456789truefalsn\\ \n\t\x80\xff";

            bytes[i] = round == 0   ? '['
                       : round == 1 ? '{'
                       : round == 2 ? (char)g_rand_int(rand)
                                    : alphabet[g_rand_int(rand) % (sizeof(alphabet) - 1)];
        }
        /* Its answers are not read: the emulator must not wait for that on other channels. */
        if (!qmp_client_send_raw(raw.qmp, bytes, round < 2 ? size : size / 16, NULL)) {
            break;
        }
        qmp_client_free(raw.qmp);
        status = qmp_client_execute(raw.rig->qmp, "query-status", NULL, &err);
        g_assert_no_error(err);
        json_object_put(status);
        raw.qmp = qmp_client_connect(raw.path, &err);
        g_assert_no_error(err);
        raw_negotiate(&raw);
    }
    g_rand_free(rand);
    rig_start(raw.rig);
    rig_expect_working(raw.rig);
    raw_close(&raw);
}

/* --- commands --- */

static json_object *execute(Rig *rig, const char *command, const char *args)
{
    GError *err = NULL;
    json_object *value = args ? qmp_client_executef(rig->qmp, command, &err, "%s", args)
                              : qmp_client_execute(rig->qmp, command, NULL, &err);

    if (err) {
        g_error("%s %s: %s", command, args ? args : "", err->message);
    }
    return value;
}

static void expect_failure(Rig *rig, const char *command, const char *args, const char *text)
{
    GError *err = NULL;

    json_object_put(qmp_client_executef(rig->qmp, command, &err, "%s", args));
    if (!err) {
        g_error("%s %s: no error", command, args);
    }
    if (!strstr(err->message, text)) {
        g_error("%s %s: '%s' does not have '%s'", command, args, err->message, text);
    }
    g_error_free(err);
}

/* The element of list @list whose @key is @value, or NULL. */
static json_object *element(json_object *list, const char *key, const char *value)
{
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *item = json_object_array_get_idx(list, i);

        if (g_strcmp0(json_object_get_string(json_object_object_get(item, key)), value) == 0) {
            return item;
        }
    }
    return NULL;
}

static void test_commands_listed(void)
{
    static const char *const names[] = {"qmp_capabilities",
                                        "query-version",
                                        "query-status",
                                        "query-commands",
                                        "query-machines",
                                        "qom-list",
                                        "qom-get",
                                        "qom-set",
                                        "qom-list-types",
                                        "device-list-properties",
                                        "query-rx-filter",
                                        "set_link",
                                        "stop",
                                        "cont",
                                        "system_reset",
                                        "quit",
                                        "human-monitor-command"};
    Rig *rig = rig_open(NULL);
    json_object *list = execute(rig, "query-commands", NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        if (!element(list, "name", names[i])) {
            g_error("query-commands does not list %s", names[i]);
        }
    }
    json_object_put(list);
    rig_free(rig);
}

static void test_errors(void)
{
    static const char *const rows[][3] = {
        {"nothing", "{}", "CommandNotFound"},
        {"qom-get", "{}", "path"},
        {"qom-get", "{\"path\": \"/machine\"}", "property"},
        {"qom-get", "{\"path\": 5, \"property\": \"type\"}", "path"},
        {"qom-get", "{\"path\": \"/machine\", \"property\": \"type\", \"x\": 1}", "x"},
        {"qom-get", "{\"path\": \"/nothing\", \"property\": \"type\"}", "DeviceNotFound"},
        {"qom-get", "{\"path\": \"/machine\", \"property\": \"nothing\"}", "nothing"},
        {"qom-list", "{\"path\": \"/nothing\"}", "DeviceNotFound"},
        {"qom-set", "{\"path\": \"nic0\", \"property\": \"mac\", \"value\": \"52:54:00:00:00:00\"}",
         "mac"},
        {"set_link", "{\"name\": \"nothing\", \"up\": true}", "DeviceNotFound"},
        {"set_link", "{\"name\": \"nic0\", \"up\": 1}", "up"},
        {"query-rx-filter", "{\"name\": \"nothing\"}", "nothing"},
        {"query-rx-filter", "{\"name\": \"n0\"}", "n0"},
        {"device-list-properties", "{\"typename\": \"nothing\"}", "DeviceNotFound"},
        {"netdev_del", "{\"id\": \"nothing\"}", "nothing"},
        {"netdev_add", "{\"type\": \"nothing\", \"id\": \"x\"}", "nothing"},
        {"device_del", "{\"id\": \"nothing\"}", "nothing"},
        {"object-add", "{\"qom-type\": \"nothing\", \"id\": \"x\"}", "nothing"},
        {"object-del", "{\"id\": \"nothing\"}", "nothing"},
    };
    Rig *rig = rig_new(NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        expect_failure(rig, rows[i][0], rows[i][1], rows[i][2]);
    }
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_machines_and_types(void)
{
    Rig *rig = rig_open(NULL);
    json_object *list = execute(rig, "query-machines", NULL);
    json_object *machine = element(list, "alias", "pc");

    g_assert_nonnull(machine);
    g_assert_cmpstr(text_at(machine, "is-default"), ==, "true");
    g_assert_true(g_str_has_prefix(text_at(machine, "name"), "pc-i440fx-"));
    text_at(machine, "cpu-max");
    text_at(machine, "hotpluggable-cpus");
    text_at(machine, "numa-mem-supported");
    text_at(machine, "deprecated");
    if (rig->is_swnic) {
        text_at(machine, "acpi"); /* since QEMU 8.0 */
    }
    g_assert_nonnull(element(list, "name", "none"));
    json_object_put(list);

    list = execute(rig, "qom-list-types", "{\"implements\": \"device\"}");
    g_assert_nonnull(element(list, "name", "virtio-net-pci"));
    g_assert_null(json_object_object_get(element(list, "name", "virtio-net-pci"), "abstract"));
    g_assert_null(element(list, "name", "pci-device"));
    json_object_put(list);
    list = execute(rig, "qom-list-types", "{\"implements\": \"device\", \"abstract\": true}");
    g_assert_cmpstr(text_at(element(list, "name", "pci-device"), "abstract"), ==, "true");
    json_object_put(list);
    rig_free(rig);
}

static void test_properties(void)
{
    static const char *const names[][2] = {
        {"mac", "str"},        {"x-txburst", "int32"}, {"x-txtimer", "uint32"},    {"tx", "str"},
        {"vectors", "uint32"}, {"mrg_rxbuf", "bool"},  {"rx_queue_size", "uint16"}};
    static const char *const values[][2] = {{"x-txburst", "256"},         {"x-txtimer", "150000"},
                                            {"mac", "52:54:00:12:34:56"}, {"addr", "32"},
                                            {"type", "virtio-net-pci"},   {"rx_queue_size", "256"}};
    Rig *rig = rig_open(NULL);
    json_object *list =
        execute(rig, "device-list-properties", "{\"typename\": \"virtio-net-pci\"}");

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        json_object *property = element(list, "name", names[i][0]);

        g_assert_nonnull(property);
        g_assert_cmpstr(text_at(property, "type"), ==, names[i][1]);
    }
    json_object_put(list);
    for (unsigned i = 0; i < G_N_ELEMENTS(values); i++) {
        GError *err = NULL;
        json_object *value =
            qmp_client_qom_get(rig->qmp, "/machine/peripheral/nic0", values[i][0], &err);

        g_assert_no_error(err);
        g_assert_cmpstr(json_object_get_string(value), ==, values[i][1]);
        json_object_put(value);
    }
    list = execute(rig, "qom-list", "{\"path\": \"/machine/peripheral\"}");
    g_assert_cmpstr(text_at(element(list, "name", "nic0"), "type"), ==, "child<virtio-net-pci>");
    json_object_put(list);
    list = execute(rig, "qom-list", "{\"path\": \"/machine/peripheral/nic0\"}");
    g_assert_nonnull(element(list, "name", "virtio-backend"));
    json_object_put(list);
    rig_free(rig);
}

static void test_rx_filter(void)
{
    static const char *const members[] = {
        "promiscuous",       "multicast",          "unicast",          "vlan",
        "broadcast-allowed", "multicast-overflow", "unicast-overflow", "main-mac",
        "vlan-table",        "unicast-table",      "multicast-table"};
    Rig *rig = rig_new(NULL);
    json_object *list = execute(rig, "query-rx-filter", NULL);
    json_object *filter = element(list, "name", "nic0");

    g_assert_nonnull(filter);
    for (unsigned i = 0; i < G_N_ELEMENTS(members); i++) {
        text_at(filter, members[i]);
    }
    g_assert_cmpstr(text_at(filter, "main-mac"), ==, "52:54:00:12:34:56");
    g_assert_cmpstr(text_at(filter, "promiscuous"), ==, "true"); /* at reset */
    json_object_put(list);
    rig_free(rig);
}

/* --- run state and events --- */

static void expect_event(Rig *rig, const char *name, const char *path, const char *value)
{
    GError *err = NULL;
    json_object *event = qmp_client_wait_event(rig->qmp, name, RIG_TIMEOUT_MS, &err);

    g_assert_no_error(err);
    text_at(event, "timestamp.seconds");
    text_at(event, "timestamp.microseconds");
    if (path) {
        g_assert_cmpstr(text_at(event, path), ==, value);
    }
    json_object_put(event);
}

static void expect_status(Rig *rig, const char *status, const char *running)
{
    json_object *value = execute(rig, "query-status", NULL);

    g_assert_cmpstr(text_at(value, "status"), ==, status);
    g_assert_cmpstr(text_at(value, "running"), ==, running);
    json_object_put(value);
}

static void test_run_states(void)
{
    Rig *rig = rig_open(NULL);

    expect_status(rig, "running", "true");
    json_object_put(execute(rig, "stop", NULL));
    expect_event(rig, "STOP", NULL, NULL);
    expect_status(rig, "paused", "false");
    json_object_put(execute(rig, "stop", NULL));
    json_object_put(execute(rig, "cont", NULL));
    expect_event(rig, "RESUME", NULL, NULL);
    expect_status(rig, "running", "true");
    json_object_put(execute(rig, "system_reset", NULL));
    expect_event(rig, "RESET", "data.guest", "false");
    expect_status(rig, "running", "true");
    rig_free(rig);
}

static void test_prelaunch(void)
{
    const char *args[] = {"-S", NULL};
    Rig *rig = rig_open(&(RigConfig){.args = args});

    expect_status(rig, "prelaunch", "false");
    json_object_put(execute(rig, "cont", NULL));
    expect_event(rig, "RESUME", NULL, NULL);
    rig_start(rig);
    rig_expect_working(rig);
    rig_free(rig);
}

static void test_quit_tells(void)
{
    Rig *rig = rig_open(NULL);

    json_object_put(execute(rig, "quit", NULL));
    expect_event(rig, "SHUTDOWN", "data.reason", "host-qmp-quit");
    g_assert_true(rig_free_ended(rig));
}

/* SIGTERM ends it in order: an event, exit status 0. */
static void test_sigterm(void)
{
    Rig *rig = rig_open(NULL);

    kill(rig->emulator->pid, SIGTERM);
    expect_event(rig, "SHUTDOWN", "data.reason", "host-signal");
    g_assert_true(rig_free_ended(rig));
}

/* --- HMP --- */

static void hmp_expect(Rig *rig, const char *line, const char *text)
{
    GError *err = NULL;
    g_autofree char *got = qmp_client_hmp(rig->qmp, line, &err);

    g_assert_no_error(err);
    if (!strstr(got, text)) {
        g_error("'%s' prints '%s', not '%s'", line, got, text);
    }
}

static void test_hmp(void)
{
    Rig *rig = rig_open(NULL);

    hmp_expect(rig, "info network",
               "nic0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:56\r\n"
               " \\ n0: index=0,type=socket,");
    hmp_expect(rig, "info qtree", "dev: virtio-net-pci, id \"nic0\"\r\n");
    hmp_expect(rig, "info qtree", "class Ethernet controller, addr 00:04.0, pci id 1af4:1000");
    hmp_expect(rig, "info qtree", "bus: pci.0");
    hmp_expect(rig, "nothing", "unknown command: 'nothing'");
    hmp_expect(rig, "info nothing", "nothing");
    hmp_expect(rig, "info status", "running");
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qmp/greeting-and-negotiation", test_greeting_and_negotiation);
    g_test_add_func("/qmp/ids-are-echoed", test_ids_are_echoed);
    g_test_add_func("/qmp/bytes/broken-values-are-one-error-each", test_broken_values);
    g_test_add_func("/qmp/bytes/pieces-and-quotes", test_pieces_and_quotes);
    g_test_add_func("/qmp/bytes/hostile", test_hostile_bytes);
    g_test_add_func("/qmp/commands/listed", test_commands_listed);
    g_test_add_func("/qmp/commands/errors-change-nothing", test_errors);
    g_test_add_func("/qmp/commands/machines-and-types", test_machines_and_types);
    g_test_add_func("/qmp/commands/properties", test_properties);
    g_test_add_func("/qmp/commands/rx-filter", test_rx_filter);
    g_test_add_func("/qmp/events/run-states", test_run_states);
    g_test_add_func("/qmp/events/prelaunch", test_prelaunch);
    g_test_add_func("/qmp/events/quit", test_quit_tells);
    g_test_add_func("/qmp/events/sigterm", test_sigterm);
    g_test_add_func("/qmp/hmp", test_hmp);
    return g_test_run();
}
