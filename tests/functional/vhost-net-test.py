#!/usr/bin/env python3
"""tap with vhost=on, for real: the kernel that moves the packets is a Linux guest's.

    QEMU (TCG) == Linux with /dev/vhost-net
                    swnic-guest tcp -- swnic: tap,vhost=on ~~ vhost-net -- tap -- Linux's TCP

The emulator and swnic-guest run inside that Linux.  TCP both ways, compared by hash, and a look at
the kernel: whether its vhost thread was woken for the packets, or slept.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib.debian_roots import qemu_forky
from lib.linux_guest import GuestError, LinuxGuest

EMULATOR = os.environ["SWNIC_BINARY"]
GUEST = os.environ["SWNIC_GUEST"]
MODULES = ["tun", "tap", "vhost_net"]
TAP = "tap,ifname=t0,script=no,downscript=no"
MEGABYTES = 4
BUSY = 20  # times that a thread which moves packets sleeps, at least


class Failure(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failure(text)


def programs():
    """The emulator, swnic-guest and their libraries, as files of the initramfs."""
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for program in (EMULATOR, GUEST):
            stripped = f"{folder}/program"
            subprocess.run(["strip", "-o", stripped, program], check=True)
            files[f"bin/{Path(program).name}"] = Path(stripped).read_bytes()
            text = subprocess.run(["ldd", program], capture_output=True, text=True,
                                  check=True).stdout
            for path in re.findall(r"=> (/\S+)", text):
                files[f"lib/x86_64-linux-gnu/{Path(path).name}"] = \
                    Path(os.path.realpath(path)).read_bytes()
            loader = re.search(r"^\s*(/lib64/\S+)", text, re.M).group(1)
            files[loader.lstrip("/")] = Path(os.path.realpath(loader)).read_bytes()
    return [(name, data, 0o100755) for name, data in files.items()]


def start(linux, netdev, command, device=""):
    """swnic-guest in the background, ready, with the tap's address set."""
    linux.run("rm -f /tmp/out /tmp/err; ip link del t0 2>/dev/null; true")
    device = f"-d {device}" if device else ""
    linux.run(f"(swnic-guest tcp {device} -t 100 -n {netdev} {command} >/tmp/out 2>/tmp/err; "
              "echo $? >/tmp/status) </dev/null & "
              "for i in $(seq 600); do grep -q ready /tmp/out && break; sleep 0.1; done; "
              "cat /tmp/err; grep -q ready /tmp/out", timeout=120)
    linux.run("ip addr add 10.9.0.1/24 dev t0; ip link set t0 up; echo 0 >/tmp/switches")
    # How often the vhost thread went to sleep, as long as it lives.
    linux.run("(while thread=$(ps | awk '/[v]host-/ {print $1}'); [ -n \"$thread\" ]; do "
              "awk '/^voluntary/ {print $2}' /proc/$thread/status >/tmp/new 2>/dev/null && "
              "[ -s /tmp/new ] && mv /tmp/new /tmp/switches; sleep 0.1; done) </dev/null "
              ">/dev/null 2>&1 &")


def finish(linux):
    """Its report, and what it and the emulator said."""
    text = linux.run("for i in $(seq 600); do [ -e /tmp/status ] && break; sleep 0.1; done; "
                     "cat /tmp/status; rm /tmp/status; tail -n 1 /tmp/out", timeout=120)
    said = linux.run("cat /tmp/err")
    status, _, report = text.partition("\n")
    expect(status == "0", f"swnic-guest: {status} {report} {said}")
    return json.loads(report), said


def expect_vhost(linux, wanted):
    switches = int(linux.run("cat /tmp/switches"))
    expect((switches > BUSY) == wanted, f"the vhost thread slept {switches} times")


def to_guest(linux, netdev, vhost, device=""):
    start(linux, netdev, "sink 5001", device)
    sha = linux.run(f"head -c {MEGABYTES << 20} /dev/urandom >/tmp/blob; sha256sum /tmp/blob",
                    timeout=60).split()[0]
    linux.run("for i in $(seq 50); do nc 10.9.0.2 5001 </tmp/blob && break; sleep 0.2; done",
              timeout=120)
    report, said = finish(linux)
    expect(report["received-sha256"] == sha, f"the guest received {report}, not {sha}")
    expect_vhost(linux, vhost)
    return said


def from_guest(linux, netdev, vhost, device=""):
    linux.run("(nc -l -p 5001 >/tmp/got) </dev/null & sleep 0.5")
    start(linux, netdev, f"source 10.9.0.1:5001 {MEGABYTES << 20}", device)
    report, said = finish(linux)
    sha = linux.run("sleep 0.5; sha256sum /tmp/got; rm /tmp/got").split()[0]
    expect(report["sent-sha256"] == sha, f"{sha} came; the guest sent {report}")
    expect_vhost(linux, vhost)
    return said


def fallback(linux):
    """Without the device node vhost=on is a warning, vhostforce=on an error."""
    linux.run("mv /dev/vhost-net /dev/vhost-away")
    try:
        said = to_guest(linux, TAP + ",vhost=on", False)
        expect("vhost-net requested but could not be initialized" in said, said)
        text = linux.run(f"swnic-system-x86_64 -nodefaults -accel qtest -netdev "
                         f"{TAP},id=n0,vhost=on,vhostforce=on; echo status $?")
        expect("could not be initialized" in text and "status 1" in text, text)
    finally:
        linux.run("mv /dev/vhost-away /dev/vhost-net")


TESTS = (
    ("to-guest", lambda linux: to_guest(linux, TAP + ",vhost=on", True)),
    ("from-guest", lambda linux: from_guest(linux, TAP + ",vhost=on", True)),
    ("forced", lambda linux: to_guest(linux, TAP + ",vhostforce=on", True)),
    ("busy-polling", lambda linux: from_guest(linux, TAP + ",vhost=on,poll-us=50", True)),
    ("no-vnet-hdr", lambda linux: from_guest(linux, TAP + ",vhost=on,vnet_hdr=off", True)),
    ("no-msix", lambda linux: to_guest(linux, TAP + ",vhost=on", False, "vectors=0")),
    ("no-msix-forced", lambda linux: to_guest(linux, TAP + ",vhost=on,vhostforce=on", True,
                                              "vectors=0")),
    ("own-way", lambda linux: to_guest(linux, TAP, False)),
    ("fallback", fallback),
)


def main():
    tests = [test for test in TESTS if all(word in test[0] for word in sys.argv[1:])]
    failed = 0
    print(f"1..{len(tests)}")
    qemu = ["qemu-system-x86_64"] if shutil.which("qemu-system-x86_64") else qemu_forky()
    with LinuxGuest(qemu, [], memory="512M", extra_modules=MODULES,
                    extra_files=programs()) as linux:
        linux.run("[ -c /dev/vhost-net ]")
        for number, (name, run) in enumerate(tests, 1):
            try:
                run(linux)
                print(f"ok {number} {name}")
            except (Failure, GuestError, OSError, ValueError) as error:
                failed += 1
                print(f"not ok {number} {name}")
                print("# " + str(error).strip().replace("\n", "\n# "))
                linux.run("killall swnic-guest nc; sleep 1; rm -f /tmp/status", check=False)
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
