#!/usr/bin/env python3
"""Native PCI Express hotplug on machine q35: the test plays the guest's slot driver.

Prints TAP.  SWNIC_BINARY is the emulator.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
import async_tap  # noqa: E402
from qmp import Emulator, QmpError  # noqa: E402

PORT_DEVFN = 2 << 3
EXP = 0x54
SLTCTL, SLTSTA, LNKSTA = EXP + 0x18, EXP + 0x1a, EXP + 0x12
ABP, PDC, CC, PDS, DLLLA = 0x01, 0x08, 0x10, 0x40, 0x2000
POWER_OFF, IND_ON, IND_BLINK, IND_OFF = 0x400, 0x100, 0x200, 0x300
WINDOW = 0xfd000000


def emulator(*args):
    return Emulator("-machine", "q35", "-device", "pcie-root-port,id=rp0,addr=2,slot=7,chassis=1",
                    "-device", "pcie-root-port,id=rp1,addr=3,slot=8,chassis=1,hotplug=off", *args)


def number_buses(qtest):
    """What firmware does: bus 1 behind the first port, with a memory window, bus mastering on."""
    qtest.config_write(0, PORT_DEVFN, 0x18, 0x00010100)
    qtest.config_write(0, PORT_DEVFN, 0x20, WINDOW >> 16 | (WINDOW + 0xf00000 & 0xfff00000))
    qtest.config_write(0, PORT_DEVFN, 0x04, 0x6, 2)


class Slot:
    def __init__(self, qtest):
        self.qtest = qtest

    @property
    def status(self):
        return self.qtest.config_read(0, PORT_DEVFN, SLTSTA, 2)

    def control(self, value):
        self.qtest.config_write(0, PORT_DEVFN, SLTCTL, value, 2)

    def acknowledge(self):
        self.qtest.config_write(0, PORT_DEVFN, SLTSTA, 0x1f, 2)

    def link_is_up(self):
        return bool(self.qtest.config_read(0, PORT_DEVFN, LNKSTA, 2) & DLLLA)


async def expect_error(text, awaitable):
    try:
        await awaitable
    except QmpError as err:
        assert text in err.desc, err
        return
    raise AssertionError(f"no error, expected: {text}")


async def test_express_device_is_modern_only():
    async with emulator("-device", "virtio-net-pci,id=a,bus=rp0",
                        "-device", "virtio-net-pci,id=b,bus=pcie.0") as emu:
        qtest = emu.qtest
        number_buses(qtest)
        async with await emu.monitor() as qmp:
            assert qtest.config_read(1, 0, 0) == 0x10411af4
            assert qtest.config_read(1, 0, 8, 1) == 1
            assert qtest.config_read(0, 1 << 3, 0) == 0x10001af4, "integrated: transitional"
            exp = qtest.find_capability(1, 0, 0x10)
            assert exp == 0x40 and qtest.config_read(1, 0, exp + 2, 2) & 0xf0 == 0
            assert qtest.find_capability(1, 0, 0x01) == 0x7c
            assert qtest.find_capability(0, 1 << 3, 0x10) == 0
            assert "bus: rp0" in await qmp.hmp("info qtree")
            buses = await qmp.execute("query-pci")
            assert len(buses) == 1
            ports = [d for d in buses[0]["devices"] if "pci_bridge" in d]
            assert [p["qdev_id"] for p in ports] == ["rp0", "rp1"]
            assert ports[0]["pci_bridge"]["bus"]["secondary"] == 1
            assert [d["qdev_id"] for d in ports[0]["pci_bridge"]["devices"]] == ["a"]
            assert "devices" not in ports[1]["pci_bridge"]


async def test_memory_goes_through_windows():
    async with emulator("-device", "virtio-net-pci,id=a,bus=rp0") as emu:
        qtest = emu.qtest
        number_buses(qtest)
        qtest.config_write(1, 0, 0x14, WINDOW)  # MSI-X table
        qtest.config_write(1, 0, 0x04, 0x6, 2)
        assert qtest.command(f"readl {WINDOW + 12:#x}") == 1, "vector 0 is masked"
        qtest.config_write(0, PORT_DEVFN, 0x20, 0x0000fff0)  # window closed
        assert qtest.command(f"readl {WINDOW + 12:#x}") == 0xffffffff
        number_buses(qtest)
        assert qtest.command(f"readl {WINDOW + 12:#x}") == 1
        qtest.config_write(0, PORT_DEVFN, 0x04, 0, 2)  # the bridge passes nothing on
        assert qtest.command(f"readl {WINDOW + 12:#x}") == 0xffffffff
        # ECAM: extended configuration space
        qtest.config_write(0, 0, 0x60, 0xb0000001)
        assert qtest.command("readl 0xb0100000") == 0x10411af4
        assert qtest.command("readl 0xb0100ffc") == 0
        assert qtest.command("readl 0xb0200000") == 0xffffffff


async def test_plug_and_unplug_with_the_guest():
    async with emulator() as emu:
        slot = Slot(emu.qtest)
        number_buses(emu.qtest)
        async with await emu.monitor() as qmp:
            assert not slot.status & PDS and not slot.link_is_up()
            await qmp.execute("device_add", driver="virtio-net-pci", id="nic", bus="rp0")
            assert slot.status & (PDS | PDC | ABP) == PDS | PDC | ABP
            assert slot.link_is_up()
            slot.acknowledge()
            assert slot.status == PDS
            slot.control(IND_ON)
            assert slot.status & CC
            slot.acknowledge()
            await qmp.execute("device_del", id="nic")
            assert slot.status & ABP
            await expect_error("already in the process", qmp.execute("device_del", id="nic"))
            slot.acknowledge()
            slot.control(IND_BLINK)
            assert emu.qtest.config_read(1, 0, 0) == 0x10411af4, "still there"
            slot.control(POWER_OFF | IND_OFF)
            event = await qmp.wait_event("DEVICE_DELETED", device="nic")
            assert event["data"]["path"] == "/machine/peripheral/nic"
            assert emu.qtest.config_read(1, 0, 0) == 0xffffffff
            assert slot.status & (PDS | PDC) == PDC and not slot.link_is_up()
            # Without power nobody needs to be asked.
            await qmp.execute("device_add", driver="virtio-net-pci", id="nic", bus="rp0")
            await qmp.execute("device_del", id="nic")
            await qmp.wait_event("DEVICE_DELETED", device="nic")


async def test_guest_refuses():
    async with emulator("-device", "virtio-net-pci,id=nic,bus=rp0") as emu:
        slot = Slot(emu.qtest)
        async with await emu.monitor() as qmp:
            assert slot.status == PDS, "there from the start: no event"
            await qmp.execute("device_del", id="nic")
            slot.control(IND_BLINK)
            slot.control(IND_ON)
            event = await qmp.wait_event("DEVICE_UNPLUG_GUEST_ERROR", device="nic")
            assert event["data"]["path"] == "/machine/peripheral/nic"
            # A guest that says so again and again is heard once a second.
            for _ in range(20):
                await qmp.execute("device_del", id="nic")
                slot.control(IND_BLINK)
                slot.control(IND_ON)
            await qmp.execute("query-name")
            assert not qmp.events, qmp.events
            again = await qmp.wait_event("DEVICE_UNPLUG_GUEST_ERROR", timeout=3)
            assert again["timestamp"]["seconds"] - event["timestamp"]["seconds"] <= 1, again
            slot.control(IND_BLINK)
            await expect_error("guest is busy", qmp.execute("device_del", id="nic"))
            slot.control(IND_ON)
            await qmp.execute("device_del", id="nic")


async def test_reset_completes_it():
    async with emulator("-device", "virtio-net-pci,id=nic,bus=rp0") as emu:
        slot = Slot(emu.qtest)
        async with await emu.monitor() as qmp:
            await qmp.execute("device_del", id="nic")
            await qmp.execute("system_reset")
            await qmp.wait_event("RESET")
            await qmp.wait_event("DEVICE_DELETED", device="nic")
            assert not slot.status & PDS
            await qmp.execute("device_add", driver="virtio-net-pci", id="nic", bus="rp0")


async def test_what_does_not_plug():
    async with emulator() as emu:
        async with await emu.monitor() as qmp:
            for text, arguments in (
                    ("Bus 'pcie.0' does not support hotplugging", {"bus": "pcie.0"}),
                    ("Bus 'pcie.0' does not support hotplugging", {}),
                    ("unsupported by the port", {"bus": "rp1"}),
                    ("only allows plugging into slot 0", {"bus": "rp0", "addr": "1"}),
                    ("Bus 'rp7' not found", {"bus": "rp7"})):
                await expect_error(text, qmp.execute("device_add", driver="virtio-net-pci",
                                                     **arguments))
            await qmp.execute("device_add", driver="virtio-net-pci", id="x", bus="rp0")
            await expect_error("slot 0 function 0", qmp.execute(
                "device_add", driver="virtio-net-pci", bus="rp0", addr="0"))
            await expect_error("no slot/function available", qmp.execute(
                "device_add", driver="virtio-net-pci", bus="rp0"))
            await expect_error("does not support hotplugging",
                               qmp.execute("device_del", id="rp0"))


async def test_function_level_reset():
    async with emulator("-device", "virtio-net-pci,id=a,bus=rp0") as emu:
        qtest = emu.qtest
        number_buses(qtest)
        qtest.config_write(1, 0, 0x04, 0x6, 2)
        qtest.config_write(1, 0, 0x14, WINDOW)
        qtest.config_write(1, 0, 0x48, 0x8000, 2)
        assert qtest.config_read(1, 0, 0x48, 2) == 0
        assert qtest.config_read(1, 0, 0x14) == 0
        assert qtest.config_read(1, 0, 0x04, 2) == 0
        assert qtest.config_read(1, 0, 0) == 0x10411af4


if __name__ == "__main__":
    sys.exit(async_tap.run(sys.modules[__name__]))
