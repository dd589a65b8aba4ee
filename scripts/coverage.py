#!/usr/bin/env python3
"""Line coverage of the device: builds with gcov, runs the tests, prints each file and the sum.

Counted are the lines of hw/virtio and hw/net; below 90 % in sum is a failure.  The tests run are
the unit and qtest suites and the matrix.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build-coverage"
FOLDERS = ("hw/virtio", "hw/net")
GOAL = 90.0


def run(*command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode


def run_tests():
    """False: something failed, and meson has printed what."""
    for old in TREE.rglob("*.gcda"):
        old.unlink()
    test = ["meson", "test", "-C", str(TREE), "--no-rebuild", "--print-errorlogs", "--quiet"]
    suites = subprocess.run([*test, "--suite", "unit", "--suite", "qtest"], cwd=ROOT).returncode
    matrix = subprocess.run([*test, "matrix-test"], cwd=ROOT).returncode
    return suites == 0 and matrix == 0


def count_lines():
    """{file: {line: times}} over every object that has the file in it, those that never ran too."""
    lines = {}
    for notes in sorted(TREE.rglob("*.gcno")):
        out = subprocess.run(["gcov", "--json-format", "--stdout", str(notes)], cwd=TREE,
                             capture_output=True, text=True, check=True).stdout
        for text in out.splitlines():
            for entry in json.loads(text)["files"] if text.startswith("{") else ():
                path = (TREE / entry["file"]).resolve()
                name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
                if name.endswith(".c") and name.startswith(tuple(f"{f}/" for f in FOLDERS)):
                    counts = lines.setdefault(name, {})
                    for line in entry["lines"]:
                        number = line["line_number"]
                        counts[number] = counts.get(number, 0) + line["count"]
    return lines


def percent(hit, total):
    return 100.0 * hit / total if total else 100.0


def report(lines, show_missing):
    """Prints the table; the sum's percentage."""
    hits = everything = 0
    for folder in FOLDERS:
        missing = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("*.c")}
        for name in sorted(missing - set(lines)):
            print(f"{name:44} no test links it, or it has no code")
    for name, counts in sorted(lines.items(), key=lambda one: percent(
            sum(n > 0 for n in one[1].values()), len(one[1]))):
        hit = sum(n > 0 for n in counts.values())
        hits += hit
        everything += len(counts)
        print(f"{name:44} {hit:5}/{len(counts):<5} {percent(hit, len(counts)):6.1f} %")
        if show_missing and hit < len(counts):
            print("    not run:", *sorted(number for number, n in counts.items() if not n))
    total = percent(hits, everything)
    print(f"{' and '.join(FOLDERS):44} {hits:5}/{everything:<5} {total:6.1f} % (goal {GOAL:.0f} %)")
    return total if everything else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-run", action="store_true", help="count what an earlier run left")
    parser.add_argument("--missing", action="store_true", help="name the lines that did not run")
    args = parser.parse_args()
    passed = True
    if not args.no_run:
        if run("./configure", f"--builddir={TREE.name}", "--enable-coverage") or \
                run("ninja", "-C", TREE.name):
            print("coverage: the build failed; see ninja -C", TREE.name, file=sys.stderr)
            return 1
        passed = run_tests()
    total = report(count_lines(), args.missing)
    if not passed:
        print("coverage: tests failed", file=sys.stderr)
    return 0 if passed and total >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
