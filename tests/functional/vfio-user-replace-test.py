#!/usr/bin/env python3
"""A vfio-user server is replaced under a guest whose TCP connection to the host's kernel goes on.

`swnic-guest tcp echo` drives the device; this program sends and compares what comes back.  At marks
along the way the server saves its state to a file and quits, and a new process with the file, the
same socket and the same tap goes on, each time with another transmit policy.  A tap that is opened
by name drops packets while no process has it; one that is handed on (fd=) does not.
"""
import fcntl
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib import tap as points  # noqa: E402
from lib.network import die_with_parent, enter_namespace, make_tap  # noqa: E402
from lib.swnic import Swnic  # noqa: E402
from lib.tap import Failure, expect  # noqa: E402

GUEST = os.environ["SWNIC_GUEST"]
IFNAME, HOST, ADDRESS, PORT = "swnicrepl", "10.9.0.1", "10.9.0.2", 5001
SIZE = 192 << 20
REPLACEMENTS = 6
TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 2, 0x1000, 0x4000
POLICIES = ("tx=bh", "tx=timer", "tx=flush-first", "tx=adaptive")
WAIT = 60


class Server:
    """The server of the moment."""

    def __init__(self, folder, device, tap_fd=None):
        self.folder, self.device, self.number = folder, device, 0
        self.fds = () if tap_fd is None else (tap_fd,)
        self.tap = f"fd={tap_fd}" if self.fds else f"ifname={IFNAME},script=no,downscript=no"
        self.emulator = self.start()

    def start(self, *more):
        device = ",".join(filter(None, (POLICIES[self.number % len(POLICIES)], self.device)))
        self.number += 1
        return Swnic().start(
            "-machine", "vfio-user",
            "-netdev", f"tap,id=n0,{self.tap}",
            "-device", f"virtio-net-pci,netdev=n0,id=nic0,{device}",
            "-object", "vfio-user-server,id=s0,device=nic0,socket.type=unix,"
                       f"socket.path={self.folder}/nic0.sock", *more, pass_fds=self.fds)

    def quit(self):
        self.emulator.__exit__(None)

    def replace(self):
        state = f"file:{self.folder}/state"
        self.emulator.qmp("migrate", uri=state)
        deadline = time.monotonic() + WAIT
        while (status := self.emulator.qmp("query-migrate")["status"]) != "completed":
            expect(status != "failed" and time.monotonic() < deadline, f"migration: {status}")
            time.sleep(0.001)
        self.quit()
        self.emulator = self.start("-incoming", state)


class Echo:
    """Sends and compares; `back` is how much has come back."""

    def __init__(self):
        self.contents = os.urandom(1 << 20) * (SIZE >> 20)
        self.back, self.pause, self.digest = 0, 0, hashlib.sha256()
        self.connection = self.connect()
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.send, self.receive)]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def connect():
        deadline = time.monotonic() + WAIT
        while True:
            try:
                return socket.create_connection((ADDRESS, PORT), timeout=WAIT)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def send(self):
        self.connection.sendall(self.contents)
        self.connection.shutdown(socket.SHUT_WR)

    def receive(self):
        last = time.monotonic()
        while data := self.connection.recv(1 << 18):
            now = time.monotonic()
            self.pause, last = max(self.pause, now - last), now
            self.digest.update(data)
            self.back += len(data)

    def wait(self, amount):
        deadline = time.monotonic() + WAIT
        while self.back < amount:
            expect(time.monotonic() < deadline, f"{self.back} of {amount} bytes came back")
            time.sleep(0.001)

    def finish(self):
        for thread in self.threads:
            thread.join(WAIT)
            expect(not thread.is_alive(), f"{self.back} of {SIZE} bytes came back")
        self.connection.close()
        expect(self.back == SIZE and self.digest.digest() == hashlib.sha256(self.contents).digest(),
               f"{self.back} bytes came back, with other contents")


def run_guest(folder, *options):
    guest = subprocess.Popen(
        [GUEST, "tcp", "--vfio-user", f"{folder}/nic0.sock", "--reconnect-ms", "20000", *options,
         "echo", str(PORT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent)
    line = guest.stdout.readline()
    if line != "ready\n":
        raise Failure(f"swnic-guest: {line}{guest.communicate()[1]}")
    return guest


def open_tap():
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", IFNAME.encode(),
                                           IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    return fd


def replace_under_tcp(tap, device, *options, tap_fd=None):
    with tempfile.TemporaryDirectory(prefix="swnic-") as folder:
        server = Server(folder, device, tap_fd)
        guest = None
        try:
            guest = run_guest(folder, *options)
            echo = Echo()
            for i in range(REPLACEMENTS):
                echo.wait((i + 1) * SIZE // (REPLACEMENTS + 2))
                server.replace()
            echo.finish()
            out, err = guest.communicate(timeout=WAIT)
            expect(guest.returncode == 0 and not err, f"swnic-guest: {err}")
            report = json.loads(out)
            expect(report["reconnects"] == REPLACEMENTS, f"the guest's report: {report}")
            tap.note(f"{SIZE >> 20} MiB each way, {REPLACEMENTS + 1} servers, the longest pause "
                     f"{echo.pause * 1000:.0f} ms, {report['tso-frames']} TSO frames sent")
        finally:
            if guest and guest.poll() is None:
                guest.kill()
                guest.communicate()
            server.quit()


def replace_with_tap_fd(tap):
    fd = open_tap()
    try:
        replace_under_tcp(tap, "", "--offloads", tap_fd=fd)
    finally:
        os.close(fd)


def test(tap):
    make_tap(IFNAME, HOST)
    tap.run("split", replace_under_tcp, tap, "")
    tap.run("split-offloads", replace_under_tcp, tap, "", "--offloads")
    tap.run("tap-handed-on", replace_with_tap_fd, tap)
    tap.run("packed-offloads", replace_under_tcp, tap, "packed=on", "--offloads", "--packed")


def main():
    reason = "root is needed for taps" if os.geteuid() != 0 else \
        "there is no /dev/net/tun" if not os.path.exists("/dev/net/tun") else None
    if reason:
        print(f"1..0 # SKIP {reason}")
        return
    enter_namespace()
    points.main(test)


if __name__ == "__main__":
    main()
