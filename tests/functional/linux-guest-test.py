#!/usr/bin/env python3
"""A real Linux guest drives our device: QEMU's vfio-user client, TCG, Debian's kernels.

    swnic (vfio-user server) == UNIX socket == QEMU 11.1 == Linux, virtio_net

Debian 12's kernel (6.1) and forky's (7.2), user networking and a tap, every variant of the device
at once, and QEMU's own virtio-net-pci beside ours in the same guest for comparison.  Everything
runs in a network namespace that ends with this process.  SWNIC_TEST_FULL=1 reboots 20 times
instead of 3.
"""
import json
import os
import re
import statistics
import subprocess
import time

from lib import tap as tap_lib
from lib.debian_roots import debian_root, qemu_forky
from lib.linux_guest import LinuxGuest
from lib.network import (TcpSink, VlanEcho, WebServer, die_with_parent, enter_namespace, make_tap)
from lib.swnic import Swnic, served, vfio_user_device
from lib.tap import expect

FULL = bool(os.environ.get("SWNIC_TEST_FULL"))
REBOOTS = 20 if FULL else 3
REBINDS = 20
HOST, GUEST = "10.1.0.1", "10.1.0.2"
QEMU_HOST, QEMU_GUEST = "10.2.0.1", "10.2.0.2"


# --- what is asked of a guest ---

def lease(guest, interface="eth0"):
    """DHCP from libslirp; returns the address."""
    guest.run(f"ip link set {interface} up")
    text = guest.run(f"udhcpc -i {interface} -n -q -t 20 -T 1 2>&1")
    match = re.search(r"^lease (\S+) router 10\.0\.2\.2", text, re.M)
    expect(match, f"no lease: {text}")
    return match.group(1)


def ping(guest, address, count=5, options=""):
    """Every answer must come; returns (min, avg, max) in ms."""
    text = guest.run(f"ping -c {count} {options} {address}", timeout=60 + count)
    expect(f" {count} packets received, 0% packet loss" in text, f"ping: {text}")
    return tuple(float(v) for v in re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+) ms", text).groups())


def download(guest, server, address):
    text = guest.run(f"wget -q -O - http://{address}:{server.port}/body | sha256sum", timeout=120)
    expect(text.split()[0] == server.sha256, f"sha256 {text} instead of {server.sha256}")


def upload(guest, sink, address, blocks=16):
    """Random bytes from the guest, by the hash of both ends."""
    text = guest.run(f"head -c {blocks * 65536} /dev/urandom >/tmp/blob; sha256sum /tmp/blob; "
                     f"nc {address} {sink.port} </tmp/blob", timeout=120)
    got = sink.digest(60)
    expect(got == text.split()[0], f"sha256 {got} instead of {text}")


def carrier(guest, wanted, interface="eth0"):
    for _ in range(100):
        if guest.run(f"cat /sys/class/net/{interface}/carrier 2>/dev/null || echo -") == wanted:
            return
        time.sleep(0.05)
    expect(False, f"carrier is not {wanted}")


def driver_is_bound(guest, release):
    text = guest.run("uname -r; readlink /sys/class/net/eth0/device/driver; "
                     "cat /sys/bus/pci/devices/*/vendor; cat /sys/class/net/eth0/address")
    expect(text.startswith(release), f"kernel {text}")
    expect("/virtio_net" in text and "0x1af4" in text and "52:54:00:00:00:01" in text, text)


def interrupts_arrive(guest):
    """MSI-X vectors of the queues have fired."""
    text = guest.run("grep virtio0 /proc/interrupts")
    for queue in ("input.0", "output.0"):
        row = next(line for line in text.splitlines() if queue in line)
        expect(int(row.split()[1]) > 0, row)


# --- over user networking ---

def ethtool_tells(guest):
    text = guest.run("ethtool -i eth0")
    expect("driver: virtio_net" in text and re.search(r"bus-info: 0000:00:0\d\.0", text), text)
    text = guest.run("ethtool -S eth0")
    expect(re.search(r"tx(_queue_)?\w*0_kicks: [1-9]", text), text)
    text = guest.run("ethtool -k eth0")
    expect("tx-checksumming:" in text, text)


def link_follows(guest, emulator):
    for name in ("nic0", "n0"):
        carrier(guest, "1")
        emulator.qmp("set_link", name=name, up=False)
        carrier(guest, "0")
        emulator.qmp("set_link", name=name, up=True)
    carrier(guest, "1")
    ping(guest, "10.0.2.2", 2)


def rebind(guest, address):
    """The driver lets go and comes back: virtio_net, and in turn virtio-pci with its MSI-X."""
    for i in range(REBINDS):
        if i % 2:
            device = guest.run("basename $(readlink -f /sys/class/net/eth0/device/..)")
            folder = "/sys/bus/pci/drivers/virtio-pci"
        else:
            device = guest.run("basename $(readlink -f /sys/class/net/eth0/device)")
            folder = "/sys/bus/virtio/drivers/virtio_net"
        guest.run(f"echo {device} >{folder}/unbind; echo {device} >{folder}/bind")
        guest.run(f"ip link set eth0 up; ip addr add {address}/24 dev eth0")
        ping(guest, "10.0.2.2", 1)


def reboot(guest, address):
    for _ in range(REBOOTS):
        guest.reboot()
        guest.run(f"ip link set eth0 up; ip addr add {address}/24 dev eth0")
        ping(guest, "10.0.2.2", 1)


def user_networking(tap, suite, release, all_of_it):
    with Swnic() as emulator, WebServer(8 << 20) as server:
        arguments, path = served(emulator, 0, "user")
        emulator.start("-machine", "vfio-user", *arguments)
        with LinuxGuest(qemu_forky(), vfio_user_device(path), suite, reboots=True) as guest:
            at = {}
            tap.run(f"{suite}/driver-binds", driver_is_bound, guest, release)
            tap.run(f"{suite}/dhcp", lambda: at.update(address=lease(guest)))
            tap.run(f"{suite}/ping", ping, guest, "10.0.2.2", 5)
            tap.run(f"{suite}/interrupts", interrupts_arrive, guest)
            tap.run(f"{suite}/http-download", download, guest, server, "10.0.2.2")
            tap.run(f"{suite}/ethtool", ethtool_tells, guest)
            tap.run(f"{suite}/set-link", link_follows, guest, emulator)
            if all_of_it:
                address = at.get("address", "10.0.2.15")
                tap.run(f"{suite}/unbind-bind-{REBINDS}", rebind, guest, address)
                tap.run(f"{suite}/reboot-{REBOOTS}", reboot, guest, address)


# --- a guest of our own ---

def own_guest(clients):
    """swnic-guest's demo over vfio-user, one client after the other on one server."""
    with Swnic() as emulator:
        arguments, path = served(emulator, 0, "user")
        emulator.start("-machine", "vfio-user", *arguments)
        for _ in range(clients):
            command = [os.environ["SWNIC_GUEST"], "demo", "--quiet", "--vfio-user", path]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            expect(done.returncode == 0, done.stderr)


# --- every variant ---

VARIANTS = {
    "default": ("virtio-net-pci", "", 0x1000),
    "transitional": ("virtio-net-pci-transitional", "", 0x1000),
    "non-transitional": ("virtio-net-pci-non-transitional", "", 0x1041),
    "legacy-only": ("virtio-net-pci", "disable-modern=on", 0x1000),
    "iommu-platform": ("virtio-net-pci", "disable-legacy=on,iommu_platform=on", 0x1041),
    "intx": ("virtio-net-pci", "vectors=0", 0x1000),
    "packed": ("virtio-net-pci", "packed=on", 0x1000),
}


def variant_works(guest, number, device_id):
    interface = f"eth{number}"
    text = guest.run(f"cat /sys/class/net/{interface}/device/../device "
                     f"/sys/class/net/{interface}/address")
    expect(text.split()[0] == hex(device_id), text)
    expect(text.split()[1] == f"52:54:00:00:00:{number + 1:02x}", text)
    lease(guest, interface)
    ping(guest, "10.0.2.2", 3, f"-I {interface}")
    guest.run(f"ip addr flush dev {interface}; ip link set {interface} down")


def variants(tap):
    with Swnic() as emulator:
        arguments, devices = [], []
        for i, (name, properties, _) in enumerate(VARIANTS.values()):
            more, path = served(emulator, i, "user", properties)
            arguments += [word.replace("virtio-net-pci,", name + ",") for word in more]
            devices += vfio_user_device(path, addr=f"{4 + i}.0")
        emulator.start("-machine", "vfio-user", *arguments)
        with LinuxGuest(qemu_forky(), devices) as guest:
            for i, (variant, (_, _, device_id)) in enumerate(VARIANTS.items()):
                tap.run(f"variant/{variant}", variant_works, guest, i, device_id)


# --- over a tap, with QEMU's own device beside ours ---

def offloads_switch(tap, guest, server, sink):
    """Each offload off and on again, data correct both ways with each."""
    text = guest.run("ethtool -k eth0")
    names = [m.group(1) for m in re.finditer(r"^\s*(\S+): (?:on|off)(?: \[requested on\])?$", text,
                                             re.M)]
    expect(len(names) > 5, text)
    guest.run("ethtool -k eth0 >/tmp/before")
    for name in names:
        for value in ("off", "on"):
            status, said = guest.run(f"ethtool -K eth0 {name} {value}", check=False)
            expect(status == 0 or "Could not change any" in said or "not supported" in said,
                   f"{name} {value}: {said}")
            download(guest, server, HOST)
            upload(guest, sink, HOST, 4)
    tap.note("switched: " + " ".join(names))


def vlan(guest, emulator):
    guest.run("ip link add link eth0 name eth0.5 type vlan id 5; ip addr add 10.5.0.2/24 dev "
              "eth0.5; ip link set eth0.5 up")
    with VlanEcho("swnic0", 5, "10.5.0.1") as echo:
        ping(guest, "10.5.0.1", 5)
        ping(guest, "10.5.0.1", 2, "-s 1400")
        expect(echo.answered >= 8, f"{echo.answered} tagged frames answered")
    table = emulator.qmp("query-rx-filter", name="nic0")[0]["vlan-table"]
    expect(5 in table, f"VLAN table {table}")
    guest.run("ip link del eth0.5")
    table = emulator.qmp("query-rx-filter", name="nic0")[0]["vlan-table"]
    expect(5 not in table, f"VLAN table {table}")


def iperf(guest, address, reverse, seconds):
    """Mbit/s as the receiver counted them."""
    text = guest.run(f"iperf3 -J -c {address} -t {seconds} {'-R' if reverse else ''}",
                     timeout=seconds + 60)
    return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e6


def iperf_both_ways(tap, guest):
    for reverse, way in ((False, "guest to host"), (True, "host to guest")):
        rate = iperf(guest, HOST, reverse, 2)
        tap.note(f"iperf3 {way}: {rate:.0f} Mbit/s")
        expect(rate > 1, f"{way}: {rate} Mbit/s")


def compare(tap, guest):
    """Throughput and round trip of both devices, in turns, printed side by side."""
    rates, trips = {}, {}
    for _ in range(3):
        for who, address in (("swnic", HOST), ("QEMU", QEMU_HOST)):
            for reverse in (False, True):
                rates.setdefault((who, reverse), []).append(iperf(guest, address, reverse, 1))
            trips.setdefault(who, []).append(ping(guest, address, 200, "-A -q")[1])
    tap.note(f"{'median of 3, in turns':28} {'swnic vfio-user':>16} {'QEMU virtio-net':>16}")
    for reverse, way in ((False, "guest to host, Mbit/s"), (True, "host to guest, Mbit/s")):
        ours, theirs = (statistics.median(rates[who, reverse]) for who in ("swnic", "QEMU"))
        tap.note(f"{way:28} {ours:16.0f} {theirs:16.0f}")
    ours, theirs = (statistics.median(trips[who]) for who in ("swnic", "QEMU"))
    tap.note(f"{'round trip, ms':28} {ours:16.3f} {theirs:16.3f}")


def tap_networking(tap):
    make_tap("swnic0", HOST)
    make_tap("qemu0", QEMU_HOST)
    servers = [subprocess.Popen(["iperf3", "-s", "-B", address], stdout=subprocess.DEVNULL,
                                preexec_fn=die_with_parent) for address in (HOST, QEMU_HOST)]
    try:
        with Swnic() as emulator, WebServer(1 << 20, HOST) as server, TcpSink(HOST) as sink:
            arguments, path = served(emulator, 0,
                                     "tap,ifname=swnic0,script=no,downscript=no")
            emulator.start("-machine", "vfio-user", *arguments)
            devices = [*vfio_user_device(path, addr="4.0"), "-netdev",
                       "tap,id=q,ifname=qemu0,script=no,downscript=no", "-device",
                       "virtio-net-pci,netdev=q,addr=5.0,romfile="]
            with LinuxGuest(qemu_forky(), devices) as guest:
                guest.run(f"ip addr add {GUEST}/24 dev eth0; ip link set eth0 up; "
                          f"ip addr add {QEMU_GUEST}/24 dev eth1; ip link set eth1 up")
                tap.run("tap/ping", ping, guest, HOST, 5)
                tap.run("tap/http-download", download, guest, server, HOST)
                tap.run("tap/upload", upload, guest, sink, HOST)
                tap.run("tap/iperf3-both-ways", iperf_both_ways, tap, guest)
                tap.run("tap/vlan", vlan, guest, emulator)
                tap.run("tap/each-offload-off-and-on", offloads_switch, tap, guest, server, sink)
                tap.run("tap/beside-qemu", compare, tap, guest)
    finally:
        for process in servers:
            process.kill()
            process.wait()


def main(tap):
    for suite in ("forky", "bookworm"):
        debian_root(suite)  # while there is a network to download them from
    enter_namespace()
    tap.run("swnic-guest/demo-over-vfio-user", own_guest, 3)
    user_networking(tap, "bookworm", "6.1.", True)
    user_networking(tap, "forky", "7.", False)
    variants(tap)
    tap_networking(tap)


if __name__ == "__main__":
    tap_lib.main(main)
