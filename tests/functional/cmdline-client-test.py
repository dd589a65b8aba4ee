#!/usr/bin/env python3
"""The command line's round trips: configuration files, passed descriptors, and the manual page and
completion that are made from its table.  Prints TAP; SWNIC_BINARY is the emulator.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
import async_tap  # noqa: E402
from qmp import Emulator  # noqa: E402

BINARY = os.environ["SWNIC_BINARY"]
BUILD = Path(BINARY).parent


def option_rows():
    out = subprocess.run([BINARY, "-x-list-options"], check=True, capture_output=True, text=True)
    return [line.split("\t") for line in out.stdout.splitlines()]


async def test_written_configuration_is_read_again():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config")
        first = ("-machine", "q35", "-m", "64", "-object", "iothread,id=io0",
                 "-device", "pcie-root-port,id=rp0", "-netdev", "hubport,id=n0,hubid=1",
                 "-device", "virtio-net-pci,id=nic0,bus=rp0,netdev=n0,x-txburst=17,csum=off")
        async with Emulator(*first, "-writeconfig", path) as emu, await emu.monitor() as qmp:
            expected = await qmp.hmp("info qtree")
        async with Emulator("-readconfig", path) as emu, await emu.monitor() as qmp:
            assert await qmp.hmp("info qtree") == expected
            assert [t["id"] for t in await qmp.execute("query-iothreads")] == ["io0"]


async def test_inherited_descriptor_in_a_set():
    with tempfile.TemporaryFile() as file:
        fd = file.fileno()
        flags = os.O_WRONLY
        again = os.open(f"/proc/self/fd/{fd}", flags)
        async with Emulator("-add-fd", f"fd={again},set=2,opaque=test", "-chardev",
                            "file,id=c0,path=/dev/fdset/2", "-mon", "chardev=c0,mode=control",
                            pass_fds=(again,)) as emu, await emu.monitor() as qmp:
            sets = await qmp.execute("query-fdsets")
            assert [(s["fdset-id"], s["fds"][0]["opaque"]) for s in sets] == [(2, "test")]
        os.close(again)
        file.seek(0)
        assert b'"QMP"' in file.read()


async def test_manual_page_and_completion_have_every_option():
    manual = (BUILD / "swnic-system-x86_64.1").read_text()
    completion = (BUILD / "swnic-system-x86_64.bash").read_text()
    for name, _, text in option_rows():
        assert not text or f"\\-{name}".replace("-", "\\-").lstrip("\\") in manual, name
        assert f"-{name}" in completion, name
    subprocess.run(["bash", "-n", BUILD / "swnic-system-x86_64.bash"], check=True)
    script = (f"source {BUILD}/swnic-system-x86_64.bash; COMP_WORDS=({BINARY} -device virtio-net-p); "
              "COMP_CWORD=2; _swnic_system; echo ${COMPREPLY[@]}")
    out = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True)
    assert "virtio-net-pci" in out.stdout, out


async def test_help_is_aligned():
    out = subprocess.run([BINARY, "-help"], check=True, capture_output=True, text=True).stdout
    columns = {len(line) - len(line.lstrip()) for line in out.splitlines()
               if line.startswith("      ")}
    assert len(columns) == 1, columns
    assert all(f"-{name}" in out for name, _, text in option_rows() if text)


if __name__ == "__main__":
    sys.exit(async_tap.run(sys.modules[__name__]))
