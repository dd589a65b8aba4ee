"""Debian roots that the functional tests take programs and kernels from.

`bookworm` has the 6.1 cloud kernel and the tools of the guest; `forky` has QEMU 11.1, the 7.2 cloud
kernel and passt.  They are unpacked on first use into build/roots/ and kept.
"""
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
ROOTS = PROJECT / "build" / "roots"
PACKAGES = {
    "bookworm": ["linux-image-cloud-amd64", "libc6", "busybox-static", "ethtool", "iperf3"],
    "forky": ["linux-image-cloud-amd64", "libc6", "qemu-system-x86", "qemu-system-data", "passt"],
}


def debian_root(suite):
    """The folder of @suite's root, unpacked if it is not there yet."""
    folder = ROOTS / suite
    subprocess.run([PROJECT / "scripts" / "debian-root.sh", folder, suite, *PACKAGES[suite]],
                   check=True)
    return folder


def qemu_forky():
    """Command (a list) that runs forky's qemu-system-x86_64."""
    root = debian_root("forky")
    return [str(PROJECT / "scripts" / "run-in-root.sh"), str(root), "qemu-system-x86_64",
            "-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")]


def kernel(suite):
    """(vmlinuz, folder of modules, release) of @suite's cloud kernel."""
    root = debian_root(suite)
    modules = next(iter(sorted((root / "usr/lib/modules").glob("*-cloud-amd64"))), None) or \
        next(iter(sorted((root / "lib/modules").glob("*-cloud-amd64"))))
    image = modules / "vmlinuz"
    if not image.exists():
        image = root / "boot" / f"vmlinuz-{modules.name}"
    return image, modules, modules.name
