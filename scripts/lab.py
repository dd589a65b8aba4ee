#!/usr/bin/env python3
"""The lab: measures the device between two real TCP/IP stacks.

    make lab                        everything; report in build/lab/report.html
    make lab ARGS=--quick           three minutes
    make lab ARGS='--only policy/rr1'          one workload
    make lab ARGS='--only policy/rr1/adaptive' one cell alone
    make lab ARGS=--list            what there is

Needs root, or to be run in a user namespace (unshare -r), for its network namespaces.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import cells, report, rig, verdict  # noqa: E402
from lab.workloads import WORKLOADS, measure, summary  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUICK = {"rounds": 7, "ms": 150}
FULL = {"rounds": 11, "ms": 500}
SETTLE_MS = 40  # a short run of each cell first: caches, congestion windows
OVERHEAD_S = 0.09  # of a run, beyond its time
GENERATIONS = 3  # times that the benches of an experiment are made anew


def find_qemus(commands):
    """[(name, command)]: those named, else Debian's, and forky's where its root is unpacked."""
    if commands is None:
        commands = ["qemu-system-x86_64"] if shutil.which("qemu-system-x86_64") else []
        root = os.path.join(ROOT, "build", "roots", "forky")
        if os.path.exists(os.path.join(root, "usr/bin/qemu-system-x86_64")):
            commands.append(f"{ROOT}/scripts/run-in-root.sh {root} qemu-system-x86_64"
                            f" -L {root}/usr/share/qemu -L {root}/usr/share/seabios")
    found = []
    for command in commands:
        result = subprocess.run(command.split() + ["-version"], capture_output=True, text=True)
        words = result.stdout.split()
        if result.returncode != 0 or "version" not in words:
            raise rig.LabError(f"{command}: does not say its version")
        found.append(("qemu-" + words[words.index("version") + 1].rsplit(".", 1)[0], command))
    return found


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build tree")
    parser.add_argument("--quick", action="store_true", help="three minutes")
    parser.add_argument("--only", action="append", metavar="EXPERIMENT[/WORKLOAD[/ARM]]")
    parser.add_argument("--list", action="store_true", help="names for --only")
    parser.add_argument("--rounds", type=int, help="runs of each cell")
    parser.add_argument("--ms", type=int, help="length of a run")
    parser.add_argument("--qemu", action="append", metavar="COMMAND", help="also several")
    parser.add_argument("--no-qemu", action="store_const", const=[], dest="qemu")
    parser.add_argument("--nice", type=int, default=0, metavar="N",
                        help="run at this priority, such as -15 on a machine in use")
    parser.add_argument("--out", help="folder of the report (BUILD/lab)")
    args = parser.parse_args()
    defaults = QUICK if args.quick else FULL
    args.rounds = args.rounds or defaults["rounds"]
    args.ms = args.ms or defaults["ms"]
    args.build = os.path.abspath(args.build)
    args.out = args.out or os.path.join(args.build, "lab")
    return args


class Plan:
    """The cells chosen: [(experiment, workload names, arms)]."""

    def __init__(self, args, experiments):
        self.parts = []
        for experiment in experiments:
            if args.only:
                self._add_named(experiment, args.only)
            elif experiment.quick or not args.quick:
                names = experiment.quick_workloads if args.quick else experiment.workloads
                self.parts.append((experiment, list(names), experiment.arms))
        if not self.parts:
            raise rig.LabError("--only: nothing has that name; see --list")
        self.total = sum(len(w) * len(a) for _, w, a in self.parts)

    def _add_named(self, experiment, only):
        for text in only:
            name, workload, arm = (text.split("/") + [None, None])[:3]
            workloads = [w for w in experiment.workloads if workload in (None, w)]
            arms = [a for a in experiment.arms if arm in (None, a.name)]
            if name == experiment.name and workloads and arms:
                self.parts.append((experiment, workloads, arms))


class Progress:
    """One line on the terminal: what runs, and how long it will take still."""

    def __init__(self, cells_total, args):
        generations = min(GENERATIONS, args.rounds)
        self.runs = cells_total * (args.rounds + generations)
        self.seconds = cells_total * (
            args.rounds * (args.ms / 1e3 + OVERHEAD_S)
            + generations * (SETTLE_MS / 1e3 + OVERHEAD_S)
        )
        self.done = 0
        self.begin = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self, text):
        self.done += 1
        spent = time.monotonic() - self.begin
        part = self.done / self.runs
        left = self.seconds - spent if part < 0.05 else spent * (1 - part) / part
        if self.terminal:
            line = f"[{part:4.0%}] {max(left, 0):4.0f} s left  {text}"
            sys.stderr.write("\r" + line[:100].ljust(100))
            sys.stderr.flush()

    def clear(self):
        if self.terminal:
            sys.stderr.write("\r" + " " * 100 + "\r")


def start_benches(arms, args):
    benches = {}
    try:
        for arm in arms:
            key = json.dumps(arm.config, sort_keys=True)
            if key not in benches:
                benches[key] = rig.Bench(args.build, arm.config)
            arm.bench = benches[key]
    except BaseException:
        stop_benches(benches)
        raise
    return benches


def stop_benches(benches):
    for bench in benches.values():
        bench.close()


def run_experiment(experiment, workloads, arms, args, progress):
    """{workload: {arm: [sample of each round]}}"""
    samples = {name: {arm.name: [] for arm in arms} for name in workloads}
    generations = min(GENERATIONS, args.rounds)
    for generation in range(generations):
        first, end = (args.rounds * g // generations for g in (generation, generation + 1))
        benches = start_benches(arms, args)
        try:
            for name in workloads:
                for i in range(first - 1, end):
                    warm_up = i < first
                    found = run_round(experiment, WORKLOADS[name], arms, i, warm_up, args, progress)
                    for arm, sample in found.items():
                        if not warm_up:
                            samples[name][arm].append({**sample, "generation": generation})
        finally:
            stop_benches(benches)
    for name in workloads:
        print_cells(experiment, WORKLOADS[name], samples[name], progress)
    return samples


def run_round(experiment, workload, arms, i, warm_up, args, progress):
    # Each arm is first, last and in between equally often.
    turn, found = (i + 1) % len(arms), {}
    for arm in arms[turn:] + arms[:turn]:
        progress.step(f"{experiment.name}/{workload.name}/{arm.name}")
        if arm.settings:
            arm.bench.set(**arm.settings)
        found[arm.name] = measure(arm.bench, workload, SETTLE_MS if warm_up else args.ms)
    return found


def print_cells(experiment, workload, arms, progress):
    progress.clear()
    print(f"{experiment.name}/{workload.name}: {workload.title} [{workload.unit}]")
    print(f"  {'':16} {'min':>9} {'avg':>9} {'max':>9} {'stddev':>8}"
          f" {'rtt us':>8} {'p99 us':>8} {'notif/p':>8} {'irq/p':>7} {'cpu ns/p':>9}")  # fmt: skip
    for arm, samples in arms.items():
        s = summary([x["value"] for x in samples])
        if not s:
            print(f"  {arm:16} nothing came through")
            continue
        extra = {key: summary([x.get(key) for x in samples])
                 for key in ("rtt_us", "p99_us", "tx_notifications", "interrupts", "cpu_ns")}  # fmt: skip
        texts = [f"{e['median']:.4g}" if e else "-" for e in extra.values()]
        print(f"  {arm:16} {s['min']:9.2f} {s['avg']:9.2f} {s['max']:9.2f} {s['stddev']:8.2f}"
              f" {texts[0]:>8} {texts[1]:>8} {texts[2]:>8} {texts[3]:>7} {texts[4]:>9}")  # fmt: skip
    sys.stdout.flush()


def print_verdicts(verdicts):
    print("\nGoals")
    for v in verdicts:
        found = "{:.3g} [{:.3g}, {:.3g}]".format(*v.found) if v.found else "no figures"
        sign = ">=" if v.at_least else "<="
        print(f"  {v.result:13} {v.goal}: {v.what}: {found}, goal {sign} {v.bound:g}")


def busy_part(seconds=0.3):
    """Part of the processors' time that others use now."""

    def times():
        with open("/proc/stat") as file:
            fields = [int(x) for x in file.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = times()
    time.sleep(seconds)
    total_after, idle_after = times()
    return 1 - (idle_after - idle) / max(total_after - total, 1)


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "")
    return {"cpus": os.cpu_count(), "model": model, "kernel": os.uname().release,
            "busy_before": busy_part()}  # fmt: skip


def main():
    args = parse_args()
    # An ordinary end by signal too: every process and folder goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        experiments = cells.all_experiments(args.build, find_qemus(args.qemu))
        plan = Plan(args, experiments)
        if args.list:
            for experiment, workloads, arms in plan.parts:
                print(f"{experiment.name}: {experiment.title}\n  workloads: {' '.join(workloads)}"
                      f"\n  arms:      {' '.join(a.name for a in arms)}")  # fmt: skip
            return 0
        begin, info = time.time(), machine()
        if args.nice:
            os.setpriority(os.PRIO_PROCESS, 0, args.nice)
        progress = Progress(plan.total, args)
        print(f"{plan.total} cells, {args.rounds} runs of {args.ms} ms each:"
              f" about {progress.seconds:.0f} s", flush=True)  # fmt: skip
        if info["busy_before"] > 0.1:
            print(f"Other programs use {info['busy_before']:.0%} of the processors: figures will"
                  " scatter.", flush=True)  # fmt: skip
        results, verdicts = [], []
        for experiment, workloads, arms in plan.parts:
            samples = run_experiment(experiment, workloads, arms, args, progress)
            judged = verdict.judge(experiment.name, samples, WORKLOADS)
            verdicts += judged
            results.append({"name": experiment.name, "title": experiment.title, "samples": samples,
                            "verdicts": [v.as_json() for v in judged]})  # fmt: skip
    except (rig.LabError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    progress.clear()
    print_verdicts(verdicts)
    data = {"when": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin)),
            "seconds": time.time() - begin, "rounds": args.rounds, "ms": args.ms, "machine": info,
            "experiments": results}  # fmt: skip
    report.write(args.out, data, WORKLOADS)
    print(f"\n{time.time() - begin:.0f} s; {args.out}/report.html and report.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
