#!/usr/bin/env python3
"""vhost-user with other people's back ends: DPDK's testpmd, and passt from Debian forky.

`swnic-guest tcp` is the guest; its packets leave through the rings that the back end was handed.

    guest -- virtio-net -- testpmd: net_vhost -- io forwarding -- net_tap -- the kernel's TCP
    guest -- virtio-net -- passt -- the kernel's TCP on the loopback interface

TCP both ways, compared by SHA-256; and the back end is ended and started again underneath.
"""
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
import debian_roots

EMULATOR = os.environ["SWNIC_BINARY"]
GUEST = os.environ["SWNIC_GUEST"]
WAIT = 30
SIZE = 8 << 20
CONTENTS = bytes((i * 31 + (i >> 9) * 7) & 255 for i in range(1 << 20)) * (SIZE >> 20)
SHA256 = hashlib.sha256(CONTENTS).hexdigest()
CLONE_NEWNET = 0x40000000
SIOCSIFADDR, SIOCSIFNETMASK, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8916, 0x891C, 0x8913, 0x8914, 1


class Failure(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failure(text)


def wait_until(condition, what):
    deadline = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(what())
        time.sleep(0.02)


# --- the namespace ---

def set_up(ifname, address=None):
    """Interface @ifname up, with @address/24."""
    name = ifname.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        if address:
            for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0")):
                sockaddr = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
                fcntl.ioctl(s, request, struct.pack("16s16s", name, sockaddr))
        flags, = struct.unpack("16xH14x", fcntl.ioctl(s, SIOCGIFFLAGS, struct.pack("32s", name)))
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14x", name, flags | IFF_UP))


def enter_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise Failure(f"a network namespace (root): {os.strerror(ctypes.get_errno())}")
    set_up("lo")


# --- back ends ---

class BackEnd:
    """A process with a vhost-user socket at self.path, ended with the block."""

    def __init__(self, folder):
        self.path = f"{folder}/vhost-user"
        self.log = open(f"{folder}/log", "w+", encoding="utf-8", errors="replace")
        self.process = None
        self.start()

    def command(self):
        raise NotImplementedError

    def started(self):
        pass

    def said(self):
        self.log.seek(0)
        return " ".join(self.command()) + ": " + self.log.read()[-2000:]

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=self.log,
                                        stderr=self.log)
        wait_until(lambda: os.path.exists(self.path) or self.process.poll() is not None, self.said)
        expect(self.process.poll() is None, self.said())
        self.started()

    def end(self):
        self.process.terminate()
        try:
            self.process.communicate(timeout=WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.log.close()


class Testpmd(BackEnd):
    """Two ports that forward to each other: vhost-user, and a tap with the host's address."""
    host, port = "10.9.0.1", 5001
    inside = ("10.9.0.2", 5001)
    ifname = "dpdktap"

    def command(self):
        return ["dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry",
                "-l", "0-1", f"--file-prefix=swnic{os.getpid()}",
                "--vdev", f"net_vhost0,iface={self.path},queues=1",
                "--vdev", f"net_tap0,iface={self.ifname},mac=fixed",
                "--", "--auto-start", "--total-num-mbufs=8192", "-i"]

    def started(self):
        wait_until(lambda: os.path.exists(f"/proc/self/net/dev_snmp6/{self.ifname}") or
                   self.ifname in open("/proc/self/net/dev", encoding="ascii").read(), self.said)
        set_up(self.ifname, self.host)


class Passt(BackEnd):
    """The guest's gateway is this namespace's loopback interface."""
    host, port = "10.9.0.1", 6001
    inside = ("127.0.0.1", 5001)

    def command(self):
        run = debian_roots.PROJECT / "scripts" / "run-in-root.sh"
        return [str(run), str(debian_roots.debian_root("forky")), "passt", "-f", "--vhost-user",
                "--socket", self.path, "-4", "-a", "10.9.0.2", "-n", "24", "-g", "10.9.0.1",
                "-t", "5001"]


# --- transfers ---

class Guest:
    def __init__(self, back_end, *command):
        emulator = f"{EMULATOR} -chardev socket,id=c0,path={back_end.path},reconnect-ms=50"
        self.process = subprocess.Popen(
            [GUEST, "tcp", "-e", emulator, "-n", "vhost-user,chardev=c0", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise Failure(f"swnic-guest: {line}{self.process.communicate()[1]}")

    def finish(self):
        out, err = self.process.communicate(timeout=WAIT)
        expect(self.process.returncode == 0, f"swnic-guest: {err}")
        return json.loads(out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate()


def from_guest(back_end, in_the_middle=lambda: None):
    with socket.create_server(("0.0.0.0", back_end.port)) as server:
        server.settimeout(WAIT)
        with Guest(back_end, "source", f"{back_end.host}:{back_end.port}", str(SIZE)) as guest:
            digest, count = hashlib.sha256(), 0
            connection, _ = server.accept()
            with connection:
                connection.settimeout(WAIT)
                while data := connection.recv(1 << 18):
                    digest.update(data)
                    if count < SIZE // 2 <= count + len(data):
                        in_the_middle()
                    count += len(data)
            report = guest.finish()
    expect(count == SIZE and digest.hexdigest() == report["sent-sha256"],
           f"{count} bytes came; the guest sent {report}")


def to_guest(back_end):
    with Guest(back_end, "sink", "5001") as guest:
        # Who answers before the guest does, resets what it cannot deliver yet.
        deadline = time.monotonic() + WAIT
        while True:
            try:
                with socket.create_connection(back_end.inside, timeout=WAIT) as connection:
                    connection.sendall(CONTENTS)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        report = guest.finish()
    expect(report["received-sha256"] == SHA256, f"the guest received {report}")


def restarted(back_end):
    """The switch is restarted under an open connection, which goes on."""
    def restart():
        back_end.end()
        back_end.start()
    from_guest(back_end, restart)


TESTS = (("testpmd/from-guest", Testpmd, from_guest),
         ("testpmd/to-guest", Testpmd, to_guest),
         ("testpmd/restarted", Testpmd, restarted),
         ("passt/from-guest", Passt, from_guest),
         ("passt/to-guest", Passt, to_guest))


def main():
    tests = [test for test in TESTS if all(word in test[0] for word in sys.argv[1:])]
    failed = 0
    expect(shutil.which("dpdk-testpmd"), "dpdk-testpmd is missing: install dpdk-dev")
    enter_namespace()
    print(f"1..{len(tests)}")
    for number, (name, make, run) in enumerate(tests, 1):
        try:
            with tempfile.TemporaryDirectory() as folder:
                os.chmod(folder, 0o777)  # passt gives up root
                with make(folder) as back_end:
                    run(back_end)
            print(f"ok {number} {name}")
        except (Failure, OSError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"not ok {number} {name}")
            print("# " + str(error).strip().replace("\n", "\n# "))
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
