#!/usr/bin/env python3
"""QMP under clients that behave and clients that do not.

Every command of the schema with right and wrong arguments, answers checked against the schema;
pipelining, flow control, out-of-band commands, passed file descriptors, several monitors at once;
hand-typed and broken input.  Nothing may end the process.  Prints TAP; SWNIC_BINARY is the
emulator.
"""
import asyncio
import json
import os
import shutil
import socket
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
import async_tap  # noqa: E402
from qmp import Emulator, QmpClient, QmpError  # noqa: E402
from schema import Schema  # noqa: E402

DEVICES = ("-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,id=nic0",
           "-object", "iothread,id=io0", "-chardev", "ringbuf,id=rb0")
NIC = "/machine/peripheral/nic0"

# Arguments with which a command succeeds in an emulator with DEVICES.  What stands in none of
# these lists is called with what its types allow, and may fail for what that means.
RIGHT = {
    "chardev-add": {"id": "new0", "backend": {"type": "null", "data": {}}},
    "chardev-change": {"id": "new0", "backend": {"type": "ringbuf", "data": {"size": 4096}}},
    "chardev-remove": {"id": "new0"},
    "device-list-properties": {"typename": "virtio-net-pci"},
    "device_add": {"driver": "virtio-net-pci", "id": "new1", "mac": "52:54:00:00:00:01"},
    "device_del": {"id": "new1"},
    "human-monitor-command": {"command-line": "info network"},
    "netdev_add": {"type": "hubport", "id": "new2", "hubid": 3},
    "netdev_del": {"id": "new2"},
    "object-add": {"qom-type": "memory-backend-ram", "id": "new3", "size": 65536},
    "object-del": {"id": "new3"},
    "qom-get": {"path": NIC, "property": "mac"},
    "qom-list": {"path": "/machine"},
    "qom-list-get": {"paths": ["/machine", NIC]},
    "qom-list-properties": {"typename": "virtio-net-pci"},
    "qom-list-types": {"implements": "device", "abstract": True},
    "query-command-line-options": {"option": "machine"},
    "query-rx-filter": {"name": "nic0"},
    "query-stats": {"target": "device", "devices": ["nic0"],
                    "providers": [{"provider": "virtio-net", "names": ["tx-packets"]}]},
    "query-stats-schemas": {"provider": "virtio-net"},
    "ringbuf-write": {"device": "rb0", "data": "text", "format": "utf8"},
    "ringbuf-read": {"device": "rb0", "size": 100, "format": "base64"},
    "set_link": {"name": "n0", "up": True},
    "x-query-virtio-queue-status": {"path": NIC, "queue": 0},
    "x-query-virtio-status": {"path": f"{NIC}/virtio-backend"},
    "yank": {"instances": []},
}
# Commands that need more than arguments, or that end what the others need.
ELSEWHERE = {"quit", "qmp_capabilities"}
NEED_FD = {"add-fd", "getfd"}
ORDER = ["chardev-add", "device_add", "netdev_add", "object-add"]


def in_order(commands):
    first = [c for c in ORDER if c in commands]
    return first + [c for c in commands if c not in first]


def is_error(answer):
    return set(answer) - {"id"} == {"error"} and set(answer["error"]) == {"class", "desc"}


async def test_every_command_right():
    async with Emulator(*DEVICES) as emu, await emu.monitor() as qmp:
        schema = Schema(await qmp.execute("query-qmp-schema"))
        schema.check_references()
        names = [c["name"] for c in await qmp.execute("query-commands")]
        assert sorted(names) == schema.commands()
        assert sorted(e["name"] for e in await qmp.execute("query-events")) == schema.events()
        for name in in_order([n for n in schema.commands() if n not in ELSEWHERE]):
            type_ = schema.by_name[name]["arg-type"]
            arguments = RIGHT.get(name)
            if arguments is not None and name not in ("device_add", "object-add"):
                assert schema.accepts(type_, arguments) is None, (name, arguments)
            sent = schema.make(type_) if arguments is None else arguments
            answer = await qmp.call(name, sent)
            emu.check_alive()
            if (arguments is not None or not sent) and name not in NEED_FD:
                assert "return" in answer, (name, answer)
            if "return" in answer:
                why = schema.accepts(schema.by_name[name]["ret-type"], answer["return"])
                assert why is None, f"{name}: {why}"
            else:
                text = answer["error"]["desc"]
                assert "parameter type" not in text and "is missing" not in text, (name, text)
        assert await qmp.execute("query-version")


async def test_every_command_wrong():
    count = 0
    async with Emulator(*DEVICES) as emu, await emu.monitor() as qmp:
        schema = Schema(await qmp.execute("query-qmp-schema"))
        for name in schema.commands():
            type_ = schema.by_name[name]["arg-type"]
            good = RIGHT.get(name, schema.make(type_))
            members = schema.members(schema.by_name[type_], good)
            cases = [(dict(good, **{"no-such-member": 1}), "no-such-member")]
            for key, member in members.items():
                if "default" not in member:
                    cases.append(({k: v for k, v in good.items() if k != key}, key))
                cases += [(dict(good, **{key: bad}), key)
                          for bad in schema.wrong_values(member["type"])]
            for arguments, key in cases:
                answer = await qmp.call(name, arguments)
                count += 1
                assert is_error(answer), (name, arguments, answer)
                text = answer["error"]["desc"]
                assert key in text or "iscriminator" in text, (name, arguments, text)
            for raw in ("[]", "1", '"x"'):
                answer = await qmp.call(name, json.loads(raw))
                assert is_error(answer), (name, raw, answer)
        emu.check_alive()
        assert (await qmp.execute("query-status"))["status"] == "running"
    print(f"# {count} calls with wrong arguments")


async def test_thousand_pipelined_without_reading():
    async with Emulator(*DEVICES, monitors=2) as emu:
        qmp = await emu.monitor(reading=False)
        sent = [{"execute": "qmp_capabilities", "id": 0}]
        sent += [{"execute": "query-qmp-schema", "id": i} for i in range(1, 1001)]
        data = "".join(json.dumps(s) for s in sent).encode()
        sender = asyncio.create_task(qmp.send_raw(data))
        await asyncio.sleep(0.5)
        emu.check_alive()
        assert emu.rss() < 100 << 20, f"{emu.rss()} bytes resident"
        async with await emu.monitor(1) as other:
            await other.execute("query-status")
        reader = await _read_all(qmp, 1001)
        await sender
        assert [m["id"] for m in reader] == list(range(1001))
        assert all("return" in m for m in reader)
        qmp.sock.close()


async def _read_all(qmp, count):
    loop = asyncio.get_running_loop()
    buffer, answers = bytearray(), []
    while len(answers) < count:
        data = await asyncio.wait_for(loop.sock_recv(qmp.sock, 1 << 20), 20)
        assert data, "connection lost"
        buffer += data
        *lines, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        answers += [m for m in map(json.loads, lines) if "QMP" not in m and "event" not in m]
    return answers


async def test_client_that_never_reads():
    """Events and answers for it are bounded; the other monitor and the machine go on."""
    async with Emulator(*DEVICES, monitors=2) as emu:
        silent = await emu.monitor(0, reading=False)
        await silent.send_raw(b'{"execute":"qmp_capabilities"}')
        async with await emu.monitor(1) as qmp:
            before = emu.rss()
            for _ in range(5000):
                await asyncio.gather(qmp.execute("stop"), qmp.execute("cont"))
            assert emu.rss() - before < 32 << 20, emu.rss() - before
            assert len(qmp.events) == 10000
        silent.sock.close()


async def test_id_of_every_type():
    ids = ["x", 1, -5, 2 ** 64 - 1, 1.5, True, None, [1, [2]], {"a": {"b": None}}, "\u20ac", ""]
    async with Emulator() as emu, await emu.monitor() as qmp:
        for value in ids:
            await qmp.send_raw(json.dumps({"execute": "query-status", "id": value}).encode())
        while len(qmp.unmatched) < len(ids):
            await asyncio.sleep(0.01)
        assert [m["id"] for m in qmp.unmatched] == ids, qmp.unmatched


async def test_negotiation():
    async with Emulator() as emu, await emu.monitor(negotiate=False) as qmp:
        assert qmp.greeting["QMP"]["capabilities"] == ["oob"]
        answer = await qmp.call("query-status")
        assert answer["error"]["class"] == "CommandNotFound"
        answer = await qmp.call("qmp_capabilities", {"enable": ["flying"]})
        assert is_error(answer)
        await qmp.execute("qmp_capabilities", enable=["oob"])
        answer = await qmp.call("qmp_capabilities")
        assert answer["error"]["class"] == "CommandNotFound"
        answer = await qmp.call("query-yank", oob=True)
        assert "return" in answer
        answer = await qmp.call("query-status", oob=True)
        assert "does not support OOB" in answer["error"]["desc"]


async def test_oob_passes_the_queue():
    """While answers of earlier commands wait for the client, an out-of-band one is run."""
    async with Emulator(*DEVICES, "-chardev", "socket,id=peer,path=/dev/null/none,reconnect-ms=60000",
                        qtest=False) as emu:
        qmp = await emu.monitor(reading=False)
        loop = asyncio.get_running_loop()
        await qmp.send_raw(b'{"execute":"qmp_capabilities","arguments":{"enable":["oob"]}}')
        slow = b"".join(b'{"execute":"query-qmp-schema","id":%d}' % i for i in range(60))
        await qmp.send_raw(slow + b'{"exec-oob":"query-yank","id":"fast"}')
        await asyncio.sleep(0.5)  # until more waits than the emulator sends unread
        buffer, ids = bytearray(), []
        while len(ids) < 61:
            data = await asyncio.wait_for(loop.sock_recv(qmp.sock, 1 << 20), 20)
            buffer += data
            *lines, rest = buffer.split(b"\n")
            buffer = bytearray(rest)
            ids += [m["id"] for m in map(json.loads, lines) if "id" in m]
        assert ids.index("fast") < 60, ids
        qmp.sock.close()


async def _broken(qmp, data, errors):
    """@data gives @errors error answers without id (-1: some), and the session goes on."""
    before = len(qmp.unmatched)
    await qmp.send_raw(data)
    await qmp.execute("query-name")
    got = qmp.unmatched[before:]
    assert len(got) == errors if errors >= 0 else got, (data[:80], got)
    assert all(is_error(m) for m in got), (data[:80], got)


async def test_broken_input():
    async with Emulator() as emu, await emu.monitor() as qmp:
        for data, errors in (
                (b"}}}", 3), (b"{]", 1), (b'{"a":}', 1), (b"[1,2]\n", 1), (b"nonsense\n", 1),
                (b"1 \n", 1), (b'"text"\n', 1), (b'{"execute":"x","id":}', 1),
                (b'{"execute":\x00"query-name"}\n', -1),
                (b'{"execute": "\xff\xfe"}\n', -1), (b'{"execute": "\xc0\x80"}\n', -1),
                (b"{}", 1), (b'{"execute":1}', 1), (b'{"execute":"query-name","x":1}', 1),
                (b'{"exec-oob":"query-yank"}', 1), (b'{"execute":"no-such"}', 1),
                (b"\n\r\t   \n", 0)):
            await _broken(qmp, data, errors)
        await qmp.send_raw(b"\xff")  # 0xff resets the parser: QEMU's agreement with libvirt
        emu.check_alive()


async def test_deep_nesting():
    async with Emulator() as emu, await emu.monitor() as qmp:
        for deep in (b"[" * 1000000 + b"\n", b'{"a":' * 500000 + b"\n",
                     b'{"execute":"query-name","id":' + b"[" * 5000 + b"]" * 5000 + b"}"):
            await qmp.send_raw(deep)
            await qmp.send_raw(b"\xff\n")
            emu.check_alive()
            assert emu.rss() < 200 << 20
    async with Emulator() as emu:
        qmp = await emu.monitor()
        value = 7
        for _ in range(500):
            value = [value]
        await qmp.send_raw(json.dumps({"execute": "query-name", "id": value}).encode())
        while not qmp.unmatched:
            await asyncio.sleep(0.01)
        assert qmp.unmatched[0].get("id") == value or is_error(qmp.unmatched[0])
        await qmp.close()


async def test_strings_of_64_mib():
    """Refused or taken, the process lives and the next client is served."""
    async with Emulator(*DEVICES, monitors=2) as emu:
        for length in (1 << 20, 64 << 20):
            async with await emu.monitor() as qmp:
                head = b'{"execute":"human-monitor-command","arguments":{"command-line":"'
                try:
                    await asyncio.wait_for(qmp.send_raw(head + b"x" * length + b'"}}\n'), 60)
                    await qmp.execute("query-name")
                except (ConnectionError, QmpError):
                    pass
            emu.check_alive()
            async with await emu.monitor(1) as other:
                await other.execute("query-name")


async def test_split_everywhere():
    """One byte at a time, also within UTF-8 characters and escapes."""
    request = '{"execute": \'query-name\', "id": "\u20ac\U0001f600\\u20ac\\n"}'.encode()
    async with Emulator() as emu, await emu.monitor() as qmp:
        for byte in request:
            await qmp.send_raw(bytes([byte]))
            await asyncio.sleep(0)
        while not qmp.unmatched:
            await asyncio.sleep(0.01)
        assert qmp.unmatched[0]["id"] == "\u20ac\U0001f600\u20ac\n", qmp.unmatched


async def test_typed_by_hand_through_socat():
    socat = shutil.which("socat")
    assert socat, "socat is not installed"
    async with Emulator("-name", "gr\u00fcn") as emu:
        client = await asyncio.create_subprocess_exec(
            socat, "-t10", "-", f"UNIX-CONNECT:{emu.paths[0]}",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)

        async def line():
            return json.loads(await asyncio.wait_for(client.stdout.readline(), 10))

        assert "QMP" in await line()
        for piece in (b"{ 'execute': 'qmp_", b"capabilities' }\r\n"):
            client.stdin.write(piece)
            await client.stdin.drain()
        assert await line() == {"return": {}}
        client.stdin.write(b"{'execute':'query-name','id':'\xe2\x82")
        await client.stdin.drain()
        await asyncio.sleep(0.05)
        client.stdin.write(b"\xac it\\'s'}\n")
        assert await line() == {"return": {"name": "gr\u00fcn"}, "id": "\u20ac it's"}
        client.stdin.write(b"{'execute':'query-status'\n")
        client.stdin.write(b"}\n")
        assert (await line())["return"]["running"] is True
        client.stdin.write(b"quit\n")
        assert is_error(await line())
        client.stdin.write(b"{'execute':'quit'}\n")
        client.stdin.close()
        assert await line() == {"return": {}}
        await client.wait()
        assert await emu.wait_end() == 0


async def test_two_monitors_race_for_one_id():
    """device_add and device_del of the same id from two monitors, frames coming in all the time:
    each answer is success or a sensible error, and in the end the id is free."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    async with Emulator("-netdev", f"socket,id=n0,fd={theirs.fileno()}", monitors=2,
                        pass_fds=(theirs.fileno(),)) as emu:
        theirs.close()
        stop = threading.Event()
        thread = threading.Thread(target=_flood, args=(ours, stop))
        thread.start()
        try:
            async with await emu.monitor(0) as first, await emu.monitor(1) as second:
                results = await asyncio.gather(_race(first), _race(second))
                texts = set().union(*(r[1] for r in results))
                assert all(any(known in t for known in (
                    "Duplicate device ID", "not found", "in the process of unplug", "in use"))
                    for t in texts), texts
                added = sum(r[0] for r in results)
                assert added > 50, f"only {added} additions succeeded"
                await first.call("device_del", {"id": "racer"})
                await first.execute("system_reset")
                await first.execute("query-name")
                emu.check_alive()
                print(f"# {added} devices came and went")
        finally:
            stop.set()
            ours.close()
            thread.join()


def _flood(sock, stop):
    frame = b"\0\0\0\x40" + b"\xff" * 6 + b"\x52\x54\0\0\0\x01" + b"\x88\xb5" + bytes(50)
    sock.settimeout(0.2)
    while not stop.is_set():
        try:
            sock.sendall(frame * 64)
        except (socket.timeout, OSError):
            pass


async def _race(qmp):
    added, texts = 0, set()
    for round_ in range(150):
        answer = await qmp.call("device_add", {"driver": "virtio-net-pci", "id": "racer",
                                               "netdev": "n0"})
        if "return" in answer:
            added += 1
        else:
            texts.add(answer["error"]["desc"])
        answer = await qmp.call("device_del", {"id": "racer"})
        if "error" in answer:
            texts.add(answer["error"]["desc"])
        await qmp.execute("system_reset")
        if round_ % 10 == 0:
            await asyncio.sleep(0)
    return added, texts


async def test_disconnect_in_the_middle():
    async with Emulator(*DEVICES) as emu:
        for cut in (b'{"execute":"qmp_capa', b'{"execute":"qmp_capabilities"}{"execute":"query-qmp',
                    b'{"execute":"qmp_capabilities"}' + b'{"execute":"query-qmp-schema"}' * 50,
                    b"\xe2\x82", b"'"):
            qmp = await emu.monitor(reading=False)
            await qmp.send_raw(cut)
            qmp.sock.close()
        async with await emu.monitor() as qmp:
            assert await qmp.execute("query-name") == {}


async def test_passed_descriptors():
    async with Emulator("-object", "iothread,id=io0") as emu, await emu.monitor() as qmp:
        for command, arguments in (("getfd", {"fdname": "a"}), ("add-fd", {})):
            answer = await qmp.call(command, arguments)
            assert "SCM_RIGHTS" in answer["error"]["desc"]
        read, write = os.pipe()
        await qmp.execute("getfd", fdname="p", _fd=write)
        await qmp.execute("closefd", fdname="p")
        os.close(write)
        assert os.read(read, 1) == b"", "closed there too"
        os.close(read)
        # A file that the emulator opens by its set.
        path = os.path.join(emu.dir.name, "log")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        info = await qmp.execute("add-fd", fdset_id=5, opaque="log", _fd=fd)
        assert info["fdset-id"] == 5
        os.close(fd)
        await qmp.execute("chardev-add", id="f0",
                          backend={"type": "file", "data": {"out": "/dev/fdset/5"}})
        sets = await qmp.execute("query-fdsets")
        assert sets == [{"fdset-id": 5, "fds": [{"fd": info["fd"], "opaque": "log"}]}], sets
        await qmp.execute("remove-fd", fdset_id=5, fd=info["fd"])
        assert await qmp.execute("query-fdsets") == []
        # A client for a server that waits for one.
        listen = os.path.join(emu.dir.name, "listen")
        await qmp.execute("chardev-add", id="s0", backend={"type": "socket", "data": {
            "addr": {"type": "unix", "data": {"path": listen}}}})
        ours, theirs = socket.socketpair()
        await qmp.execute("getfd", fdname="c", _fd=theirs.fileno())
        theirs.close()
        answer = await qmp.call("add_client", {"protocol": "s0", "fdname": "c"})
        assert answer["return"] == {}
        assert any(c["label"] == "s0" and "disconnected" not in c["filename"]
                   for c in await qmp.execute("query-chardev"))
        await qmp.execute("yank", instances=[{"type": "chardev", "id": "s0"}])
        assert await asyncio.get_running_loop().run_in_executor(None, ours.recv, 1) == b""
        ours.close()
        # Names from getfd in an address.
        ours, theirs = socket.socketpair()
        await qmp.execute("getfd", fdname="sock", _fd=theirs.fileno())
        theirs.close()
        await qmp.execute("chardev-add", id="s1", backend={"type": "socket", "data": {
            "server": False, "addr": {"type": "fd", "data": {"str": "sock"}}}})
        # A monitor on it, made and deleted like any object.
        await qmp.execute("object-add", qom_type="monitor-qmp", id="m1", chardev="s1")
        async with QmpClient(ours) as second:
            await second.start()
            assert await second.execute("query-name") == {}
            for command, arguments in (("object-del", {"id": "m1"}), ("chardev-remove",
                                                                      {"id": "s1"})):
                await qmp.execute(command, **arguments)
            await asyncio.wait_for(second.closed.wait(), 5)


def unix_server(path):
    return {"type": "socket", "data": {"addr": {"type": "unix", "data": {"path": path}}}}


async def read_until(reader, text):
    got = b""
    while text not in got:
        data = await asyncio.wait_for(reader.read(4096), 10)
        assert data, f"{got}, expected {text}"
        got += data


async def test_chardev_change():
    async with Emulator("-chardev", "null,id=hmp", "-mon", "chardev=hmp,mode=readline",
                        "-chardev", "ringbuf,id=free") as emu, await emu.monitor() as qmp:
        chardevs = {c["label"]: c for c in await qmp.execute("query-chardev")}
        own = next(name for name, c in chardevs.items() if c["filename"].startswith("unix:"))
        path = os.path.join(emu.dir.name, "hmp")
        # A monitor goes on with its new device, and greets who comes.
        assert await qmp.execute("chardev-change", id="hmp", backend=unix_server(path)) == {}
        reader, writer = await asyncio.open_unix_connection(path)
        await read_until(reader, b"(qemu) ")
        # By hand, on the same address, from another monitor: the old client is left.
        text = await qmp.hmp(f"chardev-change hmp socket,path={path},server=on,wait=off")
        assert text == "", text
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        reader, writer = await asyncio.open_unix_connection(path)
        await read_until(reader, b"(qemu) ")
        writer.write(b"info status\r")
        await read_until(reader, b"VM status: running")
        # Refused, each with its reason, and nothing has changed.
        null = {"type": "null", "data": {}}
        for id_, backend, message in (
                ("nobody", null, "Chardev 'nobody' does not exist"),
                (own, null, f"Chardev '{own}' is busy: this command came by it"),
                ("hmp", {"type": "mux", "data": {"chardev": "free"}}, "'mux'"),
                ("hmp", {"type": "ringbuf", "data": {"size": 3}}, "power of two"),
                ("hmp", unix_server("/nonexistent/x"), "cannot listen on UNIX socket"),
                ("hmp", {"type": "socket", "data": {"addr": {"type": "fd", "data": {
                    "str": "nosuch"}}}}, "'nosuch' has not been found")):
            answer = await qmp.call("chardev-change", {"id": id_, "backend": backend})
            assert is_error(answer) and message in answer["error"]["desc"], answer
        for line, message in (("chardev-change", "usage: chardev-change"),
                              ("chardev-change free", "'' is not a valid char driver name"),
                              ("chardev-change free null,id=a", "Unexpected 'id' parameter"),
                              ("chardev-change nobody null", "Chardev 'nobody' does not exist"),
                              ("chardev-add null,id=free", "already exists")):
            text = await qmp.hmp(line)
            assert message in text, (line, text)
        after = {c["label"]: c for c in await qmp.execute("query-chardev")}
        assert after.keys() == chardevs.keys(), after
        assert after["free"] == chardevs["free"] and after[own] == chardevs[own]
        assert after["hmp"]["filename"].startswith(f"unix:{path}"), after
        writer.write(b"chardev-change hmp null\r")
        await read_until(reader, b"Chardev 'hmp' is busy: this command came by it")
        writer.close()


async def test_chardev_change_of_others():
    """qtest stays with what it has; a device that nobody uses becomes anything."""
    async with Emulator("-chardev", "null,id=free") as emu, await emu.monitor() as qmp:
        answer = await qmp.call("chardev-change", {"id": "qtest", "backend": {"type": "null",
                                                                              "data": {}}})
        assert answer["error"]["desc"] == (
            "Chardev 'qtest' is busy: its user does not support chardev hotswap"), answer
        assert emu.qtest.config_read(0, 0, 0) == 0x12378086
        answer = await qmp.execute("chardev-change", id="free", backend={"type": "pty", "data": {}})
        assert answer["pty"].startswith("/dev/pts/"), answer
        await qmp.execute("chardev-change", id="free", backend={"type": "ringbuf", "data": {}})
        await qmp.execute("ringbuf-write", device="free", data="text")
        assert await qmp.execute("ringbuf-read", device="free", size=10) == "text"


async def test_line_editor():
    async with Emulator(*DEVICES, "-chardev", "socket,id=hmp,path=/tmp/swnic-hmp-test,server=on,"
                        "wait=off", "-object", "monitor-hmp,id=m0,chardev=hmp") as emu:
        reader, writer = await asyncio.open_unix_connection("/tmp/swnic-hmp-test")

        async def until(text):
            got = b""
            while text not in got:
                try:
                    data = await asyncio.wait_for(reader.read(4096), 5)
                except asyncio.TimeoutError:
                    data = b""
                assert data, f"{got}, expected {text}"
                got += data
            return got

        await until(b"(qemu) ")
        for typed, shown in ((b"device_a\t", b"device_add "),
                             (b"virtio-net-pci,x-tx\t\t", b"x-txtimer="),
                             (b"\x15info vers\t", b"info version "),
                             (b"\x15qom-get nic\t", b"qom-get nic0 "),
                             (b"x-txt\t", b"x-txtimer "), (b"\r", b"150000"),
                             (b"device_del n\t", b"device_del nic0 "),
                             (b"\x15object_del i\t", b"object_del io0 "),
                             (b"\x15stop\r", b"(qemu) "), (b"info status\r", b"paused"),
                             (b"\x1b[A\x1b[A\x01\x0b", b"(qemu) "),
                             (b"\x1b[B\r", b"VM status"),
                             (b"nonsense\r", b"unknown command: 'nonsense'")):
            writer.write(typed)
            await until(shown)
        writer.close()
        emu.check_alive()


async def test_many_monitors_hear_events():
    async with Emulator(*DEVICES, monitors=8) as emu:
        clients = [await emu.monitor(i) for i in range(8)]
        await clients[0].execute("stop")
        for client in clients:
            await client.wait_event("STOP")
            await client.close()


if __name__ == "__main__":
    sys.exit(async_tap.run(sys.modules[__name__]))
