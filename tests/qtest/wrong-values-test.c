/*
 * Wrong values of devices, properties, objects and back ends on the command line: one line on
 * standard error that names the thing, exit status 1.  And spellings of clients that must start.
 * Options themselves, help and how the process ends are cmdline-test.c's.
 */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/rig.h"

#define ARGS_MAX 12

typedef struct WrongLine {
    const char *args[ARGS_MAX];
    const char *names; /* what the message must contain */
} WrongLine;

#define NIC "virtio-net-pci,romfile="

static const WrongLine wrong_lines[] = {
    /* machine and memory */
    {{"-m", "-5"}, "-5"},
    {{"-object", "nothing,id=x"}, "nothing"},
    {{"-object", "memory-backend-ram,size=64M"}, "id"},
    {{"-object", "memory-backend-ram,id=m"}, "size"},
    {{"-object", "memory-backend-ram,id=m,size=abc"}, "abc"},
    {{"-object", "memory-backend-ram,id=m,size=64M,nothing=1"}, "nothing"},
    {{"-object", "memory-backend-ram,id=1m,size=64M"}, "1m"},
    {{"-object", "memory-backend-file,id=m,size=64M"}, "mem-path"},
    {{"-object", "memory-backend-file,id=m,size=64M,mem-path=/nonexistent/x,share=on"},
     "/nonexistent/x"},
    {{"-object", "memory-backend-ram,id=m,size=64M", "-object", "memory-backend-ram,id=m,size=64M"},
     "m"},
    /* devices */
    {{"-device", "nothing"}, "nothing"},
    {{"-device", "nothing,id=x"}, "nothing"},
    {{"-device", "PCI"}, "PCI"},
    {{"-device", "pci-device"}, "pci-device"},
    {{"-device", "i440FX"}, "i440FX"},
    {{"-device", "GObject"}, "GObject"},
    {{"-device", "id=x"}, "driver"},
    {{"-device", NIC ",nothing=1"}, "nothing"},
    {{"-device", NIC ",x_txburst=1"}, "x_txburst"},
    {{"-device", NIC ",rx-queue-size=256"}, "rx-queue-size"},
    {{"-device", NIC ",id=1x"}, "1x"},
    {{"-device", NIC ",bus=pci.9"}, "pci.9"},
    {{"-device", NIC ",addr=20"}, "20"},
    {{"-device", NIC ",addr=zz"}, "zz"},
    {{"-device", NIC ",addr=0"}, "slot 0"},
    {{"-device", NIC ",mac=zz"}, "zz"},
    {{"-device", NIC ",mac=52:54:00:12:34"}, "52:54:00:12:34"},
    {{"-device", NIC ",mac=52:54:00:12:34:56:78"}, "52:54:00:12:34:56:78"},
    {{"-device", NIC ",x-txburst=abc"}, "abc"},
    {{"-device", NIC ",x-txburst=0"}, "x-txburst"},
    {{"-device", NIC ",x-txburst=99999999999"}, "99999999999"},
    {{"-device", NIC ",x-txtimer=-1"}, "x-txtimer"},
    {{"-device", NIC ",tx=foo"}, "foo"},
    {{"-device", NIC ",rx_queue_size=100"}, "100"},
    {{"-device", NIC ",rx_queue_size=32"}, "32"},
    {{"-device", NIC ",rx_queue_size=2048"}, "2048"},
    {{"-device", NIC ",tx_queue_size=65"}, "65"},
    {{"-device", NIC ",host_mtu=70000"}, "70000"},
    {{"-device", NIC ",duplex=quarter"}, "quarter"},
    {{"-device", NIC ",vectors=2049"}, "2049"},
    {{"-device", NIC ",csum=1"}, "csum"},
    {{"-device", NIC ",csum=perhaps"}, "perhaps"},
    {{"-device", NIC ",disable-legacy=perhaps"}, "perhaps"},
    {{"-device", NIC ",netdev=nope"}, "nope"},
    {{"-device", NIC ",romfile=/nonexistent/x.rom"}, "/nonexistent/x.rom"},
    {{"-device", "{\"driver\": \"virtio-net-pci\""}, ""},
    {{"-device", "{\"driver\": 5}"}, "driver"},
    {{"-device", NIC ",id=a", "-device", NIC ",id=a"}, "a"},
    {{"-device", NIC ",addr=5", "-device", NIC ",addr=5"}, "slot 5"},
    {{"-netdev", "hubport,hubid=0,id=n", "-device", NIC ",netdev=n", "-device", NIC ",netdev=n"},
     "n"},
    /* back ends */
    {{"-netdev", "nothing,id=n"}, "nothing"},
    {{"-netdev", "user"}, "id"},
    {{"-netdev", "id=n"}, "type"},
    {{"-netdev", "user,id=n,nothing=1"}, "nothing"},
    {{"-netdev", "user,id=1n"}, "1n"},
    {{"-netdev", "user,id=n,net=nonsense"}, "nonsense"},
    {{"-netdev", "user,id=n,hostfwd=nonsense"}, "nonsense"},
    {{"-netdev", "user,id=n,hostfwd=tcp::99999-:80"}, "99999"},
    {{"-netdev", "user,id=n", "-netdev", "user,id=n"}, "n"},
    {{"-netdev", "socket,id=n"}, "socket"},
    {{"-netdev", "socket,id=n,fd=99"}, "99"},
    {{"-netdev", "socket,id=n,fd=nope"}, "nope"},
    {{"-netdev", "hubport,id=n"}, "hubid"},
};

/* Runs the emulator; it must end within ten seconds. */
static int run(const char *const *args, char **out, char **errors)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    GError *err = NULL;
    int status = 0;

    g_ptr_array_add(argv, (char *)"timeout");
    g_ptr_array_add(argv, (char *)"10");
    g_ptr_array_add(argv, (char *)rig_binary());
    g_ptr_array_add(argv, (char *)"-nodefaults");
    for (unsigned i = 0; i < ARGS_MAX && args[i]; i++) {
        g_ptr_array_add(argv, (char *)args[i]);
    }
    g_ptr_array_add(argv, NULL);
    g_spawn_sync(NULL, (char **)argv->pdata, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, out, errors,
                 &status, &err);
    g_assert_no_error(err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* NULL: as it should be; else what is wrong. */
static char *judge(const WrongLine *row)
{
    g_autofree char *out = NULL, *errors = NULL;
    int status = run(row->args, &out, &errors);
    const char *end = strchr(errors, '\n');

    if (status == 124) {
        return g_strdup("it starts");
    }
    if (status != 1) {
        return g_strdup_printf("exit status %d, standard error '%s'", status, errors);
    }
    if (!end || end[1] || end == errors) {
        return g_strdup_printf("not one line: '%s'", errors);
    }
    if (!strstr(errors, row->names)) {
        return g_strdup_printf("does not name '%s': '%s'", row->names, errors);
    }
    if (*out) {
        return g_strdup_printf("standard output: '%s'", out);
    }
    return NULL;
}

static void test_wrong_lines(void)
{
    unsigned failed = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(wrong_lines); i++) {
        g_autofree char *wrong = judge(&wrong_lines[i]);

        if (wrong) {
            g_autofree char *line = g_strjoinv(" ", (char **)wrong_lines[i].args);

            g_test_message("%s: %s", line, wrong);
            failed++;
        }
    }
    g_assert_cmpuint(failed, ==, 0);
}

static void test_busy_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(addr);
    WrongLine row = {{"-netdev"}, ""};
    g_autofree char *netdev = NULL, *port = NULL, *wrong = NULL;

    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, size), ==, 0);
    g_assert_cmpint(listen(fd, 1), ==, 0);
    g_assert_cmpint(getsockname(fd, (struct sockaddr *)&addr, &size), ==, 0);
    port = g_strdup_printf("%u", ntohs(addr.sin_port));
    netdev = g_strdup_printf("user,id=n,hostfwd=tcp:127.0.0.1:%s-:80", port);
    row.args[1] = netdev;
    row.names = port;
    wrong = judge(&row);
    close(fd);
    g_assert_cmpstr(wrong, ==, NULL);
}

/* Lines that start: spellings that clients use.  Ended by SIGTERM, which is exit status 0. */
static void test_right_lines(void)
{
    static const char *const rows[][ARGS_MAX] = {
        {"-machine", "none"},
        {"-M", "pc", "-m", "64"},
        {"-machine", "pc", "-m", "size=64M,"},
        {"-machine", "pc-i440fx-7.2", "-S", "-name", "guest=x", "-display", "none"},
        {"-audio", "none", "-accel", "tcg", "-msg", "timestamp=off"},
        {"-device", "virtio-net,netdev=n0", "-netdev", "hubport,id=n0,hubid=0,"},
        {"-device", "virtio-net-pci,mac=52-54-00-12-34-99,addr=0x3.0,romfile="},
        {"-device", "virtio-net-pci-non-transitional", "-device", "virtio-net-pci-transitional"},
        {"-global", "virtio-net-pci.x-txburst=5", "-device", "virtio-net-pci"},
        {"-object", "memory-backend-memfd,id=m,size=64M,share=on", "-machine",
         "pc,memory-backend=m"},
        {"-object", "memory-backend-ram,id=m,size=64M", "-numa", "node,memdev=m", "-m", "64M"},
        {"-netdev", "{\"type\": \"hubport\", \"id\": \"h\", \"hubid\": 3}"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GPtrArray) argv = g_ptr_array_new();
        g_autofree char *errors = NULL;
        GError *err = NULL;
        int status;

        /* timeout sends SIGTERM and hands on the exit status. */
        g_ptr_array_add(argv, (char *)"timeout");
        g_ptr_array_add(argv, (char *)"--preserve-status");
        g_ptr_array_add(argv, (char *)"0.3");
        g_ptr_array_add(argv, (char *)rig_binary());
        g_ptr_array_add(argv, (char *)"-nodefaults");
        for (unsigned k = 0; k < ARGS_MAX && rows[i][k]; k++) {
            g_ptr_array_add(argv, (char *)rows[i][k]);
        }
        g_ptr_array_add(argv, NULL);
        g_spawn_sync(NULL, (char **)argv->pdata, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL,
                     &errors, &status, &err);
        g_assert_no_error(err);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            g_error("%s %s …: status %d: %s", rows[i][0], rows[i][1], status, errors);
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!emulator_command_is_swnic(rig_binary(), NULL)) {
        g_test_message("these are about this project's emulator only");
        return g_test_run();
    }
    g_test_add_func("/wrong-values/name-the-thing", test_wrong_lines);
    g_test_add_func("/wrong-values/busy-hostfwd-port", test_busy_port);
    g_test_add_func("/wrong-values/right-lines-start", test_right_lines);
    return g_test_run();
}
