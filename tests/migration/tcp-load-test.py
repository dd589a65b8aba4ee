#!/usr/bin/env python3
"""TCP at full speed through a guest that moves from process to process.

`swnic-guest tcp echo --migrate N` has the guest; its emulators take turns on two taps of one
bridge, as two hosts' would be on one network.  A TCP stream goes in and comes back all the while
and is compared byte by byte; a stream of numbered datagrams beside it shows that none comes twice,
and how long the guest is silent in each migration.  Transmit policies alternate, RAM is handed over
(x-ignore-shared) in every other round and copied in the rest.

SWNIC_TEST_FULL=1: 200 rounds of each, else 40.
"""
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "functional"))
from lib.network import configure, connect, enter_namespace_for_taps, run  # noqa: E402
from lib.tap import expect, run_all, skip_all  # noqa: E402
from lib.tcp_guest import TcpGuest  # noqa: E402

EMULATOR = os.environ["SWNIC_BINARY"]
ROUNDS = 200 if os.environ.get("SWNIC_TEST_FULL") == "1" else 40
HOST, ADDRESS, PORT, UDP_PORT = "10.9.0.1", "10.9.0.2", 5001, 5002
BRIDGE, TAPS = "swnicbr", ("swnicl0", "swnicl1")
WAIT = 30
PIECE = 1 << 16
STEP = 0.001  # seconds from datagram to datagram

CASES = (
    ("split", "bh,timer,flush-first", []),
    ("packed", "bh,timer,flush-first", ["--packed"]),
    ("split-offloads", "bh,timer,flush-first", ["--offloads"]),
    ("split-adaptive", "adaptive", []),
    ("packed-adaptive", "adaptive", ["--packed", "--offloads"]),
)


# --- the network ---

def make_bridge():
    run("ip", "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
    configure(BRIDGE, HOST)
    for tap in TAPS:
        run("ip", "tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr")
        run("ip", "link", "set", tap, "master", BRIDGE, "up")


# --- traffic ---

def piece(number):
    """64 KiB that differ from every other piece's."""
    return struct.pack("<Q", number) * (PIECE // 8)


class TcpStream(threading.Thread):
    """Sends pieces until stopped, reads them back, compares."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = connect(ADDRESS, PORT, WAIT)
        self.stopping = threading.Event()
        self.sent = self.received = 0
        self.error = None
        self.sender = threading.Thread(target=self.send, daemon=True)

    def send(self):
        try:
            while not self.stopping.is_set():
                self.socket.sendall(piece(self.sent))
                self.sent += 1
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.error = self.error or f"TCP, sending piece {self.sent}: {error}"

    def run(self):
        self.sender.start()
        waiting = b""
        try:
            while data := self.socket.recv(1 << 18):
                waiting += data
                while len(waiting) >= PIECE:
                    if waiting[:PIECE] != piece(self.received):
                        self.error = f"TCP: piece {self.received} came back changed"
                        return
                    waiting = waiting[PIECE:]
                    self.received += 1
        except OSError as error:
            self.error = self.error or f"TCP, after {self.received} pieces: {error}"
        if waiting:
            self.error = self.error or f"TCP: {len(waiting)} bytes too many"

    def finish(self):
        self.stopping.set()
        self.join(WAIT)
        expect(not self.is_alive(), f"TCP: stuck after {self.received} of {self.sent} pieces")
        expect(not self.error, self.error)
        expect(self.received == self.sent, f"TCP: {self.received} of {self.sent} pieces came back")
        self.socket.close()


class Datagrams(threading.Thread):
    """Numbered datagrams and their echoes: which came twice, and the longest silences."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((ADDRESS, UDP_PORT))
        self.socket.settimeout(STEP)
        self.stopping = threading.Event()
        self.sent, self.seen, self.twice, self.gaps = 0, set(), 0, []

    def run(self):
        last, due = None, time.monotonic()
        while not self.stopping.is_set():
            now = time.monotonic()
            if now >= due:
                try:
                    self.socket.send(struct.pack("<Q", self.sent))
                    self.sent += 1
                except OSError:
                    pass  # the bridge's queue is full of the stream
                due = max(due + STEP, now)
            try:
                number, = struct.unpack("<Q", self.socket.recv(64))
            except (TimeoutError, ConnectionRefusedError):
                continue
            now = time.monotonic()
            self.twice += number in self.seen
            self.seen.add(number)
            if last is not None:
                self.gaps.append(now - last)
            last = now

    def finish(self):
        self.stopping.set()
        self.join(WAIT)
        self.socket.close()
        expect(self.twice == 0, f"{self.twice} of {len(self.seen)} datagrams came back twice")


# --- the test ---

def run_case(policies, more):
    netdevs = [f"tap,ifname={tap},script=no,downscript=no,vnet_hdr=on" for tap in TAPS]
    options = ["-a", f"{ADDRESS}/24", "-d", "packed=on" if "--packed" in more else "packed=off",
               "--timeout", "600", "--migrate", str(ROUNDS), "--migrate-netdev", netdevs[1],
               "--migrate-tx", policies, "-u", str(UDP_PORT)]
    with TcpGuest(EMULATOR, netdevs[0], *options, *more, "echo", str(PORT)) as guest:
        begin = time.monotonic()
        stream, datagrams = TcpStream(), Datagrams()
        stream.start()
        datagrams.start()
        line = guest.line()
        expect(line == "moved", f"swnic-guest: {line}")
        seconds = time.monotonic() - begin
        datagrams.finish()
        stream.finish()
        report = guest.finish()
    expect(report["packed"] == ("--packed" in more), f"rings: {report['packed']}")
    expect(report["received"] == report["sent"] == stream.sent * PIECE,
           f"the guest received {report['received']} and sent {report['sent']} bytes of "
           f"{stream.sent * PIECE}")
    expect(stream.received * PIECE >= ROUNDS << 20,
           f"only {stream.received} pieces in {ROUNDS} rounds")
    handed, copied = report["pauses-ms-handed-over"], report["pauses-ms-copied"]
    expect(len(handed) + len(copied) == ROUNDS, f"{len(handed)} + {len(copied)} rounds")
    silences = sorted(datagrams.gaps)[-ROUNDS:]
    return (f"{ROUNDS} migrations in {seconds:.1f} s, {stream.sent * PIECE >> 20} MiB each way, "
            f"{datagrams.sent - len(datagrams.seen)} of {datagrams.sent} datagrams lost; guest "
            f"stands still {statistics.median(handed):.1f} ms with RAM handed over, "
            f"{statistics.median(copied):.1f} ms copied (medians); median of the {ROUNDS} longest "
            f"silences {statistics.median(silences) * 1000:.1f} ms")


if __name__ == "__main__":
    if why := enter_namespace_for_taps():
        skip_all(why)
    try:
        make_bridge()
    except subprocess.CalledProcessError as error:
        skip_all(f"the kernel has no bridge: {error}")
    run_all([(name, lambda case=case: run_case(*case)) for name, *case in CASES])
