"""A real Linux guest in QEMU under TCG, driven by shell commands over its serial console."""
import os
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path

from . import initramfs
from .debian_roots import kernel
from .network import die_with_parent


class GuestError(Exception):
    pass


class LinuxGuest:
    """Boots @suite's kernel in @qemu (a command) with @devices (arguments); use as a context.

    RAM is a shared memfd, so that a vfio-user server can map it.  @echo is called with each piece
    of console output.  With @reboots a reboot boots again, else it ends QEMU.
    """

    def __init__(self, qemu, devices, suite="bookworm", memory="256M", append="", echo=None,
                 cpus=1, extra_modules=(), extra_files=(), reboots=False):
        self.folder = tempfile.TemporaryDirectory(prefix="swnic-guest-")
        image = Path(self.folder.name) / "initramfs"
        image.write_bytes(initramfs.build(suite, extra_modules, extra_files))
        vmlinuz, _, _ = kernel(suite)
        self.command = [
            *qemu, "-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg",
            "-machine", "pc,memory-backend=m", "-smp", str(cpus), "-m", memory,
            "-object", f"memory-backend-memfd,id=m,size={memory},share=on",
            "-kernel", str(vmlinuz), "-initrd", str(image),
            "-append", f"console=ttyS0 quiet panic=-1 {append}",
            "-serial", "stdio", *([] if reboots else ["-no-reboot"]), *devices]
        self.echo = echo
        self.output = ""
        self.process = None
        self.serial = 0

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, bufsize=0,
                                        preexec_fn=die_with_parent)
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.folder.cleanup()

    def wait_ready(self, timeout=180):
        """Returns when the shell reads commands, and its greeting is out of the way."""
        self.wait_for("GUEST-READY", timeout)
        self.run("true")

    def reboot(self, timeout=180):
        self.process.stdin.write(b"reboot -f\n")
        self.wait_ready(timeout)

    def read_some(self, deadline):
        """Appends what the console says to self.output; an error at the deadline or the end."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise GuestError(f"guest: no answer in time; it said:\n{self.output[-2000:]}")
        ready, _, _ = select.select([self.process.stdout], [], [], left)
        if not ready:
            return
        data = os.read(self.process.stdout.fileno(), 65536)
        if not data:
            raise GuestError(f"guest: ended with {self.process.wait()}; it said:\n"
                             f"{self.output[-2000:]}")
        text = data.decode(errors="replace").replace("\r", "")
        self.output += text
        if self.echo:
            self.echo(text)

    def wait_for(self, pattern, timeout):
        """Reads until @pattern (a regular expression) is there; returns what stood before it."""
        deadline = time.monotonic() + timeout
        while True:
            match = re.search(pattern, self.output)
            if match:
                before = self.output[:match.start()]
                self.output = self.output[match.end():]
                return before, match
            self.read_some(deadline)

    def start(self, command):
        """Sends a command; finish() waits for it."""
        self.serial += 1
        line = f"{{ {command}\n}} 2>&1; echo GUEST-DONE-{self.serial} $?\n"
        self.process.stdin.write(line.encode())

    def finish(self, timeout=60, check=True):
        text, match = self.wait_for(rf"GUEST-DONE-{self.serial} (\d+)\n", timeout)
        status = int(match.group(1))
        # The shell prints its prompts among the output.
        text = re.sub(r"(^|\n)((~|/) # |> )+", r"\1", text).strip("\n")
        if check and status:
            raise GuestError(f"guest: exit status {status}: {text[-1500:]}")
        return text if check else (status, text)

    def run(self, command, timeout=60, check=True):
        """Runs a shell command in the guest and returns its output (and status, unless @check)."""
        self.start(command)
        return self.finish(timeout, check)

    def power_off(self, timeout=30):
        self.process.stdin.write(b"poweroff -f\n")
        self.process.wait(timeout)
