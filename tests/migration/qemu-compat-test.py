#!/usr/bin/env python3
"""Debian's QEMU 7.2 and forky's 11.1 load our virtio-net section, and we load theirs.

Each side is driven to the same state over qtest, both streams are taken, the one section is swapped
between them, and each side loads what the other saved.  Registers, receive filter and rings must
show the same as before, and the packets that waited must leave."""
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "functional" / "lib"))
import emulator as m  # noqa: E402
from debian_roots import qemu_forky  # noqa: E402

OURS = [os.environ["SWNIC_BINARY"]]
BASIC = [m.F_MAC, m.F_STATUS, m.F_VERSION_1]
CTRL = [m.F_CTRL_VQ, m.F_CTRL_RX, m.F_CTRL_VLAN, m.F_CTRL_MAC_ADDR, m.F_CTRL_RX_EXTRA]

# name: features, extra device properties, what is driven
STATES = {
    "reset": (None, ""),
    "driver-ok": (BASIC, ""),
    "rings": (BASIC + [m.F_MRG_RXBUF, m.F_EVENT_IDX, m.F_INDIRECT], ""),
    "filter": (BASIC + CTRL + [m.F_MRG_RXBUF], ""),
    "waiting": (BASIC + [m.F_MRG_RXBUF, m.F_EVENT_IDX], "tx=timer,x-txtimer=1500000000"),
    "multiqueue": (BASIC + CTRL + [m.F_MQ, m.F_MRG_RXBUF], "mq=on,vectors=6"),
    "multiqueue-not-taken": (BASIC + CTRL, "mq=on,vectors=6"),
    "rss": (BASIC + CTRL + [m.F_MQ, m.F_RSS, m.F_MRG_RXBUF], "mq=on,rss=on,vectors=6"),
    "packed": (BASIC + [m.F_PACKED, m.F_MRG_RXBUF], "packed=on,tx=timer,x-txtimer=1500000000"),
}


TAP = ("multiqueue", "multiqueue-not-taken", "rss")  # these need a back end with two queues


def emulator(command, ours, name, **kwargs):
    return m.Emulator(command, device=properties(STATES[name][1], ours),
                      tap_queues=2 if name in TAP else 0, **kwargs)


def new_driver(e, features):
    return m.Driver(e, mask(features), packed=m.F_PACKED in features,
                    pairs=2 if m.F_MQ in features else 1)


def mask(bits):
    return sum(1 << bit for bit in bits)


def properties(extra, ours):
    return ",".join(p for p in (extra, "x-soft-offloads=off" if ours else "") if p)


def drive(e, name, features):
    """Brings the device into the state; the driver, or None."""
    if features is None:
        return None, []
    driver = new_driver(e, features)
    driver.start(vectors=name != "multiqueue-not-taken")
    waiting = []
    if name in ("rings", "waiting", "packed"):
        for i in range(3):
            driver.post(i)
        driver.notify(m.RX)
        for i in range(2):
            frame = driver.send(i)
            driver.notify(m.TX)
            if name != "rings":
                driver.notify(m.TX)  # under tx=timer the second one flushes at once
            assert e.receive(5000) == frame
        wait_used(driver, 2)
    if name in ("waiting", "packed"):
        waiting = [driver.send(2), driver.send(3)]
        driver.notify(m.TX)
        assert e.receive(20) is None
    if name == "multiqueue":
        driver.control(4, 0, b"\2\0")  # two pairs
    if name == "rss":
        driver.control(4, 1, (0x3f).to_bytes(4, "little") + b"\3\0" + b"\0\0" +
                       b"\0\0\1\0\1\0\0\0" + b"\2\0" + bytes([40]) + bytes(range(40)))
    if name == "filter":
        driver.control(0, 0, b"\0")  # promiscuous off
        driver.control(0, 1, b"\1")  # all multicast on
        driver.control(1, 0, b"\x02\0\0\0" + bytes.fromhex("020000000001020000000002") +
                       b"\x01\0\0\0" + bytes.fromhex("01005e000001"))
        driver.control(2, 0, (5).to_bytes(2, "little"))
        driver.control(2, 0, (4095).to_bytes(2, "little"))
        driver.control(1, 1, bytes.fromhex("525400aabbcc"))
    return driver, waiting


def wait_used(driver, count):
    deadline = time.monotonic() + m.TIMEOUT
    while driver.used(m.TX) != count:
        assert time.monotonic() < deadline, f"{driver.used(m.TX)} used, expected {count}"


def rx_filter(e, with_vlans):
    info = e.command("query-rx-filter")[0]
    info.pop("name")
    info.pop("broadcast-allowed")  # QEMU shows the opposite
    if not with_vlans:
        info.pop("vlan-table")
        info.pop("vlan")
    return {k: sorted(v) if isinstance(v, list) else v for k, v in info.items()}


def observe(e, driver, with_vlans):
    seen = {"filter": rx_filter(e, with_vlans)}
    if driver:
        seen.update(driver.registers())
        seen["used"] = [driver.used(q) for q in range(driver.ctrl + 1)]
    return seen


def expect_equal(what, before, after):
    different = {k: (before[k], after.get(k)) for k in before if before[k] != after.get(k)}
    assert not different, f"{what}: {different}"


def load(command, ours, name, stream, before, with_vlans):
    features = STATES[name][0]
    path = Path(f"/tmp/swnic-compat-{os.getpid()}")
    path.write_bytes(stream)
    try:
        with emulator(command, ours, name, incoming=f"exec:cat {path}") as e:
            info = e.wait_migration("completed", "failed")
            assert info["status"] == "completed", (info, e.close())
            e.wait_running()
            driver = features and new_driver(e, features)
            after = observe(e, driver, with_vlans)
            expect_equal(f"{name}, loaded by {'us' if ours else 'QEMU'}", before["seen"], after)
            for frame in before["waiting"]:
                got = e.receive(5000)
                assert got == frame, f"{name}: waiting packet: {got}"
            assert e.receive(20) is None, f"{name}: a packet was sent twice"
            if before["waiting"]:
                wait_used(driver, 4)
            if name in ("rings", "waiting"):
                expect_traffic(e, driver, 4 if before["waiting"] else 2)
    finally:
        path.unlink()


def expect_traffic(e, driver, sent):
    """The rings still move, in both directions."""
    driver.avail[m.RX], driver.avail[m.TX] = 3, sent
    frame = driver.send(sent)
    driver.notify(m.TX)
    driver.notify(m.TX)
    assert e.receive(5000) == frame
    wait_used(driver, sent + 1)


def take(command, ours, name):
    features = STATES[name][0]
    with emulator(command, ours, name) as e:
        driver, waiting = drive(e, name, features)
        seen = {vlans: observe(e, driver, vlans) for vlans in (False, True)}
        return {"seen": seen, "waiting": waiting, "stream": e.save()}


def run(number, qemu_name, qemu, name):
    # QEMU 7.2 loses the VLAN table when it loads any section.
    vlans = qemu_name != "7.2"
    ours, theirs = take(OURS, True, name), take(qemu, False, name)
    expect_equal(f"{name}: our registers and QEMU's", theirs["seen"][True], ours["seen"][True])
    sections = {}
    for who, side in (("ours", ours), ("theirs", theirs)):
        start, end = m.find_section(side["stream"])
        sections[who] = side["stream"][start:end]
    differ = sum(a != b for a, b in zip(sections["ours"], sections["theirs"]))
    print(f"# {name}: section of {len(sections['ours'])} bytes here, {len(sections['theirs'])} in "
          f"QEMU {qemu_name}, {differ} differ", flush=True)
    load(qemu, False, name, m.swap_section(theirs["stream"], sections["ours"]),
         {"seen": ours["seen"][vlans], "waiting": ours["waiting"]}, vlans)
    load(OURS, True, name, m.swap_section(ours["stream"], sections["theirs"]),
         {"seen": theirs["seen"][True], "waiting": theirs["waiting"]}, True)
    print(f"ok {number} qemu-{qemu_name}/{name}", flush=True)


def main():
    qemus = [("7.2", ["qemu-system-x86_64"]), ("11.1", qemu_forky())]
    only = sys.argv[1:]
    tests = [(q, c, n) for q, c in qemus for n in STATES if not only or f"{q}/{n}" in only or q in only]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (qemu_name, command, name) in enumerate(tests, 1):
        try:
            run(number, qemu_name, command, name)
        except Exception as error:  # one state's failure does not hide another's
            failed += 1
            print(f"not ok {number} qemu-{qemu_name}/{name}", flush=True)
            for line in f"{type(error).__name__}: {error}"[:2000].splitlines():
                print(f"# {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
