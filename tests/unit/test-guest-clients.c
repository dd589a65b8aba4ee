/*
 * The guest's qtest and QMP clients against servers played here over a socket pair: answers cut
 * into pieces, interrupts in between, errors, and connections that end; and the emulator
 * launcher against programs that are no emulators.
 */
#include "guest/emulator.h"
#include "guest/qmp-client.h"
#include "guest/qtest-client.h"
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket pair whose far end already holds what the server is going to say. */
static int scripted(const char *answers, int *server)
{
    int fds[2];
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), ==, 0);
    g_assert_cmpint(send(fds[1], answers, strlen(answers), MSG_NOSIGNAL), ==, strlen(answers));
    *server = fds[1];
    return fds[0];
}

/* What the client has sent so far. */
static char *sent(int server)
{
    char text[4096] = "";
    ssize_t n = recv(server, text, sizeof(text) - 1, MSG_DONTWAIT);
    return g_strndup(text, (gsize)MAX(n, 0));
}

static void test_qtest_requests(void)
{
    int server;
    QtestClient *client = qtest_client_new(
        scripted("OK\nOK 0x00ff\nOK\nOK 0x0000000000000012\nOK\nOK 0x0aff\nOK 150000\n", &server));
    qtest_client_out(client, 4, 0xCF8, 0x80000000u);
    g_assert_cmphex(qtest_client_in(client, 1, 0xCFC), ==, 0xFF);
    qtest_client_store(client, 8, 0x100000, 0x1122334455667788);
    g_assert_cmphex(qtest_client_load(client, 2, 0x100000), ==, 0x12);
    qtest_client_write(client, 0x1000, "\x01\xfe", 2);
    uint8_t bytes[2];
    qtest_client_read(client, 0x1000, bytes, 2);
    g_assert_cmpmem(bytes, 2, "\x0a\xff", 2);
    g_assert_cmpint(qtest_client_clock_step(client, 150000), ==, 150000);
    g_assert_true(qtest_client_check(client, NULL));
    g_autofree char *text = sent(server);
    g_assert_cmpstr(text, ==,
                    "outl 0xcf8 0x80000000\ninb 0xcfc\nwriteq 0x100000 0x1122334455667788\n"
                    "readw 0x100000\nwrite 0x1000 0x2 0x01fe\nread 0x1000 0x2\n"
                    "clock_step 150000\n");
    qtest_client_free(client);
    close(server);
}

static void test_qtest_interrupts(void)
{
    int server;
    QtestClient *client = qtest_client_new(
        scripted("IRQ raise 10\nOK\nIRQ lower 10\nIRQ raise 10\nIRQ raise 999999\n", &server));
    qtest_client_store(client, 1, 0, 0);
    g_assert_true(qtest_client_irq_wait(client, 10, true, 1000));
    g_assert_cmpuint(qtest_client_irq_raises(client, 10), ==, 2);
    g_assert_false(qtest_client_irq_level(client, 11));
    g_assert_false(qtest_client_irq_wait(client, 11, true, 20));
    g_assert_true(qtest_client_check(client, NULL));
    qtest_client_free(client);
    close(server);
}

/* A failure is kept until it is asked for, and the connection stays usable. */
static void test_qtest_sticky(void)
{
    int server;
    g_autoptr(GError) error = NULL;
    QtestClient *client = qtest_client_new(
        scripted("FAIL Unknown command 'inb'\nOK 0x1\nOK 0x2\nFAIL no deadline\n", &server));
    g_assert_cmphex(qtest_client_in(client, 1, 0), ==, 0);
    g_assert_cmphex(qtest_client_in(client, 1, 0), ==, 1);
    g_assert_false(qtest_client_check(client, &error));
    g_assert_nonnull(strstr(error->message, "Unknown command"));
    g_assert_true(qtest_client_check(client, NULL));
    char *answer;
    g_assert_true(qtest_client_command(client, &answer, NULL, "inb %d", 5));
    g_assert_cmpstr(answer, ==, "0x2");
    g_free(answer);
    g_clear_error(&error);
    g_assert_false(qtest_client_command(client, &answer, &error, "clock_step"));
    g_assert_null(answer);
    g_assert_true(qtest_client_check(client, NULL)); /* not sticky */
    qtest_client_free(client);
    close(server);
}

static void test_qtest_posted(void)
{
    int server;
    g_autoptr(GError) error = NULL;
    QtestClient *client = qtest_client_new(scripted("", &server));
    for (unsigned i = 0; i < 3; i++) {
        qtest_client_post_store(client, 2, 0xE0000000, i);
    }
    g_assert_cmpint(send(server, "OK\nOK\nERR bad\nOK 0x5\n", 21, 0), ==, 21);
    g_assert_cmphex(qtest_client_in(client, 1, 0), ==, 5); /* its own answer, not a posted one's */
    g_assert_false(qtest_client_check(client, &error));
    g_assert_nonnull(strstr(error->message, "ERR bad"));
    qtest_client_free(client);
    close(server);
}

static void test_qtest_closed(void)
{
    int server;
    g_autoptr(GError) error = NULL;
    QtestClient *client = qtest_client_new(scripted("OK 0x", &server));
    close(server);
    g_assert_cmphex(qtest_client_in(client, 1, 0), ==, 0);
    g_assert_true(qtest_client_is_broken(client));
    g_assert_false(qtest_client_check(client, &error));
    qtest_client_post_store(client, 2, 0, 0);
    qtest_client_store(client, 2, 0, 0);
    g_assert_false(qtest_client_check(client, NULL));
    g_assert_false(qtest_client_irq_level(client, 0));
    qtest_client_free(client);
}

static void test_qtest_time_out(void)
{
    int server;
    g_autoptr(GError) error = NULL;
    QtestClient *client = qtest_client_new(scripted("OK", &server));
    qtest_client_set_timeout(client, 30);
    qtest_client_store(client, 1, 0, 0);
    g_assert_false(qtest_client_check(client, &error));
    g_assert_error(error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT);
    qtest_client_free(client);
    close(server);
}

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n"

static void test_qmp_answers_and_events(void)
{
    int server;
    QmpClient *client = qmp_client_new(scripted(
        GREETING "{\"return\": {}, \"id\": 1}\r\n{\"event\": \"STOP\"}\r\n{\"event\": \"RESUME\"}"
                 "{\"return\": {\"status\": \"running\"}, \"id\": 2}\r\n",
        &server));
    g_assert_true(qmp_client_negotiate(client, NULL));
    g_assert_nonnull(qmp_client_greeting(client));
    json_object *result = qmp_client_execute(client, "query-status", NULL, NULL);
    g_assert_nonnull(result);
    json_object_put(result);
    json_object *event = qmp_client_wait_event(client, "RESUME", 100, NULL);
    g_assert_nonnull(event);
    json_object_put(event);
    event = qmp_client_wait_event(client, NULL, 100, NULL);
    g_assert_nonnull(event);
    json_object_put(event);
    g_autoptr(GError) error = NULL;
    g_assert_null(qmp_client_wait_event(client, "STOP", 10, &error));
    g_assert_error(error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT);
    qmp_client_free(client);
    close(server);
}

static void *send_slowly(void *opaque)
{
    int fd = GPOINTER_TO_INT(opaque);
    const char text[] = GREETING "{\"return\":{},\"id\":1}\r\n"
                                 "{\"id\":2,\"error\":{\"class\":\"GenericError\","
                                 "\"desc\":\"\xC3\xA4\"}}\r\n";
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        g_assert_cmpint(send(fd, text + i, 1, MSG_NOSIGNAL), ==, 1);
        g_usleep(200);
    }
    return NULL;
}

static void test_qmp_cut_into_bytes(void)
{
    int server;
    g_autoptr(GError) error = NULL;
    QmpClient *client = qmp_client_new(scripted("", &server));
    GThread *thread = g_thread_new("server", send_slowly, GINT_TO_POINTER(server));
    g_assert_true(qmp_client_negotiate(client, NULL));
    g_assert_null(qmp_client_executef(client, "x", &error, "{\"a\": %d}", 1));
    g_assert_error(error, QMP_CLIENT_ERROR, 0);
    g_assert_cmpstr(error->message, ==, "GenericError: \xC3\xA4");
    g_thread_join(thread);
    qmp_client_free(client);
    close(server);
}

static void test_qmp_garbage(void)
{
    const char *const texts[] = {
        "}}}", "[1]", "5 ", "{\"a\": nonsense}", "{\"id\": 1}\n", "{\"error\": 5, \"id\": 1}\n"};
    for (unsigned i = 0; i < G_N_ELEMENTS(texts); i++) {
        int server;
        g_autoptr(GError) error = NULL;
        QmpClient *client = qmp_client_new(scripted(texts[i], &server));
        qmp_client_set_timeout(client, 20);
        g_assert_null(qmp_client_execute(client, "stop", NULL, &error));
        g_assert_nonnull(error);
        qmp_client_free(client);
        close(server);
    }
}

/* Programs that end, cannot run, or never connect: an error each, nothing left behind. */
static void test_emulator_that_is_none(void)
{
    const char *const commands[] = {"false", "/nonexistent/emulator", "sh -c 'exec sleep 60'",
                                    "'unbalanced"};
    for (unsigned i = 0; i < G_N_ELEMENTS(commands); i++) {
        g_autoptr(GError) error = NULL;
        EmulatorOptions options = {.command = commands[i],
                                   .ram_size = 4u << 20,
                                   .halt_bios = true,
                                   .start_timeout_ms = 200};
        g_assert_null(emulator_start(&options, &error));
        g_assert_nonnull(error);
        g_test_message("%s: %s", commands[i], error->message);
    }
    g_autoptr(GDir) dir = g_dir_open(g_getenv("TMPDIR"), 0, NULL);
    g_assert_nonnull(dir);
    g_assert_cmpstr(g_dir_read_name(dir), ==, NULL);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    /* A directory of our own, before GLib remembers another, to see that nothing stays in it. */
    g_autofree char *dir = g_strdup("/tmp/test-guest-XXXXXX");
    g_assert_nonnull(g_mkdtemp(dir));
    g_setenv("TMPDIR", dir, TRUE);
    g_test_add_func("/guest-clients/qtest/requests", test_qtest_requests);
    g_test_add_func("/guest-clients/qtest/interrupts", test_qtest_interrupts);
    g_test_add_func("/guest-clients/qtest/sticky-error", test_qtest_sticky);
    g_test_add_func("/guest-clients/qtest/posted-stores", test_qtest_posted);
    g_test_add_func("/guest-clients/qtest/closed", test_qtest_closed);
    g_test_add_func("/guest-clients/qtest/time-out", test_qtest_time_out);
    g_test_add_func("/guest-clients/qmp/answers-and-events", test_qmp_answers_and_events);
    g_test_add_func("/guest-clients/qmp/cut-into-bytes", test_qmp_cut_into_bytes);
    g_test_add_func("/guest-clients/qmp/garbage", test_qmp_garbage);
    g_test_add_func("/guest-clients/emulator/that-is-none", test_emulator_that_is_none);
    int result = g_test_run();
    g_assert_cmpint(g_rmdir(dir), ==, 0);
    return result;
}
