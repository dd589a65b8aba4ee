#!/usr/bin/env python3
"""TCP and UDP through every kind of ring, policy and back end.

A cell boots one guest (`swnic-guest tcp echo --udp-echo`): a TCP stream and a UDP stream go to it
and come back at the same time, so that each direction carries both; TCP is compared by SHA-256,
every datagram by its sequence number and its bytes.  Datagrams travel in a window that fits every
queue on the way, so that none may be lost.  Cells are a pairwise cover of the axes (each two values
of two axes meet in some cell, which is checked), or with SWNIC_TEST_FULL=1 all combinations.
With a tap of 4 queues the guest uses 4 queue pairs and chooses the pair by the port it sends to;
four UDP streams then use all pairs, both ways.
"""
import hashlib
import itertools
import os
import socket
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib.network import configure, connect, enter_namespace_for_taps  # noqa: E402
from lib.tap import Failure, expect, run_all, skip_all  # noqa: E402
from lib.tcp_guest import TcpGuest  # noqa: E402

EMULATOR = os.environ["SWNIC_BINARY"]
IFNAME, HOST, PORT = "swnicmx", "10.9.0.1", 5001
PAIRS = {"tap-4-queues": 4}
UDP_PORT = 40000  # and the following; a multiple of the pairs
WAIT = 20
TCP_SIZE = {True: 8 << 20, False: 2 << 20}  # tap or not
DATAGRAMS, WINDOW = 2000, 16
HELLO = b"hello"
UDP_SIZES = (12, 64, 333, 1000, 1472)

AXES = (
    ("ring", ("split", "packed")),
    ("mrg_rxbuf", ("on", "off")),
    ("event_idx", ("on", "off")),
    ("offloads", ("on", "off")),
    ("tx", ("bh", "timer", "flush-first", "adaptive")),
    ("net", ("tap-vnet", "tap-plain", "tap-4-queues", "user")),
)

# --- cells ---

def pairs_of(cell):
    return {((i, cell[i]), (j, cell[j])) for i, j in itertools.combinations(range(len(cell)), 2)}


def all_cells():
    return list(itertools.product(*(values for _, values in AXES)))


def pairwise_cells():
    """Takes the combination with most new pairs, the first of equals, until none is left."""
    cells = [(cell, pairs_of(cell)) for cell in all_cells()]
    missing = set().union(*(pairs for _, pairs in cells))
    chosen = []
    while missing:
        cell, pairs = max(cells, key=lambda one: len(one[1] & missing))
        chosen.append(cell)
        missing -= pairs
    return chosen


def cover_test(cells):
    """Counts the pairs anew, from the axes."""
    number = 0
    for (i, (_, left)), (j, (_, right)) in itertools.combinations(enumerate(AXES), 2):
        for a, b in itertools.product(left, right):
            number += 1
            expect(any(cell[i] == a and cell[j] == b for cell in cells), f"no cell has {a} and {b}")
    return f"{len(cells)} cells of {len(all_cells())} cover {number} pairs"


# --- the network ---

def netdev_of(net):
    """-netdev, the guest's address, and where the host reaches the guest."""
    if net == "user":
        rules = ",".join(f"hostfwd={kind}:127.0.0.1:{PORT}-10.0.2.15:{PORT}"
                         for kind in ("tcp", "udp"))
        return f"user,{rules}", "10.0.2.15/24", "127.0.0.1"
    options = {"tap-vnet": ",vnet_hdr=on", "tap-plain": ",vnet_hdr=off",
               "tap-4-queues": ",vnet_hdr=on,queues=4"}[net]
    return (f"tap,ifname={IFNAME},script=no,downscript=no{options}", "10.9.0.2/24", "10.9.0.2")


# --- traffic ---

def contents(size):
    return bytes((i * 31 + (i >> 9) * 7 + (i >> 17)) & 255 for i in range(1 << 20)) * (size >> 20)


CONTENTS = {size: contents(size) for size in TCP_SIZE.values()}


def datagram(number):
    size = UDP_SIZES[number % len(UDP_SIZES)]
    text = b"%08d" % number
    return (text * (size // len(text) + 1))[:size]


def say_hello(s):
    """libslirp drops all but one datagram while it does not know the guest's address."""
    s.settimeout(0.1)
    for _ in range(WAIT * 10):
        s.send(HELLO)
        try:
            s.recv(65536)
            return
        except TimeoutError:
            pass
    raise Failure("the guest does not answer")


def udp_stream(address, port, datagrams, window):
    """Every datagram comes back once, in order and whole.  @port: ours, 0 for any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("0.0.0.0", port))
        s.connect((address, PORT))
        say_hello(s)
        s.settimeout(WAIT)
        sent = 0
        for number in range(datagrams):
            while sent < min(datagrams, number + window):
                s.send(datagram(sent))
                sent += 1
            try:
                while (data := s.recv(65536)) == HELLO:
                    pass
            except TimeoutError:
                raise Failure(f"datagram {number} did not come back") from None
            expect(data == datagram(number),
                   f"datagram {number} came back as {len(data)} bytes: {data[:16]!r}")


def both_streams(address, size, pairs):
    """TCP and UDP at the same time; the guest serves UDP until the TCP connection ends."""
    ports = [0] if pairs == 1 else [UDP_PORT + pair for pair in range(pairs)]
    errors = []

    def guarded(name, run):
        def body():
            try:
                run()
            except (Failure, OSError) as error:
                errors.append(f"{name}: {error}")
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        return thread

    digest, count = hashlib.sha256(), 0
    with connect(address, PORT, WAIT) as connection:
        udp = [guarded(f"UDP from port {port}", lambda port=port: udp_stream(
            address, port, DATAGRAMS // pairs, WINDOW // pairs)) for port in ports]

        def send():
            connection.sendall(CONTENTS[size])
            for stream in udp:
                stream.join(WAIT)
            connection.shutdown(socket.SHUT_WR)
        sender = guarded("TCP", send)
        while data := connection.recv(1 << 18):
            digest.update(data)
            count += len(data)
        sender.join(WAIT)
    expect(not errors, "; ".join(errors))
    expect(count == size and digest.digest() == hashlib.sha256(CONTENTS[size]).digest(),
           f"TCP: {count} of {size} bytes came back, {digest.hexdigest()}")


def run_cell(cell):
    ring, mrg_rxbuf, event_idx, offloads, tx, net = cell
    netdev, guest_address, address = netdev_of(net)
    pairs = PAIRS.get(net, 1)
    device = f"mrg_rxbuf={mrg_rxbuf},event_idx={event_idx},tx={tx}"
    device += ",packed=on" if ring == "packed" else ",packed=off"
    device += ",mq=on" if net == "tap-4-queues" else ""
    options = ["-a", guest_address, "-d", device, "-u", str(PORT), "--pairs", str(pairs)]
    options += ["--offloads"] if offloads == "on" else []
    options += ["--packed"] if ring == "packed" else []
    with TcpGuest(EMULATOR, netdev, *options, "echo", str(PORT)) as guest:
        if net != "user":
            configure(IFNAME, HOST)
        both_streams(address, TCP_SIZE[net != "user"], pairs)
        report = guest.finish()
    expect(report["packed"] == (ring == "packed"), f"rings: {report}")
    carried = report["pairs"]
    expect(len(carried) == pairs and
           all(min(pair.values()) >= DATAGRAMS // pairs for pair in carried), f"pairs: {report}")
    if offloads == "off":
        expect(report["tso-frames"] == 0 and report["large-frames"] == 0, f"offloads: {report}")


def main():
    if reason := enter_namespace_for_taps():
        skip_all(reason)
    cells = all_cells() if os.environ.get("SWNIC_TEST_FULL") == "1" else pairwise_cells()
    tests = [("every-pair-is-covered", lambda: cover_test(cells))]
    tests += [("/".join(f"{name}={value}" for (name, _), value in zip(AXES, cell)),
               lambda cell=cell: run_cell(cell)) for cell in cells]
    run_all(tests)


if __name__ == "__main__":
    main()
