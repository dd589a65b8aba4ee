"""A small initramfs for the real Linux guest: busybox, ethtool, iperf3 and the modules asked for.

/init loads the modules in order of their dependencies and then reads shell commands from the
console, one a line; the host's side of that is linux_guest.py.
"""
import lzma
import os
import re
import subprocess
from pathlib import Path

from .debian_roots import debian_root, kernel

MODULES = ["virtio_pci", "virtio_net", "8021q", "af_packet"]
PROGRAMS = ["usr/sbin/ethtool", "sbin/ethtool", "usr/bin/iperf3"]
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
for module in $(cat /modules); do insmod /lib/modules/$module || echo "insmod $module failed"; done
ip link set lo up
stty -echo -onlcr 2>/dev/null
echo GUEST-READY
exec sh
"""
DHCP = """#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr flush dev $interface
ip addr add $ip/${mask:-24} dev $interface
[ -z "$router" ] || ip route replace default via $router
echo "nameserver ${dns%% *}" >/etc/resolv.conf
echo "lease $ip router $router dns $dns"
"""


def module_bytes(path):
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def load_order(modules_dir, names):
    """[(file name, bytes)] of @names and what they depend on, dependencies first."""
    files = {re.sub(r"\.ko(\.xz)?$", "", p.name).replace("-", "_"): p
             for p in modules_dir.rglob("*.ko*")}
    order = {}

    def add(name):
        if name in order or name not in files:  # built in, or not in this kernel
            return
        data = module_bytes(files[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in (depends.group(1).decode().split(",") if depends and depends.group(1) else []):
            add(other.replace("-", "_"))
        order[name] = data

    for name in names:
        add(name)
    return [(f"{name}.ko", data) for name, data in order.items()]


def libraries(root, program):
    """The shared libraries of @program, as paths in the root."""
    paths = f"{root}/lib/x86_64-linux-gnu:{root}/usr/lib/x86_64-linux-gnu"
    text = subprocess.run([root / "lib64/ld-linux-x86-64.so.2", "--library-path", paths, "--list",
                           program], capture_output=True, text=True, check=True).stdout
    return [Path(m) for m in re.findall(r"=> (\S+)", text)] + [root / "lib64/ld-linux-x86-64.so.2"]


class Archive:
    """cpio in the `newc` format, in memory."""

    def __init__(self):
        self.parts = []
        self.inode = 0

    def add(self, name, data=b"", mode=0o100644, device=(0, 0)):
        self.inode += 1
        name = name.encode() + b"\0"
        fields = [self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0]
        header = b"070701" + b"".join(b"%08x" % f for f in fields)
        for part in (header + name, data):
            self.parts.append(part + b"\0" * (-len(part) % 4))

    def bytes(self):
        self.add("TRAILER!!!")
        return b"".join(self.parts)


def build(suite, extra_modules=(), extra_files=()):
    """The initramfs for @suite's kernel.  @extra_files: (name in the guest, bytes, mode)."""
    tools = debian_root("bookworm")
    _, modules_dir, _ = kernel(suite)
    archive = Archive()
    for folder in ("bin sbin dev proc sys tmp etc lib lib/modules lib64 usr usr/bin usr/sbin usr/share "
                   "etc/udhcpc lib/x86_64-linux-gnu").split():
        archive.add(folder, mode=0o040755)
    archive.add("dev/console", mode=0o020600, device=(5, 1))
    archive.add("init", INIT.encode(), 0o100755)
    archive.add("etc/udhcpc/default.script", DHCP.encode(), 0o100755)
    busybox = next(p for p in (tools / "bin/busybox", tools / "usr/bin/busybox") if p.exists())
    archive.add("bin/busybox", busybox.read_bytes(), 0o100755)
    have = {}
    for program in PROGRAMS:
        path = tools / program
        if not path.exists():
            continue
        archive.add("bin/" + path.name, path.read_bytes(), 0o100755)
        for library in libraries(tools, path):
            have[library.name] = library
    for name, library in have.items():
        place = "lib64/" if name.startswith("ld-linux") else "lib/x86_64-linux-gnu/"
        archive.add(place + name, Path(os.path.realpath(library)).read_bytes(), 0o100755)
    modules = load_order(modules_dir, [*MODULES, *extra_modules])
    archive.add("modules", "\n".join(name for name, _ in modules).encode())
    for name, data in modules:
        archive.add("lib/modules/" + name, data)
    for name, data, mode in extra_files:
        archive.add(name, data, mode)
    return archive.bytes()
