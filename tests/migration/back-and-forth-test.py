#!/usr/bin/env python3
"""The same guest moves from process to process, again and again, with frames in both directions at
every moment: before, while RAM is copied, waiting under a transmit policy, and after.  Policies,
ring layouts and ways of handing RAM over alternate.  Every frame the driver sends must leave exactly
once and in order, every frame that a running device is sent must arrive exactly once.

12 rounds; SWNIC_TEST_FULL=1: 200."""
import os
import statistics
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import emulator as m  # noqa: E402

OURS = [os.environ["SWNIC_BINARY"]]
ROUNDS = 200 if os.environ.get("SWNIC_TEST_FULL") else 12
POLICIES = ("bh", "timer", "flush-first")
FEATURES = [m.F_MAC, m.F_STATUS, m.F_VERSION_1, m.F_MRG_RXBUF]
HEAD = bytes.fromhex("525400000001525400123456 88b5")


class Guest(m.Driver):
    """A driver whose rings go round: frames have sequence numbers."""

    def __init__(self, emulator, packed):
        features = FEATURES + ([m.F_PACKED] if packed else [m.F_EVENT_IDX])
        super().__init__(emulator, sum(1 << f for f in features), packed=packed)
        self.seen = [0, 0, 0]
        self.sent = self.arrived = self.offered = 0
        self.buffers = []  # RX: slots posted, oldest first

    def newly_used(self, queue):
        """How many buffers came back since this was asked last."""
        desc, _, used = self.ring(queue)
        if not self.packed:
            count = (self.e.get(used + 2, 2) - self.seen[queue]) & 0xffff
        else:
            count = 0
            while count < self.SIZE:
                slot, lap = divmod(self.seen[queue] + count, self.SIZE)[::-1]
                flags = self.e.get(desc + 16 * slot + 14, 2) & 0x8080
                if flags != (0x8080 if lap % 2 == 0 else 0):
                    break
                count += 1
        self.seen[queue] += count
        return count

    def transmit(self, count, notify=True):
        for _ in range(count):
            address = m.BUFFERS + 0x1000 * (self.avail[m.TX] % self.SIZE)
            self.e.write(address, bytes(12) + HEAD + struct.pack("<I", self.sent).ljust(86, b"t"))
            self.add(m.TX, [(address, 112, False)])
            self.sent += 1
        if notify:
            self.notify(m.TX)

    def post_buffers(self, count):
        for _ in range(count):
            address = m.BUFFERS + 0x80000 + 0x1000 * (self.avail[m.RX] % self.SIZE)
            self.add(m.RX, [(address, 2048, True)])
            self.buffers.append(address)
        self.notify(m.RX)

    def receive(self, expected):
        """Waits until @expected more frames are there, looks at each, posts buffers anew."""
        deadline = time.monotonic() + m.TIMEOUT
        got = 0
        while got < expected:
            for _ in range(self.newly_used(m.RX)):
                data = self.e.read(self.buffers.pop(0), 12 + 18)
                number = struct.unpack("<I", data[26:30])[0]
                assert number == self.arrived, f"frame {number} arrived, {self.arrived} is next"
                self.arrived += 1
                got += 1
            assert time.monotonic() < deadline, f"{got} of {expected} frames arrived"
        self.post_buffers(got)


class Test:
    def __init__(self, packed):
        self.packed, self.left = packed, 0
        self.downtimes = {True: [], False: []}  # ms, by whether RAM was handed over

    def open(self, number, ram, incoming=None):
        policy = POLICIES[number % 3]
        args = []
        if ram:
            args = ["-object", f"memory-backend-file,id=ram0,size=64M,share=on,mem-path={ram}",
                    "-machine", "memory-backend=ram0"]
        device = f"tx={policy},x-txtimer=2000000" + (",packed=on" if self.packed else "")
        return m.Emulator(OURS, *args, device=device, incoming=incoming)

    def drain(self, e, wait):
        """Frames that left @e: they come in order, each once."""
        while frame := e.receive(wait):
            number = struct.unpack("<I", frame[14:18])[0]
            assert number == self.left, f"frame {number} left, {self.left} is next"
            self.left += 1

    def drain_until(self, e, guest):
        deadline = time.monotonic() + m.TIMEOUT
        while self.left < guest.sent:
            self.drain(e, 5)
            assert time.monotonic() < deadline, f"{self.left} of {guest.sent} frames left"

    def feed(self, e, guest, count):
        for _ in range(count):
            e.peer.sendto(bytes.fromhex("525400123456525400000001 88b5") +
                          struct.pack("<I", guest.offered).ljust(86, b"r"),
                          ("127.0.0.1", e.net_port))
            guest.offered += 1

    def run(self):
        ram = f"/dev/shm/swnic-forth-{os.getpid()}"
        source = self.open(0, ram)
        try:
            guest = Guest(source, self.packed)
            guest.start()
            guest.post_buffers(50)
            for number in range(1, ROUNDS + 1):
                shared = number % 2 == 1
                target = self.open(number, ram if shared else ram + str(number % 4), "defer")
                source = self.move(source, target, guest, shared)
                if not shared:
                    os.unlink(ram)
                    ram += str(number % 4)
            assert self.left == guest.sent and guest.arrived == guest.offered
            return guest
        finally:
            source.close()
            os.unlink(ram)

    def move(self, source, target, guest, shared):
        for e in (source, target):
            e.command("migrate-set-capabilities", capabilities=[
                {"capability": "x-ignore-shared", "state": shared},
                {"capability": "return-path", "state": True}])
        guest.transmit(5)
        self.feed(source, guest, 5)
        uri = f"unix:{target.path('in')}"
        target.command("migrate-incoming", uri=uri)
        source.command("migrate", uri=uri)
        # While it goes on, and as it is: some are sent by the source, some by the target.
        guest.transmit(3)
        guest.receive(5)
        guest.transmit(3, notify=False)
        info = source.wait_migration("completed", "failed")
        assert info["status"] == "completed", info
        target.wait_migration("completed")
        target.wait_running()
        self.downtimes[shared].append(info["downtime"])
        self.drain(source, 2)
        status, errors = source.close()
        assert status == 0, (status, errors)
        guest.e = target
        guest.notify(m.TX)
        self.feed(target, guest, 4)
        guest.receive(4)
        guest.transmit(2)
        self.drain_until(target, guest)
        guest.newly_used(m.TX)
        return target


def show(milliseconds):
    return f"{statistics.median(milliseconds):g}, {max(milliseconds)} ms"


def main():
    print("1..2", flush=True)
    failed = 0
    for number, packed in enumerate((False, True), 1):
        test = Test(packed)
        try:
            guest = test.run()
            print(f"# {ROUNDS} migrations, {guest.sent} frames sent, {guest.arrived} received, "
                  f"downtime (median, most): {show(test.downtimes[True])} with RAM handed over, "
                  f"{show(test.downtimes[False])} copied", flush=True)
            print(f"ok {number} {'packed' if packed else 'split'}", flush=True)
        except Exception as error:  # the other one is still worth knowing
            failed += 1
            at = error.__traceback__
            while at.tb_next:
                at = at.tb_next
            print(f"# line {at.tb_lineno}: {type(error).__name__}: {str(error)[:1500]}")
            print(f"not ok {number} {'packed' if packed else 'split'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
