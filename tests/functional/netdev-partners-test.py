#!/usr/bin/env python3
"""Back ends against other people's: QEMU's own netdevs (Debian 12's and forky's) and passt.

With QEMU there is no guest at all.  Both emulators have a hub with two ports: a socket of ours,
and the back end under test, which is connected to the other emulator's.  What goes in at one of
our sockets must come out at the other, whole and in order.

    our socket -- hub -- stream, dgram, … ===== stream, dgram, … -- hub -- our socket
              our emulator                                    QEMU

passt plays the network of `swnic-guest tcp` over stream: TCP both ways, compared by SHA-256.
"""
import os
import random
import select
import socket
import struct
import subprocess
import tempfile
import time

from lib import tap as tap_lib
from lib import tcp_guest
from lib.debian_roots import qemu_forky
from lib.network import die_with_parent, enter_namespace, passt_command
from lib.tap import Failure, expect

EMULATOR = os.environ["SWNIC_BINARY"]
WAIT = 30


# --- emulators with a hub ---

class Emulator:
    """@command with a hub between a socket of ours and @netdev; `socket` is our end."""

    def __init__(self, command, netdev, log):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        args = command + ["-M", "none", "-nodefaults", "-display", "none", "-monitor", "none",
                          "-netdev", f"socket,id=s,fd={theirs.fileno()}",
                          "-netdev", "hubport,id=h0,hubid=0,netdev=s",
                          "-netdev", f"{netdev},id=t",
                          "-netdev", "hubport,id=h1,hubid=0,netdev=t"]
        self.log = log
        self.process = subprocess.Popen(args, pass_fds=[theirs.fileno()], stdout=log, stderr=log)
        theirs.close()
        self.inbox = b""

    def send(self, frame):
        self.socket.sendall(struct.pack(">I", len(frame)) + frame)

    def receive(self, seconds=WAIT):
        """The next frame; None if there is none in time."""
        deadline = time.monotonic() + seconds
        while True:
            if len(self.inbox) >= 4:
                size, = struct.unpack(">I", self.inbox[:4])
                if len(self.inbox) >= 4 + size:
                    frame, self.inbox = self.inbox[4:4 + size], self.inbox[4 + size:]
                    return frame
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return None
            data = self.socket.recv(1 << 20)
            if not data:
                self.log.seek(0)
                raise Failure(f"an emulator is gone: {self.log.read().decode()[-500:]}")
            self.inbox += data

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket.close()


def wait_for_path(a, b):
    """Until a frame passes from @a to @b: connections are made meanwhile."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        a.send(b"\xff" * 6 + b"hello" * 12)
        if b.receive(0.2) is not None:
            while b.receive(0.3) is not None:
                pass
            return
    raise Failure("no frame passes")


def exchange(a, b, largest, echoes):
    """Frames both ways: large ones alone, small ones a few at once.  QEMU's hub loses order, or
    itself, when the socket behind it is full.  @echoes: a sender meets its own frames again."""
    rng = random.Random(7)
    for turn in range(90):
        if turn % 3 or echoes:
            batch = [rng.randbytes(rng.choice((60, 1514, largest, rng.randrange(60, largest))))]
        else:
            batch = [rng.randbytes(rng.choice((60, 61, 400, 1400))) for _ in range(4)]
        for sender, receiver in ((a, b), (b, a)):
            for frame in batch:
                sender.send(frame)
            for frame in batch:
                got = receiver.receive()
                while echoes and got is not None and got != frame:
                    got = receiver.receive()
                expect(got == frame, f"{len(frame)} bytes sent, "
                                     f"{'nothing' if got is None else len(got)} came")
        if echoes:
            while a.receive(0.005) or b.receive(0.005):
                pass


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pair_test(qemu, ours, theirs, largest, ours_first=True, echoes=False):
    def run():
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
            names = {"dir": folder, "p": free_port(socket.SOCK_STREAM),
                     "q": free_port(socket.SOCK_DGRAM), "r": free_port(socket.SOCK_DGRAM)}
            start = [([EMULATOR], ours), (qemu() + ["-accel", "tcg"], theirs)]
            started = []
            try:
                for command, netdev in start if ours_first else reversed(start):
                    started.append(Emulator(command, netdev.format(**names), log))
                    if len(started) == 1:
                        time.sleep(0.7)  # a server listens before its client comes
                a, b = started
                wait_for_path(a, b)
                wait_for_path(b, a)
                exchange(a, b, largest, echoes)
            finally:
                for emulator in started:
                    emulator.stop()
    return run


UNIX = "addr.type=unix,addr.path={dir}/s"
INET = "addr.type=inet,addr.host=127.0.0.1,addr.port={p}"
DGRAM_UNIX = "dgram,local.type=unix,local.path={{dir}}/{0},remote.type=unix,remote.path={{dir}}/{1}"
DGRAM_INET = ("dgram,local.type=inet,local.host=127.0.0.1,local.port={{{0}}},"
              "remote.type=inet,remote.host=127.0.0.1,remote.port={{{1}}}")
MCAST = ("dgram,remote.type=inet,remote.host=230.0.0.1,remote.port={q},"
         "local.type=inet,local.host=127.0.0.1,local.port=0")
OLD_MCAST = "socket,mcast=230.0.0.1:{q},localaddr=127.0.0.1"
L2TP = ("l2tpv3,src=127.0.0.1,dst=127.0.0.1,udp=on,srcport={{{0}}},dstport={{{1}}},"
        "txsession={2},rxsession={3},cookie64=on,txcookie=17,rxcookie=18,counter=on")
BIG, UDP = 65000, 1400
PAIRS = (
    # name, ours, QEMU's, longest frame, ours starts first, echoes
    ("stream/unix/server", "stream,server=on," + UNIX, "stream,server=off," + UNIX, BIG, True),
    ("stream/unix/client", "stream,reconnect-ms=50," + UNIX, "stream,server=on," + UNIX, BIG, True),
    ("stream/inet/server", "stream,server=on," + INET, "stream,server=off," + INET, BIG, True),
    ("stream/inet/client", "stream," + INET, "stream,server=on," + INET, BIG, False),
    ("dgram/unix", DGRAM_UNIX.format("a", "b"), DGRAM_UNIX.format("b", "a"), BIG, True),
    ("dgram/inet", DGRAM_INET.format("q", "r"), DGRAM_INET.format("r", "q"), UDP, True),
    ("dgram/mcast", MCAST, MCAST, UDP, True, True),
    ("socket/listen", "socket,listen=127.0.0.1:{p}", "socket,connect=127.0.0.1:{p}", BIG, True),
    ("socket/connect", "socket,connect=127.0.0.1:{p}", "socket,listen=127.0.0.1:{p}", BIG, False),
    ("socket/udp", "socket,udp=127.0.0.1:{q},localaddr=127.0.0.1:{r}",
     "socket,udp=127.0.0.1:{r},localaddr=127.0.0.1:{q}", UDP, True),
    ("socket/mcast", OLD_MCAST, OLD_MCAST, UDP, True, True),
    ("l2tpv3", L2TP.format("q", "r", 1, 2), L2TP.format("r", "q", 2, 1)
     .replace("txcookie=17,rxcookie=18", "txcookie=18,rxcookie=17"), UDP, True),
)


# --- passt ---

class Passt:
    def __init__(self, folder):
        os.chmod(folder, 0o777)  # passt gives up root
        self.path = f"{folder}/passt"
        self.log = open(f"{folder}/passt.log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(passt_command("--socket", self.path), stdout=self.log,
                                        stderr=self.log, preexec_fn=die_with_parent)
        deadline = time.monotonic() + WAIT
        while not os.path.exists(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                raise Failure("passt: " + self.log.read())
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def netdev_of(passt):
    return f"stream,reconnect-ms=100,addr.type=unix,addr.path={passt.path}"


def passt_from_guest():
    with tempfile.TemporaryDirectory() as folder, Passt(folder) as passt:
        tcp_guest.from_guest(EMULATOR, netdev_of(passt), "10.9.0.1", 6001)


def passt_to_guest():
    with tempfile.TemporaryDirectory() as folder, Passt(folder) as passt:
        tcp_guest.to_guest(EMULATOR, netdev_of(passt), ("127.0.0.1", 5001))


def all_tests():
    qemus = (("qemu-7.2", lambda: ["qemu-system-x86_64"]),
             ("qemu-forky", qemu_forky))
    for qemu_name, qemu in qemus:
        for name, ours, theirs, *rest in PAIRS:
            yield f"{qemu_name}/{name}", pair_test(qemu, ours, theirs, *rest)
    yield "passt/from-guest", passt_from_guest
    yield "passt/to-guest", passt_to_guest


def main(tap):
    enter_namespace()
    for name, test in tap_lib.selected(all_tests()):
        tap.run(name, test)


if __name__ == "__main__":
    tap_lib.main(main)
