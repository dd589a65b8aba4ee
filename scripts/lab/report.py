"""report.json, and report.html: one file without references, to be read on a phone too."""
import html
import json
import math
import os

from .workloads import summary

STYLE = """
:root{--fg:#1b1f24;--bg:#fff;--line:#d5dae0;--bar:#3b76c4;--dot:#1b1f24;--good:#1a7f37;
--bad:#c0262d;--open:#8a6100;--soft:#f4f6f8}
@media(prefers-color-scheme:dark){:root{--fg:#e6e9ee;--bg:#14171b;--line:#363c44;--bar:#5a95e0;
--dot:#e6e9ee;--good:#4fc46f;--bad:#ff7b80;--open:#e0b252;--soft:#1d2127}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:58rem;padding:1rem;background:var(--bg);color:var(--fg);
font:16px/1.45 system-ui,sans-serif}
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2.2rem;border-top:1px solid var(--line);
padding-top:1rem}h3{font-size:1rem;margin:1.4rem 0 .3rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;width:100%}
th,td{padding:.25rem .5rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}td.text{white-space:normal;text-align:left}
svg{width:100%;height:auto;display:block}svg text{fill:var(--fg);font:13px system-ui,sans-serif}
.met{color:var(--good);font-weight:600}.missed{color:var(--bad);font-weight:600}
.open{color:var(--open);font-weight:600}
.counts{display:flex;gap:.6rem;flex-wrap:wrap;margin:1rem 0}
.counts div{background:var(--soft);border-radius:.5rem;padding:.5rem .9rem}
.counts b{font-size:1.4rem;display:block}
"""
CLASSES = {"met": "met", "missed": "missed", "not resolved": "open"}
LABEL, WIDTH, ROW = 130, 640, 30


def number(value):
    """Three or four digits that matter."""
    if value is None or value != value:
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - int(math.floor(math.log10(abs(value)))))
    return f"{value:,.{digits}f}"


def nice_limit(value):
    """The next of 1, 2, 5 … above @value."""
    if value <= 0:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 7.5, 10) if step * power >= value)


def plot(arms, unit):
    """A bar for the median of each arm and a dot for each run."""
    values = {arm: [s["value"] for s in samples if s["value"] == s["value"]]
              for arm, samples in arms.items()}  # fmt: skip
    top = nice_limit(max((max(v) for v in values.values() if v), default=1))
    scale = (WIDTH - LABEL - 20) / top
    height = ROW * len(arms) + 24
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img">']
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x = LABEL + tick * top * scale
        parts.append(f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height - 20}"'
                     f' stroke="var(--line)"/>')  # fmt: skip
        text = number(tick * top) + (f" {unit}" if tick == 1 else "")
        anchor = "end" if tick == 1 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{height - 5}" text-anchor="{anchor}">'
                     f"{html.escape(text)}</text>")  # fmt: skip
    for i, (arm, found) in enumerate(values.items()):
        y = i * ROW + 4
        parts.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">'
                     f"{html.escape(arm)}</text>")  # fmt: skip
        if not found:
            continue
        median = summary(found)["median"]
        parts.append(f'<rect x="{LABEL}" y="{y}" width="{median * scale:.1f}" height="20" rx="2"'
                     f' fill="var(--bar)" opacity="0.55"/>')  # fmt: skip
        for j, value in enumerate(found):
            dy = 10 + ((j * 7) % 11 - 5)
            parts.append(f'<circle cx="{LABEL + value * scale:.1f}" cy="{y + dy}" r="2.6"'
                         f' fill="var(--dot)" opacity="0.75"/>')  # fmt: skip
    parts.append("</svg>")
    return "".join(parts)


COLUMNS = (
    ("round trip µs", "rtt_us"), ("99 % µs", "p99_us"), ("stream beside, Mbit/s", "beside"),
    ("notifications / packet out", "tx_notifications"), ("interrupts / packet in", "interrupts"),
    ("CPU ns / packet", "cpu_ns"), ("packets / flush", "batch"), ("wait µs", "wait_us"),
)  # fmt: skip


def table(arms, unit):
    used = [(title, key) for title, key in COLUMNS
            if any(s.get(key) is not None for samples in arms.values() for s in samples)]  # fmt: skip
    heads = ["", f"min {unit}", "average", "max", "stddev", "runs"] + [title for title, _ in used]
    rows = ["<tr>" + "".join(f"<th>{html.escape(h)}</th>" for h in heads) + "</tr>"]
    for arm, samples in arms.items():
        s = summary([x["value"] for x in samples])
        cells = [html.escape(arm)]
        cells += [number(s[key]) for key in ("min", "avg", "max", "stddev")] if s else ["–"] * 4
        cells.append(str(s["n"] if s else 0))
        for _, key in used:
            extra = summary([x.get(key) for x in samples])
            cells.append(number(extra["median"]) if extra else "–")
        rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def goals(verdicts):
    if not verdicts:
        return ""
    rows = ["<tr><th>goal</th><th>where</th><th>found</th><th>95 % interval</th><th>wanted</th>"
            "<th></th></tr>"]  # fmt: skip
    for v in verdicts:
        low, high = v["interval"]
        sign = "≥" if v["direction"] == "at least" else "≤"
        rows.append(
            f'<tr><td class="text">{html.escape(v["goal"])}</td>'
            f'<td class="text">{html.escape(v["what"])}</td><td>{number(v["value"])}</td>'
            f"<td>{number(low)} – {number(high)}</td><td>{sign} {v['bound']:g}</td>"
            f'<td class="{CLASSES[v["result"]]}">{v["result"]}</td></tr>'
        )
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def page(data, workloads):
    verdicts = [v for e in data["experiments"] for v in e["verdicts"]]
    machine = data["machine"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>swnic lab</title><style>{STYLE}</style><h1>swnic lab</h1>",
        f"<p>{html.escape(data['when'])}, {data['seconds']:.0f} s: {data['rounds']} runs of"
        f" {data['ms']} ms a cell, in turns. {machine['cpus']} × {html.escape(machine['model'])},"
        f" Linux {html.escape(machine['kernel'])}, {machine['busy_before']:.0%} of the processors in use before.</p>",
        '<div class="counts">',
    ]
    for result, css in CLASSES.items():
        count = sum(v["result"] == result for v in verdicts)
        parts.append(f'<div><b class="{css}">{count}</b>{result}</div>')
    parts.append("</div><p>Bars are medians, dots single runs. A goal is met or missed when the"
                 " whole interval (bootstrap over pairs of runs) lies on that side.</p>")  # fmt: skip
    for experiment in data["experiments"]:
        parts.append(f"<h2 id={experiment['name']}>{html.escape(experiment['title'])}</h2>")
        parts.append(goals(experiment["verdicts"]))
        for name, arms in experiment["samples"].items():
            workload = workloads[name]
            better = "smaller is better" if workload.smaller_is_better else "larger is better"
            parts.append(f"<h3>{html.escape(workload.title)} <small>({better})</small></h3>")
            parts.append(plot(arms, workload.unit))
            parts.append(f"<details><summary>figures</summary>{table(arms, workload.unit)}</details>")
    return "\n".join(parts)


def without_nan(value):
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: without_nan(v) for key, v in value.items()}
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and value != value else value


def write(folder, data, workloads):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "report.json"), "w") as file:
        json.dump(without_nan(data), file, indent=1)
    with open(os.path.join(folder, "report.html"), "w") as file:
        file.write(page(data, workloads))
