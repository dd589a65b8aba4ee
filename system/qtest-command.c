/*
 * The commands of the qtest protocol: one table row each.  A command checks its words before it
 * does anything; what it does goes through the machine's ports and memory as a CPU's access
 * would, so an access to MMIO keeps its width.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "hw/core/device.h"
#include "hw/core/machine.h"
#include "qtest-priv.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/keyval.h"

/* memset works in pieces and may be larger than what a line can carry. */
#define MAX_MEMSET   (UINT64_C(1) << 40)
#define MEMSET_PIECE (64u * 1024)

typedef struct QtestCommand {
    const char *name;
    unsigned args; /* words that must follow */
    unsigned size; /* bytes of an access, for the commands that share a function */
    void (*run)(const struct QtestCommand *command, char **args);
} QtestCommand;

/* A C number, or false after a FAIL line. */
static bool take_number(const char *text, uint64_t *value)
{
    GError *err = NULL;

    if (parse_uint64("number", text, UINT64_MAX, value, &err)) {
        return true;
    }
    qtest_reply("FAIL %s", err->message);
    g_error_free(err);
    return false;
}

static void put_le(uint8_t *bytes, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        bytes[i] = value >> (8 * i);
    }
}

static uint64_t get_le(const uint8_t *bytes, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static uint64_t size_mask(unsigned size)
{
    return size == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * size)) - 1;
}

/* outb, outw, outl ADDR VALUE */
static void run_out(const QtestCommand *command, char **args)
{
    uint64_t addr, value;

    if (take_number(args[0], &addr) && take_number(args[1], &value)) {
        io_space_write(&current_machine->ports, addr & 0xffff, value & size_mask(command->size),
                       command->size);
        qtest_reply("OK");
    }
}

/* inb, inw, inl ADDR */
static void run_in(const QtestCommand *command, char **args)
{
    uint64_t addr, value;

    if (take_number(args[0], &addr)) {
        io_space_read(&current_machine->ports, addr & 0xffff, &value, command->size);
        qtest_reply("OK 0x%04" PRIx64, value & size_mask(command->size));
    }
}

/* writeb, writew, writel, writeq ADDR VALUE */
static void run_write_value(const QtestCommand *command, char **args)
{
    uint64_t addr, value;
    uint8_t bytes[8];

    if (take_number(args[0], &addr) && take_number(args[1], &value)) {
        put_le(bytes, value, command->size);
        machine_write(current_machine, addr, bytes, command->size);
        qtest_reply("OK");
    }
}

/* readb, readw, readl, readq ADDR */
static void run_read_value(const QtestCommand *command, char **args)
{
    uint8_t bytes[8] = {0};
    uint64_t addr;

    if (take_number(args[0], &addr)) {
        machine_read(current_machine, addr, bytes, command->size);
        qtest_reply("OK 0x%016" PRIx64, get_le(bytes, command->size));
    }
}

/* ADDR and SIZE, with SIZE in 1..@max and no wrap at the end of the address space. */
static bool take_range(char **args, uint64_t max, uint64_t *addr, uint64_t *size)
{
    if (!take_number(args[0], addr) || !take_number(args[1], size)) {
        return false;
    }
    if (!*size || *size > max || *addr + *size - 1 < *addr) {
        qtest_reply("ERR invalid argument size");
        return false;
    }
    return true;
}

/* read ADDR SIZE */
static void run_read(const QtestCommand *command, char **args)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t addr, size;

    if (!take_range(args, QTEST_MAX_DATA, &addr, &size)) {
        return;
    }
    g_autofree uint8_t *data = g_malloc0(size);
    machine_read(current_machine, addr, data, size);
    GString *line = g_string_sized_new(2 * size + 8);
    g_string_append(line, "OK 0x");
    for (uint64_t i = 0; i < size; i++) {
        g_string_append_c(line, digits[data[i] >> 4]);
        g_string_append_c(line, digits[data[i] & 15]);
    }
    qtest_reply_take(line);
}

/* write ADDR SIZE 0xHEX: data that is shorter than SIZE is filled up with zeroes. */
static void run_write(const QtestCommand *command, char **args)
{
    const char *hex = args[2];
    uint64_t addr, size;

    if (!take_range(args, QTEST_MAX_DATA, &addr, &size)) {
        return;
    }
    if (hex[0] != '0' || (hex[1] != 'x' && hex[1] != 'X') || !hex[2]) {
        qtest_reply("ERR invalid argument size");
        return;
    }
    g_autofree uint8_t *data = g_malloc0(size);
    hex += 2;
    for (uint64_t i = 0; i < size && hex[0]; i++, hex += 2) {
        int high = g_ascii_xdigit_value(hex[0]), low = g_ascii_xdigit_value(hex[1]);
        if (high < 0 || low < 0) {
            qtest_reply("ERR invalid argument data");
            return;
        }
        data[i] = high << 4 | low;
    }
    machine_write(current_machine, addr, data, size);
    qtest_reply("OK");
}

/* b64read ADDR SIZE */
static void run_b64read(const QtestCommand *command, char **args)
{
    uint64_t addr, size;

    if (!take_range(args, QTEST_MAX_DATA, &addr, &size)) {
        return;
    }
    g_autofree uint8_t *data = g_malloc0(size);
    machine_read(current_machine, addr, data, size);
    g_autofree char *text = g_base64_encode(data, size);
    GString *line = g_string_new("OK ");
    g_string_append(line, text);
    qtest_reply_take(line);
}

/* b64write ADDR SIZE DATA: of a SIZE and data that differ, the smaller counts. */
static void run_b64write(const QtestCommand *command, char **args)
{
    uint64_t addr, size;
    gsize found = 0;

    if (!take_range(args, QTEST_MAX_DATA, &addr, &size)) {
        return;
    }
    g_autofree uint8_t *data = g_base64_decode(args[2], &found);
    if (!found) {
        qtest_reply("ERR invalid argument data");
        return;
    }
    machine_write(current_machine, addr, data, MIN(size, found));
    qtest_reply("OK");
}

/* memset ADDR SIZE VALUE */
static void run_memset(const QtestCommand *command, char **args)
{
    uint64_t addr, size, value;

    if (!take_number(args[1], &size) || !take_number(args[2], &value)) {
        return;
    }
    if (size) {
        if (!take_range(args, MAX_MEMSET, &addr, &size)) {
            return;
        }
        uint8_t piece[MEMSET_PIECE];
        memset(piece, value, sizeof(piece));
        while (size) {
            size_t n = MIN(size, sizeof(piece));
            machine_write(current_machine, addr, piece, n);
            addr += n;
            size -= n;
        }
    }
    qtest_reply("OK");
}

/* Moves the stepped clock to @target_ns and tells where it is. */
static void step_clock(int64_t now_ns, int64_t target_ns)
{
    clock_step_virtual(target_ns);
    int64_t reached = clock_get_ns(CLOCK_VIRTUAL);
    qtest_reply("%s %" PRIi64, reached > now_ns ? "OK" : "FAIL", reached);
}

static bool clock_is_ours(const char *name)
{
    if (!clock_is_stepped()) {
        qtest_reply("FAIL %s needs -accel qtest", name);
        return false;
    }
    return true;
}

/* clock_step [NS] */
static void run_clock_step(const QtestCommand *command, char **args)
{
    int64_t now = clock_get_ns(CLOCK_VIRTUAL);
    uint64_t ns;

    if (!clock_is_ours(command->name)) {
        return;
    }
    if (args[0]) {
        if (take_number(args[0], &ns)) {
            step_clock(now, ns < (uint64_t)(INT64_MAX - now) ? now + (int64_t)ns : INT64_MAX);
        }
        return;
    }
    clock_step_virtual(now); /* what is due and has not had its turn in the loop yet */
    int64_t deadline = clock_virtual_deadline_ns();
    if (deadline < 0) {
        qtest_reply("FAIL cannot advance clock to the next deadline because there is no pending "
                    "deadline");
        return;
    }
    step_clock(now, deadline);
}

/* clock_set NS */
static void run_clock_set(const QtestCommand *command, char **args)
{
    uint64_t ns;

    if (clock_is_ours(command->name) && take_number(args[0], &ns)) {
        step_clock(clock_get_ns(CLOCK_VIRTUAL), MIN(ns, (uint64_t)INT64_MAX));
    }
}

static void run_endianness(const QtestCommand *command, char **args)
{
    qtest_reply("OK little");
}

static void irq_changed(void *opaque, int line, int level)
{
    qtest_reply("IRQ %s %d", level ? "raise" : "lower", line);
}

/* Of a device whose lines are told of: its path, or "ioapic" for the interrupt controller, which
 * is no object here.  NULL: none. */
static char *intercepted;

static bool is_interrupt_controller(const char *path)
{
    MachineClass *mc = MACHINE_GET_CLASS(current_machine);

    return mc->irq_intercept_in && mc->irq_intercept_in(current_machine, path);
}

/* What @path names, in one spelling; NULL when that is no device.  g_free it. */
static char *device_with_lines(const char *path)
{
    Object *obj = qom_resolve_path(path, NULL);

    if (is_interrupt_controller(path)) {
        return g_strdup("ioapic");
    }
    return obj && IS_DEVICE(obj) ? object_canonical_path(obj) : NULL;
}

/* What both intercepts answer before they look for lines, as QEMU does; true: it is done. */
static bool answer_intercept(const char *device)
{
    if (!device) {
        qtest_reply("FAIL Unknown device");
    } else if (intercepted) {
        qtest_reply(strcmp(intercepted, device) ? "FAIL IRQ intercept already enabled" : "OK");
    }
    return !device || intercepted;
}

/* irq_intercept_in QOMPATH: only the interrupt controller has inputs. */
static void run_irq_intercept_in(const QtestCommand *command, char **args)
{
    g_autofree char *device = device_with_lines(args[0]);

    if (answer_intercept(device)) {
        return;
    }
    if (!is_interrupt_controller(args[0])) {
        qtest_reply("FAIL No intercepts installed");
        return;
    }
    intercepted = g_steal_pointer(&device);
    current_machine->irq_intercept = irq_changed;
    qtest_reply("OK");
}

/* irq_intercept_out QOMPATH [NAME]: no device here has output lines that could be cut off. */
static void run_irq_intercept_out(const QtestCommand *command, char **args)
{
    g_autofree char *device = device_with_lines(args[0]);

    if (!answer_intercept(device)) {
        qtest_reply("FAIL No intercepts installed");
    }
}

/* set_irq_in QOMPATH NAME NUM LEVEL */
static void run_set_irq_in(const QtestCommand *command, char **args)
{
    g_autofree char *device = device_with_lines(args[0]);
    uint64_t line, level;

    if (!device) {
        qtest_reply("FAIL Unknown device");
        return;
    }
    if (!take_number(args[2], &line) || !take_number(args[3], &level)) {
        return;
    }
    bool ok = is_interrupt_controller(args[0]) && !strcmp(args[1], "unnamed-gpio-in") &&
              line <= UINT_MAX && machine_set_irq_in(current_machine, (unsigned)line, level != 0);
    qtest_reply(ok ? "OK" : "FAIL Unknown IRQ");
}

static const QtestCommand commands[] = {
    {"inb", 1, 1, run_in},
    {"inw", 1, 2, run_in},
    {"inl", 1, 4, run_in},
    {"outb", 2, 1, run_out},
    {"outw", 2, 2, run_out},
    {"outl", 2, 4, run_out},
    {"readb", 1, 1, run_read_value},
    {"readw", 1, 2, run_read_value},
    {"readl", 1, 4, run_read_value},
    {"readq", 1, 8, run_read_value},
    {"writeb", 2, 1, run_write_value},
    {"writew", 2, 2, run_write_value},
    {"writel", 2, 4, run_write_value},
    {"writeq", 2, 8, run_write_value},
    {"read", 2, 0, run_read},
    {"write", 3, 0, run_write},
    {"b64read", 2, 0, run_b64read},
    {"b64write", 3, 0, run_b64write},
    {"memset", 3, 0, run_memset},
    {"clock_step", 0, 0, run_clock_step},
    {"clock_set", 1, 0, run_clock_set},
    {"endianness", 0, 0, run_endianness},
    {"irq_intercept_in", 1, 0, run_irq_intercept_in},
    {"irq_intercept_out", 1, 0, run_irq_intercept_out},
    {"set_irq_in", 4, 0, run_set_irq_in},
};

void qtest_command(const char *line)
{
    g_auto(GStrv) words = g_strsplit(line, " ", -1);
    unsigned args = g_strv_length(words) - 1;

    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        const QtestCommand *command = &commands[i];
        if (strcmp(words[0], command->name)) {
            continue;
        }
        if (args < command->args) {
            qtest_reply("FAIL %s needs %u argument%s", command->name, command->args,
                        command->args == 1 ? "" : "s");
        } else {
            command->run(command, words + 1);
        }
        return;
    }
    qtest_reply("FAIL Unknown command '%.80s'", words[0]);
}

void qtest_command_reset(void)
{
    if (current_machine) {
        current_machine->irq_intercept = NULL;
    }
    g_clear_pointer(&intercepted, g_free);
}
