"""`swnic-guest tcp` as a child, and streams between it and the kernel, compared by SHA-256."""
import hashlib
import json
import os
import socket
import subprocess
import time

from .network import die_with_parent
from .tap import Failure, expect

WAIT = 30
SIZE = 8 << 20
CONTENTS = bytes((i * 31 + (i >> 9) * 7) & 255 for i in range(1 << 20)) * (SIZE >> 20)
SHA256 = hashlib.sha256(CONTENTS).hexdigest()


class TcpGuest:
    """A guest of @emulator (with its arguments) on @netdev that runs @command; use as a context."""

    def __init__(self, emulator, netdev, *command):
        self.process = subprocess.Popen(
            [os.environ["SWNIC_GUEST"], "tcp", "-e", emulator, "-n", netdev, *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=die_with_parent)
        line = self.process.stdout.readline()
        if line != "ready\n":
            self.end()
            raise Failure(f"swnic-guest: {line}{self.process.communicate()[1]}")

    def finish(self):
        """Its report, when it has ended well by itself."""
        out, err = self.process.communicate(timeout=WAIT)
        expect(self.process.returncode == 0 and not err, f"swnic-guest: {err}")
        return json.loads(out)

    def line(self):
        """What it says next, without the newline."""
        return self.process.stdout.readline().rstrip("\n")

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        """A failure also says what the guest said."""
        if self.process.poll() is None:
            self.process.terminate()
        if not self.process.stderr.closed:
            said = self.process.communicate()[1]
            if kind in (Failure, TimeoutError, ConnectionResetError) and said:
                raise Failure(f"{error}; {said.strip()}") from error


def from_guest(emulator, netdev, host, port, in_the_middle=lambda: None):
    """The guest sends SIZE bytes to @host:@port, which lead to this host's port of that number.
    @in_the_middle is called when half of them have come."""
    with socket.create_server(("0.0.0.0", port)) as server:
        server.settimeout(WAIT)
        with TcpGuest(emulator, netdev, "source", f"{host}:{port}", str(SIZE)) as guest:
            digest, count = hashlib.sha256(), 0
            connection, _ = server.accept()
            with connection:
                connection.settimeout(WAIT)
                while data := connection.recv(1 << 18):
                    digest.update(data)
                    if count < SIZE // 2 <= count + len(data):
                        in_the_middle()
                    count += len(data)
            report = guest.finish()
    expect(count == SIZE and digest.hexdigest() == report["sent-sha256"],
           f"{count} bytes came; the guest sent {report}")


def to_guest(emulator, netdev, address):
    """CONTENTS to @address, (host, 5001), which leads to the guest's port 5001."""
    with TcpGuest(emulator, netdev, "sink", "5001") as guest:
        # Who answers before the guest does, resets what it cannot deliver yet.
        deadline = time.monotonic() + WAIT
        while True:
            try:
                with socket.create_connection(address, timeout=WAIT) as connection:
                    connection.sendall(CONTENTS)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        report = guest.finish()
    expect(report["received-sha256"] == SHA256, f"the guest received {report}")
