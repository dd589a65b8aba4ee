"""Which configurations are compared with which, over which workloads.

An experiment has arms; the arms of one experiment run in turns, so that what the machine does
besides meets all of them alike.  Arms with the same bench share it and differ in what is set while
it runs.
"""
import os

ALL = ("tcp-out", "tcp-in", "udp64-out", "udp1400-out", "udp64-in", "udp1400-in", "rr1", "rr100",
       "ping", "mixed")  # fmt: skip
STREAMS = ("tcp-out", "tcp-in")


class Arm:
    """@config: of rig.Bench.  @set: properties while it runs."""

    def __init__(self, name, config=None, **settings):
        self.name = name
        self.config = {"attach": "vfio-user", **(config or {})}
        self.settings = settings


class Experiment:
    def __init__(self, name, title, workloads, arms, quick=True, quick_workloads=None):
        self.name = name
        self.title = title
        self.workloads = workloads
        self.arms = arms
        self.quick = quick  # also in the short run, with these workloads
        self.quick_workloads = quick_workloads or workloads


def guest(*arguments, **config):
    return {"guest": [str(a) for a in arguments], **config}


def policies():
    return Experiment(
        "policy", "When to look at the transmit ring", ALL,
        [
            Arm("bh", tx="bh"),
            Arm("timer-150", tx="timer", x_txtimer=150000),
            Arm("flush-first", tx="flush-first", x_txtimer=150000),
            Arm("adaptive", tx="adaptive", x_txlatency=50000),
        ],
    )  # fmt: skip


def settings():
    arms = [Arm("bh", tx="bh")]
    arms += [Arm(f"timer-{us}", tx="timer", x_txtimer=us * 1000) for us in (50, 150, 250)]
    arms += [Arm(f"adaptive-{us}", tx="adaptive", x_txlatency=us * 1000) for us in (20, 50, 200)]
    return [
        Experiment("timer", "x-txtimer and x-txlatency", ("tcp-out", "udp64-out", "rr1", "rr100"),
                   arms, quick=False),
        Experiment("burst", "x-txburst", ("tcp-out", "udp64-out", "rr100"),
                   [Arm(f"burst-{n}", tx="bh", x_txburst=n) for n in (16, 64, 256)], quick=False),
    ]  # fmt: skip


def driver():
    rings = [
        Arm(f"ring-{n}", guest("--ring", n, device=f"rx_queue_size={n},tx_queue_size={n}"))
        for n in (256, 512, 1024)
    ]
    wakeups = [
        Arm("no-event-index", guest("--no-event-idx")),
        Arm("event-index", guest()),
        Arm("kick-5", guest("--no-event-idx", "--kick-packets", 5, "--kick-us", 2000)),
        Arm("both", guest("--kick-packets", 5, "--kick-us", 2000)),
    ]
    return [
        Experiment("gso", "Segmentation by the kernel behind the device", STREAMS,
                   [Arm("off", guest("--no-gso")), Arm("on", guest())]),
        Experiment("mtu", "A frame of 1514 bytes in one receive buffer or in two",
                   ("udp1472-in", "tcp-in"),
                   [Arm("two", guest("--no-gso", "--rx-buffer", 1514)),
                    Arm("one", guest("--no-gso", "--rx-buffer", 1526))],
                   quick_workloads=("udp1472-in",)),
        Experiment("kicks", "Event index, and notifications put off by the driver", ("rr100",),
                   wakeups),
        Experiment("coalescing", "Interrupts coalesced by the device", ("rr1", "rr100", "udp64-in"),
                   [Arm("off", guest(device="notf_coal=on"))]
                   + [Arm(f"{n}-in-{us}us", guest("--coal-packets", n, "--coal-us", us,
                                                  device="notf_coal=on"))
                      for n, us in ((8, 50), (32, 200))], quick=False),
        Experiment("ring", "Entries of the rings", ("tcp-out", "tcp-in", "udp64-out", "rr100"),
                   rings, quick=False),
        Experiment("cleanup", "Used transmit buffers taken back late or at once",
                   ("tcp-out", "udp64-out", "rr1"),
                   [Arm("late", guest()), Arm("at-once", guest("--eager"))], quick=False),
    ]  # fmt: skip


def emulators(build, qemus):
    """The same cells, attached by qtest, on ours and on others."""
    ours = os.path.join(build, "swnic-system-x86_64")
    experiments = []
    for name, command in qemus:
        arms = [
            Arm(name, {"attach": "qtest", "emulator": command}),
            Arm("swnic", {"attach": "qtest", "emulator": ours}),
            Arm("swnic-adaptive",
                {"attach": "qtest", "emulator": ours, "device": "tx=adaptive"}),
        ]  # fmt: skip
        experiments.append(
            Experiment(f"against-{name}", f"swnic and {name}, both by qtest", ALL, arms,
                       quick=not experiments)
        )  # fmt: skip
    return experiments


def all_experiments(build, qemus):
    return [policies(), *driver(), *emulators(build, qemus), *settings()]
