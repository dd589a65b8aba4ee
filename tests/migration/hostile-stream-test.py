#!/usr/bin/env python3
"""Streams that nobody should send: each is refused with a message that says what is wrong, the
process ends with status 1, and neither crashes nor starts the VM.  What is merely unusual loads.

Fields are found by the description in the stream itself."""
import os
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import decode  # noqa: E402
import emulator as m  # noqa: E402

OURS = [os.environ["SWNIC_BINARY"]]
NET = m.IDSTR.decode()
FEATURES = [m.F_MAC, m.F_STATUS, m.F_VERSION_1, m.F_MRG_RXBUF, m.F_CTRL_VQ, m.F_CTRL_RX]


def saved(features, extra=""):
    with m.Emulator(OURS, device=extra, accel="qtest") as e:
        if features:
            driver = m.Driver(e, sum(1 << f for f in features), packed=m.F_PACKED in features)
            driver.start()
        return e.save()


class Case:
    """@message None: it loads."""

    def __init__(self, name, data, message, device=""):
        self.name, self.data, self.message, self.device = name, data, message, device


def patched(stream, suffix, value, section=NET):
    field = stream.field(section, suffix)
    data = bytearray(stream.reader.data)
    data[field.at:field.at + field.size] = value.to_bytes(field.size, "big")
    return bytes(data)


def field_cases(stream):
    """Counts, lengths and indices: at the limit, one more, all ones."""
    table = [
        # field, value, message (None: it loads)
        ("pci.version_id", 2, None),
        ("pci.version_id", 3, "version_id 3 > 2"),
        ("pci.irq_state[0]", 2, "irq_state[0] 2 > 1"),
        ("pci.irq_state[3]", 0xffffffff, "> 1"),
        ("head.config_vector", 3, None),
        ("head.config_vector", 4, "config[0].vector 4 >= 4"),
        ("head.config_vector", 0xffff, None),
        ("head.queue_sel", 1023, None),
        ("head.queue_sel", 1024, "queue_sel 1024 > 1023"),
        ("head.config_len", 0xffffffff, "config_len 4294967295 >"),
        ("head.config_len", 0x10001, "config_len 65537 >"),
        ("head.num_queues", 0xffffffff, "num_queues 4294967295 > 1024"),
        ("head.num_queues", 1025, "num_queues 1025 > 1024"),
        ("queues[0].num", 0, "num 0"),
        ("queues[0].num", 1024, "num 1024"),
        ("queues[0].num", 1025, "num 1025 > 1024"),
        ("queues[0].num", 63, "not a power of two"),
        ("queues[1].num", 0xffffffff, "num 4294967295 > 1024"),
        ("queues[1].vector", 4, "vector 4 >= 4"),
        ("queues[1].last_avail_idx", 64, None),
        ("queues[1].last_avail_idx", 65, "more than its size"),
        ("queues[1].last_avail_idx", 0xffff, "more than its size"),
        ("device.tx_waiting", 1, None),
        ("device.tx_waiting", 2, "tx_waiting 2 > 1"),
        ("mac_table.in_use", 70000, "mac_table.in_use 70000 > 64"),
        ("mac_table.in_use", 0xffffffff, "mac_table.in_use 4294967295 > 64"),
        ("device.has_vnet_hdr", 1, "has_vnet_hdr"),
        ("device.has_ufo", 1, "has_ufo"),
        ("64bit_features.features64", 0xffffffffffffffff, "Features"),
        ("64bit_features.features64", 1 << 63, "unsupported"),
        ("started.started", 2, "started 2 > 1"),
        ("ringsize.queues[0].num_default", 1025, "num_default 1025 > 1024"),
        ("ringsize.queues[0].num_default", 512, "num_default 512"),
        ("ringsize.queues[0].num_default", 63, "num_default 63"),
        ("modern_state.queues[5].modern_enabled", 2, "modern_enabled 2 > 1"),
        ("modern_state.queues[1023].modern_enabled", 0xff, "modern_enabled 255 > 1"),
    ]
    for suffix, value, message in table:
        yield Case(f"{suffix}={value:#x}", patched(stream, suffix, value), message)


def packed_cases(stream):
    for suffix, value, message in (
            ("packed_virtqueues.queues[1].packed_last_avail", 63, None),
            ("packed_virtqueues.queues[1].packed_last_avail", 64, "packed_last_avail 64 >="),
            ("packed_virtqueues.queues[1].packed_used", 0x7fff, "packed_used 32767 >="),
            ("packed_virtqueues.queues[1].used_wrap", 2, "used_wrap 2 > 1"),
            ("packed_virtqueues.queues[1].inuse", 64, None),
            ("packed_virtqueues.queues[1].inuse", 65, "inuse 65 >"),
            ("packed_virtqueues.queues[1].inuse", 0xffffffff, "inuse 4294967295 >")):
        yield Case(f"packed/{suffix}={value:#x}", patched(stream, suffix, value), message,
                   "packed=on")


def shape_cases(stream):
    data = stream.reader.data
    begin, payload, footer = stream.bounds[NET]
    section = data[begin:footer + 5]
    end = footer + 5
    yield Case("as-it-is", data, None)
    yield Case("section-twice", data[:end] + section + data[end:], "section came twice")
    yield Case("section-missing", data[:begin] + data[end:], "is missing")
    # before all others, and even before RAM: RAM is looked at when everything is there
    ram = stream.bounds["globalstate"][0]
    yield Case("section-first", data[:ram] + section + data[ram:begin] + data[end:], None)
    config_end = 13 + len(stream.machine)
    yield Case("section-before-ram", data[:config_end] + section + data[config_end:begin] +
               data[end:], None)
    renamed = section.replace(b"0000:00:04.0", b"0000:00:05.0")
    yield Case("section-of-another-slot", data[:begin] + renamed + data[end:], "unknown section")
    yield Case("section-as-start", data[:begin] + b"\1" + data[begin + 1:], "in parts")
    yield Case("section-goes-on", data[:begin] + b"\2" + data[begin + 1:], "without a beginning")
    at = payload - 4
    for version in (10, 12, 0xffffffff):
        yield Case(f"section-version-{version}", data[:at] + struct.pack(">I", version) +
                   data[payload:], f"has version {version}")
    yield Case("instance", data[:at - 4] + struct.pack(">I", 1) + data[at:], "unknown section")
    yield Case("footer-of-another-section", data[:footer + 1] + b"\0\0\0\xff" + data[end:],
               "footer has section id 255")
    yield Case("no-footer", data[:footer] + data[end:], "instead of a footer")
    sub = data.index(b"\x05\x0fvirtio/ringsize", payload)
    yield Case("unknown-subsection", data[:sub + 9] + b"X" + data[sub + 10:],
               "unknown subsection")
    yield Case("description-missing", data[:decode.description(data)[1] + 1], None)
    yield Case("description-cut", data[:-1], "cut off")
    where = decode.description(data)[1] + 2
    yield Case("description-too-long", data[:where] + b"\xff\xff\xff\xff" + data[where + 4:],
               "length 4294967295")
    yield Case("empty", b"", "cut off")
    yield Case("text", b"GET / HTTP/1.0\r\n\r\n", "not a migration stream")
    yield Case("version-2", data[:7] + b"\2" + data[8:], "version 2")
    yield Case("no-configuration", data[:8] + data[config_end:], "configuration")
    yield Case("configuration-twice", data[:config_end] + data[8:], "configuration twice")
    yield Case("another-machine", data[:13] + b"pc-q35-7.2-xx"[:len(stream.machine)].ljust(
        len(stream.machine), b"x") + data[config_end:], "the stream is of machine")
    yield Case("machine-name-too-long", data[:9] + b"\xff\xff\xff\xff" + data[13:],
               "name 4294967295 > 256")
    yield Case("unknown-section-type", data[:begin] + b"\x55" + data[begin + 1:],
               "unknown type 0x55")
    yield Case("unknown-command", data[:begin] + b"\x08\0\x63\0\0" + data[begin:], "99")
    yield Case("switchover-command", data[:begin] + b"\x08\0\x0b\0\0" + data[begin:], None)


def ram_cases(stream):
    """RAM's first section, made anew in front of the others."""
    data = stream.reader.data
    config_end = 13 + len(stream.machine)
    rest = stream.bounds["globalstate"][0]
    size = stream.ram_sizes["pc.ram"]

    def ram(body, kind=b"\1", version=4):
        head = kind + b"\0\0\0\1" + b"\3ram" + struct.pack(">II", 0, version)
        return data[:config_end] + head + body + struct.pack(">Q", 0x10) + b"\x7e\0\0\0\1" + \
            b"\3\0\0\0\1" + struct.pack(">Q", 0x10) + b"\x7e\0\0\0\1" + data[rest:]

    def sizes(name=b"pc.ram", length=size, total=size):
        return struct.pack(">Q", total | 4) + bytes([len(name)]) + name + struct.pack(">Q", length)

    def page(offset, flags, name=b"pc.ram", body=bytes(4096)):
        block = b"" if flags & 0x20 else bytes([len(name)]) + name
        return struct.pack(">Q", offset | flags) + block + body

    good = sizes()
    yield Case("ram/nothing-but-sizes", ram(good), None)
    yield Case("ram/another-size", ram(sizes(length=size * 2, total=size * 2)), "bytes, 0x")
    yield Case("ram/another-block", ram(sizes(name=b"vga.vram")), "does not exist here")
    yield Case("ram/total-too-small", ram(sizes(total=4096)), "larger than")
    yield Case("ram/no-blocks", ram(struct.pack(">Q", 4)), "0 blocks came")
    yield Case("ram/last-page", ram(good + page(size - 4096, 8)), None)
    yield Case("ram/beyond-the-end", ram(good + page(size, 8)), "offset")
    yield Case("ram/far-beyond", ram(good + page(0xfffffffffffff000, 8)), "offset")
    yield Case("ram/zero-page-beyond", ram(good + page(size, 2, body=b"\0")), "offset")
    yield Case("ram/page-of-nothing", ram(good + page(0, 0x28)), "none came before")
    yield Case("ram/page-of-another-block", ram(good + page(0, 8, name=b"x")),
               "does not exist here")
    yield Case("ram/compressed", ram(good + page(0, 0x40)), "flags 0x40")
    yield Case("ram/all-flags", ram(good + page(0, 0xfff)), "flags 0xfff")
    yield Case("ram/version-3", ram(good, version=3), "version 3")
    yield Case("ram/missing", data[:config_end] + data[rest:], "'ram' is missing")
    yield Case("ram/twice", data[:rest] + data[config_end:], "came twice")


def other_devices():
    plain = saved(None)
    yield Case("device/rx-queue-is-smaller", saved(None, "rx_queue_size=1024"), "num 1024",
               "rx_queue_size=256")
    yield Case("device/without-vectors", plain, "PCI configuration byte", "vectors=0")
    yield Case("device/more-vectors", plain, "PCI configuration byte", "vectors=8")
    yield Case("device/modern-only", plain, "PCI configuration byte", "disable-legacy=on")
    yield Case("device/fewer-features", saved(FEATURES), "unsupported", "ctrl_rx=off")


def truncations(stream):
    """Cut off at bytes spread over the whole stream, and at every byte around each section's
    ends.  (Every byte of a small stream: tests/unit/test-migration-stream.c.)"""
    data = stream.reader.data
    at = {0, 1, 7, 8, 9, 12, 13, len(data) - 1}
    for begin, payload, footer in stream.bounds.values():
        at.update(range(begin, begin + 3), (payload, footer, footer + 4))
    at.update(range(stream.bounds[NET][1], stream.bounds[NET][2], 2999))
    for size in sorted(at):
        yield Case(f"cut-at-{size}", data[:size], "cut off")


def run(case):
    path = Path(f"/tmp/swnic-hostile-{os.getpid()}")
    path.write_bytes(case.data)
    try:
        with m.Emulator(OURS, device=case.device, accel="qtest", incoming="defer") as e:
            try:
                e.command("migrate-incoming", uri=f"file:{path}",
                          **({"exit-on-error": False} if case.message else {}))
                info = e.wait_migration("completed", "failed")
                running = e.command("query-status")["running"]
            except EOFError:
                raise AssertionError(f"it ended: {e.close()}") from None
            if case.message is None:
                assert info["status"] == "completed" and running, info
            else:
                assert info["status"] == "failed" and not running, info
                assert case.message in info["error-desc"], info["error-desc"]
            status, errors = e.close()
            assert status == 0, (status, errors)
            assert "Sanitizer" not in errors and "runtime error" not in errors, errors
    finally:
        path.unlink()


def exit_case(data):
    """Without exit-on-error=false a bad stream ends the process with status 1 and one line."""
    path = Path(f"/tmp/swnic-hostile-{os.getpid()}")
    path.write_bytes(data)
    try:
        import subprocess
        done = subprocess.run(
            [*OURS, "-accel", "qtest", "-display", "none", "-machine", "pc-i440fx-7.2", "-m", "64",
             "-device", "virtio-net-pci,addr=4", "-incoming", f"file:{path}"],
            stderr=subprocess.PIPE, text=True, timeout=m.TIMEOUT)
        lines = [x for x in done.stderr.splitlines() if "warning" not in x]
        assert done.returncode == 1 and len(lines) == 1 and "cut off" in lines[0], done
    finally:
        path.unlink()


def main():
    stream = decode.Stream(saved(FEATURES))
    packed = decode.Stream(saved(FEATURES + [m.F_PACKED], "packed=on"))
    cases = [*field_cases(stream), *packed_cases(packed), *shape_cases(stream),
             *ram_cases(stream), *other_devices(), *truncations(stream)]
    only = sys.argv[1:]
    cases = [c for c in cases if not only or c.name in only]
    print(f"1..{len(cases) + 1}", flush=True)
    failed = 0
    for number, case in enumerate(cases, 1):
        try:
            run(case)
            print(f"ok {number} {case.name}", flush=True)
        except Exception as error:  # the others are still worth knowing
            failed += 1
            print(f"not ok {number} {case.name}", flush=True)
            print(f"# {type(error).__name__}: {str(error)[:1500]}".replace("\n", "\n# "), flush=True)
    exit_case(stream.reader.data[:-100])
    print(f"ok {len(cases) + 1} bad-stream-ends-the-process", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
