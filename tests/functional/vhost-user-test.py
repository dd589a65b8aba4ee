#!/usr/bin/env python3
"""vhost-user with other people's back ends: DPDK's testpmd, and passt from Debian forky.

`swnic-guest tcp` is the guest; its packets leave through the rings that the back end was handed.

    guest -- virtio-net -- testpmd: net_vhost -- io forwarding -- net_tap -- the kernel's TCP
    guest -- virtio-net -- passt -- the kernel's TCP on the loopback interface

TCP both ways, compared by SHA-256; and the back end is ended and started again underneath.
"""
import os
import shutil
import subprocess
import tempfile
import time

from lib import tap as tap_lib
from lib import tcp_guest
from lib.network import die_with_parent, enter_namespace, passt_command, run
from lib.tap import Failure, expect

EMULATOR = os.environ["SWNIC_BINARY"]
WAIT = 30


def wait_until(condition, what):
    deadline = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(what())
        time.sleep(0.02)


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
                                        stderr=self.log, preexec_fn=die_with_parent)
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
        run("ip", "address", "add", f"{self.host}/24", "dev", self.ifname)
        run("ip", "link", "set", self.ifname, "up")


class Passt(BackEnd):
    """The guest's gateway is this namespace's loopback interface."""
    host, port = "10.9.0.1", 6001
    inside = ("127.0.0.1", 5001)

    def command(self):
        return passt_command("--vhost-user", "--socket", self.path)


# --- transfers ---

def guest_of(back_end):
    """Emulator and netdev of swnic-guest."""
    return (f"{EMULATOR} -chardev socket,id=c0,path={back_end.path},reconnect-ms=50",
            "vhost-user,chardev=c0")


def from_guest(back_end, in_the_middle=lambda: None):
    tcp_guest.from_guest(*guest_of(back_end), back_end.host, back_end.port, in_the_middle)


def to_guest(back_end):
    tcp_guest.to_guest(*guest_of(back_end), back_end.inside)


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


def with_back_end(make, test):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # passt gives up root
        with make(folder) as back_end:
            test(back_end)


def main(tap):
    expect(shutil.which("dpdk-testpmd"), "dpdk-testpmd is missing: install dpdk-dev")
    enter_namespace()
    for name, make, test in tap_lib.selected(TESTS):
        tap.run(name, with_back_end, make, test)


if __name__ == "__main__":
    tap_lib.main(main)
