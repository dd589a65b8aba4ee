"""What is sent through the bench, and what is measured while it is.

"out" is guest to host: from namespace A through the transmit ring to namespace B; "in" is back.
"""
import statistics

from .rig import HOSTS, PORT, cpu_ns


def _to(side, kind, ms, *rest):
    """A client that talks to @side, and so runs on the other one."""
    at = "a" if side == "b" else "b"
    port = () if kind == "ping" else (PORT,)
    return at, [kind, HOSTS[side], *port, ms, *rest]


class Workload:
    """@main is the load whose figures count; @beside runs at the same time."""

    def __init__(self, name, title, unit, main, beside=None, rtt=None, figure="rate", scale=1.0):
        self.name = name
        self.title = title
        self.unit = unit
        self.main = main
        self.beside = beside
        self.rtt = rtt  # the figure that is its round-trip time
        self.figure = figure
        self.scale = scale
        self.smaller_is_better = figure != "rate"

    def loads(self, ms):
        loads = [_to(*self.main[:2], ms, *self.main[2:])]
        if self.beside:
            loads.append(_to(*self.beside[:2], ms, *self.beside[2:]))
        return loads


MBIT, K = 8e-6, 1e-3
WORKLOADS = {
    w.name: w
    for w in (
        Workload("tcp-out", "TCP stream, guest to host", "Mbit/s", ("b", "tcp"), scale=MBIT),
        Workload("tcp-in", "TCP stream, host to guest", "Mbit/s", ("a", "tcp"), scale=MBIT),
        Workload("udp64-out", "UDP 64 bytes, guest to host", "k/s", ("b", "udp", 64), scale=K),
        Workload("udp1400-out", "UDP 1400 bytes, guest to host", "k/s", ("b", "udp", 1400), scale=K),
        Workload("udp64-in", "UDP 64 bytes, host to guest", "k/s", ("a", "udp", 64), scale=K),
        Workload("udp1400-in", "UDP 1400 bytes, host to guest", "k/s", ("a", "udp", 1400), scale=K),
        Workload("udp1472-in", "UDP in frames of 1514 bytes, host to guest", "k/s",
                 ("a", "udp", 1472), scale=K),
        Workload("rr1", "request/response, 1 connection", "k/s", ("b", "rr", 1, 256),
                 rtt="p50_ns", scale=K),
        Workload("rr100", "request/response, 100 connections", "k/s", ("b", "rr", 100, 256),
                 rtt="p50_ns", scale=K),
        Workload("ping", "ping flood", "k/s", ("b", "ping"), rtt="p50_ns", scale=K),
        Workload("mixed", "99th percentile round trip beside a TCP stream", "µs",
                 ("b", "rr", 1, 256), beside=("b", "tcp"), rtt="p99_ns", figure="p99_ns",
                 scale=K),
    )
}  # fmt: skip


def _delta(after, before, *path):
    for key in path:
        after, before = after[key], before[key]
    return after - before


def measure(bench, workload, ms):
    """One run; a flat dictionary of figures."""
    device, guest, cpu = bench.device_stats(), bench.guest_stats(), cpu_ns(bench.pid)
    answers = bench.run(workload.loads(ms))
    cpu_after, guest_after, device_after = cpu_ns(bench.pid), bench.guest_stats(), bench.device_stats()
    sent = _delta(guest_after, guest, "tx_packets")
    received = _delta(guest_after, guest, "rx_packets")
    packets = max(sent + received, 1)
    main = answers[0]
    sample = {
        "value": main[workload.figure] * workload.scale if main.get("count", 1) else float("nan"),
        "rtt_us": main[workload.rtt] / 1e3 if workload.rtt and main.get("count") else None,
        "p99_us": main["p99_ns"] / 1e3 if main.get("count") else None,
        "beside": answers[1]["rate"] * MBIT if workload.beside else None,
        "packets_out": sent,
        "packets_in": received,
        "notifications": (_delta(guest_after, guest, "tx_notifications")
                          + _delta(guest_after, guest, "rx_notifications")) / packets,
        "tx_notifications": _delta(guest_after, guest, "tx_notifications") / max(sent, 1),
        "interrupts": _delta(guest_after, guest, "rx_interrupts") / max(received, 1),
        "cpu_ns": (cpu_after - cpu) / packets,
        "ring_full": _delta(guest_after, guest, "ring_full"),
    }  # fmt: skip
    if device:
        sample["interrupts"] = _delta(device_after, device, "rx", "interrupts") / max(received, 1)
        sample["wait_us"] = _delta(device_after, device, "tx", "wait-ns") / max(sent, 1) / 1e3
        batches = sum(
            _delta(device_after, device, "tx", "flushes", cause)
            for cause in device["tx"]["flushes"]
        )
        sample["batch"] = sent / max(batches, 1)
    return sample


def summary(values):
    """min, average, max, standard deviation, median, as the threads gave their figures."""
    values = [v for v in values if v is not None and v == v]
    if not values:
        return None
    return {
        "n": len(values),
        "min": min(values),
        "avg": statistics.fmean(values),
        "max": max(values),
        "stddev": statistics.stdev(values) if len(values) > 1 else 0.0,
        "median": statistics.median(values),
    }
