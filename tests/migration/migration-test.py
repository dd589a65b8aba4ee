#!/usr/bin/env python3
"""Migration between two processes of ours: every way, every ending, RAM under writes, waiting and
parked packets."""
import contextlib
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import decode  # noqa: E402
import emulator as m  # noqa: E402

OURS = [os.environ["SWNIC_BINARY"]]
FEATURES = sum(1 << f for f in (m.F_MAC, m.F_STATUS, m.F_VERSION_1, m.F_MRG_RXBUF))
SCRATCH = 0x2000000     # 32 MiB: memory that only tests touch
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def start(*args, **kwargs):
    kwargs.setdefault("accel", "qtest")
    return m.Emulator(OURS, *args, **kwargs)


def capabilities(*emulators, **names):
    for e in emulators:
        e.command("migrate-set-capabilities", capabilities=[
            {"capability": name.replace("_", "-"), "state": state}
            for name, state in names.items()])


def events(e, name):
    e.command("query-status")  # whatever happened before is there then
    return [x["data"] if "data" in x else None for x in e.events if x["event"] == name]


def migrate(source, target, uri=None, finish=True):
    uri = uri or f"unix:{target.path('incoming')}"
    if target.command("query-status")["status"] == "inmigrate" and \
            "status" not in target.command("query-migrate"):
        target.command("migrate-incoming", uri=uri)
    source.command("migrate", uri=uri)
    if finish:
        info = source.wait_migration("completed", "failed", "cancelled")
        assert info["status"] == "completed", info
        info = target.wait_migration("completed", "failed")
        assert info["status"] == "completed", info


def carries_state(source, target, uri):
    driver = m.Driver(source, FEATURES)
    driver.start()
    source.write(SCRATCH, b"what the guest had")
    seen = driver.registers()
    migrate(source, target, uri)
    assert source.command("query-status")["status"] == "postmigrate"
    assert target.command("query-status")["status"] == "running"
    assert target.read(SCRATCH, 18) == b"what the guest had"
    assert m.Driver(target, FEATURES).registers() == seen
    frame = driver.send(0)
    driver.e = target
    driver.avail[m.TX] = 0
    driver.send(0)
    driver.notify(m.TX)
    assert target.receive(5000) == frame


@test
def ways_unix():
    with start() as a, start(incoming="defer") as b:
        carries_state(a, b, f"unix:{b.path('in')}")


@test
def ways_tcp():
    with start() as a, start(incoming="tcp:127.0.0.1:0") as b:
        address = b.command("query-migrate")["socket-address"][0]
        assert address["type"] == "inet", address
        carries_state(a, b, f"tcp:127.0.0.1:{address['port']}")


@test
def ways_exec():
    with start() as a:
        fifo = a.path("fifo")
        os.mkfifo(fifo)
        with start(incoming=f"exec:cat {fifo}") as b:
            carries_state(a, b, f"exec:cat >{fifo}")


@test
def ways_file():
    with start() as a, start(incoming="defer") as b:
        driver = m.Driver(a, FEATURES)
        driver.start()
        seen = driver.registers()
        path = a.path("saved")
        Path(path).write_bytes(b"in front")
        a.command("migrate", uri=f"file:{path},offset=8")
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        assert Path(path).read_bytes()[:12] == b"in frontQEVM"
        b.command("migrate-incoming", uri=f"file:{path},offset=8")
        assert b.wait_migration("completed", "failed")["status"] == "completed"
        b.wait_running()
        assert m.Driver(b, FEATURES).registers() == seen


@test
def ways_fd():
    ours, theirs = socket.socketpair()
    with start() as a, start(incoming=f"fd:{theirs.fileno()}", pass_fds=[theirs.fileno()]) as b:
        theirs.close()
        socket.send_fds(a.qmp.socket, [b'{"execute": "getfd", "arguments": {"fdname": "m"}}\n'],
                        [ours.fileno()])
        assert "return" in a.qmp.line()
        ours.close()
        carries_state(a, b, "fd:m")


@test
def bad_uris_are_refused():
    with start() as a:
        for uri, text in (("nonsense", "unknown migration protocol"), ("tcp:host", "no port"),
                          ("unix:", "nothing behind"), ("fd:9999", "fd 9999"), ("fd:x", "x"),
                          ("file:/nowhere/x", "cannot open"), ("tcp:::1:5", "brackets")):
            try:
                a.command("migrate", uri=uri)
            except RuntimeError as error:
                assert text in str(error), error
            else:
                raise AssertionError(f"{uri} was taken")
        assert "status" not in a.command("query-migrate")
        a.command("migrate", uri="unix:/nowhere/socket")
        info = a.wait_migration("failed")
        assert "/nowhere/socket" in info["error-desc"], info
        assert a.command("query-status")["status"] == "running"


@test
def events_and_progress():
    with start() as a, start(incoming="defer") as b:
        capabilities(a, b, events=True)
        migrate(a, b)
        states = [d["status"] for d in events(a, "MIGRATION")]
        assert states == ["setup", "active", "device", "completed"], states
        states = [d["status"] for d in events(b, "MIGRATION")]
        assert states == ["setup", "active", "completed"], states
        assert events(a, "MIGRATION_PASS") == [{"pass": 1}], events(a, "MIGRATION_PASS")
        assert events(a, "STOP") == [None] and events(b, "RESUME") == [None]
        info = a.command("query-migrate")
        assert {"status", "ram", "total-time", "downtime", "setup-time"} <= set(info), info
        assert info["ram"]["total"] == 64 << 20 and info["ram"]["remaining"] == 0
        text = a.command("human-monitor-command", **{"command-line": "info migrate"})
        assert "Migration status: completed\r\n" in text and "total ram: 65536 kbytes" in text


@test
def a_paused_vm_stays_paused():
    with start() as a, start(incoming="defer") as b:
        a.command("stop")
        migrate(a, b)
        assert b.command("query-status") == {"running": False, "status": "paused"}
        b.command("cont")
        assert b.command("query-status")["running"]


@test
def started_with_S_waits_for_cont():
    with start() as a, start("-S", incoming="defer") as b:
        migrate(a, b)
        assert b.command("query-status") == {"running": False, "status": "paused"}


@test
def pause_before_switchover():
    with start() as a, start(incoming="defer") as b:
        capabilities(a, pause_before_switchover=True, events=True)
        migrate(a, b, finish=False)
        a.wait_migration("pre-switchover")
        assert a.command("query-status")["status"] == "finish-migrate"
        a.write(SCRATCH, b"written while it waits")
        a.command("migrate-continue", state="pre-switchover")
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        b.wait_migration("completed")
        assert b.read(SCRATCH, 22) == b"written while it waits"
        states = [d["status"] for d in events(a, "MIGRATION")]
        assert states == ["setup", "active", "pre-switchover", "device", "completed"], states


@test
def cancel_while_active():
    with start() as a, start(incoming="defer") as b, start(incoming="defer") as c:
        fill(a)
        a.command("migrate-set-parameters", **{"max-bandwidth": 100000})
        migrate(a, b, finish=False)
        a.wait_migration("active")
        a.command("migrate_cancel")
        a.wait_migration("cancelled")
        assert a.command("query-status")["status"] == "running"
        status, text = wait_ended(b)
        assert status == 1 and "cut off" in text, (status, text)
        a.command("migrate-set-parameters", **{"max-bandwidth": 0})
        migrate(a, c)


@test
def cancel_in_pre_switchover_lets_the_vm_run():
    with start() as a, start(incoming="defer") as b:
        capabilities(a, pause_before_switchover=True)
        migrate(a, b, finish=False)
        a.wait_migration("pre-switchover")
        a.command("migrate_cancel")
        a.wait_migration("cancelled")
        assert a.command("query-status")["status"] == "running"
        assert events(a, "STOP") == [None] and events(a, "RESUME") == [None]


@test
def a_destination_that_fails_is_reported_on_both_sides():
    for device in ("vectors=0", "ctrl_vq=off"):
        with start() as a, start(incoming="defer", device=device) as b:
            driver = m.Driver(a, FEATURES | 1 << m.F_CTRL_VQ)
            driver.start()
            b.command("migrate-incoming", uri=f"unix:{b.path('in')}", **{"exit-on-error": False})
            a.command("migrate", uri=f"unix:{b.path('in')}")
            info = b.wait_migration("failed")
            assert "virtio-net" in info["error-desc"], info
            info = a.wait_migration("failed", "completed")
            assert info["status"] == "failed" and info["error-desc"], info
            assert a.command("query-status")["status"] == "running"
            assert b.command("query-status")["status"] == "inmigrate"
            try:
                b.command("cont")
            except RuntimeError as error:
                assert "incoming migration failed" in str(error)
            else:
                raise AssertionError("a half-loaded VM started")


@test
def a_destination_that_dies_is_noticed_with_return_path():
    with start() as a:
        capabilities(a, return_path=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(a.path("in"))
        listener.listen()
        a.command("migrate", uri=f"unix:{a.path('in')}")
        peer = listener.accept()[0]
        while peer.recv(1 << 20):
            pass
        peer.close()
        listener.close()
        info = a.wait_migration("failed", "completed")
        assert info["status"] == "failed" and "went away" in info["error-desc"], info
        assert a.command("query-status")["status"] == "running"
    with start() as a, start(incoming="defer") as b:
        capabilities(a, b, return_path=True)
        migrate(a, b)


@test
def capabilities_that_we_lack_are_refused():
    with start() as a:
        for name in ("multifd", "postcopy-ram", "xbzrle", "mapped-ram"):
            try:
                capabilities(a, **{name: True})
            except RuntimeError as error:
                assert name in str(error), error
            else:
                raise AssertionError(f"{name} was taken")


@test
def devices_do_not_change_meanwhile():
    with start() as a, start(incoming="defer") as b:
        capabilities(a, pause_before_switchover=True)
        migrate(a, b, finish=False)
        a.wait_migration("pre-switchover")
        for name, args in (("device_add", {"driver": "virtio-net-pci", "id": "n1"}),
                           ("device_del", {"id": "nic0"}), ("cont", {}),
                           ("migrate", {"uri": "exec:cat"})):
            try:
                a.command(name, **args)
            except RuntimeError:
                pass
            else:
                raise AssertionError(f"{name} was taken")
        a.command("migrate_cancel")
        a.wait_migration("cancelled")
        a.command("device_add", driver="virtio-net-pci", id="n1")


def fill(e, pages=2048):
    """Memory that is not zero."""
    block = bytes(range(1, 256)) * 257
    for at in range(0, pages * 4096, 65536):
        e.write(SCRATCH + at, block[:65536])


def wait_ended(e):
    e.process.wait(m.TIMEOUT)
    return e.close()


@test
def bandwidth_limit_is_kept():
    with start() as a, start(incoming="defer") as b:
        fill(a, 1024)
        a.command("migrate-set-parameters", **{"max-bandwidth": 8 << 20})
        begin = time.monotonic()
        migrate(a, b)
        seconds = time.monotonic() - begin
        print(f"# 4 MiB at 8 MiB/s: {seconds:.2f} s")
        assert 0.4 < seconds < 2, seconds


@test
def downtime_limit_decides_when():
    with start() as a, start(incoming="defer") as b:
        fill(a)
        a.command("migrate-set-parameters", **{"max-bandwidth": 4 << 20, "downtime-limit": 1})
        migrate(a, b, finish=False)
        end = time.monotonic() + 2.5  # the first pass takes 2 s; then much is dirty again
        while time.monotonic() < end:
            fill(a, 512)
        info = a.command("query-migrate")
        assert info["status"] == "active" and info["ram"]["dirty-sync-count"] >= 1, info
        a.command("migrate-set-parameters", **{"downtime-limit": 10000, "max-bandwidth": 0})
        a.wait_migration("completed")
        b.wait_migration("completed")


def no_write_is_lost(*args, shared=None, cap=False):
    """A writer that never rests: qtest, and frames that the device receives."""
    with start(*args) as a, start(*args, incoming="defer") as b:
        if cap:
            capabilities(a, b, x_ignore_shared=True)
        driver = m.Driver(a, FEATURES)
        driver.start()
        for i in range(60):
            driver.post(i)
        driver.notify(m.RX)
        fill(a, 1024)
        a.command("migrate-set-parameters", **{"max-bandwidth": 16 << 20, "downtime-limit": 50})
        stop = threading.Event()
        address = ("127.0.0.1", a.net_port)

        def frames():
            number = 0
            while not stop.is_set() and number < 60:
                a.peer.sendto(bytes.fromhex("525400123456 525400000001 88b5") +
                              struct.pack("<I", number) * 50, address)
                number += 1
                time.sleep(0.008)

        thread = threading.Thread(target=frames)
        thread.start()
        migrate(a, b, finish=False)
        number = 0
        while a.command("query-migrate")["status"] in ("setup", "active"):
            late = []  # perhaps written when the source had stopped, which qtest can do
            for i in range(8):
                late.append(number * 8191 % (4 << 20) & ~7)
                a.put(SCRATCH + late[-1], number, 8)
                number += 1
            if number == 20000:  # enough of it: whatever the writer's speed, let it end
                a.command("migrate-set-parameters", **{"max-bandwidth": 0,
                                                       "downtime-limit": 2000})
        stop.set()
        thread.join()
        assert a.wait_migration("completed", "failed")["status"] == "completed"
        b.wait_migration("completed")
        passes = a.command("query-migrate")["ram"]["dirty-sync-count"]
        print(f"# {number} writes, {driver.used(m.RX)} frames, {passes} passes")
        for at in late:
            b.put(SCRATCH + at, a.get(SCRATCH + at, 8), 8)
        for at in range(0, 4 << 20, 1 << 18):
            assert a.read(SCRATCH + at, 1 << 18) == b.read(SCRATCH + at, 1 << 18), hex(at)
        for queue in (m.RX, m.TX):
            base = m.RINGS + 0x10000 * queue
            assert a.read(base, 0xa000) == b.read(base, 0xa000), queue
        for i in range(driver.used(m.RX)):
            at = m.BUFFERS + 0x80000 + 0x1000 * i
            assert a.read(at, 256) == b.read(at, 256), i


@test
def no_write_is_lost_private():
    no_write_is_lost()


@test
def no_write_is_lost_shared():
    no_write_is_lost("-object", "memory-backend-memfd,id=ram0,size=64M,share=on",
                     "-machine", "memory-backend=ram0")


@test
def another_process_writes_shared_ram():
    with start() as spare:
        path = {n: spare.path(n) for n in ("ram-a", "ram-b")}
        backend = {n: ("-object", f"memory-backend-file,id=ram0,size=64M,share=on,mem-path={p}",
                       "-machine", "memory-backend=ram0") for n, p in path.items()}
        with start(*backend["ram-a"]) as a, start(*backend["ram-b"], incoming="defer") as b:
            capabilities(a, pause_before_switchover=True)
            migrate(a, b, finish=False)
            a.wait_migration("pre-switchover")
            with open(path["ram-a"], "r+b") as f:  # unseen by the emulator
                f.seek(SCRATCH)
                f.write(b"unseen")
            a.command("migrate-continue", state="pre-switchover")
            a.wait_migration("completed")
            b.wait_migration("completed")
            assert b.read(SCRATCH, 6) == b"unseen"


@test
def ignore_shared_hands_ram_over():
    with start() as spare:
        args = ("-object", f"memory-backend-file,id=ram0,size=64M,share=on,mem-path="
                f"{spare.path('ram')}", "-machine", "memory-backend=ram0")
        with start(*args) as a, start(*args, incoming="defer") as b:
            capabilities(a, b, x_ignore_shared=True)
            driver = m.Driver(a, FEATURES)
            driver.start()
            fill(a)
            migrate(a, b)
            frame = driver.send(0)
            info = a.command("query-migrate")
            assert info["ram"]["normal"] == 0 and info["ram"]["transferred"] < 100000, info
            print(f"# downtime {info['downtime']} ms")
            driver.e = b  # the frame was put into the ring by the source: it is one memory
            driver.notify(m.TX)
            assert b.receive(5000) == frame
        with start(*args) as a, start(*args, incoming="defer") as b:
            capabilities(a, x_ignore_shared=True)
            b.command("migrate-incoming", uri=f"unix:{b.path('in')}", **{"exit-on-error": False})
            a.command("migrate", uri=f"unix:{b.path('in')}")
            assert "x-ignore-shared" in b.wait_migration("failed")["error-desc"]


@test
def waiting_packets_under_every_pair_of_policies():
    packed = FEATURES | 1 << m.F_PACKED
    for features, ring in ((FEATURES, ""), (packed, "packed=on,")):
        for source in ("timer", "flush-first", "bh"):
            for target in ("bh", "timer", "flush-first"):
                waiting_packets(features, f"{ring}tx={source}", f"{ring}tx={target}")


def waiting_packets(features, source, target):
    is_packed = bool(features >> m.F_PACKED & 1)
    with start(device=source) as a, start(device=target, incoming="defer") as b:
        driver = m.Driver(a, features, packed=is_packed)
        driver.start()
        first = driver.send(0)
        driver.notify(m.TX)
        if "timer" in source:
            assert a.receive(5) is None
        elif "flush-first" in source:  # the first leaves at once, the next waits
            assert a.receive(5000) == first
            first = driver.send(1)
            driver.notify(m.TX)
            assert a.receive(5) is None
        else:
            # Published and not notified: either may send it, and only one.
            assert a.receive(5000) == first
            first = driver.send(1)
        migrate(a, b)
        driver.e = b
        if "tx=bh" in source:
            driver.notify(m.TX)
            b.step(1000000)
            assert [x for x in (a.receive(20), b.receive(20)) if x] == [first], "not once"
            return
        if "tx=bh" not in target:
            assert b.receive(5) is None, f"{source} to {target}: left before its time"
            b.step(149000)
            assert b.receive(5) is None, f"{source} to {target}: left before its time"
            b.step(2000)
        got = b.receive(5000)
        assert got == first, f"{source} to {target}: {got}"
        assert b.receive(5) is None and a.receive(5) is None, "sent twice"
        # and the ring goes on
        last = driver.send(2)
        driver.notify(m.TX)
        driver.notify(m.TX)
        b.step(1000000)
        assert b.receive(5000) == last


def read_frames(connection, wait=0.5):
    """Frames of a stream netdev, each behind its length."""
    data, frames = b"", []
    connection.settimeout(wait)
    try:
        while piece := connection.recv(1 << 20):
            data += piece
    except TimeoutError:
        pass
    while len(data) >= 4:
        size = struct.unpack(">I", data[:4])[0]
        if len(data) < 4 + size:
            break
        frames.append(data[4:4 + size])
        data = data[4 + size:]
    return [f for f in frames if f[12:14] != b"\x80\x35"]


@test
def parked_packets_are_neither_lost_nor_sent_twice():
    """Also where a driver's mistakes lie between them."""
    for packed, mistakes in ((False, False), (True, False), (False, True), (True, True)):
        features = FEATURES | (1 << m.F_PACKED if packed else 0)
        listeners = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        paths = [f"/tmp/swnic-parked-{os.getpid()}-{i}" for i in range(2)]
        emulators, peers = [], []
        stack = contextlib.ExitStack()
        try:
            for i in range(2):
                listeners[i].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                listeners[i].bind(paths[i])
                listeners[i].listen()
                emulators.append(stack.enter_context(start(
                    "-netdev", f"stream,id=n0,server=off,addr.type=unix,addr.path={paths[i]}",
                    netdev=False, device="netdev=n0," + ("packed=on" if packed else ""),
                    incoming="defer" if i else None)))
                peers.append(listeners[i].accept()[0])
            a, b = emulators
            driver = m.Driver(a, features, packed=packed)
            driver.start()
            sent = []
            for i in range(driver.SIZE):
                if mistakes and i in (57, 59, 61):
                    driver.add(m.TX, [(m.BUFFERS, 0, False)])  # a buffer of no bytes
                else:
                    sent.append(driver.send(i, 4000))
            driver.notify(m.TX)
            used = -1
            while used != driver.used(m.TX):
                used = driver.used(m.TX)
                time.sleep(0.1)
            migrate(a, b)
            got = read_frames(peers[0])
            more = read_frames(peers[1])
            print(f"# packed={packed}, mistakes={mistakes}: {used} of {driver.SIZE} used before, "
                  f"{len(got)} left the source, {len(more)} the destination")
            assert more, "nothing was parked"
            assert got + more == sent, ([f[20] for f in got], [f[20] for f in more])
            driver.e = b
            deadline = time.monotonic() + m.TIMEOUT
            while driver.used(m.TX) != driver.SIZE:
                assert time.monotonic() < deadline, driver.used(m.TX)
        finally:
            for s in (*listeners, *peers):
                stack.callback(s.close)
            for path in paths:
                stack.callback(Path(path).unlink, missing_ok=True)
            stack.close()


@test
def announces_itself_on_arrival():
    with start() as a, start(incoming="defer") as b:
        driver = m.Driver(a, FEATURES | 1 << m.F_GUEST_ANNOUNCE | 1 << m.F_CTRL_VQ)
        driver.start()
        migrate(a, b)
        b.peer.settimeout(5)
        assert b.peer.recv(2000)[12:14] == b"\x80\x35"
        assert b.get(m.DEVICE + 6, 2) & 2, "ANNOUNCE is not set"


@test
def the_description_decodes_the_stream():
    with start("-netdev", "hubport,id=h0,hubid=0", "-device", "virtio-net-pci,netdev=h0,addr=5",
               device="tx=timer") as a:
        driver = m.Driver(a, FEATURES)
        driver.start()
        driver.send(0)
        driver.notify(m.TX)
        stream = decode.Stream(a.save())
        assert stream.machine == "pc-i440fx-7.2" and stream.ram_sizes == {"pc.ram": 64 << 20}
        assert {"0000:00:04.0/virtio-net", "0000:00:05.0/virtio-net", "globalstate"} <= \
            set(stream.sections)
        field = stream.field("0000:00:04.0/virtio-net", "device.tx_waiting")
        assert field.value == 1
        field = stream.field("0000:00:05.0/virtio-net", "device.tx_waiting")
        assert field.value == 0
        assert stream.field("0000:00:04.0/virtio-net", "head.status").value == 15


@test
def saved_again_it_is_the_same():
    with start(device="tx=timer") as a, start(device="tx=timer", incoming="defer") as b:
        driver = m.Driver(a, FEATURES)
        driver.start()
        for i in range(5):
            driver.post(i)
        driver.send(0)
        driver.notify(m.TX)
        first = a.save()
        path = a.path("again")
        Path(path).write_bytes(first)
        b.command("migrate-incoming", uri=f"file:{path}")
        b.wait_migration("completed")
        second = b.save()
        at = [m.find_section(s) for s in (first, second)]
        one, two = (bytearray(s[x:y]) for s, (x, y) in zip((first, second), at))
        assert one == two, [i for i in range(len(one)) if one[i] != two[i]][:10]


if __name__ == "__main__":
    sys.exit(m.run_tests([(t.__name__, t) for t in TESTS]))
