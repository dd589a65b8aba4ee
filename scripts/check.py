#!/usr/bin/env python3
"""Builds swnic three ways, runs every test in each, and prints the count.

Builds: release with -Werror (all suites), address+undefined sanitizers and thread sanitizer (unit
and qtest suites).  A test that fails, a leak, a race or a warning is a failure.  The last line is
"N passed, N failed, N skipped", counted over single TAP test points.

Tests of real programs share two slow cores with each other.  A program that failed without a
sanitizer's report is run once more, alone; if it passes then, it counts, and it is named as
unstable.  More than MAX_SECOND_RUNS of them are no accident and are not run again.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILDS = {
    # name: (build tree, configure options, suites)
    "release": ("build", ["--enable-werror"], None),
    "asan": ("build-asan", ["--enable-werror", "--enable-sanitizers"], ["unit", "qtest"]),
    "tsan": ("build-tsan", ["--enable-werror", "--enable-tsan"], ["unit", "qtest"]),
}
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:exitcode=99",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99:suppressions="
                    + str(ROOT / "scripts" / "tsan.supp"),
}
# A report of the program's or of one that it started: a failure whatever a second run says.
SANITIZER_REPORT = re.compile(r"Sanitizer|runtime error:")
MAX_SECOND_RUNS = 3
TAP_POINT = re.compile(r"^(not ok|ok)\b[^#\n]*(#\s*(skip|todo)\b(.*))?", re.I | re.M)


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = []
        self.unstable = []

    def add_test(self, build, test):
        """One meson test: its TAP points, or itself where it prints none."""
        name = f"{build}/{test['name']}"
        points = list(TAP_POINT.finditer(test.get("stdout") or ""))
        bad = is_bad(test)
        failed = 0
        for point in points:
            if (point.group(3) or "").lower() == "skip":
                self.skipped += 1
                self.reasons.append(f"{name}: {point.group(0).strip()}")
            elif point.group(1).lower() == "ok":
                self.passed += 1
            else:
                failed += 1
        if bad and not failed:
            failed = 1  # died, timed out or leaked after its last point
        self.failed += failed
        if not points and not bad:
            if test["result"] == "SKIP":
                self.skipped += 1
                self.reasons.append(name)
            else:
                self.passed += 1


def is_bad(test):
    return test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")


def run(command, **kwargs):
    return subprocess.run(command, cwd=ROOT, **kwargs).returncode


def read_log(log):
    """meson's results by the test's name."""
    tests = [json.loads(line) for line in log.read_text(errors="replace").splitlines()]
    return {test["name"]: test for test in tests}


def second_runs(results):
    """Names of the tests to run once more: see above."""
    names = [name for name, test in results.items() if is_bad(test) and not
             SANITIZER_REPORT.search((test.get("stdout") or "") + (test.get("stderr") or ""))]
    return names if len(names) <= MAX_SECOND_RUNS else []


def run_build(build, full, pattern, count):
    """Configures, builds and tests one build; failures of any step are counted."""
    tree, options, suites = BUILDS[build]
    began = time.monotonic()
    print(f"== {build}: build", flush=True)
    with open(os.devnull, "w") as null:
        if run(["./configure", f"--builddir={tree}", *options], stdout=null):
            print(f"{build}: configure failed")
            count.failed += 1
            return
    result = subprocess.run(["ninja", "-C", tree], cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        print(result.stdout[-6000:])
        print(f"{build}: build failed")
        count.failed += 1
        return
    built = time.monotonic()
    print(f"== {build}: built in {built - began:.0f} s; test", flush=True)
    log = ROOT / tree / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    command = ["meson", "test", "-C", tree, "--no-rebuild", "--print-errorlogs"]
    for suite in suites or []:
        command += ["--suite", suite]
    env = dict(os.environ, **SANITIZER_ENV)
    if full:
        env["SWNIC_TEST_FULL"] = "1"
    run(command + pattern, env=env)
    if not log.exists():
        print(f"{build}: no test ran")
        count.failed += 1
        return
    results = read_log(log)
    for name in second_runs(results):
        print(f"== {build}: {name} failed; once more, alone", flush=True)
        run(command + ["--num-processes", "1", name.split(" / ")[-1]], env=env)
        again = read_log(log).get(name)
        if again and not is_bad(again):
            count.unstable.append(f"{build}/{name}")
            results[name] = again
    for test in results.values():
        count.add_test(build, test)
    print(f"== {build}: tested in {time.monotonic() - built:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="whole test matrices")
    parser.add_argument("--build", choices=BUILDS, action="append", help="only this build")
    parser.add_argument("tests", nargs="*", help="only these meson tests")
    args = parser.parse_args()
    count = Count()
    for build in args.build or BUILDS:
        run_build(build, args.full, args.tests, count)
    for reason in count.reasons:
        print("skipped:", reason)
    for name in count.unstable:
        print("unstable: failed once, then passed alone:", name)
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
