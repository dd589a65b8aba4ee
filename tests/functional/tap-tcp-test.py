#!/usr/bin/env python3
"""TCP between a network namespace and the guest over a real tap, and wrong input for taps.

The test runs in a network namespace of its own.  The emulator makes the tap in it, this program
is the host's end of every connection (the kernel's TCP), and `swnic-guest tcp` the guest's (lwIP
over the device).  Contents are compared by SHA-256; counters tell that offloads were in use where
they should be, and not where they should not.
"""
import fcntl
import hashlib
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
from lib.network import configure, connect, enter_namespace_for_taps  # noqa: E402
from lib.tap import expect, run_all, skip_all  # noqa: E402
from lib.tcp_guest import TcpGuest  # noqa: E402

EMULATOR = os.environ["SWNIC_BINARY"]
IFNAME = "swnictap"
HOST, GUEST_ADDRESS, PORT = "10.9.0.1", "10.9.0.2", 5001
SIZE = 24 << 20
WAIT = 60

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_TAP, IFF_NO_PI = 1, 2, 0x1000


def open_interface(mode):
    """A tap or tun interface of our own; its fd."""
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"swnicown", mode | IFF_NO_PI))
    return fd


# --- TCP ---

def start_guest(netdev_options, offloads, *command):
    """Ready to be reached through the tap that its emulator made."""
    netdev = f"tap,ifname={IFNAME},script=no,downscript=no{netdev_options}"
    guest = TcpGuest(EMULATOR, netdev, *(["--offloads"] if offloads else []), *command)
    configure(IFNAME, HOST)
    return guest


def read_all(connection):
    digest, count = hashlib.sha256(), 0
    while True:
        data = connection.recv(1 << 18)
        if not data:
            return count, digest.hexdigest()
        digest.update(data)
        count += len(data)


CONTENTS = bytes((i * 31 + (i >> 9) * 7 + (i >> 17)) & 255 for i in range(1 << 20)) * (SIZE >> 20)
CONTENTS_SHA256 = hashlib.sha256(CONTENTS).hexdigest()


def host_to_guest(netdev, offloads):
    with start_guest(netdev, offloads, "sink", str(PORT)) as guest:
        with connect(GUEST_ADDRESS, PORT, WAIT) as connection:
            connection.sendall(CONTENTS)
        report = guest.finish()
    expect(report["received"] == SIZE and report["received-sha256"] == CONTENTS_SHA256,
           f"the guest received {report}")
    return report


def guest_to_host(netdev, offloads):
    with socket.create_server(("0.0.0.0", PORT)) as server:
        server.settimeout(WAIT)
        with start_guest(netdev, offloads, "source", f"{HOST}:{PORT}", str(SIZE)) as guest:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(WAIT)
                count, digest = read_all(connection)
            report = guest.finish()
    expect(count == SIZE and report["sent"] == SIZE and digest == report["sent-sha256"],
           f"the host received {count} bytes, {digest}; the guest sent {report}")
    return report


def both_ways(netdev, offloads):
    with start_guest(netdev, offloads, "echo", str(PORT)) as guest:
        with connect(GUEST_ADDRESS, PORT, WAIT) as connection:
            def send():
                connection.sendall(CONTENTS)
                connection.shutdown(socket.SHUT_WR)
            sender = threading.Thread(target=send, daemon=True)
            sender.start()
            count, digest = read_all(connection)
            sender.join(WAIT)
        report = guest.finish()
    expect(count == SIZE and digest == CONTENTS_SHA256, f"came back: {count} bytes, {digest}")
    return report


TRANSFERS = (("host-to-guest", host_to_guest, False, True),
             ("guest-to-host", guest_to_host, True, False),
             ("both-ways", both_ways, True, True))
VARIANTS = (("vnet-hdr-gso", ",vnet_hdr=on", True),
            ("vnet-hdr-no-gso", ",vnet_hdr=on", False),
            ("no-vnet-hdr", ",vnet_hdr=off", False))


def transfer_test(run, sends, receives, netdev, offloads):
    def test():
        begin = time.monotonic()
        report = run(netdev, offloads)
        seconds = time.monotonic() - begin
        expect((report["tso-frames"] > 0) == (offloads and sends),
               f"TSO frames sent: {report['tso-frames']}")
        expect((report["large-frames"] > 0) == (offloads and receives),
               f"frames beyond the MTU received: {report['large-frames']}")
        return f"{SIZE / seconds / 1e6:.0f} MB/s with start and end, {report['tso-frames']} TSO " \
               f"frames sent, {report['large-frames']} large ones received"
    return test


# --- scripts ---

def script_file(directory, name, text):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def scripts_are_run():
    with tempfile.TemporaryDirectory() as directory:
        up = script_file(directory, "up", f'echo "up $1" >>{directory}/log\n')
        down = script_file(directory, "down", f'echo "down $1" >>{directory}/log\n')
        process = subprocess.Popen(
            [EMULATOR, "-nodefaults", "-display", "none", "-qmp", "stdio", "-netdev",
             f"tap,id=n0,ifname={IFNAME},script={up},downscript={down}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        _, err = process.communicate(
            '{"execute": "qmp_capabilities"} {"execute": "quit"}', timeout=WAIT)
        with open(os.path.join(directory, "log"), encoding="ascii") as file:
            log = file.read()
    expect(process.returncode == 0, f"exit status {process.returncode}: {err}")
    expect(log == f"up {IFNAME}\ndown {IFNAME}\n", f"the scripts' log: {log}")


# --- wrong input ---

def refuse(arguments, *words, pass_fds=(), preexec=None):
    """One line on standard error with every word in it, exit status 1."""
    process = subprocess.run(
        [EMULATOR, "-nodefaults", "-display", "none", *arguments], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=WAIT, pass_fds=pass_fds, preexec_fn=preexec)
    lines = process.stderr.splitlines()
    expect(process.returncode == 1, f"exit status {process.returncode}: {process.stderr}")
    expect(len(lines) == 1, f"{len(lines)} lines: {process.stderr}")
    for word in words:
        expect(word in lines[0], f"'{word}' is not in: {lines[0]}")
    return lines[0]


def refuse_tap(options, *words, **more):
    return refuse(["-netdev", f"tap,id=n0,{options}"], *words, **more)


def refuse_device(options, *words):
    return refuse(["-netdev", f"tap,id=n0,ifname={IFNAME},script=no,downscript=no",
                   "-device", f"virtio-net-pci,netdev=n0,{options}"], *words)


def become_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def no_permission():
    # Through its directory's fd, since the build tree may be root's alone.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        program = os.path.join(directory, os.path.basename(EMULATOR))
        subprocess.run(["cp", EMULATOR, program], check=True)
        os.chmod(program, 0o755)
        process = subprocess.run(
            [program, "-nodefaults", "-display", "none", "-netdev",
             f"tap,id=n0,ifname={IFNAME},script=no,downscript=no"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=WAIT, preexec_fn=become_nobody, cwd="/")
    lines = process.stderr.splitlines()
    expect(process.returncode == 1 and len(lines) == 1, process.stderr)
    expect("permission" in lines[0] and "root" in lines[0], lines[0])
    return lines[0]


def busy():
    fd = open_interface(IFF_TAP)
    try:
        return refuse_tap("ifname=swnicown,script=no,downscript=no", "swnicown", "busy")
    finally:
        os.close(fd)


def wrong_fd():
    reader, writer = os.pipe()
    tun = open_interface(IFF_TUN)
    left, right = socket.socketpair()
    with left, right:
        fds = (reader, tun, left.fileno())
        texts = [refuse_tap(f"fd={reader}", f"fd={reader}", "not a tap", pass_fds=fds),
                 refuse_tap(f"fd={left.fileno()}", "not a tap", pass_fds=fds),
                 refuse_tap(f"fd={tun}", f"fd={tun}", "IFF_TAP", pass_fds=fds)]
    for fd in (reader, writer, tun):
        os.close(fd)
    refuse_tap("fd=999", "fd=999")
    refuse_tap("fd=-1", "fd")
    refuse_tap("fd=x1", "x1")
    return texts[0]


def failing_script():
    with tempfile.TemporaryDirectory() as directory:
        script = script_file(directory, "up", "echo no bridge here\necho br0 is missing >&2\n"
                                              "exit 3\n")
        text = refuse_tap(f"ifname={IFNAME},script={script},downscript=no", script,
                          "no bridge here", "br0 is missing", "3")
        refuse_tap(f"ifname={IFNAME},script={directory}/none,downscript=no", f"{directory}/none")
    return text


WRONG = (
    ("no-permission", no_permission),
    ("not-a-tap", lambda: refuse_tap("ifname=lo,script=no,downscript=no", "'lo'", "not a tap")),
    ("busy", busy),
    ("fd-of-the-wrong-kind", wrong_fd),
    ("script-fails", failing_script),
    ("ifname-too-long",
     lambda: refuse_tap("ifname=abcdefghijklmnop,script=no,downscript=no", "15")),
    ("ifname-with-fd", lambda: refuse_tap("fd=0,ifname=x", "ifname=", "fd=")),
    ("vnet-hdr-maybe", lambda: refuse_tap(f"ifname={IFNAME},vnet_hdr=maybe", "vnet_hdr", "on")),
    ("sndbuf-text", lambda: refuse_tap(f"ifname={IFNAME},sndbuf=big", "sndbuf")),
    ("unknown-option", lambda: refuse_tap(f"ifname={IFNAME},colour=red", "colour")),
    ("tx-foo", lambda: refuse_device("tx=foo", "tx", "foo", "bh", "timer", "flush-first")),
    ("x-txburst-0", lambda: refuse_device("x-txburst=0", "x-txburst", "1")),
    ("x-txburst-negative", lambda: refuse_device("x-txburst=-5", "x-txburst")),
    ("rx-queue-size-small",
     lambda: refuse_device("rx_queue_size=32", "rx_queue_size", "32", "64", "1024")),
    ("rx-queue-size-large",
     lambda: refuse_device("rx_queue_size=2048", "rx_queue_size", "64", "1024")),
    ("tx-queue-size-odd",
     lambda: refuse_device("tx_queue_size=100", "tx_queue_size", "100", "power of")),
    ("tx-queue-size-0", lambda: refuse_device("tx_queue_size=0", "tx_queue_size", "64", "1024")),
)


def all_tests():
    for variant, netdev, offloads in VARIANTS:
        for name, run, sends, receives in TRANSFERS:
            yield f"tcp/{variant}/{name}", transfer_test(run, sends, receives, netdev, offloads)
    yield "scripts-are-run-with-the-interface", scripts_are_run
    for name, run in WRONG:
        yield f"wrong/{name}", run


if __name__ == "__main__":
    if why := enter_namespace_for_taps():
        skip_all(why)
    run_all(list(all_tests()))
