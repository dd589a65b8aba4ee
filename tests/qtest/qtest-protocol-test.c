/* The qtest line protocol: answers as clients parse them, and lines that no client would send. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/launch.h"
#include "tests/lib/rig.h"

static void expect_client_answer(QtestClient *qtest, const char *line, const char *answer)
{
    GError *err = NULL;
    g_autofree char *got = qtest_client_ask(qtest, line, &err);

    g_assert_no_error(err);
    if (g_strcmp0(got, answer) != 0) {
        g_error("'%s' was answered '%s', not '%s'", line, got, answer);
    }
}

static void expect_answer(Rig *rig, const char *line, const char *answer)
{
    expect_client_answer(rig->qtest, line, answer);
}

static void expect_prefix(Rig *rig, const char *line, const char *prefix)
{
    GError *err = NULL;
    g_autofree char *got = qtest_client_ask(rig->qtest, line, &err);

    g_assert_no_error(err);
    if (!g_str_has_prefix(got, prefix)) {
        g_error("'%s' was answered '%s', not '%s…'", line, got, prefix);
    }
}

static void test_answers(void)
{
    static const char *const rows[][2] = {
        {"endianness", "OK little"},
        {"outl 0xcf8 0x80000000", "OK"},
        {"inl 0xcf8", "OK 0x80000000"},
        {"inl 0xcfc", "OK 0x12378086"},
        {"inw 0xcfc", "OK 0x8086"},
        {"inb 0xcfc", "OK 0x0086"},
        {"inb 3324", "OK 0x0086"},
        {"writeb 0x1000 0x12", "OK"},
        {"readb 0x1000", "OK 0x0000000000000012"},
        {"readb 4096", "OK 0x0000000000000012"},
        {"readb 010000", "OK 0x0000000000000012"},
        {"writew 0x1000 0x1234", "OK"},
        {"readw 0x1000", "OK 0x0000000000001234"},
        {"writel 0x1000 0x12345678", "OK"},
        {"readl 0x1000", "OK 0x0000000012345678"},
        {"writeq 0x1000 0x123456789abcdef0", "OK"},
        {"readq 0x1000", "OK 0x123456789abcdef0"},
        {"write 0x1000 4 0x01a2B3ff", "OK"},
        {"read 0x1000 4", "OK 0x01a2b3ff"},
        {"read 0x1001 0x2", "OK 0xa2b3"},
        {"memset 0x1000 3 0xee", "OK"},
        {"read 0x1000 4", "OK 0xeeeeeeff"},
        {"b64write 0x1000 3 AQID", "OK"},
        {"b64read 0x1000 3", "OK AQID"},
        {"read 0x1000 4", "OK 0x010203ff"},
        {"irq_intercept_in nothing", "FAIL Unknown device"},
        {"nothing", "FAIL Unknown command 'nothing'"},
    };
    Rig *rig = rig_open(NULL);

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        expect_answer(rig, rows[i][0], rows[i][1]);
    }
    rig_free(rig);
}

static void test_clock(void)
{
    Rig *rig = rig_open(NULL);

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("needs a stepped clock");
        return;
    }
    expect_answer(rig, "clock_step 1000", "OK 1000");
    expect_answer(rig, "clock_step 0x10", "OK 1016");
    expect_answer(rig, "clock_set 5000", "OK 5000");
    expect_prefix(rig, "clock_set 4999", "FAIL");
    expect_prefix(rig, "clock_step", "FAIL"); /* no timer: no next deadline */
    expect_answer(rig, "clock_step 1", "OK 5001");
    rig_free(rig);
}

static void test_malformed(void)
{
    static const char *const lines[] = {
        " ",
        "\t \t",
        "OUTB 1 2",
        "outb",
        "outb 1",
        "outb x y",
        "outb 0x",
        "outl 1 2 3 4 5",
        "outb 0x123456789012345678901234567890 1",
        "inb",
        "inb -1",
        "inl 0xffff",
        "inl 0xfffd",
        "outl 0xffff 0xffffffffff",
        "readb",
        "readq 0xffffffffffffffff",
        "readq 0xfffffffffffffffc",
        "writeq 0xfffffffffffffffe 1",
        "writeb 0x1000",
        "writeb 0x1000 0x1ff",
        "read",
        "read 0x1000",
        "read 0x1000 0",
        "read 0x1000 -1",
        "read 0x1000 0xffffffffffffffff",
        "read 0xfffffffffffffff0 64",
        "read 0xe0000000 65536",
        "write 0x1000",
        "write 0x1000 4",
        "write 0x1000 4 0x01",
        "write 0x1000 4 0x0102030405060708",
        "write 0x1000 4 01020304",
        "write 0x1000 4 0xzzzzzzzz",
        "write 0x1000 4 0x010203g4",
        "write 0x1000 3 0x01020",
        "write 0x1000 0 0x",
        "write 0x1000 0xffffffffffffffff 0x00",
        "write 0xfffffffffffffff0 64 0x00",
        "memset",
        "memset 0x1000",
        "memset 0x1000 4",
        "memset 0x1000 0xffffffffffffffff 0",
        "memset 0xffffffffffffff00 0x1000 0xff",
        "b64read",
        "b64read 0x1000 0xffffffffffffffff",
        "b64read 0x1000 0",
        "b64write",
        "b64write 0x1000 3",
        "b64write 0x1000 3 !!!!",
        "b64write 0x1000 300 AQID",
        "b64write 0x1000 1 AQID",
        "b64write 0x1000 0xffffffffffffffff AQID",
        "clock_step abc",
        "clock_step -5",
        "clock_step 0xffffffffffffffff",
        "clock_set",
        "clock_set -1",
        "clock_set 99999999999999999999999",
        "irq_intercept_in",
        "irq_intercept_out",
        "irq_intercept_out ioapic nothing",
        "irq_intercept_in /machine",
        "irq_intercept_in /",
        "irq_intercept_in //////",
        "set_irq_in",
        "set_irq_in ioapic",
        "set_irq_in ioapic x",
        "set_irq_in ioapic x y z",
        "set_irq_in nothing x 0 1",
        "set_irq_in ioapic unnamed-gpio-in 4294967295 1",
        "module_load",
        "module_load nothing nothing",
        "endianness now please",
        "rtas nothing 1 2 3 4 5",
        "\x01\x02\x03\xff\xfe",
        "%s%n%n%n",
        "read 0x1000 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 4",
    };
    Rig *rig = rig_new(NULL);

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU asserts on most of these");
        return;
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(lines); i++) {
        GError *err = NULL;
        g_autofree char *got = qtest_client_ask(rig->qtest, lines[i], &err);

        g_assert_no_error(err);
        if (!g_str_has_prefix(got, "OK") && !g_str_has_prefix(got, "FAIL") &&
            !g_str_has_prefix(got, "ERR")) {
            g_error("'%s' was answered '%s'", lines[i], got);
        }
        expect_answer(rig, "endianness", "OK little");
    }
    rig_restart(rig); /* some wrote to low memory */
    rig_expect_working(rig);
    rig_free(rig);
}

/* --- interrupt lines --- */

static void expect_line(QtestClient *qtest, unsigned irq, bool level, uint64_t raises)
{
    g_assert_cmpint(qtest_client_irq_level(qtest, irq), ==, level);
    g_assert_cmpuint(qtest_client_irq_raises(qtest, irq), ==, raises);
}

static void test_set_irq_in(gconstpointer machine)
{
    Emulator *e = launch(NULL, "-machine %s", (const char *)machine);

    /* Nobody has asked yet: nothing is told. */
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 23 1", "OK");
    expect_client_answer(e->qtest, "irq_intercept_in ioapic", "OK");
    expect_line(e->qtest, 23, false, 0);
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 23 0", "OK");
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 23 1", "OK");
    expect_line(e->qtest, 23, true, 1);
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 0x7 1", "OK");
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 0x7 1", "OK");
    expect_line(e->qtest, 7, true, 1);
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 7 0", "OK");
    expect_line(e->qtest, 7, false, 1);
    expect_line(e->qtest, 23, true, 1);

    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 24 1", "FAIL Unknown IRQ");
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 4294967296 1",
                         "FAIL Unknown IRQ");
    expect_client_answer(e->qtest, "set_irq_in ioapic other 1 1", "FAIL Unknown IRQ");
    expect_client_answer(e->qtest, "set_irq_in nothing unnamed-gpio-in 1 1", "FAIL Unknown device");
    expect_client_answer(e->qtest, "set_irq_in ioapic unnamed-gpio-in 1",
                         "FAIL set_irq_in needs 4 arguments");
    launch_quit(e);
}

/* A line is up while a device or the client holds it. */
static void test_set_irq_in_shared(void)
{
    const unsigned irq = 11;
    Rig *rig = rig_new(&(RigConfig){.intx = true});

    guest_pci_bus_write(&rig->bus, 0, 0x08, 1, 0x63, irq); /* slot 4, pin A is PIRQ D */
    expect_answer(rig, "irq_intercept_in ioapic", "OK");
    launch_do(rig->emulator, "set_link", "{'name': 'n0', 'up': false}");
    g_assert_true(qtest_client_irq_wait(rig->qtest, irq, true, RIG_TIMEOUT_MS));
    expect_answer(rig, "set_irq_in ioapic unnamed-gpio-in 11 1", "OK");
    g_assert_cmpuint(virtio_driver_read_isr(rig->virtio) & 2, ==, 2); /* the device lets go */
    expect_line(rig->qtest, irq, true, 1);
    expect_answer(rig, "set_irq_in ioapic unnamed-gpio-in 11 0", "OK");
    expect_line(rig->qtest, irq, false, 1);
    rig_free(rig);
}

/* One device's lines at a time; and there are none but the interrupt controller's. */
static void test_intercept(void)
{
    Emulator *e = launch(NULL, "-device virtio-net-pci,id=nic0 -object iothread,id=io0");

    expect_client_answer(e->qtest, "irq_intercept_in nothing", "FAIL Unknown device");
    expect_client_answer(e->qtest, "irq_intercept_in io0", "FAIL Unknown device");
    expect_client_answer(e->qtest, "irq_intercept_out nothing", "FAIL Unknown device");
    expect_client_answer(e->qtest, "irq_intercept_in nic0", "FAIL No intercepts installed");
    expect_client_answer(e->qtest, "irq_intercept_out nic0", "FAIL No intercepts installed");
    expect_client_answer(e->qtest, "irq_intercept_out nic0 x", "FAIL No intercepts installed");
    expect_client_answer(e->qtest, "irq_intercept_out ioapic", "FAIL No intercepts installed");
    expect_client_answer(e->qtest, "irq_intercept_in /machine/i440fx/ioapic", "OK");
    expect_client_answer(e->qtest, "irq_intercept_in ioapic", "OK");
    expect_client_answer(e->qtest, "irq_intercept_out ioapic", "OK");
    expect_client_answer(e->qtest, "irq_intercept_in nic0", "FAIL IRQ intercept already enabled");
    expect_client_answer(e->qtest, "irq_intercept_out nic0", "FAIL IRQ intercept already enabled");
    expect_client_answer(e->qtest, "irq_intercept_in nothing", "FAIL Unknown device");
    launch_quit(e);
}

/* --- bytes as they come --- */

static void send_bytes(Rig *rig, const char *bytes, size_t size)
{
    int fd = qtest_client_fd(rig->qtest);

    while (size > 0) {
        ssize_t n = write(fd, bytes, size);

        if (n < 0) {
            g_assert_cmpint(errno, ==, EINTR);
            continue;
        }
        bytes += n;
        size -= (size_t)n;
    }
}

/* What has come within @ms after the last byte. */
static char *receive_bytes(Rig *rig, unsigned ms)
{
    GString *text = g_string_new(NULL);
    struct pollfd pfd = {.fd = qtest_client_fd(rig->qtest), .events = POLLIN};
    char buf[4096];

    while (poll(&pfd, 1, (int)ms) > 0) {
        ssize_t n = read(pfd.fd, buf, sizeof(buf));

        g_assert_cmpint(n, >, 0);
        g_string_append_len(text, buf, n);
    }
    return g_string_free(text, FALSE);
}

static void test_pieces(void)
{
    static const char text[] = "endianness\nwriteb 0x1000 7\nreadb 0x1000\n";
    Rig *rig = rig_open(NULL);
    g_autofree char *got = NULL, *again = NULL;

    for (unsigned i = 0; i < strlen(text); i++) {
        send_bytes(rig, text + i, 1);
        g_usleep(200);
    }
    got = receive_bytes(rig, 200);
    g_assert_cmpstr(got, ==, "OK little\nOK\nOK 0x0000000000000007\n");
    send_bytes(rig, text, strlen(text));
    again = receive_bytes(rig, 200);
    g_assert_cmpstr(again, ==, "OK little\nOK\nOK 0x0000000000000007\n");
    rig_free(rig);
}

static void test_empty_lines(void)
{
    Rig *rig = rig_open(NULL);
    g_autofree char *got = NULL;

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU 7.2 asserts");
        return;
    }
    send_bytes(rig, "\n\n\nendianness\n\n", 15);
    got = receive_bytes(rig, 200);
    g_assert_cmpstr(got, ==, "OK little\n");
    rig_free(rig);
}

static void test_long_line(void)
{
    Rig *rig = rig_open(NULL);
    size_t size = 4 << 20;
    g_autofree char *line = g_malloc(size + 1);
    g_autofree char *write_line = NULL;
    GString *hex;

    if (!rig->is_swnic) {
        rig_free(rig);
        g_test_skip("QEMU answers the whole line back");
        return;
    }
    memset(line, 'A', size);
    line[size] = '\n';
    send_bytes(rig, line, size + 1);
    g_free(receive_bytes(rig, 500));
    expect_answer(rig, "endianness", "OK little");
    /* A long line that is right: 64 KiB in one write. */
    hex = g_string_new("write 0x100000 65536 0x");
    for (unsigned i = 0; i < 65536; i++) {
        g_string_append_printf(hex, "%02x", i * 3 & 0xff);
    }
    write_line = g_string_free(hex, FALSE);
    expect_answer(rig, write_line, "OK");
    expect_answer(rig, "read 0x10fffe 2", "OK 0xfafd");
    rig_free(rig);
}

static void test_nul_bytes(void)
{
    static const char *const rows[] = {"\0\n", "\0x\n", "endi\0anness\n", "\0endianness\n"};
    static const size_t sizes[] = {2, 3, 12, 12};
    Rig *rig = rig_open(NULL);

    for (unsigned i = 0; rig->is_swnic && i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *got = NULL;

        send_bytes(rig, rows[i], sizes[i]);
        got = receive_bytes(rig, 100);
        g_assert_false(g_str_has_prefix(got, "OK"));
        expect_answer(rig, "endianness", "OK little");
    }
    rig_free(rig);
}

static void test_random_bytes(void)
{
    Rig *rig = rig_new(NULL);
    GRand *rand = g_rand_new_with_seed(31337);
    char bytes[4096];

    if (!rig->is_swnic) {
        g_rand_free(rand);
        rig_free(rig);
        g_test_skip("QEMU asserts on some of these");
        return;
    }
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (char)(g_rand_int(rand) % 40 ? g_rand_int(rand) : '\n');
        }
        bytes[sizeof(bytes) - 1] = '\n';
        send_bytes(rig, bytes, sizeof(bytes));
        g_free(receive_bytes(rig, 20));
    }
    g_rand_free(rand);
    g_free(receive_bytes(rig, 300));
    expect_answer(rig, "endianness", "OK little");
    rig_expect_working(rig);
    rig_free(rig);
}

/* Whatever the width, an access to the device is one access, and all of RAM is reachable. */
static void test_widths(void)
{
    Rig *rig = rig_open(NULL);
    g_autofree char *line = NULL;
    uint64_t bar = rig->pci->bars[4].addr;

    line = g_strdup_printf("read 0x%" PRIx64 " 4", bar + 0x2000);
    expect_answer(rig, line, "OK 0x52540012");
    g_free(line);
    line = g_strdup_printf("read 0x%" PRIx64 " 8", bar + 0x2000);
    expect_prefix(rig, line, "OK 0x525400123456");
    expect_answer(rig, "writeb 0x7ffffff 0x55", "OK"); /* the last byte */
    expect_answer(rig, "readb 0x7ffffff", "OK 0x0000000000000055");
    expect_answer(rig, "write 0x7fffffe 4 0x01020304", "OK"); /* half of it beyond */
    expect_answer(rig, "readw 0x7fffffe", "OK 0x0000000000000201");
    rig_free(rig);
}

/* The emulator runs on when the client has gone. */
static void test_client_closes(void)
{
    Rig *rig = rig_open(NULL);
    GError *err = NULL;
    json_object *status;

    shutdown(qtest_client_fd(rig->qtest), SHUT_RDWR);
    g_usleep(100 * 1000);
    status = qmp_client_execute(rig->qmp, "query-status", NULL, &err);
    g_assert_no_error(err);
    json_object_put(status);
    g_assert_true(emulator_is_alive(rig->emulator));
    g_assert_true(rig_free_ended(rig));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qtest/answers", test_answers);
    g_test_add_func("/qtest/clock", test_clock);
    g_test_add_func("/qtest/widths", test_widths);
    g_test_add_data_func("/qtest/set-irq-in/pc", "pc", test_set_irq_in);
    g_test_add_data_func("/qtest/set-irq-in/q35", "q35", test_set_irq_in);
    g_test_add_data_func("/qtest/set-irq-in/microvm", "microvm", test_set_irq_in);
    g_test_add_func("/qtest/set-irq-in/line-shared-with-a-device", test_set_irq_in_shared);
    g_test_add_func("/qtest/intercept-one-device", test_intercept);
    g_test_add_func("/qtest/malformed-lines-are-answered", test_malformed);
    g_test_add_func("/qtest/lines-in-pieces-and-together", test_pieces);
    g_test_add_func("/qtest/empty-lines-get-nothing", test_empty_lines);
    g_test_add_func("/qtest/long-lines", test_long_line);
    g_test_add_func("/qtest/nul-bytes", test_nul_bytes);
    g_test_add_func("/qtest/random-bytes", test_random_bytes);
    g_test_add_func("/qtest/client-closes-emulator-runs-on", test_client_closes);
    return g_test_run();
}
