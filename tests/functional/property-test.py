#!/usr/bin/env python3
"""Every property of every device: a value set on the command line is read back over QMP in the
same type, and what is not set is what device-list-properties says.

The properties come from device-list-properties, so a new one is tested without being named here,
unless it needs a value of its own (VALUES) or cannot be set alone (WITH).  Prints TAP.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
import async_tap  # noqa: E402
from qmp import Emulator, QmpError  # noqa: E402

NOT_CREATED = {"virtio-net-device", "virtio-rng-device", "virtio-mmio"}  # need a virtio-bus
PYTHON = {"bool": bool, "str": str, "size": int, "OnOffAuto": str, "busnr": int}
# Values where "different from the default" is not enough.
VALUES = {
    "addr": ["1d", "0x1c.0", "5.0"], "romfile": [""], "romsize": ["4096"], "failover_pair_id": ["x"],
    "vectors": ["0", "5"], "mac": ["52:54:00:aa:bb:cc"], "tx": ["timer", "bh", "flush-first", "adaptive"],
    "duplex": ["half", "full"], "rx_queue_size": ["64", "1024"], "tx_queue_size": ["0x80"],
    "host_mtu": ["1400"], "speed": ["1000"], "iothread": ["io0"], "netdev": ["n{n}"],
    "rombar": ["0"], "acpi-index": ["7"], "rng": ["rng0"],
}
# What else must be said; None: cannot be turned on here, and says so.
WITH = {"iommu_platform": "disable-legacy=on", "disable-modern": "disable-legacy=off",
        "hash_tunnel": "rss=on"}
# Not for all types.
SKIP = {("failover_pair_id", "*"), ("netdev", "*")}
READ_DIFFERENTLY = {"addr": lambda text: int(text.split(".")[0], 16) << 3,
                    "iothread": lambda text: f"/objects/{text}",
                    "rng": lambda text: f"/objects/{text}"}
# Defaults that say "choose": what was chosen is read.
AUTOMATIC = {"addr", "vectors", "mac", "busnr"}
PER_RUN = 16


def machine_of(driver):
    return "q35" if driver.startswith("pcie-") else "pc"


def values_of(prop):
    """Command line spellings to try, and what each is read as."""
    name, kind, default = prop["name"], prop["type"], prop.get("default-value")
    if name in VALUES:
        read = READ_DIFFERENTLY.get(name)
        for text in VALUES[name]:
            yield text, (read(text) if read else int(text, 0) if "int" in kind else text)
    elif kind == "bool":
        yield ("off", False) if default else ("on", True)
    elif kind == "OnOffAuto":
        yield "on", "on"
        yield "off", "off"
    elif kind.startswith(("int", "uint")) or kind == "size":
        other = 7 if default != 7 else 9
        yield str(other), other
        yield hex(other), other


def types_agree(kind, value):
    if kind.startswith("link<"):
        return isinstance(value, str)
    expected = PYTHON.get(kind, int)
    return isinstance(value, expected) and isinstance(value, bool) == (expected is bool)


async def device_types(qmp):
    types = await qmp.execute("qom-list-types", implements="device")
    creatable = []
    for type_ in types:
        help_text = type_["name"]
        if help_text in NOT_CREATED:
            continue
        creatable.append(help_text)
    return creatable


async def list_properties():
    """{driver: its properties} of what a user can make."""
    async with Emulator("-machine", "none", qtest=False) as emu, await emu.monitor() as qmp:
        found = {}
        for driver in await device_types(qmp):
            try:
                await qmp.execute("device_add", driver=driver)
            except QmpError as err:
                if "pluggable" in err.desc:
                    continue  # a part of a machine
            found[driver] = await qmp.execute("device-list-properties", typename=driver)
        assert {"virtio-net-pci", "pcie-root-port"} <= set(found), found.keys()
        return found


async def test_defaults_are_what_is_listed():
    count = 0
    for driver, props in (await list_properties()).items():
        async with Emulator("-machine", machine_of(driver), "-device", f"{driver},id=d") as emu, \
                await emu.monitor() as qmp:
            for prop in props:
                value = await qmp.execute("qom-get", path="/machine/peripheral/d",
                                          property=prop["name"])
                assert types_agree(prop["type"], value), (driver, prop, value)
                if "default-value" in prop and prop["name"] not in AUTOMATIC:
                    assert value == prop["default-value"], (driver, prop, value)
                count += 1
            listed = {p["name"]: p["type"]
                      for p in await qmp.execute("qom-list", path="/machine/peripheral/d")}
            for prop in props:
                assert listed[prop["name"]] == prop["type"], (driver, prop)
    print(f"# {count} properties")


async def check_values(driver, run):
    """As check_run(), without what is refused because it is not there yet; says how many."""
    run = list(run)
    refused = 0
    while run:
        try:
            await check_run(driver, run)
            break
        except Refused as err:
            text = str(err)
            which = next((i for i, (p, _, _) in enumerate(run)
                          if f"id=d{i}," in text and p["name"] in text.split(": ", 2)[-1]), None)
            assert which is not None and "not available in this version" in text, text
            del run[which]
            refused += 1
    return refused


class Refused(Exception):
    """The emulator did not start; its message."""


async def check_run(driver, run):
    """@run: [(property, text, expected)], a device each."""
    args = ["-machine", machine_of(driver), "-object", "iothread,id=io0"]
    if "rng" in driver:
        args += ["-object", "rng-builtin,id=rng0"]
    for n, (prop, text, _) in enumerate(run):
        device = f"{driver},id=d{n},{prop['name']}={text}"
        more = WITH.get(prop["name"])
        args += ["-netdev", f"hubport,id=n{n},hubid={n}"]
        args += ["-device", (device + (f",{more}" if more else "")).format(n=n)]
    emu = Emulator(*args, qtest=False)
    try:
        qmp = await emu.monitor(timeout=5, alive=emu.process)
    except ConnectionError as err:
        emu.process.wait()
        raise Refused(emu.log()) from err
    async with emu:
        for n, (prop, text, expected) in enumerate(run):
            value = await qmp.execute("qom-get", path=f"/machine/peripheral/d{n}",
                                      property=prop["name"])
            assert types_agree(prop["type"], value), (driver, prop, value)
            assert value == expected, f"{driver}.{prop['name']}={text} is read as {value!r}"
        await qmp.close()


async def test_command_line_values_are_read_back():
    count = refused = 0
    for driver, props in (await list_properties()).items():
        variant = driver.endswith("transitional")
        work = []
        for prop in props:
            if (prop["name"], "*") in SKIP or prop["type"] == "busnr":
                continue
            if prop["name"] == "iommu_platform" and variant:
                continue  # what else it needs is decided by the type
            if driver == "pcie-root-port" and prop["name"] in ("romfile", "romsize"):
                continue
            work += [(prop, text, expected) for text, expected in values_of(prop)]
        # A place given by hand would be another device's: each on its own.
        alone = [w for w in work if w[0]["name"] == "addr"]
        work = [w for w in work if w[0]["name"] != "addr"]
        for start in range(0, len(work), PER_RUN):
            refused += await check_values(driver, work[start:start + PER_RUN])
        for one in alone:
            refused += await check_values(driver, [one])
        count += len(work) + len(alone)
    print(f"# {count} values, {refused} of them refused as not there yet")


async def test_json_arguments():
    device = {"driver": "virtio-net-pci", "id": "d", "x-txburst": 17, "csum": False, "addr": 48,
              "mac": "52:54:00:00:00:09", "tx": "timer", "speed": 100}
    async with Emulator("-device", json.dumps(device)) as emu, await emu.monitor() as qmp:
        for name, expected in device.items():
            if name not in ("driver", "id"):
                value = await qmp.execute("qom-get", path="d", property=name)
                assert value == expected, (name, value)


async def test_global_set_and_readconfig():
    with open("/tmp/swnic-property-test.cfg", "w", encoding="ascii") as config:
        config.write('# a device\n[device "d1"]\n  driver = "virtio-net-pci"\n  x-txburst = "5"\n')
    async with Emulator("-global", "virtio-net-pci.x-txburst=9", "-device", "virtio-net-pci,id=d0",
                        "-readconfig", config.name, "-device", "virtio-net-pci,id=d2",
                        "-set", "device.d2.x-txburst=6") as emu, await emu.monitor() as qmp:
        for device, expected in (("d0", 9), ("d1", 5), ("d2", 6)):
            assert await qmp.execute("qom-get", path=device, property="x-txburst") == expected
    Path(config.name).unlink()


if __name__ == "__main__":
    sys.exit(async_tap.run(sys.modules[__name__]))
