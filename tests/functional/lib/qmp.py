"""A QMP client for tests, on asyncio.

QmpClient speaks the protocol strictly: every answer is matched with its request by id, every
event is kept in order, anything that is neither fails the test.  Raw bytes can be sent past all
that (send_raw), to play clients that do not behave.
"""
import array
import asyncio
import itertools
import json
import os
import socket
import subprocess
import tempfile
import time


class QmpError(Exception):
    """An error answer: its class and text."""

    def __init__(self, error):
        super().__init__(f"{error['class']}: {error['desc']}")
        self.cls = error["class"]
        self.desc = error["desc"]


class QmpClient:
    """One session.  `async with await QmpClient.connect(path) as qmp: await qmp.execute(…)`."""

    def __init__(self, sock):
        sock.setblocking(False)
        self.sock = sock
        self.greeting = None
        self.events = []
        self._event_came = asyncio.Event()
        self._pending = {}
        self._ids = itertools.count(1)
        self._buffer = bytearray()
        self._reader = None
        self.unmatched = []  # answers without a known id
        self.closed = asyncio.Event()

    @classmethod
    async def connect(cls, path, negotiate=True, enable=(), reading=True, timeout=10,
                      alive=None):
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        end = time.monotonic() + timeout
        while True:
            try:
                await asyncio.get_running_loop().sock_connect(sock, path)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > end or (alive and alive.poll() is not None):
                    raise ConnectionError(f"nobody listens at {path}") from None
                await asyncio.sleep(0.01)
        self = cls(sock)
        if reading:
            await self.start(negotiate, enable)
        return self

    async def start(self, negotiate=True, enable=()):
        """Takes the greeting and begins to read."""
        line = await self._read_line()
        if not line:
            raise ConnectionError("the emulator closed the connection")
        self.greeting = json.loads(line)
        assert set(self.greeting) == {"QMP"}, self.greeting
        self._reader = asyncio.create_task(self._read())
        if negotiate:
            await self.execute("qmp_capabilities", **({"enable": list(enable)} if enable else {}))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def close(self):
        if self._reader:
            self._reader.cancel()
            try:
                await self._reader
            except asyncio.CancelledError:
                pass
        self.sock.close()

    async def _read_line(self):
        loop = asyncio.get_running_loop()
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            data = await loop.sock_recv(self.sock, 1 << 20)
            if not data:
                return b""
            self._buffer += data
        line = bytes(self._buffer[:end + 1])
        del self._buffer[:end + 1]
        return line

    async def _read(self):
        try:
            while line := await self._read_line():
                assert line.endswith(b"\r\n"), line
                self._take(json.loads(line))
        except ConnectionError:
            pass
        self.closed.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the emulator closed the connection"))

    def _take(self, message):
        if "event" in message:
            assert set(message) <= {"event", "data", "timestamp"}, message
            assert set(message["timestamp"]) == {"seconds", "microseconds"}, message
            self.events.append(message)
            self._event_came.set()
            return
        assert ("return" in message) != ("error" in message), message
        future = self._pending.pop(message.get("id"), None)
        if future is None:
            self.unmatched.append(message)
        elif not future.done():
            future.set_result(message)

    async def send_raw(self, data):
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def send_with_fd(self, data, fd):
        """@data with a file descriptor, at once: it must be short."""
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        assert self.sock.sendmsg([data], control) == len(data)

    def request(self, command, arguments=None, oob=False):
        """(bytes, future) of a request that somebody else sends."""
        number = f"t{next(self._ids)}"
        message = {"exec-oob" if oob else "execute": command, "id": number}
        if arguments is not None:
            message["arguments"] = arguments
        future = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        return json.dumps(message).encode() + b"\n", future

    async def call(self, command, arguments=None, oob=False, fd=None, timeout=20):
        """The whole answer, success or not."""
        data, future = self.request(command, arguments, oob)
        if fd is None:
            await self.send_raw(data)
        else:
            await self.send_with_fd(data, fd)
        return await asyncio.wait_for(future, timeout)

    async def execute(self, command, _fd=None, **arguments):
        """What the command returns; `_` in a name stands for `-` (write x__y for x_y)."""
        named = {k.replace("__", "\0").replace("_", "-").replace("\0", "_"): v
                 for k, v in arguments.items()}
        answer = await self.call(command, named or None, fd=_fd)
        if "error" in answer:
            raise QmpError(answer["error"])
        return answer["return"]

    async def hmp(self, line):
        return await self.execute("human-monitor-command", command_line=line)

    async def wait_event(self, name, timeout=10, **data):
        """Takes the first event @name whose data has @data; those before it are dropped."""
        end = time.monotonic() + timeout
        while True:
            for i, event in enumerate(self.events):
                have = event.get("data", {})
                if event["event"] == name and all(have.get(k) == v for k, v in data.items()):
                    del self.events[:i + 1]
                    return event
            self._event_came.clear()
            await asyncio.wait_for(self._event_came.wait(), max(end - time.monotonic(), 0.01))


class Emulator:
    """An emulator in a folder of its own, with `monitors` QMP sockets."""

    def __init__(self, *args, monitors=1, qtest=True, binary=None, pass_fds=(), name="qmp"):
        self.binary = binary or os.environ["SWNIC_BINARY"]
        self.dir = tempfile.TemporaryDirectory(prefix="swnic-qmp-")
        self.paths = [os.path.join(self.dir.name, f"{name}{i}") for i in range(monitors)]
        self.qtest_path = os.path.join(self.dir.name, "qtest")
        command = [self.binary, "-display", "none", "-run-with", "exit-with-parent=on"]
        self._listener = None
        if qtest:
            command += ["-accel", "qtest"]
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(self.qtest_path)
            self._listener.listen(1)
            command += ["-qtest", f"unix:{self.qtest_path}", "-qtest-log", "none"]
        for path in self.paths:
            command += ["-qmp", f"unix:{path},server=on,wait=off"]
        self.command = command + list(args)
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.stderr,
                                        pass_fds=pass_fds)
        self.qtest = None
        if qtest:
            self._listener.settimeout(20)
            self.qtest = Qtest(self._listener.accept()[0])

    async def monitor(self, index=0, **kwargs):
        return await QmpClient.connect(self.paths[index], **kwargs)

    def log(self):
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def check_alive(self):
        code = self.process.poll()
        assert code is None, f"the emulator ended with {code}: {self.log()}"

    def rss(self):
        """Resident memory, bytes."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    async def wait_end(self, timeout=20):
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(
            loop.run_in_executor(None, self.process.wait), timeout)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = await self.wait_end()
        except asyncio.TimeoutError:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.qtest:
                self.qtest.sock.close()
            if self._listener:
                self._listener.close()
            log = self.log()
            self.stderr.close()
            self.dir.cleanup()
        if kind is None:
            assert code == 0, f"exit status {code}: {log}"


class Qtest:
    """Just enough of qtest to play a guest's firmware: ports and configuration space."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(20)
        self.file = sock.makefile("rwb", buffering=0)

    def command(self, text):
        self.file.write(text.encode() + b"\n")
        while True:
            line = self.file.readline().decode().split()
            assert line, "qtest connection lost"
            if line[0] == "IRQ":
                continue
            assert line[0] == "OK", f"{text}: {line}"
            return int(line[1], 0) if len(line) > 1 else None

    def config(self, bus, devfn, offset):
        self.command(f"outl 0xcf8 {0x80000000 | bus << 16 | devfn << 8 | (offset & 0xfc):#x}")
        return 0xcfc + (offset & 3)

    def config_read(self, bus, devfn, offset, size=4):
        letter = {1: "b", 2: "w", 4: "l"}[size]
        return self.command(f"in{letter} {self.config(bus, devfn, offset):#x}")

    def config_write(self, bus, devfn, offset, value, size=4):
        letter = {1: "b", 2: "w", 4: "l"}[size]
        self.command(f"out{letter} {self.config(bus, devfn, offset):#x} {value:#x}")

    def find_capability(self, bus, devfn, wanted):
        offset = self.config_read(bus, devfn, 0x34, 1)
        while offset:
            if self.config_read(bus, devfn, offset, 1) == wanted:
                return offset
            offset = self.config_read(bus, devfn, offset + 1, 1)
        return 0
