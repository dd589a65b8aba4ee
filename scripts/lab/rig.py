"""The lab's bench: two network namespaces with a guest and a device between them.

    namespace A -- tap -- swnic-guest forward -- rings -- device -- tap -- namespace B

Both namespaces are nameless: they exist as long as this process holds their descriptors, so that
nothing is left behind, however it ends.  Every process started here dies with it.
"""
import ctypes
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
PORT = "5001"
HOSTS = {"a": "10.99.0.1", "b": "10.99.0.2"}
MACS = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}
START_SECONDS = 20

libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """What a user is told instead of a traceback."""


def _check(result, what):
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")


def open_tap(name):
    """A new tap with a vnet header in this thread's namespace; its descriptor."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    return fd


def _set_up_interface(side, mtu):
    other = "b" if side == "a" else "a"
    for key in (
        "ipv6/conf/all/disable_ipv6",
        "ipv6/conf/default/disable_ipv6",
        "ipv4/tcp_no_metrics_save",  # else one loss slows all later connections down
    ):
        try:
            with open(f"/proc/sys/net/{key}", "w") as file:
                file.write("1")
        except OSError:
            pass  # not in this kernel
    for command in (
        "link set lo up",
        f"link set tap0 address {MACS[side]} mtu {mtu}",
        f"addr add {HOSTS[side]}/24 dev tap0",
        "link set tap0 up",
        f"neigh add {HOSTS[other]} lladdr {MACS[other]} dev tap0 nud permanent",
    ):
        subprocess.run(["ip", *command.split()], check=True)


class Namespace:
    """One end: a namespace with tap0."""

    def __init__(self, side, mtu=1500):
        self.side = side
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                _check(libc.unshare(CLONE_NEWNET), "network namespace (root can make one)")
                tap = open_tap("tap0")
                _set_up_interface(side, mtu)
                net = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                socket.send_fds(theirs, [b"ok"], [tap, net])
                os._exit(0)
            except BaseException as error:  # told to the parent, which raises it
                theirs.send(str(error).encode()[:200])
                os._exit(1)
        theirs.close()
        text, fds, _, _ = socket.recv_fds(ours, 256, 2)
        ours.close()
        os.waitpid(pid, 0)
        if len(fds) != 2:
            raise LabError(f"namespace {side}: {text.decode()}")
        self.tap, self.net = fds

    def close(self):
        os.close(self.tap)
        os.close(self.net)


def _prepare_child(net):
    def prepare():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if net is not None:
            _check(libc.setns(net, CLONE_NEWNET), "setns")

    return prepare


def start(command, net=None, fds=(), **kwargs):
    """A child process, in the namespace @net if given, that dies with this one."""
    return subprocess.Popen(command, preexec_fn=_prepare_child(net), pass_fds=fds, **kwargs)


def stop(process):
    """By closing its standard input; then by signals."""
    if process is None:
        return
    if process.stdin:
        process.stdin.close()
    else:
        process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


class Qmp:
    """A QMP client of a few lines."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(START_SECONDS)
        self.socket.connect(path)
        self.file = self.socket.makefile("rw")
        self.file.readline()
        self.execute("qmp_capabilities")

    def execute(self, command, **arguments):
        json.dump({"execute": command, "arguments": arguments}, self.file)
        self.file.write("\n")
        self.file.flush()
        while True:
            line = self.file.readline()
            if not line:
                raise LabError(f"{command}: the emulator is gone")
            reply = json.loads(line)
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                raise LabError(f"{command}: {reply['error']['desc']}")

    def close(self):
        self.file.close()
        self.socket.close()


def cpu_ns(pid):
    """Processor time of all threads of a process, ns."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    except OSError:
        pass  # the process, or one of its threads, has ended
    return total


class Bench:
    """Guest and device of one configuration, ready for traffic.

    config: attach ("vfio-user" or "qtest"), emulator (command), device (more properties), guest
    (more arguments of swnic-guest forward), mtu, monitors (names of more QMP sockets in dir).
    """

    def __init__(self, build, config):
        self.build = build
        self.config = config
        self.namespaces = {}
        self.emulator = self.guest = self.qmp = None
        self.servers = []
        self.dir = tempfile.mkdtemp(prefix="swnic-lab-")
        self.pid = 0
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        mtu = self.config.get("mtu", 1500)
        for side in "ab":
            self.namespaces[side] = Namespace(side, mtu)
        device = self.config.get("device", "")
        tap_a, tap_b = (self.namespaces[side].tap for side in "ab")
        command = [os.path.join(self.build, "swnic-guest"), "forward", "--tap-fd", str(tap_a)]
        command += self.config.get("guest", [])
        fds = [tap_a]
        if self.config["attach"] == "vfio-user":
            self._start_server(device, tap_b)
            command += ["--vfio-user", os.path.join(self.dir, "nic0")]
        else:
            command += ["--emulator", self.config["emulator"], "--peer-fd", str(tap_b)]
            command += ["--device", device] if device else []
            fds.append(tap_b)
        self.log = open(os.path.join(self.dir, "log"), "w+")
        self.guest = start(command, fds=fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=self.log, text=True)
        line = self.guest.stdout.readline()
        if not line:
            raise LabError(f"the guest did not start: {self._read_log()}")
        self.pid = json.loads(line)["emulator_pid"] or self.emulator.pid
        for side in "ab":
            server = start([self._load(), "serve", PORT], net=self.namespaces[side].net,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.servers.append(server)
            server.stdout.readline()

    def _read_log(self):
        self.log.seek(0)
        return self.log.read().strip() or "it said nothing"

    def _load(self):
        return os.path.join(self.build, "tests/bench/lab-load")

    def _start_server(self, device, tap):
        paths = {"nic0": os.path.join(self.dir, "nic0")}
        command = [
            os.path.join(self.build, "swnic-system-x86_64"), "-machine", "vfio-user",
            "-netdev", f"tap,id=n0,fd={tap}",
            "-device", "virtio-net-pci,id=nic0,netdev=n0" + ("," + device if device else ""),
            "-object", f"vfio-user-server,id=s0,device=nic0,socket.type=unix,"
                       f"socket.path={paths['nic0']}",
        ]  # fmt: skip
        for name in ("qmp", *self.config.get("monitors", ())):
            paths[name] = os.path.join(self.dir, name)
            command += ["-qmp", f"unix:{paths[name]},server=on,wait=off"]
        self.emulator = start(command, fds=[tap])
        deadline = time.monotonic() + START_SECONDS
        while not all(os.path.exists(path) for path in paths.values()):
            if self.emulator.poll() is not None or time.monotonic() > deadline:
                raise LabError("the vfio-user server did not start: " + shlex.join(command))
            time.sleep(0.01)
        self.qmp = Qmp(paths["qmp"])

    def set(self, **properties):
        """Changes properties of the device while it runs (tx, x_txtimer, …)."""
        for name, value in properties.items():
            self.qmp.execute("qom-set", path="nic0", property=name.replace("_", "-"), value=value)

    def guest_stats(self):
        self.guest.stdin.write("stats\n")
        self.guest.stdin.flush()
        line = self.guest.stdout.readline()
        if not line:
            raise LabError(f"the guest has ended: {self._read_log()}")
        return json.loads(line)

    def device_stats(self):
        """Queue 0 of query-virtio-net-stats; None where the device is not ours."""
        if not self.qmp:
            return None
        return self.qmp.execute("query-virtio-net-stats")[0]["queues"][0]

    def run(self, loads):
        """Runs clients, each (side, arguments of lab-load), at the same time; their answers."""
        children = []
        for side, arguments in loads:
            children.append(start([self._load(), *map(str, arguments)],
                                  net=self.namespaces[side].net, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True))
        results = []
        try:
            for child, (_, arguments) in zip(children, loads):
                out, err = child.communicate(timeout=60)
                if child.returncode != 0:
                    raise LabError(f"lab-load {' '.join(map(str, arguments))}: {err.strip()}")
                results.append(json.loads(out))
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        return results

    def close(self):
        for server in self.servers:
            stop(server)
        stop(self.guest)
        if self.qmp:
            self.qmp.close()
        stop(self.emulator)
        for namespace in self.namespaces.values():
            namespace.close()
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
