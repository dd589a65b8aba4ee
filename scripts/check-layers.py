#!/usr/bin/env python3
"""Includes point down only: fails on an #include of a higher or a sibling layer.

The table is the architecture (docs/design.md, "Layout"); a folder may include itself and what is
listed for it.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "util": [],
    "chardev": ["util"],
    "qapi": ["util", "chardev"],
    "qom": ["util", "qapi"],
    "vhost": ["util", "chardev"],
    "net": ["util", "chardev", "qapi", "qom", "vhost"],
    "migration": ["util", "qapi", "qom"],
    "hw/core": ["util", "qapi", "qom"],
    "hw/pci": ["util", "qapi", "qom", "migration", "hw/core"],
    "hw/i386": ["util", "qapi", "qom", "migration", "hw/core", "hw/pci", "hw/virtio"],
    "hw/virtio": ["util", "qapi", "qom", "migration", "vhost", "hw/core", "hw/pci"],
    "hw/net": ["util", "qapi", "qom", "migration", "vhost", "net", "hw/core", "hw/pci", "hw/virtio"],
    "guest": [],
    "swnic": [],  # the public header
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def layer_of(path):
    """The longest layer name that @path lies under, or None."""
    parts = Path(path).parts
    if parts and parts[0] == "include":
        parts = parts[1:]
    for depth in (2, 1):
        name = "/".join(parts[:depth])
        if name in ALLOWED:
            return name
    return None


def main():
    files = [str(p.relative_to(ROOT)) for top in sorted({k.split("/")[0] for k in ALLOWED} | {"include"})
             for p in sorted((ROOT / top).rglob("*.[ch]"))]
    bad = 0
    for name in files:
        layer = layer_of(name)
        if layer is None:
            continue
        for included in INCLUDE.findall((ROOT / name).read_text()):
            target = layer_of(included)
            if target is None and included.split("/")[0] in ("system", "hw"):
                target = included.split("/")[0]
            if target in (None, layer) or target in ALLOWED[layer]:
                continue
            print(f"{name}: layer {layer} may not include {included}")
            bad += 1
    print(f"{'not ok' if bad else 'ok'} 1 layers/includes-point-down")
    print("1..1")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
