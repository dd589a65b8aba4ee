#!/usr/bin/env python3
"""Makes libswnic.a: one object of all layers that the first archive needs, with its public names.

Static libraries have no notion of a private name, except within one object.  So everything is
linked into one (cc -r), and the names that are hidden in the shared library become local ones
(objcopy).
"""
import argparse
import subprocess
import sys
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cc", nargs="+", required=True)
    parser.add_argument("--objcopy", required=True)
    parser.add_argument("--ar", required=True)
    parser.add_argument("output", type=Path)
    parser.add_argument("archives", nargs="+", help="the first one whole, then what it needs")
    args = parser.parse_args()
    one = args.output.with_suffix(".o")
    first, *layers = args.archives
    subprocess.run([*args.cc, "-r", "-nostdlib", "-o", one,
                    "-Wl,--whole-archive", first, "-Wl,--no-whole-archive",
                    "-Wl,--start-group", *layers, "-Wl,--end-group"], check=True)
    subprocess.run([args.objcopy, "--localize-hidden", one], check=True)
    args.output.unlink(missing_ok=True)
    subprocess.run([args.ar, "rcsD", args.output, one], check=True)
    one.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
