#!/usr/bin/env python3
"""Trace events as USDT probes: what -trace help lists is in the ELF notes of the emulator and of
libswnic, under the same names and with as many arguments as the table has.

Prints TAP; SWNIC_BUILD is the build tree, SWNIC_SDT says whether it was built with sys/sdt.h.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
import tap as taplib  # noqa: E402
from tap import expect  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ["SWNIC_BUILD"])
EMULATOR = BUILD / "swnic-system-x86_64"
LIBRARY = BUILD / "libswnic" / "libswnic.so"
WITH_PROBES = os.environ["SWNIC_SDT"] == "1"
DATA_PATH = {"virtio_queue_notify", "virtio_notify", "virtio_net_tx_flush", "virtio_net_rx_batch",
             "virtio_net_ctrl", "net_drop"}


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True,
                          text=True).stdout


def listed():
    return {line.split()[0] for line in run(EMULATOR, "-trace", "help").splitlines()}


def table():
    """Name → number of arguments, from the table itself."""
    text = (ROOT / "include" / "util" / "trace-events.def").read_text()
    rows = re.findall(r"^TRACE_EVENT\((\w+),\s*\([^)]*\),\s*\(([^)]*)\),", text, re.M)
    return {name: len(arguments.split(",")) for name, arguments in rows}


def probes(binary):
    """Name → numbers of arguments at its places."""
    notes = run("readelf", "-n", binary)
    found = {}
    for name, arguments in re.findall(
            r"Provider: swnic\n\s+Name: (\w+)\n\s+Location:.*\n\s+Arguments:(.*)", notes):
        found.setdefault(name, set()).add(len(arguments.split()))
    return found


def test_listed():
    expect(listed() == set(table()), f"listed {listed()}, the table has {set(table())}")
    expect(DATA_PATH <= listed(), f"not listed: {DATA_PATH - listed()}")


def expect_probes(binary, names):
    found = probes(binary)
    if not WITH_PROBES:
        expect(not found, f"built without, has {found}")
        return
    expect(set(found) >= names, f"no probe: {names - set(found)}")
    wrong = {name: counts for name, counts in found.items() if counts != {table().get(name)}}
    expect(not wrong, f"arguments {wrong}, the table says {table()}")


def test_points(tap):
    tap.run("trace/help-lists-the-table", test_listed)
    suffix = "" if WITH_PROBES else "-none-without-sys-sdt.h"
    tap.run(f"trace/probes-of-the-emulator{suffix}", expect_probes, EMULATOR, set(table()))
    tap.run(f"trace/probes-of-the-library{suffix}", expect_probes, LIBRARY,
            DATA_PATH)


if __name__ == "__main__":
    taplib.main(test_points)
