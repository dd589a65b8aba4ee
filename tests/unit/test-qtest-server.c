/* The qtest server over a socket pair: every request, pieces of lines, nonsense, back-pressure. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chardev/chardev.h"
#include "hw/core/device.h"
#include "hw/core/machine.h"
#include "hw/i386/pc.h"
#include "hw/pci/pci.h"
#include "qom/object.h"
#include "system/qtest.h"
#include "util/clock.h"
#include "util/event-loop.h"

static int client = -1;
static GString *received;

static void start_client(void)
{
    int fds[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), ==, 0);
    client = fds[1];
    g_autofree char *spec = g_strdup_printf("fd:%d", fds[0]);
    Chardev *chr = chardev_new_compat("qtest", spec, NULL);
    g_assert_nonnull(chr);
    g_assert_true(qtest_server_start(chr, NULL, NULL));
    received = g_string_new(NULL);
}

static void stop_client(void)
{
    qtest_server_stop();
    g_assert_true(chardev_remove("qtest", NULL));
    close(client);
    g_string_free(received, TRUE);
}

static void run_loop(void)
{
    for (int i = 0; i < 4; i++) {
        event_loop_run_once(event_loop_main(), false);
    }
}

static void put(const char *text, size_t size)
{
    while (size) {
        ssize_t n = write(client, text, size);
        g_assert_true(n > 0 || errno == EAGAIN);
        if (n > 0) {
            text += n;
            size -= n;
        }
        run_loop();
    }
}

/* The next line, or NULL when nothing comes. */
static char *take_line(void)
{
    for (int i = 0; i < 10000; i++) {
        char *end = memchr(received->str, '\n', received->len);
        char data[65536];

        if (end) {
            char *line = g_strndup(received->str, end - received->str);
            g_string_erase(received, 0, end + 1 - received->str);
            return line;
        }
        run_loop();
        ssize_t n = read(client, data, sizeof(data));
        if (n > 0) {
            g_string_append_len(received, data, n);
        } else if (i > 3) {
            return NULL;
        }
    }
    return NULL;
}

static void expect(const char *request, const char *answer)
{
    put(request, strlen(request));
    put("\n", 1);
    g_autofree char *line = take_line();
    if (g_strcmp0(line, answer)) {
        g_error("'%s' was answered '%s' instead of '%s'", request, line ? line : "(nothing)",
                answer);
    }
}

static void test_accesses(void)
{
    start_client();
    expect("endianness", "OK little");
    expect("outl 0xcf8 0x80000000", "OK");
    expect("inl 0xcfc", "OK 0x12378086");
    expect("inw 0xcfc", "OK 0x8086");
    expect("inb 0xcfe", "OK 0x0037");
    expect("inb 0xfffe", "OK 0x00ff");
    expect("writeq 0x1000 0x1122334455667788", "OK");
    expect("readq 4096", "OK 0x1122334455667788");
    expect("readl 010000", "OK 0x0000000055667788");
    expect("readw 0x1000", "OK 0x0000000000007788");
    expect("readb 0x1007", "OK 0x0000000000000011");
    expect("writeb 0x1000 0x1ff", "OK");
    expect("writew 0x1002 0", "OK");
    expect("writel 0x1004 1", "OK");
    expect("read 0x1000 8", "OK 0xff77000001000000");
    expect("write 0x2000 4 0x0102", "OK");
    expect("read 0x2000 4", "OK 0x01020000");
    expect("b64write 0x3000 3 AQID", "OK");
    expect("b64read 0x3000 3", "OK AQID");
    expect("memset 0x3001 2 0xa5", "OK");
    expect("read 0x3000 4", "OK 0x01a5a500");
    expect("readl 0xe0000000", "OK 0x00000000ffffffff");
    stop_client();
}

static void test_clock(void)
{
    start_client();
    expect("clock_step",
           "FAIL cannot advance clock to the next deadline because there is no pending deadline");
    expect("clock_step 100", "OK 100");
    expect("clock_set 40", "FAIL 100");
    expect("clock_set 1000", "OK 1000");
    expect("clock_step 0", "FAIL 1000");
    stop_client();
}

static void fired(void *opaque)
{
    ++*(int *)opaque;
}

static void test_clock_deadline(void)
{
    int64_t now = clock_get_ns(CLOCK_VIRTUAL);
    int runs = 0;
    Timer timer;

    start_client();
    timer_init(&timer, event_loop_main(), CLOCK_VIRTUAL, fired, &runs);
    timer_mod_ns(&timer, now + 500);
    g_autofree char *answer = g_strdup_printf("OK %" G_GINT64_FORMAT, now + 500);
    expect("clock_step", answer);
    g_assert_cmpint(runs, ==, 1);
    stop_client();
}

static void test_irq(void)
{
    start_client();
    expect("irq_intercept_in nothing", "FAIL Unknown device");
    expect("irq_intercept_out nothing", "FAIL Unknown device");
    expect("set_irq_in nothing name 0 1", "FAIL Unknown device");
    expect("irq_intercept_in ioapic", "OK");
    current_machine->irq_intercept(current_machine->irq_intercept_opaque, 11, 1);
    g_autofree char *raise = take_line();
    g_assert_cmpstr(raise, ==, "IRQ raise 11");
    current_machine->irq_intercept(current_machine->irq_intercept_opaque, 11, 0);
    g_autofree char *lower = take_line();
    g_assert_cmpstr(lower, ==, "IRQ lower 11");
    stop_client();
    g_assert_null(current_machine->irq_intercept);
}

static void test_lines(void)
{
    start_client();
    put("endi", 4);
    put("anness\r\nendianness\n\n\nendian", 27);
    put("ness\n", 5);
    for (int i = 0; i < 3; i++) {
        g_autofree char *line = take_line();
        g_assert_cmpstr(line, ==, "OK little");
    }
    g_assert_null(take_line()); /* empty lines get nothing */
    expect("  ", "FAIL Unknown command ''");
    expect("foo", "FAIL Unknown command 'foo'");
    stop_client();
}

static void test_malformed(void)
{
    static const char *const lines[] = {
        "outb",
        "outb 1",
        "outb x y",
        "outb -1 1",
        "inb",
        "inb 0x",
        "read",
        "read 0",
        "read 0 0",
        "read 0 -1",
        "read 0 99999999999999999999",
        "read 0 0x7fffffffffffffff",
        "read 0xffffffffffffffff 2",
        "write 0 1",
        "write 0 1 00",
        "write 0 1 0x",
        "write 0 1 0xg0",
        "write 0 2 0x012",
        "write 0 99999999999 0x00",
        "b64read 0 0",
        "b64write 0 3 ",
        "b64write 0 3 ****",
        "memset 0 1",
        "memset 0xffffffffffffffff 2 1",
        "memset 0 0xffffffffffffffff 1",
        "clock_step x",
        "clock_step -1",
        "clock_set",
        "clock_set x",
        "irq_intercept_in",
        "set_irq_in a b c",
        "\x01\xff\xfe",
        "OK",
        "read\t0\t1",
    };

    start_client();
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++) {
        put(lines[i], strlen(lines[i]));
        put("\n", 1);
        g_autofree char *line = take_line();
        if (!line || (!g_str_has_prefix(line, "FAIL ") && !g_str_has_prefix(line, "ERR "))) {
            g_error("'%s' was answered '%s'", lines[i], line ? line : "(nothing)");
        }
    }
    put("read 0\0 4\n\0\nx\0\r\n", 16);
    for (int i = 0; i < 3; i++) {
        g_autofree char *line = take_line();
        g_assert_cmpstr(line, ==, "ERR line with a NUL byte");
    }
    expect("endianness", "OK little");
    stop_client();
}

/* A client that sends without reading is not read on: what waits is bounded. */
static void test_backpressure(void)
{
    enum { N = 2000 };
    g_autoptr(GString) requests = g_string_new(NULL);

    start_client();
    for (int i = 0; i < N; i++) {
        g_string_append(requests, "read 0x100000 65536\n");
    }
    size_t sent = 0;
    for (int i = 0; i < 200; i++) {
        ssize_t n = write(client, requests->str + sent, requests->len - sent);
        sent += MAX(n, 0);
        run_loop();
    }
    g_assert_cmpint(chardev_queued(chardev_find("qtest")), <, 4 << 20);
    int answers = 0;
    while (answers < N) {
        if (sent < requests->len) {
            ssize_t n = write(client, requests->str + sent, requests->len - sent);
            sent += MAX(n, 0);
        }
        g_autofree char *line = take_line();
        if (line) {
            g_assert_cmpint(strlen(line), ==, 5 + 2 * 65536);
            answers++;
        }
    }
    stop_client();
}

static void test_client_leaves(void)
{
    start_client();
    expect("irq_intercept_in ioapic", "OK");
    put("endian", 6);
    close(client);
    run_loop();
    g_assert_null(current_machine->irq_intercept);
    client = -1;
    stop_client();
}

int main(int argc, char **argv)
{
    GError *err = NULL;

    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    clock_virtual_enable(true);
    qom_register_core_types();
    hw_core_register_types();
    hw_pci_register_types();
    hw_i386_register_types();
    g_assert_true(machine_init(machine_new(machine_class_find("pc", &err)), &err));
    g_assert_no_error(err);
    g_test_add_func("/qtest-server/clock/step-and-set", test_clock);
    g_test_add_func("/qtest-server/accesses", test_accesses);
    g_test_add_func("/qtest-server/clock/step-to-deadline-runs-timer", test_clock_deadline);
    g_test_add_func("/qtest-server/irq/told-while-intercepted", test_irq);
    g_test_add_func("/qtest-server/lines/pieces-and-many-at-once", test_lines);
    g_test_add_func("/qtest-server/lines/malformed-get-an-error", test_malformed);
    g_test_add_func("/qtest-server/client-that-does-not-read", test_backpressure);
    g_test_add_func("/qtest-server/client-that-leaves", test_client_leaves);
    int ret = g_test_run();
    machine_free(current_machine);
    return ret;
}
