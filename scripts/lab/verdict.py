"""From pairs of runs to verdicts.

Runs of two arms in one round are a pair: the machine was in about the same state for both.  Of the
pairs' ratios the median counts; its interval comes from drawing pairs again, with replacement
(bootstrap, 95 %): first generations of benches, then pairs of each, because runs on one bench have
more in common (where its memory lies, say) than runs on two.  A goal is met or missed when the whole interval lies on that side of it, else it
is not resolved.
"""
import random
import statistics

DRAWS = 2000
MET, MISSED, OPEN = "met", "missed", "not resolved"


def interval(values, statistic=statistics.median):
    """(statistic, low, high) of [(generation, value)]; None without values."""
    groups = {}
    for generation, value in values:
        groups.setdefault(generation, []).append(value)
    groups = list(groups.values())
    if not groups:
        return None
    chance = random.Random(1)

    def draw():
        drawn = []
        for group in chance.choices(groups, k=len(groups)):
            drawn += chance.choices(group, k=len(group))
        return statistic(drawn)

    draws = sorted(draw() for _ in range(DRAWS))
    found = statistic([value for group in groups for value in group])
    return found, draws[int(DRAWS * 0.025)], draws[int(DRAWS * 0.975) - 1]


def pairs(samples, arm, other, key="value"):
    """[(generation, arm's, other's)] of the rounds in which both ran."""
    found = []
    for mine, theirs in zip(samples.get(arm, []), samples.get(other, [])):
        if mine and theirs and mine.get(key) and theirs.get(key):
            if mine[key] == mine[key] and theirs[key] == theirs[key]:
                found.append((mine["generation"], mine[key], theirs[key]))
    return found


def ratios(samples, arm, other, key="value"):
    return [(generation, a / b) for generation, a, b in pairs(samples, arm, other, key)]


class Verdict:
    def __init__(self, goal, what, found, low=None, high=None):
        """@found: interval(); the goal is a value of at least @low, or of at most @high."""
        self.goal, self.what, self.found = goal, what, found
        self.bound = low if low is not None else high
        self.at_least = low is not None
        if not found:
            self.result = OPEN
        elif self.at_least:
            self.result = MET if found[1] >= low else MISSED if found[2] < low else OPEN
        else:
            self.result = MET if found[2] <= high else MISSED if found[1] > high else OPEN

    def as_json(self):
        value, low, high = self.found or (None, None, None)
        return {"goal": self.goal, "what": self.what, "result": self.result, "value": value,
                "interval": [low, high], "bound": self.bound,
                "direction": "at least" if self.at_least else "at most"}  # fmt: skip


FIXED = ("bh", "timer-150", "flush-first")


def _best(samples, workload):
    """The fixed policy whose median is best."""
    medians = {}
    for arm in FIXED:
        values = [s["value"] for s in samples.get(arm, []) if s and s["value"] == s["value"]]
        if values:
            medians[arm] = statistics.median(values)
    if not medians:
        return None
    return (min if workload.smaller_is_better else max)(medians, key=medians.get)


def judge_policies(samples, workloads):
    verdicts = []
    for name, arms in samples.items():
        workload, best = workloads[name], _best(arms, workloads[name])
        if not best or "adaptive" not in arms:
            continue
        if not workload.smaller_is_better:
            verdicts.append(Verdict("adaptive against the best fixed setting: throughput",
                                    f"{name}: adaptive / {best}",
                                    interval(ratios(arms, "adaptive", best)), low=0.97))
        if workload.rtt:
            verdicts.append(Verdict("adaptive against the best fixed setting: round trip",
                                    f"{name}: adaptive / {best}",
                                    interval(ratios(arms, "adaptive", best, "rtt_us")), high=1.05))
    for name in ("rr1", "ping"):
        arms = samples.get(name, {})
        removed = [
            (bh["generation"],
             (timer["rtt_us"] - adaptive["rtt_us"]) / (timer["rtt_us"] - bh["rtt_us"]))
            for timer, bh, adaptive in zip(*(arms.get(a, []) for a in ("timer-150", "bh", "adaptive")))
            if timer and bh and adaptive and all(s["rtt_us"] for s in (timer, bh, adaptive))
            and timer["rtt_us"] != bh["rtt_us"]
        ]
        if removed:
            verdicts.append(Verdict("adaptive removes the delay of the timer",
                                    f"{name}: part of timer-150 over bh", interval(removed),
                                    low=0.9))
    if "tcp-out" in samples:
        verdicts.append(Verdict("adaptive as far ahead of the timer as bh",
                                "tcp-out: adaptive / bh",
                                interval(ratios(samples["tcp-out"], "adaptive", "bh")), low=1.0))
    return verdicts  # fmt: skip


def judge(name, samples, workloads):
    """Verdicts of one experiment."""
    if name == "policy":
        return judge_policies(samples, workloads)
    verdicts = []
    if name == "gso":
        for workload, goal in (("tcp-out", 2.7), ("tcp-in", 3.6)):
            if workload in samples:
                verdicts.append(Verdict("segmentation offload on / off", workload,
                                        interval(ratios(samples[workload], "on", "off")), low=goal))
    elif name == "mtu" and "udp1472-in" in samples:
        verdicts.append(Verdict("frame in one buffer / in two", "udp1472-in",
                                interval(ratios(samples["udp1472-in"], "one", "two")), low=1.5))
    elif name == "kicks" and "rr100" in samples:
        arms = samples["rr100"]
        for arm in ("event-index", "both"):
            verdicts.append(Verdict("notifications a packet, against no event index",
                                    f"rr100: {arm}",
                                    interval(ratios(arms, arm, "no-event-index",
                                                    "tx_notifications")), high=0.5))
    elif name.startswith("against-"):
        verdicts = _judge_emulator(name[len("against-"):], samples, workloads)
    return verdicts  # fmt: skip


def _judge_emulator(other, samples, workloads):
    verdicts, medians = [], []
    for workload, arms in samples.items():
        if workloads[workload].smaller_is_better:
            verdicts.append(Verdict(f"99th percentile beside a stream, against {other}", workload,
                                    interval(ratios(arms, "swnic-adaptive", other)), high=1.0))
            continue
        found = interval(ratios(arms, "swnic", other))
        verdicts.append(Verdict(f"no cell slower than {other}", workload, found, low=1.0))
        if found:
            medians.append(found[0])
    if len(medians) >= 5:
        verdicts.append(Verdict(f"median cell against {other}", f"{len(medians)} cells",
                                interval(list(enumerate(medians))), low=1.3))
    return verdicts  # fmt: skip
