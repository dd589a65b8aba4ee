"""swnic-system-x86_64 as a child, with its QMP socket."""
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .network import die_with_parent
from .tap import Failure


class Swnic:
    """The emulator in $SWNIC_BINARY, or @binary, with @arguments; use as a context.

    path(name) is a file in its own folder, for sockets.  It must end well when it is told to quit.
    """

    def __init__(self, binary=None):
        self.binary = binary or os.environ["SWNIC_BINARY"]
        self.folder = tempfile.TemporaryDirectory(prefix="swnic-")
        self.process = None
        self.monitor = None

    def path(self, name):
        return str(Path(self.folder.name) / name)

    def start(self, *arguments, pass_fds=()):
        command = [self.binary, "-nodefaults", "-qmp",
                   f"unix:{self.path('qmp')},server=on,wait=off", *arguments]
        self.process = subprocess.Popen(command, preexec_fn=die_with_parent, pass_fds=pass_fds)
        connection = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 20
        while True:
            try:
                connection.connect(self.path("qmp"))
                break
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Failure(f"{self.binary} did not start ({self.process.poll()})") from error
                time.sleep(0.02)
        connection.settimeout(30)
        self.monitor = connection.makefile("rwb", 0)
        connection.close()
        self.monitor.readline()
        self.qmp("qmp_capabilities")
        return self

    def qmp(self, command, **arguments):
        request = {"execute": command}
        if arguments:
            request["arguments"] = arguments
        self.monitor.write(json.dumps(request).encode() + b"\n")
        while line := self.monitor.readline():
            answer = json.loads(line)
            if "event" in answer:
                continue
            if "error" in answer:
                raise Failure(f"{command}: {answer['error']['desc']}")
            return answer["return"]
        raise Failure(f"{command}: the emulator has ended")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if self.process and self.process.poll() is None:
                self.process.terminate()
            status = self.process.wait(10) if self.process else 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if self.monitor:
            self.monitor.close()
        self.folder.cleanup()
        if status and kind is None:
            raise Failure(f"{self.binary} ended with {status}")


def vfio_user_device(path, **properties):
    """-device … of QEMU's client."""
    device = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": path}, **properties}
    return ["-device", json.dumps(device)]


def served(emulator, number, netdev, device=""):
    """Arguments that make NIC @number and serve it; (arguments, the socket's path)."""
    path = emulator.path(f"nic{number}.sock")
    return ["-netdev", f"{netdev},id=n{number}",
            "-device", f"virtio-net-pci,netdev=n{number},id=nic{number},"
                       f"mac=52:54:00:00:00:{number + 1:02x}{device and ',' + device}",
            "-object", f"vfio-user-server,id=s{number},device=nic{number},socket.type=unix,"
                       f"socket.path={path}"], path
