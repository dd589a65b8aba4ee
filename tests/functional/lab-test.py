#!/usr/bin/env python3
"""The lab and swnic-top, on real traffic.

One bench of the lab is up (two namespaces, taps, the device served by vfio-user) while swnic-top
looks at it: once for scripts, once as text, and live on a pseudo terminal.  Then single cells are
run through scripts/lab.py, which must write its report and leave nothing behind.
"""
import fcntl
import glob
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ["SWNIC_BUILD"]
TOP = os.path.join(BUILD, "swnic-top")
sys.path.insert(0, os.path.join(PROJECT, "scripts"))
from lab import rig, verdict  # noqa: E402
from lab.workloads import WORKLOADS, measure  # noqa: E402

WAIT = 20


class Failure(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failure(text)


class Traffic:
    """Requests and responses in the background."""

    def __init__(self, bench):
        self.thread = threading.Thread(target=bench.run, args=(WORKLOADS["rr1"].loads(2500),))

    def __enter__(self):
        self.thread.start()
        time.sleep(0.2)

    def __exit__(self, *_):
        self.thread.join()


def top(bench, *args):
    return subprocess.run([sys.executable, TOP, os.path.join(bench.dir, "top"), *args],
                          capture_output=True, text=True, timeout=WAIT)


def test_json(bench):
    with Traffic(bench):
        result = top(bench, "--once", "--json", "--interval", "0.5")
    expect(result.returncode == 0, result.stderr)
    found = json.loads(result.stdout)
    queue = found["devices"][0]["queues"][0]
    expect(found["devices"][0]["name"] == "nic0", found)
    expect(queue["tx"]["packets-per-second"] > 50, queue)
    expect(queue["rx"]["packets-per-second"] > 50, queue)
    expect(abs(sum(queue["tx"]["flushes"].values()) - 1) < 1e-6, queue)
    expect(queue["tx"]["wait-50-us"] is not None, queue)


def test_text(bench):
    with Traffic(bench):
        result = top(bench, "--once", "--interval", "0.3")
    expect(result.returncode == 0 and " tx 0 bh" in result.stdout, result.stdout + result.stderr)


def read_terminal(fd, seconds, until=None):
    text, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                text += os.read(fd, 65536)
            except OSError:
                break
            if until and until in text:
                break
    return text


def test_live(bench):
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, TOP, os.path.join(bench.dir, "top"),
                                  "--interval", "0.2"])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 48, 0, 0))
    with Traffic(bench):
        text = read_terminal(fd, WAIT, b"tx 0 bh")
        expect(b"tx 0 bh" in text, text)
        os.write(fd, b"p")
        expect(b"PAUSED" in read_terminal(fd, WAIT, b"PAUSED"), "p does not pause")
        os.write(fd, b"pt")
        expect(b"totals" in read_terminal(fd, WAIT, b"  totals"), "t shows no totals")
    os.write(fd, b"q")
    text = read_terminal(fd, WAIT)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    expect(status == 0, f"status {status}")
    expect(b"\x1b[?1049l" in text, "the terminal's page is not put back")


def test_policy_changes(bench):
    """Settings change while packets flow, and none is lost."""
    with Traffic(bench):
        for _ in range(10):
            for policy in ("timer", "adaptive", "flush-first", "bh"):
                bench.set(tx=policy, x_txlatency=20000, x_txtimer=30000, x_txburst=32)
                time.sleep(0.02)
    sample = measure(bench, WORKLOADS["ping"], 200)
    expect(sample["value"] > 0 and sample["ring_full"] == 0, sample)


def test_refusals(_bench):
    for args, text in (
        (["/nonexistent"], "/nonexistent"),
        (["/nonexistent", "--json"], "--once"),
        (["/nonexistent", "--interval", "0"], "seconds"),
    ):
        result = subprocess.run([sys.executable, TOP, *args], capture_output=True, text=True)
        expect(result.returncode != 0 and text in result.stderr, (args, result.stderr))
        expect("Traceback" not in result.stderr, result.stderr)


def lab(*args):
    return subprocess.run([sys.executable, os.path.join(PROJECT, "scripts", "lab.py"),
                           "--build", BUILD, "--no-qemu", *args],
                          capture_output=True, text=True, timeout=120)


def test_single_cells(_bench):
    with tempfile.TemporaryDirectory() as out:
        result = lab("--only", "policy/ping/adaptive", "--only", "gso/tcp-out", "--rounds", "2",
                     "--ms", "50", "--out", out)
        expect(result.returncode == 0, result.stderr)
        with open(os.path.join(out, "report.json")) as file:
            data = json.load(file)
        names = [e["name"] for e in data["experiments"]]
        expect(sorted(names) == ["gso", "policy"], names)
        ping = data["experiments"][names.index("policy")]["samples"]["ping"]
        expect(list(ping) == ["adaptive"] and len(ping["adaptive"]) == 2, ping)
        expect(all(sample["value"] > 0 for sample in ping["adaptive"]), ping)
        expect(len(data["experiments"][names.index("gso")]["verdicts"]) == 1, data)
        with open(os.path.join(out, "report.html")) as file:
            page = file.read()
        expect("<svg" in page and "http" not in page.replace("http-equiv", ""), "not one file")


def test_wrong_names(_bench):
    result = lab("--only", "nothing/at/all")
    expect(result.returncode == 1 and "--list" in result.stderr, result.stderr)
    expect("policy" in lab("--list").stdout, "--list")


def test_nothing_left(bench):
    folders = glob.glob(os.path.join(tempfile.gettempdir(), "swnic-lab-*"))
    expect(folders == [bench.dir], folders)
    with open("/proc/net/dev") as file:
        expect("tap0" not in file.read(), "a tap outside the namespaces")


def test_verdicts(_bench):
    def runs(*values):
        return [{"value": v, "generation": i % 3} for i, v in enumerate(values)]

    fast = runs(10, 11, 12, 10.5, 11.5, 30, 11)
    slow = runs(5, 5.5, 6, 5, 6, 14, 5.5)
    found = verdict.interval(verdict.ratios({"a": fast, "b": slow}, "a", "b"))
    expect(1.9 < found[0] < 2.2 and found[1] <= found[0] <= found[2], found)
    for bound, result in ((1.5, verdict.MET), (3, verdict.MISSED), (2.05, verdict.OPEN)):
        expect(verdict.Verdict("", "", found, low=bound).result == result, (found, bound))
    # One bench that is slow throughout says little about all.
    apart = verdict.interval([(i // 5, 1.0 if i < 10 else 0.6) for i in range(15)])
    expect(apart[1] <= 0.6 and apart[2] >= 1.0, apart)
    expect(verdict.Verdict("", "", found, high=3).result == verdict.MET, found)
    expect(verdict.Verdict("", "", None, low=1).result == verdict.OPEN, "without figures")


def main():
    tests = [test_json, test_text, test_live, test_policy_changes, test_refusals,
             test_single_cells, test_wrong_names, test_nothing_left, test_verdicts]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    with rig.Bench(BUILD, {"attach": "vfio-user", "monitors": ["top"]}) as bench:
        for number, test in enumerate(tests, 1):
            name = test.__name__[5:].replace("_", "-")
            try:
                test(bench)
                print(f"ok {number} lab/{name}", flush=True)
            except Exception as error:  # each kind fails the test
                failed += 1
                print(f"not ok {number} lab/{name}\n# {error!r}"[:2000], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
