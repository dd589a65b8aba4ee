#!/usr/bin/env python3
"""What ethtool of a real Linux guest shows and sets of our device, with every optional feature on.

    swnic (vfio-user server, tap with 4 queues) == QEMU 11.1, 4 CPUs == Linux, virtio_net

Debian 12's kernel (6.1) and forky's (7.2): queue pairs, MTU, coalescing, RSS, statistics.  What a
kernel's driver has no way to ask for must be refused as not supported; where that could be the
device's doing, the device's counters show that it was never asked.
"""
import re

from lib import tap as tap_lib
from lib.debian_roots import debian_root, qemu_forky
from lib.linux_guest import LinuxGuest
from lib.network import WebServer, enter_namespace, make_tap, run
from lib.swnic import Swnic, served, vfio_user_device
from lib.tap import expect

HOST, GUEST = "10.1.0.1", "10.1.0.2"
PAIRS, MTU = 4, 4000
CONNECTIONS = 40  # one of 4 queues is left out by all of them once in 25,000 runs
PROPERTIES = (f"mq=on,rss=on,hash=on,host_mtu={MTU},notf_coal=on,vq_notf_coal=on,"
              "device_stats=on")
KEY = ":".join(f"{i:02x}" for i in range(40))


def statistics(guest):
    """{name: value} of ethtool -S."""
    text = guest.run("ethtool -S eth0")
    return {name: int(value) for name, value in re.findall(r"^\s*(\w+): (\d+)$", text, re.M)}


def packets(guest):
    """{("rx" or "tx", queue): packets}; the driver's count (6.1) or the device's (7.2)."""
    matches = ((re.fullmatch(r"(rx|tx)(?:_queue_)?(\d+)_(?:hw_)?packets", name), value)
               for name, value in statistics(guest).items())
    return {(m.group(1), int(m.group(2))): value for m, value in matches if m}


def traffic(guest, server):
    """Connections from each CPU in turn; returns what each queue has moved of them."""
    before = packets(guest)
    text = guest.run(f"for i in $(seq {CONNECTIONS}); do taskset $((1 << (i % {PAIRS}))) "
                     f"wget -q -O - http://{HOST}:{server.port}/body | sha256sum; done | "
                     "sort | uniq -c", timeout=120)
    expect(text.split() == [str(CONNECTIONS), server.sha256, "-"], f"bodies: {text}")
    after = packets(guest)
    return {queue: after[queue] - before.get(queue, 0) for queue in after}


def refused(guest, command):
    status, text = guest.run(command, check=False)
    expect(status != 0 and "Operation not supported" in text, f"{command}: {status}, {text}")


def queue_pairs(tap, guest, server):
    for count in (PAIRS, 2, 1, PAIRS):
        guest.run(f"ethtool -L eth0 combined {count}")
        text = guest.run("ethtool -l eth0")
        expect(re.findall(r"Combined:\s+(\d+)", text) == [str(PAIRS), str(count)], text)
        moved = traffic(guest, server)
        tap.note(f"{count} pairs: " + ", ".join(f"{way}{n} {v}" for (way, n), v in moved.items()))
        for way in ("rx", "tx"):
            used = [n for n in range(PAIRS) if moved.get((way, n), 0) > 0]
            expect(used == list(range(count)), f"{way} used {used} with {count} pairs")
    status, text = guest.run(f"ethtool -L eth0 combined {PAIRS + 1}", check=False)
    expect(status != 0, f"{PAIRS + 1} pairs: {text}")


def mtu(guest):
    """A ping of the full size crosses in one piece each way; more than host_mtu is refused."""
    expect(guest.run("cat /sys/class/net/eth0/mtu") == str(MTU), "the guest's MTU")
    text = guest.run(f"ping -c 3 -s {MTU - 28} {HOST}; grep ^Ip: /proc/net/snmp")
    expect("3 packets received" in text, text)
    names, values = (line.split() for line in text.splitlines() if line.startswith("Ip:"))
    counters = dict(zip(names, values))
    expect(counters["FragCreates"] == "0" and counters["ReasmReqds"] == "0", text)
    status, text = guest.run(f"ip link set eth0 mtu {MTU + 1}", check=False)
    expect(status != 0, f"MTU {MTU + 1} was taken: {text}")


def coalescing_is(guest, text, wanted):
    got = {name: int(value) for name, value in
           re.findall(r"^((?:rx|tx)-(?:usecs|frames)): (\d+)$", text, re.M)}
    expect(got == wanted, f"{got} instead of {wanted}")


def coalescing(guest, server):
    wanted = {"rx-usecs": 40, "rx-frames": 8, "tx-usecs": 60, "tx-frames": 16}
    guest.run("ethtool -C eth0 " + " ".join(f"{name} {value}" for name, value in wanted.items()))
    coalescing_is(guest, guest.run("ethtool -c eth0"), wanted)
    traffic(guest, server)


def queue_coalescing(guest, server, newer):
    """One queue's own values, and the others keep theirs; after coalescing()."""
    show = "ethtool -Q eth0 queue_mask {} --show-coalesce"
    change = "ethtool -Q eth0 queue_mask 0x2 --coalesce rx-usecs 70 rx-frames 9"
    if not newer:
        refused(guest, show.format("0x2"))
        refused(guest, change)
        return
    guest.run(change)
    others = {"rx-usecs": 40, "rx-frames": 8, "tx-usecs": 60, "tx-frames": 16}
    coalescing_is(guest, guest.run(show.format("0x1")), others)
    coalescing_is(guest, guest.run(show.format("0x2")), {**others, "rx-usecs": 70, "rx-frames": 9})
    traffic(guest, server)


def table(guest):
    """(indirection table, hash key) of ethtool -x."""
    text = guest.run("ethtool -x eth0")
    rows = re.findall(r"^\s*\d+:((?:\s+\d+)+)$", text, re.M)
    key = re.search(r"^((?:[0-9a-f]{2}:){39}[0-9a-f]{2})$", text, re.M)
    expect(key and "toeplitz: on" in text, text)
    return [int(entry) for row in rows for entry in row.split()], key.group(1)


def rss(tap, guest, server, newer):
    entries, key = table(guest)
    expect(entries == [i % PAIRS for i in range(128)], f"table {entries}")
    changes = ("ethtool -X eth0 weight 0 0 1 1", f"ethtool -X eth0 hkey {KEY}")
    if newer:
        # This kernel refuses by itself what ethtool 6.1 asks it.  Reading statistics costs the same
        # number of control commands each time, so the device's count shows that none was added.
        counts = [statistics(guest)["cq_hw_command_num"] for _ in range(2)]
        for change in changes:
            refused(guest, change)
        counts.append(statistics(guest)["cq_hw_command_num"])
        expect(counts[2] - counts[1] == counts[1] - counts[0], f"control commands: {counts}")
        expect(table(guest) == (entries, key), "the table changed")
        return
    for change in changes:
        guest.run(change)
    entries, key = table(guest)
    expect(set(entries) == {2, 3} and len(entries) == 128, f"table {entries}")
    expect(key == KEY, f"key {key}")
    moved = traffic(guest, server)
    got = [moved["rx", n] for n in range(PAIRS)]
    tap.note(f"received by queue: {got}")
    # What is not IP (ARP) has no hash and goes to queue 0.
    expect(got[0] <= 4 and got[1] == 0 and got[2] > 0 and got[3] > 0, f"received: {got}")


def device_statistics(tap, guest, newer):
    found = statistics(guest)
    device = {name: value for name, value in found.items() if "_hw_" in name}
    if not newer:  # the driver's own only: it does not know DEVICE_STATS
        expect(found["rx_queue_0_packets"] > 0 and found["tx_queue_0_kicks"] > 0, f"{found}")
        expect(not device, f"{device}")
        return
    for n in range(PAIRS):
        for way in ("rx", "tx"):
            for what in ("packets", "bytes", "notifications", "interrupts"):
                expect(device[f"{way}{n}_hw_{what}"] > 0, f"{way}{n} {what}: {device}")
    for way in ("rx", "tx"):
        total = sum(device[f"{way}{n}_hw_packets"] for n in range(PAIRS))
        expect(device[f"{way}_hw_packets"] == total, f"{way}: {device}")
    # The command that reads is counted already, and not yet answered.
    expect(device["cq_hw_command_num"] == device["cq_hw_ok_num"] + 1, f"{device}")
    tap.note(f"{len(device)} device counters")


def kernel_shows(tap, suite, newer):
    with Swnic() as emulator, WebServer(2000, HOST) as server:
        arguments, path = served(
            emulator, 0, f"tap,ifname=swnic0,script=no,downscript=no,queues={PAIRS}", PROPERTIES)
        emulator.start("-machine", "vfio-user", *arguments)
        with LinuxGuest(qemu_forky(), vfio_user_device(path), suite, cpus=PAIRS) as guest:
            guest.run(f"ip addr add {GUEST}/24 dev eth0; ip link set eth0 up")
            tap.run(f"{suite}/mtu", mtu, guest)
            tap.run(f"{suite}/queue-pairs", queue_pairs, tap, guest, server)
            tap.run(f"{suite}/statistics", device_statistics, tap, guest, newer)
            tap.run(f"{suite}/coalescing", coalescing, guest, server)
            tap.run(f"{suite}/queue-coalescing", queue_coalescing, guest, server, newer)
            tap.run(f"{suite}/rss", rss, tap, guest, server, newer)


def main(tap):
    for suite in ("forky", "bookworm"):
        debian_root(suite)  # while there is a network to download them from
    enter_namespace()
    make_tap("swnic0", HOST, "multi_queue")
    run("ip", "link", "set", "swnic0", "mtu", str(MTU))
    kernel_shows(tap, "bookworm", False)
    kernel_shows(tap, "forky", True)


if __name__ == "__main__":
    tap_lib.main(main)
