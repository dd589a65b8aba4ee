"""An emulator (ours, or a QEMU) with one virtio-net-pci device, driven over qtest and QMP, and the
few steps of a virtio driver that migration tests need: everything at fixed addresses, so that two
emulators told the same have the same memory."""
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time

TIMEOUT = 20
SLOT = 4
COMMON, ISR, DEVICE, NOTIFY = 0xe0000000, 0xe0001000, 0xe0002000, 0xe0003000
MSIX = 0xe0010000
RINGS = 0x1000000       # 64 KiB a queue
BUFFERS = 0x1100000
MESSAGES = 0x1f00000    # where MSI-X messages go
RX, TX, CTRL = 0, 1, 2

F_MAC, F_GUEST_ANNOUNCE, F_STATUS = 5, 21, 16
F_MRG_RXBUF, F_CTRL_VQ, F_CTRL_RX, F_CTRL_VLAN, F_CTRL_RX_EXTRA = 15, 17, 18, 19, 20
F_MQ, F_RSS, F_HASH_REPORT = 22, 60, 57
F_STANDBY = 62
F_CTRL_MAC_ADDR, F_INDIRECT, F_EVENT_IDX, F_VERSION_1, F_PACKED = 23, 28, 29, 32, 34


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Channel:
    """A line protocol on a UNIX socket that the emulator connects to."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.socket, self.data = None, b""

    def accept(self, process):
        self.listener.settimeout(0.2)
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self.socket = self.listener.accept()[0]
                self.socket.settimeout(TIMEOUT)
                return
            except TimeoutError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"no connection: {process.stderr.read()}") from None

    def send(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def line(self):
        while b"\n" not in self.data:
            piece = self.socket.recv(65536)
            if not piece:
                raise EOFError("the emulator closed its socket")
            self.data += piece
        line, self.data = self.data.split(b"\n", 1)
        return line.decode().strip()


class Emulator:
    def __init__(self, command, *args, device="", netdev=True, incoming=None, accel="tcg",
                 pass_fds=(), tap_queues=0, machine="pc-i440fx-7.2", nic=None, more=()):
        """@command: list; @incoming: as -incoming takes it; @accel: qtest is ours only; @nic: the
        NIC's type and place, where it is not virtio-net-pci in slot 4; @more: arguments after it."""
        self.folder = tempfile.TemporaryDirectory(prefix="swnic-mig-")
        self.events, self.irqs, self.ended = [], [], None
        qtest, qmp = self.path("qtest"), self.path("qmp")
        self.qtest, self.qmp = Channel(qtest), Channel(qmp)
        net, self.accel = [], accel
        nic = nic or f"virtio-net-pci,addr={SLOT:#x},romfile=,ioeventfd=off"
        bios = []
        if "qemu-system" in "".join(command):
            bios = ["-bios", self.path("bios")]
            with open(bios[1], "wb") as f:  # cli; hlt; and again
                f.write(bytes(0xfff0) + b"\xfa\xf4\xeb\xfd" + bytes(12))
        self.peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.peer.bind(("127.0.0.1", 0))
        self.peer.settimeout(TIMEOUT)
        if tap_queues:
            net = ["-netdev", f"tap,id=n0,queues={tap_queues},script=no,downscript=no"]
            device = f"netdev=n0,{device}"
        elif netdev:
            port = self.net_port = free_port()
            net = ["-netdev", "dgram,id=n0,local.type=inet,local.host=127.0.0.1,"
                   f"local.port={port},remote.type=inet,remote.host=127.0.0.1,"
                   f"remote.port={self.peer.getsockname()[1]}"]
            device = f"netdev=n0,{device}"
        self.process = subprocess.Popen(
            [*command, "-qtest", f"unix:{qtest}", "-qtest-log", "none", "-display", "none",
             "-nodefaults", "-accel", accel, *bios, "-chardev", f"socket,path={qmp},id=q0",
             "-mon", "chardev=q0,mode=control", "-machine", machine, "-m", "64", *net,
             *args, "-device", f"{nic},id=nic0,mac=52:54:00:12:34:56,{device}".rstrip(","),
             *more, *(["-incoming", incoming] if incoming else [])],
            stderr=subprocess.PIPE, text=True, pass_fds=pass_fds)
        try:
            self.qtest.accept(self.process)
            self.qmp.accept(self.process)
            self.qmp.line()
            self.command("qmp_capabilities")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def path(self, name):
        return os.path.join(self.folder.name, name)

    # --- QMP ---

    def command(self, name, **arguments):
        self.qmp.send(json.dumps({"execute": name, "arguments": arguments}))
        while True:
            answer = json.loads(self.qmp.line())
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{name}: {answer['error']['desc']}")
            else:
                return answer["return"]

    def wait_migration(self, *states):
        deadline = time.monotonic() + TIMEOUT
        while True:
            info = self.command("query-migrate")
            if info.get("status") in states:
                return info
            if time.monotonic() > deadline:
                raise TimeoutError(f"migration stays {info}")
            time.sleep(0.005)

    def wait_running(self):
        deadline = time.monotonic() + TIMEOUT
        while not self.command("query-status")["running"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not running: {self.command('query-status')}")
            time.sleep(0.005)

    def save(self):
        """The whole stream, as bytes."""
        path = self.path("stream")
        self.command("migrate", uri=f"exec:cat >{path}")
        info = self.wait_migration("completed", "failed")
        assert info["status"] == "completed", info
        with open(path, "rb") as f:
            return f.read()

    def close(self):
        """Ends it; (exit status, standard error)."""
        if self.ended:
            return self.ended
        if self.process.poll() is None:
            try:
                self.qmp.send('{"execute": "quit"}')
            except OSError:
                pass
        try:
            status = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        text = self.process.stderr.read()
        for s in (self.qtest.socket, self.qmp.socket, self.qtest.listener, self.qmp.listener,
                  self.peer):
            if s:
                s.close()
        self.process.stderr.close()
        self.folder.cleanup()
        self.ended = (status, text)
        assert "Sanitizer" not in text and "runtime error" not in text, text
        return self.ended

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    # --- qtest ---

    def ask(self, text):
        self.qtest.send(text)
        while True:
            words = self.qtest.line().split(" ")
            if words[0] == "IRQ":
                self.irqs.append(" ".join(words[1:]))
                continue
            assert words[0] == "OK", (text, words)
            return words[1] if len(words) > 1 else None

    def read(self, address, size):
        return bytes.fromhex(self.ask(f"read {address:#x} {size:#x}")[2:])

    def write(self, address, data):
        if data:
            self.ask(f"write {address:#x} {len(data):#x} 0x{data.hex()}")

    def get(self, address, size):
        return int(self.ask(f"read{'-bw-l---q'[size]} {address:#x}"), 0)

    def put(self, address, value, size):
        self.ask(f"write{'-bw-l---q'[size]} {address:#x} {value:#x}")

    def step(self, ns):
        if self.accel == "qtest":
            self.ask(f"clock_step {ns}")

    def config(self, offset, value=None):
        self.ask(f"outl 0xcf8 {0x80000000 | SLOT << 11 | offset:#x}")
        if value is None:
            return int(self.ask("inl 0xcfc"), 0)
        return self.ask(f"outl 0xcfc {value:#x}")

    # --- the peer ---

    def receive(self, ms):
        """A frame that the device sent, or None; announcements are left out."""
        deadline = time.monotonic() + ms / 1000
        while select.select([self.peer], [], [], max(deadline - time.monotonic(), 0))[0]:
            frame = self.peer.recv(65536)
            if frame[12:14] != b"\x80\x35":
                return frame
        return None


class Driver:
    """A driver with split or packed rings of 64 entries."""
    SIZE = 64

    def __init__(self, emulator, features, packed=False, pairs=1):
        self.e, self.features, self.packed = emulator, features, packed
        self.ctrl = 2 * pairs
        self.avail = [0] * (2 * pairs + 1)

    def common(self, offset, size, value=None):
        if value is None:
            return self.e.get(COMMON + offset, size)
        return self.e.put(COMMON + offset, value, size)

    def start(self, vectors=True):
        e = self.e
        e.config(0x14, MSIX)
        e.config(0x20, COMMON)
        e.config(0x24, 0)
        e.config(0x04, 0x106)
        if vectors:
            for v in range(self.ctrl + 2):
                e.write(MSIX + 16 * v, struct.pack("<QII", MESSAGES + 4 * v, 0x1000 + v,
                                                   v == self.ctrl + 1))
            e.config(0x98, e.config(0x98) | 0x80000000)
        self.common(0x14, 1, 0)
        self.common(0x14, 1, 3)
        offered = 0
        for half in (0, 1):
            self.common(0x00, 4, half)
            offered |= self.common(0x04, 4) << (32 * half)
        missing = self.features & ~offered
        assert not missing, f"features {missing:#x} are not offered"
        for half in (0, 1):
            self.common(0x08, 4, half)
            self.common(0x0c, 4, self.features >> (32 * half) & 0xffffffff)
        self.common(0x14, 1, 11)
        assert self.common(0x14, 1) == 11
        if vectors:
            self.common(0x10, 2, self.ctrl + 1)
        for queue in range(self.ctrl + 1):
            self.common(0x16, 2, queue)
            self.common(0x18, 2, self.SIZE)
            if vectors:
                self.common(0x1a, 2, queue)
            desc, avail, used = self.ring(queue)
            for at, address in ((0x20, desc), (0x28, avail), (0x30, used)):
                self.common(at, 4, address)
                self.common(at + 4, 4, 0)
            self.common(0x1c, 2, 1)
        self.common(0x14, 1, 15)

    @staticmethod
    def ring(queue):
        base = RINGS + 0x10000 * queue
        return base, base + 0x4000, base + 0x8000

    def add(self, queue, parts):
        """Makes a chain of (address, length, writable) available at descriptors from the next."""
        desc, avail, _ = self.ring(queue)
        first = self.avail[queue]
        if self.packed:
            # Written last first: the chain is there with its head's flags.
            for i in reversed(range(len(parts))):
                address, length, writable = parts[i]
                slot, lap = (first + i) % self.SIZE, (first + i) // self.SIZE % 2 == 0
                flags = (2 if writable else 0) | (1 if i + 1 < len(parts) else 0)
                flags |= 0x80 if lap else 0x8000
                self.e.write(desc + 16 * slot,
                             struct.pack("<QIHH", address, length, first % self.SIZE, flags))
            self.avail[queue] += len(parts)
            return
        head = first * (4 if len(parts) > 1 else 1) % self.SIZE
        for i, (address, length, writable) in enumerate(parts):
            flags = (2 if writable else 0) | (1 if i + 1 < len(parts) else 0)
            self.e.write(desc + 16 * (head + i),
                         struct.pack("<QIHH", address, length, flags, head + i + 1))
        self.e.put(avail + 4 + 2 * (first % self.SIZE), head, 2)
        self.avail[queue] += 1
        self.e.put(avail + 2, self.avail[queue] & 0xffff, 2)

    def notify(self, queue):
        self.e.put(NOTIFY + 4 * queue, queue, 2)

    def used(self, queue):
        """Used index (split), or how many descriptors at the front are used (packed)."""
        desc, _, used = self.ring(queue)
        if not self.packed:
            return self.e.get(used + 2, 2)
        count = 0
        while count < self.SIZE:
            flags = self.e.get(desc + 16 * count + 14, 2)
            if (flags & 0x8080) != 0x8080:
                break
            count += 1
        return count

    def send(self, number, size=100):
        """A recognisable frame, not yet notified."""
        address = BUFFERS + 0x1000 * number
        frame = bytes.fromhex("525400000001525400123456 88b5") + bytes([number]) * (size - 14)
        self.e.write(address, bytes(12) + frame)
        self.add(TX, [(address, 12 + size, False)])
        return frame

    def post(self, number, size=2048):
        self.add(RX, [(BUFFERS + 0x80000 + 0x1000 * number, size, True)])

    def control(self, klass, command, data):
        at = BUFFERS + 0x70000
        self.e.write(at, bytes([klass, command]) + data)
        self.e.write(at + 0x800, b"\xff")
        used = self.used(self.ctrl)
        parts = [(at, 2, False), (at + 2, len(data), False), (at + 0x800, 1, True)]
        self.add(self.ctrl, parts)
        self.notify(self.ctrl)
        deadline = time.monotonic() + TIMEOUT
        while self.used(self.ctrl) == used:
            assert time.monotonic() < deadline, "no answer to a command"
        assert self.e.read(at + 0x800, 1) == b"\0", "command failed"

    def registers(self):
        """What a driver can see, to be compared."""
        seen = {"config space": [self.e.config(i) for i in range(0, 256, 4) if i not in (0x94,)],
                "status": self.common(0x14, 1), "config vector": self.common(0x10, 2),
                "config": self.e.read(DEVICE, 8)}
        for half in (0, 1):
            self.common(0x08, 4, half)
            seen[f"features {half}"] = self.common(0x0c, 4)
        for queue in range(self.ctrl + 1):
            self.common(0x16, 2, queue)
            seen[f"queue {queue}"] = [self.common(at, size) for at, size in (
                (0x18, 2), (0x1a, 2), (0x1c, 2), (0x20, 4), (0x24, 4), (0x28, 4), (0x2c, 4),
                (0x30, 4), (0x34, 4))]
        seen["msix"] = self.e.read(MSIX, 16 * (self.ctrl + 2))
        seen["pending"] = self.e.read(MSIX + 0x800, 8)
        return seen


IDSTR = b"0000:00:04.0/virtio-net"


def find_section(stream, idstr=IDSTR):
    """(start, end) of the payload of the section named @idstr."""
    at = stream.index(bytes([len(idstr)]) + idstr)
    section_id = stream[at - 4:at]
    assert stream[at - 5] == 4, "not a full section"
    start = at + 1 + len(idstr) + 8
    footer = b"\x7e" + section_id
    end = stream.index(footer, start)
    while stream[end + 5] not in (0, 1, 2, 3, 4, 8):
        end = stream.index(footer, end + 1)
    return start, end


def swap_section(stream, payload):
    start, end = find_section(stream)
    return stream[:start] + payload + stream[end:]


def run_tests(tests):
    """@tests: (name, function), those named on the command line or all, as TAP; the exit status."""
    tests = [test for test in tests if not sys.argv[1:] or test[0] in sys.argv[1:]]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, function) in enumerate(tests, 1):
        begin = time.monotonic()
        try:
            function()
            result = "ok"
        except Exception as error:  # the others are still worth knowing
            failed += 1
            result = "not ok"
            at = error.__traceback__
            while at.tb_next:
                at = at.tb_next
            print(f"# line {at.tb_lineno}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
        print(f"{result} {number} {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 1 if failed else 0
