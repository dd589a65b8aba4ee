#!/usr/bin/env python3
"""Shows a real Linux guest on our device: `make run-linux`, ARGS='--interactive' for a shell.

Debian's QEMU and a Debian kernel are unpacked into build/roots/ (once, 300 MB), our emulator serves
a virtio-net device over vfio-user, and the guest in QEMU drives it: DHCP, ping, a download checked
by its hash.  No root, no KVM.
"""
import argparse
import os
import select
import subprocess
import sys
import termios
import threading
import time
import tty
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT / "tests" / "functional"))
from lib.debian_roots import debian_root, kernel, qemu_forky  # noqa: E402
from lib.linux_guest import GuestError, LinuxGuest  # noqa: E402
from lib.network import WebServer  # noqa: E402
from lib.swnic import Swnic, served, vfio_user_device  # noqa: E402
from lib.tap import Failure, expect  # noqa: E402

ESCAPE = b"\x1d"  # Ctrl-]
SIZE = 16 << 20


class Progress:
    """A line that counts seconds while something takes its time; use as a context."""

    def __init__(self, text):
        self.text = text
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.count, daemon=True)

    def count(self):
        began = time.monotonic()
        terminal = sys.stdout.isatty()
        print(f"- {self.text}", end="" if terminal else "\n", flush=True)
        while not self.done.wait(1 if terminal else 10):
            seconds = int(time.monotonic() - began)
            print(f"\r- {self.text}: {seconds} s" if terminal else f"  … {seconds} s",
                  end="" if terminal else "\n", flush=True)
        if terminal:
            print(f"\r- {self.text}: {time.monotonic() - began:.1f} s", flush=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def show(guest, command, timeout=60):
    """Runs @command and prints it with what it said."""
    print(f"\nguest# {command}", flush=True)
    text = guest.run(command, timeout)
    print(text, flush=True)
    return text


def demonstrate(guest, emulator, server):
    show(guest, "uname -srm")
    show(guest, "basename $(readlink /sys/class/net/eth0/device/driver)")
    show(guest, "ethtool -i eth0 | head -n 1; grep virtio0 /proc/interrupts")
    guest.run("ip link set eth0 up")
    show(guest, "udhcpc -i eth0 -n -q -t 20 -T 1")
    show(guest, "ping -c 3 10.0.2.2")
    text = show(guest, f"wget -q -O - http://10.0.2.2:{server.port}/ | sha256sum", 120)
    expect(text.split()[0] == server.sha256, f"the host sent {server.sha256}")
    print(f"({SIZE >> 20} MiB, and that is the hash of what the host served)")
    print("\nhost, QMP: set_link nic0 down, then up")
    for up in (False, True):
        emulator.qmp("set_link", name="nic0", up=up)
        time.sleep(0.2)
        show(guest, "cat /sys/class/net/eth0/carrier")
    show(guest, "ethtool -S eth0 | grep -E 'packets|bytes|kicks' | head -n 8")


def console(guest):
    """The terminal is the guest's, until it powers off or the escape key is pressed."""
    print("\nThe guest's console: 'exit' or Ctrl-] ends it.", flush=True)
    guest.echo = None
    out = guest.process.stdout.fileno()
    guest.process.stdin.write(b"stty sane; setsid cttyhack sh; poweroff -f\n")
    stdin = sys.stdin.fileno()
    saved = termios.tcgetattr(stdin) if os.isatty(stdin) else None
    try:
        if saved:
            tty.setraw(stdin)
        sources = [stdin, out]
        while out in sources:
            for fd in select.select(sources, [], [])[0]:
                data = os.read(fd, 65536)
                if fd == out and data:
                    os.write(sys.stdout.fileno(), data)
                elif fd == out or ESCAPE in data:
                    return
                elif data:
                    guest.process.stdin.write(data)
                else:
                    guest.process.stdin.write(b"exit\n")
                    sources.remove(stdin)
    finally:
        if saved:
            termios.tcsetattr(stdin, termios.TCSADRAIN, saved)
        print(flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="make run-linux ARGS=…",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=PROJECT / "build", help=argparse.SUPPRESS)
    parser.add_argument("--suite", choices=("bookworm", "forky"), default="bookworm",
                        help="whose kernel: bookworm's 6.1 (default) or forky's 7.2")
    parser.add_argument("--device", default="", metavar="PROPS",
                        help="properties of virtio-net-pci, such as tx=timer,packed=on")
    parser.add_argument("--interactive", action="store_true",
                        help="a shell on the guest's console afterwards")
    return parser.parse_args()


def main():
    args = parse_arguments()
    for suite in ("forky", "bookworm"):
        with Progress(f"Debian {suite}: its packages, unpacked into build/roots/{suite}"):
            debian_root(suite)
    qemu = qemu_forky()
    version = subprocess.run([*qemu, "--version"], capture_output=True, text=True, check=True)
    with Swnic(str(Path(args.build) / "swnic-system-x86_64")) as emulator, \
            WebServer(SIZE) as server:
        arguments, path = served(emulator, 0, "user", args.device)
        emulator.start("-machine", "vfio-user", *arguments)
        print(f"- swnic serves virtio-net-pci at {path}")
        guest = LinuxGuest(qemu, vfio_user_device(path), args.suite)
        with Progress(f"Linux {kernel(args.suite)[2]} boots in {version.stdout.splitlines()[0]}"):
            guest.__enter__()
        try:
            demonstrate(guest, emulator, server)
            if args.interactive:
                console(guest)
            if guest.process.poll() is None:
                guest.process.terminate()
        finally:
            guest.__exit__()
    print("\nAll of it worked.")


if __name__ == "__main__":
    try:
        main()
    except (Failure, GuestError, subprocess.CalledProcessError) as error:
        sys.exit(f"run-linux: FAILED: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
