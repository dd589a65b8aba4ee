/*
 * Monitors over real sockets, with a command table of this test's own: negotiation, ids, errors,
 * out-of-band execution, events, clients that do not read or leave; HMP with its line editor.
 */
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "qapi/monitor.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-events.h"
#include "qapi/qapi-visit.h"
#include "util/error.h"
#include "util/event-loop.h"
#include "util/json.h"

/* A client: the other end of a chardev's socket. */
typedef struct Client {
    int fd;
    char *id;
    Chardev *chr;
} Client;

static Client clients[3];
static unsigned echo_runs;

/* ---- the command table ---- */

static void marshal_capabilities(json_object *args, json_object **ret, GError **errp)
{
    json_object *enable = json_member(args, "enable");
    QMPCapabilityList *list = NULL;
    GError *err = NULL;

    (void)ret;
    if (enable) {
        list = qapi_parse_QMPCapabilityList(enable, QAPI_INPUT_JSON, &err);
    }
    if (err) {
        g_propagate_error(errp, err);
        return;
    }
    qmp_qmp_capabilities(list, errp);
    qapi_free_QMPCapabilityList(list);
}

static void marshal_echo(json_object *args, json_object **ret, GError **errp)
{
    (void)errp;
    g_assert_nonnull(monitor_current());
    echo_runs++;
    *ret = json_object_get(args);
}

static void marshal_fail(json_object *args, json_object **ret, GError **errp)
{
    (void)args;
    (void)ret;
    error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Device '%s' not found", "\xff\"x");
}

static void marshal_empty(json_object *args, json_object **ret, GError **errp)
{
    (void)args;
    (void)ret;
    (void)errp;
}

/* The command's own client hangs up while it runs. */
static void marshal_hang_up(json_object *args, json_object **ret, GError **errp)
{
    (void)args;
    (void)ret;
    (void)errp;
    chardev_disconnect(clients[0].chr);
}

static void marshal_end_monitors(json_object *args, json_object **ret, GError **errp)
{
    (void)args;
    (void)ret;
    (void)errp;
    monitor_cleanup_all();
}

static void marshal_stop(json_object *args, json_object **ret, GError **errp)
{
    (void)args;
    (void)ret;
    (void)errp;
    qapi_event_send_stop();
}

static void marshal_hmp(json_object *args, json_object **ret, GError **errp)
{
    char *text =
        qmp_human_monitor_command(json_member_string(args, "command-line"), false, 0, errp);

    *ret = text ? json_object_new_string(text) : NULL;
    g_free(text);
}

static void marshal_getfd(json_object *args, json_object **ret, GError **errp)
{
    (void)ret;
    qmp_getfd(json_member_string(args, "fdname"), errp);
}

static void marshal_usefd(json_object *args, json_object **ret, GError **errp)
{
    int fd = monitor_get_fd(monitor_current(), json_member_string(args, "fdname"), errp);

    if (fd >= 0) {
        *ret = json_object_new_int(write(fd, "!", 1));
        close(fd);
    }
}

static void marshal_status(json_object *args, json_object **ret, GError **errp)
{
    (void)args;
    *ret = json_parse("{'running': false, 'status': 'prelaunch'}", errp);
}

/* An answer that fills any output. */
static void marshal_big(json_object *args, json_object **ret, GError **errp)
{
    char *text = g_strnfill(4 << 20, 'x');

    (void)args;
    (void)errp;
    *ret = json_object_new_string(text);
    g_free(text);
}

const QmpCommand qmp_commands[] = {
    {"big", marshal_big, 0},
    {"echo", marshal_echo, 0},
    {"echo-oob", marshal_echo, QMP_ALLOW_OOB},
    {"empty", marshal_empty, 0},
    {"end-monitors", marshal_end_monitors, 0},
    {"fail", marshal_fail, 0},
    {"getfd", marshal_getfd, 0},
    {"hang-up", marshal_hang_up, 0},
    {"human-monitor-command", marshal_hmp, 0},
    {"null", marshal_empty, QMP_RETURNS_ANY},
    {"qmp_capabilities", marshal_capabilities, QMP_ALLOW_PRECONFIG},
    {"query-status", marshal_status, 0},
    {"silent", marshal_empty, QMP_NO_SUCCESS_RESPONSE},
    {"stop", marshal_stop, 0},
    {"usefd", marshal_usefd, 0},
    {NULL},
};

/* ---- plumbing ---- */

static void run_loop(void)
{
    for (int i = 0; i < 50; i++) {
        event_loop_run_once(event_loop_main(), false);
    }
}

static void client_open(Client *c, int number)
{
    json_object *options = json_object_new_object();
    GError *err = NULL;
    char text[16];
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), ==, 0);
    c->fd = fds[0];
    c->id = g_strdup_printf("chr%d", number);
    g_snprintf(text, sizeof(text), "%d", fds[1]);
    json_put_string(options, "backend", "socket");
    json_put_string(options, "id", c->id);
    json_put_string(options, "fd", text);
    c->chr = chardev_new(options, &err);
    g_assert_no_error(err);
    json_object_put(options);
}

static void open_qmp(int number)
{
    GError *err = NULL;

    client_open(&clients[number], number);
    g_assert_nonnull(monitor_new_qmp(clients[number].chr, false, &err));
    g_assert_no_error(err);
}

static void close_all(void)
{
    monitor_cleanup_all();
    for (size_t i = 0; i < G_N_ELEMENTS(clients); i++) {
        if (clients[i].id) {
            close(clients[i].fd);
            g_free(clients[i].id);
        }
    }
    memset(clients, 0, sizeof(clients));
    chardev_cleanup_all();
}

static void send_bytes(int number, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(clients[number].fd, data, size);

        if (n < 0) {
            g_assert_cmpint(errno, ==, EAGAIN);
            n = 0;
        }
        data += n;
        size -= n;
        run_loop();
    }
}

static void send_text(int number, const char *text)
{
    send_bytes(number, text, strlen(text));
}

/* All that has arrived; g_free it. */
static char *receive(int number)
{
    GString *out = g_string_new(NULL);
    char buf[65536];
    ssize_t n;

    do {
        run_loop();
        n = read(clients[number].fd, buf, sizeof(buf));
        if (n > 0) {
            g_string_append_len(out, buf, n);
        }
    } while (n > 0);
    return g_string_free(out, FALSE);
}

static void expect(int number, const char *text)
{
    char *got = receive(number);

    g_assert_cmpstr(got, ==, text);
    g_free(got);
}

static void talk(int number, const char *request, const char *answer)
{
    send_text(number, request);
    expect(number, answer);
}

static void skip(int number)
{
    g_free(receive(number));
}

static void negotiate(int number, const char *args)
{
    char *request = g_strdup_printf("{'execute': 'qmp_capabilities', 'arguments': {%s}}", args);

    skip(number);
    talk(number, request, "{\"return\": {}}\r\n");
    g_free(request);
}

#define ERROR(cls, text) "\"error\": {\"class\": \"" cls "\", \"desc\": \"" text "\"}}\r\n"
#define GENERIC(text)    "{" ERROR("GenericError", text)

/* ---- tests ---- */

static void test_negotiation(void)
{
    char *greeting;

    open_qmp(0);
    greeting = receive(0);
    g_assert_cmpstr(
        greeting, ==,
        "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 10, \"minor\": 2, \"micro\": 0}, "
        "\"package\": \"swnic 0.1.0\"}, \"capabilities\": [\"oob\"]}}\r\n");
    g_free(greeting);
    talk(
        0, "{'execute': 'echo'}",
        "{" ERROR("CommandNotFound", "Expecting capabilities negotiation with 'qmp_capabilities'"));
    talk(0, "{'execute': 'qmp_capabilities', 'arguments': {'enable': ['x']}}",
         GENERIC("Parameter '[0]' does not accept value 'x', allowed: oob"));
    qapi_event_send_stop(); /* not before negotiation */
    talk(0, "{'execute': 'qmp_capabilities', 'id': 1}", "{\"return\": {}, \"id\": 1}\r\n");
    talk(0, "{'execute': 'qmp_capabilities'}",
         "{" ERROR("CommandNotFound",
                   "Capabilities negotiation is already complete, command ignored"));
    close_all();
}

static void test_requests(void)
{
    open_qmp(0);
    negotiate(0, "");
    talk(0, "{'execute': 'echo', 'arguments': {'a': [1]}, 'id': {'x': [null, 1.5]}}",
         "{\"return\": {\"a\": [1]}, \"id\": {\"x\": [null, 1.5]}}\r\n");
    talk(0, "{'execute': 'empty', 'id': null}", "{\"return\": {}, \"id\": null}\r\n");
    talk(0, "{'execute': 'empty', 'id': '\\u0000'}", "{\"return\": {}, \"id\": \"\\u0000\"}\r\n");
    talk(0, "{'execute': 'null'}", "{\"return\": null}\r\n");
    talk(0, "{'execute': 'silent'}", "");
    talk(0, "{'execute': 'fail', 'id': 7}",
         "{\"id\": 7, " ERROR("DeviceNotFound", "Device '\\uFFFD\\\"x' not found"));
    talk(0, "{'execute': 'nope', 'id': 'i'}",
         "{\"id\": \"i\", " ERROR("CommandNotFound", "The command nope has not been found"));
    talk(0, "5 ", GENERIC("QMP input must be a JSON object"));
    talk(0, "[]", GENERIC("QMP input must be a JSON object"));
    talk(0, "null ", GENERIC("QMP input must be a JSON object"));
    talk(0, "{}", GENERIC("QMP input lacks member 'execute'"));
    talk(0, "{'execute': 1}", GENERIC("QMP input member 'execute' must be a string"));
    talk(0, "{'execute': 'echo', 'arguments': []}",
         GENERIC("QMP input member 'arguments' must be an object"));
    talk(0, "{'execute': 'echo', 'extra': 1}", GENERIC("QMP input member 'extra' is unexpected"));
    talk(0, "{'exec-oob': 'echo-oob'}", GENERIC("QMP input member 'exec-oob' is unexpected"));
    talk(0, "}}}",
         GENERIC("JSON parse error, expecting value") GENERIC("JSON parse error, expecting value")
             GENERIC("JSON parse error, expecting value"));
    talk(0, "{'execute': 'empty'}{'execute': 'empty'", "{\"return\": {}}\r\n");
    talk(0, "}", "{\"return\": {}}\r\n");
    close_all();
}

static void test_oob(void)
{
    open_qmp(0);
    negotiate(0, "'enable': ['oob']");
    talk(0, "{'exec-oob': 'echo-oob', 'id': 1}", "{\"return\": {}, \"id\": 1}\r\n");
    talk(0, "{'exec-oob': 'echo'}", GENERIC("The command echo does not support OOB"));
    talk(0, "{'exec-oob': 'nope'}",
         "{" ERROR("CommandNotFound", "The command nope has not been found"));
    talk(0, "{'exec-oob': 'echo-oob', 'execute': 'echo'}",
         GENERIC("QMP input member 'exec-oob' clashes with 'execute'"));
    close_all();
}

static void test_events(void)
{
    char *got;

    open_qmp(0);
    open_qmp(1);
    open_qmp(2);
    negotiate(0, "");
    negotiate(1, "");
    skip(2);
    send_text(0, "{'execute': 'stop', 'id': 1}");
    got = receive(0); /* the event comes before the answer of the command that caused it */
    g_assert_true(g_str_has_prefix(got, "{\"timestamp\": {\"seconds\": "));
    g_assert_nonnull(strstr(got, ", \"event\": \"STOP\"}\r\n{\"return\": {}, \"id\": 1}\r\n"));
    g_free(got);
    got = receive(1);
    g_assert_nonnull(strstr(got, "\"event\": \"STOP\"}\r\n"));
    g_free(got);
    expect(2, "");
    qapi_event_send_shutdown(true, QAPI_SHUTDOWN_CAUSE_GUEST_SHUTDOWN);
    got = receive(1);
    g_assert_nonnull(strstr(got, "\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true, "
                                 "\"reason\": \"guest-shutdown\"}}\r\n"));
    g_free(got);
    close_all();
}

static gpointer emit_from_thread(gpointer opaque)
{
    (void)opaque;
    qapi_event_send_resume();
    return NULL;
}

static void test_event_from_thread(void)
{
    char *got;

    open_qmp(0);
    negotiate(0, "");
    g_thread_join(g_thread_new("event", emit_from_thread, NULL));
    got = receive(0);
    g_assert_nonnull(strstr(got, "\"event\": \"RESUME\"}\r\n"));
    g_free(got);
    close_all();
}

/* Sends until the socket takes no more for a while; returns how many requests went in whole. */
static unsigned flood(int number, const char *request)
{
    size_t size = strlen(request), at = 0;
    unsigned sent = 0, idle = 0;

    while (idle < 100) {
        ssize_t n = write(clients[number].fd, request + at, size - at);

        if (n < 0) {
            idle++;
            run_loop();
            continue;
        }
        idle = 0;
        at = (at + n) % size;
        sent += at == 0;
    }
    while (at) { /* reading makes room for the rest of the last one */
        char buf[4096];
        ssize_t n = read(clients[number].fd, buf, sizeof(buf));

        g_assert_cmpint(n, >, 0);
        run_loop();
        n = write(clients[number].fd, request + at, size - at);
        at = n > 0 ? (at + n) % size : at;
    }
    return sent;
}

static void test_flood(void)
{
    unsigned sent, before = echo_runs, mebibyte = 1 << 20;
    char *got;

    open_qmp(0);
    open_qmp(1);
    negotiate(0, "");
    negotiate(1, "");
    sent = flood(0, "{'execute': 'echo', 'arguments': {'text': "
                    "'0123456789012345678901234567890123456789012345678901234567890123'}}");
    g_assert_cmpuint(sent, >, 1000);
    g_assert_cmpuint(chardev_queued(clients[0].chr), <, mebibyte);
    talk(1, "{'execute': 'empty'}", "{\"return\": {}}\r\n"); /* others are served */
    for (int i = 0; i < 40000; i++) {
        qapi_event_send_resume();
    }
    g_assert_cmpuint(chardev_queued(clients[0].chr), <, 2 * mebibyte);
    skip(1);
    g_free(receive(0)); /* now it reads: every command runs */
    g_assert_cmpuint(echo_runs - before, >=, sent);
    skip(0);
    send_text(0, "{'execute': 'empty', 'id': 'still here'}");
    got = receive(0);
    g_assert_true(g_str_has_suffix(got, "{\"return\": {}, \"id\": \"still here\"}\r\n"));
    g_free(got);
    close_all();
}

/* Out of band passes what waits because the client does not read. */
static void test_oob_passes_queue(void)
{
    char *got, *oob, *last;

    open_qmp(0);
    negotiate(0, "'enable': ['oob']");
    send_text(0, "{'execute': 'big'}{'execute': 'echo', 'id': 'last'}"
                 "{'exec-oob': 'echo-oob', 'id': 'oob'}");
    got = receive(0);
    oob = strstr(got, "\"id\": \"oob\"");
    last = strstr(got, "\"id\": \"last\"");
    g_assert_nonnull(oob);
    g_assert_nonnull(last);
    g_assert_true(oob < last);
    g_free(got);
    close_all();
}

static void test_disconnect(void)
{
    open_qmp(0);
    open_qmp(1);
    negotiate(0, "");
    negotiate(1, "");
    send_text(0, "{'execute': 'hang-up'}{'execute': 'echo'}");
    run_loop();
    talk(1, "{'execute': 'empty'}", "{\"return\": {}}\r\n");
    shutdown(clients[1].fd, SHUT_RDWR);
    qapi_event_send_stop();
    run_loop();
    close_all();

    open_qmp(0); /* gone in the middle of a value, with answers waiting */
    negotiate(0, "");
    flood(0, "{'execute': 'echo', 'arguments': {'text': '0123456789'}}");
    send(clients[0].fd, "{'execute': 'ec", 15, MSG_DONTWAIT);
    shutdown(clients[0].fd, SHUT_RDWR);
    run_loop();
    close_all();
}

static void test_end_from_command(void)
{
    open_qmp(0);
    negotiate(0, "");
    send_text(0, "{'execute': 'end-monitors'}{'execute': 'echo'}");
    run_loop();
    close_all();
}

static void test_random_bytes(void)
{
    GRand *rand = g_rand_new_with_seed(g_test_rand_int());
    char *got;

    open_qmp(0);
    negotiate(0, "");
    for (int round = 0; round < 300; round++) {
        char data[512];

        for (size_t i = 0; i < sizeof(data); i++) {
            data[i] = g_rand_int(rand);
        }
        send_bytes(0, data, sizeof(data));
        skip(0);
    }
    send_text(0, "\377\n{'execute': 'empty', 'id': 'alive'}");
    got = receive(0);
    g_assert_true(g_str_has_suffix(got, "{\"return\": {}, \"id\": \"alive\"}\r\n"));
    g_free(got);
    g_rand_free(rand);
    close_all();
}

static void test_getfd(void)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
    char request[] = "{'execute': 'getfd', 'arguments': {'fdname': 'tap'}}";
    struct iovec iov = {request, strlen(request)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    int fds[2];

    open_qmp(0);
    negotiate(0, "");
    talk(0, request, GENERIC("No file descriptor supplied via SCM_RIGHTS"));
    g_assert_cmpint(pipe(fds), ==, 0);
    CMSG_FIRSTHDR(&msg)->cmsg_level = SOL_SOCKET;
    CMSG_FIRSTHDR(&msg)->cmsg_type = SCM_RIGHTS;
    CMSG_FIRSTHDR(&msg)->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &fds[1], sizeof(int));
    g_assert_cmpint(sendmsg(clients[0].fd, &msg, 0), ==, (ssize_t)strlen(request));
    close(fds[1]);
    expect(0, "{\"return\": {}}\r\n");
    talk(0, "{'execute': 'usefd', 'arguments': {'fdname': 'tap'}}", "{\"return\": 1}\r\n");
    g_assert_cmpint(read(fds[0], &byte, 1), ==, 1);
    talk(0, "{'execute': 'usefd', 'arguments': {'fdname': 'tap'}}",
         GENERIC("File descriptor named 'tap' has not been found"));
    close(fds[0]);
    close_all();
}

/* ---- HMP ---- */

static void hmp_greet(const char *args, GString *out)
{
    g_string_append_printf(out, "hello %s\n", args);
}

static void hmp_nothing(const char *args, GString *out)
{
    (void)args;
    g_string_append(out, "info\r\n");
}

static const HmpCommand test_hmp_commands[] = {
    {"g|greet", "[name]", "greet someone", hmp_greet},
    {"info greet", "", "about greeting", hmp_nothing},
    {NULL},
};

static void expect_hmp(const char *line, const char *text)
{
    char *got = hmp_execute(line);

    g_assert_cmpstr(got, ==, text);
    g_free(got);
}

static void test_hmp_execute(void)
{
    char *help;

    hmp_register(test_hmp_commands);
    expect_hmp("", "");
    expect_hmp("greet  you two ", "hello you two\r\n");
    expect_hmp("\tg\n", "hello \r\n");
    expect_hmp("info  greet", "info\r\n");
    expect_hmp("info greet x", "info greet: extraneous characters at the end of line\r\n");
    expect_hmp("foo", "unknown command: 'foo'\r\n");
    expect_hmp("foo bar", "unknown command: 'foo'\r\n");
    expect_hmp("info foo bar", "unknown command: 'info foo'\r\n");
    expect_hmp("gre", "unknown command: 'gre'\r\n");
    expect_hmp("info status", "VM status: paused (prelaunch)\r\n");
    expect_hmp("quit", "Error: The command quit has not been found\r\n");
    expect_hmp("set_link n0 maybe", "set_link: usage: set_link NAME on|off\r\n");
    expect_hmp("set_link", "set_link: usage: set_link NAME on|off\r\n");
    expect_hmp("qom-get", "Error: The command qom-get has not been found\r\n");
    expect_hmp("qom-set a b {", "Error: The command qom-set has not been found\r\n");
    expect_hmp("help greet", "g|greet [name] -- greet someone\r\n");
    expect_hmp("help nope", "unknown command: 'nope'\r\n");
    help = hmp_execute("help");
    g_assert_nonnull(strstr(help, "info [subcommand] -- show various information\r\n"));
    g_assert_nonnull(strstr(help, "q|quit -- end the emulator\r\n"));
    g_free(help);
    help = hmp_execute("info");
    g_assert_nonnull(strstr(help, "info greet -- about greeting\r\n"));
    g_free(help);
}

static void test_hmp_over_qmp(void)
{
    open_qmp(0);
    negotiate(0, "");
    talk(0, "{'execute': 'human-monitor-command', 'arguments': {'command-line': 'foo'}}",
         "{\"return\": \"unknown command: 'foo'\\r\\n\"}\r\n");
    close_all();
}

static void open_hmp(bool readline)
{
    GError *err = NULL;

    client_open(&clients[0], 0);
    g_assert_nonnull(monitor_new_hmp(clients[0].chr, readline, &err));
    g_assert_no_error(err);
    expect(0, "swnic 0.1.0 monitor - type 'help' for more information\r\n(qemu) ");
}

static void test_hmp_monitor(void)
{
    char *long_line = g_strnfill(100000, 'x');

    hmp_register(test_hmp_commands);
    open_hmp(true);
    talk(0, "greet a\n", "greet a\r\nhello a\r\n(qemu) ");
    talk(0, "greet b\r\n", "greet b\r\nhello b\r\n(qemu) ");
    talk(0, "\n", "\r\n(qemu) ");
    talk(0, "gx\b\n", "gx\r(qemu) g\033[K\r\nhello \r\n(qemu) ");
    talk(0, "\033[A\033[A\r", "\r(qemu) g\033[K\r(qemu) greet b\033[K\r\nhello b\r\n(qemu) ");
    talk(0, "gre\t\r", "greet \r\nhello \r\n(qemu) ");
    talk(0, "bc\001a\005d\r",
         "bc\r(qemu) bc\033[K\033[2D\r(qemu) abc\033[K\033[2D\r(qemu) abc\033[Kd\r\n"
         "unknown command: 'abcd'\r\n(qemu) ");
    talk(0, "half\003", "half\r\n(qemu) ");
    send_text(0, long_line);
    send_text(0, "\025\013\002\006\004\027\020\016\033[3~\033[99999999999Z\033Oq\t\r\n");
    skip(0);
    talk(0, "g\n", "g\r\nhello \r\n(qemu) ");
    g_free(long_line);
    close_all();

    open_hmp(false);
    talk(0, "greet a\r\n", "hello a\r\n(qemu) ");
    close_all();
}

static void test_hmp_random(void)
{
    GRand *rand = g_rand_new_with_seed(g_test_rand_int());

    open_hmp(true);
    for (int round = 0; round < 300; round++) {
        char data[256];

        for (size_t i = 0; i < sizeof(data); i++) {
            data[i] = g_rand_int_range(rand, 0, round % 2 ? 256 : 64);
        }
        send_bytes(0, data, sizeof(data));
        skip(0);
    }
    g_rand_free(rand);
    close_all();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qmp/negotiation", test_negotiation);
    g_test_add_func("/qmp/requests-and-errors", test_requests);
    g_test_add_func("/qmp/out-of-band", test_oob);
    g_test_add_func("/qmp/out-of-band-passes-queue", test_oob_passes_queue);
    g_test_add_func("/qmp/events-reach-negotiated-monitors", test_events);
    g_test_add_func("/qmp/event-from-another-thread", test_event_from_thread);
    g_test_add_func("/qmp/flood-without-reading-is-bounded", test_flood);
    g_test_add_func("/qmp/disconnect-in-mid-command", test_disconnect);
    g_test_add_func("/qmp/monitors-end-in-mid-command", test_end_from_command);
    g_test_add_func("/qmp/random-bytes", test_random_bytes);
    g_test_add_func("/qmp/getfd", test_getfd);
    g_test_add_func("/hmp/execute", test_hmp_execute);
    g_test_add_func("/hmp/over-qmp", test_hmp_over_qmp);
    g_test_add_func("/hmp/monitor-and-line-editor", test_hmp_monitor);
    g_test_add_func("/hmp/random-keys", test_hmp_random);
    return g_test_run();
}
