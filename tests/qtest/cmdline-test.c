/*
 * The emulator's command line as a user meets it: what is refused and in which words, what help
 * lists, in which order options may come, and how the process ends.  Each case starts the binary
 * that SWNIC_BINARY names.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *binary;
static char *dir;

/* Runs the binary with @line's words; output in *out and *err_out, exit status as the result. */
static int run(const char *line, char **out, char **err_out)
{
    g_auto(GStrv) words = NULL;
    g_autofree char *command = g_strdup_printf("x %s", line);
    GError *err = NULL;
    int status;

    g_assert_true(g_shell_parse_argv(command, NULL, &words, &err));
    g_free(words[0]);
    words[0] = g_strdup(binary);
    g_spawn_sync(dir, words, NULL, G_SPAWN_DEFAULT, NULL, NULL, out, err_out, &status, &err);
    g_assert_no_error(err);
    g_assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_refused(void)
{
    static const struct {
        const char *line, *names;
    } cases[] = {
        {"-foo", "-foo: invalid option"},
        {"disk.img", "disk.img"},
        {"-m", "-m: requires an argument"},
        {"-m x", "'x'"},
        {"-m 512,slots=2", "'slots'"},
        {"-cpu host", "-cpu"},
        {"-smp 2", "-smp"},
        {"-kernel x", "-kernel"},
        {"-bios x", "-bios"},
        {"-drive file=x", "-drive"},
        {"-hda x", "-hda"},
        {"-vnc :0", "-vnc"},
        {"-incoming carrier-pigeon:1", "unknown migration protocol"},
        {"-display gtk", "'gtk'"},
        {"-vga std", "'std'"},
        {"-accel kvm", "kvm"},
        {"-machine isapc", "isapc"},
        {"-machine pc,foo=1", "foo"},
        {"-machine pc,memory-backend=m9", "m9"},
        {"-numa node,memdev=m9", "m9"},
        {"-numa node,mem=1G", "'mem'"},
        {"-uuid 1234", "UUID"},
        {"-device nope", "'nope'"},
        {"-device virtio-net-pci,foo=1", "foo"},
        {"-device virtio-net-pci,netdev=n9", "n9"},
        {"-device virtio-net-pci,mac=1:2", "mac"},
        {"-device virtio-net-pci,x-txburst=many", "many"},
        {"-device virtio-net-pci,tx=foo", "foo"},
        {"-device virtio-net-pci,addr=99", "99"},
        {"-device virtio-net-pci,id=a -device virtio-net-pci,id=a", "'a'"},
        {"-device virtio-net-pci,addr=4 -device virtio-net-pci,addr=4", "4"},
        {"-device '{\"driver\":'", "-device"},
        {"-device '{\"driver\":\"nope\"}'", "nope"},
        {"-netdev user", "'id'"},
        {"-netdev bogus,id=n", "'bogus'"},
        {"-netdev user,id=n,foo=1", "'foo'"},
        {"-netdev user,id=n -netdev user,id=n", "'n'"},
        {"-netdev user,id=n,hostfwd=nonsense", "nonsense"},
        {"-netdev hubport,id=h,hubid=0 -device virtio-net-pci,netdev=h "
         "-device virtio-net-pci,netdev=h",
         "'h'"},
        {"-net nic", "-net"},
        {"-object nope,id=o", "nope"},
        {"-object iothread", "id"},
        {"-object memory-backend-ram,id=m", "size"},
        {"-object memory-backend-file,id=m,size=1M,mem-path=/nonexistent/ram", "/nonexistent/ram"},
        {"-chardev nope,id=c", "'nope'"},
        {"-chardev null", "id"},
        {"-chardev socket,id=c,path=/nonexistent/s", "/nonexistent/s"},
        {"-mon chardev=c9", "c9"},
        {"-chardev null,id=c -mon chardev=c,mode=foo", "foo"},
        {"-chardev null,id=c -mon chardev=c,mode=control -mon chardev=c,mode=control", "'c'"},
        {"-qmp nonsense", "'nonsense'"},
        {"-qtest unix:/nonexistent/q", "/nonexistent/q"},
        {"-global virtio-net-pci.foo=1 -device virtio-net-pci", "foo"},
        {"-set device.d.mac=x", "\"d\""},
        {"-set nonsense", "-set"},
        {"-readconfig /nonexistent/c", "/nonexistent/c"},
        {"-pidfile /nonexistent/p", "/nonexistent/p"},
        {"-D /nonexistent/l", "/nonexistent/l"},
        {"-d foo", "'foo'"},
        {"-trace nope", "'nope' does not exist"},
        {"-trace enable=virtio_*,foo=1", "'foo'"},
        {"-trace events=/nonexistent/e", "/nonexistent/e"},
        {"-d trace:nope", "'nope' does not exist"},
        {"-msg timestamp=perhaps", "timestamp"},
        {"-msg guest-name=perhaps", "guest-name"},
        {"-msg nonsense=on", "'nonsense'"},
        {"-run-with foo=on", "'foo'"},
        {"-sandbox maybe", "maybe"},
        {"-sandbox on,spawn=x", "'x'"},
        {"-daemonize -run-with exit-with-parent=on", "-daemonize"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *out = NULL, *err = NULL;
        int status = run(cases[i].line, &out, &err);
        bool one_line = strchr(err, '\n') && !strchr(err, '\n')[1];

        if (status != 1 || *out || !one_line || !strstr(err, cases[i].names)) {
            g_error("'%s': exit status %d, standard output '%s', standard error '%s'",
                    cases[i].line, status, out, err);
        }
    }
}

static void test_timestamps(void)
{
    g_autofree char *out = NULL, *err = NULL;

    g_assert_cmpint(run("-msg timestamp=on -device nope", &out, &err), ==, 1);
    g_assert_true(g_regex_match_simple(
        "^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z swnic-system-x86_64: -device nope:",
        err, 0, 0));
}

/* How messages begin, as QEMU has it: time, guest's name, program. */
static void test_guest_names(void)
{
#define TIME "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z "
    static const struct {
        const char *options, *begin;
    } cases[] = {
        {"-msg guest-name=on -name vm1", "vm1 "},
        {"-name vm1 -msg guest-name", "vm1 "},
        {"-name guest=vm1,process=p -msg guest-name=on,timestamp=on", TIME "vm1 "},
        {"-name vm1 -name vm2 -msg guest-name=on", "vm2 "},
        {"-msg guest-name=on", ""},
        {"-msg guest-name=on,timestamp=on", TIME},
        {"-name vm1", ""},
        {"-name vm1 -msg guest-name=off", ""},
        {"-name vm1 -msg timestamp=on", TIME},
        /* Each -msg says all. */
        {"-name vm1 -msg guest-name=on -msg timestamp=on", TIME},
        {"-name vm1 -msg timestamp=on -msg guest-name=on", "vm1 "},
        {"-name 'a b,,c %s' -msg guest-name=on", "a b,c %s "},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *out = NULL, *err = NULL;
        g_autofree char *line = g_strdup_printf("%s -device nope", cases[i].options);
        g_autofree char *expected =
            g_strdup_printf("^%sswnic-system-x86_64: -device nope: .*\n$", cases[i].begin);

        g_assert_cmpint(run(line, &out, &err), ==, 1);
        if (!g_regex_match_simple(expected, err, 0, 0)) {
            g_error("'%s': '%s' does not match '%s'", line, err, expected);
        }
    }
}

/* A migration from nothing fails and ends the process; its states are events. */
static void check_trace(const char *options, bool expected)
{
    g_autofree char *out = NULL, *err = NULL, *text = NULL;
    g_autofree char *path = g_build_filename(dir, "trace.log", NULL);
    g_autofree char *line =
        g_strdup_printf("-msg timestamp=off -D trace.log %s -incoming file:/dev/null", options);

    g_assert_cmpint(run(line, &out, &err), ==, 1);
    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_true(!!strstr(text, "migration_set_incoming_state state failed\n") == expected);
    g_unlink(path);
}

static void test_trace(void)
{
    check_trace("", false);
    check_trace("-trace migration_set_incoming_state", true);
    check_trace("-trace 'migration_*'", true);
    check_trace("-trace virtio_notify", false);
    check_trace("-trace enable=migration_*", true);
    check_trace("-trace migration_* -trace enable=-migration_*", false);
    check_trace("-d trace:migration_*", true);
    check_trace("-d guest_errors,trace:virtio_*", false);
    check_trace("-d trace", true);
}

static void test_help(void)
{
    static const struct {
        const char *line, *lists;
    } cases[] = {
        {"-help", "-netdev TYPE,id=ID"},
        {"--help", "-device DRIVER"},
        {"-version", "swnic-system-x86_64 version "},
        {"-version", "QEMU emulator version "},
        {"-machine help", "pc "},
        {"-M help", "none "},
        {"-machine pc,help", "memory-backend"},
        {"-accel help", "qtest"},
        {"-device help", "\"virtio-net-pci\""},
        {"-device ?", "\"virtio-net-pci\""},
        {"-device virtio-net-pci,help", "x-txtimer=<uint32>"},
        {"-device virtio-net,help", "tx_queue_size"},
        {"-netdev help", "user"},
        {"-nic help", "user"},
        {"-object help", "memory-backend-memfd"},
        {"-object memory-backend-file,help", "mem-path"},
        {"-chardev help", "socket"},
        {"-d help", "guest_errors"},
        {"-trace help", "virtio_net_tx_flush  "},
        {"-display help", "none"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *out = NULL, *err = NULL;
        int status = run(cases[i].line, &out, &err);

        if (status || *err || !strstr(out, cases[i].lists)) {
            g_error("'%s': exit status %d, standard output '%s', standard error '%s'",
                    cases[i].line, status, out, err);
        }
    }
}

typedef struct Process {
    GPid pid;
    int qmp; /* connected and negotiated */
} Process;

static int listen_at(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path));
    g_assert_cmpint(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), ==, 0);
    g_assert_cmpint(listen(fd, 1), ==, 0);
    return fd;
}

/* Reads up to a line that holds @text; everything read is the result. */
static char *read_until(int fd, const char *text)
{
    GString *all = g_string_new(NULL);
    char c;

    while (read(fd, &c, 1) == 1) {
        g_string_append_c(all, c);
        if (c == '\n' && strstr(all->str, text)) {
            return g_string_free(all, FALSE);
        }
    }
    g_error("'%s' did not come, only: %s", text, all->str);
}

static char *command(Process *p, const char *text)
{
    g_assert_cmpint(write(p->qmp, text, strlen(text)), ==, strlen(text));
    return read_until(p->qmp, "\"return\"");
}

static Process start(const char *line)
{
    g_autofree char *path = g_build_filename(dir, "qmp", NULL);
    g_autofree char *full = g_strdup_printf("x %s -qmp unix:%s -display none", line, path);
    g_auto(GStrv) words = NULL;
    GError *err = NULL;
    Process p;
    int fd = listen_at(path);

    g_assert_true(g_shell_parse_argv(full, NULL, &words, &err));
    g_free(words[0]);
    words[0] = g_strdup(binary);
    g_spawn_async(dir, words, NULL, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                  NULL, &p.pid, &err);
    g_assert_no_error(err);
    p.qmp = accept(fd, NULL, NULL);
    g_assert_cmpint(p.qmp, >=, 0);
    close(fd);
    g_unlink(path);
    g_free(read_until(p.qmp, "QMP"));
    g_free(command(&p, "{'execute': 'qmp_capabilities'}\n"));
    return p;
}

static void expect_end(Process *p, const char *reason)
{
    int status;

    if (reason) {
        g_autofree char *event = read_until(p->qmp, "SHUTDOWN");
        g_assert_nonnull(strstr(event, reason));
    }
    g_assert_cmpint(waitpid(p->pid, &status, 0), ==, p->pid);
    g_assert_true(WIFEXITED(status));
    g_assert_cmpint(WEXITSTATUS(status), ==, 0);
    close(p->qmp);
}

static void end(Process *p)
{
    g_free(command(p, "{'execute': 'quit'}\n"));
    expect_end(p, NULL);
}

/* Uses come before what they use: phases put them in order. */
static void test_order(void)
{
    Process p = start("-mon chardev=m1 -numa node,memdev=m0 "
                      "-device virtio-net-pci,netdev=h0,id=net0,addr=04.0 "
                      "-device virtio-net-pci,iothread=io0 "
                      "-nodefaults --nographic -audio none -netdev hubport,hubid=1,id=h0 "
                      "-object iothread,id=io0 -chardev null,id=m1 "
                      "-object memory-backend-ram,id=m0,size=64M, -m size=64M, -M pc "
                      "-global virtio-net-pci.x-txtimer=1234 -set device.net0.x-txburst=9 "
                      "-name guest=it -uuid 01234567-89AB-cdef-0123-456789abcdef -S");
    g_autofree char *burst = command(
        &p, "{'execute': 'qom-get', 'arguments': {'path': 'net0', 'property': 'x-txburst'}}\n");
    g_autofree char *timer = command(
        &p, "{'execute': 'qom-get', 'arguments': {'path': 'net0', 'property': 'x-txtimer'}}\n");
    g_autofree char *name = command(&p, "{'execute': 'query-name'}\n");
    g_autofree char *uuid = command(&p, "{'execute': 'query-uuid'}\n");
    g_autofree char *status = command(&p, "{'execute': 'query-status'}\n");

    g_assert_nonnull(strstr(burst, "9"));
    g_assert_nonnull(strstr(timer, "1234"));
    g_assert_nonnull(strstr(name, "\"it\""));
    g_assert_nonnull(strstr(uuid, "01234567-89ab-cdef-0123-456789abcdef"));
    g_assert_nonnull(strstr(status, "\"prelaunch\""));
    end(&p);
}

static void test_readconfig(void)
{
    g_autofree char *path = g_build_filename(dir, "config", NULL);
    g_autofree char *line = g_strdup_printf("-readconfig %s", path);

    g_assert_true(g_file_set_contents(path,
                                      "# a comment\n"
                                      "[memory]\n"
                                      "  size = \"32M\"\n"
                                      "[netdev \"h0\"]\n"
                                      "  type = \"hubport\"\n"
                                      "  hubid = \"0\"\n"
                                      "[device \"net0\"]\n"
                                      "  driver = \"virtio-net-pci\"\n"
                                      "  netdev = \"h0\"\n"
                                      "[name]\n"
                                      "  guest = \"a,b\"\n",
                                      -1, NULL));
    Process p = start(line);
    g_autofree char *name = command(&p, "{'execute': 'query-name'}\n");
    g_autofree char *type =
        command(&p, "{'execute': 'qom-get', 'arguments': {'path': 'net0', 'property': 'type'}}\n");
    g_assert_nonnull(strstr(name, "\"a,b\""));
    g_assert_nonnull(strstr(type, "virtio-net-pci"));
    end(&p);
    g_unlink(path);
}

static void test_ends(void)
{
    g_autofree char *pidfile = g_build_filename(dir, "pid", NULL);
    g_autofree char *server = g_build_filename(dir, "server", NULL);
    g_autofree char *line =
        g_strdup_printf("-pidfile %s -chardev socket,id=s,path=%s,server=on,wait=off "
                        "-mon chardev=s -device virtio-net-pci",
                        pidfile, server);
    g_autofree char *content = NULL;

    Process p = start(line);
    g_assert_true(g_file_get_contents(pidfile, &content, NULL, NULL));
    g_assert_cmpint(atoi(content), ==, p.pid);
    g_assert_cmpint(access(server, F_OK), ==, 0);
    g_assert_cmpint(kill(p.pid, SIGTERM), ==, 0);
    expect_end(&p, "host-signal");
    g_assert_cmpint(access(pidfile, F_OK), !=, 0);
    g_assert_cmpint(access(server, F_OK), !=, 0);

    p = start("-M none");
    g_assert_cmpint(write(p.qmp, "{'execute': 'quit'}", 19), ==, 19);
    expect_end(&p, "host-qmp-quit");

    p = start("-no-reboot");
    g_free(command(&p, "{'execute': 'system_reset'}\n"));
    expect_end(&p, "host-qmp-system-reset");
}

static void test_qtest_client_leaves(void)
{
    g_autofree char *path = g_build_filename(dir, "qtest", NULL);
    g_autofree char *line = g_strdup_printf("-qtest unix:%s -qtest-log none -accel qtest", path);
    int fd = listen_at(path);
    Process p = start(line);
    int qtest = accept(fd, NULL, NULL);

    g_assert_cmpint(write(qtest, "endianness\nendi", 15), ==, 15);
    g_free(read_until(qtest, "OK little"));
    close(qtest);
    close(fd);
    g_unlink(path);
    for (int i = 0; i < 3; i++) {
        g_free(command(&p, "{'execute': 'query-status'}\n"));
    }
    end(&p);
}

static void test_daemonize(void)
{
    g_autofree char *pidfile = g_build_filename(dir, "pid", NULL);
    g_autofree char *out = NULL, *err = NULL, *content = NULL;
    g_autofree char *line =
        g_strdup_printf("-daemonize -pidfile %s -device virtio-net-pci", pidfile);

    g_assert_cmpint(prctl(PR_SET_CHILD_SUBREAPER, 1), ==, 0); /* so that we can wait for it */
    g_assert_cmpint(run(line, &out, &err), ==, 0);
    g_assert_true(g_file_get_contents(pidfile, &content, NULL, NULL));
    pid_t pid = atoi(content);
    int status;
    g_assert_cmpint(kill(pid, SIGTERM), ==, 0);
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    g_assert_cmpint(access(pidfile, F_OK), !=, 0);

    g_autofree char *out2 = NULL, *err2 = NULL;
    g_assert_cmpint(run("-daemonize -device nope", &out2, &err2), ==, 1);
    g_assert_nonnull(strstr(err2, "nope"));
}

static void test_sandbox(void)
{
    /* In a build with sanitizers, the search for leaks would need a process. */
    g_setenv("LSAN_OPTIONS", "detect_leaks=0", TRUE);
    Process p = start("-sandbox on,spawn=deny -object iothread,id=io0 "
                      "-netdev user,id=u0 -device virtio-net-pci,netdev=u0");

    /* Threads still start; a device can still be plugged. */
    g_free(command(
        &p, "{'execute': 'object-add', 'arguments': {'qom-type': 'iothread', 'id': 'io1'}}\n"));
    g_free(command(&p, "{'execute': 'device_add', 'arguments': "
                       "{'driver': 'virtio-net-pci', 'id': 'net1'}}\n"));
    end(&p);
    g_unsetenv("LSAN_OPTIONS");
}

static void test_exit_with_parent(void)
{
    g_autofree char *path = g_build_filename(dir, "qmp", NULL);
    g_autofree char *spec = g_strdup_printf("unix:%s", path);
    int fd = listen_at(path);
    pid_t parent = fork();

    if (parent == 0) {
        if (fork() == 0) {
            execl(binary, binary, "-run-with", "exit-with-parent=on", "-qmp", spec, NULL);
            _exit(1);
        }
        pause();
        _exit(0);
    }
    int qmp = accept(fd, NULL, NULL);
    g_free(read_until(qmp, "QMP"));
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    char c;
    while (read(qmp, &c, 1) == 1) {
    }
    /* The connection is closed: it ended. */
    close(qmp);
    close(fd);
    g_unlink(path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    binary = g_getenv("SWNIC_BINARY");
    if (!binary) {
        g_printerr("SWNIC_BINARY does not name the emulator\n");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    dir = g_dir_make_tmp("swnic-cmdline-XXXXXX", NULL);
    g_test_add_func("/cmdline/refused-in-one-line", test_refused);
    g_test_add_func("/cmdline/messages-with-the-time", test_timestamps);
    g_test_add_func("/cmdline/messages-with-the-guest-name", test_guest_names);
    g_test_add_func("/cmdline/help-lists", test_help);
    g_test_add_func("/cmdline/trace", test_trace);
    g_test_add_func("/cmdline/order-does-not-matter", test_order);
    g_test_add_func("/cmdline/readconfig", test_readconfig);
    g_test_add_func("/cmdline/end/status-0-and-nothing-left", test_ends);
    g_test_add_func("/cmdline/end/not-by-the-qtest-client", test_qtest_client_leaves);
    g_test_add_func("/cmdline/end/with-the-parent", test_exit_with_parent);
    g_test_add_func("/cmdline/sandbox", test_sandbox);
    g_test_add_func("/cmdline/daemonize", test_daemonize);
    int ret = g_test_run();
    g_rmdir(dir);
    g_free(dir);
    return ret;
}
