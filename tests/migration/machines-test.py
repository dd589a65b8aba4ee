#!/usr/bin/env python3
"""Migration of what is not virtio-net on a PC: q35's root ports, virtio-rng, the machine microvm
with virtio-mmio.  Between two processes of ours, with QEMU 7.2 and 11.1 (one section swapped), and
of values that nobody should send."""
import os
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "functional" / "lib"))
import decode  # noqa: E402
import emulator as m  # noqa: E402
from debian_roots import qemu_forky  # noqa: E402

OURS = [os.environ["SWNIC_BINARY"]]
QEMUS = [("7.2", lambda: ["qemu-system-x86_64"]), ("11.1", qemu_forky)]
NET_FEATURES = [m.F_MAC, m.F_STATUS, m.F_MRG_RXBUF]
ECAM, WINDOW = 0xb0000000, 0xe0100000
RNG_BUFFERS = 0x1800000
PORT_SECTION, RNG_SECTION = "0000:00:02.0/pcie-root-port", "0000:00:05.0/virtio-rng"
MMIO = {7: "virtio-mmio@00000000feb00e00", 6: "virtio-mmio@00000000feb00c00"}
TESTS = []


def test(function):
    TESTS.append((function.__name__, function))
    return function


def mask(bits):
    return sum(1 << bit for bit in bits)


# --- q35: one port with a NIC behind it, an empty one, and an entropy device ---

PORTS = ["-device", "pcie-root-port,id=rp0,addr=2,slot=7,chassis=1,port=3",
         "-device", "pcie-root-port,id=rp1,addr=3,slot=8,chassis=1"]
RNG = ["-object", "rng-random,id=r0,filename=/dev/zero",
       "-device", "virtio-rng-pci,rng=r0,addr=5,max-bytes=100,period=100000"]


def q35(command, *args, **kwargs):
    ours = command is OURS
    # QEMU's ports say that their slots plug only where ACPI does not do it.
    native = [] if ours else ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
    kwargs.setdefault("accel", "qtest" if ours else "tcg")
    kwargs.setdefault("device", "x-soft-offloads=off" if ours else "")
    return m.Emulator(command, *native, *PORTS, *RNG, *args, machine="pc-q35-7.2",
                      nic="virtio-net-pci,bus=rp0,romfile=,ioeventfd=off", **kwargs)


def ecam_on(e):
    e.ask("outl 0xcf8 0x80000060")
    e.ask(f"outl 0xcfc {ECAM | 1:#x}")


def function(bus, slot):
    return ECAM + (bus << 20) + (slot << 15)


def open_port(e):
    """What firmware does: bus 1 behind the first port, with a window; the slot is on, and tells of
    events."""
    port, nic = function(0, 2), function(1, 0)
    ecam_on(e)
    e.put(port + 0x18, 0x00010100, 4)
    e.put(port + 0x20, WINDOW >> 16 | (WINDOW & 0xfff00000), 4)
    e.put(port + 0x04, 0x0006, 2)
    e.put(port + 0x6c, 0x0139, 2)   # power and its indicator on, events enabled
    e.put(port + 0x12c, 0x5, 4)     # AER root command
    e.put(port + 0x14e, 0x11, 2)    # ACS control
    e.put(port + 0x10, 0xe0200000, 4)
    e.put(nic + 0x14, WINDOW + 0x10000, 4)
    e.put(nic + 0x20, WINDOW, 4)
    e.put(nic + 0x24, 0, 4)
    e.put(nic + 0x04, 0x106, 2)


def port_seen(e, slot):
    """Registers of a port, but for what is the link's own (its status differs from QEMU's)."""
    return [e.get(function(0, slot) + at, 4)
            for at in (*range(0, 0x64, 4), *range(0x68, 0x90, 4), *range(0x100, 0x150, 4))]


def rng_start(e):
    """Drives the entropy device at 00:05.0 with a split ring of 8; three buffers, 100 bytes may
    come: the third stays."""
    at, common, ring = function(0, 5), 0xe0400000, m.RINGS + 0x80000
    e.put(at + 0x14, 0xe0410000, 4)
    e.put(at + 0x20, common, 4)
    e.put(at + 0x24, 0, 4)
    e.put(at + 0x04, 0x106, 2)
    for status in (0, 1, 3):
        e.put(common + 0x14, status, 1)
    for half, bits in ((0, 0), (1, 1)):
        e.put(common + 0x08, half, 4)
        e.put(common + 0x0c, bits, 4)
    e.put(common + 0x14, 11, 1)
    e.put(common + 0x16, 0, 2)
    e.put(common + 0x18, 8, 2)
    for register, address in ((0x20, ring), (0x28, ring + 0x1000), (0x30, ring + 0x2000)):
        e.put(common + register, address, 4)
        e.put(common + register + 4, 0, 4)
    e.put(common + 0x1c, 1, 2)
    e.put(common + 0x14, 15, 1)
    rng_post(e, ring, 3)
    e.put(common + 0x3000, 0, 2)
    wait(lambda: rng_used(e) == 2, lambda: rng_used(e))


def rng_post(e, ring, count):
    for i in range(count):
        e.write(ring + 16 * i, struct.pack("<QIHH", RNG_BUFFERS + 64 * i, 50, 2, 0))
        e.write(ring + 0x1004 + 2 * i, struct.pack("<H", i))
    e.write(RNG_BUFFERS, b"\xff" * 64 * count)
    e.put(ring + 0x1002, count, 2)


def rng_used(e, ring=m.RINGS + 0x80000):
    return e.get(ring + 0x2002, 2)


def wait(condition, what):
    deadline = time.monotonic() + m.TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.002)


class PortDriver(m.Driver):
    """A NIC behind the port."""

    def __init__(self, e, features):
        super().__init__(e, mask([*features, m.F_VERSION_1]))

    def common(self, offset, size, value=None):
        return self.e.get(WINDOW + offset, size) if value is None else \
            self.e.put(WINDOW + offset, value, size)

    def notify(self, queue):
        self.e.put(WINDOW + 0x3000 + 4 * queue, queue, 2)

    def start(self, vectors=False):
        del vectors
        self.common(0x14, 1, 0)
        self.common(0x14, 1, 3)
        for half in (0, 1):
            self.common(0x08, 4, half)
            self.common(0x0c, 4, self.features >> (32 * half) & 0xffffffff)
        self.common(0x14, 1, 11)
        for queue in (m.RX, m.TX):
            self.common(0x16, 2, queue)
            self.common(0x18, 2, self.SIZE)
            for at, address in zip((0x20, 0x28, 0x30), self.ring(queue)):
                self.common(at, 4, address)
                self.common(at + 4, 4, 0)
            self.common(0x1c, 2, 1)
        self.common(0x14, 1, 15)


def migrate(source, target, running=True):
    uri = f"unix:{target.path('incoming')}"
    target.command("migrate-incoming", uri=uri)
    source.command("migrate", uri=uri)
    info = source.wait_migration("completed", "failed")
    assert info["status"] == "completed", (info, target.command("query-migrate"))
    info = target.wait_migration("completed", "failed")
    assert info["status"] == "completed", info
    if running:
        target.wait_running()


def one_frame(e, driver, number):
    driver.e = e
    frame = driver.send(number)
    driver.notify(m.TX)
    assert e.receive(5000) == frame


@test
def q35_root_port_and_what_is_behind():
    with q35(OURS) as a, q35(OURS, incoming="defer") as b:
        open_port(a)
        driver = PortDriver(a, NET_FEATURES)
        driver.start()
        one_frame(a, driver, 0)
        seen = [port_seen(a, slot) for slot in (2, 3)]
        a.put(function(0, 2) + 0x6c, 0x0239, 2)  # an event that nobody has acknowledged
        pending = a.get(function(0, 2) + 0x6e, 2)
        assert pending & 0x50 == 0x50, hex(pending)
        seen[0][0x68 // 4] = a.get(function(0, 2) + 0x6c, 4)
        migrate(a, b)
        after = [port_seen(b, slot) for slot in (2, 3)]
        assert b.get(function(0, 2) + 0x6e, 2) == pending
        seen = [port_seen(a, slot) for slot in (2, 3)]
        assert after == seen, [hex(i) for i in range(len(seen[0])) if seen[0][i] != after[0][i]]
        # The interrupt of the event is there as well: pin A is up.
        assert b.get(function(0, 2) + 0x06, 2) & 8
        assert b.get(function(1, 0), 4) == 0x10411af4
        one_frame(b, driver, 1)
        # The slot answers: power off takes the device away.
        b.put(function(0, 2) + 0x6c, 0x0739, 2)
        wait(lambda: not b.get(function(0, 2) + 0x6e, 2) & 0x40, lambda: "still there")
        assert b.get(function(1, 0), 4) == 0xffffffff


@test
def rng_pci_keeps_its_buffers():
    with q35(OURS) as a, q35(OURS, incoming="defer") as b:
        open_port(a)
        rng_start(a)
        assert a.read(RNG_BUFFERS + 128, 50) == b"\xff" * 50
        migrate(a, b)
        wait(lambda: rng_used(b) == 3, lambda: rng_used(b))
        assert b.read(RNG_BUFFERS, 192) == (bytes(50) + b"\xff" * 14) * 3
        assert rng_used(a) == 2


# --- microvm ---

class MmioDriver(m.Driver):
    """A driver of a virtio-mmio slot, legacy or modern."""

    ALIGN = 0x800

    def __init__(self, e, slot, features, legacy, queues=2):
        super().__init__(e, mask(features if legacy else [*features, m.F_VERSION_1]))
        self.base, self.legacy, self.queues = 0xfeb00000 + 0x200 * slot, legacy, queues
        self.SIZE = 64 if queues == 2 else 8

    def reg(self, offset, value=None):
        return self.e.get(self.base + offset, 4) if value is None else \
            self.e.put(self.base + offset, value, 4)

    def ring(self, queue):
        base = m.RINGS + 0x10000 * queue + (0x80000 if self.queues == 1 else 0)
        if not self.legacy:
            return base, base + 0x4000, base + 0x8000
        end = base + 16 * self.SIZE + 2 * (3 + self.SIZE)
        return base, base + 16 * self.SIZE, (end + self.ALIGN - 1) & -self.ALIGN

    def notify(self, queue):
        self.reg(0x50, queue)

    def start(self, vectors=False):
        del vectors
        assert self.reg(0x04) == (1 if self.legacy else 2), "version"
        for status in (0, 1, 3):
            self.reg(0x70, status)
        for half in (0,) if self.legacy else (0, 1):
            self.reg(0x24, half)
            self.reg(0x20, self.features >> (32 * half) & 0xffffffff)
        if self.legacy:
            self.reg(0x28, 4096)
        else:
            self.reg(0x70, 11)
            assert self.reg(0x70) == 11
        for queue in range(self.queues):
            self.reg(0x30, queue)
            self.reg(0x38, self.SIZE)
            if self.legacy:
                self.reg(0x3c, self.ALIGN)
                self.reg(0x40, self.ring(queue)[0] >> 12)
            else:
                for at, address in zip((0x80, 0x90, 0xa0), self.ring(queue)):
                    self.reg(at, address)
                    self.reg(at + 4, 0)
                self.reg(0x44, 1)
        self.reg(0x70, 7 if self.legacy else 15)

    def registers(self):
        seen = {"id": self.reg(0x08), "status": self.reg(0x70), "isr": self.reg(0x60),
                "config": self.e.read(self.base + 0x100, 6)}
        for queue in range(self.queues):
            self.reg(0x30, queue)
            seen[f"queue {queue}"] = self.reg(0x40 if self.legacy else 0x44)
        return seen


def microvm(command, legacy, *args, device="", **kwargs):
    ours = command is OURS
    kwargs.setdefault("accel", "qtest" if ours else "tcg")
    if ours:
        device = f"x-soft-offloads=off,{device}".rstrip(",")
    extra = [] if ours else ["-global", "virtio-mmio.ioeventfd=off"]
    return m.Emulator(command, *extra, "-global",
                      f"virtio-mmio.force-legacy={'on' if legacy else 'off'}",
                      "-object", "rng-random,id=r0,filename=/dev/zero", *args,
                      "-device", "virtio-rng-device,rng=r0,max-bytes=100,period=100000,"
                      "bus=virtio-mmio-bus.6",
                      machine="microvm" if ours else "microvm,ioapic2=off",
                      nic="virtio-net-device,bus=virtio-mmio-bus.7", device=device, **kwargs)


def mmio_drive(e, legacy):
    """A NIC with buffers posted and a packet that waits; an entropy device with one buffer left."""
    net = MmioDriver(e, 7, NET_FEATURES, legacy)
    net.start()
    for i in range(3):
        net.post(i)
    net.notify(m.RX)
    waiting = net.send(0)
    net.notify(m.TX)
    assert e.receive(20) is None
    rng = MmioDriver(e, 6, [], legacy, queues=1)
    rng.start()
    desc, avail, used = rng.ring(0)
    e.write(RNG_BUFFERS, b"\xff" * 192)
    for i in range(3):
        e.write(desc + 16 * i, struct.pack("<QIHH", RNG_BUFFERS + 64 * i, 50, 2, 0))
        e.write(avail + 4 + 2 * i, struct.pack("<H", i))
    e.put(avail + 2, 3, 2)
    rng.notify(0)
    wait(lambda: e.get(used + 2, 2) == 2, lambda: e.get(used + 2, 2))
    return net, rng, waiting


def mmio_goes_on(e, net, rng, waiting):
    net.e = rng.e = e
    e.step(2000000000)
    assert e.receive(5000) == waiting
    wait(lambda: net.used(m.TX) == 1, lambda: net.used(m.TX))
    assert e.receive(20) is None, "sent twice"
    frame = net.send(1)
    net.notify(m.TX)
    net.notify(m.TX)
    assert e.receive(5000) == frame
    e.peer.sendto(bytes.fromhex("525400123456525400000001") + b"\x88\xb5" + b"x" * 50,
                  ("127.0.0.1", e.net_port))
    wait(lambda: net.used(m.RX) == 1, lambda: net.used(m.RX))
    wait(lambda: rng.used(0) == 3, lambda: rng.used(0))
    assert e.read(RNG_BUFFERS, 192) == (bytes(50) + b"\xff" * 14) * 3


TIMER = "tx=timer,x-txtimer=1500000000"


def microvm_round_trip(legacy):
    with microvm(OURS, legacy, device=TIMER) as a, \
            microvm(OURS, legacy, device=TIMER, incoming="defer") as b:
        net, rng, waiting = mmio_drive(a, legacy)
        a.ask("outw 0x510 0x3")  # fw_cfg: RAM size, two bytes of it read
        assert a.ask("inb 0x511") + a.ask("inb 0x511") == "0x00000x0000"
        seen = net.registers(), rng.registers()
        b.ask("irq_intercept_in ioapic")
        a.command("stop")  # nothing but loading raises the line
        migrate(a, b, running=False)
        net.e = rng.e = b
        assert (net.registers(), rng.registers()) == seen
        assert "raise 11" in b.irqs, b.irqs  # line 5 + 6: the entropy device has interrupted
        assert [int(b.ask("inb 0x511"), 0) for _ in range(2)] == [0, 4]  # 64 MiB
        b.command("cont")
        mmio_goes_on(b, net, rng, waiting)
        rng.reg(0x64, 1)
        assert b.irqs[-1] == "lower 11" and rng.reg(0x60) == 0, b.irqs


@test
def microvm_legacy():
    microvm_round_trip(True)


@test
def microvm_modern():
    microvm_round_trip(False)


@test
def microvm_slots_must_be_alike():
    for legacy, text in ((True, "the saved slot has force-legacy=on, this one off"),
                         (False, "the saved slot has force-legacy=off, this one on")):
        with microvm(OURS, legacy) as a:
            stream = a.save()
        expect_refused(lambda incoming, legacy=legacy: microvm(OURS, not legacy,
                                                               incoming=incoming), stream, text)


# --- values that nobody should send ---

def expect_refused(start, stream, text):
    """None: it loads."""
    path = Path(f"/tmp/swnic-machines-{os.getpid()}")
    path.write_bytes(stream)
    try:
        with start("defer") as e:
            e.command("migrate-incoming", uri=f"file:{path}", **{"exit-on-error": False})
            info = e.wait_migration("completed", "failed")
            if text is None:
                assert info["status"] == "completed", info
            else:
                assert info["status"] == "failed" and text in info["error-desc"], (info, text)
                assert e.command("query-status")["status"] == "inmigrate"
            status = e.close()[0]
            assert status == 0, status
    finally:
        path.unlink()


def hostile(start, section, cases):
    with start(None) as e:
        stream = decode.Stream(e.save())
    for suffix, offset, value, text in cases:
        field = stream.field(section, suffix)
        data = bytearray(stream.reader.data)
        size = field.size if offset is None else 1
        at = field.at + (offset or 0)
        data[at:at + size] = value.to_bytes(size, "big")
        try:
            expect_refused(start, bytes(data), text)
        except AssertionError as error:
            raise AssertionError(f"{section} {suffix}+{offset}={value:#x}: {error}") from error


@test
def hostile_root_port():
    """Bytes of configuration space that a guest cannot write, the error log, interrupts."""
    hostile(lambda incoming: q35(OURS, incoming=incoming), PORT_SECTION, [
        ("pci.version_id", None, 3, "version_id 3 > 2"),
        ("pci.config", 0x00, 0x37, "PCI configuration byte 0x00"),
        ("pci.config", 0x34, 0x48, "PCI configuration byte 0x34"),
        ("pci.config", 0x44, 0x37, "PCI configuration byte 0x44"),
        ("pci.config", 0x56, 0x52, "PCI configuration byte 0x56"),   # another kind of port
        ("pci.config", 0x6a, 0x42, "PCI configuration byte 0x6a"),   # another slot number
        ("pci.config", 0x6e, 0xff, None),                            # what the slot says: seen here
        ("pci.config", 0x103, 0x24, "PCI configuration byte 0x103"),
        ("pci.config", 0x14c, 0x5e, "PCI configuration byte 0x14c"),
        ("pci.config", 0xfff, 0xff, None),                           # nothing is there
        ("pci.config", 0x19, 0xff, None),                            # bus numbers are the guest's
        ("pci.config", 0x3e, 0x40, None),                            # so is a bus held in reset
        ("pci.irq_state[0]", None, 2, "irq_state[0] 2 > 1"),
        ("aer_log.log_num", None, 9, "log_num 9 > 8"),
        ("aer_log.log_num", None, 0xffff, "log_num 65535 > 8"),
        ("aer_log.log_max", None, 9, "log_max 9"),
        ("msix.table", 12, 0xff, None),
    ])


@test
def errors_in_the_log_are_read_over():
    with q35(OURS) as e:
        stream = decode.Stream(e.save())
    field = stream.field(PORT_SECTION, "aer_log.log_max")
    data = stream.reader.data
    for count in (1, 8):
        log = struct.pack(">HH", count, 8) + bytes(40) * count
        expect_refused(lambda incoming: q35(OURS, incoming=incoming),
                       data[:field.at - 2] + log + data[field.at + 2:], None)


@test
def hostile_mmio():
    for legacy in (True, False):
        section = f"{MMIO[7]}/virtio-net"
        cases = [
            ("head.page_shift", None, 31, None),
            ("head.page_shift", None, 32, "page_shift 32 > 31"),
            ("head.page_shift", None, 0xffffffff, "page_shift 4294967295 > 31"),
            ("queues[0].align", None, 0, "queues[0].align 0 is not a power of two"),
            ("queues[1].align", None, 4097, "queues[1].align 4097 is not a power of two"),
            ("queues[1].align", None, 0x80000000, None),
            ("queues[1].num", None, 1025, "num 1025 > 1024"),
            ("head.num_queues", None, 1025, "num_queues 1025 > 1024"),
            ("head.dfselect", None, 0xffffffff, None),
            ("head.gfselect", None, 0xffffffff, None),
        ]
        if not legacy:
            cases.append(("state.queues[9].modern_enabled", None, 2, "modern_enabled 2 > 1"))
        hostile(lambda incoming, legacy=legacy: microvm(OURS, legacy, incoming=incoming), section,
                cases)


@test
def hostile_rng():
    hostile(lambda incoming: q35(OURS, incoming=incoming), RNG_SECTION, [
        ("head.num_queues", None, 2, "queues[1].num"),
        ("head.num_queues", None, 0, "does not end where it should"),
        ("queues[0].num", None, 16, "num 16"),
        ("queues[0].num", None, 0, "num 0"),
        ("queues[0].vector", None, 2, "vector 2 >= 2"),
        ("64bit_features.features64", None, 1 << 62, "unsupported"),
    ])


# --- QEMU: one section goes over ---

def swap(stream, section, other):
    start, end = m.find_section(stream, section.encode())
    a, b = m.find_section(other, section.encode())
    return stream[:start] + other[a:b] + stream[end:]


def both_ways(start, sections, drive, check):
    """What each side saves, the other loads in its own stream."""
    streams, states = {}, {}
    for command in (OURS, start.qemu):
        with start(command) as e:
            states[command is OURS] = drive(e)
            streams[command is OURS] = e.save()
    for section in sections:
        ours, theirs = (streams[k][slice(*m.find_section(streams[k], section.encode()))]
                        for k in (True, False))
        differ = [i for i in range(min(len(ours), len(theirs))) if ours[i] != theirs[i]]
        print(f"# {section}: {len(ours)} bytes here, {len(theirs)} in QEMU, {len(differ)} differ "
              f"{[hex(i) for i in differ[:8]]}", flush=True)
    for ours in (True, False):
        stream = streams[ours]
        for section in sections:
            stream = swap(stream, section, streams[not ours])
        path = Path(f"/tmp/swnic-machines-{os.getpid()}")
        path.write_bytes(stream)
        try:
            with start(OURS if ours else start.qemu, incoming=f"exec:cat {path}") as e:
                info = e.wait_migration("completed", "failed")
                assert info["status"] == "completed", (ours, info, e.close())
                e.wait_running()
                check(e, states[not ours])
        finally:
            path.unlink()


def starter(function, qemu, *fixed):
    def start(command, **kwargs):
        return function(command, *fixed, **kwargs)
    start.qemu = qemu
    return start


def qemu_ports(qemu):
    def ports(e):
        seen = [port_seen(e, slot) for slot in (2, 3)]
        for port in seen:
            port[1] &= ~0x80000  # when a completed command interrupts is QEMU's own
        return seen

    def drive(e):
        open_port(e)
        rng_start(e)
        return ports(e)

    def check(e, seen):
        after = ports(e)
        for before, now in zip(seen, after):
            assert before == now, [(i, hex(x), hex(y)) for i, (x, y) in
                                   enumerate(zip(before, now)) if x != y]
        wait(lambda: rng_used(e) == 3, lambda: rng_used(e))

    both_ways(starter(q35, qemu), [PORT_SECTION, PORT_SECTION.replace("02", "03"), RNG_SECTION],
              drive, check)


def qemu_mmio(qemu, legacy):
    def check(e, state):
        net, rng, waiting, seen = state
        net.e = rng.e = e
        assert (net.registers(), rng.registers()) == seen
        mmio_goes_on(e, net, rng, waiting)

    def drive(e):
        net, rng, waiting = mmio_drive(e, legacy)
        return net, rng, waiting, (net.registers(), rng.registers())

    def start(command, **kwargs):
        return microvm(command, legacy, device=TIMER, **kwargs)

    start.qemu = qemu
    both_ways(start, [f"{MMIO[7]}/virtio-net", f"{MMIO[6]}/virtio-rng"], drive, check)


for version, command in QEMUS:
    TESTS.append((f"qemu_{version}_ports_and_rng", lambda c=command: qemu_ports(c())))
    for kind in (True, False):
        TESTS.append((f"qemu_{version}_mmio_{'legacy' if kind else 'modern'}",
                      lambda c=command, k=kind: qemu_mmio(c(), k)))


if __name__ == "__main__":
    sys.exit(m.run_tests(TESTS))
