#!/usr/bin/env python3
"""Failover over a migration: a standby virtio-net on q35 with a primary behind a root port, that
the guest gives up before the migration goes on, and gets back on the destination, or on the source
where the migration fails.  The test plays the guest's slot driver."""
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import emulator as m  # noqa: E402

OURS = [os.environ["SWNIC_BINARY"]]
FEATURES = sum(1 << f for f in (m.F_MAC, m.F_STATUS, m.F_VERSION_1, m.F_MRG_RXBUF))
STANDBY = FEATURES | 1 << m.F_STANDBY
PORT = 0x80000000 | 2 << 11
SLTCTL = 0x6c           # and the slot's status above it
POWER_ON, BLINK, POWER_OFF = 0x0139, 0x0239, 0x0739
ABP, PDC, PDS = 0x01, 0x08, 0x40
PRIMARY = ("-netdev", "hubport,id=h0,hubid=0", "-device", "virtio-net-pci,id=primary0,netdev=h0,"
           "mac=52:54:00:12:34:56,bus=rp0,romfile=,failover_pair_id=nic0")
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def start(device="", port="pcie-root-port,id=rp0,addr=2,slot=7,chassis=1", **kwargs):
    kwargs.setdefault("more", PRIMARY)
    e = m.Emulator(OURS, "-device", port, machine="pc-q35-7.2", accel="qtest",
                   nic=f"virtio-net-pci,addr={m.SLOT:#x},romfile=,ioeventfd=off,failover=on",
                   device=device, **kwargs)
    e.command("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
    return e


class Slot:
    """The slot of the port as a guest's driver sees it."""

    def __init__(self, e):
        self.e = e

    def control(self, value):
        self.e.ask(f"outl 0xcf8 {PORT | SLTCTL:#x}")
        self.e.ask(f"outw 0xcfc {value:#x}")

    @property
    def status(self):
        self.e.ask(f"outl 0xcf8 {PORT | SLTCTL:#x}")
        return int(self.e.ask("inw 0xcfe"), 0)

    def acknowledge(self):
        self.e.ask(f"outl 0xcf8 {PORT | SLTCTL:#x}")
        self.e.ask("outw 0xcfe 0x1f")


def exists(e):
    return any(x["name"] == "primary0" for x in
               e.command("qom-list", path="/machine/peripheral"))


def wait(condition, what):
    deadline = time.monotonic() + m.TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def events(e, name):
    e.command("query-status")
    return [x.get("data") for x in e.events if x["event"] == name]


def begin(e):
    """A driver that knows of pairs; its primary comes, and the guest switches the slot on."""
    assert not exists(e)
    driver = m.Driver(e, STANDBY)
    driver.start()
    assert events(e, "FAILOVER_NEGOTIATED") == [{"device-id": "nic0"}]
    wait(lambda: exists(e), "no primary")
    slot = Slot(e)
    slot.control(POWER_ON)
    slot.acknowledge()
    assert slot.status & (PDS | PDC | ABP) == PDS, hex(slot.status)
    return driver, slot


def migrate(source, target):
    uri = f"unix:{target.path('incoming')}"
    target.command("migrate-incoming", uri=uri, **{"exit-on-error": False})
    source.command("migrate", uri=uri)


def asked_to_let_go(e, slot):
    """The migration waits, and the guest runs on."""
    e.wait_migration("wait-unplug")
    assert events(e, "UNPLUG_PRIMARY")[-1:] == [{"device-id": "primary0"}]
    assert slot.status & ABP and exists(e)
    assert e.command("query-status")["status"] == "running"


def one_frame(e, driver, number):
    driver.e = e
    frame = driver.send(number)
    driver.notify(m.TX)
    assert e.receive(5000) == frame


def arrived(e, driver, number):
    """The primary of the destination is there, and its slot says so."""
    info = e.wait_migration("completed", "failed")
    assert info["status"] == "completed", info
    e.wait_running()
    assert events(e, "FAILOVER_NEGOTIATED") == [{"device-id": "nic0"}]
    wait(lambda: exists(e), "no primary on the destination")
    slot = Slot(e)
    assert slot.status & (PDS | PDC | ABP) == PDS | PDC | ABP, hex(slot.status)
    one_frame(e, driver, number)
    slot.control(POWER_ON)
    slot.acknowledge()
    return slot


@test
def the_primary_leaves_and_comes_again():
    """And on to a third process."""
    with start() as a, start(incoming="defer") as b, start(incoming="defer") as c:
        driver, slot = begin(a)
        number = 0
        for source, target in ((a, b), (b, c)):
            source.events.clear()
            migrate(source, target)
            asked_to_let_go(source, slot)
            one_frame(source, driver, number)  # the standby carries on
            assert not exists(target)
            slot.control(POWER_OFF)
            info = source.wait_migration("completed", "failed")
            assert info["status"] == "completed", info
            assert not exists(source)
            states = [d["status"] for d in events(source, "MIGRATION")]
            assert states == ["setup", "wait-unplug", "active", "device", "completed"], states
            assert [d["device"] for d in events(source, "DEVICE_DELETED") if "device" in d] == \
                ["primary0"]
            slot = arrived(target, driver, number + 1)
            number += 2


@test
def a_slot_without_power_needs_no_guest():
    with start() as a, start(incoming="defer") as b:
        driver, slot = begin(a)
        slot.control(POWER_OFF)  # the guest did it by itself: it is gone
        assert not exists(a)
        migrate(a, b)
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        assert events(a, "UNPLUG_PRIMARY") == []
        arrived(b, driver, 0)


@test
def without_standby_it_stays_hidden():
    with start() as a, start(incoming="defer") as b:
        driver = m.Driver(a, FEATURES)
        driver.start()
        assert not exists(a)
        migrate(a, b)
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        assert b.wait_migration("completed", "failed")["status"] == "completed"
        assert events(a, "UNPLUG_PRIMARY") == events(b, "FAILOVER_NEGOTIATED") == []
        assert not exists(b)
        one_frame(b, driver, 0)


@test
def cancelled_while_the_guest_lets_go():
    """It goes all the same, since it was asked, and comes back."""
    with start() as a, start(incoming="defer") as b, start(incoming="defer") as c:
        driver, slot = begin(a)
        migrate(a, b)
        asked_to_let_go(a, slot)
        a.command("migrate_cancel")
        a.wait_migration("cancelled")
        assert exists(a)
        slot.acknowledge()
        slot.control(POWER_OFF)
        wait(lambda: slot.status & (PDS | ABP) == PDS | ABP, "it does not come back")
        assert exists(a) and events(a, "DEVICE_DELETED")
        slot.control(POWER_ON)
        slot.acknowledge()
        # And the next one is as the first.
        migrate(a, c)
        asked_to_let_go(a, slot)
        slot.control(POWER_OFF)
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        arrived(c, driver, 0)


@test
def cancelled_and_begun_again_while_the_guest_lets_go():
    with start() as a, start(incoming="defer") as b, start(incoming="defer") as c:
        driver, slot = begin(a)
        migrate(a, b)
        asked_to_let_go(a, slot)
        a.command("migrate_cancel")
        a.wait_migration("cancelled")
        slot.acknowledge()
        migrate(a, c)
        a.wait_migration("wait-unplug")
        assert not slot.status & ABP, "the button was pressed twice, which means: keep it"
        assert len(events(a, "UNPLUG_PRIMARY")) == 2
        slot.control(POWER_OFF)
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        assert not exists(a)
        arrived(c, driver, 0)


@test
def a_guest_that_refuses_fails_the_migration():
    with start() as a, start(incoming="defer") as b, start(incoming="defer") as c:
        driver, slot = begin(a)
        migrate(a, b)
        asked_to_let_go(a, slot)
        slot.acknowledge()
        slot.control(BLINK)
        slot.control(POWER_ON)
        info = a.wait_migration("failed", "completed")
        assert info["status"] == "failed", info
        assert "the primary device 'primary0' of 'nic0' was not given up by the guest" in \
            info["error-desc"], info
        assert len(events(a, "DEVICE_UNPLUG_GUEST_ERROR")) == 1
        assert exists(a) and a.command("query-status")["status"] == "running"
        # A user's own removal is no migration's: nothing comes back.
        slot.acknowledge()
        a.command("device_del", id="primary0")
        slot.control(POWER_OFF)
        wait(lambda: not exists(a), "still there")
        assert not slot.status & PDS
        migrate(a, c)
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        arrived(c, driver, 0)


@test
def a_destination_that_fails_gives_it_back():
    with start() as a, start(device="vectors=0", incoming="defer") as b:
        driver, slot = begin(a)
        migrate(a, b)
        asked_to_let_go(a, slot)
        slot.control(POWER_OFF)
        info = a.wait_migration("failed", "completed")
        assert info["status"] == "failed", info
        b.wait_migration("failed")
        assert not exists(b)
        wait(lambda: exists(a), "it does not come back")
        assert slot.status & (PDS | PDC | ABP) == PDS | PDC | ABP, hex(slot.status)
        assert a.command("query-status")["status"] == "running"
        one_frame(a, driver, 0)


@test
def a_driver_that_comes_during_a_migration():
    """STANDBY is accepted while nothing may be plugged: the primary comes when that is over."""
    with start() as a, start(incoming="defer") as b:
        a.command("migrate-set-capabilities", capabilities=[
            {"capability": "pause-before-switchover", "state": True}])
        migrate(a, b)
        a.wait_migration("pre-switchover")
        m.Driver(a, STANDBY).start()
        assert not exists(a)
        a.command("migrate_cancel")
        a.wait_migration("cancelled")
        wait(lambda: exists(a), "no primary")
        assert "could not be added" not in a.close()[1]


@test
def a_port_that_cannot_plug_gets_no_primary():
    with start(more=(), port="pcie-root-port,id=rp0,addr=2,slot=7,chassis=1,hotplug=off") as a:
        m.Driver(a, STANDBY).start()
        try:
            a.command("device_add", driver="virtio-net-pci", id="primary0", bus="rp0",
                      failover_pair_id="nic0")
        except RuntimeError as error:
            assert "Hot-plug failed: unsupported by the port device 'rp0'" in str(error), error
        else:
            raise AssertionError("it was plugged")


if __name__ == "__main__":
    sys.exit(m.run_tests([(t.__name__, t) for t in TESTS]))
